//! One channel whose ends travel between nodes: `docs/mobility.md`.
//!
//! Each node has the protocol's machine and, in place of a node's bridges, a queue of the offers at the home.
//! Messages that carry an end go over the same wires, and their receivers take or refuse them at any moment.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use dunlin_proto::id::{ChannelId, Incarnation, Life, NodeId};
use dunlin_proto::identity::StandIn;
use dunlin_proto::time::Time;
use dunlin_proto::wire::{End, Failure, Frame, Terms, Which};
use dunlin_proto::{
    Action, Arrival, Config, HomeHears, Leaving, Machine, ProxyHears, ReceiverPlace, SenderPlace, Trip,
};

use crate::explore::World;

const NOW: Time = Time(0);
const CHANNEL: ChannelId = ChannelId(1);

/// The actions of users, how often they may happen, and the faults.
#[derive(Clone, Debug, Default)]
pub struct Scenario {
    /// The name of the scenario.
    pub name: &'static str,
    /// The number of nodes.
    pub nodes: usize,
    /// The nodes where the sender and the receiver start.
    pub start: (usize, usize),
    /// How many values are sent.
    pub sends: usize,
    /// Places of the channel's buffer; 0: a rendezvous.
    pub buffer: u32,
    /// How often the sender may move, and the receiver.
    pub moves: (usize, usize),
    /// How often a message with an end may be passed on from the node where it has arrived, before it is
    /// taken there.
    pub throughs: usize,
    /// How many messages with an end may be refused.
    pub refusals: usize,
    /// How many sends may be withdrawn.
    pub withdrawals: usize,
    /// Whether the sender may be dropped, and the receiver.
    pub drops: (bool, bool),
    /// How many connections may be lost for good.
    pub cuts: usize,
    /// Whether frames are written to sockets, one by one and at any moment. Any socket may be lost at any
    /// moment, with what is on it, and its connection resumes.
    pub sockets: bool,
    /// How many nodes may die.
    pub deaths: usize,
    /// Whether frames are written as late as possible, so that some overtake others.
    pub lazy: bool,
    /// Whether a node may process an event of its machine later, at any moment.
    pub slow: bool,
    /// How many offers of the sender may stand at its home.
    pub window: u32,
    /// Whether every send is a branch of a choice: the receiver asks for it, and the value is granted.
    pub choices: bool,
    /// How often a receiver that has asked may give up.
    pub aborts: usize,
}

#[derive(Clone, Debug)]
enum Item {
    Frame(Frame),
    Carry(u8, Carried),
    Taken(u8),
    Refused(u8),
    /// It is unknown whether the message was taken.
    Unknown(u8),
}

#[derive(Clone, Debug)]
enum Carried {
    Sender(SenderPlace),
    Receiver(ReceiverPlace),
}

/// A message that goes through a node.
#[derive(Clone, Debug)]
struct Through {
    /// The node that sent it, and its number there.
    from: (usize, u8),
    /// The node it is passed on to, and its number from here.
    to: (usize, u8),
    trip: Trip,
    /// The fields of its end, as they arrived.
    what: Carried,
    /// It has been taken there, and this node has yet to process that.
    taken: bool,
}

/// The outcome of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Open,
    Received,
    NotTaken,
    Unknown,
}

/// The value of a choice's offer has been granted under the first request; the home may have asked again,
/// under the second.
type Granted = (u64, Option<u64>);

/// A sending half at a node.
#[derive(Clone, Debug, Default)]
struct Half {
    /// Its user owns it; otherwise it is in a message, or with the node that took it from one.
    in_hand: bool,
    open: BTreeMap<u64, u8>,
    /// Offers of choices that are reserved.
    granted: BTreeMap<u64, Granted>,
    /// Offers that are being withdrawn.
    withdrawing: BTreeSet<u64>,
    credits: u32,
    failed: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Receiver {
    #[default]
    None,
    /// It arrived in a message.
    Guest,
    Fetching,
    Home,
}

/// The state of a choice's offer at its home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// It can be received.
    Firm,
    Tentative,
    Under(u64),
}

#[derive(Clone, Debug)]
struct Queued {
    from: NodeId,
    ticket: u64,
    value: u8,
    /// In the buffer: its send is complete.
    admitted: bool,
    asked: Asked,
}

#[derive(Clone, Debug)]
struct Node {
    machine: Machine,
    /// The events of the machine that the node has not processed.
    told: VecDeque<Action>,
    queue: VecDeque<Queued>,
    receiver: Receiver,
    /// Whether its user owns the receiver.
    in_hand: bool,
    /// Its user has dropped it before its channel had followed.
    dropped_early: bool,
    /// How the sender has ended the channel.
    ended: Option<End>,
    half: Option<Half>,
    dead: bool,
    /// Messages with ends that have arrived and wait to be taken.
    inbox: Vec<(usize, u8, Carried)>,
    /// Messages with ends that have been sent: the target, the number, whether the receiver is in it.
    outbox: Vec<(usize, u8, bool, Trip)>,
    passing: Vec<Through>,
    /// The next ticket.
    tickets: u64,
    /// The next request.
    requests: u64,
}

/// All nodes, and the messages between them.
#[derive(Clone, Debug)]
pub struct Travel {
    scenario: Scenario,
    nodes: Vec<Node>,
    wires: BTreeMap<(usize, usize), VecDeque<Item>>,
    /// Messages that are sent after the machine's frames.
    carries: BTreeMap<(usize, usize), VecDeque<Item>>,
    fates: Vec<(Fate, bool)>,
    received: Vec<u8>,
    next_carry: u8,
    /// Connections that have ended, and the sides that have noticed it.
    cut: BTreeSet<(usize, usize)>,
    noticed: BTreeSet<(usize, usize)>,
    faults: bool,
    broken: Option<String>,
    dropped: bool,
}

fn id(node: usize) -> NodeId {
    NodeId(node as u128 + 1)
}

fn bytes(value: u8) -> Bytes {
    Bytes::copy_from_slice(&[value])
}

