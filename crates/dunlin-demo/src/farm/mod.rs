//! `dunlin farm`: a master divides work among workers, which may be anywhere, and may join and leave at any
//! time.
//!
//! - `protocol.rs`: what they send each other; [`master`], [`mod@worker`]: the two components, `ledger.rs`
//!   the master's book. They know ends, not nodes;
//! - `door.rs`: how they find each other over nodes; `hands.rs`: a farm from its opening to its end, and the
//!   workers that it starts itself; `show.rs`: the output for people and for scripts;
//! - [`mandelbrot`], [`fourier`]: the work, and the two commands.

mod door;
pub mod fourier;
mod hands;
mod ledger;
pub mod mandelbrot;
pub mod master;
pub mod protocol;
mod show;
pub mod worker;

use std::future::pending;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dunlin::prelude::*;
use dunlin_terminal::failure::{Failure, Signal, Signals, exit, on_runtime};
use dunlin_terminal::output::Output;
use serde_json::json;

use door::{ADDRESS, Calling};
use hands::{Outcome, seconds};
use protocol::{Job, Part};
use show::Show;
use worker::{Ended, Leave, Told, worker};

/// The pause before a worker asks again whether a closing farm is gone.
const CLOSING: Duration = Duration::from_millis(200);

/// The farms
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Farm {
    /// Draw the Mandelbrot set on a farm of workers, which may join and leave meanwhile
    Mandelbrot(mandelbrot::Args),
    /// Compute a Fourier series on a farm of workers, in different numbers of packages, and print the times
    Fourier(fourier::Args),
    /// Join a running farm of either kind; Ctrl-C leaves it in order
    Worker(Joining),
}

/// A worker's options.
#[derive(Clone, Debug, clap::Args)]
pub struct Joining {
    /// The address of the farm
    #[arg(long, value_name = "ADDRESS", default_value = ADDRESS)]
    pub at: String,
    /// The number of workers
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=512))]
    pub workers: u16,
    /// Seconds without a connection after which the farm is lost
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = seconds)]
    pub grace: f64,
    /// Print only errors
    #[arg(long)]
    pub quiet: bool,
}

impl Farm {
    /// The error in the options that the parser of each one does not find.
    pub fn wrong(&self) -> Option<String> {
        match self {
            Self::Mandelbrot(args) => args.wrong(),
            Self::Fourier(args) => args.wrong(),
            Self::Worker(_) => None,
        }
    }

    /// Runs the command.
    pub fn run(self, json: bool) -> ExitCode {
        exit(on_runtime(async {
            let ((leave, signal), show) = (interrupted()?, Show::new(json));
            let outcome = match self {
                Self::Mandelbrot(args) => mandelbrot::run(args, &leave, &show).await?,
                Self::Fourier(args) => fourier::run(args, &leave, &show).await?,
                Self::Worker(args) => joins(&args, &leave, &show).await?,
            };
            match (outcome, signal.get()) {
                (Outcome::Interrupted, Some(&signal)) => Err(Failure::Interrupted(signal)),
                _ => Ok(()),
            }
        }))
    }
}

/// A channel that ends at the first signal to end this process, so that all leave in order, and the cell of
/// that signal. A second signal exits at once.
fn interrupted() -> Result<(Leave, Arc<OnceLock<Signal>>), Failure> {
    let ((stay, leave), signal) = (channel(), Arc::new(OnceLock::new()));
    let (mut signals, asked) = (Signals::hear()?, signal.clone());
    drop(spawn(async move {
        if let Err(Failure::Interrupted(signal)) = signals.or(pending::<Result<(), _>>()).await {
            let _ = asked.set(signal);
        }
        drop(stay);
        if let Err(Failure::Interrupted(signal)) = signals.or(pending::<Result<(), _>>()).await {
            std::process::exit(signal.code().into());
        }
    }));
    Ok((leave.share(), signal))
}

