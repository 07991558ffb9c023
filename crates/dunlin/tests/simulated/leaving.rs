//! Nodes that forward ends and leave at once: those ends work afterwards.

use dunlin::node::NodeError;
use dunlin::prelude::*;
use dunlin::sim::Sim;
use dunlin::{Reply, call};

use crate::support::{along, way};

/// How many seeds each test has.
const SEEDS: u64 = 30;

/// Three nodes, in many simulations.
fn run(test: impl AsyncFn(&Sim, Node, Node, Node) -> Result) {
    for seed in 0..SEEDS {
        let sim = Sim::new(seed);
        let result = sim.run(async {
            // It serves the names, so it stays.
            let a = Node::join("leaving").await?;
            let b = Node::join("leaving").await?;
            let c = Node::join("leaving").await?;
            test(&sim, a, b, c).await
        });
        result.unwrap_or_else(|error| panic!("with seed {seed}: {error}"));
    }
}

async fn exchange(tx: &mut Sender<u32>, rx: &mut Receiver<u32>, numbers: std::ops::Range<u32>) -> Result {
    for n in numbers {
        let (sent, received) = par!(tx.send(n), rx.recv());
        sent?;
        assert_eq!(received?, n);
    }
    Ok(())
}

/// The broker makes a channel, and keeps nothing of it.
#[test]
fn broker_sends_both_ends_away_and_leaves() {
    run(async |sim, a, broker, c| {
        let mut to_a = way::<Sender<u32>>(&broker, &a, "to a").await?;
        let mut to_c = way::<Receiver<u32>>(&broker, &c, "to c").await?;
        let (tx, rx) = channel::<u32>();
        let (mut tx, mut rx) = if sim.below(2) == 0 {
            let tx = along(tx, &mut to_a).await?;
            (tx, along(rx, &mut to_c).await?)
        } else {
            let rx = along(rx, &mut to_c).await?;
            (along(tx, &mut to_a).await?, rx)
        };
        let (left, used) = par!(broker.leave(), exchange(&mut tx, &mut rx, 0..5));
        left?;
        used?;
        exchange(&mut tx, &mut rx, 5..10).await
    });
}

/// The broker forwards a sender that it has not used itself. Its new holder uses it a second later.
#[test]
fn broker_forwards_a_sender_and_leaves() {
    run(async |sim, a, broker, c| {
        let mut ab = way::<Sender<u32>>(&a, &broker, "ab").await?;
        let mut bc = way::<Sender<u32>>(&broker, &c, "bc").await?;
        let (tx, mut rx) = channel::<u32>();
        let mut tx = along(tx, &mut ab).await?;
        if sim.below(2) == 0 {
            exchange(&mut tx, &mut rx, 0..1).await?;
        }
        let mut tx = along(tx, &mut bc).await?;
        let before = sim.elapsed();
        let (left, used) = par!(broker.leave(), async {
            sleep(Duration::from_secs(1)).await;
            exchange(&mut tx, &mut rx, 1..5).await
        });
        left?;
        used?;
        assert!((1000..2000).contains(&(sim.elapsed() - before).as_millis()));
        exchange(&mut tx, &mut rx, 5..10).await
    });
}

/// An unused sender, at a node that the broker can no longer reach, delays it for a limited time.
#[test]
fn unreachable_sender_delays_the_broker_for_a_limited_time() {
    run(async |sim, a, broker, c| {
        let mut ab = way::<Sender<u32>>(&a, &broker, "ab").await?;
        let mut bc = way::<Sender<u32>>(&broker, &c, "bc").await?;
        let (tx, mut rx) = channel::<u32>();
        let mut tx = along(tx, &mut ab).await?;
        exchange(&mut tx, &mut rx, 0..1).await?;
        let tx = along(tx, &mut bc).await?;
        sim.part(&broker, &c);
        // This node would relay.
        sim.part(&a, &c);
        let before = sim.elapsed();
        let left = broker.leave().await;
        let Err(Error::Node(NodeError::Unsettled { ends })) = left else {
            panic!("no node can have used the sender: {left:?}")
        };
        assert_eq!(ends.len(), 1);
        assert_eq!(ends[0].what, "sender");
        assert_eq!(ends[0].holder, Some(c.me()));
        let took = (sim.elapsed() - before).as_millis();
        assert!((4000..5100).contains(&took), "it took {took} ms");
        assert!(rx.recv().await.is_err());
        drop(tx);
        Ok(())
    });
}

