//! Broadcasts over nodes: receivers, joiners and the sending end travel; poison; policies that cannot travel;
//! and lost nodes.
#![cfg(feature = "net")]

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use dunlin::prelude::*;
use dunlin::{
    Broadcast, BroadcastError, Joiner, Reason, RecvError, SendError, Why, broadcast, broadcast_with, rendezvous,
};

#[allow(dead_code, reason = "each test needs a part of it")]
#[path = "support/nodes.rs"]
mod support;
use support::{carry, nodes, run};

/// Receives all until the end.
async fn all(mut rx: Receiver<u32>) -> Vec<u32> {
    let mut got = Vec::new();
    while let Ok(value) = rx.recv().await {
        got.push(value);
    }
    got
}

/// Receivers joined at three nodes, and one that joined here and travelled: all have returned each value when
/// its send is complete.
#[test]
fn receivers_at_three_nodes_return_each_value() {
    run(async {
        let [a, b, c] = nodes("receivers_at_three_nodes_return_each_value").await;
        let (clock, joiner) = broadcast::<u32>();
        let mut clock = clock.at_least(5);
        let here = joiner.join();
        let gone = carry(joiner.join(), &a, &b, "a receiver").await?;
        let at_b = carry(joiner.clone(), &a, &b, "ab").await?;
        let at_c = carry(at_b.clone(), &b, &c, "bc").await?;
        drop(joiner);
        let (sent, ..) = par!(
            async {
                for n in 0..50 {
                    clock.send(n).await?;
                }
                drop(clock);
                Ok::<_, BroadcastError<u32>>(())
            },
            async {
                let (two, three) = (at_b.join(), at_b.join());
                let four = at_c.join();
                let got = par!(all(here), all(gone), all(two), all(three), all(four));
                let whole: Vec<u32> = (0..50).collect();
                assert!([got.0, got.1, got.2, got.3, got.4].iter().all(|got| *got == whole));
            }
        );
        sent?;
        assert_eq!(at_c.join().recv().await, Err(RecvError::Closed));
        Ok(())
    });
}

/// A send is complete when the receivers elsewhere have returned the value, or left, and not before; a
/// receiver that joins meanwhile gets the next value.
#[test]
fn broadcast_send_waits_for_receivers_at_other_nodes() {
    run(async {
        let [a, b] = nodes("broadcast_send_waits_for_receivers_at_other_nodes").await;
        let (mut clock, joiner) = broadcast::<u32>();
        let there = carry(joiner, &a, &b, "ab").await?;
        let (mut one, two) = (there.join(), there.join());
        until(|| clock.joined() == 2).await;
        let sent = AtomicBool::new(false);
        let (first, late) = par!(
            async {
                let first = clock.send(1).await;
                sent.store(true, SeqCst);
                first
            },
            async {
                assert_eq!(one.recv().await, Ok(1));
                let late = there.join();
                let limit = Duration::from_millis(20);
                assert_eq!(one.recv().within(limit).await, Err(RecvError::TimedOut));
                assert!(!sent.load(SeqCst), "the second has not returned it");
                drop(two);
                late
            }
        );
        assert_eq!(first, Ok(()));
        let mut late = late;
        until(|| clock.joined() == 2).await;
        let got = par!(clock.send(2), one.recv(), late.recv());
        assert_eq!(got, (Ok(()), Ok(2), Ok(2)));
        Ok(())
    });
}

async fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        tokio::task::yield_now().await;
    }
}

/// The sending end travels round: its receivers stay where they are and lose nothing, and joiners lead to it
/// from any node.
#[test]
fn sending_end_travels_and_keeps_its_receivers() {
    run(async {
        let [a, b, c] = nodes("sending_end_travels_and_keeps_its_receivers").await;
        let (clock, joiner) = broadcast::<u32>();
        let mut clock = clock.at_least(2);
        let mut one = joiner.join();
        let mut two = carry(joiner.clone(), &a, &b, "ab").await?.join();
        let mut more = Vec::new();
        let places = [&a, &b, &c];
        for stop in 0..9 {
            let receivers = 2 + stop;
            let (from, to) = (places[stop % 3], places[(stop + 1) % 3]);
            clock = carry(clock, from, to, &format!("stop {stop}")).await?.at_least(receivers);
            let n = stop as u32;
            let rest = async {
                for rx in &mut more {
                    let rx: &mut Receiver<u32> = rx;
                    assert_eq!(rx.recv().await, Ok(n));
                }
            };
            let got = par!(clock.send(n), one.recv(), two.recv(), rest);
            assert_eq!((got.0, got.1, got.2), (Ok(()), Ok(n), Ok(n)));
            more.push(joiner.join());
        }
        drop((one, two, joiner));
        drop(more);
        // At the other two nodes no receiver can join any more, and all have left.
        until(|| clock.is_closed()).await;
        assert!(clock.send(9).await.unwrap_err().is_closed());
        Ok(())
    });
}

