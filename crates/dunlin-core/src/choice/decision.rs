//! The state that a choice with sends or barriers shares with the parties that may take one of its offers.
//!
//! A choice with only receives needs none. A choice whose sends are offered in several channels, or that
//! stands at a barrier, must be decided once. Its owner, a receiver of any of these offers, or the party that
//! completes the barrier may decide it, on any thread. `docs/choice.md` has the algorithm, and what breaks
//! without each part. A decision is open; closed for a moment, by its owner; reserved, by an agent for a
//! receiver elsewhere; or decided.
//!
//! An owner that finds its decision reserved and would decide for another branch comes first when the
//! reservation is returned: no party reserves the decision again until the owner has been polled. Without
//! that a receiver that asks again at once, and an owner that asks back again at once, could alternate for
//! ever. A local receiver does not wait for the owner: it decides, and returns nothing.
//!
//! An owner that only needs to look, because one of its branches must be polled to know, asks back every
//! other reservation. Otherwise an owner that is polled more often than a value travels would never send.
//!
//! A barrier whose choices are all local acts like a local receiver: the party that completes it decides for
//! all its choices at once, or for none, and so never keeps one reserved. A barrier with choices elsewhere
//! reserves them all, in ascending order of their numbers. That may take long, so an owner whose other branch
//! is ready does not wait for it: it asks back at once ([`Decision::ask_back`]).
//!
//! Lock order: a channel's or a barrier's lock before a decision's; several decisions in ascending order of
//! their numbers.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::task::Waker;

use crate::clock::{self, PATIENCE_TICKS, Patient, be_patient};
use crate::lock::{Guard, Lock};
use crate::sync::{AtomicU64, Ordering, global};
use crate::turn;
use crate::wake::{Queued, Wakes, keep};

global! { static NEXT: AtomicU64 = AtomicU64::new(1); }
global! { static ORIGIN: AtomicU64 = AtomicU64::new(0); }

/// Sets the number of this operating system process, for choices that span several. The first number stays;
/// `false`: it is another.
pub(crate) fn set_origin(origin: u64) -> bool {
    match ORIGIN.compare_exchange(0, origin, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => true,
        Err(stands) => stands == origin,
    }
}

/// A number for a party that stands in a choice's place elsewhere.
pub(crate) fn next_id() -> u128 {
    everywhere(NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The number by which other processes know a choice of this process.
fn everywhere(id: u64) -> u128 {
    u128::from(ORIGIN.load(Ordering::Relaxed)) << 64 | u128::from(id)
}

/// The branch number that stands for `skip`.
pub(crate) const SKIPPED: u32 = u32::MAX;

enum Status {
    /// Any offer may be taken.
    Open,
    /// Its owner polls a branch that cannot be undone.
    Busy,
    /// One of its offers is promised to a receiver elsewhere, which will confirm or abort.
    Reserved(Arc<dyn Reserver>),
    /// This branch happened.
    Decided(u32),
}

struct State {
    status: Status,
    /// A party found the decision busy and gave up: it must be woken when the decision opens again.
    turned_away: bool,
    /// The parties that found it busy or reserved and try again, in order, once it is open.
    queue: VecDeque<Arc<dyn Queued>>,
    owner: Option<Waker>,
    /// It is reserved, and its owner would decide for another branch.
    wanted: bool,
    /// That branch was ready.
    ready: bool,
    /// The reservation has been asked back.
    asked_back: bool,
    /// The previous reservation was asked back only to look: this one, or the next, is left to the receiver.
    spared: bool,
    /// It was wanted and has been returned: no party reserves it before its owner has been polled, or before
    /// this tick.
    owners_turn: Option<u32>,
    /// The patience with its owner is running.
    patient: bool,
    /// The turn of one of its sends, which a timer ends, or 0.
    turn: u32,
}

/// In the lock's tag: it may be the owner's turn, or the queue may have an entry.
const OWED: u32 = 1;
/// The reserver may keep the reservation long.
const LONG: u32 = 1 << 1;

/// Calls the parties in the queue, unless they still have to wait.
fn tell_queued(state: &mut Guard<'_, State>, wakes: &mut Wakes) {
    let wait = match state.status {
        Status::Open => state.owners_turn.is_some(),
        Status::Busy | Status::Reserved(_) => true,
        Status::Decided(_) => false,
    };
    if !wait {
        state.clear(OWED);
        wakes.calls.extend(state.queue.drain(..));
    }
}

/// An agent that reserves an offer of a choice for a receiver elsewhere.
pub(crate) trait Reserver: Queued {
    /// Another branch of the choice would decide: return the reservation if it has not been used. Not called
    /// under any lock.
    fn revoke(self: Arc<Self>);

    /// Whether more than one answer may pass before the reservation is used or returned.
    fn keeps_long(&self) -> bool {
        false
    }
}

/// The result of trying to reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reserve {
    Granted,
    /// The reserver is in the queue and will be called.
    Later,
    Dead,
}

/// One choice, open or decided.
pub(crate) struct Decision {
    /// Totally ordered over all choices of this process, so that two can be locked in order.
    id: u64,
    state: Lock<State>,
}

/// A choice and one of its branches, for an operation that is a branch.
pub(crate) type Branching<'a> = Option<(&'a Decision, u32)>;

