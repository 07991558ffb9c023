//! What happens to a node, as a channel of [`NodeEvent`]s. `log.rs` writes the events for people.
//!
//! Events are reported under the node's lock, in their order.

use std::fmt;
use std::time::Duration;

use super::error::{NO_ROOM_NEXT, NameError};
use super::peer::{ConnectionState, NameConflict, Peer};

/// Something that has happened to a node: see [`Node::events`](super::Node::events).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeEvent {
    /// Another node has joined. With a [role](super::roles): it is the main node, or was admitted by it.
    /// Without: this node has a connection with it.
    Joined {
        /// The node.
        peer: Peer,
        /// Its [own name](super::NodeBuilder::named). Without a role: its [`Peer`] as text.
        name: String,
    },
    /// Another node has left, or is lost.
    Left {
        /// The node.
        peer: Peer,
        /// Its own name.
        name: String,
        /// It announced that it leaves, rather than being lost.
        in_order: bool,
    },
    /// The state of the connection with a node has changed.
    Connection(Peer, ConnectionState),
    /// An end of this node was refused: when it was declared, or later, when its name service met another
    /// one.
    Refused {
        /// The name of the end.
        name: String,
        /// The reason, and what has the name instead.
        why: NameError,
    },
    /// The messages of two ends of a name, or of an end in a message, do not fit each other. Of a name the
    /// end that was declared first stands, and its node gets this event, once for each node; the other end is
    /// refused.
    Mismatch {
        /// The name. `None`: of an end that came in a message.
        name: Option<String>,
        /// What differs.
        difference: String,
    },
    /// This node refused a dial. The dialler was not a node, speaks no common protocol version, has not
    /// proved its identity, belongs to another application, or this node's program does not
    /// [admit](super::NodeBuilder::authorize) it. A node of another application dials here while it looks for
    /// its own name service; it is reported once.
    Stranger {
        /// The other side, as its socket describes it.
        from: String,
        /// The reason.
        why: String,
    },
    /// The listener at this address turned this node away. Reported anew when the reason changes.
    Unwelcome {
        /// The address that was dialled.
        at: String,
        /// The reason.
        why: String,
    },
    /// A message that another node sent to a mailbox of this one could not be decoded, and was dropped by its
    /// receiver.
    Unreadable {
        /// The node that sent it.
        peer: Peer,
        /// The reason.
        why: String,
    },
    /// A limit was reached.
    Limit(Limit),
    /// An end of this node is joined, and another node has an end of the same name.
    Conflict(NameConflict),
    /// The main node leaves, or this one does: programs should come to an end. See
    /// [`Node::closing`](super::Node::closing).
    Closing {
        /// How long the main node waits for this one.
        within: Duration,
    },
    /// To a member: the main node is lost. This node waits for the next one, which announces the other nodes.
    MainLost {
        /// The main node.
        peer: Peer,
        /// Its own name.
        name: String,
    },
}

