//! Measures dunlin beside its peers, in the same run: Go, Erlang, and other Rust channels.
//!
//! ```text
//! cargo run --profile measured -p dunlin-bench -- commstime
//! cargo run --profile measured -p dunlin-bench -- all --json --rounds 7 > figures.jsonl
//! ```
//!
//! Absolute times say little: they differ between machines, and with the load of one machine. So each round
//! runs Go, then every other participant, and the figure that counts is the ratio to Go in the same round,
//! with the same number of workers.
//!
//! Every participant is a command that runs one program and prints one number ([`participants`]). For Go and
//! Erlang the command is a small program under `peers/`. For dunlin and the other Rust channels it is this
//! binary with its hidden subcommand `one`, so that they never share allocator, threads or garbage. All Rust
//! channels run the same code ([`programs`]).
//!
//! The report shows a missed goal, but a missed goal never fails the run: a timed test would fail on a busy
//! machine. A participant that crashes, hangs or loses a value fails the run.

mod actors;
mod bench;
mod callgrind;
mod child;
mod commands;
mod dunlin_side;
mod library;
mod local;
mod measure;
mod memory;
mod nodes;
mod offload;
mod parked;
mod participants;
mod peers;
mod pony;
mod program;
mod programs;
mod remote;
mod report;
mod runtime;
mod streams;
mod stressed;
mod web;

use std::env;
use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

use crate::peers::Foreign;
use crate::program::{Networked, Program};
use crate::report::Unprinted;

/// The profile of the figures in docs/performance.md.
const MEASURED: &str = "measured";

#[derive(Parser)]
#[command(about = "Measures dunlin beside its peers: Go, Erlang, and other channels for Rust")]
struct Args {
    #[command(subcommand)]
    command: Command,
    /// Print one JSON object per line, and nothing else, to standard output
    #[arg(long, global = true)]
    json: bool,
    /// How often each participant runs; the report has the median [default: 5], with `pony` the mean
    /// [default: 3]
    #[arg(long, global = true, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Worker threads (in Go: GOMAXPROCS, in Erlang: schedulers); `par` always has one, and `pony` one for
    /// each core unless 1 or 2 is given
    #[arg(long, global = true, default_value = "both")]
    workers: Workers,
    /// Less work per run, for a first look
    #[arg(long, global = true)]
    quick: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Prefix, delta, successor and consumer: nanoseconds per communication
    Commstime {
        /// With the channel from prefix to delta between two nodes, or every channel; all nodes are in one
        /// process
        #[arg(long)]
        networked: Option<Networked>,
    },
    /// Two processes and two channels: nanoseconds per round trip
    Pingpong,
    /// Fair choice among eight writers, all ready or taking turns: nanoseconds per event
    Choice,
    /// Fair choice among 8 channels with 4 writers each, and 200 with 100, judged by its log: nanoseconds per
    /// event
    StressedAlt {
        /// With one channel between two nodes, or every channel; both nodes are in one process
        #[arg(long)]
        networked: Option<Networked>,
    },
    /// One sender and 1,000 to 20,000 receivers parked on a shared end: nanoseconds per value
    SharedParked,
    /// Processes that end at once, until all have ended: nanoseconds each
    Spawn,
    /// One token round many processes: nanoseconds per hop
    Ring,
    /// Processes parked on a channel each: bytes each
    Memory,
    /// All of the above
    All,
    /// Two OS processes and two channels, 8 and 100,000 bytes: nanoseconds per round trip
    RemotePingpong,
    /// The same over a link (feature `link`)
    #[cfg(feature = "link")]
    RemoteLink,
    /// Round trips beside a value that takes a second to encode, on the same link
    #[cfg(feature = "link")]
    LinkSlow,
    /// Messages of 100,000 bytes from one OS process to another: nanoseconds per message
    RemoteThroughput,
    /// Commstime over four OS processes: nanoseconds per communication
    RemoteCommstime,
    /// The bytes that the protocol adds to messages of 100,000 bytes, in percent
    RemoteOverhead,
    /// An 8 byte ping beside a transfer of a gigabyte: nanoseconds per round trip, and per megabyte
    RemoteBeside,
    /// Local commstime beside a node, and beside a remote ping: nanoseconds per communication
    LocalBeside,
    /// 5,000 connections with heartbeats only: processor time
    Idle,
    /// A thousand clients that call one server: nanoseconds per call, and memory of the server
    Clients,
    /// All between OS processes, and local-beside
    Remote,
    /// Instructions of a local communication with and without a node, counted by valgrind
    Callgrind,
    /// An end that moves from node to node: messages, nanoseconds, and messages that wait for each other
    Moves,
    /// A choice over three nodes: messages, nanoseconds, and messages that wait for each other
    NodeChoices,
    /// A shared end, used and claimed at nodes other than its keeper: messages, nanoseconds, and messages
    /// that wait for each other
    Claims,
    /// Named ends of one node, 1,000 and 16,000, declared and dropped: nanoseconds each
    Names,
    /// A channel with 0 to 1024 places at a round trip of 45 ms of virtual time (feature sim): messages per
    /// second
    Window,
    /// A farm of 25 workers at a round trip of 1 ms of virtual time (feature sim): tasks per second
    Farm,
    /// The benches of pony, the network environment of occam-pi: throughput, overhead, processor time; with
    /// plots
    Pony(pony::Pony),
    /// Runs one process of a bench of pony's
    #[command(hide = true)]
    PonySide(pony::Task),
    /// Blocking calls beside tokio's spawn_blocking: nanoseconds to the trigger, to the answer, per packet;
    /// a ring of 256 processes, and a computation, beside calls
    Blocking,
    /// Sockets, pipes and programs beside tokio's: nanoseconds per round trip, piece, program
    Io,
    /// Processes with mailboxes, links and servers beside those of Erlang, ractor and kameo, and tokio's
    /// tasks: nanoseconds to spawn, end, post, call; bytes of each and of a link
    Processes,
    /// The example web server beside nginx and Apache: requests per second, latencies, processor time
    Web(web::Web),
    /// Idle connections of the example web server: bytes each, and the latencies of others
    WebIdle(web::Idle),
    /// Serves files or sends requests, for `web`
    #[command(hide = true)]
    WebSide(web::Side),
    /// Runs one program in this process and prints its figure; the other subcommands start it
    #[command(hide = true)]
    One(program::One),
    /// Runs one side of a remote program
    #[command(hide = true)]
    Side(remote::Side),
}

