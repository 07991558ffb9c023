//! Mailboxes: messages for a process, which it receives in an order of its own.
//!
//! - [`mailbox`], [`mailbox_with`], [`Bound`]: making one;
//! - [`Address`], [`Offer`]: sending (`address.rs`, `offer.rs`);
//! - [`Mailbox`], [`Receive`], [`Marked`]: receiving (`receive.rs`);
//! - `queue.rs`: what both share;
//! - `far.rs`, `remote.rs`, `came.rs`, `named.rs`: mailboxes between nodes, and by name.
//!
//! The receiver has messages in a list of its own, where it searches without a lock: new ones are appended
//! when it has searched all. So patterns run while nothing is locked, each message is tested once by a
//! receive, and a pattern that panics leaves the list as it was.

mod address;
mod bound;
#[cfg(feature = "net")]
mod came;
mod error;
#[cfg(feature = "net")]
mod far;
#[cfg(feature = "net")]
mod named;
mod offer;
mod queue;
mod receive;
#[cfg(feature = "net")]
mod remote;

use std::panic::Location;

pub use address::Address;
pub use bound::Bound;
pub use error::{MailboxError, PostError};
pub use offer::{Offer, OfferFrom};
pub(super) use queue::Notices;
use queue::Shared;
pub use receive::{Mailbox, Marked, Receive};

/// Makes an unbounded mailbox, and its address.
///
/// Sending never waits, and the receiver takes messages in the order sent, or the first that
/// [fits](Mailbox::recv_if). A mailbox belongs to the process that first receives from it. What one process
/// sends there, its exit and the [`Down`](crate::Down) of a monitor arrive in the order sent.
///
/// # Examples
/// ```
/// use dunlin::prelude::*;
/// use dunlin::mailbox;
/// # dunlin::block_on(async {
/// let (address, mut mailbox) = mailbox::<u32>();
/// for n in [1, 2, 3] {
///     address.send(n)?;
/// }
/// assert_eq!(mailbox.recv_if(|n| n % 2 == 0).await?, 2);
/// assert_eq!(mailbox.recv().await?, 1);
/// # Ok::<(), Error>(())
/// # }).unwrap();
/// ```
///
/// # Source
/// Erlang; in Scheme, Termite (Germain, Feeley and Monnier, 2006).
#[track_caller]
pub fn mailbox<M: Send + 'static>() -> (Address<M>, Mailbox<M>) {
    mailbox_with(Bound::Unbounded)
}

/// Makes a mailbox with this bound, and its address.
///
/// # Examples
/// ```
/// use dunlin::{Bound, PostError, mailbox_with};
///
/// let (address, _mailbox) = mailbox_with(Bound::reject(1));
/// assert_eq!(address.send("krill"), Ok(()));
/// assert_eq!(address.send("squid"), Err(PostError::Full("squid")));
/// ```
#[track_caller]
pub fn mailbox_with<M: Send + 'static>(bound: Bound) -> (Address<M>, Mailbox<M>) {
    let shared = Shared::new(bound, Location::caller());
    (Address::new(shared.clone()), Mailbox::new(shared))
}
