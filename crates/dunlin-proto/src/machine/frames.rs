//! How frames are read, and how each kind is handled.

use std::fmt;

use bytes::{Bytes, BytesMut};
use dunlin_schema::Difference;

use super::socket_table::{Phase, Socket};
use super::{Action, Closed, Endpoint, Machine};
use crate::channel::Peers;
use crate::connection::{Carried, Down};
use crate::id::{Life, NodeId, SocketId};
use crate::misbehaved::PeerMisbehaved;
use crate::planted::planted;
use crate::time::Time;
use crate::wire::codec::{self, WireError};
use crate::wire::{Declaration, Frame, Names, Post};

/// How many nodes that left are remembered.
const LEFT_MAX: usize = 64;

/// The most bytes of answers that one node may leave unread.
pub(super) const CONTROL_MAX: usize = 4 << 20;

impl Endpoint {
    /// Answers a heartbeat at once if this node's own is due soon. Then of two idle nodes only one has its
    /// timer fire; the other just reads and writes.
    fn beats_back(&mut self, now: Time, node: NodeId) {
        if let Some(connection) = self.connections.get_mut(node)
            && now >= connection.said + self.config.heartbeat / 2
            && let Some(socket) = connection.socket()
        {
            connection.beats_back = true;
            self.act_write(socket);
        }
    }

    pub(crate) fn compares(&mut self, now: Time, node: NodeId, steps: u64) {
        self.steps += steps;
        if let Some(connection) = self.connections.get_mut(node) {
            connection.chatter.compares(now, steps);
        }
    }
}

impl Machine {
    /// `begun`: the caller has the beginning of a frame behind these bytes.
    pub(super) fn carry(
        &mut self,
        now: Time,
        id: SocketId,
        node: NodeId,
        mut arrived: BytesMut,
        bytes: Bytes,
        begun: bool,
    ) {
        let Some(connection) = self.endpoint.connections.get_mut(node) else { return };
        connection.hears(now, &self.endpoint.config);
        connection.traffic.read += (arrived.len() + bytes.len()) as u64;
        // Whole frames are decoded in place; only a frame that is split between two arrivals is put together.
        let mut at = 0;
        loop {
            let next = if arrived.is_empty() { codec::next(&bytes[at..]) } else { codec::next(&arrived) };
            let frame = match next {
                Err(why) => return self.violation(now, node, why),
                Ok(codec::Next::Wait(missing)) => {
                    let left = bytes.len() - at;
                    if left == 0 {
                        break;
                    }
                    let take = if arrived.is_empty() { left } else { missing.min(left) };
                    arrived.extend_from_slice(&bytes[at..at + take]);
                    at += take;
                    continue;
                }
                Ok(codec::Next::Frame { head, body }) if arrived.is_empty() => {
                    let (kind, head) = (bytes[at], at + head);
                    at = head + body;
                    codec::decode_within(kind, &bytes, head..at)
                }
                Ok(codec::Next::Frame { head, body }) => {
                    let whole = arrived.split_to(head + body).freeze();
                    codec::decode_within(whole[0], &whole, head..head + body)
                }
            };
            let frame = match frame {
                Ok(frame) => frame,
                Err(why) => return self.violation(now, node, why),
            };
            if let Err(why) = self.hear(now, node, frame) {
                return self.violation(now, node, why);
            }
            if !self.endpoint.has_room_for_answers(node) {
                return self.violation(now, node, PeerMisbehaved::DoesNotRead);
            }
            // The frame may have ended the socket.
            match self.endpoint.sockets.get(id) {
                Some(Socket { phase: Phase::Carries(_), .. }) => {}
                _ => return,
            }
        }
        let (within_frame, rest) = (begun || !arrived.is_empty(), arrived.len() as u64);
        if !arrived.is_empty() {
            self.wait(now, id, &mut arrived, 1);
        }
        if let Some(socket) = self.endpoint.sockets.get_mut(id) {
            socket.arrived = arrived;
        }
        let ack_delay = self.endpoint.config.ack_delay;
        let Some(connection) = self.endpoint.connections.get_mut(node) else { return };
        connection.inbox.within_frame = within_frame;
        // These bytes count when they are decoded.
        connection.traffic.read -= rest;
        if connection.inbox.heard() != connection.inbox.acked {
            if connection.inbox.must_acknowledge(&self.endpoint.config) {
                self.endpoint.act_write(id);
            } else if connection.ack_at.is_none() {
                connection.ack_at = Some(now + ack_delay);
                self.endpoint.due_at(node, now + ack_delay);
            }
        }
    }

