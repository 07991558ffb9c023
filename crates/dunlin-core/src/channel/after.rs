//! What an operation leaves to do once the channel's lock is released: wakers to wake, values to drop.
//!
//! Every operation on a queue makes an [`After`], and mostly nothing comes of it: so it costs a few words to make, and a look at each of them in the end.

use std::sync::Arc;
use std::task::Waker;

#[cfg(feature = "link")]
use super::queue::linked::Encoding;
use crate::choice::decision::{Decision, Queued};
use crate::wakers;

/// A list that mostly has none or one: it keeps that without allocating.
pub(crate) struct Few<T> {
    first: Option<T>,
    /// If there is a first.
    #[expect(clippy::box_collection, reason = "one word, and nothing to do when it is dropped empty")]
    more: Option<Box<Vec<T>>>,
}

impl<T> Default for Few<T> {
    #[inline]
    fn default() -> Self {
        Self { first: None, more: None }
    }
}

impl<T> Few<T> {
    #[inline]
    pub(crate) fn push(&mut self, item: T) {
        if self.first.is_none() { self.first = Some(item) } else { self.push_more(item) }
    }

    #[cold]
    fn push_more(&mut self, item: T) {
        self.more.get_or_insert_default().push(item);
    }

    #[inline]
    pub(crate) fn extend(&mut self, items: impl IntoIterator<Item = T>) {
        items.into_iter().for_each(|item| self.push(item));
    }

    /// Takes them out in order.
    fn drain(&mut self) -> impl Iterator<Item = T> + use<T> {
        self.first.take().into_iter().chain(self.more.take().into_iter().flat_map(|more| *more))
    }

    fn is_one(&self) -> bool {
        self.first.is_some() && self.more.is_none()
    }
}

/// Wakers, woken on drop: all of them, also if one panics.
#[derive(Default)]
pub(crate) struct Wakes {
    wakers: Few<Waker>,
    /// Agents and barriers to be told that a choice is open again.
    pub(crate) calls: Few<Arc<dyn Queued>>,
}

impl Wakes {
    #[inline]
    pub(crate) fn add(&mut self, waker: Option<Waker>) {
        self.wakers.extend(waker);
    }

    fn wake_all(&mut self) {
        if self.calls.first.is_some() {
            let (woken, told) = (self.wakers.drain(), self.calls.drain());
            wakers::both(|| wakers::wake_all(woken), || wakers::each(told, |queued| queued.unlocked()));
        } else if self.wakers.is_one() {
            self.wakers.first.take().into_iter().for_each(wakers::wake);
        } else {
            wakers::wake_all(self.wakers.drain());
        }
    }
}

impl Drop for Wakes {
    #[inline]
    fn drop(&mut self) {
        if self.wakers.first.is_some() || self.calls.first.is_some() {
            self.wake_all();
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
    pub(crate) decisions: Few<Arc<Decision>>,
    pub(crate) dropped: Few<T>,
    /// A value is to be encoded for a link, or has been.
    #[cfg(feature = "link")]
    pub(crate) encoding: Option<Encoding<T>>,
}

/// Wakers to be dropped where no lock is held.
#[derive(Default)]
pub(crate) struct Stale(Few<Waker>);

impl Stale {
    #[inline]
    pub(crate) fn add(&mut self, waker: Option<Waker>) {
        self.0.extend(waker);
    }

    /// Keeps `waker` in the slot, unless it has it already.
    #[inline]
    pub(crate) fn store(&mut self, slot: &mut Option<Waker>, waker: &Waker) {
        if slot.as_ref().is_none_or(|old| !old.will_wake(waker)) {
            self.add(slot.replace(wakers::keep(waker)));
        }
    }
}

impl<T> After<T> {
    #[inline]
    pub(crate) fn new() -> Self {
        Self {
            wakes: Wakes::default(),
            stale: Stale::default(),
            decisions: Few::default(),
            dropped: Few::default(),
            #[cfg(feature = "link")]
            encoding: None,
        }
    }

    /// Does what is left to do, once the lock is released: as a drop, but one look at each list instead of a call for each.
    #[inline]
    pub(crate) fn done(self) {
        let wakes = self.wakes.wakers.first.is_some() || self.wakes.calls.first.is_some();
        #[cfg(feature = "link")]
        debug_assert!(self.encoding.is_none());
        let drops = self.stale.0.first.is_some() || self.decisions.first.is_some() || self.dropped.first.is_some();
        if !wakes && !drops {
            // All lists are empty: there is nothing to drop.
            std::mem::forget(self);
        }
    }
}
