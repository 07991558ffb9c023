//! Agents with the type of their messages erased, for a carrier with channels of every type.
//!
//! [`AnyOutlet`] and [`AnyInlet`] have the methods of [`Outlet`] and [`Inlet`], which document each call. A
//! value is a [`Value`]: it can be [written](Write), which stages its ends. A [`Shape`] reads one.

use std::any::{TypeId, type_name};
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::Portable;
use super::codec::{self, Failure, Format, Sink, Write};
#[cfg(feature = "link")]
use super::message;
use crate::agent::{
    Event, FromReceiver, Given, Inlet, LoneOutlet, Missing, Outlet, PassedOn, RawInlet, RawLoneOutlet, RawOutlet,
    Reserved, join_raw,
};
use crate::channel::erased::Erased;
#[cfg(feature = "link")]
use crate::channel::heard::{hear_from_home, hear_from_sender};
#[cfg(feature = "link")]
use crate::channel::queue::encoded::{Decode, Encode, Remote};
#[cfg(feature = "link")]
use crate::channel::queue::standby::{Open, Returned};
use crate::channel::receiver::Receiver;
#[cfg(feature = "link")]
use crate::channel::state::FarChan;
#[cfg(feature = "link")]
use crate::channel::words::{Link, Terms, Word};
use crate::error::{MessageId, Reason, RecvError, Why};
use crate::handle::Handle;
use crate::waits::ChannelId;

/// A message with its type erased. It is sent to other threads, and not shared with them: its type may have
/// cells.
///
/// ```compile_fail,E0277
/// fn shared<T: Sync>() {}
/// shared::<dunlin_core::carrier::Value>();
/// ```
pub struct Value(Message);

enum Message {
    Here(Erased, Shape),
    /// It is [unread](AnyInlet::offer_unread).
    Unread {
        is_readable: bool,
    },
}

impl Value {
    pub(crate) fn new<T: Portable>(value: T) -> Self {
        Self(Message::Here(Erased::new(value), Shape::of::<T>()))
    }

    /// The message, if it is of this type: a carrier may handle some types better than serde does.
    pub fn downcast_ref<T: Portable>(&self) -> Option<&T> {
        match &self.0 {
            // SAFETY: it is of that type.
            Message::Here(value, shape) if shape.is::<T>() => Some(unsafe { &*value.at().cast::<T>() }),
            Message::Here(..) | Message::Unread { .. } => None,
        }
    }

    fn of_given(given: Given<Erased>, shape: Shape) -> Self {
        Self(match given {
            Given::Value(value) => Message::Here(value, shape),
            Given::Unread => Message::Unread { is_readable: true },
            Given::Unreadable => Message::Unread { is_readable: false },
        })
    }

    /// Whether it stands for a message that is still [where it was sent](AnyInlet::offer_unread).
    pub fn is_unread(&self) -> bool {
        matches!(self.0, Message::Unread { .. })
    }

    /// Stands for a message that is unread and could not be read.
    pub fn unreadable() -> Self {
        Self(Message::Unread { is_readable: false })
    }

    /// # Panics
    /// If the value is of another shape: a carrier has mixed up two channels.
    fn into_given(self, wanted: Shape) -> Given<Erased> {
        match self.0 {
            Message::Here(value, shape) => {
                assert!(shape == wanted, "a {} was given to a channel of {}", shape.type_name(), wanted.type_name());
                Given::Value(value)
            }
            Message::Unread { is_readable: true } => Given::Unread,
            Message::Unread { is_readable: false } => Given::Unreadable,
        }
    }

    /// # Panics
    /// As [`into_given`](Self::into_given), and if the message is unread.
    fn into_erased(self, wanted: Shape) -> Erased {
        self.into_given(wanted)
            .read()
            .unwrap_or_else(|| panic!("an unread {} was given as a value", wanted.type_name()))
    }
}

impl Write for Value {
    fn write(&self, format: Format, sink: &mut Sink<'_>) -> Result<(), Failure> {
        match &self.0 {
            // SAFETY: a value of this shape is there.
            Message::Here(value, shape) => unsafe { (shape.0.write)(value.at(), format, sink) },
            Message::Unread { .. } => Err(Failure::Text("the message is elsewhere".into())),
        }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match &self.0 {
            Message::Here(_, shape) => shape.type_name(),
            Message::Unread { .. } => "unread",
        };
        f.debug_tuple("Value").field(&name).finish()
    }
}

