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
//! - [`sending`], [`receiving`]: the operations of the ends that are here; here: the queue, and its end.
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
mod receiving;
mod seldom;
mod sending;
#[cfg(feature = "link")]
pub(crate) mod standby;
pub(crate) mod value;
mod watchers;

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use buffer::Buffer;
use credit::Lending;
use demand::AllDemands;
use events::{FromReceiver, FromSender, Heard};
use offer::{Ends, FIRST_TICKET, Kept, Known, Offer, Owner, Standing, Stranded};
use seldom::Seldom;
use value::Value;
use watchers::Watchers;

use super::after::After;
use super::policy::{self, Bound, Buffering, Policy};
use crate::channel::elsewhere::{Missing, Names};
use crate::channel::erased::{AnySlot, Erased};
use crate::choice::decision::Branching;
use crate::error::{Reason, Why};
use crate::handle::Handle;
#[cfg(feature = "serde")]
use crate::line::Line;
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
