//! The slot of a half of a channel over a link: a rendezvous whose two halves have one operation each.
//!
//! As within one node, an unshared end has one operation at a time, and most channels have nothing else. Then
//! the value of a send and the waker of its task wait in the channel's slots, and the link's part of them is
//! a [`Slot`]: the queue has no offer. Any other access to the queue first moves the contents of the slots
//! into it ([`Chan::lock`]), and then each operation continues in the queue.
//!
//! 1. A send encodes its value without the lock, sends it to the home, and leaves it in the slot. The word
//!    `Taken` marks the slot; the send drops the value in its next poll.
//! 2. A word `Offer` puts its bytes into the slot. A receive decodes them without the lock, and takes them if
//!    they are still there. Otherwise it continues in the queue with the decoded value.

use std::task::{Context, Poll};

use bytes::Bytes;

use super::{
    AnyChan, AnyGuard, HELD, Handle, Inner, NO_RECEIVER, NO_SENDER, OFFER, POISONED, Post, QUEUED, RETIRED, WATCHED,
    move_value, publish, store,
};
use crate::channel::after::After;
use crate::channel::erased::AnySlot;
use crate::channel::queue::encoded::{Encoding, ForSlot, Slot};
use crate::channel::queue::put;
use crate::channel::queue::value::Source;
use crate::choice::ChoiceCx;
use crate::error::{Failed, RecvError};
use crate::waits::Doing;
use crate::wake;

/// With a queue: a link uses the slots.
pub(super) const SLOT: u32 = HELD;

/// The channel has ended in some way.
const ENDED: u32 = NO_SENDER | NO_RECEIVER | RETIRED | POISONED;

/// The result of a poll, or the lock, if the slot cannot serve the operation.
type ByLink<'g, 'v, R> = Result<Poll<R>, AnyGuard<'g, 'v>>;

/// Whether there is a link, so that the slots may be in use.
#[inline(always)]
pub(super) fn is_linked(g: &AnyGuard<'_, '_>) -> bool {
    g.queue.as_ref().is_some_and(|queue| queue.is_linked())
}

/// Moves the contents of the slots, if a link uses them, into the queue.
#[inline]
pub(super) fn empty_slot(g: &mut AnyGuard<'_, '_>) {
    if g.has(QUEUED | SLOT) {
        move_to_queue(g);
    }
}

#[cold]
fn move_to_queue(g: &mut AnyGuard<'_, '_>) {
    let is_watched = g.has(WATCHED);
    g.clear(SLOT | WATCHED);
    let (value, Inner { waiter, queue }) = g.parts();
    queue.iter_mut().for_each(|queue| queue.adopt_slot(value, waiter, is_watched));
    publish(g);
}

fn slot<'g>(g: &'g mut AnyGuard<'_, '_>) -> Option<&'g mut Slot> {
    Some(&mut g.queue.as_mut()?.remote.as_mut()?.slot)
}

