//! Signals between processes of two nodes: each watch is answered once, in order with messages, whatever
//! happens to the connection. Two machines in memory.

#[allow(dead_code, reason = "only a part of what tests of two machines share is needed")]
#[path = "support/machines.rs"]
mod machines;
#[path = "support/pair.rs"]
mod pair;

use std::collections::BTreeMap;

use bytes::Bytes;
use dunlin_proto::connection::State;
use dunlin_proto::id::{Contact, Incarnation, Life, MailboxId, NodeId, ProcessId};
use dunlin_proto::wire::{Exit, Frame, Payload, Post, Reason, Signal, limits};
use dunlin_proto::{Action, Config, Declined, Down, NotSignalled, PostHears, SignalHears};
use machines::THERE;
use pair::Pair;
use proptest::prelude::*;

/// The node with the processes, which dials.
const HOME: usize = 0;
/// The node that watches them.
const WATCHER: usize = 1;
const NODES: [NodeId; 2] = [NodeId(1), THERE];
/// The mailbox of the watching node.
const MAILBOX: MailboxId = MailboxId { number: 1, bits: 7 };
const SECOND: u64 = 1_000_000;

fn process(number: u64) -> ProcessId {
    let life = Life { node: NODES[HOME], incarnation: Incarnation(1) };
    ProcessId { life, number, place: 0, bits: number * 1_000_003 }
}

fn exit(text: &str) -> Exit {
    Exit { text: text.to_owned(), ..Exit::of(Reason::Error) }
}

/// What the watching node has learned, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Heard {
    Message(u64),
    Down(u64, Reason),
}

struct World {
    pair: Pair,
    /// Dials fail.
    parted: bool,
    /// Which processes are alive, with the watches of each.
    alive: BTreeMap<u64, Vec<(Contact, u64)>>,
    heard: Vec<Heard>,
    signals: Vec<SignalHears>,
    declined: Vec<Declined>,
    downs: Vec<(usize, Down)>,
}

impl World {
    fn new(processes: u64) -> Self {
        Self::with(processes, &Config::new("signals"))
    }

    fn with(processes: u64, config: &Config) -> Self {
        let mut world = Self {
            pair: Pair::new(config),
            parted: false,
            alive: (1..=processes).map(|number| (number, Vec::new())).collect(),
            heard: Vec::new(),
            signals: Vec::new(),
            declined: Vec::new(),
            downs: Vec::new(),
        };
        world.pair.machines[WATCHER].open_mailbox(MAILBOX, Bytes::new(), u32::MAX);
        world.post(0);
        world.settle();
        world.heard.clear();
        world
    }

    fn post(&mut self, number: u64) -> bool {
        let message = Bytes::copy_from_slice(&number.to_be_bytes());
        self.pair.machines[HOME].post(self.pair.time(), NODES[WATCHER], MAILBOX, &Bytes::new(), message).is_ok()
    }

    fn watch(&mut self, number: u64) -> u64 {
        self.pair.machines[WATCHER].watch(self.pair.time(), process(number)).unwrap()
    }

    /// The process ends.
    fn end(&mut self, number: u64) {
        for (watching, watch) in self.alive.remove(&number).unwrap_or_default() {
            self.pair.machines[HOME].down(watching, watch, exit("no krill"));
        }
    }

    fn settle(&mut self) {
        while self.step() {}
    }

    fn step(&mut self) -> bool {
        let mut busy = false;
        for at in [HOME, WATCHER] {
            while let Some(action) = self.pair.machines[at].poll() {
                busy = true;
                self.act(at, action);
            }
            busy |= self.pair.write(at, 300);
        }
        busy |= self.pair.read();
        busy
    }

    fn act(&mut self, at: usize, action: Action) {
        let now = self.pair.time();
        match action {
            Action::Dial(dial, _) if self.parted || at == WATCHER => {
                self.pair.machines[at].dial_failed(now, dial, "parted".to_owned());
            }
            Action::Dial(dial, _) => self.pair.dial(at, dial),
            Action::Post(PostHears::Message(from, number, message)) => {
                self.heard.push(Heard::Message(u64::from_be_bytes(message[..].try_into().unwrap())));
                self.pair.machines[at].post_received(number, from, message.len() as u64);
            }
            Action::Signal(heard) => self.hear(at, *heard),
            Action::Declined(_, what) => self.declined.push(what),
            Action::Connection(_, State::Down(why)) => self.downs.push((at, why)),
            _ => {}
        }
    }

