//! Many nodes, and very many ends that have travelled: what a move costs in frames and bytes, what an end
//! costs in memory, and that no record of either is left.
//!
//! The network has delays, and no faults: [`run`](crate::run) covers those. Every end that moves goes in a
//! message of its own, an offer on its receiver's *mail*, a channel with a sending half at every other node.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use dunlin_proto::id::{ChannelId, Contact, DialId, Incarnation, Life, NodeId, SocketId};
use dunlin_proto::identity::StandIn;
use dunlin_proto::time::Time;
use dunlin_proto::wire::{Declaration, Expected, Face, Terms};
use dunlin_proto::{
    Action, Arrival, Census, Config, HomeHears, Leaving, Machine, ProxyHears, ReceiverPlace, SenderPlace, State, Trip,
};

use crate::random::Random;

/// The size of the world.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Nodes, all connected with each other: at least 4, at most 1000.
    pub nodes: usize,
    /// Ends, senders and receivers together; half as many channels.
    pub ends: usize,
    /// The seed of all random choices.
    pub seed: u64,
}

/// One phase, in which something happened to every channel.
#[derive(Clone, Debug)]
pub struct Phase {
    /// What happened.
    pub name: &'static str,
    /// How often.
    pub count: u64,
    /// Numbered frames on all wires: all but acknowledgements and heartbeats.
    pub frames: u64,
    /// Bytes on all wires, of all frames.
    pub bytes: u64,
    /// How long it took to simulate, in seconds.
    pub seconds: f64,
    /// Resident memory of this process afterwards, in bytes. `None`: the system does not report it.
    pub resident: Option<u64>,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Figures {
    /// The size of the world: channels are half the ends.
    pub scale: Scale,
    /// The phases, in order. Before the first one, all nodes are connected, and their mail is attached.
    pub phases: Vec<Phase>,
    /// Resident memory before the first channel, in bytes.
    pub resident_before: Option<u64>,
    /// The records of all machines at rest, while all channels existed.
    pub records: Census,
}

/// Resident memory of this process, in bytes.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

/// Values of a channel with a buffer.
const ROOM: u32 = 4;
/// How many channels are busy at once.
const WAVE: usize = 10_000;
/// The microseconds of silence after which no more frames are expected: acknowledgements wait for less.
const QUIET: u64 = 100_000;
/// Marks mail among the channels.
const MAIL: u128 = 1 << 63;

fn node_id(node: usize) -> NodeId {
    NodeId((node as u128 + 1) << 64 | 0x5eed)
}

/// Real ids are random: so are these, and they contain the index.
fn channel_id(index: usize) -> ChannelId {
    ChannelId(u128::from(Random::new(index as u64).next()) << 64 | index as u128)
}

fn mail_of(node: usize) -> ChannelId {
    ChannelId(u128::from(Random::new(node as u64 + 7).next()) << 64 | MAIL | node as u128)
}

fn mail_terms() -> Terms {
    Terms { window: 256, credits: 0, value_max: 1 << 16 }
}

fn declaration(face: Face, shared: bool) -> Declaration {
    Declaration { face, shared, expects: Expected::Unknown, schema: Bytes::new() }
}

enum Event {
    Tick(usize),
    Dialled { by: usize, dial: DialId, to: usize },
    Accepted(usize),
    Arrives { socket: usize, side: usize, bytes: Bytes },
}

struct Entry(u64, u64, Event);

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.1 == other.1
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

struct Socket {
    /// The first one has dialled.
    nodes: [usize; 2],
    /// What a byte takes in each direction, in microseconds.
    delay: [u64; 2],
}

enum Place {
    Sender(SenderPlace),
    Receiver(ReceiverPlace),
}

/// A message: an end, and the rest of its route.
struct Letter {
    channel: usize,
    end: Option<(Place, Trip)>,
    to: usize,
    route: Vec<usize>,
}

/// Where the ends of a channel are. `u16`: there are very many.
#[derive(Clone, Copy)]
struct Ends {
    sender: u16,
    receiver: u16,
    /// Values in the buffer at the receiver's home.
    buffered: u8,
    /// Values that were sent, and received.
    sent: u8,
    received: u8,
}

struct World {
    now: u64,
    order: u64,
    queue: BinaryHeap<Reverse<Entry>>,
    random: Random,
    machines: Vec<Machine>,
    ticks: Vec<Option<u64>>,
    sockets: Vec<Socket>,
    /// Bytes written to sockets.
    written: u64,
    connected: usize,
    ends: Vec<Ends>,
    letters: BTreeMap<u64, Letter>,
    next_letter: u64,
    /// Senders that wait until they may be packed, and their targets.
    waiting: BTreeMap<usize, Vec<usize>>,
    /// Whether receivers leave values in the buffer.
    held: bool,
    /// Ends that were used where they arrived.
    used: u64,
    broken: Option<String>,
    out: Vec<Bytes>,
}

impl World {
    fn new(scale: Scale) -> Self {
        let mut random = Random::new(scale.seed);
        let machine = |node: usize| {
            let mut config = Config::new("scale");
            config.addresses = vec![address(node)];
            config.strangers_max = scale.nodes;
            // Nothing fails here, and the heartbeats of that many nodes are not to be measured.
            config.heartbeat = Duration::from_secs(60);
            config.silence = Duration::from_secs(240);
            let life = Life { node: node_id(node), incarnation: Incarnation(1) };
            StandIn::machine(config, life, random.next())
        };
        let machines = (0..scale.nodes).map(machine).collect();
        Self {
            now: 1,
            order: 0,
            queue: BinaryHeap::new(),
            random,
            machines,
            ticks: vec![None; scale.nodes],
            sockets: Vec::with_capacity(scale.nodes * scale.nodes / 2),
            written: 0,
            connected: 0,
            ends: Vec::with_capacity(scale.ends / 2),
            letters: BTreeMap::new(),
            next_letter: 0,
            waiting: BTreeMap::new(),
            held: false,
            used: 0,
            broken: None,
            out: Vec::new(),
        }
    }

