//! Where a node dials, which nodes may name addresses, and how often it dials them.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use dunlin_proto::id::{ChannelId, DialId, Incarnation, Life, NodeId, SocketId};
use dunlin_proto::identity::{Identity, StandIn, confirm};
use dunlin_proto::time::Time;
use dunlin_proto::wire::handshake::{Answer, Bound, Hello, Resume};
use dunlin_proto::wire::{Declaration, Expected, Face, Frame, Names, NoDial, Relay, VERSIONS, codec};
use dunlin_proto::{Action, Config, Machine, Source};

const ME: NodeId = NodeId(20);
const WANTED: NodeId = NodeId(30);
const SECOND: Duration = Duration::from_secs(1);

fn life(node: NodeId) -> Life {
    Life { node, incarnation: Incarnation(1) }
}

fn named(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// A machine, and its dials.
struct Node {
    machine: Machine,
    now: Time,
    sockets: u64,
    dials: Vec<(DialId, String)>,
    peers: BTreeMap<SocketId, NodeId>,
    /// The nodes that were asked for a dial-back.
    asked: Vec<NodeId>,
}

impl Node {
    fn new(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::new("tides");
        config.keeps_id = false;
        change(&mut config);
        let machine = StandIn::machine(config, life(ME), 1);
        Self { machine, now: Time(0), sockets: 0, dials: Vec::new(), peers: BTreeMap::new(), asked: Vec::new() }
    }

    fn settle(&mut self) {
        while let Some(action) = self.machine.poll() {
            if let Action::Dial(dial, address) = action {
                self.dials.push((dial, address));
            }
        }
    }

    /// A peer with these addresses connects. `near`: from this host.
    fn joined_by(&mut self, peer: NodeId, near: bool, addresses: &[&str]) -> SocketId {
        self.joined_by_bound(peer, near, addresses, Bound::default())
    }

    fn joined_by_bound(&mut self, peer: NodeId, near: bool, addresses: &[&str], bound: Bound) -> SocketId {
        self.joins(peer, Source::Unknown, near, addresses, bound)
    }

    fn joined_from(&mut self, peer: NodeId, source: Source) -> SocketId {
        self.joins(peer, source, false, &[], Bound::default())
    }

    fn joins(&mut self, peer: NodeId, source: Source, near: bool, addresses: &[&str], bound: Bound) -> SocketId {
        let socket = SocketId(self.sockets);
        self.sockets += 1;
        self.machine.accepted_from(self.now, socket, source);
        if near {
            self.machine.is_near(socket);
        }
        let hello = Hello {
            versions: VERSIONS,
            application: "tides".into(),
            me: life(peer),
            wanted: ME,
            met: Incarnation(1),
            attempt: self.sockets,
            resume: Resume { run: 1, ..Resume::default() },
            addresses: named(addresses),
            bound,
            key: StandIn::of(peer).key(),
            nonce: 1,
            signature: Bytes::new(),
        };
        self.machine.received(self.now, socket, StandIn::says(&hello));
        let mut said = Vec::new();
        self.machine.fill(self.now, socket, 1 << 16, &mut said);
        let answer = Answer::decode(&mut BytesMut::from(&said.concat()[..])).unwrap().unwrap();
        self.hears(socket, &confirm(&StandIn::of(peer), &StandIn::says(&hello), &answer));
        assert_eq!(self.machine.carried_by(peer), Some(socket));
        self.peers.insert(socket, peer);
        socket
    }

    fn hears(&mut self, socket: SocketId, frame: &Frame) {
        let mut bytes = BytesMut::new();
        codec::encode(frame, &mut bytes);
        self.machine.received(self.now, socket, bytes.freeze());
        self.settle();
    }

    /// The relay frames that the machine sends on this socket.
    fn says(&mut self, socket: SocketId) -> Vec<Relay> {
        let mut out = Vec::new();
        self.machine.fill(self.now, socket, 1 << 16, &mut out);
        let mut bytes = Bytes::from(out.concat());
        let mut said = Vec::new();
        while let Ok(codec::Next::Frame { head, body }) = codec::next(&bytes) {
            let whole = bytes.split_to(head + body);
            if let Ok(Frame::Relay(relay)) = codec::decode(whole[0], whole.slice(head..)) {
                said.push(relay);
            }
        }
        said
    }

    /// Fails every dial at once, until then. Returns the dials, and their times.
    fn fails_until(&mut self, until: Time, lives: &[SocketId]) -> Vec<(Time, String)> {
        let mut made = Vec::new();
        loop {
            self.settle();
            for (dial, address) in std::mem::take(&mut self.dials) {
                made.push((self.now, address));
                self.machine.dial_failed(self.now, dial, "no answer".to_owned());
                self.settle();
            }
            let Some(at) = self.machine.next_tick().filter(|at| *at <= until) else { break };
            self.now = self.now.max(at);
            for socket in lives {
                // The peer is not silent.
                self.hears(*socket, &Frame::Heartbeat);
                let asks = self.says(*socket).iter().any(|said| matches!(said, Relay::AskDial { .. }));
                let peer = self.peers.get(socket).copied();
                self.asked.extend(peer.filter(|_| asks));
            }
            self.machine.tick(self.now);
        }
        self.now = until;
        made
    }
}

/// (Once, a node dialled them twenty-five times in the grace period.)
#[test]
fn addresses_from_peers_are_dialled_once_and_then_once_a_second() {
    let mut node = Node::new(|config| config.helpers_max = 0);
    let peer = node.joined_by(NodeId(10), false, &[]);
    node.machine.introduced(WANTED, NodeId(10), &named(&["a", "b"]));
    node.machine.connect(node.now, WANTED);
    let made = node.fails_until(Time(0) + 14 * SECOND, &[peer]);
    for address in ["a", "b"] {
        let times: Vec<Time> = made.iter().filter(|(_, dialled)| dialled == address).map(|(at, _)| *at).collect();
        assert!((10..=15).contains(&times.len()), "{times:?}");
        assert!(times.windows(2).all(|pair| pair[1] >= pair[0] + SECOND), "{times:?}");
    }
    // By contrast, addresses from the program are dialled with the usual short pauses.
    let mut node = Node::new(|config| config.helpers_max = 0);
    node.machine.learn(WANTED, &named(&["a"]));
    node.machine.connect(node.now, WANTED);
    let made = node.fails_until(Time(0) + SECOND, &[]);
    assert!(made.len() >= 5, "{made:?}");
}

#[test]
fn node_dials_at_most_64_reported_addresses_at_once_and_8_of_a_node() {
    let mut node = Node::new(|config| config.helpers_max = 0);
    node.joined_by(NodeId(10), false, &[]);
    let many: Vec<String> = (0..100).map(|n| format!("host{n}")).collect();
    node.machine.introduced(WANTED, NodeId(10), &many);
    assert_eq!(node.machine.addresses_of(WANTED).len(), 8);
    for n in 0..200 {
        let other = NodeId(1000 + n);
        node.machine.introduced(other, NodeId(10), &named(&["there"]));
        node.machine.connect(node.now, other);
        node.settle();
    }
    assert_eq!(node.dials.len(), 48, "of one source");
    for host in 2..40 {
        let by = NodeId(100 + u128::from(host));
        node.joined_from(by, Source::V4([10, 0, 0, host]));
        for n in 0..4 {
            let other = NodeId(2000 + 4 * u128::from(host) + n);
            node.machine.introduced(other, by, &named(&["there"]));
            node.machine.connect(node.now, other);
            node.settle();
        }
    }
    assert_eq!(node.dials.len(), 64, "one of each of sixteen other sources");
    // A dial for this node itself, at an address of its own, does not wait for those.
    node.machine.learn(WANTED, &named(&["here"]));
    node.machine.connect(node.now, WANTED);
    node.settle();
    assert_eq!(node.dials.last().map(|(_, address)| &**address), Some("here"));
    // When some have failed, others are dialled.
    for (dial, _) in std::mem::take(&mut node.dials) {
        node.machine.dial_failed(node.now, dial, "no answer".to_owned());
    }
    node.now = node.now + SECOND;
    node.machine.tick(node.now);
    node.settle();
    assert!((60..=65).contains(&node.dials.len()), "{}", node.dials.len());
}

/// Nodes of one source have sent eight addresses each at which no node listens, and keep sending more. An
/// address from another source is dialled all the same, and that source is asked to help.
#[test]
fn addresses_and_introducers_of_one_source_leave_room_to_those_of_others() {
    let mut node = Node::new(|config| (config.addresses, config.grace) = (named(&["me"]), 60 * SECOND));
    let (honest, liars) = (NodeId(10), [11, 12, 13, 14, 15].map(NodeId));
    let mut sockets = vec![node.joined_from(honest, Source::V4([10, 0, 0, 1]))];
    let lies: Vec<String> = (0..8).map(|port| format!("junk:{port}")).collect();
    for liar in liars {
        sockets.push(node.joined_from(liar, Source::V4([10, 0, 0, 2])));
        node.machine.introduced(WANTED, liar, &lies);
    }
    node.machine.introduced(WANTED, honest, &named(&["true"]));
    for liar in liars {
        let more: Vec<String> = (0..8).map(|port| format!("more junk of {}:{port}", liar.0)).collect();
        node.machine.introduced(WANTED, liar, &more);
    }
    node.machine.connect(node.now, WANTED);
    assert!(node.machine.addresses_of(WANTED).iter().any(|address| address == "true"));
    let made = node.fails_until(Time(0) + 40 * SECOND, &sockets);
    let first = made.iter().position(|(_, address)| address == "true");
    assert!(first.is_some_and(|at| at < 2), "sources have turns: {made:?}");
    let first = node.asked.iter().position(|asked| *asked == honest);
    assert!(first.is_some_and(|at| at < 2), "{:?} were asked", node.asked);
    // By contrast, all eight may be of one source if there is no other.
    let mut node = Node::new(|_| {});
    node.joined_from(liars[0], Source::V4([10, 0, 0, 2]));
    node.machine.introduced(WANTED, liars[0], &lies);
    assert_eq!(node.machine.addresses_of(WANTED).len(), 8);
}

/// An address that was dialled without success is not dialled again before a later one that has not been
/// dialled at all.
#[test]
fn new_address_is_dialled_before_failed_addresses() {
    let mut node = Node::new(|config| (config.helpers_max, config.grace) = (0, 60 * SECOND));
    let (liar, honest) = (NodeId(11), NodeId(10));
    let sockets = [1, 2].map(|host| node.joined_from(NodeId(9 + u128::from(host)), Source::V4([10, 0, 0, host])));
    let lies: Vec<String> = (0..8).map(|port| format!("junk:{port}")).collect();
    node.machine.introduced(WANTED, liar, &lies);
    node.machine.connect(node.now, WANTED);
    let made = node.fails_until(Time(0) + 10 * SECOND, &sockets);
    assert!(made.len() > 12, "each has been dialled: {made:?}");
    node.machine.introduced(WANTED, honest, &named(&["true"]));
    let made = node.fails_until(node.now + 3 * SECOND, &sockets);
    assert_eq!(made.first().map(|(_, address)| &**address), Some("true"), "{made:?}");
}

/// A peer names many nodes that do not exist as holders of ends. Each address is dialled once a second, and
/// all of them together at a steady pace; addresses from another source are dialled beside them.
#[test]
fn failing_addresses_of_one_source_are_dialled_at_a_pace() {
    let in_vain = |peers: &[(NodeId, u8)]| {
        let mut node = Node::new(|config| config.helpers_max = 0);
        let mut sockets = Vec::new();
        for (peer, host) in peers {
            sockets.push(node.joined_from(*peer, Source::V4([10, 0, 0, *host])));
            for n in 0..500 {
                let made_up = NodeId(peer.0 * 1000 + n);
                let addresses: Vec<String> = (0..8).map(|port| format!("{}-{n}:{port}", peer.0)).collect();
                node.machine.introduced(made_up, *peer, &addresses);
                node.machine.connect(node.now, made_up);
                node.settle();
            }
        }
        node.fails_until(Time(0) + 10 * SECOND, &sockets)
    };
    let made = in_vain(&[(NodeId(11), 1), (NodeId(12), 1)]);
    // (Once, there were forty thousand.)
    assert!((700..800).contains(&made.len()), "{}", made.len());
    let made = in_vain(&[(NodeId(11), 1), (NodeId(12), 2)]);
    let of = |peer: &str| made.iter().filter(|(_, address)| address.starts_with(peer)).count();
    let (one, other) = (of("11-"), of("12-"));
    assert!((650..800).contains(&one) && (650..800).contains(&other), "{one}, {other}");
}

/// By contrast, nodes that exist are reached as fast as ever.
#[test]
fn dials_of_nodes_that_connect_do_not_count_as_failed() {
    let mut node = Node::new(|config| config.helpers_max = 0);
    let peer = NodeId(11);
    node.joined_from(peer, Source::V4([10, 0, 0, 1]));
    for n in 0..2_000 {
        let other = NodeId(20_000 + n);
        node.machine.introduced(other, peer, &named(&["there"]));
        node.machine.connect(node.now, other);
        node.settle();
        let (dial, _) = node.dials.pop().unwrap_or_else(|| panic!("node {n} is not dialled at once"));
        // The other node has dialled, too, and is connected.
        node.joined_from(other, Source::V4([10, 0, 0, 2]));
        node.machine.dial_failed(node.now, dial, "it is late".to_owned());
    }
}

/// A peer on this host names the addresses at which it listens, and each is dialled once, to learn whether it
/// is there.
#[test]
fn no_more_than_64_dials_at_once_ask_whether_peers_of_this_host_listen() {
    let all = Bound { which: u8::MAX, refused_ms: 0 };
    let join = |node: &mut Node, peer: u128, near: bool| {
        let addresses: Vec<String> = (0..8).map(|n| format!("peer{peer}:{n}")).collect();
        let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
        node.joined_by_bound(NodeId(1000 + peer), near, &addresses, all);
    };
    let mut node = Node::new(|config| config.helpers_max = 0);
    join(&mut node, 0, false);
    assert_eq!(node.dials.len(), 0, "an address on another host is not probed");
    (1..8).for_each(|peer| join(&mut node, peer, true));
    assert_eq!(node.dials.len(), 56);
    (8..20).for_each(|peer| join(&mut node, peer, true));
    assert_eq!(node.dials.len(), 64);
    // Answered dials make room for others.
    for (dial, _) in std::mem::take(&mut node.dials) {
        node.machine.dial_failed(node.now, dial, "no answer".to_owned());
    }
    join(&mut node, 20, true);
    assert_eq!(node.dials.len(), 8);
}

#[test]
fn addresses_of_this_host_are_accepted_only_from_this_host() {
    for (near, dial_local, may) in [(false, false, false), (true, false, true), (false, true, true)] {
        let mut node = Node::new(|config| config.dial_local = dial_local);
        let peer = node.joined_by(NodeId(10), near, &["127.0.0.1:1"]);
        node.machine.introduced(WANTED, NodeId(10), &named(&["127.0.0.1:22"]));
        node.machine.connect(node.now, WANTED);
        node.settle();
        let (dial, _) = node.dials.pop().expect("it dials");
        assert_eq!(node.machine.may_dial_here(dial), may, "from a peer, near: {near}, setting: {dial_local}");
        // What a node reports about itself counts as well.
        node.machine.closed(node.now, peer);
        node.settle();
        let (dial, address) = node.dials.pop().expect("it dials again");
        assert_eq!(address, "127.0.0.1:1");
        assert_eq!(node.machine.may_dial_here(dial), may, "from the node itself, near: {near}, setting: {dial_local}");
    }
    // By contrast, the program may name such an address.
    let mut node = Node::new(|_| {});
    node.machine.learn(WANTED, &named(&["127.0.0.1:22"]));
    node.machine.connect(node.now, WANTED);
    node.settle();
    assert!(node.machine.may_dial_here(node.dials[0].0));
}

/// A helper forwards the ports of the node that asks, with the host that the helper itself sees.
#[test]
fn dial_backs_go_to_the_host_that_the_helper_sees() {
    let asks = |seen: Option<&str>, addresses: &[&str]| {
        let mut node = Node::new(|config| config.addresses = named(&["10.0.0.1:7400"]));
        let asker = node.joined_by(NodeId(10), false, &[]);
        let other = node.joined_by(WANTED, false, &[]);
        if let Some(seen) = seen {
            node.machine.comes_from(asker, seen.to_owned());
        }
        node.hears(asker, &Frame::Relay(Relay::AskDial { node: WANTED, addresses: named(addresses) }));
        (node.says(other), node.says(asker))
    };
    let back = |addresses: &[&str]| vec![Relay::DialBack { node: NodeId(10), addresses: named(addresses) }];
    let scan = ["192.168.0.1:22", "192.168.0.2:22", "unix:/run/docker.sock", "10.0.0.9:7500", "[::1]:7500"];
    assert_eq!(asks(Some("10.0.0.9"), &scan).0, back(&["10.0.0.9:22", "10.0.0.9:7500"]));
    assert_eq!(asks(Some("[2001:db8::9]"), &["x:7500"]).0, back(&["[2001:db8::9]:7500"]));
    // A network without hosts.
    assert_eq!(asks(None, &["n4"]).0, back(&["n4"]));
    // No address is left to dial.
    let refused = vec![Relay::NotDialled(WANTED, NoDial::NotConnected)];
    assert_eq!(asks(Some("10.0.0.9"), &["unix:/run/docker.sock"]), (Vec::new(), refused));
}

/// Each address is dialled once; and neither the answer nor its time reveals what was there.
#[test]
fn a_failed_dial_back_is_reported_at_a_fixed_time() {
    let told_at = |fails: &dyn Fn(&mut Node, DialId), addresses: &[&str]| {
        let mut node = Node::new(|_| {});
        let helper = node.joined_by(NodeId(10), false, &[]);
        node.hears(helper, &Frame::Relay(Relay::DialBack { node: WANTED, addresses: named(addresses) }));
        let mut dialled = 0;
        loop {
            node.settle();
            for (dial, _) in std::mem::take(&mut node.dials) {
                dialled += 1;
                fails(&mut node, dial);
                node.settle();
            }
            if node.says(helper).contains(&Relay::Undialled(WANTED)) {
                assert!(node.machine.is_idle(WANTED), "nothing more is dialled");
                return (node.now, dialled);
            }
            node.now = node.machine.next_tick().expect("the helper is answered").max(node.now);
            node.machine.tick(node.now);
        }
    };
    let refused = |node: &mut Node, dial| node.machine.dial_refused(node.now, dial, false, "refused".to_owned());
    let failed = |node: &mut Node, dial| node.machine.dial_failed(node.now, dial, "unreachable".to_owned());
    let open = |node: &mut Node, dial| {
        // A program that is not a node listens there.
        let socket = SocketId(99 + node.sockets);
        node.sockets += 1;
        node.machine.dialled(node.now, dial, socket);
        node.machine.received(node.now, socket, Bytes::from_static(b"SSH-2.0-OpenSSH\r\n"));
    };
    let at = Time(0) + SECOND / 2;
    assert_eq!(told_at(&refused, &["a:1", "b:2"]), (at, 2));
    assert_eq!(told_at(&failed, &["a:1", "b:2"]), (at, 2));
    assert_eq!(told_at(&open, &["a:1", "b:2"]), (at, 2));
    // The first dial hangs: the other address is not tried.
    assert_eq!(told_at(&|_, _| {}, &["a:1", "b:2"]), (at, 1));
    // Without addresses it does not dial at all.
    assert_eq!(told_at(&failed, &[]), (at, 0));
}

/// Each dial goes to a host of the helper's choice, since the helper names the host it sees.
#[test]
fn a_helper_has_dial_backs_at_a_steady_pace() {
    let mut node = Node::new(|_| {});
    let [hostile, honest] = [10, 11].map(|id| node.joined_by(NodeId(id), false, &[]));
    let asks = |node: &mut Node, helper, n: u128| {
        let dial_back = Relay::DialBack { node: NodeId(1_000 + n), addresses: named(&["far:1"]) };
        node.hears(helper, &Frame::Relay(dial_back));
        let made = std::mem::take(&mut node.dials);
        for (dial, _) in &made {
            node.machine.dial_failed(node.now, *dial, "no answer".to_owned());
        }
        node.settle();
        made.len()
    };
    let (mut dials, until) = (0, Time(0) + 2 * SECOND);
    for n in 0..2_000 {
        dials += asks(&mut node, hostile, n);
        node.now = node.now + until.since(Time(0)) / 2_000;
        node.machine.tick(node.now);
    }
    assert!((90..=97).contains(&dials), "64, and 16 a second: {dials}");
    // By contrast, the requests of others do not wait for those.
    assert_eq!(asks(&mut node, honest, 5_000), 1);
}

/// Each request needs an answer: a node that asks for too many receives none for the rest, and asks elsewhere
/// after its own patience.
#[test]
fn answers_to_dial_backs_are_bounded() {
    let mut node = Node::new(|_| {});
    // Two helpers, since each is sent only as many answers as may wait for it.
    let helpers = [10, 11].map(|id| node.joined_by(NodeId(id), false, &[]));
    for (n, helper) in (0..1_200).zip(helpers.iter().cycle()) {
        node.hears(*helper, &Frame::Relay(Relay::DialBack { node: NodeId(1_000 + n), addresses: Vec::new() }));
    }
    node.now = node.now + SECOND / 2;
    node.machine.tick(node.now);
    assert_eq!(helpers.map(|helper| node.says(helper).len()), [512, 512]);
    // By contrast, once the answers are sent there is room again.
    node.hears(helpers[0], &Frame::Relay(Relay::DialBack { node: WANTED, addresses: Vec::new() }));
    node.now = node.now + SECOND / 2;
    node.machine.tick(node.now);
    assert_eq!(node.says(helpers[0]), [Relay::Undialled(WANTED)]);
}

/// One frame of a node may cause thousands of answers for another node, which reads nothing.
#[test]
fn unread_name_service_answers_stay_within_held_max() {
    let mut node = Node::new(|config| (config.value_max, config.held_max) = (1 << 20, 16 << 20));
    let hostile: Vec<NodeId> = (30..60).map(NodeId).collect();
    for peer in &hostile {
        node.joined_by(*peer, false, &[]);
    }
    let honest = NodeId(99);
    let reads = node.joined_by(honest, false, &[]);
    let face = Declaration { face: Face::Client, shared: false, expects: Expected::Unknown, schema: Bytes::new() };
    let answer = |number| Names::Found {
        number,
        partner: life(WANTED),
        addresses: vec!["x".repeat(255); 8],
        channel: ChannelId(number.into()),
        face: face.clone(),
    };
    for peer in &hostile {
        for number in 0..1_000 {
            node.machine.say_names(node.now, *peer, answer(number)).unwrap();
        }
        node.settle();
    }
    let left = hostile.iter().filter(|peer| node.machine.carried_by(**peer).is_some()).count();
    assert!(left < 16, "{left} are still connected");
    // By contrast, a node with few answers receives them, whatever waits for the others.
    for number in 0..50 {
        node.machine.say_names(node.now, honest, answer(number)).unwrap();
    }
    assert_eq!(node.machine.carried_by(honest), Some(reads));
}
