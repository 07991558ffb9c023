//! One node's half of the protocol: events enter by method calls, and [`Action`]s come out.
//!
//! [`Channels`] handles what concerns channels alone, the [`Endpoint`] what concerns other nodes alone. The
//! machine itself has the methods for its driver, and everything that may end the life of a connection, since
//! that settles channels.

mod action;
mod channels;
mod dialling;
mod endpoint;
mod frames;
mod handshake;
mod lives;
mod memory;
pub(crate) mod socket_table;
mod sockets;
mod unfinished;

use std::sync::Arc;

use crate::channel::Channels;
use crate::channel::Peers;
use crate::config::Config;
use crate::connection::{Carried, Connection, Down, Traffic};
use crate::id::{ConnectionId, Contact, Incarnation, Life, NodeId, SocketId};
use crate::identity::Identity;
use crate::misbehaved::PeerMisbehaved;
use crate::relay::streams::is_relayed;
use crate::source::Source;
use crate::time::Time;
use crate::wire::handshake::Refusal;
use crate::wire::{Frame, limits};
pub use action::{Action, Closed, Declined, Replied};
pub(crate) use endpoint::Endpoint;
use socket_table::Wanted;

/// How many records a machine holds. At rest, only those in use count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Census {
    /// Channels whose receiver is here.
    pub homes: usize,
    /// Nodes that are attached to them.
    pub attached: usize,
    /// Sending halves here whose home is elsewhere.
    pub proxies: usize,
    /// Offers that are not settled, at homes and proxies.
    pub offers: usize,
    /// Receivers that have arrived here and are not used yet.
    pub visitors: usize,
    /// Ends in messages that pass through this node and have not been taken.
    pub passing: usize,
    /// Replies that this node waits for, and places for replies to other nodes.
    pub replies: usize,
    /// Values whose remaining pieces have not arrived.
    pub unfinished: usize,
    /// Channels, and frames in the control lane, with something still to write.
    pub unsaid: usize,
    /// Bytes that are kept because they may have to be retransmitted.
    pub unacked_bytes: usize,
    /// Sockets of any kind, except relayed ones.
    pub sockets: usize,
    /// Sockets of this node that others relay.
    pub relayed: usize,
    /// Sockets between others that this node relays.
    pub relays: usize,
    /// Numbered frames received on the present connections. While this stays constant, no peer sends this
    /// node anything.
    pub heard: u64,
    /// Other nodes: those that this node is connected with, wants to reach, or has addresses of.
    pub nodes: usize,
    /// How often this node examined the record of another node because a deadline passed or while searching
    /// for others, or a half of a channel because the life of a connection ended. An event of one node costs
    /// the same however many other nodes and halves there are, or were.
    pub visited: u64,
}

/// One node's half of the protocol.
///
/// Each method passes in an event, and [`poll`](Self::poll) returns the actions for the driver. The machine
/// does no I/O and reads no clock: the same events with the same seed have the same results.
#[derive(Clone, Debug)]
pub struct Machine {
    pub(crate) channels: Channels,
    pub(crate) endpoint: Endpoint,
}

impl Machine {
    /// A node that knows no other node. Its id is that of its key.
    ///
    /// # Panics
    /// If [`Config::check`] fails, the id or the incarnation is zero (on the wire, zero means unknown), or
    /// the key is empty or longer than [`limits::KEY`].
    pub fn new(config: Config, incarnation: Incarnation, seed: u64, identity: Arc<dyn Identity>) -> Self {
        if let Err(why) = config.check() {
            panic!("a machine cannot work with its settings: {why}");
        }
        let key = identity.key();
        assert!(key.len() <= limits::KEY, "a key of {} bytes; at most {} are allowed", key.len(), limits::KEY);
        let node = identity.id_of(&key).expect("a node's own key is one");
        let me = Life { node, incarnation };
        assert!(node != NodeId(0) && incarnation != Incarnation(0), "a node and its incarnation are not zero");
        Self { channels: Channels::default(), endpoint: Endpoint::new(config, me, seed, identity) }
    }

    /// The id and incarnation of this node.
    pub fn me(&self) -> Life {
        self.endpoint.me
    }

    /// A later incarnation of this node, which another node has met: this one is
    /// [replaced](Config::keeps_id). All its connections have ended ([`Down::Refused`], with
    /// [`Refusal::Stale`]), and it makes no more.
    pub fn replaced_by(&self) -> Option<Incarnation> {
        self.endpoint.replaced
    }

    /// Where others can dial this node.
    pub fn addresses_here(&self) -> &[String] {
        &self.endpoint.config.addresses
    }

    /// The largest encoded value that this node accepts, in bytes.
    pub fn value_max(&self) -> u64 {
        self.endpoint.config.value_max as u64
    }

