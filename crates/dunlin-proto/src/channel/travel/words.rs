//! The frames that nodes exchange about travelling ends, and what follows when a node is lost.

use super::state::{Gift, Stage, Waits, Whereabouts, forget_giver, wait_for_word};
use crate::channel::{Channels, HomeHears, Peers, ProxyHears};
use crate::id::{ChannelId, NodeId};
use crate::misbehaved::PeerMisbehaved;
use crate::planted::planted;
use crate::wire::{End, Frame, ToHome, Travel, Which};

impl Channels {
    pub(crate) fn hear_travel(
        &mut self,
        peers: &mut impl Peers,
        from: NodeId,
        channel: ChannelId,
        said: Travel,
    ) -> Result<(), PeerMisbehaved> {
        match said {
            Travel::Where(min) => self.hear_where(peers, from, channel, min),
            Travel::At { epoch, home, addresses } => {
                let Some(proxy) = self.proxies.get_mut(&channel) else { return Ok(()) };
                let is_sponsor = proxy.way.sponsor.as_ref().is_some_and(|(sponsor, _)| *sponsor == from);
                if proxy.way.state == Whereabouts::Asking && is_sponsor {
                    proxy.way.epoch = epoch;
                    proxy.home = home;
                    proxy.way.state = Whereabouts::Taking { moved: false };
                    let transfer = proxy.way.transfer;
                    if !peers.hear_of(home, from, &addresses) {
                        self.lose_proxy(peers, channel);
                        return Ok(());
                    }
                    self.say_to_home(peers, channel, ToHome::Take(transfer));
                }
            }
            Travel::Fetch(claim) => self.hear_fetch(peers, from, channel, claim),
            Travel::Settled(Which::Sender, trip) => {
                if let Some(proxy) = self.proxies.get_mut(&channel)
                    && proxy.way.state == Whereabouts::Resting
                    && forget_giver(&mut proxy.way.givers, (from, trip))
                    && proxy.way.givers.is_empty()
                    && proxy.way.is_away()
                {
                    self.settle_lent(peers, channel);
                    self.drop_way(peers, channel, &End::Lost);
                }
            }
            Travel::Settled(Which::Receiver, trip) => {
                if let Some(visitor) = self.visitors.get_mut(&channel)
                    && forget_giver(&mut visitor.givers, (from, trip))
                    && visitor.givers.is_empty()
                    && visitor.is_away()
                {
                    if let Some((to, trip)) = visitor.lent {
                        peers.say(to, Frame::Travel(channel, Travel::Settled(Which::Receiver, trip)));
                    }
                    self.remove_visitor(peers, channel);
                }
            }
            Travel::Hurry(which, trip) => self.hear_hurry(peers, (from, trip), channel, which),
            Travel::Over(Which::Sender, how) => self.hear_over(peers, from, channel, how),
            Travel::Over(Which::Receiver, how) => {
                if let Some(visitor) = self.visitors.get_mut(&channel)
                    && let Some(late) = visitor.late_answers.iter().position(|node| *node == from)
                {
                    visitor.late_answers.remove(late);
                } else if let Some(visitor) = self.visitors.get_mut(&channel)
                    && (visitor.givers.iter().any(|(giver, _)| *giver == from) || visitor.place.home == from)
                    && visitor.state.is_none()
                {
                    visitor.givers.retain(|(giver, _)| *giver != from);
                    self.fail_visitor(peers, channel, how);
                }
            }
            Travel::Lapsed(_, trip, ref how) if self.lapses_on_its_way((from, trip), how) => {}
            Travel::Lapsed(Which::Sender, trip, how) => self.sender_lapsed(peers, channel, (from, trip), how),
            Travel::Lapsed(Which::Receiver, trip, how) => {
                self.receiver_lapsed(peers, channel, (from, trip), how);
            }
        }
        Ok(())
    }

