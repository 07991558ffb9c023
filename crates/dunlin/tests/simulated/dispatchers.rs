//! Functions that dispatchers start at the less loaded of several nodes.

use std::collections::BTreeMap;

use dunlin::node::{ConnectionState, Down, NameError};
use dunlin::prelude::*;
use dunlin::sim::Sim;
use dunlin::{Dispatcher, RemoteProcess, StartFailure};

/// How many seeds each test has.
const SEEDS: u64 = 5;

/// Runs for so many milliseconds.
#[dunlin::remote]
async fn work(milliseconds: u64) {
    sleep(Duration::from_millis(milliseconds)).await;
}

/// Starts it, and returns where.
async fn start(dispatcher: &Dispatcher, milliseconds: u64) -> Result<(String, RemoteProcess<()>)> {
    let start = dispatcher.spawn(work(milliseconds));
    let offer = start.offer().to_owned();
    Ok((offer, start.await?))
}

/// Four dispatchers start 1,000 processes of equal work a second: in no second does one of four nodes get
/// more than 1.5 times the mean, nor does it ever run more.
#[test]
fn no_node_gets_more_than_half_as_much_again_as_the_mean() {
    const NODES: usize = 4;
    const SECONDS: u32 = 2;
    let sim = Sim::new(1);
    let result = sim.run(async {
        let (mut workers, mut offers) = (Vec::new(), Vec::new());
        let names: Vec<_> = (0..NODES).map(|n| format!("worker-{n}")).collect();
        for name in &names {
            let worker = Node::join("dispatchers").await?;
            offers.push(worker.offer(name).function::<work>().await?);
            workers.push(worker);
        }
        let (log, mut placed) = mailbox::<(u32, String, bool)>();
        let mut dispatching = Vec::new();
        for _ in 0..NODES {
            let (here, names, log) = (Node::join("dispatchers").await?, names.clone(), log.clone());
            dispatching.push(spawn(async move {
                let dispatcher = std::sync::Arc::new(here.dispatcher(names));
                // The loads are read.
                sleep(Duration::from_secs(2)).await;
                let mut processes = Vec::new();
                for n in 0..250 * SECONDS {
                    sleep(Duration::from_millis(4)).await;
                    let (dispatcher, log) = (dispatcher.clone(), log.clone());
                    processes.push(spawn(async move {
                        let (offer, process) = start(&dispatcher, 600).await?;
                        let _ = log.send((n / 250, offer.clone(), true));
                        process.await.map_err(|exit| Error::other(exit.to_string()))?;
                        let _ = log.send((n / 250, offer, false));
                        Ok::<_, Error>(())
                    }));
                }
                for process in processes {
                    process.await??;
                }
                Ok::<_, Error>(())
            }));
        }
        for dispatcher in dispatching {
            dispatcher.await??;
        }
        let (mut in_second, mut running) = (BTreeMap::<_, u32>::new(), BTreeMap::<_, u32>::new());
        let mut highest = 0;
        while !placed.is_empty() {
            let (second, offer, is_start) = placed.recv().await?;
            let runs = running.entry(offer.clone()).or_default();
            if is_start {
                *in_second.entry((second, offer)).or_default() += 1;
                *runs += 1;
                highest = highest.max(*runs);
            } else {
                *runs -= 1;
            }
        }
        Ok::<_, Error>((in_second, highest))
    });
    let (in_second, highest) = result.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(in_second.values().sum::<u32>(), 1000 * SECONDS);
    assert_eq!(in_second.len(), SECONDS as usize * NODES, "{in_second:?}");
    // The means are 250 a second, and 150 that run and are started or told at the same time.
    assert!(in_second.values().all(|placed| *placed <= 375), "{in_second:?}");
    assert!(highest <= 225, "{highest} ran at one node");
}

/// The load counts what others have started; what the dispatcher has started counts at once.
#[test]
fn busy_node_gets_nothing_until_the_others_are_as_busy() {
    for seed in 0..SEEDS {
        let sim = Sim::new(seed);
        let result = sim.run(async {
            let (here, busy, idle) = (Node::join("busy").await?, Node::join("busy").await?, Node::join("busy").await?);
            let _offers = (busy.offer("busy").function::<work>().await?, idle.offer("idle").function::<work>().await?);
            let mut running = Vec::new();
            for _ in 0..30 {
                running.push(idle.spawn_on("busy", work(60_000)).await?);
            }
            let dispatcher = here.dispatcher(["busy", "idle", "busy"]);
            sleep(Duration::from_secs(2)).await;
            let mut offers = Vec::new();
            let mut starts = Vec::new();
            // In one moment.
            for _ in 0..40 {
                let start = dispatcher.spawn(work(60_000));
                offers.push(start.offer().to_owned());
                starts.push(start);
            }
            for start in starts {
                running.push(start.await?);
            }
            // Then the loads are read again: 35 at each.
            sleep(Duration::from_secs(2)).await;
            assert_eq!(format!("{dispatcher:?}").matches("running: Some(35), placed: 0").count(), 2, "{dispatcher:?}");
            Ok::<_, Error>(offers)
        });
        let offers = result.unwrap_or_else(|error| panic!("with seed {seed}: {error}"));
        assert!(offers[..30].iter().all(|offer| offer == "idle"), "with seed {seed}: {offers:?}");
        assert_eq!(offers.iter().filter(|offer| *offer == "busy").count(), 5, "with seed {seed}: {offers:?}");
    }
}