    /// The next action, if there is one.
    pub fn poll(&mut self) -> Option<Action> {
        while self.endpoint.actions.is_empty()
            && let Some((now, frame)) = self.endpoint.said_here.pop_front()
        {
            let channel = frame.channel();
            if self.hear(now, self.endpoint.me.node, frame).is_err()
                && let Some(channel) = channel
            {
                // Only a false report of another node about the channel can have led here: the half is lost.
                let (channels, peers) = self.at(now);
                channels.lose_proxy(peers, channel);
            }
        }
        let next = self.endpoint.actions.pop_front();
        if next.is_some() {
            return next;
        }
        self.forget_unused();
        self.endpoint.actions.pop_front()
    }

    /// Removes the records of nodes that this one no longer deals with.
    fn forget_unused(&mut self) {
        while let Some(node) = self.endpoint.connections.take_resting() {
            if self.endpoint.connections.get(node).is_some_and(Connection::is_unused) {
                self.forget(node);
            }
        }
    }

    fn forget(&mut self, node: NodeId) {
        let Some(connection) = self.endpoint.connections.remove(node) else { return };
        self.endpoint.former.ended(self.endpoint.lately, node, &connection, self.endpoint.config.keeps_id);
        // The dialler has been here with a later socket. If one of these were confirmed now it would begin
        // anew what has ended.
        let is_late = |id: &SocketId| {
            self.endpoint.promise(*id).is_some_and(|promise| promise.attempt <= connection.their_attempt)
        };
        let late: Vec<SocketId> = self.endpoint.unconfirmed(node).filter(is_late).collect();
        late.into_iter().for_each(|id| self.close(self.endpoint.lately, id, Closed::Superseded));
    }

    /// Whether a pending action is an event for an end of a channel, or for a mailbox. Its holder may respond
    /// soon.
    pub fn tells(&self) -> bool {
        let told = |action: &Action| matches!(action, Action::Home(..) | Action::Proxy(..) | Action::Post(_));
        !self.endpoint.said_here.is_empty() || self.endpoint.actions.iter().any(told)
    }

    /// Whether a pending action is an event for a receiving end. The other side may be waiting for its
    /// answer.
    pub fn tells_receivers(&self) -> bool {
        self.endpoint.actions.iter().any(|action| matches!(action, Action::Home(..)))
    }

    /// The latest time at which to call [`tick`](Self::tick).
    pub fn next_tick(&self) -> Option<Time> {
        let undialled = self.endpoint.undialled.front().map(|undialled| undialled.at);
        self.endpoint.connections.next_due().into_iter().chain(self.endpoint.sockets.next_due()).chain(undialled).min()
    }

    /// Numbered frames received on the present connections, in the present life of each.
    pub fn heard(&self) -> u64 {
        self.endpoint.connections.survey().map(|(_, connection)| connection.inbox.seen).sum()
    }

    /// Counts the records that this machine holds.
    pub fn census(&self) -> Census {
        let attached = || self.channels.homes.survey().flat_map(|(_, home)| home.attached.values());
        Census {
            homes: self.channels.homes.len(),
            attached: attached().count(),
            proxies: self.channels.proxies.len(),
            offers: attached().map(|from| from.open.len()).sum::<usize>()
                + self.channels.proxies.survey().map(|(_, proxy)| proxy.standing()).sum::<usize>(),
            visitors: self.channels.visitors.len(),
            passing: self.channels.passing.len(),
            replies: self.channels.replies.len(),
            unfinished: self.endpoint.connections.survey().map(|(_, connection)| connection.inbox.unfinished()).sum(),
            unsaid: self.endpoint.connections.survey().map(|(_, connection)| connection.outbox.unsaid()).sum(),
            unacked_bytes: self
                .endpoint
                .connections
                .survey()
                .map(|(_, connection)| connection.outbox.unacked_bytes())
                .sum(),
            sockets: self.endpoint.sockets.ids().filter(|socket| !is_relayed(*socket)).count(),
            relayed: self.endpoint.relays.relayed(),
            relays: self.endpoint.relays.between_others(),
            heard: self.heard(),
            nodes: self.endpoint.connections.len(),
            visited: self.endpoint.connections.visited()
                + self.channels.homes.visited()
                + self.channels.proxies.visited()
                + self.channels.visitors.visited()
                + self.channels.replies.awaited.visited()
                + self.channels.replies.held.visited(),
        }
    }

    // Which nodes can be reached, and where.

    /// Records where a node that this one is to reach can be dialled. Addresses that the node itself declares
    /// when connected take precedence. The record stays until a connection with the node has ended.
    pub fn learn(&mut self, node: NodeId, addresses: &[String]) {
        self.endpoint.keep(node, Time(u64::MAX));
        self.endpoint.add_addresses(node, |book| addresses.iter().for_each(|address| book.owns(address)));
    }

