//! One run: a master, nodes in their own processes, and workers at the nodes that send to the master as fast
//! as it receives. All of pony's benches measure either the events at the master in a period, or the cost of
//! a number of messages.
//!
//! The master leads: it starts the nodes with this binary's hidden subcommand, and prints a [`Measured`]. It
//! reads the clock on its main thread, which does nothing else.

use std::io::Write;
use std::io::stdout;
use std::ops::{Add, Sub};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use dunlin::prelude::*;
use serde::{Deserialize, Serialize};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::error::PonyError;
use super::link::Carried;
use super::task::{Counts, Gate, Task};
use super::{over_dunlin, over_tcp};
use crate::remote::counted::Counted;
use crate::remote::sides::Sides;
use crate::remote::{self, free_port, on_workers};

/// The idle time before and after a count, in which the nodes send all messages about it.
const QUIET: Duration = Duration::from_millis(300);
/// How long each participant may take to report: with 500 workers this takes seconds.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often the main thread checks that.
const LOOK: Duration = Duration::from_millis(5);

/// The line with which the master starts the nodes' sends.
const GO: &str = "go";
const USAGE: &str = "usage";

/// The bytes written to and read from the sockets of the master's node.
static CARRIED: AtomicU64 = AtomicU64::new(0);

/// The events at the master, and their cost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Measured {
    pub(super) messages: u64,
    pub(super) seconds: f64,
    /// Processor time of the master, and of all nodes.
    pub(super) master: Usage,
    pub(super) nodes: Usage,
    /// Bytes through the sockets in both directions; only if messages are counted.
    pub(super) carried: Option<u64>,
    /// The same, with the bytes that the kernel adds.
    pub(super) link: Option<Carried>,
}

/// Processor time of a process, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Usage {
    pub(super) user: f64,
    pub(super) system: f64,
}

impl Usage {
    /// The usage of this process.
    #[cfg(unix)]
    fn now() -> Result<Self> {
        let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF)?;
        let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + 1e-6 * time.tv_usec() as f64;
        Ok(Self { user: seconds(usage.user_time()), system: seconds(usage.system_time()) })
    }

    #[cfg(not(unix))]
    fn now() -> Result<Self> {
        anyhow::bail!("pony's benches need getrusage, which this system has not")
    }

    pub(super) fn total(self) -> f64 {
        self.user + self.system
    }
}

impl Add for Usage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { user: self.user + other.user, system: self.system + other.system }
    }
}

impl Sub for Usage {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self { user: self.user - before.user, system: self.system - before.system }
    }
}

#[cfg(feature = "link")]
fn is_over_link(task: &Task) -> bool {
    task.who.starts_with(super::over_link::LINK)
}

/// Runs one process of a run; the master prints its measurement.
pub(crate) fn run(task: &Task) -> Result<()> {
    if task.leads() {
        let measured = master(task)?;
        writeln!(stdout(), "{}", serde_json::to_string(&measured)?)?;
        return Ok(());
    }
    let ended = node(task);
    // A node that ends with the master has not failed: it notices the master's end at the same time.
    thread::sleep(Duration::from_millis(200));
    ended
}

fn node(task: &Task) -> Result<()> {
    let (open, opened) = watch::channel(0);
    let mut sides = Sides::start(false, 0, "")?;
    let told = move |line: &str| match line {
        GO => open.send_modify(|times| *times += 1),
        // The write fails when the master has ended.
        _ => drop(writeln!(stdout(), "{}", usage_line())),
    };
    let (_, all) = crate::remote::over_tcp::meet(false, &mut sides, told)?;
    let (task, gate) = (task.clone(), Gate::new(opened, task.count));
    on_workers(task.threads, async move {
        if task.is_over_tcp() {
            return over_tcp::node(task, all[0], gate).await;
        }
        #[cfg(feature = "link")]
        if is_over_link(&task) {
            return super::over_link::node(task, all[0], gate).await;
        }
        let node = remote::over_dunlin::join(&task.names).await?;
        over_dunlin::node(task, node, gate).await
    })
}

fn usage_line() -> String {
    Usage::now().and_then(|usage| Ok(serde_json::to_string(&usage)?)).unwrap_or_else(|error| error.to_string())
}

