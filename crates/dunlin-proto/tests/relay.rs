//! Nodes that cannot dial each other: a third one asks for a dial-back, or relays.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use dunlin_proto::id::{ChannelId, DialId, Incarnation, Life, NodeId, SocketId};
use dunlin_proto::identity::{Identity, StandIn, confirm};
use dunlin_proto::time::Time;
use dunlin_proto::wire::handshake::{Answer, Bound, Hello, Refusal, Resume};
use dunlin_proto::wire::{Declaration, Expected, Face, Frame, NoRelay, Relay, Terms, VERSIONS, codec, limits};
use dunlin_proto::{
    Action, Closed, Config, Declined, Down, HomeHears, Machine, PeerMisbehaved, ProxyHears, Source, State,
};

const CHANNEL: ChannelId = ChannelId(0xc0ffee);
const VALUE_MAX: u64 = 1 << 20;

/// The nodes of most tests: D needs a connection to H, and both know I.
const D: usize = 1;
const H: usize = 2;
const I: usize = 3;

/// Nodes, and sockets between them that carry everything at once.
struct Net {
    nodes: BTreeMap<usize, Machine>,
    now: Time,
    /// The other end of each socket, and its node.
    ends: BTreeMap<SocketId, (usize, SocketId)>,
    next: u64,
    /// Pairs of which the first node cannot dial the second...
    blocked: BTreeSet<(usize, usize)>,
    /// ... because nothing answers, ...
    silent: BTreeSet<(usize, usize)>,
    /// ... or because the dial is refused.
    refused: BTreeSet<(usize, usize)>,
    /// Nodes that dial from the host of the dialled node.
    near: BTreeSet<(usize, usize)>,
    /// The source of each node, for the nodes it dials.
    sources: BTreeMap<usize, Source>,
    unanswered: Vec<DialId>,
    /// Pairs of nodes whose bytes are held back.
    held: BTreeSet<(usize, usize)>,
    wire: VecDeque<(usize, usize, SocketId, Bytes)>,
    states: Vec<(usize, usize, State)>,
    /// The dialler and the dialled node of each dial.
    dialled: Vec<(usize, usize)>,
    /// The bytes from one node to another.
    carried: BTreeMap<(usize, usize), usize>,
    offered: VecDeque<(u64, Bytes)>,
    taken: Vec<ProxyHears>,
    /// The relay that refused, and the node it refused.
    unrelayed: Vec<(usize, usize)>,
    /// Whether homes take the offers.
    takes: bool,
}

fn id(node: usize) -> NodeId {
    NodeId(node as u128)
}

fn index(node: NodeId) -> usize {
    node.0 as usize
}

fn declaration(face: Face) -> Declaration {
    Declaration { face, shared: false, expects: Expected::Unknown, schema: Bytes::new() }
}

impl Net {
    fn new(nodes: &[usize], change: impl Fn(usize, &mut Config)) -> Self {
        let machine = |node: &usize| {
            let mut config = Config::new("tides");
            config.addresses = vec![node.to_string()];
            config.value_max = VALUE_MAX as usize;
            change(*node, &mut config);
            let me = Life { node: id(*node), incarnation: Incarnation(1) };
            (*node, StandIn::machine(config, me, *node as u64))
        };
        Self {
            nodes: nodes.iter().map(machine).collect(),
            now: Time(1_000_000),
            ends: BTreeMap::new(),
            next: 0,
            blocked: BTreeSet::new(),
            silent: BTreeSet::new(),
            refused: BTreeSet::new(),
            near: BTreeSet::new(),
            sources: BTreeMap::new(),
            unanswered: Vec::new(),
            held: BTreeSet::new(),
            wire: VecDeque::new(),
            states: Vec::new(),
            dialled: Vec::new(),
            carried: BTreeMap::new(),
            offered: VecDeque::new(),
            taken: Vec::new(),
            unrelayed: Vec::new(),
            takes: true,
        }
    }

    /// D and H cannot dial each other, except for the pairs in `dials`; both have a connection to I, which
    /// has introduced H to D.
    fn apart(dials: &[(usize, usize)], change: impl Fn(usize, &mut Config)) -> Self {
        let mut net = Self::new(&[D, H, I], change);
        for pair in [(D, H), (H, D)] {
            if !dials.contains(&pair) {
                net.blocked.insert(pair);
            }
        }
        net.connect(D, I);
        net.connect(H, I);
        net.nodes.get_mut(&D).unwrap().introduced(id(H), id(I), &[H.to_string()]);
        net.states.clear();
        net.dialled.clear();
        net
    }

    fn at(&mut self, node: usize) -> &mut Machine {
        self.nodes.get_mut(&node).unwrap()
    }

    fn connect(&mut self, one: usize, other: usize) {
        let now = self.now;
        self.at(one).learn(id(other), &[other.to_string()]);
        self.at(one).connect(now, id(other));
        self.settle();
        assert!(self.at(one).carried_by(id(other)).is_some());
    }

    /// A sender at one node, and the receiver at the other.
    fn channel(&mut self, one: usize, other: usize) {
        let (now, terms) = (self.now, Terms { window: 8, credits: 0, value_max: VALUE_MAX });
        self.at(other).open_home(CHANNEL, terms, declaration(Face::Receiver), false).unwrap();
        self.at(one).attach(now, CHANNEL, id(other), declaration(Face::Sender)).unwrap();
        self.settle();
    }

    fn offer(&mut self, node: usize, ticket: u64, value: impl Into<Bytes>) {
        let now = self.now;
        self.at(node).offer(now, CHANNEL, ticket, value.into());
        self.settle();
    }

    fn settle(&mut self) {
        loop {
            let nodes: Vec<usize> = self.nodes.keys().copied().collect();
            let mut busy = false;
            for node in nodes {
                while let Some(action) = self.nodes.get_mut(&node).and_then(Machine::poll) {
                    busy = true;
                    self.act(node, action);
                }
            }
            let held = &self.held;
            if let Some(at) = self.wire.iter().position(|(from, to, ..)| !held.contains(&(*from, *to))) {
                let (_, to, socket, bytes) = self.wire.remove(at).unwrap();
                let now = self.now;
                if let Some(machine) = self.nodes.get_mut(&to) {
                    machine.received(now, socket, bytes);
                }
                busy = true;
            }
            if !busy {
                return;
            }
        }
    }

