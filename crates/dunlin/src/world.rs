//! The surroundings of a program: tasks, timers and randomness. They are tokio's and the system's, or a
//! simulation's.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use dunlin_core::__rt::give_way_to_runtime;
use dunlin_core::Foreign;
use dunlin_core::waits::activity::keeping;
use tokio::task::AbortHandle;
use tokio::time::Instant;

#[cfg(feature = "sim")]
use crate::sim;

/// Without the feature there is no simulation.
#[cfg(not(feature = "sim"))]
mod sim {
    use std::any::Any;
    use std::convert::Infallible;
    use std::marker::PhantomData;
    use std::task::{Context, Poll};

    pub(crate) struct Timer(Infallible);

    impl Timer {
        pub(crate) fn poll(&mut self, _: &mut Context<'_>) -> Poll<()> {
            match self.0 {}
        }
    }

    pub(crate) struct Canceller(Infallible);

    impl Canceller {
        pub(crate) fn abort(&self) {
            match self.0 {}
        }
    }

    pub(crate) struct Task<T>(Infallible, PhantomData<fn() -> T>);

    impl<T> Task<T> {
        pub(crate) fn abort(&self) {
            match self.0 {}
        }

        pub(crate) fn canceller(&self) -> Canceller {
            match self.0 {}
        }

        pub(crate) fn is_finished(&self) -> bool {
            match self.0 {}
        }

        pub(crate) fn poll(&mut self, _: &mut Context<'_>) -> Poll<Result<T, Option<Box<dyn Any + Send>>>> {
            match self.0 {}
        }
    }
}

/// Whether the budget that tokio gives a task for each poll is spent. Then every tokio future returns
/// `Pending` in this poll.
fn is_tokio_spent() -> bool {
    !tokio::task::coop::has_budget_remaining()
}

/// Makes the task yield if tokio's budget is spent: otherwise a choice would see a ready tokio future as not
/// ready.
pub(crate) fn poll_budget(cx: &Context<'_>) -> Poll<()> {
    if is_tokio_spent() {
        give_way_to_runtime(cx);
        return Poll::Pending;
    }
    Poll::Ready(())
}

/// Wakes a yielding task once its neighbours, and the tasks that timers and sockets woke, have been polled.
pub(crate) fn wake_later(task: &Waker) {
    if is_simulated() {
        return task.wake_by_ref();
    }
    let _ = std::pin::pin!(tokio::task::yield_now()).poll(&mut Context::from_waker(task));
}

/// Ends a turn of the core's after this much virtual time.
pub(crate) fn end_turn_after(wait: Duration, number: u32) {
    #[cfg(feature = "sim")]
    if let Some(sim) = sim::current() {
        let timer = Timer::after(wait);
        sim.spawn_own(async move {
            timer.await;
            dunlin_core::__rt::end_turn(number);
        });
    }
    #[cfg(not(feature = "sim"))]
    let _ = (wait, number);
}

pin_project_lite::pin_project! {
    /// A future that may contain tokio futures.
    #[doc(hidden)]
    #[derive(Debug)]
    pub struct Budgeted<F> {
        #[pin]
        future: F,
    }
}

impl<F: Future> Future for Budgeted<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        std::task::ready!(poll_budget(cx));
        let polled = self.project().future.poll(cx);
        if polled.is_pending() && is_tokio_spent() {
            // The future may have spent the rest of the budget, and wait for nothing else.
            give_way_to_runtime(cx);
        }
        polled
    }
}

/// Makes any future a branch of a choice.
///
/// The name marks the one kind of branch whose side effects a choice cannot undo: a future that was polled
/// and not chosen is dropped, with whatever it had begun. While it waits, its line in the [wait
/// records](crate::waits) shows "a future", and where it was named; operations within it may have lines of
/// their own.
///
/// # Examples
/// ```
/// use dunlin::prelude::*;
/// # dunlin::block_on(async {
/// let (_tx, mut rx) = channel::<u8>();
/// let (said, mut heard) = tokio::sync::mpsc::channel(1);
/// said.send(7).await.unwrap();
/// alt! {
///     v = rx.recv() => panic!("{v:?}"),
///     v = future(heard.recv()) => assert_eq!(v, Some(7)),
/// }
/// # });
/// ```
#[track_caller]
pub fn future<F: Future>(future: F) -> Foreign<Budgeted<F>> {
    dunlin_core::future(Budgeted { future })
}

