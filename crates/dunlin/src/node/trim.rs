//! Returns memory to the system when many connections have ended, or much of what was kept for other nodes is
//! gone.
//!
//! A connection consists of many small pieces of memory, and so does what is kept for other nodes. The
//! allocator of glibc keeps the pages of freed pieces, unless they are the last ones: of 5,000 idle
//! connections that have closed, 10 KB each stay in the process, and 0.8 KB after this.

use std::time::Duration;

use dunlin_proto::time::Time;

/// Fewer sockets than this are not worth a trim ...
const SOCKETS_MIN: u64 = 256;

/// ... nor are fewer bytes.
const BYTES_MIN: u64 = 64 << 20;

/// How long to wait after most of it has gone: more may follow, and tasks have to end.
const WAIT: Duration = Duration::from_secs(1);

/// When to trim.
#[derive(Debug, Default)]
pub(super) struct Trim {
    sockets: Peak,
    bytes: Peak,
    due: Option<Time>,
}

/// The most there was since the last trim.
#[derive(Debug, Default)]
struct Peak(u64);

impl Peak {
    /// Records the present amount, and returns whether most of a large amount is gone.
    fn sees(&mut self, now: u64, min: u64) -> bool {
        self.0 = self.0.max(now);
        self.0 >= min && now <= self.0 / 4
    }
}

impl Trim {
    /// Records the number of sockets, and of bytes that are kept for other nodes.
    pub(super) fn sees(&mut self, now: Time, sockets: usize, bytes: u64) {
        let sockets = self.sockets.sees(sockets as u64, SOCKETS_MIN);
        if (self.bytes.sees(bytes, BYTES_MIN) || sockets) && self.due.is_none() {
            self.due = Some(now + WAIT);
        }
    }

    pub(super) fn due(&self) -> Option<Time> {
        self.due
    }

    /// Whether it is time now. The present amounts are the new peaks then.
    pub(super) fn is_time(&mut self, now: Time) -> bool {
        let is_time = self.due.is_some_and(|due| due <= now);
        if is_time {
            *self = Self::default();
        }
        is_time
    }
}

/// Returns unused whole pages. It takes some milliseconds, in which others may have to wait for memory.
pub(super) fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: a function of the C library that may be called at any time, from any thread; it takes the
    // allocator's own locks, and touches only what is free. With another allocator it finds little to do.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(n: u64) -> Time {
        Time(n * 1_000_000)
    }

    #[test]
    fn memory_is_released_once_most_of_many_sockets_are_closed() {
        let mut trim = Trim::default();
        trim.sees(second(1), 255, 0);
        trim.sees(second(1), 0, 0);
        assert_eq!(trim.due(), None, "there were not many");
        trim.sees(second(2), 1_000, 0);
        trim.sees(second(3), 251, 0);
        assert_eq!(trim.due(), None);
        trim.sees(second(3), 250, 0);
        trim.sees(second(4), 0, 0);
        assert_eq!(trim.due(), Some(second(4)));
        assert!(!trim.is_time(second(3)));
        assert!(trim.is_time(second(4)) && !trim.is_time(second(5)));
        trim.sees(second(6), 0, 0);
        assert_eq!(trim.due(), None, "once");
    }

    #[test]
    fn memory_is_released_once_most_of_many_bytes_are_freed() {
        let mut trim = Trim::default();
        trim.sees(second(1), 3, BYTES_MIN - 1);
        trim.sees(second(1), 3, 0);
        assert_eq!(trim.due(), None, "they were not many");
        trim.sees(second(2), 3, BYTES_MIN);
        trim.sees(second(2), 3, BYTES_MIN / 2);
        assert_eq!(trim.due(), None);
        trim.sees(second(3), 3, BYTES_MIN / 4);
        assert!(trim.is_time(second(4)));
        trim.sees(second(5), 3, 0);
        assert_eq!(trim.due(), None, "once");
    }
}
