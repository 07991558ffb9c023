//! Sends, receives and choices over links, whose values are encoded and decoded in their owners' polls:
//! `docs/choice.md`, section 3, *Reading*, with the messages of [`dunlin_core::remote`].
//!
//! Everything but the messages is modelled here: the polls of the parties, the queue of each channel's home,
//! and the decisions of choices. A poll is one step, unless user code runs in it: while a value is encoded or
//! decoded nothing is locked, and any other step may come first. A receive may also be dropped while it
//! decodes, as if that took several polls. A party is polled only if it was woken, so a lost wake-up shows as
//! partners that wait for each other.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};

use bytes::Bytes;
use dunlin_core::Why;
use dunlin_core::remote::{Ended, Word};

use crate::explore::World;

/// Request numbers start again after this one: fewer requests are ever under way, and the states stay finite.
const REQUESTS: u64 = 8;

/// A world to search.
#[derive(Clone, Debug, Default)]
pub struct Scenario {
    /// The name of the scenario.
    pub name: String,
    /// The nodes of the sender and the receiver of each channel.
    pub channels: &'static [(usize, usize)],
    /// The node, the script and the number of runs of each party. `!0` sends on channel 0, `?1` receives from
    /// channel 1. A `c` before them makes them the branches of a choice, an `e` those of one whose values are
    /// encoded when they are offered. Without either, several sends are posted together. Several parties may
    /// receive from one channel: they have handles of a shared receiver.
    pub parties: &'static [(usize, &'static str, usize)],
    /// How many operations are dropped.
    pub drops: u32,
    /// How many operations reach a deadline, or have another branch that is ready.
    pub expires: u32,
    /// How often decoding fails, or encoding for a grant.
    pub fails: u32,
    /// How many channels are retired at their homes.
    pub retires: u32,
    /// How many connections are lost for good. Each of the two nodes learns of it later.
    pub cuts: u32,
    /// A planted fault of the protocol.
    pub plant: Plant,
}

/// A planted fault, which the laws must find.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Plant {
    /// None.
    #[default]
    Nothing,
    /// A receive takes the offer, and decodes the value afterwards.
    DecidesFirst,
    /// A receive does not check, after decoding, whether the offer is still its own to take.
    BlindReader,
    /// A revoked reservation is answered by `Abort`, and its value stays granted.
    GrantKept,
    /// A receive whose value cannot be decoded decides its choice.
    UnreadableDecides,
    /// Receivers that passed over an offer being read are not woken when the read has ended.
    ForgetsReceivers,
    /// Reservations that arrived while the choice was closed are never examined again.
    ForgetsQueue,
    /// `Failed` does not give the reservation of the sender's choice back.
    KeepsReservation,
    /// A value that has been encoded is granted, even if its offer has an outcome meanwhile.
    GrantsBlindly,
    /// A choice stays open while one of its receives decodes.
    StaysOpen,
    /// A receiver takes a value although an earlier one of the same sender is being read.
    Overtakes,
    /// A reservation that is given up before its value has come is answered by `Abort` twice: at once, and
    /// when the value comes.
    AbortsTwice,
    /// A choice whose value could not be encoded withdraws its offer after it has been refused.
    RefusesAndWithdraws,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Decision {
    #[default]
    Open,
    /// Its owner runs user code in a poll.
    Busy,
    /// The home of this channel has been granted its value, under this request.
    By(usize, u64),
    Decided,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Fate {
    Open,
    Taken,
    Failed,
    Unknown,
}

#[derive(Clone, Debug, Hash)]
struct Branch {
    sends: bool,
    channel: usize,
    ticket: u64,
    /// For a send in a choice: its value is encoded.
    encoded: bool,
    fate: Fate,
}

/// A send, a receive, or a choice.
#[derive(Clone, Debug, Default, Hash)]
struct Operation {
    is_choice: bool,
    branches: Vec<Branch>,
    decision: Decision,
    /// Reservations that cannot be granted yet: channel and request.
    queue: VecDeque<(usize, u64)>,
    /// Its deadline has passed, or another branch is ready.
    leaving: bool,
    /// It has sent the `Withdraw` or `Revoke` for that.
    left: bool,
    /// A reservation was given back for this operation: its owner is polled before the next one is granted.
    turn: bool,
}

/// User code that runs in a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Code {
    Decodes { channel: usize, ticket: u64 },
    Encodes { channel: usize, request: u64 },
}

#[derive(Clone, Debug, Default, Hash)]
struct Party {
    operation: Option<Operation>,
    runs: usize,
    woken: bool,
    code: Option<Code>,
}

