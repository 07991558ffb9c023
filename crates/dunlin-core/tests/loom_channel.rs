//! Loom: one sender and one receiver, in every order: the one-slot rendezvous, a rendezvous through the
//! queue, and a buffer of one.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p dunlin-core --test loom_channel`
#![cfg(loom)]

mod loom_support;

use dunlin_core::{Operation, Receiver, RecvError, SendError, Sender, Why, alt, channel, channel_with, fifo};
use loom_support::{block_on, forget_after_one_poll, model, poll_once, spawn, try_once};

type Ends = (Sender<u32>, Receiver<u32>);

fn plain() -> Ends {
    channel()
}

/// A rendezvous channel that already has a queue, created by an offer of a choice.
fn queued() -> Ends {
    let (mut tx, rx) = channel();
    let mut slot = Some(0);
    assert!(
        try_once(async {
            alt! { biased; r = tx.send_from(&mut slot) => r }
        })
        .is_none()
    );
    (tx, rx)
}

fn buffered() -> Ends {
    channel_with(fifo(1))
}

/// The outcomes of the two sides must place the value exactly once.
#[track_caller]
fn exactly_once(sent: Result<(), SendError<u32>>, received: Option<u32>) {
    match (sent, received) {
        (Ok(()), Some(7)) | (Err(SendError::NotTaken { value: 7, .. }), None) => {}
        other => panic!("a value lost or doubled: {other:?}"),
    }
}

/// Offer | watch, take | check the result, in all orders. Twice, because the second round finds a waker of
/// the first. Then the end of the sender races the third receive.
fn two_values_then_the_end((mut tx, mut rx): Ends) {
    let sender = spawn(move || {
        block_on(async {
            assert!(tx.send(1).await.is_ok());
            assert!(tx.send(2).await.is_ok());
        });
    });
    block_on(async {
        assert_eq!(rx.recv().await, Ok(1));
        assert_eq!(rx.recv().await, Ok(2));
        assert_eq!(rx.recv().await, Err(RecvError::Closed));
    });
    sender.join();
}

#[test]
fn rendezvous() {
    model(|| two_values_then_the_end(plain()));
}

/// As above with one value: the queue takes more steps.
fn one_value_then_the_end((mut tx, mut rx): Ends) {
    let sender = spawn(move || block_on(tx.send(1)).unwrap());
    assert_eq!(block_on(rx.recv()), Ok(1));
    assert_eq!(block_on(rx.recv()), Err(RecvError::Closed));
    sender.join();
}

#[test]
fn queued_rendezvous() {
    model(|| one_value_then_the_end(queued()));
}

/// The second send waits for room: a receive that makes room admits it and wakes it.
#[test]
fn buffered_waits_for_room() {
    model(|| {
        let (mut tx, mut rx) = buffered();
        tx.try_send(1).unwrap();
        let sender = spawn(move || block_on(tx.send(2)).unwrap());
        assert_eq!(block_on(rx.recv()), Ok(1));
        assert_eq!(block_on(rx.recv()), Ok(2));
        sender.join();
    });
}

/// The receiver is dropped before the offer, between offer and check, or after it took the value. The send
/// returns the value exactly if it was not taken.
fn receiver_dropped_races_send((mut tx, mut rx): Ends) {
    let receiver = spawn(move || try_once(rx.recv()).and_then(Result::ok));
    let sent = block_on(tx.send(7));
    exactly_once(sent, receiver.join());
}

#[test]
fn receiver_dropped() {
    model(|| receiver_dropped_races_send(plain()));
}

#[test]
fn queued_receiver_dropped() {
    model(|| receiver_dropped_races_send(queued()));
}

/// The sender is dropped while a receive watches or begins to: the receive gets the end.
fn sender_dropped_races_recv((tx, mut rx): Ends) {
    let sender = spawn(move || drop(tx));
    assert_eq!(block_on(rx.recv()), Err(RecvError::Closed));
    sender.join();
}

#[test]
fn sender_dropped() {
    model(|| sender_dropped_races_recv(plain()));
}

#[test]
fn queued_sender_dropped() {
    model(|| sender_dropped_races_recv(queued()));
}

/// A forgotten send leaves its offer standing, even if its sender is gone: it is taken before the end.
fn forgotten_send_is_taken((mut tx, mut rx): Ends) {
    let sender = spawn(move || assert!(forget_after_one_poll(tx.send(7)).is_none()));
    assert_eq!(block_on(rx.recv()), Ok(7));
    assert_eq!(block_on(rx.recv()), Err(RecvError::Closed));
    sender.join();
}