    fn hear(&mut self, at: usize, heard: SignalHears) {
        let now = self.pair.time();
        match heard {
            SignalHears::Watch(watching, watch, of) if at == HOME => {
                match self.alive.get_mut(&of.number) {
                    Some(_) if of != process(of.number) => {
                        self.pair.machines[HOME].signal_refused(now, watching.node, 1)
                    }
                    Some(watches) => return watches.push((watching, watch)),
                    None => {}
                }
                self.pair.machines[HOME].down(watching, watch, Exit::of(Reason::NoSuchProcess));
            }
            SignalHears::Unwatch(_, watch) if at == HOME => {
                self.alive.values_mut().for_each(|watches| watches.retain(|(_, other)| *other != watch));
            }
            SignalHears::AllUnwatched(_) if at == HOME => {
                self.alive.values_mut().for_each(Vec::clear);
            }
            SignalHears::Down(node, watch, exit) => {
                assert_eq!((at, node), (WATCHER, NODES[HOME]));
                self.heard.push(Heard::Down(watch, exit.reason));
            }
            signal => self.signals.push(signal),
        }
    }

    /// Carries out what the machine has reported so far, as its driver does before it calls it again.
    fn drain(&mut self, at: usize) {
        while let Some(action) = self.pair.machines[at].poll() {
            self.act(at, action);
        }
    }

    fn pass(&mut self, steps: u64, each: u64) {
        for _ in 0..steps {
            self.pair.wait(each);
            for _ in 0..3 {
                self.step();
            }
        }
    }

    fn cut(&mut self) {
        self.pair.cut();
        self.pass(20, SECOND / 10);
    }

    /// The connection is lost until both give it up; then the home dials again.
    fn lose(&mut self) {
        self.parted = true;
        self.pair.cut();
        self.pass(60, SECOND);
        self.parted = false;
        self.post(0);
        self.pass(30, SECOND / 10);
        self.settle();
    }

    /// Another node sends these in the watching node's place.
    fn forge(&mut self, frames: &[Frame]) {
        self.settle();
        self.pair.forge(HOME, frames);
        self.drain(HOME);
    }

    fn downs_of(&self, watch: u64) -> Vec<Reason> {
        let of = |heard: &Heard| match heard {
            Heard::Down(other, reason) if *other == watch => Some(*reason),
            _ => None,
        };
        self.heard.iter().filter_map(of).collect()
    }

    fn violation(&self) -> Option<&str> {
        self.downs.iter().find_map(|(at, why)| match why {
            Down::Violation(text) if *at == HOME => Some(&**text),
            _ => None,
        })
    }
}

#[derive(Clone, Debug)]
enum Event {
    Watch(u64),
    /// Ends one of the watches, if it has not ended.
    Unwatch(usize),
    Post,
    End(u64),
    Step(usize),
    Cut,
    Lose,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => (1..=6_u64).prop_map(Event::Watch),
        3 => (0..20_usize).prop_map(Event::Unwatch),
        6 => Just(Event::Post),
        2 => (1..=6_u64).prop_map(Event::End),
        8 => (1..10_usize).prop_map(Event::Step),
        2 => Just(Event::Cut),
        1 => Just(Event::Lose),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Each watch that the watching node keeps gets one answer, and one that it ends gets none after that. An
    /// answer is not lost, doubled or early: a cut says nothing, and the node is lost only if its connection
    /// is. Nothing is kept at the end.
    #[test]
    fn each_watch_is_answered_once(events in prop::collection::vec(event(), 1..80)) {
        let mut world = World::new(5);
        let mut watches: Vec<u64> = Vec::new();
        let mut dropped: Vec<(u64, usize)> = Vec::new();
        let mut losses = 0;
        for event in events {
            match event {
                Event::Watch(number) => watches.push(world.watch(number)),
                Event::Unwatch(at) => {
                    if at < watches.len() {
                        let watch = watches.swap_remove(at);
                        world.drain(WATCHER);
                        dropped.push((watch, world.downs_of(watch).len()));
                        world.pair.machines[WATCHER].unwatch(world.pair.time(), NODES[HOME], watch);
                    }
                }
                Event::Post => {
                    world.post(1);
                }
                Event::End(number) => world.end(number),
                Event::Step(times) => {
                    for _ in 0..times {
                        world.step();
                    }
                }
                Event::Cut => world.cut(),
                Event::Lose => {
                    world.lose();
                    losses += 1;
                }
            }
        }
        (1..=6).for_each(|number| world.end(number));
        world.settle();
        if losses > 0 {
            // Longer than an attempt to connect may take.
            world.pass(60, SECOND);
            world.settle();
        }
        for watch in watches {
            let reasons = world.downs_of(watch);
            prop_assert_eq!(reasons.len(), 1, "watch {}: {:?}", watch, reasons);
            prop_assert!(reasons[0] != Reason::NodeLost || losses > 0);
        }
        for (watch, before) in dropped {
            prop_assert_eq!(world.downs_of(watch).len(), before, "after its end, watch {}", watch);
        }
        prop_assert_eq!(world.pair.machines[HOME].held_for(NODES[WATCHER]), 0);
    }

