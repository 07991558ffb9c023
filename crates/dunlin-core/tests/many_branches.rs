//! Choices of many branches: when they register at their ends.
#![cfg(not(any(loom, shuttle)))]

mod common;

use std::future::IntoFuture;
use std::sync::Arc;

use common::{Wakes, poll, poll_woken};
use dunlin_core::{Choice, Receiver, Sender, alt, channel};

/// More branches than a choice registers without a second check.
const MANY: usize = 200;

fn channels(n: usize) -> (Vec<Sender<u8>>, Vec<Receiver<u8>>) {
    (0..n).map(|_| channel()).unzip()
}

#[test]
fn large_choice_finds_offers_before_it_registers() {
    let ((mut senders, mut receivers), wakes) = (channels(MANY), Arc::<Wakes>::default());
    let mut choice = Choice::fair().all(receivers.iter_mut().map(|rx| rx.recv())).into_future();
    assert!(poll_woken(&mut choice, &wakes).is_none());
    assert_eq!(wakes.take(), 1, "it has itself polled again");
    let mut sends: Vec<_> = senders.iter_mut().map(|tx| tx.send(7)).collect();
    sends.iter_mut().for_each(|send| assert!(poll(send).is_none()));
    assert_eq!(wakes.take(), 0, "it has registered nowhere");
    assert!(matches!(poll_woken(&mut choice, &wakes), Some((_, Ok(7)))));
    drop(choice);
    // The choices that follow also do, each in its first poll.
    for _ in 1..MANY {
        let mut choice = Choice::fair().all(receivers.iter_mut().map(|rx| rx.recv())).into_future();
        assert!(matches!(poll_woken(&mut choice, &wakes), Some((_, Ok(7)))));
    }
    assert_eq!(wakes.take(), 0);
}

#[test]
fn large_choice_registers_everywhere_after_its_second_check() {
    for sending in [0, 63, 64, 127, 128, MANY - 1] {
        let ((mut senders, mut receivers), wakes) = (channels(MANY), Arc::<Wakes>::default());
        let mut choice = Choice::fair().all(receivers.iter_mut().map(|rx| rx.recv())).into_future();
        assert!(poll_woken(&mut choice, &wakes).is_none());
        assert!(poll_woken(&mut choice, &wakes).is_none());
        assert_eq!(wakes.take(), 1, "for the second look, and no third");
        let mut send = senders[sending].send(7);
        assert!(poll(&mut send).is_none());
        assert_eq!(wakes.take(), 1);
        assert_eq!(poll_woken(&mut choice, &wakes), Some((sending, Ok(7))));
    }
}

#[test]
fn small_choice_registers_in_its_first_poll() {
    let ((mut tx, mut rx), (_ty, mut ry), wakes) = (channel(), channel::<u8>(), Arc::<Wakes>::default());
    let mut choice = Box::pin(async {
        alt! { v = rx.recv() => v, v = ry.recv() => v }
    });
    assert!(poll_woken(&mut choice, &wakes).is_none());
    let mut send = tx.send(7);
    assert!(poll(&mut send).is_none());
    assert_eq!(wakes.take(), 1);
    assert_eq!(poll_woken(&mut choice, &wakes), Some(Ok(7)));
}

#[test]
fn large_choice_takes_skip_in_its_first_poll() {
    let (_senders, mut receivers) = channels(MANY);
    let mut choice = Choice::fair().all(receivers.iter_mut().map(|rx| rx.recv())).skip(Ok(0)).into_future();
    assert_eq!(poll(&mut choice), Some((MANY, Ok(0))));
}
