//! The waiting receivers of a channel, and which of them a value wakes.
//!
//! An unshared receiver waits alone and has a place of its own here. The handles of a shared receiver form a
//! [`Crowd`].
//!
//! Waking all of a crowd for one value would cost as much as the crowd is large. A value therefore wakes at
//! most [`WAKES_MAX`] parked receivers, the oldest first, and each of them is responsible for its wake:
//!
//! 1. *News* is anything that has become available to take or to request. Each news begins a new round.
//! 2. A woken receiver looks into the channel when it is polled. If it is dropped, its choice is decided
//!    elsewhere, or it leaves a value behind, it wakes the next receiver that has not looked in this round
//!    ([`Watchers::pass_on`]).
//! 3. A woken receiver may never be polled. If something is left at the next tick ([`clock::advance`]), all
//!    receivers that have not looked in this round are woken, and those woken before count as
//!    [asleep](Stands::Asleep). On a busy channel a value is nearly always on its way: if sixteen values were
//!    taken since the last tick, this step waits for one more tick.
//!
//! While something is left, either a woken receiver has yet to look, or all receivers have looked in vain.
//! Without rule 2, a dropped receiver would lose a wake; without rule 3, receivers that are not polled would
//! keep a value from one that is.
//!
//! If woken receivers are polled soon, all but one of the sixteen look in vain. A crowd of more than sixteen
//! adapts: a round in which half of the woken receivers look in vain halves how many the next round wakes,
//! down to one, or to [`BUFFERED_WAKES_MIN`] for a buffered value. Rule 3 sets it back to sixteen. A crowd of
//! sixteen or fewer is woken as a whole.
//!
//! No step depends on the number of parked receivers, except the expiry of one under a bound, which visits
//! all. A table finds the place of a handle. Two linked lists hold the places of the parked receivers, by
//! age, and of the woken ones. A receiver that looked in vain returns to the position of its age. The search
//! begins at the last receiver that returned, and stops after [`STEPS_MAX`] steps at any position.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Weak};
use std::task::Waker;

use crate::clock::{self, Patient, be_patient};
use crate::handle::Handle;
use crate::lock::{Guard, Lock};
use crate::wake;
use crate::wake::{Stale, Wakes};

/// How many parked receivers one value wakes at most. More than one, so that a receiver that is not polled
/// rarely costs a tick; few, so that the superfluous wakes cost nothing.
pub(crate) const WAKES_MAX: usize = if cfg!(any(loom, shuttle)) { 2 } else { 16 };

/// How many a buffered value wakes at least. Its sender continues: if that computes for long, the receiver
/// woken last may have to wait for it, because a runtime may reserve that receiver for the sender's own
/// thread (tokio's LIFO slot). A second one can run on another thread. The sender of a rendezvous waits.
const BUFFERED_WAKES_MIN: usize = 2;

/// How far a receiver that looked in vain searches for its place.
const STEPS_MAX: usize = 32;

/// No place.
const NONE: u32 = u32::MAX;

/// How a receiver waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stands {
    /// It does not wait.
    Absent,
    /// It looked in vain and can be woken.
    Parked,
    /// It was woken and has not been polled since.
    Woken,
    /// It was woken and not polled for a tick, or was polled and did not look. No turn waits for it.
    Asleep,
    /// The bound on waiting receivers ends it with an error.
    Expired,
}

/// What the queue has to check after a receiver has looked or left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Due {
    /// The receiver had been woken: if it leaves a value behind, the next one must be woken.
    pub(super) pass_on: bool,
    /// The next tick wakes all others; if no value is left, that wake is cancelled.
    pub(super) patience: bool,
}

impl Due {
    const NOTHING: Self = Self { pass_on: false, patience: false };

    pub(super) fn is_nothing(self) -> bool {
        self == Self::NOTHING
    }
}

/// The waiting receivers of a channel.
pub(super) struct Watchers {
    /// The waker of the receiver itself: unshared, or held by a claim.
    end: Option<Waker>,
    end_stands: Stands,
    crowd: Option<Arc<Crowd>>,
}

impl Watchers {
    pub(super) fn new() -> Self {
        Self { end: None, end_stands: Stands::Absent, crowd: None }
    }

    /// Takes over the receiver that waited in the one slot.
    pub(super) fn adopt(&mut self, waker: Waker) {
        (self.end, self.end_stands) = (Some(waker), Stands::Parked);
    }

