//! How a node gets a socket for a connection: which address it dials, and when.

use std::time::Duration;

use bytes::Bytes;

use super::socket_table::{Dial, Phase, Socket, Wanted};
use super::{Action, Closed, Endpoint, Machine};
use crate::connection::pace::Rate;
use crate::connection::{Attempt, Carried, Down};
use crate::id::{ConnectionId, DialId, Incarnation, NodeId, SocketId};
use crate::identity::sign_hello;
use crate::relay::streams::is_relayed;
use crate::source::Source;
use crate::time::Time;
use crate::wire::VERSIONS;
use crate::wire::handshake::{Hello, Resume};

/// How often a node is dialled without a pause because its socket was lost or a connection begins anew: a
/// peer can cause both as fast as it makes sockets.
pub(super) const REDIALS: Rate = Rate { at_once: 10, each: Duration::from_millis(100) };

/// How many dials of addresses learned from other nodes run at once, over all sources. Sources share these
/// places: see [`has_place`](crate::source::has_place).
const TOLD_DIALS_MAX: usize = 64;

/// How many dials of addresses learned from one source may fail. Dials that reach the intended node do not
/// count.
const TOLD_DIALS: Rate = Rate { at_once: 256, each: Duration::from_millis(20) };

/// How many dials run at once that only check whether a node on this host is reachable. Any peer on the host
/// can cause some.
const CHECKS_MAX: usize = 64;

impl Endpoint {
    /// This node needs a connection to that node for itself.
    pub(super) fn want(&mut self, now: Time, node: NodeId) {
        let connection = self.connection(node);
        if std::mem::take(&mut connection.dialling.for_others) {
            // Each address may already have been dialled once, with none left.
            if connection.dialling.running.is_none() && connection.dialling.next.is_none() {
                connection.dialling.next = Some(now);
                self.dial_if_due(now, node);
            }
            self.seek_help(now, node);
        }
        self.seek(now, node);
    }

    /// A connection to this node is needed, by this node or for others.
    pub(crate) fn seek(&mut self, now: Time, node: NodeId) {
        // All nodes refuse a node that is replaced. The next tick reports that, as it would later report that
        // the node is unreachable.
        let is_replaced = self.replaced.is_some();
        let until = if is_replaced { now } else { now + self.config.grace };
        let connection = self.connection(node);
        if !matches!(connection.carried, Carried::Idle) {
            return;
        }
        connection.carried = Carried::Lost { since: now, until };
        if is_replaced {
            return self.due_at(node, until);
        }
        if connection.dialling.next.is_none_or(|next| next < now) {
            connection.dialling.next = Some(connection.dialling.at_once.next(now, REDIALS));
        }
        self.due_at(node, until);
        self.dial_if_due(now, node);
        self.seek_help(now, node);
    }

    pub(super) fn dial(&mut self, now: Time, wanted: Wanted, address: String) -> DialId {
        let id = DialId(self.next_dial);
        self.next_dial += 1;
        let told = match wanted {
            // A check is of an address that arrived over a socket of this host.
            Wanted::Anybody | Wanted::Check(_) => None,
            Wanted::Node(node) | Wanted::Probe(node) => {
                let near = self.connection(node).book.dials(&address, now);
                near.map(|near| (near, self.said_by(node)))
            }
        };
        if let Some((_, source)) = told {
            self.told_dials.take(source);
            if let Wanted::Node(node) = wanted {
                let dialling = &mut self.connection(node).dialling;
                dialling.told_dials = (source, dialling.told_dials.1 + 1);
                self.told_by.uses(source, now, TOLD_DIALS);
            }
        }
        self.dials.insert(id, Dial { wanted, address: address.clone(), told });
        self.actions.push_back(Action::Dial(id, address));
        id
    }

    fn end_dial(&mut self, id: DialId) -> Option<Dial> {
        let dial = self.dials.remove(&id)?;
        if let Some((_, source)) = dial.told {
            self.told_dials.give_back(source);
        }
        Some(dial)
    }

