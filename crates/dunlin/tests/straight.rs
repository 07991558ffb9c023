//! Large values for a receiver that several nodes share travel straight from their sender's node to the one
//! that receives them, and not through the one that keeps the receiver.
#![cfg(feature = "net")]

use std::time::Duration;

use bytes::Bytes;
use dunlin::prelude::*;

#[allow(dead_code, reason = "each test needs a part of it")]
#[path = "support/nodes.rs"]
mod support;
use support::{carry, nodes, run};

const LARGE: usize = 300_000;

/// The bytes that this node has sent to that one, plus those that it has received from it.
fn said(node: &Node, to: &Node) -> u64 {
    let with = node.traffic().into_iter().find(|(peer, _)| *peer == to.me());
    with.map_or(0, |(_, traffic)| traffic.written + traffic.read)
}

fn value(number: u8) -> Bytes {
    vec![number; LARGE].into()
}

/// The keeper is `a`, the sender at `b`, the receiver at `c`.
#[test]
fn large_values_do_not_pass_through_the_keeper() {
    run(async {
        let [a, b, c] = nodes("they_do_not_pass").await;
        let (tx, rx) = channel::<Bytes>();
        let here = rx.share();
        let there = carry(here.clone(), &a, &c, "handle").await?;
        let tx = carry(tx, &a, &b, "sender").await?;
        come_straight(tx, there, [&a, &b, &c]).await
    });
}

/// The same for one that was forwarded from `d`: at the keeper its channel is joined with the agent of
/// another handle.
#[test]
fn large_values_for_a_forwarded_handle_bypass_the_keeper() {
    run(async {
        let [a, b, c, d] = nodes("went_on_straight").await;
        let (tx, rx) = channel::<Bytes>();
        let here = rx.share();
        let at_d = carry(here.clone(), &a, &d, "ad").await?;
        let there = carry(at_d, &d, &c, "dc").await?;
        let tx = carry(tx, &a, &b, "sender").await?;
        come_straight(tx, there, [&a, &b, &c]).await?;
        let between = said(&d, &a) + said(&d, &b) + said(&d, &c);
        assert!(between < LARGE as u64, "{between} bytes came through the node in between");
        Ok(())
    });
}

/// The keeper has a node in each of two applications: the sender is in one, the receiver in the other, which
/// cannot read at the sender's.
#[test]
fn large_values_between_applications_pass_through_the_keeper() {
    run(async {
        let [sends, keeps_one] = nodes("straight_one").await;
        let [keeps_other, receives] = nodes("straight_two").await;
        let (tx, rx) = channel::<Bytes>();
        let here = rx.share();
        let mut there = carry(here.clone(), &keeps_other, &receives, "handle").await?;
        let mut tx = carry(tx, &keeps_one, &sends, "sender").await?;
        for number in 0..4 {
            let (sent, got) = par!(tx.send(value(number)), there.recv());
            sent?;
            assert_eq!(got?[LARGE - 1], number);
        }
        Ok(())
    });
}

/// Twenty values, of which the keeper has the first one at most. On a slow machine it may have to forward
/// that one twice.
async fn come_straight(mut tx: Sender<Bytes>, mut there: Shared<Receiver<Bytes>>, [a, b, c]: [&Node; 3]) -> Result {
    let (sent, got) = par!(
        async {
            for number in 0..20 {
                tx.send(value(number)).await?;
            }
            drop(tx);
            Ok::<_, SendError<Bytes>>(())
        },
        async {
            let mut got = Vec::new();
            while let Some(value) = there.next().await? {
                assert_eq!(value.len(), LARGE);
                got.push(value[LARGE - 1]);
            }
            Ok::<_, dunlin::Error>(got)
        }
    );
    sent?;
    assert_eq!(got?, (0..20).collect::<Vec<u8>>());
    let (through, straight) = (said(c, a), said(c, b));
    // The first one arrived before the sender knew that receivers are elsewhere. A late claimer is skipped,
    // and asks again.
    assert!(through < 4 * LARGE as u64, "{through} bytes came through the keeper, {straight} straight");
    assert!(straight >= 19 * LARGE as u64, "{straight} bytes came straight");
    Ok(())
}

