//! Both ends of one channel in one message: they still form a channel where they arrive.

use dunlin::prelude::*;
use dunlin::sim::Sim;
use dunlin::{Callee, call, rendezvous};

use crate::support::along;

/// How many seeds each test has.
const SEEDS: u64 = 50;

type Pair = (Sender<u32>, Receiver<u32>);

/// Two nodes and a channel for pairs between them. `places`: with some seeds it has places, so that a send is
/// complete at once.
fn run(places: bool, test: impl AsyncFn(&Sim, Node, Node, &mut (Sender<Pair>, Receiver<Pair>)) -> Result) {
    for seed in 0..SEEDS {
        let sim = Sim::new(seed);
        let result = sim.run(async {
            let a = Node::join("pairs").await?;
            let b = Node::join("pairs").await?;
            let places = if places && sim.below(2) == 0 { fifo(2) } else { rendezvous() };
            let (tx, rx) = par!(async { a.sender("way").await }, async { b.receiver("way").policy(places).await });
            test(&sim, a, b, &mut (tx?, rx?)).await
        });
        result.unwrap_or_else(|error| panic!("with seed {seed}: {error}"));
    }
}

/// A posted value waits for a receive, and so does the notice that the channel has ended: such a pair stays,
/// and works.
#[test]
fn send_refuses_a_pair_with_pending_values_or_end() {
    run(false, async |sim, _a, _b, way| {
        let (mut tx, rx) = channel_with(fifo(4));
        tx.send(0).await?;
        let how = sim.below(3);
        let posted = match how {
            0 => Some((0..4).map(|n| tx.send_nowait(n + 1)).collect::<Vec<_>>()),
            1 => {
                tx.poison("no more");
                None
            }
            _ => {
                tx.retire();
                None
            }
        };
        let refused = way.0.send((tx, rx)).await.unwrap_err();
        assert!(refused.to_string().contains("both ends"), "{refused}");
        let (mut tx, mut rx) = refused.into_value();
        match posted {
            Some(posted) => {
                for n in 0..5 {
                    assert_eq!(rx.recv().await?, n);
                }
                for posted in posted {
                    posted.await?;
                }
                let (mut tx, mut rx) = along((tx, rx), way).await?;
                let (sent, received) = par!(tx.send(5), rx.recv());
                assert_eq!((sent?, received?), ((), 5));
            }
            None if how == 1 => assert!(matches!(rx.recv().await, Err(RecvError::Poisoned(_)))),
            None => {
                assert_eq!(rx.recv().await?, 0);
                assert_eq!(rx.recv().await, Err(RecvError::Closed));
                assert!(tx.send(1).await.unwrap_err().is_closed());
            }
        }
        Ok(())
    });
}

/// A message that is not taken leaves the channel as it was.
#[test]
fn timed_out_send_returns_the_pair_unchanged() {
    run(true, async |_, _a, _b, way| {
        let mut pairs = Vec::new();
        while pairs.len() < 3 {
            let (mut tx, rx) = channel_with(fifo(4));
            tx.send(0).await?;
            match way.0.send((tx, rx)).within(Duration::from_millis(20)).await {
                Ok(()) => {}
                Err(given_up) => pairs.push(given_up.into_value()),
            }
        }
        for (mut tx, mut rx) in pairs {
            tx.send(1).await?;
            let (mut tx, mut rx) = {
                assert_eq!(rx.recv().await?, 0);
                while way.1.try_recv().is_ok() {}
                along((tx, rx), way).await?
            };
            assert_eq!(rx.recv().await?, 1);
            let (sent, received) = par!(tx.send(2), rx.recv());
            assert_eq!((sent?, received?), ((), 2));
        }
        Ok(())
    });
}

/// Nothing is left of unneeded ends.
#[test]
fn dropped_pair_leaves_no_records() {
    run(true, async |sim, a, b, way| {
        drop(along(channel(), way).await?);
        sleep(Duration::from_secs(1)).await;
        let (before, there) = (a.records(), b.records());
        for _ in 0..5 {
            let (tx, rx) = along(channel(), way).await?;
            match sim.below(3) {
                0 => drop((tx, rx)),
                1 => {
                    drop(tx);
                    let mut rx = rx;
                    assert_eq!(rx.recv().await, Err(RecvError::Closed));
                }
                _ => {
                    drop(rx);
                    let mut tx = tx;
                    assert!(tx.send(1).await.unwrap_err().is_closed());
                }
            }
        }
        sleep(Duration::from_secs(1)).await;
        assert_eq!((a.records(), b.records()), (before, there));
        Ok(())
    });
}

/// The giver leaves at once.
#[test]
fn pair_works_after_its_previous_node_leaves() {
    run(true, async |_, a, _b, way| {
        let (mut tx, rx) = channel_with(fifo(4));
        for n in 0..3 {
            tx.send(n).await?;
        }
        let (mut tx, mut rx) = along((tx, rx), way).await?;
        let (left, used) = par!(a.leave(), async {
            for n in 0..3 {
                assert_eq!(rx.recv().await?, n);
            }
            let (sent, received) = par!(tx.send(3), rx.recv());
            assert_eq!((sent?, received?), ((), 3));
            Result::<()>::Ok(())
        });
        used?;
        left?;
        let (sent, received) = par!(tx.send(4), rx.recv());
        assert_eq!((sent?, received?), ((), 4));
        Ok(())
    });
}

/// The same of calls.
#[test]
fn caller_and_callee_travel_in_one_message() {
    for seed in 0..SEEDS {
        let sim = Sim::new(seed);
        let result = sim.run(async {
            let a = Node::join("pairs").await?;
            let b = Node::join("pairs").await?;
            type Calls = (Caller<u32, u32>, Callee<u32, u32>);
            let (tx, rx) =
                par!(async { a.sender::<Calls>("calls").await }, async { b.receiver::<Calls>("calls").await });
            let (mut caller, mut callee) = along(call::<u32, u32>(), &mut (tx?, rx?)).await?;
            for n in 0..5 {
                let (answer, asked) = par!(caller.call(n), async {
                    let asked = callee.accept().await?;
                    let n = *asked;
                    asked.reply(n + 1).map_err(|_| Error::other("the caller has left"))
                });
                asked?;
                assert_eq!(answer?, n + 1);
            }
            Result::<()>::Ok(())
        });
        result.unwrap_or_else(|error| panic!("with seed {seed}: {error}"));
    }
}
