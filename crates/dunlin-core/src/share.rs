//! Shared ends: several handles hold one end, and a claim holds it alone.
//!
//! The claimers stand in a [`Line`], which offers them the end in order. A claimer that was offered the end
//! and is not polled within its patience is *asleep*: the next one is offered the end, and a later poll gives
//! the sleeper its place back. A claimer that is dropped passes its offer on. `docs/claim.md` has what breaks
//! without each of these.
//!
//! A lone `send` or `recv` on a shared end is a claim for one message. It needs no place in the line, but is
//! held back while a claim is out. When a claim ends, the operations that it held back come first: the next
//! claim waits until one of them is done, or its patience ends.
//!
//! A value wakes some of the handles that wait to receive, not all. `channel/queue/watchers.rs` has which
//! ones, and when the others are woken.

#[cfg(feature = "serde")]
pub(crate) mod far;

use std::fmt;
use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use crate::budget;
use crate::channel::MayPoison;
use crate::channel::posted::Posted;
use crate::channel::receiver::{Extending, Next, Receiver, Receiving};
use crate::channel::sender::{Sender, Sending, SendingFrom};
use crate::channel::state::Chan;
use crate::choice::ChoiceCx;
use crate::choice::branch::{Branch, Look};
use crate::error::{ClaimError, Reason, RecvError, SendError, Strength};
use crate::handle::Handle;
use crate::line::{Line, Polled};
use crate::lock::Lock;
use crate::operation::Operation;
use crate::turn::Turn;
use crate::waits::{ChannelId, Doing, Record, Recorded};

/// The holder of a claim: the end itself, or the handle that stands here for another node.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Claimer(Handle);

/// A type that can be shared: an end, or a face of a bundle.
pub trait End: Sized {
    /// The part of the end that all handles need while a claim holds it.
    #[doc(hidden)]
    type Link: Clone;

    #[doc(hidden)]
    fn link(&self) -> Self::Link;

    /// A claim goes out (`_out`) or comes back: in between, the handles' own operations are held back.
    #[doc(hidden)]
    fn hold_back(_link: &Self::Link, _out: bool, _claimer: Claimer) {}

    /// The handle with this number was dropped.
    #[doc(hidden)]
    fn handle_gone(_link: &Self::Link, _number: u32) {}

    /// The channel that the handles wait on, for their wait records.
    #[doc(hidden)]
    fn channel(_link: &Self::Link) -> Option<ChannelId> {
        None
    }

    /// Makes this an end that several processes can hold.
    #[track_caller]
    fn share(self) -> Shared<Self> {
        Shared::new(self, Location::caller())
    }
}

impl<T, P> Sender<T, P> {
    /// Makes this an end that several processes can hold: see [`Shared`].
    pub fn share(self) -> Shared<Self> {
        End::share(self)
    }
}

impl<T, P> Receiver<T, P> {
    /// Makes this an end that several processes can hold: see [`Shared`].
    pub fn share(mut self) -> Shared<Self> {
        self.stop_streaming();
        End::share(self)
    }
}

/// A trait that no end implements: only for the compiler's message about `tx.clone()`.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "an end of a channel has one owner and cannot be cloned: share it",
    label = "`share()` it first, `let end = end.share();`, and clone that",
    note = "clones of a `Shared` end are used by several processes: each sends or receives by itself, or claims the end whole"
)]
pub trait ManyOwners {}

/// `clone` of an end, which the compiler refuses with advice.
macro_rules! refuse_clone {
    ($(<$($parameter:ident),+> $end:ty;)+) => { $(
        impl<$($parameter),+> $end {
            #[doc(hidden)]
            #[allow(clippy::should_implement_trait, reason = "it exists for the message of its bound")]
            pub fn clone(&self) -> Self
            where
                Self: $crate::share::ManyOwners,
            {
                unreachable!("no end has many owners")
            }
        }
    )+ };
}
pub(crate) use refuse_clone;

refuse_clone! {
    <T, P> Sender<T, P>;
    <T, P> Receiver<T, P>;
}

