//! Ends that travel: `docs/mobility.md` in code. P, D, A and Z are the nodes of that text: a sender goes from P to D, a receiver from A to Z.
//!
//! An end that is only passed on leaves no trace but a record at each node on its way, which says who gave it and to whom it was given. The first use makes
//! it known: a sender's by [`ToHome::Take`], a receiver's by [`Travel::Fetch`].

mod passage;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::{Attached, Home, HomeHears, Proxy, ProxyHears, Standing, Waiting};
use crate::id::{ChannelId, ChoiceId, NodeId, Ticket};
use crate::machine::Machine;
use crate::planted::planted;
use crate::time::Time;
use crate::wire::{Declaration, End, Expected, Face, Frame, FromHome, Head, Moved, Terms, ToHome, Travel, Which};

pub use passage::{Passage, Stand};

/// Which of the messages that an end left a node in; the machine's word for it.
pub type Trip = u64;

/// Whether an end can be put into a message now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leaving<T> {
    /// This goes with it.
    Ready(T, Trip),
    /// What it was used for is not settled: ask again when the channel has heard something.
    Wait,
    /// Its channel is over.
    Over(End),
}

/// What a message says of a sender in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SenderPlace {
    /// Counts the sender's moves that its home hears of, with the next one.
    pub transfer: u64,
    /// The home's epoch.
    pub epoch: u64,
    /// The home, as far as the sponsor knows.
    pub home: NodeId,
    /// Where it can be dialled.
    pub addresses: Vec<String>,
    /// The node that speaks for the sender until it is used again.
    pub sponsor: NodeId,
    /// Where that can be dialled.
    pub sponsor_addresses: Vec<String>,
}

/// What a message says of a receiver in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiverPlace {
    /// Which of the home's messages with it that is.
    pub claim: u64,
    /// The home's epoch.
    pub epoch: u64,
    /// The home.
    pub home: NodeId,
    /// Where it can be dialled.
    pub addresses: Vec<String>,
}

/// An end has come in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It is here, and has not been used.
    Guest,
    /// It had left from here, and nobody has used it: it is as it was.
    Returned,
    /// It is lost: after an unknown message there were two of it, and the other one is here, or was here later. Or its channel was over here before it came back.
    Stale,
}

/// Where a sending half stands with its home.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Whereabouts {
    /// They know each other.
    #[default]
    Known,
    /// It came in a message, and has not been used.
    Resting,
    /// It has said `Take`. `moved`: an earlier home knew it, and has named this one.
    Taking { moved: bool },
    /// It has asked its sponsor where the home is.
    Asking,
}

/// Whoever took the end has said that it is gone, and that the message was taken is not known here yet. It may be of an earlier message.
type EarlyLapse = Option<Box<(NodeId, End)>>;

/// How the end that has left for this node is gone, if that is known already.
fn take_early(early: &mut EarlyLapse, to: NodeId) -> Option<End> {
    early.take().filter(|lapse| lapse.0 == to).map(|lapse| lapse.1)
}

/// Where a sender came from, and where it goes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Way {
    pub(crate) state: Whereabouts,
    /// The home's epoch, and the number of this half.
    pub(crate) epoch: u64,
    pub(crate) transfer: u64,
    /// Who speaks for it until its home knows it.
    sponsor: Option<(NodeId, Vec<String>)>,
    /// Who gave it, and has to hear if it is dropped or lost before its home knows it. An end that has come back by another way has several: all but
    /// one will say that theirs is settled.
    givers: Vec<NodeId>,
    /// It is in this message...
    packed: Option<Trip>,
    /// ... or with this node, which took it from one, or further on.
    lent: Option<NodeId>,
    early: EarlyLapse,
    /// Another node may have it as well: whoever is first at the home has it.
    doubtful: bool,
    /// Nodes that wait to hear where the home is, and for which epoch.
    askers: Vec<(NodeId, u64)>,
    /// The [places](place_in_line) of offers that its user has yet to make again.
    pub(crate) again: BTreeSet<u64>,
    /// Who offers what no value has been said of.
    pub(crate) choices: BTreeMap<Ticket, ChoiceId>,
    /// Offers that have been asked back.
    pub(crate) withdrawing: BTreeSet<Ticket>,
    /// Values were sent on credits since the home last said that all has arrived, and that it has been asked.
    pub(crate) undrained: bool,
    draining: bool,
    /// What is to be said behind the offers, when the home is known again.
    pub(crate) late_end: Option<End>,
    /// It is gone because whoever had it is lost.
    pub(crate) heir_lost: bool,
    /// The channel is over; the record waits for the message with the end.
    pub(crate) over: Option<End>,
}

/// Of two offers the one with the smaller place is the older one: tickets count up from zero, but for those from 2^63 on, which are of values
/// that were there before all offers. Its own inverse.
pub(super) fn place_in_line(ticket: Ticket) -> u64 {
    ticket ^ (1 << 63)
}

impl Way {
    /// Whether the end is in a message, or with somebody who took it from one.
    pub(crate) fn is_away(&self) -> bool {
        self.packed.is_some() || self.lent.is_some()
    }
}

impl Proxy {
    /// Whether it may say something to its home now.
    pub(crate) fn may_speak(&self) -> bool {
        self.way.state == Whereabouts::Known && self.way.again.is_empty()
    }

    /// Something that is offered again comes before what was offered later.
    pub(crate) fn wait_in_place(&mut self, ticket: Ticket, what: Waiting) {
        let later = |(other, _): &(Ticket, Waiting)| place_in_line(*other) > place_in_line(ticket);
        let at = self.backlog.iter().position(later).unwrap_or(self.backlog.len());
        self.backlog.insert(at, (ticket, what));
    }

    /// How many offers are not settled.
    pub(crate) fn standing(&self) -> usize {
        self.open.len() + self.backlog.len() + self.way.again.len()
    }

    /// Whether it is lost with this node.
    pub(crate) fn needs(&self, node: NodeId) -> bool {
        match self.way.state {
            _ if self.way.over.is_some() => false,
            Whereabouts::Known | Whereabouts::Taking { .. } => self.home == node,
            Whereabouts::Asking => self.way.sponsor.as_ref().is_some_and(|(sponsor, _)| *sponsor == node),
            Whereabouts::Resting => false,
        }
    }
}

/// Whether a home's receiver is there.
#[derive(Clone, Debug, Default)]
pub(crate) struct HomePhase {
    /// Which message with the receiver counts.
    claim: u64,
    /// It is in this message...
    packed: Option<Trip>,
    /// ... or with this node, which took it from one, or further on.
    lent: Option<NodeId>,
    early: EarlyLapse,
    /// How the sender has ended the channel.
    ended: Option<End>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Here,
    /// It is used at that node; the driver has been told.
    Asked(NodeId),
    /// The sender has been told.
    Leaving(NodeId),
    /// The sender is quiet; the driver has yet to give the values.
    Emptying(NodeId),
}

impl HomePhase {
    /// Whether the sender has been told that the receiver is elsewhere.
    pub(crate) fn has_said_so(&self) -> bool {
        self.moves_to().is_some()
    }

    /// Where the sender has been told that it is.
    pub(crate) fn moves_to(&self) -> Option<NodeId> {
        match self.stage {
            Stage::Leaving(to) | Stage::Emptying(to) => Some(to),
            Stage::Here | Stage::Asked(_) => None,
        }
    }

    /// Whether the receiver is in a message, or with somebody who took it from one.
    pub(crate) fn is_away(&self) -> bool {
        self.packed.is_some() || self.lent.is_some() || self.stage != Stage::Here
    }

