//! A token ring: 256 processes in a circle and one token, to which each of them adds one whenever it has it.
//!
//! ```text
//!   ┌▶ leader ─▶ successor ─▶ successor ─▶ … ─▶ successor ─┐
//!   └──────────────────────────────────────────────────────┘
//! ```
//!
//! The leader starts the token at 0, sends it round once so that every process has started, and then 4096
//! times. So it returns with 256 × 4097 = 1,048,832.
//!
//! Run it: `cargo run --release --example token_ring [processes] [cycles]`

use std::time::{Duration, Instant};

use dunlin::blocks::{ring, successor};
use dunlin::prelude::*;

/// Sends the token round `cycles` times and leaves; returns the token and the time they took.
async fn leader(cycles: u64, mut from: Receiver<u64>, mut to: Sender<u64>) -> Result<(u64, Duration)> {
    let mut token = 0;
    let mut began = Instant::now();
    for cycle in 0..=cycles {
        if cycle == 1 {
            began = Instant::now();
        }
        to.send(token + 1).await?;
        token = from.recv().await?;
    }
    Ok((token, began.elapsed()))
}

/// The leader is number 0. When it has left, the end travels round once, and every process ends.
async fn member(number: u64, cycles: u64, from: Receiver<u64>, to: Sender<u64>) -> Result<Option<(u64, Duration)>> {
    if number == 0 {
        return leader(cycles, from, to).await.map(Some);
    }
    successor(from, to).await?;
    Ok(None)
}

/// Runs the ring inside one task: the final token, and how long its cycles took.
pub(crate) async fn in_one_task(processes: u64, cycles: u64) -> Result<(u64, Duration)> {
    let ended = ring(0..processes, |number, from, to| member(number, cycles, from, to)).await;
    home(ended)
}

/// Runs the ring with a spawned process for each member.
pub(crate) async fn spawned(processes: u64, cycles: u64) -> Result<(u64, Duration)> {
    let ended = ring(0..processes, |number, from, to| spawn(member(number, cycles, from, to))).await;
    home(ended.into_iter().map(|exit| exit?))
}

/// The leader's result; an error if any member failed.
fn home(ended: impl IntoIterator<Item = Result<Option<(u64, Duration)>>>) -> Result<(u64, Duration)> {
    let mut token = None;
    for ended in ended {
        token = ended?.or(token);
    }
    token.ok_or_else(|| Error::other("no process led the ring"))
}

#[dunlin::main]
async fn main() -> Result {
    let mut numbers = std::env::args().skip(1).filter_map(|n| n.parse().ok());
    let (processes, cycles) = (numbers.next().unwrap_or(256), numbers.next().unwrap_or(4096));
    if processes < 2 {
        return Err(Error::other("one process alone would wait for itself"));
    }
    let told = |what, (token, time): (u64, Duration)| {
        assert_eq!(token, processes * (cycles + 1), "every process has had the token in every cycle");
        let ns = time.as_nanos() as f64 / (processes * cycles) as f64;
        println!("{what}: the token came home with {token}; {ns:.1} ns for each step");
    };
    told("par!", in_one_task(processes, cycles).await?);
    told("spawn", spawned(processes, cycles).await?);
    Ok(())
}
