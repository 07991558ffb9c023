//! What an operation leaves to do once the channel's lock is released: wakers to wake, values to drop.

use std::sync::Arc;
use std::task::Waker;

use crate::choice::decision::{Decision, Queued};
use crate::wakers;

/// Wakers, woken on drop. Keeps one without allocating.
#[derive(Default)]
pub(crate) struct Wakes {
    first: Option<Waker>,
    more: Vec<Waker>,
    /// Agents and barriers to be told that a choice is open again.
    pub(crate) calls: Vec<Arc<dyn Queued>>,
}

impl Wakes {
    pub(crate) fn add(&mut self, waker: Option<Waker>) {
        match waker {
            None => {}
            waker if self.first.is_none() => self.first = waker,
            Some(waker) => self.more.push(waker),
        }
    }
}

impl Drop for Wakes {
    fn drop(&mut self) {
        if let Some(waker) = self.first.take() {
            wakers::wake(waker);
        }
        for waker in self.more.drain(..) {
            wakers::wake(waker);
        }
        for queued in self.calls.drain(..) {
            queued.unlocked();
        }
    }
}

/// Declared before the guard of a channel's lock, so dropped after it.
pub(crate) struct After<T> {
    // Woken first: a value's `Drop` may panic.
    pub(crate) wakes: Wakes,
    /// Wakers nobody needs any more. The last one of a task may drop the task, and with it ends of this very channel.
    pub(crate) stale: Stale,
    /// The same goes for the wakers of choices.
    pub(crate) decisions: Vec<Arc<Decision>>,
    pub(crate) dropped: Vec<T>,
}

/// Wakers to be dropped where no lock is held. Keeps one without allocating.
#[derive(Default)]
pub(crate) struct Stale(Option<Waker>, Vec<Waker>);

impl Stale {
    pub(crate) fn add(&mut self, waker: Option<Waker>) {
        match waker {
            None => {}
            waker if self.0.is_none() => self.0 = waker,
            Some(waker) => self.1.push(waker),
        }
    }

    /// Keeps `waker` in the slot, unless it has it already.
    pub(crate) fn store(&mut self, slot: &mut Option<Waker>, waker: &Waker) {
        if slot.as_ref().is_none_or(|old| !old.will_wake(waker)) {
            self.add(slot.replace(wakers::keep(waker)));
        }
    }
}

impl<T> After<T> {
    #[inline]
    pub(crate) fn new() -> Self {
        Self { wakes: Wakes::default(), stale: Stale::default(), decisions: Vec::new(), dropped: Vec::new() }
    }
}
