//! Loom: ends with several handles: lone operations of two handles, claims, and wakes that are passed on.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p dunlin-core --test loom_share`
#![cfg(loom)]

mod loom_support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use dunlin_core::{PATIENCE_TICKS, RecvError, alt, channel, channel_with, fifo, waits};
use loom_support::{block_on, forget_after_one_poll, model, model_within, poll_once, spawn, try_once};

/// Two handles offer side by side; the receiver takes both values, and each handle learns of its own.
#[test]
fn two_senders() {
    model_within(2, || {
        let (tx, mut rx) = channel();
        let mut one = tx.share();
        let mut other = one.clone();
        let sender = spawn(move || block_on(one.send(1)).unwrap());
        let receiver = spawn(move || {
            let got = (block_on(rx.recv()).unwrap(), block_on(rx.recv()).unwrap());
            assert_eq!(block_on(rx.recv()), Err(RecvError::Closed));
            got
        });
        block_on(other.send(2)).unwrap();
        drop(other);
        sender.join();
        let got = receiver.join();
        assert!(got == (1, 2) || got == (2, 1), "{got:?}");
    });
}

/// A value wakes all waiting receives: one takes it, the other finds nothing and keeps waiting.
#[test]
fn two_receivers() {
    model_within(2, || {
        let (mut tx, rx) = channel();
        let mut one = rx.share();
        let mut other = one.clone();
        let receiver = spawn(move || block_on(one.recv()));
        let sender = spawn(move || {
            block_on(tx.send(1)).unwrap();
            block_on(tx.send(2)).unwrap();
        });
        let got = [block_on(other.recv()).unwrap(), receiver.join().unwrap()];
        assert!(got == [1, 2] || got == [2, 1], "{got:?}");
        sender.join();
    });
}

/// The same over a buffer: both admitted values must reach their receivers.
#[test]
fn two_receivers_of_a_buffer() {
    model_within(2, || {
        let (mut tx, rx) = channel_with(fifo(1));
        let mut one = rx.share();
        let mut other = one.clone();
        let receiver = spawn(move || block_on(one.recv()));
        let sender = spawn(move || {
            block_on(tx.send(1)).unwrap();
            block_on(tx.send(2)).unwrap();
        });
        let got = [block_on(other.recv()).unwrap(), receiver.join().unwrap()];
        assert!(got == [1, 2] || got == [2, 1], "{got:?}");
        sender.join();
    });
}

/// One value for two receivers: one gets the value, the other gets the end.
#[test]
fn one_value_for_two_receivers() {
    model_within(2, || {
        let (mut tx, rx) = channel();
        let mut one = rx.share();
        let mut other = one.clone();
        let receiver = spawn(move || block_on(one.recv()));
        let sender = spawn(move || block_on(tx.send(1)).unwrap());
        let got = [block_on(other.recv()), receiver.join()];
        assert!(got == [Ok(1), Err(RecvError::Closed)] || got == [Err(RecvError::Closed), Ok(1)], "{got:?}");
        sender.join();
    });
}

/// A woken receive is dropped, or never polled again: the other one gets the value.
#[test]
fn a_woken_receive_is_dropped() {
    model_within(2, || {
        let (mut tx, rx) = channel();
        let mut one = rx.share();
        let mut other = one.clone();
        let receiver = spawn(move || try_once(one.recv()).and_then(Result::ok));
        let sender = spawn(move || block_on(tx.send(1)).unwrap());
        let got = block_on(other.recv()).ok();
        let given_up = receiver.join();
        assert!((got, given_up) == (Some(1), None) || (got, given_up) == (None, Some(1)), "{got:?} {given_up:?}");
        sender.join();
    });
}

#[test]
fn a_woken_receive_is_never_polled_again() {
    model(|| {
        let (mut tx, rx) = channel();
        let mut one = rx.share();
        let mut other = one.clone();
        let mut pinned = Box::pin(one.recv());
        assert_eq!(poll_once(pinned.as_mut()), None);
        let sender = spawn(move || block_on(tx.send(1)).unwrap());
        assert_eq!(block_on(other.recv()), Ok(1));
        sender.join();
    });
}

/// In a model a value wakes two receivers. Both are dropped: before the value arrives, while they are woken,
/// or after. The third must get it.
#[test]
fn woken_receivers_that_are_dropped_pass_the_wake_on() {
    model_within(2, || {
        let (mut tx, rx) = channel();
        let mut one = rx.share();
        let (mut two, mut three) = (one.clone(), one.clone());
        let (mut first, mut second) = (Box::pin(one.recv()), Box::pin(two.recv()));
        assert!(poll_once(first.as_mut()).is_none() && poll_once(second.as_mut()).is_none());
        let receiver = spawn(move || block_on(three.recv()));
        let sender = spawn(move || block_on(tx.send(1)).unwrap());
        drop(first);
        drop(second);
        assert_eq!(receiver.join(), Ok(1));
        sender.join();
    });
}

