//! One node's half of the protocol: what it is told goes in by methods, what it wants done comes out as [`Action`]s.

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use crate::channel::{EarlyLapse, Home, HomeHears, Proxy, ProxyHears, Visitor};
use crate::config::Config;
use crate::connection::outbox::Recalled;
use crate::connection::{Attempt, Carried, Connection, Down, State, Traffic};
use crate::id::{ChannelId, Contact, DialId, Incarnation, Life, NodeId, SocketId};
use crate::planted::planted;
use crate::random::Random;
use crate::relay::{Relays, is_relayed};
use crate::time::Time;
use crate::wire::codec::WireError;
use crate::wire::handshake::{self, Answer, Bound, Hello, Refusal, Resume, Welcome};
use crate::wire::{Frame, Names, Read, VERSIONS, codec};

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
    /// What became of [`Machine::introduce`]: the node at this address, which may be this one, or why there is none.
    Introduced(String, Result<NodeId, String>),
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
}

/// What a socket is used for.
#[derive(Clone, Debug)]
pub(crate) enum Phase {
    /// Somebody has dialled; a `Hello` is to come.
    Stranger,
    /// That `Hello` has been answered by `Welcome`. What it says holds when the dialler has confirmed that it
    /// has arrived.
    Answered(Box<Promise>),
    /// This node has dialled and said `Hello`, in this run of the connection.
    Greeting { wanted: Wanted, run: u64, address: String },
    /// It carries the connection to this node.
    Carries(NodeId),
    /// It has been answered for good; what still arrives is not read.
    Parting,
}

/// What a `Hello` that has been answered by `Welcome` says, and what was answered.
#[derive(Clone, Debug)]
pub(crate) struct Promise {
    dialler: Life,
    attempt: u64,
    addresses: Vec<String>,
    bound: Bound,
    /// So many numbered frames the dialler has seen in the life that was answered.
    seen: u64,
    /// Where the connection stands at this side, as `Welcome` says it.
    answered: Resume,
}

#[derive(Clone, Debug)]
pub(crate) struct Socket {
    pub(crate) phase: Phase,
    /// What has arrived and is no whole message yet.
    arrived: BytesMut,
    /// A message outside the sequence: a handshake's, or the last.
    pub(crate) ready: Option<Bytes>,
    /// When it has to have shaken hands.
    until: Time,
    /// Its other end is on this host.
    near: bool,
}

/// What a dial is for.
#[derive(Clone, Debug)]
struct Dial {
    wanted: Wanted,
    address: String,
}

/// Whom this node has dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// This node, for a connection.
    Node(NodeId),
    /// Whoever is there: [`Action::Introduced`] tells.
    Anybody,
    /// Whoever is there; if it is this node, the connection with it needs no relay.
    Probe(NodeId),
    /// The node that is there: if it is this one, it is reached where it listens.
    Check(NodeId),
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
}

/// One node's half of the protocol.
///
/// A driver tells it what happens (each method is an event) and does what [`poll`](Self::poll) says. The machine does no I/O and reads no
/// clock: the same events with the same seed have the same results.
#[derive(Clone, Debug)]
pub struct Machine {
    pub(crate) config: Config,
    pub(crate) me: Life,
    random: Random,
    pub(crate) actions: VecDeque<Action>,
    pub(crate) connections: BTreeMap<NodeId, Connection>,
    pub(crate) sockets: BTreeMap<SocketId, Socket>,
    pub(crate) relays: Relays,
    dials: BTreeMap<DialId, Dial>,
    next_dial: u64,
    /// Nothing has to be done before this, but perhaps nothing then either.
    due: Option<Time>,
    pub(crate) leaving: bool,
    /// See [`hurry`](Self::hurry).
    pub(crate) hurries: bool,
    /// See [`replaced_by`](Self::replaced_by).
    replaced: Option<Incarnation>,
    pub(crate) homes: BTreeMap<ChannelId, Home>,
    pub(crate) proxies: BTreeMap<ChannelId, Proxy>,
    /// Receivers that have come here in messages, and are not used yet.
    pub(crate) visitors: BTreeMap<ChannelId, Visitor>,
    /// How many messages with ends have been packed.
    pub(crate) trips: u64,
    /// The messages with ends in them that go through this node, and have not been taken: whether the end is gone is known there, and not here.
    pub(crate) passing: BTreeMap<u64, EarlyLapse>,
    /// What this node has said to itself.
    said_here: VecDeque<(Time, Frame)>,
    /// The last nodes that have left in order: what is said to one of them meanwhile, nobody hears.
    pub(crate) left: VecDeque<NodeId>,
}

/// So many of those who have left are remembered.
const LEFT_MAX: usize = 64;

/// For so long a dial gives way to a socket of the other node's, which that node is about to confirm.
const YIELD: Duration = Duration::from_millis(100);

/// How many dials that only learn whether a node of this host is reached are under way at once. Any peer on
/// the host can cause some.
const CHECKS_MAX: usize = 64;

impl Machine {
    /// A node that knows nobody.
    ///
    /// # Panics
    /// [`Config::check`] says no, or `me` has a zero in it: on the wire that is the node, or the incarnation, that is not known.
    pub fn new(config: Config, me: Life, seed: u64) -> Self {
        if let Err(why) = config.check() {
            panic!("a machine cannot work with its settings: {why}");
        }
        assert!(me.node != NodeId(0) && me.incarnation != Incarnation(0), "a node and its incarnation are not zero");
        Self {
            config,
            me,
            random: Random::new(seed),
            actions: VecDeque::new(),
            connections: BTreeMap::new(),
            sockets: BTreeMap::new(),
            relays: Relays::default(),
            dials: BTreeMap::new(),
            next_dial: 0,
            due: None,
            leaving: false,
            hurries: false,
            replaced: None,
            homes: BTreeMap::new(),
            proxies: BTreeMap::new(),
            visitors: BTreeMap::new(),
            trips: 0,
            passing: BTreeMap::new(),
            said_here: VecDeque::new(),
            left: VecDeque::new(),
        }
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
        self.actions.pop_front()
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
        self.due
    }

    /// Numbered frames that the connections it still has have heard; in this life of each.
    pub fn heard(&self) -> u64 {
        self.connections.values().map(|connection| connection.inbox.seen).sum()
    }

    /// What is there.
    pub fn census(&self) -> Census {
        let attached = || self.homes.values().flat_map(|home| home.attached.values());
        Census {
            homes: self.homes.len(),
            attached: attached().count(),
            proxies: self.proxies.len(),
            offers: attached().map(|from| from.open.len()).sum::<usize>()
                + self.proxies.values().map(Proxy::standing).sum::<usize>(),
            visitors: self.visitors.len(),
            passing: self.passing.len(),
            unfinished: self.connections.values().map(|connection| connection.inbox.unfinished()).sum(),
            unsaid: self.connections.values().map(|connection| connection.outbox.unsaid()).sum(),
            unacked_bytes: self.connections.values().map(|connection| connection.outbox.unacked_bytes()).sum(),
            sockets: self.sockets.keys().filter(|socket| !is_relayed(**socket)).count(),
            relayed: self.relays.relayed(),
            relays: self.relays.between_others(),
            heard: self.heard(),
        }
    }

    // Who can be reached, and where.

    /// Where a node can be dialled. What it says itself when it is met comes first.
    pub fn learn(&mut self, node: NodeId, addresses: &[String]) {
        let connection = self.connection(node);
        let known = connection.addresses.len();
        for address in addresses {
            if !connection.addresses.contains(address) {
                connection.addresses.push(address.clone());
            }
        }
        connection.addresses.truncate(2 * crate::wire::limits::ADDRESSES);
        if known == 0 && !connection.addresses.is_empty() && connection.dialling.waits_for_address {
            // Whoever wants the connection has waited for this.
            connection.dialling.waits_for_address = false;
            connection.dialling.next = Some(Time::default());
            self.due_at(Time::default());
        }
    }

    /// Where a node can be dialled, as far as is known: what it says itself comes first.
    pub fn addresses_of(&self, node: NodeId) -> &[String] {
        self.connections.get(&node).map_or(&[], |connection| &connection.addresses)
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
        self.dial(Wanted::Anybody, address);
    }

