//! Channels in two halves: behaviour of agents beyond the laws.

use std::cell::{Cell, RefCell};
use std::fmt::Debug;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};

use dunlin_core::agent::{Event, FromReceiver, Given, Inlet, LoneOutlet, Outlet, Reserved, join};
use dunlin_core::{
    Choice, MessageId, Operation, Overflow, Par, Policy, Receiver, RecvError, SendError, Sender, Shared, Why, alt,
    channel, channel_with, doc, drop_newest, fifo, future, overwrite_newest, overwrite_oldest, par, rendezvous,
    send_to_any, unbounded,
};

/// Two halves that are not joined: the test carries their messages.
struct Halves<T: Send + 'static> {
    tx: Sender<T>,
    outlet: Outlet<T>,
    inlet: Inlet<T>,
    rx: Receiver<T>,
}

fn halves<T: Send + 'static>(policy: impl Into<Policy>) -> Halves<T> {
    let ((tx, far), (near, rx)) = (channel(), channel_with(policy));
    Halves { tx, outlet: Outlet::new(far), inlet: Inlet::new(near), rx }
}

/// As [`halves`], with the first credits granted; also returns their number.
fn halves_with_credits<T: Send + 'static>(policy: impl Into<Policy>) -> (Halves<T>, u32) {
    let halves = halves(policy);
    let credits = halves.inlet.credits();
    halves.outlet.credit(credits);
    (halves, credits)
}

/// Polls the future once.
fn once<F: Future>(future: F) -> Option<F::Output> {
    dunlin_core::__rt::renew();
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// All events that an agent has now.
fn all<E: Debug>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<E>) -> Vec<E> {
    let mut events = Vec::new();
    while let Poll::Ready(event) = poll(&mut Context::from_waker(Waker::noop())) {
        events.push(event);
    }
    events
}

fn show<E: Debug>(events: &[E]) -> String {
    events.iter().map(|event| format!("{event:?}")).collect::<Vec<_>>().join(" ")
}

impl<T: Send + Debug + 'static> Halves<T> {
    /// The events of the sender's half.
    fn sender_says(&mut self) -> String {
        show(&all(|cx| self.outlet.poll(cx)))
    }

    /// The events of the receiver's half.
    fn receiver_says(&mut self) -> String {
        show(&all(|cx| self.inlet.poll(cx)))
    }
}

/// The agent of a remote sender asks to be notified once of a waiting receive: at once if one is waiting
/// already, else when the next one waits.
#[test]
fn a_carrier_that_asks_is_notified_of_a_waiting_receive() {
    let (mut halves, _) = halves_with_credits::<u8>(fifo(3));
    assert_eq!(once(halves.rx.recv()), None);
    assert_eq!(halves.receiver_says(), "", "nothing was asked");
    halves.inlet.ask_awaited();
    halves.inlet.ask_awaited();
    assert_eq!(halves.receiver_says(), "", "that receive was dropped");
    {
        let mut waits = pin!(halves.rx.recv());
        let mut poll = || waits.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(poll().is_pending());
        assert_eq!(show(&all(|cx| halves.inlet.poll(cx))), "Awaited");
        assert!(poll().is_pending());
        assert_eq!(show(&all(|cx| halves.inlet.poll(cx))), "");
        halves.inlet.ask_awaited();
        assert_eq!(show(&all(|cx| halves.inlet.poll(cx))), "Awaited", "it waits still");
    }
    // A receive that finds a value returns it without waiting.
    halves.inlet.ask_awaited();
    halves.inlet.push(7).unwrap();
    assert_eq!(once(halves.rx.recv()), Some(Ok(7)));
    assert!(!halves.receiver_says().contains("Awaited"));
    // A choice also waits.
    let Halves { mut rx, mut inlet, .. } = halves;
    let (_tx, mut other) = channel::<u8>();
    let mut waits = pin!(async {
        alt! { value = rx.recv() => value, value = other.recv() => value }
    });
    assert!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert!(show(&all(|cx| inlet.poll(cx))).contains("Awaited"));
}

/// A receiver asks for a choice's offer while the choice is closed because it polls a foreign future.
#[test]
fn closed_choice_is_reserved_when_it_opens() {
    for foreign_wakes in 0..40 {
        let ((mut tx, rx), (ty, mut ry)) = (channel(), channel());
        let mut slot = Some(1);
        let mut left = foreign_wakes;
        let (sent, received, ()) = doc::block_on(async {
            par!(
                async move {
                    alt! {
                        sent = tx.send_from(&mut slot) => sent,
                        () = future(poll_fn(|cx| {
                            if left > 0 {
                                left -= 1;
                                cx.waker().wake_by_ref();
                            }
                            Poll::<()>::Pending
                        })) => unreachable!("it never ends"),
                    }
                },
                async move { ry.recv().await },
                join(Outlet::new(rx), Inlet::new(ty)),
            )
        });
        assert_eq!((sent, received), (Ok(()), Ok(1)), "{foreign_wakes} wakes");
    }
}

/// As above, and the receiver is polled *while* the foreign future is, as another thread might poll it.
#[test]
fn receiver_polled_while_the_choice_is_closed_gets_the_value() {
    for foreign_wakes in 0..40 {
        let ((mut tx, rx), (ty, mut ry)) = (channel(), channel());
        let (mut slot, mut left) = (Some(1), foreign_wakes);
        // The receive, its waker from the branch that waits for it, and its output.
        let receive = RefCell::new((Box::pin(async move { ry.recv().await }), None::<Waker>, None));
        let poll_receive = || {
            let (future, waker, output) = &mut *receive.borrow_mut();
            if let (None, Some(waker)) = (&output, &waker)
                && let Poll::Ready(received) = future.as_mut().poll(&mut Context::from_waker(waker))
            {
                *output = Some(received);
                waker.wake_by_ref();
            }
        };
        let (sent, received, ()) = doc::block_on(async {
            par!(
                async {
                    alt! {
                        sent = tx.send_from(&mut slot) => { drop(tx); sent }
                        () = future(poll_fn(|cx| {
                            poll_receive();
                            if left > 0 {
                                left -= 1;
                                cx.waker().wake_by_ref();
                            }
                            Poll::<()>::Pending
                        })) => unreachable!("it never ends"),
                    }
                },
                poll_fn(|cx| {
                    receive.borrow_mut().1 = Some(cx.waker().clone());
                    poll_receive();
                    receive.borrow_mut().2.take().map_or(Poll::Pending, Poll::Ready)
                }),
                join(Outlet::new(rx), Inlet::new(ty)),
            )
        });
        assert_eq!((sent, received), (Ok(()), Ok(1)), "{foreign_wakes} wakes");
    }
}

#[test]
fn only_buffers_with_places_promise_credits() {
    let credits = |policy: Policy| halves::<u8>(policy).inlet.credits();
    assert_eq!((credits(fifo(1)), credits(fifo(7)), credits(unbounded())), (1, 7, 1024));
    assert_eq!(credits(fifo(usize::MAX)), 1024, "at most 1024 values may be in flight");
    let decide_at_home = [rendezvous(), overwrite_oldest(2), overwrite_newest(2), drop_newest(2)];
    assert_eq!(decide_at_home.map(credits), [0; 4]);
    assert_eq!(credits(fifo(2).pending_senders(1, Overflow::Reject)), 0, "a bound on senders must see them");
    let halves = halves::<u8>(fifo(3));
    assert_eq!((halves.inlet.credits(), halves.inlet.credits()), (3, 0), "each is promised once");
}

/// Sends on credits cross without a request. Without a credit they wait at their own half, where they can be
/// withdrawn at once.
#[test]
fn send_to_a_fifo_on_a_credit_needs_no_request() {
    let (mut h, credits) = halves_with_credits(fifo(3));
    assert_eq!(credits, 3);
    assert_eq!(once(h.tx.send(0)), Some(Ok(())));
    assert_eq!(h.tx.try_send(1), Ok(()));
    assert_eq!(h.tx.len(), 0, "the values are on their way");
    let mut slot = Some(2);
    assert_eq!(once(h.tx.send_from(&mut slot)), Some(Ok(())));
    assert_eq!(h.tx.try_send(3), Err(SendError::NotTaken { value: 3, why: Why::WouldBlock }));
    let mut slot = Some(3);
    assert_eq!(once(h.tx.send_from(&mut slot)), None);
    assert_eq!(slot, Some(3), "it is back as it is dropped");
    assert_eq!(h.sender_says(), "Sent(0) Sent(1) Sent(2)", "a waiting value does not cross");
    for value in 0..3 {
        assert_eq!(h.inlet.push(value), Ok(value as usize + 1));
    }
    assert_eq!(h.inlet.push(3), Err(3), "no place was promised for it");
    assert_eq!(h.receiver_says(), "");
    assert_eq!((h.rx.len(), h.rx.try_recv(), h.rx.try_recv()), (3, Ok(0), Ok(1)));
    let mut waiting = pin!(h.tx.send(3));
    assert_eq!(once(waiting.as_mut()), None);
    assert_eq!(show(&all(|cx| h.inlet.poll(cx))), "Credit(2)", "both at once");
    h.outlet.credit(2);
    assert_eq!(once(waiting), Some(Ok(())));
    assert_eq!(show(&all(|cx| h.outlet.poll(cx))), "Sent(3)");
}

