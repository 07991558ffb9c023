//! Channels that are retired, or go on, while their ends are on their way; in simulations.
#![cfg(feature = "sim")]

use std::panic::{AssertUnwindSafe, catch_unwind};

use dunlin::overwrite_oldest;
use dunlin::prelude::*;
use dunlin::sim::Sim;

/// Runs it for each seed, and tells of all for which it does not give what it should, or hangs.
fn for_all<T: PartialEq + std::fmt::Debug>(
    seeds: std::ops::Range<u64>,
    expected: &T,
    run: impl Fn(&Sim, u64) -> Result<T>,
) {
    let mut bad = Vec::new();
    for seed in seeds {
        match catch_unwind(AssertUnwindSafe(|| run(&Sim::new(seed), seed))) {
            Ok(Ok(got)) if got == *expected => {}
            Ok(other) => bad.push(format!("seed {seed}: {other:?}")),
            Err(_) => bad.push(format!("seed {seed}: it hangs")),
        }
    }
    assert!(bad.is_empty(), "{bad:#?}");
}

/// A way from each node to the next.
async fn ways<T: Portable>(nodes: &[Node]) -> Result<Vec<(Sender<T>, Receiver<T>)>> {
    let mut ways = Vec::new();
    for (n, pair) in nodes.windows(2).enumerate() {
        let name = format!("way {n}");
        ways.push((pair[0].sender::<T>(&name).await?, pair[1].receiver::<T>(&name).await?));
    }
    Ok(ways)
}

async fn go<T: Portable>(mut end: T, ways: &mut [(Sender<T>, Receiver<T>)]) -> Result<T> {
    for (tx, rx) in ways {
        let (sent, received) = par!(tx.send(end), rx.recv());
        sent?;
        end = received?;
    }
    Ok(end)
}

async fn nodes(count: usize) -> Result<Vec<Node>> {
    let mut nodes = Vec::new();
    for _ in 0..count {
        nodes.push(Node::join("retiring").await?);
    }
    Ok(nodes)
}

async fn all(rx: &mut Receiver<u32>) -> Result<Vec<u32>> {
    let mut received = Vec::new();
    while let Some(n) = rx.next().await? {
        received.push(n);
    }
    Ok(received)
}

fn policies() -> [Policy; 3] {
    [fifo(4), unbounded(), overwrite_oldest(4)]
}

/// What was sent before its sender retired it is received, wherever its receiver is by then.
#[test]
fn a_channel_is_retired_while_its_receiver_moves() {
    for (policy, moves) in policies().into_iter().flat_map(|policy| [(policy.clone(), 1), (policy, 2)]) {
        for_all(0..60, &vec![0, 1, 2], |sim, _| {
            let after = Duration::from_micros(sim.below(6000));
            sim.run(async {
                let nodes = nodes(3).await?;
                let mut ways = ways::<Receiver<u32>>(&nodes).await?;
                let (mut tx, rx) = channel_with::<u32>(policy.clone());
                for n in 0..3 {
                    tx.send(n).await?;
                }
                let (rx, ()) = par!(go(rx, &mut ways[..moves]), async {
                    sleep(after).await;
                    tx.retire();
                });
                all(&mut rx?).await
            })
        });
    }
}

/// A receiver that has retired its channel goes on as any other, and what was sent is received there.
#[test]
fn a_receiver_that_has_retired_its_channel_goes_on() {
    for (policy, moves) in policies().into_iter().flat_map(|policy| [(policy.clone(), 1), (policy, 2)]) {
        for_all(0..60, &(), |sim, _| {
            let after = Duration::from_micros(sim.below(6000));
            let (sent, received) = sim.run(async {
                let nodes = nodes(4).await?;
                let mut ways = ways::<Receiver<u32>>(&nodes).await?;
                let (mut tx, rx) = channel_with::<u32>(policy.clone());
                let sends = async {
                    let mut sent = Vec::new();
                    for n in 0.. {
                        if tx.send(n).await.is_err() {
                            break;
                        }
                        sent.push(n);
                        sleep(Duration::from_micros(500)).await;
                    }
                    sent
                };
                let receives = async {
                    let mut rx = go(rx, &mut ways[..1]).await?;
                    let mut received = vec![rx.recv().await?];
                    let takes = rx.recv().within(after);
                    received.extend(takes.await.ok());
                    rx.retire();
                    let mut rx = go(rx, &mut ways[1..=moves]).await?;
                    received.extend(all(&mut rx).await?);
                    Result::<_>::Ok(received)
                };
                let (sent, received) = par!(sends, receives);
                Result::<_>::Ok((sent, received?))
            })?;
            if format!("{policy:?}").contains("overwrite") {
                assert!(received.iter().all(|n| sent.contains(n)) && received.is_sorted(), "{sent:?}, {received:?}");
            } else {
                assert_eq!(sent, received);
            }
            Ok(())
        });
    }
}

