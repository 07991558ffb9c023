//! The pool: its bounds, its queue, refused calls, and waits for room.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use dunlin::blocking::{CallState, Limits};
use dunlin::prelude::*;
use dunlin::waits::{self, Doing, Pid};
use dunlin::{Blocking, Error};

use super::{on, poll, state_of, until_waits};

/// Blocks calls until the test opens it.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>, Arc<AtomicUsize>);

impl Gate {
    /// A call that counts itself and then blocks.
    fn call(&self) -> Blocking<()> {
        let gate = self.clone();
        blocking(move |_| gate.pass())
    }

    fn pass(&self) {
        self.1.fetch_add(1, Ordering::SeqCst);
        let mut open = self.0.0.lock().unwrap();
        while !*open {
            open = self.0.1.wait(open).unwrap();
        }
    }

    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    fn came(&self) -> usize {
        self.1.load(Ordering::SeqCst)
    }

    async fn until_came(&self, n: usize) {
        while self.came() < n {
            tokio::task::yield_now().await;
        }
    }
}

/// While 256 calls block, all processes keep running: a token circulates.
#[test]
fn with_256_calls_that_block_the_next_one_waits() {
    dunlin::block_on(async {
        let gate = Gate::default();
        let blocked: Vec<_> = (0..256).map(|_| gate.call()).collect();
        gate.until_came(256).await;
        let last = gate.call();
        until_waits(last.pid(), Doing::Thread).await;
        assert_eq!(state_of(last.pid()), Some(CallState::Queued));

        let (mut outputs, inputs): (Vec<_>, Vec<_>) = (0..256).map(|_| channel::<u64>()).unzip();
        outputs.rotate_left(1);
        let mut ring = Vec::new();
        let mut leader = None;
        for (n, (mut input, mut output)) in inputs.into_iter().zip(outputs).enumerate() {
            if n == 0 {
                leader = Some((input, output));
                continue;
            }
            ring.push(spawn(async move {
                while let Ok(token) = input.recv().await {
                    output.send(token + 1).await.unwrap();
                }
            }));
        }
        let (mut input, mut output) = leader.unwrap();
        let mut token = 0;
        for _ in 0..20 {
            output.send(token).await.unwrap();
            token = input.recv().await.unwrap();
        }
        assert_eq!(token, 20 * 255);

        assert_eq!((gate.came(), state_of(last.pid())), (256, Some(CallState::Queued)), "and still it waits");
        // The snapshot may include calls of other tests of this program.
        assert!(blocked.iter().all(|call| state_of(call.pid()) == Some(CallState::Running)));
        gate.open();
        for call in blocked {
            call.await.unwrap();
        }
        let pid = last.pid();
        last.await.unwrap();
        assert!(!waits::snapshot().iter().any(|wait| wait.who == pid));
    });
}

#[test]
fn abandoned_call_counts_against_the_bound() {
    on(1, async {
        let gate = Gate::default();
        let call = gate.call();
        gate.until_came(1).await;
        drop(call);
        let next = blocking(|_| 7);
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(state_of(next.pid()), Some(CallState::Queued));
        gate.open();
        assert_eq!(next.await.unwrap(), 7);
    });
}

/// A pool with one busy thread, and this many places.
fn with_queue<F: Future>(places: usize, f: impl FnOnce(Gate, Blocking<()>) -> F) -> F::Output {
    on(1, async {
        blocking::limit(Limits::default().threads_max(1).queue_max(places));
        let gate = Gate::default();
        let busy = gate.call();
        gate.until_came(1).await;
        f(gate, busy).await
    })
}

