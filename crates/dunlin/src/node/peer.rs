//! Another node, how the connection to it is, and what it has that is declared here too.

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

/// How a connection to another node is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionState {
    /// It carries.
    Up,
    /// Its socket is gone. Channels do not notice, unless it stays away.
    Lost,
    /// It carries again; nothing was lost.
    Resumed,
    /// Follows on `Up` or `Resumed`: the two nodes cannot dial each other, and this one relays what they say,
    /// until the connection is lost or over.
    Relayed(Peer),
    /// It is over: the ends that reached over it have ended. Of a node that could never be reached only
    /// [`Down::Unrelayed`] is told; which life of it that would be is not known, so this [`Peer`] is equal to
    /// no other, and only its text says which node.
    Down(Down),
}

/// How the connection to another node is carried now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Route {
    /// By a socket between the two.
    Direct,
    /// The two cannot dial each other, and this node relays what they say. It can read it.
    Relayed(Peer),
    /// By nothing: it is lost, and may come back.
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

/// An end of this node that is joined, and whose name is somebody else's where the nodes meet: see
/// [`Node::conflicts`](crate::node::Node::conflicts).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NameConflict {
    /// The name.
    pub name: String,
    /// What is declared here.
    pub mine: String,
    /// What the name service had already.
    pub theirs: String,
    /// Who has that.
    pub holder: Peer,
}
