//! A node sends any frames about messages for mailboxes and replies of calls, and bytes that are none, to a
//! machine whose driver uses both. `DUNLIN_CASES=10000000` sends more frames; `DUNLIN_SEED=7` begins
//! elsewhere.

#[allow(dead_code, reason = "only a part of what tests of two machines share is needed")]
#[path = "support/machines.rs"]
mod machines;
#[allow(dead_code, reason = "only a part of what tests of two machines share is needed")]
#[path = "support/pair.rs"]
mod pair;
#[path = "support/random.rs"]
mod random;

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Bytes, BytesMut};
use dunlin_proto::connection::State;
use dunlin_proto::id::{ChannelId, Contact, MailboxId, NodeId};
use dunlin_proto::wire::{End, Frame, FromHome, Head, Memory, Poison, Post, Terms, ToHome, codec, limits};
use dunlin_proto::{Action, Config, PostHears, Replied};
use dunlin_schema::{Coding, Kind, Schema};
use machines::THERE;
use pair::{HOME, Pair, SENDER};
use random::Random;

const PEER: NodeId = NodeId(1);
/// How many steps a connection lasts, if no frame ends it.
const STEPS: u64 = 100;

impl Random {
    /// Mostly few bytes, sometimes `most`, or `beyond` more.
    fn bytes(&mut self, most: usize, beyond: usize) -> Bytes {
        let length = match self.below(20) {
            0 => most + beyond,
            1 => most,
            2 => self.below(most as u64 + 1) as usize,
            _ => self.below(9) as usize,
        };
        vec![7; length].into()
    }

    fn mailbox(&mut self) -> MailboxId {
        let number = self.below(4);
        MailboxId { number, bits: if self.below(8) == 0 { self.below(3) } else { number + 10 } }
    }

    fn channel(&mut self) -> ChannelId {
        ChannelId(self.below(6).into())
    }

    fn end(&mut self) -> End {
        match self.below(5) {
            0 => End::Retired,
            1 => End::Lost,
            2 => End::Poisoned(Poison { strength: self.below(256) as u8, reason: "kelp".to_owned() }),
            _ => End::Gone,
        }
    }

    fn post(&mut self) -> Post {
        match self.below(12) {
            0..5 => {
                let message = self.bytes(limits::POST, 0);
                let first =
                    message.slice(..self.below(message.len() as u64 + 1).max(1).min(message.len() as u64) as usize);
                let total = if self.below(3) == 0 { message.len() } else { first.len() } as u64;
                Post::Message { to: self.mailbox(), total, first }
            }
            5..8 => Post::More(vec![7; 1 + self.below(9) as usize].into()),
            8 => Post::Ask(self.below(5)),
            9 => Post::Room { mailbox: self.below(5), posts: self.below(1 << 32) as u32, bytes: self.below(u64::MAX) },
            10 if self.below(2) == 0 => Post::Closed(self.below(5)),
            10 => Post::Mismatch { mailbox: self.below(5), schema: self.schema() },
            _ => Post::Use { to: self.mailbox(), schema: self.schema() },
        }
    }

    fn schema(&mut self) -> Bytes {
        let of = |kind| Schema::new(Coding::Cbor, vec![kind]).unwrap().encode().unwrap();
        match self.below(4) {
            0 => of(Kind::Bool),
            1 => self.bytes(300, 0),
            _ => of(Kind::Text),
        }
    }

