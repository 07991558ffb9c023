//! The memory of parked processes, from `/proc`. Each measurement runs in a fresh process, so that no
//! allocator has freed memory to reuse.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;

use crate::library::Library;

/// How many processes have begun to wait.
static WAITING: AtomicU64 = AtomicU64::new(0);

/// Counts one more process that begins to wait. The process is an `async` block around this and a receive,
/// not an `async fn`: that would keep its argument twice (rust-lang/rust#62958), and the bench should measure
/// the library.
pub(crate) fn one_waits() {
    WAITING.fetch_add(1, Ordering::Relaxed);
}

/// Whether all of `n` processes wait. They share a thread with the caller, so a counted process is parked by
/// now.
pub(crate) fn all_wait(n: u64) -> bool {
    WAITING.load(Ordering::Relaxed) == n
}

/// Places for the other ends of `n` channels. This function writes to each page of them before the
/// measurement begins: another process has to hold those ends, but they are not part of the parked process.
pub(crate) fn places<T>(n: u64) -> Vec<Option<T>> {
    (0..n).map(|_| None).collect()
}

/// Resident bytes for each of `n` spawned processes, including its channel. Call it on the only worker.
pub(crate) async fn spawned<L: Library>(n: u64) -> anyhow::Result<f64> {
    let mut ends = places(n);
    let before = resident_bytes()?;
    for end in &mut ends {
        let (tx, mut rx) = L::channel();
        *end = Some(tx);
        drop(L::spawn(async move {
            one_waits();
            L::recv(&mut rx).await;
        }));
    }
    while !all_wait(n) {
        tokio::task::yield_now().await;
    }
    Ok(bytes_each(before, resident_bytes()?, n))
}

pub(crate) fn bytes_each(before: u64, after: u64, n: u64) -> f64 {
    after.saturating_sub(before) as f64 / n as f64
}

/// The resident memory of this process.
pub(crate) fn resident_bytes() -> anyhow::Result<u64> {
    let status = fs::read_to_string("/proc/self/status").context("memory can be measured on Linux only")?;
    resident_bytes_in(&status).context("/proc/self/status has no VmRSS in kB")
}

fn resident_bytes_in(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_bytes_are_read_from_the_status_file() {
        assert_eq!(resident_bytes_in("Name:\tx\nVmHWM:\t  9 kB\nVmRSS:\t    1234 kB\n"), Some(1234 * 1024));
        assert_eq!(resident_bytes_in("Name:\tx\n"), None);
        assert_eq!(resident_bytes_in("VmRSS:\tmany\n"), None);
    }

    #[test]
    fn bytes_each_is_zero_when_memory_shrank() {
        assert_eq!(bytes_each(100, 1100, 10), 100.0);
        assert_eq!(bytes_each(100, 50, 10), 0.0);
    }
}
