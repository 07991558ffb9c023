//! Every wait is visible, beyond channels (those are laws): the process, the operation, the time, and the
//! removal of the record afterwards, however the wait ended.
//!
//! All on one thread, so a spawned process has been polled once the test has yielded.

use std::future::{Future, pending};
use std::pin::{Pin, pin};
use std::task::{Context, Waker};

use dunlin::prelude::*;
use dunlin::waits::{self, Doing, Pid, Wait};
use dunlin::{Overflow, rendezvous};
use futures_core::Stream;

const LONG: Duration = Duration::from_secs(3600);

/// The waits of `who`.
fn lines(who: impl Into<Pid>) -> Vec<Wait> {
    let who = who.into();
    waits::snapshot().into_iter().filter(|wait| wait.who == who).collect()
}

fn doing(who: impl Into<Pid>) -> Vec<Doing> {
    lines(who).into_iter().map(|wait| wait.doing).collect()
}

/// Lets all other tasks run until they wait.
async fn settle() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

/// Starts a process that waits, and returns its only wait.
async fn waiting<F>(body: F) -> (Process<F::Output>, Wait)
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    let before = waits::tick();
    let process = spawn(body);
    settle().await;
    let found = lines(process.pid());
    assert_eq!(found.len(), 1, "{found:?}");
    let wait = found[0].clone();
    let since = wait.since.wrapping_sub(before);
    assert!(since <= waits::tick().wrapping_sub(before), "{wait:?} began before it was polled");
    assert!(wait.made.file().ends_with("waits.rs"), "{wait:?}");
    (process, wait)
}

