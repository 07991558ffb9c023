//! The threads that run blocking calls, and the queue before them.
//!
//! A pool has no thread until its first call. Then it has three, keeps one free as long as the bound allows,
//! grows up to 256, and shrinks to three again when threads have been idle for 10 seconds. A free thread is
//! given its call directly; of several the one that was idle last is woken, whose caches are warm. What finds
//! no free thread is queued, up to 4,096 calls, and refused beyond that.
//!
//! Each runtime of dunlin's own has a pool, which ends with it. All other runtimes share one, of the whole
//! program.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::panic::Location;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use dunlin_core::waits::{Pid, tick};

use crate::lock::lock;

/// What a pool runs.
pub(crate) trait Job: Send + Sync {
    /// Does the call, on a thread of the pool. Does not panic.
    fn run(&self, thread: usize);

    /// The call will never start, since its runtime has ended or the system gives no thread.
    fn cancel(&self, why: NotRun);

    /// Asks the call to stop.
    fn ask(&self);

    /// What is known of it; `None` once it is over.
    fn known(&self) -> Option<KnownCall>;
}

/// Why a pool does not run a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotRun {
    /// The queue has this bound, and is full.
    Full { queue_max: usize },
    /// The operating system gives the pool not a single thread.
    NoThread,
    /// The runtime of the pool has ended.
    Ended,
}

/// How many threads a pool has, how many calls wait for them, and how long it waits for calls at its end.
///
/// # Examples
/// ```
/// use dunlin::prelude::*;
/// use dunlin::blocking::Limits;
///
/// dunlin::block_on(async {
///     blocking::limit(Limits::default().threads_max(2).queue_max(8));
///     let calls: Vec<_> = (0..10).map(|n| blocking(move |_| n)).collect(); // two run and eight wait
///     for (n, call) in calls.into_iter().enumerate() {
///         assert_eq!(call.await.unwrap(), n);
///     }
/// });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    threads_min: usize,
    threads_max: usize,
    queue_max: usize,
    idle: Duration,
    patience: Duration,
}

/// So many threads keep small programs from starting one for each call.
const THREADS_MIN: usize = 3;

/// A thread that blocks costs its stack. More than these rarely do more: what they wait for is the
/// bottleneck.
const THREADS_MAX: usize = 256;

/// Sixteen calls for each thread: whoever has more to do waits for room.
const QUEUE_MAX: usize = 4096;

/// An idle thread ends after this time.
const IDLE: Duration = Duration::from_secs(10);

/// How long a runtime that ends waits for the calls that it has asked to stop.
const PATIENCE: Duration = Duration::from_secs(5);

/// One thread is kept free, so that the next call need not wait for its start.
const SPARE: usize = 1;

impl Default for Limits {
    fn default() -> Self {
        Self {
            threads_min: THREADS_MIN,
            threads_max: THREADS_MAX,
            queue_max: QUEUE_MAX,
            idle: IDLE,
            patience: PATIENCE,
        }
    }
}

impl Limits {
    /// At most this many calls run at once: 256, unless it is set. The pool keeps no more threads than this
    /// either.
    ///
    /// # Panics
    /// If it is zero.
    #[track_caller]
    pub fn threads_max(self, threads: usize) -> Self {
        assert!(threads > 0, "a pool without threads runs nothing");
        Self { threads_max: threads, threads_min: self.threads_min.min(threads), ..self }
    }

    /// At most this many calls wait for a thread: 4,096, unless it is set. One more is
    /// [refused](super::Refused).
    pub fn queue_max(self, calls: usize) -> Self {
        Self { queue_max: calls, ..self }
    }

    /// A thread beyond the three that are kept ends when it had no call for this long: 10 seconds, unless it
    /// is set.
    pub fn idle(self, idle: Duration) -> Self {
        Self { idle, ..self }
    }

    /// How long the runtime waits at its end for calls that it has asked to stop: 5 seconds, unless it is
    /// set. A call that runs on after that is named on standard error and left to itself.
    pub fn patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }
}

/// What a blocking call does: see [`calls`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallState {
    /// It waits for a thread.
    Queued,
    /// It runs.
    Running,
    /// It runs, and has been asked to stop.
    Asked,
    /// It said that it goes to its [end](super::Stop::finishing).
    Finishing,
    /// It runs on after its handle was dropped, or a deadline of its termination has passed.
    Abandoned,
}

