//! Counts what communications cost, and holds the counts to the bounds of `bounds.txt`.
//!
//! Counts, unlike times, are the same on a busy machine. Instructions are counted by valgrind's callgrind, on
//! the thread that communicates; bytes and allocations by an allocator. Each figure is the difference of two
//! lengths of one program, so what its start and end cost is not in it.
//!
//! ```text
//! cargo run --profile measured -p dunlin-counts                 a table of all figures beside their bounds
//! cargo run --profile measured -p dunlin-counts -- --check      fails above a bound; `bash .ci/run counts`
//! cargo run --profile measured -p dunlin-counts -- --record     writes the figures into bounds.txt
//! cargo run --profile measured -p dunlin-counts -- --json       one JSON object for each figure
//! ```
//!
//! `cargo run -p dunlin-counts -- calls PROGRAM NAME...`, of a build that inlines nothing, counts calls of
//! functions by parts of their names.
//!
//! - [`programs`]: what is counted;
//! - [`measure`]: runs this binary under callgrind;
//! - [`bounds`]: the file, and what is above it.

mod bounds;
mod measure;
mod programs;

use std::process::ExitCode;

use bounds::Bounds;

const USAGE: &str = "dunlin-counts [--check | --record | --json] [PROGRAM...]\ndunlin-counts run PROGRAM UNITS\ndunlin-counts calls PROGRAM NAME...";

/// What to do with the figures.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Show,
    Check,
    Record,
    Json,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["run", program, units] => run(program, units),
        ["calls", program, ref names @ ..] => calls(program, names),
        _ => count(&words),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

/// Runs one program and prints what it allocated.
fn run(program: &str, units: &str) -> Result<bool, String> {
    let units = units.parse().map_err(|_| format!("`{units}` is no number of units\n{USAGE}"))?;
    let allocated = programs::find(program)?.run(units);
    println!("{} {}", allocated.bytes, allocated.calls);
    Ok(true)
}

/// Prints how often functions are called whose names contain these.
fn calls(program: &str, names: &[&str]) -> Result<bool, String> {
    let program = programs::find(program)?;
    for (name, calls) in names.iter().zip(measure::calls(program, names)?) {
        println!("{name:<60} {calls:>8.2} calls for each {}", program.unit);
    }
    Ok(true)
}

/// Counts all programs, or only those that are named. `false`: a figure is above its bound.
fn count(words: &[&str]) -> Result<bool, String> {
    let mut mode = Mode::Show;
    let mut wanted = Vec::new();
    for word in words {
        match *word {
            "--check" => mode = Mode::Check,
            "--record" => mode = Mode::Record,
            "--json" => mode = Mode::Json,
            word if word.starts_with('-') => return Err(format!("`{word}` is no option\n{USAGE}")),
            word => wanted.push(programs::find(word)?),
        }
    }
    if wanted.is_empty() {
        wanted = programs::ALL.iter().collect();
    }
    let mut bounds = Bounds::read()?;
    let mut above = Vec::new();
    for program in wanted {
        for figure in measure::figures(program)? {
            let verdict = bounds.judge(&figure);
            match mode {
                Mode::Json => println!("{}", verdict.json(&figure)),
                Mode::Record => bounds.record(&figure),
                Mode::Show | Mode::Check => println!("{}", verdict.line(&figure)),
            }
            above.extend(verdict.complaint(&figure));
        }
    }
    if mode == Mode::Record {
        bounds.write()?;
        return Ok(true);
    }
    if mode == Mode::Check {
        above.iter().for_each(|complaint| eprintln!("\n{complaint}"));
        return Ok(above.is_empty());
    }
    Ok(true)
}
