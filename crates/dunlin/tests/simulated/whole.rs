//! Simulations: virtual time, one seed, nodes over a network with cuts.

use std::sync::{Arc, Mutex};

use dunlin::node::{ConnectionState, NameError};
use dunlin::overwrite_oldest;
use dunlin::prelude::*;
use dunlin::sim::Sim;

/// Two nodes, a stream of values, cuts at random moments.
fn cut_stream(seed: u64) -> (Vec<u32>, Duration, u32) {
    let sim = Sim::new(seed);
    let received = Arc::new(Mutex::new(Vec::new()));
    let log = received.clone();
    let mut cuts = 0;
    sim.run(async {
        let a = Node::join("stream").await?;
        let b = Node::join("stream").await?;
        let (mut tx, mut rx) = (a.sender::<u32>("numbers").await?, b.receiver::<u32>("numbers").await?);
        let takes = spawn(async move {
            while let Some(n) = rx.next().await? {
                log.lock().unwrap().push(n);
            }
            Result::<()>::Ok(())
        });
        for n in 0..50 {
            let cut = sim.below(4) == 0;
            let (sent, ()) = par!(tx.send(n), async {
                if cut {
                    sleep(Duration::from_micros(sim.below(5000))).await;
                    sim.cut(&a, &b);
                    cuts += 1;
                }
            });
            sent?;
        }
        drop(tx);
        takes.await??;
        a.leave().await?;
        b.leave().await
    })
    .unwrap();
    let received = received.lock().unwrap().clone();
    (received, sim.elapsed(), cuts)
}

#[test]
fn nothing_is_lost_doubled_or_out_of_order() {
    let mut cuts = 0;
    for seed in 0..20 {
        let (received, _, cut) = cut_stream(seed);
        assert_eq!(received, (0..50).collect::<Vec<_>>(), "with seed {seed}");
        cuts += cut;
    }
    assert!(cuts > 100, "{cuts}");
}

#[test]
fn equal_seeds_make_equal_runs() {
    assert_eq!(cut_stream(7), cut_stream(7));
    assert_ne!(cut_stream(7).1, cut_stream(8).1);
}

#[test]
fn node_out_of_reach_is_down() {
    let sim = Sim::new(1);
    sim.run(async {
        let a = Node::join("parted").await?;
        let b = Node::join("parted").await?;
        let mut news = a.connections();
        let (mut tx, mut rx) = (a.sender::<u32>("numbers").await?, b.receiver::<u32>("numbers").await?);
        let (sent, received) = par!(tx.send(0), rx.recv());
        assert_eq!((sent?, received?), ((), 0));
        let began = sim.elapsed();
        sim.part(&a, &b);
        assert!(tx.send(1).await.is_err());
        let grace = Duration::from_secs(15);
        let passed = sim.elapsed() - began;
        assert!(passed >= grace && passed < grace * 2, "{passed:?}");
        let mut states = Vec::new();
        while let Ok((_, state)) = news.try_recv() {
            states.push(state);
        }
        assert!(
            matches!(states[..], [ConnectionState::Up, ConnectionState::Lost, ConnectionState::Down(_)]),
            "{states:?}"
        );
        sim.heal(&a, &b);
        Result::<()>::Ok(())
    })
    .unwrap();
}

