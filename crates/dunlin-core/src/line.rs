//! The line of the claimers of one end.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::task::Waker;
#[cfg(feature = "serde")]
use std::task::{Context, Poll};

use crate::clock::{self, PATIENCE_TICKS, Patient, be_patient};
use crate::error::Reason;
use crate::handle::Handle;
use crate::lock::Lock;
use crate::wake::keep;
use crate::wake::{Stale, Wakes};

pub(crate) struct Waiter {
    ticket: u64,
    waker: Option<Waker>,
    asleep: bool,
    /// The end was offered to it and it has not been polled since; until this tick the others wait for it.
    offered: Option<u32>,
}

#[derive(Default)]
pub(crate) struct LineState {
    /// A claim is out.
    out: bool,
    waiters: VecDeque<Waiter>,
    next_ticket: u64,
    /// How many lone operations wait, and so may have been held back.
    lone: usize,
    /// How many of them are of handles at other nodes, by handle.
    lone_far: Vec<(Handle, usize)>,
    /// The lone operations come before the next claim until this tick.
    floor: Option<u32>,
    /// The patience with a waiter is running.
    patient: bool,
    /// The state for an end that another node keeps. `None`: it is kept here.
    far: Option<Far>,
    /// Woken when another claimer wants the claim that is held for another node.
    recall: Option<Waker>,
    /// A value was posted, and the claim that is out may hold it back.
    posted: bool,
}

/// The claim of an end that another node keeps.
#[cfg_attr(not(feature = "serde"), expect(dead_code, reason = "only messages take handles to other nodes"))]
#[derive(Default)]
struct Far {
    place: Place,
    /// The number of handles here.
    handles: usize,
    /// The task that asks for the claim and returns it.
    desk: Option<Waker>,
    /// The keeper has this desk's channels.
    is_welcome: bool,
    /// The other ends of handles that were sent on from here.
    passed_on: VecDeque<Box<dyn Any + Send>>,
    /// The end was retired here, and the keeper does not know yet.
    retires: bool,
    /// A choice wanted the claim, and ended before the desk could ask for it.
    is_wished: bool,
    /// The waiters, with the reason, that were in line when the keeper refused the face and have not been
    /// polled since.
    refused: Vec<(u64, Reason)>,
}

#[cfg_attr(not(feature = "serde"), expect(dead_code, reason = "as `Far`"))]
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Place {
    /// Not here.
    #[default]
    Away,
    /// Asked for.
    Asked,
    /// Here, until a claimer elsewhere wants it.
    Here,
    /// A claimer elsewhere wants it. `unused`: no claimer here has had it yet.
    Recalled { unused: bool },
    /// Here, and no claimer has had it yet.
    Fresh,
    /// The node that keeps the end is lost.
    Lost,
}

/// The answer to a claimer.
pub(crate) enum Polled {
    /// It has the end.
    Given,
    /// It has a place in the line, or its choice was decided otherwise.
    Waits,
    /// The face, which another node keeps, cannot come here. The claimer has left the line.
    Refused(Reason),
}

/// The next task of the desk of a shared end whose keeper is elsewhere.
#[cfg(feature = "serde")]
pub(crate) enum Wish {
    /// Send the keeper the other ends of a handle that was sent on from here.
    PassOn(Box<dyn Any + Send>),
    /// Report that the end was retired here.
    Retire,
    /// Ask for the claim.
    Ask,
    /// Return the claim.
    Return,
    /// No handle is here any more. `true`: the claim is.
    Leave(bool),
}

/// The claimers of one end, in order.
#[derive(Default)]
pub(crate) struct Line {
    pub(crate) state: Lock<LineState>,
}

impl LineState {
    /// Offers the end to the first waiter that is awake. `true`: its patience now runs.
    fn offer(&mut self, wakes: &mut Wakes) -> bool {
        if self.out || self.floor.is_some() || !self.is_here() {
            return false;
        }
        let Some(first) = self.waiters.iter_mut().find(|w| !w.asleep) else { return false };
        if first.offered.is_some() {
            return false;
        }
        first.offered = Some(clock::tick().wrapping_add(PATIENCE_TICKS));
        wakes.add(first.waker.take());
        true
    }

    /// Whether a claim can be granted here.
    fn is_here(&self) -> bool {
        self.far
            .as_ref()
            .is_none_or(|far| matches!(far.place, Place::Here | Place::Fresh | Place::Recalled { unused: true }))
    }

