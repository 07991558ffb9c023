//! What a node is in its application, and a member as its main node knows it.

use std::fmt;
use std::time::Duration;

use super::peer::Peer;

/// What a node is in its application: see the [module](super::roles).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The one that the others belong to.
    Main,
    /// One that belongs to the main node.
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
    /// Who.
    pub peer: Peer,
    /// How it [calls itself](super::NodeBuilder::named). Two may have the same name: one of them after the
    /// other, or both.
    pub name: String,
    /// The host it runs on, as far as that is known.
    pub host: String,
    /// The number of its process there.
    pub process: u32,
    /// For how long it has been a member.
    pub since: Duration,
    /// Whether it has said that it leaves.
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
