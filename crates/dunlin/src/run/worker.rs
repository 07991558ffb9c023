//! A worker: a task of tokio's that drives processes.
//!
//! It polls its processes one after the other, for a slice of time, and then gives its thread back to tokio, which sees to sockets,
//! timers and other tasks. Who is woken by a process that is polled comes next; that is where what they exchange is in the cache. Everybody
//! else waits in the worker's queue.
//!
//! What waits can always be taken by others, also the next one: so nothing is lost when a process does not come back from a poll, or
//! blocks its thread. There are three ways in which others come to take it, from the quickest to the surest:
//! 1. *The understudy.* While others wait behind the process that it polls, a worker has woken another worker, which tokio
//!    keeps in a slot of this thread (nobody steals from there). Once this worker is done for now, that one runs, finds nothing to do, and
//!    sleeps again, which takes a hundred nanoseconds. If instead a process blocks the thread by `block_in_place`, tokio hands the slot to
//!    a new thread, and the understudy goes on there with what waits here.
//! 2. *Help.* A worker that has more to do than it can poll at once wakes another; less and less often while that is in vain.
//! 3. *The watch.* Every few milliseconds a thread looks for workers that have not polled anything since the last look while
//!    processes wait there.

use std::cell::Cell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crossbeam_deque::{Steal, Worker as Queue};
use dunlin_core::waits::tick;
use tokio::runtime::Handle;

use super::pool::{NOT_CALLED, Pool, Seat, WATCH};
use super::process::Ready;

/// How long a worker polls processes before it gives its thread back. Asking the kernel for events, which tokio does then, takes half a microsecond.
const SLICE: Duration = Duration::from_micros(20);
/// How many polls there are between two looks at the clock, at most; fewer if they take long.
const STRIDE_MAX: usize = 256;
/// Between two looks at the clock there should be no more than this.
const STRIDE_TIME: Duration = Duration::from_micros(20);
/// So many polls in a row may be of processes that were woken last; the next is of the one that has waited longest.
const RUN_MAX: usize = 32;
/// After so many polls, the worker looks whether tokio wants its thread back.
const BUDGET_STRIDE: usize = 16;
/// How long a worker watches another before it takes something from it.
const LOOK: Duration = Duration::from_micros(5);
/// How often a worker calls for help at most; twice as long after each call that was in vain.
const HELP: Duration = Duration::from_micros(20);
const HELP_DOUBLINGS: usize = 6;
/// A worker that has made fewer polls in a slice was not busy, and does not look for more to do.
const BUSY: usize = 64;

thread_local! {
    static CURRENT: Cell<*const Local> = const { Cell::new(ptr::null()) };
}

/// Puts a process that may be polled where the worker on this thread polls next, or into the queue of its runtime.
#[inline]
pub(super) fn schedule(ready: Ready) {
    // SAFETY: it is null, or points to the worker that this thread is in: `Entered` sees to that.
    let local = unsafe { CURRENT.get().as_ref() };
    match local {
        Some(local) if ptr::eq(Arc::as_ptr(&local.pool), Arc::as_ptr(ready.pool())) => {
            local.queue_next(ready);
            if !local.understudied.get() {
                local.call_understudy();
            }
        }
        _ => inject(ready),
    }
}

#[cold]
#[inline(never)]
fn inject(ready: Ready) {
    // The process may be polled, and gone, before `inject` is done.
    let pool = Arc::clone(ready.pool());
    pool.inject(ready);
}

/// Puts a process that was made just now behind those that wait already.
pub(super) fn start(runtime: Handle, make: impl FnOnce(Arc<Pool>) -> Ready) {
    // SAFETY: as in `schedule`.
    match unsafe { CURRENT.get().as_ref() } {
        // Within a process another runtime may have been entered.
        Some(local) if local.pool.id == Some(runtime.id()) => local.queue.push(make(local.pool.clone())),
        _ => inject(make(Pool::of(runtime))),
    }
}

pub(super) struct Worker {
    local: Box<Local>,
}

