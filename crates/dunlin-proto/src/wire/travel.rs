//! Frames about ends that travel.

use super::end::End;
use super::error::WireError;
use super::fields::{Facts, Reader, Wire, Writer, byte_field, kinds};
use crate::id::NodeId;

kinds! {
    WHERE = 0x40, SHORT, answer;
    AT = 0x41, FRAME, answer;
    FETCH = 0x42, SHORT, answer;
    SETTLED = 0x43, SHORT, answer;
    OVER = 0x44, FRAME, answer;
    LAPSED = 0x45, FRAME, answer;
    HURRY = 0x49, SHORT, answer;
}

/// A frame about ends that travel: `docs/mobility.md`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Travel {
    /// To the sponsor of a sender: asks where the home with this epoch, or a later one, is.
    Where(u64),
    /// The answer.
    At {
        /// The home's epoch.
        epoch: u64,
        /// The home.
        home: NodeId,
        /// Where it can be dialled.
        addresses: Vec<String>,
    },
    /// To the home: the receiver is at this node, under this number, and used.
    /// [`ToHome::State`](super::ToHome::State) answers.
    Fetch(u64),
    /// To the node that was given the end in that message: the end is in use, and no node has to answer for
    /// it any more.
    Settled(Which, u64),
    /// To the node that was given the end: its channel is over, or another node has the end.
    Over(Which, End),
    /// To the node that gave the end in that message: it was dropped unused, or is lost.
    Lapsed(Which, u64, End),
    /// To the node that was given the end in that message: the giver is leaving, so the end is to be used
    /// now, here or by the node that has it from here.
    Hurry(Which, u64),
}

impl Wire for Travel {
    const KINDS: &'static [(u8, Facts)] = kind::KINDS;

    fn write(&self, w: &mut Writer<'_>) {
        match self {
            Self::Where(epoch) => w.kind(kind::WHERE).number(*epoch),
            Self::At { epoch, home, addresses } => w.kind(kind::AT).number(*epoch).id(home.0).addresses(addresses),
            Self::Fetch(claim) => w.kind(kind::FETCH).number(*claim),
            Self::Settled(which, trip) => w.kind(kind::SETTLED).put(which).number(*trip),
            Self::Over(which, how) => w.kind(kind::OVER).put(which).put(how),
            Self::Lapsed(which, trip, how) => w.kind(kind::LAPSED).put(which).number(*trip).put(how),
            Self::Hurry(which, trip) => w.kind(kind::HURRY).put(which).number(*trip),
        };
    }

    #[inline]
    fn read(kind: u8, r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(match kind {
            kind::WHERE => Self::Where(r.number("an epoch")?),
            kind::AT => Self::At { epoch: r.number("an epoch")?, home: r.node()?, addresses: r.addresses()? },
            kind::FETCH => Self::Fetch(r.number("a claim")?),
            kind::SETTLED => Self::Settled(r.field()?, r.number("a trip")?),
            kind::OVER => Self::Over(r.field()?, r.field()?),
            kind::LAPSED => Self::Lapsed(r.field()?, r.number("a trip")?, r.field()?),
            kind::HURRY => Self::Hurry(r.field()?, r.number("a trip")?),
            unknown => return Err(WireError::UnknownKind(unknown)),
        })
    }
}

/// Which end of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Which {
    /// The sender.
    Sender,
    /// The receiver.
    Receiver,
}

byte_field!(Which, "the side of an end", Sender, Receiver);
