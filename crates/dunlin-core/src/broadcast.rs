//! Broadcast: one sends, and every receiver that has joined gets each value.
//!
//! Every receiver has a channel of its own, so all that a receiver can do elsewhere it can do here, and
//! leaving is dropping it. The [`Hub`] knows these channels: it counts them for the least number, and carries
//! poison from one to all. A value is sent as one offer in each, so rule 1 is the channels'.
//!
//! [`completing`]: a send whose wait for the remaining receivers is bounded.
//! The sending end, and the right to join, go to other nodes: see [`far`].
//!
//! Lock order: the hub's lock is never held together with a channel's.

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

/// A broadcast whose receivers have a channel of this policy each.
///
/// With a buffer a value is sent when every buffer has admitted it, so a receiver may be some values behind
/// the others. What a policy does with one value too many it does for that receiver alone.
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
/// Dropped, it leaves: receivers get what is still in their channels, and then
/// [`Closed`](crate::RecvError::Closed).
///
/// It can go to another node in a message. Those who have joined stay joined, each where it is, and its first
/// value there waits until it has heard of them all. Joiners lead to it, wherever it is; those of a node that
/// it has left lead there by that node, as long as that lives.
pub struct Broadcast<T> {
    hub: Arc<HubOf<T>>,
    made: &'static Location<'static>,
}

impl<T> Broadcast<T> {
    /// From now on a value waits until at least `receivers` have joined and not left. 0, as it is at first:
    /// it goes to whoever is there.
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

    /// Whether nothing can be received any more: it was retired or poisoned, or no receiver is left, nor
    /// anybody to join.
    pub fn is_closed(&self) -> bool {
        let state = self.hub.state.lock();
        state.over.is_some() || state.members.is_empty() && state.joiners == 0 && !state.coming
    }

    /// Ends the broadcast in order: sends fail with [`Why::Closed`]; each receiver gets what is in its
    /// channel and then [`Closed`](crate::RecvError::Closed), as does whoever joins later.
    pub fn retire(&self) {
        self.hub.end(Why::Closed, None, Chan::retire);
    }

    /// Ends the broadcast at once: everything on it fails from now on with `reason`, at every receiver,
    /// whenever it joins.
    ///
    /// A receiver that may poison can do the same from its end, for all: see [`Joiner`].
    pub fn poison(&self, reason: impl Into<Reason>) {
        self.poison_with(Strength::FULL, reason);
    }

    /// The same with a poison of this strength. `false`: the [policy](broadcast_with) makes its receivers'
    /// channels immune to it, and nothing has happened.
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
    /// Sends a clone of `value` to every receiver that has joined when this begins, and waits until each of
    /// them has returned it or left. Who joins meanwhile gets the next value.
    ///
    /// It begins when at least as many have joined as was [asked for](Self::at_least). A deadline ends only
    /// that wait: once a value has begun it goes to all. A receiver that is slow, or a node that is silent,
    /// holds up this broadcast, and nothing else. A second bound is on the wait for them:
    /// [`complete_until`](Broadcasting::complete_until), or `complete_within` of the crate `dunlin`.
    ///
    /// It is not a branch of a choice, since it has several commit points; each receive is. While it waits,
    /// each receiver that it waits for has its line in the [wait records](crate::waits).
    ///
    /// # Errors
    /// [`BroadcastError`], with the value:
    /// - [`Why::Closed`]: it was retired; or too few have joined, and no [`Joiner`] is left through which
    ///   more could;
    /// - [`Why::TimedOut`]: too few had joined at the deadline;
    /// - [`Why::Poisoned`]: by this end before, or by a receiver, perhaps when others had received the value;
    /// - else some receiver did not get the value, since its policy refused it, or since it cannot be carried
    ///   to its node.
    ///
    /// A receiver whose node is lost has left, whether it has received the value or not.
    ///
    /// # Cancel safety
    /// Dropped before it is ready, those receivers that have received the value have it, and no others get
    /// it.
    ///
    /// # Panics
    /// If cloning the value panics, the panic goes to the caller; no receiver has got the value then, and the
    /// next one can be sent.
    pub fn send(&mut self, value: T) -> Broadcasting<'_, T> {
        Broadcasting {
            broadcast: self,
            value: Some(value),
            parts: None,
            received: 0,
            withdrawn: 0,
            refused: 0,
            why: None,
            watch: Watch::default(),
            again: false,
        }
    }
}

