//! Sockets, from their first byte to their last: how they are written and read.

use bytes::{Buf, Bytes, BytesMut};

use super::dialling::REDIALS;
use super::socket_table::{Phase, Socket, Wanted};
use super::{Action, Closed, Endpoint, Machine};
use crate::connection::{Attempt, Carried, Down, State};
use crate::id::SocketId;
use crate::planted::planted;
use crate::source::Source;
use crate::time::Time;
use crate::wire::codec::{self, WireError};
use crate::wire::handshake::{self, Answer, Hello, Refusal};
use crate::wire::{Frame, VERSIONS};

impl Endpoint {
    pub(super) fn add_socket(&mut self, now: Time, id: SocketId, phase: Phase, ready: Option<Bytes>, source: Source) {
        let until = now + self.config.handshake;
        let socket = Socket {
            phase,
            arrived: BytesMut::new(),
            passed: None,
            asked: None,
            is_authorized: false,
            ready,
            until,
            near: false,
            host: None,
            source,
        };
        self.sockets.insert(id, socket);
    }
}

impl Machine {
    /// A socket was accepted from an unknown source: [`accepted_from`](Self::accepted_from) with
    /// [`Source::Unknown`].
    pub fn accepted(&mut self, now: Time, socket: SocketId) {
        self.accepted_from(now, socket, Source::Unknown);
    }

    /// A socket was accepted. If too many have not completed the handshake, this node
    /// [closes](Closed::Crowded) one of the source that has most of these. It answers that socket with a
    /// refusal first, unless too many sockets are parting or a `Welcome` was sent on it.
    pub fn accepted_from(&mut self, now: Time, socket: SocketId, source: Source) {
        self.endpoint.add_socket(now, socket, Phase::Stranger, None, source);
        if self.endpoint.sockets.unproven() > self.endpoint.config.strangers_max {
            let other = self.endpoint.sockets.least_promising(socket);
            let is_silent =
                self.endpoint.sockets.get(other).is_some_and(|other| matches!(other.phase, Phase::Stranger));
            if is_silent && self.endpoint.sockets.parting() < self.endpoint.config.strangers_max {
                self.endpoint.part(now, other, Answer::Refused(Refusal::Busy).encode(), Closed::Crowded);
            } else {
                self.close(now, other, Closed::Crowded);
            }
        }
    }

    /// The socket is gone, or no longer works.
    pub fn closed(&mut self, now: Time, socket: SocketId) {
        self.drop_socket(now, socket, "the socket was closed");
    }

    pub(crate) fn close(&mut self, now: Time, socket: SocketId, why: Closed) {
        let text = why.to_string();
        self.endpoint.act_close(socket, why);
        self.drop_socket(now, socket, &text);
    }

    pub(crate) fn drop_socket(&mut self, now: Time, id: SocketId, why: &str) {
        let Some(socket) = self.endpoint.sockets.remove(id) else { return };
        match socket.phase {
            Phase::Stranger
            | Phase::Answered(_)
            | Phase::Parting
            | Phase::Greeting { wanted: Wanted::Probe(_) | Wanted::Check(_), .. } => {}
            Phase::Greeting { wanted: Wanted::Node(node), address, .. } => {
                if let Some(connection) = self.endpoint.connections.get_mut(node) {
                    connection.listeners.not_refused(&address);
                }
                self.endpoint.attempt_failed(now, node, Attempt::Hello(id), why.to_owned());
            }
            Phase::Greeting { wanted: Wanted::Anybody, address, .. } => {
                self.endpoint.actions.push_back(Action::Introduced(address, Err(why.to_owned())));
            }
            Phase::Carries(node) => {
                let grace = self.endpoint.config.grace;
                let connection = self.endpoint.connection(node);
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
                self.endpoint.actions.push_back(Action::Connection(node, State::Lost(until)));
                if until <= now {
                    return self.give_up(now, node);
                }
                self.endpoint.due_at(node, until);
                self.endpoint.dial_if_due(now, node);
                self.endpoint.seek_help(now, node);
            }
        }
    }