#[test]
fn choice_with_a_credit_is_decided_at_the_sending_half() {
    let (mut h, _) = halves_with_credits(fifo(1));
    let (mut other, mut from_other) = channel_with(fifo(1));
    for (round, wins) in [(0, "send"), (1, "nothing"), (2, "receive")] {
        if round == 2 {
            other.try_send(7).unwrap();
        }
        let mut slot = Some(round);
        let chosen = once(async {
            alt! { biased;
                sent = h.tx.send_from(&mut slot) => { sent.unwrap(); "send" }
                got = from_other.recv() => { got.unwrap(); "receive" }
            }
        });
        assert_eq!(chosen.unwrap_or("nothing"), wins);
        assert_eq!(slot.is_none(), wins == "send");
        assert_eq!(h.sender_says(), if round == 0 { "Sent(0)" } else { "" }, "nothing tentative crosses");
    }
    // A waiting choice gets the place as soon as it is free.
    let (mut a, mut slot) = (halves_with_credits(fifo(1)).0, Some(1));
    a.tx.try_send(0).unwrap();
    let mut choice = pin!(async {
        alt! { sent = a.tx.send_from(&mut slot) => sent, got = from_other.recv() => unreachable!("{got:?}") }
    });
    assert_eq!(once(choice.as_mut()), None);
    a.outlet.credit(1);
    assert_eq!(once(choice), Some(Ok(())));
    assert_eq!(show(&all(|cx| a.outlet.poll(cx))), "Sent(0) Sent(1)");
}

/// Sends that waited for the first credits go out on them; those that get no credit are no longer offered.
#[test]
fn waiting_sends_complete_on_the_first_credits() {
    let h = halves(fifo(1));
    let (mut outlet, mut a) = (h.outlet, h.tx.share());
    let mut b = a.clone();
    let (mut first, mut second) = (pin!(a.send(1)), pin!(b.send(2)));
    assert_eq!((once(first.as_mut()), once(second.as_mut())), (None, None));
    outlet.credit(1);
    assert_eq!((once(first), once(second.as_mut())), (Some(Ok(())), None));
    assert_eq!(show(&all(|cx| outlet.poll(cx))), "Sent(1)");
    outlet.credit(1);
    assert_eq!(once(second), Some(Ok(())));
    assert_eq!(show(&all(|cx| outlet.poll(cx))), "Sent(2)");
}

/// A sender at the receiver's half, next to the inlet. (The inlet takes over its end; the handles stay.)
fn beside_the_inlet(policy: Policy) -> (Shared<Sender<u32>>, Inlet<u32>, Receiver<u32>) {
    let (tx, rx) = channel_with(policy);
    let mut shared = tx.share();
    let near = std::mem::replace(&mut *shared.try_claim().unwrap(), channel().0);
    (shared, Inlet::new(near), rx)
}

#[test]
fn a_promised_place_is_not_free() {
    let (mut local, mut inlet, mut rx) = beside_the_inlet(fifo(2));
    local.try_send(0).unwrap();
    assert_eq!(inlet.credits(), 1, "one of the two is taken");
    assert!(local.try_send(9).is_err());
    assert_eq!(rx.try_recv(), Ok(0));
    assert!(local.try_send(9).is_err(), "the place went to the remote sender: no local send waited");
    assert_eq!(show(&all(|cx| inlet.poll(cx))), "Credit(1)");
    assert_eq!((inlet.push(1), inlet.push(2), inlet.push(3)), (Ok(1), Ok(2), Err(3)));
    // Both sides need every place and get them in turn.
    let mut more = local.clone();
    let (mut send, mut next) = (pin!(local.send(10)), pin!(more.send(11)));
    assert_eq!((once(send.as_mut()), once(next.as_mut())), (None, None));
    assert_eq!(rx.try_recv(), Ok(1));
    assert_eq!((once(send), once(next.as_mut())), (Some(Ok(())), None));
    assert_eq!(show(&all(|cx| inlet.poll(cx))), "");
    assert_eq!(rx.try_recv(), Ok(2));
    assert_eq!(once(next.as_mut()), None);
    assert_eq!(show(&all(|cx| inlet.poll(cx))), "Credit(1)");
    assert_eq!(rx.try_recv(), Ok(10));
    assert_eq!((once(next), inlet.push(4)), (Some(Ok(())), Ok(2)));
    assert_eq!((rx.try_recv(), rx.try_recv()), (Ok(11), Ok(4)));
}

#[test]
fn extended_receive_holds_its_place_until_release() {
    let (mut h, _) = halves_with_credits(fifo(2));
    h.inlet.push(1).unwrap();
    let guard = once(h.rx.recv_extended()).unwrap().unwrap();
    h.inlet.push(2).unwrap();
    assert_eq!(show(&all(|cx| h.inlet.poll(cx))), "");
    drop(guard);
    assert_eq!(h.receiver_says(), "Credit(1)");
}

#[test]
fn unbounded_buffer_renews_credits_as_values_arrive() {
    let (mut h, credits) = halves_with_credits(unbounded());
    for value in 0..credits {
        assert_eq!(h.tx.try_send(value), Ok(()));
    }
    assert!(h.tx.try_send(0).is_err());
    for event in all(|cx| h.outlet.poll(cx)) {
        let dunlin_core::agent::Event::Sent(value) = event else { panic!("{event:?}") };
        h.inlet.push(value).unwrap();
    }
    assert_eq!((h.rx.len(), h.receiver_says().as_str()), (1024, "Credit(1024)"), "nothing was received");
}

/// An agent may be promised fewer places than the policy has: a receive makes room again.
#[test]
fn lend_at_most_limits_promised_credits() {
    for policy in [unbounded(), fifo(10)] {
        let (mut h, credits) = halves_with_credits(policy);
        assert!(credits >= 10);
        h.inlet.lend_at_most(3);
        // Values sent on earlier promises still arrive.
        for value in 0..10 {
            h.tx.try_send(value).unwrap();
            assert_eq!(h.inlet.push(value), Ok(value as usize + 1));
        }
        for _ in 10..credits {
            h.tx.try_send(0).unwrap();
            h.inlet.push(0).unwrap();
        }
        assert!(h.tx.try_send(0).is_err());
        assert_eq!(h.receiver_says(), "");
        for _ in 3..credits {
            h.rx.try_recv().unwrap();
        }
        // No place is promised, but half of the buffered values are received.
        assert_eq!((h.receiver_says().as_str(), h.rx.len()), ("Credit(0)", 3));
        h.rx.try_recv().unwrap();
        h.rx.try_recv().unwrap();
        assert_eq!(h.receiver_says(), "Credit(2)");
        h.inlet.lend_at_most(0);
        h.inlet.push(0).unwrap();
        h.inlet.push(0).unwrap();
        h.rx.try_recv().unwrap();
        h.rx.try_recv().unwrap();
        assert_eq!((h.receiver_says().as_str(), h.rx.len()), ("Credit(0)", 1));
        h.rx.try_recv().unwrap();
        assert_eq!(h.receiver_says(), "Credit(1)", "one there always is");
        h.inlet.lend_at_most(u32::MAX);
        assert_eq!(h.receiver_says(), format!("Credit({})", credits - 1), "as much as the policy has");
    }
}