    fn act(&mut self, me: usize, action: Action) {
        let now = self.now;
        match action {
            Action::Dial(dial, address) => {
                let to: usize = address.parse().unwrap();
                self.dialled.push((me, to));
                if self.silent.contains(&(me, to)) {
                    return self.unanswered.push(dial);
                }
                if self.blocked.contains(&(me, to)) {
                    return self.at(me).dial_failed(now, dial, "a firewall".to_owned());
                }
                if !self.nodes.contains_key(&to) || self.refused.contains(&(me, to)) {
                    return self.at(me).dial_refused(now, dial, false, "refused".to_owned());
                }
                self.socket(me, to, dial);
            }
            Action::Write(socket) => self.write(me, socket),
            Action::Close(socket, _) => {
                assert!(socket.0 < 1 << 63, "the driver does not know relayed sockets");
                self.write(me, socket);
                self.at(me).closed(now, socket);
                self.close(socket);
            }
            Action::Connection(node, state) => self.states.push((me, index(node), state)),
            Action::Home(channel, from, HomeHears::Offered(ticket, value)) => {
                self.offered.push_back((ticket, value));
                if self.takes {
                    assert!(self.at(me).taken(now, channel, from.node, ticket));
                }
            }
            Action::Proxy(_, heard @ (ProxyHears::Taken(..) | ProxyHears::Lost { .. })) => self.taken.push(heard),
            Action::Unrelayed(node) => self.unrelayed.push((me, index(node))),
            _ => {}
        }
    }

    fn socket(&mut self, me: usize, to: usize, dial: DialId) {
        let now = self.now;
        let (here, there) = (SocketId(self.next), SocketId(self.next + 1));
        self.next += 2;
        self.ends.insert(here, (to, there));
        self.ends.insert(there, (me, here));
        let source = self.sources.get(&me).copied().unwrap_or_default();
        self.at(to).accepted_from(now, there, source);
        self.at(me).dialled(now, dial, here);
        if self.near.contains(&(me, to)) {
            self.at(me).is_near(here);
            self.at(to).is_near(there);
        }
    }

    fn write(&mut self, me: usize, socket: SocketId) {
        assert!(socket.0 < 1 << 63, "the driver does not know relayed sockets");
        let now = self.now;
        let Some((to, there)) = self.ends.get(&socket).copied() else { return };
        loop {
            let mut out = Vec::new();
            if self.at(me).fill(now, socket, 64 << 10, &mut out) == 0 {
                return;
            }
            for bytes in out {
                *self.carried.entry((me, to)).or_default() += bytes.len();
                self.wire.push_back((me, to, there, bytes));
            }
        }
    }

    /// The other end learns that it is closed, after the bytes under way.
    fn close(&mut self, socket: SocketId) {
        let now = self.now;
        if let Some((to, there)) = self.ends.remove(&socket) {
            self.ends.remove(&there);
            let (mine, rest): (VecDeque<_>, _) =
                std::mem::take(&mut self.wire).into_iter().partition(|(_, _, at, _)| *at == there);
            self.wire = rest;
            if let Some(machine) = self.nodes.get_mut(&to) {
                mine.into_iter().for_each(|(.., bytes)| machine.received(now, there, bytes));
                machine.closed(now, there);
            }
        }
    }

    fn cut(&mut self, one: usize, other: usize) {
        let socket = self.at(one).carried_by(id(other)).unwrap();
        let (now, (_, there)) = (self.now, self.ends[&socket]);
        self.ends.remove(&socket);
        self.ends.remove(&there);
        self.wire.retain(|(_, _, at, _)| *at != socket && *at != there);
        self.at(one).closed(now, socket);
        self.at(other).closed(now, there);
        self.settle();
    }

    /// A node dies, and its sockets with it.
    fn kill(&mut self, node: usize) {
        self.nodes.remove(&node);
        let now = self.now;
        let lost: Vec<SocketId> =
            self.ends.iter().filter(|(_, (to, _))| *to == node).map(|(socket, _)| *socket).collect();
        for socket in lost {
            let (_, there) = self.ends.remove(&socket).unwrap();
            let (owner, _) = self.ends.remove(&there).unwrap();
            self.at(owner).closed(now, socket);
        }
        self.settle();
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        self.settle();
        loop {
            let next = self.nodes.values().filter_map(Machine::next_tick).min().filter(|at| *at <= end);
            let Some(at) = next else { break };
            self.now = at.max(self.now);
            let now = self.now;
            self.nodes.values_mut().for_each(|machine| machine.tick(now));
            self.settle();
        }
        self.now = end;
    }

    fn states(&self, of: usize, with: usize) -> Vec<State> {
        self.states.iter().filter(|(me, node, _)| (*me, *node) == (of, with)).map(|(.., state)| state.clone()).collect()
    }

    fn values(&mut self) -> Vec<Bytes> {
        self.offered.drain(..).map(|(_, value)| value).collect()
    }
}

fn up(node: usize) -> State {
    State::Up(Life { node: id(node), incarnation: Incarnation(1) })
}

const MOMENT: Duration = Duration::from_millis(700);
const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_node_that_can_be_dialled_is_dialled() {
    let mut net = Net::apart(&[(D, H)], |_, _| {});
    net.channel(D, H);
    assert_eq!(net.states(D, H), [up(H)]);
    assert_eq!(net.dialled, [(D, H)]);
}

#[test]
fn a_node_that_cannot_be_dialled_dials_back() {
    let mut net = Net::apart(&[(H, D)], |_, _| {});
    net.channel(D, H);
    net.offer(D, 1, "krill");
    net.pass(MOMENT);
    assert_eq!((net.states(D, H), net.states(H, D)), (vec![up(H)], vec![up(D)]));
    assert_eq!(net.dialled.iter().filter(|pair| **pair == (H, D)).count(), 1);
    assert_eq!(net.values(), ["krill"]);
    assert!(matches!(net.taken[..], [ProxyHears::Taken(1, _)]), "{:?}", net.taken);
    assert_eq!(net.at(D).relayed_by(id(H)), None);
    assert_eq!(net.at(I).census().relays, 0);
}

