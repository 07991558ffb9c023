//! How many messages a mailbox holds.

use std::num::NonZeroUsize;

/// How many messages a mailbox holds, and what it does with one more.
///
/// Exits and downs are not counted, and are always accepted: there is at most one for each link and monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Bound {
    /// As many as there is memory for.
    Unbounded,
    /// So many: sending one more fails with [`PostError::Full`](crate::PostError::Full).
    Reject(NonZeroUsize),
    /// So many: one more takes the place of the oldest that has not been received.
    DropOldest(NonZeroUsize),
}

impl Bound {
    /// [`Reject`](Self::Reject) beyond `messages_max`; a mailbox holds at least one.
    pub fn reject(messages_max: usize) -> Self {
        Self::Reject(NonZeroUsize::new(messages_max).unwrap_or(NonZeroUsize::MIN))
    }

    /// [`DropOldest`](Self::DropOldest) beyond `messages_max`; a mailbox holds at least one.
    pub fn drop_oldest(messages_max: usize) -> Self {
        Self::DropOldest(NonZeroUsize::new(messages_max).unwrap_or(NonZeroUsize::MIN))
    }
}
