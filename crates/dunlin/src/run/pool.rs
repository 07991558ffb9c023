//! The processes and workers of one runtime.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, RwLock};

use crossbeam_deque::{Injector, Steal, Stealer};
use tokio::runtime::{Handle, Id, RuntimeFlavor};

use super::idle::Idle;
use super::list::List;
use super::process::Ready;
use super::worker::{NOBODY, Worker};

/// What the workers of a runtime share.
pub(super) struct Pool {
    pub(super) runtime: Handle,
    /// How many threads the runtime has for its tasks.
    pub(super) threads: usize,
    /// Whether processes may block their threads (`block_in_place`).
    pub(super) blocks: bool,
    /// Processes that were woken or spawned outside the workers.
    pub(super) injected: Injector<Ready>,
    pub(super) idle: Idle,
    pub(super) list: List,
    pub(super) seats: RwLock<Vec<Arc<Seat>>>,
    /// How many searches in a row found nothing worth stealing.
    pub(super) futile: AtomicUsize,
    /// How many workers there may be.
    room: AtomicUsize,
    closed: AtomicBool,
}

/// A worker, as the others see it.
pub(super) struct Seat {
    pub(super) stealer: Stealer<Ready>,
    /// How many polls it has made.
    pub(super) progress: AtomicUsize,
    /// Whether it is being polled by its thread.
    pub(super) active: AtomicBool,
    /// Who called it last: the number of a seat, or nobody's.
    pub(super) called_by: AtomicUsize,
}

/// As many threads as tokio would block by default, and some.
const WORKERS_MAX: usize = 600;

static POOLS: LazyLock<Mutex<HashMap<Id, &'static Pool>>> = LazyLock::new(Mutex::default);

impl Pool {
    pub(super) fn of(runtime: Handle) -> &'static Self {
        let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
        let pool = pools.entry(runtime.id()).or_insert_with(|| {
            let blocks = runtime.runtime_flavor() != RuntimeFlavor::CurrentThread;
            let threads = if blocks { runtime.metrics().num_workers() } else { 1 };
            let pool: &'static Self = Box::leak(Box::new(Self {
                runtime,
                threads,
                blocks,
                injected: Injector::new(),
                idle: Idle::new(),
                list: List::new(),
                seats: RwLock::default(),
                futile: AtomicUsize::new(0),
                room: AtomicUsize::new(2 * threads),
                closed: AtomicBool::new(false),
            }));
            // One more, which goes on for one that is blocked.
            for _ in 0..=threads {
                pool.add_worker(NOBODY);
            }
            pool
        });
        pool
    }

    fn add_worker(&'static self, called_by: usize) {
        let mut seats = self.seats.write().unwrap_or_else(PoisonError::into_inner);
        let (worker, seat) = Worker::new(self, seats.len(), called_by);
        seats.push(seat);
        drop(seats);
        self.runtime.spawn(worker);
    }

    /// A worker seems to be stuck, so there may be one more than there are now.
    pub(super) fn make_room(&self, workers: usize) {
        self.room.fetch_max((workers + 1).min(WORKERS_MAX), Ordering::Relaxed);
    }

    /// Wakes an idle worker, or makes one if there may be more.
    pub(super) fn call_any(&'static self, caller: usize) {
        if let Some((number, waker)) = self.idle.any() {
            let seats = self.seats.read().unwrap_or_else(PoisonError::into_inner);
            seats[number].called_by.store(caller, Ordering::Relaxed);
            drop(seats);
            waker.wake();
        } else if self.seats.read().unwrap_or_else(PoisonError::into_inner).len() < self.room.load(Ordering::Relaxed) {
            self.add_worker(caller);
        }
    }

    /// Called from time to time: nothing is left waiting behind a worker that does not come back.
    fn watch(&'static self) {
        let seats = self.seats.read().unwrap_or_else(PoisonError::into_inner);
        let waiting = !self.injected.is_empty() || seats.iter().any(|seat| !seat.stealer.is_empty());
        drop(seats);
        if waiting && self.blocks {
            self.call_any(NOBODY);
        }
    }

    /// From outside the workers.
    #[cold]
    pub(super) fn inject(&'static self, ready: Ready) {
        self.injected.push(ready);
        if let Some((_, waker)) = self.idle.call() {
            waker.wake();
        }
        if self.is_closed() {
            self.drain();
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        fence(Ordering::SeqCst);
        self.closed.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn seems_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// The runtime ends: so do all processes.
    pub(super) fn close(&'static self) {
        if !self.closed.swap(true, Ordering::SeqCst) {
            POOLS.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.runtime.id());
        }
        fence(Ordering::SeqCst);
        self.list.cancel(|ready| self.injected.push(ready));
        self.drain();
    }

    /// Ends what is in the queue.
    fn drain(&self) {
        loop {
            match self.injected.steal() {
                Steal::Success(ready) => end(ready),
                Steal::Retry => {}
                Steal::Empty => return,
            }
        }
    }
}

/// Ends a process of a closed runtime.
pub(super) fn end(ready: Ready) {
    ready.end();
}

/// To be called every few milliseconds.
pub(crate) fn watch() {
    let pools: Vec<_> = POOLS.lock().unwrap_or_else(PoisonError::into_inner).values().copied().collect();
    pools.into_iter().for_each(Pool::watch);
}