    /// Wakes the holder for another node, and the desk, which can return the claim or ask for it.
    fn stir(&mut self, wakes: &mut Wakes) {
        wakes.add(self.recall.take());
        if let Some(far) = &mut self.far {
            wakes.add(far.desk.take());
        }
    }

    pub(crate) fn is_contended(&self) -> bool {
        self.waiters.iter().any(|w| !w.asleep)
    }

    fn remove(&mut self, ticket: u64) -> Option<Waiter> {
        let index = self.waiters.iter().position(|w| w.ticket == ticket)?;
        self.waiters.remove(index)
    }

    fn is_free_for(&self, ticket: Option<u64>) -> bool {
        let ahead = |w: &&Waiter| ticket.is_none_or(|ticket| w.ticket < ticket);
        !self.out && self.is_here() && self.floor.is_none() && self.waiters.iter().filter(ahead).all(|w| w.asleep)
    }
}

impl Line {
    /// Takes the end, or a place in the line. `commit` is called last: a choice may have been decided
    /// already.
    pub(crate) fn poll(
        self: &Arc<Self>,
        ticket: &mut Option<u64>,
        waker: &Waker,
        commit: impl FnOnce() -> bool,
    ) -> Polled {
        // Dropped after the lock is released: a task's last waker may drop the task.
        let (mut stale, mut wakes) = (Stale::default(), Wakes::default());
        let mut state = self.state.lock();
        if let Some(far) = &mut state.far
            && let Some(at) = far.refused.iter().position(|(refused, _)| Some(*refused) == *ticket)
        {
            if !commit() {
                return Polled::Waits;
            }
            *ticket = None;
            return Polled::Refused(far.refused.swap_remove(at).1);
        }
        if state.is_free_for(*ticket) {
            if !commit() {
                return Polled::Waits;
            }
            state.out = true;
            if let Some(far) = &mut state.far {
                far.place = match far.place {
                    Place::Recalled { .. } => Place::Recalled { unused: false },
                    _ => Place::Here,
                };
            }
            let gone = ticket.take().and_then(|ticket| state.remove(ticket));
            drop(state);
            drop(gone);
            return Polled::Given;
        }
        match *ticket {
            Some(ticket) => {
                if let Some(waiter) = state.waiters.iter_mut().find(|w| w.ticket == ticket) {
                    waiter.asleep = false;
                    waiter.offered = None;
                    stale.store(&mut waiter.waker, waker);
                }
            }
            None => {
                let new = state.next_ticket;
                state.next_ticket += 1;
                *ticket = Some(new);
                let waker = Some(keep(waker));
                state.waiters.push_back(Waiter { ticket: new, waker, asleep: false, offered: None });
            }
        }
        state.stir(&mut wakes);
        drop(state);
        Polled::Waits
    }

    /// Leaves the line; an offer is passed on.
    pub(crate) fn leave(self: &Arc<Self>, ticket: u64) {
        let mut wakes = Wakes::default();
        let mut state = self.state.lock();
        let gone = state.remove(ticket);
        if let Some(far) = &mut state.far {
            far.refused.retain(|(refused, _)| *refused != ticket);
        }
        let waits = state.offer(&mut wakes);
        state.stir(&mut wakes);
        drop(state);
        drop(gone);
        self.be_patient(waits);
    }

    pub(crate) fn release(self: &Arc<Self>) {
        let mut wakes = Wakes::default();
        let mut state = self.state.lock();
        (state.out, state.posted) = (false, false);
        let waits = if state.lone > 0 && !state.waiters.is_empty() {
            state.floor = Some(clock::tick().wrapping_add(PATIENCE_TICKS));
            true
        } else {
            state.offer(&mut wakes)
        };
        state.stir(&mut wakes);
        drop(state);
        self.be_patient(waits);
    }

    pub(crate) fn lone_began(&self) {
        self.lone_began_by(Handle::END);
    }

    /// As [`lone_began`](Self::lone_began), by this handle, which is at another node.
    pub(crate) fn lone_began_by(&self, handle: Handle) {
        let mut wakes = Wakes::default();
        let mut state = self.state.lock();
        state.lone += 1;
        if handle != Handle::END {
            match state.lone_far.iter_mut().find(|(other, _)| *other == handle) {
                Some((_, count)) => *count += 1,
                None => state.lone_far.push((handle, 1)),
            }
        }
        wakes.add(state.recall.take());
        drop(state);
    }

