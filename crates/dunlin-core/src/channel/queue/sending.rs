//! What sends do with the queue: offer a value, withdraw it, post it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Poll, Waker};

use super::events::{FromReceiver, FromSender};
use super::offer::{Away, Ends, Known, Offer, Offered, Owner, Retracted, Stand, Standing, Stranded};
use super::value::{Pool, Source, Value};
use super::{Queue, commit};
use crate::channel::after::After;
use crate::channel::policy::{Admit, Overflow};
#[cfg(feature = "link")]
use crate::channel::words::Word;
use crate::choice::decision::{Branching, Decision, SKIPPED, Settled};
use crate::error::{Failed, MessageId, Why};
use crate::handle::Handle;
use crate::wake;
use crate::wake::Wakes;

impl Queue {
    /// Offers the value in `slot`, which stays there if the offer fails.
    pub(crate) fn offer(
        &mut self,
        handle: Handle,
        source: &mut Source<'_>,
        choice: Option<(&Arc<Decision>, u32)>,
        ends: Ends,
        waker: &Waker,
        after: &mut After,
    ) -> Offered {
        #[cfg(feature = "link")]
        self.needs_agent_for(handle, after);
        #[cfg(feature = "link")]
        self.drop_all_spent(handle, after);
        self.drop_kept(handle, after);
        let own = choice.map(|(decision, branch)| (&**decision, branch));
        let offered = self.try_offer(handle, source, own, ends, after);
        if !matches!(offered, Offered::Queued(..)) {
            return offered;
        }
        if let Err(why) = self.make_room(handle, after) {
            return if commit(own) { Offered::Failed(why) } else { Offered::ChoiceGone };
        }
        // First, while the value has not moved: cloning a waker runs code of the executor.
        let waker = if choice.is_none() { Some(wake::keep(waker)) } else { None };
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        #[cfg(feature = "link")]
        let linked = self.take_encoded();
        self.offers.push_back(Offer {
            ticket,
            handle,
            owner: Owner::Operation,
            has_turn: false,
            value: source.offered(),
            standing: Standing::Waiting,
            choice: choice.map(|(decision, branch)| (decision.clone(), branch)),
            waker,
            far: None,
            known: Known::No,
            #[cfg(feature = "link")]
            linked,
        });
        Offered::Queued(ticket, self.announce(ticket, handle, after))
    }

    /// Makes room for one more waiting sender under the bound. Senders that a claim holds back do not count
    /// against the claimer.
    pub(super) fn make_room(&mut self, handle: Handle, after: &mut After) -> Result<(), Why> {
        let Some(bound) = self.senders_bound else { return Ok(()) };
        let apart = self.sender_claimed && self.acts(handle);
        let waits = |o: &Offer| matches!(o.standing, Standing::Waiting) && (!apart || o.handle == handle);
        if self.offers.iter().filter(|o| waits(o)).count() < bound.max as usize {
            return Ok(());
        }
        let expires = match bound.overflow {
            Overflow::Fifo => self.offers.iter().position(waits),
            Overflow::Lifo => self.offers.iter().rposition(waits),
            Overflow::Reject => None,
        };
        self.fail(expires.ok_or(Why::Refused)?, Why::Expired, after);
        Ok(())
    }

    /// Announces a new offer to the party that may take it. `true`: a receiver waited for one.
    pub(super) fn announce(&mut self, ticket: u64, handle: Handle, after: &mut After) -> bool {
        if self.credits.is_some() {
            #[cfg(feature = "link")]
            self.ask_for_bytes(after);
            return false;
        }
        #[cfg(feature = "link")]
        if self.remote.is_some() && self.outlet.is_some() {
            return self.offer_over_link(ticket, after);
        }
        if let Some(outlet) = &mut self.outlet {
            outlet.tell(FromSender::Offered(ticket), &mut after.wakes);
            return true;
        }
        self.acts(handle) && self.wake_watchers(&mut after.wakes)
    }

