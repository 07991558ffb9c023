//! The same over plain tokio sockets: one for each worker, or one for each node, as in a program without
//! channels.
//!
//! The length of a message, in four bytes, precedes it; on a socket that several workers use, the worker's
//! number is its first four bytes. On such a socket, one task writes for all workers, small messages
//! together. All readers read as much as is available.
//!
//! Two participants do more, as a channel has to. [`ANSWERED`]: the master answers each message with its
//! worker's number, in one piece for messages that it read together, and a worker sends the next message
//! after the answer to its last one. [`OWNED`]: each message is passed in its own buffer to a task that
//! receives all messages.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;

use super::task::{Counts, Gate, Task};
use crate::remote::TCP_ACKED;
use crate::remote::over_tcp::{self, LENGTH};

/// One socket for each node.
pub(super) const MUX: &str = "tokio tcp, a socket for each node";
/// One socket for each worker.
pub(super) const EACH: &str = "tokio tcp, a socket for each worker";

/// One socket for each node, on which each message is answered.
pub(super) const ANSWERED: &str = "tokio tcp, a socket for each node, answered";
/// One socket for each worker, whose messages are passed to another task.
pub(super) const OWNED: &str = "tokio tcp, a socket for each worker, owned buffers over mpsc(16)";

/// The bytes of a worker's number.
const NUMBER: usize = 4;
/// Smaller messages are worth copying, to write or read them together with others.
const SMALL: usize = 16 * 1024;
/// How many bytes are written or read together.
const TOGETHER: usize = 64 * 1024;
/// How many messages of a node may wait to be written.
const WAITING: usize = 64;
/// How many messages in their own buffers may wait to be received.
const OWNED_MAX: usize = 16;

/// The bytes on the sockets for this many messages, in both directions.
pub(super) fn carried(task: &Task, messages: u64) -> u64 {
    let acknowledgement = u64::from(task.who == TCP_ACKED);
    messages * (LENGTH as u64 + task.payload() as u64 + acknowledgement)
}

/// Receives for ever.
pub(super) async fn master(task: Task, listener: std::net::TcpListener, counts: Counts) -> Result<()> {
    let listener = TcpListener::from_std(listener)?;
    match &*task.who {
        ANSWERED => return answering_master(task, listener, counts).await,
        OWNED => return owning_master(task, listener, counts).await,
        _ => {}
    }
    let (size, is_mux) = (task.payload(), task.who == MUX);
    let (sockets, size_max) = if is_mux { (task.nodes, NUMBER + size) } else { (task.nodes * task.workers, size) };
    // Before the first receive: a task that is busy with the first sockets does not reach the others.
    let mut inputs = Vec::new();
    for _ in 0..sockets {
        let input = over_tcp::input(&listener, size_max, task.who == TCP_ACKED).await?;
        inputs.push(if size <= SMALL { input.reading_ahead(TOGETHER) } else { input });
    }
    let mut receives = JoinSet::new();
    for (number, mut input) in inputs.into_iter().enumerate() {
        let counts = counts.clone();
        if is_mux {
            let first = number * task.workers;
            receives.spawn(async move {
                loop {
                    let mut message = &input.next().await?[LENGTH..];
                    ensure!(message.len() == NUMBER + size, "another message has arrived");
                    counts.one(first + message.get_u32_le() as usize);
                }
            });
        } else {
            receives.spawn(async move {
                loop {
                    ensure!(input.next().await?.len() == LENGTH + size, "another message has arrived");
                    counts.one(number);
                }
            });
        }
    }
    receives.join_next().await.context("there is nobody to receive from")??
}

/// Receives for ever, and answers the messages of one read in one piece.
async fn answering_master(task: Task, listener: TcpListener, counts: Counts) -> Result<()> {
    let size = task.payload();
    let mut receives = JoinSet::new();
    for node in 0..task.nodes {
        let (stream, _) = listener.accept().await?;
        let (counts, first) = (counts.clone(), node * task.workers);
        receives.spawn(async move {
            stream.set_nodelay(true)?;
            let (read, mut write) = stream.into_split();
            let (mut messages, mut answers) = (Messages::new(read, NUMBER + size), BytesMut::new());
            loop {
                let mut message = messages.next().await?;
                loop {
                    ensure!(message.len() == NUMBER + size, "another message has arrived");
                    let worker = message.get_u32_le();
                    counts.one(first + worker as usize);
                    answers.put_u32_le(worker);
                    match messages.arrived() {
                        Some(next) => message = next,
                        None => break,
                    }
                }
                write.write_all_buf(&mut answers).await?;
            }
        });
    }
    receives.join_next().await.context("there is nobody to receive from")??
}

