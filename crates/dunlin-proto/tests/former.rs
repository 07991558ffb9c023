//! What a node keeps of nodes that have been there, and what they cost it.

use bytes::{Bytes, BytesMut};
use dunlin_proto::id::{Incarnation, Life, NodeId, SocketId};
use dunlin_proto::time::Time;
use dunlin_proto::wire::handshake::{Bound, Hello, Resume};
use dunlin_proto::wire::{Frame, VERSIONS, codec};
use dunlin_proto::{Action, Config, Machine};

const ME: Life = Life { node: NodeId(u128::MAX), incarnation: Incarnation(1) };

/// A node to which others connect, which is seen from their sockets.
struct Server {
    machine: Machine,
    now: Time,
    sockets: u64,
    open: Vec<SocketId>,
}

impl Server {
    fn new() -> Self {
        let mut config = Config::new("tides");
        config.peers_max = usize::MAX;
        Self { machine: Machine::new(config, ME, 1), now: Time(0), sockets: 0, open: Vec::new() }
    }

    /// Does what the machine says, until it is quiet.
    fn settle(&mut self) {
        while let Some(action) = self.machine.poll() {
            if let Action::Close(socket, _) = action {
                let mut out = Vec::new();
                self.machine.fill(self.now, socket, 1 << 16, &mut out);
                self.machine.closed(self.now, socket);
                self.open.retain(|open| *open != socket);
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
        self.open.push(socket);
        self.machine.accepted(self.now, socket);
        let hello = Hello {
            versions: VERSIONS,
            application: "tides".into(),
            me: Life { node: NodeId(node), incarnation: Incarnation(1) },
            wanted: ME.node,
            met: Incarnation(0),
            attempt: 1,
            resume: Resume { run: 1, seen: 0 },
            addresses: vec![format!("tcp://host{node}:7400")],
            bound: Bound::default(),
            identity: Bytes::new(),
        };
        self.machine.received(self.now, socket, hello.encode());
        let mut out = Vec::new();
        self.machine.fill(self.now, socket, 1 << 16, &mut out);
        assert!(!out.is_empty(), "node {node} gets no answer");
        self.hears(socket, &Frame::Confirm);
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

    fn visited(&self) -> u64 {
        self.machine.census().visited
    }
}

/// The records that are visited while a node joins, and while 3 s pass for it.
fn visited_by_one(former: u128) -> (u64, u64) {
    let mut server = Server::new();
    server.come_and_go(1..former + 1);
    let before = server.visited();
    let socket = server.joins(former + 1);
    let joined = server.visited() - before;
    let until = Time(server.now.0 + 3_000_000);
    while let Some(at) = server.machine.next_tick().filter(|at| *at <= until) {
        server.now = server.now.max(at);
        server.machine.tick(server.now);
        server.settle();
        server.machine.fill(server.now, socket, 1 << 16, &mut Vec::new());
    }
    (joined, server.visited() - before - joined)
}

#[test]
fn handshakes_and_ticks_visit_as_many_records_beside_former_nodes_as_beside_none() {
    let (handshake, ticks) = visited_by_one(0);
    assert!(ticks > 0, "it is looked after");
    assert_eq!(visited_by_one(100_000), (handshake, ticks));
}