/// An offer as its home knows it.
#[derive(Clone, Debug, Hash)]
struct Offer {
    ticket: u64,
    choice: Option<u128>,
    /// Its value has arrived.
    granted: bool,
    /// The request, and the party that asks.
    ask: Option<(u64, usize)>,
    /// The party that decodes its value.
    reader: Option<usize>,
}

#[derive(Clone, Debug, Default, Hash)]
struct Channel {
    /// At the sending half: offers that have no outcome. `true`: withdrawn.
    unsettled: BTreeMap<u64, bool>,
    /// Whether it has ended at the sending half, and at the home.
    over: (bool, bool),
    /// At the home.
    offers: Vec<Offer>,
    watchers: BTreeSet<usize>,
    requests: u64,
}

/// All parties, and the messages between them.
#[derive(Clone, Debug)]
pub struct Reading {
    scenario: Scenario,
    parties: Vec<Party>,
    channels: Vec<Channel>,
    wires: BTreeMap<(usize, usize), VecDeque<(usize, Word)>>,
    /// Connections that are lost, and nodes that have not noticed it.
    cut: BTreeSet<(usize, usize)>,
    unheard: BTreeSet<(usize, (usize, usize))>,
    received: BTreeMap<(usize, u64), usize>,
    /// The results of sends. An operation that was dropped has none.
    fates: BTreeMap<(usize, u64), Fate>,
    /// Choices that have taken a branch, by party and run.
    chosen: BTreeSet<(usize, usize)>,
    broken: Option<String>,
}

/// A ticket names a party, a run and a branch. The tickets of one party ascend.
fn ticket(party: usize, run: usize, branch: usize) -> u64 {
    (party as u64) << 16 | (run as u64) << 8 | branch as u64
}

fn owner(ticket: u64) -> (usize, usize) {
    ((ticket >> 16) as usize, (ticket >> 8 & 0xff) as usize)
}

impl Reading {
    /// All parties before their first poll.
    pub fn new(scenario: Scenario) -> Self {
        let party = Party { woken: true, ..Party::default() };
        Self {
            parties: vec![party; scenario.parties.len()],
            channels: vec![Channel::default(); scenario.channels.len()],
            scenario,
            wires: BTreeMap::new(),
            cut: BTreeSet::new(),
            unheard: BTreeSet::new(),
            received: BTreeMap::new(),
            fates: BTreeMap::new(),
            chosen: BTreeSet::new(),
            broken: None,
        }
    }

    /// Whether a step of this name is a user's decision or a fault. The world must come to rest without them.
    pub fn is_by_chance(step: &str) -> bool {
        step.starts_with("by chance")
    }

    fn fail(&mut self, what: String) {
        self.broken.get_or_insert(what);
    }

    fn has(&self, plant: Plant) -> bool {
        self.scenario.plant == plant
    }

    fn wake(&mut self, me: usize) {
        self.parties[me].woken = true;
    }

    /// The end of a read wakes the other receivers: they may have passed over the remaining offers.
    fn ends_read(&mut self, channel: usize) {
        if !self.has(Plant::ForgetsReceivers) {
            self.wake_watchers(channel);
        }
    }

    fn wake_watchers(&mut self, channel: usize) {
        for me in std::mem::take(&mut self.channels[channel].watchers) {
            self.wake(me);
        }
    }

    fn say(&mut self, channel: usize, to_home: bool, word: Word) {
        let (sender, receiver) = self.scenario.channels[channel];
        let pair = if to_home { (sender, receiver) } else { (receiver, sender) };
        if !self.cut.contains(&(pair.0.min(pair.1), pair.0.max(pair.1))) {
            self.wires.entry(pair).or_default().push_back((channel, word));
        }
    }

    /// A choice takes a branch, or ends without one.
    fn choose(&mut self, (party, run): (usize, usize)) {
        if self.scenario.parties[party].1.starts_with(['c', 'e']) && !self.chosen.insert((party, run)) {
            self.fail(format!("choice {run} of party {party} takes two branches"));
        }
    }

    // ---- the home

