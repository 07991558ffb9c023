//! The queue of a channel whose other half is elsewhere: offers that went out to an agent, and offers that
//! came in through one.
//!
//! Part of [`Queue`]; no channel without agents runs this code. [`crate::agent`] has the calls and the
//! diagram of the protocol.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;

use super::Queue;
use super::credit::Lending;
#[cfg(feature = "link")]
use super::encoded::Linked;
use super::events::{Carried, Collected, FromReceiver, FromSender, Given, Heard, Reserved};
use super::offer::{Ask, Away, Ends, FromFar, Kept, Known, Offer, Offered, Owner, Standing, Unread};
use super::value::{Source, Value};
use crate::channel::after::After;
use crate::channel::elsewhere::Names;
use crate::channel::erased::{Erased, Ring};
use crate::channel::policy::{Admit, ON_THE_WAY_MAX, Window};
use crate::choice::decision::{Branching, Reserve, Reserver};
use crate::error::{Failed, MessageId, Why};
use crate::handle::Handle;
use crate::wake::Wakes;

impl Queue {
    pub(super) fn has_ended(&self) -> bool {
        self.sealed || self.poison.is_some()
    }

    /// Whether an offer exists outside the buffer.
    #[cfg(feature = "serde")]
    pub(crate) fn has_offers(&self) -> bool {
        !self.offers.is_empty()
    }

    /// How many values were sent on credits and not yet reported to the agent.
    pub(crate) fn unsaid(&self) -> usize {
        let events = self.outlet.iter().flat_map(|outlet| &outlet.events);
        events.filter(|event| matches!(event, FromSender::Sent(_))).count()
    }

    /// Announces standing offers to a new agent.
    pub(crate) fn offer_all(&mut self, wakes: &mut Wakes) {
        let Some(outlet) = &mut self.outlet else { return };
        for offer in self.offers.iter().filter(|offer| offer.standing == Standing::Waiting) {
            outlet.tell(FromSender::Offered(offer.ticket), wakes);
        }
    }

    /// Sends the sender's agent the event that the sender is gone, once all its offers are settled: a
    /// forgotten send still stands, and a send that was dropped on its way awaits its answer. `now`: the
    /// sender goes; otherwise it may have gone before, and an offer may have been settled.
    #[inline]
    pub(crate) fn sender_leaves(&mut self, now: bool, wakes: &mut Wakes) {
        self.sender_leaving |= now && self.outlet.is_some();
        if self.sender_leaving {
            self.tell_sender_gone(wakes);
        }
    }

    fn tell_sender_gone(&mut self, wakes: &mut Wakes) {
        let ended = self.has_ended();
        let open = |offer: &Offer| match offer.standing {
            Standing::Waiting => !ended,
            Standing::Away(_) => true,
            // Received, or never to be received.
            Standing::Held(_) | Standing::Failed(_) => false,
            #[cfg(feature = "link")]
            Standing::Spent => false,
        };
        if !self.offers.iter().any(open)
            && let Some(outlet) = &mut self.outlet
        {
            self.sender_leaving = false;
            outlet.tell(if self.sender_lost { FromSender::Lost } else { FromSender::Gone }, wakes);
        }
    }

    /// Adds places at the receiver elsewhere for sends from here: waiting values go out on them.
    pub(crate) fn credit(&mut self, places: u32, after: &mut After) {
        if places == 0 {
            return;
        }
        let first = places.min(self.carried);
        self.carried -= first;
        if let Some(outlet) = self.outlet.as_mut().filter(|_| first > 0) {
            after.wakes.add(outlet.waker.take());
        }
        self.credits = Some(self.credits.unwrap_or(0).saturating_add(places - first));
        self.refill(after);
    }

    /// The receiver elsewhere has ended: credits remain only for values buffered before.
    pub(crate) fn end_credits(&mut self) {
        if self.carried == 0 {
            self.credits = None;
        }
    }

    /// How the first of `buffered`, which the outlet took out of the buffer here, travels.
    pub(crate) fn carry(
        &mut self,
        buffered: &mut VecDeque<(u64, Erased)>,
        waker: &Waker,
        after: &mut After,
    ) -> Carried {
        if self.poison.is_some() {
            self.carried = 0;
            after.dropped.extend(buffered.drain(..).map(|(_, value)| value));
        }
        let Some(outlet) = self.outlet.as_mut().filter(|_| !buffered.is_empty()) else { return Carried::Nothing };
        let paid = buffered.len() > self.carried as usize;
        if !paid && self.credits.is_some() {
            after.stale.store(&mut outlet.waker, waker);
            return Carried::Waits;
        }
        self.carried -= u32::from(!paid);
        match buffered.pop_front() {
            Some((_, value)) if paid => Carried::Sent(value),
            Some((ticket, value)) => Carried::Offered(ticket, value),
            None => Carried::Nothing,
        }
    }

    /// Repeats the event that the sender is gone, or has retired the channel, behind values that have come
    /// back since the first one.
    pub(crate) fn end_again(&mut self, retired: bool, wakes: &mut Wakes) {
        if !retired {
            return self.sender_leaves(true, wakes);
        }
        if let Some(outlet) = &mut self.outlet {
            outlet.tell(FromSender::Retired, wakes);
        }
    }

    /// Counts a carried value that was offered and has come back.
    pub(crate) fn carry_again(&mut self, wakes: &mut Wakes) {
        self.carried += 1;
        if let Some(outlet) = &mut self.outlet {
            wakes.add(outlet.waker.take());
        }
    }

    /// Begins to promise places to the sender elsewhere. Returns those to report now.
    pub(crate) fn lend(&mut self, wakes: &mut Wakes) -> u32 {
        self.lending.comes = false;
        // Also if it is retired here: values buffered where the receiver was before may still wait for
        // places.
        self.lending.on = self.poison.is_none();
        self.lend_up_to(u32::MAX, wakes);
        std::mem::take(&mut self.lending.owed)
    }

