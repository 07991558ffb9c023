//! Sending that waits for room.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use dunlin_core::__rt::{ChoiceCx, Look, counted};
use dunlin_core::waits::{Doing, Pid, Watch};
use dunlin_core::{Branch, Operation};

use super::address::{Address, To};
use super::error::PostError;
use super::queue::Ticket;
#[cfg(feature = "net")]
use super::remote::Far;

impl<M> Address<M> {
    /// Waits until there is room for a message, and sends it. A mailbox without a bound, or one that drops
    /// its oldest message, always has room.
    ///
    /// Operations that wait get their turn in the order of their first polls. A [`send`](Self::send) does not
    /// wait behind them. If the mailbox is at another node they are in no order.
    ///
    /// # Errors
    /// When awaited: as of [`send`](Self::send), but [`PostError::Full`] only when a deadline
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

    /// As [`offer`](Self::offer), for the message in a slot, which stays there until it is sent: this can be
    /// a branch of a choice. With an empty slot the branch is off; awaited, it is done at once.
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
}

/// An operation's place among those that wait for room.
struct Place<'a, M> {
    address: &'a Address<M>,
    ticket: Option<Ticket>,
    again: bool,
    watch: Watch,
}

impl<'a, M> Place<'a, M> {
    fn new(address: &'a Address<M>) -> Self {
        Self { address, ticket: None, again: false, watch: Watch::default() }
    }

    fn poll(&mut self, slot: &mut Option<M>, cx: &Context<'_>) -> Poll<Result<(), PostError<M>>> {
        let (posted, made) = match &self.address.to {
            To::Here(shared) => (shared.offer(slot, &mut self.ticket, cx.waker()), shared.made),
            #[cfg(feature = "net")]
            To::There(far) => (far.offer(slot, &mut self.ticket, cx.waker()), Far::<M>::made()),
        };
        let polled = posted.map_or(Poll::Pending, Poll::Ready);
        self.watch.note(polled, Doing::Send, Pid::OUTSIDE, made)
    }

    /// Polls it outside of a choice.
    fn poll_alone(&mut self, slot: &mut Option<M>, cx: &mut Context<'_>) -> Poll<Result<(), PostError<M>>> {
        let again = std::mem::replace(&mut self.again, true);
        counted(again, cx, |cx| self.poll(slot, cx))
    }
}

impl<M> Drop for Place<'_, M> {
    fn drop(&mut self) {
        match &self.address.to {
            To::Here(shared) => shared.leave(self.ticket.take()),
            #[cfg(feature = "net")]
            To::There(far) => far.remote().leave(self.ticket.take()),
        }
    }
}

/// Waits for room and sends a message: made by [`Address::offer`](crate::Address::offer).
#[must_use = "an operation does nothing until it is awaited"]
pub struct Offer<'a, M> {
    place: Place<'a, M>,
    message: Option<M>,
}

impl<'a, M> Offer<'a, M> {
    pub(super) fn new(address: &'a Address<M>, message: M) -> Self {
        Self { place: Place::new(address), message: Some(message) }
    }

    /// The message, if it has not been sent.
    pub fn into_message(self) -> Option<M> {
        self.message
    }
}

impl<M> fmt::Debug for Offer<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Offer").field(self.place.address).finish()
    }
}

// Nothing in it is pinned.
impl<M> Unpin for Offer<'_, M> {}

impl<M> Future for Offer<'_, M> {
    type Output = Result<(), PostError<M>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { place, message } = &mut *self;
        place.poll_alone(message, cx)
    }
}

impl<M> Operation for Offer<'_, M> {
    fn poll_expire(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(self.message.take().map_or(Ok(()), |message| Err(PostError::Full(message))))
    }
}

/// Waits for room and sends the message in a slot: made by
/// [`Address::offer_from`](crate::Address::offer_from).
#[must_use = "an operation does nothing until it is awaited or chosen"]
pub struct OfferFrom<'a, M> {
    place: Place<'a, M>,
    slot: &'a mut Option<M>,
}

impl<'a, M> OfferFrom<'a, M> {
    pub(super) fn new(address: &'a Address<M>, slot: &'a mut Option<M>) -> Self {
        Self { place: Place::new(address), slot }
    }

    fn refused(&mut self, posted: Result<(), PostError<M>>) -> Result<(), PostError<()>> {
        posted.map_err(|error| error.without_message(self.slot))
    }
}

impl<M> fmt::Debug for OfferFrom<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OfferFrom").field(self.place.address).finish()
    }
}

impl<M> Future for OfferFrom<'_, M> {
    type Output = Result<(), PostError<()>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { place, slot } = &mut *self;
        let polled = place.poll_alone(slot, cx);
        polled.map(|posted| self.refused(posted))
    }
}

impl<M> Branch for OfferFrom<'_, M> {
    type Output = Result<(), PostError<()>>;

    fn poll_branch(mut self: Pin<&mut Self>, cx: &mut Context<'_>, choice: &ChoiceCx) -> Poll<Self::Output> {
        if self.slot.is_none() {
            return Poll::Pending;
        }
        let Self { place, slot } = &mut *self;
        let polled = choice.poll_foreign(false, || place.poll(slot, cx));
        polled.map(|posted| self.refused(posted))
    }

    fn look(&self) -> Look {
        if self.slot.is_none() { Look::Off } else { Look::Maybe(None) }
    }

    fn unchosen(&self) {
        self.place.watch.end();
    }
}

impl<M> Operation for OfferFrom<'_, M> {
    fn poll_expire(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(if self.slot.is_some() { Err(PostError::Full(())) } else { Ok(()) })
    }
}
