//! A small ping beside a large transfer; and local work beside nothing, beside a node, beside a ping.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use dunlin::prelude::*;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;

use super::over_dunlin::{join, names};
use super::programs::{Message, pong, sink, stream, warm_up};
use super::sides::Sides;
use super::{Side, TCP, on_workers, over_tcp};
use crate::dunlin_side::commstime;
use crate::program::Program;
use crate::programs::nanoseconds_each;

/// The ping has its own pair of nodes, and so its own socket.
pub(crate) const OWN_SOCKET: &str = "dunlin, own socket";
/// Ping and transfer are channels between the same two nodes.
pub(crate) const SAME_SOCKET: &str = "dunlin, same connection";
pub(super) const REMOTE: [&str; 3] = [OWN_SOCKET, SAME_SOCKET, TCP];

/// Local work without a node.
pub(crate) const ALONE: &str = "dunlin par";
pub(crate) const WITH_NODE: &str = "dunlin par, with a node";
pub(crate) const BESIDE_PING: &str = "dunlin par, beside a remote ping";
/// Without a node; the ping uses a tokio socket. It shows what two more busy processes cost by themselves.
pub(crate) const BESIDE_TCP: &str = "dunlin par, beside a tokio tcp ping";
pub(super) const LOCAL: [&str; 4] = [ALONE, WITH_NODE, BESIDE_PING, BESIDE_TCP];

/// Bytes of a ping.
const PING: usize = 8;

/// The figure of the ping or of the transfer: nanoseconds per round trip, or per message.
fn figure(side: &Side, start: Instant, trips: u64) -> Result<f64> {
    ensure!(trips > 0, "the transfer was over before the first ping");
    let events = if side.program == Program::RemoteBeside { trips } else { warm_up(side.n) + side.n };
    Ok(nanoseconds_each(start.elapsed(), events))
}

pub(super) fn run(side: &Side) -> Result<f64> {
    if side.who == TCP {
        return over_sockets(side);
    }
    let names = names(side)?;
    let mut sides = Sides::start(side.leads(), 2, &names)?;
    sides.meet(side.leads(), "here", |_| ())?;
    let side = side.clone();
    on_workers(side.threads, async move {
        let node = join(&names).await?;
        let pinging = if side.who == SAME_SOCKET { node.clone() } else { join(&names).await? };
        if !side.leads() {
            let input = pinging.receiver::<Bytes>("there").await?;
            tokio::spawn(pong(input, pinging.sender::<Bytes>("back").await?));
            let input = node.receiver::<Bytes>("bulk").policy(fifo(4)).await?;
            sink(input, node.sender::<u64>("done").await?, side.size, side.n).await?;
        }
        let mut there = pinging.sender::<Bytes>("there").await?;
        let mut back = pinging.receiver::<Bytes>("back").await?;
        let mut ping = Some(Bytes::of(PING));
        for _ in 0..100 {
            there.send(ping.take().context("it came back")?).await?;
            ping = Some(back.recv().await?);
        }
        let output = node.sender::<Bytes>("bulk").await?;
        let done = node.receiver::<u64>("done").await?;
        let transfer = tokio::spawn(stream(output, done, side.size, side.n));
        let (start, mut trips) = (Instant::now(), 0);
        while !transfer.is_finished() {
            there.send(ping.take().context("it came back")?).await?;
            ping = Some(back.recv().await?);
            trips += 1;
        }
        let figure = figure(&side, start, trips);
        transfer.await??;
        figure
    })
}

fn over_sockets(side: &Side) -> Result<f64> {
    let mut sides = Sides::start(side.leads(), 2, "")?;
    let (listener, all) = over_tcp::meet(side.leads(), &mut sides, |_| ())?;
    let side = side.clone();
    on_workers(side.threads, async move {
        let listener = TcpListener::from_std(listener)?;
        let n = warm_up(side.n) + side.n;
        if !side.leads() {
            let (mut pings, mut pongs) = over_tcp::both_ways(listener.accept().await?.0, PING)?;
            let (mut input, mut done) = over_tcp::both_ways(listener.accept().await?.0, side.size)?;
            tokio::spawn(async move {
                loop {
                    pongs.send(pings.next().await?).await?;
                }
                #[expect(unreachable_code, reason = "it says what the block's type is")]
                Ok::<(), anyhow::Error>(())
            });
            for _ in 0..n {
                input.next().await?;
            }
            done.send(&over_tcp::message(0)).await?;
            return std::future::pending().await;
        }
        let (mut pongs, mut pings) = over_tcp::both_ways(TcpStream::connect(all[1]).await?, PING)?;
        let (mut done, mut output) = over_tcp::both_ways(TcpStream::connect(all[1]).await?, 0)?;
        let transfer = tokio::spawn(async move {
            let message = over_tcp::message(side.size);
            for _ in 0..n {
                output.send(&message).await?;
            }
            done.next().await?;
            Ok::<(), anyhow::Error>(())
        });
        let message = over_tcp::message(PING);
        let (start, mut trips) = (Instant::now(), 0);
        while !transfer.is_finished() {
            pings.send(&message).await?;
            pongs.next().await?;
            trips += 1;
        }
        let figure = figure(&side, start, trips);
        transfer.await??;
        figure
    })
}

/// Commstime in `par!` on the main thread; the node runs only on the runtime's workers.
pub(super) fn local(side: &Side) -> Result<f64> {
    let names = names(side)?;
    let (pings, tcp_pings) = (side.who == BESIDE_PING, side.who == BESIDE_TCP);
    let mut sides = Sides::start(side.leads(), if pings || tcp_pings { 2 } else { 1 }, &names)?;
    let (listener, all) = over_tcp::meet(side.leads(), &mut sides, |_| ())?;
    let runtime = Builder::new_multi_thread().worker_threads(side.threads).enable_all().build()?;
    if tcp_pings {
        // As many as the time allows.
        let (endless, other) = (Side { n: u64::MAX / 2, ..side.clone() }, all[1]);
        let ping = async move { over_tcp::pingpong(&endless, &TcpListener::from_std(listener)?, other).await };
        if !side.leads() {
            return runtime.block_on(ping);
        }
        runtime.spawn(ping);
    }
    let node =
        [WITH_NODE, BESIDE_PING].contains(&side.who.as_str()).then(|| runtime.block_on(join(&names))).transpose()?;
    if let Some(node) = node.clone().filter(|_| pings) {
        if !side.leads() {
            return runtime.block_on(async {
                let input = node.receiver::<Bytes>("there").await?;
                pong(input, node.sender::<Bytes>("back").await?).await.map(|()| 0.0)
            });
        }
        let (mut there, mut back) = runtime.block_on(async {
            let mut there = node.sender::<Bytes>("there").await?;
            let mut back = node.receiver::<Bytes>("back").await?;
            there.send(Bytes::of(PING)).await?;
            back.recv().await?;
            Ok::<_, anyhow::Error>((there, back))
        })?;
        runtime.spawn(async move {
            let mut ping = Bytes::of(PING);
            loop {
                // The send fails when this process ends.
                let Ok(()) = there.send(ping).await else { return };
                let Ok(back) = back.recv().await else { return };
                ping = back;
            }
        });
    }
    let time = runtime.block_on(commstime(side.n));
    drop(node);
    runtime.shutdown_background();
    Ok(nanoseconds_each(time, 4 * side.n))
}
