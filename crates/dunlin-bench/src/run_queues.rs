//! The run queues of dunlin's processes beside plain `tokio::spawn`, with everything else the same: what a queue of one's own could
//! make worse.

use std::env;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::{Args, ValueEnum};
use dunlin::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::bench::{Bench, Program};
use crate::dunlin_side::Dunlin;
use crate::participants::Participant;
use crate::programs::{self, nanoseconds_each};

/// Processes on dunlin's queues.
pub(crate) const OWN: &str = "own queues";
/// The same futures on tokio's.
pub(crate) const TOKIO: &str = "tokio::spawn";

/// What is measured. Its value name is the bench's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Case {
    /// A TCP echo beside four commstimes: half of the round trips are faster
    IoTalkP50,
    /// 99 of 100 are
    IoTalkP99,
    /// The echo beside eight processes that compute for 50 us and yield
    IoComputeP50,
    /// 99 of 100
    IoComputeP99,
    /// The echo alone
    IoAloneP50,
    /// An echo beside a process that reads a socket that always has something
    IoReaderP99,
    /// A process is spawned and joined, one after the other
    Join,
    /// A parked process is cancelled and joined
    Abort,
    /// Round trips of a pair while a third blocks in place for 20 ms at a time
    BlockInPlace,
    /// Round trips of a pair beside a process that woke them and never returns from its poll
    NeverReturns,
    /// Two workers' worth of processes of a millisecond, spawned by one: until all have ended
    Spread,
    /// A plain task of tokio's and a process: nanoseconds per round trip
    Mixed,
}

/// The arguments of the hidden subcommand.
#[derive(Args)]
pub(crate) struct Queues {
    who: String,
    case: Case,
    workers: usize,
}

pub(crate) fn benches() -> Vec<Bench> {
    let bench = |case: &Case| {
        let unit = match case {
            Case::Join | Case::Abort | Case::Spread => "ns/process",
            _ => "ns/round trip",
        };
        Bench { program: Program::RunQueues, name: case.name(), n: 0, size: 0, unit }
    };
    Case::value_variants().iter().map(bench).collect()
}

impl Case {
    fn name(self) -> &'static str {
        match self {
            Self::IoTalkP50 => "io-talk-p50",
            Self::IoTalkP99 => "io-talk-p99",
            Self::IoComputeP50 => "io-compute-p50",
            Self::IoComputeP99 => "io-compute-p99",
            Self::IoAloneP50 => "io-alone-p50",
            Self::IoReaderP99 => "io-reader-p99",
            Self::Join => "join",
            Self::Abort => "abort",
            Self::BlockInPlace => "block-in-place",
            Self::NeverReturns => "never-returns",
            Self::Spread => "spread",
            Self::Mixed => "mixed",
        }
    }
}

pub(crate) fn participants(bench: &Bench, workers: &[usize]) -> anyhow::Result<Vec<Participant>> {
    let this_binary = env::current_exe().context("cannot find this binary")?;
    // With one worker nobody goes on beside a poll that never returns.
    let workers = workers.iter().filter(|&&workers| workers > 1 || bench.name != "never-returns");
    let both = workers.flat_map(|&workers| [TOKIO, OWN].map(|who| (who, workers)));
    let participant = |(who, workers): (&'static str, usize)| {
        let mut command = Command::new(&this_binary);
        command.args(["queues", who, bench.name, &workers.to_string()]);
        Participant { who, workers, ways: vec![command] }
    };
    Ok(both.map(participant).collect())
}

/// Starts a process on one of the two kinds of queues.
#[derive(Clone, Copy)]
struct Spawner(bool);

impl Spawner {
    fn fork(self, process: impl Future<Output = ()> + Send + 'static) {
        if self.0 { drop(spawn(process)) } else { drop(tokio::spawn(process)) }
    }

    async fn run<T: Send + 'static>(self, process: impl Future<Output = T> + Send + 'static) -> T {
        if self.0 {
            spawn(process).await.expect("it ends well")
        } else {
            tokio::spawn(process).await.expect("it ends well")
        }
    }
}

