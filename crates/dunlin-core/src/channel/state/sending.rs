//! Sends: all but the two steps of a plain rendezvous.

use std::panic::Location;
use std::task::{Context, Poll, Waker};

#[cfg(feature = "link")]
use super::link;
use super::{
    AnyChan, AnyGuard, BEHIND, HELD, NO_RECEIVER, OFFER, Post, QUEUED, RETIRED, TURN, TURNS_MAX, WATCHED, WOKEN, ends,
    move_value, publish, queue, store,
};
use crate::budget;
use crate::channel::after::After;
use crate::channel::erased::AnySlot;
use crate::channel::queue::offer::{Offered, Retracted, Stand};
use crate::channel::queue::value::{Pool, Source};
use crate::choice::ChoiceCx;
use crate::error::{Failed, Why};
use crate::handle::Handle;
use crate::turn::Turn;
use crate::waits::{Doing, Recorded};

impl<'v> AnyChan<'v> {
    #[inline(never)]
    pub(super) fn poll_send_counted(
        &self,
        post: &mut Post,
        slot: &mut dyn AnySlot,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Failed>> {
        let again = post.is_out() || std::mem::replace(&mut post.refused, true);
        budget::counted(again, cx, |cx| self.poll_send_in_line(post, slot, cx))
    }

    /// Like [`poll_send`](Self::poll_send), for a part of an operation: the budget never refuses it.
    #[inline(never)]
    pub(crate) fn poll_send_slowly(
        &self,
        post: &mut Post,
        slot: &mut dyn AnySlot,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Failed>> {
        self.poll_send_in_line(post, slot, cx)
    }

    /// [`poll_send_slowly`](Self::poll_send_slowly), inlined into the most frequent sends.
    #[inline(always)]
    fn poll_send_in_line(
        &self,
        post: &mut Post,
        slot: &mut dyn AnySlot,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Failed>> {
        if post.ticket == BEHIND {
            post.ticket = 0;
        }
        let mut g = self.locked();
        if g.has(QUEUED) {
            #[cfg(feature = "link")]
            let g = match link::is_linked(&g) {
                false => g,
                true => match self.poll_send_over_link(g, post, slot, cx) {
                    Ok(sent) => return sent,
                    Err(g) => g,
                },
            };
            #[cfg(feature = "link")]
            let mut g = g;
            #[cfg(feature = "link")]
            link::empty_slot(&mut g);
            return self.poll_send_queued(g, post, &mut Source::Slot(slot), cx, None);
        }
        if post.ticket == 0 {
            if !slot.is_full() {
                return Poll::Ready(Ok(()));
            }
            if g.has_any(NO_RECEIVER | RETIRED) {
                return Poll::Ready(Err(Why::Closed.into()));
            }
            if !g.has(OFFER) {
                // Another thread held the lock when the short path looked.
                return self.offer_now(g, post, cx, |place| move_value(slot, place));
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
            move_value(g.value(), slot);
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
        slot: &mut dyn AnySlot,
        cx: &mut Context<'_>,
        choice: &ChoiceCx,
    ) -> Poll<Result<(), Failed>> {
        if post.ticket == BEHIND {
            post.ticket = 0;
        }
        self.poll_send_queued(self.lock(), post, &mut Source::Slot(slot), cx, Some(choice))
    }

    /// Sends the value of a pool, which several branches of one choice offer.
    pub(crate) fn poll_send_pooled(
        &self,
        post: &mut Post,
        pool: &Pool,
        cx: &mut Context<'_>,
        choice: &ChoiceCx,
    ) -> Poll<Result<(), Failed>> {
        self.poll_send_queued(self.lock(), post, &mut Source::Pool(pool), cx, Some(choice))
    }

    /// Withdraws the offer of a pool that was made for another choice.
    pub(crate) fn poll_retract(&self, post: &mut Post, pool: &Pool, cx: &Context<'_>) -> Poll<Retracted> {
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
    fn poll_send_queued<'g>(
        &'g self,
        g: AnyGuard<'g, 'v>,
        post: &mut Post,
        source: &mut Source<'_>,
        cx: &mut Context<'_>,
        choice: Option<&ChoiceCx>,
    ) -> Poll<Result<(), Failed>> {
        let mut after = After::new();
        let sent = self.poll_send_locked(g, post, source, cx, choice, &mut after);
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
    pub(crate) fn encode_for_link(&self, slot: &mut dyn AnySlot) -> Option<bytes::Bytes> {
        let encoding = self.lock().queue.as_ref().and_then(|queue| queue.encoding_for_link());
        encoding.and_then(|mut encoding| {
            encoding.encode(&Source::Slot(slot), Waker::noop());
            encoding.into_bytes()
        })
    }

    /// Encodes a value for a link without the lock, and then continues the send.
    #[cfg(feature = "link")]
    #[inline(never)]
    pub(super) fn encode_and_send(
        &self,
        mut sent: Poll<Result<(), Failed>>,
        post: &mut Post,
        source: &mut Source<'_>,
        cx: &mut Context<'_>,
        choice: Option<&ChoiceCx>,
        after: &mut After,
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
    pub(super) fn poll_send_again(
        &self,
        post: &mut Post,
        source: &mut Source<'_>,
        cx: &mut Context<'_>,
        choice: Option<&ChoiceCx>,
        after: &mut After,
    ) -> Poll<Result<(), Failed>> {
        self.poll_send_locked(self.lock(), post, source, cx, choice, after)
    }

    #[inline(always)]
    fn poll_send_locked<'g>(
        &'g self,
        mut g: AnyGuard<'g, 'v>,
        post: &mut Post,
        source: &mut Source<'_>,
        cx: &mut Context<'_>,
        choice: Option<&ChoiceCx>,
        after: &mut After,
    ) -> Poll<Result<(), Failed>> {
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
        if source.is_empty() {
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
    pub(crate) fn try_send(&self, handle: Handle, slot: &mut dyn AnySlot) -> Result<(), Why> {
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
    pub(crate) fn withdraw(&self, post: &mut Post, slot: &mut dyn AnySlot, for_good: bool) -> bool {
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
                move_value(g.value(), slot);
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

    /// Gives up a send that has an offer, and takes its value back, unless a receive has it.
    #[inline(never)]
    pub(crate) fn abandon_offer(&self, post: &mut Post, slot: &mut dyn AnySlot) {
        self.withdraw(post, slot, true);
        self.end_wait(post.handle, Doing::Send);
    }

    /// Puts the value of a dropped or forgotten send's offer back into an empty slot. Waits while an agent
    /// has it.
    pub(crate) fn poll_settle(
        &self,
        handle: Handle,
        slot: &mut dyn AnySlot,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Failed>> {
        let mut after = After::new();
        let mut g = self.lock();
        if g.has(QUEUED) {
            let queue = queue(&mut g);
            if let Some(id) = queue.settle_forgotten(handle, &mut Source::Slot(slot), &mut after) {
                publish(&mut g);
                return Poll::Ready(Err(Failed::Unknown(id)));
            }
            if !slot.is_full() && queue.ask_back_all(handle, &mut after) {
                queue.wait_for_end(handle, true, cx.waker(), &mut after);
                return Poll::Pending;
            }
            publish(&mut g);
        } else if !slot.is_full() && g.has(OFFER) && !g.has(HELD) {
            move_value(g.value(), slot);
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
    /// An error leaves the value in `slot`.
    pub(crate) fn post(&self, handle: Handle, slot: &mut dyn AnySlot) -> Result<Option<u64>, Failed> {
        let mut after = After::new();
        let mut g = self.lock();
        #[cfg(feature = "link")]
        {
            g = self.encode_now(g, slot, &mut after)?;
        }
        let ends = ends(&g);
        let queue = queue(&mut g);
        let offered = queue.offer(handle, &mut Source::Slot(slot), None, ends, Waker::noop(), &mut after);
        let ticket = match offered {
            Offered::Queued(ticket, _) => {
                queue.posted(ticket);
                Some(ticket)
            }
            Offered::Failed(why) => return Err(why.into()),
            Offered::Admitted | Offered::ChoiceGone => None,
        };
        publish(&mut g);
        Ok(ticket)
    }

    /// Encodes, without the lock, a value that this call sends over a link.
    #[cfg(feature = "link")]
    fn encode_now<'g>(
        &'g self,
        mut g: AnyGuard<'g, 'v>,
        slot: &mut dyn AnySlot,
        after: &mut After,
    ) -> Result<AnyGuard<'g, 'v>, Why> {
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
    pub(crate) fn poll_posted(&self, ticket: u64, slot: &mut dyn AnySlot, waker: &Waker) -> Poll<Result<(), Failed>> {
        let mut after = After::new();
        let mut g = self.lock();
        let ends = ends(&g);
        let stand = queue(&mut g).look(ticket, &mut Source::Slot(slot), ends, waker, &mut after);
        publish(&mut g);
        match stand {
            Stand::Pending => Poll::Pending,
            Stand::Failed(failed) => Poll::Ready(Err(failed)),
            Stand::Taken => Poll::Ready(Ok(())),
        }
    }

    pub(crate) fn is_posted_done(&self, ticket: u64) -> bool {
        let g = self.lock();
        let ends = ends(&g);
        g.queue.as_ref().is_none_or(|queue| queue.is_settled(ticket, ends))
    }

    /// Withdraws a post. An empty slot: it has been taken. `false`: an extended receive or an agent has it,
    /// and the answer will come.
    pub(crate) fn withdraw_posted(&self, ticket: u64, slot: &mut dyn AnySlot) -> bool {
        let mut after = After::new();
        let mut g = self.lock();
        let stand = queue(&mut g).withdraw(ticket, &mut Source::Slot(slot), false, &mut after);
        publish(&mut g);
        !matches!(stand, Stand::Pending)
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
}
