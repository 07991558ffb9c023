//! A prime sieve: a pipeline that grows by one process for each prime it finds.
//!
//! ```text
//!     numbers ──▶ filter 2 ──▶ filter 3 ──▶ filter 5 ──▶ … ──▶ main
//! ```
//!
//! A number that leaves the pipeline has passed every filter, so it is a prime, and gets a filter of its own
//! there. When main has enough, it retires the channel that it reads from. The filter above finds its channel
//! closed and leaves, which closes the channel that it read from: so the end travels up the chain to the
//! numbers.
//!
//! Run it: `cargo run --release --example sieve [how many]`

use std::time::Instant;

use dunlin::prelude::*;

/// Sends 2, 3, 4 and so on until its channel closes.
async fn numbers(mut to: Sender<u64>) -> Result {
    for n in 2.. {
        to.send(n).await?;
    }
    Ok(())
}

/// Forwards the numbers that `prime` does not divide.
async fn filter(prime: u64, mut from: Receiver<u64>, mut to: Sender<u64>) -> Result {
    while let Some(n) = from.next().await? {
        if n % prime != 0 {
            to.send(n).await?;
        }
    }
    Ok(())
}

/// The first `count` primes. When this returns, every stage of the pipeline has ended.
pub(crate) async fn primes(count: usize) -> Result<Vec<u64>> {
    let (to_first, mut from) = channel();
    let mut stages = vec![spawn(numbers(to_first))];
    let mut found = Vec::new();
    while found.len() < count {
        let prime = from.recv().await?;
        found.push(prime);
        let (to, next) = channel();
        stages.push(spawn(filter(prime, from, to)));
        from = next;
    }
    from.retire();
    for stage in stages {
        match stage.await? {
            Err(error) if error.is_closed() => {} // no stage below needs more: the expected end
            other => other?,
        }
    }
    Ok(found)
}

#[dunlin::main]
async fn main() -> Result {
    let count = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(5_134);
    let began = Instant::now();
    let found = primes(count).await?;
    if count == 5_134 {
        assert_eq!(found.last(), Some(&50_021));
    }
    println!("{} primes, a process for each, all of them ended after {:.1?}", found.len(), began.elapsed());
    if let Some(last) = found.last() {
        println!("the last prime is {last}");
    }
    Ok(())
}
