//! What is known of ends that travel, at each node on their way.

use std::collections::{BTreeMap, BTreeSet};

use crate::account::Ledger;
use crate::channel::by_node::Concerns;
use crate::id::{ChoiceId, NodeId, Ticket};
use crate::seldom::First;
use crate::source::Source;
use crate::wire::{End, Moved, Poison};

/// Which of its messages with ends that is, for the node that sends it.
pub type Trip = u64;

/// Whose message, and which.
pub(super) type Gift = (NodeId, Trip);

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
    /// Which message of its giver it is in: what these two say of it is said of that one.
    pub trip: Trip,
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
    /// As a sender's.
    pub trip: Trip,
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
    /// It is lost: after an unknown message there were two of it, and the other one is here, or was here
    /// later. Or its channel was over here before it came back.
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

/// Whoever took the end has said that it is gone, and that the message was taken is not known here yet.
pub(crate) type EarlyLapse = Option<Box<(NodeId, End)>>;

/// How the end that has left for this node is gone, if that is known already.
pub(super) fn take_early(early: &mut EarlyLapse, to: NodeId) -> Option<End> {
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
    pub(in crate::channel) sponsor: Option<(NodeId, Vec<String>)>,
    /// Where its home can be dialled, and who has said so: as long as it is not used, nobody else here is
    /// told.
    pub(in crate::channel) told: Option<(NodeId, Vec<String>)>,
    /// Who gave it, and has to hear if it is dropped or lost before its home knows it. An end that has come
    /// back by another way has several: all but one will say that theirs is settled.
    pub(in crate::channel) givers: Vec<Gift>,
    /// It is in this message...
    pub(in crate::channel) packed: Option<Trip>,
    /// ... or with this node, which took it from that one, or further on.
    pub(in crate::channel) lent: Option<Gift>,
    pub(in crate::channel) early: EarlyLapse,
    /// Whoever has it is to use it.
    pub(in crate::channel) hurried: bool,
    /// Another node may have it as well: whoever is first at the home has it.
    pub(in crate::channel) doubtful: bool,
    /// Nodes that wait to hear where the home is, and for which epoch.
    pub(in crate::channel) askers: Vec<(NodeId, u64)>,
    /// The [places](place_in_line) of offers that its user has yet to make again.
    pub(crate) again: BTreeSet<u64>,
    /// Who offers what no value has been said of.
    pub(crate) choices: BTreeMap<Ticket, ChoiceId>,
    /// Offers that have been asked back.
    pub(crate) withdrawing: BTreeSet<Ticket>,
    /// Values were sent on credits, or how the channel was ended here was said, since the home last said that
    /// all has arrived, and that it has been asked.
    pub(crate) undrained: bool,
    pub(in crate::channel) draining: bool,
    /// What is to be said behind the offers, when the home is known again: poison may be too weak, and follow
    /// a retirement.
    pub(crate) late_ends: Vec<End>,
    /// It is gone because whoever had it is lost, here or where it went.
    pub(crate) heir_lost: bool,
    /// The channel is over; the record waits for the message with the end.
    pub(crate) over: Option<End>,
    /// Who gave the sender has heard that the channel is retired.
    pub(in crate::channel) retired_before: bool,
}

/// Of two offers the one with the smaller place is the older one: tickets count up from zero, but for those
/// from 2^63 on, which are of values that were there before all offers. Its own inverse.
pub(in crate::channel) fn place_in_line(ticket: Ticket) -> u64 {
    ticket ^ (1 << 63)
}

impl Way {
    /// Whether the end is in a message, or with somebody who took it from one.
    pub(crate) fn is_away(&self) -> bool {
        self.packed.is_some() || self.lent.is_some()
    }

    /// To be said when the home is known again. Of several poisons that is the strongest.
    pub(crate) fn end_late(&mut self, how: End) {
        let as_good = |other: &End| match (other, &how) {
            (End::Poisoned(other), End::Poisoned(poison)) => other.strength >= poison.strength,
            (other, how) => other == how,
        };
        if !self.late_ends.iter().any(as_good) {
            self.late_ends.retain(|other| !matches!((other, &how), (End::Poisoned(_), End::Poisoned(_))));
            self.late_ends.push(how);
        }
    }
}

/// Whether a home's receiver is there.
#[derive(Clone, Debug, Default)]
pub(crate) struct HomePhase {
    /// Which message with the receiver counts.
    pub(super) claim: u64,
    /// It is in this message...
    pub(super) packed: Option<Trip>,
    /// ... or with this node, which took it from that one, or further on.
    pub(super) lent: Option<Gift>,
    pub(super) early: EarlyLapse,
    /// How the sender has ended the channel.
    pub(super) ended: Option<End>,
    pub(super) stage: Stage,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    #[default]
    Here,
    /// It is used at that node; the driver has been told.
    Asked(NodeId),
    /// The sender has been told.
    Leaving(NodeId),
    /// The sender is quiet; the driver has yet to give the values.
    Emptying(NodeId),
}

