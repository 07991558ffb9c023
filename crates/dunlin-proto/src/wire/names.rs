//! Messages of the name service.

use super::declaration::Declaration;
use super::error::WireError;
use super::fields::{Facts, Field, Reader, Wire, Writer, byte_field, check_addresses, fits, invalid, kinds};
use super::limits;
use crate::id::{ChannelId, Life};

kinds! {
    DECLARE = 0x30, FRAME, compares;
    UNDECLARE = 0x31, SHORT;
    FOUND = 0x32, FRAME, answer;
    REFUSED = 0x33, FRAME, answer, compares;
    BAD_NAME = 0x34, SHORT, answer;
    GUEST = 0x35, SHORT;
    FULL = 0x36, SHORT, answer;
    WAITING = 0x37, SHORT, answer;
    GONE = 0x38, SHORT, answer;
    ELSEWHERE = 0x39, 0, answer;
    UNFIT = 0x3a, FRAME, answer, compares;
}

/// Messages of the name service, between any node and a server of names. `names` explains them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Names {
    /// A face is here, under this name.
    Declare {
        /// The declarer's number for it.
        number: u64,
        /// Printable ASCII without `/`.
        name: String,
        /// Identifies the channel or bundle, if this face is its home.
        channel: ChannelId,
        /// The face.
        face: Declaration,
        /// How far it has come, if it was declared before, to this server or another.
        status: Status,
    },
    /// Withdraws a declaration.
    Undeclare {
        /// Its number.
        number: u64,
    },
    /// The other face has been found.
    Found {
        /// The number of the declaration that this answers.
        number: u64,
        /// The node with the other face.
        partner: Life,
        /// Where that node can be dialled.
        addresses: Vec<String>,
        /// Identifies the channel or bundle.
        channel: ChannelId,
        /// The other face.
        face: Declaration,
    },
    /// The declaration does not fit an existing one. If it is joined already, it stays so, here too: it has
    /// come second.
    Refused {
        /// Its number.
        number: u64,
        /// The existing declaration.
        there: Declaration,
        /// The node that has it.
        holder: Life,
        /// Where that node can be dialled.
        addresses: Vec<String>,
    },
    /// The server has refused a declaration of the other face, since it does not fit this one, which stands
    /// as before.
    Unfit {
        /// The number of the declaration that stands.
        number: u64,
        /// The refused declaration.
        refused: Declaration,
        /// The node that had declared it.
        by: Life,
        /// Where that node can be dialled.
        addresses: Vec<String>,
    },
    /// The name is not valid.
    BadName {
        /// The number of the declaration.
        number: u64,
    },
    /// There is no room for the declaration.
    Full {
        /// Its number.
        number: u64,
        /// The room that is exhausted.
        room: Room,
        /// Its size.
        max: u64,
    },
    /// The declaration is admitted, but the other face has not been found.
    Waiting {
        /// Its number.
        number: u64,
    },
    /// To a home: a node that was found no longer declares the other face. A home that is not joined declares
    /// itself again.
    Gone {
        /// The number of the home's declaration.
        number: u64,
        /// The node that was found.
        partner: Life,
    },
    /// A client of an acceptor introduces itself: its bundle has this identity.
    Guest {
        /// The acceptor's.
        acceptor: ChannelId,
        /// The fresh bundle's.
        guest: ChannelId,
    },
    /// This node no longer serves the application's names; the declarer has to look for the node that does.
    Elsewhere,
}

impl Wire for Names {
    const KINDS: &'static [(u8, Facts)] = kind::KINDS;