    fn hear_where(&mut self, peers: &mut impl Peers, from: NodeId, channel: ChannelId, min: u64) {
        match self.proxies.get_mut(&channel) {
            Some(proxy) if proxy.way.over.is_none() && proxy.way.state != Whereabouts::Resting => {
                match wait_for_word(&mut proxy.way.askers, from, min) {
                    Waits::Anew => {}
                    Waits::Again => peers.hears_nothing(from),
                    Waits::InVain => {
                        return peers.say(from, Frame::Travel(channel, Travel::Over(Which::Sender, End::Lost)));
                    }
                }
                self.answer_askers(peers, channel);
            }
            other => {
                let how = other.and_then(|proxy| proxy.way.over.clone()).unwrap_or(End::Lost);
                peers.say(from, Frame::Travel(channel, Travel::Over(Which::Sender, how)));
                // The question was for an earlier life of this node, or an earlier record. If this record has
                // given the end away, the asking node has it, and has lost it now; perhaps by a message whose
                // outcome is not known here yet.
                if let Some(proxy) =
                    self.proxies.get_mut(&channel).filter(|half| half.way.state == Whereabouts::Resting)
                {
                    match proxy.way.lent {
                        Some(gift) if gift.0 == from => self.sender_lapsed(peers, channel, gift, End::Lost),
                        None if proxy.way.packed.is_some() => {
                            proxy.way.early.get_or_insert_with(|| Box::new((from, End::Lost)));
                        }
                        _ => {}
                    }
                }
            }
        }
    }

    /// The channel of a sender that is not used yet is over.
    fn hear_over(&mut self, peers: &mut impl Peers, from: NodeId, channel: ChannelId, how: End) {
        if let Some(home) = self.homes.get_mut(&channel)
            && home.attached.get(&from).is_some_and(|half| !half.told)
            && how == End::Lost
        {
            // It answers for a half that had failed before this was its home.
            home.phase.ended_by_sender(&End::Lost);
            self.detach(peers, channel, from);
            peers.hears(channel, from, HomeHears::Lost(Vec::new()));
            self.forget_home_if_over(peers, channel);
            return;
        }
        let Some(proxy) = self.proxies.get_mut(&channel) else { return };
        let is_sponsor = proxy.way.sponsor.as_ref().is_some_and(|(sponsor, _)| *sponsor == from);
        let asks = proxy.way.state == Whereabouts::Asking && is_sponsor;
        let hears = proxy.way.givers.iter().any(|(giver, _)| *giver == from)
            && match proxy.way.state {
                Whereabouts::Resting | Whereabouts::Asking => true,
                // Only another home can tell whether it is the half's home.
                Whereabouts::Taking { moved } => !moved && how != End::Lost,
                Whereabouts::Known => false,
            };
        let told = matches!(proxy.way.state, Whereabouts::Taking { .. }) && proxy.home == from;
        if hears && !told && how == End::Retired && matches!(proxy.way.state, Whereabouts::Taking { .. }) {
            // A retired home admits the half that takes the sender over, and then waits for its frames. If no
            // home answers, this report stands.
            proxy.way.retired_before = true;
            return;
        }
        if asks || hears || told {
            // (The home may be at its giver's node, too, and does not answer for the giver.)
            let givers = if told { std::mem::take(&mut proxy.way.givers) } else { Vec::new() };
            proxy.way.givers.retain(|(giver, _)| *giver != from);
            for (giver, trip) in givers {
                // For an end in a message on a credit, the giver may have reported before it arrived that its
                // channel is over.
                peers.say(giver, Frame::Travel(channel, Travel::Lapsed(Which::Sender, trip, End::Gone)));
            }
            if how == End::Lost {
                return self.is_not_admitted(peers, channel);
            }
            let Some(proxy) = self.proxies.get_mut(&channel) else { return };
            proxy.backlog.clear();
            proxy.way.again.clear();
            peers.proxy_hears(channel, ProxyHears::Ended(how.clone()));
            self.end_way(peers, channel, how);
        }
    }

