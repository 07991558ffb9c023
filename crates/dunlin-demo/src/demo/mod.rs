//! `dunlin demo`: a broker, workers and customers, each an OS process of its own.
//!
//! - [`protocol`]: what they send each other;
//! - [`broker`], [`worker`], [`customer`]: the parts, functions of their ends, which know neither nodes nor
//!   processes;
//! - [`plan`]: which parts there are, and in which order they start;
//! - [`inside`]: the parts in one program, over local channels;
//! - [`processes`]: the parts in processes of their own, which `part` runs: over nodes;
//! - [`texts`], [`words`]: the texts, and how they are counted;
//! - [`event`]: the events that the parts report; `tally` makes a table of them, and `display` shows it.

pub mod broker;
pub mod customer;
mod display;
pub mod event;
pub mod inside;
mod part;
pub mod plan;
pub mod processes;
pub mod protocol;
mod signals;
mod tally;
pub mod texts;
pub mod words;
pub mod worker;

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use dunlin::prelude::*;
use dunlin_terminal::failure::{exit, has_files};
use dunlin_terminal::output::{Lost, complain};

use display::Display;
use event::Said;
pub use part::{PART, play};
use plan::Plan;
use processes::Ending;
use texts::Text;

/// The options of `dunlin demo`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "A customer asks the broker for a worker, and is given the worker's handle: a bundle of channel ends. From then on the two \
are connected directly. The customer sends a text, gets the table of its words, and sends the handle back over one of the handle's own channels."
)]
pub struct Options {
    /// The number of customers
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub customers: u16,
    /// The number of workers
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub workers: u16,
    /// Count the words of the files of this folder [default: some poems]
    #[arg(long, value_name = "DIR")]
    pub files: Option<PathBuf>,
    /// The pause before each piece of a text, of about a hundred [default: 15 on a terminal, else 0]
    #[arg(long, value_name = "MILLISECONDS", value_parser = clap::value_parser!(u64).range(..=10_000))]
    pub pace: Option<u64>,
    /// The address of the demo's name service [default: a free port of this machine]
    #[arg(long, value_name = "HOST:PORT", value_parser = place)]
    pub names: Option<String>,
    /// Run all parts in this process, over local channels
    #[arg(long, conflicts_with = "names")]
    pub inside: bool,
    /// Start the parts one after the other, in an order drawn from this seed
    #[arg(long, value_name = "SEED", hide = true)]
    pub order: Option<u64>,
    /// How long the parts wait for the name service and the broker, in seconds
    #[arg(long, value_name = "SECONDS", hide = true, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    pub patience: u64,
}

/// An address that is known beforehand.
fn place(text: &str) -> Result<String, String> {
    let port = text.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
    match port {
        Some(1..) => Ok(text.to_owned()),
        Some(0) => Err("port 0 is a different port each time; omit --names for a free port".to_owned()),
        None if text.starts_with("unix:/") => Ok(text.to_owned()),
        None => Err("write host:port, such as 127.0.0.1:7400".to_owned()),
    }
}

/// Runs `dunlin demo`. Returns 0 if all texts were counted exactly, 1 if not, or if the report could not be
/// written, 2 if there is nothing to count.
pub fn run(options: &Options, json: bool) -> ExitCode {
    let texts = match &options.files {
        None => Text::shipped(),
        Some(folder) => match Text::files_of(folder) {
            Ok(texts) if texts.is_empty() => {
                complain(format_args!(
                    "error: there is no file in {}: give a folder with texts to --files",
                    folder.display()
                ));
                return ExitCode::from(2);
            }
            Ok(texts) => texts,
            Err(error) => {
                complain(format_args!("error: cannot list {}: {error}", folder.display()));
                return ExitCode::from(2);
            }
        },
    };
    let live = !json && io::stdout().is_terminal();
    let mut plan = Plan::new(options.customers, options.workers, texts);
    plan.pace = Duration::from_millis(options.pace.unwrap_or(if live { 15 } else { 0 }));
    plan.patience = Duration::from_secs(options.patience);
    if let Some(seed) = options.order {
        plan.shuffle(seed);
    }
    if let Err(failure) = has_files() {
        return exit(Err(failure));
    }
    let mut display = Display::new(&plan, json, live, options.inside);
    let ending = dunlin::block_on(async {
        if options.inside {
            run_inside(&plan, |said| display.hear(said)).await
        } else {
            processes::run(&plan, options.names.as_deref(), |said| display.hear(said)).await
        }
    });
    ExitCode::from(display.end(&ending))
}

/// All parts in this process.
async fn run_inside(plan: &Plan, mut hear: impl FnMut(&Said) -> Result<(), Lost>) -> Ending {
    let (tx, mut rx) = channel();
    let mut signals = signals::signals();
    let mut parts = spawn({
        let plan = plan.clone();
        async move { inside::run(&plan, tx.share()).await }
    });
    let code = loop {
        alt! { biased;
            signal = signals.recv() => if let Ok(code) = signal {
                break code;
            },
            said = rx.next() => match said {
                Ok(Some(said)) => if let Err(lost) = hear(&said) {
                    break lost.code();
                },
                _ => return Ending::Done,
            },
        }
    };
    parts.cancel();
    let _ = (&mut parts).await;
    Ending::Stopped(code)
}
