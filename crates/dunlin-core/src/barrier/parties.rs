//! Who is enrolled on a barrier, and who is there.
//!
//! Everything happens under one lock. Whatever may complete the phase tries to: an arrival, a resignation, and a choice that was
//! not open when all were there and is again. An attempt takes all or none ([`Decision::settle_all`]) and keeps nothing, so
//! nobody waits for an attempt, and none can stand in another's way.

use std::panic::Location;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::channel::after::After;
use crate::choice::ChoiceCx;
use crate::choice::decision::{Branching, Decision, Queued};
use crate::lock::{Guard, Lock};
use crate::waits::{Doing, Record, Recorded};

/// The next arrival completes the phase, as far as one can tell without asking the choices.
const ONE_MISSING: u32 = 1;
/// All are there, and a choice among them was not open.
const ALL_THERE: u32 = 1 << 1;

/// Where a party stands, as long as its barrier exists.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place(usize);

/// A party that is there.
#[derive(Default)]
struct Arrival {
    /// Its choice, and as which branch; `None`: firm.
    choice: Option<(Arc<Decision>, u32)>,
    /// Of a firm party; a choice's is in its decision.
    waker: Option<std::task::Waker>,
}

struct Party {
    record: &'static Record,
    /// Taken out by whoever completes the phase: so the party learns of it.
    arrival: Option<Arrival>,
}

#[derive(Default)]
struct State {
    places: Vec<Option<Party>>,
    free: Vec<usize>,
    enrolled: usize,
    there: usize,
    phases: u64,
}

/// What all enrolments on a barrier share.
pub(super) struct Parties {
    state: Lock<State>,
    pub(super) record: Recorded,
}

/// How a barrier stands at a moment.
pub(super) struct Standing {
    pub(super) enrolled: usize,
    pub(super) there: usize,
    pub(super) phases: u64,
}

impl Parties {
    pub(super) fn new(made: &'static Location<'static>) -> Self {
        Self { state: Lock::default(), record: Recorded::barrier(made) }
    }

    /// From now on every phase needs this party too, also one that others wait for already.
    pub(super) fn enrol(&self, record: &'static Record) -> Place {
        let mut g = self.state.lock();
        let party = Some(Party { record, arrival: None });
        let place = match g.free.pop() {
            Some(place) => {
                g.places[place] = party;
                place
            }
            None => {
                g.places.push(party);
                g.places.len() - 1
            }
        };
        g.enrolled += 1;
        publish(&mut g);
        Place(place)
    }

    /// The party is needed no more. Those who waited only for it go on.
    pub(super) fn resign(self: &Arc<Self>, place: Place) {
        let mut after = After::<()>::new();
        let mut g = self.state.lock();
        if let Some(party) = g.places[place.0].take() {
            g.free.push(place.0);
            g.enrolled -= 1;
            if let Some(arrival) = party.arrival {
                g.there -= 1;
                discard(arrival, &mut after);
            }
            self.complete(&mut g, None, &mut after);
        }
        publish(&mut g);
    }