/// Reads the messages of one channel, whatever their type.
#[derive(Clone, Copy)]
pub struct Shape(&'static Facts);

/// Reads a message. Also returns how many bytes are left after it, or after the error.
type Read = fn(Format, &[u8]) -> (Result<Erased, Failure>, usize);

/// The properties of a message type, and what has to be compiled for it.
struct Facts {
    id: fn() -> TypeId,
    type_name: fn() -> &'static str,
    size: usize,
    owns_more: bool,
    read: Read,
    /// Writes the message there, which must be of the type.
    write: unsafe fn(*const (), Format, &mut Sink<'_>) -> Result<(), Failure>,
    #[cfg(feature = "link")]
    encode: Encode,
    #[cfg(feature = "link")]
    decode: Decode,
}

struct FactsOf<T>(PhantomData<T>);

impl<T: Portable> FactsOf<T> {
    const FACTS: Facts = Facts {
        id: TypeId::of::<T>,
        type_name: type_name::<T>,
        size: size_of::<T>(),
        owns_more: std::mem::needs_drop::<T>(),
        read: |format, bytes| {
            let (value, rest) = codec::read_value::<T>(format, bytes);
            (value.map(Erased::new), rest)
        },
        write: Self::write,
        #[cfg(feature = "link")]
        encode: message::write_at::<T>,
        #[cfg(feature = "link")]
        decode: message::read_erased::<T>,
    };

    /// # Safety
    /// A message of this type is there.
    unsafe fn write(value: *const (), format: Format, sink: &mut Sink<'_>) -> Result<(), Failure> {
        // SAFETY: the caller's.
        Write::write(unsafe { &*value.cast::<T>() }, format, sink)
    }
}

impl PartialEq for Shape {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0) || (self.0.id)() == (other.0.id)()
    }
}

impl Shape {
    fn of<T: Portable>() -> Self {
        Self(&FactsOf::<T>::FACTS)
    }

    /// A link's part of a channel of such messages.
    #[cfg(feature = "link")]
    fn remote(self, link: Arc<dyn Link>, terms: Terms) -> Remote {
        Remote::new(link, terms, self.0.encode, self.0.decode)
    }

    /// Whether the messages are of this type.
    pub fn is<T: Portable>(&self) -> bool {
        (self.0.id)() == TypeId::of::<T>()
    }

    /// Wraps a message that the carrier has made itself.
    ///
    /// # Errors
    /// The value, if the channel's messages are of another type.
    pub fn wrap<T: Portable>(&self, value: T) -> Result<Value, T> {
        if self.is::<T>() { Ok(Value::new(value)) } else { Err(value) }
    }

    /// Reads a message. Also returns how many bytes are left after it, or after the error.
    pub fn read(&self, format: Format, bytes: &[u8]) -> (Result<Value, Failure>, usize) {
        let (value, rest) = (self.0.read)(format, bytes);
        (value.map(|value| Value(Message::Here(value, *self))), rest)
    }

    /// The size of a message in bytes, without the memory that it points to.
    pub fn size(&self) -> usize {
        self.0.size
    }

    /// Whether a message may own memory beside its own bytes.
    pub fn owns_more(&self) -> bool {
        self.0.owns_more
    }

    /// Rust's name of the type in this build. Another build may use another.
    pub fn type_name(&self) -> &'static str {
        (self.0.type_name)()
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Shape").field(&self.type_name()).finish()
    }
}

/// The agent in the place of an end that is elsewhere.
#[derive(Debug)]
pub enum Agent {
    /// The receiver is elsewhere.
    Outlet(AnyOutlet),
    /// The sender is elsewhere.
    Inlet(AnyInlet),
    /// For a handle of a shared end, an enrolment on a barrier, or an end of a broadcast: see [`Several`].
    Several(Several),
}

/// A future that the carrier has to run. It ends by itself when the end that it serves does; dropping it ends
/// that end.
pub type Chore = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Stands for a handle of a shared end, an enrolment on a barrier, or an end of a broadcast, at each of the
/// two nodes. It has the agents of a few channels; the opposite agent of each is at the same place of the
/// other node's list.
pub struct Several {
    /// First the agent for operations without a claim, if there are such.
    pub agents: Vec<Agent>,
    /// Has to run as long as the node does.
    pub chore: Chore,
}

impl fmt::Debug for Several {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Several").field("agents", &self.agents).finish_non_exhaustive()
    }
}

impl Agent {
    /// The channel whose half it stands at: see [`StagedEnd::channel`](super::carrier::StagedEnd::channel).
    /// `None`: there are several.
    pub fn channel(&self) -> Option<ChannelId> {
        match self {
            Self::Outlet(outlet) => Some(outlet.channel()),
            Self::Inlet(inlet) => Some(inlet.channel()),
            Self::Several(_) => None,
        }
    }

