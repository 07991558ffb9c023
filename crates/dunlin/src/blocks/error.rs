//! How a block stops before the end of its input, and how its neighbours are notified.

use std::fmt;

use crate::{Error, Reason, Receiver, RecvError, SendError, Sender, Why};

/// Why a block stopped before the end of its input; with the value that it had in hand.
///
/// # Examples
/// ```
/// use dunlin::blocks::{BlockError, identity};
/// use dunlin::prelude::*;
/// # dunlin::block_on(async {
/// let ((mut tx, rx), (ty, ry)) = (channel(), channel());
/// drop(ry); // the output is not needed
/// let (stopped, sent) = par!(identity(rx, ty), tx.send("krill"));
/// let Err(BlockError::Send(error)) = stopped else { unreachable!() };
/// assert!(sent.is_ok() && error.is_closed());
/// assert_eq!(error.into_value(), "krill");
/// # });
/// ```
pub enum BlockError<T> {
    /// An input did not end in order.
    Recv(RecvError),
    /// An output did not take a value.
    Send(SendError<T>),
    /// A value was for an output that the block does not have: see [`demultiplex`](super::demultiplex).
    NoOutput {
        /// The value.
        value: T,
        /// The number of the output that it was for, counted from 0.
        index: usize,
        /// How many outputs there are.
        outputs: usize,
    },
}

impl<T> BlockError<T> {
    /// The value that the block had received and not passed on.
    pub fn into_value(self) -> Option<T> {
        match self {
            Self::Recv(_) => None,
            Self::Send(error) => Some(error.into_value()),
            Self::NoOutput { value, .. } => Some(value),
        }
    }

    /// Whether an output had ended in order: its receiver needed no more.
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::Send(error) if error.is_closed())
    }

    /// Whether a channel was poisoned.
    pub fn is_poisoned(&self) -> bool {
        match self {
            Self::Recv(error) => error.is_poisoned(),
            Self::Send(error) => error.is_poisoned(),
            Self::NoOutput { .. } => false,
        }
    }

    /// The same error without the value.
    fn to_error(&self) -> Error {
        match self {
            Self::Recv(error) => Error::Recv(error.clone()),
            Self::Send(SendError::NotTaken { why, .. }) => Error::NotTaken(why.clone()),
            Self::Send(SendError::Unknown { id, .. }) => Error::Unknown(*id),
            Self::NoOutput { index, outputs, .. } => {
                Error::other(format!("a value for output {index} of a block with {outputs}, counted from 0"))
            }
        }
    }
}

// Neither shows the value: an error must be printable for every `T`.
impl<T> fmt::Debug for BlockError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Recv(error) => f.debug_tuple("Recv").field(error).finish(),
            Self::Send(error) => f.debug_tuple("Send").field(error).finish(),
            Self::NoOutput { index, outputs, .. } => {
                let mut shown = f.debug_struct("NoOutput");
                shown.field("index", index).field("outputs", outputs).finish_non_exhaustive()
            }
        }
    }
}

impl<T> fmt::Display for BlockError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_error().fmt(f)
    }
}

impl<T> std::error::Error for BlockError<T> {}

impl<T> From<RecvError> for BlockError<T> {
    fn from(error: RecvError) -> Self {
        Self::Recv(error)
    }
}

impl<T> From<SendError<T>> for BlockError<T> {
    fn from(error: SendError<T>) -> Self {
        Self::Send(error)
    }
}

impl<T> From<BlockError<T>> for Error {
    fn from(error: BlockError<T>) -> Self {
        error.to_error()
    }
}

/// An end, of whatever type.
pub(super) trait Poison {
    fn poison_with(&self, reason: Reason);
}

impl<T> Poison for Sender<T> {
    fn poison_with(&self, reason: Reason) {
        self.poison(reason);
    }
}

impl<T> Poison for Receiver<T> {
    fn poison_with(&self, reason: Reason) {
        self.poison(reason);
    }
}

/// The reason with which a block that stops like this poisons its channels; `None`: one of them has ended in
/// order.
pub(super) fn reason(error: &Error) -> Option<Reason> {
    match error {
        Error::Recv(RecvError::Poisoned(reason)) | Error::NotTaken(Why::Poisoned(reason)) => Some(reason.clone()),
        closed if closed.is_closed() => None,
        other => Some(other.to_string().into()),
    }
}

pub(super) fn poison_all<'a>(reason: &Reason, ends: impl IntoIterator<Item = &'a dyn Poison>) {
    for end in ends {
        end.poison_with(reason.clone());
    }
}

/// Called before a block returns: poisons all that it holds, unless it has ended in order.
pub(super) fn pass_on<'a, R, T>(
    ended: Result<R, BlockError<T>>,
    ends: impl IntoIterator<Item = &'a dyn Poison>,
) -> Result<R, BlockError<T>> {
    if let Err(error) = &ended
        && let Some(reason) = reason(&error.to_error())
    {
        poison_all(&reason, ends);
    }
    ended
}