impl Half {
    fn settled(&mut self, ticket: u64) -> Option<u8> {
        self.granted.remove(&ticket);
        self.withdrawing.remove(&ticket);
        self.open.remove(&ticket)
    }
}

impl Travel {
    /// The channel with both ends where the scenario puts them, and known to each other.
    pub fn new(scenario: Scenario) -> Self {
        let count = scenario.nodes;
        let nodes = (0..count).map(|me| {
            let mut config = Config::new("model");
            config.addresses = vec![format!("{me}")];
            let life = Life { node: id(me), incarnation: Incarnation(1) };
            let mut machine = StandIn::machine(config, life, 1);
            for other in (0..count).filter(|other| *other != me) {
                machine.learn(id(other), &[format!("{other}")]);
                machine.model_up(id(other));
            }
            Node {
                machine,
                told: VecDeque::new(),
                queue: VecDeque::new(),
                receiver: Receiver::None,
                in_hand: false,
                dropped_early: false,
                ended: None,
                half: None,
                dead: false,
                inbox: Vec::new(),
                outbox: Vec::new(),
                passing: Vec::new(),
                tickets: 0,
                requests: 0,
            }
        });
        let mut world = Self {
            nodes: nodes.collect(),
            wires: BTreeMap::new(),
            carries: BTreeMap::new(),
            fates: Vec::new(),
            received: Vec::new(),
            next_carry: 0,
            cut: BTreeSet::new(),
            noticed: BTreeSet::new(),
            faults: false,
            broken: None,
            dropped: false,
            scenario,
        };
        let (sender, receiver) = world.scenario.start;
        // Both ends start at the receiver's node, and no other node knows them.
        let terms = world.terms(receiver);
        let home = &mut world.nodes[receiver];
        home.machine.pair(CHANNEL, terms);
        home.receiver = Receiver::Home;
        home.in_hand = true;
        home.half = Some(Half { in_hand: true, credits: terms.credits, ..Half::default() });
        if sender != receiver {
            let (slow, moves) = (std::mem::take(&mut world.scenario.slow), world.scenario.moves);
            world.carry_sender(receiver, sender);
            world.run();
            world.take(sender, 0);
            world.nodes[sender].machine.use_sender(NOW, CHANNEL);
            world.act(sender);
            world.run();
            (world.scenario.slow, world.scenario.moves) = (slow, moves);
        }
        world
    }

    /// Delivers everything on its way.
    fn run(&mut self) {
        while let Some(pair) = self.pairs().into_iter().find(|pair| self.has_item(*pair)) {
            self.deliver(pair);
        }
    }

    fn pairs(&self) -> Vec<(usize, usize)> {
        let count = self.nodes.len();
        (0..count).flat_map(|from| (0..count).map(move |to| (from, to))).filter(|(from, to)| from != to).collect()
    }

    fn has_item(&self, (from, to): (usize, usize)) -> bool {
        if self.wires.get(&(from, to)).is_some_and(|wire| !wire.is_empty())
            || self.carries.get(&(from, to)).is_some_and(|wire| !wire.is_empty())
        {
            return true;
        }
        let mut machine = self.nodes[from].machine.clone();
        (self.scenario.sockets && machine.model_write(id(to)).is_some())
            || (self.scenario.lazy && machine.model_next(id(to)).is_some())
    }

    /// Writes a frame on a socket. `false`: there is none.
    fn write_one(&mut self, (from, to): (usize, usize)) -> bool {
        let frame = self.scenario.sockets.then(|| self.nodes[from].machine.model_write(id(to))).flatten();
        let is_some = frame.is_some();
        frame.into_iter().for_each(|frame| self.put((from, to), Item::Frame(frame)));
        is_some
    }

    /// Checks that any socket may be lost now: the next one carries what was on its way, and then what would
    /// have been written.
    fn check_sockets(&self) -> Result<(), String> {
        for (from, to) in self.pairs() {
            let rest =
                |machine: &mut Machine| -> Vec<Frame> { std::iter::from_fn(|| machine.model_write(id(to))).collect() };
            let on_its_way = self.wires.get(&(from, to)).into_iter().flatten();
            let mut expected: Vec<Frame> = on_its_way
                .filter_map(|item| if let Item::Frame(frame) = item { Some(frame.clone()) } else { None })
                .collect();
            expected.extend(rest(&mut self.nodes[from].machine.clone()));
            let mut machine = self.nodes[from].machine.clone();
            let seen = self.nodes[to].machine.model_seen(id(from));
            if !machine.model_resume(id(to), seen) {
                return Err(format!("{to} has seen {seen} frames of {from}, which it has not written"));
            }
            let said = rest(&mut machine);
            if said != expected {
                return Err(format!("{from} sends {said:?} to {to} on the next socket, and not {expected:?}"));
            }
        }
        Ok(())
    }

    fn peek(&self, (from, to): (usize, usize)) -> String {
        let first = |wires: &BTreeMap<(usize, usize), VecDeque<Item>>| {
            wires.get(&(from, to)).and_then(|wire| wire.front()).map(|item| format!("{item:?}"))
        };
        let lazy = || self.nodes[from].machine.clone().model_next(id(to)).map(|frame| format!("{frame:?}"));
        let unwritten =
            || self.nodes[from].machine.clone().model_write(id(to)).map(|frame| format!("writes {frame:?}"));
        let unwritten = || if self.scenario.sockets { unwritten() } else { lazy() };
        first(&self.wires).or_else(unwritten).or_else(|| first(&self.carries)).unwrap_or_default()
    }

    fn is_cut(&self, a: usize, b: usize) -> bool {
        self.cut.contains(&(a.min(b), a.max(b)))
    }

    /// Puts the frames of the machines on their way.
    fn write(&mut self, from: usize) {
        for to in 0..self.nodes.len() {
            if to == from || self.scenario.sockets || (self.scenario.lazy && !self.is_cut(from, to)) {
                continue;
            }
            while let Some(frame) = self.nodes[from].machine.model_next(id(to)) {
                self.put((from, to), Item::Frame(frame));
            }
            if self.is_cut(from, to) && self.nodes[from].machine.model_wants(id(to)) {
                self.noticed.remove(&(from, to));
            }
        }
    }

