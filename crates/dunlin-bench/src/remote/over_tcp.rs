//! tokio sockets, with `TCP_NODELAY`: a message is its length in four bytes and then its bytes. Buffers are
//! reused. A message is written in one piece, and read together with the length of the next one: one call to
//! the kernel each, where the kernel allows it.

use std::net::SocketAddr;
use std::time::Instant;

use anyhow::{Result, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use super::programs::{Rx, Tx, consumer, delta, prefix, successor, warm_up};
use super::sides::Sides;
use super::{Side, TCP_ACKED, on_workers};
use crate::program::Program;
use crate::programs::nanoseconds_each;

pub(crate) const LENGTH: usize = 4;

/// The receiving direction of a socket.
pub(crate) struct Input {
    stream: OwnedReadHalf,
    /// If set, each message is answered with a byte.
    answers: Option<OwnedWriteHalf>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    fn new(stream: OwnedReadHalf, size_max: usize) -> Self {
        Self { stream, answers: None, buffer: vec![0; LENGTH + size_max + LENGTH], start: 0, end: 0 }
    }

    /// Reads up to this many bytes at once, if a message has fewer.
    pub(crate) fn reading_ahead(mut self, bytes: usize) -> Self {
        self.buffer.resize(self.buffer.len().max(bytes), 0);
        self
    }

    /// The next message as it was sent, with its length.
    pub(crate) async fn next(&mut self) -> Result<&[u8]> {
        loop {
            let arrived = &self.buffer[self.start..self.end];
            if let Some(length) = arrived.first_chunk::<LENGTH>() {
                let whole = LENGTH + u32::from_le_bytes(*length) as usize;
                ensure!(whole <= self.buffer.len(), "a message of {whole} bytes");
                if arrived.len() >= whole {
                    let start = self.start;
                    self.start += whole;
                    if let Some(answers) = &mut self.answers {
                        answers.write_all(&[1]).await?;
                    }
                    return Ok(&self.buffer[start..start + whole]);
                }
            }
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            match self.stream.read(&mut self.buffer[self.end..]).await? {
                0 => bail!("the socket has ended"),
                n => self.end += n,
            }
        }
    }
}

/// The sending direction of a socket.
pub(crate) struct Output {
    stream: OwnedWriteHalf,
    answers: Option<OwnedReadHalf>,
}

impl Output {
    /// Sends a message that includes its length.
    pub(crate) async fn send(&mut self, message: &[u8]) -> Result<()> {
        self.stream.write_all(message).await?;
        if let Some(answers) = &mut self.answers {
            answers.read_exact(&mut [0]).await?;
        }
        Ok(())
    }
}

pub(crate) fn message(size: usize) -> Vec<u8> {
    let mut message = (size as u32).to_le_bytes().to_vec();
    message.resize(LENGTH + size, 7);
    message
}

impl Rx<u64> for Input {
    async fn recv(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.next().await?[LENGTH..].try_into()?))
    }
}

impl Tx<u64> for Output {
    async fn send(&mut self, value: u64) -> Result<()> {
        let mut message = [0; LENGTH + 8];
        message[0] = 8;
        message[LENGTH..].copy_from_slice(&value.to_le_bytes());
        Self::send(self, &message).await
    }
}

/// Both directions of a socket.
pub(crate) fn both_ways(stream: TcpStream, size_max: usize) -> Result<(Input, Output)> {
    stream.set_nodelay(true)?;
    let (read, write) = stream.into_split();
    Ok((Input::new(read, size_max), Output { stream: write, answers: None }))
}

/// A socket that is used only in this direction, except for the answers.
pub(crate) async fn input(listener: &TcpListener, size_max: usize, acked: bool) -> Result<Input> {
    let (stream, _) = listener.accept().await?;
    let (mut input, output) = both_ways(stream, size_max)?;
    input.answers = acked.then_some(output.stream);
    Ok(input)
}