    /// Whether no receiver waits.
    #[cfg(feature = "link")]
    pub(super) fn is_empty(&self) -> bool {
        self.end_stands == Stands::Absent && self.crowd.is_none()
    }

    fn places(&self) -> Option<Guard<'_, Places>> {
        self.crowd.as_ref().map(|crowd| crowd.places.lock())
    }

    /// Parks a receiver that has looked in vain.
    pub(super) fn watch(&mut self, handle: Handle, waker: &Waker, stale: &mut Stale) -> Due {
        if handle != Handle::END {
            return self.crowd.get_or_insert_default().places.lock().watch(handle, waker, stale);
        }
        stale.store(&mut self.end, waker);
        let before = std::mem::replace(&mut self.end_stands, Stands::Parked);
        if before == Stands::Absent
            && let Some(mut places) = self.places()
        {
            places.end_age = places.new_age();
        }
        Due::NOTHING
    }

    /// Parks the receiver itself, if that needs no other work: it has no handles beside it, and no other
    /// waker than this one.
    #[inline]
    pub(super) fn park_end(&mut self, waker: &Waker) -> bool {
        if self.crowd.is_some() {
            return false;
        }
        match &self.end {
            Some(kept) if !kept.will_wake(waker) => return false,
            Some(_) => {}
            None => self.end = Some(wake::keep(waker)),
        }
        self.end_stands = Stands::Parked;
        true
    }

    /// Removes the receiver itself. Returns its waker, to be dropped outside the lock.
    #[inline]
    pub(super) fn remove_end(&mut self) -> Option<Waker> {
        self.end_stands = Stands::Absent;
        self.end.take()
    }

    /// Removes a receiver that has its value or was dropped.
    #[inline]
    pub(super) fn remove(&mut self, handle: Handle, stale: &mut Stale) -> Due {
        if handle == Handle::END {
            stale.add(self.remove_end());
            return Due::NOTHING;
        }
        self.places().map_or(Due::NOTHING, |mut places| places.remove(handle, stale))
    }

    /// What the queue has to check after a value may have disappeared.
    #[inline]
    pub(super) fn due(&self) -> Due {
        self.places().map_or(Due::NOTHING, |places| places.due(false))
    }

    /// The receiver was polled and could not look: its choice is decided, or reserved, for another branch.
    pub(super) fn step_aside(&mut self, handle: Handle) -> Due {
        if handle == Handle::END {
            if self.end_stands == Stands::Woken {
                self.end_stands = Stands::Asleep;
            }
            return Due::NOTHING;
        }
        self.places().map_or(Due::NOTHING, |mut places| places.step_aside(handle))
    }

    /// Begins a round: wakes the oldest parked receivers. `buffered`: the sender does not wait for one of
    /// them. `true` if one was parked.
    pub(super) fn wake_some(&mut self, buffered: bool, wakes: &mut Wakes) -> bool {
        let woke = self.wake_end(wakes);
        let Some(crowd) = &self.crowd else { return woke };
        let (woke_others, be_patient_now) = crowd.places.lock().wake_some(buffered, wakes);
        if be_patient_now {
            let crowd: Weak<Crowd> = Arc::downgrade(crowd);
            be_patient(crowd);
        }
        woke || woke_others
    }

    /// Wakes one receiver, which alone can make progress. `true` if it was parked.
    pub(super) fn wake_one(&mut self, handle: Handle, wakes: &mut Wakes) -> bool {
        if handle == Handle::END {
            return self.wake_end(wakes);
        }
        self.places().is_some_and(|mut places| places.wake_one(handle, wakes))
    }

    /// Wakes all parked receivers: the channel has ended, or their options have changed. `true` if one was
    /// parked.
    pub(super) fn wake_all(&mut self, wakes: &mut Wakes) -> bool {
        let woke = self.wake_end(wakes);
        self.places().is_some_and(|mut places| places.wake_all(wakes)) || woke
    }

    fn wake_end(&mut self, wakes: &mut Wakes) -> bool {
        let parked = self.end.is_some();
        if parked {
            wakes.add(self.end.take());
            if self.end_stands == Stands::Parked {
                self.end_stands = Stands::Woken;
            }
        }
        parked
    }

    /// Wakes the next receiver that has not looked in this round, because a woken one leaves a value behind.
    pub(super) fn pass_on(&mut self, wakes: &mut Wakes) {
        if let Some(mut places) = self.places() {
            places.pass_on(wakes);
        }
    }

    /// Counts a value that was taken.
    pub(super) fn taken(&mut self) {
        if let Some(mut places) = self.places() {
            places.taken = places.taken.saturating_add(1);
        }
    }

    /// Cancels the wake of all at the next tick: no value is left for a receiver to take.
    pub(super) fn nothing_left(&mut self) {
        if let Some(mut places) = self.places() {
            places.due = None;
        }
    }

    /// Whether a receiver that was woken has not been polled since.
    pub(super) fn has_unpolled(&self) -> bool {
        self.end_stands == Stands::Woken || self.places().is_some_and(|places| places.woken.first != NONE)
    }

    // ---- the bound on waiting receivers

    pub(super) fn has(&self, handle: Handle) -> bool {
        if handle == Handle::END {
            return self.end_stands != Stands::Absent;
        }
        self.places().is_some_and(|places| places.index.contains_key(&handle))
    }

    /// How many receivers count against the bound.
    pub(super) fn counted(&self) -> usize {
        let end = !matches!(self.end_stands, Stands::Absent | Stands::Expired);
        usize::from(end) + self.places().map_or(0, |places| places.counted)
    }

    /// Fails the receiver that has waited longest, or else shortest. `true`: it had been woken, and its wake
    /// must be passed on.
    pub(super) fn expire(&mut self, longest: bool, wakes: &mut Wakes) -> bool {
        let end = !matches!(self.end_stands, Stands::Absent | Stands::Expired);
        if let Some(mut places) = self.places()
            && let Some(at) = places.extreme(longest)
            && (!end || (places.slots[at as usize].age < places.end_age) == longest)
        {
            return places.expire(at, wakes);
        }
        if end {
            self.end_stands = Stands::Expired;
            wakes.add(self.end.take());
        }
        false
    }

    pub(super) fn is_expired(&self, handle: Handle) -> bool {
        if handle == Handle::END {
            return self.end_stands == Stands::Expired;
        }
        self.places().is_some_and(|places| {
            places.index.get(&handle).is_some_and(|at| places.slots[*at as usize].stands == Stands::Expired)
        })
    }
}

