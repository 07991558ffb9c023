//! Simulations: virtual time, one seed, nodes over a network that is cut.
#![cfg(feature = "sim")]

use std::sync::{Arc, Mutex};

use dunlin::node::ConnectionState;
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
fn a_seed_is_a_run() {
    assert_eq!(cut_stream(7), cut_stream(7));
    assert_ne!(cut_stream(7).1, cut_stream(8).1);
}

#[test]
fn who_stays_away_is_down() {
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

#[test]
#[should_panic(expected = "the simulation hangs, at 0ns of virtual time; who waits:\n  ")]
fn a_deadlock_is_told() {
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