    /// Appends to `out` what a socket has to carry, about `room` bytes. Returns how many bytes.
    pub fn fill(&mut self, now: Time, socket: SocketId, room: usize, out: &mut Vec<Bytes>) -> usize {
        let Some(entry) = self.endpoint.sockets.get_mut(socket) else { return 0 };
        let mut total = 0;
        if let Some(message) = entry.ready.take() {
            total += message.len();
            out.push(message);
        }
        let Phase::Carries(node) = entry.phase else { return total };
        let others = self.endpoint.relays.needs(node);
        if others {
            self.pull(now, node);
        }
        let Some(connection) = self.endpoint.connections.get_mut(node) else { return total };
        let owed = connection.inbox.heard() != connection.inbox.acked;
        let speaks = connection.outbox.has_something(&self.endpoint.config);
        let silent = now >= connection.heartbeat_at(&self.endpoint.config);
        let overdue = connection.ack_at.is_some_and(|at| now >= at);
        let much = connection.inbox.must_acknowledge(&self.endpoint.config);
        // Nothing is acknowledged after a goodbye: the other side would count what it has sent as lost.
        let last = connection.outbox.says_goodbye();
        let rides = speaks && (last || connection.inbox.acknowledges_beside(now, &self.endpoint.config));
        let moment = if owed && (rides || silent || overdue || much) {
            connection.ack_at = None;
            Some(Frame::Ack { seen: connection.inbox.acknowledge(now) })
        } else {
            silent.then_some(Frame::Heartbeat)
        };
        let mut written = 0;
        if speaks || moment.is_some() {
            written = connection.outbox.fill(now, moment, &self.endpoint.config, room, out);
        }
        if written > 0 {
            connection.says(now, &self.endpoint.config);
            connection.traffic.written += written as u64;
        }
        // Relayed sockets are pulled as late as possible.
        while others && written < room {
            self.pull(now, node);
            let Some(connection) = self.endpoint.connections.get_mut(node) else { break };
            match connection.outbox.fill(now, None, &self.endpoint.config, room - written, out) {
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
        let Some(entry) = self.endpoint.sockets.get(socket) else { return false };
        if entry.ready.is_some() {
            return true;
        }
        let Phase::Carries(node) = entry.phase else { return false };
        if self.endpoint.relays.are_stirred(node) {
            return true;
        }
        self.endpoint.connections.get(node).is_some_and(|connection| {
            connection.outbox.has_something(&self.endpoint.config)
                || now >= connection.heartbeat_at(&self.endpoint.config)
                || connection.ack_at.is_some_and(|at| now >= at)
                || connection.inbox.must_acknowledge(&self.endpoint.config)
        })
    }

    /// Whether the connection has lately carried, in both directions, only large values of one channel
    /// ([`Config::company`](crate::Config::company)). Then larger parts may be written and read than if other
    /// messages waited for them. If [`fill`](Self::fill) also has more room than
    /// [`Config::chunk_alone`](crate::Config::chunk_alone), values are cut into larger pieces, and more may
    /// be in flight ([`Config::queueing_alone`](crate::Config::queueing_alone)).
    pub fn is_alone(&self, socket: SocketId) -> bool {
        let Some(Socket { phase: Phase::Carries(node), .. }) = self.endpoint.sockets.get(socket) else { return false };
        self.endpoint.connections.get(*node).is_some_and(|connection| connection.outbox.is_alone())
    }

    /// Whether [`fill`](Self::fill) would write values that are large, or follow others of their channel.
    /// These can wait for a moment if the program may soon send something small, which would go before them.
    pub fn has_more_of_values(&self, socket: SocketId) -> bool {
        let Some(Socket { phase: Phase::Carries(node), ready: None, .. }) = self.endpoint.sockets.get(socket) else {
            return false;
        };
        self.endpoint
            .connections
            .get(*node)
            .is_some_and(|connection| connection.outbox.has_more_of_values(&self.endpoint.config))
    }

    /// Bytes have arrived, appended to what the last call left in `buffer`: the beginning of a frame, which
    /// is not copied while it waits for its end. Returns how many more bytes that frame needs at least. Zero
    /// with bytes left in `buffer` means that frames wait behind one that may have been slow: give others
    /// their turn before the next call.
    pub fn received_in(&mut self, now: Time, id: SocketId, buffer: &mut BytesMut) -> usize {
        let Some(socket) = self.endpoint.sockets.get_mut(id) else {
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
        let Some(Socket { phase: Phase::Carries(_), arrived, .. }) = self.endpoint.sockets.get_mut(id) else {
            buffer.clear();
            return 0;
        };
        if !arrived.is_empty() {
            // Left over from the handshake.
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
                // `carry` reports it.
                Err(_) => whole = buffer.len(),
            }
        }
        let frames = buffer.split_to(whole).freeze();
        self.carry(now, id, node, BytesMut::new(), frames, !buffer.is_empty());
        if missing > 0 { self.wait(now, id, buffer, missing) } else { 0 }
    }

    /// Bytes have arrived.
    pub fn received(&mut self, now: Time, id: SocketId, mut bytes: Bytes) {
        if let Some(Socket { phase: Phase::Carries(node), passed: Some(_), .. }) = self.endpoint.sockets.get(id) {
            let passed = self.pass_over(now, id, *node, bytes.len());
            bytes.advance(passed);
            if bytes.is_empty() {
                return;
            }
        }
        let Some(socket) = self.endpoint.sockets.get_mut(id) else { return };
        match socket.phase {
            Phase::Parting => return,
            Phase::Carries(node) => {
                let arrived = std::mem::take(&mut socket.arrived);
                return self.carry(now, id, node, arrived, bytes, false);
            }
            Phase::Stranger | Phase::Answered(_) | Phase::Greeting { .. } => {}
        }
        if socket.asked.is_some() {
            let why = "it goes on before it has been answered";
            return self.close(now, id, Closed::Garbage(why.to_owned()));
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
                Err(WireError::Version(_)) => self.endpoint.refuse(now, id, Refusal::Version(VERSIONS), &message),
                Err(why) => self.close(now, id, Closed::Garbage(why.to_string())),
            }
        }
        let Some(socket) = self.endpoint.sockets.get_mut(id) else { return };
        match &mut socket.phase {
            Phase::Answered(promise) => match codec::confirms(&mut socket.arrived) {
                Ok(None) => return,
                Ok(Some(signature)) => {
                    let promise = promise.clone();
                    let is_proven = self.endpoint.identity.check(&promise.key, &promise.signed, &signature);
                    if !is_proven && !planted!(ConfirmUnchecked) {
                        if promise.begins {
                            // A false signature shows that the node itself has not received the offer made
                            // here.
                            self.endpoint.former.is_unknown_to(promise.dialler.node, promise.answered.connection);
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
        // Bytes that arrived together with the handshake.
        if let Some(socket) = self.endpoint.sockets.get_mut(id)
            && let Phase::Carries(node) = socket.phase
            && !socket.arrived.is_empty()
        {
            let arrived = std::mem::take(&mut socket.arrived).freeze();
            self.carry(now, id, node, BytesMut::new(), arrived, false);
        }
    }
}
