//! Sockets, from their first byte to their last, and what is written to them and read from them.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Buf, Bytes, BytesMut};

use super::dialling::{REDIALS, Wanted};
use super::handshake::Promise;
use super::{Action, Closed, Machine};
use crate::connection::{Attempt, Carried, Down, State};
use crate::id::{Incarnation, NodeId, SocketId};
use crate::planted::planted;
use crate::source::{Shares, Source};
use crate::time::Time;
use crate::wire::codec::{self, WireError};
use crate::wire::handshake::{self, Answer, Hello, Refusal, Resume};
use crate::wire::{Frame, VERSIONS};

/// What a socket is used for.
#[derive(Clone, Debug)]
pub(crate) enum Phase {
    /// Somebody has dialled; a `Hello` is to come.
    Stranger,
    /// That `Hello` has been answered by `Welcome`. What it says holds when the dialler has confirmed that it
    /// has arrived.
    Answered(Box<Promise>),
    /// This node has dialled and said `Hello`, and in it where the connection stands, with which life of the other node.
    Greeting { wanted: Wanted, met: Incarnation, said: Resume, address: String, hello: Bytes },
    /// It carries the connection to this node.
    Carries(NodeId),
    /// It has been answered for good; what still arrives is not read.
    Parting,
}

/// A frame of which nothing is kept but its beginning, before the piece.
#[derive(Clone, Debug)]
pub(super) struct Passed {
    pub(super) beginning: Bytes,
    pub(super) whole: usize,
    /// So many bytes of it have not come.
    pub(super) left: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct Socket {
    pub(crate) phase: Phase,
    /// What has arrived and is no whole message yet.
    pub(super) arrived: BytesMut,
    /// The frame that comes, if nothing of it is kept.
    pub(super) passed: Option<Passed>,
    /// A message outside the sequence: a handshake's, or the last.
    pub(crate) ready: Option<Bytes>,
    /// When it has to have shaken hands.
    pub(super) until: Time,
    /// Its other end is on this host.
    pub(crate) near: bool,
    /// The host that it comes from, or leads to, as the driver sees it.
    pub(crate) host: Option<String>,
    pub(super) source: Source,
}

impl Socket {
    /// Its other end is on this host.
    pub(crate) fn is_near(&self) -> bool {
        self.near
    }
}

/// The sockets that are there, and which of them have yet to shake hands, or to part.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sockets {
    all: BTreeMap<SocketId, Socket>,
    /// Those that carry no connection, by the time at which they are closed.
    shaking: BTreeSet<(Time, SocketId)>,
    /// Of those, the ones that were accepted and have not confirmed a `Welcome`, by where they come from and
    /// whether they have said who they are; in each such group the oldest is the first.
    unproven: BTreeSet<(Source, bool, Time, SocketId)>,
    shares: Shares,
    /// How many are parting.
    parting: usize,
}

impl Sockets {
    pub(crate) fn get(&self, id: SocketId) -> Option<&Socket> {
        self.all.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: SocketId) -> Option<&mut Socket> {
        self.all.get_mut(&id)
    }

    pub(super) fn insert(&mut self, id: SocketId, socket: Socket) {
        if let Phase::Stranger = socket.phase {
            self.unproven.insert((socket.source, false, socket.until, id));
            self.shares.take(socket.source);
        }
        self.shaking.insert((socket.until, id));
        self.all.insert(id, socket);
    }

    pub(crate) fn remove(&mut self, id: SocketId) -> Option<Socket> {
        self.leaves_the_unproven(id);
        let socket = self.all.remove(&id)?;
        self.shaking.remove(&(socket.until, id));
        self.parting -= usize::from(matches!(socket.phase, Phase::Parting));
        Some(socket)
    }

    /// A `Hello` has been answered, and what it says is to be confirmed.
    pub(super) fn is_answered(&mut self, id: SocketId, promise: Box<Promise>) {
        let Some(socket) = self.all.get_mut(&id) else { return };
        if self.unproven.remove(&(socket.source, false, socket.until, id)) {
            self.unproven.insert((socket.source, true, socket.until, id));
        }
        socket.phase = Phase::Answered(promise);
    }