    /// The end of a process comes behind all that it has sent before, over any cuts.
    #[test]
    fn end_never_overtakes_a_message(
        steps in prop::collection::vec((0..4_usize, 0..6_usize, any::<bool>()), 1..12),
    ) {
        let mut world = World::new(1);
        let watch = world.watch(1);
        world.settle();
        let mut sent = 0;
        for (messages, steps, cut) in steps {
            for _ in 0..messages {
                sent += u64::from(world.post(sent + 1));
            }
            (0..steps).for_each(|_| { world.step(); });
            if cut {
                world.cut();
            }
        }
        world.end(1);
        world.settle();
        let mut expected: Vec<_> = (1..=sent).map(Heard::Message).collect();
        expected.push(Heard::Down(watch, Reason::Error));
        prop_assert_eq!(&world.heard, &expected);
    }
}

#[test]
fn link_exit_and_kill_arrive_in_order() {
    let mut world = World::new(1);
    let (own, now) = (ProcessId { bits: 9, ..process(40) }, world.pair.time());
    let payload = Payload::Value { schema: Bytes::from_static(b"s"), value: Bytes::from_static(b"v") };
    let said = Exit { payload, origin: Some(process(3)), name: "worker".to_owned(), ..exit("enough") };
    let watcher = &mut world.pair.machines[WATCHER];
    watcher.link(now, own, process(1)).unwrap();
    watcher.exit(now, process(1), own, said.clone()).unwrap();
    watcher.unlink(now, own, process(1)).unwrap();
    watcher.kill(now, process(1), own).unwrap();
    world.settle();
    let by = NODES[WATCHER];
    let contact = world.pair.machines[HOME].contact(by);
    let (source, target, to) = (own, process(1), process(1));
    assert_eq!(
        world.signals,
        [
            SignalHears::Link { by, source, target },
            SignalHears::Exit { by: contact, to, from: own, exit: Box::new(said.clone()) },
            SignalHears::Unlink { by, source, target },
            SignalHears::Kill { by, to, from: own },
        ]
    );
    assert!(world.pair.machines[HOME].held_for(by) >= said.bytes());
    world.pair.machines[HOME].exit_received(contact, said.bytes());
    assert_eq!(world.pair.machines[HOME].held_for(by), 0);
}

/// The exits sent to a process that does not receive them are in the account of the connection.
#[test]
fn exits_that_are_not_received_are_bounded() {
    let mut config = Config::new("signals");
    (config.value_max, config.held_max) = (64 << 10, 4 << 20);
    let mut world = World::with(1, &config);
    let mut sent = 0_u64;
    let said = exit(&"x".repeat(1000));
    for _ in 0..20_000 {
        let now = world.pair.time();
        match world.pair.machines[WATCHER].exit(now, process(1), process(9), said.clone()) {
            Ok(()) => sent += 1,
            Err(why) => assert_eq!(why, NotSignalled::Full),
        }
        world.settle();
    }
    let held = world.pair.machines[HOME].held_for(NODES[WATCHER]);
    assert!((1..4000).contains(&sent) && held <= 4 << 20, "{sent} exits, {held} bytes");
}

#[test]
fn watch_beyond_the_limit_is_refused_at_the_watching_node() {
    let mut world = World::new(1);
    let now = world.pair.time();
    for _ in 0..limits::WATCHES {
        world.pair.machines[WATCHER].watch(now, process(1)).unwrap();
        world.settle();
    }
    assert_eq!(world.pair.machines[WATCHER].watch(now, process(1)), Err(NotSignalled::Full));
    world.settle();
    assert_eq!(world.violation(), None);
    world.end(1);
    while world.heard.len() < limits::WATCHES {
        let before = world.heard.len();
        world.pass(10, SECOND / 10);
        world.settle();
        assert!(world.heard.len() > before, "{before} of the watches were answered: {:?}", world.downs);
    }
    assert_eq!(world.downs, []);
    assert!(world.pair.machines[WATCHER].watch(now, process(1)).is_ok());
}

