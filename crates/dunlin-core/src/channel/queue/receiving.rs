//! What receives do with the queue: take a value, wait for one, give it back or say that it is taken.

use std::task::Waker;

#[cfg(feature = "link")]
use super::encoded;
use super::events::FromReceiver;
use super::offer::{Ends, Offer, Standing, Took};
use super::watchers::Due;
use super::{Queue, commit, put};
use crate::channel::after::After;
use crate::channel::erased::AnySlot;
use crate::channel::policy::Overflow;
use crate::choice::decision::{Branching, Settled};
use crate::error::{RecvError, Why};
use crate::handle::Handle;
use crate::turn::Turn;
use crate::wake::Wakes;

impl Queue {
    /// Takes a value for a receive of this handle, into its slot.
    pub(crate) fn take(
        &mut self,
        handle: Handle,
        own: Branching<'_>,
        extended: bool,
        ends: Ends,
        into: &mut dyn AnySlot,
        after: &mut After,
    ) -> Took {
        self.take_in_line(handle, own, extended, ends, into, after)
    }

    /// Like [`take`](Self::take), inlined into the most frequent receives.
    #[inline(always)]
    pub(crate) fn take_in_line(
        &mut self,
        handle: Handle,
        own: Branching<'_>,
        extended: bool,
        ends: Ends,
        into: &mut dyn AnySlot,
        after: &mut After,
    ) -> Took {
        #[cfg(feature = "link")]
        self.needs_agent_for(handle, after);
        self.begin_use(&mut after.wakes);
        if self.receivers_bound.is_some() && self.watchers.is_expired(handle) {
            if !commit(own) {
                return Took::ChoiceGone;
            }
            self.watchers.remove(handle, &mut after.stale);
            return Took::Ended(RecvError::Expired);
        }
        self.release_forgotten(handle, after);
        if let Some(reason) = &self.poison {
            let reason = reason.clone();
            return if commit(own) { Took::Ended(RecvError::Poisoned(reason)) } else { Took::ChoiceGone };
        }
        if !self.may_take(handle) {
            return Took::Nothing;
        }
        if own.is_some_and(|(decision, _)| decision.is_reserved(self.has_something() || ends.no_senders)) {
            // Another party may decide. Of two choices that wait for each other like this, the one with the
            // lower number gives way.
            self.give_way(handle, own, after);
            return Took::ChoiceGone;
        }
        if !self.buffer.is_empty() {
            #[cfg(feature = "link")]
            match self.read_buffered(own) {
                encoded::Stand::Here => {}
                encoded::Stand::ByOther => return Took::Nothing,
                encoded::Stand::ChoiceGone => return Took::ChoiceGone,
                encoded::Stand::ToDecode(reading) => return Took::Reads(reading),
                encoded::Stand::Unreadable(why) => return Took::Unreadable(why),
            }
            if !commit(own) {
                return Took::ChoiceGone;
            }
            #[cfg(feature = "link")]
            let decoded = if self.remote.is_some() { self.take_decoded_first() } else { None };
            let is_taken = self.buffer.pop_into(into);
            #[cfg(feature = "link")]
            let is_taken = is_taken || decoded.map(|value| put(into, value)).is_some();
            if extended {
                self.held.push(handle);
            } else {
                self.refill(after);
            }
            if is_taken {
                return Took::Value(None);
            }
        }
        // Retired: pending sends are refused. In a buffer whose places are held, an offer waits for one of
        // them.
        if !ends.no_receivers && (self.buffering.is_none() || self.held.is_empty()) {
            match self.take_offer(handle, own, extended, into, after) {
                // As in `finish_take`.
                nothing @ Took::Nothing => std::mem::forget(nothing),
                took => {
                    self.release_asks(handle, after);
                    return took;
                }
            }
        }
        if ends.no_senders && !self.awaits_values() {
            let why = match self.sender_lost {
                true if self.own_node_left => RecvError::OwnNodeLeft,
                true => RecvError::NodeLost,
                false => RecvError::Closed,
            };
            return if commit(own) { Took::Ended(why) } else { Took::ChoiceGone };
        }
        Took::Nothing
    }

