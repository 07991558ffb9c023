//! What an embedder that gives the turns gets from a machine.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::data::{Value, ValueError};
use crate::datum::Datum;
use crate::error::Error;
use crate::proc::Operation;

/// What a process asks of something outside of its machine, which it knows by a number.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Request {
    /// A message for what has the number `to`: data, or why it is none.
    Post {
        /// Outside.
        to: u64,
        /// The message.
        message: std::result::Result<Value, ValueError>,
    },
    /// The end of `source` is to be raised in `target`. At least one of them is outside.
    Link {
        /// What ends.
        source: u64,
        /// What is told.
        target: u64,
    },
    /// The end of what has this number.
    Kill(u64),
}

/// How a turn ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// The process can go on.
    Again,
    /// The process could go on, but has used its [fuel](crate::Engine::set_fuel_rate) up to this time of the
    /// host: then, or when the host is named it, it has its next turn.
    Paused(u64),
    /// The process waits for a message, at most until this time of the host.
    Waiting(Option<u64>),
    /// The process waits for the outcome of an operation, at most until this time of the host. Before its
    /// next turn the operation is [completed](crate::Engine::complete): also if the time has come, or if the
    /// process can run for another reason; then it is withdrawn first.
    Operating(Operation, Option<u64>),
    /// The process has ended: with its value, or as an error. A value that is no data is unspecified.
    Ended(std::result::Result<Value, Box<Failure>>),
}

/// Why a process failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{error}")]
#[non_exhaustive]
pub struct Failure {
    /// The error.
    pub error: Error,
    /// The object that was raised, if it is data.
    pub object: Option<Value>,
}

impl From<Error> for Box<Failure> {
    fn from(error: Error) -> Self {
        Self::new(Failure { error, object: None })
    }
}

/// Forms that a process evaluates, one after the other.
#[derive(Default)]
pub(crate) struct Script {
    pub(crate) source_name: Arc<str>,
    pub(crate) forms: VecDeque<Datum>,
}
