//! The interface to the carrier of a message: ends go beside the bytes.
//!
//! A message is handed over in three steps, and before the last one it is unchanged:
//! 1. *Encode.* [`Outbox::encode`] runs the serializer. Each end in the message is *staged*, and written as
//!    its number among them. The message still holds its ends. If the serializer fails or panics, nothing is
//!    staged.
//! 2. *Carry.* [`Outbox::seal`] fixes the encoding to be sent. The carrier keeps the message and the
//!    [`Sealed`] until it knows that the message was taken. If the message was refused, the carrier drops the
//!    `Sealed`, and the message is unchanged: it is never rebuilt.
//! 3. *Hand over.* [`Sealed::commit`] consumes the message and returns its ends as [`CarriedEnd`]s: from then
//!    on these are the ends. Dropping one is like a drop by its holder.
//!
//! On the other side [`Inbox::decode`] runs the deserializer, which takes each end by its number, once. Ends
//! that it does not take (for a field that this version does not know) are dropped as if by their holder. A
//! failed decoding changes nothing: all ends are still in the inbox, and are dropped with it.
//!
//! A thread-local variable selects the outbox or inbox for the duration of the call. Calls nest: within one,
//! a message can be encoded for another carrier.
//!
//! # One holder
//! Whether a message is the only owner of its ends cannot be seen from outside (`Arc<Mutex<Sender<T>>>`),
//! only found out by dropping it. A channel counts the values that stand for each of its unshared ends. The
//! hand-over makes one more, drops the message, and checks whether the new value is the only one. If another
//! value lives on, in whatever way, *that* one stays the end, fully usable, and the new one never leaves the
//! hand-over: [`CarryError::Kept`]. The alternative, to disable the old value, would need a check in every
//! operation on any end, and would take an end from a process that never sent it. This is also what a carrier
//! between nodes can do: the other side learns that the end has not come, as it does if the sending node
//! dies.
//!
//! In the same way an inbox keeps each end until the decoding is over, and the deserializer gets one more
//! value: if that is dropped on the way, the end is still there.
//!
//! # A carrier between nodes
//! Between nodes the ends stay: an end in a message becomes two *agents* ([`crate::agent`]), one on each
//! side, which the carrier drives by frames. The steps of a node in the protocol of `mobility.md`:
//!
//! | step | sending side | reading side |
//! |---|---|---|
//! | stage | [`Outbox::encode`], [`Sealed::ends`]: per end its token, its kind, and the channel, by which the carrier recognises a half that is its own proxy. It writes its own data about each (channel, home, epoch) *beside* the body, by token. Nothing has happened | |
//! | refuse before | drops the `Sealed`, returns the value | |
//! | adopt | keeps value and `Sealed` until the answer arrives; the ends work | [`Inbox::expect`] per end, [`Inbox::decode`], [`Inbox::into_adopted`]: the value holds ends of fresh halves, whose agents are not driven yet |
//! | ack | [`Sealed::commit`], [`CarriedEnd::into_agent`]: here the agent takes the end's place | the value was taken ([`FromReceiver::Taken`]): drives the agents from now on |
//! | roll back | drops the `Sealed`, returns the value ([`Outlet::failed`]): it was never touched | drops the value and its agents: no other party has seen them |
//!
//! So the `Sealed` holds the staged ends, its `commit` commits them and its drop rolls them back, and a token
//! is a number. There is no callback, because the carrier needs none: to describe or refuse an end, it uses
//! the list. Frames after the ack find the agents in place, since both sides install them before they send or
//! receive anything more.
//!
//! The carrier never knows the type `T` of a channel. An [`AnyOutlet`] or [`AnyInlet`] has [`Value`]s, which
//! are [written](Write) in one of two [`Format`]s, within [`Outbox::encode`], and read by the channel's
//! [`Shape`], within [`Inbox::decode`]. The ends in them are staged and adopted in the same way, so a
//! `Sender<Sender<T>>`, or a protocol that sends its own channels, needs nothing more. There are two ways to
//! make a first agent: from an end in a message, and `AnyOutlet::from(Outlet::new(receiver))`.
//!
//! Four rules for carriers:
//! - An end that was in use keeps its state: the `Outlet` of a receiver emits its buffered values first, and
//!   then offers the waiting ones. The channel's *policy* goes beside it: the carrier passes it to the new
//!   half, in `expect`.
//! - An end of a half that the carrier adopted itself (it knows the channel) must not get a second agent: a
//!   half has one, and does not forward. At the hand-over the carrier drops that end and its agent, once it
//!   has recalled their pending operations, and sets up a link between the reader and the channel's home. For
//!   an end that returns home there is no way yet to turn the agent that stands there back into the end.
//! - Ends with several holders ([`EndKind::Shared`] and its kin, [`EndKind::Barrier`]), and those of a
//!   broadcast, have one or several agents, each for a channel of its own that the carrier makes for it. On
//!   each side they have a [`Chore`]: a future that the carrier has to run. The end itself, or the barrier,
//!   stays ([`share`](crate::End::share), [`barrier`](crate::barrier())).
//! - After an [`EndKind::Reply`] was adopted the reply is put into a slot there, so that replying never
//!   waits; the reply counts as given then.
//!
//! `tests/portable_bytes.rs` is a small carrier of this kind.
//!
//! [`FromReceiver::Taken`]: crate::agent::FromReceiver::Taken
//! [`Outlet::failed`]: crate::agent::Outlet::failed

use std::any::{Any, type_name};
use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::num::NonZeroUsize;
use std::sync::{Arc, Weak};
#[cfg(feature = "link")]
use std::task::{Poll, Waker};
use std::thread::LocalKey;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};

#[cfg(feature = "link")]
pub use super::agents::WordSink;
pub use super::agents::{Agent, AnyInlet, AnyOutlet, Chore, Joining, Several, Shape, Value};
pub use super::codec::{DEPTH_MAX, Failure, Format, Sink, Write, read_value};
#[cfg(feature = "link")]
pub use super::scratch::{Scratch, catch, kept};
use crate::channel::policy::{Bound, Kind, Overflow, Policy, rendezvous};
#[cfg(feature = "link")]
pub use crate::channel::queue::standby::{Open, Returned};
use crate::waits::ChannelId;

