//! The nodes, the clock, and the queue of events.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::fmt;
use std::time::Duration;

use dunlin_proto::id::{Contact, DialId, Incarnation, Life, NodeId, SocketId};
use dunlin_proto::identity::StandIn;
use dunlin_proto::time::Time;
use dunlin_proto::{Action, Machine};

use crate::coverage::Coverage;
use crate::line::{Cargo, Line};
use crate::plan::{Kind, Plan};
use crate::process::{Calls, Processes};
use crate::program::{Channel, Choice, Offer, Sender};
use crate::random::Random;
use crate::socket::{Mute, Socket, end_of};
use crate::thief::{STRANGERS_MAX, Thief, is_thiefs};
use crate::view::View;

/// One run of a node's program: a machine, from its start to its end. A restarted node is another one.
#[derive(Debug)]
pub(crate) struct Proc {
    pub(crate) node: usize,
    pub(crate) incarnation: u64,
    pub(crate) machine: Machine,
    pub(crate) alive: bool,
    pub(crate) leaving: bool,
    /// A node refused it because of a later life of its node, so it should know that it is replaced.
    pub(crate) replaced: bool,
    /// It does nothing before this.
    pub(crate) busy_until: u64,
    tick_at: Option<u64>,
    /// It leaves, and ends by then.
    pub(crate) leave_until: u64,
    pub(crate) views: Vec<View>,
    pub(crate) introductions: u32,
    /// The addresses at which the program dials the others.
    book: Vec<Vec<String>>,
}

/// The next event. The first number is a process's, a socket's, a sender's, a channel's or a line's; a
/// process's follows a line's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Tick(usize),
    Deliver(usize, usize),
    Writable(usize, usize),
    HearClose(usize, usize),
    OwnClosed(usize, usize),
    DialDone {
        by: usize,
        dial: DialId,
        to: Option<usize>,
    },
    Accept(usize),
    Sender(usize),
    Home(usize),
    Release(usize),
    Grant(usize, u64),
    Chat(usize),
    Fault,
    Restart(usize),
    Unmute(usize, usize),
    /// A process announces that it leaves.
    Leave(usize),
    Exit(usize),
    Travel(usize),
    LineGrant(usize, usize, usize, u64),
    LineAgain(usize, usize),
    LineLeaves(usize, usize),
    /// A program reports late that a value was not taken: the line, the process, the claim, the node it came
    /// from, and the value.
    LineWithdrawn(usize, usize, u64, NodeId, u64),
    /// The ends in an offer arrive.
    EndsCome(usize),
    /// An end has left in a message, and the process that sent it.
    EndLeft(usize, usize),
    Thief,
    /// A process of a node's program does something.
    Process(usize),
    /// A message for this mailbox of a process, from that node and of that many bytes, has been received.
    /// Zero: it is an exit.
    Received(usize, u64, Contact, u64),
    /// A process gives this call up.
    GivesUp(usize, usize),
    /// A process answers this call.
    Answers(usize, usize),
    /// A program admits the node at the other end of its socket.
    Admit(usize, SocketId),
}

