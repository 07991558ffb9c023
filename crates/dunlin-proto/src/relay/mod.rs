//! Relayed sockets: a node forwards bytes between two others that cannot dial each other.
//!
//! For the two ends it is a socket like any other, with a handshake, heartbeats and all frames. But its bytes
//! travel in frames of the connections with the relay (a *stream* on each), in turns with the frames of
//! channels there. At most [`limits::RELAYED`] bytes are in flight in each direction, from one end to the
//! other. The relay keeps no more than that, and for no more than
//! [`Config::relays_max`](crate::Config::relays_max) sockets. A relayed socket is pulled when the relay's
//! socket can be written, so that urgent frames still come first.
//!
//! A stream is lost with the connection that it is on, but not when that connection only loses its socket and
//! resumes. No stream is on a connection that is relayed itself.

pub(crate) mod streams;

use bytes::Bytes;

use crate::connection::Connection;
use crate::id::{NodeId, SocketId};
use crate::machine::socket_table::{Phase, Wanted};
use crate::machine::{Action, Declined, Endpoint, Machine};
use crate::misbehaved::PeerMisbehaved;
use crate::relay::streams::{Key, Stream};
use crate::time::Time;
use crate::wire::{Frame, NoRelay, Relay, limits};

impl Endpoint {
    /// Begins a stream on the connection to that node.
    fn begin_stream(&mut self, with: NodeId) -> Key {
        let odd = u64::from(self.me.node > with);
        let connection = self.connection(with);
        connection.streams[0] += 1;
        (with, 2 * connection.streams[0] + odd)
    }

    /// Handles a stream that that node has begun.
    fn stream_begun(&mut self, by: NodeId, stream: u64) -> Result<(), PeerMisbehaved> {
        let odd = u64::from(by > self.me.node);
        let begun = &mut self.connection(by).streams[1];
        if stream % 2 != odd || stream / 2 <= *begun {
            return Err(PeerMisbehaved::StreamOutOfTurn(stream));
        }
        *begun = stream / 2;
        Ok(())
    }

    /// Makes a socket to `node`, relayed by `by`.
    pub(crate) fn relay_to(&mut self, now: Time, node: NodeId, by: NodeId) -> SocketId {
        let key = self.begin_stream(by);
        self.say(now, by, Frame::Relay(Relay::To { stream: key.1, node }));
        self.relays.insert(key, None)
    }

    /// Marks a relayed socket that may have something to send. Returns the socket that carries the connection
    /// with the relay.
    pub(crate) fn stir(&mut self, socket: SocketId) -> Option<SocketId> {
        let key = *self.relays.sockets.get(&socket)?;
        self.relays.end(key)?.stirred = true;
        self.connections.get(key.0).and_then(Connection::socket)
    }

    /// Closes a relayed socket: after its last message if it has one, otherwise at once.
    pub(crate) fn close_relayed(&mut self, socket: SocketId) {
        let Some(key) = self.relays.sockets.get(&socket).copied() else { return };
        let says_more =
            self.sockets.get(socket).is_some_and(|s| matches!(s.phase, Phase::Parting) && s.ready.is_some());
        if !says_more {
            return self.end_stream(key);
        }
        if let Some(end) = self.relays.end(key) {
            end.closing = true;
        }
        self.act_write(socket);
    }

    /// Ends a relayed socket of this node, and notifies the relay.
    fn end_stream(&mut self, key: Key) {
        self.push(key.0, Frame::Relay(Relay::End { stream: key.1 }));
        self.forget_stream(key);
    }

    fn forget_stream(&mut self, key: Key) {
        self.relays.remove(key);
        if !self.relays.needs(key.0)
            && let Some(connection) = self.connections.get_mut(key.0)
            && std::mem::take(&mut connection.goodbye_waits)
        {
            self.push(key.0, Frame::Goodbye);
        }
    }

    /// Queues a frame for a node to which there is a connection.
    fn push(&mut self, node: NodeId, frame: Frame) {
        let connection = self.connection(node);
        connection.outbox.push(frame);
        if let Some(socket) = connection.socket() {
            self.act_write(socket);
        }
    }

    /// Whether frames of `from` may open a path to `to`. A node that is reached only on this host may be
    /// closed to other hosts for a reason: nodes of other hosts get in through this one only if that node has
    /// admitted it.
    pub(crate) fn lets_through(&self, from: NodeId, to: NodeId) -> bool {
        let is_near = |node| {
            let socket = self.connections.get(node).and_then(Connection::socket);
            socket.and_then(|socket| self.sockets.get(socket)).is_some_and(|socket| socket.near)
        };
        is_near(from) || !is_near(to) || self.connections.get(to).is_some_and(|connection| connection.admits)
    }

