//! The sending end, and its operations.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::policy::Policy;
use super::posted::Posted;
use super::state::{Chan, Post, SendingEnd};
use super::{MayPoison, NoPoison, debug_operation};
use crate::budget;
use crate::choice::ChoiceCx;
use crate::choice::branch::{Branch, Look};
use crate::error::{Failed, Reason, SendError, Strength};
use crate::handle::Handle;
use crate::operation::Operation;
use crate::turn::Turn;
use crate::waits::ChannelId;

/// The sending end of a channel of `T`.
///
/// An end is an owned value that is used through `&mut`: it has one holder, and a move hands it over.
/// Dropping it leaves the channel: without a sender, receivers get the remaining values and then
/// [`Closed`](crate::RecvError::Closed). [`share`](Self::share) makes an end with several holders.
///
/// `P` states whether this end may poison the channel: a `Sender<T, NoPoison>` has no method `poison`.
pub struct Sender<T, P = MayPoison> {
    end: SendingEnd<T>,
    power: PhantomData<fn() -> P>,
}

impl<T, P> Sender<T, P> {
    pub(crate) fn new(chan: Arc<Chan<T>>) -> Self {
        Self::of(SendingEnd::new(chan))
    }

    pub(crate) fn of(end: SendingEnd<T>) -> Self {
        Self { end, power: PhantomData }
    }

    pub(crate) fn chan(&self) -> &Arc<Chan<T>> {
        self.end.chan()
    }

    /// Returns a function that makes another value for this end, unless the end has been dropped.
    #[cfg(feature = "serde")]
    pub(crate) fn another(&self) -> impl FnOnce() -> Option<Self> + use<T, P> {
        let chan = self.chan().clone();
        move || chan.move_sender().then(|| Self::new(chan))
    }

    /// Returns this value if no other value stands for the end.
    #[cfg(feature = "serde")]
    pub(crate) fn alone(self) -> Option<Self> {
        // Held until this value is dropped. Otherwise several values could each see another one, and all
        // would give the end up.
        let _others_wait = crate::handle::one_gives_up();
        if !self.chan().unmove_sender() {
            return Some(self);
        }
        // `unmove_sender` has uncounted this value, and its drop uncounts it again.
        self.chan().move_sender();
        drop(self);
        None
    }

