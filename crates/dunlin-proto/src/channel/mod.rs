//! Channels whose two ends are on two nodes: the *home*, at the receiver's node, and *proxies*, at senders'
//! nodes.
//!
//! The queue itself (policy, order, choice) is the driver's: `dunlin_core`'s, with an agent at each side.
//! This module carries the agents' messages, checks frames from the network against the protocol, and settles
//! open offers when a connection dies.

pub(crate) mod by_node;
mod home;
mod kept;
mod open;
mod peers;
mod proxy;
mod replies;
#[cfg(test)]
mod tests;
mod travel;

use dunlin_sorted::SortedMap;
use open::{Open, Standing};
pub(crate) use peers::{Peers, Place};
use travel::state::EarlyLapse;
pub(crate) use travel::state::Visitor;
pub use travel::state::{Arrival, Leaving, ReceiverPlace, SenderPlace, Trip};
pub use travel::{Passage, Stand, Unsettled};

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use crate::account::{Charge, Charges, Ledger, may_stand};
use crate::id::{ChannelId, ChoiceId, Contact, NodeId, Request, Ticket};
use crate::misbehaved::PeerMisbehaved;
use crate::seldom::{First, Seldom};
use crate::source::Source;
use crate::wire::{Declaration, End, Failure, Head, Rejection, Terms, limits};
use by_node::{ByNode, Concerns};
use travel::state::{HomePhase, Way, Whereabouts, place_in_line};

/// All channels of a node that involve other nodes.
///
/// Methods that need those nodes take them as [`Peers`]. The methods of [`Machine`](crate::Machine) with the
/// same names document what drivers may call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Channels {
    // Boxed: a node of a B-tree is about half empty, and they are large.
    pub(crate) homes: ByNode<Box<Home>>,
    pub(crate) proxies: ByNode<Box<Proxy>>,
    /// Receivers that have arrived here in messages, and are not used yet.
    pub(crate) visitors: ByNode<Visitor>,
    /// The channels of guests, and what each costs which node, until their halves attach.
    guests: SortedMap<ChannelId, (Contact, Charge)>,
    /// Places for the replies of calls.
    pub(crate) replies: Replies,
    /// How many messages with ends have been packed.
    trips: Trip,
    /// The messages with ends in them that pass through this node and have not been taken. Each has the end's
    /// early lapse, if its taker has reported one before the outcome was known here.
    pub(crate) passing: SortedMap<Trip, EarlyLapse>,
    /// Ends from here that are not in use elsewhere are to be [used](crate::Machine::hurry) now.
    hurries: bool,
}

/// The places of a node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replies {
    pub(crate) awaited: ByNode<AwaitedReply>,
    pub(crate) held: ByNode<HeldReply>,
}

/// A reply to a call of this node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AwaitedReply {
    from: NodeId,
}

/// A place for a reply to another node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldReply {
    caller: Contact,
    /// The source that is charged for it.
    paid_by: Option<Source>,
}

/// An event for the driver of a home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HomeHears {
    /// That node has a sending half.
    Attached,
    /// That node offers a value.
    Offered(Ticket, Bytes),
    /// A node offers a value that stays there. The bytes tell where any node that the offer is forwarded to
    /// can read it ([`Machine::read`](crate::Machine::read)). A receiver here reads it in the same way; the
    /// offer stands as before.
    OfferedUnread(Ticket, Bytes),
    /// A choice offers to send.
    OfferedByChoice(Ticket, ChoiceId),
    /// The requested value.
    Granted(Ticket, Request, Bytes),
    /// Where the requested value can be read. A value that cannot be read has [failed](Failure::Unread).
    GrantedUnread(Ticket, Request, Bytes),
    /// A value that was sent on a credit. If the channel has ended here, it is too late to be received, but
    /// the ends in it have left their node: they are this node's, to be dropped.
    Sent(Bytes),
    /// That node has a value for which there is no room now. There is more room if a receive waits for it:
    /// call [`Machine::awaited`](crate::Machine::awaited) as soon as one does.
    Announced,
    /// The sending half withdraws the offer: answer with [`Machine::withdrawn`](crate::Machine::withdrawn),
    /// unless its outcome has been reported.
    Withdraw(Ticket),
    /// The sending half revokes the reservation.
    Revoke(Ticket),
    /// The sending half has ended the channel, or is gone. Also sent when this home has retired the channel,
    /// or poisoned it and holds nothing: then nothing more is on its way.
    Ended(End),
    /// The sending half's node is lost, and with it these open offers.
    Lost(Vec<Ticket>),
    /// The sender is at that node now, and at no other. Credits of earlier halves are void; [its
    /// own](crate::Machine::credits_of) are not. Answer with [`Machine::admit`](crate::Machine::admit).
    Take,
    /// The receiver, which had left in a message, is used at that node. Report every outcome of what was
    /// taken here, then call [`Machine::leave_home`](crate::Machine::leave_home).
    Leave,
    /// Nothing more arrives here: answer with [`Machine::ship`](crate::Machine::ship). Offers no longer stand
    /// here; the senders make them again at the new home.
    Empty,
    /// The receiver can be used here; the values of its buffer came in earlier events. Answer with
    /// [`Machine::install`](crate::Machine::install). The argument tells how the sender has ended the
    /// channel.
    Arrived(Option<End>),
    /// The receiver, which had left in a message, was dropped unused, or is lost.
    Lapsed(End),
    /// The receiver that arrived here is not available: its channel has ended or is lost, or another node has
    /// it.
    Failed(End),
}

