//! How a node divides its room between the sources of its peers.

use bytes::{Bytes, BytesMut};
use dunlin_proto::id::{ChannelId, Incarnation, Life, NodeId, SocketId};
use dunlin_proto::identity::{Identity, StandIn, confirm};
use dunlin_proto::source::share;
use dunlin_proto::time::Time;
use dunlin_proto::wire::handshake::{Answer, Bound, Hello, Refusal, Resume};
use dunlin_proto::wire::{Declaration, End, Expected, Face, Frame, Read, Relay, Terms, VERSIONS, codec};
use dunlin_proto::{Action, Arrival, Config, Machine, ReceiverPlace, SenderPlace, Source};

const NOW: Time = Time(0);
const PEERS_MAX: usize = 256;

fn host(last: u8) -> Source {
    Source::V4([10, 0, 0, last])
}

/// A node, and the number of sockets it has accepted.
struct Node {
    machine: Machine,
    sockets: u64,
    /// How many relayed sockets were closed.
    refused: usize,
}

impl Node {
    fn new() -> Self {
        let mut config = Config::new("sources");
        config.peers_max = PEERS_MAX;
        let me = Life { node: NodeId(1), incarnation: Incarnation(1) };
        Self { machine: StandIn::machine(config, me, 1), sockets: 0, refused: 0 }
    }

    /// The answer of the machine to these bytes on this socket.
    fn arrives(&mut self, socket: SocketId, bytes: Bytes) -> BytesMut {
        self.machine.received(NOW, socket, bytes);
        let mut out = Vec::new();
        while let Some(action) = self.machine.poll() {
            self.refused += usize::from(matches!(action, Action::ClosedRelayed(..)));
        }
        while self.machine.fill(NOW, socket, 1 << 16, &mut out) > 0 {}
        BytesMut::from(&out.concat()[..])
    }

    /// A node connects from this source, for the `attempt`th time. Returns its socket, or the refusal.
    fn comes(&mut self, node: u128, source: Source, attempt: u64) -> Result<SocketId, Refusal> {
        let socket = SocketId(self.sockets);
        self.sockets += 1;
        self.machine.accepted_from(NOW, socket, source);
        self.shakes_hands(socket, node, attempt)
    }

    /// That node shakes hands on an accepted socket.
    fn shakes_hands(&mut self, socket: SocketId, node: u128, attempt: u64) -> Result<SocketId, Refusal> {
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
    // (Ids cost nothing: each new node has its own.)
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
    // By contrast, a connected node may reconnect, though its source has more than its share.
    assert!(node.comes(10, host(1), 2).is_ok());
    // A node that leaves makes room.
    node.leaves(first[5]);
    assert_eq!(node.machine.census().nodes, PEERS_MAX / 4 * 3 + 8 * share(PEERS_MAX) - 1);
    assert_eq!(flood(&mut node, host(1)).len(), 0, "others have connected meanwhile");
    assert_eq!(flood(&mut node, host(11)).len(), share(PEERS_MAX));
}

/// A host has more members than a node admits sockets without a handshake: each member relays a socket that
/// sends nothing. They are one source, whose oldest sockets make room; an earlier socket of another host
/// stays.
#[test]
fn members_that_relay_are_one_source() {
    const MEMBERS: u128 = 1_100;
    let mut config = Config::new("sources");
    config.peers_max = 2 * MEMBERS as usize;
    let me = Life { node: NodeId(1), incarnation: Incarnation(1) };
    let mut node = Node { machine: StandIn::machine(config, me, 1), sockets: 0, refused: 0 };
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
    assert_eq!(node.refused, MEMBERS as usize - 1_023, "the oldest sockets that the host relays make room");
    node.shakes_hands(honest, 2, 1).expect("the earlier socket keeps its place");
}

const HELD_MAX: u64 = 2 << 20;
const END: u64 = 8 << 10;

/// How a message gives an end: moved before or for the first time, as a sender or a receiver; or as the
/// request for a value.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Given {
    Sender,
    FirstSender,
    Receiver,
    FirstReceiver,
    Read,
}

fn terms() -> Terms {
    Terms { window: 1, credits: 0, value_max: 1000 }
}