    /// Sends `value`, and waits until a receive has returned it. On a channel with a buffer the send waits
    /// until the buffer has admitted it.
    ///
    /// In a choice, `T` must be `Copy`: otherwise an unchosen branch would drop the value. Use
    /// [`send_from`](Self::send_from) there.
    ///
    /// # Errors
    /// [`SendError::NotTaken`] with the value: the receiver was dropped, the channel is retired or poisoned,
    /// or the channel's policy or bounds refused it. [`SendError::Unknown`] only if the receiver's node is
    /// lost.
    ///
    /// # Cancel safety
    /// Dropped before it is ready, the send has not happened and drops the value, unless an extended receive
    /// has already taken it. To keep the value use [`send_from`](Self::send_from).
    ///
    /// # Examples
    /// ```
    /// use dunlin_core::{channel, par};
    /// # dunlin_core::doc::block_on(async {
    /// let (mut tx, mut rx) = channel();
    /// let (sent, received) = par!(tx.send("krill"), rx.recv());
    /// assert_eq!((sent, received), (Ok(()), Ok("krill")));
    ///
    /// drop(rx);
    /// assert_eq!(tx.send("squid").await.unwrap_err().into_value(), "squid");
    /// # });
    /// ```
    pub fn send(&mut self, value: T) -> Sending<'_, T> {
        Sending { chan: self.chan(), post: Post::new(Handle::END), value: Some(value) }
    }

    /// Sends the value in `slot`, which is empty if and only if the value has been sent.
    ///
    /// An empty slot has nothing to send: the operation is ready at once when awaited, and off as a branch of
    /// a choice.
    ///
    /// # Errors
    /// Those of [`send`](Self::send); the value is back in `slot`.
    ///
    /// # Cancel safety
    /// Dropped before it is ready, the operation leaves the value in `slot`, unless an extended receive has
    /// already taken it. (A future given to `mem::forget` leaves its offer standing; [`settle`](Self::settle)
    /// recovers the value.)
    ///
    /// # Examples
    /// ```
    /// use dunlin_core::{alt, channel};
    /// # dunlin_core::doc::block_on(async {
    /// let (mut tx, _rx) = channel();
    /// let mut slot = Some("krill");
    /// alt! { biased; r = tx.send_from(&mut slot) => r?, skip => {} }
    /// assert_eq!(slot, Some("krill"));
    /// # Ok::<(), dunlin_core::SendError<()>>(())
    /// # }).unwrap();
    /// ```
    pub fn send_from<'a>(&'a mut self, slot: &'a mut Option<T>) -> SendingFrom<'a, T> {
        SendingFrom { chan: self.chan(), post: Post::new(Handle::END), slot }
    }

    /// Posts `value`: offers it at once without waiting. The returned handle reports the outcome later.
    ///
    /// Values arrive in the order in which they were posted, and before any value sent after them. Only the
    /// policy ([`pending_senders`](crate::Policy::pending_senders)) and memory bound the number of posted
    /// values. A sender that can be faster than the receiver awaits a handle now and then, or uses a
    /// [buffer](crate::fifo).
    ///
    /// Dropping the handle detaches the value, which then stays offered: see [`Posted`].
    ///
    /// # Errors
    /// The handle returns them: those of [`send`](Self::send).
    ///
    /// # Examples
    /// ```
    /// use dunlin_core::{channel, par};
    /// # dunlin_core::doc::block_on(async {
    /// let (mut tx, mut rx) = channel();
    /// let first = tx.send_nowait("krill"); // nobody receives yet
    /// let second = tx.send_nowait("squid");
    /// assert!(!first.is_done());
    /// assert_eq!((rx.recv().await, rx.recv().await), (Ok("krill"), Ok("squid")));
    /// assert_eq!((first.await, second.await), (Ok(()), Ok(())));
    /// # });
    /// ```
    ///
    /// # Source
    /// `WriteNoWait` of CoCoL (Skovhede and Vinter, 2015).
    pub fn send_nowait(&mut self, value: T) -> Posted<T> {
        Posted::new(self.chan(), Handle::END, value)
    }

    /// Sends `value` if that needs no wait: into a buffer with room.
    ///
    /// On a rendezvous channel no receive can take the value within this call, so the result is always
    /// [`Why::WouldBlock`](crate::Why::WouldBlock). `tx.send(value).within(Duration::ZERO)` of the crate
    /// `dunlin` lets a parked receiver take it.
    ///
    /// # Errors
    /// [`SendError::NotTaken`] with the value.
    pub fn try_send(&mut self, value: T) -> Result<(), SendError<T>> {
        let mut slot = Some(value);
        match (self.chan().try_send(Handle::END, &mut slot), slot) {
            (Err(why), Some(value)) => Err(SendError::NotTaken { value, why }),
            _ => Ok(()),
        }
    }

    /// Learns the outcome of a [`send_from`](Self::send_from) that was forgotten or dropped. A value that was
    /// not taken goes back into `slot`, if that is empty.
    ///
    /// With both ends in one program this does not wait; with the receiver on another node it asks that node.
    ///
    /// # Errors
    /// [`SendError::Unknown`] if the receiver's node is lost.
    ///
    /// # Cancel safety
    /// Can be called again.
    pub async fn settle(&mut self, slot: &mut Option<T>) -> Result<(), SendError<()>> {
        let settled = std::future::poll_fn(|cx| self.chan().poll_settle(Handle::END, slot, cx)).await;
        settled.map_err(without_value)
    }

    /// Waits until no send can succeed any more: all receivers were dropped, or the channel was retired or
    /// poisoned.
    ///
    /// # Cancel safety
    /// Has no effect at all.
    pub fn closed(&mut self) -> ClosedSending<'_, T> {
        ClosedSending { chan: self.chan(), handle: Handle::END, waiting: false }
    }

    /// Whether no send can succeed any more.
    pub fn is_closed(&self) -> bool {
        self.chan().why_no_send().is_some()
    }

    /// How many values are in the channel's buffer; 0 for a rendezvous.
    ///
    /// With the receiver on another node this is 0, because the buffer is there: values on their way and
    /// values waiting here do not count.
    pub fn len(&self) -> usize {
        self.chan().len()
    }

    /// Whether the channel's buffer is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ends the whole channel in order: pending and later sends fail with
    /// [`Why::Closed`](crate::Why::Closed); receivers get the buffered values, and then
    /// [`Closed`](crate::RecvError::Closed). Either end can call it; a second call is harmless.
    pub fn retire(&self) {
        self.chan().retire();
    }

    /// Gives up this end's power to poison the channel, for good.
    pub fn no_poison(self) -> Sender<T, NoPoison> {
        Sender { end: self.end, power: PhantomData }
    }

    /// Sets the policy of a channel that was made without one. `false`: it has a policy, or an agent.
    #[doc(hidden)]
    pub fn set_policy(&self, policy: &Policy) -> bool {
        self.chan().set_policy(policy)
    }

    /// The channel's number in the wait records ([`waits`](crate::waits)).
    pub fn id(&self) -> ChannelId {
        self.chan().record.id()
    }
}

