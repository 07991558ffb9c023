//! The budget of ready operations: an operation that yields is woken, and does not delay its neighbours or
//! the branches below it.
#![cfg(not(any(loom, shuttle)))]

mod common;

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use common::{Wakes, poll, poll_woken};
use dunlin_core::__rt::Alone;
use dunlin_core::{Receiver, Sender, alt, channel, channel_with, fifo, future, par};

/// Many times the budget of one poll.
const MANY: u32 = 100_000;

/// A receiver that is always ready.
fn ended() -> Receiver<u8> {
    channel().1
}

/// This many ready operations.
async fn operations(count: u32) {
    let mut rx = ended();
    for _ in 0..count {
        assert!(rx.recv().await.is_err());
    }
}

/// Polls the future while it is woken, as a runtime with a single task does.
fn run<F: Future + Unpin>(future: &mut F, wakes: &Arc<Wakes>) -> Option<F::Output> {
    loop {
        let output = poll_woken(future, wakes);
        if output.is_some() || wakes.take() == 0 {
            return output;
        }
    }
}

/// An operation in the branch was refused and polled again in the same poll, so it has woken nothing.
#[test]
fn par_that_yields_within_a_branch_keeps_the_choice_woken() {
    let ((_silent, mut never), (mut tx, mut lower), wakes) = (channel::<u8>(), channel(), Arc::<Wakes>::default());
    let mut choice = pin!(async {
        alt! {
            biased;
            _ = future(async { par!(async { operations(200).await; never.recv().await }, async {}) }) => 0,
            v = lower.recv() => v.unwrap(),
        }
    });
    assert_eq!(run(&mut choice, &wakes), None);
    let mut sending = tx.send(7);
    assert_eq!(poll(&mut sending), None);
    assert_eq!(run(&mut choice, &wakes), Some(7));
}

#[test]
fn par_that_yields_within_a_branch_does_not_hide_lower_branches() {
    let ((_silent, mut never), mut lower) = (channel::<u8>(), ended());
    let mut choice = pin!(async {
        alt! {
            biased;
            _ = future(async { par!(async { operations(200).await; never.recv().await }, async {}) }) => false,
            v = lower.recv() => v.is_err(),
        }
    });
    assert_eq!(poll(&mut choice), Some(true), "the `par!` waits, so this poll continues");
}

/// The same inside a `par!`, where a wake is an entry in its list.
#[test]
fn a_choice_in_a_par_is_woken_too() {
    let ((_silent, mut never), mut lower, wakes) = (channel::<u8>(), ended(), Arc::<Wakes>::default());
    let mut outer = pin!(async {
        par!(async {
            alt! {
                biased;
                _ = future(async { par!(async { operations(200).await; never.recv().await }, async {}) }) => false,
                v = lower.recv() => v.is_err(),
            }
        })
    });
    assert_eq!(run(&mut outer, &wakes), Some((true,)));
}

/// An executor inside a branch polls with its own waker and drops operations that are not ready.
#[test]
fn refusal_with_a_foreign_waker_also_wakes_the_choice() {
    let (mut busy, mut lower, wakes) = (ended(), ended(), Arc::<Wakes>::default());
    let mut choice = pin!(async {
        alt! {
            biased;
            () = future(poll_fn(|_| {
                for _ in 0..200 {
                    let _ = Pin::new(&mut busy.recv()).poll(&mut Context::from_waker(Waker::noop()));
                }
                Poll::Pending
            })) => false,
            v = lower.recv() => v.is_err(),
        }
    });
    assert_eq!(run(&mut choice, &wakes), Some(true));
}

/// Each `par!` ended in its first poll and renewed the budget of the operations it had refused.
#[test]
fn loop_of_par_yields() {
    let (wakes, rounds) = (Arc::<Wakes>::default(), Cell::new(0));
    let mut task = pin!(async {
        let (mut tx, mut rx): (Sender<u32>, _) = channel();
        while rounds.get() < MANY {
            rounds.set(rounds.get() + 1);
            let (sent, got) = par!(tx.send(1), rx.recv());
            assert_eq!((sent, got), (Ok(()), Ok(1)));
        }
    });
    let (mut most, mut before) = (0, 0);
    while poll_woken(&mut task, &wakes).is_none() {
        assert!(wakes.take() > 0, "it gives way");
        most = most.max(rounds.get() - before);
        before = rounds.get();
    }
    assert!(before > 0 && most <= 256, "{most} rounds in one poll");
}