    /// The source that is charged for dialling that node: the same as before, else the source that named the
    /// node last, or the node's own.
    fn said_by(&self, node: NodeId) -> Source {
        let Some(connection) = self.connections.get(node) else { return Source::Unknown };
        match (connection.dialling.told_dials, connection.introducers.first()) {
            ((before, 1..), _) => before,
            (_, Some((_, last))) => *last,
            (_, None) => self.source_of(node),
        }
    }

    /// That node has been reached: the dials for it did not fail.
    pub(super) fn is_reached(&mut self, node: NodeId) {
        let (source, times) = std::mem::take(&mut self.connection(node).dialling.told_dials);
        if times > 0 {
            self.told_by.give_back(source, times, TOLD_DIALS);
        }
    }

    pub(crate) fn dial_if_due(&mut self, now: Time, node: NodeId) {
        let source = self.said_by(node);
        let has_place = self.told_dials.admits(source, TOLD_DIALS_MAX);
        let full = !has_place || !self.told_by.is_free(source, now, TOLD_DIALS);
        let pause = self.config.retell;
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
            return self.due_at(node, next);
        }
        dialling.next = None;
        if relayed {
            if !self.leaving {
                self.probe(now, node);
            }
            return;
        }
        // Without an address this node cannot dial; the other side has to.
        if connection.book.addresses().is_empty() {
            dialling.waits_for_address = true;
            if dialling.last.is_empty() {
                dialling.last = "no address of the node is known".to_owned();
            }
            return;
        }
        let address = match connection.listeners.doubted().filter(|(at, _)| *at <= now) {
            Some((_, address)) => address.to_owned(),
            None => {
                let (start, once) = (dialling.failures as usize, dialling.for_others);
                match connection.book.next(start, now, pause, once, full) {
                    Ok(address) => address.to_owned(),
                    Err(None) => return,
                    Err(Some(at)) => {
                        connection.dialling.next = Some(at);
                        return self.due_at(node, at);
                    }
                }
            }
        };
        let id = self.dial(now, Wanted::Node(node), address);
        self.connection(node).dialling.running = Some(Attempt::Dial(id));
    }

    /// Tries to dial the other node of a relayed connection directly.
    pub(super) fn probe(&mut self, now: Time, node: NodeId) {
        let running = self.dials.values().any(|dial| dial.wanted == Wanted::Probe(node));
        let connection = self.connection(node);
        connection.dialling.probes = connection.dialling.probes.wrapping_add(1);
        let addresses = connection.book.addresses();
        let at = connection.dialling.probes as usize % addresses.len().max(1);
        if let Some(address) = addresses.get(at).filter(|_| !running).cloned() {
            self.dial(now, Wanted::Probe(node), address);
        }
        self.probe_later(now, node);
    }

    pub(super) fn probe_later(&mut self, now: Time, node: NodeId) {
        let at = now + self.random.jitter(self.config.redial);
        self.connection(node).dialling.next = Some(at);
        self.due_at(node, at);
    }

    pub(super) fn attempt_failed(&mut self, now: Time, node: NodeId, attempt: Attempt, why: String) {
        let (min, max) = (self.config.backoff_min, self.config.backoff_max);
        let failures = {
            let dialling = &mut self.connection(node).dialling;
            if dialling.running != Some(attempt) {
                return;
            }
            dialling.running = None;
            if matches!(attempt, Attempt::Hello(socket) if is_relayed(socket)) {
                // The result of dialling is more useful.
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
        let connection = self.connection(node);
        // If a second refusal would prove that the node is dead, dial again as soon as that counts.
        let doubted = connection.listeners.doubted().map(|(at, _)| at.max(now));
        let dialling = &mut connection.dialling;
        if dialling.running.is_none() {
            dialling.next = Some((now + wait).min(doubted.unwrap_or(now + wait)));
        }
        self.dial_if_due(now, node);
        self.seek_help(now, node);
    }

    /// Sends `Hello` on a socket that is to carry the connection to that node.
    pub(crate) fn greet(&mut self, now: Time, wanted: Wanted, address: String, socket: SocketId) {
        let (mut met, mut attempt, mut resume) = (Incarnation(0), 0, Resume::default());
        let mut who = NodeId(0);
        if let Wanted::Node(node) = wanted {
            who = node;
            self.attempts += 1;
            attempt = self.attempts;
            let offers = self.offers(now, node);
            let connection = self.connection(node);
            // Try them in turn: that node may not have received some.
            let offer = offers.get(connection.dialling.unknown).or(offers.last()).copied();
            connection.dialling.running = Some(Attempt::Hello(socket));
            connection.dialling.disowned.clear();
            met = connection.met.unwrap_or(Incarnation(0));
            resume = connection.resume_point();
            if let Some((to, offered)) = offer.filter(|_| !connection.id.is_some() && connection.dialling.may_name()) {
                // That node may have received the offer, and have begun. If another life of it receives this
                // `Hello`, it does not know the offer, and ends nothing by refusing it: the intended life may
                // still come.
                (met, resume.connection) = (to, offered);
            }
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
            key: self.identity.key(),
            nonce: self.nonce(),
            signature: Bytes::new(),
        };
        let hello = sign_hello(&*self.identity, hello).encode();
        let phase = Phase::Greeting { wanted, met, said: resume, address, hello: hello.clone() };
        let source = self.relays.by(socket).map_or(Source::Unknown, |by| self.source_of(by).relays());
        self.add_socket(now, socket, phase, Some(hello), source);
        self.act_write(socket);
    }

    /// The connections that were [offered](crate::connection::former) to that node, and the life that each
    /// was offered to: the latest that has been met, or has sent a `Hello`.
    pub(super) fn offers(&self, now: Time, node: NodeId) -> Vec<(Incarnation, ConnectionId)> {
        let met = self.connections.get(node).map_or_else(|| self.former.met(node), |connection| connection.met);
        let latest = self.former.promised(now, node).map(|(to, _)| to).chain(met).max();
        self.former.promised(now, node).filter(|(to, _)| Some(*to) == latest).collect()
    }

    pub(super) fn no_socket(&mut self, now: Time, id: DialId, why: String) {
        let Some(dial) = self.end_dial(id) else { return };
        match dial.wanted {
            Wanted::Node(node) if self.is_being_relayed(node) => self.connection(node).dialling.last = why,
            Wanted::Node(node) => self.attempt_failed(now, node, Attempt::Dial(id), why),
            Wanted::Anybody => self.actions.push_back(Action::Introduced(dial.address, Err(why))),
            Wanted::Probe(_) | Wanted::Check(_) => {}
        }
    }

    /// Checks whether that node is reachable where it declares that it listens.
    pub(super) fn check_listeners(&mut self, now: Time, node: NodeId) {
        if self.leaving {
            return;
        }
        let is_check = |wanted: &Wanted| matches!(wanted, Wanted::Check(_));
        let dials = self.dials.values().filter(|dial| is_check(&dial.wanted)).count();
        let greeting = |socket: &Socket| matches!(&socket.phase, Phase::Greeting { wanted, .. } if is_check(wanted));
        let running = dials + self.sockets.shaking().filter(|(_, socket)| greeting(socket)).count();
        for address in self.connection(node).listeners.take_unasked(CHECKS_MAX.saturating_sub(running)) {
            self.dial(now, Wanted::Check(node), address);
        }
    }
}

impl Machine {
    /// Whether this dial may lead to this host, or to a process on it. It may not if its address was learned
    /// from another node over a network. The driver has to check, since a name may resolve to any host.
    pub fn may_dial_here(&self, dial: DialId) -> bool {
        self.endpoint.config.dial_local
            || self.endpoint.dials.get(&dial).is_none_or(|dial| dial.told.is_none_or(|(near, _)| near))
    }

    /// A node has answered a probe. If it is the intended one, leave the relay: nothing may arrive on the old
    /// socket after this node has declared on the new one how much it has received.
    pub(super) fn probed(&mut self, now: Time, node: NodeId, there: NodeId, address: String) {
        if there != node || self.endpoint.leaving {
            return;
        }
        let connection = self.endpoint.connection(node);
        connection.book.owns(&address);
        connection.book.prefer(address);
        if let Some(socket) = connection.socket().filter(|socket| is_relayed(*socket)) {
            self.close(now, socket, Closed::Superseded);
        }
    }

    /// The requested socket exists.
    pub fn dialled(&mut self, now: Time, id: DialId, socket: SocketId) {
        let Some(dial) = self.endpoint.end_dial(id) else {
            return self.endpoint.act_close(socket, Closed::Superseded);
        };
        if let Wanted::Node(node) = dial.wanted {
            // A direct socket is better than one that is still to be relayed.
            let instead = self.stop_relaying(now, node);
            let connection = self.endpoint.connection(node);
            let stands = instead || connection.dialling.running == Some(Attempt::Dial(id));
            if !stands || !matches!(connection.carried, Carried::Lost { .. }) {
                if stands {
                    connection.dialling.running = None;
                }
                return self.endpoint.act_close(socket, Closed::Superseded);
            }
            if !instead && self.endpoint.unconfirmed(node).next().is_some() && self.endpoint.yields(now, node) {
                return self.endpoint.act_close(socket, Closed::Superseded);
            }
        }
        self.endpoint.greet(now, dial.wanted, dial.address, socket);
    }

    /// The dial has failed.
    pub fn dial_failed(&mut self, now: Time, id: DialId, why: String) {
        if let Some(Dial { wanted: Wanted::Node(node), address, .. }) = self.endpoint.dials.get(&id)
            && let Some(connection) = self.endpoint.connections.get_mut(*node)
        {
            connection.listeners.not_refused(address);
        }
        self.endpoint.no_socket(now, id, why);
    }

    /// The dial was refused, since no process listens there. `near`: on this host. Report an unanswered or
    /// impossible dial as [failed](Self::dial_failed): only a refusal may show that a node is dead.
    pub fn dial_refused(&mut self, now: Time, id: DialId, near: bool, why: String) {
        if let Some(Dial { wanted: Wanted::Node(node), address, .. }) = self.endpoint.dials.get(&id) {
            let (node, address) = (*node, address.clone());
            if self.refuses(now, node, &address, near) {
                self.endpoint.end_dial(id);
                return;
            }
        }
        self.endpoint.no_socket(now, id, why);
    }

    /// A dial for the connection with that node was refused, or answered by another node. `true`: that node
    /// is dead, and its connection over.
    pub(super) fn refuses(&mut self, now: Time, node: NodeId, address: &str, near: bool) -> bool {
        let Some(connection) = self.endpoint.connections.get_mut(node) else { return false };
        // A dial that is no longer needed, or is for another node, says nothing about the next loss.
        let needed = matches!(connection.carried, Carried::Lost { .. }) && !connection.dialling.for_others;
        if !needed || self.endpoint.replaced.is_some() {
            return false;
        }
        connection.listeners.refused(now, address, near);
        let Some(at) = connection.listeners.dead_at() else { return false };
        self.die(now, node, Down::Died(at));
        true
    }

    /// Records the host at the other end of this socket, as this node sees it and writes it in an address.
    pub fn comes_from(&mut self, socket: SocketId, host: String) {
        if let Some(socket) = self.endpoint.sockets.get_mut(socket) {
            socket.host = Some(host);
        }
    }

    /// The other end of this socket, which was just dialled or accepted, is on this host. So this node can
    /// dial the addresses at which that node listens at no cost, and recognise a refusal there later.
    pub fn is_near(&mut self, socket: SocketId) {
        if let Some(socket) = self.endpoint.sockets.get_mut(socket) {
            socket.near = true;
        }
    }

    /// Records the source to which this socket, just dialled, leads.
    pub fn leads_to(&mut self, socket: SocketId, source: Source) {
        if let Some(socket) = self.endpoint.sockets.get_mut(socket)
            && let Phase::Greeting { .. } = socket.phase
        {
            socket.source = source;
        }
    }
}
