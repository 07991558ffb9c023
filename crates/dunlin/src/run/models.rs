//! loom tries all orders of what threads do here, within a bound: the state word, the slot, and how workers fall asleep.
//!
//! `RUSTFLAGS='--cfg dunlin_loom' cargo test -p dunlin --release --lib run::models`. The queue between the workers is `crossbeam-deque`'s.

use std::task::Poll;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::idle::Idle;
use super::pool::Pool;
use super::process::{Handle, Ready, make};
use super::slot::Slot;
use super::state::{Begin, Pause, State, Wake};
use super::sync::{AtomicUsize, Mutex, Ordering, lock};

fn model(threads_switched_max: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(threads_switched_max);
    builder.check(f);
}

/// A process in a model: its queue, what its future uses, and what was written for it to see.
struct Modelled {
    state: State,
    queue: Mutex<usize>,
    /// Used by polls only; loom finds two at once.
    stage: UnsafeCell<usize>,
    written: AtomicUsize,
    /// What the last poll saw.
    seen: AtomicUsize,
    freed: AtomicUsize,
}

impl Modelled {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            state: State::new(),
            queue: Mutex::new(1),
            stage: UnsafeCell::new(0),
            written: AtomicUsize::new(0),
            seen: AtomicUsize::new(0),
            freed: AtomicUsize::new(0),
        })
    }

    fn free(&self) {
        self.freed.fetch_add(1, Ordering::Relaxed);
        self.stage.with_mut(|_| {});
    }

    fn take(&self) -> bool {
        let mut queue = lock(&self.queue);
        let there = *queue > 0;
        *queue -= usize::from(there);
        there
    }

    /// Takes it out of the queue and polls it, if it is there. It ends when it sees `end` written.
    fn run(&self, end: usize) {
        if !self.take() {
            return;
        }
        let done = match self.state.begin() {
            Begin::Cancel => true,
            Begin::Poll => self.stage.with_mut(|_| {
                let seen = self.written.load(Ordering::Relaxed);
                self.seen.store(seen, Ordering::Relaxed);
                seen == end
            }),
        };
        if done {
            self.state.finish();
            if self.state.release() {
                self.free();
            }
            return;
        }
        loop {
            match self.state.pause() {
                Pause::Parked => return,
                Pause::Again => return *lock(&self.queue) += 1,
                Pause::Unlisted => self.state.list(),
            }
        }
    }

    fn wake(&self) {
        match self.state.wake() {
            Wake::Queue => *lock(&self.queue) += 1,
            Wake::Nothing => {}
            Wake::Free => self.free(),
        }
    }
}

/// Two who wake and two who poll: never two polls at once, and the last poll sees all that was written before a wake.
#[test]
fn no_wake_is_lost() {
    model(3, || {
        let process = Modelled::new();
        process.state.retain();
        process.state.retain();
        let wakers: Vec<_> = (0..2)
            .map(|_| {
                let process = process.clone();
                thread::spawn(move || {
                    process.written.fetch_add(1, Ordering::Relaxed);
                    process.wake();
                })
            })
            .collect();
        process.run(9);
        process.run(9);
        wakers.into_iter().for_each(|waker| waker.join().unwrap());
        while *lock(&process.queue) > 0 {
            process.run(9);
        }
        assert_eq!(process.seen.load(Ordering::Relaxed), 2);
        assert_eq!(process.freed.load(Ordering::Relaxed), 0);
    });
}

/// One that ends while it is woken: it is freed once, after the last reference.
#[test]
fn the_last_reference_frees() {
    model(3, || {
        let process = Modelled::new();
        process.state.retain();
        let other = process.clone();
        let waker = thread::spawn(move || {
            other.written.store(1, Ordering::Relaxed);
            other.wake();
        });
        let other = process.clone();
        let handle = thread::spawn(move || {
            other.state.drop_handle();
            if other.state.release() {
                other.free();
            }
        });
        process.run(1);
        waker.join().unwrap();
        handle.join().unwrap();
        process.run(1);
        // If it was parked meanwhile, the list has a reference.
        if process.state.is_listed() && process.state.release() {
            process.free();
        }
        assert_eq!(process.freed.load(Ordering::Relaxed), 1);
    });
}

/// Whoever ends the process looks at the joiner's waker only while the handle does not write it.
#[test]
fn the_joiner_hears_of_the_end() {
    model(3, || {
        let process = Modelled::new();
        let joiner = Arc::new(UnsafeCell::new(0));
        let (other, read) = (process.clone(), joiner.clone());
        let runner = thread::spawn(move || {
            assert!(other.take());
            other.stage.with_mut(|_| {});
            let finished = other.state.finish();
            assert!(finished.handle);
            if finished.joiner {
                read.with(|_| {});
            }
            finished.joiner
        });
        // Two polls of the handle, with different wakers.
        let mut waits = true;
        for _ in 0..2 {
            if process.state.is_done() || (process.state.has_joiner() && !process.state.take_joiner()) {
                waits = false;
                break;
            }
            joiner.with_mut(|_| {});
            if !process.state.share_joiner() {
                waits = false;
                break;
            }
        }
        let woken = runner.join().unwrap();
        assert!(woken || !waits, "it waits and was not woken");
        assert!(process.state.is_done());
        process.stage.with_mut(|_| {});
    });
}

fn process(pool: &std::sync::Arc<Pool>) -> (Ready, Handle<()>) {
    make(pool.clone(), std::future::poll_fn(|_| Poll::Ready(())))
}

/// The worker puts in and takes out, another takes out: each process comes out once.
#[test]
fn the_slot_gives_each_process_once() {
    model(3, || {
        let pool = Pool::detached();
        let slot = Arc::new(Slot::new());
        let (first, first_handle) = process(&pool);
        let (second, second_handle) = process(&pool);
        let stolen = slot.clone();
        let thief = thread::spawn(move || {
            for _ in 0..2 {
                if let Some(ready) = stolen.take() {
                    assert!(ready.run().is_none());
                }
            }
        });
        let mut out = Vec::new();
        assert!(slot.put(first).is_ok());
        match slot.put(second) {
            Ok(()) => {}
            Err(second) => out.extend(slot.replace(second)),
        }
        out.extend(slot.take());
        thief.join().unwrap();
        out.extend(slot.take());
        for ready in out {
            assert!(ready.run().is_none());
        }
        assert!(first_handle.is_finished() && second_handle.is_finished());
    });
}

/// Some bring something while the worker falls asleep: it is called, or sees it. loom finds a worker that sleeps for ever.
fn a_worker_sleeps(bringers: usize) {
    let idle = Arc::new(Idle::new());
    let queue = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = (0..bringers)
        .map(|_| {
            let (idle, queue) = (idle.clone(), queue.clone());
            thread::spawn(move || {
                queue.fetch_add(1, Ordering::Relaxed);
                if let Some((_, waker)) = idle.call() {
                    waker.wake();
                }
            })
        })
        .collect();
    let mut taken = 0;
    loom::future::block_on(std::future::poll_fn(|cx| {
        loop {
            taken += queue.swap(0, Ordering::Relaxed);
            if taken == bringers {
                return Poll::Ready(());
            }
            if idle.sleep(0, cx.waker(), || queue.load(Ordering::Relaxed) > 0) {
                return Poll::Pending;
            }
        }
    }));
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn nothing_is_left_while_the_worker_sleeps() {
    model(4, || a_worker_sleeps(1));
}

#[test]
fn nothing_of_two_is_left_while_the_worker_sleeps() {
    model(2, || a_worker_sleeps(2));
}
