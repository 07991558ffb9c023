//! Tasks on one thread in an order that follows from a seed, and timers of a virtual clock.

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use dunlin_core::__rt::wake_all;
use tokio::time::Instant;

use super::wires::Wires;
use crate::lock::lock;

type Boxed = Pin<Box<dyn Future<Output = ()> + Send>>;

thread_local! {
    static CURRENT: RefCell<Option<Arc<Shared>>> = const { RefCell::new(None) };
}

/// The simulation that runs on this thread.
pub(crate) fn current() -> Option<Arc<Shared>> {
    CURRENT.try_with(|current| current.borrow().clone()).ok().flatten()
}

/// Held by the running simulation. The whole process shares the core's coarse time and its list of waiters
/// with limited patience: another simulation on another thread would advance the time, and take waiters from
/// the list while this one reads it.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// `shared` runs on this thread until the guard is dropped. Waits until no other thread runs a simulation.
pub(super) fn enter(shared: &Arc<Shared>) -> Running {
    // A simulation within another one has its turn already.
    let turn = current().is_none().then(|| ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner));
    Running { before: CURRENT.with(|current| current.replace(Some(shared.clone()))), _turn: turn }
}

pub(super) struct Running {
    /// The simulation that ran on this thread before.
    before: Option<Arc<Shared>>,
    _turn: Option<MutexGuard<'static, ()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        CURRENT.with(|current| current.replace(self.before.take()));
    }
}

/// SplitMix64 (Steele, Lea and Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// A simulation, shared with everything that runs in it.
pub(crate) struct Shared {
    /// Virtual microseconds.
    now: AtomicU64,
    /// The real moment of virtual time zero.
    epoch: Instant,
    random: Mutex<Random>,
    tasks: Mutex<Tasks>,
    ready: Arc<Ready>,
    /// By their time, then in the order in which they were set.
    timers: Mutex<BTreeMap<(u64, u64), Waker>>,
    next_timer: AtomicU64,
    main: Arc<Main>,
    wires: Wires,
}

#[derive(Default)]
struct Tasks {
    next: u64,
    /// `None`: it is being polled.
    futures: BTreeMap<u64, (Option<Boxed>, Arc<Flag>)>,
}

/// Tasks that were woken.
#[derive(Default)]
struct Ready {
    tasks: Mutex<Vec<u64>>,
    /// Another executor drives the simulation as one of its tasks.
    outside: Mutex<Option<Waker>>,
}

/// Wakes one task.
struct Flag {
    number: u64,
    woken: AtomicBool,
    ready: Weak<Ready>,
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.woken.swap(true, Ordering::AcqRel) {
            return;
        }
        let Some(ready) = self.ready.upgrade() else { return };
        lock(&ready.tasks).push(self.number);
        let outside = lock(&ready.outside).take();
        if let Some(outside) = outside {
            outside.wake();
        }
    }
}

/// Wakes the main future.
pub(super) struct Main(AtomicBool);

impl Main {
    pub(super) fn is_woken(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    pub(super) fn take(&self) -> bool {
        self.0.swap(false, Ordering::AcqRel)
    }
}

impl Wake for Main {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

impl Shared {
    pub(super) fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self {
            now: AtomicU64::new(0),
            epoch: Instant::now(),
            random: Mutex::new(Random(seed)),
            tasks: Mutex::default(),
            ready: Arc::default(),
            timers: Mutex::default(),
            next_timer: AtomicU64::new(0),
            main: Arc::new(Main(AtomicBool::new(true))),
            wires: Wires::default(),
        })
    }

    pub(crate) fn now(&self) -> u64 {
        self.now.load(Ordering::Acquire)
    }

    pub(crate) fn instant(&self) -> Instant {
        self.epoch + Duration::from_micros(self.now())
    }

    /// The virtual time of a moment.
    pub(crate) fn time_of(&self, instant: Instant) -> u64 {
        micros(instant.saturating_duration_since(self.epoch))
    }

    pub(super) fn below(&self, n: u64) -> u64 {
        lock(&self.random).next() % n.max(1)
    }

    pub(crate) fn random(&self) -> u128 {
        let mut random = lock(&self.random);
        u128::from(random.next()) << 64 | u128::from(random.next())
    }

    pub(super) fn wires(&self) -> &Wires {
        &self.wires
    }

    pub(super) fn main(&self) -> Arc<Main> {
        // The main future needs its first poll.
        self.main.0.store(true, Ordering::Release);
        self.main.clone()
    }

    fn add(self: &Arc<Self>, future: Boxed) -> u64 {
        let mut tasks = lock(&self.tasks);
        let number = tasks.next;
        tasks.next += 1;
        let flag = Arc::new(Flag { number, woken: AtomicBool::new(false), ready: Arc::downgrade(&self.ready) });
        tasks.futures.insert(number, (Some(future), flag.clone()));
        drop(tasks);
        flag.wake();
        number
    }

