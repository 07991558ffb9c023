//! Which refusals prove that a node has ended before its grace period is over, and which do not.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use dunlin_proto::id::{ChannelId, DialId, Incarnation, Life, NodeId, SocketId};
use dunlin_proto::identity::StandIn;
use dunlin_proto::time::Time;
use dunlin_proto::wire::handshake::Refusal;
use dunlin_proto::wire::{Declaration, End, Expected, Face, Terms};
use dunlin_proto::{Action, Config, Down, Machine, SenderPlace, State};

const CHANNEL: ChannelId = ChannelId(7);
const SECOND: Duration = Duration::from_secs(1);
const GRACE: Duration = Duration::from_secs(15);

/// What is at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum There {
    Node(usize),
    /// No process listens.
    Refuses,
    /// Nothing answers; the dial fails after a while.
    Fails,
    /// The test decides the outcome.
    Pends,
}

/// Machines, and addresses that may lead to them. Bytes arrive at once, in virtual time.
struct Net {
    nodes: Vec<Machine>,
    now: Time,
    leads: BTreeMap<String, There>,
    /// All nodes are on one host.
    near: bool,
    /// The node at each end of a socket: ends of one have neighbouring numbers.
    ends: Vec<Option<usize>>,
    states: Vec<(usize, Time, State)>,
    dialled: Vec<(usize, String)>,
    pending: Vec<(usize, DialId)>,
}

fn address(node: usize) -> String {
    format!("n{node}")
}

impl Net {
    /// Two nodes; each listens at its own address, and knows the other's. Their connection is up, and the
    /// first node has the sender of a channel that is attached.
    fn new(near: bool, change: impl Fn(usize, &mut Config)) -> Self {
        let leads = (0..2).map(|node| (address(node), There::Node(node))).collect();
        let mut net = Self {
            nodes: Vec::new(),
            now: Time(0),
            leads,
            near,
            ends: Vec::new(),
            states: Vec::new(),
            dialled: Vec::new(),
            pending: Vec::new(),
        };
        for node in 0..2 {
            net.start(node as u128 + 1, 1, |config| {
                config.addresses = vec![address(node)];
                config.bound = config.addresses.clone();
                change(node, config);
            });
        }
        for node in 0..2 {
            let address = net.nodes[node].addresses_here().to_vec();
            for listens in &address {
                net.leads.entry(listens.clone()).or_insert(There::Node(node));
            }
        }
        let terms = Terms { window: 8, credits: 0, value_max: 1 << 20 };
        net.nodes[1].open_home(CHANNEL, terms, face(Face::Receiver), false).unwrap();
        let addresses = net.nodes[1].addresses_here().to_vec();
        net.nodes[0].learn(NodeId(2), &addresses);
        net.nodes[0].attach(net.now, CHANNEL, NodeId(2), face(Face::Sender)).unwrap();
        net.run_for(SECOND);
        assert!(net.nodes[0].carried_by(NodeId(2)).is_some());
        net
    }

    fn start(&mut self, node: u128, incarnation: u64, change: impl Fn(&mut Config)) {
        let mut config = Config::new("death");
        config.helpers_max = 0;
        change(&mut config);
        let me = Life { node: NodeId(node), incarnation: Incarnation(incarnation) };
        self.nodes.push(StandIn::machine(config, me, incarnation));
    }

