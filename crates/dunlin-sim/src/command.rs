//! The simulator on the command line: `dunlin-sim`, and `dunlin sim`.

use std::fmt::Write as _;
use std::io::{ErrorKind, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};

use crate::scale::{Figures, Phase, Scale, scale};
use crate::{Coverage, Kind, Verdict};

/// The exit codes, for the help.
const CODES: &str = "Exit codes:
  0    all laws held (with --bugs: all planted bugs were found)
  1    a law was broken
  2    the command line is wrong
  3    a run did not finish after all faults were healed
  4    a planted bug was not found
  5    in a run of at least 10,000 seeds, a fault never occurred in a state where it should have
  6    the machine or the simulator panicked
  7    the outcome, which was none of these, could not be written
  130  interrupted: the counts so far were printed
  141  the reader closed the output, and the run stopped";

/// A build without planted bugs hides the options that activate them.
const HAS_NO_BUGS: bool = cfg!(not(feature = "planted"));

/// The options of a run.
#[derive(Args, Debug)]
#[command(after_help = CODES, args_conflicts_with_subcommands = true)]
pub struct Options {
    #[command(subcommand)]
    command: Option<Command>,
    /// The number of seeds to run
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Activate one of the planted bugs
    #[arg(long, value_name = "NAME", conflicts_with = "bugs", hide = HAS_NO_BUGS)]
    bug: Option<String>,
    /// Activate each planted bug in turn, and print how many seeds it took to find it
    #[arg(long, hide = HAS_NO_BUGS)]
    bugs: bool,
    /// Only runs with ends that travel, and 3 to 6 nodes
    #[arg(long)]
    travelling: bool,
    /// Print the outcome as JSON
    #[arg(long)]
    json: bool,
    /// Print every event
    #[arg(long)]
    trace: bool,
    /// The number of threads that share the seeds
    #[arg(long, default_value_t = std::thread::available_parallelism().map_or(1, |n| n.get() as u64))]
    threads: u64,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Spread very many ends over many nodes by moves, and measure the cost of a move and an end
    ///
    /// No faults occur. Exits with 1 if anything is left over at rest.
    Scale(ScaleOptions),
}

#[derive(Args, Debug)]
struct ScaleOptions {
    /// The number of nodes, all connected with each other: 4 to 1000
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(4..=1000))]
    nodes: u16,
    /// The number of ends, senders and receivers together: at least 2
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(2..))]
    ends: u32,
    /// The seed of all random choices
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

/// How many lines of a trace are printed after a failure.
const TAIL: usize = 40;
/// From this number of seeds on, a run has to cover every cell of the table.
const ENOUGH: u64 = 10_000;
/// How many seeds a thread takes at once.
const BLOCK: u64 = 32;

/// How a seed failed.
#[derive(Clone, Debug)]
enum Failure {
    Broken(String),
    Stuck(String),
    Panicked(String),
}

impl Failure {
    fn code(&self) -> u8 {
        match self {
            Self::Broken(_) => 1,
            Self::Stuck(_) => 3,
            Self::Panicked(_) => 6,
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Broken(_) => "a law is broken",
            Self::Stuck(_) => "not live",
            Self::Panicked(_) => "a panic",
        }
    }

    fn text(&self) -> &str {
        match self {
            Self::Broken(text) | Self::Stuck(text) | Self::Panicked(text) => text,
        }
    }
}

/// The result of a range of seeds.
struct Outcome {
    played: u64,
    coverage: Coverage,
    /// The lowest seed that failed, in whichever thread.
    failure: Option<(u64, Failure)>,
}

impl Options {
    fn kind(&self) -> Kind {
        if self.travelling { Kind::Travelling } else { Kind::Any }
    }
}

fn play(kind: Kind, seed: u64, bug: Option<&str>) -> (Coverage, Option<Failure>) {
    crate::wake(bug);
    match catch_unwind(AssertUnwindSafe(|| crate::run_as(kind, seed, false))) {
        Ok(report) => {
            let failure = match report.verdict {
                Verdict::Clean => None,
                Verdict::Broken(law) => Some(Failure::Broken(law)),
                Verdict::Stuck(what) => Some(Failure::Stuck(what)),
            };
            (report.coverage, failure)
        }
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            (Coverage::default(), Some(Failure::Panicked(text.unwrap_or_default())))
        }
    }
}

