//! When the turn of a send that cannot wait ends, with a timer that expires on command.
#![cfg(not(any(loom, shuttle)))]

mod common;

use std::future::ready;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use common::{Wakes, poll, poll_woken};
use dunlin_core::__rt::{end_turn, set_turn_timer};
use dunlin_core::{Operation, SendError, Why, alt, channel};

/// The number of the turn that began last.
static LAST: AtomicU32 = AtomicU32::new(0);

/// The tests run one at a time, because each uses the last number.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn by_hand() -> std::sync::MutexGuard<'static, ()> {
    set_turn_timer(|number| {
        LAST.store(number, Ordering::Relaxed);
        true
    });
    ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn end_the_turn() {
    end_turn(LAST.load(Ordering::Relaxed));
}

#[test]
fn a_send_before_skip_waits_until_all_receivers_were_polled() {
    let _alone = by_hand();
    let ((mut tx, rx), wakes) = (channel(), Arc::<Wakes>::default());
    let mut one = rx.share();
    let mut two = one.clone();
    let (mut first, mut second) = (one.recv(), two.recv());
    assert!(poll(&mut first).is_none() && poll(&mut second).is_none());
    let mut choice = pin!(async {
        let mut slot = Some(7);
        alt! { biased; sent = tx.send_from(&mut slot) => { sent.unwrap(); false }, skip => slot == Some(7) }
    });
    assert_eq!(poll_woken(&mut choice, &wakes), None);
    assert_eq!(wakes.count(), 0, "the choice waits and does not spin");
    assert_eq!(poll_woken(&mut choice, &wakes), None);
    drop(first);
    assert_eq!(wakes.count(), 0, "one receiver has yet to be polled");
    drop(second);
    assert!(wakes.count() > 0, "both receivers have looked, or are gone");
    assert_eq!(poll_woken(&mut choice, &wakes), Some(true));
}

#[test]
fn a_send_before_skip_is_taken_in_its_turn() {
    let _alone = by_hand();
    let ((mut tx, mut rx), mut slot, wakes) = (channel(), Some(7), Arc::<Wakes>::default());
    let mut receiving = rx.recv();
    assert!(poll(&mut receiving).is_none());
    let mut choice = pin!(async {
        alt! { biased; sent = tx.send_from(&mut slot) => sent.is_ok(), skip => false }
    });
    assert_eq!(poll_woken(&mut choice, &wakes), None);
    assert_eq!(poll(&mut receiving), Some(Ok(7)));
    assert!(wakes.count() > 0);
    assert_eq!(poll_woken(&mut choice, &wakes), Some(true));
}

#[test]
fn timer_ends_the_turn_when_the_receiver_is_not_polled() {
    let _alone = by_hand();
    let ((mut tx, mut rx), mut slot, wakes) = (channel(), Some(7), Arc::<Wakes>::default());
    let mut receiving = rx.recv();
    assert!(poll(&mut receiving).is_none());
    let mut choice = pin!(async {
        alt! { biased; sent = tx.send_from(&mut slot) => sent.is_ok(), skip => false }
    });
    for _ in 0..100 {
        assert_eq!(poll_woken(&mut choice, &wakes), None);
    }
    assert_eq!(wakes.count(), 0);
    end_the_turn();
    assert_eq!(wakes.take(), 1);
    assert_eq!(poll_woken(&mut choice, &wakes), Some(false));
}

#[test]
fn send_with_expired_deadline_waits_for_the_receiver_or_the_timer() {
    let _alone = by_hand();
    let ((mut tx, mut rx), wakes) = (channel(), Arc::<Wakes>::default());
    let mut receiving = rx.recv();
    assert!(poll(&mut receiving).is_none());
    let mut sending = tx.send(1).until(ready(()));
    assert_eq!(poll_woken(&mut sending, &wakes), None);
    assert_eq!(wakes.count(), 0, "the send waits and does not spin");
    assert_eq!(poll(&mut receiving), Some(Ok(1)));
    assert_eq!(wakes.take(), 1);
    assert_eq!(poll_woken(&mut sending, &wakes), Some(Ok(())));
    drop((receiving, sending));

    let mut receiving = rx.recv();
    assert!(poll(&mut receiving).is_none());
    let mut sending = tx.send(2).until(ready(()));
    for _ in 0..100 {
        assert_eq!(poll_woken(&mut sending, &wakes), None);
    }
    assert_eq!(wakes.count(), 0);
    end_the_turn();
    assert_eq!(wakes.take(), 1);
    let timed_out = SendError::NotTaken { value: 2, why: Why::TimedOut };
    assert_eq!(poll_woken(&mut sending, &wakes), Some(Err(timed_out)));
}