    fn home_hears(&mut self, channel: usize, word: Word) {
        let here = &mut self.channels[channel];
        if here.over.1 {
            // The sending half learns from `Ended`, or from the loss, that the channel has ended.
            return;
        }
        let find = |ticket: u64| here.offers.iter().position(|offer| offer.ticket == ticket);
        match word {
            Word::Offer { ticket, .. } => {
                here.offers.push(Offer { ticket, choice: None, granted: true, ask: None, reader: None });
            }
            Word::OfferChoice { ticket, choice } => {
                here.offers.push(Offer { ticket, choice: Some(choice), granted: false, ask: None, reader: None });
            }
            Word::Grant { ticket, request, .. } => {
                let wanted = find(ticket).filter(|at| here.offers[*at].ask.is_some_and(|ask| ask.0 == request));
                if let Some(at) = wanted {
                    here.offers[at].granted = true;
                    let asker = here.offers[at].ask.map(|ask| ask.1);
                    asker.into_iter().for_each(|me| self.wake(me));
                } else if find(ticket).is_some() {
                    self.say(channel, false, Word::Abort { ticket });
                }
                return;
            }
            Word::Refuse { ticket } | Word::Withdraw { ticket } => {
                let Some(at) = find(ticket) else { return };
                here.offers.remove(at);
                if matches!(word, Word::Withdraw { .. }) {
                    self.say(channel, false, Word::Withdrawn { ticket });
                }
            }
            Word::Revoke { ticket } => {
                if let Some(at) = find(ticket).filter(|at| here.offers[*at].ask.is_some()) {
                    self.release(channel, at);
                }
                return;
            }
            other => return self.fail(format!("the home of {channel} gets {other:?}")),
        }
        self.wake_watchers(channel);
    }

    /// Gives up a reservation. The offer stands. `Abort` will answer a grant that has yet to arrive.
    fn release(&mut self, channel: usize, at: usize) {
        let (kept, twice) = (self.has(Plant::GrantKept), self.has(Plant::AbortsTwice));
        let offer = &mut self.channels[channel].offers[at];
        let (ticket, granted) = (offer.ticket, offer.granted);
        if !kept || !granted {
            (offer.ask, offer.granted, offer.reader) = (None, false, None);
        }
        if granted || twice {
            self.say(channel, false, Word::Abort { ticket });
        }
        self.wake_watchers(channel);
    }

    /// Gives up the requests of this party that `only` selects.
    fn release_asks(&mut self, me: usize, only: impl Fn(&Offer) -> bool) {
        for channel in 0..self.channels.len() {
            for at in 0..self.channels[channel].offers.len() {
                let offer = &self.channels[channel].offers[at];
                if offer.ask.is_some_and(|ask| ask.1 == me) && only(offer) {
                    self.release(channel, at);
                }
            }
        }
    }

    /// Examines a channel once. `true`: the poll ends here.
    fn receive(&mut self, me: usize, channel: usize) -> bool {
        let (overtakes, decides_first) = (self.has(Plant::Overtakes), self.has(Plant::DecidesFirst));
        let here = &mut self.channels[channel];
        if here.over.1 {
            self.finish(me, true);
            return true;
        }
        let mut asked = here.offers.iter().any(|offer| offer.ask.is_some_and(|ask| ask.1 == me));
        let mut reserve = None;
        for offer in &mut here.offers {
            if offer.reader.is_some() {
                // If this value is not taken, the values of its sender must still be in order.
                if offer.choice.is_none() && !overtakes {
                    break;
                }
            } else if offer.choice.is_none() || offer.granted && offer.ask.is_some_and(|ask| ask.1 == me) {
                offer.reader = Some(me);
                let ticket = offer.ticket;
                self.parties[me].code = Some(Code::Decodes { channel, ticket });
                if decides_first {
                    self.take(me, channel, ticket);
                } else if !self.has(Plant::StaysOpen)
                    && let Some(operation) = &mut self.parties[me].operation
                {
                    operation.decision = Decision::Busy;
                }
                return true;
            } else if offer.ask.is_none() && !asked {
                asked = true;
                here.requests = here.requests % REQUESTS + 1;
                offer.ask = Some((here.requests, me));
                reserve = Some(Word::Reserve { ticket: offer.ticket, request: here.requests });
            }
        }
        here.watchers.insert(me);
        reserve.into_iter().for_each(|word| self.say(channel, false, word));
        false
    }

    /// Decides: the offer is taken, and the receiver's choice ends.
    fn take(&mut self, me: usize, channel: usize, ticket: u64) {
        let here = &mut self.channels[channel];
        here.offers.retain(|offer| offer.ticket != ticket);
        self.say(channel, false, Word::Taken { ticket });
        if self.has(Plant::DecidesFirst) {
            self.choose(owner(ticket));
        } else {
            self.has_received(me, channel, ticket);
            self.choose(owner(ticket));
            self.choose((me, self.parties[me].runs));
            self.finish(me, false);
        }
        self.ends_read(channel);
    }

