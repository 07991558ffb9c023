//! An end in a value that passes through this node: it arrived in an offer, and leaves in another one, before
//! any process has received it.
//!
//! The fields that came with the end are forwarded unchanged, since they are the same for every taker. Only
//! its message is another one, with a trip of this node. When that has been taken, this node has at once
//! taken the end and given it away, as if it had received both messages. An earlier report about the end
//! ([`Travel::Lapsed`]) is kept until then. If the second message is not taken, or its outcome is unknown,
//! nothing has happened here: the giver has the end, or reports that it has.
//!
//! Only one other node may be between two halves of a channel whose end has never left: such an end is
//! encoded for that node alone. So the giver is [asked](crate::wire::FromHome::Onward) to encode it as one
//! that has left before ([`Machine::pair`]).

use super::state::{Arrival, Gift, ReceiverPlace, SenderPlace, Stage, Trip, Whereabouts};
use crate::channel::{Channels, Peers};
use crate::id::{ChannelId, Contact, NodeId};
use crate::wire::{End, Frame, FromHome, Travel, Which};

/// Whether an end that is here, or has left from here, arrived after it had passed through this node in
/// message `trip`: it was not this node's before.
fn is_later(packed: Option<Trip>, lent: Option<Gift>, trip: Trip) -> bool {
    packed.or(lent.map(|(_, trip)| trip)).is_none_or(|later| later > trip)
}

impl Channels {
    pub(crate) fn unpair(&mut self, peers: &mut impl Peers, channel: ChannelId) {
        let me = peers.here();
        self.drop_way(peers, channel, &End::Lost);
        let Some(mut home) = self.remove_home(peers, channel) else { return };
        if let Stage::Asked(to) | Stage::Leaving(to) | Stage::Emptying(to) = home.phase.stage {
            peers.say(to, Frame::Travel(channel, Travel::Over(Which::Receiver, End::Lost)));
        }
        home.attached.remove(&me);
        for (node, half) in home.attached {
            if half.told {
                peers.tell(node, channel, FromHome::Ended(End::Lost));
            } else {
                peers.say(node, Frame::Travel(channel, Travel::Over(Which::Sender, End::Lost)));
            }
        }
    }

    pub(crate) fn passes(&mut self) -> Trip {
        let trip = self.next_trip();
        self.passing.insert(trip, None);
        trip
    }

    pub(crate) fn end_stays(&mut self, trip: Trip) {
        self.passing.remove(&trip);
    }

    pub(crate) fn end_taken(
        &mut self,
        peers: &mut impl Peers,
        channel: ChannelId,
        which: Which,
        trip: Trip,
        to: NodeId,
    ) {
        self.passing.remove(&trip);
        peers.say(to, Frame::Travel(channel, Travel::Settled(which, trip)));
    }

    pub(crate) fn sender_passed(
        &mut self,
        peers: &mut impl Peers,
        channel: ChannelId,
        place: SenderPlace,
        giver: Contact,
        (taker, trip): (Contact, Trip),
    ) {
        let early = self.passing.remove(&trip).flatten();
        let silent = peers.is_silent(giver);
        if let Some(proxy) = self.proxies.get_mut(&channel)
            && place.transfer <= proxy.way.transfer
            && is_later(proxy.way.packed, proxy.way.lent, trip)
        {
            // It has arrived from there meanwhile: its giver is one of those who answer for it, unless it is
            // in use.
            if proxy.way.state == Whereabouts::Resting && !silent {
                proxy.way.givers.push((giver.node, place.trip));
            }
            return peers.answer(taker, channel, Travel::Settled(Which::Sender, trip));
        }
        if self.sender_arrives(peers, channel, place, giver) != Arrival::Stale
            && let Some(proxy) = self.proxies.get_mut(&channel)
        {
            proxy.way.packed = Some(trip);
            proxy.way.early = early;
        }
        self.sender_left(peers, channel, trip, taker);
    }

    pub(crate) fn receiver_passed(
        &mut self,
        peers: &mut impl Peers,
        channel: ChannelId,
        place: ReceiverPlace,
        giver: Contact,
        (taker, trip): (Contact, Trip),
    ) {
        let early = self.passing.remove(&trip).flatten();
        let (is_mine, silent) = (peers.is_me(place.home), peers.is_silent(giver));
        if is_mine
            && let Some(home) = self.homes.get_mut(&channel)
            && home.phase.claim == place.claim
            && home.phase.stage == Stage::Here
            && home.phase.is_away()
        {
            // It left from here, and travels on with the fields of that time: that claim still counts.
            home.phase.packed = Some(trip);
            home.phase.early = early;
            if let Some((before, trip)) = home.phase.lent.take() {
                peers.say(before, Frame::Travel(channel, Travel::Settled(Which::Receiver, trip)));
            }
        } else if let Some(visitor) = self.visitors.get_mut(&channel)
            && visitor.place.home == place.home
            && place.claim <= visitor.place.claim
            && is_later(visitor.packed, visitor.lent, trip)
        {
            // As a sender.
            if !visitor.fetching && !silent {
                visitor.givers.push((giver.node, place.trip));
            }
        } else if self.receiver_arrives(peers, channel, place, giver) != Arrival::Stale
            && let Some(visitor) = self.visitors.get_mut(&channel)
        {
            visitor.packed = Some(trip);
            visitor.early = early;
        }
        self.receiver_left(peers, channel, trip, taker);
    }

    /// The taker of the end reports it gone. `true`: the end is in a message that passes through this node,
    /// and waits for the outcome of that.
    pub(super) fn lapses_on_its_way(&mut self, (from, trip): Gift, how: &End) -> bool {
        let Some(early) = self.passing.get_mut(&trip) else { return false };
        *early = Some(Box::new((from, how.clone())));
        true
    }
}
