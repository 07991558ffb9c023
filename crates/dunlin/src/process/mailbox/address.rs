//! The address of a mailbox: sending that never waits.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::offer::{Offer, OfferFrom};
use super::queue::Shared;

/// Where messages for a [`Mailbox`](crate::Mailbox) are sent: made by [`mailbox`](crate::mailbox()).
///
/// It is small and cheap to clone, equal to all its clones, and keeps nothing alive: the mailbox is closed once
/// its receiver is dropped, at the latest when that process ends, and is never closed before.
///
/// What one process sends into one mailbox arrives in the order sent, its exit included. It is in no order with
/// what the process sends over channels.
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
    /// [`PostError::Full`] if the mailbox has a bound and rejects more; [`PostError::Closed`] if it has been dropped.
    /// Both return the message.
    pub fn send(&self, message: M) -> Result<(), PostError<M>> {
        self.shared.post(message)
    }

    /// Waits until there is room for a message, and sends it. A mailbox without a bound, or one that drops its
    /// oldest message, always has room.
    ///
    /// Operations that wait get their turn in the order of their first polls. A [`send`](Self::send) does not
    /// wait behind them.
    ///
    /// # Errors
    /// When awaited: [`PostError::Closed`], with the message; [`PostError::Full`] when a deadline
    /// ([`within`](crate::Deadline::within)) has passed.
    ///
    /// # Cancel safety
    /// If it is dropped before it is ready, the message is dropped, and has not been sent;
    /// [`offer_from`](Self::offer_from) leaves it in its slot.
    ///
    /// # Waits
    /// A waiting process has a line in the [wait records](crate::waits): for a send, at the place where the
    /// mailbox was made.
    ///
    /// # Examples
    /// ```
    /// use dunlin::prelude::*;
    /// use dunlin::{Bound, mailbox_with};
    /// # dunlin::block_on(async {
    /// let (address, mut mailbox) = mailbox_with(Bound::reject(1));
    /// address.send("krill")?;
    /// let (offered, received) = par!(address.offer("squid"), mailbox.recv());
    /// assert_eq!((offered, received?), (Ok(()), "krill"));
    /// # Ok::<(), Error>(())
    /// # }).unwrap();
    /// ```
    pub fn offer(&self, message: M) -> Offer<'_, M> {
        Offer::new(self, message)
    }

    /// As [`offer`](Self::offer), for the message in a slot, which stays there until it is sent: this can be a
    /// branch of a choice. With an empty slot the branch is off; awaited, it is done at once.
    ///
    /// # Errors
    /// As of [`offer`](Self::offer), but the message stays in the slot.
    ///
    /// # Cancel safety
    /// If it is dropped, or not chosen, the message is in the slot, and has not been sent.
    ///
    /// # Examples
    /// ```
    /// use dunlin::prelude::*;
    /// use dunlin::{Bound, mailbox_with};
    /// # dunlin::block_on(async {
    /// let (address, mailbox) = mailbox_with(Bound::reject(1));
    /// address.send("krill")?;
    /// let mut held = Some("squid");
    /// alt! {
    ///     _ = address.offer_from(&mut held) => unreachable!(),
    ///     _ = sleep(Duration::from_millis(1)) => assert_eq!(held, Some("squid")),
    /// }
    /// # drop(mailbox);
    /// # Ok::<(), Error>(())
    /// # }).unwrap();
    /// ```
    pub fn offer_from<'a>(&'a self, slot: &'a mut Option<M>) -> OfferFrom<'a, M> {
        OfferFrom::new(self, slot)
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

/// Why a message was not sent, with the message.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PostError<M> {
    /// The mailbox holds as many messages as its bound allows.
    #[error("the mailbox is full; send later, wait for room with `offer`, or give it a larger bound")]
    Full(M),
    /// The mailbox was dropped, or its process has ended.
    #[error("the mailbox is closed: its receiver was dropped, or its process has ended")]
    Closed(M),
}

impl<M> PostError<M> {
    /// The message.
    pub fn into_message(self) -> M {
        match self {
            Self::Full(message) | Self::Closed(message) => message,
        }
    }

    /// Whether the mailbox has been dropped.
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::Closed(_))
    }

    /// Whether the mailbox had no room.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Full(_))
    }

    pub(super) fn without_message(self, slot: &mut Option<M>) -> PostError<()> {
        let (error, message) = match self {
            Self::Full(message) => (PostError::Full(()), message),
            Self::Closed(message) => (PostError::Closed(()), message),
        };
        *slot = Some(message);
        error
    }
}

impl<M> fmt::Debug for PostError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the message, which may not be printable: so the error can be unwrapped.
        f.write_str(match self {
            Self::Full(_) => "Full(..)",
            Self::Closed(_) => "Closed(..)",
        })
    }
}