    /// The agent for the slot of a reply, which must be filled at once, so here.
    pub(super) fn slot<T: Portable>(slot: Receiver<T>) -> Self {
        Self::Outlet(AnyOutlet { agent: Box::new(Slot { slot, next: Next::Reply }) })
    }
}

impl<T: Portable> From<Outlet<T>> for AnyOutlet {
    fn from(outlet: Outlet<T>) -> Self {
        Self { agent: Box::new(Shaped { agent: outlet.raw, shape: Shape::of::<T>() }) }
    }
}

impl<T: Portable> From<LoneOutlet<T>> for AnyOutlet {
    fn from(outlet: LoneOutlet<T>) -> Self {
        Self { agent: Box::new(Shaped { agent: outlet.raw, shape: Shape::of::<T>() }) }
    }
}

impl<T: Portable> From<Inlet<T>> for AnyInlet {
    fn from(inlet: Inlet<T>) -> Self {
        Self { agent: inlet.raw, shape: Shape::of::<T>() }
    }
}

/// An [`Outlet`] of messages of any type.
pub struct AnyOutlet {
    agent: Box<dyn DynOutlet>,
}

/// An [`Inlet`] of messages of any type.
pub struct AnyInlet {
    agent: RawInlet,
    shape: Shape,
}

/// An agent, and the shape of its messages.
struct Shaped<A> {
    agent: A,
    shape: Shape,
}

impl AnyOutlet {
    /// The shape of its messages.
    pub fn shape(&self) -> Shape {
        self.agent.shape()
    }

    /// The channel whose half it stands at.
    pub fn channel(&self) -> ChannelId {
        self.agent.channel()
    }

    /// [`Outlet::poll`].
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Event<Value>> {
        self.agent.poll(cx)
    }

    /// [`Outlet::credit`](crate::agent::RawOutlet::credit).
    pub fn credit(&self, places: u32) {
        self.agent.credit(places);
    }

    /// [`Outlet::reserve`].
    pub fn reserve(&self, ticket: u64) -> Reserved<Value> {
        self.agent.reserve(ticket)
    }

    /// [`Outlet::taken`](crate::agent::RawOutlet::taken).
    pub fn taken(&self, ticket: u64) {
        self.agent.taken(ticket);
    }

    /// [`Outlet::held`](crate::agent::RawOutlet::held).
    pub fn held(&self, ticket: u64) {
        self.agent.held(ticket);
    }

    /// [`Outlet::give_back`].
    ///
    /// # Panics
    /// If the value is not of this channel's type, as for all methods that take one.
    pub fn give_back(&self, ticket: u64, value: Value) {
        self.agent.give_back(ticket, value);
    }

    /// [`Outlet::end_again`](crate::agent::RawOutlet::end_again).
    pub fn end_again(&self, retired: bool) {
        self.agent.end_again(retired);
    }

    /// [`Outlet::failed`].
    pub fn failed(&self, ticket: u64, value: Option<Value>, why: Why) {
        self.agent.failed(ticket, value, why);
    }

    /// [`Outlet::withdrawn`].
    pub fn withdrawn(&self, ticket: u64, value: Option<Value>) {
        self.agent.withdrawn(ticket, value);
    }

    /// [`Outlet::passed_on`](crate::agent::RawOutlet::passed_on).
    pub fn passed_on(&self, ticket: u64) -> Option<PassedOn> {
        self.agent.passed_on(ticket)
    }

    /// [`Outlet::lost`].
    pub fn lost(&self, ticket: u64, value: Value, id: MessageId) {
        self.agent.lost(ticket, value, id);
    }

    /// [`Outlet::down`].
    pub fn down(self) {
        self.agent.down();
    }

    /// [`Outlet::poll_gone`](crate::agent::RawOutlet::poll_gone).
    pub fn poll_gone(&self, cx: &Context<'_>) -> Poll<()> {
        self.agent.poll_gone(cx)
    }

    /// [`Outlet::poll_stirs`](crate::agent::RawOutlet::poll_stirs).
    pub fn poll_stirs(&self, cx: &Context<'_>) -> Poll<()> {
        self.agent.poll_stirs(cx)
    }

    /// [`Outlet::own_node_leaves`](crate::agent::RawOutlet::own_node_leaves).
    pub fn own_node_leaves(&self) {
        self.agent.own_node_leaves();
    }