/// The receiver retires while values are in flight: their sends are complete, so it receives them before the
/// end.
#[test]
fn retired_receiver_receives_values_in_flight() {
    let (mut h, _) = halves_with_credits(fifo(3));
    for value in 0..3 {
        h.tx.try_send(value).unwrap();
    }
    h.inlet.push(0).unwrap();
    assert_eq!(h.rx.try_recv(), Ok(0));
    h.rx.retire();
    assert_eq!((once(h.rx.recv()), h.rx.try_recv(), h.rx.is_closed()), (None, Err(RecvError::WouldBlock), false));
    assert_eq!(h.receiver_says(), "Retired Credit(1)", "something may wait for the place that is free");
    h.outlet.retire();
    assert!(h.tx.try_send(3).unwrap_err().is_closed());
    assert_eq!(h.sender_says(), "Sent(0) Sent(1) Sent(2) Retired", "in this order");
    assert_eq!((h.inlet.push(1), h.rx.try_recv(), once(h.rx.recv())), (Ok(1), Ok(1), None));
    assert_eq!(h.inlet.push(2), Ok(1));
    h.inlet.retire();
    assert_eq!(h.inlet.push(3), Err(3), "the sender had ended");
    assert_eq!((once(h.rx.recv()), once(h.rx.recv())), (Some(Ok(2)), Some(Err(RecvError::Closed))));
    assert_eq!(
        (h.receiver_says().as_str(), h.rx.is_closed()),
        ("Credit(0)", true),
        "no places are promised after the end"
    );
}

#[test]
fn poison_drops_values_in_flight() {
    let value = Arc::new(());
    // From the receiver.
    let (mut h, _) = halves_with_credits(fifo(3));
    h.tx.try_send(value.clone()).unwrap();
    h.rx.poison("now");
    h.receiver_says();
    let on_the_way = all(|cx| h.outlet.poll(cx)).pop();
    let Some(dunlin_core::agent::Event::Sent(sent)) = on_the_way else { panic!("{on_the_way:?}") };
    assert_eq!((h.inlet.push(sent), Arc::strong_count(&value)), (Ok(0), 1), "no fault of the sender's");
    // Poison from the sender arrives after the values that it has sent.
    let (mut h, _) = halves_with_credits(fifo(3));
    h.tx.try_send(value.clone()).unwrap();
    h.tx.poison("now");
    let mut events = all(|cx| h.outlet.poll(cx));
    assert_eq!(show(&events), r#"Sent(()) Poisoned("now")"#);
    let dunlin_core::agent::Event::Sent(sent) = events.remove(0) else { unreachable!() };
    h.inlet.push(sent).unwrap();
    assert_eq!((h.rx.len(), Arc::strong_count(&value)), (1, 2));
    h.inlet.poison("now".into());
    assert_eq!((h.rx.len(), Arc::strong_count(&value)), (0, 1));
    // The receiver is gone.
    let (mut h, _) = halves_with_credits(fifo(3));
    h.tx.try_send(value.clone()).unwrap();
    drop(h.rx);
    let Some(dunlin_core::agent::Event::Sent(sent)) = all(|cx| h.outlet.poll(cx)).pop() else { unreachable!() };
    assert_eq!((h.inlet.push(sent), Arc::strong_count(&value)), (Ok(0), 1));
    // The agent is dropped before it has learned of the end.
    h.outlet.credit(1);
    h.tx.try_send(value.clone()).unwrap();
    drop(h.outlet);
    assert_eq!(Arc::strong_count(&value), 1);
    assert!(h.tx.try_send(value.clone()).unwrap_err().is_closed());
}

/// Forgets a send after its first poll: its offer stands, and no task waits for it.
fn forget_send<T: Send + 'static>(tx: &mut Sender<T>, value: T) {
    let mut send = Box::pin(tx.send(value));
    assert!(once(send.as_mut()).is_none());
    std::mem::forget(send);
}

