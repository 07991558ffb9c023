//! The receiving end, and its operations.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::debug_operation;
use super::policy::Policy;
use super::state::Chan;
use super::{MayPoison, NoPoison};
use crate::budget;
use crate::choice::ChoiceCx;
use crate::choice::branch::{Branch, Look};
use crate::error::{Reason, RecvError, Strength};
use crate::handle::Handle;
use crate::operation::Operation;
use crate::waits::ChannelId;

/// The receiving end of a channel of `T`.
///
/// Owned and used through `&mut`, like a [`Sender`](crate::Sender). Dropping it ends the channel for the
/// senders, returns their values to them, and drops the buffered ones.
///
/// It is also a [`Stream`](futures_core::Stream) of `Result<T, RecvError>`, which ends when the channel has
/// ended in order, and after an error. A stream that returned `Pending` and is not polled again still counts
/// as a waiting receiver, also among [`waits`](crate::waits) and under a bound on pending receivers. It does
/// so until the receiver is used in another way, moved into another kind of end, or dropped.
pub struct Receiver<T, P = MayPoison> {
    end: ReceivingEnd<T>,
    /// As a stream: it has returned an error, so the next item is `None`.
    failed: bool,
    /// As a stream: its last poll returned `Pending`.
    polled: bool,
    power: PhantomData<fn() -> P>,
}

/// The channel's receiving side, without its powers. Dropping it leaves the channel.
struct ReceivingEnd<T>(Arc<Chan<T>>);

impl<T> Drop for ReceivingEnd<T> {
    fn drop(&mut self) {
        // A receiver that was polled as a stream, or whose operation was forgotten, waits no more.
        self.0.record.receiver.end();
        self.0.receiver_gone();
    }
}

impl<T, P> Receiver<T, P> {
    pub(crate) fn new(chan: Arc<Chan<T>>) -> Self {
        Self { end: ReceivingEnd(chan), failed: false, polled: false, power: PhantomData }
    }

    /// Ends a wait as a stream, because another use begins.
    #[inline(always)]
    pub(crate) fn stop_streaming(&mut self) {
        if self.polled {
            self.unwatch_stream();
        }
    }

    #[cold]
    fn unwatch_stream(&mut self) {
        self.polled = false;
        self.chan().unwatch(Handle::END);
    }

    pub(crate) fn chan(&self) -> &Arc<Chan<T>> {
        &self.end.0
    }

    /// Returns a function that makes another value for this end, unless the end has been dropped.
    #[cfg(feature = "serde")]
    pub(crate) fn another(&self) -> impl FnOnce() -> Option<Self> + use<T, P> {
        let (chan, failed) = (self.chan().clone(), self.failed);
        move || chan.move_receiver().then(|| Self { failed, ..Self::new(chan) })
    }

    /// Returns this value if no other value stands for the end.
    #[cfg(feature = "serde")]
    pub(crate) fn alone(self) -> Option<Self> {
        // Held until this value is dropped. Otherwise several values could each see another one, and all
        // would give the end up.
        let _others_wait = crate::handle::one_gives_up();
        if !self.chan().unmove_receiver() {
            return Some(self);
        }
        // `unmove_receiver` has uncounted this value, and its drop uncounts it again.
        self.chan().move_receiver();
        drop(self);
        None
    }