impl<T, P> Sender<T, P> {
    /// Hands this end to an agent, which takes its place: the sender has not left.
    pub(crate) fn into_inlet(self) {
        self.chan().move_sender();
    }
}

impl<T> Sender<T, MayPoison> {
    /// Ends the whole channel at once, whatever its immunity: from now on every operation on it, at both
    /// ends, fails with `reason`. Buffered values are destroyed. Sends whose values a receive has taken stay
    /// successful. The first reason stands.
    ///
    /// # Examples
    /// ```
    /// use dunlin_core::{RecvError, channel};
    /// # dunlin_core::doc::block_on(async {
    /// let (tx, mut rx) = channel::<u8>();
    /// tx.poison("disk full");
    /// let Err(RecvError::Poisoned(reason)) = rx.recv().await else { unreachable!() };
    /// assert_eq!(reason.as_str(), "disk full");
    /// # });
    /// ```
    ///
    /// An end that may not poison has no such method:
    /// ```compile_fail,E0599
    /// let (tx, _rx) = dunlin_core::channel::<u8>();
    /// tx.no_poison().poison("mine");
    /// ```
    ///
    /// # Source
    /// Poison of C++CSP (Brown and Welch, 2003) and JCSP.
    pub fn poison(&self, reason: impl Into<Reason>) {
        self.poison_with(Strength::FULL, reason);
    }

    /// Poisons with this strength, to which a channel may be [immune](crate::Policy::immunity).
    ///
    /// `false`: the channel is immune, and nothing has happened. `true`: the channel is poisoned. If the
    /// receiver is on another node, that node checks the immunity: this method returns `true`, and later
    /// operations report the outcome.
    ///
    /// # Examples
    /// A poisoned process passes the poison on, with the same strength, to all ends that it holds:
    /// ```
    /// use dunlin_core::{RecvError, Receiver, Sender, Strength, channel, channel_with, rendezvous};
    ///
    /// async fn stage(mut from: Receiver<u8>, mut to: Vec<Sender<u8>>) {
    ///     let Err(RecvError::Poisoned(why)) = from.recv().await else { unreachable!() };
    ///     for tx in to {
    ///         tx.poison_with(why.strength(), why.clone());
    ///     }
    /// }
    /// # dunlin_core::doc::block_on(async {
    /// let (tx, rx) = channel();
    /// let (inner, mut next) = channel();
    /// let (outer, mut other) = channel_with(rendezvous().immunity(3));
    /// tx.poison_with(2, "this part is over");
    /// stage(rx, vec![inner, outer]).await;
    /// let Err(RecvError::Poisoned(why)) = next.recv().await else { unreachable!() };
    /// assert_eq!((why.as_str(), why.strength()), ("this part is over", Strength::from(2)));
    /// assert_eq!(other.recv().await, Err(RecvError::Closed));
    /// # });
    /// ```
    pub fn poison_with(&self, strength: impl Into<Strength>, reason: impl Into<Reason>) -> bool {
        self.chan().poison(reason.into().of_strength(strength))
    }
}

