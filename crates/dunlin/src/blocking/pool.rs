//! The threads that run blocking calls, and the queue before them.
//!
//! A pool has no thread until its first call. Then it has three, keeps one free as long as the bound allows,
//! grows up to 256, and shrinks to three again when threads have been idle for 10 seconds. A free thread gets
//! its call directly; of several the one that became idle last is woken, whose caches are warm. A call that
//! finds no free thread is queued, up to 4,096 calls, and refused beyond that.
//!
//! Each runtime of dunlin's own has a pool, which ends with it. All other runtimes share one pool, of the
//! whole program.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
#[cfg(target_os = "linux")]
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::known::KnownCall;
use super::limits::Limits;
use super::state::{Handed, Job, NotRun, State, Worker};
use crate::lock::lock;

/// All blocking calls of this program that have not ended: those that run, and those that wait for a thread.
/// An abandoned call is included, and occupies its thread, until it returns.
///
/// # Examples
/// ```
/// use dunlin::prelude::*;
/// use dunlin::blocking::{CallState, calls};
/// # dunlin::block_on(async {
/// let call = blocking(|stop| stop.requested().wait());
/// # while !calls().iter().any(|known| known.pid == call.pid() && known.state == CallState::Running) {}
/// let known = calls().into_iter().find(|known| known.pid == call.pid()).unwrap();
/// assert_eq!(known.state, CallState::Running);
/// # drop(call);
/// # });
/// ```
pub fn calls() -> Vec<KnownCall> {
    let pools: Vec<_> = lock(&POOLS).iter().filter_map(Weak::upgrade).collect();
    pools.iter().flat_map(|pool| pool.calls()).collect()
}

/// How many threads of all pools are idle: they hold no end, and can end no wait.
pub(crate) fn idle_threads() -> usize {
    lock(&POOLS).iter().filter_map(Weak::upgrade).map(|pool| lock(&pool.state).idle.len()).sum()
}

static POOLS: Mutex<Vec<Weak<Pool>>> = Mutex::new(Vec::new());

thread_local! {
    /// The pool of the runtime that this thread works for, if that is one of dunlin's.
    static OWN: RefCell<Option<Arc<Pool>>> = const { RefCell::new(None) };

    /// The number of this thread in its pool.
    #[cfg(target_os = "linux")]
    static NUMBER: std::cell::Cell<Option<usize>> = const { std::cell::Cell::new(None) };
}

/// The number of this thread in its pool, if it is a thread of one.
#[cfg(target_os = "linux")]
pub(crate) fn this_thread() -> Option<usize> {
    NUMBER.get()
}

/// From now on this thread's calls go to `pool`; returns the previous pool.
pub(crate) fn calls_go_to(pool: Option<Arc<Pool>>) -> Option<Arc<Pool>> {
    OWN.replace(pool)
}

/// Threads and a queue.
pub(crate) struct Pool {
    state: Mutex<State>,
    /// A thread has ended.
    ended: Condvar,
    /// What each new thread does first.
    on_start: Box<dyn Fn() + Send + Sync>,
}

/// A place in the queue, from a wait for room: given back if it is not used.
pub(crate) struct Seat(Option<Arc<Pool>>);

impl Pool {
    /// `on_start` runs on each new thread.
    pub(crate) fn new(on_start: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        let state = State {
            limits: Limits::default(),
            queue: VecDeque::new(),
            reserved: 0,
            line: VecDeque::new(),
            next_ticket: 0,
            idle: Vec::new(),
            slots: Vec::new(),
            threads: 0,
            starting: 0,
            closed: false,
        };
        let pool = Arc::new(Self { state: Mutex::new(state), ended: Condvar::new(), on_start: Box::new(on_start) });
        let mut pools = lock(&POOLS);
        pools.retain(|pool| pool.strong_count() > 0);
        pools.push(Arc::downgrade(&pool));
        drop(pools);
        pool
    }

    /// The pool to which calls of this thread go.
    pub(crate) fn current() -> Arc<Self> {
        static PROGRAM: OnceLock<Arc<Pool>> = OnceLock::new();
        OWN.with_borrow(Clone::clone).unwrap_or_else(|| PROGRAM.get_or_init(|| Self::new(|| {})).clone())
    }

    pub(crate) fn set_limits(self: &Arc<Self>, limits: Limits) {
        let mut state = lock(&self.state);
        state.limits = limits;
        let begins = if state.queue.is_empty() { Vec::new() } else { state.begin() };
        // Threads beyond a lower bound end now. A busy thread ends when its call has returned.
        let beyond = state.beyond().min(state.idle.len());
        let ending: Vec<_> = state.idle.drain(..beyond).collect();
        let woken = state.take_woken();
        drop(state);
        ending.iter().for_each(|worker| worker.hand(Handed::Nothing));
        wake(woken);
        for number in begins {
            // Without a thread, `start` has cancelled the calls.
            let _ = self.start(number);
        }
    }