/// Receives for ever the messages that a task for each socket passes on.
async fn owning_master(task: Task, listener: TcpListener, counts: Counts) -> Result<()> {
    let size = task.payload();
    let (hands_on, mut all) = mpsc::channel::<(usize, Bytes)>(OWNED_MAX);
    let mut receives = JoinSet::new();
    for worker in 0..task.nodes * task.workers {
        let (stream, _) = listener.accept().await?;
        let hands_on = hands_on.clone();
        receives.spawn(async move {
            stream.set_nodelay(true)?;
            let mut messages = Messages::new(stream.into_split().0, size);
            loop {
                hands_on.send((worker, messages.next().await?)).await?;
            }
        });
    }
    receives.spawn(async move {
        while let Some((worker, message)) = all.recv().await {
            ensure!(message.len() == size, "another message has arrived");
            counts.one(worker);
        }
        Ok(())
    });
    receives.join_next().await.context("there is nobody to receive from")??
}

/// The messages that arrive on a socket, each in its own buffer.
struct Messages {
    stream: OwnedReadHalf,
    buffer: BytesMut,
    /// How many bytes to reserve.
    room: usize,
}

impl Messages {
    fn new(stream: OwnedReadHalf, size_max: usize) -> Self {
        Self { stream, buffer: BytesMut::new(), room: TOGETHER.max(LENGTH + size_max) }
    }

    /// The next message, if it has arrived completely.
    fn arrived(&mut self) -> Option<Bytes> {
        let length = u32::from_le_bytes(*self.buffer.first_chunk::<LENGTH>()?) as usize;
        (self.buffer.len() >= LENGTH + length).then(|| {
            self.buffer.advance(LENGTH);
            self.buffer.split_to(length).freeze()
        })
    }

    async fn next(&mut self) -> Result<Bytes> {
        loop {
            if let Some(message) = self.arrived() {
                return Ok(message);
            }
            if self.buffer.capacity() - self.buffer.len() < SMALL || self.buffer.capacity() < self.room {
                self.buffer.reserve(self.room - self.buffer.len());
            }
            ensure!(self.stream.read_buf(&mut self.buffer).await? > 0, "the socket has ended");
        }
    }
}

/// Sends when the gate is open.
pub(super) async fn node(task: Task, master: SocketAddr, gate: Gate) -> Result<()> {
    let mut sends = JoinSet::new();
    if task.who == MUX || task.who == ANSWERED {
        let (messages, all) = mpsc::channel(WAITING);
        let (read, to_master) = TcpStream::connect(master).await?.into_split();
        sends.spawn(write(to_master, all));
        let answered: Option<Arc<[Notify]>> =
            (task.who == ANSWERED).then(|| (0..task.workers).map(|_| Notify::new()).collect());
        if let Some(answered) = answered.clone() {
            sends.spawn(hear_answers(read, answered));
        }
        let payload = Bytes::from(vec![7; task.payload()]);
        for worker in 0..task.workers {
            let (messages, payload, answered) = (messages.clone(), payload.clone(), answered.clone());
            let mut gate = gate.clone();
            sends.spawn(async move {
                loop {
                    gate.open().await?;
                    messages.send((worker as u32, payload.clone())).await?;
                    if let Some(answered) = &answered {
                        answered[worker].notified().await;
                    }
                }
            });
        }
    } else {
        let mut outputs = Vec::new();
        for _ in 0..task.workers {
            outputs.push(over_tcp::output(master, task.who == TCP_ACKED).await?);
        }
        for mut output in outputs {
            let message = over_tcp::message(task.payload());
            let mut gate = gate.clone();
            sends.spawn(async move {
                loop {
                    gate.open().await?;
                    output.send(&message).await?;
                }
            });
        }
    }
    sends.join_next().await.context("there is nobody to send")??
}

/// Wakes each worker whose message has been answered.
async fn hear_answers(mut stream: OwnedReadHalf, answered: Arc<[Notify]>) -> Result<()> {
    let mut answers = BytesMut::with_capacity(TOGETHER);
    loop {
        ensure!(stream.read_buf(&mut answers).await? > 0, "the socket has ended");
        while answers.len() >= NUMBER {
            answered[answers.get_u32_le() as usize].notify_one();
        }
        answers.reserve(TOGETHER);
    }
}

/// Writes the messages of all workers of a node.
async fn write(mut stream: OwnedWriteHalf, mut messages: mpsc::Receiver<(u32, Bytes)>) -> Result<()> {
    stream.as_ref().set_nodelay(true)?;
    let (mut waiting, mut together) = (Vec::with_capacity(WAITING), Vec::with_capacity(TOGETHER + SMALL));
    while messages.recv_many(&mut waiting, WAITING).await > 0 {
        for (worker, payload) in waiting.drain(..) {
            together.put_u32_le((NUMBER + payload.len()) as u32);
            together.put_u32_le(worker);
            if payload.len() <= SMALL {
                together.put_slice(&payload);
            } else {
                stream.write_all_buf(&mut Buf::chain(together.as_slice(), payload)).await?;
                together.clear();
            }
            if together.len() >= TOGETHER {
                stream.write_all(&together).await?;
                together.clear();
            }
        }
        stream.write_all(&together).await?;
        together.clear();
    }
    Ok(())
}
