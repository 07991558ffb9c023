//! The agent in the place of a receiver, for values without their type.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::ticket::Ticket;
use super::{Event, FarChan, Given, Missing, Names, PassedOn, Reserved, name_of};
use crate::channel::erased::Erased;
use crate::channel::queue::events::{Carried, Collected, FromSender};
use crate::choice::decision::Reserver;
use crate::error::{MessageId, Reason, Why};
use crate::lock::Lock;
use crate::waits::ChannelId;

/// An [`Outlet`](super::Outlet) for values of any type, which it takes and gives without their type. Its
/// methods without values are those of the outlet.
pub struct RawOutlet {
    chan: Arc<dyn FarChan>,
    /// Buffered values, in order, that have not been reported or were given back: they go before everything
    /// else.
    buffered: Lock<VecDeque<(u64, Erased)>>,
}

/// The first ticket of buffered values; only the outlet knows these tickets.
const BUFFERED_TICKETS: u64 = 1 << 63;

impl RawOutlet {
    pub(crate) fn new(chan: Arc<dyn FarChan>) -> Self {
        let buffered = chan.any().add_agent(|queue, after| {
            #[cfg(feature = "link")]
            queue.unlink(after);
            queue.replace_receiver(after)
        });
        let buffered = Lock::new((BUFFERED_TICKETS..).zip(buffered).collect());
        Self { chan, buffered }
    }

    /// Takes the buffered values that have not been reported. A carrier that moves the channel itself takes
    /// them along, and drops this agent.
    pub(crate) fn take_buffered(&self) -> Vec<Erased> {
        let buffered = self.chan.any().with_queue(|_, _, _| std::mem::take(&mut *self.buffered.lock()));
        buffered.into_iter().map(|(_, value)| value).collect()
    }

    /// How many values have completed their sends and have yet to be [reported](Self::poll).
    pub fn unsaid(&self) -> usize {
        self.chan.any().with_queue(|queue, _, _| queue.unsaid() + self.buffered.lock().len())
    }

    /// The channel at whose half this agent stands, as in the wait records.
    pub fn channel(&self) -> ChannelId {
        self.chan.any().record.id()
    }

    #[cfg(feature = "link")]
    pub(crate) fn chan(&self) -> &Arc<dyn FarChan> {
        &self.chan
    }

    /// Whether a buffered value has not been reported.
    #[cfg(feature = "link")]
    pub(crate) fn has_buffered(&self) -> bool {
        !self.buffered.lock().is_empty()
    }

