//! The state of travelling ends, at each node on their way.

use dunlin_sorted::{SortedMap, SortedSet};

use crate::account::Ledger;
use crate::channel::by_node::Concerns;
use crate::id::{ChoiceId, NodeId, Ticket};
use crate::seldom::First;
use crate::source::Source;
use crate::wire::{End, Moved, Poison};

/// The number of a message with ends, for the node that sends it.
pub type Trip = u64;

/// The giver of a message, and its number.
pub(super) type Gift = (NodeId, Trip);

/// Whether an end can be put into a message now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leaving<T> {
    /// It can, with these fields and in this message.
    Ready(T, Trip),
    /// Its uses are not settled: ask again after the next event of the channel.
    Wait,
    /// Its channel is over.
    Over(End),
}

/// The fields of a sender in a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SenderPlace {
    /// The number of its giver's message: reports between the two refer to that message.
    pub trip: Trip,
    /// The number of the sender's next move, as its home counts them.
    pub transfer: u64,
    /// The home's epoch.
    pub epoch: u64,
    /// The home, as far as the sponsor knows.
    pub home: NodeId,
    /// Where it can be dialled.
    pub addresses: Vec<String>,
    /// The node that answers for the sender until it is used again.
    pub sponsor: NodeId,
    /// Where the sponsor can be dialled.
    pub sponsor_addresses: Vec<String>,
}

/// The fields of a receiver in a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiverPlace {
    /// As in [`SenderPlace`].
    pub trip: Trip,
    /// The number of the message among those of the home with the receiver.
    pub claim: u64,
    /// The home's epoch.
    pub epoch: u64,
    /// The home.
    pub home: NodeId,
    /// Where it can be dialled.
    pub addresses: Vec<String>,
}

/// How an end that arrived in a message is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It is here, and has not been used.
    Guest,
    /// It had left from here unused: it is as it was.
    Returned,
    /// It is lost. After an unknown outcome there were two of it, and the other one is here, or was here
    /// later; or its channel ended here before it came back.
    Stale,
}

/// The state of a sending half with respect to its home.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Whereabouts {
    /// The home has admitted it.
    #[default]
    Known,
    /// It arrived in a message, and has not been used.
    Resting,
    /// It has sent `Take`. `moved`: an earlier home had admitted it, and has named this one.
    Taking { moved: bool },
    /// It has asked its sponsor where the home is.
    Asking,
}

/// The taker of the end has reported it gone before the outcome of the message is known here.
pub(crate) type EarlyLapse = Option<Box<(NodeId, End)>>;

/// How the end that left for this node is gone, if that is known already.
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
    /// The node that answers for it until its home has admitted it.
    pub(in crate::channel) sponsor: Option<(NodeId, Vec<String>)>,
    /// Where its home can be dialled, and the node that reported this. Until the end is used, nothing else
    /// here uses the addresses.
    pub(in crate::channel) told: Option<(NodeId, Vec<String>)>,
    /// The nodes that gave it, which are notified if it is dropped or lost before its home has admitted it.
    /// An end that has come back by another way has several: all but one will report theirs settled.
    pub(in crate::channel) givers: Vec<Gift>,
    /// It is in this message...
    pub(in crate::channel) packed: Option<Trip>,
    /// ... or with this node, which took it from that one, or further on.
    pub(in crate::channel) lent: Option<Gift>,
    pub(in crate::channel) early: EarlyLapse,
    /// The node that has it is to use it.
    pub(in crate::channel) hurried: bool,
    /// Another node may have it as well: the first of them at the home gets it.
    pub(in crate::channel) doubtful: bool,
    /// Nodes that have asked for the home, and the epoch that each asked for.
    pub(in crate::channel) askers: Vec<(NodeId, u64)>,
    /// The [places](place_in_line) of offers that its user has yet to make again.
    pub(crate) again: SortedSet<u64>,
    /// The choices behind open offers without a value.
    pub(crate) choices: SortedMap<Ticket, ChoiceId>,
    /// Offers that have been withdrawn.
    pub(crate) withdrawing: SortedSet<Ticket>,
    /// Whether values or the end of the channel were sent since the home last confirmed that everything had
    /// arrived; and whether it has been asked.
    pub(crate) undrained: bool,
    pub(in crate::channel) draining: bool,
    /// Endings to send after the offers, when the home is known again: poison may be too weak, and follow a
    /// retirement.
    pub(crate) late_ends: Vec<End>,
    /// It is gone because its holder is lost, here or where it went.
    pub(crate) heir_lost: bool,
    /// The channel is over; the record waits for the message with the end.
    pub(crate) over: Option<End>,
    /// The giver of the sender was notified that the channel is retired.
    pub(in crate::channel) retired_before: bool,
}