/// The kind of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum EndKind {
    /// A [`Sender`](crate::Sender).
    Sender {
        /// Whether it has the power to poison.
        may_poison: bool,
    },
    /// A [`Receiver`](crate::Receiver).
    Receiver {
        /// Whether it has the power to poison.
        may_poison: bool,
    },
    /// A handle of a [`Shared`](crate::Shared) face of a bundle.
    Shared,
    /// A handle of a shared [`Sender`](crate::Sender), or [`Caller`](crate::Caller).
    SharedSender,
    /// A handle of a shared [`Receiver`](crate::Receiver).
    SharedReceiver,
    /// An enrolment on a [`Barrier`](crate::Barrier).
    Barrier,
    /// The sending end of a [broadcast](crate::Broadcast).
    Broadcast,
    /// A [`Joiner`](crate::Joiner) of a broadcast.
    Joiner {
        /// Whether the receivers that join have the power to poison.
        may_poison: bool,
    },
    /// A [`Caller`](crate::Caller).
    Caller,
    /// A [`Callee`](crate::Callee).
    Callee,
    /// A [`Reply`](crate::Reply).
    Reply,
}

impl EndKind {
    /// The name of the newtype struct as which serde writes such an end; inside is its number, a `u64`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sender { .. } => "dunlin::Sender",
            Self::Receiver { .. } => "dunlin::Receiver",
            Self::Shared | Self::SharedSender | Self::SharedReceiver => "dunlin::Shared",
            Self::Barrier => "dunlin::Barrier",
            Self::Broadcast => "dunlin::Broadcast",
            Self::Joiner { .. } => "dunlin::Joiner",
            Self::Caller => "dunlin::Caller",
            Self::Callee => "dunlin::Callee",
            Self::Reply => "dunlin::Reply",
        }
    }
}

impl EndKind {
    /// The display name of the end, also its name for type tracers.
    ///
    /// A tracer is a deserializer that finds out the structure of a type, and has no bytes. For the newtype
    /// struct of an end ([`name`](Self::name)) it calls `visit_enum`. The seed for the variant then
    /// deserializes an enum with the end's label as its name, and the end's message types as its variants.
    /// The tracer returns the number of the variant that it wants to trace, and the end reads a newtype
    /// variant with a message of that type; or it returns [`NOTHING`](Self::NOTHING), and the end reads a
    /// unit variant. The result is an end whose other end is gone.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Sender { may_poison: true } => "sender",
            Self::Sender { may_poison: false } => "sender that may not poison",
            Self::Receiver { may_poison: true } => "receiver",
            Self::Receiver { may_poison: false } => "receiver that may not poison",
            Self::Shared => "shared face",
            Self::SharedSender => "shared sender",
            Self::SharedReceiver => "shared receiver",
            Self::Barrier => "enrolment on a barrier",
            Self::Broadcast => "broadcast",
            Self::Joiner { may_poison: true } => "joiner of a broadcast",
            Self::Joiner { may_poison: false } => "joiner of a broadcast that may not poison",
            Self::Caller => "caller",
            Self::Callee => "callee",
            Self::Reply => "place for a reply",
        }
    }

    /// See [`label`](Self::label).
    pub const NOTHING: u32 = u32::MAX;
}

impl fmt::Display for EndKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// Why an end could not be written into a message, or read from one.
///
/// Serde's errors are the format's own, and carry only the text of this error. The carrier finds it in
/// [`Outbox::error`] or [`Inbox::error`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CarryError {
    /// An end was written outside of [`Outbox::encode`].
    #[error("an end can only travel inside a message on a dunlin channel")]
    NotCarried,
    /// An end was read outside of [`Inbox::decode`].
    #[error("an end can only be read from a message that came over a dunlin channel")]
    NotArrived,
    /// The same end was written twice.
    #[error("the same {kind} is in this message twice, and only one can hold it")]
    Twice {
        /// Its kind.
        kind: EndKind,
    },
    /// [`Outbox::seal`] without an encoding that succeeded.
    #[error("no message has been encoded")]
    NotEncoded,
    /// No end with this number came with the message.
    #[error("the message names end {token}, which did not come with it")]
    NoSuchEnd {
        /// The number.
        token: u64,
    },
    /// At the hand-over another owner still holds the end, which stays there.
    #[error(
        "end {token} of the message, a {kind}, is held elsewhere too and stays there; `share()` it to have it in both places"
    )]
    Kept {
        /// The end's number.
        token: u64,
        /// Its kind.
        kind: EndKind,
    },
    /// At the hand-over the end had been dropped.
    #[error("end {token} of the message, a {kind}, was dropped before the message was handed over")]
    Gone {
        /// The end's number.
        token: u64,
        /// Its kind.
        kind: EndKind,
    },
    /// The end was read before, from the same message, and its reader holds it.
    #[error("the message names end {token} twice, or was read twice")]
    Taken {
        /// The end's number.
        token: u64,
    },
    /// The end is of another kind.
    #[error("end {token} of the message is a {found}; a {expected} was expected")]
    WrongKind {
        /// The end's number.
        token: u64,
        /// The kind that the reader expects.
        expected: EndKind,
        /// The kind of the end.
        found: EndKind,
    },
    /// An end in a shared face that stays where it is kept and is used from elsewhere: this kind does not
    /// support that.
    #[error(
        "the face has been at nodes of another application of its program, and its ends stay there; a {kind} does not \
         support that"
    )]
    NotLent {
        /// Its kind.
        kind: EndKind,
    },
    /// The kind is right, but not the type of its messages.
    #[error("end {token} of the message is a `{found}`; a `{expected}` was expected")]
    WrongType {
        /// The end's number.
        token: u64,
        /// The type that the reader expects.
        expected: &'static str,
        /// The type of the end.
        found: &'static str,
    },
}

/// The policy of a channel, as it is sent to a node that the receiver moves to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyNote {
    kind: Kind,
    senders: Option<(NonZeroUsize, Overflow)>,
    receivers: Option<(NonZeroUsize, Overflow)>,
    immunity: u8,
}

