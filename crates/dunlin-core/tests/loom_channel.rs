//! Loom: one sender, one receiver, in every order. The models named `queued_*` take the long path through the queue.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p dunlin-core --test loom_channel`
#![cfg(loom)]

mod loom_support;

use dunlin_core::{Operation, Receiver, RecvError, SendError, Sender, Why, channel, channel_with, fifo};
use loom_support::{block_on, forget_after_one_poll, model, poll_once, spawn, try_once};

type Ends = (Sender<u32>, Receiver<u32>);

/// A rendezvous channel that has a queue from the beginning: its receiver was shared for a moment.
fn queued() -> Ends {
    let (mut tx, rx) = channel();
    let mut slot = Some(0);
    // An offer of a choice makes the queue.
    assert!(try_once(async { dunlin_core::alt! { biased; r = tx.send_from(&mut slot) => r } }).is_none());
    (tx, rx)
}

/// What a send and a receive of one value may have come to, together.
fn agree(sent: Result<(), SendError<u32>>, received: Option<u32>) {
    match (sent, received) {
        (Ok(()), Some(7)) => {}
        (Err(SendError::NotTaken { value: 7, .. }), None) => {}
        other => panic!("a value lost or doubled: {other:?}"),
    }
}

/// The wakers of both sides: offer | watch, take | look for the result, in all orders; twice, so that a waker
/// of the first round is there in the second.
fn two_values_arrive((mut tx, mut rx): Ends) {
    let sender = spawn(move || {
        block_on(async {
            assert!(tx.send(1).await.is_ok());
            assert!(tx.send(2).await.is_ok());
        });
    });
    block_on(async {
        assert_eq!(rx.recv().await, Ok(1));
        assert_eq!(rx.recv().await, Ok(2));
        assert_eq!(rx.recv().await, Err(RecvError::Closed));
    });
    sender.join();
}

#[test]
fn rendezvous() {
    model(|| two_values_arrive(channel()));
}

#[test]
fn queued_rendezvous() {
    model(|| two_values_arrive(queued()));
}
