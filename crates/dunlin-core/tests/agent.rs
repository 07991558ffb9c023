//! Channels in two halves: what an agent meets beside the laws.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::task::{Context, Poll, Waker};

use dunlin_core::agent::{Inlet, Outlet, join};
use dunlin_core::{alt, channel, doc, future, par};

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