    /// That node has sent something illegal, in a message that the driver has to judge. A node that breaks
    /// the protocol cannot be trusted, so the connection ends.
    pub fn broke_the_protocol(&mut self, now: Time, node: NodeId, why: &str) {
        if self.endpoint.connections.get(node).is_some_and(|connection| connection.was_up) {
            self.violation(now, node, why);
        }
    }

    pub(super) fn violation(&mut self, now: Time, node: NodeId, why: impl fmt::Display) {
        self.die(now, node, Down::Violation(why.to_string()));
    }

    pub(crate) fn hear(&mut self, now: Time, node: NodeId, frame: Frame) -> Result<(), PeerMisbehaved> {
        let unnumbered =
            planted!(TakenUnnumbered) && matches!(frame, Frame::FromHome(_, crate::wire::FromHome::Taken(_)));
        let numbered = frame.is_numbered() && !unnumbered && !self.endpoint.is_me(node);
        if numbered {
            let connection = self.endpoint.connections.get_or_insert(node, |_| {});
            connection.outbox.meets(now, false, &frame, &self.endpoint.config);
            let inbox = &mut connection.inbox;
            if inbox.again > 0 {
                inbox.again -= 1;
                return Ok(());
            }
            inbox.seen += 1;
            // About what the other side keeps for it. Otherwise many small frames would fill its window while
            // their acknowledgement waits for another frame to travel with.
            inbox.unacked_bytes += 32
                + match &frame {
                    Frame::More(_, piece) => piece.len(),
                    Frame::ToHome(_, crate::wire::ToHome::Value { first, .. }) => first.len(),
                    Frame::Relay(crate::wire::Relay::Bytes { piece, .. })
                    | Frame::Post(Post::More(piece) | Post::Message { first: piece, .. }) => piece.len(),
                    _ => 0,
                };
        }
        match frame {
            Frame::Heartbeat => {
                self.endpoint.hears_nothing(now, node);
                self.endpoint.beats_back(now, node);
            }
            Frame::Confirm { .. } if planted!(UnconfirmedResumed) => {}
            Frame::Confirm { .. } => return Err(PeerMisbehaved::LateConfirm),
            Frame::Ack { seen } => {
                let connection =
                    self.endpoint.connections.get_mut(node).ok_or(PeerMisbehaved::Acknowledged { seen })?;
                let was_full = !connection.outbox.has_something(&self.endpoint.config);
                let before = connection.outbox.acked();
                if !connection.outbox.acknowledge(now, seen, &self.endpoint.config) {
                    return Err(PeerMisbehaved::Acknowledged { seen });
                }
                if seen > before {
                    connection.unproven = None;
                } else {
                    connection.chatter.hears(now);
                }
                if was_full
                    && connection.outbox.has_something(&self.endpoint.config)
                    && let Some(socket) = connection.socket()
                {
                    self.endpoint.act_write(socket);
                }
            }
            Frame::Goodbye => {
                // Shows the other side that this node received everything, including the goodbye.
                let seen = self.endpoint.connection(node).inbox.seen;
                if let Some(socket) = self.endpoint.connection(node).socket() {
                    let mut last = BytesMut::new();
                    codec::encode(&Frame::Ack { seen }, &mut last);
                    self.endpoint.part(now, socket, last.freeze(), Closed::Over);
                    self.endpoint.connection(node).carried = Carried::Idle;
                }
                self.die(now, node, Down::Left);
                self.endpoint.left.push_back(node);
                if self.endpoint.left.len() > LEFT_MAX {
                    self.endpoint.left.pop_front();
                }
            }
            Frame::FromHome(channel, said) => {
                let (channels, peers) = self.at(now);
                channels.hear_home(peers, node, channel, said)?;
            }
            Frame::ToHome(channel, said) => {
                if !self.endpoint.is_me(node) && self.endpoint.connection(node).inbox.is_within_value(channel) {
                    return Err(PeerMisbehaved::WithinValue);
                }
                let (channels, peers) = self.at(now);
                channels.hear_sender(peers, node, channel, said)?;
            }
            Frame::More(channel, piece) => {
                let inbox = &mut self.endpoint.connection(node).inbox;
                inbox.stall.ends();
                let arrived = inbox.more(channel, &piece);
                let (channels, peers) = self.at(now);
                channels.piece_arrived(peers, node, channel, arrived)?;
            }
            Frame::Cut(channel) => {
                let inbox = &mut self.endpoint.connection(node).inbox;
                let charge = inbox.cut(channel).ok_or(PeerMisbehaved::StrayCut)?;
                self.channels.give_back(&mut self.endpoint, node, channel, charge);
            }
            Frame::Travel(channel, said) => {
                let (channels, peers) = self.at(now);
                channels.hear_travel(peers, node, channel, said)?;
            }
            Frame::Relay(said) => self.hear_relay(now, node, said)?,
            Frame::Memory(said) => self.hear_memory(node, said)?,
            Frame::Post(said) => self.hear_post(now, node, said)?,
            Frame::Signal(signal) => self.hear_signal(now, node, *signal)?,
            Frame::Read(channel, read) => {
                let (channels, peers) = self.at(now);
                channels.hear_read(peers, node, channel, read);
            }
            Frame::Names(said) => {
                let met = if self.endpoint.is_me(node) {
                    Some(self.endpoint.me.incarnation)
                } else {
                    self.endpoint.connection(node).met
                };
                let incarnation = met.expect("it has shaken hands");
                self.endpoint.actions.push_back(Action::Names(Life { node, incarnation }, Box::new(said)));
            }
        }
        Ok(())
    }

