//! Faults that a simulation injects into nodes.

use super::Node;
use crate::sim::Sim;

impl Sim {
    /// Ends the sockets between two nodes, with bytes in transit. They may dial again.
    pub fn cut(&self, one: &Node, other: &Node) {
        self.network().cut(one.host(), other.host());
    }

    /// Parts two nodes: their sockets end, and they cannot dial each other until they are
    /// [healed](Self::heal).
    pub fn part(&self, one: &Node, other: &Node) {
        self.network().part(one.host(), other.host());
        self.cut(one, other);
    }

    /// Undoes [`part`](Self::part).
    pub fn heal(&self, one: &Node, other: &Node) {
        self.network().heal(one.host(), other.host());
    }

    /// A firewall: `from` cannot dial `to` until that is [allowed](Self::unblock). The seed decides whether a
    /// dial is refused at once or gets no answer. Existing sockets stay.
    pub fn block(&self, from: &Node, to: &Node) {
        self.network().block(from.host(), to.host());
    }

    /// Undoes [`block`](Self::block).
    pub fn unblock(&self, from: &Node, to: &Node) {
        self.network().unblock(from.host(), to.host());
    }
}