impl<T, P> End for Sender<T, P> {
    type Link = Arc<Chan<T>>;

    fn link(&self) -> Arc<Chan<T>> {
        self.chan().make_shared();
        self.chan().clone()
    }

    fn hold_back(link: &Arc<Chan<T>>, out: bool, claimer: Claimer) {
        link.claimed(true, out, claimer.0);
    }

    fn handle_gone(link: &Arc<Chan<T>>, number: u32) {
        link.sender_handle_gone(Handle::clone_number(number));
    }

    fn channel(link: &Arc<Chan<T>>) -> Option<ChannelId> {
        Some(link.record.id())
    }
}

impl<T, P> End for Receiver<T, P> {
    type Link = Arc<Chan<T>>;

    fn link(&self) -> Arc<Chan<T>> {
        self.chan().make_shared();
        self.chan().clone()
    }

    fn hold_back(link: &Arc<Chan<T>>, out: bool, claimer: Claimer) {
        if !out {
            // An end polled as a stream, or with a forgotten receive, would otherwise take the wakes of
            // handles.
            link.unwatch(Handle::END);
        }
        link.claimed(false, out, claimer.0);
    }

    fn handle_gone(link: &Arc<Chan<T>>, number: u32) {
        link.handle_gone(Handle::clone_number(number));
    }

    fn channel(link: &Arc<Chan<T>>) -> Option<ChannelId> {
        Some(link.record.id())
    }
}

struct Core<E: End> {
    /// `None` while a claim is out: it holds the end. For a face kept at another node: while the claim is not
    /// here.
    end: Lock<Option<E>>,
    link: E::Link,
    line: Arc<Line>,
    made: &'static Location<'static>,
    /// Another node keeps the end.
    #[cfg(feature = "serde")]
    is_far: bool,
    /// The number by which nodes know the end.
    #[cfg(feature = "serde")]
    number: far::Number,
}

/// An end that several processes can hold: cloned freely, claimed by one at a time.
///
/// [`claim`](Self::claim) holds the end alone until the guard is dropped. A lone operation on the end, such
/// as [`send`](Shared::send), is a claim for one message. Lone operations of several handles wait side by
/// side, and are held back while a claim is out. The end is dropped with the last handle.
///
/// # Examples
/// ```
/// use dunlin_core::{channel, par};
/// # dunlin_core::doc::block_on(async {
/// let (tx, mut rx) = channel();
/// let (mut a, heard) = (tx.share(), std::cell::RefCell::new(vec![]));
/// let mut b = a.clone();
/// par!(
///     async {
///         let mut stage = a.claim().await.unwrap();
///         stage.send("a sings").await.unwrap();
///         stage.send("a bows").await.unwrap(); // no other send comes between
///         drop(stage);
///         drop(a);
///     },
///     async {
///         b.send("b hums").await.unwrap();
///         drop(b);
///     },
///     async {
///         while let Ok(line) = rx.recv().await {
///             heard.borrow_mut().push(line);
///         }
///     },
/// );
/// let heard = heard.into_inner();
/// let sings = heard.iter().position(|l| *l == "a sings").unwrap();
/// assert_eq!(heard[sings + 1], "a bows");
/// # });
/// ```
///
/// # Source
/// Shared channel ends and CLAIM of occam-pi (Welch and Barnes, 2005).
pub struct Shared<E: End> {
    core: Arc<Core<E>>,
    record: Recorded,
}

impl<E: End> Shared<E> {
    fn new(end: E, made: &'static Location<'static>) -> Self {
        let link = end.link();
        let core = Core {
            end: Lock::new(Some(end)),
            link,
            line: Arc::default(),
            made,
            #[cfg(feature = "serde")]
            is_far: false,
            #[cfg(feature = "serde")]
            number: far::Number::default(),
        };
        Self::handle(Arc::new(core))
    }