/// A limit that was reached.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// A message of this node is larger than the receiver's node accepts
    /// ([`NodeBuilder::message_max_bytes`](super::NodeBuilder::message_max_bytes)): it was not sent.
    Message {
        /// The channel's name. `None`: its ends came in messages.
        name: Option<String>,
        /// How large it is.
        bytes: u64,
        /// How large it may be.
        bytes_max: u64,
    },
    /// The name service has no room for an end of this node.
    Names {
        /// The name of the end.
        name: String,
        /// What there are too many of.
        what: &'static str,
        /// How many are allowed.
        max: u64,
    },
    /// More clients arrived at an acceptor of this node than it keeps until they are received, in all or from
    /// one source: this client was turned away.
    Guests {
        /// The acceptor's name.
        name: String,
        /// The client's node.
        peer: Peer,
        /// How many are kept.
        max: usize,
    },
    /// An acceptor of this node had no room for a client's ends in what the node keeps for others
    /// ([`NodeBuilder::held_max_bytes`](super::NodeBuilder::held_max_bytes)), in all or from one source: this
    /// client was turned away.
    Memory {
        /// The acceptor's name.
        name: String,
        /// The client's node.
        peer: Peer,
        /// How many bytes are kept.
        max: u64,
    },
    /// This node serves names, and had no room for a registration of another node, which has been notified.
    Registrations {
        /// The node that tried to register.
        peer: Peer,
        /// What there are too many of.
        what: &'static str,
        /// How many are allowed.
        max: u64,
    },
    /// Another node, which cannot dial a third one, asked this one to relay, and was refused: this node
    /// already relays as many sockets as it may, in all or for one source.
    Relays {
        /// The node that asked.
        peer: Peer,
    },
    /// This node has as many pages of its names in transit to inquirers as it may. This inquirer's page was
    /// not received yet, and gave way to one of a source with fewer.
    Lists {
        /// The inquirer's node.
        peer: Peer,
        /// How many pages may be in transit.
        max: usize,
    },
    /// Another node tried to attach to a channel of this one, and was refused: this node has no room for more
    /// of its ends.
    Halves {
        /// The other node.
        peer: Peer,
        /// The channel's name. `None`: its ends came in messages.
        name: Option<String>,
    },
    /// Another node asked this one to dial back, and was refused: this node already dials as many on behalf
    /// of others as it may.
    DialBacks {
        /// The node that asked.
        peer: Peer,
    },
    /// A node of another host asked this one for a route to a node of this host that has not set
    /// [`relayed`](super::NodeBuilder::relayed), and was refused.
    Admittance {
        /// The node that asked.
        peer: Peer,
        /// The node to be reached.
        to: Peer,
    },
    /// Another node sent a message to a mailbox of this one without the random bits of its address: the
    /// message was dropped.
    Post {
        /// The node that sent it.
        peer: Peer,
    },
    /// Another node sent a signal to a process of this one without the random bits of its pid: the signal was
    /// dropped.
    Signal {
        /// The node that sent it.
        peer: Peer,
    },
    /// Another node asked for a link to a process of this one, which was not made: the exits of as many links
    /// as its host or user may ask for have not been received yet.
    Links {
        /// The node that asked.
        peer: Peer,
    },
    /// Another node sent a message to a [bounded](crate::Bound) mailbox of this one that was full: a message
    /// was dropped, as the bound says.
    Mailbox {
        /// The node that sent it.
        peer: Peer,
    },
    /// This process, or this host, has as many files open as it may: new sockets to this node wait, or are
    /// lost. Reported anew if some could be accepted meanwhile.
    Files {
        /// The address they arrive at.
        at: String,
        /// The system's error, and which limit it is.
        why: String,
    },
    /// Another node broke the protocol, or exceeded one of its limits, and the connection was ended.
    Peer {
        /// The other node.
        peer: Peer,
        /// What it did.
        why: String,
    },
    /// A socket was refused as busy, since too many were waiting for their handshake.
    Handshakes {
        /// The other side, as the socket describes it.
        from: String,
    },
    /// A socket was refused as busy: this node has as many connections as it may have, in all or from one
    /// source, or is replaced by a later one with its id.
    Connections {
        /// The other side, as the socket describes it.
        from: String,
    },
}

