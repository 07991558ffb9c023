//! Channels over separate links, one for each node (feature `link`).

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use dunlin::node::link::Link;
use dunlin::{fifo, rendezvous};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::task::{Counts, Gate, Task};
use crate::remote::over_link::served;

/// Each send is a rendezvous, and the master has a process for each channel.
pub(super) const LINK: &str = "link";
/// The same with room for 16 messages in each channel.
pub(super) const LINK_FIFO: &str = "link, fifo(16)";

/// Receives for ever.
pub(super) async fn master(task: Task, listener: std::net::TcpListener, counts: Counts) -> Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let mut receives = JoinSet::new();
    // The links live as long as this function runs.
    let mut links: Vec<Link> = Vec::new();
    for _ in 0..task.nodes {
        let (mut socket, _) = listener.accept().await?;
        let first = socket.read_u32().await? as usize * task.workers;
        let link = served(socket)?;
        for worker in 0..task.workers {
            let policy = if task.who == LINK_FIFO { fifo(16) } else { rendezvous() };
            let mut receiver = link.receiver_with::<Bytes>(worker as u64, policy);
            let (counts, payload) = (counts.clone(), task.payload());
            receives.spawn(async move {
                loop {
                    ensure!(receiver.recv().await?.len() == payload, "another message has arrived");
                    counts.one(first + worker);
                }
            });
        }
        links.push(link);
    }
    receives.join_next().await.context("there is nobody to receive from")??
}

/// Sends when the gate is open.
pub(super) async fn node(task: Task, master: SocketAddr, gate: Gate) -> Result<()> {
    let mut socket = TcpStream::connect(master).await?;
    socket.write_u32(task.role as u32 - 1).await?;
    let link = served(socket)?;
    let message = Bytes::from(vec![7; task.payload()]);
    let mut sends = JoinSet::new();
    for worker in 0..task.workers {
        let mut output = link.sender::<Bytes>(worker as u64);
        let (message, mut gate) = (message.clone(), gate.clone());
        sends.spawn(async move {
            loop {
                gate.open().await?;
                output.send(message.clone()).await.map_err(|error| anyhow::anyhow!("{error}"))?;
            }
        });
    }
    sends.join_next().await.context("there is nobody to send")??
}
