//! A channel with all features: buffer, several senders and receivers, offers of choices, extended receives,
//! poison.
//!
//! Most channels never need one: two unshared ends that rendezvous use one slot for a value and one for a
//! waker ([`super::state`]). The first use of any other feature makes a `Queue`, and the channel keeps it.
//!
//! All functions here run under the channel's lock and never wait. They put work for outside the lock
//! (waking, dropping) into an [`After`].
//!
//! - [`value`], [`offer`]: the offers in the queue; [`encoded`]: a link's part of them, as bytes.
//! - [`buffer`], [`credit`]: the buffered values, and the places promised elsewhere.
//! - [`watchers`]: the waiting receivers.
//! - [`events`], [`demand`]: the traffic between the queue and the agents of halves elsewhere.
//! - [`check`]: the invariants of a queue between two passes.
//! - here: the queue, and the operations of the ends that are here.
//! - [`far`], [`answer`], [`linked`]: the operations of agents, of handles of a shared receiver elsewhere,
//!   and of links; [`standby`]: how an agent gives way to a link, and takes over again.

mod answer;
mod buffer;
#[cfg(debug_assertions)]
mod check;
mod credit;
pub(crate) mod demand;
#[cfg(feature = "link")]
pub(crate) mod encoded;
pub(crate) mod events;
mod far;
#[cfg(feature = "link")]
pub(crate) mod linked;
pub(crate) mod offer;
mod seldom;
#[cfg(feature = "link")]
pub(crate) mod standby;
pub(crate) mod value;
mod watchers;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Poll, Waker};

use buffer::Buffer;
use credit::Lending;
use demand::AllDemands;
use events::{FromReceiver, FromSender, Heard};
use offer::{Away, Ends, FIRST_TICKET, Kept, Known, Offer, Offered, Owner, Retracted, Stand, Standing, Stranded, Took};
use seldom::Seldom;
use value::{Pool, Source, Value};
use watchers::{Due, Watchers};

use super::after::After;
use super::policy::{self, Admit, Bound, Buffering, Overflow, Policy};
#[cfg(feature = "link")]
use super::words::Word;
use crate::channel::elsewhere::{Missing, Names};
use crate::channel::erased::{AnySlot, Erased};
use crate::choice::decision::{Branching, Decision, SKIPPED, Settled};
use crate::error::{Failed, MessageId, Reason, RecvError, Why};
use crate::handle::Handle;
#[cfg(feature = "serde")]
use crate::line::Line;
use crate::turn::Turn;
use crate::wake;
use crate::wake::Wakes;

/// A task that waits only for the channel to end, through this handle of the sending end or else of the
/// receiving one.
struct Idle {
    handle: Handle,
    sending: bool,
    waker: Option<Waker>,
}

/// How the receiver of a channel retires it.
#[cfg(feature = "serde")]
pub(crate) enum Retires {
    /// Here.
    Here,
    /// Another node keeps the receiving end, and the buffered values with it: its desk retires the channel.
    ByDesk(Arc<Line>),
    /// The desk has been asked. Until it answers nothing is received here.
    Asked,
    /// The desk has retired it. The end follows the values buffered there.
    Done,
}

#[cfg(feature = "serde")]
impl Retires {
    /// How the receiver retires the channel now. Returns `ByDesk` only once.
    pub(crate) fn ask(&mut self) -> Self {
        match self {
            Self::Here => Self::Here,
            Self::ByDesk(_) => std::mem::replace(self, Self::Asked),
            Self::Asked => Self::Asked,
            Self::Done => Self::Done,
        }
    }
}