/// Spreads the numbers of handles, which are consecutive, over a table.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32(u32::from(*byte)));
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// The waiting handles of a shared receiver.
///
/// It has its own lock, taken under the channel's, because ticks reach it directly. They cannot go through
/// the channel, whose values need not be `Send` or `'static`.
#[derive(Default)]
struct Crowd {
    places: Lock<Places>,
}

/// One receiver.
struct Slot {
    stands: Stands,
    /// Whether it counts against the bound on waiting receivers.
    counted: bool,
    /// Set while it is parked.
    waker: Option<Waker>,
    age: u64,
    /// The round in which it looked last.
    looked: u32,
    /// The round in which it was woken last.
    woken: u32,
    previous: u32,
    next: u32,
}

/// A list through the slots.
#[derive(Clone, Copy)]
struct List {
    first: u32,
    last: u32,
}

impl List {
    const EMPTY: Self = Self { first: NONE, last: NONE };
}

struct Places {
    slots: Vec<Slot>,
    free: Vec<u32>,
    index: HashMap<Handle, u32, BuildHasherDefault<Spread>>,
    /// By age.
    parked: List,
    /// In the order in which they were woken.
    woken: List,
    /// The parked receiver that returned last.
    finger: u32,
    /// The first parked receiver that may not have looked in this round.
    fresh: u32,
    round: u32,
    next_age: u64,
    /// How many receivers the next round wakes, if more than [`WAKES_MAX`] are parked.
    width: usize,
    /// How many woken receivers have looked in vain in this round. Receivers that a tick woke do not count:
    /// they start the count below zero.
    in_vain: isize,
    /// How many receivers are parked.
    parked_count: usize,
    /// The age of the receiver itself, while it waits beside its handles.
    end_age: u64,
    counted: usize,
    /// The tick that wakes all, if a value is left then.
    due: Option<u32>,
    /// How many values were taken since the last tick.
    taken: usize,
    /// Whether ticks are delivered here.
    patient: bool,
}

