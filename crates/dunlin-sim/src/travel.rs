//! Channels whose ends travel: programs that use them, put them into messages of other channels, and keep the
//! books that the laws are checked by.
//!
//! A [`Line`] is such a channel. Both its ends begin at one node, owned by one process; later each is where a
//! message has carried it. Messages are offers on *mail*: ordinary channels of `program.rs`, whose offers
//! carry [`Cargo`].

use std::collections::BTreeMap;

use bytes::Bytes;
use dunlin_proto::id::{ChannelId, Contact, NodeId};
use dunlin_proto::wire::{End, Failure, Poison, Terms, Which};
use dunlin_proto::{Arrival, HomeHears, Leaving, Passage, ProxyHears};

use crate::coverage::{Fault, Met};
use crate::line::{Cargo, Half, Home, Line, Open, Place, Queued, Receiver, Value};
use crate::program::{Outcome, Stage, goes_unread};
use crate::world::{Event, World, node_id, node_index};

fn bytes(line: usize, value: usize, size: usize) -> Bytes {
    let mut bytes = Vec::with_capacity(size);
    bytes.extend_from_slice(&(value as u32).to_le_bytes());
    bytes.push(line as u8);
    bytes.extend((5..size).map(|at| (at as u8).wrapping_mul(31).wrapping_add(value as u8)));
    Bytes::from(bytes)
}

impl World {
    pub(crate) fn line_of(&self, channel: ChannelId) -> Option<usize> {
        self.lines.iter().position(|line| line.id == channel)
    }

    /// Channels whose ends travel, and mail to carry them.
    pub(crate) fn set_up_travel(&mut self) {
        if !self.plan.travels {
            return;
        }
        for node in 0..self.plan.nodes {
            self.new_mail(self.current[node]);
        }
        for _ in 0..self.random.between(1, 3) {
            let node = self.random.index(self.plan.nodes);
            self.new_line(self.current[node]);
        }
        for node in 0..self.plan.nodes {
            self.after(1000, Event::Travel(self.current[node]));
        }
    }

    /// Mail to this process, from most others.
    pub(crate) fn new_mail(&mut self, proc: usize) {
        self.new_channel(proc);
        let channel = self.channels.len() - 1;
        self.channels[channel].mail = true;
        self.channels[channel].many = true;
        for node in 0..self.plan.nodes {
            if node != self.procs[proc].node && self.random.chance(80) {
                self.new_sender_at(channel, node);
            }
        }
    }

    pub(crate) fn new_line(&mut self, proc: usize) {
        let id = ChannelId(u128::from(self.random.next()) << 64 | u128::from(self.random.next()));
        let room = if self.random.chance(35) { 0 } else { self.random.between(1, 6) };
        let mut line = Line {
            id,
            room,
            window: self.random.between(1, 4) as u32,
            values: Vec::new(),
            last_received: None,
            halves: BTreeMap::new(),
            homes: BTreeMap::new(),
            touched: vec![self.procs[proc].node],
            sender_said: Vec::new(),
            receiver_said: Vec::new(),
            drained: false,
            asks: 0,
            admitted: BTreeMap::new(),
            void: Vec::new(),
        };
        let home = Some(self.procs[proc].node);
        line.halves.insert(proc, Half { in_hand: true, credits: room, home, ..Half::default() });
        line.homes.insert(proc, Home { granted: room, ..Home::new(Receiver::Home) });
        let terms = self.line_terms(&line, room);
        self.note(70, self.lines.len() as u64, || format!("a line {id:?} begins, with {terms:?}"));
        self.lines.push(line);
        self.procs[proc].machine.pair(id, terms);
        self.pump(proc);
    }

    fn line_terms(&self, line: &Line, credits: u64) -> Terms {
        Terms { window: line.window, credits: credits as u32, value_max: self.plan.value_max }
    }

    /// Whether a node that had one of its ends is lost, or the connection between two of them.
    fn is_harmed(&self, at: usize) -> bool {
        let touched = &self.lines[at].touched;
        self.failed.iter().any(|(one, other)| touched.contains(one) && touched.contains(other))
    }

    /// Records an event that only a loss explains. The machine may report that loss in the same event.
    fn claims_loss(&mut self, at: usize, what: String) {
        self.claims.push((at, what));
    }

    pub(crate) fn check_claims(&mut self) {
        for (at, what) in std::mem::take(&mut self.claims) {
            if !self.is_harmed(at) {
                self.broke(format!("line {at}: {what}, and nothing is lost"));
            }
        }
    }

    // What programs do.

    pub(crate) fn travel_steps(&mut self, proc: usize) {
        if self.procs[proc].leaving || self.resting {
            return;
        }
        for at in 0..self.lines.len() {
            if self.lines[at].halves.get(&proc).is_some_and(|half| half.in_hand) {
                self.half_does(at, proc);
            }
            if self.lines[at].homes.get(&proc).is_some_and(|home| home.in_hand) {
                self.receiver_does(at, proc);
            }
            if self.broken.is_some() {
                return;
            }
        }
        let wait = if self.healed { 5000 } else { self.random.between(300, self.plan.pace) };
        self.after(wait, Event::Travel(proc));
    }

    fn half_does(&mut self, at: usize, proc: usize) {
        let half = &self.lines[at].halves[&proc];
        if half.failed {
            return self.drop_sender(at, proc);
        }
        if half.leaving {
            return self.sends_end(at, proc, true);
        }
        if self.healed {
            return;
        }
        let full = half.open.len() >= 5 || self.lines[at].values.len() >= 60;
        let firm = half.open.values().filter(|open| !open.withdrawing).count();
        match self.random.below(100) {
            0..22 if self.plan.restless => self.sends_end(at, proc, true),
            0..22 if !full => self.offers_value(at, proc, false),
            22..32 if !full => self.offers_value(at, proc, true),
            32..52 if half.open.is_empty() && half.credits > 0 && !full => {
                for _ in 0..self.random.between(1, half.credits) {
                    self.sends_value(at, proc);
                }
                if self.random.chance(80) {
                    self.sends_end(at, proc, true);
                }
            }
            52..64 if firm > 0 => self.asks_back(at, proc),
            64..92 => self.sends_end(at, proc, true),
            92..93 => self.ends_line(at, proc),
            _ => {}
        }
    }

    fn new_value(&mut self, at: usize, proc: usize, choice: bool) -> usize {
        let size = if self.random.chance(70) {
            self.random.between(5, 16)
        } else {
            self.random.between(16, self.plan.value_max * 9 / 10)
        };
        self.lines[at].values.push(Value {
            size: size as usize,
            by: proc,
            choice,
            outcome: None,
            taken: false,
            taken_at: None,
            giver: None,
            taker: None,
            received: false,
            failed_by_home: false,
            cargo: Vec::new(),
        });
        self.lines[at].values.len() - 1
    }

    fn half(&mut self, at: usize, proc: usize) -> Option<&mut Half> {
        self.lines[at].halves.get_mut(&proc)
    }

    fn offers_value(&mut self, at: usize, proc: usize, choice: bool) {
        let value = self.new_value(at, proc, choice);
        let (id, now) = (self.lines[at].id, self.time());
        let size = self.lines[at].values[value].size;
        if let Some(half) = self.half(at, proc) {
            half.open.insert(value, Open { choice, ..Open::default() });
        }
        let mut cargo = Vec::new();
        if !choice && self.random.chance(30) {
            cargo = self.packs_an_end(proc, at + 1);
        }
        let how = if choice { "a choice offers" } else { "offers" };
        self.note(71, value as u64, || format!("line {at}: the sender {how} {value}, {size} bytes, with {cargo:?}"));
        self.lines[at].values[value].cargo = cargo;
        let machine = &mut self.procs[proc].machine;
        if choice {
            machine.offer_choice(now, id, value as u64, (1 << 64) | value as u128);
        } else if goes_unread(value as u64) {
            machine.offer_unread(now, id, value as u64, bytes(at, value, size));
        } else {
            machine.offer(now, id, value as u64, bytes(at, value, size));
        }
        self.pump(proc);
    }

    fn sends_value(&mut self, at: usize, proc: usize) {
        let value = self.new_value(at, proc, false);
        let (id, now, size) = (self.lines[at].id, self.time(), self.lines[at].values[value].size);
        self.lines[at].values[value].outcome = Some(Outcome::Sent);
        let Some(half) = self.half(at, proc).filter(|half| half.credits > 0) else { return };
        half.credits -= 1;
        self.note(72, value as u64, || format!("line {at}: the sender sends {value}, {size} bytes"));
        if !self.procs[proc].machine.send_on_credit(now, id, bytes(at, value, size)) {
            self.broke(format!("line {at}: the sender has a credit and may not send"));
        }
        self.pump(proc);
    }