/// A holder of unused ends adopts them as if they were used, and no longer needs the broker.
#[test]
fn unused_ends_do_not_delay_the_broker() {
    run(async |sim, a, broker, c| {
        let mut ab = way::<(Sender<u32>, Receiver<u32>)>(&a, &broker, "ab").await?;
        let mut bc = way::<(Sender<u32>, Receiver<u32>)>(&broker, &c, "bc").await?;
        let (tx, mut rx_here) = channel::<u32>();
        let (mut tx_here, rx) = channel::<u32>();
        let ends = along((tx, rx), &mut ab).await?;
        let (mut tx, mut rx) = along(ends, &mut bc).await?;
        let before = sim.elapsed();
        broker.leave().await?;
        assert!((sim.elapsed() - before).as_millis() < 1000);
        exchange(&mut tx, &mut rx_here, 0..3).await?;
        exchange(&mut tx_here, &mut rx, 0..3).await?;
        Ok(())
    });
}

/// The same if they have travelled on from there, or are about to.
#[test]
fn unused_ends_forwarded_again_do_not_delay_the_broker() {
    run(async |sim, a, broker, c| {
        let d = Node::join("leaving").await?;
        let mut ab = way::<(Sender<u32>, Receiver<u32>)>(&a, &broker, "ab").await?;
        let mut bc = way::<(Sender<u32>, Receiver<u32>)>(&broker, &c, "bc").await?;
        let mut cd = way::<(Sender<u32>, Receiver<u32>)>(&c, &d, "cd").await?;
        let (tx, mut rx_here) = channel::<u32>();
        let (mut tx_here, rx) = channel::<u32>();
        let ends = along((tx, rx), &mut ab).await?;
        let ends = along(ends, &mut bc).await?;
        let (mut tx, mut rx) = if sim.below(2) == 0 {
            let (ends, left) = par!(along(ends, &mut cd), broker.leave());
            left?;
            ends?
        } else {
            let ends = along(ends, &mut cd).await?;
            broker.leave().await?;
            ends
        };
        exchange(&mut tx, &mut rx_here, 0..3).await?;
        exchange(&mut tx_here, &mut rx, 0..3).await?;
        Ok(())
    });
}

/// A sender that is dropped unused no longer needs the broker either.
#[test]
fn dropped_sender_does_not_delay_the_broker() {
    run(async |sim, a, broker, c| {
        let mut ab = way::<Sender<u32>>(&a, &broker, "ab").await?;
        let mut bc = way::<Sender<u32>>(&broker, &c, "bc").await?;
        let (tx, mut rx) = channel::<u32>();
        let tx = along(tx, &mut ab).await?;
        let tx = along(tx, &mut bc).await?;
        let before = sim.elapsed();
        let (left, ()) = par!(broker.leave(), async { drop(tx) });
        left?;
        assert!((sim.elapsed() - before).as_millis() < 1000);
        assert_eq!(rx.recv().await, Err(RecvError::Closed));
        Ok(())
    });
}

/// The buffered values of a forwarded receiver travel with it.
#[test]
fn broker_forwards_a_receiver_with_its_buffer() {
    run(async |sim, a, broker, c| {
        let mut to_c = way::<Receiver<u32>>(&broker, &c, "to c").await?;
        let mut ab = way::<Receiver<u32>>(&a, &broker, "ab").await?;
        // For a sender elsewhere, the one policy promises places, and the other takes offers.
        let policy = if sim.below(2) == 0 { fifo(64) } else { dunlin::overwrite_oldest(64) };
        let (mut tx, mut rx) = channel_with::<u32>(policy);
        for n in 0..50 {
            tx.send(n).await?;
        }
        let is_the_brokers = sim.below(3) > 0;
        if !is_the_brokers {
            rx = along(rx, &mut ab).await?;
        }
        let mut rx = along(rx, &mut to_c).await?;
        // The sender may still be held where it is.
        let _tx = (sim.below(2) == 0).then_some(tx);
        broker.leave().await?;
        for n in 0..50 {
            assert_eq!(rx.recv().await?, n);
        }
        Ok(())
    });
}

