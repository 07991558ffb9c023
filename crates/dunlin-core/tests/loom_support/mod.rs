//! Shared by the loom models: how to run one, and a `block_on` that loom can see.
//!
//! `LOOM_MAX_PREEMPTIONS` bounds the search; a model prints the number of its executions.
#![allow(dead_code, unreachable_pub)] // every file of models includes this, and uses some of it
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // a clock, to print how long a model took, and its name

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};

use loom::sync::Condvar;
use loom::thread;

/// Runs `f` in every order with at most 3 preemptions: enough for two threads.
#[track_caller]
pub fn model(f: impl Fn() + Sync + Send + 'static) {
    model_within(3, f);
}

/// Runs `f` in every order with at most this many preemptions, or as many as `LOOM_MAX_PREEMPTIONS` sets.
#[track_caller]
pub fn model_within(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.max_branches = 20_000;
    let (executions, began) = (Arc::new(AtomicU64::new(0)), std::time::Instant::now());
    let counted = executions.clone();
    builder.check(move || {
        let n = counted.fetch_add(1, Relaxed);
        if n.is_multiple_of(50_000) && n > 0 {
            eprintln!("{n} executions so far");
        }
        f();
    });
    let name = std::thread::current().name().unwrap_or("model").to_string();
    eprintln!("{name}: {} executions, {:.1} s", executions.load(Relaxed), began.elapsed().as_secs_f64());
}

/// Wakes a loom thread. (Not `park`: loom's `unpark` also releases a thread that waits for something else.
/// Not its `Notify` or its `join`: they print a debug line each time.)
struct Signal {
    woken: loom::sync::Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    fn new() -> Arc<Self> {
        Arc::new(Self { woken: loom::sync::Mutex::new(false), changed: Condvar::new() })
    }

    fn wait(&self) {
        let mut woken = self.woken.lock().unwrap();
        while !std::mem::take(&mut *woken) {
            woken = self.changed.wait(woken).unwrap();
        }
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        *self.woken.lock().unwrap() = true;
        self.changed.notify_one();
    }
}

/// Runs `future` on this loom thread. If it is never woken, loom reports a deadlock.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let signal = Signal::new();
    let waker = signal.clone().into();
    let mut cx = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return output;
        }
        signal.wait();
    }
}

/// Polls once, with a waker that does nothing.
pub fn poll_once<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// Polls once and drops the future.
pub fn try_once<F: Future>(future: F) -> Option<F::Output> {
    poll_once(pin!(future))
}

/// Polls once and forgets: the future is never dropped.
pub fn forget_after_one_poll<F: Future + Unpin>(mut future: F) -> Option<F::Output> {
    let output = poll_once(Pin::new(&mut future));
    std::mem::forget(future);
    output
}

/// A running loom thread, whose result can be fetched.
pub struct Running<R> {
    result: Arc<Mutex<Option<R>>>,
    ended: Arc<Signal>,
}

pub fn spawn<R: Send + 'static>(f: impl FnOnce() -> R + Send + 'static) -> Running<R> {
    let (result, ended) = (Arc::new(Mutex::new(None)), Signal::new());
    let running = Running { result: result.clone(), ended: ended.clone() };
    thread::spawn(move || {
        *result.lock().unwrap() = Some(f());
        ended.wake();
    });
    running
}

impl<R> Running<R> {
    pub fn join(self) -> R {
        self.ended.wait();
        self.result.lock().unwrap().take().expect("it has ended")
    }
}

/// Returns `Pending` once, and wakes itself at once.
pub async fn yield_once() {
    let mut yielded = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}
