//! What is kept for other nodes: how values are charged and given back, and how announced ones are admitted.

use std::time::Duration;

use super::frames::CONTROL_MAX;
use super::{Declined, Machine};
use crate::account::{Charge, NOT_THERE, may_stand};
use crate::channel::{Attached, Home, HomeHears, Proxy, Visitor};
use crate::connection::Carried;
use crate::id::{ChannelId, Contact, NodeId};
use crate::planted::planted;
use crate::source::Source;
use crate::wire::{End, Frame, Kind, Memory, limits};

/// Whether a value that waits may come.
enum Place {
    /// None of it is kept.
    Unkept,
    There,
    /// Others of its channel have to go first.
    Full,
}

impl Machine {
    /// So many values that were [sent on credits](crate::HomeHears::Sent) have left the buffer of this home, the oldest first, or were never put there;
    /// of so many bytes in all. Until that is said this node keeps them for their sender.
    pub fn drained(&mut self, channel: ChannelId, values: u64, bytes: u64) {
        let Some(home) = self.homes.get_mut(&channel) else { return };
        for (from, charge) in home.buffered.take(values, bytes) {
            if planted!(DrainedKept) {
                continue;
            }
            self.give_back_to(from, channel, charge);
        }
    }

    /// A receive waits on this channel, where a value was [announced](crate::HomeHears::Announced): that goes before those that none waits for, and into room that they leave.
    pub fn awaited(&mut self, channel: ChannelId) {
        let nodes: Vec<NodeId> = match (self.homes.get(&channel), self.visitors.get(&channel)) {
            (Some(home), _) => home.attached.keys().copied().collect(),
            (None, visitor) => visitor.iter().map(|visitor| visitor.old_home()).collect(),
        };
        for node in nodes {
            if let Some(connection) = self.connections.get_mut(node) {
                connection.inbox.account.awaited(channel);
            }
            self.consider(node, channel);
        }
    }

    /// Bytes that this node keeps for that one, or has reserved for it.
    pub fn held_for(&self, node: NodeId) -> u64 {
        let account = self.connections.get(node).map_or(0, |connection| connection.inbox.account.held());
        account + self.pool.declared_by(node)
    }

    /// Bytes that this node keeps for all others, or has reserved for them, beyond the credit that each
    /// connection has in any case.
    pub fn held_for_all(&self) -> u64 {
        self.pool.held()
    }

    /// What that node has [declared](crate::names::Registry::cost_of) here takes so many bytes; it may outlive the connection, so it is kept until fewer are said.
    ///
    /// # Errors
    /// There is no room for more than it took before; so much there is for all nodes.
    pub fn keep_declared(&mut self, node: NodeId, bytes: u64) -> Result<(), u64> {
        if self.is_me(node) {
            return Ok(());
        }
        match self.pool.declares(node, self.source_of(node), bytes) {
            None => Err(self.config.held_max),
            Some(has_room) => {
                if has_room {
                    self.admit_waiting();
                }
                Ok(())
            }
        }
    }

    /// The nodes for which something is [kept](Self::keep_declared) that they have declared.
    pub fn declarers(&self) -> Vec<NodeId> {
        self.pool.declarers().collect()
    }

    /// A guest of that node comes to an acceptor here, and has these channels: each counts as a half of that node, from now on until it is over here. To be said before
    /// they are opened and attached.
    ///
    /// # Errors
    /// There is no room for them; so much there is for all nodes.
    pub fn keep_guest(&mut self, node: NodeId, channels: impl IntoIterator<Item = ChannelId>) -> Result<(), u64> {
        if self.is_me(node) {
            return Ok(());
        }
        let from = self.contact(node);
        let mut kept = Vec::new();
        for channel in channels {
            let account = self.connections.get_mut(node).map(|connection| &mut connection.inbox.account);
            let Some(charge) = account.and_then(|account| account.attach(&mut self.pool)) else {
                self.forget_guest(kept);
                return Err(self.config.held_max);
            };
            self.guests.insert(channel, (from, charge));
            kept.push(channel);
        }
        Ok(())
    }

