//! A worker: a task of tokio's that drives processes.

use std::cell::Cell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crossbeam_deque::{Steal, Worker as Queue};

use dunlin_core::waits::tick as tick_now;

use super::pool::{Pool, Seat, end};
use super::process::Ready;

const SLICE: Duration = Duration::from_micros(200);
/// How many polls there are at most between two looks at the clock.
const LOOK_MAX: usize = 256;
/// How long a worker watches another before it steals.
const WATCH: Duration = Duration::from_micros(5);
/// How often a worker calls for help at most; twice as long after each call that was in vain.
const HELP: Duration = Duration::from_micros(20);
const FUTILE_MAX: usize = 6;
/// Who calls a worker, if it is none.
pub(super) const NOBODY: usize = usize::MAX;

thread_local! {
    static CURRENT: Cell<*const Local> = const { Cell::new(ptr::null()) };
}

/// Puts a process that may be polled into the queue of the worker that runs on this thread, or of the runtime.
#[inline]
pub(super) fn schedule(ready: Ready) {
    let local = CURRENT.get();
    let pool = ready.header().pool;
    // SAFETY: it is null, or points to the worker that this thread polls: `Entered` sees to that.
    if let Some(local) = unsafe { local.as_ref() }
        && ptr::eq(local.pool, pool)
    {
        local.queue.push(ready);
    } else {
        pool.inject(ready);
    }
}

/// The pool whose worker runs on this thread.
pub(super) fn current() -> Option<&'static Pool> {
    // SAFETY: as in `schedule`.
    unsafe { CURRENT.get().as_ref() }.map(|local| local.pool)
}

pub(super) struct Worker {
    local: Box<Local>,
}

/// What only the worker's own thread uses.
struct Local {
    pool: &'static Pool,
    number: usize,
    seat: Arc<Seat>,
    queue: Queue<Ready>,
    posted: Cell<bool>,
    helped: Cell<Instant>,
}

enum Rest {
    Closed,
    Yield,
    Nothing,
}

impl Worker {
    pub(super) fn new(pool: &'static Pool, number: usize, called_by: usize) -> (Self, Arc<Seat>) {
        let queue = Queue::new_fifo();
        let seat = Arc::new(Seat {
            stealer: queue.stealer(),
            progress: AtomicUsize::new(0),
            active: AtomicBool::new(false),
            called_by: AtomicUsize::new(called_by),
        });
        let local = Local { pool, number, seat: seat.clone(), queue, posted: Cell::new(false), helped: Cell::new(Instant::now()) };
        (Self { local: Box::new(local) }, seat)
    }
}

/// While this lives, the thread polls the worker.
struct Entered<'a> {
    local: &'a Local,
    before: *const Local,
}

impl<'a> Entered<'a> {
    fn new(local: &'a Local) -> Self {
        local.seat.active.store(true, Ordering::Release);
        Self { local, before: CURRENT.replace(local) }
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        CURRENT.set(self.before);
        self.local.seat.active.store(false, Ordering::Release);
    }
}

impl Future for Worker {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let local = &*self.local;
        let _entered = Entered::new(local);
        loop {
            match local.work() {
                Rest::Closed => return Poll::Ready(()),
                Rest::Yield => {
                    return pin!(tokio::task::yield_now()).poll(cx);
                }
                Rest::Nothing => {
                    if local.pool.idle.sleep(local.number, cx.waker(), || !local.pool.injected.is_empty()) {
                        return Poll::Pending;
                    }
                }
            }
        }
    }
}