/// Whether this thread runs a simulation.
pub(crate) fn is_simulated() -> bool {
    #[cfg(feature = "sim")]
    return sim::current().is_some();
    #[cfg(not(feature = "sim"))]
    false
}

pin_project_lite::pin_project! {
    /// A timer.
    #[project = TimerProjection]
    pub(crate) enum Timer {
        Tokio { #[pin] sleep: tokio::time::Sleep },
        Simulated { timer: sim::Timer },
    }
}

impl Timer {
    pub(crate) fn after(wait: Duration) -> Self {
        #[cfg(feature = "sim")]
        if let Some(sim) = sim::current() {
            return Self::Simulated { timer: sim::Timer::after(&sim, wait) };
        }
        Self::Tokio { sleep: tokio::time::sleep(wait) }
    }

    pub(crate) fn at(instant: Instant) -> Self {
        #[cfg(feature = "sim")]
        if let Some(sim) = sim::current() {
            return Self::Simulated { timer: sim::Timer::at(&sim, sim.time_of(instant)) };
        }
        Self::Tokio { sleep: tokio::time::sleep_until(instant) }
    }
}

impl Future for Timer {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match self.project() {
            TimerProjection::Tokio { sleep } => {
                std::task::ready!(poll_budget(cx));
                sleep.poll(cx)
            }
            TimerProjection::Simulated { timer } => timer.poll(cx),
        }
    }
}

/// The time now, on the clock of the timers.
pub(crate) fn now() -> Instant {
    #[cfg(feature = "sim")]
    if let Some(sim) = sim::current() {
        return sim.instant();
    }
    Instant::now()
}

/// Whether a timer can be made here.
pub(crate) fn has_timers() -> bool {
    is_simulated() || tokio::runtime::Handle::try_current().is_ok()
}

/// Why a task has no output.
pub(crate) enum NoOutput {
    Panicked(Box<dyn std::any::Any + Send>),
    Cancelled,
}

impl From<tokio::task::JoinError> for NoOutput {
    fn from(error: tokio::task::JoinError) -> Self {
        error.try_into_panic().map_or(Self::Cancelled, Self::Panicked)
    }
}

/// A task that was started.
pub(crate) enum Task<T> {
    Tokio(tokio::task::JoinHandle<T>),
    #[cfg_attr(not(feature = "sim"), expect(dead_code, reason = "nothing is ever simulated"))]
    Simulated(sim::Task<T>),
}

impl<T> Task<T> {
    pub(crate) fn abort(&self) {
        match self {
            Self::Tokio(task) => task.abort(),
            Self::Simulated(task) => task.abort(),
        }
    }

    pub(crate) fn canceller(&self) -> Canceller {
        match self {
            Self::Tokio(task) => Canceller::Tokio(task.abort_handle()),
            Self::Simulated(task) => Canceller::Simulated(task.canceller()),
        }
    }

