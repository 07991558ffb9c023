//! The end of a process as a message.

use std::sync::atomic::{AtomicU64, Ordering};

use super::exit::Exit;

/// A process has ended: what [`monitor_into`](crate::monitor_into) puts into a mailbox.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Down {
    /// Which process, and why.
    pub exit: Exit,
    /// Which monitor this is from.
    pub monitor: MonitorId,
}

/// Identifies a monitor. Never reused while the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MonitorId(u64);

impl MonitorId {
    pub(super) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);

        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}