    /// The next event of the sender's half.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Event<Erased>> {
        self.chan.any().with_queue(|queue, _, after| {
            match queue.carry(&mut self.buffered.lock(), cx.waker(), after) {
                Carried::Sent(value) => return Poll::Ready(Event::Sent(value)),
                Carried::Offered(ticket, value) => return Poll::Ready(Event::FirmOffer(ticket, value)),
                Carried::Waits => return Poll::Pending,
                Carried::Nothing => {}
            }
            loop {
                let Some(outlet) = &mut queue.outlet else { return Poll::Pending };
                let Some(event) = outlet.events.pop_front() else {
                    after.stale.store(&mut outlet.waker, cx.waker());
                    return Poll::Pending;
                };
                return Poll::Ready(match event {
                    FromSender::Sent(value) => Event::Sent(value),
                    FromSender::Offered(ticket) => match queue.collect(ticket, after) {
                        Collected::Firm(value) => Event::FirmOffer(ticket, value),
                        Collected::Choice(choice) => Event::ChoiceOffer(ticket, choice),
                        // Withdrawn before this poll saw it.
                        Collected::Gone => continue,
                    },
                    FromSender::AskedBack(ticket) => Event::AskedBack(ticket),
                    FromSender::Unlocked(ticket) => Event::Unlocked(ticket),
                    FromSender::Revoke(ticket) => Event::Revoke(ticket),
                    FromSender::Watched => Event::Watched,
                    FromSender::Retired => Event::Retired,
                    FromSender::Poisoned(reason) => Event::Poisoned(reason),
                    FromSender::Gone => Event::Gone,
                    FromSender::Lost => Event::Lost,
                });
            }
        })
    }

    /// Ready once [`Event::Gone`] or [`Event::Lost`] is among the events of the sender's half;
    /// [`poll`](Self::poll) still returns them all. Until then each new event wakes the task.
    pub fn poll_gone(&self, cx: &Context<'_>) -> Poll<()> {
        self.chan.any().with_queue(|queue, _, after| {
            let Some(outlet) = &mut queue.outlet else { return Poll::Pending };
            if outlet.events.iter().any(|event| matches!(event, FromSender::Gone | FromSender::Lost)) {
                return Poll::Ready(());
            }
            after.stale.store(&mut outlet.waker, cx.waker());
            Poll::Pending
        })
    }

    /// Ready if the sender's half has an [event](Self::poll). Otherwise the next event wakes the task.
    pub fn poll_stirs(&self, cx: &Context<'_>) -> Poll<()> {
        self.chan.any().with_queue(|queue, _, after| {
            let Some(outlet) = &mut queue.outlet else { return Poll::Pending };
            if !outlet.events.is_empty() || !self.buffered.lock().is_empty() {
                return Poll::Ready(());
            }
            after.stale.store(&mut outlet.waker, cx.waker());
            Poll::Pending
        })
    }

    /// Gives the sender `places` more places in the buffer elsewhere: that many sends complete without a
    /// round trip. After the first credit, sends wait here for a place and are not offered, so the first call
    /// belongs before the first [`poll`](Self::poll). 0 changes nothing.
    pub fn credit(&self, places: u32) {
        self.chan.any().with_queue(|queue, _, after| queue.credit(places, after));
    }

    /// Promises an offer of a choice to a receiver elsewhere. After [`Reserved::Granted`] no other branch of
    /// that choice can happen until [`taken`](Self::taken), [`give_back`](Self::give_back) or
    /// [`failed`](Self::failed).
    pub(crate) fn reserve(&self, ticket: u64) -> Reserved<Erased> {
        self.reserve_given(ticket, false).of_values()
    }

    /// Like [`reserve`](Self::reserve), for a carrier that can read a value [where it was
    /// sent](RawInlet::offer_unread). A carrier always uses the same one of the two.
    pub(crate) fn reserve_unread(&self, ticket: u64) -> Reserved<Given<Erased>> {
        self.reserve_given(ticket, true)
    }

    fn reserve_given(&self, ticket: u64, reads: bool) -> Reserved<Given<Erased>> {
        let reserver: Arc<dyn Reserver> = Arc::new(Ticket { chan: self.chan.clone(), demanded_by: None, ticket });
        self.chan.any().with_queue(|queue, _, after| queue.reserve(ticket, reads, &reserver, after))
    }

    /// Identifies this offer among those of [its inlet](RawInlet::passes_on), if it came from elsewhere
    /// itself and has not been received here. Only its receive, wherever that is, permits the use of the ends
    /// in it.
    pub fn passed_on(&self, ticket: u64) -> Option<PassedOn> {
        let far = self.chan.any().with_queue(|queue, _, _| queue.far_source(ticket));
        name_of(self.chan.any(), far)
    }

    pub(super) fn names(&self) -> Names {
        let chan = Arc::downgrade(&self.chan);
        Arc::new(move |ticket| {
            let chan = chan.upgrade()?;
            let far = chan.any().with_queue(|queue, _, _| queue.far_source(ticket));
            name_of(chan.any(), far)
        })
    }

    /// Reports that a receive elsewhere has returned the value: the send is complete. After
    /// [`held`](Self::held): the extended receive has ended.
    pub fn taken(&self, ticket: u64) {
        self.chan.any().with_queue(|queue, _, after| queue.far_took(ticket, false, after));
    }

    /// Reports that an extended receive elsewhere has returned the value: the send cannot fail any more, and
    /// waits.
    pub fn held(&self, ticket: u64) {
        self.chan.any().with_queue(|queue, _, after| queue.far_took(ticket, true, after));
    }

    /// Returns a value that is not needed now; the offer stands as before.
    pub(crate) fn give_back(&self, ticket: u64, value: Given<Erased>) {
        if ticket >= BUFFERED_TICKETS {
            return self.chan.any().with_queue(|queue, _, after| {
                if let Some(value) = value.read() {
                    let mut buffered = self.buffered.lock();
                    let at = buffered.partition_point(|(other, _)| *other < ticket);
                    buffered.insert(at, (ticket, value));
                }
                queue.carry_again(&mut after.wakes);
            });
        }
        self.chan.any().with_queue(|queue, _, after| queue.far_gave_back(ticket, value, after));
    }

    /// Repeats [`Event::Retired`] or [`Event::Gone`], after an offer from before it was [given
    /// back](Self::give_back): the repeated event follows that offer.
    pub fn end_again(&self, retired: bool) {
        self.chan.any().with_queue(|queue, _, after| queue.end_again(retired, &mut after.wakes));
    }

    /// Reports that the offer failed elsewhere. No value: it is still here, or on its way back.
    pub(crate) fn failed(&self, ticket: u64, value: Option<Given<Erased>>, why: Why) {
        self.chan.any().with_queue(|queue, _, after| queue.far_failed(ticket, value, why, after));
    }

    /// Reports that the [withdrawn](Event::AskedBack) offer has not been taken. No value: the other half had
    /// none.
    pub(crate) fn withdrawn(&self, ticket: u64, value: Option<Given<Erased>>) {
        // Without a missing end this is only a look at the queue. The query to the carrier waits for no lock
        // that can be held here.
        let timed_out = self.chan.any().send_timed_out();
        self.chan.any().with_queue(|queue, _, after| queue.far_withdrew(ticket, value, timed_out, after));
    }

    /// Reports that the receiver's node is lost for good, and that it is unknown whether a receive there has
    /// returned this value. The send ends as [`SendError::Unknown`](crate::SendError::Unknown), and with it
    /// the choice, if the send was a branch of one.
    pub(crate) fn lost(&self, ticket: u64, value: Given<Erased>, id: MessageId) {
        self.chan.any().with_queue(|queue, _, after| queue.far_lost(ticket, value, id, after));
    }

    /// Reports that the receiver's node is lost for good. Values that wait here, and all that are sent from
    /// now on, were certainly not taken, and fail with [`Why::NodeLost`]. Offers whose values the carrier has
    /// must have ended as [`lost`](Self::lost) before; any others count as received, as in a drop.
    pub(crate) fn down(self) {
        self.lose();
    }

    /// Reports that the sender's own node is leaving: [`down`](Self::down) follows, and operations fail with
    /// [`Why::OwnNodeLeft`].
    pub fn own_node_leaves(&self) {
        self.chan.any().with_queue(|queue, _, _| queue.own_node_leaves());
    }

    /// Reports that the other end is not connected yet. Until this is `None` again, an operation whose
    /// deadline passes fails with [`Why::Unmatched`] and the [text](Missing::text) of `missing`.
    pub fn unmatched(&self, missing: Option<Arc<dyn Missing>>) {
        self.chan.any().set_unmatched(missing);
    }

    pub(super) fn lose(&self) {
        self.chan.any().with_queue(|queue, ends, _| queue.lose_receiver(ends));
    }

    /// Retires the channel, which was retired elsewhere. [`Event::Retired`] answers, behind all that was sent
    /// and offered before.
    pub fn retire(&self) {
        self.chan.any().with_queue(|queue, _, _| queue.end_credits());
        self.chan.any().retire();
    }

    /// Reports that the receiver there was dropped and receives nothing more. The answer is that of
    /// [`retire`](Self::retire).
    pub fn gone(&self) {
        self.retire();
    }

    /// Poisons the channel, which was poisoned elsewhere.
    pub fn poison(&self, reason: Reason) {
        self.chan.any().poison_surely(reason);
    }
}

impl Drop for RawOutlet {
    fn drop(&mut self) {
        self.chan.any().with_queue(|queue, _, after| queue.agent_gone(after));
        self.chan.any().receiver_gone();
    }
}