    fn run_for(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            while self.step() {}
            let Some(next) = self.nodes.iter().filter_map(Machine::next_tick).min().filter(|at| *at <= until) else {
                break;
            };
            self.now = self.now.max(next);
            let now = self.now;
            self.nodes.iter_mut().for_each(|node| node.tick(now));
        }
        self.now = until;
    }

    fn step(&mut self) -> bool {
        let mut busy = false;
        for me in 0..self.nodes.len() {
            while let Some(action) = self.nodes[me].poll() {
                busy = true;
                self.act(me, action);
            }
        }
        busy
    }

    fn act(&mut self, me: usize, action: Action) {
        let now = self.now;
        match action {
            Action::Dial(dial, to) => {
                self.dialled.push((me, to.clone()));
                assert!(self.dialled.len() < 1000, "dials without end: {:?}", &self.dialled[990..]);
                match self.leads.get(&to).copied().unwrap_or(There::Fails) {
                    There::Node(there) => {
                        let end = self.ends.len() as u64;
                        self.ends.extend([Some(me), Some(there)]);
                        self.nodes[me].dialled(now, dial, SocketId(end));
                        self.nodes[there].accepted(now, SocketId(end + 1));
                        if self.near {
                            self.nodes[me].is_near(SocketId(end));
                            self.nodes[there].is_near(SocketId(end + 1));
                        }
                    }
                    There::Refuses => self.nodes[me].dial_refused(now, dial, self.near, "refused".to_owned()),
                    There::Fails => self.nodes[me].dial_failed(now, dial, "no answer".to_owned()),
                    There::Pends => self.pending.push((me, dial)),
                }
            }
            Action::Write(socket) => self.write(me, socket),
            Action::Close(socket, _) => {
                self.write(me, socket);
                self.close(socket.0 as usize);
            }
            Action::Connection(_, state) => self.states.push((me, now, state)),
            _ => {}
        }
    }

    fn write(&mut self, me: usize, socket: SocketId) {
        let mut out = Vec::new();
        while self.nodes[me].fill(self.now, socket, 64 << 10, &mut out) > 0 {}
        let other = socket.0 ^ 1;
        if let Some(there) = self.ends[other as usize] {
            out.into_iter().for_each(|bytes| self.nodes[there].received(self.now, SocketId(other), bytes));
        }
    }

    fn close(&mut self, end: usize) {
        for end in [end, end ^ 1] {
            if let Some(node) = self.ends[end].take() {
                self.nodes[node].closed(self.now, SocketId(end as u64));
            }
        }
    }

    /// Cuts all sockets, and nothing else.
    fn cut(&mut self) {
        (0..self.ends.len()).for_each(|end| self.close(end));
    }

    /// How long after `begun` the connection of that node ended, and why.
    fn down(&self, me: usize, begun: Time) -> Option<(Duration, Down)> {
        self.states.iter().find_map(|(node, at, state)| match state {
            State::Down(why) if *node == me => Some((at.since(begun), why.clone())),
            _ => None,
        })
    }

    fn is_down(&self) -> bool {
        self.states.iter().any(|(.., state)| matches!(state, State::Down(_)))
    }
}

fn face(face: Face) -> Declaration {
    Declaration { face, shared: false, expects: Expected::Unknown, schema: Bytes::new() }
}

/// No process listens where node 1 did, as if it had ended: it cannot dial either.
fn killed(net: &mut Net) -> Time {
    for there in net.leads.values_mut() {
        *there = if matches!(there, There::Node(1) | There::Refuses) { There::Refuses } else { There::Fails };
    }
    net.cut();
    net.now
}

/// The node had not ended after all.
fn revived(net: &mut Net) {
    for (address, there) in &mut net.leads {
        *there = There::Node(usize::from(!address.contains('0')));
    }
}

#[test]
fn a_node_is_dead_when_its_own_address_refuses_twice_a_second_apart() {
    let mut net = Net::new(false, |_, _| {});
    let begun = killed(&mut net);
    net.run_for(SECOND - Duration::from_millis(1));
    assert!(!net.is_down(), "{:?}", net.states);
    net.run_for(GRACE);
    let (took, why) = net.down(0, begun).expect("the connection has ended");
    assert_eq!((took, why), (SECOND, Down::Died("n1".to_owned())));
}

