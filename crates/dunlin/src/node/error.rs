//! What can go wrong with a node, and with a name.

use std::time::Duration;
use std::{fmt, io};

use dunlin_proto::wire::handshake::Refusal;
use dunlin_schema::Difference;

use super::peer::Peer;
use super::role::Member;
use crate::config::{ConfigError, Origin};

/// Why a node could not join, or did not leave in order.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// A setting is not valid.
    #[error("{0}")]
    Setting(String),
    /// The configuration is not accepted, or cannot be read.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The node cannot listen at an address.
    #[error("{error}{}", match .origin {
        Origin::Code | Origin::Default => String::new(),
        said => format!(" (listen = {address:?}, set at {said})"),
    })]
    Listen {
        /// The address, as the setting gives it.
        address: String,
        /// Where the setting comes from.
        origin: Origin,
        /// The cause.
        #[source]
        error: io::Error,
    },
    /// These nodes have not acknowledged everything that was sent to them: for [`leave`](super::Node::leave),
    /// within 5 seconds; for [`flush`](super::Node::flush), before the connection with them ended.
    #[error(
        "not everything that this node sent was acknowledged{}; unacknowledged values may be lost. Check that the \
         other nodes run and can be reached, and await `Node::flush`, which waits longer, before the node leaves",
        if .peers.is_empty() { String::new() } else { format!(" by {}", some(.peers, ", ")) }
    )]
    NotFlushed {
        /// Those nodes.
        peers: Vec<Unacknowledged>,
    },
    /// Values that could not be written when their turn came, though their sends had returned `Ok`: a place
    /// in a buffer was promised to them. Reported once, by [`flush`](super::Node::flush) or
    /// [`leave`](super::Node::leave).
    #[error(
        "{count} value{} could not be written, though the send had returned `Ok`, and {} lost: {}. The channel{} poisoned. \
         Send smaller values, raise `message_max_bytes` at the receiver's node, or use a channel without a buffer, whose \
         sends fail with the value",
        if *.count == 1 { "" } else { "s" },
        if *.count == 1 { "is" } else { "are" },
        some(.values, "; "),
        if *.count == 1 { " is" } else { "s are" }
    )]
    Unwritten {
        /// How many there are.
        count: u64,
        /// The last of them, eight at most.
        values: Vec<Unwritten>,
    },
    /// Ends that this node had handed on were not in use elsewhere within 4 seconds. The node that they left
    /// answers for them until they are in use, so they are lost.
    #[error("the node left, and these ends are lost: {}", some(.ends, ", "))]
    Unsettled {
        /// Those ends.
        ends: Vec<UnsettledEnd>,
    },
    /// This node was to be the [main](super::Role::Main) one, and the application has one already.
    #[error(
        "application {application:?} already has a main node: node {}. Join as a member (role = \"member\", in a \
         program `Role::Member`), or end the other main node; if that node has died, its role is free once the death \
         is detected: on the same host at once, otherwise at the latest after the `grace` of its connection (15 s by \
         default)",
        at(.holder, .address.as_deref())
    )]
    SecondMain {
        /// The application.
        application: String,
        /// Which node it is.
        holder: String,
        /// Where that node can be dialled, if known.
        address: Option<Box<str>>,
    },
    /// This node was to be a member, and no main node appeared within the time that it was
    /// [given](super::NodeBuilder::wait_for_main).
    #[error(
        "no main node of the application {application:?} within {waited:.1?}{}. Start the main node (role = \"main\", \
         in a program `.role(Role::Main)`) with the same application and the same `names` address, or wait longer \
         (`wait_for_main`)",
        .without_names.as_ref().map(|why| format!(", and no name service either ({why})")).unwrap_or_default()
    )]
    NoMain {
        /// The application.
        application: String,
        /// How long it waited.
        waited: Duration,
        /// Why no name service was reached. `None`: one was, and knows of no main node.
        without_names: Option<String>,
    },
    /// This node was to be the main one, and no name service confirmed in
    /// [time](super::NodeBuilder::wait_for_main) that it is the only one.
    #[error(
        "no name service of the application {application:?} within {waited:.1?}{}. Start the node that serves the \
         names, or give another address (names = \"host:port\"): on loopback, a node serves the names itself if no \
         other node does and no section has run = \"names\"",
        .without_names.as_ref().map(|why| format!(" ({why})")).unwrap_or_default()
    )]
    NoNames {
        /// The application.
        application: String,
        /// How long it waited.
        waited: Duration,
        /// Why it was not reached. `None`: it was, and has not answered.
        without_names: Option<String>,
    },
    /// The name under which the main node and its members find each other could not be declared.
    #[error("the node cannot take up its role: {0}")]
    Enrol(#[source] NameError),
    /// The main node has left, and these members had not left within the time that they were
    /// [given](super::NodeBuilder::shutdown).
    #[error(
        "the main node left before these members: {}. End them (Ctrl-C); programs of members should end when \
         `Node::closing` returns, and `NodeBuilder::shutdown` gives them more time",
        some(.members, "; ")
    )]
    Stragglers {
        /// Those members.
        members: Vec<Member>,
    },
}