    /// Whether there is no connection to this node, and none is being made. After the end of one it is known here at once, and told
    /// by [`Action::Connection`].
    pub fn is_idle(&self, node: NodeId) -> bool {
        self.connections.get(&node).is_none_or(|connection| matches!(connection.carried, Carried::Idle))
    }

    /// As [`learn`](Self::learn), from that node: it may help if the two cannot dial each other.
    pub fn introduced(&mut self, node: NodeId, by: NodeId, addresses: &[String]) {
        self.learn(node, addresses);
        self.remember_introducer(node, by);
    }

    /// Makes a connection, if there is none, and this node is not leaving, nor replaced.
    pub fn connect(&mut self, now: Time, node: NodeId) {
        if !self.leaving && self.replaced.is_none() {
            self.want(now, node);
        }
    }

    /// How the connection to a node is: the socket that carries it; if it is relayed, that which carries the connection to the relay.
    pub fn carried_by(&self, node: NodeId) -> Option<SocketId> {
        let socket = self.connections.get(&node).and_then(Connection::socket)?;
        if !is_relayed(socket) {
            return Some(socket);
        }
        // No relay is relayed itself.
        self.relays.by(socket).and_then(|by| self.connections.get(&by)).and_then(Connection::socket)
    }

    /// The node that relays the connection to this one, if one does.
    pub fn relayed_by(&self, node: NodeId) -> Option<NodeId> {
        let socket = self.connections.get(&node).and_then(Connection::socket)?;
        self.relays.by(socket)
    }

    /// The nodes to which there are connections, whether these have a socket at the moment or not.
    pub fn peers(&self) -> impl Iterator<Item = Life> {
        self.connections
            .iter()
            .filter(|(_, connection)| connection.was_up)
            .map(|(node, connection)| Life { node: *node, incarnation: connection.met.expect("the handshake told") })
    }

    /// That node, in the present life of the connection with it, or, if there is none, in the next.
    pub fn contact(&self, node: NodeId) -> Contact {
        Contact { node, lives: self.connections.get(&node).map_or(0, |connection| connection.lives) }
    }

    /// Whether that life of the connection is over, or has not begun. For an end that was given or taken in it nobody at the other side answers any more, whether the connection is up again or not.
    pub fn is_over(&self, contact: Contact) -> bool {
        let is_up = |connection: &Connection| connection.was_up && connection.lives == contact.lives;
        !self.is_me(contact.node) && !self.connections.get(&contact.node).is_some_and(is_up)
    }

    /// What was carried between this node and each that it has ever had a connection with, also if that is over.
    pub fn traffic(&self) -> impl Iterator<Item = (Life, Traffic)> {
        self.connections.iter().filter_map(|(node, connection)| {
            connection.met.map(|incarnation| (Life { node: *node, incarnation }, connection.traffic))
        })
    }

