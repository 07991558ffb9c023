//! Counts the words of a text with processes that find their channels by name in a scope, some of them on
//! threads of their own.
//!
//! ```text
//!           ┌─▶ counter ─┐
//!   main ───┼─▶ counter ─┼──▶ adder      "lines": a buffer of 8; "counts": left when the last counter has left
//!  "lines"  └─▶ counter ─┘ "counts"
//! ```
//!
//! Run it: `cargo run --release --example scopes [file]`

use dunlin::prelude::*;

/// Every copy of this program includes the licence, so it is the default text.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../LICENSE-APACHE");

#[dunlin::main]
async fn main() -> Result {
    let file = std::env::args().nth(1).unwrap_or(FILE.to_owned());
    let text = blocking(move |_| std::fs::read_to_string(file)).await??;
    println!("{} words", words(&text, 3).await?);
    Ok(())
}

#[process(propagate)] // a poisoned text poisons the counts
async fn counter(
    #[receiver("lines", fifo(8))] mut lines: Shared<Receiver<String>>,
    #[sender("counts")] mut counts: Shared<Sender<usize>>,
) -> Result {
    let mut n = 0;
    while let Some(line) = lines.next().await? {
        n += line.split_whitespace().count();
    }
    Ok(counts.send(n).await?)
}

#[process]
async fn adder(#[receiver("counts")] mut counts: Receiver<usize>) -> Result<usize> {
    let mut sum = 0;
    while let Some(n) = counts.next().await? {
        sum += n;
    }
    Ok(sum)
}

/// The number of words of `text`, counted by this many processes on two threads.
pub(crate) async fn words(text: &str, counters: usize) -> Result<usize> {
    let scope = Scope::new();
    scope.name::<usize>("counts", fifo(1)); // declared here, so that the place within shares it
    let desk = scope.on(Place::workers(2).named("desk"));
    let mut lines = desk.sender::<String>("lines").await?;
    let sum = scope.fork(adder());
    desk.fork_n(counters, counter); // all have joined before the first can leave
    for line in text.lines() {
        lines.send(line.to_owned()).await?;
    }
    drop(lines);
    scope.finish(Duration::from_secs(10)).await?;
    sum.await?
}