/// How many a text names at most: there may be hundreds, and the error has them all.
const NAMED_MAX: usize = 8;

/// The first of these, and how many more there are.
fn some<T: fmt::Display>(all: &[T], separator: &str) -> String {
    let first = all.iter().take(NAMED_MAX).map(ToString::to_string).collect::<Vec<_>>().join(separator);
    match all.len().saturating_sub(NAMED_MAX) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// A node, and where it can be dialled.
pub(super) fn at(node: &str, address: Option<&str>) -> String {
    address.map_or_else(|| node.to_owned(), |address| format!("{node} at {address}"))
}

/// A node that has not acknowledged everything that was sent to it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unacknowledged {
    /// The node.
    pub peer: Peer,
    /// Where it can be dialled, if known.
    pub addresses: Vec<String>,
    /// How many values of sends that returned `Ok` it has not acknowledged. 0 if only other frames are
    /// missing, such as the goodbye; also for [`Node::flush`](super::Node::flush), which no longer knows the
    /// number.
    pub values: u64,
}

impl fmt::Display for Unacknowledged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.peer)?;
        if let Some(address) = self.addresses.first() {
            // The node has sent the address itself: a terminal must not take it for commands.
            write!(f, " at {}", address.escape_debug())?;
        }
        match self.values {
            0 => Ok(()),
            1 => f.write_str(" (1 value)"),
            count => write!(f, " ({count} values)"),
        }
    }
}

/// A value that could not be written after its send had returned `Ok`: see [`NodeError::Unwritten`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unwritten {
    /// The channel's name. `None`: its ends came in messages.
    pub name: Option<String>,
    /// The cause.
    pub why: String,
}

impl fmt::Display for Unwritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name:?}: {}", self.why),
            None => f.write_str(&self.why),
        }
    }
}

/// An end that a node had handed on, and that was not in use elsewhere when the node left.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnsettledEnd {
    /// What it is: "sender" or "receiver". A caller is a sender here, and so is a place for a reply.
    pub what: &'static str,
    /// The node that took it. `None`: the message with it has not been received.
    pub holder: Option<Peer>,
}

impl fmt::Display for UnsettledEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.holder {
            Some(holder) => write!(f, "a {} that node {holder} has taken and not used", self.what),
            None => write!(f, "a {} in a message that has not been received", self.what),
        }
    }
}

/// What to do if a name is [taken](NameError::Refused).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Advice {
    /// One of the two is an end of a channel, the other a face of a bundle.
    OneKind,
    /// The two ends declare different sharing.
    SameSharing,
    /// Another node has the same end of the channel.
    Share,
    /// Another node has the client's face.
    Accept,
    /// Another node has the server's face.
    OtherName,
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OneKind => {
                "One of the two is an end of a channel, the other a face of a bundle: declare both as the same kind, \
                 or choose another name"
            }
            Self::SameSharing => "Declare the same sharing at both sides (`.shared()`, `.expects()`)",
            Self::Share => {
                "To share it, declare it with `.shared()` at each of these nodes, or send a handle of it (`share()`) \
                 in a message; otherwise choose another name"
            }
            Self::Accept => {
                "For several clients, declare an acceptor instead of the server (`node.acceptor`); otherwise choose \
                 another name"
            }
            Self::OtherName => "One node serves a name: choose another name, or end that node first",
        })
    }
}

/// What to do if a name service has no room.
pub(super) const NO_ROOM_NEXT: &str = "Drop ends with names that are not in use, declare one bundle instead of \
                                       several channels, or send ends in messages instead of declaring each";

impl NameError {
    /// Whether the node that was asked exists and refuses connections now: it has as many as it may have, or
    /// is leaving. The caller may try again.
    pub fn is_busy(&self) -> bool {
        match self {
            Self::Unreachable { why, .. } | Self::TimedOut { without_names: Some(why), .. } => is_busy(why),
            _ => false,
        }
    }
}

/// Whether a dial failed for this reason.
pub(super) fn is_busy(why: &str) -> bool {
    why.contains(&Refusal::Busy.to_string())
}

