//! `dunlin sim`: the simulator of the protocol. No bugs are planted in it.

use std::process::ExitCode;

pub use dunlin_sim::command::Options;
use dunlin_terminal::output::Output;

/// Runs the simulator.
pub fn run(options: Options, output: Output) -> ExitCode {
    dunlin_sim::command::run(options, "dunlin sim", output.json)
}