/// A dropped sender leaves a forgotten offer standing, as in one memory: `Gone` is sent after that has been
/// taken.
#[test]
fn gone_is_sent_after_all_standing_offers() {
    let mut h = halves::<u8>(rendezvous());
    forget_send(&mut h.tx, 7);
    drop(h.tx);
    assert_eq!(show(&all(|cx| h.outlet.poll(cx))), "FirmOffer(2, 7)");
    h.inlet.offer(2, 7);
    assert_eq!((h.rx.try_recv(), show(&all(|cx| h.inlet.poll(cx))).as_str()), (Ok(7), "Taken(2)"));
    h.outlet.taken(2);
    assert_eq!(show(&all(|cx| h.outlet.poll(cx))), "Gone");
    drop(h.inlet);
    assert_eq!(h.rx.try_recv(), Err(RecvError::Closed));

    // A send without a credit waits for one.
    let (mut h, _) = halves_with_credits(fifo(1));
    h.tx.try_send(1).unwrap();
    forget_send(&mut h.tx, 2);
    drop(h.tx);
    assert_eq!(show(&all(|cx| h.outlet.poll(cx))), "Sent(1)");
    h.outlet.credit(1);
    assert_eq!(show(&all(|cx| h.outlet.poll(cx))), "Sent(2) Gone");

    // A dropped send waits for the answer to its withdrawal.
    let mut h = halves::<u8>(rendezvous());
    let mut send = Box::pin(h.tx.send(7));
    assert_eq!(once(send.as_mut()), None);
    assert_eq!(show(&all(|cx| h.outlet.poll(cx))), "FirmOffer(2, 7)");
    drop(send);
    drop(h.tx);
    assert_eq!(show(&all(|cx| h.outlet.poll(cx))), "AskedBack(2)");
    h.outlet.withdrawn(2, Some(7.into()));
    assert_eq!(show(&all(|cx| h.outlet.poll(cx))), "Gone");

    // An extended receive has returned the value: no offer is open, though the value is held.
    let mut h = halves::<u8>(rendezvous());
    forget_send(&mut h.tx, 7);
    drop(h.tx);
    assert_eq!(show(&all(|cx| h.outlet.poll(cx))), "FirmOffer(2, 7)");
    h.outlet.held(2);
    assert_eq!(show(&all(|cx| h.outlet.poll(cx))), "Gone");

    // After the end, values that have not gone out will never be taken.
    for poison in [false, true] {
        let mut h = halves::<u8>(rendezvous());
        forget_send(&mut h.tx, 7);
        drop(h.tx);
        if poison {
            h.outlet.poison("now".into());
        } else {
            h.outlet.retire();
        }
        let end = if poison { r#"Poisoned("now") Gone"# } else { "Retired Gone" };
        assert_eq!(show(&all(|cx| h.outlet.poll(cx))), end);
    }
}

/// The offers of a forgotten choice also stand until one is taken; then the other is dead.
#[test]
fn forgotten_choice_offers_stand_until_one_is_taken() {
    let (mut a, mut b) = (halves::<u8>(rendezvous()), halves::<u8>(rendezvous()));
    let mut slots = Box::new((Some(1), Some(2)));
    let (one, other) = &mut *slots;
    let mut choice = Box::pin(async {
        alt! { sent = a.tx.send_from(one) => drop(sent), sent = b.tx.send_from(other) => drop(sent) }
    });
    for _ in 0..20 {
        assert_eq!(once(choice.as_mut()), None);
    }
    std::mem::forget(choice);
    drop((a.tx, b.tx));
    let (mut joint, mut other) = (Box::pin(join(a.outlet, a.inlet)), Box::pin(join(b.outlet, b.inlet)));
    assert_eq!((once(joint.as_mut()), once(other.as_mut())), (None, None));
    assert_eq!(once(a.rx.recv()), None, "it asks");
    assert_eq!(once(joint.as_mut()), None);
    // A dropped receive has given its request up; this one asks again.
    let mut receive = Box::pin(a.rx.recv());
    assert_eq!(once(receive.as_mut()), None);
    assert_eq!(once(joint.as_mut()), None);
    assert_eq!(once(receive), Some(Ok(1)));
    assert_eq!(once(joint), Some(()));
    assert_eq!(once(a.rx.recv()), Some(Err(RecvError::Closed)));
    let mut receive = pin!(b.rx.recv());
    assert_eq!(once(receive.as_mut()), None);
    assert_eq!(once(other), Some(()), "its choice has been decided: nothing is open");
    assert_eq!(once(receive), Some(Err(RecvError::Closed)));
}

/// The receiver is gone before the offer arrives: the offer fails there, and the answer reaches the sender.
#[test]
fn offer_to_ended_receiver_returns_its_value() {
    type End = fn(Receiver<u8>) -> Option<Receiver<u8>>;
    let retire: End = |rx| {
        rx.retire();
        Some(rx)
    };
    let poison: End = |rx| {
        rx.poison("now");
        Some(rx)
    };
    let gone: End = |_| None;
    let ends = [(gone, Why::Closed), (retire, Why::Closed), (poison, Why::Poisoned("now".into()))];
    for (end, why) in ends {
        let mut h = halves(rendezvous());
        let mut slot = Some(7);
        let mut send = Box::pin(h.tx.send_from(&mut slot));
        assert_eq!(once(send.as_mut()), None);
        let rx = end(h.rx);
        let mut joint = pin!(join(h.outlet, h.inlet));
        assert_eq!(once(joint.as_mut()).is_some(), rx.is_none());
        assert_eq!(once(send), Some(Err(SendError::NotTaken { value: (), why })));
        assert_eq!(slot, Some(7));
    }
}

/// An agent reports events that happened to the channel before its ends were apart.
#[test]
fn new_agent_reports_earlier_channel_events() {
    let before = |act: fn(&mut Sender<u8>)| {
        let (mut tx, rx) = channel();
        act(&mut tx);
        (Outlet::new(rx), tx)
    };
    let (tx, rx) = channel::<u8>();
    drop(tx);
    let mut outlet = Outlet::new(rx);
    assert_eq!(show(&all(|cx| outlet.poll(cx))), "Gone");
    let (mut outlet, _tx) = before(|tx| tx.retire());
    assert_eq!(show(&all(|cx| outlet.poll(cx))), "Retired");
    let (mut outlet, _tx) = before(|tx| tx.poison("early"));
    assert_eq!(show(&all(|cx| outlet.poll(cx))), r#"Poisoned("early")"#);
    let (mut outlet, _tx) = before(|tx| forget_send(tx, 7));
    assert_eq!(show(&all(|cx| outlet.poll(cx))), "FirmOffer(1, 7)");

    let (tx, rx) = channel::<u8>();
    drop(rx);
    let mut inlet = Inlet::new(tx);
    assert_eq!(show(&all(|cx| inlet.poll(cx))), "Gone");
    let (tx, rx) = channel_with::<u8>(fifo(2));
    rx.retire();
    let mut inlet = Inlet::new(tx);
    assert_eq!((inlet.credits(), show(&all(|cx| inlet.poll(cx))).as_str()), (2, "Retired"), "for values sent before");
}

fn id(number: u64) -> MessageId {
    MessageId { channel: 9, number }
}

/// The receiver's node is lost: a value that arrived there may have been received, any other was not.
#[test]
fn a_lost_receiver_leaves_three_outcomes() {
    let h = halves(rendezvous());
    let (mut outlet, mut a) = (h.outlet, h.tx.share());
    let (mut b, mut c, mut d) = (a.clone(), a.clone(), a.clone());
    let (mut slot_a, mut slot_b, mut slot_c) = (Some(1), Some(2), Some(3));
    let mut held = Box::pin(a.send_from(&mut slot_a));
    let mut unknown = Box::pin(b.send_from(&mut slot_b));
    assert_eq!((once(held.as_mut()), once(unknown.as_mut())), (None, None));
    assert_eq!(show(&all(|cx| outlet.poll(cx))), "FirmOffer(2, 1) FirmOffer(3, 2)");
    outlet.held(2);
    let mut not_taken = Box::pin(c.send_from(&mut slot_c));
    assert_eq!(once(not_taken.as_mut()), None);
    outlet.lost(3, 2, id(3));
    outlet.down();
    assert_eq!(once(held), Some(Ok(())), "an extended receive had returned it");
    assert_eq!(once(unknown), Some(Err(SendError::Unknown { value: (), id: id(3) })));
    assert_eq!(once(not_taken), Some(Err(SendError::NotTaken { value: (), why: Why::NodeLost })));
    assert_eq!((slot_a, slot_b, slot_c), (None, Some(2), Some(3)));
    assert_eq!(once(d.send(4)), Some(Err(SendError::NotTaken { value: 4, why: Why::NodeLost })));
    assert!(d.is_closed());
    assert_eq!(once(b.settle(&mut None)), Some(Ok(())), "the loss has been reported");
    drop((b, c, d, a));

    // Without a credit the value was not taken.
    let (mut h, _) = halves_with_credits(fifo(1));
    h.tx.try_send(1).unwrap();
    let mut send = Box::pin(h.tx.send(2));
    assert_eq!(once(send.as_mut()), None);
    h.outlet.down();
    assert_eq!(once(send), Some(Err(SendError::NotTaken { value: 2, why: Why::NodeLost })));

    // A channel that had ended before reports its own end, not the loss.
    let mut h = halves::<u8>(rendezvous());
    h.outlet.retire();
    h.outlet.down();
    assert!(once(h.tx.send(1)).unwrap().unwrap_err().is_closed());
}

/// A send that was dropped or forgotten, and then lost: `settle` reports the loss and returns the value.
#[test]
fn settle_after_a_loss_returns_unknown() {
    for forget in [false, true] {
        let mut h = halves(rendezvous());
        let mut slot = Some(7);
        let mut send = Box::pin(h.tx.send_from(&mut slot));
        assert_eq!(once(send.as_mut()), None);
        assert_eq!(show(&all(|cx| h.outlet.poll(cx))), "FirmOffer(2, 7)");
        if forget {
            std::mem::forget(send)
        } else {
            drop(send)
        }
        assert_eq!(once(h.tx.settle(&mut slot)), None, "the answer is not here");
        h.outlet.lost(2, 7, id(2));
        h.outlet.down();
        assert_eq!(once(h.tx.settle(&mut slot)), Some(Err(SendError::Unknown { value: (), id: id(2) })));
        assert_eq!(slot, Some(7), "forget: {forget}");
        assert_eq!(once(h.tx.settle(&mut None)), Some(Ok(())), "once");
    }
    // The same for a choice that was forgotten while it was reserved.
    let mut h = halves(rendezvous());
    let (_ty, mut ry) = channel::<u8>();
    let mut slot = Some(7);
    let mut choice = Box::pin(async {
        alt! { sent = h.tx.send_from(&mut slot) => drop(sent), got = ry.recv() => drop(got) }
    });
    for _ in 0..20 {
        assert_eq!(once(choice.as_mut()), None);
    }
    assert!(show(&all(|cx| h.outlet.poll(cx))).starts_with("ChoiceOffer(2, "));
    let Reserved::Granted(value) = h.outlet.reserve(2) else { panic!("it is open") };
    std::mem::forget(choice);
    h.outlet.lost(2, value, id(2));
    assert_eq!(once(h.tx.settle(&mut slot)), Some(Err(SendError::Unknown { value: (), id: id(2) })));
    assert_eq!(slot, Some(7));
}

/// A choice whose send is reserved when the receiver's node is lost: that branch returns `Unknown`, and no
/// other branch can happen.
#[test]
fn choice_with_lost_reserved_send_returns_unknown() {
    let mut h = halves(rendezvous());
    let (mut other, mut from_other) = channel_with(fifo(1));
    let mut slot = Some(7);
    let mut choice = Box::pin(async {
        alt! { sent = h.tx.send_from(&mut slot) => sent, got = from_other.recv() => unreachable!("{got:?}") }
    });
    for _ in 0..20 {
        assert_eq!(once(choice.as_mut()), None);
    }
    assert!(show(&all(|cx| h.outlet.poll(cx))).starts_with("ChoiceOffer(2, "));
    let Reserved::Granted(value) = h.outlet.reserve(2) else { panic!("it is open") };
    other.try_send(1).unwrap();
    assert_eq!(once(choice.as_mut()), None);
    h.outlet.lost(2, value, id(2));
    h.outlet.down();
    assert_eq!(once(choice), Some(Err(SendError::Unknown { value: (), id: id(2) })));
    assert_eq!((slot, from_other.len()), (Some(7), 1));

    // A send that was not reserved was certainly not taken, and only its branch fails.
    let mut h = halves(rendezvous());
    let mut slot = Some(7);
    let mut choice = Box::pin(async {
        alt! { biased;
            got = from_other.recv() => assert_eq!(got, Ok(1)),
            sent = h.tx.send_from(&mut slot) => unreachable!("{sent:?}"),
        }
    });
    h.outlet.down();
    assert_eq!(once(choice.as_mut()), Some(()));
    drop(choice);
    assert_eq!(once(h.tx.send_from(&mut slot)), Some(Err(SendError::NotTaken { value: (), why: Why::NodeLost })));

    // The value of a `send_to_any` is back in its slot.
    let (mut a, mut b) = (halves(rendezvous()), halves(rendezvous()));
    let (mut slot, mut senders) = (Some(7), [a.tx, b.tx]);
    let mut any = Box::pin(send_to_any(&mut slot, &mut senders));
    for _ in 0..20 {
        assert_eq!(once(any.as_mut()), None);
    }
    let (_, _) = (all(|cx| a.outlet.poll(cx)), all(|cx| b.outlet.poll(cx)));
    let Reserved::Granted(value) = b.outlet.reserve(2) else { panic!("it is open") };
    b.outlet.lost(2, value, id(2));
    assert_eq!(once(any), Some(Err(SendError::Unknown { value: 1, id: id(2) })));
    assert_eq!(slot, Some(7));
}

/// The sender's node is lost: receivers get values that were admitted, not values that were only offered, and
/// then the loss.
#[test]
fn the_loss_of_a_sender_arrives_after_admitted_values() {
    let (mut h, _) = halves_with_credits(fifo(2));
    h.inlet.push(1).unwrap();
    let value = Arc::new(());
    let mut r = halves(rendezvous());
    r.inlet.offer(2, value.clone());
    r.inlet.offer_choice(3, 1);
    let mut waiting = Box::pin(h.rx.recv());
    h.inlet.down();
    assert_eq!(once(waiting.as_mut()), Some(Ok(1)));
    drop(waiting);
    assert_eq!((h.rx.try_recv(), once(h.rx.next())), (Err(RecvError::NodeLost), Some(Err(RecvError::NodeLost))));
    r.inlet.down();
    assert_eq!((once(r.rx.recv()), Arc::strong_count(&value)), (Some(Err(RecvError::NodeLost)), 1));

    // A sender that retired before the loss ends in order, unless a value may have been in flight.
    for (on_its_way, why) in [(false, RecvError::Closed), (true, RecvError::NodeLost)] {
        let (mut h, _) = halves_with_credits::<u8>(fifo(1));
        if !on_its_way {
            h.inlet.push(1).unwrap();
        }
        h.rx.retire();
        h.inlet.down();
        assert_eq!(h.rx.try_recv().is_ok(), !on_its_way);
        assert_eq!(once(h.rx.recv()), Some(Err(why)));
    }
}

// ---- an agent that replaces a receiver in use

fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn next<T: Send>(outlet: &mut Outlet<T>) -> Poll<Event<T>> {
    outlet.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn outlet_offers_buffered_values_first_under_their_own_tickets() {
    let (mut tx, rx) = channel_with(fifo(3));
    for n in 0..3 {
        tx.try_send(n).unwrap();
    }
    let mut waits = Box::pin(async move { tx.send(3).await.map(|()| drop(tx)) });
    assert!(poll_once(waits.as_mut()).is_pending());
    let mut outlet = Outlet::new(rx);
    let offered = [(); 3].map(|()| match next(&mut outlet) {
        Poll::Ready(Event::FirmOffer(ticket, value)) => (ticket, value),
        other => panic!("{other:?}"),
    });
    assert_eq!(offered.map(|(_, value)| value), [0, 1, 2]);
    // A returned offer stands as before, in its place: it is sent again.
    for (ticket, value) in offered {
        outlet.give_back(ticket, value);
    }
    for n in 0..3 {
        let Poll::Ready(Event::FirmOffer(ticket, value)) = next(&mut outlet) else { panic!() };
        assert_eq!(value, n);
        // The send completed long ago, so no sender needs the outcome.
        match n {
            0 => outlet.failed(ticket, Some(value.into()), Why::Closed),
            _ => outlet.taken(ticket),
        }
        assert!(poll_once(waits.as_mut()).is_pending());
    }
    let Poll::Ready(Event::FirmOffer(ticket, 3)) = next(&mut outlet) else { panic!() };
    assert!(poll_once(waits.as_mut()).is_pending(), "the sender's half has no buffer");
    outlet.taken(ticket);
    assert_eq!(poll_once(waits.as_mut()), Poll::Ready(Ok(())));
    assert!(matches!(next(&mut outlet), Poll::Ready(Event::Gone)));
}

/// The value of a dropped send is dropped with its handle, or, if it comes back later, at once: the channel
/// may live long.
#[test]
fn what_a_dropped_send_leaves_goes_with_its_handle() {
    for is_gone_first in [false, true] {
        let (tx, rx) = channel();
        let mut outlet = Outlet::new(rx);
        let shared = tx.share();
        let mut handle = shared.clone();
        let value = Arc::new(());
        let mut send = Box::pin(handle.send(value.clone()));
        assert!(poll_once(send.as_mut()).is_pending());
        let Poll::Ready(Event::FirmOffer(ticket, sent)) = next(&mut outlet) else { panic!("it is offered") };
        drop(send);
        assert!(matches!(next(&mut outlet), Poll::Ready(Event::AskedBack(asked)) if asked == ticket));
        if is_gone_first {
            drop(handle);
            outlet.give_back(ticket, sent);
        } else {
            outlet.give_back(ticket, sent);
            assert_eq!(Arc::strong_count(&value), 2, "the handle may take it back");
            drop(handle);
        }
        assert_eq!(Arc::strong_count(&value), 1, "{is_gone_first}");
        drop(shared);
    }
}

/// A receiver moved to a half with a buffer of its own: buffered values are sent first, and no more sends
/// complete than the two buffers can hold.
#[test]
fn buffered_values_precede_values_sent_on_credits() {
    for places in 1..6_u32 {
        let (mut tx, rx) = channel_with(fifo(4));
        (0..3_u32).for_each(|n| tx.try_send(n).unwrap());
        let (near, mut ry) = channel_with(fifo(places as usize));
        let mut agents = pin!(join(Outlet::new(rx), Inlet::new(near)));
        let mut next = 3;
        let mut send = |tx: &mut Sender<u32>| {
            while tx.try_send(next).is_ok() {
                next += 1;
            }
            next
        };
        assert_eq!(send(&mut tx), places.max(3), "of {places} places three have values");
        assert!(poll_once(agents.as_mut()).is_pending());
        for n in 0..12 {
            assert_eq!(once(ry.recv()), Some(Ok(n)), "{places} places");
            assert!(poll_once(agents.as_mut()).is_pending());
            assert_eq!(send(&mut tx), (n + 1 + places).max(3), "{places} places");
            assert!(poll_once(agents.as_mut()).is_pending());
        }
        drop(tx);
        assert!(poll_once(agents.as_mut()).is_ready(), "nothing is left");
    }
}

/// The channel ends before there are credits for all buffered values. Retired at the receiver, the rest still
/// waits for credits, and the end follows it; poisoned at the sender, the rest is dropped.
#[test]
fn the_end_is_sent_after_buffered_values() {
    for poisoned in [false, true] {
        let (mut tx, rx) = channel_with(fifo(4));
        (0..3).for_each(|n| tx.try_send(n).unwrap());
        let mut outlet = Outlet::new(rx);
        outlet.credit(1);
        assert!(matches!(next(&mut outlet), Poll::Ready(Event::Sent(0))));
        outlet.credit(1);
        assert!(tx.try_send(3).is_err(), "it is not the turn of this one");
        if poisoned {
            tx.poison("salt");
            assert!(matches!(next(&mut outlet), Poll::Ready(Event::Poisoned(_))));
        } else {
            outlet.retire();
            assert!(matches!(next(&mut outlet), Poll::Ready(Event::Sent(1))));
            assert!(next(&mut outlet).is_pending());
            outlet.credit(1);
            assert!(matches!(next(&mut outlet), Poll::Ready(Event::Sent(2))));
            assert!(matches!(next(&mut outlet), Poll::Ready(Event::Retired)));
        }
        assert!(next(&mut outlet).is_pending());
    }
}

#[test]
fn a_credit_wakes_the_carrier_of_buffered_values() {
    struct Woken(AtomicBool);
    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Relaxed);
        }
    }
    let (mut tx, rx) = channel_with(fifo(2));
    (0..2).for_each(|n| tx.try_send(n).unwrap());
    let mut outlet = Outlet::new(rx);
    outlet.credit(1);
    assert!(matches!(next(&mut outlet), Poll::Ready(Event::Sent(0))));
    let woken = Arc::new(Woken(AtomicBool::new(false)));
    assert!(outlet.poll(&mut Context::from_waker(&woken.clone().into())).is_pending());
    outlet.credit(1);
    assert!(woken.0.load(Relaxed));
    assert!(matches!(next(&mut outlet), Poll::Ready(Event::Sent(1))));
}

