//! A channel's shared state: the one-slot rendezvous that most channels are, and the path to the [`Queue`]
//! for all others.
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

#[cfg(feature = "link")]
mod link;

use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use super::after::After;
use super::elsewhere::Missing;
use super::policy::Policy;
use super::queue::Queue;
#[cfg(feature = "serde")]
use super::queue::Retires;
use super::queue::events::{FromReceiver, FromSender};
use super::queue::offer::{Ends, FIRST_TICKET, Offered, Retracted, Stand, Took};
use super::queue::value::{Pool, Source};
use crate::budget;
use crate::channel::hub::{Hub, Member};
use crate::choice::ChoiceCx;
use crate::choice::branch::Asked;
use crate::error::{Failed, Reason, RecvError, SendError, Strength, Why};
use crate::handle::Handle;
use crate::lock::{Guard, Lock};
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

/// How many values one poll decodes in vain at most: a peer that withdraws and offers in turn must not
/// occupy it for ever.
#[cfg(feature = "link")]
const READS_MAX: u32 = 16;

/// The ticket of a send that waits behind a forgotten offer; it has none of its own yet.
const BEHIND: u64 = u64::MAX;

pub(crate) struct Inner<T> {
    value: Option<T>,
    /// The sender's if an offer exists, the receiver's if it watches: the two never wait at once.
    waiter: Option<Waker>,
    queue: Option<Box<QueueAndHub<T>>>,
}

/// The queue, and the broadcast that the channel belongs to. They share a box because most channels have
/// neither.
struct QueueAndHub<T> {
    queue: Queue<T>,
    hub: Weak<HubOf<T>>,
}

impl<T> QueueAndHub<T> {
    fn new(policy: &Policy) -> Box<Self> {
        Box::new(Self { queue: Queue::new(policy), hub: Weak::new() })
    }
}

impl<T> Deref for QueueAndHub<T> {
    type Target = Queue<T>;

    #[inline(always)]
    fn deref(&self) -> &Queue<T> {
        &self.queue
    }
}

impl<T> DerefMut for QueueAndHub<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Queue<T> {
        &mut self.queue
    }
}

