//! Shared by the shuttle models: how to run one, and a `block_on` that shuttle can see.
//!
//! Orders are drawn from fixed seeds, so a run is the same every time; `SHUTTLE_ITERATIONS` and
//! `SHUTTLE_SEED` override it. A failure prints its schedule, some lines of hexadecimal digits:
//! `SHUTTLE_REPLAY="<those>"` with `--exact <test>` replays it.
#![allow(dead_code, unreachable_pub)] // every file of models includes this, and uses some of it
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // a clock, to print how long a model took, and its name

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};

use shuttle::scheduler::{PctScheduler, RandomScheduler, ReplayScheduler};
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread::JoinHandle;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")))
}

/// Runs `f` in `iterations` random orders, and in as many that favour few, well-placed preemptions (PCT).
#[track_caller]
pub fn check(iterations: usize, f: impl Fn() + Send + Sync + 'static) {
    let iterations = number("SHUTTLE_ITERATIONS").map_or(iterations, |n| n as usize);
    let seed = number("SHUTTLE_SEED").unwrap_or(0x6475_6e6c_696e);
    let name = std::thread::current().name().unwrap_or("model").to_string();
    let mut config = shuttle::Config::new();
    config.stack_size = 0x2_0000;
    config.silence_warnings = true;
    // About ten times the steps of a run: a lock that is never released spins without end.
    config.max_steps = shuttle::MaxSteps::FailAfter(50_000);
    if let Ok(schedule) = std::env::var("SHUTTLE_REPLAY") {
        let schedule: String = schedule.split_whitespace().collect();
        shuttle::Runner::new(ReplayScheduler::new_from_encoded(&schedule), config).run(f);
        return;
    }
    let (began, runs) = (std::time::Instant::now(), Arc::new(AtomicU64::new(0)));
    let f = {
        let runs = runs.clone();
        Arc::new(move || {
            runs.fetch_add(1, Relaxed);
            f();
        })
    };
    let g = f.clone();
    shuttle::Runner::new(RandomScheduler::new_from_seed(seed, iterations), config.clone()).run(move || g());
    shuttle::Runner::new(PctScheduler::new_from_seed(seed, 3, iterations), config).run(move || f());
    eprintln!("{name}: {} executions, {:.1} s", runs.load(Relaxed), began.elapsed().as_secs_f64());
}

struct Signal {
    woken: Mutex<bool>,
    changed: Condvar,
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

/// Runs `future` on this shuttle thread. If it is never woken, shuttle reports a deadlock.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let signal = Arc::new(Signal { woken: Mutex::new(false), changed: Condvar::new() });
    let waker = signal.clone().into();
    let mut cx = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return output;
        }
        let mut woken = signal.woken.lock().unwrap();
        while !std::mem::take(&mut *woken) {
            woken = signal.changed.wait(woken).unwrap();
        }
    }
}

/// Polls once and drops.
pub fn try_once<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

pub fn join_all<R>(threads: Vec<JoinHandle<R>>) -> Vec<R> {
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}