/// Neither is polled again. Time passes while the third registers, or before or after: it must get the value.
#[test]
fn woken_receivers_that_are_not_polled_cost_a_tick() {
    model_within(3, || {
        let (mut tx, rx) = channel();
        let mut one = rx.share();
        let (mut two, mut three) = (one.clone(), one.clone());
        let (mut first, mut second) = (Box::pin(one.recv()), Box::pin(two.recv()));
        assert!(poll_once(first.as_mut()).is_none() && poll_once(second.as_mut()).is_none());
        let receiver = spawn(move || block_on(three.recv()));
        let mut send = Box::pin(tx.send(1));
        assert!(poll_once(send.as_mut()).is_none());
        waits::advance(waits::tick().wrapping_add(1));
        assert_eq!(receiver.join(), Ok(1));
        assert_eq!(poll_once(send.as_mut()), Some(Ok(())));
    });
}

/// Time passes on one thread while others send a value and register the third receiver; the first two are
/// woken and dropped.
#[test]
fn time_passes_while_a_wake_is_passed_on() {
    model_within(2, || {
        let (mut tx, rx) = channel();
        let mut one = rx.share();
        let (mut two, mut three) = (one.clone(), one.clone());
        let (mut first, mut second) = (Box::pin(one.recv()), Box::pin(two.recv()));
        assert!(poll_once(first.as_mut()).is_none() && poll_once(second.as_mut()).is_none());
        let receiver = spawn(move || block_on(three.recv()));
        let clock = spawn(|| waits::advance(waits::tick().wrapping_add(1)));
        let mut send = Box::pin(tx.send(1));
        assert!(poll_once(send.as_mut()).is_none());
        drop(first);
        drop(second);
        assert_eq!(receiver.join(), Ok(1));
        clock.join();
    });
}

/// Two of three receivers are woken for three values, and they wake the third.
#[test]
fn three_receivers_have_a_value_each() {
    model_within(1, || {
        let (tx, rx) = channel_with(fifo(3));
        let (mut tx, mut one) = (tx, rx.share());
        let (mut two, mut three) = (one.clone(), one.clone());
        let receivers = [spawn(move || block_on(one.recv()).unwrap()), spawn(move || block_on(two.recv()).unwrap())];
        let claim = three.try_claim().ok();
        (1..=3).for_each(|value| tx.try_send(value).unwrap());
        drop(claim);
        let mut got = vec![block_on(three.recv()).unwrap()];
        got.extend(receivers.map(|receiver| receiver.join()));
        got.sort_unstable();
        assert_eq!(got, [1, 2, 3]);
    });
}

/// One receiver holds the only place of a buffer by an extended receive; the other waits for a value. The
/// release admits a send that waited for the place, and the other receiver gets its value: only the release
/// can wake it.
#[test]
fn release_of_a_place_wakes_the_other_receiver() {
    model(|| {
        let (mut tx, rx) = channel_with(fifo(1));
        let mut one = rx.share();
        let mut other = one.clone();
        tx.try_send(1).unwrap();
        let held = try_once(one.recv_extended()).unwrap().unwrap();
        let sender = spawn(move || {
            block_on(tx.send(2)).unwrap();
            tx
        });
        let receiver = spawn(move || block_on(other.recv()));
        assert_eq!(held.release(), 1);
        assert_eq!(receiver.join(), Ok(2));
        sender.join();
    });
}

/// Only the holder of a claim may access it; loom reports concurrent accesses.
struct Inside(loom::cell::UnsafeCell<u32>);

// SAFETY: loom's cell checks what these tests are about, that no two threads access it at once.
unsafe impl Sync for Inside {}
// SAFETY: as above.
unsafe impl Send for Inside {}

/// One handle holds the end, the other waits in line: released | registered.
#[test]
fn claims_exclude_each_other() {
    model(|| {
        let (tx, _rx) = channel_with::<u32>(fifo(1));
        let mut one = tx.share();
        let mut other = one.clone();
        let inside = Arc::new(Inside(loom::cell::UnsafeCell::new(0)));
        let also = inside.clone();
        let claimer = spawn(move || {
            let claim = block_on(one.claim()).unwrap();
            also.0.with_mut(|_| ());
            drop(claim);
        });
        let claim = block_on(other.claim()).unwrap();
        inside.0.with_mut(|_| ());
        drop(claim);
        claimer.join();
    });
}

/// The first in line is offered the end and dropped: before the release, during the offer, or after. The
/// second must get it.
#[test]
fn a_dropped_claimer_passes_on() {
    model_within(3, || {
        let (tx, _rx) = channel::<u32>();
        let mut one = tx.share();
        let (mut first, mut second) = (one.clone(), one.clone());
        let claim = one.try_claim().unwrap();
        let mut waiting = Box::pin(first.claim());
        assert!(poll_once(waiting.as_mut()).is_none());
        let claimer = spawn(move || drop(block_on(second.claim()).unwrap()));
        drop(claim);
        drop(waiting);
        claimer.join();
    });
}

