//! Names that a rule gives to a node.
//!
//! A name's type, and whether it can leave the program, is known only where the name is joined. So a join of
//! an end that may come from a node declares that it is portable, and includes how to request it from a node
//! ([`Ask`](super::names::Ask)).

#[cfg(feature = "net")]
pub use rule::Askable;
#[cfg(feature = "net")]
pub(super) use rule::Rule;

#[cfg(feature = "net")]
mod rule {
    use std::sync::Arc;

    use dunlin_core::{Bundle, Portable, Receiver, Sender};

    use crate::face::{ClientFace, ServerFace};
    use crate::node::Node;
    use crate::scope::names::{AsClient, AsReceiver, AsSender, AsServer, Ask};

    /// Which names are requested from which node.
    #[derive(Clone)]
    pub(in crate::scope) struct Rule {
        pub(in crate::scope) node: Node,
        pub(in crate::scope) fits: Arc<dyn Fn(&str) -> bool + Send + Sync>,
    }

    /// An end that can be requested from a node.
    #[diagnostic::on_unimplemented(
        message = "`{Self}` cannot be requested from a node",
        note = "its messages must be `Portable` to leave the program"
    )]
    pub trait Askable<K>: Sized {
        /// How to request it.
        #[doc(hidden)]
        const ASK: Ask<Self>;
    }

    macro_rules! ask {
        (|$node:ident, $name:ident, $policy:ident| $naming:expr) => {
            |$node, $name, $policy, shared| {
                Box::pin(async move {
                    let naming = $naming;
                    Ok(if shared { naming.shared_here() } else { naming }.await?)
                })
            }
        };
    }

    impl<T: Portable> Askable<AsSender> for Sender<T> {
        const ASK: Ask<Self> = ask!(|node, name, _policy| node.sender::<T>(&name));
    }

    impl<T: Portable> Askable<AsReceiver> for Receiver<T> {
        const ASK: Ask<Self> = ask!(|node, name, policy| node.receiver::<T>(&name).policy(policy));
    }

    impl<F> Askable<AsClient> for F
    where
        F: ClientFace<Bundle: Bundle<Client = F, Server: Portable> + 'static> + Portable,
    {
        const ASK: Ask<Self> = ask!(|node, name, _policy| node.client::<F::Bundle>(&name));
    }

    impl<F> Askable<AsServer> for F
    where
        F: ServerFace<Bundle: Bundle<Server = F, Client: Portable> + 'static> + Portable,
    {
        const ASK: Ask<Self> = ask!(|node, name, _policy| node.server::<F::Bundle>(&name));
    }
}
