//! dunlin's nodes: a channel from each worker to the master.

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use dunlin::prelude::*;
use dunlin::{Portable, rendezvous};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::task::{Counts, Gate, Task};

/// As in pony's program: each send is a rendezvous, and the master makes a fair choice among all channels.
pub(super) const DUNLIN: &str = "dunlin";
/// With room for 16 messages in each channel, and a process for each channel at the master.
pub(super) const FIFO: &str = "dunlin, fifo(16)";

/// A message of several items, as in the protocols of occam-pi.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Items(Vec<Bytes>);

/// Receives for ever.
pub(super) async fn master(task: Task, node: Node, counts: Counts) -> Result<()> {
    if task.items == 0 {
        receive(task, node, counts, Bytes::len).await
    } else {
        receive(task, node, counts, |items: &Items| items.0.iter().map(Bytes::len).sum()).await
    }
}

/// Sends when the gate is open.
pub(super) async fn node(task: Task, node: Node, gate: Gate) -> Result<()> {
    let item = Bytes::from(vec![7; task.size]);
    if task.items == 0 {
        send(task, node, gate, item).await
    } else {
        let items = Items(vec![item; task.items]);
        send(task, node, gate, items).await
    }
}

async fn receive<M: Portable>(task: Task, node: Node, counts: Counts, size: fn(&M) -> usize) -> Result<()> {
    let mut receivers = Vec::new();
    for name in (0..task.nodes).flat_map(|role| (0..task.workers).map(move |worker| name(role + 1, worker))) {
        let policy = if task.who == FIFO { fifo(16) } else { rendezvous() };
        receivers.push(node.receiver::<M>(&name).policy(policy).await?);
    }
    let payload = task.payload();
    let received = move |worker: usize, message: M| {
        ensure!(size(&message) == payload, "another message has arrived");
        counts.one(worker);
        Ok(())
    };
    if task.who == DUNLIN && receivers.len() > 1 {
        loop {
            let (worker, message) = Choice::fair().all(receivers.iter_mut().map(Receiver::recv)).await;
            received(worker, message?)?;
        }
    }
    let mut receives = JoinSet::new();
    for (worker, mut receiver) in receivers.into_iter().enumerate() {
        let received = received.clone();
        receives.spawn(async move {
            loop {
                received(worker, receiver.recv().await?)?;
            }
        });
    }
    receives.join_next().await.context("there is nobody to receive from")??
}

async fn send<M: Portable + Clone + Sync>(task: Task, node: Node, gate: Gate, message: M) -> Result<()> {
    // Before the first send: a task that is busy with the first workers does not reach the others.
    let mut outputs = Vec::new();
    for worker in 0..task.workers {
        outputs.push(node.sender::<M>(&name(task.role, worker)).await?);
    }
    let mut sends = JoinSet::new();
    for mut output in outputs {
        let (message, mut gate) = (message.clone(), gate.clone());
        sends.spawn(async move {
            loop {
                gate.open().await?;
                output.send(message.clone()).await.map_err(|error| anyhow::anyhow!("{error}"))?;
            }
        });
    }
    sends.join_next().await.context("there is nobody to send")??
}

fn name(role: usize, worker: usize) -> String {
    format!("data {role} {worker}")
}