/// Polls once, with a waker that does nothing.
fn poll<F: Future + Unpin>(future: &mut F) -> std::task::Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Waits until the coarse clock has moved.
async fn a_tick() {
    let tick = waits::tick();
    while waits::tick() == tick {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_awaited_process() {
    let (mut tx, mut rx) = channel::<u8>();
    let line = line!() + 1;
    let worker = spawn(async move { rx.recv().await });
    let pid = worker.pid();
    let (waiter, wait) = waiting(worker).await;
    assert_eq!((wait.doing, wait.on, wait.channel), (Doing::Exit, Some(pid.into()), None));
    assert_eq!(wait.made.line(), line);
    assert!(wait.to_string().contains(&format!("ms for exit of {pid} (")), "{wait}");
    tx.send(7).await.unwrap();
    assert_eq!(waiter.await, Ok(Ok(Ok(7))));
    assert_eq!(lines(wait.who), []);
}

#[tokio::test]
async fn an_awaited_process_that_panics() {
    let (go, mut gone) = channel::<u8>();
    let worker = spawn(async move {
        let _ = gone.recv().await;
        panic!("out of krill");
    });
    let (waiter, wait) = waiting(worker).await;
    drop(go);
    let exit: Result<(), Exit> = waiter.await.unwrap();
    assert!(exit.unwrap_err().to_string().contains("out of krill"));
    assert_eq!(lines(wait.who), []);
}

#[tokio::test]
async fn an_awaiting_process_is_cancelled_or_panics() {
    let (worker, _) = waiting(async { sleep(LONG).await }).await;
    let (waiter, wait) = waiting(worker).await;
    waiter.cancel();
    assert!(waiter.await.is_err());
    assert_eq!(lines(wait.who), [], "cancelled");

    let (worker, _) = waiting(async { sleep(LONG).await }).await;
    let (mut tx, mut rx) = channel::<u8>();
    let waiter = spawn(async move {
        let mut worker = worker;
        assert!(poll(&mut worker).is_pending());
        rx.recv().await.unwrap();
        panic!("with a line");
    });
    settle().await;
    assert_eq!(doing(waiter.pid()).len(), 2, "the exit and the receive");
    tx.send(1).await.unwrap();
    let pid = waiter.pid();
    assert!(waiter.await.is_err());
    assert_eq!(lines(pid), [], "panicked");
}

#[tokio::test]
async fn a_poll_through_a_borrow_is_shown_until_the_next_use() {
    let checked = spawn(async {
        let me = Pid::current();
        let (mut tx, mut rx) = channel::<u8>();
        let mut worker = spawn(async move { rx.recv().await });
        assert!(poll(&mut worker).is_pending());
        assert_eq!(doing(me), [Doing::Exit]);
        tx.send(1).await.unwrap();
        (&mut worker).await.unwrap().unwrap();
        assert_eq!(lines(me), [], "used again");
        drop(worker);

        let mut worker = spawn(pending::<()>());
        let mut awaiting = Box::pin(async { (&mut worker).await });
        assert!(poll(&mut awaiting).is_pending());
        std::mem::forget(awaiting);
        assert_eq!(doing(me), [Doing::Exit]);
        drop(worker);
        assert_eq!(lines(me), [], "forgotten, and then dropped what it waited for");

        // The next poller is shown in place of the one that was dropped, and without its age.
        let mut worker = spawn(pending::<()>());
        assert!(poll(&mut worker).is_pending());
        (me, lines(me)[0].since, worker)
    });
    let (first, since, worker) = checked.await.unwrap();
    assert_eq!(lines(first).len(), 1);
    a_tick().await;
    let (second, wait) = waiting(worker).await;
    assert!(wait.since.wrapping_sub(since) > 0, "{wait:?}");
    assert_eq!(lines(first), []);
    second.cancel();
    assert!(second.await.is_err());
    assert_eq!(lines(wait.who), []);
}

#[tokio::test]
async fn repeated_polls_keep_the_age_of_a_wait() {
    let (mut poke, mut poked) = channel::<u8>();
    let waiter = spawn(async move {
        let (mut worker, mut timer) = (spawn(pending::<()>()), pin!(sleep(LONG)));
        for _ in 0..3 {
            // Each poke polls it anew.
            let (worker, timer) = (&mut worker, &mut timer);
            tokio::select! { biased; _ = worker => {}, _ = timer => {}, _ = poked.recv() => {} }
        }
    });
    settle().await;
    let before: Vec<_> = lines(waiter.pid()).into_iter().filter(|wait| wait.channel.is_none()).collect();
    assert_eq!(before.len(), 2);
    a_tick().await;
    poke.send(1).await.unwrap();
    settle().await;
    let after: Vec<_> = lines(waiter.pid()).into_iter().filter(|wait| wait.channel.is_none()).collect();
    assert_eq!(after, before);
    waiter.cancel();
    let pid = waiter.pid();
    assert!(waiter.await.is_err());
    assert_eq!(lines(pid), []);
}

#[tokio::test(start_paused = true)]
async fn a_timer() {
    let line = line!() + 1;
    let (waiter, wait) = waiting(async { sleep(LONG).await }).await;
    assert_eq!((wait.doing, wait.on, wait.channel), (Doing::Time, None, None));
    assert_eq!(wait.made.line(), line);
    assert!(wait.to_string().contains("ms for a timer ("), "{wait}");
    waiter.await.unwrap();
    assert_eq!(lines(wait.who), [], "run out");

    let (waiter, wait) = waiting(async { dunlin::sleep_until(dunlin::Instant::now() + LONG).await }).await;
    assert_eq!(wait.doing, Doing::Time);
    waiter.cancel();
    assert!(waiter.await.is_err());
    assert_eq!(lines(wait.who), [], "cancelled");
}

#[tokio::test(start_paused = true)]
async fn a_deadline_is_in_the_line_of_its_operation() {
    let (_tx, mut rx) = channel::<u8>();
    let id = rx.id();
    let (waiter, wait) = waiting(async move { rx.recv().within(LONG).await }).await;
    assert_eq!((wait.doing, wait.channel), (Doing::Receive, Some(id)));
    assert!(waiter.await.unwrap().is_err(), "timed out");
    assert_eq!(lines(wait.who), []);

    let mut ended = spawn(pending::<()>());
    let (waiter, wait) = waiting(async move {
        alt! { _ = &mut ended => {}, _ = sleep(LONG), if false => {} }
    })
    .await;
    assert_eq!(wait.doing, Doing::Exit, "what is off does not wait");
    waiter.cancel();
}

#[tokio::test]
async fn a_future_in_a_choice() {
    let (mut tx, mut rx) = channel::<u8>();
    let (mut out, mut seen) = channel();
    let line = line!() + 3;
    let waiter = spawn(async move {
        alt! {
            () = future(pending()) => {}
            _ = rx.recv() => out.send(doing(Pid::current())).await.unwrap(),
        }
    });
    settle().await;
    let mut shown = lines(waiter.pid());
    shown.sort_by_key(|wait| wait.channel.is_some());
    assert_eq!(shown.len(), 2, "{shown:?}");
    assert_eq!((shown[0].doing, shown[0].on, shown[0].channel), (Doing::Future, None, None));
    assert_eq!(shown[0].made.line(), line);
    assert!(shown[0].to_string().contains("ms for a future ("), "{}", shown[0]);
    assert_eq!(shown[1].doing, Doing::Receive);
    tx.send(1).await.unwrap();
    assert_eq!(seen.recv().await.unwrap(), [], "nothing waits in the body");
    let pid = waiter.pid();
    waiter.await.unwrap();
    assert_eq!(lines(pid), []);
}

#[tokio::test]
async fn a_future_that_panics_leaves_no_line() {
    let (poke, mut poked) = channel::<u8>();
    let waiter = spawn(async move {
        let mut polls = 0;
        let bad = std::future::poll_fn(move |_| {
            polls += 1;
            assert!(polls < 2, "polled twice");
            std::task::Poll::<()>::Pending
        });
        alt! { biased; () = future(bad) => {}, _ = poked.recv() => {} }
    });
    settle().await;
    let pid = waiter.pid();
    assert_eq!(doing(pid).len(), 2);
    drop(poke);
    assert!(waiter.await.unwrap_err().to_string().contains("polled twice"));
    assert_eq!(lines(pid), []);
}

#[tokio::test]
async fn unchosen_handle_leaves_no_wait() {
    // `alt!`, `Choice`, and a choice with a send, which shares a decision.
    for way in 0..3 {
        let (mut tx, mut rx) = channel::<u8>();
        let (mut never, _never) = channel::<u8>();
        let (mut out, mut seen) = channel();
        let waiter = spawn(async move {
            let mut worker = spawn(pending::<()>());
            let mut named = future(pending::<()>());
            let mut slot = Some(1);
            let me = Pid::current();
            match way {
                0 => alt! { _ = &mut worker => {}, _ = &mut named => {}, _ = rx.recv() => {} },
                1 => {
                    let choice = Choice::fair().on(&mut worker, drop).on(&mut named, drop);
                    let _ = choice.on(rx.recv(), drop).await;
                }
                _ => alt! {
                    _ = &mut worker => {}
                    _ = &mut named => {}
                    _ = never.send_from(&mut slot) => {}
                    _ = rx.recv() => {}
                },
            }
            out.send(doing(me)).await.unwrap();
            drop((worker, named));
        });
        settle().await;
        let shown = doing(waiter.pid());
        for kind in [Doing::Exit, Doing::Future, Doing::Receive] {
            assert!(shown.contains(&kind), "{shown:?}");
        }
        tx.send(1).await.unwrap();
        assert_eq!(seen.recv().await.unwrap(), [], "the worker and the future exist, but nothing waits for them");
        waiter.await.unwrap();
    }
}

#[tokio::test]
async fn a_dropped_choice_notifies_its_branches() {
    for at_run_time in [false, true] {
        let checked = spawn(async move {
            let me = Pid::current();
            let (_tx, mut rx) = channel::<u8>();
            let mut worker = spawn(pending::<()>());
            if at_run_time {
                let mut choice = Choice::fair().on(&mut worker, drop).on(rx.recv(), drop).into_future();
                assert!(poll(&mut choice).is_pending());
                assert_eq!(doing(me).len(), 2);
            } else {
                let mut choice = Box::pin(async {
                    alt! { _ = &mut worker => {}, _ = rx.recv() => {} }
                });
                assert!(poll(&mut choice).is_pending());
                assert_eq!(doing(me).len(), 2);
            }
            let left = lines(me);
            drop(worker);
            left
        });
        assert_eq!(checked.await.unwrap(), []);
    }
}

#[tokio::test]
async fn pending_stream_counts_as_waiting_until_its_next_use() {
    fn poll_next(rx: &mut Receiver<u8>) -> bool {
        Pin::new(rx).poll_next(&mut Context::from_waker(Waker::noop())).is_ready()
    }
    let checked = spawn(async {
        let me = Pid::current();
        for policy in [rendezvous(), fifo(2)] {
            let (mut tx, mut rx) = channel_with::<u8>(policy.clone());
            let id = rx.id();
            // The operations that count as another use.
            type Use = fn(&mut Receiver<u8>);
            let uses: [Use; 6] = [
                |rx| drop(rx.recv()),
                |rx| drop(rx.next()),
                |rx| drop(rx.recv_extended()),
                |rx| drop(rx.closed()),
                |rx| assert!(rx.try_recv().is_err()),
                |rx| {
                    assert!(poll(&mut rx.recv()).is_pending());
                },
            ];
            for other in uses {
                assert!(!poll_next(&mut rx));
                let shown = lines(me);
                assert_eq!(shown.len(), 1);
                assert_eq!((shown[0].doing, shown[0].channel), (Doing::Receive, Some(id)));
                other(&mut rx);
                assert_eq!(lines(me), []);
            }
            assert!(!poll_next(&mut rx));
            tx.send(1).within(Duration::ZERO).await.unwrap_or_default();
            tx.try_send(2).unwrap_or_default();
            while poll_next(&mut rx) {}
            assert_eq!(lines(me).len(), 1);
            let rx = rx.no_poison();
            assert_eq!(lines(me).len(), 1, "the same receiver");
            let mut rx = rx.share();
            assert_eq!(lines(me), [], "moved into another end");
            {
                let mut claim = rx.claim().await.unwrap();
                assert!(Pin::new(&mut *claim).poll_next(&mut Context::from_waker(Waker::noop())).is_pending());
                assert_eq!(lines(me).len(), 1);
            }
            assert_eq!(lines(me), [], "the claim has ended");

            let (_tx, mut rx) = channel_with::<u8>(policy);
            assert!(!poll_next(&mut rx));
            drop(rx);
            assert_eq!(lines(me), [], "dropped, and the sender is not");
        }
    });
    checked.await.unwrap();
}

#[tokio::test]
async fn the_age_of_a_wait_after_a_stream_that_was_given_up() {
    let checked = spawn(async {
        let me = Pid::current();
        let (_tx, mut rx) = channel::<u8>();
        assert!(Pin::new(&mut rx).poll_next(&mut Context::from_waker(Waker::noop())).is_pending());
        let since = lines(me)[0].since;
        a_tick().await;
        let mut receive = rx.recv();
        assert!(poll(&mut receive).is_pending());
        assert!(lines(me)[0].since.wrapping_sub(since) > 0);
    });
    checked.await.unwrap();
}

#[tokio::test]
async fn stream_of_a_dropped_claim_holds_no_place() {
    let (mut tx, rx) = channel_with::<u8>(rendezvous().pending_receivers(1, Overflow::Reject));
    let mut rx = rx.share();
    let mut other = rx.clone();
    {
        let mut claim = rx.claim().await.unwrap();
        assert!(Pin::new(&mut *claim).poll_next(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    let receiver = spawn(async move { other.recv().await });
    settle().await;
    assert!(!receiver.is_finished(), "its place was taken by a stream that nothing polls");
    tx.send(1).await.unwrap();
    assert_eq!(receiver.await.unwrap(), Ok(1));
}

#[tokio::test]
async fn a_forgotten_receive_goes_with_its_receiver() {
    let checked = spawn(async {
        let me = Pid::current();
        let (tx, mut rx) = channel::<u8>();
        let mut receive = Box::pin(rx.recv());
        assert!(poll(&mut receive).is_pending());
        std::mem::forget(receive);
        assert_eq!(doing(me), [Doing::Receive]);
        drop(rx);
        assert_eq!(lines(me), []);
        drop(tx);
    });
    checked.await.unwrap();
}

#[tokio::test]
async fn a_blocking_call() {
    let (mut tx, mut rx) = channel::<u8>();
    let line = line!() + 1;
    let call = blocking(move |_| rx.recv().wait());
    let pid = call.pid();
    let (waiter, wait) = waiting(call).await;
    assert_eq!((wait.doing, wait.on, wait.channel), (Doing::Return, Some(pid), None));
    assert_eq!(wait.made.line(), line);
    assert!(wait.to_string().contains(&format!("ms for return of {pid} (")), "{wait}");
    // The call is a process too, and its own wait is visible.
    while doing(pid) != [Doing::Receive] {
        tokio::task::yield_now().await;
    }
    tx.send(7).await.unwrap();
    assert_eq!(waiter.await.unwrap().unwrap(), Ok(7));
    assert_eq!((lines(wait.who), lines(pid)), (vec![], vec![]));
}

#[tokio::test]
async fn blocking_call_leaves_no_wait_when_unchosen_dropped_or_terminated() {
    let (mut tx, mut rx) = channel::<u8>();
    let (mut out, mut seen) = channel();
    let waiter = spawn(async move {
        let mut call = blocking(|stop| stop.requested().wait());
        while doing(call.pid()) != [Doing::Stop] {
            tokio::task::yield_now().await;
        }
        alt! { _ = &mut call => {}, _ = rx.recv() => {} }
        out.send((call.pid(), doing(Pid::current()))).await.unwrap();
        assert!(matches!(call.terminate().await, Ended::Terminated(true)));
        assert_eq!(lines(Pid::current()), []);
        let mut call = blocking(|stop| stop.requested().wait());
        assert!(poll(&mut call).is_pending());
        assert_eq!(doing(Pid::current()), [Doing::Return]);
        drop(call);
        assert_eq!(lines(Pid::current()), []);
    });
    while doing(waiter.pid()).len() != 2 {
        tokio::task::yield_now().await;
    }
    tx.send(1).await.unwrap();
    let (call, shown) = seen.recv().await.unwrap();
    assert_eq!(shown, []);
    waiter.await.unwrap();
    assert_eq!(lines(call), []);
}

#[tokio::test]
async fn a_call_that_waits_to_be_stopped_is_shown() {
    let call = blocking(|stop| stop.requested().wait());
    while doing(call.pid()) != [Doing::Stop] {
        tokio::task::yield_now().await;
    }
    let wait = &lines(call.pid())[0];
    assert!(wait.to_string().contains("ms for a request to stop ("), "{wait}");
    let pid = call.pid();
    assert!(matches!(call.terminate().await, Ended::Terminated(true)));
    assert_eq!(lines(pid), []);
}
