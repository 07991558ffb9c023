//! Gives memory back to the system when many connections have gone.
//!
//! What a connection takes is many small pieces. The allocator of glibc keeps the pages of those that are freed, unless they are the last
//! ones: of 5,000 idle connections 10 KB each stay in the process when they have closed, and 0.8 KB after this.

use std::time::Duration;

use dunlin_proto::time::Time;

/// Fewer sockets than this are not worth the while.
const SOCKETS_MIN: usize = 256;

/// So long after most sockets have gone: others may follow, and their tasks have to end.
const WAIT: Duration = Duration::from_secs(1);

/// When it is time.
#[derive(Debug, Default)]
pub(super) struct Trim {
    /// The most sockets there were since memory was last given back.
    most: usize,
    due: Option<Time>,
}

impl Trim {
    /// There are so many sockets.
    pub(super) fn sockets(&mut self, now: Time, count: usize) {
        self.most = self.most.max(count);
        if self.most >= SOCKETS_MIN && count <= self.most / 4 && self.due.is_none() {
            self.due = Some(now + WAIT);
        }
    }

    pub(super) fn due(&self) -> Option<Time> {
        self.due
    }

    /// Whether it is time now, with so many sockets.
    pub(super) fn is_time(&mut self, now: Time, count: usize) -> bool {
        let is_time = self.due.is_some_and(|due| due <= now);
        if is_time {
            *self = Self { most: count, due: None };
        }
        is_time
    }
}

/// Gives back whole pages that nothing uses. It takes some milliseconds, in which others may have to wait for memory.
pub(super) fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: a function of the C library that may be called at any time, from any thread; it takes the allocator's
    // own locks, and touches only what is free. With another allocator it finds little to do.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_once_most_of_many_sockets_have_gone() {
        let mut trim = Trim::default();
        let second = |n: u64| Time(n * 1_000_000);
        trim.sockets(second(1), 255);
        trim.sockets(second(1), 0);
        assert_eq!(trim.due(), None, "there were not many");
        trim.sockets(second(2), 1_000);
        trim.sockets(second(3), 251);
        assert_eq!(trim.due(), None);
        trim.sockets(second(3), 250);
        trim.sockets(second(4), 0);
        assert_eq!(trim.due(), Some(second(4)));
        assert!(!trim.is_time(second(3), 0));
        assert!(trim.is_time(second(4), 0) && !trim.is_time(second(5), 0));
        trim.sockets(second(6), 0);
        assert_eq!(trim.due(), None, "once");
    }
}
