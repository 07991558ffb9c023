//! Loom: a posted value, and its handle that is awaited, cancelled or dropped while a receive takes the
//! value.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p dunlin-core --test loom_posted`
#![cfg(loom)]

mod loom_support;

use std::sync::Arc;

use dunlin_core::{RecvError, channel, channel_with, fifo};
use loom_support::{block_on, model, spawn, try_once};

/// Two posts are received in order; another thread awaits one of the handles.
#[test]
fn awaited_while_it_is_received() {
    model(|| {
        let (mut tx, mut rx) = channel();
        let sender = spawn(move || {
            let (first, second) = (tx.send_nowait(1), tx.send_nowait(2));
            drop(tx);
            (block_on(second), block_on(first))
        });
        assert_eq!((block_on(rx.recv()), block_on(rx.recv())), (Ok(1), Ok(2)));
        assert_eq!(block_on(rx.recv()), Err(RecvError::Closed));
        assert_eq!(sender.join(), (Ok(()), Ok(())));
    });
}

/// A plain rendezvous creates its queue while a receive watches its slot.
#[test]
fn posted_while_a_receive_begins() {
    model(|| {
        let (mut tx, mut rx) = channel();
        let sender = spawn(move || {
            tx.send_nowait(1).detach();
            block_on(tx.send(2))
        });
        assert_eq!((block_on(rx.recv()), block_on(rx.recv())), (Ok(1), Ok(2)));
        assert_eq!(sender.join(), Ok(()));
    });
}

/// The value is either received or returned.
#[test]
fn cancelled_while_it_is_received() {
    model(|| {
        let (mut tx, mut rx) = channel();
        let post = tx.send_nowait(7);
        let canceller = spawn(move || block_on(post.cancel()).unwrap());
        let got = try_once(rx.recv()).and_then(Result::ok);
        let back = canceller.join();
        assert!(matches!((got, back), (Some(7), None) | (None, Some(7))), "{got:?} {back:?}");
        drop(tx);
    });
}

/// The receiver is dropped while the handle is: the value is dropped once, and at once.
#[test]
fn dropped_while_the_receiver_goes() {
    model(|| {
        let value = Arc::new(());
        let (mut tx, rx) = channel();
        let post = tx.send_nowait(value.clone());
        let receiver = spawn(move || drop(rx));
        drop(post);
        receiver.join();
        assert_eq!(Arc::strong_count(&value), 1);
        drop(tx);
    });
}

/// The same with a handle that is polled.
#[test]
fn looked_at_while_the_channel_is_poisoned() {
    model(|| {
        let (mut tx, rx) = channel();
        let mut post = tx.send_nowait(7);
        let receiver = spawn(move || rx.poison("sick"));
        let done = post.is_done();
        let early = post.try_outcome();
        assert!(!done || early.is_some());
        receiver.join();
        let outcome = early.or_else(|| post.try_outcome()).unwrap();
        assert_eq!(outcome.unwrap_err().into_value(), 7);
    });
}

/// A value that waits for room is admitted, whichever side checks.
#[test]
fn admitted_while_the_handle_is_dropped() {
    model(|| {
        let (mut tx, mut rx) = channel_with(fifo(1));
        tx.send_nowait(1).detach();
        let post = tx.send_nowait(2);
        let dropper = spawn(move || drop(post));
        assert_eq!((block_on(rx.recv()), block_on(rx.recv())), (Ok(1), Ok(2)));
        dropper.join();
        drop(tx);
    });
}