    /// [`Outlet::unmatched`](crate::agent::RawOutlet::unmatched).
    pub fn unmatched(&self, missing: Option<Arc<dyn Missing>>) {
        self.agent.unmatched(missing);
    }

    /// [`Outlet::unsaid`](crate::agent::RawOutlet::unsaid).
    pub fn unsaid(&self) -> usize {
        self.agent.unsaid()
    }

    /// [`Outlet::take_buffered`].
    pub fn take_buffered(&self) -> Vec<Value> {
        self.agent.take_buffered()
    }

    /// Carries all events between two halves that turn out to be in one memory: [`join`]. `credits` are those
    /// that the inlet has [given](AnyInlet::credits) already.
    ///
    /// # Errors
    /// The two agents, if their messages are not of the same type.
    pub fn join(self, inlet: AnyInlet, credits: u32) -> Result<Joining, (Self, AnyInlet)> {
        self.agent.join(inlet, credits).map_err(|(agent, inlet)| (Self { agent }, inlet))
    }

    /// From here on values go over this link, as bytes, encoded in the polls of their sender. The agent
    /// stands by, and is notified only of the end of the channel. It resumes by itself on an event that is
    /// not for a link, and then has to [take over](Self::take_over) first. `false`: not now, since an
    /// operation is open, or the channel is not for a link.
    ///
    /// The queue itself [handles](Self::hear) the answers of the receiver's half to offers.
    #[cfg(feature = "link")]
    pub fn link(&self, terms: Terms, link: Arc<dyn Link>) -> bool {
        self.agent.link(terms, link)
    }

    /// Whether the agent stands by, so that there is nothing to [poll](Self::poll). The task is woken when
    /// the agent resumes.
    #[cfg(feature = "link")]
    pub fn stands_by(&self, cx: &Context<'_>) -> bool {
        self.agent.stands_by(cx)
    }

    /// Makes the agent resume.
    #[cfg(feature = "link")]
    pub fn unlink(&self) {
        self.agent.unlink();
    }

    /// The operations that are open when the agent resumes. `None`: it still stands by.
    #[cfg(feature = "link")]
    pub fn take_over(&self) -> Option<Open<Value>> {
        self.agent.take_over()
    }

    /// Takes the words of the receiver's half while the agent stands by. `None`: it never does.
    #[cfg(feature = "link")]
    pub fn word_sink(&self) -> Option<Arc<dyn WordSink>> {
        self.agent.word_sink()
    }

    /// [`Outlet::retire`](crate::agent::RawOutlet::retire).
    pub fn retire(&self) {
        self.agent.retire();
    }

    /// [`Outlet::gone`](crate::agent::RawOutlet::gone),
    /// [`LoneOutlet::gone`](crate::agent::RawLoneOutlet::gone).
    pub fn gone(&self) {
        self.agent.gone();
    }

    /// [`Outlet::poison`](crate::agent::RawOutlet::poison).
    pub fn poison(&self, reason: Reason) {
        self.agent.poison(reason);
    }
}

impl AnyInlet {
    fn value(&self, value: Erased) -> Value {
        Value(Message::Here(value, self.shape))
    }

    /// The shape of its messages.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The channel whose half it stands at.
    pub fn channel(&self) -> ChannelId {
        self.agent.channel()
    }

    /// [`Inlet::passes_on`](crate::agent::RawInlet::passes_on).
    pub fn passes_on(&self, number: u64) -> PassedOn {
        self.agent.passes_on(number)
    }

    /// [`Inlet::poll`].
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<FromReceiver<Value>> {
        let shape = self.shape;
        self.agent.poll(cx).map(|event| event.map(|value| Value(Message::Here(value, shape))))
    }

    /// [`Inlet::credits`](crate::agent::RawInlet::credits).
    pub fn credits(&self) -> u32 {
        self.agent.credits()
    }

    /// [`Inlet::credits_anew`](crate::agent::RawInlet::credits_anew).
    pub fn credits_anew(&self, promised: u32) -> u32 {
        self.agent.credits_anew(promised)
    }

    /// As [`AnyOutlet::link`]: values arrive as bytes, and are decoded in the polls of their receiver.
    #[cfg(feature = "link")]
    pub fn link(&self, terms: Terms, link: Arc<dyn Link>) -> bool {
        if self.agent.is_lone() {
            return false;
        }
        let remote = self.shape.remote(link, terms);
        self.agent.chan().any().with_queue(|queue, _, _| queue.link_inlet(remote))
    }

