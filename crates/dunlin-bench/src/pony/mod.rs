//! The benches of pony, the network environment of occam-pi (Schweigler and Sampson, CPA 2006), with dunlin's
//! nodes and with plain sockets: throughput, overhead, and processor time for each send.
//!
//! As in pony's own programs (`bmthroughput.occ` in KRoC's sources), workers at their own nodes send to a
//! master as fast as it receives, each over its own channel. The master makes a fair choice among all, and
//! counts. Nodes are OS processes.
//!
//! - [`mod@run`]: one run of any bench; [`task`]: the parameters of its processes; [`over_dunlin`],
//!   [`over_tcp`]: the work of the processes; [`link`]: a network whose packets are counted;
//! - [`throughput`], [`overhead`], [`cpu`]: the runs of each bench, and its rows; [`plot`]: SVG.

mod cpu;
mod error;
mod link;
mod over_dunlin;
#[cfg(feature = "link")]
mod over_link;
mod over_tcp;
mod overhead;
mod plot;
mod run;
mod task;
mod throughput;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{env, thread};

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};

use self::error::PonyError;
use self::plot::Chart;
use self::run::Measured;
use crate::{child, report};

pub(crate) use self::run::run as side;
pub(crate) use self::task::Task;

#[derive(Args)]
pub(crate) struct Pony {
    #[command(subcommand)]
    command: PonyCommand,
}

#[derive(Subcommand)]
enum PonyCommand {
    /// Workers at many nodes send to one master as fast as it receives: megabytes and messages per second,
    /// mean of the rounds
    Throughput {
        /// The varied quantity: 1 to 25 nodes with 2 workers each and 100 KB; 1 B to 1 MB from 50 workers at
        /// one node; or 1 to 500 workers at one node, 50 KB
        #[arg(long)]
        vary: throughput::Vary,
        #[command(flatten)]
        options: Options,
        #[command(flatten)]
        svg: Svg,
    },
    /// Bytes on the wire besides those of the messages, 1 B to 1 MB: the bytes that dunlin adds, and those
    /// that the network adds
    Overhead {
        #[command(flatten)]
        options: Options,
        #[command(flatten)]
        svg: Svg,
    },
    /// Processor time of both sides for each send
    Cpu {
        /// The varied quantity: 1 B to 1 MB in one message, or 1 to 10,000 items of 1 B, 1 KB and 1 MB in one
        #[arg(long)]
        vary: cpu::Vary,
        #[command(flatten)]
        options: Options,
        #[command(flatten)]
        svg: Svg,
    },
    /// All of these, one after the other: an hour and a half with the default times
    All {
        #[command(flatten)]
        options: Options,
        /// Draws each into a file of this folder
        #[arg(long, value_name = "DIR")]
        svg_dir: Option<PathBuf>,
    },
    /// Draws the rows that earlier runs have printed with --json; of rows for the same point, the last
    Plot {
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Draws into files of this folder
        #[arg(long, value_name = "DIR")]
        svg_dir: PathBuf,
    },
}

#[derive(Args, Clone)]
struct Options {
    /// Only these points of the sweep, as 1,5,25. Default: the usual ones
    #[arg(long, value_delimiter = ',', value_name = "N,...")]
    at: Option<Vec<usize>>,
    /// Seconds before the measurement, from when a message of each worker has been received
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    warm_up: Option<f64>,
    /// Seconds of the measurement
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    window: Option<f64>,
}

#[derive(Args)]
struct Svg {
    /// Draws the plot into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// A run of more than 60 seconds would appear to hang.
fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "this is no number of seconds".to_owned())?;
    if seconds > 0.0 && seconds <= 60.0 { Ok(seconds) } else { Err("more than 0 and at most 60 seconds".to_owned()) }
}

/// Options that all subcommands of this binary share.
pub(crate) struct Common {
    pub(crate) json: bool,
    pub(crate) rounds: Option<u32>,
    pub(crate) quick: bool,
    /// tokio's workers in each process; default: the number of cores
    pub(crate) threads: Option<usize>,
}

/// The parameters of the measurement: part of each row.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct How {
    warm_up_s: f64,
    window_s: f64,
    rounds: u32,
    threads: usize,
    cores: usize,
    /// Whether it is a first look, not a measurement.
    quick: bool,
}

impl How {
    fn new(common: &Common, options: &Options, usual: (f64, f64)) -> Self {
        let usual = if common.quick { (0.3, 1.0) } else { usual };
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Self {
            warm_up_s: options.warm_up.unwrap_or(usual.0),
            window_s: options.window.unwrap_or(usual.1),
            rounds: common.rounds.unwrap_or(if common.quick { 1 } else { 3 }),
            threads: common.threads.unwrap_or(cores),
            cores,
            quick: common.quick,
        }
    }