/// The dialled node has sent its own address: that proves nothing about a proxy that may be there.
#[test]
fn refusals_do_not_count_where_a_node_was_dialled_back() {
    for wants_itself in [false, true] {
        let mut net = Net::apart(&[(H, D)], |_, config| config.bound = config.addresses.clone());
        if wants_itself {
            net.connect(H, D);
        }
        net.channel(D, H);
        net.pass(MOMENT);
        net.states.clear();
        net.kill(D);
        net.pass(20 * SECOND);
        let states = net.states(H, D);
        let [State::Lost(_), State::Down(why)] = &states[..] else { panic!("{states:?}") };
        assert_eq!(matches!(why, Down::Died(_)), wants_itself, "{why}");
    }
}

/// No dial has failed: there was no address to dial.
#[test]
fn a_node_without_an_address_dials_back() {
    let mut net = Net::apart(&[(H, D)], |node, config| config.addresses.retain(|_| node != H));
    net.at(D).introduced(id(4), id(I), &[]);
    let now = net.now;
    net.at(D).connect(now, id(4));
    net.settle();
    assert_eq!(net.dialled, [], "no node knows its address");

    let mut net = Net::new(&[D, H, I], |node, config| config.addresses.retain(|_| node != H));
    net.connect(D, I);
    net.connect(H, I);
    net.at(D).introduced(id(H), id(I), &[]);
    net.channel(D, H);
    net.pass(MOMENT);
    assert_eq!(net.states(D, H), [up(H)]);
}

#[test]
fn a_node_that_no_peer_can_dial_is_relayed() {
    let mut net = Net::apart(&[], |_, _| {});
    net.channel(D, H);
    for n in 1..=20u64 {
        net.offer(D, n, format!("value {n}"));
    }
    net.pass(MOMENT);
    for (one, other) in [(D, H), (H, D)] {
        assert_eq!(net.states(one, other), [up(other), State::Relayed(id(I))]);
        assert_eq!(net.at(one).relayed_by(id(other)), Some(id(I)));
        assert_eq!(net.at(one).carried_by(id(other)), net.at(one).carried_by(id(I)));
        assert_eq!(net.at(one).census().relayed, 1);
    }
    assert_eq!(net.at(I).census().relays, 1);
    let expected: Vec<String> = (1..=20).map(|n| format!("value {n}")).collect();
    assert_eq!(net.values(), expected);
    // The connection keeps its heartbeats, and nothing is lost with the relay's own socket.
    net.pass(10 * SECOND);
    net.cut(D, I);
    net.offer(D, 21, "more");
    net.pass(SECOND);
    net.cut(H, I);
    net.offer(D, 22, "and more");
    net.pass(10 * SECOND);
    assert_eq!(net.values(), ["more", "and more"]);
    assert_eq!(net.states(D, H).len(), 2, "{:?}", net.states(D, H));
    assert_eq!(net.at(D).census().unacked_bytes, 0);
}

/// A helper is asked again: it may have connected to the other node since.
#[test]
fn a_helper_that_could_not_help_is_asked_again() {
    let mut net = Net::new(&[D, H, I], |_, _| {});
    net.blocked.extend([(D, H), (H, D)]);
    net.connect(D, I);
    net.at(D).introduced(id(H), id(I), &[H.to_string()]);
    net.channel(D, H);
    net.pass(3 * SECOND);
    assert_eq!(net.at(D).relayed_by(id(H)), None);
    net.connect(H, I);
    net.pass(4 * SECOND);
    assert_eq!(net.at(D).relayed_by(id(H)), Some(id(I)));
}

/// A lost socket may return: the connection is not relayed at once.
#[test]
fn lost_connection_is_relayed_only_after_a_delay() {
    let mut net = Net::apart(&[(D, H), (H, D)], |_, _| {});
    net.channel(D, H);
    net.blocked.extend([(D, H), (H, D)]);
    net.cut(D, H);
    net.pass(SECOND - MOMENT);
    assert_eq!(net.at(D).relayed_by(id(H)), None);
    net.pass(2 * MOMENT);
    assert_eq!(net.at(D).relayed_by(id(H)), Some(id(I)));
}

/// Neither node can be dialled, and they have no addresses.
#[test]
fn a_node_without_an_address_is_relayed() {
    let mut net = Net::apart(&[], |node, config| config.addresses.retain(|_| node == I));
    net.channel(D, H);
    net.offer(D, 1, "krill");
    net.pass(MOMENT);
    assert_eq!(net.at(D).relayed_by(id(H)), Some(id(I)));
    assert_eq!(net.values(), ["krill"]);
}

/// A direct socket that is made late, during the handshake of a relayed one, is used.
#[test]
fn slow_direct_dial_replaces_a_relay_handshake() {
    let mut net = Net::apart(&[], |_, _| {});
    net.silent.insert((D, H));
    // Frames from I to H do not arrive.
    net.held.insert((I, H));
    let now = net.now;
    net.at(D).connect(now, id(H));
    net.pass(3 * SECOND);
    assert_eq!(net.at(D).census().relayed, 1, "D sends hello over the relay");
    let dial = net.unanswered.pop().unwrap();
    net.blocked.clear();
    net.socket(D, H, dial);
    net.pass(MOMENT);
    assert_eq!((net.states(D, H), net.states(H, D)), (vec![up(H)], vec![up(D)]));
    assert_eq!(net.at(D).census().relayed, 0);
    net.held.clear();
    net.pass(10 * SECOND);
    assert_eq!((net.states(D, H).len(), net.states(H, D).len()), (1, 1));
    assert_eq!(net.at(I).census().relays + net.at(H).census().relayed, 0);
}

/// A firewall that answers nothing.
#[test]
fn node_does_not_wait_for_a_helper_that_does_not_answer() {
    let mut net = Net::apart(&[], |_, _| {});
    net.silent.extend([(D, H), (H, D)]);
    net.channel(D, H);
    let most = 2 * SECOND + MOMENT;
    net.pass(most);
    assert_eq!(net.at(D).relayed_by(id(H)), Some(id(I)));
}

#[test]
fn two_nodes_that_connect_to_each_other_at_once_share_one_relay() {
    let mut net = Net::apart(&[], |_, _| {});
    net.at(H).introduced(id(D), id(I), &[D.to_string()]);
    let now = net.now;
    net.at(D).connect(now, id(H));
    net.at(H).connect(now, id(D));
    net.pass(SECOND);
    for (one, other) in [(D, H), (H, D)] {
        assert_eq!(net.states(one, other), [up(other), State::Relayed(id(I))]);
        assert_eq!(net.at(one).census().relayed, 1);
    }
    assert_eq!(net.at(I).census().relays, 1);
}