impl PolicyNote {
    /// `None`: a user-defined policy, which no other program has.
    pub(super) fn of(policy: &Policy) -> Option<Self> {
        let bound = |bound: Option<Bound>| bound.and_then(|b| Some((NonZeroUsize::new(b.max as usize)?, b.overflow)));
        policy.is_portable().then(|| Self {
            kind: policy.kind,
            senders: bound(policy.senders),
            receivers: bound(policy.receivers),
            immunity: policy.immunity.as_u8(),
        })
    }

    /// The policy. `None`: the note encodes none.
    pub fn policy(self) -> Option<Policy> {
        let mut policy = self.kind.policy()?.immunity(self.immunity);
        if let Some((max, overflow)) = self.senders {
            policy = policy.pending_senders(max.get(), overflow);
        }
        if let Some((max, overflow)) = self.receivers {
            policy = policy.pending_receivers(max.get(), overflow);
        }
        Some(policy)
    }
}

/// Identifies an end: one that is in a message twice would have two holders afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The sending side of the channel at this address.
    Sending(usize),
    /// Its receiving side.
    Receiving(usize),
    /// The handle of a shared end that has this wait record.
    Handle(u32),
}

/// Makes another value that stands for the end, unless the end is gone. The next drop of such a value then
/// has no effect.
pub(crate) type Another<E> = Box<dyn FnOnce() -> Option<E> + Send>;

/// The state that an agent beside a [lent](lending) end keeps alive.
pub(crate) type Keeps = Arc<dyn Any + Send + Sync>;

/// Ready when the end has no unsettled operation; else wakes the waker when that is so.
#[cfg(feature = "link")]
pub(crate) type Unsettled = Box<dyn Fn(&Waker) -> Poll<()> + Send>;

/// Makes the agent of a lent end, when the message has been taken.
pub(crate) type MakesAgent = Box<dyn FnOnce() -> Agent + Send>;

/// An end that can be staged.
pub(crate) trait Mobile: Send + Sized + 'static {
    /// The names of the message types that it carries.
    const MESSAGES: &'static [&'static str];

    /// Reads a message of the type with this number: see [`EndKind::label`].
    fn trace<'de, A: de::VariantAccess<'de>>(index: u32, access: A) -> Result<(), A::Error>;
    fn kind() -> EndKind;
    /// `None`: no other value can stand for this end.
    fn place(&self) -> Option<Place>;
    fn another(&self) -> Another<Self>;
    /// Whether more than one value stands for the end.
    fn is_several(&self) -> bool;
    /// This value if no other one stands for the end; else `None`, and there is one value less.
    fn alone(self) -> Option<Self>;
    /// The channel, if it is one.
    fn channel(&self) -> Option<ChannelId>;
    /// For a receiving end, and a broadcast: the channels' policy, if it can be sent.
    fn policy(&self) -> Option<PolicyNote>;
    /// Whether the channel's other half is elsewhere, so that this one would have agents at both ends.
    fn is_stretched(&self) -> bool;
    /// The end is about to leave in a message: notifies a carrier that waits for the channel's other end.
    fn leaves(&self) {}
    /// Whether its channel has an offer that only a receive can take, or has ended.
    fn is_busy(&self) -> bool;
    /// Replaces the end, which is elsewhere from now on, with an agent.
    fn into_agent(self) -> Agent;
    /// For an end with one holder: returns what makes an agent beside it, through which another node uses it.
    /// The end stays here, and `keeps` lives as long as the agent. `None`: it cannot be lent.
    fn lend(&self, _keeps: &Keeps) -> Option<MakesAgent> {
        None
    }
    /// For the only handle of a shared end that is kept here: that end.
    fn unshared(self) -> Result<Value, Self> {
        Err(self)
    }
    /// Makes an end here of a channel that is elsewhere, and the agent through which it is reached.
    fn adopt(policy: &Policy) -> (Self, Agent);
    /// Asks for the results of its unsettled operations, and is ready when all are settled. `None`: there are
    /// none.
    #[cfg(feature = "link")]
    fn unsettled(&self) -> Option<Unsettled> {
        None
    }
    /// For a handle of a shared end: that end.
    fn shared_end(&self) -> Option<SharedEnd> {
        None
    }
    /// For an [adopted](Self::adopt) handle of a shared end: sets the end's number at its keeper. `is_here`:
    /// the end is kept here, as another type.
    fn has_number(&self, _number: u128, _is_here: bool) {}
    /// For an [adopted](Self::adopt) end: sets the carrier that brought it.
    fn brought_by(&self, _carrier: u64) {}
    /// For an end that only the carrier that brought it can take on: that carrier.
    fn carrier(&self) -> Option<u64> {
        None
    }
}

/// A shared end that has a handle in a message: see [`Sealed::shared_end`]. This keeps the end alive.
#[derive(Clone)]
pub struct SharedEnd(Arc<dyn AnyShared>);

/// A shared end with its type erased.
pub(crate) trait AnyShared: Send + Sync {
    fn number(&self, new: &mut dyn FnMut() -> u128) -> u128;
    fn is_here(&self) -> bool;
    fn handle(self: Arc<Self>, token: u64) -> CarriedEnd;
}

impl SharedEnd {
    pub(crate) fn new(end: Arc<dyn AnyShared>) -> Self {
        Self(end)
    }

    /// The end's number, which goes with its handles to each node. An end that has none gets a `new` one,
    /// which must be unique among all nodes.
    pub fn number(&self, mut new: impl FnMut() -> u128) -> u128 {
        self.0.number(&mut new)
    }

    /// Whether the end is kept in this program. `None`: elsewhere.
    pub fn kept(&self) -> Option<WeakSharedEnd> {
        self.0.is_here().then(|| WeakSharedEnd(Arc::downgrade(&self.0)))
    }
}

impl fmt::Debug for SharedEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedEnd").field("is_here", &self.0.is_here()).finish()
    }
}

/// A shared end that a carrier knows, and does not keep alive.
#[derive(Clone)]
pub struct WeakSharedEnd(Weak<dyn AnyShared>);

