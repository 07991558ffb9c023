//! A node among others: its connections and sockets, what it sends over them, and what it keeps for their
//! other ends.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use dunlin_sorted::{SortedMap, SortedSet};

use super::socket_table::{Dial, Socket, Sockets, Undialled};
use super::{Action, Closed, Declined};
use crate::account::{Announced, Charge, Pool};
use crate::channel::{Peers, Place};
use crate::comparisons::Comparisons;
use crate::config::Config;
use crate::connection::book::Book;
use crate::connection::former::Former;
use crate::connection::inbox::{Arrived, Begun};
use crate::connection::outbox::{Outbox, Recalled};
use crate::connection::pace::Paces;
use crate::connection::table::Connections;
use crate::connection::{Carried, Connection};
use crate::id::{ChannelId, Contact, DialId, Incarnation, Life, NodeId, SocketId, Ticket};
use crate::identity::Identity;
use crate::misbehaved::PeerMisbehaved;
use crate::post::state::Mailboxes;
use crate::random::Random;
use crate::relay::streams::{Relays, is_relayed};
use crate::source::{Shares, Source};
use crate::time::Time;
use crate::wire::{Declaration, Frame, limits};

/// All of a node except its channels; it serves as their [`Peers`].
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub(crate) config: Config,
    pub(crate) me: Life,
    /// When the last event that concerns channels happened.
    pub(super) now: Time,
    pub(crate) identity: Arc<dyn Identity>,
    /// How many nonces were drawn.
    pub(super) nonces: u64,
    pub(super) random: Random,
    pub(crate) actions: VecDeque<Action>,
    pub(crate) connections: Connections,
    pub(crate) former: Former,
    /// When a connection was last given up.
    pub(super) lately: Time,
    /// How many `Hello`s this node has sent for connections.
    pub(super) attempts: u64,
    pub(crate) sockets: Sockets,
    pub(crate) relays: Relays,
    pub(crate) mailboxes: Mailboxes,
    /// The number of this node's last watch. No two have the same, whatever life they belong to.
    pub(crate) watches: u64,
    pub(super) dials: SortedMap<DialId, Dial>,
    /// The dials of addresses that this node only learned from others, by the source of the address.
    pub(super) told_dials: Shares,
    /// How many of them failed, by the source of the address.
    pub(super) told_by: Paces,
    /// Dial-backs that were requested, and when to report to the requesting node that there was none.
    pub(crate) undialled: VecDeque<Undialled>,
    /// The nodes that are dialled only for others, and some that no longer are. Bounded by the number
    /// allowed.
    pub(crate) dialled_back: SortedSet<NodeId>,
    pub(super) next_dial: u64,
    pub(crate) leaving: bool,
    /// See [`Machine::replaced_by`].
    pub(super) replaced: Option<Incarnation>,
    /// What this node keeps for all connections.
    pub(crate) pool: Pool,
    pub(crate) comparisons: Comparisons,
    /// How many steps of comparisons other nodes have caused.
    pub(super) steps: u64,
    /// Frames that this node has sent to itself.
    pub(super) said_here: VecDeque<(Time, Frame)>,
    /// The last nodes that left in order. Frames still queued for one of them do not arrive.
    pub(crate) left: VecDeque<NodeId>,
}

impl Endpoint {
    pub(super) fn new(config: Config, me: Life, seed: u64, identity: Arc<dyn Identity>) -> Self {
        Self {
            pool: Pool::new(&config),
            config,
            me,
            now: Time::default(),
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
            mailboxes: Mailboxes::default(),
            watches: 0,
            dials: SortedMap::new(),
            told_dials: Shares::default(),
            told_by: Paces::default(),
            undialled: VecDeque::new(),
            dialled_back: SortedSet::new(),
            next_dial: 0,
            leaving: false,
            replaced: None,
            comparisons: Comparisons::default(),
            steps: 0,
            said_here: VecDeque::new(),
            left: VecDeque::new(),
        }
    }

    /// A number of 128 bits that no other handshake has.
    pub(super) fn nonce(&mut self) -> u128 {
        self.nonces += 1;
        self.identity.nonce(self.nonces - 1)
    }

    /// Keeps the record of a node until then, though nothing uses it yet: it is needed soon.
    pub(super) fn keep(&mut self, node: NodeId, until: Time) {
        let connection = self.connection(node);
        if matches!(connection.carried, Carried::Idle) && connection.kept.is_none_or(|kept| kept < until) {
            connection.kept = Some(until);
            if until < Time(u64::MAX) {
                self.due_at(node, until);
            }
        }
    }

    pub(super) fn add_addresses(&mut self, node: NodeId, add: impl FnOnce(&mut Book)) {
        let connection = self.connection(node);
        let known = connection.book.addresses().len();
        add(&mut connection.book);
        if known == 0 && !connection.book.addresses().is_empty() && connection.dialling.waits_for_address {
            // The attempt to connect has waited for this.
            connection.dialling.waits_for_address = false;
            connection.dialling.next = Some(Time::default());
            self.due_at(node, Time::default());
        }
    }

