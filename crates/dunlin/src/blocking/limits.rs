//! The bounds of a pool.

use std::time::Duration;

/// How many threads a pool has, how many calls wait for them, and how long it waits for calls at its end.
///
/// # Examples
/// ```
/// use dunlin::prelude::*;
/// use dunlin::blocking::Limits;
///
/// dunlin::block_on(async {
///     blocking::limit(Limits::default().threads_max(2).queue_max(8));
///     let calls: Vec<_> = (0..10).map(|n| blocking(move |_| n)).collect(); // two run and eight wait
///     for (n, call) in calls.into_iter().enumerate() {
///         assert_eq!(call.await.unwrap(), n);
///     }
/// });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub(super) threads_min: usize,
    pub(super) threads_max: usize,
    pub(super) queue_max: usize,
    pub(super) idle: Duration,
    pub(super) patience: Duration,
}

/// This many threads keep small programs from starting one for each call.
const THREADS_MIN: usize = 3;

/// A blocked thread costs its stack. More threads rarely do more: the bottleneck is what they wait for.
const THREADS_MAX: usize = 256;

/// Sixteen calls for each thread: further calls wait for room.
const QUEUE_MAX: usize = 4096;

/// An idle thread ends after this time.
const IDLE: Duration = Duration::from_secs(10);

/// How long an ending runtime waits for the calls that it has asked to stop.
const PATIENCE: Duration = Duration::from_secs(5);

impl Default for Limits {
    fn default() -> Self {
        Self {
            threads_min: THREADS_MIN,
            threads_max: THREADS_MAX,
            queue_max: QUEUE_MAX,
            idle: IDLE,
            patience: PATIENCE,
        }
    }
}

impl Limits {
    /// At most this many calls run at once: 256 by default. The pool keeps no more threads than this either.
    ///
    /// # Panics
    /// If it is zero.
    #[track_caller]
    pub fn threads_max(self, threads: usize) -> Self {
        assert!(threads > 0, "a pool without threads runs nothing");
        Self { threads_max: threads, threads_min: self.threads_min.min(threads), ..self }
    }

    /// At most this many calls wait for a thread: 4,096 by default. A further call is
    /// [refused](super::Refused).
    pub fn queue_max(self, calls: usize) -> Self {
        Self { queue_max: calls, ..self }
    }

    /// A thread beyond the three that are kept ends when it has been idle for this long: 10 seconds by
    /// default.
    pub fn idle(self, idle: Duration) -> Self {
        Self { idle, ..self }
    }

    /// How long the runtime waits at its end for calls that it has asked to stop: 5 seconds by default. A
    /// call that runs on after that is named on standard error and left running.
    pub fn patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }
}
