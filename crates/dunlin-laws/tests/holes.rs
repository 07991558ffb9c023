//! The holes of the matrix: what a transport cannot do ends in a typed error.

use std::sync::atomic::{AtomicU32, Ordering};

use dunlin::{Admit, Buffering, ClaimError, Overflow, RecvError, SendError, Why, drop_newest, fifo, rendezvous};
use dunlin_laws::{Feature, Full, Joined, Kind, Rig, Simulated, Transport};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug)]
struct Panics;

impl Buffering for Panics {
    fn admit(&mut self, _: usize) -> Admit {
        panic!("the policy panics");
    }
}

fn ends(rig: &Rig, policy: impl Into<dunlin::Policy>) -> (dunlin::Sender<u8>, dunlin::Receiver<u8>) {
    let ends = Joined.channel(policy.into(), &mut |work| {
        rig.spawn_boxed(work);
    });
    rig.settle();
    ends
}

#[test]
fn try_send_to_a_policy_that_decides_far_away_would_block() {
    let kind = Kind::new("drop(2)", drop_newest(2), 2, Full::DropsThis);
    assert!(Joined.hole(Feature::TrySend, &kind).is_some());
    let rig = Rig::new(0);
    let (mut tx, _rx) = ends(&rig, kind.policy);
    assert_eq!(tx.try_send(1), Err(SendError::NotTaken { value: 1, why: Why::WouldBlock }));
}

#[test]
fn the_senders_half_has_no_len() {
    let kind = Kind::new("fifo(2)", fifo(2), 2, Full::Waits);
    assert!(Joined.hole(Feature::Len, &kind).is_some());
    let rig = Rig::new(0);
    let (mut tx, rx) = ends(&rig, kind.policy);
    assert_eq!(rig.hand(tx.send(1)).out(), Ok(()));
    assert_eq!((tx.len(), rx.len()), (0, 1));
}

#[test]
fn a_policy_that_panics_far_away_refuses() {
    let kind = Kind::new("panics", Panics, 1, Full::Refuses);
    assert!(Joined.hole(Feature::PolicyPanics, &kind).is_some());
    let rig = Rig::new(0);
    let (mut tx, _rx) = ends(&rig, kind.policy);
    assert_eq!(rig.hand(tx.send(1)).out(), Err(SendError::NotTaken { value: 1, why: Why::Refused }));
}

/// A value that another node receives is written, and read there: who drops it here and who drops it there drop two.
#[test]
fn a_value_crosses_as_a_copy() {
    static DROPS: AtomicU32 = AtomicU32::new(0);
    #[derive(Serialize, Deserialize)]
    struct Counts(u8);
    impl Drop for Counts {
        fn drop(&mut self) {
            DROPS.fetch_add(1, Ordering::Relaxed);
        }
    }
    let kind = Kind::new("fifo(2)", fifo(2), 2, Full::Waits);
    let (transport, rig) = (Simulated::default(), Rig::new(0));
    assert!(transport.hole(Feature::Moved, &kind).is_some());
    transport.begin(&rig, 0);
    let (mut tx, mut rx) = transport.channel(kind.policy, &mut |_| {});
    rig.settle();
    assert_eq!(rig.hand(tx.send(Counts(7))).out().map_err(|error| error.to_string()), Ok(()));
    assert_eq!(rig.hand(rx.recv()).out().map(|value| value.0), Ok(7));
    assert_eq!(DROPS.load(Ordering::Relaxed), 2);
    drop((tx, rx, rig));
    transport.end();
}

/// What a channel is immune to is known at its receiver: whether poison was too weak is heard there, and by what comes after.
#[test]
fn the_senders_half_does_not_know_what_the_channel_is_immune_to() {
    let kind = Kind::new("immune", rendezvous().immunity(3), 0, Full::Waits);
    assert!(Joined.hole(Feature::PoisonVerdict, &kind).is_some());
    let rig = Rig::new(0);
    let (tx, rx) = ends(&rig, kind.policy);
    assert!(tx.poison_with(3, "weak"), "asked for");
    rig.settle();
    assert!(!tx.is_closed() && !rx.is_closed() && !rx.poison_with(3, "weak"));
    assert!(tx.poison_with(4, "strong"));
    rig.settle();
    assert!(tx.is_closed() && rx.is_closed());
}

/// Another program does not have a policy of one's own, so the receiver of such a channel stays.
#[test]
fn a_policy_of_ones_own_keeps_its_receiver() {
    #[derive(Clone)]
    struct Own;
    impl Buffering for Own {
        fn admit(&mut self, _: usize) -> Admit {
            Admit::Keep
        }
    }
    let kind = Kind::new("own", Own, 1, Full::Refuses);
    let (transport, rig) = (Simulated::default(), Rig::new(0));
    assert!(transport.hole(Feature::Stretched, &kind).is_some());
    transport.begin(&rig, 0);
    let (mut tx, rx) = transport.channel::<dunlin::Receiver<u8>>(rendezvous(), &mut |_| {});
    rig.settle();
    let (_sender, receiver) = dunlin::channel_with::<u8>(kind.policy);
    let Err(SendError::NotTaken { why: Why::Unsendable(_), .. }) = rig.hand(tx.send(receiver)).out() else {
        panic!("it has gone")
    };
    drop((tx, rx, rig));
    transport.end();
}

/// It does not wait, so it cannot ask where the end is kept; when the claim is there it is granted, as often as one likes.
#[test]
fn a_claim_that_is_elsewhere_would_block_who_does_not_wait() {
    let (transport, rig) = (Simulated::default(), Rig::new(0));
    transport.begin(&rig, 0);
    let (tx, rx) = transport.channel_from::<u8>(0, rendezvous(), &mut |_| {});
    rig.settle();
    let here = tx.share();
    let mut there = transport.carry(here.clone(), 0);
    rig.settle();
    assert_eq!(there.try_claim().err(), Some(ClaimError::WouldBlock));
    rig.settle();
    assert_eq!(there.try_claim().err(), Some(ClaimError::WouldBlock), "it has not asked");
    drop(rig.hand(there.claim()).out().expect("granted"));
    assert!(there.try_claim().is_ok() && there.try_claim().is_ok());
    drop((here, there, rx, rig));
    transport.end();
}

/// Who waits elsewhere waits at a half of its own.
#[test]
fn receivers_elsewhere_are_not_bounded() {
    let (transport, rig) = (Simulated::default(), Rig::new(0));
    transport.begin(&rig, 0);
    let policy = rendezvous().pending_receivers(1, Overflow::Reject);
    let (tx, rx) = transport.channel_from::<u8>(1, policy, &mut |_| {});
    rig.settle();
    let mut here = rx.share();
    let (mut there, mut other) = (transport.carry(here.clone(), 0), here.clone());
    rig.settle();
    let (mut first, mut second) = (rig.hand(here.recv()), rig.hand(there.recv()));
    assert!(!first.run() && !second.run());
    assert_eq!(rig.hand(other.recv()).out(), Err(RecvError::Refused), "two are here");
    drop((first, second));
    drop((here, there, other, tx, rig));
    transport.end();
}