/// Plays the seeds in order, up to the first that fails.
fn play_all(options: &Options, bug: Option<&str>, interrupted: &AtomicBool) -> Outcome {
    let end = options.from.saturating_add(options.seeds);
    let next = AtomicU64::new(options.from);
    let played = AtomicU64::new(0);
    // Threads skip the seeds from here on: an earlier one has failed.
    let stop = AtomicU64::new(end);
    let all = Mutex::new((Coverage::default(), None::<(u64, Failure)>));
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..options.threads.max(1) {
            scope.spawn(|| {
                let mut coverage = Coverage::default();
                let mut failure = None;
                'blocks: while !interrupted.load(Ordering::Relaxed) {
                    let from = next.fetch_add(BLOCK, Ordering::Relaxed);
                    for seed in from..from.saturating_add(BLOCK) {
                        if seed >= stop.load(Ordering::Relaxed) {
                            break 'blocks;
                        }
                        let (met, failed) = play(options.kind(), seed, bug);
                        coverage.add(&met);
                        played.fetch_add(1, Ordering::Relaxed);
                        if let Some(failed) = failed {
                            stop.fetch_min(seed, Ordering::Relaxed);
                            failure = Some((seed, failed));
                            break 'blocks;
                        }
                    }
                }
                let mut all = all.lock().expect("no thread panics with it");
                all.0.add(&coverage);
                if let Some((seed, failed)) = failure
                    && all.1.as_ref().is_none_or(|(first, _)| seed < *first)
                {
                    all.1 = Some((seed, failed));
                }
            });
        }
        // Long runs report their progress.
        let mut said = began;
        while next.load(Ordering::Relaxed) < stop.load(Ordering::Relaxed) && !interrupted.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(20));
            if said.elapsed() >= Duration::from_secs(10) && !options.bugs {
                said = Instant::now();
                let played = played.load(Ordering::Relaxed);
                let rate = played as f64 / began.elapsed().as_secs_f64();
                note(&format!("{played} of {} seeds, {rate:.0} a second", options.seeds));
            }
        }
    });
    let (coverage, failure) = all.into_inner().expect("all threads have ended");
    Outcome { played: played.into_inner(), coverage, failure }
}

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c < ' ' => write!(out, "\\u{:04x}", c as u32).expect("a string takes all"),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Prints a line.
fn say(line: &str) {
    let mut out = std::io::stdout();
    if let Err(error) = writeln!(out, "{line}").and_then(|()| out.flush()) {
        let code = if error.kind() == ErrorKind::BrokenPipe { UNREAD } else { UNWRITTEN };
        if LOST.set(code).is_ok() && code == UNWRITTEN {
            note(&format!("error: cannot write the output: {error}. Free some space, or redirect the output"));
        }
    }
}

/// Prints to stderr what is not part of the outcome.
fn note(line: &str) {
    // (`eprintln!` panics if it cannot write.)
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// The exit code for output that could not be printed, if any. A reader that has gone (a closed pipe) does
/// not matter to a run that has ended.
static LOST: OnceLock<u8> = OnceLock::new();
const UNREAD: u8 = 141;
const UNWRITTEN: u8 = 7;

fn bug_names() -> Vec<&'static str> {
    crate::bugs()
}

/// The command that replays one seed with its trace. `program`: the name of this command.
fn replay(program: &str, kind: Kind, seed: u64, bug: Option<&str>) -> String {
    let bug = bug.map(|bug| format!(" --bug {bug}")).unwrap_or_default();
    let kind = if kind == Kind::Travelling { " --travelling" } else { "" };
    format!("{program} --from {seed} --seeds 1 --trace{kind}{bug}")
}

fn find_bugs(options: &Options, interrupted: &AtomicBool) -> u8 {
    let mut code = 0;
    let mut rows = Vec::new();
    if !options.json {
        say(&format!("{:<24}{:>8}  what was seen", "bug", "seeds"));
    }
    for bug in bug_names() {
        let outcome = play_all(options, Some(bug), interrupted);
        if interrupted.load(Ordering::Relaxed) {
            return 130;
        }
        let (seeds, seen) = match &outcome.failure {
            Some((seed, failure)) => ((seed - options.from + 1).to_string(), failure.text().to_owned()),
            None => {
                code = 4;
                ("-".to_owned(), format!("NOT FOUND in {} seeds", outcome.played))
            }
        };
        // A tripped assert does not prove that the checker found the bug.
        if matches!(outcome.failure, Some((_, Failure::Panicked(_)))) {
            code = 4;
        }
        if options.json {
            rows.push(format!(
                "{}:{{\"seeds\":{},\"seen\":{}}}",
                quoted(bug),
                seeds.replace('-', "null"),
                quoted(&seen)
            ));
        } else {
            say(&format!("{bug:<24}{seeds:>8}  {seen}"));
            if let Some(&lost) = LOST.get() {
                return lost;
            }
        }
    }
    if options.json {
        say(&format!("{{\"bugs\":{{{}}},\"code\":{code}}}", rows.join(",")));
    }
    code
}

