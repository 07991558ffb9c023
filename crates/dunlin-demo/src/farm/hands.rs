//! A farm from its opening to its end, and the workers that it starts itself: tasks of its own program, or OS
//! processes.

use std::future::pending;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dunlin::prelude::*;
use dunlin_terminal::failure::Failure;
use serde_json::json;
use tokio::process::{Child, Command};

use super::door::{self, ADDRESS, Calling};
use super::master::{Master, Sharing};
use super::protocol::{Job, Part};
use super::show::Show;
use super::worker::{Leave, worker};

/// How long the workers may take to end after they were asked to.
const ENDING: Duration = Duration::from_secs(10);

/// The workers of a farm, and how they are reached: the options that all farms have.
#[derive(Clone, Debug, clap::Args)]
pub struct Hands {
    /// The number of workers to start, each an operating system process. Default: one for each core. With 0
    /// the farm waits for workers to join
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=512))]
    pub workers: Option<u16>,
    /// Start the workers in this process instead, without sockets; no other worker can join
    #[arg(long, conflicts_with_all = ["listen", "grace"])]
    pub inside: bool,
    /// All workers share one channel of jobs, and one of results
    #[arg(long, conflicts_with = "multiplexed")]
    pub shared: bool,
    /// Each worker has two channels of its own, and the master chooses among them (the default)
    #[arg(long)]
    pub multiplexed: bool,
    /// The number of jobs that wait at each worker
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(0..=1024))]
    pub buffer: u16,
    /// The address where workers join, of this machine, or unix:PATH
    #[arg(long, value_name = "ADDRESS", default_value = ADDRESS)]
    pub listen: String,
    /// Seconds without a connection after which a worker is lost, and others do its jobs
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = seconds)]
    pub grace: f64,
}

pub(super) fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text:?} is not a number of seconds"))?;
    if (0.1..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("0.1 to 3600 seconds".to_owned()) }
}

impl Hands {
    /// The error in these options, if there is one.
    pub(super) fn wrong(&self) -> Option<String> {
        (self.inside && self.workers == Some(0))
            .then(|| "with --inside no worker can join, and --workers 0 starts none: use at least 1".to_owned())
    }

    fn sharing(&self) -> Sharing {
        if self.shared { Sharing::Shared } else { Sharing::Multiplexed }
    }

    /// How many workers to start.
    pub(super) fn count(&self) -> usize {
        self.workers.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from)
    }

    fn master<J: Job>(&self) -> Master<J> {
        Master::new(self.sharing(), self.buffer.into())
    }
}

/// The end of a farm without an error.
pub(super) enum Outcome {
    Done,
    /// By Ctrl-C, in order.
    Interrupted,
}

/// Opens a farm, runs `work` with its master, and closes it in order. `None`: Ctrl-C came first.
pub(super) async fn farms<J: Job, T>(
    hands: &Hands,
    leave: &Leave,
    show: &Show,
    work: impl AsyncFnOnce(&mut Master<J>) -> Result<T>,
) -> Result<Option<T>, Failure>
where
    Calling: From<Part<J>>,
{
    let (mut master, mut interrupted) = (hands.master(), leave.clone());
    let mut crew = Crew::start(hands, master.part(), leave, show).await?;
    let watched = async {
        crew.watch(show).await;
        pending().await
    };
    let worked = alt! {
        _ = interrupted.next() => Ok(None),
        worked = future(work(&mut master)) => worked.map(Some),
        never = future(watched) => never,
    };
    show.end();
    // Before the workers are dismissed: one that waits for the next farm asks again at once.
    crew.close();
    dismiss(master).await;
    crew.end(show).await;
    worked.map_err(Failure::failed)
}

/// The started workers.
enum Crew {
    /// In this process.
    Inside,
    /// Each in its own process, which joins the node. Later workers read from the flag whether the farm is
    /// over.
    Processes(Node, Vec<Child>, Arc<AtomicBool>),
}

impl Crew {
    /// Starts the workers, which take part as soon as the master runs. `leave` ends when workers in this
    /// process are to leave.
    async fn start<J: Job>(hands: &Hands, part: Part<J>, leave: &Leave, show: &Show) -> Result<Self, Failure>
    where
        Calling: From<Part<J>>,
    {
        if hands.inside {
            for number in 1..=hands.count() {
                drop(spawn(worker(part.clone(), format!("inside {number}"), leave.clone(), |_| {})));
            }
            return Ok(Self::Inside);
        }
        let grace = Duration::from_secs_f64(hands.grace);
        let is_over = Arc::default();
        let node = door::opens(&hands.listen, grace, part.into(), Arc::clone(&is_over)).await.map_err(|error| {
            Failure::Failed(format!(
                "{error}. If another farm is there, give this one another --listen ADDRESS, and its workers the same as --at"
            ))
        })?;
        let address = node.listening().first().cloned().unwrap_or_default();
        show.object(&json!({ "event": "open", "address": address }));
        show.line(format_args!("workers can join: dunlin farm worker --at {address}"));
        let mut children = Vec::new();
        for _ in 0..hands.count() {
            let child = starts(&address, hands.grace);
            children.push(child.map_err(|error| Failure::Failed(format!("cannot start a worker: {error}")))?);
        }
        Ok(Self::Processes(node, children, is_over))
    }

    /// Reports processes that end while the farm works.
    async fn watch(&mut self, show: &Show) {
        if let Self::Processes(_, children, _) = self {
            while !children.is_empty() {
                let (at, status) = Choice::fair().all(children.iter_mut().map(|child| future(child.wait()))).await;
                drop(children.swap_remove(at));
                let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
                show.object(&json!({ "event": "ended", "status": status }));
                show.line(format_args!("warning: a worker that this farm has started has ended: {status}"));
                if children.is_empty() {
                    show.line(
                        "warning: all workers that this farm has started have ended; the farm continues with workers \
                         that join",
                    );
                }
            }
        }
    }

    /// Workers that arrive from now on get no task.
    fn close(&self) {
        if let Self::Processes(_, _, is_over) = self {
            is_over.store(true, Ordering::Release);
        }
    }

    /// Waits until all processes have ended as asked, and leaves. (If the node left earlier, a late worker
    /// would find no master.)
    async fn end(self, show: &Show) {
        let Self::Processes(node, children, _) = self else { return };
        let ended = async {
            for mut child in children {
                let _ = child.wait().await;
            }
        };
        if tokio::time::timeout(ENDING, ended).await.is_err() {
            // They are killed as they are dropped.
            show.line(format_args!("warning: some workers did not end within {ENDING:?} and are killed"));
        }
        if let Err(error) = node.leave().await {
            show.line(format_args!("warning: {error}"));
        }
    }
}

fn starts(address: &str, grace: f64) -> std::io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["farm", "worker", "--quiet", "--at", address, "--grace", &grace.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true).spawn()
}

/// Dismisses the workers, and stops waiting for their farewell after a while.
async fn dismiss<J: Job>(master: Master<J>) {
    let _ = tokio::time::timeout(ENDING, master.dismiss()).await;
}
