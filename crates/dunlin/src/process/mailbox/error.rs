//! Why a message was not sent, or not received.

use std::fmt;
use std::sync::Arc;

use dunlin_core::waits;

use super::super::link::OutsideProcess;

/// Why a message was not sent, with the message.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PostError<M> {
    /// The mailbox holds as many messages as its bound allows, or, at another node, has no room for more of
    /// this one.
    #[error("the mailbox is full; send later, wait for room with `offer`, or give it a larger bound")]
    Full(M),
    /// The mailbox was dropped, or its process or node has ended.
    #[error("the mailbox is closed: its receiver was dropped, or its process has ended")]
    Closed(M),
    /// The mailbox is at another node, and the encoded message is longer than any may be.
    #[error(
        "the message is {bytes} bytes, and a mailbox of another node takes at most {bytes_max}: send it over a channel"
    )]
    TooLarge {
        /// The message.
        message: M,
        /// How large it is.
        bytes: u64,
        /// How large it may be.
        bytes_max: u64,
    },
    /// The mailbox is at another node, and the message cannot be written for it, or not be read there.
    #[error("the message cannot be sent to the mailbox of another node: {why}")]
    Unsendable {
        /// The message.
        message: M,
        /// The reason: why it cannot be written, or the difference between its type here and there.
        why: Arc<str>,
    },
}

impl<M> PostError<M> {
    /// The message.
    pub fn into_message(self) -> M {
        match self {
            Self::Full(message) | Self::Closed(message) => message,
            Self::TooLarge { message, .. } | Self::Unsendable { message, .. } => message,
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
        let (message, error) = self.split();
        *slot = Some(message);
        error
    }

    /// The message, and the error without it.
    pub(crate) fn split(self) -> (M, PostError<()>) {
        match self {
            Self::Full(message) => (message, PostError::Full(())),
            Self::Closed(message) => (message, PostError::Closed(())),
            Self::TooLarge { message, bytes, bytes_max } => {
                (message, PostError::TooLarge { message: (), bytes, bytes_max })
            }
            Self::Unsendable { message, why } => (message, PostError::Unsendable { message: (), why }),
        }
    }
}

impl<M> fmt::Debug for PostError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the message, which may not be printable: so the error can be unwrapped.
        match self {
            Self::Full(_) => f.write_str("Full(..)"),
            Self::Closed(_) => f.write_str("Closed(..)"),
            Self::TooLarge { bytes, bytes_max, .. } => {
                write!(f, "TooLarge {{ bytes: {bytes}, bytes_max: {bytes_max}, .. }}")
            }
            Self::Unsendable { why, .. } => write!(f, "Unsendable {{ why: {why:?}, .. }}"),
        }
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