    fn time(&self) -> Time {
        Time(self.now)
    }

    fn broke(&mut self, what: String) {
        self.broken.get_or_insert(what);
    }

    fn after(&mut self, wait: u64, event: Event) {
        self.order += 1;
        self.queue.push(Reverse(Entry(self.now + wait, self.order, event)));
    }

    /// Runs until no machine has anything to send but heartbeats.
    fn run(&mut self) -> Result<(), String> {
        let mut quiet_from = self.now;
        let mut frames = self.frames();
        loop {
            while let Some(Reverse(Entry(at, ..))) = self.queue.peek()
                && *at < quiet_from + QUIET
            {
                let Some(Reverse(Entry(at, _, event))) = self.queue.pop() else { break };
                self.now = at;
                self.happens(event);
                if let Some(what) = self.broken.take() {
                    return Err(what);
                }
            }
            let heard = self.frames();
            if std::mem::replace(&mut frames, heard) == heard {
                return Ok(());
            }
            quiet_from = self.now;
        }
    }

    fn happens(&mut self, event: Event) {
        let now = self.time();
        match event {
            Event::Tick(node) => {
                if self.ticks[node].take_if(|at| *at <= now.0).is_some() {
                    self.machines[node].tick(now);
                    self.pump(node);
                }
            }
            Event::Dialled { by, dial, to } => {
                let socket = self.sockets.len();
                let delay = [self.random.between(100, 900), self.random.between(100, 900)];
                self.sockets.push(Socket { nodes: [by, to], delay });
                self.after(delay[0], Event::Accepted(socket));
                self.machines[by].dialled(now, dial, SocketId(2 * socket as u64));
                self.pump(by);
            }
            Event::Accepted(socket) => {
                let to = self.sockets[socket].nodes[1];
                self.machines[to].accepted(now, SocketId(2 * socket as u64 + 1));
                self.pump(to);
            }
            Event::Arrives { socket, side, bytes } => {
                let to = self.sockets[socket].nodes[side];
                self.machines[to].received(now, SocketId((2 * socket + side) as u64), bytes);
                self.pump(to);
            }
        }
    }

