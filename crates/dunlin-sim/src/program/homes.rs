//! What homes do: a small honest model of a channel's queue.

use dunlin_proto::id::ChannelId;
use dunlin_proto::wire::{End, Expected, Face, Failure, Poison};

use super::{AtHome, Outcome, declaration};
use crate::world::{Event, World, node_id};

impl World {
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
        // (In runs that hold values, receives are rare.)
        let wait = match (self.healed, idle) {
            (true, true) => 40_000,
            (true, false) => 3000,
            (false, _) if self.plan.holds => self.random.between(self.plan.pace, 20 * self.plan.pace),
            (false, _) => self.random.between(300, self.plan.pace),
        };
        self.after(wait, Event::Home(at));
    }

    fn buffered(&self, at: usize) -> u64 {
        let channel = &self.channels[at];
        channel.buffer.len() as u64 + channel.halves.iter().map(|half| half.granted).sum::<u64>()
    }

    pub(super) fn home_call<R>(
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
    pub(super) fn receive(&mut self, at: usize) {
        if self.channels[at].opened.is_none() {
            return;
        }
        if let Some(first) = self.channels[at].buffer.pop_front() {
            self.note(31, first as u64, || format!("channel {at}: received {first} from the buffer"));
            if self.plan.holds && self.offers[first].outcome == Some(Outcome::Sent) {
                let (proc, id, size) = (self.channels[at].proc, self.channels[at].id, self.offers[first].size as u64);
                self.procs[proc].machine.drained(id, 1, size);
                self.pump(proc);
            }
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
        let channel = &mut self.channels[at];
        if std::mem::take(&mut channel.asked) {
            let (proc, id) = (channel.proc, channel.id);
            self.note(44, at as u64, || format!("channel {at}: a receive waits"));
            self.procs[proc].machine.awaited(id);
            self.pump(proc);
        }
    }

    /// A buffer admits values while it has room: first the offers that wait, then credits.
    pub(super) fn admit(&mut self, at: usize) {
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

    pub(super) fn reserve(&mut self, at: usize, offer: usize) {
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
        if let Some(giver) = self.offers[offer].giver {
            self.ends_arrive(self.offers[offer].cargo.clone(), self.channels[at].proc, giver);
        }
    }

    /// A value is taken: once, only if its sender has learned no other outcome, and as the only one of its
    /// choice.
    pub(super) fn happens(&mut self, offer: usize) {
        if self.offers[offer].taken {
            return self.broke(format!("{offer} is taken twice"));
        }
        if self.offers[offer].outcome == Some(Outcome::NotTaken) {
            return self.broke(format!("{offer} is taken, and was reported as not taken"));
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

    /// A receive that had asked is dropped, or gives up waiting.
    fn give_up_one(&mut self, at: usize) {
        let asked = |offer: &usize| matches!(self.offers[*offer].at_home, AtHome::Asked(_) | AtHome::Granted(_));
        if let Some(offer) = self.channels[at].queue.iter().copied().find(asked) {
            if matches!(self.offers[offer].at_home, AtHome::Asked(_)) && self.random.chance(50) {
                // The next receive asks again, while the first grant may be on its way.
                self.reserve(at, offer);
            } else {
                self.abort(offer);
            }
        }
    }

    pub(super) fn abort(&mut self, offer: usize) {
        self.offers[offer].at_home = AtHome::Tentative;
        self.note(37, offer as u64, || format!("{offer} is given up"));
        self.home_call(offer, |machine, now, id, from| machine.abort(now, id, from, offer as u64));
    }

    pub(super) fn end(&mut self, at: usize, how: End) {
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
}