/// An event for the driver of a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProxyHears {
    /// The home has attached this half.
    Attached(Terms),
    /// The home does not accept this half. Nothing that it sent has been taken.
    Rejected(Rejection),
    /// A receive at that node has returned the value. Pass the node to
    /// [`Machine::sender_left`](crate::Machine::sender_left) for the ends in the value.
    Taken(Ticket, Contact),
    /// An extended receive at that node has returned the value.
    Held(Ticket, Contact),
    /// The extended receive is over.
    Released(Ticket),
    /// The offer has failed.
    Failed(Ticket, Failure),
    /// The withdrawn offer has not been taken.
    Withdrawn(Ticket),
    /// The home requests the value that the choice offers.
    Reserve(Ticket, Request),
    /// The reservation is aborted.
    Abort(Ticket),
    /// The offer is to be forwarded to another node, so the ends in it have to be encoded for that
    /// ([`Machine::pair`](crate::Machine::pair)). An offer of a value is over, and has to be made again. A
    /// choice's offer stands: its reservation will be aborted, and a new request follows.
    Onward(Ticket),
    /// From now on, offers of this many bytes or more are to be [unread](crate::Machine::offer_unread). Zero:
    /// none any more.
    Unread(u64),
    /// This many more values may be sent at once.
    Credit(u32),
    /// The channel has ended; open offers have failed. After [`End::Retired`], values sent on credits still
    /// arrive: call [`Machine::end_proxy`](crate::Machine::end_proxy) after the last of them.
    Ended(End),
    /// The home's node is lost.
    Lost {
        /// Offers whose outcome is unknown.
        unknown: Vec<Ticket>,
        /// Offers that have certainly not been taken.
        not_taken: Vec<Ticket>,
        /// Values that an extended receive had returned and not released: they were received.
        taken: Vec<Ticket>,
    },
    /// The channel's home moves to that node. These offers of values have not been taken: make each of them
    /// [again](crate::Machine::offer_again), in this order, or [withdraw](crate::Machine::withdraw) it.
    /// Offers of choices still stand, without any call.
    Moved(NodeId, Vec<Ticket>),
    /// The home at that node, perhaps a new one, has admitted this half. This many more values may be sent at
    /// once. Values taken from now on are taken by that node.
    Home(NodeId, Terms, u32),
    /// The end may be [packed](crate::Machine::pack_sender) now.
    Rests,
    /// The packed end is not here any more.
    Departed,
}

/// The sending half of a channel, at its node.
#[derive(Clone, Debug)]
pub(crate) struct Proxy {
    pub(crate) home: NodeId,
    /// `None`: the home has not sent them.
    pub(crate) terms: Option<Terms>,
    /// It has attached, and the home has not answered.
    pub(crate) unanswered: bool,
    /// Its receiver has gone into a message, which frames about the end would overtake. The home is there
    /// once it has sent its terms.
    pub(crate) early: bool,
    pub(crate) open: Open,
    /// The offered values that are [not small](limits::AHEAD_SMALL), with their lengths. Settled ones are
    /// removed when the next is to be offered.
    pub(crate) ahead: Vec<(Ticket, u64)>,
    /// Offers for which the home has no room yet.
    pub(crate) backlog: VecDeque<(Ticket, Waiting)>,
    pub(crate) credits: u64,
    /// How many of these the driver knows of. The others wait until less is queued for the connection.
    pub(crate) told: u64,
    /// The assumed cost of the next value sent on a credit.
    pub(crate) likely: u64,
    /// It has retired the channel: nothing more is sent on its credits.
    pub(crate) spent: bool,
    /// The end is gone here; its open offers have yet to be settled.
    pub(crate) gone: bool,
    /// The home has retired the channel: nothing is offered any more, but values sent on credits still go
    /// there.
    pub(crate) retired: bool,
    /// The home has been notified that the end is gone, after the last offer.
    pub(crate) gone_said: bool,
    /// Where the end came from, and where it goes.
    pub(crate) way: Way,
    /// The source that is charged for it: it arrived in a message from a node of that source.
    pub(crate) paid_by: Option<Source>,
}

