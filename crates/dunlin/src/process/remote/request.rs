//! What the two nodes of a start say to each other.

use bytes::Bytes;
use dunlin_core::{Call, Portable, Sender};
use serde::{Deserialize, Serialize};

use super::super::mailbox::Address;
use super::super::pid::Pid;
use super::function::RemoteFunction;

/// What a node asks before it sends arguments: whether it may start the function of this name, a `String`.
/// The answer is an [`Admission`]. Both are [bytes](crate::node::words).
pub(super) type Asks = Call<Bytes, Bytes>;

/// Whether a function may be started.
pub(super) type Admission = Result<(), Refusal>;

/// How many processes of an offer run, for all nodes. An error: why the asking node could not start another
/// one. The request has no bytes; the answer is [bytes](crate::node::words), as that of [`Asks`].
pub(super) type Load = Result<u64, Refusal>;

/// What starts a function.
pub(super) type Starts<F> = Call<StartOf<F>, Answer<StartOf<F>>>;

/// A request to start this function.
pub(super) type StartOf<F> = Start<<F as RemoteFunction>::Arguments, <F as RemoteFunction>::Output>;

/// A request to start a function with these arguments.
#[derive(Serialize, Deserialize)]
#[serde(bound = "A: Portable, R: Portable")]
pub(super) struct Start<A, R> {
    pub(super) arguments: A,
    pub(super) output: Sender<R>,
}

/// The answer to a request `S`.
#[derive(Serialize, Deserialize)]
#[serde(bound = "S: Portable")]
pub(super) enum Answer<S> {
    /// The process waits for a message at the address before it begins.
    Started(Pid, Address<()>),
    /// Nothing was started.
    Refused(Refusal, S),
}

/// Why the offering node starts nothing.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Refusal {
    NotOffered,
    NotAllowed,
    /// So many may run.
    Full(u64),
}

/// The name under which the load of an offer is read. No path of a function is without colons.
pub(super) fn load_name(offer: &str) -> String {
    function_name(offer, "load")
}

/// The name under which a function of an offer is declared.
pub(super) fn function_name(offer: &str, function: &str) -> String {
    format!("{offer}:{function}")
}