    fn put(&mut self, pair: (usize, usize), item: Item) {
        if self.is_cut(pair.0, pair.1) {
            // It dials without success, and will notice the loss.
            self.noticed.remove(&pair);
        } else if !self.nodes[pair.1].dead {
            if !matches!(item, Item::Frame(_)) {
                // Earlier frames go first.
                while self.write_one(pair) {}
            }
            self.wires.entry(pair).or_default().push_back(item);
        }
    }

    fn deliver(&mut self, (from, to): (usize, usize)) {
        let item = self.wires.get_mut(&(from, to)).and_then(VecDeque::pop_front);
        if item.is_none() && self.write_one((from, to)) {
            return;
        }
        let item = item.or_else(|| {
            let lazy = self.scenario.lazy.then(|| self.nodes[from].machine.model_next(id(to))).flatten();
            lazy.map(Item::Frame)
        });
        let item = item.or_else(|| self.carries.get_mut(&(from, to)).and_then(VecDeque::pop_front));
        let Some(item) = item else { return };
        if self.is_cut(from, to) || self.nodes[to].dead {
            return;
        }
        match item {
            Item::Frame(frame) => {
                let told = format!("{frame:?}");
                if let Err(why) = self.nodes[to].machine.model_hear(id(from), frame) {
                    self.broken = Some(format!("a violation at {to}, from {from}: {why}: {told}"));
                }
            }
            Item::Carry(number, what) => self.nodes[to].inbox.push((from, number, what)),
            Item::Taken(number) if self.passes(to, number).is_some() => {
                if let Some(through) = self.passes(to, number) {
                    through.taken = true;
                }
            }
            Item::Refused(number) if self.passes(to, number).is_some() => {
                self.not_passed(to, number, Item::Refused);
            }
            Item::Unknown(number) => self.unknown(to, number),
            Item::Taken(number) => {
                if let Some((receiver, trip)) = self.answered(to, number) {
                    let machine = &mut self.nodes[to].machine;
                    let taker = machine.contact(id(from));
                    if receiver {
                        machine.receiver_left(NOW, CHANNEL, trip, taker);
                    } else {
                        machine.sender_left(NOW, CHANNEL, trip, taker);
                    }
                }
            }
            Item::Refused(number) => {
                if let Some((receiver, trip)) = self.answered(to, number) {
                    let node = &mut self.nodes[to];
                    if receiver {
                        node.in_hand = true;
                        node.machine.receiver_stays(NOW, CHANNEL, trip);
                    } else {
                        node.half.get_or_insert_default().in_hand = true;
                        node.machine.sender_stays(NOW, CHANNEL, trip);
                    }
                }
            }
        }
        self.act(to);
    }

    fn passes(&mut self, me: usize, number: u8) -> Option<&mut Through> {
        self.nodes[me].passing.iter_mut().find(|through| through.to.1 == number)
    }

    /// Passes a message on from here, as one that its giver knows nothing of.
    fn pass_on(&mut self, me: usize, which: usize, to: usize) {
        self.scenario.throughs -= 1;
        let number = self.next_carry;
        self.next_carry += 1;
        let node = &mut self.nodes[me];
        let (from, first, what) = node.inbox.remove(which);
        let trip = node.machine.passes();
        let mut said = what.clone();
        match &mut said {
            Carried::Sender(place) => place.trip = trip,
            Carried::Receiver(place) => place.trip = trip,
        }
        node.passing.push(Through { from: (from, first), to: (to, number), trip, what, taken: false });
        self.carries.entry((me, to)).or_default().push_back(Item::Carry(number, said));
        self.act(me);
    }

    /// The message was taken there, and so the one that arrived here is taken too.
    fn has_passed(&mut self, me: usize, at: usize) {
        let node = &mut self.nodes[me];
        let Through { from, to, trip, what, .. } = node.passing.remove(at);
        let (giver, gift) = (node.machine.contact(id(from.0)), (node.machine.contact(id(to.0)), trip));
        match what {
            Carried::Sender(place) => node.machine.sender_passed(NOW, CHANNEL, place, giver, gift),
            Carried::Receiver(place) => node.machine.receiver_passed(NOW, CHANNEL, place, giver, gift),
        }
        self.act(me);
        self.put((me, from.0), Item::Taken(from.1));
    }

    /// The message was not taken there, or its outcome is unknown.
    fn not_passed(&mut self, me: usize, number: u8, how: fn(u8) -> Item) {
        let passing = &mut self.nodes[me].passing;
        let Some(at) = passing.iter().position(|through| through.to.1 == number) else { return };
        let through = passing.remove(at);
        self.nodes[me].machine.end_stays(through.trip);
        self.put((me, through.from.0), how(through.from.1));
    }

    /// It is unknown whether this message was taken: its end is back here, unless another node has it.
    fn unknown(&mut self, me: usize, number: u8) {
        if self.passes(me, number).is_some() {
            return self.not_passed(me, number, Item::Unknown);
        }
        let Some((receiver, trip)) = self.answered(me, number) else { return };
        let node = &mut self.nodes[me];
        if receiver {
            node.in_hand |= node.machine.receiver_back(NOW, CHANNEL, trip);
        } else if node.machine.sender_back(NOW, CHANNEL, trip) {
            node.half.get_or_insert_default().in_hand = true;
        }
    }

    /// A message is answered. Returns whether the receiver was in it.
    fn answered(&mut self, me: usize, number: u8) -> Option<(bool, Trip)> {
        let outbox = &mut self.nodes[me].outbox;
        let at = outbox.iter().position(|(_, n, ..)| *n == number)?;
        let (_, _, receiver, trip) = outbox.remove(at);
        Some((receiver, trip))
    }

