//! Agents for single handles of a shared end.

#[cfg(feature = "serde")]
use std::any::Any;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::{Event, Given, Names, PassedOn, Reserved, name_of};
use crate::channel::queue::demand::Demanded;
use crate::channel::queue::events::FromSender;
use crate::channel::receiver::Receiver;
use crate::channel::state::Chan;
use crate::choice::decision::{self, Reserver};
use crate::error::{MessageId, Reason, Why};
use crate::handle::Handle;
use crate::line::Line;
use crate::lock::Lock;
use crate::share::{End, Shared};
use crate::waits::ChannelId;
#[cfg(feature = "serde")]
use crate::waits::Recorded;
use crate::wake::Queued;

/// The handle that an agent stands in for.
pub(crate) struct Lone {
    pub(super) handle: Handle,
    /// The handle's own identity, by which a carrier distinguishes this agent from that of the end.
    pub(super) id: ChannelId,
    line: Arc<Line>,
    /// Its operations that wait here. The line reports them to a claimer that does not use the end.
    waiting: Lock<BTreeSet<u64>>,
    /// The handle itself, which keeps the end.
    _keeps: Box<dyn Send>,
    /// For a lent end: the end is not returned until this is dropped.
    #[cfg(feature = "serde")]
    lent: Lock<Option<Arc<dyn Any + Send + Sync>>>,
}

impl Lone {
    /// Takes the place of this handle, and returns the link of its end as well.
    pub(crate) fn of<E>(shared: Shared<E>) -> (E::Link, Self)
    where
        E: End + Send + 'static,
        E::Link: Send + Sync,
    {
        let (link, handle, id, line) = shared.stand_in();
        (link, Self::new(handle, id, line, Box::new(shared)))
    }

    fn new(handle: Handle, id: ChannelId, line: Arc<Line>, keeps: Box<dyn Send>) -> Self {
        Self {
            handle,
            id,
            line,
            waiting: Lock::new(BTreeSet::new()),
            _keeps: keeps,
            #[cfg(feature = "serde")]
            lent: Lock::new(None),
        }
    }

    /// Stands beside the end itself. Its holder lends the end and does not use it meanwhile, so no operation
    /// has to be held back. `lent` is dropped after the agent, or once the agent can do nothing more.
    #[cfg(feature = "serde")]
    pub(crate) fn beside<T: Send + 'static>(chan: &Arc<Chan<T>>, lent: Arc<dyn Any + Send + Sync>) -> Self {
        let record = Recorded::handle(chan.record.id(), chan.record.made());
        let (handle, id) = (Handle::clone_number(record.index()), record.id());
        let beside = Beside { chan: chan.clone(), handle, _record: record };
        let lone = Self::new(handle, id, Arc::default(), Box::new(beside));
        *lone.lent.lock() = Some(lent);
        lone
    }

    /// Drops `lent`, because the channel has ended; the agent may live as long as the channel.
    pub(super) fn is_over(&self) {
        #[cfg(feature = "serde")]
        {
            // Dropped without a lock: it may be the last part of the end.
            let lent = self.lent.lock().take();
            drop(lent);
        }
    }

    pub(super) fn began(&self, number: u64) {
        if self.waiting.lock().insert(number) {
            self.line.lone_began_by(self.handle);
        }
    }

    pub(super) fn ended(&self, number: u64) {
        let waited = self.waiting.lock().remove(&number);
        if waited {
            self.line.lone_ended_by(self.handle);
        }
    }
}

/// Takes the place of the handle of a lent end.
#[cfg(feature = "serde")]
struct Beside<T> {
    chan: Arc<Chan<T>>,
    handle: Handle,
    _record: Recorded,
}

#[cfg(feature = "serde")]
impl<T> Drop for Beside<T> {
    fn drop(&mut self) {
        self.chan.handle_gone(self.handle);
    }
}

impl Drop for Lone {
    fn drop(&mut self) {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        waiting.iter().for_each(|_| self.line.lone_ended_by(self.handle));
    }
}

/// Stands in for one handle of a shared receiver, where the channel's queue is. To the half elsewhere it is a
/// sender that always offers branches of a choice: a receive there reserves one, which is its demand, and
/// gets the channel's next value. [`Outlet`](super::Outlet) explains the calls.
///
/// Dropping it drops that handle; the other handles continue.
pub struct LoneOutlet<T: Send + 'static> {
    chan: Arc<Chan<T>>,
    lone: Lone,
    /// The choice of all its offers.
    choice: u128,
    /// No further offer goes to the half elsewhere.
    leaving: Lock<bool>,
}

/// The path from an offer's choice to the agent that has reserved the offer.
struct Ticket<T> {
    chan: Arc<Chan<T>>,
    handle: Handle,
    ticket: u64,
}

impl<T> Ticket<T> {
    fn tell(&self, event: FromSender<T>) {
        self.chan.with_queue(|queue, _, after| queue.tell_demands(self.handle, event, after));
    }
}

impl<T: Send> Queued for Ticket<T> {
    fn unlocked(self: Arc<Self>) {
        self.tell(FromSender::Unlocked(self.ticket));
    }
}

impl<T: Send> Reserver for Ticket<T> {
    fn revoke(self: Arc<Self>) {
        self.tell(FromSender::Revoke(self.ticket));
    }
}

