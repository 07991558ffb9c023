//! How the two ends of a channel are connected; the laws are generic over it.

use std::future::Future;
use std::pin::Pin;

use dunlin::{Callee, Caller, Policy, Portable, Receiver, Sender, call, channel_with};

use crate::kind::Kind;
use crate::rig::Rig;

/// Background work of a transport.
pub type Background = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A capability that not every transport has. A transport without it has a *hole* in the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Feature {
    /// Branches of choices.
    Choice,
    /// Shared ends.
    Shared,
    /// Extended receives.
    Extended,
    /// Call channels.
    Calls,
    /// Futures that are forgotten (`mem::forget`).
    Forgetting,
    /// `len` of the sender counts the values that are buffered at the receiver.
    Len,
    /// `try_send` into a buffer that has room.
    TrySend,
    /// A panic of the policy propagates to the sender.
    PolicyPanics,
    /// The wait records name the channel of both ends.
    Waits,
    /// Values are moved, not copied: each is dropped once.
    Moved,
    /// The buffer holds values, not their bytes, and drops them as values.
    BufferedValues,
    /// The sending end reports whether its poison was too weak.
    PoisonVerdict,
    /// A receiver that was created here can move to the other side.
    Stretched,
}

/// A way to connect the two ends of a channel.
pub trait Transport {
    /// Its name in the table.
    fn name(&self) -> &'static str;

    /// Creates a channel whose two ends are connected by this transport. Background work, if it needs any, is
    /// passed to `spawn`.
    fn channel<T: Portable>(&self, policy: Policy, spawn: &mut dyn FnMut(Background)) -> (Sender<T>, Receiver<T>);

    /// Moves a receiver that was created on this side to the other side, if the transport can.
    fn stretch<T: Portable>(&self, receiver: Receiver<T>, spawn: &mut dyn FnMut(Background)) -> Option<Receiver<T>> {
        let _ = (receiver, spawn);
        None
    }

    /// Whether the two sides are nodes: then a message can carry any end to the other side.
    fn has_nodes(&self) -> bool {
        false
    }

    /// As [`channel`](Self::channel), with the sender at `side` (0 or 1).
    fn channel_from<T: Portable>(
        &self,
        side: usize,
        policy: Policy,
        spawn: &mut dyn FnMut(Background),
    ) -> (Sender<T>, Receiver<T>) {
        let _ = side;
        self.channel(policy, spawn)
    }

    /// Moves an end, or a value that holds ends, from `side` to the other side in a message. Without
    /// [nodes](Self::has_nodes) it returns the end unchanged.
    fn carry<E: Portable>(&self, end: E, side: usize) -> E {
        let _ = side;
        end
    }

    /// Creates a call channel with the caller at `side` (0 or 1), if the transport has call channels.
    fn call_from<Q: Portable, A: Portable>(
        &self,
        side: usize,
        spawn: &mut dyn FnMut(Background),
    ) -> Option<(Caller<Q, A>, Callee<Q, A>)> {
        let _ = (side, spawn);
        None
    }

    /// Starts a run of a law with this seed on this rig.
    fn begin(&self, rig: &Rig, seed: u64) {
        let _ = (rig, seed);
    }

    /// Ends the run; no state of it may remain.
    ///
    /// # Panics
    /// If the transport still holds state of the run.
    fn end(&self) {}

    /// Whether its runs advance the clock of the wait records. The whole program shares that clock, so
    /// nothing else runs at the same time.
    fn moves_time(&self) -> bool {
        false
    }

    /// The maximum number of seeds that a law runs under.
    fn seeds_max(&self) -> u64 {
        u64::MAX
    }

    /// Why `feature` is missing for channels of this kind: the typed error that users get, and the test that
    /// shows it. `None` if the feature is present.
    fn hole(&self, feature: Feature, kind: &Kind) -> Option<&'static str> {
        let _ = (feature, kind);
        None
    }
}

/// Both ends in one program.
#[derive(Clone, Copy, Debug)]
pub struct Local;

impl Transport for Local {
    fn name(&self) -> &'static str {
        "local"
    }

    fn channel<T: Portable>(&self, policy: Policy, _: &mut dyn FnMut(Background)) -> (Sender<T>, Receiver<T>) {
        channel_with(policy)
    }

    fn stretch<T: Portable>(&self, receiver: Receiver<T>, _: &mut dyn FnMut(Background)) -> Option<Receiver<T>> {
        Some(receiver)
    }

    fn call_from<Q: Portable, A: Portable>(
        &self,
        _: usize,
        _: &mut dyn FnMut(Background),
    ) -> Option<(Caller<Q, A>, Callee<Q, A>)> {
        Some(call())
    }
}
