//! Handles of a shared receiver elsewhere: each has an agent here that takes an offer on request.
//!
//! To the half elsewhere the agent is a sender that always has a few offers of a choice open. A receive there
//! reserves one of them: that is its demand. Here the channel's next value answers it, and the agent owns
//! that value until its outcome is known. So the value goes to the receive that asked, several can ask at
//! once, and a returned value stands in its old place.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use dunlin_sorted::SortedMap;

use super::Queue;
use super::demand::{Demanded, Demands, Source};
use super::events::{FromSender, Given, Heard};
use super::offer::{Away, Ends, Offer, Standing, Unread};
use super::value::Value;
use crate::channel::after::After;
use crate::channel::erased::Erased;
use crate::choice::decision::{Reserve, Reserver};
use crate::error::{MessageId, Why};
use crate::handle::Handle;
use crate::wake::Wakes;

/// How many demands of one handle elsewhere can be open: one for each process that receives there, or is
/// about to.
const OPEN_AT_MOST: usize = 4;

impl Queue {
    /// Adds the agent of a handle of a shared receiver elsewhere.
    pub(crate) fn add_demands(&mut self, handle: Handle, after: &mut After) {
        #[cfg(feature = "link")]
        self.keep_agent(after);
        #[cfg(not(feature = "link"))]
        let _ = after;
        let demands = Demands {
            heard: Heard::new(),
            next: 0,
            posted: 0,
            wants: VecDeque::new(),
            given: SortedMap::new(),
            reads: false,
            poisoned: false,
            over: false,
        };
        self.demands.get_or_insert_default().insert(handle, demands);
    }

    pub(super) fn demands_of(&mut self, handle: Handle) -> Option<&mut Demands> {
        self.demands.as_mut()?.get_mut(handle)
    }

    /// Changes the unanswered reservations of a handle, and maintains the count of handles with some.
    fn change_wants<R>(&mut self, handle: Handle, change: impl FnOnce(&mut VecDeque<u64>) -> R) -> Option<R> {
        let wants = &mut self.demands.as_mut()?.get_mut(handle)?.wants;
        self.wanting -= u32::from(!wants.is_empty());
        let result = change(wants);
        self.wanting += u32::from(!wants.is_empty());
        Some(result)
    }

    /// The agent's next event. `leaving`: no further offer goes to the half elsewhere.
    pub(crate) fn poll_demands(
        &mut self,
        handle: Handle,
        leaving: bool,
        ends: Ends,
        waker: &Waker,
        after: &mut After,
    ) -> Option<Demanded> {
        while let Some(event) = self.demands_of(handle)?.heard.events.pop_front() {
            let demands = self.demands_of(handle)?;
            match event {
                FromSender::AskedBack(ticket) => {
                    if let Some(number) = demands.number_of(ticket) {
                        return Some(Demanded::AskedBack(number));
                    }
                }
                FromSender::Revoke(ticket) => {
                    if let Some(number) = demands.number_of(ticket) {
                        return Some(Demanded::Revoke(number));
                    }
                }
                // An offer may have become reservable: waiting demands are tried below.
                _ => {}
            }
        }
        let how = self.how_ended(ends).or(leaving.then_some(Demanded::Gone));
        let has_something = self.has_for(handle, ends);
        let demands = self.demands_of(handle)?;
        if demands.over {
            return None;
        }
        match how {
            Some(Demanded::Poisoned(reason)) if !demands.poisoned => {
                demands.poisoned = true;
                return Some(Demanded::Poisoned(reason));
            }
            Some(how) if demands.given.is_empty() => {
                demands.over = true;
                // The channel's end follows its poison. No other party reports it, because the shared end
                // stays as long as this agent.
                return Some(if demands.poisoned { Demanded::Gone } else { how });
            }
            _ => {}
        }
        if leaving || demands.poisoned {
            after.stale.store(&mut demands.heard.waker, waker);
            self.unwatch(handle, after);
            return None;
        }
        if demands.posted < OPEN_AT_MOST {
            demands.posted += 1;
            demands.next += 1;
            return Some(Demanded::Post(demands.next));
        }
        if has_something && let Some(number) = self.change_wants(handle, VecDeque::pop_front).flatten() {
            return Some(Demanded::Try(number));
        }
        let demands = self.demands_of(handle)?;
        after.stale.store(&mut demands.heard.waker, waker);
        if demands.wants_something() {
            // A bound on waiting receivers is for receivers here.
            let _ = self.watch(handle, waker, after);
        } else {
            // If this agent was woken, a receive elsewhere tries again, and passes the wake on when it
            // answers or gives up.
            self.unwatch_quietly(handle, after);
        }
        None
    }

    fn how_ended(&self, ends: Ends) -> Option<Demanded> {
        if let Some(reason) = &self.poison {
            return Some(Demanded::Poisoned(reason.clone()));
        }
        let waits = |offer: &Offer| offer.standing == Standing::Waiting;
        let empty = self.buffer.is_empty() && (ends.no_receivers || !self.offers.iter().any(waits));
        if !ends.no_senders || !empty || self.awaits_values() {
            return None;
        }
        Some(if self.sender_lost { Demanded::Lost } else { Demanded::Gone })
    }