#[test]
fn lowered_bound_holds_for_threads_that_exist() {
    dunlin::block_on(async {
        // The pool begins with three threads.
        let gate = Gate::default();
        let first: Vec<_> = (0..3).map(|_| gate.call()).collect();
        gate.until_came(3).await;
        gate.open();
        for call in first {
            call.await.unwrap();
        }
        blocking::limit(Limits::default().threads_max(1));
        let gate = Gate::default();
        let busy = gate.call();
        gate.until_came(1).await;
        let next = blocking(|_| 7);
        assert!(matches!(next.terminate().await, Ended::NeverStarted), "one thread runs, and it is busy");
        gate.open();
        busy.await.unwrap();
        assert_eq!(blocking(|_| 8).await.unwrap(), 8);
    });
}

#[test]
fn full_queue_refuses_and_gives_the_call_back() {
    with_queue(2, async |gate, busy| {
        let queued = [blocking(|_| 1), blocking(|_| 2)];
        let (mut tx, mut rx) = channel::<u8>();
        let Err(Error::Refused(refused)) = blocking(move |_| rx.recv().wait()).await else { panic!("it is full") };
        assert!(refused.is_full());
        assert!(refused.to_string().contains("the queue (of 2) is full"), "{refused}");
        gate.open();
        busy.await.unwrap();
        // Nothing of the call was lost: its end still exists.
        let call = refused.into_call::<Result<u8, RecvError>>().expect("it returns this");
        let again = blocking::room().await.blocking(call);
        tx.send(7).await.unwrap();
        assert_eq!(again.await.unwrap(), Ok(7));
        let [first, second] = queued;
        assert_eq!((first.await.unwrap(), second.await.unwrap()), (1, 2));
    });
}

#[test]
fn refused_call_has_never_started() {
    with_queue(0, async |gate, _busy| {
        let refused = blocking(|_| 1);
        assert!(refused.is_finished());
        assert_eq!(state_of(refused.pid()), None);
        assert!(matches!(refused.terminate().await, Ended::NeverStarted));
        let Err(Error::Refused(refused)) = blocking(|_| 1).await else { panic!("it is full") };
        assert!(refused.into_call::<String>().is_none(), "it returns something else");
        gate.open();
    });
}

#[test]
fn queue_of_4096_refuses_the_next_call() {
    on(1, async {
        let gate = Gate::default();
        let busy = gate.call();
        gate.until_came(1).await;
        let count = Arc::new(AtomicUsize::new(0));
        let add = || {
            let count = count.clone();
            blocking(move |_| count.fetch_add(1, Ordering::Relaxed))
        };
        let queued: Vec<_> = (0..4096).map(|_| add()).collect();
        assert!(matches!(add().await, Err(Error::Refused(_))));
        gate.open();
        busy.await.unwrap();
        // In their order.
        for (n, call) in queued.into_iter().enumerate() {
            assert_eq!(call.await.unwrap(), n);
        }
    });
}

#[test]
fn termination_in_the_queue_makes_room() {
    with_queue(1, async |gate, _busy| {
        let queued = blocking(|_| 1);
        let mut room = blocking::room();
        assert!(poll(&mut room).is_pending());
        assert!(matches!(queued.terminate().await, Ended::NeverStarted));
        let call = room.await.blocking(|_| 2);
        gate.open();
        assert_eq!(call.await.unwrap(), 2);
    });
}

#[test]
fn room_is_given_in_turn() {
    with_queue(1, async |gate, _busy| {
        let queued = blocking(|_| 1);
        let (mut tx, mut rx) = channel();
        let tx = {
            tx.try_send(0).unwrap_err();
            tx.share()
        };
        let mut waiting = Vec::new();
        for n in 1..=3 {
            let mut tx = tx.clone();
            let process = spawn(async move {
                let place = blocking::room().await;
                tx.send(n).await.unwrap();
                place.blocking(move |_| n).await.unwrap()
            });
            until_waits(process.pid().into(), Doing::Room).await;
            waiting.push(process);
        }
        let line = waits::snapshot().into_iter().find(|wait| wait.doing == Doing::Room).unwrap();
        assert!(line.to_string().contains("for room for a blocking call"), "{line}");
        drop(queued);
        assert_eq!(rx.recv().await, Ok(1));
        gate.open();
        assert_eq!((rx.recv().await, rx.recv().await), (Ok(2), Ok(3)));
        for (n, process) in waiting.into_iter().enumerate() {
            assert_eq!(process.await.unwrap(), n + 1);
        }
    });
}