/// A carrier that did not yet know of the credits returns earlier offers: they are sent on the credits, not
/// lost.
#[test]
fn returned_early_offers_are_sent_on_later_credits() {
    let (mut tx, rx) = channel_with(fifo(2));
    (0..2).for_each(|n| tx.try_send(n).unwrap());
    let mut sending = pin!(tx.send(2));
    assert!(poll_once(sending.as_mut()).is_pending());
    let mut outlet = Outlet::new(rx);
    let early = [(); 3].map(|()| match next(&mut outlet) {
        Poll::Ready(Event::FirmOffer(ticket, value)) => (ticket, value),
        other => panic!("{other:?}"),
    });
    assert!(next(&mut outlet).is_pending());
    for (ticket, value) in early {
        outlet.give_back(ticket, value);
    }
    outlet.credit(2);
    assert!(poll_once(sending.as_mut()).is_pending(), "it is behind those that were buffered");
    outlet.credit(1);
    assert_eq!(poll_once(sending), Poll::Ready(Ok(())));
    for n in 0..3 {
        assert!(matches!(next(&mut outlet), Poll::Ready(Event::Sent(value)) if value == n));
    }
    assert!(next(&mut outlet).is_pending());
}

/// The policy of the sender's own half has no effect after the receiver has moved.
#[test]
fn policy_of_the_old_half_has_no_effect_after_receiver_moves() {
    for policy in [fifo(2), unbounded(), overwrite_oldest(2), overwrite_newest(2), drop_newest(2)] {
        let (mut tx, rx) = channel_with(policy);
        tx.try_send(1).unwrap();
        let mut outlet = Outlet::new(rx);
        assert!(matches!(next(&mut outlet), Poll::Ready(Event::FirmOffer(_, 1))));
        assert!(matches!(tx.try_send(2), Err(SendError::NotTaken { value: 2, why: Why::WouldBlock })));
        let mut sending = pin!(tx.send(2));
        assert!(poll_once(sending.as_mut()).is_pending(), "nothing is admitted here");
        let Poll::Ready(Event::FirmOffer(ticket, 2)) = next(&mut outlet) else { panic!() };
        assert!(poll_once(sending.as_mut()).is_pending());
        outlet.taken(ticket);
        assert_eq!(poll_once(sending), Poll::Ready(Ok(())));
    }
}

