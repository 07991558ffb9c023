//! Nodes that cannot dial each other: their introducer asks for a dial-back, or relays.

use std::io;

use dunlin::net::{BoxFuture, Listener, Memory, Network, Socket};
use dunlin::node::{ConnectionState, Down, NoRelay, Peer, Route};
use dunlin::prelude::*;
use dunlin::sim::Sim;

use crate::support::way;

const SEEDS: u64 = 20;

/// D, H and I, which serves the names.
async fn nodes(relay: bool) -> Result<[Node; 3]> {
    let i = Node::builder().app("relays").relay(relay).join().await?;
    let _ = i.sender::<u32>("somebody serves the names").await?;
    let [d, h] = [Node::join("relays").await?, Node::join("relays").await?];
    Ok([d, h, i])
}

fn apart(sim: &Sim, one: &Node, other: &Node) {
    sim.block(one, other);
    sim.block(other, one);
}

/// H has a channel, whose sender travels to D by way of I.
async fn introduced([d, h, i]: &[Node; 3]) -> Result<(Sender<u32>, Receiver<u32>)> {
    let (mut to_i, mut at_i) = way::<Sender<u32>>(h, i, "to i").await?;
    let (mut to_d, mut at_d) = way::<Sender<u32>>(i, d, "to d").await?;
    let (tx, rx) = channel();
    let (sent, tx) = par!(to_i.send(tx), at_i.recv());
    sent?;
    let (sent, tx) = par!(to_d.send(tx?), at_d.recv());
    sent?;
    Ok((tx?, rx))
}

fn route(node: &Node, to: &Node) -> Option<Route> {
    node.peers().into_iter().find(|(peer, _)| *peer == to.me()).map(|(_, route)| route)
}

async fn exchange(tx: &mut Sender<u32>, rx: &mut Receiver<u32>, values: std::ops::Range<u32>) -> Result {
    for n in values {
        let (sent, received) = par!(tx.send(n), rx.recv());
        sent?;
        assert_eq!(received?, n);
    }
    Ok(())
}

/// The events of `node` about its connection with `with`.
fn heard(news: &mut Receiver<(Peer, ConnectionState)>, with: &Node) -> Vec<ConnectionState> {
    let all = std::iter::from_fn(|| news.try_recv().ok());
    all.filter(|(peer, _)| *peer == with.me()).map(|(_, state)| state).collect()
}

#[test]
fn a_node_that_cannot_be_dialled_dials_back() {
    for seed in 0..SEEDS {
        let sim = Sim::new(seed);
        sim.run(async {
            let nodes = nodes(true).await?;
            let [d, h, _] = &nodes;
            sim.block(d, h);
            let (mut tx, mut rx) = introduced(&nodes).await?;
            let began = sim.elapsed();
            exchange(&mut tx, &mut rx, 0..50).await?;
            assert!(sim.elapsed() - began < Duration::from_secs(2), "with seed {seed}");
            assert_eq!(route(d, h), Some(Route::Direct));
            assert_eq!(route(h, d), Some(Route::Direct));
            tx.poison("enough");
            let error = rx.recv().await.unwrap_err();
            assert!(error.to_string().contains("enough"), "{error}");
            Result::<()>::Ok(())
        })
        .unwrap();
    }
}

#[test]
fn node_that_cannot_be_dialled_is_relayed() {
    for seed in 0..SEEDS {
        let sim = Sim::new(seed);
        sim.run(async {
            let nodes = nodes(true).await?;
            let [d, h, i] = &nodes;
            apart(&sim, d, h);
            let mut news = d.connections();
            let (mut tx, mut rx) = introduced(&nodes).await?;
            exchange(&mut tx, &mut rx, 0..50).await?;
            for (one, other) in [(d, h), (h, d)] {
                assert_eq!(route(one, other), Some(Route::Relayed(i.me())), "with seed {seed}");
                assert_eq!(route(one, i), Some(Route::Direct));
                assert_eq!(route(one, other).unwrap().to_string(), format!("relayed by {}", i.me()));
            }
            assert_eq!(heard(&mut news, h), [ConnectionState::Up, ConnectionState::Relayed(i.me())]);
            // The relay's sockets are cut, and no process notices.
            for n in 50..90 {
                let cut = sim.below(3);
                let (sent, (received, ())) = par!(tx.send(n), async {
                    par!(rx.recv(), async {
                        sleep(Duration::from_micros(sim.below(5000))).await;
                        match cut {
                            0 => sim.cut(d, i),
                            1 => sim.cut(h, i),
                            _ => {}
                        }
                    })
                });
                sent?;
                assert_eq!(received?, n, "with seed {seed}");
            }
            assert_eq!(heard(&mut news, h), [], "with seed {seed}");
            tx.poison("enough");
            let error = rx.recv().await.unwrap_err();
            assert!(error.to_string().contains("enough"), "{error}");
            Result::<()>::Ok(())
        })
        .unwrap();
    }
}

