//! What goes wrong, and when.

use std::time::Duration;

use dunlin_proto::Config;
use dunlin_proto::wire::limits;

use crate::coverage::{Fault, Met};
use crate::laws::Standing;
use crate::network::Mute;
use crate::program::{AtHome, Outcome};
use crate::random::Random;
use crate::world::{Event, Kind, World, config};

/// The settings of a run, drawn from its seed. Most runs have only some kinds of faults, so that each has its quiet surroundings.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) nodes: usize,
    /// Some channels have ends that travel.
    pub(crate) travels: bool,
    /// Ends are sent on rather than used.
    pub(crate) restless: bool,
    /// So many values are offered by ordinary senders.
    pub(crate) offers_max: usize,
    pub(crate) config: Config,
    pub(crate) heal_at: u64,
    /// Microseconds, at the least half of it.
    pub(crate) latency: u64,
    /// The longest wait between two steps of a program.
    pub(crate) pace: u64,
    /// The largest value a home takes, in bytes.
    pub(crate) value_max: u64,
    /// How likely each kind is.
    weights: [u64; 11],
    /// The longest wait between two faults.
    every: u64,
    /// In percent.
    pub(crate) dial_fails: u64,
    pub(crate) late_accepts: u64,
    pub(crate) small_buffers: u64,
    pub(crate) torn: u64,
    pub(crate) old_addresses: u64,
    pub(crate) late_timers: bool,
    pub(crate) wrong_addresses: bool,
    /// Nodes that tell the others that they have bound their addresses.
    pub(crate) bound: Vec<bool>,
    /// Nodes that nobody can dial.
    pub(crate) shy: Vec<bool>,
    /// In some runs of three nodes or more, who cannot dial whom.
    pub(crate) walls: Option<Walls>,
    /// In some runs, a node that waits fifteen times as long as the others for a connection to come back.
    pub(crate) patient: Option<usize>,
    /// In some runs without ends that travel, values are large and lie in buffers until they are received, and little may be kept.
    pub(crate) holds: bool,
}

/// Firewalls that stay for the whole run: nodes behind them help each other, by dial-backs and relays.
#[derive(Debug)]
pub(crate) struct Walls {
    /// From node, to node.
    pub(crate) between: Vec<Vec<bool>>,
    /// There are none between this node and the others, so that it can always help.
    pub(crate) hub: usize,
}

/// So much more patient is a patient node.
const PATIENT: u32 = 15;

const KINDS: [Fault; 11] = [
    Fault::Cut,
    Fault::HalfOpen,
    Fault::Stall,
    Fault::Vanish,
    Fault::Crash,
    Fault::Stale,
    Fault::Leave,
    Fault::Slow,
    Fault::Deaf,
    Fault::Large,
    Fault::Refuses,
];

impl Plan {
    pub(crate) fn new(random: &mut Random, kind: Kind) -> Self {
        let travels = kind == Kind::Travelling || random.chance(60);
        let nodes = match kind {
            Kind::Travelling => [3, 3, 4, 4, 5, 6][random.index(6)],
            Kind::Any if travels => [2, 3, 3, 3, 4, 4, 5, 6][random.index(8)],
            Kind::Any => [2, 2, 2, 2, 3, 3, 4][random.index(7)],
        };
        let mut config = config(random);
        let mut value_max = 1000;
        if random.chance(12) {
            // Pieces that are not copied behind their heads, and enough bytes for acknowledgements without delay.
            config.chunk = random.between(1500, 5000) as usize;
            config.chunk_alone = config.chunk;
            config.unacked_max = random.between(3000, 300_000) as usize;
            config.unacked_min = config.unacked_max / 4;
            config.ack_bytes = 64 << 10;
            value_max = 20_000;
        }
        if random.chance(10) {
            config.strangers_max = random.between(1, 4) as usize;
        }
        let mut some = |percent: u64, n: u64| if random.chance(percent) { random.between(1, n) } else { 0 };
        let weights = [
            some(60, 10),
            some(30, 5),
            some(30, 5),
            some(30, 4),
            some(25, 2),
            some(25, 2),
            some(20, 2),
            some(30, 4),
            some(25, 4),
            some(20, 4),
            some(40, 4),
        ];
        let (dial_fails, late_accepts) = (some(30, 60), some(30, 40));
        let (small_buffers, torn) = (some(40, 80), some(70, 90));
        let old_addresses = some(30, 40);
        let mut shy = vec![false; nodes];
        if random.chance(15) {
            shy[random.index(nodes)] = true;
        }
        Self {
            nodes,
            travels,
            restless: travels && random.chance(40),
            offers_max: if travels { 40 * nodes } else { 80 },
            config,
            heal_at: random.between(100_000, 1_800_000),
            latency: random.between(20, 4000),
            value_max,
            pace: if travels { random.between(1000, 30_000) } else { random.between(3000, 50_000) },
            weights,
            every: random.between(5000, if travels { 120_000 } else { 400_000 }),
            dial_fails,
            late_accepts,
            small_buffers,
            torn,
            old_addresses,
            late_timers: random.chance(50),
            wrong_addresses: random.chance(15),
            bound: (0..nodes).map(|_| random.chance(70)).collect(),
            shy,
            walls: None,
            patient: random.chance(15).then(|| random.index(nodes)),
            holds: false,
        }
    }

