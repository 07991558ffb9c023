//! The address of a mailbox: sending that never waits.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::error::PostError;
use super::queue::Shared;
#[cfg(feature = "net")]
use super::remote::Far;

/// Where messages for a [`Mailbox`](crate::Mailbox) are sent: made by [`mailbox`](crate::mailbox()).
///
/// It is small and cheap to clone, equal to all its clones, and keeps nothing alive: the mailbox is closed
/// once its receiver is dropped, at the latest when that process ends, and is never closed before.
///
/// What one process sends into one mailbox arrives in the order sent, its exit included. It is in no order
/// with what the process sends over channels.
///
/// With the feature `net` it is [`Portable`](crate::Portable) if its messages are: in a message to another
/// node it takes no channel and no task. Back at the node of its mailbox it is the mailbox's own again. All
/// its forms are equal. [`Node::mailbox`](crate::node::Node::mailbox) and
/// [`Node::address`](crate::node::Node::address) find one by name.
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
    pub(super) to: To<M>,
}

/// Where the mailbox is.
pub(super) enum To<M> {
    Here(Arc<Shared<M>>),
    /// At another node.
    #[cfg(feature = "net")]
    There(Arc<Far<M>>),
}

impl<M> Clone for To<M> {
    fn clone(&self) -> Self {
        match self {
            Self::Here(shared) => Self::Here(shared.clone()),
            #[cfg(feature = "net")]
            Self::There(far) => Self::There(far.clone()),
        }
    }
}

impl<M> Address<M> {
    pub(super) fn new(shared: Arc<Shared<M>>) -> Self {
        Self { to: To::Here(shared) }
    }

    #[cfg(feature = "net")]
    pub(super) fn far(far: Far<M>) -> Self {
        Self { to: To::There(Arc::new(far)) }
    }

    fn number(&self) -> u64 {
        match &self.to {
            To::Here(shared) => shared.number,
            #[cfg(feature = "net")]
            To::There(far) => far.remote().id().number,
        }
    }

    /// Puts a message into the mailbox, and never waits. `Ok`: the mailbox has it. That does not promise that
    /// it is received: its process may end, and [`Bound::DropOldest`](crate::Bound::DropOldest) may drop it.
    ///
    /// If the mailbox is at another node, `Ok` means that the connection with that node has the message. It
    /// is lost if the life of the connection ends before the message has arrived.
    ///
    /// # Errors
    /// [`PostError::Full`] if the mailbox has a bound and rejects more, or has no room for more of this node;
    /// [`PostError::Closed`] if it has been dropped, or its node has left or died; [`PostError::TooLarge`]
    /// and [`PostError::Unsendable`] if it is at another node. All return the message.
    pub fn send(&self, message: M) -> Result<(), PostError<M>> {
        match &self.to {
            To::Here(shared) => shared.post(message),
            #[cfg(feature = "net")]
            To::There(far) => far.send(message),
        }
    }

    /// Whether the mailbox has been dropped, as far as this node has noticed, or its node has ended.
    pub fn is_closed(&self) -> bool {
        match &self.to {
            To::Here(shared) => shared.is_closed(),
            #[cfg(feature = "net")]
            To::There(far) => far.remote().is_closed(),
        }
    }
}

impl<M> Clone for Address<M> {
    fn clone(&self) -> Self {
        Self { to: self.to.clone() }
    }
}

impl<M> PartialEq for Address<M> {
    fn eq(&self, other: &Self) -> bool {
        match (&self.to, &other.to) {
            (To::Here(one), To::Here(other)) => one.number == other.number,
            // (Mailboxes of different nodes have different bits.)
            #[cfg(feature = "net")]
            (To::There(one), To::There(other)) => one.remote().id() == other.remote().id(),
            #[cfg(feature = "net")]
            (To::Here(here), To::There(there)) | (To::There(there), To::Here(here)) => {
                let id = there.remote().id();
                here.number == id.number && here.known_bits() == Some(id.bits)
            }
        }
    }
}

impl<M> Eq for Address<M> {}

impl<M> Hash for Address<M> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number().hash(state);
    }
}

impl<M> fmt::Debug for Address<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Address").field(&self.number()).finish()
    }
}
