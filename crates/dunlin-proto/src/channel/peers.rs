//! What channels need of the rest of a node: other nodes, what is kept for them, and the driver.

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

/// Whether an announced value may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// None of it is kept.
    Unkept,
    /// There is room for it.
    There,
    /// Others of its channel have to go first.
    Full,
}

/// The other nodes, as the [channels](super::Channels) of this one use them.
///
/// No method ends the life of a connection: that settles channels, and is for the [machine](crate::Machine)
/// to do between two calls of theirs.
pub(crate) trait Peers {
    /// The settings of this node.
    fn config(&self) -> &Config;

    /// This node.
    fn here(&self) -> NodeId;

    /// Whether that node is this one.
    fn is_me(&self, node: NodeId) -> bool {
        node == self.here()
    }

    /// Hands something to the driver.
    fn act(&mut self, action: Action);

    // Who the other nodes are.

    /// That node, in the present life of the connection with it.
    fn contact(&self, node: NodeId) -> Contact;

    /// Whether that life of the connection is over, or has not begun.
    fn is_over(&self, contact: Contact) -> bool;

    /// Where a node, which may be this one, can be dialled: what another node is told of it.
    fn addresses_of_any(&self, node: NodeId) -> Vec<String>;

    /// An end is at that node, by the word of another one. `false`: the source of that word has named too
    /// many nodes that were never met.
    #[must_use = "`false`: that node is not looked for"]
    fn hear_of(&mut self, node: NodeId, by: NodeId, addresses: &[String]) -> bool;

    /// Makes a connection, if there is none.
    fn connect(&mut self, node: NodeId);

    /// A frame of that node has changed nothing.
    fn hears_nothing(&mut self, node: NodeId);

    /// Whether two declarations fit each other. That node has asked, and pays for the comparison.
    fn fit(&mut self, node: NodeId, here: &Declaration, there: &Declaration) -> bool;

    // What is said to them.

    /// Queues a frame for a node, which may be this one. If there is no connection, one is made.
    fn say(&mut self, node: NodeId, frame: Frame);

    /// Takes an offer back that has not been written.
    fn recall(&mut self, node: NodeId, channel: ChannelId, ticket: Ticket) -> Recalled;

    /// The same, of a granted value, which may wait for room there.
    fn recall_grant(&mut self, node: NodeId, channel: ChannelId, ticket: Ticket) -> Recalled;

    /// Whether nothing of this offer has been written.
    fn is_unsent(&self, node: NodeId, channel: ChannelId, ticket: Ticket) -> bool;

    /// How many more bytes of values may be queued for that node on this channel.
    fn room_for(&self, node: NodeId, channel: ChannelId) -> u64;

    /// The sender of this channel waits for such room.
    fn is_short(&mut self, node: NodeId, channel: ChannelId);

    // What comes from them, and what is kept of it here.

    /// A value begins to arrive. What this node says to itself comes whole.
    fn begin_value(&mut self, from: NodeId, channel: ChannelId, value: Begun, first: Bytes) -> Arrived;

    /// What a value costs that begins. What this node says to itself costs nothing.
    ///
    /// `kept`: its bytes are. `stands`: it may stand beside what has been offered on its channel and not been
    /// announced.
    fn charge(
        &mut self,
        from: NodeId,
        channel: ChannelId,
        total: u64,
        kept: bool,
        stands: bool,
    ) -> Result<Charge, PeerMisbehaved>;

    /// A value is not kept any more. As [`consider`](Self::consider), if another one of its channel waits.
    fn give_back(
        &mut self,
        from: NodeId,
        channel: ChannelId,
        charge: Charge,
        place: impl FnOnce(Announced) -> Place,
    ) -> bool;

    /// What that node has announced on this channel may come, if there is a `place` for it, and room. `true`:
    /// there would be room if a receive waited for it.
    fn consider(&mut self, from: NodeId, channel: ChannelId, place: impl FnOnce(Announced) -> Place) -> bool;

    /// A receive waits for what that node has announced on this channel.
    fn awaited(&mut self, from: NodeId, channel: ChannelId);

    /// What a half of that node costs at its home. `None`: there is no room for it.
    fn attach(&mut self, node: NodeId) -> Option<Charge>;

    /// An end of this channel has come in a message from that node, whose source pays for it until it [is
    /// over](Self::free_end) here. The program's own nodes pay nothing. `None`: there is no room.
    fn pay_for_end(&mut self, channel: ChannelId, giver: Contact) -> Option<Option<Source>>;

    /// Such an end is over.
    fn free_end(&mut self, paid_by: Option<Source>);

    // What follows from these.

    /// Tells the driver of a home something of the half at that node.
    fn hears(&mut self, channel: ChannelId, from: NodeId, heard: HomeHears) {
        let from = self.contact(from);
        self.act(Action::Home(channel, from, heard));
    }

    /// Tells the driver of a sending half something.
    fn proxy_hears(&mut self, channel: ChannelId, heard: ProxyHears) {
        self.act(Action::Proxy(channel, heard));
    }

    /// Says something as the home of a channel.
    fn tell(&mut self, to: NodeId, channel: ChannelId, said: FromHome) {
        self.say(to, Frame::FromHome(channel, said));
    }

    /// Says something to a node that can hear it only in that life of the connection.
    fn answer_unless_over(&mut self, to: Contact, frame: Frame) {
        if !self.is_over(to) {
            self.say(to.node, frame);
        }
    }

    /// Says of an end which node has it, to the node that gave it or took it. If that life of the connection
    /// is over, the end has been given up there.
    fn answer(&mut self, to: Contact, channel: ChannelId, said: Travel) {
        self.answer_unless_over(to, Frame::Travel(channel, said));
    }

    /// Whether the node that took an end is lost, and the end with it.
    fn has_lost_taker(&self, taker: Contact) -> bool {
        self.is_over(if planted!(TakersLifeIgnored) { self.contact(taker.node) } else { taker })
            && !planted!(LeftToNobody)
    }

    /// Whether the node that gave an end will not say when it is in use: it is lost, or this one.
    fn is_silent(&self, giver: Contact) -> bool {
        self.is_over(giver) || self.is_me(giver.node)
    }
}
