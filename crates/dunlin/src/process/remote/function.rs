//! Functions that may be started at another node.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;

use dunlin_core::Portable;

use crate::Outcome;

/// A function that other nodes can start, once a node [offers](crate::node::Node::offer) it.
/// `#[dunlin::remote]` makes a type with the name of the function, which implements this.
pub trait RemoteFunction: 'static {
    /// Its parameters, as a tuple.
    type Arguments: Portable;
    /// What it returns.
    type Output: Portable + Outcome;
    /// Its path. Both programs must have the function at the same path.
    const NAME: &'static str;

    /// Calls it.
    fn run(arguments: Self::Arguments) -> impl Future<Output = Self::Output> + Send + 'static;
}

/// A call of a `#[dunlin::remote]` function as a value: nothing has run yet.
///
/// [`Node::spawn_on`](crate::node::Node::spawn_on) runs it at another node. Awaited, or given to
/// [`spawn`](crate::spawn()), it runs here.
#[must_use = "the function does not run until its call is awaited, spawned, or started at another node"]
pub struct RemoteCall<F: RemoteFunction> {
    pub(super) arguments: F::Arguments,
}

impl<F: RemoteFunction> RemoteCall<F> {
    /// A call with these arguments. Calling the function does the same.
    pub fn new(arguments: F::Arguments) -> Self {
        Self { arguments }
    }

    /// The arguments.
    pub fn into_arguments(self) -> F::Arguments {
        self.arguments
    }
}

impl<F: RemoteFunction> IntoFuture for RemoteCall<F> {
    type Output = F::Output;
    type IntoFuture = Pin<Box<dyn Future<Output = F::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(F::run(self.arguments))
    }
}

impl<F: RemoteFunction> fmt::Debug for RemoteCall<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RemoteCall").field(&F::NAME).finish()
    }
}
