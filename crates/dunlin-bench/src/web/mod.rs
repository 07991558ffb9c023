//! The example `webserver` beside nginx and Apache: requests per second, latencies and processor time.
//!
//! The server runs on one core and the load generator on another. Each round runs every server, so the load
//! of the machine is the same for all figures of a round, and a ratio compares figures of the same round.
//!
//! - [`mod@run`]: cases, rounds and tables; [`peers`]: how each server is started; [`process`]: processor
//!   time and memory of a server's processes; [`mod@side`]: the hidden subcommand, which serves or generates
//!   load; [`mod@idle`]: idle connections.

#[cfg(target_os = "linux")]
#[path = "../../../../examples/ob/histogram.rs"]
#[allow(dead_code, reason = "its command line prints more")]
mod histogram;
#[cfg(target_os = "linux")]
mod idle;
#[cfg(target_os = "linux")]
#[path = "../../../../examples/ob/load.rs"]
#[allow(dead_code, reason = "the bench has no waves and no rates")]
mod load;
#[cfg(target_os = "linux")]
mod peers;
#[cfg(target_os = "linux")]
mod process;
#[cfg(target_os = "linux")]
mod run;
#[cfg(target_os = "linux")]
mod side;
#[cfg(target_os = "linux")]
#[path = "../../../../examples/webserver/web/mod.rs"]
#[allow(dead_code, reason = "its tests use the rest")]
mod webserver;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};

/// Options of the bench.
#[derive(Args)]
pub(crate) struct Web {
    /// Seconds of each run [default: 1, with --quick 0.3]
    #[arg(long)]
    seconds: Option<f64>,
    /// Bytes of the file [default: 1024, 8192, 1048576]
    #[arg(long, value_delimiter = ',')]
    sizes: Vec<u64>,
    /// Requests in flight [default: 1, 2, 5, 10, 20, 50, 1000, with --quick 1, 10, 50]
    #[arg(long, value_delimiter = ',')]
    in_flight: Vec<usize>,
    /// Only servers whose name contains one of these; dunlin always runs
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Only over kept connections, or only over new ones
    #[arg(long)]
    keep_alive: Option<bool>,
    /// The core of the servers
    #[arg(long, default_value_t = 0)]
    server_core: usize,
    /// The core of the load generator
    #[arg(long, default_value_t = 1)]
    load_core: usize,
}

/// Options of the bench of idle connections.
#[derive(Args)]
pub(crate) struct Idle {
    /// The number of connections
    #[arg(long, default_value_t = 10_000)]
    connections: usize,
}

/// One process of the bench.
#[derive(Args)]
pub(crate) struct Side {
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// Serves a directory, prints its address, and ends with its standard input
    Serve {
        root: PathBuf,
        log: PathBuf,
        /// The layout with fixed numbers of processes
        #[arg(long)]
        farm: bool,
    },
    /// Sends requests and prints their figures as JSON
    Load {
        address: String,
        path: String,
        #[arg(long)]
        requests: u64,
        #[arg(long)]
        in_flight: usize,
        #[arg(long)]
        keep_alive: bool,
    },
}

/// Options that all subcommands share.
pub(crate) struct Common {
    pub(crate) json: bool,
    pub(crate) rounds: Option<u32>,
    pub(crate) quick: bool,
}

#[cfg(target_os = "linux")]
pub(crate) fn run(web: &Web, common: &Common) -> Result<()> {
    run::run(web, common)
}

#[cfg(target_os = "linux")]
pub(crate) fn idle(idle: &Idle, common: &Common) -> Result<()> {
    idle::run(idle, common)
}

#[cfg(target_os = "linux")]
pub(crate) fn side(side: &Side) -> Result<()> {
    side::run(&side.role)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn run(_: &Web, _: &Common) -> Result<()> {
    anyhow::bail!("the web server needs Linux")
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn idle(_: &Idle, _: &Common) -> Result<()> {
    anyhow::bail!("the web server needs Linux")
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn side(_: &Side) -> Result<()> {
    anyhow::bail!("the web server needs Linux")
}