    fn pump(&mut self, node: usize) {
        while let Some(action) = self.machines[node].poll() {
            match action {
                Action::Write(id) => self.write(node, id),
                Action::Dial(dial, to) => {
                    let to = to.parse().expect("addresses are made by `address`");
                    self.after(300, Event::Dialled { by: node, dial, to });
                }
                Action::Connection(_, State::Up(_)) => self.connected += 1,
                Action::Home(channel, from, heard) if channel.0 & MAIL == 0 => {
                    self.home_hears(node, channel.0 as u64 as usize, from.node, heard);
                }
                Action::Proxy(channel, heard) if channel.0 & MAIL == 0 => {
                    self.half_hears(node, channel.0 as u64 as usize, heard);
                }
                Action::Home(channel, from, HomeHears::Offered(letter, _)) => self.opens(node, channel, from, letter),
                Action::Home(_, _, HomeHears::Attached) | Action::Proxy(_, ProxyHears::Attached(_)) => {}
                Action::Proxy(_, ProxyHears::Taken(letter, taker)) => self.has_left(node, letter, taker),
                other => self.broke(format!("node {node} gets {other:?}, and nothing has failed")),
            }
        }
        if let Some(Time(due)) = self.machines[node].next_tick() {
            let due = due.max(self.now);
            if self.ticks[node].is_none_or(|at| due < at) {
                self.ticks[node] = Some(due);
                self.after(due - self.now, Event::Tick(node));
            }
        }
    }

    fn write(&mut self, node: usize, id: SocketId) {
        let (socket, side) = (id.0 as usize / 2, id.0 as usize % 2);
        loop {
            let mut out = std::mem::take(&mut self.out);
            let now = self.time();
            let length = self.machines[node].fill(now, id, 64 << 10, &mut out);
            let mut bytes = BytesMut::with_capacity(length);
            out.drain(..).for_each(|piece| bytes.extend_from_slice(&piece));
            self.out = out;
            if bytes.is_empty() {
                return;
            }
            self.written += bytes.len() as u64;
            let delay = self.sockets[socket].delay[side];
            self.after(delay, Event::Arrives { socket, side: 1 - side, bytes: bytes.freeze() });
        }
    }

    /// All numbered frames that were received over connections.
    fn frames(&self) -> u64 {
        self.machines.iter().map(Machine::heard).sum()
    }

    fn census(&self) -> Census {
        self.machines.iter().map(Machine::census).fold(Census::default(), |all, one| {
            let mut sum = all;
            sum.homes += one.homes;
            sum.attached += one.attached;
            sum.proxies += one.proxies;
            sum.offers += one.offers;
            sum.visitors += one.visitors;
            sum.unfinished += one.unfinished;
            sum.unacked_bytes += one.unacked_bytes;
            sum.sockets += one.sockets;
            sum.heard += one.heard;
            sum
        })
    }

    // Mail.

    /// Connects all pairs of nodes, and attaches their mail.
    fn connect(&mut self) -> Result<(), String> {
        let count = self.machines.len();
        for node in 0..count {
            let opened =
                self.machines[node].open_home(mail_of(node), mail_terms(), declaration(Face::Receiver, false), true);
            opened.map_err(|why| why.to_string())?;
            for other in (0..count).filter(|other| *other != node) {
                self.machines[node].learn(node_id(other), &[address(other)]);
            }
        }
        for node in 0..count {
            for other in (0..count).filter(|other| *other != node) {
                let now = self.time();
                self.machines[node]
                    .attach(now, mail_of(other), node_id(other), declaration(Face::Sender, true))
                    .map_err(|why| why.to_string())?;
                self.pump(node);
            }
            self.run()?;
        }
        let expected = count * (count - 1);
        if self.connected != expected {
            return Err(format!("{} times a connection is up, not {expected}", self.connected));
        }
        Ok(())
    }

    /// A message as long as what a node writes about an end.
    fn words(place: Option<&Place>) -> Bytes {
        let all = |addresses: &[String]| addresses.iter().map(|address| 2 + address.len()).sum::<usize>();
        let length = match place {
            None => 0,
            Some(Place::Sender(place)) => 72 + all(&place.addresses) + all(&place.sponsor_addresses),
            Some(Place::Receiver(place)) => 56 + all(&place.addresses),
        };
        Bytes::from(vec![0; length])
    }

    fn post(&mut self, from: usize, letter: Letter) {
        let (now, to) = (self.time(), letter.to);
        let words = Self::words(letter.end.as_ref().map(|(place, _)| place));
        let number = self.next_letter;
        self.next_letter += 1;
        self.letters.insert(number, letter);
        self.machines[from].offer(now, mail_of(to), number, words);
        self.pump(from);
    }

