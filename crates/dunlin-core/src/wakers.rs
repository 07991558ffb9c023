//! How the core keeps a waker while an operation waits, and how it wakes it.
//!
//! The same as `Waker::clone` and `Waker::wake`, but without a call through a pointer for the waker of a `par!` branch,
//! which is two numbers ([`crate::par::waker`]).

use std::task::Waker;

use crate::par::waker;

/// `waker.clone()`.
#[inline(always)]
pub(crate) fn keep(waker: &Waker) -> Waker {
    waker::copy(waker).unwrap_or_else(|| waker.clone())
}

/// `waker.wake()`. Not under a lock: it runs the scheduler's code.
#[inline(always)]
pub(crate) fn wake(waker: Waker) {
    if let Some(waker) = waker::wake_branch(waker) {
        waker.wake();
    }
}
