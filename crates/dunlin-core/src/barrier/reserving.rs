//! A phase with choices at other nodes: they are reserved in ascending order of their numbers, and take the
//! phase when all are reserved.
//!
//! The keeper of the barrier makes the attempt. A group has one too, for its own choices: it reserves as many
//! as it is asked to, and reports that. Both return their reservations if a party leaves, or a choice would
//! take another branch; so an attempt never blocks a choice that could proceed. Because the order is the same
//! everywhere, two attempts, or an attempt and a receiver that has reserved an offer, cannot deadlock.
//!
//! An attempt that takes long returns its reservations, rests, and begins again with more patience: while a
//! connection is silent, other parties that want the reserved choices have their turn.

use std::sync::{Arc, Weak};

use super::attempt::{Attempt, Entry};
use super::parties::{Parties, State, publish};
use crate::channel::after::After;
use crate::choice::decision::{Reserve, Reserver};
use crate::clock::{self, PATIENCE_TICKS, Patient, be_patient};
use crate::lock::Guard;
use crate::wake::Queued;

/// How long the first attempt may take: a round trip between most nodes.
const ATTEMPT_TICKS_MIN: u32 = 5 * PATIENCE_TICKS;
const ATTEMPT_TICKS_MAX: u32 = 10_000;

impl State {
    /// An attempt with all choices that are there. `None`: a choice has taken another branch already, or
    /// would have to take two.
    pub(super) fn new_attempt(&mut self) -> Option<Attempt> {
        let mut entries = Vec::new();
        for (place, party) in self.places.iter().enumerate() {
            let Some(party) = party else { continue };
            if let Some(arrival) = &party.arrival {
                if arrival.is_decided() {
                    return None;
                }
                let choice = arrival.choice.clone();
                entries.extend(choice.map(|(decision, branch)| Entry {
                    id: decision.id(),
                    place,
                    choice: Some((decision, branch)),
                }));
            }
            let far = party.group.iter().filter_map(|group| group.there.as_ref()).flatten();
            entries.extend(far.map(|id| Entry { id: *id, place, choice: None }));
        }
        entries.sort_by_key(|entry| entry.id);
        if self.uplink.is_none() && entries.windows(2).any(|two| two[0].id == two[1].id) {
            return None;
        }
        self.attempts += 1;
        Some(Attempt { number: self.attempts, entries, held: 0, limit: 0, began: clock::tick() })
    }
}

impl Parties {
    /// Begins an attempt: all are there, some of them with choices elsewhere.
    pub(super) fn begin(self: &Arc<Self>, g: &mut Guard<'_, State>, after: &mut After) {
        if g.rests_until.is_some() {
            return;
        }
        let Some(mut attempt) = g.new_attempt() else { return };
        attempt.limit = attempt.len();
        g.attempt = Some(attempt);
        g.patience = g.patience.max(ATTEMPT_TICKS_MIN);
        if !std::mem::replace(&mut g.patient, true) {
            let parties: Weak<Self> = Arc::downgrade(self);
            be_patient(parties);
        }
        self.advance(g, after);
    }

    /// Reserves the choices up to the limit, as far as that is possible now.
    pub(super) fn advance(self: &Arc<Self>, g: &mut Guard<'_, State>, after: &mut After) {
        let reserver: Arc<dyn Reserver> = self.clone();
        let State { attempt: Some(attempt), places, uplink, patience, .. } = &mut **g else { return };
        if attempt.limit == 0 {
            return;
        }
        while attempt.held < attempt.limit {
            let entry = &attempt.entries[attempt.held];
            if let Some((decision, _)) = &entry.choice {
                match decision.reserve(&reserver) {
                    Reserve::Granted => attempt.held += 1,
                    Reserve::Later => return,
                    // Its owner will leave, or arrive again.
                    Reserve::Dead if uplink.is_some() => return self.withdraw(g, after),
                    Reserve::Dead => return self.give_back(g, after),
                }
            } else {
                // Consecutive choices of one group take one request.
                let wanted = &attempt.entries[attempt.held..attempt.limit];
                let is_there = |other: &&Entry| other.choice.is_none() && other.place == entry.place;
                let run = wanted.iter().take_while(is_there).count();
                let group = places[entry.place].as_mut().and_then(|party| party.group.as_mut());
                if let Some(group) = group {
                    group.reserve(attempt.number, run, after);
                }
                return;
            }
        }
        let held = attempt.held;
        match uplink {
            Some(uplink) => uplink.held(held, after),
            None => {
                let took = clock::tick().wrapping_sub(attempt.began);
                *patience = took.saturating_mul(4).clamp(ATTEMPT_TICKS_MIN, ATTEMPT_TICKS_MAX);
                self.go_on(g, after);
            }
        }
    }

