//! What the parts of the demo tell of themselves: to the display, to tests, and as JSON to scripts.

use std::fmt;

use dunlin::prelude::*;
use serde::{Deserialize, Serialize};

use super::texts::Unreadable;
use super::words::WordTable;

/// Something has happened, at this part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Said {
    /// The part to which it has happened: "broker", "worker 1", "customer 2", ...
    pub part: String,
    /// What.
    #[serde(flatten)]
    pub event: Event,
}

/// What can happen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// A process runs (the parent tells).
    Started {
        /// The number that the operating system gives it.
        pid: u32,
    },
    /// A process has joined the application.
    Joined {
        /// Its node.
        node: String,
        /// Where that listens.
        address: String,
    },
    /// The broker has a worker's handle: the worker has time.
    Registered {
        /// The worker of the handle.
        worker: String,
    },
    /// The broker has handed it on.
    Appointed {
        /// The worker of the handle.
        worker: String,
        /// The customer that gets it.
        customer: String,
    },
    /// The broker has learned that a visitor is gone.
    Gone {
        /// The visitor.
        visitor: String,
        /// The part that reports it.
        says: String,
    },
    /// The broker goes. It has no end on which a text could come.
    Closed {
        /// How many handles it has handed on.
        appointments: u64,
    },
    /// A customer waits for a worker.
    Waits {
        /// With this text.
        file: String,
    },
    /// A customer begins to send a text.
    Begins {
        /// Its name.
        file: String,
        /// The worker that receives it.
        worker: String,
        /// How long it is.
        bytes: u64,
        /// In so many pieces.
        pieces: u64,
    },
    /// The worker has received so much of it.
    Progress {
        /// The text.
        file: String,
        /// So many pieces.
        sent: u64,
    },
    /// A customer has its table.
    Served {
        /// Of this text.
        file: String,
        /// The worker that counted it.
        worker: String,
        /// How long it was.
        bytes: u64,
        /// In so many pieces.
        pieces: u64,
        /// Whether the table is what the customer itself has counted.
        exact: bool,
        /// The words.
        table: WordTable,
    },
    /// What the customer's node is connected with, while it is served.
    Connections {
        /// All of them.
        nodes: Vec<Connection>,
    },
    /// What the broker's node and others have carried between them, when the broker goes.
    Carried {
        /// All that it has ever been connected with.
        connections: Vec<Carriage>,
    },
    /// The handle is the worker's again: it has gone back over itself.
    Returned {
        /// The worker of the handle.
        worker: String,
    },
    /// The handle has not gone back.
    NotReturned {
        /// The worker of the handle.
        worker: String,
        /// Why.
        why: String,
    },
    /// The customer's worker is lost, before the table came. It asks for another one.
    Lost {
        /// The text.
        file: String,
        /// The worker.
        worker: String,
        /// What became of it.
        #[serde(flatten)]
        outcome: Outcome,
    },
    /// A file is no text: the next one.
    Unreadable {
        /// Its name.
        file: String,
        /// Why.
        #[serde(flatten)]
        why: Unreadable,
    },
    /// No worker for this text.
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
    /// A worker has counted a text, and the customer has the table.
    Counted {
        /// The customer of the text.
        customer: String,
        /// Its name.
        file: String,
        /// So many pieces have come.
        pieces: u64,
        /// How much that was.
        bytes: u64,
    },
    /// A worker's handle is lost with its holder: the worker makes another one.
    HandleLost {
        /// Why.
        why: String,
    },
    /// A worker goes, since there is no broker any more.
    Leaves {
        /// What it has heard.
        why: String,
    },
    /// It cannot go on.
    Failed {
        /// Why, and what to do.
        why: String,
    },
    /// A process has written something else, to its standard error (the parent tells).
    Complains {
        /// What.
        line: String,
    },
    /// A process has ended (the parent tells).
    Ended {
        /// As the operating system says it.
        status: String,
        /// Whether it is as it should be.
        in_order: bool,
    },
}

/// How a customer was not served by a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// It is unknown whether the worker has received this piece; it has received those before it.
    Unknown {
        /// Its number, from 0.
        piece: u64,
    },
    /// The worker has not received this piece; those before it, it has.
    NotTaken {
        /// Its number, from 0.
        piece: u64,
        /// Why not.
        why: String,
    },
    /// It has received all, and no table came.
    NoTable {
        /// Why not.
        why: String,
    },
}

impl Outcome {
    /// What became of a piece.
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
    /// By a socket between the two, or the node that relays.
    pub route: String,
}

/// What two nodes have carried between them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carriage {
    /// The other one.
    pub node: String,
    /// Bytes to it.
    pub sent: u64,
    /// Bytes from it.
    pub received: u64,
}

/// Where a part tells what happens to it.
#[derive(Clone, Debug)]
pub struct Reporter {
    part: String,
    to: Shared<Sender<Said>>,
}

impl Reporter {
    /// Of this part.
    pub fn new(part: &str, to: &Shared<Sender<Said>>) -> Self {
        Self { part: part.to_owned(), to: to.clone() }
    }

    /// The part's name.
    pub fn part(&self) -> &str {
        &self.part
    }

    /// Prints it, if the reader is still there.
    pub async fn say(&mut self, event: Event) {
        let _ = self.to.send(Said { part: self.part.clone(), event }).await;
    }
}