    fn terms(&self, home: usize) -> Terms {
        let admitted = self.nodes[home].queue.iter().filter(|queued| queued.admitted).count() as u32;
        Terms { window: self.scenario.window, credits: self.scenario.buffer.saturating_sub(admitted), value_max: 100 }
    }

    /// Carries out the actions of a machine.
    fn act(&mut self, me: usize) {
        while let Some(action) = self.nodes[me].machine.poll() {
            if self.scenario.slow && matches!(action, Action::Home(..) | Action::Proxy(..)) {
                self.nodes[me].told.push_back(action);
            } else {
                self.hear(me, action);
            }
        }
        self.write(me);
    }

    fn hear(&mut self, me: usize, action: Action) {
        match action {
            Action::Home(_, from, heard) => self.home(me, from.node, heard),
            Action::Proxy(_, heard) => self.proxy(me, heard),
            _ => {}
        }
    }

    fn home(&mut self, me: usize, from: NodeId, heard: HomeHears) {
        let terms = self.terms(me);
        let node = &mut self.nodes[me];
        match heard {
            HomeHears::Attached | HomeHears::Announced => {}
            HomeHears::Offered(ticket, bytes) => {
                node.queue.push_back(Queued { from, ticket, value: bytes[0], admitted: false, asked: Asked::Firm });
            }
            HomeHears::Sent(bytes) => {
                node.machine.drained(CHANNEL, 1, bytes.len() as u64);
                node.queue.push_back(Queued { from, ticket: 0, value: bytes[0], admitted: true, asked: Asked::Firm });
            }
            HomeHears::Withdraw(ticket) => {
                let before = node.queue.len();
                node.queue.retain(|queued| queued.from != from || queued.ticket != ticket || queued.admitted);
                if node.queue.len() < before {
                    node.machine.withdrawn(NOW, CHANNEL, from, ticket);
                }
            }
            HomeHears::Ended(how) => {
                node.ended.get_or_insert(how);
            }
            HomeHears::Lost(_) => {
                node.queue.retain(|queued| queued.from != from || queued.admitted);
                node.ended.get_or_insert(End::Lost);
            }
            HomeHears::Take => node.machine.admit(NOW, CHANNEL, from, terms),
            HomeHears::Leave => node.machine.leave_home(NOW, CHANNEL),
            HomeHears::Empty => {
                let values = node.queue.drain(..).filter(|queued| queued.admitted).map(|q| bytes(q.value)).collect();
                node.ended = None;
                node.receiver = Receiver::None;
                node.machine.ship(NOW, CHANNEL, values);
            }
            HomeHears::Arrived(ended) => {
                node.ended = ended;
                node.receiver = Receiver::Home;
                node.machine.install(NOW, CHANNEL);
                if !node.in_hand {
                    self.broken = Some(format!("the receiver is at home at node {me}, which has it in a message"));
                }
                if std::mem::take(&mut self.nodes[me].dropped_early) {
                    self.drop_home(me);
                }
            }
            HomeHears::Lapsed(_) => self.drop_home(me),
            HomeHears::Failed(_) => {
                node.in_hand = false;
                node.dropped_early = false;
                node.receiver = Receiver::None;
                node.queue.clear();
                node.ended = None;
            }
            HomeHears::OfferedUnread(..) | HomeHears::GrantedUnread(..) => {
                self.broken = Some("a value is offered unread, and none is".to_owned());
            }
            HomeHears::OfferedByChoice(ticket, choice) => {
                let value = choice as u8;
                node.queue.push_back(Queued { from, ticket, value, admitted: false, asked: Asked::Tentative });
            }
            HomeHears::Granted(ticket, request, bytes) => {
                let asked = |queued: &&mut Queued| queued.ticket == ticket && queued.asked == Asked::Under(request);
                if let Some(queued) = node.queue.iter_mut().find(asked) {
                    queued.asked = Asked::Firm;
                    if queued.value != bytes[0] {
                        self.broken = Some(format!("value {} is granted for {}", bytes[0], queued.value));
                    }
                }
            }
            HomeHears::Revoke(ticket) => {
                if let Some(which) = node.queue.iter().position(|queued| queued.ticket == ticket && !queued.admitted) {
                    self.give_up(me, which);
                }
            }
        }
    }

    /// Ends the receive that has asked.
    fn give_up(&mut self, me: usize, which: usize) {
        let node = &mut self.nodes[me];
        let Some(queued) = node.queue.get_mut(which).filter(|queued| queued.asked != Asked::Tentative) else { return };
        queued.asked = Asked::Tentative;
        node.machine.abort(NOW, CHANNEL, queued.from, queued.ticket);
    }

    /// Grants the value that is asked for.
    fn grant(&mut self, me: usize, ticket: u64, request: u64) {
        let node = &mut self.nodes[me];
        let Some(half) = &mut node.half else { return };
        let Some(value) = half.open.get(&ticket).filter(|_| !half.withdrawing.contains(&ticket)) else { return };
        if let Some((_, next)) = half.granted.get_mut(&ticket) {
            *next = Some(request);
        } else if node.machine.grant(NOW, CHANNEL, ticket, request, bytes(*value)) {
            half.granted.insert(ticket, (request, None));
        }
    }

    fn drop_home(&mut self, me: usize) {
        let node = &mut self.nodes[me];
        node.in_hand = false;
        node.receiver = Receiver::None;
        for queued in std::mem::take(&mut node.queue) {
            if !queued.admitted {
                node.machine.failed(NOW, CHANNEL, queued.from, queued.ticket, Failure::Closed);
            }
        }
        node.machine.end_home(NOW, CHANNEL, End::Gone);
    }

    fn fate(&mut self, value: u8, fate: Fate) {
        let known = &mut self.fates[usize::from(value)];
        if known.0 != Fate::Open {
            self.broken = Some(format!("value {value} was {:?}, and then {fate:?}", known.0));
        }
        let received = known.1;
        known.0 = fate;
        match fate {
            Fate::Received if !received => {
                self.broken = Some(format!("value {value} is reported as received, and was not"))
            }
            Fate::NotTaken if received => {
                self.broken = Some(format!("value {value} is reported as not taken, and was"))
            }
            _ => {}
        }
    }