#[test]
fn sender_forgotten() {
    model(|| forgotten_send_is_taken(plain()));
}

#[test]
fn queued_sender_forgotten() {
    model(|| forgotten_send_is_taken(queued()));
}

/// A send behind a forgotten one is woken when that is taken, and then offers.
#[test]
fn send_waits_for_a_forgotten_one() {
    model(|| {
        let (mut tx, mut rx) = plain();
        assert!(forget_after_one_poll(tx.send(7)).is_none());
        let sender = spawn(move || block_on(tx.send(8)).unwrap());
        assert_eq!(block_on(rx.recv()), Ok(7));
        assert_eq!(block_on(rx.recv()), Ok(8));
        sender.join();
    });
}

/// Taken | withdrawn: the value is either in the slot or with the receiver.
fn withdraw_races_take((mut tx, mut rx): Ends) {
    let sender = spawn(move || {
        let mut slot = Some(7);
        let sent = try_once(tx.send_from(&mut slot));
        assert!(sent.is_none() || slot.is_none());
        slot
    });
    let received = block_on(rx.recv());
    match (sender.join(), received) {
        (Some(7), Err(RecvError::Closed)) | (None, Ok(7)) => {}
        other => panic!("a value lost or doubled: {other:?}"),
    }
}

#[test]
fn withdraw() {
    model(|| withdraw_races_take(plain()));
}

#[test]
fn queued_withdraw() {
    model(|| withdraw_races_take(queued()));
}

/// As above, but the receive is also dropped: the drop takes nothing, even if the receive was woken.
fn both_give_up((mut tx, mut rx): Ends) {
    let receiver = spawn(move || {
        let received = try_once(rx.recv()).and_then(Result::ok);
        (received, rx)
    });
    let mut slot = Some(7);
    let _ = try_once(tx.send_from(&mut slot));
    let (received, _rx) = receiver.join();
    assert_eq!(slot.is_none(), received.is_some(), "slot {slot:?}, received {received:?}");
}

#[test]
fn receive_dropped() {
    model(|| both_give_up(plain()));
}

#[test]
fn queued_receive_dropped() {
    model(|| both_give_up(queued()));
}

/// The deadline has already passed when the offer is made: the result is correct, whether or not the value is
/// taken meanwhile.
#[test]
fn deadline_races_take() {
    model(|| {
        let (mut tx, mut rx) = plain();
        let receiver = spawn(move || block_on(rx.recv()).ok());
        let sent = block_on(tx.send(7).until(std::future::ready(())));
        drop(tx);
        exactly_once(sent, receiver.join());
    });
}

/// Poison | offer, take: a value that was taken was sent; any other value is returned with the reason.
fn poison_races_send_and_recv((mut tx, mut rx): Ends) {
    let receiver = spawn(move || {
        let received = try_once(rx.recv()).and_then(Result::ok);
        rx.poison("on purpose");
        received
    });
    let sent = block_on(tx.send(7));
    if let Err(SendError::NotTaken { why, .. }) = &sent {
        assert!(matches!(why, Why::Poisoned(_)), "{why:?}");
    }
    exactly_once(sent, receiver.join());
}

#[test]
fn poison() {
    model(|| poison_races_send_and_recv(plain()));
}

#[test]
fn queued_poison() {
    model(|| poison_races_send_and_recv(queued()));
}

/// The sender poisons a receive that watches, which ends. Poison creates the queue under a parked receive.
#[test]
fn poison_wakes_the_receive() {
    model(|| {
        let (tx, mut rx) = plain();
        let sender = spawn(move || {
            tx.poison("on purpose");
            tx
        });
        assert!(matches!(block_on(rx.recv()), Err(RecvError::Poisoned(_))));
        drop(sender.join());
    });
}

/// Retire | offer, take: both sides end and agree on the value.
fn retire_races_send_and_recv((mut tx, mut rx): Ends) {
    let receiver = spawn(move || {
        let mut received = try_once(rx.recv()).and_then(Result::ok);
        rx.retire();
        if received.is_none() {
            received = rx.try_recv().ok();
        }
        (received, rx)
    });
    let sent = block_on(tx.send(7));
    let (received, _rx) = receiver.join();
    exactly_once(sent, received);
}

#[test]
fn retire() {
    model(|| retire_races_send_and_recv(plain()));
}

