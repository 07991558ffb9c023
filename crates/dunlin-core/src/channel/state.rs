//! A channel's shared state: the one-slot rendezvous that most channels are, and the path to the [`Queue`]
//! for all others.
//!
//! [`Chan<T>`](Chan) has the few paths that know the type of the values: the two steps of a rendezvous, and
//! for each other call the places of its values. The calls themselves are compiled once, for an [`AnyChan`]:
//! [`sending`], [`receiving`], [`ending`], [`agents`]. [`locked`] has both types, and the lock.
//!
//! An unshared end is used through `&mut`, so at most one send and one receive exist at a time, and at most
//! one of them waits: one slot for the value and one for a waker make a complete rendezvous channel. The tag
//! of the channel's lock publishes its state.
//!
//! The rules of the design:
//! 1. A send puts its value into the slot and wakes the receiver. Only a receive that is being polled takes
//!    the value.
//! 2. The sender learns the outcome by finding the slot empty. It takes the value back if it fails, times out
//!    or is dropped.
//! 3. A forgotten future leaves its offer standing: receivers take that first, and the next send waits for
//!    it.

mod agents;
mod ending;
#[cfg(feature = "link")]
mod link;
mod locked;
mod receiving;
mod sending;

pub(crate) use agents::FarChan;
pub(crate) use locked::{AnyChan, Chan};
use locked::{AnyGuard, ChanOf, Inner, Locked, QueueAndHub};

use std::cell::UnsafeCell;
use std::panic::Location;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::after::After;
use super::elsewhere::Missing;
use super::erased::AnySlot;
use super::policy::Policy;
use super::queue::Queue;
use super::queue::events::{FromReceiver, FromSender};
use super::queue::offer::{Ends, FIRST_TICKET, Retracted};
use super::queue::value::Pool;
use crate::budget;
use crate::channel::hub::{Hub, HubRef, Member};
use crate::choice::ChoiceCx;
use crate::choice::branch::Asked;
use crate::error::{Failed, Reason, RecvError, SendError, Strength, Why};
use crate::handle::Handle;
use crate::lock::Lock;
use crate::turn::Turn;
use crate::waits::{Doing, Recorded, Side};
use crate::wake;
use crate::wake::Wakes;

/// An offer exists: a value in the slot, or one that an extended receive holds. With a queue: it may hold
/// something to receive.
const OFFER: u32 = 1;
/// An extended receive holds the value of the offer. With a queue: [`link::SLOT`].
const HELD: u32 = 1 << 1;
/// The waker in the slot is that of a receive that found nothing.
const WATCHED: u32 = 1 << 2;
/// The sender was dropped.
const NO_SENDER: u32 = 1 << 3;
/// The receiver was dropped.
const NO_RECEIVER: u32 = 1 << 4;
/// Retired: sends fail; receives succeed until the buffer is empty.
const RETIRED: u32 = 1 << 5;
/// Poisoned: all operations fail. The queue holds the reason.
const POISONED: u32 = 1 << 6;
/// The channel has a queue; only a link still uses the slots.
const QUEUED: u32 = 1 << 7;
/// A watching receive was woken for the offer, and has not been polled since.
const WOKEN: u32 = 1 << 8;
/// How many values stand for the sending end in addition to the first, while it changes hands. The drop of
/// one of several has no effect.
const SENDERS: u32 = 0x7f << 9;
const ONE_SENDER: u32 = 1 << 9;
/// The same for the receiving end.
const RECEIVERS: u32 = 0x3f << 16;
const ONE_RECEIVER: u32 = 1 << 16;
/// A send waits for the receive that it has woken: if that receive is given up, it wakes the send. The bit
/// may be left from an earlier send.
const TURN: u32 = 1 << 22;
/// The strongest poison that the channel is immune to.
const IMMUNITY: u32 = 0xff << IMMUNITY_SHIFT;
const IMMUNITY_SHIFT: u32 = 23;

/// The ticket of a send that waits behind a forgotten offer; it has none of its own yet.
const BEHIND: u64 = u64::MAX;

/// The hub of a broadcast whose values are `T`.
pub(crate) type HubOf<T> = Hub<Chan<T>, SendingEnd<T>>;

impl<T> Member for Chan<T> {
    fn poison_surely(&self, reason: Reason) {
        self.poison_surely(reason);
    }

    fn sender_gone(&self) {
        self.sender_gone();
    }
}