    /// Some runs have values of which many are larger than the credit of a new connection, for nodes that keep little. `random` is not that of the plan.
    pub(crate) fn hold(&mut self, random: &mut Random) {
        if self.travels || self.walls.is_some() || !random.chance(10) {
            return;
        }
        self.holds = true;
        self.offers_max = 40;
        self.value_max = 350_000;
        let config = &mut self.config;
        config.value_max = 400_000;
        config.held_max = 4 * config.value_max as u64;
        config.chunk = random.between(4_000, 40_000) as usize;
        config.chunk_alone = config.chunk;
        config.unacked_max = random.between(100_000, 1_000_000) as usize;
        config.unacked_min = config.unacked_max;
        config.ack_bytes = 32 << 10;
        // They have to come through in time.
        self.small_buffers = 0;
        self.latency = self.latency.min(1000);
    }

    /// The most that a node may keep for others, with the credit of each.
    pub(crate) fn held_max(&self) -> u64 {
        let half = 1 << 20;
        self.config.held_max.max(4 * (self.config.value_max as u64 + limits::VALUE) + half)
            + self.nodes as u64 * limits::CREDIT
    }

    /// How long that node waits for a connection to come back.
    pub(crate) fn grace_of(&self, node: usize) -> Duration {
        if self.patient == Some(node) { PATIENT * self.config.grace } else { self.config.grace }
    }

    /// How long the most patient one does.
    pub(crate) fn grace_max(&self) -> Duration {
        if self.patient.is_some() { PATIENT * self.config.grace } else { self.config.grace }
    }

    /// Some runs get walls. `random` is not that of the plan: the other runs are as they would be without.
    pub(crate) fn wall_in(&mut self, random: &mut Random) {
        if self.nodes < 3 || !random.chance(25) {
            return;
        }
        let ms = |n: u64| std::time::Duration::from_millis(n);
        self.config.helpers_max = random.between(1, 8) as usize;
        self.config.patience = ms(random.between(2, 60));
        self.config.redial = ms(random.between(50, 1000));
        // What is relayed goes over sockets and in windows that stay: with room for some bytes only no handshake would come through in time.
        self.small_buffers = 0;
        self.config.unacked_max = self.config.unacked_max.max(1500);
        self.config.unacked_min = self.config.unacked_min.max(400);
        // What is said over a relay crosses two sockets, and each may take twenty times as long as usual: no reason to take a connection at rest for lost.
        let spare = self.config.silence.saturating_sub(2 * self.config.heartbeat);
        self.latency = self.latency.min(spare.as_micros() as u64 / 50).max(20);
        let hub = random.index(self.nodes);
        let mut between = vec![vec![false; self.nodes]; self.nodes];
        let pairs = (0..self.nodes).flat_map(|one| (0..one).map(move |other| (one, other)));
        for (one, other) in pairs.filter(|(one, other)| *one != hub && *other != hub) {
            let walls = [(true, true), (true, true), (true, false), (false, true), (false, false)];
            (between[one][other], between[other][one]) = walls[random.index(walls.len())];
        }
        self.walls = Some(Walls { between, hub });
    }

    pub(crate) fn is_walled(&self, from: usize, to: usize) -> bool {
        self.walls.as_ref().is_some_and(|walls| walls.between[from][to])
    }
}

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

    /// How long something lasts: mostly short, sometimes longer than a grace period.
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
                    self.note(62, (from * 8 + to) as u64, || format!("-- n{from} is not heard by n{to}"));
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
                // Once for each: two spells may be as far apart as refusals that count.
                let node = self.random.index(self.plan.nodes);
                if self.refuses_until[node] == 0 {
                    for other in (0..self.plan.nodes).filter(|other| *other != node) {
                        self.met(fault, node, other, None);
                    }
                    let spell = self.random.between(1, crate::world::micros(self.plan.config.refused) - 1);
                    self.note(65, node as u64, || format!("-- n{node} refuses for {spell} us"));
                    self.refuses_until[node] = self.now + spell;
                    // That is when it matters.
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
                        // What it has given away is asked to do without it. Whether there is time for that or not, it goes.
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
            // It is still leaving.
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

    /// No more faults, and nothing stays away that is to come back.
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
        // Who can always help has to be there.
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
    }

    /// Counts where the protocol stands between two nodes at the moment of a fault.
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
