//! Frames of posts: messages for mailboxes.

use bytes::Bytes;

use super::error::WireError;
use super::fields::{Facts, Reader, Wire, Writer, kinds};
use super::limits;
use crate::id::MailboxId;

kinds! {
    MESSAGE = 0x70, FRAME;
    MORE = 0x71, FRAME;
    ASK = 0x72, SHORT;
    ROOM = 0x73, SHORT, answer;
    CLOSED = 0x74, SHORT, answer;
    USE = 0x75, FRAME, compares;
    MISMATCH = 0x76, FRAME, answer;
}

/// A frame about a mailbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Post {
    /// A message for a mailbox at the receiving node begins.
    Message {
        /// The mailbox.
        to: MailboxId,
        /// The length of the whole message, in bytes.
        total: u64,
        /// Its first bytes.
        first: Bytes,
    },
    /// The next piece of the message that has begun.
    More(Bytes),
    /// The sender has no room for a message to this mailbox of the receiving node, and waits for some.
    Ask(u64),
    /// The receiving node may send more to this mailbox of the sending node.
    Room {
        /// The mailbox.
        mailbox: u64,
        /// How many more messages.
        posts: u32,
        /// How many more bytes, [what each message takes](limits::VALUE) included.
        bytes: u64,
    },
    /// There is no such mailbox at the sending node (any more).
    Closed(u64),
    /// Messages of this schema follow for a mailbox at the receiving node.
    Use {
        /// The mailbox.
        to: MailboxId,
        /// The schema of the messages, encoded.
        schema: Bytes,
    },
    /// Messages of the schema that the receiving node [uses](Self::Use) cannot be read at this mailbox of the
    /// sending node.
    Mismatch {
        /// The mailbox.
        mailbox: u64,
        /// The schema of the messages that can be.
        schema: Bytes,
    },
}

impl Wire for Post {
    const KINDS: &'static [(u8, Facts)] = kind::KINDS;

    fn write<'a>(&'a self, w: &mut Writer<'a>) {
        match self {
            Self::Message { to, total, first } => {
                w.kind(kind::MESSAGE).number(to.number).fixed64(to.bits).number(*total).piece(first)
            }
            Self::More(piece) => w.kind(kind::MORE).piece(piece),
            Self::Ask(mailbox) => w.kind(kind::ASK).number(*mailbox),
            Self::Room { mailbox, posts, bytes } => {
                w.kind(kind::ROOM).number(*mailbox).number((*posts).into()).number(*bytes)
            }
            Self::Closed(mailbox) => w.kind(kind::CLOSED).number(*mailbox),
            Self::Use { to, schema } => w.kind(kind::USE).number(to.number).fixed64(to.bits).string(schema),
            Self::Mismatch { mailbox, schema } => w.kind(kind::MISMATCH).number(*mailbox).string(schema),
        };
    }

    fn read(kind: u8, r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(match kind {
            kind::MESSAGE => {
                let to = mailbox(r)?;
                let total = r.number("a message's length")?;
                if total > limits::POST as u64 {
                    let bytes_max = limits::POST as u64;
                    return Err(WireError::TooLong { what: "a message for a mailbox", bytes: total, bytes_max });
                }
                // Only the empty message has an empty piece, as a value.
                let first = if total == 0 { Bytes::new() } else { r.piece()? };
                if first.len() as u64 > total {
                    return Err(WireError::Trailing((first.len() as u64 - total) as usize));
                }
                Self::Message { to, total, first }
            }
            kind::MORE => Self::More(r.piece()?),
            kind::ASK => Self::Ask(r.number("a mailbox")?),
            kind::ROOM => Self::Room {
                mailbox: r.number("a mailbox")?,
                posts: r.number32("a count of messages")?,
                bytes: r.number("a count of bytes")?,
            },
            kind::CLOSED => Self::Closed(r.number("a mailbox")?),
            kind::USE => Self::Use { to: mailbox(r)?, schema: r.bytes("a schema", limits::SCHEMA)? },
            kind::MISMATCH => {
                Self::Mismatch { mailbox: r.number("a mailbox")?, schema: r.bytes("a schema", limits::SCHEMA)? }
            }
            unknown => return Err(WireError::UnknownKind(unknown)),
        })
    }
}

fn mailbox(r: &mut Reader<'_>) -> Result<MailboxId, WireError> {
    Ok(MailboxId { number: r.number("a mailbox")?, bits: r.fixed64("a mailbox's random bits")? })
}