    /// An event about offers that a half does not have is for another half, which was here before.
    fn proxy(&mut self, me: usize, heard: ProxyHears) {
        let node = &mut self.nodes[me];
        let Some(half) = &mut node.half else { return };
        match heard {
            ProxyHears::Attached(terms) => half.credits += terms.credits,
            ProxyHears::Credit(count) | ProxyHears::Home(_, _, count) => half.credits += count,
            ProxyHears::Moved(_, again) => {
                for ticket in again {
                    match half.open.get(&ticket) {
                        Some(value) => node.machine.offer_again(NOW, CHANNEL, ticket, bytes(*value)),
                        // The offer is being withdrawn.
                        None if self.scenario.slow => {}
                        None => {
                            self.broken =
                                Some(format!("offer {ticket} of node {me} is to be made again, and is not open"));
                            return;
                        }
                    }
                }
            }
            ProxyHears::Rests => {}
            ProxyHears::Departed => {
                if !half.in_hand {
                    node.half = None;
                }
            }
            ProxyHears::Reserve(ticket, request) => self.grant(me, ticket, request),
            ProxyHears::Abort(ticket) => {
                if let Some((_, Some(next))) = half.granted.remove(&ticket) {
                    self.grant(me, ticket, next);
                }
            }
            ProxyHears::Taken(ticket, _) | ProxyHears::Released(ticket) => match half.settled(ticket) {
                Some(value) => self.fate(value, Fate::Received),
                None => self.broken = Some(format!("offer {ticket} of node {me} is taken, and is not open")),
            },
            ProxyHears::Failed(ticket, _) | ProxyHears::Withdrawn(ticket) => {
                if let Some(value) = half.settled(ticket) {
                    self.fate(value, Fate::NotTaken);
                }
            }
            ProxyHears::Ended(_) | ProxyHears::Rejected(_) => {
                half.failed = true;
                half.granted.clear();
                let open = std::mem::take(&mut half.open);
                if node.machine.has_half(CHANNEL) {
                    node.machine.end_proxy(NOW, CHANNEL, End::Gone);
                }
                open.into_values().for_each(|value| self.fate(value, Fate::NotTaken));
            }
            ProxyHears::Lost { unknown, not_taken, taken } => {
                half.failed = true;
                half.granted.clear();
                let mut fates = Vec::new();
                let mut unheard = None;
                half.open.retain(|ticket, value| {
                    let fate = if unknown.contains(ticket) {
                        Fate::Unknown
                    } else if not_taken.contains(ticket) {
                        Fate::NotTaken
                    } else if taken.contains(ticket) {
                        Fate::Received
                    } else {
                        unheard = Some(*ticket);
                        return true;
                    };
                    fates.push((*value, fate));
                    false
                });
                if let Some(ticket) = unheard.filter(|_| !self.scenario.slow) {
                    self.broken =
                        Some(format!("the outcome of offer {ticket} is not reported of node {me}, which is lost"));
                }
                for (value, fate) in fates {
                    self.fate(value, fate);
                }
            }
            ProxyHears::Held(..) => self.broken = Some("a word of an extended receive".to_owned()),
            ProxyHears::Onward(_) | ProxyHears::Unread(_) => {
                self.broken = Some("a value is to go on, and none does".to_owned())
            }
        }
    }

    // What users do.

    fn send(&mut self, me: usize) -> bool {
        let value = self.fates.len() as u8;
        let buffered = self.scenario.buffer > 0;
        let node = &mut self.nodes[me];
        let Some(half) = node.half.as_mut().filter(|half| half.in_hand && !half.failed) else { return false };
        if buffered {
            // A send that finds no room waits in the sender's own half: only the use of the sender shows
            // here.
            if half.credits == 0 {
                node.machine.use_sender(NOW, CHANNEL);
                self.act(me);
                return true;
            }
            half.credits -= 1;
            if !node.machine.send_on_credit(NOW, CHANNEL, bytes(value)) {
                if node.machine.has_half(CHANNEL) {
                    self.broken = Some(format!("node {me} has a credit that its machine does not know"));
                }
                return false;
            }
            self.fates.push((Fate::Received, false));
        } else {
            let ticket = node.tickets;
            node.tickets += 1;
            half.open.insert(ticket, value);
            self.fates.push((Fate::Open, false));
            if self.scenario.choices {
                node.machine.offer_choice(NOW, CHANNEL, ticket, value.into());
            } else {
                node.machine.offer(NOW, CHANNEL, ticket, bytes(value));
            }
        }
        self.act(me);
        true
    }

    fn receive(&mut self, me: usize) {
        let queue = &mut self.nodes[me].queue;
        let first = queue.iter().position(|queued| queued.asked == Asked::Firm);
        let Some(queued) = first.and_then(|first| queue.remove(first)) else { return };
        let known = &mut self.fates[usize::from(queued.value)];
        if known.1 {
            self.broken = Some(format!("value {} was received twice", queued.value));
        }
        known.1 = true;
        if !self.scenario.choices && self.received.last().is_some_and(|last| *last > queued.value) {
            self.broken = Some(format!("value {} was received after {:?}", queued.value, self.received));
        }
        self.received.push(queued.value);
        let machine = &mut self.nodes[me].machine;
        if queued.admitted {
            for node in 0..self.scenario.nodes {
                machine.credit(NOW, CHANNEL, id(node), 1);
            }
        } else {
            machine.taken(NOW, CHANNEL, queued.from, queued.ticket);
        }
        self.act(me);
    }

    fn carry_sender(&mut self, from: usize, to: usize) -> bool {
        let node = &mut self.nodes[from];
        let Some(half) = node.half.as_mut().filter(|half| half.in_hand && !half.failed) else { return false };
        let (place, trip) = match node.machine.pack_sender(NOW, CHANNEL) {
            Leaving::Ready(place, trip) => (place, trip),
            Leaving::Wait => {
                self.act(from);
                return true;
            }
            Leaving::Over(_) => return false,
        };
        half.in_hand = false;
        self.carry(from, to, Carried::Sender(place), false, trip);
        true
    }

