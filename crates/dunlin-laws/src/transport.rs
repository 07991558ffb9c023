//! How the two ends of a channel are connected: what the laws are generic over.

use std::future::Future;
use std::pin::Pin;

use dunlin::{Callee, Caller, Policy, Portable, Receiver, Sender, call, channel_with};

use crate::kind::Kind;
use crate::rig::Rig;

/// Work that a transport does in the background.
pub type Background = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A thing that not every transport can do. A transport without it has a *hole* in the matrix.
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
    /// Futures that were forgotten.
    Forgetting,
    /// `len` of the sender counts what is buffered at the receiver.
    Len,
    /// `try_send` into a buffer that has room.
    TrySend,
    /// A panic of the policy reaches the sender.
    PolicyPanics,
    /// The wait records name both ends' channel.
    Waits,
    /// Values are moved, not copied: each is dropped once.
    Moved,
    /// What is buffered is values, not their bytes: it is dropped as values are.
    BufferedValues,
    /// Poison that may be too weak: the sending end reports whether it was.
    PoisonVerdict,
    /// A receiver that was made here goes to the other side.
    Stretched,
}

/// A way to connect the two ends of a channel.
pub trait Transport {
    /// As the table shows it.
    fn name(&self) -> &'static str;

    /// Makes a channel whose two ends are connected by this transport; background work, if it needs any, is
    /// given to `spawn`.
    fn channel<T: Portable>(&self, policy: Policy, spawn: &mut dyn FnMut(Background)) -> (Sender<T>, Receiver<T>);

    /// A receiver that was made on this side, with the other side in between.
    fn stretch<T: Portable>(&self, receiver: Receiver<T>, spawn: &mut dyn FnMut(Background)) -> Option<Receiver<T>> {
        let _ = (receiver, spawn);
        None
    }

    /// Whether its two sides are nodes: then any end goes to the other side in a message.
    fn has_nodes(&self) -> bool {
        false
    }

    /// The same as [`channel`](Self::channel), with the sender at this side, of two.
    fn channel_from<T: Portable>(
        &self,
        side: usize,
        policy: Policy,
        spawn: &mut dyn FnMut(Background),
    ) -> (Sender<T>, Receiver<T>) {
        let _ = side;
        self.channel(policy, spawn)
    }

    /// An end, or what holds ends, in a message from this side to the other; as it is, where there are no
    /// [nodes](Self::has_nodes).
    fn carry<E: Portable>(&self, end: E, side: usize) -> E {
        let _ = side;
        end
    }

    /// A call channel over this transport with the caller at this side, of two; if it has them.
    fn call_from<Q: Portable, A: Portable>(
        &self,
        side: usize,
        spawn: &mut dyn FnMut(Background),
    ) -> Option<(Caller<Q, A>, Callee<Q, A>)> {
        let _ = (side, spawn);
        None
    }

    /// A run of a law begins, with this seed, on this rig.
    fn begin(&self, rig: &Rig, seed: u64) {
        let _ = (rig, seed);
    }

    /// The run is over, and nothing of it is there any more.
    ///
    /// # Panics
    /// If the transport still has something of it.
    fn end(&self) {}

    /// Whether its runs move the clock of the wait records, which is the whole program's: then nothing runs
    /// beside them.
    fn moves_time(&self) -> bool {
        false
    }

    /// Under how many seeds at most a law runs.
    fn seeds_max(&self) -> u64 {
        u64::MAX
    }

    /// Why `feature` is missing with channels of this kind: the typed error that users see, and the test that
    /// shows it. `None`: it is there.
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
