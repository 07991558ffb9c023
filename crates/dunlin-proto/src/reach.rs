//! How two nodes that cannot dial each other connect: a third node that has connections to both requests a
//! dial-back, or else relays.
//!
//! D needs a connection to H. If no node answers at H's addresses, D asks a helper: a node that introduced H,
//! or else any node that it has a connection to. The helper asks H to dial D (`AskDial`, `DialBack`). If that
//! fails (`Undialled`, `NotDialled`) or takes too long, D asks the helper to relay (`relay/`), and then the
//! next helper. D keeps dialling meanwhile: the first socket that completes the handshake carries the
//! connection.

use std::time::Duration;

use crate::channel::Peers;
use crate::connection::pace::Rate;
use crate::connection::{Attempt, Carried, Connection, Help};
use crate::id::{NodeId, SocketId};
use crate::machine::socket_table::{Undialled, Wanted};
use crate::machine::{Closed, Declined, Endpoint, Machine};
use crate::relay::streams::is_relayed;
use crate::source::Source;
use crate::time::Time;
use crate::wire::{Frame, NoDial, NoRelay, Relay};

/// How many introducers of a node are remembered. One more replaces the oldest of the source that has most.
const INTRODUCERS: usize = 4;

/// When all helpers have failed, they are asked again after this many times
/// [`Config::patience`](crate::Config::patience).
const REST: u32 = 4;

/// How many of the other nodes one search for helpers examines.
const LOOKED_AT: usize = 64;

/// While this many frames wait to be written to a node, nothing is forwarded to it.
const BACKLOG: usize = 1024;

/// How many nodes are dialled at once only for others.
const DIAL_BACKS: usize = 64;

/// ... and how many for one requesting node: the addresses are its own claim, and each costs one more dial.
const DIAL_BACKS_EACH: Rate = Rate { at_once: 64, each: Duration::from_millis(62) };

/// How many dial-backs are remembered. A node that requests more gets no report, and asks the next helper
/// after its own patience.
const UNDIALLED_MAX: usize = 1024;

/// The introducers of a node: the latest of each source before others of that source.
fn in_turns(introducers: &[(NodeId, Source)]) -> Vec<NodeId> {
    let turn = |at: usize| introducers[..at].iter().filter(|(_, source)| *source == introducers[at].1).count();
    let mut order: Vec<usize> = (0..introducers.len()).collect();
    order.sort_by_key(|at| turn(*at));
    order.into_iter().map(|at| introducers[at].0).collect()
}

impl Endpoint {
    pub(crate) fn remember_introducer(&mut self, node: NodeId, by: NodeId) {
        if by == node || self.is_me(by) || self.is_me(node) {
            return;
        }
        let source = self.source_of(by);
        let connection = self.connection(node);
        let all = connection.introducers.len();
        connection.introducers.retain(|(other, _)| *other != by);
        let known = connection.introducers.len() < all;
        connection.introducers.insert(0, (by, source));
        if connection.introducers.len() > INTRODUCERS {
            let sources: Vec<Source> = connection.introducers.iter().map(|(_, source)| *source).collect();
            connection.introducers.remove(crate::source::most_frequent(&sources));
        }
        if !known && let Help::Rests { until } = &mut connection.dialling.help {
            *until = Time::default();
            self.due_at(node, Time::default());
        }
    }

    /// Whether there is a direct connection to this node, and it is to stay: only such a node can help
    /// others.
    pub(crate) fn is_direct(&self, node: NodeId) -> bool {
        self.connections
            .get(node)
            .is_some_and(|connection| !connection.leaving && connection.socket().is_some_and(|id| !is_relayed(id)))
    }

    /// Whether frames can be forwarded to this node.
    pub(crate) fn is_within_reach(&self, node: NodeId) -> bool {
        self.is_direct(node)
            && self.connections.get(node).is_some_and(|connection| connection.outbox.control_waiting() < BACKLOG)
    }

    /// Asks others to help with a connection that is needed here and has no socket, when it is time.
    pub(crate) fn seek_help(&mut self, now: Time, node: NodeId) {
        if self.config.helpers_max == 0 {
            return;
        }
        let patience = self.config.patience;
        let Some(connection) = self.connections.get(node) else { return };
        let Carried::Lost { since, .. } = connection.carried else { return };
        let dialling = &connection.dialling;
        if dialling.for_others {
            return;
        }
        match dialling.help {
            Help::None => {
                let tried = dialling.unanswered as usize >= connection.book.addresses().len();
                if !tried && now < since + patience {
                    return self.due_at(node, since + patience);
                }
                self.ask_around(now, node);
            }
            Help::Rests { until } if now < until => self.due_at(node, until),
            Help::Rests { .. } => self.ask_around(now, node),
            Help::Asked { until, .. } if now < until => self.due_at(node, until),
            Help::Asked { by, .. } => self.ask_to_relay(now, node, by),
            Help::Relaying(_) => {}
        }
    }