fn one_range(options: &Options, program: &str, interrupted: &AtomicBool) -> u8 {
    let bug = options.bug.as_deref();
    let began = Instant::now();
    let outcome = play_all(options, bug, interrupted);
    let seconds = began.elapsed().as_secs_f64();
    let missing = outcome.coverage.missing();
    let enough = outcome.played >= ENOUGH && bug.is_none();
    let code = match &outcome.failure {
        Some((_, failure)) => failure.code(),
        None if interrupted.load(Ordering::Relaxed) => 130,
        None if bug.is_some() => 4,
        None if enough && !missing.is_empty() => 5,
        None => 0,
    };
    if options.json {
        let failure = outcome.failure.as_ref().map_or("null".to_owned(), |(seed, failure)| {
            let (kind, text) = (quoted(failure.kind()), quoted(failure.text()));
            format!(
                "{{\"seed\":{seed},\"kind\":{kind},\"text\":{text},\"replay\":{}}}",
                quoted(&replay(program, options.kind(), *seed, bug))
            )
        });
        let missing: Vec<String> = missing.iter().map(|cell| quoted(cell)).collect();
        say(&format!(
            "{{\"from\":{},\"played\":{},\"seconds\":{seconds:.1},\"code\":{code},\"failure\":{failure},\"missing\":[{}],\"counts\":{}}}",
            options.from,
            outcome.played,
            missing.join(","),
            outcome.coverage.json(),
        ));
        return code;
    }
    if let Some((seed, failure)) = &outcome.failure {
        say(&format!("\nseed {seed}: {}: {}", failure.kind(), failure.text()));
        crate::wake(bug);
        if let Ok(report) = catch_unwind(AssertUnwindSafe(|| crate::run_as(options.kind(), *seed, true))) {
            let lines = &report.trace[report.trace.len().saturating_sub(TAIL)..];
            say(&format!("the last {} of {} lines of its trace:", lines.len(), report.trace.len()));
            lines.iter().for_each(|line| say(line));
        }
        say(&format!("replay: {}", replay(program, options.kind(), *seed, bug)));
    }
    let rate = outcome.played as f64 / seconds;
    say(&format!("\n{} seeds in {seconds:.1} s ({rate:.0} a second)", outcome.played));
    say(&outcome.coverage.to_string());
    match (&outcome.failure, code) {
        (Some(_), _) => {}
        (None, 130) => say("interrupted: so far all laws held"),
        (None, 4) => say("NOT FOUND: the planted bug broke no law"),
        (None, 5) => say(&format!("all laws held, but these cells were never reached: {}", missing.join(", "))),
        (None, _) => say("all laws held"),
    }
    code
}

fn trace_one(options: &Options) -> u8 {
    let bug = options.bug.as_deref();
    let mut code = 0;
    for seed in options.from..options.from.saturating_add(options.seeds) {
        crate::wake(bug);
        let report = crate::run_as(options.kind(), seed, true);
        for line in &report.trace {
            say(line);
            if let Some(&lost) = LOST.get() {
                return lost;
            }
        }
        say(&format!("seed {seed}: {:?}, trace {:016x}", report.verdict, report.hash));
        code = match report.verdict {
            Verdict::Clean => continue,
            Verdict::Broken(_) => 1,
            Verdict::Stuck(_) => 3,
        };
        break;
    }
    code
}

fn json_number(value: Option<f64>) -> String {
    value.map_or("null".to_owned(), |value| format!("{value:.1}"))
}

/// Resident bytes per end, since before the first channel.
fn bytes_for_each(figures: &Figures, phase: &Phase) -> Option<f64> {
    let (now, before) = (phase.resident? as f64, figures.resident_before? as f64);
    Some((now - before) / figures.scale.ends as f64)
}