#[test]
fn new_outlet_reports_earlier_end_of_the_channel() {
    let (tx, rx) = channel::<u8>();
    tx.poison("salt");
    assert!(matches!(next(&mut Outlet::new(rx)), Poll::Ready(Event::Poisoned(reason)) if reason.as_str() == "salt"));

    let (mut tx, rx) = channel_with(fifo(1));
    tx.try_send(1).unwrap();
    let mut waits = Box::pin(async move { tx.send(2).await });
    assert!(poll_once(waits.as_mut()).is_pending());
    rx.retire();
    let mut outlet = Outlet::new(rx);
    assert!(matches!(next(&mut outlet), Poll::Ready(Event::FirmOffer(_, 1))));
    assert!(matches!(next(&mut outlet), Poll::Ready(Event::Retired)), "a waiting value is not offered after the end");
    assert!(matches!(poll_once(waits.as_mut()), Poll::Ready(Err(e)) if e.is_closed()));
}

#[test]
fn new_outlet_releases_forgotten_receives() {
    for policy in [rendezvous(), rendezvous().pending_senders(4, Overflow::Fifo)] {
        // An extended receive holds the sender.
        let (mut tx, mut rx) = channel_with(policy);
        let mut sending = pin!(tx.send(1));
        assert!(poll_once(sending.as_mut()).is_pending());
        std::mem::forget(doc::block_on(rx.recv_extended()).unwrap());
        assert!(poll_once(sending.as_mut()).is_pending());
        let mut outlet = Outlet::new(rx);
        assert_eq!(poll_once(sending), Poll::Ready(Ok(())));
        assert!(next(&mut outlet).is_pending());
    }
    // A receive is registered.
    struct Task;
    impl Wake for Task {
        fn wake(self: Arc<Self>) {}
    }
    let (_tx, mut rx) = channel::<u8>();
    let task = Arc::new(Task);
    let mut receiving = Box::pin(rx.recv());
    assert!(receiving.as_mut().poll(&mut Context::from_waker(&task.clone().into())).is_pending());
    std::mem::forget(receiving);
    let _outlet = Outlet::new(rx);
    assert_eq!(Arc::strong_count(&task), 1, "the forgotten receive is not registered");
}

/// A receiver gave its request up and asked anew while the first answer was in flight: the second request
/// waits until that answer has come back.
#[test]
fn a_second_request_waits_for_the_first_grant() {
    let mut h = halves(rendezvous());
    let (_ty, mut ry) = channel::<u8>();
    let mut slot = Some(7);
    let mut choice = Box::pin(async {
        alt! { sent = h.tx.send_from(&mut slot) => sent, got = ry.recv() => unreachable!("{got:?}") }
    });
    for _ in 0..20 {
        assert_eq!(once(choice.as_mut()), None);
    }
    assert!(show(&all(|cx| h.outlet.poll(cx))).starts_with("ChoiceOffer(2, "));
    h.inlet.offer_choice(2, 1);
    assert_eq!(once(h.rx.recv()), None);
    let Reserved::Granted(value) = h.outlet.reserve(2) else { panic!("it is open") };
    let mut receive = Box::pin(h.rx.recv());
    assert_eq!(once(receive.as_mut()), None);
    assert_eq!(show(&all(|cx| h.inlet.poll(cx))), "Reserve(2, 0) Reserve(2, 1)");
    assert!(matches!(h.outlet.reserve(2), Reserved::Later), "the offer stands");
    assert_eq!(h.inlet.grant(2, 0, value), Err(7), "the request had been given up");
    h.outlet.give_back(2, 7);
    assert_eq!(show(&all(|cx| h.outlet.poll(cx))), "Unlocked(2)");
    let Reserved::Granted(value) = h.outlet.reserve(2) else { panic!("it is open again") };
    assert_eq!(h.inlet.grant(2, 1, value), Ok(()));
    assert_eq!(once(receive), Some(Ok(7)));
    h.outlet.taken(2);
    assert_eq!(once(choice), Some(Ok(())));
}

/// The same where the choice is remote, too, and its offers are forwarded. (Found by `simulated/shared.rs`:
/// the offer was withdrawn and never made again.)
#[test]
fn second_request_waits_for_the_first_forwarded_grant() {
    let (near, far) = channel::<u8>();
    let (mut inlet, mut outlet) = (Inlet::new(near), Outlet::new(far));
    inlet.offer_choice(2, 1);
    assert_eq!(show(&all(|cx| outlet.poll(cx))), "ChoiceOffer(2, 1)");
    for request in 0..2 {
        assert!(matches!(outlet.reserve(2), Reserved::Later), "its choice is asked");
        assert_eq!(show(&all(|cx| inlet.poll(cx))), format!("Reserve(2, {request})"));
        assert_eq!(inlet.grant(2, request, 7), Ok(()));
        assert_eq!(show(&all(|cx| outlet.poll(cx))), "Unlocked(2)");
        assert!(matches!(outlet.reserve(2), Reserved::Granted(7)));
        assert!(matches!(outlet.reserve(2), Reserved::Later), "the offer stands");
        outlet.give_back(2, 7);
        assert_eq!(show(&all(|cx| inlet.poll(cx))), "Abort(2, Some(7))");
    }
}

/// A remote handle of a shared receiver withdraws its demand before the value that it was granted has come
/// back. (Found by `simulated/shared.rs`: the value was lost, and its sender waited for ever.)
#[test]
fn value_returned_by_withdrawn_demand_is_offered_again() {
    for policy in [rendezvous(), fifo(1)] {
        let (mut tx, rx) = channel_with(policy);
        let mut here = rx.share();
        let mut there = LoneOutlet::new(here.clone());
        let posted = all(|cx| there.poll(cx));
        assert!(matches!(posted[0], Event::ChoiceOffer(1, _)), "{posted:?}");
        let mut send = Box::pin(tx.send(7));
        let sent = once(send.as_mut());
        let Reserved::Granted(value) = there.reserve(1) else { panic!("it is offered") };
        assert_eq!(once(here.recv()), None);
        there.withdrawn(1, None);
        assert_eq!(once(here.recv()), None);
        there.give_back(1, value);
        assert_eq!(once(here.recv()), Some(Ok(7)));
        assert_eq!(sent.or_else(|| once(send)), Some(Ok(())));
    }
}