/// What only the thread that is in the worker uses.
struct Local {
    pool: Arc<Pool>,
    number: usize,
    seat: Arc<Seat>,
    queue: Queue<Ready>,
    /// Whether there is an understudy for this slice, or need not be.
    understudied: Cell<bool>,
    /// When it called for help.
    called: Cell<Option<Instant>>,
}

/// Why a worker stops for now.
enum Stop {
    /// It has had its time, or tokio wants its thread.
    Yield,
    /// Nothing is left to do.
    Idle,
    /// The runtime ends.
    Closed,
}

impl Worker {
    pub(super) fn new(pool: Arc<Pool>, number: usize, caller: usize) -> (Self, Arc<Seat>) {
        let queue = Queue::new_fifo();
        let seat = Arc::new(Seat::new(queue.stealer(), caller));
        (
            Self {
                local: Box::new(Local {
                    pool,
                    number,
                    seat: seat.clone(),
                    queue,
                    understudied: Cell::new(false),
                    called: Cell::new(None),
                }),
            },
            seat,
        )
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
                Stop::Closed => return Poll::Ready(()),
                // Polled again once tokio has polled its other tasks and asked the kernel for events.
                Stop::Yield => return pin!(tokio::task::yield_now()).poll(cx),
                Stop::Idle => {
                    if local.pool.idle.sleep(local.number, cx.waker(), || !local.pool.injected.is_empty()) {
                        return Poll::Pending;
                    }
                }
            }
        }
    }
}

impl Local {
    #[inline]
    fn queue_next(&self, ready: Ready) {
        if let Err(ready) = self.seat.next.put(ready) {
            self.replace_next(ready);
        }
    }

    /// The one that was woken last comes next; the one before it waits behind all others.
    #[inline(never)]
    fn replace_next(&self, ready: Ready) {
        if let Some(before) = self.seat.next.replace(ready) {
            self.queue.push(before);
        }
    }

    fn work(&self) -> Stop {
        // One process that was woken alone needs no clock.
        let mut began = None;
        let mut looked = None;
        let mut ticked = tick();
        let first = self.seat.progress.load(Ordering::Relaxed);
        let mut polls = first;
        let mut stride = 1;
        let mut look_at = polls.wrapping_add(1);
        // Where nobody may block it is not needed.
        self.understudied.set(!self.pool.may_block);
        loop {
            if polls == look_at || ticked != tick() || (!self.understudied.get() && self.seat.waiting() > 1) {
                let now = Instant::now();
                let began = *began.get_or_insert(now);
                let last = looked.replace(now).unwrap_or(now);
                stride = if now - last > STRIDE_TIME { 1 } else { (stride * 2).min(STRIDE_MAX) };
                look_at = polls.wrapping_add(stride);
                ticked = tick();
                if self.pool.is_closed() {
                    return Stop::Closed;
                }
                if now - began > SLICE {
                    return Stop::Yield;
                }
                self.take_injected();
                // Who was called for it may be behind this worker on the same thread.
                if let Some(ready) = self.pool.take_any_given() {
                    self.queue_next(ready);
                }
                if self.pool.may_block && self.seat.waiting() > 1 {
                    if !self.understudied.get() {
                        self.call_understudy();
                    }
                    self.call_for_help(now);
                }
            }
            let given = if polls == first { self.pool.take_given(&self.seat) } else { None };
            let Some(ready) = given.or_else(|| self.next(polls)).or_else(|| self.find(polls.wrapping_sub(first)))
            else {
                return if self.pool.is_closed() { Stop::Closed } else { Stop::Idle };
            };
            polls = polls.wrapping_add(1);
            self.seat.progress.store(polls, Ordering::Relaxed);
            if let Some(again) = ready.run() {
                self.queue.push(again);
            }
            if polls.is_multiple_of(BUDGET_STRIDE) && !tokio::task::coop::has_budget_remaining() {
                return Stop::Yield;
            }
        }
    }