    /// Like [`lend`](Self::lend), for another sender elsewhere in place of the previous one, or for one to
    /// which the channel's previous home has promised so many places.
    pub(crate) fn lend_anew(&mut self, promised: u32, wakes: &mut Wakes) -> u32 {
        self.lending.granted = 0;
        self.lending.owed = 0;
        // Promises hold whatever has happened since: receives wait for the values sent on them.
        self.lending.on = true;
        let most = std::mem::replace(&mut self.lending.most, u32::MAX);
        self.lend_up_to(promised, wakes);
        self.lending.most = most;
        self.lend(wakes)
    }

    /// Limits the promises from now on to `places`, less the buffered values.
    pub(crate) fn lend_at_most(&mut self, places: u32, wakes: &mut Wakes) {
        self.lending.most = places.max(1);
        self.lend_up_to(u32::MAX, wakes);
    }

    fn lend_up_to(&mut self, max: u32, wakes: &mut Wakes) {
        let Lending { window, most, on, granted, .. } = self.lending;
        let queued = u32::try_from(self.queued()).unwrap_or(u32::MAX);
        let Some(inlet) = self.inlet.as_mut().filter(|_| on) else { return };
        let beside = |places: u32| places.saturating_sub(granted).saturating_sub(queued);
        let free = match window {
            Window::None => 0,
            Window::Places(places) => beside(places),
            Window::Unbounded => u32::MAX,
        };
        let lent = free.min(beside(most)).min(ON_THE_WAY_MAX.saturating_sub(granted)).min(max);
        self.lending.granted += lent;
        let is_below = self.buffer.len() < self.lending.below as usize;
        if is_below {
            self.lending.below = 0;
        }
        #[cfg(feature = "link")]
        if let Some(by) = &inlet.link {
            if lent > 0 || is_below {
                wakes.add(by.link.promise(lent, self.buffer.len()));
            }
            return;
        }
        self.lending.owed += lent;
        self.lending.is_below |= is_below;
        if lent > 0 || is_below {
            wakes.add(inlet.waker.take());
        }
    }

    /// Gives free places to waiting offers and to the sender elsewhere in turn. Called before waiting offers
    /// are admitted.
    pub(super) fn lend_in_turn(&mut self, wakes: &mut Wakes) {
        if self.lending.next {
            self.lend_up_to(1, wakes);
        }
    }

    /// Promises the other free places. Called after waiting offers were admitted, `some` of them or none.
    pub(super) fn lend_the_rest(&mut self, some: bool, wakes: &mut Wakes) {
        self.lending.next = some;
        self.lend_up_to(u32::MAX, wakes);
    }

    /// The next event for the agent of the sender elsewhere.
    pub(crate) fn next_for_inlet(&mut self, of: Handle) -> Option<FromReceiver<Erased>> {
        if let Some(event) = self.inlet_of(of)?.events.pop_front() {
            return Some(event);
        }
        if of != Handle::END {
            return None;
        }
        let owed = std::mem::take(&mut self.lending.owed);
        let is_below = std::mem::take(&mut self.lending.is_below);
        (owed > 0 || is_below).then_some(FromReceiver::Credit(owed))
    }

    /// Records that the receiver has come from elsewhere, and that the agent in its sender's place does not
    /// yet know the values sent before.
    #[cfg(feature = "serde")]
    pub(crate) fn comes(&mut self) {
        self.lending.comes = true;
        self.lending.unused = true;
    }

    #[cfg(feature = "serde")]
    pub(crate) fn is_coming(&self) -> bool {
        self.lending.comes
    }

    /// Records a use of the receiver.
    #[inline]
    pub(crate) fn begin_use(&mut self, wakes: &mut Wakes) {
        if std::mem::take(&mut self.lending.unused)
            && let Some(inlet) = &mut self.inlet
        {
            inlet.tell(FromReceiver::Used, wakes);
        }
    }

    /// Whether the sender elsewhere may have sent values that are not here yet.
    pub(crate) fn awaits_values(&self) -> bool {
        self.lending.comes || self.lending.granted > 0 || self.lending.returning > 0
    }

    /// Takes back all promises: the sender elsewhere will not use them.
    pub(crate) fn end_lending(&mut self, after: &mut After) {
        self.lending.stop();
        self.lending.comes = false;
        self.lending.granted = 0;
        self.wake_all_watchers(&mut after.wakes);
    }

    /// Puts a value that was sent on a credit into its place. Returns how many values are then buffered. An
    /// error: no place was promised for it.
    pub(crate) fn push_from_far(&mut self, value: Erased, after: &mut After) -> Result<usize, Erased> {
        match self.use_promised() {
            None => return Err(value),
            Some(false) => {
                after.dropped.push(value);
                return Ok(0);
            }
            Some(true) => self.buffer.push_back(value),
        }
        self.lending.below = u32::try_from(self.buffer.len().div_ceil(2)).unwrap_or(u32::MAX);
        self.has_come(after);
        Ok(self.buffer.len())
    }

    /// Uses a promised place for a value that has come. `None`: none was promised. `false`: the value is
    /// destroyed, like those buffered before.
    pub(super) fn use_promised(&mut self) -> Option<bool> {
        if self.lending.known() == 0 {
            return None;
        }
        self.lending.granted -= 1;
        Some(self.poison.is_none() && !self.lending.receiver_gone)
    }

    /// Continues after a value has entered the buffer.
    pub(super) fn has_come(&mut self, after: &mut After) {
        self.wake_watchers(&mut after.wakes);
        self.lend_up_to(u32::MAX, &mut after.wakes);
        if self.sealed && !self.awaits_values() {
            // This was the last value: all other receivers find the channel closed.
            self.wake_all_watchers(&mut after.wakes);
        }
    }

    /// How many values are buffered.
    pub(crate) fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// Restores a value from the buffer of this channel's previous home.
    pub(crate) fn restore(&mut self, value: Erased, after: &mut After) {
        if self.poison.is_some() || self.lending.receiver_gone {
            return after.dropped.push(value);
        }
        self.buffer.push_back(value);
        self.wake_watchers(&mut after.wakes);
    }