impl WeakSharedEnd {
    /// Whether the end still has a handle.
    pub fn is_there(&self) -> bool {
        self.0.strong_count() > 0
    }

    /// The end, if it still has a handle.
    pub fn upgrade(&self) -> Option<SharedEnd> {
        self.0.upgrade().map(SharedEnd)
    }
}

impl fmt::Debug for WeakSharedEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeakSharedEnd").field("is_there", &self.is_there()).finish()
    }
}

/// An end with its type erased.
trait AnyEnd: Send {
    fn as_any(&self) -> &dyn Any;
    fn into_any(self: Box<Self>) -> Box<dyn Any + Send>;
    fn is_several(&self) -> bool;
    fn alone(self: Box<Self>) -> Option<Box<dyn AnyEnd>>;
    fn channel(&self) -> Option<ChannelId>;
    fn into_agent(self: Box<Self>) -> Agent;
    fn unshared(self: Box<Self>) -> Result<Value, Box<dyn AnyEnd>>;
}

impl<E: Mobile> AnyEnd for E {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }

    fn is_several(&self) -> bool {
        Mobile::is_several(self)
    }

    fn alone(self: Box<Self>) -> Option<Box<dyn AnyEnd>> {
        Mobile::alone(*self).map(|end| Box::new(end) as Box<dyn AnyEnd>)
    }

    fn channel(&self) -> Option<ChannelId> {
        Mobile::channel(self)
    }

    fn into_agent(self: Box<Self>) -> Agent {
        Mobile::into_agent(*self)
    }

    fn unshared(self: Box<Self>) -> Result<Value, Box<dyn AnyEnd>> {
        Mobile::unshared(*self).map_err(|end| Box::new(end) as Box<dyn AnyEnd>)
    }
}

/// An end that is used elsewhere and stays where it is.
struct LentEnd(MakesAgent);

impl AnyEnd for LentEnd {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }

    fn is_several(&self) -> bool {
        false
    }

    fn alone(self: Box<Self>) -> Option<Box<dyn AnyEnd>> {
        Some(self)
    }

    fn channel(&self) -> Option<ChannelId> {
        None
    }

    fn into_agent(self: Box<Self>) -> Agent {
        self.0()
    }

    fn unshared(self: Box<Self>) -> Result<Value, Box<dyn AnyEnd>> {
        Err(self)
    }
}

/// A staged end: the data that a carrier can get before the hand-over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StagedEnd {
    /// Its number in the message.
    pub token: u64,
    /// Its kind.
    pub kind: EndKind,
    /// The channel of the end, as in the wait records: for a call channel that of the requests, for a shared
    /// end none. While either end lives no other channel has this number, so a carrier recognises its own
    /// halves by it.
    pub channel: Option<ChannelId>,
    /// For a receiving end, and for both ends of a broadcast: the channels' policy. `None`: a user-defined
    /// policy, which no other program has.
    pub policy: Option<PolicyNote>,
    /// Its channel's other half is elsewhere already. An agent in its place would have to forward the events
    /// of another agent, and no agent does: a carrier that cannot notify that half of the end's new place has
    /// to refuse it.
    pub stretched: bool,
    /// Its channel has an offer that only a receive can take (it was posted), or has ended. Then its two ends
    /// cannot go together: no party would be left here to report that.
    pub busy: bool,
    /// For a handle of a shared end that is kept elsewhere, and for a joiner of a broadcast that is
    /// elsewhere: the carrier that brought it ([`Inbox::by`]). Once the end is sent on, some of its messages
    /// still have to go where it came from, so another carrier has to refuse it.
    pub carrier: Option<u64>,
}

struct Staged {
    end: StagedEnd,
    place: Option<Place>,
    shared: Option<SharedEnd>,
    another: AnotherCarried,
    #[cfg(feature = "link")]
    unsettled: Option<Unsettled>,
}

/// Makes, under this number, another value that stands for the end, unless the end is gone.
type AnotherCarried = Box<dyn FnOnce(u64) -> Option<CarriedEnd> + Send>;

/// Whether an end of this kind can have several values, so that one more can go.
fn is_held_by_many(kind: EndKind) -> bool {
    matches!(kind, EndKind::Shared | EndKind::SharedSender | EndKind::SharedReceiver | EndKind::Joiner { .. })
}

/// Most messages have no ends, and leave this empty: it is one word, and its drop does nothing.
#[derive(Default)]
struct Staging(Option<Box<StagedEnds>>);

#[derive(Default)]
struct StagedEnds {
    /// Indexed by the ends' numbers.
    ends: Vec<Staged>,
    error: Option<CarryError>,
    /// The ends that are written now are lent, and their agents keep this alive.
    lends: Option<Keeps>,
}

impl Staging {
    #[cfg(feature = "link")]
    fn ends(&self) -> &[Staged] {
        self.0.as_ref().map_or(&[], |staged| &staged.ends)
    }

    fn error(&self) -> Option<&CarryError> {
        self.0.as_ref()?.error.as_ref()
    }

    fn lends(&self) -> Option<Keeps> {
        self.0.as_ref()?.lends.clone()
    }
}

thread_local! {
    static STAGING: RefCell<Option<Staging>> = const { RefCell::new(None) };
    static ARRIVING: RefCell<Option<Arriving>> = const { RefCell::new(None) };
}

/// Moves `own` into the thread's variable until this is dropped, also by a panic. The drop restores `own` and
/// the variable's previous value.
struct Installed<'a, T: 'static> {
    key: &'static LocalKey<RefCell<Option<T>>>,
    before: Option<T>,
    own: &'a mut T,
}

impl<'a, T: Default> Installed<'a, T> {
    fn new(key: &'static LocalKey<RefCell<Option<T>>>, own: &'a mut T) -> Self {
        let before = exchange(key, Some(std::mem::take(own)));
        Self { key, before, own }
    }
}

impl<T: 'static> Drop for Installed<'_, T> {
    fn drop(&mut self) {
        if let Some(own) = exchange(self.key, self.before.take()) {
            *self.own = own;
        }
    }
}