fn scaled(options: &ScaleOptions) -> u8 {
    let plan = Scale { nodes: options.nodes.into(), ends: options.ends as usize, seed: options.seed };
    let figures = match scale(plan, &mut |what| note(what)) {
        Ok(figures) => figures,
        Err(what) if options.json => {
            say(&format!(
                "{{\"nodes\":{},\"ends\":{},\"code\":1,\"failure\":{}}}",
                plan.nodes,
                plan.ends,
                quoted(&what)
            ));
            return 1;
        }
        Err(what) => {
            say(&what);
            return 1;
        }
    };
    let records = &figures.records;
    if options.json {
        let row = |phase: &Phase| {
            format!(
                "{{\"name\":{},\"count\":{},\"frames\":{},\"bytes\":{},\"seconds\":{:.1},\"resident_bytes_per_end\":{}}}",
                quoted(phase.name),
                phase.count,
                phase.frames,
                phase.bytes,
                phase.seconds,
                json_number(bytes_for_each(&figures, phase)),
            )
        };
        let rows: Vec<String> = figures.phases.iter().map(row).collect();
        say(&format!(
            "{{\"nodes\":{},\"ends\":{},\"seed\":{},\"code\":0,\"homes\":{},\"halves\":{},\"phases\":[{}]}}",
            plan.nodes,
            plan.ends,
            plan.seed,
            records.homes,
            records.proxies,
            rows.join(",")
        ));
        return 0;
    }
    say(&format!(
        "{:<40}{:>10}{:>12}{:>12}{:>10}{:>14}",
        "", "count", "frames each", "bytes each", "seconds", "memory/end"
    ));
    for phase in &figures.phases {
        let each = |all: u64| all as f64 / phase.count as f64;
        let memory = bytes_for_each(&figures, phase).map_or("-".to_owned(), |bytes| format!("{bytes:.0}"));
        say(&format!(
            "{:<40}{:>10}{:>12.2}{:>12.0}{:>10.1}{memory:>14}",
            phase.name,
            phase.count,
            each(phase.frames),
            each(phase.bytes),
            phase.seconds
        ));
    }
    say("\nframes: numbered ones, the message's own two among them; bytes: of all frames, acknowledgements too;");
    say(
        "memory/end: resident bytes since before the first channel (the system's count, which gives little back), for each end",
    );
    say(&format!(
        "at rest {} homes, {} attached halves, {} halves, as many as there are; nothing else was left, and after the drop nothing",
        records.homes, records.attached, records.proxies
    ));
    0
}

/// Runs what the options select, and returns the exit code, which the help explains. `program`: the name of
/// the command, for the advice to replay a seed; `json`: as if the options had it.
pub fn run(mut options: Options, program: &str, json: bool) -> ExitCode {
    options.json |= json;
    if let Some(Command::Scale(scale)) = &mut options.command {
        scale.json |= options.json;
        return written(scaled(scale));
    }
    let names = bug_names();
    if HAS_NO_BUGS && (options.bugs || options.bug.is_some()) {
        note(
            "error: no bugs are planted in this build. In a clone of dunlin: cargo run -p dunlin-sim --features planted -- --bugs",
        );
        return ExitCode::from(2);
    }
    if let Some(bug) = &options.bug
        && !names.contains(&bug.as_str())
    {
        note(&format!("there is no planted bug {bug:?}; there are: {}", names.join(", ")));
        return ExitCode::from(2);
    }
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&interrupted);
    // Without a handler, an interrupt ends the program without its counts; the run starts all the same.
    let _ = ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed));
    if !options.json {
        let last = options.from.saturating_add(options.seeds - 1);
        let bug = options.bug.as_deref().unwrap_or(if options.bugs { "each in turn" } else { "none" });
        say(&format!(
            "the simulator of dunlin {}: seeds {} to {last}, {} threads, planted bug: {bug}",
            env!("CARGO_PKG_VERSION"),
            options.from,
            options.threads
        ));
        let nodes = if options.travelling { "3 to 6 nodes with ends that travel" } else { "2 to 6 nodes" };
        say(&format!(
            "drawn from each seed: {nodes}, times, windows, chunks, buffers, which faults and how often (--trace prints them)"
        ));
    }
    written(if options.bugs {
        find_bugs(&options, &interrupted)
    } else if options.trace {
        trace_one(&options)
    } else {
        one_range(&options, program, &interrupted)
    })
}

/// This exit code, unless only the output failed.
fn written(code: u8) -> ExitCode {
    let is_unwritten = LOST.get() == Some(&UNWRITTEN);
    ExitCode::from(if code == 0 && is_unwritten { UNWRITTEN } else { code })
}