    fn carry_receiver(&mut self, from: usize, to: usize) -> bool {
        let node = &mut self.nodes[from];
        let Leaving::Ready(place, trip) = node.machine.pack_receiver(CHANNEL) else { return false };
        node.in_hand = false;
        self.carry(from, to, Carried::Receiver(place), true, trip);
        true
    }

    fn carry(&mut self, from: usize, to: usize, what: Carried, receiver: bool, trip: Trip) {
        let number = self.next_carry;
        self.next_carry += 1;
        if receiver {
            self.scenario.moves.1 = self.scenario.moves.1.saturating_sub(1);
        } else {
            self.scenario.moves.0 = self.scenario.moves.0.saturating_sub(1);
        }
        self.nodes[from].outbox.push((to, number, receiver, trip));
        self.carries.entry((from, to)).or_default().push_back(Item::Carry(number, what));
        self.act(from);
    }

    fn take(&mut self, me: usize, which: usize) {
        let (from, number, what) = self.nodes[me].inbox.remove(which);
        // This goes before all frames that the end's new holder sends.
        self.act(me);
        self.put((me, from), Item::Taken(number));
        let node = &mut self.nodes[me];
        let giver = node.machine.contact(id(from));
        match what {
            Carried::Sender(place) => match node.machine.sender_arrives(NOW, CHANNEL, place, giver) {
                Arrival::Guest => node.half = Some(Half { in_hand: true, ..Half::default() }),
                Arrival::Returned => node.half.get_or_insert_default().in_hand = true,
                Arrival::Stale => {}
            },
            Carried::Receiver(place) => match node.machine.receiver_arrives(NOW, CHANNEL, place, giver) {
                Arrival::Guest => {
                    node.receiver = Receiver::Guest;
                    node.in_hand = true;
                }
                Arrival::Returned => {
                    // A receiver that was only passed on through this node was never used here.
                    if node.receiver == Receiver::None {
                        node.receiver = Receiver::Guest;
                    }
                    node.in_hand = true;
                }
                Arrival::Stale => {}
            },
        }
        self.act(me);
    }

    fn refuse(&mut self, me: usize, which: usize) {
        let (from, number, _) = self.nodes[me].inbox.remove(which);
        self.put((me, from), Item::Refused(number));
    }

    fn notice(&mut self, me: usize, other: usize) {
        self.noticed.insert((me, other));
        let node = &mut self.nodes[me];
        node.inbox.retain(|(from, ..)| *from != other);
        node.machine.model_lost(id(other));
        let back: Vec<u8> = node.outbox.iter().filter(|(to, ..)| *to == other).map(|(_, number, ..)| *number).collect();
        let doubtful = node.passing.iter().filter(|through| through.to.0 == other && !through.taken);
        let doubtful: Vec<u8> = doubtful.map(|through| through.to.1).collect();
        for number in back.into_iter().chain(doubtful) {
            self.unknown(me, number);
        }
        self.act(me);
    }

    fn drop_sender(&mut self, me: usize) -> bool {
        let node = &mut self.nodes[me];
        let Some(half) = node.half.as_mut().filter(|half| half.in_hand && half.open.is_empty()) else { return false };
        half.in_hand = false;
        self.scenario.drops.0 = false;
        self.dropped = true;
        let node = &mut self.nodes[me];
        node.half = None;
        node.machine.end_proxy(NOW, CHANNEL, End::Gone);
        self.act(me);
        true
    }

    fn drop_receiver(&mut self, me: usize) -> bool {
        let node = &mut self.nodes[me];
        match node.receiver {
            Receiver::None => return false,
            // Its channel has yet to follow.
            Receiver::Fetching => node.dropped_early = true,
            Receiver::Guest => {
                node.receiver = Receiver::None;
                node.in_hand = false;
                node.machine.drop_receiver(NOW, CHANNEL);
            }
            Receiver::Home => self.drop_home(me),
        }
        self.scenario.drops.1 = false;
        self.dropped = true;
        self.act(me);
        true
    }
}

impl World for Travel {
    fn state(&self) -> String {
        use std::fmt::Write as _;
        let mut text = String::new();
        for node in &self.nodes {
            let _ = write!(
                text,
                "{}|{:?}{:?}{:?}{}{}{:?}{:?}{}{:?}{:?}{:?}",
                node.machine.model_state(CHANNEL),
                node.told,
                node.queue,
                node.receiver,
                node.in_hand,
                node.dropped_early,
                node.ended,
                node.half,
                node.dead,
                node.inbox,
                node.outbox,
                node.passing
            );
            if self.scenario.lazy || self.scenario.sockets {
                let mut machine = node.machine.clone();
                for to in 0..self.nodes.len() {
                    let mut next =
                        || if self.scenario.sockets { machine.model_write(id(to)) } else { machine.model_next(id(to)) };
                    while let Some(frame) = next() {
                        let _ = write!(text, "{to}{frame:?}");
                    }
                }
            }
        }
        let _ = write!(
            text,
            "{:?}{:?}{:?}{:?}{:?}{:?}{:?}{:?}{:?}{}{:?}",
            self.wires.iter().filter(|(_, wire)| !wire.is_empty()).collect::<Vec<_>>(),
            self.carries.iter().filter(|(_, wire)| !wire.is_empty()).collect::<Vec<_>>(),
            self.fates,
            self.received.last(),
            self.cut,
            self.noticed,
            self.scenario.moves,
            (self.scenario.refusals, self.scenario.cuts, self.scenario.deaths, self.scenario.throughs),
            (self.scenario.withdrawals, self.scenario.aborts),
            self.dropped,
            self.scenario.drops
        );
        text
    }