/// The variables of a thread that is ending are gone: then nothing is installed, and ends are refused.
fn exchange<T>(key: &'static LocalKey<RefCell<Option<T>>>, value: Option<T>) -> Option<T> {
    key.try_with(|current| current.replace(value)).ok().flatten()
}

/// Calls `f` with the installed value. `f` runs no user code: the variable is borrowed.
fn installed<T, R>(key: &'static LocalKey<RefCell<Option<T>>>, f: impl FnOnce(&mut T) -> R) -> Option<R> {
    key.try_with(|current| current.borrow_mut().as_mut().map(f)).ok().flatten()
}

/// Collects the ends of one message while it is encoded: see the [module](self).
///
/// # Examples
/// A refused message is still whole:
/// ```
/// use dunlin_core::carrier::Outbox;
/// use dunlin_core::{channel_with, fifo};
///
/// let (tx, mut rx) = channel_with(fifo(1));
/// let message = (7, tx);
///
/// let mut outbox = Outbox::new();
/// outbox.encode(|| serde_json::to_string(&message)).unwrap();
/// let sealed = outbox.seal().unwrap();
/// drop(sealed); // the other side would not have it
///
/// let (n, mut tx) = message;
/// tx.try_send(n).unwrap();
/// assert_eq!(rx.try_recv(), Ok(7));
/// ```
///
/// Without a carrier an end cannot be written:
/// ```
/// let (tx, _rx) = dunlin_core::channel::<u8>();
/// let error = serde_json::to_string(&tx).unwrap_err();
/// assert_eq!(error.to_string(), "an end can only travel inside a message on a dunlin channel");
/// ```
#[derive(Default)]
pub struct Outbox {
    staging: Staging,
    encoded: bool,
}

impl Outbox {
    /// An outbox with nothing in it.
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs `encode`, which serialises the message, and stages its ends on this thread.
    ///
    /// A second call starts afresh: the last one counts. So a first call can find out the size.
    ///
    /// # Errors
    /// Those of `encode`. Then nothing is staged, as after a panic.
    pub fn encode<R, E>(&mut self, encode: impl FnOnce() -> Result<R, E>) -> Result<R, E> {
        self.encoded = false;
        self.staging = Staging::default();
        let encoding = Installed::new(&STAGING, &mut self.staging);
        let result = encode();
        drop(encoding);
        self.encoded = result.is_ok();
        if let Some(staged) = &mut self.staging.0 {
            if self.encoded {
                staged.error = None;
            } else {
                staged.ends.clear();
            }
        }
        result
    }

    /// Why the last encoding failed, if an end caused it.
    pub fn error(&self) -> Option<&CarryError> {
        self.staging.error()
    }

    /// Ready if all ends of the message are at rest: none has an operation whose result is still to come from
    /// the other node. The poll asks for these results. An end that is not at rest cannot leave, so the
    /// message has to be encoded again then.
    #[cfg(feature = "link")]
    pub(crate) fn poll_rest(&self, waker: &Waker) -> Poll<()> {
        let unsettled = self.staging.ends().iter().filter_map(|staged| staged.unsettled.as_ref());
        // Polls each of them.
        unsettled.map(|poll| poll(waker)).fold(Poll::Ready(()), |all, one| if all.is_pending() { all } else { one })
    }

    /// Whether the message has ends.
    #[cfg(feature = "link")]
    pub(crate) fn has_ends(&self) -> bool {
        !self.staging.ends().is_empty()
    }

    /// Fixes the encoding to be sent.
    ///
    /// # Errors
    /// [`CarryError::NotEncoded`] if the last encoding failed, or there was none.
    pub fn seal(self) -> Result<Sealed, CarryError> {
        if self.encoded {
            Ok(Sealed { ends: self.staging.0.map_or_else(Vec::new, |staged| staged.ends) })
        } else {
            Err(CarryError::NotEncoded)
        }
    }
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").field("encoded", &self.encoded).finish_non_exhaustive()
    }
}

/// The ends of a message in transit: see the [module](self). Dropping it changes nothing.
#[must_use = "without `commit` the ends stay where they are"]
pub struct Sealed {
    ends: Vec<Staged>,
}

impl Sealed {
    /// The ends, in the order of their numbers.
    pub fn ends(&self) -> impl ExactSizeIterator<Item = StagedEnd> {
        self.ends.iter().map(|staged| staged.end)
    }

    /// The shared end of which this end is a handle, if it is one. Its number goes along with the handle
    /// ([`Inbox::expect_handle`]).
    pub fn shared_end(&self, token: u64) -> Option<&SharedEnd> {
        self.ends.iter().find(|staged| staged.end.token == token)?.shared.as_ref()
    }

    /// The message was taken, and its owner drops it later: returns its ends, in the order of their numbers.
    /// One drop of each of them has no effect. `None`: the end is gone.
    #[cfg(feature = "link")]
    pub fn hand_over(self) -> impl Iterator<Item = Option<CarriedEnd>> {
        self.ends.into_iter().map(|staged| (staged.another)(staged.end.token))
    }

    /// The message was taken: consumes it, and returns its ends, in the order of their numbers.
    ///
    /// # Errors
    /// [`NotHandedOver`] if not all ends went along, because `message` was not their only owner, or was not
    /// the encoded one. The message is consumed all the same: it was taken.
    pub fn commit<M>(self, message: M) -> Result<Vec<CarriedEnd>, NotHandedOver> {
        let moving: Vec<_> =
            self.ends.into_iter().map(|staged| (staged.end, (staged.another)(staged.end.token))).collect();
        // Now, while one drop of each of its ends has no effect. If it panics, the new ends are dropped after
        // it.
        drop(message);
        let mut outcome = NotHandedOver { ends: Vec::new(), refused: Vec::new() };
        for (StagedEnd { token, kind, .. }, end) in moving {
            match end.map(CarriedEnd::alone) {
                Some(Some(end)) => outcome.ends.push(end),
                Some(None) => outcome.refused.push(CarryError::Kept { token, kind }),
                None => outcome.refused.push(CarryError::Gone { token, kind }),
            }
        }
        if outcome.refused.is_empty() { Ok(outcome.ends) } else { Err(outcome) }
    }
}

