//! What a simulation does to nodes.

use super::Node;
use crate::sim::Sim;

impl Sim {
    /// Ends the sockets between two nodes, in the midst of what is under way on them. They may dial again.
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

    /// A firewall: `from` cannot dial `to` until that is [allowed](Self::unblock). It is told so at once, or
    /// has no answer at all, as the seed says. Sockets that there are go on.
    pub fn block(&self, from: &Node, to: &Node) {
        self.network().block(from.host(), to.host());
    }

    /// Undoes [`block`](Self::block).
    pub fn unblock(&self, from: &Node, to: &Node) {
        self.network().unblock(from.host(), to.host());
    }
}
