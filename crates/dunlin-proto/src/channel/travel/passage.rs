//! What a machine knows of ends that travel, for outside observers.

use super::state::{Gift, Stage, Whereabouts};
use crate::channel::{Channels, Peers};
use crate::id::{ChannelId, Life, NodeId};
use crate::wire::{Frame, Travel, Which};

/// The state of a travelling end with respect to another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Passage {
    /// It is here and has not been used; that node gave it.
    Resting,
    /// It has been given to that node, and is not known to be in use.
    Lent,
    /// A sender that has reported its use to its home there, and has no answer.
    Taking,
    /// A sender that has asked its sponsor there where the home is.
    Asking,
    /// A sender that has asked its home there whether everything has arrived.
    Draining,
    /// A home that moves to that node.
    Leaving,
    /// A receiver that is used here, whose home there has not answered.
    Fetching,
    /// A receiver that is used here, and whose values are on their way from there.
    Filling,
}

/// A machine's state of a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stand {
    /// Its home, with this many sending halves.
    pub home: Option<usize>,
    /// A sending half, or the record of one that has been forwarded.
    pub half: bool,
    /// A sending half that its home has admitted.
    pub known: bool,
    /// The number of the half's last move.
    pub transfer: u64,
    /// A receiver that arrived in a message and is not home, or the record of one that has been forwarded.
    pub visitor: bool,
}

/// A travelling end that this node has to answer for until it is in use elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unsettled {
    /// Its channel.
    pub channel: ChannelId,
    /// Which end of it.
    pub which: Which,
    /// The node that took it from a message of this node, or has it now. `None`: the message has not been
    /// taken.
    pub holder: Option<Life>,
}

impl Channels {
    /// The ends that this node has put into messages and answers for, and the node that has each.
    pub(crate) fn unsettled(&self) -> impl Iterator<Item = (ChannelId, Which, Option<NodeId>)> {
        let senders = self.proxies.survey().filter(|(_, proxy)| proxy.way.is_away() && proxy.way.over.is_none());
        let senders = senders.map(|(channel, proxy)| (channel, Which::Sender, proxy.way.lent.map(|(to, _)| to)));
        let homes = self.homes.survey().filter(|(_, home)| home.phase.is_away() && home.rare.ended.is_none());
        let homes = homes.map(|(channel, home)| match home.phase.stage {
            Stage::Here => (channel, Which::Receiver, home.phase.lent.map(|(to, _)| to)),
            Stage::Asked(to) | Stage::Leaving(to) | Stage::Emptying(to) => (channel, Which::Receiver, Some(to)),
        });
        let visitors = self.visitors.survey().filter(|(_, visitor)| visitor.is_away() && visitor.over.is_none());
        let visitors = visitors.map(|(channel, visitor)| (channel, Which::Receiver, visitor.lent.map(|(to, _)| to)));
        senders.chain(homes).chain(visitors).map(|(channel, which, holder)| (*channel, which, holder))
    }

    pub(crate) fn hurry(&mut self, peers: &mut impl Peers) {
        self.hurries = true;
        let lent: Vec<(ChannelId, Which)> = self.unsettled().map(|(channel, which, _)| (channel, which)).collect();
        for (channel, which) in lent {
            self.hurry_on(peers, channel, which);
        }
    }

    pub(crate) fn use_resting(&mut self, peers: &mut impl Peers, channel: ChannelId) {
        if self.visitors.get(&channel).is_some_and(|visitor| !visitor.is_away()) {
            self.use_receiver(peers, channel);
        }
    }

    /// The node that gave this end to this node is leaving.
    pub(super) fn hear_hurry(&mut self, peers: &mut impl Peers, giver: Gift, channel: ChannelId, which: Which) {
        match which {
            Which::Sender => {
                if let Some(proxy) = self.proxies.get_mut(&channel) {
                    proxy.way.hurried |= proxy.way.state == Whereabouts::Resting && proxy.way.givers.contains(&giver);
                }
            }
            Which::Receiver => {
                if let Some(visitor) = self.visitors.get_mut(&channel) {
                    visitor.hurried |= !visitor.fetching && visitor.givers.contains(&giver);
                }
            }
        }
        self.hurry_on(peers, channel, which);
    }