    /// Has a thread run `job`, now or when one is free. `Ok(true)`: it is queued.
    ///
    /// # Errors
    /// The reason why it will not run. The caller cancels it.
    pub(crate) fn submit(self: &Arc<Self>, job: &Arc<dyn Job>, seat: Option<Seat>) -> Result<bool, NotRun> {
        let mut state = lock(&self.state);
        if let Some(mut seat) = seat
            && seat.0.take().is_some()
        {
            state.reserved -= 1;
        } else if !state.closed && !state.has_room() {
            return Err(NotRun::Full { queue_max: state.limits.queue_max });
        }
        if state.closed {
            return Err(NotRun::Ended);
        }
        let worker = state.idle.pop();
        match &worker {
            Some(worker) => state.slots[worker.number].running = Some(job.clone()),
            None => state.queue.push_back(job.clone()),
        }
        let begins = state.begin();
        drop(state);
        let queued = worker.is_none();
        if let Some(worker) = worker {
            worker.hand(Handed::Call(job.clone()));
        }
        for number in begins {
            self.start(number)?;
        }
        Ok(queued)
    }

    /// Starts the thread of this number, which the state already counts.
    ///
    /// # Errors
    /// If the thread could not be started, and the pool has no other.
    fn start(self: &Arc<Self>, number: usize) -> Result<(), NotRun> {
        let worker = Arc::new(Worker { number, thread: OnceLock::new(), handed: Mutex::default() });
        let pool = self.clone();
        let thread = std::thread::Builder::new().name("dunlin-call".to_owned()).spawn(move || pool.work(&worker));
        let mut state = lock(&self.state);
        match thread {
            Ok(thread) => {
                // A thread that has already ended is not joined, except at the end of the runtime.
                if state.slots[number].taken || state.closed {
                    state.slots[number].thread = Some(thread);
                }
                Ok(())
            }
            Err(_) => {
                state.starting -= 1;
                state.release(number);
                let stranded = if state.threads == 0 { std::mem::take(&mut state.queue) } else { VecDeque::new() };
                let alone = state.threads == 0;
                drop(state);
                // The caller's own call is included: it is cancelled for the same reason, and notified twice.
                stranded.iter().for_each(|job| job.cancel(NotRun::NoThread));
                if alone { Err(NotRun::NoThread) } else { Ok(()) }
            }
        }
    }

    /// The loop of a thread of the pool.
    fn work(self: Arc<Self>, worker: &Arc<Worker>) {
        let _ = worker.thread.set(std::thread::current());
        drop(calls_go_to(Some(self.clone())));
        (self.on_start)();
        let number = worker.number;
        #[cfg(target_os = "linux")]
        NUMBER.set(Some(number));
        let mut state = lock(&self.state);
        state.starting -= 1;
        loop {
            // A closed pool has no queue.
            if state.closed || state.beyond() > 0 {
                break self.end(state, number);
            }
            if let Some(job) = state.queue.pop_front() {
                state.slots[number].running = Some(job.clone());
                let woken = state.take_woken();
                drop(state);
                wake(woken);
                job.run(number);
            } else {
                state.idle.push(worker.clone());
                let (idle, woken) = (state.limits.idle, state.take_woken());
                drop(state);
                wake(woken);
                match self.wait(worker, idle) {
                    Some(Handed::Call(job)) => job.run(number),
                    Some(Handed::Nothing) => {}
                    None => break,
                }
            }
            state = lock(&self.state);
            let done = state.slots[number].running.take();
            if done.is_some() {
                // This may be the last reference to the call: it is dropped where nothing is locked.
                drop(state);
                drop(done);
                state = lock(&self.state);
            }
        }
    }

    /// Waits for work; `None` once the thread has been idle for too long and is not needed: the pool no
    /// longer has it then.
    fn wait(&self, worker: &Arc<Worker>, idle: Duration) -> Option<Handed> {
        let mut until = Some(Instant::now() + idle);
        loop {
            if let Some(handed) = lock(&worker.handed).take() {
                return Some(handed);
            }
            match until.map(|until| until.saturating_duration_since(Instant::now())) {
                None => std::thread::park(),
                Some(left) if !left.is_zero() => std::thread::park_timeout(left),
                Some(_) => {
                    let mut state = lock(&self.state);
                    let place = state.idle.iter().position(|idle| Arc::ptr_eq(idle, worker));
                    match place {
                        Some(place) if state.threads > state.limits.threads_min => {
                            state.idle.remove(place);
                            // Under this lock: otherwise two threads could both be the one too many.
                            self.end(state, worker.number);
                            return None;
                        }
                        // The thread is one of those kept, or it has been given work meanwhile.
                        _ => until = None,
                    }
                }
            }
        }
    }

