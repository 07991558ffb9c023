//! Who is who: nodes, channels, sockets.

use std::fmt;

/// A node of an application. Random, or given by its configuration; the same after a restart if it was given.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u128);

/// Which life of a node: a restarted node has a greater one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

/// One life of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Life {
    /// Whose.
    pub node: NodeId,
    /// Which.
    pub incarnation: Incarnation,
}

/// A node, in one life of the connection with it.
///
/// With that life each side forgets what it had with the other one. A program may hear of what was said in it
/// when it is over, and the next one is up: so it is told who has said it, as this, and hands it back when it
/// says of an end who gave it, or who took it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contact {
    /// Which node.
    pub node: NodeId,
    /// Which life of the connection: no two of this node's have the same number. Zero: none.
    pub(crate) lives: u64,
}

/// A connection: 128 random bits, drawn by the node that was dialled first. Zero: none.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u128);

impl ConnectionId {
    /// The dialler knows of no connection with the node that it dials.
    pub const NONE: Self = Self(0);

    /// Whether it is one.
    pub fn is_some(self) -> bool {
        self != Self::NONE
    }
}

/// A channel: 128 random bits, handed in by whoever drives the machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(pub u128);

/// What is being sent on a channel: a number of the sending half's choosing, not used twice on a channel by
/// one node.
pub type Ticket = u64;

/// Which attempt to reserve an offer.
pub type Request = u64;

/// A choice with sends: totally ordered over all nodes, the same at every poll (section 2 of
/// `docs/choice.md`).
pub type ChoiceId = u128;

/// A socket, or whatever else carries bytes in order. Numbered by the driver, never twice, from 0 to
/// 2^63 - 1. (The machine gives higher numbers to sockets that are relayed, of which the driver does not
/// hear.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketId(pub u64);

/// An attempt to make a socket, numbered by the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DialId(pub u64);

/// The first 8 hex digits are enough to tell nodes apart in a log.
fn short(id: u128, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "{:08x}", (id >> 96) as u32)
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        short(self.0, f)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeId({self})")
    }
}

impl fmt::Display for ChannelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        short(self.0, f)
    }
}

impl fmt::Debug for ChannelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChannelId({self})")
    }
}

impl fmt::Debug for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConnectionId(")?;
        short(self.0, f)?;
        f.write_str(")")
    }
}

impl fmt::Display for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.node, self.incarnation.0)
    }
}