    /// Returns all reservations. The keeper abandons the attempt; a group waits for the next request.
    pub(super) fn give_back(&self, g: &mut Guard<'_, State>, after: &mut After) {
        let State { attempt: Some(attempt), places, .. } = &mut **g else { return };
        for (decision, _) in attempt.entries[..attempt.held].iter().filter_map(|entry| entry.choice.as_ref()) {
            decision.abort(&mut after.wakes);
        }
        (attempt.held, attempt.limit) = (0, 0);
        places.iter_mut().flatten().filter_map(|party| party.group.as_mut()).for_each(|group| group.call_off(after));
        if g.uplink.is_none()
            && let Some(attempt) = g.attempt.take()
        {
            attempt.discard(after);
        }
    }

    /// A group has reserved some of its choices.
    pub(super) fn group_held(
        self: &Arc<Self>,
        g: &mut Guard<'_, State>,
        place: usize,
        number: u64,
        upto: usize,
        after: &mut After,
    ) {
        let State { attempt: Some(attempt), places, .. } = &mut **g else { return };
        let Some(group) = places[place].as_mut().and_then(|party| party.group.as_mut()) else { return };
        if attempt.number != number || upto != group.asked || group.held == group.asked {
            return;
        }
        attempt.held += group.asked - group.held;
        group.held = group.asked;
        self.advance(g, after);
    }

    /// A reserved choice would take another branch. `number`: the attempt for which a group reserved it.
    pub(super) fn ask_back(self: &Arc<Self>, g: &mut Guard<'_, State>, number: Option<u64>, after: &mut After) {
        let Some(attempt) = &g.attempt else { return };
        if number.is_some_and(|number| attempt.number != number) {
            return;
        }
        match &mut g.uplink {
            Some(uplink) => uplink.ask_back(after),
            None => {
                self.give_back(g, after);
                self.complete(g, None, after);
            }
        }
    }
}

impl Queued for Parties {
    fn unlocked(self: Arc<Self>) {
        let mut after = After::new();
        let mut g = self.state.lock();
        self.complete(&mut g, None, &mut after);
        publish(&mut g);
    }
}

impl Reserver for Parties {
    fn revoke(self: Arc<Self>) {
        let mut after = After::new();
        let mut g = self.state.lock();
        self.ask_back(&mut g, None, &mut after);
        publish(&mut g);
    }

    fn keeps_long(&self) -> bool {
        true
    }
}

impl Patient for Parties {
    fn patience_ran_out(self: Arc<Self>, tick: u32) -> bool {
        let mut after = After::new();
        let mut g = self.state.lock();
        let over = |until: u32| tick.wrapping_sub(until).cast_signed() >= 0;
        if g.rests_until.take_if(|until| over(*until)).is_some() {
            self.complete(&mut g, None, &mut after);
        } else if g.uplink.is_none()
            && g.attempt.as_ref().is_some_and(|attempt| over(attempt.began.wrapping_add(g.patience)))
        {
            g.patience = g.patience.saturating_mul(2).min(ATTEMPT_TICKS_MAX);
            g.rests_until = Some(tick.wrapping_add(PATIENCE_TICKS));
            self.give_back(&mut g, &mut after);
        }
        publish(&mut g);
        g.patient = g.attempt.is_some() || g.rests_until.is_some();
        g.patient
    }
}