    /// Sends the value in `slot` if that is possible at once. `Queued`: the value would have to wait, and is
    /// not queued.
    pub(crate) fn try_offer(
        &mut self,
        handle: Handle,
        source: &mut Source<'_>,
        own: Branching<'_>,
        ends: Ends,
        after: &mut After,
    ) -> Offered {
        if let Some(why) = self.no_more_sends(ends) {
            return if commit(own) { Offered::Failed(why) } else { Offered::ChoiceGone };
        }
        let admit = self.admit_at_once(handle);
        if admit == Admit::Wait {
            return Offered::Queued(0, false);
        }
        #[cfg(feature = "link")]
        if self.lacks_bytes() {
            return Offered::Queued(0, false);
        }
        if !commit(own) {
            return Offered::ChoiceGone;
        }
        if admit == Admit::Refuse {
            return Offered::Failed(Why::Refused);
        }
        self.admit(admit, source, after);
        self.wake_watchers(&mut after.wakes);
        Offered::Admitted
    }

    /// What the policy decides on one more value from this handle that is not offered yet.
    pub(super) fn admit_at_once(&mut self, handle: Handle) -> Admit {
        if self.buffering.is_none() && self.credits.is_none() {
            return Admit::Wait;
        }
        // Earlier offers precede it.
        let behind = self.offers.iter().any(|o| matches!(o.standing, Standing::Waiting) && self.acts(o.handle));
        if behind || !self.acts(handle) {
            return Admit::Wait;
        }
        self.ask_policy()
    }

    /// What the policy decides on one more value. At a half without a buffer it waits; at the half of a
    /// sender with credits it waits for a credit.
    pub(super) fn ask_policy(&mut self) -> Admit {
        if let Some(credits) = self.credits {
            return if credits > 0 { Admit::Keep } else { Admit::Wait };
        }
        // A promised place is not free.
        let queued = self.queued() + self.lending.granted();
        self.buffering.as_mut().map_or(Admit::Wait, |buffering| buffering.admit(queued))
    }

    /// Takes a value in, if there is one.
    pub(super) fn admit(&mut self, admit: Admit, source: &mut Source<'_>, after: &mut After) {
        if let (Some(credits), Some(outlet)) = (&mut self.credits, &mut self.outlet) {
            *credits -= 1;
            #[cfg(feature = "link")]
            if let Some(bytes) = self.remote.as_mut().and_then(|remote| remote.take_bytes()) {
                after.dropped.extend(source.take());
                return self.say(Word::Sent { value: bytes }, after);
            }
            return source.take().into_iter().for_each(|value| outlet.tell(FromSender::Sent(value), &mut after.wakes));
        }
        if self.make_place(admit, after) {
            self.buffer.push_from(source);
        } else {
            after.dropped.extend(source.take());
        }
    }

    /// Makes the place in the buffer that the policy grants one more value. `false`: it grants none.
    pub(super) fn make_place(&mut self, admit: Admit, after: &mut After) -> bool {
        match admit {
            Admit::DropThis => return false,
            Admit::DropOldest => after.dropped.extend(self.buffer.pop_front()),
            Admit::ReplaceNewest => after.dropped.extend(self.buffer.pop_back()),
            Admit::Keep | Admit::Wait | Admit::Refuse => {}
        }
        true
    }

    /// Admits waiting offers as far as the policy allows, and wakes receivers for the admitted values.
    pub(super) fn refill(&mut self, after: &mut After) {
        let before = self.offers.len();
        self.lend_in_turn(&mut after.wakes);
        self.admit_waiting(after);
        self.lend_the_rest(self.offers.len() < before, &mut after.wakes);
        if self.offers.len() < before && !self.buffer.is_empty() {
            self.wake_watchers(&mut after.wakes);
        }
    }