    /// Whether the agent stands by, so that there is nothing to [poll](Self::poll). The task is woken when
    /// the agent resumes.
    #[cfg(feature = "link")]
    pub fn stands_by(&self, cx: &Context<'_>) -> bool {
        !self.agent.is_lone() && self.agent.chan().any().agent_stands_by(false, cx.waker())
    }

    /// Makes the agent resume.
    #[cfg(feature = "link")]
    pub fn unlink(&self) {
        self.agent.chan().any().unlink();
    }

    /// The values that had arrived when the agent resumes, and have not been received: the agent offers them.
    /// Values that were buffered are decoded, and are in the buffer again. `None`: the agent still stands by.
    #[cfg(feature = "link")]
    pub fn take_returned(&self) -> Option<Vec<Returned>> {
        if self.agent.is_lone() {
            return Some(Vec::new());
        }
        let chan = self.agent.chan().any();
        let (mut returned, buffered) = chan.with_queue(|queue, _, _| queue.take_returned())?;
        for mut reading in buffered {
            // User code: no lock is held here.
            reading.decode();
            let value = match reading.into_value() {
                Some(Err(why)) => {
                    returned.push(Returned::Unreadable(why));
                    None
                }
                value => value.and_then(Result::ok),
            };
            chan.with_queue(|queue, _, after| queue.bring_back(value, after));
        }
        Some(returned)
    }

    /// Takes the words of the sender's half while the agent stands by. `None`: it never does.
    #[cfg(feature = "link")]
    pub fn word_sink(&self) -> Option<Arc<dyn WordSink>> {
        if self.agent.is_lone() { None } else { Some(Arc::new(OfReceiver(self.agent.chan().clone()))) }
    }

    /// [`Inlet::lend_at_most`](crate::agent::RawInlet::lend_at_most).
    pub fn lend_at_most(&self, places: u32) {
        self.agent.lend_at_most(places);
    }

    /// [`Inlet::restore`].
    ///
    /// # Panics
    /// If the value is not of this channel's type.
    pub fn restore(&self, value: Value) {
        self.agent.restore(value.into_erased(self.shape));
    }

    /// [`Inlet::push`].
    ///
    /// # Errors
    /// The value, if there is no place for it.
    ///
    /// # Panics
    /// If the value is not of this channel's type.
    pub fn push(&self, value: Value) -> Result<usize, Value> {
        self.agent.push(value.into_erased(self.shape)).map_err(|value| self.value(value))
    }

    /// [`Inlet::buffered`](crate::agent::RawInlet::buffered).
    pub fn buffered(&self) -> usize {
        self.agent.buffered()
    }

    /// [`Inlet::ask_awaited`](crate::agent::RawInlet::ask_awaited).
    pub fn ask_awaited(&self) {
        self.agent.ask_awaited();
    }

    /// [`Inlet::down`].
    pub fn down(self) {
        self.agent.down();
    }

    /// [`Inlet::poll_gone`](crate::agent::RawInlet::poll_gone).
    pub fn poll_gone(&self, cx: &Context<'_>) -> Poll<()> {
        self.agent.poll_gone(cx)
    }

    /// [`Inlet::poll_stirs`](crate::agent::RawInlet::poll_stirs).
    pub fn poll_stirs(&self, cx: &Context<'_>) -> Poll<()> {
        self.agent.poll_stirs(cx)
    }

    /// [`Inlet::own_node_leaves`](crate::agent::RawInlet::own_node_leaves).
    pub fn own_node_leaves(&self) {
        self.agent.own_node_leaves();
    }

    /// [`Inlet::unmatched`](crate::agent::RawInlet::unmatched).
    pub fn unmatched(&self, missing: Option<Arc<dyn Missing>>) {
        self.agent.unmatched(missing);
    }

    /// [`Inlet::offer`].
    ///
    /// # Panics
    /// If the value is not of this channel's type.
    pub fn offer(&self, number: u64, value: Value) {
        self.agent.offer(number, value.into_erased(self.shape));
    }

    /// [`Inlet::offer_unread`](crate::agent::RawInlet::offer_unread).
    pub fn offer_unread(&self, number: u64) {
        self.agent.offer_unread(number);
    }

    /// [`Inlet::grant_unread`](crate::agent::RawInlet::grant_unread).
    #[must_use = "`false`: the value is wanted here"]
    pub fn grant_unread(&self, number: u64, request: u64) -> bool {
        self.agent.grant_unread(number, request)
    }