    fn has_received(&mut self, me: usize, channel: usize, ticket: u64) {
        if self.received.insert((channel, ticket), me).is_some() {
            self.fail(format!("offer {ticket:x} is received twice"));
        }
        if self.fates.get(&(channel, ticket)) == Some(&Fate::Failed) {
            self.fail(format!("offer {ticket:x} is received, and its sender has the value back"));
        }
        let later = self.received.iter().any(|((other, number), by)| {
            *other == channel && *by == me && owner(*number).0 == owner(ticket).0 && *number > ticket
        });
        if later {
            self.fail(format!("party {me} receives offer {ticket:x} behind a later one"));
        }
    }

    // ---- the sending half

    /// The branch of the operation that offers under this ticket, unless that operation has ended.
    fn branch(&mut self, ticket: u64) -> Option<(&mut Operation, usize)> {
        let (me, run) = owner(ticket);
        let party = &mut self.parties[me];
        let operation = party.operation.as_mut().filter(|_| party.runs == run)?;
        let at = operation.branches.iter().position(|branch| branch.ticket == ticket)?;
        Some((operation, at))
    }

    fn half_hears(&mut self, channel: usize, word: Word) {
        if self.channels[channel].over.0 {
            return;
        }
        match word {
            Word::Taken { ticket } => self.settle(channel, ticket, Fate::Taken),
            // It has crossed a `Refuse`.
            Word::Failed { ticket, .. } if !self.channels[channel].unsettled.contains_key(&ticket) => {}
            Word::Failed { ticket, .. } => self.settle(channel, ticket, Fate::Failed),
            Word::Withdrawn { ticket } => {
                if self.channels[channel].unsettled.get(&ticket) == Some(&false) {
                    self.fail(format!("offer {ticket:x} is withdrawn, and its sender has not asked for that"));
                }
                self.settle(channel, ticket, Fate::Failed);
            }
            Word::Reserve { ticket, request } => {
                // `Withdraw` or `Refuse` is the answer to this request.
                if self.channels[channel].unsettled.get(&ticket) != Some(&false) {
                    return;
                }
                let Some((operation, _)) = self.branch(ticket) else { return };
                if operation.decision == Decision::Decided {
                    self.channels[channel].unsettled.remove(&ticket);
                    return self.say(channel, true, Word::Refuse { ticket });
                }
                // The home has given up an earlier request for this offer.
                operation.queue.retain(|queued| queued.0 != channel);
                operation.queue.push_back((channel, request));
                self.serve(owner(ticket).0);
            }
            Word::Abort { ticket } => {
                let Some((operation, _)) = self.branch(ticket) else { return };
                if matches!(operation.decision, Decision::By(by, _) if by == channel) {
                    self.unlock(owner(ticket).0);
                }
            }
            Word::Ended(_) => {
                self.channels[channel].over.0 = true;
                let open: Vec<_> = self.channels[channel].unsettled.keys().copied().collect();
                open.into_iter().for_each(|ticket| self.settle(channel, ticket, Fate::Failed));
            }
            other => self.fail(format!("the sender of {channel} gets {other:?}")),
        }
    }

    /// Gives an offer its outcome.
    fn settle(&mut self, channel: usize, ticket: u64, fate: Fate) {
        if self.channels[channel].unsettled.remove(&ticket).is_none() {
            return self.fail(format!("offer {ticket:x} has two outcomes; the second is {fate:?}"));
        }
        let keeps = self.has(Plant::KeepsReservation);
        let me = owner(ticket).0;
        let Some((operation, at)) = self.branch(ticket) else { return };
        operation.branches[at].fate = fate;
        operation.queue.retain(|queued| queued.0 != channel);
        let reserved = matches!(operation.decision, Decision::By(by, _) if by == channel);
        match fate {
            _ if !operation.is_choice => {}
            Fate::Taken if reserved => operation.decision = Decision::Decided,
            Fate::Taken => return self.fail(format!("offer {ticket:x} is taken, and its choice was not reserved")),
            _ if reserved && !keeps => self.unlock(me),
            _ => {}
        }
        self.wake(me);
    }

    /// Releases the reservation of the choice.
    fn unlock(&mut self, me: usize) {
        if let Some(operation) = &mut self.parties[me].operation {
            operation.decision = Decision::Open;
            operation.turn = operation.leaving;
        }
        self.wake(me);
        self.serve(me);
    }

    /// User code has returned: the choice is open again.
    fn reopen(&mut self, me: usize) {
        self.wake(me);
        let forgets = self.has(Plant::ForgetsQueue);
        let Some(operation) = &mut self.parties[me].operation else { return };
        if operation.decision == Decision::Busy {
            operation.decision = Decision::Open;
        }
        if forgets {
            operation.queue.clear();
        }
        self.serve(me);
    }