impl Default for Places {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            index: HashMap::default(),
            parked: List::EMPTY,
            woken: List::EMPTY,
            finger: NONE,
            fresh: NONE,
            round: 0,
            next_age: 1,
            width: WAKES_MAX,
            in_vain: 0,
            parked_count: 0,
            end_age: 0,
            counted: 0,
            due: None,
            taken: 0,
            patient: false,
        }
    }
}

/// Whether one round, or tick, precedes another. Both counts wrap.
fn is_before(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) < 0
}

impl Places {
    fn new_age(&mut self) -> u64 {
        self.next_age += 1;
        self.next_age - 1
    }

    fn slot(&mut self, at: u32) -> &mut Slot {
        &mut self.slots[at as usize]
    }

    fn due(&self, pass_on: bool) -> Due {
        Due { pass_on: pass_on && self.fresh != NONE, patience: self.due.is_some() }
    }

    fn watch(&mut self, handle: Handle, waker: &Waker, stale: &mut Stale) -> Due {
        let Some(&at) = self.index.get(&handle) else {
            let waker = Some(wake::keep(waker));
            self.add(handle, waker);
            return Due::NOTHING;
        };
        let round = self.round;
        let slot = self.slot(at);
        stale.store(&mut slot.waker, waker);
        slot.looked = round;
        let before = std::mem::replace(&mut slot.stands, Stands::Parked);
        match before {
            Stands::Parked => return Due::NOTHING,
            Stands::Woken => {
                Self::unlink(&mut self.slots, &mut self.woken, at);
                self.in_vain += 1;
            }
            _ => {}
        }
        self.park(at);
        self.due(before == Stands::Woken)
    }

    fn add(&mut self, handle: Handle, waker: Option<Waker>) {
        let slot = Slot {
            stands: Stands::Parked,
            counted: true,
            waker,
            age: self.new_age(),
            looked: self.round,
            woken: 0,
            previous: NONE,
            next: NONE,
        };
        let at = match self.free.pop() {
            Some(at) => {
                *self.slot(at) = slot;
                at
            }
            None => {
                self.slots.push(slot);
                u32::try_from(self.slots.len() - 1).expect("handles have numbers of 32 bits")
            }
        };
        self.counted += 1;
        self.index.insert(handle, at);
        self.parked_count += 1;
        Self::link(&mut self.slots, &mut self.parked, at, NONE);
    }

    /// Links the slot into the list of parked receivers, by its age.
    fn park(&mut self, at: u32) {
        let age = self.slots[at as usize].age;
        let age_of = |at: u32| self.slots[at as usize].age;
        let before = if self.parked.last == NONE || age_of(self.parked.last) < age {
            NONE
        } else if age_of(self.parked.first) > age {
            self.parked.first
        } else {
            let mut before = if self.finger == NONE { self.parked.first } else { self.finger };
            if age_of(before) < age {
                // Not past the last one, which is younger.
                for _ in 0..STEPS_MAX {
                    before = self.slots[before as usize].next;
                    if age_of(before) > age {
                        break;
                    }
                }
            } else {
                // Not past the first one, which is older.
                for _ in 0..STEPS_MAX {
                    let previous = self.slots[before as usize].previous;
                    if age_of(previous) < age {
                        break;
                    }
                    before = previous;
                }
            }
            before
        };
        Self::link(&mut self.slots, &mut self.parked, at, before);
        self.parked_count += 1;
        self.finger = at;
    }

    /// Links the slot into a list before another one, or at its end.
    fn link(slots: &mut [Slot], list: &mut List, at: u32, before: u32) {
        let previous = if before == NONE { list.last } else { slots[before as usize].previous };
        (slots[at as usize].previous, slots[at as usize].next) = (previous, before);
        match previous {
            NONE => list.first = at,
            previous => slots[previous as usize].next = at,
        }
        match before {
            NONE => list.last = at,
            before => slots[before as usize].previous = at,
        }
    }

    fn unlink(slots: &mut [Slot], list: &mut List, at: u32) {
        let (previous, next) = (slots[at as usize].previous, slots[at as usize].next);
        match previous {
            NONE => list.first = next,
            previous => slots[previous as usize].next = next,
        }
        match next {
            NONE => list.last = previous,
            next => slots[next as usize].previous = previous,
        }
    }

