//! The messages between the two halves of a channel over a link: [`crate::remote`] has the diagram.

use std::any::Any;
use std::task::{Poll, Waker};

use bytes::Bytes;

use crate::error::{Reason, Why};
use crate::portable::codec::Format;

/// A message from one half of a channel to the other. A ticket names an offer of the sending half, a request
/// one reservation of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// To the home: a send offers this value.
    Offer {
        /// Which offer.
        ticket: u64,
        /// The encoded value.
        value: Bytes,
    },
    /// To the home: like `Offer`, for a value with places for replies in it.
    Request {
        /// Which offer.
        ticket: u64,
        /// The message, as the link [described](Link::request) the places.
        value: Bytes,
    },
    /// To the home, which has promised a place for it: a value whose send is complete.
    Sent {
        /// The encoded value.
        value: Bytes,
    },
    /// To the home: a choice offers a value, which the home requests with `Reserve`.
    OfferChoice {
        /// Which offer.
        ticket: u64,
        /// The choice's number, unique among the choices of both nodes ([`crate::agent::set_origin`]).
        choice: u128,
    },
    /// To the home: the requested value. Until `Taken`, `Abort`, `Failed` or `Withdrawn` the choice cannot
    /// decide for another branch.
    Grant {
        /// Which offer.
        ticket: u64,
        /// Which reservation.
        request: u64,
        /// The encoded value.
        value: Bytes,
    },
    /// To the home: the requested offer no longer exists. It has no answer.
    Refuse {
        /// Which offer.
        ticket: u64,
    },
    /// To the home: withdraws the offer. `Withdrawn` answers, unless `Taken`, `Held` or `Failed` has been
    /// sent.
    Withdraw {
        /// Which offer.
        ticket: u64,
    },
    /// To the home: the reserved choice could decide for another branch. `Abort` answers, unless a receive
    /// has taken the value.
    Revoke {
        /// Which offer.
        ticket: u64,
    },
    /// To the sending half, before any other word: how the home takes values.
    Opened {
        /// The number of places promised so far, into which values are [sent](Self::Sent). `None`: the home
        /// promises no places, and each value is offered.
        places: Option<u32>,
    },
    /// To the sending half: more promised places.
    Credit {
        /// How many, in addition to those before.
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
    /// To the sending half: the extended receive has ended.
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
    /// To the sending half: the withdrawn offer has not been taken.
    Withdrawn {
        /// Which offer.
        ticket: u64,
    },
    /// To the sending half: a receiver requests the value of this offer of a choice.
    Reserve {
        /// Which offer.
        ticket: u64,
        /// Which reservation.
        request: u64,
    },
    /// To the sending half: the receiver no longer needs the value; the offer stands.
    Abort {
        /// Which offer.
        ticket: u64,
    },
    /// Like `Abort`, for a value that arrived for a reservation that had been given up.
    Decline {
        /// Which offer.
        ticket: u64,
        /// Which reservation.
        request: u64,
    },
    /// The channel has ended at the half that sends this.
    Ended(Ended),
}

/// How a half ended its channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The end was dropped. The half has sent all its other words before.
    Gone,
    /// The channel was retired.
    Retired,
    /// The channel was poisoned. For a word from the sending half with less than full strength, the home
    /// decides.
    Poisoned(Reason),
}

/// A link's places for replies in a request that is sent.
pub type SentPlaces = Box<dyn Any + Send>;

/// An encoded value, with the places for replies in it, if it has any.
pub type Request = (Bytes, Option<SentPlaces>);

/// A link's places for replies in a request that has been decoded.
pub type ReadPlaces = Box<dyn Any + Send>;

/// The path from one half to the other: a place on the connection between two nodes.
pub trait Link: Send + Sync {
    /// Queues a word behind those queued before. Returns the waker of the writing task, if that task must be
    /// woken.
    ///
    /// The caller holds the channel's lock. So this takes no lock but the link's own, runs no users' code,
    /// and wakes no task.
    fn say(&self, word: Word) -> Option<Waker>;

    /// Encodes a value that may have places for replies in it, and no other ends: `write` encodes the value.
    /// The caller holds no lock. This and the next four are only for a half whose agent stands by.
    fn write_request(&self, write: &mut dyn FnMut() -> Poll<Result<Bytes, Why>>) -> Poll<Result<Request, Why>> {
        write().map_ok(|value| (value, None))
    }

    /// Queues the offer of a value with places for replies in it. The link describes them in the message, and
    /// keeps them until the outcome of the offer is known. The rules of [`say`](Self::say) hold.
    fn request(&self, ticket: u64, value: Bytes, places: SentPlaces) -> Option<Waker> {
        let _ = places;
        self.say(Word::Offer { ticket, value })
    }

    /// Decodes a [`Request`](Word::Request): `read` decodes the value from a message without ends. The places
    /// are the link's until the receive [takes](Self::takes) the request, or [does not](Self::takes_not). The
    /// caller holds no lock.
    fn read_request(
        &self,
        message: &Bytes,
        read: &mut dyn FnMut(&Bytes) -> Result<(), Why>,
    ) -> Result<ReadPlaces, Why> {
        read(message).map(|()| -> ReadPlaces { Box::new(()) })
    }

    /// A receive takes this request, with these places: the word of that follows under the same lock. The
    /// rules of [`say`](Self::say) hold.
    fn takes(&self, ticket: u64, places: ReadPlaces) {
        let _ = (ticket, places);
    }

    /// A receive does not take the request that it has decoded. The rules of [`say`](Self::say) hold.
    fn takes_not(&self, places: ReadPlaces) -> Option<Waker> {
        let _ = places;
        None
    }

    /// Ends the half here: it has sent all its words and receives no more. The rules of [`say`](Self::say)
    /// hold.
    fn close(&self) -> Option<Waker>;

    /// Promises `places` more places, possibly none, to the sending half while `buffered` values are buffered
    /// here: one was received, or there is more room. The rules of [`say`](Self::say) hold.
    fn promise(&self, places: u32, buffered: usize) -> Option<Waker> {
        let _ = buffered;
        if places > 0 { self.say(Word::Credit { places }) } else { None }
    }

    /// Reports that a value of `bytes` bytes has arrived in a promised place, and that `buffered` values are
    /// now buffered. Returns the new limit on places in all, if it has changed. The rules of
    /// [`say`](Self::say) hold.
    fn has_come(&self, bytes: usize, buffered: usize) -> Option<u32> {
        let _ = (bytes, buffered);
        None
    }

    /// Reports that a receive waits, as [requested](crate::agent::RawInlet::ask_awaited). The rules of
    /// [`say`](Self::say) hold.
    fn awaited(&self) -> Option<Waker> {
        None
    }
}

/// A half of a channel, as its link sees it. The caller holds no lock.
pub trait Half: Send + Sync {
    /// Handles a word of the other half.
    ///
    /// # Errors
    /// The word, if the other half cannot have sent it to this one: it violates the protocol.
    fn hear(&self, word: Word) -> Result<(), Word>;

    /// Handles the permanent loss of the other node. Sends whose values a receive there may have taken end as
    /// [`Unknown`](crate::SendError::Unknown).
    fn lost(&self);
}

/// How a channel's values travel over a link.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// How they are encoded.
    pub format: Format,
    /// How large an encoded value may be, in bytes.
    pub value_max: u64,
    /// A value is a message of a node: [`Bytes`] and `Vec<u8>` travel unchanged, and a zero byte precedes any
    /// other value, to mark a message without ends. Of ends only places for replies go over a link, in
    /// [requests](Word::Request). An agent [stands by](crate::carrier::AnyOutlet::link).
    pub is_message: bool,
}
