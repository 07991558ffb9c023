//! A law, and the context in which it runs.

use std::fmt;

use dunlin::{Callee, Caller, Operation, Policy, Portable, Receiver, RecvError, Sender, Until, waits};

use crate::kind::Kind;
use crate::rig::{Hand, Rig, Task};
use crate::transport::{Feature, Transport};

/// A row of the matrix.
pub struct Law<X: Transport> {
    /// The name of its function.
    pub name: &'static str,
    /// The law, in one line.
    pub says: &'static str,
    /// The policies to which it applies.
    pub applies: fn(&Kind) -> bool,
    /// The features that the transport must have.
    pub needs: &'static [Feature],
    /// The maximum number of seeds it runs under: fewer for a slow law.
    pub seeds_max: u64,
    /// Why it keeps all handles of a shared end at one node, if the transport has nodes.
    pub one_node: Option<&'static str>,
    pub(crate) run: fn(&Cx<'_, X>),
}

impl<X: Transport> fmt::Debug for Law<X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.says)
    }
}

impl<X: Transport> Law<X> {
    pub(crate) fn new(name: &'static str, says: &'static str, applies: fn(&Kind) -> bool, run: fn(&Cx<'_, X>)) -> Self {
        Self { name, says, applies, needs: &[], seeds_max: u64::MAX, one_node: None, run }
    }

    pub(crate) fn needs(mut self, features: &'static [Feature]) -> Self {
        self.needs = features;
        self
    }

    pub(crate) fn at_one_node(mut self, because: &'static str) -> Self {
        self.one_node = Some(because);
        self
    }

    pub(crate) fn at_most(mut self, seeds: u64) -> Self {
        self.seeds_max = seeds;
        self
    }
}

/// `laws![applies; name: "the law in one line"; ...]`
macro_rules! laws {
    ($($name:ident if $applies:expr $(, needs [$($feature:ident),+])? $(, at most $seeds:literal)? $(, at one node: $because:literal)? => $says:literal;)+) => {
        vec![$(
            $crate::law::Law::new(stringify!($name), $says, $applies, $name::<X>)
                $(.needs(&[$($crate::transport::Feature::$feature),+]))?
                $(.at_most($seeds))?
                $(.at_one_node($because))?
        ),+]
    };
}
pub(crate) use laws;

/// The side at which a law shares an end, or creates a barrier or a broadcast.
pub const HERE: usize = 0;
/// The side opposite [`HERE`].
pub const THERE: usize = 1;

/// Applies to every policy.
pub(crate) fn all(_: &Kind) -> bool {
    true
}

/// The context of one run of a law: a transport, a policy, a seed.
pub struct Cx<'a, X: Transport> {
    /// The executor.
    pub rig: &'a Rig,
    /// How ends are connected.
    pub transport: &'a X,
    /// The policy of [`Cx::channel`].
    pub kind: &'a Kind,
}

impl<X: Transport> fmt::Debug for Cx<'_, X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cx").field("transport", &self.transport.name()).field("kind", &self.kind).finish()
    }
}

impl<'a, X: Transport> Cx<'a, X> {
    /// Creates a channel with the column's policy.
    pub fn channel<T: Portable>(&self) -> (Sender<T>, Receiver<T>) {
        self.channel_of(self.kind.policy.clone())
    }

    /// Creates a channel with this policy.
    pub fn channel_of<T: Portable>(&self, policy: impl Into<Policy>) -> (Sender<T>, Receiver<T>) {
        let ends = self.transport.channel(policy.into(), &mut |work| {
            self.rig.spawn_boxed(work);
        });
        self.rig.settle();
        ends
    }

    /// Moves a receiver that was created on this side to the other side.
    ///
    /// # Panics
    /// If the transport cannot do that: the law must declare that it needs [`Feature::Stretched`].
    pub fn stretch<T: Portable>(&self, receiver: Receiver<T>) -> Receiver<T> {
        let there = self.transport.stretch(receiver, &mut |work| {
            self.rig.spawn_boxed(work);
        });
        self.rig.settle();
        there.expect("the law must declare that it needs stretched receivers")
    }

    /// Creates a channel with the column's policy and the sender at `side` (0 or 1).
    pub fn channel_from<T: Portable>(&self, side: usize) -> (Sender<T>, Receiver<T>) {
        let ends = self.transport.channel_from(side, self.kind.policy.clone(), &mut |work| {
            self.rig.spawn_boxed(work);
        });
        self.rig.settle();
        ends
    }

