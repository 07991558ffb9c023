//! Identifiers of nodes, channels and sockets.

use std::fmt;

/// A node of an application. Random, or set by its configuration; one that is set stays the same after a
/// restart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u128);

/// The incarnation of a node: a restarted node has a greater one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

/// One life of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Life {
    /// The node.
    pub node: NodeId,
    /// Its incarnation.
    pub incarnation: Incarnation,
}

/// A node, in one life of the connection with it.
///
/// When that life ends, each side discards its state for the other. A program may still handle events of a
/// life after it has ended and the next connection is up. Events therefore carry the sender as a `Contact`,
/// and the program passes it back when it reports which node gave or took an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contact {
    /// The node.
    pub node: NodeId,
    /// The life of the connection. This node never uses a number twice; zero means none.
    pub(crate) lives: u64,
}

/// A connection: 128 random bits, drawn by the node that was dialled first. Zero: none.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u128);

impl ConnectionId {
    /// The dialler has no connection with the node that it dials.
    pub const NONE: Self = Self(0);

    /// Whether this is the id of a connection, not [`NONE`](Self::NONE).
    pub fn is_some(self) -> bool {
        self != Self::NONE
    }
}

/// A channel: 128 random bits, chosen by the driver of the machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(pub u128);

/// A mailbox of a node. Only a node that has been given the random bits can send to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MailboxId {
    /// Its number. A node uses each once, in one incarnation.
    pub number: u64,
    /// 64 random bits.
    pub bits: u64,
}

/// A process of a node, as other nodes know it. Only a node that has been given the random bits can send a
/// signal to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId {
    /// Its node.
    pub life: Life,
    /// Its number. A node uses each once, in one incarnation.
    pub number: u64,
    /// Where its node finds it.
    pub place: u32,
    /// 64 random bits.
    pub bits: u64,
}

/// The number of an offer on a channel. The sending half chooses it; a node uses a number only once on a
/// channel.
pub type Ticket = u64;

/// The number of an attempt to reserve an offer.
pub type Request = u64;

/// A choice with sends: totally ordered over all nodes, the same at every poll (section 2 of
/// `docs/choice.md`).
pub type ChoiceId = u128;

/// A socket, or any other carrier of bytes in order. The driver numbers it, from 0 to 2^63 - 1, and never
/// reuses a number. (The machine gives higher numbers to relayed sockets, which the driver does not see.)
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