    /// Comes to the barrier, or looks how it stands. Ready: all took the phase. `there`: whether the party came before, with the same
    /// operation.
    pub(super) fn poll(
        self: &Arc<Self>,
        place: Place,
        there: &mut bool,
        cx: &mut Context<'_>,
        choice: Option<&ChoiceCx>,
    ) -> Poll<()> {
        let mut after = After::<()>::new();
        let offering = choice.map(|choice| choice.offering(cx.waker()));
        let mut g = self.state.lock();
        if *there && g.party(place).arrival.is_none() {
            drop(g);
            // Completed. Polled through a borrow it may be another choice than the one that was decided by that.
            if choice.is_some_and(|choice| !choice.commit()) {
                return Poll::Pending;
            }
            *there = false;
            return Poll::Ready(());
        }
        // One that is there already may have come by an operation that was forgotten, or as a branch of an earlier choice.
        let before = g.party(place).arrival.take();
        g.there += usize::from(before.is_none());
        let mut arrival = before.unwrap_or_default();
        after.decisions.extend(arrival.choice.take().map(|(decision, _)| decision));
        arrival.choice = offering.map(|(decision, branch)| (decision.clone(), branch));
        if offering.is_some() {
            after.stale.add(arrival.waker.take());
        }
        g.party(place).arrival = Some(arrival);
        *there = true;
        let own = offering.map(|(decision, branch)| (&**decision, branch));
        let complete = self.complete(&mut g, own, &mut after);
        let party = g.party(place);
        if let Some(arrival) = &mut party.arrival {
            if offering.is_none() {
                after.stale.store(&mut arrival.waker, cx.waker());
            }
            party.record.receiver.begin(Doing::Sync);
        } else {
            party.record.receiver.end();
        }
        publish(&mut g);
        if complete {
            *there = false;
            return Poll::Ready(());
        }
        Poll::Pending
    }

    /// The party does not wait any more. `false`: the phase was complete already.
    pub(super) fn leave(&self, place: Place) -> bool {
        let mut after = After::<()>::new();
        let mut g = self.state.lock();
        let party = g.party(place);
        party.record.receiver.end();
        let Some(arrival) = party.arrival.take() else { return false };
        discard(arrival, &mut after);
        g.there -= 1;
        publish(&mut g);
        true
    }

    /// If all are there, they take the phase, unless a choice among them is not open.
    fn complete(self: &Arc<Self>, g: &mut Guard<'_, State>, own: Branching<'_>, after: &mut After<()>) -> bool {
        if g.there < g.enrolled || g.enrolled == 0 {
            return false;
        }
        let arrivals = g.places.iter().flatten().filter_map(|party| party.arrival.as_ref());
        let choices = arrivals.filter_map(|arrival| arrival.choice.as_ref());
        let mut choices: Vec<_> = choices.map(|(decision, branch)| (&**decision, *branch)).collect();
        if !choices.is_empty() {
            let again: Arc<dyn Queued> = self.clone();
            if !Decision::settle_all(&mut choices, own, &again, &mut after.wakes) {
                return false;
            }
        }
        for party in g.places.iter_mut().flatten() {
            if let Some(mut arrival) = party.arrival.take() {
                after.wakes.add(arrival.waker.take());
                discard(arrival, after);
                party.record.receiver.end_for_holder();
            }
        }
        g.there = 0;
        g.phases += 1;
        true
    }

    /// Whether the phase would be complete if this party came, or looked again. May be wrong in either direction for a moment.
    pub(super) fn seems_ready(&self, there: bool) -> bool {
        let ready = if there { ALL_THERE } else { ONE_MISSING };
        self.state.tag().is_none_or(|tag| tag & ready != 0)
    }

    pub(super) fn standing(&self) -> Standing {
        let g = self.state.lock();
        Standing { enrolled: g.enrolled, there: g.there, phases: g.phases }
    }
}

impl State {
    fn party(&mut self, place: Place) -> &mut Party {
        self.places[place.0].as_mut().expect("a party is enrolled until its barrier is dropped")
    }
}

impl Queued for Parties {
    fn unlocked(self: Arc<Self>) {
        let mut after = After::<()>::new();
        let mut g = self.state.lock();
        self.complete(&mut g, None, &mut after);
        publish(&mut g);
    }
}

/// What is left of an arrival is dropped outside the lock.
fn discard(arrival: Arrival, after: &mut After<()>) {
    after.stale.add(arrival.waker);
    after.decisions.extend(arrival.choice.map(|(decision, _)| decision));
}

fn publish(g: &mut Guard<'_, State>) {
    let tag = match g.enrolled - g.there {
        0 => ALL_THERE,
        1 => ONE_MISSING,
        _ => 0,
    };
    g.clear(ONE_MISSING | ALL_THERE);
    g.set(tag);
}
