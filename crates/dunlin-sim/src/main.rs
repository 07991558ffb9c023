//! The simulator on the command line: `--help` says how.

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
    run(Line::parse().options, "cargo run --release -p dunlin-sim --", false)
}
