//! dunlin's processes.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use dunlin::server::Server;
use dunlin::{Address, ExitReason, Process, mailbox, monitor, spawn};

use super::library::Actors;
use crate::memory::one_waits;

/// Its name in the report.
pub(crate) const DUNLIN: &str = "dunlin processes";

pub(super) struct Dunlin;

struct Counter;

impl Server for Counter {
    type Call = u64;
    type Reply = u64;
    type Cast = ();

    async fn call(&mut self, n: u64) -> dunlin::Result<u64> {
        Ok(n + 1)
    }
}

impl Actors for Dunlin {
    type Parked = (Address<u64>, Process<()>);

    async fn spawn(n: u64) -> Result<Duration> {
        let start = Instant::now();
        let processes: Vec<_> = (0..n).map(|_| spawn(async {})).collect();
        for process in processes {
            process.await?;
        }
        Ok(start.elapsed())
    }

    async fn down(n: u64) -> Result<Duration> {
        let start = Instant::now();
        for _ in 0..n {
            let exit = monitor(spawn(async {}).pid()).await;
            // With two workers it may have ended before it is monitored.
            ensure!(exit.is_normal() || exit.reason == ExitReason::NoSuchProcess, "{exit}");
        }
        Ok(start.elapsed())
    }

    async fn post(n: u64) -> Result<Duration> {
        let (address, mut mailbox) = mailbox();
        let start = Instant::now();
        let receiver = spawn(async move {
            for expected in 0..n {
                ensure!(mailbox.recv().await? == expected, "a message is lost");
            }
            Ok(())
        });
        for number in 0..n {
            address.send(number)?;
        }
        receiver.await??;
        Ok(start.elapsed())
    }

    async fn call(n: u64) -> Result<Duration> {
        let mut counter = Counter.start();
        let start = Instant::now();
        for number in 0..n {
            let answer = counter.call(number).await.map_err(|error| anyhow::anyhow!("{error}"))?;
            ensure!(answer == number + 1, "{answer} is the answer to {number}");
        }
        Ok(start.elapsed())
    }

    fn park() -> Self::Parked {
        let (address, mut mailbox) = mailbox();
        let process = spawn(async move {
            one_waits();
            // The process is killed there.
            let _ = mailbox.recv().await;
        });
        (address, process)
    }

    async fn link((_, one): &Self::Parked, (_, other): &Self::Parked) -> Result<()> {
        dunlin::link(one.pid(), other.pid())?;
        dunlin::link(other.pid(), one.pid())?;
        Ok(())
    }

    async fn exit((_, first): &Self::Parked, (_address, last): Self::Parked) -> Result<Duration> {
        let start = Instant::now();
        first.pid().kill();
        ensure!(last.await.is_err(), "the exit does not reach the last process");
        Ok(start.elapsed())
    }
}
