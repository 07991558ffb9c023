//! How much memory there is.

use std::fs;

/// If the system does not say.
const UNKNOWN: u64 = 4 << 30;

/// The memory that this process may use, in bytes: the machine's, or less if its control group has a limit.
pub(super) fn of_this_machine() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total(&text));
    let group = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let group = group.iter().find_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok());
    machine.unwrap_or(UNKNOWN).min(group.unwrap_or(u64::MAX))
}

/// What `/proc/meminfo` says.
fn total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_read_in_kilobytes() {
        assert_eq!(total("MemTotal:       24117248 kB\nMemFree: 1 kB\n"), Some(23 << 30));
        assert_eq!(total("MemFree: 1 kB\n"), None);
        assert_eq!(total("MemTotal: much\n"), None);
    }
}