    /// A node receives a message.
    fn opens(&mut self, node: usize, mail: ChannelId, from: Contact, number: u64) {
        let now = self.time();
        self.machines[node].taken(now, mail, from.node, number);
        let Some(letter) = self.letters.get_mut(&number) else {
            return self.broke(format!("message {number} arrives, and was not sent"));
        };
        let (at, route) = (letter.channel, std::mem::take(&mut letter.route));
        let Some((place, trip)) = letter.end.take() else { return };
        let id = channel_id(at);
        let (arrival, is_sender) = match &place {
            Place::Sender(place) => (self.machines[node].sender_arrives(now, id, place.clone(), from), true),
            Place::Receiver(place) => (self.machines[node].receiver_arrives(now, id, place.clone(), from), false),
        };
        if let Some(letter) = self.letters.get_mut(&number) {
            letter.end = Some((place, trip));
        }
        if arrival == Arrival::Stale {
            return self.broke(format!("channel {at}: an end is stale, of which there is one"));
        }
        let ends = &mut self.ends[at];
        *(if is_sender { &mut ends.sender } else { &mut ends.receiver }) = node as u16;
        if !route.is_empty() {
            return self.sends_end(at, is_sender, route);
        }
        if is_sender {
            self.machines[node].use_sender(now, id);
        } else {
            self.machines[node].use_receiver(now, id);
        }
        if arrival == Arrival::Returned {
            self.used += 1;
        }
        self.pump(node);
    }

    /// The message was taken.
    fn has_left(&mut self, node: usize, number: u64, taker: Contact) {
        let Some(letter) = self.letters.remove(&number) else {
            return self.broke(format!("message {number} is taken, and was not sent"));
        };
        let (now, id) = (self.time(), channel_id(letter.channel));
        match letter.end {
            Some((Place::Sender(_), trip)) => drop(self.machines[node].sender_left(now, id, trip, taker)),
            Some((Place::Receiver(_), trip)) => drop(self.machines[node].receiver_left(now, id, trip, taker)),
            None => {}
        }
    }

    /// Sends an end along this route; the last node uses it.
    fn sends_end(&mut self, at: usize, is_sender: bool, mut route: Vec<usize>) {
        let (now, id, ends) = (self.time(), channel_id(at), self.ends[at]);
        let from = usize::from(if is_sender { ends.sender } else { ends.receiver });
        let end = if is_sender {
            match self.machines[from].pack_sender(now, id) {
                Leaving::Ready(place, trip) => (Place::Sender(place), trip),
                Leaving::Wait => {
                    self.waiting.insert(at, route);
                    return self.pump(from);
                }
                Leaving::Over(how) => return self.broke(format!("channel {at} has ended: {how:?}")),
            }
        } else {
            match self.machines[from].pack_receiver(id) {
                Leaving::Ready(place, trip) => (Place::Receiver(place), trip),
                other => return self.broke(format!("channel {at}: its receiver cannot go: {other:?}")),
            }
        };
        let to = route.remove(0);
        self.post(from, Letter { channel: at, end: Some(end), to, route });
    }

    // Channels.

    fn terms(&self, at: usize) -> Terms {
        let credits = if at.is_multiple_of(2) { 0 } else { ROOM - u32::from(self.ends[at].buffered) };
        Terms { window: 2, credits, value_max: 1 << 16 }
    }

    /// A node other than these.
    fn another(&mut self, not: &[usize]) -> usize {
        loop {
            let node = self.random.index(self.machines.len());
            if !not.contains(&node) {
                return node;
            }
        }
    }

    fn make(&mut self) {
        let (at, node) = (self.ends.len(), self.random.index(self.machines.len()));
        self.ends.push(Ends { sender: node as u16, receiver: node as u16, buffered: 0, sent: 0, received: 0 });
        let terms = self.terms(at);
        self.machines[node].pair(channel_id(at), terms);
        self.pump(node);
    }

    /// Offers a value, or sends it on a credit.
    fn sends_value(&mut self, at: usize) {
        let (now, id, ends) = (self.time(), channel_id(at), &mut self.ends[at]);
        let (node, ticket) = (usize::from(ends.sender), u64::from(ends.sent));
        ends.sent += 1;
        let value = Bytes::from_static(b"a value.");
        if at.is_multiple_of(2) {
            self.machines[node].offer(now, id, ticket, value);
        } else if !self.machines[node].send_on_credit(now, id, value) {
            self.broke(format!("channel {at}: its sender at node {node} has no credit"));
        }
        self.pump(node);
    }