    fn handle(core: Arc<Core<E>>) -> Self {
        let record = match E::channel(&core.link) {
            Some(channel) => Recorded::handle(channel, core.made),
            None => Recorded::channel(core.made),
        };
        #[cfg(feature = "serde")]
        if core.is_far {
            core.line.handle_made();
        }
        Self { core, record }
    }

    fn number(&self) -> Handle {
        Handle::clone_number(self.record.index())
    }

    /// The parts of this handle that an agent in its place needs, beside the handle.
    pub(crate) fn stand_in(&self) -> (E::Link, Handle, ChannelId, Arc<Line>) {
        (self.core.link.clone(), self.number(), self.record.id(), self.core.line.clone())
    }

    #[cfg(feature = "serde")]
    pub(crate) fn record(&self) -> &Recorded {
        &self.record
    }

    /// The end, if this is its only handle. It is no longer shared.
    #[cfg(feature = "serde")]
    pub(crate) fn into_end(self) -> Result<E, Self> {
        let end =
            if Arc::strong_count(&self.core) == 1 && !self.core.is_far { self.core.end.lock().take() } else { None };
        end.ok_or(self)
    }

    /// Returns a function that makes another handle of the same end. Until it is called it keeps the end.
    #[cfg(feature = "serde")]
    pub(crate) fn another(&self) -> impl FnOnce() -> Self + use<E> {
        let core = self.core.clone();
        move || Self::handle(core)
    }

    /// A handle from which others can be made while this one, or one made from it, exists.
    #[doc(hidden)]
    pub fn downgrade(&self) -> WeakShared<E> {
        WeakShared(Arc::downgrade(&self.core))
    }

    pub(crate) fn end_link(&self) -> &E::Link {
        &self.core.link
    }

    /// Claims the end: waits until no other handle holds it and all earlier claimers have had their turn.
    ///
    /// # Errors
    /// [`ClaimError::TimedOut`] with a deadline. If another node keeps the end: [`ClaimError::NodeLost`] if
    /// that node is lost; for a face, [`ClaimError::Unsendable`] if it cannot be sent to this node.
    ///
    /// # Cancel safety
    /// If it is dropped before it is ready, it leaves its place in the line.
    pub fn claim(&mut self) -> Claiming<'_, E> {
        Claiming { record: self.record.entry(), shared: Some(self), ticket: None, is_branch: false, again: false }
    }

    /// Claims the end if that needs no waiting.
    ///
    /// # Errors
    /// [`ClaimError::WouldBlock`] if the end is claimed, or others are in line.
    pub fn try_claim(&mut self) -> Result<Claim<'_, E>, ClaimError> {
        let mut none = None;
        if self.core.line.is_lost() {
            return Err(ClaimError::NodeLost);
        }
        if self.core.line.state.lock().is_contended() {
            return Err(ClaimError::WouldBlock);
        }
        if let Polled::Given = self.core.line.poll(&mut none, Waker::noop(), || true) {
            return Ok(Claim::new(self));
        }
        if let Some(ticket) = none {
            self.core.line.leave(ticket);
        }
        Err(ClaimError::WouldBlock)
    }
}

/// A handle that does not keep the shared end alive: see [`Shared::downgrade`].
#[doc(hidden)]
pub struct WeakShared<E: End>(Weak<Core<E>>);

impl<E: End> WeakShared<E> {
    /// Another handle, unless all handles have been dropped.
    pub fn upgrade(&self) -> Option<Shared<E>> {
        self.0.upgrade().map(Shared::handle)
    }
}

impl<E: End> fmt::Debug for WeakShared<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WeakShared").finish()
    }
}

impl<E: End> Drop for Shared<E> {
    fn drop(&mut self) {
        E::handle_gone(&self.core.link, self.record.index());
        #[cfg(feature = "serde")]
        if self.core.is_far {
            self.core.line.handle_dropped();
        }
    }
}

impl<E: End> Clone for Shared<E> {
    fn clone(&self) -> Self {
        Self::handle(self.core.clone())
    }
}

impl<E: End> fmt::Debug for Shared<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Shared").field(&self.record.id()).finish()
    }
}

