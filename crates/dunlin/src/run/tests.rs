//! Processes without a runtime around them, as far as that goes: under Miri too.

use std::future::{Future, pending, poll_fn};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use crossbeam_deque::Steal;

use super::pool::Pool;
use super::process::{Handle, Ready, make};
use crate::world::NoOutput;

/// Counts how often it is woken.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Says that it was dropped.
struct Drops(Arc<AtomicUsize>);

impl Drop for Drops {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn joined<T>(handle: &mut Handle<T>) -> Option<Result<T, NoOutput>> {
    match handle.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(exit) => Some(exit),
        Poll::Pending => None,
    }
}

/// What was woken, from outside all workers.
fn woken(pool: &Pool) -> Option<Ready> {
    loop {
        match pool.injected.steal() {
            Steal::Success(ready) => return Some(ready),
            Steal::Retry => {}
            Steal::Empty => return None,
        }
    }
}

/// A process that leaves its wakers here, and ends when it is told to.
#[derive(Clone, Default)]
struct Left {
    wakers: Arc<Mutex<Vec<Waker>>>,
    end: Arc<AtomicBool>,
    drops: Arc<AtomicUsize>,
}

impl Left {
    fn process(&self) -> impl Future<Output = u8> + Send + 'static {
        let (this, dropped) = (self.clone(), Drops(self.drops.clone()));
        poll_fn(move |cx| {
            let _ = &dropped;
            this.wakers.lock().unwrap().push(cx.waker().clone());
            if this.end.load(Ordering::Relaxed) { Poll::Ready(7) } else { Poll::Pending }
        })
    }

    fn take(&self) -> Waker {
        self.wakers.lock().unwrap().remove(0)
    }

    fn drops(&self) -> usize {
        self.drops.load(Ordering::Relaxed)
    }
}

#[test]
fn a_process_is_woken_joined_and_freed() {
    let (pool, left) = (Pool::detached(), Left::default());
    let (ready, mut handle) = make(pool.clone(), left.process());
    let count = Arc::new(Count::default());
    let joiner = Waker::from(count.clone());
    assert!(handle.poll(&mut Context::from_waker(&joiner)).is_pending());
    assert!(ready.run().is_none());
    assert!(woken(&pool).is_none());
    // Twice is once.
    let waker = left.take();
    waker.wake_by_ref();
    waker.wake();
    let ready = woken(&pool).unwrap();
    assert!(woken(&pool).is_none());
    // What comes before the poll is part of it.
    assert!(ready.run().is_none());
    left.end.store(true, Ordering::Relaxed);
    left.take().wake();
    assert!(!handle.is_finished());
    assert!(woken(&pool).unwrap().run().is_none());
    assert!(handle.is_finished());
    assert_eq!((count.0.load(Ordering::Relaxed), left.drops()), (1, 1));
    assert!(matches!(joined(&mut handle), Some(Ok(7))));
    // Stale wakers do no harm, and the last one frees the process.
    drop(handle);
    let stale = left.take();
    let other = stale.clone();
    stale.wake();
    other.wake_by_ref();
    assert!(woken(&pool).is_none());
}

#[test]
fn a_wake_during_the_poll_is_another_poll() {
    let pool = Pool::detached();
    let mut polls = 0;
    let (ready, mut handle) = make(
        pool.clone(),
        poll_fn(move |cx| {
            polls += 1;
            cx.waker().wake_by_ref();
            if polls == 3 { Poll::Ready(polls) } else { Poll::Pending }
        }),
    );
    let again = ready.run().unwrap().run().unwrap();
    assert!(again.run().is_none());
    assert!(matches!(joined(&mut handle), Some(Ok(3))));
    assert!(woken(&pool).is_none());
}

#[test]
fn cancelled_before_and_between_polls() {
    let (pool, left) = (Pool::detached(), Left::default());
    let (ready, mut handle) = make(pool.clone(), left.process());
    handle.abort();
    assert!(ready.run().is_none());
    assert!(matches!(joined(&mut handle), Some(Err(NoOutput::Cancelled))));
    assert_eq!((left.drops(), left.wakers.lock().unwrap().len()), (1, 0));

    let (ready, mut handle) = make(pool.clone(), left.process());
    assert!(ready.run().is_none());
    handle.abort();
    handle.abort();
    assert!(woken(&pool).unwrap().run().is_none());
    assert!(matches!(joined(&mut handle), Some(Err(NoOutput::Cancelled))));
    assert_eq!((left.drops(), left.wakers.lock().unwrap().len()), (2, 1));
    handle.abort();
    assert!(woken(&pool).is_none());
}

#[test]
fn panics_are_caught() {
    struct Sore;
    impl Drop for Sore {
        fn drop(&mut self) {
            panic!("in the destructor");
        }
    }
    let pool = Pool::detached();
    let (ready, mut handle) = make(pool.clone(), async { panic!("in the poll") });
    assert!(ready.run().is_none());
    let Some(Err(NoOutput::Panicked(panic))) = joined::<()>(&mut handle) else { unreachable!() };
    assert_eq!(panic.downcast_ref(), Some(&"in the poll"));

    let sore = Sore;
    let (ready, mut handle) = make(pool.clone(), async move {
        let _sore = sore;
        pending::<()>().await;
    });
    assert!(ready.run().is_none());
    handle.abort();
    assert!(woken(&pool).unwrap().run().is_none());
    let Some(Err(NoOutput::Panicked(panic))) = joined(&mut handle) else { unreachable!() };
    assert_eq!(panic.downcast_ref(), Some(&"in the destructor"));

    // Nobody is there to hear of it.
    let (ready, handle) = make(pool, async { Sore });
    drop(handle);
    assert!(ready.run().is_none());
}

