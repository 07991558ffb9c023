//! Channels whose two ends are on two nodes: the *home*, where the receiver is, and *proxies*, where senders
//! are.
//!
//! The queue itself (policy, order, choice) is the driver's, `dunlin_core`'s with an agent at each side. What
//! is here carries what the agents say, checks what comes from the network against what can be, and settles
//! what is open when a connection dies.

pub(crate) mod by_node;
mod home;
mod kept;
mod open;
mod peers;
mod proxy;
#[cfg(test)]
mod tests;
mod travel;

use open::{Open, Standing};
pub(crate) use peers::{Peers, Place};
use travel::state::EarlyLapse;
pub(crate) use travel::state::Visitor;
pub use travel::state::{Arrival, Leaving, ReceiverPlace, SenderPlace, Trip};
pub use travel::{Passage, Stand, Unsettled};

use std::collections::{BTreeMap, VecDeque};
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

/// All channels of a node, as far as other nodes have to do with them.
///
/// Methods that need those nodes take them as [`Peers`]. What drivers may call is described at the methods of
/// [`Machine`](crate::Machine) that have the same names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Channels {
    // Boxed: a node of a B-tree is about half empty, and they are large.
    pub(crate) homes: ByNode<Box<Home>>,
    pub(crate) proxies: ByNode<Box<Proxy>>,
    /// Receivers that have come here in messages, and are not used yet.
    pub(crate) visitors: ByNode<Visitor>,
    /// The channels of guests, and what they cost which node, until their halves attach.
    guests: BTreeMap<ChannelId, (Contact, Charge)>,
    /// How many messages with ends have been packed.
    trips: Trip,
    /// The messages with ends in them that go through this node, and have not been taken: whether the end is
    /// gone is known there, and not here.
    pub(crate) passing: BTreeMap<Trip, EarlyLapse>,
    /// Ends from here that are not in use elsewhere are [asked](crate::Machine::hurry) to be.
    hurries: bool,
}

/// What the driver of a home hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HomeHears {
    /// A node has a sending half.
    Attached,
    /// A value is offered.
    Offered(Ticket, Bytes),
    /// A value is offered that stays where it is: what says where it can be read
    /// ([`Machine::read`](crate::Machine::read)), by whatever node that goes on to. Whoever wants the value
    /// here reads it, too; the offer stands as it did.
    OfferedUnread(Ticket, Bytes),
    /// A choice offers something.
    OfferedByChoice(Ticket, ChoiceId),
    /// The value that was asked for.
    Granted(Ticket, Request, Bytes),
    /// Where the value can be read that was asked for. One that cannot be has [failed](Failure::Unread).
    GrantedUnread(Ticket, Request, Bytes),
    /// A value that was sent on a credit. If the channel has ended here it comes too late to be received, but
    /// the ends in it have left their node with it: they are this node's, to be dropped.
    Sent(Bytes),
    /// A node would like to send a value that has no room now. It has more if a receive waits for it: say
    /// [`Machine::awaited`](crate::Machine::awaited) as soon as one does.
    Announced,
    /// The offer is asked back: answer with [`Machine::withdrawn`](crate::Machine::withdrawn), unless its end
    /// has been told.
    Withdraw(Ticket),
    /// The reservation is asked back.
    Revoke(Ticket),
    /// The sending half has ended the channel, or is gone. Also when this home has retired the channel, or
    /// poisoned it and holds nothing: then nothing more is on its way.
    Ended(End),
    /// The sending half's node is lost; its offers that stand do so no more.
    Lost(Vec<Ticket>),
    /// The sender is at that node now, and at no other: credits that others had are void; [its
    /// own](crate::Machine::credits_of) are not. Answer with [`Machine::admit`](crate::Machine::admit).
    Take,
    /// The receiver, which had left in a message, is used at that node. When all is said of what was taken
    /// here, say [`Machine::leave_home`](crate::Machine::leave_home).
    Leave,
    /// Nothing more comes here: answer with [`Machine::ship`](crate::Machine::ship). Offers that stand here
    /// do so no more, and are made anew at the new home.
    Empty,
    /// The receiver can be used here, and the values of its buffer have been heard before: answer with
    /// [`Machine::install`](crate::Machine::install). How the sender has ended the channel.
    Arrived(Option<End>),
    /// The receiver, which had left in a message, was dropped unused, or is lost.
    Lapsed(End),
    /// The receiver that came here cannot be had: its channel is over, or lost, or another one has it.
    Failed(End),
}

