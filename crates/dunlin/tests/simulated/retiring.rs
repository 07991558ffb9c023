//! Channels that are retired, or stay in use, while their ends are on their way; in simulations.

use std::panic::{AssertUnwindSafe, catch_unwind};

use dunlin::node::ConnectionState;
use dunlin::prelude::*;
use dunlin::sim::Sim;
use dunlin::{overwrite_oldest, rendezvous};

use crate::support::nothing_is_left;

/// Runs it for each seed, and reports all seeds with a wrong result or a hang.
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

/// A channel from each node to the next.
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

/// Runs it with this many nodes. Nothing is left there after it has dropped its ends.
fn with_nodes<T>(sim: &Sim, count: usize, run: impl AsyncFnOnce(Vec<Node>) -> Result<T>) -> Result<T> {
    sim.run(async {
        let mut nodes = Vec::new();
        for _ in 0..count {
            nodes.push(Node::join("retiring").await?);
        }
        let result = run(nodes.clone()).await?;
        nothing_is_left(&nodes).await?;
        Ok(result)
    })
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

/// Values sent before their sender retired the channel are received, wherever the receiver is by then.
#[test]
fn a_channel_is_retired_while_its_receiver_moves() {
    for (policy, moves) in policies().into_iter().flat_map(|policy| [(policy.clone(), 1), (policy, 2)]) {
        for_all(0..60, &vec![0, 1, 2], |sim, _| {
            let after = Duration::from_micros(sim.below(6000));
            with_nodes(sim, 3, async |nodes| {
                let mut ways = ways::<Receiver<u32>>(&nodes).await?;
                let (mut tx, rx) = channel_with::<u32>(policy.clone());
                for n in 0..3 {
                    tx.send(n).await?;
                }
                let (rx, ()) = par!(go(rx, &mut ways[..moves]), async {
                    sleep(after).await;
                    tx.retire();
                });
                let received = all(&mut rx?).await?;
                // A new home that promised the sender fewer places than it has would break the connection
                // between them.
                let mut beside = (nodes[0].sender("beside").await?, nodes[moves].receiver("beside").await?);
                sleep(Duration::from_millis(100)).await;
                let (sent, ()) = par!(beside.0.send(7), async { assert_eq!(beside.1.recv().await, Ok(7)) });
                sent?;
                Ok(received)
            })
        });
    }
}

/// A receiver that has retired its channel travels like any other, and receives the sent values at its new
/// node.
#[test]
fn receiver_moved_after_retire_receives_values_sent_before() {
    for (policy, moves) in policies().into_iter().flat_map(|policy| [(policy.clone(), 1), (policy, 2)]) {
        for_all(0..60, &(), |sim, _| {
            let after = Duration::from_micros(sim.below(6000));
            let (sent, received) = with_nodes(sim, 4, async |nodes| {
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

/// A receiver retires its channel before that has followed it, and still receives the sent values.
#[test]
fn receiver_retires_its_channel_before_that_has_followed() {
    for (policy, moves, stays) in [fifo(4), unbounded()]
        .into_iter()
        .flat_map(|policy| [1, 2, 3].map(|moves| (policy.clone(), moves)))
        .flat_map(|(policy, moves)| [true, false].map(|stays| (policy.clone(), moves, stays)))
    {
        for_all(0..20, &(), |sim, _| {
            let (first, every) = (sim.below(6000), 50 + sim.below(1000));
            let (sent, received) = with_nodes(sim, 5, async |nodes| {
                let mut ways = ways::<Receiver<u32>>(&nodes).await?;
                let (mut tx, rx) = channel_with::<u32>(policy.clone());
                let sends = async {
                    let mut sent = Vec::new();
                    sleep(Duration::from_micros(first)).await;
                    for n in 0.. {
                        if tx.send(n).await.is_err() {
                            break;
                        }
                        sent.push(n);
                        sleep(Duration::from_micros(every)).await;
                    }
                    sent
                };
                let receives = async {
                    let mut rx = go(rx, &mut ways[..moves]).await?;
                    rx.retire();
                    if !stays {
                        rx = go(rx, &mut ways[moves..=moves]).await?;
                    }
                    all(&mut rx).await
                };
                let (sent, received) = par!(sends, receives);
                Result::<_>::Ok((sent, received?))
            })?;
            assert_eq!(sent, received, "{policy:?}, {moves} moves, stays: {stays}");
            Ok(())
        });
    }
}

/// The sender has sent more than the new home has promised places for when the receiver retires the channel.
#[test]
fn receiver_retires_a_channel_with_more_values_than_places() {
    for (moves, early) in [1, 2, 3].into_iter().flat_map(|moves| [(moves, 0), (moves, 1), (moves, 3)]) {
        for_all(0..6, &(0..3000).collect::<Vec<u32>>(), |sim, _| {
            let after = Duration::from_micros(sim.below(3000));
            with_nodes(sim, 4, async |nodes| {
                let mut ways = ways::<Receiver<u32>>(&nodes).await?;
                let (mut tx, rx) = channel_with::<u32>(unbounded());
                for n in 0..3000 {
                    tx.send(n).await?;
                }
                let mut rx = go(rx, &mut ways[..moves]).await?;
                let mut received = Vec::new();
                for _ in 0..early {
                    received.push(rx.recv().await?);
                    sleep(after).await;
                }
                rx.retire();
                received.extend(all(&mut rx).await?);
                Ok(received)
            })
        });
    }
}

/// The sender retires its channel, or is dropped, while its receiver leaves with the buffered values.
#[test]
fn sender_ends_a_channel_while_its_buffer_moves() {
    for (policy, count, moves, retires) in [(fifo(4), 3), (unbounded(), 600)]
        .into_iter()
        .flat_map(|(policy, count)| [1, 2].map(|moves| (policy.clone(), count, moves)))
        .flat_map(|(policy, count, moves)| [true, false].map(|retires| (policy.clone(), count, moves, retires)))
    {
        for_all(0..40, &(0..count).collect::<Vec<u32>>(), |sim, _| {
            let after = Duration::from_micros(sim.below(1500 * moves as u64));
            with_nodes(sim, 3, async |nodes| {
                let mut ways = ways::<Receiver<u32>>(&nodes).await?;
                let (mut tx, rx) = channel_with::<u32>(policy.clone());
                for n in 0..count {
                    tx.send(n).await?;
                }
                let ends = async {
                    sleep(after).await;
                    if retires {
                        tx.retire();
                        return Some(tx);
                    }
                    None
                };
                let (rx, _tx) = par!(go(rx, &mut ways[..moves]), ends);
                all(&mut rx?).await
            })
        });
    }
}

/// The receiver has retired its channel and waits for the values on their way, and its sender is lost.
#[test]
fn receiver_of_a_retired_channel_reports_a_lost_sender() {
    for moves in [1, 2] {
        for_all(0..40, &(), |sim, _| {
            let (before, after) = (Duration::from_micros(sim.below(4000)), Duration::from_micros(sim.below(2000)));
            with_nodes(sim, 3, async |nodes| {
                let mut ways = ways::<Receiver<u32>>(&nodes).await?;
                let (mut tx, rx) = channel_with::<u32>(fifo(4));
                for n in 0..3 {
                    tx.send(n).await?;
                }
                let mut rx = go(rx, &mut ways[..moves]).await?;
                sleep(before).await;
                rx.retire();
                sleep(after).await;
                for other in &nodes[1..] {
                    sim.part(&nodes[0], other);
                }
                // Either all arrive, or the receiver gets an error, since there may have been more.
                let mut received = Vec::new();
                let how = loop {
                    match rx.recv().await {
                        Ok(n) => received.push(n),
                        Err(how) => break how,
                    }
                };
                assert_eq!(received, (0..received.len() as u32).collect::<Vec<_>>());
                assert!(
                    how == RecvError::NodeLost || (how == RecvError::Closed && received.len() == 3),
                    "{how:?}, {received:?}"
                );
                Ok(())
            })
        });
    }
}

/// Poison from a receiver whose channel has not followed it, also behind its retirement, reaches the sender.
#[test]
fn receiver_poisons_its_channel_before_that_has_followed() {
    for (policy, moves, retires) in [rendezvous(), fifo(4), overwrite_oldest(4)]
        .into_iter()
        .flat_map(|policy| [1, 2, 3].map(|moves| (policy.clone(), moves)))
        .flat_map(|(policy, moves)| [true, false].map(|retires| (policy.clone(), moves, retires)))
    {
        for_all(0..20, &(), |sim, _| {
            let (every, after) = (50 + sim.below(1000), sim.below(2000));
            with_nodes(sim, 4, async |nodes| {
                let mut ways = ways::<Receiver<u32>>(&nodes).await?;
                let (mut tx, rx) = channel_with::<u32>(policy.clone().immunity(2));
                let poisoned = std::cell::Cell::new(false);
                let sends = async {
                    let mut n = 0;
                    loop {
                        let why = match tx.send(n).await {
                            Ok(()) => None,
                            Err(SendError::NotTaken { why, .. }) => Some(why),
                            Err(error) => panic!("{error:?}"),
                        };
                        match why {
                            None => {}
                            // It was retired first; the poison follows.
                            Some(Why::Closed) if retires && n < 10_000 => {}
                            Some(Why::Poisoned(reason)) => {
                                assert!(poisoned.get() && reason.as_str() == "enough", "{reason:?}");
                                return;
                            }
                            Some(other) => panic!("{other:?}"),
                        }
                        n += 1;
                        sleep(Duration::from_micros(every)).await;
                    }
                };
                let receives = async {
                    let mut rx = go(rx, &mut ways[..moves]).await?;
                    if retires {
                        rx.retire();
                    }
                    // Poison without enough strength has no effect.
                    assert!(!rx.poison_with(2, "weak"));
                    sleep(Duration::from_micros(after)).await;
                    poisoned.set(true);
                    assert!(rx.poison_with(3, "enough"));
                    let Err(RecvError::Poisoned(reason)) = rx.recv().await else { panic!("it is poisoned") };
                    assert_eq!(reason.as_str(), "enough");
                    Result::<_>::Ok(rx)
                };
                let ((), rx) = par!(sends, receives);
                drop(rx?);
                Ok(())
            })
        });
    }
}

/// A sender poisons its channel while the home of that moves: without enough strength, which has no effect,
/// and then with enough, or it ends the channel in order.
#[test]
fn a_sender_poisons_its_channel_while_its_receiver_moves() {
    for (policy, moves, then) in [fifo(4), unbounded(), overwrite_oldest(4)]
        .into_iter()
        .flat_map(|policy| [1, 2, 3].map(|moves| (policy.clone(), moves)))
        .flat_map(|(policy, moves)| [0, 1, 2, 3, 4].map(|then| (policy.clone(), moves, then)))
    {
        for_all(0..20, &(), |sim, _| {
            let (before, between) = (Duration::from_micros(sim.below(8000)), Duration::from_micros(sim.below(3000)));
            with_nodes(sim, 4, async |nodes| {
                let mut ways = ways::<Receiver<u32>>(&nodes).await?;
                let (mut tx, rx) = channel_with::<u32>(policy.clone().immunity(2));
                for n in 0..3 {
                    tx.send(n).await?;
                }
                let ends = async {
                    sleep(before).await;
                    tx.poison_with(2, "weak");
                    sleep(between).await;
                    match then {
                        0 => tx.retire(),
                        1 => return None,
                        2 => assert!(tx.poison_with(3, "enough")),
                        3 => {
                            tx.retire();
                            tx.poison_with(3, "enough");
                        }
                        _ => {
                            tx.send(3).await.expect("it is not poisoned");
                            tx.retire();
                        }
                    }
                    Some(tx)
                };
                let (rx, tx) = par!(go(rx, &mut ways[..moves]), ends);
                let mut rx = rx?;
                let mut received = Vec::new();
                let how = loop {
                    match rx.recv().await {
                        Ok(n) => received.push(n),
                        Err(how) => break how,
                    }
                };
                match how {
                    RecvError::Closed if then == 4 => assert_eq!(received, [0, 1, 2, 3]),
                    RecvError::Closed if then < 2 => assert_eq!(received, [0, 1, 2]),
                    // It was retired first, and the receiver received all values before the poison arrived.
                    RecvError::Closed if then == 3 => assert_eq!(received, [0, 1, 2]),
                    RecvError::Poisoned(reason) if then == 2 || then == 3 => assert_eq!(reason.as_str(), "enough"),
                    other => panic!("{other:?}, {received:?}"),
                }
                if let (Some(mut tx), 2 | 3) = (tx, then) {
                    // Until the receiver's node has reported that the poison was strong enough.
                    loop {
                        match tx.send(9).await {
                            Ok(()) if then == 2 => {}
                            Err(SendError::NotTaken { why: Why::Closed, .. }) if then == 3 => {}
                            Err(SendError::NotTaken { why: Why::Poisoned(reason), .. }) => {
                                assert_eq!(reason.as_str(), "enough");
                                break;
                            }
                            other => panic!("{other:?}"),
                        }
                        sleep(Duration::from_millis(1)).await;
                    }
                }
                Ok(())
            })
        });
    }
}

/// A sender that has retired its channel travels, and so does its receiver: at both new nodes the channel is
/// still retired.
#[test]
fn channel_retired_by_sender_stays_retired_after_both_ends_move() {
    for policy in policies() {
        for_all(0..60, &(vec![0, 1, 2], true), |sim, _| {
            let after = Duration::from_micros(sim.below(6000));
            with_nodes(sim, 4, async |nodes| {
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
                // Only a notice from its home ends this wait: it offers nothing.
                let (received, ()) = par!(all(&mut rx), tx.closed());
                Ok((received?, tx.send(9).await.is_err()))
            })
        });
    }
}

/// A sender's promised places move with the buffered values.
#[test]
fn buffered_values_and_promised_places_move_with_the_receiver() {
    for_all(0..50, &(0..100).collect::<Vec<u32>>(), |sim, _| {
        with_nodes(sim, 4, async |nodes| {
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

/// Ends in messages whose sends are complete at once, over a channel whose receiver moves and then ends: the
/// holders of the other ends notice.
#[test]
fn ends_on_their_way_to_a_channel_that_ends_are_dropped() {
    for_all(0..60, &(), |sim, seed| {
        let (first, next) = (Duration::from_micros(sim.below(3000)), 100 + sim.below(400));
        with_nodes(sim, 3, async |nodes| {
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

/// An end of a poisoned channel between nodes has ended, and travels in that state, also in a message whose
/// send is complete at once.
#[test]
fn ends_of_poisoned_channel_report_errors_after_they_move() {
    for (by_sender, policy) in [(true, rendezvous()), (true, fifo(4)), (false, rendezvous()), (false, fifo(4))] {
        for_all(0..20, &(), |sim, _| {
            let after = Duration::from_micros(sim.below(6000));
            with_nodes(sim, 3, async |nodes| {
                let mut there = (nodes[0].sender("there").await?, nodes[1].receiver::<Receiver<u32>>("there").await?);
                let mut senders = nodes[0].sender::<Sender<u32>>("senders").await?;
                let mut got_senders = nodes[2].receiver::<Sender<u32>>("senders").policy(policy.clone()).await?;
                let mut receivers = nodes[1].sender::<Receiver<u32>>("receivers").await?;
                let mut got_receivers = nodes[2].receiver::<Receiver<u32>>("receivers").policy(policy.clone()).await?;
                let (mut tx, rx) = channel::<u32>();
                let mut rx = go(rx, std::slice::from_mut(&mut there)).await?;
                let (sent, received) = par!(tx.send(1), rx.recv());
                assert_eq!((sent?, received?), ((), 1));
                if by_sender {
                    tx.poison("enough");
                } else {
                    rx.poison("enough");
                }
                sleep(after).await;
                let (sent, received) = par!(senders.send(tx), got_senders.recv());
                sent?;
                assert!(received?.send(2).await.is_err());
                let (sent, received) = par!(receivers.send(rx), got_receivers.recv());
                sent?;
                assert!(received?.recv().await.is_err());
                Ok(())
            })
        });
    }
}

/// Both ends of a channel that has been elsewhere are at one node, the receiver has retired it, and the
/// sender travels on: its sends are refused at the channel's home, which is also its previous node.
#[test]
fn sender_moved_after_retire_by_receiver_reports_closed() {
    for policy in [rendezvous(), fifo(2)] {
        for_all(0..20, &(), |sim, _| {
            let after = Duration::from_micros(sim.below(6000));
            with_nodes(sim, 2, async |nodes| {
                let mut there = (nodes[0].sender("there").await?, nodes[1].receiver::<Receiver<u32>>("there").await?);
                let mut back = (nodes[1].sender("back").await?, nodes[0].receiver::<Receiver<u32>>("back").await?);
                let mut ways = ways::<Sender<u32>>(&nodes).await?;
                let (mut tx, rx) = channel_with::<u32>(policy.clone());
                let rx = go(rx, std::slice::from_mut(&mut there)).await?;
                let mut rx = go(rx, std::slice::from_mut(&mut back)).await?;
                let (sent, received) = par!(tx.send(1), rx.recv());
                assert_eq!((sent?, received?), ((), 1));
                rx.retire();
                sleep(after).await;
                let mut tx = go(tx, &mut ways).await?;
                assert!(tx.send(2).await.unwrap_err().is_closed());
                Ok(())
            })
        });
    }
}

/// A sender that has retired its channel travels to another node and returns unused: its sends fail there,
/// too.
#[test]
fn returned_sender_of_a_retired_channel_reports_closed() {
    for policy in [rendezvous(), fifo(4), unbounded()] {
        for_all(0..20, &(), |sim, _| {
            let after = Duration::from_micros(sim.below(6000));
            with_nodes(sim, 3, async |nodes| {
                let mut there = (nodes[0].sender("there").await?, nodes[1].receiver::<Receiver<u32>>("there").await?);
                let mut away = (nodes[0].sender("away").await?, nodes[2].receiver::<Sender<u32>>("away").await?);
                let mut back = (nodes[2].sender("back").await?, nodes[0].receiver::<Sender<u32>>("back").await?);
                let (mut tx, rx) = channel_with::<u32>(policy.clone());
                let mut rx = go(rx, std::slice::from_mut(&mut there)).await?;
                let (sent, received) = par!(tx.send(1), rx.recv());
                assert_eq!((sent?, received?), ((), 1));
                tx.retire();
                sleep(after).await;
                let tx = go(tx, std::slice::from_mut(&mut away)).await?;
                let mut tx = go(tx, std::slice::from_mut(&mut back)).await?;
                assert!(tx.send(2).await.unwrap_err().is_closed());
                assert_eq!(rx.recv().await, Err(RecvError::Closed));
                Ok(())
            })
        });
    }
}

/// A sender that a node only forwards, in a message whose send is complete at once: frames about it must not
/// arrive before it does. Here its previous node is lost, so no node will report that it is settled.
#[test]
fn sender_forwarded_on_a_credit_from_a_lost_node_leaves_nothing() {
    for_all(0..20, &(), |sim, _| {
        sim.run(async {
            let join = |grace| Node::builder().app("retiring").relay(false).grace(Duration::from_secs(grace)).join();
            let (home, a, b) = (join(60).await?, join(60).await?, join(1).await?);
            let (c, d) = (join(60).await?, join(60).await?);
            let mut to_a = (home.sender::<Sender<u32>>("to a").await?, a.receiver::<Sender<u32>>("to a").await?);
            let mut ab = (a.sender::<Sender<u32>>("ab").await?, b.receiver::<Sender<u32>>("ab").await?);
            let mut bc = (b.sender("bc").await?, c.receiver::<Sender<u32>>("bc").policy(unbounded()).await?);
            let mut cd = (c.sender::<Sender<u32>>("cd").await?, d.receiver::<Sender<u32>>("cd").await?);
            // This brings credits, and connections.
            let (first, _of_first) = channel();
            bc.0.send(first).await?;
            drop(bc.1.recv().await?);
            let (tx, mut rx) = channel::<u32>();
            let tx = go(tx, std::slice::from_mut(&mut to_a)).await?;
            let tx = go(tx, std::slice::from_mut(&mut ab)).await?;
            let mut news = b.connections();
            sim.part(&a, &b);
            while !matches!(news.recv().await?, (node, ConnectionState::Down(_)) if node == a.me()) {}
            bc.0.send(tx).await?;
            let goes = async {
                let tx = bc.1.recv().await?;
                let mut tx = go(tx, std::slice::from_mut(&mut cd)).await?;
                // It may be lost by now, or not.
                let _ = par!(tx.send(1), rx.recv());
                Result::<_>::Ok(())
            };
            let (gone, ()) = par!(goes, async {
                sleep(Duration::from_secs(5)).await;
                sim.heal(&a, &b);
            });
            gone?;
            drop((to_a, ab, bc, cd));
            // The sender that passed through there has left nothing.
            c.leave().await
        })
    });
}

/// The receiver retires a channel of ends while messages wait behind one with an end in use: they were sent
/// before, and arrive.
#[test]
fn messages_queued_behind_an_end_in_use_are_received_after_retire() {
    for_all(0..60, &(), |sim, seed| {
        let after = Duration::from_micros(sim.below(3000));
        with_nodes(sim, 3, async |nodes| {
            let mut there = (nodes[0].sender("there").await?, nodes[2].receiver::<Vec<Receiver<u32>>>("there").await?);
            let mut mail = nodes[0].sender::<Sender<u32>>("mail").await?;
            let mut mail_rx = nodes[1].receiver::<Sender<u32>>("mail").policy(unbounded()).await?;
            let (txs, rxs): (Vec<_>, Vec<_>) = (0..6).map(|_| channel_with::<u32>(fifo(4))).unzip();
            let (sent, rxs) = par!(there.0.send(rxs), there.1.recv());
            sent?;
            // This brings credits.
            mail.send(channel().0).await?;
            drop(mail_rx.recv().await?);
            let sends = async {
                let mut sent = 0;
                for mut tx in txs {
                    tx.send(sent).await?;
                    if mail.send(tx).await.is_err() {
                        break;
                    }
                    sent += 1;
                }
                Result::<_>::Ok((sent, (seed % 2 == 0).then_some(mail)))
            };
            let receives = async {
                sleep(after).await;
                mail_rx.retire();
                let mut received = Vec::new();
                while let Some(tx) = mail_rx.next().await? {
                    received.push(tx);
                }
                Result::<_>::Ok(received)
            };
            let (sent, received) = par!(sends, receives);
            let ((sent, mail), received) = (sent?, received?);
            assert_eq!(received.len(), sent as usize);
            drop((mail, received, rxs));
            // Nothing of them is left.
            nodes[0].clone().leave().await
        })
    });
}
