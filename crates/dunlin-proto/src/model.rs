//! A machine without sockets, for exhaustive searches (`dunlin-models`).
//!
//! A connection is up from the start, and each frame goes from one machine to the other whole. So a search
//! covers the channels' own states, without handshakes. Sockets may be lost, and resume. The simulator covers
//! all other behaviour of connections.

use bytes::Bytes;

use crate::connection::{Carried, Down};
use crate::id::{ChannelId, Incarnation, NodeId, SocketId};
use crate::machine::Machine;
use crate::misbehaved::PeerMisbehaved;
use crate::time::Time;
use crate::wire::Frame;
use crate::wire::codec::{self, Next};

const NOW: Time = Time(0);

impl Machine {
    /// There is a connection to this node.
    pub fn model_up(&mut self, node: NodeId) {
        let connection = self.endpoint.connection(node);
        connection.was_up = true;
        connection.met = Some(Incarnation(1));
        connection.carried = Carried::By(SocketId(node.0 as u64));
    }

    /// The next frame for this node. Later frames can overtake one that is never fetched.
    pub fn model_next(&mut self, node: NodeId) -> Option<Frame> {
        let config = self.endpoint.config.clone();
        self.endpoint.connection(node).outbox.next_for_model(&config)
    }

    /// The next frame for this node, written on a socket: it is kept until it is acknowledged, and comes
    /// first if that socket is [lost](Self::model_resume).
    pub fn model_write(&mut self, node: NodeId) -> Option<Frame> {
        let config = self.endpoint.config.clone();
        let mut out = Vec::new();
        // Room for one.
        self.endpoint.connection(node).outbox.fill(NOW, None, &config, 1, &mut out);
        let bytes = Bytes::from(out.concat());
        match codec::next(&bytes).expect("it was written so") {
            Next::Frame { head, .. } => Some(codec::decode(bytes[0], bytes.slice(head..)).expect("it was written so")),
            Next::Wait(_) => None,
        }
    }

    /// How many frames that node has [written](Self::model_write) and this one has received.
    pub fn model_seen(&self, node: NodeId) -> u64 {
        self.endpoint.connections.get(node).map_or(0, |connection| connection.inbox.seen)
    }

    /// The socket to this node was lost with everything on it, and the next one carries the connection: that
    /// node has received `seen` frames. `false`: that is impossible.
    #[must_use = "`false`: the connection is over"]
    pub fn model_resume(&mut self, node: NodeId, seen: u64) -> bool {
        self.endpoint.connection(node).outbox.resume(seen)
    }

    /// Handles a frame.
    ///
    /// # Errors
    /// It breaks the protocol.
    pub fn model_hear(&mut self, node: NodeId, frame: Frame) -> Result<(), PeerMisbehaved> {
        self.hear(NOW, node, frame)
    }

    /// The connection to this node is over for good.
    pub fn model_lost(&mut self, node: NodeId) {
        self.die(NOW, node, Down::Unreachable(std::time::Duration::ZERO, String::new()));
    }

    /// Whether the lost connection to this node is to be made again.
    pub fn model_wants(&self, node: NodeId) -> bool {
        self.endpoint.connections.get(node).is_some_and(|connection| matches!(connection.carried, Carried::Lost { .. }))
    }

    /// The state of this channel, to tell states apart.
    pub fn model_state(&self, channel: ChannelId) -> String {
        let (home, proxy, visitor) = (
            self.channels.homes.get(&channel),
            self.channels.proxies.get(&channel),
            self.channels.visitors.get(&channel),
        );
        format!("{home:?}{proxy:?}{visitor:?}{:?}", self.channels.passing)
    }
}
