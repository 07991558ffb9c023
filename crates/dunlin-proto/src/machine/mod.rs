//! One node's half of the protocol: what it is told goes in by methods, what it wants done comes out as [`Action`]s.

mod dialling;
mod frames;
mod handshake;
mod lives;
mod memory;
pub(crate) mod socket_table;
mod sockets;
mod unfinished;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::account::{Charge, Pool};
use crate::channel::by_node::ByNode;
use crate::channel::{EarlyLapse, Home, HomeHears, Proxy, ProxyHears, Visitor};
use crate::comparisons::Comparisons;
use crate::config::Config;
use crate::connection::book::Book;
use crate::connection::former::Former;
use crate::connection::pace::Paces;
use crate::connection::table::Connections;
use crate::connection::{Carried, Connection, Down, State, Traffic};
use crate::id::{ChannelId, ConnectionId, Contact, DialId, Incarnation, Life, NodeId, SocketId};
use crate::identity::Identity;
use crate::random::Random;
use crate::relay::streams::{Relays, is_relayed};
use crate::source::{Shares, Source};
use crate::time::Time;
use crate::wire::handshake::Refusal;
use crate::wire::{Frame, Names, Read, limits};
use socket_table::{Dial, Socket, Sockets, Undialled, Wanted};

/// What the machine wants its driver to do or to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Make a socket to this address; answer with [`Machine::dialled`], [`Machine::dial_refused`] or
    /// [`Machine::dial_failed`].
    Dial(DialId, String),
    /// The socket has something to write: call [`Machine::fill`] when it can.
    Write(SocketId),
    /// Fill the socket once more, write that, close it, and say [`Machine::closed`].
    Close(SocketId, Closed),
    /// A socket that the first node relays, and on which the second one has dialled as that one says, is
    /// closed. There is nothing to do: the driver has never heard of it.
    ClosedRelayed(NodeId, NodeId, Closed),
    /// A connection has changed.
    Connection(NodeId, State),
    /// Something for the home of a channel, from the node with a sending half.
    Home(ChannelId, Contact, HomeHears),
    /// Something for a proxy.
    Proxy(ChannelId, ProxyHears),
    /// A message of the name service, from this node.
    Names(Life, Names),
    /// That node wants a value that was [offered unread](Machine::offer_unread) here: sent over this channel, of which it is the home, and the sending half here.
    Read(NodeId, ChannelId, Read),
    /// That node has asked this one to relay, which has [no room](Config::relays_max) for it.
    Unrelayed(NodeId),
    /// That node has asked this one for something else that it was not given.
    Declined(NodeId, Declined),
    /// What became of [`Machine::introduce`]: the node at this address, which may be this one, or why there is none.
    Introduced(String, Result<NodeId, String>),
}

/// What a node was not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Declined {
    /// To attach to this channel: it has attached as many halves as it may, or there is no room for them in
    /// [`Config::held_max`].
    Half(ChannelId),
    /// To be dialled back by this node: as many others are.
    DialBack,
    /// A way, by a dial-back or a relay, to this node, which is on this node's own host, while the other one
    /// is not: it has not said that it [may be relayed to](Config::relayed).
    Admittance(NodeId),
}

/// Why a socket is closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Closed {
    /// Nothing was heard from it for too long.
    #[error("nothing was heard from it for too long")]
    Silent,
    /// It did not finish its handshake in time.
    #[error("it did not finish its handshake in time")]
    NoHandshake,
    /// Another socket has taken its place.
    #[error("another socket has taken its place")]
    Superseded,
    /// The node that has dialled, or answered, under this id has not signed the handshake with that node's key.
    #[error("it says that it is node {0}, and has not proved it: it does not have that node's key")]
    Unproven(NodeId),
    /// One side refused the other.
    #[error("{0}")]
    Refused(Refusal),
    /// Who dialled belongs to another application, and was told so.
    #[error("it is node {node} of the application {application:?}")]
    Stranger {
        /// Who.
        node: NodeId,
        /// Its application.
        application: String,
    },
    /// What arrived on it was not the protocol.
    #[error("what arrived is not the protocol: {0}")]
    Garbage(String),
    /// Too many sockets are without a handshake.
    #[error("too many sockets are waiting for their handshake")]
    Crowded,
    /// The node that it carried the connection with did not keep to the protocol, which [`Down::Violation`] tells next.
    #[error("node {0} did not keep to the protocol")]
    Violation(NodeId),
    /// The connection is over.
    #[error("the connection is over")]
    Over,
    /// A part of a frame was dropped that is wanted now: it is to come again, on the next socket.
    #[error("a part of a frame was dropped that is wanted now")]
    Again,
}