    /// Returns a buffered value that the agent had. `None`: it could not be decoded.
    #[cfg(feature = "link")]
    pub(crate) fn bring_back(&mut self, value: Option<Erased>, after: &mut After) {
        self.lending.returning -= 1;
        let is_wanted = self.poison.is_none() && !self.lending.receiver_gone;
        match value {
            Some(value) if is_wanted => self.buffer.push_back(value),
            value => after.dropped.extend(value),
        }
        self.has_come(after);
    }

    /// Puts an agent into the receiver's place. The buffered values become the agent's. It does not block the
    /// senders here, so this half has no buffer any more.
    pub(crate) fn replace_receiver(&mut self, after: &mut After) -> Ring {
        self.release_forgotten(Handle::END, after);
        self.unwatch(Handle::END, after);
        self.begin_use(&mut after.wakes);
        self.outlet = Some(Heard::new());
        self.buffering = None;
        let buffered = self.buffer.take();
        self.carried = u32::try_from(buffered.len()).unwrap_or(u32::MAX);
        buffered
    }

    /// Asks agents to return all values of this handle's sends, which were dropped or forgotten. `true`: an
    /// answer is outstanding.
    pub(crate) fn ask_back_all(&mut self, handle: Handle, after: &mut After) -> bool {
        let (mut owed, mut asked) = (false, Vec::new());
        for offer in self.offers.iter_mut().filter(|o| o.handle == handle && o.owner == Owner::Operation) {
            let Standing::Away(away) = &mut offer.standing else { continue };
            owed = true;
            away.abandoned = true;
            if !std::mem::replace(&mut away.asked_back, true) {
                asked.push((away.demanded_by, offer.ticket));
            }
        }
        for (demanded_by, ticket) in asked {
            self.tell_taker(demanded_by, FromSender::AskedBack(ticket), after);
        }
        owed
    }

    /// Records a claim of the sender. As it goes out, offers of its clones that went elsewhere are withdrawn,
    /// to be held back here. As it comes back, all waiting offers are announced again.
    pub(crate) fn claim_sender(&mut self, out: bool, claimer: Handle, after: &mut After) {
        #[cfg(feature = "link")]
        self.keep_agent(after);
        self.sender_claimed = out;
        // Nothing is held back of a handle that has, or had, the claim for another node.
        let before = std::mem::replace(&mut self.sender_claimer, claimer);
        let claimer = if out { claimer } else { before };
        if out {
            // Earlier posts precede all sends within the claim, so they need not be held back.
            self.offers.iter_mut().filter(|o| o.owner != Owner::Operation).for_each(|o| o.handle = Handle::END);
        }
        let mut news = Vec::new();
        for offer in self.offers.iter_mut().filter(|o| o.handle != Handle::END && o.handle != claimer) {
            let is_choice = offer.choice.is_some() || offer.far.as_ref().is_some_and(|far| far.choice.is_some());
            match &mut offer.standing {
                Standing::Away(away) if out && !away.asked_back && !away.recalled => {
                    away.recalled = true;
                    news.push((away.demanded_by, FromSender::AskedBack(offer.ticket)));
                }
                Standing::Waiting if out && is_choice && offer.known == Known::Yes => {
                    offer.known = Known::AskedBack;
                    news.push((None, FromSender::AskedBack(offer.ticket)));
                }
                Standing::Waiting if !out => news.push((None, FromSender::Offered(offer.ticket))),
                _ => {}
            }
        }
        for (demanded_by, event) in news {
            self.tell_taker(demanded_by, event, after);
        }
    }

    pub(super) fn is_far_choice(&self, index: usize) -> bool {
        self.offers[index].far.as_ref().is_some_and(|far| far.choice.is_some())
    }

    /// Whether the value of this offer is not here, and comes on request.
    pub(super) fn is_absent(&self, index: usize) -> bool {
        self.is_far_choice(index) || self.is_unread(index)
    }

    pub(super) fn is_unread(&self, index: usize) -> bool {
        self.offers[index].far.as_ref().is_some_and(|far| far.unread != Unread::No)
    }

    /// Whether a handle elsewhere can read its value where it was sent.
    pub(super) fn is_readable(&self, index: usize) -> bool {
        self.offers[index].far.as_ref().is_some_and(|far| far.unread == Unread::Yes)
    }

    pub(super) fn is_granted_to(&self, index: usize, handle: Handle) -> bool {
        let ask = self.offers[index].far.as_ref().and_then(|far| far.ask);
        ask.is_some_and(|ask| ask.handle == handle && ask.granted.is_some())
    }

    /// Requests an offer whose value is elsewhere, unless it has been requested, or `handle` has requested
    /// another one here.
    pub(super) fn ask_for(&mut self, index: usize, handle: Handle, after: &mut After) {
        let asked = |o: &Offer| o.far.as_ref().is_some_and(|far| far.ask.is_some_and(|ask| ask.handle == handle));
        if handle != Handle::BUFFER && handle != Handle::OUTLET && self.offers.iter().any(asked) {
            return;
        }
        let Some(far) = self.offers[index].far.as_mut().filter(|far| far.ask.is_none()) else { return };
        let (of, number, request) = (far.of, far.number, self.next_ask);
        far.ask = Some(Ask { number: request, handle, granted: None });
        if far.unread == Unread::Yes {
            far.unread = Unread::Asked;
        }
        self.next_ask += 1;
        self.tell_inlet(of, FromReceiver::Reserve(number, request), after);
    }

    /// Gives up a request. A value that has come goes back, and other receives may request the offer.
    fn release_ask(&mut self, index: usize, after: &mut After) {
        let offer = &mut self.offers[index];
        if let Some(far) = &mut offer.far
            && far.ask.take().is_some_and(|ask| ask.granted.is_some())
        {
            let (of, number, value) = (far.of, far.number, offer.value.take());
            let was_unread = std::mem::replace(&mut far.unread, Unread::No) != Unread::No;
            #[cfg(feature = "link")]
            let was_unread = offer.forget_encoded() || was_unread;
            if value.is_some() || was_unread {
                self.tell_inlet(of, FromReceiver::Abort(number, value), after);
            }
        }
        self.wake_watchers(&mut after.wakes);
    }

