//! What a node keeps of nodes that are gone, and what they cost it.

use bytes::{Bytes, BytesMut};
use dunlin_heap::{Counting, Thread};
use dunlin_proto::id::{ChannelId, Incarnation, Life, NodeId, SocketId};
use dunlin_proto::identity::{Identity, StandIn, confirm};
use dunlin_proto::time::Time;
use dunlin_proto::wire::handshake::{Answer, Bound, Hello, Resume};
use dunlin_proto::wire::{Declaration, Expected, Face, Frame, Terms, ToHome, Travel, VERSIONS, codec};
use dunlin_proto::{Action, Arrival, Config, Machine, ReceiverPlace, SenderPlace};

#[global_allocator]
static HEAP: Counting<Thread> = Counting(Thread);

const ME: Life = Life { node: NodeId(u128::MAX), incarnation: Incarnation(1) };

fn config(keeps_id: bool) -> Config {
    let mut config = Config::new("tides");
    config.keeps_id = keeps_id;
    // A node must not be disturbed while it dials without success.
    config.backoff_min = config.backoff_max;
    config
}

/// A node that others connect to, as seen from their sockets.
struct Server {
    machine: Machine,
    now: Time,
    sockets: u64,
}

impl Server {
    fn new(keeps_id: bool) -> Self {
        Self { machine: StandIn::machine(config(keeps_id), ME, 1), now: Time(0), sockets: 0 }
    }

    /// Carries out the machine's actions, until there are none.
    fn settle(&mut self) {
        while let Some(action) = self.machine.poll() {
            match action {
                Action::Close(socket, _) => {
                    let mut out = Vec::new();
                    self.machine.fill(self.now, socket, 1 << 16, &mut out);
                    self.machine.closed(self.now, socket);
                }
                Action::Dial(dial, _) => self.machine.dial_failed(self.now, dial, "nobody answers".to_owned()),
                _ => {}
            }
        }
    }

    fn hears(&mut self, socket: SocketId, frame: &Frame) {
        let mut bytes = BytesMut::new();
        codec::encode(frame, &mut bytes);
        self.machine.received(self.now, socket, bytes.freeze());
        self.settle();
    }

    /// Connects this node.
    fn joins(&mut self, node: u128) -> SocketId {
        let socket = SocketId(self.sockets);
        self.sockets += 1;
        self.machine.accepted(self.now, socket);
        let hello = Hello {
            versions: VERSIONS,
            application: "tides".into(),
            me: Life { node: NodeId(node), incarnation: Incarnation(1) },
            wanted: ME.node,
            met: Incarnation(0),
            attempt: 1,
            resume: Resume { run: 1, seen: 0, ..Resume::default() },
            addresses: vec![format!("tcp://host{node}:7400")],
            bound: Bound::default(),
            key: StandIn::of(NodeId(node)).key(),
            nonce: 1,
            signature: Bytes::new(),
        };
        self.machine.received(self.now, socket, StandIn::says(&hello));
        let mut out = Vec::new();
        self.machine.fill(self.now, socket, 1 << 16, &mut out);
        let answer = Answer::decode(&mut BytesMut::from(&out.concat()[..])).expect("it is one");
        let answer = answer.unwrap_or_else(|| panic!("node {node} gets no answer"));
        self.hears(socket, &confirm(&StandIn::of(NodeId(node)), &StandIn::says(&hello), &answer));
        assert_eq!(self.machine.carried_by(NodeId(node)), Some(socket), "node {node} is not admitted");
        socket
    }

    /// Connects these nodes one after the other; each leaves in good order.
    fn come_and_go(&mut self, nodes: std::ops::Range<u128>) {
        for node in nodes {
            let socket = self.joins(node);
            self.hears(socket, &Frame::Goodbye);
            self.now.0 += 1000;
        }
    }

    /// Time passes until nothing is left to do: all nodes fall silent, are lost and are given up.
    fn pass(&mut self, socket: SocketId) {
        while let Some(at) = self.machine.next_tick() {
            self.now = self.now.max(at);
            self.machine.tick(self.now);
            self.settle();
            self.machine.fill(self.now, socket, 1 << 16, &mut Vec::new());
        }
    }

    fn visited(&self) -> u64 {
        self.machine.census().visited
    }
}