#[test]
fn a_claimer_dropped_elsewhere_passes_on() {
    model(|| {
        let (tx, _rx) = channel::<u32>();
        let mut one = tx.share();
        let (mut first, mut second) = (one.clone(), one.clone());
        let claim = one.try_claim().unwrap();
        let dropped = spawn(move || {
            let _ = try_once(first.claim());
        });
        let claimer = spawn(move || drop(block_on(second.claim()).unwrap()));
        drop(claim);
        dropped.join();
        claimer.join();
    });
}

/// The first in line is offered the end and not polled. Time passes elsewhere; the second must get the end.
#[test]
fn a_sleeper_is_passed_over() {
    model(|| {
        let (tx, _rx) = channel::<u32>();
        let mut one = tx.share();
        let (mut first, mut second) = (one.clone(), one.clone());
        let claim = one.try_claim().unwrap();
        let mut sleeping = Box::pin(first.claim());
        assert!(poll_once(sleeping.as_mut()).is_none());
        let claimer = spawn(move || drop(block_on(second.claim()).unwrap()));
        drop(claim);
        waits::advance(waits::tick().wrapping_add(PATIENCE_TICKS + 1));
        claimer.join();
        assert!(poll_once(sleeping.as_mut()).is_some(), "its place is still there");
    });
}

/// A claim holds back a lone send | the send proceeds when the claim ends, and a claimer after it.
#[test]
fn a_lone_send_beside_a_claim() {
    model_within(2, || {
        let (tx, mut rx) = channel();
        let mut one = tx.share();
        let mut other = one.clone();
        let lone = spawn(move || block_on(one.send(1)).unwrap());
        let claimer = spawn(move || {
            let mut claim = block_on(other.claim()).unwrap();
            block_on(claim.send(2)).unwrap();
        });
        let got = [block_on(rx.recv()).unwrap(), block_on(rx.recv()).unwrap()];
        assert!(got == [1, 2] || got == [2, 1], "{got:?}");
        lone.join();
        claimer.join();
    });
}

/// A claim of the receiving end holds back a lone receive; a value arrives, and the claim ends without taking
/// it.
#[test]
fn lone_receive_is_woken_when_the_claim_ends() {
    model(|| {
        let (mut tx, rx) = channel();
        let mut one = rx.share();
        let mut other = one.clone();
        let claim = one.try_claim().unwrap();
        let lone = spawn(move || block_on(other.recv()));
        let sender = spawn(move || block_on(tx.send(1)).unwrap());
        drop(claim);
        assert_eq!(lone.join(), Ok(1));
        sender.join();
    });
}

/// A claim as a branch beside a receive: exactly one of the two happens, and an unchosen claim holds nothing.
#[test]
fn a_claim_in_a_choice() {
    model(|| {
        let ((tx, _rx), (mut ty, mut ry)) = (channel::<u32>(), channel());
        let mut one = tx.share();
        let mut other = one.clone();
        let claim = one.try_claim().unwrap();
        let sender = spawn(move || block_on(ty.send(1)).is_ok());
        let chooser = spawn(move || {
            block_on(async {
                alt! { biased;
                    claim = other.claim() => { drop(claim.unwrap()); false }
                    got = ry.recv() => got.is_ok(),
                }
            })
        });
        drop(claim);
        let (sent, received) = (sender.join(), chooser.join());
        assert_eq!(sent, received);
        drop(one.try_claim().expect("the end is free and no claim is in line"));
    });
}

/// Two threads drop the last two handles: the channel ends once.
#[test]
fn the_last_handle_ends_the_channel() {
    model(|| {
        let (tx, mut rx) = channel::<u32>();
        let one = tx.share();
        let other = one.clone();
        let dropped = spawn(move || drop(one));
        let also = spawn(move || drop(other));
        assert_eq!(block_on(rx.recv()), Err(RecvError::Closed));
        dropped.join();
        also.join();
    });
}

/// A forgotten lone operation blocks others for no longer than its patience.
#[test]
fn a_forgotten_lone_send_loses_the_floor() {
    model(|| {
        let (tx, _rx) = channel();
        let mut one = tx.share();
        let (mut lone, mut other) = (one.clone(), one.clone());
        let claim = one.try_claim().unwrap();
        let count = Arc::new(AtomicU32::new(0));
        assert!(forget_after_one_poll(Box::pin(lone.send(1))).is_none());
        let mine = count.clone();
        let claimer = spawn(move || {
            drop(block_on(other.claim()).unwrap());
            mine.fetch_add(1, Relaxed);
        });
        drop(claim);
        waits::advance(waits::tick().wrapping_add(PATIENCE_TICKS + 1));
        claimer.join();
        assert_eq!(count.load(Relaxed), 1);
    });
}