/// The channel's sending side, without its powers. Dropping it leaves the channel.
pub(crate) struct SendingEnd<T>(Arc<Chan<T>>);

impl<T> SendingEnd<T> {
    #[inline]
    pub(crate) fn new(chan: Arc<Chan<T>>) -> Self {
        Self(chan)
    }

    #[inline]
    pub(crate) fn chan(&self) -> &Arc<Chan<T>> {
        &self.0
    }
}

impl<T> Drop for SendingEnd<T> {
    fn drop(&mut self) {
        self.0.sender_gone();
    }
}

/// A send in progress.
pub(crate) struct Post {
    /// 0: no offer yet.
    ticket: u64,
    handle: Handle,
    /// For a send in a choice that waits for woken receivers: the number of polls of its turn, or [`TIMED`].
    turns: u8,
    /// The budget refused it, and it has offered no value since.
    refused: bool,
}

impl Post {
    pub(crate) fn new(handle: Handle) -> Self {
        Self { ticket: 0, handle, turns: 0, refused: false }
    }

    /// Receivers have been woken for it: the choice lets them be polled before it proceeds to another branch.
    fn take_turn(&mut self, choice: &ChoiceCx, turn: Turn, cx: &Context<'_>) {
        if turn == Turn::Over || self.turns == TURNS_MAX {
            return;
        }
        if !choice.has_rivals() {
            if turn == Turn::Elsewhere {
                // The sender cannot know whether they were polled. While the choice sleeps they have more
                // time than turns would give.
                self.turns = TURNS_MAX;
            }
        } else if self.turns == TIMED && !choice.waits_for_turn(cx) {
            self.turns = TURNS_MAX;
        } else if self.turns == TIMED || self.turns == 0 && turn == Turn::Here && choice.begin_turn(cx) {
            self.turns = TIMED;
            choice.ask_for_a_turn(Asked::Timed);
        } else {
            self.turns += 1;
            choice.ask_for_a_turn(Asked::OnePoll);
        }
    }

    /// Which receivers a send without any other progress may still wait for.
    pub(crate) fn turn(&self, chan: &AnyChan<'_>) -> Turn {
        if self.is_out() { chan.turn(self.ticket) } else { Turn::Over }
    }

    /// Whether it has an offer, or is about to make one.
    pub(crate) fn is_out(&self) -> bool {
        self.ticket != 0
    }
}

/// How many polls a send in a choice waits for the receivers it has woken, before the choice proceeds to
/// other branches, where no timer ends its turn. Receivers in the same scheduler are polled within one.
const TURNS_MAX: u8 = if cfg!(loom) { 1 } else { 16 };

/// The turn ends when all its receivers were polled, or by a timer.
const TIMED: u8 = u8::MAX;

/// Keeps the waker, unless the slot has it already. Returns the replaced waker, to be dropped outside the
/// lock.
#[inline(always)]
fn store(slot: &mut Option<Waker>, waker: &Waker) -> Option<Waker> {
    match slot {
        Some(old) if old.will_wake(waker) => None,
        slot => slot.replace(wake::keep(waker)),
    }
}

fn ends(g: &AnyGuard<'_, '_>) -> Ends {
    Ends { no_senders: g.has_any(NO_SENDER | RETIRED), no_receivers: g.has_any(NO_RECEIVER | RETIRED) }
}

/// What a caller of [`with_queue`](Chan::with_queue) does.
type UseOfQueue<'f> = dyn FnMut(&mut Queue, Ends, &mut After) + 'f;

/// The queue under the lock, made on first use.
#[inline]
fn queue<'g>(g: &'g mut AnyGuard<'_, '_>) -> &'g mut QueueAndHub {
    if !g.has(QUEUED) {
        make_queue(g);
    }
    g.queue.as_mut().expect("QUEUED says that there is one")
}

/// Registers a receive of the end itself, if it needs nothing else: a choice over many channels does so at
/// nearly all of them.
fn watch_quickly(state: &Lock<Inner>, waker: &Waker) -> bool {
    const NOT: u32 = OFFER | NO_SENDER | NO_RECEIVER | RETIRED | POISONED;
    let Some(mut g) = state.lock_when(NOT | QUEUED, QUEUED) else { return false };
    g.queue.as_mut().is_some_and(|queue| !queue.is_linked() && queue.watch_quickly(waker))
}

