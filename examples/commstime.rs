//! Commstime: four processes pass a number round in a circle and count; the classic measure of a
//! communication.
//!
//! ```text
//!     prefix ──a──▶ delta ──d──▶ consumer
//!       ▲             │
//!       c             b
//!       └─ successor ◀┘
//! ```
//!
//! Run it: `cargo run --release --example commstime [cycles]`

use std::time::Instant;

use dunlin::prelude::*;

async fn prefix(first: u64, mut from: Receiver<u64>, mut to: Sender<u64>) -> Result {
    to.send(first).await?;
    while let Some(n) = from.next().await? {
        to.send(n).await?;
    }
    Ok(())
}

async fn delta(mut from: Receiver<u64>, mut one: Sender<u64>, mut other: Sender<u64>) -> Result {
    while let Some(n) = from.next().await? {
        one.send(n).await?;
        other.send(n).await?;
    }
    Ok(())
}

async fn successor(mut from: Receiver<u64>, mut to: Sender<u64>) -> Result {
    while let Some(n) = from.next().await? {
        to.send(n + 1).await?;
    }
    Ok(())
}

/// Receives the numbers 0 to `cycles` - 1, and then ends the circle.
async fn consumer(cycles: u64, mut from: Receiver<u64>) -> Result<f64> {
    let began = Instant::now();
    for expected in 0..cycles {
        assert_eq!(from.recv().await?, expected);
    }
    let elapsed = began.elapsed();
    from.poison("enough");
    Ok(elapsed.as_nanos() as f64 / (4 * cycles) as f64)
}

/// Poison ends this circle: a poisoned stage has ended in order.
fn ended(result: Result) -> Result {
    match result {
        Err(error) if error.is_poisoned() || error.is_closed() => Ok(()),
        other => other,
    }
}

#[dunlin::main]
async fn main() -> Result {
    let cycles = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1_000_000);

    let ((a, to_delta), (b, to_successor)) = (channel(), channel());
    let ((c, to_prefix), (d, to_consumer)) = (channel(), channel());
    let (one, two, three, ns) = par!(
        prefix(0, to_prefix, a),
        delta(to_delta, b, d),
        successor(to_successor, c),
        consumer(cycles, to_consumer),
    );
    ended(one)?;
    ended(two)?;
    ended(three)?;
    println!("par!:  {:.1} ns per communication, {cycles} cycles", ns?);

    let ((a, to_delta), (b, to_successor)) = (channel(), channel());
    let ((c, to_prefix), (d, to_consumer)) = (channel(), channel());
    let stages = [spawn(prefix(0, to_prefix, a)), spawn(delta(to_delta, b, d)), spawn(successor(to_successor, c))];
    let ns = spawn(consumer(cycles, to_consumer)).await??;
    for stage in stages {
        ended(stage.await?)?;
    }
    println!("spawn: {ns:.1} ns per communication, {cycles} cycles");
    Ok(())
}