/// A send into a promised place is complete at once; but the sender in it is not at rest, and the message
/// waits for that.
#[test]
fn waiting_message_is_sent_before_its_node_leaves() {
    run(async |_, a, broker, c| {
        let mut ab = way::<Sender<u32>>(&a, &broker, "ab").await?;
        let (to_c, at_c) = par!(async { broker.sender::<Sender<u32>>("bc").await }, async {
            c.receiver::<Sender<u32>>("bc").policy(fifo(4)).await
        });
        let (mut to_c, mut at_c) = (to_c?, at_c?);
        // This makes the home promise the places.
        to_c.send(channel().0).await?;
        at_c.recv().await?;
        let (tx, mut rx) = channel_with::<u32>(fifo(4));
        let mut tx = along(tx, &mut ab).await?;
        tx.send(0).await?;
        tx.send(1).await?;
        to_c.send(tx).await?;
        let (left, used) = par!(broker.leave(), async {
            let mut tx = at_c.recv().await?;
            tx.send(2).await?;
            Ok::<_, Error>(tx)
        });
        left?;
        let _tx = used?;
        for n in 0..3 {
            assert_eq!(rx.recv().await?, n);
        }
        Ok(())
    });
}

/// A reply does not wait for its arrival.
#[test]
fn a_broker_replies_with_an_end() {
    run(async |_, a, broker, c| {
        let mut ab = way::<Sender<u32>>(&a, &broker, "ab").await?;
        let mut callers = way::<Caller<u32, Sender<u32>>>(&broker, &c, "callers").await?;
        let (caller, mut callee) = call::<u32, Sender<u32>>();
        let mut caller = along(caller, &mut callers).await?;
        let (tx, mut rx) = channel::<u32>();
        let tx = along(tx, &mut ab).await?;
        let (asked, left) = par!(
            async {
                let mut tx = caller.call(1).await?;
                exchange(&mut tx, &mut rx, 0..5).await?;
                Ok::<_, Error>(tx)
            },
            async {
                let (_, reply): (_, Reply<Sender<u32>>) = callee.accept().await?.split();
                reply.send(tx).map_err(|_| Error::other("the caller has left"))?;
                broker.leave().await
            }
        );
        left?;
        let mut tx = asked?;
        exchange(&mut tx, &mut rx, 5..10).await
    });
}

/// A buffer's receiver travels to a node that the sender's node cannot reach, and that is lost: values of
/// sends that returned `Ok` can never reach it.
#[test]
fn flush_names_the_lost_node_of_a_forwarded_receiver() {
    let mut waited = 0;
    for seed in 0..SEEDS {
        let sim = Sim::new(seed);
        let result: Result<usize> = sim.run(async {
            let join = || Node::builder().app("leaving").relay(false).join();
            let (a, b, c) = (join().await?, join().await?, join().await?);
            let mut rx = b.receiver::<u32>("values").policy(fifo(8)).await?;
            let mut tx = a.sender::<u32>("values").await?;
            tx.send(0).await?;
            assert_eq!(rx.recv().await?, 0);
            let mut to_c = way::<Receiver<u32>>(&b, &c, "to c").await?;
            sim.part(&a, &c);
            let rx = along(rx, &mut to_c).await?;
            spawn(async move { { rx }.recv().await });
            sleep(Duration::from_millis(sim.below(60))).await;
            let mut sent = 0;
            while tx.send(1).within(Duration::from_secs(1)).await.is_ok() {
                sent += 1;
            }
            if let Err(error) = a.flush().await {
                let text = error.to_string();
                let Error::Node(NodeError::NotFlushed { peers }) = error else { panic!("{text}") };
                assert_eq!(peers[0].peer.to_string(), c.me().to_string());
                assert_eq!(peers.len(), 1);
            } else {
                assert_eq!(sent, 0, "{sent} values are lost, and flush returns Ok");
            }
            Ok(sent)
        });
        waited += result.unwrap_or_else(|error| panic!("with seed {seed}: {error}"));
    }
    assert!(waited > 0, "nothing is shown");
}