    /// Leaves: every connection is told, after what it still has to say. [`is_flushed`](Self::is_flushed) tells when all have heard it.
    /// From now on nobody else gets a connection to this node.
    pub fn leave(&mut self, now: Time) {
        self.leaving = true;
        let peers: Vec<NodeId> = self.connections.keys().copied().collect();
        for peer in peers {
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
        self.connections.iter().all(|(node, connection)| self.is_flushed_to(*node, connection))
    }

    pub(crate) fn connection(&mut self, node: NodeId) -> &mut Connection {
        self.connections.entry(node).or_insert_with(Connection::new)
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

    /// The driver closes the socket, or, if it is relayed, this machine does, at once.
    fn act_close(&mut self, socket: SocketId, why: Closed) {
        if is_relayed(socket) {
            return self.close_relayed(socket);
        }
        self.actions.push_back(Action::Close(socket, why));
    }

    pub(crate) fn due_at(&mut self, at: Time) {
        if self.due.is_none_or(|due| at < due) {
            self.due = Some(at);
        }
    }

    /// Somebody here needs a connection to this node.
    fn want(&mut self, now: Time, node: NodeId) {
        let connection = self.connection(node);
        if std::mem::take(&mut connection.dialling.for_others) {
            self.seek_help(now, node);
        }
        self.seek(now, node);
    }

    /// A connection to this node is needed, here or by others.
    pub(crate) fn seek(&mut self, now: Time, node: NodeId) {
        // Nobody will have a node that is replaced. Who needs the connection hears that from the next tick, as it would hear later that it cannot be reached.
        let is_replaced = self.replaced.is_some();
        let until = if is_replaced { now } else { now + self.config.grace };
        let connection = self.connection(node);
        if !matches!(connection.carried, Carried::Idle) {
            return;
        }
        connection.carried = Carried::Lost { since: now, until };
        if is_replaced {
            return self.due_at(until);
        }
        if connection.dialling.next.is_none_or(|next| next < now) {
            connection.dialling.next = Some(now);
        }
        self.due_at(until);
        self.dial_if_due(now, node);
        self.seek_help(now, node);
    }

    // Dialling.

    fn dial(&mut self, wanted: Wanted, address: String) -> DialId {
        let id = DialId(self.next_dial);
        self.next_dial += 1;
        self.dials.insert(id, Dial { wanted, address: address.clone() });
        self.actions.push_back(Action::Dial(id, address));
        id
    }

    pub(crate) fn dial_if_due(&mut self, now: Time, node: NodeId) {
        let connection = self.connection(node);
        let relayed = match connection.carried {
            Carried::Idle => return,
            Carried::Lost { .. } => false,
            Carried::By(socket) if is_relayed(socket) => true,
            Carried::By(_) => return,
        };
        let dialling = &mut connection.dialling;
        let Some(next) = dialling.next.filter(|_| dialling.running.is_none()) else { return };
        if next > now {
            return self.due_at(next);
        }
        dialling.next = None;
        if relayed {
            if !self.leaving {
                self.probe(now, node);
            }
            return;
        }
        // Without an address there is nothing to dial: the other side has to.
        if connection.addresses.is_empty() {
            dialling.waits_for_address = true;
            if dialling.last.is_empty() {
                dialling.last = "no address of it is known".to_owned();
            }
            return;
        }
        let address = match connection.listeners.doubted().filter(|(at, _)| *at <= now) {
            Some((_, address)) => address.to_owned(),
            None => connection.addresses[dialling.failures as usize % connection.addresses.len()].clone(),
        };
        let id = self.dial(Wanted::Node(node), address);
        self.connection(node).dialling.running = Some(Attempt::Dial(id));
    }

    /// Whether the other node of a relayed connection can be dialled after all.
    fn probe(&mut self, now: Time, node: NodeId) {
        let running = self.dials.values().any(|dial| dial.wanted == Wanted::Probe(node));
        let connection = self.connection(node);
        connection.dialling.probes = connection.dialling.probes.wrapping_add(1);
        let at = connection.dialling.probes as usize % connection.addresses.len().max(1);
        if let Some(address) = connection.addresses.get(at).filter(|_| !running).cloned() {
            self.dial(Wanted::Probe(node), address);
        }
        self.probe_later(now, node);
    }

    fn probe_later(&mut self, now: Time, node: NodeId) {
        let at = now + self.random.jitter(self.config.redial);
        self.connection(node).dialling.next = Some(at);
        self.due_at(at);
    }

    /// Somebody has answered a probe. If it is who was meant, the relay is left: this node must not hear anything on the old socket after it has said on the new
    /// one what it has seen.
    fn probed(&mut self, now: Time, node: NodeId, there: NodeId, address: String) {
        if there != node || self.leaving {
            return;
        }
        let connection = self.connection(node);
        connection.addresses.retain(|other| *other != address);
        connection.addresses.insert(0, address);
        if let Some(socket) = connection.socket().filter(|socket| is_relayed(*socket)) {
            self.close(now, socket, Closed::Superseded);
        }
    }

    fn attempt_failed(&mut self, now: Time, node: NodeId, attempt: Attempt, why: String) {
        let (min, max) = (self.config.backoff_min, self.config.backoff_max);
        let failures = {
            let dialling = &mut self.connection(node).dialling;
            if dialling.running != Some(attempt) {
                return;
            }
            dialling.running = None;
            if matches!(attempt, Attempt::Hello(socket) if is_relayed(socket)) {
                // What came of dialling says more.
                self.relay_failed(now, node);
                self.connection(node).dialling.failures.max(1)
            } else {
                dialling.last = why;
                dialling.failures = dialling.failures.saturating_add(1);
                if !std::mem::take(&mut dialling.answered) {
                    dialling.unanswered = dialling.unanswered.saturating_add(1);
                }
                dialling.failures
            }
        };
        let wait = self.random.jitter((min * 2u32.saturating_pow(failures.min(16) - 1)).min(max));
        if self.report(now, node) {
            return;
        }
        let connection = self.connection(node);
        // Where a second refusal would tell that the node is dead, it is dialled as soon as that counts.
        let doubted = connection.listeners.doubted().map(|(at, _)| at.max(now));
        let dialling = &mut connection.dialling;
        if dialling.running.is_none() {
            dialling.next = Some((now + wait).min(doubted.unwrap_or(now + wait)));
        }
        self.dial_if_due(now, node);
        self.seek_help(now, node);
    }

    /// The socket that was asked for is there.
    pub fn dialled(&mut self, now: Time, id: DialId, socket: SocketId) {
        let Some(dial) = self.dials.remove(&id) else {
            return self.act_close(socket, Closed::Superseded);
        };
        if let Wanted::Node(node) = dial.wanted {
            // A socket of one's own is better than one that is still to be relayed.
            let instead = self.stop_relaying(now, node);
            let connection = self.connection(node);
            let stands = instead || connection.dialling.running == Some(Attempt::Dial(id));
            if !stands || !matches!(connection.carried, Carried::Lost { .. }) {
                if stands {
                    connection.dialling.running = None;
                }
                return self.act_close(socket, Closed::Superseded);
            }
            if !instead && self.unconfirmed(node).next().is_some() && self.yields(now, node) {
                return self.act_close(socket, Closed::Superseded);
            }
        }
        self.greet(now, dial.wanted, dial.address, socket);
    }

    /// Says hello on a socket, which is to carry the connection to that node.
    pub(crate) fn greet(&mut self, now: Time, wanted: Wanted, address: String, socket: SocketId) {
        let (mut met, mut attempt, mut resume) = (Incarnation(0), 0, Resume { run: 0, seen: 0 });
        let mut who = NodeId(0);
        if let Wanted::Node(node) = wanted {
            who = node;
            let connection = self.connection(node);
            connection.dialling.running = Some(Attempt::Hello(socket));
            connection.attempts += 1;
            attempt = connection.attempts;
            met = connection.met.unwrap_or(Incarnation(0));
            resume = connection.resume_point();
        }
        let hello = Hello {
            versions: VERSIONS,
            application: self.config.application.clone(),
            me: self.me,
            wanted: who,
            met,
            attempt,
            resume,
            addresses: self.config.addresses.clone(),
            bound: self.config.bound_of_addresses(),
            identity: Bytes::new(),
        };
        let phase = Phase::Greeting { wanted, run: resume.run, address };
        self.add_socket(now, socket, phase, Some(hello.encode()));
        self.act_write(socket);
    }

    /// There is no socket to be had.
    pub fn dial_failed(&mut self, now: Time, id: DialId, why: String) {
        if let Some(Dial { wanted: Wanted::Node(node), address }) = self.dials.get(&id)
            && let Some(connection) = self.connections.get_mut(node)
        {
            connection.listeners.not_refused(address);
        }
        self.no_socket(now, id, why);
    }

    /// There is no socket to be had, since no process listens there. `near`: on this host. A dial that has
    /// not been answered, or could not be made, has [failed](Self::dial_failed): only a refusal may say that
    /// a node is dead.
    pub fn dial_refused(&mut self, now: Time, id: DialId, near: bool, why: String) {
        if let Some(Dial { wanted: Wanted::Node(node), address }) = self.dials.get(&id) {
            let (node, address) = (*node, address.clone());
            if self.refuses(now, node, &address, near) {
                self.dials.remove(&id);
                return;
            }
        }
        self.no_socket(now, id, why);
    }

    fn no_socket(&mut self, now: Time, id: DialId, why: String) {
        let Some(dial) = self.dials.remove(&id) else { return };
        match dial.wanted {
            Wanted::Node(node) if self.is_being_relayed(node) => self.connection(node).dialling.last = why,
            Wanted::Node(node) => self.attempt_failed(now, node, Attempt::Dial(id), why),
            Wanted::Anybody => self.actions.push_back(Action::Introduced(dial.address, Err(why))),
            Wanted::Probe(_) | Wanted::Check(_) => {}
        }
    }

    /// A dial for the connection with that node was refused, or answered by another node. `true`: it is dead,
    /// and its connection over.
    fn refuses(&mut self, now: Time, node: NodeId, address: &str, near: bool) -> bool {
        let Some(connection) = self.connections.get_mut(&node) else { return false };
        // A dial that outlasts its need, or is for another node, says nothing of the next loss.
        let needed = matches!(connection.carried, Carried::Lost { .. }) && !connection.dialling.for_others;
        if !needed || self.replaced.is_some() {
            return false;
        }
        connection.listeners.refused(now, address, near);
        let Some(at) = connection.listeners.dead_at() else { return false };
        self.die(now, node, Down::Died(at));
        true
    }

    /// The other end of this socket, which was just dialled or accepted, is on this host: so the addresses at
    /// which that node listens can be dialled at no cost, to know them when they refuse.
    pub fn is_near(&mut self, socket: SocketId) {
        if let Some(socket) = self.sockets.get_mut(&socket) {
            socket.near = true;
        }
    }

    /// Whether that node is reached where it says it listens.
    fn check_listeners(&mut self, node: NodeId) {
        if self.leaving {
            return;
        }
        let is_check = |wanted: &Wanted| matches!(wanted, Wanted::Check(_));
        let dials = self.dials.values().filter(|dial| is_check(&dial.wanted)).count();
        let greeting = |socket: &&Socket| matches!(&socket.phase, Phase::Greeting { wanted, .. } if is_check(wanted));
        let running = dials + self.sockets.values().filter(greeting).count();
        for address in self.connection(node).listeners.take_unasked(CHECKS_MAX.saturating_sub(running)) {
            self.dial(Wanted::Check(node), address);
        }
    }

    // Sockets.

    fn add_socket(&mut self, now: Time, id: SocketId, phase: Phase, ready: Option<Bytes>) {
        let until = now + self.config.handshake;
        self.sockets.insert(id, Socket { phase, arrived: BytesMut::new(), ready, until, near: false });
        self.due_at(until);
    }

    /// Somebody has dialled this node.
    pub fn accepted(&mut self, now: Time, socket: SocketId) {
        let (mut strangers, mut parting) = (0, 0);
        for other in self.sockets.values() {
            match other.phase {
                Phase::Stranger | Phase::Answered(_) => strangers += 1,
                Phase::Parting => parting += 1,
                Phase::Greeting { .. } | Phase::Carries(_) => {}
            }
        }
        let crowded = strangers >= self.config.strangers_max;
        // A socket without a place is told so, as long as no more than that many are being told.
        if crowded && parting >= self.config.strangers_max {
            return self.act_close(socket, Closed::Crowded);
        }
        self.add_socket(now, socket, Phase::Stranger, None);
        if crowded {
            self.part(now, socket, Answer::Refused(Refusal::Busy).encode(), Closed::Crowded);
        }
    }

    /// The socket is gone, or will not carry any more.
    pub fn closed(&mut self, now: Time, socket: SocketId) {
        self.drop_socket(now, socket, "the socket was closed");
    }

    pub(crate) fn close(&mut self, now: Time, socket: SocketId, why: Closed) {
        let text = why.to_string();
        self.act_close(socket, why);
        self.drop_socket(now, socket, &text);
    }

    pub(crate) fn drop_socket(&mut self, now: Time, id: SocketId, why: &str) {
        let Some(socket) = self.sockets.remove(&id) else { return };
        match socket.phase {
            Phase::Stranger
            | Phase::Answered(_)
            | Phase::Parting
            | Phase::Greeting { wanted: Wanted::Probe(_) | Wanted::Check(_), .. } => {}
            Phase::Greeting { wanted: Wanted::Node(node), address, .. } => {
                if let Some(connection) = self.connections.get_mut(&node) {
                    connection.listeners.not_refused(&address);
                }
                self.attempt_failed(now, node, Attempt::Hello(id), why.to_owned());
            }
            Phase::Greeting { wanted: Wanted::Anybody, address, .. } => {
                self.actions.push_back(Action::Introduced(address, Err(why.to_owned())));
            }
            Phase::Carries(node) => {
                let grace = self.config.grace;
                let connection = self.connection(node);
                if connection.socket() != Some(id) {
                    return;
                }
                if connection.leaving && connection.outbox.is_done() {
                    return self.die(now, node, Down::Left);
                }
                let until = connection.lose(now) + grace;
                connection.carried = Carried::Lost { since: now, until };
                connection.ack_at = None;
                connection.dialling.next = Some(now);
                connection.dialling.rest();
                connection.listeners.all_well();
                connection.dialling.last = why.to_owned();
                self.actions.push_back(Action::Connection(node, State::Lost(until)));
                if until <= now {
                    return self.give_up(now, node);
                }
                self.due_at(until);
                self.dial_if_due(now, node);
                self.seek_help(now, node);
            }
        }
    }

    /// Writes what a socket has to carry behind `out`, about `room` bytes. Returns how many bytes.
    pub fn fill(&mut self, now: Time, socket: SocketId, room: usize, out: &mut Vec<Bytes>) -> usize {
        let Some(entry) = self.sockets.get_mut(&socket) else { return 0 };
        let mut total = 0;
        if let Some(message) = entry.ready.take() {
            total += message.len();
            out.push(message);
        }
        let Phase::Carries(node) = entry.phase else { return total };
        let others = self.relays.needs(node);
        if others {
            self.pull(now, node);
        }
        let Some(connection) = self.connections.get_mut(&node) else { return total };
        let owed = connection.inbox.heard() != connection.inbox.acked;
        let speaks = connection.outbox.has_something(&self.config);
        let silent = now >= connection.heartbeat_at(&self.config);
        let overdue = connection.ack_at.is_some_and(|at| now >= at);
        let much = connection.inbox.must_acknowledge(&self.config);
        let moment = if owed && (speaks || silent || overdue || much) {
            connection.inbox.acked = connection.inbox.heard();
            connection.inbox.unacked_bytes = 0;
            connection.ack_at = None;
            Some(Frame::Ack { seen: connection.inbox.acked })
        } else {
            silent.then_some(Frame::Heartbeat)
        };
        let mut written = connection.outbox.fill(now, moment, &self.config, room, out);
        if written > 0 {
            connection.says(now, &self.config);
            connection.traffic.written += written as u64;
        }
        // What relayed sockets have to say is fetched from them as late as it can be.
        while others && written < room {
            self.pull(now, node);
            let Some(connection) = self.connections.get_mut(&node) else { break };
            match connection.outbox.fill(now, None, &self.config, room - written, out) {
                0 => break,
                more => {
                    connection.traffic.written += more as u64;
                    written += more;
                }
            }
        }
        total + written
    }

    /// Whether [`fill`](Self::fill) would write something.
    pub fn has_something(&self, now: Time, socket: SocketId) -> bool {
        let Some(entry) = self.sockets.get(&socket) else { return false };
        if entry.ready.is_some() {
            return true;
        }
        let Phase::Carries(node) = entry.phase else { return false };
        if self.relays.are_stirred(node) {
            return true;
        }
        self.connections.get(&node).is_some_and(|connection| {
            connection.outbox.has_something(&self.config)
                || now >= connection.heartbeat_at(&self.config)
                || connection.ack_at.is_some_and(|at| now >= at)
                || connection.inbox.must_acknowledge(&self.config)
        })
    }

    /// Whether nothing was said on the connection of late, by either side, but large values of one channel ([`Config::company`]): these may be written, and read, in
    /// larger parts than if somebody else were waiting for them. If [`fill`](Self::fill) has more room then than [`Config::chunk_alone`], values are cut into larger pieces, and more
    /// may be on its way ([`Config::queueing_alone`]).
    pub fn is_alone(&self, socket: SocketId) -> bool {
        let Some(Socket { phase: Phase::Carries(node), .. }) = self.sockets.get(&socket) else { return false };
        self.connections.get(node).is_some_and(|connection| connection.outbox.is_alone())
    }

    /// Whether [`fill`](Self::fill) would write of values that are large, or follow others of their channel: these can wait for a moment, if somebody
    /// may soon have something small to say, which would come before them.
    pub fn has_more_of_values(&self, socket: SocketId) -> bool {
        let Some(Socket { phase: Phase::Carries(node), ready: None, .. }) = self.sockets.get(&socket) else {
            return false;
        };
        self.connections.get(node).is_some_and(|connection| connection.outbox.has_more_of_values(&self.config))
    }

    /// Bytes have arrived, behind what the last call has left in `buffer`: the beginning of a frame, that is not copied to wait for its end.
    /// Returns how many more bytes that frame needs at least.
    pub fn received_in(&mut self, now: Time, id: SocketId, buffer: &mut BytesMut) -> usize {
        let Some(socket) = self.sockets.get_mut(&id) else {
            buffer.clear();
            return 0;
        };
        let Phase::Carries(node) = socket.phase else {
            self.received(now, id, buffer.split().freeze());
            return 0;
        };
        if !socket.arrived.is_empty() {
            // Left by the handshake.
            let mut arrived = std::mem::take(&mut socket.arrived);
            arrived.unsplit(buffer.split());
            *buffer = arrived;
        }
        let (mut whole, mut missing) = (0, 0);
        while whole < buffer.len() {
            match codec::next(&buffer[whole..]) {
                Ok(codec::Next::Frame { head, body }) => whole += head + body,
                Ok(codec::Next::Wait(more)) => {
                    missing = more;
                    break;
                }
                // It is said by who reads the frames.
                Err(_) => whole = buffer.len(),
            }
        }
        let frames = buffer.split_to(whole).freeze();
        self.carry(now, id, node, BytesMut::new(), frames, missing > 0);
        missing
    }

    /// Bytes have arrived.
    pub fn received(&mut self, now: Time, id: SocketId, bytes: Bytes) {
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        match socket.phase {
            Phase::Parting => return,
            Phase::Carries(node) => {
                let arrived = std::mem::take(&mut socket.arrived);
                return self.carry(now, id, node, arrived, bytes, false);
            }
            Phase::Stranger | Phase::Answered(_) | Phase::Greeting { .. } => {}
        }
        socket.arrived.extend_from_slice(&bytes);
        if let Phase::Stranger = socket.phase {
            match Hello::decode(&mut socket.arrived) {
                Ok(None) => return,
                Ok(Some(hello)) => self.hello(now, id, hello),
                Err(WireError::Version(_)) => self.refuse(now, id, Refusal::Version(VERSIONS)),
                Err(why) => self.close(now, id, Closed::Garbage(why.to_string())),
            }
        }
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        match &mut socket.phase {
            Phase::Answered(promise) => match codec::confirms(&mut socket.arrived) {
                Ok(false) => return,
                Ok(true) => {
                    let promise = promise.clone();
                    self.confirmed(now, id, *promise);
                }
                Err(why) => self.close(now, id, Closed::Garbage(why.to_string())),
            },
            Phase::Greeting { .. } => match Answer::decode(&mut socket.arrived) {
                Ok(None) => return,
                Ok(Some(Answer::Welcome(welcome))) => self.welcome(now, id, welcome),
                Ok(Some(Answer::Refused(why))) => self.refused(now, id, why),
                Err(why) => self.close(now, id, Closed::Garbage(why.to_string())),
            },
            Phase::Carries(_) => {}
            Phase::Stranger | Phase::Parting => return,
        }
        // What came behind the handshake in one piece.
        if let Some(socket) = self.sockets.get_mut(&id)
            && let Phase::Carries(node) = socket.phase
            && !socket.arrived.is_empty()
        {
            let arrived = std::mem::take(&mut socket.arrived).freeze();
            self.carry(now, id, node, BytesMut::new(), arrived, false);
        }
    }

    // The handshake.

    fn refuse(&mut self, now: Time, id: SocketId, why: Refusal) {
        self.part(now, id, Answer::Refused(why.clone()).encode(), Closed::Refused(why));
    }

    /// The last word on a socket. It stays known until the driver has fetched it.
    fn part(&mut self, now: Time, id: SocketId, last: Bytes, why: Closed) {
        let until = now + self.config.handshake;
        if let Some(socket) = self.sockets.get_mut(&id) {
            socket.until = until;
            socket.ready = Some(last);
            socket.phase = Phase::Parting;
            self.act_close(id, why);
            self.due_at(until);
        }
    }

    /// At the dialled side.
    fn hello(&mut self, now: Time, id: SocketId, hello: Hello) {
        let version = handshake::common(hello.versions).expect("its decoder has looked");
        let meant = hello.wanted == NodeId(0) || hello.wanted == self.me.node;
        // Its relay has said who dials.
        let from = self.relays.from(id).unwrap_or(hello.me.node);
        if hello.application != self.config.application {
            let answer = Answer::Refused(Refusal::Application(self.config.application.clone()));
            let stranger = Closed::Stranger { node: hello.me.node, application: hello.application };
            return self.part(now, id, answer.encode(), stranger);
        }
        let refusal = if !meant || from != hello.me.node {
            Some(Refusal::WrongNode(self.me.node))
        } else if hello.me.node == self.me.node {
            // Whichever of the two is the earlier one has to hear it.
            self.hear_of_myself(now, hello.me.incarnation);
            Some(match hello.me.incarnation.cmp(&self.me.incarnation) {
                Ordering::Less => Refusal::Stale(self.me.incarnation),
                Ordering::Equal => Refusal::Myself,
                Ordering::Greater => Refusal::WrongNode(self.me.node),
            })
        } else {
            None
        };
        if let Some(why) = refusal {
            return self.refuse(now, id, why);
        }
        self.hear_of_myself(now, hello.met);
        if self.replaced.is_some() {
            // It is to look for the later life, and not to take this one for it.
            return self.refuse(now, id, Refusal::Busy);
        }
        let introduces = hello.wanted == NodeId(0);
        let node = hello.me.node;
        let me = self.me;
        if !self.connections.contains_key(&node) {
            if introduces && !self.leaving {
                return self.introduce_myself(now, id, version);
            }
            if introduces || self.connections.len() >= self.config.peers_max {
                return self.refuse(now, id, Refusal::Busy);
            }
        }
        let known = self.connections.get(&node);
        let met = known.and_then(|connection| connection.met);
        if let Some(met) = met.filter(|met| hello.me.incarnation < *met && !planted!(StaleAdmitted)) {
            return self.refuse(now, id, Refusal::Stale(met));
        }
        let restarted = met.is_some_and(|met| hello.me.incarnation > met) && !planted!(RestartUnnoticed);
        // What is said of a connection in an earlier life of that node says nothing of the present one.
        let stands = known.filter(|_| !restarted);
        let wanted_here = stands.is_some_and(|connection| connection.was_up || !connection.outbox.is_done());
        if self.leaving && (introduces || !wanted_here) {
            return self.refuse(now, id, Refusal::Busy);
        }
        if introduces {
            return self.introduce_myself(now, id, version);
        }
        let their_attempt = stands.map_or(0, |connection| connection.their_attempt);
        if hello.attempt <= their_attempt && !planted!(LateSocket) {
            return self.refuse(now, id, Refusal::Late);
        }
        if let Some(Attempt::Hello(mine)) = known.and_then(|connection| connection.dialling.running)
            && !planted!(CrossedKept)
            && self.keeps_mine(node, mine, id)
        {
            return self.refuse(now, id, Refusal::Crossed);
        }
        let here = stands.map_or(Resume { run: 1, seen: 0 }, Connection::resume_point);
        // What it says of another life of this node says nothing of this one. If it has met none, it may
        // still have counted lives.
        let theirs = match hello.met {
            met if met == me.incarnation => hello.resume,
            Incarnation(0) => Resume { seen: 0, ..hello.resume },
            _ => Resume { run: here.run, seen: 0 },
        };
        let mut run = here.run.max(theirs.run);
        let mut seen = if theirs.run == run { theirs.seen } else { 0 };
        let outbox = stands.filter(|_| run == here.run).map(|connection| &connection.outbox);
        if outbox.is_some_and(|outbox| seen < outbox.acked()) && !planted!(LateSocket) {
            // It has said itself, on another socket, that it has seen more: this one is older, and only arrives now.
            return self.refuse(now, id, Refusal::Late);
        }
        if !outbox.map_or(seen == 0, |outbox| outbox.can_resume(seen)) {
            // That cannot be: this life is over, for both.
            (run, seen) = (run + 1, 0);
        }
        let answered = Resume { run, seen: if run == here.run { here.seen } else { 0 } };
        let promise = Promise {
            dialler: hello.me,
            attempt: hello.attempt,
            addresses: hello.addresses,
            bound: hello.bound,
            seen,
            answered,
        };
        let welcome = self.say_welcome(version, answered);
        let socket = self.sockets.get_mut(&id).expect("it is the one that arrived");
        socket.ready = Some(welcome);
        if planted!(UnconfirmedResumed) {
            return self.confirmed(now, id, promise);
        }
        socket.phase = Phase::Answered(Box::new(promise));
        self.act_write(id);
    }

    /// Both have dialled: whether this node's own socket is kept. One of their own is better than one that
    /// another node relays.
    fn keeps_mine(&self, node: NodeId, mine: SocketId, theirs: SocketId) -> bool {
        if is_relayed(mine) == is_relayed(theirs) { self.me.node < node } else { is_relayed(theirs) }
    }

    /// At the dialled side: `Welcome` has arrived. Until now nothing has changed here for what the dialler
    /// has said; something else may have changed it meanwhile.
    fn confirmed(&mut self, now: Time, id: SocketId, promise: Promise) {
        let Promise { dialler: Life { node, incarnation }, attempt, addresses, bound, seen, answered } = promise;
        let room = self.connections.contains_key(&node) || self.connections.len() < self.config.peers_max;
        if self.replaced.is_some() || !room {
            return self.close(now, id, Closed::Refused(Refusal::Busy));
        }
        let connection = self.connection(node);
        match connection.met {
            Some(met) if incarnation < met && !planted!(StaleAdmitted) => {
                return self.close(now, id, Closed::Refused(Refusal::Stale(met)));
            }
            Some(met) if incarnation > met && !planted!(RestartUnnoticed) => {
                self.end_life(now, node, Down::Restarted, 1);
                self.connection(node).their_attempt = 0;
            }
            _ => {}
        }
        let connection = self.connection(node);
        if attempt <= connection.their_attempt && !planted!(LateSocket) {
            return self.close(now, id, Closed::Refused(Refusal::Late));
        }
        connection.their_attempt = attempt;
        connection.met = Some(incarnation);
        if self.is_unproven_for_long(now, node) {
            // The last socket is lost, and nothing has come of any for the whole grace period. The next
            // handshake says that this life is over.
            match self.connection(node).socket() {
                Some(old) => self.close(now, old, Closed::Superseded),
                None => self.give_up(now, node),
            }
            return self.close(now, id, Closed::Over);
        }
        let connection = self.connection(node);
        if answered.run > connection.run {
            self.end_life(now, node, Down::GivenUp, answered.run);
        }
        let connection = self.connection(node);
        if answered.run < connection.run || answered.seen > connection.inbox.seen || !connection.outbox.can_resume(seen)
        {
            return self.close(now, id, Closed::Superseded);
        }
        connection.outbox.resume(seen);
        connection.listeners.told(incarnation, &addresses, bound);
        self.learn_first(node, addresses);
        self.carry_by(now, node, id);
        // What has come on the old socket since the answer comes again.
        let inbox = &mut self.connection(node).inbox;
        inbox.again = inbox.seen - answered.seen;
        inbox.acked = inbox.heard();
    }

    /// Whether a connection that has been up has lost its sockets, and proved nothing, for the whole grace
    /// period.
    fn is_unproven_for_long(&self, now: Time, node: NodeId) -> bool {
        let Some(connection) = self.connections.get(&node) else { return false };
        connection.was_up && connection.unproven.is_some_and(|since| now >= since + self.config.grace)
    }

    /// The grace period is over.
    fn give_up(&mut self, now: Time, node: NodeId) {
        let replaced = self.replaced;
        let connection = self.connection(node);
        let since = match connection.carried {
            Carried::Lost { since, .. } => since,
            _ => now,
        };
        let dialled = std::mem::take(&mut connection.dialling.last);
        let waited = now.since(connection.unproven.unwrap_or(since));
        let why = match connection.dialling.unrelayed {
            Some((by, why)) => Down::Unrelayed { waited, dialled, by, why },
            None => Down::Unreachable(waited, dialled),
        };
        let why = replaced.map_or(why, |by| Down::Refused(Refusal::Stale(by)));
        self.die(now, node, why);
    }

    /// It only wants to know who is here; it will dial again for a connection.
    fn introduce_myself(&mut self, now: Time, id: SocketId, version: u16) {
        let welcome = self.say_welcome(version, Resume { run: 0, seen: 0 });
        self.part(now, id, welcome, Closed::Over);
    }

    fn say_welcome(&self, version: u16, resume: Resume) -> Bytes {
        let (addresses, bound) = (self.config.addresses.clone(), self.config.bound_of_addresses());
        let welcome = Welcome { version, me: self.me, resume, addresses, bound, identity: Bytes::new() };
        Answer::Welcome(welcome).encode()
    }

    /// What a node says of itself comes before what others say of it.
    fn learn_first(&mut self, node: NodeId, mut addresses: Vec<String>) {
        let connection = self.connection(node);
        let others = std::mem::take(&mut connection.addresses);
        addresses.extend(others.into_iter().filter(|address| !addresses.contains(address)).collect::<Vec<_>>());
        addresses.truncate(2 * crate::wire::limits::ADDRESSES);
        self.connection(node).addresses = addresses;
    }

    /// At the dialling side.
    fn welcome(&mut self, now: Time, id: SocketId, welcome: Welcome) {
        let Some(Phase::Greeting { wanted, run, address }) = self.sockets.get(&id).map(|socket| &socket.phase) else {
            return;
        };
        let (wanted, said_run, address) = (*wanted, *run, address.clone());
        let life = welcome.me;
        let Wanted::Node(node) = wanted else {
            // It was only an introduction.
            self.sockets.remove(&id);
            self.act_close(id, Closed::Over);
            if let Wanted::Check(node) = wanted {
                if let Some(connection) = self.connections.get_mut(&node).filter(|_| node == life.node) {
                    connection.listeners.reached(life.incarnation, &address);
                }
                return;
            }
            if let Wanted::Probe(node) = wanted {
                return self.probed(now, node, life.node, address);
            }
            self.learn(life.node, std::slice::from_ref(&address));
            return self.actions.push_back(Action::Introduced(address, Ok(life.node)));
        };
        if life.node != node {
            return self.another_answers(now, id, node, Refusal::WrongNode(life.node));
        }
        if welcome.version < VERSIONS.0 || welcome.version > VERSIONS.1 {
            return self.close(now, id, Closed::Refused(Refusal::Version((welcome.version, welcome.version))));
        }
        let connection = self.connection(node);
        // Since it said hello this side may have taken another socket, or given the life up that the hello spoke of.
        let stands = planted!(CrossedKept)
            || connection.dialling.running == Some(Attempt::Hello(id))
                && matches!(connection.carried, Carried::Lost { .. })
                && connection.run == said_run;
        if !stands {
            return self.close(now, id, Closed::Superseded);
        }
        let theirs = self.unconfirmed(node).next();
        if let Some(theirs) = theirs
            && !self.keeps_mine(node, id, theirs)
            && self.yields(now, node)
        {
            return self.close(now, id, Closed::Superseded);
        }
        let connection = self.connection(node);
        match connection.met {
            Some(met) if life.incarnation < met => {
                return self.close(now, id, Closed::Refused(Refusal::Stale(met)));
            }
            Some(met) if life.incarnation > met => {
                self.end_life(now, node, Down::Restarted, 1);
                self.connection(node).their_attempt = 0;
            }
            _ => {}
        }
        let connection = self.connection(node);
        connection.met = Some(life.incarnation);
        let theirs = welcome.resume;
        if theirs.run > connection.run {
            self.end_life(now, node, Down::GivenUp, theirs.run);
        }
        let connection = self.connection(node);
        if theirs.run < connection.run || !connection.outbox.resume(theirs.seen) {
            // It cannot go on from there: the next handshake says that this life is over.
            let run = connection.run + 1;
            self.end_life(now, node, Down::GivenUp, run);
            return self.close(now, id, Closed::Over);
        }
        connection.dialling.running = None;
        connection.listeners.told(life.incarnation, &welcome.addresses, welcome.bound);
        // Where another one wanted it to be dialled it is known only by that word.
        let for_others = connection.dialling.for_others || connection.dialling.reports.is_some();
        if !is_relayed(id) && !for_others {
            connection.listeners.reached(life.incarnation, &address);
        }
        self.learn_first(node, welcome.addresses);
        self.drop_answered(now, node, id);
        let mut confirm = BytesMut::new();
        codec::encode(&Frame::Confirm, &mut confirm);
        self.sockets.get_mut(&id).expect("the handshake went over it").ready = Some(confirm.freeze());
        self.carry_by(now, node, id);
    }

    /// This node's own socket carries the connection. Those that the other one has dialled, and has not
    /// confirmed, are not to take its place, if the other one gives way as well. A socket of that node's that
    /// this one has answered, and the node not confirmed yet.
    fn unconfirmed(&self, node: NodeId) -> impl Iterator<Item = SocketId> {
        let of_it =
            move |socket: &Socket| matches!(&socket.phase, Phase::Answered(promise) if promise.dialler.node == node);
        self.sockets.iter().filter(move |(_, socket)| of_it(socket)).map(|(id, _)| *id)
    }

    /// The dial that runs gives way to such a socket. Else the connection could be up by one of the two, and
    /// be lost for the other. Once only, and for a moment: the socket may never be confirmed.
    fn yields(&mut self, now: Time, node: NodeId) -> bool {
        let dialling = &mut self.connection(node).dialling;
        if planted!(CrossedKept) || std::mem::replace(&mut dialling.has_yielded, true) {
            return false;
        }
        dialling.running = None;
        dialling.next = Some(now + YIELD);
        self.due_at(now + YIELD);
        true
    }

    fn drop_answered(&mut self, now: Time, node: NodeId, mine: SocketId) {
        let dropped: Vec<SocketId> = self.unconfirmed(node).filter(|id| self.keeps_mine(node, mine, *id)).collect();
        dropped.into_iter().for_each(|id| self.close(now, id, Closed::Superseded));
    }

    fn refused(&mut self, now: Time, id: SocketId, why: Refusal) {
        let Some(Phase::Greeting { wanted, address, .. }) = self.sockets.get(&id).map(|socket| &socket.phase) else {
            return;
        };
        let (wanted, address) = (*wanted, address.clone());
        if wanted == Wanted::Anybody && why == Refusal::Myself {
            // That is an answer as well: the address leads to this node.
            self.sockets.remove(&id);
            self.act_close(id, Closed::Refused(why));
            return self.actions.push_back(Action::Introduced(address, Ok(self.me.node)));
        }
        if let Wanted::Node(node) = wanted {
            let connection = self.connection(node);
            connection.dialling.answered = true;
            // The node of a connection that was up belongs to this application, and is not this node: the
            // address leads elsewhere.
            let is_elsewhere = match why {
                Refusal::WrongNode(_) => true,
                Refusal::Version(_) | Refusal::Application(_) | Refusal::Myself => connection.was_up,
                _ => false,
            };
            if is_elsewhere {
                return self.another_answers(now, id, node, why);
            }
        }
        self.close(now, id, Closed::Refused(why.clone()));
        if let Refusal::Stale(met) = why {
            self.hear_of_myself(now, met);
        }
        // The first dial of a connection would hear these again the next time; the others may change.
        if let Wanted::Node(node) = wanted
            && matches!(why, Refusal::Version(_) | Refusal::Application(_) | Refusal::Myself | Refusal::Stale(_))
        {
            // (If this node is replaced, the connection is over as all the others are.)
            if self.replaced.is_none() {
                self.die(now, node, Down::Refused(why));
            }
        }
    }

    /// At the address that was dialled for the connection with that node another one answers.
    fn another_answers(&mut self, now: Time, id: SocketId, node: NodeId, why: Refusal) {
        let Some(Socket { phase: Phase::Greeting { address, .. }, near, .. }) = self.sockets.get(&id) else { return };
        let (address, near) = (address.clone(), *near);
        if is_relayed(id) || !self.refuses(now, node, &address, near) {
            self.sockets.remove(&id);
            self.act_close(id, Closed::Refused(why.clone()));
            self.attempt_failed(now, node, Attempt::Hello(id), why.to_string());
        }
    }

    /// Another node has met this incarnation of this node. If it is a later one, this node is replaced.
    ///
    /// Some others know that, and have ended their connections with this one; the rest may learn it at any time, or never. To those it would speak for the later life: say that it has
    /// not what that one has, for one thing. So it ends all connections, as if it had crashed, and lets nobody in.
    fn hear_of_myself(&mut self, now: Time, met: Incarnation) {
        if !self.config.keeps_id || met <= self.me.incarnation || self.replaced.is_some() || planted!(ReplacedGoesOn) {
            return;
        }
        self.replaced = Some(met);
        let nodes: Vec<NodeId> = self.connections.keys().copied().collect();
        for node in nodes {
            let connection = self.connection(node);
            if connection.dialling.for_others {
                self.forget_dial_back(node);
            } else if !matches!(connection.carried, Carried::Idle) {
                self.die(now, node, Down::Refused(Refusal::Stale(met)));
            }
        }
    }

    /// A socket takes up a connection.
    fn carry_by(&mut self, now: Time, node: NodeId, id: SocketId) {
        let leaving = self.leaving;
        let connection = self.connection(node);
        let state = if connection.was_up {
            State::Resumed
        } else {
            let incarnation = connection.met.expect("the handshake told");
            State::Up(Life { node, incarnation })
        };
        let before = std::mem::replace(&mut connection.carried, Carried::By(id));
        if leaving && !connection.leaving {
            connection.leaving = true;
            connection.outbox.push(Frame::Goodbye);
        }
        let hello = match connection.dialling.running.take() {
            Some(Attempt::Hello(socket)) if socket != id && !planted!(CrossedKept) => Some(socket),
            _ => None,
        };
        connection.was_up = true;
        connection.listeners.all_well();
        connection.dialling.next = None;
        connection.dialling.rest();
        connection.said = now;
        connection.heard = now;
        connection.carried_at = now;
        connection.resuming = state == State::Resumed;
        if matches!(before, Carried::By(_)) {
            connection.lose(now);
        }
        if planted!(GraceRestarted) {
            connection.unproven = None;
        }
        connection.inbox.again = 0;
        connection.inbox.acked = connection.inbox.seen;
        connection.inbox.unacked_bytes = 0;
        connection.inbox.within_frame = false;
        connection.ack_at = None;
        let socket = self.sockets.get_mut(&id).expect("the handshake went over it");
        socket.phase = Phase::Carries(node);
        if socket.near {
            self.check_listeners(node);
        }
        if let Carried::By(old) = before {
            // The other side has noticed before this one that it is lost.
            self.sockets.remove(&old);
            self.act_close(old, Closed::Superseded);
            self.actions.push_back(Action::Connection(node, State::Lost(now)));
        }
        if let Some(socket) = hello {
            self.sockets.remove(&socket);
            self.act_close(socket, Closed::Superseded);
        }
        #[cfg(feature = "planted")]
        if planted!(CreditsDoubled) && state == State::Resumed {
            self.grant_again(now, node);
        }
        let is_new = matches!(state, State::Up(_));
        self.actions.push_back(Action::Connection(node, state));
        if let Some(relay) = self.relays.by(id) {
            self.actions.push_back(Action::Connection(node, State::Relayed(relay)));
            // What is relayed does not relay: else two could end up relaying each other's connection to the other.
            self.end_streams(now, node, true);
            self.probe_later(now, node);
        }
        if is_new {
            self.take_anew(now, node);
        }
        self.due_at(now + self.config.first_heartbeat());
        self.due_at(now + self.config.silence);
        self.act_write(id);
    }

    // The end of a connection's life.

    /// The connection is over, for a reason of this side. The next one is another life.
    pub(crate) fn die(&mut self, now: Time, node: NodeId, why: Down) {
        let run = self.connection(node).run + u64::from(!planted!(RunIgnored));
        self.end_life(now, node, why, run);
    }

    fn end_life(&mut self, now: Time, node: NodeId, why: Down, run: u64) {
        let connection = self.connection(node);
        let was = std::mem::replace(&mut connection.carried, Carried::Idle);
        let for_good = why.is_out_of_reach() || matches!(why, Down::Refused(_));
        let fresh = !connection.was_up && !for_good;
        let running = connection.dialling.running;
        if fresh {
            // Nothing has been said in this life: what waits to be said can wait for the next.
            connection.run = run;
            connection.carried = was;
            return;
        }
        self.settle(now, node);
        self.connection(node).begin_life(run);
        let mut sockets = Vec::new();
        if let Carried::By(socket) = was {
            sockets.push(socket);
        }
        if for_good {
            self.connection(node).dialling.running = None;
            if let Some(Attempt::Hello(socket)) = running {
                sockets.push(socket);
            }
        }
        let closed = if matches!(why, Down::Violation(_)) { Closed::Violation(node) } else { Closed::Over };
        for socket in sockets {
            self.sockets.remove(&socket);
            self.act_close(socket, closed.clone());
        }
        if planted!(DeathTwice) {
            self.actions.push_back(Action::Connection(node, State::Down(why.clone())));
        }
        // After a death there is no dial: it would be refused, which is the next death, and so on without a
        // pause. The sponsor answers for the channel; and a node that was taken for dead and lives dials
        // itself, if it has something to say.
        let may_return = !matches!(why, Down::Refused(_) | Down::Died(_));
        self.actions.push_back(Action::Connection(node, State::Down(why)));
        self.end_streams(now, node, false);
        if may_return && self.asks_of_home(node) {
            self.connect(now, node);
        }
    }

    // Frames.

    /// `begun`: the caller has the beginning of a frame behind these bytes.
    fn carry(&mut self, now: Time, id: SocketId, node: NodeId, mut arrived: BytesMut, bytes: Bytes, begun: bool) {
        // Whole frames are read where they arrived; only one that is split between two arrivals is put together.
        let mut bytes = bytes;
        let Some(connection) = self.connections.get_mut(&node) else { return };
        connection.hears(now, &self.config);
        connection.traffic.read += (arrived.len() + bytes.len()) as u64;
        loop {
            let next = if arrived.is_empty() { codec::next(&bytes) } else { codec::next(&arrived) };
            let frame = match next {
                Err(why) => return self.violation(now, node, &why.to_string()),
                Ok(codec::Next::Wait(missing)) => {
                    if bytes.is_empty() {
                        break;
                    }
                    let take = if arrived.is_empty() { bytes.len() } else { missing.min(bytes.len()) };
                    arrived.extend_from_slice(&bytes.split_to(take));
                    continue;
                }
                Ok(codec::Next::Frame { head, body }) => {
                    let mut whole = if arrived.is_empty() {
                        bytes.split_to(head + body)
                    } else {
                        arrived.split_to(head + body).freeze()
                    };
                    let kind = whole[0];
                    codec::decode(kind, whole.split_off(head))
                }
            };
            let frame = match frame {
                Ok(frame) => frame,
                Err(why) => return self.violation(now, node, &why.to_string()),
            };
            if let Err(why) = self.hear(now, node, frame) {
                return self.violation(now, node, why);
            }
            if self.connection(node).outbox.owed_bytes() > self.config.unacked_max.saturating_add(CONTROL_MAX) {
                return self.violation(now, node, "it does not read what it asks for");
            }
            // What was heard may have ended the socket.
            match self.sockets.get(&id) {
                Some(Socket { phase: Phase::Carries(_), .. }) => {}
                _ => return,
            }
        }
        let (within_frame, rest) = (begun || !arrived.is_empty(), arrived.len() as u64);
        if let Some(socket) = self.sockets.get_mut(&id) {
            socket.arrived = arrived;
        }
        let ack_delay = self.config.ack_delay;
        let Some(connection) = self.connections.get_mut(&node) else { return };
        connection.inbox.within_frame = within_frame;
        // It counts when it is read.
        connection.traffic.read -= rest;
        if connection.inbox.heard() != connection.inbox.acked {
            if connection.inbox.must_acknowledge(&self.config) {
                self.act_write(id);
            } else if connection.ack_at.is_none() {
                connection.ack_at = Some(now + ack_delay);
                self.due_at(now + ack_delay);
            }
        }
    }

    /// The other side breaks the protocol: whatever it says cannot be trusted, so the connection is over.
    fn violation(&mut self, now: Time, node: NodeId, why: &str) {
        self.die(now, node, Down::Violation(why.to_owned()));
    }

    pub(crate) fn hear(&mut self, now: Time, node: NodeId, frame: Frame) -> Result<(), &'static str> {
        let unnumbered =
            planted!(TakenUnnumbered) && matches!(frame, Frame::FromHome(_, crate::wire::FromHome::Taken(_)));
        let numbered = frame.is_numbered() && !unnumbered && !self.is_me(node);
        if numbered {
            let connection = self.connections.entry(node).or_insert_with(Connection::new);
            connection.outbox.meets(now, false, &frame, &self.config);
            let inbox = &mut connection.inbox;
            if inbox.again > 0 {
                inbox.again -= 1;
                return Ok(());
            }
            inbox.seen += 1;
            // About what the other side keeps for it: else many small frames would fill its window, and wait here for company.
            inbox.unacked_bytes += 32
                + match &frame {
                    Frame::More(_, piece) => piece.len(),
                    Frame::ToHome(_, crate::wire::ToHome::Value { first, .. }) => first.len(),
                    Frame::Relay(crate::wire::Relay::Bytes { piece, .. }) => piece.len(),
                    _ => 0,
                };
        }
        match frame {
            Frame::Heartbeat => {}
            Frame::Confirm if planted!(UnconfirmedResumed) => {}
            Frame::Confirm => return Err("a confirmation that is not the first frame"),
            Frame::Ack { seen } => {
                let connection = self.connections.get_mut(&node).ok_or("an acknowledgement from nobody")?;
                let was_full = !connection.outbox.has_something(&self.config);
                let before = connection.outbox.acked();
                if !connection.outbox.acknowledge(now, seen, &self.config) {
                    return Err("an acknowledgement of what was not sent");
                }
                if seen > before {
                    connection.unproven = None;
                }
                if was_full
                    && connection.outbox.has_something(&self.config)
                    && let Some(socket) = connection.socket()
                {
                    self.act_write(socket);
                }
            }
            Frame::Goodbye => {
                // So that the other side knows that all it said was heard, its goodbye too.
                let seen = self.connection(node).inbox.seen;
                if let Some(socket) = self.connection(node).socket() {
                    let mut last = BytesMut::new();
                    codec::encode(&Frame::Ack { seen }, &mut last);
                    self.part(now, socket, last.freeze(), Closed::Over);
                    self.connection(node).carried = Carried::Idle;
                }
                self.die(now, node, Down::Left);
                self.left.push_back(node);
                if self.left.len() > LEFT_MAX {
                    self.left.pop_front();
                }
            }
            Frame::FromHome(channel, said) => self.hear_home(now, node, channel, said)?,
            Frame::ToHome(channel, said) => self.hear_sender(now, node, channel, said)?,
            Frame::More(channel, piece) => self.more(now, node, channel, &piece)?,
            Frame::Cut(channel) => {
                if !self.connection(node).inbox.cut(channel) {
                    return Err("a cut of what has not begun");
                }
            }
            Frame::Travel(channel, said) => self.hear_travel(now, node, channel, said)?,
            Frame::Relay(said) => self.hear_relay(now, node, said)?,
            Frame::Read(channel, read) => self.hear_read(node, channel, read),
            Frame::Names(said) => {
                let met = if self.is_me(node) { Some(self.me.incarnation) } else { self.connection(node).met };
                let incarnation = met.expect("it has shaken hands");
                self.actions.push_back(Action::Names(Life { node, incarnation }, said));
            }
        }
        Ok(())
    }

    /// Says something of the name service to a node.
    ///
    /// # Errors
    /// It is too long to be sent, and is not.
    pub fn say_names(&mut self, now: Time, node: NodeId, said: Names) -> Result<(), WireError> {
        said.check()?;
        self.say(now, node, Frame::Names(said));
        Ok(())
    }

    pub(crate) fn recall(&mut self, node: NodeId, channel: ChannelId, ticket: u64) -> Recalled {
        if self.is_me(node) {
            return Recalled::Sent;
        }
        let connection = self.connection(node);
        let recalled = connection.outbox.recall(channel, ticket);
        if recalled == Recalled::Unsent
            && let Some(socket) = connection.socket()
        {
            self.act_write(socket);
        }
        recalled
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Time) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        self.due = None;
        let late: Vec<SocketId> = self
            .sockets
            .iter()
            .filter(|(_, socket)| !matches!(socket.phase, Phase::Carries(_)) && socket.until <= now)
            .map(|(id, _)| *id)
            .collect();
        for id in late {
            self.close(now, id, Closed::NoHandshake);
        }
        let waits: Vec<Time> =
            self.sockets.values().filter(|s| !matches!(s.phase, Phase::Carries(_))).map(|s| s.until).collect();
        waits.into_iter().for_each(|at| self.due_at(at));
        let nodes: Vec<NodeId> = self.connections.keys().copied().collect();
        for node in nodes {
            self.tick_connection(now, node);
        }
    }