    /// Grants the first request whose value is encoded. If there is none, the owner is woken to encode one.
    fn serve(&mut self, me: usize) {
        let Some(operation) = &mut self.parties[me].operation else { return };
        if operation.decision != Decision::Open || operation.turn {
            return;
        }
        let ready = operation.queue.iter().position(|(channel, _)| {
            operation.branches.iter().any(|branch| branch.sends && branch.channel == *channel && branch.encoded)
        });
        let Some((channel, request)) = ready.and_then(|at| operation.queue.remove(at)) else {
            let waits = !operation.queue.is_empty();
            self.parties[me].woken |= waits;
            return;
        };
        self.grant(me, channel, request);
    }

    fn grant(&mut self, me: usize, channel: usize, request: u64) {
        let Some(operation) = &mut self.parties[me].operation else { return };
        operation.decision = Decision::By(channel, request);
        operation.left = false;
        let branch = operation.branches.iter().find(|branch| branch.sends && branch.channel == channel);
        if let Some(ticket) = branch.map(|branch| branch.ticket) {
            self.say(channel, true, Word::Grant { ticket, request, value: Bytes::new() });
        }
    }

    // ---- the parties

    fn begin(&mut self, me: usize) {
        let (_, does, _) = self.scenario.parties[me];
        let run = self.parties[me].runs;
        let text = does.trim_start_matches(['c', 'e']);
        let is_choice = text != does;
        let branches = text.as_bytes().chunks(2).enumerate().map(|(at, branch)| Branch {
            sends: branch[0] == b'!',
            channel: usize::from(branch[1] - b'0'),
            ticket: ticket(me, run, at),
            encoded: does.starts_with('e'),
            fate: Fate::Open,
        });
        let branches: Vec<_> = branches.collect();
        let mut operation = Operation { is_choice, branches, ..Operation::default() };
        let choice = (me as u128) << 64 | run as u128;
        for branch in operation.branches.iter_mut().filter(|branch| branch.sends) {
            let here = &mut self.channels[branch.channel];
            if here.over.0 {
                branch.fate = Fate::Failed;
                continue;
            }
            here.unsettled.insert(branch.ticket, false);
            let word = match is_choice {
                true => Word::OfferChoice { ticket: branch.ticket, choice },
                false => Word::Offer { ticket: branch.ticket, value: Bytes::new() },
            };
            self.say(branch.channel, true, word);
        }
        self.parties[me].operation = Some(operation);
    }

    fn poll(&mut self, me: usize) {
        self.parties[me].woken = false;
        if self.parties[me].operation.is_none() {
            self.begin(me);
        }
        let Some(operation) = &self.parties[me].operation else { return };
        if operation.is_choice {
            return self.poll_choice(me);
        }
        if operation.branches[0].sends {
            if operation.branches.iter().all(|branch| branch.fate != Fate::Open) {
                self.finish(me, false);
            } else if operation.leaving && !operation.left {
                self.withdraw(me);
            }
            return;
        }
        let (channel, leaving) = (operation.branches[0].channel, operation.leaving);
        if !self.receive(me, channel) && leaving {
            self.finish(me, false);
        }
    }

    /// Withdraws all sends that have no outcome.
    fn withdraw(&mut self, me: usize) {
        let Some(operation) = &mut self.parties[me].operation else { return };
        operation.left = true;
        for branch in operation.branches.clone().into_iter().filter(|branch| branch.sends) {
            if let Some(withdrawn) = self.channels[branch.channel].unsettled.get_mut(&branch.ticket)
                && !std::mem::replace(withdrawn, true)
            {
                self.say(branch.channel, true, Word::Withdraw { ticket: branch.ticket });
            }
        }
    }

