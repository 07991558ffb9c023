//! The simulator on the command line: `--help` explains it.

use std::process::ExitCode;

use clap::Parser;
use dunlin_sim::command::{Options, run};

/// Plays nodes of dunlin's protocol over a simulated network, with faults, and checks the laws.
#[derive(Debug, Parser)]
#[command(name = "dunlin-sim", version)]
struct Line {
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    let planted = if cfg!(feature = "planted") { " --features planted" } else { "" };
    run(Line::parse().options, &format!("cargo run --release -p dunlin-sim{planted} --"), false)
}