/// Poison from any end and node reaches all of them, with its strength.
#[test]
fn poison_reaches_all_ends_of_a_broadcast() {
    run(async {
        let [a, b, c] = nodes("poison_reaches_all_ends_of_a_broadcast").await;
        for from in 0..3 {
            let (clock, joiner) = broadcast_with::<u32>(rendezvous().immunity(3));
            let mut clock = clock.at_least(3);
            let mut here = joiner.join();
            let at_b = carry(joiner.clone(), &a, &b, &format!("ab {from}")).await?;
            let at_c = carry(joiner, &a, &c, &format!("ac {from}")).await?.no_poison();
            let (mut one, mut two) = (at_b.join(), at_c.join());
            assert!(!one.poison_with(3, "weak"));
            let got = par!(clock.send(1), here.recv(), one.recv(), two.recv());
            assert_eq!(got, (Ok(()), Ok(1), Ok(1), Ok(1)));
            match from {
                0 => assert!(clock.poison_with(4, "sick")),
                1 => assert!(here.poison_with(4, "sick")),
                _ => assert!(one.poison_with(4, "sick")),
            }
            let sick = || Reason::from("sick").of_strength(4);
            let heard = || Err(RecvError::Poisoned(sick()));
            assert_eq!((here.recv().await, one.recv().await, two.recv().await), (heard(), heard(), heard()));
            assert_eq!((at_b.join().recv().await, at_c.join().recv().await), (heard(), heard()));
            let failed = BroadcastError { value: 2, why: Why::Poisoned(sick()), received: 0 };
            assert_eq!(clock.send(2).await, Err(failed));
        }
        Ok(())
    });
}

/// The receivers and joiners of a lost node have left; if the sending end's node is lost, receivers get an
/// error.
#[test]
fn receivers_and_joiners_of_a_lost_node_have_left() {
    run(async {
        let [a, b, c] = nodes("receivers_and_joiners_of_a_lost_node_have_left").await;
        let (clock, joiner) = broadcast::<u32>();
        let mut clock = clock.at_least(2);
        let at_b = carry(joiner.clone(), &a, &b, "ab").await?;
        let at_c = carry(joiner, &a, &c, "ac").await?;
        let (mut two, mut three) = (at_b.join(), at_c.join());
        assert_eq!(par!(clock.send(1), two.recv(), three.recv()), (Ok(()), Ok(1), Ok(1)));
        // The receiver at `b` may have left before this send begins, and then no other joins.
        let mut clock = clock.at_least(1);
        let (left, sent, got) = par!(b.leave(), clock.send(2), three.recv());
        left?;
        assert!(sent.is_ok() || sent.is_err_and(|error| error.is_closed()));
        assert_eq!(got, Ok(2));
        assert!(matches!(two.recv().await, Err(RecvError::OwnNodeLeft | RecvError::NodeLost | RecvError::Closed)));
        until(|| clock.joined() == 1).await;
        let clock_left = at_c.join();
        drop(clock_left);
        a.leave().await?;
        assert_eq!(three.recv().await, Err(RecvError::NodeLost));
        assert_eq!(at_c.join().recv().await, Err(RecvError::NodeLost));
        Ok(())
    });
}

#[derive(Clone)]
struct Mine;

impl dunlin::Buffering for Mine {
    fn admit(&mut self, _: usize) -> dunlin::Admit {
        dunlin::Admit::Keep
    }
}

/// A broadcast that the other node cannot know stays, with an error; it works as before.
#[test]
fn broadcast_with_custom_policy_stays_at_its_node() {
    run(async {
        let [a, b] = nodes("broadcast_with_custom_policy_stays_at_its_node").await;
        let (tx, rx) = par!(async { a.sender::<(Option<Broadcast<u32>>, Option<Joiner<u32>>)>("both").await }, async {
            b.receiver::<(Option<Broadcast<u32>>, Option<Joiner<u32>>)>("both").await
        });
        let (mut tx, _rx) = (tx?, rx?);
        let (clock, joiner) = broadcast_with::<u32>(Mine);
        let refused = tx.send((Some(clock), None)).await.unwrap_err();
        let SendError::NotTaken { value: (Some(mut clock), _), why: Why::Unsendable(why) } = refused else { panic!() };
        assert!(why.to_string().contains("a custom policy"), "{why}");
        let refused = tx.send((None, Some(joiner))).await.unwrap_err();
        let SendError::NotTaken { value: (_, Some(joiner)), why: Why::Unsendable(_) } = refused else { panic!() };
        let mut here = joiner.join();
        clock.send(1).await?;
        assert_eq!(here.recv().await, Ok(1));
        Ok(())
    });
}
