//! The settings that a seed determines before its run begins.

use std::time::Duration;

use dunlin_proto::Config;
use dunlin_proto::wire::limits;

use crate::coverage::Fault;
use crate::random::Random;

/// The kind of run that a seed is played as. The same seed of another kind is another run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// As the seed determines: 2 to 6 nodes, with ends that travel or without.
    #[default]
    Any,
    /// 3 to 6 nodes, and ends that travel.
    Travelling,
}

/// The settings of a run, drawn from its seed. Most runs have only some kinds of faults, so that each kind
/// also strikes in quiet surroundings.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) nodes: usize,
    /// Some channels have ends that travel.
    pub(crate) travels: bool,
    /// Programs pass ends on rather than use them.
    pub(crate) restless: bool,
    /// How many values ordinary senders offer.
    pub(crate) offers_max: usize,
    pub(crate) config: Config,
    pub(crate) heal_at: u64,
    /// Microseconds; a delay is at least half of it.
    pub(crate) latency: u64,
    /// The longest wait between two steps of a program.
    pub(crate) pace: u64,
    /// The largest value that a home accepts, in bytes.
    pub(crate) value_max: u64,
    /// How likely each kind of fault is.
    pub(crate) weights: [u64; 11],
    /// The longest wait between two faults.
    pub(crate) every: u64,
    /// In percent.
    pub(crate) dial_fails: u64,
    pub(crate) late_accepts: u64,
    pub(crate) small_buffers: u64,
    pub(crate) torn: u64,
    pub(crate) old_addresses: u64,
    pub(crate) late_timers: bool,
    pub(crate) wrong_addresses: bool,
    /// Nodes that report to the others that they have bound their addresses.
    pub(crate) bound: Vec<bool>,
    /// Nodes that no other can dial.
    pub(crate) shy: Vec<bool>,
    /// In some runs of three nodes or more, which nodes cannot dial which.
    pub(crate) walls: Option<Walls>,
    /// In some runs, a node that waits fifteen times as long as the others for a connection to come back.
    pub(crate) patient: Option<usize>,
    /// In some runs without ends that travel, values are large and stay in buffers until they are received,
    /// and nodes may keep little.
    pub(crate) holds: bool,
}

/// Firewalls for the whole run: nodes behind them help each other, by dial-backs and relays.
#[derive(Debug)]
pub(crate) struct Walls {
    /// From node, to node.
    pub(crate) between: Vec<Vec<bool>>,
    /// No firewall is between this node and the others, so that it can always help.
    pub(crate) hub: usize,
}

/// The factor by which a patient node waits longer.
const PATIENT: u32 = 15;

/// The kinds of faults, in the order of their weights.
pub(crate) const KINDS: [Fault; 11] = [
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
            // Pieces that are not copied together with their heads, and enough bytes for acknowledgements
            // without delay.
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

    /// In some runs many values are larger than the credit of a new connection, for nodes that keep little.
    /// `random` is a separate generator.
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
        // The values have to arrive in time.
        self.small_buffers = 0;
        self.latency = self.latency.min(1000);
    }

    /// In some runs the machine asks its program about each node, and the program takes its time. `random` is
    /// a separate generator.
    pub(crate) fn authorize(&mut self, random: &mut Random) {
        self.config.authorizes = random.chance(10);
    }

    /// The most bytes that a node may keep for others, including the credit of each.
    pub(crate) fn held_max(&self) -> u64 {
        let half = 1 << 20;
        self.config.held_max.max(4 * (self.config.value_max as u64 + limits::VALUE) + half)
            + self.nodes as u64 * limits::CREDIT
    }

    /// How long this node waits for a connection to return.
    pub(crate) fn grace_of(&self, node: usize) -> Duration {
        if self.patient == Some(node) { PATIENT * self.config.grace } else { self.config.grace }
    }

    /// How long the most patient node waits.
    pub(crate) fn grace_max(&self) -> Duration {
        if self.patient.is_some() { PATIENT * self.config.grace } else { self.config.grace }
    }

    /// Some runs get walls. `random` is a separate generator, so the other runs are as they would be without.
    pub(crate) fn wall_in(&mut self, random: &mut Random) {
        if self.nodes < 3 || !random.chance(25) {
            return;
        }
        let ms = |n: u64| std::time::Duration::from_millis(n);
        self.config.helpers_max = random.between(1, 8) as usize;
        self.config.patience = ms(random.between(2, 60));
        self.config.redial = ms(random.between(50, 1000));
        // Relayed frames go over sockets and in windows that stay: with room for only a few bytes no
        // handshake would finish in time.
        self.small_buffers = 0;
        self.config.unacked_max = self.config.unacked_max.max(1500);
        self.config.unacked_min = self.config.unacked_min.max(400);
        // What is sent over a relay crosses two sockets, and each may take twenty times as long as usual: an
        // idle connection must not time out for that.
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

fn config(random: &mut Random) -> Config {
    let mut config = Config::new("sim");
    let ms = |n: u64| Duration::from_micros(n * 1000);
    let silence = random.between(200, 600);
    config.silence = ms(silence);
    config.heartbeat = ms(silence * 2 / 7);
    config.grace = ms(random.between(400, 1500));
    config.ack_delay = ms(random.between(1, 20));
    config.handshake = ms(random.between(80, 400));
    config.refused = ms(random.between(20, 300));
    config.backoff_min = ms(random.between(2, 20));
    config.backoff_max = ms(random.between(40, 200));
    config.retell = config.backoff_max;
    config.chunk = random.between(4, 120) as usize;
    config.chunk_alone = config.chunk;
    config.unacked_max = random.between(40, 3000) as usize;
    config.value_max = 50_000;
    // Many frames are acknowledged late, as far as the window allows, and in half of the runs all of them.
    config.unacked_min = (config.unacked_max / 4).max(1);
    config.ack_bytes = if config.unacked_max.is_multiple_of(2) { 64 << 10 } else { 100 };
    // Whether two nodes are on one host is drawn again for each socket.
    config.relayed = true;
    // See `Walls`.
    config.helpers_max = 0;
    config
}
