//! The state that a choice with sends or barriers shares with whoever may take one of its offers.
//!
//! A choice with only receives needs none. One whose sends are offered in several channels, or that stands at
//! a barrier, must be decided once, by itself, by a receiver of any of these offers, or by whoever completes
//! the barrier, on any thread. The algorithm, and what breaks without each part, is in `docs/choice.md`. A
//! decision is open; closed for a moment, by its owner; reserved, by an agent on behalf of a receiver
//! elsewhere; or decided.
//!
//! An owner that finds its decision reserved and would decide for another branch is first when the
//! reservation is given back: until it has been polled nobody reserves the decision again. Without that a
//! receiver that asks again at once, and an owner that asks back again at once, may go on so for ever. A
//! receiver that is here does not wait for the owner: it decides, and gives nothing back.
//!
//! An owner that only wants to look, because one of its branches must be polled to know, asks back every
//! other reservation. Else one that is polled more often than a value travels would never send.
//!
//! A barrier whose choices are all here is like a receiver that is here: whoever completes it decides for all
//! its choices at once, or for none, and so never keeps one reserved. One with choices elsewhere reserves
//! them all, in ascending order of their numbers. That may take long, so an owner whose other branch is ready
//! does not wait for it: it asks back at once ([`Decision::ask_back`]).
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

/// The number of this operating system process, where choices of several meet. The first one stands; `false`:
/// it is another.
pub(crate) fn set_origin(origin: u64) -> bool {
    match ORIGIN.compare_exchange(0, origin, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => true,
        Err(stands) => stands == origin,
    }
}

/// A number for something that stands in a choice's place elsewhere.
pub(crate) fn next_id() -> u128 {
    everywhere(NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The number by which others know a choice of this process.
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
    /// A receiver elsewhere has been promised one of its offers, and will confirm or abort.
    Reserved(Arc<dyn Reserver>),
    /// This branch happened.
    Decided(u32),
}

struct State {
    status: Status,
    /// Somebody found the decision busy and went away: it must be woken when it opens again.
    turned_away: bool,
    /// Those who found it busy or reserved and try again, in order, once it is open.
    queue: VecDeque<Arc<dyn Queued>>,
    owner: Option<Waker>,
    /// It is reserved, and its owner would decide for another branch.
    wanted: bool,
    /// That branch was ready.
    ready: bool,
    /// The reservation has been asked back.
    asked_back: bool,
    /// The one before was asked back only to look: this one, or the next, is left to the receiver.
    spared: bool,
    /// It was wanted and has been given back: nobody reserves it before its owner has been polled, or before
    /// this tick.
    owners_turn: Option<u32>,
    /// The patience with its owner runs.
    patient: bool,
    /// The turn of one of its sends that a timer ends, or 0.
    turn: u32,
}

/// In the lock's tag: it may be the owner's turn, or somebody may be in the queue.
const OWED: u32 = 1;
/// It may be reserved by one who keeps it long.
const LONG: u32 = 1 << 1;

/// Tells those in the queue, unless they still have to wait.
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
    /// Another branch of the choice wants to decide: give the reservation back if it has not been used. Not
    /// called under any lock.
    fn revoke(self: Arc<Self>);

    /// Whether more than one answer may pass before it is used or given back.
    fn keeps_long(&self) -> bool {
        false
    }
}

/// What came of trying to reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reserve {
    Granted,
    /// The reserver is in the queue and will be told.
    Later,
    Dead,
}

/// One choice, open or decided.
pub(crate) struct Decision {
    /// Total over all choices of this process, so that two can be locked in order.
    id: u64,
    state: Lock<State>,
}

/// A choice and one of its branches: how an operation is told that it is one.
pub(crate) type Branching<'a> = Option<(&'a Decision, u32)>;