#[derive(Clone, Debug)]
pub(crate) enum Waiting {
    Value(Bytes),
    Unread(Bytes),
    Choice(ChoiceId),
    /// Sent on a credit of the previous home.
    Sent(Bytes),
}

/// The assumed cost of the first value sent on a credit, unless its driver has set
/// [one](crate::Machine::expect_values). About sixteen such values may be sent before the estimate adapts.
const LIKELY: u64 = 512 << 10;

/// The most credits that the driver gets at once, however many the home grants.
const TOLD_MAX: u64 = 1024;

/// How many offers may be open until the home has sent its terms.
pub(crate) const FIRST_WINDOW: u32 = 1;

impl Proxy {
    pub(crate) fn new(home: NodeId) -> Self {
        Self {
            home,
            terms: None,
            unanswered: false,
            early: false,
            open: Open::default(),
            ahead: Vec::new(),
            backlog: VecDeque::new(),
            credits: 0,
            told: 0,
            likely: LIKELY,
            spent: false,
            gone: false,
            retired: false,
            gone_said: false,
            way: Way::default(),
            paid_by: None,
        }
    }

    /// Whether the next offer may go. A home on this node charges nothing to other nodes.
    pub(crate) fn has_room(&mut self, is_here: bool) -> bool {
        let Some((_, next)) = self.backlog.front() else { return false };
        let total = match next {
            Waiting::Sent(_) => return true,
            Waiting::Value(value) | Waiting::Unread(value) => value.len() as u64,
            Waiting::Choice(_) => 0,
        };
        if self.open.len() as u32 >= self.terms.map_or(FIRST_WINDOW, |terms| terms.window) {
            return false;
        }
        if is_here || self.ahead.is_empty() {
            return true;
        }
        let Self { open, ahead, .. } = self;
        ahead.retain(|(ticket, _)| open.get(ticket) == Some(&Standing::Firm));
        may_stand(ahead.iter().map(|(_, bytes)| bytes).sum(), total)
    }

    /// Records an offered value.
    pub(crate) fn stands(&mut self, ticket: Ticket, total: u64) {
        self.open.insert(ticket, Standing::Firm);
        if total > limits::AHEAD_SMALL {
            self.ahead.push((ticket, total));
        }
    }

    /// The driver sends a value of this cost on one of its credits.
    pub(crate) fn spends(&mut self, cost: u64) {
        self.credits -= 1;
        self.told = self.told.saturating_sub(1);
        self.likely = cost.max(self.likely - self.likely.saturating_sub(cost) / 16);
    }

    /// How many of the credits unknown to the driver to announce now, if `room` more bytes may be queued. A
    /// few are not worth an event.
    pub(crate) fn tells_credits(&mut self, room: u64) -> u32 {
        let most = (room / self.likely).clamp(room.min(1), TOLD_MAX);
        let more = (self.credits - self.told).min(most.saturating_sub(self.told));
        if self.told > 0 && more < most / 4 {
            return 0;
        }
        self.told += more;
        more as u32
    }

    /// Whether the value is larger than the home's terms allow.
    pub(crate) fn is_too_large(&self, value: &Bytes) -> bool {
        self.terms.is_some_and(|terms| value.len() as u64 > terms.value_max)
    }

    /// Whether nothing is left to send or receive. The home's answer to this attachment must not reach the
    /// next one.
    pub(crate) fn is_over(&self) -> bool {
        self.gone_said && !self.unanswered && self.open.is_empty()
    }
}

impl Proxy {
    /// Whether it may send to its home now.
    pub(crate) fn may_speak(&self) -> bool {
        self.way.state == Whereabouts::Known && self.way.again.is_empty()
    }

    /// Inserts an offer that is made again before later ones.
    pub(crate) fn wait_in_place(&mut self, ticket: Ticket, what: Waiting) {
        let later = |(other, _): &(Ticket, Waiting)| place_in_line(*other) > place_in_line(ticket);
        let at = self.backlog.iter().position(later).unwrap_or(self.backlog.len());
        self.backlog.insert(at, (ticket, what));
    }

    /// How many offers are not settled.
    pub(crate) fn standing(&self) -> usize {
        self.open.len() + self.backlog.len() + self.way.again.len()
    }

    /// Whether it is lost together with this node.
    pub(crate) fn needs(&self, node: NodeId) -> bool {
        match self.way.state {
            _ if self.way.over.is_some() => false,
            Whereabouts::Known | Whereabouts::Taking { .. } => self.home == node,
            Whereabouts::Asking => self.way.sponsor.as_ref().is_some_and(|(sponsor, _)| *sponsor == node),
            Whereabouts::Resting => false,
        }
    }
}

