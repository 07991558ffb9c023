//! What channels keep for other nodes: from the admission of a value until it has left.

use super::peers::Place;
use super::{Attached, Channels, Home, HomeHears, Peers, Proxy, Visitor};
use crate::account::{Announced, Charge, may_stand};
use crate::id::{ChannelId, Contact, NodeId};
use crate::planted::planted;
use crate::wire::{End, Head, Kind};

impl Channels {
    /// Whether a value that begins on this channel will be used, and whether it will then be kept here.
    pub(crate) fn expects(
        &self,
        peers: &impl Peers,
        from: NodeId,
        channel: ChannelId,
        head: Head,
        total: u64,
    ) -> (bool, bool) {
        if self.visitors.contains_key(&channel) {
            return (true, total <= peers.config().value_max as u64);
        }
        let Some(home) = self.homes.get(&channel) else { return (false, false) };
        let allowed = home.attached.contains_key(&from) && total <= home.terms.value_max;
        let wanted = allowed && (home.rare.ended.is_none() || head == Head::Sent);
        let kept = matches!(home.rare.ended, None | Some(End::Retired)) && !home.phase.has_said_so();
        (wanted, wanted && kept)
    }

    pub(crate) fn drained(&mut self, peers: &mut impl Peers, channel: ChannelId, values: u64, bytes: u64) {
        let Some(home) = self.homes.get_mut(&channel) else { return };
        for (from, charge) in home.buffered.take(values, bytes) {
            if planted!(DrainedKept) {
                continue;
            }
            self.give_back_to(peers, from, channel, charge);
        }
    }

    pub(crate) fn awaited(&mut self, peers: &mut impl Peers, channel: ChannelId) {
        let nodes: Vec<NodeId> = match (self.homes.get(&channel), self.visitors.get(&channel)) {
            (Some(home), _) => home.attached.keys().copied().collect(),
            (None, visitor) => visitor.iter().map(|visitor| visitor.old_home()).collect(),
        };
        for node in nodes {
            peers.awaited(node, channel);
            self.consider(peers, node, channel);
        }
    }

    pub(crate) fn keep_guest(
        &mut self,
        peers: &mut impl Peers,
        node: NodeId,
        channels: impl IntoIterator<Item = ChannelId>,
    ) -> Result<(), u64> {
        if peers.is_me(node) {
            return Ok(());
        }
        let from = peers.contact(node);
        let mut kept = Vec::new();
        for channel in channels {
            let Some(charge) = peers.attach(node) else {
                self.forget_guest(peers, kept);
                return Err(peers.config().held_max);
            };
            self.guests.insert(channel, (from, charge));
            kept.push(channel);
        }
        Ok(())
    }

    pub(crate) fn forget_guest(&mut self, peers: &mut impl Peers, channels: impl IntoIterator<Item = ChannelId>) {
        channels.into_iter().for_each(|channel| self.free_guest(peers, channel));
    }

    /// Releases the charge for a channel that has ended here, if it is a guest's.
    fn free_guest(&mut self, peers: &mut impl Peers, channel: ChannelId) {
        if !self.guests.is_empty()
            && let Some((from, charge)) = self.guests.remove(&channel)
        {
            self.give_back_to(peers, from, channel, charge);
        }
    }

    /// Releases the charge for a value that is no longer kept.
    pub(crate) fn give_back(&mut self, peers: &mut impl Peers, from: NodeId, channel: ChannelId, charge: Charge) {
        if charge == Charge::NONE {
            return;
        }
        let value_max = peers.config().value_max as u64;
        if peers.give_back(from, channel, charge, |announced| self.place_for(value_max, from, channel, announced)) {
            peers.hears(channel, from, HomeHears::Announced);
        }
    }

    /// The same, for a value that arrived in that life of the connection.
    fn give_back_to(&mut self, peers: &mut impl Peers, from: Contact, channel: ChannelId, charge: Charge) {
        if peers.contact(from.node) == from {
            self.give_back(peers, from.node, channel, charge);
        }
    }

    /// Admits what is announced on this channel, if the channel and the node have room for it.
    pub(crate) fn consider(&mut self, peers: &mut impl Peers, node: NodeId, channel: ChannelId) {
        let value_max = peers.config().value_max as u64;
        if peers.consider(node, channel, |announced| self.place_for(value_max, node, channel, announced)) {
            peers.hears(channel, node, HomeHears::Announced);
        }
    }

    /// Whether the channel has room for what that node has announced.
    fn place_for(&self, value_max: u64, node: NodeId, channel: ChannelId, announced: Announced) -> Place {
        let Announced { kind, bytes, .. } = announced;
        if bytes > value_max {
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

    /// Removes a home, with everything that it keeps for others.
    pub(crate) fn remove_home(&mut self, peers: &mut impl Peers, channel: ChannelId) -> Option<Box<Home>> {
        let mut home = self.homes.remove(&channel)?;
        let buffered: Vec<(Contact, Charge)> = home.buffered.drain().collect();
        for (from, charge) in buffered {
            self.give_back_to(peers, from, channel, charge);
        }
        for (node, half) in home.attached.iter_mut() {
            self.free_half(peers, *node, channel, half);
        }
        self.free_guest(peers, channel);
        peers.free_end(home.rare.paid_by);
        Some(home)
    }

    /// Removes a half whose home is elsewhere.
    pub(crate) fn remove_proxy(&mut self, peers: &mut impl Peers, channel: ChannelId) -> Option<Box<Proxy>> {
        let proxy = self.proxies.remove(&channel)?;
        self.free_guest(peers, channel);
        peers.free_end(proxy.paid_by);
        Some(proxy)
    }

    /// Removes a receiver that has arrived here, with what has arrived of its buffer.
    pub(crate) fn remove_visitor(&mut self, peers: &mut impl Peers, channel: ChannelId) -> Option<Visitor> {
        let mut visitor = self.visitors.remove(&channel)?;
        let from = visitor.old_home();
        peers.free_end(visitor.paid_by.take());
        let buffered: Vec<(Contact, Charge)> = visitor.buffered.drain().collect();
        for (from, charge) in buffered {
            self.give_back_to(peers, from, channel, charge);
        }
        self.consider(peers, from, channel);
        Some(visitor)
    }

    /// A half is no longer attached, or its home is not here: releases what was kept of its offers, and drops
    /// its announcements.
    pub(crate) fn free_half(&mut self, peers: &mut impl Peers, node: NodeId, channel: ChannelId, half: &mut Attached) {
        let place = std::mem::take(&mut half.place);
        self.give_back(peers, node, channel, place);
        self.free_offers(peers, node, channel, half);
    }

    /// Releases what was kept of a half's offers.
    pub(crate) fn free_offers(
        &mut self,
        peers: &mut impl Peers,
        node: NodeId,
        channel: ChannelId,
        half: &mut Attached,
    ) {
        let charges: Vec<Charge> = half.charges.drain().collect();
        for charge in charges {
            self.give_back(peers, node, channel, charge);
        }
        self.consider(peers, node, channel);
    }
}
