//! Workers that have nothing to do, and how they are called.
//!
//! The worker enters itself, *then* looks once more for what has come from outside. Who brings something puts it into the queue, *then*
//! looks for an idle worker. Between the two steps each has a fence, so that at least one of them sees the other: nothing is left in
//! the queue while the worker sleeps.

use std::task::Waker;

use super::sync::{AtomicUsize, Mutex, Ordering, fence, lock};

/// The workers that sleep.
pub(super) struct Idle {
    /// As many as `workers` has: so that nobody takes the lock for nothing.
    count: AtomicUsize,
    workers: Mutex<Vec<(usize, Waker)>>,
}

impl Idle {
    pub(super) fn new() -> Self {
        Self { count: AtomicUsize::new(0), workers: Mutex::new(Vec::new()) }
    }

    /// The worker sleeps from now on, unless `is_work_there` by now. Whether it does.
    pub(super) fn sleep(&self, worker: usize, waker: &Waker, is_work_there: impl FnOnce() -> bool) -> bool {
        let mut workers = lock(&self.workers);
        // It may have been polled for no reason.
        workers.retain(|(it, _)| *it != worker);
        workers.push((worker, waker.clone()));
        self.count.store(workers.len(), Ordering::Relaxed);
        drop(workers);
        fence(Ordering::SeqCst);
        // Who was called meanwhile sleeps too: it is woken in vain, which the caller must bear.
        !(is_work_there() && self.remove(worker))
    }

    fn remove(&self, worker: usize) -> bool {
        let mut workers = lock(&self.workers);
        let Some(place) = workers.iter().position(|(it, _)| *it == worker) else { return false };
        let (_, waker) = workers.swap_remove(place);
        self.count.store(workers.len(), Ordering::Relaxed);
        drop(workers);
        drop(waker);
        true
    }

    /// After something was put into the queue: a worker that is to be woken.
    #[inline]
    pub(super) fn call(&self) -> Option<(usize, Waker)> {
        fence(Ordering::SeqCst);
        self.any()
    }

    /// A worker that is to be woken, if one sleeps as far as is known here.
    #[inline]
    pub(super) fn any(&self) -> Option<(usize, Waker)> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut workers = lock(&self.workers);
        let called = workers.pop();
        self.count.store(workers.len(), Ordering::Relaxed);
        called
    }
}