/// A node that is parted, full, or refuses gets no start as long as there is another. It gets some again.
#[test]
fn node_that_cannot_be_used_is_passed_over() {
    for seed in 0..SEEDS {
        let sim = Sim::new(seed);
        let result = sim.run(async {
            let join = || Node::join("passed-over");
            let (here, one, other, refuses) = (join().await?, join().await?, join().await?, join().await?);
            let me = here.me();
            let full = one.offer("full").function::<work>().processes_max(0).await?;
            let away = one.offer("away").function::<work>().await?;
            let _offer = other.offer("there").function::<work>().await?;
            let _refuses = refuses.offer("refuses").function::<work>().allow(move |peer| peer != me).await?;
            let dispatcher = here.dispatcher(["away", "full", "refuses", "nobody", "there"]);
            sleep(Duration::from_secs(2)).await;
            let mut used = BTreeMap::<String, u32>::new();
            for _ in 0..20 {
                *used.entry(start(&dispatcher, 1).await?.0).or_default() += 1;
            }
            assert!(used.len() == 2 && used["away"] > 5 && used["there"] > 5, "{used:?}");
            // Parted from all, so that no node relays, and for less than the grace period, so that only the
            // silence tells.
            let others = [&here, &other, &refuses];
            others.iter().for_each(|node| sim.part(node, &one));
            sleep(Duration::from_secs(5)).await;
            for _ in 0..20 {
                assert_eq!(start(&dispatcher, 1).await?.0, "there", "with seed {seed}: {dispatcher:?}");
            }
            others.iter().for_each(|node| sim.heal(node, &one));
            sleep(Duration::from_secs(10)).await;
            let mut used = BTreeMap::<String, u32>::new();
            for _ in 0..20 {
                *used.entry(start(&dispatcher, 1).await?.0).or_default() += 1;
            }
            assert!(used.len() == 2 && used["away"] > 5, "{used:?}");
            drop((full, away));
            one.leave().await?;
            sleep(Duration::from_secs(2)).await;
            for _ in 0..20 {
                assert_eq!(start(&dispatcher, 1).await?.0, "there", "with seed {seed}: {dispatcher:?}");
            }
            Ok::<_, Error>(())
        });
        result.unwrap_or_else(|error| panic!("with seed {seed}: {error}"));
    }
}

#[test]
fn dispatcher_without_a_usable_offer_fails_or_waits() {
    let sim = Sim::new(1);
    let result = sim.run(async {
        let (here, there) = (Node::join("unusable").await?, Node::join("unusable").await?);
        let none = here.dispatcher(Vec::<String>::new());
        let error = none.spawn(work(7)).await.unwrap_err();
        assert!(matches!(error.why(), Some(StartFailure::Name(NameError::BadName(_)))), "{error}");
        assert_eq!(error.into_call().unwrap().into_arguments(), (7,));
        let dispatcher = here.dispatcher(["later"]);
        let error = dispatcher.spawn(work(7)).within(Duration::from_secs(2)).await.unwrap_err();
        assert!(error.into_call().is_some());
        let waits = spawn(async move { start(&dispatcher, 7).await });
        sleep(Duration::from_secs(2)).await;
        assert!(!waits.is_finished());
        let _offer = there.offer("later").function::<work>().await?;
        let (_, process) = waits.await??;
        process.await.map_err(|exit| Error::other(exit.to_string()))?;
        // Once the offer and the dispatchers are gone.
        drop((_offer, none));
        crate::support::nothing_is_left(&[here]).await
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}

/// A dispatcher, and what reads loads for it, are handles of its node only until it is dropped.
#[test]
fn node_leaves_by_itself_once_its_dispatcher_is_dropped() {
    let sim = Sim::new(1);
    let result = sim.run(async {
        let (here, there) = (Node::join("dropped").await?, Node::join("dropped").await?);
        let (_offer, me) = (there.offer("offer").function::<work>().await?, here.me());
        let mut connections = there.connections();
        let dispatcher = here.dispatcher(["offer", "nobody"]);
        drop(here);
        // The load is read.
        sleep(Duration::from_secs(2)).await;
        start(&dispatcher, 1).await?.1.await.map_err(|exit| Error::other(exit.to_string()))?;
        drop(dispatcher);
        loop {
            let (peer, state) = connections.recv().within(Duration::from_secs(60)).await?;
            if peer == me && state == ConnectionState::Down(Down::Left) {
                return Ok::<_, Error>(());
            }
        }
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}