    fn leaves_the_unproven(&mut self, id: SocketId) {
        let Some(socket) = self.all.get(&id) else { return };
        let places = [false, true].map(|answered| (socket.source, answered, socket.until, id));
        if places.iter().any(|place| self.unproven.remove(place)) {
            self.shares.give_back(socket.source);
        }
    }

    /// How many sockets were accepted and have not confirmed a `Welcome`.
    pub(super) fn unproven(&self) -> usize {
        self.shares.taken()
    }

    /// How many were answered for good, and are still there.
    pub(super) fn parting(&self) -> usize {
        self.parting
    }

    /// Which of these makes room for a newcomer: the oldest of the source that has most, and rather one that
    /// has said nothing yet. The newcomer itself only if its source has no other.
    pub(super) fn least_promising(&self, newcomer: SocketId) -> SocketId {
        if planted!(OldestOut) {
            let oldest = self.unproven.iter().min_by_key(|(.., until, id)| (*until, *id));
            return oldest.map_or(newcomer, |(.., id)| *id);
        }
        let Some(source) = self.shares.greatest() else { return newcomer };
        let of_it = self.unproven.range((source, false, Time::default(), SocketId(0))..);
        let mut of_it = of_it.take_while(|(other, ..)| *other == source).map(|(.., id)| *id);
        of_it.find(|id| *id != newcomer).unwrap_or(newcomer)
    }

    /// The socket carries the connection with that node from now on.
    pub(super) fn carries(&mut self, id: SocketId, node: NodeId) -> Option<&mut Socket> {
        self.leaves_the_unproven(id);
        let socket = self.all.get_mut(&id)?;
        self.shaking.remove(&(socket.until, id));
        socket.phase = Phase::Carries(node);
        Some(socket)
    }

    /// This is the last word on the socket, which is closed at that time at the latest.
    pub(super) fn parts(&mut self, id: SocketId, last: Bytes, until: Time) -> bool {
        self.leaves_the_unproven(id);
        let Some(socket) = self.all.get_mut(&id) else { return false };
        self.shaking.remove(&(socket.until, id));
        self.shaking.insert((until, id));
        self.parting += usize::from(!matches!(socket.phase, Phase::Parting));
        (socket.until, socket.ready, socket.phase) = (until, Some(last), Phase::Parting);
        true
    }

    /// Those that carry no connection.
    pub(super) fn shaking(&self) -> impl Iterator<Item = (SocketId, &Socket)> {
        self.shaking.iter().filter_map(|(_, id)| self.all.get(id).map(|socket| (*id, socket)))
    }

    /// When the next of these is closed.
    pub(super) fn next_due(&self) -> Option<Time> {
        self.shaking.first().map(|(until, _)| *until)
    }

    /// Those of them for which it is time.
    pub(super) fn late(&self, now: Time) -> Vec<SocketId> {
        self.shaking.iter().take_while(|(until, _)| *until <= now).map(|(_, id)| *id).collect()
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = SocketId> {
        self.all.keys().copied()
    }
}

impl Machine {
    pub(super) fn add_socket(&mut self, now: Time, id: SocketId, phase: Phase, ready: Option<Bytes>, source: Source) {
        let until = now + self.config.handshake;
        let (arrived, passed) = (BytesMut::new(), None);
        let socket = Socket { phase, arrived, passed, ready, until, near: false, host: None, source };
        self.sockets.insert(id, socket);
    }

    /// A socket was accepted, and nothing is known of where it comes from: [`accepted_from`](Self::accepted_from) with [`Source::Unknown`].
    pub fn accepted(&mut self, now: Time, socket: SocketId) {
        self.accepted_from(now, socket, Source::Unknown);
    }

