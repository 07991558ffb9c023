//! A small single-threaded executor in which a seed determines everything that happens.
//!
//! It runs *tasks* in a random order, and now and then polls one that was not woken, as an executor may. A
//! law also holds single futures in its own hand ([`Hand`]): it polls them when it chooses, drops them,
//! forgets them, or leaves them alone. There is no clock and no sleep. Earlier work of the thread has no
//! influence: each poll has the whole budget of ready operations.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use dunlin::__rt::renew;

/// A task's future as the rig stores it.
pub type Boxed<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// More polls than any law needs: a law that reaches this limit does not terminate.
const POLLS_MAX: u32 = 500_000;

/// One in this many polls goes to a task that was not woken.
const SPURIOUS: u64 = 7;

/// A pseudorandom generator: splitmix64 (Steele, Lea and Flood, 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The generator with this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x6a09_e667_f3bc_c908)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % n.max(1)
    }
}

/// Whether a task has been woken.
struct Flag(AtomicBool);

impl Flag {
    fn raised() -> Arc<Self> {
        Arc::new(Self(AtomicBool::new(true)))
    }

    fn take(&self) -> bool {
        self.0.swap(false, Ordering::AcqRel)
    }

    fn is_raised(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

enum Slot {
    Waiting(Boxed<'static>),
    /// The task is being polled.
    Out,
    Done,
}

struct Tasks {
    slots: Vec<(Slot, Arc<Flag>)>,
    random: Random,
    polls: u32,
}

/// The executor. See the module documentation.
pub struct Rig {
    tasks: RefCell<Tasks>,
    /// Waits for work outside the rig.
    outside: RefCell<Option<Box<dyn Fn()>>>,
}

impl fmt::Debug for Rig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rig").field("tasks", &self.tasks.borrow().slots.len()).finish()
    }
}

impl Rig {
    /// Creates a rig whose every random choice follows from `seed`.
    pub fn new(seed: u64) -> Self {
        Self {
            tasks: RefCell::new(Tasks { slots: Vec::new(), random: Random::new(seed), polls: 0 }),
            outside: RefCell::default(),
        }
    }

    /// A number below `n`.
    pub fn below(&self, n: u64) -> u64 {
        self.tasks.borrow_mut().random.below(n)
    }

    /// Runs `future` as a task.
    pub fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> Task<'_, T> {
        let output = Rc::new(RefCell::new(None));
        let place = output.clone();
        let number = self.spawn_boxed(Box::pin(async move {
            let value = future.await;
            *place.borrow_mut() = Some(value);
        }));
        Task { rig: self, number, output }
    }

    /// Runs a transport's background work as a task, and returns the task's number.
    pub fn spawn_boxed(&self, future: Boxed<'static>) -> usize {
        let mut tasks = self.tasks.borrow_mut();
        tasks.slots.push((Slot::Waiting(future), Flag::raised()));
        tasks.slots.len() - 1
    }

    /// Polls one task, usually one that was woken. Returns `false` if no task was woken.
    pub fn step(&self) -> bool {
        let mut tasks = self.tasks.borrow_mut();
        let waiting = |slot: &Slot| matches!(slot, Slot::Waiting(_));
        let all: Vec<usize> = (0..tasks.slots.len()).filter(|n| waiting(&tasks.slots[*n].0)).collect();
        let ready: Vec<usize> = all.iter().copied().filter(|n| tasks.slots[*n].1.is_raised()).collect();
        if ready.is_empty() {
            return false;
        }
        tasks.polls += 1;
        assert!(tasks.polls < POLLS_MAX, "the tasks run in circles");
        let from = if tasks.random.below(SPURIOUS) == 0 { &all } else { &ready };
        let number = from[tasks.random.below(from.len() as u64) as usize];
        let (slot, flag) = &mut tasks.slots[number];
        let flag = flag.clone();
        flag.take();
        let Slot::Waiting(mut future) = std::mem::replace(slot, Slot::Out) else { return false };
        drop(tasks);
        renew();
        let ended = future.as_mut().poll(&mut Context::from_waker(&Waker::from(flag))).is_ready();
        let left = if ended {
            drop(future);
            Slot::Done
        } else {
            Slot::Waiting(future)
        };
        self.tasks.borrow_mut().slots[number].0 = left;
        true
    }

    /// Runs the tasks until none of them is woken.
    pub fn settle(&self) {
        self.settle_watching(|| ());
    }

    /// As [`Rig::settle`], and calls `look` after each poll.
    pub fn settle_watching(&self, look: impl Fn()) {
        loop {
            while self.step() {
                look();
            }
            let outside = self.outside.borrow();
            let Some(wait) = &*outside else { return };
            wait();
            if !self.is_ready() {
                return;
            }
        }
    }

    fn is_ready(&self) -> bool {
        let tasks = self.tasks.borrow();
        tasks.slots.iter().any(|(slot, flag)| matches!(slot, Slot::Waiting(_)) && flag.is_raised())
    }

    /// Registers `wait` for work outside this rig that may wake its tasks. `wait` returns when none of that
    /// work is left.
    pub fn at_rest(&self, wait: impl Fn() + 'static) {
        *self.outside.borrow_mut() = Some(Box::new(wait));
    }

    /// Takes `future` in hand: only the law polls it.
    pub fn hand<F: Future>(&self, future: F) -> Hand<'_, F> {
        Hand { rig: self, future: Some(Box::pin(future)), flag: Flag::raised(), output: None }
    }
}

/// A task of the rig.
pub struct Task<'r, T> {
    rig: &'r Rig,
    number: usize,
    output: Rc<RefCell<Option<T>>>,
}

impl<T> fmt::Debug for Task<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Task").field(&self.number).finish()
    }
}

