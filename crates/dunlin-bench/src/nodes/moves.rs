//! An end moves round three nodes, while the other end of its channel is at a fourth. And a value is sent to
//! a handle of a shared receiver, whose sender is at a node other than the keeper's.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use bytes::Bytes;
use dunlin::prelude::*;

use super::{QUIET, Spent, carried, heard, way};

/// Instead of an end: the cost of the message that contains it.
pub(crate) const VALUE: &str = "a number";
const SENDER_USED: &str = "sender, one value sent at each node";
const SENDER_PASSED_ON: &str = "sender, passed on unused";
const RECEIVER_USED: &str = "receiver, one value received at each node";
const RECEIVER_PASSED_ON: &str = "receiver, passed on unused";

const SHARED_SMALL: &str = "8 bytes to a shared receiver at a third node";
pub(super) const SHARED_THROUGH: &str = "1 MB to a shared receiver at a third node, through its keeper";
const SHARED_STRAIGHT: &str = "1 MB to a shared receiver at a third node, straight";

pub(super) const ALL: [&str; 8] = [
    VALUE,
    SENDER_USED,
    SENDER_PASSED_ON,
    RECEIVER_USED,
    RECEIVER_PASSED_ON,
    SHARED_SMALL,
    SHARED_THROUGH,
    SHARED_STRAIGHT,
];

/// The end that moves.
trait Moves: Portable {
    /// The end that stays at the fourth node.
    type Other;

    /// Sends one value over the channel.
    async fn one_value(&mut self, other: &mut Self::Other) -> Result<()>;
}

impl Moves for u64 {
    type Other = ();

    async fn one_value(&mut self, (): &mut ()) -> Result<()> {
        Ok(())
    }
}

impl Moves for Sender<u64> {
    type Other = Receiver<u64>;

    async fn one_value(&mut self, other: &mut Receiver<u64>) -> Result<()> {
        let sent = async { self.send(7).await.map_err(|error| anyhow::anyhow!("no value was sent: {error}")) };
        let ((), received) = tokio::try_join!(sent, async { Ok(other.recv().await?) })?;
        ensure!(received == 7, "another value came");
        Ok(())
    }
}

impl Moves for Receiver<u64> {
    type Other = Sender<u64>;

    async fn one_value(&mut self, other: &mut Sender<u64>) -> Result<()> {
        other.one_value(self).await
    }
}

/// `n` moves.
pub(super) async fn run(who: &str, nodes: &[Node], n: u64, now: impl Fn() -> Duration) -> Result<Spent> {
    let used = who == SENDER_USED || who == RECEIVER_USED;
    match who {
        VALUE => round(nodes, n, now, (7, ()), false).await,
        SENDER_USED | SENDER_PASSED_ON => round(nodes, n, now, way(&nodes[0], &nodes[3], "values").await?, used).await,
        RECEIVER_USED | RECEIVER_PASSED_ON => {
            let (tx, rx) = way(&nodes[3], &nodes[0], "values").await?;
            round(nodes, n, now, (rx, tx), used).await
        }
        SHARED_SMALL => shared(nodes, n, now, 8).await,
        SHARED_THROUGH | SHARED_STRAIGHT => shared(nodes, n.min(2000), now, 1_000_000).await,
        _ => bail!("there is no {who:?} that moves"),
    }
}

/// Sends `n` values of this many bytes from the second node to the third, for a receiver that the first node
/// keeps.
async fn shared(nodes: &[Node], n: u64, now: impl Fn() -> Duration, bytes: usize) -> Result<Spent> {
    let (tx, rx) = channel::<Bytes>();
    let kept = rx.share();
    let mut handle = carried(kept.clone(), &nodes[0], &nodes[2], "handle").await?;
    let mut tx = carried(tx, &nodes[0], &nodes[1], "sender").await?;
    let value = Bytes::from(vec![7; bytes]);
    let (mut began, mut before) = (Duration::ZERO, 0);
    for number in 0..n + 3 {
        // The first values open the connections, and inform the sender of how to offer.
        if number == 3 {
            sleep(QUIET).await;
            (began, before) = (now(), heard(nodes));
        }
        let sent = async { tx.send(value.clone()).await.map_err(|error| anyhow::anyhow!("it was not sent: {error}")) };
        let ((), received) = tokio::try_join!(sent, async { Ok(handle.recv().await?) })?;
        ensure!(received.len() == bytes, "another value came");
    }
    let time = now() - began;
    sleep(QUIET).await;
    Ok(Spent { events: n, time, messages: heard(nodes) - before })
}

async fn round<E: Moves>(
    nodes: &[Node],
    n: u64,
    now: impl Fn() -> Duration,
    (mut end, mut other): (E, E::Other),
    used: bool,
) -> Result<Spent> {
    const STOPS: usize = 3;
    let mut ways = Vec::new();
    for stop in 0..STOPS {
        ways.push(way::<E>(&nodes[stop], &nodes[(stop + 1) % STOPS], &format!("way {stop}")).await?);
    }
    // An end cannot leave its node before its name has found the other end.
    end.one_value(&mut other).await?;
    let (mut began, mut before) = (Duration::ZERO, 0);
    for (stop, moves) in (0..STOPS).cycle().zip(0..STOPS as u64 + n) {
        // The first round opens the connections.
        if moves == STOPS as u64 {
            end.one_value(&mut other).await?;
            sleep(QUIET).await;
            (began, before) = (now(), heard(nodes));
        }
        let (tx, rx) = &mut ways[stop];
        let sent = async { tx.send(end).await.map_err(|error| anyhow::anyhow!("it has not moved: {error}")) };
        ((), end) = tokio::try_join!(sent, async { Ok(rx.recv().await?) })?;
        if used {
            end.one_value(&mut other).await?;
        }
    }
    let time = now() - began;
    sleep(QUIET).await;
    let messages = heard(nodes) - before;
    end.one_value(&mut other).await?;
    Ok(Spent { events: n, time, messages })
}
