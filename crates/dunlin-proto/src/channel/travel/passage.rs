//! What a machine knows of ends that are on their way, for who watches it.

use super::{Stage, Whereabouts};
use crate::id::{ChannelId, NodeId};
use crate::machine::Machine;

/// How an end that travels stands with another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Passage {
    /// It is here and has not been used; that node gave it.
    Resting,
    /// It has been given to that node, and is not known to be in use.
    Lent,
    /// A sender that has told its home there that it is used, and has no answer.
    Taking,
    /// A sender that has asked its sponsor there where the home is.
    Asking,
    /// A sender that has asked its home there whether all has arrived.
    Draining,
    /// A home that moves to that node.
    Leaving,
    /// A receiver that is used here, whose home there has not answered.
    Fetching,
    /// A receiver that is used here, and whose values are on their way from there.
    Filling,
}

/// What a machine has of a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stand {
    /// Its home, with so many sending halves.
    pub home: Option<usize>,
    /// A sending half, or the record of one that has been passed on.
    pub half: bool,
    /// A sending half that is known to its home.
    pub known: bool,
    /// The number of the half's last move.
    pub transfer: u64,
    /// A receiver that came in a message and is not home, or the record of one that has been passed on.
    pub visitor: bool,
}

impl Machine {
    /// What is here of this channel.
    pub fn stand(&self, channel: ChannelId) -> Stand {
        let half = self.proxies.get(&channel);
        Stand {
            home: self.homes.get(&channel).map(|home| home.attached.len()),
            half: half.is_some(),
            known: half.is_some_and(|half| half.way.state == Whereabouts::Known && !half.way.is_away()),
            transfer: half.map_or(0, |half| half.way.transfer),
            visitor: self.visitors.contains_key(&channel),
        }
    }

    /// How the ends of this channel stand with other nodes on their way.
    pub fn passages(&self, channel: ChannelId) -> Vec<(Passage, NodeId)> {
        let mut found = Vec::new();
        if let Some(proxy) = self.proxies.get(&channel) {
            let way = &proxy.way;
            let sponsor = way.sponsor.as_ref().map(|(sponsor, _)| *sponsor);
            match way.state {
                Whereabouts::Known if way.draining => found.push((Passage::Draining, proxy.home)),
                Whereabouts::Known => {}
                Whereabouts::Resting => found.extend(way.givers.iter().map(|giver| (Passage::Resting, *giver))),
                Whereabouts::Taking { .. } => found.push((Passage::Taking, proxy.home)),
                Whereabouts::Asking => found.extend(sponsor.map(|sponsor| (Passage::Asking, sponsor))),
            }
            found.extend(way.lent.map(|to| (Passage::Lent, to)));
        }
        if let Some(home) = self.homes.get(&channel) {
            match home.phase.stage {
                Stage::Here => found.extend(home.phase.lent.map(|to| (Passage::Lent, to))),
                Stage::Asked(to) | Stage::Leaving(to) | Stage::Emptying(to) => found.push((Passage::Leaving, to)),
            }
        }
        if let Some(visitor) = self.visitors.get(&channel) {
            if visitor.state.is_some() {
                found.push((Passage::Filling, visitor.place.home));
            } else if visitor.fetching {
                found.push((Passage::Fetching, visitor.place.home));
            } else {
                found.extend(visitor.givers.iter().map(|giver| (Passage::Resting, *giver)));
            }
            found.extend(visitor.lent.map(|to| (Passage::Lent, to)));
        }
        found
    }
}