/// How many records a machine holds. At rest all are zero but those of what is really there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Census {
    /// Channels whose receiver is here.
    pub homes: usize,
    /// Nodes that are attached to them.
    pub attached: usize,
    /// Sending halves here whose home is elsewhere.
    pub proxies: usize,
    /// Offers that are not settled, at both.
    pub offers: usize,
    /// Receivers that have come here and are not used.
    pub visitors: usize,
    /// Ends in messages that go through this node, and have not been taken.
    pub passing: usize,
    /// Values of which pieces are still to come.
    pub unfinished: usize,
    /// Channels, and frames in the control lane, of which something has not been written.
    pub unsaid: usize,
    /// Bytes that are kept because they may have to be sent again.
    pub unacked_bytes: usize,
    /// Sockets of any kind, without those that are relayed.
    pub sockets: usize,
    /// Sockets of this node's that others relay.
    pub relayed: usize,
    /// Sockets between others that this node relays.
    pub relays: usize,
    /// Numbered frames that the connections it still has have heard: if it does not grow, nothing is said to this node.
    pub heard: u64,
    /// Other nodes: those that it is connected with, wants to reach, or has been told where to reach.
    pub nodes: usize,
    /// How often the record of another node was looked at because a time had come, or in search of others,
    /// and a half of a channel because the life of a connection has ended. What happens to one node costs the
    /// same however many others, and halves of theirs, there are, or were.
    pub visited: u64,
}

/// One node's half of the protocol.
///
/// A driver tells it what happens (each method is an event) and does what [`poll`](Self::poll) says. The machine does no I/O and reads no
/// clock: the same events with the same seed have the same results.
#[derive(Clone, Debug)]
pub struct Machine {
    pub(crate) config: Config,
    pub(crate) me: Life,
    pub(crate) identity: Arc<dyn Identity>,
    /// How often a nonce was drawn.
    nonces: u64,
    random: Random,
    pub(crate) actions: VecDeque<Action>,
    pub(crate) connections: Connections,
    pub(crate) former: Former,
    /// When a connection was last given up.
    lately: Time,
    /// How often this node has said hello for a connection.
    attempts: u64,
    pub(crate) sockets: Sockets,
    pub(crate) relays: Relays,
    dials: BTreeMap<DialId, Dial>,
    /// Those of addresses that this node was only told, by whose word.
    told_dials: Shares,
    /// How many of them were in vain, by whose word.
    told_by: Paces,
    /// Dial-backs that were asked for: when the node that has asked hears that there was none, unless there is.
    pub(crate) undialled: VecDeque<Undialled>,
    /// The nodes that are dialled for others alone, and some that no longer are: never more than may be.
    pub(crate) dialled_back: BTreeSet<NodeId>,
    next_dial: u64,
    pub(crate) leaving: bool,
    /// See [`hurry`](Self::hurry).
    pub(crate) hurries: bool,
    /// See [`replaced_by`](Self::replaced_by).
    replaced: Option<Incarnation>,
    /// What all connections may make this node keep.
    pub(crate) pool: Pool,
    /// The channels of guests, and what they cost whom, until their halves attach.
    pub(crate) guests: BTreeMap<ChannelId, (Contact, Charge)>,
    pub(crate) comparisons: Comparisons,
    /// How many steps of comparisons others have brought about.
    steps: u64,
    // Boxed: a node of a B-tree is about half empty, and they are large.
    pub(crate) homes: ByNode<Box<Home>>,
    pub(crate) proxies: ByNode<Box<Proxy>>,
    /// Receivers that have come here in messages, and are not used yet.
    pub(crate) visitors: ByNode<Visitor>,
    /// How many messages with ends have been packed.
    pub(crate) trips: u64,
    /// The messages with ends in them that go through this node, and have not been taken: whether the end is gone is known there, and not here.
    pub(crate) passing: BTreeMap<u64, EarlyLapse>,
    /// What this node has said to itself.
    said_here: VecDeque<(Time, Frame)>,
    /// The last nodes that have left in order: what is said to one of them meanwhile, nobody hears.
    pub(crate) left: VecDeque<NodeId>,
}