    fn asks_back(&mut self, at: usize, proc: usize) {
        let (id, now) = (self.lines[at].id, self.time());
        let Some(half) = self.lines[at].halves.get(&proc) else { return };
        let open: Vec<usize> =
            half.open.iter().filter(|(_, open)| !open.withdrawing).map(|(value, _)| *value).collect();
        let value = open[self.random.index(open.len())];
        let Some(open) = self.half(at, proc).and_then(|half| half.open.get_mut(&value)) else { return };
        if open.held {
            return;
        }
        if open.choice && open.reserved.is_some() {
            if std::mem::replace(&mut open.revoking, true) {
                return;
            }
            self.note(73, value as u64, || format!("line {at}: the choice wants {value} back"));
            self.procs[proc].machine.revoke(now, id, value as u64);
        } else {
            open.withdrawing = true;
            open.again = false;
            self.note(74, value as u64, || format!("line {at}: {value} is asked back"));
            self.procs[proc].machine.withdraw(now, id, value as u64);
        }
        self.pump(proc);
    }

    /// The sender ends the channel: usually, its program drops it.
    fn ends_line(&mut self, at: usize, proc: usize) {
        if self.lines[at].halves[&proc].open.values().any(|open| open.choice) || self.random.chance(50) {
            return;
        }
        let how = match self.random.below(4) {
            0..3 => return self.drop_sender(at, proc),
            _ => End::Poisoned(Poison { strength: 255, reason: "the sender's".into() }),
        };
        if !self.lines[at].sender_said.is_empty() {
            return;
        }
        let (id, now) = (self.lines[at].id, self.time());
        self.note(75, at as u64, || format!("line {at}: the sender ends: {how:?}"));
        self.lines[at].sender_said.push(how.clone());
        self.procs[proc].machine.end_proxy(now, id, how);
        self.pump(proc);
    }

    fn drop_sender(&mut self, at: usize, proc: usize) {
        let (id, now) = (self.lines[at].id, self.time());
        let Some(half) = self.half(at, proc) else { return };
        if half.failed {
            self.lines[at].halves.remove(&proc);
        } else {
            // Open values stay open, and their outcomes are still to be reported.
            half.in_hand = false;
            if half.open.is_empty() {
                self.lines[at].halves.remove(&proc);
            }
            self.lines[at].sender_said.push(End::Gone);
        }
        self.note(76, at as u64, || format!("line {at}: the sender is dropped"));
        if self.procs[proc].machine.has_half(id) {
            self.procs[proc].machine.end_proxy(now, id, End::Gone);
        }
        self.pump(proc);
    }

    /// Sends the end that is here, the sender or the receiver, in a message; perhaps with the other one.
    fn sends_end(&mut self, at: usize, proc: usize, sender: bool) {
        let mail: Vec<usize> = (0..self.senders.len())
            .filter(|mail| {
                let sender = &self.senders[*mail];
                sender.proc == proc
                    && self.channels[sender.channel].mail
                    && matches!(sender.stage, Stage::Attaching { .. } | Stage::Attached)
                    && !sender.gone
                    && sender.ended.is_empty()
            })
            .collect();
        let may_go = !mail.is_empty() && !self.healed && self.offers.len() < 300;
        let mut cargo = Vec::new();
        if sender {
            let leaving = self.lines[at].halves[&proc].leaving;
            if (may_go || leaving)
                && let Some(packed) = self.pack_sender(at, proc)
            {
                cargo.push(packed);
            }
        }
        let receiver_too = !sender || (!cargo.is_empty() && self.random.chance(30));
        if receiver_too
            && may_go
            && let Some(packed) = self.pack_receiver(at, proc)
        {
            cargo.push(packed);
        }
        if cargo.is_empty() {
            return;
        }
        if !may_go {
            return cargo.into_iter().for_each(|cargo| self.end_stays(cargo, proc));
        }
        let mail = mail[self.random.index(mail.len())];
        self.mails(mail, cargo);
    }

    fn pack_sender(&mut self, at: usize, proc: usize) -> Option<usize> {
        let (id, now) = (self.lines[at].id, self.time());
        let packed = self.procs[proc].machine.pack_sender(now, id);
        let half = self.half(at, proc)?;
        let packed = match packed {
            Leaving::Ready(_, _) if !half.open.is_empty() => {
                self.broke(format!("line {at}: the sender is packed, and has offers that are open"));
                None
            }
            Leaving::Ready(place, trip) => {
                half.in_hand = false;
                half.leaving = false;
                self.cargos.push(Cargo {
                    line: at,
                    place: Place::Sender(place),
                    trip,
                    taker: None,
                    void: false,
                    by: proc,
                });
                Some(self.cargos.len() - 1)
            }
            Leaving::Wait => {
                half.leaving = true;
                None
            }
            Leaving::Over(_) => {
                if half.open.is_empty() {
                    half.failed = true;
                    half.leaving = false;
                }
                None
            }
        };
        let node = self.procs[proc].node;
        self.note(77, at as u64, || format!("line {at}: the sender is to leave n{node}: {packed:?}"));
        self.pump(proc);
        packed
    }

    fn pack_receiver(&mut self, at: usize, proc: usize) -> Option<usize> {
        let id = self.lines[at].id;
        let may_go = |home: &&mut Home| home.in_hand && home.held.is_none() && !home.retires && !home.retired;
        let home = self.lines[at].homes.get_mut(&proc).filter(may_go)?;
        let Leaving::Ready(place, trip) = self.procs[proc].machine.pack_receiver(id) else { return None };
        home.in_hand = false;
        self.cargos.push(Cargo { line: at, place: Place::Receiver(place), trip, taker: None, void: false, by: proc });
        let cargo = self.cargos.len() - 1;
        let node = self.procs[proc].node;
        self.note(78, at as u64, || format!("line {at}: the receiver is to leave n{node}: {cargo}"));
        Some(cargo)
    }

    // What becomes of messages with ends.

    /// Packs some end that is here and may go, of this line or a later one, for a message that goes at once.
    /// A line carries only ends of later lines, so that no two wait for each other.
    pub(crate) fn packs_an_end(&mut self, proc: usize, from: usize) -> Vec<usize> {
        if self.healed || self.procs[proc].leaving {
            return Vec::new();
        }
        for at in from..self.lines.len() {
            let half = self.lines[at].halves.get(&proc);
            if half.is_some_and(|half| half.in_hand && !half.failed && half.open.is_empty())
                && let Some(cargo) = self.pack_sender(at, proc)
            {
                return vec![cargo];
            }
            if let Some(cargo) = self.pack_receiver(at, proc) {
                return vec![cargo];
            }
        }
        Vec::new()
    }

    /// Whether these ends may go in a message on a credit: frames about them overtake values, and a node that
    /// only passes an end on may report it as settled.
    pub(crate) fn may_go_on_a_credit(&self, cargo: &[usize]) -> bool {
        cargo.iter().all(|cargo| {
            let Cargo { place, by, line, .. } = &self.cargos[*cargo];
            let which = if matches!(place, Place::Sender(_)) { Which::Sender } else { Which::Receiver };
            !self.procs[*by].machine.is_guest(self.lines[*line].id, which)
        })
    }

    /// The message was not taken.
    pub(crate) fn end_stays(&mut self, cargo: usize, proc: usize) {
        let (at, trip) = (self.cargos[cargo].line, self.cargos[cargo].trip);
        let (id, now) = (self.lines[at].id, self.time());
        if self.cargos[cargo].void {
            return;
        }
        let machine = &mut self.procs[proc].machine;
        match self.cargos[cargo].place {
            Place::Sender(_) => {
                machine.sender_stays(now, id, trip);
                self.sender_is_here(at, proc);
            }
            Place::Receiver(_) => {
                machine.receiver_stays(now, id, trip);
                self.receiver_is_here(at, proc);
            }
        }
        self.pump(proc);
    }

    /// The program owns the sender again. Its channel may have ended since.
    fn sender_is_here(&mut self, at: usize, proc: usize) {
        let is_there = self.procs[proc].machine.has_half(self.lines[at].id);
        let half = self.lines[at].halves.entry(proc).or_default();
        half.in_hand = true;
        half.failed |= !is_there;
    }

    /// As [`sender_is_here`](Self::sender_is_here).
    fn receiver_is_here(&mut self, at: usize, proc: usize) {
        let stand = self.procs[proc].machine.stand(self.lines[at].id);
        let Some(home) = self.home(at, proc) else {
            return self.claims_loss(at, "the receiver is here again, and another process has had it".to_owned());
        };
        home.in_hand = true;
        if home.state == Receiver::Guest && !stand.visitor {
            self.lines[at].homes.remove(&proc);
        }
    }