/// The records that are visited while a node joins, and while it falls silent, is lost and is given up.
fn visited_by_one(former: u128) -> (u64, u64) {
    let mut server = Server::new(true);
    server.come_and_go(1..former + 1);
    let before = server.visited();
    let socket = server.joins(former + 1);
    let joined = server.visited() - before;
    server.pass(socket);
    (joined, server.visited() - before - joined)
}

#[test]
fn handshakes_and_ticks_visit_as_many_records_beside_former_nodes_as_beside_none() {
    let (handshake, ticks) = visited_by_one(0);
    assert!(ticks > 0, "ticks visit the node");
    // More nodes than may be connected at once: the next one is admitted all the same.
    assert!(config(true).peers_max < 100_000);
    assert_eq!(visited_by_one(100_000), (handshake, ticks));
}

#[test]
fn node_is_admitted_after_more_than_peers_max_former_nodes() {
    for keeps_id in [true, false] {
        let mut few = config(keeps_id);
        few.peers_max = 20;
        let mut server = Server { machine: StandIn::machine(few, ME, 1), now: Time(0), sockets: 0 };
        server.come_and_go(1..1_000);
        server.joins(1_000);
        assert_eq!(server.machine.census().nodes, 1);
    }
}

/// Checks that each of three rounds leaves the same: no record, and as many bytes, except for how full tree
/// nodes are.
fn assert_flat(mut server: Server, mut round: impl FnMut(&mut Server, u128)) {
    let mut after = [(0, 0, 0); 3];
    for (at, after) in after.iter_mut().enumerate() {
        let visited = server.visited();
        round(&mut server, at as u128);
        let census = server.machine.census();
        *after = (census.nodes, census.visited - visited, HEAP.0.held());
    }
    let [(0, visited, live), others @ ..] = after else { panic!("{after:?}") };
    for (nodes, more_visited, more_live) in others {
        // (The pauses between two dials vary.)
        assert!(nodes == 0 && more_visited.abs_diff(visited) <= visited / 20, "{after:?}");
        assert!((more_live - live).abs() < 4096, "{after:?}");
    }
}

#[test]
fn nodes_that_have_left_leave_nothing() {
    for keeps_id in [true, false] {
        assert_flat(Server::new(keeps_id), |server, at| server.come_and_go(at * 5000 + 1..at * 5000 + 5001));
    }
}

#[test]
fn nodes_that_have_died_leave_nothing() {
    assert_flat(Server::new(false), |server, at| {
        for node in at * 300 + 1..=at * 300 + 300 {
            let socket = server.joins(node);
            server.pass(socket);
        }
    });
}

#[test]
fn nodes_known_only_by_mention_leave_nothing() {
    assert_flat(Server::new(false), |server, at| {
        let socket = server.joins(u128::MAX - 1 - at);
        for node in at * 1000 + 1..=at * 1000 + 1000 {
            server.machine.introduced(NodeId(node), NodeId(u128::MAX - 1 - at), &["there".to_owned()]);
            server.settle();
        }
        server.hears(socket, &Frame::Goodbye);
    });
}

fn terms() -> Terms {
    Terms { window: 1, credits: 0, value_max: 1000 }
}

/// The halves and records that are visited when a node ends, beside this many halves that belong to another
/// node.
fn visited_beside_halves(halves: u128) -> u64 {
    let mut server = Server::new(false);
    let other = NodeId(7);
    let _stays = server.joins(other.0);
    let declaration =
        || Declaration { face: Face::Receiver, shared: false, expects: Expected::Unknown, schema: Bytes::new() };
    for channel in (0..halves).map(ChannelId) {
        server.machine.open_home_to(channel, terms(), declaration(), other);
        assert!(server.machine.adopt(ChannelId(channel.0 | 1 << 64), other, Some(terms())));
        let place = ReceiverPlace { trip: 1, claim: 1, epoch: 0, home: other, addresses: Vec::new() };
        let giver = server.machine.contact(other);
        let arrival = server.machine.receiver_arrives(server.now, ChannelId(channel.0 | 2 << 64), place, giver);
        assert_eq!(arrival, Arrival::Guest);
        server.machine.await_reply(ChannelId(channel.0 | 3 << 64), other);
        assert!(server.machine.hold_reply(server.now, ChannelId(channel.0 | 4 << 64), giver));
    }
    // The first end of a node lists them, once.
    server.come_and_go(100..101);
    let before = server.visited();
    server.come_and_go(101..102);
    server.visited() - before
}