impl Local {
    fn work(&self) -> Rest {
        let began = Instant::now();
        let mut looked = began;
        let mut tick = tick_now();
        let mut polls = self.seat.progress.load(Ordering::Relaxed);
        let mut stride = 1;
        self.posted.set(false);
        // Before the first poll too if more will wait behind it; but one process that was woken alone needs no clock.
        let mut look_at = polls.wrapping_add(usize::from(self.queue.len() < 2));
        loop {
            if polls == look_at || tick != tick_now() {
                let now = Instant::now();
                stride = if now - looked > Duration::from_micros(20) { 1 } else { (stride * 2).min(LOOK_MAX) };
                look_at = polls.wrapping_add(stride);
                tick = tick_now();
                looked = now;
                if self.pool.seems_closed() {
                    return Rest::Closed;
                }
                if now - began > SLICE {
                    return Rest::Yield;
                }
                self.take_injected();
                self.post(now);
            }
            let Some(ready) = self.queue.pop().or_else(|| self.find()) else {
                return if self.pool.seems_closed() { Rest::Closed } else { Rest::Nothing };
            };
            polls = polls.wrapping_add(1);
            self.seat.progress.store(polls, Ordering::Relaxed);
            if let Some(again) = ready.run() {
                self.queue.push(again);
            }
            if polls % 16 == 0 && !tokio::task::coop::has_budget_remaining() {
                return Rest::Yield;
            }
        }
    }

    /// Moves what came from outside into the queue, about half of it.
    fn take_injected(&self) {
        while self.pool.injected.steal_batch(&self.queue).is_retry() {}
    }

    fn find(&self) -> Option<Ready> {
        self.take_injected();
        self.queue.pop().or_else(|| self.steal())
    }

    /// Takes half of another worker's queue, if that worker will not get to it soon.
    ///
    /// A process is best polled where it was woken: what it works on is in that core's cache, and a rendezvous of two processes
    /// apart costs several times as much. So this watches for a moment, and takes from one that does not poll as many
    /// processes in it as it has waiting: because there are many, because its polls take long, or because it is stuck in one.
    #[cold]
    fn steal(&self) -> Option<Ready> {
        let seats = self.pool.seats.read().unwrap_or_else(PoisonError::into_inner).clone();
        let caller = self.seat.called_by.swap(NOBODY, Ordering::Relaxed);
        if seats.get(caller).is_some_and(|caller| !caller.active.load(Ordering::Acquire)) {
            // It called us in case that it would be blocked, and was not.
            return None;
        }
        let others = || seats.iter().enumerate().filter(|(number, _)| *number != self.number).map(|(_, seat)| seat);
        let worth_watching = |seat: &&Arc<Seat>| seat.active.load(Ordering::Relaxed) && !seat.stealer.is_empty();
        let before: Vec<_> =
            others().filter(worth_watching).map(|seat| (seat, seat.progress.load(Ordering::Relaxed))).collect();
        if before.is_empty() {
            return None;
        }
        let began = Instant::now();
        while began.elapsed() < WATCH {
            std::hint::spin_loop();
        }
        for (seat, progress) in before {
            let polled = seat.progress.load(Ordering::Relaxed).wrapping_sub(progress);
            if polled == 0 {
                self.pool.make_room(seats.len());
            }
            if polled > seat.stealer.len() {
                continue;
            }
            loop {
                match seat.stealer.steal_batch_and_pop(&self.queue) {
                    Steal::Success(ready) => {
                        self.pool.futile.store(0, Ordering::Relaxed);
                        return Some(ready);
                    }
                    Steal::Retry => {}
                    Steal::Empty => break,
                }
            }
        }
        self.pool.futile.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// Calls idle workers, while this one has more to do than it can poll at once.
    ///
    /// Woken from here, a task goes into tokio's slot of what this thread runs next, from where nobody steals it. So the first
    /// worker that is called stays there until this one is done for now, and finds nothing to do, at the cost of a hundred
    /// nanoseconds; but if a process blocks its thread (`block_in_place`), tokio hands the slot to another thread, and the
    /// worker goes on with our queue there. The second that is called drives the first out of the slot, to whichever thread has
    /// nothing to do: which is what helps when there is much to do.
    fn post(&self, now: Instant) {
        if !self.pool.blocks || self.queue.is_empty() {
            return;
        }
        if !self.posted.replace(true) {
            self.pool.call_any(self.number);
        }
        let futile = self.pool.futile.load(Ordering::Relaxed).min(FUTILE_MAX);
        if self.pool.threads > 1 && now - self.helped.get() > HELP * (1 << futile) {
            self.helped.set(now);
            self.pool.call_any(self.number);
        }
    }

}

impl Drop for Worker {
    fn drop(&mut self) {
        self.local.pool.close();
        let _entered = Entered::new(&self.local);
        while let Some(ready) = self.local.queue.pop() {
            end(ready);
        }
    }
}