/// Why an end could not be declared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The name is not valid.
    #[error("invalid name {0:?}: expected 1 to 255 printable ASCII characters, without '/'")]
    BadName(String),
    /// The name is reserved for the nodes themselves.
    #[error("the name {0:?} is reserved: names that begin with \"dunlin.\" belong to the nodes; choose another name")]
    Reserved(String),
    /// The end does not fit what has this name already.
    #[error("{name:?} is taken: node {} has {theirs}, and {mine} cannot have the same name. {next}", at(.holder, .address.as_deref()))]
    Refused {
        /// The name.
        name: String,
        /// What was declared here.
        mine: Box<str>,
        /// What has the name.
        theirs: Box<str>,
        /// The node that has the name.
        holder: String,
        /// Where that node can be dialled, if known.
        address: Option<Box<str>>,
        /// What to do.
        next: Advice,
    },
    /// The messages of the two ends do not fit: one side would write what the other cannot read.
    /// [`Encoding`](super::Encoding) lists the differences that are allowed.
    #[error(
        "{name:?}: the messages of node {} do not fit: {difference}. Use the same type at both ends, or choose another name",
        at(.holder, .address.as_deref())
    )]
    Mismatch {
        /// The name.
        name: String,
        /// The first difference that matters.
        difference: Box<Difference>,
        /// The node that has the other end.
        holder: String,
        /// Where that node can be dialled, if known.
        address: Option<Box<str>>,
    },
    /// The name has this face already, shared as the new one would be. Only one node can have it.
    #[error(
        "{name:?} already has a shared {what}, {}",
        if *.here {
            "at this node: share that end (`share()`) and give its handles away, instead of declaring it again".to_owned()
        } else {
            format!(
                "at node {}: let that node send handles of it in messages, give each node a name of its own, or serve the bundle with an \
                 acceptor, which any number of clients may call",
                at(holder, address.as_deref())
            )
        }
    )]
    Shared {
        /// The name.
        name: String,
        /// The face: "sender", "server", ...
        what: &'static str,
        /// The node that has the face.
        holder: String,
        /// Where that node can be dialled, if known.
        address: Option<Box<str>>,
        /// Whether that is this node.
        here: bool,
    },
    /// The name service has no room.
    #[error("the name service has no room for {name:?}: at most {max} {what}. {}", NO_ROOM_NEXT)]
    Full {
        /// The name.
        name: String,
        /// What there are too many of.
        what: &'static str,
        /// How many are allowed.
        max: u64,
    },
    /// An end of the bundle cannot reach another node in this version.
    #[error("the bundle has a {0}, which cannot reach another node yet")]
    Unstretchable(String),
    /// The node that the name gives cannot be reached.
    #[error("cannot reach the node at {address}: {why}")]
    Unreachable {
        /// Its address.
        address: String,
        /// The cause.
        why: String,
    },
    /// The end was not admitted within the time that it was [given](super::Naming::within).
    #[error(
        "{name:?} was not admitted within {patience:?}: {}",
        .without_names.as_ref().map_or_else(
            || before.as_deref().unwrap_or("the name service, or the node that was asked, has not answered").to_owned(),
            |why| format!(
                "no name service was reached ({why}): start the node that serves the names, or give its address \
                 (`names`)"
            ),
        )
    )]
    TimedOut {
        /// The name.
        name: String,
        /// How long it waited.
        patience: Duration,
        /// Why no name service was reached. `None`: one was, or another node was asked.
        without_names: Option<String>,
        /// What is ahead of it, if the name service is reached and waits for that.
        before: Option<Box<str>>,
    },
    /// This node has left.
    #[error("this node has left its application")]
    Left,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_error_lists_eight_items_and_counts_the_rest() {
        let ends =
            |n| NodeError::Unsettled { ends: vec![UnsettledEnd { what: "sender", holder: None }; n] }.to_string();
        let one = "a sender in a message that has not been received";
        assert_eq!(ends(1), format!("the node left, and these ends are lost: {one}"));
        assert_eq!(ends(8).matches(one).count(), 8);
        assert!(!ends(8).contains("more"), "{}", ends(8));
        assert_eq!(ends(300).matches(one).count(), 8);
        assert!(ends(300).ends_with(&format!(", {one} and 292 more")), "{}", ends(300));
        let unflushed = |peers| NodeError::NotFlushed { peers }.to_string();
        let begins = "not everything that this node sent was acknowledged; unacknowledged values may be lost.";
        assert!(unflushed(Vec::new()).starts_with(begins), "{}", unflushed(Vec::new()));
        let life =
            dunlin_proto::id::Life { node: dunlin_proto::id::NodeId(1), incarnation: dunlin_proto::id::Incarnation(1) };
        let peer = Unacknowledged { peer: Peer(life), addresses: Vec::new(), values: 1 };
        let text = unflushed(vec![peer; 500]);
        assert!(text.len() < 2000 && text.contains(" and 492 more; unacknowledged values may be lost."), "{text}");
    }
}
