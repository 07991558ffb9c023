//! The command line: what there is, and who does it.

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

use crate::demo;

/// Processes and channels, inside a program and between programs
#[derive(Debug, Parser)]
#[command(name = "dunlin", version, about, propagate_version = true)]
pub struct Args {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
    /// Print JSON, one object per line, for scripts
    #[arg(long, global = true)]
    pub json: bool,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Watch a broker bring customers and workers together, each a process of its own
    Demo(demo::Options),
    /// A part of the demo: `demo` starts it
    #[command(hide = true)]
    DemoPart,
    /// Print the completions for a shell
    Completions {
        /// For which shell
        shell: Shell,
    },
}

/// Runs what the arguments of this process ask for.
pub fn run() -> ExitCode {
    let args = Args::parse();
    match args.command {
        Command::Demo(options) => demo::run(&options, args.json),
        Command::DemoPart => demo::play(),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Args::command(), "dunlin", &mut std::io::stdout());
            ExitCode::SUCCESS
        }
    }
}