    pub(crate) fn is_finished(&self) -> bool {
        match self {
            Self::Tokio(task) => task.is_finished(),
            Self::Simulated(task) => task.is_finished(),
        }
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, NoOutput>> {
        match self {
            Self::Tokio(task) => {
                std::task::ready!(poll_budget(cx));
                // Tokio keeps the waker of a task that awaits its end.
                keeping(|| Pin::new(task).poll(cx)).map_err(NoOutput::from)
            }
            Self::Simulated(task) => {
                task.poll(cx).map_err(|panic| panic.map_or(NoOutput::Cancelled, NoOutput::Panicked))
            }
        }
    }
}

/// What aborts a task.
pub(crate) enum Canceller {
    Tokio(AbortHandle),
    Simulated(sim::Canceller),
}

impl Canceller {
    pub(crate) fn cancel(&self) {
        match self {
            Self::Tokio(task) => task.abort(),
            Self::Simulated(task) => task.abort(),
        }
    }
}

/// Starts a task.
#[track_caller]
pub(crate) fn spawn<F>(future: F) -> Task<F::Output>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    #[cfg(feature = "sim")]
    if let Some(sim) = sim::current() {
        return Task::Simulated(sim.spawn(future));
    }
    needs_runtime("a process was started");
    Task::Tokio(tokio::spawn(future))
}

/// Tokio's own panic does not name the remedy.
#[track_caller]
pub(crate) fn needs_runtime(what: &str) {
    // (Within a task this check is cheaper.)
    if tokio::task::try_id().is_none() && tokio::runtime::Handle::try_current().is_err() {
        panic!("{what} outside of a tokio runtime: use `#[dunlin::main]` or `dunlin::block_on`");
    }
}

#[cfg(feature = "net")]
pub(crate) use node::*;

/// What only nodes use.
#[cfg(feature = "net")]
mod node {
    use std::cell::RefCell;
    use std::future::Future;
    use std::sync::Arc;
    use std::task::{Context, Wake, Waker};
    use std::time::{Duration, SystemTime};

    use dunlin_proto::time::Time;
    use tokio::runtime::RuntimeFlavor;

    use super::{Instant, Timer};
    use crate::net::Networks;
    #[cfg(feature = "sim")]
    use crate::sim;

    /// The time of one node.
    pub(crate) enum Clock {
        Tokio(Instant),
        #[cfg(feature = "sim")]
        Simulated(Arc<sim::Shared>),
    }

    impl Clock {
        /// Starts now, or in a simulation at its beginning.
        pub(crate) fn new() -> Self {
            #[cfg(feature = "sim")]
            if let Some(sim) = sim::current() {
                return Self::Simulated(sim);
            }
            Self::Tokio(Instant::now())
        }

        pub(crate) fn now(&self) -> Time {
            match self {
                Self::Tokio(start) => Time(u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX)),
                #[cfg(feature = "sim")]
                Self::Simulated(sim) => Time(sim.now()),
            }
        }