impl Machine {
    /// A node that knows nobody. Its id is the one that its key has.
    ///
    /// # Panics
    /// [`Config::check`] says no, the id or the incarnation is zero (on the wire that is one that is not known), or the key is none or longer than [`limits::KEY`].
    pub fn new(config: Config, incarnation: Incarnation, seed: u64, identity: Arc<dyn Identity>) -> Self {
        if let Err(why) = config.check() {
            panic!("a machine cannot work with its settings: {why}");
        }
        let key = identity.key();
        assert!(key.len() <= limits::KEY, "a key of {} bytes; at most {} are allowed", key.len(), limits::KEY);
        let node = identity.id_of(&key).expect("a node's own key is one");
        let me = Life { node, incarnation };
        assert!(node != NodeId(0) && incarnation != Incarnation(0), "a node and its incarnation are not zero");
        Self {
            pool: Pool::new(&config),
            guests: BTreeMap::new(),
            config,
            me,
            identity,
            nonces: 0,
            random: Random::new(seed),
            actions: VecDeque::new(),
            connections: Connections::default(),
            former: Former::default(),
            lately: Time::default(),
            attempts: 0,
            sockets: Sockets::default(),
            relays: Relays::default(),
            dials: BTreeMap::new(),
            told_dials: Shares::default(),
            told_by: Paces::default(),
            undialled: VecDeque::new(),
            dialled_back: BTreeSet::new(),
            next_dial: 0,
            leaving: false,
            hurries: false,
            replaced: None,
            comparisons: Comparisons::default(),
            steps: 0,
            homes: ByNode::default(),
            proxies: ByNode::default(),
            visitors: ByNode::default(),
            trips: 0,
            passing: BTreeMap::new(),
            said_here: VecDeque::new(),
            left: VecDeque::new(),
        }
    }

    /// A number of 128 bits that no other handshake has.
    fn nonce(&mut self) -> u128 {
        self.nonces += 1;
        self.identity.nonce(self.nonces - 1)
    }

    /// Who this is.
    pub fn me(&self) -> Life {
        self.me
    }

    /// A later incarnation of this node, which another one has met: this one is [replaced](Config::keeps_id). All its connections have ended
    /// ([`Down::Refused`], with [`Refusal::Stale`]), and there will be no more.
    pub fn replaced_by(&self) -> Option<Incarnation> {
        self.replaced
    }

    /// Where others can dial this node.
    pub fn addresses_here(&self) -> &[String] {
        &self.config.addresses
    }

    /// The largest encoded value that this node accepts, in bytes.
    pub fn value_max(&self) -> u64 {
        self.config.value_max as u64
    }

    /// The next thing to do, if there is one.
    pub fn poll(&mut self) -> Option<Action> {
        while self.actions.is_empty()
            && let Some((now, frame)) = self.said_here.pop_front()
        {
            let channel = frame.channel();
            if self.hear(now, self.me.node, frame).is_err()
                && let Some(channel) = channel
            {
                // Only what others had said of the channel can have led here: it is lost.
                self.lose_proxy(now, channel);
            }
        }
        let next = self.actions.pop_front();
        if next.is_some() {
            return next;
        }
        self.forget_unused();
        self.actions.pop_front()
    }

