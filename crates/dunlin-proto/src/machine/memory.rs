//! What this node keeps for others: how values are charged and given back, and how announced ones are
//! admitted.

use super::frames::CONTROL_MAX;
use super::{Endpoint, Machine};
use crate::account::Charge;
use crate::channel::Peers;
use crate::connection::{Carried, Connection};
use crate::id::NodeId;
use crate::misbehaved::PeerMisbehaved;
use crate::planted::planted;
use crate::wire::{Frame, Memory};

impl Endpoint {
    /// Sends the other node new credit, if there is much; with `at_once`, if there is any.
    pub(crate) fn tell_credit(&mut self, node: NodeId, at_once: bool) {
        let Some(connection) = self.connections.get_mut(node) else { return };
        if matches!(connection.carried, Carried::Idle) {
            return;
        }
        if let Some(more) = connection.inbox.account.top_up(at_once, &mut self.pool) {
            self.say_memory(node, Memory::Credit(more));
        }
    }

    /// Releases a charge of that node that belongs to no channel.
    pub(crate) fn release(&mut self, node: NodeId, charge: Charge) {
        let Some(connection) = self.connections.get_mut(node) else { return };
        let account = &mut connection.inbox.account;
        let has_room = account.give_back(charge, &mut self.pool);
        let wants_room = account.wants_room();
        if account.wants_credit() {
            self.tell_credit(node, false);
        }
        if has_room {
            self.admit_waiting();
        } else if wants_room {
            self.admit_values(node);
        }
    }

    /// Whether the answers that wait for that node to read them are within the limit of one connection, and
    /// the pool has room for them.
    pub(super) fn has_room_for_answers(&mut self, node: NodeId) -> bool {
        let most = self.config.unacked_max.saturating_add(CONTROL_MAX);
        self.reserve_answers_within(node, most)
    }

    /// Reserves room for the answers that wait for that node to read them. `false`: the pool has none.
    pub(super) fn reserve_answers(&mut self, node: NodeId) -> bool {
        self.reserve_answers_within(node, usize::MAX)
    }

    /// The same. `false` also if more than `most` bytes are owed to that node.
    fn reserve_answers_within(&mut self, node: NodeId, most: usize) -> bool {
        let Some(connection) = self.connections.get_mut(node) else { return true };
        if connection.outbox.owed_bytes() > most {
            return false;
        }
        let answers = connection.outbox.answers() as u64;
        let freed = connection.inbox.account.answers_wait(answers, &mut self.pool);
        if freed == Some(true) {
            self.admit_waiting();
        }
        freed.is_some()
    }

    /// Sends to a node that has sent something before: this makes no connection.
    pub(super) fn say_memory(&mut self, node: NodeId, said: Memory) {
        let Some(connection) = self.connections.get_mut(node) else { return };
        connection.outbox.push(Frame::Memory(said));
        if let Some(socket) = connection.socket() {
            self.act_write(socket);
        }
    }

    /// Admits the value that the other node has announced under this number.
    pub(super) fn say_admitted(&mut self, node: NodeId, number: u64) {
        self.say_memory(node, Memory::Admit(number));
        if let Some(Connection { inbox, outbox, .. }) = self.connections.get_mut(node) {
            // The control lane goes before all else.
            inbox.stall.admits(outbox.written() + outbox.control_waiting() as u64);
        }
    }

    /// Admits the values for which there is room. If some remain, the connection waits for more.
    pub(super) fn admit_values(&mut self, node: NodeId) {
        let Some(connection) = self.connections.get_mut(node) else { return };
        if matches!(connection.carried, Carried::Idle) {
            return;
        }
        let mut admitted = Vec::new();
        let account = &mut connection.inbox.account;
        admitted.extend(std::iter::from_fn(|| account.admit(&mut self.pool)));
        if account.wants_room() && !std::mem::replace(&mut account.waits, true) {
            self.pool.waiting.push_back(node);
        }
        if admitted.is_empty() {
            return;
        }
        connection.inbox.stall.ends();
        for number in admitted {
            self.say_admitted(node, number);
        }
    }