impl<T, P> Shared<Sender<T, P>> {
    /// Sends one value: see [`Sender::send`]. Held back while another handle's claim is out.
    pub fn send(&mut self, value: T) -> Lone<'_, Sending<'_, T>> {
        Lone::new(self, Doing::Send, |chan, handle| Sending::by(chan, handle, value))
    }

    /// Sends the value in `slot`: see [`Sender::send_from`].
    pub fn send_from<'a>(&'a mut self, slot: &'a mut Option<T>) -> Lone<'a, SendingFrom<'a, T>> {
        Lone::new(self, Doing::Send, |chan, handle| SendingFrom::by(chan, handle, slot))
    }

    /// Settles a `send_from` of this handle that was forgotten or dropped: see [`Sender::settle`].
    ///
    /// # Errors
    /// [`SendError::Unknown`] if the receiver's node is lost.
    pub async fn settle(&mut self, slot: &mut Option<T>) -> Result<(), SendError<()>> {
        let settled = std::future::poll_fn(|cx| self.core.link.poll_settle(self.number(), slot, cx)).await;
        settled.map_err(|failed| failed.with(()))
    }

    /// Posts `value` without waiting: see [`Sender::send_nowait`]. A value posted while another handle's
    /// claim is out waits for the end of that claim. A value posted before the claim comes before all values
    /// sent under it.
    ///
    /// If the handle is at another node than the end, this order holds only against claims of the handle's
    /// node. A claim of any other node holds back a posted value that has not been received, also one posted
    /// before it, as it does a [`send`](Self::send).
    pub fn send_nowait(&mut self, value: T) -> Posted<T> {
        let posted = Posted::new(&self.core.link, self.number(), value);
        self.core.line.posted();
        posted
    }

    /// Sends `value` if that needs no waiting: see [`Sender::try_send`].
    ///
    /// # Errors
    /// [`SendError::NotTaken`] with the value.
    pub fn try_send(&mut self, value: T) -> Result<(), SendError<T>> {
        let mut slot = Some(value);
        match (self.core.link.try_send(self.number(), &mut slot), slot) {
            (Err(why), Some(value)) => Err(SendError::NotTaken { value, why }),
            _ => Ok(()),
        }
    }

    /// Whether nothing can be sent any more.
    pub fn is_closed(&self) -> bool {
        self.core.link.why_no_send().is_some()
    }
}

impl<T, P> Shared<Receiver<T, P>> {
    /// Receives one value: see [`Receiver::recv`]. Held back while another handle's claim is out.
    ///
    /// A value wakes at most 16 of the waiting handles, the one that has waited longest first. It wakes fewer
    /// where woken handles are polled soon: one for a rendezvous, two for a buffered value. A woken handle
    /// that is dropped wakes the next. If no woken handle has taken the value by the next tick, the others
    /// are woken ([`waits::advance`](crate::waits::advance)).
    pub fn recv(&mut self) -> Lone<'_, Receiving<'_, T>> {
        Lone::new(self, Doing::Receive, Receiving::by)
    }

    /// Receives one value, or `None` at the end: see [`Receiver::next`], also for the loop over it:
    /// `while let Some(value) = rx.next().await?`.
    #[allow(clippy::should_implement_trait)] // as `Receiver::next`
    pub fn next(&mut self) -> Lone<'_, Next<'_, T>> {
        Lone::new(self, Doing::Receive, Next::by)
    }

    /// Receives one value and keeps its sender waiting: see [`Receiver::recv_extended`].
    pub fn recv_extended(&mut self) -> Lone<'_, Extending<'_, T>> {
        Lone::new(self, Doing::Receive, Extending::by)
    }

    /// Takes a value if one is there: see [`Receiver::try_recv`].
    ///
    /// # Errors
    /// [`RecvError::WouldBlock`] if there is none, or a claim is out.
    pub fn try_recv(&mut self) -> Result<T, RecvError> {
        self.core.link.try_take(self.number())
    }

