//! The errors of operations: one type for each kind of operation. Each returns the value that was not sent.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// How strong a poison is, from 0 to [`FULL`](Self::FULL).
///
/// A channel with an [immunity](crate::Policy::immunity) is poisoned only by a greater strength. The default
/// immunity is 0. Full strength poisons every channel.
///
/// # Source
/// Poison strength and immunity of JCSP (Sputh and Allen, 2005; Welch et al., 2007).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Strength(u8);

impl Strength {
    /// Full strength, to which no channel is immune.
    pub const FULL: Self = Self(u8::MAX);

    /// The number.
    pub fn as_u8(self) -> u8 {
        self.0
    }

    /// Whether this strength poisons a channel with this immunity.
    pub(crate) fn overcomes(self, immunity: Self) -> bool {
        self > immunity || self == Self::FULL
    }
}

impl From<u8> for Strength {
    fn from(number: u8) -> Self {
        Self(number)
    }
}

impl fmt::Display for Strength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::FULL { f.write_str("full") } else { self.0.fmt(f) }
    }
}

/// Why every operation on a channel fails: the reason given to `poison`, and the strength of the poison.
// One pointer, so that results with this error are returned in registers. Always `Some` until the drop takes
// it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Reason(Option<Arc<Poison>>);

impl Drop for Reason {
    // The poison is passed to the call by value. `Arc`'s own drop passes its address, and a result whose
    // address is taken lives in memory, even without an error. Each send would then write and copy its
    // outcome wherever the compiler cannot see through that call.
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(poison) = self.0.take() {
            let_go(poison);
        }
    }
}

#[cold]
#[inline(never)]
fn let_go(poison: Arc<Poison>) {
    drop(poison);
}

#[derive(PartialEq, Eq, Hash)]
struct Poison {
    strength: Strength,
    text: Arc<str>,
}

impl Reason {
    fn new(strength: Strength, text: Arc<str>) -> Self {
        Self(Some(Arc::new(Poison { strength, text })))
    }

    fn poison(&self) -> &Poison {
        self.0.as_deref().expect("there until it is dropped")
    }

    /// The reason's text.
    pub fn as_str(&self) -> &str {
        &self.poison().text
    }

    /// The strength of the poison; full unless another was given. If a process passes it on with
    /// [`poison_with`](crate::Sender::poison_with), the poison stops at the same borders as the original.
    pub fn strength(&self) -> Strength {
        self.poison().strength
    }

    /// The same text with this strength.
    #[must_use]
    pub fn of_strength(self, strength: impl Into<Strength>) -> Self {
        let strength = strength.into();
        if strength == self.strength() {
            return self;
        }
        Self::new(strength, self.poison().text.clone())
    }
}

impl<S: Into<Arc<str>>> From<S> for Reason {
    fn from(text: S) -> Self {
        Self::new(Strength::FULL, text.into())
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)?;
        if self.strength() == Strength::FULL { Ok(()) } else { write!(f, " (strength {})", self.strength()) }
    }
}

/// Why no receive took a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Why {
    /// The receiver was dropped, or the channel was retired.
    #[error("the channel has ended")]
    Closed,
    /// The channel was poisoned, with this reason.
    #[error("the channel was poisoned: {0}")]
    Poisoned(Reason),
    /// The channel's policy, or its bound on pending senders, refused the value.
    #[error("the channel's policy refused the value")]
    Refused,
    /// A later value pushed this waiting one out of the bounded queue of pending senders.
    #[error("a later sender pushed this one out of the queue of pending senders")]
    Expired,
    /// The deadline of the operation passed first.
    #[error("the deadline passed before a receive took the value")]
    TimedOut,
    /// The operation would have had to wait.
    #[error("the value could not be taken at once")]
    WouldBlock,
    /// The other end of the channel is a branch of the same choice: a choice cannot send to itself.
    #[error("the channel's other end is a branch of the same choice")]
    OwnChannel,
    /// The deadline passed and the other end is not connected yet. The text names what is missing and what to
    /// do. Only for an end that was declared under a name.
    #[error("{0}")]
    Unmatched(Reason),
    /// The node that holds the receiver has left its application, or was lost.
    #[error("the node that holds the receiver has left its application, or was lost")]
    NodeLost,
    /// The receiver is at another node, and the node of this end has left its application.
    #[error(
        "the node of this end has left its application; keep its `Node`, and leave only when its ends have done their work"
    )]
    OwnNodeLeft,
    /// The value cannot be encoded for another node, or the receiver there cannot decode it.
    #[error("the value cannot be sent to another node: {0}")]
    Unsendable(Reason),
    /// The encoded value is larger than the connection allows.
    #[error("the value takes {bytes} bytes; at most {bytes_max} are allowed")]
    TooLarge {
        /// The size of the encoded value, in bytes.
        bytes: u64,
        /// The largest size allowed, in bytes.
        bytes_max: u64,
    },
}

