//! The processor time and memory of a server and its processes.

use std::collections::HashMap;
use std::fs;

use anyhow::{Context, Result};

/// The unit of `/proc`: the same on all machines.
const TICKS_PER_SECOND: f64 = 100.0;

struct Process {
    pid: u32,
    parent: u32,
    /// The ticks of the process, and of its children that have ended.
    ticks: u64,
}

/// Seconds of processor time of a process and all below it.
pub(super) fn cpu(root: u32) -> Result<f64> {
    let ticks: u64 = below(root)?.iter().map(|process| process.ticks).sum();
    Ok(ticks as f64 / TICKS_PER_SECOND)
}

/// A process and all below it, itself first.
pub(super) fn pids(root: u32) -> Result<Vec<u32>> {
    Ok(below(root)?.iter().map(|process| process.pid).collect())
}

fn below(root: u32) -> Result<Vec<Process>> {
    let mut children: HashMap<u32, Vec<Process>> = HashMap::new();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // The process may have ended meanwhile.
        let Ok(text) = fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        let process = read_stat(pid, &text).with_context(|| format!("reading {text:?}"))?;
        if pid == root {
            found.push(process);
        } else {
            children.entry(process.parent).or_default().push(process);
        }
    }
    let mut next = 0;
    while next < found.len() {
        found.extend(children.remove(&found[next].pid).unwrap_or_default());
        next += 1;
    }
    Ok(found)
}

fn read_stat(pid: u32, text: &str) -> Option<Process> {
    // The name may contain any characters.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = fields.get(11..15)?.iter().map(|field| field.parse::<u64>().ok()).sum::<Option<u64>>()?;
    Some(Process { pid, parent: fields.get(1)?.parse().ok()?, ticks })
}

/// Resident bytes of a process.
pub(super) fn resident(pid: u32) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("a process has a VmRSS")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_stat_accepts_names_with_spaces_and_parentheses() {
        let process = read_stat(7, "7 (a) b (c)) S 3 7 7 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1").unwrap();
        assert_eq!((process.pid, process.parent, process.ticks), (7, 3, 100));
    }

    #[test]
    fn resident_and_pids_read_this_process() {
        assert!(resident(std::process::id()).unwrap() > 4096);
        assert_eq!(pids(std::process::id()).unwrap()[0], std::process::id());
    }
}