    /// Whether no receive can succeed any more.
    pub fn is_closed(&self) -> bool {
        self.core.link.is_drained()
    }
}

impl<T> Shared<Sender<T, MayPoison>> {
    /// Ends the whole channel at once, whichever handle holds the claim: see [`Sender::poison`].
    ///
    /// The holder of a claim keeps it, but all operations under the claim fail from now on, as on the whole
    /// channel. From another node than the end's the poison takes effect when its message has arrived there.
    ///
    /// # Examples
    /// ```
    /// use dunlin_core::{Why, channel};
    /// # dunlin_core::doc::block_on(async {
    /// let (tx, _rx) = channel::<u8>();
    /// let mut tx = tx.share();
    /// let other = tx.clone();
    /// let mut claim = tx.claim().await.unwrap();
    /// other.poison("disk full"); // needs no claim
    /// assert!(matches!(claim.send(1).await.unwrap_err().why(), Some(Why::Poisoned(_))));
    /// # });
    /// ```
    pub fn poison(&self, reason: impl Into<Reason>) {
        self.poison_with(Strength::FULL, reason);
    }

    /// As [`poison`](Self::poison), with this strength: see [`Sender::poison_with`]. `false`: the channel is
    /// immune to it, and nothing has happened.
    pub fn poison_with(&self, strength: impl Into<Strength>, reason: impl Into<Reason>) -> bool {
        self.core.link.poison(reason.into().of_strength(strength))
    }
}

impl<T> Shared<Receiver<T, MayPoison>> {
    /// Ends the whole channel at once, whichever handle holds the claim: see [`Receiver::poison`]. Pending
    /// sends return their values.
    ///
    /// The holder of a claim keeps it, but all operations under the claim fail from now on, as on the whole
    /// channel. From another node than the end's the poison takes effect when its message has arrived there.
    pub fn poison(&self, reason: impl Into<Reason>) {
        self.poison_with(Strength::FULL, reason);
    }

    /// As [`poison`](Self::poison), with this strength: see [`Sender::poison_with`]. `false`: the channel is
    /// immune to it, and nothing has happened.
    pub fn poison_with(&self, strength: impl Into<Strength>, reason: impl Into<Reason>) -> bool {
        self.core.link.poison(reason.into().of_strength(strength))
    }
}

/// An end that one of its handles can retire.
#[doc(hidden)]
pub trait Retire: End {
    /// The holder of the claim retires the channel. `tell_keeper` makes the node that keeps the end retire it
    /// before the claim returns there.
    fn retire_claimed(&self, tell_keeper: impl FnOnce());
}

impl<T, P> Retire for Sender<T, P> {
    fn retire_claimed(&self, tell_keeper: impl FnOnce()) {
        if !self.is_closed() {
            tell_keeper();
            self.retire();
        }
    }
}

impl<T, P> Retire for Receiver<T, P> {
    fn retire_claimed(&self, _: impl FnOnce()) {
        // The channel itself notifies the keeper, which has the buffered values.
        self.retire();
    }
}

impl<E: Retire> Shared<E> {
    /// Ends the whole channel in order, once no other handle holds a claim: see [`Sender::retire`] and
    /// [`Receiver::retire`].
    ///
    /// This is an operation like a lone [`send`](Shared::send): it does not cut a claim short, and earlier
    /// claimers have their turn. It claims the end for this one purpose, and releases it by itself.
    /// [`poison`](Shared::poison) never waits.
    ///
    /// # Errors
    /// [`ClaimError::TimedOut`] with a deadline, [`ClaimError::NodeLost`] if the node that keeps the end is
    /// lost. The channel is unchanged then.
    ///
    /// # Cancel safety
    /// If it is dropped before it is ready, it has had no effect.
    ///
    /// # Examples
    /// ```
    /// use dunlin_core::{Operation, Why, channel};
    /// # dunlin_core::doc::block_on(async {
    /// let (tx, _rx) = channel::<u8>();
    /// let mut tx = tx.share();
    /// let mut other = tx.clone();
    /// let claim = tx.claim().await.unwrap();
    /// assert!(other.retire().until(std::future::ready(())).await.is_err()); // the claim is out
    /// drop(claim);
    /// other.retire().await.unwrap();
    /// assert_eq!(tx.send(1).await.unwrap_err().why(), Some(&Why::Closed));
    /// # });
    /// ```
    pub fn retire(&mut self) -> Retiring<'_, E> {
        Retiring { claiming: self.claim() }
    }

    /// Makes the keeper retire the channel.
    fn tell_keeper(&self) {
        #[cfg(feature = "serde")]
        if self.core.is_far {
            self.core.line.retire();
        }
    }
}

