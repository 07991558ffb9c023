//! How the core keeps a waker while an operation waits, and how it wakes it.
//!
//! The same as `Waker::clone` and `Waker::wake`, but without a call through a pointer for the waker of a `par!` branch,
//! which is two numbers ([`crate::par::waker`]).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

use crate::par::waker;

/// `waker.clone()`, and not counted as kept outside of dunlin ([`crate::waits::activity`]).
#[inline(always)]
pub fn keep(waker: &Waker) -> Waker {
    waker::copy(waker).unwrap_or_else(|| waker.clone())
}

/// `waker.wake()`. Not under a lock: it runs the scheduler's code.
#[inline(always)]
pub(crate) fn wake(waker: Waker) {
    if let Some(waker) = waker::wake_branch(waker) {
        waker.wake();
    }
}

/// Calls `f` for every item. If a call panics, the others follow all the same, and the first panic goes on
/// after them.
///
/// A waker is the code of a runtime, which may panic: the tasks behind it in a list must not stay asleep for
/// that.
pub(crate) fn each<I: IntoIterator>(items: I, f: impl FnMut(I::Item)) {
    struct Rest<I: Iterator, F: FnMut(I::Item)>(I, F);

    impl<I: Iterator, F: FnMut(I::Item)> Drop for Rest<I, F> {
        fn drop(&mut self) {
            // Only a panic has left some. A second one would end the program here.
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

/// Wakes all of them, also if one panics: that panic goes on when all others have been woken.
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