#[test]
fn values_of_any_size_are_relayed() {
    let mut net = Net::apart(&[], |_, _| {});
    net.channel(D, H);
    net.pass(MOMENT);
    let large = |n: u8| Bytes::from(vec![n; VALUE_MAX as usize]);
    for n in 1..=4 {
        net.offer(D, n.into(), large(n));
    }
    net.pass(MOMENT);
    let values = net.values();
    assert!(values == [large(1), large(2), large(3), large(4)]);
    assert_eq!(net.taken.len(), 4);
    assert_eq!(net.at(I).census().relays, 1);
}

/// The relay keeps no more than a socket may have on its way, and other channels of the two nodes continue.
#[test]
fn slow_receiving_end_holds_back_its_relayed_sender() {
    let mut net = Net::apart(&[], |_, _| {});
    net.channel(D, H);
    net.pass(MOMENT);
    // The receiving end gives more credit than at first.
    for n in 11..=12 {
        net.offer(D, n, vec![n as u8; VALUE_MAX as usize]);
    }
    net.settle();
    net.held.insert((I, H));
    let before = net.carried[&(D, I)];
    for n in 1..=8 {
        net.offer(D, n, vec![n as u8; VALUE_MAX as usize]);
    }
    let sent = net.carried[&(D, I)] - before;
    let most = limits::RELAYED + (8 << 10);
    assert!((limits::RELAYED - limits::RELAY_CREDIT..most).contains(&sent), "{sent}");
    assert_eq!(net.values().len(), 2);
    net.held.clear();
    net.settle();
    assert_eq!(net.values().len(), 8);
}

#[test]
fn the_next_helper_is_asked() {
    // The first does not relay; the second has no connection; the third does.
    let mut net = Net::new(&[D, H, 3, 4, 5], |node, config| config.relays_max = if node == 3 { 0 } else { 1 });
    net.blocked.extend([(D, H), (H, D)]);
    for helper in [3, 4, 5] {
        net.connect(D, helper);
    }
    net.connect(H, 3);
    net.connect(H, 5);
    for helper in [4, 3] {
        net.at(D).introduced(id(H), id(helper), &[H.to_string()]);
    }
    net.channel(D, H);
    // Each helper has its time for a dial-back.
    net.pass(2 * MOMENT);
    assert_eq!(net.at(D).relayed_by(id(H)), Some(id(5)));
    assert_eq!(net.at(3).census().relays, 0);
}

#[test]
fn refusal_to_relay_is_reported() {
    let mut net = Net::apart(&[], |_, config| config.relays_max = 0);
    net.channel(D, H);
    net.offer(D, 1, "krill");
    net.pass(20 * SECOND);
    let unrelayed =
        Down::Unrelayed { waited: 15 * SECOND, dialled: "a firewall".to_owned(), by: id(I), why: NoRelay::Unwilling };
    assert_eq!(net.states(D, H), [State::Down(unrelayed.clone())]);
    assert!(unrelayed.to_string().ends_with("cannot relay the connection: relaying is disabled"), "{unrelayed}");
    assert_eq!(net.states(H, D), [], "nothing has ever been there");
    // It has dialled as often as it was asked to.
    let dialled = net.dialled.iter().filter(|pair| **pair == (H, D)).count();
    assert!((2..=5).contains(&dialled), "{dialled}");
    assert!(matches!(&net.taken[..], [ProxyHears::Lost { .. }]), "{:?}", net.taken);
}

#[test]
fn relay_refuses_connections_beyond_relays_max() {
    let mut net = Net::new(&[D, H, I, 4], |_, config| config.relays_max = 1);
    net.blocked.extend([(D, H), (H, D), (4, H), (H, 4), (D, 4), (4, D)]);
    for node in [D, H, 4] {
        net.connect(node, I);
    }
    for node in [D, 4] {
        net.at(node).introduced(id(H), id(I), &[H.to_string()]);
        let now = net.now;
        net.at(node).connect(now, id(H));
        net.pass(MOMENT);
    }
    assert_eq!(net.states(D, H), [up(H), State::Relayed(id(I))]);
    net.pass(20 * SECOND);
    assert!(
        matches!(&net.states(4, H)[..], [State::Down(Down::Unrelayed { why: NoRelay::Full, .. })]),
        "{:?}",
        net.states(4, H)
    );
    assert_eq!(net.at(I).census().relays, 1);
    // A relay that has ended makes room.
    let now = net.now;
    net.at(D).leave(now);
    net.pass(MOMENT);
    net.at(4).connect(now, id(H));
    net.pass(SECOND);
    assert_eq!(net.at(4).relayed_by(id(H)), Some(id(I)));
}

/// One host asks for as many relays as there are, and does not get the last of them.
#[test]
fn a_source_leaves_relays_to_others() {
    let (asks, other): (Vec<usize>, usize) = ((10..20).collect(), 30);
    let nodes: Vec<usize> = asks.iter().copied().chain([H, I, other]).collect();
    let mut net = Net::new(&nodes, |_, config| config.relays_max = 8);
    for node in asks.iter().copied().chain([other]) {
        net.sources.insert(node, Source::V4([10, 0, 0, if node == other { 3 } else { 2 }]));
        net.blocked.extend([(node, H), (H, node)]);
        net.connect(node, I);
    }
    net.connect(H, I);
    let asks_for = |net: &mut Net, node: usize| {
        net.at(node).introduced(id(H), id(I), &[H.to_string()]);
        let now = net.now;
        net.at(node).connect(now, id(H));
        net.pass(MOMENT);
        net.at(node).relayed_by(id(H)).is_some()
    };
    let relayed: Vec<usize> = asks.iter().copied().filter(|node| asks_for(&mut net, *node)).collect();
    assert_eq!(relayed.len(), 6, "three quarters of all; the rest is for other sources");
    assert_eq!(net.at(I).census().relays, 6);
    assert!(net.unrelayed.contains(&(I, *asks.last().unwrap())), "{:?}", net.unrelayed);
    assert!(asks_for(&mut net, other), "there is room for another source");
    assert_eq!(net.at(I).census().relays, 7);
    // A relay that has ended makes room for its source.
    let now = net.now;
    for node in [relayed[0], relayed[1]] {
        net.at(node).leave(now);
    }
    net.pass(MOMENT);
    assert_eq!(net.at(I).census().relays, 5);
}

