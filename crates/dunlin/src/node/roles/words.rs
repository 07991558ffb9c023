//! The messages between a member and the main node, which travel as [bytes](crate::node::words).

use std::time::Duration;

use bytes::Bytes;
use dunlin_core::{Call, ToClient, ToServer};
use dunlin_macros::Bundle;
use dunlin_proto::id::{Incarnation, Life, NodeId};
use serde::{Deserialize, Serialize};

use crate::node::peer::Peer;

/// The bundle between a member and the main node.
#[derive(Bundle)]
pub(crate) struct Membership {
    /// A [`Hello`], answered by [`Admitted`].
    pub(super) enrol: Call<Bytes, Bytes>,
    /// Each a [`Notice`].
    pub(super) notices: ToClient<Bytes>,
    /// An empty message: the member leaves.
    pub(super) leaves: ToServer<Bytes>,
}

/// A member introduces itself.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(super) name: String,
    pub(super) host: String,
    pub(super) process: u32,
}

/// The main node has admitted a member.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Admitted {
    pub(super) main: WireLife,
    pub(super) name: String,
    /// The other members.
    pub(super) members: Vec<(WireLife, String)>,
}

/// A notice from the main node to its members.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Notice {
    Joined(WireLife, String),
    Left(WireLife, bool),
    Closing(Duration),
}

/// A [`Peer`] in a message.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct WireLife([u8; 16], u64);

impl From<Peer> for WireLife {
    fn from(peer: Peer) -> Self {
        Self(peer.0.node.0.to_be_bytes(), peer.0.incarnation.0)
    }
}

impl From<WireLife> for Peer {
    fn from(life: WireLife) -> Self {
        Self(Life { node: NodeId(u128::from_be_bytes(life.0)), incarnation: Incarnation(life.1) })
    }
}
