//! One error that all others convert into, for programs that pass errors on with `?`.

use std::fmt;

use crate::{
    BroadcastError, BucketError, CallError, ClaimError, CompleteError, MessageId, RecvError, SendError, StrategyError,
    SyncError, Why,
};

/// `Result<(), dunlin::Error>` by default.
pub type Result<T = (), E = Error> = std::result::Result<T, E>;

/// What went wrong, without the unsent value.
///
/// Every error of an operation converts into it with `?`. Keep the operation's own error to get the value
/// back.
///
/// # Examples
/// ```
/// use dunlin::prelude::*;
///
/// async fn relay(mut from: Receiver<String>, mut to: Sender<String>) -> Result {
///     loop {
///         to.send(from.recv().await?).await?;
///     }
/// }
/// # dunlin::block_on(async {
/// let ((_tx, rx), (ty, _ry)) = (channel(), channel());
/// ty.poison("no more");
/// drop(_tx);
/// assert!(matches!(relay(rx, ty).await, Err(Error::Recv(RecvError::Closed))));
/// # });
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A send, or the request of a call, was not taken.
    NotTaken(Why),
    /// It is unknown whether a send, or the request of a call, was taken.
    Unknown(MessageId),
    /// A receive got nothing.
    Recv(RecvError),
    /// A call was taken and got no reply.
    NoReply(RecvError),
    /// A claim was not granted.
    Claim(ClaimError),
    /// A barrier was not taken.
    Sync(SyncError),
    /// A bucket did not release what fell in.
    Bucket(BucketError),
    /// The strategy of a choice picked no ready branch.
    Strategy(StrategyError),
    /// A process ended otherwise than by returning.
    #[cfg(feature = "rt")]
    Exit(crate::Exit),
    /// A message was not sent to a mailbox: it was closed, or full.
    #[cfg(feature = "rt")]
    Post(crate::PostError<()>),
    /// Nothing was received from a mailbox.
    #[cfg(feature = "rt")]
    Mailbox(crate::MailboxError),
    /// A link, or an exit, outside of every spawned process.
    #[cfg(feature = "rt")]
    OutsideProcess(crate::OutsideProcess),
    /// A blocking call was not taken. The error gives it back.
    #[cfg(feature = "rt")]
    Refused(crate::blocking::Refused),
    /// A blocking call did not return by its deadline.
    #[cfg(feature = "rt")]
    CallTimedOut,
    /// An end of a scope's name could not be joined.
    #[cfg(feature = "rt")]
    Scope(crate::ScopeError),
    /// A scope did not finish in order.
    #[cfg(feature = "rt")]
    Finish(crate::FinishError),
    /// A supervisor did not end in order.
    #[cfg(feature = "rt")]
    Supervisor(crate::process::supervisor::SupervisorError),
    /// An end could not be declared under a name.
    #[cfg(feature = "net")]
    Name(crate::node::NameError),
    /// A node could not join, or did not leave in order.
    #[cfg(feature = "net")]
    Node(crate::node::NodeError),
    /// The operating system refused.
    Io(std::io::Error),
    /// Any other error, from the program itself.
    Other(Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// An error of the program's own.
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Other(error.into())
    }

    /// Whether a channel had ended in order, or a mailbox was closed.
    pub fn is_closed(&self) -> bool {
        #[cfg(feature = "rt")]
        if let Self::Post(error) = self {
            return error.is_closed();
        }
        matches!(
            self,
            Self::NotTaken(Why::Closed)
                | Self::Recv(RecvError::Closed)
                | Self::NoReply(RecvError::Closed)
                | Self::Bucket(BucketError::Closed)
        )
    }

    /// Whether a channel was poisoned.
    pub fn is_poisoned(&self) -> bool {
        matches!(
            self,
            Self::NotTaken(Why::Poisoned(_))
                | Self::Recv(RecvError::Poisoned(_))
                | Self::NoReply(RecvError::Poisoned(_))
                | Self::Bucket(BucketError::Poisoned(_))
        )
    }

    /// Whether a deadline passed.
    pub fn is_timed_out(&self) -> bool {
        #[cfg(feature = "rt")]
        if let Self::Mailbox(error) = self {
            return *error == crate::MailboxError::TimedOut;
        }
        #[cfg(feature = "rt")]
        if let Self::CallTimedOut = self {
            return true;
        }
        matches!(
            self,
            Self::NotTaken(Why::TimedOut | Why::Unmatched(_))
                | Self::Recv(RecvError::TimedOut | RecvError::Unmatched(_))
                | Self::NoReply(RecvError::TimedOut)
                | Self::Claim(ClaimError::TimedOut)
                | Self::Sync(SyncError::TimedOut)
                | Self::Bucket(BucketError::TimedOut)
        )
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotTaken(why) => write!(f, "not sent: {why}"),
            Self::Unknown(id) => {
                write!(
                    f,
                    "the connection with the other node ended; whether message {} was received is not known",
                    id.number
                )
            }
            Self::Recv(error) => write!(f, "nothing received: {error}"),
            Self::NoReply(error) => write!(f, "the request was taken but got no reply: {error}"),
            Self::Claim(error) => write!(f, "not claimed: {error}"),
            Self::Sync(error) => write!(f, "not synchronised: {error}"),
            Self::Bucket(error) => write!(f, "not released: {error}"),
            Self::Strategy(error) => error.fmt(f),
            #[cfg(feature = "rt")]
            Self::Exit(exit) => exit.fmt(f),
            #[cfg(feature = "rt")]
            Self::Post(error) => write!(f, "not sent: {error}"),
            #[cfg(feature = "rt")]
            Self::Mailbox(error) => write!(f, "nothing received: {error}"),
            #[cfg(feature = "rt")]
            Self::OutsideProcess(error) => error.fmt(f),
            #[cfg(feature = "rt")]
            Self::Refused(refused) => refused.fmt(f),
            #[cfg(feature = "rt")]
            Self::CallTimedOut => f.write_str("the blocking call did not return by its deadline"),
            #[cfg(feature = "rt")]
            Self::Scope(error) => error.fmt(f),
            #[cfg(feature = "rt")]
            Self::Finish(error) => error.fmt(f),
            #[cfg(feature = "rt")]
            Self::Supervisor(error) => error.fmt(f),
            #[cfg(feature = "net")]
            Self::Name(error) => error.fmt(f),
            #[cfg(feature = "net")]
            Self::Node(error) => error.fmt(f),
            Self::Io(error) => error.fmt(f),
            Self::Other(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Recv(error) | Self::NoReply(error) => Some(error),
            Self::NotTaken(why) => Some(why),
            Self::Claim(error) => Some(error),
            Self::Sync(error) => Some(error),
            Self::Bucket(error) => Some(error),
            Self::Strategy(error) => Some(error),
            #[cfg(feature = "rt")]
            Self::Post(error) => Some(error),
            #[cfg(feature = "rt")]
            Self::Mailbox(error) => Some(error),
            #[cfg(feature = "rt")]
            Self::Scope(error) => Some(error),
            #[cfg(feature = "rt")]
            Self::Finish(error) => Some(error),
            #[cfg(feature = "rt")]
            Self::Supervisor(error) => Some(error),
            #[cfg(feature = "net")]
            Self::Name(error) => Some(error),
            #[cfg(feature = "net")]
            Self::Node(error) => Some(error),
            Self::Io(error) => Some(error),
            Self::Other(error) => Some(&**error),
            _ => None,
        }
    }
}