    pub(crate) fn addresses_of(&self, node: NodeId) -> &[String] {
        self.connections.get(node).map_or(&[], |connection| connection.book.addresses())
    }

    pub(crate) fn introduced(&mut self, node: NodeId, by: NodeId, addresses: &[String]) {
        let near = self.is_near_by(by);
        let source = self.source_of(by);
        self.add_addresses(node, |book| addresses.iter().for_each(|address| book.hears(address, near, source)));
        self.remember_introducer(node, by);
    }

    /// Whether that node's frames arrive over a socket of this host.
    pub(super) fn is_near_by(&self, node: NodeId) -> bool {
        let socket = self.connections.get(node).and_then(Connection::socket);
        socket.and_then(|socket| self.sockets.get(socket)).is_some_and(Socket::is_near)
    }

    pub(crate) fn source_of(&self, node: NodeId) -> Source {
        self.connections.get(node).map_or(Source::Unknown, |connection| connection.inbox.account.source())
    }

    pub(crate) fn relayed_by(&self, node: NodeId) -> Option<NodeId> {
        let socket = self.connections.get(node).and_then(Connection::socket)?;
        self.relays.by(socket)
    }

    pub(crate) fn connection(&mut self, node: NodeId) -> &mut Connection {
        let former = &mut self.former;
        self.connections.get_or_insert(node, |connection| former.comes_back(node, connection))
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
        // One `Write` is enough; a pending one is most likely the last action.
        if self.actions.back() != Some(&Action::Write(socket)) {
            self.actions.push_back(Action::Write(socket));
        }
    }

    /// Reports to the driver that this node has declined a request of that node.
    pub(crate) fn declines(&mut self, node: NodeId, what: Declined) {
        self.actions.push_back(Action::Declined(node, what));
    }

    /// The driver closes the socket. If the socket is relayed, this machine closes it at once.
    pub(super) fn act_close(&mut self, socket: SocketId, why: Closed) {
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

    /// Takes back something not yet written. The frame that reports this has to be written.
    fn take_back(&mut self, node: NodeId, recall: impl FnOnce(&mut Outbox) -> Recalled) -> Recalled {
        if self.is_me(node) {
            return Recalled::Sent;
        }
        let connection = self.connection(node);
        let recalled = recall(&mut connection.outbox);
        if recalled == Recalled::Unsent
            && let Some(socket) = connection.socket()
        {
            self.act_write(socket);
        }
        recalled
    }

    pub(crate) fn hears_nothing(&mut self, now: Time, node: NodeId) {
        if let Some(connection) = self.connections.get_mut(node) {
            connection.chatter.hears(now);
        }
    }

    /// Whether the two faces fit, with the cost of the comparison attributed to that node.
    pub(crate) fn fits(&mut self, now: Time, node: NodeId, here: &Declaration, there: &Declaration) -> bool {
        self.comparisons.begin_frame();
        let fit = self.comparisons.fit(here, there);
        let steps = self.comparisons.take_steps();
        self.compares(now, node, steps);
        fit
    }

    pub(crate) fn connect(&mut self, now: Time, node: NodeId) {
        if !self.leaving && self.replaced.is_none() {
            self.want(now, node);
        }
    }

    /// Queues a frame for a node, and connects to it if there is no connection.
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
}

impl Peers for Endpoint {
    fn config(&self) -> &Config {
        &self.config
    }

    fn here(&self) -> NodeId {
        self.me.node
    }

    fn act(&mut self, action: Action) {
        self.actions.push_back(action);
    }

    fn addresses_of_any(&self, node: NodeId) -> Vec<String> {
        let mut addresses = if self.is_me(node) { &self.config.addresses } else { self.addresses_of(node) }.to_vec();
        addresses.truncate(limits::ADDRESSES);
        addresses
    }

    fn hears_nothing(&mut self, node: NodeId) {
        self.hears_nothing(self.now, node);
    }

    fn recall(&mut self, node: NodeId, channel: ChannelId, ticket: Ticket) -> Recalled {
        self.take_back(node, |outbox| outbox.recall(channel, ticket))
    }