/// The state that both ends of a channel share.
#[allow(unreachable_pub)] // an associated type of the public trait `End` names it
pub struct Chan<T> {
    state: Lock<Inner<T>>,
    pub(crate) record: Recorded,
}

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
    pub(crate) fn turn<T>(&self, chan: &Chan<T>) -> Turn {
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

fn ends<T>(g: &Guard<'_, Inner<T>>) -> Ends {
    Ends { no_senders: g.has_any(NO_SENDER | RETIRED), no_receivers: g.has_any(NO_RECEIVER | RETIRED) }
}

/// What a caller of [`with_queue`](Chan::with_queue) does.
type UseOfQueue<'f, T> = dyn FnMut(&mut Queue<T>, Ends, &mut After<T>) + 'f;

/// The queue under the lock, made on first use.
#[inline]
fn queue<'g, T>(g: &'g mut Guard<'_, Inner<T>>) -> &'g mut QueueAndHub<T> {
    if !g.has(QUEUED) {
        make_queue(g);
    }
    g.queue.as_mut().expect("QUEUED says that there is one")
}

/// Makes the queue and moves the contents of the slots into it.
#[cold]
fn make_queue<T>(g: &mut Guard<'_, Inner<T>>) {
    let mut queue = QueueAndHub::new(&super::rendezvous());
    let offered = g.has(OFFER);
    if ends(g).no_receivers {
        queue.seal();
    }
    let (value, waiter) = (g.value.take(), g.waiter.take());
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
fn publish<T>(g: &mut Guard<'_, Inner<T>>) {
    #[cfg(debug_assertions)]
    g.queue.iter().for_each(|queue| queue.check());
    if g.queue.as_ref().is_some_and(|q| q.is_worth_a_look()) { g.set(OFFER) } else { g.clear(OFFER) }
}

/// Sends the agents the events for what has newly ended.
fn tell_ends<T>(queue: &mut Queue<T>, news: u32, wakes: &mut Wakes) {
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
        let state = Lock::new(Inner { value: None, waiter: None, queue: None });
        if !policy.is_plain() {
            let mut g = state.lock();
            g.queue = Some(QueueAndHub::new(policy));
            g.set(QUEUED);
        }
        if policy.immunity > Strength::from(0) {
            state.lock().set(immunity_of(policy));
        }
        Self { state, record: Recorded::channel(made) }
    }

    /// Locks the state, with all offers in the queue, if there is one.
    #[inline]
    fn lock(&self) -> Guard<'_, Inner<T>> {
        #[cfg_attr(not(feature = "link"), expect(unused_mut, reason = "nothing is to be moved"))]
        let mut g = self.state.lock();
        #[cfg(feature = "link")]
        link::empty_slot(&mut g);
        g
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

    // ---- sending

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
            && let Some(mut g) = self.state.lock_when(OFFER | NO_RECEIVER | RETIRED | QUEUED, 0)
        {
            // A watching receiver gives up the slot; otherwise the slot has at most a stale waker.
            let before = g.waiter.replace(wake::keep(cx.waker()));
            // Moves the value alone: a copy of the whole `Option` right after it was written in parts stalls
            // the processor.
            if let Some(value) = slot.take() {
                g.value = Some(value);
            }
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
            return Poll::Pending;
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
        let again = post.is_out() || std::mem::replace(&mut post.refused, true);
        budget::counted(again, cx, |cx| self.poll_send_slowly(post, slot, cx))
    }

    /// Like [`poll_send`](Self::poll_send), for a part of an operation: the budget never refuses it.
    pub(crate) fn poll_send_slowly(
        &self,
        post: &mut Post,
        slot: &mut Option<T>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Failed>> {
        if post.ticket == BEHIND {
            post.ticket = 0;
        }
        let mut g = self.state.lock();
        if g.has(QUEUED) {
            #[cfg(feature = "link")]
            let g = match link::is_linked(&g) {
                false => g,
                true => match self.poll_send_over_link(g, post, slot, cx) {
                    Ok(sent) => return sent,
                    Err(g) => g,
                },
            };
            drop(g);
            return self.poll_send_queued(post, &mut Source::Slot(slot), cx, None);
        }
        if post.ticket == 0 {
            if slot.is_none() {
                return Poll::Ready(Ok(()));
            }
            if g.has_any(NO_RECEIVER | RETIRED) {
                return Poll::Ready(Err(Why::Closed.into()));
            }
            if !g.has(OFFER) {
                // Another thread held the lock when the short path looked.
                drop(g);
                return self.poll_send(post, slot, cx);
            }
            // A forgotten offer precedes this one.
            let old = store(&mut g.waiter, cx.waker());
            post.ticket = BEHIND;
            self.begin_wait(post.handle, Doing::Send);
            drop(g);
            drop(old);
            return Poll::Pending;
        }
        if !g.has(OFFER) {
            drop(g);
            return self.sent(post);
        }
        if g.has_any(NO_RECEIVER | RETIRED) && !g.has(HELD) {
            *slot = g.value.take();
            g.clear(OFFER);
            drop(g);
            post.ticket = 0;
            self.end_wait(post.handle, Doing::Send);
            return Poll::Ready(Err(Why::Closed.into()));
        }
        let old = store(&mut g.waiter, cx.waker());
        drop(g);
        drop(old);
        Poll::Pending
    }

    /// Sends the value in `slot` as a branch of a choice.
    pub(crate) fn poll_send_chosen(
        &self,
        post: &mut Post,
        slot: &mut Option<T>,
        cx: &mut Context<'_>,
        choice: &ChoiceCx,
    ) -> Poll<Result<(), Failed>> {
        if post.ticket == BEHIND {
            post.ticket = 0;
        }
        self.poll_send_queued(post, &mut Source::Slot(slot), cx, Some(choice))
    }

    #[inline(always)]
    fn sent(&self, post: &mut Post) -> Poll<Result<(), Failed>> {
        post.ticket = 0;
        self.end_wait(post.handle, Doing::Send);
        Poll::Ready(Ok(()))
    }

    /// Sends the value of a pool, which several branches of one choice offer.
    pub(crate) fn poll_send_pooled(
        &self,
        post: &mut Post,
        pool: &Pool<T>,
        cx: &mut Context<'_>,
        choice: &ChoiceCx,
    ) -> Poll<Result<(), Failed>> {
        self.poll_send_queued(post, &mut Source::Pool(pool), cx, Some(choice))
    }

    /// Withdraws the offer of a pool that was made for another choice.
    pub(crate) fn poll_retract(&self, post: &mut Post, pool: &Pool<T>, cx: &Context<'_>) -> Poll<Retracted> {
        if post.ticket == 0 {
            return Poll::Ready(Retracted::Back);
        }
        let mut after = After::new();
        let mut g = self.lock();
        let retracted = queue(&mut g).retract(post.ticket, pool, cx.waker(), &mut after);
        publish(&mut g);
        drop(g);
        if retracted.is_ready() {
            (post.ticket, post.turns) = (0, 0);
            self.end_wait(post.handle, Doing::Send);
        }
        retracted
    }

    #[inline(never)]
    fn poll_send_queued(
        &self,
        post: &mut Post,
        source: &mut Source<'_, T>,
        cx: &mut Context<'_>,
        choice: Option<&ChoiceCx>,
    ) -> Poll<Result<(), Failed>> {
        let mut after = After::new();
        let sent = self.poll_send_locked(post, source, cx, choice, &mut after);
        #[cfg(feature = "link")]
        let sent = match after.encoding {
            None => sent,
            Some(_) => self.encode_and_send(sent, post, source, cx, choice, &mut after),
        };
        after.done();
        sent
    }

    /// Encodes a value for an offer over a link, and perhaps over other channels too.
    #[cfg(feature = "link")]
    pub(crate) fn encode_for_link(&self, slot: &mut Option<T>) -> Option<bytes::Bytes> {
        let encoding = self.lock().queue.as_ref().and_then(|queue| queue.encoding_for_link());
        encoding.and_then(|mut encoding| {
            encoding.encode(&Source::Slot(slot), Waker::noop());
            encoding.into_bytes()
        })
    }

    /// Encodes a value for a link without the lock, and then continues the send.
    #[cfg(feature = "link")]
    #[inline(never)]
    fn encode_and_send(
        &self,
        mut sent: Poll<Result<(), Failed>>,
        post: &mut Post,
        source: &mut Source<'_, T>,
        cx: &mut Context<'_>,
        choice: Option<&ChoiceCx>,
        after: &mut After<T>,
    ) -> Poll<Result<(), Failed>> {
        while let Some(mut encoding) = after.encoding.take() {
            let is_ready = encoding.encode(source, cx.waker());
            if !encoding.is_of_source() {
                self.with_queue(|queue, _, after| queue.end_encoding(*encoding, after));
                choice.iter().for_each(|choice| choice.reopen());
                self.with_queue(|queue, _, after| queue.answer(post.ticket, after));
            } else if is_ready {
                after.encoding = Some(encoding);
            }
            if !is_ready {
                // An end in the value has an unsettled operation.
                return Poll::Pending;
            }
            sent = self.poll_send_again(post, source, cx, choice, after);
        }
        sent
    }

    /// [`poll_send_locked`](Self::poll_send_locked) where a second inlined copy would cost every send.
    #[cfg(feature = "link")]
    #[inline(never)]
    fn poll_send_again(
        &self,
        post: &mut Post,
        source: &mut Source<'_, T>,
        cx: &mut Context<'_>,
        choice: Option<&ChoiceCx>,
        after: &mut After<T>,
    ) -> Poll<Result<(), Failed>> {
        self.poll_send_locked(post, source, cx, choice, after)
    }

    #[inline(always)]
    fn poll_send_locked(
        &self,
        post: &mut Post,
        source: &mut Source<'_, T>,
        cx: &mut Context<'_>,
        choice: Option<&ChoiceCx>,
        after: &mut After<T>,
    ) -> Poll<Result<(), Failed>> {
        let mut g = self.lock();
        let ends = ends(&g);
        let queue = queue(&mut g);
        if post.ticket != 0
            && !queue.is_offered_by(post.ticket, choice.map(|c| &**c.offering(cx.waker()).0))
            && queue.take_back(post.ticket, source, after)
        {
            // It was lent to another choice before, so it is offered anew.
            (post.ticket, post.turns) = (0, 0);
        }
        #[cfg(feature = "link")]
        if queue.remote.is_some()
            && let Some(encoding) = queue.begin_encoding(post.ticket)
        {
            after.encoding = Some(Box::new(encoding));
            return Poll::Pending;
        }
        if post.ticket != 0 {
            return match queue.look(post.ticket, source, ends, cx.waker(), after) {
                // Another party may have decided the choice for another branch.
                Stand::Taken if choice.is_some_and(|c| !c.commit()) => Poll::Pending,
                Stand::Taken => {
                    drop(g);
                    self.sent(post)
                }
                Stand::Failed(failed) => {
                    publish(&mut g);
                    drop(g);
                    post.ticket = 0;
                    // Another party may have decided the choice for another branch.
                    if choice.is_some_and(|c| !c.commit()) {
                        return Poll::Pending;
                    }
                    self.end_wait(post.handle, Doing::Send);
                    Poll::Ready(Err(failed))
                }
                Stand::Pending => {
                    if let Some(choice) = choice
                        && post.turns != TURNS_MAX
                    {
                        let turn = queue.turn();
                        if turn == Turn::Here && choice.has_rivals() {
                            queue.begin_turn(post.ticket);
                        }
                        drop(g);
                        post.take_turn(choice, turn, cx);
                    }
                    Poll::Pending
                }
            };
        }
        if matches!(source, Source::Slot(None)) {
            return Poll::Ready(Ok(()));
        }
        #[cfg(feature = "link")]
        if queue.remote.is_none() {
            // A value encoded for a link that has been given up.
            after.encoding = None;
        } else {
            match queue.begin_offer(source, choice.is_some(), ends, after) {
                Ok(None) => {}
                Ok(encoding) => {
                    after.encoding = encoding.map(Box::new);
                    return Poll::Pending;
                }
                Err(_) if choice.is_some_and(|c| !c.commit()) => return Poll::Pending,
                Err(why) => return Poll::Ready(Err(why.into())),
            }
        }
        let own = choice.map(|c| c.offering(cx.waker()));
        match queue.offer(post.handle, source, own, ends, cx.waker(), after) {
            Offered::Admitted => {
                publish(&mut g);
                drop(g);
                self.sent(post)
            }
            Offered::Failed(why) => Poll::Ready(Err(why.into())),
            Offered::ChoiceGone => Poll::Pending,
            Offered::Queued(ticket, woke) => {
                // Also if other sends woke the receivers before: they have yet to be polled.
                let turn = if choice.is_some() { queue.turn() } else { Turn::Over };
                let turn = if woke || turn == Turn::Here { turn } else { Turn::Over };
                if turn == Turn::Here && choice.is_some_and(ChoiceCx::has_rivals) {
                    queue.begin_turn(ticket);
                }
                publish(&mut g);
                post.ticket = ticket;
                self.begin_wait(post.handle, Doing::Send);
                drop(g);
                if let Some(choice) = choice {
                    post.take_turn(choice, turn, cx);
                }
                Poll::Pending
            }
        }
    }

    /// Sends the value in `slot` without waiting. An error leaves the value there.
    pub(crate) fn try_send(&self, handle: Handle, slot: &mut Option<T>) -> Result<(), Why> {
        let mut after = After::new();
        let mut g = self.lock();
        if !g.has(QUEUED) {
            return Err(if ends(&g).no_receivers { Why::Closed } else { Why::WouldBlock });
        }
        #[cfg(feature = "link")]
        if queue(&mut g).has_free_place() {
            g = self.encode_now(g, slot, &mut after)?;
        }
        let ends = ends(&g);
        match queue(&mut g).try_offer(handle, &mut Source::Slot(slot), None, ends, &mut after) {
            Offered::Admitted => {
                publish(&mut g);
                Ok(())
            }
            Offered::Failed(why) => Err(why),
            Offered::Queued(..) | Offered::ChoiceGone => Err(Why::WouldBlock),
        }
    }

    /// Withdraws the offer, if there is one. Its value is in `slot`, unless a receive has taken it. In that
    /// case the result is `true` (taken), or `false` while an extended receive or an agent still holds the
    /// value. `for_good`: the operation is dropped.
    pub(crate) fn withdraw(&self, post: &mut Post, slot: &mut Option<T>, for_good: bool) -> bool {
        if post.ticket == 0 {
            return true;
        }
        if post.ticket == BEHIND {
            // Not offered yet; the value has not moved.
            post.ticket = 0;
            return true;
        }
        let mut after = After::new();
        let mut g = self.lock();
        let released = if g.has(QUEUED) {
            let stand = queue(&mut g).withdraw(post.ticket, &mut Source::Slot(slot), for_good, &mut after);
            publish(&mut g);
            !matches!(stand, Stand::Pending)
        } else if g.has(OFFER | HELD) {
            false
        } else {
            if g.has(OFFER) {
                *slot = g.value.take();
                g.clear(OFFER);
                after.stale.add(g.waiter.take());
            }
            true
        };
        drop(g);
        if released {
            post.ticket = 0;
            self.end_wait(post.handle, Doing::Send);
        }
        released
    }

    /// Whether an extended receive has returned the value of this send, and still holds it.
    pub(crate) fn is_held(&self, post: &Post) -> bool {
        let g = self.lock();
        match &g.queue {
            Some(queue) => queue.is_held(post.ticket),
            None => post.is_out() && g.has(HELD),
        }
    }

    /// Gives up the send and takes its value back, unless a receive has it.
    #[inline(always)]
    pub(crate) fn abandon(&self, post: &mut Post, slot: &mut Option<T>) {
        if post.is_out() {
            self.abandon_offer(post, slot);
        }
    }

    #[inline(never)]
    fn abandon_offer(&self, post: &mut Post, slot: &mut Option<T>) {
        self.withdraw(post, slot, true);
        self.end_wait(post.handle, Doing::Send);
    }

    /// Puts the value of a dropped or forgotten send's offer back into an empty slot. Waits while an agent
    /// has it.
    pub(crate) fn poll_settle(
        &self,
        handle: Handle,
        slot: &mut Option<T>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Failed>> {
        let mut after = After::new();
        let mut g = self.lock();
        if g.has(QUEUED) {
            let queue = queue(&mut g);
            if let Some(id) = queue.settle_forgotten(handle, slot, &mut after) {
                publish(&mut g);
                return Poll::Ready(Err(Failed::Unknown(id)));
            }
            if slot.is_none() && queue.ask_back_all(handle, &mut after) {
                queue.wait_for_end(handle, true, cx.waker(), &mut after);
                return Poll::Pending;
            }
            publish(&mut g);
        } else if slot.is_none() && g.has(OFFER) && !g.has(HELD) {
            *slot = g.value.take();
            g.clear(OFFER);
        }
        Poll::Ready(Ok(()))
    }

    /// Asks the other node for the outcome of all offers that the sending end's finished operations have left
    /// out. Ready once it has answered.
    #[cfg(feature = "link")]
    pub(crate) fn poll_rest(&self, waker: &Waker) -> Poll<()> {
        let mut after = After::new();
        let mut g = self.lock();
        let Some(queue) = &mut g.queue else { return Poll::Ready(()) };
        if !queue.ask_back_all(Handle::END, &mut after) {
            return Poll::Ready(());
        }
        queue.wait_for_end(Handle::END, true, waker, &mut after);
        Poll::Pending
    }

    // ---- posting

    /// Offers a value that no task waits for. Returns its ticket, or `None` if a buffer has admitted it.
    pub(crate) fn post(&self, handle: Handle, value: T) -> Result<Option<u64>, SendError<T>> {
        let mut slot = Some(value);
        let mut after = After::new();
        let mut g = self.lock();
        #[cfg(feature = "link")]
        {
            g = match self.encode_now(g, &mut slot, &mut after) {
                Ok(g) => g,
                Err(why) => return slot.map_or(Ok(None), |value| Err(Failed::from(why).with(value))),
            };
        }
        let ends = ends(&g);
        let queue = queue(&mut g);
        let offered = queue.offer(handle, &mut Source::Slot(&mut slot), None, ends, Waker::noop(), &mut after);
        let ticket = match offered {
            Offered::Queued(ticket, _) => {
                queue.posted(ticket);
                Some(ticket)
            }
            Offered::Failed(why) => return slot.map_or(Ok(None), |value| Err(Failed::from(why).with(value))),
            Offered::Admitted | Offered::ChoiceGone => None,
        };
        publish(&mut g);
        Ok(ticket)
    }

    /// Encodes, without the lock, a value that this call sends over a link.
    #[cfg(feature = "link")]
    fn encode_now<'g>(
        &'g self,
        mut g: Guard<'g, Inner<T>>,
        slot: &mut Option<T>,
        after: &mut After<T>,
    ) -> Result<Guard<'g, Inner<T>>, Why> {
        loop {
            let ends = ends(&g);
            let Some(mut encoding) = queue(&mut g).begin_offer(&Source::Slot(slot), false, ends, after)? else {
                return Ok(g);
            };
            drop(g);
            if !encoding.encode(&Source::Slot(slot), Waker::noop()) {
                let why = "an end in a value that is sent without waiting has an unsettled operation";
                return Err(Why::Unsendable(why.into()));
            }
            after.encoding = Some(Box::new(encoding));
            g = self.lock();
        }
    }

    /// The outcome of a post. It must not be called again once it is ready.
    pub(crate) fn poll_posted(&self, ticket: u64, waker: &Waker) -> Poll<Result<(), SendError<T>>> {
        let mut slot = None;
        let mut after = After::new();
        let mut g = self.lock();
        let ends = ends(&g);
        let stand = queue(&mut g).look(ticket, &mut Source::Slot(&mut slot), ends, waker, &mut after);
        publish(&mut g);
        match (stand, slot) {
            (Stand::Pending, _) => Poll::Pending,
            (Stand::Failed(failed), Some(value)) => Poll::Ready(Err(failed.with(value))),
            _ => Poll::Ready(Ok(())),
        }
    }

    pub(crate) fn is_posted_done(&self, ticket: u64) -> bool {
        let g = self.lock();
        let ends = ends(&g);
        g.queue.as_ref().is_none_or(|queue| queue.is_settled(ticket, ends))
    }

    /// Withdraws a post. The inner `None`: it has been taken. `None`: an extended receive or an agent has it,
    /// and the answer will come.
    pub(crate) fn withdraw_posted(&self, ticket: u64) -> Option<Option<T>> {
        let mut slot = None;
        let mut after = After::new();
        let mut g = self.lock();
        let stand = queue(&mut g).withdraw(ticket, &mut Source::Slot(&mut slot), false, &mut after);
        publish(&mut g);
        if matches!(stand, Stand::Pending) { None } else { Some(slot) }
    }

    /// Detaches the post under this ticket, because its handle was dropped.
    pub(crate) fn detach(&self, ticket: u64) {
        let mut after = After::new();
        let mut g = self.lock();
        let ends = ends(&g);
        queue(&mut g).let_go(ticket, ends, &mut after);
        publish(&mut g);
    }

    /// Makes a wait record of this channel in addition to those of its ends.
    pub(crate) fn record_for_handle(&self) -> Recorded {
        Recorded::handle(self.record.id(), Location::caller())
    }

    /// Which receivers the send under this ticket, which waits for nothing else, may still wait for.
    pub(crate) fn turn(&self, ticket: u64) -> Turn {
        let mut g = self.lock();
        let woken = g.has_any(WATCHED | WOKEN);
        match &mut g.queue {
            Some(queue) => {
                let turn = queue.turn();
                if turn == Turn::Here {
                    queue.begin_turn(ticket);
                }
                turn
            }
            // A receiver that is polled takes the value.
            None if woken => {
                g.set(TURN);
                Turn::Here
            }
            None => Turn::Over,
        }
    }

    /// The choice of an offer here is open again: wakes the receivers that passed the offer over.
    pub(crate) fn rouse(&self) {
        let mut after = After::new();
        let mut g = self.lock();
        if g.has(QUEUED) {
            queue(&mut g).rouse(&mut after);
            publish(&mut g);
        }
    }

    // ---- receiving

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
        if let Some(mut g) = self.state.lock_when(HELD | RETIRED | QUEUED, 0) {
            if COUNTED && g.value.is_some() && !budget::take_one() {
                drop(g);
                return self.poll_take_spent(handle, again, cx);
            }
            if let Some(value) = g.value.take() {
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
        self.poll_take_counted::<COUNTED>(handle, again, cx)
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

    #[inline(never)]
    fn poll_take_counted<const COUNTED: bool>(
        &self,
        handle: Handle,
        again: bool,
        cx: &mut Context<'_>,
    ) -> Poll<Result<T, RecvError>> {
        let poll = |cx: &mut Context<'_>| self.poll_take_slowly(handle, false, cx, None);
        let taken = if COUNTED { budget::counted(again, cx, poll) } else { poll(cx) };
        taken.map_ok(|(value, _)| value)
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
        let mut g = self.state.lock();
        if g.has(QUEUED) {
            #[cfg(feature = "link")]
            let mut g = match link::is_linked(&g) {
                false => g,
                true => match self.poll_take_over_link(g, handle, extended, cx, choice) {
                    Ok(taken) => return taken,
                    Err(g) => g,
                },
            };
            let may_wait_quickly = handle == Handle::END && choice.is_none_or(|choice| choice.own().is_none());
            if may_wait_quickly && Self::watch_quickly(&mut g, cx.waker()) {
                self.record.receiver.begin(Doing::Receive);
                return Poll::Pending;
            }
            drop(g);
            return self.poll_take_queued(handle, extended, cx, choice);
        }
        if g.has(HELD) {
            // A guard still held when its receiver receives again was forgotten.
            g.clear(OFFER | HELD);
            let waker = g.waiter.take();
            drop(g);
            if let Some(waker) = waker {
                wake::wake(waker);
            }
            return self.poll_take_slowly(handle, extended, cx, choice);
        }
        if g.has(OFFER) && !g.has(RETIRED) {
            if choice.is_some_and(|c| !c.commit()) {
                return Poll::Pending;
            }
            if let Some(value) = g.value.take() {
                let woken = if extended {
                    g.set(HELD);
                    g.clear(WOKEN);
                    None
                } else {
                    g.clear(OFFER | WOKEN);
                    g.waiter.take()
                };
                drop(g);
                self.record.receiver.end();
                if let Some(waker) = woken {
                    wake::wake(waker);
                }
                return Poll::Ready(Ok((value, Some(FIRST_TICKET))));
            }
        }
        if g.has_any(NO_SENDER | RETIRED) {
            if choice.is_some_and(|c| !c.commit()) {
                return Poll::Pending;
            }
            drop(g);
            self.record.receiver.end();
            return Poll::Ready(Err(RecvError::Closed));
        }
        let old = store(&mut g.waiter, cx.waker());
        g.clear(WOKEN);
        g.set(WATCHED);
        self.record.receiver.begin(Doing::Receive);
        drop(g);
        drop(old);
        Poll::Pending
    }

    /// Registers a receive of the end itself, if it needs nothing else: a choice over many channels does so
    /// at nearly all of them.
    #[inline]
    fn watch_quickly(g: &mut Guard<'_, Inner<T>>, waker: &Waker) -> bool {
        !g.has_any(OFFER | NO_SENDER | NO_RECEIVER | RETIRED | POISONED)
            && g.queue.as_mut().is_some_and(|queue| queue.watch_quickly(waker))
    }

    #[inline(never)]
    fn poll_take_queued(
        &self,
        handle: Handle,
        extended: bool,
        cx: &mut Context<'_>,
        choice: Option<&ChoiceCx>,
    ) -> Poll<Result<(T, Option<u64>), RecvError>> {
        let mut after = After::new();
        let own = choice.and_then(ChoiceCx::own);
        let mut g = self.lock();
        let took = {
            let ends = ends(&g);
            queue(&mut g).take_in_line(handle, own, extended, ends, &mut after)
        };
        #[cfg(feature = "link")]
        if queue(&mut g).remote.is_some() {
            let result = self.finish_take_over_link(g, took, handle, extended, cx, choice, &mut after);
            after.done();
            return result;
        }
        let result = self.finish_take(g, took, handle, cx, choice, &mut after);
        after.done();
        result
    }

    #[cfg(feature = "link")]
    #[inline(never)]
    #[expect(clippy::too_many_arguments, reason = "all that a pass through the queue is about")]
    fn finish_take_over_link(
        &self,
        g: Guard<'_, Inner<T>>,
        took: Took<T>,
        handle: Handle,
        extended: bool,
        cx: &Context<'_>,
        choice: Option<&ChoiceCx>,
        after: &mut After<T>,
    ) -> Poll<Result<(T, Option<u64>), RecvError>> {
        let own = choice.and_then(ChoiceCx::own);
        let has_read = matches!(took, Took::Reads(_));
        let (g, took) = self.decode_and_take(g, took, handle, own, extended, cx.waker(), after);
        let result = self.finish_take(g, took, handle, cx, choice, after);
        if let Some((decision, _)) = own.filter(|_| has_read && result.is_pending()) {
            decision.reopen();
        }
        result
    }

    #[inline(always)]
    fn finish_take(
        &self,
        mut g: Guard<'_, Inner<T>>,
        took: Took<T>,
        handle: Handle,
        cx: &Context<'_>,
        choice: Option<&ChoiceCx>,
        after: &mut After<T>,
    ) -> Poll<Result<(T, Option<u64>), RecvError>> {
        let queue = queue(&mut g);
        let result = match took {
            #[cfg(feature = "link")]
            Took::Reads(_) | Took::Unreadable(_) => unreachable!("it has been decoded"),
            Took::Value(value, ticket) => {
                queue.taken();
                Poll::Ready(Ok((value, ticket)))
            }
            Took::Ended(why) => Poll::Ready(Err(why)),
            Took::ChoiceGone => {
                queue.step_aside(handle, after);
                Poll::Pending
            }
            Took::Nothing => match queue.watch(handle, cx.waker(), after) {
                Ok(()) => Poll::Pending,
                Err(_) if choice.is_some_and(|c| !c.commit()) => Poll::Pending,
                Err(refused) => Poll::Ready(Err(refused)),
            },
        };
        if result.is_ready() {
            queue.unwatch(handle, after);
            self.end_wait(handle, Doing::Receive);
        } else {
            self.begin_wait(handle, Doing::Receive);
        }
        publish(&mut g);
        drop(g);
        result
    }

    /// Decodes a value from a link without the lock, and looks again.
    #[cfg(feature = "link")]
    #[inline(never)]
    #[expect(clippy::too_many_arguments, reason = "all that a pass through the queue is about, for a second pass")]
    fn decode_and_take<'g>(
        &'g self,
        mut g: Guard<'g, Inner<T>>,
        mut took: Took<T>,
        handle: Handle,
        own: crate::choice::decision::Branching<'_>,
        extended: bool,
        waker: &Waker,
        after: &mut After<T>,
    ) -> (Guard<'g, Inner<T>>, Took<T>) {
        // A value that a receive read although the slot no longer held its offer.
        queue(&mut g).end_reading(after);
        let mut reads = 0;
        while let Took::Reads(mut reading) = took {
            reads += 1;
            let is_last = reads > READS_MAX;
            drop(g);
            if !is_last {
                reading.decode();
            }
            g = self.lock();
            let ends = ends(&g);
            let queue = queue(&mut g);
            queue.has_decoded(*reading, after);
            took = if is_last { Took::Nothing } else { queue.take(handle, own, extended, ends, after) };
            queue.end_reading(after);
            if is_last {
                after.wakes.add(Some(wake::keep(waker)));
            }
        }
        if let Took::Unreadable(why) = took {
            drop(g);
            self.poison_surely(format!("a value that arrived could not be read: {why}").as_str().into());
            g = self.lock();
            let ends = ends(&g);
            took = queue(&mut g).take(handle, own, extended, ends, after);
        }
        (g, took)
    }

    /// Takes a value if one is available.
    pub(crate) fn try_take(&self, handle: Handle) -> Result<T, RecvError> {
        let mut after = After::new();
        let mut g = self.lock();
        if !g.has(QUEUED) {
            if g.has(HELD) {
                // A forgotten guard holds it.
                g.clear(OFFER | HELD);
                after.wakes.add(g.waiter.take());
            } else if !g.has(RETIRED)
                && let Some(value) = g.value.take()
            {
                g.clear(OFFER);
                after.wakes.add(g.waiter.take());
                return Ok(value);
            }
            return Err(if g.has_any(NO_SENDER | RETIRED) { RecvError::Closed } else { RecvError::WouldBlock });
        }
        let ends = ends(&g);
        let queue = queue(&mut g);
        let took = queue.take(handle, None, false, ends, &mut after);
        #[cfg(feature = "link")]
        let (mut g, took) = match queue.remote {
            None => (g, took),
            Some(_) => self.decode_and_take(g, took, handle, None, false, Waker::noop(), &mut after),
        };
        if let Took::Value(..) = took {
            self::queue(&mut g).taken();
        }
        publish(&mut g);
        match took {
            #[cfg(feature = "link")]
            Took::Reads(_) | Took::Unreadable(_) => unreachable!("it has been decoded"),
            Took::Value(value, _) => Ok(value),
            Took::Ended(why) => Err(why),
            Took::Nothing | Took::ChoiceGone => Err(RecvError::WouldBlock),
        }
    }

    /// Handles the drop of a handle of a shared sender, and drops what its dropped sends have left behind.
    pub(crate) fn sender_handle_gone(&self, handle: Handle) {
        let mut after = After::new();
        let mut g = self.lock();
        queue(&mut g).sender_handle_gone(handle, &mut after);
        publish(&mut g);
    }

    /// Handles the drop of a handle of a shared receiver, and releases what it forgot to release.
    pub(crate) fn handle_gone(&self, handle: Handle) {
        let mut after = After::new();
        let mut g = self.lock();
        let queue = queue(&mut g);
        queue.unwatch(handle, &mut after);
        queue.release_forgotten(handle, &mut after);
        publish(&mut g);
    }

    /// Gives up a registered receive. The waker in the slot stays: a superfluous wake is harmless, and the
    /// next receive or choice mostly registers the same waker.
    #[inline(never)]
    pub(crate) fn unwatch(&self, handle: Handle) {
        self.end_wait(handle, Doing::Receive);
        if self.state.tag().is_none_or(|tag| tag & (QUEUED | TURN) != 0) {
            self.unwatch_locked(handle);
        }
    }

    #[inline(never)]
    fn unwatch_locked(&self, handle: Handle) {
        if handle == Handle::END && self.unwatch_quickly() {
            return;
        }
        let mut after = After::new();
        let mut g = self.lock();
        if g.has(QUEUED) {
            queue(&mut g).unwatch(handle, &mut after);
        } else if g.has(TURN) {
            g.clear(TURN | WOKEN);
            if g.has(OFFER) && !g.has(HELD) {
                after.wakes.add(g.waiter.take());
            }
        }
    }

    /// Unregisters the end itself, if it needs nothing else.
    #[inline]
    fn unwatch_quickly(&self) -> bool {
        let mut g = self.lock();
        let unwatched = g.queue.as_mut().map_or(Err(()), |queue| queue.unwatch_quickly());
        drop(g);
        // The waker is dropped here, outside the lock.
        unwatched.is_ok()
    }

    /// Ends an extended receive.
    pub(crate) fn release(&self, handle: Handle, ticket: Option<u64>) {
        let mut after = After::new();
        let mut g = self.lock();
        if g.has(QUEUED) {
            queue(&mut g).release(handle, ticket, &mut after);
            publish(&mut g);
        } else if g.has(HELD) {
            g.clear(OFFER | HELD);
            after.wakes.add(g.waiter.take());
        }
    }

    // ---- ending

    fn end(&self, g: Guard<'_, Inner<T>>, bits: u32) {
        let mut after = After::new();
        let hub = Self::end_here(g, bits, &mut after);
        if bits & (NO_RECEIVER | RETIRED) != 0
            && let Some(hub) = hub
        {
            wake::both(|| drop(after), || hub.left(self, bits & NO_RECEIVER != 0));
        }
    }

    /// Returns the broadcast that this channel belongs to.
    fn end_here(mut g: Guard<'_, Inner<T>>, bits: u32, after: &mut After<T>) -> Option<Arc<HubOf<T>>> {
        let news = bits & !g.tag;
        g.set(bits);
        after.wakes.add(g.waiter.take());
        g.clear(WATCHED);
        if bits & NO_RECEIVER != 0 && g.has(HELD) {
            // A forgotten guard holds it, and no other party will release it.
            g.clear(OFFER | HELD);
        }
        if g.has(QUEUED) {
            let ends = ends(&g);
            let queue = queue(&mut g);
            if ends.no_receivers {
                queue.seal();
            }
            queue.fail_far(ends, after);
            queue.drop_ownerless(ends, after);
            #[cfg(feature = "link")]
            if bits & NO_SENDER != 0 {
                queue.drop_all_spent(Handle::END, after);
            }
            if bits & NO_RECEIVER != 0 {
                queue.release_all(after);
                queue.discard(after);
            }
            queue.wake_all(&mut after.wakes);
            tell_ends(queue, news, &mut after.wakes);
            let hub = queue.hub.upgrade();
            publish(&mut g);
            return hub;
        }
        None
    }

    /// Makes this channel the receiver's part of a broadcast.
    pub(crate) fn join(&self, hub: &Arc<HubOf<T>>) {
        let mut after = After::<T>::new();
        let mut g = self.lock();
        let queue = queue(&mut g);
        queue.hub = Arc::downgrade(hub);
        queue.sender_leaves(false, &mut after.wakes);
        publish(&mut g);
    }

    pub(crate) fn sender_gone(&self) {
        self.value_gone(SENDERS, ONE_SENDER, NO_SENDER);
    }

    pub(crate) fn receiver_gone(&self) {
        self.value_gone(RECEIVERS, ONE_RECEIVER, NO_RECEIVER);
    }

    fn value_gone(&self, several: u32, one: u32, gone: u32) {
        let mut g = self.lock();
        if !g.take_one(several, one) {
            self.end(g, gone);
        }
    }

    /// Counts another value for the sending end, which the caller makes; from then on the next drop of one
    /// leaves the channel unchanged. `false`: the caller must not make it, because the end was dropped (or
    /// already has 127 more values; a receiver 63).
    pub(crate) fn move_sender(&self) -> bool {
        self.count_another(SENDERS, ONE_SENDER, NO_SENDER)
    }

    /// The same for the receiving end.
    pub(crate) fn move_receiver(&self) -> bool {
        self.count_another(RECEIVERS, ONE_RECEIVER, NO_RECEIVER)
    }

    fn count_another(&self, several: u32, one: u32, gone: u32) -> bool {
        let mut g = self.lock();
        let may = !g.has(gone) && g.tag & several != several;
        if may {
            g.tag += one;
        }
        may
    }

    /// Uncounts the caller's value if another value stands for the sending end as well. `true`: one does.
    #[cfg(feature = "serde")]
    pub(crate) fn unmove_sender(&self) -> bool {
        self.lock().take_one(SENDERS, ONE_SENDER)
    }

    /// The same for the receiving end.
    #[cfg(feature = "serde")]
    pub(crate) fn unmove_receiver(&self) -> bool {
        self.lock().take_one(RECEIVERS, ONE_RECEIVER)
    }

    /// Whether more than one value stands for the sending end.
    #[cfg(feature = "serde")]
    pub(crate) fn sender_is_several(&self) -> bool {
        self.lock().has_any(SENDERS)
    }

    /// The same for the receiving end.
    #[cfg(feature = "serde")]
    pub(crate) fn receiver_is_several(&self) -> bool {
        self.lock().has_any(RECEIVERS)
    }

    pub(crate) fn retire(&self) {
        self.end(self.lock(), RETIRED);
    }

    /// Retires the channel from the receiver here. If another node keeps the buffered values, the channel is
    /// retired there.
    pub(crate) fn retire_as_receiver(&self) {
        #[cfg(feature = "serde")]
        match self.ask_to_retire() {
            Retires::Here => {}
            Retires::ByDesk(line) if !line.retire() => self.with_queue(|queue, _, after| queue.has_retired(after)),
            Retires::ByDesk(_) | Retires::Asked | Retires::Done => return,
        }
        self.retire();
    }

    #[cfg(feature = "serde")]
    fn ask_to_retire(&self) -> Retires {
        let mut g = self.lock();
        if g.has_any(NO_SENDER | RETIRED | POISONED) {
            return Retires::Here;
        }
        g.queue.as_mut().map_or(Retires::Here, |queue| queue.retires.ask())
    }

    /// Poisons the channel, from an end here or from the agent of a sender elsewhere. `false`: the channel is
    /// immune.
    ///
    /// If the receiver is elsewhere and the poison may be too weak, the receiver's half decides.
    pub(crate) fn poison(&self, reason: Reason) -> bool {
        let strength = reason.strength();
        if strength != Strength::FULL {
            let mut after: After<T> = After::new();
            let mut g = self.lock();
            if let Some(outlet) = g.queue.as_mut().and_then(|queue| queue.outlet.as_mut()) {
                outlet.tell(FromSender::Poisoned(reason), &mut after.wakes);
                return true;
            }
            if !strength.overcomes(Strength::from(((g.tag & IMMUNITY) >> IMMUNITY_SHIFT) as u8)) {
                return false;
            }
        }
        self.poison_surely(reason);
        true
    }

    /// Poisons the channel. The poison is known to be strong enough.
    pub(crate) fn poison_surely(&self, reason: Reason) {
        let mut after = After::new();
        if let Some(hub) = self.poison_here(reason.clone(), &mut after) {
            wake::both(|| drop(after), || hub.poison(&reason, Some(self)));
        }
    }

    /// Returns the broadcast that this channel belongs to, if it needs the poison.
    fn poison_here(&self, reason: Reason, after: &mut After<T>) -> Option<Arc<HubOf<T>>> {
        let mut g = self.lock();
        if g.has(NO_SENDER) && g.has(NO_RECEIVER) {
            return None;
        }
        let news = !g.has(POISONED);
        let ends = ends(&g);
        let queue = queue(&mut g);
        queue.poison(reason, after);
        queue.fail_far(ends, after);
        queue.drop_ownerless(ends, after);
        queue.wake_all(&mut after.wakes);
        let mut hub = None;
        if news {
            tell_ends(queue, POISONED, &mut after.wakes);
            hub = queue.hub.upgrade();
        }
        g.set(POISONED);
        publish(&mut g);
        hub
    }

    /// The lasting reason why a send would fail now, if there is one.
    pub(crate) fn why_no_send(&self) -> Option<Why> {
        let g = self.lock();
        let ends = ends(&g);
        match &g.queue {
            Some(queue) => queue.no_more_sends(ends),
            None => ends.no_receivers.then_some(Why::Closed),
        }
    }

    /// The text of a timeout while the other end is not connected. It calls the carrier, so the caller must
    /// hold no lock.
    fn unmatched(&self) -> Option<Reason> {
        let missing = {
            let g = self.lock();
            g.queue.as_ref().and_then(|queue| queue.unmatched.clone())
        };
        missing?.text(self.record.id())
    }

    /// Sets the source of texts for timeouts while the other end is missing; `None`: it is connected.
    pub(crate) fn set_unmatched(&self, missing: Option<Arc<dyn Missing>>) {
        let before = self.with_queue(|queue, _, _| std::mem::replace(&mut queue.unmatched, missing));
        drop(before);
    }

    /// Why a deadline has ended a send.
    pub(crate) fn send_timed_out(&self) -> Why {
        self.unmatched().map_or(Why::TimedOut, Why::Unmatched)
    }

    /// Why a deadline has ended a receive.
    pub(crate) fn recv_timed_out(&self) -> RecvError {
        self.unmatched().map_or(RecvError::TimedOut, RecvError::Unmatched)
    }

    /// Whether no receive can ever succeed again.
    pub(crate) fn is_drained(&self) -> bool {
        self.is_asked_for();
        let g = self.lock();
        let something =
            if g.has(QUEUED) { g.queue.as_ref().is_some_and(|q| q.has_something()) } else { g.value.is_some() };
        let awaited = g.queue.as_ref().is_some_and(|q| q.awaits_values());
        g.has(POISONED)
            || g.has_any(NO_SENDER | RETIRED) && !awaited && (!something || g.has(RETIRED) && self.len_of(&g) == 0)
    }

    fn len_of(&self, g: &Guard<'_, Inner<T>>) -> usize {
        g.queue.as_ref().map_or(0, |q| q.len())
    }

    /// How many values are buffered.
    pub(crate) fn len(&self) -> usize {
        self.is_asked_for();
        self.len_of(&self.lock())
    }

    /// Marks the receiver as used: a task may repeatedly query its state and do nothing else.
    fn is_asked_for(&self) {
        let mut after: After<T> = After::new();
        let mut g = self.lock();
        if let Some(queue) = &mut g.queue {
            queue.begin_use(&mut after.wakes);
            publish(&mut g);
        }
    }

    /// Waits until the other end of `side` is dropped, or the channel is retired or poisoned.
    pub(crate) fn poll_closed(&self, handle: Handle, sending: bool, cx: &mut Context<'_>) -> Poll<()> {
        let mut after = After::new();
        let mut g = self.lock();
        let gone = if sending { NO_RECEIVER } else { NO_SENDER };
        let side = if sending { &self.record.sender } else { &self.record.receiver };
        if g.has_any(gone | RETIRED | POISONED) {
            drop(g);
            side.end();
            return Poll::Ready(());
        }
        // The one slot is for sends and receives; the queue has room for other waits.
        queue(&mut g).wait_for_end(handle, sending, cx.waker(), &mut after);
        publish(&mut g);
        side.begin(Doing::Closed);
        Poll::Pending
    }

    // ---- sharing

    /// Gives the channel a queue, so that an end can have several handles.
    pub(crate) fn make_shared(&self) {
        #[cfg(feature = "link")]
        let mut after = After::new();
        let mut g = self.lock();
        #[cfg(feature = "link")]
        queue(&mut g).keep_agent(&mut after);
        #[cfg(not(feature = "link"))]
        queue(&mut g);
        publish(&mut g);
    }

    /// Records that a claim of the sending (or else the receiving) end goes out or comes back.
    pub(crate) fn claimed(&self, sending: bool, out: bool, claimer: Handle) {
        let mut after = After::new();
        let mut g = self.lock();
        let ends = ends(&g);
        let queue = queue(&mut g);
        if sending {
            queue.claim_sender(out, claimer, &mut after);
            if !out {
                queue.rouse(&mut after);
            }
        } else {
            #[cfg(feature = "link")]
            queue.keep_agent(&mut after);
            queue.receiver_claimed = out;
            queue.receiver_claimer = claimer;
            if !out {
                queue.end_receiver_claim(ends, &mut after);
            }
        }
        publish(&mut g);
    }

    /// Sets the policy of a channel that was made without one. `false`: it has a policy, or an agent.
    pub(crate) fn set_policy(&self, policy: &Policy) -> bool {
        let mut after = After::new();
        let mut g = self.lock();
        let set = queue(&mut g).set_policy(policy, &mut after);
        if set {
            g.set(immunity_of(policy));
        }
        publish(&mut g);
        set
    }

    /// The policy, for another channel with the same one. `None`: it is a user's own.
    #[cfg(feature = "serde")]
    pub(crate) fn policy(&self) -> Option<Policy> {
        let g = self.lock();
        let (kind, senders, receivers) = match &g.queue {
            Some(queue) => (queue.kind, queue.senders_bound, queue.receivers_bound),
            None => (super::policy::Kind::Rendezvous, None, None),
        };
        let immunity = Strength::from((g.tag >> IMMUNITY_SHIFT) as u8);
        let mut policy = kind.policy()?;
        (policy.senders, policy.receivers, policy.immunity) = (senders, receivers, immunity);
        Some(policy)
    }

    /// Whether the sending, or else the receiving, end has been dropped.
    pub(crate) fn is_left(&self, sending: bool) -> bool {
        self.lock().has(if sending { NO_SENDER } else { NO_RECEIVER })
    }

    // ---- agents

    /// Notifies the carrier that waits for the other end, if any, that an end here is about to leave in a
    /// message.
    #[cfg(feature = "serde")]
    pub(crate) fn leaves(&self) {
        #[cfg(feature = "link")]
        self.unlink();
        let missing = self.lock().queue.as_ref().and_then(|queue| queue.unmatched.clone());
        if let Some(missing) = missing {
            missing.leaves();
        }
    }

    /// Whether an agent stands by, in the receiver's or else the sender's place. It is woken when it takes
    /// over. The contents of the slots stay there.
    #[cfg(feature = "link")]
    pub(crate) fn agent_stands_by(&self, is_receivers: bool, waker: &Waker) -> bool {
        let mut g = self.state.lock();
        let stale = g.queue.as_mut().and_then(|queue| queue.stands_by(is_receivers, waker));
        drop(g);
        stale.is_some()
    }

    /// Makes an agent that stands by take over.
    #[cfg(feature = "link")]
    pub(crate) fn unlink(&self) {
        let mut after = After::new();
        let mut g = self.lock();
        if let Some(queue) = &mut g.queue {
            queue.unlink(&mut after);
            publish(&mut g);
        }
    }

    /// Whether the other half is elsewhere, for the sender's or else the receiver's end here.
    #[cfg(feature = "serde")]
    pub(crate) fn is_stretched(&self, sending: bool) -> bool {
        let g = self.lock();
        g.queue.as_ref().is_some_and(|queue| if sending { queue.outlet.is_some() } else { queue.inlet.is_some() })
    }

    /// Whether an offer exists that only a receive can take, or the channel has ended.
    #[cfg(feature = "serde")]
    pub(crate) fn is_busy(&self) -> bool {
        let g = self.lock();
        let offered = match &g.queue {
            Some(queue) => queue.has_offers(),
            None => g.has(OFFER),
        };
        offered || g.has_any(RETIRED | POISONED)
    }

    /// Puts an agent into the place of an end, with `install`, and sends it the events so far.
    pub(crate) fn add_agent<R>(&self, install: impl FnOnce(&mut Queue<T>, &mut After<T>) -> R) -> R {
        let mut after: After<T> = After::new();
        let mut g = self.lock();
        let ended = g.tag & (NO_SENDER | NO_RECEIVER | RETIRED | POISONED);
        let queue = queue(&mut g);
        let result = install(queue, &mut after);
        queue.offer_all(&mut after.wakes);
        tell_ends(queue, ended, &mut after.wakes);
        publish(&mut g);
        result
    }

    /// Calls `f` on the queue, under the lock. For agents, whose channels always have a queue.
    pub(crate) fn with_queue<R>(&self, f: impl FnOnce(&mut Queue<T>, Ends, &mut After<T>) -> R) -> R {
        let (mut f, mut result) = (Some(f), None);
        self.call_with_queue(&mut |queue, ends, after| result = f.take().map(|f| f(queue, ends, after)));
        result.expect("it was called")
    }

    /// [`with_queue`](Self::with_queue), compiled once for each type of message, and not for each caller.
    fn call_with_queue(&self, f: &mut UseOfQueue<'_, T>) {
        let mut after = After::new();
        let mut g = self.lock();
        let ends = ends(&g);
        let queue = queue(&mut g);
        f(queue, ends, &mut after);
        // After the sender is dropped, only agents settle its remaining offers.
        queue.sender_leaves(false, &mut after.wakes);
        publish(&mut g);
        drop(g);
        after.done();
    }
}