    /// These channels have not been opened: the guest is not let in.
    pub fn forget_guest(&mut self, channels: impl IntoIterator<Item = ChannelId>) {
        channels.into_iter().for_each(|channel| self.free_guest(channel));
    }

    /// An end of this channel has come in a message from that node, whose source pays for it until it [is
    /// over](Self::free_end) here. The program's own nodes pay nothing. `None`: there is no room.
    pub(crate) fn pay_for_end(&mut self, channel: ChannelId, giver: Contact) -> Option<Option<Source>> {
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

    pub(crate) fn free_end(&mut self, paid_by: Option<Source>) {
        if let Some(source) = paid_by {
            self.pool.end_is_over(source);
            self.admit_waiting();
        }
    }

    /// A channel is over here that may be a guest's.
    fn free_guest(&mut self, channel: ChannelId) {
        if !self.guests.is_empty()
            && let Some((from, charge)) = self.guests.remove(&channel)
        {
            self.give_back_to(from, channel, charge);
        }
    }

    /// A value begins. What this node says to itself costs nothing.
    ///
    /// `kept`: its bytes are. `stands`: it may stand beside what has been offered on its channel and not been announced.
    pub(crate) fn charge(
        &mut self,
        from: NodeId,
        channel: ChannelId,
        total: u64,
        kept: bool,
        stands: bool,
    ) -> Result<Charge, &'static str> {
        if self.is_me(from) {
            return Ok(Charge::NONE);
        }
        let Some(connection) = self.connections.get_mut(from) else { return Ok(Charge::NONE) };
        let inbox = &mut connection.inbox;
        if inbox.unfinished() >= self.config.attached_max.min(limits::ANNOUNCED) {
            return Err("more values in pieces than it may have channels");
        }
        let account = &mut inbox.account;
        match account.begin(channel, total) {
            Some(Ok(Charge::NONE)) if kept => account.reserve(total, &mut self.pool).ok_or(NOT_THERE),
            Some(charge) => charge,
            None if !stands => Err("more offered at once than may be"),
            None => {
                let charge = account.charge(total);
                if account.wants_credit() {
                    self.tell_credit(from, false);
                }
                charge
            }
        }
    }

    /// A value is not kept any more.
    pub(crate) fn give_back(&mut self, from: NodeId, channel: ChannelId, charge: Charge) {
        if charge == Charge::NONE {
            return;
        }
        let Some(connection) = self.connections.get_mut(from) else { return };
        let account = &mut connection.inbox.account;
        let has_room = account.give_back(charge, &mut self.pool);
        let (waits, wants_room) = (account.waits_on(channel).is_some(), account.wants_room());
        let wants_credit = account.wants_credit();
        if wants_credit {
            self.tell_credit(from, false);
        }
        if waits {
            self.consider(from, channel);
        }
        if has_room {
            self.admit_waiting();
        } else if wants_room {
            self.admit_values(from);
        }
    }

    /// The same, of what came in that life of the connection.
    fn give_back_to(&mut self, from: Contact, channel: ChannelId, charge: Charge) {
        if self.contact(from.node) == from {
            self.give_back(from.node, channel, charge);
        }
    }

    /// Tells the other node of new credit, if there is much; `at_once`: or any.
    fn tell_credit(&mut self, node: NodeId, at_once: bool) {
        let Some(connection) = self.connections.get_mut(node) else { return };
        if matches!(connection.carried, Carried::Idle) {
            return;
        }
        if let Some(more) = connection.inbox.account.top_up(at_once, &mut self.pool) {
            self.say_memory(node, Memory::Credit(more));
        }
    }

    /// Whether what waits for that node to read it is within what one connection may have, and there is room for it beside what is kept for others.
    pub(super) fn has_room_for_answers(&mut self, node: NodeId) -> bool {
        let Some(connection) = self.connections.get_mut(node) else { return true };
        let most = self.config.unacked_max.saturating_add(CONTROL_MAX);
        connection.outbox.owed_bytes() <= most && self.reserve_answers(node)
    }