    fn tick_connection(&mut self, now: Time, node: NodeId) {
        let silence = self.config.silence;
        let Some(connection) = self.connections.get_mut(&node) else { return };
        match connection.carried {
            Carried::Idle => {}
            Carried::Lost { until, .. } if now >= until && connection.dialling.for_others => {
                self.give_up_dial_back(now, node);
            }
            Carried::Lost { until, .. } if now >= until => self.give_up(now, node),
            Carried::Lost { until, .. } => {
                self.due_at(until);
                self.dial_if_due(now, node);
                self.seek_help(now, node);
            }
            Carried::By(socket) => {
                if now >= connection.heard + silence {
                    return self.close(now, socket, Closed::Silent);
                }
                if is_relayed(socket) {
                    self.dial_if_due(now, node);
                }
                let Some(connection) = self.connections.get(&node) else { return };
                let (heard, heartbeat_at, ack_at) =
                    (connection.heard, connection.heartbeat_at(&self.config), connection.ack_at);
                self.due_at(heard + silence);
                if now >= heartbeat_at || ack_at.is_some_and(|at| now >= at) {
                    self.act_write(socket);
                    self.due_at(now + self.config.heartbeat);
                } else {
                    self.due_at(heartbeat_at);
                    if let Some(at) = ack_at {
                        self.due_at(at);
                    }
                }
            }
        }
    }
}

/// Answers to one node take so many bytes at most, if it does not read them.
const CONTROL_MAX: usize = 4 << 20;