/// Joins a farm with some workers.
async fn joins(args: &Joining, leave: &Leave, show: &Show) -> Result<Outcome, Failure> {
    let (grace, mut interrupted) = (Duration::from_secs_f64(args.grace), leave.clone());
    let entered = alt! {
        _ = interrupted.next() => return Ok(Outcome::Interrupted),
        entered = future(door::enters(&args.at, grace)) => entered,
    };
    let (node, calling) = entered.map_err(|error| {
        let at = &args.at;
        Failure::Failed(format!(
            "no farm at {at}: {error}. Start one with `dunlin farm mandelbrot --listen {at}`, or give its address: \
             --at ADDRESS"
        ))
    })?;
    if !args.quiet {
        show.line(format_args!("joined the farm at {}; Ctrl-C leaves it", args.at));
    }
    let worked = match calling {
        Calling::Mandelbrot(part) => works(part, args, leave, show).await,
        Calling::Fourier(part) => works(part, args, leave, show).await,
        Calling::Over => Ok(Ended::Dismissed),
    };
    let left = node.leave().await;
    let ended = worked.map_err(|error| Failure::Failed(format!("the farm at {} is lost: {error}", args.at)))?;
    left.map_err(Failure::failed)?;
    Ok(match ended {
        Ended::Dismissed => Outcome::Done,
        Ended::Left => Outcome::Interrupted,
    })
}

/// Works with the requested number of workers, until all have ended.
async fn works<J: Job>(part: Part<J>, args: &Joining, leave: &Leave, show: &Show) -> Result<Ended> {
    // Where the system has no such file, the process id alone is the name.
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| String::new(), |host| format!("{} ", host.trim()));
    let (told, mut tales) = channel_with(unbounded());
    let told = told.share();
    let workers: Vec<_> = (1..=args.workers)
        .map(|number| {
            let name = format!("{host}process {} number {number}", std::process::id());
            let mut told = told.clone();
            // The farm does not wait for its observers.
            let tell = move |what| drop(told.send_nowait((number, what)));
            spawn(worker(part.clone(), name, leave.clone(), tell))
        })
        .collect();
    drop((told, part));
    let mut done = 0;
    while let Some((number, what)) = tales.next().await? {
        let object = match what {
            Told::Enrolled => json!({ "event": "enrolled", "worker": number }),
            Told::Begun(job) => json!({ "event": "begun", "worker": number, "job": job }),
            Told::Reported => {
                done += 1;
                json!({ "event": "reported", "worker": number })
            }
        };
        show.object(&object);
    }
    let mut ended = Ended::Dismissed;
    for worker in workers {
        if worker.await?? == Ended::Left {
            ended = Ended::Left;
        }
    }
    let how = if ended == Ended::Left { "left" } else { "dismissed" };
    show.object(&json!({ "event": how, "done": done }));
    if !args.quiet {
        show.line(format_args!("{how} after {done} jobs"));
    }
    Ok(ended)
}

/// What `dunlin node` runs of the farms: a worker for one farm after the other, of those at its node's names.
/// It does not return unless it fails.
///
/// # Errors
/// [`Failure::Failed`], if the node's application is not that of the farms.
pub async fn serve(node: Node, output: Output) -> Result<(), Failure> {
    if node.application() != door::APPLICATION {
        return Err(Failure::failed(format_args!(
            "farms are the application {:?}, and this node is of {:?}: write app = {:?} in dunlin.toml",
            door::APPLICATION,
            node.application(),
            door::APPLICATION
        )));
    }
    let mut is_new = true;
    loop {
        if std::mem::replace(&mut is_new, true) {
            output.say(&json!({ "event": "waiting" }), || "waiting for a farm".to_owned());
        }
        let ended = match door::asks(&node).await {
            Ok(Calling::Mandelbrot(part)) => serves(part, &node, output).await,
            Ok(Calling::Fourier(part)) => serves(part, &node, output).await,
            Ok(Calling::Over) => {
                sleep(CLOSING).await;
                is_new = false;
                continue;
            }
            Err(error) => Err(error),
        };
        match ended {
            Ok(done) => {
                let line = json!({ "event": "dismissed", "done": done });
                output.say(&line, || format!("dismissed after {done} jobs"));
            }
            Err(error) => {
                let line = json!({ "event": "lost", "why": error.to_string() });
                output.say(&line, || format!("the farm is lost: {error}"));
                sleep(CLOSING).await;
            }
        }
    }
}

/// Returns the number of jobs that it has done.
async fn serves<J: Job>(part: Part<J>, node: &Node, output: Output) -> Result<u64> {
    output.say(&json!({ "event": "enrolled" }), || "working for a farm".to_owned());
    // Nothing asks this worker to leave: it is dropped instead, and its jobs go to others.
    let (_stay, leave) = channel();
    let done = Arc::new(AtomicU64::new(0));
    let counted = done.clone();
    let tell = move |told| {
        if matches!(told, Told::Reported) {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    };
    worker(part, format!("node {}", node.name()), leave.share(), tell).await?;
    Ok(done.load(Ordering::Relaxed))
}
