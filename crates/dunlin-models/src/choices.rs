//! A ring of parties, each on a node of its own, each of which runs a choice again and again: to send to the
//! next party, or to receive from the previous one. `docs/choice.md`, section 3, over the protocol's own
//! machines.
//!
//! This module models the choice, its channel's queue and its asks; the machine sends the frames, and tracks
//! the reservations at the nodes.
//! reserved there, is the machine's.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use dunlin_proto::id::{ChannelId, Incarnation, Life, NodeId};
use dunlin_proto::identity::StandIn;
use dunlin_proto::time::Time;
use dunlin_proto::wire::{Declaration, Expected, Face, Frame, Terms};
use dunlin_proto::{Action, Config, HomeHears, Machine, ProxyHears};

use crate::explore::World;

const NOW: Time = Time(0);
/// Request numbers start again after this one: fewer requests are ever under way, and the states stay finite.
const REQUESTS: u64 = 16;

/// The size of the ring, and how often each party runs its choice.
#[derive(Clone, Debug, Default)]
pub struct Scenario {
    /// The name of the scenario.
    pub name: &'static str,
    /// The number of parties, each on its own node.
    pub parties: usize,
    /// How often each party runs its choice.
    pub loops: usize,
    /// How many choices may end with a third branch, on neither of the two channels.
    pub others: usize,
}

/// A running choice.
#[derive(Clone, Debug)]
struct Choice {
    /// The number of its offer.
    ticket: u64,
    /// The request that reserved it, and one that waits until that request is given up.
    by: Option<u64>,
    waiting: Option<u64>,
    /// Its offer was taken.
    sent: bool,
    /// Another branch is ready, and a `Revoke` for the reservation was sent.
    leaving: bool,
    /// The offer it has asked for, the request, and whether that was granted.
    asked: Option<(u64, u64, bool)>,
}

#[derive(Clone, Debug)]
struct Party {
    machine: Machine,
    /// The offers of the previous party.
    queue: Vec<u64>,
    choice: Option<Choice>,
    /// The number of choices that have ended.
    done: usize,
    tickets: u64,
    requests: u64,
    /// Whether it has to be polled.
    woken: bool,
    sent: usize,
    received: BTreeSet<u64>,
}

/// All parties, and the messages between them.
#[derive(Clone, Debug)]
pub struct Ring {
    scenario: Scenario,
    parties: Vec<Party>,
    wires: BTreeMap<(usize, usize), VecDeque<Frame>>,
    broken: Option<String>,
}

fn id(party: usize) -> NodeId {
    NodeId(party as u128 + 1)
}

/// The channel on which this party sends.
fn channel(party: usize) -> ChannelId {
    ChannelId(party as u128 + 1)
}

fn declaration(face: Face) -> Declaration {
    Declaration { face, shared: false, expects: Expected::Unknown, schema: Bytes::new() }
}

impl Ring {
    /// The ring, with all channels attached, and no party polled.
    ///
    /// # Panics
    /// If the machine refuses the set-up of a channel.
    pub fn new(scenario: Scenario) -> Self {
        let count = scenario.parties;
        let party = |me: usize| {
            let life = Life { node: id(me), incarnation: Incarnation(1) };
            let mut machine = StandIn::machine(Config::new("model"), life, 1);
            (0..count).filter(|other| *other != me).for_each(|other| machine.model_up(id(other)));
            let terms = Terms { window: 4, credits: 0, value_max: 100 };
            let before = (me + count - 1) % count;
            machine.open_home(channel(before), terms, declaration(Face::Receiver), false).expect("it is short");
            machine.attach(NOW, channel(me), id((me + 1) % count), declaration(Face::Sender)).expect("it is short");
            Party {
                machine,
                queue: Vec::new(),
                choice: None,
                done: 0,
                tickets: 0,
                requests: 0,
                woken: true,
                sent: 0,
                received: BTreeSet::new(),
            }
        };
        let mut ring =
            Self { parties: (0..count).map(party).collect(), scenario, wires: BTreeMap::new(), broken: None };
        (0..count).for_each(|me| ring.act(me));
        loop {
            let next = ring.pairs().next();
            match next {
                Some(pair) => ring.deliver(pair),
                None => return ring,
            }
        }
    }

    fn pairs(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.wires.iter().filter(|(_, wire)| !wire.is_empty()).map(|(pair, _)| *pair)
    }

    fn before(&self, me: usize) -> usize {
        (me + self.parties.len() - 1) % self.parties.len()
    }

    fn deliver(&mut self, (from, to): (usize, usize)) {
        if let Some(frame) = self.wires.get_mut(&(from, to)).and_then(VecDeque::pop_front) {
            if let Err(why) = self.parties[to].machine.model_hear(id(from), frame) {
                self.broken = Some(format!("{from} violates the protocol: {why}"));
            }
            self.act(to);
        }
    }

