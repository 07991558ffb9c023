//! The parts of a node that channels need: other nodes, what is kept for them, and the driver.

use bytes::Bytes;

use super::{HomeHears, ProxyHears};
use crate::account::{Announced, Charge};
use crate::config::Config;
use crate::connection::inbox::{Arrived, Begun};
use crate::connection::outbox::Recalled;
use crate::id::{ChannelId, Contact, NodeId, Ticket};
use crate::machine::Action;
use crate::misbehaved::PeerMisbehaved;
use crate::planted::planted;
use crate::source::Source;
use crate::wire::{Declaration, Frame, FromHome, Travel};

/// Whether an announced value may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// None of it is kept.
    Unkept,
    /// There is room for it.
    There,
    /// Others of its channel have to leave first.
    Full,
}

/// The other nodes, as the [channels](super::Channels) of this one use them.
///
/// No method ends the life of a connection: that settles channels, and the [machine](crate::Machine) does it
/// between two calls of theirs.
pub(crate) trait Peers {
    /// The settings of this node.
    fn config(&self) -> &Config;

    /// This node.
    fn here(&self) -> NodeId;

    /// Whether that node is this one.
    fn is_me(&self, node: NodeId) -> bool {
        node == self.here()
    }

    /// Passes an action to the driver.
    fn act(&mut self, action: Action);

    // Identity of the other nodes.

    /// That node, in the present life of the connection with it.
    fn contact(&self, node: NodeId) -> Contact;

    /// Whether that life of the connection is over, or has not begun.
    fn is_over(&self, contact: Contact) -> bool;

    /// Where a node, which may be this one, can be dialled, as sent to other nodes.
    fn addresses_of_any(&self, node: NodeId) -> Vec<String>;

    /// Another node has named that node as the place of an end. `false`: the source of that node has named
    /// too many nodes that were never met.
    #[must_use = "`false`: that node is not looked for"]
    fn hear_of(&mut self, node: NodeId, by: NodeId, addresses: &[String]) -> bool;

    /// Makes a connection, unless there is one.
    fn connect(&mut self, node: NodeId);

    /// A frame of that node has changed nothing.
    fn hears_nothing(&mut self, node: NodeId);

    /// Whether two declarations fit each other. That node has caused the comparison, and is charged for it.
    fn fit(&mut self, node: NodeId, here: &Declaration, there: &Declaration) -> bool;

    // Sending.

    /// Queues a frame for a node, which may be this one, and connects to it if there is no connection.
    fn say(&mut self, node: NodeId, frame: Frame);

    /// Recalls an offer that has not been written.
    fn recall(&mut self, node: NodeId, channel: ChannelId, ticket: Ticket) -> Recalled;

    /// The same, for a granted value, which may wait for room there.
    fn recall_grant(&mut self, node: NodeId, channel: ChannelId, ticket: Ticket) -> Recalled;

    /// Whether nothing of this offer has been written.
    fn is_unsent(&self, node: NodeId, channel: ChannelId, ticket: Ticket) -> bool;

    /// How many more bytes of values may be queued for that node on this channel.
    fn room_for(&self, node: NodeId, channel: ChannelId) -> u64;

    /// The sender of this channel waits for such room.
    fn is_short(&mut self, node: NodeId, channel: ChannelId);

    // Receiving, and what is kept.

    /// A value begins to arrive. Values of this node to itself arrive whole.
    fn begin_value(&mut self, from: NodeId, channel: ChannelId, value: Begun, first: Bytes) -> Arrived;

    /// The cost of a value that begins. Values of this node to itself cost nothing.
    ///
    /// `kept`: whether its bytes are kept. `stands`: whether it may be open beside the unannounced offers of
    /// its channel.
    fn charge(
        &mut self,
        from: NodeId,
        channel: ChannelId,
        total: u64,
        kept: bool,
        stands: bool,
    ) -> Result<Charge, PeerMisbehaved>;

    /// Releases the charge for a value. As [`consider`](Self::consider), if another one of its channel waits.
    fn give_back(
        &mut self,
        from: NodeId,
        channel: ChannelId,
        charge: Charge,
        place: impl FnOnce(Announced) -> Place,
    ) -> bool;

    /// Admits what that node has announced on this channel, if there is a `place` for it, and room. `true`:
    /// there would be room if a receive waited for it.
    fn consider(&mut self, from: NodeId, channel: ChannelId, place: impl FnOnce(Announced) -> Place) -> bool;

    /// A receive waits for what that node has announced on this channel.
    fn awaited(&mut self, from: NodeId, channel: ChannelId);

    /// The cost of a half of that node at its home. `None`: there is no room for it.
    fn attach(&mut self, node: NodeId) -> Option<Charge>;

    /// An end of this channel has arrived in a message from that node. The node's source is charged until the
    /// end [is over](Self::free_end) here; the program's own nodes are not charged. `None`: there is no room.
    fn pay_for_end(&mut self, channel: ChannelId, giver: Contact) -> Option<Option<Source>>;

    /// Such an end is over.
    fn free_end(&mut self, paid_by: Option<Source>);

    // Derived methods.

    /// Passes the driver of a home an event about the half at that node.
    fn hears(&mut self, channel: ChannelId, from: NodeId, heard: HomeHears) {
        let from = self.contact(from);
        self.act(Action::Home(channel, from, heard));
    }

    /// Passes an event to the driver of a sending half.
    fn proxy_hears(&mut self, channel: ChannelId, heard: ProxyHears) {
        self.act(Action::Proxy(channel, heard));
    }

    /// Sends a frame as the home of a channel.
    fn tell(&mut self, to: NodeId, channel: ChannelId, said: FromHome) {
        self.say(to, Frame::FromHome(channel, said));
    }

    /// Sends a frame that has a meaning only in that life of the connection.
    fn answer_unless_over(&mut self, to: Contact, frame: Frame) {
        if !self.is_over(to) {
            self.say(to.node, frame);
        }
    }

    /// Reports which node has an end to the node that gave it or took it. If that life of the connection is
    /// over, the end has been given up there.
    fn answer(&mut self, to: Contact, channel: ChannelId, said: Travel) {
        self.answer_unless_over(to, Frame::Travel(channel, said));
    }

    /// Whether the node that took an end is lost, and the end with it.
    fn has_lost_taker(&self, taker: Contact) -> bool {
        self.is_over(if planted!(TakersLifeIgnored) { self.contact(taker.node) } else { taker })
            && !planted!(LeftToNobody)
    }

    /// Whether the node that gave an end will never report that it is in use: it is lost, or is this one.
    fn is_silent(&self, giver: Contact) -> bool {
        self.is_over(giver) || self.is_me(giver.node)
    }
}
