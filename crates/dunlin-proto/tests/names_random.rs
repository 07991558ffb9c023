//! Random programs on nodes that come, go and are cut off, and whose name server dies: at rest, every end
//! that can be joined is joined, and none twice. `DUNLIN_SEED=7` runs one seed and prints its events;
//! `DUNLIN_SEEDS=100000` runs more.

#[path = "support/random.rs"]
mod random;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use dunlin_proto::id::{ChannelId, Incarnation, Life, NodeId};
use dunlin_proto::names::{Directory, DirectoryEvent, NameService, Registry, RegistryConfig};
use dunlin_proto::time::Time;
use dunlin_proto::wire::{Declaration, Expected, Face, Names};
use dunlin_proto::{Down, Source};
use random::Random;

const NODES: usize = 5;
const LEASE: Duration = Duration::from_secs(3);

impl Random {
    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize].clone()
    }
}

#[derive(Clone, Debug)]
enum Message {
    /// To the name server.
    Ask(Names),
    /// From the name server.
    Answer(Names),
    /// From an end that was found, to the home.
    Attach { number: u64, channel: ChannelId, shared: bool },
}

/// The state of an end, as its user knows it.
#[derive(Clone, Debug, PartialEq)]
enum Fate {
    Waits,
    /// Joined; the home's node has not answered.
    Attaching,
    /// Joined for good.
    Joined,
}

#[derive(Debug)]
struct End {
    name: &'static str,
    face: Declaration,
    channel: ChannelId,
    fate: Fate,
    /// At a home: the halves that have attached.
    attached: BTreeSet<(Life, u64)>,
    used_up: bool,
    /// At a home: the lives that were found, and not reported as gone since.
    found: BTreeSet<Life>,
}

struct Node {
    incarnation: u64,
    alive: bool,
    directory: Directory,
    registry: Option<Registry>,
    ends: BTreeMap<u64, End>,
    next: u64,
}

impl Node {
    fn new(incarnation: u64) -> Self {
        let (directory, registry) = (Directory::new(), None);
        Self { incarnation, alive: true, directory, registry, ends: BTreeMap::new(), next: 1 }
    }
}

struct World {
    random: Random,
    now: Time,
    nodes: Vec<Node>,
    /// The messages under way, in order for each pair of nodes.
    under_way: BTreeMap<(usize, usize), VecDeque<Message>>,
    server: usize,
    channels: u128,
    verbose: bool,
    counts: BTreeMap<&'static str, u64>,
}

/// Identities show their first 32 bits.
fn id(n: usize) -> NodeId {
    NodeId((n as u128) << 96)
}

fn place(id: NodeId) -> usize {
    (id.0 >> 96) as usize
}

fn is_home(face: &Declaration) -> bool {
    matches!(face.face, Face::Receiver | Face::Server | Face::Acceptor)
}

fn fit(one: &Declaration, other: &Declaration) -> bool {
    let holds = |expects: Expected, shared: bool| match expects {
        Expected::Unknown => true,
        Expected::Unshared => !shared,
        Expected::Shared => shared,
    };
    let pairs = matches!(
        (one.face, other.face),
        (Face::Sender, Face::Receiver) | (Face::Client, Face::Server) | (Face::Client, Face::Acceptor)
    );
    pairs && holds(one.expects, other.shared) && holds(other.expects, one.shared)
}

impl World {
    fn new(seed: u64, verbose: bool) -> Self {
        let mut nodes: Vec<Node> = (0..NODES).map(|_| Node::new(1)).collect();
        nodes[0].registry = Some(Registry::new(RegistryConfig::default()));
        let (random, under_way, counts) = (Random(seed), BTreeMap::new(), BTreeMap::new());
        Self { random, now: Time(1), nodes, under_way, server: 0, channels: 0, verbose, counts }
    }

