//! What can go wrong with a node, and with a name.

use std::time::Duration;
use std::{fmt, io};

use dunlin_proto::schema::Difference;

use super::Peer;

/// Why a node could not join, or did not leave in order.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// A setting that cannot be.
    #[error("{0}")]
    Setting(String),
    /// The node cannot listen there.
    #[error("cannot listen at {address}: {error}")]
    Listen {
        /// Where.
        address: String,
        /// Why not.
        #[source]
        error: io::Error,
    },
    /// Leaving, the others did not hear everything that was said within 5 seconds.
    #[error("left, but not everything that was said had been heard by the other nodes")]
    NotFlushed,
    /// Ends that this node had handed on were not in use elsewhere within 4 seconds. Until they are, the node that they left answers for them: so they
    /// are lost.
    #[error("left, and with it are lost: {}", .ends.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    Unsettled {
        /// Those ends.
        ends: Vec<UnsettledEnd>,
    },
}

/// An end that a node had handed on, and that was not in use elsewhere when the node left.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnsettledEnd {
    /// What it is: "sender" or "receiver". A caller is a sender here, and so is a place for a reply.
    pub what: &'static str,
    /// Who took it. `None`: the message with it has not been taken.
    pub holder: Option<Peer>,
}

impl fmt::Display for UnsettledEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.holder {
            Some(holder) => write!(f, "a {} that node {holder} has taken and not used", self.what),
            None => write!(f, "a {} in a message that nobody has taken", self.what),
        }
    }
}

/// Why an end could not be declared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The name is not one.
    #[error("{0:?} is no name: 1 to 255 printable ASCII characters without '/' are")]
    BadName(String),
    /// It does not fit what is there under this name.
    #[error("{name:?}: {mine} does not fit {theirs} of node {holder}")]
    Refused {
        /// The name.
        name: String,
        /// What was declared here.
        mine: String,
        /// What is there.
        theirs: String,
        /// Who has it.
        holder: String,
    },
    /// The messages of the two ends are not the same: one side would write what the other cannot read. What may differ says [`Encoding`](super::Encoding).
    #[error("{name:?}: the messages of node {holder} do not fit: {difference}")]
    Mismatch {
        /// The name.
        name: String,
        /// The first difference that matters.
        difference: Difference,
        /// Who has the other end.
        holder: String,
    },
    /// The end is there already, shared as this one would be. In this version one holder has it, at one node.
    #[error(
        "{name:?} has a shared {what} already, {}",
        if *.here {
            "at this node: share that end (`share()`) and give its handles away, instead of declaring it again".to_owned()
        } else {
            format!(
                "at node {holder}: in this version an end is shared within one node. Let the processes of that node send or receive for \
                 others, give each node a name of its own, or serve a bundle with an acceptor, which any number of clients may call"
            )
        }
    )]
    Shared {
        /// The name.
        name: String,
        /// What it is: "sender", "server", ...
        what: &'static str,
        /// Who has it.
        holder: String,
        /// Whether that is this node.
        here: bool,
    },
    /// The name service has no room.
    #[error("the name service has no room for {name:?}: at most {max} {what}")]
    Full {
        /// The name.
        name: String,
        /// Of what there are too many.
        what: &'static str,
        /// How many there may be.
        max: u64,
    },
    /// An end of the bundle cannot reach another node in this version.
    #[error("the bundle has a {0}, which cannot reach another node yet")]
    Unstretchable(String),
    /// The node that the name says cannot be reached.
    #[error("no node can be reached at {address}: {why}")]
    Unreachable {
        /// Where.
        address: String,
        /// Why not.
        why: String,
    },
    /// It was not admitted in the time that it was [given](super::Naming::within).
    #[error(
        "{name:?} was not admitted within {patience:?}: is a name service, or the node that was asked, within reach?"
    )]
    TimedOut {
        /// The name.
        name: String,
        /// How long it was waited for.
        patience: Duration,
    },
    /// This node has left.
    #[error("this node has left its application")]
    Left,
}
