//! What an operation leaves to do once the channel's lock is released: wakers to wake, values to drop.

use std::task::Waker;

/// Wakers, woken on drop. Keeps one without allocating.
#[derive(Default)]
pub(crate) struct Wakes {
    first: Option<Waker>,
    more: Vec<Waker>,
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
            waker.wake();
        }
        for waker in self.more.drain(..) {
            waker.wake();
        }
    }
}

/// Declared before the guard of a channel's lock, so dropped after it.
pub(crate) struct After<T> {
    // Woken first: a value's `Drop` may panic.
    pub(crate) wakes: Wakes,
    pub(crate) dropped: Vec<T>,
}

impl<T> After<T> {
    #[inline]
    pub(crate) fn new() -> Self {
        Self { wakes: Wakes::default(), dropped: Vec::new() }
    }
}
