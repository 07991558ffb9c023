//! What is in a bucket, and the flushes of it.
//!
//! Everything happens under one lock. A fall is an entry under its ticket; the entry goes when a flush
//! releases it, or when its operation leaves. A fall outside of a choice is *firm*: a flush releases it at
//! once. For a fall in a choice the flush decides that choice ([`Decision::settle_all`]), as the party that
//! completes a barrier does. If the choice is closed or reserved, the entry is *owed* to that flush: the
//! bucket is in the choice's queue and tries again when the choice is open or decided. So a flush counts each
//! fall that it released, and no choice that took another branch.
//!
//! Lock order: the bucket's lock before a decision's.

use std::panic::Location;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use dunlin_sorted::SortedMap;

use crate::channel::after::After;
use crate::choice::ChoiceCx;
use crate::choice::decision::Decision;
use crate::error::{BucketError, Reason};
use crate::lock::{Guard, Lock};
use crate::waits::{Doing, Pid, Record};
use crate::wake::Queued;

/// A fall that has not been released.
struct Entry {
    record: &'static Record,
    /// Its choice and branch; `None`: the fall is firm.
    choice: Option<(Arc<Decision>, u32)>,
    /// The waker of a firm fall; that of a choice is in its decision.
    waker: Option<Waker>,
    /// The flush that releases it when its choice is open.
    owed_to: Option<u64>,
}

/// The result of an attempt to release a fall.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Released,
    /// Its choice has been decided otherwise.
    Gone,
    /// Its choice is closed or reserved, and will call.
    Later,
}

impl Entry {
    fn is_of(&self, offering: Option<(&Arc<Decision>, u32)>) -> bool {
        match (&self.choice, offering) {
            (None, None) => true,
            (Some((decision, branch)), Some((own, own_branch))) => decision.is(own) && *branch == own_branch,
            _ => false,
        }
    }

    fn is_gone(&self) -> bool {
        self.choice.as_ref().is_some_and(|(decision, _)| decision.decided().is_some())
    }

    fn release(&mut self, again: &Arc<dyn Queued>, after: &mut After) -> Fate {
        if let Some((decision, branch)) = &self.choice
            && !Decision::settle_all(&mut [(&**decision, *branch)], None, again, &mut after.wakes)
        {
            return if self.is_gone() { Fate::Gone } else { Fate::Later };
        }
        after.wakes.add(self.waker.take());
        self.record.receiver.end_for_holder();
        Fate::Released
    }

    /// Has its waker and choice dropped outside the lock.
    fn discard(self, after: &mut After) {
        after.stale.add(self.waker);
        after.decisions.extend(self.choice.map(|(decision, _)| decision));
    }
}

/// A flush that waits for choices.
#[derive(Default)]
struct Flush {
    released: usize,
    owed: usize,
    waker: Option<Waker>,
}

#[derive(Default)]
struct State {
    /// By their tickets, so in the order in which they fell in.
    falls: SortedMap<u64, Entry>,
    flushes: SortedMap<u64, Flush>,
    /// The last number of a ticket or a flush.
    numbers: u64,
    flushers: usize,
    /// The process that used a flusher last.
    flusher: Pid,
    /// Why nothing is released any more.
    over: Option<BucketError>,
}

impl State {
    fn next_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// The fall leaves. `false`: it has been released before.
    fn remove(&mut self, ticket: u64, after: &mut After) -> bool {
        let Some(entry) = self.falls.remove(&ticket) else { return false };
        self.settled(entry.owed_to, false, after);
        entry.discard(after);
        true
    }

    /// The fate of a fall that was owed to this flush is known.
    fn settled(&mut self, owed_to: Option<u64>, released: bool, after: &mut After) {
        let Some(flush) = owed_to.and_then(|number| self.flushes.get_mut(&number)) else { return };
        flush.owed -= 1;
        flush.released += usize::from(released);
        if flush.owed == 0 {
            after.wakes.add(flush.waker.take());
        }
    }

    /// No flush waits for a fall any more.
    fn owe_nothing(&mut self, owes: impl Fn(u64) -> bool, after: &mut After) {
        for entry in self.falls.values_mut() {
            entry.owed_to.take_if(|number| owes(*number));
        }
        for (_, flush) in self.flushes.iter_mut().filter(|(number, _)| owes(**number)) {
            flush.owed = 0;
            after.wakes.add(flush.waker.take());
        }
    }
}

/// The state that all ends of a bucket share.
pub(super) struct Inside {
    state: Lock<State>,
    made: &'static Location<'static>,
}

impl Inside {
    /// With one flusher.
    pub(super) fn new(made: &'static Location<'static>) -> Self {
        let state = State { flushers: 1, flusher: Pid::current(), ..State::default() };
        Self { state: Lock::new(state), made }
    }

    /// Where in the source the bucket was made.
    pub(super) fn made(&self) -> &'static Location<'static> {
        self.made
    }

    /// How many are in it.
    pub(super) fn holding(&self) -> usize {
        self.state.lock().falls.values().filter(|entry| !entry.is_gone()).count()
    }

    pub(super) fn add_flusher(&self) {
        self.state.lock().flushers += 1;
    }

    pub(super) fn remove_flusher(&self) {
        let mut after = After::new();
        let mut g = self.state.lock();
        g.flushers -= 1;
        if g.flushers == 0 {
            self.end(&mut g, BucketError::Closed, &mut after);
        }
    }

    pub(super) fn poison(&self, reason: Reason) {
        let mut after = After::new();
        let mut g = self.state.lock();
        self.end(&mut g, BucketError::Poisoned(reason), &mut after);
    }