    /// [`Inlet::bring`].
    ///
    /// # Errors
    /// The value, if the offer does not stand here.
    ///
    /// # Panics
    /// If the value is not of this channel's type.
    pub fn bring(&self, number: u64, value: Value) -> Result<(), Value> {
        self.agent.bring(number, value.into_erased(self.shape)).map_err(|value| self.value(value))
    }

    /// Whether its receiver came in a message, so that the agent reports its first [use](FromReceiver::Used).
    /// Parts of a shared end do not.
    pub fn says_when_used(&self) -> bool {
        self.agent.is_of_coming()
    }

    /// [`Inlet::is_demanded`](crate::agent::RawInlet::is_demanded).
    pub fn is_demanded(&self) -> bool {
        self.agent.is_demanded()
    }

    /// [`Inlet::offer_choice`](crate::agent::RawInlet::offer_choice).
    pub fn offer_choice(&self, number: u64, choice: u128) {
        self.agent.offer_choice(number, choice);
    }

    /// [`Inlet::grant`].
    ///
    /// # Errors
    /// The value, if it is no longer wanted.
    ///
    /// # Panics
    /// If the value is not of this channel's type.
    pub fn grant(&self, number: u64, request: u64, value: Value) -> Result<(), Value> {
        let granted = self.agent.grant(number, request, value.into_erased(self.shape));
        granted.map_err(|value| self.value(value))
    }

    /// [`Inlet::withdraw`].
    pub fn withdraw(&self, number: u64) -> Option<Option<Value>> {
        self.agent.withdraw(number).map(|value| value.map(|value| self.value(value)))
    }

    /// [`Inlet::revoke`](crate::agent::RawInlet::revoke).
    pub fn revoke(&self, number: u64) {
        self.agent.revoke(number);
    }

    /// [`Inlet::retire`](crate::agent::RawInlet::retire).
    pub fn retire(&self) {
        self.agent.retire();
    }

    /// [`Inlet::poison`](crate::agent::RawInlet::poison).
    pub fn poison(&self, reason: Reason) {
        self.agent.poison(reason);
    }
}

impl fmt::Debug for AnyOutlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AnyOutlet").field(&self.shape().type_name()).finish()
    }
}

impl fmt::Debug for AnyInlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AnyInlet").field(&self.shape().type_name()).finish()
    }
}

/// The future that [`AnyOutlet::join`] returns: it ends when both halves have.
pub type Joining = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Takes the words that arrive for a half whose agent stands by. Any thread may call it, where nothing is
/// locked. No user code runs in a call, except drops of values that a send has left behind.
#[cfg(feature = "link")]
pub trait WordSink: Send + Sync {
    /// Handles a word of the other half.
    ///
    /// # Errors
    /// The word, if the agent does not stand by.
    fn hear(&self, word: Word) -> Result<(), Word>;

    /// [`Inlet::ask_awaited`](crate::agent::RawInlet::ask_awaited). Does nothing at a sender's half.
    fn ask_awaited(&self) {}
}

#[cfg(feature = "link")]
struct OfSender(Arc<dyn FarChan>);

#[cfg(feature = "link")]
impl WordSink for OfSender {
    fn hear(&self, word: Word) -> Result<(), Word> {
        hear_from_home(&self.0, word)
    }
}

#[cfg(feature = "link")]
struct OfReceiver(Arc<dyn FarChan>);

#[cfg(feature = "link")]
impl WordSink for OfReceiver {
    fn hear(&self, word: Word) -> Result<(), Word> {
        hear_from_sender(&self.0, word)
    }

    fn ask_awaited(&self) {
        self.0.any().with_queue(|queue, _, after| queue.ask_awaited(Handle::END, after));
    }
}