/// What the driver of a proxy hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProxyHears {
    /// The home knows this half.
    Attached(Terms),
    /// The home does not accept this half. Nothing that was sent has been taken.
    Rejected(Rejection),
    /// A receive has returned the value, at that node: [`Machine::sender_left`](crate::Machine::sender_left)
    /// is to be told this of the ends in it.
    Taken(Ticket, Contact),
    /// An extended receive has returned the value, at that node.
    Held(Ticket, Contact),
    /// The extended receive is over.
    Released(Ticket),
    /// The offer has failed.
    Failed(Ticket, Failure),
    /// The offer that was asked back has not been taken.
    Withdrawn(Ticket),
    /// What the choice offers is asked for.
    Reserve(Ticket, Request),
    /// The reservation is given up.
    Abort(Ticket),
    /// What is offered is to go on to another node, and the ends in it have to be said so that they can
    /// ([`Machine::pair`](crate::Machine::pair)). An offer of a value is over, and is to be made again. A
    /// choice's stands: its reservation will be given up, and it is asked for anew.
    Onward(Ticket),
    /// Offers of so many bytes or more are to be [unread](crate::Machine::offer_unread) from here on. Zero:
    /// none any more.
    Unread(u64),
    /// So many more values may be sent at once.
    Credit(u32),
    /// The channel has ended. Offers that stand have failed. After [`End::Retired`], what has been sent on a
    /// credit still arrives: say [`Machine::end_proxy`](crate::Machine::end_proxy) behind the last of it.
    Ended(End),
    /// The home's node is lost.
    Lost {
        /// Offers of which nobody can know.
        unknown: Vec<Ticket>,
        /// Offers that have certainly not been taken.
        not_taken: Vec<Ticket>,
        /// Values that an extended receive had returned and not released: they were received.
        taken: Vec<Ticket>,
    },
    /// The channel's home moves to that node. These offers of values have not been taken: make each of them
    /// [again](crate::Machine::offer_again), in this order, or [withdraw](crate::Machine::withdraw) it. What
    /// choices offer still stands, without a word.
    Moved(NodeId, Vec<Ticket>),
    /// The home at that node, perhaps a new one, knows this half. So many more values may be sent at once.
    /// What is taken from now on, that node has taken.
    Home(NodeId, Terms, u32),
    /// The end may be [packed](crate::Machine::pack_sender) now.
    Rests,
    /// The end that was packed is not here any more.
    Departed,
}

/// The sending half of a channel, at its node.
#[derive(Clone, Debug)]
pub(crate) struct Proxy {
    pub(crate) home: NodeId,
    /// `None`: the home has not told them.
    pub(crate) terms: Option<Terms>,
    /// It has been attached, and the home has not answered.
    pub(crate) unanswered: bool,
    /// Its receiver has gone into a message, which what is said of the end would overtake: the home is there
    /// when it has told its terms.
    pub(crate) early: bool,
    pub(crate) open: Open,
    /// Of those that are offered, the lengths of the values that are [not small](limits::AHEAD_SMALL). What
    /// stands no more is looked for when the next is to be offered.
    pub(crate) ahead: Vec<(Ticket, u64)>,
    /// Offers that the home has no room for yet.
    pub(crate) backlog: VecDeque<(Ticket, Waiting)>,
    pub(crate) credits: u64,
    /// Of these, so many the driver has been told of. The others wait until less is queued for the
    /// connection.
    pub(crate) told: u64,
    /// What the next value that is sent on a credit is taken to cost.
    pub(crate) likely: u64,
    /// It has retired the channel: nothing more is sent on its credits.
    pub(crate) spent: bool,
    /// The end is gone here; what is open is still to be settled.
    pub(crate) gone: bool,
    /// The home has retired the channel: nothing is offered any more, but what has been sent on credits goes
    /// there yet.
    pub(crate) retired: bool,
    /// The home has been told so. It is told behind the last offer.
    pub(crate) gone_said: bool,
    /// Where it came from, and where it goes.
    pub(crate) way: Way,
    /// It came in a message from a node of that source, which pays for it.
    pub(crate) paid_by: Option<Source>,
}

