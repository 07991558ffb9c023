//! Whether words for a half are being passed on: one atomic word.
//!
//! It is set where the node is locked, and cleared where it is not. A bridge that finds its half busy, where
//! the node is locked, is woken when the half no longer is.
//!
//! `dunlin-core/tests/loom_busy.rs` compiles this file again, with loom's atomics.

use super::atomic::{AtomicU64, Ordering};

/// The batch whose words are being passed on, times two, and one more if the bridge is to be woken then.
/// Zero: none.
pub(crate) struct Busy(AtomicU64);

impl Busy {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Words of this batch, which is not zero, are being passed on. `false`: another batch's are. The node is
    /// locked.
    #[must_use]
    pub(crate) fn begin(&self, batch: u64) -> bool {
        let busy = self.0.load(Ordering::Acquire);
        if busy == 0 {
            self.0.store(2 * batch, Ordering::Release);
        }
        busy == 0 || busy / 2 == batch
    }

    /// Whether words are being passed on. If so, [`end`](Self::end) returns true. The node is locked.
    pub(crate) fn is_busy(&self) -> bool {
        let waits = |busy: u64| (busy != 0).then_some(busy | 1);
        self.0.load(Ordering::Acquire) != 0 && self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, waits).is_ok()
    }

    /// The words of this batch have been passed on; told once or more often. `true`: the bridge has to be
    /// woken.
    #[must_use]
    pub(crate) fn end(&self, batch: u64) -> bool {
        let is_its = |busy: u64| (busy / 2 == batch).then_some(0);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, is_its).is_ok_and(|busy| busy % 2 == 1)
    }
}
