//! What plain sockets of tokio's do of the same: with one for each worker, or with one for each node, as somebody would write it who has no channels.
//!
//! A message has its length in four bytes before it; on a socket that several workers use, the worker's number is its first four bytes. There, a task writes for
//! all of them, small messages together; and all who read, read as much as is there.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use bytes::{Buf, BufMut, Bytes};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::run::{Counts, Gate, Task};
use crate::remote::TCP_ACKED;
use crate::remote::over_tcp::{self, LENGTH};

/// One socket for each node.
pub(super) const MUX: &str = "tokio tcp, a socket for each node";
/// One for each worker.
pub(super) const EACH: &str = "tokio tcp, a socket for each worker";

/// Of the number of a worker.
const NUMBER: usize = 4;
/// What is smaller is worth copying: then it is written, or read, together with others.
const SMALL: usize = 16 * 1024;
/// So much is written or read together.
const TOGETHER: usize = 64 * 1024;
/// So many messages of a node may wait to be written.
const WAITING: usize = 64;

/// What goes over the sockets for so many messages, in both directions.
pub(super) fn carried(task: &Task, messages: u64) -> u64 {
    let acknowledgement = u64::from(task.who == TCP_ACKED);
    messages * (LENGTH as u64 + task.payload() as u64 + acknowledgement)
}

/// Receives for ever.
pub(super) async fn master(task: Task, listener: std::net::TcpListener, counts: Counts) -> Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let (size, is_mux) = (task.payload(), task.who == MUX);
    let (sockets, size_max) = if is_mux { (task.nodes, NUMBER + size) } else { (task.nodes * task.workers, size) };
    // Before anybody receives: who is busy with the first ones does not get to the others.
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

/// Sends as the gate says.
pub(super) async fn node(task: Task, master: SocketAddr, gate: Gate) -> Result<()> {
    let mut sends = JoinSet::new();
    if task.who == MUX {
        let (messages, all) = mpsc::channel(WAITING);
        sends.spawn(write(TcpStream::connect(master).await?, all));
        let payload = Bytes::from(vec![7; task.payload()]);
        for worker in 0..task.workers {
            let (messages, payload) = (messages.clone(), payload.clone());
            let mut gate = gate.clone();
            sends.spawn(async move {
                loop {
                    gate.open().await?;
                    messages.send((worker as u32, payload.clone())).await?;
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

/// Writes what all workers of a node send.
async fn write(mut stream: TcpStream, mut messages: mpsc::Receiver<(u32, Bytes)>) -> Result<()> {
    stream.set_nodelay(true)?;
    let (mut waiting, mut together) = (Vec::with_capacity(WAITING), Vec::with_capacity(TOGETHER + SMALL));
    while messages.recv_many(&mut waiting, WAITING).await > 0 {
        for (worker, payload) in waiting.drain(..) {
            together.put_u32_le((NUMBER + payload.len()) as u32);
            together.put_u32_le(worker);
            if payload.len() <= SMALL {
                together.put_slice(&payload);
            } else {
                stream.write_all_buf(&mut together.as_slice().chain(payload)).await?;
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