    fn hear_of(&mut self, node: NodeId, by: NodeId, addresses: &[String]) -> bool {
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

    fn connect(&mut self, node: NodeId) {
        self.connect(self.now, node);
    }

    fn contact(&self, node: NodeId) -> Contact {
        Contact { node, lives: self.connections.get(node).map_or(0, |connection| connection.lives) }
    }

    fn is_over(&self, contact: Contact) -> bool {
        let is_up = |connection: &Connection| connection.was_up && connection.lives == contact.lives;
        !self.is_me(contact.node) && !self.connections.get(contact.node).is_some_and(is_up)
    }

    fn say(&mut self, node: NodeId, frame: Frame) {
        self.say(self.now, node, frame);
    }

    fn pay_for_end(&mut self, channel: ChannelId, giver: Contact) -> Option<Option<Source>> {
        if self.is_me(giver.node) {
            return Some(None);
        }
        let source = self.source_of(giver.node);
        if self.pool.pays_for_end(source) {
            return Some(Some(source));
        }
        self.declines(giver.node, Declined::Half(channel));
        None
    }

    fn free_end(&mut self, paid_by: Option<Source>) {
        if let Some(source) = paid_by {
            self.pool.end_is_over(source);
            self.admit_waiting();
        }
    }

    fn charge(
        &mut self,
        from: NodeId,
        channel: ChannelId,
        total: u64,
        kept: bool,
        stands: bool,
    ) -> Result<Charge, PeerMisbehaved> {
        if self.is_me(from) {
            return Ok(Charge::NONE);
        }
        let Some(connection) = self.connections.get_mut(from) else { return Ok(Charge::NONE) };
        let inbox = &mut connection.inbox;
        let values_max = self.config.attached_max.min(limits::ANNOUNCED);
        if inbox.unfinished() >= values_max {
            return Err(PeerMisbehaved::TooManyUnfinished { values_max });
        }
        let account = &mut inbox.account;
        match account.begin(channel, total) {
            Some(Ok(Charge::NONE)) if kept => {
                account.reserve(total, &mut self.pool).ok_or(PeerMisbehaved::ChannelNotThere)
            }
            Some(charge) => charge,
            None if !stands => Err(PeerMisbehaved::OfferedAhead { bytes: total }),
            None => {
                let charge = account.charge(total);
                if account.wants_credit() {
                    self.tell_credit(from, false);
                }
                charge
            }
        }
    }

    fn fit(&mut self, node: NodeId, here: &Declaration, there: &Declaration) -> bool {
        self.fits(self.now, node, here, there)
    }

    fn recall_grant(&mut self, node: NodeId, channel: ChannelId, ticket: Ticket) -> Recalled {
        self.take_back(node, |outbox| outbox.recall_grant(channel, ticket))
    }

    fn is_unsent(&self, node: NodeId, channel: ChannelId, ticket: Ticket) -> bool {
        self.connections.get(node).is_some_and(|connection| connection.outbox.is_unsent(channel, ticket))
    }

    fn room_for(&self, node: NodeId, channel: ChannelId) -> u64 {
        let connection = self.connections.get(node);
        connection.map_or(u64::MAX, |connection| connection.outbox.room_for(channel, &self.config))
    }

    fn is_short(&mut self, node: NodeId, channel: ChannelId) {
        if let Some(connection) = self.connections.get_mut(node) {
            connection.outbox.is_short(channel, &self.config);
        }
    }

    fn begin_value(&mut self, from: NodeId, channel: ChannelId, value: Begun, first: Bytes) -> Arrived {
        if self.is_me(from) {
            return value.whole(first);
        }
        let inbox = &mut self.connection(from).inbox;
        inbox.stall.ends();
        inbox.begin(channel, value, first)
    }

    fn give_back(
        &mut self,
        from: NodeId,
        channel: ChannelId,
        charge: Charge,
        place: impl FnOnce(Announced) -> Place,
    ) -> bool {
        let Some(connection) = self.connections.get_mut(from) else { return false };
        let account = &mut connection.inbox.account;
        let has_room = account.give_back(charge, &mut self.pool);
        let (waits, wants_room) = (account.waits_on(channel).is_some(), account.wants_room());
        if account.wants_credit() {
            self.tell_credit(from, false);
        }
        let asks = waits && self.consider(from, channel, place);
        if has_room {
            self.admit_waiting();
        } else if wants_room {
            self.admit_values(from);
        }
        asks
    }

    fn consider(&mut self, from: NodeId, channel: ChannelId, place: impl FnOnce(Announced) -> Place) -> bool {
        let Some(connection) = self.connections.get_mut(from) else { return false };
        let account = &mut connection.inbox.account;
        let Some(announced) = account.waits_on(channel) else { return false };
        match place(announced) {
            Place::Unkept => {
                if let Some(number) = account.admit_unkept(channel) {
                    self.say_admitted(from, number);
                }
                false
            }
            Place::There => {
                account.queue(channel);
                self.admit_values(from);
                let account = self.connections.get_mut(from).map(|connection| &mut connection.inbox.account);
                account.is_some_and(|account| account.asks_awaited(channel))
            }
            Place::Full => false,
        }
    }

    fn awaited(&mut self, from: NodeId, channel: ChannelId) {
        if let Some(connection) = self.connections.get_mut(from) {
            connection.inbox.account.awaited(channel);
        }
    }

    fn attach(&mut self, node: NodeId) -> Option<Charge> {
        if self.is_me(node) {
            return Some(Charge::NONE);
        }
        self.connections.get_mut(node)?.inbox.account.attach(&mut self.pool)
    }
}