#[derive(Clone, Copy, ValueEnum)]
enum Workers {
    #[value(name = "1")]
    One,
    #[value(name = "2")]
    Two,
    Both,
}

fn main() -> anyhow::Result<ExitCode> {
    match run(Args::parse()) {
        // As for a program that writes into a closed pipe.
        Err(error) if error.downcast_ref().is_some_and(Unprinted::is_unread) => Ok(ExitCode::from(141)),
        done => done.map(|()| ExitCode::SUCCESS),
    }
}

fn run(args: Args) -> anyhow::Result<()> {
    let programs = match args.command {
        Command::Commstime { networked: None } => vec![Program::Commstime],
        Command::Commstime { networked: Some(Networked::One) } => vec![Program::CommstimeOne],
        Command::Commstime { networked: Some(Networked::All) } => vec![Program::CommstimeAll],
        Command::Pingpong => vec![Program::Pingpong],
        Command::Choice => vec![Program::ChoiceReady, Program::ChoiceWaits],
        Command::StressedAlt { networked: None } => vec![Program::StressedAlt8x4, Program::StressedAlt200x100],
        Command::StressedAlt { networked: Some(Networked::One) } => {
            vec![Program::StressedAlt8x4One, Program::StressedAlt200x100One]
        }
        Command::StressedAlt { networked: Some(Networked::All) } => {
            vec![Program::StressedAlt8x4All, Program::StressedAlt200x100All]
        }
        Command::SharedParked => vec![Program::SharedParked],
        Command::Spawn => vec![Program::Spawn],
        Command::Ring => vec![Program::Ring],
        Command::Memory => vec![Program::Memory],
        Command::All => Program::LOCAL.to_vec(),
        Command::RemotePingpong => vec![Program::RemotePingpong],
        #[cfg(feature = "link")]
        Command::RemoteLink => vec![Program::RemoteLink],
        #[cfg(feature = "link")]
        Command::LinkSlow => return remote::over_link::slow(args.rounds.unwrap_or(5)),
        Command::RemoteThroughput => vec![Program::RemoteThroughput],
        Command::RemoteCommstime => vec![Program::RemoteCommstime],
        Command::RemoteOverhead => vec![Program::RemoteOverhead],
        Command::RemoteBeside => vec![Program::RemoteBeside, Program::RemoteBesideTransfer],
        Command::LocalBeside => vec![Program::LocalBeside],
        Command::Idle => vec![Program::Idle],
        Command::Clients => vec![Program::ClientsEach, Program::ClientsShared, Program::ClientsMemory],
        Command::Remote => Program::value_variants().iter().copied().filter(|program| program.is_remote()).collect(),
        Command::Moves => with_sim(&[Program::MoveMessages, Program::MoveTcp], Program::MoveSim),
        Command::NodeChoices => with_sim(&[Program::ChoiceMessages, Program::ChoiceTcp], Program::ChoiceSim),
        Command::Claims => with_sim(&[Program::ClaimMessages, Program::ClaimTcp], Program::ClaimSim),
        Command::Names => vec![Program::Names],
        Command::Blocking => Program::value_variants().iter().copied().filter(|program| program.is_offload()).collect(),
        Command::Io => Program::value_variants().iter().copied().filter(|program| program.is_of_streams()).collect(),
        Command::Processes => Program::value_variants().iter().copied().filter(|p| p.is_of_actors()).collect(),
        Command::Window => with_sim(&[], Program::Window),
        Command::Farm => with_sim(&[], Program::Farm),
        Command::Callgrind => return callgrind::run(args.quick),
        Command::Pony(pony) => {
            warn_of_other_profiles();
            child::end_with_ctrl_c()?;
            let threads = match args.workers {
                Workers::One => Some(1),
                Workers::Two => Some(2),
                Workers::Both => None,
            };
            let common = pony::Common { json: args.json, rounds: args.rounds, quick: args.quick, threads };
            return pony::run(&pony, &common);
        }
        Command::PonySide(task) => return pony::side(&task),
        Command::Web(web) => {
            warn_of_other_profiles();
            return web::run(&web, &web::Common { json: args.json, rounds: args.rounds, quick: args.quick });
        }
        Command::WebIdle(idle) => {
            warn_of_other_profiles();
            return web::idle(&idle, &web::Common { json: args.json, rounds: args.rounds, quick: args.quick });
        }
        Command::WebSide(side) => return web::side(&side),
        Command::One(one) => return local::run(&one),
        Command::Side(side) => return remote::run(&side),
    };
    let workers: &[usize] = match args.workers {
        Workers::One => &[1],
        Workers::Two => &[2],
        Workers::Both => &[1, 2],
    };

    warn_of_other_profiles();
    child::end_with_ctrl_c()?;
    let foreign = Foreign::build()?;
    let mut failed = 0;
    for bench in programs.into_iter().flat_map(|program| bench::benches(program, args.quick)) {
        let participants = participants::of(&bench, workers, &foreign)?;
        let participant_count = participants.len();
        let outcomes = measure::interleaved(bench.name, participants, args.rounds.unwrap_or(5));
        failed += participant_count - outcomes.len();
        let rows = report::rows(&bench, &outcomes);
        if args.json {
            report::print_json(&rows)?;
        } else {
            report::print_table(&rows)?;
        }
    }
    // Unlike a missed goal, this means that a participant crashed, hung, or lost a value.
    anyhow::ensure!(failed == 0, "{failed} participants failed, see above");
    Ok(())
}