/// The outcome of a hand-over in which not all ends went along.
#[derive(Debug)]
pub struct NotHandedOver {
    /// The ends that did. The message owned them; dropping one is like a drop by its holder.
    pub ends: Vec<CarriedEnd>,
    /// Why each of the others did not: [`CarryError::Kept`] or [`CarryError::Gone`].
    pub refused: Vec<CarryError>,
}

impl fmt::Display for NotHandedOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, refused) in self.refused.iter().enumerate() {
            write!(f, "{}{refused}", if n == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

impl std::error::Error for NotHandedOver {}

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.ends()).finish()
    }
}

/// An end between two holders. Dropping it is like a drop by its holder.
#[must_use = "dropped, the end leaves its channel"]
pub struct CarriedEnd {
    token: u64,
    kind: EndKind,
    type_name: &'static str,
    end: Box<dyn AnyEnd>,
}

impl CarriedEnd {
    pub(crate) fn new<E: Mobile>(token: u64, end: E) -> Self {
        Self { token, kind: E::kind(), type_name: type_name::<E>(), end: Box::new(end) }
    }

    /// Its number in the message.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// Its kind.
    pub fn kind(&self) -> EndKind {
        self.kind
    }

    /// The end itself: a `Sender<T, P>`, or the type of its kind.
    pub fn into_any(self) -> Box<dyn Any + Send> {
        self.end.into_any()
    }

    /// The channel of the end: see [`StagedEnd::channel`].
    pub fn channel(&self) -> Option<ChannelId> {
        self.end.channel()
    }

    /// Replaces the end with an agent: the end is elsewhere from now on, and the carrier drives the agent.
    pub fn into_agent(self) -> Agent {
        self.end.into_agent()
    }

    /// For the only handle of a shared end: the end itself, which is no longer shared, as a message that
    /// holds its own ends.
    ///
    /// # Errors
    /// If it is no such handle, there are other handles, or the end is claimed or kept at another node.
    pub fn unshared(self) -> Result<Value, Self> {
        let Self { token, kind, type_name, end } = self;
        end.unshared().map_err(|end| Self { token, kind, type_name, end })
    }

    fn alone(self) -> Option<Self> {
        let Self { token, kind, type_name, end } = self;
        Some(Self { token, kind, type_name, end: end.alone()? })
    }

    /// The end as an `E`, or why it cannot be read as one.
    fn get<E: Mobile>(&self) -> Result<&E, CarryError> {
        let token = self.token;
        self.end.as_any().downcast_ref().ok_or_else(|| {
            if self.kind != E::kind() {
                CarryError::WrongKind { token, expected: E::kind(), found: self.kind }
            } else {
                CarryError::WrongType { token, expected: type_name::<E>(), found: self.type_name }
            }
        })
    }
}

impl fmt::Debug for CarriedEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CarriedEnd").field("token", &self.token).field("type", &self.type_name).finish()
    }
}

struct Arrival {
    token: u64,
    /// `None` once the reader has it, and for an end that is elsewhere until it is adopted.
    end: Option<CarriedEnd>,
    /// Its channel is elsewhere.
    far: Option<Far>,
}

struct Far {
    kind: EndKind,
    policy: Policy,
    /// The agent of the adopted end.
    agent: Option<Agent>,
    /// For a handle: the number of its end.
    number: Option<u128>,
    /// A handle of an end that is kept here, but is read as another type.
    other: Option<CarriedEnd>,
}

/// The result for an end whose channel is elsewhere: see [`Inbox::expect`].
#[derive(Debug)]
#[non_exhaustive]
pub struct AdoptedEnd {
    /// Its number in the message.
    pub token: u64,
    /// Its kind.
    pub kind: EndKind,
    /// The agent through which it is reached. `None`: the message was decoded without this end.
    pub agent: Option<Agent>,
}

#[derive(Default)]
struct Arriving {
    /// In order of their numbers.
    ends: Vec<Arrival>,
    error: Option<CarryError>,
    /// The message has been read: the inbox has no more ends.
    decoded: bool,
    /// The carrier that brought the message.
    carrier: Option<u64>,
}

impl Arriving {
    /// Makes another value for the end, beside the one that is kept here until the decoding is over.
    fn take<E: Mobile>(&mut self, token: u64) -> Result<E, CarryError> {
        let index = self.ends.binary_search_by_key(&token, |arrival| arrival.token);
        let arrival = index.ok().and_then(|index| self.ends.get_mut(index)).ok_or(CarryError::NoSuchEnd { token })?;
        if self.decoded {
            return Err(CarryError::Taken { token });
        }
        arrival.adopt::<E>(self.carrier)?;
        let end: &E = arrival.end.as_ref().ok_or(CarryError::Taken { token })?.get()?;
        if end.is_several() {
            return Err(CarryError::Taken { token });
        }
        end.another()().ok_or(CarryError::Taken { token })
    }

    /// The decoding is over. If it succeeded, drops the values kept here for all ends, read or not. If it
    /// failed, the ends stay, except those that another value still stands for.
    fn settle(&mut self, decoded: bool) {
        if self.decoded {
            return;
        }
        self.decoded = decoded;
        for arrival in &mut self.ends {
            match &mut arrival.far {
                // The end can be adopted again.
                Some(far) if !decoded => (arrival.end, far.agent) = (None, None),
                _ => drop(arrival.end.take_if(|end| decoded || end.end.is_several())),
            }
        }
    }
}

impl Arrival {
    /// Makes the end, if it is elsewhere, and not made yet or made as another type.
    fn adopt<E: Mobile>(&mut self, carrier: Option<u64>) -> Result<(), CarryError> {
        let Some(far) = &mut self.far else { return Ok(()) };
        if far.kind != E::kind() {
            return Err(CarryError::WrongKind { token: self.token, expected: E::kind(), found: far.kind });
        }
        let made = match &self.end {
            None => false,
            // A failed try asked for another type, and has dropped its end.
            Some(end) => end.end.is_several() || end.get::<E>().is_ok(),
        };
        if !made {
            if far.other.as_ref().is_some_and(|other| other.get::<E>().is_ok()) {
                (self.end, far.agent) = (far.other.take(), None);
                return Ok(());
            }
            let (end, agent) = E::adopt(&far.policy);
            if far.agent.is_none() {
                // Not dropped here: it might be the last handle.
                far.other = self.end.take();
            }
            if let Some(number) = far.number {
                end.has_number(number, far.other.is_some());
            }
            if let Some(carrier) = carrier {
                end.brought_by(carrier);
            }
            (self.end, far.agent) = (Some(CarriedEnd::new(self.token, end)), Some(agent));
        }
        Ok(())
    }
}