impl<T> Drop for Broadcast<T> {
    fn drop(&mut self) {
        let mut state = self.hub.state.lock();
        state.values -= 1;
        if state.values > 0 || state.away.is_some() {
            // It goes on: here in another value, or elsewhere.
            return;
        }
        let why = state.over.get_or_insert(Why::Closed).clone();
        let (members, waker) = (std::mem::take(&mut state.members), state.waker.take());
        drop(state);
        // Who poisons may not have come to each of them yet, and it must not take that for an end in order.
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

/// Through this, receivers join a [`broadcast`]: clone it for whoever may let them.
///
/// A receiver that has joined is a [`Receiver`] like any other. Dropping it leaves the broadcast, and so does
/// [retiring](Receiver::retire) it, which is its own channel's end. Poison is everybody's: from any receiver
/// it ends the whole broadcast, as it does on every channel. `P` says whether those who join may do that.
///
/// Both can go to another node in a message: a receiver that has joined, and a joiner. Who joins elsewhere
/// than at the sending end has joined when the word of it has come there: what is sent before goes without
/// it. A sender that is to wait for it says [`at_least`](Broadcast::at_least). A node that is lost leaves
/// with all its receivers and joiners. Of a policy of one's own, which the other node may not have, neither
/// can go ([`Why::Unsendable`]).
pub struct Joiner<T, P = MayPoison> {
    hub: Arc<HubOf<T>>,
    power: PhantomData<fn() -> P>,
}

impl<T, P> Joiner<T, P> {
    fn new(hub: Arc<HubOf<T>>) -> Self {
        hub.count_joiners(|joiners| *joiners += 1);
        Self { hub, power: PhantomData }
    }

    /// One receiver more. It gets every value that begins from now on; after the broadcast's end, that.
    #[track_caller]
    pub fn join(&self) -> Receiver<T, P> {
        let chan = Arc::new(Chan::new(&self.hub.policy, Location::caller()));
        let receiver = Receiver::new(chan.clone());
        self.hub.enter(&chan);
        receiver
    }

    /// The same for receivers without the power to poison the broadcast.
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
    /// A receiver joins, whose channel this is.
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
            // If it leaves, that is to be heard.
            chan.with_queue(|queue, _, after| queue.watch_end(after));
        }
        woken.into_iter().for_each(wake::wake);
        Ok(())
    }
}

/// The broadcast is over for this receiver.
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
    /// Those that are not over. `None`: it has not begun.
    parts: Option<Vec<Part<T>>>,
    received: usize,
    /// So many had not received the value when the wait for them was over, and never will.
    withdrawn: usize,
    /// So many were refused it by their policies, or since it cannot be carried to their nodes.
    refused: usize,
    /// Why a receiver that is still there has not got the value.
    why: Option<Why>,
    watch: Watch,
    /// It has been polled.
    again: bool,
}

// The value is never pinned: it moves through the channels.
impl<T: Clone> Unpin for Broadcasting<'_, T> {}

impl<T: Clone> Broadcasting<'_, T> {
    fn fail(&mut self, why: Why) -> Result<(), BroadcastError<T>> {
        match self.value.take() {
            Some(value) => Err(BroadcastError { value, why, received: self.received }),
            None => Ok(()),
        }
    }

    fn poll_begin(&mut self, cx: &mut Context<'_>) -> Poll<Result<Vec<Part<T>>, Why>> {
        let Broadcast { hub, made } = &*self.broadcast;
        let polled = hub.poll_members(cx.waker());
        let members = std::task::ready!(self.watch.note(polled, Doing::Join, Pid::OUTSIDE, made));
        let part = |chan| Part { chan, post: Post::new(Handle::END), value: self.value.clone() };
        // All clones are made before the first is offered: a panic then finds nothing half done.
        Poll::Ready(members.map(|members| members.into_iter().map(part).collect()))
    }

    /// Polls those that are not over, and counts those that are now. `true`: all are.
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
                // It has left. Its thread may not have come to say so, and until then each value would begin
                // with it.
                Err(Failed::NotTaken(Why::Closed | Why::NodeLost | Why::OwnNodeLeft) | Failed::Unknown(_)) => {
                    self.broadcast.hub.left(&part.chan, true);
                }
                Err(Failed::NotTaken(Why::Poisoned(reason))) => {
                    // The others have to hear of it before anything that the sender does now.
                    self.broadcast.hub.poison(&reason, Some(&part.chan));
                    // If nobody has heard of it, it was the affair of one that had retired before.
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

    /// All are over.
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
            match std::task::ready!(self.poll_begin(cx)) {
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