    pub(super) fn sender_lapsed(&mut self, peers: &mut impl Peers, channel: ChannelId, gift: Gift, how: End) {
        let another = planted!(LapseOfAnother);
        let Some(proxy) = self.proxies.get_mut(&channel) else { return };
        if proxy.way.packed == Some(gift.1) && !another {
            proxy.way.early = Some(Box::new((gift.0, how)));
            return;
        }
        if proxy.way.lent != Some(gift) && !(another && proxy.way.is_away()) {
            return;
        }
        proxy.way.packed = None;
        proxy.way.lent = None;
        if proxy.way.over.is_some() {
            self.remove_proxy(peers, channel);
            return;
        }
        peers.proxy_hears(channel, ProxyHears::Departed);
        let Some(proxy) = self.proxies.get_mut(&channel) else { return };
        if proxy.way.state == Whereabouts::Resting {
            return self.lapse_sender(peers, channel, how);
        }
        proxy.gone = true;
        proxy.way.heir_lost = how == End::Lost;
        self.offer_waiting(peers, channel);
        self.forget_proxy_if_over(peers, channel);
    }

    pub(super) fn receiver_lapsed(&mut self, peers: &mut impl Peers, channel: ChannelId, gift: Gift, how: End) {
        let another = planted!(LapseOfAnother);
        if let Some(visitor) = self.visitors.get_mut(&channel) {
            if visitor.packed == Some(gift.1) && !another {
                visitor.early = Some(Box::new((gift.0, how)));
            } else if visitor.lent == Some(gift) || (another && visitor.is_away()) {
                self.lapse_receiver(peers, channel, how);
            }
        } else if let Some(home) = self.homes.get_mut(&channel)
            && home.phase.stage == Stage::Here
        {
            if home.phase.packed == Some(gift.1) && !another {
                home.phase.early = Some(Box::new((gift.0, how)));
                return;
            }
            if home.phase.lent != Some(gift) && !(another && home.phase.is_away()) {
                return;
            }
            home.phase.lent = None;
            home.phase.packed = None;
            peers.hears(channel, gift.0, HomeHears::Lapsed(how));
            self.forget_home_if_over(peers, channel);
        }
    }

    /// A node is lost: settles ends on their way to it, or from it.
    pub(crate) fn settle_travel(&mut self, peers: &mut impl Peers, node: NodeId) {
        for channel in self.proxies.of(node) {
            let Some(proxy) = self.proxies.get_mut(&channel) else { continue };
            proxy.way.askers.retain(|(asker, _)| *asker != node);
            proxy.way.givers.retain(|(giver, _)| *giver != node);
            if let Some(gift) = proxy.way.lent
                && gift.0 == node
            {
                self.sender_lapsed(peers, channel, gift, End::Lost);
            }
            self.forget_passed_on(peers, channel);
        }
        for channel in self.visitors.of(node) {
            let Some(visitor) = self.visitors.get_mut(&channel) else { continue };
            if visitor.takers.iter().any(|(taker, _)| *taker == node) {
                visitor.takers.retain(|(taker, _)| *taker != node);
                visitor.lost.insert(node);
            }
            visitor.givers.retain(|(giver, _)| *giver != node);
            if let Some(state) = &mut visitor.state
                && state.sender.as_ref().is_some_and(|(sender, _)| *sender == node)
            {
                state.sender = None;
                state.ended.get_or_insert(End::Lost);
                visitor.lost_late = (visitor.arrived && !planted!(LateLossUntold)).then_some(node);
            }
            visitor.late_answers.retain(|other| *other != node);
            if visitor.lent.is_some_and(|(to, _)| to == node) {
                self.lapse_receiver(peers, channel, End::Lost);
            } else if visitor.fetching && !visitor.arrived && visitor.place.home == node {
                self.fail_visitor(peers, channel, End::Lost);
            }
            self.forget_passed_on(peers, channel);
        }
        for channel in self.homes.of(node) {
            let Some(home) = self.homes.get_mut(&channel) else { continue };
            match (home.phase.stage, home.phase.lent) {
                (Stage::Here, Some(gift)) if gift.0 == node => {
                    self.receiver_lapsed(peers, channel, gift, End::Lost);
                }
                (Stage::Asked(to), _) if to == node => {
                    home.phase.stage = Stage::Here;
                    home.phase.lent = None;
                    home.phase.packed = None;
                    peers.hears(channel, node, HomeHears::Lapsed(End::Lost));
                    self.forget_home_if_over(peers, channel);
                }
                (Stage::Leaving(to) | Stage::Emptying(to), _) if to == node => {
                    self.remove_home(peers, channel);
                    peers.hears(channel, node, HomeHears::Failed(End::Lost));
                }
                _ => {}
            }
        }
    }
}
