//! Each outcome of a termination, forced by barriers ten thousand times; and the clean-up after a call that
//! was cut.

use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Context, Waker};

use dunlin::Blocking;
use dunlin::blocking::{CallState, Stop};
use dunlin::prelude::*;

use super::{on, poll, state_of};

const TIMES: usize = 10_000;

/// Synchronises two threads at a place that both know.
fn meet(barrier: &Barrier) {
    barrier.wait();
}

/// A call that meets its test twice, and runs `before` ahead of the first meeting and `then` after the
/// second.
fn held<R: Send + 'static>(
    before: impl FnOnce(&Stop) + Send + 'static,
    then: impl FnOnce(&Stop) -> R + Send + 'static,
) -> (Blocking<R>, Arc<Barrier>) {
    let barrier = Arc::new(Barrier::new(2));
    let here = barrier.clone();
    let call = blocking(move |stop| {
        before(stop);
        meet(&here);
        meet(&here);
        then(stop)
    });
    (call, barrier)
}

#[test]
fn already_finished() {
    on(2, async {
        for n in 0..TIMES {
            let call = blocking(move |_| n);
            while !call.is_finished() {
                tokio::task::yield_now().await;
            }
            let ended = call.terminate().await;
            assert!(matches!(ended, Ended::AlreadyFinished(m) if m == n), "{ended:?}");
        }
    });
}

#[test]
fn terminated() {
    on(2, async {
        for n in 0..TIMES {
            let (call, barrier) = held(|_| {}, move |stop| stop.asked().then_some(n));
            meet(&barrier);
            let mut ending = call.terminate();
            assert!(poll(&mut ending).is_pending(), "asked");
            meet(&barrier);
            let ended = ending.await;
            assert!(matches!(ended, Ended::Terminated(Some(m)) if m == n), "{ended:?}");
        }
    });
}

#[test]
fn just_finished() {
    on(2, async {
        for n in 0..TIMES {
            let (call, barrier) = held(|stop| assert!(!stop.asked()), move |_| n);
            meet(&barrier);
            let mut ending = call.terminate();
            assert!(poll(&mut ending).is_pending(), "asked");
            meet(&barrier);
            let ended = ending.await;
            assert!(matches!(ended, Ended::JustFinished(m) if m == n), "{ended:?}");
        }
    });
}

#[test]
fn finishing() {
    on(2, async {
        for n in 0..TIMES {
            let (call, barrier) = held(|stop| assert!(stop.finishing()), move |stop| (n, stop.asked()));
            meet(&barrier);
            let ended = call.terminate().await;
            let Ended::Finishing(call) = ended else { panic!("{ended:?}") };
            assert_eq!(state_of(call.pid()), Some(CallState::Finishing));
            meet(&barrier);
            assert_eq!(call.await.unwrap(), (n, false));
        }
    });
}

#[test]
fn never_started() {
    let runs = Arc::new(AtomicUsize::new(0));
    on(1, async {
        for _ in 0..TIMES {
            let (busy, barrier) = held(|_| {}, |_| {});
            meet(&barrier);
            let count = runs.clone();
            let queued = blocking(move |_| count.fetch_add(1, Ordering::Relaxed));
            assert_eq!(state_of(queued.pid()), Some(CallState::Queued));
            let ended = queued.terminate().await;
            assert!(matches!(ended, Ended::NeverStarted), "{ended:?}");
            meet(&barrier);
            busy.await.unwrap();
        }
    });
    assert_eq!(runs.load(Ordering::Relaxed), 0);
}

#[test]
fn abandoned() {
    on(2, async {
        for n in 0..TIMES {
            let (call, barrier) = held(|_| {}, move |_| n);
            meet(&barrier);
            let ended = call.terminate().within(Duration::ZERO).await;
            let Ended::Abandoned(call) = ended else { panic!("{ended:?}") };
            assert_eq!(state_of(call.pid()), Some(CallState::Abandoned), "it is listed");
            meet(&barrier);
            assert_eq!(call.await.unwrap(), n);
        }
    });
}

