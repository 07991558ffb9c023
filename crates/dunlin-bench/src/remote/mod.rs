//! Programs whose processes are in several OS processes, which communicate over loopback TCP.
//!
//! The hidden subcommand `side` runs one participant. As the leader it starts the other sides, which are this
//! binary too ([`sides`]), measures, and prints its figure. All participants have the same runtime, with the
//! same number of workers, and the same number of OS processes.
//!
//! - [`programs`]: what the sides do, for those that have channels;
//! - [`over_dunlin`], [`over_remoc`]: their channels; [`over_tcp`]: the sockets that are their reference;
//! - [`idle`]: connections with heartbeats only;
//! - [`clients`]: a thousand clients of one server;
//! - [`beside`]: a ping beside a transfer, and local work beside a ping; [`counted`]: the bytes on the wire.

mod beside;
mod clients;
pub(crate) mod counted;
mod idle;
pub(crate) mod over_dunlin;
#[cfg(feature = "link")]
pub(crate) mod over_link;
pub(crate) mod over_remoc;
pub(crate) mod over_tcp;
pub(crate) mod programs;
pub(crate) mod sides;

use std::env;
use std::future::Future;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use tokio::runtime::Builder;

use crate::measure::Participant;
use crate::peers::Foreign;
use crate::peers::erlang::ERLANG;
use crate::program::{Bench, Program};

pub(crate) use beside::{ALONE, BESIDE_PING, OWN_SOCKET, SAME_SOCKET, WITH_NODE};
pub(crate) use clients::{GUESTS, SHARED, TCP_EACH, TCP_IDS};
pub(crate) use idle::{EPOLL, NODE};
pub(crate) use over_dunlin::{BYTES, FIFO, RENDEZVOUS};
pub(crate) use sides::free_port;

/// tokio sockets that add only the length to the bytes: the reference of the others.
pub(crate) const TCP: &str = "tokio tcp";
/// The same, with an answer of one byte to each message, as a rendezvous requires.
pub(crate) const TCP_ACKED: &str = "tokio tcp, acked";

/// The arguments of the hidden subcommand.
#[derive(Args, Clone, Debug)]
pub(crate) struct Side {
    who: String,
    program: Program,
    n: u64,
    /// Bytes of each message
    size: usize,
    threads: usize,
    /// Which side this is; the leader starts the others, and passes them what they need
    #[arg(long, default_value_t = 0)]
    role: usize,
    #[arg(long, default_value = "")]
    names: String,
}

impl Side {
    fn leads(&self) -> bool {
        self.role == 0
    }
}

/// Runs one side; the leader prints the figure.
pub(crate) fn run(side: &Side) -> anyhow::Result<()> {
    let figure = figure(side);
    if !side.leads() {
        // A side that ends with the leader has not failed: it notices the leader's end at the same time.
        thread::sleep(Duration::from_millis(200));
    }
    let figure = figure?;
    if side.leads() {
        println!("{figure}");
    }
    Ok(())
}

fn figure(side: &Side) -> anyhow::Result<f64> {
    match side.who.as_str() {
        _ if side.program == Program::LocalBeside => beside::local(side),
        _ if side.program == Program::Idle => idle::run(side),
        _ if side.program.is_of_clients() => clients::run(side),
        _ if matches!(side.program, Program::RemoteBeside | Program::RemoteBesideTransfer) => beside::run(side),
        TCP | TCP_ACKED => over_tcp::run(side),
        #[cfg(feature = "link")]
        over_link::LINK => over_link::run(side),
        who if who.starts_with("remoc") => over_remoc::run(side),
        who if who.starts_with("dunlin") => over_dunlin::run(side),
        who => bail!("there is no {who:?} in this binary"),
    }
}

/// Runs `root` as a task of a runtime like every participant's.
pub(crate) fn on_workers<T: Send + 'static>(
    threads: usize,
    root: impl Future<Output = anyhow::Result<T>> + Send + 'static,
) -> anyhow::Result<T> {
    let runtime = Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    let runtime = runtime.context("cannot start a tokio runtime")?;
    // Spawned, because the future given to `block_on` does not run on a worker.
    let root = runtime.spawn(root);
    let result = runtime.block_on(root)?;
    runtime.shutdown_background();
    result
}

/// A participant of `bench` in this binary.
pub(crate) fn side(bench: &Bench, who: &'static str, workers: usize) -> anyhow::Result<Participant> {
    let mut command = Command::new(env::current_exe().context("cannot find this binary")?);
    let numbers = [bench.n.to_string(), bench.size.to_string(), workers.to_string()];
    command.args(["side", who, &bench.program.to_string()]).args(numbers);
    Ok(Participant { who, workers, ways: vec![command] })
}

/// All participants of `bench`, with the reference first.
pub(crate) fn participants(bench: &Bench, workers: &[usize], foreign: &Foreign) -> anyhow::Result<Vec<Participant>> {
    let who: &[&'static str] = match bench.program {
        Program::RemotePingpong => &over_dunlin::PINGPONG,
        #[cfg(feature = "link")]
        Program::RemoteLink => &over_link::PINGPONG,
        Program::RemoteThroughput => &over_dunlin::THROUGHPUT,
        Program::RemoteCommstime => &over_dunlin::COMMSTIME,
        Program::RemoteOverhead => &over_dunlin::OVERHEAD,
        Program::Idle => &idle::ALL,
        Program::ClientsEach | Program::ClientsMemory => &clients::EACH,
        Program::ClientsShared => &clients::ONE,
        Program::RemoteBeside | Program::RemoteBesideTransfer => &beside::REMOTE,
        _ => &beside::LOCAL,
    };
    let mut all = Vec::new();
    for &workers in workers {
        for who in who {
            all.push(side(bench, who, workers)?);
        }
        if let Some(erlang) = foreign.erlang.as_ref().filter(|erlang| erlang.has(bench.program)) {
            all.push(Participant { who: ERLANG, workers, ways: vec![erlang.command(bench, workers)] });
        }
    }
    Ok(all)
}