trait DynOutlet: Send {
    fn shape(&self) -> Shape;
    /// 0 for an agent that sends nothing on credits.
    fn unsaid(&self) -> usize {
        0
    }
    /// Does nothing for an agent that stands for no end of its own.
    fn own_node_leaves(&self) {}
    /// Never ready for such an agent.
    fn poll_gone(&self, _: &Context<'_>) -> Poll<()> {
        Poll::Pending
    }
    /// Always ready for an agent that cannot tell.
    fn poll_stirs(&self, _: &Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
    fn unmatched(&self, _: Option<Arc<dyn Missing>>) {}
    /// An agent that stands for no end of its own has no link.
    #[cfg(feature = "link")]
    fn link(&self, _: Terms, _: Arc<dyn Link>) -> bool {
        false
    }
    #[cfg(feature = "link")]
    fn stands_by(&self, _: &Context<'_>) -> bool {
        false
    }
    #[cfg(feature = "link")]
    fn unlink(&self) {}
    #[cfg(feature = "link")]
    fn take_over(&self) -> Option<Open<Value>> {
        Some(Open { offers: Vec::new(), requests: Vec::new() })
    }
    #[cfg(feature = "link")]
    fn word_sink(&self) -> Option<Arc<dyn WordSink>> {
        None
    }
    fn take_buffered(&self) -> Vec<Value>;
    fn channel(&self) -> ChannelId;
    fn credit(&self, places: u32);
    fn passed_on(&self, ticket: u64) -> Option<PassedOn>;
    fn lost(&self, ticket: u64, value: Value, id: MessageId);
    fn down(self: Box<Self>);
    fn join(self: Box<Self>, inlet: AnyInlet, credits: u32) -> Result<Joining, (Box<dyn DynOutlet>, AnyInlet)>;
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Event<Value>>;
    fn reserve(&self, ticket: u64) -> Reserved<Value>;
    fn taken(&self, ticket: u64);
    fn held(&self, ticket: u64);
    fn give_back(&self, ticket: u64, value: Value);
    /// Does nothing for an agent that has no buffer to return values to.
    fn end_again(&self, _retired: bool) {}
    fn failed(&self, ticket: u64, value: Option<Value>, why: Why);
    fn withdrawn(&self, ticket: u64, value: Option<Value>);
    fn retire(&self);
    fn gone(&self);
    fn poison(&self, reason: Reason);
}

/// The methods that all agents in a receiver's place have.
macro_rules! outlet {
    () => {
        fn shape(&self) -> Shape {
            self.shape
        }

        fn channel(&self) -> ChannelId {
            self.agent.channel()
        }

        fn passed_on(&self, ticket: u64) -> Option<PassedOn> {
            self.agent.passed_on(ticket)
        }

        fn lost(&self, ticket: u64, value: Value, id: MessageId) {
            self.agent.lost(ticket, value.into_given(self.shape), id);
        }

        fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Event<Value>> {
            let shape = self.shape;
            self.agent.poll(cx).map(|event| event.map(|value| Value(Message::Here(value, shape))))
        }

        fn reserve(&self, ticket: u64) -> Reserved<Value> {
            self.agent.reserve_unread(ticket).map(|given| Value::of_given(given, self.shape))
        }

        fn taken(&self, ticket: u64) {
            self.agent.taken(ticket);
        }

        fn held(&self, ticket: u64) {
            self.agent.held(ticket);
        }

        fn give_back(&self, ticket: u64, value: Value) {
            self.agent.give_back(ticket, value.into_given(self.shape));
        }

        fn failed(&self, ticket: u64, value: Option<Value>, why: Why) {
            self.agent.failed(ticket, value.map(|value| value.into_given(self.shape)), why);
        }

        fn withdrawn(&self, ticket: u64, value: Option<Value>) {
            self.agent.withdrawn(ticket, value.map(|value| value.into_given(self.shape)));
        }

        fn retire(&self) {
            self.agent.retire();
        }

        fn gone(&self) {
            self.agent.gone();
        }

        fn poison(&self, reason: Reason) {
            self.agent.poison(reason);
        }
    };
}

impl DynOutlet for Shaped<RawOutlet> {
    fn poll_gone(&self, cx: &Context<'_>) -> Poll<()> {
        self.agent.poll_gone(cx)
    }

    fn poll_stirs(&self, cx: &Context<'_>) -> Poll<()> {
        self.agent.poll_stirs(cx)
    }

    fn unsaid(&self) -> usize {
        self.agent.unsaid()
    }

    fn own_node_leaves(&self) {
        self.agent.own_node_leaves();
    }

    fn unmatched(&self, missing: Option<Arc<dyn Missing>>) {
        self.agent.unmatched(missing);
    }

    #[cfg(feature = "link")]
    fn link(&self, terms: Terms, link: Arc<dyn Link>) -> bool {
        if self.agent.has_buffered() {
            return false;
        }
        let remote = self.shape.remote(link, terms);
        self.agent.chan().any().with_queue(|queue, _, _| queue.link_outlet(remote))
    }

    #[cfg(feature = "link")]
    fn stands_by(&self, cx: &Context<'_>) -> bool {
        self.agent.chan().any().agent_stands_by(true, cx.waker())
    }

    #[cfg(feature = "link")]
    fn unlink(&self) {
        self.agent.chan().any().unlink();
    }

