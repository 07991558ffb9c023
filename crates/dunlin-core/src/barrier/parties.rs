//! The parties enrolled on a barrier, and which of them are there.
//!
//! Everything happens under one lock. Every event that may complete the phase tries to: an arrival, a
//! resignation, and a choice that was not open when all were there and opens again. If all choices are local,
//! an attempt takes all or none ([`Decision::settle_all`]) and keeps nothing, so no party waits for an
//! attempt, and no attempt can block another. If choices are elsewhere, they are [reserved](super::reserving)
//! first.
//!
//! A party may stand for a whole [group](super::group) at another node. The parties of a group complete
//! nothing themselves: when all of them are there, the group is, and the keeper of the barrier reports when
//! the phase is complete.

use std::panic::Location;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::attempt::Attempt;
use super::group::{Group, Standing, Uplink};
use crate::channel::after::After;
use crate::choice::ChoiceCx;
use crate::choice::decision::{Branching, Decision};
use crate::error::SyncError;
use crate::lock::{Guard, Lock};
use crate::waits::{Doing, Record, Recorded};
use crate::wake::Queued;

/// The next arrival completes the phase, as far as is known without asking the choices.
const ONE_MISSING: u32 = 1;
/// All are there, and a choice among them was not open.
const ALL_THERE: u32 = 1 << 1;

/// The index of a party, valid while it is enrolled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place(pub(super) usize);

/// A party that is there.
#[derive(Default)]
pub(super) struct Arrival {
    /// Its choice and branch; `None`: the party is firm.
    pub(super) choice: Option<(Arc<Decision>, u32)>,
    /// The waker of a firm party; that of a choice is in its decision.
    pub(super) waker: Option<Waker>,
    /// It no longer waits, and the keeper of the barrier has not yet reported whether the phase was complete
    /// before.
    pub(super) left: bool,
}

impl Arrival {
    fn is_of(&self, offering: Option<(&Arc<Decision>, u32)>) -> bool {
        match (&self.choice, offering) {
            (None, None) => true,
            (Some((decision, branch)), Some((own, own_branch))) => decision.is(own) && *branch == own_branch,
            _ => false,
        }
    }

    /// Its choice has taken another branch.
    pub(super) fn is_decided(&self) -> bool {
        self.choice.as_ref().is_some_and(|(decision, _)| decision.decided().is_some())
    }
}

pub(super) struct Party {
    pub(super) record: &'static Record,
    /// Taken out when the phase is complete.
    pub(super) arrival: Option<Arrival>,
    /// How many phases it has taken, by which an operation detects that its phase is complete.
    pub(super) taken: u64,
    /// Woken when the fate of the arrival that it left is known.
    pub(super) later: Option<Waker>,
    /// The group at another node that it stands for.
    pub(super) group: Option<Box<Group>>,
}

impl Party {
    pub(super) fn is_there(&self) -> bool {
        self.arrival.is_some() || self.group.as_ref().is_some_and(|group| group.there.is_some())
    }
}

#[derive(Default)]
pub(super) struct State {
    pub(super) places: Vec<Option<Party>>,
    free: Vec<usize>,
    pub(super) enrolled: usize,
    pub(super) there: usize,
    phases: u64,
    /// All are there, and choices are being reserved.
    pub(super) attempt: Option<Attempt>,
    /// How many attempts there were.
    pub(super) attempts: u64,
    /// How long the next attempt may take, in ticks.
    pub(super) patience: u32,
    /// The patience with an attempt is running.
    pub(super) patient: bool,
    /// No attempt begins before this tick: one has taken too long, and other operations have their turn.
    pub(super) rests_until: Option<u32>,
    /// For a group: its link to the keeper of the barrier.
    pub(super) uplink: Option<Uplink>,
}