#[test]
fn outputs_are_dropped_once() {
    let (pool, drops) = (Pool::detached(), Arc::new(AtomicUsize::new(0)));
    let dropped = || drops.load(Ordering::Relaxed);
    let process = || {
        let output = Drops(drops.clone());
        async move { output }
    };
    let (ready, handle) = make(pool.clone(), process());
    drop(handle);
    assert!(ready.run().is_none());
    assert_eq!(dropped(), 1);
    let (ready, handle) = make(pool.clone(), process());
    assert!(ready.run().is_none());
    assert_eq!(dropped(), 1);
    drop(handle);
    assert_eq!(dropped(), 2);
    let (ready, mut handle) = make(pool.clone(), process());
    assert!(ready.run().is_none());
    let output = joined(&mut handle);
    drop(handle);
    assert_eq!(dropped(), 2);
    drop(output);
    assert_eq!(dropped(), 3);
}

#[test]
fn all_end_with_their_runtime() {
    let (pool, left) = (Pool::detached(), Left::default());
    let (parked, mut parked_handle) = make(pool.clone(), left.process());
    let (other, other_handle) = make(pool.clone(), left.process());
    assert!(parked.run().is_none() && other.run().is_none());
    drop(other_handle);
    let (queued, mut queued_handle) = make(pool.clone(), left.process());
    pool.inject(queued);
    pool.close();
    assert!(matches!(joined(&mut parked_handle), Some(Err(NoOutput::Cancelled))));
    assert!(matches!(joined(&mut queued_handle), Some(Err(NoOutput::Cancelled))));
    assert_eq!(left.drops(), 3);
    // One that comes too late.
    let (late, mut late_handle) = make(pool.clone(), left.process());
    pool.inject(late);
    assert!(matches!(joined(&mut late_handle), Some(Err(NoOutput::Cancelled))));
    // And one that was being polled.
    let (late, mut late_handle) = make(pool.clone(), left.process());
    assert!(late.run().unwrap().run().is_none());
    assert!(matches!(joined(&mut late_handle), Some(Err(NoOutput::Cancelled))));
}

/// A long chain, each of which ends the next when it ends.
#[test]
fn the_end_of_one_ends_the_next() {
    struct Chain(Option<Waker>);
    impl Drop for Chain {
        fn drop(&mut self) {
            if let Some(next) = self.0.take() {
                next.wake();
            }
        }
    }
    let pool = Pool::detached();
    let mut next = None;
    let mut handles = Vec::new();
    for _ in 0..if cfg!(miri) { 20 } else { 100_000 } {
        let chain = Chain(next.take());
        let shared = Arc::new(Mutex::new(None));
        let leave = shared.clone();
        let (ready, handle) = make(pool.clone(), async move {
            let _chain = chain;
            poll_fn(|cx| {
                *leave.lock().unwrap() = Some(cx.waker().clone());
                Poll::<()>::Pending
            })
            .await;
        });
        assert!(ready.run().is_none());
        next = shared.lock().unwrap().take();
        handles.push(handle);
    }
    pool.close();
    assert!(handles.iter().all(Handle::is_finished));
}

/// Threads that poll, wake, cancel and join the same processes.
#[test]
fn threads_meet() {
    const PROCESSES: usize = if cfg!(miri) { 6 } else { 2_000 };
    let pool = Pool::detached();
    let (left, done) = (Left::default(), AtomicBool::new(false));
    let mut handles: Vec<_> = (0..PROCESSES)
        .map(|n| {
            let (ready, handle) = make(pool.clone(), {
                let (left, mut polls) = (left.clone(), 0);
                let dropped = Drops(left.drops.clone());
                async move {
                    let _dropped = dropped;
                    poll_fn(|cx| {
                        polls += 1;
                        left.wakers.lock().unwrap().push(cx.waker().clone());
                        if polls > 1 + n % 3 { Poll::Ready(n) } else { Poll::Pending }
                    })
                    .await
                }
            });
            pool.inject(ready);
            handle
        })
        .collect();
    std::thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    match woken(&pool) {
                        Some(ready) => {
                            if let Some(again) = ready.run() {
                                pool.inject(again);
                            }
                        }
                        None => std::thread::yield_now(),
                    }
                }
            });
            s.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let waker = left.wakers.lock().unwrap().pop();
                    match waker {
                        Some(waker) => {
                            waker.wake_by_ref();
                            waker.wake();
                        }
                        None => std::thread::yield_now(),
                    }
                }
            });
        }
        for (n, handle) in handles.iter_mut().enumerate() {
            if n % 4 == 0 {
                handle.abort();
            }
            loop {
                match joined(handle) {
                    Some(Ok(output)) => break assert_eq!(output, n),
                    Some(Err(NoOutput::Cancelled)) => break assert_eq!(n % 4, 0),
                    Some(Err(NoOutput::Panicked(_))) => unreachable!(),
                    None => std::thread::yield_now(),
                }
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(left.drops(), PROCESSES);
}