    fn is_at_rest(&self) -> bool {
        let on_the_way = self.pairs().into_iter().any(|pair| self.has_item(pair) && !self.is_cut(pair.0, pair.1));
        let unnoticed = self.cut.iter().any(|(a, b)| {
            !self.noticed.contains(&(*a, *b)) && !self.nodes[*a].dead
                || !self.noticed.contains(&(*b, *a)) && !self.nodes[*b].dead
        });
        let taken = |node: &Node| node.passing.iter().any(|through| through.taken);
        let told = self.nodes.iter().any(|node| !node.dead && (!node.told.is_empty() || taken(node)));
        !on_the_way && !unnoticed && !told && self.nodes.iter().all(|node| node.dead || node.inbox.is_empty())
    }

    fn next(&self) -> Vec<(String, Self)> {
        let mut next = Vec::new();
        let mut add = |name: String, f: &mut dyn FnMut(&mut Self) -> bool| {
            let mut world = self.clone();
            if f(&mut world) {
                next.push((name, world));
            }
        };
        for (from, to) in self.pairs() {
            if !self.nodes[from].dead && !self.nodes[to].dead && self.has_item((from, to)) && !self.is_cut(from, to) {
                add(format!("{from} -> {to}: {}", self.peek((from, to))), &mut |world| {
                    world.deliver((from, to));
                    true
                });
            }
        }
        for (from, to) in self.pairs().into_iter().filter(|_| self.scenario.sockets) {
            if self.wires.get(&(from, to)).is_some_and(|wire| !wire.is_empty()) {
                add(format!("{from} writes to {to} one more"), &mut |world| world.write_one((from, to)));
            }
        }
        for me in (0..self.nodes.len()).filter(|me| !self.nodes[*me].dead) {
            let node = &self.nodes[me];
            if let Some(action) = node.told.front() {
                add(format!("{me} gets {action:?}"), &mut |world| {
                    if let Some(action) = world.nodes[me].told.pop_front() {
                        world.hear(me, action);
                    }
                    world.act(me);
                    true
                });
            }
            for which in 0..node.inbox.len() {
                add(format!("{me} takes {:?}", node.inbox[which].2), &mut |world| {
                    world.take(me, which);
                    true
                });
                let others = (0..self.nodes.len()).filter(|to| *to != me && self.scenario.throughs > 0);
                for to in others.filter(|to| !self.nodes[*to].dead && !self.is_cut(me, *to)) {
                    add(format!("{me} passes {:?} on to {to}", node.inbox[which].2), &mut |world| {
                        world.pass_on(me, which, to);
                        true
                    });
                }
                if self.scenario.refusals > 0 {
                    add(format!("{me} refuses"), &mut |world| {
                        world.scenario.refusals -= 1;
                        world.refuse(me, which);
                        true
                    });
                }
            }
            for (at, through) in node.passing.iter().enumerate().filter(|(_, through)| through.taken) {
                add(format!("{me} heeds that {} was taken", through.to.1), &mut |world| {
                    world.has_passed(me, at);
                    true
                });
            }
            if node.in_hand && node.receiver == Receiver::Home {
                if node.queue.iter().any(|queued| queued.asked == Asked::Firm) {
                    add(format!("{me} receives"), &mut |world| {
                        world.receive(me);
                        true
                    });
                }
                for (which, queued) in node.queue.iter().enumerate().filter(|_| self.scenario.choices) {
                    if queued.asked == Asked::Tentative {
                        add(format!("{me} asks for {}", queued.value), &mut |world| {
                            let node = &mut world.nodes[me];
                            node.requests += 1;
                            let (from, ticket, request) = (queued.from, queued.ticket, node.requests);
                            node.queue[which].asked = Asked::Under(request);
                            node.machine.reserve(NOW, CHANNEL, from, ticket, request);
                            world.act(me);
                            true
                        });
                    } else if self.scenario.aborts > 0 {
                        add(format!("{me} gives {} up", queued.value), &mut |world| {
                            world.scenario.aborts -= 1;
                            world.give_up(me, which);
                            world.act(me);
                            true
                        });
                    }
                }
            }
            if node.in_hand && node.receiver == Receiver::Guest {
                add(format!("{me} uses the receiver"), &mut |world| {
                    world.nodes[me].receiver = Receiver::Fetching;
                    world.nodes[me].machine.use_receiver(NOW, CHANNEL);
                    world.act(me);
                    true
                });
            }
            let has_sender = node.half.as_ref().is_some_and(|half| half.in_hand);
            if has_sender && self.fates.len() < self.scenario.sends {
                add(format!("{me} sends"), &mut |world| world.send(me));
            }
            for to in (0..self.nodes.len()).filter(|to| *to != me && !self.nodes[*to].dead && !self.is_cut(me, *to)) {
                if has_sender && self.scenario.moves.0 > 0 {
                    add(format!("{me} sends the sender to {to}"), &mut |world| world.carry_sender(me, to));
                }
                if node.in_hand && self.scenario.moves.1 > 0 {
                    add(format!("{me} sends the receiver to {to}"), &mut |world| world.carry_receiver(me, to));
                }
            }
            if self.scenario.withdrawals > 0 && self.scenario.buffer == 0 {
                let open: Vec<u64> = node.half.iter().flat_map(|half| half.open.keys().copied()).collect();
                for ticket in open {
                    add(format!("{me} asks {ticket} back"), &mut |world| {
                        world.scenario.withdrawals -= 1;
                        let node = &mut world.nodes[me];
                        let half = node.half.as_mut();
                        // A choice that is reserved can only ask for the reservation back.
                        if half.as_ref().is_some_and(|half| half.granted.contains_key(&ticket)) {
                            node.machine.revoke(NOW, CHANNEL, ticket);
                        } else {
                            half.map(|half| half.withdrawing.insert(ticket));
                            node.machine.withdraw(NOW, CHANNEL, ticket);
                        }
                        world.act(me);
                        true
                    });
                }
            }
            if has_sender && self.scenario.drops.0 {
                add(format!("{me} drops the sender"), &mut |world| world.drop_sender(me));
            }
            if node.in_hand && !node.dropped_early && self.scenario.drops.1 {
                add(format!("{me} drops the receiver"), &mut |world| world.drop_receiver(me));
            }
            if self.scenario.deaths > 0 {
                add(format!("{me} dies"), &mut |world| {
                    world.scenario.deaths -= 1;
                    world.faults = true;
                    world.nodes[me].dead = true;
                    for other in (0..world.nodes.len()).filter(|other| *other != me) {
                        world.cut.insert((me.min(other), me.max(other)));
                    }
                    true
                });
            }
        }
        for (a, b) in self.pairs() {
            if a < b && self.scenario.cuts > 0 && !self.is_cut(a, b) {
                add(format!("the connection of {a} and {b} is lost"), &mut |world| {
                    world.scenario.cuts -= 1;
                    world.faults = true;
                    world.cut.insert((a, b));
                    true
                });
            }
            let (low, high) = (a.min(b), a.max(b));
            if self.cut.contains(&(low, high)) && !self.noticed.contains(&(a, b)) && !self.nodes[a].dead {
                add(format!("{a} notices that {b} is lost"), &mut |world| {
                    world.wires.remove(&(b, a));
                    world.carries.remove(&(b, a));
                    world.notice(a, b);
                    true
                });
            }
        }
        next
    }