/// The same inside a `par!`: its siblings get their turn, and finally its neighbours.
#[test]
fn loop_of_par_in_a_par_yields() {
    let (wakes, rounds, turns) = (Arc::<Wakes>::default(), Cell::new(0), Cell::new(0));
    let mut task = pin!(async {
        par!(
            async {
                let (mut tx, mut rx) = channel_with(fifo(1));
                while rounds.get() < MANY {
                    rounds.set(rounds.get() + 1);
                    par!(async { tx.send(1).await.unwrap() }, async { _ = rx.recv().await });
                }
            },
            poll_fn(|cx: &mut Context<'_>| {
                turns.set(turns.get() + 1);
                cx.waker().wake_by_ref();
                if rounds.get() < MANY { Poll::Pending } else { Poll::Ready(()) }
            })
        )
    });
    let (mut most, mut before) = (0, 0);
    while poll_woken(&mut task, &wakes).is_none() {
        assert!(wakes.take() > 0, "it gives way");
        most = most.max(rounds.get() - before);
        before = rounds.get();
    }
    assert!(before > 0 && most <= 4096, "{most} rounds in one poll");
    assert!(turns.get() > MANY / 256, "{} turns of the sibling", turns.get());
}

/// Other tasks of the thread have used up the budget since.
#[test]
fn a_par_that_is_polled_again_has_the_whole_budget() {
    let raw = |future: Pin<&mut dyn Future<Output = ()>>| future.poll(&mut Context::from_waker(Waker::noop()));
    let polls = Cell::new(0);
    let mut task = pin!(async {
        par!(async {
            let mut work = pin!(operations(100));
            poll_fn(|cx| {
                polls.set(polls.get() + 1);
                cx.waker().wake_by_ref();
                if polls.get() == 2049 { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            polls.set(1);
            poll_fn(|cx| {
                polls.set(polls.get() + 1);
                work.as_mut().poll(cx)
            })
            .await;
        });
    });
    assert_eq!(poll(&mut task), None);
    assert!(raw(pin!(operations(MANY))).is_pending(), "it has spent the budget");
    assert!(raw(task.as_mut()).is_ready());
    assert_eq!(polls.get(), 2);
}

/// The same for a process, which `dunlin` polls as an [`Alone`].
#[test]
fn process_has_the_whole_budget_after_other_tasks_used_it_up() {
    let mut cx = Context::from_waker(Waker::noop());
    assert!(pin!(operations(MANY)).poll(&mut cx).is_pending(), "it has spent the budget");
    let mut process = pin!(Alone::outside(operations(100)));
    assert!(process.as_mut().poll(&mut cx).is_ready(), "it gave way at once");
}

/// A branch that is always busy uses up the budget in each poll.
#[test]
fn a_busy_future_does_not_hide_the_branches_below() {
    let (wakes, done) = (Arc::<Wakes>::default(), Cell::new(0));
    let mut lower = ended();
    let mut choice = pin!(async {
        alt! {
            biased;
            () = future(async { loop { operations(1).await; done.set(done.get() + 1); assert!(done.get() < MANY) } }) => false,
            v = lower.recv() => v.is_err(),
        }
    });
    assert_eq!(run(&mut choice, &wakes), Some(true));
}

/// Nothing waits below the branch, so it is polled until it is done.
#[test]
fn a_busy_future_is_not_skipped() {
    let wakes = Arc::<Wakes>::default();
    let mut choice = pin!(async {
        alt! { biased; () = future(operations(1_000)) => true, skip => false }
    });
    assert_eq!(run(&mut choice, &wakes), Some(true));
}
