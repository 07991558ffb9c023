//! Channels in two halves: what an agent meets beside the laws.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use dunlin_core::agent::{Event, Inlet, Outlet, join};
use dunlin_core::{Overflow, Why, alt, channel, channel_with, doc, fifo, future, par, rendezvous};

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

// ---- an agent in the place of a receiver that was in use

fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn next<T: Send>(outlet: &mut Outlet<T>) -> Poll<Event<T>> {
    outlet.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn what_is_buffered_goes_first_under_tickets_of_its_own() {
    let (mut tx, rx) = channel_with(fifo(3));
    for n in 0..3 {
        tx.try_send(n).unwrap();
    }
    let mut waits = Box::pin(async move { tx.send(3).await.map(|()| drop(tx)) });
    assert!(poll_once(waits.as_mut()).is_pending());
    let mut outlet = Outlet::new(rx);
    for n in 0..3 {
        let Poll::Ready(Event::FirmOffer(ticket, value)) = next(&mut outlet) else { panic!() };
        assert_eq!(value, n);
        // Its send was done long ago, so whatever comes of it concerns nobody.
        match n {
            0 => outlet.failed(ticket, Some(value), Why::Closed),
            1 => outlet.give_back(ticket, value),
            _ => outlet.taken(ticket),
        }
        assert!(poll_once(waits.as_mut()).is_pending());
    }
    let Poll::Ready(Event::FirmOffer(ticket, 3)) = next(&mut outlet) else { panic!() };
    assert!(poll_once(waits.as_mut()).is_pending(), "there is no buffer here any more");
    outlet.taken(ticket);
    assert_eq!(poll_once(waits.as_mut()), Poll::Ready(Ok(())));
    assert!(matches!(next(&mut outlet), Poll::Ready(Event::Gone)));
}

#[test]
fn an_outlet_hears_how_the_channel_ended_before() {
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
    assert!(matches!(next(&mut outlet), Poll::Ready(Event::Gone)), "what waits is not offered after the end");
    assert!(matches!(poll_once(waits.as_mut()), Poll::Ready(Err(e)) if e.is_closed()));
}

#[test]
fn what_the_receiver_forgot_is_over_when_an_outlet_takes_its_place() {
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
    // A receive watches.
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
    assert_eq!(Arc::strong_count(&task), 1, "nobody would wake it for anything");
}