    pub(super) fn take_offer(
        &mut self,
        handle: Handle,
        own: Branching<'_>,
        extended: bool,
        into: &mut dyn AnySlot,
        after: &mut After,
    ) -> Took {
        let mut index = 0;
        while index < self.offers.len() {
            let offer = &self.offers[index];
            if !matches!(offer.standing, Standing::Waiting) || !self.acts(offer.handle) {
                index += 1;
                continue;
            }
            let own_offer = own.is_some_and(|(mine, _)| {
                offer.choice.as_ref().is_some_and(|(theirs, _)| theirs.is(mine))
                    || offer.far.as_ref().is_some_and(|far| far.choice == Some(mine.id()))
            });
            if own_offer {
                index = self.fail(index, Why::OwnChannel, after);
                continue;
            }
            if self.is_absent(index) && !self.is_granted_to(index, handle) {
                self.ask_for(index, handle, after);
                index += 1;
                continue;
            }
            #[cfg(feature = "link")]
            match self.read(index, own) {
                encoded::Stand::Here => {}
                // Offers behind it are later ones of the same sender.
                encoded::Stand::ByOther => return Took::Nothing,
                encoded::Stand::ChoiceGone => return Took::ChoiceGone,
                encoded::Stand::ToDecode(reading) => return Took::Reads(reading),
                encoded::Stand::Unreadable(why) => {
                    index = self.fail(index, why, after);
                    continue;
                }
            }
            match self.settle(index, own, &mut after.wakes) {
                Settled::Both => {}
                Settled::OwnGone => return Took::ChoiceGone,
                Settled::Busy => {
                    index += 1;
                    continue;
                }
                Settled::Dead => {
                    self.strand(index, after);
                    continue;
                }
            }
            #[cfg(feature = "link")]
            if self.remote.is_some() {
                self.take_decoded(index);
            }
            let offer = &mut self.offers[index];
            let Some(value) = offer.value.take() else { return Took::Nothing };
            put(into, value);
            if extended {
                offer.standing = Standing::Held(handle);
                self.held_offers += 1;
                let ticket = offer.ticket;
                if let Some((of, number)) = offer.far.as_ref().map(|far| (far.of, far.number)) {
                    self.tell_inlet(of, FromReceiver::Held(number), after);
                }
                return Took::Value(Some(ticket));
            }
            if let Some(offer) = self.remove(index, after) {
                self.tell_taken(offer, after);
            }
            return Took::Value(None);
        }
        Took::Nothing
    }

    /// Registers a receive that found no value. An error: the bound on pending receivers refuses it.
    #[inline]
    pub(crate) fn watch(&mut self, handle: Handle, waker: &Waker, after: &mut After) -> Result<(), RecvError> {
        if let Some(bound) = self.receivers_bound
            && !self.watchers.has(handle)
            && self.watchers.counted() >= bound.max as usize
        {
            let was_woken = match bound.overflow {
                Overflow::Fifo => self.watchers.expire(true, &mut after.wakes),
                Overflow::Lifo => self.watchers.expire(false, &mut after.wakes),
                Overflow::Reject => return Err(RecvError::Refused),
            };
            if was_woken {
                self.pass_on(after);
            }
        }
        let due = self.watchers.watch(handle, waker, &mut after.stale);
        if !self.ask_awaited.is_empty() {
            self.tell_awaited(after);
        }
        self.end_turn(&mut after.wakes);
        // The receiver has seen everything here. Whatever turned it away (a busy choice, a claim) wakes
        // receivers later. An absent value that it could not ask for, because it has asked for another one,
        // is left to the next receiver.
        if due.pass_on && (self.inlet.is_some() || !self.lone_inlets.is_empty()) {
            self.settle_wakes(due, after);
        }
        Ok(())
    }

