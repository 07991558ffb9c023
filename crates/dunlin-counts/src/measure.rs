//! Runs a program of this binary under callgrind with two lengths, and takes the difference.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};
use std::thread;

use crate::programs::Program;

/// The kinds of counts of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Instructions,
    Bytes,
    Allocations,
    /// Locks of a node's state.
    NodeLocks,
    /// Locks of all mutexes of nodes, those of their states among them.
    Mutexes,
    /// Locks of channels.
    ChannelLocks,
    /// Searches of trees.
    Searches,
    ClockReads,
    Wakes,
}

impl Kind {
    /// What an optimised build counts.
    pub(crate) const COSTS: [Self; 3] = [Self::Instructions, Self::Bytes, Self::Allocations];
    /// What a build without inlining counts, of programs between nodes.
    pub(crate) const CALLS: [Self; 6] =
        [Self::NodeLocks, Self::Mutexes, Self::ChannelLocks, Self::Searches, Self::ClockReads, Self::Wakes];

    pub(crate) fn all() -> impl Iterator<Item = Self> {
        Self::COSTS.into_iter().chain(Self::CALLS)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Instructions => "instructions",
            Self::Bytes => "bytes",
            Self::Allocations => "allocations",
            Self::NodeLocks => "node-locks",
            Self::Mutexes => "mutexes",
            Self::ChannelLocks => "channel-locks",
            Self::Searches => "searches",
            Self::ClockReads => "clock-reads",
            Self::Wakes => "wakes",
        }
    }

    /// A part of the names of the functions whose calls are counted.
    fn called(self) -> Option<&'static str> {
        match self {
            Self::Instructions | Self::Bytes | Self::Allocations => None,
            Self::NodeLocks => Some("node::state::Guarded::locked"),
            Self::Mutexes => Some("dunlin::lock::lock"),
            Self::ChannelLocks => Some("lock::Lock<T>::lock"),
            Self::Searches => Some("search_tree"),
            Self::ClockReads => Some("clock_gettime"),
            Self::Wakes => Some("core::task::wake::Waker::wake"),
        }
    }
}

/// One figure of a program.
pub(crate) struct Figure {
    pub(crate) program: &'static Program,
    pub(crate) kind: Kind,
    /// The count for each unit.
    pub(crate) value: f64,
}

/// The counts of one run, in the order of [`Kind::COSTS`].
type Counts = [u64; 3];

/// The figures of `program` that this build can count: an optimised one its costs, another one its calls.
pub(crate) fn figures(program: &'static Program) -> Result<Vec<Figure>, String> {
    if cfg!(debug_assertions) { called(program) } else { costs(program) }
}

fn called(program: &'static Program) -> Result<Vec<Figure>, String> {
    if !program.has_calls {
        return Ok(Vec::new());
    }
    let patterns: Vec<&str> = Kind::CALLS.into_iter().filter_map(Kind::called).collect();
    let counted = calls(program, &patterns)?;
    Ok(Kind::CALLS.into_iter().zip(counted).map(|(kind, value)| Figure { program, kind, value }).collect())
}

fn costs(program: &'static Program) -> Result<Vec<Figure>, String> {
    let (shorter, longer) = thread::scope(|both| {
        let shorter = both.spawn(|| counts(program, program.shorter));
        (counts(program, program.longer), shorter.join().expect("counting does not panic"))
    });
    let (longer, shorter) = (shorter?, longer?);
    let units = (program.longer - program.shorter) * program.units_each;
    let each = |index: usize| (longer[index] as f64 - shorter[index] as f64) / units as f64;
    Ok(Kind::COSTS.into_iter().enumerate().map(|(index, kind)| Figure { program, kind, value: each(index) }).collect())
}