    /// How the sender has ended the channel. Poison counts after all else.
    pub(crate) fn ended_by_sender(&mut self, how: &End) {
        if !matches!(self.ended, Some(End::Poisoned(_))) && (self.ended.is_none() || matches!(how, End::Poisoned(_))) {
            self.ended = Some(how.clone());
        }
    }
}

/// A receiver that came in a message, and is not home yet.
#[derive(Clone, Debug)]
pub(crate) struct Visitor {
    place: ReceiverPlace,
    /// As a sender's.
    givers: Vec<NodeId>,
    packed: Option<Trip>,
    lent: Option<NodeId>,
    early: EarlyLapse,
    doubtful: bool,
    /// It is used.
    fetching: bool,
    state: Option<Moved>,
    /// So many values are still to come; the driver has been told of all.
    missing: u64,
    arrived: bool,
    /// Senders that have been told of this home before it is one.
    takers: Vec<(NodeId, u64)>,
    /// Those of them that are lost.
    lost: BTreeSet<NodeId>,
    /// The sender's node, if it was lost after the driver had been told that all is here.
    lost_late: Option<NodeId>,
    /// Nodes that have yet to answer the fetches of a receiver that this one has replaced: too late.
    late_answers: Vec<NodeId>,
    over: Option<End>,
}

impl Visitor {
    fn is_away(&self) -> bool {
        self.packed.is_some() || self.lent.is_some()
    }
}

/// Forgets one of the givers. `false`: that is not one.
fn forget_giver(givers: &mut Vec<NodeId>, node: NodeId) -> bool {
    let found = givers.iter().position(|giver| *giver == node);
    found.map(|at| givers.remove(at)).is_some()
}

/// Until the driver has told the terms.
const NO_TERMS: Terms = Terms { window: 1, credits: 0, value_max: 0 };

/// What is there to be said of an end that came in a message.
fn declaration() -> Declaration {
    Declaration { face: Face::Receiver, shared: false, expects: Expected::Unknown, schema: Bytes::new() }
}

// A sender that travels.

impl Machine {
    /// Both ends of this channel are here, and one of them may leave: from now on the machine knows of it.
    pub fn pair(&mut self, channel: ChannelId, terms: Terms) {
        let me = self.me().node;
        if self.knows(channel) {
            return;
        }
        let mut home = Home::new(terms, declaration(), false);
        home.attached.insert(me, Attached::new(terms.credits));
        self.homes.insert(channel, home);
        let proxy = Proxy { terms: Some(terms), credits: terms.credits.into(), ..Proxy::new(me) };
        self.proxies.insert(channel, proxy);
    }

    /// The sender of this channel is to go into a message: what that has to say. Say [`sender_left`](Self::sender_left) when the message is taken,
    /// [`sender_stays`](Self::sender_stays) if it is not, [`sender_back`](Self::sender_back) if nobody knows.
    pub fn pack_sender(&mut self, now: Time, channel: ChannelId) -> Leaving<SenderPlace> {
        let me = self.me().node;
        let trip = self.next_trip();
        let Some(proxy) = self.proxies.get_mut(&channel) else { return Leaving::Over(End::Gone) };
        if let Some(how) = &proxy.way.over {
            return Leaving::Over(how.clone());
        }
        match proxy.way.state {
            Whereabouts::Resting => {
                proxy.way.packed = Some(trip);
                proxy.way.early = None;
                let (home, epoch, transfer) = (proxy.home, proxy.way.epoch, proxy.way.transfer);
                let (sponsor, sponsor_addresses) = proxy.way.sponsor.clone().unwrap_or((me, Vec::new()));
                let addresses = self.addresses_of_any(home);
                let place = SenderPlace { transfer, epoch, home, addresses, sponsor, sponsor_addresses };
                Leaving::Ready(place, trip)
            }
            Whereabouts::Known if proxy.way.draining => Leaving::Wait,
            Whereabouts::Known
                if proxy.may_speak()
                    && proxy.standing() == 0
                    && proxy.terms.is_some()
                    && !proxy.unanswered
                    && !proxy.gone =>
            {
                if proxy.way.undrained && !planted!(DrainSkipped) {
                    proxy.way.undrained = false;
                    proxy.way.draining = true;
                    self.say_to_home(now, channel, ToHome::Drain);
                    return Leaving::Wait;
                }
                proxy.way.packed = Some(trip);
                proxy.way.early = None;
                let (home, epoch, transfer) = (proxy.home, proxy.way.epoch, proxy.way.transfer + 1);
                let (addresses, sponsor_addresses) = (self.addresses_of_any(home), self.addresses_of_any(me));
                let place = SenderPlace { transfer, epoch, home, addresses, sponsor: me, sponsor_addresses };
                Leaving::Ready(place, trip)
            }
            _ => Leaving::Wait,
        }
    }

    fn next_trip(&mut self) -> Trip {
        self.trips += 1;
        self.trips
    }

    fn addresses_of_any(&self, node: NodeId) -> Vec<String> {
        let mut addresses = if self.is_me(node) { self.addresses_here() } else { self.addresses_of(node) }.to_vec();
        addresses.truncate(crate::wire::limits::ADDRESSES);
        addresses
    }

    /// The home of the sender that is here, as far as this node knows.
    pub fn home_of(&self, channel: ChannelId) -> Option<NodeId> {
        self.proxies.get(&channel).map(|proxy| proxy.home)
    }

    /// What the home grants to the sender that is here, and how many credits are left of that. `None`: it has not said.
    pub fn terms_of(&self, channel: ChannelId) -> Option<(Terms, u32)> {
        let proxy = self.proxies.get(&channel).filter(|proxy| proxy.way.state == Whereabouts::Known)?;
        proxy.terms.map(|terms| (terms, proxy.credits as u32))
    }

    /// The message with the sender has not been taken.
    pub fn sender_stays(&mut self, channel: ChannelId, trip: Trip) {
        let Some(proxy) = self.proxies.get_mut(&channel).filter(|proxy| proxy.way.packed == Some(trip)) else { return };
        proxy.way.packed = None;
        if proxy.way.over.is_some() {
            self.proxies.remove(&channel);
        }
    }

    /// The message with the sender has been taken by that node.
    pub fn sender_left(&mut self, now: Time, channel: ChannelId, trip: Trip, to: NodeId) {
        if self.is_me(to) {
            return;
        }
        let Some(proxy) = self.proxies.get_mut(&channel).filter(|proxy| proxy.way.packed == Some(trip)) else {
            // So soon it has been used there, or further on, or is here again.
            return self.say(now, to, Frame::Travel(channel, Travel::Settled(Which::Sender)));
        };
        proxy.way.packed = None;
        proxy.way.lent = Some(to);
        let gone = take_early(&mut proxy.way.early, to);
        if planted!(LentForgotten) {
            self.proxies.remove(&channel);
            return;
        }
        if let Some(how) = proxy.way.over.clone() {
            return self.end_way(now, channel, how);
        }
        let lost = (self.has_lost(to) && !planted!(LeftToNobody)).then_some(End::Lost);
        if let Some(how) = gone.or(lost) {
            self.sender_lapsed(now, channel, to, how);
        }
        self.forget_passed_on(now, channel);
    }

    /// Whether the connection that a message came or went by is over. Who is told of that message may be told of this first.
    fn has_lost(&self, node: NodeId) -> bool {
        !self.is_me(node) && !self.connections.get(&node).is_some_and(|connection| connection.was_up)
    }

