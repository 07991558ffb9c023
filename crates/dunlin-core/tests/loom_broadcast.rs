//! Loom: a broadcast and its receivers, in every order: joins, leaves and poison while a value is sent.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p dunlin-core --test loom_broadcast`
#![cfg(loom)]

mod loom_support;

use dunlin_core::{BroadcastError, Joiner, Receiver, RecvError, Why, broadcast};
use loom_support::{block_on, model, model_within, spawn, try_once};

/// How many of these have the value.
fn count(got: &[Option<u32>]) -> usize {
    got.iter().filter(|got| **got == Some(7)).count()
}

/// Receives once and leaves.
fn once(mut rx: Receiver<u32>) -> Option<u32> {
    block_on(rx.recv()).ok()
}

#[test]
fn two_receivers_get_it() {
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

/// A receiver joins before the value begins, or after: then it sees the end only.
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
            // The receiver has come, seen the joiner go, and gone: no receiver is left.
            Err(error) => assert!(error.is_closed() && got.is_none(), "{error:?}, {began_with:?}"),
        }
    });
}

/// The value waits for the receiver.
#[test]
fn join_ends_the_wait_for_the_least_number() {
    model(|| {
        let (tx, joiner) = broadcast();
        let mut tx = tx.at_least(1);
        let receiver = spawn(move || once(joiner.join()));
        let sent = block_on(tx.send(7));
        drop(tx);
        // It may have joined and its end have been dropped only after it got the value.
        assert_eq!((sent, receiver.join()), (Ok(()), Some(7)));
    });
}

/// No receiver comes: the last joiner goes while the value waits, or before.
#[test]
fn the_last_joiner_goes() {
    model(|| {
        let (tx, joiner) = broadcast();
        let mut tx = tx.at_least(1);
        let gone = spawn(move || drop(joiner));
        assert_eq!(block_on(tx.send(7)), Err(BroadcastError { value: 7, why: Why::Closed, received: 0 }));
        gone.join();
    });
}

/// Of two required receivers one is there, and leaves. No joiner is left: the wait is over.
#[test]
fn the_last_receiver_goes() {
    model(|| {
        let (tx, joiner) = broadcast();
        let mut tx = tx.at_least(2);
        let rx = joiner.join();
        let gone = spawn(move || drop((rx, joiner)));
        assert!(block_on(tx.send(7)).unwrap_err().is_closed());
        gone.join();
    });
}

/// One leaves before the offer, between offer and look, or with the value.
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

/// One poisons: the other has the value or learns of it, and the sender says how many got the value.
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

/// Two poison at once, and one joins: all receive the same reason.
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
        // At its own end the first reason stands, which may be one's own.
        assert!(own.iter().all(RecvError::is_poisoned), "{own:?}");
        assert!(late.join().is_poisoned());
        drop(tx);
    });
}

/// Dropped while one takes: it has the value or no receiver has.
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

/// The broadcast goes while one joins: it learns of the end.
#[test]
fn the_sender_goes_while_one_joins() {
    model(|| {
        let (tx, joiner) = broadcast::<u32>();
        let sender = spawn(move || drop(tx));
        assert_eq!(block_on(joiner.join().recv()), Err(RecvError::Closed));
        sender.join();
    });
}
