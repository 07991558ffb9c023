//! Broadcast: one end sends, and every receiver that has joined gets each value.
//!
//! Every receiver has a channel of its own, so it supports all operations of a receiver, and leaves by being
//! dropped. The [`Hub`] lists these channels: it counts them for the least number, and spreads poison from
//! one to all. A value is sent as one offer in each channel, so rule 1 holds as it does for channels.
//!
//! [`beginning`]: a send in two halves. [`completing`]: a send whose wait for the remaining receivers is
//! bounded. [`far`]: the sending end, and the right to join, at other nodes.
//!
//! Lock order: the hub's lock is never held together with a channel's.

mod beginning;
mod completing;
#[cfg(feature = "serde")]
mod far;

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::budget;
use crate::channel::hub::{Hub, State};
use crate::channel::policy::{Policy, rendezvous};
use crate::channel::receiver::Receiver;
use crate::channel::state::{Chan, HubOf, Post, SendingEnd};
use crate::channel::{MayPoison, NoPoison};
use crate::error::{BroadcastError, Failed, Reason, Strength, Why};
use crate::handle::Handle;
use crate::lock::Lock;
use crate::operation::Operation;
use crate::waits::{Doing, Pid, Watch};
use crate::wake;

pub use beginning::{BeginningBroadcast, BeginningBroadcastFrom};
pub use completing::Completing;

/// A broadcast: each value that the [`Broadcast`] sends goes to every receiver that has joined by then.
/// Receivers join through the [`Joiner`], and leave by being dropped, between any two values.
///
/// # Examples
/// ```
/// use dunlin_core::{broadcast, par};
/// # dunlin_core::doc::block_on(async {
/// let (mut clock, joiner) = broadcast();
/// let (mut a, mut b) = (joiner.join(), joiner.join());
/// let (sent, first, second) = par!(clock.send(1), a.recv(), b.recv());
/// assert_eq!((sent, first, second), (Ok(()), Ok(1), Ok(1)));
///
/// drop(b);
/// let (sent, first) = par!(clock.send(2), a.recv());
/// assert_eq!((sent, first), (Ok(()), Ok(2)));
/// # });
/// ```
///
/// # Source
/// Broadcast channels of Communicating Haskell Processes (Brown, 2008), where readers enrol and resign, and
/// any of them may poison.
#[track_caller]
pub fn broadcast<T: Clone>() -> (Broadcast<T>, Joiner<T>) {
    broadcast_with(rendezvous())
}

/// A broadcast whose receivers each have a channel of this policy.
///
/// With a buffer a value is sent when every buffer has admitted it, so a receiver may be some values behind
/// the others. If the buffer of a receiver is full, the policy acts on that receiver alone.
///
/// # Examples
/// ```
/// use dunlin_core::{broadcast_with, overwrite_oldest};
/// # dunlin_core::doc::block_on(async {
/// let (mut prices, joiner) = broadcast_with(overwrite_oldest(1));
/// let mut late = joiner.join();
/// for price in [7, 8, 9] {
///     prices.send(price).await.unwrap(); // never waits
/// }
/// assert_eq!(late.recv().await, Ok(9));
/// # });
/// ```
#[track_caller]
pub fn broadcast_with<T: Clone>(policy: impl Into<Policy>) -> (Broadcast<T>, Joiner<T>) {
    let hub = Arc::new(Hub { policy: policy.into(), state: Lock::new(State::new()) });
    let joiner = Joiner::new(hub.clone());
    (Broadcast { hub, made: Location::caller() }, joiner)
}

/// The sending end of a [`broadcast`].
///
/// When it is dropped, receivers get the values still in their channels, and then
/// [`Closed`](crate::RecvError::Closed).
///
/// It can be sent to another node in a message. The receivers stay joined, each where it is, and the first
/// value sent from there waits until it has been notified of all of them. Joiners lead to this end, wherever
/// it is. Those at a node that it has left lead to it through that node, while that node lives.
pub struct Broadcast<T> {
    hub: Arc<HubOf<T>>,
    made: &'static Location<'static>,
}

impl<T> Broadcast<T> {
    /// From now on a value waits until at least `receivers` have joined and not left. With 0, the default, it
    /// goes to the receivers that have joined.
    ///
    /// # Examples
    /// ```
    /// use dunlin_core::{Operation, Why, broadcast};
    /// # dunlin_core::doc::block_on(async {
    /// let (clock, joiner) = broadcast();
    /// let _only = joiner.join();
    /// let at_once = std::future::ready(());
    /// let error = clock.at_least(2).send("tick").until(at_once).await.unwrap_err();
    /// assert_eq!((error.value, error.why), ("tick", Why::TimedOut));
    /// # });
    /// ```
    #[must_use]
    pub fn at_least(self, receivers: usize) -> Self {
        self.hub.state.lock().least = Some(receivers);
        self
    }