/// The operation of [`Shared::retire`].
#[must_use = "an operation does nothing until it is awaited or chosen"]
pub struct Retiring<'a, E: End> {
    claiming: Claiming<'a, E>,
}

fn retire<E: Retire>(claimed: Result<Claim<'_, E>, ClaimError>) -> Result<(), ClaimError> {
    let claim = claimed?;
    claim.retire_claimed(|| claim.shared.tell_keeper());
    Ok(())
}

impl<E: Retire> Future for Retiring<'_, E> {
    type Output = Result<(), ClaimError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.claiming).poll(cx).map(retire)
    }
}

impl<E: Retire> Branch for Retiring<'_, E> {
    type Output = Result<(), ClaimError>;

    fn poll_branch(mut self: Pin<&mut Self>, cx: &mut Context<'_>, choice: &ChoiceCx) -> Poll<Self::Output> {
        Pin::new(&mut self.claiming).poll_branch(cx, choice).map(retire)
    }

    fn look(&self) -> Look {
        self.claiming.look()
    }

    fn chosen(&self, turn: u32) {
        self.claiming.chosen(turn);
    }
}

impl<E: Retire> Operation for Retiring<'_, E> {
    fn poll_expire(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.claiming).poll_expire(cx).map(retire)
    }
}

impl<E: End> fmt::Debug for Retiring<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Retiring").field(&self.claiming).finish()
    }
}

pin_project_lite::pin_project! {
    /// An operation on a shared end without a claim: for one message.
    #[must_use = "an operation does nothing until it is awaited or chosen"]
    pub struct Lone<'a, O> {
        #[pin]
        operation: O,
        waiting: Waiting<'a>,
    }
}

/// Marks a lone operation as waiting: in the line's count, and in the handle's wait record.
struct Waiting<'a> {
    line: &'a Arc<Line>,
    record: &'a Recorded,
    doing: Doing,
    counted: bool,
}

impl Waiting<'_> {
    fn side(&self) -> &crate::waits::Side {
        if self.doing == Doing::Send { &self.record.sender } else { &self.record.receiver }
    }

    fn set(&mut self, waits: bool) {
        if waits == self.counted {
            return;
        }
        self.counted = waits;
        if waits {
            self.line.lone_began();
            self.side().begin(self.doing);
        } else {
            self.line.lone_ended();
            self.side().end();
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.set(false);
    }
}

impl<'a, O> Lone<'a, O> {
    pub(crate) fn new<T: 'a, E>(
        shared: &'a mut Shared<E>,
        doing: Doing,
        operation: impl FnOnce(&'a Chan<T>, Handle) -> O,
    ) -> Self
    where
        E: End<Link = Arc<Chan<T>>>,
    {
        let shared = &*shared;
        let operation = operation(&shared.core.link, shared.number());
        let waiting = Waiting { line: &shared.core.line, record: &shared.record, doing, counted: false };
        Self { operation, waiting }
    }
}

impl<O> fmt::Debug for Lone<'_, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lone").field(&self.waiting.record.id()).finish()
    }
}

impl<O: Future> Future for Lone<'_, O> {
    type Output = O::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<O::Output> {
        let this = self.project();
        let polled = this.operation.poll(cx);
        this.waiting.set(polled.is_pending());
        polled
    }
}

