//! Checks the structure of dunlin's own sources.
//!
//! In each crate of the workspace, modules do not import each other in a cycle, no comment is wider than 110
//! columns, and no function is longer than 120 lines unless `tables.toml` names it as a table.
//!
//! ```text
//! cargo run -p dunlin-lint     names each place where that is not so
//! cargo test -p dunlin-lint    fails if there is one, as the gate does
//! ```
//!
//! - [`imports`]: the imports between modules, and their cycles;
//! - [`lines`]: comments and functions;
//! - [`tables`]: the functions that may be long.

mod imports;
mod lines;
mod tables;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let faults = faults();
    for fault in &faults {
        println!("{fault}");
    }
    if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The faults in all crates, one line for each place.
fn faults() -> Vec<String> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("it is in the folder of the crates");
    let tables = tables::read();
    let faults = folders(crates).into_iter().map(|folder| {
        let name = folder.file_name().expect("a crate has a name").to_string_lossy().into_owned();
        look_at(&name, &folder, &tables).unwrap_or_else(|error| vec![format!("{name}: {error}")])
    });
    faults.flatten().collect()
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

fn look_at(name: &str, folder: &Path, tables: &tables::Tables) -> Result<Vec<String>, String> {
    let (mut faults, mut long) = (vec![], vec![]);
    let mut modules = imports::Modules::default();
    let root = folder.join("src");
    for path in sources(folder) {
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let parsed = syn::parse_file(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        let shown = path.strip_prefix(folder).unwrap_or(&path).display().to_string();
        let wide = lines::wide_comments(&text);
        faults.extend(wide.map(|line| format!("{name}/{shown}:{line}: a comment over 110 columns")));
        let functions = lines::long_functions(&parsed).into_iter();
        long.extend(functions.map(|(function, lines)| (format!("{shown}::{function}"), lines)));
        if let Ok(inside) = path.strip_prefix(&root) {
            modules.add(inside, &parsed);
        }
    }
    faults.extend(tables.faults(name, &long));
    let cycles = modules.cycles().into_iter();
    faults.extend(cycles.map(|cycle| format!("{name}: modules import each other: {}", cycle.join(", "))));
    Ok(faults)
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
    fn the_sources_have_no_fault() {
        let faults = faults();
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }
}
