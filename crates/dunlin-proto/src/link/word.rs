//! The words between the halves of a channel, and between the two sides of a link.

use bytes::Bytes;

use crate::id::{ChoiceId, Request, Ticket};
use crate::wire::{End, Failure, Head};

/// What one half of a channel sends to the other: `dunlin_core::remote::Word` on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// To the home: a send offers this value.
    Offer(Ticket, Bytes),
    /// To the home, into a granted place: the send is complete.
    Sent(Bytes),
    /// To the home: a choice offers a value.
    OfferChoice(Ticket, ChoiceId),
    /// To the home: the value that this reservation requested.
    Grant(Ticket, Request, Bytes),
    /// To the home: the reserved offer no longer exists.
    Refuse(Ticket),
    /// To the home: the offer is withdrawn.
    Withdraw(Ticket),
    /// To the home: the choice revokes its grant.
    Revoke(Ticket),
    /// To the sending half, before all else: whether the home grants places for values, and how many at
    /// first.
    Opened(Option<u32>),
    /// To the sending half: this many more places.
    Credit(u32),
    /// To the sending half: a receive has returned the value.
    Taken(Ticket),
    /// To the sending half: an extended receive has returned the value.
    Held(Ticket),
    /// To the sending half: the extended receive is over.
    Released(Ticket),
    /// To the sending half: the offer has failed.
    Failed(Ticket, Failure),
    /// To the sending half: the offer was withdrawn in time.
    Withdrawn(Ticket),
    /// To the sending half: a receive requests the value of a choice.
    Reserve(Ticket, Request),
    /// To the sending half: the granted value is no longer needed.
    Abort(Ticket),
    /// The half has ended the channel.
    Ended(End),
}

impl Word {
    pub(super) fn ticket(&self) -> Option<Ticket> {
        match self {
            Self::Offer(ticket, _)
            | Self::OfferChoice(ticket, _)
            | Self::Grant(ticket, ..)
            | Self::Refuse(ticket)
            | Self::Withdraw(ticket)
            | Self::Revoke(ticket)
            | Self::Taken(ticket)
            | Self::Held(ticket)
            | Self::Released(ticket)
            | Self::Failed(ticket, _)
            | Self::Withdrawn(ticket)
            | Self::Reserve(ticket, _)
            | Self::Abort(ticket) => Some(*ticket),
            Self::Sent(_) | Self::Opened(_) | Self::Credit(_) | Self::Ended(_) => None,
        }
    }

    /// The offer that it makes.
    pub(super) fn offers(&self) -> Option<Ticket> {
        match self {
            Self::Offer(ticket, _) | Self::OfferChoice(ticket, _) => Some(*ticket),
            _ => None,
        }
    }

    pub(super) fn value(&self) -> Option<&Bytes> {
        match self {
            Self::Sent(value) | Self::Offer(_, value) | Self::Grant(_, _, value) => Some(value),
            _ => None,
        }
    }

    pub(super) fn value_mut(&mut self) -> Option<&mut Bytes> {
        match self {
            Self::Sent(value) | Self::Offer(_, value) | Self::Grant(_, _, value) => Some(value),
            _ => None,
        }
    }

    pub(crate) fn whole(head: Head, value: Bytes) -> Self {
        match head {
            Head::Grant(ticket, request) => Self::Grant(ticket, request, value),
            Head::Offer(ticket) | Head::Unread(ticket) | Head::GrantUnread(ticket, _) => Self::Offer(ticket, value),
            Head::Sent => Self::Sent(value),
        }
    }
}

/// Frames that overtake values.
#[derive(Clone, Debug)]
pub(crate) enum Said {
    /// A word of a home.
    Word(Word),
    /// The sending half is ready.
    Attach { number: u64 },
    /// Its home is ready.
    Attached { alias: u32 },
    /// The value that has begun is no longer needed.
    Cut,
    /// The home is closed.
    Over,
}