    /// What keeps `there`, a declaration from that node, from fitting `here`: as
    /// [`difference`](crate::difference), with its cost attributed to that node.
    pub fn difference(
        &mut self,
        now: Time,
        node: NodeId,
        here: &Declaration,
        there: &Declaration,
    ) -> Option<Difference> {
        self.endpoint.comparisons.begin_frame();
        let difference = self.endpoint.comparisons.difference(here, there);
        let steps = self.endpoint.comparisons.take_steps();
        self.endpoint.compares(now, node, steps);
        difference
    }

    /// How many steps such comparisons have taken, for all nodes.
    pub fn steps(&self) -> u64 {
        self.endpoint.steps
    }

    /// Until when the driver should not read a socket. That applies after too many frames that no sender
    /// waits for: heartbeats in close succession, acknowledgements of nothing new, frames about channels that
    /// are not here; or too many schemas that are slow to [compare](Self::compares). After that moment, a
    /// little is read.
    pub fn paused_until(&self, now: Time, socket: SocketId) -> Option<Time> {
        let Phase::Carries(node) = self.endpoint.sockets.get(socket)?.phase else { return None };
        self.endpoint.connections.get(node)?.chatter.paused_until(now)
    }

    /// Sends a message of the name service to a node.
    ///
    /// # Errors
    /// It is too long to be sent, and is not.
    pub fn say_names(&mut self, now: Time, node: NodeId, said: Names) -> Result<(), WireError> {
        said.check()?;
        let is_own = matches!(said, Names::Declare { .. } | Names::Undeclare { .. });
        self.endpoint.say(now, node, Frame::Names(said));
        // One frame may cause thousands of answers, also to nodes other than its sender.
        if !is_own && !self.endpoint.reserve_answers(node) {
            self.violation(now, node, PeerMisbehaved::DoesNotRead);
        }
        Ok(())
    }
}