    pub(super) fn admit_waiting(&mut self, after: &mut After) {
        if self.sealed || self.poison.is_some() {
            return;
        }
        let mut index = 0;
        while index < self.offers.len() {
            let offer = &self.offers[index];
            if !matches!(offer.standing, Standing::Waiting) || !self.acts(offer.handle) {
                index += 1;
                continue;
            }
            // This may run in a receive, whose value must not be lost if a policy panics.
            let admit = catch_unwind(AssertUnwindSafe(|| self.ask_policy())).unwrap_or(Admit::Refuse);
            if admit == Admit::Wait {
                return;
            }
            if self.is_absent(index) {
                self.ask_for(index, Handle::BUFFER, after);
                index += 1;
                continue;
            }
            #[cfg(feature = "link")]
            if self.waits_for_bytes(index, after) {
                return;
            }
            match self.settle(index, None, &mut after.wakes) {
                Settled::Both | Settled::OwnGone => {}
                Settled::Busy => {
                    index += 1;
                    continue;
                }
                Settled::Dead => {
                    self.strand(index, after);
                    continue;
                }
            }
            if admit == Admit::Refuse {
                index = self.fail(index, Why::Refused, after);
                continue;
            }
            #[cfg(feature = "link")]
            if self.send_waiting(index, after) {
                continue;
            }
            if let Some(mut offer) = self.remove(index, after) {
                #[cfg(feature = "link")]
                self.admit_bytes(admit, &mut offer.value, after);
                let mut value = offer.value.take();
                if value.is_some() {
                    self.admit(admit, &mut Source::Far(&mut value), after);
                }
                self.tell_taken(offer, after);
            }
        }
    }

    /// Decides the choice of the offer at `index`, and the taker's own choice.
    #[inline]
    pub(super) fn settle(&self, index: usize, own: Branching<'_>, wakes: &mut Wakes) -> Settled {
        match &self.offers[index].choice {
            Some((decision, branch)) => decision.settle(*branch, own, wakes),
            None if commit(own) => Settled::Both,
            None => Settled::OwnGone,
        }
    }

    /// Moves a dead offer out of the queue, so that no later scan visits it.
    pub(super) fn strand(&mut self, index: usize, after: &mut After) {
        if let Some(offer) = self.remove(index, after) {
            let (ticket, handle, value) = (offer.ticket, offer.handle, offer.value.back());
            self.stranded.push(Stranded { ticket, handle, value });
        }
    }

    /// Fails the offer. One from elsewhere goes back there at once; the owner of any other fetches its value.
    /// Returns the index to continue with.
    pub(super) fn fail(&mut self, index: usize, why: Why, after: &mut After) -> usize {
        if self.offers[index].far.is_some() {
            if let Some(offer) = self.remove(index, after)
                && let Some(far) = offer.far
            {
                self.tell_inlet(far.of, FromReceiver::Failed(far.number, offer.value.back(), why), after);
                if let Some(ask) = far.ask {
                    // It may request another one.
                    self.wake_watcher(ask.handle, &mut after.wakes);
                }
            }
            return index;
        }
        if self.offers[index].owner == Owner::Nobody {
            self.discard_offer(index, after);
            return index;
        }
        let offer = &mut self.offers[index];
        offer.standing = Standing::Failed(why.into());
        after.wakes.add(offer.waker.take());
        if let Some((decision, _)) = &offer.choice {
            decision.nudge(&mut after.wakes);
        }
        index + 1
    }

    /// Reports that the offer has been taken: wakes its sender here, or notifies it elsewhere.
    pub(super) fn tell_taken(&mut self, offer: Offer, after: &mut After) {
        after.wakes.add(offer.waker);
        if let Some(far) = offer.far {
            self.tell_inlet(far.of, FromReceiver::Taken(far.number), after);
        }
    }

