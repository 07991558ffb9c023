//! Programs over several nodes in one process: over loopback TCP, or, with the feature `sim`, over a
//! simulated network in virtual time.
//!
//! - [`moves`]: the cost of sending an end to another node; [`choices`]: the cost of a choice over nodes;
//!   [`claims`]: the cost of a claim of a shared end. All are measured in messages, in time over TCP, and in
//!   virtual time, where a message takes a millisecond and nothing else takes time: that figure is the number
//!   of messages that wait for each other;
//! - [`names`]: the cost of a named end to its node, declared and dropped;
//! - [`networked`]: commstime and the stressed alternation with one or all of their channels between nodes;
//! - [`latency`]: the window of a channel, and a farm, where only messages take time.

mod choices;
mod claims;
#[cfg(feature = "sim")]
mod latency;
mod moves;
mod names;
mod networked;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use dunlin::node::NodeBuilder;
use dunlin::prelude::*;
#[cfg(feature = "sim")]
use dunlin::sim::Sim;

use crate::measure::Participant;
use crate::program::{Bench, One, Program};
use crate::programs::nanoseconds_each;
use crate::remote::{free_port, on_workers};
use crate::stressed::Shape;

pub(crate) use choices::PLAIN;
pub(crate) use claims::PLAIN as NOT_SHARED;
pub(crate) use moves::VALUE;
pub(crate) use names::RECEIVERS;
pub(crate) use networked::{LOCAL, REMOC};

/// A computed bound that no implementation can exceed.
pub(crate) const BOUND: &str = "bound";
/// The participant of the window.
const FIFO: &str = "dunlin";
/// The farm: one channel to each worker, and one from it.
const MULTIPLEXED: &str = "dunlin, two channels for each worker";
/// The farm: all workers share the receiver of the tasks; one channel from each.
const SHARED_TASKS: &str = "dunlin, tasks shared, a channel from each worker";
/// The farm: the workers also share the sender of the results.
const SHARED: &str = "dunlin, tasks and results shared";
/// A suffix of these: the workers have a buffer of one task.
#[cfg(feature = "sim")]
const AHEAD: &str = ", a buffer of 1";
const MULTIPLEXED_AHEAD: &str = "dunlin, two channels for each worker, a buffer of 1";
const SHARED_TASKS_AHEAD: &str = "dunlin, tasks shared, a channel from each worker, a buffer of 1";
const SHARED_AHEAD: &str = "dunlin, tasks and results shared, a buffer of 1";

/// The cost of some events.
#[derive(Clone, Copy, Debug)]
struct Spent {
    events: u64,
    time: Duration,
    /// Numbered frames that the nodes have received from each other: all frames of the protocol except
    /// acknowledgements and heartbeats.
    messages: u64,
}

/// The number of messages that `nodes` have received from each other.
fn heard(nodes: &[Node]) -> u64 {
    nodes.iter().map(Node::heard).sum()
}

/// The idle time before and after a measurement, in which the nodes send all messages about it.
const QUIET: Duration = Duration::from_millis(200);

/// A channel by this name from one node to another.
async fn way<T: Portable>(from: &Node, to: &Node, name: &str) -> Result<(Sender<T>, Receiver<T>)> {
    let (tx, rx) = par!(async { from.sender::<T>(name).await }, async { to.receiver::<T>(name).await });
    Ok((tx?, rx?))
}

/// Sends `end` over a channel by this name, and returns it at the other node.
async fn carried<E: Portable>(end: E, from: &Node, to: &Node, name: &str) -> Result<E> {
    let (mut tx, mut rx) = way::<E>(from, to, name).await?;
    let sent = async { tx.send(end).await.map_err(|error| anyhow::anyhow!("it has not moved: {error}")) };
    let ((), end) = tokio::try_join!(sent, async { Ok(rx.recv().await?) })?;
    Ok(end)
}

/// What to count, time and simulate.
#[derive(Clone, Copy)]
enum Kind {
    Moves,
    Choices,
    Claims,
}

impl Kind {
    fn of(program: Program) -> Option<Self> {
        match program {
            Program::MoveMessages | Program::MoveTcp | Program::MoveSim => Some(Self::Moves),
            Program::ChoiceMessages | Program::ChoiceTcp | Program::ChoiceSim => Some(Self::Choices),
            Program::ClaimMessages | Program::ClaimTcp | Program::ClaimSim => Some(Self::Claims),
            _ => None,
        }
    }

    fn nodes(self) -> usize {
        match self {
            Self::Moves => 4,
            Self::Choices | Self::Claims => 3,
        }
    }

    async fn run(self, who: &str, nodes: &[Node], n: u64, now: impl Fn() -> Duration) -> Result<Spent> {
        match self {
            Self::Moves => moves::run(who, nodes, n, now).await,
            Self::Choices => choices::run(who, nodes, n, now).await,
            Self::Claims => claims::run(who, nodes, n, now).await,
        }
    }
}