    /// Whether a demand of this handle may find something.
    fn has_for(&self, handle: Handle, ends: Ends) -> bool {
        if self.poison.is_some() || !self.may_take(handle) {
            return false;
        }
        if !self.buffer.is_empty() {
            return true;
        }
        let blocked = ends.no_receivers || self.buffering.is_some() && !self.held.is_empty();
        let demands = self.demands.as_ref().and_then(|all| all.get(handle));
        let reads = demands.is_some_and(|demands| demands.reads);
        !blocked
            && self.offers.iter().enumerate().any(|(index, offer)| {
                offer.standing == Standing::Waiting
                    && self.acts(offer.handle)
                    && match &offer.choice {
                        Some((decision, _)) => decision.may_be_reserved(),
                        // Once requested, it causes an event.
                        None if self.is_far_choice(index) => self.may_ask(index, handle),
                        None if self.is_unread(index) => {
                            reads && self.is_readable(index) || self.may_ask(index, handle)
                        }
                        None => true,
                    }
            })
    }

    /// Whether a request to this choice elsewhere would change anything.
    fn may_ask(&self, index: usize, handle: Handle) -> bool {
        self.is_granted_to(index, handle)
            || self.offers[index].far.as_ref().is_some_and(|far| far.ask.is_none())
                && !self
                    .offers
                    .iter()
                    .any(|o| o.far.as_ref().is_some_and(|far| far.ask.is_some_and(|ask| ask.handle == handle)))
    }

    /// Answers a reservation of this number by the half elsewhere. `None`: no value is available now; an
    /// [event](Demanded::Try) tells the agent when to try again. `reads`: it can take unread values.
    pub(crate) fn demand(
        &mut self,
        handle: Handle,
        number: u64,
        reads: bool,
        ends: Ends,
        reserver: impl Fn(u64) -> Arc<dyn Reserver>,
        after: &mut After,
    ) -> Option<Given<Erased>> {
        self.begin_use(&mut after.wakes);
        let demands = self.demands_of(handle)?;
        demands.reads = reads;
        if demands.given.contains_key(&number) {
            // The value of its previous reservation is on its way back, and the carrier of that reserves it
            // anew.
            return None;
        }
        let found = self.next_for(handle, reads, ends, reserver, after);
        let demands = self.demands_of(handle)?;
        match found {
            Some((value, source)) => {
                demands.given.insert(number, source);
                self.taken();
                self.unwatch(handle, after);
                // This demand may have been the answer to a wake.
                self.pass_on(after);
                Some(value)
            }
            None => {
                // The agent has yet to watch the channel.
                after.wakes.add(demands.heard.waker.take());
                self.change_wants(handle, |wants| {
                    if !wants.contains(&number) {
                        wants.push_back(number);
                    }
                });
                None
            }
        }
    }

    fn next_for(
        &mut self,
        handle: Handle,
        reads: bool,
        ends: Ends,
        reserver: impl Fn(u64) -> Arc<dyn Reserver>,
        after: &mut After,
    ) -> Option<(Given<Erased>, Source)> {
        if self.poison.is_some() || !self.may_take(handle) {
            return None;
        }
        if let Some((value, place)) = self.buffer.pop_on_trial() {
            self.held.push(handle);
            return Some((Given::Value(value), Source::Buffer(place)));
        }
        if ends.no_receivers || self.buffering.is_some() && !self.held.is_empty() {
            return None;
        }
        let mut index = 0;
        while index < self.offers.len() {
            let offer = &self.offers[index];
            if offer.standing != Standing::Waiting || !self.acts(offer.handle) {
                index += 1;
                continue;
            }
            if self.is_far_choice(index) && !self.is_granted_to(index, handle)
                || self.is_unread(index) && !(reads && self.is_readable(index))
            {
                self.ask_for(index, handle, after);
                index += 1;
                continue;
            }
            let ticket = self.offers[index].ticket;
            let reserved = match &self.offers[index].choice {
                Some((decision, _)) => decision.reserve(&reserver(ticket)),
                None => Reserve::Granted,
            };
            match reserved {
                Reserve::Granted => {}
                Reserve::Later => {
                    index += 1;
                    continue;
                }
                Reserve::Dead => {
                    self.strand(index, after);
                    continue;
                }
            }
            let offer = &mut self.offers[index];
            let value = match &mut offer.value {
                // The pool stays known as the value's home, in case the value returns.
                Value::Pooled(pool) => pool.lock().take(),
                value => value.take(),
            };
            let is_unread = offer.far.as_ref().is_some_and(|far| far.unread == Unread::Yes);
            let Some(value) = value.map(Given::Value).or(is_unread.then_some(Given::Unread)) else {
                index += 1;
                continue;
            };
            offer.standing = Standing::Away(Away { demanded_by: Some(handle), ..Default::default() });
            self.release_asks(handle, after);
            return Some((value, Source::Offer(ticket)));
        }
        None
    }

