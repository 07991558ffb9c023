//! `dunlin::io` beside the tokio sockets, pipes and programs that it is built on: the cost of a connection as
//! a branch of choices, and as two ends of channels.

use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use dunlin::io::{Bytes, Connection, Ends, pipe, program, tcp};
use dunlin::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::measure::Participant;
use crate::program::{Bench, One, Program};
use crate::programs::nanoseconds_each;
use crate::remote::on_workers;

/// The reference of the others.
pub(crate) const TOKIO: &str = "tokio";
/// Operations on values.
const VALUES: &str = "dunlin io";
/// The same, each a branch of a choice.
const CHOICE: &str = "dunlin io, in a choice";
/// Ordinary ends of channels.
const ENDS: &str = "dunlin io, as ends";

/// Runs one participant and returns its figure.
pub(crate) fn run(one: &One) -> Result<f64> {
    let (who, n, size) = (one.who.clone(), one.n, one.size);
    match one.program {
        Program::IoPingpong => on_workers(one.threads, async move { pingpong(&who, n, size).await }),
        Program::IoPipe => on_workers(one.threads, async move { through_pipe(&who, n, size).await }),
        Program::IoStart => on_workers(one.threads, async move { programs(&who, n).await }),
        program => bail!("{program} has no streams"),
    }
}

/// A message is sent to another process over TCP and back: nanoseconds per round trip.
async fn pingpong(who: &str, n: u64, size: usize) -> Result<f64> {
    let message = Bytes::from(vec![7; size]);
    if who == TOKIO {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let mut here = TcpStream::connect(listener.local_addr()?).await?;
        let (mut there, _) = listener.accept().await?;
        here.set_nodelay(true)?;
        there.set_nodelay(true)?;
        let echo = tokio::spawn(async move {
            let mut room = vec![0; 64 << 10];
            loop {
                match there.read(&mut room).await? {
                    0 => return std::io::Result::Ok(()),
                    read => there.write_all(&room[..read]).await?,
                }
            }
        });
        let (began, mut room) = (Instant::now(), vec![0; size]);
        for _ in 0..n {
            here.write_all(&message).await?;
            here.read_exact(&mut room).await?;
        }
        let time = began.elapsed();
        drop(here);
        echo.await??;
        return Ok(nanoseconds_each(time, n));
    }
    let mut listener = tcp::listen("127.0.0.1:0").await?;
    let here = tcp::connect(listener.address()?.to_string()).await?;
    let there = listener.accept().await?;
    let time = if who == ENDS {
        let Ends { mut outgoing, mut incoming, .. } = there.into_ends();
        let echo = spawn(async move {
            while let Ok(piece) = incoming.recv().await {
                outgoing.send(piece).await?;
            }
            Result::<()>::Ok(())
        });
        let Ends { mut outgoing, mut incoming, .. } = here.into_ends();
        let began = Instant::now();
        for _ in 0..n {
            outgoing.send(message.clone()).await?;
            let mut read = 0;
            while read < size {
                read += incoming.recv().await?.len();
            }
        }
        let time = began.elapsed();
        drop(outgoing);
        echo.await??;
        time
    } else {
        let in_choice = who == CHOICE;
        let echo = spawn(echo(there, in_choice));
        let (mut here, began) = (here, Instant::now());
        let (_never, mut never) = channel::<()>();
        for _ in 0..n {
            here.write_all(&mut message.clone()).await?;
            let mut read = 0;
            while read < size {
                read += piece(&mut here, &mut never, in_choice).await?.len();
            }
        }
        let time = began.elapsed();
        drop(here);
        echo.await??;
        time
    };
    Ok(nanoseconds_each(time, n))
}

async fn echo(mut connection: Connection, in_choice: bool) -> std::io::Result<()> {
    let (_never, mut never) = channel::<()>();
    loop {
        let mut piece = piece(&mut connection, &mut never, in_choice).await?;
        if piece.is_empty() {
            return Ok(());
        }
        connection.write_all(&mut piece).await?;
    }
}

async fn piece(connection: &mut Connection, never: &mut Receiver<()>, in_choice: bool) -> std::io::Result<Bytes> {
    const MAX: usize = 64 << 10;
    if in_choice {
        alt! {
            piece = connection.read(MAX) => piece,
            _ = never.recv() => Ok(Bytes::new()),
        }
    } else {
        connection.read(MAX).await
    }
}

/// Bytes are sent through a pipe to another process: nanoseconds per piece.
async fn through_pipe(who: &str, n: u64, size: usize) -> Result<f64> {
    let total = n as usize * size;
    let bytes = Bytes::from(vec![7; size]);
    let began = Instant::now();
    let mut read = 0;
    if who == TOKIO {
        let (mut tx, mut rx) = tokio::net::unix::pipe::pipe()?;
        let writer = tokio::spawn(async move {
            for _ in 0..n {
                tx.write_all(&bytes).await?;
            }
            std::io::Result::Ok(())
        });
        let mut room = vec![0; 64 << 10];
        while read < total {
            read += rx.read(&mut room).await?;
        }
        writer.await??;
    } else {
        let (mut read_end, mut write_end) = pipe::pair()?;
        let writer = spawn(async move {
            for _ in 0..n {
                write_end.write_all(&mut bytes.clone()).await?;
            }
            std::io::Result::Ok(())
        });
        while read < total {
            read += read_end.read(64 << 10).await?.len();
        }
        writer.await??;
    }
    Ok(nanoseconds_each(began.elapsed(), n))
}

/// A program starts, prints, and its exit is awaited: nanoseconds each.
async fn programs(who: &str, n: u64) -> Result<f64> {
    let began = Instant::now();
    for _ in 0..n {
        let mut command = Command::new("true");
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let is_success = if who == TOKIO {
            let mut child = tokio::process::Command::from(command).spawn()?;
            let mut text = Vec::new();
            child.stdout.take().context("it is piped")?.read_to_end(&mut text).await?;
            child.wait().await?.success()
        } else {
            let mut program = program::start(command).await?;
            let mut stdout = program.stdout.take().context("it is piped")?;
            while !stdout.read(4096).await?.is_empty() {}
            program.exit().await?.is_success()
        };
        if !is_success {
            bail!("a program failed");
        }
    }
    Ok(nanoseconds_each(began.elapsed(), n))
}

/// All participants of `bench`, with the reference first.
pub(crate) fn participants(bench: &Bench, workers: &[usize]) -> Result<Vec<Participant>> {
    let who: &[&'static str] = match bench.program {
        Program::IoPingpong => &[TOKIO, VALUES, CHOICE, ENDS],
        _ => &[TOKIO, VALUES],
    };
    bench.participants(workers, who)
}