impl Node {
    /// The peer gives an end. `false`: there is no room for it.
    fn is_given(&mut self, given: Given, number: u128, peer: u128, socket: SocketId) -> bool {
        let (channel, giver) = (ChannelId(number), self.machine.contact(NodeId(peer)));
        let made_up = NodeId(1_000_000 + number);
        let (trip, epoch, addresses) = (number as u64, 1, vec!["there".to_owned()]);
        match given {
            Given::Sender => {
                let (transfer, home, sponsor, sponsor_addresses) = (1, made_up, made_up, Vec::new());
                let place = SenderPlace { trip, transfer, epoch, home, addresses, sponsor, sponsor_addresses };
                self.machine.sender_arrives(NOW, channel, place, giver) != Arrival::Stale
            }
            Given::Receiver => {
                let place = ReceiverPlace { trip, claim: 1, epoch, home: made_up, addresses };
                self.machine.receiver_arrives(NOW, channel, place, giver) != Arrival::Stale
            }
            Given::FirstSender => self.machine.adopt_given(NOW, channel, giver, Some(terms())),
            Given::FirstReceiver => {
                let (face, expects, schema) = (Face::Receiver, Expected::Unknown, Bytes::new());
                let declaration = Declaration { face, shared: false, expects, schema };
                self.machine.open_home_given(NOW, channel, terms(), declaration, giver)
            }
            Given::Read => {
                let mut bytes = BytesMut::new();
                codec::encode(&Frame::Read(channel, Read { key: 1, value_max: 1000 }), &mut bytes);
                self.machine.received(NOW, socket, bytes.freeze());
                self.machine.has_half(channel)
            }
        }
    }

    /// The process with the end drops it.
    fn drops(&mut self, given: Given, number: u128) {
        let channel = ChannelId(number);
        match given {
            Given::Sender | Given::FirstSender | Given::Read => self.machine.end_proxy(NOW, channel, End::Gone),
            Given::Receiver => self.machine.drop_receiver(NOW, channel),
            Given::FirstReceiver => self.machine.end_home(NOW, channel, End::Gone),
        }
        while self.machine.poll().is_some() {}
    }
}

/// Ends in messages are charged to the source of their giver until they end here, whatever the giver, or a
/// node with another id, does; the other side learns which ends have no room. Afterwards nothing is charged.
#[test]
fn ends_in_messages_count_for_the_source_of_their_giver() {
    for given in [Given::Sender, Given::FirstSender, Given::Receiver, Given::FirstReceiver, Given::Read] {
        let mut config = Config::new("sources");
        (config.value_max, config.held_max) = (1000, HELD_MAX);
        let me = Life { node: NodeId(1), incarnation: Incarnation(1) };
        let mut node = Node { machine: StandIn::machine(config, me, 1), sockets: 0, refused: 0 };
        let socket = node.comes(10, host(1), 1).unwrap();
        let kept = (0..1_000).take_while(|number| node.is_given(given, *number, 10, socket)).count() as u128;
        assert!(kept > 50 && kept as u64 * END < HELD_MAX, "{given:?}: {kept}");
        let mut out = Vec::new();
        node.machine.fill(NOW, socket, 1 << 20, &mut out);
        assert!(!out.is_empty(), "{given:?}: the other side is notified");
        // By contrast, an end from another host has room.
        let other = node.comes(20, host(2), 1).unwrap();
        assert!(node.is_given(given, 1 << 64, 20, other), "{given:?}");
        // When its giver has gone, an end stays if its channel does.
        let stays = matches!(given, Given::Sender | Given::Receiver | Given::FirstReceiver);
        node.leaves(socket);
        let socket = node.comes(11, host(1), 1).unwrap();
        let more = (kept..2 * kept).take_while(|number| node.is_given(given, *number, 11, socket)).count() as u128;
        assert!(if stays { more == 0 } else { more > kept / 2 }, "{given:?}: {kept}, and {more} from the same host");
        // A dropped end makes room.
        (0..4).for_each(|number| node.drops(given, number));
        if stays {
            assert!(node.is_given(given, 3 * kept, 11, socket), "{given:?}");
        }
        (0..4 * kept).chain([1 << 64]).for_each(|number| node.drops(given, number));
        node.leaves(socket);
        node.leaves(other);
        assert_eq!(node.machine.held_for_all(), 0, "{given:?}: nothing is left");
    }
}

/// By contrast, a node behind a trusted load balancer counts as its own source, so such nodes can fill all
/// places.
#[test]
fn sockets_that_are_sources_of_their_own_fill_the_table() {
    let mut node = Node::new();
    for n in 0..PEERS_MAX as u64 {
        let source = Source::Socket(SocketId(n));
        assert!(node.comes(10 + u128::from(n), source, 1).is_ok(), "{n}");
    }
    assert_eq!(node.comes(5, Source::Socket(SocketId(5_000)), 1), Err(Refusal::Busy));
}