/// A receive that was woken and then dropped for another branch of its choice ends the turn of the send that
/// woke it.
#[test]
fn receiver_that_takes_another_branch_ends_the_turn() {
    let _alone = by_hand();
    let ((mut tx, mut rx), (mut ty, mut ry), wakes) = (channel(), channel(), Arc::<Wakes>::default());
    let mut choice = Box::pin(async {
        alt! { biased; _ = ry.recv() => 1, _ = rx.recv() => 2 }
    });
    assert!(poll(&mut choice).is_none());
    let mut other = ty.send(1);
    assert!(poll(&mut other).is_none());
    let mut sending = tx.send(1).until(ready(()));
    assert_eq!(poll_woken(&mut sending, &wakes), None);
    assert_eq!(wakes.count(), 0, "the send waits and does not spin");
    assert_eq!(poll(&mut choice), Some(1));
    drop(choice);
    assert!(wakes.take() > 0, "the receiver has gone elsewhere");
    assert_eq!(poll_woken(&mut sending, &wakes), Some(Err(SendError::NotTaken { value: 1, why: Why::TimedOut })));
}

/// Regression: it woke every send that waited there.
#[test]
fn the_end_of_a_turn_wakes_only_the_sends_that_wait_for_it() {
    let _alone = by_hand();
    let ((tx, rx), wakes, others) = (channel(), Arc::<Wakes>::default(), Arc::<Wakes>::default());
    let (first, mut rx) = (tx.share(), rx.share());
    let mut handles = [(); 4].map(|()| first.clone());
    let mut receiving = rx.recv();
    assert!(poll(&mut receiving).is_none());
    let [hurried, waiting @ ..] = &mut handles;
    let mut waiting: Vec<_> = waiting.iter_mut().map(|tx| tx.send(1)).collect();
    assert!(waiting.iter_mut().all(|sending| poll_woken(sending, &others).is_none()));
    let mut hurried = hurried.send(2).until(ready(()));
    assert_eq!(poll_woken(&mut hurried, &wakes), None);
    others.take();
    drop(receiving);
    assert!(wakes.take() > 0);
    assert_eq!(others.count(), 0, "they have no deadline");
}

/// Regression: the end of a turn came later and woke the process that had reused the sender's place.
#[test]
fn turn_of_a_completed_send_wakes_nothing() {
    let _alone = by_hand();
    let ((mut tx, mut rx), wakes) = (channel(), Arc::<Wakes>::default());
    for in_choice in [false, true] {
        let (mut receiving, mut slot) = (rx.recv(), Some(1));
        assert!(poll(&mut receiving).is_none());
        if in_choice {
            let mut choice = Box::pin(async {
                alt! { biased; sent = tx.send_from(&mut slot) => sent.is_ok(), skip => false }
            });
            assert_eq!(poll_woken(&mut choice, &wakes), None);
            assert_eq!(poll(&mut receiving), Some(Ok(1)));
            assert_eq!(poll_woken(&mut choice, &wakes), Some(true));
        } else {
            let mut sending = tx.send(1).until(ready(()));
            assert_eq!(poll_woken(&mut sending, &wakes), None);
            assert_eq!(poll(&mut receiving), Some(Ok(1)));
            assert_eq!(poll_woken(&mut sending, &wakes), Some(Ok(())));
        }
        wakes.take();
        end_the_turn();
        assert_eq!(wakes.count(), 0);
    }
}