/// Runs one participant and returns its figure.
pub(crate) fn run(one: &One) -> Result<f64> {
    let (who, n) = (one.who.clone(), one.n);
    match one.program {
        #[cfg(feature = "sim")]
        Program::MoveSim | Program::ChoiceSim | Program::ClaimSim => {
            let kind = Kind::of(one.program).context("it is one of these")?;
            let sim = Sim::new(1);
            sim.delay(Duration::from_millis(1), Duration::from_millis(1));
            let spent = sim.run(async {
                let nodes = simulated(kind.nodes(), straight_min(&who)).await?;
                kind.run(&who, &nodes, n, || sim.elapsed()).await
            })?;
            Ok(1e-6 * nanoseconds_each(spent.time, spent.events))
        }
        Program::MoveMessages
        | Program::MoveTcp
        | Program::ChoiceMessages
        | Program::ChoiceTcp
        | Program::ClaimMessages
        | Program::ClaimTcp => {
            let kind = Kind::of(one.program).context("it is one of these")?;
            let silent = who == claims::NOTHING;
            let spent = on_workers(one.threads, async move {
                let nodes = over_tcp(kind.nodes(), straight_min(&who)).await?;
                let began = Instant::now();
                kind.run(&who, &nodes, n, || began.elapsed()).await
            })?;
            ensure!((spent.messages == 0) == silent, "{} messages were counted", spent.messages);
            Ok(match one.program {
                Program::MoveTcp | Program::ChoiceTcp | Program::ClaimTcp => nanoseconds_each(spent.time, spent.events),
                _ => spent.messages as f64 / spent.events as f64,
            })
        }
        Program::Names => on_workers(one.threads, async move {
            let nodes = over_tcp(1, None).await?;
            let began = Instant::now();
            let time = names::run(&who, nodes[0].clone(), n, || began.elapsed()).await?;
            Ok(nanoseconds_each(time, n))
        }),
        #[cfg(feature = "sim")]
        Program::Window => latency::window(&who, n),
        #[cfg(feature = "sim")]
        Program::Farm => latency::farm(&who, n),
        _ if one.program.networked().is_some() => networked::run(one),
        program => {
            bail!("{program} needs the feature sim: cargo run --profile measured -p dunlin-bench --features sim")
        }
    }
}

/// The size from which on values bypass the node that keeps a shared receiver.
fn straight_min(who: &str) -> Option<u64> {
    (who == moves::SHARED_THROUGH).then_some(1 << 40)
}

/// Nodes of a new application.
async fn over_tcp(count: usize, straight_min: Option<u64>) -> Result<Vec<Node>> {
    let names = format!("127.0.0.1:{}", free_port()?);
    joined(count, straight_min, |builder| builder.names(&names)).await
}

#[cfg(feature = "sim")]
async fn simulated(count: usize, straight_min: Option<u64>) -> Result<Vec<Node>> {
    joined(count, straight_min, |builder| builder).await
}

async fn joined(
    count: usize,
    straight_min: Option<u64>,
    set: impl Fn(NodeBuilder) -> NodeBuilder,
) -> Result<Vec<Node>> {
    let mut nodes = Vec::new();
    for _ in 0..count {
        let mut builder = set(Node::builder().app("dunlin-bench"));
        if let Some(bytes) = straight_min {
            builder = builder.straight_min_bytes(bytes);
        }
        nodes.push(builder.join().await?);
    }
    Ok(nodes)
}

/// All participants of `bench`, with the reference first.
pub(crate) fn participants(bench: &Bench, workers: &[usize]) -> Result<Vec<Participant>> {
    let who: &[&'static str] = match bench.program {
        Program::MoveMessages | Program::MoveTcp | Program::MoveSim => &moves::ALL,
        Program::ChoiceMessages | Program::ChoiceTcp | Program::ChoiceSim => &choices::ALL,
        Program::ClaimMessages | Program::ClaimSim => &claims::COUNTED,
        Program::ClaimTcp => &claims::TIMED,
        Program::Names => &names::ALL,
        Program::Window => &[BOUND, FIFO],
        Program::Farm => {
            &[BOUND, MULTIPLEXED, SHARED_TASKS, SHARED, MULTIPLEXED_AHEAD, SHARED_TASKS_AHEAD, SHARED_AHEAD]
        }
        program if Shape::of(program).is_some() => &networked::STRESSED,
        _ => &networked::COMMSTIME,
    };
    // Counts and virtual time do not depend on the workers.
    let timed = bench.program.networked().is_some()
        || matches!(bench.program, Program::MoveTcp | Program::ChoiceTcp | Program::ClaimTcp | Program::Names);
    let workers = if timed { workers } else { &[1] };
    bench.participants(workers, who)
}