    /// The message was taken.
    pub(crate) fn ends_left(&mut self, cargo: Vec<usize>, proc: usize, taker: Contact) {
        for cargo in cargo {
            if self.cargos[cargo].taker.replace(taker).is_some() {
                continue;
            }
            self.touches(self.cargos[cargo].line, node_index(taker.node));
            if !self.healed && self.random.chance(20) {
                // A program may handle it late: meanwhile the life of the connection may end, and another one
                // begin.
                let wait = self.random.below(50_000);
                self.after(wait, Event::EndLeft(cargo, proc));
            } else {
                self.end_left(cargo, proc);
            }
        }
    }

    pub(crate) fn end_left(&mut self, cargo: usize, proc: usize) {
        let Cargo { line: at, trip, taker, .. } = self.cargos[cargo];
        let Some(taker) = taker else { return };
        let (id, now) = (self.lines[at].id, self.time());
        self.note(79, at as u64, || format!("line {at}: cargo {cargo} has left"));
        let machine = &mut self.procs[proc].machine;
        match self.cargos[cargo].place {
            Place::Sender(_) => drop(machine.sender_left(now, id, trip, taker)),
            Place::Receiver(_) => drop(machine.receiver_left(now, id, trip, taker)),
        }
        self.pump(proc);
    }

    /// Records that an end of this line is at that node, or on its way there.
    fn touches(&mut self, at: usize, node: usize) {
        if !self.lines[at].touched.contains(&node) {
            self.lines[at].touched.push(node);
        }
    }

    /// The sender of the message has learned its outcome.
    pub(crate) fn ends_concluded(&mut self, cargo: Vec<usize>, proc: usize, taker: Option<Contact>, outcome: Outcome) {
        match outcome {
            Outcome::Taken | Outcome::Sent => match taker {
                Some(taker) => self.ends_left(cargo, proc, taker),
                None => self.broke(format!("cargo {cargo:?} is reported as taken, without its taker")),
            },
            Outcome::NotTaken => cargo.into_iter().for_each(|cargo| self.end_stays(cargo, proc)),
            Outcome::Nobody => {}
            Outcome::Unknown => {
                for cargo in cargo {
                    let (at, trip) = (self.cargos[cargo].line, self.cargos[cargo].trip);
                    let (id, now) = (self.lines[at].id, self.time());
                    let machine = &mut self.procs[proc].machine;
                    let is_sender = matches!(self.cargos[cargo].place, Place::Sender(_));
                    let back = if is_sender {
                        machine.sender_back(now, id, trip)
                    } else {
                        machine.receiver_back(now, id, trip)
                    };
                    self.note(80, at as u64, || format!("line {at}: cargo {cargo} is back: {back}"));
                    if back && is_sender {
                        self.sender_is_here(at, proc);
                        if let (Place::Sender(place), Some(half)) =
                            (&self.cargos[cargo].place, self.lines[at].halves.get_mut(&proc))
                        {
                            half.doubt = place.transfer;
                        }
                    } else if back {
                        self.receiver_is_here(at, proc);
                        let is_home = self.home(at, proc).is_some_and(|home| home.state == Receiver::Home);
                        if let Place::Receiver(place) = &self.cargos[cargo].place
                            && is_home
                        {
                            self.lines[at].void.push(place.claim);
                        }
                        if let Some(home) = self.home(at, proc).filter(|home| home.state == Receiver::Guest) {
                            home.state = Receiver::Fetching;
                        }
                    }
                    self.pump(proc);
                }
            }
        }
    }

    /// The message has arrived at a channel that has ended: its ends are dropped.
    pub(crate) fn ends_arrive_late(&mut self, cargo: Vec<usize>, proc: usize, giver: Contact) {
        for cargo in cargo {
            if self.ends_arrive(vec![cargo], proc, giver) == [Arrival::Stale] {
                continue;
            }
            let at = self.cargos[cargo].line;
            match self.cargos[cargo].place {
                Place::Sender(_) => self.drop_sender(at, proc),
                Place::Receiver(_) => self.drop_receiver(at, proc),
            }
        }
    }

    /// This process takes the message.
    pub(crate) fn ends_arrive(&mut self, cargo: Vec<usize>, proc: usize, giver: Contact) -> Vec<Arrival> {
        let mut arrivals = Vec::with_capacity(cargo.len());
        for cargo in cargo {
            let at = self.cargos[cargo].line;
            let (id, now, node) = (self.lines[at].id, self.time(), self.procs[proc].node);
            self.touches(at, node);
            let machine = &mut self.procs[proc].machine;
            let is_sender = matches!(self.cargos[cargo].place, Place::Sender(_));
            let arrival = match self.cargos[cargo].place.clone() {
                Place::Sender(place) => machine.sender_arrives(now, id, place, giver),
                Place::Receiver(place) => machine.receiver_arrives(now, id, place, giver),
            };
            if arrival == Arrival::Guest {
                let here = |other: &&mut Cargo| {
                    other.line == at && other.by == proc && matches!(other.place, Place::Sender(_)) == is_sender
                };
                self.cargos.iter_mut().filter(here).for_each(|other| other.void = true);
            }
            match arrival {
                Arrival::Stale => {}
                Arrival::Guest if is_sender => {
                    let half = self.lines[at].halves.insert(proc, Half { in_hand: true, ..Half::default() });
                    if let Some(half) = half.filter(|half| half.in_hand && !half.failed) {
                        // That sender is lost, and its program has yet to learn it.
                        self.orphans.push((at, proc, half.open.into_keys().collect()));
                    }
                }
                Arrival::Guest => {
                    let Place::Receiver(place) = &self.cargos[cargo].place else { continue };
                    let home = Home { claim: place.claim, ..Home::new(Receiver::Guest) };
                    self.lines[at].homes.insert(proc, home);
                }
                Arrival::Returned if is_sender => self.lines[at].halves.entry(proc).or_default().in_hand = true,
                Arrival::Returned => match self.home(at, proc) {
                    Some(home) => {
                        home.in_hand = true;
                        if home.state == Receiver::Home
                            && let Place::Receiver(place) = &self.cargos[cargo].place
                        {
                            let claim = place.claim;
                            self.lines[at].void.push(claim);
                        }
                    }
                    None => self.broke(format!("line {at}: the receiver returns, and was never here")),
                },
            }
            self.note(81, at as u64, || format!("line {at}: cargo {cargo} arrives at n{node}: {arrival:?}"));
            self.pump(proc);
            arrivals.push(arrival);
        }
        arrivals
    }

    // What senders learn.