    fn write(&self, w: &mut Writer<'_>) {
        match self {
            Self::Declare { number, name, channel, face, status } => {
                w.kind(kind::DECLARE).number(*number).string(name.as_bytes()).id(channel.0).put(face).put(status)
            }
            Self::Undeclare { number } => w.kind(kind::UNDECLARE).number(*number),
            Self::Found { number, partner, addresses, channel, face } => {
                w.kind(kind::FOUND).number(*number).life(*partner).addresses(addresses).id(channel.0).put(face)
            }
            Self::Refused { number, there, holder, addresses } => {
                w.kind(kind::REFUSED).number(*number).life(*holder).addresses(addresses).put(there)
            }
            Self::Unfit { number, refused, by, addresses } => {
                w.kind(kind::UNFIT).number(*number).life(*by).addresses(addresses).put(refused)
            }
            Self::BadName { number } => w.kind(kind::BAD_NAME).number(*number),
            Self::Full { number, room, max } => w.kind(kind::FULL).number(*number).put(room).number(*max),
            Self::Waiting { number } => w.kind(kind::WAITING).number(*number),
            Self::Gone { number, partner } => w.kind(kind::GONE).number(*number).life(*partner),
            Self::Guest { acceptor, guest } => w.kind(kind::GUEST).id(acceptor.0).id(guest.0),
            Self::Elsewhere => w.kind(kind::ELSEWHERE),
        };
    }

    fn read(kind: u8, r: &mut Reader<'_>) -> Result<Self, WireError> {
        let number = match kind {
            kind::GUEST => return Ok(Self::Guest { acceptor: r.channel()?, guest: r.channel()? }),
            kind::ELSEWHERE => return Ok(Self::Elsewhere),
            _ => r.number("a declaration")?,
        };
        Ok(match kind {
            kind::DECLARE => Self::Declare {
                number,
                name: r.text("a name", limits::NAME)?,
                channel: r.channel()?,
                face: r.field()?,
                status: r.field()?,
            },
            kind::UNDECLARE => Self::Undeclare { number },
            kind::FOUND => Self::Found {
                number,
                partner: r.life()?,
                addresses: r.addresses()?,
                channel: r.channel()?,
                face: r.field()?,
            },
            kind::REFUSED => Self::Refused { number, holder: r.life()?, addresses: r.addresses()?, there: r.field()? },
            kind::UNFIT => Self::Unfit { number, by: r.life()?, addresses: r.addresses()?, refused: r.field()? },
            kind::BAD_NAME => Self::BadName { number },
            kind::FULL => Self::Full { number, room: r.field()?, max: r.number("a limit")? },
            kind::WAITING => Self::Waiting { number },
            kind::GONE => Self::Gone { number, partner: r.life()? },
            unknown => return Err(WireError::UnknownKind(unknown)),
        })
    }
}

impl Names {
    /// Checks that it can be sent.
    ///
    /// # Errors
    /// [`WireError`], which names the field that is too long, with both numbers.
    pub fn check(&self) -> Result<(), WireError> {
        match self {
            Self::Declare { name, face, .. } => {
                fits("a name", name.len(), limits::NAME)?;
                face.check()
            }
            Self::Found { addresses, face, .. }
            | Self::Refused { addresses, there: face, .. }
            | Self::Unfit { addresses, refused: face, .. } => {
                check_addresses(addresses)?;
                face.check()
            }
            Self::Undeclare { .. }
            | Self::BadName { .. }
            | Self::Guest { .. }
            | Self::Full { .. }
            | Self::Waiting { .. }
            | Self::Gone { .. }
            | Self::Elsewhere => Ok(()),
        }
    }
}

/// How far a declared end has come, as its own node knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// No server has admitted it.
    New,
    /// A server has admitted it, and it may still be joined.
    Known,
    /// It belongs to this channel for good.
    Joined(ChannelId),
}

impl Field for Status {
    fn write(&self, w: &mut Writer<'_>) {
        match self {
            Self::New => w.byte(0),
            Self::Known => w.byte(1),
            Self::Joined(channel) => w.byte(2).id(channel.0),
        };
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(match r.byte("a status")? {
            0 => Self::New,
            1 => Self::Known,
            2 => Self::Joined(r.channel()?),
            value => return Err(invalid("a status", value)),
        })
    }
}

/// The limited resources of a server of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Room {
    /// Declarations of one node.
    Declarations,
    /// Names.
    Names,
    /// Bytes of the names and schemas of one node.
    Bytes,
    /// Names of one source, now that three quarters of all are taken: see
    /// [`has_place`](crate::source::has_place).
    Share,
    /// Bytes that the serving node keeps for all others: [`Config::held_max`](crate::Config::held_max).
    Memory,
}

byte_field!(Room, "the kind of room that is missing", Declarations, Names, Bytes, Share, Memory);