    /// [`watch`](Self::watch) for a receive of the end itself, on a channel whose tag shows that there is
    /// nothing to receive. `false`: other work has to be done as well.
    #[inline]
    pub(crate) fn watch_quickly(&mut self, waker: &Waker) -> bool {
        self.receivers_bound.is_none()
            && self.held.is_empty()
            && !self.has_turn
            && self.ask_awaited.is_empty()
            && self.watchers.park_end(waker)
    }

    /// [`unwatch`](Self::unwatch) for a receive of the end itself. Returns its waker, to be dropped outside
    /// the lock. `Err`: other work has to be done as well.
    #[inline]
    pub(crate) fn unwatch_quickly(&mut self) -> Result<Option<Waker>, ()> {
        if self.has_turn || self.inlet.is_some() || !self.lone_inlets.is_empty() {
            return Err(());
        }
        Ok(self.watchers.remove_end())
    }

    /// Unregisters a receive that is ready or dropped.
    pub(crate) fn unwatch(&mut self, handle: Handle, after: &mut After) {
        let due = self.watchers.remove(handle, &mut after.stale);
        self.end_turn(&mut after.wakes);
        self.release_asks(handle, after);
        self.settle_wakes(due, after);
    }

    /// Like [`unwatch`](Self::unwatch), for an agent that has passed its wake on to a receive at another
    /// node.
    pub(super) fn unwatch_quietly(&mut self, handle: Handle, after: &mut After) {
        self.watchers.remove(handle, &mut after.stale);
        self.end_turn(&mut after.wakes);
        self.release_asks(handle, after);
    }

    /// Records that a receive was polled but did not look, because its choice is decided, or reserved, for
    /// another branch.
    pub(crate) fn step_aside(&mut self, handle: Handle, after: &mut After) {
        let due = self.watchers.step_aside(handle);
        self.end_turn(&mut after.wakes);
        self.settle_wakes(due, after);
    }

    /// Notes that a receive has taken a value.
    #[inline]
    pub(crate) fn taken(&mut self) {
        self.watchers.taken();
    }

    /// After a woken receive has looked or left: passes its wake on if a value is left.
    #[inline]
    pub(super) fn settle_wakes(&mut self, due: Due, after: &mut After) {
        if !due.is_nothing() {
            self.settle_wakes_due(due, after);
        }
    }

    /// Wakes the next receive that has not looked in this round, if a value is left.
    pub(super) fn pass_on(&mut self, after: &mut After) {
        self.settle_wakes_due(Due { pass_on: true, patience: false }, after);
    }

    #[cold]
    pub(super) fn settle_wakes_due(&mut self, due: Due, after: &mut After) {
        if !self.has_left() {
            self.watchers.nothing_left();
        } else if due.pass_on && !self.receiver_claimed {
            self.watchers.pass_on(&mut after.wakes);
        }
    }

    /// Whether another receive may take something, or ask for it.
    #[inline]
    pub(super) fn has_left(&self) -> bool {
        let left = |offer: &Offer| {
            matches!(offer.standing, Standing::Waiting)
                && self.acts(offer.handle)
                && offer.far.as_ref().is_none_or(|far| far.ask.is_none())
        };
        !self.buffer.is_empty() || self.offers.iter().any(left)
    }

    /// Wakes some of the parked receivers, because something became available to take or to request. They
    /// wake the others where necessary ([`watchers`]). `true` if one was parked.
    pub(crate) fn wake_watchers(&mut self, wakes: &mut Wakes) -> bool {
        if !self.receiver_claimed {
            return self.watchers.wake_some(self.buffering.is_some(), wakes);
        }
        // Only the claimer may take it. The others are woken at the end of the claim.
        let woke = self.watchers.wake_one(Handle::END, wakes);
        self.receiver_claimer != Handle::END && self.watchers.wake_one(self.receiver_claimer, wakes) || woke
    }