/// A sender that has retired its channel goes on, and so does its receiver: over there it is retired, too.
#[test]
fn a_sender_that_has_retired_its_channel_goes_on() {
    for policy in policies() {
        for_all(0..60, &(vec![0, 1, 2], true), |sim, _| {
            let after = Duration::from_micros(sim.below(6000));
            sim.run(async {
                let nodes = nodes(4).await?;
                let mut ways_of_rx = ways::<Receiver<u32>>(&nodes[..3]).await?;
                let mut ways_of_tx = (nodes[0].sender("tx").await?, nodes[3].receiver("tx").await?);
                let (mut tx, rx) = channel_with::<u32>(policy.clone());
                for n in 0..3 {
                    tx.send(n).await?;
                }
                let (rx, tx) = par!(go(rx, &mut ways_of_rx), async {
                    sleep(after).await;
                    tx.retire();
                    go(tx, std::slice::from_mut(&mut ways_of_tx)).await
                });
                let (mut rx, mut tx) = (rx?, tx?);
                // Nothing but its home's word ends this: it offers nothing.
                let (received, ()) = par!(all(&mut rx), tx.closed());
                Ok((received?, tx.send(9).await.is_err()))
            })
        });
    }
}

/// The places that a sender was promised move with what is buffered.
#[test]
fn a_receiver_goes_on_with_what_is_buffered() {
    for_all(0..50, &(0..100).collect::<Vec<u32>>(), |sim, _| {
        sim.run(async {
            let nodes = nodes(4).await?;
            let mut ways = ways::<Receiver<u32>>(&nodes).await?;
            let (mut tx, rx) = channel_with::<u32>(unbounded());
            let sends = async {
                for n in 0..100 {
                    tx.send(n).await?;
                    sleep(Duration::from_micros(500)).await;
                }
                drop(tx);
                Result::<()>::Ok(())
            };
            let (sent, rx) = par!(sends, go(rx, &mut ways));
            sent?;
            all(&mut rx?).await
        })
    });
}

/// Ends in messages that are complete when they are sent, over a channel whose receiver moves and then ends: whoever has the other ends hears of it.
#[test]
fn ends_on_their_way_to_a_channel_that_ends_are_dropped() {
    for_all(0..60, &(), |sim, seed| {
        let (first, next) = (Duration::from_micros(sim.below(3000)), 100 + sim.below(400));
        sim.run(async {
            let nodes = nodes(3).await?;
            let mut ways = ways::<Receiver<Sender<u32>>>(&nodes).await?;
            let (mut mail, rx) = channel_with::<Sender<u32>>(unbounded());
            let goes = async {
                let rx = go(rx, &mut ways).await?;
                match seed % 3 {
                    0 => drop(rx),
                    1 => rx.poison("enough"),
                    _ => rx.retire(),
                }
                Result::<_>::Ok(())
            };
            let sends = async {
                sleep(first).await;
                let mut others = Vec::new();
                for _ in 0..20 {
                    let (tx, other) = channel();
                    others.push(other);
                    if mail.send(tx).await.is_err() {
                        break;
                    }
                    sleep(Duration::from_micros(next)).await;
                }
                others
            };
            let (gone, others) = par!(goes, sends);
            gone?;
            for mut other in others {
                assert!(other.recv().await.is_err());
            }
            Ok(())
        })
    });
}

/// A sender that was only passed on, in a message that is complete when it is sent: its giver's word that it is settled must not come before it does.
#[test]
fn a_sender_that_was_passed_on_goes_over_a_buffer() {
    for_all(0..15, &(), |sim, seed| {
        sim.run(async {
            let nodes = nodes(4).await?;
            let mut ways = ways::<Sender<u32>>(&nodes[..2]).await?;
            // Values are large, and so control overtakes them.
            let mut mail = nodes[1].sender::<(Vec<u8>, Sender<u32>)>("mail").await?;
            let mut letters = nodes[2].receiver::<(Vec<u8>, Sender<u32>)>("mail").policy(unbounded()).await?;
            let mut back = (nodes[2].sender::<Sender<u32>>("on").await?, nodes[3].receiver::<Sender<u32>>("on").await?);
            // So that there are credits.
            let (first, _of_first) = channel();
            mail.send((Vec::new(), first)).await?;
            drop(letters.recv().await?);
            for round in 0..4 {
                let (tx, mut rx) = channel::<u32>();
                let tx = go(tx, &mut ways).await?;
                mail.send((vec![0; 1 << (12 + seed % 6)], tx)).await?;
                let (_, tx) = letters.recv().await?;
                let mut tx = if round % 2 == 0 { tx } else { go(tx, std::slice::from_mut(&mut back)).await? };
                let (sent, received) = par!(tx.send(round), rx.recv());
                sent?;
                assert_eq!(received?, round);
                drop(tx);
                assert_eq!(rx.recv().await, Err(RecvError::Closed));
            }
            drop((ways, mail, letters, back));
            // Nobody answers for anything any more.
            for node in nodes {
                node.leave().await?;
            }
            Ok(())
        })
    });
}