    /// Every fall fails from now on. What is in the bucket learns it when it is polled.
    fn end(&self, g: &mut Guard<'_, State>, why: BucketError, after: &mut After) {
        if g.over.is_some() {
            return;
        }
        g.over = Some(why);
        g.owe_nothing(|_| true, after);
        for entry in g.falls.values_mut() {
            match &entry.choice {
                Some((decision, _)) => decision.nudge(&mut after.wakes),
                None => after.wakes.add(entry.waker.take()),
            }
        }
    }

    /// Falls in, or checks whether that fall has been released. `ticket`: that of the fall, if it has begun.
    pub(super) fn poll_fall(
        &self,
        ticket: &mut Option<u64>,
        record: &'static Record,
        cx: &mut Context<'_>,
        choice: Option<&ChoiceCx>,
    ) -> Poll<Result<(), BucketError>> {
        let mut after = After::new();
        let offering = choice.map(|choice| choice.offering(cx.waker()));
        let mut g = self.state.lock();
        if ticket.is_some_and(|ticket| !g.falls.contains_key(&ticket)) {
            drop(g);
            // Polled through a borrow, this may be another choice than the decided one.
            if choice.is_some_and(|choice| !choice.commit()) {
                return Poll::Pending;
            }
            *ticket = None;
            return Poll::Ready(Ok(()));
        }
        if let Some(why) = g.over.clone() {
            drop(g);
            if choice.is_some_and(|choice| !choice.decide()) {
                return Poll::Pending;
            }
            self.leave(ticket, record);
            return Poll::Ready(Err(why));
        }
        if let Some(number) = *ticket
            && g.falls.get(&number).is_some_and(|entry| !entry.is_of(offering))
        {
            // It fell in as a branch of an earlier choice, or outside of one.
            g.remove(number, &mut after);
            *ticket = None;
        }
        let (flusher, number) = (g.flusher, ticket.unwrap_or_else(|| g.next_number()));
        *ticket = Some(number);
        let entry = g.falls.get_or_insert_with(number, || {
            let choice = offering.map(|(decision, branch)| (decision.clone(), branch));
            Entry { record, choice, waker: None, owed_to: None }
        });
        if offering.is_none() {
            after.stale.store(&mut entry.waker, cx.waker());
        }
        record.sender.hand_to(flusher);
        record.receiver.begin(Doing::Flush);
        Poll::Pending
    }

    /// The fall, if it has begun, ends. `false`: it has been released before.
    pub(super) fn leave(&self, ticket: &mut Option<u64>, record: &'static Record) -> bool {
        let Some(number) = ticket.take() else { return true };
        let mut after = After::new();
        let mut g = self.state.lock();
        record.receiver.end();
        g.remove(number, &mut after)
    }

    /// Whether a poll of the fall would be ready.
    pub(super) fn seems_ready(&self, ticket: Option<u64>) -> bool {
        let g = self.state.lock();
        g.over.is_some() || ticket.is_some_and(|ticket| !g.falls.contains_key(&ticket))
    }

    /// Releases all that are in the bucket. `flush`: its number, if it waits for choices.
    pub(super) fn poll_flush(
        self: &Arc<Self>,
        flush: &mut Option<u64>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<usize, BucketError>> {
        let mut after = After::new();
        let mut g = self.state.lock();
        let number = match *flush {
            Some(number) => number,
            None => {
                if let Some(why) = &g.over {
                    return Poll::Ready(Err(why.clone()));
                }
                g.flusher = Pid::current();
                *flush.insert(self.begin(&mut g, &mut after))
            }
        };
        let Some(begun) = g.flushes.get_mut(&number) else { return Poll::Ready(Ok(0)) };
        if begun.owed > 0 {
            after.stale.store(&mut begun.waker, cx.waker());
            return Poll::Pending;
        }
        let released = begun.released;
        g.flushes.remove(&number);
        *flush = None;
        Poll::Ready(Ok(released))
    }

    fn begin(self: &Arc<Self>, g: &mut Guard<'_, State>, after: &mut After) -> u64 {
        let again: Arc<dyn Queued> = self.clone();
        let (number, mut flush) = (g.next_number(), Flush::default());
        for (ticket, mut entry) in std::mem::take(&mut g.falls) {
            // One that an earlier flush releases is not counted twice.
            if entry.owed_to.is_none() {
                match entry.release(&again, after) {
                    Fate::Released => {
                        flush.released += 1;
                        entry.discard(after);
                        continue;
                    }
                    Fate::Gone => {}
                    Fate::Later => {
                        flush.owed += 1;
                        entry.owed_to = Some(number);
                    }
                }
            }
            g.falls.insert(ticket, entry);
        }
        g.flushes.insert(number, flush);
        number
    }

    /// The flush is dropped: what is owed to it stays in the bucket.
    pub(super) fn forget_flush(&self, number: u64) {
        let mut after = After::new();
        let mut g = self.state.lock();
        g.owe_nothing(|owed_to| owed_to == number, &mut after);
        g.flushes.remove(&number);
    }
}

impl Queued for Inside {
    fn unlocked(self: Arc<Self>) {
        let mut after = After::new();
        let mut g = self.state.lock();
        if g.flushes.is_empty() {
            return;
        }
        let again: Arc<dyn Queued> = self.clone();
        for (ticket, mut entry) in std::mem::take(&mut g.falls) {
            if entry.owed_to.is_some() {
                let fate = entry.release(&again, &mut after);
                if fate != Fate::Later {
                    g.settled(entry.owed_to.take(), fate == Fate::Released, &mut after);
                }
                if fate == Fate::Released {
                    entry.discard(&mut after);
                    continue;
                }
            }
            g.falls.insert(ticket, entry);
        }
    }
}