    /// Runs a task; its handle gets the output.
    pub(crate) fn spawn<F>(self: &Arc<Self>, future: F) -> Task<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        let shared = Arc::new(Mutex::new(Ending { output: None, waker: None }));
        let number = self.add(Box::pin(Guarded { future: Box::pin(future), ending: shared.clone() }));
        Task { sim: Arc::downgrade(self), number, ending: shared }
    }

    /// Runs a task of a node: its panic fails the simulation.
    pub(crate) fn spawn_own(self: &Arc<Self>, future: impl Future<Output = ()> + Send + 'static) -> Own {
        Own { sim: Arc::downgrade(self), number: self.add(Box::pin(future)) }
    }

    fn abort(&self, number: u64) {
        // Dropped outside the lock: its drop may wake or end other tasks.
        let dropped = lock(&self.tasks).futures.remove(&number);
        drop(dropped);
    }

    /// Polls one woken task, if there is one.
    pub(super) fn poll_one(&self) -> bool {
        loop {
            let number = {
                let mut ready = lock(&self.ready.tasks);
                if ready.is_empty() {
                    return false;
                }
                let index = self.below(ready.len() as u64) as usize;
                ready.swap_remove(index)
            };
            let taken = lock(&self.tasks).futures.get_mut(&number).map(|(future, flag)| (future.take(), flag.clone()));
            // The task has ended meanwhile.
            let Some((Some(mut future), flag)) = taken else { continue };
            flag.woken.store(false, Ordering::Release);
            // Earlier work of this thread must not influence the simulation.
            dunlin_core::__rt::renew();
            let polled = future.as_mut().poll(&mut Context::from_waker(&flag.into()));
            let mut tasks = lock(&self.tasks);
            if polled.is_pending()
                && let Some((place, _)) = tasks.futures.get_mut(&number)
            {
                *place = Some(future);
            } else {
                tasks.futures.remove(&number);
                drop(tasks);
                drop(future);
            }
            return true;
        }
    }

    /// Advances time to the next timer when no task can run. `false`: there is no timer, or it is beyond
    /// `horizon`.
    pub(super) fn pass_time(&self, horizon: Duration) -> bool {
        let due: Vec<Waker> = {
            let mut timers = lock(&self.timers);
            let Some((&(at, _), _)) = timers.first_key_value() else { return false };
            if at > self.now().saturating_add(micros(horizon)) {
                return false;
            }
            self.now.fetch_max(at, Ordering::AcqRel);
            let later = timers.split_off(&(self.now() + 1, 0));
            std::mem::replace(&mut *timers, later).into_values().collect()
        };
        wake_all(due);
        true
    }

    /// Wakes `waker` when a task is woken.
    pub(super) fn watch(&self, waker: &Waker) {
        *lock(&self.ready.outside) = Some(waker.clone());
    }

    pub(super) fn drop_tasks(&self) {
        loop {
            let Some((_, dropped)) = lock(&self.tasks).futures.pop_first() else { return };
            drop(dropped);
        }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// A timer of the virtual clock.
pub(crate) struct Timer {
    sim: Weak<Shared>,
    at: u64,
    /// Its place among the timers.
    set: Option<u64>,
}

impl Timer {
    /// At this virtual time, in microseconds.
    pub(crate) fn at(sim: &Arc<Shared>, at: u64) -> Self {
        Self { sim: Arc::downgrade(sim), at, set: None }
    }

    pub(crate) fn after(sim: &Arc<Shared>, wait: Duration) -> Self {
        Self::at(sim, sim.now().saturating_add(micros(wait)))
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(sim) = self.sim.upgrade() else { return Poll::Pending };
        if sim.now() >= self.at {
            return Poll::Ready(());
        }
        let set = *self.set.get_or_insert_with(|| sim.next_timer.fetch_add(1, Ordering::Relaxed));
        lock(&sim.timers).insert((self.at, set), cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let (Some(sim), Some(set)) = (self.sim.upgrade(), self.set) {
            let dropped = lock(&sim.timers).remove(&(self.at, set));
            drop(dropped);
        }
    }
}

struct Ending<T> {
    output: Option<Result<T, Option<Box<dyn Any + Send>>>>,
    waker: Option<Waker>,
}

/// A task that reports how it ended, even if it panicked or was dropped.
struct Guarded<F: Future> {
    future: Pin<Box<F>>,
    ending: Arc<Mutex<Ending<F::Output>>>,
}

impl<F: Future> Guarded<F> {
    fn end(&self, output: Result<F::Output, Option<Box<dyn Any + Send>>>) {
        let mut ending = lock(&self.ending);
        if ending.output.is_none() {
            ending.output = Some(output);
            let waker = ending.waker.take();
            drop(ending);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

impl<F: Future> Future for Guarded<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // As tokio does: a task that awaits it gets its panic.
        match catch_unwind(AssertUnwindSafe(|| self.future.as_mut().poll(cx))) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(output)) => self.end(Ok(output)),
            Err(panic) => self.end(Err(Some(panic))),
        }
        Poll::Ready(())
    }
}

impl<F: Future> Drop for Guarded<F> {
    fn drop(&mut self) {
        self.end(Err(None));
    }
}

/// A task that was started. Dropped, the task runs on.
pub(crate) struct Task<T> {
    sim: Weak<Shared>,
    number: u64,
    ending: Arc<Mutex<Ending<T>>>,
}

impl<T> Task<T> {
    pub(crate) fn abort(&self) {
        if let Some(sim) = self.sim.upgrade() {
            sim.abort(self.number);
        }
    }

    pub(crate) fn canceller(&self) -> Canceller {
        Own { sim: self.sim.clone(), number: self.number }
    }

    pub(crate) fn is_finished(&self) -> bool {
        lock(&self.ending).output.is_some()
    }

    /// `Err(None)`: it was aborted.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, Option<Box<dyn Any + Send>>>> {
        let mut ending = lock(&self.ending);
        match ending.output.take() {
            Some(output) => Poll::Ready(output),
            None => {
                ending.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl<T> fmt::Debug for Task<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Task").field(&self.number).finish()
    }
}

/// What aborts a task.
pub(crate) type Canceller = Own;

/// A task of a node.
pub(crate) struct Own {
    sim: Weak<Shared>,
    number: u64,
}

impl Own {
    pub(crate) fn abort(&self) {
        if let Some(sim) = self.sim.upgrade() {
            sim.abort(self.number);
        }
    }
}