/// The ends that came with one message, for its deserializer to take: see the [module](self).
///
/// When it is dropped, it drops its ends as if by their holder.
///
/// # Examples
/// ```
/// use dunlin_core::carrier::{CarryError, Inbox, Outbox};
/// use dunlin_core::{Receiver, Sender, channel};
///
/// let (tx, _rx) = channel::<u8>();
/// let mut outbox = Outbox::new();
/// let json = outbox.encode(|| serde_json::to_string(&tx)).unwrap();
/// let mut inbox = Inbox::new(outbox.seal().unwrap().commit(tx).unwrap());
///
/// let wrong: Result<Receiver<u8>, _> = inbox.decode(|| serde_json::from_str(&json));
/// assert_eq!(wrong.unwrap_err().to_string(), "end 0 of the message is a sender; a receiver was expected");
/// assert!(matches!(inbox.error(), Some(CarryError::WrongKind { token: 0, .. })));
///
/// // The end is still there.
/// let tx: Sender<u8> = inbox.decode(|| serde_json::from_str(&json)).unwrap();
/// assert!(!tx.is_closed());
/// ```
#[derive(Default)]
pub struct Inbox {
    arriving: Arriving,
}

impl Inbox {
    /// An inbox with the ends of one message.
    pub fn new(ends: Vec<CarriedEnd>) -> Self {
        let mut ends: Vec<_> =
            ends.into_iter().map(|end| Arrival { token: end.token, end: Some(end), far: None }).collect();
        ends.sort_by_key(|arrival| arrival.token);
        Self { arriving: Arriving { ends, error: None, decoded: false, carrier: None } }
    }

    /// An empty inbox of the carrier that has this number in this program. An end that is
    /// [expected](Self::expect) in it, and can be sent on only with that carrier, has the number
    /// ([`StagedEnd::carrier`]).
    pub fn by(carrier: u64) -> Self {
        Self { arriving: Arriving { carrier: Some(carrier), ..Arriving::default() } }
    }

    /// Announces an end whose channel is elsewhere. When it is read, this makes a half of a channel here: the
    /// reader gets this end of it, and [`into_adopted`](Self::into_adopted) the agent in the place of the
    /// other. `policy` is that of the half, if the end receives, or that of a broadcast's channels.
    ///
    /// An end with the same number is replaced.
    pub fn expect(&mut self, token: u64, kind: EndKind, policy: impl Into<Policy>) {
        self.expect_far(token, None, Far { kind, policy: policy.into(), agent: None, number: None, other: None });
    }

    /// Announces a handle of a shared end with this number ([`SharedEnd::number`]). `kept`: the end, if it is
    /// kept here. Then the reader gets one more handle of it, like a clone, and there is no agent. If it is
    /// read as another type than it was shared as, it works as if it were kept elsewhere, but cannot be sent
    /// on.
    pub fn expect_handle(&mut self, token: u64, kind: EndKind, number: u128, kept: Option<SharedEnd>) {
        let far = Far { kind, policy: rendezvous(), agent: None, number: Some(number), other: None };
        self.expect_far(token, kept.map(|end| end.0.handle(token)), far);
    }

    fn expect_far(&mut self, token: u64, end: Option<CarriedEnd>, far: Far) {
        let ends = &mut self.arriving.ends;
        let arrival = Arrival { token, end, far: Some(far) };
        match ends.binary_search_by_key(&token, |arrival| arrival.token) {
            Ok(index) => ends[index] = arrival,
            Err(index) => {
                if ends.is_empty() {
                    // Most messages have one end; a vector makes room for four.
                    ends.reserve_exact(1);
                }
                ends.insert(index, arrival);
            }
        }
    }

    /// Runs `decode`, which deserialises the message, and supplies its ends on this thread.
    ///
    /// Once it has succeeded, the ends that it did not take are dropped as if by their holder.
    ///
    /// # Errors
    /// Those of `decode`. Then all ends are still here, as after a panic.
    pub fn decode<R, E>(&mut self, decode: impl FnOnce() -> Result<R, E>) -> Result<R, E> {
        self.arriving.error = None;
        let decoding = Installed::new(&ARRIVING, &mut self.arriving);
        let result = decode();
        drop(decoding);
        if result.is_ok() {
            self.arriving.error = None;
        }
        self.arriving.settle(result.is_ok());
        result
    }

    /// Why the last decoding failed, if an end caused it.
    pub fn error(&self) -> Option<&CarryError> {
        self.arriving.error.as_ref()
    }

    /// The results for the ends that were [expected](Self::expect). They are inert until their agents are
    /// driven: a carrier keeps them until the message has been taken, and otherwise drops them with the
    /// message.
    ///
    /// Empty, unless the message was decoded.
    pub fn into_adopted(self) -> Vec<AdoptedEnd> {
        if !self.arriving.decoded {
            return Vec::new();
        }
        let adopted = |arrival: Arrival| {
            let far = arrival.far?;
            Some(AdoptedEnd { token: arrival.token, kind: far.kind, agent: far.agent })
        };
        self.arriving.ends.into_iter().filter_map(adopted).collect()
    }

    /// The ends that are still here, in the order of their numbers.
    pub fn into_ends(mut self) -> Vec<CarriedEnd> {
        self.arriving.settle(false);
        self.arriving.ends.into_iter().filter_map(|arrival| arrival.end).collect()
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.arriving.ends.iter().filter_map(|arrival| arrival.end.as_ref())).finish()
    }
}