    /// The agent and the number of the value given under this number, if that came from elsewhere itself.
    pub(crate) fn demanded_far_source(&mut self, handle: Handle, number: u64) -> Option<(Handle, u64)> {
        match *self.demands_of(handle)?.given.get(&number)? {
            Source::Offer(ticket) => self.far_source(ticket),
            Source::Buffer(_) => None,
        }
    }

    /// Handles the receive of the value given under this number. `held`: by an extended receive that has not
    /// ended.
    pub(crate) fn demand_met(&mut self, handle: Handle, number: u64, held: bool, after: &mut After) {
        let Some(demands) = self.demands_of(handle) else { return };
        let Some(source) = demands.given.get(&number).copied() else { return };
        if !held {
            demands.given.remove(&number);
            demands.posted = demands.posted.saturating_sub(1);
            after.wakes.add(demands.heard.waker.take());
        }
        match source {
            Source::Offer(ticket) => self.far_took(ticket, held, after),
            Source::Buffer(_) if held => {}
            Source::Buffer(_) => self.release(handle, None, after),
        }
    }

    /// Takes back a value that is no longer needed, or could not be taken there. `closed`: the number cannot
    /// be reserved again. `why`: the offer itself has failed.
    pub(crate) fn demand_back(
        &mut self,
        handle: Handle,
        number: u64,
        value: Option<Given<Erased>>,
        closed: bool,
        why: Option<Why>,
        after: &mut After,
    ) {
        let Some(demands) = self.demands_of(handle) else {
            return after.dropped.extend(value.and_then(Given::read));
        };
        if closed {
            demands.posted = demands.posted.saturating_sub(1);
        }
        self.change_wants(handle, |wants| wants.retain(|other| *other != number));
        let Some(demands) = self.demands_of(handle) else { return };
        if value.is_none() && why.is_none() {
            // A value given under this number is on its way back.
            after.wakes.add(demands.heard.waker.take());
            return self.pass_on(after);
        }
        let source = demands.given.remove(&number);
        after.wakes.add(demands.heard.waker.take());
        match (source, value, why) {
            (Some(Source::Offer(ticket)), value, Some(why)) => self.far_failed(ticket, value, why, after),
            (Some(Source::Offer(ticket)), Some(value), None) => self.far_gave_back(ticket, value, after),
            (Some(Source::Buffer(place)), value, why) => {
                let is_lost = why.is_some() || self.poison.is_some() || self.lending.receiver_gone;
                match value.and_then(Given::read) {
                    Some(value) if !is_lost => self.buffer.put_back(value, place),
                    value => after.dropped.extend(value),
                }
                self.release(handle, None, after);
            }
            (_, value, _) => after.dropped.extend(value.and_then(Given::read)),
        }
        self.rouse(after);
    }

    /// Handles the loss of that half's node: it is unknown whether a receive there has returned the value.
    pub(crate) fn demand_lost(
        &mut self,
        handle: Handle,
        number: u64,
        value: Given<Erased>,
        id: MessageId,
        after: &mut After,
    ) {
        let source = self.demands_of(handle).and_then(|demands| demands.given.remove(&number));
        match source {
            Some(Source::Offer(ticket)) => self.far_lost(ticket, value, id, after),
            Some(Source::Buffer(_)) => {
                // Its send is complete; given to another receive, it might be received twice.
                after.dropped.extend(value.read());
                self.release(handle, None, after);
            }
            None => after.dropped.extend(value.read()),
        }
    }

    /// Removes the agent. The values that it had not handed over count as received and dropped.
    pub(crate) fn remove_demands(&mut self, handle: Handle, after: &mut After) {
        self.change_wants(handle, VecDeque::clear);
        let Some(demands) = self.demands.as_mut().and_then(|all| all.remove(handle)) else { return };
        self.unwatch(handle, after);
        for source in demands.given.into_values() {
            match source {
                Source::Offer(ticket) => self.far_took(ticket, false, after),
                Source::Buffer(_) => self.release(handle, None, after),
            }
        }
        after.stale.add(demands.heard.waker);
        self.rouse(after);
    }

    /// Sends this event of the sender, or of its choice, to the agent that has, or requested, the offer.
    pub(crate) fn tell_taker(&mut self, demanded_by: Option<Handle>, event: FromSender, after: &mut After) {
        let heard = match demanded_by {
            None => self.outlet.as_mut(),
            Some(handle) => self.demands_of(handle).map(|demands| &mut demands.heard),
        };
        if let Some(heard) = heard {
            heard.tell(event, &mut after.wakes);
        }
    }

    /// Wakes the agents, because the channel has changed, and may have ended.
    pub(crate) fn wake_demands(&mut self, wakes: &mut Wakes) {
        for demands in self.demands.iter_mut().flat_map(|all| all.iter_mut()) {
            wakes.add(demands.heard.waker.take());
        }
    }
}
