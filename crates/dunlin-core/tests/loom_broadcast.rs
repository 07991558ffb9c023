//! Loom: a broadcast and its receivers, in every order: joins, leaves and poison while a value is sent.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p dunlin-core --test loom_broadcast`
#![cfg(loom)]

mod loom_support;

use dunlin_core::{BroadcastError, Joiner, Receiver, RecvError, Why, broadcast};
use loom_support::{block_on, model, model_within, spawn, try_once};

/// The number of receivers that have the value.
fn count(got: &[Option<u32>]) -> usize {
    got.iter().filter(|got| **got == Some(7)).count()
}

/// Receives once and drops the receiver.
fn once(mut rx: Receiver<u32>) -> Option<u32> {
    block_on(rx.recv()).ok()
}

#[test]
fn two_receivers_get_the_value() {
    model_within(2, || {
        let (mut tx, joiner) = broadcast();
        let (a, mut b) = (joiner.join(), joiner.join());
        let first = spawn(move || once(a));
        let sender = spawn(move || block_on(tx.send(7)));
        assert_eq!(block_on(b.recv()), Ok(7));
        assert_eq!(sender.join(), Ok(()));
        assert_eq!(first.join(), Some(7));
    });
}

/// A receiver joins before the send begins, or after: then it gets only the end.
#[test]
fn join_races_send() {
    model(|| {
        let (mut tx, joiner): (_, Joiner<u32>) = broadcast();
        let receiver = spawn(move || once(joiner.join()));
        let sent = block_on(tx.send(7));
        let began_with = matches!(sent, Ok(())).then(|| tx.joined());
        drop(tx);
        let got = receiver.join();
        match sent {
            Ok(()) => assert!(got.is_none() || got == Some(7)),
            // The receiver has joined, seen the end of the joiner, and left: no receiver is left.
            Err(error) => assert!(error.is_closed() && got.is_none(), "{error:?}, {began_with:?}"),
        }
    });
}

/// The send waits for the receiver.
#[test]
fn join_ends_the_wait_for_the_least_number() {
    model(|| {
        let (tx, joiner) = broadcast();
        let mut tx = tx.at_least(1);
        let receiver = spawn(move || once(joiner.join()));
        let sent = block_on(tx.send(7));
        drop(tx);
        // The broadcast is dropped only after the receiver has got the value.
        assert_eq!((sent, receiver.join()), (Ok(()), Some(7)));
    });
}

/// No receiver joins: the last joiner is dropped while the send waits, or before.
#[test]
fn send_ends_when_the_last_joiner_drops() {
    model(|| {
        let (tx, joiner) = broadcast();
        let mut tx = tx.at_least(1);
        let gone = spawn(move || drop(joiner));
        assert_eq!(block_on(tx.send(7)), Err(BroadcastError { value: 7, why: Why::Closed, received: 0 }));
        gone.join();
    });
}

/// One of two required receivers is joined, and leaves. No joiner is left, so the wait ends.
#[test]
fn send_ends_when_the_last_receiver_leaves() {
    model(|| {
        let (tx, joiner) = broadcast();
        let mut tx = tx.at_least(2);
        let rx = joiner.join();
        let gone = spawn(move || drop((rx, joiner)));
        assert!(block_on(tx.send(7)).unwrap_err().is_closed());
        gone.join();
    });
}

/// One receiver leaves before the offer, between offer and check, or with the value.
#[test]
fn leave_races_send() {
    model_within(2, || {
        let (mut tx, joiner) = broadcast();
        let (mut a, b) = (joiner.join(), joiner.join());
        let leaver = spawn(move || {
            let mut b = b;
            try_once(b.recv()).and_then(Result::ok)
        });
        let sender = spawn(move || block_on(tx.send(7)));
        assert_eq!(block_on(a.recv()), Ok(7));
        assert_eq!(sender.join(), Ok(()));
        leaver.join();
        drop(joiner);
    });
}

/// One poisons: the other has the value or gets the poison, and the sender reports how many got the value.
#[test]
fn poison_races_send() {
    model_within(2, || {
        let (mut tx, joiner) = broadcast();
        let (mut a, mut b) = (joiner.join(), joiner.join());
        let poisoner = spawn(move || {
            let got = try_once(b.recv()).and_then(Result::ok);
            b.poison("sick");
            got
        });
        let sender = spawn(move || block_on(tx.send(7)));
        let first = match block_on(a.recv()) {
            Ok(value) => Some(value),
            Err(error) => {
                assert_eq!(error, RecvError::Poisoned("sick".into()));
                None
            }
        };
        let got = [first, poisoner.join()];
        match sender.join() {
            Ok(()) => assert_eq!(count(&got), 2),
            Err(error) => {
                assert!(error.is_poisoned());
                assert!(error.received == count(&got) && count(&got) < 2, "{error:?}, {got:?}");
            }
        }
    });
}

/// Two receivers poison at once, and one joins: all get the same reason.
#[test]
fn two_poisons_race_a_join() {
    model_within(2, || {
        let (tx, joiner) = broadcast::<u32>();
        let (mut a, mut b) = (joiner.join(), joiner.join());
        let first = spawn(move || {
            a.poison("a");
            a.try_recv().unwrap_err()
        });
        let late = spawn(move || block_on(joiner.join().recv()).unwrap_err());
        b.poison("b");
        let own = [first.join(), b.try_recv().unwrap_err()];
        // At each end the first reason stands, which may be the receiver's own.
        assert!(own.iter().all(RecvError::is_poisoned), "{own:?}");
        assert!(late.join().is_poisoned());
        drop(tx);
    });
}

/// A send is dropped while a receiver takes: that receiver has the value, or none has.
#[test]
fn a_dropped_send_races_recv() {
    model(|| {
        let (mut tx, joiner) = broadcast();
        let mut rx = joiner.join();
        let sender = spawn(move || {
            let sent = try_once(tx.send(7));
            assert!(sent.is_none() || sent == Some(Ok(())));
            tx
        });
        let got = try_once(rx.recv());
        let tx = sender.join();
        assert!(got.is_none() || got == Some(Ok(7)));
        drop(tx);
        assert_eq!(rx.try_recv(), Err(RecvError::Closed));
    });
}

/// The broadcast is dropped while a receiver joins: the receiver gets the end.
#[test]
fn drop_of_the_broadcast_races_a_join() {
    model(|| {
        let (tx, joiner) = broadcast::<u32>();
        let sender = spawn(move || drop(tx));
        assert_eq!(block_on(joiner.join().recv()), Err(RecvError::Closed));
        sender.join();
    });
}