impl<T> From<SendError<T>> for Error {
    fn from(error: SendError<T>) -> Self {
        match error {
            SendError::NotTaken { why, .. } => Self::NotTaken(why),
            SendError::Unknown { id, .. } => Self::Unknown(id),
        }
    }
}

impl<T> From<BroadcastError<T>> for Error {
    fn from(error: BroadcastError<T>) -> Self {
        Self::NotTaken(error.why)
    }
}

impl<T> From<CompleteError<T>> for Error {
    fn from(error: CompleteError<T>) -> Self {
        Self::NotTaken(error.why().clone())
    }
}

impl<Q> From<CallError<Q>> for Error {
    fn from(error: CallError<Q>) -> Self {
        match error {
            CallError::NotTaken { why, .. } => Self::NotTaken(why),
            CallError::NoReply(error) => Self::NoReply(error),
            CallError::Unknown { id, .. } => Self::Unknown(id),
        }
    }
}

impl From<RecvError> for Error {
    fn from(error: RecvError) -> Self {
        Self::Recv(error)
    }
}

impl From<ClaimError> for Error {
    fn from(error: ClaimError) -> Self {
        Self::Claim(error)
    }
}

impl From<BucketError> for Error {
    fn from(error: BucketError) -> Self {
        Self::Bucket(error)
    }
}

impl From<StrategyError> for Error {
    fn from(error: StrategyError) -> Self {
        Self::Strategy(error)
    }
}

impl From<SyncError> for Error {
    fn from(error: SyncError) -> Self {
        Self::Sync(error)
    }
}

#[cfg(feature = "rt")]
impl From<crate::Exit> for Error {
    fn from(exit: crate::Exit) -> Self {
        Self::Exit(exit)
    }
}

#[cfg(feature = "rt")]
impl<M> From<crate::PostError<M>> for Error {
    fn from(error: crate::PostError<M>) -> Self {
        Self::Post(error.split().1)
    }
}

#[cfg(feature = "rt")]
impl From<crate::MailboxError> for Error {
    fn from(error: crate::MailboxError) -> Self {
        Self::Mailbox(error)
    }
}

#[cfg(feature = "rt")]
impl From<crate::OutsideProcess> for Error {
    fn from(error: crate::OutsideProcess) -> Self {
        Self::OutsideProcess(error)
    }
}

#[cfg(feature = "rt")]
impl From<crate::ScopeError> for Error {
    fn from(error: crate::ScopeError) -> Self {
        Self::Scope(error)
    }
}

#[cfg(feature = "rt")]
impl From<crate::FinishError> for Error {
    fn from(error: crate::FinishError) -> Self {
        Self::Finish(error)
    }
}

#[cfg(feature = "rt")]
impl From<crate::process::supervisor::SupervisorError> for Error {
    fn from(error: crate::process::supervisor::SupervisorError) -> Self {
        Self::Supervisor(error)
    }
}

#[cfg(feature = "net")]
impl From<crate::node::NameError> for Error {
    fn from(error: crate::node::NameError) -> Self {
        Self::Name(error)
    }
}

#[cfg(feature = "net")]
impl From<crate::config::ConfigError> for Error {
    fn from(error: crate::config::ConfigError) -> Self {
        Self::Node(error.into())
    }
}

#[cfg(feature = "net")]
impl From<crate::node::NodeError> for Error {
    fn from(error: crate::node::NodeError) -> Self {
        Self::Node(error)
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}
