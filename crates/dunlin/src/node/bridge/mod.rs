//! Bridges between the agents at this node's channels and the protocol machine: one for each channel that
//! reaches another node.
//!
//! A [`SendingBridge`] stands at the sender's half, where the core has an
//! [`Outlet`](dunlin_core::agent::Outlet) in the receiver's place; a [`ReceivingBridge`] at the receiver's
//! half, its home, and an [`AwayBridge`] at a home that its receiver has left before any value arrived there.
//! None of them keeps any state of the protocol: the machine keeps the open offers, the core the waiting
//! operations. Between them are only the values in flight, and their ends.

mod atomic;
mod away;
mod busy;
pub(in crate::node) mod link;
pub(in crate::node) mod linked;
mod receiving;
mod sending;
pub(in crate::node) mod words;

use std::sync::Arc;

use dunlin_proto::id::{ChannelId, NodeId};

use super::state::{Driver, NewReceiver, NewReceiverKind, NewSender, NewSenderKind, State};

pub(crate) use away::AwayBridge;
pub(crate) use receiving::ReceivingBridge;
pub(crate) use sending::SendingBridge;

impl Driver {
    /// Connects a sender of this node with `peer`, now or later.
    pub(super) fn stretch_sender(
        self: &Arc<Self>,
        state: &mut State,
        channel: ChannelId,
        peer: Option<NodeId>,
        sender: NewSender,
    ) {
        let NewSender { outlet, home, encoding, kind } = sender;
        let bridge = SendingBridge::new(outlet, home, encoding, false);
        let bridge = match kind {
            NewSenderKind::OfThisNode => bridge,
            NewSenderKind::Reply { value_max, first } => bridge.for_reply(value_max, first),
            NewSenderKind::Arrived { granted, is_reply, has_retired } => bridge.arrived(granted, is_reply, has_retired),
        };
        self.stretch(state, channel, peer, Box::new(bridge));
    }

    /// Connects a receiver of this node with `peer`, now or later.
    pub(super) fn stretch_receiver(
        self: &Arc<Self>,
        state: &mut State,
        channel: ChannelId,
        peer: Option<NodeId>,
        receiver: NewReceiver,
    ) {
        let NewReceiver { inlet, budget, credits, encoding, from, kind } = receiver;
        let bridge = ReceivingBridge::new(inlet, credits, budget, encoding, from);
        let bridge = match kind {
            NewReceiverKind::OfThisNode => bridge,
            NewReceiverKind::Reply => bridge.of_reply(),
            NewReceiverKind::Visiting => bridge.visiting(),
        };
        self.stretch(state, channel, peer, Box::new(bridge));
    }

    /// The receiver of a home here has left in a message to `peer`.
    pub(super) fn stretch_away(self: &Arc<Self>, state: &mut State, channel: ChannelId, peer: NodeId) {
        self.stretch(state, channel, Some(peer), Box::new(AwayBridge::default()));
    }
}