    /// How many receivers have joined and not left.
    pub fn joined(&self) -> usize {
        self.hub.state.lock().members.len()
    }

    /// Whether no value can be received any more: the broadcast was retired or poisoned, or it has neither a
    /// receiver nor a joiner left.
    pub fn is_closed(&self) -> bool {
        let state = self.hub.state.lock();
        state.over.is_some() || state.members.is_empty() && state.joiners == 0 && !state.coming
    }

    /// Ends the broadcast in order: sends fail with [`Why::Closed`]. Each receiver gets the values in its
    /// channel and then [`Closed`](crate::RecvError::Closed), also one that joins later.
    pub fn retire(&self) {
        self.hub.end(Why::Closed, None, Chan::retire);
    }

    /// Ends the broadcast at once: all operations on it fail from now on with `reason`, at every receiver,
    /// whenever it joins.
    ///
    /// A receiver that may poison can do the same for all from its end: see [`Joiner`].
    pub fn poison(&self, reason: impl Into<Reason>) {
        self.poison_with(Strength::FULL, reason);
    }

    /// As [`poison`](Self::poison), with this strength. `false`: the [policy](broadcast_with) makes its
    /// receivers' channels immune to it, and nothing has happened.
    pub fn poison_with(&self, strength: impl Into<Strength>, reason: impl Into<Reason>) -> bool {
        let reason = reason.into().of_strength(strength);
        let overcomes = reason.strength().overcomes(self.hub.policy.immunity);
        if overcomes {
            self.hub.poison(&reason, None);
        }
        overcomes
    }
}

impl<T: Clone> Broadcast<T> {
    /// Sends a clone of `value` to every receiver that has joined when the send begins, and waits until each
    /// of them has returned it or left. A receiver that joins meanwhile gets the next value.
    ///
    /// The send begins when at least [the required number](Self::at_least) have joined. A deadline ends only
    /// that wait: once a value has begun it goes to all. A slow receiver, or a silent node, blocks this
    /// broadcast, and nothing else. [`complete_until`](Broadcasting::complete_until), or `complete_within` of
    /// the crate `dunlin`, bounds the wait for the receivers.
    ///
    /// It cannot be a branch of a choice, since it has several commit points; [`begin`](Self::begin) can, and
    /// so can each receive. While it waits, each receiver that it waits for has its line in the
    /// [wait records](crate::waits).
    ///
    /// # Errors
    /// [`BroadcastError`], with the value:
    /// - [`Why::Closed`]: the broadcast was retired; or too few have joined, and no [`Joiner`] is left
    ///   through which more could;
    /// - [`Why::TimedOut`]: too few had joined at the deadline;
    /// - [`Why::Poisoned`]: by this end before, or by a receiver, perhaps when others had received the value;
    /// - else some receiver did not get the value, because its policy refused it, or because it cannot be
    ///   carried to its node.
    ///
    /// A receiver whose node is lost has left, whether or not it received the value.
    ///
    /// # Cancel safety
    /// If the send is dropped before it is ready, receivers that have received the value keep it, and no
    /// others get it.
    ///
    /// # Panics
    /// If cloning the value panics, the panic goes to the caller; no receiver has got the value then, and the
    /// next one can be sent.
    pub fn send(&mut self, value: T) -> Broadcasting<'_, T> {
        Broadcasting::new(self, Some(value))
    }
}

impl<T> Drop for Broadcast<T> {
    fn drop(&mut self) {
        let mut state = self.hub.state.lock();
        state.values -= 1;
        if state.values > 0 || state.away.is_some() {
            // The sending end lives on: here in another value, or elsewhere.
            return;
        }
        let why = state.over.get_or_insert(Why::Closed).clone();
        let (members, waker) = (std::mem::take(&mut state.members), state.waker.take());
        drop(state);
        // A concurrent poison may not have reached every member yet, and those must not take this for an
        // orderly end.
        wake::each(members, |member| end(&member, &why));
        drop(waker);
    }
}

impl<T> fmt::Debug for Broadcast<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let least = self.hub.state.lock().least();
        f.debug_struct("Broadcast").field("joined", &self.joined()).field("least", &least).finish()
    }
}