/// A node that asks for processes that do not exist, and reads no answers, has no room for more of them.
#[test]
fn unread_ends_of_processes_are_bounded() {
    let mut config = Config::new("signals");
    (config.value_max, config.held_max) = (64 << 10, 2 << 20);
    let mut world = World::with(0, &config);
    let watch = |n: u64| Frame::Signal(Box::new(Signal::Watch { watch: 1000 + n, of: process(1) }));
    for n in 0..40_000 {
        world.pair.forge(HOME, &[watch(n)]);
        world.drain(HOME);
    }
    assert_eq!(world.violation(), Some("the peer requests answers and does not read them"));
}

/// A node without room answers a watch at once, and goes on with the others.
#[test]
fn watch_without_room_is_refused_by_the_process_node() {
    let mut config = Config::new("signals");
    (config.value_max, config.held_max) = (64 << 10, 2 << 20);
    let mut world = World::with(1, &config);
    let mut watch = || {
        let watch = world.watch(1);
        world.settle();
        watch
    };
    let watches: Vec<u64> = (0..5000).map(|_| watch()).collect();
    let all = |world: &mut World, count: usize| {
        while world.heard.len() < count {
            let before = world.heard.len();
            world.pass(10, SECOND / 10);
            world.settle();
            assert!(world.heard.len() > before, "{before} of {count} answers: {:?}", world.downs);
        }
    };
    let refused =
        |world: &World| world.heard.iter().filter(|heard| matches!(heard, Heard::Down(_, Reason::Refused))).count();
    assert!((100..4900).contains(&refused(&world)), "{}", refused(&world));
    assert_eq!(refused(&world), world.heard.len());
    world.end(1);
    all(&mut world, watches.len());
    assert!(watches.iter().all(|watch| world.downs_of(*watch).len() == 1));
    assert_eq!(world.downs, []);
}

#[test]
fn watch_at_a_node_that_has_left_is_refused() {
    let mut world = World::new(1);
    let watch = world.watch(1);
    world.settle();
    let now = world.pair.time();
    world.pair.machines[HOME].leave(now);
    world.settle();
    assert_eq!(world.downs_of(watch), [Reason::NodeLeft]);
    assert_eq!(world.pair.machines[WATCHER].watch(now, process(1)), Err(NotSignalled::Left));
    assert_eq!(world.pair.machines[WATCHER].kill(now, process(1), process(2)), Err(NotSignalled::Left));
}

#[test]
fn unwatch_releases_the_room_of_a_watch() {
    let mut world = World::new(1);
    let held = world.pair.machines[HOME].held_for(NODES[WATCHER]);
    let watches: Vec<u64> = (0..100).map(|_| world.watch(1)).collect();
    world.settle();
    assert!(world.pair.machines[HOME].held_for(NODES[WATCHER]) > held);
    for watch in watches {
        world.pair.machines[WATCHER].unwatch(world.pair.time(), NODES[HOME], watch);
    }
    world.settle();
    assert_eq!(world.pair.machines[HOME].held_for(NODES[WATCHER]), held);
    assert_eq!(world.heard, []);
}

#[test]
fn forged_signals_are_counted_or_end_the_connection() {
    let signal = |signal| Frame::Signal(Box::new(signal));
    let watch = |watch, of| signal(Signal::Watch { watch, of });

    let mut world = World::new(1);
    world.forge(&[watch(900, ProcessId { bits: 1, ..process(1) })]);
    assert_eq!((world.declined.pop(), world.violation()), (Some(Declined::Signal(1)), None));
    // Of no watch: it may have crossed its end.
    world.forge(&[signal(Signal::Unwatch(77)), signal(Signal::Down { watch: 77, exit: exit("") })]);
    assert_eq!((world.heard.len(), world.violation()), (0, None));
    world.forge(&[watch(901, process(1)), watch(901, process(1))]);
    assert_eq!(world.violation(), Some("a watch with number 901, which is in use"));

    let mut world = World::new(1);
    let many: Vec<_> = (0..=limits::WATCHES as u64).map(|n| watch(1000 + n, process(1))).collect();
    world.forge(&many);
    assert_eq!(world.violation(), Some("more than 65536 watches of processes"));
    assert_eq!(world.pair.machines[HOME].held_for(NODES[WATCHER]), 0);

    let mut world = World::new(1);
    let begun = Post::Message { to: MAILBOX, total: 9, first: Bytes::from_static(b"x") };
    world.forge(&[Frame::Post(begun), signal(Signal::Unwatch(1))]);
    assert!(world.violation().is_some_and(|why| why.contains("between two pieces")), "{:?}", world.downs);
}
