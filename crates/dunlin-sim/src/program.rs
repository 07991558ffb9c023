//! What runs on the nodes: senders that offer, and homes that take. The homes are a small honest model of a channel's queue.

use std::collections::VecDeque;

use bytes::Bytes;
use dunlin_proto::id::{ChannelId, Life};
use dunlin_proto::wire::{Declaration, End, Expected, Face, Failure, Names, Poison, Rejection, Terms};
use dunlin_proto::{HomeHears, ProxyHears};

use crate::world::{Event, World, address, node_id, node_index};

/// Where an offer stands at its home's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtHome {
    /// It has not arrived.
    Away,
    /// A firm one, in the queue.
    Waiting,
    Tentative,
    Asked(u64),
    Granted(u64),
    Held,
    /// Its sender was told what became of it, or there is nobody to tell.
    Done,
}

/// What its sender was told in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Taken,
    NotTaken,
    Unknown,
    /// Went on a credit: nothing is told.
    Sent,
    /// Its sender's process is no more.
    Nobody,
}

#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) sender: usize,
    pub(crate) channel: usize,
    pub(crate) choice: Option<usize>,
    pub(crate) size: usize,
    pub(crate) at_home: AtHome,
    /// It has come to the home's program, with its value or without.
    pub(crate) arrived: bool,
    /// A receive has returned it, or a buffer has admitted it.
    pub(crate) taken: bool,
    pub(crate) held_told: bool,
    pub(crate) withdrawing: bool,
    pub(crate) failed_by_home: bool,
    pub(crate) outcome: Option<Outcome>,
    /// The event in which the home's program last decided about it. What its machine had heard by then may still come.
    pub(crate) decided_in: u64,
    /// Its place among what went on credit.
    pub(crate) number: u64,
    /// The ends in it.
    pub(crate) cargo: Vec<usize>,
}

/// A choice of a sending process: at most one of its offers happens.
#[derive(Debug)]
pub(crate) struct Choice {
    pub(crate) offers: Vec<usize>,
    /// Reserved by this request of this offer's home.
    pub(crate) by: Option<(usize, u64)>,
    /// The value has been granted to `by`.
    granted: bool,
    asks: VecDeque<(usize, u64)>,
    pub(crate) decided: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    New,
    Attaching {
        since: u64,
    },
    Attached,
    /// The home has retired the channel. What it has credits for may still be sent; then it says that it is gone.
    Closing,
    Over,
}

#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) proc: usize,
    pub(crate) channel: usize,
    pub(crate) stage: Stage,
    credits: u64,
    value_max: u64,
    /// Says something of itself that does not fit.
    misfit: bool,
    pub(crate) gone: bool,
    /// How it has ended the channel, each time.
    pub(crate) ended: Vec<End>,
    pub(crate) sent: u64,
    pub(crate) sent_arrived: u64,
    /// Its connection died.
    pub(crate) lost: bool,
    last_arrived: Option<usize>,
}

/// A node with a sending half, as the home's program knows it.
#[derive(Debug)]
pub(crate) struct Half {
    pub(crate) node: usize,
    pub(crate) proc: usize,
    pub(crate) gone: bool,
    /// Places that have been granted and not been used.
    granted: u64,
}

#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) id: ChannelId,
    pub(crate) proc: usize,
    pub(crate) opened: Option<u64>,
    /// How it ended, and in which event.
    pub(crate) ended: Option<(End, u64)>,
    /// It carries ends that travel.
    pub(crate) mail: bool,
    pub(crate) many: bool,
    /// 0: rendezvous.
    room: u64,
    terms: Terms,
    pub(crate) queue: Vec<usize>,
    buffer: VecDeque<usize>,
    pub(crate) halves: Vec<Half>,
    /// In which event a half was forgotten last.
    forgot_in: u64,
    asks: u64,
}

fn value(offer: usize, size: usize) -> Bytes {
    let mut bytes = Vec::with_capacity(size);
    bytes.extend_from_slice(&(offer as u32).to_le_bytes());
    bytes.extend((4..size).map(|at| (at as u8).wrapping_mul(31).wrapping_add(offer as u8)));
    Bytes::from(bytes)
}

fn offer_in(value: &Bytes) -> Option<usize> {
    value.first_chunk().map(|first| u32::from_le_bytes(*first) as usize)
}

fn declaration(face: Face, shared: bool, expects: Expected) -> Declaration {
    Declaration { face, shared, expects, schema: Bytes::new() }
}

impl World {
    pub(crate) fn set_up(&mut self) {
        for _ in 0..self.random.between(1, 3) {
            let node = self.random.index(self.plan.nodes);
            self.new_channel(self.current[node]);
        }
        for channel in 0..self.channels.len() {
            for _ in 0..self.random.between(1, 2) {
                self.new_sender(channel);
            }
        }
        self.set_up_travel();
    }

    pub(crate) fn new_channel(&mut self, proc: usize) {
        let many = self.random.chance(40);
        let room = if self.random.chance(50) { 0 } else { self.random.between(1, 6) };
        let terms = Terms {
            window: self.random.between(1, 4) as u32,
            credits: if many || room == 0 { 0 } else { self.random.between(0, room) as u32 },
            value_max: self.plan.value_max,
        };
        let id = ChannelId(u128::from(self.random.next()) << 64 | u128::from(self.random.next()));
        self.channels.push(Channel {
            id,
            proc,
            opened: None,
            ended: None,
            mail: false,
            many,
            room,
            terms,
            queue: Vec::new(),
            buffer: VecDeque::new(),
            halves: Vec::new(),
            forgot_in: 0,
            asks: 0,
        });
        let wait = if self.random.chance(80) { self.random.below(5000) } else { self.random.below(100_000) };
        self.after(wait, Event::Home(self.channels.len() - 1));
    }

    /// A sender for this channel, at a node that has none.
    pub(crate) fn new_sender(&mut self, channel: usize) {
        let node = self.random.index(self.plan.nodes);
        self.new_sender_at(channel, node);
    }

