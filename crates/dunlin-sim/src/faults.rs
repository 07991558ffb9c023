//! Which faults strike, and when.

use crate::coverage::{Fault, Met};
use crate::plan::KINDS;
use crate::program::{AtHome, Outcome};
use crate::socket::Mute;
use crate::view::Standing;
use crate::world::{Event, World};

impl World {
    pub(crate) fn fault(&mut self) {
        if self.healed {
            return;
        }
        let total: u64 = self.plan.weights.iter().sum();
        if total == 0 {
            return;
        }
        let mut pick = self.random.below(total);
        let kind = self.plan.weights.iter().position(|weight| {
            let here = pick < *weight;
            pick = pick.wrapping_sub(*weight);
            here
        });
        self.strike(KINDS[kind.expect("the pick is less than the sum")]);
        let wait = self.random.between(500, self.plan.every);
        self.after(wait, Event::Fault);
    }

    /// The duration of a fault: mostly short, sometimes longer than a grace period.
    fn spell(&mut self) -> u64 {
        let long = if self.random.chance(60) { 100_000 } else { 2_500_000 };
        self.random.between(1000, long).min(self.plan.heal_at.saturating_sub(self.now))
    }

    fn strike(&mut self, fault: Fault) {
        self.note(60, fault as u64, || format!("-- {fault:?}"));
        match fault {
            Fault::Cut | Fault::HalfOpen => {
                let live: Vec<usize> = (0..self.sockets.len())
                    .filter(|at| {
                        let socket = &self.sockets[*at];
                        !socket.cut && (socket.open[0] || socket.open[1])
                    })
                    .collect();
                if !live.is_empty() {
                    let socket = live[self.random.index(live.len())];
                    let [from, to] = self.sockets[socket].nodes;
                    self.met(fault, from, to, Some(socket));
                    self.note(61, socket as u64, || format!("-- socket {socket} between n{from} and n{to} is cut"));
                    self.cut(socket, fault == Fault::HalfOpen);
                }
            }
            Fault::Stall | Fault::Vanish | Fault::Deaf | Fault::Large => {
                let (from, to) = (self.random.index(self.plan.nodes), self.random.index(self.plan.nodes));
                if from != to && self.mutes[from][to] == Mute::None {
                    self.met(fault, from, to, None);
                    self.note(62, (from * 8 + to) as u64, || format!("-- n{from} is not received by n{to}"));
                    self.mutes[from][to] = match fault {
                        Fault::Stall => Mute::Stalled,
                        Fault::Vanish => Mute::Vanish,
                        Fault::Deaf => Mute::Deaf { behind_handshake: self.random.chance(60) },
                        _ => Mute::Large { from: self.random.between(160, 400) as usize },
                    };
                    let wait = self.spell();
                    self.after(wait, Event::Unmute(from, to));
                }
            }
            Fault::Refuses => {
                // Once for each node: two spells may be as far apart as refusals that count.
                let node = self.random.index(self.plan.nodes);
                if self.refuses_until[node] == 0 {
                    for other in (0..self.plan.nodes).filter(|other| *other != node) {
                        self.met(fault, node, other, None);
                    }
                    let spell = self.random.between(1, crate::world::micros(self.plan.config.refused) - 1);
                    self.note(65, node as u64, || format!("-- n{node} refuses for {spell} us"));
                    self.refuses_until[node] = self.now + spell;
                    // Refusals matter only where nodes have to dial.
                    for socket in 0..self.sockets.len() {
                        let entry = &self.sockets[socket];
                        if entry.nodes.contains(&node) && !entry.cut && self.random.chance(60) {
                            self.cut(socket, false);
                        }
                    }
                }
            }
            Fault::Crash | Fault::Stale | Fault::Leave | Fault::Slow => {
                let node = self.random.index(self.plan.nodes);
                let proc = self.current[node];
                if !self.procs[proc].alive
                    || self.procs[proc].leaving
                    || (fault != Fault::Slow && self.procs.len() > self.plan.nodes + 2)
                {
                    return;
                }
                for other in 0..self.plan.nodes {
                    if other != node {
                        self.met(fault, node, other, None);
                    }
                }
                self.note(63, proc as u64, || format!("-- n{node} it is"));
                let spell = self.spell();
                match fault {
                    Fault::Crash => {
                        self.crash(proc);
                        if self.random.chance(75) {
                            self.after(spell / 2, Event::Restart(node));
                        }
                    }
                    Fault::Stale => {
                        self.procs[proc].busy_until = self.now + spell;
                        self.restart(node);
                    }
                    Fault::Leave => {
                        let now = self.time();
                        self.procs[proc].leaving = true;
                        self.procs[proc].leave_until = self.now + self.random.between(50_000, 600_000);
                        // The machine asks the nodes that have its ends to do without it. It leaves whether
                        // or not there is time for that.
                        self.procs[proc].machine.hurry(now);
                        self.pump(proc);
                        let wait = self.random.below(20_000);
                        self.after(wait, Event::Leave(proc));
                        if self.random.chance(60) {
                            self.after(spell / 2, Event::Restart(node));
                        }
                    }
                    _ => self.procs[proc].busy_until = self.now + spell,
                }
            }
            _ => unreachable!("it is not in KINDS"),
        }
    }

