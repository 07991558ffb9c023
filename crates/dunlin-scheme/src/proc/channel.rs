//! What processes ask of channels and of the pool, and what they get.

use crate::data::{End, Value};
use crate::num::{Computation, Computed};

/// What a process asks of channels, or a long computation. It waits for the [`Outcome`].
///
/// The ends in it are those that the process may use. An end in a value of [`Branch::Send`] moves with the
/// value, and stays if the value is not sent.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Operation {
    /// A channel in which this many values may wait; `None` for a rendezvous. The value of the outcome is a
    /// list of its sender and its receiver.
    Make(Option<usize>),
    /// One of several operations: the one that is possible first.
    Choice {
        /// The operations. Without any the process waits until the operation is withdrawn.
        branches: Vec<Branch>,
        /// Of those that are possible, the one whose end was chosen least recently; otherwise the first.
        is_fair: bool,
        /// It is withdrawn if no branch is possible at once.
        skips: bool,
    },
    /// The end becomes a shared one, which is the value of the outcome.
    Share(End),
    /// The channel ends after the values that are in it.
    Retire(End),
    /// The channel ends at once, with this reason.
    Poison(End, String),
    /// An operation on long numbers: the outcome is [`Outcome::Computed`] with what [`Computation::run`]
    /// returns, on any thread. It is never withdrawn, but for the end of the process.
    Compute(Computation),
}

/// One operation of a choice.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Branch {
    /// Takes a value: the value of the outcome.
    Receive(End),
    /// Sends a value. It has been received when this is chosen, unless values may wait in the channel.
    Send(End, Value),
    /// Claims a shared end: the value of the outcome is an end that this process alone holds.
    Claim(End),
}

/// What became of an [`Operation`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Outcome {
    /// It is done, by the branch with this number, or the only one: its value.
    Done(usize, Value),
    /// The branch with this number was to receive from a channel that has ended in order.
    Ended(usize),
    /// What was to be computed.
    Computed(Computed),
    /// It failed.
    Failed(Refusal),
    /// It was withdrawn, and nothing has happened.
    Withdrawn,
}

/// Why an operation failed: becomes an error object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The kind of the error object.
    pub kind: &'static str,
    /// Its message.
    pub message: String,
    /// A text that the error is about: the reason of a poison.
    pub detail: Option<String>,
}

/// Carries out operations on channels, for a [`Scheme`](crate::Scheme), which gives its processes their turns
/// by itself. The crate `dunlin-scheme-host` has one for channels of dunlin.
pub trait Channels {
    /// Begins an operation. A process has one at a time.
    fn start(&mut self, process: u64, operation: Operation);

    /// The outcome of an operation that has ended meanwhile, and its process.
    fn finished(&mut self) -> Option<(u64, Outcome)>;

    /// Ends an operation, if it is under way: as [`Outcome::Withdrawn`], unless it was done before.
    fn withdraw(&mut self, process: u64) -> Option<Outcome>;
}
