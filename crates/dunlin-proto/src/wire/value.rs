//! Values, which travel in pieces: the head of the first piece, and the place of a value that stays.

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
    /// A send offers a value that stays at its node. The bytes that arrive tell any node that they are
    /// forwarded to where to [read](super::Frame::Read) it.
    Unread(Ticket),
    /// It answers [`FromHome::Reserve`](super::FromHome::Reserve).
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
    /// A receive has reserved it.
    Grant,
    /// A place in the buffer is promised for it.
    Sent,
}

byte_field!(Kind, "a kind of value", Offer, Grant, Sent);

/// Names a value to read, and limits its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// Its number, known only to nodes that have received the offer.
    pub key: u128,
    /// The limit in bytes, as encoded.
    pub value_max: u64,
}