#[test]
fn panicked() {
    on(2, async {
        for n in 0..TIMES {
            // No hook prints this panic.
            let (call, barrier) = held(|_| {}, move |_| -> u8 { resume_unwind(Box::new(format!("late {n}"))) });
            let pid = call.pid();
            meet(&barrier);
            let mut ending = call.terminate();
            assert!(poll(&mut ending).is_pending(), "asked");
            meet(&barrier);
            let Ended::Panicked(exit) = ending.await else { panic!("it did not return") };
            assert_eq!(
                (dunlin::waits::Pid::from(exit.pid), exit.reason),
                (pid, dunlin::ExitReason::Panicked(format!("late {n}")))
            );
        }
    });
}

/// A call that panicked before the request reports that, too.
#[test]
fn panicked_before_it_was_asked() {
    on(1, async {
        let call = blocking(|_| -> u8 { resume_unwind(Box::new("early")) });
        while !call.is_finished() {
            tokio::task::yield_now().await;
        }
        assert!(matches!(call.terminate().await, Ended::Panicked(_)));
    });
}

#[test]
fn termination_is_a_branch() {
    on(1, async {
        let (call, barrier) = held(|_| {}, |_| 7);
        meet(&barrier);
        let (mut tx, mut rx) = channel_with(fifo(1));
        tx.send(1).await.unwrap();
        let mut ending = call.terminate();
        alt! { biased;
            ended = &mut ending => panic!("{ended:?}"),
            n = rx.recv() => assert_eq!(n, Ok(1)),
        }
        meet(&barrier);
        // The poll requested the stop; the lost choice has cost nothing.
        alt! {
            ended = &mut ending => assert!(matches!(ended, Ended::JustFinished(7)), "{ended:?}"),
            n = rx.recv() => panic!("{n:?}"),
        }
    });
}

#[test]
fn outcome_is_preferred_to_a_deadline_that_has_passed() {
    on(1, async {
        let call = blocking(|_| 7);
        while !call.is_finished() {
            tokio::task::yield_now().await;
        }
        let ended = call.terminate().within(Duration::ZERO).await;
        assert!(matches!(ended, Ended::AlreadyFinished(7)), "{ended:?}");
    });
}

/// The notes of a call, in order.
type Notes = Arc<Mutex<Vec<&'static str>>>;

fn note(notes: &Notes, what: &'static str) {
    notes.lock().unwrap().push(what);
}

#[test]
fn clean_ups_run_once_in_reverse_before_the_outcome_is_known() {
    on(2, async {
        for _ in 0..TIMES {
            let notes = Notes::default();
            let (inside, outside) = (notes.clone(), notes.clone());
            let (call, barrier) = held(
                move |stop| {
                    for what in ["second", "first"] {
                        let notes = inside.clone();
                        stop.on_cut(what, move |what| note(&notes, what));
                    }
                },
                move |stop| {
                    assert!(stop.asked());
                    note(&outside, "returned");
                },
            );
            meet(&barrier);
            let mut ending = call.terminate();
            assert!(poll(&mut ending).is_pending());
            meet(&barrier);
            let ended = ending.await;
            assert!(matches!(ended, Ended::Terminated(())), "{ended:?}");
            assert_eq!(*notes.lock().unwrap(), ["returned", "first", "second"]);
        }
    });
}

/// Its drop adds a note.
struct Held(Notes);

impl Drop for Held {
    fn drop(&mut self) {
        note(&self.0, "dropped");
    }
}

#[test]
fn clean_ups_of_a_call_that_was_not_cut_are_dropped() {
    on(1, async {
        let notes = Notes::default();
        let held_by_it = Held(notes.clone());
        let (call, barrier) = held(move |stop| stop.on_cut(held_by_it, |held| note(&held.0, "cut")), |_| 7);
        meet(&barrier);
        let mut ending = call.terminate();
        assert!(poll(&mut ending).is_pending(), "asked, and it does not look");
        meet(&barrier);
        assert!(matches!(ending.await, Ended::JustFinished(7)));
        assert_eq!(*notes.lock().unwrap(), ["dropped"]);
    });
}

