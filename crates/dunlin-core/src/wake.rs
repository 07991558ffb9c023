//! How the core keeps and wakes wakers: at once, or as part of a list after all locks are released.
//!
//! Equivalent to `Waker::clone` and `Waker::wake`, but without a call through a pointer for the waker of a
//! `par!` branch, which is two numbers ([`crate::par::waker`]).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;

pub use crate::par::waker::keep;
use crate::par::waker::wake_branch;

/// `waker.wake()`. Not under a lock: it runs the scheduler's code.
#[inline(always)]
pub(crate) fn wake(waker: Waker) {
    if let Some(waker) = wake_branch(waker) {
        waker.wake();
    }
}

/// Calls `f` for every item. If a call panics, the others still follow, and the first panic continues after
/// them.
///
/// A waker is the code of a runtime, which may panic: that must not leave the tasks after it in a list
/// asleep.
pub(crate) fn each<I: IntoIterator>(items: I, f: impl FnMut(I::Item)) {
    struct Rest<I: Iterator, F: FnMut(I::Item)>(I, F);

    impl<I: Iterator, F: FnMut(I::Item)> Drop for Rest<I, F> {
        fn drop(&mut self) {
            // Items are left only after a panic. A second panic would end the program here.
            while let Some(item) = self.0.next() {
                let _ = catch_unwind(AssertUnwindSafe(|| (self.1)(item)));
            }
        }
    }

    let mut rest = Rest(items.into_iter(), f);
    for item in rest.0.by_ref() {
        (rest.1)(item);
    }
}

/// Wakes all of them, also if one panics: that panic continues when all others have been woken.
pub fn wake_all(wakers: impl IntoIterator<Item = Waker>) {
    each(wakers, wake);
}

/// Calls `first` and then `second`, also if `first` panics.
pub(crate) fn both(first: impl FnOnce(), second: impl FnOnce()) {
    let (mut first, mut second) = (Some(first), Some(second));
    each([true, false], |is_first| match is_first {
        true => first.take().into_iter().for_each(|first| first()),
        false => second.take().into_iter().for_each(|second| second()),
    });
}

/// An entry in the queue of a choice.
pub(crate) trait Queued: Send + Sync {
    /// The choice is open, or decided: try again. Not called under any lock.
    fn unlocked(self: Arc<Self>);
}

/// A list that mostly has no item or one: it stores these without allocating.
pub(crate) struct Few<T> {
    first: Option<T>,
    /// Set only if there is a first.
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

    #[inline(always)]
    pub(crate) fn has_some(&self) -> bool {
        self.first.is_some()
    }

    fn is_one(&self) -> bool {
        self.first.is_some() && self.more.is_none()
    }
}

/// Wakers, woken on drop: all of them, also if one panics.
#[derive(Default)]
pub(crate) struct Wakes {
    wakers: Few<Waker>,
    /// Agents and barriers to call when a choice is open again.
    pub(crate) calls: Few<Arc<dyn Queued>>,
}

impl Wakes {
    #[inline]
    pub(crate) fn add(&mut self, waker: Option<Waker>) {
        self.wakers.extend(waker);
    }

    #[inline(always)]
    pub(crate) fn has_some(&self) -> bool {
        self.wakers.first.is_some() || self.calls.first.is_some()
    }

    fn wake_all(&mut self) {
        if self.calls.first.is_some() {
            let (woken, told) = (self.wakers.drain(), self.calls.drain());
            both(|| wake_all(woken), || each(told, |queued| queued.unlocked()));
        } else if self.wakers.is_one() {
            self.wakers.first.take().into_iter().for_each(wake);
        } else {
            wake_all(self.wakers.drain());
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

/// Wakers to be dropped where no lock is held.
#[derive(Default)]
pub(crate) struct Stale(Few<Waker>);

impl Stale {
    #[inline(always)]
    pub(crate) fn has_some(&self) -> bool {
        self.0.first.is_some()
    }

    #[inline]
    pub(crate) fn add(&mut self, waker: Option<Waker>) {
        self.0.extend(waker);
    }

    /// Stores `waker` in the slot, unless the slot has it already.
    #[inline]
    pub(crate) fn store(&mut self, slot: &mut Option<Waker>, waker: &Waker) {
        if slot.as_ref().is_none_or(|old| !old.will_wake(waker)) {
            self.add(slot.replace(keep(waker)));
        }
    }
}
