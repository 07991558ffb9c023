//! Messages for mailboxes arrive once, in the order in which they were sent, within the limits of the
//! receiving node: two machines in memory.

#[path = "support/machines.rs"]
mod machines;
#[path = "support/pair.rs"]
mod pair;

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use dunlin_proto::connection::State;
use dunlin_proto::id::{ChannelId, Contact, MailboxId, NodeId};
use dunlin_proto::wire::{Face, Frame, Post, Terms, limits};
use dunlin_proto::{Action, Config, Declined, Down, HomeHears, NotPosted, PostHears};
use dunlin_schema::{Coding, Kind, Schema};
use machines::{THERE, declared};
use pair::{HOME, Pair, SENDER};
use proptest::prelude::*;

fn mailbox(number: u64) -> MailboxId {
    MailboxId { number, bits: number * 1_000_003 }
}

fn message(number: u32, length: usize) -> Bytes {
    let mut bytes = number.to_be_bytes().to_vec();
    bytes.resize(length.max(4), 7);
    bytes.into()
}

fn number(message: &[u8]) -> u32 {
    u32::from_be_bytes(message[..4].try_into().unwrap())
}

fn schema(kind: Kind) -> Bytes {
    Schema::new(Coding::Cbor, vec![kind]).unwrap().encode().unwrap()
}

struct World {
    pair: Pair,
    /// The messages in the mailboxes of the home.
    arrived: BTreeMap<u64, VecDeque<(Contact, Bytes)>>,
    room: Vec<u64>,
    closed: Vec<u64>,
    mismatches: Vec<(u64, Bytes)>,
    declined: Vec<Declined>,
    downs: Vec<(usize, Down)>,
    values: usize,
}

impl World {
    fn new() -> Self {
        Self {
            pair: Pair::new(&Config::new("posts")),
            arrived: BTreeMap::new(),
            room: Vec::new(),
            closed: Vec::new(),
            mismatches: Vec::new(),
            declined: Vec::new(),
            downs: Vec::new(),
            values: 0,
        }
    }

    fn with_mailboxes(count: u64) -> Self {
        let mut world = Self::new();
        (1..=count)
            .for_each(|number| world.pair.machines[HOME].open_mailbox(mailbox(number), schema(Kind::Text), u32::MAX));
        world
    }

    fn post(&mut self, to: u64, message: Bytes) -> Result<(), NotPosted> {
        self.pair.machines[SENDER].post(self.pair.time(), THERE, mailbox(to), &schema(Kind::Text), message)
    }

    fn settle(&mut self) {
        while self.step() {}
    }

    fn step(&mut self) -> bool {
        let mut busy = false;
        for at in [SENDER, HOME] {
            while let Some(action) = self.pair.machines[at].poll() {
                busy = true;
                self.act(at, action);
            }
            busy |= self.pair.write(at, 16 << 10);
        }
        busy |= self.pair.read();
        busy
    }

    fn act(&mut self, at: usize, action: Action) {
        let now = self.pair.time();
        match action {
            Action::Dial(dial, _) => self.pair.dial(at, dial),
            Action::Post(PostHears::Message(from, number, message)) => {
                assert_eq!(at, HOME);
                self.arrived.entry(number).or_default().push_back((from, message));
            }
            Action::Post(PostHears::Room(node, number)) => {
                assert_eq!((at, node), (SENDER, THERE));
                self.room.push(number);
            }
            Action::Post(PostHears::Closed(node, number)) => {
                assert_eq!((at, node), (SENDER, THERE));
                self.closed.push(number);
            }
            Action::Post(PostHears::Mismatch(node, number, schema)) => {
                assert_eq!((at, node), (SENDER, THERE));
                self.mismatches.push((number, schema));
            }
            Action::Declined(_, what) => self.declined.push(what),
            Action::Connection(_, State::Down(why)) => self.downs.push((at, why)),
            Action::Home(channel, from, HomeHears::Offered(ticket, _)) => {
                self.pair.machines[at].taken(now, channel, from.node, ticket);
                self.values += 1;
            }
            _ => {}
        }
    }

    /// Receives the next message of this mailbox.
    fn receive(&mut self, from: u64) -> Option<Bytes> {
        let (contact, message) = self.arrived.get_mut(&from)?.pop_front()?;
        self.pair.machines[HOME].post_received(from, contact, message.len() as u64);
        Some(message)
    }

