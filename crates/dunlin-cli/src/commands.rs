//! The command line: the subcommands, and the module of each.

use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use dunlin_demo::{demo, farm};
use dunlin_terminal::failure::{exit, on_runtime};
use dunlin_terminal::output::{self, Output};

use crate::{config, names, node, ping, profile, sim};
#[cfg(unix)]
use crate::{repl, scheme};

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
    /// Show each value of the configuration and its origin
    Config(config::Options),
    /// Serve an application's names, or list them
    #[command(subcommand)]
    Names(names::Options),
    /// Measure round trips to a node
    Ping(ping::Options),
    /// Show how long blocking calls waited, ran, and took to stop, and draw it
    Profile(profile::Options),
    /// Run a node of the configuration until Ctrl-C
    Node(node::Options),
    /// Run the protocol over a simulated network with faults, and check its laws
    Sim(sim::Options),
    /// Run a Scheme program
    #[cfg(unix)]
    Scheme(scheme::Options),
    /// Evaluate Scheme line by line
    #[cfg(unix)]
    Repl(repl::Options),
    /// Run a farm: a master divides work among workers, which may join and leave at any time
    #[command(subcommand)]
    Farm(farm::Farm),
    /// Run a demo: a broker connects customers with workers, each a process of its own
    Demo(demo::Options),
    /// Print completions for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
}

/// Runs the subcommand that the arguments of this process name.
pub fn run() -> ExitCode {
    // Not a subcommand: clap would suggest it for a mistyped one, and complete it.
    if std::env::args_os().nth(1).is_some_and(|word| word == demo::PART) {
        return demo::play();
    }
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(wrong) if wrong.use_stderr() => wrong.exit(),
        // Clap returns the help and the version as errors.
        Err(asked) => {
            if let Err(error) = asked.print().and_then(|()| std::io::stdout().flush()) {
                output::lose(&error);
            }
            return exit(Ok(()));
        }
    };
    let output = Output { json: args.json };
    match args.command {
        Command::Config(options) => exit(config::run(&options, output)),
        Command::Names(options) => exit(on_runtime(names::run(&options, output))),
        Command::Ping(options) => exit(on_runtime(ping::run(&options, output))),
        Command::Profile(options) => exit(profile::run(&options, output)),
        Command::Node(options) => exit(on_runtime(node::run(&options, output))),
        Command::Sim(options) => sim::run(options, output),
        #[cfg(unix)]
        Command::Scheme(options) => scheme::run(&options),
        #[cfg(unix)]
        Command::Repl(options) => repl::run(&options),
        Command::Farm(farm) => {
            if let Some(what) = farm.wrong() {
                Args::command().error(clap::error::ErrorKind::ValueValidation, what).exit();
            }
            farm.run(args.json)
        }
        Command::Demo(options) => demo::run(&options, args.json),
        Command::Completions { shell } => {
            // (Clap panics if it cannot write.)
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Args::command(), "dunlin", &mut script);
            output::write(&script);
            exit(Ok(()))
        }
    }
}
