//! What a node and its connections know of mailboxes, and what their driver learns of them.

use bytes::Bytes;
use dunlin_sorted::{SortedMap, SortedSet};

use super::queue::Arriving;
use super::room::{Granted, Room};
use crate::id::{Contact, NodeId};
use crate::wire::Declaration;

/// Why a message was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotPosted {
    /// The mailbox, or the connection, has no room for it now. [`PostHears::Room`] reports when there may be
    /// some.
    #[error("the mailbox has no room for the message")]
    Full,
    /// It is longer than any message may be.
    #[error("the message is {bytes} bytes, and the limit is {bytes_max}")]
    TooLarge {
        /// Its length, in bytes.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// This node is leaving or replaced, or is the node of the mailbox: its own messages do not need the
    /// machine.
    #[error("this node sends no messages there")]
    NotHere,
}

/// What a driver learns of mailboxes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PostHears {
    /// A message for the mailbox with this number, from that node. Report with
    /// [`Machine::post_received`](crate::Machine::post_received) once it has been received, or dropped.
    Message(Contact, u64, Bytes),
    /// A message to that mailbox of that node did not fit, and another one may now.
    Room(NodeId, u64),
    /// That node has no such mailbox (any more).
    Closed(NodeId, u64),
    /// That mailbox of that node cannot read messages of this node's schema: those that have been sent are
    /// dropped. It reads messages of this one.
    Mismatch(NodeId, u64, Bytes),
}

/// A mailbox of this node that others may send to.
#[derive(Clone, Debug)]
pub(super) struct Mailbox {
    pub(super) bits: u64,
    /// The schema of its messages, as the declaration of a receiver.
    pub(super) declared: Declaration,
    pub(super) posts_max: u32,
    /// The nodes that have sent to it, in the present lives of their connections.
    pub(super) from: SortedMap<NodeId, Granted>,
}

/// The mailboxes of this node that others may send to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mailboxes(pub(super) SortedMap<u64, Mailbox>);

/// What one connection has to do with mailboxes, in its present life.
#[derive(Clone, Debug, Default)]
pub(crate) struct Posts {
    /// Mailboxes of the other node to which this one has sent.
    pub(super) there: SortedMap<u64, Room>,
    /// Those of them to which a message did not fit.
    pub(super) waiting: SortedSet<u64>,
    /// At least one of them waits until less is queued.
    pub(super) is_long: bool,
    /// Mailboxes of this node to which the other one has sent.
    pub(super) here: SortedSet<u64>,
    /// The message that is arriving in pieces.
    pub(super) arriving: Option<Arriving>,
}

impl Posts {
    /// Whether a message is arriving, so that nothing else may come before its end.
    pub(crate) fn is_within_message(&self) -> bool {
        self.arriving.is_some()
    }
}
