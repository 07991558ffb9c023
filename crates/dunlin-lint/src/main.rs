//! Checks the structure of dunlin's own sources.
//!
//! In each crate of the workspace no comment is wider than 110 columns, no function is longer than 120 lines
//! unless `ratchet.toml` names it as a table, and modules do not import each other in a cycle. `ratchet.toml`
//! says how many modules still do. More fail, and fewer fail too, until the number is lowered, so that what
//! has been cleaned up stays clean.
//!
//! ```text
//! cargo test -p dunlin-lint             fails where something differs from ratchet.toml, as the gate does
//! cargo run -p dunlin-lint              fails where something differs from ratchet.toml
//! cargo run -p dunlin-lint -- --show    lists every cycle, comment and function
//! cargo run -p dunlin-lint -- --record  writes the figures into ratchet.toml
//! ```
//!
//! - [`imports`]: which module imports which, and the cycles;
//! - [`lines`]: comments and functions;
//! - [`ratchet`]: the file, and what differs from it.

mod imports;
mod lines;
mod ratchet;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ratchet::{Figures, Ratchet};

/// What was found in one crate.
#[derive(Default)]
struct Findings {
    /// Modules that import each other, each cycle sorted by name.
    cycles: Vec<Vec<String>>,
    /// `path:line` of comments that are too wide.
    comments: Vec<String>,
    /// Functions that are too long: `path::name`, with their lines.
    functions: Vec<(String, usize)>,
}

impl Findings {
    fn figures(&self) -> Figures {
        Figures {
            modules_in_cycles: self.cycles.iter().map(Vec::len).sum(),
            tables: self.functions.iter().map(|(name, _)| name.clone()).collect(),
        }
    }
}

fn main() -> ExitCode {
    let argument = std::env::args().nth(1);
    let found = findings();
    let now = figures(&found);
    match argument.as_deref() {
        Some("--show") => show(&found),
        Some("--record") => fs::write(ratchet::path(), now.to_text()).expect("ratchet.toml can be written"),
        None => {
            let differences = differences(&found);
            if !differences.is_empty() {
                eprintln!("{}", differences.join("\n"));
                eprintln!("To see each place: cargo run -p dunlin-lint -- --show. If it got better: -- --record.");
                return ExitCode::FAILURE;
            }
            println!("{}", now.summary());
        }
        Some(_) => {
            eprintln!("dunlin-lint [--show | --record]");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

/// What is found in all crates.
fn findings() -> Vec<(String, Findings)> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("it is in the folder of the crates");
    let found = folders(crates).into_iter().map(|folder| {
        let name = folder.file_name().expect("a crate has a name").to_string_lossy().into_owned();
        let findings = look_at(&folder).unwrap_or_else(|error| panic!("{name}: {error}"));
        (name, findings)
    });
    found.collect()
}

fn figures(found: &[(String, Findings)]) -> Ratchet {
    Ratchet::of(found.iter().map(|(name, findings)| (name.clone(), findings.figures())))
}

/// A line for each fault that `ratchet.toml` does not know.
fn differences(found: &[(String, Findings)]) -> Vec<String> {
    let wide = found.iter().flat_map(|(name, findings)| {
        findings.comments.iter().map(move |comment| format!("{name}/{comment}: a comment over 110 columns"))
    });
    wide.chain(ratchet::read().differences(&figures(found))).collect()
}

fn show(found: &[(String, Findings)]) {
    for (name, findings) in found {
        for cycle in &findings.cycles {
            println!("{name}: a cycle of {}: {}", cycle.len(), cycle.join(", "));
        }
        for comment in &findings.comments {
            println!("{name}/{comment}: a comment over {} columns", lines::COMMENT_COLUMNS);
        }
        for (function, length) in &findings.functions {
            println!("{name}/{function}: a function of {length} lines");
        }
    }
}

/// The folders of all crates of the workspace.
fn folders(crates: &Path) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = fs::read_dir(crates)
        .expect("the workspace has crates")
        .map(|entry| entry.expect("a folder can be listed").path())
        .filter(|path| path.join("Cargo.toml").is_file())
        .collect();
    folders.sort();
    folders
}

fn look_at(folder: &Path) -> Result<Findings, String> {
    let mut findings = Findings::default();
    let mut modules = imports::Modules::default();
    let root = folder.join("src");
    for path in sources(folder) {
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let parsed = syn::parse_file(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        let shown = path.strip_prefix(folder).unwrap_or(&path).display().to_string();
        findings.comments.extend(lines::wide_comments(&text).map(|line| format!("{shown}:{line}")));
        findings
            .functions
            .extend(lines::long_functions(&parsed).into_iter().map(|(name, n)| (format!("{shown}::{name}"), n)));
        if let Ok(inside) = path.strip_prefix(&root) {
            modules.add(inside, &parsed);
        }
    }
    findings.cycles = modules.cycles();
    Ok(findings)
}

/// All Rust files of a crate, sorted.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let (mut files, mut folders) = (vec![], vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                if entry.file_name() != "target" {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sources_are_within_the_ratchet() {
        let differences = differences(&findings());
        assert!(
            differences.is_empty(),
            "{}\nTo see each place: cargo run -p dunlin-lint -- --show",
            differences.join("\n")
        );
    }
}