/// What came of trying to take an offer of a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    /// Both are decided now: the offer is taken.
    Both,
    /// The taker's own choice had been decided already by another party, or is reserved for one.
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

    /// Whom to wake when another party decides.
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

    /// Whether the turn goes on; then its end wakes the owner.
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

    /// Its owner takes `branch`, unless another party has decided already, or has it reserved. Those in the
    /// queue are told when the owner has been [`polled`](Self::polled): here a channel may be locked.
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

    /// Closes it while its owner polls what cannot be undone. `false`: it is decided, or reserved; then the
    /// reservation is asked back, always if it is `sure` that the owner would decide.
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
        // One who is here has given it back already: this is the owner's turn.
        let mut state = self.state.lock();
        let is_open = matches!(state.status, Status::Open);
        if is_open {
            state.status = Status::Busy;
        }
        is_open
    }

    /// Closes it while its owner encodes or decodes a value, which a channel's lock may be held for. `false`:
    /// it is decided, or reserved.
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

    /// Its owner has been polled, and may have decided; `all`: each of its branches was.
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

    /// Its owner has been polled and would decide, but the choice is reserved by one who keeps it long: that
    /// one is asked to give it back; once, if it is not sure that the owner would.
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

    /// Whether somebody was turned away and must be woken now that it is open.
    pub(crate) fn take_turned_away(&self) -> bool {
        let mut state = self.state.lock();
        matches!(state.status, Status::Open) && std::mem::take(&mut state.turned_away)
    }

    /// Whether a receiver elsewhere has been promised one of its offers. `wanted`: its owner would decide for
    /// another branch.
    pub(crate) fn is_reserved(&self, wanted: bool) -> bool {
        let mut state = self.state.lock();
        let reserved = matches!(state.status, Status::Reserved(_));
        state.wanted |= reserved && wanted;
        reserved
    }

    /// An agent wants one of its offers for a receiver elsewhere.
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
            // It is found dead.
            Status::Decided(_) => true,
        };
        state.turned_away |= !may;
        may
    }

    /// The receiver elsewhere has taken the offer it had reserved.
    pub(crate) fn confirm(&self, branch: u32, wakes: &mut Wakes) {
        let mut state = self.state.lock();
        if matches!(state.status, Status::Reserved(_)) {
            state.status = Status::Decided(branch);
        }
        tell_queued(&mut state, wakes);
        wakes.add(state.owner.as_ref().map(keep));
    }

    /// The receiver elsewhere has given the reservation back: others may try, an owner that has wanted it
    /// first.
    pub(crate) fn abort(self: &Arc<Self>, wakes: &mut Wakes) {
        let mut state = self.state.lock();
        if let Status::Reserved(reserver) = &state.status {
            // One who keeps it long may give it back for the sake of another choice: then this one is spared
            // still.
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

    /// Another party takes the offer that is `branch` of this choice; `own` is its own choice, if it is in
    /// one.
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
        // Mine is open: I am its owner, and I am not polling a foreign branch now.
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

    /// All these choices take the branch beside them, or none does. `own`: that of the caller, who needs no
    /// waking. `false`: one of them is not open; if it may be again, `again` is in its queue, once.
    pub(crate) fn settle_all(
        choices: &mut [(&Self, u32)],
        own: Branching<'_>,
        again: &Arc<dyn Queued>,
        wakes: &mut Wakes,
    ) -> bool {
        choices.sort_unstable_by_key(|(decision, _)| decision.id);
        if choices.windows(2).any(|two| two[0].0.is(two[1].0)) {
            // It would have to take two of its branches.
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

    /// Its number among all choices, those of other processes included. Within this one the order is that of
    /// `id`.
    pub(crate) fn id(&self) -> u128 {
        everywhere(self.id)
    }
}

impl Drop for Decision {
    fn drop(&mut self) {
        // In a model nothing ends turns later.
        #[cfg(not(any(loom, shuttle)))]
        {
            let turn = self.state.lock().turn;
            if turn != 0 {
                // Its end would wake the task that has the waker's place by then.
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