    /// As [`addresses_of`](Self::addresses_of); for one of the last connections that ended, the addresses
    /// known then.
    pub fn last_addresses_of(&self, node: NodeId) -> &[String] {
        match self.endpoint.addresses_of(node) {
            [] => self.endpoint.former.addresses(node),
            known => known,
        }
    }

    /// Dials an address to learn which node is there. [`Action::Introduced`] reports the answer.
    pub fn introduce(&mut self, address: String) {
        if self.endpoint.leaving {
            return self
                .endpoint
                .actions
                .push_back(Action::Introduced(address, Err("this node is leaving".to_owned())));
        }
        if let Some(by) = self.endpoint.replaced {
            let why = Refusal::Stale(by).to_string();
            return self.endpoint.actions.push_back(Action::Introduced(address, Err(why)));
        }
        self.endpoint.dial(Time::default(), Wanted::Anybody, address);
    }

    /// Whether there is no connection to this node, and none is being made. When a connection ends this
    /// changes at once; [`Action::Connection`] reports the end too.
    pub fn is_idle(&self, node: NodeId) -> bool {
        self.endpoint.connections.get(node).is_none_or(|connection| matches!(connection.carried, Carried::Idle))
    }

    /// The socket that carries the connection to a node. If it is relayed, the socket that carries the
    /// connection to the relay.
    pub fn carried_by(&self, node: NodeId) -> Option<SocketId> {
        let socket = self.endpoint.connections.get(node).and_then(Connection::socket)?;
        if !is_relayed(socket) {
            return Some(socket);
        }
        // A relay is never relayed itself.
        self.endpoint.relays.by(socket).and_then(|by| self.endpoint.connections.get(by)).and_then(Connection::socket)
    }

    /// The nodes to which `relay` relays the connection.
    pub fn relayed_over(&self, relay: NodeId) -> Vec<NodeId> {
        if self.endpoint.relays.relayed() == 0 {
            return Vec::new();
        }
        let is_relayed = |peer: &NodeId| self.endpoint.relayed_by(*peer) == Some(relay);
        self.peers().map(|peer| peer.node).filter(is_relayed).collect()
    }

    /// The id of the connection with that node, if the two have agreed on one.
    pub fn connection_id(&self, node: NodeId) -> Option<ConnectionId> {
        self.endpoint.connections.get(node).map(|connection| connection.id).filter(|id| id.is_some())
    }

    /// The nodes to which there are connections, with or without a socket at the moment.
    pub fn peers(&self) -> impl Iterator<Item = Life> {
        self.endpoint
            .connections
            .iter()
            .filter(|(_, connection)| connection.was_up)
            .map(|(node, connection)| Life { node, incarnation: connection.met.expect("the handshake told") })
    }

    /// Records that a frame from that node changed nothing. After too many, its socket is [read more
    /// slowly](Self::paused_until).
    pub fn hears_nothing(&mut self, now: Time, node: NodeId) {
        self.endpoint.hears_nothing(now, node)
    }

    /// Records that comparing schemas for this node took `steps` steps. After too many, its socket is [read
    /// more slowly](Self::paused_until).
    pub fn compares(&mut self, now: Time, node: NodeId, steps: u64) {
        self.endpoint.compares(now, node, steps)
    }

    /// Where a node can be dialled, as far as known. Addresses that it declares itself come first.
    pub fn addresses_of(&self, node: NodeId) -> &[String] {
        self.endpoint.addresses_of(node)
    }

    /// As [`learn`](Self::learn), from node `by`, which may help if the two cannot dial each other. The
    /// caller must queue something for the node before [`poll`](Self::poll) returns `None`, otherwise the
    /// record is removed.
    pub fn introduced(&mut self, node: NodeId, by: NodeId, addresses: &[String]) {
        self.endpoint.introduced(node, by, addresses)
    }

    /// Makes a connection, unless one exists, or this node is leaving or replaced.
    pub fn connect(&mut self, now: Time, node: NodeId) {
        self.endpoint.connect(now, node)
    }

    /// The source of the connection with that node: of the socket that carries it, or carried it last.
    /// Unknown if none has.
    pub fn source_of(&self, node: NodeId) -> Source {
        self.endpoint.source_of(node)
    }

    /// The node that relays the connection to this node, if it is relayed.
    pub fn relayed_by(&self, node: NodeId) -> Option<NodeId> {
        self.endpoint.relayed_by(node)
    }

    /// That node, in the present life of the connection with it. If the node is unknown, that life [is
    /// over](Self::is_over).
    pub fn contact(&self, node: NodeId) -> Contact {
        self.endpoint.contact(node)
    }