    fn frame(&mut self) -> Frame {
        let channel = self.channel();
        let terms = Terms { window: 1, credits: 1, value_max: 9 };
        match self.below(100) {
            0..50 => Frame::Post(self.post()),
            50..65 => Frame::ToHome(channel, ToHome::Reply(self.bytes(limits::REPLY, 0))),
            65..75 => Frame::ToHome(channel, ToHome::ReplyComes),
            75..80 => Frame::ToHome(channel, ToHome::Ended(self.end())),
            80..85 => Frame::FromHome(channel, FromHome::Ended(self.end())),
            85..90 => {
                let (head, first) = (Head::Offer(self.below(3)), Bytes::from_static(b"krill"));
                Frame::ToHome(channel, ToHome::Value { head, total: first.len() as u64, first })
            }
            90..92 => Frame::Memory(Memory::Credit(self.below(u64::MAX))),
            92 => Frame::FromHome(channel, FromHome::Taken(self.below(3))),
            93 => Frame::FromHome(channel, FromHome::Attached(terms)),
            94 => Frame::ToHome(channel, ToHome::Take(self.below(3))),
            95 => Frame::More(channel, Bytes::from_static(b"x")),
            _ => Frame::Heartbeat,
        }
    }
}

struct World {
    pair: Pair,
    is_down: Option<String>,
    open: BTreeSet<u64>,
    /// The messages in each mailbox.
    arrived: BTreeMap<u64, Vec<(Contact, u64)>>,
    awaited: BTreeSet<ChannelId>,
    held: BTreeSet<ChannelId>,
}

impl World {
    /// The two have shaken hands.
    fn new() -> Self {
        let mut world = Self {
            pair: Pair::new(&Config::new("random")),
            is_down: None,
            open: BTreeSet::new(),
            arrived: BTreeMap::new(),
            awaited: BTreeSet::new(),
            held: BTreeSet::new(),
        };
        let nowhere = MailboxId { number: 9, bits: 9 };
        world.pair.machines[SENDER].post(world.pair.time(), THERE, nowhere, &Bytes::new(), Bytes::new()).unwrap();
        while [SENDER, HOME].map(|at| world.connects(at)).contains(&true) || world.pair.read() {}
        world
    }

    fn connects(&mut self, at: usize) -> bool {
        while let Some(action) = self.pair.machines[at].poll() {
            if let Action::Dial(dial, _) = action {
                self.pair.dial(at, dial);
            }
        }
        self.pair.write(at, 16 << 10)
    }