/// How often a node has refused others since it joined: see [`Node::refusals`](super::Node::refusals).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refusals {
    /// Sockets, since too many were waiting for their handshake ([`Limit::Handshakes`]).
    pub handshakes: u64,
    /// Sockets, since there were too many connections ([`Limit::Connections`]).
    pub connections: u64,
    /// Sockets whose dialler is not a node of this application, or was not admitted
    /// ([`NodeEvent::Stranger`]).
    pub strangers: u64,
    /// Connections, since the other node broke the protocol ([`Limit::Peer`]).
    pub peers: u64,
    /// Clients of acceptors that already had as many as they keep ([`Limit::Guests`]), or at a node without
    /// room for their ends ([`Limit::Memory`]).
    pub guests: u64,
    /// Names and other registrations ([`Limit::Registrations`]).
    pub registrations: u64,
    /// Sockets to be relayed ([`Limit::Relays`]).
    pub relays: u64,
    /// Lists of names that gave way to others ([`Limit::Lists`]).
    pub lists: u64,
    /// Ends that tried to attach to channels ([`Limit::Halves`]).
    pub halves: u64,
    /// Dial-backs ([`Limit::DialBacks`]).
    pub dial_backs: u64,
    /// Routes to nodes of this host that have not set `relayed` ([`Limit::Admittance`]).
    pub admittances: u64,
    /// Messages for mailboxes: without the random bits of an address ([`Limit::Post`]), or for a full mailbox
    /// ([`Limit::Mailbox`]). Signals without the random bits of a pid ([`Limit::Signal`]), and links beyond
    /// the limit ([`Limit::Links`]).
    pub posts: u64,
    /// Periods in which the limit of open files kept this node from accepting ([`Limit::Files`]): a period
    /// ends with the next socket that is accepted, however many attempts lie between.
    pub files: u64,
}

impl Refusals {
    /// Counts the event, if it is a refusal.
    pub(super) fn count(&mut self, event: &NodeEvent) {
        let count = match event {
            NodeEvent::Limit(Limit::Handshakes { .. }) => &mut self.handshakes,
            NodeEvent::Limit(Limit::Connections { .. }) => &mut self.connections,
            NodeEvent::Limit(Limit::Peer { .. }) => &mut self.peers,
            NodeEvent::Limit(Limit::Guests { .. } | Limit::Memory { .. }) => &mut self.guests,
            NodeEvent::Limit(Limit::Registrations { .. }) => &mut self.registrations,
            NodeEvent::Limit(Limit::Relays { .. }) => &mut self.relays,
            NodeEvent::Limit(Limit::Lists { .. }) => &mut self.lists,
            NodeEvent::Limit(Limit::Halves { .. }) => &mut self.halves,
            NodeEvent::Limit(Limit::DialBacks { .. }) => &mut self.dial_backs,
            NodeEvent::Limit(Limit::Admittance { .. }) => &mut self.admittances,
            NodeEvent::Limit(
                Limit::Post { .. } | Limit::Signal { .. } | Limit::Links { .. } | Limit::Mailbox { .. },
            ) => &mut self.posts,
            NodeEvent::Limit(Limit::Files { .. }) => &mut self.files,
            NodeEvent::Stranger { .. } => &mut self.strangers,
            _ => return,
        };
        *count += 1;
    }
}