    /// A handle has posted a value, and does not wait for it.
    pub(crate) fn posted(&self) {
        let mut wakes = Wakes::default();
        let mut state = self.state.lock();
        state.posted |= state.out;
        wakes.add(state.recall.take());
        drop(state);
    }

    pub(crate) fn lone_ended(self: &Arc<Self>) {
        self.lone_ended_by(Handle::END);
    }

    pub(crate) fn lone_ended_by(self: &Arc<Self>, handle: Handle) {
        let mut wakes = Wakes::default();
        let mut state = self.state.lock();
        state.lone -= 1;
        if handle != Handle::END
            && let Some(at) = state.lone_far.iter().position(|(other, _)| *other == handle)
        {
            state.lone_far[at].1 -= 1;
            if state.lone_far[at].1 == 0 {
                state.lone_far.swap_remove(at);
            }
        }
        state.floor = None;
        let waits = state.offer(&mut wakes);
        drop(state);
        self.be_patient(waits);
    }

    fn be_patient(self: &Arc<Self>, waits: bool) {
        if waits && !std::mem::replace(&mut self.state.lock().patient, true) {
            let line: Weak<Self> = Arc::downgrade(self);
            be_patient(line);
        }
    }
}

/// Claims of an end whose handles are at several nodes.
impl Line {
    /// The end was lost with its node: no claim can be granted any more.
    #[cfg(feature = "serde")]
    pub(crate) fn lose(&self) {
        let mut wakes = Wakes::default();
        let mut state = self.state.lock();
        let far = state.far.get_or_insert_default();
        far.place = Place::Lost;
        let passed_on = std::mem::take(&mut far.passed_on);
        state.waiters.iter_mut().for_each(|waiter| wakes.add(waiter.waker.take()));
        state.stir(&mut wakes);
        drop(state);
        drop(passed_on);
    }

    /// A choice wanted the claim, and has ended. If the desk has not asked for it yet, it does now, so that
    /// the next choice finds it here.
    pub(crate) fn wish(&self) {
        let mut wakes = Wakes::default();
        let mut state = self.state.lock();
        if let Some(far) = state.far.as_mut().filter(|far| far.place == Place::Away) {
            far.is_wished = true;
            wakes.add(far.desk.take());
        }
        drop(state);
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.state.lock().far.as_ref().is_some_and(|far| far.place == Place::Lost)
    }

    /// A claimer elsewhere wants the end: the claim returns to the keeper once it is free here, but not
    /// before a claimer here has had it.
    #[cfg(feature = "serde")]
    pub(crate) fn recalled(&self) {
        let mut wakes = Wakes::default();
        let mut state = self.state.lock();
        if let Some(far) = &mut state.far {
            far.place = match far.place {
                Place::Here => Place::Recalled { unused: false },
                Place::Fresh => Place::Recalled { unused: true },
                other => other,
            };
        }
        state.stir(&mut wakes);
        drop(state);
    }
}

#[cfg(feature = "serde")]
impl Line {
    /// The line for an end that another node keeps.
    pub(crate) fn far() -> Self {
        let line = Self::default();
        line.state.lock().far = Some(Far::default());
        line
    }

    pub(crate) fn handle_made(&self) {
        if let Some(far) = &mut self.state.lock().far {
            far.handles += 1;
        }
    }

    pub(crate) fn handle_dropped(&self) {
        let mut wakes = Wakes::default();
        let mut state = self.state.lock();
        if let Some(far) = &mut state.far {
            far.handles = far.handles.saturating_sub(1);
        }
        state.stir(&mut wakes);
        drop(state);
    }

    /// The end was retired here. `false`: its keeper is lost.
    pub(crate) fn retire(&self) -> bool {
        let mut wakes = Wakes::default();
        let mut state = self.state.lock();
        let Some(far) = state.far.as_mut().filter(|far| far.place != Place::Lost) else { return false };
        far.retires = true;
        wakes.add(far.desk.take());
        drop(state);
        true
    }

