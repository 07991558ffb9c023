//! The role of a node in its application, and a member as its main node knows it.

use std::fmt;
use std::time::Duration;

use super::peer::Peer;

/// The role of a node in its application: see the [module](super::roles).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The node that the members belong to.
    Main,
    /// A node that belongs to the main node.
    Member,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Main => "main",
            Self::Member => "member",
        })
    }
}

/// A member, as its main node knows it: see [`Node::members`](super::Node::members).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Member {
    /// The member's node.
    pub peer: Peer,
    /// Its [own name](super::NodeBuilder::named). Two members may have the same name, one after the other or
    /// at the same time.
    pub name: String,
    /// The host it runs on, if known.
    pub host: String,
    /// Its process id there.
    pub process: u32,
    /// How long it has been a member.
    pub since: Duration,
    /// Whether it has announced that it leaves.
    pub leaves: bool,
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { peer, name, host, process, since, leaves } = self;
        let at = if host.is_empty() { String::new() } else { format!(" on {host}") };
        let state = if *leaves { "is leaving" } else { "has not left" };
        write!(f, "{name} (node {peer}, process {process}{at}, a member for {since:.1?}) {state}")
    }
}