    fn check(&self) -> Result<(), String> {
        if let Some(what) = &self.broken {
            return Err(what.clone());
        }
        let living = || self.nodes.iter().filter(|node| !node.dead);
        if living().filter(|node| node.in_hand && node.receiver == Receiver::Home).count() > 1 {
            return Err("two nodes have the receiver".to_owned());
        }
        let senders = living().filter(|node| node.half.as_ref().is_some_and(|half| half.in_hand)).count();
        if senders > 1 && !self.faults {
            return Err("two nodes have the sender".to_owned());
        }
        if self.scenario.sockets { self.check_sockets() } else { Ok(()) }
    }

    fn check_rest(&self) -> Result<(), String> {
        let living = || self.nodes.iter().enumerate().filter(|(_, node)| !node.dead);
        let home = living().find(|(_, node)| node.receiver == Receiver::Home).map(|(me, _)| me);
        let guest = living().find(|(_, node)| node.in_hand && node.receiver == Receiver::Guest).map(|(me, _)| me);
        for (me, node) in living() {
            if node.receiver == Receiver::Fetching {
                return Err(format!("the receiver of node {me} never arrives"));
            }
            let Some(half) = &node.half else { continue };
            // A receiver must see every offer that waits.
            if let Some((ticket, value)) = half.open.first_key_value() {
                let seen = home.is_some_and(|home| self.nodes[home].queue.iter().any(|queued| queued.value == *value));
                if !seen {
                    return Err(format!("offer {ticket} of node {me} waits for ever: no receiver sees it"));
                }
            }
            // Only a home that has a choice's value may have it reserved.
            for ticket in half.granted.keys() {
                let has_it = |queued: &Queued| queued.ticket == *ticket && queued.asked == Asked::Firm;
                if !home.is_some_and(|home| self.nodes[home].queue.iter().any(has_it)) {
                    return Err(format!("offer {ticket} of node {me} is reserved for ever"));
                }
            }
        }
        for (me, node) in living() {
            if let Some(queued) = node.queue.iter().find(|queued| matches!(queued.asked, Asked::Under(_))) {
                return Err(format!("node {me} has asked for {queued:?}, and is not answered"));
            }
        }
        // Whether an end was passed on and not used: then there are records of its way.
        let unused_sender = living().any(|(_, node)| {
            node.half.as_ref().is_some_and(|half| half.in_hand) && node.machine.is_guest(CHANNEL, Which::Sender)
        });
        for (me, node) in living() {
            let census = node.machine.census();
            if census.passing > 0 || !node.passing.is_empty() {
                return Err(format!("node {me} keeps what it has passed on"));
            }
            let has_half = node.half.as_ref().is_some_and(|half| half.in_hand);
            if census.proxies > 0 && !has_half && !unused_sender {
                return Err(format!("node {me} keeps a half without a holder: {}", node.machine.model_state(CHANNEL)));
            }
            if census.visitors > 0 && guest.is_none() {
                return Err(format!(
                    "node {me} keeps a receiver without a holder: {}",
                    node.machine.model_state(CHANNEL)
                ));
            }
            if census.homes > 0 && node.receiver != Receiver::Home {
                return Err(format!(
                    "node {me} keeps a home without a receiver: {}",
                    node.machine.model_state(CHANNEL)
                ));
            }
            if node.receiver == Receiver::Home && !node.in_hand && guest.is_none() {
                return Err(format!("node {me} waits for a receiver without a holder"));
            }
        }
        if !self.faults && !self.dropped {
            // No sent value is lost: it was received, is in the queue, or was reported as not taken.
            for (value, (fate, received)) in self.fates.iter().enumerate() {
                let queued = self.nodes.iter().any(|node| node.queue.iter().any(|q| usize::from(q.value) == value));
                if *fate == Fate::Received && !received && !queued {
                    return Err(format!("value {value} is lost"));
                }
                if *fate == Fate::Unknown {
                    return Err(format!("the outcome of value {value} is unknown, and nothing has failed"));
                }
            }
            if !self.nodes.iter().any(|node| node.in_hand)
                || !self.nodes.iter().any(|node| node.half.as_ref().is_some_and(|half| half.in_hand && !half.failed))
            {
                return Err("an end is lost".to_owned());
            }
        }
        // A receiver whose sender no longer exists must know that.
        let sender_lives =
            living().any(|(_, node)| node.half.as_ref().is_some_and(|half| half.in_hand && !half.failed));
        for (me, node) in living() {
            let waits =
                node.in_hand && node.receiver == Receiver::Home && node.ended.is_none() && node.queue.is_empty();
            if waits && !sender_lives {
                return Err(format!("the receiver at node {me} waits for a sender that is nowhere"));
            }
        }
        Ok(())
    }
}
