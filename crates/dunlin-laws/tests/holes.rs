//! The holes of the matrix: an operation that a transport does not support returns a typed error.

use dunlin::{Admit, Buffering, SendError, Why, drop_newest, fifo, rendezvous};
use dunlin_laws::{Feature, Full, Joined, Kind, Rig, Transport};

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
fn try_send_would_block_if_the_policy_is_remote() {
    let kind = Kind::new("drop(2)", drop_newest(2), 2, Full::DropsThis);
    assert!(Joined.hole(Feature::TrySend, &kind).is_some());
    let rig = Rig::new(0);
    let (mut tx, _rx) = ends(&rig, kind.policy);
    assert_eq!(tx.try_send(1), Err(SendError::NotTaken { value: 1, why: Why::WouldBlock }));
}

#[test]
fn len_of_the_senders_half_is_zero() {
    let kind = Kind::new("fifo(2)", fifo(2), 2, Full::Waits);
    assert!(Joined.hole(Feature::Len, &kind).is_some());
    let rig = Rig::new(0);
    let (mut tx, rx) = ends(&rig, kind.policy);
    assert_eq!(rig.hand(tx.send(1)).out(), Ok(()));
    assert_eq!((tx.len(), rx.len()), (0, 1));
}

#[test]
fn panicking_policy_of_a_remote_half_refuses() {
    let kind = Kind::new("panics", Panics, 1, Full::Refuses);
    assert!(Joined.hole(Feature::PolicyPanics, &kind).is_some());
    let rig = Rig::new(0);
    let (mut tx, _rx) = ends(&rig, kind.policy);
    assert_eq!(rig.hand(tx.send(1)).out(), Err(SendError::NotTaken { value: 1, why: Why::Refused }));
}

/// The receiver knows its channel's immunity: only the receiver, and later operations, show whether poison
/// was too weak.
#[test]
fn sender_does_not_know_the_immunity_of_its_channel() {
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