    fn act(&mut self, me: usize) {
        while let Some(action) = self.parties[me].machine.poll() {
            match action {
                Action::Home(_, _, heard) => self.home_hears(me, heard),
                Action::Proxy(_, heard) => self.half_hears(me, heard),
                _ => {}
            }
        }
        for to in (0..self.parties.len()).filter(|to| *to != me) {
            while let Some(frame) = self.parties[me].machine.model_next(id(to)) {
                self.wires.entry((me, to)).or_default().push_back(frame);
            }
        }
    }

    fn home_hears(&mut self, me: usize, heard: HomeHears) {
        let before = self.before(me);
        let party = &mut self.parties[me];
        match heard {
            HomeHears::OfferedByChoice(ticket, _) => party.queue.push(ticket),
            HomeHears::Granted(ticket, request, _) => {
                // A party that gave up and has not asked again no longer waits for the grant.
                let asked = party.choice.as_mut().and_then(|choice| choice.asked.as_mut());
                match asked.filter(|asked| (asked.0, asked.1) == (ticket, request)) {
                    Some(asked) => asked.2 = true,
                    None => party.machine.decline(NOW, channel(before), id(before), ticket, request),
                }
            }
            HomeHears::Withdraw(ticket) => {
                if let Some(at) = party.queue.iter().position(|other| *other == ticket) {
                    party.queue.remove(at);
                    if let Some(choice) = &mut party.choice {
                        choice.asked = choice.asked.filter(|asked| asked.0 != ticket);
                    }
                    party.machine.withdrawn(NOW, channel(before), id(before), ticket);
                }
            }
            HomeHears::Revoke(ticket) => {
                if party.choice.as_ref().and_then(|choice| choice.asked).is_some_and(|asked| asked.0 == ticket) {
                    self.release(me);
                }
            }
            HomeHears::Attached => return,
            other => self.broken = Some(format!("the home of {me} gets {other:?}")),
        }
        self.parties[me].woken = true;
    }

    fn half_hears(&mut self, me: usize, heard: ProxyHears) {
        let party = &mut self.parties[me];
        let current = |ticket: u64| move |choice: &&mut Choice| choice.ticket == ticket;
        match heard {
            ProxyHears::Reserve(ticket, request) => {
                // A choice that has ended has withdrawn its offer: that is the answer.
                let Some(choice) = party.choice.as_mut().filter(current(ticket)) else { return };
                if choice.by.is_some() {
                    choice.waiting = Some(request);
                } else {
                    self.grant(me, request);
                }
            }
            ProxyHears::Abort(ticket) => {
                let Some(choice) = party.choice.as_mut().filter(current(ticket)) else { return };
                choice.by = None;
                let waiting = choice.waiting.take();
                party.woken = true;
                if let Some(request) = waiting.filter(|_| !choice.leaving) {
                    self.grant(me, request);
                }
            }
            ProxyHears::Taken(ticket, _) => match party.choice.as_mut().filter(current(ticket)) {
                Some(choice) => {
                    choice.sent = true;
                    party.woken = true;
                }
                None => self.broken = Some(format!("offer {ticket} of {me} is taken, and its choice was over")),
            },
            ProxyHears::Withdrawn(ticket) => {
                if party.choice.as_mut().filter(current(ticket)).is_some() {
                    self.broken = Some(format!("offer {ticket} of {me} is withdrawn, and its choice runs"));
                }
            }
            ProxyHears::Attached(_) => {}
            other => self.broken = Some(format!("the sender of {me} gets {other:?}")),
        }
    }

    fn grant(&mut self, me: usize, request: u64) {
        let party = &mut self.parties[me];
        let Some(choice) = &mut party.choice else { return };
        let value = Bytes::copy_from_slice(&[me as u8, choice.ticket as u8]);
        if party.machine.grant(NOW, channel(me), choice.ticket, request, value) {
            choice.by = Some(request);
        }
    }

    /// Gives up the request of its choice.
    fn release(&mut self, me: usize) {
        let before = self.before(me);
        let party = &mut self.parties[me];
        if let Some((ticket, ..)) = party.choice.as_mut().and_then(|choice| choice.asked.take()) {
            party.machine.abort(NOW, channel(before), id(before), ticket);
        }
    }

    /// Ends the choice, and withdraws its offer unless that was taken.
    fn ends(&mut self, me: usize) {
        self.release(me);
        let party = &mut self.parties[me];
        let Some(choice) = party.choice.take() else { return };
        if !choice.sent {
            party.machine.withdraw(NOW, channel(me), choice.ticket);
        }
        party.sent += usize::from(choice.sent);
        party.done += 1;
        party.woken = true;
    }