    /// The next process of its own.
    #[inline]
    fn next(&self, polls: usize) -> Option<Ready> {
        if polls.is_multiple_of(RUN_MAX)
            && let Some(ready) = self.queue.pop()
        {
            return Some(ready);
        }
        self.seat.next.take().or_else(|| self.queue.pop())
    }

    /// Moves what came from outside into the queue, about half of it.
    fn take_injected(&self) {
        while self.pool.injected.steal_batch(&self.queue).is_retry() {}
    }

    /// Another process, when it has none of its own.
    #[cold]
    fn find(&self, polls: usize) -> Option<Ready> {
        self.take_injected();
        self.queue.pop().or_else(|| self.steal(polls >= BUSY))
    }

    /// Takes half of another worker's queue, if that worker will not get to it soon.
    ///
    /// A process is best polled where it was woken: what it works on is in that core's cache, and a rendezvous of two processes
    /// apart costs several times as much. So this watches for a moment, and takes from one that does not poll as many
    /// processes meanwhile as it has waiting: because there are many, because its polls take long, or because it is stuck in one.
    fn steal(&self, busy: bool) -> Option<Ready> {
        let caller = self.seat.caller.swap(NOT_CALLED, Ordering::Relaxed);
        if caller == NOT_CALLED && !busy {
            return None;
        }
        let seats = self.pool.seats();
        if seats.get(caller).is_some_and(|caller| !caller.active.load(Ordering::Acquire)) {
            // The understudy of one that came back.
            return None;
        }
        // One that is not active waits for its turn; for ever, if tokio's thread is stuck.
        let watched = |seat: &&Arc<Seat>| {
            (seat.active.load(Ordering::Relaxed) || caller == WATCH)
                && seat.waiting() > 0
                && !Arc::ptr_eq(seat, &self.seat)
        };
        let before: Vec<_> =
            seats.iter().filter(watched).map(|seat| (seat, seat.progress.load(Ordering::Relaxed))).collect();
        if before.is_empty() {
            return None;
        }
        let began = Instant::now();
        while began.elapsed() < LOOK {
            std::hint::spin_loop();
        }
        for (seat, progress) in before {
            let polled = seat.progress.load(Ordering::Relaxed).wrapping_sub(progress);
            let taken = if polled < seat.waiting() { self.take_from(seat, polled == 0) } else { None };
            if polled == 0 {
                self.pool.make_room(seats.len());
            }
            if taken.is_some() {
                self.pool.futile.store(0, Ordering::Relaxed);
                return taken;
            }
        }
        if caller != NOT_CALLED {
            self.pool.futile.fetch_add(1, Ordering::Relaxed);
        }
        None
    }

    fn take_from(&self, seat: &Seat, also_next: bool) -> Option<Ready> {
        loop {
            match seat.stealer.steal_batch_and_pop(&self.queue) {
                Steal::Success(ready) => return Some(ready),
                Steal::Retry => {}
                Steal::Empty if also_next => return seat.next.take().or_else(|| self.pool.take_given(seat)),
                Steal::Empty => return None,
            }
        }
    }

    #[cold]
    fn call_understudy(&self) {
        self.understudied.set(true);
        self.pool.call(self.number);
    }

    /// The worker that this wakes drives the understudy out of its slot, to whichever thread has nothing to do.
    fn call_for_help(&self, now: Instant) {
        let futile = self.pool.futile.load(Ordering::Relaxed).min(HELP_DOUBLINGS);
        if self.pool.threads > 1 && self.called.get().is_none_or(|called| now - called > HELP * (1 << futile)) {
            self.called.set(Some(now));
            self.pool.call(self.number);
        }
    }
}

impl Drop for Worker {
    /// The runtime ends, and all processes with it.
    fn drop(&mut self) {
        let local = &*self.local;
        local.pool.close();
        // What is woken by those that end here comes here too.
        let _entered = Entered::new(local);
        local.understudied.set(true);
        let next =
            || local.pool.take_given(&local.seat).or_else(|| local.seat.next.take()).or_else(|| local.queue.pop());
        while let Some(ready) = next() {
            ready.end();
        }
    }
}
