//! Shuttle: more receivers on a shared end than a value wakes, which is two in a model. Some are dropped,
//! some take another branch, some are never polled again: no value waits beside a willing receiver.
//!
//! `RUSTFLAGS="--cfg shuttle" cargo test --release -p dunlin-core --test shuttle_crowd`
#![cfg(shuttle)]

mod shuttle_support;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::task::{Context, Waker};

use dunlin_core::{Policy, Receiver, Shared, alt, channel, channel_with, fifo, rendezvous, waits};
use shuttle::thread::{self, JoinHandle};
use shuttle_support::{block_on, check, join_all, try_once};

/// Receives until the channel ends.
fn receiver(mut rx: Shared<Receiver<u32>>) -> JoinHandle<u32> {
    thread::spawn(move || {
        let mut count = 0;
        while block_on(rx.recv()).is_ok() {
            count += 1;
        }
        count
    })
}

/// Receives once, unless its other branch happens.
fn chooser(mut rx: Shared<Receiver<u32>>) -> JoinHandle<u32> {
    let (mut other, mut ry) = channel_with::<u32>(fifo(1));
    let chooser = thread::spawn(move || {
        block_on(async {
            alt! { biased;
                _ = ry.recv() => 0,
                got = rx.recv() => u32::from(got.is_ok()),
            }
        })
    });
    other.try_send(1).unwrap();
    // Not dropped, because an ended channel would be ready, too.
    std::mem::forget(other);
    chooser
}

/// Polls once, and is dropped, woken or not.
fn passer_by(mut rx: Shared<Receiver<u32>>) -> JoinHandle<u32> {
    thread::spawn(move || u32::from(try_once(rx.recv()).is_some_and(|got| got.is_ok())))
}

fn crowd(policy: &Policy, sleepers: bool) {
    const VALUES: u32 = 3;
    let (tx, rx) = channel_with(policy.clone());
    let (tx, rx) = (tx.share(), rx.share());
    let mut first: Vec<_> = (0..3).map(|_| rx.clone()).collect();
    // Registered before all others, so woken before them.
    let mut parked: Vec<_> = first.iter_mut().map(|rx| Box::pin(rx.recv())).collect();
    for recv in &mut parked {
        let polled = Pin::new(recv).poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
    }
    let mut receivers = vec![receiver(rx.clone()), receiver(rx.clone()), chooser(rx.clone()), passer_by(rx.clone())];
    receivers.push(receiver(rx.clone()));
    let sent = Arc::new(AtomicU32::new(0));
    let senders = (0..2).map(|_| {
        let (mut tx, sent) = (tx.clone(), sent.clone());
        thread::spawn(move || {
            for value in 0..VALUES {
                block_on(tx.send(value)).unwrap();
            }
            sent.fetch_add(1, Relaxed);
        })
    });
    let senders: Vec<_> = senders.collect();
    drop(tx);
    if sleepers {
        // Only the clock gets past them.
        while sent.load(Relaxed) < 2 {
            waits::advance(waits::tick().wrapping_add(1));
            thread::yield_now();
        }
    } else {
        // Each passes its wake on, if it has one.
        parked.clear();
    }
    join_all(senders);
    let received: u32 = join_all(receivers).into_iter().sum();
    assert_eq!(received, 2 * VALUES);
    drop(parked);
}

#[test]
fn receivers_pass_unused_wakes_on() {
    check(4_000, || crowd(&rendezvous(), false));
}

#[test]
fn receivers_pass_unused_wakes_on_over_a_buffer() {
    check(4_000, || crowd(&fifo(2), false));
}

#[test]
fn receivers_that_are_not_polled_cost_a_tick() {
    check(2_000, || crowd(&rendezvous(), true));
}

/// A claim holds back more receivers than are woken at once; when it ends, all proceed, with a value each.
#[test]
fn a_claim_ends_before_more_receivers_than_are_woken_at_once() {
    check(4_000, || {
        let (mut tx, rx) = channel_with(fifo(5));
        let mut rx = rx.share();
        let mut handles: Vec<_> = (0..5).map(|_| rx.clone()).collect();
        let claim = rx.try_claim().unwrap();
        let receivers: Vec<_> =
            handles.drain(..).map(|mut rx| thread::spawn(move || block_on(rx.recv()).unwrap())).collect();
        (0..5).for_each(|value| tx.try_send(value).unwrap());
        drop(claim);
        let mut got = join_all(receivers);
        got.sort_unstable();
        assert_eq!(got, [0, 1, 2, 3, 4]);
    });
}

/// A choice offers to a crowd and to one more: it happens once, and no receiver waits beside a value.
#[test]
fn a_choice_offers_to_a_crowd() {
    check(3_000, || {
        let ((mut tx, rx), (mut ty, mut ry)) = (channel::<u32>(), channel::<u32>());
        let rx = rx.share();
        let mut receivers: Vec<_> = (0..4).map(|_| receiver(rx.clone())).collect();
        drop(rx);
        receivers.push(thread::spawn(move || u32::from(block_on(ry.recv()).is_ok())));
        let chose = thread::spawn(move || {
            let mut sent = 0;
            for _ in 0..3 {
                let (mut one, mut other) = (Some(1), Some(2));
                block_on(async {
                    alt! {
                        got = tx.send_from(&mut one) => sent += u32::from(got.is_ok()),
                        got = ty.send_from(&mut other) => sent += u32::from(got.is_ok()),
                    }
                });
            }
            sent
        });
        let sent = chose.join().unwrap();
        assert_eq!(join_all(receivers).into_iter().sum::<u32>(), sent);
    });
}