impl fmt::Display for CallState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Queued => "waits for a thread",
            Self::Running => "runs",
            Self::Asked => "runs, and was asked to stop",
            Self::Finishing => "runs to its end",
            Self::Abandoned => "runs on, abandoned",
        })
    }
}

/// A blocking call that is not over: one line of [`calls`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KnownCall {
    /// The process that the call is in the [wait records](crate::waits).
    pub pid: Pid,
    /// Where in the source it was started.
    pub made: &'static Location<'static>,
    /// What it does.
    pub state: CallState,
    /// Since which [`tick`], in milliseconds, it runs or waits for a thread.
    pub since: u32,
}

impl fmt::Display for KnownCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let for_ms = tick().wrapping_sub(self.since);
        write!(f, "{} is a blocking call ({}) and {}, for {for_ms} ms", self.pid, self.made, self.state)
    }
}

/// All blocking calls of this program that are not over: those that run, and those that wait for a thread. A
/// call that was abandoned is among them, and occupies its thread, until it returns.
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

/// How many threads of all pools have nothing to do: they hold no end, and can end no wait.
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

/// From now on this thread's calls go to `pool`; gives the one to which they went before.
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

struct State {
    limits: Limits,
    /// Calls that wait, the next one first.
    queue: VecDeque<Arc<dyn Job>>,
    /// Places that were given to those who waited for room, and have not been used.
    reserved: usize,
    /// Those who wait for room, the first one first. One that was woken has no waker until it is polled
    /// again.
    line: VecDeque<(u64, Option<Waker>)>,
    next_ticket: u64,
    /// Threads that have nothing to do. The last one is woken first.
    idle: Vec<Arc<Worker>>,
    /// What each thread runs, by its number, and how it is joined. A number is used again.
    slots: Vec<Slot>,
    /// How many threads there are, with those that have not begun.
    threads: usize,
    /// Threads that have not begun.
    starting: usize,
    closed: bool,
}

#[derive(Default)]
struct Slot {
    taken: bool,
    running: Option<Arc<dyn Job>>,
    thread: Option<JoinHandle<()>>,
}

/// A thread of the pool, as those know it that give it work.
struct Worker {
    number: usize,
    thread: OnceLock<Thread>,
    handed: Mutex<Option<Handed>>,
}

enum Handed {
    Call(Arc<dyn Job>),
    /// The pool is closed.
    Nothing,
}