/// D is on another host, and H on the relay's, where it may listen for its host only.
#[test]
fn a_relay_admits_other_hosts_only_if_the_node_allows_it() {
    for relayed in [false, true] {
        let mut net = Net::new(&[D, H, I], |node, config| config.relayed = relayed && node == H);
        net.blocked.insert((D, H));
        net.near.insert((H, I));
        net.connect(D, I);
        net.connect(H, I);
        net.at(D).introduced(id(H), id(I), &[H.to_string()]);
        net.states.clear();
        net.dialled.clear();
        if relayed {
            net.blocked.insert((H, D));
        }
        net.channel(D, H);
        net.pass(20 * SECOND);
        if relayed {
            assert_eq!(net.at(D).relayed_by(id(H)), Some(id(I)));
            continue;
        }
        let refused = |why: &State| matches!(why, State::Down(Down::Unrelayed { why: NoRelay::Local, .. }));
        assert!(matches!(&net.states(D, H)[..], [why] if refused(why)), "{:?}", net.states(D, H));
        assert_eq!(net.states(H, D), [], "no connection reaches H");
        assert!(!net.dialled.contains(&(H, D)), "H does not dial");
    }
}

/// By contrast, the relay serves a node on its own host, and nodes that are both elsewhere.
#[test]
fn a_relay_serves_its_own_host_and_nodes_that_are_both_elsewhere() {
    for near in [vec![(D, I), (H, I)], vec![(D, I)], vec![]] {
        let mut net = Net::new(&[D, H, I], |_, _| {});
        net.blocked.extend([(D, H), (H, D)]);
        net.near.extend(near.iter().copied());
        net.connect(D, I);
        net.connect(H, I);
        net.at(D).introduced(id(H), id(I), &[H.to_string()]);
        net.channel(D, H);
        net.pass(SECOND);
        assert_eq!(net.at(D).relayed_by(id(H)), Some(id(I)), "{near:?}");
    }
}

#[test]
fn a_relay_that_dies_is_replaced() {
    let mut net = Net::new(&[D, H, I, 4], |_, _| {});
    net.blocked.extend([(D, H), (H, D)]);
    for (one, other) in [(D, I), (H, I), (D, 4), (H, 4)] {
        net.connect(one, other);
    }
    net.at(D).introduced(id(H), id(I), &[H.to_string()]);
    net.channel(D, H);
    net.offer(D, 1, "krill");
    net.pass(MOMENT);
    assert_eq!(net.at(D).relayed_by(id(H)), Some(id(I)));
    net.kill(I);
    net.offer(D, 2, "plankton");
    net.pass(10 * SECOND);
    assert_eq!(net.at(D).relayed_by(id(H)), Some(id(4)));
    assert_eq!(net.values(), ["krill", "plankton"]);
    let states = net.states(D, H);
    assert!(
        matches!(&states[2..], [State::Lost(_), State::Resumed, State::Relayed(relay)] if *relay == id(4)),
        "{states:?}"
    );
}

#[test]
fn the_loss_of_an_irreplaceable_relay_is_reported() {
    let mut net = Net::apart(&[], |_, _| {});
    net.channel(D, H);
    net.pass(MOMENT);
    net.takes = false;
    net.offer(D, 1, "krill");
    net.kill(I);
    net.pass(30 * SECOND);
    for (one, other) in [(D, H), (H, D)] {
        let states = net.states(one, other);
        assert!(matches!(&states[2..], [State::Lost(_), State::Down(Down::Unreachable(..))]), "{states:?}");
        let census = net.at(one).census();
        assert_eq!((census.relayed, census.sockets), (0, 0), "{census:?}");
    }
    assert!(matches!(&net.taken[..], [ProxyHears::Lost { .. }]), "{:?}", net.taken);
}

/// Both advertise where they listen, but were not reached there: a proxy may refuse.
#[test]
fn refusals_do_not_count_where_a_node_was_relayed() {
    let mut net = Net::apart(&[], |_, config| config.bound = config.addresses.clone());
    net.channel(D, H);
    net.pass(MOMENT);
    assert_eq!(net.at(D).relayed_by(id(H)), Some(id(I)));
    net.states.clear();
    net.blocked.clear();
    net.refused.extend([(D, H), (H, D)]);
    net.kill(I);
    let grace = Config::new("tides").grace;
    net.pass(grace - SECOND);
    for (one, other) in [(D, H), (H, D)] {
        assert!(matches!(&net.states(one, other)[..], [State::Lost(_)]), "{:?}", net.states(one, other));
        assert!(net.dialled.contains(&(one, other)), "{:?}", net.dialled);
    }
    net.pass(5 * SECOND);
    for (one, other) in [(D, H), (H, D)] {
        let states = net.states(one, other);
        assert!(matches!(&states[1..], [State::Down(Down::Unreachable(..))]), "{states:?}");
    }
}

/// When the relay leaves, or one of the two nodes, no record of it is left.
#[test]
fn a_relayed_goodbye_arrives() {
    for who in [D, H, I] {
        let mut net = Net::apart(&[], |_, _| {});
        net.channel(D, H);
        net.offer(D, 1, "krill");
        net.pass(MOMENT);
        let now = net.now;
        if who == D {
            net.offer(D, 2, "the last");
        }
        net.at(who).leave(now);
        net.pass(MOMENT);
        assert!(net.at(who).is_flushed(), "{who}");
        if who != I {
            let other = D + H - who;
            let states = net.states(other, who);
            assert!(matches!(states.last(), Some(State::Down(Down::Left))), "{states:?}");
            let states = net.states(I, who);
            assert!(matches!(states.last(), Some(State::Down(Down::Left))), "{states:?}");
            assert_eq!(net.at(I).census().relays, 0);
        }
        for node in [D, H, I] {
            assert_eq!(net.at(node).census().relayed, 0, "of {node}, when {who} leaves");
        }
    }
}

