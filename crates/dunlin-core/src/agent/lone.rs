//! Agents for single handles of a shared end.

#[cfg(feature = "serde")]
use std::any::Any;
use std::sync::Arc;
use std::task::{Context, Poll};

use dunlin_sorted::SortedSet;

use super::ticket::Ticket;
use super::{Event, FarChan, Given, Names, PassedOn, Reserved, name_of};
use crate::channel::erased::Erased;
use crate::channel::queue::demand::Demanded;
use crate::choice::decision::{self, Reserver};
use crate::error::{MessageId, Reason, Why};
use crate::handle::Handle;
use crate::line::Line;
use crate::lock::Lock;
use crate::share::{End, Shared};
use crate::waits::ChannelId;
#[cfg(feature = "serde")]
use crate::waits::Recorded;

/// The handle that an agent stands in for.
pub(crate) struct Lone {
    pub(super) handle: Handle,
    /// The handle's own identity, by which a carrier distinguishes this agent from that of the end.
    pub(super) id: ChannelId,
    line: Arc<Line>,
    /// Its operations that wait here. The line reports them to a claimer that does not use the end.
    waiting: Lock<SortedSet<u64>>,
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
            waiting: Lock::new(SortedSet::new()),
            _keeps: keeps,
            #[cfg(feature = "serde")]
            lent: Lock::new(None),
        }
    }

    /// Stands beside the end itself. Its holder lends the end and does not use it meanwhile, so no operation
    /// has to be held back. `lent` is dropped after the agent, or once the agent can do nothing more.
    #[cfg(feature = "serde")]
    pub(crate) fn beside(chan: Arc<dyn FarChan>, lent: Arc<dyn Any + Send + Sync>) -> Self {
        let record = Recorded::handle(chan.any().record.id(), chan.any().record.made());
        let (handle, id) = (Handle::clone_number(record.index()), record.id());
        let beside = Beside { chan, handle, _record: record };
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
struct Beside {
    chan: Arc<dyn FarChan>,
    handle: Handle,
    _record: Recorded,
}

#[cfg(feature = "serde")]
impl Drop for Beside {
    fn drop(&mut self) {
        self.chan.any().handle_gone(self.handle);
    }
}

impl Drop for Lone {
    fn drop(&mut self) {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        waiting.iter().for_each(|_| self.line.lone_ended_by(self.handle));
    }
}

/// A [`LoneOutlet`](super::LoneOutlet) for values of any type, which it gives without their type. Its methods
/// without values are those of that agent.
pub struct RawLoneOutlet {
    chan: Arc<dyn FarChan>,
    lone: Lone,
    /// The choice of all its offers.
    choice: u128,
    /// No further offer goes to the half elsewhere.
    leaving: Lock<bool>,
}

impl RawLoneOutlet {
    pub(crate) fn of(chan: Arc<dyn FarChan>, lone: Lone) -> Self {
        chan.any().add_agent(|queue, after| queue.add_demands(lone.handle, after));
        Self { chan, lone, choice: decision::next_id(), leaving: Lock::new(false) }
    }

    /// The handle, as in the wait records.
    pub fn channel(&self) -> ChannelId {
        self.lone.id
    }

    /// The next event for the half elsewhere.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Event<Erased>> {
        let (handle, leaving) = (self.lone.handle, *self.leaving.lock());
        let demanded = self
            .chan
            .any()
            .with_queue(|queue, ends, after| queue.poll_demands(handle, leaving, ends, cx.waker(), after));
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
    pub(crate) fn reserve(&self, number: u64) -> Reserved<Erased> {
        self.demand(number, false).of_values()
    }

    /// Like [`reserve`](Self::reserve), for a carrier that can read a value [where it was
    /// sent](super::RawInlet::offer_unread).
    pub(crate) fn reserve_unread(&self, number: u64) -> Reserved<Given<Erased>> {
        self.demand(number, true)
    }

    fn demand(&self, number: u64, reads: bool) -> Reserved<Given<Erased>> {
        let handle = self.lone.handle;
        let found = self.chan.any().with_queue(|queue, ends, after| {
            let reserver = |ticket| -> Arc<dyn Reserver> {
                Arc::new(Ticket { chan: self.chan.clone(), demanded_by: Some(handle), ticket })
            };
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

    /// Like [`Outlet::passed_on`](super::RawOutlet::passed_on).
    pub fn passed_on(&self, number: u64) -> Option<PassedOn> {
        let far = self.chan.any().with_queue(|queue, _, _| queue.demanded_far_source(self.lone.handle, number));
        name_of(self.chan.any(), far)
    }

    pub(super) fn names(&self) -> Names {
        let (chan, handle) = (Arc::downgrade(&self.chan), self.lone.handle);
        Arc::new(move |number| {
            let chan = chan.upgrade()?;
            let far = chan.any().with_queue(|queue, _, _| queue.demanded_far_source(handle, number));
            name_of(chan.any(), far)
        })
    }

    /// Reports that the receive has returned the value.
    pub fn taken(&self, number: u64) {
        self.chan.any().with_queue(|queue, _, after| queue.demand_met(self.lone.handle, number, false, after));
    }

    /// Reports that an extended receive has returned the value.
    pub fn held(&self, number: u64) {
        self.chan.any().with_queue(|queue, _, after| queue.demand_met(self.lone.handle, number, true, after));
    }

    /// Returns a value that is not needed there any more: other receives may take it.
    pub(crate) fn give_back(&self, number: u64, value: Given<Erased>) {
        self.back(number, Some(value), false, None);
    }

    /// Reports that the receive failed. If the half there is the cause, other receives may take the value; if
    /// the value is the cause, its send has failed.
    pub(crate) fn failed(&self, number: u64, value: Option<Given<Erased>>, why: Why) {
        let of_value = matches!(why, Why::Unsendable(_) | Why::TooLarge { .. } | Why::OwnChannel);
        self.back(number, value, true, of_value.then_some(why));
    }

    /// Reports that the [withdrawn](Event::AskedBack) offer has not been taken.
    pub(crate) fn withdrawn(&self, number: u64, value: Option<Given<Erased>>) {
        self.back(number, value, true, None);
    }

    fn back(&self, number: u64, value: Option<Given<Erased>>, closed: bool, why: Option<Why>) {
        self.lone.ended(number);
        self.chan.any().with_queue(|queue, _, after| {
            queue.demand_back(self.lone.handle, number, value, closed, why, after);
        });
    }

    /// Reports that the node is lost, and that it is unknown whether a receive there has returned the value.
    pub(crate) fn lost(&self, number: u64, value: Given<Erased>, id: MessageId) {
        self.chan.any().with_queue(|queue, _, after| queue.demand_lost(self.lone.handle, number, value, id, after));
    }

    /// Does nothing: the receiver itself is at this half, and has handles here.
    pub(super) fn lose(&self) {}

    /// Retires the whole channel, because a process there that had claimed the end retired it. No further
    /// offer goes to that half.
    pub fn retire(&self) {
        self.chan.any().retire();
        self.gone();
    }

    /// Reports that the handles there were dropped; the others continue. [`Event::Gone`] answers once all
    /// given values are settled.
    pub fn gone(&self) {
        *self.leaving.lock() = true;
        self.chan.any().with_queue(|queue, _, after| queue.wake_demands(&mut after.wakes));
    }

    /// Poisons the channel, which was poisoned there.
    pub fn poison(&self, reason: Reason) {
        self.chan.any().poison(reason);
    }
}

impl Drop for RawLoneOutlet {
    fn drop(&mut self) {
        self.chan.any().with_queue(|queue, _, after| queue.remove_demands(self.lone.handle, after));
    }
}