/// The state that all enrolments on a barrier at one node share.
pub(super) struct Parties {
    pub(super) state: Lock<State>,
    pub(super) record: Recorded,
    /// The number by which nodes know the barrier, if it has enrolments elsewhere.
    #[cfg(feature = "serde")]
    pub(super) number: std::sync::OnceLock<u128>,
}

/// The state of a barrier at a moment.
pub(super) struct Count {
    pub(super) enrolled: usize,
    pub(super) there: usize,
    pub(super) phases: u64,
}

/// The fate of an arrival that was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// The party is no longer there.
    Before,
    /// The phase was complete.
    Complete,
    /// It is not known yet.
    Unknown,
    /// It will never be known.
    Lost,
}

impl Left {
    /// The result of the operation whose deadline has passed.
    pub(super) fn into_result(self) -> Result<(), SyncError> {
        match self {
            Self::Complete => Ok(()),
            Self::Lost => Err(SyncError::NodeLost),
            Self::Before | Self::Unknown => Err(SyncError::TimedOut),
        }
    }
}

impl Parties {
    pub(super) fn new(made: &'static Location<'static>) -> Self {
        Self {
            state: Lock::default(),
            record: Recorded::barrier(made),
            #[cfg(feature = "serde")]
            number: std::sync::OnceLock::new(),
        }
    }

    /// From now on every phase needs this party too, also one that others wait for already.
    pub(super) fn enrol(self: &Arc<Self>, record: &'static Record) -> Place {
        let mut after = After::new();
        let mut g = self.state.lock();
        let party = Some(Party { record, arrival: None, taken: 0, later: None, group: None });
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
        self.changed(&mut g, None, &mut after);
        publish(&mut g);
        Place(place)
    }

    /// The party is no longer needed. Parties that waited only for it continue.
    pub(super) fn resign(self: &Arc<Self>, place: Place) {
        let mut after = After::new();
        let mut g = self.state.lock();
        if let Some(party) = g.places[place.0].take() {
            g.free.push(place.0);
            g.enrolled -= 1;
            g.there -= usize::from(party.is_there());
            after.stale.add(party.later);
            if let Some(arrival) = party.arrival {
                discard(arrival, &mut after);
            }
            if g.enrolled == 0
                && let Some(uplink) = &mut g.uplink
            {
                after.wakes.add(uplink.waker.take());
            }
            self.changed(&mut g, None, &mut after);
        }
        publish(&mut g);
    }