/// Makes the queue and moves the contents of the slots into it.
#[cold]
fn make_queue(g: &mut AnyGuard<'_, '_>) {
    let mut queue = QueueAndHub::new(&super::rendezvous());
    let offered = g.has(OFFER);
    if ends(g).no_receivers {
        queue.seal();
    }
    let (value, waiter) = (g.value().take(), g.waiter.take());
    if offered {
        queue.adopt_offer(value, waiter, g.has_any(TURN));
    } else if let Some(waker) = waiter
        && g.has(WATCHED)
    {
        queue.adopt_watcher(waker);
    }
    g.queue = Some(queue);
    g.clear(HELD | WATCHED | WOKEN | TURN);
    g.set(QUEUED);
}

/// Ends a pass: the tag shows whether a receive may find something.
fn publish(g: &mut AnyGuard<'_, '_>) {
    #[cfg(debug_assertions)]
    g.queue.iter().for_each(|queue| queue.check());
    if g.queue.as_ref().is_some_and(|q| q.is_worth_a_look()) { g.set(OFFER) } else { g.clear(OFFER) }
}

/// Sends the agents the events for what has newly ended.
fn tell_ends(queue: &mut Queue, news: u32, wakes: &mut Wakes) {
    let reason = queue.poison_reason().cloned().filter(|_| news & POISONED != 0);
    let (retired, gone) = (news & RETIRED != 0, news & NO_RECEIVER != 0);
    if let Some(outlet) = &mut queue.outlet {
        let poisoned = reason.clone().map(FromSender::Poisoned);
        poisoned.into_iter().chain(retired.then_some(FromSender::Retired)).for_each(|event| outlet.tell(event, wakes));
    }
    let is_lost = gone && queue.receiver_is_lost();
    for inlet in queue.inlet.iter_mut().chain(queue.lone_inlets.iter_mut().map(|(_, inlet)| inlet)) {
        let over = if is_lost { FromReceiver::Down } else { FromReceiver::Gone };
        let (retired, over) = (retired.then_some(FromReceiver::Retired), gone.then_some(over));
        let events = reason.clone().map(FromReceiver::Poisoned).into_iter().chain(retired).chain(over);
        events.for_each(|event| inlet.tell(event, wakes));
    }
    // The sender's agent gets the event of its end once no offer is open; the end itself may have closed the
    // open ones.
    queue.sender_leaves(news & NO_SENDER != 0, wakes);
}

fn immunity_of(policy: &Policy) -> u32 {
    u32::from(policy.immunity.as_u8()) << IMMUNITY_SHIFT
}

impl<T> Chan<T> {
    pub(crate) fn new(policy: &Policy, made: &'static Location<'static>) -> Self {
        let state = Lock::new(Inner { waiter: None, queue: None });
        if !policy.is_plain() {
            let mut g = state.lock();
            g.queue = Some(QueueAndHub::new(policy));
            g.set(QUEUED);
        }
        if policy.immunity > Strength::from(0) {
            state.lock().set(immunity_of(policy));
        }
        Self { record: Recorded::channel(made), state, value: UnsafeCell::new(None) }
    }