    pub(crate) fn line_half_hears(&mut self, at: usize, proc: usize, heard: ProxyHears) {
        if !self.lines[at].halves.contains_key(&proc) {
            match heard {
                // The event concerns a half that has been dropped since, or has left.
                ProxyHears::Credit(_)
                | ProxyHears::Home(..)
                | ProxyHears::Ended(_)
                | ProxyHears::Departed
                | ProxyHears::Rests => return,
                ProxyHears::Moved(_, again) if again.is_empty() => return,
                ProxyHears::Lost { unknown, not_taken, taken }
                    if unknown.is_empty() && not_taken.is_empty() && taken.is_empty() =>
                {
                    return;
                }
                heard => return self.broke(format!("line {at}: a sender that is not there gets {heard:?}")),
            }
        }
        let (id, now) = (self.lines[at].id, self.time());
        match heard {
            ProxyHears::Attached(_) | ProxyHears::Rejected(_) => {
                self.broke(format!("line {at}: a sender that was not attached gets {heard:?}"));
            }
            ProxyHears::Taken(ticket, taker) => {
                self.value_taken_by(at, ticket, taker);
                self.value_told(at, proc, ticket, Outcome::Taken);
            }
            ProxyHears::Held(ticket, taker) => {
                self.value_taken_by(at, ticket, taker);
                let taken = self.lines[at].values.get(ticket as usize).is_some_and(|value| value.taken);
                match self.half(at, proc).and_then(|half| half.open.get_mut(&(ticket as usize))) {
                    Some(open) if !open.held && taken => open.held = true,
                    _ => return self.broke(format!("line {at}: {ticket} is reported as held, and is not")),
                }
                let home = self.half(at, proc).and_then(|half| half.home);
                self.value_has_left(at, ticket as usize, home);
            }
            ProxyHears::Released(ticket) => {
                let held =
                    self.half(at, proc).and_then(|half| half.open.get(&(ticket as usize))).is_some_and(|o| o.held);
                if !held {
                    self.broke(format!("line {at}: {ticket} is released, and was not held"));
                }
                self.value_told(at, proc, ticket, Outcome::Taken);
            }
            ProxyHears::Failed(ticket, why) => {
                let known = self.lines[at].values.get(ticket as usize);
                if !known.is_some_and(|value| value.failed_by_home) && why != Failure::Closed {
                    self.broke(format!("line {at}: {ticket} failed ({why:?}), without a failure"));
                }
                self.value_told(at, proc, ticket, Outcome::NotTaken);
            }
            ProxyHears::Onward(_) | ProxyHears::Unread(_) => {
                self.broke(format!("line {at}: a value goes on, and none here does"))
            }
            ProxyHears::Withdrawn(ticket) => {
                let open = self.half(at, proc).and_then(|half| half.open.get(&(ticket as usize)));
                if open.is_some_and(|open| !open.withdrawing && !open.granted) {
                    self.broke(format!("line {at}: {ticket} is withdrawn without a request"));
                }
                self.value_told(at, proc, ticket, Outcome::NotTaken);
            }
            ProxyHears::Reserve(ticket, request) => {
                let Some(open) = self.half(at, proc).and_then(|half| half.open.get_mut(&(ticket as usize))) else {
                    return self.broke(format!("line {at}: {ticket} is asked for, and is not open"));
                };
                if open.withdrawing {
                    return;
                }
                if open.granted {
                    open.next = Some(request);
                } else {
                    self.is_reserved(at, proc, ticket as usize, request);
                }
            }
            ProxyHears::Abort(ticket) => {
                if let Some(open) = self.half(at, proc).and_then(|half| half.open.get_mut(&(ticket as usize))) {
                    open.reserved = None;
                    open.granted = false;
                    open.revoking = false;
                    let next = open.next.take();
                    for cargo in std::mem::take(&mut self.lines[at].values[ticket as usize].cargo) {
                        self.end_stays(cargo, proc);
                    }
                    if let Some(request) = next {
                        self.is_reserved(at, proc, ticket as usize, request);
                    }
                }
            }
            ProxyHears::Credit(count) => {
                if let Some(half) = self.half(at, proc) {
                    half.credits += u64::from(count);
                }
            }
            ProxyHears::Home(home, _, count) => {
                self.is_admitted(at, proc);
                if let Some(half) = self.half(at, proc) {
                    half.home = Some(node_index(home));
                    half.credits += u64::from(count);
                }
            }
            ProxyHears::Moved(home, again) => {
                if let Some(half) = self.half(at, proc) {
                    half.home = Some(node_index(home));
                }
                let slow = !self.healed && self.random.chance(20);
                for ticket in again {
                    match self.half(at, proc).and_then(|half| half.open.get_mut(&(ticket as usize))) {
                        Some(open) if open.held || open.choice => {
                            return self.broke(format!("line {at}: {ticket} is to be offered again, and is taken"));
                        }
                        Some(open) => open.again = !open.withdrawing,
                        None => {
                            return self.broke(format!("line {at}: {ticket} is to be offered again, and is not open"));
                        }
                    }
                }
                if slow {
                    let wait = self.random.below(20_000);
                    self.after(wait, Event::LineAgain(at, proc));
                } else {
                    self.offers_again(at, proc);
                }
            }
            ProxyHears::Rests => {}
            ProxyHears::Departed => {
                if self.half(at, proc).is_some_and(|half| !half.in_hand) {
                    self.half_over(at, proc, None);
                }
            }
            ProxyHears::Ended(how) => {
                let said = &self.lines[at];
                let is_said = said.receiver_said.contains(&how) || (said.drained && how == End::Gone);
                if !is_said && !said.sender_said.contains(&how) {
                    if how != End::Lost {
                        return self.broke(format!("line {at}: the sender gets {how:?} without a cause"));
                    }
                    self.claims_loss(at, format!("the sender gets {how:?}"));
                }
                self.half_over(at, proc, Some(Outcome::NotTaken));
                if self.procs[proc].machine.has_half(id) && how == End::Retired {
                    // Some programs keep the end for a while.
                    let keeps = self.half(at, proc).is_some_and(|half| half.in_hand) && self.random.chance(50);
                    let answer = if keeps { End::Retired } else { End::Gone };
                    self.procs[proc].machine.end_proxy(now, id, answer);
                }
            }
            ProxyHears::Lost { unknown, not_taken, taken } => {
                let orphan = self.orphans.iter().position(|(line, by, _)| (*line, *by) == (at, proc));
                if let Some(orphan) = orphan {
                    let (_, _, open) = self.orphans.remove(orphan);
                    self.claims_loss(at, "another sender has taken the place of this one".to_owned());
                    if !unknown.is_empty() || !taken.is_empty() || not_taken.len() != open.len() {
                        self.broke(format!("line {at}: of {open:?} it is reported that {not_taken:?} are not taken"));
                    }
                    not_taken.into_iter().for_each(|value| self.value_concluded(at, value as usize, Outcome::NotTaken));
                } else {
                    if self.lines[at].receiver_said.is_empty() && self.lines[at].sender_said.is_empty() {
                        self.claims_loss(at, "the sender learns that its home is lost".to_owned());
                    }
                    if !unknown.is_empty() {
                        self.claims_loss(at, format!("the outcome of {unknown:?} is unknown"));
                    }
                    for (tickets, outcome) in
                        [(unknown, Outcome::Unknown), (not_taken, Outcome::NotTaken), (taken, Outcome::Taken)]
                    {
                        tickets.into_iter().for_each(|ticket| self.value_told(at, proc, ticket, outcome));
                    }
                    self.half_over(at, proc, None);
                }
            }
        }
    }

    /// The home has confirmed to a sender that it knows it: no other may have the same number.
    fn is_admitted(&mut self, at: usize, proc: usize) {
        let stand = self.procs[proc].machine.stand(self.lines[at].id);
        let Some(half) = self.half(at, proc).filter(|_| stand.known) else { return };
        let number = stand.transfer.max(std::mem::take(&mut half.doubt));
        let before = self.lines[at].admitted.insert(number, proc);
        if let Some(before) = before.filter(|before| *before != proc) {
            self.broke(format!("line {at}: processes {before} and {proc} are both given sender {number}"));
        }
    }

    fn is_reserved(&mut self, at: usize, proc: usize, value: usize, request: u64) {
        if let Some(open) = self.half(at, proc).and_then(|half| half.open.get_mut(&value)) {
            open.reserved = Some(request);
            open.granted = false;
        }
        let wait = if self.healed || self.random.chance(60) { 0 } else { self.random.below(20_000) };
        self.after(wait, Event::LineGrant(at, proc, value, request));
    }

    /// A sender learns that its channel has ended: all its open values have this outcome.
    fn half_over(&mut self, at: usize, proc: usize, outcome: Option<Outcome>) {
        let Some(half) = self.half(at, proc) else { return };
        half.failed = true;
        half.leaving = false;
        let (open, in_hand) = (std::mem::take(&mut half.open), half.in_hand);
        for value in open.into_keys() {
            match outcome {
                Some(outcome) => self.value_concluded(at, value, outcome),
                None => {
                    self.broke(format!("line {at}: the sender has ended, and the outcome of {value} was not reported"))
                }
            }
        }
        if !in_hand {
            self.lines[at].halves.remove(&proc);
        }
    }

    fn value_told(&mut self, at: usize, proc: usize, ticket: u64, outcome: Outcome) {
        let value = ticket as usize;
        // An outcome for a sender that another one has replaced since.
        let orphan = |(line, by, values): &&mut (usize, usize, Vec<usize>)| {
            (*line, *by) == (at, proc) && values.contains(&value)
        };
        if let Some((_, _, values)) = self.orphans.iter_mut().find(orphan) {
            values.retain(|other| *other != value);
            return self.value_concluded(at, value, outcome);
        }
        let Some(half) = self.half(at, proc) else { return };
        let home = half.home;
        if half.open.remove(&value).is_none() {
            return self.broke(format!("line {at}: {ticket} is reported as {outcome:?}, and is not open"));
        }
        // The last open value of a sender that has been dropped.
        if !half.in_hand && half.open.is_empty() && !self.procs[proc].machine.has_half(self.lines[at].id) {
            self.lines[at].halves.remove(&proc);
        }
        if outcome == Outcome::Taken {
            self.value_has_left(at, value, home);
        }
        self.value_concluded(at, value, outcome);
    }

    fn value_taken_by(&mut self, at: usize, ticket: u64, taker: Contact) {
        if let Some(value) = self.lines[at].values.get_mut(ticket as usize) {
            value.taker = Some(taker);
        }
    }

