//! Other nodes, the connections to them, and names that are joined elsewhere too.

use std::fmt;

use dunlin_proto::Down;
use dunlin_proto::id::Life;

/// A node of the application: one life of it, so a restarted node is another peer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Peer(pub(super) Life);

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.node.fmt(f)
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Peer({})", self.0)
    }
}

/// The state of a connection to another node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionState {
    /// It carries channels.
    Up,
    /// Its socket is lost. Channels notice nothing, unless it is not replaced.
    Lost,
    /// It carries channels again; nothing was lost.
    Resumed,
    /// Follows `Up` or `Resumed`: the two nodes cannot dial each other, and this node relays their traffic,
    /// until the connection is lost or ends.
    Relayed(Peer),
    /// It has ended, and so have the ends that reached over it. A node that could never be reached only
    /// yields [`Down::Unrelayed`]. Its life is unknown then, so this [`Peer`] is equal to no other, and only
    /// its text names the node.
    Down(Down),
}

/// What carries the connection to another node now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Route {
    /// A socket between the two.
    Direct,
    /// The two cannot dial each other, and this node relays their traffic. It can read it.
    Relayed(Peer),
    /// Nothing: the connection is lost, and may resume.
    Lost,
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Direct => f.write_str("direct"),
            Self::Relayed(relay) => write!(f, "relayed by {relay}"),
            Self::Lost => f.write_str("lost"),
        }
    }
}

/// An end of this node that is joined, and whose name turned out to be another node's when two name services
/// met: see [`Node::conflicts`](crate::node::Node::conflicts).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NameConflict {
    /// The name.
    pub name: String,
    /// What is declared here.
    pub mine: String,
    /// What the name service had registered already.
    pub theirs: String,
    /// The node that has that end.
    pub holder: Peer,
}