pub(crate) fn run(queues: &Queues) -> anyhow::Result<()> {
    let spawner = Spawner(queues.who == OWN);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(queues.workers).enable_all().build()?;
    let case = queues.case;
    let figure = runtime.block_on(spawner.run(async move {
        match case {
            Case::IoTalkP50 => io(spawner, Load::Talk, 50).await,
            Case::IoTalkP99 => io(spawner, Load::Talk, 99).await,
            Case::IoComputeP50 => io(spawner, Load::Compute, 50).await,
            Case::IoComputeP99 => io(spawner, Load::Compute, 99).await,
            Case::IoAloneP50 => io(spawner, Load::None, 50).await,
            Case::IoReaderP99 => io(spawner, Load::Reader, 99).await,
            Case::Join => Ok(join(spawner).await),
            Case::Abort => Ok(abort(spawner).await),
            Case::BlockInPlace => Ok(block_in_place(spawner).await),
            Case::NeverReturns => Ok(never_returns(spawner).await),
            Case::Spread => Ok(spread(spawner).await),
            Case::Mixed => Ok(mixed(spawner).await),
        }
    }))?;
    println!("{figure}");
    // What still runs is not to be measured, and may never return.
    std::process::exit(0);
}

enum Load {
    None,
    Talk,
    Compute,
    Reader,
}

fn compute(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Round trips of a client, a thread of its own, to a process that echoes.
async fn io(spawner: Spawner, load: Load, percentile: usize) -> anyhow::Result<f64> {
    match load {
        Load::None => {}
        Load::Talk => {
            for _ in 0..4 {
                talk(spawner);
            }
        }
        Load::Compute => {
            for _ in 0..8 {
                spawner.fork(async {
                    loop {
                        compute(Duration::from_micros(50));
                        tokio::task::yield_now().await;
                    }
                });
            }
        }
        Load::Reader => {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let address = listener.local_addr()?;
            std::thread::spawn(move || {
                let (mut stream, _) = listener.accept()?;
                loop {
                    stream.write_all(&[0; 65536])?;
                }
                #[allow(unreachable_code)]
                std::io::Result::Ok(())
            });
            let mut stream = tokio::net::TcpStream::connect(address).await?;
            spawner.fork(async move {
                // One byte at a time, so that the socket is always ready.
                let mut byte = [0];
                while stream.read_exact(&mut byte).await.is_ok() {}
            });
        }
    }
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    spawner.fork(async move {
        let Ok((mut stream, _)) = listener.accept().await else { return };
        // A delayed small packet is not what is measured.
        let _ = stream.set_nodelay(true);
        let mut buffer = [0; 8];
        while stream.read_exact(&mut buffer).await.is_ok() && stream.write_all(&buffer).await.is_ok() {}
    });
    let (done, is_done) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let measure = || {
            let mut stream = std::net::TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            let mut times = Vec::new();
            let began = Instant::now();
            while times.len() < 5_000 && (times.len() < 200 || began.elapsed() < Duration::from_secs(1)) {
                let sent = Instant::now();
                stream.write_all(&[7; 8])?;
                stream.read_exact(&mut [0; 8])?;
                times.push(sent.elapsed().as_nanos() as f64);
                // Asleep, so that it takes no core from those that are measured; for various times, so that it finds them in the
                // midst of something, not always at the same point.
                std::thread::sleep(Duration::from_nanos(50_000 + 7_919 * (times.len() as u64 % 13)));
            }
            times.sort_by(f64::total_cmp);
            std::io::Result::Ok(times[times.len() * percentile / 100])
        };
        // The receiver waits.
        let _ = done.send(measure());
    });
    Ok(is_done.await??)
}

async fn join(spawner: Spawner) -> f64 {
    const N: u64 = 200_000;
    let began = Instant::now();
    for n in 0..N {
        assert_eq!(spawner.run(async move { n }).await, n);
    }
    nanoseconds_each(began.elapsed(), N)
}

