//! dunlin's nodes: channels by name, over TCP.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use dunlin::node::Encoding;
use dunlin::prelude::*;
use dunlin::{Address, Mailbox, Portable, rendezvous};

use super::counted::Counted;
use super::programs::{Message, Record, Rx, Tx, consumer, delta, ping, pong, prefix, sink, stream, successor};
use super::sides::{Sides, free_port};
use super::{Side, TCP, TCP_ACKED, on_workers};
use crate::program::Program;
use crate::programs::nanoseconds_each;

/// A rendezvous of [`Bytes`].
pub(crate) const BYTES: &str = "dunlin Bytes";
/// A rendezvous of numbers.
const CHANNEL: &str = "dunlin";
/// A buffered channel, with credits.
pub(crate) const FIFO: &str = "dunlin fifo(16) Bytes";
/// Rendezvous, one message at a time.
pub(crate) const RENDEZVOUS: &str = "dunlin rendezvous Bytes";

const STRUCT: &str = "dunlin struct";
const STRUCT_COMPACT: &str = "dunlin struct, compact";
const VEC: &str = "dunlin Vec<u8>";
const FIFO_STRUCT: &str = "dunlin fifo(16) struct";

pub(super) const PINGPONG: [&str; 8] =
    [TCP, BYTES, STRUCT, STRUCT_COMPACT, VEC, "remoc Bytes", "remoc struct", "remoc Vec<u8>"];
pub(super) const THROUGHPUT: [&str; 7] = [TCP, TCP_ACKED, FIFO, RENDEZVOUS, FIFO_STRUCT, "remoc Bytes", "remoc struct"];
pub(super) const COMMSTIME: [&str; 4] = [TCP, TCP_ACKED, CHANNEL, "remoc"];
pub(super) const OVERHEAD: [&str; 4] = [FIFO, RENDEZVOUS, FIFO_STRUCT, "dunlin fifo(16) Vec<u8>"];

/// What was written to and read from the sockets of this process.
static CARRIED: AtomicU64 = AtomicU64::new(0);

impl<M: Portable> Tx<M> for Sender<M> {
    async fn send(&mut self, message: M) -> Result<()> {
        self.send(message).await.map_err(|error| anyhow::anyhow!("{error}"))
    }
}

impl<M: Portable> Rx<M> for Receiver<M> {
    async fn recv(&mut self) -> Result<M> {
        Ok(self.recv().await?)
    }
}

impl<M: Portable> Tx<M> for Shared<Sender<M>> {
    async fn send(&mut self, message: M) -> Result<()> {
        self.send(message).await.map_err(|error| anyhow::anyhow!("{error}"))
    }
}

impl<M: Portable> Rx<M> for Shared<Receiver<M>> {
    async fn recv(&mut self) -> Result<M> {
        Ok(self.recv().await?)
    }
}

/// A post that waits for room: there is a limit on what is on its way to another node.
impl<M: Portable> Tx<M> for Address<M> {
    async fn send(&mut self, message: M) -> Result<()> {
        self.offer(message).await.map_err(|error| anyhow::anyhow!("{error}"))
    }
}

impl<M: Portable> Rx<M> for Mailbox<M> {
    async fn recv(&mut self) -> Result<M> {
        Ok(self.recv().await?)
    }
}

/// Joins an application that only this run uses.
pub(crate) async fn join(names: &str) -> Result<Node> {
    Ok(Node::builder().app("dunlin-bench").names(names).join().await?)
}

/// The address of this run's name service, which no other process uses.
pub(super) fn names(side: &Side) -> Result<String> {
    Ok(if side.leads() { format!("127.0.0.1:{}", free_port()?) } else { side.names.clone() })
}

pub(super) fn run(side: &Side) -> Result<f64> {
    let who = side.who.as_str();
    if who.contains("struct") {
        run_with::<Record>(side)
    } else if who.contains("Vec<u8>") {
        run_with::<Vec<u8>>(side)
    } else {
        run_with::<Bytes>(side)
    }
}