    /// A record of an end that was passed on, whose giver is lost: nobody will say when it is settled, and nobody has to hear if it is lost.
    fn forget_passed_on(&mut self, now: Time, channel: ChannelId) {
        if let Some(proxy) = self.proxies.get(&channel)
            && proxy.way.state == Whereabouts::Resting
            && proxy.way.givers.is_empty()
            && proxy.way.lent.is_some()
        {
            self.settle_lent(now, channel);
            self.drop_way(now, channel, &End::Lost);
        }
        if let Some(visitor) = self.visitors.get(&channel)
            && visitor.givers.is_empty()
            && let Some(to) = visitor.lent
        {
            self.say(now, to, Frame::Travel(channel, Travel::Settled(Which::Receiver)));
            self.visitors.remove(&channel);
        }
    }

    /// Nobody knows whether the message with the sender was taken. `true`: it is here again, unless the home says that another one has it.
    /// `false`: it was taken.
    pub fn sender_back(&mut self, now: Time, channel: ChannelId, trip: Trip) -> bool {
        let Some(proxy) = self.proxies.get_mut(&channel).filter(|proxy| proxy.way.packed == Some(trip)) else {
            return false;
        };
        proxy.way.packed = None;
        if proxy.way.over.is_some() {
            self.proxies.remove(&channel);
            return true;
        }
        proxy.way.doubtful = true;
        match proxy.way.state {
            Whereabouts::Resting => self.use_sender(now, channel),
            Whereabouts::Known => self.take_again(now, channel),
            Whereabouts::Taking { .. } | Whereabouts::Asking => {}
        }
        true
    }

    /// The home knows this half, but perhaps another one as well, which came later.
    fn take_again(&mut self, now: Time, channel: ChannelId) {
        if let Some(proxy) = self.proxies.get_mut(&channel)
            && std::mem::take(&mut proxy.way.doubtful)
        {
            proxy.way.transfer += u64::from(!planted!(TransferReused));
            proxy.way.state = Whereabouts::Taking { moved: true };
            let transfer = proxy.way.transfer;
            self.say_to_home(now, channel, ToHome::Take(transfer));
        }
    }

    /// A sender has come to this node in a message from `from`, and was taken. If another one is here that has been replaced elsewhere, that
    /// one [is lost](ProxyHears::Lost) first.
    pub fn sender_arrives(&mut self, now: Time, channel: ChannelId, place: SenderPlace, from: NodeId) -> Arrival {
        // Whether it will not say when the end is in use.
        let silent = self.has_lost(from) || self.is_me(from);
        if let Some(proxy) = self.proxies.get_mut(&channel) {
            let next = if proxy.way.state == Whereabouts::Resting { 0 } else { 1 };
            let same = proxy.way.is_away() && place.transfer == proxy.way.transfer + next;
            if same && proxy.way.over.is_some() && !planted!(OverReturned) {
                // Its channel was over while it was on its way.
                self.proxies.remove(&channel);
                self.say(now, from, Frame::Travel(channel, Travel::Lapsed(Which::Sender, End::Lost)));
                return Arrival::Stale;
            }
            if same {
                proxy.way.packed = None;
                let lent = proxy.way.lent.take();
                if proxy.way.state == Whereabouts::Resting && !silent && !planted!(ReturnUnanswered) {
                    proxy.way.givers.push(from);
                }
                if let Some(to) = lent {
                    self.say(now, to, Frame::Travel(channel, Travel::Settled(Which::Sender)));
                }
                return Arrival::Returned;
            }
            if !proxy.way.is_away() {
                if place.transfer <= proxy.way.transfer {
                    self.say(now, from, Frame::Travel(channel, Travel::Lapsed(Which::Sender, End::Lost)));
                    return Arrival::Stale;
                }
                self.lose_superseded(now, channel);
            }
            // It has been used elsewhere since, of which the home's word is still on its way.
            self.settle_lent(now, channel);
            self.drop_way(now, channel, &End::Lost);
        }
        if !self.is_me(place.home) {
            self.learn(place.home, &place.addresses);
        }
        if !self.is_me(place.sponsor) {
            self.learn(place.sponsor, &place.sponsor_addresses);
        }
        let mut proxy = Proxy::new(place.home);
        proxy.way.state = Whereabouts::Resting;
        proxy.way.epoch = place.epoch;
        proxy.way.transfer = place.transfer;
        proxy.way.sponsor = Some((place.sponsor, place.sponsor_addresses));
        proxy.way.givers.extend((!silent).then_some(from));
        self.proxies.insert(channel, proxy);
        Arrival::Guest
    }

    /// The sender is used here: its home has to know.
    pub fn use_sender(&mut self, now: Time, channel: ChannelId) {
        if let Some(proxy) = self.proxies.get_mut(&channel)
            && proxy.way.state == Whereabouts::Resting
            && proxy.way.over.is_none()
        {
            proxy.way.state = Whereabouts::Taking { moved: false };
            let transfer = proxy.way.transfer;
            self.say_to_home(now, channel, ToHome::Take(transfer));
        }
    }

    /// It was dropped, or lost, before its home has heard of it.
    pub(super) fn lapse_sender(&mut self, now: Time, channel: ChannelId, how: End) {
        if let Some(proxy) = self.proxies.remove(&channel) {
            if planted!(LapsedKept) {
                return;
            }
            for giver in proxy.way.givers {
                self.say(now, giver, Frame::Travel(channel, Travel::Lapsed(Which::Sender, how.clone())));
            }
        }
    }

    fn settle_lent(&mut self, now: Time, channel: ChannelId) {
        if let Some(proxy) = self.proxies.get_mut(&channel)
            && let Some(to) = proxy.way.lent.take()
            && !planted!(SettledUntold)
        {
            self.say(now, to, Frame::Travel(channel, Travel::Settled(Which::Sender)));
        }
    }

    fn drop_way(&mut self, now: Time, channel: ChannelId, how: &End) {
        let Some(proxy) = self.proxies.remove(&channel) else { return };
        for (node, _) in proxy.way.askers {
            self.say(now, node, Frame::Travel(channel, Travel::Over(Which::Sender, how.clone())));
        }
    }

    /// Nothing more can come of this half. If it is in a message, its record waits for that.
    pub(super) fn end_way(&mut self, now: Time, channel: ChannelId, how: End) {
        let Some(proxy) = self.proxies.get_mut(&channel) else { return };
        let how = proxy.way.over.take().unwrap_or(how);
        let admitted = matches!(proxy.way.state, Whereabouts::Known | Whereabouts::Taking { moved: true });
        for giver in std::mem::take(&mut proxy.way.givers) {
            if !admitted {
                self.say(now, giver, Frame::Travel(channel, Travel::Lapsed(Which::Sender, End::Lost)));
            }
        }
        let Some(proxy) = self.proxies.get_mut(&channel) else { return };
        if proxy.way.packed.is_some() {
            proxy.way.over = Some(how.clone());
            let askers = std::mem::take(&mut proxy.way.askers);
            for (node, _) in askers {
                self.say(now, node, Frame::Travel(channel, Travel::Over(Which::Sender, how.clone())));
            }
            return;
        }
        if let Some(to) = proxy.way.lent.take() {
            self.say(now, to, Frame::Travel(channel, Travel::Over(Which::Sender, how.clone())));
            self.proxy_hears(channel, ProxyHears::Departed);
        }
        self.drop_way(now, channel, &how);
    }