pub(crate) struct Queue {
    buffering: Option<Box<dyn Buffering>>,
    buffer: Buffer,
    /// The handles that hold a place of the buffer by an extended receive.
    held: Seldom<Handle>,
    /// How many offers an extended receive holds.
    held_offers: u32,
    /// In order of their tickets.
    offers: VecDeque<Offer>,
    next_ticket: u64,
    watchers: Watchers,
    /// A send waits for receivers that it has woken: the last of them to be polled wakes it, and all other
    /// sends that wait for them.
    has_turn: bool,
    /// The tasks that wait only for the channel to end.
    idle: Seldom<Idle>,
    pub(crate) kind: policy::Kind,
    pub(crate) senders_bound: Option<Bound>,
    pub(crate) receivers_bound: Option<Bound>,
    /// A claim is out: only the end itself acts, and its clones are held back.
    pub(crate) sender_claimed: bool,
    pub(crate) receiver_claimed: bool,
    /// The claimer, if that is a handle elsewhere; the end itself then does not act.
    sender_claimer: Handle,
    pub(crate) receiver_claimer: Handle,
    /// How the receiver retires the channel.
    #[cfg(feature = "serde")]
    pub(crate) retires: Retires,
    poison: Option<Reason>,
    /// Retired, or without a receiver: nothing more is admitted.
    sealed: bool,
    /// The values of sends that were dropped while an agent had them, and that have come back since.
    kept: Seldom<Kept>,
    /// A patience clock runs for receivers that keep a grant.
    pub(crate) patient: bool,
    /// The agent in the receiver's place, and its unread events.
    pub(crate) outlet: Option<Heard<FromSender>>,
    /// The agents of handles of a shared receiver elsewhere.
    demands: Option<Box<AllDemands>>,
    /// How many of them have an unanswered reservation.
    wanting: u32,
    /// Set if the receiver elsewhere promises places: how many are left. Sends without one wait here.
    credits: Option<u32>,
    /// How many of the values that the outlet took out of the buffer have no credit yet. They precede all
    /// other sends.
    carried: u32,
    /// The agent in the sender's place, and its unread events.
    pub(crate) inlet: Option<Heard<FromReceiver<Erased>>>,
    /// The same for handles of a shared sender elsewhere.
    pub(crate) lone_inlets: Seldom<(Handle, Heard<FromReceiver<Erased>>)>,
    /// Which of these agents get an event at the next receive that waits.
    pub(super) ask_awaited: Seldom<Handle>,
    /// The places of the buffer promised to the sender elsewhere.
    pub(crate) lending: Lending,
    next_ask: u64,
    /// For agents whose offers come from another half in this memory: the names of the offers there.
    pub(super) names: Seldom<(Handle, Names)>,
    /// The agent of the receiver elsewhere can take unread values, according to its last reservation.
    outlet_reads: bool,
    /// A value could not be read elsewhere: from now on all unread values come here.
    unreadable: bool,
    /// The sender was dropped, and its agent has not got the event yet.
    sender_leaving: bool,
    /// The node of the sender, or of the receiver, is lost for good.
    sender_lost: bool,
    receiver_lost: bool,
    /// The lost node is that of the end here.
    own_node_left: bool,
    /// Supplies the text of a timeout while the other end is not connected.
    pub(crate) unmatched: Option<Arc<dyn Missing>>,
    /// Offers whose choice was decided for another branch, moved out of the queue until their owners fetch
    /// their values.
    stranded: Seldom<Stranded>,
    /// Set if a link joins this half to the other.
    #[cfg(feature = "link")]
    pub(crate) remote: Option<Box<encoded::Remote>>,
    /// The remains of a link that was given up.
    #[cfg(feature = "link")]
    past: Option<Box<standby::Past>>,
    /// The channel must not use a link any more: it needs an agent.
    #[cfg(feature = "link")]
    keeps_agent: bool,
}

/// Puts a value of a channel into a slot for its values.
#[inline]
pub(crate) fn put(slot: &mut dyn AnySlot, value: Erased) {
    // SAFETY: what a queue holds is of the type of its channel, and so are the slots of its operations.
    unsafe { slot.put(value) }
}

fn commit(own: Branching<'_>) -> bool {
    own.is_none_or(|(decision, branch)| decision.take(branch))
}

