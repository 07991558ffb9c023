//! Blocking calls: where they run, how they end, and the outcome of one that was asked to stop. The tests
//! wait for events: a call reports its progress over a channel.

#[cfg(target_os = "linux")]
mod children;
#[cfg(unix)]
mod descriptors;
mod outcomes;
mod pool;
#[cfg(target_os = "linux")]
#[path = "../support/runs.rs"]
mod runs;
#[cfg(target_os = "linux")]
mod signals;

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::thread;

use dunlin::blocking::{CallState, Limits, Stop, calls};
use dunlin::prelude::*;
use dunlin::waits::{self, Doing, Pid};
use dunlin::{Blocking, Error, ExitReason};

/// Runs on one worker, with at most as many threads for blocking calls.
fn on<F: Future>(threads: usize, future: F) -> F::Output {
    dunlin::__rt::block_on_workers(Some(1), async {
        blocking::limit(Limits::default().threads_max(threads));
        future.await
    })
}

/// A call that reports its start and then waits for a message: the call, and the ends.
fn held<R: Send + 'static>(
    then: impl FnOnce(&Stop, u8) -> R + Send + 'static,
) -> (Blocking<R>, Receiver<()>, Sender<u8>) {
    let ((mut began, has_begun), (word, mut hear)) = (channel(), channel());
    let call = blocking(move |stop| {
        began.send(()).wait().unwrap();
        let word = hear.recv().wait().unwrap();
        then(stop, word)
    });
    (call, has_begun, word)
}

/// Waits until `pid` waits for this.
async fn until_waits(pid: Pid, doing: Doing) {
    while !waits::snapshot().iter().any(|wait| wait.who == pid && wait.doing == doing) {
        tokio::task::yield_now().await;
    }
}

fn state_of(pid: Pid) -> Option<CallState> {
    calls().into_iter().find(|call| call.pid == pid).map(|call| call.state)
}

fn poll<F: Future + Unpin>(future: &mut F) -> std::task::Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn call_returns_result_of_its_closure() {
    on(1, async {
        assert_eq!(blocking(|_| 6 * 7).await.unwrap(), 42);
        let rates: Result<String> = async { Ok(blocking(|_| std::fs::read_to_string("no such file")).await??) }.await;
        assert!(matches!(rates, Err(Error::Io(_))));
    });
}

#[test]
fn a_call_holds_up_no_process() {
    on(1, async {
        let here = thread::current().id();
        let (call, mut has_begun, mut word) = held(|_, word| (thread::current().id(), word));
        has_begun.recv().await.unwrap();
        // The only thread of this runtime keeps running while the call blocks its own.
        let (mut tx, mut rx) = channel();
        let process = spawn(async move { rx.recv().await });
        tx.send(1).await.unwrap();
        assert_eq!(process.await.unwrap(), Ok(1));
        assert!(!call.is_finished());
        word.send(7).await.unwrap();
        let (there, word) = call.await.unwrap();
        assert!(there != here && word == 7);
    });
}

#[test]
fn a_call_starts_without_being_awaited() {
    on(1, async {
        let (_call, mut has_begun, _word) = held(ignore);
        has_begun.recv().await.unwrap();
    });
}

fn ignore(_: &Stop, _: u8) {}

#[test]
fn a_full_pool_starts_a_call_when_a_thread_is_free() {
    on(1, async {
        let (first, mut first_began, mut go) = held(ignore);
        first_began.recv().await.unwrap();
        let (second, mut second_began, mut go2) = held(ignore);
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        let known = |pid| waits::processes().iter().any(|known| known.first == pid);
        assert!(second_began.try_recv().is_err(), "there is one thread");
        assert!(known(second.pid()), "a queued call is a process");
        go.send(1).await.unwrap();
        first.await.unwrap();
        second_began.recv().await.unwrap();
        go2.send(1).await.unwrap();
        let pid = second.pid();
        second.await.unwrap();
        assert!(!known(pid));
    });
}

