//! Counts of dev builds: how many polls of processes there were, and how many wakers outside of dunlin could
//! end a wait.
//!
//! In these builds a process is polled with a waker of the core's own (`par::ready::alone`). The core's
//! copies of it are in channels, `par!`s and barriers. Any other code that waits must clone the waker, and
//! that clone is counted until it wakes or is dropped. So with no clone outside, and no process that is being
//! polled, only a process could end a wait, and all of them wait. The clock thread of the `dunlin` crate
//! checks that.
//!
//! In other builds nothing is counted.

#[cfg(all(debug_assertions, target_pointer_width = "64"))]
use std::cell::Cell;
#[cfg(all(debug_assertions, target_pointer_width = "64"))]
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The counts at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activity {
    /// How many polls have begun.
    pub begun: u64,
    /// How many of these have ended.
    pub ended: u64,
    /// How many processes were spawned and have not ended.
    pub processes: usize,
    /// How many wakers code outside of dunlin keeps.
    pub foreign: usize,
}

#[cfg(all(debug_assertions, target_pointer_width = "64"))]
mod counts {
    use super::*;

    pub(super) static BEGUN: AtomicU64 = AtomicU64::new(0);
    pub(super) static ENDED: AtomicU64 = AtomicU64::new(0);
    pub(super) static PROCESSES: AtomicUsize = AtomicUsize::new(0);
    pub(super) static FOREIGN: AtomicUsize = AtomicUsize::new(0);
    thread_local! { pub(super) static KEEPING: Cell<bool> = const { Cell::new(false) } }
}

/// The current counts; `None` in a build that does not count.
pub fn current() -> Option<Activity> {
    #[cfg(all(debug_assertions, target_pointer_width = "64"))]
    {
        // Read first: a poll counted at its end is then counted at its beginning too.
        let ended = counts::ENDED.load(Ordering::Acquire);
        Some(Activity {
            begun: counts::BEGUN.load(Ordering::Relaxed),
            ended,
            processes: counts::PROCESSES.load(Ordering::Relaxed),
            foreign: counts::FOREIGN.load(Ordering::Relaxed),
        })
    }
    #[cfg(not(all(debug_assertions, target_pointer_width = "64")))]
    None
}

/// Runs `poll`, in which another crate may keep the waker of the current process, but only to wake it when
/// another process ends.
#[inline]
pub fn keeping<R>(poll: impl FnOnce() -> R) -> R {
    #[cfg(all(debug_assertions, target_pointer_width = "64"))]
    {
        struct Before(bool);
        impl Drop for Before {
            fn drop(&mut self) {
                counts::KEEPING.set(self.0);
            }
        }
        let _before = Before(counts::KEEPING.replace(true));
        poll()
    }
    #[cfg(not(all(debug_assertions, target_pointer_width = "64")))]
    poll()
}

#[cfg(all(debug_assertions, target_pointer_width = "64"))]
pub(crate) use counting::*;

#[cfg(all(debug_assertions, target_pointer_width = "64"))]
mod counting {
    use super::*;

    pub(crate) fn started() {
        counts::PROCESSES.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn ended() {
        counts::PROCESSES.fetch_sub(1, Ordering::Relaxed);
    }

    /// Marks a process as being polled until this is dropped.
    pub(crate) struct Polling(());

    pub(crate) fn polling() -> Polling {
        counts::BEGUN.fetch_add(1, Ordering::Relaxed);
        Polling(())
    }

    impl Drop for Polling {
        fn drop(&mut self) {
            counts::ENDED.fetch_add(1, Ordering::Release);
        }
    }

    pub(crate) fn is_keeping() -> bool {
        counts::KEEPING.get()
    }

    pub(crate) fn kept() {
        counts::FOREIGN.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn given_up() {
        counts::FOREIGN.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So the watchdog of `dunlin`, which goes by the counts, is off in all other builds.
    #[test]
    fn only_dev_builds_count_processes() {
        assert_eq!(current().is_some(), cfg!(all(debug_assertions, target_pointer_width = "64")));
    }
}