impl Queue {
    pub(crate) fn new(policy: &Policy) -> Self {
        Self {
            buffering: policy.buffering(),
            buffer: Buffer::new(),
            held: Seldom::new(),
            held_offers: 0,
            offers: VecDeque::new(),
            next_ticket: FIRST_TICKET + 1,
            watchers: Watchers::new(),
            has_turn: false,
            idle: Seldom::new(),
            kind: policy.kind,
            senders_bound: policy.senders,
            receivers_bound: policy.receivers,
            sender_claimed: false,
            receiver_claimed: false,
            sender_claimer: Handle::END,
            receiver_claimer: Handle::END,
            #[cfg(feature = "serde")]
            retires: Retires::Here,
            poison: None,
            sealed: false,
            stranded: Seldom::new(),
            kept: Seldom::new(),
            patient: false,
            outlet: None,
            demands: None,
            wanting: 0,
            credits: None,
            carried: 0,
            inlet: None,
            lone_inlets: Seldom::new(),
            ask_awaited: Seldom::new(),
            lending: Lending::new(policy.window()),
            next_ask: 0,
            names: Seldom::new(),
            outlet_reads: false,
            unreadable: false,
            sender_leaving: false,
            sender_lost: false,
            receiver_lost: false,
            own_node_left: false,
            unmatched: None,
            #[cfg(feature = "link")]
            remote: None,
            #[cfg(feature = "link")]
            past: None,
            #[cfg(feature = "link")]
            keeps_agent: false,
        }
    }

    /// Sets the policy of a channel made without one. `false`: it has a policy, or an agent that relies on
    /// having none.
    pub(crate) fn set_policy(&mut self, policy: &Policy, after: &mut After) -> bool {
        if self.buffering.is_some() || self.inlet.is_some() || self.outlet.is_some() {
            return false;
        }
        self.buffering = policy.buffering();
        self.kind = policy.kind;
        (self.senders_bound, self.receivers_bound) = (policy.senders, policy.receivers);
        self.lending = Lending::new(policy.window());
        self.refill(after);
        true
    }

    /// Takes over an offer from the one slot. No value: an extended receive has it.
    pub(crate) fn adopt_offer(&mut self, value: Option<Erased>, waker: Option<Waker>, has_turn: bool) {
        let standing = if value.is_some() { Standing::Waiting } else { Standing::Held(Handle::END) };
        self.held_offers += u32::from(value.is_none());
        let ticket = FIRST_TICKET;
        let value = value.map_or(Value::Gone, Value::Here);
        let (handle, owner) = (Handle::END, Owner::Operation);
        self.has_turn |= has_turn;
        self.offers.push_back(Offer {
            ticket,
            handle,
            owner,
            has_turn,
            value,
            standing,
            choice: None,
            waker,
            far: None,
            known: Known::No,
            #[cfg(feature = "link")]
            linked: encoded::Linked::NOTHING,
        });
    }

    pub(crate) fn adopt_watcher(&mut self, waker: Waker) {
        self.watchers.adopt(waker);
    }

    /// Whether a link joins this half to the other.
    pub(crate) fn is_linked(&self) -> bool {
        #[cfg(feature = "link")]
        return self.remote.is_some();
        #[cfg(not(feature = "link"))]
        false
    }

    /// Whether a receive may find something here.
    pub(crate) fn has_something(&self) -> bool {
        !self.buffer.is_empty() || !self.offers.is_empty()
    }

    /// Whether a receive must enter the queue, instead of checking only the channel's tag.
    pub(crate) fn is_worth_a_look(&self) -> bool {
        self.has_something() || self.lending.unused
    }

    pub(crate) fn len(&self) -> usize {
        self.buffer.len()
    }

    pub(crate) fn poison_reason(&self) -> Option<&Reason> {
        self.poison.as_ref()
    }

    /// Whether this handle of the sending end may act: a claim holds back all handles except the claimer.
    fn acts(&self, handle: Handle) -> bool {
        !self.sender_claimed || handle == Handle::END || handle == self.sender_claimer
    }

    /// Whether this handle of the receiving end may act.
    fn may_take(&self, handle: Handle) -> bool {
        // Offers at the node that keeps the receiver have not been refused yet.
        #[cfg(feature = "serde")]
        if matches!(self.retires, Retires::Asked) {
            return false;
        }
        !self.receiver_claimed || handle == Handle::END || handle == self.receiver_claimer
    }

