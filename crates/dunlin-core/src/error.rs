//! What can become of an operation: one error type for each kind, all of which give back what was not sent.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// How strong a poison is, from 0 to [`FULL`](Self::FULL).
///
/// A channel with an [immunity](crate::Policy::immunity) is not poisoned by what is not stronger than that.
/// Without one its immunity is 0. Full strength poisons every channel.
///
/// # Source
/// Poison strength and immunity of JCSP (Sputh and Allen, 2005; Welch et al., 2007).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Strength(u8);

impl Strength {
    /// What no channel is immune to.
    pub const FULL: Self = Self(u8::MAX);

    /// The number.
    pub fn as_u8(self) -> u8 {
        self.0
    }

    /// Whether a channel with this immunity is poisoned by it.
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

/// Why everything on a channel fails: what was given to `poison`, and how strong the poison was.
// One pointer: results with an error in them are passed in registers. Always `Some`, until the drop takes it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Reason(Option<Arc<Poison>>);

impl Drop for Reason {
    // What is dropped goes into the call by value. `Arc`'s own drop passes its address, and a result with an
    // address is in memory, also when it holds no error: so each send would write and copy its outcome,
    // wherever the compiler does not see through that call.
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

    /// How strong the poison was; full if nothing else was said. Who passes it on, to
    /// [`poison_with`](crate::Sender::poison_with), stops where it was meant to stop.
    pub fn strength(&self) -> Strength {
        self.poison().strength
    }

    /// The same text for a poison of this strength.
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

/// Why a value was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Why {
    /// The receiver is gone, or the channel was retired.
    #[error("the channel has ended")]
    Closed,
    /// The channel was poisoned, with this reason.
    #[error("the channel was poisoned: {0}")]
    Poisoned(Reason),
    /// The channel's policy, or its bound on pending senders, refused the value.
    #[error("the channel's policy refused the value")]
    Refused,
    /// The value waited, and a later one pushed it out of the bounded queue of pending senders.
    #[error("a later sender pushed this one out of the queue of pending senders")]
    Expired,
    /// The deadline of the operation passed first.
    #[error("the deadline passed before a receive took the value")]
    TimedOut,
    /// The operation would have had to wait.
    #[error("nothing could take the value at once")]
    WouldBlock,
    /// The other end of the channel is a branch of the same choice: a choice cannot send to itself.
    #[error("the channel's other end is a branch of the same choice")]
    OwnChannel,
    /// The deadline passed, and nothing is at the other end yet: the text says what is missing and what to
    /// do. Of an end that was declared under a name.
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
    /// The value cannot be written for another node, or the receiver there cannot read it.
    #[error("the value cannot be sent to another node: {0}")]
    Unsendable(Reason),
    /// The encoded value is larger than the connection allows (both in bytes).
    #[error("the value takes {bytes} bytes; at most {bytes_max} are allowed")]
    TooLarge {
        /// What the value takes.
        bytes: u64,
        /// What is allowed.
        bytes_max: u64,
    },
}

impl Why {
    /// Whether the operation's deadline passed.
    pub fn is_timed_out(&self) -> bool {
        matches!(self, Self::TimedOut | Self::Unmatched(_))
    }
}

/// Identifies a message whose fate is not known: (channel, number of the send).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MessageId {
    /// The channel, as in the wait records.
    pub channel: u64,
    /// The number of the send on this channel.
    pub number: u64,
}