impl fmt::Display for NodeEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Joined { name, .. } => write!(f, "{name} has joined"),
            Self::Left { name, in_order: true, .. } => write!(f, "{name} has left"),
            Self::Left { name, in_order: false, .. } => write!(f, "{name} is lost"),
            Self::Connection(peer, state) => match state {
                ConnectionState::Up => write!(f, "connected with {peer}"),
                ConnectionState::Lost => write!(f, "the connection with {peer} is lost and may resume"),
                ConnectionState::Resumed => write!(f, "the connection with {peer} resumed; nothing was lost"),
                ConnectionState::Relayed(relay) => write!(f, "the connection with {peer} is relayed by {relay}"),
                ConnectionState::Down(why) => write!(f, "the connection with {peer} ended: {why}"),
            },
            Self::Refused { why, .. } => write!(f, "an end was refused: {why}"),
            Self::Mismatch { name: Some(name), difference } => {
                write!(f, "{name:?}: the two ends do not agree: {difference}")
            }
            Self::Mismatch { name: None, difference } => {
                write!(f, "the two ends of a channel do not agree: {difference}")
            }
            Self::Stranger { from, why } => write!(f, "refused a connection from {from}: {why}"),
            Self::Unwelcome { at, why } => write!(f, "no connection with the listener at {at}: {why}"),
            Self::Unreadable { peer, why } => {
                write!(f, "dropped a message of {peer} for a mailbox, which cannot be read: {why}")
            }
            Self::Limit(limit) => limit.fmt(f),
            Self::Conflict(conflict) => write!(
                f,
                "{:?}: {} is joined at this node, and node {} has {} of the same name",
                conflict.name, conflict.mine, conflict.holder, conflict.theirs
            ),
            Self::Closing { within } => write!(f, "the application is closing within {within:?}"),
            Self::MainLost { name, .. } => write!(f, "the main node {name} is lost; waiting for the next one"),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message { name, bytes, bytes_max } => {
                let name = name.as_ref().map(|name| format!(" for {name:?}")).unwrap_or_default();
                write!(
                    f,
                    "a message of {bytes} bytes{name} was not sent: the receiver's node takes at most {bytes_max}"
                )
            }
            Self::Names { name, what, max } => {
                write!(f, "the name service has no room for {name:?}: at most {max} {what}. {NO_ROOM_NEXT}")
            }
            Self::Guests { name, peer, max } => {
                write!(
                    f,
                    "the acceptor {name:?} refused the client {peer}: too many clients wait to be received (at most \
                     {max}). Receive clients sooner, or accept them under several names"
                )
            }
            Self::Memory { name, peer, max } => {
                write!(
                    f,
                    "the acceptor {name:?} refused the client {peer}: no room for its ends in the {max} bytes that \
                     this node keeps for others; raise `held_max_bytes`"
                )
            }
            Self::Registrations { peer, what, max } => {
                write!(f, "the name service refused a registration of {peer}: at most {max} {what}")
            }
            Self::Relays { peer } => {
                write!(f, "refused to relay a socket for {peer}: the limit of relayed sockets is reached")
            }
            Self::Lists { peer, max } => {
                write!(f, "dropped a page of names for {peer}: too many pages are in transit (at most {max})")
            }
            Self::Halves { peer, name } => {
                let name = name.as_ref().map(|name| format!(" {name:?}")).unwrap_or_default();
                write!(
                    f,
                    "refused to attach an end of {peer} to the channel{name}: no room for more of its ends. If the \
                     peer is trusted, raise `held_max_bytes`"
                )
            }
            Self::DialBacks { peer } => {
                write!(f, "refused a dial-back to {peer}: the limit of dial-backs is reached. The peer will ask again")
            }
            Self::Admittance { peer, to } => write!(
                f,
                "refused {peer}, on another host, a route to {to} on this host. To make {to} reachable from other \
                 hosts, set `relayed = true` at that node"
            ),
            Self::Post { peer } => {
                write!(f, "dropped a message of {peer} for a mailbox: it did not have the random bits of the address")
            }
            Self::Signal { peer } => {
                write!(f, "dropped a signal of {peer} for a process: it did not have the random bits of the pid")
            }
            Self::Links { peer } => write!(
                f,
                "made no link that {peer} asked for: too many of its host's links have exits that no process has \
                 received. Receive exits sooner"
            ),
            Self::Mailbox { peer } => write!(
                f,
                "a message for a mailbox was dropped, since {peer} sent one while the mailbox was full. Receive sooner, \
                 or give it a larger bound"
            ),
            Self::Files { at, why } => write!(f, "cannot accept sockets at {at}: {why}"),
            Self::Peer { peer, why } => {
                write!(f, "the connection with {peer} was closed after a protocol violation: {why}")
            }
            Self::Handshakes { from } => {
                write!(f, "refused a socket from {from} as busy: too many sockets are waiting for their handshake")
            }
            Self::Connections { from } => {
                write!(
                    f,
                    "refused a socket from {from} as busy: the limit of connections is reached, in all or from that \
                     source. If the source is a router or a load balancer, add its address to `trusted_sources`"
                )
            }
        }
    }
}

/// A receiver of events. `false`: it takes no more.
pub(crate) type Watcher = Box<dyn FnMut(&NodeEvent) -> bool + Send>;
