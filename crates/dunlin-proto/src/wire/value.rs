//! Values, which travel in pieces: what the first piece says, and where a value is that stays.

use super::error::WireError;
use super::fields::{Reader, Writer, byte_field, kinds};
use crate::id::{Request, Ticket};

kinds! {
    OFFER = 0x21, CHUNK + 64;
    GRANT = 0x22, CHUNK + 64;
    SENT = 0x23, CHUNK + 64;
    UNREAD = 0x2f, CHUNK + 64;
    GRANT_UNREAD = 0x46, CHUNK + 64;
}

/// What a value is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// A send offers it.
    Offer(Ticket),
    /// A send offers a value that stays where it is. What comes here says where it can be
    /// [read](super::Frame::Read), by whatever node it goes on to.
    Unread(Ticket),
    /// It was asked for by [`FromHome::Reserve`](super::FromHome::Reserve).
    Grant(Ticket, Request),
    /// The same, and the value is [unread](Self::Unread).
    GrantUnread(Ticket, Request),
    /// It was sent on a credit.
    Sent,
}

impl Head {
    #[inline]
    pub(super) fn write(self, w: &mut Writer<'_>) {
        match self {
            Self::Offer(ticket) => w.kind(kind::OFFER).number(ticket),
            Self::Unread(ticket) => w.kind(kind::UNREAD).number(ticket),
            Self::Grant(ticket, request) => w.kind(kind::GRANT).number(ticket).number(request),
            Self::GrantUnread(ticket, request) => w.kind(kind::GRANT_UNREAD).number(ticket).number(request),
            Self::Sent => w.kind(kind::SENT),
        };
    }

    #[inline]
    pub(super) fn read(kind: u8, r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(match kind {
            kind::OFFER => Self::Offer(r.number("a ticket")?),
            kind::UNREAD => Self::Unread(r.number("a ticket")?),
            kind::GRANT => Self::Grant(r.number("a ticket")?, r.number("a request")?),
            kind::GRANT_UNREAD => Self::GrantUnread(r.number("a ticket")?, r.number("a request")?),
            kind::SENT => Self::Sent,
            unknown => return Err(WireError::UnknownKind(unknown)),
        })
    }

    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::Offer(_) | Self::Unread(_) => Kind::Offer,
            Self::Grant(..) | Self::GrantUnread(..) => Kind::Grant,
            Self::Sent => Kind::Sent,
        }
    }
}

/// What an announced value is for: a [`Head`] without its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A send offers it.
    Offer,
    /// A receive has asked for it.
    Grant,
    /// A place in the buffer is promised for it.
    Sent,
}

byte_field!(Kind, "a kind of value", Offer, Grant, Sent);

/// Which value, and how long it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// Its number, which nobody else knows but who was told of the offer.
    pub key: u128,
    /// In bytes, as it was encoded.
    pub value_max: u64,
}
