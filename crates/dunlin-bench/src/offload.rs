//! Blocking calls beside tokio's `spawn_blocking`: how long until a thread has the call, how long until its
//! process has the answer, and how much other work the runtime does meanwhile.
//!
//! Both run on the same kind of runtime. For single calls the bench takes the median, not the mean: a call
//! that competes with another program for its processor waits for milliseconds.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use dunlin::prelude::*;
use tokio::io::AsyncReadExt;

use crate::dunlin_side::Dunlin;
use crate::measure::Participant;
use crate::program::{Bench, One, Program};
use crate::programs::{nanoseconds_each, ring};
use crate::remote::on_workers;

/// The reference of the others.
pub(crate) const SPAWN_BLOCKING: &str = "tokio spawn_blocking";
pub(crate) const BLOCKING: &str = "dunlin blocking";
/// A tokio socket, which needs no other thread.
const ASYNC: &str = "tokio socket";
/// No call at all.
pub(crate) const ALONE: &str = "alone";
/// This many calls block meanwhile.
pub(crate) const BESIDE: &str = "beside 256 calls that block";

const CALLS: usize = 256;

/// Runs one participant and returns its figure.
pub(crate) fn run(one: &One) -> Result<f64> {
    let (who, n, size) = (one.who.clone(), one.n, one.size);
    match one.program {
        Program::CallTrigger => on_workers(one.threads, async move { single(&who, n, |trigger, _| trigger).await }),
        Program::CallReturn => on_workers(one.threads, async move { single(&who, n, |_, all| all).await }),
        Program::CallRing => on_workers(one.threads, async move { around(&who, n).await }),
        Program::CallThroughput => on_workers(one.threads, async move { packets(&who, n, size).await }),
        Program::CallCompute => on_workers(one.threads, async move { compute(&who, n).await }),
        program => bail!("{program} has no blocking calls"),
    }
}

/// One call after the other: the median of `figure` over the times to the trigger and to the answer.
async fn single(who: &str, n: u64, figure: fn(Duration, Duration) -> Duration) -> Result<f64> {
    const WARM_UP: u64 = 100;
    let mut times = Vec::new();
    for round in 0..WARM_UP + n {
        let began = Instant::now();
        let trigger = match who {
            BLOCKING => blocking(move |_| began.elapsed()).await?,
            SPAWN_BLOCKING => tokio::task::spawn_blocking(move || began.elapsed()).await?,
            who => bail!("there are no calls of {who:?}"),
        };
        if round >= WARM_UP {
            times.push(figure(trigger, began.elapsed()));
        }
    }
    times.sort();
    Ok(times[times.len() / 2].as_nanos() as f64)
}

/// A token goes round the processes, with or without blocked calls: nanoseconds per hop.
async fn around(who: &str, n: u64) -> Result<f64> {
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let came = Arc::new(AtomicUsize::new(0));
    let calls: Vec<_> = (0..if who == BESIDE { CALLS } else { 0 })
        .map(|_| {
            let (gate, came) = (gate.clone(), came.clone());
            blocking(move |_| {
                came.fetch_add(1, Ordering::SeqCst);
                let closed = gate.0.lock().expect("nobody panics");
                drop(gate.1.wait_while(closed, |open| !*open).expect("nobody panics"));
            })
        })
        .collect();
    while came.load(Ordering::SeqCst) < calls.len() {
        tokio::task::yield_now().await;
    }
    const ROUNDS: u64 = 2_000;
    let time = ring::<Dunlin>(n, ROUNDS).await;
    *gate.0.lock().expect("nobody panics") = true;
    gate.1.notify_all();
    for call in calls {
        call.await?;
    }
    Ok(nanoseconds_each(time, n * ROUNDS))
}

/// `n` packets from a thread, each read by its own call: nanoseconds per packet.
async fn packets(who: &str, n: u64, size: usize) -> Result<f64> {
    let (mut here, mut there) = UnixStream::pair()?;
    let writer = std::thread::spawn(move || {
        let packet = vec![7; size];
        // The loop ends early if the reader has disconnected.
        let _ = (0..n).try_for_each(|_| there.write_all(&packet));
    });
    let mut packet = vec![0; size];
    let began = Instant::now();
    if who == ASYNC {
        here.set_nonblocking(true)?;
        let mut here = tokio::net::UnixStream::from_std(here)?;
        for _ in 0..n {
            here.read_exact(&mut packet).await?;
        }
    } else {
        for _ in 0..n {
            (here, packet) = read(who, here, packet).await?;
        }
    }
    let time = began.elapsed();
    writer.join().ok().context("the writer panicked")?;
    Ok(nanoseconds_each(time, n))
}

async fn read(who: &str, mut from: UnixStream, mut packet: Vec<u8>) -> Result<(UnixStream, Vec<u8>)> {
    let read = move || from.read_exact(&mut packet).map(|()| (from, packet));
    Ok(match who {
        BLOCKING => blocking(move |_| read()).await??,
        SPAWN_BLOCKING => tokio::task::spawn_blocking(read).await??,
        who => bail!("there are no calls of {who:?}"),
    })
}

/// A process computes while another process reads packets with calls: nanoseconds per unit of computation.
async fn compute(who: &str, n: u64) -> Result<f64> {
    const PACKET: usize = 1024;
    let (stop, mut stopped) = channel::<()>();
    let reader = {
        let who = who.to_owned();
        let (here, mut there) = UnixStream::pair()?;
        tokio::spawn(async move {
            if who == ALONE {
                return Ok(());
            }
            std::thread::spawn(move || while there.write_all(&[7; PACKET]).is_ok() {});
            let (mut here, mut packet) = (here, vec![0; PACKET]);
            // Until the computation has ended.
            while stopped.try_recv().is_err_and(|why| !matches!(why, RecvError::Closed)) {
                (here, packet) = read(&who, here, packet).await?;
            }
            anyhow::Ok(())
        })
    };
    let computing = spawn(async move {
        let began = Instant::now();
        let mut sum = 0_u64;
        for unit in 0..n {
            for step in 0..1_000_u64 {
                sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(unit ^ step));
            }
            if unit % 32 == 0 {
                tokio::task::yield_now().await;
            }
        }
        std::hint::black_box(sum);
        began.elapsed()
    });
    let time = computing.await?;
    drop(stop);
    reader.await??;
    Ok(nanoseconds_each(time, n))
}

/// All participants of `bench`, with the reference first.
pub(crate) fn participants(bench: &Bench, workers: &[usize]) -> Result<Vec<Participant>> {
    let who: &[&'static str] = match bench.program {
        Program::CallRing => &[ALONE, BESIDE],
        Program::CallThroughput => &[SPAWN_BLOCKING, BLOCKING, ASYNC],
        Program::CallCompute => &[ALONE, BLOCKING, SPAWN_BLOCKING],
        _ => &[SPAWN_BLOCKING, BLOCKING],
    };
    bench.participants(workers, who)
}
