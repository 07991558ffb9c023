//! Channels in two halves: what an agent meets beside the laws.

use std::future::poll_fn;
use std::task::Poll;

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