#[derive(Clone, Debug)]
pub(crate) enum Waiting {
    Value(Bytes),
    Unread(Bytes),
    Choice(ChoiceId),
    /// On a credit of the home before this one.
    Sent(Bytes),
}

/// What the first value that is sent on a credit is taken to cost, if its driver
/// [knows](crate::Machine::expect_values) nothing of it: it may be sent sixteen times before it is known
/// better.
const LIKELY: u64 = 512 << 10;

/// A driver is told of no more credits than these at once, however many the home gives.
const TOLD_MAX: u64 = 1024;

/// Until the home has told its terms, so many offers may stand.
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

    /// Whether the next offer may go. At a home on this node nothing is kept for another one.
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

    /// A value is offered.
    pub(crate) fn stands(&mut self, ticket: Ticket, total: u64) {
        self.open.insert(ticket, Standing::Firm);
        if total > limits::AHEAD_SMALL {
            self.ahead.push((ticket, total));
        }
    }

    /// The driver sends a value of this cost on one of the credits.
    pub(crate) fn spends(&mut self, cost: u64) {
        self.credits -= 1;
        self.told = self.told.saturating_sub(1);
        self.likely = cost.max(self.likely - self.likely.saturating_sub(cost) / 16);
    }

    /// Of credits that the driver has not been told of, how many it is told of now, if so many bytes more may
    /// be queued. A few are not worth a word.
    pub(crate) fn tells_credits(&mut self, room: u64) -> u32 {
        let most = (room / self.likely).clamp(room.min(1), TOLD_MAX);
        let more = (self.credits - self.told).min(most.saturating_sub(self.told));
        if self.told > 0 && more < most / 4 {
            return 0;
        }
        self.told += more;
        more as u32
    }

    /// Whether the home has said that it takes no value of this size.
    pub(crate) fn is_too_large(&self, value: &Bytes) -> bool {
        self.terms.is_some_and(|terms| value.len() as u64 > terms.value_max)
    }

    /// Whether nothing is left to be heard or said. What the home answers to the attachment must not meet the
    /// next one.
    pub(crate) fn is_over(&self) -> bool {
        self.gone_said && !self.unanswered && self.open.is_empty()
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
    pub(crate) attached: BTreeMap<NodeId, Attached>,
    pub(crate) rare: Seldom<Rare>,
    /// Whose receiver this is, if it is in a message.
    pub(crate) phase: Seldom<HomePhase>,
    /// What the values in its buffer cost.
    pub(crate) buffered: Ledger,
}

/// What most homes have none of, as those that wait for their first sending half.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rare {
    /// The node whose sending half is to come; no other may.
    pub(crate) awaits: Option<NodeId>,
    /// How it ended; then it only waits for its proxies to notice.
    pub(crate) ended: Option<End>,
    /// Counts the homes that the channel had before this one.
    pub(crate) epoch: u64,
    /// The number of the sender's last move that is known here.
    pub(crate) transfer: u64,
    /// The receiver came in a message from a node of that source, which pays for it.
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
            attached: BTreeMap::new(),
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

/// What a home knows of a node with a sending half.
#[derive(Clone, Debug)]
pub(crate) struct Attached {
    pub(crate) open: Open,
    /// What the values of these offers cost that are here.
    pub(crate) charges: Charges,
    /// What it costs itself.
    pub(crate) place: Charge,
    /// Credits that are out.
    pub(crate) credits: u64,
    /// The half has retired the channel, or answered that this home has: it sends nothing more on credits.
    pub(crate) retired: bool,
    /// The half is gone; what it offered stays.
    pub(crate) gone: bool,
    /// It has been told that this is its home.
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
}

/// What a node with a sending half may not do.
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
