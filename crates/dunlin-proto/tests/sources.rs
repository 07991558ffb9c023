//! How the table of connections is shared between the sources of those who come.

use bytes::{Bytes, BytesMut};
use dunlin_proto::id::{Incarnation, Life, NodeId, SocketId};
use dunlin_proto::identity::{Identity, StandIn, confirm};
use dunlin_proto::source::share;
use dunlin_proto::time::Time;
use dunlin_proto::wire::handshake::{Answer, Bound, Hello, Refusal, Resume};
use dunlin_proto::wire::{Frame, Relay, VERSIONS, codec};
use dunlin_proto::{Action, Config, Machine, Source};

const NOW: Time = Time(0);
const PEERS_MAX: usize = 256;

fn host(last: u8) -> Source {
    Source::V4([10, 0, 0, last])
}

/// A node, and how many sockets have come to it.
struct Node {
    machine: Machine,
    sockets: u64,
}

impl Node {
    fn new() -> Self {
        let mut config = Config::new("sources");
        config.peers_max = PEERS_MAX;
        let me = Life { node: NodeId(1), incarnation: Incarnation(1) };
        Self { machine: StandIn::machine(config, me, 1), sockets: 0 }
    }

    /// What the machine writes to this socket.
    fn arrives(&mut self, socket: SocketId, bytes: Bytes) -> BytesMut {
        self.machine.received(NOW, socket, bytes);
        let mut out = Vec::new();
        while self.machine.poll().is_some() {}
        while self.machine.fill(NOW, socket, 1 << 16, &mut out) > 0 {}
        BytesMut::from(&out.concat()[..])
    }

    /// A node comes from there, for the `attempt`th time. Its socket, or why it is refused.
    fn comes(&mut self, node: u128, source: Source, attempt: u64) -> Result<SocketId, Refusal> {
        let socket = SocketId(self.sockets);
        self.sockets += 1;
        self.machine.accepted_from(NOW, socket, source);
        let hello = Hello {
            versions: VERSIONS,
            application: "sources".into(),
            me: Life { node: NodeId(node), incarnation: Incarnation(1) },
            wanted: NodeId(1),
            met: Incarnation(0),
            attempt,
            resume: Resume { run: 1, seen: 0, ..Resume::default() },
            addresses: Vec::new(),
            bound: Bound::default(),
            key: StandIn::of(NodeId(node)).key(),
            nonce: 1,
            signature: Bytes::new(),
        };
        let said = StandIn::says(&hello);
        match Answer::decode(&mut self.arrives(socket, said.clone())) {
            Ok(Some(answer @ Answer::Welcome(_))) => {
                let mut first = BytesMut::new();
                codec::encode(&confirm(&StandIn::of(NodeId(node)), &said, &answer), &mut first);
                self.arrives(socket, first.freeze());
                assert!(self.machine.carried_by(NodeId(node)).is_some(), "it has been welcomed");
                Ok(socket)
            }
            Ok(Some(Answer::Refused(why))) => {
                self.machine.closed(NOW, socket);
                Err(why)
            }
            other => panic!("{other:?}"),
        }
    }

    fn leaves(&mut self, socket: SocketId) {
        let mut goodbye = BytesMut::new();
        codec::encode(&Frame::Goodbye, &mut goodbye);
        self.arrives(socket, goodbye.freeze());
        self.machine.closed(NOW, socket);
        while let Some(action) = self.machine.poll() {
            drop::<Action>(action);
        }
    }
}

#[test]
fn one_source_leaves_connections_to_others() {
    let mut node = Node::new();
    // (Ids cost nothing: each that comes has one of its own.)
    let mut ids = 10..;
    let mut flood = |node: &mut Node, source| {
        let mut sockets = Vec::new();
        loop {
            match node.comes(ids.next().expect("there are enough"), source, 1) {
                Ok(socket) => sockets.push(socket),
                Err(why) => {
                    assert_eq!(why, Refusal::Busy);
                    return sockets;
                }
            }
        }
    };
    let first = flood(&mut node, host(1));
    assert_eq!(first.len(), PEERS_MAX / 4 * 3, "no share binds while there is room");
    for other in 2..10 {
        assert_eq!(flood(&mut node, host(other)).len(), share(PEERS_MAX), "host {other}");
    }
    // The twin: one that is connected comes back, though its source has more than its share.
    assert!(node.comes(10, host(1), 2).is_ok());
    // Whoever leaves makes room.
    node.leaves(first[5]);
    assert_eq!(node.machine.census().nodes, PEERS_MAX / 4 * 3 + 8 * share(PEERS_MAX) - 1);
    assert_eq!(flood(&mut node, host(1)).len(), 0, "others have come meanwhile");
    assert_eq!(flood(&mut node, host(11)).len(), share(PEERS_MAX));
}

/// A host with more members than sockets may be without a handshake: each relays one that says nothing. They
/// are one source, whose oldest makes room; another host's socket, which was there before all of them, stays.
#[test]
fn members_that_relay_are_one_source() {
    const MEMBERS: u128 = 1_100;
    let mut config = Config::new("sources");
    config.peers_max = 2 * MEMBERS as usize;
    let me = Life { node: NodeId(1), incarnation: Incarnation(1) };
    let mut node = Node { machine: StandIn::machine(config, me, 1), sockets: 0 };
    let honest = SocketId(1 << 40);
    node.machine.accepted_from(NOW, honest, host(2));
    for member in 0..MEMBERS {
        let id = 10 + member;
        let socket = node.comes(id, host(1), 1).expect("there is room");
        let (stream, made_up) = (2 + u64::from(id > 1), NodeId(1_000_000 + member));
        let mut says = BytesMut::new();
        codec::encode(&Frame::Relay(Relay::From { stream, node: made_up }), &mut says);
        node.arrives(socket, says.freeze());
    }
    let refused = Answer::Refused(Refusal::Busy);
    let mut out = Vec::new();
    node.machine.fill(NOW, honest, 1 << 16, &mut out);
    let said = Answer::decode(&mut BytesMut::from(&out.concat()[..])).expect("it is one");
    assert_ne!(said, Some(refused), "it makes room for what one host relays");
}

/// The twin: whoever comes through a load balancer that is trusted counts alone, so all places are theirs.
#[test]
fn sockets_that_are_sources_of_their_own_fill_the_table() {
    let mut node = Node::new();
    for n in 0..PEERS_MAX as u64 {
        let source = Source::Socket(SocketId(n));
        assert!(node.comes(10 + u128::from(n), source, 1).is_ok(), "{n}");
    }
    assert_eq!(node.comes(5, Source::Socket(SocketId(5_000)), 1), Err(Refusal::Busy));
}