#[test]
fn a_call_is_a_branch_of_a_choice() {
    on(1, async {
        let (mut call, mut has_begun, mut word) = held(|_, word| word);
        has_begun.recv().await.unwrap();
        let (mut tx, mut rx) = channel_with(fifo(1));
        tx.send(1).await.unwrap();
        let (mut values, mut loaded) = (vec![], None);
        for round in 0..2 {
            alt! { biased;
                value = rx.recv() => values.push(value.unwrap()),
                n = &mut call, if loaded.is_none() => loaded = Some(n.unwrap()),
            }
            if round == 0 {
                word.send(7).await.unwrap();
            }
        }
        assert_eq!((values, loaded), (vec![1], Some(7)), "not chosen, it has lost nothing");
        let mut call = blocking(|_| 8);
        let (index, n) = Choice::fair().on(&mut call, |n| n.unwrap()).await;
        assert_eq!((index, n), (0, 8));
    });
}

#[test]
fn a_panic_is_an_error_with_its_text() {
    on(1, async {
        let call = blocking(|_| -> u8 { panic!("out of {}", "krill") });
        let pid = call.pid();
        let Err(Error::Exit(exit)) = call.await else { panic!("it panicked") };
        assert_eq!((Pid::from(exit.pid), exit.reason), (pid, ExitReason::Panicked("out of krill".into())));
        assert_eq!(blocking(|_| 1).await.unwrap(), 1, "the thread continues");
    });
}

#[test]
fn call_terminated_in_the_queue_never_starts() {
    on(1, async {
        let (first, mut has_begun, mut word) = held(ignore);
        has_begun.recv().await.unwrap();
        let (mut tx, rx) = channel::<u8>();
        let runs = Arc::new(AtomicUsize::new(0));
        let count = runs.clone();
        let queued = blocking(move |_| {
            drop(rx);
            count.fetch_add(1, Ordering::Relaxed)
        });
        assert!(matches!(queued.terminate().await, Ended::NeverStarted));
        assert!(tx.send(1).await.unwrap_err().is_closed(), "what it held is dropped at once");
        word.send(1).await.unwrap();
        first.await.unwrap();
        blocking(|_| ()).await.unwrap();
        assert_eq!(runs.load(Ordering::Relaxed), 0, "nor later");
    });
}

#[test]
fn terminated_call_ends_when_it_polls_for_requests() {
    on(1, async {
        let (mut began, mut has_begun) = channel();
        let call = blocking(move |stop| {
            began.send(()).wait().unwrap();
            while !stop.asked() {
                thread::yield_now();
            }
            assert!(stop.asked(), "it stays so");
            7
        });
        has_begun.recv().await.unwrap();
        assert!(matches!(call.terminate().await, Ended::Terminated(7)));
    });
}

#[test]
fn terminated_call_ends_while_it_waits_for_a_request() {
    on(1, async {
        let (mut began, mut has_begun) = channel();
        let call = blocking(move |stop| {
            assert!(!stop.requested().within(Duration::ZERO).wait(), "no request yet");
            began.send(()).wait().unwrap();
            stop.requested().wait()
        });
        let pid = call.pid();
        has_begun.recv().await.unwrap();
        until_waits(pid, Doing::Stop).await;
        assert!(matches!(call.terminate().await, Ended::Terminated(true)));
    });
}

#[test]
fn threads_of_a_call_may_all_wait() {
    on(1, async {
        let call = blocking(|stop| {
            thread::scope(|threads| {
                for _ in 0..3 {
                    threads.spawn(|| assert!(stop.requested().wait()));
                }
            });
        });
        // They are no processes, so their lines show the place in this file that made them wait.
        let waiting = || {
            let all = waits::snapshot();
            all.iter().filter(|wait| wait.doing == Doing::Stop && wait.who == Pid::OUTSIDE).count()
        };
        while waiting() < 3 {
            tokio::task::yield_now().await;
        }
        assert!(matches!(call.terminate().await, Ended::Terminated(())));
    });
}

#[test]
fn call_may_choose_between_a_receive_and_its_stop_request() {
    on(1, async {
        let (mut tx, mut rx) = channel::<u8>();
        let call = blocking(move |stop| {
            blocking::wait(async {
                let mut got = 0;
                loop {
                    alt! { n = rx.recv() => got += n.unwrap(), _ = stop.requested() => return got }
                }
            })
        });
        tx.send(3).await.unwrap();
        tx.send(4).await.unwrap();
        assert!(matches!(call.terminate().await, Ended::Terminated(7)), "what it has received is not lost");
        assert!(tx.send(5).await.is_err());
    });
}

#[test]
fn call_that_returns_in_time_has_just_finished() {
    on(1, async {
        let (call, mut has_begun, mut word) = held(|_, word| word);
        has_begun.recv().await.unwrap();
        let mut ending = call.terminate();
        assert!(poll(&mut ending).is_pending(), "asked, and it does not look");
        word.send(7).await.unwrap();
        assert!(matches!(ending.await, Ended::JustFinished(7)));
    });
}

