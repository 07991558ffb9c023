//! A machine without sockets: what exhaustive searches (`dunlin-models`) drive.
//!
//! A connection is up from the start and each frame goes from one machine to the other as a whole; so a search sees the channels' own
//! states and no handshakes. How connections behave is the simulator's.

use crate::connection::{Carried, Down};
use crate::id::{ChannelId, Incarnation, NodeId, SocketId};
use crate::machine::Machine;
use crate::time::Time;
use crate::wire::Frame;

const NOW: Time = Time(0);

impl Machine {
    /// There is a connection to this node.
    pub fn model_up(&mut self, node: NodeId) {
        let connection = self.connection(node);
        connection.was_up = true;
        connection.met = Some(Incarnation(1));
        connection.carried = Carried::By(SocketId(node.0 as u64));
    }

    /// The next frame for this node. What is never asked for can be overtaken by what is said later.
    pub fn model_next(&mut self, node: NodeId) -> Option<Frame> {
        let config = self.config.clone();
        self.connection(node).outbox.next_for_model(&config)
    }

    /// A frame has come.
    ///
    /// # Errors
    /// It breaks the protocol.
    pub fn model_hear(&mut self, node: NodeId, frame: Frame) -> Result<(), &'static str> {
        self.hear(NOW, node, frame)
    }

    /// The connection to this node is over for good.
    pub fn model_lost(&mut self, node: NodeId) {
        self.die(NOW, node, Down::Unreachable(std::time::Duration::ZERO, String::new()));
    }

    /// Whether the connection to this node, which is lost, is wanted again.
    pub fn model_wants(&self, node: NodeId) -> bool {
        self.connections.get(&node).is_some_and(|connection| matches!(connection.carried, Carried::Lost { .. }))
    }

    /// What is known of this channel, to tell states apart.
    pub fn model_state(&self, channel: ChannelId) -> String {
        let (home, proxy, visitor) =
            (self.homes.get(&channel), self.proxies.get(&channel), self.visitors.get(&channel));
        format!("{home:?}{proxy:?}{visitor:?}{:?}", self.passing)
    }
}