    fn poll(&mut self, me: usize) {
        let (loops, before) = (self.scenario.loops, self.before(me));
        let party = &mut self.parties[me];
        party.woken = false;
        if party.choice.is_none() {
            if party.done == loops {
                return;
            }
            let ticket = party.tickets;
            party.tickets += 1;
            let number = (me as u128) << 64 | u128::from(ticket);
            party.machine.offer_choice(NOW, channel(me), ticket, number);
            let choice = Choice { ticket, by: None, waiting: None, sent: false, leaving: false, asked: None };
            party.choice = Some(choice);
        }
        let Some(choice) = &mut party.choice else { return };
        if choice.sent {
            return self.ends(me);
        }
        let granted = choice.asked.filter(|asked| asked.2);
        if choice.by.is_some() {
            // A lower-numbered party gives back, a higher one waits.
            if granted.is_some() && before > me {
                self.release(me);
            }
            return;
        }
        if choice.leaving {
            return self.ends(me);
        }
        if let Some((ticket, ..)) = granted {
            choice.asked = None;
            party.queue.retain(|other| *other != ticket);
            party.machine.taken(NOW, channel(before), id(before), ticket);
            if !party.received.insert(ticket) {
                self.broken = Some(format!("offer {ticket} of {before} is received twice"));
            }
            return self.ends(me);
        }
        if choice.asked.is_none()
            && let Some(ticket) = party.queue.first().copied()
        {
            party.requests = party.requests % REQUESTS + 1;
            choice.asked = Some((ticket, party.requests, false));
            party.machine.reserve(NOW, channel(before), id(before), ticket, party.requests);
        }
    }

    /// Another branch is ready: the choice takes it, unless it is reserved; then it asks for the reservation
    /// back.
    fn leaves(&mut self, me: usize) -> bool {
        let party = &mut self.parties[me];
        let Some(choice) = party.choice.as_mut().filter(|choice| !choice.leaving && !choice.sent) else { return false };
        self.scenario.others -= 1;
        choice.leaving = true;
        if choice.by.is_some() {
            party.machine.revoke(NOW, channel(me), choice.ticket);
        } else {
            self.ends(me);
        }
        true
    }
}

impl World for Ring {
    fn state(&self) -> String {
        use std::fmt::Write as _;
        let mut text = String::new();
        for (me, party) in self.parties.iter().enumerate() {
            let _ = write!(
                text,
                "{}{}{:?}{:?}{}{}{}{:?}|",
                party.machine.model_state(channel(me)),
                party.machine.model_state(channel(self.before(me))),
                party.queue,
                party.choice,
                party.done,
                party.tickets,
                party.woken,
                party.received
            );
        }
        let wires: Vec<_> = self.wires.iter().filter(|(_, wire)| !wire.is_empty()).collect();
        let _ = write!(text, "{wires:?}{}", self.scenario.others);
        text
    }

    fn is_at_rest(&self) -> bool {
        self.pairs().next().is_none() && self.parties.iter().all(|party| !party.woken)
    }

    fn next(&self) -> Vec<(String, Self)> {
        let mut next = Vec::new();
        for (from, to) in self.pairs() {
            let mut world = self.clone();
            world.deliver((from, to));
            next.push((format!("{from} -> {to}: {:?}", self.wires[&(from, to)].front()), world));
        }
        for me in 0..self.parties.len() {
            if self.parties[me].woken {
                let mut world = self.clone();
                world.poll(me);
                world.act(me);
                next.push((format!("{me} is polled"), world));
            }
            if self.scenario.others > 0 {
                let mut world = self.clone();
                if world.leaves(me) {
                    world.act(me);
                    next.push((format!("{me} has another branch"), world));
                }
            }
        }
        next
    }

    fn check(&self) -> Result<(), String> {
        if let Some(what) = &self.broken {
            return Err(what.clone());
        }
        for (me, party) in self.parties.iter().enumerate() {
            // A receiver has taken a value of a choice that was reserved for it.
            let taken = self.parties[(me + 1) % self.parties.len()].received.len();
            if party.sent > taken {
                return Err(format!("{me} has sent {} values, and {taken} were received", party.sent));
            }
        }
        Ok(())
    }

    fn check_rest(&self) -> Result<(), String> {
        for (me, party) in self.parties.iter().enumerate() {
            let next = &self.parties[(me + 1) % self.parties.len()];
            if party.sent != next.received.len() {
                return Err(format!("{me} knows of {} values sent, of {}", party.sent, next.received.len()));
            }
            let Some(choice) = &party.choice else {
                if party.done < self.scenario.loops {
                    return Err(format!("{me} is not polled any more"));
                }
                continue;
            };
            if choice.by.is_some() || choice.asked.is_some() {
                return Err(format!("a reservation is left at {me}: {choice:?}"));
            }
            if next.choice.is_some() {
                return Err(format!("{me} would send, its next one would receive, and they do not meet"));
            }
        }
        Ok(())
    }
}
