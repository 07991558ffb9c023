//! tokio's tasks, its unbounded channel as their mailbox, and its oneshot channel for replies.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::library::Actors;
use crate::memory::one_waits;

/// Its name in the report.
pub(super) const TOKIO: &str = "tokio mpsc";

pub(super) struct Tokio;

impl Actors for Tokio {
    type Parked = UnboundedSender<u64>;

    async fn spawn(n: u64) -> Result<Duration> {
        let start = Instant::now();
        let tasks: Vec<_> = (0..n).map(|_| tokio::spawn(async {})).collect();
        for task in tasks {
            task.await?;
        }
        Ok(start.elapsed())
    }

    /// tokio has no monitors: the handle of a task reports its end.
    async fn down(n: u64) -> Result<Duration> {
        let start = Instant::now();
        for _ in 0..n {
            tokio::spawn(async {}).await?;
        }
        Ok(start.elapsed())
    }

    async fn post(n: u64) -> Result<Duration> {
        let (tx, mut rx) = unbounded_channel();
        let start = Instant::now();
        let receiver = tokio::spawn(async move {
            for expected in 0..n {
                ensure!(rx.recv().await == Some(expected), "a message is lost");
            }
            Ok(())
        });
        for number in 0..n {
            tx.send(number)?;
        }
        receiver.await??;
        Ok(start.elapsed())
    }

    async fn call(n: u64) -> Result<Duration> {
        let (tx, mut rx) = unbounded_channel::<(u64, oneshot::Sender<u64>)>();
        tokio::spawn(async move {
            while let Some((number, reply)) = rx.recv().await {
                // A caller that has gone needs no answer.
                let _ = reply.send(number + 1);
            }
        });
        let start = Instant::now();
        for number in 0..n {
            let (reply, answer) = oneshot::channel();
            tx.send((number, reply))?;
            let answer = answer.await?;
            ensure!(answer == number + 1, "{answer} is the answer to {number}");
        }
        Ok(start.elapsed())
    }

    fn park() -> Self::Parked {
        let (tx, mut rx) = unbounded_channel();
        tokio::spawn(async move {
            one_waits();
            rx.recv().await
        });
        tx
    }

    async fn link(_: &Self::Parked, _: &Self::Parked) -> Result<()> {
        bail!("tokio has no links")
    }

    async fn exit(_: &Self::Parked, _: Self::Parked) -> Result<Duration> {
        bail!("tokio has no links")
    }
}