fn run_with<M: Message + Portable>(side: &Side) -> Result<f64> {
    let names = names(side)?;
    let count = if side.program == Program::RemoteCommstime { 4 } else { 2 };
    let mut sides = Sides::start(side.leads(), count, &names)?;
    sides.meet(side.leads(), "here", |_| ())?;
    let side = side.clone();
    on_workers(side.threads, async move {
        let node = if side.program == Program::RemoteOverhead {
            let builder = Node::builder().app("dunlin-bench").names(&names);
            builder.network(Counted(&CARRIED)).join().await?
        } else {
            join(&names).await?
        };
        let figure = match side.program {
            Program::RemotePingpong | Program::RemoteLink => {
                pingpong::<M>(&side, &node).await.map(|time| nanoseconds_each(time, side.n))
            }
            Program::RemoteThroughput => throughput::<M>(&side, &node).await.map(|time| nanoseconds_each(time, side.n)),
            Program::AddressPingpong => {
                mailbox_pingpong::<M>(&side, &node).await.map(|time| nanoseconds_each(time, side.n))
            }
            Program::AddressPosts => mailbox_posts::<M>(&side, &node).await.map(|time| nanoseconds_each(time, side.n)),
            Program::RemoteOverhead => overhead::<M>(&side, &node).await,
            Program::RemoteCommstime => commstime(&side, &node).await.map(|time| nanoseconds_each(time, 4 * side.n)),
            program => bail!("there is no {program} over nodes"),
        };
        // Not before: an end that is dropped would take its channel with it.
        drop(node);
        figure
    })
}

fn encoding(side: &Side) -> Encoding {
    if side.who.contains("compact") { Encoding::Compact } else { Encoding::Cbor }
}

async fn pingpong<M: Message + Portable>(side: &Side, node: &Node) -> Result<Duration> {
    let encoding = encoding(side);
    if side.leads() {
        let there = node.sender::<M>("there").encoding(encoding).await?;
        let back = node.receiver::<M>("back").encoding(encoding).await?;
        return ping(there, back, side.size, side.n).await;
    }
    let input = node.receiver::<M>("there").encoding(encoding).await?;
    let output = node.sender::<M>("back").encoding(encoding).await?;
    pong(input, output).await?;
    Ok(Duration::ZERO)
}

async fn throughput<M: Message + Portable>(side: &Side, node: &Node) -> Result<Duration> {
    if side.leads() {
        let output = node.sender::<M>("there").await?;
        let done = node.receiver::<u64>("done").await?;
        return stream(output, done, side.size, side.n).await;
    }
    let policy = if side.who.contains("fifo") { fifo(16) } else { rendezvous() };
    let input = node.receiver::<M>("there").policy(policy).await?;
    let done = node.sender::<u64>("done").await?;
    sink(input, done, side.size, side.n).await?;
    Ok(Duration::ZERO)
}

async fn mailbox_pingpong<M: Message + Portable>(side: &Side, node: &Node) -> Result<Duration> {
    if side.leads() {
        let back = node.mailbox::<M>("back").await?;
        let there = node.address::<M>("there").await.map_err(|error| anyhow::anyhow!("{error}"))?;
        let process = spawn(ping(there, back, side.size, side.n));
        return process.await?;
    }
    let input = node.mailbox::<M>("there").await?;
    let output = node.address::<M>("back").await.map_err(|error| anyhow::anyhow!("{error}"))?;
    spawn(pong(input, output)).await??;
    Ok(Duration::ZERO)
}

async fn mailbox_posts<M: Message + Portable>(side: &Side, node: &Node) -> Result<Duration> {
    if side.leads() {
        let done = node.mailbox::<u64>("done").await?;
        let output = node.address::<M>("there").await.map_err(|error| anyhow::anyhow!("{error}"))?;
        let process = spawn(stream(output, done, side.size, side.n));
        return process.await?;
    }
    let input = node.mailbox::<M>("there").await?;
    let done = node.address::<u64>("done").await.map_err(|error| anyhow::anyhow!("{error}"))?;
    spawn(sink(input, done, side.size, side.n)).await??;
    Ok(Duration::ZERO)
}

/// The bytes in both directions that exceed the messages, in percent of the messages. Handshakes, names and
/// heartbeats count.
async fn overhead<M: Message + Portable>(side: &Side, node: &Node) -> Result<f64> {
    throughput::<M>(side, node).await?;
    let messages = (super::programs::warm_up(side.n) + side.n) * side.size as u64;
    let more = CARRIED.load(Ordering::Relaxed).checked_sub(messages).context("not everything was counted")?;
    Ok(100.0 * more as f64 / messages as f64)
}

/// The sides are consumer, prefix, delta, successor.
async fn commstime(side: &Side, node: &Node) -> Result<Duration> {
    let input = |name| async move { node.receiver::<u64>(name).await };
    let output = |name| async move { node.sender::<u64>(name).await };
    match side.role {
        0 => return consumer(input("to-consumer").await?, side.n).await,
        1 => prefix(input("to-prefix").await?, output("to-delta").await?).await?,
        2 => {
            let (first, second) = (output("to-successor").await?, output("to-consumer").await?);
            delta(input("to-delta").await?, first, second).await?;
        }
        _ => successor(input("to-successor").await?, output("to-prefix").await?).await?,
    }
    Ok(Duration::ZERO)
}