impl<O: Branch> Branch for Lone<'_, O> {
    type Output = O::Output;

    fn poll_branch(self: Pin<&mut Self>, cx: &mut Context<'_>, choice: &ChoiceCx) -> Poll<O::Output> {
        let this = self.project();
        let polled = this.operation.poll_branch(cx, choice);
        this.waiting.set(polled.is_pending());
        polled
    }

    fn look(&self) -> Look {
        let turn = Some(self.waiting.side().turn());
        match self.operation.look() {
            Look::Off => Look::Off,
            Look::Empty(_) => Look::Empty(turn),
            Look::Maybe(_) => Look::Maybe(turn),
        }
    }

    fn chosen(&self, turn: u32) {
        self.waiting.side().set_turn(turn);
    }

    fn rouse(&self) {
        self.operation.rouse();
    }
}

impl<O: Operation> Operation for Lone<'_, O> {
    fn poll_expire(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<O::Output> {
        let this = self.project();
        let polled = this.operation.poll_expire(cx);
        this.waiting.set(polled.is_pending());
        polled
    }

    fn turn(&self) -> Turn {
        self.operation.turn()
    }
}

/// The operation of [`Shared::claim`].
#[must_use = "an operation does nothing until it is awaited or chosen"]
pub struct Claiming<'a, E: End> {
    /// `None` once the claim has been granted.
    shared: Option<&'a mut Shared<E>>,
    record: &'static Record,
    ticket: Option<u64>,
    /// It is a branch of a choice.
    is_branch: bool,
    /// It has been awaited before.
    again: bool,
}

impl<'a, E: End> Claiming<'a, E> {
    fn poll_line(
        &mut self,
        cx: &mut Context<'_>,
        commit: impl FnOnce() -> bool,
    ) -> Poll<Result<Claim<'a, E>, ClaimError>> {
        let shared = self.shared.as_mut().expect("a claim that was granted is not polled again");
        if shared.core.line.is_lost() {
            self.record.sender.end();
            return if commit() { Poll::Ready(Err(ClaimError::NodeLost)) } else { Poll::Pending };
        }
        match shared.core.line.poll(&mut self.ticket, cx.waker(), commit) {
            Polled::Given => self.record.sender.end(),
            Polled::Waits => {
                if self.ticket.is_some() {
                    self.record.sender.begin(Doing::Claim);
                }
                return Poll::Pending;
            }
            Polled::Refused(why) => {
                self.record.sender.end();
                return Poll::Ready(Err(ClaimError::Unsendable(why)));
            }
        }
        Poll::Ready(match self.shared.take() {
            Some(shared) => Ok(Claim::new(shared)),
            None => Err(ClaimError::WouldBlock),
        })
    }
}

impl<E: End> Unpin for Claiming<'_, E> {}

impl<'a, E: End> Future for Claiming<'a, E> {
    type Output = Result<Claim<'a, E>, ClaimError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let again = std::mem::replace(&mut this.again, true);
        budget::counted(again, cx, |cx| this.poll_line(cx, || true))
    }
}

impl<'a, E: End> Branch for Claiming<'a, E> {
    type Output = Result<Claim<'a, E>, ClaimError>;

    fn poll_branch(self: Pin<&mut Self>, cx: &mut Context<'_>, choice: &ChoiceCx) -> Poll<Self::Output> {
        let this = self.get_mut();
        this.is_branch = true;
        this.poll_line(cx, || choice.commit())
    }

    fn look(&self) -> Look {
        Look::Maybe(Some(self.record.sender.turn()))
    }

    fn chosen(&self, turn: u32) {
        self.record.sender.set_turn(turn);
    }
}

impl<E: End> Operation for Claiming<'_, E> {
    fn poll_expire(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Err(ClaimError::TimedOut))
    }
}

impl<E: End> Drop for Claiming<'_, E> {
    fn drop(&mut self) {
        if let (Some(ticket), Some(shared)) = (self.ticket, &self.shared) {
            if self.is_branch {
                shared.core.line.wish();
            }
            shared.core.line.leave(ticket);
            shared.record.sender.end();
        }
    }
}

