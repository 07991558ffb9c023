//! What senders do: offer, alone or in choices, send on credits, withdraw, end.

use std::collections::VecDeque;

use dunlin_proto::wire::{End, Expected, Face, Poison};

use super::{AtHome, Choice, Offer, Outcome, Sender, Stage, declaration, goes_unread, value};
use crate::world::{Event, World, node_id};

impl World {
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

    /// The channel was retired: sends the last values on credits, and then the end.
    fn closes(&mut self, at: usize) {
        // A sender that retired the channel itself sends nothing after that.
        let retired = self.senders[at].ended.contains(&End::Retired);
        while !retired
            && self.senders[at].credits > 0
            && !self.healed
            && self.offers.len() < self.plan.offers_max
            && self.random.chance(40)
        {
            self.send(at, Vec::new());
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
        self.reach(proc, self.procs[self.channels[self.senders[at].channel].proc].node);
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
                let machine = &mut self.procs[proc].machine;
                if goes_unread(offer as u64) {
                    machine.offer_unread(now, id, offer as u64, value(offer, size));
                } else {
                    machine.offer(now, id, offer as u64, value(offer, size));
                }
                self.pump(proc);
            }
            30..45 if !full => self.offer_by_choice(at),
            45..75 if sender.credits > 0 && !full => {
                self.send(at, Vec::new());
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

    /// Offers a message with ends in it, or sends it on a credit.
    pub(crate) fn mails(&mut self, at: usize, cargo: Vec<usize>) {
        if self.senders[at].credits > 0 && self.may_go_on_a_credit(&cargo) && self.random.chance(50) {
            return self.send(at, cargo);
        }
        let offer = self.new_offer(at, None);
        let (size, sender) = (self.offers[offer].size, &self.senders[at]);
        let (proc, id, now) = (sender.proc, self.channels[sender.channel].id, self.time());
        self.note(21, offer as u64, || format!("sender {at} offers {offer}, {size} bytes, with {cargo:?}"));
        self.offers[offer].cargo = cargo;
        self.procs[proc].machine.offer(now, id, offer as u64, value(offer, size));
        self.pump(proc);
    }

    /// Sends one value on a credit, perhaps with ends in it: those leave with it.
    fn send(&mut self, at: usize, cargo: Vec<usize>) {
        let sender = &self.senders[at];
        let (proc, id, now) = (sender.proc, self.channels[sender.channel].id, self.time());
        let (credits, number, max) = (sender.credits, sender.sent, sender.value_max);
        let offer = self.new_offer(at, None);
        let size = self.offers[offer].size.min(max as usize);
        self.note(12, offer as u64, || {
            format!("sender {at} sends {offer}, {size} bytes, number {number}, with {cargo:?}")
        });
        self.senders[at].credits = credits - 1;
        self.senders[at].sent = number + 1;
        let to = self.procs[self.channels[self.senders[at].channel].proc].node;
        self.offers[offer] =
            Offer { size, number, outcome: Some(Outcome::Sent), cargo: cargo.clone(), ..self.bare_offer(at) };
        if !self.procs[proc].machine.send_on_credit(now, id, value(offer, size)) {
            self.broke(format!("sender {at} had {credits} credits and may not send"));
        }
        let taker = self.procs[proc].machine.contact(node_id(to));
        self.ends_left(cargo, proc, taker);
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
            giver: None,
            taker: None,
        }
    }

    fn new_offer(&mut self, sender: usize, choice: Option<usize>) -> usize {
        let size = match self.random.below(100) {
            20..97 if self.plan.holds => self.random.between(self.plan.value_max / 2, self.plan.value_max),
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
            // An earlier offer may have decided it, or one of the ends may have ended.
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

    pub(super) fn choice_decided(&mut self, choice: usize, by: Option<usize>) {
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
    pub(super) fn asked(&mut self, offer: usize, request: u64) {
        let Some(choice) = self.offers[offer].choice else {
            return self.broke(format!("{offer} is asked for and is no choice's"));
        };
        if self.choices[choice].decided {
            // A withdrawal was sent before.
            return;
        }
        let state = &mut self.choices[choice];
        match state.by {
            // Its home has given up the first request: a request without an answer must not get one now.
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
        let mut cargo = Vec::new();
        if size as u64 > self.plan.value_max {
            // Its machine does not grant it, and withdraws it.
            self.offers[offer].withdrawing = true;
        } else if self.channels[self.offers[offer].channel].mail && self.random.chance(60) {
            cargo = self.packs_an_end(proc, 0);
        }
        self.note(17, offer as u64, || format!("{offer} is granted to request {request}, with {cargo:?}"));
        self.offers[offer].cargo = cargo;
        if !self.procs[proc].machine.grant(now, id, offer as u64, request, value(offer, size)) {
            self.ends_come_back(offer);
        }
        self.pump(proc);
    }

    /// A granted value was not taken, and may be granted again.
    pub(super) fn ends_come_back(&mut self, offer: usize) {
        let proc = self.senders[self.offers[offer].sender].proc;
        for cargo in std::mem::take(&mut self.offers[offer].cargo) {
            self.end_stays(cargo, proc);
        }
    }

    /// Releases the reservation, if it was this offer's; the next request may have it.
    pub(super) fn unlock(&mut self, offer: usize) {
        let Some(choice) = self.offers[offer].choice else { return };
        if self.offers[offer].outcome.is_none() {
            self.ends_come_back(offer);
        }
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
            // A choice borrows the end, so it ends first.
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

    pub(super) fn forget_if_gone(&mut self, at: usize) {
        let sender = &self.senders[at];
        if sender.gone && sender.stage == Stage::Attached && self.open_offers(at).next().is_none() {
            self.senders[at].stage = Stage::Over;
            if !self.healed && self.random.chance(40) {
                self.new_sender(self.senders[at].channel);
            }
        }
    }

    /// The sender learns that its channel has ended: every open offer has this outcome, except those named.
    pub(super) fn sender_over(&mut self, at: usize, outcome: Option<Outcome>) {
        self.senders[at].stage = Stage::Over;
        let open: Vec<usize> = self.open_offers(at).collect();
        for offer in open {
            match outcome {
                Some(outcome) => self.conclude(offer, outcome),
                None => self.broke(format!("the connection died, and the outcome of {offer} was not reported")),
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
}
