//! The law matrix over two nodes in a simulation, and the typed errors of ends on two nodes.

mod support;

use std::sync::atomic::{AtomicU32, Ordering};

use dunlin::{Admit, Buffering, ClaimError, Overflow, RecvError, SendError, Why, fifo, rendezvous};
use dunlin_laws::{Feature, Full, Kind, Rig, Simulated, Transport, kinds, laws, run};
use serde::{Deserialize, Serialize};

/// Keeps the newest values: a user-defined policy.
#[derive(Clone)]
struct ShedLoad {
    high: usize,
}

impl Buffering for ShedLoad {
    fn admit(&mut self, queued: usize) -> Admit {
        if queued < self.high { Admit::Keep } else { Admit::DropOldest }
    }
}

dunlin::laws! {
    mod shed_load;
    policy: ShedLoad { high: 3 },
    room: 3,
    full: DropsOldest,
}

#[test]
fn two_nodes_in_a_simulation() {
    support::judge("simulated", &run(&Simulated::default(), &kinds(), &laws()));
}

/// A value for another node is encoded here and decoded there: both nodes drop one.
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

/// Another program does not have a user-defined policy, so the receiver of such a channel cannot move.
#[test]
fn receiver_with_a_user_defined_policy_cannot_move() {
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
        panic!("the receiver was sent")
    };
    drop((tx, rx, rig));
    transport.end();
}

/// `try_claim` does not wait, so it cannot ask the node that keeps the end. Once the claim is at this node,
/// it succeeds every time.
#[test]
fn try_claim_away_from_the_end_would_block() {
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

/// A receive at another node waits at that node's half.
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