    /// The state of the offer under `ticket`; a failed one is removed and its value put back.
    pub(crate) fn look(
        &mut self,
        ticket: u64,
        source: &mut Source<'_>,
        ends: Ends,
        waker: &Waker,
        after: &mut After,
    ) -> Stand {
        let Some(index) = self.find(ticket) else {
            // A stranded offer is dead, not taken: its choice was decided for another branch.
            let stranded = self.stranded.iter().any(|s| s.ticket == ticket);
            return if stranded { Stand::Pending } else { Stand::Taken };
        };
        #[cfg(feature = "link")]
        if self.drop_spent(index, after) {
            return Stand::Taken;
        }
        let offer = &mut self.offers[index];
        let why = match &offer.standing {
            Standing::Failed(failed) => Some(failed.clone()),
            Standing::Waiting => self.no_more_sends(ends).map(Failed::from),
            // Taken, or possibly taken: poison and retirement come too late, and the release or the agent's
            // answer decides.
            Standing::Held(_) | Standing::Away(_) => None,
            #[cfg(feature = "link")]
            Standing::Spent => None,
        };
        if let Some(why) = why {
            source.put_back(self.remove(index, after).and_then(|o| o.value.back()));
            return Stand::Failed(why);
        }
        let offer = &mut self.offers[index];
        if offer.choice.is_none() || !matches!(offer.standing, Standing::Waiting) {
            after.stale.store(&mut offer.waker, waker);
        }
        Stand::Pending
    }

    /// Whether the offer under `ticket` stands for this choice, or for none. If not, it was made while its
    /// operation was a branch of another choice, or was awaited: a receive that takes it decides another
    /// choice. If it has been taken, or may have been, its send only waits for the outcome.
    pub(crate) fn is_offered_by(&self, ticket: u64, own: Option<&Decision>) -> bool {
        let Some(index) = self.find(ticket) else {
            return !self.stranded.iter().any(|s| s.ticket == ticket) || own.is_some_and(|own| own.decided().is_some());
        };
        match (&self.offers[index].choice, own) {
            #[cfg(feature = "link")]
            _ if matches!(self.offers[index].standing, Standing::Spent) => true,
            (None, None) => true,
            (Some((decision, _)), Some(own)) => decision.is(own),
            _ => matches!(self.offers[index].standing, Standing::Held(_) | Standing::Failed(_)),
        }
    }

    /// Withdraws an offer of a pooled value that does not stand for the asking choice, or learns its outcome.
    pub(crate) fn retract(&mut self, ticket: u64, pool: &Pool, waker: &Waker, after: &mut After) -> Poll<Retracted> {
        let Some(index) = self.find(ticket) else {
            let stranded = self.stranded.iter().position(|s| s.ticket == ticket);
            let Some(stranded) = stranded else { return Poll::Ready(Retracted::Taken) };
            self.stranded.swap_remove(stranded);
            return Poll::Ready(Retracted::Back);
        };
        #[cfg(feature = "link")]
        if self.drop_spent(index, after) {
            return Poll::Ready(Retracted::Taken);
        }
        let failed = match &self.offers[index].standing {
            Standing::Failed(failed) => Some(failed.clone()),
            _ => None,
        };
        if self.take_back(ticket, &mut Source::Pool(pool), after) {
            return Poll::Ready(failed.map_or(Retracted::Back, Retracted::Failed));
        }
        after.stale.store(&mut self.offers[index].waker, waker);
        Poll::Pending
    }

    /// Whether an extended receive holds the value of this offer.
    pub(crate) fn is_held(&self, ticket: u64) -> bool {
        self.find(ticket).is_some_and(|index| matches!(self.offers[index].standing, Standing::Held(_)))
    }