    /// Moves an end that is at `side` to the other side, if the sides are nodes.
    pub fn carry<E: Portable>(&self, end: E, side: usize) -> E {
        let there = self.transport.carry(end, side);
        self.rig.settle();
        there
    }

    /// `N` handles of an end that was shared [here](HERE). Over nodes the seed decides which of them are at
    /// the other node; at least one is.
    pub fn handles<S: Portable + Clone, const N: usize>(&self, shared: S) -> [S; N] {
        if !self.transport.has_nodes() {
            return std::array::from_fn(|_| shared.clone());
        }
        let sure = self.below(N as u64) as usize;
        std::array::from_fn(|n| {
            let is_there = n == sure || self.below(2) == 0;
            if is_there { self.there(&shared) } else { shared.clone() }
        })
    }

    /// Another handle of an end that was shared [here](HERE), at the other side if that is a node.
    pub fn there<S: Portable + Clone>(&self, shared: &S) -> S {
        self.carry(shared.clone(), HERE)
    }

    /// Creates a call channel with the caller at `side` (0 or 1).
    ///
    /// # Panics
    /// If the transport has no call channels: the law must declare that it needs [`Feature::Calls`].
    pub fn call_from<Q: Portable, A: Portable>(&self, side: usize) -> (Caller<Q, A>, Callee<Q, A>) {
        let ends = self.transport.call_from(side, &mut |work| {
            self.rig.spawn_boxed(work);
        });
        self.rig.settle();
        ends.expect("the law must declare that it needs calls")
    }

    /// Creates a call channel.
    ///
    /// # Panics
    /// As [`Cx::call_from`].
    pub fn call<Q: Portable, A: Portable>(&self) -> (Caller<Q, A>, Callee<Q, A>) {
        let side = if self.transport.has_nodes() { self.below(2) as usize } else { HERE };
        self.call_from(side)
    }

    /// Takes a future in hand: only the law polls it.
    pub fn hand<F: Future>(&self, future: F) -> Hand<'a, F> {
        self.rig.hand(future)
    }

    /// As [`Cx::hand`], and polls it until it is no longer woken.
    pub fn begin<F: Future>(&self, future: F) -> Hand<'a, F> {
        let mut hand = self.rig.hand(future);
        hand.run();
        hand
    }

    /// Runs a future that needs no other task.
    ///
    /// # Panics
    /// If it waits.
    #[track_caller]
    pub fn now<F: Future>(&self, future: F) -> F::Output {
        self.rig.hand(future).out()
    }

    /// Runs a future as a task.
    pub fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> Task<'a, T> {
        self.rig.spawn(future)
    }

    /// Lets the tasks run.
    pub fn settle(&self) {
        self.rig.settle();
    }

    /// Whether the transport has this feature.
    pub fn can(&self, feature: Feature) -> bool {
        self.transport.hole(feature, self.kind).is_none()
    }

    /// A number below `n`.
    pub fn below(&self, n: u64) -> u64 {
        self.rig.below(n)
    }

    /// Sends as many values as there is room for, so that the next send waits or has the policy's outcome for
    /// a full channel. The values count up from 1000.
    pub fn fill(&self, tx: &mut Sender<u32>) -> Vec<u32> {
        let values: Vec<u32> = (0..self.kind.room.min(8) as u32).map(|n| 1000 + n).collect();
        for value in &values {
            self.now(tx.send(*value)).expect("there is room");
        }
        values
    }

    /// Receives all values that are available.
    pub fn drain<T>(&self, rx: &mut Receiver<T>) -> Vec<T> {
        let mut values = Vec::new();
        loop {
            self.rig.settle();
            match rx.try_recv() {
                Ok(value) => values.push(value),
                Err(RecvError::WouldBlock | RecvError::Closed) => return values,
                Err(other) => panic!("drained: {other:?}"),
            }
        }
    }

    /// Advances the clock by `ticks`.
    pub fn pass(&self, ticks: u32) {
        waits::advance(waits::tick().wrapping_add(ticks));
        self.rig.settle();
    }
}

/// `operation`, with a deadline that has passed already.
pub(crate) fn expired<O: Operation>(operation: O) -> Until<O, std::future::Ready<()>> {
    operation.until(std::future::ready(()))
}