/// Both nodes try a direct dial from time to time, and nothing is lost by that.
#[test]
fn a_node_that_becomes_reachable_needs_no_relay() {
    for able in [(D, H), (H, D)] {
        let mut net = Net::apart(&[], |_, _| {});
        net.channel(D, H);
        net.pass(60 * SECOND);
        assert_eq!(net.states(D, H).len(), 2, "nothing is lost by trying");
        let probes = net.dialled.iter().filter(|pair| **pair == (D, H)).count();
        assert!((2..=6).contains(&probes), "{probes}");
        net.offer(D, 1, "krill");
        net.blocked.remove(&able);
        net.pass(31 * SECOND);
        net.offer(D, 2, "plankton");
        net.pass(SECOND);
        for (one, other) in [(D, H), (H, D)] {
            let states = net.states(one, other);
            assert!(matches!(states[2..], [State::Lost(_), State::Resumed]), "{states:?}");
            assert_eq!(net.at(one).relayed_by(id(other)), None);
            assert_eq!(net.at(one).census().relayed, 0);
        }
        assert_eq!(net.values(), ["krill", "plankton"]);
        assert_eq!(net.at(I).census().relays, 0);
    }
}

/// Another node answers at the address of the wanted one: that does not end the relay.
#[test]
fn another_node_at_the_address_does_not_end_the_relay() {
    let mut net = Net::apart(&[], |_, _| {});
    net.at(D).learn(id(H), &[I.to_string()]);
    net.channel(D, H);
    net.pass(200 * SECOND);
    assert_eq!(net.states(D, H), [up(H), State::Relayed(id(I))]);
}

/// A relayed connection does not relay other connections.
#[test]
fn relayed_connection_carries_no_relay() {
    // 1 and 2 are relayed by 3; 4 knows only 1, and cannot be dialled at all, so it asks for a relay at once.
    let mut net = Net::new(&[D, H, I, 4], |node, config| config.addresses.retain(|_| node != 4));
    net.blocked.extend([(D, H), (H, D), (4, H), (H, 4), (4, I), (I, 4)]);
    net.connect(D, I);
    net.connect(H, I);
    net.connect(4, D);
    net.at(D).introduced(id(H), id(I), &[H.to_string()]);
    net.channel(D, H);
    net.pass(MOMENT);
    assert_eq!(net.at(D).relayed_by(id(H)), Some(id(I)));
    net.at(4).introduced(id(H), id(D), &[H.to_string()]);
    let now = net.now;
    net.at(4).connect(now, id(H));
    net.pass(20 * SECOND);
    assert_eq!(net.at(4).relayed_by(id(H)), None);
    assert_eq!(net.at(D).census().relays, 0);
    assert!(matches!(&net.states(4, H)[..], [State::Down(Down::Unreachable(..))]), "{:?}", net.states(4, H));
}

// A peer that breaks the rules of relaying.

fn hello(peer: usize, attempt: u64) -> Hello {
    Hello {
        versions: VERSIONS,
        application: "tides".to_owned(),
        me: Life { node: id(peer), incarnation: Incarnation(1) },
        wanted: NodeId(9),
        met: Incarnation(u64::from(attempt > 1)),
        attempt,
        resume: Resume { run: 1, seen: 0, ..Resume::default() },
        addresses: Vec::new(),
        bound: Bound::default(),
        key: StandIn::of(id(peer)).key(),
        nonce: 1,
        signature: Bytes::new(),
    }
}

/// A machine with connections to two peers whose bytes the test writes; this one's id is 9, so theirs are
/// smaller.
struct Lone {
    machine: Machine,
    /// Connections that have ended.
    downs: Vec<(NodeId, Down)>,
    /// Relayed sockets that were closed.
    closed: Vec<(NodeId, NodeId, Closed)>,
    heard: BTreeMap<SocketId, Vec<Frame>>,
    /// What it has refused, and to which node.
    declined: Vec<(NodeId, Declined)>,
}

const NOW: Time = Time(0);

/// The first frame of the dialling side, which has sent this `Hello` and received this answer.
fn confirmation(hello: &Hello, answer: &[u8]) -> Bytes {
    let answer = Answer::decode(&mut BytesMut::from(answer)).expect("it is one").expect("it is whole");
    let mut bytes = BytesMut::new();
    codec::encode(&confirm(&StandIn::of(hello.me.node), &StandIn::says(hello), &answer), &mut bytes);
    bytes.freeze()
}

impl Lone {
    fn new(change: impl Fn(&mut Config)) -> Self {
        let mut config = Config::new("tides");
        config.addresses = vec!["here".to_owned()];
        change(&mut config);
        let me = Life { node: NodeId(9), incarnation: Incarnation(1) };
        let machine = StandIn::machine(config, me, 1);
        let mut lone =
            Self { machine, downs: Vec::new(), closed: Vec::new(), heard: BTreeMap::new(), declined: Vec::new() };
        for peer in [D, H] {
            let hello = hello(peer, 1);
            let socket = SocketId(peer as u64);
            lone.machine.accepted(NOW, socket);
            lone.machine.received(NOW, socket, StandIn::says(&hello));
            let mut welcome = Vec::new();
            lone.machine.fill(NOW, socket, 1, &mut welcome);
            lone.machine.received(NOW, socket, confirmation(&hello, &welcome.concat()));
            lone.settle();
        }
        lone
    }

    fn says(&mut self, peer: usize, said: Relay) {
        let mut bytes = BytesMut::new();
        let tail = codec::encode(&Frame::Relay(said), &mut bytes);
        bytes.extend_from_slice(&tail.unwrap_or_default());
        self.machine.received(NOW, SocketId(peer as u64), bytes.freeze());
        self.settle();
    }

    fn settle(&mut self) {
        while let Some(action) = self.machine.poll() {
            match action {
                Action::Write(socket) => {
                    let mut out = Vec::new();
                    while self.machine.fill(NOW, socket, 64 << 10, &mut out) > 0 {}
                    let mut bytes = Bytes::from(out.concat());
                    while let Ok(codec::Next::Frame { head, body }) = codec::next(&bytes) {
                        let whole = bytes.split_to(head + body);
                        let frame = codec::decode(whole[0], whole.slice(head..)).unwrap();
                        self.heard.entry(socket).or_default().push(frame);
                    }
                }
                Action::Close(socket, why) => {
                    assert!(matches!(why, Closed::Over | Closed::Violation(_)), "{why}");
                    self.machine.closed(NOW, socket);
                }
                Action::ClosedRelayed(by, from, why) => self.closed.push((by, from, why)),
                Action::Declined(node, what) => self.declined.push((node, what)),
                Action::Connection(node, State::Down(why)) => self.downs.push((node, why)),
                _ => {}
            }
        }
    }