    /// What a home says of where the ends are. Gives back what it says of offers.
    pub(super) fn hear_travelling_home(
        &mut self,
        now: Time,
        from: NodeId,
        channel: ChannelId,
        said: FromHome,
    ) -> Result<Option<FromHome>, &'static str> {
        let Some(proxy) = self.proxies.get_mut(&channel) else {
            if matches!(said, FromHome::HomeIs { .. }) {
                // This half has failed meanwhile.
                self.say(now, from, Frame::ToHome(channel, ToHome::Ended(End::Lost)));
            }
            return Ok(None);
        };
        let is_home = proxy.home == from;
        let taking = matches!(proxy.way.state, Whereabouts::Taking { .. }) && is_home;
        match said {
            FromHome::HomeIs { transfer, epoch, terms }
                if (taking || (is_home && proxy.way.state == Whereabouts::Asking))
                    && transfer == proxy.way.transfer =>
            {
                self.home_is(now, channel, epoch, terms)?;
            }
            FromHome::NotHome(transfer) if taking && transfer == proxy.way.transfer => match proxy.way.state {
                Whereabouts::Taking { moved: false } => self.ask(now, channel),
                _ => self.lose_proxy(now, channel),
            },
            FromHome::Fenced(transfer) if taking && transfer == proxy.way.transfer && !planted!(FencedIgnored) => {
                self.lose_proxy(now, channel);
            }
            FromHome::Moving { epoch, to, addresses } if is_home && proxy.way.over.is_none() => {
                if !taking && proxy.way.state != Whereabouts::Known {
                    return Ok(None);
                }
                self.home_moves(now, channel, epoch, to, &addresses)?;
            }
            FromHome::Superseded(transfer) if proxy.way.is_away() && proxy.way.transfer < transfer => {
                self.settle_lent(now, channel);
                self.drop_way(now, channel, &End::Lost);
                self.proxy_hears(channel, ProxyHears::Departed);
            }
            FromHome::Superseded(transfer)
                if proxy.way.transfer < transfer && proxy.way.state != Whereabouts::Resting =>
            {
                self.lose_superseded(now, channel);
            }
            FromHome::Drained if is_home && proxy.way.draining => {
                proxy.way.draining = false;
                self.proxy_hears(channel, ProxyHears::Rests);
            }
            // It was said to a half that was here before.
            FromHome::HomeIs { .. }
            | FromHome::NotHome(_)
            | FromHome::Fenced(_)
            | FromHome::Moving { .. }
            | FromHome::Superseded(_)
            | FromHome::Drained => {}
            said => return Ok(Some(said)),
        }
        Ok(None)
    }

    /// Somebody else has it who was not sure of it: what this half has offered was not taken.
    fn lose_superseded(&mut self, now: Time, channel: ChannelId) {
        let Some(proxy) = self.proxies.get_mut(&channel) else { return };
        let again: Vec<u64> = std::mem::take(&mut proxy.open).into_keys().map(place_in_line).collect();
        proxy.way.again.extend(again);
        self.lose_proxy(now, channel);
    }

    fn home_is(&mut self, now: Time, channel: ChannelId, epoch: u64, terms: Terms) -> Result<(), &'static str> {
        let Some(proxy) = self.proxies.get_mut(&channel) else { return Ok(()) };
        // Credits of the home before this one are places in its buffer, and have moved with that.
        let sent = proxy.backlog.iter().filter(|(_, what)| matches!(what, Waiting::Sent(_))).count() as u64;
        let all = u64::from(terms.credits);
        let Some(more) = all.checked_sub(sent + proxy.credits) else {
            return Err("a home that takes credits back");
        };
        let more = if planted!(CreditsTwice) { all } else { more };
        let home = proxy.home;
        proxy.credits += more;
        proxy.terms = Some(terms);
        proxy.way.epoch = epoch;
        proxy.way.state = Whereabouts::Known;
        proxy.way.givers.clear();
        proxy.way.sponsor = None;
        proxy.way.undrained = false;
        proxy.way.draining = false;
        self.proxy_hears(channel, ProxyHears::Home(home, terms, more as u32));
        if let Some(proxy) = self.proxies.get_mut(&channel)
            && proxy.way.doubtful
        {
            self.take_again(now, channel);
        }
        self.answer_askers(now, channel);
        self.offer_waiting(now, channel);
        self.forget_proxy_if_over(now, channel);
        Ok(())
    }

    /// The home is not where it was said to be: the sponsor knows, or will.
    fn ask(&mut self, now: Time, channel: ChannelId) {
        let Some(proxy) = self.proxies.get_mut(&channel) else { return };
        let sponsor = proxy.way.sponsor.as_ref().map(|(sponsor, _)| *sponsor);
        // If that is this node, what it knew is over.
        let Some(sponsor) = sponsor.filter(|sponsor| !self.is_me(*sponsor)) else {
            return self.lose_proxy(now, channel);
        };
        let Some(proxy) = self.proxies.get_mut(&channel) else { return };
        proxy.way.state = Whereabouts::Asking;
        let epoch = proxy.way.epoch + 1;
        self.say(now, sponsor, Frame::Travel(channel, Travel::Where(epoch)));
    }

    /// There is a connection to a node, which may have been known in an earlier life: what that said of where the home is counts no more.
    pub(crate) fn take_anew(&mut self, now: Time, node: NodeId) {
        let asking = |proxy: &Proxy| proxy.home == node && proxy.way.state == Whereabouts::Asking;
        let channels: Vec<(ChannelId, u64)> = self
            .proxies
            .iter()
            .filter(|(_, proxy)| asking(proxy))
            .map(|(channel, proxy)| (*channel, proxy.way.transfer))
            .collect();
        for (channel, transfer) in channels {
            self.say_to_home(now, channel, ToHome::Take(transfer));
        }
    }

    /// Whether a half here asks where its home is, which may yet be at this node, in another life: it [says so](Self::take_anew) when they meet.
    pub(crate) fn asks_of_home(&self, node: NodeId) -> bool {
        self.proxies.values().any(|proxy| proxy.home == node && proxy.way.state == Whereabouts::Asking)
    }

    fn answer_askers(&mut self, now: Time, channel: ChannelId) {
        let Some(proxy) = self.proxies.get_mut(&channel) else { return };
        if proxy.way.state != Whereabouts::Known {
            return;
        }
        let (epoch, home) = (proxy.way.epoch, proxy.home);
        let (now_known, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut proxy.way.askers).into_iter().partition(|(_, min)| *min <= epoch);
        proxy.way.askers = if planted!(WhereForgotten) { Vec::new() } else { later };
        for (node, _) in now_known {
            let addresses = self.addresses_of_any(home);
            self.say(now, node, Frame::Travel(channel, Travel::At { epoch, home, addresses }));
        }
    }

    /// The receiver has left for another node, which is the home from now on.
    fn home_moves(
        &mut self,
        now: Time,
        channel: ChannelId,
        epoch: u64,
        to: NodeId,
        addresses: &[String],
    ) -> Result<(), &'static str> {
        self.say_to_home(now, channel, ToHome::Quiet);
        let me = self.is_me(to);
        let Some(proxy) = self.proxies.get_mut(&channel) else { return Ok(()) };
        let (mut withdrawn, mut aborted) = (Vec::new(), Vec::new());
        for (ticket, standing) in std::mem::take(&mut proxy.open) {
            match standing {
                Standing::Held => return Err("a receiver that leaves within an extended receive"),
                _ if proxy.way.withdrawing.contains(&ticket) && !planted!(AskedBackAgain) => {
                    withdrawn.push(ticket);
                    continue;
                }
                Standing::Asked(_) | Standing::Reserved(..) => aborted.push(ticket),
                Standing::Firm | Standing::Tentative => {}
            }
            match proxy.way.choices.remove(&ticket) {
                Some(choice) => proxy.wait_in_place(ticket, Waiting::Choice(choice)),
                None => drop(proxy.way.again.insert(place_in_line(ticket))),
            }
        }
        proxy.way.choices.clear();
        proxy.way.withdrawing.clear();
        proxy.gone_said = false;
        proxy.unanswered = false;
        proxy.home = to;
        proxy.way.epoch = epoch;
        let moved = proxy.way.state == Whereabouts::Known || proxy.way.state == Whereabouts::Taking { moved: true };
        proxy.way.state = Whereabouts::Taking { moved: moved || me };
        if planted!(MovedUntold) {
            proxy.way.again.clear();
        }
        let (transfer, again) = (proxy.way.transfer, proxy.way.again.iter().copied().map(place_in_line).collect());
        for ticket in withdrawn {
            self.proxy_hears(channel, ProxyHears::Withdrawn(ticket));
        }
        for ticket in aborted {
            self.proxy_hears(channel, ProxyHears::Abort(ticket));
        }
        if !me {
            self.learn(to, addresses);
        }
        self.say_to_home(now, channel, ToHome::Take(transfer));
        self.proxy_hears(channel, ProxyHears::Moved(to, again));
        Ok(())
    }
}