impl Why {
    /// Whether the operation's deadline passed.
    pub fn is_timed_out(&self) -> bool {
        matches!(self, Self::TimedOut | Self::Unmatched(_))
    }
}

/// Identifies a message with an unknown outcome by its channel and the number of its send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MessageId {
    /// The channel, as it appears in the wait records.
    pub channel: u64,
    /// The number of the send on this channel.
    pub number: u64,
}

/// The outcome of a send that did not end in `Ok`. It holds the value.
///
/// For [`send_from`](crate::Sender::send_from) the value is in the caller's slot instead, and `T` is `()`.
#[derive(Clone, PartialEq, Eq)]
// Exhaustive: rule 2 promises these two outcomes and `Ok`, and no fourth.
pub enum SendError<T> {
    /// No receive has taken the value, and none will.
    NotTaken {
        /// The value that was not sent.
        value: T,
        /// Why no receive took it.
        why: Why,
    },
    /// The receiver's node is lost for good, so it is unknowable whether a receive took the value.
    Unknown {
        /// The value, which a receive may have taken.
        value: T,
        /// Names the message, so that the caller can recognise it if the other side refers to it later.
        id: MessageId,
    },
}

impl<T> SendError<T> {
    /// The value that was to be sent.
    pub fn into_value(self) -> T {
        match self {
            Self::NotTaken { value, .. } | Self::Unknown { value, .. } => value,
        }
    }

    /// Why no receive took the value; `None` if the outcome is unknown.
    pub fn why(&self) -> Option<&Why> {
        match self {
            Self::NotTaken { why, .. } => Some(why),
            Self::Unknown { .. } => None,
        }
    }

    /// Whether the channel had ended: the receiver was dropped, or the channel was retired.
    pub fn is_closed(&self) -> bool {
        self.why() == Some(&Why::Closed)
    }

    /// Whether the channel was poisoned.
    pub fn is_poisoned(&self) -> bool {
        matches!(self.why(), Some(Why::Poisoned(_)))
    }

    /// Whether the operation's deadline passed.
    pub fn is_timed_out(&self) -> bool {
        self.why().is_some_and(Why::is_timed_out)
    }

    /// The same error with the value replaced.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> SendError<U> {
        match self {
            Self::NotTaken { value, why } => SendError::NotTaken { value: f(value), why },
            Self::Unknown { value, id } => SendError::Unknown { value: f(value), id },
        }
    }
}

// Neither impl shows the value: an error must be printable for every `T`.
impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotTaken { why, .. } => f.debug_struct("NotTaken").field("why", why).finish_non_exhaustive(),
            Self::Unknown { id, .. } => f.debug_struct("Unknown").field("id", id).finish_non_exhaustive(),
        }
    }
}

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotTaken { why, .. } => write!(f, "not sent: {why}"),
            Self::Unknown { id, .. } => {
                write!(
                    f,
                    "the connection with the other node ended; whether message {} was received is not known",
                    id.number
                )
            }
        }
    }
}

impl<T> std::error::Error for SendError<T> {}

/// The error of a send of a [`Broadcast`](crate::Broadcast) that did not reach every receiver.
#[derive(Clone, PartialEq, Eq)]
pub struct BroadcastError<T> {
    /// The value that was to be sent.
    pub value: T,
    /// Why some remaining receiver did not receive it, or why none did.
    pub why: Why,
    /// How many receivers received it nevertheless.
    pub received: usize,
}

impl<T> BroadcastError<T> {
    /// The value that was to be sent.
    pub fn into_value(self) -> T {
        self.value
    }

