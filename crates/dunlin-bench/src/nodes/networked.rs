//! Commstime and the stressed alternation with one or all of their channels between nodes.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use dunlin::prelude::*;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::{over_tcp, way};
use crate::program::{Networked, One};
use crate::programs::nanoseconds_each;
use crate::remote::on_workers;
use crate::remote::over_remoc;
use crate::remote::programs::{Rx, Tx, consumer, delta, prefix, successor};
use crate::stressed::{self, Shape};

/// No channel between nodes.
pub(crate) const LOCAL: &str = "dunlin, no channel networked";
const NETWORKED: &str = "dunlin";
/// remoc's base channels, each with its own socket; channels that are not networked are tokio's.
pub(crate) const REMOC: &str = "remoc";

pub(super) const COMMSTIME: [&str; 3] = [REMOC, LOCAL, NETWORKED];
pub(super) const STRESSED: [&str; 2] = [LOCAL, NETWORKED];

pub(super) fn run(one: &One) -> Result<f64> {
    let networked = one.program.networked().context("it has its channels in one node")?;
    let (who, n, program) = (one.who.clone(), one.n, one.program);
    on_workers(one.threads, async move {
        match Shape::of(program) {
            Some(shape) => {
                let nodes = over_tcp(2, None).await?;
                let channels = stressed_channels(&who, &nodes, networked, shape.channels()).await?;
                stressed::networked(channels, shape, n).await
            }
            None => {
                let time = match who.as_str() {
                    REMOC => over_remoc(networked, n).await?,
                    who => over_dunlin(who, networked, n).await?,
                };
                Ok(nanoseconds_each(time, 4 * n))
            }
        }
    })
}

/// Channels with their receivers at one node and their senders at another.
async fn stressed_channels(
    who: &str,
    nodes: &[Node],
    networked: Networked,
    count: usize,
) -> Result<stressed::Channels> {
    let mut channels = Vec::new();
    for number in 0..count {
        let is_networked = who == NETWORKED && (networked == Networked::All || number == 0);
        channels.push(if is_networked {
            way(&nodes[0], &nodes[1], &format!("channel {number}")).await?
        } else {
            channel()
        });
    }
    Ok(channels)
}

/// A node for each process. If only one channel is networked, it is the one from prefix to delta.
async fn over_dunlin(who: &str, networked: Networked, n: u64) -> Result<Duration> {
    let nodes = over_tcp(4, None).await?;
    let [prefix, delta, successor, consumer] = &nodes[..] else { bail!("these are not four nodes") };
    if who == LOCAL {
        return commstime(channel(), channel(), channel(), channel(), n).await;
    }
    let to_delta = way(prefix, delta, "to-delta").await?;
    if networked == Networked::One {
        return commstime(to_delta, channel(), channel(), channel(), n).await;
    }
    let to_successor = way(delta, successor, "to-successor").await?;
    let to_prefix = way(successor, prefix, "to-prefix").await?;
    let to_consumer = way(delta, consumer, "to-consumer").await?;
    commstime(to_delta, to_successor, to_prefix, to_consumer, n).await
}

async fn over_remoc(networked: Networked, n: u64) -> Result<Duration> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let to_delta = over_remoc::pair(&listener).await?;
    if networked == Networked::One {
        return commstime(to_delta, mpsc::channel(1), mpsc::channel(1), mpsc::channel(1), n).await;
    }
    let (to_successor, to_prefix) = (over_remoc::pair(&listener).await?, over_remoc::pair(&listener).await?);
    commstime(to_delta, to_successor, to_prefix, over_remoc::pair(&listener).await?, n).await
}

impl Tx<u64> for mpsc::Sender<u64> {
    async fn send(&mut self, message: u64) -> Result<()> {
        Ok((*self).send(message).await?)
    }
}

impl Rx<u64> for mpsc::Receiver<u64> {
    async fn recv(&mut self) -> Result<u64> {
        self.recv().await.context("the channel has ended")
    }
}

/// The two ends of a channel.
trait Ends {
    type Tx: Tx<u64> + Send + 'static;
    type Rx: Rx<u64> + Send + 'static;

    fn ends(self) -> (Self::Tx, Self::Rx);
}

impl<T: Tx<u64> + Send + 'static, R: Rx<u64> + Send + 'static> Ends for (T, R) {
    type Tx = T;
    type Rx = R;

    fn ends(self) -> Self {
        self
    }
}

async fn commstime(
    to_delta: impl Ends,
    to_successor: impl Ends,
    to_prefix: impl Ends,
    to_consumer: impl Ends,
    n: u64,
) -> Result<Duration> {
    let (to_delta, from_prefix) = to_delta.ends();
    let (to_successor, from_delta) = to_successor.ends();
    let (to_prefix, from_successor) = to_prefix.ends();
    let (to_consumer, counted) = to_consumer.ends();
    // These processes end with the runtime.
    tokio::spawn(prefix(from_successor, to_delta));
    tokio::spawn(delta(from_prefix, to_successor, to_consumer));
    tokio::spawn(successor(from_delta, to_prefix));
    consumer(counted, n).await
}