    /// The pool has room: each connection that waits for some gets one turn.
    pub(crate) fn admit_waiting(&mut self) {
        for _ in 0..self.pool.waiting.len() {
            let Some(node) = self.pool.waiting.pop_front() else { return };
            if let Some(connection) = self.connections.get_mut(node) {
                connection.inbox.account.waits = false;
            }
            self.admit_values(node);
        }
    }

    /// The connection to this node is over: releases everything kept for it.
    pub(super) fn close_account(&mut self, node: NodeId) {
        let Some(connection) = self.connections.get_mut(node) else { return };
        let account = &mut connection.inbox.account;
        if account.waits {
            self.pool.waiting.retain(|other| *other != node);
        }
        account.close(&mut self.pool);
        self.admit_waiting();
    }

    /// Whether admitted values have made no progress for the grace period while other frames came. (A node
    /// that sends nothing is [silent](crate::Closed::Silent).)
    pub(super) fn has_stalled(&self, node: NodeId) -> bool {
        let inbox = self.connections.get(node).map(|connection| &connection.inbox);
        inbox.is_some_and(|inbox| inbox.account.awaits_values() && inbox.stall.is_long(&self.config))
    }
}

impl Machine {
    /// Bytes that this node keeps for that one, or has reserved for it.
    pub fn held_for(&self, node: NodeId) -> u64 {
        let account = self.endpoint.connections.get(node).map_or(0, |connection| connection.inbox.account.held());
        account + self.endpoint.pool.declared_by(node)
    }

    /// Bytes that this node keeps for all others, or has reserved for them, beyond the credit that each
    /// connection has in any case.
    pub fn held_for_all(&self) -> u64 {
        self.endpoint.pool.held()
    }

    /// What that node has [declared](crate::names::NameService::cost_of) here takes `bytes` bytes. It may
    /// outlive the connection, so the charge stays until a call with a smaller number.
    ///
    /// # Errors
    /// There is no room for more than it took before; the error is the limit for all nodes.
    pub fn keep_declared(&mut self, node: NodeId, bytes: u64) -> Result<(), u64> {
        if self.endpoint.is_me(node) {
            return Ok(());
        }
        match self.endpoint.pool.declares(node, self.endpoint.source_of(node), bytes) {
            None => Err(self.endpoint.config.held_max),
            Some(has_room) => {
                if has_room {
                    self.endpoint.admit_waiting();
                }
                Ok(())
            }
        }
    }

    /// The nodes whose declarations are [charged](Self::keep_declared) here.
    pub fn declarers(&self) -> Vec<NodeId> {
        self.endpoint.pool.declarers().collect()
    }

    /// Values for that node have been written: senders that wait for room get their credits.
    pub(super) fn tell_credits_to(&mut self, node: NodeId) {
        let Some(connection) = self.endpoint.connections.get_mut(node) else { return };
        for channel in connection.outbox.now_roomy() {
            self.channels.tell_credits(&mut self.endpoint, channel);
        }
        self.endpoint.posts_written(node);
    }

    /// Bytes of values sent on credits that wait to be written to that node.
    pub fn queued_for(&self, node: NodeId) -> u64 {
        self.endpoint.connections.get(node).map_or(0, |connection| connection.outbox.queued())
    }

    pub(super) fn hear_memory(&mut self, node: NodeId, said: Memory) -> Result<(), PeerMisbehaved> {
        if self.endpoint.is_me(node) {
            return Ok(());
        }
        let connection = self.endpoint.connections.get_or_insert(node, |_| {});
        match said {
            Memory::Credit(bytes) => {
                connection.outbox.grow_credit(bytes);
                self.endpoint.posts_have_credit(node);
            }
            Memory::Admit(number) => {
                if connection.outbox.admitted(number)
                    && let Some(socket) = connection.socket()
                {
                    self.endpoint.act_write(socket);
                }
            }
            Memory::Announce { number, channel, kind, total } => {
                connection.inbox.account.announce(channel, number, kind, total)?;
                self.channels.consider(&mut self.endpoint, node, channel);
                self.endpoint.tell_credit(node, true);
            }
            Memory::Recant(number) => {
                let (channel, charge) = connection.inbox.account.recant(number)?;
                connection.inbox.account.arrived(charge);
                if planted!(RecantKept) {
                    return Ok(());
                }
                self.channels.give_back(&mut self.endpoint, node, channel, charge);
            }
        }
        Ok(())
    }
}
