//! Loom: wakes of the branches of a `par!` from other threads, and call channels.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p dunlin-core --test loom_par`
#![cfg(loom)]

mod loom_support;

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use dunlin_core::{CallError, Par, call, channel, par};
use loom::sync::atomic::{AtomicBool, Ordering};
use loom_support::{block_on, model, model_within, poll_once, spawn, yield_once};

/// A flag that a branch waits for and another thread raises. The waker is in a std mutex: loom need not model
/// it, because it is never held across one of loom's steps.
#[derive(Default)]
struct Bell {
    waker: Mutex<Option<Waker>>,
}

struct Rung(Arc<Bell>, Arc<AtomicBool>);

fn bell() -> (Rung, Rung) {
    let (bell, flag) = (Arc::new(Bell::default()), Arc::new(AtomicBool::new(false)));
    (Rung(bell.clone(), flag.clone()), Rung(bell, flag))
}

impl Rung {
    fn ring(&self) {
        // RMWs, because loom lets the stores and loads of two threads pass each other.
        self.1.swap(true, Ordering::AcqRel);
        let waker = self.0.waker.lock().unwrap().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    async fn rung(&self) {
        poll_fn(|cx| {
            *self.0.waker.lock().unwrap() = Some(cx.waker().clone());
            if self.1.swap(false, Ordering::AcqRel) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// A wake from another thread | the poll runs out of ready branches and checks its mail: the `par!` polls the
/// branch again itself, or its task is woken after the mail has arrived.
#[test]
fn a_wake_from_elsewhere_is_not_lost() {
    model_within(4, || {
        let (rings, waits) = bell();
        let thread = spawn(move || rings.ring());
        block_on(async { par!(waits.rung(), async {}) });
        thread.join();
    });
}

/// The same for two branches woken by two threads.
#[test]
fn two_wakes_from_elsewhere() {
    model_within(2, || {
        let ((rings, waits), (also_rings, also_waits)) = (bell(), bell());
        let threads = [spawn(move || rings.ring()), spawn(move || also_rings.ring())];
        block_on(async { par!(waits.rung(), also_waits.rung()) });
        threads.into_iter().for_each(loom_support::Running::join);
    });
}

/// A wake on the thread that polls the `par!`, but between two polls, counts as a wake from another thread.
#[test]
fn a_wake_between_two_polls() {
    model(|| {
        let (rings, waits) = bell();
        let mut pinned = Box::pin(async { par!(waits.rung()) });
        let mut rung = false;
        block_on(poll_fn(|cx| {
            let polled = pinned.as_mut().poll(cx);
            if !std::mem::replace(&mut rung, true) {
                assert!(polled.is_pending());
                rings.ring();
            }
            polled
        }));
    });
}

/// A branch that wakes itself does not hide another branch's mail: the budget ends the poll, and the wake
/// must persist.
#[test]
fn a_wake_while_the_budget_runs_out() {
    model(|| {
        let (rings, waits) = bell();
        let thread = spawn(move || rings.ring());
        block_on(async {
            let busy = |waits: Option<Rung>| async move {
                match waits {
                    Some(waits) => waits.rung().await,
                    None => yield_once().await,
                }
            };
            [Some(waits), None].map(busy).into_iter().collect::<Par<_>>().budget(1).await;
        });
        thread.join();
    });
}

/// A waker outlives its `par!`, and its entry already serves another one: at worst it causes a spurious poll,
/// or names a branch that does not exist.
#[test]
fn a_stale_wake_is_harmless() {
    model_within(2, || {
        let kept = Arc::new(Mutex::new(Vec::<Waker>::new()));
        let keep = |kept: &Arc<Mutex<Vec<Waker>>>| {
            let kept = kept.clone();
            poll_fn(move |cx| {
                kept.lock().unwrap().push(cx.waker().clone());
                Poll::Ready(())
            })
        };
        block_on(async { par!(keep(&kept), keep(&kept), keep(&kept)) });
        let stale = std::mem::take(&mut *kept.lock().unwrap());
        let (rings, waits) = bell();
        let thread = spawn(move || {
            for waker in stale {
                waker.wake();
            }
            rings.ring();
        });
        block_on(async { par!(waits.rung()) });
        block_on(async { par!(async {}) });
        thread.join();
    });
}

/// A `par!` that was polled on one thread moves to another, where branches woken meanwhile are polled.
#[test]
fn a_par_moves_between_threads() {
    model(|| {
        let (rings, waits) = bell();
        let thread = spawn(move || rings.ring());
        let mut pinned = Box::pin(async move { par!(waits.rung(), async {}) });
        if poll_once(pinned.as_mut()).is_none() {
            spawn(move || block_on(pinned)).join();
        }
        thread.join();
    });
}

/// A channel between a branch and another thread; a second branch waits for the first.
#[test]
fn a_branch_receives_from_another_thread() {
    model(|| {
        let ((mut tx, mut rx), (mut ty, mut ry)) = (channel(), channel());
        let sender = spawn(move || block_on(tx.send(7)).unwrap());
        block_on(async {
            par!(
                async {
                    let got = rx.recv().await.unwrap();
                    ty.send(got).await.unwrap();
                },
                async { assert_eq!(ry.recv().await, Ok(7)) },
            )
        });
        sender.join();
    });
}

/// A nested `par!`: a wake for the inner one goes through the mail of the outer one.
#[test]
fn a_wake_reaches_a_nested_par() {
    model(|| {
        let (rings, waits) = bell();
        let thread = spawn(move || rings.ring());
        block_on(async { par!(async { par!(waits.rung(), yield_once()) }, yield_once()) });
        thread.join();
    });
}

/// The `par!` is dropped while a wake for it is in flight.
#[test]
fn a_par_dropped_under_a_wake() {
    model_within(3, || {
        let (rings, waits) = bell();
        let mut pinned = Box::pin(async { par!(waits.rung()) });
        assert!(poll_once(pinned.as_mut()).is_none());
        let thread = spawn(move || rings.ring());
        drop(pinned);
        let (mut tx, mut rx) = channel();
        block_on(async { par!(async { tx.send(1).await.unwrap() }, async { rx.recv().await.unwrap() }) });
        thread.join();
    });
}

/// The caller is dropped | the server accepts and replies: the reply arrives or is returned.
#[test]
fn a_caller_dropped_races_the_reply() {
    model(|| {
        let (mut caller, mut callee) = call::<u32, u32>();
        let server = spawn(move || {
            let ask = block_on(callee.accept()).ok()?;
            Some(ask.reply(8))
        });
        let mut calling = Box::pin(caller.call(7));
        let answer = poll_once(calling.as_mut()).or_else(|| poll_once(calling.as_mut()));
        drop(calling);
        drop(caller);
        let replied = server.join();
        match answer {
            Some(answer) => assert_eq!((answer, replied), (Ok(8), Some(Ok(())))),
            None => assert!(matches!(replied, None | Some(Ok(()) | Err(8)))),
        }
    });
}

/// A complete call, and a call whose request is dropped without a reply.
#[test]
fn a_call_is_answered() {
    model(|| {
        let (mut caller, mut callee) = call::<u32, u32>();
        let server = spawn(move || block_on(callee.accept()).unwrap().reply(8).unwrap());
        assert_eq!(block_on(caller.call(7)), Ok(8));
        server.join();
    });
}

#[test]
fn a_call_without_a_reply() {
    model(|| {
        let (mut caller, mut callee) = call::<u32, u32>();
        let server = spawn(move || drop(block_on(callee.accept()).unwrap()));
        assert!(matches!(block_on(caller.call(7)), Err(CallError::NoReply(_))));
        server.join();
    });
}

/// The server is dropped before it accepts | the call is pending: the request is returned.
#[test]
fn call_fails_as_not_taken_when_callee_drops() {
    model(|| {
        let (mut caller, callee) = call::<u32, u32>();
        let server = spawn(move || drop(callee));
        assert!(matches!(block_on(caller.call(7)), Err(CallError::NotTaken { .. })));
        server.join();
    });
}