    /// Of a node with which this one has nothing to do any more its record goes.
    fn forget_unused(&mut self) {
        while let Some(node) = self.connections.take_resting() {
            if self.connections.get(node).is_some_and(Connection::is_unused) {
                self.forget(node);
            }
        }
    }

    fn forget(&mut self, node: NodeId) {
        let Some(connection) = self.connections.remove(node) else { return };
        self.former.ended(self.lately, node, &connection, self.config.keeps_id);
        // The dialler has been here with a later socket. If one of these were confirmed now it would begin anew what has ended.
        let is_late =
            |id: &SocketId| self.promise(*id).is_some_and(|promise| promise.attempt <= connection.their_attempt);
        let late: Vec<SocketId> = self.unconfirmed(node).filter(is_late).collect();
        late.into_iter().for_each(|id| self.close(self.lately, id, Closed::Superseded));
    }

    /// A node is wanted soon: its record stays until then, though nothing uses it yet.
    fn keep(&mut self, node: NodeId, until: Time) {
        let connection = self.connection(node);
        if matches!(connection.carried, Carried::Idle) && connection.kept.is_none_or(|kept| kept < until) {
            connection.kept = Some(until);
            if until < Time(u64::MAX) {
                self.due_at(node, until);
            }
        }
    }

    pub(crate) fn is_me(&self, node: NodeId) -> bool {
        node == self.me.node
    }

    /// Whether one of the things to do is to tell an end of a channel something: its holder may soon have something to say.
    pub fn tells(&self) -> bool {
        let told = |action: &Action| matches!(action, Action::Home(..) | Action::Proxy(..));
        !self.said_here.is_empty() || self.actions.iter().any(told)
    }

    /// Whether one of the things to do is to tell a receiving end something: the other side may wait for its answer.
    pub fn tells_receivers(&self) -> bool {
        self.actions.iter().any(|action| matches!(action, Action::Home(..)))
    }

    /// When to call [`tick`](Self::tick) at the latest.
    pub fn next_tick(&self) -> Option<Time> {
        let undialled = self.undialled.front().map(|undialled| undialled.at);
        self.connections.next_due().into_iter().chain(self.sockets.next_due()).chain(undialled).min()
    }

    /// Numbered frames that the connections it still has have heard; in this life of each.
    pub fn heard(&self) -> u64 {
        self.connections.survey().map(|(_, connection)| connection.inbox.seen).sum()
    }

    /// What is there.
    pub fn census(&self) -> Census {
        let attached = || self.homes.survey().flat_map(|(_, home)| home.attached.values());
        Census {
            homes: self.homes.len(),
            attached: attached().count(),
            proxies: self.proxies.len(),
            offers: attached().map(|from| from.open.len()).sum::<usize>()
                + self.proxies.survey().map(|(_, proxy)| proxy.standing()).sum::<usize>(),
            visitors: self.visitors.len(),
            passing: self.passing.len(),
            unfinished: self.connections.survey().map(|(_, connection)| connection.inbox.unfinished()).sum(),
            unsaid: self.connections.survey().map(|(_, connection)| connection.outbox.unsaid()).sum(),
            unacked_bytes: self.connections.survey().map(|(_, connection)| connection.outbox.unacked_bytes()).sum(),
            sockets: self.sockets.ids().filter(|socket| !is_relayed(*socket)).count(),
            relayed: self.relays.relayed(),
            relays: self.relays.between_others(),
            heard: self.heard(),
            nodes: self.connections.len(),
            visited: self.connections.visited()
                + self.homes.visited()
                + self.proxies.visited()
                + self.visitors.visited(),
        }
    }

    // Who can be reached, and where.