    fn half_hears(&mut self, node: usize, at: usize, heard: ProxyHears) {
        let (now, id) = (self.time(), channel_id(at));
        match heard {
            ProxyHears::Home(..) => self.used += u64::from(usize::from(self.ends[at].sender) == node),
            ProxyHears::Rests => {
                if let Some(route) = self.waiting.remove(&at) {
                    self.sends_end(at, true, route);
                }
            }
            ProxyHears::Moved(_, again) => {
                for ticket in again {
                    self.machines[node].offer_again(now, id, ticket, Bytes::from_static(b"a value."));
                }
            }
            ProxyHears::Taken(..) | ProxyHears::Departed | ProxyHears::Credit(_) | ProxyHears::Ended(_) => {}
            other => self.broke(format!("channel {at}: its sender at node {node} gets {other:?}")),
        }
    }

    fn home_hears(&mut self, node: usize, at: usize, from: NodeId, heard: HomeHears) {
        let (now, id) = (self.time(), channel_id(at));
        match heard {
            HomeHears::Offered(..) if self.held => {}
            HomeHears::Offered(ticket, _) => {
                self.ends[at].received += 1;
                self.machines[node].taken(now, id, from, ticket);
            }
            HomeHears::Sent(_) if self.held => self.ends[at].buffered += 1,
            HomeHears::Sent(value) => {
                self.ends[at].received += 1;
                self.machines[node].drained(id, 1, value.len() as u64);
                // If the home has moved here, the sender receives its credits later, and learns the new place
                // with them.
                self.machines[node].credit(now, id, node_id(usize::from(self.ends[at].sender)), 1);
            }
            HomeHears::Take => {
                let terms = self.terms(at);
                self.machines[node].admit(now, id, from, terms);
            }
            HomeHears::Leave => self.machines[node].leave_home(now, id),
            HomeHears::Empty => {
                let buffered = std::mem::take(&mut self.ends[at].buffered);
                let values = (0..buffered).map(|_| Bytes::from_static(b"a value.")).collect();
                self.machines[node].ship(now, id, values);
            }
            HomeHears::Arrived(None) => {
                self.used += 1;
                self.machines[node].install(now, id);
            }
            HomeHears::Ended(how) => self.machines[node].end_home(now, id, how),
            other => self.broke(format!("channel {at}: its home at node {node} gets {other:?}, by {from}")),
        }
    }

    /// Checks that every record belongs to something that exists.
    fn check_rest(&self) -> Result<Census, String> {
        let (nodes, channels, census) = (self.machines.len(), self.ends.len(), self.census());
        let mail = nodes * (nodes - 1);
        let facts = [
            ("homes", census.homes, channels + nodes),
            ("attached halves", census.attached, channels + mail),
            ("halves", census.proxies, channels + mail),
            ("receivers on their way", census.visitors, 0),
            ("offers", census.offers, 0),
            ("unfinished values", census.unfinished, 0),
            ("unacknowledged bytes", census.unacked_bytes, 0),
            ("messages", self.letters.len() + self.waiting.len(), 0),
        ];
        for (what, counted, right) in facts {
            if counted != right {
                return Err(format!("at rest there are {counted} {what}, not {right}"));
            }
        }
        for (at, ends) in self.ends.iter().enumerate() {
            let id = channel_id(at);
            let (sender, receiver) =
                (&self.machines[usize::from(ends.sender)], &self.machines[usize::from(ends.receiver)]);
            if receiver.stand(id).home != Some(1) || !sender.stand(id).known {
                return Err(format!("channel {at}: its ends are not where they are used"));
            }
            let passages = [sender.passages(id), receiver.passages(id)].concat();
            if !passages.is_empty() {
                return Err(format!("channel {at}: at rest there is {passages:?}"));
            }
            if ends.sent != ends.received {
                return Err(format!("channel {at}: {} values were sent, and {} received", ends.sent, ends.received));
            }
        }
        Ok(census)
    }
}

fn address(node: usize) -> String {
    node.to_string()
}

/// Does the same to every channel, and measures the cost.
struct Phases<'a> {
    world: World,
    done: Vec<Phase>,
    progress: &'a mut dyn FnMut(&str),
}