// The home of an end that travels.

impl Machine {
    /// A node has the sender, and uses it.
    pub(super) fn hear_take(&mut self, now: Time, from: NodeId, channel: ChannelId, transfer: u64) {
        if let Some(visitor) = self.visitors.get_mut(&channel)
            && visitor.fetching
        {
            visitor.takers.push((from, transfer));
            return;
        }
        let Some(home) = self.homes.get_mut(&channel) else {
            return self.tell(now, from, channel, FromHome::NotHome(transfer));
        };
        if home.phase.has_said_so() && !planted!(OldHomeAdmits) {
            return self.tell(now, from, channel, FromHome::NotHome(transfer));
        }
        if let Some(how) = home.ended.clone() {
            home.attached.remove(&from);
            self.forget_home_if_over(channel);
            return self.say(now, from, Frame::Travel(channel, Travel::Over(Which::Sender, how)));
        }
        let present =
            home.attached.iter().find(|(_, half)| !half.gone).map(|(node, half)| (*node, half.open.is_empty()));
        match present {
            Some((node, _)) if node == from && transfer == home.transfer => {}
            Some((node, true)) if transfer > home.transfer || planted!(StaleTake) => {
                home.attached.remove(&node);
                home.transfer = transfer;
                if node != from && !planted!(SupersededUntold) {
                    self.tell(now, node, channel, FromHome::Superseded(transfer));
                }
            }
            _ => return self.tell(now, from, channel, FromHome::Fenced(transfer)),
        }
        let Some(home) = self.homes.get_mut(&channel) else { return };
        home.attached.insert(from, Attached { told: false, ..Attached::new(0) });
        self.hears(channel, from, HomeHears::Take);
    }

    /// Answers [`HomeHears::Take`]: what the half at that node may do from now on.
    pub fn admit(&mut self, now: Time, channel: ChannelId, node: NodeId, mut terms: Terms) {
        terms.value_max = terms.value_max.min(self.config.value_max as u64);
        terms.window = terms.window.max(1);
        let Some(home) = self.homes.get_mut(&channel) else { return };
        if home.phase.has_said_so() {
            return;
        }
        let Some(half) = home.attached.get_mut(&node).filter(|half| !half.told) else { return };
        half.told = true;
        half.credits = terms.credits.into();
        home.terms = terms;
        let (epoch, transfer) = (home.epoch, home.transfer);
        self.tell(now, node, channel, FromHome::HomeIs { transfer, epoch, terms });
    }

    /// The receiver of this channel is to go into a message: what that has to say. As [`pack_sender`](Self::pack_sender).
    pub fn pack_receiver(&mut self, channel: ChannelId) -> Leaving<ReceiverPlace> {
        let me = self.me().node;
        let (addresses, trip) = (self.addresses_of_any(me), self.next_trip());
        if let Some(visitor) = self.visitors.get_mut(&channel) {
            return match &visitor.over {
                Some(how) => Leaving::Over(how.clone()),
                None if visitor.fetching => Leaving::Wait,
                None => {
                    visitor.packed = Some(trip);
                    visitor.early = None;
                    Leaving::Ready(visitor.place.clone(), trip)
                }
            };
        }
        let Some(home) = self.homes.get_mut(&channel) else { return Leaving::Over(End::Gone) };
        if home.ended.is_some() {
            // As soon as its sender has noticed there is no home any more.
            return Leaving::Wait;
        }
        let known = home.attached.len() <= 1 && home.attached.values().all(|half| half.told);
        let joined = !home.attached.is_empty() || home.phase.ended.is_some();
        if home.many || !known || !joined || home.phase.stage != Stage::Here {
            return Leaving::Wait;
        }
        home.phase.packed = Some(trip);
        home.phase.early = None;
        Leaving::Ready(ReceiverPlace { claim: home.phase.claim, epoch: home.epoch, home: me, addresses }, trip)
    }

    /// Whether the receiver of this channel is here.
    pub fn has_home(&self, channel: ChannelId) -> bool {
        self.homes.contains_key(&channel) || self.visitors.contains_key(&channel)
    }

    /// Whether the receiver is in a message, or elsewhere.
    pub fn receiver_is_away(&self, channel: ChannelId) -> bool {
        self.homes.get(&channel).is_some_and(|home| home.phase.is_away())
    }

    /// Whether no node has a sending half.
    pub fn home_is_left(&self, channel: ChannelId) -> bool {
        self.homes.get(&channel).is_none_or(|home| home.attached.is_empty())
    }

    /// The message with the receiver has not been taken.
    pub fn receiver_stays(&mut self, channel: ChannelId, trip: Trip) {
        if let Some(visitor) = self.visitors.get_mut(&channel).filter(|visitor| visitor.packed == Some(trip)) {
            visitor.packed = None;
            if visitor.over.is_some() {
                self.visitors.remove(&channel);
            }
        } else if let Some(home) = self.homes.get_mut(&channel).filter(|home| home.phase.packed == Some(trip)) {
            home.phase.packed = None;
            self.forget_home_if_over(channel);
        }
    }

    /// The message with the receiver has been taken by that node.
    pub fn receiver_left(&mut self, now: Time, channel: ChannelId, trip: Trip, to: NodeId) {
        if self.is_me(to) {
            return;
        }
        let lost = (self.has_lost(to) && !planted!(LeftToNobody)).then_some(End::Lost);
        if let Some(visitor) = self.visitors.get_mut(&channel).filter(|visitor| visitor.packed == Some(trip)) {
            visitor.packed = None;
            visitor.lent = Some(to);
            let gone = take_early(&mut visitor.early, to);
            if let Some(how) = visitor.over.clone() {
                self.say(now, to, Frame::Travel(channel, Travel::Over(Which::Receiver, how)));
                self.visitors.remove(&channel);
            }
            if let Some(how) = gone.or(lost) {
                self.receiver_lapsed(now, channel, to, how);
            }
            self.forget_passed_on(now, channel);
        } else if let Some(home) = self.homes.get_mut(&channel).filter(|home| home.phase.packed == Some(trip)) {
            home.phase.packed = None;
            home.phase.lent = Some(to);
            if let Some(how) = take_early(&mut home.phase.early, to).or(lost) {
                self.receiver_lapsed(now, channel, to, how);
            }
        } else {
            self.say(now, to, Frame::Travel(channel, Travel::Settled(Which::Receiver)));
        }
    }