impl<E: End> fmt::Debug for Claiming<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Claiming").field(&self.ticket).finish()
    }
}

/// A shared end, held alone: it derefs to the end until it is dropped, also by a panic.
///
/// A forgotten claim (`mem::forget`) is never released.
#[must_use = "the claim ends when this is dropped"]
pub struct Claim<'a, E: End> {
    shared: &'a mut Shared<E>,
    /// `None` only in `drop`.
    end: Option<E>,
}

impl<'a, E: End> Claim<'a, E> {
    /// The line guarantees that no other claimer holds the end.
    fn new(shared: &'a mut Shared<E>) -> Self {
        E::hold_back(&shared.core.link, true, Claimer(Handle::END));
        let end = shared.core.end.lock().take();
        Self { shared, end }
    }
}

impl<E: End> Deref for Claim<'_, E> {
    type Target = E;

    fn deref(&self) -> &E {
        self.end.as_ref().expect("held until dropped")
    }
}

impl<E: End> DerefMut for Claim<'_, E> {
    fn deref_mut(&mut self) -> &mut E {
        self.end.as_mut().expect("held until dropped")
    }
}

impl<E: End> Drop for Claim<'_, E> {
    fn drop(&mut self) {
        give_back(&self.shared.core, self.end.take());
    }
}

/// A claim is over: the end is the handles' again.
fn give_back<E: End>(core: &Core<E>, end: Option<E>) {
    /// Releases the line, also if a value that is dropped now panics.
    struct Released<'a>(&'a Arc<Line>);
    impl Drop for Released<'_> {
        fn drop(&mut self) {
            self.0.release();
        }
    }
    let _released = Released(&core.line);
    let other = std::mem::replace(&mut *core.end.lock(), end);
    drop(other);
    E::hold_back(&core.link, false, Claimer(Handle::END));
}

/// A claim that borrows no handle: see [`Claim::into_owned`]. It ends when this is dropped.
#[must_use = "the claim ends when this is dropped"]
pub struct OwnedClaim<E: End> {
    shared: Shared<E>,
    /// `None` only in `drop`.
    end: Option<E>,
}

impl<E: End> Claim<'_, E> {
    /// Detaches the claim from its handle, which can be used or dropped while the claim lasts.
    ///
    /// # Examples
    /// ```
    /// use dunlin_core::{channel, par};
    /// # dunlin_core::doc::block_on(async {
    /// let (tx, mut rx) = channel();
    /// let mut tx = tx.share();
    /// let mut stage = tx.claim().await.unwrap().into_owned();
    /// assert!(tx.try_claim().is_err());
    /// let mut other = tx.clone();
    /// drop(tx);
    /// let (sent, got) = par!(stage.send(7), rx.recv());
    /// assert_eq!((sent, got), (Ok(()), Ok(7)));
    /// drop(stage);
    /// assert!(other.try_claim().is_ok());
    /// # });
    /// ```
    pub fn into_owned(mut self) -> OwnedClaim<E> {
        let owned = OwnedClaim { shared: self.shared.clone(), end: self.end.take() };
        // The claim goes on, and without the end this holds nothing that needs a drop.
        std::mem::forget(self);
        owned
    }
}

impl<E: End> Deref for OwnedClaim<E> {
    type Target = E;

    fn deref(&self) -> &E {
        self.end.as_ref().expect("held until dropped")
    }
}

impl<E: End> DerefMut for OwnedClaim<E> {
    fn deref_mut(&mut self) -> &mut E {
        self.end.as_mut().expect("held until dropped")
    }
}

impl<E: End> Drop for OwnedClaim<E> {
    fn drop(&mut self) {
        give_back(&self.shared.core, self.end.take());
    }
}

impl<E: End + fmt::Debug> fmt::Debug for OwnedClaim<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnedClaim").field(&self.end).finish()
    }
}

impl<E: End + fmt::Debug> fmt::Debug for Claim<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Claim").field(&self.end).finish()
    }
}