impl<T: Send + 'static> LoneOutlet<T> {
    /// Takes the place of a handle.
    pub fn new<P: 'static>(handle: Shared<Receiver<T, P>>) -> Self {
        let (chan, lone) = Lone::of(handle);
        Self::of(chan, lone)
    }

    pub(crate) fn of(chan: Arc<Chan<T>>, lone: Lone) -> Self {
        chan.add_agent(|queue, after| queue.add_demands(lone.handle, after));
        Self { chan, lone, choice: decision::next_id(), leaving: Lock::new(false) }
    }

    /// The handle, as in the wait records.
    pub fn channel(&self) -> ChannelId {
        self.lone.id
    }

    /// The next event for the half elsewhere.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Event<T>> {
        let (handle, leaving) = (self.lone.handle, *self.leaving.lock());
        let demanded =
            self.chan.with_queue(|queue, ends, after| queue.poll_demands(handle, leaving, ends, cx.waker(), after));
        match demanded {
            None => Poll::Pending,
            Some(demanded) => Poll::Ready(match demanded {
                Demanded::Poisoned(reason) => {
                    self.lone.is_over();
                    Event::Poisoned(reason)
                }
                Demanded::Post(number) => Event::ChoiceOffer(number, self.choice),
                Demanded::Try(number) => Event::Unlocked(number),
                Demanded::AskedBack(number) => Event::AskedBack(number),
                Demanded::Revoke(number) => Event::Revoke(number),
                Demanded::Gone => Event::Gone,
                Demanded::Lost => Event::Lost,
            }),
        }
    }

    /// Does nothing: no value leaves here without a request.
    pub fn credit(&self, _: u32) {}

    /// Reserves a value for a receive elsewhere.
    pub fn reserve(&self, number: u64) -> Reserved<T> {
        self.demand(number, false).of_values()
    }

    /// Like [`reserve`](Self::reserve), for a carrier that can read a value [where it was
    /// sent](super::Inlet::offer_unread).
    pub fn reserve_unread(&self, number: u64) -> Reserved<Given<T>> {
        self.demand(number, true)
    }

    fn demand(&self, number: u64, reads: bool) -> Reserved<Given<T>> {
        let handle = self.lone.handle;
        let found = self.chan.with_queue(|queue, ends, after| {
            let reserver =
                |ticket| -> Arc<dyn Reserver> { Arc::new(Ticket { chan: self.chan.clone(), handle, ticket }) };
            queue.demand(handle, number, reads, ends, reserver, after)
        });
        match found {
            Some(value) => {
                self.lone.ended(number);
                Reserved::Granted(value)
            }
            None => {
                self.lone.began(number);
                Reserved::Later
            }
        }
    }

    /// Like [`Outlet::passed_on`](super::Outlet::passed_on).
    pub fn passed_on(&self, number: u64) -> Option<PassedOn> {
        let far = self.chan.with_queue(|queue, _, _| queue.demanded_far_source(self.lone.handle, number));
        name_of(&self.chan, far)
    }

    pub(super) fn names(&self) -> Names {
        let (chan, handle) = (Arc::downgrade(&self.chan), self.lone.handle);
        Arc::new(move |number| {
            let chan = chan.upgrade()?;
            let far = chan.with_queue(|queue, _, _| queue.demanded_far_source(handle, number));
            name_of(&chan, far)
        })
    }

    /// Reports that the receive has returned the value.
    pub fn taken(&self, number: u64) {
        self.chan.with_queue(|queue, _, after| queue.demand_met(self.lone.handle, number, false, after));
    }

    /// Reports that an extended receive has returned the value.
    pub fn held(&self, number: u64) {
        self.chan.with_queue(|queue, _, after| queue.demand_met(self.lone.handle, number, true, after));
    }

    /// Returns a value that is not needed there any more: other receives may take it.
    pub fn give_back(&self, number: u64, value: impl Into<Given<T>>) {
        self.back(number, Some(value.into()), false, None);
    }

    /// Reports that the receive failed. If the half there is the cause, other receives may take the value; if
    /// the value is the cause, its send has failed.
    pub fn failed(&self, number: u64, value: Option<Given<T>>, why: Why) {
        let of_value = matches!(why, Why::Unsendable(_) | Why::TooLarge { .. } | Why::OwnChannel);
        self.back(number, value, true, of_value.then_some(why));
    }

    /// Reports that the [withdrawn](Event::AskedBack) offer has not been taken.
    pub fn withdrawn(&self, number: u64, value: Option<Given<T>>) {
        self.back(number, value, true, None);
    }

    fn back(&self, number: u64, value: Option<Given<T>>, closed: bool, why: Option<Why>) {
        self.lone.ended(number);
        self.chan.with_queue(|queue, _, after| {
            queue.demand_back(self.lone.handle, number, value, closed, why, after);
        });
    }

    /// Reports that the node is lost, and that it is unknown whether a receive there has returned the value.
    pub fn lost(&self, number: u64, value: impl Into<Given<T>>, id: MessageId) {
        let value = value.into();
        self.chan.with_queue(|queue, _, after| queue.demand_lost(self.lone.handle, number, value, id, after));
    }

    /// Does nothing: the receiver itself is at this half, and has handles here.
    pub(super) fn lose(&self) {}

    /// Retires the whole channel, because a process there that had claimed the end retired it. No further
    /// offer goes to that half.
    pub fn retire(&self) {
        self.chan.retire();
        self.gone();
    }

    /// Reports that the handles there were dropped; the others continue. [`Event::Gone`] answers once all
    /// given values are settled.
    pub fn gone(&self) {
        *self.leaving.lock() = true;
        self.chan.with_queue(|queue, _, after| queue.wake_demands(&mut after.wakes));
    }

    /// Poisons the channel, which was poisoned there.
    pub fn poison(&self, reason: Reason) {
        self.chan.poison(reason);
    }
}

impl<T: Send + 'static> Drop for LoneOutlet<T> {
    fn drop(&mut self) {
        self.chan.with_queue(|queue, _, after| queue.remove_demands(self.lone.handle, after));
    }
}

impl<T: Send + 'static> fmt::Debug for LoneOutlet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LoneOutlet").field(&self.chan.record.id()).finish()
    }
}