    /// Takes an offer out. The state of its choice may hold the last reference to a waker, so it is dropped
    /// outside the lock.
    fn remove(&mut self, index: usize, after: &mut After) -> Option<Offer> {
        after.decisions.extend(self.offers.get(index)?.choice.as_ref().map(|(decision, _)| decision.clone()));
        // Mostly the first one, and that is moved less often so.
        if index == 0 { self.offers.pop_front() } else { self.offers.remove(index) }
    }

    /// Takes an ownerless offer out, and drops its value outside the lock.
    fn discard_offer(&mut self, index: usize, after: &mut After) {
        if let Some(offer) = self.remove(index, after) {
            after.stale.add(offer.waker);
            let value = offer.value.back();
            #[cfg(feature = "link")]
            let value = self.keep_spent(value);
            after.dropped.extend(value);
        }
    }

    #[inline]
    fn find(&self, ticket: u64) -> Option<usize> {
        self.offers.binary_search_by_key(&ticket, |o| o.ticket).ok()
    }

    fn queued(&self) -> usize {
        self.buffer.len() + self.held.len() + self.lending.returning as usize
    }

    /// Why no send can succeed any more, if none can.
    pub(crate) fn no_more_sends(&self, ends: Ends) -> Option<Why> {
        match &self.poison {
            Some(reason) => Some(Why::Poisoned(reason.clone())),
            None if self.receiver_lost && self.own_node_left => Some(Why::OwnNodeLeft),
            None if self.receiver_lost => Some(Why::NodeLost),
            None if ends.no_receivers => Some(Why::Closed),
            None => None,
        }
    }

