//! How dev builds poll a process: as its runtime polls it, and counting foreign wakers that could wake it.
//! There is one test, because the counts are global to the program.
#![cfg(all(debug_assertions, target_pointer_width = "64"))]

use std::future::Future;
use std::panic::Location;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use dunlin_core::__rt::Alone;
use dunlin_core::waits::activity::{current, keeping};
use dunlin_core::waits::{Identities, Pid};
use dunlin_core::{channel, par};

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Woken {
    fn take(&self) -> usize {
        self.0.swap(0, Ordering::Relaxed)
    }
}

fn foreign() -> usize {
    current().unwrap().foreign
}

#[test]
fn processes_and_foreign_wakers_are_counted() {
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let mut cx = Context::from_waker(&waker);
    let before = current().unwrap();

    // A wait on a channel: its waker is the core's, also in a `par!`, and is not counted.
    let identities = Identities::new(1, Location::caller());
    let first = identities.first();
    let (mut tx, mut rx) = channel::<u8>();
    {
        let mut process = pin!(Alone::new(async {
            assert_eq!(Pid::current(), first);
            let value = rx.recv().await.unwrap();
            let (again,) = par!(rx.recv());
            (value, again.unwrap())
        }));
        assert!(identities.run(|| process.as_mut().poll(&mut cx)).is_pending());
        let now = current().unwrap();
        assert_eq!((now.begun - before.begun, now.ended - before.ended), (1, 1));
        assert_eq!((now.processes - before.processes, now.foreign), (1, before.foreign));
        for (value, polled) in [(1, Poll::Pending), (2, Poll::Ready((1, 2)))] {
            let mut send = pin!(tx.send(value));
            assert!(send.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            assert!(woken.take() > 0, "the send wakes the process");
            assert_eq!(identities.run(|| process.as_mut().poll(&mut cx)), polled);
            assert_eq!(foreign(), before.foreign);
            assert!(send.poll(&mut cx).is_ready());
            woken.take();
        }
    }
    assert_eq!(current().unwrap().processes, before.processes);

    // Code outside the core keeps wakers: each counts until it wakes or is dropped.
    let mut kept = Vec::new();
    let mut branch = None;
    let mut process = Box::pin(Alone::outside(async {
        std::future::poll_fn(|cx| {
            kept.push(cx.waker().clone());
            kept.push(kept[0].clone());
            kept.push(keeping(|| cx.waker().clone()));
            Poll::Ready(())
        })
        .await;
        par!(std::future::poll_fn(|cx| {
            branch = Some(cx.waker().clone());
            Poll::<()>::Pending
        }));
    }));
    assert!(process.as_mut().poll(&mut cx).is_pending());
    assert_eq!(foreign() - before.foreign, 3);
    assert_eq!(woken.take(), 0);
    drop(process);
    kept.remove(0).wake();
    branch.take().unwrap().wake();
    assert_eq!(foreign() - before.foreign, 1);
    kept[0].wake_by_ref();
    drop(kept);
    assert_eq!(foreign(), before.foreign);
    woken.take();

    // Woken while it is polled, it is polled again by its runtime, once for each time.
    let mut polls = 0;
    let mut process = pin!(Alone::outside(std::future::poll_fn(|cx| {
        polls += 1;
        cx.waker().wake_by_ref();
        if polls == 3 { Poll::Ready(()) } else { Poll::Pending }
    })));
    for _ in 0..2 {
        assert!(process.as_mut().poll(&mut cx).is_pending());
        assert_eq!(woken.take(), 1);
    }
    assert!(process.as_mut().poll(&mut cx).is_ready());
}