    /// Wakes one receiver, which alone can make progress.
    pub(super) fn wake_watcher(&mut self, handle: Handle, wakes: &mut Wakes) {
        self.watchers.wake_one(handle, wakes);
    }

    /// Wakes all parked receivers, because their options have changed.
    pub(super) fn wake_all_watchers(&mut self, wakes: &mut Wakes) {
        self.watchers.wake_all(wakes);
    }

    /// Whether agents stand in for handles of a shared receiver elsewhere.
    pub(crate) fn is_demanded(&self) -> bool {
        self.demands.as_ref().is_some_and(|demands| !demands.is_empty())
    }

    /// Which receivers a send with an offer here may still wait for.
    pub(crate) fn turn(&self) -> Turn {
        if self.watchers_unpolled() {
            return Turn::Here;
        }
        let elsewhere = self.outlet.is_some() && self.credits.is_none() || self.wanting > 0;
        if elsewhere { Turn::Elsewhere } else { Turn::Over }
    }

    /// Whether a receiver that was woken has not been polled since.
    pub(super) fn watchers_unpolled(&self) -> bool {
        self.watchers.has_unpolled()
    }

    /// Makes the send under this ticket wait until all woken receivers have been polled.
    pub(crate) fn begin_turn(&mut self, ticket: u64) {
        if let Some(index) = self.find(ticket) {
            (self.offers[index].has_turn, self.has_turn) = (true, true);
        }
    }

    /// After a receiver has been polled or dropped: wakes the sends whose turn that ends.
    pub(crate) fn end_turn(&mut self, wakes: &mut Wakes) {
        if !self.has_turn || self.watchers_unpolled() {
            return;
        }
        self.has_turn = false;
        for offer in &mut self.offers {
            if !std::mem::take(&mut offer.has_turn) {
                continue;
            }
            wakes.add(offer.waker.take());
            if let Some((decision, _)) = &offer.choice {
                decision.nudge(wakes);
            }
        }
    }

    /// Ends an extended receive: its send completes, or its place in the buffer becomes free.
    pub(crate) fn release(&mut self, handle: Handle, ticket: Option<u64>, after: &mut After) {
        if let Some(ticket) = ticket {
            if let Some(index) = self.find(ticket)
                && let Some(offer) = self.remove(index, after)
            {
                self.held_offers -= 1;
                after.wakes.add(offer.waker);
                if let Some((decision, _)) = offer.choice {
                    decision.nudge(&mut after.wakes);
                }
                if let Some(far) = offer.far {
                    self.tell_inlet(far.of, FromReceiver::Released(far.number), after);
                }
            }
        } else if let Some(index) = self.held.iter().position(|h| *h == handle) {
            self.held.swap_remove(index);
            self.refill(after);
            // If held places blocked all receives before, they may succeed now.
            if self.has_something() {
                self.wake_watchers(&mut after.wakes);
            }
        }
    }

    /// Releases what an end still holds when it receives again: it has one receive at a time, so it forgot
    /// that.
    pub(crate) fn release_forgotten(&mut self, handle: Handle, after: &mut After) {
        while self.held_offers > 0
            && let Some(ticket) = self.offers.iter().find(|o| o.standing == Standing::Held(handle)).map(|o| o.ticket)
        {
            self.release(handle, Some(ticket), after);
        }
        if self.held.contains(&handle) {
            self.release(handle, None, after);
        }
    }

    /// Ends every extended receive, because the receiver was dropped.
    pub(crate) fn release_all(&mut self, after: &mut After) {
        let held = |o: &Offer| matches!(o.standing, Standing::Held(_));
        while let Some(ticket) = self.offers.iter().find(|o| held(o)).map(|o| o.ticket) {
            self.release(Handle::END, Some(ticket), after);
        }
        self.held.take();
        self.lending.receiver_gone = true;
    }
}