/// The result of trying to take an offer of a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    /// Both are decided now: the offer is taken.
    Both,
    /// The taker's own choice had been decided already by another party, or is reserved for another.
    OwnGone,
    /// The offer's choice is busy; its watchers will be woken when it is not.
    Busy,
    /// The offer's choice was decided for another branch: this offer is dead.
    Dead,
}

impl Decision {
    pub(crate) fn new(owner: &Waker) -> Self {
        Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            state: Lock::new(State {
                status: Status::Open,
                turned_away: false,
                queue: VecDeque::new(),
                owner: Some(keep(owner)),
                wanted: false,
                ready: false,
                asked_back: false,
                spared: false,
                owners_turn: None,
                patient: false,
                turn: 0,
            }),
        }
    }

    /// Sets the waker for when another party decides.
    pub(crate) fn set_owner(&self, owner: &Waker) {
        let mut state = self.state.lock();
        let old = match &mut state.owner {
            Some(waker) if waker.will_wake(owner) => None,
            slot => slot.replace(keep(owner)),
        };
        drop(state);
        drop(old);
    }

    /// Begins a turn. `false`: no timer could end it.
    pub(crate) fn begin_turn(&self, owner: &Waker) -> bool {
        let Some(turn) = turn::begin(owner) else { return false };
        let before = std::mem::replace(&mut self.state.lock().turn, turn);
        if before != 0 {
            turn::forget(before);
        }
        true
    }

    /// Whether the turn continues; then its end wakes the owner.
    pub(crate) fn waits_for_turn(&self, owner: &Waker) -> bool {
        let turn = self.state.lock().turn;
        !turn::is_over(turn, owner)
    }

    /// The branch that happened, if one has.
    pub(crate) fn decided(&self) -> Option<u32> {
        match self.state.lock().status {
            Status::Decided(branch) => Some(branch),
            _ => None,
        }
    }

    /// Its owner takes `branch`, unless another party has decided already, or has it reserved. The queue is
    /// called when the owner has been [`polled`](Self::polled): here a channel may be locked.
    pub(crate) fn take(&self, branch: u32) -> bool {
        let mut state = self.state.lock();
        match state.status {
            Status::Decided(taken) => taken == branch,
            Status::Reserved(_) => {
                (state.wanted, state.ready) = (true, true);
                false
            }
            Status::Open | Status::Busy => {
                state.status = Status::Decided(branch);
                true
            }
        }
    }

    /// Closes it while its owner polls an operation that cannot be undone. `false`: it is decided, or
    /// reserved; then the reservation is asked back, always if it is `sure` that the owner would decide.
    pub(crate) fn close(&self, sure: bool) -> bool {
        let mut state = self.state.lock();
        let reserver = match &state.status {
            Status::Open | Status::Busy => {
                state.status = Status::Busy;
                return true;
            }
            Status::Reserved(reserver) => reserver.clone(),
            Status::Decided(_) => return false,
        };
        state.wanted = true;
        let ask = !state.asked_back && (sure || !state.spared);
        state.asked_back |= ask;
        drop(state);
        if !ask {
            return false;
        }
        reserver.revoke();
        // A local reserver has returned it already: this is the owner's turn.
        let mut state = self.state.lock();
        let is_open = matches!(state.status, Status::Open);
        if is_open {
            state.status = Status::Busy;
        }
        is_open
    }

    /// Closes it while its owner encodes or decodes a value; a channel's lock may be held. `false`: it is
    /// decided, or reserved.
    #[cfg(feature = "link")]
    pub(crate) fn close_now(&self) -> bool {
        let mut state = self.state.lock();
        match state.status {
            Status::Open | Status::Busy => {
                state.status = Status::Busy;
                true
            }
            Status::Reserved(_) => {
                state.wanted = true;
                false
            }
            Status::Decided(_) => false,
        }
    }

    /// Opens it again after [`close`](Self::close).
    pub(crate) fn reopen(&self) {
        let mut wakes = Wakes::default();
        let mut state = self.state.lock();
        if matches!(state.status, Status::Busy) {
            state.status = Status::Open;
        }
        tell_queued(&mut state, &mut wakes);
    }

    /// Its owner has been polled, and may have decided; `all`: with each of its branches.
    pub(crate) fn polled(&self, all: bool, wakes: &mut Wakes) {
        if self.state.tag().is_some_and(|tag| tag & OWED == 0) {
            return;
        }
        let mut state = self.state.lock();
        if all {
            state.owners_turn = None;
        }
        tell_queued(&mut state, wakes);
    }

    /// Asks for a long reservation back, if its owner has been polled and would decide; only once, if it is
    /// not sure that the owner would.
    pub(crate) fn ask_back(&self) {
        if self.state.tag().is_some_and(|tag| tag & LONG == 0) {
            return;
        }
        let mut state = self.state.lock();
        let reserver = match &state.status {
            Status::Reserved(reserver) if state.wanted && !state.asked_back && reserver.keeps_long() => {
                reserver.clone()
            }
            Status::Reserved(_) => return,
            _ => return state.clear(LONG),
        };
        let ask = state.wanted && !state.asked_back && (state.ready || !state.spared);
        state.asked_back |= ask;
        drop(state);
        if ask {
            reserver.revoke();
        }
    }

    /// Whether a party was turned away and must be woken now that it is open.
    pub(crate) fn take_turned_away(&self) -> bool {
        let mut state = self.state.lock();
        matches!(state.status, Status::Open) && std::mem::take(&mut state.turned_away)
    }

    /// Whether one of its offers is promised to a receiver elsewhere. `wanted`: its owner would decide for
    /// another branch.
    pub(crate) fn is_reserved(&self, wanted: bool) -> bool {
        let mut state = self.state.lock();
        let reserved = matches!(state.status, Status::Reserved(_));
        state.wanted |= reserved && wanted;
        reserved
    }

    /// An agent tries to reserve one of its offers for a receiver elsewhere.
    pub(crate) fn reserve(&self, reserver: &Arc<dyn Reserver>) -> Reserve {
        let mut state = self.state.lock();
        match state.status {
            Status::Open if state.owners_turn.is_none() => {
                state.status = Status::Reserved(reserver.clone());
                if reserver.keeps_long() {
                    state.set(LONG);
                }
                Reserve::Granted
            }
            Status::Open | Status::Busy | Status::Reserved(_) => {
                let again: Arc<dyn Queued> = reserver.clone();
                if !state.queue.iter().any(|queued| Arc::ptr_eq(queued, &again)) {
                    state.set(OWED);
                    state.queue.push_back(again);
                }
                Reserve::Later
            }
            Status::Decided(_) => Reserve::Dead,
        }
    }

    /// Whether [`reserve`](Self::reserve) would not have to wait. If it would, the caller is woken when the
    /// choice is open.
    pub(crate) fn may_be_reserved(&self) -> bool {
        let mut state = self.state.lock();
        let may = match state.status {
            Status::Open => state.owners_turn.is_none(),
            Status::Busy | Status::Reserved(_) => false,
            // `reserve` finds it dead.
            Status::Decided(_) => true,
        };
        state.turned_away |= !may;
        may
    }

    /// The receiver elsewhere has taken the offer that it had reserved.
    pub(crate) fn confirm(&self, branch: u32, wakes: &mut Wakes) {
        let mut state = self.state.lock();
        if matches!(state.status, Status::Reserved(_)) {
            state.status = Status::Decided(branch);
        }
        tell_queued(&mut state, wakes);
        wakes.add(state.owner.as_ref().map(keep));
    }

    /// The receiver elsewhere has returned the reservation: others may try, after an owner that has wanted
    /// it.
    pub(crate) fn abort(self: &Arc<Self>, wakes: &mut Wakes) {
        let mut state = self.state.lock();
        if let Status::Reserved(reserver) = &state.status {
            // A long reserver may return it for the sake of another choice: then this one is still spared.
            let still = state.spared && reserver.keeps_long();
            state.status = Status::Open;
            state.spared = std::mem::take(&mut state.asked_back) || still;
            state.ready = false;
            if std::mem::take(&mut state.wanted) {
                state.owners_turn = Some(clock::tick().wrapping_add(PATIENCE_TICKS));
                state.set(OWED);
            }
        }
        tell_queued(&mut state, wakes);
        wakes.add(state.owner.as_ref().map(keep));
        let waits = state.owners_turn.is_some() && !std::mem::replace(&mut state.patient, true);
        drop(state);
        if waits {
            let decision: Weak<Self> = Arc::downgrade(self);
            be_patient(decision);
        }
    }

    /// Another party takes the offer that is `branch` of this choice. `own` is the party's own choice, if it
    /// is in one.
    pub(crate) fn settle(&self, branch: u32, own: Branching<'_>, wakes: &mut Wakes) -> Settled {
        let Some((own, own_branch)) = own else {
            return Self::settle_locked(&mut self.state.lock(), branch, wakes);
        };
        let (mut mine, mut theirs);
        if own.id < self.id {
            mine = own.state.lock();
            theirs = self.state.lock();
        } else {
            theirs = self.state.lock();
            mine = own.state.lock();
        }
        // `mine` is not closed: the caller is its owner, and is not polling a foreign branch now.
        if matches!(mine.status, Status::Decided(_) | Status::Reserved(_)) {
            mine.wanted = true;
            return Settled::OwnGone;
        }
        let settled = Self::settle_locked(&mut theirs, branch, wakes);
        if settled == Settled::Both {
            mine.status = Status::Decided(own_branch);
        }
        settled
    }

    /// All these choices take the branch beside them, or none does. `own`: the caller's choice, which needs
    /// no wake. `false`: one of them is not open; if it may open again, `again` is in its queue, once.
    pub(crate) fn settle_all(
        choices: &mut [(&Self, u32)],
        own: Branching<'_>,
        again: &Arc<dyn Queued>,
        wakes: &mut Wakes,
    ) -> bool {
        choices.sort_unstable_by_key(|(decision, _)| decision.id);
        if choices.windows(2).any(|two| two[0].0.is(two[1].0)) {
            // The choice would have to take two of its branches.
            return false;
        }
        let is_own = |decision: &Self| own.is_some_and(|(own, _)| own.is(decision));
        let mut locked = Vec::with_capacity(choices.len());
        for (decision, _) in &*choices {
            let mut state = decision.state.lock();
            match state.status {
                Status::Open => locked.push(state),
                Status::Decided(_) => return false,
                Status::Busy | Status::Reserved(_) => {
                    state.wanted |= is_own(decision);
                    if !state.queue.iter().any(|queued| Arc::ptr_eq(queued, again)) {
                        state.set(OWED);
                        state.queue.push_back(again.clone());
                    }
                    return false;
                }
            }
        }
        for (state, (decision, branch)) in locked.iter_mut().zip(choices) {
            state.status = Status::Decided(*branch);
            tell_queued(state, wakes);
            if !is_own(decision) {
                wakes.add(state.owner.take());
            }
        }
        true
    }

    fn settle_locked(theirs: &mut Guard<'_, State>, branch: u32, wakes: &mut Wakes) -> Settled {
        match theirs.status {
            Status::Open => {
                theirs.status = Status::Decided(branch);
                tell_queued(theirs, wakes);
                wakes.add(theirs.owner.take());
                Settled::Both
            }
            Status::Busy | Status::Reserved(_) => {
                theirs.turned_away = true;
                Settled::Busy
            }
            Status::Decided(_) => Settled::Dead,
        }
    }

    /// Wakes the owner: one of its offers has changed.
    pub(crate) fn nudge(&self, wakes: &mut Wakes) {
        wakes.add(self.state.lock().owner.as_ref().map(keep));
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        self.id == other.id
    }

    /// Its number among all choices, those of other processes included. Within this process the order is that
    /// of `id`.
    pub(crate) fn id(&self) -> u128 {
        everywhere(self.id)
    }
}

impl Drop for Decision {
    fn drop(&mut self) {
        // In a model no timer ends turns.
        #[cfg(not(any(loom, shuttle)))]
        {
            let turn = self.state.lock().turn;
            if turn != 0 {
                // Otherwise its end would wake the task that has reused the waker's place.
                turn::forget(turn);
            }
        }
    }
}

impl Patient for Decision {
    fn patience_ran_out(self: Arc<Self>, tick: u32) -> bool {
        let mut wakes = Wakes::default();
        let mut state = self.state.lock();
        state.owners_turn.take_if(|until| (tick.wrapping_sub(*until) as i32) >= 0);
        tell_queued(&mut state, &mut wakes);
        state.patient = state.owners_turn.is_some();
        state.patient
    }
}