    pub(crate) fn crash(&mut self, proc: usize) {
        self.procs[proc].alive = false;
        self.procs[proc].introductions = 0;
        let node = self.procs[proc].node;
        self.dials[node].fill(0);
        for socket in 0..self.sockets.len() {
            for side in 0..2 {
                if self.sockets[socket].procs[side] == Some(proc) && self.sockets[socket].open[side] {
                    self.sockets[socket].open[side] = false;
                    self.sockets[socket].pipes[side].gone = true;
                    let deaf = self.random.chance(25);
                    self.sockets[socket].deaf[1 - side] = deaf;
                    self.sockets[socket].cut = true;
                    let wait = self.random.below(50_000);
                    self.after(wait, Event::HearClose(socket, 1 - side));
                }
            }
        }
        for offer in 0..self.offers.len() {
            if self.senders[self.offers[offer].sender].proc == proc && self.offers[offer].outcome.is_none() {
                self.offers[offer].outcome = Some(Outcome::Nobody);
            }
        }
        self.travel_dies(proc);
    }

    pub(crate) fn restart(&mut self, node: usize) {
        let before = self.current[node];
        if self.procs[before].alive && self.procs[before].busy_until <= self.now {
            // The earlier life is still leaving.
            if self.procs[before].leaving {
                self.after(10_000, Event::Restart(node));
            }
            return;
        }
        if self.healed {
            return;
        }
        let proc = self.start(node);
        self.fails_with_all(node);
        if self.plan.travels {
            self.new_mail(proc);
            if self.random.chance(30) && self.lines.len() < 4 {
                self.new_line(proc);
            }
            for channel in 0..self.channels.len() {
                if self.channels[channel].mail && self.channels[channel].proc != proc {
                    self.new_sender_at(channel, node);
                }
            }
            self.after(1000, Event::Travel(proc));
        }
        if self.random.chance(60) {
            self.new_channel(proc);
            let channel = self.channels.len() - 1;
            self.new_sender(channel);
        }
        for channel in 0..self.channels.len() {
            if self.random.chance(50) {
                self.new_sender(channel);
            }
        }
    }

    /// Stops all faults, and returns every node that is to return.
    pub(crate) fn heal(&mut self) {
        self.note(64, 0, || "-- everything is healed".to_owned());
        self.healed = true;
        for proc in 0..self.procs.len() {
            self.procs[proc].busy_until = 0;
            if self.procs[proc].alive && self.current[self.procs[proc].node] != proc {
                self.crash(proc);
            }
        }
        for from in 0..self.plan.nodes {
            for to in 0..self.plan.nodes {
                self.unmute(from, to);
            }
        }
        self.plan.old_addresses = 0;
        self.refuses_until.fill(0);
        // The hub, which can always help, has to be alive.
        let hub = self.plan.walls.as_ref().map(|walls| &self.procs[self.current[walls.hub]]);
        if hub.is_some_and(|hub| !hub.alive || hub.leaving) {
            self.plan.walls = None;
        }
        for proc in self.current.clone() {
            for other in 0..self.plan.nodes {
                if other != self.procs[proc].node && self.procs[proc].alive {
                    self.learn(proc, other);
                }
            }
        }
        self.processes_end();
    }

    /// Counts the state of the protocol between two nodes at the moment of a fault.
    pub(crate) fn met(&mut self, fault: Fault, one: usize, other: usize, socket: Option<usize>) {
        if one == other {
            return;
        }
        if let Some(socket) = socket {
            let phase = self.phase_of(socket);
            self.coverage.met(fault, phase);
        } else {
            for at in 0..self.sockets.len() {
                let nodes = self.sockets[at].nodes;
                if (nodes == [one, other] || nodes == [other, one])
                    && (self.sockets[at].open[0] || self.sockets[at].open[1])
                {
                    let phase = self.phase_of(at);
                    self.coverage.met(fault, phase);
                }
            }
        }
        let procs = [self.current[one], self.current[other]];
        for (proc, node) in [(procs[0], other), (procs[1], one)] {
            let view = &self.procs[proc].views[node];
            let state = match view.state {
                Standing::Idle if view.dialling => Met::Dialling,
                Standing::Idle => Met::Idle,
                Standing::Up => Met::Up,
                Standing::Lost => Met::Lost,
                Standing::Resumed => Met::Resumed,
            };
            self.coverage.met(fault, state);
            if self.procs[proc].machine.census().unfinished > 0 {
                self.coverage.met(fault, Met::InPieces);
            }
        }
        self.met_travel(fault, procs);
        for offer in &self.offers {
            let ends = [self.senders[offer.sender].proc, self.channels[offer.channel].proc];
            if ends != procs && ends != [procs[1], procs[0]] {
                continue;
            }
            let met = match (offer.outcome, offer.at_home) {
                (Some(Outcome::Sent), _) if !offer.arrived => Met::Sent,
                (Some(_), _) => continue,
                (None, AtHome::Away) if offer.choice.is_none() => Met::OnItsWay,
                (None, AtHome::Away) => continue,
                (None, AtHome::Waiting) => Met::Firm,
                (None, AtHome::Tentative) => Met::Tentative,
                (None, AtHome::Asked(_)) => Met::Asked,
                (None, AtHome::Granted(_)) => Met::Reserved,
                (None, AtHome::Held) => Met::Held,
                (None, AtHome::Done) if offer.taken => Met::Taken,
                (None, AtHome::Done) => continue,
            };
            self.coverage.met(fault, met);
            if !offer.cargo.is_empty() {
                self.coverage.met(fault, Met::Packed);
            }
            if offer.withdrawing {
                self.coverage.met(fault, Met::Withdrawing);
            }
        }
    }
}
