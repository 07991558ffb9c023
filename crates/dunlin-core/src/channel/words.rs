//! What the two halves of a channel over a link say to each other: [`crate::remote`] has the picture.

use std::task::Waker;

use bytes::Bytes;

use crate::error::{Reason, Why};
use crate::portable::codec::Format;

/// What one half of a channel says to the other. A ticket names an offer of the sending half, a request one
/// reservation of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// To the home: a send offers this value.
    Offer {
        /// Which offer.
        ticket: u64,
        /// The encoded value.
        value: Bytes,
    },
    /// To the home, which has promised a place for it: a send is over.
    Sent {
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
    /// To the home: the value that was asked for. Until `Taken`, `Abort`, `Failed` or `Withdrawn` the choice
    /// decides for nothing else.
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
    /// To the home: the offer is asked back. `Withdrawn` answers, unless `Taken`, `Held` or `Failed` has been
    /// said.
    Withdraw {
        /// Which offer.
        ticket: u64,
    },
    /// To the home: the reserved choice would decide for another branch. `Abort` answers, unless the value
    /// has been taken.
    Revoke {
        /// Which offer.
        ticket: u64,
    },
    /// To the sending half, before all else: how the home takes values.
    Opened {
        /// It promises places for values, which are [sent](Self::Sent) into them, and so many for now.
        /// `None`: each value is offered.
        places: Option<u32>,
    },
    /// To the sending half: so many places more.
    Credit {
        /// How many, beside those before.
        places: u32,
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
    /// The same, of a value that came for a reservation which has been given up before.
    Decline {
        /// Which offer.
        ticket: u64,
        /// Which reservation.
        request: u64,
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
    /// Queues a word behind those said before. Returns the waker of the task that writes, if that has to be
    /// woken.
    ///
    /// It is called under the channel's lock. So it takes no lock but the link's own, runs no code of users',
    /// and wakes nothing.
    fn say(&self, word: Word) -> Option<Waker>;

    /// The half here is done: all that it had to say has been said, and it hears nothing more. The same rules
    /// hold.
    fn close(&self) -> Option<Waker>;

    /// Promises so many places more to the sending half, perhaps none, while so many values are buffered
    /// here: one was received, or there is more room. The same rules hold.
    fn promise(&self, places: u32, buffered: usize) -> Option<Waker> {
        let _ = buffered;
        if places > 0 { self.say(Word::Credit { places }) } else { None }
    }

    /// A value of so many bytes has come into a place that was promised, and so many are buffered now. Gives
    /// how many there may be in all, if that has changed. The same rules hold.
    fn has_come(&self, bytes: usize, buffered: usize) -> Option<u32> {
        let _ = (bytes, buffered);
        None
    }

    /// A receive waits, which was [asked about](crate::agent::Inlet::ask_awaited). The same rules hold.
    fn awaited(&self) -> Option<Waker> {
        None
    }
}

/// A half of a channel, as its link knows it. Nothing is locked when it is called.
pub trait Half: Send + Sync {
    /// A word of the other half.
    ///
    /// # Errors
    /// The word, if the other half cannot have said it to this one: it breaks the protocol.
    fn hear(&self, word: Word) -> Result<(), Word>;

    /// The other node is lost for good. Sends whose values may have been taken there end as
    /// [`Unknown`](crate::SendError::Unknown).
    fn lost(&self);
}

/// How a channel's values go over a link.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// How they are encoded.
    pub format: Format,
    /// How large an encoded value may be, in bytes.
    pub value_max: u64,
    /// A value is a message of a node: [`Bytes`] and `Vec<u8>` are what they are, and anything else has a
    /// byte before it, zero, which says that no ends come with it. An agent [stands
    /// by](crate::carrier::AnyOutlet::link).
    pub is_message: bool,
}