    // ---- sending

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
    fn make_room(&mut self, handle: Handle, after: &mut After) -> Result<(), Why> {
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
    fn announce(&mut self, ticket: u64, handle: Handle, after: &mut After) -> bool {
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
    fn admit_at_once(&mut self, handle: Handle) -> Admit {
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
    fn ask_policy(&mut self) -> Admit {
        if let Some(credits) = self.credits {
            return if credits > 0 { Admit::Keep } else { Admit::Wait };
        }
        // A promised place is not free.
        let queued = self.queued() + self.lending.granted();
        self.buffering.as_mut().map_or(Admit::Wait, |buffering| buffering.admit(queued))
    }

    /// Takes a value in, if there is one.
    fn admit(&mut self, admit: Admit, source: &mut Source<'_>, after: &mut After) {
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
    fn make_place(&mut self, admit: Admit, after: &mut After) -> bool {
        match admit {
            Admit::DropThis => return false,
            Admit::DropOldest => after.dropped.extend(self.buffer.pop_front()),
            Admit::ReplaceNewest => after.dropped.extend(self.buffer.pop_back()),
            Admit::Keep | Admit::Wait | Admit::Refuse => {}
        }
        true
    }

    /// Admits waiting offers as far as the policy allows, and wakes receivers for the admitted values.
    fn refill(&mut self, after: &mut After) {
        let before = self.offers.len();
        self.lend_in_turn(&mut after.wakes);
        self.admit_waiting(after);
        self.lend_the_rest(self.offers.len() < before, &mut after.wakes);
        if self.offers.len() < before && !self.buffer.is_empty() {
            self.wake_watchers(&mut after.wakes);
        }
    }

    fn admit_waiting(&mut self, after: &mut After) {
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
    fn settle(&self, index: usize, own: Branching<'_>, wakes: &mut Wakes) -> Settled {
        match &self.offers[index].choice {
            Some((decision, branch)) => decision.settle(*branch, own, wakes),
            None if commit(own) => Settled::Both,
            None => Settled::OwnGone,
        }
    }

    /// Moves a dead offer out of the queue, so that no later scan visits it.
    fn strand(&mut self, index: usize, after: &mut After) {
        if let Some(offer) = self.remove(index, after) {
            let (ticket, handle, value) = (offer.ticket, offer.handle, offer.value.back());
            self.stranded.push(Stranded { ticket, handle, value });
        }
    }

    /// Fails the offer. One from elsewhere goes back there at once; the owner of any other fetches its value.
    /// Returns the index to continue with.
    fn fail(&mut self, index: usize, why: Why, after: &mut After) -> usize {
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
    fn tell_taken(&mut self, offer: Offer, after: &mut After) {
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

    fn away(&mut self, ticket: u64) -> Option<&mut Away> {
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
    fn drop_kept(&mut self, handle: Handle, after: &mut After) {
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

    // ---- receiving

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

    fn take_offer(
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
    fn settle_wakes(&mut self, due: Due, after: &mut After) {
        if !due.is_nothing() {
            self.settle_wakes_due(due, after);
        }
    }

    /// Wakes the next receive that has not looked in this round, if a value is left.
    pub(super) fn pass_on(&mut self, after: &mut After) {
        self.settle_wakes_due(Due { pass_on: true, patience: false }, after);
    }

    #[cold]
    fn settle_wakes_due(&mut self, due: Due, after: &mut After) {
        if !self.has_left() {
            self.watchers.nothing_left();
        } else if due.pass_on && !self.receiver_claimed {
            self.watchers.pass_on(&mut after.wakes);
        }
    }

    /// Whether another receive may take something, or ask for it.
    #[inline]
    fn has_left(&self) -> bool {
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
    fn watchers_unpolled(&self) -> bool {
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

    // ---- ending

    /// Records that the node that keeps the receiver has retired the channel, if it was asked to, or has
    /// left.
    #[cfg(feature = "serde")]
    pub(crate) fn has_retired(&mut self, after: &mut After) {
        if matches!(self.retires, Retires::Asked) {
            self.retires = Retires::Done;
            self.wake_all_watchers(&mut after.wakes);
        }
    }

    /// Stops admission: the channel was retired, or the receiver was dropped.
    pub(crate) fn seal(&mut self) {
        self.sealed = true;
    }

    /// Registers a task that waits only for the end.
    pub(crate) fn wait_for_end(&mut self, handle: Handle, sending: bool, waker: &Waker, after: &mut After) {
        match self.idle.iter_mut().find(|i| i.handle == handle && i.sending == sending) {
            Some(idle) => after.stale.store(&mut idle.waker, waker),
            None => {
                self.idle.push(Idle { handle, sending, waker: Some(wake::keep(waker)) });
                if sending {
                    self.watch_end(after);
                } else {
                    self.begin_use(&mut after.wakes);
                }
            }
        }
    }

    /// Wakes all waiting parties.
    pub(crate) fn wake_all(&mut self, wakes: &mut Wakes) {
        self.wake_all_watchers(wakes);
        self.wake_demands(wakes);
        for offer in &mut self.offers {
            wakes.add(offer.waker.take());
            if let Some((decision, _)) = &offer.choice {
                decision.nudge(wakes);
            }
        }
        for idle in self.idle.take() {
            wakes.add(idle.waker);
        }
    }

    /// An offer's choice is open again, or a claim has ended: wakes the receivers that passed offers over or
    /// were held back.
    pub(crate) fn rouse(&mut self, after: &mut After) {
        self.refill(after);
        if self.has_left() {
            self.wake_watchers(&mut after.wakes);
        }
    }

    /// Ends a claim of the receiver. Receives that it held back look again; if the channel has ended
    /// meanwhile, all of them return.
    pub(crate) fn end_receiver_claim(&mut self, ends: Ends, after: &mut After) {
        self.rouse(after);
        if ends.no_senders {
            self.wake_all_watchers(&mut after.wakes);
        }
    }

    /// Destroys the buffered values; offers stay for their owners to take back.
    pub(crate) fn poison(&mut self, reason: Reason, after: &mut After) {
        if self.poison.is_none() {
            self.poison = Some(reason);
        }
        self.lending.stop();
        self.discard(after);
    }

    /// Drops the buffered values: no receiver is left.
    pub(crate) fn discard(&mut self, after: &mut After) {
        after.dropped.extend(self.buffer.take());
    }
}