    /// A handle was sent on from here.
    pub(crate) fn pass_on(&self, other_ends: Box<dyn Any + Send>) {
        let mut wakes = Wakes::default();
        let mut state = self.state.lock();
        let dropped = match &mut state.far {
            Some(far) if far.place != Place::Lost => {
                far.passed_on.push_back(other_ends);
                None
            }
            // The keeper is lost, and that handle with it.
            _ => Some(other_ends),
        };
        state.stir(&mut wakes);
        drop(state);
        drop(dropped);
    }

    /// The keeper has this desk's channels.
    pub(crate) fn welcomed(&self) {
        let mut wakes = Wakes::default();
        let mut state = self.state.lock();
        if let Some(far) = &mut state.far {
            far.is_welcome = true;
        }
        state.stir(&mut wakes);
        drop(state);
    }

    /// The desk's next task.
    pub(crate) fn poll_wish(&self, cx: &mut Context<'_>) -> Poll<Wish> {
        let mut stale = Stale::default();
        let mut state = self.state.lock();
        let (out, waits) = (state.out, state.is_contended());
        let Some(far) = &mut state.far else { return Poll::Pending };
        let wish = match far.place {
            // Before the claim returns: otherwise another claimer could receive what this one has refused.
            _ if far.retires => {
                far.retires = false;
                Some(Wish::Retire)
            }
            // Not before the keeper has these channels: otherwise they would pass through the nodes that this
            // handle came by, and this node may be one of them.
            _ if far.is_welcome && !far.passed_on.is_empty() => far.passed_on.pop_front().map(Wish::PassOn),
            // A claim that was asked for may be on its way, and the end of a face with it: it has to be
            // returned.
            _ if far.handles == 0 && far.passed_on.is_empty() && far.place != Place::Asked => {
                Some(Wish::Leave(!matches!(far.place, Place::Away | Place::Lost)))
            }
            Place::Away if waits || far.is_wished => {
                far.place = Place::Asked;
                far.is_wished = false;
                Some(Wish::Ask)
            }
            Place::Recalled { unused } if !out && (!unused || !waits) => {
                far.place = Place::Away;
                Some(Wish::Return)
            }
            _ => None,
        };
        match wish {
            Some(wish) => Poll::Ready(wish),
            None => {
                stale.store(&mut far.desk, cx.waker());
                Poll::Pending
            }
        }
    }

    /// The claim has arrived.
    pub(crate) fn granted(self: &Arc<Self>) {
        let mut wakes = Wakes::default();
        let mut state = self.state.lock();
        if let Some(far) = &mut state.far {
            far.place = Place::Fresh;
        }
        let waits = state.offer(&mut wakes);
        drop(state);
        self.be_patient(waits);
    }

    /// The face cannot come here: its waiters get the reason.
    pub(crate) fn refused(&self, why: &Reason) {
        let mut wakes = Wakes::default();
        let mut state = self.state.lock();
        let waiters = std::mem::take(&mut state.waiters);
        if let Some(far) = &mut state.far {
            far.place = Place::Away;
            far.refused.extend(waiters.iter().map(|waiter| (waiter.ticket, why.clone())));
        }
        waiters.into_iter().for_each(|waiter| wakes.add(waiter.waker));
        state.stir(&mut wakes);
        drop(state);
    }

    /// Ready when another claimer wants the end that this handle has claimed for another node.
    pub(crate) fn poll_wanted(&self, claimer: Handle, cx: &mut Context<'_>) -> Poll<()> {
        let mut stale = Stale::default();
        let mut state = self.state.lock();
        let own = state.lone_far.iter().find(|(handle, _)| *handle == claimer).map_or(0, |(_, count)| *count);
        if state.lone > own || state.posted || state.is_contended() {
            return Poll::Ready(());
        }
        stale.store(&mut state.recall, cx.waker());
        Poll::Pending
    }
}

impl Patient for Line {
    fn patience_ran_out(self: Arc<Self>, tick: u32) -> bool {
        let over = |until: u32| (tick.wrapping_sub(until) as i32) >= 0;
        let mut wakes = Wakes::default();
        let mut state = self.state.lock();
        if state.floor.is_some_and(over) {
            state.floor = None;
        }
        if let Some(sleeper) = state.waiters.iter_mut().find(|w| w.offered.is_some_and(over)) {
            sleeper.offered = None;
            sleeper.asleep = true;
        }
        state.offer(&mut wakes);
        state.stir(&mut wakes);
        state.patient = state.floor.is_some() || state.waiters.iter().any(|w| w.offered.is_some());
        state.patient
    }
}