    fn release_asks_if(&mut self, release: impl Fn(&FromFar, &Ask) -> bool, after: &mut After) {
        for index in 0..self.offers.len() {
            let offer = &self.offers[index];
            // A receive that is being polled decodes this value.
            #[cfg(feature = "link")]
            if offer.linked.read().is_some() {
                continue;
            }
            if offer.standing == Standing::Waiting
                && let Some(far) = &offer.far
                && far.ask.is_some_and(|ask| release(far, &ask))
            {
                self.release_ask(index, after);
            }
        }
    }

    #[inline]
    pub(super) fn release_asks(&mut self, handle: Handle, after: &mut After) {
        if self.inlet.is_some() || !self.lone_inlets.is_empty() {
            self.release_asks_if(|_, ask| ask.handle == handle, after);
        }
    }

    pub(super) fn give_way(&mut self, handle: Handle, own: Branching<'_>, after: &mut After) {
        let mine = own.map_or(0, |(decision, _)| decision.id());
        self.release_asks_if(
            |far, ask| ask.handle == handle && ask.granted.is_some() && far.choice.is_some_and(|theirs| theirs > mine),
            after,
        );
    }

    /// Gives up grants whose receivers have not been polled since `before`.
    pub(crate) fn release_stale_asks(&mut self, before: u32, after: &mut After) {
        let stale = |granted: u32| (before.wrapping_sub(granted) as i32) >= 0;
        self.release_asks_if(|_, ask| ask.granted.is_some_and(stale), after);
    }

    /// Whether a granted value waits for its receiver.
    pub(crate) fn has_grants(&self) -> bool {
        self.offers.iter().any(|o| o.far.as_ref().is_some_and(|far| far.ask.is_some_and(|ask| ask.granted.is_some())))
    }