pub(crate) async fn output(to: SocketAddr, acked: bool) -> Result<Output> {
    let (input, mut output) = both_ways(TcpStream::connect(to).await?, 0)?;
    output.answers = acked.then_some(input.stream);
    Ok(output)
}

/// The addresses of all sides, and the listener of this one.
pub(crate) fn meet(
    leads: bool,
    sides: &mut Sides,
    told: impl FnMut(&str) + Send + 'static,
) -> Result<(std::net::TcpListener, Vec<SocketAddr>)> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let all = sides.meet(leads, &listener.local_addr()?.to_string(), told)?;
    Ok((listener, all.iter().map(|address| address.parse()).collect::<Result<_, _>>()?))
}

pub(super) fn run(side: &Side) -> Result<f64> {
    let count = if side.program == Program::RemoteCommstime { 4 } else { 2 };
    let mut sides = Sides::start(side.leads(), count, "")?;
    let (listener, all) = meet(side.leads(), &mut sides, |_| ())?;
    let acked = side.who == TCP_ACKED;
    let side = side.clone();
    on_workers(side.threads, async move {
        let listener = TcpListener::from_std(listener)?;
        match side.program {
            Program::RemoteCommstime => commstime(&side, &listener, &all, acked).await,
            Program::RemotePingpong | Program::RemoteLink => pingpong(&side, &listener, all[1]).await,
            Program::RemoteThroughput => throughput(&side, &listener, all[1], acked).await,
            program => bail!("there is no {program} over sockets"),
        }
    })
}

pub(super) async fn pingpong(side: &Side, listener: &TcpListener, other: SocketAddr) -> Result<f64> {
    if !side.leads() {
        let (mut input, mut output) = both_ways(listener.accept().await?.0, side.size)?;
        loop {
            output.send(input.next().await?).await?;
        }
    }
    let (mut input, mut output) = both_ways(TcpStream::connect(other).await?, side.size)?;
    let message = message(side.size);
    let mut start = Instant::now();
    for trip in 0..warm_up(side.n) + side.n {
        if trip == warm_up(side.n) {
            start = Instant::now();
        }
        output.send(&message).await?;
        ensure!(input.next().await?.len() == message.len(), "another message came back");
    }
    Ok(nanoseconds_each(start.elapsed(), side.n))
}

async fn throughput(side: &Side, listener: &TcpListener, other: SocketAddr, acked: bool) -> Result<f64> {
    let counts = [warm_up(side.n), side.n];
    if !side.leads() {
        let mut input = input(listener, side.size, acked).await?;
        let (_, mut done) = both_ways(listener.accept().await?.0, 0)?;
        for count in counts {
            for _ in 0..count {
                ensure!(input.next().await?.len() == LENGTH + side.size, "another message has arrived");
            }
            Tx::send(&mut done, count).await?;
        }
        return std::future::pending().await;
    }
    let mut output = output(other, acked).await?;
    let (mut done, _) = both_ways(TcpStream::connect(other).await?, 8)?;
    let message = message(side.size);
    let mut start = Instant::now();
    for count in counts {
        start = Instant::now();
        for _ in 0..count {
            output.send(&message).await?;
        }
        ensure!(done.recv().await? == count, "messages were lost");
    }
    Ok(nanoseconds_each(start.elapsed(), side.n))
}

/// The sides are consumer, prefix, delta, successor. Each has one input.
async fn commstime(side: &Side, listener: &TcpListener, all: &[SocketAddr], acked: bool) -> Result<f64> {
    let input = || input(listener, 8, acked);
    let output = |role: usize| output(all[role], acked);
    match side.role {
        0 => return Ok(nanoseconds_each(consumer(input().await?, side.n).await?, 4 * side.n)),
        1 => {
            let output = output(2).await?;
            prefix(input().await?, output).await?;
        }
        2 => {
            let (first, second) = (output(3).await?, output(0).await?);
            delta(input().await?, first, second).await?;
        }
        _ => {
            let output = output(1).await?;
            successor(input().await?, output).await?;
        }
    }
    Ok(0.0)
}