    #[cfg(feature = "link")]
    fn take_over(&self) -> Option<Open<Value>> {
        let Open { offers, requests } = self.agent.chan().any().with_queue(|queue, _, _| queue.take_over())?;
        let value = |value| Value(Message::Here(value, self.shape));
        let offers = offers.into_iter().map(|(ticket, offered, reserved)| (ticket, value(offered), reserved));
        Some(Open { offers: offers.collect(), requests })
    }

    #[cfg(feature = "link")]
    fn word_sink(&self) -> Option<Arc<dyn WordSink>> {
        Some(Arc::new(OfSender(self.agent.chan().clone())))
    }

    fn take_buffered(&self) -> Vec<Value> {
        self.agent.take_buffered().into_iter().map(|value| Value(Message::Here(value, self.shape))).collect()
    }

    fn credit(&self, places: u32) {
        self.agent.credit(places);
    }

    fn end_again(&self, retired: bool) {
        self.agent.end_again(retired);
    }

    fn down(self: Box<Self>) {
        self.agent.down();
    }

    fn join(self: Box<Self>, inlet: AnyInlet, credits: u32) -> Result<Joining, (Box<dyn DynOutlet>, AnyInlet)> {
        if inlet.shape != self.shape {
            return Err((self, inlet));
        }
        self.agent.credit(credits);
        Ok(Box::pin(join_raw(self.agent, inlet.agent)))
    }

    outlet!();
}

impl DynOutlet for Shaped<RawLoneOutlet> {
    fn take_buffered(&self) -> Vec<Value> {
        Vec::new()
    }

    // Values are sent here only on request.
    fn credit(&self, _: u32) {}

    fn down(self: Box<Self>) {}

    fn join(self: Box<Self>, inlet: AnyInlet, _: u32) -> Result<Joining, (Box<dyn DynOutlet>, AnyInlet)> {
        Err((self, inlet))
    }

    outlet!();
}

/// The receiver of a reply's slot. The reply is in the slot before the other node learns of it, so no value
/// can be returned.
struct Slot<T> {
    slot: Receiver<T>,
    next: Next,
}

/// What the receiver of a reply's slot reports next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// The reply, or the end of its place.
    Reply,
    /// That the place is gone: nothing more comes from one that is poisoned.
    Gone,
    Nothing,
}

impl<T: Portable> DynOutlet for Slot<T> {
    fn shape(&self) -> Shape {
        Shape::of::<T>()
    }

    fn channel(&self) -> ChannelId {
        self.slot.id()
    }

    fn take_buffered(&self) -> Vec<Value> {
        Vec::new()
    }

    // The reply goes as a firm offer: it has its place in any case.
    fn credit(&self, _: u32) {}

    fn passed_on(&self, _: u64) -> Option<PassedOn> {
        None
    }

    fn lost(&self, _: u64, value: Value, _: MessageId) {
        drop(value);
    }

    fn down(self: Box<Self>) {}

    fn join(self: Box<Self>, inlet: AnyInlet, _: u32) -> Result<Joining, (Box<dyn DynOutlet>, AnyInlet)> {
        Err((self, inlet))
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Event<Value>> {
        match self.next {
            Next::Reply => {}
            Next::Gone => {
                self.next = Next::Nothing;
                return Poll::Ready(Event::Gone);
            }
            Next::Nothing => return Poll::Pending,
        }
        self.slot.chan().poll_take::<false>(Handle::END, true, cx).map(|taken| {
            self.next = match &taken {
                Ok(_) => Next::Reply,
                Err(RecvError::Poisoned(_)) => Next::Gone,
                Err(_) => Next::Nothing,
            };
            match taken {
                Ok(reply) => Event::FirmOffer(0, Value::new(reply)),
                Err(RecvError::Poisoned(reason)) => Event::Poisoned(reason),
                Err(RecvError::NodeLost | RecvError::OwnNodeLeft) => Event::Lost,
                Err(_) => Event::Gone,
            }
        })
    }

    // A reply is never the branch of a choice.
    fn reserve(&self, _: u64) -> Reserved<Value> {
        Reserved::Gone
    }

    fn taken(&self, _: u64) {}

    fn held(&self, _: u64) {}

    fn give_back(&self, _: u64, value: Value) {
        drop(value);
    }

    fn failed(&self, _: u64, value: Option<Value>, _: Why) {
        drop(value);
    }

    fn withdrawn(&self, _: u64, value: Option<Value>) {
        drop(value);
    }

    fn retire(&self) {
        self.slot.retire();
    }

    fn gone(&self) {
        self.slot.retire();
    }

    fn poison(&self, reason: Reason) {
        self.slot.poison(reason);
    }
}
