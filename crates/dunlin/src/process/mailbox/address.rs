//! The address of a mailbox: sending that never waits.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::error::PostError;
use super::queue::Shared;

/// Where messages for a [`Mailbox`](crate::Mailbox) are sent: made by [`mailbox`](crate::mailbox()).
///
/// It is small and cheap to clone, equal to all its clones, and keeps nothing alive: the mailbox is closed
/// once its receiver is dropped, at the latest when that process ends, and is never closed before.
///
/// What one process sends into one mailbox arrives in the order sent, its exit included. It is in no order
/// with what the process sends over channels.
///
/// # Examples
/// ```
/// use dunlin::{PostError, mailbox};
///
/// let (address, mailbox) = mailbox();
/// assert_eq!(address.send("krill"), Ok(()));
/// drop(mailbox);
/// assert_eq!(address.send("squid"), Err(PostError::Closed("squid")));
/// ```
pub struct Address<M> {
    shared: Arc<Shared<M>>,
}

impl<M> Address<M> {
    pub(super) fn new(shared: Arc<Shared<M>>) -> Self {
        Self { shared }
    }

    pub(super) fn shared(&self) -> &Arc<Shared<M>> {
        &self.shared
    }

    /// Puts a message into the mailbox, and never waits. `Ok`: the mailbox has it. That does not promise that
    /// it is received: its process may end, and [`Bound::DropOldest`](crate::Bound::DropOldest) may drop it.
    ///
    /// # Errors
    /// [`PostError::Full`] if the mailbox has a bound and rejects more; [`PostError::Closed`] if it has been
    /// dropped. Both return the message.
    pub fn send(&self, message: M) -> Result<(), PostError<M>> {
        self.shared.post(message)
    }

    /// Whether the mailbox has been dropped.
    pub fn is_closed(&self) -> bool {
        self.shared.is_closed()
    }
}

impl<M> Clone for Address<M> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<M> PartialEq for Address<M> {
    fn eq(&self, other: &Self) -> bool {
        self.shared.number == other.shared.number
    }
}

impl<M> Eq for Address<M> {}

impl<M> Hash for Address<M> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.shared.number.hash(state);
    }
}

impl<M> fmt::Debug for Address<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Address").field(&self.shared.number).finish()
    }
}
