//! Frames that connect two nodes that cannot dial each other.

use bytes::Bytes;

use super::error::WireError;
use super::fields::{Facts, Reader, Wire, Writer, byte_field, kinds};
use crate::id::NodeId;

kinds! {
    ASK_DIAL = 0x50, FRAME;
    DIAL_BACK = 0x51, FRAME, answer;
    UNDIALLED = 0x52, SHORT, answer;
    NOT_DIALLED = 0x53, SHORT, answer;
    TO = 0x54, SHORT;
    FROM = 0x55, SHORT, answer;
    REFUSED = 0x56, SHORT, answer;
    CREDIT = 0x57, SHORT, answer;
    BYTES = 0x58, FRAME;
    END = 0x59, SHORT;
    ADMIT = 0x5a, 0, answer;
}

/// A frame that helps to connect two nodes that cannot dial each other: by dial-back, or else through a third
/// node, the *relay*.
///
/// A relayed socket is a *stream* on the connection between one of the two and the relay, and another one on
/// that between the relay and the other. The node that begins a stream numbers it, in ascending order: the
/// numbers of the node with the smaller id are even, those of the other one odd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Relay {
    /// Asks the receiving node to have another node dial the sender at these addresses.
    AskDial {
        /// The node that is to dial.
        node: NodeId,
        /// Where to dial.
        addresses: Vec<String>,
    },
    /// That node has asked to be dialled, at these addresses.
    DialBack {
        /// The node that has asked.
        node: NodeId,
        /// Where to dial.
        addresses: Vec<String>,
    },
    /// The answer to a [`DialBack`](Self::DialBack) that failed: that node could not be dialled.
    Undialled(NodeId),
    /// The answer to an [`AskDial`](Self::AskDial) that failed: that node has not dialled.
    NotDialled(NodeId, NoDial),
    /// Admits relayed sockets to this node, although its own socket to the relay is on their host.
    Admit,
    /// Begins a stream, to be relayed to that node. Its bytes may follow at once.
    To {
        /// The stream.
        stream: u64,
        /// The target.
        node: NodeId,
    },
    /// Begins a stream, relayed from that node.
    From {
        /// The stream.
        stream: u64,
        /// The dialling node.
        node: NodeId,
    },
    /// The answer to a [`To`](Self::To) that is not relayed: the stream is over.
    Refused {
        /// The stream.
        stream: u64,
        /// The reason.
        why: NoRelay,
    },
    /// [`limits::RELAY_CREDIT`](super::limits::RELAY_CREDIT) more bytes may follow on the stream.
    Credit {
        /// The stream.
        stream: u64,
    },
    /// The next bytes of the stream.
    Bytes {
        /// The stream.
        stream: u64,
        /// At least one.
        piece: Bytes,
    },
    /// The stream is over.
    End {
        /// The stream.
        stream: u64,
    },
}

impl Wire for Relay {
    const KINDS: &'static [(u8, Facts)] = kind::KINDS;

    fn write<'a>(&'a self, w: &mut Writer<'a>) {
        match self {
            Self::AskDial { node, addresses } => w.kind(kind::ASK_DIAL).id(node.0).addresses(addresses),
            Self::DialBack { node, addresses } => w.kind(kind::DIAL_BACK).id(node.0).addresses(addresses),
            Self::Undialled(node) => w.kind(kind::UNDIALLED).id(node.0),
            Self::NotDialled(node, why) => w.kind(kind::NOT_DIALLED).id(node.0).put(why),
            Self::Admit => w.kind(kind::ADMIT),
            Self::To { stream, node } => w.kind(kind::TO).number(*stream).id(node.0),
            Self::From { stream, node } => w.kind(kind::FROM).number(*stream).id(node.0),
            Self::Refused { stream, why } => w.kind(kind::REFUSED).number(*stream).put(why),
            Self::Credit { stream } => w.kind(kind::CREDIT).number(*stream),
            Self::Bytes { stream, piece } => w.kind(kind::BYTES).number(*stream).piece(piece),
            Self::End { stream } => w.kind(kind::END).number(*stream),
        };
    }

    #[inline]
    fn read(kind: u8, r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(match kind {
            kind::ASK_DIAL => Self::AskDial { node: r.node()?, addresses: r.addresses()? },
            kind::DIAL_BACK => Self::DialBack { node: r.node()?, addresses: r.addresses()? },
            kind::UNDIALLED => Self::Undialled(r.node()?),
            kind::NOT_DIALLED => Self::NotDialled(r.node()?, r.field()?),
            kind::ADMIT => Self::Admit,
            kind::TO => Self::To { stream: r.number("a stream")?, node: r.node()? },
            kind::FROM => Self::From { stream: r.number("a stream")?, node: r.node()? },
            kind::REFUSED => Self::Refused { stream: r.number("a stream")?, why: r.field()? },
            kind::CREDIT => Self::Credit { stream: r.number("a stream")? },
            kind::BYTES => Self::Bytes { stream: r.number("a stream")?, piece: r.piece()? },
            kind::END => Self::End { stream: r.number("a stream")? },
            unknown => return Err(WireError::UnknownKind(unknown)),
        })
    }
}

/// Why a node has not dialled another one as requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoDial {
    /// The intermediary has no connection to it.
    NotConnected,
    /// The node has tried, or cannot try.
    Failed,
}

byte_field!(NoDial, "the reason for not dialling", NotConnected, Failed);

/// Why a node does not relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRelay {
    /// It does not relay.
    #[error("relaying is disabled")]
    Unwilling,
    /// It already relays as many sockets as it may.
    #[error("the limit of relayed sockets is reached")]
    Full,
    /// It has no connection of its own to the other node.
    #[error("the relay has no direct connection to the other node")]
    NotConnected,
    /// It reaches the other node only on their own host, and the requesting node is on another one.
    #[error("the other node is on the relay's host and has not set `relayed = true`")]
    Local,
}

byte_field!(NoRelay, "the reason for not relaying", Unwilling, Full, NotConnected, Local);