/// Two parts of a network, each with a name service and a pair of one name.
#[test]
fn second_pair_of_a_name_keeps_working_after_a_partition() {
    for seed in 0..20 {
        let sim = Sim::new(seed);
        sim.run(async {
            let a = Node::join("split").await?;
            // This makes it serve the names before the others look for them.
            let _first = a.sender::<u32>("first").await?;
            let (b, c, d) = (Node::join("split").await?, Node::join("split").await?, Node::join("split").await?);
            for (node, n) in [(&b, 2), (&c, 3), (&d, 4)] {
                let _ = node.sender::<u32>(&format!("own {n}")).await?;
            }
            let halves = [(&a, &c), (&a, &d), (&b, &c), (&b, &d)];
            halves.iter().for_each(|(one, other)| sim.part(one, other));

            // Each half has a pair of this name, once the second has noticed that it is alone; and an end of
            // another name.
            let (mut tx, mut rx) = (a.sender::<u32>("tides").await?, b.receiver::<u32>("tides").await?);
            let (sent, received) = par!(tx.send(1), rx.recv());
            assert_eq!((sent?, received?), ((), 1));
            let _lone = a.sender::<u32>("lone").await?;
            sleep(Duration::from_secs(60)).await;
            assert!(a.serves_names() && (c.serves_names() ^ d.serves_names()));
            let (mut other_tx, mut other_rx) = (c.sender::<u32>("tides").await?, d.receiver::<u32>("tides").await?);
            let (sent, received) = par!(other_tx.send(2), other_rx.recv());
            assert_eq!((sent?, received?), ((), 2));
            let mut other_lone = d.sender::<u32>("lone").await?;
            let mut late = c.receiver::<u32>("late").await?;
            let mut called: Vec<Receiver<u32>> = Vec::new();
            for node in [&c, &d] {
                called.push(node.receiver::<u32>(&format!("called at {}", node.me())).await?);
            }
            let (mut of_a, mut of_c, mut of_d) = (a.conflicts(), c.conflicts(), d.conflicts());

            // The halves reconnect: the first service's declarations win, and the second ones are notified.
            halves.iter().for_each(|(one, other)| sim.heal(one, other));
            let (of_c, of_d) = par!(of_c.recv(), of_d.recv());
            let (of_c, of_d) = (of_c?, of_d?);
            assert_eq!((of_c.name.as_str(), of_c.mine.as_str()), ("tides", "an unshared sender (cbor)"));
            assert_eq!((of_c.theirs.as_str(), of_c.holder), ("an unshared sender (cbor)", a.me()));
            assert_eq!((of_d.mine.as_str(), of_d.holder), ("an unshared receiver (cbor)", b.me()));
            assert!(of_a.try_recv().is_err());
            assert!(a.serves_names() && !c.serves_names() && !d.serves_names());
            assert_eq!(c.conflicts().recv().await?, of_c, "a later subscriber gets them as well");
            // Both pairs keep working.
            let (sent, received) = par!(tx.send(3), rx.recv());
            assert_eq!((sent?, received?), ((), 3));
            let (sent, received) = par!(other_tx.send(4), other_rx.recv());
            assert_eq!((sent?, received?), ((), 4));
            // Of the unjoined ends, one fits no other; ends at the first service find the other.
            let error = other_lone.send(5).await.unwrap_err();
            assert!(error.to_string().contains("an unshared sender (cbor) cannot have the same name"), "{error}");
            let mut early = b.sender::<u32>("late").await?;
            let (sent, received) = par!(early.send(6), late.recv());
            assert_eq!((sent?, received?), ((), 6));
            // The node that is dialled at its own address still serves its name.
            for (node, rx) in [&c, &d].into_iter().zip(&mut called) {
                let mut tx = a.sender::<u32>(&format!("{}/called at {}", node.addresses()[0], node.me())).await?;
                let (sent, received) = par!(tx.send(7), rx.recv());
                assert_eq!((sent?, received?), ((), 7));
            }
            // When the first pair is dropped the second has the name.
            drop((tx, rx));
            let error = loop {
                match b.sender::<u32>("tides").await {
                    Err(error) if error.to_string().contains(&c.me().to_string()) => break error,
                    _ => sleep(Duration::from_millis(10)).await,
                }
            };
            assert!(matches!(error, NameError::Refused { .. }));
            drop((other_tx, other_rx));
            Result::<()>::Ok(())
        })
        .unwrap();
    }
}

#[test]
#[should_panic(expected = "the simulation hangs, at 0ns of virtual time; waiting:\n  ")]
fn a_deadlock_is_reported() {
    let (_tx, mut rx) = channel::<u8>();
    let _ = Sim::new(0).run(rx.recv());
}

#[test]
fn a_process_that_panics_has_its_exit() {
    Sim::new(0).run(async {
        let process = spawn(async { assert!(std::env::args().count() == 0, "no fish") });
        let cancelled = spawn(std::future::pending::<()>());
        cancelled.cancel();
        assert_eq!(process.await.unwrap_err().reason, dunlin::ExitReason::Panicked("no fish".into()));
        assert_eq!(cancelled.await.unwrap_err().reason, dunlin::ExitReason::Cancelled);
    });
}