/// The offer with the smaller place is the older one. Tickets count up from zero, but those from 2^63 on are
/// of values that precede all offers. Its own inverse.
pub(in crate::channel) fn place_in_line(ticket: Ticket) -> u64 {
    ticket ^ (1 << 63)
}

impl Way {
    /// Whether the end is in a message, or with a node that took it from one.
    pub(crate) fn is_away(&self) -> bool {
        self.packed.is_some() || self.lent.is_some()
    }

    /// Queues an ending until the home is known again. Of several poisons the strongest stays.
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
    /// The claim that counts.
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
    /// It is used at that node; the driver has been notified.
    Asked(NodeId),
    /// The sender has been notified.
    Leaving(NodeId),
    /// The sender is quiet; the driver has yet to pass the values.
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
    /// The nodes whose loss affects it.
    pub(crate) fn concerns(&self, each: &mut dyn FnMut(NodeId)) {
        self.lent.iter().for_each(|(to, _)| each(*to));
        match self.stage {
            Stage::Here => {}
            Stage::Asked(to) | Stage::Leaving(to) | Stage::Emptying(to) => each(to),
        }
    }

    /// Whether the sender has been notified that the receiver is elsewhere.
    pub(crate) fn has_said_so(&self) -> bool {
        self.moves_to().is_some()
    }

    /// The node that the sender was notified of.
    pub(crate) fn moves_to(&self) -> Option<NodeId> {
        match self.stage {
            Stage::Leaving(to) | Stage::Emptying(to) => Some(to),
            Stage::Here | Stage::Asked(_) => None,
        }
    }

    /// Whether the receiver is in a message, or with a node that took it from one.
    pub(crate) fn is_away(&self) -> bool {
        self.packed.is_some() || self.lent.is_some() || self.stage != Stage::Here
    }

    /// Records how the sender has ended the channel. Poison overrides all else. Only the receiver's node
    /// knows whether poison is strong enough; so poison that may be too weak is kept while the receiver is
    /// away, and hides no loss. (The sender repeats a retirement that it hides to the next home.)
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

/// A receiver that arrived in a message, and is not home yet.
#[derive(Clone, Debug)]
pub(crate) struct Visitor {
    pub(super) place: ReceiverPlace,
    /// The node that reported its place.
    pub(super) by: NodeId,
    /// As in [`Way`].
    pub(super) givers: Vec<Gift>,
    pub(super) packed: Option<Trip>,
    pub(super) lent: Option<Gift>,
    pub(super) early: EarlyLapse,
    pub(super) hurried: bool,
    pub(super) doubtful: bool,
    /// It is used.
    pub(super) fetching: bool,
    pub(super) state: Option<Moved>,
    /// How many values are still to come; the driver has had events for all others.
    pub(super) missing: u64,
    pub(super) arrived: bool,
    /// Senders that were notified of this home before it is one.
    pub(super) takers: Vec<(NodeId, u64)>,
    /// The ones among them that are lost.
    pub(super) lost: SortedSet<NodeId>,
    /// The sender's node, if it was lost after the driver was notified that everything is here.
    pub(super) lost_late: Option<NodeId>,
    /// Nodes that have yet to answer the fetches of a receiver that this one has replaced: their answers are
    /// ignored.
    pub(super) late_answers: Vec<NodeId>,
    pub(super) over: Option<End>,
    /// What the values that have arrived cost.
    pub(crate) buffered: Ledger,
    /// The source that is charged for it: it arrived in a message from a node of that source.
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

/// How many nodes may wait for an answer about one end. Honestly there is one, or two after an unknown
/// outcome.
const WAITING_MAX: usize = 16;

/// How a node waits for an answer about an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    Anew,
    /// It was already waiting, and now waits for the greater number.
    Again,
    /// Too many wait: it does not.
    InVain,
}

/// Records that `node` waits for `number`: an epoch, or the answer to its transfer.
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

/// Removes one of the givers. `false`: it is not one.
pub(super) fn forget_giver(givers: &mut Vec<Gift>, gift: Gift) -> bool {
    let found = givers.iter().position(|giver| *giver == gift);
    found.map(|at| givers.remove(at)).is_some()
}
