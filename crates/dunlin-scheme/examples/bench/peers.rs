//! The other implementations: how each is found, given a program, and run.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs, io};

use crate::PROGRAMS;

pub(crate) const DUNLIN: &str = "dunlin";
pub(crate) const GSI: &str = "gsi";
pub(crate) const GUILE_BYTECODE: &str = "guile bytecode";

/// An implementation with all programs prepared for it.
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    folder: PathBuf,
    command: fn(&Path, &str) -> Command,
}

impl Peer {
    /// Runs a program in a process of its own: its value, and the milliseconds of its second run.
    ///
    /// # Errors
    /// A text, if the process failed or printed anything else.
    pub(crate) fn run(&self, program: &str) -> Result<(String, f64), String> {
        let mut command = (self.command)(&self.folder, program);
        let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{command:?}: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let parsed = text.trim().split_once(' ').and_then(|(value, time)| Some((value.into(), time.parse().ok()?)));
        match parsed {
            Some(parsed) if output.status.success() => Ok(parsed),
            _ => Err(format!("{command:?}: {}: {text}{}", output.status, String::from_utf8_lossy(&output.stderr))),
        }
    }
}

/// What a peer needs.
struct Recipe {
    name: &'static str,
    package: &'static str,
    /// A command that succeeds where the peer is installed.
    probe: &'static [&'static str],
    /// An expression for milliseconds of processor time; empty where the program is not Scheme.
    clock: &'static str,
    /// Prepares a file of the folder, once.
    prepare: Option<fn(&Path, &str) -> Command>,
    command: fn(&Path, &str) -> Command,
}

const RECIPES: [Recipe; 6] = [
    Recipe {
        name: GSI,
        package: "gambc",
        probe: &["gsi", "-e", "(exit 0)"],
        clock: "(* 1000. (cpu-time))",
        prepare: None,
        command: |folder, program| shell(folder, &["gsi", &format!("{program}.scm")]),
    },
    Recipe {
        name: "gsc",
        package: "gambc",
        probe: &["gsc", "-v"],
        clock: "(* 1000. (cpu-time))",
        prepare: Some(|folder, program| shell(folder, &["gsc", "-exe", "-o", program, &format!("{program}.scm")])),
        command: |folder, program| Command::new(folder.join(program)),
    },
    Recipe {
        name: GUILE_BYTECODE,
        package: "guile-3.0",
        probe: &["guile", "-c", "(exit 0)"],
        clock: GUILE_CLOCK,
        prepare: Some(guile_compile),
        command: |folder, program| {
            let mut command = guile_run(folder, program);
            command.env("GUILE_JIT_THRESHOLD", "-1");
            command
        },
    },
    Recipe {
        name: "guile jit",
        package: "guile-3.0",
        probe: &["guile", "-c", "(exit 0)"],
        clock: GUILE_CLOCK,
        prepare: Some(guile_compile),
        command: guile_run,
    },
    Recipe {
        name: "chez",
        package: "chezscheme",
        probe: &["chezscheme", "--version"],
        clock: "(let ((t (current-time 'time-process))) (+ (* 1e3 (time-second t)) (/ (time-nanosecond t) 1e6)))",
        prepare: None,
        command: |folder, program| shell(folder, &["chezscheme", "--script", &format!("{program}.scm")]),
    },
    Recipe {
        name: "erlang",
        package: "erlang-base",
        probe: &["erl", "-noshell", "-eval", "halt()."],
        clock: "",
        prepare: None,
        command: |folder, program| shell(folder, &["erl", "-noshell", "-run", "sequential", "main", program]),
    },
];

const GUILE_CLOCK: &str = "(/ (get-internal-run-time) (/ internal-time-units-per-second 1e3))";

fn guile_compile(folder: &Path, program: &str) -> Command {
    let form =
        format!("(use-modules (system base compile)) (compile-file \"{program}.scm\" #:output-file \"{program}.go\")");
    shell(folder, &["guile", "--no-auto-compile", "-c", &form])
}

fn guile_run(folder: &Path, program: &str) -> Command {
    let path = folder.join(format!("{program}.go"));
    shell(folder, &["guile", "--no-auto-compile", "-c", &format!("(load-compiled {path:?})")])
}

fn shell(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).current_dir(folder);
    command
}

/// This binary, and every peer that is installed; the others are named on standard error.
pub(crate) fn all() -> io::Result<Vec<Peer>> {
    let this = env::current_exe()?;
    let root = this.with_file_name("scheme-bench");
    let mut peers = vec![Peer {
        name: DUNLIN,
        folder: root.clone(),
        command: |_, program| {
            let mut command = Command::new(env::current_exe().expect("it was found above"));
            command.args(["--one", program]);
            command
        },
    }];
    for recipe in RECIPES {
        let mut probe = shell(&env::temp_dir(), recipe.probe);
        probe.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if !probe.status().is_ok_and(|status| status.success()) {
            eprintln!("skipped: {} is not installed; apt-get install -y {}", recipe.name, recipe.package);
            continue;
        }
        let folder = root.join(recipe.name.replace(' ', "-"));
        fs::create_dir_all(&folder)?;
        prepare(&recipe, &folder)?;
        peers.push(Peer { name: recipe.name, folder, command: recipe.command });
    }
    Ok(peers)
}

fn prepare(recipe: &Recipe, folder: &Path) -> io::Result<()> {
    if recipe.clock.is_empty() {
        fs::write(folder.join("sequential.erl"), include_str!("programs/sequential.erl"))?;
        return succeed(shell(folder, &["erlc", "sequential.erl"]));
    }
    for program in PROGRAMS {
        fs::write(folder.join(format!("{}.scm", program.name)), timed(program.text, recipe.clock))?;
        if let Some(command) = recipe.prepare {
            succeed(command(folder, program.name))?;
        }
    }
    Ok(())
}

/// The program, and after it a first run that is not timed and a second that is.
fn timed(text: &str, clock: &str) -> String {
    format!(
        "{text}
        (define (bench-clock) {clock})
        (run)
        (define bench-started (bench-clock))
        (define bench-value (run))
        (define bench-elapsed (- (bench-clock) bench-started))
        (display bench-value) (display \" \") (display (exact->inexact bench-elapsed)) (newline)\n"
    )
}

fn succeed(mut command: Command) -> io::Result<()> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(io::Error::other(format!("{command:?}: {}: {text}", output.status)))
}
