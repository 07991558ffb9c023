//! Frames about the memory that values take.

use super::error::WireError;
use super::fields::{Facts, Reader, Wire, Writer, kinds};
use super::value::Kind;
use crate::id::ChannelId;

kinds! {
    CREDIT = 0x60, SHORT, answer;
    ANNOUNCE = 0x61, SHORT;
    ADMIT = 0x62, SHORT, answer;
    RECANT = 0x63, SHORT;
}

/// A frame about the memory that values take at the node that receives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// This many more bytes of values may be sent unannounced, each with [its
    /// overhead](super::limits::VALUE).
    Credit(u64),
    /// A value outside the credit waits.
    Announce {
        /// Its number in the connection.
        number: u64,
        /// The channel on which it is to be sent.
        channel: ChannelId,
        /// What it is for.
        kind: Kind,
        /// The length of the whole value, in bytes.
        total: u64,
    },
    /// The announced value may be sent: there is room for all of it.
    Admit(u64),
    /// The value is no longer announced. Its admission may have crossed this frame.
    Recant(u64),
}

impl Wire for Memory {
    const KINDS: &'static [(u8, Facts)] = kind::KINDS;

    fn write(&self, w: &mut Writer<'_>) {
        match self {
            Self::Credit(bytes) => w.kind(kind::CREDIT).number(*bytes),
            Self::Announce { number, channel, kind, total } => {
                w.kind(kind::ANNOUNCE).number(*number).id(channel.0).put(kind).number(*total)
            }
            Self::Admit(number) => w.kind(kind::ADMIT).number(*number),
            Self::Recant(number) => w.kind(kind::RECANT).number(*number),
        };
    }

    #[inline]
    fn read(kind: u8, r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(match kind {
            kind::CREDIT => Self::Credit(r.number("a credit")?),
            kind::ANNOUNCE => Self::Announce {
                number: r.number("an announcement")?,
                channel: r.channel()?,
                kind: r.field()?,
                total: r.number("a length")?,
            },
            kind::ADMIT => Self::Admit(r.number("an announcement")?),
            kind::RECANT => Self::Recant(r.number("an announcement")?),
            unknown => return Err(WireError::UnknownKind(unknown)),
        })
    }
}