struct Entry {
    at: u64,
    order: u64,
    event: Event,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
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
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

pub(crate) struct World {
    pub(crate) now: u64,
    order: u64,
    queue: BinaryHeap<Reverse<Entry>>,
    pub(crate) random: Random,
    pub(crate) plan: Plan,
    pub(crate) procs: Vec<Proc>,
    /// The present process of each node.
    pub(crate) current: Vec<usize>,
    pub(crate) sockets: Vec<Socket>,
    pub(crate) thief: Thief,
    pub(crate) mutes: Vec<Vec<Mute>>,
    /// Until when a node refuses dials. Zero: it has not refused any yet.
    pub(crate) refuses_until: Vec<u64>,
    pub(crate) channels: Vec<Channel>,
    pub(crate) senders: Vec<Sender>,
    pub(crate) offers: Vec<Offer>,
    pub(crate) choices: Vec<Choice>,
    /// Channels whose ends travel.
    pub(crate) lines: Vec<Line>,
    pub(crate) cargos: Vec<Cargo>,
    pub(crate) processes: Processes,
    pub(crate) calls: Calls,
    /// The open values of a sender that another one of its line has replaced.
    pub(crate) orphans: Vec<(usize, usize, Vec<usize>)>,
    /// Lines with an event that only a loss explains.
    pub(crate) claims: Vec<(usize, String)>,
    /// Pairs of nodes whose connection has failed for good, or of which one has died.
    pub(crate) failed: BTreeSet<(usize, usize)>,
    /// How many dials are under way, from node to node.
    pub(crate) dials: Vec<Vec<u32>>,
    /// Faults and new offers have stopped.
    pub(crate) healed: bool,
    /// Programs have stopped.
    pub(crate) resting: bool,
    pub(crate) broken: Option<String>,
    pub(crate) stuck: Option<String>,
    pumping: bool,
    pub(crate) coverage: Coverage,
    hash: u64,
    trace: Option<Vec<String>>,
    pub(crate) ticks: u64,
    bytes: Vec<bytes::Bytes>,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All laws held.
    Clean,
    /// A law was broken: which, and by what.
    Broken(String),
    /// After all faults had been healed, an operation did not end.
    Stuck(String),
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed of all its random choices.
    pub seed: u64,
    /// How it ended.
    pub verdict: Verdict,
    /// A hash of all events. Two runs of a seed have the same.
    pub hash: u64,
    /// The trace, line by line, if requested.
    pub trace: Vec<String>,
    /// The cells covered, and other counts.
    pub coverage: Coverage,
}

/// A run with more events is taken for a storm, between two to four nodes; where ends travel, the limit is
/// higher for more nodes and many more channels.
const EVENTS_MAX: u64 = 60_000;

/// Runs one seed.
pub fn run(seed: u64, trace: bool) -> Report {
    run_as(Kind::Any, seed, trace)
}

/// Runs one seed as this kind.
pub fn run_as(kind: Kind, seed: u64, trace: bool) -> Report {
    let mut world = World::new(seed, trace, kind);
    let verdict = world.run();
    let World { hash, trace, coverage, .. } = world;
    Report { seed, verdict, hash, trace: trace.unwrap_or_default(), coverage }
}

/// The machine's id of a node. The greatest index has the smallest id, so that the order of ids is not that
/// of roles.
pub(crate) fn node_id(node: usize) -> NodeId {
    NodeId(((9 - node) as u128) << 96)
}

pub(crate) fn node_index(id: NodeId) -> usize {
    9 - (id.0 >> 96) as usize
}

pub(crate) fn address(node: usize) -> String {
    format!("n{node}")
}

impl World {
    fn new(seed: u64, trace: bool, kind: Kind) -> Self {
        let mut random = Random::new(seed);
        let mut plan = Plan::new(&mut random, kind);
        plan.wall_in(&mut Random::new(!seed));
        plan.hold(&mut Random::new(seed.rotate_left(17) ^ 0x401D));
        plan.authorize(&mut Random::new(seed.rotate_left(41) ^ 0xA07));
        let nodes = plan.nodes;
        let processes = Processes::new(seed, plan.holds);
        let is_there = Random::new(seed.rotate_left(32) ^ 0x7E1F).chance(20);
        if is_there {
            plan.config.strangers_max = plan.config.strangers_max.min(STRANGERS_MAX);
        }
        Self {
            now: 0,
            order: 0,
            queue: BinaryHeap::with_capacity(256),
            random,
            plan,
            procs: Vec::new(),
            current: Vec::new(),
            sockets: Vec::new(),
            thief: Thief::new(is_there),
            mutes: vec![vec![Mute::None; nodes]; nodes],
            refuses_until: vec![0; nodes],
            channels: Vec::new(),
            senders: Vec::new(),
            offers: Vec::new(),
            choices: Vec::new(),
            lines: Vec::new(),
            cargos: Vec::new(),
            processes,
            calls: Calls::new(seed),
            orphans: Vec::new(),
            claims: Vec::new(),
            failed: BTreeSet::new(),
            dials: vec![vec![0; nodes]; nodes],
            healed: false,
            resting: false,
            broken: None,
            stuck: None,
            pumping: false,
            coverage: Coverage::default(),
            hash: 0xcbf2_9ce4_8422_2325,
            trace: trace.then(Vec::new),
            ticks: 0,
            bytes: Vec::new(),
        }
    }