    fn poll_choice(&mut self, me: usize) {
        let count = self.parties[me].operation.as_ref().map_or(0, |operation| operation.branches.len());
        let choice = (me as u128) << 64 | self.parties[me].runs as u128;
        for at in 0..count {
            let Some(operation) = &mut self.parties[me].operation else { return };
            let branch = &operation.branches[at];
            let (channel, ticket) = (branch.channel, branch.ticket);
            match operation.decision {
                Decision::Decided => return self.finish(me, false),
                Decision::Busy => return,
                Decision::By(by, _) if operation.leaving && !operation.left => {
                    operation.left = true;
                    let held = operation.branches.iter().find(|branch| branch.sends && branch.channel == by);
                    if let Some(ticket) = held.map(|branch| branch.ticket) {
                        self.say(by, true, Word::Revoke { ticket });
                    }
                }
                // Of two choices that wait for each other, the lower one gives way.
                Decision::By(..) if !branch.sends => {
                    self.release_asks(me, |offer| offer.granted && offer.choice.is_some_and(|other| other > choice));
                }
                Decision::By(..) => {}
                Decision::Open if operation.leaving => {
                    self.choose((me, self.parties[me].runs));
                    return self.finish(me, false);
                }
                Decision::Open if !branch.sends => {
                    if self.receive(me, channel) {
                        return;
                    }
                }
                Decision::Open if branch.fate != Fate::Open => {
                    self.choose((me, self.parties[me].runs));
                    return self.finish(me, false);
                }
                Decision::Open => {
                    let asked = operation.queue.iter().find(|queued| queued.0 == channel && !branch.encoded);
                    if let Some((channel, request)) = asked.copied()
                        && self.channels[channel].unsettled.contains_key(&ticket)
                    {
                        operation.decision = Decision::Busy;
                        self.parties[me].code = Some(Code::Encodes { channel, request });
                        return;
                    }
                }
            }
        }
        if let Some(operation) = &mut self.parties[me].operation {
            operation.turn = false;
            self.serve(me);
        }
    }

    /// Ends an operation. `ended`: one of its receives has found the channel ended.
    fn finish(&mut self, me: usize, ended: bool) {
        let run = self.parties[me].runs;
        if ended {
            self.choose((me, run));
            let branches = self.parties[me].operation.iter().flat_map(|operation| &operation.branches);
            if !branches.filter(|branch| !branch.sends).any(|branch| self.channels[branch.channel].over.1) {
                self.fail(format!("a receive of party {me} ends without a value, and no channel is over"));
            }
        }
        if self.parties[me].operation.as_ref().is_some_and(|operation| matches!(operation.decision, Decision::By(..))) {
            self.fail(format!("party {me} ends a choice that is reserved"));
        }
        self.withdraw(me);
        let Some(operation) = self.parties[me].operation.take() else { return };
        for branch in operation.branches.iter().filter(|branch| branch.sends) {
            let fate = if branch.fate == Fate::Open { Fate::Failed } else { branch.fate };
            self.fates.insert((branch.channel, branch.ticket), fate);
            let received = self.received.contains_key(&(branch.channel, branch.ticket));
            let early = fate == Fate::Taken && !received && !self.has(Plant::DecidesFirst);
            if early || fate == Fate::Failed && received || fate == Fate::Unknown && self.cut.is_empty() {
                self.fail(format!("offer {:x} ends as {fate:?}; received: {received}", branch.ticket));
            }
        }
        self.leave(me);
    }

    /// The last step of every operation, dropped or not.
    fn leave(&mut self, me: usize) {
        self.parties[me].operation = None;
        self.channels.iter_mut().for_each(|channel| channel.watchers.retain(|other| *other != me));
        self.release_asks(me, |_| true);
        let party = &mut self.parties[me];
        party.runs += 1;
        party.woken = party.runs < self.scenario.parties[me].2;
    }

    /// User code returns. `well`: with a value, or its bytes.
    fn returns(&mut self, me: usize, well: bool) {
        match self.parties[me].code.take() {
            Some(Code::Encodes { channel, request }) => self.has_encoded(me, channel, request, well),
            Some(Code::Decodes { channel, ticket }) if self.has(Plant::DecidesFirst) => {
                if well {
                    self.has_received(me, channel, ticket);
                }
                self.finish(me, false);
            }
            Some(Code::Decodes { channel, ticket }) => {
                let blind = self.has(Plant::BlindReader);
                let here = &mut self.channels[channel];
                let at = here.offers.iter().position(|offer| offer.ticket == ticket && offer.reader == Some(me));
                match at {
                    _ if well && (at.is_some() || blind) => self.take(me, channel, ticket),
                    // The read was useless: the offer is gone, or no longer granted to this receive.
                    None => self.reopen(me),
                    Some(at) => {
                        here.offers.remove(at);
                        let why = Why::Closed;
                        self.say(channel, false, Word::Failed { ticket, why });
                        self.ends_read(channel);
                        if self.has(Plant::UnreadableDecides) {
                            return self.finish(me, true);
                        }
                        self.reopen(me);
                    }
                }
            }
            None => {}
        }
    }

