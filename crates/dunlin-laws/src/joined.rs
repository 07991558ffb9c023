//! The second transport: two half channels, joined in memory by a pair of agents.
//!
//! Only the agents' messages pass between the halves, so laws that hold here do not depend on memory that the
//! two ends share. It is the local stand-in for a connection between nodes.

use dunlin::agent::{Inlet, Outlet, calls, join};
use dunlin::{Callee, Caller, Policy, Portable, Receiver, Sender, channel, channel_with};

use crate::kind::{Full, Kind};
use crate::transport::{Background, Feature, Transport};

/// Two halves, joined by agents.
#[derive(Clone, Copy, Debug)]
pub struct Joined;

impl Transport for Joined {
    fn name(&self) -> &'static str {
        "agent"
    }

    fn channel<T: Portable>(&self, policy: Policy, spawn: &mut dyn FnMut(Background)) -> (Sender<T>, Receiver<T>) {
        let (sender, far) = channel();
        // The policy is at the channel's home, where the receiver is.
        let (near, receiver) = channel_with(policy);
        spawn(Box::pin(join(Outlet::new(far), Inlet::new(near))));
        (sender, receiver)
    }

    fn stretch<T: Portable>(&self, receiver: Receiver<T>, spawn: &mut dyn FnMut(Background)) -> Option<Receiver<T>> {
        let (near, there) = channel();
        spawn(Box::pin(join(Outlet::new(receiver), Inlet::new(near))));
        Some(there)
    }

    fn call_from<Q: Portable, A: Portable>(
        &self,
        side: usize,
        spawn: &mut dyn FnMut(Background),
    ) -> Option<(Caller<Q, A>, Callee<Q, A>)> {
        let (requests, asked) = self.channel_from(side, Policy::default(), spawn);
        Some(calls(requests, asked))
    }

    fn hole(&self, feature: Feature, kind: &Kind) -> Option<&'static str> {
        hole(feature, kind)
    }
}

/// The features that separate halves lack.
pub(crate) fn hole(feature: Feature, kind: &Kind) -> Option<&'static str> {
    match feature {
        Feature::Len => Some("the sender's len is of its own half: 0 (tests/holes.rs)"),
        // A FIFO and an unbounded buffer promise places to the sender's half.
        Feature::TrySend if kind.full != Full::Waits => {
            Some("Why::WouldBlock: the policy decides where the receiver is (tests/holes.rs)")
        }
        Feature::PoisonVerdict => {
            Some("`true`: what the channel is immune to is known at the receiver (tests/holes.rs)")
        }
        Feature::PolicyPanics => Some("Why::Refused: the policy is at the receiver (tests/holes.rs)"),
        _ => None,
    }
}