    /// Unlinks the slot from the list of parked receivers.
    fn unpark(&mut self, at: u32) {
        let Slot { previous, next, .. } = self.slots[at as usize];
        if self.fresh == at {
            self.fresh = next;
        }
        if self.finger == at {
            self.finger = if previous == NONE { next } else { previous };
        }
        Self::unlink(&mut self.slots, &mut self.parked, at);
        self.parked_count -= 1;
    }

    fn wake(&mut self, at: u32, wakes: &mut Wakes) {
        self.unpark(at);
        let round = self.round;
        let slot = self.slot(at);
        (slot.stands, slot.woken) = (Stands::Woken, round);
        wakes.add(slot.waker.take());
        Self::link(&mut self.slots, &mut self.woken, at, NONE);
    }

    /// Returns whether a receiver was parked, and whether ticks have to be delivered from now on.
    fn wake_some(&mut self, buffered: bool, wakes: &mut Wakes) -> (bool, bool) {
        let woke = self.parked.first != NONE;
        self.round = self.round.wrapping_add(1);
        if 2 * self.in_vain >= self.width as isize {
            self.width = (self.width / 2).max(1);
        }
        if self.in_vain > 0 || self.woken.first == NONE {
            self.in_vain = 0;
        }
        let width = if buffered { self.width.max(BUFFERED_WAKES_MIN) } else { self.width };
        let wakes_max = if self.parked_count > WAKES_MAX { width } else { self.parked_count };
        for _ in 0..wakes_max {
            self.wake(self.parked.first, wakes);
        }
        self.fresh = self.parked.first;
        if self.fresh == NONE {
            return (woke, false);
        }
        self.due = self.due.or(Some(clock::tick().wrapping_add(1)));
        let was_patient = std::mem::replace(&mut self.patient, true);
        if !was_patient {
            self.taken = 0;
        }
        (woke, !was_patient)
    }

    fn wake_one(&mut self, handle: Handle, wakes: &mut Wakes) -> bool {
        let Some(&at) = self.index.get(&handle) else { return false };
        let parked = self.slots[at as usize].stands == Stands::Parked;
        if parked {
            self.wake(at, wakes);
        }
        parked
    }

    fn wake_all(&mut self, wakes: &mut Wakes) -> bool {
        let woke = self.parked.first != NONE;
        while self.parked.first != NONE {
            self.wake(self.parked.first, wakes);
        }
        self.due = None;
        woke
    }

    fn pass_on(&mut self, wakes: &mut Wakes) {
        while self.fresh != NONE {
            let at = self.fresh;
            self.fresh = self.slots[at as usize].next;
            if self.slots[at as usize].looked != self.round {
                return self.wake(at, wakes);
            }
        }
    }

    fn remove(&mut self, handle: Handle, stale: &mut Stale) -> Due {
        let Some(at) = self.index.remove(&handle) else { return self.due(false) };
        let stands = self.slots[at as usize].stands;
        match stands {
            Stands::Parked => self.unpark(at),
            Stands::Woken => Self::unlink(&mut self.slots, &mut self.woken, at),
            Stands::Absent | Stands::Asleep | Stands::Expired => {}
        }
        let slot = self.slot(at);
        slot.stands = Stands::Absent;
        stale.add(slot.waker.take());
        self.counted -= usize::from(self.slots[at as usize].counted);
        self.free.push(at);
        self.due(stands == Stands::Woken)
    }

    fn step_aside(&mut self, handle: Handle) -> Due {
        let Some(&at) = self.index.get(&handle) else { return Due::NOTHING };
        let woken = self.slots[at as usize].stands == Stands::Woken;
        if woken {
            self.sleep(at);
        }
        self.due(woken)
    }

    fn sleep(&mut self, at: u32) {
        Self::unlink(&mut self.slots, &mut self.woken, at);
        self.slot(at).stands = Stands::Asleep;
    }

    /// The oldest, or else the youngest, receiver that counts against the bound.
    fn extreme(&self, oldest: bool) -> Option<u32> {
        let all = self.slots.iter().enumerate().filter(|(_, slot)| slot.stands != Stands::Absent && slot.counted);
        let ages = all.map(|(at, slot)| (slot.age, at as u32));
        if oldest { ages.min() } else { ages.max() }.map(|(_, at)| at)
    }

