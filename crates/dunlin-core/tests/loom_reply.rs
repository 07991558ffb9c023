//! Loom: a place for a reply, and what waits for it, while the reply is sent, dropped or refused.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p dunlin-core --test loom_reply`
#![cfg(loom)]

mod loom_support;

use dunlin_core::__rt::reply;
use dunlin_core::RecvError;
use loom_support::{block_on, model, spawn, try_once};

/// What waits is woken, in whatever order the reply and the poll come.
#[test]
fn sent_while_it_is_awaited() {
    model(|| {
        let (place, answer) = reply();
        let server = spawn(move || place.send(7));
        assert_eq!(block_on(answer), Ok(7));
        assert_eq!(server.join(), Ok(()));
    });
}

#[test]
fn dropped_while_it_is_awaited() {
    model(|| {
        let (place, answer) = reply::<u8>();
        let server = spawn(move || drop(place));
        assert_eq!(block_on(answer), Err(RecvError::Closed));
        server.join();
    });
}

/// The reply is taken, comes back, or is dropped once: with the answer.
#[test]
fn sent_while_the_answer_is_dropped() {
    model(|| {
        let (place, mut answer) = reply();
        let value = std::sync::Arc::new(());
        let sent = value.clone();
        let server = spawn(move || place.send(sent));
        let got = try_once(&mut answer);
        drop(answer);
        let back = server.join();
        assert!(got.is_none() || back.is_ok());
        drop((got, back));
        assert_eq!(std::sync::Arc::strong_count(&value), 1);
    });
}