/// A send's deadline passes while a remote handle has its value, and that handle is dropped: its failure
/// answers the withdrawal, and the send ends. (Found by `dunlin/tests/simulated/rest.rs`: it waited for
/// ever.)
#[test]
fn timed_out_send_ends_when_the_handle_with_its_value_drops() {
    struct Woken(AtomicBool);
    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Relaxed);
        }
    }
    let (mut tx, mut agents, _here) = handles_elsewhere(rendezvous(), 1);
    let mut there = agents.remove(0);
    all(|cx| there.poll(cx));
    let is_late = Cell::new(false);
    let deadline = poll_fn(|_| if is_late.get() { Poll::Ready(()) } else { Poll::Pending });
    let mut send = Box::pin(tx.send(7).until(deadline));
    assert!(once(send.as_mut()).is_none());
    let Reserved::Granted(value) = there.reserve(1) else { panic!("it is offered") };
    is_late.set(true);
    let woken = Arc::new(Woken(AtomicBool::new(false)));
    let waker = Waker::from(woken.clone());
    assert!(send.as_mut().poll(&mut Context::from_waker(&waker)).is_pending(), "its value is elsewhere");
    assert!(show(&all(|cx| there.poll(cx))).contains("AskedBack(1)"));
    there.failed(1, Some(value.into()), Why::Closed);
    assert!(woken.0.load(Relaxed), "it is its answer");
    assert!(matches!(once(send), Some(Err(error)) if error.is_timed_out()));
}

/// The agent of a remote handle is polled while the offering choice is busy with another branch. It tries
/// again when the choice is open.
#[test]
fn agent_is_woken_when_a_busy_choice_opens() {
    struct Woken(AtomicBool);
    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Relaxed);
        }
    }
    let (mut tx, mut agents, _here) = handles_elsewhere(rendezvous(), 1);
    let there = RefCell::new(agents.remove(0));
    let woken = Arc::new(Woken(AtomicBool::new(false)));
    let waker = Waker::from(woken.clone());
    let poll = || there.borrow_mut().poll(&mut Context::from_waker(&waker));
    while poll().is_ready() {}
    assert!(matches!(there.borrow().reserve(1), Reserved::Later), "nothing is offered yet");
    while poll().is_ready() {}
    let (mut slot, has_looked) = (Some(7), Cell::new(false));
    let other = future(poll_fn(|_| {
        if !has_looked.replace(true) {
            // As on another thread, while this branch is polled.
            assert!(poll().is_pending(), "no other party may decide a choice that polls this branch");
            woken.0.store(false, Relaxed);
        }
        Poll::<()>::Pending
    }));
    let mut choice = Box::pin(async {
        alt! { biased;
            sent = tx.send_from(&mut slot) => sent,
            () = other => Ok(()),
        }
    });
    while !has_looked.get() {
        assert_eq!(once(choice.as_mut()), None);
    }
    assert_eq!(once(choice.as_mut()), None);
    assert!(woken.0.load(Relaxed), "the agent is not woken when the choice opens");
    assert!(matches!(poll(), Poll::Ready(Event::Unlocked(1))));
    assert!(matches!(there.borrow().reserve(1), Reserved::Granted(7)));
    there.borrow().taken(1);
    assert_eq!(once(choice.as_mut()), Some(Ok(())));
}

/// The agents of remote handles of a shared receiver, and a local handle.
fn handles_elsewhere<T: Send>(policy: Policy, number: usize) -> (Sender<T>, Vec<LoneOutlet<T>>, Shared<Receiver<T>>) {
    let (tx, rx) = channel_with(policy);
    let here = rx.share();
    let agents = (0..number).map(|_| LoneOutlet::new(here.clone())).collect();
    (tx, agents, here)
}

/// The keeper of a shared receiver, with a remote sender and a remote handle.
fn keeper() -> (Inlet<u8>, LoneOutlet<u8>, Shared<Receiver<u8>>) {
    let (tx, mut agents, here) = handles_elsewhere(rendezvous(), 1);
    let mut there = agents.remove(0);
    assert!(all(|cx| there.poll(cx)).len() > 1);
    (Inlet::new(tx), there, here)
}

/// A remote handle gets the offer unread: its value never reaches the keeper.
#[test]
fn unread_offer_is_forwarded_without_its_value() {
    let (mut inlet, there, mut here) = keeper();
    inlet.offer_unread(5);
    assert_eq!(show(&all(|cx| inlet.poll(cx))), "");
    assert!(matches!(there.reserve_unread(1), Reserved::Granted(Given::Unread)));
    assert_eq!(there.passed_on(1), Some(inlet.passes_on(5)));
    assert_eq!(once(here.recv()), None);
    // A returned offer goes to another demand.
    there.give_back(1, Given::Unread);
    assert!(matches!(there.reserve_unread(2), Reserved::Granted(Given::Unread)));
    there.taken(2);
    assert_eq!(show(&all(|cx| inlet.poll(cx))), "Taken(5)");
}

/// A local receive requests the value, which keeps its place; meanwhile no remote handle can get it.
#[test]
fn keeper_fetches_unread_value_for_a_local_receiver() {
    let (mut inlet, there, mut here) = keeper();
    inlet.offer_unread(5);
    inlet.offer(6, 16);
    assert_eq!(once(here.recv()), Some(Ok(16)), "that is here");
    let mut receive = Box::pin(here.recv());
    assert_eq!(once(receive.as_mut()), None);
    let heard = all(|cx| inlet.poll(cx));
    assert!(matches!(heard[..], [FromReceiver::Reserve(5, 0), FromReceiver::Taken(6), FromReceiver::Reserve(5, 1)]));
    assert!(matches!(there.reserve_unread(1), Reserved::Later));
    inlet.offer_choice(7, 1);
    assert_eq!(inlet.bring(5, 15), Ok(()));
    assert_eq!(inlet.bring(5, 15), Err(15), "once");
    assert!(matches!(there.reserve_unread(1), Reserved::Granted(Given::Value(15))), "it kept its place");
    // The receive that had requested it may request another one.
    assert_eq!(once(receive.as_mut()), None);
    assert_eq!(show(&all(|cx| inlet.poll(cx))), "Reserve(7, 2)");
    assert_eq!(inlet.grant(7, 2, 17), Ok(()));
    assert_eq!(once(receive), Some(Ok(17)));
    there.taken(1);
    assert_eq!(show(&all(|cx| inlet.poll(cx))), "Taken(7) Taken(5)");
}

/// A value that a remote handle cannot read is fetched to the keeper, and so are all later ones.
#[test]
fn keeper_fetches_unreadable_value_and_its_successors() {
    let (mut inlet, mut there, _here) = keeper();
    inlet.offer_unread(5);
    assert!(matches!(there.reserve_unread(1), Reserved::Granted(Given::Unread)));
    there.failed(1, Some(Given::Unreadable), Why::NodeLost);
    for (number, demand) in [(5, 2), (6, 3)] {
        assert!(matches!(there.reserve_unread(demand), Reserved::Later), "{number}");
        // No task spins meanwhile.
        all(|cx| there.poll(cx));
        let heard = all(|cx| inlet.poll(cx));
        assert!(matches!(heard[..], [FromReceiver::Reserve(asked, _)] if asked == number), "{heard:?}");
        assert_eq!(inlet.bring(number, 15), Ok(()));
        assert!(show(&all(|cx| there.poll(cx))).contains(&format!("Unlocked({demand})")));
        assert!(matches!(there.reserve_unread(demand), Reserved::Granted(Given::Value(15))));
        there.taken(demand);
        all(|cx| inlet.poll(cx));
        inlet.offer_unread(6);
    }
}

/// Neither the value's node nor the handle's node can be asked: the offer fails and is not kept for ever.
#[test]
fn an_unread_value_is_lost_with_its_holder() {
    let (mut inlet, there, mut here) = keeper();
    inlet.offer_unread(5);
    assert!(matches!(there.reserve_unread(1), Reserved::Granted(Given::Unread)));
    there.lost(1, Given::Unread, MessageId { channel: 1, number: 1 });
    let heard = all(|cx| inlet.poll(cx));
    assert!(matches!(heard[..], [FromReceiver::Lost(5, None, _)]), "{heard:?}");

    inlet.offer_unread(6);
    assert!(matches!(there.reserve_unread(2), Reserved::Granted(Given::Unread)));
    inlet.down();
    there.give_back(2, Given::Unread);
    assert!(matches!(there.reserve_unread(2), Reserved::Later));
    assert_eq!(once(here.recv()), Some(Err(RecvError::NodeLost)));
}