    /// Nobody knows whether the message with the receiver was taken. `true`: it is here again, unless somebody else uses it: then
    /// [`HomeHears::Failed`]. `false`: it was taken.
    pub fn receiver_back(&mut self, now: Time, channel: ChannelId, trip: Trip) -> bool {
        if let Some(visitor) = self.visitors.get_mut(&channel).filter(|visitor| visitor.packed == Some(trip)) {
            visitor.packed = None;
            if visitor.over.is_some() {
                self.visitors.remove(&channel);
            } else {
                visitor.doubtful = true;
                self.use_receiver(now, channel);
            }
            return true;
        }
        match self.homes.get_mut(&channel).filter(|home| home.phase.packed == Some(trip)) {
            Some(home) if home.phase.stage == Stage::Here => {
                home.phase.claim += 1;
                home.phase.packed = None;
                self.forget_home_if_over(channel);
                true
            }
            _ => false,
        }
    }

    /// A receiver has come to this node in a message from `from`, and was taken.
    pub fn receiver_arrives(&mut self, now: Time, channel: ChannelId, place: ReceiverPlace, from: NodeId) -> Arrival {
        let settled = Frame::Travel(channel, Travel::Settled(Which::Receiver));
        let is_mine = self.is_me(place.home);
        if let Some(home) = self.homes.get_mut(&channel) {
            // What an earlier home has said, or this one of an earlier message, counts no more.
            if !is_mine || home.phase.claim != place.claim || home.phase.stage != Stage::Here || !home.phase.is_away() {
                self.say(now, from, Frame::Travel(channel, Travel::Lapsed(Which::Receiver, End::Lost)));
                return Arrival::Stale;
            }
            home.phase.packed = None;
            // Who gave it back may not know that it was taken, and think that it still has it.
            home.phase.claim += u64::from(!planted!(ClaimKept));
            if let Some(to) = home.phase.lent.take() {
                self.say(now, to, settled);
            }
            self.forget_home_if_over(channel);
            return Arrival::Returned;
        }
        let (mut late_answers, silent) = (Vec::new(), self.has_lost(from) || self.is_me(from));
        if let Some(visitor) = self.visitors.get_mut(&channel) {
            let is_away = visitor.is_away();
            let same = visitor.place.home == place.home && visitor.place.claim == place.claim;
            let over = is_away && same && visitor.over.is_some();
            if over || (!(is_away && same) && place.claim <= visitor.place.claim) {
                self.say(now, from, Frame::Travel(channel, Travel::Lapsed(Which::Receiver, End::Lost)));
                if over {
                    // Its channel was over while it was on its way.
                    self.visitors.remove(&channel);
                }
                return Arrival::Stale;
            }
            visitor.packed = None;
            let lent = visitor.lent.take();
            visitor.givers.extend((same && !silent && !planted!(ReturnUnanswered)).then_some(from));
            late_answers = std::mem::take(&mut visitor.late_answers);
            if visitor.fetching && visitor.state.is_none() {
                late_answers.push(visitor.place.home);
            }
            if let Some(to) = lent {
                self.say(now, to, settled);
            }
            if is_away && same {
                return Arrival::Returned;
            }
        }
        if !self.is_me(place.home) {
            self.learn(place.home, &place.addresses);
        }
        let visitor = Visitor {
            place,
            givers: Vec::from_iter((!silent).then_some(from)),
            packed: None,
            lent: None,
            early: None,
            doubtful: false,
            fetching: false,
            state: None,
            missing: 0,
            arrived: false,
            takers: Vec::new(),
            lost: BTreeSet::new(),
            lost_late: None,
            late_answers,
            over: None,
        };
        self.visitors.insert(channel, visitor);
        Arrival::Guest
    }

    /// The receiver is used here: its home is to be here. [`HomeHears::Arrived`] or [`HomeHears::Failed`] follows.
    pub fn use_receiver(&mut self, now: Time, channel: ChannelId) {
        if let Some(visitor) = self.visitors.get_mut(&channel)
            && !visitor.fetching
            && visitor.over.is_none()
        {
            visitor.fetching = true;
            let (home, claim) = (visitor.place.home, visitor.place.claim);
            self.say(now, home, Frame::Travel(channel, Travel::Fetch(claim)));
        }
    }

    /// The receiver has been dropped here without having been used.
    pub fn drop_receiver(&mut self, now: Time, channel: ChannelId) {
        self.lapse_receiver(now, channel, End::Gone);
    }

    fn lapse_receiver(&mut self, now: Time, channel: ChannelId, how: End) {
        let Some(visitor) = self.visitors.remove(&channel) else { return };
        for giver in visitor.givers {
            self.say(now, giver, Frame::Travel(channel, Travel::Lapsed(Which::Receiver, how.clone())));
        }
        for (node, transfer) in visitor.takers {
            self.tell(now, node, channel, FromHome::NotHome(transfer));
        }
    }

    /// A receiver that is not home yet cannot be.
    fn fail_visitor(&mut self, now: Time, channel: ChannelId, how: End) {
        let me = self.me().node;
        let Some(visitor) = self.visitors.get(&channel) else { return };
        let (packed, lent) = (visitor.packed, visitor.lent);
        if packed.is_some()
            && let Some(visitor) = self.visitors.get_mut(&channel)
        {
            visitor.over = Some(how);
            return;
        }
        match lent {
            Some(to) => self.say(now, to, Frame::Travel(channel, Travel::Over(Which::Receiver, how))),
            None => self.hears(channel, me, HomeHears::Failed(how)),
        }
        self.lapse_receiver(now, channel, End::Lost);
    }

    /// Somebody uses the receiver.
    fn hear_fetch(&mut self, now: Time, from: NodeId, channel: ChannelId, claim: u64) {
        match self.homes.get_mut(&channel) {
            Some(home)
                if (home.phase.claim == claim || planted!(ClaimIgnored))
                    && home.phase.is_away()
                    && home.phase.stage == Stage::Here =>
            {
                home.phase.stage = Stage::Asked(from);
                self.hears(channel, from, HomeHears::Leave);
            }
            _ => self.say(now, from, Frame::Travel(channel, Travel::Over(Which::Receiver, End::Lost))),
        }
    }

    /// Answers [`HomeHears::Leave`]: nothing is to be said any more of what was taken here.
    pub fn leave_home(&mut self, now: Time, channel: ChannelId) {
        let Some(home) = self.homes.get_mut(&channel) else { return };
        let Stage::Asked(to) = home.phase.stage else { return };
        home.phase.stage = Stage::Leaving(to);
        let epoch = home.epoch + 1;
        let nodes: Vec<NodeId> = home.attached.keys().copied().collect();
        if planted!(MovingUntold) {
            return self.hear_quiet(channel);
        }
        for node in nodes {
            let addresses = self.addresses_of_any(to);
            self.tell(now, node, channel, FromHome::Moving { epoch, to, addresses });
        }
        if planted!(QuietSkipped) {
            self.hear_quiet(channel);
        }
        self.empty_if_quiet(channel);
    }

    /// All that the sender had said is here.
    pub(super) fn hear_quiet(&mut self, channel: ChannelId) {
        if let Some(home) = self.homes.get_mut(&channel)
            && let Stage::Leaving(to) = home.phase.stage
        {
            home.phase.stage = Stage::Emptying(to);
            self.hears(channel, to, HomeHears::Empty);
        }
    }

    /// There is nobody who could say anything.
    pub(super) fn empty_if_quiet(&mut self, channel: ChannelId) {
        if self.homes.get(&channel).is_some_and(|home| home.attached.is_empty()) {
            self.hear_quiet(channel);
        }
    }