impl<T> From<Sender<T>> for Sender<T, NoPoison> {
    fn from(sender: Sender<T>) -> Self {
        sender.no_poison()
    }
}

impl<T, P> fmt::Debug for Sender<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sender").field(&self.id()).finish()
    }
}

/// A value that a send in a branch of a choice accepts: one that can be copied without loss.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "a send of `{Self}` that goes unchosen would lose its value",
    label = "only a `Copy` value may be given to a branch",
    note = "keep it in a slot, `let mut slot = Some(value)`, and write `tx.send_from(&mut slot)`"
)]
pub trait Spare {}
#[diagnostic::do_not_recommend]
impl<T: Copy> Spare for T {}

/// The operation of [`Sender::send`].
#[must_use = "an operation does nothing until it is awaited or chosen"]
pub struct Sending<'a, T> {
    chan: &'a Chan<T>,
    post: Post,
    value: Option<T>,
}

impl<'a, T> Sending<'a, T> {
    pub(crate) fn by(chan: &'a Chan<T>, handle: Handle, value: T) -> Self {
        Self { chan, post: Post::new(handle), value: Some(value) }
    }

    // Inlined too: an error returned by a call is in memory, and so would be the outcome of sends without
    // one.
    #[inline(always)]
    fn outcome(&mut self, sent: Result<(), Failed>) -> Result<(), SendError<T>> {
        match (sent, self.value.take()) {
            (Err(failed), Some(value)) => Err(failed.with(value)),
            _ => Ok(()),
        }
    }
}

// The value is never pinned: it moves through the channel.
impl<T> Unpin for Sending<'_, T> {}

impl<T> Future for Sending<'_, T> {
    type Output = Result<(), SendError<T>>;

    // Inlined into the caller's state machine, where the outcome stays in registers; measured, a third of a
    // rendezvous.
    #[inline(always)]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        match this.chan.poll_send(&mut this.post, &mut this.value, cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(())) => Poll::Ready(Ok(())),
            Poll::Ready(sent) => Poll::Ready(this.outcome(sent)),
        }
    }
}

impl<T: Spare> Branch for Sending<'_, T> {
    type Output = Result<(), SendError<T>>;

    fn poll_branch(self: Pin<&mut Self>, cx: &mut Context<'_>, choice: &ChoiceCx) -> Poll<Self::Output> {
        let this = self.get_mut();
        let sent = this.chan.poll_send_chosen(&mut this.post, &mut this.value, cx, choice);
        sent.map(|sent| this.outcome(sent))
    }

    fn look(&self) -> Look {
        Look::Maybe(Some(self.chan.record.sender.turn()))
    }

    fn chosen(&self, turn: u32) {
        self.chan.record.sender.set_turn(turn);
    }

    fn rouse(&self) {
        self.chan.rouse();
    }
}

impl<T> Operation for Sending<'_, T> {
    fn poll_expire(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        expire(this.chan, &mut this.post, &mut this.value, cx).map(|sent| this.outcome(sent))
    }

    fn turn(&self) -> Turn {
        self.post.turn(self.chan.any())
    }
}