    /// Whether that life of the connection is over, or has not begun. The other side no longer answers for an
    /// end given or taken in that life, even if the connection is up again.
    pub fn is_over(&self, contact: Contact) -> bool {
        self.endpoint.is_over(contact)
    }

    /// The traffic between this node and each peer, present or former. Of the connections that ended, only
    /// the last 64 are known.
    pub fn traffic(&self) -> impl Iterator<Item = (Life, Traffic)> {
        let present = self.endpoint.connections.iter().filter_map(|(node, connection)| {
            connection.met.map(|incarnation| (Life { node, incarnation }, connection.traffic))
        });
        present.chain(self.endpoint.former.traffic())
    }

    /// Leaves: sends a goodbye on every connection, after everything queued. [`is_flushed`](Self::is_flushed)
    /// returns whether all peers have acknowledged it. From now on no other node gets a connection to this
    /// one.
    pub fn leave(&mut self, now: Time) {
        self.endpoint.leaving = true;
        for peer in self.endpoint.connections.nodes() {
            let connection = self.endpoint.connection(peer);
            let (done, is_carried) = (connection.outbox.is_done(), connection.socket().is_some());
            if done && !is_carried && connection.was_up {
                // Reconnecting only for a goodbye is pointless; the other node notices by itself.
                self.die(now, peer, Down::Left);
            } else if !connection.leaving && (connection.was_up || !done) {
                connection.leaving = true;
                if self.endpoint.relays.needs(peer) {
                    self.endpoint.connection(peer).goodbye_waits = true;
                } else {
                    self.endpoint.say(now, peer, Frame::Goodbye);
                }
            }
        }
    }

    /// Whether this node is [leaving](Self::leave): losses from now on are due to that.
    pub fn is_leaving(&self) -> bool {
        self.endpoint.leaving
    }

    /// Whether everything sent has been acknowledged.
    ///
    /// Frames for a node that has just left in order do not count: they crossed its goodbye.
    pub fn is_flushed(&self) -> bool {
        self.endpoint.connections.iter().all(|(node, connection)| self.endpoint.is_flushed_to(node, connection))
    }

    /// Handles the passage of time.
    pub fn tick(&mut self, now: Time) {
        for id in self.endpoint.sockets.late(now) {
            self.close(now, id, Closed::NoHandshake);
        }
        for node in self.endpoint.connections.take_due(now) {
            self.tick_connection(now, node);
        }
        self.endpoint.report(now);
    }

    fn tick_connection(&mut self, now: Time, node: NodeId) {
        let silence = self.endpoint.config.silence;
        let Some(connection) = self.endpoint.connections.get_mut(node) else { return };
        match connection.carried {
            Carried::Idle if connection.kept.is_some_and(|until| until <= now) => self.forget(node),
            Carried::Idle => {}
            Carried::Lost { until, .. } if now >= until && connection.dialling.for_others => {
                self.endpoint.forget_dial_back(node);
            }
            Carried::Lost { until, .. } if now >= until => self.give_up(now, node),
            Carried::Lost { until, .. } => {
                self.endpoint.due_at(node, until);
                self.endpoint.dial_if_due(now, node);
                self.endpoint.seek_help(now, node);
            }
            Carried::By(socket) => {
                if now >= connection.heard + silence {
                    return self.close(now, socket, Closed::Silent);
                }
                if self.endpoint.has_stalled(node) {
                    return self.violation(now, node, PeerMisbehaved::AdmittedDoesNotCome);
                }
                if is_relayed(socket) {
                    self.endpoint.dial_if_due(now, node);
                }
                let Some(connection) = self.endpoint.connections.get(node) else { return };
                let (heard, heartbeat_at, ack_at) =
                    (connection.heard, connection.heartbeat_at(&self.endpoint.config), connection.ack_at);
                self.endpoint.due_at(node, heard + silence);
                if now >= heartbeat_at || ack_at.is_some_and(|at| now >= at) {
                    self.endpoint.act_write(socket);
                    let next = now + self.endpoint.config.heartbeat;
                    self.endpoint.due_at(node, next.rounded_up(self.endpoint.config.heartbeat_grid()));
                } else {
                    self.endpoint.due_at(node, heartbeat_at.rounded_up(self.endpoint.config.heartbeat_grid()));
                    if let Some(at) = ack_at {
                        self.endpoint.due_at(node, at);
                    }
                }
            }
        }
    }
}

#[cfg(feature = "stand-in")]
impl crate::identity::StandIn {
    /// A machine for this life of a node.
    ///
    /// # Panics
    /// Those of [`Machine::new`].
    pub fn machine(config: Config, me: Life, seed: u64) -> Machine {
        Machine::new(config, me.incarnation, seed, Arc::new(Self::of(me.node)))
    }
}