    /// The sender of a value learns that it was taken, by this node as far as it knows: so the ends in the
    /// value are there.
    fn value_has_left(&mut self, at: usize, value: usize, home: Option<usize>) {
        let Value { by, taken_at, taker, ref cargo, .. } = self.lines[at].values[value];
        let cargo = cargo.clone();
        let told = taker.map(|taker| node_index(taker.node));
        match taker {
            _ if taken_at.is_none() => {}
            Some(taker) if taken_at == told && home == told => self.ends_left(cargo, by, taker),
            _ => self.broke(format!(
                "line {at}: {value} was taken at {taken_at:?}, and its sender gets {told:?}, and thinks {home:?}"
            )),
        }
    }

    fn value_concluded(&mut self, at: usize, value: usize, outcome: Outcome) {
        self.note(82, value as u64, || format!("line {at}: {value} is reported as {outcome:?}"));
        let known = &mut self.lines[at].values[value];
        let (before, taken) = (known.outcome, known.taken);
        known.outcome = Some(outcome);
        match outcome {
            _ if before.is_some() => {
                self.broke(format!("line {at}: {value} has two outcomes: {before:?} and {outcome:?}"));
            }
            Outcome::Taken if !taken => self.broke(format!("line {at}: {value} is reported as taken, and is not")),
            Outcome::NotTaken if taken => self.broke(format!("line {at}: {value} is reported as not taken, and is")),
            _ => {}
        }
        let known = &self.lines[at].values[value];
        if !known.cargo.is_empty() && (outcome != Outcome::Taken || known.taken_at.is_some()) {
            let (cargo, by, taker) = (known.cargo.clone(), known.by, known.taker);
            self.ends_concluded(cargo, by, taker, outcome);
        }
    }

    pub(crate) fn offers_again(&mut self, at: usize, proc: usize) {
        let (id, now) = (self.lines[at].id, self.time());
        let Some(half) = self.half(at, proc) else { return };
        let again: Vec<usize> = half.open.iter().filter(|(_, open)| open.again).map(|(value, _)| *value).collect();
        half.open.values_mut().for_each(|open| open.again = false);
        for value in again {
            let size = self.lines[at].values[value].size;
            self.note(83, value as u64, || format!("line {at}: {value} is offered again"));
            self.procs[proc].machine.offer_again(now, id, value as u64, bytes(at, value, size));
        }
        self.pump(proc);
    }

    pub(crate) fn grants_value(&mut self, at: usize, proc: usize, value: usize, request: u64) {
        let (id, now) = (self.lines[at].id, self.time());
        let Some(open) = self.half(at, proc).and_then(|half| half.open.get_mut(&value)) else { return };
        if open.reserved != Some(request) || open.granted || open.withdrawing {
            return;
        }
        open.granted = true;
        let size = self.lines[at].values[value].size;
        let cargo = if self.random.chance(30) { self.packs_an_end(proc, at + 1) } else { Vec::new() };
        self.note(84, value as u64, || format!("line {at}: {value} is granted to request {request}, with {cargo:?}"));
        self.lines[at].values[value].cargo = cargo;
        let (machine, bytes) = (&mut self.procs[proc].machine, bytes(at, value, size));
        let granted = if goes_unread(value as u64) {
            machine.grant_unread(now, id, value as u64, request, bytes)
        } else {
            machine.grant(now, id, value as u64, request, bytes)
        };
        if !granted && let Some(open) = self.half(at, proc).and_then(|half| half.open.get_mut(&value)) {
            // The request has ended.
            open.granted = false;
            open.reserved = None;
            for cargo in std::mem::take(&mut self.lines[at].values[value].cargo) {
                self.end_stays(cargo, proc);
            }
        }
        self.pump(proc);
    }

    // The receiver's program.

    fn receiver_does(&mut self, at: usize, proc: usize) {
        self.may_be_hurried(at, proc);
        let waited_for = self.lines[at].halves.iter().any(|(by, half)| {
            self.procs[*by].alive && (!half.open.is_empty() || half.leaving || self.lines[at].is_on_its_way(*by))
        });
        let home = &self.lines[at].homes[&proc];
        let id = self.lines[at].id;
        let now = self.time();
        if home.over {
            self.lines[at].homes.remove(&proc);
            return;
        }
        match home.state {
            Receiver::Fetching => {}
            Receiver::Guest => {
                let uses = if self.healed {
                    let idle = home.idle || self.random.chance(50);
                    if let Some(home) = self.lines[at].homes.get_mut(&proc) {
                        home.idle = idle;
                    }
                    waited_for || !idle
                } else {
                    let pick = self.random.below(100);
                    let retires = pick < 2;
                    if let Some(home) = self.home(at, proc) {
                        home.retires = retires;
                    }
                    match pick {
                        0..30 if retires || !self.plan.restless || self.random.chance(20) => true,
                        0..70 => return self.sends_end(at, proc, false),
                        70..71 => return self.drop_receiver(at, proc),
                        _ => false,
                    }
                };
                if uses {
                    self.note(85, at as u64, || format!("line {at}: the receiver is used by process {proc}"));
                    if let Some(home) = self.lines[at].homes.get_mut(&proc) {
                        home.state = Receiver::Fetching;
                    }
                    self.procs[proc].machine.use_receiver(now, id);
                    self.pump(proc);
                }
            }
            Receiver::Home => {
                if home.held.is_some() {
                    if self.healed || self.random.chance(50) {
                        self.releases(at, proc);
                    }
                    return;
                }
                if home.retired && home.ended.is_some() && home.buffer.is_empty() {
                    return self.is_drained(at, proc);
                }
                match self.random.below(100) {
                    _ if self.healed => (0..3).for_each(|_| self.receives(at, proc)),
                    0..50 => (0..self.random.between(1, 3)).for_each(|_| self.receives(at, proc)),
                    50..54 => self.refuses(at, proc),
                    54..60 => self.gives_up(at, proc),
                    60..90 => self.sends_end(at, proc, false),
                    90..91 if self.random.chance(50) => self.drop_receiver(at, proc),
                    91..92 if self.random.chance(50) => self.retires(at, proc),
                    _ => {}
                }
            }
        }
    }

    fn home(&mut self, at: usize, proc: usize) -> Option<&mut Home> {
        self.lines[at].homes.get_mut(&proc)
    }

    /// The giver of the receiver may have asked for it to be used, which its program does not notice.
    fn may_be_hurried(&mut self, at: usize, proc: usize) {
        let is_guest = self.procs[proc].machine.is_guest(self.lines[at].id, Which::Receiver);
        if let Some(home) = self.home(at, proc).filter(|home| home.state == Receiver::Guest && !is_guest) {
            home.state = Receiver::Fetching;
        }
    }

    /// A receive is polled.
    fn receives(&mut self, at: usize, proc: usize) {
        let Some(home) = self.home(at, proc).filter(|home| home.in_hand && home.held.is_none() && !home.left) else {
            return;
        };
        if home.state != Receiver::Home {
            return;
        }
        if let Some(value) = home.buffer.pop_front() {
            self.received(at, value);
        } else {
            let queue = home.queue.clone();
            for (from, value, state) in queue {
                match state {
                    Queued::Waiting | Queued::Granted => {
                        let extended = self.random.chance(25);
                        // The machine's next action may start the next receive.
                        self.received(at, value);
                        self.takes(at, proc, from, value, extended);
                        break;
                    }
                    Queued::Tentative => {
                        self.reserves(at, proc, from, value);
                        if self.random.chance(50) {
                            break;
                        }
                    }
                    Queued::Asked(_) => {}
                }
            }
        }
        self.admits(at, proc);
    }

    fn received(&mut self, at: usize, value: usize) {
        self.note(86, value as u64, || format!("line {at}: {value} is received"));
        let line = &mut self.lines[at];
        if std::mem::replace(&mut line.values[value].received, true) {
            return self.broke(format!("line {at}: {value} is received twice"));
        }
        if line.values[value].choice {
            return;
        }
        let by = line.values[value].by;
        let Some(last) = line.last_received.replace(value).filter(|last| *last > value) else { return };
        let what = format!("{value} is received after {last}");
        if line.values[last].by == by {
            self.broke(format!("line {at}: {what}"));
        } else {
            // After an unknown message, two nodes had the sender.
            self.claims_loss(at, what);
        }
    }

    /// A value is taken: once, and only if its sender has learned no other outcome.
    fn value_happens(&mut self, at: usize, value: usize) {
        let known = &mut self.lines[at].values[value];
        let outcome = known.outcome;
        if std::mem::replace(&mut known.taken, true) {
            self.broke(format!("line {at}: {value} is taken twice"));
        } else if outcome == Some(Outcome::NotTaken) {
            self.broke(format!("line {at}: {value} is taken, and was reported as not taken"));
        }
    }