#[test]
fn terminate_of_finished_call_returns_its_value() {
    on(1, async {
        let call = blocking(|_| 7);
        while !call.is_finished() {
            tokio::task::yield_now().await;
        }
        assert!(matches!(call.terminate().await, Ended::AlreadyFinished(7)));

        let call = blocking(|stop| stop.finishing().then_some(7));
        while !call.is_finished() {
            tokio::task::yield_now().await;
        }
        assert!(matches!(call.terminate().await, Ended::AlreadyFinished(Some(7))));
    });
}

#[test]
fn finishing_call_cannot_be_stopped() {
    on(1, async {
        let ((mut began, mut has_begun), (mut word, mut hear)) = (channel(), channel());
        let call = blocking(move |stop| {
            assert!(stop.finishing() && stop.finishing());
            began.send(()).wait().unwrap();
            let word = hear.recv().wait().unwrap();
            (stop.asked(), word)
        });
        has_begun.recv().await.unwrap();
        let Ended::Finishing(call) = call.terminate().await else { panic!("it is finishing") };
        let Ended::Finishing(call) = call.terminate().await else { panic!("twice is harmless") };
        word.send(7).await.unwrap();
        assert_eq!(call.await.unwrap(), (false, 7), "asked too late is not asked");
    });
}

#[test]
fn finishing_fails_after_a_stop_request() {
    on(1, async {
        let (call, mut has_begun, mut word) = held(|stop, _| assert!(!stop.finishing()));
        has_begun.recv().await.unwrap();
        let mut ending = call.terminate();
        assert!(poll(&mut ending).is_pending());
        word.send(1).await.unwrap();
        assert!(matches!(ending.await, Ended::Terminated(())));
    });
}

#[test]
fn termination_returns_a_running_call_at_its_deadline() {
    on(1, async {
        let (call, mut has_begun, mut word) = held(|_, word| word);
        has_begun.recv().await.unwrap();
        let ended = call.terminate().within(Duration::ZERO).await;
        let Ended::Abandoned(call) = ended else { panic!("{ended:?}") };
        assert_eq!(state_of(call.pid()), Some(CallState::Abandoned));
        // The request stands, so another termination only waits.
        let mut ending = call.terminate();
        assert!(poll(&mut ending).is_pending());
        word.send(7).await.unwrap();
        assert!(matches!(ending.await, Ended::JustFinished(7)));
    });
}

#[test]
fn call_that_panics_during_termination_has_panicked() {
    on(1, async {
        let (call, mut has_begun, mut word) = held(|_, _| -> u8 { panic!("late") });
        has_begun.recv().await.unwrap();
        let mut ending = call.terminate();
        assert!(poll(&mut ending).is_pending());
        word.send(1).await.unwrap();
        let Ended::Panicked(exit) = ending.await else { panic!("it did not return") };
        assert!(exit.to_string().contains("panicked: late"), "{exit}");
    });
}

/// This use of the handle asks the call to stop, and abandons it.
fn asks_and_abandons(let_go: impl FnOnce(Blocking<Result<(), SendError<bool>>>)) {
    on(1, async {
        let ((mut began, mut has_begun), (mut tell, mut told)) = (channel(), channel());
        let call = blocking(move |stop| {
            began.send(()).wait().unwrap();
            tell.send(stop.requested().wait()).wait()
        });
        has_begun.recv().await.unwrap();
        let_go(call);
        assert_eq!(told.recv().await, Ok(true));
    });
}

#[test]
fn a_dropped_handle_asks_and_abandons() {
    asks_and_abandons(drop);
}

#[test]
fn a_dropped_termination_has_asked_and_abandons() {
    asks_and_abandons(|call| drop(call.terminate()));
}

#[test]
fn a_queued_call_whose_handle_is_dropped_never_starts() {
    on(1, async {
        let (first, mut has_begun, mut word) = held(ignore);
        has_begun.recv().await.unwrap();
        let (mut tx, rx) = channel::<u8>();
        let queued = blocking(move |_| rx);
        let pid = queued.pid();
        drop(queued);
        assert!(tx.send(1).await.unwrap_err().is_closed());
        assert!(!waits::processes().iter().any(|known| known.first == pid));
        word.send(1).await.unwrap();
        first.await.unwrap();
    });
}