    /// What the peer sends; a byte of it may be another one.
    fn hears(&mut self, random: &mut Random) {
        let mut bytes = BytesMut::new();
        let piece = codec::encode(&random.frame(), &mut bytes);
        bytes.extend_from_slice(&piece.unwrap_or_default());
        if random.below(50) == 0 {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] = random.below(256) as u8;
        }
        self.pair.machines[HOME].received(self.pair.time(), self.pair.socket, bytes.freeze());
    }

    /// What the driver does.
    fn commands(&mut self, random: &mut Random) {
        let (now, channel, number) = (self.pair.time(), random.channel(), random.below(4));
        let home = &mut self.pair.machines[HOME];
        let is_free = !self.held.contains(&channel) && !self.awaited.contains(&channel) && !home.knows(channel);
        match random.below(12) {
            // (A node uses a number once.)
            0 if self.open.insert(number) => {
                let schema = Schema::new(Coding::Cbor, vec![Kind::Text]).unwrap().encode().unwrap();
                home.open_mailbox(MailboxId { number, bits: number + 10 }, schema, random.below(1000) as u32);
            }
            1 => home.close_mailbox(number),
            2..5 => {
                if let Some((from, bytes)) = self.arrived.get_mut(&number).and_then(Vec::pop) {
                    home.post_received(number, from, bytes);
                }
            }
            5 => {
                let message = random.bytes(limits::POST, 1);
                let _ = home.post(now, PEER, random.mailbox(), &Bytes::new(), message);
            }
            6..8 if is_free => {
                home.await_reply(channel, PEER);
                self.awaited.insert(channel);
            }
            8 if self.awaited.remove(&channel) => match random.below(2) {
                0 => home.forget_reply(channel),
                _ => home.refuse_reply(now, channel),
            },
            9 if home.hold_reply(now, channel, home.contact(PEER)) => {
                assert!(is_free, "{channel} is in use");
                self.held.insert(channel);
            }
            10 => {
                let was_held = self.held.remove(&channel);
                match random.below(3) {
                    0 => assert_eq!(home.reply(now, channel, Bytes::from_static(b"krill")), was_held),
                    1 => home.end_reply(now, channel),
                    _ => assert_eq!(home.stretch_reply(now, channel).is_some(), was_held),
                }
            }
            _ => {}
        }
    }

    /// Polls the machine, and checks what it reports.
    fn settle(&mut self) {
        let mut out = Vec::new();
        for _ in 0..1000 {
            let Some(action) = self.pair.machines[HOME].poll() else { break };
            match action {
                Action::Write(socket) => {
                    let _ = self.pair.machines[HOME].fill(self.pair.time(), socket, 1 << 20, &mut out);
                }
                Action::Replied(channel, replied) => {
                    assert!(self.awaited.remove(&channel), "{channel} is not awaited: {replied:?}");
                    if let Replied::Value(reply) = replied {
                        assert!(reply.len() <= limits::REPLY);
                    }
                }
                Action::Unwanted(channel) => assert!(self.held.remove(&channel), "{channel} is not held"),
                Action::Post(PostHears::Message(from, number, message)) => {
                    assert!(self.open.contains(&number), "mailbox {number} is not there");
                    self.arrived.entry(number).or_default().push((from, message.len() as u64));
                }
                Action::Connection(PEER, State::Down(why)) => self.is_down = Some(why.to_string()),
                _ => {}
            }
        }
        assert!(self.pair.machines[HOME].poll().is_none(), "the machine has no end of actions");
        for (number, messages) in &self.arrived {
            let bytes: u64 = messages.iter().map(|(_, bytes)| bytes + limits::VALUE).sum();
            assert!(bytes <= limits::POST_ROOM && messages.len() <= 512, "{bytes} bytes in mailbox {number}");
        }
    }

    /// The connection is over: nothing is left of it.
    fn end(mut self) -> String {
        if self.is_down.is_none() {
            self.pair.machines[HOME].broke_the_protocol(self.pair.time(), PEER, "the test ends this life");
            self.settle();
        }
        assert_eq!((self.awaited.len(), self.held.len()), (0, 0), "{:?} {:?}", self.awaited, self.held);
        for (number, messages) in std::mem::take(&mut self.arrived) {
            for (from, bytes) in messages {
                self.pair.machines[HOME].post_received(number, from, bytes);
            }
        }
        assert_eq!(self.pair.machines[HOME].held_for(PEER), 0);
        assert_eq!(self.pair.machines[HOME].census().replies, 0);
        self.is_down.expect("it is over")
    }
}

#[test]
fn any_posts_and_replies_end_in_a_reply_a_drop_or_a_violation() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let (cases, seed) = (number("DUNLIN_CASES").unwrap_or(20_000), number("DUNLIN_SEED").unwrap_or(1));
    let mut random = Random(seed);
    let (mut sent, mut ends) = (0, BTreeMap::<String, u64>::new());
    while sent < cases {
        // With this number as its seed, the test begins with this connection.
        let begin = random.0;
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut world = World::new();
            for _ in 0..STEPS {
                world.hears(&mut random);
                sent += 1;
                world.settle();
                if world.is_down.is_some() {
                    break;
                }
                world.commands(&mut random);
                world.settle();
            }
            world.end()
        }));
        match ended {
            // The words behind these have numbers.
            Ok(why) => {
                *ends.entry(why.split(' ').take(9).collect::<Vec<_>>().join(" ")).or_default() += 1;
            }
            Err(panic) => {
                println!("DUNLIN_SEED={begin} cargo test -p dunlin-proto --test posts_random -- --nocapture");
                std::panic::resume_unwind(panic);
            }
        }
    }
    println!("{sent} frames over {} connections, which ended by", ends.values().sum::<u64>());
    for (why, count) in &ends {
        println!("{count:>8} {why}");
    }
    assert!(ends.len() > 5, "few ways to end");
}