/// The bytes sent into a buffer elsewhere are bounded.
#[test]
fn bytes_in_a_remote_buffer_are_bounded() {
    const BUDGET: usize = 16 << 10;
    for (seed, policy) in [(1, unbounded()), (2, fifo(1000))] {
        let sim = Sim::new(seed);
        sim.run(async {
            let a = Node::join("budget").await?;
            let b = Node::builder().app("budget").buffered_max_bytes(BUDGET as u64).join().await?;
            let mut tx = a.sender::<Vec<u8>>("letters").await?;
            let mut rx = b.receiver::<Vec<u8>>("letters").policy(policy).await?;
            let (mut sent, mut received) = (0u32, 0u32);
            // The values grow, and are small again.
            for size in [300, 3000, 100, 30_000, 300] {
                let before = sent;
                let letter = |n: u32| {
                    let mut letter = vec![0; size];
                    letter[..4].copy_from_slice(&n.to_be_bytes());
                    letter
                };
                // As many as fit without a receive.
                while tx.send(letter(sent)).within(Duration::from_secs(1)).await.is_ok() {
                    sent += 1;
                    assert!(sent - before < 1000, "it is unbounded");
                }
                while !rx.is_empty() {
                    let letter = rx.recv().await?;
                    assert_eq!(letter[..4], received.to_be_bytes());
                    received += 1;
                }
                // Values arrive now as far as there is room for this size.
                for round in 0..40 {
                    while tx.send(letter(sent)).within(Duration::from_secs(1)).await.is_ok() {
                        sent += 1;
                    }
                    let there = rx.len();
                    if round > 0 {
                        assert!(there == 1 || there * size <= BUDGET, "{there} of {size}");
                    }
                    if round > 30 {
                        assert!(there * size >= BUDGET / 2, "only {there} of {size}");
                    }
                    while !rx.is_empty() {
                        assert_eq!(rx.recv().await?[..4], received.to_be_bytes());
                        received += 1;
                    }
                }
            }
            // At one node nothing is encoded.
            let mut tx = b.sender::<Vec<u8>>("home").await?;
            let mut rx = b.receiver::<Vec<u8>>("home").policy(unbounded()).await?;
            for _ in 0..100 {
                tx.send(vec![0; 10_000]).await?;
            }
            assert_eq!(rx.recv().await?.len(), 10_000);
            Result::<()>::Ok(())
        })
        .unwrap();
    }
}

/// Also for a channel of which one end has arrived in a message: from the first value on.
#[test]
fn buffered_bytes_at_a_home_are_bounded_after_an_end_moves() {
    const BUDGET: u64 = 1 << 20;
    Sim::new(1).run(async {
        let a = Node::builder().app("budget").buffered_max_bytes(BUDGET).join().await.unwrap();
        let b = Node::builder().app("budget").buffered_max_bytes(BUDGET).join().await.unwrap();
        let mut senders =
            (a.sender::<Sender<Vec<u8>>>("tx").await.unwrap(), b.receiver::<Sender<Vec<u8>>>("tx").await.unwrap());
        let mut receivers =
            (a.sender::<Receiver<Vec<u8>>>("rx").await.unwrap(), b.receiver::<Receiver<Vec<u8>>>("rx").await.unwrap());
        let (tx, _at_a) = channel_with::<Vec<u8>>(fifo(1000));
        let (sent, tx) = par!(senders.0.send(tx), senders.1.recv());
        assert!(sent.is_ok());
        let (other, rx) = channel_with::<Vec<u8>>(fifo(1000));
        let (sent, _at_b) = par!(receivers.0.send(rx), receivers.1.recv());
        assert!(sent.is_ok());
        for mut tx in [tx.unwrap(), other] {
            let mut bytes = 0;
            while tx.send(vec![0; 60_000]).within(Duration::from_secs(1)).await.is_ok() {
                bytes += 60_000;
                assert!(bytes <= BUDGET, "{bytes} of {BUDGET}");
            }
            assert!(bytes >= BUDGET / 2, "only {bytes} of {BUDGET}");
        }
    });
}