    /// Arrives at the barrier, or checks its state. Ready: all took the phase. `since`: how many phases the
    /// party had taken when it arrived, if it arrived by the same operation.
    pub(super) fn poll(
        self: &Arc<Self>,
        place: Place,
        since: &mut Option<u64>,
        cx: &mut Context<'_>,
        choice: Option<&ChoiceCx>,
    ) -> Poll<Result<(), SyncError>> {
        let mut after = After::new();
        let offering = choice.map(|choice| choice.offering(cx.waker()));
        let mut g = self.state.lock();
        let complete = since.is_some_and(|since| g.party(place).taken != since);
        if complete || g.is_lost() {
            drop(g);
            // Polled through a borrow, this may be another choice than the decided one.
            if choice.is_some_and(|choice| !choice.commit()) {
                return Poll::Pending;
            }
            return Poll::Ready(if complete { Ok(()) } else { Err(SyncError::NodeLost) });
        }
        if g.is_reported() && !self.stays(&mut g, place, offering, cx, &mut after) {
            publish(&mut g);
            return Poll::Pending;
        }
        // A party that is there already may have arrived by an operation that was forgotten, or as a branch
        // of an earlier choice.
        let before = g.party(place).arrival.take();
        let same = before.as_ref().is_some_and(|arrival| arrival.is_of(offering));
        g.there += usize::from(before.is_none());
        let mut arrival = before.unwrap_or_default();
        after.decisions.extend(arrival.choice.take().map(|(decision, _)| decision));
        arrival.choice = offering.map(|(decision, branch)| (decision.clone(), branch));
        if offering.is_some() {
            after.stale.add(arrival.waker.take());
        }
        let party = g.party(place);
        party.arrival = Some(arrival);
        let came = *since.get_or_insert(party.taken);
        let own = offering.map(|(decision, branch)| (&**decision, branch));
        if same {
            self.complete(&mut g, own, &mut after);
        } else {
            self.changed(&mut g, own, &mut after);
        }
        let party = g.party(place);
        let complete = party.taken != came;
        if let Some(arrival) = &mut party.arrival {
            if offering.is_none() {
                after.stale.store(&mut arrival.waker, cx.waker());
            }
            party.record.receiver.begin(Doing::Sync);
        } else {
            party.record.receiver.end();
        }
        publish(&mut g);
        if complete { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    /// The keeper has been notified that this group is there. `true`: so is this party, in the way in which
    /// it arrives now, or it may arrive now. `false`: it waits until the fate of its earlier arrival is
    /// known.
    fn stays(
        self: &Arc<Self>,
        g: &mut Guard<'_, State>,
        place: Place,
        offering: Option<(&Arc<Decision>, u32)>,
        cx: &mut Context<'_>,
        after: &mut After,
    ) -> bool {
        let party = g.party(place);
        match &mut party.arrival {
            Some(arrival) if !arrival.left && arrival.is_of(offering) => return true,
            Some(arrival) => {
                arrival.left = true;
                self.withdraw(g, after);
                if !g.is_reported() {
                    return true;
                }
            }
            None => {}
        }
        after.stale.store(&mut g.party(place).later, cx.waker());
        false
    }

    /// The party no longer waits.
    pub(super) fn leave(self: &Arc<Self>, place: Place, since: u64) -> Left {
        let mut after = After::new();
        let mut g = self.state.lock();
        let reported = g.is_reported();
        let lost = g.is_lost();
        let party = g.party(place);
        party.record.receiver.end();
        if party.taken != since {
            return Left::Complete;
        }
        let Some(arrival) = &mut party.arrival else { return if lost { Left::Lost } else { Left::Before } };
        if reported {
            // Its choice has taken another branch, or its deadline: no other party can take it.
            let certain = arrival.is_decided();
            arrival.left = true;
            self.withdraw(&mut g, &mut after);
            let gone = certain || g.party(place).arrival.is_none();
            publish(&mut g);
            return if gone { Left::Before } else { Left::Unknown };
        }
        if let Some(arrival) = party.arrival.take() {
            discard(arrival, &mut after);
        }
        g.there -= 1;
        self.changed(&mut g, None, &mut after);
        publish(&mut g);
        Left::Before
    }

    /// The fate of an arrival that was left.
    pub(super) fn poll_left(&self, place: Place, since: u64, cx: &mut Context<'_>) -> Poll<Left> {
        let mut after = After::new();
        let mut g = self.state.lock();
        let lost = g.is_lost();
        let party = g.party(place);
        Poll::Ready(if party.taken != since {
            Left::Complete
        } else if lost {
            Left::Lost
        } else if party.arrival.is_none() {
            Left::Before
        } else {
            after.stale.store(&mut party.later, cx.waker());
            return Poll::Pending;
        })
    }

    /// A party has arrived, left, enrolled or resigned: calls off the current attempt, and checks whether the
    /// phase is complete now.
    pub(super) fn changed(self: &Arc<Self>, g: &mut Guard<'_, State>, own: Branching<'_>, after: &mut After) {
        match g.uplink.as_ref().map(|uplink| uplink.standing) {
            None => {
                self.give_back(g, after);
                self.complete(g, own, after);
            }
            Some(Standing::Away) => self.report(g, after),
            Some(Standing::There) => self.withdraw(g, after),
            Some(Standing::Asked | Standing::Lost) => {}
        }
    }

    /// If all are there, they take the phase, unless a choice among them is not open.
    pub(super) fn complete(self: &Arc<Self>, g: &mut Guard<'_, State>, own: Branching<'_>, after: &mut After) {
        if g.attempt.is_some() {
            return self.advance(g, after);
        }
        if g.uplink.is_some() || !g.are_all_there() {
            return;
        }
        let far = g.places.iter().flatten().filter_map(|party| party.group.as_ref());
        if far.filter_map(|group| group.there.as_ref()).any(|choices| !choices.is_empty()) {
            return self.begin(g, after);
        }
        let arrivals = g.places.iter().flatten().filter_map(|party| party.arrival.as_ref());
        let choices = arrivals.filter_map(|arrival| arrival.choice.as_ref());
        let mut choices: Vec<_> = choices.map(|(decision, branch)| (&**decision, *branch)).collect();
        if !choices.is_empty() {
            let again: Arc<dyn Queued> = self.clone();
            if !Decision::settle_all(&mut choices, own, &again, &mut after.wakes) {
                return;
            }
        }
        self.go_on(g, after);
    }

    /// All take the phase. If there is an attempt, it has reserved every choice.
    pub(super) fn go_on(&self, g: &mut Guard<'_, State>, after: &mut After) {
        if let Some(attempt) = g.attempt.take() {
            attempt.confirm(after);
        }
        for party in g.places.iter_mut().flatten() {
            if let Some(mut arrival) = party.arrival.take() {
                party.taken += 1;
                after.wakes.add(arrival.waker.take());
                discard(arrival, after);
                party.record.receiver.end_for_holder();
            }
            after.wakes.add(party.later.take());
            if let Some(group) = &mut party.group
                && group.go_on(after)
            {
                party.record.receiver.end_for_holder();
            }
        }
        g.there = g.places.iter().flatten().filter(|party| party.is_there()).count();
        g.phases += 1;
    }

    /// Whether the phase would be complete if this party arrived, or was polled again. May be wrong in either
    /// direction for a moment.
    pub(super) fn seems_ready(&self, there: bool) -> bool {
        let ready = if there { ALL_THERE } else { ONE_MISSING };
        self.state.tag().is_none_or(|tag| tag & ready != 0)
    }

    pub(super) fn count(&self) -> Count {
        let g = self.state.lock();
        Count { enrolled: g.enrolled, there: g.there, phases: g.phases }
    }
}

impl State {
    pub(super) fn party(&mut self, place: Place) -> &mut Party {
        self.places[place.0].as_mut().expect("a party is enrolled until its barrier is dropped")
    }

    pub(super) fn are_all_there(&self) -> bool {
        self.there == self.enrolled && self.enrolled > 0
    }

    pub(super) fn is_lost(&self) -> bool {
        self.uplink.as_ref().is_some_and(|uplink| uplink.standing == Standing::Lost)
    }

    /// The keeper has been notified that this group is there, and it is unknown whether it still is.
    fn is_reported(&self) -> bool {
        self.uplink.as_ref().is_some_and(|uplink| matches!(uplink.standing, Standing::There | Standing::Asked))
    }
}

/// Has the arrival's waker and choice dropped outside the lock.
pub(super) fn discard(arrival: Arrival, after: &mut After) {
    after.stale.add(arrival.waker);
    after.decisions.extend(arrival.choice.map(|(decision, _)| decision));
}

pub(super) fn publish(g: &mut Guard<'_, State>) {
    let tag = match (&g.uplink, g.enrolled - g.there) {
        // Only the keeper of the barrier knows.
        (Some(uplink), _) if uplink.standing != Standing::Lost => 0,
        (Some(_), _) => ALL_THERE | ONE_MISSING,
        (None, 0) => ALL_THERE,
        (None, 1) => ONE_MISSING,
        (None, _) => 0,
    };
    g.clear(ONE_MISSING | ALL_THERE);
    g.set(tag);
}