#[test]
fn room_that_is_dropped_is_passed_on() {
    with_queue(1, async |gate, _busy| {
        let queued = blocking(|_| 1);
        let (mut first, mut second) = (blocking::room(), blocking::room());
        assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
        drop(queued);
        drop(first); // it was woken, and not polled again
        let place = second.await;
        let mut third = blocking::room();
        assert!(poll(&mut third).is_pending(), "the place is kept");
        assert!(matches!(blocking(|_| 1).await, Err(Error::Refused(_))));
        drop(place);
        drop(third.await);
        gate.open();
    });
}

/// A process that waits for room: the pool wakes it, not a poll of the test.
async fn waits_for_room() -> Process<()> {
    let process = spawn(async { drop(blocking::room().await) });
    until_waits(process.pid().into(), Doing::Room).await;
    process
}

#[test]
fn process_that_waits_for_room_is_woken_by_each_way_to_it() {
    with_queue(1, async |gate, _busy| {
        // A call leaves the queue.
        let queued = blocking(|_| 1);
        let waiting = waits_for_room().await;
        drop(queued);
        waiting.await.unwrap();
        // A place is returned unused.
        let place = blocking::room().await;
        let waiting = waits_for_room().await;
        drop(place);
        waiting.await.unwrap();
        // The first waiter has been woken, and is dropped.
        let place = blocking::room().await;
        let mut first = blocking::room();
        assert!(poll(&mut first).is_pending());
        let waiting = waits_for_room().await;
        drop(place);
        drop(first);
        waiting.await.unwrap();
        // The bound rises.
        let place = blocking::room().await;
        let waiting = waits_for_room().await;
        blocking::limit(Limits::default().threads_max(1).queue_max(2));
        waiting.await.unwrap();
        drop(place);
        // A call begins.
        let queued = [blocking(|_| 1), blocking::room().await.blocking(|_| 2)];
        let waiting = waits_for_room().await;
        gate.open();
        waiting.await.unwrap();
        for call in queued {
            call.await.unwrap();
        }
    });
}

#[test]
fn room_is_a_branch() {
    with_queue(1, async |gate, _busy| {
        let queued = blocking(|_| 1);
        let (mut tx, mut rx) = channel_with(fifo(1));
        tx.send(7).await.unwrap();
        let mut room = blocking::room();
        alt! { biased;
            place = &mut room => panic!("{place:?}"),
            n = rx.recv() => assert_eq!(n, Ok(7)),
        }
        assert!(!waits::snapshot().iter().any(|wait| wait.who == Pid::current() && wait.doing == Doing::Room));
        drop(queued);
        alt! {
            place = &mut room => drop(place),
            n = rx.recv() => panic!("{n:?}"),
        }
        gate.open();
    });
}

#[test]
fn room_of_a_runtime_that_has_ended_takes_calls_that_are_cancelled() {
    let [mut room] = on(1, async { [blocking::room()] });
    let std::task::Poll::Ready(place) = poll(&mut room) else { panic!("it waits for nothing") };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let _entered = runtime.enter();
    let Err(Error::Exit(exit)) = super::block(place.blocking(|_| 1)) else { panic!("it never ran") };
    assert_eq!(exit.reason, dunlin::ExitReason::Cancelled);
}

#[test]
fn bound_that_is_raised_starts_threads() {
    with_queue(8, async |gate, _busy| {
        let second = gate.call();
        until_waits(second.pid(), Doing::Thread).await;
        blocking::limit(Limits::default().threads_max(4));
        gate.until_came(2).await;
        let third = gate.call();
        gate.until_came(3).await;
        gate.open();
        second.await.unwrap();
        third.await.unwrap();
    });
}