impl<T> Drop for Sending<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.chan.abandon(&mut self.post, &mut self.value);
    }
}

/// Withdraws the offer because a deadline has passed.
pub(crate) fn expire<T>(
    chan: &Chan<T>,
    post: &mut Post,
    slot: &mut Option<T>,
    cx: &mut Context<'_>,
) -> Poll<Result<(), Failed>> {
    if slot.is_none() && !chan.withdraw(post, slot, false) {
        // An extended receive or an agent has it; the release or the agent's answer will complete the send.
        return chan.poll_send_slowly(post, slot, cx);
    }
    Poll::Ready(if slot.is_some() { Err(chan.send_timed_out().into()) } else { Ok(()) })
}

/// The operation of [`Sender::send_from`].
#[must_use = "an operation does nothing until it is awaited or chosen"]
pub struct SendingFrom<'a, T> {
    chan: &'a Chan<T>,
    post: Post,
    slot: &'a mut Option<T>,
}

impl<'a, T> SendingFrom<'a, T> {
    pub(crate) fn by(chan: &'a Chan<T>, handle: Handle, slot: &'a mut Option<T>) -> Self {
        Self { chan, post: Post::new(handle), slot }
    }
}

/// The error alone: the value is in the slot.
fn without_value(failed: Failed) -> SendError<()> {
    failed.with(())
}

impl<T> Unpin for SendingFrom<'_, T> {}

impl<T> Future for SendingFrom<'_, T> {
    type Output = Result<(), SendError<()>>;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        this.chan.poll_send(&mut this.post, this.slot, cx).map_err(without_value)
    }
}

impl<T> Branch for SendingFrom<'_, T> {
    type Output = Result<(), SendError<()>>;

    fn poll_branch(self: Pin<&mut Self>, cx: &mut Context<'_>, choice: &ChoiceCx) -> Poll<Self::Output> {
        let this = self.get_mut();
        this.chan.poll_send_chosen(&mut this.post, this.slot, cx, choice).map_err(without_value)
    }

    fn look(&self) -> Look {
        if self.slot.is_none() && !self.post.is_out() {
            return Look::Off;
        }
        Look::Maybe(Some(self.chan.record.sender.turn()))
    }

    fn chosen(&self, turn: u32) {
        self.chan.record.sender.set_turn(turn);
    }

    fn rouse(&self) {
        self.chan.rouse();
    }
}

impl<T> Operation for SendingFrom<'_, T> {
    fn poll_expire(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        expire(this.chan, &mut this.post, this.slot, cx).map_err(without_value)
    }

    fn turn(&self) -> Turn {
        self.post.turn(self.chan.any())
    }
}

impl<T> Drop for SendingFrom<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.chan.abandon(&mut self.post, self.slot);
    }
}

/// The operation of [`Sender::closed`].
#[must_use = "an operation does nothing until it is awaited or chosen"]
pub struct ClosedSending<'a, T> {
    chan: &'a Chan<T>,
    handle: Handle,
    waiting: bool,
}

impl<T> ClosedSending<'_, T> {
    fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let polled = self.chan.poll_closed(self.handle, true, cx);
        self.waiting = polled.is_pending();
        polled
    }
}

impl<T> Future for ClosedSending<'_, T> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let polled = budget::counted(self.waiting, cx, |cx| self.poll_closed(cx));
        self.waiting = polled.is_pending();
        polled
    }
}

impl<T> Branch for ClosedSending<'_, T> {
    type Output = ();

    fn poll_branch(mut self: Pin<&mut Self>, cx: &mut Context<'_>, choice: &ChoiceCx) -> Poll<()> {
        choice.poll_lasting(|| self.poll_closed(cx))
    }
}

impl<T> Drop for ClosedSending<'_, T> {
    fn drop(&mut self) {
        if self.waiting {
            self.chan.record.sender.end();
        }
    }
}

debug_operation! { Sending SendingFrom ClosedSending }