impl Concerns for Proxy {
    fn concerns(&self, each: &mut dyn FnMut(NodeId)) {
        each(self.home);
        let Way { sponsor, givers, askers, lent, .. } = &self.way;
        sponsor.iter().for_each(|(sponsor, _)| each(*sponsor));
        givers.iter().chain(lent).for_each(|(node, _)| each(*node));
        askers.iter().for_each(|(asker, _)| each(*asker));
    }
}

/// A channel whose receiver is here.
#[derive(Clone, Debug)]
pub(crate) struct Home {
    pub(crate) terms: Terms,
    pub(crate) declaration: Arc<Declaration>,
    /// Whether several nodes may have a sending half.
    pub(crate) many: bool,
    pub(crate) attached: SortedMap<NodeId, Attached>,
    pub(crate) rare: Seldom<Rare>,
    /// Whether the receiver is here or in a message.
    pub(crate) phase: Seldom<HomePhase>,
    /// What the values in its buffer cost.
    pub(crate) buffered: Ledger,
}

/// State that most homes do not have, such as those that wait for their first sending half.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rare {
    /// The only node whose sending half may attach.
    pub(crate) awaits: Option<NodeId>,
    /// How it ended, if it has; then it only waits for its proxies to notice.
    pub(crate) ended: Option<End>,
    /// Counts the homes that the channel had before this one.
    pub(crate) epoch: u64,
    /// The number of the sender's last known move.
    pub(crate) transfer: u64,
    /// The source that is charged for it: the receiver arrived in a message from a node of that source.
    pub(crate) paid_by: Option<Source>,
}

impl First for Rare {
    fn first() -> &'static Self {
        static NOTHING: Rare = Rare { awaits: None, ended: None, epoch: 0, transfer: 0, paid_by: None };
        &NOTHING
    }
}

impl Home {
    pub(crate) fn new(terms: Terms, declaration: Arc<Declaration>, many: bool) -> Self {
        Self {
            terms,
            declaration,
            many,
            attached: SortedMap::new(),
            rare: Seldom::default(),
            phase: Seldom::default(),
            buffered: Ledger::default(),
        }
    }

    /// Whether its sending half is at this node, or will be.
    pub(crate) fn is_of(&self, node: NodeId) -> bool {
        self.attached.contains_key(&node) || (self.attached.is_empty() && self.rare.awaits == Some(node))
    }
}

impl Concerns for Home {
    fn concerns(&self, each: &mut dyn FnMut(NodeId)) {
        self.attached.keys().copied().chain(self.rare.awaits).for_each(&mut *each);
        self.phase.concerns(each);
    }
}

/// A home's record of a node with a sending half.
#[derive(Clone, Debug)]
pub(crate) struct Attached {
    pub(crate) open: Open,
    /// What the values of these offers here cost.
    pub(crate) charges: Charges,
    /// The cost of the half itself.
    pub(crate) place: Charge,
    /// Credits granted and not used.
    pub(crate) credits: u64,
    /// The half has retired the channel, or acknowledged that this home has: it sends nothing more on
    /// credits.
    pub(crate) retired: bool,
    /// The half is gone; its offers stay.
    pub(crate) gone: bool,
    /// It has been notified that this is its home.
    pub(crate) told: bool,
}

impl Attached {
    pub(crate) fn new(credits: u32) -> Self {
        Self {
            open: Open::default(),
            charges: Charges::default(),
            place: Charge::NONE,
            credits: credits.into(),
            retired: false,
            gone: false,
            told: true,
        }
    }

    /// A value is offered, whose bytes are here.
    pub(crate) fn offered(&mut self, ticket: Ticket, head: Head, charge: Charge) {
        self.open.insert(ticket, Standing::Firm);
        self.charges.add(ticket, head.kind(), charge);
    }
}

/// Checks that a node with a sending half may send this.
pub(crate) fn check_value(terms: Terms, from: &Attached, head: Head) -> Result<(), PeerMisbehaved> {
    match head {
        _ if from.gone => Err(PeerMisbehaved::HalfGone),
        Head::Offer(ticket) | Head::Unread(ticket) if from.open.contains_key(&ticket) => {
            Err(PeerMisbehaved::TicketInUse(ticket))
        }
        Head::Offer(_) | Head::Unread(_) if from.open.len() >= terms.window as usize => {
            Err(PeerMisbehaved::WindowFull { window: terms.window })
        }
        Head::Grant(ticket, _) | Head::GrantUnread(ticket, _)
            if matches!(from.open.get(&ticket), Some(Standing::Firm | Standing::Held)) =>
        {
            Err(PeerMisbehaved::NotAChoice(ticket))
        }
        Head::Sent if from.retired => Err(PeerMisbehaved::SentAfterEnd),
        Head::Sent if from.credits == 0 => Err(PeerMisbehaved::NoCredit),
        Head::Offer(_) | Head::Unread(_) | Head::Grant(..) | Head::GrantUnread(..) | Head::Sent => Ok(()),
    }
}