    fn takes(&mut self, at: usize, proc: usize, from: usize, value: usize, extended: bool) {
        let (id, now) = (self.lines[at].id, self.time());
        self.note(87, value as u64, || {
            format!("line {at}: {value} is taken{}", if extended { " and held" } else { "" })
        });
        if let Some(home) = self.home(at, proc) {
            home.queue.retain(|(_, other, _)| *other != value);
            home.held = extended.then_some((from, value)).or(home.held);
        }
        self.value_happens(at, value);
        self.lines[at].values[value].taken_at = Some(self.procs[proc].node);
        let machine = &mut self.procs[proc].machine;
        if extended {
            machine.held(now, id, node_id(from), value as u64);
        } else {
            machine.taken(now, id, node_id(from), value as u64);
        }
        if let Some(giver) = self.lines[at].values[value].giver {
            self.ends_arrive(self.lines[at].values[value].cargo.clone(), proc, giver);
        }
        self.pump(proc);
    }

    fn releases(&mut self, at: usize, proc: usize) {
        let (id, now) = (self.lines[at].id, self.time());
        if let Some((from, value)) = self.home(at, proc).and_then(|home| home.held.take()) {
            self.note(88, value as u64, || format!("line {at}: {value} is released"));
            self.procs[proc].machine.released(now, id, node_id(from), value as u64);
            self.pump(proc);
        }
    }

    fn reserves(&mut self, at: usize, proc: usize, from: usize, value: usize) {
        let (id, now) = (self.lines[at].id, self.time());
        self.lines[at].asks += 1;
        let request = self.lines[at].asks;
        if let Some(home) = self.home(at, proc)
            && let Some(entry) = home.queue.iter_mut().find(|(_, other, _)| *other == value)
        {
            entry.2 = Queued::Asked(request);
        }
        self.note(89, value as u64, || format!("line {at}: {value} is asked for, request {request}"));
        self.procs[proc].machine.reserve(now, id, node_id(from), value as u64, request);
        self.pump(proc);
    }

    fn refuses(&mut self, at: usize, proc: usize) {
        let Some(home) = self.home(at, proc).filter(|home| !home.left && !home.queue.is_empty()) else { return };
        let (from, value, _) = home.queue.remove(0);
        self.fails(at, proc, from, value, Failure::Refused);
    }

    /// Answers a withdrawal, if the home is the one that was asked.
    pub(crate) fn says_withdrawn(&mut self, at: usize, proc: usize, claim: u64, from: NodeId, value: u64) {
        if self.home(at, proc).is_none_or(|home| home.claim != claim) {
            return;
        }
        let (id, now) = (self.lines[at].id, self.time());
        self.procs[proc].machine.withdrawn(now, id, from, value);
        self.pump(proc);
    }

    fn fails(&mut self, at: usize, proc: usize, from: usize, value: usize, why: Failure) {
        let (id, now) = (self.lines[at].id, self.time());
        self.lines[at].values[value].failed_by_home = true;
        self.note(90, value as u64, || format!("line {at}: {value} fails: {why:?}"));
        self.procs[proc].machine.failed(now, id, node_id(from), value as u64, why);
        self.pump(proc);
    }

    /// A receive that had asked is dropped; perhaps another one asks at once.
    fn gives_up(&mut self, at: usize, proc: usize) {
        let Some(home) = self.home(at, proc) else { return };
        let asked = |(_, _, state): &&(usize, usize, Queued)| matches!(state, Queued::Asked(_) | Queued::Granted);
        let Some((from, value, state)) = home.queue.iter().find(asked).copied() else { return };
        if matches!(state, Queued::Asked(_)) && self.random.chance(50) {
            self.reserves(at, proc, from, value);
        } else {
            self.aborts(at, proc, from, value);
        }
    }

    fn aborts(&mut self, at: usize, proc: usize, from: usize, value: usize) {
        let (id, now) = (self.lines[at].id, self.time());
        if let Some(home) = self.home(at, proc)
            && let Some(entry) = home.queue.iter_mut().find(|(_, other, _)| *other == value)
        {
            entry.2 = Queued::Tentative;
        }
        self.note(91, value as u64, || format!("line {at}: {value} is given up"));
        self.procs[proc].machine.abort(now, id, node_id(from), value as u64);
        self.pump(proc);
    }

    /// A buffer admits values while it has room: first the offers that wait, then credits.
    fn admits(&mut self, at: usize, proc: usize) {
        let (id, now, room) = (self.lines[at].id, self.time(), self.lines[at].room);
        while let Some(home) = self.home(at, proc)
            && home.state == Receiver::Home
            && !home.left
            && !home.over
            && !home.retired
            && home.ended.is_none()
            && (home.buffer.len() as u64 + home.granted) < room
        {
            let waits = |(_, _, state): &&(usize, usize, Queued)| matches!(state, Queued::Waiting | Queued::Granted);
            if let Some((from, value, _)) = home.queue.iter().find(waits).copied() {
                home.buffer.push_back(value);
                self.takes(at, proc, from, value, false);
                continue;
            }
            if self.random.chance(40) {
                return;
            }
            // The node with the sender gets the credit; the others are unknown.
            if let Some(home) = self.home(at, proc) {
                home.granted += 1;
            }
            for node in 0..self.plan.nodes {
                self.procs[proc].machine.credit(now, id, node_id(node), 1);
            }
            self.pump(proc);
        }
    }

    fn drop_receiver(&mut self, at: usize, proc: usize) {
        let (id, now) = (self.lines[at].id, self.time());
        self.may_be_hurried(at, proc);
        self.note(92, at as u64, || format!("line {at}: the receiver is dropped"));
        self.lines[at].receiver_said.push(End::Gone);
        match self.home(at, proc).map(|home| home.state) {
            Some(Receiver::Guest) => {
                self.lines[at].homes.remove(&proc);
                self.procs[proc].machine.drop_receiver(now, id);
                self.pump(proc);
            }
            Some(Receiver::Home) => self.ends_home(at, proc, End::Gone),
            _ => {}
        }
    }

    fn ends_home(&mut self, at: usize, proc: usize, how: End) {
        self.releases(at, proc);
        let (id, now) = (self.lines[at].id, self.time());
        let Some(home) = self.lines[at].homes.remove(&proc) else { return };
        self.lines[at].receiver_said.push(how.clone());
        for (from, value, _) in home.queue {
            self.fails(at, proc, from, value, Failure::Closed);
        }
        self.procs[proc].machine.end_home(now, id, how);
        self.pump(proc);
    }

    /// The receiver retires the channel: standing offers fail, and values sent on credits are still received.
    fn retires(&mut self, at: usize, proc: usize) {
        let Some(home) = self.home(at, proc).filter(|home| !home.retired && home.ended.is_none()) else { return };
        home.retired = true;
        let queue = std::mem::take(&mut home.queue);
        self.releases(at, proc);
        self.note(95, at as u64, || format!("line {at}: the receiver retires it"));
        self.coverage.retired += 1;
        self.lines[at].receiver_said.push(End::Retired);
        for (from, value, _) in queue {
            self.fails(at, proc, from, value, Failure::Closed);
        }
        let (id, now) = (self.lines[at].id, self.time());
        self.procs[proc].machine.end_home(now, id, End::Retired);
        self.pump(proc);
    }

    /// The sender has learned that the channel is retired, and all it had sent has been received: the
    /// receiver is dropped.
    fn is_drained(&mut self, at: usize, proc: usize) {
        self.note(96, at as u64, || format!("line {at}: the receiver has received all, and is dropped"));
        self.lines[at].homes.remove(&proc);
        self.lines[at].drained = true;
        let (id, now) = (self.lines[at].id, self.time());
        self.procs[proc].machine.end_home(now, id, End::Gone);
        self.pump(proc);
    }

    /// The sender has poisoned the channel: standing offers fail, and the receiver receives nothing more.
    fn is_poisoned(&mut self, at: usize, proc: usize, how: End) {
        let Some(home) = self.home(at, proc).filter(|home| !home.over) else { return };
        home.over = true;
        if home.in_hand {
            return self.ends_home(at, proc, how);
        }
        home.buffer.clear();
        let (queue, left) = (std::mem::take(&mut home.queue), home.left);
        self.lines[at].receiver_said.push(how.clone());
        if left {
            return;
        }
        for (from, value, _) in queue {
            self.fails(at, proc, from, value, Failure::Closed);
        }
        let (id, now) = (self.lines[at].id, self.time());
        self.procs[proc].machine.end_home(now, id, how);
        self.pump(proc);
    }

