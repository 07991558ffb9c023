//! Work that an operation leaves until the channel's lock is released: wakers to wake, values to drop.
//!
//! Every operation on a queue makes an [`After`], which mostly stays empty. So it is a few words to
//! initialise, and one check of each at the end.

use std::mem::ManuallyDrop;
use std::sync::Arc;

use super::erased::Erased;
#[cfg(feature = "link")]
use super::queue::encoded::Encoding;
use crate::choice::decision::Decision;
use crate::wake::{Few, Stale, Wakes};

/// Declared before the guard of a channel's lock, so dropped after it.
pub(crate) struct After {
    // Woken first: a value's `Drop` may panic.
    pub(crate) wakes: Wakes,
    /// Wakers that are no longer needed. The last waker of a task may drop the task, and with it ends of this
    /// very channel.
    pub(crate) stale: Stale,
    /// Held for the same reason: the wakers of choices.
    pub(crate) decisions: Few<Arc<Decision>>,
    pub(crate) dropped: Few<Erased>,
    /// A value to encode for a link, or one already encoded.
    #[cfg(feature = "link")]
    // Boxed: every operation makes one of these.
    pub(crate) encoding: Option<Box<Encoding>>,
}

impl After {
    #[inline]
    pub(crate) fn new() -> Self {
        Self {
            wakes: Wakes::default(),
            stale: Stale::default(),
            decisions: Few::default(),
            dropped: Few::default(),
            #[cfg(feature = "link")]
            encoding: None,
        }
    }

    /// Finishes once the lock is released. Like a drop, but with one check of each list instead of a call for
    /// each.
    #[inline]
    pub(crate) fn done(self) {
        #[cfg(feature = "link")]
        debug_assert!(self.encoding.is_none());
        if self.stale.has_some() || self.decisions.has_some() || self.dropped.has_some() {
            return;
        }
        // The other lists are empty: there is nothing to drop.
        let mut rest = ManuallyDrop::new(self);
        if rest.wakes.has_some() {
            drop(std::mem::take(&mut rest.wakes));
        }
    }
}
