//! A channel over a link: its halves push words to each other, and values go as bytes.
//!
//! A link joins two nodes and carries the channels between them. A channel whose ends are apart is two halves, one at each node. At
//! either node a half is a [`Half`], to which the link gives the words that arrive for it, and the half has a [`Link`] to which it gives
//! its own. Unlike an [agent](crate::agent), nothing polls a half: a word is pushed in the poll, or the call, of the end that causes it.
//!
//! ```text
//!   sending half                                           receiving half (home)
//!   send().poll: encode, offer     ── Offer(bytes) ──▶     the queue keeps bytes; wakes the receiver
//!                                                          recv().poll: marks the offer, unlocks, decodes, locks, decides
//!   send().poll: value dropped     ◀── Taken ──
//!   a choice's offer               ── OfferChoice ──▶
//!   reserved                       ◀── Reserve ──          recv().poll
//!   encoded by its owner           ── Grant(bytes) ──▶     recv().poll: decodes, decides
//!     (Refuse: what was asked for is not there any more)
//!   confirmed                      ◀── Taken ──
//!   open again                     ◀── Abort ──
//!   the send was dropped, or late  ── Withdraw ──▶
//!   given back                     ◀── Withdrawn ──        (or Taken, Failed: the withdrawal came too late)
//! ```
//!
//! # Rules
//! - A value is encoded in a poll or call of the end that sends it, decoded in a poll or call of the end that receives it, and dropped
//!   by one of the two: never by the task of a socket.
//! - The value stays at the sender until its offer is taken, and nothing has to be given back.
//! - Locks are taken in this order: the channel's, then the link's. Under either runs no code of users', and nothing is woken.
//! - Words of one half arrive in the order in which they were said.
//!
//! # Source
//! `docs/choice.md`, section 3, with the state *reading* of an offer.

use std::sync::Arc;
use std::task::Waker;

use bytes::Bytes;

use crate::channel::receiver::Receiver;
use crate::channel::sender::Sender;
use crate::error::{Reason, Why};
use crate::portable::Portable;
use crate::portable::carrier::Format;


/// What one half of a channel says to the other. A ticket names an offer of the sending half, a request one reservation of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// To the home: a send offers this value.
    Offer {
        /// Which offer.
        ticket: u64,
        /// The encoded value.
        value: Bytes,
    },
    /// To the home: a choice offers something. Its value is asked for by `Reserve`.
    OfferChoice {
        /// Which offer.
        ticket: u64,
        /// The choice's number among all of both nodes ([`crate::agent::set_origin`]).
        choice: u128,
    },
    /// To the home: the value that was asked for. Until `Taken`, `Abort`, `Failed` or `Withdrawn` the choice decides for nothing else.
    Grant {
        /// Which offer.
        ticket: u64,
        /// Which reservation.
        request: u64,
        /// The encoded value.
        value: Bytes,
    },
    /// To the home: what was asked for is not there any more. Nothing answers.
    Refuse {
        /// Which offer.
        ticket: u64,
    },
    /// To the home: the offer is asked back. `Withdrawn` answers, unless `Taken`, `Held` or `Failed` has been said.
    Withdraw {
        /// Which offer.
        ticket: u64,
    },
    /// To the home: the reserved choice would decide for another branch. `Abort` answers, unless the value has been taken.
    Revoke {
        /// Which offer.
        ticket: u64,
    },
    /// To the sending half: a receive has returned the value.
    Taken {
        /// Which offer.
        ticket: u64,
    },
    /// To the sending half: an extended receive has returned the value; `Released` follows.
    Held {
        /// Which offer.
        ticket: u64,
    },
    /// To the sending half: the extended receive is over.
    Released {
        /// Which offer.
        ticket: u64,
    },
    /// To the sending half: the offer has failed.
    Failed {
        /// Which offer.
        ticket: u64,
        /// Why.
        why: Why,
    },
    /// To the sending half: the offer that was asked back has not been taken.
    Withdrawn {
        /// Which offer.
        ticket: u64,
    },
    /// To the sending half: a receiver wants the value of this offer of a choice.
    Reserve {
        /// Which offer.
        ticket: u64,
        /// Which reservation.
        request: u64,
    },
    /// To the sending half: the receiver does not want it any more; the offer stands.
    Abort {
        /// Which offer.
        ticket: u64,
    },
    /// The channel has ended at the half that says so.
    Ended(Ended),
}

/// How a half has ended its channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The end was dropped. All that the half had to say has been said before.
    Gone,
    /// The channel was retired.
    Retired,
    /// The channel was poisoned. From the sending half, with less than full strength: the home decides.
    Poisoned(Reason),
}

/// One half's way to the other: a place on the connection between two nodes.
pub trait Link: Send + Sync {
    /// Queues a word behind those said before. Returns the waker of the task that writes, if that has to be woken.
    ///
    /// It is called under the channel's lock. So it takes no lock but the link's own, runs no code of users', and wakes nothing.
    fn say(&self, word: Word) -> Option<Waker>;

    /// The half here is done: all that it had to say has been said, and it hears nothing more. The same rules hold.
    fn close(&self) -> Option<Waker>;
}

/// A half of a channel, as its link knows it. Nothing is locked when it is called.
pub trait Half: Send + Sync {
    /// A word of the other half.
    ///
    /// # Errors
    /// The word, if the other half cannot have said it to this one: it breaks the protocol.
    fn hear(&self, word: Word) -> Result<(), Word>;

    /// The other node is lost for good. Sends whose values may have been taken there end as [`Unknown`](crate::SendError::Unknown).
    fn lost(&self);
}

/// How a channel's values go over a link.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// How they are encoded.
    pub format: Format,
    /// How large an encoded value may be, in bytes.
    pub value_max: u64,
}

/// Takes the place of the receiver, which is at the other node: the channel is a sending half from now on.
pub fn sending_half<T: Portable, P>(receiver: Receiver<T, P>, terms: Terms, link: Arc<dyn Link>) -> Arc<dyn Half> {
    let _ = (receiver, terms, link);
    unimplemented!()
}

/// Takes the place of the sender, which is at the other node: the channel is a receiving half, its home, from now on.
pub fn receiving_half<T: Portable, P>(sender: Sender<T, P>, terms: Terms, link: Arc<dyn Link>) -> Arc<dyn Half> {
    let _ = (sender, terms, link);
    unimplemented!()
}
