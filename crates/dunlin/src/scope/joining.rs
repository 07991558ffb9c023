//! An end of a scope that is to be joined.

use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::panic::Location;

use dunlin_core::{End, NoPoison, Policy, Receiver, Sender, Shared};

use super::Scope;
use super::error::{At, ScopeError};
use super::names::{AsReceiver, AsSender, Ask, FromScope, Joined, Joining, Wanted};

/// An end that is to be joined: await it.
///
/// # Cancel safety
/// Dropped before it is ready, nothing has been joined.
#[must_use = "the end is joined when this is awaited"]
pub struct Join<E: FromScope<K>, K> {
    scope: Scope,
    wanted: Wanted,
    ask: Option<Ask<E::End>>,
    kind: PhantomData<fn() -> (E, K)>,
}

impl<E: FromScope<K>, K: 'static> Join<E, K> {
    pub(super) fn new(scope: &Scope, name: &str, at: At) -> Self {
        let wanted = Wanted { name: name.to_owned(), policy: None, at };
        Self { scope: scope.clone(), wanted, ask: None, kind: PhantomData }
    }

    /// Allows the end to come from another program: a [rule](Scope::network) of the scope may give the name
    /// to a node.
    #[cfg(feature = "net")]
    pub fn portable(self) -> Self
    where
        E::End: super::hook::Askable<K>,
    {
        Self { ask: Some(super::hook::Askable::ASK), ..self }
    }

    /// Shares this end: each process that joins it gets a handle, and it is left when all have left. All of
    /// them must declare it.
    pub fn shared(self) -> Join<Shared<E>, K>
    where
        E: End,
        Shared<E>: FromScope<K, End = E::End>,
    {
        Join { scope: self.scope, wanted: self.wanted, ask: self.ask, kind: PhantomData }
    }
}

/// What `#[process]` expands to.
#[doc(hidden)]
#[track_caller]
pub fn join<E: FromScope<K>, K: 'static>(scope: &Scope, name: &str) -> Join<E, K> {
    Join::new(scope, name, Location::caller())
}

macro_rules! policy_of {
    ($($end:ty, $kind:ty;)*) => { $(
        impl<T: Send + 'static> Join<$end, $kind> {
            /// The channel's policy, if it was not declared with the name. It may be declared with either
            /// end, and in one place only. For a name on the network only the receiver's policy counts.
            #[track_caller]
            pub fn policy(mut self, policy: impl Into<Policy>) -> Self {
                self.wanted.policy = Some((policy.into(), Location::caller()));
                self
            }
        }
    )* };
}

policy_of! {
    Sender<T>, AsSender;
    Sender<T, NoPoison>, AsSender;
    Shared<Sender<T>>, AsSender;
    Receiver<T>, AsReceiver;
    Receiver<T, NoPoison>, AsReceiver;
    Shared<Receiver<T>>, AsReceiver;
}

impl<E: FromScope<K>, K: 'static> IntoFuture for Join<E, K> {
    type Output = Result<E, ScopeError>;
    type IntoFuture = Joining<E>;

    fn into_future(self) -> Joining<E> {
        Box::pin(async move {
            let asking = match self.scope.join::<E, K>(&self.wanted, self.ask)? {
                Joined::Here(end) => return Ok(end),
                Joined::There(asking) => asking,
            };
            // A wait for a node does not keep the scope.
            drop((self.scope, self.wanted));
            asking.await
        })
    }
}

impl<E: FromScope<K>, K> fmt::Debug for Join<E, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Join").field("name", &self.wanted.name).field("face", &E::FACE).finish_non_exhaustive()
    }
}