/// The same for a remote choice's offer: it is granted unread to a handle that can read it, and given up
/// without a value.
#[test]
fn choice_is_granted_unread_only_to_a_remote_handle() {
    let (mut inlet, there, mut here) = keeper();
    inlet.offer_choice(5, 1);
    assert!(matches!(there.reserve_unread(1), Reserved::Later));
    assert_eq!(show(&all(|cx| inlet.poll(cx))), "Reserve(5, 0)");
    assert!(!inlet.grant_unread(5, 1), "another request");
    assert!(inlet.grant_unread(5, 0));
    assert_eq!(once(here.recv()), None, "it is granted to another one");
    assert!(matches!(there.reserve_unread(1), Reserved::Granted(Given::Unread)));
    there.give_back(1, Given::Unread);
    assert_eq!(show(&all(|cx| inlet.poll(cx))), "Abort(5, None)");
    let mut receive = Box::pin(here.recv());
    assert_eq!(once(receive.as_mut()), None);
    assert_eq!(show(&all(|cx| inlet.poll(cx))), "Reserve(5, 1)");
    assert!(!inlet.grant_unread(5, 1), "a local receiver needs the value itself");
    assert_eq!(inlet.grant(5, 1, 15), Ok(()));
    assert_eq!(once(receive), Some(Ok(15)));
}

/// A choice that is granted unread to one remote handle cannot serve another waiting handle. (Found by
/// `dunlin-models unreadable-chosen`: the agent retried for ever.)
#[test]
fn handle_waits_while_another_handle_holds_the_grant() {
    let (tx, mut agents, _here) = handles_elsewhere::<u8>(rendezvous(), 2);
    let mut inlet = Inlet::new(tx);
    agents.iter_mut().for_each(|agent| drop(all(|cx| agent.poll(cx))));
    inlet.offer_choice(5, 1);
    assert!(agents.iter().all(|agent| matches!(agent.reserve_unread(1), Reserved::Later)));
    assert!(inlet.grant_unread(5, 0));
    let mut tries = 0;
    while let Poll::Ready(event) = agents[1].poll(&mut Context::from_waker(Waker::noop())) {
        assert!(matches!(event, Event::Unlocked(1)) && matches!(agents[1].reserve_unread(1), Reserved::Later));
        tries += 1;
        assert!(tries < 3, "it turns in circles");
    }
    assert!(matches!(agents[0].reserve_unread(1), Reserved::Granted(Given::Unread)));
    agents[0].taken(1);
    assert!(show(&all(|cx| inlet.poll(cx))).ends_with("Taken(5)"));
}

/// Two remote handles return values that they were granted from a buffer.
#[test]
fn values_returned_to_a_buffer_keep_their_order() {
    for first in [0, 1] {
        let (mut tx, agents, mut here) = handles_elsewhere(fifo(3), 2);
        for value in 0..3 {
            tx.try_send(value).unwrap();
        }
        for (value, agent) in agents.iter().enumerate() {
            assert!(matches!(agent.reserve(1), Reserved::Granted(got) if got == value));
        }
        agents[first].give_back(1, first);
        agents[1 - first].give_back(1, 1 - first);
        assert_eq!([(); 3].map(|()| here.try_recv()), [Ok(0), Ok(1), Ok(2)], "{first} came first");
    }
}

/// Under any order of grants, returns, receives and sends, a receive gets the oldest value that no other
/// handle holds.
#[test]
fn a_receive_gets_the_oldest_value_present() {
    for seed in 1..=300_u64 {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut below = move |bound: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            usize::try_from(random % bound).unwrap()
        };
        let (mut tx, agents, mut here) = handles_elsewhere(fifo(6), 4);
        let (mut there, mut out, mut sent) = (Vec::new(), vec![None; agents.len()], 0);
        for _ in 0..200 {
            let chosen = below(4);
            let (agent, has) = (&agents[chosen], &mut out[chosen]);
            match (below(3), *has) {
                (0, _) => {
                    let value = (!there.is_empty()).then(|| there.remove(0));
                    assert_eq!(here.try_recv().ok(), value, "seed {seed}");
                }
                (1, None) => match agent.reserve(1) {
                    Reserved::Granted(value) => {
                        assert_eq!(value, there.remove(0), "seed {seed}");
                        *has = Some(value);
                    }
                    other => assert!(there.is_empty(), "seed {seed}: {other:?}"),
                },
                (1, Some(value)) => {
                    agent.give_back(1, value);
                    there.push(value);
                    there.sort_unstable();
                    *has = None;
                }
                (_, Some(_)) if below(4) == 0 => {
                    agent.taken(1);
                    *has = None;
                }
                _ => {
                    if tx.try_send(sent).is_ok() {
                        there.push(sent);
                        sent += 1;
                    }
                }
            }
        }
    }
}

/// The channel was poisoned meanwhile: a returned value is dropped, as buffered values are.
#[test]
fn value_returned_to_a_poisoned_buffer_is_dropped() {
    let (mut tx, agents, _here) = handles_elsewhere(fifo(1), 1);
    let token = Arc::new(());
    tx.try_send(token.clone()).unwrap();
    let Reserved::Granted(value) = agents[0].reserve(1) else { panic!("the value is available") };
    tx.poison("enough");
    agents[0].give_back(1, value);
    assert_eq!(Arc::strong_count(&token), 1);
}

/// Writers that always send, each on a channel in two halves: a fair choice serves the channels in turn.
#[test]
fn fair_choice_over_halves_serves_channels_equally() {
    let (mut receivers, counts) = (Vec::new(), RefCell::new([0_u32; 8]));
    let mut parties: Vec<Pin<Box<dyn Future<Output = ()>>>> = Vec::new();
    for number in 0..8_usize {
        let ((tx, far), (near, rx)) = (channel(), channel());
        parties.push(Box::pin(join(Outlet::new(far), Inlet::new(near))));
        let tx = tx.share();
        for mut tx in [tx.clone(), tx.clone(), tx.clone(), tx] {
            parties.push(Box::pin(async move { while tx.send(number).await.is_ok() {} }));
        }
        receivers.push(rx);
    }
    parties.push(Box::pin(async {
        for _ in 0..8 * 200 {
            let (number, sent) = Choice::fair().all(receivers.iter_mut().map(|rx| rx.recv())).await;
            assert_eq!(sent, Ok(number));
            counts.borrow_mut()[number] += 1;
        }
        receivers.clear();
    }));
    doc::block_on(parties.into_iter().collect::<Par<_>>());
    // When the choice yields, not all channels are ready at its next poll.
    let counts = counts.into_inner();
    assert!(counts.iter().all(|count| count.abs_diff(200) <= 8), "{counts:?}");
}

/// `poll_gone` takes none of an agent's events, and is woken at the end of the channel.
#[test]
fn poll_gone_takes_no_event_and_is_woken_at_the_end() {
    struct Woken(AtomicBool);
    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Relaxed);
        }
    }
    let woken = Arc::new(Woken(AtomicBool::new(false)));
    let waker = Waker::from(woken.clone());
    let cx = Context::from_waker(&waker);

    let mut halves = halves::<u32>(rendezvous());
    assert_eq!(once(halves.tx.send(1)), None);
    assert!(halves.outlet.poll_gone(&cx).is_pending() && halves.inlet.poll_gone(&cx).is_pending());
    drop(std::mem::replace(&mut halves.tx, channel().0));
    assert!(woken.0.swap(false, Relaxed));
    assert!(halves.outlet.poll_gone(&cx).is_ready() && halves.inlet.poll_gone(&cx).is_pending());
    drop(std::mem::replace(&mut halves.rx, channel().1));
    assert!(woken.0.swap(false, Relaxed));
    assert!(halves.inlet.poll_gone(&cx).is_ready());
    // The end was seen twice and can still be received.
    assert!(halves.outlet.poll_gone(&cx).is_ready());
    assert_eq!((halves.sender_says().as_str(), halves.receiver_says().as_str()), ("Gone", "Gone"));
}
