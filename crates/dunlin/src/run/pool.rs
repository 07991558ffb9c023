//! The processes and the workers of one runtime.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, RwLock};
use std::task::Waker;

use crossbeam_deque::{Injector, Steal, Stealer};
use tokio::runtime::{Handle, Id, RuntimeFlavor};

use super::idle::Idle;
use super::list::List;
use super::process::Ready;
use super::slot::Slot;
use super::worker::Worker;

/// What the workers of a runtime share. It lives as long as they, or references to its processes, do.
pub(super) struct Pool {
    /// The runtime's.
    pub(super) id: Option<Id>,
    /// How many threads the runtime has for its tasks.
    pub(super) threads: usize,
    /// Whether processes may block their threads (`block_in_place`).
    pub(super) may_block: bool,
    /// `None` once the runtime has ended.
    runtime: Mutex<Option<Handle>>,
    /// Processes that were woken or spawned outside the workers.
    pub(super) injected: Injector<Ready>,
    pub(super) idle: Idle,
    pub(super) list: List,
    seats: RwLock<Arc<[Arc<Seat>]>>,
    /// How many workers have been called for a process and have not come for it yet.
    given: AtomicUsize,
    /// How many calls for help in a row were in vain.
    pub(super) futile: AtomicUsize,
    /// How many workers there may be.
    room: AtomicUsize,
    /// Whether something that was injected has waited since the last [`watch`].
    waited: AtomicBool,
    closed: AtomicBool,
    draining: AtomicBool,
}

/// A worker, as the others see it.
pub(super) struct Seat {
    /// The one that it polls next. Only the worker puts processes in.
    pub(super) next: Slot,
    /// What it was woken for. Only who called it puts a process in.
    pub(super) given: Slot,
    pub(super) stealer: Stealer<Ready>,
    /// How many polls it has made.
    pub(super) progress: AtomicUsize,
    /// What `progress` was when the pool was last [watched](watch).
    seen: AtomicUsize,
    /// Whether its thread is in it.
    pub(super) active: AtomicBool,
    /// By whom it was called: the number of a seat, or one of the following.
    pub(super) caller: AtomicUsize,
}

/// It has something from outside to do, or was not called at all.
pub(super) const NOT_CALLED: usize = usize::MAX;
/// Somebody seems to be stuck.
pub(super) const WATCH: usize = usize::MAX - 1;

/// As many as tokio lets block at once by default, and some.
const WORKERS_MAX: usize = 600;

static POOLS: LazyLock<Mutex<HashMap<Id, Arc<Pool>>>> = LazyLock::new(Mutex::default);

fn pools() -> MutexGuard<'static, HashMap<Id, Arc<Pool>>> {
    POOLS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Seat {
    pub(super) fn new(stealer: Stealer<Ready>, caller: usize) -> Self {
        Self {
            next: Slot::new(),
            given: Slot::new(),
            stealer,
            progress: AtomicUsize::new(0),
            seen: AtomicUsize::new(0),
            active: AtomicBool::new(false),
            caller: AtomicUsize::new(caller),
        }
    }

    /// How many processes wait here, the next one included.
    pub(super) fn waiting(&self) -> usize {
        self.stealer.len() + usize::from(!self.next.is_empty()) + usize::from(!self.given.is_empty())
    }

    /// Whether processes have waited here and none was polled since this was last asked.
    fn is_stuck(&self) -> bool {
        let progress = self.progress.load(Ordering::Relaxed);
        self.seen.swap(progress, Ordering::Relaxed) == progress && self.waiting() > 0
    }
}

impl Pool {
    /// The pool of this runtime.
    pub(super) fn of(runtime: Handle) -> Arc<Self> {
        let id = runtime.id();
        if let Some(pool) = pools().get(&id) {
            return pool.clone();
        }
        let may_block = runtime.runtime_flavor() != RuntimeFlavor::CurrentThread;
        let threads = if may_block { runtime.metrics().num_workers() } else { 1 };
        let new = Self::new(Some(runtime), threads, may_block);
        // Another thread may have been faster.
        let pool = pools().entry(id).or_insert_with(|| new.clone()).clone();
        if Arc::ptr_eq(&pool, &new) {
            // One more than threads: it goes on for one that is blocked.
            for _ in 0..threads + usize::from(may_block) {
                pool.add_worker(NOT_CALLED);
            }
        }
        pool
    }

    /// Without a runtime, and so without workers.
    #[cfg(test)]
    pub(super) fn detached() -> Arc<Self> {
        Self::new(None, 1, false)
    }

    fn new(runtime: Option<Handle>, threads: usize, may_block: bool) -> Arc<Self> {
        Arc::new(Self {
            id: runtime.as_ref().map(Handle::id),
            threads,
            may_block,
            runtime: Mutex::new(runtime),
            injected: Injector::new(),
            idle: Idle::new(),
            list: List::new(),
            seats: RwLock::new(Arc::new([])),
            given: AtomicUsize::new(0),
            futile: AtomicUsize::new(0),
            room: AtomicUsize::new(2 * threads),
            waited: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            draining: AtomicBool::new(false),
        })
    }

