//! Choices at two nodes, with a branch of each to a third node.

use std::time::Duration;

use anyhow::{Result, bail};
use dunlin::prelude::*;

use super::{QUIET, Spent, heard, way};

/// Without a choice.
pub(crate) const PLAIN: &str = "send, receive";
/// The second node chooses between two receives: the first node sends, the third does not.
const RECEIVES: &str = "send, choice of 2 receives";
/// The second node chooses between two receives, and both other nodes send.
const RECEIVES_BOTH: &str = "2 sends, choice of 2 receives";
/// The first node chooses between sends to both others; the third does not receive.
const SENDS: &str = "choice of 2 sends, receive";
/// The first node sends to the second or receives from the third; the second receives from either.
const MIXED_ONE: &str = "choice of send and receive, choice of 2 receives";
/// Both could also communicate with the third node.
const MIXED_BOTH: &str = "choice of send and receive, choice of receive and send";
/// Both offer to send to and to receive from each other.
const SYMMETRIC: &str = "the same, both ways between the two";

pub(super) const ALL: [&str; 7] = [PLAIN, RECEIVES, RECEIVES_BOTH, SENDS, MIXED_ONE, MIXED_BOTH, SYMMETRIC];

type Way = (Sender<u64>, Receiver<u64>);

/// A channel from each node to each other node.
struct Ways {
    ab: Way,
    ba: Way,
    ac: Way,
    ca: Way,
    bc: Way,
    cb: Way,
}

/// `n` events.
pub(super) async fn run(who: &str, nodes: &[Node], n: u64, now: impl Fn() -> Duration) -> Result<Spent> {
    let [a, b, c] = nodes else { bail!("these are not three nodes") };
    let mut ways = Ways {
        ab: way(a, b, "ab").await?,
        ba: way(b, a, "ba").await?,
        ac: way(a, c, "ac").await?,
        ca: way(c, a, "ca").await?,
        bc: way(b, c, "bc").await?,
        cb: way(c, b, "cb").await?,
    };
    // Opens the connections.
    for way in [&mut ways.ab, &mut ways.ba, &mut ways.ac, &mut ways.ca, &mut ways.bc, &mut ways.cb] {
        let (sent, received) = par!(way.0.send(0), way.1.recv());
        sent?;
        received?;
    }
    events(who, &mut ways, 10).await?;
    sleep(QUIET).await;
    let (began, before) = (now(), heard(nodes));
    events(who, &mut ways, n).await?;
    let time = now() - began;
    sleep(QUIET).await;
    Ok(Spent { events: n, time, messages: heard(nodes) - before })
}

async fn events(who: &str, ways: &mut Ways, n: u64) -> Result<()> {
    let Ways { ab, ba, ac, ca, bc, cb } = ways;
    match who {
        PLAIN => both(sends(&mut ab.0, n), receives(&mut ab.1, n)).await,
        RECEIVES => both(sends(&mut ab.0, n), chooses_of(&mut ab.1, &mut cb.1, n)).await,
        RECEIVES_BOTH => {
            let senders = both(sends(&mut ab.0, n / 2), sends(&mut cb.0, n / 2));
            both(senders, chooses_of(&mut ab.1, &mut cb.1, n / 2 * 2)).await
        }
        SENDS => {
            let chooses = async {
                for n in 0..n {
                    alt! {
                        sent = ab.0.send(n) => sent?,
                        sent = ac.0.send(n) => sent?,
                    }
                }
                Ok(())
            };
            both(chooses, receives(&mut ab.1, n)).await
        }
        MIXED_ONE => both(mixed(&mut ab.0, &mut ca.1, n), chooses_of(&mut ab.1, &mut cb.1, n)).await,
        MIXED_BOTH => both(mixed(&mut ab.0, &mut ca.1, n), mixed(&mut bc.0, &mut ab.1, n)).await,
        SYMMETRIC => both(mixed(&mut ab.0, &mut ba.1, n), mixed(&mut ba.0, &mut ab.1, n)).await,
        _ => bail!("there is no choice {who:?}"),
    }
}

async fn both(one: impl Future<Output = Result<()>>, other: impl Future<Output = Result<()>>) -> Result<()> {
    let (one, other) = par!(one, other);
    one.and(other)
}

async fn sends(tx: &mut Sender<u64>, n: u64) -> Result<()> {
    for n in 0..n {
        tx.send(n).await?;
    }
    Ok(())
}

async fn receives(rx: &mut Receiver<u64>, n: u64) -> Result<()> {
    for _ in 0..n {
        rx.recv().await?;
    }
    Ok(())
}

async fn chooses_of(one: &mut Receiver<u64>, other: &mut Receiver<u64>, n: u64) -> Result<()> {
    for _ in 0..n {
        alt! {
            value = one.recv() => value?,
            value = other.recv() => value?,
        };
    }
    Ok(())
}

async fn mixed(tx: &mut Sender<u64>, rx: &mut Receiver<u64>, n: u64) -> Result<()> {
    for n in 0..n {
        alt! {
            sent = tx.send(n) => sent?,
            received = rx.recv() => drop(received?),
        }
    }
    Ok(())
}