    /// Receives a value: waits until one is offered, or takes the oldest in the buffer.
    ///
    /// # Errors
    /// [`RecvError::Closed`] when all senders were dropped, or the channel was retired, and no value is left
    /// in it ([`next`](Self::next) returns `None` instead); [`RecvError::Poisoned`]; [`RecvError::Refused`]
    /// or [`RecvError::Expired`] by a bound on pending receivers.
    ///
    /// # Cancel safety
    /// Dropped before it is ready, it has taken nothing, even if it was woken for a value.
    ///
    /// # Examples
    /// ```
    /// use dunlin_core::{RecvError, channel_with, fifo};
    /// # dunlin_core::doc::block_on(async {
    /// let (mut tx, mut rx) = channel_with(fifo(1));
    /// tx.send("krill").await.unwrap();
    /// assert_eq!(rx.recv().await, Ok("krill"));
    /// drop(tx);
    /// assert_eq!(rx.recv().await, Err(RecvError::Closed));
    /// # });
    /// ```
    pub fn recv(&mut self) -> Receiving<'_, T> {
        self.stop_streaming();
        Receiving::by(self.chan(), Handle::END)
    }

    /// Receives a value, or `None` when the channel has ended in order. A loop over it cannot mistake
    /// poison, or a lost node, for the end.
    ///
    /// The loop is `while let Some(value) = rx.next().await?`. Not `while let Ok(_) = rx.next().await`: the
    /// end is `Ok(None)`, again and again, so that loop never ends and never waits. To end the loop silently
    /// on an error as well, use `while let Ok(Some(value)) = rx.next().await`, or `while let Ok(value) =
    /// rx.recv().await`.
    ///
    /// # Errors
    /// Those of [`recv`](Self::recv), except [`RecvError::Closed`].
    ///
    /// # Cancel safety
    /// Dropped before it is ready, it has taken nothing.
    ///
    /// # Examples
    /// ```
    /// # dunlin_core::doc::block_on(async {
    /// let (mut tx, mut rx) = dunlin_core::channel_with(dunlin_core::fifo(3));
    /// for n in 0..3 {
    ///     tx.send(n).await?;
    /// }
    /// drop(tx);
    /// let mut sum = 0;
    /// while let Some(n) = rx.next().await.unwrap() {
    ///     sum += n;
    /// }
    /// assert_eq!(sum, 3);
    /// # Ok::<(), dunlin_core::SendError<i32>>(())
    /// # }).unwrap();
    /// ```
    #[allow(clippy::should_implement_trait)] // an iterator cannot await; the name is `StreamExt`'s
    pub fn next(&mut self) -> Next<'_, T> {
        self.stop_streaming();
        Next::by(self.chan(), Handle::END)
    }

    /// Receives a value and keeps its sender waiting until the guard is [released](Extended::release) or
    /// dropped.
    ///
    /// The sender cannot observe what happens meanwhile: it is part of the communication. By the channel's
    /// policy:
    /// - *rendezvous*: the sender waits for the release;
    /// - *with a buffer*: the send was complete when the buffer admitted the value. The value keeps its place
    ///   until the release, so a FIFO of n admits only n - 1 others, and a drop-newest of 4 drops the fifth
    ///   of five values sent while the first is held. Overwriting policies never drop a held value: if all
    ///   their places are held, a value enters beside them.
    ///
    /// A send that times out or is dropped while its value is held was successful: the value has been
    /// received.
    ///
    /// # Errors
    /// Those of [`recv`](Self::recv).
    ///
    /// # Cancel safety
    /// Dropped before it is ready, it has taken nothing. The next receive, or the drop of the receiver,
    /// releases a forgotten guard.
    ///
    /// # Examples
    /// ```
    /// use dunlin_core::{channel, par};
    /// # dunlin_core::doc::block_on(async {
    /// let (mut tx, mut rx) = channel();
    /// let log = std::cell::RefCell::new(vec![]);
    /// par!(
    ///     async {
    ///         tx.send("krill").await.unwrap();
    ///         log.borrow_mut().push("sent");
    ///     },
    ///     async {
    ///         let value = rx.recv_extended().await.unwrap();
    ///         log.borrow_mut().push(*value);
    ///         value.release();
    ///     },
    /// );
    /// assert_eq!(*log.borrow(), ["krill", "sent"]);
    /// # });
    /// ```
    ///
    /// # Source
    /// Extended rendezvous of occam-pi (Barnes and Welch, 2003).
    pub fn recv_extended(&mut self) -> Extending<'_, T> {
        self.stop_streaming();
        Extending::by(self.chan(), Handle::END)
    }

    /// Takes a value if one is offered or buffered.
    ///
    /// # Errors
    /// [`RecvError::WouldBlock`] if there is none; otherwise those of [`recv`](Self::recv).
    pub fn try_recv(&mut self) -> Result<T, RecvError> {
        self.stop_streaming();
        self.chan().try_take(Handle::END)
    }

    /// Waits until all senders were dropped, or the channel was retired or poisoned. It may still hold
    /// values.
    ///
    /// # Cancel safety
    /// Has no effect at all.
    pub fn closed(&mut self) -> ClosedReceiving<'_, T> {
        self.stop_streaming();
        ClosedReceiving { chan: self.chan(), handle: Handle::END, waiting: false }
    }

    /// Whether no receive can succeed any more: the channel has ended and holds no value, or it was poisoned.
    pub fn is_closed(&self) -> bool {
        self.chan().is_drained()
    }

    /// How many values are in the channel's buffer; 0 for a rendezvous.
    pub fn len(&self) -> usize {
        self.chan().len()
    }

    /// Whether the channel's buffer is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ends the whole channel in order: pending and later sends fail with
    /// [`Why::Closed`](crate::Why::Closed); buffered values can still be received. Either end can call it; a
    /// second call is harmless.
    pub fn retire(&self) {
        self.chan().retire_as_receiver();
    }

    /// Gives up this end's power to poison the channel, for good.
    pub fn no_poison(self) -> Receiver<T, NoPoison> {
        Receiver { end: self.end, failed: self.failed, polled: self.polled, power: PhantomData }
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

impl<T, P> Receiver<T, P> {
    /// Hands this end to an agent, which takes its place: the receiver has not left.
    pub(crate) fn into_outlet(mut self) {
        self.stop_streaming();
        self.chan().move_receiver();
    }
}

impl<T> Receiver<T, MayPoison> {
    /// Ends the whole channel at once: see [`Sender::poison`](crate::Sender::poison). Pending sends return
    /// their values.
    pub fn poison(&self, reason: impl Into<Reason>) {
        self.poison_with(Strength::FULL, reason);
    }

    /// Poisons with this strength: see [`Sender::poison_with`](crate::Sender::poison_with). `false`: the
    /// channel is immune, and nothing has happened.
    pub fn poison_with(&self, strength: impl Into<Strength>, reason: impl Into<Reason>) -> bool {
        self.chan().poison(reason.into().of_strength(strength))
    }
}

impl<T> From<Receiver<T>> for Receiver<T, NoPoison> {
    fn from(receiver: Receiver<T>) -> Self {
        receiver.no_poison()
    }
}

impl<T, P> fmt::Debug for Receiver<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Receiver").field(&self.id()).finish()
    }
}

