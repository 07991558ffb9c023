//! What a node keeps of nodes that have been there, and what they cost it.

use bytes::{Bytes, BytesMut};
use dunlin_heap::{Counting, Thread};
use dunlin_proto::id::{Incarnation, Life, NodeId, SocketId};
use dunlin_proto::identity::{Identity, StandIn, confirm};
use dunlin_proto::time::Time;
use dunlin_proto::wire::handshake::{Answer, Bound, Hello, Resume};
use dunlin_proto::wire::{Frame, VERSIONS, codec};
use dunlin_proto::{Action, Config, Machine};

#[global_allocator]
static HEAP: Counting<Thread> = Counting(Thread);

const ME: Life = Life { node: NodeId(u128::MAX), incarnation: Incarnation(1) };

fn config(keeps_id: bool) -> Config {
    let mut config = Config::new("tides");
    config.keeps_id = keeps_id;
    // One is left in peace while it dials in vain.
    config.backoff_min = config.backoff_max;
    config
}

/// A node to which others connect, which is seen from their sockets.
struct Server {
    machine: Machine,
    now: Time,
    sockets: u64,
}

impl Server {
    fn new(keeps_id: bool) -> Self {
        Self { machine: StandIn::machine(config(keeps_id), ME, 1), now: Time(0), sockets: 0 }
    }

    /// Does what the machine says, until it is quiet.
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

    /// This node joins.
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
        assert_eq!(self.machine.carried_by(NodeId(node)), Some(socket), "node {node} is not let in");
        socket
    }

    /// These join and leave in order, one after the other.
    fn come_and_go(&mut self, nodes: std::ops::Range<u128>) {
        for node in nodes {
            let socket = self.joins(node);
            self.hears(socket, &Frame::Goodbye);
            self.now.0 += 1000;
        }
    }

    /// Time passes until nothing is left to do: all who are there fall silent, are lost and are given up.
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
    assert!(ticks > 0, "it is looked after");
    // More than may be here at once: the next one is let in all the same.
    assert!(config(true).peers_max < 100_000);
    assert_eq!(visited_by_one(100_000), (handshake, ticks));
}

#[test]
fn a_newcomer_is_let_in_after_more_nodes_than_may_be_here_at_once() {
    for keeps_id in [true, false] {
        let mut few = config(keeps_id);
        few.peers_max = 20;
        let mut server = Server { machine: StandIn::machine(few, ME, 1), now: Time(0), sockets: 0 };
        server.come_and_go(1..1_000);
        server.joins(1_000);
        assert_eq!(server.machine.census().nodes, 1);
    }
}

/// What is there after each of three rounds is the same: no record, and as many bytes, but for how full the nodes of
/// trees are.
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
        // (The waits between two dials are not all the same.)
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
fn nodes_that_were_only_heard_of_leave_nothing() {
    assert_flat(Server::new(false), |server, at| {
        let socket = server.joins(u128::MAX - 1 - at);
        for node in at * 1000 + 1..=at * 1000 + 1000 {
            server.machine.introduced(NodeId(node), NodeId(u128::MAX - 1 - at), &["there".to_owned()]);
            server.settle();
        }
        server.hears(socket, &Frame::Goodbye);
    });
}