#[test]
fn a_cancelled_process_stops_its_call() {
    on(1, async {
        let ((mut began, mut has_begun), (mut tell, mut told)) = (channel(), channel());
        let process = spawn(async move {
            let call = blocking(move |stop| {
                began.send(()).wait().unwrap();
                tell.send(stop.requested().wait()).wait()
            });
            call.await
        });
        has_begun.recv().await.unwrap();
        process.cancel();
        assert_eq!(told.recv().await, Ok(true));
    });
}

#[test]
fn a_runtime_that_has_ended_starts_nothing() {
    /// Its drop starts calls, together with the process that holds it.
    struct Late(std::sync::mpsc::Sender<[Blocking<u8>; 2]>);
    impl Drop for Late {
        fn drop(&mut self) {
            let _ = self.0.send([blocking(|_| 7), blocking(|_| 8)]);
        }
    }
    let (tell, told) = std::sync::mpsc::channel();
    on(1, async {
        let (mut began, mut has_begun) = channel();
        drop(spawn(async move {
            let _late = Late(tell);
            began.send(()).await.unwrap();
            std::future::pending::<()>().await;
        }));
        has_begun.recv().await.unwrap();
    });
    let [awaited, terminated] = told.recv().unwrap();
    let Err(Error::Exit(exit)) = block(awaited) else { panic!("it never ran") };
    assert_eq!(exit.reason, ExitReason::Cancelled);
    assert!(matches!(block(terminated.terminate()), Ended::NeverStarted));
}

#[test]
fn queued_calls_of_a_runtime_that_ends_are_cancelled() {
    let (mut tx, rx) = channel::<u8>();
    let [queued] = on(1, async {
        let (mut began, mut has_begun) = channel();
        drop(spawn(async move {
            let running = blocking(move |stop| {
                began.send(()).wait().unwrap();
                stop.requested().wait()
            });
            running.await
        }));
        has_begun.recv().await.unwrap();
        [blocking(move |_| rx)]
    });
    let Err(Error::Exit(exit)) = block(queued) else { panic!("it never ran") };
    assert_eq!(exit.reason, ExitReason::Cancelled);
    assert!(block(tx.send(1)).is_err(), "what it held is dropped");
}

#[test]
fn other_runtimes_share_a_pool_of_the_program() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (call, mut word) = runtime.block_on(async {
        let (call, mut has_begun, word) = held(|_, word| word);
        has_begun.recv().await.unwrap();
        (call, word)
    });
    runtime.shutdown_background();
    // The call outlives the runtime under which it started.
    block(word.send(7)).unwrap();
    assert_eq!(block(call).unwrap(), 7);
}

/// Awaits on a thread without a runtime.
fn block<F: Future>(future: F) -> F::Output {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(thread::current())).into();
    let mut future = Box::pin(future);
    loop {
        if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park();
    }
}

#[test]
fn blocking_outside_a_runtime_panics() {
    let refused = catch_unwind(AssertUnwindSafe(|| drop(blocking(|_| ()))));
    assert!(refused.is_err());
}

/// A termination at any moment of a call's life has exactly one outcome, and it is the true one.
#[test]
fn terminations_race_with_returns() {
    on(2, async {
        let mut seen = [0; 5];
        for round in 0..500 {
            let looked = Arc::new(AtomicUsize::new(0));
            let see = looked.clone();
            let call = blocking(move |stop| {
                for look in 0..round % 7 {
                    if stop.asked() {
                        see.store(1 + look, Ordering::Relaxed);
                        break;
                    }
                }
                round
            });
            for _ in 0..round % 13 {
                tokio::task::yield_now().await;
            }
            let which = match call.terminate().await {
                Ended::NeverStarted => 0,
                Ended::Terminated(_) => {
                    assert_ne!(looked.load(Ordering::Relaxed), 0);
                    1
                }
                Ended::JustFinished(value) => {
                    assert_eq!((value, looked.load(Ordering::Relaxed)), (round, 0));
                    2
                }
                Ended::AlreadyFinished(value) => {
                    assert_eq!((value, looked.load(Ordering::Relaxed)), (round, 0));
                    3
                }
                ended => panic!("{ended:?}"),
            };
            seen[which] += 1;
        }
        assert_eq!(seen.iter().sum::<i32>(), 500);
    });
}