    /// Withdraws an offer. `Pending`: an extended receive holds its value, or an agent has it and is asked
    /// for it. Otherwise the value is back at its source, or was taken. `for_good`: this ticket will not be
    /// looked up again.
    pub(crate) fn withdraw(
        &mut self,
        ticket: u64,
        source: &mut Source<'_>,
        for_good: bool,
        after: &mut After,
    ) -> Stand {
        let Some(index) = self.find(ticket) else {
            if let Some(index) = self.stranded.iter().position(|s| s.ticket == ticket) {
                source.put_back(self.stranded.swap_remove(index).value);
            }
            return Stand::Taken;
        };
        #[cfg(feature = "link")]
        if self.drop_spent(index, after) {
            return Stand::Taken;
        }
        let offer = &mut self.offers[index];
        match &mut offer.standing {
            Standing::Held(_) => {
                if for_good {
                    after.stale.add(offer.waker.take());
                }
                return Stand::Pending;
            }
            Standing::Away(away) => {
                away.abandoned |= for_good;
                away.anew = false;
                let demanded_by = away.demanded_by;
                if !std::mem::replace(&mut away.asked_back, true) {
                    self.tell_taker(demanded_by, FromSender::AskedBack(ticket), after);
                }
                return Stand::Pending;
            }
            Standing::Waiting | Standing::Failed(_) => {}
            #[cfg(feature = "link")]
            Standing::Spent => {}
        }
        if let Some(offer) = self.remove(index, after) {
            after.stale.add(offer.waker);
            source.put_back(offer.value.back());
            // The agent may know the offer.
            #[cfg(feature = "link")]
            let outlet = self.outlet.as_mut().filter(|_| self.remote.is_none() || offer.known != Known::No);
            #[cfg(not(feature = "link"))]
            let outlet = self.outlet.as_mut();
            if let (Some(_), Some(outlet), None) = (offer.choice, outlet, self.credits) {
                outlet.tell(FromSender::AskedBack(ticket), &mut after.wakes);
            }
        }
        // Offers behind it may have waited only for their turn.
        self.refill(after);
        self.settle_wakes(self.watchers.due(), after);
        Stand::Taken
    }

    /// Withdraws an offer that does not stand for the asking choice. `false`: an extended receive has the
    /// value, or an agent, which is asked for it.
    pub(crate) fn take_back(&mut self, ticket: u64, source: &mut Source<'_>, after: &mut After) -> bool {
        // For an expiring offer, the answer is awaited unchanged.
        let expires = self.away(ticket).is_some_and(|away| away.asked_back && !away.anew);
        let back = matches!(self.withdraw(ticket, source, false, after), Stand::Taken);
        if let Some(away) = self.away(ticket) {
            away.anew = !expires;
        }
        back
    }

    pub(super) fn away(&mut self, ticket: u64) -> Option<&mut Away> {
        let index = self.find(ticket)?;
        match &mut self.offers[index].standing {
            Standing::Away(away) => Some(away),
            _ => None,
        }
    }

    /// Handles the drop of a handle of a shared sender, and drops what its dropped sends have left behind.
    pub(crate) fn sender_handle_gone(&mut self, handle: Handle, after: &mut After) {
        #[cfg(feature = "link")]
        self.drop_all_spent(handle, after);
        self.drop_kept(handle, after);
        if self.outlet.is_none() && self.demands.is_none() {
            // No offer is elsewhere: many handles may be dropped while many wait.
            return;
        }
        let left = |o: &&mut Offer| o.handle == handle && o.owner == Owner::Operation;
        for offer in self.offers.iter_mut().filter(left) {
            if matches!(&offer.standing, Standing::Away(away) if away.abandoned) {
                offer.owner = Owner::Nobody;
            }
        }
    }

    /// Drops the values that dropped sends of this handle have left behind.
    pub(super) fn drop_kept(&mut self, handle: Handle, after: &mut After) {
        if !self.kept.is_empty() {
            let theirs = self.kept.list().extract_if(.., |kept| kept.handle == handle);
            after.dropped.extend(theirs.map(|kept| kept.value));
        }
    }