    fn expire(&mut self, at: u32, wakes: &mut Wakes) -> bool {
        let stands = self.slots[at as usize].stands;
        match stands {
            Stands::Parked => self.unpark(at),
            Stands::Woken => Self::unlink(&mut self.slots, &mut self.woken, at),
            Stands::Absent | Stands::Asleep | Stands::Expired => {}
        }
        let slot = self.slot(at);
        (slot.stands, slot.counted) = (Stands::Expired, false);
        wakes.add(slot.waker.take());
        self.counted -= 1;
        stands == Stands::Woken
    }
}

impl Patient for Crowd {
    fn patience_ran_out(self: Arc<Self>, tick: u32) -> bool {
        let mut wakes = Wakes::default();
        let mut places = self.places.lock();
        if places.due.is_some_and(|due| !is_before(tick, due)) {
            if std::mem::take(&mut places.taken) >= WAKES_MAX {
                places.due = Some(tick.wrapping_add(1));
            } else {
                (places.due, places.width) = (None, WAKES_MAX);
                while places.woken.first != NONE {
                    let at = places.woken.first;
                    places.sleep(at);
                }
                places.in_vain = 0;
                while places.fresh != NONE {
                    places.pass_on(&mut wakes);
                    places.in_vain -= 1;
                }
            }
        }
        (places.patient, places.taken) = (places.due.is_some(), 0);
        places.patient
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::sync::Mutex;
    use std::task::Wake;

    use super::*;

    /// Writes its number into the list when it is woken.
    struct Named(usize, Arc<Mutex<Vec<usize>>>);

    impl Wake for Named {
        fn wake(self: Arc<Self>) {
            self.1.lock().unwrap().push(self.0);
        }
    }

    struct Group {
        watchers: Watchers,
        woken: Arc<Mutex<Vec<usize>>>,
    }

    impl Group {
        fn of(count: usize) -> Self {
            let mut group = Self { watchers: Watchers::new(), woken: Arc::default() };
            (0..count).for_each(|number| _ = group.watch(number));
            group
        }

        fn watch(&mut self, number: usize) -> Due {
            let waker = Waker::from(Arc::new(Named(number, self.woken.clone())));
            self.watchers.watch(Handle::clone_number(number as u32), &waker, &mut Stale::default())
        }

        fn remove(&mut self, number: usize) -> Due {
            self.watchers.remove(Handle::clone_number(number as u32), &mut Stale::default())
        }

        fn woken_by(&mut self, wake: impl FnOnce(&mut Watchers, &mut Wakes)) -> Vec<usize> {
            let mut wakes = Wakes::default();
            wake(&mut self.watchers, &mut wakes);
            drop(wakes);
            std::mem::take(&mut self.woken.lock().unwrap())
        }

        fn news(&mut self) -> Vec<usize> {
            self.news_of(false)
        }

        fn news_of(&mut self, buffered: bool) -> Vec<usize> {
            self.woken_by(|watchers, wakes| _ = watchers.wake_some(buffered, wakes))
        }

        fn pass_on(&mut self) -> Vec<usize> {
            self.woken_by(Watchers::pass_on)
        }

        fn tick(&mut self, tick: u32) -> (Vec<usize>, bool) {
            let crowd = self.watchers.crowd.clone().unwrap();
            let goes_on = crowd.patience_ran_out(tick);
            (std::mem::take(&mut self.woken.lock().unwrap()), goes_on)
        }
    }

    #[test]
    fn news_wakes_the_oldest_sixteen() {
        let mut group = Group::of(40);
        assert_eq!(group.news(), (0..16).collect::<Vec<_>>());
        assert_eq!(group.news(), (16..32).collect::<Vec<_>>(), "those that have yet to look need no second wake");
        assert_eq!(group.news(), (32..40).collect::<Vec<_>>());
        assert_eq!(group.news(), [0; 0]);
    }

    #[test]
    fn receivers_that_find_no_value_keep_their_places() {
        for order in [[0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0], [3, 0, 5, 1, 4, 2]] {
            let mut group = Group::of(100);
            group.news();
            (6..16).for_each(|number| _ = group.watch(number));
            order.iter().for_each(|number| _ = group.watch(*number));
            let numbers = [group.news(), group.news()].concat();
            assert_eq!(numbers, (0..16).collect::<Vec<_>>(), "{order:?}");
        }
    }

    #[test]
    fn wake_count_halves_on_misses_and_resets_after_tick_without_receive() {
        let mut group = Group::of(40);
        for woken in [16, 8, 4, 2, 1, 1] {
            let numbers = group.news();
            assert_eq!(numbers, (0..woken).collect::<Vec<_>>());
            numbers.iter().for_each(|number| _ = group.watch(*number));
        }
        assert_eq!(group.news(), [0]);
        assert_eq!(group.tick(clock::tick() + 1).0, (1..40).collect::<Vec<_>>());
        (0..40).for_each(|number| _ = group.watch(number));
        group.watchers.nothing_left();
        assert_eq!(group.news(), (0..16).collect::<Vec<_>>());
    }

    #[test]
    fn a_buffered_value_wakes_at_least_two() {
        let mut group = Group::of(40);
        for woken in [16, 8, 4, 2, 2, 2] {
            let numbers = group.news_of(true);
            assert_eq!(numbers, (0..woken).collect::<Vec<_>>());
            numbers.iter().for_each(|number| _ = group.watch(*number));
        }
    }

    #[test]
    fn a_small_crowd_is_woken_as_a_whole() {
        let mut group = Group::of(16);
        for _ in 0..10 {
            assert_eq!(group.news(), (0..16).collect::<Vec<_>>());
            (0..16).for_each(|number| _ = group.watch(number));
        }
    }

    #[test]
    fn wake_is_passed_on_once_to_each_unpolled_receiver() {
        let mut group = Group::of(20);
        group.news();
        assert_eq!(group.remove(3), Due { pass_on: true, patience: true });
        assert_eq!(group.pass_on(), [16]);
        // No wake goes to a receiver that has looked since, or to a new one, which looked before it waits.
        group.watch(0);
        group.watch(20);
        assert_eq!([group.pass_on(), group.pass_on(), group.pass_on()].concat(), [17, 18, 19]);
        assert_eq!(group.pass_on(), [0; 0]);
        assert_eq!(group.watch(17), Due { pass_on: false, patience: true }, "all have looked");
        group.watchers.nothing_left();
    }

    #[test]
    fn tick_without_a_receive_wakes_all_receivers() {
        let mut group = Group::of(40);
        let begin = clock::tick();
        group.news();
        assert_eq!(group.tick(begin), (vec![], true), "not before");
        assert_eq!(group.tick(begin + 1), ((16..40).collect(), false));
        // No turn waits for the sleepers any more, and they return to their places.
        assert!(group.watchers.has_unpolled());
        (16..40).for_each(|number| _ = group.watch(number));
        assert!(!group.watchers.has_unpolled());
        group.watch(7);
        assert_eq!(group.news()[..3], [7, 16, 17]);
    }

    #[test]
    fn sixteen_receives_between_ticks_postpone_the_wake_of_all() {
        let mut group = Group::of(40);
        let begin = clock::tick();
        group.news();
        (0..16).for_each(|_| group.watchers.taken());
        assert_eq!(group.tick(begin + 1), (vec![], true), "sixteen were taken since");
        group.watchers.nothing_left();
        assert_eq!(group.tick(begin + 2), (vec![], false));
        // Fewer values do not.
        group.news();
        (0..15).for_each(|_| group.watchers.taken());
        assert_eq!(group.tick(begin + 1).0.len(), 8);
    }

    /// The receiver itself, not a handle of a shared one.
    #[test]
    fn woken_receiver_counts_as_polled_when_its_choice_takes_another_branch() {
        let mut watchers = Watchers::new();
        watchers.adopt(Waker::noop().clone());
        watchers.wake_some(false, &mut Wakes::default());
        assert!(watchers.has_unpolled());
        watchers.step_aside(Handle::END);
        assert!(!watchers.has_unpolled());
    }

    #[test]
    fn woken_receiver_counts_as_unpolled_until_it_polls_or_leaves() {
        let mut group = Group::of(2);
        assert!(!group.watchers.has_unpolled());
        group.news();
        group.watch(0);
        assert!(group.watchers.has_unpolled(), "the other one");
        group.remove(1);
        assert!(!group.watchers.has_unpolled());
    }

    #[test]
    fn places_are_used_again() {
        let mut group = Group::of(50);
        (0..50).for_each(|number| _ = group.remove(number));
        (50..100).for_each(|number| _ = group.watch(number));
        assert_eq!(group.watchers.places().unwrap().slots.len(), 50);
        assert_eq!(group.news(), (50..66).collect::<Vec<_>>());
    }
}