        pub(crate) fn timer(&self, at: Time) -> Timer {
            match self {
                Self::Tokio(start) => Timer::at(*start + Duration::from_micros(at.0)),
                #[cfg(feature = "sim")]
                Self::Simulated(sim) => Timer::Simulated { timer: sim::Timer::at(sim, at.0) },
            }
        }
    }

    /// A task of a node's own, which can be aborted.
    pub(crate) enum Own {
        Tokio(tokio::task::JoinHandle<()>),
        #[cfg(feature = "sim")]
        Simulated(sim::Own),
    }

    impl Own {
        /// Waits until an aborted task has released what it held.
        pub(crate) async fn ended(self) {
            match self {
                Self::Tokio(task) => {
                    let _ = task.await;
                }
                #[cfg(feature = "sim")]
                Self::Simulated(_) => {}
            }
        }

        pub(crate) fn abort(&self) {
            match self {
                Self::Tokio(task) => task.abort(),
                #[cfg(feature = "sim")]
                Self::Simulated(task) => task.abort(),
            }
        }
    }

    /// Starts a task of a node's own. In a simulation its panic fails the simulation.
    pub(crate) fn spawn_own(future: impl Future<Output = ()> + Send + 'static) -> Own {
        #[cfg(feature = "sim")]
        if let Some(sim) = sim::current() {
            return Own::Simulated(sim.spawn_own(future));
        }
        // Boxed: what a runtime compiles for each type of task is then compiled once.
        Own::Tokio(tokio::spawn(crate::net::compiled_here(future)))
    }

    /// A future whose task any thread can run as soon as it is woken. Tokio reserves the task that was woken
    /// last for the thread that woke it, until that thread's poll ends, and no other thread can steal it.
    pub(crate) async fn run_by_any_thread<F: Future>(future: F) -> F::Output {
        let mut future = std::pin::pin!(future);
        let mut waker = Arc::new(ForAnyThread(Waker::noop().clone()));
        std::future::poll_fn(|cx| {
            if !waker.0.will_wake(cx.waker()) {
                waker = Arc::new(ForAnyThread(cx.waker().clone()));
            }
            future.as_mut().poll(&mut Context::from_waker(&waker.clone().into()))
        })
        .await
    }

    /// Wakes a task, and then another one, which is reserved in its place.
    struct ForAnyThread(Waker);

    impl Wake for ForAnyThread {
        fn wake(self: Arc<Self>) {
            self.wake_by_ref();
        }

        fn wake_by_ref(self: &Arc<Self>) {
            self.0.wake_by_ref();
            // (A simulation has one thread.)
            if !super::is_simulated()
                && let Ok(runtime) = tokio::runtime::Handle::try_current()
                && runtime.runtime_flavor() == RuntimeFlavor::MultiThread
            {
                drop(runtime.spawn(crate::net::compiled_here(std::future::ready(()))));
            }
        }
    }

    /// Runs `work`, which may take long, where it holds up no task.
    pub(crate) fn apart(work: impl FnOnce() + Send + 'static) {
        #[cfg(feature = "sim")]
        if sim::current().is_some() {
            // In a simulation nothing takes long.
            spawn_own(async move { work() });
            return;
        }
        tokio::task::spawn_blocking(work);
    }

    /// `None`: it timed out.
    pub(crate) async fn within<F: Future>(limit: Duration, future: F) -> Option<F::Output> {
        let mut future = std::pin::pin!(future);
        let mut timer = std::pin::pin!(Timer::after(limit));
        std::future::poll_fn(|cx| match future.as_mut().poll(cx) {
            std::task::Poll::Ready(output) => std::task::Poll::Ready(Some(output)),
            std::task::Poll::Pending => timer.as_mut().poll(cx).map(|()| None),
        })
        .await
    }

    /// The incarnation of a node that starts now: that of a node that starts later is higher.
    pub(crate) fn incarnation() -> u64 {
        #[cfg(feature = "sim")]
        if let Some(sim) = sim::current() {
            return sim.now() + 1;
        }
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX).max(1)
    }

    /// Random bits.
    pub(crate) fn random() -> u128 {
        #[cfg(feature = "sim")]
        if let Some(sim) = sim::current() {
            return sim.random();
        }
        // In a thread that is ending, each number is drawn by itself.
        DRAWN.try_with(|drawn| drawn.borrow_mut().pop()).ok().flatten().unwrap_or_else(|| {
            let numbers = draw();
            let _ = DRAWN.try_with(|drawn| drawn.borrow_mut().extend_from_slice(&numbers[1..]));
            numbers[0]
        })
    }

    thread_local! {
        /// Random numbers that this thread has drawn and not used: each call carries one, and a call of the
        /// system for each would cost more than the bytes.
        static DRAWN: RefCell<Vec<u128>> = const { RefCell::new(Vec::new()) };
    }

    fn draw() -> [u128; 16] {
        let mut bytes = [0; 256];
        // Without randomness two channels could get the same number, so the program cannot continue.
        getrandom::fill(&mut bytes).expect("the system has no source of randomness");
        std::array::from_fn(|at| {
            let mut number = [0; 16];
            number.copy_from_slice(&bytes[16 * at..16 * (at + 1)]);
            u128::from_ne_bytes(number)
        })
    }

    /// The networks of a new node, and its host number in a simulation.
    pub(crate) fn networks(own: Networks) -> (Networks, u64) {
        #[cfg(feature = "sim")]
        if let Some(sim) = sim::current() {
            let network = sim::Network::new(sim);
            let host = network.host();
            return (Networks::only(network), host);
        }
        (own, 0)
    }
}