    fn heard(&mut self, peer: usize) -> Vec<Relay> {
        let frames = self.heard.remove(&SocketId(peer as u64)).unwrap_or_default();
        frames.into_iter().filter_map(|frame| if let Frame::Relay(said) = frame { Some(said) } else { None }).collect()
    }

    #[track_caller]
    fn is_violated(&self, peer: usize, by: PeerMisbehaved) {
        let [(node, Down::Violation(why))] = &self.downs[..] else { panic!("{:?}", self.downs) };
        assert_eq!((*node, why), (id(peer), &by.to_string()));
    }
}

/// The size of the relayed pieces here.
const PIECE: usize = 32 << 10;

fn piece(stream: u64, length: usize) -> Relay {
    Relay::Bytes { stream, piece: Bytes::from(vec![7; length]) }
}

#[test]
fn relay_forwards_bytes_and_counts_credit() {
    let mut relay = Lone::new(|_| {});
    relay.says(D, Relay::To { stream: 2, node: id(H) });
    assert_eq!(relay.heard(H), [Relay::From { stream: 3, node: id(D) }]);
    for _ in 0..limits::RELAYED / PIECE {
        relay.says(D, piece(2, PIECE));
    }
    let passed: usize = relay
        .heard(H)
        .iter()
        .map(|said| match said {
            Relay::Bytes { stream: 3, piece } => piece.len(),
            other => panic!("{other:?}"),
        })
        .sum();
    assert_eq!(passed, limits::RELAYED);
    relay.says(H, Relay::Credit { stream: 3 });
    assert_eq!(relay.heard(D), [Relay::Credit { stream: 2 }]);
    for _ in 0..limits::RELAY_CREDIT / PIECE {
        relay.says(D, piece(2, PIECE));
    }
    relay.says(D, Relay::End { stream: 2 });
    assert!(matches!(relay.heard(H).last(), Some(Relay::End { stream: 3 })));
    assert_eq!(relay.machine.census().relays, 0);
    // Frames that have crossed the end of the stream are ignored.
    for said in [piece(3, 5), Relay::Credit { stream: 3 }, Relay::End { stream: 3 }] {
        relay.says(H, said);
    }
    assert_eq!(relay.downs, []);
}

#[test]
fn more_than_the_credit_breaks_the_protocol() {
    let mut relay = Lone::new(|_| {});
    relay.says(D, Relay::To { stream: 2, node: id(H) });
    for _ in 0..limits::RELAYED / PIECE {
        relay.says(D, piece(2, PIECE));
    }
    relay.says(D, piece(2, 1));
    relay.is_violated(D, PeerMisbehaved::AboveRelayCredit(2));
    assert!(matches!(relay.heard(H).last(), Some(Relay::End { stream: 3 })), "the other end is notified");
}

#[test]
fn more_credit_than_was_used_breaks_the_protocol() {
    let mut relay = Lone::new(|_| {});
    relay.says(D, Relay::To { stream: 2, node: id(H) });
    relay.says(H, Relay::Credit { stream: 3 });
    relay.is_violated(H, PeerMisbehaved::RelayCredit(3));

    let mut end = Lone::new(|_| {});
    end.says(D, Relay::From { stream: 2, node: id(5) });
    end.says(D, Relay::Credit { stream: 2 });
    end.is_violated(D, PeerMisbehaved::RelayCredit(2));
}

#[test]
fn streams_are_numbered_upwards() {
    for numbers in [&[0][..], &[1], &[3], &[2, 2], &[4, 2]] {
        for to in [true, false] {
            let mut relay = Lone::new(|_| {});
            for stream in numbers.iter().copied() {
                let said = if to { Relay::To { stream, node: id(H) } } else { Relay::From { stream, node: id(5) } };
                relay.says(D, said);
            }
            let last = numbers.last().expect("there is one");
            relay.is_violated(D, PeerMisbehaved::StreamOutOfTurn(*last));
        }
    }
}

#[test]
fn relayed_sockets_without_a_handshake_are_bounded_and_time_out() {
    let mut end = Lone::new(|config| {
        config.strangers_max = 3;
        config.handshake = SECOND;
    });
    for n in 1..=5 {
        end.says(D, Relay::From { stream: 2 * n, node: id(5) });
    }
    // They have one source: the oldest of them make room, and receive the refusal.
    let busy = |stream| Relay::Bytes { stream, piece: Answer::Refused(Refusal::Busy).encode() };
    assert_eq!(end.heard(D), [busy(2), Relay::End { stream: 2 }, busy(4), Relay::End { stream: 4 }]);
    assert_eq!(end.machine.census().relayed, 3);
    // The relay only forwards bytes: this node reports each refusal.
    let refused = (id(D), id(5), Closed::Crowded);
    assert_eq!(std::mem::take(&mut end.closed), [refused.clone(), refused]);
    // They send nothing.
    end.machine.tick(NOW + SECOND);
    end.settle();
    assert_eq!(end.machine.census().relayed, 0);
    assert_eq!(end.heard(D).len(), 3);
    let late = (id(D), id(5), Closed::NoHandshake);
    assert_eq!(end.closed, [late.clone(), late.clone(), late]);
}

#[test]
fn a_relayed_hello_must_match_its_stream() {
    for (says, admitted) in [(5, true), (6, false)] {
        let mut end = Lone::new(|_| {});
        end.says(D, Relay::From { stream: 2, node: id(5) });
        let hello = hello(says, 1);
        end.says(D, Relay::Bytes { stream: 2, piece: StandIn::says(&hello) });
        let heard = end.heard(D);
        let [Relay::Bytes { stream: 2, piece }, rest @ ..] = &heard[..] else { panic!("{heard:?}") };
        let answer = Answer::decode(&mut BytesMut::from(&piece[..])).unwrap().unwrap();
        if admitted {
            assert!(matches!(answer, Answer::Welcome(_)) && rest.is_empty(), "{heard:?}");
            end.says(D, Relay::Bytes { stream: 2, piece: confirmation(&hello, piece) });
            assert_eq!(end.machine.relayed_by(id(5)), Some(id(D)));
        } else {
            assert_eq!(answer, Answer::Refused(Refusal::WrongNode(NodeId(9))));
            assert_eq!(rest, [Relay::End { stream: 2 }]);
        }
    }
}