    /// Adds an offer of a sender elsewhere. `choice`: it belongs to this choice, and has no value yet.
    /// Without a value or a choice it is unread.
    pub(crate) fn offer_from_far(
        &mut self,
        of: Handle,
        number: u64,
        value: Option<Erased>,
        choice: Option<u128>,
        ends: Ends,
        after: &mut After,
    ) {
        if self.find_far(of, number).is_some() {
            // Announced twice: when it was made, and at the end of a claim.
            return;
        }
        let unread = match (&value, choice) {
            (Some(_), _) | (_, Some(_)) => Unread::No,
            _ if self.unreadable => Unread::Asked,
            _ => Unread::Yes,
        };
        let mut slot = value;
        let offered = if slot.is_some() {
            // A policy that panics refuses this value; it must not end the agent, which has offers of other
            // sends.
            catch_unwind(AssertUnwindSafe(|| self.try_offer(of, &mut Source::Far(&mut slot), None, ends, after)))
                .unwrap_or(Offered::Failed(Why::Refused))
        } else {
            self.no_more_sends(ends).map_or(Offered::Queued(0, false), Offered::Failed)
        };
        let refused = match offered {
            Offered::Admitted => return self.tell_inlet(of, FromReceiver::Taken(number), after),
            Offered::Failed(why) => Some(why),
            Offered::Queued(..) | Offered::ChoiceGone => self.make_room(of, after).err(),
        };
        if let Some(why) = refused {
            return self.tell_inlet(of, FromReceiver::Failed(number, slot, why), after);
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.offers.push_back(Offer {
            ticket,
            handle: of,
            owner: Owner::Operation,
            has_turn: false,
            value: slot.map_or(Value::Gone, Value::Here),
            standing: Standing::Waiting,
            choice: None,
            waker: None,
            far: Some(FromFar { of, number, choice, unread, ask: None }),
            known: Known::No,
            #[cfg(feature = "link")]
            linked: Linked::NOTHING,
        });
        if choice.is_some() || unread != Unread::No {
            // A buffer with room requests the value itself.
            self.refill(after);
        }
        self.announce(ticket, of, after);
    }

    /// Supplies the value of an unread offer. An error returns it: the offer does not stand here.
    pub(crate) fn bring(&mut self, of: Handle, number: u64, value: Erased, after: &mut After) -> Result<(), Erased> {
        let Some(index) = self.find_far(of, number) else { return Err(value) };
        let offer = &mut self.offers[index];
        let (ticket, handle) = (offer.ticket, offer.handle);
        let stands = offer.standing == Standing::Waiting;
        let Some(far) = offer.far.as_mut().filter(|far| stands && far.unread != Unread::No) else {
            return Err(value);
        };
        far.unread = Unread::No;
        let ask = far.ask.take();
        offer.value = Value::Here(value);
        self.refill(after);
        if let Some(ask) = ask {
            // The requester may now request another value.
            self.wake_watcher(ask.handle, &mut after.wakes);
        }
        self.announce(ticket, handle, after);
        Ok(())
    }

    /// The agent and the number of this offer, if it came from elsewhere itself.
    pub(crate) fn far_source(&self, ticket: u64) -> Option<(Handle, u64)> {
        let far = self.offers[self.find(ticket)?].far.as_ref()?;
        Some((far.of, far.number))
    }

    /// Sets the names of the offers that come through this agent.
    pub(crate) fn has_names(&mut self, of: Handle, names: Names) {
        let all = self.names.list();
        all.retain(|(other, _)| *other != of);
        all.push((of, names));
    }

    pub(crate) fn names_of(&self, of: Handle) -> Option<Names> {
        self.names.iter().find(|(other, _)| *other == of).map(|(_, names)| names.clone())
    }

    pub(super) fn find_far(&self, of: Handle, number: u64) -> Option<usize> {
        self.offers.iter().position(|o| o.far.as_ref().is_some_and(|far| far.of == of && far.number == number))
    }

    /// Sends an event to the agent of this handle's sender elsewhere. If that agent has disconnected, the
    /// event is discarded and its value is dropped.
    pub(super) fn tell_inlet(&mut self, of: Handle, event: FromReceiver<Erased>, after: &mut After) {
        match self.inlet_of(of) {
            Some(inlet) => inlet.tell(event, &mut after.wakes),
            None => after.dropped.extend(event.into_value()),
        }
    }

    /// The unread events of the agent of this handle's sender elsewhere.
    pub(crate) fn inlet_of(&mut self, of: Handle) -> Option<&mut Heard<FromReceiver<Erased>>> {
        if of == Handle::END {
            return self.inlet.as_mut();
        }
        self.lone_inlets.iter_mut().find(|(handle, _)| *handle == of).map(|(_, inlet)| inlet)
    }

    /// Requests an event at the next receive that waits, for the agent of this handle's sender, whose next
    /// value comes only then.
    pub(crate) fn ask_awaited(&mut self, of: Handle, after: &mut After) {
        if !self.ask_awaited.contains(&of) {
            self.ask_awaited.push(of);
        }
        // An agent in the receiver's place takes every available value.
        if self.outlet.is_some() || self.watchers.counted() > 0 {
            self.tell_awaited(after);
        }
    }

    /// Notifies the agents that asked, because a receive waits.
    #[cold]
    pub(super) fn tell_awaited(&mut self, after: &mut After) {
        for of in self.ask_awaited.take() {
            self.tell_inlet(of, FromReceiver::Awaited, after);
        }
    }

    /// Adds the agent of a handle of a shared sender elsewhere.
    pub(crate) fn add_lone_inlet(&mut self, handle: Handle, after: &mut After) {
        #[cfg(feature = "link")]
        self.keep_agent(after);
        #[cfg(not(feature = "link"))]
        let _ = after;
        self.lone_inlets.push((handle, Heard::new()));
    }

    /// Removes that agent, and returns its unread events. `lost`: its node is lost, so its offers are
    /// withdrawn; otherwise they stay, like those of a dropped handle.
    pub(crate) fn remove_lone_inlet(
        &mut self,
        of: Handle,
        lost: bool,
        after: &mut After,
    ) -> Option<Heard<FromReceiver<Erased>>> {
        let at = self.lone_inlets.iter().position(|(handle, _)| *handle == of)?;
        if lost {
            self.withdraw_all_from_far(of, after);
        }
        self.drop_choices_from_far(of, after);
        self.names.list().retain(|(other, _)| *other != of);
        Some(self.lone_inlets.swap_remove(at).1)
    }

    /// Supplies a requested value. An error returns it: it is no longer needed.
    pub(crate) fn grant(
        &mut self,
        of: Handle,
        number: u64,
        request: u64,
        value: Erased,
        tick: u32,
        after: &mut After,
    ) -> Result<(), Erased> {
        let Some(index) = self.find_far(of, number) else { return Err(value) };
        let offer = &mut self.offers[index];
        let Some(ask) = offer.far.as_mut().and_then(|far| far.ask.as_mut()) else { return Err(value) };
        if ask.number != request {
            return Err(value);
        }
        if ask.handle != Handle::BUFFER {
            let (handle, ticket) = (ask.handle, offer.ticket);
            ask.granted = Some(tick);
            offer.value = Value::Here(value);
            if let Some(outlet) = self.outlet.as_mut().filter(|_| handle == Handle::OUTLET) {
                outlet.tell(FromSender::Unlocked(ticket), &mut after.wakes);
            }
            // Only this receiver may take it.
            self.wake_watcher(handle, &mut after.wakes);
            return Ok(());
        }
        match catch_unwind(AssertUnwindSafe(|| self.ask_policy())).unwrap_or(Admit::Refuse) {
            Admit::Wait => {
                // Another value has taken the room meanwhile.
                if let Some(far) = &mut self.offers[index].far {
                    far.ask = None;
                }
                return Err(value);
            }
            Admit::Refuse => {
                self.offers[index].value = Value::Here(value);
                self.fail(index, Why::Refused, after);
            }
            admit => {
                self.admit(admit, &mut Source::Far(&mut Some(value)), after);
                if let Some(offer) = self.remove(index, after) {
                    self.tell_taken(offer, after);
                }
                self.wake_watchers(&mut after.wakes);
            }
        }
        Ok(())
    }

    /// Answers a request with an unread offer. `false`: the requester cannot read the value where it is.
    pub(crate) fn grant_unread(&mut self, of: Handle, number: u64, request: u64, tick: u32, after: &mut After) -> bool {
        let Some(index) = self.find_far(of, number) else { return false };
        let Some(handle) = self.offers[index].far.as_ref().and_then(|far| far.ask).map(|ask| ask.handle) else {
            return false;
        };
        let reads = !self.unreadable && self.reads_unread(handle);
        let Some(far) = self.offers[index].far.as_mut().filter(|_| reads) else { return false };
        let Some(ask) = far.ask.as_mut().filter(|ask| ask.number == request) else { return false };
        ask.granted = Some(tick);
        far.unread = Unread::Yes;
        let ticket = self.offers[index].ticket;
        if let Some(outlet) = self.outlet.as_mut().filter(|_| handle == Handle::OUTLET) {
            outlet.tell(FromSender::Unlocked(ticket), &mut after.wakes);
        }
        self.wake_watcher(handle, &mut after.wakes);
        true
    }

    /// Whether the party that requests through this handle can read a value where it was sent.
    fn reads_unread(&mut self, handle: Handle) -> bool {
        if handle == Handle::OUTLET {
            return self.outlet_reads;
        }
        self.demands_of(handle).is_some_and(|demands| demands.reads)
    }

    /// Whether this request stands and has not been granted.
    pub(crate) fn is_asked(&self, of: Handle, number: u64, request: u64) -> bool {
        let ask = self.find_far(of, number).and_then(|index| self.offers[index].far.as_ref()?.ask);
        ask.is_some_and(|ask| ask.number == request && ask.granted.is_none())
    }

    /// Withdraws the offer of a sender elsewhere. The inner `None`: it had no value yet. `None`: it was taken
    /// or has failed; an event reports it to the agent, now or later.
    pub(crate) fn withdraw_from_far(&mut self, of: Handle, number: u64, after: &mut After) -> Option<Option<Erased>> {
        let index = self.find_far(of, number)?;
        let ticket = self.offers[index].ticket;
        match &mut self.offers[index].standing {
            Standing::Waiting => {}
            // It was forwarded to another agent, which is asked for it; its return causes the event
            // `Withdrawn`.
            Standing::Away(away) => {
                away.abandoned = true;
                let demanded_by = away.demanded_by;
                if !std::mem::replace(&mut away.asked_back, true) {
                    self.tell_taker(demanded_by, FromSender::AskedBack(ticket), after);
                }
                return None;
            }
            Standing::Held(_) | Standing::Failed(_) => return None,
            #[cfg(feature = "link")]
            Standing::Spent => return None,
        }
        let offer = self.remove(index, after)?;
        let is_choice = offer.far.as_ref().is_some_and(|far| far.choice.is_some());
        if let (true, Some(outlet), None) = (is_choice, &mut self.outlet, self.credits) {
            outlet.tell(FromSender::AskedBack(ticket), &mut after.wakes);
        }
        if let Some(ask) = offer.far.and_then(|far| far.ask) {
            // It requested this offer, and may now request another.
            self.wake_watcher(ask.handle, &mut after.wakes);
        }
        self.refill(after);
        Some(offer.value.back())
    }

    /// Asks for a reservation back, for the sender's choice.
    pub(crate) fn revoke(&mut self, of: Handle, number: u64, after: &mut After) {
        let Some(index) = self.find_far(of, number) else { return };
        let ticket = self.offers[index].ticket;
        match &self.offers[index].standing {
            Standing::Waiting => self.release_ask(index, after),
            Standing::Away(away) => self.tell_taker(away.demanded_by, FromSender::Revoke(ticket), after),
            Standing::Held(_) | Standing::Failed(_) => {}
            #[cfg(feature = "link")]
            Standing::Spent => {}
        }
    }

    /// Hands an announced offer to the agent of the receiver elsewhere.
    pub(crate) fn collect(&mut self, ticket: u64, after: &mut After) -> Collected {
        let Some(index) = self.find(ticket) else { return Collected::Gone };
        if !self.acts(self.offers[index].handle) {
            // Held back; it is announced again when the claim ends.
            return Collected::Gone;
        }
        let ended = self.has_ended();
        let offer = &mut self.offers[index];
        if offer.standing != Standing::Waiting || self.credits.is_some() || ended {
            // With credits it waits here for one; after the end it fails here.
            return Collected::Gone;
        }
        if offer.far.as_ref().is_some_and(|far| far.unread != Unread::No) {
            self.ask_for(index, Handle::OUTLET, after);
            return Collected::Gone;
        }
        let choice = offer.choice.as_ref().map(|(decision, _)| decision.id());
        if let Some(choice) = choice.or(offer.far.as_ref().and_then(|far| far.choice)) {
            return match std::mem::replace(&mut offer.known, Known::Yes) {
                Known::No => Collected::Choice(choice),
                known => {
                    offer.known = known;
                    Collected::Gone
                }
            };
        }
        match offer.value.take() {
            Some(value) => {
                offer.standing = Standing::Away(Away::default());
                Collected::Firm(value)
            }
            None => Collected::Gone,
        }
    }

    /// Reserves an offer of a choice for the receiver elsewhere. `reads`: the agent can take unread values.
    pub(crate) fn reserve(
        &mut self,
        ticket: u64,
        reads: bool,
        reserver: &Arc<dyn Reserver>,
        after: &mut After,
    ) -> Reserved<Given<Erased>> {
        self.outlet_reads = reads;
        let Some(index) = self.find(ticket) else { return Reserved::Gone };
        let acts = self.acts(self.offers[index].handle) && self.offers[index].known != Known::AskedBack;
        let ended = self.has_ended();
        if self.is_far_choice(index) {
            return self.reserve_from_far(index, ended || !acts, after);
        }
        let offer = &mut self.offers[index];
        let Some((decision, _)) = &offer.choice else { return Reserved::Gone };
        // Away: the value of its previous reservation is on its way back, and the next reservation waits for
        // that.
        if !matches!(offer.standing, Standing::Waiting | Standing::Away(_)) || ended || !acts {
            return Reserved::Gone;
        }
        match decision.reserve(reserver) {
            Reserve::Dead => {
                if self.sender_leaving {
                    // No send will take it back.
                    self.strand(index, after);
                }
                Reserved::Gone
            }
            Reserve::Later => Reserved::Later,
            Reserve::Granted => {
                let value = match &mut offer.value {
                    // The pool stays known as the value's home, in case the value returns.
                    Value::Pooled(pool) => pool.lock().take(),
                    value => value.take(),
                };
                offer.standing = Standing::Away(Away::default());
                value.map_or(Reserved::Gone, |value| Reserved::Granted(value.into()))
            }
        }
    }

    /// Like [`reserve`](Self::reserve), for a choice that is elsewhere too: it is asked in turn.
    fn reserve_from_far(&mut self, index: usize, is_off: bool, after: &mut After) -> Reserved<Given<Erased>> {
        match self.offers[index].standing {
            _ if is_off => return Reserved::Gone,
            Standing::Waiting => {}
            // The value of its previous reservation is on its way back, and the carrier of that reserves it
            // anew.
            Standing::Away(_) => return Reserved::Later,
            Standing::Held(_) | Standing::Failed(_) => return Reserved::Gone,
            #[cfg(feature = "link")]
            Standing::Spent => return Reserved::Gone,
        }
        if !self.is_granted_to(index, Handle::OUTLET) {
            self.ask_for(index, Handle::OUTLET, after);
            return Reserved::Later;
        }
        let is_unread = self.is_readable(index);
        let offer = &mut self.offers[index];
        offer.standing = Standing::Away(Away::default());
        let given = offer.value.take().map(Given::Value).or(is_unread.then_some(Given::Unread));
        given.map_or(Reserved::Gone, Reserved::Granted)
    }

    /// Handles the receive of the value elsewhere; with `held`, by an extended receive that has not ended.
    pub(crate) fn far_took(&mut self, ticket: u64, held: bool, after: &mut After) {
        let Some(index) = self.find(ticket) else { return };
        let offer = &mut self.offers[index];
        if let (Some((decision, branch)), Standing::Away(_)) = (&offer.choice, &offer.standing) {
            decision.confirm(*branch, &mut after.wakes);
        }
        let was_held = matches!(offer.standing, Standing::Held(_));
        let from = offer.far.as_ref().map(|far| (far.of, far.number));
        if held {
            offer.standing = Standing::Held(Handle::END);
            self.held_offers += u32::from(!was_held);
            if let Some((of, number)) = from {
                self.tell_inlet(of, FromReceiver::Held(number), after);
            }
            return;
        }
        self.held_offers -= u32::from(was_held);
        #[cfg(feature = "link")]
        if self.remote.is_some() {
            return self.far_took_value_here(index, after);
        }
        if let Some(offer) = self.remove(index, after) {
            after.wakes.add(offer.waker);
            if let Some((decision, _)) = offer.choice {
                decision.nudge(&mut after.wakes);
            }
        }
        if let Some((of, number)) = from {
            let event = if was_held { FromReceiver::Released(number) } else { FromReceiver::Taken(number) };
            self.tell_inlet(of, event, after);
        }
        self.wake_settlers(&mut after.wakes);
    }

    /// Takes back a value that the receiver elsewhere had reserved, or that the agent could not hand over;
    /// the offer stands.
    pub(crate) fn far_gave_back(&mut self, ticket: u64, value: Given<Erased>, after: &mut After) {
        self.far_gave(ticket, value, false, after);
    }

    /// `answers`: to its withdrawal. Otherwise that answer is still to come.
    fn far_gave(&mut self, ticket: u64, value: Given<Erased>, answers: bool, after: &mut After) {
        let Some(index) = self.find(ticket) else { return after.dropped.extend(value.read()) };
        let offer = &mut self.offers[index];
        let away = match &mut offer.standing {
            Standing::Away(away) => std::mem::take(away),
            _ => return after.dropped.extend(value.read()),
        };
        offer.standing = Standing::Waiting;
        if answers {
            offer.known = Known::No;
        } else if away.recalled && offer.known == Known::Yes {
            offer.known = Known::AskedBack;
        }
        match (&mut offer.value, value) {
            (Value::Pooled(pool), Given::Value(value)) => pool.lock().put(value),
            (slot, Given::Value(value)) => *slot = Value::Here(value),
            (_, Given::Unread) => {}
            (_, Given::Unreadable) => {
                self.unreadable = true;
                offer.far.iter_mut().for_each(|far| far.unread = Unread::Asked);
            }
        }
        if let Some((decision, _)) = &offer.choice {
            decision.abort(&mut after.wakes);
        }
        if away.asked_back {
            // The party that asked for it waits for this, and takes it now, unless another receive does
            // first.
            after.wakes.add(offer.waker.take());
        }
        if offer.far.is_some() {
            return self.far_gave_back_further(index, away, after);
        }
        if away.abandoned {
            if let Some(mut offer) = self.remove(index, after) {
                let (handle, owner, value) = (offer.handle, offer.owner, offer.value.take());
                if owner == Owner::Operation {
                    value.into_iter().for_each(|value| self.kept.push(Kept { handle, value, unknown: None }));
                } else {
                    #[cfg(feature = "link")]
                    let value = self.keep_spent(value);
                    after.dropped.extend(value);
                }
            }
            self.wake_settlers(&mut after.wakes);
        } else if let Some(why) = away.failing {
            self.fail(index, why, after);
        } else if self.credits.is_some() {
            self.refill(after);
        } else if self.outlet.is_none() {
            // It belonged to one of several handles: the others look again.
            self.rouse(after);
        } else if self.offers[index].known == Known::No {
            // While a claim holds it back it is not announced; the end of the claim announces it.
            self.offer_again(index, after);
        }
    }

    /// The same for an offer that came from elsewhere itself.
    fn far_gave_back_further(&mut self, index: usize, away: Away, after: &mut After) {
        if let Some(why) = away.failing {
            self.fail(index, why, after);
        } else if away.abandoned {
            if let Some(offer) = self.remove(index, after)
                && let Some(far) = offer.far
            {
                self.tell_inlet(far.of, FromReceiver::Withdrawn(far.number, offer.value.back()), after);
            }
        } else if self.is_unread(index) && self.inlet_of(self.offers[index].handle).is_none() {
            // Its sender is lost, and no party can read its value.
            self.remove(index, after);
        } else if self.is_far_choice(index) {
            self.release_ask(index, after);
            if self.offers[index].known == Known::No && self.outlet.is_some() {
                self.offer_again(index, after);
            }
        } else {
            let (ticket, handle) = (self.offers[index].ticket, self.offers[index].handle);
            self.announce(ticket, handle, after);
        }
    }

    /// Handles the loss of the receiver's node: it is unknown whether a receive there has returned the value.
    pub(crate) fn far_lost(&mut self, ticket: u64, value: Given<Erased>, id: MessageId, after: &mut After) {
        let value = value.read();
        let Some(index) = self.find(ticket) else { return after.dropped.extend(value) };
        let offer = &mut self.offers[index];
        let Standing::Away(away) = &offer.standing else { return after.dropped.extend(value) };
        if let Some((of, number)) = offer.far.as_ref().map(|far| (far.of, far.number)) {
            self.remove(index, after);
            return self.tell_inlet(of, FromReceiver::Lost(number, value, id), after);
        }
        // Only a value from elsewhere is unread.
        let Some(value) = value else { return };
        if away.abandoned || offer.owner == Owner::Nobody {
            let kept = Kept { handle: offer.handle, value, unknown: Some(id) };
            if let Some((decision, branch)) = &offer.choice {
                decision.confirm(*branch, &mut after.wakes);
            }
            if offer.owner == Owner::Operation {
                self.kept.push(kept);
            } else {
                after.dropped.push(kept.value);
            }
            self.remove(index, after);
            return self.wake_settlers(&mut after.wakes);
        }
        match &mut offer.value {
            Value::Pooled(pool) => pool.lock().put(value),
            slot => *slot = Value::Here(value),
        }
        offer.standing = Standing::Failed(Failed::Unknown(id));
        after.wakes.add(offer.waker.take());
        if let Some((decision, branch)) = &offer.choice {
            // No other branch could be certain that the choice has not happened already.
            decision.confirm(*branch, &mut after.wakes);
        }
    }

    pub(crate) fn receiver_is_lost(&self) -> bool {
        self.receiver_lost
    }

    /// Records that the lost node is, or will be, that of the end here.
    pub(crate) fn own_node_leaves(&mut self) {
        self.own_node_left = true;
    }

    /// Handles the loss of the receiver's node: no more values will be taken.
    pub(crate) fn lose_receiver(&mut self, ends: Ends) {
        self.receiver_lost = !ends.no_receivers;
    }

    /// Handles the loss of the sender's node: its offers are withdrawn, and receives fail once they have the
    /// admitted values.
    pub(crate) fn lose_sender(&mut self, ends: Ends, after: &mut After) {
        self.sender_lost = !ends.no_senders || self.awaits_values();
        self.withdraw_all_from_far(Handle::END, after);
    }

    /// Notifies the agent in the receiver's place that a task here waits for the channel's end.
    pub(crate) fn watch_end(&mut self, after: &mut After) {
        if let Some(outlet) = &mut self.outlet {
            outlet.tell(FromSender::Watched, &mut after.wakes);
        }
    }

    /// Drops the offers of a disconnected agent's choices, and its unread ones: no party can supply their
    /// values any more.
    pub(crate) fn drop_choices_from_far(&mut self, of: Handle, after: &mut After) {
        let theirs = |o: &Offer| {
            let is_open = |far: &FromFar| {
                let is_absent = far.choice.is_some() || far.unread != Unread::No;
                far.of == of && is_absent && matches!(o.value, Value::Gone)
            };
            o.standing == Standing::Waiting && o.far.as_ref().is_some_and(is_open)
        };
        while let Some(index) = self.offers.iter().position(theirs) {
            let known = self.remove(index, after).filter(|offer| offer.known == Known::Yes);
            if let (Some(offer), Some(outlet)) = (known, &mut self.outlet) {
                outlet.tell(FromSender::AskedBack(offer.ticket), &mut after.wakes);
            }
        }
        // Receivers that had asked for them may ask for others.
        self.wake_all_watchers(&mut after.wakes);
    }

    fn withdraw_all_from_far(&mut self, of: Handle, after: &mut After) {
        let theirs = |o: &Offer| o.far.as_ref().is_some_and(|far| far.of == of) && o.standing == Standing::Waiting;
        while let Some(index) = self.offers.iter().position(theirs) {
            let value = self.remove(index, after).and_then(|offer| offer.value.back());
            after.dropped.extend(value);
        }
    }

    /// Handles the return of a withdrawn offer that has not been taken. No value: it is still here, or on its
    /// way back. `timed_out`: why the offer fails if a deadline withdrew it.
    pub(crate) fn far_withdrew(
        &mut self,
        ticket: u64,
        value: Option<Given<Erased>>,
        timed_out: Why,
        after: &mut After,
    ) {
        let read = |value: Option<Given<Erased>>| value.and_then(Given::read);
        let Some(index) = self.find(ticket) else { return after.dropped.extend(read(value)) };
        let offer = &mut self.offers[index];
        match &mut offer.standing {
            Standing::Away(away) => {
                if away.asked_back && !away.abandoned && !away.anew {
                    away.failing = Some(timed_out);
                }
                if let Some(value) = value {
                    self.far_gave(ticket, value, true, after);
                }
            }
            Standing::Waiting if offer.known == Known::AskedBack => {
                after.dropped.extend(read(value));
                offer.known = Known::No;
                self.offer_again(index, after);
            }
            _ => after.dropped.extend(read(value)),
        }
    }

    /// Announces an offer that no party elsewhere knows to the agent, unless it is held back.
    fn offer_again(&mut self, index: usize, after: &mut After) {
        let (ticket, handle) = (self.offers[index].ticket, self.offers[index].handle);
        if self.acts(handle) {
            self.announce(ticket, handle, after);
        }
    }

    /// Handles the failure of an offer elsewhere.
    pub(crate) fn far_failed(&mut self, ticket: u64, value: Option<Given<Erased>>, why: Why, after: &mut After) {
        let read = |value: Option<Given<Erased>>| value.and_then(Given::read);
        let Some(index) = self.find(ticket) else { return after.dropped.extend(read(value)) };
        match (&mut self.offers[index].standing, value) {
            (Standing::Away(away), value) => {
                away.failing = Some(why);
                if let Some(value) = value {
                    self.far_gave_back(ticket, value, after);
                }
            }
            (Standing::Waiting, _) => {
                self.fail(index, why, after);
            }
            (_, value) => after.dropped.extend(read(value)),
        }
    }

    /// Removes the agent. The values that it had not handed over count as received and dropped.
    pub(crate) fn agent_gone(&mut self, after: &mut After) {
        self.credits = None;
        self.carried = 0;
        if let Some(outlet) = self.outlet.take() {
            after.stale.add(outlet.waker);
            after.dropped.extend(outlet.events.into_iter().filter_map(FromSender::into_value));
        }
        let away = |o: &Offer| matches!(&o.standing, Standing::Away(away) if away.demanded_by.is_none());
        while let Some(ticket) = self.offers.iter().find(|o| away(o)).map(|o| o.ticket) {
            self.far_took(ticket, false, after);
        }
    }

    pub(super) fn wake_settlers(&mut self, wakes: &mut Wakes) {
        for idle in self.idle.take() {
            wakes.add(idle.waker);
        }
    }

    /// Returns the offers that came from elsewhere, because the channel has ended.
    pub(crate) fn fail_far(&mut self, ends: Ends, after: &mut After) {
        let Some(why) = self.no_more_sends(ends) else { return };
        let mut index = 0;
        while index < self.offers.len() {
            let offer = &self.offers[index];
            if offer.far.is_some() && offer.standing == Standing::Waiting {
                index = self.fail(index, why.clone(), after);
            } else {
                index += 1;
            }
        }
    }
}
