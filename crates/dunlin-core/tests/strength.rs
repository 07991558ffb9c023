//! Poison with a strength, and channels that are immune to it: in one memory, and in two halves.
#![cfg(not(any(loom, shuttle)))]

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use dunlin_core::agent::{Inlet, Outlet, join};
use dunlin_core::{
    Reason, Receiver, RecvError, SendError, Sender, Strength, Why, broadcast_with, channel, channel_with, fifo,
    rendezvous,
};

fn poll<F: Future + ?Sized>(future: Pin<&mut F>) -> Option<F::Output> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

fn heard<T>(sent: Result<(), SendError<T>>) -> Option<Reason> {
    match sent {
        Err(SendError::NotTaken { why: Why::Poisoned(reason), .. }) => Some(reason),
        _ => None,
    }
}

#[test]
fn poison_up_to_the_immunity_has_no_effect() {
    for policy in [rendezvous(), fifo(1), fifo(1).pending_senders(1, dunlin_core::Overflow::Reject)] {
        let (mut tx, mut rx) = channel_with::<u8>(policy.immunity(3));
        for weak in 0..=3 {
            assert!(!tx.poison_with(weak, "weak") && !rx.poison_with(weak, "weak"));
        }
        assert!(!tx.is_closed() && !rx.is_closed());
        assert_eq!(rx.try_recv(), Err(RecvError::WouldBlock));
        assert!(rx.poison_with(4, "strong"));
        assert!(tx.poison_with(9, "too late"), "it is poisoned");
        let reason = heard(poll(pin!(tx.send(1))).unwrap()).unwrap();
        assert_eq!((reason.as_str(), reason.strength()), ("strong", Strength::from(4)));
        assert_eq!(rx.try_recv(), Err(RecvError::Poisoned(reason)));
    }
}

#[test]
fn poison_of_strength_zero_has_no_effect() {
    let (tx, _rx) = channel::<u8>();
    assert!(!tx.poison_with(0, "nothing") && tx.poison_with(1, "something"));
}

#[test]
fn nothing_is_immune_to_full_strength() {
    let (tx, mut rx) = channel_with::<u8>(rendezvous().immunity(Strength::FULL));
    assert!(!tx.poison_with(254, "weak"));
    tx.poison(Reason::from("passed on").of_strength(1));
    let Err(RecvError::Poisoned(reason)) = rx.try_recv() else { panic!("poison is of full strength") };
    assert_eq!((reason.strength(), format!("{reason:?}")), (Strength::FULL, "\"passed on\"".to_string()));
}

#[test]
fn reasons_differ_by_their_strength() {
    let weak = Reason::from("sick").of_strength(3);
    assert_ne!(weak, Reason::from("sick"));
    assert_eq!(weak, Reason::from("sick").of_strength(Strength::from(3)));
    assert_eq!(format!("{weak} {weak:?} {}", Strength::FULL), "sick \"sick\" (strength 3) full");
}

/// Sharing, cloning, claiming and retiring ends leaves the immunity in the tag unchanged.
#[test]
fn immunity_is_independent_of_the_rest_of_the_tag() {
    let (tx, rx) = channel_with::<u8>(rendezvous().immunity(170));
    let (tx, rx) = (tx.share(), rx.share());
    let (mut tx, rx) = (tx.clone(), rx.clone());
    let mut claim = tx.try_claim().unwrap();
    assert!(!claim.poison_with(170, "weak"));
    claim.retire();
    assert!(poll(pin!(claim.send(1))).unwrap().unwrap_err().is_closed());
    assert!(claim.poison_with(171, "strong") && rx.is_closed());
}

/// The task that carries between the two halves.
type Joint = Pin<Box<dyn Future<Output = ()>>>;

fn halves(immunity: u8) -> (Sender<u8>, Receiver<u8>, Joint) {
    let ((tx, far), (near, rx)) = (channel(), channel_with(fifo(1).immunity(immunity)));
    (tx, rx, Box::pin(join(Outlet::new(far), Inlet::new(near))))
}

#[test]
fn receivers_half_decides_whether_poison_is_too_weak() {
    let (mut tx, mut rx, mut carrier) = halves(3);
    assert_eq!(poll(carrier.as_mut()), None);
    assert!(tx.poison_with(3, "weak"), "asked for");
    assert!(!tx.is_closed());
    assert_eq!(poll(carrier.as_mut()), None);
    assert!(!tx.is_closed() && !rx.is_closed());
    assert_eq!(poll(pin!(tx.send(1))), Some(Ok(())));
    assert_eq!(poll(carrier.as_mut()), None);
    assert_eq!(rx.try_recv(), Ok(1));

    assert!(tx.poison_with(4, "strong"));
    assert!(!tx.is_closed(), "that is not known here");
    assert_eq!(poll(carrier.as_mut()), None);
    let reason = heard(poll(pin!(tx.send(2))).unwrap()).unwrap();
    assert_eq!(reason, Reason::from("strong").of_strength(4));
    assert_eq!(rx.try_recv(), Err(RecvError::Poisoned(reason)));

    let (tx, rx, mut carrier) = halves(3);
    assert!(!rx.poison_with(3, "weak") && rx.poison_with(4, "strong"));
    assert_eq!(poll(carrier.as_mut()), None);
    assert!(tx.is_closed());
}

#[test]
fn a_broadcast_is_immune_as_its_channels_are() {
    let (tx, joiner) = broadcast_with::<u8>(rendezvous().immunity(3));
    let (mut a, b) = (joiner.join(), joiner.join());
    assert!(!tx.poison_with(3, "weak") && !b.poison_with(3, "weak"));
    assert_eq!(a.try_recv(), Err(RecvError::WouldBlock));
    assert!(b.poison_with(4, "strong"));
    let reason = Reason::from("strong").of_strength(4);
    assert_eq!(a.try_recv(), Err(RecvError::Poisoned(reason)));
    assert!(tx.poison_with(4, "too late") && tx.is_closed());

    let (tx, joiner) = broadcast_with::<u8>(rendezvous().immunity(Strength::FULL));
    let mut a = joiner.join();
    assert!(!tx.poison_with(254, "weak"));
    tx.poison("now");
    assert_eq!(a.try_recv(), Err(RecvError::Poisoned("now".into())));
}