impl First for HomePhase {
    fn first() -> &'static Self {
        static HERE: HomePhase =
            HomePhase { claim: 0, packed: None, lent: None, early: None, ended: None, stage: Stage::Here };
        &HERE
    }
}

impl HomePhase {
    /// The nodes of whose loss it has to hear.
    pub(crate) fn concerns(&self, each: &mut dyn FnMut(NodeId)) {
        self.lent.iter().for_each(|(to, _)| each(*to));
        match self.stage {
            Stage::Here => {}
            Stage::Asked(to) | Stage::Leaving(to) | Stage::Emptying(to) => each(to),
        }
    }

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

    /// How the sender has ended the channel. Poison counts after all else. Only where the receiver is it is
    /// known whether poison is strong enough; so what may be too weak is kept while that is away, and hides
    /// no loss. (A retirement that it hides is said again to the next home.)
    pub(crate) fn ended_by_sender(&mut self, how: &End) {
        let may_be_weak = |poison: &Poison| poison.strength < u8::MAX;
        let counts = match (&self.ended, how) {
            (_, End::Poisoned(poison)) if may_be_weak(poison) && !self.is_away() => false,
            (Some(End::Poisoned(before)), End::Poisoned(poison)) => poison.strength > before.strength,
            (Some(End::Poisoned(before)), End::Lost) => may_be_weak(before),
            (None, _) | (_, End::Poisoned(_)) => true,
            (Some(_), _) => false,
        };
        if counts {
            self.ended = Some(how.clone());
        }
    }
}

/// A receiver that came in a message, and is not home yet.
#[derive(Clone, Debug)]
pub(crate) struct Visitor {
    pub(super) place: ReceiverPlace,
    /// Who has said so.
    pub(super) by: NodeId,
    /// As a sender's.
    pub(super) givers: Vec<Gift>,
    pub(super) packed: Option<Trip>,
    pub(super) lent: Option<Gift>,
    pub(super) early: EarlyLapse,
    pub(super) hurried: bool,
    pub(super) doubtful: bool,
    /// It is used.
    pub(super) fetching: bool,
    pub(super) state: Option<Moved>,
    /// So many values are still to come; the driver has been told of all.
    pub(super) missing: u64,
    pub(super) arrived: bool,
    /// Senders that have been told of this home before it is one.
    pub(super) takers: Vec<(NodeId, u64)>,
    /// Those of them that are lost.
    pub(super) lost: BTreeSet<NodeId>,
    /// The sender's node, if it was lost after the driver had been told that all is here.
    pub(super) lost_late: Option<NodeId>,
    /// Nodes that have yet to answer the fetches of a receiver that this one has replaced: too late.
    pub(super) late_answers: Vec<NodeId>,
    pub(super) over: Option<End>,
    /// What the values cost that have come.
    pub(crate) buffered: Ledger,
    /// It came in a message from a node of that source, which pays for it.
    pub(crate) paid_by: Option<Source>,
}

impl Concerns for Visitor {
    fn concerns(&self, each: &mut dyn FnMut(NodeId)) {
        each(self.place.home);
        self.givers.iter().chain(&self.lent).for_each(|(node, _)| each(*node));
        self.takers.iter().for_each(|(taker, _)| each(*taker));
        self.late_answers.iter().for_each(|node| each(*node));
        let sender = self.state.as_ref().and_then(|state| state.sender.as_ref());
        sender.iter().for_each(|(node, _)| each(*node));
    }
}

impl Visitor {
    /// The node where its home is, or was.
    pub(crate) fn old_home(&self) -> NodeId {
        self.place.home
    }

    pub(super) fn is_away(&self) -> bool {
        self.packed.is_some() || self.lent.is_some()
    }
}

/// So many nodes may wait for a word about one end. Honestly there is one, or two if it was not known what
/// became of a message.
const WAITING_MAX: usize = 16;

/// How a node waits for a word about an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    Anew,
    /// It has waited already, and what it waits for now counts.
    Again,
    /// Too many wait: it does not.
    InVain,
}

/// That node waits for this: an epoch, or what follows on its transfer.
pub(super) fn wait_for_word(waiting: &mut Vec<(NodeId, u64)>, node: NodeId, number: u64) -> Waits {
    if let Some((_, before)) = waiting.iter_mut().find(|(other, _)| *other == node) {
        *before = number.max(*before);
        return Waits::Again;
    }
    if waiting.len() >= WAITING_MAX {
        return Waits::InVain;
    }
    waiting.push((node, number));
    Waits::Anew
}

/// Forgets one of the givers. `false`: that is not one.
pub(super) fn forget_giver(givers: &mut Vec<Gift>, gift: Gift) -> bool {
    let found = givers.iter().position(|giver| *giver == gift);
    found.map(|at| givers.remove(at)).is_some()
}