    /// Whether no receiver can receive any more: the broadcast was retired, or too few have joined and no
    /// more can.
    pub fn is_closed(&self) -> bool {
        self.why == Why::Closed
    }

    /// Whether the broadcast was poisoned.
    pub fn is_poisoned(&self) -> bool {
        matches!(self.why, Why::Poisoned(_))
    }

    /// Whether the operation's deadline passed.
    pub fn is_timed_out(&self) -> bool {
        self.why.is_timed_out()
    }
}

impl<T> fmt::Debug for BroadcastError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("BroadcastError");
        shown.field("why", &self.why).field("received", &self.received).finish_non_exhaustive()
    }
}

impl<T> fmt::Display for BroadcastError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not sent to all, received by {}: {}", self.received, self.why)
    }
}

impl<T> std::error::Error for BroadcastError<T> {}

/// The error of a send of a [`Broadcast`](crate::Broadcast) whose wait for the remaining receivers was
/// bounded ([`complete_until`](crate::Broadcasting::complete_until)).
#[derive(Clone, PartialEq, Eq)]
pub enum CompleteError<T> {
    /// Some receivers had not received the value when the wait for them ended.
    Incomplete {
        /// The value that was to be sent.
        value: T,
        /// How many receivers received it.
        received: usize,
        /// How many never will: the value was withdrawn, or their channels refused it.
        withdrawn: usize,
        /// How many are unknown because their nodes have not answered. A receiver that has not received the
        /// value when its node processes the withdrawal never will.
        unknown: usize,
    },
    /// The send had ended before, or was poisoned: the same error as of a send that waits for all.
    Failed(BroadcastError<T>),
}

impl<T> CompleteError<T> {
    /// The value that was to be sent.
    pub fn into_value(self) -> T {
        match self {
            Self::Incomplete { value, .. } => value,
            Self::Failed(error) => error.value,
        }
    }

    /// Why the value was not sent to all.
    pub fn why(&self) -> &Why {
        match self {
            Self::Incomplete { .. } => &Why::TimedOut,
            Self::Failed(error) => &error.why,
        }
    }
}

impl<T> fmt::Debug for CompleteError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Incomplete { received, withdrawn, unknown, .. } => {
                let mut shown = f.debug_struct("Incomplete");
                shown.field("received", received).field("withdrawn", withdrawn).field("unknown", unknown);
                shown.finish_non_exhaustive()
            }
            Self::Failed(error) => f.debug_tuple("Failed").field(error).finish(),
        }
    }
}

impl<T> fmt::Display for CompleteError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Incomplete { received, withdrawn, unknown, .. } => write!(
                f,
                "not sent to all in time: received by {received}, withdrawn from {withdrawn}, unknown of {unknown}"
            ),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl<T> std::error::Error for CompleteError<T> {}

/// The error of a send, kept apart from its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    NotTaken(Why),
    Unknown(MessageId),
}

impl From<Why> for Failed {
    fn from(why: Why) -> Self {
        Self::NotTaken(why)
    }
}

impl Failed {
    #[inline(always)]
    pub(crate) fn with<T>(self, value: T) -> SendError<T> {
        match self {
            Self::NotTaken(why) => SendError::NotTaken { value, why },
            Self::Unknown(id) => SendError::Unknown { value, id },
        }
    }
}

/// Why a receive returned no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecvError {
    /// All senders were dropped or the channel was retired, and its remaining values have been received.
    #[error("the channel has ended")]
    Closed,
    /// The channel was poisoned, with this reason.
    #[error("the channel was poisoned: {0}")]
    Poisoned(Reason),
    /// The bound on pending receivers refused this one.
    #[error("the channel's bound on pending receivers refused this one")]
    Refused,
    /// A later receiver pushed this one out of the bounded queue of pending receivers.
    #[error("a later receiver pushed this one out of the queue of pending receivers")]
    Expired,
    /// The deadline of the operation passed first.
    #[error("the deadline passed before a value arrived")]
    TimedOut,
    /// No value was available at once.
    #[error("no value was available at once")]
    WouldBlock,
    /// The deadline passed and the other end is not connected yet. The text names what is missing and what to
    /// do. Only for an end that was declared under a name.
    #[error("{0}")]
    Unmatched(Reason),
    /// The node that holds the sender has left its application, or was lost.
    #[error("the node that holds the sender has left its application, or was lost")]
    NodeLost,
    /// The sender is at another node, and the node of this end has left its application.
    #[error(
        "the node of this end has left its application; keep its `Node`, and leave only when its ends have done their work"
    )]
    OwnNodeLeft,
}