#[test]
fn queued_retire() {
    model(|| retire_races_send_and_recv(queued()));
}

/// An extended receive takes | the send is dropped, then its sender | release: the value is in one place, and
/// a waiting send completes only after the release.
fn extended_receive_races_sender_drop((mut tx, mut rx): Ends) {
    let sender = spawn(move || {
        let mut slot = Some(7);
        let _ = try_once(tx.send_from(&mut slot));
        slot
    });
    let received = block_on(rx.recv_extended()).map(|held| held.release());
    match (sender.join(), received) {
        (Some(7), Err(RecvError::Closed)) | (None, Ok(7)) => {}
        other => panic!("a value lost or doubled: {other:?}"),
    }
}

#[test]
fn extended_receive() {
    model(|| extended_receive_races_sender_drop(plain()));
}

#[test]
fn queued_extended_receive() {
    model(|| extended_receive_races_sender_drop(queued()));
}

fn release_lets_the_sender_go((mut tx, mut rx): Ends) {
    let released = std::sync::Arc::new(loom::sync::atomic::AtomicBool::new(false));
    let seen = released.clone();
    let sender = spawn(move || {
        block_on(tx.send(7)).unwrap();
        assert!(seen.load(loom::sync::atomic::Ordering::Relaxed), "the send ended before the release");
    });
    let held = block_on(rx.recv_extended()).unwrap();
    released.store(true, loom::sync::atomic::Ordering::Relaxed);
    assert_eq!(held.release(), 7);
    sender.join();
}

/// The deadline of a send passes while an extended receive holds its value: the send succeeds, and completes
/// after the release. If the value was not taken yet, the send returns it.
fn deadline_waits_for_the_release((mut tx, mut rx): Ends) {
    let released = std::sync::Arc::new(loom::sync::atomic::AtomicBool::new(false));
    let seen = released.clone();
    let receiver = spawn(move || {
        let held = block_on(rx.recv_extended()).ok()?;
        released.store(true, loom::sync::atomic::Ordering::Relaxed);
        Some(held.release())
    });
    let sent = block_on(tx.send(7).until(std::future::ready(())));
    assert!(sent.is_err() || seen.load(loom::sync::atomic::Ordering::Relaxed), "the send ended before the release");
    drop(tx);
    exactly_once(sent, receiver.join());
}

#[test]
fn release_after_the_deadline() {
    model(|| deadline_waits_for_the_release(plain()));
}

#[test]
fn queued_release_after_the_deadline() {
    model(|| deadline_waits_for_the_release(queued()));
}

#[test]
fn release() {
    model(|| release_lets_the_sender_go(plain()));
}

#[test]
fn queued_release() {
    model(|| release_lets_the_sender_go(queued()));
}

/// Sharing the receiver creates the queue under a send that is standing or about to begin.
#[test]
fn share_races_send() {
    model(|| {
        let (mut tx, rx) = plain();
        let sender = spawn(move || block_on(tx.send(7)).unwrap());
        let mut rx = rx.share();
        assert_eq!(block_on(rx.recv()), Ok(7));
        sender.join();
    });
}

/// Sharing the sender creates the queue under a receive that watches or is about to.
#[test]
fn share_races_recv() {
    model(|| {
        let (tx, mut rx) = plain();
        let receiver = spawn(move || block_on(rx.recv()));
        let mut tx = tx.share();
        block_on(tx.send(7)).unwrap();
        assert_eq!(receiver.join(), Ok(7));
    });
}

/// The queue is created while an extended receive holds the value. Sharing is impossible then, but poison is
/// not; it comes too late for the taken value.
#[test]
fn poison_races_release() {
    model(|| {
        let (mut tx, mut rx) = plain();
        let mut slot = Some(7);
        let mut send = Box::pin(tx.send_from(&mut slot));
        assert!(poll_once(send.as_mut()).is_none());
        let receiver = spawn(move || {
            let value = block_on(rx.recv_extended()).unwrap().release();
            rx.poison("on purpose");
            value
        });
        block_on(send).unwrap();
        assert_eq!(receiver.join(), 7);
    });
}

/// Waiting only for the end, on either side.
#[test]
fn closed_is_woken_by_the_end() {
    model(|| {
        let (mut tx, rx) = plain();
        let receiver = spawn(move || drop(rx));
        block_on(tx.closed());
        receiver.join();
    });
    model(|| {
        let (tx, mut rx) = plain();
        let sender = spawn(move || drop(tx));
        block_on(rx.closed());
        sender.join();
    });
}