    /// Where a node can be dialled that this one is to reach. What it says itself when it is met comes first. That is
    /// known until a connection with it has ended.
    pub fn learn(&mut self, node: NodeId, addresses: &[String]) {
        self.keep(node, Time(u64::MAX));
        self.add_addresses(node, |book| addresses.iter().for_each(|address| book.owns(address)));
    }

    fn add_addresses(&mut self, node: NodeId, add: impl FnOnce(&mut Book)) {
        let connection = self.connection(node);
        let known = connection.book.addresses().len();
        add(&mut connection.book);
        if known == 0 && !connection.book.addresses().is_empty() && connection.dialling.waits_for_address {
            // Whoever wants the connection has waited for this.
            connection.dialling.waits_for_address = false;
            connection.dialling.next = Some(Time::default());
            self.due_at(node, Time::default());
        }
    }

    /// Where a node can be dialled, as far as is known: what it says itself comes first.
    pub fn addresses_of(&self, node: NodeId) -> &[String] {
        self.connections.get(node).map_or(&[], |connection| connection.book.addresses())
    }

    /// The same, or, if the connection with that node is one of the last that have ended, where it could be dialled.
    pub fn last_addresses_of(&self, node: NodeId) -> &[String] {
        match self.addresses_of(node) {
            [] => self.former.addresses(node),
            known => known,
        }
    }

    /// Dials an address to learn which node is there; [`Action::Introduced`] answers.
    pub fn introduce(&mut self, address: String) {
        if self.leaving {
            return self.actions.push_back(Action::Introduced(address, Err("this node is leaving".to_owned())));
        }
        if let Some(by) = self.replaced {
            let why = Refusal::Stale(by).to_string();
            return self.actions.push_back(Action::Introduced(address, Err(why)));
        }
        self.dial(Time::default(), Wanted::Anybody, address);
    }

    /// Whether there is no connection to this node, and none is being made. After the end of one it is known here at once, and told
    /// by [`Action::Connection`].
    pub fn is_idle(&self, node: NodeId) -> bool {
        self.connections.get(node).is_none_or(|connection| matches!(connection.carried, Carried::Idle))
    }

    /// As [`learn`](Self::learn), from that node: it may help if the two cannot dial each other. Something has to be
    /// said to the node before [`poll`](Self::poll) says that there is nothing to do, or it is forgotten again.
    pub fn introduced(&mut self, node: NodeId, by: NodeId, addresses: &[String]) {
        let near = self.is_near_by(by);
        let source = self.source_of(by);
        self.add_addresses(node, |book| addresses.iter().for_each(|address| book.hears(address, near, source)));
        self.remember_introducer(node, by);
    }

    /// As [`introduced`](Self::introduced), of a node where an end is, by whatever node has said so. `false`:
    /// the source of that one has named too many that were never met.
    #[must_use = "`false`: that node is not looked for"]
    pub(crate) fn hear_of(&mut self, node: NodeId, by: NodeId, addresses: &[String]) -> bool {
        if self.is_me(node) {
            return true;
        }
        let source = self.source_of(by);
        let former = &mut self.former;
        let is_admitted = self.connections.admit_unmet(node, source, |connection| former.comes_back(node, connection));
        if is_admitted {
            self.introduced(node, by, addresses);
        }
        is_admitted
    }

    /// Whether what that node says comes over a socket of this host.
    fn is_near_by(&self, node: NodeId) -> bool {
        let socket = self.connections.get(node).and_then(Connection::socket);
        socket.and_then(|socket| self.sockets.get(socket)).is_some_and(Socket::is_near)
    }

    /// Makes a connection, if there is none, and this node is not leaving, nor replaced.
    pub fn connect(&mut self, now: Time, node: NodeId) {
        if !self.leaving && self.replaced.is_none() {
            self.want(now, node);
        }
    }

    /// How the connection to a node is: the socket that carries it; if it is relayed, that which carries the connection to the relay.
    pub fn carried_by(&self, node: NodeId) -> Option<SocketId> {
        let socket = self.connections.get(node).and_then(Connection::socket)?;
        if !is_relayed(socket) {
            return Some(socket);
        }
        // No relay is relayed itself.
        self.relays.by(socket).and_then(|by| self.connections.get(by)).and_then(Connection::socket)
    }