    pub(crate) fn line_home_hears(&mut self, at: usize, proc: usize, giver: Contact, heard: HomeHears) {
        let from = giver.node;
        let (id, now, node) = (self.lines[at].id, self.time(), node_index(from));
        if !self.lines[at].homes.contains_key(&proc) {
            // The receiver has been dropped here.
            return match heard {
                HomeHears::Arrived(_) | HomeHears::Empty | HomeHears::Leave => {
                    self.broke(format!("line {at}: a receiver that is not there gets {heard:?}"));
                }
                _ => {}
            };
        }
        let is_value = matches!(
            heard,
            HomeHears::Offered(..)
                | HomeHears::OfferedUnread(..)
                | HomeHears::OfferedByChoice(..)
                | HomeHears::Granted(..)
                | HomeHears::GrantedUnread(..)
                | HomeHears::Sent(_)
        );
        if let HomeHears::Offered(ticket, _)
        | HomeHears::OfferedUnread(ticket, _)
        | HomeHears::OfferedByChoice(ticket, _) = heard
            && let Some(value) = self.lines[at].values.get_mut(ticket as usize)
        {
            value.giver = Some(giver);
        }
        let home = &self.lines[at].homes[&proc];
        if is_value && (home.over || (home.retired && !matches!(heard, HomeHears::Sent(_)))) {
            // The machine reported it before the channel ended here.
            return;
        }
        match heard {
            HomeHears::Attached => self.broke(format!("line {at}: n{node} is attached")),
            HomeHears::Offered(ticket, value) | HomeHears::OfferedUnread(ticket, value) => {
                if !self.value_arrives(at, proc, ticket, Some(&value)) {
                    return;
                }
                let waits = self.random.chance(20);
                if let Some(home) = self.home(at, proc) {
                    home.queue.push((node, ticket as usize, Queued::Waiting));
                }
                if waits {
                    self.receives(at, proc);
                }
                self.admits(at, proc);
            }
            HomeHears::OfferedByChoice(ticket, choice) => {
                if choice != (1 << 64) | u128::from(ticket) {
                    self.broke(format!("line {at}: {ticket} arrives as another choice's"));
                }
                if self.value_arrives(at, proc, ticket, None)
                    && let Some(home) = self.home(at, proc)
                {
                    let in_hand = home.in_hand;
                    home.queue.push((node, ticket as usize, Queued::Tentative));
                    if in_hand && self.random.chance(50) {
                        self.reserves(at, proc, node, ticket as usize);
                    }
                }
            }
            HomeHears::Granted(ticket, request, value) | HomeHears::GrantedUnread(ticket, request, value) => {
                let whole = self.check_bytes(at, ticket, &value);
                let Some(home) = self.home(at, proc) else { return };
                let entry = home.queue.iter_mut().find(|(_, other, _)| *other == ticket as usize);
                if let Some(entry) = entry.filter(|entry| whole && entry.2 == Queued::Asked(request)) {
                    entry.2 = Queued::Granted;
                    if self.random.chance(40) {
                        self.receives(at, proc);
                    }
                }
            }
            HomeHears::Sent(value) => {
                self.procs[proc].machine.drained(self.lines[at].id, 1, value.len() as u64);
                let Some(first) = value.first_chunk() else { return self.broke("a value that was not sent") };
                let number = u32::from_le_bytes(*first) as usize;
                if !self.check_bytes(at, number as u64, &value) {
                    return;
                }
                let Some(home) = self.home(at, proc) else { return };
                home.buffer.push_back(number);
                if home.state == Receiver::Home {
                    if home.granted == 0 {
                        return self.broke(format!("line {at}: {number} arrives without a credit"));
                    }
                    home.granted -= 1;
                    if self.lines[at].values[number].outcome != Some(Outcome::Sent) {
                        return self.broke(format!("line {at}: {number} was offered, and arrives as sent on a credit"));
                    }
                    self.value_happens(at, number);
                } else if !self.lines[at].values[number].taken {
                    self.broke(format!("line {at}: {number} comes with the receiver, and was not in its buffer"));
                }
            }
            HomeHears::Withdraw(ticket) => {
                let Some(home) = self.home(at, proc) else { return };
                let before = home.queue.len();
                home.queue.retain(|(_, other, _)| *other != ticket as usize);
                let claim = home.claim;
                if home.queue.len() < before {
                    self.note(93, ticket, || format!("line {at}: {ticket} is withdrawn"));
                    // The home may have passed it on and need it back: the receiver may have left meanwhile.
                    let wait = if self.random.chance(80) { 0 } else { self.random.below(20_000) };
                    self.after(wait, Event::LineWithdrawn(at, proc, claim, from, ticket));
                }
            }
            HomeHears::Revoke(ticket) => {
                let Some(home) = self.home(at, proc) else { return };
                let asked = home.queue.iter().any(|(_, other, state)| {
                    *other == ticket as usize && matches!(state, Queued::Asked(_) | Queued::Granted)
                });
                if asked {
                    self.aborts(at, proc, node, ticket as usize);
                }
            }
            HomeHears::Ended(how) => {
                // A half answers poison by itself, and its program retirement.
                let answers = self.lines[at].receiver_said.iter().any(|said| match said {
                    End::Poisoned(_) => how == End::Gone,
                    End::Retired => matches!(how, End::Gone | End::Retired),
                    End::Gone | End::Lost => false,
                });
                if !answers {
                    self.sender_ended(at, &how);
                }
                if let Some(home) = self.home(at, proc) {
                    home.granted = 0;
                    let poison = matches!(how, End::Poisoned(_));
                    home.ended.get_or_insert(how.clone());
                    if poison {
                        self.is_poisoned(at, proc, how);
                    }
                }
            }
            HomeHears::Lost(_) => {
                self.sender_ended(at, &End::Lost);
                if let Some(home) = self.home(at, proc) {
                    home.queue.retain(|(by, ..)| *by != node);
                    home.held = None;
                    home.ended.get_or_insert(End::Lost);
                    home.granted = 0;
                }
            }
            HomeHears::Take => {
                let Some(home) = self.home(at, proc) else { return };
                let stale: Vec<usize> = home.queue.iter().map(|(_, value, _)| *value).collect();
                home.granted = 0;
                if !stale.is_empty() {
                    return self.broke(format!("line {at}: the sender has moved, and {stale:?} stand"));
                }
                let free = self.lines[at].room.saturating_sub(self.lines[at].homes[&proc].buffer.len() as u64);
                if let Some(home) = self.home(at, proc) {
                    home.granted = free;
                }
                let terms = self.line_terms(&self.lines[at], free);
                self.procs[proc].machine.admit(now, id, from, terms);
            }
            HomeHears::Leave => {
                if self.home(at, proc).is_some_and(|home| home.in_hand) {
                    return self.broke(format!("line {at}: the receiver is used elsewhere, and is here"));
                }
                let wait = if self.random.chance(70) { 0 } else { self.random.below(20_000) };
                self.after(wait, Event::LineLeaves(at, proc));
            }
            HomeHears::Empty => {
                let Some(home) = self.lines[at].homes.remove(&proc) else { return };
                let values: Vec<Bytes> =
                    home.buffer.iter().map(|value| bytes(at, *value, self.lines[at].values[*value].size)).collect();
                self.note(94, at as u64, || format!("line {at}: {:?} go to n{node}", home.buffer));
                self.procs[proc].machine.ship(now, id, values);
            }
            HomeHears::Arrived(ended) => {
                if let Some(how) = &ended {
                    self.sender_ended(at, how);
                }
                let Some(home) = self.home(at, proc) else { return };
                let (state, in_hand) = (home.state, home.in_hand);
                home.state = Receiver::Home;
                home.ended.clone_from(&ended);
                let claim = home.claim;
                if self.lines[at].void.contains(&claim) {
                    return self.broke(format!("line {at}: a receiver is used that was at its home again"));
                }
                // Its giver may have asked for it to be used.
                if state == Receiver::Home || !in_hand {
                    return self.broke(format!("line {at}: the receiver is at home, and was {state:?}"));
                }
                self.procs[proc].machine.install(now, id);
                if let Some(how @ End::Poisoned(_)) = ended {
                    self.is_poisoned(at, proc, how);
                } else if self.home(at, proc).is_some_and(|home| home.retires) {
                    self.retires(at, proc);
                }
            }
            HomeHears::Lapsed(how) => {
                if how == End::Lost {
                    self.claims_loss(at, "the receiver is lost".to_owned());
                } else if !self.lines[at].receiver_said.contains(&how) {
                    self.broke(format!("line {at}: the receiver lapses ({how:?}), without a drop"));
                }
                if self.home(at, proc).is_some_and(|home| home.in_hand) {
                    return self.broke(format!("line {at}: the receiver lapses ({how:?}), and is here"));
                }
                if self.home(at, proc).is_some_and(|home| home.over) {
                    self.lines[at].homes.remove(&proc);
                    return;
                }
                self.ends_home(at, proc, End::Gone);
            }
            HomeHears::Announced => {
                self.procs[proc].machine.awaited(id);
                self.pump(proc);
            }
            HomeHears::Failed(how) => {
                if how == End::Lost {
                    self.claims_loss(at, "the receiver fails".to_owned());
                }
                // Otherwise it was an earlier receiver, which this one has replaced.
                if !self.procs[proc].machine.stand(id).visitor {
                    self.lines[at].homes.remove(&proc);
                }
            }
        }
    }