/// Five for the first claimer, five for the next, and so on: a value on its way to a claimer that drops its
/// claim goes to the next.
#[test]
fn claimers_at_two_nodes_receive_five_values_each() {
    run(async {
        let [a, b, c, d] = nodes("claimers_at_two").await;
        let (tx, rx) = channel::<(u32, Bytes)>();
        let here = rx.share();
        let mut at_c = carry(here.clone(), &a, &c, "ac").await?;
        let mut at_d = carry(here.clone(), &a, &d, "ad").await?;
        let mut tx = carry(tx, &a, &b, "sender").await?;
        let claimer = async |shared: &mut Shared<Receiver<(u32, Bytes)>>| {
            let mut got = Vec::new();
            for _ in 0..3 {
                let mut claim = shared.claim().await?;
                let mut five = Vec::new();
                while five.len() < 5 {
                    // Each receive times out once, perhaps while the value is on its way.
                    let hurried = claim.recv().within(Duration::from_micros(1500)).await;
                    let (number, _) = if let Ok(got) = hurried { got } else { claim.recv().await? };
                    five.push(number);
                }
                got.push(five);
            }
            Ok::<_, dunlin::Error>(got)
        };
        let (sent, at_c, at_d) = par!(
            async {
                for number in 0..30 {
                    tx.send((number, value(0))).await?;
                }
                Ok::<_, SendError<(u32, Bytes)>>(())
            },
            claimer(&mut at_c),
            claimer(&mut at_d)
        );
        sent?;
        let fives: Vec<Vec<u32>> = at_c?.into_iter().chain(at_d?).collect();
        let mut all: Vec<u32> = fives.iter().flatten().copied().collect();
        assert!(fives.iter().all(|five| five.windows(2).all(|two| two[0] + 1 == two[1])), "{fives:?}");
        all.sort_unstable();
        assert_eq!(all, (0..30).collect::<Vec<u32>>());
        Ok(())
    });
}

/// Receivers at the keeper's own node get them as well, and each is received once.
#[test]
fn keeper_receives_large_values_too() {
    run(async {
        let [a, b, c] = nodes("the_keeper_receives").await;
        let (tx, rx) = channel::<(u32, Bytes)>();
        let mut here = rx.share();
        let mut there = carry(here.clone(), &a, &c, "handle").await?;
        let mut tx = carry(tx, &a, &b, "sender").await?;
        let all = async |shared: &mut Shared<Receiver<(u32, Bytes)>>| {
            let mut got = Vec::new();
            while let Some((number, value)) = shared.next().await? {
                assert_eq!(value.len(), LARGE);
                got.push(number);
            }
            Ok::<_, dunlin::Error>(got)
        };
        // First one that is read elsewhere, and one for a receive here.
        let (sent, got) = par!(tx.send((0, value(0))), there.recv());
        sent?;
        assert_eq!(got?.0, 0);
        let (sent, got) = par!(tx.send((1, value(0))), here.recv());
        sent?;
        assert_eq!(got?.0, 1);
        let (sent, at_a, at_c) = par!(
            async {
                for number in 0..40 {
                    tx.send((number, value(0))).await?;
                }
                drop(tx);
                Ok::<_, SendError<(u32, Bytes)>>(())
            },
            all(&mut here),
            all(&mut there)
        );
        sent?;
        let mut all: Vec<u32> = at_a?.into_iter().chain(at_c?).collect();
        all.sort_unstable();
        assert_eq!(all, (0..40).collect::<Vec<u32>>());
        Ok(())
    });
}

/// A posted value of a dropped sender is still read at its node.
#[test]
fn a_posted_value_outlives_its_sender() {
    run(async {
        let [a, b, c] = nodes("a_posted_value").await;
        let (tx, rx) = channel::<Bytes>();
        let here = rx.share();
        let mut there = carry(here.clone(), &a, &c, "handle").await?;
        let mut tx = carry(tx, &a, &b, "sender").await?;
        let (sent, got) = par!(tx.send(value(1)), there.recv());
        sent?;
        assert_eq!(got?[0], 1);
        drop(tx.send_nowait(value(2)));
        drop(tx);
        assert_eq!(there.recv().await?[0], 2);
        assert_eq!(there.recv().await, Err(RecvError::Closed));
        Ok(())
    });
}

/// A handle that was forwarded from its first node.
#[test]
fn forwarded_handle_receives_large_values_too() {
    run(async {
        let [a, b, c, d] = nodes("a_handle_that_went_on").await;
        let (tx, rx) = channel::<(u32, Bytes, Sender<u32>)>();
        let here = rx.share();
        let at_c = carry(here.clone(), &a, &c, "ac").await?;
        let mut there = carry(at_c, &c, &d, "cd").await?;
        let mut tx = carry(tx, &a, &b, "sender").await?;
        for number in 0..4 {
            let (answer, mut answered) = channel::<u32>();
            let (sent, got) = par!(tx.send((number, value(0), answer)), there.recv());
            sent?;
            let (got, _, mut answer) = got?;
            assert_eq!(got, number);
            let (sent, heard) = par!(answer.send(number), answered.recv());
            sent?;
            assert_eq!(heard?, number);
        }
        Ok(())
    });
}
