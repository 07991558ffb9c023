//! The worked example of `docs/wire.md` is what two machines really write, byte for byte.

use std::time::Duration;

use bytes::Bytes;
use dunlin_proto::id::{ChannelId, Incarnation, Life, NodeId, SocketId};
use dunlin_proto::identity::StandIn;
use dunlin_proto::time::Time;
use dunlin_proto::wire::{Declaration, End, Expected, Face, Terms};
use dunlin_proto::{Action, Config, HomeHears, Machine};
use dunlin_schema::Schema;

const DOCUMENT: &str = include_str!("../../../docs/wire.md");
const CHANNEL: ChannelId = ChannelId(0xc0ffee);
const NAMES: [char; 2] = ['a', 'b'];

/// One write of a machine: the machine, whether it arrived, the bytes.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    by: char,
    arrived: bool,
    bytes: Vec<u8>,
}

/// The lines between ```` ```wire ```` and ```` ``` ````: `a 01 02 | what it is`, or `a! ...` for what is
/// lost on its way. An empty line ends a write.
fn documented() -> Vec<Said> {
    let example = DOCUMENT.split("```wire\n").nth(1).and_then(|rest| rest.split("```").next());
    let mut said: Vec<Said> = Vec::new();
    for written in example.expect("there is an example").split("\n\n") {
        let mut whole: Option<Said> = None;
        for line in written.lines() {
            let (code, _) = line.split_once('|').expect("each line has a description");
            let mut words = code.split_whitespace();
            let who = words.next().expect("each line names its writer");
            let whole = whole.get_or_insert_with(|| Said {
                by: who.chars().next().expect("it is not empty"),
                arrived: !who.ends_with('!'),
                bytes: Vec::new(),
            });
            whole.bytes.extend(words.map(|hex| u8::from_str_radix(hex, 16).expect("bytes are in hex")));
        }
        said.extend(whole);
    }
    said
}

/// `a` dials `b`; each write of either is recorded.
struct Pair {
    nodes: [Machine; 2],
    now: Time,
    socket: Option<SocketId>,
    sockets: u64,
    said: Vec<Said>,
}

impl Pair {
    fn new() -> Self {
        let node = |n, addresses: &[&str]| {
            let mut config = Config::new("tides");
            config.addresses = addresses.iter().map(|address| (*address).to_owned()).collect();
            config.bound = config.addresses.clone();
            config.chunk = 5;
            config.chunk_alone = config.chunk;
            StandIn::machine(config, Life { node: NodeId(n), incarnation: Incarnation(7) }, 1)
        };
        let nodes = [node(0xa, &[]), node(0xb, &["reef:4115"])];
        Self { nodes, now: Time(0), socket: None, sockets: 0, said: Vec::new() }
    }

    /// Writes the frames that `me` has now, about `room` bytes.
    fn write(&mut self, me: usize, room: usize, arrived: bool) -> Vec<u8> {
        let Some(socket) = self.socket else { return Vec::new() };
        let mut out = Vec::new();
        self.nodes[me].fill(self.now, socket, room, &mut out);
        let bytes = out.concat();
        if !bytes.is_empty() {
            self.said.push(Said { by: NAMES[me], arrived, bytes: bytes.clone() });
        }
        bytes
    }

    /// Carries out the machines' actions until there are none. `b` takes the values it is offered.
    fn settle(&mut self) {
        let mut busy = true;
        while std::mem::take(&mut busy) {
            for me in 0..2 {
                while let Some(action) = self.nodes[me].poll() {
                    busy = true;
                    self.act(me, action);
                }
            }
        }
    }

    fn act(&mut self, me: usize, action: Action) {
        let now = self.now;
        match action {
            Action::Dial(dial, _) => {
                self.sockets += 1;
                let socket = SocketId(self.sockets);
                self.socket = Some(socket);
                self.nodes[me].dialled(now, dial, socket);
                self.nodes[1 - me].accepted(now, socket);
            }
            Action::Write(socket) | Action::Close(socket, _) if Some(socket) == self.socket => {
                let bytes = self.write(me, usize::MAX, true);
                self.nodes[1 - me].received(now, socket, Bytes::from(bytes));
                if let Action::Close(..) = action {
                    self.nodes.iter_mut().for_each(|node| node.closed(now, socket));
                    self.socket = None;
                }
            }
            Action::Home(channel, from, HomeHears::Offered(ticket, _)) => {
                self.nodes[me].taken(now, channel, from.node, ticket);
            }
            _ => {}
        }
    }

    fn wait(&mut self, time: Duration) {
        self.now = self.now + time;
        self.nodes.iter_mut().for_each(|node| node.tick(self.now));
        self.settle();
    }

    /// `a` writes all it has to send, and none of it arrives: the socket is lost.
    fn lose(&mut self) {
        while !self.write(0, usize::MAX, false).is_empty() {}
        let socket = self.socket.take().expect("there is a socket");
        self.nodes.iter_mut().for_each(|node| node.closed(self.now, socket));
        self.settle();
    }
}

fn example() -> Vec<Said> {
    let mut pair = Pair::new();
    let schema = Schema::of_bytes().encode().unwrap();
    let face = |face| Declaration { face, shared: false, expects: Expected::Unknown, schema: schema.clone() };
    let terms = Terms { window: 8, credits: 0, value_max: 1 << 20 };
    pair.nodes[1].open_home(CHANNEL, terms, face(Face::Receiver), false).unwrap();
    pair.nodes[0].learn(NodeId(0xb), &["reef:4115".to_owned()]);
    pair.nodes[0].attach(pair.now, CHANNEL, NodeId(0xb), face(Face::Sender)).unwrap();
    pair.nodes[0].offer(pair.now, CHANNEL, 1, Bytes::from_static(b"krill"));
    pair.settle();
    pair.wait(Duration::from_millis(20));

    // The head of a value arrives, the rest does not.
    pair.nodes[0].offer(pair.now, CHANNEL, 2, Bytes::from_static(b"plankton"));
    let head = pair.write(0, 1, true);
    pair.nodes[1].received(pair.now, pair.socket.unwrap(), Bytes::from(head));
    pair.lose();

    pair.nodes[0].end_proxy(pair.now, CHANNEL, End::Gone);
    pair.settle();
    pair.wait(Duration::from_millis(20));
    // A second, and up to a sixteenth more: timers of many connections fire together.
    pair.wait(Duration::from_micros(1_062_500));
    pair.nodes[0].leave(pair.now);
    pair.settle();
    pair.said
}

#[test]
fn the_documented_exchange_is_the_real_one() {
    let real = example();
    let documented = documented();
    for (at, (real, documented)) in real.iter().zip(&documented).enumerate() {
        assert_eq!(real, documented, "{at}: left is written, right is documented");
    }
    assert_eq!(real.len(), documented.len(), "the numbers of writes: real, and documented");
}