    fn sender_ended(&mut self, at: usize, how: &End) {
        if *how == End::Lost {
            self.claims_loss(at, "the receiver learns that its sender is lost".to_owned());
        } else if !self.lines[at].sender_said.contains(how) {
            self.broke(format!("line {at}: the receiver gets {how:?}, and the sender has not sent that"));
        }
    }

    pub(crate) fn leaves_home(&mut self, at: usize, proc: usize) {
        let (id, now) = (self.lines[at].id, self.time());
        if let Some(home) = self.home(at, proc) {
            home.left = true;
            self.procs[proc].machine.leave_home(now, id);
            self.pump(proc);
        }
    }

    fn check_bytes(&mut self, at: usize, ticket: u64, value: &Bytes) -> bool {
        let known = self.lines[at].values.get(ticket as usize);
        let right = known.is_some_and(|known| *value == bytes(at, ticket as usize, known.size));
        if !right {
            self.broke(format!("line {at}: {ticket} arrives, and was not sent so"));
        }
        right
    }

    fn value_arrives(&mut self, at: usize, proc: usize, ticket: u64, value: Option<&Bytes>) -> bool {
        if value.is_some_and(|value| !self.check_bytes(at, ticket, value)) {
            return false;
        }
        let value = ticket as usize;
        let queued = self.lines[at].homes[&proc].queue.iter().any(|(_, other, _)| *other == value);
        if queued || self.lines[at].values[value].taken {
            self.broke(format!("line {at}: {value} arrives twice"));
            return false;
        }
        true
    }

    /// A process ends, and all its ends with it.
    pub(crate) fn travel_dies(&mut self, proc: usize) {
        for line in &mut self.lines {
            line.halves.remove(&proc);
            line.homes.remove(&proc);
            for value in line.values.iter_mut().filter(|value| value.by == proc && value.outcome.is_none()) {
                value.outcome = Some(Outcome::Nobody);
            }
        }
        self.fails_with_all(self.procs[proc].node);
    }

    pub(crate) fn fails_with_all(&mut self, node: usize) {
        for other in 0..self.plan.nodes {
            self.failed.insert((node, other));
        }
    }

    // Laws.

    pub(crate) fn travel_unsettled(&self) -> Option<String> {
        for (at, line) in self.lines.iter().enumerate() {
            let open = line.values.iter().position(|value| value.outcome.is_none() && self.procs[value.by].alive);
            if let Some(value) = open {
                return Some(format!("line {at}: {value} has no outcome"));
            }
            let living = |proc: &&usize| self.procs[**proc].alive;
            for (proc, half) in line.halves.iter().filter(|(proc, _)| living(proc)) {
                if half.leaving || (half.in_hand && half.failed) {
                    return Some(format!("line {at}: the sender at n{} is {half:?}", self.procs[*proc].node));
                }
            }
            let sender = line.halves.iter().any(|(proc, half)| living(&proc) && half.in_hand && !half.failed);
            for (proc, home) in line.homes.iter().filter(|(proc, _)| living(proc)) {
                let node = self.procs[*proc].node;
                if home.state == Receiver::Fetching {
                    return Some(format!("line {at}: the receiver at n{node} never arrives"));
                }
                if home.state == Receiver::Home && home.in_hand && !sender && home.ended.is_none() {
                    return Some(format!("line {at}: the receiver at n{node} waits for a sender that is nowhere"));
                }
                if home.state == Receiver::Home && home.in_hand && !home.buffer.is_empty() {
                    return Some(format!("line {at}: the receiver at n{node} has yet to receive"));
                }
            }
        }
        None
    }

    pub(crate) fn travel_at_rest(&mut self) {
        let mut wrong = Vec::new();
        for (at, line) in self.lines.iter().enumerate() {
            let living = |proc: &usize| self.procs[*proc].alive && self.current[self.procs[*proc].node] == *proc;
            let stand = |proc: usize| self.procs[proc].machine.stand(line.id);
            let in_hand = || line.halves.iter().filter(|(proc, half)| living(proc) && half.in_hand && !half.failed);
            let receivers = || line.homes.iter().filter(|(proc, home)| living(proc) && home.in_hand);
            let unused_sender = in_hand().any(|(proc, _)| !stand(*proc).known);
            let guest = receivers().any(|(_, home)| home.state == Receiver::Guest);
            for proc in self.current.iter().copied().filter(living) {
                let (stand, node) = (stand(proc), self.procs[proc].node);
                let has_sender = in_hand().any(|(by, _)| *by == proc);
                let home = line.homes.get(&proc);
                if stand.half != has_sender && !(stand.half && unused_sender) {
                    wrong.push(format!(
                        "line {at}: at rest n{node} keeps a half: {}, has the sender: {has_sender}",
                        stand.half
                    ));
                }
                if stand.visitor && !guest {
                    wrong.push(format!("line {at}: at rest n{node} keeps a receiver without a holder"));
                }
                let is_home = home.is_some_and(|home| home.state == Receiver::Home);
                if stand.home.is_some() != is_home {
                    wrong.push(format!(
                        "line {at}: at rest n{node} is a home: {}, has the receiver: {is_home}",
                        !is_home
                    ));
                }
                if is_home && home.is_some_and(|home| !home.in_hand) && !guest {
                    wrong.push(format!("line {at}: at rest n{node} waits for a receiver without a holder"));
                }
                if stand.known && !receivers().any(|_| true) {
                    wrong.push(format!("line {at}: at rest n{node} has a sender whose receiver is nowhere"));
                }
            }
            if self.is_harmed(at) {
                continue;
            }
            if line.sender_said.is_empty() && line.receiver_said.is_empty() {
                if in_hand().count() != 1 {
                    wrong.push(format!("line {at}: there are {} senders, and nothing has failed", in_hand().count()));
                }
                if receivers().count() != 1 {
                    wrong.push(format!(
                        "line {at}: there are {} receivers, and nothing has failed",
                        receivers().count()
                    ));
                }
            }
            if line.receiver_said.iter().all(|how| *how == End::Retired) {
                let lost = line
                    .values
                    .iter()
                    .position(|value| matches!(value.outcome, Some(Outcome::Sent | Outcome::Taken)) && !value.received);
                let queued = |value: usize| line.homes.values().any(|home| home.buffer.contains(&value));
                if let Some(value) = lost.filter(|value| !queued(*value)) {
                    wrong.push(format!("line {at}: {value} is lost, and nothing has failed"));
                }
            }
        }
        wrong.into_iter().for_each(|what| self.broke(what));
    }

    /// How many homes, halves and receivers on their way a process has.
    pub(crate) fn travel_census(&self, proc: usize) -> (usize, usize, usize, usize) {
        let (mut homes, mut attached, mut halves, mut visitors) = (0, 0, 0, 0);
        for line in &self.lines {
            let stand = self.procs[proc].machine.stand(line.id);
            homes += usize::from(stand.home.is_some());
            attached += stand.home.unwrap_or(0);
            halves += usize::from(stand.half);
            visitors += usize::from(stand.visitor);
        }
        (homes, attached, halves, visitors)
    }

    /// Counts where the ends that travel stand between two nodes at the moment of a fault.
    pub(crate) fn met_travel(&mut self, fault: Fault, procs: [usize; 2]) {
        for (proc, other) in [(procs[0], procs[1]), (procs[1], procs[0])] {
            let other_node = node_id(self.procs[other].node);
            for at in 0..self.lines.len() {
                for (passage, node) in self.procs[proc].machine.passages(self.lines[at].id) {
                    if node != other_node {
                        continue;
                    }
                    let met = match passage {
                        Passage::Resting => Met::Resting,
                        Passage::Lent => Met::Lent,
                        Passage::Taking => Met::Taking,
                        Passage::Asking => Met::Asking,
                        Passage::Draining => Met::Draining,
                        Passage::Leaving => Met::Leaving,
                        Passage::Fetching => Met::Fetching,
                        Passage::Filling => Met::Filling,
                        _ => continue,
                    };
                    self.coverage.met(fault, met);
                }
            }
        }
    }
}