impl<'v> AnyChan<'v> {
    /// Sends the value in `value` through the slot. Returns the lock if there is no link, or something else
    /// is pending.
    #[inline(never)]
    pub(super) fn poll_send_over_link<'g>(
        &'g self,
        mut g: AnyGuard<'g, 'v>,
        post: &mut Post,
        value: &mut dyn AnySlot,
        cx: &mut Context<'_>,
    ) -> ByLink<'g, 'v, Result<(), Failed>> {
        if post.ticket != 0 {
            return self.poll_sent_over_link(g, post, cx);
        }
        let may = |g: &AnyGuard<'_, 'v>| {
            let is_plain = post.handle == Handle::END && !g.has_any(SLOT | ENDED);
            g.queue.as_ref().filter(|_| is_plain).and_then(|queue| queue.slot_for_send())
        };
        let (Some(ForSlot { encode, terms, link }), Some(unsent)) = (may(&g), value.at()) else { return Err(g) };
        drop(g);
        // SAFETY: the value of a send is of the channel's type.
        let mut write = || unsafe { encode(unsent, terms, terms.value_max, cx.waker()) };
        let mut encoded = match &link {
            Some(link) => link.write_request(&mut write),
            None => write().map_ok(|bytes| (bytes, None)),
        };
        if link.is_none() && terms.is_message && matches!(encoded, Poll::Ready(Err(_))) {
            // It may have failed for the places in it.
            let link = self.locked().queue.as_ref().and_then(|queue| queue.link().cloned());
            encoded = link.map_or(encoded, |link| link.write_request(&mut write));
        }
        let (bytes, places) = match encoded {
            Poll::Ready(Ok(encoded)) => encoded,
            Poll::Ready(Err(_)) if terms.is_message => {
                // The agent reports the error, or can send the value.
                self.unlink();
                return Err(self.lock());
            }
            Poll::Ready(Err(why)) => return Ok(Poll::Ready(Err(why.into()))),
            // An end in the value has an unsettled operation.
            Poll::Pending => return Ok(Poll::Pending),
        };
        g = self.locked();
        if may(&g).is_none() {
            drop(g);
            if places.is_some() {
                self.unlink();
                return Err(self.lock());
            }
            return Ok(self.send_encoded(Encoding::done(encode, terms, bytes), post, value, cx));
        }
        let stale = g.waiter.replace(wake::keep(cx.waker()));
        let offered = g.queue.as_mut().and_then(|queue| queue.offer_in_slot(bytes, places));
        let Some((ticket, waker)) = offered else { return Err(g) };
        move_value(value, g.value());
        g.set(SLOT);
        drop(g);
        post.ticket = ticket;
        self.record.sender.begin(Doing::Send);
        if let Some(waker) = waker {
            wake::wake(waker);
        }
        drop(stale);
        Ok(Poll::Pending)
    }

    /// Waits for the word of the home that the value has been taken.
    fn poll_sent_over_link<'g>(
        &self,
        mut g: AnyGuard<'g, 'v>,
        post: &mut Post,
        cx: &Context<'_>,
    ) -> ByLink<'g, 'v, Result<(), Failed>> {
        if !g.has(SLOT) {
            return Err(g);
        }
        let taken = match slot(&mut g) {
            Some(Slot::Out { ticket, taken }) if *ticket == post.ticket => *taken,
            _ => return Err(g),
        };
        if !taken {
            let old = store(&mut g.waiter, cx.waker());
            drop(g);
            drop(old);
            return Ok(Poll::Pending);
        }
        slot(&mut g).into_iter().for_each(|slot| *slot = Slot::Empty);
        let value = g.value().take();
        g.clear(SLOT);
        drop(g);
        let sent = self.sent(post);
        drop(value);
        Ok(sent)
    }

    /// Continues after another operation changed the channel while the value was encoded.
    #[cold]
    fn send_encoded(
        &self,
        encoding: Encoding,
        post: &mut Post,
        value: &mut dyn AnySlot,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Failed>> {
        let mut after = After::new();
        after.encoding = Some(Box::new(encoding));
        let source = &mut Source::Slot(value);
        let sent = self.poll_send_again(post, source, cx, None, &mut after);
        let sent = self.encode_and_send(sent, post, source, cx, None, &mut after);
        after.done();
        sent
    }

    /// Handles the home's word that a receive has returned the value of the offer in the slot. `false`: the
    /// slot does not hold that offer.
    pub(crate) fn hear_taken(&self, ticket: u64) -> bool {
        let mut g = self.locked();
        if !g.has(SLOT) {
            return false;
        }
        match slot(&mut g) {
            Some(Slot::Out { ticket: out, taken }) if *out == ticket && !*taken => *taken = true,
            _ => return false,
        }
        let waker = g.waiter.take();
        drop(g);
        if let Some(waker) = waker {
            wake::wake(waker);
        }
        true
    }

    /// Puts an offer of the sending half into the slot. `Err`: something else is pending.
    pub(crate) fn hear_offer(&self, number: u64, value: Bytes, has_places: bool) -> Result<(), Bytes> {
        let mut g = self.locked();
        if g.has_any(ENDED) {
            return Err(value);
        }
        let is_watched = g.has(SLOT | WATCHED);
        let Some(queue) = &mut g.queue else { return Err(value) };
        queue.put_in_slot(number, value, has_places, is_watched)?;
        let waker = if is_watched { g.waiter.take() } else { None };
        g.clear(WATCHED);
        g.set(SLOT | OFFER);
        drop(g);
        if let Some(waker) = waker {
            wake::wake(waker);
        }
        Ok(())
    }

    /// Takes the value in the slot, or waits for one there. Returns the lock if there is no link, or
    /// something else is pending.
    #[inline(never)]
    pub(super) fn poll_take_over_link<'g>(
        &'g self,
        mut g: AnyGuard<'g, 'v>,
        handle: Handle,
        extended: bool,
        into: &mut dyn AnySlot,
        cx: &mut Context<'_>,
        choice: Option<&ChoiceCx>,
    ) -> ByLink<'g, 'v, Result<Option<u64>, RecvError>> {
        let is_plain = handle == Handle::END && !extended && choice.is_none() && !g.has_any(ENDED);
        if !is_plain || !is_linked(&g) {
            empty_slot(&mut g);
            return Err(g);
        }
        let Some(mut reading) = g.queue.as_mut().and_then(|queue| queue.read_slot()) else {
            return self.watch_slot(g, cx);
        };
        drop(g);
        reading.decode();
        g = self.locked();
        if reading.is_readable()
            && let Some(waker) = g.queue.as_mut().and_then(|queue| queue.take_from_slot(&mut reading))
        {
            g.clear(SLOT | OFFER);
            drop(g);
            self.record.receiver.end();
            if let Some(waker) = waker {
                wake::wake(waker);
            }
            if let Some(Ok(value)) = reading.into_value() {
                put(into, value);
                return Ok(Poll::Ready(Ok(None)));
            }
            unreachable!("it is readable");
        }
        empty_slot(&mut g);
        let mut after = After::new();
        if let Some(queue) = &mut g.queue {
            queue.has_decoded(reading, &mut after);
        }
        publish(&mut g);
        drop(g);
        after.done();
        Ok(self.poll_take_queued(self.lock(), handle, extended, into, cx, choice))
    }

    fn watch_slot<'g>(
        &self,
        mut g: AnyGuard<'g, 'v>,
        cx: &Context<'_>,
    ) -> ByLink<'g, 'v, Result<Option<u64>, RecvError>> {
        let is_free = matches!(slot(&mut g), Some(Slot::Empty));
        if !is_free || !g.queue.as_ref().is_some_and(|queue| queue.may_take_from_slot()) {
            empty_slot(&mut g);
            return Err(g);
        }
        let old = store(&mut g.waiter, cx.waker());
        g.set(SLOT | WATCHED);
        self.record.receiver.begin(Doing::Receive);
        drop(g);
        drop(old);
        Ok(Poll::Pending)
    }
}