    fn end(&self, mut state: std::sync::MutexGuard<'_, State>, number: usize) {
        state.release(number);
        let woken = state.take_woken();
        drop(state);
        self.ended.notify_all();
        wake(woken);
    }

    /// Removes the call at this address, which was kept from starting, from the queue.
    pub(crate) fn forget(&self, job: *const ()) {
        let mut state = lock(&self.state);
        let place = state.queue.iter().position(|queued| Arc::as_ptr(queued).cast() == job);
        let gone = place.and_then(|place| state.queue.remove(place));
        let woken = state.take_woken();
        drop(state);
        drop(gone);
        wake(woken);
    }

    /// Gives a place in the queue when one is free. `ticket`: the caller's place in the line of waits for
    /// room.
    pub(crate) fn poll_seat(self: &Arc<Self>, ticket: &mut Option<u64>, cx: &Context<'_>) -> Poll<Seat> {
        // Cloned before the lock is taken, and dropped after: a waker is user code.
        let waker = cx.waker().clone();
        let mut state = lock(&self.state);
        let waits = ticket.is_some();
        // A newcomer leaves room to earlier waits.
        let needed = if waits { 0 } else { state.line.len() };
        if state.closed {
            let gone = state.leave_line(ticket);
            drop((state, gone));
            return Poll::Ready(Seat(None));
        }
        if state.free() > needed {
            let gone = state.leave_line(ticket);
            state.reserved += 1;
            drop((state, gone));
            return Poll::Ready(Seat(Some(self.clone())));
        }
        let number = *ticket.get_or_insert_with(|| {
            state.next_ticket += 1;
            state.next_ticket
        });
        let old = match state.line.iter_mut().find(|(other, _)| *other == number) {
            Some((_, old)) => old.replace(waker),
            None => {
                state.line.push_back((number, Some(waker)));
                None
            }
        };
        drop((state, old));
        Poll::Pending
    }

    /// Ends a wait for room.
    pub(crate) fn leave_line(&self, ticket: &mut Option<u64>) {
        let mut state = lock(&self.state);
        let gone = state.leave_line(ticket);
        let woken = state.take_woken();
        drop(state);
        drop(gone);
        wake(woken);
    }

    /// Uses the thread of this number, if it is known yet.
    #[cfg(target_os = "linux")]
    pub(crate) fn with_thread(&self, number: usize, f: impl FnOnce(&JoinHandle<()>)) {
        if let Some(thread) = &lock(&self.state).slots[number].thread {
            f(thread);
        }
    }

    fn calls(&self) -> Vec<KnownCall> {
        let state = lock(&self.state);
        let running: Vec<_> = state.slots.iter().filter_map(|slot| slot.running.clone()).collect();
        let jobs: Vec<_> = running.into_iter().chain(state.queue.iter().cloned()).collect();
        drop(state);
        jobs.iter().filter_map(|job| job.known()).collect()
    }

    /// Lets no call start from now on. Running calls are asked to stop.
    pub(crate) fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        let queued = std::mem::take(&mut state.queue);
        let running: Vec<_> = state.slots.iter().filter_map(|slot| slot.running.clone()).collect();
        let idle = std::mem::take(&mut state.idle);
        let line = std::mem::take(&mut state.line);
        drop(state);
        idle.iter().for_each(|worker| worker.hand(Handed::Nothing));
        queued.iter().for_each(|job| job.cancel(NotRun::Ended));
        running.iter().for_each(|job| job.ask());
        wake(line.into_iter().filter_map(|(_, waker)| waker));
    }

    /// Waits for the threads of a closed pool; returns the calls that run on after its patience.
    pub(crate) fn wait_for_threads(&self) -> Vec<KnownCall> {
        let mut state = lock(&self.state);
        let until = Instant::now() + state.limits.patience;
        while state.threads > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.ended.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let ended: Vec<_> =
            state.slots.iter_mut().filter(|slot| !slot.taken).filter_map(|slot| slot.thread.take()).collect();
        drop(state);
        // They are about to end. (Tasks that were dropped with the runtime call this too.)
        ended.into_iter().filter(|thread| thread.thread().id() != std::thread::current().id()).for_each(|thread| {
            let _ = thread.join();
        });
        self.calls()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let Some(pool) = self.0.take() else { return };
        let mut state = lock(&pool.state);
        state.reserved -= 1;
        let woken = state.take_woken();
        drop(state);
        wake(woken);
    }
}

fn wake(wakers: impl IntoIterator<Item = Waker>) {
    dunlin_core::__rt::wake_all(wakers);
}