#[test]
fn refusal_on_one_host_proves_a_node_dead_at_once_in_either_direction() {
    for survivor in 0..2 {
        let mut net = Net::new(true, |_, _| {});
        net.leads.insert(address(1 - survivor), There::Refuses);
        net.cut();
        let begun = net.now;
        net.run_for(Duration::from_millis(1));
        let (took, why) = net.down(survivor, begun).expect("the connection has ended");
        assert_eq!((took, why), (Duration::ZERO, Down::Died(address(1 - survivor))));
    }
}

#[test]
fn a_dialled_node_has_not_reached_a_dialler_on_another_host() {
    let mut net = Net::new(false, |_, _| {});
    net.leads.insert(address(0), There::Refuses);
    // (The first node cannot dial either, so it is as if it had ended.)
    net.leads.insert(address(1), There::Fails);
    net.cut();
    let begun = net.now;
    net.run_for(2 * GRACE);
    assert_eq!(net.down(1, begun).expect("the connection has ended").0, GRACE);
    assert!(net.dialled.contains(&(1, address(0))), "{:?}", net.dialled);
}

#[test]
fn a_peer_may_set_how_far_apart_refusals_have_to_be() {
    for refused in [Duration::ZERO, 3 * SECOND, 60 * SECOND] {
        let mut net = Net::new(false, |_, config| config.refused = refused);
        let begun = killed(&mut net);
        net.run_for(2 * GRACE);
        let (took, why) = net.down(0, begun).expect("the connection has ended");
        assert_eq!(took, refused.min(GRACE), "{why}");
        assert_eq!(matches!(why, Down::Died(_)), refused < GRACE, "{why}");
    }
}

/// The node advertises an address that it has not bound: that of a proxy, or of a router.
#[test]
fn an_advertised_address_that_refuses_for_five_seconds_goes_unnoticed() {
    for near in [false, true] {
        let mut net = Net::new(near, |_, config| config.bound.clear());
        killed(&mut net);
        net.run_for(5 * SECOND);
        assert!(net.dialled.len() > 5, "{:?}", net.dialled);
        revived(&mut net);
        net.run_for(2 * SECOND);
        let told: Vec<_> = net.states.iter().map(|(_, _, state)| state).collect();
        assert!(!net.is_down() && told.iter().any(|state| **state == State::Resumed), "{told:?}");
    }
}

/// The node advertises its own address beside that of the proxy, and its own cannot be reached from here.
#[test]
fn an_address_that_was_never_reached_does_not_count() {
    let mut net = Net::new(false, |node, config| {
        config.addresses = vec![format!("proxy of n{node}"), format!("inside n{node}")];
        config.bound = vec![format!("inside n{node}")];
    });
    killed(&mut net);
    net.run_for(5 * SECOND);
    assert!(net.dialled.contains(&(0, "inside n1".to_owned())), "{:?}", net.dialled);
    revived(&mut net);
    net.run_for(2 * SECOND);
    assert!(!net.is_down(), "{:?}", net.states);
}

#[test]
fn refusals_between_failed_dials_do_not_prove_a_node_dead() {
    let mut net = Net::new(false, |_, _| {});
    let begun = killed(&mut net);
    // From time to time a dial has no answer at all.
    for _ in 0..40 {
        net.leads.insert(address(1), There::Refuses);
        net.run_for(Duration::from_millis(300));
        net.leads.insert(address(1), There::Fails);
        net.run_for(SECOND);
    }
    let (took, why) = net.down(0, begun).expect("the connection has ended");
    assert_eq!(took, GRACE, "{why}");
    assert!(matches!(why, Down::Unreachable(..)), "{why}");
}

#[test]
fn a_live_node_that_refuses_for_less_than_a_second_goes_unnoticed() {
    let mut net = Net::new(false, |_, _| {});
    for _ in 0..5 {
        killed(&mut net);
        net.run_for(Duration::from_millis(900));
        revived(&mut net);
        net.run_for(2 * SECOND);
        assert!(net.nodes[0].carried_by(NodeId(2)).is_some());
    }
    assert!(!net.is_down(), "{:?}", net.states);
}