    /// At the relay: continues a stream to that node.
    fn relay(&mut self, now: Time, key: Key, node: NodeId) -> Result<(), NoRelay> {
        if self.config.relays_max == 0 || self.leaving {
            return Err(NoRelay::Unwilling);
        }
        if node == key.0 || !self.is_within_reach(node) || !self.is_direct(key.0) {
            return Err(NoRelay::NotConnected);
        }
        if !self.lets_through(key.0, node) {
            self.declines(key.0, Declined::Admittance(node));
            return Err(NoRelay::Local);
        }
        let source = self.source_of(key.0);
        if !self.relays.shares.admits(source, self.config.relays_max) {
            self.actions.push_back(Action::Unrelayed(key.0));
            return Err(NoRelay::Full);
        }
        self.relays.shares.take(source);
        let other = self.begin_stream(node);
        let between = |other, asked_by| Stream::Between { other, room: limits::RELAYED, asked_by };
        self.relays.streams.insert(key, between(other, Some(source)));
        self.relays.streams.insert(other, between(key, None));
        self.say(now, node, Frame::Relay(Relay::From { stream: other.1, node: key.0 }));
        Ok(())
    }

    fn hear_relay_credit(&mut self, key: Key) -> Result<(), PeerMisbehaved> {
        let too_much = PeerMisbehaved::RelayCredit(key.1);
        let more = limits::RELAY_CREDIT;
        match self.relays.streams.get_mut(&key) {
            Some(Stream::End(end)) => {
                if end.may_say + more > limits::RELAYED {
                    return Err(too_much);
                }
                end.may_say += more;
                let socket = end.socket;
                if end.stirred || !end.left.is_empty() {
                    self.act_write(socket);
                }
            }
            Some(Stream::Between { other, .. }) => {
                let other = *other;
                if let Some(Stream::Between { room, .. }) = self.relays.streams.get_mut(&other) {
                    if *room + more > limits::RELAYED {
                        return Err(too_much);
                    }
                    *room += more;
                }
                self.push(other.0, Frame::Relay(Relay::Credit { stream: other.1 }));
            }
            None => {}
        }
        Ok(())
    }
}

impl Machine {
    /// Pulls what the sockets relayed by `by` have to send, within their credit.
    pub(crate) fn pull(&mut self, now: Time, by: NodeId) {
        let keys: Vec<Key> = self.endpoint.relays.of(by).map(|(key, _)| *key).collect();
        for key in keys {
            self.pull_one(now, key);
            if let Some(end) = self.endpoint.relays.end(key)
                && end.closing
                && end.left.is_empty()
                && !end.stirred
            {
                let socket = end.socket;
                self.endpoint.sockets.remove(socket);
                self.endpoint.end_stream(key);
            }
        }
    }

    fn pull_one(&mut self, now: Time, key: Key) {
        let chunk = self.endpoint.config.chunk;
        loop {
            let Some(end) = self.endpoint.relays.end(key) else { return };
            if end.left.is_empty() {
                if !std::mem::take(&mut end.stirred) {
                    return;
                }
                let (socket, mut out) = (end.socket, Vec::new());
                self.fill(now, socket, chunk, &mut out);
                let Some(end) = self.endpoint.relays.end(key) else { return };
                if out.is_empty() {
                    return;
                }
                end.stirred = true;
                end.left.extend(out);
            }
            let unsaid = self.endpoint.connection(key.0).outbox.unsaid_of(key.1);
            let Some(end) = self.endpoint.relays.end(key) else { return };
            if end.may_say == 0 || unsaid >= chunk {
                return;
            }
            let Some(mut piece) = end.left.pop_front() else { continue };
            if piece.len() > end.may_say {
                let rest = piece.split_off(end.may_say);
                end.left.push_front(rest);
            }
            end.may_say -= piece.len();
            self.endpoint.connection(key.0).outbox.push(Frame::Relay(Relay::Bytes { stream: key.1, piece }));
        }
    }

