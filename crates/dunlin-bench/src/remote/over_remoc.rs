//! remoc: its base channel over a socket, the minimum of its remote channels. A send returns when its message
//! is in flight.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use remoc::RemoteSend;
use remoc::rch::base;
use tokio::net::{TcpListener, TcpStream};

use super::programs::{Message, Record, Rx, Tx, consumer, delta, ping, pong, prefix, sink, stream, successor};
use super::sides::Sides;
use super::{Side, on_workers, over_tcp};
use crate::program::Program;
use crate::programs::nanoseconds_each;

impl<M: RemoteSend> Tx<M> for base::Sender<M> {
    async fn send(&mut self, message: M) -> Result<()> {
        self.send(message).await.map_err(|error| anyhow::anyhow!("{error}"))
    }
}

impl<M: RemoteSend> Rx<M> for base::Receiver<M> {
    async fn recv(&mut self) -> Result<M> {
        self.recv().await?.context("the channel has ended")
    }
}

async fn channels<There: RemoteSend, Back: RemoteSend>(
    stream: TcpStream,
) -> Result<(base::Sender<There>, base::Receiver<Back>)> {
    stream.set_nodelay(true)?;
    let (read, write) = stream.into_split();
    let (connection, there, back) = remoc::Connect::io(remoc::Cfg::default(), read, write).await?;
    tokio::spawn(connection);
    Ok((there, back))
}

async fn dial<There: RemoteSend, Back: RemoteSend>(
    to: SocketAddr,
) -> Result<(base::Sender<There>, base::Receiver<Back>)> {
    channels(TcpStream::connect(to).await?).await
}

async fn accept<There: RemoteSend, Back: RemoteSend>(
    listener: &TcpListener,
) -> Result<(base::Sender<There>, base::Receiver<Back>)> {
    channels(listener.accept().await?.0).await
}

/// Both ends of a channel over its own socket. The unused halves of the socket's two channels are kept too.
pub(crate) async fn pair(listener: &TcpListener) -> Result<(base::Sender<u64>, Kept)> {
    let address = listener.local_addr()?;
    let (dialled, accepted) = tokio::try_join!(dial::<u64, u64>(address), accept::<u64, u64>(listener))?;
    let ((tx, unused), (unused_too, rx)) = (dialled, accepted);
    Ok((tx, Kept { rx, _unused: (unused, unused_too) }))
}

/// A receiver, and the ends that have to live as long.
pub(crate) struct Kept {
    rx: base::Receiver<u64>,
    _unused: (base::Receiver<u64>, base::Sender<u64>),
}

impl Rx<u64> for Kept {
    async fn recv(&mut self) -> Result<u64> {
        Rx::recv(&mut self.rx).await
    }
}

pub(super) fn run(side: &Side) -> Result<f64> {
    let who = side.who.as_str();
    if who.contains("struct") {
        run_with::<Record>(side)
    } else if who.contains("Vec<u8>") {
        run_with::<Vec<u8>>(side)
    } else {
        run_with::<Bytes>(side)
    }
}

fn run_with<M: Message + RemoteSend>(side: &Side) -> Result<f64> {
    let count = if side.program == Program::RemoteCommstime { 4 } else { 2 };
    let mut sides = Sides::start(side.leads(), count, "")?;
    let (listener, all) = over_tcp::meet(side.leads(), &mut sides, |_| ())?;
    let side = side.clone();
    on_workers(side.threads, async move {
        let listener = TcpListener::from_std(listener)?;
        let (n, size) = (side.n, side.size);
        match side.program {
            Program::RemoteCommstime => commstime(&side, &listener, &all).await,
            Program::RemotePingpong if side.leads() => {
                let (there, back) = dial::<M, M>(all[1]).await?;
                Ok(nanoseconds_each(ping(there, back, size, n).await?, n))
            }
            Program::RemotePingpong => {
                let (output, input) = accept::<M, M>(&listener).await?;
                pong(input, output).await.map(|()| 0.0)
            }
            Program::RemoteThroughput if side.leads() => {
                let (output, done) = dial::<M, u64>(all[1]).await?;
                Ok(nanoseconds_each(stream(output, done, size, n).await?, n))
            }
            Program::RemoteThroughput => {
                let (done, input) = accept::<u64, M>(&listener).await?;
                sink(input, done, size, n).await.map(|()| 0.0)
            }
            program => bail!("there is no {program} over remoc"),
        }
    })
}

/// The sides are consumer, prefix, delta, successor. The unused halves of a socket's two channels are kept
/// too.
async fn commstime(side: &Side, listener: &TcpListener, all: &[SocketAddr]) -> Result<f64> {
    let input = || accept::<u64, u64>(listener);
    let output = |role: usize| dial::<u64, u64>(all[role]);
    match side.role {
        0 => {
            let (_back, input) = input().await?;
            return Ok(nanoseconds_each(consumer(input, side.n).await?, 4 * side.n));
        }
        1 => {
            let ((output, _unused), (_back, input)) = tokio::try_join!(output(2), input())?;
            prefix(input, output).await?;
        }
        2 => {
            let ((first, _unused), (second, _too), (_back, input)) = tokio::try_join!(output(3), output(0), input())?;
            delta(input, first, second).await?;
        }
        _ => {
            let ((output, _unused), (_back, input)) = tokio::try_join!(output(1), input())?;
            successor(input, output).await?;
        }
    }
    Ok(0.0)
}
