//! Counts the cost of communications, and checks the counts against the bounds in `bounds.txt`.
//!
//! Counts, unlike times, are the same on a busy machine. Valgrind's callgrind counts instructions, on the
//! thread that communicates; an allocator counts bytes and allocations. Each figure is the difference of two
//! run lengths of one program, so it excludes the cost of the start and the end.
//!
//! ```text
//! cargo run --profile measured -p dunlin-counts                 a table of all figures beside their bounds
//! cargo run --profile measured -p dunlin-counts -- --check      fails above a bound; `bash .ci/run counts`
//! cargo run --profile measured -p dunlin-counts -- --record     writes the figures into bounds.txt
//! cargo run --profile measured -p dunlin-counts -- --json       one JSON object for each figure
//! ```
//!
//! A dev build, which inlines nothing, counts calls instead, of programs between two nodes: locks, searches
//! of trees, reads of the clock, wakes. The modes are the same; `cargo run -p dunlin-counts -- calls PROGRAM
//! NAME...` counts the calls of any functions, by parts of their names.
//!
//! - [`programs`]: the counted programs;
//! - [`measure`]: runs this binary under callgrind;
//! - [`bounds`]: the file, and the figures that exceed it.

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

/// Runs one program and prints its allocations.
fn run(program: &str, units: &str) -> Result<bool, String> {
    let units = units.parse().map_err(|_| format!("`{units}` is no number of units\n{USAGE}"))?;
    let allocated = programs::find(program)?.run(units);
    println!("{} {}", allocated.bytes, allocated.calls);
    Ok(true)
}

/// Prints how often the program calls functions whose names contain these.
fn calls(program: &str, names: &[&str]) -> Result<bool, String> {
    let program = programs::find(program)?;
    for (name, calls) in names.iter().zip(measure::calls(program, names)?) {
        println!("{name:<60} {calls:>8.2} calls for each {}", program.unit);
    }
    Ok(true)
}

/// Counts all programs, or only the named ones. `false`: a figure exceeds its bound.
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
