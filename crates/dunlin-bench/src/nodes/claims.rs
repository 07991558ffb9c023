//! Shared ends that the first of three nodes keeps, used and claimed at the others. One value is sent over
//! the channel for each event, so a claim costs as much as the event costs more than [`PLAIN`].

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use dunlin::Lend;
use dunlin::prelude::*;

use super::{QUIET, Spent, carried, heard, way};

/// Instead of a shared end: an unshared one, between the same nodes.
pub(crate) const PLAIN: &str = "send, not shared";
const LONE: &str = "lone send, shared sender";
const AGAIN: &str = "sender, claimed again by the same node";
const IN_TURN: &str = "sender, claimed in turn at two nodes";
const RECEIVER_AGAIN: &str = "receiver, claimed again by the same node";
const RECEIVER_IN_TURN: &str = "receiver, claimed in turn at two nodes";
const FACE_AGAIN: &str = "face, claimed again by the same node";
const FACE_IN_TURN: &str = "face, claimed in turn at two nodes";
/// No value is sent. There is nothing to count, and in virtual time it takes no time, so the bench only times
/// it.
pub(super) const NOTHING: &str = "claimed again by the same node, for nothing";

pub(super) const COUNTED: [&str; 8] =
    [PLAIN, LONE, AGAIN, IN_TURN, RECEIVER_AGAIN, RECEIVER_IN_TURN, FACE_AGAIN, FACE_IN_TURN];
pub(super) const TIMED: [&str; 9] =
    [PLAIN, LONE, AGAIN, IN_TURN, RECEIVER_AGAIN, RECEIVER_IN_TURN, FACE_AGAIN, FACE_IN_TURN, NOTHING];

/// A bundle of one channel.
#[derive(Bundle)]
struct Desk {
    orders: ToServer<u64>,
}

/// The ends of each event: the handles elsewhere, in turn, and the other end at the keeper's node.
enum Ends {
    Plain(Sender<u64>, Receiver<u64>),
    Lone(Shared<Sender<u64>>, Receiver<u64>),
    Senders(Vec<Shared<Sender<u64>>>, Receiver<u64>),
    Receivers(Vec<Shared<Receiver<u64>>>, Sender<u64>),
    Faces(Vec<Shared<DeskClient>>, DeskServer),
    Nothing(Shared<Sender<u64>>),
}

impl Ends {
    async fn of(who: &str, nodes: &[Node]) -> Result<Self> {
        let [keeper, one, _] = nodes else { bail!("these are not three nodes") };
        if who == PLAIN {
            let (tx, rx) = way(one, keeper, "values").await?;
            return Ok(Self::Plain(tx, rx));
        }
        let (tx, rx) = channel();
        Ok(match who {
            LONE => Self::Lone(carried(tx.share(), keeper, one, "handle").await?, rx),
            AGAIN => Self::Senders(lent(tx, &nodes[..2]).await?, rx),
            IN_TURN => Self::Senders(lent(tx, nodes).await?, rx),
            RECEIVER_AGAIN => Self::Receivers(lent(rx, &nodes[..2]).await?, tx),
            RECEIVER_IN_TURN => Self::Receivers(lent(rx, nodes).await?, tx),
            FACE_AGAIN | FACE_IN_TURN => {
                let (client, server) = Desk::pair();
                let nodes = if who == FACE_AGAIN { &nodes[..2] } else { nodes };
                Self::Faces(lent(client, nodes).await?, server)
            }
            NOTHING => Self::Nothing(carried(tx.share(), keeper, one, "handle").await?),
            _ => bail!("there is no claim {who:?}"),
        })
    }

    async fn event(&mut self, number: u64) -> Result<()> {
        let received = match self {
            Self::Plain(tx, rx) => both(async { Ok(tx.send(number).await?) }, async { Ok(rx.recv().await?) }).await?,
            Self::Lone(tx, rx) => both(async { Ok(tx.send(number).await?) }, async { Ok(rx.recv().await?) }).await?,
            Self::Senders(handles, rx) => {
                let handle = in_turn(handles, number);
                both(async { Ok(handle.claim().await?.send(number).await?) }, async { Ok(rx.recv().await?) }).await?
            }
            Self::Receivers(handles, tx) => {
                let handle = in_turn(handles, number);
                both(async { Ok(tx.send(number).await?) }, async { Ok(handle.claim().await?.recv().await?) }).await?
            }
            Self::Faces(handles, server) => {
                let handle = in_turn(handles, number);
                let sent = async { Ok(handle.claim().await?.orders.send(number).await?) };
                both(sent, async { Ok(server.orders.recv().await?) }).await?
            }
            Self::Nothing(handle) => {
                drop(handle.claim().await?);
                number
            }
        };
        ensure!(received == number, "another value came");
        Ok(())
    }
}

/// A handle at each node except the first, which keeps the end.
async fn lent<E: Lend>(end: E, nodes: &[Node]) -> Result<Vec<Shared<E>>>
where
    Shared<E>: Portable,
{
    let (kept, mut handles) = (end.share(), Vec::new());
    for (number, node) in nodes.iter().enumerate().skip(1) {
        handles.push(carried(kept.clone(), &nodes[0], node, &format!("handle {number}")).await?);
    }
    Ok(handles)
}

fn in_turn<E>(handles: &mut [E], number: u64) -> &mut E {
    let turn = number as usize % handles.len();
    &mut handles[turn]
}

/// The received value.
async fn both(sent: impl Future<Output = Result<()>>, received: impl Future<Output = Result<u64>>) -> Result<u64> {
    let ((), received) = tokio::try_join!(sent, received)?;
    Ok(received)
}

/// `n` events.
pub(super) async fn run(who: &str, nodes: &[Node], n: u64, now: impl Fn() -> Duration) -> Result<Spent> {
    // Events before the measurement, which open the connections and let each node claim twice.
    const WARM_UP: u64 = 4;
    let mut ends = Ends::of(who, nodes).await?;
    for number in 0..WARM_UP {
        ends.event(number).await?;
    }
    sleep(QUIET).await;
    let (began, before) = (now(), heard(nodes));
    for number in 0..n {
        ends.event(number).await?;
    }
    let time = now() - began;
    sleep(QUIET).await;
    Ok(Spent { events: n, time, messages: heard(nodes) - before })
}