async fn abort(spawner: Spawner) -> f64 {
    const N: u64 = 100_000;
    let began = Instant::now();
    for _ in 0..N {
        let (mut tx, mut rx) = channel::<()>();
        let process = async move {
            tx.send(()).await.expect("it is received");
            std::future::pending::<()>().await;
        };
        if spawner.0 {
            let process = spawn(process);
            rx.recv().await.expect("it is sent");
            process.cancel();
            assert!(process.await.is_err());
        } else {
            let process = tokio::spawn(process);
            rx.recv().await.expect("it is sent");
            process.abort();
            assert!(process.await.is_err());
        }
    }
    nanoseconds_each(began.elapsed(), N)
}

/// Commstime without an end.
fn talk(spawner: Spawner) {
    let (to_delta, from_prefix) = channel();
    let (to_successor, from_delta) = channel();
    let (to_prefix, from_successor) = channel();
    let (to_consumer, counted) = channel();
    spawner.fork(programs::prefix::<Dunlin>(from_successor, to_delta));
    spawner.fork(programs::delta::<Dunlin>(from_prefix, to_successor, to_consumer));
    spawner.fork(programs::successor::<Dunlin>(from_delta, to_prefix));
    spawner.fork(programs::consumer::<Dunlin>(counted, u64::MAX));
}

/// Two processes that talk, and how often they have.
fn pair(spawner: Spawner) -> Arc<AtomicU64> {
    let count = Arc::new(AtomicU64::new(0));
    let (mut there, from) = channel();
    let (to, mut back) = channel();
    spawner.fork(programs::copy::<Dunlin>(from, to));
    let counted = count.clone();
    spawner.fork(async move {
        for n in 0.. {
            if there.send(n).await.is_err() || back.recv().await.is_err() {
                return;
            }
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    count
}

async fn block_in_place(spawner: Spawner) -> f64 {
    let count = pair(spawner);
    let began = Instant::now();
    spawner
        .run(async {
            for _ in 0..20 {
                tokio::task::block_in_place(|| std::thread::sleep(Duration::from_millis(20)));
                tokio::task::yield_now().await;
            }
        })
        .await;
    nanoseconds_each(began.elapsed(), count.load(Ordering::Relaxed).max(1))
}

async fn never_returns(spawner: Spawner) -> f64 {
    let (mut start, mut started) = channel::<()>();
    let (counted, count) = tokio::sync::oneshot::channel();
    spawner.fork(async move {
        // Woken by the one that then never returns: all that follows is behind it.
        started.recv().await.expect("it is sent");
        let _ = counted.send(pair(spawner));
    });
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let began = Instant::now();
    // A thread looks at the count, since everybody else may be held up.
    let figure = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(500));
        let elapsed = began.elapsed();
        stopped.store(true, Ordering::Relaxed);
        let count = count.blocking_recv().expect("it is told");
        nanoseconds_each(elapsed, count.load(Ordering::Relaxed).max(1))
    });
    spawner
        .run(async move {
            start.send(()).await.expect("it is received");
            while !stop.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        })
        .await;
    figure.join().expect("it ends well")
}

async fn spread(spawner: Spawner) -> f64 {
    const N: u64 = 100;
    let began = Instant::now();
    let left = Arc::new(AtomicU64::new(N));
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    for _ in 0..N {
        let (left, tell) = (left.clone(), tell.clone());
        spawner.fork(async move {
            compute(Duration::from_millis(1));
            if left.fetch_sub(1, Ordering::Relaxed) == 1 {
                // The receiver waits.
                let _ = tell.send(());
            }
        });
    }
    told.recv().await;
    nanoseconds_each(began.elapsed(), N)
}

async fn mixed(spawner: Spawner) -> f64 {
    const N: u64 = 200_000;
    let (there, from_ping) = channel();
    let (to_ping, back) = channel();
    spawner.fork(programs::copy::<Dunlin>(from_ping, to_ping));
    let began = Instant::now();
    tokio::spawn(programs::ping::<Dunlin>(there, back, N)).await.expect("it ends well");
    nanoseconds_each(began.elapsed(), N)
}