    /// Asks possible helpers, one after the other: introducers of that node first.
    fn ask_around(&mut self, now: Time, node: NodeId) {
        let Some(connection) = self.connections.get(node) else { return };
        let introducers = in_turns(&connection.introducers);
        let asked = connection.dialling.asked;
        let is_other = |other: &NodeId| *other != node && !introducers.contains(other);
        let mut helpers: Vec<NodeId> = Vec::new();
        if asked.is_none() {
            helpers.extend(introducers.iter().copied().filter(|other| *other != node && self.is_direct(*other)));
        }
        // A helper asked before comes last, and one round examines only a few.
        let (mut seen, mut last) = (0, None);
        for other in self.connections.nodes_behind(asked).take(LOOKED_AT) {
            if helpers.len() >= self.config.helpers_max {
                break;
            }
            (seen, last) = (seen + 1, Some(other));
            if is_other(&other) && self.is_direct(other) {
                helpers.push(other);
            }
        }
        let is_round_over = seen < LOOKED_AT && helpers.len() < self.config.helpers_max;
        helpers.truncate(self.config.helpers_max);
        helpers.reverse();
        let dialling = &mut self.connection(node).dialling;
        dialling.asked = last.filter(|_| !is_round_over);
        dialling.helpers = helpers;
        self.ask_next(now, node);
    }

    fn ask_next(&mut self, now: Time, node: NodeId) {
        let patience = self.config.patience;
        while let Some(by) = self.connection(node).dialling.helpers.pop() {
            if !self.is_direct(by) {
                continue;
            }
            let addresses = self.config.addresses.clone();
            if addresses.is_empty() {
                // No node can dial this one.
                return self.ask_to_relay(now, node, by);
            }
            let until = now + patience;
            self.connection(node).dialling.help = Help::Asked { by, until };
            self.due_at(node, until);
            return self.say(now, by, Frame::Relay(Relay::AskDial { node, addresses }));
        }
        let until = now + patience * REST;
        self.connection(node).dialling.help = Help::Rests { until };
        self.due_at(node, until);
    }

    fn ask_to_relay(&mut self, now: Time, node: NodeId, by: NodeId) {
        let patience = self.config.patience;
        let connection = self.connection(node);
        let Carried::Lost { since, .. } = connection.carried else { return };
        // A lost socket may soon have a successor, and a new one may soon have an answer.
        let wait = if connection.was_up && now < since + patience {
            Some(since + patience)
        } else {
            matches!(connection.dialling.running, Some(Attempt::Hello(_))).then_some(now + patience)
        };
        if let Some(until) = wait {
            connection.dialling.help = Help::Asked { by, until };
            return self.due_at(node, until);
        }
        if !self.is_direct(by) {
            return self.ask_next(now, node);
        }
        let socket = self.relay_to(now, node, by);
        self.connection(node).dialling.help = Help::Relaying(by);
        self.greet(now, Wanted::Node(node), format!("relayed by {by}"), socket);
    }

    /// Whether a relayed socket is in its handshake.
    pub(crate) fn is_being_relayed(&self, node: NodeId) -> bool {
        let running = self.connections.get(node).and_then(|connection| connection.dialling.running);
        matches!(running, Some(Attempt::Hello(socket)) if is_relayed(socket))
    }

    /// A relayed socket is lost before it carried the connection.
    pub(crate) fn relay_failed(&mut self, now: Time, node: NodeId) {
        if matches!(self.connection(node).dialling.help, Help::Relaying(_)) {
            self.ask_next(now, node);
        }
    }

    /// A node refused to relay.
    pub(crate) fn relay_refused(&mut self, node: NodeId, by: NodeId, why: NoRelay) {
        if why != NoRelay::NotConnected {
            self.connection(node).dialling.unrelayed = Some((by, why));
        }
    }

    // Frames about dial-backs.

    /// At the helper: handles a request for a dial-back.
    pub(crate) fn hear_ask_dial(&mut self, now: Time, from: NodeId, node: NodeId, addresses: Vec<String>) {
        let addresses = self.as_seen(from, addresses);
        let why = if node == from || !self.is_within_reach(node) || addresses.is_empty() {
            NoDial::NotConnected
        } else if !self.lets_through(from, node) {
            // The request that follows is refused with the reason.
            self.declines(from, Declined::Admittance(node));
            NoDial::Failed
        } else {
            return self.say(now, node, Frame::Relay(Relay::DialBack { node: from, addresses }));
        };
        self.say(now, from, Frame::Relay(Relay::NotDialled(node, why)));
    }

    /// Where the requesting node can be dialled: at its ports, but on the host that its socket comes from as
    /// seen here. It could name any other host.
    fn as_seen(&self, from: NodeId, addresses: Vec<String>) -> Vec<String> {
        let socket = self.connections.get(from).and_then(Connection::socket);
        let Some((socket, host)) = socket
            .and_then(|socket| self.sockets.get(socket))
            .and_then(|socket| Some((socket, socket.host.as_deref()?)))
        else {
            // A network without hosts.
            return addresses;
        };
        let parts = |address: &str| {
            let (host, port) = address.rsplit_once(':')?;
            Some((host.to_owned(), port.parse::<u16>().ok()?))
        };
        // A node on this node's own host may appear at any of that host's addresses.
        let here: Vec<String> =
            self.config.addresses.iter().filter_map(|address| parts(address)).map(|it| it.0).collect();
        let mut seen: Vec<String> = Vec::new();
        for (said, port) in addresses.iter().filter_map(|address| parts(address)) {
            let host = if socket.is_near() && here.contains(&said) { &said } else { host };
            let address = format!("{host}:{port}");
            if !seen.contains(&address) {
                seen.push(address);
            }
        }
        seen
    }