#[test]
fn node_is_dead_only_if_all_addresses_where_it_was_reached_refuse() {
    let mut net = Net::new(true, |node, config| {
        config.addresses = vec![address(node), format!("n{node}b")];
        config.bound = config.addresses.clone();
    });
    killed(&mut net);
    net.leads.insert("n1b".to_owned(), There::Node(1));
    net.run_for(SECOND);
    assert!(!net.is_down() && net.nodes[0].carried_by(NodeId(2)).is_some(), "{:?}", net.states);
    let begun = killed(&mut net);
    net.run_for(SECOND);
    assert!(matches!(net.down(0, begun), Some((_, Down::Died(_)))), "{:?} {:?}", net.states, net.dialled);
}

/// A node that is started again has another id.
#[test]
fn another_node_at_its_address_proves_a_node_dead() {
    for near in [false, true] {
        let mut net = Net::new(near, |_, _| {});
        let begun = killed(&mut net);
        net.start(9, 1, |config| config.addresses = vec![address(1)]);
        net.leads.insert(address(1), There::Node(2));
        net.run_for(2 * GRACE);
        let (took, why) = net.down(0, begun).expect("the connection has ended");
        assert_eq!(why, Down::Died("n1".to_owned()));
        assert_eq!(took, if near { Duration::ZERO } else { SECOND });
    }
}

/// If the node was alive after all, both connect again.
#[test]
fn live_node_that_was_taken_for_dead_is_connected_again() {
    let mut net = Net::new(true, |_, _| {});
    killed(&mut net);
    net.run_for(2 * SECOND);
    assert!(matches!(net.down(0, net.now), Some((_, Down::Died(_)))));
    revived(&mut net);
    let now = net.now;
    net.nodes[0].connect(now, NodeId(2));
    // The other node knows this one's address only by report, and dials there once a second.
    net.run_for(2 * SECOND);
    let last = |me: usize| net.states.iter().filter(|(node, ..)| *node == me).map(|(.., state)| state).next_back();
    assert!(matches!((last(0), last(1)), (Some(State::Up(_)), Some(State::Up(_)))), "{:?}", net.states);
}

/// The other side has dialled in between.
#[test]
fn refusals_before_and_after_a_socket_do_not_add_up() {
    let mut net = Net::new(false, |_, _| {});
    net.leads.insert(address(1), There::Refuses);
    net.cut();
    net.run_for(2 * SECOND);
    assert_eq!(net.dialled.iter().filter(|dialled| **dialled == (0, address(1))).count(), 2, "{:?}", net.dialled);
    assert!(net.nodes[0].carried_by(NodeId(2)).is_some());
    net.leads.insert(address(0), There::Fails);
    net.cut();
    net.run_for(SECOND / 2);
    assert!(!net.is_down(), "{:?}", net.states);
}

/// A sender here asks its sponsor for its home, after the node that dies next has reported that the home is
/// not there: the question is no reason to dial that node again.
#[test]
fn a_dead_node_is_not_dialled_while_another_one_is_asked() {
    for near in [false, true] {
        let mut net = Net::new(near, |_, _| {});
        let (asked, sponsor) = (ChannelId(8), NodeId(3));
        let now = net.now;
        net.nodes[0].learn(sponsor, &["sponsor".to_owned()]);
        let place = SenderPlace {
            trip: 1,
            transfer: 1,
            epoch: 0,
            home: NodeId(2),
            addresses: vec![address(1)],
            sponsor,
            sponsor_addresses: vec!["sponsor".to_owned()],
        };
        let giver = net.nodes[0].contact(NodeId(2));
        net.nodes[0].sender_arrives(now, asked, place, giver);
        net.nodes[0].use_sender(now, asked);
        net.run_for(SECOND);
        let to = |net: &Net, address: &str| net.dialled.iter().filter(|(_, to)| to == address).count();
        assert!(to(&net, "sponsor") > 1, "the sponsor is asked: {:?}", net.dialled);
        let begun = killed(&mut net);
        let before = to(&net, "n1");
        net.run_for(5 * SECOND);
        assert!(matches!(net.down(0, begun), Some((_, Down::Died(_)))), "{:?}", net.states);
        assert!(net.nodes[0].has_half(asked), "the half waits for the sponsor");
        let dials = to(&net, "n1") - before;
        assert!(dials < 15, "near: {near}: {dials} dials");
        let deaths = net.states.iter().filter(|(.., state)| matches!(state, State::Down(_))).count();
        assert_eq!(deaths, 1, "near: {near}: {:?}", net.states);
    }
}