    /// A socket was accepted. If too many have not shaken hands, one of the source that has most of these is
    /// [closed](Closed::Crowded) for it; it is told so, if no more than that many are being told, and a
    /// `Welcome` has not said otherwise.
    pub fn accepted_from(&mut self, now: Time, socket: SocketId, source: Source) {
        self.add_socket(now, socket, Phase::Stranger, None, source);
        if self.sockets.unproven() > self.config.strangers_max {
            let other = self.sockets.least_promising(socket);
            let is_silent = self.sockets.get(other).is_some_and(|other| matches!(other.phase, Phase::Stranger));
            if is_silent && self.sockets.parting() < self.config.strangers_max {
                self.part(now, other, Answer::Refused(Refusal::Busy).encode(), Closed::Crowded);
            } else {
                self.close(now, other, Closed::Crowded);
            }
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
        let Some(socket) = self.sockets.remove(id) else { return };
        match socket.phase {
            Phase::Stranger
            | Phase::Answered(_)
            | Phase::Parting
            | Phase::Greeting { wanted: Wanted::Probe(_) | Wanted::Check(_), .. } => {}
            Phase::Greeting { wanted: Wanted::Node(node), address, .. } => {
                if let Some(connection) = self.connections.get_mut(node) {
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
                connection.dialling.next = Some(connection.dialling.at_once.next(now, REDIALS));
                connection.dialling.rest();
                connection.listeners.all_well();
                connection.dialling.last = why.to_owned();
                self.actions.push_back(Action::Connection(node, State::Lost(until)));
                if until <= now {
                    return self.give_up(now, node);
                }
                self.due_at(node, until);
                self.dial_if_due(now, node);
                self.seek_help(now, node);
            }
        }
    }

    /// Writes what a socket has to carry behind `out`, about `room` bytes. Returns how many bytes.
    pub fn fill(&mut self, now: Time, socket: SocketId, room: usize, out: &mut Vec<Bytes>) -> usize {
        let Some(entry) = self.sockets.get_mut(socket) else { return 0 };
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
        let Some(connection) = self.connections.get_mut(node) else { return total };
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
            let Some(connection) = self.connections.get_mut(node) else { break };
            match connection.outbox.fill(now, None, &self.config, room - written, out) {
                0 => break,
                more => {
                    connection.traffic.written += more as u64;
                    written += more;
                }
            }
        }
        self.tell_credits_to(node);
        total + written
    }

    /// Whether [`fill`](Self::fill) would write something.
    pub fn has_something(&self, now: Time, socket: SocketId) -> bool {
        let Some(entry) = self.sockets.get(socket) else { return false };
        if entry.ready.is_some() {
            return true;
        }
        let Phase::Carries(node) = entry.phase else { return false };
        if self.relays.are_stirred(node) {
            return true;
        }
        self.connections.get(node).is_some_and(|connection| {
            connection.outbox.has_something(&self.config)
                || now >= connection.heartbeat_at(&self.config)
                || connection.ack_at.is_some_and(|at| now >= at)
                || connection.inbox.must_acknowledge(&self.config)
        })
    }

    /// Whether nothing was said on the connection of late, by either side, but large values of one channel ([`Config::company`](crate::Config::company)): these may be written, and read, in
    /// larger parts than if somebody else were waiting for them. If [`fill`](Self::fill) has more room then than [`Config::chunk_alone`](crate::Config::chunk_alone), values are cut into larger pieces, and more
    /// may be on its way ([`Config::queueing_alone`](crate::Config::queueing_alone)).
    pub fn is_alone(&self, socket: SocketId) -> bool {
        let Some(Socket { phase: Phase::Carries(node), .. }) = self.sockets.get(socket) else { return false };
        self.connections.get(*node).is_some_and(|connection| connection.outbox.is_alone())
    }

    /// Whether [`fill`](Self::fill) would write of values that are large, or follow others of their channel: these can wait for a moment, if somebody
    /// may soon have something small to say, which would come before them.
    pub fn has_more_of_values(&self, socket: SocketId) -> bool {
        let Some(Socket { phase: Phase::Carries(node), ready: None, .. }) = self.sockets.get(socket) else {
            return false;
        };
        self.connections.get(*node).is_some_and(|connection| connection.outbox.has_more_of_values(&self.config))
    }

    /// Bytes have arrived, behind what the last call has left in `buffer`: the beginning of a frame, that is not copied to wait for its end.
    /// Returns how many more bytes that frame needs at least. If that is none and something is left, frames
    /// wait behind one that may have taken long: others should have their turn before it is called again.
    pub fn received_in(&mut self, now: Time, id: SocketId, buffer: &mut BytesMut) -> usize {
        let Some(socket) = self.sockets.get_mut(id) else {
            buffer.clear();
            return 0;
        };
        let Phase::Carries(node) = socket.phase else {
            self.received(now, id, buffer.split().freeze());
            return 0;
        };
        if socket.passed.is_some() {
            let passed = self.pass_over(now, id, node, buffer.len());
            buffer.advance(passed);
            if buffer.is_empty() {
                return 1;
            }
        }
        let Some(Socket { phase: Phase::Carries(_), arrived, .. }) = self.sockets.get_mut(id) else {
            buffer.clear();
            return 0;
        };
        if !arrived.is_empty() {
            // Left by the handshake.
            let mut arrived = std::mem::take(arrived);
            arrived.unsplit(buffer.split());
            *buffer = arrived;
        }
        let (mut whole, mut missing) = (0, 0);
        while whole < buffer.len() {
            match codec::next(&buffer[whole..]) {
                Ok(codec::Next::Frame { head, body }) => {
                    let compares = codec::compares(buffer[whole]);
                    whole += head + body;
                    if compares {
                        break;
                    }
                }
                Ok(codec::Next::Wait(more)) => {
                    missing = more;
                    break;
                }
                // It is said by who reads the frames.
                Err(_) => whole = buffer.len(),
            }
        }
        let frames = buffer.split_to(whole).freeze();
        self.carry(now, id, node, BytesMut::new(), frames, !buffer.is_empty());
        if missing > 0 { self.wait(now, id, buffer, missing) } else { 0 }
    }

    /// Bytes have arrived.
    pub fn received(&mut self, now: Time, id: SocketId, mut bytes: Bytes) {
        if let Some(Socket { phase: Phase::Carries(node), passed: Some(_), .. }) = self.sockets.get(id) {
            let passed = self.pass_over(now, id, *node, bytes.len());
            bytes.advance(passed);
            if bytes.is_empty() {
                return;
            }
        }
        let Some(socket) = self.sockets.get_mut(id) else { return };
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
            let message = match handshake::whole(&mut socket.arrived) {
                Ok(None) => return,
                Ok(Some(message)) => message,
                Err(why) => return self.close(now, id, Closed::Garbage(why.to_string())),
            };
            match Hello::read(&message) {
                Ok(hello) => self.hello(now, id, hello, &message),
                Err(WireError::Version(_)) => self.refuse(now, id, Refusal::Version(VERSIONS), &message),
                Err(why) => self.close(now, id, Closed::Garbage(why.to_string())),
            }
        }
        let Some(socket) = self.sockets.get_mut(id) else { return };
        match &mut socket.phase {
            Phase::Answered(promise) => match codec::confirms(&mut socket.arrived) {
                Ok(None) => return,
                Ok(Some(signature)) => {
                    let promise = promise.clone();
                    let is_proven = self.identity.check(&promise.key, &promise.signed, &signature);
                    if !is_proven && !planted!(ConfirmUnchecked) {
                        if promise.begins {
                            // Whoever this is, the node itself has not heard of what was offered here.
                            self.former.is_unknown_to(promise.dialler.node, promise.answered.connection);
                        }
                        return self.close(now, id, Closed::Unproven(promise.dialler.node));
                    }
                    self.confirmed(now, id, *promise);
                }
                Err(why) => self.close(now, id, Closed::Garbage(why.to_string())),
            },
            Phase::Greeting { .. } => match Answer::decode(&mut socket.arrived) {
                Ok(None) => return,
                Ok(Some(Answer::Welcome(welcome))) => self.welcome(now, id, welcome),
                Ok(Some(Answer::Refused(why))) => self.refused(now, id, why, None),
                Ok(Some(answer @ Answer::Over(..))) => self.over(now, id, &answer),
                Err(why) => self.close(now, id, Closed::Garbage(why.to_string())),
            },
            Phase::Carries(_) => {}
            Phase::Stranger | Phase::Parting => return,
        }
        // What came behind the handshake in one piece.
        if let Some(socket) = self.sockets.get_mut(id)
            && let Phase::Carries(node) = socket.phase
            && !socket.arrived.is_empty()
        {
            let arrived = std::mem::take(&mut socket.arrived).freeze();
            self.carry(now, id, node, BytesMut::new(), arrived, false);
        }
    }
}