    fn has_encoded(&mut self, me: usize, channel: usize, request: u64, well: bool) {
        let blindly = self.has(Plant::GrantsBlindly);
        let withdraws = self.has(Plant::RefusesAndWithdraws);
        let Some(operation) = &mut self.parties[me].operation else { return };
        let branch = operation.branches.iter_mut().find(|branch| branch.sends && branch.channel == channel);
        let Some(branch) = branch else { return };
        let (ticket, open) = (branch.ticket, branch.fate == Fate::Open);
        branch.encoded = well;
        if !well && open {
            branch.fate = Fate::Failed;
            operation.queue.retain(|queued| queued.0 != channel);
            self.say(channel, true, Word::Refuse { ticket });
            if !withdraws {
                self.channels[channel].unsettled.remove(&ticket);
            }
        } else if blindly && well {
            return self.grant(me, channel, request);
        }
        self.reopen(me);
    }

    /// An operation is dropped, in a poll or between two.
    fn drops(&mut self, me: usize) {
        let run = self.parties[me].runs;
        if let Some(Code::Decodes { channel, ticket }) = self.parties[me].code.take() {
            // The guard of the read. If the offer was granted, `leave` gives it back.
            let offer = self.channels[channel].offers.iter_mut().find(|offer| offer.ticket == ticket);
            if let Some(offer) = offer.filter(|offer| offer.reader == Some(me)) {
                offer.reader = None;
                self.ends_read(channel);
            }
        }
        let decision = self.parties[me].operation.as_ref().map(|operation| operation.decision);
        if matches!(decision, Some(Decision::Open | Decision::Busy)) {
            self.choose((me, run));
        }
        self.withdraw(me);
        self.leave(me);
    }

    // ---- what ends channels

    fn retire(&mut self, channel: usize) {
        self.channels[channel].over.1 = true;
        for offer in std::mem::take(&mut self.channels[channel].offers) {
            self.say(channel, false, Word::Failed { ticket: offer.ticket, why: Why::Closed });
        }
        self.say(channel, false, Word::Ended(Ended::Retired));
        self.wake_watchers(channel);
    }

    fn cut(&mut self, pair: (usize, usize)) {
        self.cut.insert(pair);
        self.wires.retain(|(from, to), _| (*from.min(to), *from.max(to)) != pair);
        self.unheard.extend([(pair.0, pair), (pair.1, pair)]);
    }

    fn hears_loss(&mut self, node: usize, pair: (usize, usize)) {
        self.unheard.remove(&(node, pair));
        for channel in 0..self.channels.len() {
            let (sender, receiver) = self.scenario.channels[channel];
            if (sender.min(receiver), sender.max(receiver)) != pair {
                continue;
            }
            if receiver == node {
                self.channels[channel].over.1 = true;
                self.channels[channel].offers.clear();
                self.wake_watchers(channel);
                continue;
            }
            self.channels[channel].over.0 = true;
            for ticket in std::mem::take(&mut self.channels[channel].unsettled).into_keys() {
                let Some((operation, at)) = self.branch(ticket) else { continue };
                operation.queue.retain(|queued| queued.0 != channel);
                let reserved = matches!(operation.decision, Decision::By(by, _) if by == channel);
                let unknown = reserved || !operation.is_choice;
                operation.branches[at].fate = if unknown { Fate::Unknown } else { Fate::Failed };
                if reserved {
                    operation.decision = Decision::Decided;
                }
                self.wake(owner(ticket).0);
            }
        }
    }

    fn deliver(&mut self, wire: (usize, usize)) {
        let Some((channel, word)) = self.wires.get_mut(&wire).and_then(VecDeque::pop_front) else { return };
        self.wires.retain(|_, words| !words.is_empty());
        if self.scenario.channels[channel].0 == wire.0 {
            self.home_hears(channel, word);
        } else {
            self.half_hears(channel, word);
        }
    }

    /// The steps that may happen by chance.
    fn chances(&self, next: &mut Vec<(String, Self)>) {
        let mut may = |budget: fn(&mut Scenario) -> &mut u32, what: String, happens: &dyn Fn(&mut Self)| {
            let mut world = self.clone();
            let left = budget(&mut world.scenario);
            if *left > 0 {
                *left -= 1;
                happens(&mut world);
                next.push((format!("by chance {what}"), world));
            }
        };
        for (me, party) in self.parties.iter().enumerate() {
            let Some(operation) = &party.operation else { continue };
            may(|scenario| &mut scenario.drops, format!("{me} is dropped"), &|world| world.drops(me));
            if !operation.leaving {
                may(|scenario| &mut scenario.expires, format!("{me} has waited long enough"), &|world| {
                    world.parties[me].operation.iter_mut().for_each(|operation| operation.leaving = true);
                    world.wake(me);
                });
            }
            if let Some(code) = party.code {
                may(|scenario| &mut scenario.fails, format!("{me} fails at {code:?}"), &|world| {
                    world.returns(me, false);
                });
            }
        }
        for (channel, (one, other)) in self.scenario.channels.iter().enumerate() {
            if !self.channels[channel].over.1 {
                let what = format!("channel {channel} is retired");
                may(|scenario| &mut scenario.retires, what, &|world| world.retire(channel));
            }
            let pair = (*one.min(other), *one.max(other));
            if !self.cut.contains(&pair) {
                let what = format!("the connection of {pair:?} is lost");
                may(|scenario| &mut scenario.cuts, what, &|world| world.cut(pair));
            }
        }
    }
}

