//! Receives: all but the two steps of a plain rendezvous.

#[cfg(feature = "link")]
use std::task::Waker;
use std::task::{Context, Poll};

#[cfg(feature = "link")]
use super::link;
use super::{
    AnyChan, AnyGuard, HELD, NO_SENDER, OFFER, QUEUED, RETIRED, TURN, WATCHED, WOKEN, ends, move_value, publish, queue,
    store,
};
use crate::budget;
use crate::channel::after::After;
use crate::channel::erased::AnySlot;
use crate::channel::queue::offer::{FIRST_TICKET, Took};
use crate::choice::ChoiceCx;
use crate::error::RecvError;
use crate::handle::Handle;
use crate::waits::Doing;
use crate::wake;

/// How many values one poll decodes in vain at most: a peer that withdraws and offers in turn must not
/// occupy it for ever.
#[cfg(feature = "link")]
const READS_MAX: u32 = 16;

impl<'v> AnyChan<'v> {
    #[inline(never)]
    pub(crate) fn poll_take_counted(
        &self,
        handle: Handle,
        again: bool,
        into: &mut dyn AnySlot,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<u64>, RecvError>> {
        budget::counted(again, cx, |cx| self.poll_take_in_line(handle, false, into, cx, None))
    }

    /// Takes a value, or watches for one. With `extended` the sender, or the place in the buffer, stays held
    /// until [`release`](Self::release) with the ticket returned beside the value.
    #[inline(never)]
    pub(crate) fn poll_take_slowly(
        &self,
        handle: Handle,
        extended: bool,
        into: &mut dyn AnySlot,
        cx: &mut Context<'_>,
        choice: Option<&ChoiceCx>,
    ) -> Poll<Result<Option<u64>, RecvError>> {
        self.poll_take_in_line(handle, extended, into, cx, choice)
    }

    /// [`poll_take_slowly`](Self::poll_take_slowly), inlined into the most frequent receives.
    #[inline(always)]
    fn poll_take_in_line(
        &self,
        handle: Handle,
        extended: bool,
        into: &mut dyn AnySlot,
        cx: &mut Context<'_>,
        choice: Option<&ChoiceCx>,
    ) -> Poll<Result<Option<u64>, RecvError>> {
        let mut g = self.locked();
        if g.has(QUEUED) {
            #[cfg(feature = "link")]
            let g = match link::is_linked(&g) {
                false => g,
                true => match self.poll_take_over_link(g, handle, extended, into, cx, choice) {
                    Ok(taken) => return taken,
                    Err(g) => g,
                },
            };
            return self.poll_take_queued(g, handle, extended, into, cx, choice);
        }
        if g.has(HELD) {
            // A guard still held when its receiver receives again was forgotten.
            g.clear(OFFER | HELD);
            let waker = g.waiter.take();
            drop(g);
            if let Some(waker) = waker {
                wake::wake(waker);
            }
            return self.poll_take_slowly(handle, extended, into, cx, choice);
        }
        if g.has(OFFER) && !g.has(RETIRED) {
            if choice.is_some_and(|c| !c.commit()) {
                return Poll::Pending;
            }
            if g.value().is_full() {
                move_value(g.value(), into);
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
                return Poll::Ready(Ok(Some(FIRST_TICKET)));
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

    #[inline(never)]
    pub(super) fn poll_take_queued<'g>(
        &'g self,
        g: AnyGuard<'g, 'v>,
        handle: Handle,
        extended: bool,
        into: &mut dyn AnySlot,
        cx: &mut Context<'_>,
        choice: Option<&ChoiceCx>,
    ) -> Poll<Result<Option<u64>, RecvError>> {
        let mut after = After::new();
        let own = choice.and_then(ChoiceCx::own);
        // Dropped before the rest.
        let mut g = g;
        let took = {
            let ends = ends(&g);
            queue(&mut g).take_in_line(handle, own, extended, ends, into, &mut after)
        };
        #[cfg(feature = "link")]
        if queue(&mut g).remote.is_some() {
            let result = self.finish_take_over_link(g, took, handle, extended, into, cx, choice, &mut after);
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
        g: AnyGuard<'_, 'v>,
        took: Took,
        handle: Handle,
        extended: bool,
        into: &mut dyn AnySlot,
        cx: &Context<'_>,
        choice: Option<&ChoiceCx>,
        after: &mut After,
    ) -> Poll<Result<Option<u64>, RecvError>> {
        let own = choice.and_then(ChoiceCx::own);
        let has_read = matches!(took, Took::Reads(_));
        let (g, took) = self.decode_and_take(g, took, handle, own, extended, into, cx.waker(), after);
        let result = self.finish_take(g, took, handle, cx, choice, after);
        if let Some((decision, _)) = own.filter(|_| has_read && result.is_pending()) {
            decision.reopen();
        }
        result
    }

    #[inline(always)]
    fn finish_take(
        &self,
        mut g: AnyGuard<'_, 'v>,
        took: Took,
        handle: Handle,
        cx: &Context<'_>,
        choice: Option<&ChoiceCx>,
        after: &mut After,
    ) -> Poll<Result<Option<u64>, RecvError>> {
        let queue = queue(&mut g);
        let result = match took {
            #[cfg(feature = "link")]
            Took::Reads(_) | Took::Unreadable(_) => unreachable!("it has been decoded"),
            Took::Value(ticket) => {
                // Nothing is to be dropped, which the compiler does not see.
                std::mem::forget(took);
                queue.taken();
                Poll::Ready(Ok(ticket))
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
        mut g: AnyGuard<'g, 'v>,
        mut took: Took,
        handle: Handle,
        own: crate::choice::decision::Branching<'_>,
        extended: bool,
        into: &mut dyn AnySlot,
        waker: &Waker,
        after: &mut After,
    ) -> (AnyGuard<'g, 'v>, Took) {
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
            took = if is_last { Took::Nothing } else { queue.take(handle, own, extended, ends, into, after) };
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
            took = queue(&mut g).take(handle, own, extended, ends, into, after);
        }
        (g, took)
    }

    /// Takes a value if one is available.
    pub(crate) fn try_take(&self, handle: Handle, into: &mut dyn AnySlot) -> Result<(), RecvError> {
        let mut after = After::new();
        let mut g = self.lock();
        if !g.has(QUEUED) {
            if g.has(HELD) {
                // A forgotten guard holds it.
                g.clear(OFFER | HELD);
                after.wakes.add(g.waiter.take());
            } else if !g.has(RETIRED) && g.value().is_full() {
                move_value(g.value(), into);
                g.clear(OFFER);
                after.wakes.add(g.waiter.take());
                return Ok(());
            }
            return Err(if g.has_any(NO_SENDER | RETIRED) { RecvError::Closed } else { RecvError::WouldBlock });
        }
        let ends = ends(&g);
        let queue = queue(&mut g);
        let took = queue.take(handle, None, false, ends, into, &mut after);
        #[cfg(feature = "link")]
        let (mut g, took) = match queue.remote {
            None => (g, took),
            Some(_) => self.decode_and_take(g, took, handle, None, false, into, Waker::noop(), &mut after),
        };
        if let Took::Value(_) = took {
            self::queue(&mut g).taken();
        }
        publish(&mut g);
        match took {
            #[cfg(feature = "link")]
            Took::Reads(_) | Took::Unreadable(_) => unreachable!("it has been decoded"),
            Took::Value(_) => Ok(()),
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
        drop(g);
        after.done();
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
}
