//! The commands of the tutorial's first section, run unchanged: a program of one's own, from nothing.

use std::path::{Path, PathBuf};
use std::process::Command;

const TUTORIAL: &str = include_str!("../../../docs/tutorial.md");

/// The texts of the blocks in this language, in order.
fn blocks(language: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut open: Option<(bool, String)> = None;
    for line in TUTORIAL.lines() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(word), None) => open = Some((word == language, String::new())),
            (Some(_), Some(_)) => blocks.extend(open.take().filter(|(wanted, _)| *wanted).map(|(_, text)| text)),
            (None, Some((_, text))) => *text += &format!("{line}\n"),
            (None, None) => {}
        }
    }
    blocks
}

fn shell(commands: &str, folder: &Path) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    // The dependencies are built once for all runs.
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let target = root.join(target).join("newcomer");
    let output = Command::new("bash")
        .args(["-euc", commands])
        .current_dir(folder)
        .env("DUNLIN", &root)
        .env("CARGO_TARGET_DIR", target)
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{commands}\n{error}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_first_program_of_the_tutorial_runs() {
    let folder = tempfile::tempdir().unwrap();
    let [make, run] = blocks("sh").try_into().unwrap();
    shell(&make, folder.path());
    let hello = folder.path().join("hello");
    std::fs::write(hello.join("src/main.rs"), &blocks("rust")[0]).unwrap();
    // The versions that the tests of this repository use.
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock");
    std::fs::copy(lock, hello.join("Cargo.lock")).unwrap();
    assert_eq!(shell(&run, &hello), "hello\ngoodbye\n");
}