impl World for Reading {
    fn state(&self) -> String {
        let mut hasher = DefaultHasher::new();
        let scenario = &self.scenario;
        (&self.parties, &self.channels, &self.cut, &self.unheard).hash(&mut hasher);
        (&self.received, &self.fates, &self.chosen).hash(&mut hasher);
        (scenario.drops, scenario.expires, scenario.fails, scenario.retires, scenario.cuts).hash(&mut hasher);
        format!("{:x} {:?}", hasher.finish(), self.wires)
    }

    fn is_at_rest(&self) -> bool {
        let idle = |party: &Party| !party.woken && party.code.is_none();
        self.wires.is_empty() && self.unheard.is_empty() && self.parties.iter().all(idle)
    }

    fn next(&self) -> Vec<(String, Self)> {
        let mut next = Vec::new();
        let mut then = |what: String, happens: &dyn Fn(&mut Self)| {
            let mut world = self.clone();
            happens(&mut world);
            next.push((what, world));
        };
        for (wire, words) in &self.wires {
            then(format!("{} -> {}: {:?}", wire.0, wire.1, words[0]), &|world| world.deliver(*wire));
        }
        for (node, pair) in &self.unheard {
            then(format!("{node} learns that the connection of {pair:?} is lost"), &|world| {
                world.hears_loss(*node, *pair);
            });
        }
        for (me, party) in self.parties.iter().enumerate() {
            match &party.code {
                Some(code) => then(format!("{me} returns from {code:?}"), &|world| world.returns(me, true)),
                None if party.woken => then(format!("{me} is polled"), &|world| world.poll(me)),
                None => {}
            }
        }
        self.chances(&mut next);
        next
    }

    fn check(&self) -> Result<(), String> {
        self.broken.clone().map_or(Ok(()), Err)
    }

    fn check_rest(&self) -> Result<(), String> {
        for ((channel, ticket), fate) in &self.fates {
            if *fate == Fate::Taken && !self.received.contains_key(&(*channel, *ticket)) {
                return Err(format!("offer {ticket:x} was sent with Ok, and is not received"));
            }
        }
        for (channel, here) in self.channels.iter().enumerate() {
            let waits = |sends: bool| {
                let on = move |branch: &Branch| {
                    branch.channel == channel && branch.sends == sends && branch.fate == Fate::Open
                };
                let mut pending = self.parties.iter().filter_map(|party| party.operation.as_ref());
                pending.any(|operation| operation.branches.iter().any(on))
            };
            if here.over.0 && waits(true) || here.over.1 && waits(false) {
                return Err(format!("channel {channel} is over, and an operation waits there"));
            }
            if waits(true) && waits(false) {
                return Err(format!("on channel {channel} a sender and a receiver wait for each other"));
            }
            if let Some(offer) = here.offers.iter().find(|offer| offer.ask.is_some() || offer.reader.is_some()) {
                return Err(format!("a reservation is left on channel {channel}: {offer:?}"));
            }
            let known: Vec<_> = here.offers.iter().map(|offer| (offer.ticket, false)).collect();
            if here.over == (false, false) && !here.unsettled.iter().map(|(key, left)| (*key, *left)).eq(known) {
                return Err(format!("the halves of channel {channel} do not agree: {here:?}"));
            }
        }
        let is_stuck = |operation: &Operation| {
            let has_outcome = operation.branches.iter().any(|branch| branch.fate != Fate::Open);
            operation.decision != Decision::Open || operation.is_choice && has_outcome
        };
        match self.parties.iter().position(|party| party.operation.as_ref().is_some_and(is_stuck)) {
            Some(me) => Err(format!("the choice of {me} is left reserved or has an outcome: {:?}", self.parties[me])),
            None => Ok(()),
        }
    }
}
