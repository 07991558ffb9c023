//! The command line: what there is, and who does it.

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

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
    /// Farms: a master divides work among workers, which may be anywhere, and come and go as they like
    #[command(subcommand)]
    Farm(crate::farm::Farm),
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
        Command::Farm(farm) => {
            if let Some(what) = farm.wrong() {
                Args::command().error(clap::error::ErrorKind::ValueValidation, what).exit();
            }
            farm.run(args.json)
        }
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Args::command(), "dunlin", &mut std::io::stdout());
            ExitCode::SUCCESS
        }
    }
}