    /// Reserves room for what waits for that node to read it. `false`: there is none beside what is kept for others.
    pub(super) fn reserve_answers(&mut self, node: NodeId) -> bool {
        let Some(connection) = self.connections.get_mut(node) else { return true };
        let answers = connection.outbox.answers() as u64;
        let freed = connection.inbox.account.answers_wait(answers, &mut self.pool);
        if freed == Some(true) {
            self.admit_waiting();
        }
        freed.is_some()
    }

    /// Values for that node have been written: senders that wait for room go on.
    pub(super) fn tell_credits_to(&mut self, node: NodeId) {
        let Some(connection) = self.connections.get_mut(node) else { return };
        for channel in connection.outbox.now_roomy() {
            self.tell_credits(channel);
        }
    }

    /// Bytes of values sent on credits that wait to be written to that node.
    pub fn queued_for(&self, node: NodeId) -> u64 {
        self.connections.get(node).map_or(0, |connection| connection.outbox.queued())
    }

    /// To a node that has said something before: no connection is made for it.
    fn say_memory(&mut self, node: NodeId, said: Memory) {
        let Some(connection) = self.connections.get_mut(node) else { return };
        connection.outbox.push(Frame::Memory(said));
        if let Some(socket) = connection.socket() {
            self.act_write(socket);
        }
    }

