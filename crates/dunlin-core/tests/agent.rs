//! Channels in two halves: what an agent meets beside the laws.

use std::cell::RefCell;
use std::fmt::Debug;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use dunlin_core::agent::{Inlet, Outlet, join};
use dunlin_core::{
    Overflow, Policy, Receiver, RecvError, SendError, Sender, Shared, Why, alt, channel, channel_with, doc,
    drop_newest, fifo, future, overwrite_newest, overwrite_oldest, par, rendezvous, unbounded,
};

/// Two halves that nobody joins: the test is the carrier.
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

/// The same with the first credits given: so many there were.
fn halves_with_credits<T: Send + 'static>(policy: impl Into<Policy>) -> (Halves<T>, u32) {
    let halves = halves(policy);
    let credits = halves.inlet.credits();
    halves.outlet.credit(credits);
    (halves, credits)
}

/// Polls it once.
fn once<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// All that an agent hears now.
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
    /// What the sender's half has to say.
    fn sender_says(&mut self) -> String {
        show(&all(|cx| self.outlet.poll(cx)))
    }

    /// What the receiver's half has to say.
    fn receiver_says(&mut self) -> String {
        show(&all(|cx| self.inlet.poll(cx)))
    }
}

/// A receiver asks for a choice's offer just while the choice is closed, because it polls a foreign future.
#[test]
fn a_choice_that_was_closed_is_reserved_later() {
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

/// The same, and the receiver is polled *while* the foreign future is, as another thread might.
#[test]
fn a_receiver_that_comes_while_the_choice_is_closed_is_served() {
    for foreign_wakes in 0..40 {
        let ((mut tx, rx), (ty, mut ry)) = (channel(), channel());
        let (mut slot, mut left) = (Some(1), foreign_wakes);
        // The receive, and the waker of the branch that waits for it.
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
fn who_promises_places() {
    let credits = |policy: Policy| halves::<u8>(policy).inlet.credits();
    assert_eq!((credits(fifo(1)), credits(fifo(7)), credits(unbounded())), (1, 7, 1024));
    assert_eq!(credits(fifo(usize::MAX)), u32::MAX);
    let decide_at_home = [rendezvous(), overwrite_oldest(2), overwrite_newest(2), drop_newest(2)];
    assert_eq!(decide_at_home.map(credits), [0; 4]);
    assert_eq!(credits(fifo(2).pending_senders(1, Overflow::Reject)), 0, "a bound on senders must see them");
    let halves = halves::<u8>(fifo(3));
    assert_eq!((halves.inlet.credits(), halves.inlet.credits()), (3, 0), "each is promised once");
}

/// Sends on credits ask nobody; without one they wait at their own half, and can be taken back there at once.
#[test]
fn a_fifo_is_sent_to_without_asking() {
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
    assert_eq!(h.sender_says(), "Sent(0) Sent(1) Sent(2)", "of what waits nothing crosses");
    for value in 0..3 {
        assert_eq!(h.inlet.push(value), Ok(()));
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
fn a_choice_with_a_credit_is_decided_here() {
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
    // A choice that waits gets the place as it becomes free.
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

/// Sends that waited for the first credits: they go out on them, and those that get none are not offered any more.
#[test]
fn what_waited_before_the_first_credits_goes_out_on_them() {
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

/// A sender at the receiver's half beside the inlet. (Its own end is the inlet; the handles stay.)
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
    assert!(local.try_send(9).is_err(), "it went to the sender elsewhere at once: nobody waited here");
    assert_eq!(show(&all(|cx| inlet.poll(cx))), "Credit(1)");
    assert_eq!((inlet.push(1), inlet.push(2), inlet.push(3)), (Ok(()), Ok(()), Err(3)));
    // Both want every place: they get them in turn.
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
    assert_eq!((once(next), inlet.push(4)), (Some(Ok(())), Ok(())));
    assert_eq!((rx.try_recv(), rx.try_recv()), (Ok(11), Ok(4)));
}

#[test]
fn an_extended_receive_keeps_its_place_from_the_sender_elsewhere() {
    let (mut h, _) = halves_with_credits(fifo(2));
    h.inlet.push(1).unwrap();
    let guard = once(h.rx.recv_extended()).unwrap().unwrap();
    h.inlet.push(2).unwrap();
    assert_eq!(show(&all(|cx| h.inlet.poll(cx))), "");
    drop(guard);
    assert_eq!(h.receiver_says(), "Credit(1)");
}

#[test]
fn an_unbounded_buffer_gives_credits_back_as_values_come() {
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

/// The receiver retires while values are on their way: their sends are complete, so it gets them, and then the end.
#[test]
fn retire_waits_for_what_is_on_its_way() {
    let (mut h, _) = halves_with_credits(fifo(3));
    for value in 0..3 {
        h.tx.try_send(value).unwrap();
    }
    h.inlet.push(0).unwrap();
    assert_eq!(h.rx.try_recv(), Ok(0));
    h.rx.retire();
    assert_eq!((once(h.rx.recv()), h.rx.try_recv(), h.rx.is_closed()), (None, Err(RecvError::WouldBlock), false));
    assert_eq!(h.receiver_says(), "Retired", "the place that is free is not promised any more");
    h.outlet.retire();
    assert!(h.tx.try_send(3).unwrap_err().is_closed());
    assert_eq!(h.sender_says(), "Sent(0) Sent(1) Sent(2) Retired", "in this order");
    assert_eq!((h.inlet.push(1), h.rx.try_recv(), once(h.rx.recv())), (Ok(()), Ok(1), None));
    assert_eq!(h.inlet.push(2), Ok(()));
    h.inlet.retire();
    assert_eq!(h.inlet.push(3), Err(3), "it had said that nothing more comes");
    assert_eq!((once(h.rx.recv()), once(h.rx.recv())), (Some(Ok(2)), Some(Err(RecvError::Closed))));
    assert_eq!((h.receiver_says().as_str(), h.rx.is_closed()), ("", true), "no places are promised after the end");
}

#[test]
fn poison_destroys_what_is_on_its_way() {
    let value = Arc::new(());
    // From the receiver.
    let (mut h, _) = halves_with_credits(fifo(3));
    h.tx.try_send(value.clone()).unwrap();
    h.rx.poison("now");
    h.receiver_says();
    let on_the_way = all(|cx| h.outlet.poll(cx)).pop();
    let Some(dunlin_core::agent::Event::Sent(sent)) = on_the_way else { panic!("{on_the_way:?}") };
    assert_eq!((h.inlet.push(sent), Arc::strong_count(&value)), (Ok(()), 1), "no fault of the sender's");
    // From the sender: behind what it has sent.
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
    assert_eq!((h.inlet.push(sent), Arc::strong_count(&value)), (Ok(()), 1));
    // Or the agent that had not heard of it.
    h.outlet.credit(1);
    h.tx.try_send(value.clone()).unwrap();
    drop(h.outlet);
    assert_eq!(Arc::strong_count(&value), 1);
    assert!(h.tx.try_send(value.clone()).unwrap_err().is_closed());
}
