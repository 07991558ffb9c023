//! Which nodes may have connections with this one: the program decides in each handshake.

use std::sync::Arc;

use super::codec::catch;
use super::peer::Peer;
use crate::net::PeerIdentity;

/// A node that is about to have a connection with this one: see
/// [`NodeBuilder::authorize`](super::NodeBuilder::authorize).
#[derive(Clone, Debug)]
pub struct Applicant {
    pub(super) peer: Peer,
    pub(super) from: String,
    pub(super) dialled: Option<String>,
    pub(super) identity: Option<PeerIdentity>,
    pub(super) is_local: bool,
}

impl Applicant {
    /// The node. It has proved its id before the connection carries anything.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// What its socket reports of it, for people to read: over TCP, the address that it comes from.
    pub fn from(&self) -> &str {
        &self.from
    }

    /// Where this node has dialled it. `None`: it has dialled this node.
    pub fn dialled(&self) -> Option<&str> {
        self.dialled.as_deref()
    }

    /// What the network has verified of it. `None`: nothing, as over TCP, in memory and through a relay.
    pub fn identity(&self) -> Option<&PeerIdentity> {
        self.identity.as_ref()
    }

    /// Whether it is on this host, or in this program, and not behind a relay.
    pub fn is_local(&self) -> bool {
        self.is_local
    }
}

/// Whether the program admits a node.
#[derive(Clone)]
pub(super) struct Authorize(Arc<dyn Fn(&Applicant) -> bool + Send + Sync>);

impl Authorize {
    pub(super) fn new(admits: impl Fn(&Applicant) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(admits))
    }

    pub(super) fn admits(&self, applicant: &Applicant) -> bool {
        // A check that panics does not admit the node.
        catch(|| (self.0)(applicant)).unwrap_or(false)
    }
}
