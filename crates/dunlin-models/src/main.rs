//! Searches the scenarios, and prints the results.

use std::process::ExitCode;

use clap::Parser;
use dunlin_models::scenarios;

/// Searches every order of events in small worlds, with the protocol's own transitions.
///
/// Prints for each scenario how many states there are; or, if a law does not hold in one, a shortest way
/// there, and exits with 1.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Search only this scenario.
    name: Option<String>,
    /// Print the names of the scenarios.
    #[arg(long)]
    list: bool,
    /// Visit at most this many states of each scenario.
    #[arg(long, default_value_t = 1_500_000)]
    states_max: u64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let mut scenarios = scenarios::all();
    if args.list {
        scenarios.iter().for_each(|scenario| println!("{}", scenario.name()));
        return ExitCode::SUCCESS;
    }
    if let Some(name) = &args.name {
        scenarios.retain(|scenario| scenario.name() == name);
        if scenarios.is_empty() {
            eprintln!("unknown scenario {name}; --list prints all");
            return ExitCode::from(2);
        }
    }
    let mut holds = true;
    for scenario in scenarios {
        let name = scenario.name().to_owned();
        match scenario.explore(args.states_max, |seen| eprintln!("{name}: {} states so far", seen.states)) {
            Ok(seen) => {
                let more = if seen.capped { ", and there are more" } else { "" };
                let cycles = if seen.cycles { ", with cycles" } else { "" };
                println!(
                    "{name}: {} states, {} at rest, depth {}{cycles}{more}: all laws hold",
                    seen.states, seen.rests, seen.depth
                );
            }
            Err(broken) => {
                holds = false;
                println!("{name}: BROKEN: {}", broken.what);
                broken.way.iter().for_each(|step| println!("    {step}"));
            }
        }
    }
    if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