    pub(super) fn hear_memory(&mut self, node: NodeId, said: Memory) -> Result<(), &'static str> {
        if self.is_me(node) {
            return Ok(());
        }
        let connection = self.connections.get_or_insert(node, |_| {});
        match said {
            Memory::Credit(bytes) => connection.outbox.grow_credit(bytes),
            Memory::Admit(number) => {
                if connection.outbox.admitted(number)
                    && let Some(socket) = connection.socket()
                {
                    self.act_write(socket);
                }
            }
            Memory::Announce { number, channel, kind, total } => {
                connection.inbox.account.announce(channel, number, kind, total)?;
                self.consider(node, channel);
                self.tell_credit(node, true);
            }
            Memory::Recant(number) => {
                let (channel, charge) = connection.inbox.account.recant(number)?;
                connection.inbox.account.arrived(charge);
                if planted!(RecantKept) {
                    return Ok(());
                }
                self.give_back(node, channel, charge);
            }
        }
        Ok(())
    }

    /// What is announced on this channel may come, if the channel has room for it, and the node.
    pub(crate) fn consider(&mut self, node: NodeId, channel: ChannelId) {
        let Some(connection) = self.connections.get(node) else { return };
        let Some(announced) = connection.inbox.account.waits_on(channel) else { return };
        let place = self.place_for(node, channel, announced.kind, announced.bytes);
        let Some(connection) = self.connections.get_mut(node) else { return };
        match place {
            Place::Unkept => {
                if let Some(number) = connection.inbox.account.admit_unkept(channel) {
                    self.say_memory(node, Memory::Admit(number));
                }
            }
            Place::There => {
                connection.inbox.account.queue(channel);
                self.admit_values(node);
                let account = self.connections.get_mut(node).map(|connection| &mut connection.inbox.account);
                if account.is_some_and(|account| account.asks_awaited(channel)) {
                    self.hears(channel, node, HomeHears::Announced);
                }
            }
            Place::Full => {}
        }
    }

    fn place_for(&self, node: NodeId, channel: ChannelId, kind: Kind, bytes: u64) -> Place {
        if bytes > self.config.value_max as u64 {
            return Place::Unkept;
        }
        if self.visitors.contains_key(&channel) {
            return Place::There;
        }
        let Some(home) = self.homes.get(&channel) else { return Place::Unkept };
        let Some(attached) = home.attached.get(&node) else { return Place::Unkept };
        let is_kept = match home.rare.ended {
            None => !home.phase.has_said_so(),
            Some(End::Retired) => kind == Kind::Sent,
            Some(_) => false,
        };
        let is_full = match kind {
            Kind::Offer => !may_stand(attached.charges.ahead(), bytes),
            Kind::Grant => false,
            Kind::Sent => home.buffered.is_full_for(bytes),
        };
        match (is_kept && bytes <= home.terms.value_max, is_full) {
            (false, _) => Place::Unkept,
            (true, false) => Place::There,
            (true, true) => Place::Full,
        }
    }

    /// Admits what there is room for. If that is not all, the connection waits for more.
    fn admit_values(&mut self, node: NodeId) {
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
        if !admitted.is_empty() {
            connection.inbox.stalled = Duration::ZERO;
        }
        for number in admitted {
            self.say_memory(node, Memory::Admit(number));
        }
    }

    /// There is room in the pool: each connection that waits for some is looked at once.
    pub(crate) fn admit_waiting(&mut self) {
        for _ in 0..self.pool.waiting.len() {
            let Some(node) = self.pool.waiting.pop_front() else { return };
            if let Some(connection) = self.connections.get_mut(node) {
                connection.inbox.account.waits = false;
            }
            self.admit_values(node);
        }
    }

    /// The connection to this node is over: nothing is kept for it.
    pub(super) fn close_account(&mut self, node: NodeId) {
        let Some(connection) = self.connections.get_mut(node) else { return };
        let account = &mut connection.inbox.account;
        if account.waits {
            self.pool.waiting.retain(|other| *other != node);
        }
        account.close(&mut self.pool);
        self.admit_waiting();
    }

    /// A home, and what lies there for others.
    pub(crate) fn remove_home(&mut self, channel: ChannelId) -> Option<Box<Home>> {
        let mut home = self.homes.remove(&channel)?;
        let buffered: Vec<(Contact, Charge)> = home.buffered.drain().collect();
        for (from, charge) in buffered {
            self.give_back_to(from, channel, charge);
        }
        for (node, half) in &mut home.attached {
            self.free_half(*node, channel, half);
        }
        self.free_guest(channel);
        self.free_end(home.rare.paid_by);
        Some(home)
    }

    /// A half here, whose home is elsewhere.
    pub(crate) fn remove_proxy(&mut self, channel: ChannelId) -> Option<Box<Proxy>> {
        let proxy = self.proxies.remove(&channel)?;
        self.free_guest(channel);
        self.free_end(proxy.paid_by);
        Some(proxy)
    }

    /// A receiver that has come here, and what came of its buffer.
    pub(crate) fn remove_visitor(&mut self, channel: ChannelId) -> Option<Visitor> {
        let mut visitor = self.visitors.remove(&channel)?;
        let from = visitor.old_home();
        self.free_end(visitor.paid_by.take());
        let buffered: Vec<(Contact, Charge)> = visitor.buffered.drain().collect();
        for (from, charge) in buffered {
            self.give_back_to(from, channel, charge);
        }
        self.consider(from, channel);
        Some(visitor)
    }

    /// A half is not attached any more, or its home is not here: what was kept of its offers is not, and what it announces will not be.
    pub(crate) fn free_half(&mut self, node: NodeId, channel: ChannelId, half: &mut Attached) {
        let place = std::mem::take(&mut half.place);
        self.give_back(node, channel, place);
        self.free_offers(node, channel, half);
    }

    /// The offers of a half stand no more.
    pub(crate) fn free_offers(&mut self, node: NodeId, channel: ChannelId, half: &mut Attached) {
        let charges: Vec<Charge> = half.charges.drain().collect();
        for charge in charges {
            self.give_back(node, channel, charge);
        }
        self.consider(node, channel);
    }

    /// Whether values that have been admitted have not moved for the grace period, while other things came: a node of which nothing comes is [silent](crate::Closed::Silent).
    pub(super) fn has_stalled(&self, node: NodeId) -> bool {
        let inbox = self.connections.get(node).map(|connection| &connection.inbox);
        inbox.is_some_and(|inbox| inbox.account.awaits_values() && inbox.stalled >= self.config.grace)
    }
}