#[test]
fn the_end_of_a_node_visits_no_halves_of_others() {
    assert_eq!(visited_beside_halves(10_000), visited_beside_halves(0));
}

/// A member names many nodes that do not exist as the homes of the senders that it gives. This node looks for
/// a limited number of them, and the end of each visits only its own halves.
#[test]
fn nodes_invented_by_a_member_are_bounded_in_number_and_cost() {
    let mut server = Server::new(false);
    let giver = NodeId(7);
    let socket = server.joins(giver.0);
    let gives = |server: &mut Server, number: u128| {
        let (channel, sponsor) = (ChannelId(number), NodeId(2_000_000 + number));
        let (trip, transfer, epoch, home) = (number as u64, 1, 1, NodeId(1_000_000 + number));
        let (addresses, sponsor_addresses) = (vec!["there".to_owned()], Vec::new());
        let place = SenderPlace { trip, transfer, epoch, home, addresses, sponsor, sponsor_addresses };
        let giver = server.machine.contact(giver);
        assert_eq!(server.machine.sender_arrives(server.now, channel, place, giver), Arrival::Guest);
        server.machine.use_sender(server.now, channel);
        server.settle();
    };
    (0..5_000).for_each(|number| gives(&mut server, number));
    assert_eq!(server.machine.census().nodes, 1 + 1024);
    assert_eq!(server.machine.census().proxies, 1024, "the others are lost");
    let before = server.visited();
    while server.machine.census().nodes > 1 {
        let at = server.machine.next_tick().expect("they are given up");
        server.now = server.now.max(at);
        server.machine.tick(server.now);
        server.hears(socket, &Frame::Heartbeat);
        server.machine.fill(server.now, socket, 1 << 16, &mut Vec::new());
    }
    // (Each is dialled once a second, and another node is asked to help.)
    let each = (server.visited() - before) / 1024;
    assert!(each < 200, "{each} records and halves were visited for each of them");
    assert_eq!(server.machine.census().proxies, 0);
    // By contrast, it looks for others afterwards.
    gives(&mut server, 6_000);
    assert_eq!(server.machine.census().nodes, 2);
}

/// A member that has given a sender asks repeatedly where its channel's home is, which this node does not
/// know yet, or not for that epoch; and it reports repeatedly to a receiver that is not home yet that its
/// sender is in use. The node remembers one such wait of each node, and those of few nodes.
#[test]
fn waits_for_reports_of_ends_are_bounded() {
    let mut server = Server::new(false);
    let (giver, channel, received) = (NodeId(7), ChannelId(1), ChannelId(2));
    let socket = server.joins(giver.0);
    let contact = server.machine.contact(giver);
    let place = SenderPlace {
        trip: 1,
        transfer: 1,
        epoch: 1,
        home: giver,
        addresses: Vec::new(),
        sponsor: giver,
        sponsor_addresses: Vec::new(),
    };
    assert_eq!(server.machine.sender_arrives(server.now, channel, place, contact), Arrival::Guest);
    server.machine.use_sender(server.now, channel);
    let place = ReceiverPlace { trip: 2, claim: 1, epoch: 0, home: giver, addresses: Vec::new() };
    assert_eq!(server.machine.receiver_arrives(server.now, received, place, contact), Arrival::Guest);
    server.machine.use_receiver(server.now, received);
    let asks = |server: &mut Server, socket: SocketId, epoch: u64| {
        server.hears(socket, &Frame::Travel(channel, Travel::Where(epoch)));
        server.hears(socket, &Frame::ToHome(received, ToHome::Take(epoch)));
        let mut out = Vec::new();
        server.machine.fill(server.now, socket, 1 << 16, &mut out);
        out.iter().map(|piece| piece.len()).sum::<usize>()
    };
    asks(&mut server, socket, 2);
    let before = HEAP.0.held();
    for epoch in 3..100_000 {
        asks(&mut server, socket, epoch);
    }
    let grown = HEAP.0.held() - before;
    assert!(grown < 4096, "{grown} bytes");
    // Beyond that limit, each node is notified that it would wait without result.
    let others: Vec<usize> = (100..140)
        .map(|node| {
            let socket = server.joins(node);
            asks(&mut server, socket, 2)
        })
        .collect();
    let answered = others.iter().filter(|bytes| **bytes > 20).count();
    assert_eq!(answered, 40 - 15, "{others:?}");
}
