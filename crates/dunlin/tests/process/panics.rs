//! Code of users that panics where a process ends: the `Drop` of payloads, messages and bodies, outcomes.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::pin::Pin;
use std::sync::mpsc;
use std::task::{Context, Poll};
use std::time::Duration;

use dunlin::prelude::*;
use dunlin::{
    Bound, ExitReason, Outcome, Pid, PostError, exit_with, link, mailbox, mailbox_with, monitor, spawn_linked, unlink,
};

use super::{idle, in_order, in_process, poll_once, reason_of, settle};

/// Its drop panics, unless the thread unwinds already.
#[derive(Debug)]
struct Sharp;

impl Drop for Sharp {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "sharp edges");
    }
}

/// Its drop is code that uses the process.
struct Meddles(Pid);

impl Drop for Meddles {
    fn drop(&mut self) {
        let own = Pid::current().unwrap_or(self.0);
        let _ = unlink(own, self.0);
        self.0.kill();
    }
}

fn sharp_edges() -> ExitReason {
    ExitReason::Panicked("sharp edges".into())
}

/// Fails instead of waiting for a lock that the same thread has.
fn within_a_minute(test: impl FnOnce() + Send + 'static) {
    let (done, ended) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        test();
        done.send(()).unwrap();
    });
    match ended.recv_timeout(Duration::from_secs(60)) {
        Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => thread.join().unwrap(),
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs"),
    }
}

/// Lets each process that can run take one step.
async fn one_round() {
    let mut again = true;
    std::future::poll_fn(|cx| match std::mem::take(&mut again) {
        true => {
            cx.waker().wake_by_ref();
            Poll::Pending
        }
        false => Poll::Ready(()),
    })
    .await;
}

/// Two processes that have ended with such payloads, and been forgotten. Their exits have arrived at a third
/// one, which has not been polled since.
async fn ending_twice<P: Send + Sync + 'static>(payload: impl Fn(Pid) -> P) -> (Process<()>, [Pid; 2]) {
    let target = idle();
    settle().await;
    let pid = target.pid();
    let sources = [payload(pid), payload(pid)].map(|payload| {
        let source = spawn(async move { exit_with(payload).await });
        link(source.pid(), pid).unwrap();
        source.pid()
    });
    while sources.iter().any(|source| source.is_alive()) {
        one_round().await;
    }
    assert!(pid.is_alive());
    (target, sources)
}

#[test]
fn a_payload_whose_drop_panics_hides_no_end() {
    in_order(async {
        let (target, _) = ending_twice(|_| Sharp).await;
        let next = idle();
        link(target.pid(), next.pid()).unwrap();
        let (down, other_down) = (monitor(target.pid()), monitor(target.pid()));
        // The target ends with one of the exits, and drops the other one.
        drop(target);
        let exit = alt! {
            exit = down => exit,
            _ = sleep(Duration::from_secs(1)) => panic!("the end is not reported"),
        };
        assert!(matches!(exit.reason, ExitReason::Error(_)), "{exit}");
        assert!(exit.payload::<Sharp>().is_some());
        assert_eq!(other_down.await, exit);
        let last = next.await.unwrap_err();
        assert_eq!(last.origin(), exit.origin());
        // The last one that drops it, has the panic.
        drop(exit);
        assert!(catch_unwind(AssertUnwindSafe(|| drop(last))).is_err());
    });
}

#[test]
fn a_payload_is_dropped_where_the_process_can_be_used() {
    within_a_minute(|| {
        in_order(async {
            // In the end of the target,
            let (target, _) = ending_twice(Meddles).await;
            assert!(matches!(reason_of(target).await, ExitReason::Error(_)));
            // by an unlink,
            let (target, sources) = ending_twice(Meddles).await;
            let own = target.pid();
            sources.iter().for_each(|source| assert_eq!(unlink(*source, own), Ok(true)));
            assert_eq!(reason_of(target).await, ExitReason::Killed);
            // and in a process that leaves twice.
            let process = spawn(async {
                let own = Pid::current().unwrap();
                let mut first = exit_with(1_u8);
                let mut second = exit_with(Meddles(own));
                assert!(poll_once(&mut first).is_pending() && poll_once(&mut second).is_pending());
                drop((first, second));
                std::future::pending::<()>().await;
            });
            reason_of(process).await;
        });
    });
}