    /// Takes back the value of an offer whose future was forgotten. `handle` has no other operation now, so
    /// all its remaining offers were forgotten or dropped. If it is unknown whether a receive took the value,
    /// the result is its message.
    pub(crate) fn settle_forgotten(
        &mut self,
        handle: Handle,
        source: &mut Source<'_>,
        after: &mut After,
    ) -> Option<MessageId> {
        #[cfg(feature = "link")]
        self.drop_all_spent(handle, after);
        let forgotten = |o: &Offer| {
            o.handle == handle && o.owner == Owner::Operation && matches!(o.value, Value::Here(_) | Value::Pooled(_))
        };
        #[cfg(feature = "link")]
        let forgotten = |o: &Offer| forgotten(o) && !matches!(o.standing, Standing::Away(_) | Standing::Held(_));
        while source.is_empty()
            && let Some(index) = self.offers.iter().position(forgotten)
        {
            // An open choice is decided now, for no branch, so that its other offers are dead too. A reserved
            // choice will get its answer.
            let failed = matches!(self.offers[index].standing, Standing::Failed(_));
            let settled = match &self.offers[index].choice {
                Some((decision, branch)) if !failed => {
                    let taken = decision.take(SKIPPED);
                    decision.polled(true, &mut after.wakes);
                    taken || decision.decided().is_some_and(|taken| taken != *branch)
                }
                _ => true,
            };
            if !settled {
                break;
            }
            if let Some(mut offer) = self.remove(index, after) {
                after.stale.add(offer.waker.take());
                source.put_back(offer.value.take());
                if let Standing::Failed(Failed::Unknown(id)) = offer.standing {
                    return Some(id);
                }
            }
        }
        if source.is_empty()
            && let Some(index) = self.stranded.iter().position(|s| s.handle == handle)
        {
            source.put_back(self.stranded.swap_remove(index).value);
        }
        if source.is_empty()
            && let Some(index) = self.kept.iter().position(|kept| kept.handle == handle)
        {
            let kept = self.kept.swap_remove(index);
            source.put_back(Some(kept.value));
            return kept.unknown;
        }
        None
    }

    // ---- posting

    /// Makes a handle the owner of the offer under `ticket`.
    pub(crate) fn posted(&mut self, ticket: u64) {
        if let Some(index) = self.find(ticket) {
            self.offers[index].owner = Owner::Posted;
        }
    }

    /// Whether the outcome of a post is final.
    pub(crate) fn is_settled(&self, ticket: u64, ends: Ends) -> bool {
        let Some(index) = self.find(ticket) else { return true };
        match self.offers[index].standing {
            Standing::Failed(_) => true,
            Standing::Waiting => self.no_more_sends(ends).is_some(),
            Standing::Held(_) | Standing::Away(_) => false,
            #[cfg(feature = "link")]
            Standing::Spent => true,
        }
    }

    /// Makes a post ownerless, because its handle was dropped.
    pub(crate) fn let_go(&mut self, ticket: u64, ends: Ends, after: &mut After) {
        let Some(index) = self.find(ticket) else { return };
        let settled = self.is_settled(ticket, ends);
        let offer = &mut self.offers[index];
        offer.owner = Owner::Nobody;
        after.stale.add(offer.waker.take());
        #[cfg(feature = "link")]
        let is_out = matches!(offer.standing, Standing::Away(_) | Standing::Held(_));
        #[cfg(feature = "link")]
        let is_bytes = self.remote.as_ref().is_some_and(|remote| !remote.has_agent());
        #[cfg(feature = "link")]
        if is_bytes && (is_out || offer.linked.has_bytes()) {
            // The link has its bytes, or will have them, and no party needs the value any more.
            after.dropped.extend(self.offers[index].value.take());
        }
        if settled {
            self.discard_offer(index, after);
            #[cfg(feature = "link")]
            self.drop_all_spent(Handle::END, after);
        }
    }

    /// Drops ownerless offers of a channel that has ended, because no receive will take them.
    pub(crate) fn drop_ownerless(&mut self, ends: Ends, after: &mut After) {
        if self.no_more_sends(ends).is_none() {
            return;
        }
        let ownerless = |o: &Offer| o.owner == Owner::Nobody && matches!(o.standing, Standing::Waiting);
        while let Some(index) = self.offers.iter().position(ownerless) {
            self.discard_offer(index, after);
        }
    }
}