impl<T, P> futures_core::Stream for Receiver<T, P> {
    type Item = Result<T, RecvError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.failed {
            return Poll::Ready(None);
        }
        let taken = this.chan().poll_take::<true>(Handle::END, this.polled, cx);
        this.polled = taken.is_pending();
        Poll::Ready(match std::task::ready!(taken) {
            Ok(value) => Some(Ok(value)),
            Err(RecvError::Closed) => None,
            Err(why) => {
                this.failed = true;
                Some(Err(why))
            }
        })
    }
}

/// A receive in progress, of any kind.
pub(crate) struct Take<'a, T> {
    pub(crate) chan: &'a Chan<T>,
    handle: Handle,
    watching: bool,
}

impl<'a, T> Take<'a, T> {
    pub(crate) fn new(chan: &'a Chan<T>, handle: Handle) -> Self {
        Self { chan, handle, watching: false }
    }

    #[inline(always)]
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, RecvError>> {
        self.poll_plain::<true>(cx)
    }

    #[inline(always)]
    fn poll_plain<const COUNTED: bool>(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, RecvError>> {
        let polled = self.chan.poll_take::<COUNTED>(self.handle, self.watching, cx);
        self.watching = polled.is_pending();
        polled
    }

    /// Polls a branch of a choice.
    fn poll_slowly(
        &mut self,
        extended: bool,
        cx: &mut Context<'_>,
        choice: Option<&ChoiceCx>,
    ) -> Poll<Result<(T, Option<u64>), RecvError>> {
        let polled = self.chan.poll_take_slowly(self.handle, extended, cx, choice);
        self.watching = polled.is_pending();
        polled
    }

    /// Polls a branch of a choice. While the choice itself has offered nothing, this is a plain receive.
    fn poll_chosen(&mut self, cx: &mut Context<'_>, choice: &ChoiceCx) -> Poll<Result<T, RecvError>> {
        if choice.own().is_none() {
            return self.poll_plain::<false>(cx);
        }
        self.poll_slowly(false, cx, Some(choice)).map_ok(|(value, _)| value)
    }

    #[inline(always)]
    fn look(&self) -> Look {
        let turn = Some(self.chan.record.receiver.turn());
        if self.chan.seems_empty() { Look::Empty(turn) } else { Look::Maybe(turn) }
    }

    #[inline(always)]
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<T>, RecvError>> {
        self.poll(cx).map(none_at_the_end)
    }

    fn poll_next_chosen(&mut self, cx: &mut Context<'_>, choice: &ChoiceCx) -> Poll<Result<Option<T>, RecvError>> {
        self.poll_chosen(cx, choice).map(none_at_the_end)
    }

    fn poll_extended(&mut self, cx: &mut Context<'_>) -> Poll<Result<Extended<'a, T>, RecvError>> {
        let polled = budget::counted(self.watching, cx, |cx| self.chan.poll_take_slowly(self.handle, true, cx, None));
        self.watching = polled.is_pending();
        polled.map_ok(|taken| self.extend(taken))
    }

    fn poll_extended_chosen(
        &mut self,
        cx: &mut Context<'_>,
        choice: &ChoiceCx,
    ) -> Poll<Result<Extended<'a, T>, RecvError>> {
        self.poll_slowly(true, cx, Some(choice)).map_ok(|taken| self.extend(taken))
    }

    fn extend(&self, taken: (T, Option<u64>)) -> Extended<'a, T> {
        Extended { chan: self.chan, handle: self.handle, ticket: taken.1, value: Some(taken.0) }
    }
}

impl<T> Drop for Take<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.watching {
            self.chan.unwatch(self.handle);
        }
    }
}