    /// If an end is to be hurried: uses it, if it is here, or notifies the node that has it. (A resting end
    /// that has just come back may be dropped at once, unused.)
    pub(super) fn hurry_on(&mut self, peers: &mut impl Peers, channel: ChannelId, which: Which) {
        let all = self.hurries;
        let (hurried, packed, lent) = match which {
            Which::Sender => match self.proxies.get(&channel) {
                Some(proxy) => (proxy.way.hurried, proxy.way.packed, proxy.way.lent),
                None => return,
            },
            Which::Receiver => match (self.visitors.get(&channel), self.homes.get(&channel)) {
                (Some(visitor), _) => (visitor.hurried, visitor.packed, visitor.lent),
                (None, Some(home)) if home.phase.stage == Stage::Here => (false, home.phase.packed, home.phase.lent),
                (None, _) => return,
            },
        };
        match lent {
            Some((to, trip)) if hurried || all => peers.say(to, Frame::Travel(channel, Travel::Hurry(which, trip))),
            // Not before the outcome of its message is known.
            _ if !hurried || packed.is_some() => {}
            _ if which == Which::Sender => self.use_sender(peers, channel),
            _ => self.use_receiver(peers, channel),
        }
    }

    pub(crate) fn is_guest(&self, channel: ChannelId, which: Which) -> bool {
        match which {
            Which::Sender => self.proxies.get(&channel).is_some_and(|half| half.way.state == Whereabouts::Resting),
            Which::Receiver => self.visitors.get(&channel).is_some_and(|visitor| !visitor.fetching),
        }
    }

    pub(crate) fn stand(&self, channel: ChannelId) -> Stand {
        let half = self.proxies.get(&channel);
        Stand {
            home: self.homes.get(&channel).map(|home| home.attached.len()),
            half: half.is_some(),
            known: half.is_some_and(|half| half.way.state == Whereabouts::Known && !half.way.is_away()),
            transfer: half.map_or(0, |half| half.way.transfer),
            visitor: self.visitors.contains_key(&channel),
        }
    }

    pub(crate) fn passages(&self, channel: ChannelId) -> Vec<(Passage, NodeId)> {
        let mut found = Vec::new();
        if let Some(proxy) = self.proxies.get(&channel) {
            let way = &proxy.way;
            let sponsor = way.sponsor.as_ref().map(|(sponsor, _)| *sponsor);
            match way.state {
                Whereabouts::Known if way.draining => found.push((Passage::Draining, proxy.home)),
                Whereabouts::Known => {}
                Whereabouts::Resting => found.extend(way.givers.iter().map(|(giver, _)| (Passage::Resting, *giver))),
                Whereabouts::Taking { .. } => found.push((Passage::Taking, proxy.home)),
                Whereabouts::Asking => found.extend(sponsor.map(|sponsor| (Passage::Asking, sponsor))),
            }
            found.extend(way.lent.map(|(to, _)| (Passage::Lent, to)));
        }
        if let Some(home) = self.homes.get(&channel) {
            match home.phase.stage {
                Stage::Here => found.extend(home.phase.lent.map(|(to, _)| (Passage::Lent, to))),
                Stage::Asked(to) | Stage::Leaving(to) | Stage::Emptying(to) => found.push((Passage::Leaving, to)),
            }
        }
        if let Some(visitor) = self.visitors.get(&channel) {
            if visitor.state.is_some() {
                found.push((Passage::Filling, visitor.place.home));
            } else if visitor.fetching {
                found.push((Passage::Fetching, visitor.place.home));
            } else {
                found.extend(visitor.givers.iter().map(|(giver, _)| (Passage::Resting, *giver)));
            }
            found.extend(visitor.lent.map(|(to, _)| (Passage::Lent, to)));
        }
        found
    }
}