fn warn_of_other_profiles() {
    if cfg!(debug_assertions) {
        eprintln!("WARNING: figures of a debug build mean nothing; use `cargo run --profile {MEASURED}`");
    } else if !env::current_exe().is_ok_and(|this| is_measured(&this)) {
        eprintln!("warning: docs/performance.md is not of such a build; use `cargo run --profile {MEASURED}`");
    }
}

/// Cargo has one folder for each profile.
fn is_measured(binary: &Path) -> bool {
    binary.parent().is_some_and(|folder| folder.ends_with(MEASURED))
}

/// The simulated network is a feature, so that the other benches are measured without it.
fn with_sim(programs: &[Program], simulated: Program) -> Vec<Program> {
    if cfg!(feature = "sim") {
        return [programs, &[simulated]].concat();
    }
    eprintln!(
        "{simulated} is left out: it needs the feature sim (cargo run --profile measured -p dunlin-bench --features sim)"
    );
    programs.to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subcommand_takes_the_common_options() {
        for command in [
            "commstime",
            "pingpong",
            "choice",
            "stressed-alt",
            "spawn",
            "ring",
            "memory",
            "all",
            "remote-beside",
            "idle",
            "clients",
            "remote",
            "moves",
            "node-choices",
            "claims",
            "names",
            "processes",
            "window",
            "farm",
        ] {
            let args = Args::try_parse_from(["", command, "--json", "--rounds", "3", "--workers", "2", "--quick"]);
            let args = args.unwrap_or_else(|error| panic!("{command}: {error}"));
            assert!(args.json && args.quick && args.rounds == Some(3) && matches!(args.workers, Workers::Two));
        }
    }

    #[test]
    fn hidden_subcommands_parse_participant_arguments() {
        let args = Args::try_parse_from(["", "one", "kanal(0)", "choice-ready", "7", "1", "--current-thread"]);
        assert!(matches!(args.map(|args| args.command), Ok(Command::One(_))));
        let args = Args::try_parse_from(["", "side", "tokio tcp", "remote-pingpong", "7", "8", "1", "--role", "1"]);
        assert!(matches!(args.map(|args| args.command), Ok(Command::Side(_))));
    }

    #[test]
    fn is_measured_accepts_only_the_measured_profile() {
        assert!(is_measured(Path::new("target/measured/dunlin-bench")));
        assert!(!is_measured(Path::new("measured/release/dunlin-bench")));
    }

    #[test]
    fn zero_rounds_are_refused() {
        assert!(Args::try_parse_from(["", "commstime", "--rounds", "0"]).is_err());
    }
}
