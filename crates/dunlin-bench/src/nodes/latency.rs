//! Programs in virtual time, where only the messages between nodes take time.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use dunlin::prelude::*;
use dunlin::rendezvous;
use dunlin::sim::Sim;

use crate::remote::programs::{Rx, Tx};

use super::{AHEAD, BOUND, FIFO, MULTIPLEXED, SHARED, SHARED_TASKS, simulated, way};

/// The round trip of the window, as between two ends of a continent.
const FAR: Duration = Duration::from_millis(45);
/// The round trip of the farm.
const NEAR: Duration = Duration::from_millis(1);
/// The number of workers of the farm.
const WORKERS: u64 = 25;

fn simulation(round_trip: Duration) -> Sim {
    let sim = Sim::new(1);
    sim.delay(round_trip / 2, round_trip / 2);
    sim
}

/// Messages per second of a channel with this many places; without any it is a rendezvous. Its receiver
/// receives all the time.
pub(super) fn window(who: &str, places: u64) -> Result<f64> {
    // The bound is a sender that waits only for places: it sends this many messages for each round trip. A
    // rendezvous has one message in flight.
    let bound = places.max(1) as f64 / FAR.as_secs_f64();
    match who {
        BOUND => return Ok(bound),
        FIFO => {}
        _ => bail!("there is no window of {who:?}"),
    }
    let sim = simulation(FAR);
    sim.run(async {
        let nodes = simulated(2, None).await?;
        let policy = if places == 0 { rendezvous() } else { fifo(places as usize) };
        let (tx, rx) = par!(async { nodes[0].sender::<u64>("numbers").await }, async {
            nodes[1].receiver::<u64>("numbers").policy(policy).await
        });
        let (mut tx, mut rx) = (tx?, rx?);
        let receives = spawn(async move {
            while rx.next().await?.is_some() {}
            Result::<()>::Ok(())
        });
        // First until the window is full, and then some round trips.
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

/// Tasks per second of a farm whose workers only return the tasks.
pub(super) fn farm(who: &str, tasks: u64) -> Result<f64> {
    let sim = simulation(NEAR);
    let (who, worker) = match who.strip_suffix(AHEAD) {
        Some(who) => (who, Worker::AsksAhead),
        None => (who, Worker::AsksLast),
    };
    match who {
        // A worker sends the result of a task, and its send returns when the result was received; the next
        // task has arrived meanwhile.
        BOUND => Ok(WORKERS as f64 / NEAR.as_secs_f64()),
        MULTIPLEXED => sim.run(multiplexed(&sim, tasks, worker)),
        SHARED_TASKS => sim.run(shared(&sim, tasks, worker, false)),
        SHARED => sim.run(shared(&sim, tasks, worker, true)),
        _ => bail!("there is no farm of {who:?}"),
    }
}

/// A worker that returns its tasks. It works the same with shared and unshared ends.
#[derive(Clone, Copy)]
enum Worker {
    /// Requests the next task when its result has been received.
    AsksLast,
    /// Requests the next task while its result is in flight, so it holds one task besides the current one.
    AsksAhead,
}

impl Worker {
    /// Works until there are no more tasks; the farmer has then received the last result.
    async fn works(self, mut tasks: impl Rx<u64>, mut results: impl Tx<u64>) {
        let mut task = tasks.recv().await;
        while let Ok(done) = task {
            let (sent, next) = match self {
                Self::AsksLast => (results.send(done).await, tasks.recv().await),
                Self::AsksAhead => par!(results.send(done), tasks.recv()),
            };
            if sent.is_err() {
                return;
            }
            task = next;
        }
    }
}

/// Sends tasks while a worker receives them.
async fn feed(mut tasks: Sender<u64>) {
    for task in 0.. {
        if tasks.send(task).await.is_err() {
            return;
        }
    }
}

/// At the farmer's node, one process for each worker takes tasks from a channel that these processes share,
/// and forwards them; the farmer receives from all workers.
async fn multiplexed(sim: &Sim, tasks: u64, worker: Worker) -> Result<f64> {
    let nodes = simulated(1 + WORKERS as usize, None).await?;
    let (to_feeders, feeders) = channel::<u64>();
    let feeders = feeders.share();
    let mut results = Vec::new();
    for (number, node) in nodes.iter().enumerate().skip(1) {
        let (to_worker, given) = way::<u64>(&nodes[0], node, &format!("tasks {number}")).await?;
        let (done, result) = way::<u64>(node, &nodes[0], &format!("results {number}")).await?;
        results.push(result);
        // The process holds a task only for its worker, which takes it at once.
        drop(spawn(Worker::AsksLast.works(feeders.clone(), to_worker)));
        drop(spawn(worker.works(given, done)));
    }
    drop(spawn(feed(to_feeders)));
    of_all(sim, tasks, results).await
}

/// All workers receive from one channel, whose receiver they share. Their results have a channel each, or
/// share one too.
async fn shared(sim: &Sim, tasks: u64, worker: Worker, is_all_shared: bool) -> Result<f64> {
    let nodes = simulated(1 + WORKERS as usize, None).await?;
    // A rendezvous with another node takes a round trip, and the farmer would make these round trips one
    // after the other.
    let (to_workers, given) = channel_with::<u64>(fifo(WORKERS as usize));
    let given = given.share();
    let (done, mut result) = channel::<u64>();
    let done = done.share();
    let mut results = Vec::new();
    for (number, node) in nodes.iter().enumerate().skip(1) {
        let given = handle(&nodes[0], node, &format!("tasks {number}"), given.clone()).await?;
        if is_all_shared {
            let done = handle(&nodes[0], node, &format!("results {number}"), done.clone()).await?;
            drop(spawn(worker.works(given, done)));
        } else {
            let (done, result) = way::<u64>(node, &nodes[0], &format!("results {number}")).await?;
            results.push(result);
            drop(spawn(worker.works(given, done)));
        }
    }
    drop((given, done));
    drop(spawn(feed(to_workers)));
    if is_all_shared {
        return collect(sim, tasks, async || Ok(result.recv().await?)).await;
    }
    of_all(sim, tasks, results).await
}

/// Sends a handle of a shared end to another node.
async fn handle<E: Portable>(from: &Node, to: &Node, name: &str, handle: E) -> Result<E> {
    let (mut tx, mut rx) = way::<E>(from, to, name).await?;
    let (sent, received) = par!(tx.send(handle), rx.recv());
    sent.map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok(received?)
}

async fn of_all(sim: &Sim, tasks: u64, mut results: Vec<Receiver<u64>>) -> Result<f64> {
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