    /// Answers [`HomeHears::Empty`]: the values of the channel's buffer, in order. Nothing of it is here any more.
    pub fn ship(&mut self, now: Time, channel: ChannelId, values: Vec<Bytes>) {
        let Some(home) = self.homes.get(&channel) else { return };
        let Stage::Emptying(to) = home.phase.stage else { return };
        let Some(home) = self.homes.remove(&channel) else { return };
        let values = if planted!(BufferLeft) { Vec::new() } else { values };
        let sender = home.attached.keys().next().map(|node| (*node, self.addresses_of_any(*node)));
        let state = Moved {
            epoch: home.epoch + 1,
            transfer: home.transfer,
            sender,
            ended: home.phase.ended,
            values: values.len() as u64,
        };
        self.say(now, to, Frame::ToHome(channel, ToHome::State(state)));
        for value in values {
            let total = value.len() as u64;
            self.say(now, to, Frame::ToHome(channel, ToHome::Value { head: Head::Sent, total, first: value }));
        }
        if let Some(node) = home.phase.lent {
            self.say(now, node, Frame::Travel(channel, Travel::Settled(Which::Receiver)));
        }
    }

    /// What the home says to where its receiver is now.
    pub(super) fn hear_old_home(
        &mut self,
        now: Time,
        from: NodeId,
        channel: ChannelId,
        said: ToHome,
    ) -> Result<(), &'static str> {
        let Some(visitor) = self.visitors.get_mut(&channel) else { return Ok(()) };
        if visitor.place.home != from || !visitor.fetching {
            // To a home that was here before.
            return Ok(());
        }
        match said {
            ToHome::State(state) => {
                if visitor.state.is_some() || state.epoch != visitor.place.epoch + 1 {
                    return Err("the state of another home");
                }
                visitor.missing = state.values;
                visitor.state = Some(state);
                visitor.givers.clear();
                self.complete(now, channel, from);
                Ok(())
            }
            ToHome::Value { head: Head::Sent, total, first } => {
                if visitor.state.is_none() || visitor.missing == 0 {
                    return Err("a value that its home has not announced");
                }
                if total > self.config.value_max as u64 {
                    // The home before this one took larger ones. It cannot be told, and nobody else has the value.
                    let _ = self.begin_value(from, channel, Head::Sent, total, first, false);
                    self.fail_visitor(now, channel, End::Lost);
                    return Ok(());
                }
                if let Some(value) = self.begin_value(from, channel, Head::Sent, total, first, true) {
                    self.buffered_value(now, channel, from, value);
                }
                Ok(())
            }
            _ => Err("a word to a home that is not one yet"),
        }
    }

    /// A value of the buffer that came with the receiver.
    pub(super) fn buffered_value(&mut self, now: Time, channel: ChannelId, from: NodeId, value: Bytes) {
        if let Some(visitor) = self.visitors.get_mut(&channel) {
            visitor.missing = visitor.missing.saturating_sub(1);
            self.hears(channel, from, HomeHears::Sent(value));
            self.complete(now, channel, from);
        }
    }

    fn complete(&mut self, now: Time, channel: ChannelId, from: NodeId) {
        let Some(visitor) = self.visitors.get_mut(&channel) else { return };
        let Some(state) = &mut visitor.state else { return };
        if visitor.missing > 0 || visitor.arrived {
            return;
        }
        visitor.arrived = true;
        if state.sender.as_ref().is_some_and(|(node, _)| visitor.lost.contains(node)) {
            state.sender = None;
            state.ended.get_or_insert(End::Lost);
        }
        let ended = state.ended.clone();
        if let Some((node, addresses)) = state.sender.clone()
            && !self.is_me(node)
        {
            self.learn(node, &addresses);
            self.connect(now, node);
        }
        self.hears(channel, from, HomeHears::Arrived(ended));
    }

    /// Answers [`HomeHears::Arrived`]: the receiver can be used here.
    pub fn install(&mut self, now: Time, channel: ChannelId) {
        if !self.visitors.get(&channel).is_some_and(|visitor| visitor.arrived) {
            return;
        }
        let Some(visitor) = self.visitors.remove(&channel) else { return };
        let Some(state) = visitor.state else { return };
        let mut home = Home::new(NO_TERMS, declaration(), false);
        home.epoch = state.epoch;
        home.transfer = state.transfer;
        home.phase.ended = state.ended;
        // No fetch of a home before this one is one of this.
        home.phase.claim = if planted!(StaleEpoch) { 0 } else { state.epoch << 32 };
        let sender = state.sender.map(|(node, _)| node);
        if let Some(node) = sender {
            home.attached.insert(node, Attached { told: false, ..Attached::new(0) });
        }
        self.homes.insert(channel, home);
        if let Some(node) = sender
            && !visitor.takers.iter().any(|(taker, _)| *taker == node)
        {
            // It may have failed before it could say so here.
            self.say(now, node, Frame::Travel(channel, Travel::Where(state.epoch)));
        }
        if let Some(node) = visitor.lost_late {
            self.hears(channel, node, HomeHears::Lost(Vec::new()));
        }
        for (node, transfer) in visitor.takers {
            self.hear_take(now, node, channel, transfer);
        }
    }

    // What nodes say to each other.

    pub(crate) fn hear_travel(
        &mut self,
        now: Time,
        from: NodeId,
        channel: ChannelId,
        said: Travel,
    ) -> Result<(), &'static str> {
        match said {
            Travel::Where(min) => self.hear_where(now, from, channel, min),
            Travel::At { epoch, home, addresses } => {
                let Some(proxy) = self.proxies.get_mut(&channel) else { return Ok(()) };
                let is_sponsor = proxy.way.sponsor.as_ref().is_some_and(|(sponsor, _)| *sponsor == from);
                if proxy.way.state == Whereabouts::Asking && is_sponsor {
                    proxy.way.epoch = epoch;
                    proxy.home = home;
                    proxy.way.state = Whereabouts::Taking { moved: false };
                    let transfer = proxy.way.transfer;
                    if !self.is_me(home) {
                        self.learn(home, &addresses);
                    }
                    self.say_to_home(now, channel, ToHome::Take(transfer));
                }
            }
            Travel::Fetch(claim) => self.hear_fetch(now, from, channel, claim),
            Travel::Settled(Which::Sender) => {
                if let Some(proxy) = self.proxies.get_mut(&channel)
                    && proxy.way.state == Whereabouts::Resting
                    && forget_giver(&mut proxy.way.givers, from)
                    && proxy.way.givers.is_empty()
                    && proxy.way.is_away()
                {
                    self.settle_lent(now, channel);
                    self.drop_way(now, channel, &End::Lost);
                }
            }
            Travel::Settled(Which::Receiver) => {
                if let Some(visitor) = self.visitors.get_mut(&channel)
                    && forget_giver(&mut visitor.givers, from)
                    && visitor.givers.is_empty()
                    && visitor.is_away()
                {
                    if let Some(to) = visitor.lent {
                        self.say(now, to, Frame::Travel(channel, Travel::Settled(Which::Receiver)));
                    }
                    self.visitors.remove(&channel);
                }
            }
            Travel::Over(Which::Sender, how) => self.hear_over(now, from, channel, how),
            Travel::Over(Which::Receiver, how) => {
                if let Some(visitor) = self.visitors.get_mut(&channel)
                    && let Some(late) = visitor.late_answers.iter().position(|node| *node == from)
                {
                    visitor.late_answers.remove(late);
                } else if let Some(visitor) = self.visitors.get_mut(&channel)
                    && (visitor.givers.contains(&from) || visitor.place.home == from)
                    && visitor.state.is_none()
                {
                    visitor.givers.retain(|giver| *giver != from);
                    self.fail_visitor(now, channel, how);
                }
            }
            Travel::Lapsed(Which::Sender, how) => self.sender_lapsed(now, channel, from, how),
            Travel::Lapsed(Which::Receiver, how) => self.receiver_lapsed(now, channel, from, how),
        }
        Ok(())
    }

    fn hear_where(&mut self, now: Time, from: NodeId, channel: ChannelId, min: u64) {
        match self.proxies.get_mut(&channel) {
            Some(proxy) if proxy.way.over.is_none() && proxy.way.state != Whereabouts::Resting => {
                proxy.way.askers.push((from, min));
                self.answer_askers(now, channel);
            }
            other => {
                let how = other.and_then(|proxy| proxy.way.over.clone()).unwrap_or(End::Lost);
                self.say(now, from, Frame::Travel(channel, Travel::Over(Which::Sender, how)));
                // An earlier life of this node was asked. If this one has given the end away, who asks has it, and has lost it now.
                let lent = |proxy: &Proxy| proxy.way.state == Whereabouts::Resting && proxy.way.lent == Some(from);
                if self.proxies.get(&channel).is_some_and(lent) {
                    self.sender_lapsed(now, channel, from, End::Lost);
                }
            }
        }
    }

    /// The channel of a sender that is not used yet is over.
    fn hear_over(&mut self, now: Time, from: NodeId, channel: ChannelId, how: End) {
        if let Some(home) = self.homes.get_mut(&channel)
            && home.attached.get(&from).is_some_and(|half| !half.told)
            && how == End::Lost
        {
            // The answer of a half that had failed before this was its home.
            home.attached.remove(&from);
            home.phase.ended_by_sender(&End::Lost);
            self.hears(channel, from, HomeHears::Lost(Vec::new()));
            self.forget_home_if_over(channel);
            return;
        }
        let Some(proxy) = self.proxies.get_mut(&channel) else { return };
        let is_sponsor = proxy.way.sponsor.as_ref().is_some_and(|(sponsor, _)| *sponsor == from);
        let asks = proxy.way.state == Whereabouts::Asking && is_sponsor;
        let hears = proxy.way.givers.contains(&from)
            && match proxy.way.state {
                Whereabouts::Resting | Whereabouts::Asking => true,
                // Whether another one is its home is for that one to say.
                Whereabouts::Taking { moved } => !moved && how != End::Lost,
                Whereabouts::Known => false,
            };
        let told = matches!(proxy.way.state, Whereabouts::Taking { .. }) && proxy.home == from;
        if asks || hears || told {
            if told {
                proxy.way.givers.clear();
            }
            proxy.way.givers.retain(|giver| *giver != from);
            if how == End::Lost {
                return self.lose_proxy(now, channel);
            }
            proxy.backlog.clear();
            proxy.way.again.clear();
            self.proxy_hears(channel, ProxyHears::Ended(how.clone()));
            self.end_way(now, channel, how);
        }
    }

    fn sender_lapsed(&mut self, now: Time, channel: ChannelId, from: NodeId, how: End) {
        let Some(proxy) = self.proxies.get_mut(&channel) else { return };
        if proxy.way.packed.is_some() && !planted!(LapseOfAnother) {
            proxy.way.early = Some(Box::new((from, how)));
            return;
        }
        if proxy.way.lent != Some(from) && proxy.way.packed.is_none() {
            return;
        }
        proxy.way.packed = None;
        proxy.way.lent = None;
        if proxy.way.over.is_some() {
            self.proxies.remove(&channel);
            return;
        }
        self.proxy_hears(channel, ProxyHears::Departed);
        let Some(proxy) = self.proxies.get_mut(&channel) else { return };
        if proxy.way.state == Whereabouts::Resting {
            return self.lapse_sender(now, channel, how);
        }
        proxy.gone = true;
        proxy.way.heir_lost = how == End::Lost;
        self.offer_waiting(now, channel);
        self.forget_proxy_if_over(now, channel);
    }

    fn receiver_lapsed(&mut self, now: Time, channel: ChannelId, from: NodeId, how: End) {
        let another = planted!(LapseOfAnother);
        if let Some(visitor) = self.visitors.get_mut(&channel) {
            if visitor.packed.is_some() && !another {
                visitor.early = Some(Box::new((from, how)));
            } else if visitor.lent == Some(from) || visitor.packed.is_some() {
                self.lapse_receiver(now, channel, how);
            }
        } else if let Some(home) = self.homes.get_mut(&channel)
            && home.phase.stage == Stage::Here
        {
            if home.phase.packed.is_some() && !another {
                home.phase.early = Some(Box::new((from, how)));
                return;
            }
            if home.phase.lent != Some(from) && home.phase.packed.is_none() {
                return;
            }
            home.phase.lent = None;
            home.phase.packed = None;
            self.hears(channel, from, HomeHears::Lapsed(how));
            self.forget_home_if_over(channel);
        }
    }

    /// A node is lost: what was on its way to it, or from it.
    pub(crate) fn settle_travel(&mut self, now: Time, node: NodeId) {
        let channels: Vec<ChannelId> = self.proxies.keys().copied().collect();
        for channel in channels {
            let Some(proxy) = self.proxies.get_mut(&channel) else { continue };
            proxy.way.askers.retain(|(asker, _)| *asker != node);
            proxy.way.givers.retain(|giver| *giver != node);
            if proxy.way.lent == Some(node) {
                self.sender_lapsed(now, channel, node, End::Lost);
            }
            self.forget_passed_on(now, channel);
        }
        let channels: Vec<ChannelId> = self.visitors.keys().copied().collect();
        for channel in channels {
            let Some(visitor) = self.visitors.get_mut(&channel) else { continue };
            if visitor.takers.iter().any(|(taker, _)| *taker == node) {
                visitor.takers.retain(|(taker, _)| *taker != node);
                visitor.lost.insert(node);
            }
            visitor.givers.retain(|giver| *giver != node);
            if let Some(state) = &mut visitor.state
                && state.sender.as_ref().is_some_and(|(sender, _)| *sender == node)
            {
                state.sender = None;
                state.ended.get_or_insert(End::Lost);
                visitor.lost_late = (visitor.arrived && !planted!(LateLossUntold)).then_some(node);
            }
            visitor.late_answers.retain(|other| *other != node);
            if visitor.lent == Some(node) {
                self.lapse_receiver(now, channel, End::Lost);
            } else if visitor.fetching && !visitor.arrived && visitor.place.home == node {
                self.fail_visitor(now, channel, End::Lost);
            }
            self.forget_passed_on(now, channel);
        }
        let channels: Vec<ChannelId> = self.homes.keys().copied().collect();
        for channel in channels {
            let Some(home) = self.homes.get_mut(&channel) else { continue };
            match home.phase.stage {
                Stage::Here if home.phase.lent == Some(node) => {
                    self.receiver_lapsed(now, channel, node, End::Lost);
                }
                Stage::Asked(to) if to == node => {
                    home.phase.stage = Stage::Here;
                    home.phase.lent = None;
                    home.phase.packed = None;
                    self.hears(channel, node, HomeHears::Lapsed(End::Lost));
                    self.forget_home_if_over(channel);
                }
                Stage::Leaving(to) | Stage::Emptying(to) if to == node => {
                    self.homes.remove(&channel);
                    self.hears(channel, node, HomeHears::Failed(End::Lost));
                }
                _ => {}
            }
        }
    }
}