    /// A task with one worker at one node.
    fn task(&self, who: &str, size: usize) -> Task {
        Task {
            who: who.to_owned(),
            nodes: 1,
            workers: 1,
            size,
            items: 0,
            threads: self.threads,
            warm_up: self.warm_up_s,
            window: self.window_s,
            count: 0,
            on_link: false,
            role: 0,
            names: String::new(),
        }
    }

    /// The text below a chart's title.
    fn below(&self, is_timed: bool) -> String {
        let Self { warm_up_s, window_s, rounds, threads, cores, quick } = self;
        let how = if is_timed {
            format!("mean of {rounds} x {window_s} s after {warm_up_s} s; processes on one machine, loopback TCP")
        } else {
            "counted in both directions; processes on one machine, packets of at most 1500 bytes".to_owned()
        };
        let quick = if *quick { "; QUICK: a first look, no measurement" } else { "" };
        format!("{how}; {cores} cores, {threads} threads for each{quick}")
    }
}

/// A line of the report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "bench")]
enum Row {
    #[serde(rename = "pony-throughput")]
    Throughput(throughput::Row),
    #[serde(rename = "pony-overhead")]
    Overhead(overhead::Row),
    #[serde(rename = "pony-cpu")]
    Cpu(cpu::Row),
}

/// The sweeps, with one chart for each.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sweep {
    Throughput(throughput::Vary),
    Overhead,
    Cpu(cpu::Vary),
}

const ALL: [Sweep; 6] = [
    Sweep::Throughput(throughput::Vary::Nodes),
    Sweep::Throughput(throughput::Vary::Size),
    Sweep::Throughput(throughput::Vary::Workers),
    Sweep::Overhead,
    Sweep::Cpu(cpu::Vary::Size),
    Sweep::Cpu(cpu::Vary::Items),
];

impl Sweep {
    fn name(self) -> String {
        let variant = |vary: clap::builder::PossibleValue| vary.get_name().to_owned();
        match self {
            Self::Throughput(vary) => {
                format!("throughput-{}", vary.to_possible_value().map(variant).unwrap_or_default())
            }
            Self::Overhead => "overhead".to_owned(),
            Self::Cpu(vary) => format!("cpu-{}", vary.to_possible_value().map(variant).unwrap_or_default()),
        }
    }

    /// Seconds to warm up and to measure.
    fn usual(self) -> (f64, f64) {
        match self {
            Self::Throughput(_) => (2.0, 10.0),
            Self::Cpu(_) => (1.0, 3.0),
            // It counts messages instead.
            Self::Overhead => (0.0, 0.0),
        }
    }

    /// All participants for each point, with the references first.
    fn points(self, how: &How, at: Option<&[usize]>) -> Result<Vec<Vec<Task>>, PonyError> {
        match self {
            Self::Throughput(vary) => throughput::points(vary, how, at),
            Self::Overhead => overhead::points(how, at),
            Self::Cpu(vary) => cpu::points(vary, how, at),
        }
    }

    /// The rows of all participants at one point.
    fn rows(self, how: &How, outcomes: &[(Task, Vec<Measured>)]) -> Vec<Row> {
        match self {
            Self::Throughput(vary) => throughput::rows(vary, how, outcomes).into_iter().map(Row::Throughput).collect(),
            Self::Overhead => overhead::rows(how, outcomes).into_iter().map(Row::Overhead).collect(),
            Self::Cpu(vary) => cpu::rows(vary, how, outcomes).into_iter().map(Row::Cpu).collect(),
        }
    }

    /// `None` if no row belongs to this sweep.
    fn chart(self, rows: &[Row]) -> Option<Chart> {
        match self {
            Self::Throughput(vary) => throughput::chart(vary, &throughput::of(vary, rows)),
            Self::Overhead => overhead::chart(&overhead::of(rows)),
            Self::Cpu(vary) => cpu::chart(vary, &cpu::of(vary, rows)),
        }
    }

    fn print(self, rows: &[Row]) -> Result<(), report::Unprinted> {
        match self {
            Self::Throughput(vary) => {
                report::print_aligned(&throughput::table(&throughput::of(vary, rows)), |column| column != 3)
            }
            Self::Overhead => report::print_aligned(&overhead::table(&overhead::of(rows)), |column| column != 1),
            Self::Cpu(vary) => report::print_aligned(&cpu::table(&cpu::of(vary, rows)), |column| column != 2),
        }
    }
}