/// A channel with a name: the name service has introduced the nodes. Buffered values flow as fast as they are
/// received, in order.
#[test]
fn names_are_joined_over_a_relay() {
    for seed in 0..SEEDS {
        let sim = Sim::new(seed);
        sim.run(async {
            let [d, h, i] = nodes(true).await?;
            apart(&sim, &d, &h);
            let mut news = d.connections();
            let mut tx = d.sender::<Vec<u8>>("krill").await?;
            let mut rx = h.receiver::<Vec<u8>>("krill").policy(fifo(8)).await?;
            let sends = spawn(async move {
                for n in 0..60u32 {
                    // Some of them are larger than the bytes that may be on the way.
                    let length = if n % 20 == 7 { 400_000 } else { 100 };
                    tx.send(vec![n as u8; length]).await?;
                }
                Result::<()>::Ok(())
            });
            for n in 0..60u32 {
                let value = rx.recv().await?;
                assert!(value.iter().all(|byte| *byte == n as u8), "with seed {seed}");
            }
            sends.await??;
            assert_eq!(rx.recv().await, Err(RecvError::Closed));
            assert_eq!(route(&d, &h), Some(Route::Relayed(i.me())));
            let once = [ConnectionState::Up, ConnectionState::Relayed(i.me())];
            assert_eq!(heard(&mut news, &h), once, "it has not stood still; with seed {seed}");
            // All messages are received before they leave.
            d.leave().await?;
            h.leave().await?;
            i.leave().await
        })
        .unwrap();
    }
}

#[test]
fn the_loss_of_a_relay_is_reported() {
    for seed in 0..SEEDS {
        let sim = Sim::new(seed);
        sim.run(async {
            let nodes = nodes(true).await?;
            let [d, h, i] = &nodes;
            apart(&sim, d, h);
            let (mut tx, mut rx) = introduced(&nodes).await?;
            exchange(&mut tx, &mut rx, 0..3).await?;
            let mut news = d.connections();
            let began = sim.elapsed();
            sim.part(d, i);
            sim.part(h, i);
            let (sent, received) = par!(tx.send(3), async {
                let error = rx.recv().await.unwrap_err();
                // It has not been received.
                drop(rx);
                error
            });
            assert!(matches!(sent, Err(SendError::NotTaken { .. } | SendError::Unknown { .. })), "{sent:?}");
            assert!(matches!(received, RecvError::NodeLost), "{received:?}");
            let passed = sim.elapsed() - began;
            assert!((15..25).contains(&passed.as_secs()), "{passed:?} with seed {seed}");
            assert_eq!(route(d, h), None);
            let heard = heard(&mut news, h);
            assert!(
                matches!(heard[..], [ConnectionState::Lost, ConnectionState::Down(Down::Unreachable(..))]),
                "{heard:?}"
            );
            Result::<()>::Ok(())
        })
        .unwrap();
    }
}