    /// Where the connection with that node comes from, or leads to: what carries it, or has carried it last.
    /// Unknown if nothing has.
    pub fn source_of(&self, node: NodeId) -> Source {
        self.connections.get(node).map_or(Source::Unknown, |connection| connection.inbox.account.source())
    }

    /// The node that relays the connection to this one, if one does.
    pub fn relayed_by(&self, node: NodeId) -> Option<NodeId> {
        let socket = self.connections.get(node).and_then(Connection::socket)?;
        self.relays.by(socket)
    }

    /// The nodes to which that one relays the connection.
    pub fn relayed_over(&self, relay: NodeId) -> Vec<NodeId> {
        if self.relays.relayed() == 0 {
            return Vec::new();
        }
        let is_relayed = |peer: &NodeId| self.relayed_by(*peer) == Some(relay);
        self.peers().map(|peer| peer.node).filter(is_relayed).collect()
    }

    /// What this node and that one call the connection between them, if they have met for it.
    pub fn connection_id(&self, node: NodeId) -> Option<ConnectionId> {
        self.connections.get(node).map(|connection| connection.id).filter(|id| id.is_some())
    }

    /// The nodes to which there are connections, whether these have a socket at the moment or not.
    pub fn peers(&self) -> impl Iterator<Item = Life> {
        self.connections
            .iter()
            .filter(|(_, connection)| connection.was_up)
            .map(|(node, connection)| Life { node, incarnation: connection.met.expect("the handshake told") })
    }

    /// That node, in the present life of the connection with it. If nothing is known of it, that life [is
    /// over](Self::is_over).
    pub fn contact(&self, node: NodeId) -> Contact {
        Contact { node, lives: self.connections.get(node).map_or(0, |connection| connection.lives) }
    }

    /// Whether that life of the connection is over, or has not begun. For an end that was given or taken in it nobody at the other side answers any more, whether the connection is up again or not.
    pub fn is_over(&self, contact: Contact) -> bool {
        let is_up = |connection: &Connection| connection.was_up && connection.lives == contact.lives;
        !self.is_me(contact.node) && !self.connections.get(contact.node).is_some_and(is_up)
    }

    /// What was carried between this node and each that it has to do with, or has had: of connections that are over
    /// the last 64 are known.
    pub fn traffic(&self) -> impl Iterator<Item = (Life, Traffic)> {
        let present = self.connections.iter().filter_map(|(node, connection)| {
            connection.met.map(|incarnation| (Life { node, incarnation }, connection.traffic))
        });
        present.chain(self.former.traffic())
    }

    /// Leaves: every connection is told, after what it still has to say. [`is_flushed`](Self::is_flushed) tells when all have heard it.
    /// From now on nobody else gets a connection to this node.
    pub fn leave(&mut self, now: Time) {
        self.leaving = true;
        for peer in self.connections.nodes() {
            let connection = self.connection(peer);
            let (done, is_carried) = (connection.outbox.is_done(), connection.socket().is_some());
            if done && !is_carried && connection.was_up {
                // It would be called only to be told goodbye; it will notice by itself.
                self.die(now, peer, Down::Left);
            } else if !connection.leaving && (connection.was_up || !done) {
                connection.leaving = true;
                if self.relays.needs(peer) {
                    self.connection(peer).goodbye_waits = true;
                } else {
                    self.say(now, peer, Frame::Goodbye);
                }
            }
        }
    }

    /// Whether it [leaves](Self::leave): what is lost from now on is lost since this node ends.
    pub fn is_leaving(&self) -> bool {
        self.leaving
    }

    /// Whether everything that was said has been heard.
    ///
    /// What is said to a node that has just left in order is not waited for: it is another one's word that crossed the goodbye.
    pub fn is_flushed(&self) -> bool {
        self.connections.iter().all(|(node, connection)| self.is_flushed_to(node, connection))
    }