    pub(crate) fn new_sender_at(&mut self, channel: usize, node: usize) {
        let home = self.procs[self.channels[channel].proc].node;
        let proc = self.current[node];
        let most = if self.channels[channel].mail { 70 } else { 10 };
        let taken = self
            .senders
            .iter()
            .any(|sender| sender.channel == channel && sender.proc == proc && !self.is_forgotten(sender));
        if node == home || taken || !self.procs[proc].alive || self.procs[proc].leaving || self.senders.len() > most {
            return;
        }
        let misfit = self.random.chance(4);
        self.senders.push(Sender {
            proc,
            channel,
            stage: Stage::New,
            credits: 0,
            value_max: u64::MAX,
            misfit,
            gone: false,
            ended: Vec::new(),
            sent: 0,
            sent_arrived: 0,
            lost: false,
            last_arrived: None,
        });
        let wait = self.random.below(20_000);
        self.after(wait, Event::Sender(self.senders.len() - 1));
    }

    /// Whether its machine knows nothing of it any more, so that another one may attach.
    fn is_forgotten(&self, sender: &Sender) -> bool {
        sender.stage == Stage::Over && !self.procs[sender.proc].machine.has_half(self.channels[sender.channel].id)
    }

    fn open_offers(&self, sender: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.offers.len()).filter(move |at| self.offers[*at].sender == sender && self.offers[*at].outcome.is_none())
    }

    // Senders.

    pub(crate) fn sender_steps(&mut self, at: usize) {
        if self.senders[at].stage == Stage::Closing && !self.procs[self.senders[at].proc].leaving {
            return self.closes(at);
        }
        if self.senders[at].stage == Stage::Over || self.senders[at].gone {
            return;
        }
        let proc = self.senders[at].proc;
        if self.procs[proc].leaving || self.resting {
            return;
        }
        if self.senders[at].stage == Stage::New {
            self.attach(at);
        }
        if self.healed {
            return;
        }
        for _ in 0..self.random.between(1, 3) {
            self.sender_does(at);
            if self.senders[at].stage == Stage::Over || self.senders[at].gone || self.broken.is_some() {
                break;
            }
        }
        let wait = self.random.between(500, self.plan.pace);
        self.after(wait, Event::Sender(at));
    }

    /// The channel was retired: the last values on credits, and then the end.
    fn closes(&mut self, at: usize) {
        // Who has retired it before says nothing behind that.
        let retired = self.senders[at].ended.contains(&End::Retired);
        while !retired
            && self.senders[at].credits > 0
            && !self.healed
            && self.offers.len() < self.plan.offers_max
            && self.random.chance(40)
        {
            self.send(at);
        }
        self.note(19, at as u64, || format!("sender {at} has noticed that its channel is retired"));
        let sender = &mut self.senders[at];
        sender.stage = Stage::Over;
        sender.gone = true;
        sender.ended.push(End::Gone);
        let (proc, id, now) = (sender.proc, self.channels[sender.channel].id, self.time());
        self.procs[proc].machine.end_proxy(now, id, End::Gone);
        self.pump(proc);
    }

    fn attach(&mut self, at: usize) {
        let (now, since) = (self.time(), self.now);
        let sender = &mut self.senders[at];
        sender.stage = Stage::Attaching { since };
        let (proc, misfit) = (sender.proc, sender.misfit);
        let channel = &self.channels[self.senders[at].channel];
        let (id, home) = (channel.id, node_id(self.procs[channel.proc].node));
        let face = declaration(Face::Sender, channel.many, if misfit { Expected::Shared } else { Expected::Unknown });
        self.note(10, at as u64, || format!("sender {at} attaches"));
        self.procs[proc].machine.attach(now, id, home, face).expect("a schema that fits");
        self.pump(proc);
    }

    fn sender_does(&mut self, at: usize) {
        let sender = &self.senders[at];
        let (proc, channel) = (sender.proc, sender.channel);
        let id = self.channels[channel].id;
        let now = self.time();
        let open: Vec<usize> = self.open_offers(at).collect();
        let full = open.len() >= 6 || self.offers.len() >= self.plan.offers_max || !sender.ended.is_empty();
        match self.random.below(100) {
            0..30 if !full => {
                let offer = self.new_offer(at, None);
                let size = self.offers[offer].size;
                self.note(11, offer as u64, || format!("sender {at} offers {offer}, {size} bytes"));
                self.procs[proc].machine.offer(now, id, offer as u64, value(offer, size));
                self.pump(proc);
            }
            30..45 if !full => self.offer_by_choice(at),
            45..75 if sender.credits > 0 && !full => {
                self.send(at);
            }
            75..92 if !open.is_empty() => {
                let offer = open[self.random.index(open.len())];
                match self.offers[offer].choice {
                    Some(choice) => self.choice_leaves(choice),
                    None => self.withdraw(offer),
                }
            }
            92..93 => self.sender_ends(at, &open),
            _ => {}
        }
    }

    /// Offers a message with ends in it.
    pub(crate) fn mails(&mut self, at: usize, cargo: Vec<usize>) {
        let offer = self.new_offer(at, None);
        let (size, sender) = (self.offers[offer].size, &self.senders[at]);
        let (proc, id, now) = (sender.proc, self.channels[sender.channel].id, self.time());
        self.note(21, offer as u64, || format!("sender {at} offers {offer}, {size} bytes, with {cargo:?}"));
        self.offers[offer].cargo = cargo;
        self.procs[proc].machine.offer(now, id, offer as u64, value(offer, size));
        self.pump(proc);
    }

    /// One value on a credit.
    fn send(&mut self, at: usize) {
        let sender = &self.senders[at];
        let (proc, id, now) = (sender.proc, self.channels[sender.channel].id, self.time());
        let (credits, number, max) = (sender.credits, sender.sent, sender.value_max);
        let offer = self.new_offer(at, None);
        let size = self.offers[offer].size.min(max as usize);
        self.note(12, offer as u64, || format!("sender {at} sends {offer}, {size} bytes, number {number}"));
        self.senders[at].credits = credits - 1;
        self.senders[at].sent = number + 1;
        self.offers[offer] = Offer { size, number, outcome: Some(Outcome::Sent), ..self.bare_offer(at) };
        if !self.procs[proc].machine.send_on_credit(now, id, value(offer, size)) {
            self.broke(format!("sender {at} had {credits} credits and may not send"));
        }
        self.pump(proc);
    }

    fn bare_offer(&self, sender: usize) -> Offer {
        Offer {
            sender,
            channel: self.senders[sender].channel,
            choice: None,
            size: 0,
            at_home: AtHome::Away,
            arrived: false,
            taken: false,
            held_told: false,
            withdrawing: false,
            failed_by_home: false,
            outcome: None,
            decided_in: 0,
            number: 0,
            cargo: Vec::new(),
        }
    }

    fn new_offer(&mut self, sender: usize, choice: Option<usize>) -> usize {
        let size = match self.random.below(100) {
            0..60 => self.random.between(4, 16),
            60..97 => self.random.between(16, self.plan.value_max * 9 / 10),
            _ => self.random.between(self.plan.value_max + 1, self.plan.value_max * 2),
        };
        let offer = Offer { choice, size: size as usize, ..self.bare_offer(sender) };
        self.offers.push(offer);
        self.offers.len() - 1
    }

    /// A choice offers on one channel, or on all channels that this process has.
    fn offer_by_choice(&mut self, at: usize) {
        let proc = self.senders[at].proc;
        let all = self.random.chance(50);
        let usable = |sender: &Sender| {
            matches!(sender.stage, Stage::Attaching { .. } | Stage::Attached)
                && !sender.gone
                && sender.ended.is_empty()
                && sender.proc == proc
        };
        let parties: Vec<usize> = (0..self.senders.len())
            .filter(|other| *other == at || (all && usable(&self.senders[*other])))
            .filter(|other| self.open_offers(*other).count() < 6)
            .collect();
        let choice = self.choices.len();
        self.choices.push(Choice {
            offers: Vec::new(),
            by: None,
            granted: false,
            asks: VecDeque::new(),
            decided: false,
        });
        for party in parties {
            // It may have been decided by what it has already offered, or one of the ends may have ended.
            if self.choices[choice].decided || self.broken.is_some() || !usable(&self.senders[party]) {
                break;
            }
            let offer = self.new_offer(party, Some(choice));
            self.choices[choice].offers.push(offer);
            let id = self.channels[self.senders[party].channel].id;
            let now = self.time();
            self.note(13, offer as u64, || format!("choice {choice}: sender {party} offers {offer}"));
            self.procs[proc].machine.offer_choice(now, id, offer as u64, choice as u128);
            self.pump(proc);
        }
    }

    fn withdraw(&mut self, offer: usize) {
        if self.offers[offer].outcome.is_some() {
            return;
        }
        let sender = &self.senders[self.offers[offer].sender];
        let (proc, id, now) = (sender.proc, self.channels[sender.channel].id, self.time());
        self.note(14, offer as u64, || format!("{offer} is asked back"));
        self.offers[offer].withdrawing = true;
        self.procs[proc].machine.withdraw(now, id, offer as u64);
        self.pump(proc);
    }

    /// Another branch of the choice is ready.
    fn choice_leaves(&mut self, choice: usize) {
        if self.choices[choice].decided {
            return;
        }
        match self.choices[choice].by {
            None => {
                self.note(15, choice as u64, || format!("choice {choice} takes another branch"));
                self.choice_decided(choice, None);
            }
            Some((offer, _)) => {
                let sender = &self.senders[self.offers[offer].sender];
                let (proc, id, now) = (sender.proc, self.channels[sender.channel].id, self.time());
                self.note(16, offer as u64, || format!("choice {choice} wants {offer} back"));
                self.procs[proc].machine.revoke(now, id, offer as u64);
                self.pump(proc);
            }
        }
    }

    fn choice_decided(&mut self, choice: usize, by: Option<usize>) {
        self.choices[choice].decided = true;
        self.choices[choice].by = None;
        self.choices[choice].asks.clear();
        for offer in self.choices[choice].offers.clone() {
            if Some(offer) != by {
                self.withdraw(offer);
            }
        }
    }

    /// The home has asked for a choice's offer.
    fn asked(&mut self, offer: usize, request: u64) {
        let Some(choice) = self.offers[offer].choice else {
            return self.broke(format!("{offer} is asked for and is no choice's"));
        };
        if self.choices[choice].decided {
            // A withdrawal is ahead.
            return;
        }
        let state = &mut self.choices[choice];
        match state.by {
            // Its home has given the first request up: if that was not answered yet, it is not to be.
            Some((by, _)) if by == offer && !state.granted => {}
            Some(_) => {
                state.asks.retain(|(other, _)| *other != offer);
                return state.asks.push_back((offer, request));
            }
            None => {}
        }
        self.reserved_by(choice, offer, request);
    }

    fn reserved_by(&mut self, choice: usize, offer: usize, request: u64) {
        self.choices[choice].by = Some((offer, request));
        self.choices[choice].granted = false;
        let wait = if self.healed || self.random.chance(60) { 0 } else { self.random.below(20_000) };
        self.after(wait, Event::Grant(offer, request));
    }

    pub(crate) fn grant_now(&mut self, offer: usize, request: u64) {
        let Some(choice) = self.offers[offer].choice else { return };
        if self.choices[choice].decided || self.choices[choice].by != Some((offer, request)) {
            return;
        }
        let sender = &self.senders[self.offers[offer].sender];
        let (proc, id, now) = (sender.proc, self.channels[sender.channel].id, self.time());
        let size = self.offers[offer].size;
        self.choices[choice].granted = true;
        if size as u64 > self.plan.value_max {
            // Its machine does not let it go, and withdraws it.
            self.offers[offer].withdrawing = true;
        }
        self.note(17, offer as u64, || format!("{offer} is granted to request {request}"));
        self.procs[proc].machine.grant(now, id, offer as u64, request, value(offer, size));
        self.pump(proc);
    }

    /// The reservation is over, if it was this offer's; the next may have it.
    fn unlock(&mut self, offer: usize) {
        let Some(choice) = self.offers[offer].choice else { return };
        let state = &mut self.choices[choice];
        state.asks.retain(|(other, _)| self.offers[*other].outcome.is_none());
        if state.by.is_some_and(|(by, _)| by == offer) {
            state.by = None;
            if let Some((next, request)) = state.asks.pop_front() {
                self.reserved_by(choice, next, request);
            }
        } else {
            state.asks.retain(|(other, _)| *other != offer);
        }
    }

    fn sender_ends(&mut self, at: usize, open: &[usize]) {
        let how = match self.random.below(4) {
            0 | 1 => End::Gone,
            2 => End::Retired,
            _ => End::Poisoned(Poison { strength: 255, reason: "a sender's".into() }),
        };
        if how == End::Gone {
            // A choice borrows the end: it is over first.
            let choices: Vec<usize> = open.iter().filter_map(|offer| self.offers[*offer].choice).collect();
            for choice in choices {
                if !self.choices[choice].decided {
                    self.choice_decided(choice, None);
                }
            }
        }
        if self.senders[at].stage == Stage::Over || !self.senders[at].ended.is_empty() {
            return;
        }
        self.note(18, at as u64, || format!("sender {at} ends: {how:?}"));
        let sender = &mut self.senders[at];
        sender.gone = how == End::Gone;
        sender.ended.push(how.clone());
        let (proc, id, now) = (sender.proc, self.channels[sender.channel].id, self.time());
        self.procs[proc].machine.end_proxy(now, id, how);
        self.pump(proc);
        self.forget_if_gone(at);
    }

    fn forget_if_gone(&mut self, at: usize) {
        let sender = &self.senders[at];
        if sender.gone && sender.stage == Stage::Attached && self.open_offers(at).next().is_none() {
            self.senders[at].stage = Stage::Over;
            if !self.healed && self.random.chance(40) {
                self.new_sender(self.senders[at].channel);
            }
        }
    }

    /// The sender hears that it is over: every offer that was open has this outcome, except those named.
    fn sender_over(&mut self, at: usize, outcome: Option<Outcome>) {
        self.senders[at].stage = Stage::Over;
        let open: Vec<usize> = self.open_offers(at).collect();
        for offer in open {
            match outcome {
                Some(outcome) => self.conclude(offer, outcome),
                None => self.broke(format!("the connection died, and of {offer} nothing was told")),
            }
        }
        if self.channels[self.senders[at].channel].mail && !self.healed {
            let node = self.procs[self.senders[at].proc].node;
            self.new_sender_at(self.senders[at].channel, node);
        }
        if !self.healed && self.random.chance(60) {
            self.new_sender(self.senders[at].channel);
        }
    }

    pub(crate) fn proxy_hears(&mut self, proc: usize, channel: ChannelId, heard: ProxyHears) {
        if let Some(line) = self.line_of(channel) {
            return self.line_half_hears(line, proc, heard);
        }
        let found = self.senders.iter().rposition(|sender| {
            sender.proc == proc && self.channels[sender.channel].id == channel && sender.stage != Stage::Over
        });
        let Some(at) = found else {
            return self.broke(format!("a sender that is over hears {heard:?}"));
        };
        match heard {
            ProxyHears::Attached(terms) => {
                if !matches!(self.senders[at].stage, Stage::Attaching { .. }) {
                    return self.broke(format!("sender {at} is attached twice"));
                }
                if self.senders[at].misfit {
                    return self.broke(format!("sender {at} does not fit and is attached"));
                }
                let sender = &mut self.senders[at];
                sender.stage = Stage::Attached;
                sender.credits += u64::from(terms.credits);
                sender.value_max = terms.value_max;
                self.forget_if_gone(at);
            }
            ProxyHears::Rejected(why) => {
                self.check_rejection(at, &why);
                self.sender_over(at, Some(Outcome::NotTaken));
            }
            ProxyHears::Taken(ticket) => self.told(at, ticket, Outcome::Taken),
            ProxyHears::Held(ticket) => {
                let offer = ticket as usize;
                if !self.is_open(at, ticket) || self.offers[offer].held_told {
                    return self.broke(format!("{offer} is held, and is not open"));
                }
                if !self.offers[offer].taken {
                    return self.broke(format!("{offer} is told to be held, and no receive has it"));
                }
                self.offers[offer].held_told = true;
                let to = self.procs[self.channels[self.senders[at].channel].proc].node;
                self.ends_left(self.offers[offer].cargo.clone(), proc, to);
                if let Some(choice) = self.offers[offer].choice {
                    self.choice_decided(choice, Some(offer));
                }
            }
            ProxyHears::Released(ticket) => {
                if self.is_open(at, ticket) && !self.offers[ticket as usize].held_told {
                    self.broke(format!("{ticket} is released, and was not held"));
                }
                if self.offers.get(ticket as usize).is_some_and(|offer| offer.at_home != AtHome::Done) {
                    self.broke(format!("{ticket} is told to be released, and is not"));
                }
                self.told(at, ticket, Outcome::Taken);
            }
            ProxyHears::Failed(ticket, why) => {
                let offer = ticket as usize;
                let max = self.plan.value_max;
                let too_large = why == Failure::TooLarge { max } && self.offers[offer].size as u64 > max;
                if !too_large && !self.offers[offer].failed_by_home {
                    self.broke(format!("{offer} failed ({why:?}), and nobody failed it"));
                }
                self.told(at, ticket, Outcome::NotTaken);
            }
            ProxyHears::Withdrawn(ticket) => {
                if !self.offers[ticket as usize].withdrawing {
                    self.broke(format!("{ticket} is withdrawn, and nobody asked"));
                }
                self.told(at, ticket, Outcome::NotTaken);
            }
            ProxyHears::Reserve(ticket, request) => {
                if !self.is_open(at, ticket) {
                    return self.broke(format!("{ticket} is asked for, and is not open"));
                }
                self.asked(ticket as usize, request);
            }
            ProxyHears::Abort(ticket) => self.unlock(ticket as usize),
            ProxyHears::Credit(count) => {
                self.senders[at].credits += u64::from(count);
            }
            ProxyHears::Ended(how) => {
                let channel = &self.channels[self.senders[at].channel];
                if channel.ended.as_ref().is_none_or(|(ended, _)| *ended != how) {
                    return self.broke(format!("sender {at} hears {how:?}, and the channel has not ended so"));
                }
                if how == End::Retired && !self.senders[at].gone {
                    let open: Vec<usize> = self.open_offers(at).collect();
                    open.into_iter().for_each(|offer| self.conclude(offer, Outcome::NotTaken));
                    self.senders[at].stage = Stage::Closing;
                    let wait = if self.random.chance(50) { 0 } else { self.random.below(30_000) };
                    self.after(wait, Event::Sender(at));
                } else {
                    self.sender_over(at, Some(Outcome::NotTaken));
                }
            }
            ProxyHears::Lost { unknown, not_taken, taken } => {
                for (tickets, outcome) in
                    [(unknown, Outcome::Unknown), (not_taken, Outcome::NotTaken), (taken, Outcome::Taken)]
                {
                    for ticket in tickets {
                        if !self.is_open(at, ticket) {
                            return self.broke(format!("{ticket} is told to be {outcome:?}, and is not open"));
                        }
                        self.conclude(ticket as usize, outcome);
                    }
                }
                let node = self.procs[self.channels[self.senders[at].channel].proc].node;
                self.procs[proc].views[node].lost_told = true;
                self.senders[at].lost = true;
                self.sender_over(at, None);
            }
            heard @ (ProxyHears::Moved(_) | ProxyHears::Home(..) | ProxyHears::Rests | ProxyHears::Departed) => {
                self.broke(format!("sender {at}, which does not travel, hears {heard:?}"));
            }
        }
    }

    fn is_open(&self, at: usize, ticket: u64) -> bool {
        self.offers.get(ticket as usize).is_some_and(|offer| offer.sender == at && offer.outcome.is_none())
    }

    fn told(&mut self, at: usize, ticket: u64, outcome: Outcome) {
        if !self.is_open(at, ticket) {
            return self.broke(format!("{ticket} is told to be {outcome:?}, and is not open"));
        }
        self.conclude(ticket as usize, outcome);
        self.forget_if_gone(at);
    }

    /// What the sender of an offer is told in the end: once, and true.
    fn conclude(&mut self, offer: usize, outcome: Outcome) {
        let (taken, before) = (self.offers[offer].taken, self.offers[offer].outcome);
        self.note(20, offer as u64, || format!("{offer} is told to be {outcome:?}"));
        if before.is_some() {
            return self.broke(format!("{offer} has two outcomes: {before:?} and {outcome:?}"));
        }
        match outcome {
            Outcome::Taken if !taken => return self.broke(format!("{offer} is told to be taken, and is not")),
            Outcome::NotTaken if taken => return self.broke(format!("{offer} is told not to be taken, and is")),
            _ => {}
        }
        self.offers[offer].outcome = Some(outcome);
        let cargo = self.offers[offer].cargo.clone();
        if !cargo.is_empty() {
            let to = self.procs[self.channels[self.offers[offer].channel].proc].node;
            self.ends_concluded(cargo, self.senders[self.offers[offer].sender].proc, to, outcome);
        }
        if let Some(choice) = self.offers[offer].choice
            && !self.choices[choice].decided
        {
            match outcome {
                // Decided for it; or, unknown, as a whole.
                Outcome::Taken | Outcome::Unknown => self.choice_decided(choice, Some(offer)),
                _ => self.unlock(offer),
            }
        }
    }

    fn check_rejection(&mut self, at: usize, why: &Rejection) {
        let sender = &self.senders[at];
        let Stage::Attaching { since } = sender.stage else {
            return self.broke(format!("sender {at} is rejected, and was not attaching"));
        };
        let channel = &self.channels[sender.channel];
        let home = &self.procs[channel.proc];
        let was_there = channel.opened.is_some_and(|opened| opened <= since)
            && channel.ended.is_none()
            && home.alive
            && self.procs[sender.proc].views[home.node].life == home.incarnation;
        let wrong = match why {
            Rejection::NoSuchChannel => was_there,
            Rejection::Mismatch(_) => !sender.misfit,
            Rejection::Occupied => {
                channel.many
                    && !self.senders.iter().any(|other| {
                        other.channel == sender.channel
                            && self.procs[other.proc].node == self.procs[sender.proc].node
                            && other.stage == Stage::Over
                    })
            }
            Rejection::Full => true,
        };
        if wrong {
            self.broke(format!("sender {at} is rejected without a cause: {why:?}"));
        }
    }

    // Homes.

    pub(crate) fn home_steps(&mut self, at: usize) {
        if self.procs[self.channels[at].proc].leaving || self.resting {
            return;
        }
        if self.channels[at].opened.is_none() {
            let channel = &mut self.channels[at];
            channel.opened = Some(self.now);
            let (id, terms, many, proc) = (channel.id, channel.terms, channel.many, channel.proc);
            // An unshared channel expects an unshared sender.
            let expects = if many { Expected::Unknown } else { Expected::Unshared };
            self.note(30, at as u64, || format!("channel {at} ({id}) opens: {terms:?}, many: {many}"));
            let face = declaration(Face::Receiver, false, expects);
            self.procs[proc].machine.open_home(id, terms, face, many).expect("a schema that fits");
            self.pump(proc);
        }
        match self.random.below(100) {
            _ if self.healed => {
                for _ in 0..4 {
                    self.receive(at);
                }
            }
            0..70 => {
                for _ in 0..self.random.between(1, 3) {
                    self.receive(at);
                }
            }
            70..76 => self.refuse_one(at),
            76..82 => self.give_up_one(at),
            82..83 => {
                let how = match self.random.below(3) {
                    0 => End::Gone,
                    1 => End::Retired,
                    _ => End::Poisoned(Poison { strength: 255, reason: "the receiver's".into() }),
                };
                self.end(at, how);
            }
            _ => {}
        }
        let idle = self.channels[at].queue.is_empty() && self.channels[at].buffer.is_empty();
        let wait = match (self.healed, idle) {
            (true, true) => 40_000,
            (true, false) => 3000,
            (false, _) => self.random.between(300, self.plan.pace),
        };
        self.after(wait, Event::Home(at));
    }

    fn buffered(&self, at: usize) -> u64 {
        let channel = &self.channels[at];
        channel.buffer.len() as u64 + channel.halves.iter().map(|half| half.granted).sum::<u64>()
    }

    fn home_call<R>(
        &mut self,
        offer: usize,
        call: impl FnOnce(&mut dunlin_proto::Machine, dunlin_proto::time::Time, ChannelId, dunlin_proto::id::NodeId) -> R,
    ) {
        let channel = &self.channels[self.offers[offer].channel];
        let from = node_id(self.procs[self.senders[self.offers[offer].sender].proc].node);
        let (proc, id, now) = (channel.proc, channel.id, self.time());
        self.offers[offer].decided_in = self.coverage.events;
        call(&mut self.procs[proc].machine, now, id, from);
        self.tidy(self.offers[offer].channel);
        self.pump(proc);
    }

    /// A receive is polled.
    fn receive(&mut self, at: usize) {
        if self.channels[at].opened.is_none() {
            return;
        }
        if let Some(first) = self.channels[at].buffer.pop_front() {
            self.note(31, first as u64, || format!("channel {at}: received {first} from the buffer"));
            self.admit(at);
            return;
        }
        if self.channels[at].ended.is_some() {
            return;
        }
        for offer in self.channels[at].queue.clone() {
            match self.offers[offer].at_home {
                AtHome::Waiting | AtHome::Granted(_) => {
                    let extended = self.random.chance(25);
                    self.take(at, offer, extended);
                    break;
                }
                AtHome::Tentative => {
                    self.reserve(at, offer);
                    if self.random.chance(50) {
                        break;
                    }
                }
                _ => {}
            }
        }
        self.admit(at);
    }

    /// A buffer admits what it has room for: offers that wait, then credits.
    fn admit(&mut self, at: usize) {
        while self.buffered(at) < self.channels[at].room && self.channels[at].ended.is_none() {
            let waits = |offer: &usize| matches!(self.offers[*offer].at_home, AtHome::Waiting | AtHome::Granted(_));
            if let Some(offer) = self.channels[at].queue.iter().copied().find(waits) {
                self.channels[at].buffer.push_back(offer);
                self.take(at, offer, false);
                continue;
            }
            let halves: Vec<usize> =
                (0..self.channels[at].halves.len()).filter(|half| !self.channels[at].halves[*half].gone).collect();
            if halves.is_empty() || self.random.chance(40) {
                return;
            }
            let half = halves[self.random.index(halves.len())];
            self.channels[at].halves[half].granted += 1;
            let (node, channel) = (self.channels[at].halves[half].node, &self.channels[at]);
            let (id, proc, now) = (channel.id, channel.proc, self.time());
            self.note(32, at as u64, || format!("channel {at}: a credit for n{node}"));
            self.procs[proc].machine.credit(now, id, node_id(node), 1);
            self.pump(proc);
        }
    }

    fn reserve(&mut self, at: usize, offer: usize) {
        self.channels[at].asks += 1;
        let request = self.channels[at].asks;
        self.offers[offer].at_home = AtHome::Asked(request);
        self.note(33, offer as u64, || format!("channel {at}: {offer} is asked for, request {request}"));
        self.home_call(offer, |machine, now, id, from| machine.reserve(now, id, from, offer as u64, request));
    }

    fn take(&mut self, at: usize, offer: usize, extended: bool) {
        self.note(34, offer as u64, || {
            format!("channel {at}: {offer} is taken{}", if extended { " and held" } else { "" })
        });
        self.channels[at].queue.retain(|other| *other != offer);
        self.happens(offer);
        if extended {
            self.offers[offer].at_home = AtHome::Held;
            self.home_call(offer, |machine, now, id, from| machine.held(now, id, from, offer as u64));
            let wait = self.random.below(30_000);
            self.after(wait, Event::Release(offer));
        } else {
            self.offers[offer].at_home = AtHome::Done;
            self.home_call(offer, |machine, now, id, from| machine.taken(now, id, from, offer as u64));
        }
        let from = self.procs[self.senders[self.offers[offer].sender].proc].node;
        self.ends_arrive(self.offers[offer].cargo.clone(), self.channels[at].proc, from);
    }

    /// A value is taken: once, and not if its sender was told otherwise, and nothing else of its choice.
    fn happens(&mut self, offer: usize) {
        if self.offers[offer].taken {
            return self.broke(format!("{offer} is taken twice"));
        }
        if self.offers[offer].outcome == Some(Outcome::NotTaken) {
            return self.broke(format!("{offer} is taken, and was told not to be"));
        }
        if let Some(choice) = self.offers[offer].choice
            && let Some(other) = self.choices[choice].offers.iter().find(|other| self.offers[**other].taken)
        {
            return self.broke(format!("two offers of choice {choice} are taken: {other} and {offer}"));
        }
        self.offers[offer].taken = true;
    }

    pub(crate) fn release(&mut self, offer: usize) {
        if self.offers[offer].at_home == AtHome::Held {
            self.offers[offer].at_home = AtHome::Done;
            self.note(35, offer as u64, || format!("{offer} is released"));
            self.home_call(offer, |machine, now, id, from| machine.released(now, id, from, offer as u64));
        }
    }

    fn fail(&mut self, at: usize, offer: usize, why: Failure) {
        self.channels[at].queue.retain(|other| *other != offer);
        self.offers[offer].at_home = AtHome::Done;
        self.offers[offer].failed_by_home = true;
        self.note(36, offer as u64, || format!("channel {at}: {offer} fails: {why:?}"));
        self.home_call(offer, |machine, now, id, from| machine.failed(now, id, from, offer as u64, why));
    }

    fn refuse_one(&mut self, at: usize) {
        let queue = &self.channels[at].queue;
        if queue.is_empty() {
            return;
        }
        let offer = queue[self.random.index(queue.len())];
        let why = match self.random.below(3) {
            0 => Failure::Refused,
            1 => Failure::Expired,
            _ => Failure::WouldBlock,
        };
        self.fail(at, offer, why);
    }

    /// A receive that had asked is dropped, or loses its patience.
    fn give_up_one(&mut self, at: usize) {
        let asked = |offer: &usize| matches!(self.offers[*offer].at_home, AtHome::Asked(_) | AtHome::Granted(_));
        if let Some(offer) = self.channels[at].queue.iter().copied().find(asked) {
            if matches!(self.offers[offer].at_home, AtHome::Asked(_)) && self.random.chance(50) {
                // The next receive asks anew, while the first grant may be on its way.
                self.reserve(at, offer);
            } else {
                self.abort(offer);
            }
        }
    }

    fn abort(&mut self, offer: usize) {
        self.offers[offer].at_home = AtHome::Tentative;
        self.note(37, offer as u64, || format!("{offer} is given up"));
        self.home_call(offer, |machine, now, id, from| machine.abort(now, id, from, offer as u64));
    }

    fn end(&mut self, at: usize, how: End) {
        if self.channels[at].ended.is_some() || self.channels[at].opened.is_none() {
            return;
        }
        let held: Vec<usize> = (0..self.offers.len())
            .filter(|offer| self.offers[*offer].channel == at && self.offers[*offer].at_home == AtHome::Held)
            .collect();
        held.into_iter().for_each(|offer| self.release(offer));
        for offer in self.channels[at].queue.clone() {
            let why = match &how {
                End::Poisoned(reason) => Failure::Poisoned(reason.clone()),
                End::Gone | End::Retired | End::Lost => Failure::Closed,
            };
            self.fail(at, offer, why);
        }
        self.note(38, at as u64, || format!("channel {at} ends: {how:?}"));
        let channel = &mut self.channels[at];
        channel.ended = Some((how.clone(), self.coverage.events));
        let (proc, id, now) = (channel.proc, channel.id, self.time());
        self.procs[proc].machine.end_home(now, id, how);
        self.pump(proc);
    }

    pub(crate) fn home_hears(&mut self, proc: usize, channel: ChannelId, from: usize, heard: HomeHears) {
        if let Some(line) = self.line_of(channel) {
            return self.line_home_hears(line, proc, node_id(from), heard);
        }
        let found = self.channels.iter().position(|known| known.id == channel && known.proc == proc);
        let Some(at) = found else {
            return self.broke(format!("a channel that is not there hears {heard:?}"));
        };
        let life = self.procs[proc].views[from].life;
        let half = self.channels[at].halves.iter().position(|half| half.node == from);
        let Some(half) = half else {
            if let HomeHears::Lost(stood) = &heard {
                // It has been settled here in the same event, and its machine was ahead.
                let event = self.coverage.events;
                if stood.iter().any(|offer| self.offers[*offer as usize].decided_in != event) {
                    self.broke(format!("channel {at} loses {stood:?} of n{from}, which is not attached"));
                }
                self.procs[proc].views[from].lost_told = true;
                return;
            }
            let late = matches!(heard, HomeHears::Withdraw(_) | HomeHears::Revoke(_));
            if late && self.channels[at].forgot_in == self.coverage.events {
                return;
            }
            if heard != HomeHears::Attached {
                return self.broke(format!("channel {at} hears from n{from}, which is not attached: {heard:?}"));
            }
            let Some(from_proc) = self.proc_of(from, life) else {
                return self.broke(format!("channel {at} is attached by n{from}, which is not connected"));
            };
            let credits = self.channels[at].terms.credits;
            self.channels[at].halves.push(Half { node: from, proc: from_proc, gone: false, granted: credits.into() });
            return;
        };
        let from_proc = self.channels[at].halves[half].proc;
        match heard {
            HomeHears::Attached => self.broke(format!("n{from} is attached to channel {at} twice")),
            HomeHears::Offered(ticket, value) => {
                let offer = ticket as usize;
                if !self.arrives(at, from_proc, offer, Some(&value)) {
                    return;
                }
                self.offers[offer].at_home = AtHome::Waiting;
                self.channels[at].queue.push(offer);
                if self.random.chance(20) {
                    // A receive waits already.
                    self.receive(at);
                }
                self.admit(at);
            }
            HomeHears::OfferedByChoice(ticket, choice) => {
                let offer = ticket as usize;
                if !self.arrives(at, from_proc, offer, None) {
                    return;
                }
                if self.offers[offer].choice != Some(choice as usize) {
                    return self.broke(format!("{offer} arrives as another choice's"));
                }
                self.offers[offer].at_home = AtHome::Tentative;
                self.channels[at].queue.push(offer);
                if self.random.chance(50) {
                    self.reserve(at, offer);
                }
            }
            HomeHears::Granted(ticket, request, bytes) => {
                let offer = ticket as usize;
                if !self.channels[at].queue.contains(&offer) || self.offers[offer].at_home != AtHome::Asked(request) {
                    if self.offers[offer].decided_in == self.coverage.events {
                        return;
                    }
                    return self.broke(format!("{offer} is granted to request {request}, which nobody made"));
                }
                if bytes != value(offer, self.offers[offer].size) {
                    return self.broke(format!("the value of {offer} has changed on its way"));
                }
                self.offers[offer].at_home = AtHome::Granted(request);
                if self.random.chance(40) {
                    self.receive(at);
                }
            }
            HomeHears::Sent(value) => {
                let Some(offer) = offer_in(&value).filter(|offer| *offer < self.offers.len()) else {
                    return self.broke("a value that nobody sent");
                };
                if !self.arrives(at, from_proc, offer, Some(&value)) {
                    return;
                }
                let sender = self.offers[offer].sender;
                let (number, expected) = (self.offers[offer].number, self.senders[sender].sent_arrived);
                if self.offers[offer].outcome != Some(Outcome::Sent) {
                    return self.broke(format!("{offer} was offered, and arrives as sent on a credit"));
                }
                if number != expected {
                    return self.broke(format!("of sender {sender}, number {number} arrives where {expected} is next"));
                }
                self.senders[sender].sent_arrived += 1;
                let granted = &mut self.channels[at].halves[half].granted;
                if *granted == 0 {
                    return self.broke(format!("{offer} arrives without a credit"));
                }
                *granted -= 1;
                self.happens(offer);
                self.offers[offer].at_home = AtHome::Done;
                self.channels[at].buffer.push_back(offer);
            }
            HomeHears::Withdraw(ticket) => {
                let offer = ticket as usize;
                if self.channels[at].queue.contains(&offer) {
                    self.channels[at].queue.retain(|other| *other != offer);
                    self.offers[offer].at_home = AtHome::Done;
                    self.note(39, offer as u64, || format!("channel {at}: {offer} is withdrawn"));
                    self.home_call(offer, |machine, now, id, from| machine.withdrawn(now, id, from, offer as u64));
                }
            }
            HomeHears::Revoke(ticket) => {
                let offer = ticket as usize;
                if matches!(self.offers[offer].at_home, AtHome::Asked(_) | AtHome::Granted(_))
                    && self.channels[at].queue.contains(&offer)
                {
                    self.abort(offer);
                }
            }
            HomeHears::Ended(how) => {
                let said = self
                    .senders
                    .iter()
                    .any(|sender| sender.channel == at && sender.proc == from_proc && sender.ended.contains(&how));
                if !said {
                    return self.broke(format!("channel {at} hears {how:?} of n{from}, which has not said so"));
                }
                if how == End::Gone {
                    self.channels[at].halves[half].gone = true;
                    self.channels[at].halves[half].granted = 0;
                    self.tidy(at);
                } else {
                    self.end(at, how);
                }
            }
            HomeHears::Lost(mut stood) => {
                stood.sort_unstable();
                let mut known: Vec<u64> = (0..self.offers.len())
                    .filter(|offer| {
                        let entry = &self.offers[*offer];
                        entry.channel == at
                            && self.senders[entry.sender].proc == from_proc
                            && !matches!(entry.at_home, AtHome::Away | AtHome::Done)
                    })
                    .map(|offer| offer as u64)
                    .collect();
                known.sort_unstable();
                let event = self.coverage.events;
                let settled = |offer: &u64| known.contains(offer) || self.offers[*offer as usize].decided_in == event;
                if !known.iter().all(|offer| stood.contains(offer)) || !stood.iter().all(settled) {
                    return self.broke(format!("channel {at} loses {stood:?} of n{from}, and knows of {known:?}"));
                }
                self.channels[at].halves.remove(half);
                for offer in stood {
                    self.offers[offer as usize].at_home = AtHome::Done;
                    self.channels[at].queue.retain(|other| *other != offer as usize);
                }
                self.procs[proc].views[from].lost_told = true;
            }
            heard @ (HomeHears::Take
            | HomeHears::Leave
            | HomeHears::Empty
            | HomeHears::Arrived(_)
            | HomeHears::Lapsed(_)
            | HomeHears::Failed(_)) => self.broke(format!("channel {at}, which does not travel, hears {heard:?}")),
        }
        self.tidy(at);
    }

    /// A half that is gone, and of which nothing is left, is forgotten.
    fn tidy(&mut self, at: usize) {
        let Channel { halves, .. } = &self.channels[at];
        let over: Vec<usize> = halves
            .iter()
            .filter(|half| half.gone)
            .map(|half| half.proc)
            .filter(|proc| {
                !self.offers.iter().any(|offer| {
                    offer.channel == at
                        && self.senders[offer.sender].proc == *proc
                        && !matches!(offer.at_home, AtHome::Away | AtHome::Done)
                })
            })
            .collect();
        if !over.is_empty() {
            self.channels[at].forgot_in = self.coverage.events;
            self.channels[at].halves.retain(|half| !over.contains(&half.proc));
        }
    }

    /// An offer or a value arrives at its home: of the right life, once, whole, in order, and while it stands.
    fn arrives(&mut self, at: usize, from_proc: usize, offer: usize, bytes: Option<&Bytes>) -> bool {
        let before = self.broken.is_some();
        let Some(entry) = self.offers.get(offer) else {
            self.broke(format!("{offer} arrives, and nobody offered it"));
            return false;
        };
        let (sender, size, arrived, outcome) = (entry.sender, entry.size, entry.arrived, entry.outcome);
        if entry.channel != at || self.senders[sender].proc != from_proc {
            self.broke(format!("{offer} arrives at channel {at}, or from a life, where it was not offered"));
        } else if arrived {
            self.broke(format!("{offer} arrives twice"));
        } else if outcome == Some(Outcome::NotTaken) && self.senders[sender].stage != Stage::Over {
            // If the sender is over, the home has not heard of it yet; it must not take it, and `happens` checks.
            self.broke(format!("{offer} arrives, and its sender was told that it is not taken"));
        } else if bytes.is_some_and(|bytes| *bytes != value(offer, size)) {
            self.broke(format!("the value of {offer} has changed on its way"));
        } else if let Some((how, event)) = &self.channels[at].ended
            && !(*how == End::Retired && outcome == Some(Outcome::Sent))
        {
            if *event != self.coverage.events {
                self.broke(format!("{offer} arrives after the end of channel {at}"));
            }
            self.offers[offer].decided_in = self.coverage.events;
            return false;
        }
        let sent = outcome == Some(Outcome::Sent);
        if !sent {
            if self.senders[sender].last_arrived.is_some_and(|last| last > offer) {
                self.broke(format!("{offer} arrives after a later one of its sender"));
            }
            self.senders[sender].last_arrived = Some(offer);
        }
        self.offers[offer].arrived = true;
        before || self.broken.is_none()
    }

    fn proc_of(&self, node: usize, life: u64) -> Option<usize> {
        self.procs.iter().position(|proc| proc.node == node && proc.incarnation == life)
    }

    // Chat: numbered messages from node to node, and introductions.

    pub(crate) fn chat(&mut self, proc: usize) {
        if self.healed || self.procs[proc].leaving {
            return;
        }
        let other = self.random.index(self.plan.nodes);
        let (me, now) = (self.procs[proc].node, self.time());
        if other != me {
            match self.random.below(100) {
                0..40 => {
                    let view = &mut self.procs[proc].views[other];
                    let number = (view.epoch << 32) | view.said;
                    view.said += 1;
                    self.note(40, number, || format!("n{me} says {number:#x} to n{other}"));
                    self.procs[proc]
                        .machine
                        .say_names(now, node_id(other), Names::BadName { number })
                        .expect("it has no text");
                    self.pump(proc);
                }
                40..50 => {
                    self.procs[proc].introductions += 1;
                    self.procs[proc].machine.introduce(address(other));
                    self.pump(proc);
                }
                50..60 => self.learn(proc, other),
                60..70 => {
                    self.procs[proc].machine.connect(now, node_id(other));
                    self.pump(proc);
                }
                _ => {}
            }
        }
        let wait = self.random.between(5000, 150_000);
        self.after(wait, Event::Chat(proc));
    }

    pub(crate) fn introduced(&mut self, proc: usize, to: &str, result: Result<dunlin_proto::id::NodeId, String>) {
        let node = &mut self.procs[proc];
        if node.introductions == 0 {
            return self.broke(format!("an introduction at {to} has two answers"));
        }
        node.introductions -= 1;
        if let Ok(id) = result
            && address(node_index(id)) != to
        {
            self.broke(format!("at {to}, n{} is introduced", node_index(id)));
        }
    }

    pub(crate) fn names_heard(&mut self, proc: usize, from: Life, said: Names) {
        let Names::BadName { number } = said else { return self.broke(format!("nobody said {said:?}")) };
        let (epoch, count) = (number >> 32, number & 0xffff_ffff);
        let node = node_index(from.node);
        let view = &mut self.procs[proc].views[node];
        let life = view.life;
        if life != from.incarnation.0 {
            return self.broke(format!("n{node}/{} is heard while n{node}/{life} is known", from.incarnation.0));
        }
        let right = match view.hears {
            None => count == 0,
            Some((old, next)) => old == epoch && count == next,
        };
        let before = view.hears.replace((epoch, count + 1));
        if !right {
            self.broke(format!("of n{node}, message {epoch}/{count} is heard after {before:?}"));
        }
    }
}