impl Phases<'_> {
    /// `does` starts something with each of `count` channels, and `uses` is the number of ends each then
    /// uses.
    fn phase(
        &mut self,
        name: &'static str,
        count: usize,
        uses: u64,
        mut does: impl FnMut(&mut World, usize),
    ) -> Result<(), String> {
        let began = Instant::now();
        let (frames, written, used) = (self.world.frames(), self.world.written, self.world.used);
        for from in (0..count).step_by(WAVE) {
            for at in from..count.min(from + WAVE) {
                does(&mut self.world, at);
                if let Some(what) = self.world.broken.take() {
                    return Err(format!("{name}: {what}"));
                }
            }
            self.world.run().map_err(|what| format!("{name}: {what}"))?;
            if count > WAVE && from.is_multiple_of(10 * WAVE) {
                (self.progress)(&format!("{name}: {} of {count}", count.min(from + WAVE)));
            }
        }
        let expected = uses * count as u64;
        // A sender receives another event from a home that has moved.
        if self.world.used - used < expected {
            return Err(format!("{name}: {} ends are used, not {expected}", self.world.used - used));
        }
        self.done.push(Phase {
            name,
            count: count as u64,
            frames: self.world.frames() - frames,
            bytes: self.world.written - written,
            seconds: began.elapsed().as_secs_f64(),
            resident: resident(),
        });
        Ok(())
    }
}

/// Spreads many ends over many nodes by moves, and measures. Calls `progress` with the current step.
///
/// # Errors
/// An event that cannot happen without faults; or records, at rest, of what no longer exists.
pub fn scale(scale: Scale, progress: &mut dyn FnMut(&str)) -> Result<Figures, String> {
    let Scale { nodes, ends, .. } = scale;
    if !(4..=1000).contains(&nodes) || ends < 2 {
        return Err("it takes 4 to 1000 nodes, and 2 ends".to_owned());
    }
    let mut world = World::new(scale);
    progress(&format!("{nodes} nodes connect"));
    world.connect()?;
    let (resident_before, channels) = (resident(), ends / 2);
    let mut phases = Phases { world, done: Vec::new(), progress };
    phases.phase("messages without ends", channels.min(10_000), 0, |world, _| {
        let from = world.another(&[]);
        let to = world.another(&[from]);
        world.post(from, Letter { channel: 0, end: None, to, route: Vec::new() });
    })?;
    phases.phase("channels made, both ends at one node", channels, 0, |world, _| world.make())?;
    fn here(world: &World, at: usize) -> [usize; 2] {
        [world.ends[at].sender.into(), world.ends[at].receiver.into()]
    }
    phases.phase("senders leave their home", channels, 1, |world, at| {
        let to = world.another(&here(world, at));
        world.sends_end(at, true, vec![to]);
    })?;
    phases.phase("receivers move", channels, 1, |world, at| {
        let to = world.another(&here(world, at));
        world.sends_end(at, false, vec![to]);
    })?;
    phases.phase("one value each", channels, 0, World::sends_value)?;
    phases.phase("senders move, having been used", channels, 1, |world, at| {
        let to = world.another(&here(world, at));
        world.sends_end(at, true, vec![to]);
    })?;
    phases.world.held = true;
    phases.phase("one value each, not received", channels, 0, World::sends_value)?;
    phases.world.held = false;
    phases.phase("receivers move to the values", channels, 1, |world, at| {
        let to = world.another(&here(world, at));
        world.sends_end(at, false, vec![to]);
    })?;
    phases.phase("senders move, passed on once", channels, 1, |world, at| {
        let [sender, receiver] = here(world, at);
        let by = world.another(&[sender, receiver]);
        let to = world.another(&[sender, receiver, by]);
        world.sends_end(at, true, vec![by, to]);
    })?;
    phases.phase("receivers move, passed on once", channels, 1, |world, at| {
        let [sender, receiver] = here(world, at);
        let by = world.another(&[sender, receiver]);
        let to = world.another(&[sender, receiver, by]);
        world.sends_end(at, false, vec![by, to]);
    })?;
    phases.phase("both move at once", channels, 2, |world, at| {
        let [sender, receiver] = here(world, at);
        let (to, other) = (world.another(&[sender, receiver]), world.another(&[sender, receiver]));
        world.sends_end(at, true, vec![to]);
        world.sends_end(at, false, vec![other]);
    })?;
    phases.phase("one value more", channels, 0, World::sends_value)?;
    (phases.progress)("counting records");
    let records = phases.world.check_rest()?;
    phases.phase("all ends dropped", channels, 0, |world, at| {
        let (now, id, sender) = (world.time(), channel_id(at), usize::from(world.ends[at].sender));
        world.machines[sender].end_proxy(now, id, dunlin_proto::wire::End::Gone);
        world.pump(sender);
    })?;
    phases.world.ends = Vec::new();
    phases.world.check_rest()?;
    Ok(Figures { scale, phases: phases.done, resident_before, records })
}