/// How often the main thread calls functions whose names contain a pattern, for each unit of `program`. It
/// needs a build without inlining.
pub(crate) fn calls(program: &Program, patterns: &[&str]) -> Result<Vec<f64>, String> {
    let of = |n| -> Result<Vec<u64>, String> {
        let (out, _) = run(program, n)?;
        let text = read(&out.0.join("out-01"))?;
        Ok(patterns.iter().map(|pattern| calls_in(&text, pattern)).collect())
    };
    let (shorter, longer) = (of(program.shorter)?, of(program.longer)?);
    // Each of them is called, if only at the start: a pattern that fits no name would pass every bound.
    if let Some((pattern, _)) = patterns.iter().zip(&longer).find(|(_, calls)| **calls == 0) {
        return Err(format!(
            "{} calls no function with `{pattern}` in its name: has it another name now?",
            program.name
        ));
    }
    let units = ((program.longer - program.shorter) * program.units_each) as f64;
    // The start differs by a few calls between two runs.
    Ok(longer.iter().zip(shorter).map(|(longer, shorter)| longer.saturating_sub(shorter) as f64 / units).collect())
}

/// Callgrind writes a name where it first occurs, after its number: `cfn=(12) name`, and later `cfn=(12)`.
fn calls_in(text: &str, pattern: &str) -> u64 {
    let mut wanted = std::collections::HashSet::new();
    let (mut is_wanted, mut calls) = (false, 0);
    for line in text.lines() {
        if let Some(called) = line.strip_prefix("cfn=").or(line.strip_prefix("fn=")) {
            let (number, name) = called.split_once(' ').unwrap_or((called, ""));
            if name.contains(pattern) {
                wanted.insert(number);
            }
            is_wanted = wanted.contains(number);
        } else if let Some(count) = line.strip_prefix("calls=").filter(|_| is_wanted) {
            calls += count.split(' ').next().and_then(|count| count.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    calls
}

/// Runs `program` once.
fn counts(program: &Program, n: u64) -> Result<Counts, String> {
    let (out, said) = run(program, n)?;
    let allocated: Vec<u64> = said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [bytes, calls] = allocated[..] else { return Err(format!("{} printed {said:?}", program.name)) };
    Ok([instructions(&out.0.join("out-01"))?, bytes, calls])
}

/// Runs `program` under callgrind. Returns the folder of its files, and the program's output.
fn run(program: &Program, n: u64) -> Result<(Out, String), String> {
    let this_binary = env::current_exe().map_err(|error| format!("cannot find this binary: {error}"))?;
    let out = Out::new(program, n)?;
    let mut command = Command::new("valgrind");
    // Separate threads: dunlin's clock ticks on its own thread for the whole run.
    command.args(["--tool=callgrind", "--separate-threads=yes", "--quiet"]);
    command.arg(format!("--callgrind-out-file={}", out.0.join("out").display()));
    command.arg(this_binary).args(["run", program.name, &n.to_string()]);
    let ran = command.stdin(Stdio::null()).output();
    let ran =
        ran.map_err(|error| format!("cannot run valgrind: {error}; is it installed (`apt-get install valgrind`)?"))?;
    if !ran.status.success() {
        let said = String::from_utf8_lossy(&ran.stderr);
        return Err(format!("{command:?} ended with {}:\n{said}", ran.status));
    }
    Ok((out, String::from_utf8_lossy(&ran.stdout).into_owned()))
}

fn read(file: &Path) -> Result<String, String> {
    fs::read_to_string(file).map_err(|error| format!("callgrind has not written {}: {error}", file.display()))
}

/// The instructions of the main thread, from its file.
fn instructions(file: &Path) -> Result<u64, String> {
    let text = read(file)?;
    let totals = text.lines().find_map(|line| line.strip_prefix("totals: ").or(line.strip_prefix("summary: ")));
    totals.and_then(|totals| totals.trim().parse().ok()).ok_or_else(|| format!("{} has no totals", file.display()))
}

/// A folder for callgrind's files, removed on drop.
struct Out(PathBuf);

impl Out {
    fn new(program: &Program, n: u64) -> Result<Self, String> {
        let folder = env::temp_dir().join(format!("dunlin-counts-{}-{}-{n}", process::id(), program.name));
        fs::create_dir_all(&folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
        Ok(Self(folder))
    }
}

impl Drop for Out {
    fn drop(&mut self) {
        // The system removes the files that cannot be removed here, as they are in its folder for such files.
        let _ = fs::remove_dir_all(&self.0);
    }
}