    pub(crate) fn connection(&mut self, node: NodeId) -> &mut Connection {
        let former = &mut self.former;
        self.connections.get_or_insert(node, |connection| former.comes_back(node, connection))
    }

    /// Queues a frame for a node. If there is no connection, one is made.
    pub(crate) fn say(&mut self, now: Time, node: NodeId, frame: Frame) {
        if self.is_me(node) {
            return self.said_here.push_back((now, frame));
        }
        let connection = self.connection(node);
        connection.outbox.push(frame);
        match connection.carried {
            Carried::By(socket) => self.act_write(socket),
            Carried::Lost { .. } if !connection.dialling.for_others => {}
            Carried::Lost { .. } | Carried::Idle => self.want(now, node),
        }
    }

    pub(crate) fn act_write(&mut self, socket: SocketId) {
        let socket = if is_relayed(socket) {
            match self.stir(socket) {
                Some(carrier) => carrier,
                None => return,
            }
        } else {
            socket
        };
        // One is enough, and the last action is the likeliest to be one.
        if self.actions.back() != Some(&Action::Write(socket)) {
            self.actions.push_back(Action::Write(socket));
        }
    }

    /// The driver tells its program that this node has refused that one something.
    pub(crate) fn declines(&mut self, node: NodeId, what: Declined) {
        self.actions.push_back(Action::Declined(node, what));
    }

    /// The driver closes the socket, or, if it is relayed, this machine does, at once.
    fn act_close(&mut self, socket: SocketId, why: Closed) {
        if is_relayed(socket) {
            if let Some((by, from)) = self.relays.by(socket).zip(self.relays.from(socket)) {
                self.actions.push_back(Action::ClosedRelayed(by, from, why));
            }
            return self.close_relayed(socket);
        }
        self.actions.push_back(Action::Close(socket, why));
    }

    pub(crate) fn due_at(&mut self, node: NodeId, at: Time) {
        self.connections.due_at(node, at);
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Time) {
        for id in self.sockets.late(now) {
            self.close(now, id, Closed::NoHandshake);
        }
        for node in self.connections.take_due(now) {
            self.tick_connection(now, node);
        }
        self.report(now);
    }

    fn tick_connection(&mut self, now: Time, node: NodeId) {
        let silence = self.config.silence;
        let Some(connection) = self.connections.get_mut(node) else { return };
        match connection.carried {
            Carried::Idle if connection.kept.is_some_and(|until| until <= now) => self.forget(node),
            Carried::Idle => {}
            Carried::Lost { until, .. } if now >= until && connection.dialling.for_others => {
                self.forget_dial_back(node);
            }
            Carried::Lost { until, .. } if now >= until => self.give_up(now, node),
            Carried::Lost { until, .. } => {
                self.due_at(node, until);
                self.dial_if_due(now, node);
                self.seek_help(now, node);
            }
            Carried::By(socket) => {
                if now >= connection.heard + silence {
                    return self.close(now, socket, Closed::Silent);
                }
                if self.has_stalled(node) {
                    return self.violation(now, node, "a value that was admitted does not come");
                }
                if is_relayed(socket) {
                    self.dial_if_due(now, node);
                }
                let Some(connection) = self.connections.get(node) else { return };
                let (heard, heartbeat_at, ack_at) =
                    (connection.heard, connection.heartbeat_at(&self.config), connection.ack_at);
                self.due_at(node, heard + silence);
                if now >= heartbeat_at || ack_at.is_some_and(|at| now >= at) {
                    self.act_write(socket);
                    let next = now + self.config.heartbeat;
                    self.due_at(node, next.rounded_up(self.config.heartbeat_grid()));
                } else {
                    self.due_at(node, heartbeat_at.rounded_up(self.config.heartbeat_grid()));
                    if let Some(at) = ack_at {
                        self.due_at(node, at);
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