    /// At the node that is to dial back: handles the request.
    pub(crate) fn hear_dial_back(&mut self, now: Time, from: NodeId, node: NodeId, addresses: &[String]) {
        let known = self.connections.get(node);
        let is_others = known.is_none_or(|connection| matches!(connection.carried, Carried::Idle));
        let has_record = known.is_some() || self.connections.len() < self.config.peers_max;
        let asked_before = known.is_some_and(|connection| connection.dialling.reports);
        let has_place = !is_others || (has_record && self.dial_backs() < DIAL_BACKS);
        let asker = self.connections.get_mut(from).filter(|_| is_others && has_place);
        let room = has_place && asker.is_none_or(|asker| asker.dial_backs.allows(now, DIAL_BACKS_EACH));
        if !room {
            self.declines(from, Declined::DialBack);
        }
        let possible = room && !self.leaving && node != from && !self.is_me(node) && !addresses.is_empty();
        // (If there is a socket here, the other side has noticed its loss first.)
        let socket = self.connections.get(node).and_then(Connection::socket);
        if self.undialled.len() < UNDIALLED_MAX {
            self.undialled.push_back(Undialled { at: now + self.config.patience / 2, to: from, node, socket });
        }
        if !possible || socket.is_some() || asked_before {
            self.hears_nothing(now, from);
        }
        if !possible || socket.is_some() {
            return;
        }
        self.introduced(node, from, addresses);
        let connection = self.connection(node);
        let idle = matches!(connection.carried, Carried::Idle);
        connection.dialling.for_others |= idle;
        connection.dialling.reports = true;
        if idle {
            self.dialled_back.insert(node);
            return self.seek(now, node);
        }
        if connection.dialling.running.is_none() {
            connection.dialling.next = Some(now);
        }
        self.dial_if_due(now, node);
    }

    /// How many nodes are dialled only for others. A peer may ask as fast as it can, so this examines at most
    /// as many as the limit.
    fn dial_backs(&mut self) -> usize {
        let connections = &self.connections;
        self.dialled_back
            .retain(|node| connections.get(*node).is_some_and(|connection| connection.dialling.for_others));
        self.dialled_back.len()
    }

    /// At the helper: handles a failed dial-back.
    pub(crate) fn hear_undialled(&mut self, now: Time, from: NodeId, node: NodeId) {
        if self.is_within_reach(node) {
            self.say(now, node, Frame::Relay(Relay::NotDialled(from, NoDial::Failed)));
        }
    }

    /// At the node that has asked: handles the failure.
    pub(crate) fn hear_not_dialled(&mut self, now: Time, from: NodeId, node: NodeId, why: NoDial) {
        let Some(connection) = self.connections.get(node) else { return };
        if !matches!(connection.dialling.help, Help::Asked { by, .. } if by == from) {
            return;
        }
        match why {
            NoDial::NotConnected => self.ask_next(now, node),
            NoDial::Failed => self.ask_to_relay(now, node, from),
        }
    }

    /// Reports failed dial-backs to the nodes that requested them. Always the same time after the request,
    /// whatever the reason: otherwise they could learn what listens at other hosts.
    pub(crate) fn report(&mut self, now: Time) {
        while let Some(Undialled { to, node, socket, .. }) = self.undialled.front().copied().filter(|it| it.at <= now) {
            self.undialled.pop_front();
            let is_new = |by: SocketId| Some(by) != socket;
            if self.connections.get(node).and_then(Connection::socket).is_some_and(is_new) {
                continue;
            }
            if self.is_within_reach(to) {
                self.say(now, to, Frame::Relay(Relay::Undialled(node)));
            }
            if self.connections.get(node).is_some_and(|connection| connection.dialling.for_others) {
                self.forget_dial_back(node);
            }
        }
    }

    pub(crate) fn forget_dial_back(&mut self, node: NodeId) {
        let connection = self.connection(node);
        connection.carried = Carried::Idle;
        connection.dialling.next = None;
        connection.dialling.rest();
        self.connections.rests(node);
    }
}

impl Machine {
    /// Ends the handshake of a relayed socket. If the better attempt fails, the same node is asked again.
    /// Returns `false` if there is none.
    pub(crate) fn stop_relaying(&mut self, now: Time, node: NodeId) -> bool {
        if !self.endpoint.is_being_relayed(node) {
            return false;
        }
        let dialling = &mut self.endpoint.connection(node).dialling;
        if let Help::Relaying(by) = dialling.help {
            dialling.help = Help::Asked { by, until: now };
        }
        if let Some(Attempt::Hello(socket)) = dialling.running.take() {
            self.close(now, socket, Closed::Superseded);
        }
        true
    }
}