/// The other side dials while a dial to it is on its way. The outcome of that dial has no effect on the next
/// loss.
#[test]
fn a_refusal_that_comes_while_a_socket_is_up_does_not_count() {
    let mut net = Net::new(false, |_, _| {});
    net.leads.insert(address(1), There::Pends);
    net.leads.insert(address(0), There::Fails);
    net.cut();
    net.run_for(SECOND / 2);
    net.leads.insert(address(0), There::Node(0));
    net.run_for(SECOND);
    assert!(net.nodes[0].carried_by(NodeId(2)).is_some(), "{:?}", net.states);
    let (now, pending) = (net.now, std::mem::take(&mut net.pending));
    assert_eq!(pending.len(), 1);
    net.nodes[0].dial_refused(now, pending[0].1, false, "refused".to_owned());
    net.run_for(2 * SECOND);
    net.leads.insert(address(1), There::Refuses);
    net.leads.insert(address(0), There::Fails);
    net.cut();
    net.run_for(SECOND / 2);
    assert!(!net.is_down(), "{:?}", net.states);
    revived(&mut net);
    net.run_for(2 * SECOND);
    assert!(net.nodes[0].carried_by(NodeId(2)).is_some() && !net.is_down(), "{:?}", net.states);
}

/// What answers at an address of a connection that was up, other than the node itself: another application,
/// or the dialler.
const OTHERS: [usize; 2] = [2, 0];

/// Two nodes; and a third one, of another application, at no address.
fn with_a_stranger(change: impl Fn(usize, &mut Config)) -> Net {
    let mut net = Net::new(false, change);
    net.start(9, 1, |config| config.application = "another".to_owned());
    net
}

/// A loopback address that a node in a container advertises leads to the dialler's own host.
#[test]
fn another_application_at_an_unreached_address_does_not_prove_death() {
    for other in OTHERS {
        for near in [false, true] {
            let mut net = with_a_stranger(|node, config| {
                config.addresses = vec![format!("proxy of n{node}"), format!("inside n{node}")];
                config.bound = vec![format!("inside n{node}")];
            });
            killed(&mut net);
            net.near = near;
            net.leads.insert("inside n1".to_owned(), There::Node(other));
            net.leads.insert("inside n0".to_owned(), There::Fails);
            net.run_for(5 * SECOND);
            assert!(net.dialled.contains(&(0, "inside n1".to_owned())), "{:?}", net.dialled);
            assert!(!net.is_down(), "{other} {near}: {:?}", net.states);
            net.leads.insert("proxy of n0".to_owned(), There::Node(0));
            net.run_for(2 * SECOND);
            assert!(!net.is_down() && net.nodes[0].carried_by(NodeId(2)).is_some(), "{other} {near}: {:?}", net.states);
        }
    }
}

/// At an address where the node was reached, it proves as much as a refusal.
#[test]
fn another_application_at_its_own_address_proves_a_node_dead() {
    for other in OTHERS {
        let mut net = with_a_stranger(|_, _| {});
        let begun = killed(&mut net);
        net.leads.insert(address(1), There::Node(other));
        net.run_for(SECOND / 2);
        assert!(!net.is_down(), "{other}: {:?}", net.states);
        net.run_for(2 * GRACE);
        assert_eq!(net.down(0, begun), Some((SECOND, Down::Died("n1".to_owned()))), "{other}");
    }
}