#[test]
fn clean_up_of_a_call_that_is_cut_and_panics_runs() {
    on(1, async {
        let notes = Notes::default();
        let inside = notes.clone();
        let (call, barrier) = held(
            move |stop| stop.on_cut((), move |()| note(&inside, "cut")),
            |stop| -> u8 {
                assert!(stop.asked());
                resume_unwind(Box::new("late"))
            },
        );
        meet(&barrier);
        let mut ending = call.terminate();
        assert!(poll(&mut ending).is_pending());
        meet(&barrier);
        assert!(matches!(ending.await, Ended::Panicked(_)));
        assert_eq!(*notes.lock().unwrap(), ["cut"]);
    });
}

#[test]
fn panic_in_clean_up_is_reported_and_other_clean_ups_run() {
    on(1, async {
        let notes = Notes::default();
        let inside = notes.clone();
        let (call, barrier) = held(
            move |stop| {
                stop.on_cut((), move |()| note(&inside, "cut"));
                stop.on_cut((), |()| resume_unwind(Box::new("not clean")));
            },
            |stop| stop.asked(),
        );
        meet(&barrier);
        let mut ending = call.terminate();
        assert!(poll(&mut ending).is_pending());
        meet(&barrier);
        let Ended::Panicked(exit) = ending.await else { panic!("its clean-up panicked") };
        assert!(exit.to_string().contains("not clean"), "{exit}");
        assert_eq!(*notes.lock().unwrap(), ["cut"]);
        assert_eq!(blocking(|_| 1).await.unwrap(), 1, "the thread continues");
    });
}

/// The drop of a handle requests a stop: a call that heeds it was cut, too.
#[test]
fn clean_up_runs_after_a_dropped_handle() {
    on(1, async {
        let ((mut began, mut has_begun), (mut tell, mut told)) = (channel(), channel());
        let call = blocking(move |stop| {
            stop.on_cut((), move |()| tell.send("cut").wait().unwrap());
            began.send(()).wait().unwrap();
            stop.requested().wait()
        });
        has_begun.recv().await.unwrap();
        drop(call);
        assert_eq!(told.recv().await, Ok("cut"));
    });
}

/// The value of a call without a handle is dropped on the call's thread, and may panic there.
#[test]
fn thread_survives_panic_in_drop_of_abandoned_return_value() {
    struct Bad;
    impl Drop for Bad {
        fn drop(&mut self) {
            resume_unwind(Box::new("bad"));
        }
    }
    on(1, async {
        let (call, barrier) = held(|_| {}, |_| Bad);
        meet(&barrier);
        drop(call);
        meet(&barrier);
        assert_eq!(blocking(|_| 1).await.unwrap(), 1, "the thread continues");
    });
}

#[test]
fn taken_outcome_cannot_be_awaited_again() {
    on(1, async {
        let mut call = blocking(|_| 7);
        assert_eq!((&mut call).await.unwrap(), 7);
        let again = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _ = Pin::new(&mut call).poll(&mut Context::from_waker(Waker::noop()));
        }));
        assert!(again.is_err());
    });
}

#[test]
fn handle_that_its_deadline_drops_asks_the_call_to_stop() {
    on(2, async {
        let (mut tx, mut rx) = channel();
        let call = blocking(move |stop| {
            let asked = stop.requested().wait();
            tx.send(asked).wait().unwrap();
        });
        let late = call.within(Duration::from_millis(1)).await.unwrap_err();
        assert!(matches!(late, Error::CallTimedOut) && late.is_timed_out(), "{late}");
        assert_eq!(rx.recv().await, Ok(true));
    });
}

#[test]
fn borrowed_handle_keeps_the_call_after_the_deadline() {
    on(2, async {
        let (mut call, barrier) = held(|_| {}, |stop| stop.asked());
        meet(&barrier);
        let late = (&mut call).within(Duration::from_millis(1)).await;
        assert!(matches!(late, Err(Error::CallTimedOut)), "{late:?}");
        let waits = || dunlin::waits::snapshot().iter().any(|wait| wait.on == Some(call.pid()));
        assert!(!waits(), "its line in the wait records has ended");
        meet(&barrier);
        assert!(!(&mut call).within(Duration::from_secs(300)).await.unwrap(), "it was not asked to stop");
    });
}
