//! What the halves of a channel, and the two sides of a link, say to each other.

use bytes::Bytes;

use crate::id::{ChoiceId, Request, Ticket};
use crate::wire::{End, Failure, Head};

/// What one half of a channel sends to the other: `dunlin_core::remote::Word` on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// To the home: a send offers this value.
    Offer(Ticket, Bytes),
    /// To the home, into a place that it has promised: the send is over.
    Sent(Bytes),
    /// To the home: a choice offers a value.
    OfferChoice(Ticket, ChoiceId),
    /// To the home: the value that this reservation asked for.
    Grant(Ticket, Request, Bytes),
    /// To the home: the offer that was reserved is not there any more.
    Refuse(Ticket),
    /// To the home: the offer is withdrawn.
    Withdraw(Ticket),
    /// To the home: the choice asks for its reservation back.
    Revoke(Ticket),
    /// To the sending half, before all else: whether the home promises places for values, and how many at
    /// first.
    Opened(Option<u32>),
    /// To the sending half: so many places more.
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
    /// To the sending half: a receive asks for the value of a choice.
    Reserve(Ticket, Request),
    /// To the sending half: the value that was granted is not wanted any more.
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

/// What overtakes values.
#[derive(Clone, Debug)]
pub(crate) enum Said {
    /// A word of a home.
    Word(Word),
    /// A sending half is there.
    Attach { number: u64 },
    /// Its home is there.
    Attached { alias: u32 },
    /// The value that has begun is not wanted any more.
    Cut,
    /// The home is closed.
    Over,
}
