//! The events that the parts of the demo report: to the display, to tests, and as JSON to scripts.

use std::fmt;

use dunlin::prelude::*;
use serde::{Deserialize, Serialize};

use super::texts::Unreadable;
use super::words::WordTable;

/// An event at a part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Said {
    /// The part that reports it: "broker", "worker 1", "customer 2", ...
    pub part: String,
    /// The event.
    #[serde(flatten)]
    pub event: Event,
}

/// The kinds of events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// A process runs (reported by the parent).
    Started {
        /// The process id.
        pid: u32,
    },
    /// A process has joined the application.
    Joined {
        /// Its node.
        node: String,
        /// The address where that listens.
        address: String,
    },
    /// The broker has received a worker's handle: the worker is idle.
    Registered {
        /// The worker of the handle.
        worker: String,
    },
    /// The broker has given it to a customer.
    Appointed {
        /// The worker of the handle.
        worker: String,
        /// The customer that receives it.
        customer: String,
    },
    /// The broker has noticed that a visitor is gone.
    Gone {
        /// The visitor.
        visitor: String,
        /// The part that reports it.
        says: String,
    },
    /// The broker leaves. It has no end on which a text could arrive.
    Closed {
        /// How many handles it has given to customers.
        appointments: u64,
    },
    /// A customer waits for a worker.
    Waits {
        /// The text that it wants counted.
        file: String,
    },
    /// A customer begins to send a text.
    Begins {
        /// Its name.
        file: String,
        /// The worker that receives it.
        worker: String,
        /// The length of the text.
        bytes: u64,
        /// The number of its pieces.
        pieces: u64,
    },
    /// The worker has received a part of the text.
    Progress {
        /// The text.
        file: String,
        /// How many pieces it has received.
        sent: u64,
    },
    /// A customer has received its table.
    Served {
        /// The text of the table.
        file: String,
        /// The worker that counted it.
        worker: String,
        /// The length of the text.
        bytes: u64,
        /// The number of its pieces.
        pieces: u64,
        /// Whether the table equals the customer's own count.
        exact: bool,
        /// The words.
        table: WordTable,
    },
    /// The connections of the customer's node while a worker serves the customer.
    Connections {
        /// All of them.
        nodes: Vec<Connection>,
    },
    /// The traffic between the broker's node and others, reported when the broker leaves.
    Carried {
        /// All nodes to which it has ever been connected.
        connections: Vec<Carriage>,
    },
    /// The worker has received its handle, which travelled back over itself.
    Returned {
        /// The worker of the handle.
        worker: String,
    },
    /// The handle could not be returned.
    NotReturned {
        /// The worker of the handle.
        worker: String,
        /// Why.
        why: String,
    },
    /// The customer's worker is lost, before the table arrived. The customer asks for another one.
    Lost {
        /// The text.
        file: String,
        /// The worker.
        worker: String,
        /// What is known of the transfer.
        #[serde(flatten)]
        outcome: Outcome,
    },
    /// A file is not a text; the customer continues with the next one.
    Unreadable {
        /// Its name.
        file: String,
        /// Why.
        #[serde(flatten)]
        why: Unreadable,
    },
    /// No worker served this text.
    NotServed {
        /// Its name.
        file: String,
        /// Why.
        why: String,
    },
    /// A worker has a customer.
    Counts {
        /// The customer whose text it counts.
        customer: String,
        /// Its name.
        file: String,
    },
    /// A worker has counted a text, and the customer has received the table.
    Counted {
        /// The customer of the text.
        customer: String,
        /// Its name.
        file: String,
        /// How many pieces have arrived.
        pieces: u64,
        /// The bytes of those pieces.
        bytes: u64,
    },
    /// A worker's handle is lost with its holder: the worker makes another one.
    HandleLost {
        /// Why.
        why: String,
    },
    /// A worker leaves, since there is no broker any more.
    Leaves {
        /// The error that it received.
        why: String,
    },
    /// The part cannot continue.
    Failed {
        /// The reason, and a remedy.
        why: String,
    },
    /// A process has written another line to its standard error (reported by the parent).
    Complains {
        /// The line.
        line: String,
    },
    /// A process has ended (reported by the parent).
    Ended {
        /// The status as the operating system describes it.
        status: String,
        /// Whether that is the expected end.
        in_order: bool,
    },
}

/// How a worker failed to serve a customer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// It is unknown whether the worker has received this piece; it has received those before it.
    Unknown {
        /// Its number, from 0.
        piece: u64,
    },
    /// The worker has not received this piece; it has received those before it.
    NotTaken {
        /// Its number, from 0.
        piece: u64,
        /// Why not.
        why: String,
    },
    /// The worker has received the whole text, and no table arrived.
    NoTable {
        /// Why not.
        why: String,
    },
}

impl Outcome {
    /// The outcome of a piece whose send failed.
    pub fn of_piece<T>(piece: u64, error: &SendError<T>) -> Self {
        match error.why() {
            None => Self::Unknown { piece },
            Some(why) => Self::NotTaken { piece, why: why.to_string() },
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { piece } => write!(f, "whether piece {piece} was received is not known"),
            Self::NotTaken { piece, why } => write!(f, "piece {piece} was not received: {why}"),
            Self::NoTable { why } => write!(f, "all pieces were received, and no table came: {why}"),
        }
    }
}

/// A connection of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// The node at its other end.
    pub node: String,
    /// A socket between the two, or the node that relays.
    pub route: String,
}

/// The traffic between two nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carriage {
    /// The other node.
    pub node: String,
    /// Bytes to it.
    pub sent: u64,
    /// Bytes from it.
    pub received: u64,
}

/// Where a part reports its events.
#[derive(Clone, Debug)]
pub struct Reporter {
    part: String,
    to: Shared<Sender<Said>>,
}

impl Reporter {
    /// A reporter for this part.
    pub fn new(part: &str, to: &Shared<Sender<Said>>) -> Self {
        Self { part: part.to_owned(), to: to.clone() }
    }

    /// The part's name.
    pub fn part(&self) -> &str {
        &self.part
    }

    /// Reports an event, if the reader still exists.
    pub async fn say(&mut self, event: Event) {
        let _ = self.to.send(Said { part: self.part.clone(), event }).await;
    }
}