/// Receivers join a [`broadcast`] through this. Clone it for every process that may let receivers join.
///
/// A receiver that has joined is a [`Receiver`] like any other. It leaves the broadcast by being dropped, or
/// by [retiring](Receiver::retire), which ends its own channel. Poison from any receiver ends the whole
/// broadcast, as it does on every channel. `P` determines whether the receivers that join may poison.
///
/// Both a receiver that has joined and a joiner can be sent to another node in a message. A receiver that
/// joins at another node than the sending end's has joined when the sending end's node has been notified:
/// values sent before that do not reach it. A sender that must wait for it calls
/// [`at_least`](Broadcast::at_least). The receivers and joiners of a lost node leave with it. With a
/// user-defined policy, which the other node may not have, neither can be sent ([`Why::Unsendable`]).
pub struct Joiner<T, P = MayPoison> {
    hub: Arc<HubOf<T>>,
    power: PhantomData<fn() -> P>,
}

impl<T, P> Joiner<T, P> {
    fn new(hub: Arc<HubOf<T>>) -> Self {
        hub.count_joiners(|joiners| *joiners += 1);
        Self { hub, power: PhantomData }
    }

    /// Makes one more receiver. It gets every value that begins from now on; if the broadcast has ended, its
    /// receives fail accordingly.
    #[track_caller]
    pub fn join(&self) -> Receiver<T, P> {
        let chan = Arc::new(Chan::new(&self.hub.policy, Location::caller()));
        let receiver = Receiver::new(chan.clone());
        self.hub.enter(&chan);
        receiver
    }

    /// A joiner for receivers without the power to poison the broadcast.
    pub fn no_poison(self) -> Joiner<T, NoPoison> {
        Joiner::new(self.hub.clone())
    }
}

impl<T, P> Clone for Joiner<T, P> {
    fn clone(&self) -> Self {
        Self::new(self.hub.clone())
    }
}

impl<T, P> Drop for Joiner<T, P> {
    fn drop(&mut self) {
        self.hub.count_joiners(|joiners| *joiners -= 1);
    }
}

impl<T, P> fmt::Debug for Joiner<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Joiner").field("policy", &self.hub.policy).finish_non_exhaustive()
    }
}

impl<T> HubOf<T> {
    /// Joins the receiver of this channel.
    fn enter(self: &Arc<Self>, chan: &Arc<Chan<T>>) {
        chan.join(self);
        if let Err(why) = self.add(chan) {
            end(chan, &why);
        }
    }

    fn add(&self, chan: &Arc<Chan<T>>) -> Result<(), Why> {
        let mut state = self.state.lock();
        if let Some(why) = &state.over {
            return Err(why.clone());
        }
        let is_here = state.away.is_none();
        let woken = if let Some(away) = &mut state.away {
            away.joins.push_back(SendingEnd::new(chan.clone()));
            away.waker.take()
        } else {
            chan.record.sender.hand_to(state.sender);
            state.members.push(chan.clone());
            state.waker.take()
        };
        drop(state);
        if is_here {
            // The hub must be notified when the receiver leaves.
            chan.with_queue(|queue, _, after| queue.watch_end(after));
        }
        woken.into_iter().for_each(wake::wake);
        Ok(())
    }
}

/// Ends the broadcast for this receiver.
fn end<T>(chan: &Chan<T>, why: &Why) {
    let tell = || match why {
        Why::Poisoned(reason) => chan.poison_surely(reason.clone()),
        Why::NodeLost => chan.with_queue(|queue, ends, after| queue.lose_sender(ends, after)),
        _ => {}
    };
    wake::both(tell, || chan.sender_gone());
}

/// One receiver's share of a value.
struct Part<T> {
    chan: Arc<Chan<T>>,
    post: Post,
    value: Option<T>,
}

impl<T> Part<T> {
    fn abandon(&mut self) {
        self.chan.abandon(&mut self.post, &mut self.value);
    }
}

/// The operation of [`Broadcast::send`].
#[must_use = "an operation does nothing until it is awaited"]
pub struct Broadcasting<'a, T: Clone> {
    broadcast: &'a mut Broadcast<T>,
    value: Option<T>,
    /// The parts that have not ended. `None`: the send has not begun.
    parts: Option<Vec<Part<T>>>,
    received: usize,
    /// How many had not received the value when the wait for them ended, and never will.
    withdrawn: usize,
    /// How many did not get it because their policies refused it, or because it cannot be carried to their
    /// nodes.
    refused: usize,
    /// Why a receiver that is still joined has not got the value.
    why: Option<Why>,
    watch: Watch,
    /// It has been polled.
    again: bool,
}

// The value is never pinned: it moves through the channels.
impl<T: Clone> Unpin for Broadcasting<'_, T> {}