impl<T> Task<'_, T> {
    /// Whether the task has returned.
    pub fn is_done(&self) -> bool {
        self.output.borrow().is_some()
    }

    /// The output of the task.
    ///
    /// # Panics
    /// If the task has not returned.
    #[track_caller]
    pub fn out(self) -> T {
        self.output.borrow_mut().take().expect("the task has not ended")
    }

    /// Drops the task's future in its current state.
    pub fn cancel(self) {
        let slot = std::mem::replace(&mut self.rig.tasks.borrow_mut().slots[self.number].0, Slot::Done);
        drop(slot);
    }
}

/// One future that only the law polls.
pub struct Hand<'r, F: Future> {
    rig: &'r Rig,
    future: Option<Pin<Box<F>>>,
    flag: Arc<Flag>,
    output: Option<F::Output>,
}

impl<F: Future> fmt::Debug for Hand<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hand").field("done", &self.is_done()).field("woken", &self.is_woken()).finish()
    }
}

impl<F: Future> Hand<'_, F> {
    /// Polls it once, woken or not, and lets the tasks settle. Returns `true` if it is done.
    pub fn poll(&mut self) -> bool {
        if let Some(future) = &mut self.future {
            self.flag.take();
            renew();
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&self.flag.clone().into())) {
                self.future = None;
                self.output = Some(output);
            }
        }
        self.rig.settle();
        self.is_done()
    }

    /// Polls it while it is woken; a new hand counts as woken. Returns `true` if it is done.
    pub fn run(&mut self) -> bool {
        let mut polls = 0;
        let mut woken = !self.is_done() && self.is_woken();
        while woken {
            polls += 1;
            assert!(polls < 10_000, "the future wakes itself for ever");
            // `poll` returns after all tasks have settled.
            woken = !self.poll() && self.flag.is_raised();
        }
        self.is_done()
    }

    /// Whether it has been woken since its last poll.
    pub fn is_woken(&self) -> bool {
        self.rig.settle();
        self.flag.is_raised()
    }

    /// Whether it has returned its output.
    pub fn is_done(&self) -> bool {
        self.future.is_none()
    }

    /// Runs it and returns its output.
    ///
    /// # Panics
    /// If it waits.
    #[track_caller]
    pub fn out(mut self) -> F::Output {
        self.run();
        self.output.take().expect("the future still waits and has not been woken")
    }

    /// Leaks the future in its current state.
    pub fn forget(mut self) {
        std::mem::forget(self.future.take());
    }
}

/// A future that a law may run concurrently with others.
pub trait Runs {
    /// Polls it if it was woken; returns whether it was.
    fn turn(&mut self) -> bool;
}

impl<F: Future> Runs for Hand<'_, F> {
    fn turn(&mut self) -> bool {
        let woken = !self.is_done() && self.is_woken();
        if woken {
            self.poll();
        }
        woken
    }
}

impl Rig {
    /// Runs several hands, in a random order, until none of them is woken.
    pub fn together(&self, hands: &mut [&mut dyn Runs]) {
        let mut polls = 0;
        let mut order: Vec<usize> = (0..hands.len()).collect();
        loop {
            polls += 1;
            assert!(polls < 10_000, "the futures run in circles");
            for n in (1..order.len()).rev() {
                order.swap(n, self.below(n as u64 + 1) as usize);
            }
            if !order.iter().any(|n| hands[*n].turn()) {
                return;
            }
        }
    }
}

/// A future that is polled inside every one of its wakes, as some executors do. It acts as another thread
/// could at the worst moment.
struct Eager(Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>);

impl Eager {
    fn poll(self: &Arc<Self>) {
        // The future woke itself while it is being polled.
        let Ok(mut future) = self.0.try_lock() else { return };
        let waker = self.clone().into();
        renew();
        if let Some(running) = future.as_mut()
            && running.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
        {
            *future = None;
        }
    }
}

impl Wake for Eager {
    fn wake(self: Arc<Self>) {
        self.poll();
    }
}

/// Polls `future` now, and then inside every wake.
pub fn eager(future: impl Future<Output = ()> + Send + 'static) {
    Arc::new(Eager(Mutex::new(Some(Box::pin(future))))).poll();
}

/// Yields to all other tasks once.
pub fn give_way() -> impl Future<Output = ()> {
    let mut first = true;
    std::future::poll_fn(move |cx| {
        if !std::mem::take(&mut first) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
}

/// Polls `future` at most `polls` times, woken or not, then drops it in its current state and returns `None`.
pub async fn cut_off<F: Future>(polls: u64, future: F) -> Option<F::Output> {
    let mut future = std::pin::pin!(future);
    let mut left = polls;
    std::future::poll_fn(move |cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log_of(seed: u64) -> Vec<u32> {
        let rig = Rig::new(seed);
        let log = Rc::new(RefCell::new(Vec::new()));
        for n in 0..5 {
            let log = log.clone();
            rig.spawn(async move {
                for _ in 0..3 {
                    log.borrow_mut().push(n);
                    give_way().await;
                }
            });
        }
        rig.settle();
        log.take()
    }

    #[test]
    fn seed_determines_the_schedule() {
        assert_eq!(log_of(7), log_of(7));
        assert_ne!(log_of(7), log_of(8));
    }

    #[test]
    fn a_hand_is_polled_only_by_the_law() {
        let rig = Rig::new(0);
        let mut hand = rig.hand(give_way());
        rig.settle();
        assert!(!hand.poll() && hand.is_woken());
        assert!(hand.run());
    }

    #[test]
    fn cut_off_drops_its_future_after_the_last_poll() {
        let rig = Rig::new(0);
        assert_eq!(rig.hand(cut_off(3, std::future::pending::<()>())).out(), None);
    }
}