/// The offers of a dropped sender are made again at the receiver's new node, and the sender is dropped behind
/// them.
#[test]
fn sender_closes_after_its_offered_values_when_receiver_moves() {
    for seed in 0..200 {
        let sim = Sim::new(seed);
        let received = sim.run(async {
            let a = Node::join("gone").await?;
            let b = Node::join("gone").await?;
            let c = Node::join("gone").await?;
            let mut ab = (a.sender::<Receiver<u32>>("ab").await?, b.receiver::<Receiver<u32>>("ab").await?);
            let mut bc = (b.sender::<Receiver<u32>>("bc").await?, c.receiver::<Receiver<u32>>("bc").await?);
            // No places are promised: the buffered values are offers.
            let (mut tx, rx) = channel_with::<u32>(overwrite_oldest(4));
            for n in 0..3 {
                tx.send(n).await?;
            }
            let (sent, rx) = par!(ab.0.send(rx), ab.1.recv());
            sent?;
            let (sent, rx) = par!(bc.0.send(rx?), bc.1.recv());
            sent?;
            drop(tx);
            let mut received = Vec::new();
            let mut rx = rx?;
            while let Some(n) = rx.next().await? {
                received.push(n);
            }
            Result::<_>::Ok(received)
        });
        assert_eq!(received.unwrap(), [0, 1, 2], "with seed {seed}");
    }
}

/// The same for a retired channel: the values sent before are received.
#[test]
fn values_sent_before_retire_are_received_after_receiver_moves() {
    for (seed, moves) in (0..150).flat_map(|seed| [(seed, 1), (seed, 2)]) {
        for policy in [fifo(4), unbounded(), overwrite_oldest(4)] {
            let name = format!("{policy:?}, {moves} moves, seed {seed}");
            let sim = Sim::new(seed);
            let received = sim.run(async move {
                let a = Node::join("retired").await?;
                let b = Node::join("retired").await?;
                let c = Node::join("retired").await?;
                let mut ab = (a.sender::<Receiver<u32>>("ab").await?, b.receiver::<Receiver<u32>>("ab").await?);
                let mut bc = (b.sender::<Receiver<u32>>("bc").await?, c.receiver::<Receiver<u32>>("bc").await?);
                let (mut tx, rx) = channel_with::<u32>(policy);
                for n in 0..3 {
                    tx.send(n).await?;
                }
                let goes = async {
                    let (sent, rx) = par!(ab.0.send(rx), ab.1.recv());
                    sent?;
                    if moves == 1 {
                        return Result::<_>::Ok(rx?);
                    }
                    let (sent, rx) = par!(bc.0.send(rx?), bc.1.recv());
                    sent?;
                    Ok(rx?)
                };
                let mut rx = goes.await?;
                tx.retire();
                let mut received = Vec::new();
                while let Some(n) = rx.next().await? {
                    received.push(n);
                }
                Result::<_>::Ok(received)
            });
            assert_eq!(received.unwrap(), [0, 1, 2], "{name}");
        }
    }
}

/// When the message with it has been taken, its sender may declare the name anew, though the channel stays in
/// use elsewhere.
#[test]
fn name_of_a_forwarded_end_can_be_declared_again() {
    for seed in 0..100 {
        let sim = Sim::new(seed);
        let declared = sim.run(async {
            let a = Node::join("names").await?;
            let b = Node::join("names").await?;
            let c = Node::join("names").await?;
            let mut ac = (a.sender::<Sender<u32>>("ac").await?, c.receiver::<Sender<u32>>("ac").await?);
            let mut bc = (b.sender::<Receiver<u32>>("bc").await?, c.receiver::<Receiver<u32>>("bc").await?);
            let (mut tx, mut rx) = (a.sender::<u32>("numbers").await?, b.receiver::<u32>("numbers").await?);
            let (sent, received) = par!(tx.send(0), rx.recv());
            assert_eq!((sent?, received?), ((), 0));
            let sender = async {
                ac.0.send(tx).await?;
                Result::<_>::Ok(a.sender::<u32>("numbers").await?)
            };
            let receiver = async {
                bc.0.send(rx).await?;
                Result::<_>::Ok(b.receiver::<u32>("numbers").await?)
            };
            let (new_tx, new_rx, tx, rx) = par!(sender, receiver, ac.1.recv(), bc.1.recv());
            for (mut tx, mut rx) in [(tx?, rx?), (new_tx?, new_rx?)] {
                let (sent, received) = par!(tx.send(1), rx.recv());
                assert_eq!((sent?, received?), ((), 1));
            }
            Result::<_>::Ok(())
        });
        declared.unwrap_or_else(|error| panic!("with seed {seed}: {error}"));
    }
}