/// What became of a send that did not end in `Ok`. The value is in it.
///
/// Of [`send_from`](crate::Sender::send_from) the value is in the caller's slot instead, and `T` is `()`.
#[derive(Clone, PartialEq, Eq)]
// Exhaustive: that there are these two and `Ok`, and no fourth, is rule 2.
pub enum SendError<T> {
    /// No receive has taken the value, and none will.
    NotTaken {
        /// What was to be sent.
        value: T,
        /// Why it was not.
        why: Why,
    },
    /// The receiver's node is lost for good, and nobody can know whether a receive took the value.
    Unknown {
        /// What was to be sent, and perhaps was.
        value: T,
        /// Names the message, to recognise it should the other side speak of it later.
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

    /// Why the value was not taken; `None` if that is not known.
    pub fn why(&self) -> Option<&Why> {
        match self {
            Self::NotTaken { why, .. } => Some(why),
            Self::Unknown { .. } => None,
        }
    }

    /// Whether the channel had ended: receiver gone, or retired.
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

// Neither shows the value: an error must be printable for every `T`.
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

/// What became of a send of a [`Broadcast`](crate::Broadcast) that not everybody got.
#[derive(Clone, PartialEq, Eq)]
pub struct BroadcastError<T> {
    /// What was to be sent.
    pub value: T,
    /// Why some receiver that is still there has not got it, or why none has.
    pub why: Why,
    /// How many receivers have got it all the same.
    pub received: usize,
}

impl<T> BroadcastError<T> {
    /// The value that was to be sent.
    pub fn into_value(self) -> T {
        self.value
    }

    /// Whether nobody can receive any more: it was retired, or too few have joined and nobody can.
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

/// What became of a send of a [`Broadcast`](crate::Broadcast) that did not wait for all
/// ([`complete_until`](crate::Broadcasting::complete_until)).
#[derive(Clone, PartialEq, Eq)]
pub enum CompleteError<T> {
    /// Some receivers had not received the value when the wait for them was over.
    Incomplete {
        /// What was to be sent.
        value: T,
        /// How many receivers have it.
        received: usize,
        /// How many have not, and never will: it was withdrawn, or their channels refused it.
        withdrawn: usize,
        /// Of how many that is not known: their nodes have not answered. If one of them has not received the
        /// value when it hears of the end, it never will.
        unknown: usize,
    },
    /// The send had ended before, or was poisoned: as one that waits for all.
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

/// How a send has failed, as long as its value is not beside it.
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

/// Why a receive got nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecvError {
    /// All senders are gone or the channel was retired, and what was in it has been received.
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
    #[error("the deadline passed before a value came")]
    TimedOut,
    /// Nothing was there at once.
    #[error("no value was there at once")]
    WouldBlock,
    /// The deadline passed, and nothing is at the other end yet: the text says what is missing and what to
    /// do. Of an end that was declared under a name.
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
    /// Whether the channel ended in order.
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
    /// The end is claimed, or others are in line before.
    #[error("the end is claimed, or others are in line before")]
    WouldBlock,
    /// The node that keeps the shared end has left or was lost, or the node of this handle has left.
    #[error("the node that keeps the shared end has left or was lost, or the node of this handle has left")]
    NodeLost,
    /// The shared face cannot come to this node, and says why. It stays where it is kept, and can be claimed
    /// there.
    #[error("the shared face cannot come to this node: {0}")]
    Unsendable(Reason),
}

/// Why a barrier was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SyncError {
    /// The deadline of the operation passed first.
    #[error("the deadline passed before all parties of the barrier were there")]
    TimedOut,
    /// The node that keeps the barrier has left or was lost, or one in between, or the node of this enrolment
    /// has left. Whether the phase took place is not known.
    #[error(
        "the node that keeps the barrier has left or was lost, or the node of this enrolment has left; whether the phase took place is not known"
    )]
    NodeLost,
}

/// What became of a call that got no reply.
#[derive(Clone, PartialEq, Eq)]
pub enum CallError<Q> {
    /// The request was not taken; it is in the error.
    NotTaken {
        /// The request.
        request: Q,
        /// Why it was not taken.
        why: Why,
    },
    /// The request was taken, but no reply will come: the server dropped it, ended or was poisoned.
    NoReply(RecvError),
    /// The server's node is lost, and nobody can know whether the request was taken.
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

/// What a panic says.
pub fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a text").to_owned()
}