    /// The same channel for code that does not know the type of its values. All that is passed on with it are
    /// places for values of this type.
    #[inline(always)]
    pub(crate) fn any<'v>(&'v self) -> &'v AnyChan<'v> {
        self
    }

    /// Sends the value in `slot`. An error leaves the value there.
    ///
    /// The two steps of a plain rendezvous are inlined here: to offer, and to find the offer taken. All other
    /// cases are in [`poll_send_slowly`](Self::poll_send_slowly). A plain rendezvous is never ready in its
    /// first poll, so only the other sends ask the [budget].
    #[inline(always)]
    pub(crate) fn poll_send(
        &self,
        post: &mut Post,
        slot: &mut Option<T>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Failed>> {
        if post.ticket == FIRST_TICKET {
            if self.state.tag().is_some_and(|tag| tag & (OFFER | QUEUED) == 0) {
                return self.sent(post);
            }
        } else if post.ticket == 0
            && slot.is_some()
            && let Some(g) = self.locked_when(OFFER | NO_RECEIVER | RETIRED | QUEUED)
        {
            // Moves the value alone: a copy of the whole `Option` right after it was written in parts stalls
            // the processor.
            return self.offer_now(g, post, cx, |place| {
                if let Some(value) = slot.take() {
                    *place = Some(value);
                }
            });
        }
        self.poll_send_counted(post, slot, cx)
    }

    #[inline(never)]
    fn poll_send_counted(
        &self,
        post: &mut Post,
        slot: &mut Option<T>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Failed>> {
        self.any().poll_send_counted(post, slot, cx)
    }

    /// Whether a receive would find no value. May be wrong in either direction for a moment.
    #[inline]
    pub(crate) fn seems_empty(&self) -> bool {
        self.state.tag().is_some_and(|tag| tag & (OFFER | NO_SENDER | RETIRED | POISONED) == 0)
    }

    /// Takes a value, or watches for one: the two steps of a plain rendezvous. All other cases are in
    /// [`poll_take_slowly`](Self::poll_take_slowly).
    ///
    /// `COUNTED`: it is an operation of its own, which the [budget] may refuse. `again`: it has been polled
    /// before.
    #[inline(always)]
    pub(crate) fn poll_take<const COUNTED: bool>(
        &self,
        handle: Handle,
        again: bool,
        cx: &mut Context<'_>,
    ) -> Poll<Result<T, RecvError>> {
        if let Some(mut g) = self.locked_when(HELD | RETIRED | QUEUED) {
            if COUNTED && g.value().is_some() && !budget::take_one() {
                drop(g);
                return self.poll_take_spent(handle, again, cx);
            }
            if let Some(value) = g.value().take() {
                g.clear(OFFER | WOKEN);
                let woken = g.waiter.take();
                drop(g);
                self.record.receiver.end();
                if let Some(waker) = woken {
                    wake::wake(waker);
                }
                return Poll::Ready(Ok(value));
            }
            if !g.has(NO_SENDER) {
                let old = store(&mut g.waiter, cx.waker());
                g.clear(WOKEN);
                g.set(WATCHED);
                self.record.receiver.begin(Doing::Receive);
                drop(g);
                drop(old);
                return Poll::Pending;
            }
        }
        self.poll_take_otherwise::<COUNTED>(handle, again, cx)
    }

    #[inline(never)]
    fn poll_take_otherwise<const COUNTED: bool>(
        &self,
        handle: Handle,
        again: bool,
        cx: &mut Context<'_>,
    ) -> Poll<Result<T, RecvError>> {
        if handle == Handle::END && watch_quickly(&self.state, cx.waker()) {
            self.record.receiver.begin(Doing::Receive);
            return Poll::Pending;
        }
        let mut value = None;
        let taken = if COUNTED {
            self.any().poll_take_counted(handle, again, &mut value, cx)
        } else {
            self.any().poll_take_slowly(handle, false, &mut value, cx, None)
        };
        taken.map_ok(|_| received(value))
    }

    /// Takes a value, or watches for one. With `extended` the sender, or the place in the buffer, stays held
    /// until [`release`](Self::release) with the ticket returned beside the value.
    #[inline(never)]
    pub(crate) fn poll_take_slowly(
        &self,
        handle: Handle,
        extended: bool,
        cx: &mut Context<'_>,
        choice: Option<&ChoiceCx>,
    ) -> Poll<Result<(T, Option<u64>), RecvError>> {
        let mut value = None;
        let taken = self.any().poll_take_slowly(handle, extended, &mut value, cx, choice);
        taken.map_ok(|ticket| (received(value), ticket))
    }

    /// Takes a value if one is available.
    pub(crate) fn try_take(&self, handle: Handle) -> Result<T, RecvError> {
        let mut value = None;
        self.any().try_take(handle, &mut value).map(|()| received(value))
    }

    /// Handles an available value when the budget is spent.
    #[cold]
    fn poll_take_spent(&self, handle: Handle, again: bool, cx: &mut Context<'_>) -> Poll<Result<T, RecvError>> {
        if !again && budget::refuse(cx) {
            return Poll::Pending;
        }
        budget::renew();
        self.poll_take::<false>(handle, true, cx)
    }

    // ---- with places of its values

    /// Sends like [`poll_send`](Self::poll_send), as a part of an operation: the budget never refuses it.
    pub(crate) fn poll_send_slowly(
        &self,
        post: &mut Post,
        slot: &mut Option<T>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Failed>> {
        self.any().poll_send_slowly(post, slot, cx)
    }

    /// Sends the value in `slot` as a branch of a choice.
    pub(crate) fn poll_send_chosen(
        &self,
        post: &mut Post,
        slot: &mut Option<T>,
        cx: &mut Context<'_>,
        choice: &ChoiceCx,
    ) -> Poll<Result<(), Failed>> {
        self.any().poll_send_chosen(post, slot, cx, choice)
    }

    /// Encodes a value for an offer over a link, and perhaps over other channels too.
    #[cfg(feature = "link")]
    pub(crate) fn encode_for_link(&self, slot: &mut Option<T>) -> Option<bytes::Bytes> {
        self.any().encode_for_link(slot)
    }

    /// Sends the value in `slot` without waiting. An error leaves the value there.
    pub(crate) fn try_send(&self, handle: Handle, slot: &mut Option<T>) -> Result<(), Why> {
        self.any().try_send(handle, slot)
    }

    /// Withdraws the offer, if there is one. Its value is in `slot`, unless a receive has taken it. In that
    /// case the result is `true` (taken), or `false` while an extended receive or an agent still holds the
    /// value. `for_good`: the operation is dropped.
    pub(crate) fn withdraw(&self, post: &mut Post, slot: &mut Option<T>, for_good: bool) -> bool {
        self.any().withdraw(post, slot, for_good)
    }

    /// Gives up the send and takes its value back, unless a receive has it.
    #[inline(always)]
    pub(crate) fn abandon(&self, post: &mut Post, slot: &mut Option<T>) {
        if post.is_out() {
            self.any().abandon_offer(post, slot);
        }
    }

    /// Puts the value of a dropped or forgotten send's offer back into an empty slot. Waits while an agent
    /// has it.
    pub(crate) fn poll_settle(
        &self,
        handle: Handle,
        slot: &mut Option<T>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Failed>> {
        self.any().poll_settle(handle, slot, cx)
    }

    /// Offers a value that no task waits for. Returns its ticket, or `None` if a buffer has admitted it.
    pub(crate) fn post(&self, handle: Handle, value: T) -> Result<Option<u64>, SendError<T>> {
        let mut slot = Some(value);
        match (self.any().post(handle, &mut slot), slot) {
            (Ok(ticket), _) => Ok(ticket),
            (Err(failed), Some(value)) => Err(failed.with(value)),
            (Err(_), None) => Ok(None),
        }
    }

    /// The outcome of a post. It must not be called again once it is ready.
    pub(crate) fn poll_posted(&self, ticket: u64, waker: &Waker) -> Poll<Result<(), SendError<T>>> {
        let mut slot = None;
        match (self.any().poll_posted(ticket, &mut slot, waker), slot) {
            (Poll::Pending, _) => Poll::Pending,
            (Poll::Ready(Err(failed)), Some(value)) => Poll::Ready(Err(failed.with(value))),
            (Poll::Ready(_), _) => Poll::Ready(Ok(())),
        }
    }

    /// Withdraws a post. The inner `None`: it has been taken. `None`: an extended receive or an agent has it,
    /// and the answer will come.
    pub(crate) fn withdraw_posted(&self, ticket: u64) -> Option<Option<T>> {
        let mut slot = None;
        self.any().withdraw_posted(ticket, &mut slot).then_some(slot)
    }

    /// Makes this channel the receiver's part of a broadcast.
    pub(crate) fn join(&self, hub: &Arc<HubOf<T>>) {
        self.any().join_hub(HubRef::new(hub));
    }

    /// Calls `f` on the queue, under the lock. For agents, whose channels always have a queue.
    pub(crate) fn with_queue<R>(&self, f: impl FnOnce(&mut Queue, Ends, &mut After) -> R) -> R {
        self.any().with_queue(f)
    }
}

fn received<T>(value: Option<T>) -> T {
    value.expect("a receive that ends well has put it there")
}

/// The calls that have nothing to do with values.
macro_rules! without_values {
    ($($(#[$meta:meta])* fn $name:ident($($given:ident: $type:ty),*) $(-> $returns:ty)?;)*) => {
        impl<T> Chan<T> { $(
            $(#[$meta])*
            #[inline(always)]
            pub(crate) fn $name(&self, $($given: $type),*) $(-> $returns)? {
                self.any().$name($($given),*)
            }
        )* }
    };
}

without_values! {
    fn poll_retract(post: &mut Post, pool: &Pool, cx: &Context<'_>) -> Poll<Retracted>;
    fn is_held(post: &Post) -> bool;
    fn is_posted_done(ticket: u64) -> bool;
    fn detach(ticket: u64);
    fn record_for_handle() -> Recorded;
    fn turn(ticket: u64) -> Turn;
    fn rouse();
    fn sender_handle_gone(handle: Handle);
    fn handle_gone(handle: Handle);
    fn unwatch(handle: Handle);
    fn release(handle: Handle, ticket: Option<u64>);
    fn sender_gone();
    fn receiver_gone();
    fn move_sender() -> bool;
    fn move_receiver() -> bool;
    #[cfg(feature = "serde")]
    fn unmove_sender() -> bool;
    #[cfg(feature = "serde")]
    fn unmove_receiver() -> bool;
    #[cfg(feature = "serde")]
    fn sender_is_several() -> bool;
    #[cfg(feature = "serde")]
    fn receiver_is_several() -> bool;
    fn retire();
    fn retire_as_receiver();
    fn poison(reason: Reason) -> bool;
    fn poison_surely(reason: Reason);
    fn why_no_send() -> Option<Why>;
    fn set_unmatched(missing: Option<Arc<dyn Missing>>);
    fn send_timed_out() -> Why;
    fn recv_timed_out() -> RecvError;
    fn is_drained() -> bool;
    fn len() -> usize;
    fn poll_closed(handle: Handle, sending: bool, cx: &mut Context<'_>) -> Poll<()>;
    fn make_shared();
    fn claimed(sending: bool, out: bool, claimer: Handle);
    fn set_policy(policy: &Policy) -> bool;
    #[cfg(feature = "serde")]
    fn policy() -> Option<Policy>;
    fn is_left(sending: bool) -> bool;
    #[cfg(feature = "serde")]
    fn leaves();
    #[cfg(feature = "link")]
    fn poll_rest(waker: &Waker) -> Poll<()>;
    #[cfg(feature = "serde")]
    fn is_stretched(sending: bool) -> bool;
    #[cfg(feature = "serde")]
    fn is_busy() -> bool;
}

impl<S: ?Sized> ChanOf<S> {
    /// By which the hub of a broadcast knows the channel.
    pub(crate) fn address(&self) -> *const () {
        std::ptr::from_ref(self).cast()
    }

    /// Only the end itself writes the channel's record: each clone of a shared end has its own.
    #[inline(always)]
    fn begin_wait(&self, handle: Handle, doing: Doing) {
        if handle == Handle::END {
            self.side(doing).begin(doing);
        }
    }

    #[inline(always)]
    fn end_wait(&self, handle: Handle, doing: Doing) {
        if handle == Handle::END {
            self.side(doing).end();
        }
    }

    #[inline(always)]
    fn side(&self, doing: Doing) -> &Side {
        if doing == Doing::Receive { &self.record.receiver } else { &self.record.sender }
    }

    /// Offers the value of a plain rendezvous: the first step. `put` moves it into the slot.
    #[inline(always)]
    fn offer_now(
        &self,
        mut g: Locked<'_, S>,
        post: &mut Post,
        cx: &Context<'_>,
        put: impl FnOnce(&mut S),
    ) -> Poll<Result<(), Failed>> {
        // A watching receiver gives up the slot; otherwise the slot has at most a stale waker.
        let before = g.waiter.replace(wake::keep(cx.waker()));
        put(g.value());
        let watched = g.has(WATCHED);
        if watched {
            g.clear(WATCHED);
            g.set(WOKEN);
        }
        g.set(OFFER);
        drop(g);
        post.ticket = FIRST_TICKET;
        self.record.sender.begin(Doing::Send);
        match before {
            Some(receiver) if watched => wake::wake(receiver),
            stale => drop(stale),
        }
        Poll::Pending
    }

    #[inline(always)]
    fn sent(&self, post: &mut Post) -> Poll<Result<(), Failed>> {
        post.ticket = 0;
        self.end_wait(post.handle, Doing::Send);
        Poll::Ready(Ok(()))
    }
}

impl<'v> AnyChan<'v> {
    /// Locks the state, with all offers in the queue, if there is one.
    #[inline]
    fn lock(&self) -> AnyGuard<'_, 'v> {
        #[cfg_attr(not(feature = "link"), expect(unused_mut, reason = "nothing is to be moved"))]
        let mut g = self.locked();
        #[cfg(feature = "link")]
        link::empty_slot(&mut g);
        g
    }
}

/// Moves the value of a slot, if it has one, to another slot for values of the same channel.
fn move_value(from: &mut dyn AnySlot, to: &mut dyn AnySlot) {
    // SAFETY: `Chan` passes on only slots for values of its type.
    unsafe { from.move_to(to) }
}
