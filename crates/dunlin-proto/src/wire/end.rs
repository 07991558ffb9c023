//! How channels end, and offers fail.

use super::error::WireError;
use super::fields::{Field, Reader, Writer, invalid};
use super::limits;

/// How a channel ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The end was dropped.
    Gone,
    /// The channel was retired.
    Retired,
    /// The channel was poisoned. A sending half with less than full strength only asks for this; the home may
    /// be immune.
    Poisoned(Poison),
    /// The end was lost with a node, or on its way.
    Lost,
}

impl Field for End {
    fn write(&self, w: &mut Writer<'_>) {
        match self {
            Self::Gone => w.byte(0),
            Self::Retired => w.byte(1),
            Self::Poisoned(why) => w.byte(2).put(why),
            Self::Lost => w.byte(3),
        };
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(match r.byte("an end")? {
            0 => Self::Gone,
            1 => Self::Retired,
            2 => Self::Poisoned(r.field()?),
            3 => Self::Lost,
            value => return Err(invalid("an end", value)),
        })
    }
}

/// What a channel was poisoned with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Poison {
    /// The strength: 255 is full strength, to which nothing is immune.
    pub strength: u8,
    /// Why.
    pub reason: String,
}

impl Field for Poison {
    fn write(&self, w: &mut Writer<'_>) {
        w.byte(self.strength).clipped(&self.reason);
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self { strength: r.byte("a strength")?, reason: r.text("a reason", limits::TEXT)? })
    }
}

/// Why an offer failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The receiver is gone, or the channel was retired.
    Closed,
    /// The channel was poisoned.
    Poisoned(Poison),
    /// The policy refused it.
    Refused,
    /// A later sender pushed it out of the queue.
    Expired,
    /// The send would have had to wait.
    WouldBlock,
    /// It is larger than the home allows.
    TooLarge {
        /// The limit, in bytes.
        max: u64,
    },
    /// The bytes are not a value of the receiver's type.
    Undecodable(String),
    /// The receive is in the same choice as the send.
    OwnChannel,
    /// The offer had been forwarded to another node, which is lost: whether the value was received is
    /// unknown.
    Unknown,
    /// It is [unread](super::Head::Unread), and could not be read.
    Unread,
}

impl Field for Failure {
    fn write(&self, w: &mut Writer<'_>) {
        match self {
            Self::Closed => w.byte(0),
            Self::Poisoned(why) => w.byte(1).put(why),
            Self::Refused => w.byte(2),
            Self::Expired => w.byte(3),
            Self::WouldBlock => w.byte(4),
            Self::TooLarge { max } => w.byte(5).number(*max),
            Self::Undecodable(text) => w.byte(6).clipped(text),
            Self::OwnChannel => w.byte(7),
            Self::Unknown => w.byte(8),
            Self::Unread => w.byte(9),
        };
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(match r.byte("a failure")? {
            0 => Self::Closed,
            1 => Self::Poisoned(r.field()?),
            2 => Self::Refused,
            3 => Self::Expired,
            4 => Self::WouldBlock,
            5 => Self::TooLarge { max: r.number("a limit")? },
            6 => Self::Undecodable(r.text("a reason", limits::TEXT)?),
            7 => Self::OwnChannel,
            8 => Self::Unknown,
            9 => Self::Unread,
            value => return Err(invalid("a failure", value)),
        })
    }
}