impl RecvError {
    /// Whether the channel ended without poison or loss.
    pub fn is_closed(&self) -> bool {
        *self == Self::Closed
    }

    /// Whether the channel was poisoned.
    pub fn is_poisoned(&self) -> bool {
        matches!(self, Self::Poisoned(_))
    }

    /// Whether the operation's deadline passed.
    pub fn is_timed_out(&self) -> bool {
        matches!(self, Self::TimedOut | Self::Unmatched(_))
    }
}

/// Why a claim was not granted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimError {
    /// The deadline of the operation passed first.
    #[error("the deadline passed before the claim was granted")]
    TimedOut,
    /// The end is claimed, or other claims are queued before this one.
    #[error("the end is claimed, or other claims are ahead")]
    WouldBlock,
    /// The node that keeps the shared end has left or was lost, or the node of this handle has left.
    #[error("the node that keeps the shared end has left or was lost, or the node of this handle has left")]
    NodeLost,
    /// The shared face cannot move to this node, for the given reason. It stays where it is kept, and can be
    /// claimed there.
    #[error("the shared face cannot be moved to this node: {0}")]
    Unsendable(Reason),
}

/// Why a synchronisation on a barrier failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SyncError {
    /// The deadline of the operation passed first.
    #[error("the deadline passed before all parties of the barrier had arrived")]
    TimedOut,
    /// The node that keeps the barrier, or a node in between, has left or was lost, or the node of this
    /// enrolment has left. Whether the phase took place is not known.
    #[error(
        "the node that keeps the barrier has left or was lost, or the node of this enrolment has left; whether the phase took place is not known"
    )]
    NodeLost,
}

/// Why a bucket did not release what fell in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BucketError {
    /// The deadline of the operation passed first.
    #[error("the deadline passed before the bucket was flushed")]
    TimedOut,
    /// All flushers have been dropped.
    #[error("all flushers of the bucket have been dropped")]
    Closed,
    /// A flusher poisoned the bucket, with this reason.
    #[error("the bucket was poisoned: {0}")]
    Poisoned(Reason),
}

/// The error of a call without a reply.
#[derive(Clone, PartialEq, Eq)]
pub enum CallError<Q> {
    /// No receive took the request; the error returns it.
    NotTaken {
        /// The request.
        request: Q,
        /// Why no receive took it.
        why: Why,
    },
    /// The server took the request, but no reply will come: the server dropped it, ended or was poisoned.
    NoReply(RecvError),
    /// The server's node is lost, so it is unknowable whether the server took the request.
    Unknown {
        /// The request.
        request: Q,
        /// Names the message.
        id: MessageId,
    },
}

impl<Q> fmt::Debug for CallError<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotTaken { why, .. } => f.debug_struct("NotTaken").field("why", why).finish_non_exhaustive(),
            Self::NoReply(e) => f.debug_tuple("NoReply").field(e).finish(),
            Self::Unknown { id, .. } => f.debug_struct("Unknown").field("id", id).finish_non_exhaustive(),
        }
    }
}

impl<Q> fmt::Display for CallError<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotTaken { why, .. } => write!(f, "the request was not taken: {why}"),
            Self::NoReply(e) => write!(f, "the request was taken but got no reply: {e}"),
            Self::Unknown { id, .. } => {
                write!(
                    f,
                    "the connection with the other node ended; whether request {} was taken is not known",
                    id.number
                )
            }
        }
    }
}

impl<Q> std::error::Error for CallError<Q> {}

impl<Q> From<SendError<Q>> for CallError<Q> {
    fn from(error: SendError<Q>) -> Self {
        match error {
            SendError::NotTaken { value, why } => Self::NotTaken { request: value, why },
            SendError::Unknown { value, id } => Self::Unknown { request: value, id },
        }
    }
}

/// The text of a panic.
pub fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a text").to_owned()
}