    /// The connection to this node is over, or is relayed itself from now on: streams over it end. `told`:
    /// notifies the other side, which may not know: it need not have received the answer of a relayed socket
    /// that this side has accepted.
    pub(crate) fn end_streams(&mut self, now: Time, node: NodeId, told: bool) {
        let keys: Vec<Key> = self.endpoint.relays.of(node).map(|(key, _)| *key).collect();
        for key in keys {
            if told {
                self.endpoint.push(node, Frame::Relay(Relay::End { stream: key.1 }));
            }
            match self.endpoint.relays.streams.get(&key) {
                Some(Stream::End(_)) => self.lose_end(now, key, "the connection with the relay ended"),
                Some(Stream::Between { other, .. }) => {
                    let other = *other;
                    self.endpoint.relays.remove(key);
                    self.endpoint.end_stream(other);
                }
                None => {}
            }
        }
    }

    /// A relayed socket of this node is lost.
    fn lose_end(&mut self, now: Time, key: Key, why: &str) {
        if let Some(end) = self.endpoint.relays.end(key) {
            let socket = end.socket;
            self.endpoint.forget_stream(key);
            self.drop_socket(now, socket, why);
        }
    }

    pub(crate) fn hear_relay(&mut self, now: Time, from: NodeId, said: Relay) -> Result<(), PeerMisbehaved> {
        match said {
            Relay::AskDial { node, addresses } => self.endpoint.hear_ask_dial(now, from, node, addresses),
            Relay::DialBack { node, addresses } => self.endpoint.hear_dial_back(now, from, node, &addresses),
            Relay::Undialled(node) => self.endpoint.hear_undialled(now, from, node),
            Relay::NotDialled(node, why) => self.endpoint.hear_not_dialled(now, from, node, why),
            Relay::Admit => self.endpoint.connection(from).admits = true,
            Relay::To { stream, node } => {
                self.endpoint.stream_begun(from, stream)?;
                if let Err(why) = self.endpoint.relay(now, (from, stream), node) {
                    self.endpoint.say(now, from, Frame::Relay(Relay::Refused { stream, why }));
                }
            }
            Relay::From { stream, node } => {
                self.endpoint.stream_begun(from, stream)?;
                let socket = self.endpoint.relays.insert((from, stream), Some(node));
                if node == from || self.endpoint.relayed_by(from).is_some() {
                    self.endpoint.end_stream((from, stream));
                } else {
                    self.accepted_from(now, socket, self.endpoint.source_of(from).relays());
                }
            }
            Relay::Refused { stream, why } => {
                if let Some(end) = self.endpoint.relays.end((from, stream)) {
                    if end.from.is_some() {
                        return Err(PeerMisbehaved::OwnStreamRefused(stream));
                    }
                    let socket = end.socket;
                    if let Some(Phase::Greeting { wanted: Wanted::Node(node), .. }) =
                        self.endpoint.sockets.get(socket).map(|s| &s.phase)
                    {
                        let node = *node;
                        self.endpoint.relay_refused(node, from, why);
                    }
                    self.lose_end(now, (from, stream), &why.to_string());
                }
            }
            Relay::Credit { stream } => self.endpoint.hear_relay_credit((from, stream))?,
            Relay::Bytes { stream, piece } => self.hear_relayed(now, (from, stream), piece)?,
            Relay::End { stream } => match self.endpoint.relays.streams.get(&(from, stream)) {
                Some(Stream::End(_)) => self.lose_end(now, (from, stream), "the relayed socket was closed"),
                Some(Stream::Between { other, .. }) => {
                    let other = *other;
                    self.endpoint.relays.remove((from, stream));
                    self.endpoint.end_stream(other);
                }
                None => {}
            },
        }
        Ok(())
    }

    fn hear_relayed(&mut self, now: Time, key: Key, piece: Bytes) -> Result<(), PeerMisbehaved> {
        let too_much = PeerMisbehaved::AboveRelayCredit(key.1);
        match self.endpoint.relays.streams.get_mut(&key) {
            Some(Stream::End(end)) => {
                let length = piece.len();
                end.room = end.room.checked_sub(length).ok_or(too_much)?;
                end.unreturned += length;
                let mut credits = 0;
                while end.unreturned >= limits::RELAY_CREDIT {
                    end.unreturned -= limits::RELAY_CREDIT;
                    end.room += limits::RELAY_CREDIT;
                    credits += 1;
                }
                let socket = end.socket;
                for _ in 0..credits {
                    self.endpoint.push(key.0, Frame::Relay(Relay::Credit { stream: key.1 }));
                }
                self.received(now, socket, piece);
            }
            Some(Stream::Between { other, room, .. }) => {
                let other = *other;
                *room = room.checked_sub(piece.len()).ok_or(too_much)?;
                self.endpoint.push(other.0, Frame::Relay(Relay::Bytes { stream: other.1, piece }));
            }
            None => {}
        }
        Ok(())
    }
}