/// Runs the command.
pub(crate) fn run(pony: &Pony, common: &Common) -> Result<()> {
    match &pony.command {
        PonyCommand::Throughput { vary, options, svg } => one(Sweep::Throughput(*vary), options, svg, common),
        PonyCommand::Overhead { options, svg } => one(Sweep::Overhead, options, svg, common),
        PonyCommand::Cpu { vary, options, svg } => one(Sweep::Cpu(*vary), options, svg, common),
        PonyCommand::All { options, svg_dir } => {
            if let Some(folder) = svg_dir {
                make(folder)?;
            }
            for sweep in ALL {
                let svg = svg_dir.as_ref().map(|folder| folder.join(format!("{}.svg", sweep.name())));
                one(sweep, options, &Svg { svg }, common)?;
            }
            Ok(())
        }
        PonyCommand::Plot { files, svg_dir } => plot_files(files, svg_dir),
    }
}

fn one(sweep: Sweep, options: &Options, svg: &Svg, common: &Common) -> Result<()> {
    let how = How::new(common, options, sweep.usual());
    let points = sweep.points(&how, options.at.as_deref())?;
    // Fail now, not after an hour.
    if let Some(path) = &svg.svg {
        write(path, "")?;
    }
    let binary = env::current_exe()?;
    let in_network = match sweep {
        Sweep::Overhead => link::enter(&binary).map_err(|error| eprintln!("{error}")).ok(),
        _ => None,
    };
    let progress = Progress::new(&sweep.name(), &how, points.iter().map(Vec::len).sum());
    let (mut rows, mut failed) = (Vec::new(), 0);
    for tasks in points {
        let mut outcomes: Vec<(Task, Vec<Measured>)> = tasks.into_iter().map(|task| (task, Vec::new())).collect();
        for _ in 0..how.rounds {
            for (task, measured) in &mut outcomes {
                progress.next(task);
                match measure(task, &binary, in_network.as_deref()) {
                    Ok(one) => measured.push(one),
                    Err(error) => {
                        failed += 1;
                        progress.bar.suspend(|| eprintln!("{}: {} FAILED: {error:#}", sweep.name(), task.who));
                    }
                }
            }
        }
        // Only a complete series can be compared round by round.
        outcomes.retain(|(_, measured)| measured.len() == how.rounds as usize);
        let of_point = sweep.rows(&how, &outcomes);
        if common.json {
            progress.bar.suspend(|| report::print_json(&of_point))?;
        }
        rows.extend(of_point);
    }
    progress.bar.finish_and_clear();
    // If one of the two cannot be written, the other still is.
    let drawn = match (&svg.svg, sweep.chart(&rows)) {
        (Some(path), Some(chart)) => write(path, &plot::svg(&chart)),
        _ => Ok(()),
    };
    if !common.json {
        report::print_line(&format!("{}: {}", sweep.name(), how.below(sweep != Sweep::Overhead)))?;
        sweep.print(&rows)?;
        report::print_line("")?;
    }
    drawn?;
    anyhow::ensure!(failed == 0, "{failed} runs failed, see above");
    Ok(())
}

/// Runs a task in fresh processes.
fn measure(task: &Task, binary: &Path, in_network: Option<&[std::ffi::OsString]>) -> Result<Measured> {
    let mut task = task.clone();
    let mut command = match in_network {
        None => Command::new(binary),
        Some(enter) => {
            task.on_link = true;
            let mut command = Command::new(&enter[0]);
            command.args(&enter[1..]);
            command
        }
    };
    let line = child::output(command.args(task.arguments()))?;
    Ok(serde_json::from_str(line.trim())?)
}

/// Shows the progress on standard error.
struct Progress {
    bar: ProgressBar,
}

impl Progress {
    fn new(name: &str, how: &How, tasks: usize) -> Self {
        let bar = ProgressBar::new(u64::from(how.rounds) * tasks as u64).with_style(
            ProgressStyle::with_template("{prefix} {bar:30} {pos}/{len} {elapsed} of about {duration}  {msg}")
                .expect("the template is a constant"),
        );
        bar.set_prefix(name.to_owned());
        bar.enable_steady_tick(Duration::from_secs(1));
        Self { bar }
    }

    fn next(&self, task: &Task) {
        self.bar.inc(1);
        let Task { who, nodes, workers, size, items, .. } = task;
        let items = if *items == 0 { String::new() } else { format!(", {items} items") };
        self.bar.set_message(format!("{who}: {nodes} nodes, {workers} workers each, {size} B{items}"));
    }
}