/// The relay is lost, and another node takes its place.
#[test]
fn a_relay_is_replaced() {
    for seed in 0..SEEDS {
        let sim = Sim::new(seed);
        sim.run(async {
            let nodes = nodes(true).await?;
            let [d, h, i] = &nodes;
            let other = Node::join("relays").await?;
            apart(&sim, d, h);
            let (mut tx, mut rx) = introduced(&nodes).await?;
            for node in [d, h] {
                // They have channels with the other one, too.
                let name = format!("other {}", node.me());
                let (mut tx, mut rx) = way(node, &other, &name).await?;
                exchange(&mut tx, &mut rx, 0..1).await?;
            }
            exchange(&mut tx, &mut rx, 0..3).await?;
            assert_eq!(route(d, h), Some(Route::Relayed(i.me())));
            sim.part(d, i);
            exchange(&mut tx, &mut rx, 3..6).await?;
            assert_eq!(route(d, h), Some(Route::Relayed(other.me())), "with seed {seed}");
            Result::<()>::Ok(())
        })
        .unwrap();
    }
}

#[test]
fn a_node_may_refuse_to_relay() {
    for seed in 0..SEEDS {
        let sim = Sim::new(seed);
        sim.run(async {
            let nodes = nodes(false).await?;
            let [d, h, i] = &nodes;
            apart(&sim, d, h);
            let mut news = d.connections();
            let (mut tx, rx) = introduced(&nodes).await?;
            let error = tx.send(1).await.unwrap_err();
            assert!(matches!(error, SendError::NotTaken { why: Why::NodeLost, .. }), "{error:?}");
            drop(rx);
            let refused = loop {
                if let (peer, ConnectionState::Down(why)) = news.recv().await? {
                    // The nodes have never connected, so the life of the peer is unknown.
                    assert_eq!(peer.to_string(), h.me().to_string());
                    break why;
                }
            };
            assert!(matches!(refused, Down::Unrelayed { why: NoRelay::Unwilling, .. }), "{refused:?}");
            let text = refused.to_string();
            assert!(
                text.ends_with(&format!("node {} cannot relay the connection: relaying is disabled", i.me())),
                "{text}"
            );
            Result::<()>::Ok(())
        })
        .unwrap();
    }
}

/// A memory network, in which addresses that begin with "closed" cannot be dialled.
struct Walled;

impl Network for Walled {
    fn scheme(&self) -> &'static str {
        "walled"
    }

    fn dial<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Socket>>> {
        if address.starts_with("closed") {
            return Box::pin(async { Err(io::ErrorKind::ConnectionRefused.into()) });
        }
        Memory.dial(address)
    }

    fn listen<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Listener>>> {
        Memory.listen(address)
    }
}

/// On real threads: many values, both ways at once, beside those that the two send to the relay itself.
#[test]
fn relay_carries_many_values_on_real_threads() {
    const MANY: u32 = 5000;
    let test = async {
        let node = |name: &'static str| async move {
            let builder = Node::builder().app("walled").network(Walled).names("walled:open i");
            builder.listen(&format!("walled:{name}")).join().await
        };
        let (i, d, h) = (node("open i").await?, node("closed d").await?, node("closed h").await?);
        let mut all = Vec::new();
        for (from, to) in [(&d, &h), (&h, &d), (&d, &h), (&d, &i), (&i, &h)] {
            let (mut tx, mut rx) = way::<Vec<u8>>(from, to, &format!("way {}", all.len())).await?;
            all.push(spawn(async move {
                let sends = async {
                    for n in 0..MANY {
                        // A few are much larger than the bytes that may be on the way.
                        let length = if n % 1000 == 500 { 3_000_000 } else { 20 };
                        tx.send(vec![n as u8; length]).await?;
                    }
                    Result::<()>::Ok(())
                };
                let receives = async {
                    for n in 0..MANY {
                        let value = rx.recv().await?;
                        assert!(value.iter().all(|byte| *byte == n as u8), "{n}");
                    }
                    Result::<()>::Ok(())
                };
                let (sent, received) = par!(sends, receives);
                sent.and(received)
            }));
        }
        for process in all {
            process.await??;
        }
        assert_eq!(route(&d, &h), Some(Route::Relayed(i.me())));
        assert_eq!(route(&d, &i), Some(Route::Direct));
        d.leave().await?;
        h.leave().await?;
        i.leave().await
    };
    let limited = async { tokio::time::timeout(Duration::from_secs(60), test).await.expect("the test hangs") };
    dunlin::block_on(limited).unwrap();
}