    fn log(&self, what: impl FnOnce() -> String) {
        if self.verbose {
            println!("{:>10} {}", self.now.0, what());
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn life(&self, n: usize) -> Life {
        Life { node: id(n), incarnation: Incarnation(self.nodes[n].incarnation) }
    }

    fn stands(&self, who: Life, number: u64) -> bool {
        let n = place(who.node);
        self.life(n) == who && self.nodes[n].ends.contains_key(&number)
    }

    /// Whether a half is at the other side of this home.
    fn is_attached(&self, home: &End) -> bool {
        home.attached.iter().any(|(who, number)| self.stands(*who, *number))
    }

    fn send(&mut self, from: usize, to: usize, message: Message) {
        if self.nodes[from].alive && self.nodes[to].alive {
            self.under_way.entry((from, to)).or_default().push_back(message);
        }
    }

    /// Carries out the actions of a node's state machines.
    fn pump(&mut self, n: usize) {
        while let Some((to, said)) = self.nodes[n].directory.poll_said() {
            self.send(n, place(to), Message::Ask(said));
        }
        while let Some((to, said)) = self.nodes[n].registry.as_mut().and_then(NameService::poll) {
            let there = place(to.node);
            assert_eq!(to, self.life(there), "an answer for a former life");
            self.send(n, there, Message::Answer(said));
        }
        while let Some(event) = self.nodes[n].directory.poll() {
            self.log(|| format!("{n} hears {event:?}"));
            self.hear(n, event);
        }
    }

    fn hear(&mut self, n: usize, event: DirectoryEvent) {
        match event {
            DirectoryEvent::Waiting { .. } => {}
            DirectoryEvent::Found { number, partner, channel, face, .. } => {
                let end = self.nodes[n].ends.get_mut(&number).expect("it was declared");
                if is_home(&end.face) && !is_home(&face) {
                    assert!(end.found.insert(partner), "{partner:?} was found twice for {end:?}");
                    return;
                }
                assert_eq!(end.fate, Fate::Waits, "joined twice: {end:?}");
                if is_home(&face) && is_home(&end.face) {
                    // A home whose partners are all gone is as free as one that never had any, and the next
                    // server may admit another one first.
                    let end = &self.nodes[n].ends[&number];
                    assert!(end.face.shared && face.shared && !self.is_attached(end), "{end:?} {face:?}");
                    let end = self.nodes[n].ends.get_mut(&number).expect("it was declared");
                    end.fate = Fate::Joined;
                    return self.count("later holders of a home");
                }
                assert!(fit(&end.face, &face), "{end:?} {face:?}");
                if face.face == Face::Acceptor {
                    self.nodes[n].ends.remove(&number);
                    return self.count("guests");
                }
                end.fate = Fate::Attaching;
                let shared = end.face.shared;
                let home = place(partner.node);
                if self.nodes[home].alive && self.life(home) == partner {
                    self.send(n, home, Message::Attach { number, channel, shared });
                } else {
                    end_is_over(&mut self.nodes[n], number);
                }
            }
            DirectoryEvent::Refused { number, .. } => {
                let end = self.nodes[n].ends.remove(&number).expect("it was declared");
                assert!(end.fate == Fate::Waits && !self.is_attached(&end), "refused in use: {end:?}");
                self.count("refused");
            }
            DirectoryEvent::Unfit { number, refused, by, .. } => {
                let end = self.nodes[n].ends.get(&number);
                let is_itself = |end: &End| by == self.life(n) && end.face == refused;
                assert!(!end.is_some_and(is_itself), "{end:?} does not fit itself");
                self.count("does not fit");
            }
            other => panic!("{other:?}"),
        }
        self.pump(n);
    }

    fn deliver(&mut self, from: usize, to: usize) {
        let Some(message) = self.under_way.get_mut(&(from, to)).and_then(VecDeque::pop_front) else { return };
        self.log(|| format!("{from} -> {to} {message:?}"));
        let life = self.life(from);
        match message {
            Message::Ask(said) => {
                if let Some(registry) = &mut self.nodes[to].registry {
                    registry.heard(self.now, life, said, &mut |_| Ok(()));
                }
            }
            Message::Answer(said) => {
                let node = &mut self.nodes[to];
                let heard = node.directory.server() == Some(id(from));
                if let (Names::Gone { number, partner }, true) = (&said, heard)
                    && let Some(end) = node.ends.get_mut(number)
                {
                    end.found.remove(partner);
                }
                node.directory.heard(id(from), said);
            }
            Message::Attach { number, channel, shared } => {
                let home = self.nodes[to].ends.iter().find(|(_, end)| end.channel == channel && is_home(&end.face));
                if let Some((&home, end)) = home {
                    assert!(!end.used_up, "{life:?} attaches to what is used up: {end:?}");
                    assert!(shared || !self.is_attached(end), "{life:?} attaches unshared: {end:?}");
                    let end = self.nodes[to].ends.get_mut(&home).expect("it is there");
                    end.attached.insert((life, number));
                    end.used_up = !shared;
                    if !shared {
                        self.nodes[to].directory.attached(home);
                    }
                    self.count("joined");
                    self.nodes[from].ends.get_mut(&number).expect("it attaches").fate = Fate::Joined;
                } else {
                    self.count("too late: the home is gone");
                    end_is_over(&mut self.nodes[from], number);
                    self.pump(from);
                }
            }
        }
        self.pump(to);
    }

    fn deliver_any(&mut self) -> bool {
        let ways: Vec<_> = self.under_way.iter().filter(|(_, queue)| !queue.is_empty()).map(|(way, _)| *way).collect();
        if ways.is_empty() {
            return false;
        }
        let (from, to) = self.random.pick(&ways);
        self.deliver(from, to);
        true
    }

    /// Every node declares to the present server.
    fn heal(&mut self) {
        if !self.nodes[self.server].alive {
            self.take_over();
        }
        for n in 0..NODES {
            self.learn(n);
        }
        while self.deliver_any() {}
    }

    fn learn(&mut self, n: usize) {
        let server = self.server;
        if self.nodes[n].alive && self.nodes[server].alive {
            let life = self.life(n);
            self.nodes[server].registry.as_mut().expect("it serves").met(life, &[], Source::Unknown);
            self.nodes[n].directory.server_is(id(server));
            self.pump(n);
            self.pump(server);
        }
    }

    fn take_over(&mut self) {
        let alive: Vec<usize> = (0..NODES).filter(|n| self.nodes[*n].alive).collect();
        if alive.is_empty() {
            self.restart(0);
            return self.take_over();
        }
        self.server = self.random.pick(&alive);
        self.log(|| format!("{} takes over", self.server));
        let registry = Registry::taking_over(RegistryConfig::default(), self.now);
        self.nodes[self.server].registry = Some(registry);
        self.count("takeovers");
    }

    /// The connection of two nodes dies; both live.
    fn cut(&mut self, a: usize, b: usize) {
        if a == b {
            return;
        }
        self.count("cuts");
        self.log(|| format!("cut {a} {b}"));
        self.part(a, b, &Down::GivenUp);
        self.part(b, a, &Down::GivenUp);
        self.pump(a);
        self.pump(b);
    }

    /// Runs when `a` learns that its connection to `b` has ended.
    fn part(&mut self, a: usize, b: usize, why: &Down) {
        let lost = self.under_way.remove(&(a, b)).unwrap_or_default();
        let node = &mut self.nodes[a];
        for message in lost {
            if let Message::Attach { number, .. } = message {
                end_is_over(node, number);
            }
        }
        if node.directory.server() == Some(id(b)) {
            node.directory.server_lost();
        }
        if let Some(registry) = &mut node.registry {
            registry.lost(self.now, id(b), why);
        }
    }

    fn crash(&mut self, n: usize) {
        self.count("crashes");
        let why = self.random.pick(&[Down::Left, Down::GivenUp]);
        self.log(|| format!("crash {n}: {why:?}"));
        self.nodes[n].alive = false;
        for other in (0..NODES).filter(|other| *other != n) {
            self.under_way.remove(&(n, other));
            if self.nodes[other].alive {
                self.part(other, n, &why);
                self.pump(other);
            }
        }
        self.under_way.remove(&(n, n));
        // The server reports that it is down; until then no other serves.
        let (incarnation, registry) = (self.nodes[n].incarnation, None);
        self.nodes[n] = Node { alive: false, registry, ..Node::new(incarnation) };
    }

    fn restart(&mut self, n: usize) {
        if !self.nodes[n].alive {
            self.count("restarts");
            self.nodes[n] = Node::new(self.nodes[n].incarnation + 1);
            if n == self.server {
                self.nodes[n].registry = Some(Registry::taking_over(RegistryConfig::default(), self.now));
            }
        }
    }

    fn declare(&mut self, n: usize) {
        let name = self.random.pick(&["flow", "ebb", "tides"]);
        let faces: &[Face] = match name {
            "flow" => &[Face::Sender, Face::Receiver],
            "ebb" => &[Face::Client, Face::Client, Face::Server, Face::Acceptor],
            _ => &[Face::Sender, Face::Receiver, Face::Client, Face::Server],
        };
        let expects = [Expected::Unknown, Expected::Unknown, Expected::Unknown, Expected::Unshared, Expected::Shared];
        let (face, shared) = (self.random.pick(faces), self.random.below(3) == 0);
        let face = Declaration { face, shared, expects: self.random.pick(&expects), schema: Bytes::new() };
        self.channels += 1;
        let channel = ChannelId(if is_home(&face) { self.channels << 96 } else { 0 });
        let node = &mut self.nodes[n];
        let number = node.next;
        node.next += 1;
        let (fate, attached) = (Fate::Waits, BTreeSet::new());
        let end = End { name, face: face.clone(), channel, fate, attached, used_up: false, found: BTreeSet::new() };
        self.log(|| format!("{n} declares {number}: {end:?}"));
        let node = &mut self.nodes[n];
        node.ends.insert(number, end);
        node.directory.declare(self.now, number, name, face, channel);
        self.pump(n);
        self.count("declared");
    }

    fn undeclare(&mut self, n: usize) {
        let ends: Vec<u64> = self.nodes[n]
            .ends
            .iter()
            .filter(|(_, end)| end.fate != Fate::Attaching)
            .map(|(number, _)| *number)
            .collect();
        if !ends.is_empty() {
            let number = self.random.pick(&ends);
            self.log(|| format!("{n} undeclares {number}"));
            end_is_over(&mut self.nodes[n], number);
            self.pump(n);
        }
    }

    /// The time of a lease passes. All living nodes declare first.
    fn wait(&mut self) {
        self.heal();
        self.now = self.now + LEASE;
        for n in 0..NODES {
            if let Some(registry) = &mut self.nodes[n].registry {
                registry.tick(self.now);
            }
            self.pump(n);
        }
    }

    fn step(&mut self) {
        self.now.0 += 1;
        let n = self.random.below(NODES as u64) as usize;
        match self.random.below(100) {
            0..14 if self.nodes[n].alive => self.declare(n),
            14..22 if self.nodes[n].alive => self.undeclare(n),
            22..30 => self.learn(n),
            30..33 if self.nodes[n].alive && self.nodes[self.server].alive => self.cut(n, self.server),
            33 if self.nodes[n].alive => {
                let other = self.random.below(NODES as u64) as usize;
                if self.nodes[other].alive {
                    self.cut(n, other);
                }
            }
            34 if self.nodes[n].alive => self.crash(n),
            35..37 if !self.nodes[n].alive => self.restart(n),
            37..40 if !self.nodes[self.server].alive => self.take_over(),
            40 => self.wait(),
            _ => {
                self.deliver_any();
            }
        }
    }

    fn check(&mut self) {
        for _ in 0..3 {
            self.wait();
            while self.deliver_any() {}
        }
        let all = || self.nodes.iter().enumerate().flat_map(|(n, node)| node.ends.values().map(move |end| (n, end)));
        for (at, near) in all().filter(|(_, end)| !is_home(&end.face)) {
            assert_ne!(near.fate, Fate::Attaching);
            for (there, home) in all().filter(|(_, end)| is_home(&end.face) && end.name == near.name) {
                let open = !home.used_up && home.fate == Fate::Waits;
                assert!(
                    near.fate == Fate::Joined || !open || !fit(&near.face, &home.face),
                    "not joined: at {at} {near:?}, at {there} {home:?}"
                );
            }
        }
        for (there, home) in all() {
            for (who, number) in &home.attached {
                let stands = self.stands(*who, *number);
                assert!(!stands || home.found.contains(who), "{there} was not notified of {who:?}: {home:?}");
            }
        }
        // The server knows all these ends, and no others.
        let registry = self.nodes[self.server].registry.as_ref().expect("it serves");
        let waits = |end: &End| {
            end.fate == Fate::Waits && end.face.face != Face::Acceptor && !end.used_up && !self.is_attached(end)
        };
        let mut here: Vec<_> =
            all().filter(|(_, end)| waits(end)).map(|(n, end)| (end.name, self.life(n), end.channel.0 > 0)).collect();
        let mut there: Vec<_> =
            registry.waiting().map(|w| (w.name, w.who, matches!(w.face, Face::Receiver | Face::Server))).collect();
        here.sort();
        there.sort();
        let there: Vec<_> = there;
        assert_eq!(here, there, "ends that wait, at the nodes and at the server");
        assert_eq!(registry.len(), all().count());
        assert_eq!(registry.len(), self.nodes.iter().map(|node| node.directory.len()).sum::<usize>());
    }
}

/// The end is dropped.
fn end_is_over(node: &mut Node, number: u64) {
    if node.ends.remove(&number).is_some() {
        node.directory.undeclare(number);
    }
}

fn run(seed: u64, verbose: bool) -> BTreeMap<&'static str, u64> {
    let mut world = World::new(seed, verbose);
    let steps = 50 + world.random.below(400);
    for _ in 0..steps {
        world.step();
    }
    world.check();
    world.counts
}

#[test]
fn every_matching_pair_is_joined_once() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let (from, seeds) = match number("DUNLIN_SEED") {
        Some(seed) => (seed, 1),
        None => (0, number("DUNLIN_SEEDS").unwrap_or(3000)),
    };
    let mut counts = BTreeMap::new();
    for seed in from..from + seeds {
        println!("DUNLIN_SEED={seed} cargo test -p dunlin-proto --test names_random -- --nocapture");
        for (what, times) in run(seed, number("DUNLIN_SEED").is_some()) {
            *counts.entry(what).or_insert(0) += times;
        }
    }
    println!("{counts:?}");
    if seeds >= 1000 {
        for what in ["joined", "guests", "later holders of a home", "refused", "too late: the home is gone"] {
            assert!(counts.get(what).is_some_and(|times| *times > 100), "{what}: {counts:?}");
        }
        for what in ["takeovers", "cuts", "crashes", "restarts"] {
            assert!(counts.get(what).is_some_and(|times| *times > 100), "{what}: {counts:?}");
        }
    }
}