/// Waits for enough receivers, and makes a part for each. All clones are made before the first is offered: a
/// panic then leaves nothing half done.
fn poll_begin<T: Clone>(
    broadcast: &Broadcast<T>,
    value: &Option<T>,
    watch: &mut Watch,
    cx: &mut Context<'_>,
) -> Poll<Result<Vec<Part<T>>, Why>> {
    let Broadcast { hub, made } = broadcast;
    let members = std::task::ready!(watch.note(hub.poll_members(cx.waker()), Doing::Join, Pid::OUTSIDE, made));
    let part = |chan| Part { chan, post: Post::new(Handle::END), value: value.clone() };
    Poll::Ready(members.map(|members| members.into_iter().map(part).collect()))
}

impl<'a, T: Clone> Broadcasting<'a, T> {
    fn new(broadcast: &'a mut Broadcast<T>, value: Option<T>) -> Self {
        Self {
            broadcast,
            value,
            parts: None,
            received: 0,
            withdrawn: 0,
            refused: 0,
            why: None,
            watch: Watch::default(),
            again: false,
        }
    }

    fn fail(&mut self, why: Why) -> Result<(), BroadcastError<T>> {
        match self.value.take() {
            Some(value) => Err(BroadcastError { value, why, received: self.received }),
            None => Ok(()),
        }
    }

    /// Polls the parts that have not ended, and counts those that end now. `true`: all have ended.
    fn poll_parts(
        &mut self,
        cx: &mut Context<'_>,
        poll: impl Fn(&mut Part<T>, &mut Context<'_>) -> Poll<Result<(), Failed>>,
    ) -> bool {
        let parts = self.parts.get_or_insert_default();
        let mut index = 0;
        while let Some(part) = parts.get_mut(index) {
            let Poll::Ready(sent) = poll(part, cx) else {
                index += 1;
                continue;
            };
            match sent {
                Ok(()) => self.received += 1,
                // The receiver has left. Its thread may not have notified the hub yet, and until then each
                // value would start with it.
                Err(Failed::NotTaken(Why::Closed | Why::NodeLost | Why::OwnNodeLeft) | Failed::Unknown(_)) => {
                    self.broadcast.hub.left(part.chan.address(), true);
                }
                Err(Failed::NotTaken(Why::Poisoned(reason))) => {
                    // Poisons the other receivers before the sender does anything else.
                    self.broadcast.hub.poison(&reason, Some(part.chan.address()));
                    // If the hub is not poisoned, the poison came from a receiver that had retired before.
                    if self.broadcast.hub.is_poisoned() {
                        self.why.get_or_insert(Why::Poisoned(reason));
                    }
                }
                Err(Failed::NotTaken(Why::TimedOut)) => self.withdrawn += 1,
                Err(Failed::NotTaken(why)) => {
                    self.refused += 1;
                    self.why.get_or_insert(why);
                }
            }
            parts.swap_remove(index);
        }
        parts.is_empty()
    }

    /// The result, once all parts have ended.
    fn end(&mut self) -> Result<(), BroadcastError<T>> {
        self.why.take().map_or(Ok(()), |why| self.fail(why))
    }
}

impl<T: Clone> Future for Broadcasting<'_, T> {
    type Output = Result<(), BroadcastError<T>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let again = std::mem::replace(&mut this.again, true);
        budget::counted(again, cx, |cx| this.poll_all(cx))
    }
}

impl<T: Clone> Broadcasting<'_, T> {
    fn poll_all(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BroadcastError<T>>> {
        if self.parts.is_none() {
            match std::task::ready!(poll_begin(self.broadcast, &self.value, &mut self.watch, cx)) {
                Ok(parts) => self.parts = Some(parts),
                Err(why) => return Poll::Ready(self.fail(why)),
            }
        }
        if self.poll_parts(cx, |part, cx| part.chan.poll_send_slowly(&mut part.post, &mut part.value, cx)) {
            Poll::Ready(self.end())
        } else {
            Poll::Pending
        }
    }
}

impl<T: Clone> Operation for Broadcasting<'_, T> {
    fn poll_expire(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.parts.is_some() {
            return self.poll(cx);
        }
        Poll::Ready(self.get_mut().fail(Why::TimedOut))
    }
}

impl<T: Clone> Drop for Broadcasting<'_, T> {
    fn drop(&mut self) {
        self.parts.iter_mut().flatten().for_each(Part::abandon);
    }
}

impl<T: Clone> fmt::Debug for Broadcasting<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waits_for = self.parts.as_ref().map(Vec::len);
        f.debug_struct("Broadcasting").field("waits_for", &waits_for).field("received", &self.received).finish()
    }
}
