//! Agents of single handles of an end that several share.

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
    /// The handle's own, by which a carrier tells this agent from that of the end.
    pub(super) id: ChannelId,
    line: Arc<Line>,
    /// Its operations that wait here: whoever has claimed the end and does not use it hears of them.
    waiting: Lock<BTreeSet<u64>>,
    /// The handle itself, which keeps the end.
    _keeps: Box<dyn Send>,
    /// Of an end that is lent: what that is not back without.
    #[cfg(feature = "serde")]
    lent: Lock<Option<Arc<dyn Any + Send + Sync>>>,
}

impl Lone {
    /// In the place of this handle: with what that has of its end.
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

    /// Beside the end itself, whose holder lends it and does nothing with it meanwhile: so nobody has to be
    /// held back. `lent` is dropped with the agent, behind it; or when nothing can be done by the agent any
    /// more.
    #[cfg(feature = "serde")]
    pub(crate) fn beside<T: Send + 'static>(chan: &Arc<Chan<T>>, lent: Arc<dyn Any + Send + Sync>) -> Self {
        let record = Recorded::handle(chan.record.id(), chan.record.made());
        let (handle, id) = (Handle::clone_number(record.index()), record.id());
        let beside = Beside { chan: chan.clone(), handle, _record: record };
        let lone = Self::new(handle, id, Arc::default(), Box::new(beside));
        *lone.lent.lock() = Some(lent);
        lone
    }

    /// The channel has ended. The agent may be there as long as the channel is.
    pub(super) fn is_over(&self) {
        #[cfg(feature = "serde")]
        {
            // Dropped where nothing is locked: it may be the last of the end's.
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

/// In the place of the handle of an end that is lent.
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
/// sender that always has offers of a choice: a receive there reserves one, which is its demand, and gets
/// what the channel has next. See [`Outlet`](super::Outlet) for what the calls mean.
///
/// Dropped, that handle is gone, and the others go on.
pub struct LoneOutlet<T: Send + 'static> {
    chan: Arc<Chan<T>>,
    lone: Lone,
    /// Of all that it offers.
    choice: u128,
    /// Nothing can be offered to the half elsewhere any more.
    leaving: Lock<bool>,
}

/// How the choice of an offer speaks to the agent that has reserved it.
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

    /// The next thing to be said to the half elsewhere.
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

    /// Nothing is sent from here without having been asked for: so this does nothing.
    pub fn credit(&self, _: u32) {}

    /// A receive elsewhere wants something.
    pub fn reserve(&self, number: u64) -> Reserved<T> {
        self.demand(number, false).of_values()
    }

    /// The same, of who can read a value [where it was sent](super::Inlet::offer_unread).
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

    /// As of an [`Outlet`](super::Outlet::passed_on).
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

    /// The receive has returned the value.
    pub fn taken(&self, number: u64) {
        self.chan.with_queue(|queue, _, after| queue.demand_met(self.lone.handle, number, false, after));
    }

    /// An extended receive has returned the value.
    pub fn held(&self, number: u64) {
        self.chan.with_queue(|queue, _, after| queue.demand_met(self.lone.handle, number, true, after));
    }

    /// The value is not wanted there any more: others may have it.
    pub fn give_back(&self, number: u64, value: impl Into<Given<T>>) {
        self.back(number, Some(value.into()), false, None);
    }

    /// The receive has failed. If that is because of the half there, others may have the value; if because of
    /// the value, its send has failed.
    pub fn failed(&self, number: u64, value: Option<Given<T>>, why: Why) {
        let of_value = matches!(why, Why::Unsendable(_) | Why::TooLarge { .. } | Why::OwnChannel);
        self.back(number, value, true, of_value.then_some(why));
    }

    /// What was [asked back](Event::AskedBack) has not been taken.
    pub fn withdrawn(&self, number: u64, value: Option<Given<T>>) {
        self.back(number, value, true, None);
    }

    fn back(&self, number: u64, value: Option<Given<T>>, closed: bool, why: Option<Why>) {
        self.lone.ended(number);
        self.chan.with_queue(|queue, _, after| {
            queue.demand_back(self.lone.handle, number, value, closed, why, after);
        });
    }

    /// The node is lost, and nobody knows whether a receive there has returned the value.
    pub fn lost(&self, number: u64, value: impl Into<Given<T>>, id: MessageId) {
        let value = value.into();
        self.chan.with_queue(|queue, _, after| queue.demand_lost(self.lone.handle, number, value, id, after));
    }

    /// Nothing: the receiver itself is at this half, and has handles here.
    pub(super) fn lose(&self) {}

    /// The channel was retired there, by who had claimed the end: it is for all. Nothing more can be offered
    /// to that half.
    pub fn retire(&self) {
        self.chan.retire();
        self.gone();
    }

    /// The handles there are gone; the others go on. When what was given has been settled, [`Event::Gone`]
    /// answers.
    pub fn gone(&self) {
        *self.leaving.lock() = true;
        self.chan.with_queue(|queue, _, after| queue.wake_demands(&mut after.wakes));
    }

    /// The channel was poisoned there.
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