    fn cut(&mut self) {
        self.pair.cut();
        for _ in 0..20 {
            self.pair.wait(100_000);
            for _ in 0..3 {
                self.step();
            }
        }
    }

    /// Another node sends these frames in the sender's place.
    fn forge(&mut self, frames: &[Frame]) {
        self.settle();
        self.pair.forge(HOME, frames);
        while let Some(action) = self.pair.machines[HOME].poll() {
            self.act(HOME, action);
        }
    }

    fn held(&self) -> u64 {
        self.pair.machines[HOME].held_for(NodeId(1))
    }
}

#[derive(Clone, Debug)]
enum Event {
    Post(u64, usize),
    Receive(u64),
    Step(usize),
    Cut,
}

const MAILBOXES: u64 = 3;

fn event() -> impl Strategy<Value = Event> {
    let size = prop_oneof![8 => 4..200_usize, 3 => 200..20_000_usize, 1 => Just(limits::POST)];
    prop_oneof![
        12 => (1..=MAILBOXES, size).prop_map(|(to, size)| Event::Post(to, size)),
        6 => (1..=MAILBOXES).prop_map(Event::Receive),
        6 => (1..30_usize).prop_map(Event::Step),
        1 => Just(Event::Cut),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_message_arrives_once_and_in_order_and_nothing_waits_for_ever(
        events in prop::collection::vec(event(), 1..200),
    ) {
        let mut world = World::with_mailboxes(MAILBOXES);
        let (mut sent, mut waiting) = (0, VecDeque::new());
        let mut received: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        let mut expected: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for event in events {
            match event {
                Event::Post(to, size) => {
                    match world.post(to, message(sent, size)) {
                        Ok(()) => expected.entry(to).or_default().push(sent),
                        Err(NotPosted::Full) => waiting.push_back((to, sent, size)),
                        Err(why) => panic!("{why}"),
                    }
                    sent += 1;
                }
                Event::Receive(from) => {
                    let got = world.receive(from).map(|message| number(&message));
                    received.entry(from).or_default().extend(got);
                }
                Event::Step(count) => for _ in 0..count {
                    world.step();
                },
                Event::Cut => world.cut(),
            }
        }
        // Those that did not fit are sent when the machine reports room.
        loop {
            world.settle();
            for from in 1..=MAILBOXES {
                while let Some(message) = world.receive(from) {
                    received.entry(from).or_default().push(number(&message));
                }
            }
            world.settle();
            if waiting.is_empty() {
                break;
            }
            let next = waiting.iter().position(|(to, ..)| world.room.contains(to));
            prop_assert!(next.is_some(), "{:?} wait for ever", waiting);
            let (to, number, size) = waiting[next.unwrap()];
            if world.post(to, message(number, size)).is_ok() {
                waiting.remove(next.unwrap());
                expected.entry(to).or_default().push(number);
            } else {
                world.room.retain(|other| *other != to);
            }
        }
        for from in 1..=MAILBOXES {
            prop_assert_eq!(received.remove(&from).unwrap_or_default(), expected.remove(&from).unwrap_or_default());
        }
        prop_assert_eq!(world.held(), 0);
        prop_assert_eq!(world.pair.machines[SENDER].census().unsaid, 0);
        prop_assert_eq!(&world.downs, &[]);
    }
}

#[test]
fn sixteen_messages_may_be_sent_before_the_home_answers() {
    let mut world = World::with_mailboxes(1);
    let sent = (0..20).take_while(|n| world.post(1, message(*n, 8)) == Ok(())).count();
    assert_eq!(sent, limits::POSTS_FIRST as usize);
    world.settle();
    // More were sent than a quarter of the first room: the mailbox has given all.
    assert_eq!(world.room, [1]);
    let sent = (0..1000).take_while(|n| world.post(1, message(*n, 8)) == Ok(())).count();
    assert!(sent > 300, "{sent}");
}

#[test]
fn longest_message_fits_into_an_empty_mailbox() {
    let mut world = World::with_mailboxes(1);
    let (bytes, bytes_max) = (limits::POST as u64 + 1, limits::POST as u64);
    assert_eq!(world.post(1, message(0, limits::POST + 1)), Err(NotPosted::TooLarge { bytes, bytes_max }));
    for n in 0..5 {
        assert_eq!(world.post(1, message(n, limits::POST)), Ok(()));
        assert_eq!(world.post(1, message(n, 8)), Err(NotPosted::Full));
        world.settle();
        assert_eq!(world.receive(1).map(|message| message.len()), Some(limits::POST));
        world.settle();
    }
}

/// A mailbox that never receives keeps little, and does not stop other mailboxes or channels.
#[test]
fn mailbox_that_never_receives_stops_no_other() {
    let mut world = World::with_mailboxes(2);
    let mut sent = 0;
    for n in 0..100_000 {
        sent += u32::from(world.post(1, message(n, 100)).is_ok());
        world.settle();
    }
    assert!(world.held() <= limits::POST_ROOM, "{} bytes of {sent} messages", world.held());
    let channel = ChannelId(1);
    let terms = Terms { window: 8, credits: 0, value_max: 1 << 20 };
    world.pair.machines[HOME].open_home(channel, terms, declared(Face::Receiver), false).unwrap();
    world.pair.machines[SENDER].attach(world.pair.time(), channel, THERE, declared(Face::Sender)).unwrap();
    for n in 0..1000 {
        assert_eq!(world.post(2, message(n, 10_000)), Ok(()));
        world.pair.machines[SENDER].offer(world.pair.time(), channel, n.into(), message(n, 10_000));
        world.settle();
        assert_eq!(world.receive(2).map(|message| number(&message)), Some(n));
    }
    assert_eq!(world.values, 1000);
}

#[test]
fn closed_mailbox_is_reported_once() {
    let mut world = World::with_mailboxes(1);
    assert_eq!(world.post(1, message(1, 8)), Ok(()));
    world.settle();
    world.pair.machines[HOME].close_mailbox(1);
    world.settle();
    assert_eq!(world.closed, [1]);
    // The message that had arrived is still charged until it is dropped.
    assert!(world.held() > 0);
    assert!(world.receive(1).is_some());
    assert_eq!(world.held(), 0);
    // One that was never there.
    assert_eq!(world.post(9, message(1, 8)), Ok(()));
    assert_eq!(world.post(9, message(2, 60_000)), Ok(()));
    world.settle();
    assert_eq!((world.closed.as_slice(), world.held()), (&[1, 9][..], 0));
    assert_eq!(world.arrived.values().map(VecDeque::len).sum::<usize>(), 0);
    assert_eq!(world.downs, []);
}

#[test]
fn message_without_the_random_bits_is_dropped_and_reported() {
    let mut world = World::with_mailboxes(1);
    let forged = MailboxId { bits: 5, ..mailbox(1) };
    world.pair.machines[SENDER]
        .post(world.pair.time(), THERE, forged, &schema(Kind::Text), message(1, 20_000))
        .unwrap();
    world.settle();
    assert_eq!((world.declined.as_slice(), world.held()), (&[Declined::Post(1)][..], 0));
    assert!(world.arrived.is_empty());
    // It has taken nothing of the room that this node has with the right bits, and is not the first message.
    assert_eq!(world.closed, []);
    let sent = (0..20).take_while(|n| world.post(1, message(*n, 8)) == Ok(())).count();
    assert_eq!(sent, limits::POSTS_FIRST as usize);
    world.settle();
    assert_eq!(world.arrived[&1].len(), sent);
    assert_eq!(world.downs, []);
}

/// A node that has sent messages with wrong bits sends its schema with the right ones.
#[test]
fn schema_is_compared_after_a_message_without_the_random_bits() {
    let mut world = World::with_mailboxes(1);
    let (now, unfit) = (world.pair.time(), schema(Kind::Bool));
    for bits in [5, mailbox(1).bits] {
        let to = MailboxId { bits, ..mailbox(1) };
        world.pair.machines[SENDER].post(now, THERE, to, &unfit, message(1, 100)).unwrap();
        world.settle();
    }
    assert_eq!(world.mismatches, [(1, schema(Kind::Text))]);
    assert!(world.arrived.is_empty());
}

/// Messages that a mailbox cannot read are dropped, and take no room; the sending node gets the schema.
#[test]
fn schemas_are_compared_before_the_first_message() {
    let mut world = World::with_mailboxes(1);
    let (now, number) = (world.pair.time(), schema(Kind::Bool));
    for n in 0..100 {
        let posted = world.pair.machines[SENDER].post(now, THERE, mailbox(1), &number, message(n, 1000));
        assert_eq!(posted, Ok(()));
        world.settle();
    }
    assert_eq!(world.mismatches, [(1, schema(Kind::Text))]);
    assert_eq!((world.arrived.len(), world.held()), (0, 0));
    assert_eq!(world.downs, []);
}

#[test]
fn messages_that_cross_a_goodbye_are_lost() {
    for writes in [false, true] {
        let mut world = World::with_mailboxes(1);
        world.post(1, message(1, 8)).unwrap();
        world.settle();
        world.post(1, message(2, 8)).unwrap();
        assert_eq!(writes, writes && world.pair.write(SENDER, 16 << 10));
        let mut mark = world.pair.machines[SENDER].mark();
        let mut lost = Vec::new();
        world.pair.machines[HOME].leave(world.pair.time());
        assert!(world.pair.write(HOME, 16 << 10));
        assert!(world.pair.read());
        assert!(world.pair.machines[SENDER].is_past(&mut mark, &mut lost));
        assert_eq!(lost, [THERE]);
    }
}

#[test]
fn node_leaves_once_its_messages_have_arrived() {
    let mut world = World::with_mailboxes(1);
    for n in 0..10 {
        world.post(1, message(n, 5_000)).unwrap();
    }
    let mut mark = world.pair.machines[SENDER].mark();
    let mut lost = Vec::new();
    assert!(!world.pair.machines[SENDER].is_past(&mut mark, &mut lost));
    world.pair.machines[SENDER].leave(world.pair.time());
    assert_eq!(world.post(1, message(11, 8)), Err(NotPosted::NotHere));
    world.settle();
    assert!(world.pair.machines[SENDER].is_past(&mut mark, &mut lost));
    assert_eq!(world.arrived[&1].len(), 10);
    assert_eq!(lost, []);
}

#[test]
fn nothing_of_a_life_counts_in_the_next() {
    let mut world = World::with_mailboxes(1);
    let fill = |world: &mut World| (0..2000).take_while(|n| world.post(1, message(*n, 100)) == Ok(())).count();
    let first = fill(&mut world);
    world.settle();
    let more = fill(&mut world);
    world.settle();
    assert_eq!(world.arrived[&1].len(), first + more);
    world.pair.machines[HOME].broke_the_protocol(world.pair.time(), NodeId(1), "the test ends this life");
    world.settle();
    assert_eq!(world.held(), 0);
    // The messages of the old life are received, and change nothing.
    while world.receive(1).is_some() {}
    world.pair.wait(10_000_000_000);
    world.settle();
    assert_eq!(fill(&mut world), first);
    world.settle();
    assert_eq!(world.arrived[&1].len(), first);
}

#[test]
fn impossible_frames_end_the_connection() {
    let begun = |to| Frame::Post(Post::Message { to, total: 9, first: Bytes::from_static(b"x") });
    let whole = |to, length| Frame::Post(Post::Message { to, total: length, first: vec![7; length as usize].into() });
    let more = |length: usize| Frame::Post(Post::More(vec![7; length].into()));
    let many = |count, length| vec![whole(mailbox(1), length); count];
    for (frames, why) in [
        (vec![begun(mailbox(1)), begun(mailbox(1))], "another message for a mailbox between two pieces of one"),
        (vec![more(1)], "a piece that belongs to no value"),
        (vec![begun(mailbox(1)), more(9)], "a piece that belongs to no value"),
        // To a mailbox that is not there: nothing is kept, and the length counts.
        (vec![begun(mailbox(9)), more(9)], "a piece that belongs to no value"),
        (
            many(2, limits::POST as u64),
            "a message for mailbox 1 that costs 65536 bytes, with room for 0 in 15 messages",
        ),
        (many(600, 1), "a message for mailbox 1 that costs 129 bytes, with room for 4 in 4 messages"),
    ] {
        let mut world = World::with_mailboxes(1);
        // (The two have to be connected.)
        world.post(9, message(0, 8)).unwrap();
        world.forge(&frames);
        let found: Vec<String> = world.downs.iter().map(|(_, down)| down.to_string()).collect();
        assert_eq!(found, [format!("the node violated the protocol: {why}")]);
        assert_eq!(world.held(), 0);
    }
}