    /// One line of the trace.
    pub(crate) fn note(&mut self, tag: u64, detail: u64, line: impl FnOnce() -> String) {
        for n in [self.now, tag, detail] {
            self.hash = (self.hash ^ n).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
        }
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>9.3} ms  {}", self.now as f64 / 1000.0, line()));
        }
    }

    pub(crate) fn is_traced(&self) -> bool {
        self.trace.is_some()
    }

    /// Records that a law is broken; the first record counts.
    pub(crate) fn broke(&mut self, what: impl fmt::Display) {
        if self.broken.is_none() {
            let what = what.to_string();
            self.note(99, 0, || format!("BROKEN: {what}"));
            self.broken = Some(what);
        }
    }

    pub(crate) fn after(&mut self, wait: u64, event: Event) {
        self.order += 1;
        self.queue.push(Reverse(Entry { at: self.now + wait, order: self.order, event }));
    }

    pub(crate) fn time(&self) -> Time {
        Time(self.now)
    }

    /// Starts a node, or starts it again.
    pub(crate) fn start(&mut self, node: usize) -> usize {
        let incarnation = if node < self.current.len() { self.procs[self.current[node]].incarnation + 1 } else { 1 };
        let mut config = self.plan.config.clone();
        config.grace = self.plan.grace_of(node);
        if !self.plan.shy[node] {
            config.addresses = vec![address(node)];
            if self.plan.bound[node] {
                config.bound = config.addresses.clone();
            }
        }
        let me = Life { node: node_id(node), incarnation: Incarnation(incarnation) };
        let machine = StandIn::machine(config, me, self.random.next());
        let views = vec![View::default(); self.plan.nodes];
        let proc = self.procs.len();
        self.procs.push(Proc {
            node,
            incarnation,
            machine,
            alive: true,
            leaving: false,
            replaced: false,
            busy_until: 0,
            tick_at: None,
            leave_until: 0,
            views,
            introductions: 0,
            book: vec![Vec::new(); self.plan.nodes],
        });
        if node < self.current.len() {
            self.current[node] = proc;
        } else {
            self.current.push(proc);
        }
        self.note(1, node as u64, || format!("n{node}/{incarnation} starts"));
        for other in 0..self.plan.nodes {
            if other != node && self.random.chance(if self.plan.shy[node] { 100 } else { 75 }) {
                self.learn(proc, other);
            }
        }
        let wait = self.random.between(1000, 80_000);
        self.after(wait, Event::Chat(proc));
        self.processes_start(proc);
        proc
    }

    pub(crate) fn learn(&mut self, proc: usize, other: usize) {
        if self.plan.shy[other] {
            return;
        }
        let mut addresses = vec![address(other)];
        if self.plan.wrong_addresses && self.random.chance(20) {
            // The address of another node, or its own.
            addresses.insert(0, address(self.random.index(self.plan.nodes)));
        }
        self.procs[proc].machine.learn(node_id(other), &addresses);
        for address in addresses {
            let book = &mut self.procs[proc].book[other];
            if !book.contains(&address) {
                book.push(address);
            }
        }
        self.pump(proc);
    }

    /// The program looks for that node. The machine no longer knows its addresses if a connection with it has
    /// ended.
    pub(crate) fn reach(&mut self, proc: usize, other: usize) {
        let proc = &mut self.procs[proc];
        if proc.machine.addresses_of(node_id(other)).is_empty() && !proc.book[other].is_empty() {
            proc.machine.learn(node_id(other), &proc.book[other]);
        }
    }

    /// The program looks for that node again, and supplies its addresses as soon as a connection with it has
    /// ended: the machine keeps on with those it knows.
    pub(crate) fn reach_again(&mut self, proc: usize, other: usize) {
        let proc = &mut self.procs[proc];
        proc.machine.learn(node_id(other), &proc.book[other]);
    }

    /// The process that an event concerns.
    fn owner(&self, event: Event) -> Option<usize> {
        match event {
            Event::Tick(proc) | Event::Chat(proc) | Event::Travel(proc) | Event::Admit(proc, _) => Some(proc),
            Event::Leave(proc) | Event::Exit(proc) => Some(proc),
            Event::Process(proc) | Event::Received(proc, ..) => Some(proc),
            Event::GivesUp(proc, _) | Event::Answers(proc, _) => Some(proc),
            Event::LineGrant(_, proc, ..) | Event::LineAgain(_, proc) => Some(proc),
            Event::LineLeaves(_, proc) | Event::EndLeft(_, proc) | Event::LineWithdrawn(_, proc, ..) => Some(proc),
            Event::Deliver(socket, side)
            | Event::Writable(socket, side)
            | Event::HearClose(socket, side)
            | Event::OwnClosed(socket, side) => self.sockets[socket].procs[side],
            Event::DialDone { by, .. } => Some(by),
            Event::Sender(sender) => Some(self.senders[sender].proc),
            Event::Grant(offer, _) => Some(self.senders[self.offers[offer].sender].proc),
            Event::Home(channel) => Some(self.channels[channel].proc),
            Event::Release(offer) | Event::EndsCome(offer) => Some(self.channels[self.offers[offer].channel].proc),
            Event::Accept(_) | Event::Fault | Event::Restart(_) | Event::Unmute(..) | Event::Thief => None,
        }
    }

    pub(crate) fn run_until(&mut self, until: u64) {
        while self.broken.is_none()
            && let Some(Reverse(next)) = self.queue.peek()
            && next.at <= until
        {
            let Reverse(Entry { at, event, .. }) = self.queue.pop().expect("it was just there");
            self.now = self.now.max(at);
            self.coverage.events += 1;
            let most = if self.plan.travels { 6 * EVENTS_MAX } else { EVENTS_MAX };
            if self.coverage.events > most {
                return self.broke(format!("a storm: more than {most} events"));
            }
            if let Some(proc) = self.owner(event) {
                let proc = &self.procs[proc];
                if !proc.alive {
                    continue;
                }
                if proc.busy_until > self.now {
                    let wait = proc.busy_until - self.now;
                    self.after(wait, event);
                    continue;
                }
            }
            self.happen(event);
            self.check_lost();
        }
        if self.broken.is_none() {
            self.now = self.now.max(until);
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Tick(proc) => {
                // An earlier tick may have been requested since, and have come.
                if self.procs[proc].tick_at.is_none_or(|at| at > self.now) {
                    return;
                }
                self.procs[proc].tick_at = None;
                self.ticks += 1;
                let now = self.time();
                self.procs[proc].machine.tick(now);
                self.pump(proc);
            }
            Event::Deliver(socket, side) => self.deliver(socket, side),
            Event::Writable(socket, side) => self.writable(socket, side),
            Event::HearClose(socket, side) => self.hear_close(socket, side),
            Event::OwnClosed(socket, side) => self.own_closed(socket, side),
            Event::DialDone { by, dial, to } => self.dial_done(by, dial, to),
            Event::Accept(socket) => self.accept(socket),
            Event::Sender(sender) => self.sender_steps(sender),
            Event::Home(channel) => self.home_steps(channel),
            Event::Release(offer) => self.release(offer),
            Event::Grant(offer, request) => self.grant_now(offer, request),
            Event::Chat(proc) => self.chat(proc),
            Event::Fault => self.fault(),
            Event::Restart(node) => self.restart(node),
            Event::Unmute(from, to) => self.unmute(from, to),
            Event::Leave(proc) => self.leaves(proc),
            Event::Exit(proc) => self.exit(proc),
            Event::Travel(proc) => self.travel_steps(proc),
            Event::LineGrant(line, proc, value, request) => self.grants_value(line, proc, value, request),
            Event::LineAgain(line, proc) => self.offers_again(line, proc),
            Event::LineLeaves(line, proc) => self.leaves_home(line, proc),
            Event::LineWithdrawn(line, proc, claim, from, value) => self.says_withdrawn(line, proc, claim, from, value),
            Event::EndLeft(cargo, proc) => self.end_left(cargo, proc),
            Event::EndsCome(offer) => self.ends_come(offer),
            Event::Thief => self.thief_moves(),
            Event::Process(proc) => self.process_steps(proc),
            Event::Received(proc, number, from, bytes) => self.item_received(proc, number, from, bytes),
            Event::GivesUp(proc, call) => self.gives_call_up(proc, call),
            Event::Answers(proc, call) => self.answers(proc, call),
            Event::Admit(proc, socket) => {
                let now = self.time();
                self.procs[proc].machine.authorized(now, socket, true);
                self.pump(proc);
            }
        }
    }

    /// Carries out the machine's actions.
    pub(crate) fn pump(&mut self, proc: usize) {
        // An action may cause more of them: those wait for their turn.
        if std::mem::replace(&mut self.pumping, true) {
            return;
        }
        self.do_actions(proc);
        self.pumping = false;
        if self.broken.is_some() {
            return;
        }
        self.check_told(proc);
        self.check_claims();
        let Some(Time(due)) = self.procs[proc].machine.next_tick() else { return };
        let due = due.max(self.now);
        if self.procs[proc].tick_at.is_none_or(|at| due < at) {
            self.procs[proc].tick_at = Some(due);
            // Real timers are late.
            let late = if self.plan.late_timers { self.random.below(3000) } else { 0 };
            self.after(due - self.now + late, Event::Tick(proc));
        }
    }

    fn do_actions(&mut self, proc: usize) {
        while let Some(action) = self.procs[proc].machine.poll() {
            if self.is_traced() {
                let (node, life) = (self.procs[proc].node, self.procs[proc].incarnation);
                let text = format!("n{node}/{life}  {action:?}");
                self.note(2, proc as u64, || text);
            } else {
                self.note(2, proc as u64, String::new);
            }
            match action {
                Action::Dial(dial, to) => self.dial(proc, dial, &to),
                // The thief does not read what nodes write to it, and needs no notice of a close.
                Action::Write(socket) if is_thiefs(socket) => {}
                Action::Close(socket, _) if is_thiefs(socket) => self.thief_is_closed(proc, socket),
                Action::Write(socket) => {
                    let (socket, side) = end_of(socket);
                    self.flush(socket, side);
                }
                Action::Close(socket, why) => self.close_end(proc, socket, &why),
                Action::Connection(node, state) => self.connection_changed(proc, node_index(node), state),
                Action::Home(channel, from, heard) => self.home_hears(proc, channel, from, heard),
                Action::Proxy(channel, heard) => self.proxy_hears(proc, channel, heard),
                Action::Read(..) => self.broke("a value is read, and no program reads here"),
                Action::Replied(channel, replied) => self.replied(proc, channel, &replied),
                // The place is gone: its answer finds none.
                Action::Unwanted(_) => {}
                Action::Names(life, said) => self.names_heard(proc, life, *said),
                Action::ClosedRelayed(_, _, why) => self.made_room(proc, &why),
                Action::Post(heard) => self.post_heard(proc, heard),
                Action::Signal(heard) => self.signal_heard(proc, *heard),
                Action::Unrelayed(_) | Action::Declined(..) => {}
                Action::Introduced(address, result) => self.introduced(proc, &address, result),
                Action::Authorize(socket, _) => {
                    let late = self.random.below(self.plan.latency + 1);
                    self.after(late, Event::Admit(proc, socket));
                }
            }
            if self.broken.is_some() {
                return;
            }
        }
    }

    /// Lets a machine write into the buffer of `World`, which is lent to it.
    pub(crate) fn fill(&mut self, proc: usize, socket: SocketId, room: usize) -> Vec<bytes::Bytes> {
        let mut out = std::mem::take(&mut self.bytes);
        let now = self.time();
        self.procs[proc].machine.fill(now, socket, room, &mut out);
        out
    }

    pub(crate) fn give_back(&mut self, mut out: Vec<bytes::Bytes>) {
        out.clear();
        self.bytes = out;
    }

    fn run(&mut self) -> Verdict {
        if self.is_traced() {
            let plan = format!("{:?}", self.plan);
            self.note(0, 0, || plan);
        } else {
            self.note(0, 0, String::new);
        }
        for node in 0..self.plan.nodes {
            self.start(node);
        }
        self.set_up();
        let faults_from = self.random.between(100, 40_000);
        self.after(faults_from, Event::Fault);
        if self.thief.is_there {
            self.after(faults_from, Event::Thief);
        }
        self.run_until(self.plan.heal_at);
        self.heal();
        let patience = self.patience();
        if self.wait_for(patience, Self::unsettled).is_none() {
            self.meet();
            // Until every dead socket and every late dial has been noticed.
            self.run_until(self.now + micros(self.plan.config.handshake + self.plan.config.silence) + 400_000);
            // A node that still dials a dead node gives up.
            if self.current.iter().any(|proc| !self.procs[*proc].alive) {
                self.run_until(self.now + micros(self.plan.grace_max()));
            }
            // A connection that has died meanwhile is made again only on request.
            for _ in 0..10 {
                if self.unmet().is_some() && self.broken.is_none() {
                    self.meet();
                    self.run_until(self.now + 100_000);
                }
            }
            if self.wait_for(patience, Self::unmet).is_none() && self.wait_for(patience, Self::unsettled).is_none() {
                self.resting = true;
                // The last acknowledgements arrive. A hello over a relay may also have replaced a socket: the
                // two nodes stay relayed until their next attempt to dial.
                self.run_until(self.now + 100_000);
                if self.wait_for(patience, Self::unmet).is_none() {
                    self.run_until(self.now + 100_000);
                    self.rest();
                    self.mailboxes_have_room(patience);
                }
            }
        }
        let stuck = self.broken.is_none().then(|| self.stuck.take()).flatten();
        self.coverage.offers = self.offers.len() as u64;
        self.coverage.taken = self.offers.iter().filter(|offer| offer.taken).count() as u64;
        match (self.broken.take(), stuck) {
            (Some(law), _) => Verdict::Broken(law),
            (None, Some(what)) => Verdict::Stuck(what),
            (None, None) => Verdict::Clean,
        }
    }
}

pub(crate) fn micros(wait: Duration) -> u64 {
    wait.as_micros() as u64
}
