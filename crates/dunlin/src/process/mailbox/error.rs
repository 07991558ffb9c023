//! Why a message was not sent, or not received.

use std::fmt;

use dunlin_core::waits;

use super::super::link::OutsideProcess;

/// Why a message was not sent, with the message.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PostError<M> {
    /// The mailbox holds as many messages as its bound allows.
    #[error("the mailbox is full; send later, wait for room with `offer`, or give it a larger bound")]
    Full(M),
    /// The mailbox was dropped, or its process has ended.
    #[error("the mailbox is closed: its receiver was dropped, or its process has ended")]
    Closed(M),
}

impl<M> PostError<M> {
    /// The message.
    pub fn into_message(self) -> M {
        match self {
            Self::Full(message) | Self::Closed(message) => message,
        }
    }

    /// Whether the mailbox has been dropped.
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::Closed(_))
    }

    /// Whether the mailbox had no room.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Full(_))
    }

    pub(super) fn without_message(self, slot: &mut Option<M>) -> PostError<()> {
        let (error, message) = match self {
            Self::Full(message) => (PostError::Full(()), message),
            Self::Closed(message) => (PostError::Closed(()), message),
        };
        *slot = Some(message);
        error
    }
}

impl<M> fmt::Debug for PostError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the message, which may not be printable: so the error can be unwrapped.
        f.write_str(match self {
            Self::Full(_) => "Full(..)",
            Self::Closed(_) => "Closed(..)",
        })
    }
}

/// Why nothing was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MailboxError {
    /// The mailbox belongs to another process: to the one that first received from it.
    #[error(
        "the mailbox belongs to process {owner}, which first received from it; process {by} cannot receive from it"
    )]
    NotOwner {
        /// The process that it belongs to, or the code outside of every process.
        owner: waits::Pid,
        /// The process that tried to receive.
        by: waits::Pid,
    },
    /// The deadline passed first.
    #[error("no message that fits arrived before the deadline")]
    TimedOut,
    /// Exits cannot be received outside of every spawned process.
    #[error(transparent)]
    OutsideProcess(#[from] OutsideProcess),
}
