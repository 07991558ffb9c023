//! The holes of the matrix: what a transport cannot do ends in a typed error.

use dunlin::{Admit, Buffering, SendError, Why, fifo};
use dunlin_laws::{Feature, Joined, Rig, Transport};

#[derive(Clone)]
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
fn try_send_over_agents_would_block() {
    assert!(Joined.hole(Feature::TrySend).is_some());
    let rig = Rig::new(0);
    let (mut tx, _rx) = ends(&rig, fifo(2));
    assert_eq!(tx.try_send(1), Err(SendError::NotTaken { value: 1, why: Why::WouldBlock }));
}

#[test]
fn the_senders_half_has_no_len() {
    assert!(Joined.hole(Feature::Len).is_some());
    let rig = Rig::new(0);
    let (mut tx, rx) = ends(&rig, fifo(2));
    assert_eq!(rig.hand(tx.send(1)).out(), Ok(()));
    assert_eq!((tx.len(), rx.len()), (0, 1));
}

#[test]
fn a_policy_that_panics_far_away_refuses() {
    assert!(Joined.hole(Feature::PolicyPanics).is_some());
    let rig = Rig::new(0);
    let (mut tx, _rx) = ends(&rig, Panics);
    assert_eq!(rig.hand(tx.send(1)).out(), Err(SendError::NotTaken { value: 1, why: Why::Refused }));
}