macro_rules! receive_operation {
    ($(#[$doc:meta])* $name:ident<$a:lifetime, $t:ident> -> $output:ty, $poll:ident, $poll_chosen:ident) => {
        $(#[$doc])*
        #[must_use = "an operation does nothing until it is awaited or chosen"]
        pub struct $name<$a, $t> {
            take: Take<$a, $t>,
        }

        impl<$a, $t> $name<$a, $t> {
            pub(crate) fn by(chan: &$a Chan<$t>, handle: Handle) -> Self {
                Self { take: Take::new(chan, handle) }
            }
        }

        impl<$a, $t> Future for $name<$a, $t> {
            type Output = Result<$output, RecvError>;

            // Inlined into the caller's state machine, where the outcome stays in registers, like
            // `Sending::poll`. The compiler would inline a closure in place of the method only if it finds it
            // small enough.
            #[inline(always)]
            fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
                self.take.$poll(cx)
            }
        }

        impl<$a, $t> Branch for $name<$a, $t> {
            type Output = Result<$output, RecvError>;

            fn poll_branch(mut self: Pin<&mut Self>, cx: &mut Context<'_>, choice: &ChoiceCx) -> Poll<Self::Output> {
                self.take.$poll_chosen(cx, choice)
            }

            #[inline]
            fn look(&self) -> Look {
                self.take.look()
            }

            fn chosen(&self, turn: u32) {
                self.take.chan.record.receiver.set_turn(turn);
            }
        }

        impl<$a, $t> Operation for $name<$a, $t> {
            fn poll_expire(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
                Poll::Ready(Err(self.take.chan.recv_timed_out()))
            }
        }

        impl<$t> fmt::Debug for $name<'_, $t> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($name)).field(&self.take.chan.record.id()).finish()
            }
        }
    };
}

#[inline(always)]
fn none_at_the_end<T>(taken: Result<T, RecvError>) -> Result<Option<T>, RecvError> {
    match taken {
        Ok(value) => Ok(Some(value)),
        Err(RecvError::Closed) => Ok(None),
        Err(why) => Err(why),
    }
}

receive_operation! {
    /// The operation of [`Receiver::recv`].
    Receiving<'a, T> -> T, poll, poll_chosen
}

receive_operation! {
    /// The operation of [`Receiver::next`].
    Next<'a, T> -> Option<T>, poll_next, poll_next_chosen
}

receive_operation! {
    /// The operation of [`Receiver::recv_extended`].
    Extending<'a, T> -> Extended<'a, T>, poll_extended, poll_extended_chosen
}

/// A received value whose sender still waits, or whose place in the buffer is still taken: see
/// [`Receiver::recv_extended`].
#[must_use = "the sender continues when this is dropped"]
pub struct Extended<'a, T> {
    chan: &'a Chan<T>,
    handle: Handle,
    ticket: Option<u64>,
    /// `None` only after `release`.
    value: Option<T>,
}

impl<T> Extended<'_, T> {
    /// Releases the sender and returns the value.
    pub fn release(mut self) -> T {
        let value = self.value.take();
        drop(self);
        value.expect("there until released, and `release` consumes")
    }
}

impl<T> Deref for Extended<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("there until released")
    }
}

impl<T> DerefMut for Extended<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("there until released")
    }
}

impl<T> Drop for Extended<'_, T> {
    fn drop(&mut self) {
        // First, so that the sender is released even if the value's destructor panics.
        self.chan.release(self.handle, self.ticket);
    }
}

impl<T: fmt::Debug> fmt::Debug for Extended<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Extended").field(&self.value).finish()
    }
}

/// The operation of [`Receiver::closed`].
#[must_use = "an operation does nothing until it is awaited or chosen"]
pub struct ClosedReceiving<'a, T> {
    chan: &'a Chan<T>,
    handle: Handle,
    waiting: bool,
}

impl<T> ClosedReceiving<'_, T> {
    fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let polled = self.chan.poll_closed(self.handle, false, cx);
        self.waiting = polled.is_pending();
        polled
    }
}

impl<T> Future for ClosedReceiving<'_, T> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let polled = budget::counted(self.waiting, cx, |cx| self.poll_closed(cx));
        self.waiting = polled.is_pending();
        polled
    }
}

impl<T> Branch for ClosedReceiving<'_, T> {
    type Output = ();

    fn poll_branch(mut self: Pin<&mut Self>, cx: &mut Context<'_>, choice: &ChoiceCx) -> Poll<()> {
        choice.poll_lasting(|| self.poll_closed(cx))
    }
}

impl<T> Drop for ClosedReceiving<'_, T> {
    fn drop(&mut self) {
        if self.waiting {
            self.chan.record.receiver.end();
        }
    }
}

debug_operation! { ClosedReceiving }