#[test]
fn an_unlink_that_drops_a_payload_has_its_effect_and_its_panic() {
    in_order(async {
        let (target, sources) = ending_twice(|_| Sharp).await;
        let pid = target.pid();
        sources.iter().for_each(|source| assert!(catch_unwind(|| unlink(*source, pid)).is_err()));
        settle().await;
        assert!(pid.is_alive());
        pid.kill();
        assert_eq!(reason_of(target).await, ExitReason::Killed);
    });
}

#[test]
fn a_panic_with_a_value_whose_drop_panics_ends_one_process() {
    in_process(async {
        let process = spawn(async { panic_any(Sharp) });
        let down = monitor(process.pid());
        assert!(matches!(down.await.reason, ExitReason::Panicked(_) | ExitReason::NoSuchProcess));
        // The one that awaits it gets an exit.
        assert!(matches!(reason_of::<()>(process).await, ExitReason::Panicked(_)));
    });
}

#[test]
fn an_outcome_that_panics_is_a_panic_of_its_process() {
    struct Unknowable;
    impl Outcome for Unknowable {
        fn exit_reason(&self) -> ExitReason {
            panic!("unknowable")
        }
    }
    in_process(async {
        let parent = spawn(async {
            spawn_linked(async { Unknowable }).unwrap();
            std::future::pending::<()>().await;
        });
        assert_eq!(reason_of(parent).await, ExitReason::Panicked("unknowable".into()));
    });
}

#[test]
fn an_output_whose_drop_panics_hurts_nobody() {
    in_process(async {
        let process = spawn(async { Sharp });
        let down = monitor(process.pid());
        drop(process);
        assert!(matches!(down.await.reason, ExitReason::Normal | ExitReason::NoSuchProcess));
    });
}

/// A body that is no async block: its parts are dropped after its panic, and not by it.
struct ByHand(Sharp);

impl Future for ByHand {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        panic!("no krill")
    }
}

#[test]
fn a_body_whose_drop_panics_after_its_panic_has_panicked() {
    in_order(async {
        let process = spawn(ByHand(Sharp));
        let (down, target) = (monitor(process.pid()), idle());
        link(process.pid(), target.pid()).unwrap();
        let exit = down.await;
        assert!(matches!(exit.reason, ExitReason::Panicked(_)), "{exit}");
        assert_eq!(reason_of(target).await, exit.reason);
        assert!(matches!(reason_of(process).await, ExitReason::Panicked(_)));
    });
}

#[test]
fn messages_whose_drop_panics_keep_the_bound_of_their_mailbox() {
    in_order(async {
        let (address, mut mailbox) = mailbox_with(Bound::drop_oldest(3));
        let post = |n: u32| address.send((n, (n < 3).then(|| Sharp))).unwrap();
        (0..3).for_each(post);
        // The receiver looks at them, and then they lose their places.
        assert_eq!(mailbox.len(), 3);
        (3..6).for_each(post);
        // Each is dropped by a receive, which has the panic.
        let panics = (0..3).filter(|_| catch_unwind(AssertUnwindSafe(|| mailbox.len())).is_err()).count();
        assert_eq!(panics, 3);
        for n in 3..6 {
            assert_eq!(mailbox.recv().await.unwrap().0, n);
        }
        assert!(mailbox.is_empty());
        (6..10).for_each(post);
        assert_eq!(mailbox.len(), 3);
        assert_eq!(mailbox.recv().await.unwrap().0, 7);
    });
}

#[test]
fn a_mailbox_of_messages_whose_drop_panics_is_closed_by_its_drop() {
    in_order(async {
        let (address, mailbox) = mailbox();
        assert!(address.send(Some(Sharp)).is_ok() && address.send(None).is_ok());
        let process = spawn(async move {
            let _mailbox = mailbox;
            std::future::pending::<()>().await;
        });
        settle().await;
        let down = monitor(process.pid());
        process.pid().kill();
        assert_eq!(down.await.reason, sharp_edges());
        assert_eq!(address.send(None).map_err(|error| matches!(error, PostError::Closed(None))), Err(true));
    });
}