/// A connection that moves to a relayed socket relays nothing from then on. The accepting node sends `End`
/// for its streams: the other side may never receive the answer.
#[test]
fn a_node_that_becomes_relayed_relays_nothing() {
    let mut relay = Lone::new(|_| {});
    relay.says(D, Relay::To { stream: 2, node: id(H) });
    assert_eq!(relay.heard(H), [Relay::From { stream: 3, node: id(D) }]);
    // D can now reach this node only through H.
    relay.machine.closed(NOW, SocketId(D as u64));
    relay.settle();
    relay.says(H, Relay::From { stream: 2, node: id(D) });
    let mut again = hello(D, 2);
    again.resume.connection = relay.machine.connection_id(id(D)).expect("it was up");
    relay.says(H, Relay::Bytes { stream: 2, piece: StandIn::says(&again) });
    assert_eq!(relay.machine.relayed_by(id(D)), None);
    let heard = relay.heard(H);
    let Some(Relay::Bytes { stream: 2, piece: welcome }) = heard.last() else { panic!("{heard:?}") };
    relay.says(H, Relay::Bytes { stream: 2, piece: confirmation(&again, welcome) });
    assert_eq!(relay.machine.relayed_by(id(D)), Some(id(H)));
    assert_eq!(relay.machine.census().relays, 0);
    let heard = relay.heard(H);
    assert!(heard.contains(&Relay::End { stream: 3 }), "{heard:?}");
    let frames: Vec<u8> = heard
        .iter()
        .filter_map(|said| if let Relay::Bytes { stream: 2, piece } = said { Some(&piece[..]) } else { None })
        .collect::<Vec<_>>()
        .concat();
    let mut end = BytesMut::new();
    codec::encode(&Frame::Relay(Relay::End { stream: 2 }), &mut end);
    assert!(frames.windows(end.len()).any(|bytes| bytes == end), "{frames:02x?}");
    // New requests of either node are refused.
    let mut to = BytesMut::new();
    codec::encode(&Frame::Relay(Relay::To { stream: 4, node: id(H) }), &mut to);
    relay.says(H, Relay::Bytes { stream: 2, piece: to.freeze() });
    relay.says(H, Relay::To { stream: 4, node: id(D) });
    let refused = Relay::Refused { stream: 4, why: NoRelay::NotConnected };
    assert!(relay.heard(H).contains(&refused));
    assert_eq!(relay.machine.census().relays, 0);
    assert_eq!(relay.downs, []);
}

/// A peer that asks without end is answered while it reads, and its requests are forwarded only up to a
/// limit.
#[test]
fn helper_bounds_the_dial_requests_that_it_forwards() {
    let mut relay = Lone::new(|_| {});
    let ask = || Relay::AskDial { node: id(H), addresses: vec!["there".to_owned()] };
    // H does not read any of them.
    let mut bytes = BytesMut::new();
    for _ in 0..5000 {
        codec::encode(&Frame::Relay(ask()), &mut bytes);
    }
    relay.machine.received(NOW, SocketId(D as u64), bytes.freeze());
    relay.settle();
    assert_eq!(relay.heard(H).len(), 1024);
    assert_eq!(relay.heard(D).len(), 5000 - 1024);
}

/// One peer asks for dial-backs of nodes that are unknown here, or known only by name.
#[test]
fn the_sixty_fifth_dial_back_at_once_is_declined() {
    let mut asked = Lone::new(|_| {});
    let dial_back = |node: u128| Relay::DialBack { node: NodeId(node), addresses: vec!["there".to_owned()] };
    for node in 100..164 {
        asked.says(D, dial_back(node));
    }
    assert_eq!((&asked.declined[..], asked.machine.census().nodes), (&[][..], 2 + 64));
    asked.says(D, dial_back(164));
    assert_eq!(asked.declined, [(id(D), Declined::DialBack)]);
    // One whose address is known but which is not needed here is declined, too ...
    asked.machine.learn(NodeId(165), &["there".to_owned()]);
    asked.says(H, dial_back(165));
    assert_eq!(asked.declined[1..], [(id(H), Declined::DialBack)]);
    // ... and one that is needed here, or is dialled already, is dialled anyhow.
    asked.machine.connect(NOW, NodeId(165));
    asked.settle();
    asked.says(H, dial_back(165));
    asked.says(H, dial_back(100));
    assert_eq!(asked.declined.len(), 2);
    // One of the 64 is needed here by now: there is room for one more, and no further one.
    asked.machine.connect(NOW, NodeId(163));
    asked.says(H, dial_back(166));
    assert_eq!(asked.declined.len(), 2);
    asked.says(H, dial_back(167));
    assert_eq!(asked.declined.len(), 3);
    assert_eq!(asked.downs, []);
}

#[test]
fn futile_dial_back_requests_visit_no_node_and_slow_reading() {
    let dial_back = |node: u128, addresses: &[&str]| {
        let addresses = addresses.iter().map(|&address| address.to_owned()).collect();
        Relay::DialBack { node: NodeId(node), addresses }
    };
    let vain = [
        ("there is no room", dial_back(500, &["there"])),
        ("it is dialled already", dial_back(100, &["there"])),
        ("it is here", dial_back(H as u128, &["there"])),
        ("there is no address", dial_back(163, &[])),
        ("it is the one that asks", dial_back(D as u128, &["there"])),
    ];
    for (why, said) in vain {
        let mut asked = Lone::new(|_| {});
        (100..164).for_each(|node| asked.says(D, dial_back(node, &["there"])));
        (1000..2000).for_each(|node| asked.machine.learn(NodeId(node), &["there".to_owned()]));
        let socket = SocketId(D as u64);
        assert_eq!(asked.machine.paused_until(NOW, socket), None, "{why}");
        let visited = asked.machine.census().visited;
        for _ in 0..1100 {
            asked.says(D, said.clone());
        }
        assert_eq!(asked.machine.census().visited, visited, "{why}");
        assert!(asked.machine.paused_until(NOW, socket).is_some(), "{why}");
        assert_eq!(asked.downs, [], "{why}");
    }
}
