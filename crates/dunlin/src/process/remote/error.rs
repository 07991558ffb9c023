//! Why nothing was started.

use std::fmt;

use dunlin_core::{RecvError, Why};

use super::function::{RemoteCall, RemoteFunction};
use super::request::Refusal;
use crate::node::NameError;

impl From<Refusal> for StartFailure {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NotOffered => Self::NotOffered,
            Refusal::NotAllowed => Self::NotAllowed,
            Refusal::Full(max) => Self::Full { max },
        }
    }
}

/// Why a function was certainly not started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartFailure {
    /// The offer does not include the function.
    #[error("the offer does not include the function")]
    NotOffered,
    /// The offering node does not let this node start it.
    #[error("the offering node does not allow this node to start it")]
    NotAllowed,
    /// As many processes as the offer allows run already, or as many as this node may have of them.
    #[error("the offering node has no room for another process: at most {max} run")]
    Full {
        /// How many may run in all.
        max: u64,
    },
    /// The arguments or the output do not fit those of the offered function
    /// ([`NameError::Mismatch`]), or the offer could not be reached.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The arguments were not taken: they cannot be encoded, or read by the other node
    /// ([`Why::Unsendable`]), are too large, or the offer has ended.
    #[error("the arguments were not taken: {0}")]
    NotTaken(Why),
    /// The offer ended before it answered.
    #[error("the offer has not answered: {0}")]
    NoAnswer(RecvError),
    /// The answer of the node that has the offer cannot be decoded.
    #[error("the answer of the node that has the offer cannot be decoded")]
    Unreadable,
    /// The time that the start was [given](super::SpawnOn::within) has passed, and no node has the offer.
    #[error("the time for the start has passed")]
    TimedOut,
    /// A linked process was to be started outside of every spawned process.
    #[error(transparent)]
    OutsideProcess(#[from] crate::OutsideProcess),
}

/// The error of [`Node::spawn_on`](crate::node::Node::spawn_on).
#[non_exhaustive]
pub enum StartError<F: RemoteFunction> {
    /// Nothing was started. The call is given back, with the ends in its arguments.
    NotStarted {
        /// The call.
        call: RemoteCall<F>,
        /// Why it was not started.
        why: StartFailure,
    },
    /// The other node had taken the arguments, and was lost, or left, before its answer arrived; or the time
    /// for the start passed meanwhile. The function is not run: it waits for this node's confirmation.
    Lost,
}

impl<F: RemoteFunction> StartError<F> {
    /// The call, if it was certainly not started.
    pub fn into_call(self) -> Option<RemoteCall<F>> {
        match self {
            Self::NotStarted { call, .. } => Some(call),
            Self::Lost => None,
        }
    }

    /// Why it was certainly not started.
    pub fn why(&self) -> Option<&StartFailure> {
        match self {
            Self::NotStarted { why, .. } => Some(why),
            Self::Lost => None,
        }
    }
}

impl<F: RemoteFunction> fmt::Debug for StartError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStarted { call, why } => {
                f.debug_struct("NotStarted").field("call", call).field("why", why).finish()
            }
            Self::Lost => f.write_str("Lost"),
        }
    }
}

impl<F: RemoteFunction> fmt::Display for StartError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStarted { why, .. } => write!(f, "{} was not started: {why}", F::NAME),
            Self::Lost => {
                write!(f, "{} was not started: the node of the offer was lost with the arguments", F::NAME)
            }
        }
    }
}

impl<F: RemoteFunction> std::error::Error for StartError<F> {}

impl<F: RemoteFunction> From<StartError<F>> for crate::Error {
    fn from(error: StartError<F>) -> Self {
        Self::other(error.to_string())
    }
}