fn master(task: &Task) -> Result<Measured> {
    let names = format!("127.0.0.1:{}", free_port()?);
    let counts = Counts::new(task.nodes * task.workers);
    let runtime = Builder::new_multi_thread().worker_threads(task.threads).enable_all().build()?;
    let mut sides = Sides::start(true, 1 + task.nodes, &names)?;
    let (listener, _) = crate::remote::over_tcp::meet(true, &mut sides, |_| ())?;
    let receives = if task.is_over_tcp() {
        runtime.spawn(over_tcp::master(task.clone(), listener, counts.clone()))
    } else {
        #[cfg(feature = "link")]
        if is_over_link(task) {
            let receives = runtime.spawn(super::over_link::master(task.clone(), listener, counts.clone()));
            return Master { task, counts, sides, receives }.measured(runtime);
        }
        let (task, counts) = (task.clone(), counts.clone());
        runtime.spawn(async move {
            let mut builder = Node::builder().app("dunlin-bench").names(&names);
            if task.count > 0 {
                builder = builder.network(Counted(&CARRIED));
            }
            over_dunlin::master(task, builder.join().await?, counts).await
        })
    };
    Master { task, counts, sides, receives }.measured(runtime)
}

/// The master, as its main thread sees it.
struct Master<'a> {
    task: &'a Task,
    counts: Counts,
    sides: Sides,
    receives: JoinHandle<Result<()>>,
}

/// The state at one moment.
struct Now {
    at: Instant,
    messages: u64,
    master: Usage,
    nodes: Usage,
    carried: Option<u64>,
    link: Option<Carried>,
}

impl Master<'_> {
    fn measured(mut self, runtime: Runtime) -> Result<Measured> {
        let measured = if self.task.count > 0 { self.counted() } else { self.timed() };
        let measured = match measured {
            // The error of the task explains more.
            Err(_) if self.receives.is_finished() => Err(runtime.block_on(self.receives)?.err().context("it ended")?),
            measured => measured,
        };
        runtime.shutdown_background();
        measured
    }

    /// Measures the events in a window of time.
    fn timed(&mut self) -> Result<Measured> {
        self.sides.tell(GO)?;
        let workers = self.task.nodes * self.task.workers;
        self.until(|counts| counts.heard() == workers)?;
        thread::sleep(Duration::from_secs_f64(self.task.warm_up));
        let before = self.now()?;
        thread::sleep(Duration::from_secs_f64(self.task.window));
        // Of very large messages, possibly none has arrived yet.
        self.until(|counts| counts.total() > before.messages)?;
        self.since(&before)
    }

    /// Measures the cost of a number of messages, from one idle time to the next.
    fn counted(&mut self) -> Result<Measured> {
        let messages = self.task.count * (self.task.nodes * self.task.workers) as u64;
        self.sides.tell(GO)?;
        self.until(|counts| counts.total() == messages)?;
        thread::sleep(QUIET);
        let before = self.now()?;
        self.sides.tell(GO)?;
        self.until(|counts| counts.total() == 2 * messages)?;
        thread::sleep(QUIET);
        self.since(&before)
    }

    fn until(&self, is_so: impl Fn(&Counts) -> bool) -> Result<()> {
        let start = Instant::now();
        while !is_so(&self.counts) {
            let (heard, workers) = (self.counts.heard(), self.task.nodes * self.task.workers);
            anyhow::ensure!(!self.receives.is_finished(), PonyError::Ended);
            anyhow::ensure!(start.elapsed() < PATIENCE, PonyError::Silent { heard, workers, patience: PATIENCE });
            thread::sleep(LOOK);
        }
        Ok(())
    }

    fn now(&mut self) -> Result<Now> {
        anyhow::ensure!(!self.receives.is_finished(), PonyError::Ended);
        // These two belong together; the nodes may take some time to answer.
        let (at, messages) = (Instant::now(), self.counts.total());
        let master = Usage::now()?;
        let carried = CARRIED.load(Ordering::Relaxed);
        let link = self.task.on_link.then(Carried::now).transpose()?;
        self.sides.tell(USAGE)?;
        let nodes = self.sides.hear()?.iter().try_fold(Usage::default(), |sum, line| {
            let usage: Usage = serde_json::from_str(line).with_context(|| format!("a node said {line:?}"))?;
            Ok::<_, anyhow::Error>(sum + usage)
        })?;
        let carried = (self.task.count > 0)
            .then(|| if self.task.is_over_tcp() { over_tcp::carried(self.task, messages) } else { carried });
        Ok(Now { at, messages, master, nodes, carried, link })
    }

    fn since(&mut self, before: &Now) -> Result<Measured> {
        let now = self.now()?;
        let messages = now.messages - before.messages;
        Ok(Measured {
            messages,
            seconds: (now.at - before.at).as_secs_f64(),
            master: now.master - before.master,
            nodes: now.nodes - before.nodes,
            carried: now.carried.zip(before.carried).map(|(now, before)| now - before),
            link: now.link.zip(before.link).map(|(now, before)| now - before),
        })
    }
}