/// A connection that was never up loses nothing by that answer.
#[test]
fn first_dial_fails_at_once_at_another_application() {
    let mut net = with_a_stranger(|_, _| {});
    let (now, begun) = (net.now, net.now);
    net.leads.insert("elsewhere".to_owned(), There::Node(2));
    net.nodes[0].learn(NodeId(8), &["elsewhere".to_owned()]);
    net.nodes[0].connect(now, NodeId(8));
    net.run_for(SECOND);
    let why = Refusal::Application("another".to_owned());
    assert_eq!(net.down(0, begun), Some((Duration::ZERO, Down::Refused(why))));
}

/// A peer on the host causes dials to addresses of its choice: few for each life, and few at once.
#[test]
fn peers_cause_few_dials_that_only_learn_whether_they_are_reached() {
    let mut net = Net::new(true, |_, _| {});
    for peer in 0..20 {
        net.start(10 + peer, 1, |config| {
            config.addresses = (0..8).map(|n| format!("listens at {peer} {n}")).collect();
            config.bound = config.addresses.clone();
        });
        for address in net.nodes.last().unwrap().addresses_here().to_vec() {
            net.leads.insert(address, There::Pends);
        }
        let (now, node) = (net.now, net.nodes.last_mut().unwrap());
        node.learn(NodeId(1), &[address(0)]);
        node.connect(now, NodeId(1));
        net.run_for(SECOND);
    }
    let up = net.states.iter().filter(|(node, _, state)| *node == 0 && matches!(state, State::Up(_))).count();
    assert_eq!(up, 21);
    assert_eq!(net.pending.iter().filter(|(node, _)| *node == 0).count(), 64);
}

/// Only this node acts.
fn acts(net: &mut Net, me: usize) {
    while let Some(action) = net.nodes[me].poll() {
        net.act(me, action);
    }
}

/// Two nodes, where the first may send eight values into a buffer of the second.
fn with_credit() -> Net {
    let mut net = Net::new(false, |_, _| {});
    net.nodes[1].credit(net.now, CHANNEL, NodeId(1), 8);
    net.run_for(SECOND);
    net
}

#[test]
fn goodbye_acknowledges_all_values_that_were_heard_before_it() {
    let mut net = with_credit();
    assert!(net.nodes[0].send_on_credit(net.now, CHANNEL, Bytes::from_static(b"first")));
    acts(&mut net, 0);
    // The first value is acknowledged with this, so no acknowledgement of the second is due for a while.
    net.nodes[1].credit(net.now, CHANNEL, NodeId(1), 1);
    acts(&mut net, 1);
    assert!(net.nodes[0].send_on_credit(net.now, CHANNEL, Bytes::from_static(b"second")));
    acts(&mut net, 0);
    let (mut mark, mut lost) = (net.nodes[0].mark(), Vec::new());
    assert!(!net.nodes[0].is_past(&mut mark, &mut lost));
    net.nodes[1].leave(net.now);
    acts(&mut net, 1);
    assert!(net.nodes[0].is_past(&mut mark, &mut lost));
    assert_eq!(lost, []);
}

#[test]
fn only_values_are_lost_if_they_cross_a_goodbye() {
    for sends in [false, true] {
        let mut net = with_credit();
        if sends {
            assert!(net.nodes[0].send_on_credit(net.now, CHANNEL, Bytes::from_static(b"a value")));
        }
        net.nodes[0].end_proxy(net.now, CHANNEL, End::Gone);
        let (mut mark, mut lost) = (net.nodes[0].mark(), Vec::new());
        net.nodes[1].leave(net.now);
        acts(&mut net, 1);
        assert!(net.nodes[0].is_past(&mut mark, &mut lost));
        assert_eq!(lost, if sends { vec![NodeId(2)] } else { vec![] });
    }
}
