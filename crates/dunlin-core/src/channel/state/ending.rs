//! How a channel ends, and what is left in it.

use std::sync::Arc;
use std::task::{Context, Poll};

use super::{
    AnyChan, AnyGuard, HELD, IMMUNITY, IMMUNITY_SHIFT, NO_RECEIVER, NO_SENDER, OFFER, ONE_RECEIVER, ONE_SENDER,
    POISONED, QUEUED, RECEIVERS, RETIRED, SENDERS, WATCHED, ends, publish, queue, tell_ends,
};
use crate::channel::after::After;
use crate::channel::elsewhere::Missing;
use crate::channel::hub::{AnyHub, HubRef};
#[cfg(feature = "serde")]
use crate::channel::queue::Retires;
use crate::channel::queue::events::FromSender;
use crate::error::{Reason, RecvError, Strength, Why};
use crate::handle::Handle;
use crate::waits::Doing;
use crate::wake;

impl<'v> AnyChan<'v> {
    fn end(&self, g: AnyGuard<'_, 'v>, bits: u32) {
        let mut after = After::new();
        let hub = Self::end_here(g, bits, &mut after);
        if bits & (NO_RECEIVER | RETIRED) != 0
            && let Some(hub) = hub
        {
            return wake::both(|| drop(after), || hub.left(self.address(), bits & NO_RECEIVER != 0));
        }
        after.done();
    }

    /// Returns the broadcast that this channel belongs to.
    fn end_here(mut g: AnyGuard<'_, 'v>, bits: u32, after: &mut After) -> Option<Arc<dyn AnyHub>> {
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
            let hub = queue.hub();
            publish(&mut g);
            return hub;
        }
        None
    }

    /// Makes this channel the receiver's part of a broadcast.
    pub(super) fn join_hub(&self, hub: HubRef) {
        let mut after = After::new();
        let mut g = self.lock();
        let queue = queue(&mut g);
        queue.hub = Some(Box::new(hub));
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
            let mut after = After::new();
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
            wake::both(|| drop(after), || hub.poison(&reason, self.address()));
        }
    }

    /// Returns the broadcast that this channel belongs to, if it needs the poison.
    fn poison_here(&self, reason: Reason, after: &mut After) -> Option<Arc<dyn AnyHub>> {
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
            hub = queue.hub();
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
        let mut g = self.lock();
        let something =
            if g.has(QUEUED) { g.queue.as_ref().is_some_and(|q| q.has_something()) } else { g.value().is_full() };
        let awaited = g.queue.as_ref().is_some_and(|q| q.awaits_values());
        g.has(POISONED)
            || g.has_any(NO_SENDER | RETIRED) && !awaited && (!something || g.has(RETIRED) && self.len_of(&g) == 0)
    }

    fn len_of(&self, g: &AnyGuard<'_, 'v>) -> usize {
        g.queue.as_ref().map_or(0, |q| q.len())
    }

    /// How many values are buffered.
    pub(crate) fn len(&self) -> usize {
        self.is_asked_for();
        self.len_of(&self.lock())
    }

    /// Marks the receiver as used: a task may repeatedly query its state and do nothing else.
    fn is_asked_for(&self) {
        let mut after = After::new();
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
}