/// Within a message, writes a value whose ends stay here. The reader gets ends that act through agents beside
/// these, and each agent keeps `keeps` alive.
pub(crate) fn lending<R>(keeps: Keeps, write: impl FnOnce() -> R) -> R {
    // A panic ends this staging.
    let before = installed(&STAGING, |staging| staging.0.get_or_insert_default().lends.replace(keeps)).flatten();
    let written = write();
    installed(&STAGING, |staging| staging.0.get_or_insert_default().lends = before);
    written
}

/// Stages an end that its holder lends, as one of a new channel.
fn stage_lent<E: Mobile>(end: &E, keeps: &Keeps) -> Option<(StagedEnd, AnotherCarried)> {
    let (kind, agent) = (E::kind(), end.lend(keeps)?);
    // The other side requests each value, so nothing is buffered there.
    let immunity = end.policy().map_or(0, |policy| policy.immunity);
    let policy = matches!(kind, EndKind::Receiver { .. } | EndKind::Callee).then_some(PolicyNote {
        kind: Kind::Rendezvous,
        senders: None,
        receivers: None,
        immunity,
    });
    let staged = StagedEnd { token: 0, kind, channel: None, policy, stretched: false, busy: false, carrier: None };
    let type_name = type_name::<E>();
    Some((staged, Box::new(move |token| Some(CarriedEnd { token, kind, type_name, end: Box::new(LentEnd(agent)) }))))
}

/// Stages the end and writes its number.
pub(super) fn write<E: Mobile, S: Serializer>(end: &E, serializer: S) -> Result<S::Ok, S::Error> {
    let token = stage(end).map_err(ser::Error::custom)?;
    serializer.serialize_newtype_struct(E::kind().name(), &token)
}

fn stage<E: Mobile>(end: &E) -> Result<u64, CarryError> {
    let (kind, place, shared) = (E::kind(), end.place(), end.shared_end());
    #[cfg(feature = "link")]
    let unsettled = end.unsettled();
    let keeps = installed(&STAGING, |staging| staging.lends()).flatten();
    let staged = match keeps.filter(|_| !is_held_by_many(kind)) {
        Some(keeps) => stage_lent(end, &keeps),
        None => {
            end.leaves();
            let (channel, another) = (end.channel(), end.another());
            let (policy, stretched, busy, carrier) = (end.policy(), end.is_stretched(), end.is_busy(), end.carrier());
            let another: AnotherCarried = Box::new(move |token| another().map(|end| CarriedEnd::new(token, end)));
            Some((StagedEnd { token: 0, kind, channel, policy, stretched, busy, carrier }, another))
        }
    };
    installed(&STAGING, |staging| {
        let staging = staging.0.get_or_insert_default();
        let Some((mut end, another)) = staged else {
            let not_lent = CarryError::NotLent { kind };
            staging.error = Some(not_lent.clone());
            return Err(not_lent);
        };
        if place.is_some() && staging.ends.iter().any(|other| other.place == place) {
            let twice = CarryError::Twice { kind };
            staging.error = Some(twice.clone());
            return Err(twice);
        }
        let token = staging.ends.len() as u64;
        end.token = token;
        if token == 0 {
            // Most messages have one end; a vector makes room for four.
            staging.ends.reserve_exact(1);
        }
        staging.ends.push(Staged {
            end,
            place,
            shared,
            another,
            #[cfg(feature = "link")]
            unsettled,
        });
        Ok(token)
    })
    .unwrap_or(Err(CarryError::NotCarried))
}

/// Reads an end's number and takes the end.
pub(super) fn read<'de, E: Mobile, D: Deserializer<'de>>(deserializer: D) -> Result<E, D::Error> {
    match deserializer.deserialize_newtype_struct(E::kind().name(), EndVisitor::<E>(PhantomData))? {
        Found::Token(token) => take(token).map_err(de::Error::custom),
        Found::Trace => Ok(E::adopt(&rendezvous()).0),
    }
}

fn take<E: Mobile>(token: u64) -> Result<E, CarryError> {
    let taken = installed(&ARRIVING, |arriving| {
        let taken = arriving.take::<E>(token);
        arriving.error = taken.as_ref().err().cloned().or(arriving.error.take());
        taken
    });
    taken.unwrap_or(Err(CarryError::NotArrived))
}

enum Found {
    Token(u64),
    /// A tracer asks for the types that the end carries: see [`EndKind::label`].
    Trace,
}

struct EndVisitor<E>(PhantomData<fn() -> E>);

impl<'de, E: Mobile> de::Visitor<'de> for EndVisitor<E> {
    type Value = Found;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the number of a {}", E::kind())
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Found, D::Error> {
        u64::deserialize(deserializer).map(Found::Token)
    }

    // Formats without newtype structs pass the inner value.
    fn visit_u64<R>(self, token: u64) -> Result<Found, R> {
        Ok(Found::Token(token))
    }

    fn visit_i64<R: de::Error>(self, token: i64) -> Result<Found, R> {
        match u64::try_from(token) {
            Ok(token) => Ok(Found::Token(token)),
            Err(_) => Err(R::invalid_value(de::Unexpected::Signed(token), &self)),
        }
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut sequence: A) -> Result<Found, A::Error> {
        sequence.next_element()?.map(Found::Token).ok_or_else(|| de::Error::invalid_length(0, &self))
    }

    // For tracers: no format reads a newtype struct as an enum.
    fn visit_enum<A: de::EnumAccess<'de>>(self, access: A) -> Result<Found, A::Error> {
        let (index, content) = access.variant_seed(WhichMessage::<E>(PhantomData))?;
        E::trace(index, content).map(|()| Found::Trace)
    }
}

/// The seed for the message type to be traced.
struct WhichMessage<E>(PhantomData<fn() -> E>);

impl<'de, E: Mobile> de::DeserializeSeed<'de> for WhichMessage<E> {
    type Value = u32;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<u32, D::Error> {
        deserializer.deserialize_enum(E::kind().label(), E::MESSAGES, self)
    }
}

impl<E: Mobile> de::Visitor<'_> for WhichMessage<E> {
    type Value = u32;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the number of what a {} carries", E::kind())
    }

    fn visit_u32<R>(self, index: u32) -> Result<u32, R> {
        Ok(index)
    }
}