    /// All workers.
    pub(super) fn seats(&self) -> Arc<[Arc<Seat>]> {
        self.seats.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn add_worker(self: &Arc<Self>, caller: usize) {
        let Some(runtime) = self.runtime.lock().unwrap_or_else(PoisonError::into_inner).clone() else { return };
        let mut seats = self.seats.write().unwrap_or_else(PoisonError::into_inner);
        let (worker, seat) = Worker::new(self.clone(), seats.len(), caller);
        *seats = seats.iter().cloned().chain([seat]).collect();
        drop(seats);
        // If the runtime has ended this drops the worker, which closes the pool.
        runtime.spawn(worker);
    }

    /// A worker of so many seems to be stuck: there may be one more.
    pub(super) fn make_room(&self, workers: usize) {
        self.room.fetch_max((workers + 1).min(WORKERS_MAX), Ordering::Relaxed);
    }

    /// Wakes an idle worker, or makes one if there may be more.
    pub(super) fn call(self: &Arc<Self>, caller: usize) {
        if let Some((number, waker)) = self.idle.any() {
            self.seats()[number].caller.store(caller, Ordering::Relaxed);
            waker.wake();
        } else if self.seats().len() < self.room.load(Ordering::Relaxed) {
            self.add_worker(caller);
        }
    }

    /// Takes a process that comes from outside the workers: for one that is idle, or else for the next that comes to it.
    #[cold]
    pub(super) fn inject(&self, ready: Ready) {
        if let Some((number, waker)) = self.idle.any() {
            return self.give(&self.seats()[number], ready, waker);
        }
        self.injected.push(ready);
        if let Some((_, waker)) = self.idle.call() {
            waker.wake();
        }
        if self.is_closed() {
            self.drain();
        }
    }

    /// Gives a process to a worker that was called.
    fn give(&self, seat: &Seat, ready: Ready, waker: Waker) {
        self.given.fetch_add(1, Ordering::Relaxed);
        let before = seat.given.replace(ready);
        waker.wake();
        if let Some(before) = before {
            self.given.fetch_sub(1, Ordering::Relaxed);
            self.injected.push(before);
        }
        fence(Ordering::SeqCst);
        if self.is_closed() {
            // It may be that the worker is gone.
            if let Some(ready) = self.take_given(seat) {
                ready.end();
            }
            self.drain();
        }
    }

    /// What a worker was called for.
    #[inline]
    pub(super) fn take_given(&self, seat: &Seat) -> Option<Ready> {
        let ready = seat.given.take()?;
        self.given.fetch_sub(1, Ordering::Relaxed);
        Some(ready)
    }

    /// What another worker was called for and has not come for yet.
    #[inline]
    pub(super) fn take_any_given(&self) -> Option<Ready> {
        if self.given.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.seats().iter().find_map(|seat| self.take_given(seat))
    }

    /// Whether the runtime ends. Who finds that it does not may be a moment late.
    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// The runtime ends: so do all processes.
    pub(super) fn close(&self) {
        if !self.closed.swap(true, Ordering::SeqCst) {
            if let Some(id) = &self.id {
                pools().remove(id);
            }
            let runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner).take();
            drop(runtime);
        }
        // After this nobody waits without having been asked to end: who comes into the list later finds the pool closed.
        self.list.cancel(|ready| self.injected.push(ready));
        fence(Ordering::SeqCst);
        self.drain();
    }

    /// Ends what was injected. What ends may wake others, which are injected too: those are for the one that drains already, so
    /// that a long chain of them takes no deep stack.
    fn drain(&self) {
        loop {
            if self.draining.swap(true, Ordering::SeqCst) {
                return;
            }
            loop {
                match self.injected.steal() {
                    Steal::Success(ready) => ready.end(),
                    Steal::Retry => {}
                    Steal::Empty => break,
                }
            }
            self.draining.store(false, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            if self.injected.is_empty() {
                return;
            }
        }
    }

    fn watch(self: &Arc<Self>) {
        let injected = !self.injected.is_empty();
        let waited = self.waited.swap(injected, Ordering::Relaxed) && injected;
        let seats = self.seats();
        // All are asked, so that all are known the next time.
        let stuck = seats.iter().filter(|seat| seat.is_stuck()).count();
        if stuck > 0 || waited {
            self.make_room(seats.len());
            self.call(WATCH);
        }
    }
}

/// Sees to it that no process waits behind a worker that does not come back. To be called every few milliseconds.
pub(crate) fn watch() {
    let pools: Vec<_> = pools().values().filter(|pool| pool.may_block).cloned().collect();
    pools.iter().for_each(Pool::watch);
}
