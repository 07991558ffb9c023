//! The processes of the sides, written once for all participants with channels.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

pub(crate) trait Tx<M> {
    fn send(&mut self, message: M) -> impl Future<Output = Result<()>> + Send;
}

pub(crate) trait Rx<M> {
    fn recv(&mut self) -> impl Future<Output = Result<M>> + Send;
}

/// The type of the messages.
pub(crate) trait Message: Clone + Send + Sync + 'static {
    /// A message with this many bytes.
    fn of(size: usize) -> Self;
    fn size(&self) -> usize;
}

impl Message for Bytes {
    fn of(size: usize) -> Self {
        vec![7; size].into()
    }

    fn size(&self) -> usize {
        self.len()
    }
}

impl Message for Vec<u8> {
    fn of(size: usize) -> Self {
        vec![7; size]
    }

    fn size(&self) -> usize {
        self.len()
    }
}

/// A typical struct: some fields, one of them with bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    number: u64,
    name: String,
    body: Bytes,
}

impl Message for Record {
    fn of(size: usize) -> Self {
        Self { number: 7, name: "krill".to_owned(), body: Bytes::of(size) }
    }

    fn size(&self) -> usize {
        self.body.len()
    }
}

/// The number of messages before the measured ones: connections are opened when they are first needed.
pub(crate) fn warm_up(n: u64) -> u64 {
    n / 10 + 1
}

/// Makes round trips with one message.
pub(crate) async fn ping<M: Message>(
    mut there: impl Tx<M>,
    mut back: impl Rx<M>,
    size: usize,
    n: u64,
) -> Result<Duration> {
    let mut message = M::of(size);
    let mut start = Instant::now();
    for trip in 0..warm_up(n) + n {
        if trip == warm_up(n) {
            start = Instant::now();
        }
        there.send(message).await?;
        message = back.recv().await?;
        ensure!(message.size() == size, "a message of {} bytes came back", message.size());
    }
    Ok(start.elapsed())
}

/// Returns each message that it receives, without end.
pub(crate) async fn pong<M>(mut input: impl Rx<M>, mut output: impl Tx<M>) -> Result<()> {
    loop {
        output.send(input.recv().await?).await?;
    }
}

/// Sends messages until the other side reports that it has them all.
pub(crate) async fn stream<M: Message>(
    mut output: impl Tx<M>,
    mut done: impl Rx<u64>,
    size: usize,
    n: u64,
) -> Result<Duration> {
    let message = M::of(size);
    let mut start = Instant::now();
    for count in [warm_up(n), n] {
        start = Instant::now();
        for _ in 0..count {
            output.send(message.clone()).await?;
        }
        ensure!(done.recv().await? == count, "messages were lost");
    }
    Ok(start.elapsed())
}

/// The other side of [`stream`].
pub(crate) async fn sink<M: Message>(mut input: impl Rx<M>, mut done: impl Tx<u64>, size: usize, n: u64) -> Result<()> {
    for count in [warm_up(n), n] {
        for _ in 0..count {
            let message = input.recv().await?;
            ensure!(message.size() == size, "a message of {} bytes has arrived", message.size());
        }
        done.send(count).await?;
    }
    // If this process ended now, its connection would end with the message that it has just sent.
    std::future::pending().await
}

/// Sends a zero, then forwards the values that it receives.
pub(crate) async fn prefix(mut input: impl Rx<u64>, mut output: impl Tx<u64>) -> Result<()> {
    output.send(0).await?;
    loop {
        output.send(input.recv().await?).await?;
    }
}

/// Sends each received value to both outputs, one after the other.
pub(crate) async fn delta(mut input: impl Rx<u64>, mut first: impl Tx<u64>, mut second: impl Tx<u64>) -> Result<()> {
    loop {
        let value = input.recv().await?;
        first.send(value).await?;
        second.send(value).await?;
    }
}

/// Sends each received value plus one.
pub(crate) async fn successor(mut input: impl Rx<u64>, mut output: impl Tx<u64>) -> Result<()> {
    loop {
        output.send(input.recv().await? + 1).await?;
    }
}

/// Receives 0, 1, ...
pub(crate) async fn consumer(mut input: impl Rx<u64>, n: u64) -> Result<Duration> {
    let mut start = Instant::now();
    for expected in 0..warm_up(n) + n {
        if expected == warm_up(n) {
            start = Instant::now();
        }
        let value = input.recv().await?;
        ensure!(value == expected, "{value} came in place of {expected}");
    }
    Ok(start.elapsed())
}
