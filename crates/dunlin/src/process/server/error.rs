//! The errors of clients.

use std::fmt;

use crate::{Error, Exit, RecvError, Why};

/// Why a call to a server has no reply.
///
/// # Examples
/// ```
/// use dunlin::prelude::*;
/// use dunlin::server::{Server, ServerCallError, requests};
/// # dunlin::block_on(async {
/// let (mut client, _requests) = requests::<u32, u32, ()>(fifo(8));
/// match client.call(7).within(Duration::from_millis(1)).await {
///     Err(ServerCallError::NotTaken { call, why: Why::TimedOut }) => assert_eq!(call, 7),
///     other => panic!("{other:?}"),
/// }
/// # });
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerCallError<Q> {
    /// No server has received the call, and none will: it comes back.
    NotTaken {
        /// The call.
        call: Q,
        /// Why: the server has ended ([`Why::Closed`]), its queue is full ([`Why::WouldBlock`], or what its
        /// policy says), or the deadline has passed ([`Why::TimedOut`]).
        why: Why,
    },
    /// A server has called itself: it could not reply before it has the reply. The call comes back.
    Oneself(Q),
    /// The server has received the call, and has not replied before the deadline. A late reply is dropped.
    TimedOut,
    /// The server has received the call, and the place for its reply was dropped; the server goes on.
    NoReply,
    /// The server has received the call, and has ended with this exit.
    Exit(Exit),
}

impl<Q> ServerCallError<Q> {
    /// The call, if no server has received it.
    pub fn into_call(self) -> Option<Q> {
        match self {
            Self::NotTaken { call, .. } | Self::Oneself(call) => Some(call),
            Self::TimedOut | Self::NoReply | Self::Exit(_) => None,
        }
    }

    /// Whether the deadline has passed.
    pub fn is_timed_out(&self) -> bool {
        matches!(self, Self::TimedOut | Self::NotTaken { why: Why::TimedOut, .. })
    }
}

impl<Q> fmt::Debug for ServerCallError<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotTaken { why, .. } => f.debug_struct("NotTaken").field("why", why).finish_non_exhaustive(),
            Self::Oneself(_) => f.write_str("Oneself(..)"),
            Self::TimedOut => f.write_str("TimedOut"),
            Self::NoReply => f.write_str("NoReply"),
            Self::Exit(exit) => f.debug_tuple("Exit").field(exit).finish(),
        }
    }
}

const ONESELF: &str = "a server cannot call itself: send itself a cast, or call the method";

impl<Q> fmt::Display for ServerCallError<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotTaken { why, .. } => write!(f, "the server has not received the call: {why}"),
            Self::Oneself(_) => f.write_str(ONESELF),
            Self::TimedOut => f.write_str("the server has received the call and has not replied before the deadline"),
            Self::NoReply => f.write_str("the server has received the call and has dropped the reply"),
            Self::Exit(exit) => write!(f, "the server ended: {exit}"),
        }
    }
}

impl<Q> std::error::Error for ServerCallError<Q> {}

impl<Q> From<ServerCallError<Q>> for Error {
    fn from(error: ServerCallError<Q>) -> Self {
        match error {
            ServerCallError::NotTaken { why, .. } => Self::NotTaken(why),
            ServerCallError::Oneself(_) => Self::other(ONESELF),
            ServerCallError::TimedOut => Self::NoReply(RecvError::TimedOut),
            ServerCallError::NoReply => Self::NoReply(RecvError::Closed),
            ServerCallError::Exit(exit) => Self::Exit(exit),
        }
    }
}

/// Why [`Client::replace`](super::Client::replace) failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplaceError {
    /// The state of the server has another type. It was not replaced.
    OtherState,
    /// The server has ended, its queue is full, or it is a server of another kind: nothing was replaced.
    NotTaken(Why),
    /// A server cannot wait for its own replacement.
    Oneself,
    /// The server has ended: the function panicked, or the server did not get to it.
    Ended,
}

impl fmt::Display for ReplaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherState => f.write_str("the server's state has another type"),
            Self::NotTaken(why) => write!(f, "the server did not take the replacement: {why}"),
            Self::Oneself => f.write_str("a server cannot wait for its own replacement"),
            Self::Ended => f.write_str("the server ended before its state was replaced, or by it"),
        }
    }
}

impl std::error::Error for ReplaceError {}