fn plot_files(files: &[PathBuf], folder: &Path) -> Result<()> {
    let mut rows = Vec::new();
    for path in files {
        let text =
            fs::read_to_string(path).map_err(|source| PonyError::File { what: "read", path: path.clone(), source })?;
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let row: Row = serde_json::from_str(line).map_err(|source| PonyError::Line {
                path: path.clone(),
                line: number + 1,
                source,
            })?;
            rows.push(row);
        }
    }
    make(folder)?;
    let mut is_empty = true;
    for sweep in ALL {
        if let Some(chart) = sweep.chart(&rows) {
            write(&folder.join(format!("{}.svg", sweep.name())), &plot::svg(&chart))?;
            is_empty = false;
        }
    }
    if is_empty { Err(PonyError::Empty.into()) } else { Ok(()) }
}

fn make(folder: &Path) -> Result<(), PonyError> {
    fs::create_dir_all(folder).map_err(|source| PonyError::File { what: "make", path: folder.to_owned(), source })
}

fn write(path: &Path, text: &str) -> Result<(), PonyError> {
    fs::write(path, text).map_err(|source| PonyError::File { what: "write", path: path.to_owned(), source })
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The points of a sweep: the usual ones, or the requested ones.
fn at(usual: &[usize], asked: Option<&[usize]>, max: usize) -> Result<Vec<usize>, PonyError> {
    let points = asked.unwrap_or(usual).to_vec();
    match points.iter().find(|&&at| at == 0 || at > max) {
        Some(&at) if at == 0 => Err(PonyError::Point { at, why: "there has to be one at least" }),
        Some(&at) => Err(PonyError::Point { at, why: "that is too much for one machine" }),
        None => Ok(points),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    /// Nodes, workers at each, bytes of an item and items of each point, and the default parameters of the
    /// measurement.
    fn usual(sweep: Sweep) -> (Vec<[usize; 4]>, How) {
        let common = Common { json: false, rounds: None, quick: false, threads: None };
        let options = Line::parse_from([""]).options;
        let how = How::new(&common, &options, sweep.usual());
        let points = sweep.points(&how, options.at.as_deref()).expect("the usual points make sense");
        let point = |tasks: Vec<Task>| {
            let all = tasks.iter().map(|task| [task.nodes, task.workers, task.size, task.items]).collect::<Vec<_>>();
            assert!(all.iter().all(|task| *task == all[0]) && all.len() > 1, "they are compared: {all:?}");
            all[0]
        };
        (points.into_iter().map(point).collect(), how)
    }

    /// The first and the last value, in ascending order.
    fn ends<T: Copy + Ord>(points: &[[usize; 4]], of: fn(&[usize; 4]) -> T) -> (T, T) {
        assert!(points.is_sorted_by_key(of));
        (of(&points[0]), of(&points[points.len() - 1]))
    }

    #[test]
    fn default_sweeps_match_those_of_pony() {
        use throughput::Vary::{Nodes, Size, Workers};

        let (nodes, how) = usual(Sweep::Throughput(Nodes));
        assert!(how.warm_up_s >= 2.0 && (how.window_s, how.rounds) == (10.0, 3));
        assert_eq!(ends(&nodes, |point| point[0]), (1, 25));
        assert!(nodes.iter().all(|point| point[1..] == [2, 100_000, 0]));
        let (sizes, _) = usual(Sweep::Throughput(Size));
        assert_eq!(ends(&sizes, |point| point[2]), (1, 1_000_000));
        assert!(sizes.iter().all(|point| point[..2] == [1, 50]));
        let (workers, _) = usual(Sweep::Throughput(Workers));
        assert_eq!(ends(&workers, |point| point[1]), (1, 500));
        assert!(workers.iter().all(|point| (point[0], point[2]) == (1, 50_000)));

        let (sizes, how) = usual(Sweep::Overhead);
        assert_eq!((ends(&sizes, |point| point[2]), how.rounds), ((1, 1_000_000), 3));
        assert!(sizes.contains(&[1, 1, 100_000, 0]));
        let (sizes, _) = usual(Sweep::Cpu(cpu::Vary::Size));
        assert!([1, 1_000, 1_000_000].iter().all(|size| sizes.contains(&[1, 1, *size, 0])));
        let (items, _) = usual(Sweep::Cpu(cpu::Vary::Items));
        for size in [1, 1_000] {
            assert!([1, 100, 10_000].iter().all(|items_each| items.contains(&[1, 1, size, *items_each])));
        }
    }
}
