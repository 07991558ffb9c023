//! Where only the way takes time, and the time is virtual.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use dunlin::prelude::*;
use dunlin::rendezvous;
use dunlin::sim::Sim;

use super::{BOUND, FIFO, MULTIPLEXED, simulated, way};

/// Of the window: as from Copenhagen to Boston and half back.
const FAR: Duration = Duration::from_millis(45);
/// Of the farm.
const NEAR: Duration = Duration::from_millis(1);
/// So many workers has the farm.
const WORKERS: u64 = 25;

fn simulation(round_trip: Duration) -> Sim {
    let sim = Sim::new(1);
    sim.delay(round_trip / 2, round_trip / 2);
    sim
}

/// Messages per second of a channel with so many places; without any it is a rendezvous. Its receiver receives all the time.
pub(super) fn window(who: &str, places: u64) -> Result<f64> {
    // A sender that waits for nothing but places: so many for each round trip. One message is under way in a rendezvous.
    let bound = places.max(1) as f64 / FAR.as_secs_f64();
    match who {
        BOUND => return Ok(bound),
        FIFO => {}
        _ => bail!("there is no window of {who:?}"),
    }
    let sim = simulation(FAR);
    sim.run(async {
        let nodes = simulated(2).await?;
        let policy = if places == 0 { rendezvous() } else { fifo(places as usize) };
        let (tx, rx) = par!(async { nodes[0].sender::<u64>("numbers").await }, async {
            nodes[1].receiver::<u64>("numbers").policy(policy).await
        });
        let (mut tx, mut rx) = (tx?, rx?);
        let receives = spawn(async move {
            while rx.next().await?.is_some() {}
            Result::<()>::Ok(())
        });
        // Until the window is full, and then some round trips.
        let (before, count) = (10 * places.max(1), 40 * places.max(1));
        let mut began = Duration::ZERO;
        for n in 0..before + count {
            if n == before {
                began = sim.elapsed();
            }
            tx.send(n).await?;
        }
        let time = sim.elapsed() - began;
        drop(tx);
        receives.await??;
        Ok(count as f64 / time.as_secs_f64())
    })
}

/// Tasks per second of a farm whose workers do nothing with them.
pub(super) fn farm(who: &str, tasks: u64) -> Result<f64> {
    let sim = simulation(NEAR);
    match who {
        // A worker says what came of a task, and hears that this was received; the next task has come meanwhile.
        BOUND => Ok(WORKERS as f64 / NEAR.as_secs_f64()),
        MULTIPLEXED => sim.run(multiplexed(&sim, tasks)),
        _ => bail!("there is no farm of {who:?}"),
    }
}

/// At the farmer's node a process for each worker takes tasks from a channel that they share, and hands them on; the farmer receives from all workers.
async fn multiplexed(sim: &Sim, tasks: u64) -> Result<f64> {
    let nodes = simulated(1 + WORKERS as usize).await?;
    let (mut to_feeders, feed) = channel::<u64>();
    let feed = feed.share();
    let mut results = Vec::new();
    for (number, node) in nodes.iter().enumerate().skip(1) {
        let (mut to_worker, mut work) = way::<u64>(&nodes[0], node, &format!("tasks {number}")).await?;
        let (mut done, result) = way::<u64>(node, &nodes[0], &format!("results {number}")).await?;
        results.push(result);
        let mut feed = feed.clone();
        drop(spawn(async move {
            while let Ok(task) = feed.recv().await
                && to_worker.send(task).await.is_ok()
            {}
        }));
        drop(spawn(async move {
            while let Ok(task) = work.recv().await
                && done.send(task).await.is_ok()
            {}
        }));
    }
    drop(feed);
    drop(spawn(async move {
        for task in 0.. {
            if to_feeders.send(task).await.is_err() {
                return;
            }
        }
    }));
    collect(sim, tasks, async || {
        let (_, result) = Choice::fair().all(results.iter_mut().map(|result| result.recv())).await;
        Ok(result?)
    })
    .await
}

/// Tasks per second, once all workers have done some.
async fn collect(sim: &Sim, tasks: u64, mut result: impl AsyncFnMut() -> Result<u64>) -> Result<f64> {
    let before = 4 * WORKERS;
    let mut began = Duration::ZERO;
    for n in 0..before + tasks {
        if n == before {
            began = sim.elapsed();
        }
        result().await.context("a worker has ended")?;
    }
    Ok(tasks as f64 / (sim.elapsed() - began).as_secs_f64())
}