/// A place in the queue that somebody has waited for: given back if it is not used.
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
        let woken = state.take_woken();
        drop(state);
        wake(woken);
        for number in begins {
            // Without a thread, `start` has cancelled the calls.
            let _ = self.start(number);
        }
    }

    /// Has a thread run `job`, now or when one is free. `Ok(true)`: it is queued.
    ///
    /// # Errors
    /// Why it will not run. The caller cancels it.
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

    /// Starts the thread of this number, of which the state knows already.
    ///
    /// # Errors
    /// That no thread could be started, and that there is none.
    fn start(self: &Arc<Self>, number: usize) -> Result<(), NotRun> {
        let worker = Arc::new(Worker { number, thread: OnceLock::new(), handed: Mutex::default() });
        let pool = self.clone();
        let thread = std::thread::Builder::new().name("dunlin-call".to_owned()).spawn(move || pool.work(&worker));
        let mut state = lock(&self.state);
        match thread {
            Ok(thread) => {
                // One that has ended already, at any time but at the end of the runtime, is not joined.
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
                // The caller's own is among them: it is cancelled for the same reason, and hears it twice.
                stranded.iter().for_each(|job| job.cancel(NotRun::NoThread));
                if alone { Err(NotRun::NoThread) } else { Ok(()) }
            }
        }
    }

    /// What a thread of the pool does.
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
            if let Some(job) = state.queue.pop_front() {
                state.slots[number].running = Some(job.clone());
                let woken = state.take_woken();
                drop(state);
                wake(woken);
                job.run(number);
            } else if state.closed {
                break self.end(state, number);
            } else {
                state.idle.push(worker.clone());
                let (idle, woken) = (state.limits.idle, state.take_woken());
                drop(state);
                wake(woken);
                match self.wait(worker, idle) {
                    Some(Handed::Call(job)) => job.run(number),
                    Some(Handed::Nothing) => {}
                    None => break self.end(lock(&self.state), number),
                }
            }
            state = lock(&self.state);
            let done = state.slots[number].running.take();
            if done.is_some() {
                // It may be the last to know the call: that is dropped where nothing is locked.
                drop(state);
                drop(done);
                state = lock(&self.state);
            }
            if state.closed {
                break self.end(state, number);
            }
        }
    }

    /// Waits for work; `None` once the thread was idle for too long, and is not needed.
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
                            return None;
                        }
                        // One of those that are kept; or it has been given something meanwhile.
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

    /// Takes the call at this address out of the queue, which was kept from starting.
    pub(crate) fn forget(&self, job: *const ()) {
        let mut state = lock(&self.state);
        let place = state.queue.iter().position(|queued| Arc::as_ptr(queued).cast() == job);
        let gone = place.and_then(|place| state.queue.remove(place));
        let woken = state.take_woken();
        drop(state);
        drop(gone);
        wake(woken);
    }

    /// Gives a place in the queue when there is one. `ticket`: that of the place in the line of those who
    /// wait.
    pub(crate) fn poll_seat(self: &Arc<Self>, ticket: &mut Option<u64>, cx: &Context<'_>) -> Poll<Seat> {
        // Cloned before the lock is taken, and dropped after: a waker is a user's code.
        let waker = cx.waker().clone();
        let mut state = lock(&self.state);
        let waits = ticket.is_some();
        // A newcomer leaves room to those who have waited.
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

    /// Who waited for room does so no longer.
    pub(crate) fn leave_line(&self, ticket: &mut Option<u64>) {
        let mut state = lock(&self.state);
        let gone = state.leave_line(ticket);
        let woken = state.take_woken();
        drop(state);
        drop(gone);
        wake(woken);
    }

    /// Does something with the thread of this number, if it is known yet.
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

    /// No call starts from now on. Those that run are asked to stop.
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

    /// Waits for the threads of a pool that was closed; gives the calls that run on after its patience.
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
        // They have nothing left to do but to end. (It is asked of tasks of the runtime, too, that were
        // dropped with it.)
        ended.into_iter().filter(|thread| thread.thread().id() != std::thread::current().id()).for_each(|thread| {
            let _ = thread.join();
        });
        self.calls()
    }
}

impl State {
    /// How many more calls can be given to threads, started or not, or be queued.
    fn capacity(&self) -> usize {
        let threads = self.idle.len() + self.starting + self.limits.threads_max.saturating_sub(self.threads);
        (threads + self.limits.queue_max).saturating_sub(self.queue.len())
    }

    fn free(&self) -> usize {
        self.capacity().saturating_sub(self.reserved)
    }

    fn has_room(&self) -> bool {
        self.free() > 0
    }

    /// The threads that are to begin, which are counted from now on.
    fn begin(&mut self) -> Vec<usize> {
        let needed = (self.queue.len() + SPARE).saturating_sub(self.idle.len() + self.starting);
        let fewest = self.limits.threads_min.saturating_sub(self.threads);
        let allowed = self.limits.threads_max.saturating_sub(self.threads);
        (0..needed.max(fewest).min(allowed)).map(|_| self.take_number()).collect()
    }

    fn take_number(&mut self) -> usize {
        self.threads += 1;
        self.starting += 1;
        let free = self.slots.iter().position(|slot| !slot.taken && slot.thread.is_none());
        let number = free.unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() - 1
        });
        self.slots[number].taken = true;
        number
    }

    /// A thread ends.
    fn release(&mut self, number: usize) {
        self.threads -= 1;
        let closed = self.closed;
        let slot = &mut self.slots[number];
        slot.taken = false;
        if !closed {
            // It is joined only at the end of the runtime.
            slot.thread = None;
        }
    }

    fn leave_line(&mut self, ticket: &mut Option<u64>) -> Option<(u64, Option<Waker>)> {
        let number = ticket.take()?;
        let place = self.line.iter().position(|(other, _)| *other == number)?;
        self.line.remove(place)
    }

    /// The wakers of those who may look for room again: as many as there is room for.
    fn take_woken(&mut self) -> Vec<Waker> {
        if self.line.is_empty() {
            return Vec::new();
        }
        let free = self.free();
        self.line.iter_mut().take(free).filter_map(|(_, waker)| waker.take()).collect()
    }
}

impl Worker {
    fn hand(&self, handed: Handed) {
        *lock(&self.handed) = Some(handed);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
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
