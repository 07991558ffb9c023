//! Counts the instructions of a local communication, with a node and without. Valgrind's callgrind counts the
//! difference of two run lengths on the thread that communicates, so neither the start nor the node's own
//! threads count.

use std::env;
use std::path::Path;
use std::process::{Command, Stdio};
use std::{fs, process};

use anyhow::{Context, Result, ensure};

use crate::remote::{ALONE, WITH_NODE};

pub(crate) fn run(quick: bool) -> Result<()> {
    let short = if quick { 2_000 } else { 20_000 };
    for who in [ALONE, WITH_NODE] {
        let (first, second) = (instructions(who, short)?, instructions(who, 2 * short)?);
        let each = (second as f64 - first as f64) / (4 * short) as f64;
        println!("{who:<24} {each:>8.2} instructions/communication");
    }
    Ok(())
}

/// The instructions of the main thread of a run with `n` cycles.
fn instructions(who: &str, n: u64) -> Result<u64> {
    let this_binary = env::current_exe().context("cannot find this binary")?;
    let out = env::temp_dir().join(format!("dunlin-callgrind-{}", process::id()));
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--separate-threads=yes", "--quiet"]);
    command.arg(format!("--callgrind-out-file={}", out.display())).arg(this_binary);
    command.args(["side", who, "local-beside", &n.to_string(), "8", "1"]);
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
    let status = status.context("cannot run valgrind; is it installed?")?;
    ensure!(status.success(), "{command:?} ended with {status}");
    totals(&out)
}

/// Reads the first thread's file and removes all files.
fn totals(out: &Path) -> Result<u64> {
    let name = out.file_name().context("it was just made")?.to_string_lossy().into_owned();
    let main = fs::read_to_string(out.with_file_name(format!("{name}-01"))).context("callgrind has written nothing")?;
    for file in fs::read_dir(out.parent().context("it is in a folder")?)? {
        let file = file?;
        if file.file_name().to_string_lossy().starts_with(&name) {
            fs::remove_file(file.path())?;
        }
    }
    let totals = main.lines().find_map(|line| line.strip_prefix("totals: ").or(line.strip_prefix("summary: ")));
    totals.context("callgrind's file has no totals")?.trim().parse().context("callgrind's totals are no number")
}
