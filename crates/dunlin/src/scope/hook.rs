//! Names that a rule gives to a node.
//!
//! A name's type is known where it is joined, and whether it can leave the program is known only there. So every joining brings along how a
//! node would be asked for it ([`Ask`]), if it can be: `#[process]` finds that out by itself, a call says `.portable()`.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;

#[cfg(feature = "net")]
use dunlin_core::Policy;

use super::error::ScopeError;
use super::names::FromScope;

#[cfg(feature = "net")]
pub(super) use rule::Rule;

/// The end, or the node's reason.
pub(crate) type Asked<E> = Pin<Box<dyn Future<Output = Result<E, ScopeError>> + Send>>;

/// How a node is asked for an end.
#[derive(Debug)]
pub struct Ask<E> {
    #[cfg(feature = "net")]
    pub(super) ask: fn(crate::node::Node, String, Policy) -> Asked<E>,
    #[cfg(not(feature = "net"))]
    never: PhantomData<fn() -> E>,
}

/// Whether, and how, a node can be asked for an end of type `E` is found by autoref: `(&&Probe::<E, K>::new()).ask()`.
#[derive(Debug)]
pub struct Probe<E, K>(PhantomData<fn() -> (E, K)>);

impl<E, K> Probe<E, K> {
    /// Of an end joined as `K`.
    #[expect(clippy::new_without_default, reason = "it is not made by hand")]
    pub fn new() -> Self {
        Self(PhantomData)
    }
}

/// The end stays in the program.
pub trait StaysHere<E: FromScope<K>, K> {
    /// A node cannot be asked for it.
    fn ask(&self) -> Option<Ask<E::End>> {
        None
    }
}

impl<E: FromScope<K>, K> StaysHere<E, K> for Probe<E, K> {}

#[cfg(feature = "net")]
mod rule {
    use std::sync::Arc;

    use dunlin_core::{Bundle, NoPoison, Portable, Receiver, Sender, Shared};

    use super::*;
    use crate::face::{ClientFace, ServerFace};
    use crate::node::Node;
    use crate::scope::names::{AsClient, AsReceiver, AsSender, AsServer};

    /// Which names are asked of which node.
    #[derive(Clone)]
    pub(in crate::scope) struct Rule {
        pub(in crate::scope) node: Node,
        pub(in crate::scope) fits: Arc<dyn Fn(&str) -> bool + Send + Sync>,
    }

    /// An end that a node can be asked for.
    #[diagnostic::on_unimplemented(
        message = "`{Self}` cannot be asked of a node",
        note = "what it carries must be `Portable`, to leave the program"
    )]
    pub trait Networked<K>: FromScope<K> {
        /// How.
        fn ask() -> Ask<Self::End>;
    }

    /// The end can be asked of a node.
    pub trait Leaves<E: FromScope<K>, K> {
        /// How.
        fn ask(&self) -> Option<Ask<E::End>>;
    }

    impl<E: Networked<K>, K> Leaves<E, K> for &Probe<E, K> {
        fn ask(&self) -> Option<Ask<E::End>> {
            Some(E::ask())
        }
    }

    macro_rules! networked {
        ($([$($generics:tt)*] $end:ty, $kind:ty, $node:ident, $name:ident, $policy:ident => $naming:expr;)*) => { $(
            impl<$($generics)*> Networked<$kind> for $end {
                fn ask() -> Ask<Self::End> {
                    Ask {
                        ask: |$node, $name, $policy| {
                            Box::pin(async move {
                                let naming = $naming;
                                let naming = if <Self as FromScope<$kind>>::SHARED { naming.shared() } else { naming };
                                Ok(naming.await?)
                            })
                        },
                    }
                }
            }
        )* };
    }

    networked! {
        [T: Portable] Sender<T>, AsSender, node, name, _policy => node.sender::<T>(&name);
        [T: Portable] Sender<T, NoPoison>, AsSender, node, name, _policy => node.sender::<T>(&name);
        [T: Portable] Shared<Sender<T>>, AsSender, node, name, _policy => node.sender::<T>(&name);
        [T: Portable] Receiver<T>, AsReceiver, node, name, policy => node.receiver::<T>(&name).policy(policy);
        [T: Portable] Receiver<T, NoPoison>, AsReceiver, node, name, policy => node.receiver::<T>(&name).policy(policy);
        [T: Portable] Shared<Receiver<T>>, AsReceiver, node, name, policy => node.receiver::<T>(&name).policy(policy);
    }

    impl<F> Networked<AsClient> for F
    where
        F: ClientFace<Bundle: Bundle<Client = F, Server: Portable> + 'static> + Portable,
    {
        fn ask() -> Ask<F> {
            Ask { ask: |node, name, _| Box::pin(async move { Ok(node.client::<F::Bundle>(&name).await?) }) }
        }
    }

    impl<F> Networked<AsServer> for F
    where
        F: ServerFace<Bundle: Bundle<Server = F, Client: Portable> + 'static> + Portable,
    {
        fn ask() -> Ask<F> {
            Ask { ask: |node, name, _| Box::pin(async move { Ok(node.server::<F::Bundle>(&name).await?) }) }
        }
    }
}

#[cfg(feature = "net")]
pub use rule::{Leaves, Networked};

/// How a node is asked for an end of this type joined as this kind, if it can be: for `#[process]`.
#[cfg(feature = "net")]
#[doc(hidden)]
#[macro_export]
macro_rules! __ask {
    ($end:ty, $kind:ty) => {{
        #[allow(unused_imports)]
        use $crate::__rt::{Leaves as _, StaysHere as _};
        (&&$crate::__rt::Probe::<$end, $kind>::new()).ask()
    }};
}

/// Without nodes none can be asked.
#[cfg(not(feature = "net"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __ask {
    ($end:ty, $kind:ty) => {{
        use $crate::__rt::StaysHere as _;
        $crate::__rt::Probe::<$end, $kind>::new().ask()
    }};
}
