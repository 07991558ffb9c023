//! Bugs of the protocol that the simulator, or a review, found: one scene each, played by hand with two
//! machines. Seeds would shift with every change of the code; these scenes stay.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use dunlin_proto::id::{ChannelId, Contact, DialId, Incarnation, Life, NodeId, SocketId};
use dunlin_proto::identity::{Identity, StandIn, confirm};
use dunlin_proto::time::Time;
use dunlin_proto::wire::handshake::{Answer, Bound, Hello, Refusal, Resume};
use dunlin_proto::wire::{Declaration, End, Expected, Face, Failure, Frame, Head, Terms, ToHome, VERSIONS, codec};
use dunlin_proto::{Action, Config, Down, HomeHears, Leaving, Machine, ProxyHears, State};

const CHANNEL: ChannelId = ChannelId(7);

fn id(node: usize) -> NodeId {
    NodeId(node as u128 + 1)
}

fn machine(config: Config, node: usize, incarnation: u64) -> Machine {
    StandIn::machine(config, Life { node: id(node), incarnation: Incarnation(incarnation) }, 1)
}

fn config() -> Config {
    Config::new("regressions")
}

fn face() -> Declaration {
    Declaration { face: Face::Sender, shared: false, expects: Expected::Unknown, schema: Bytes::new() }
}

fn terms(window: u32, credits: u32) -> Terms {
    Terms { window, credits, value_max: 1 << 20 }
}

fn hello(me: Life, wanted: NodeId) -> Hello {
    Hello {
        versions: VERSIONS,
        application: "regressions".into(),
        me,
        wanted,
        met: Incarnation(0),
        attempt: 1,
        resume: Resume { run: 1, seen: 0, ..Resume::default() },
        addresses: Vec::new(),
        bound: Bound::default(),
        key: StandIn::of(me.node).key(),
        nonce: 1,
        signature: Bytes::new(),
    }
}

/// The machine receives this `Hello`. Returns the dialler's first frame after `Welcome`, if it was welcome.
fn confirmed(machine: &mut Machine, now: Time, socket: SocketId, hello: &Hello) -> Bytes {
    machine.received(now, socket, StandIn::says(hello));
    let mut answer = Vec::new();
    machine.fill(now, socket, 1 << 16, &mut answer);
    let mut first = BytesMut::new();
    if let Ok(Some(answer @ Answer::Welcome(_))) = Answer::decode(&mut BytesMut::from(&answer.concat()[..]))
        && hello.wanted != NodeId(0)
    {
        codec::encode(&confirm(&StandIn::of(hello.me.node), &StandIn::says(hello), &answer), &mut first);
    }
    first.freeze()
}

/// Two machines, sockets without delay, and the events of both.
struct Pair {
    nodes: [Machine; 2],
    now: Time,
    /// Ends of sockets: even ones have dialled. `None`: closed.
    ends: Vec<Option<usize>>,
    /// Dials that wait for an answer, while they are held.
    dials: VecDeque<(usize, DialId, usize)>,
    holds_dials: bool,
    /// Ends whose bytes are held back.
    holds_writes: bool,
    heard: Vec<(usize, Action)>,
}

impl Pair {
    fn new(config: &Config) -> Self {
        Self {
            nodes: [machine(config.clone(), 0, 1), machine(config.clone(), 1, 1)],
            now: Time(0),
            ends: Vec::new(),
            dials: VecDeque::new(),
            holds_dials: false,
            holds_writes: false,
            heard: Vec::new(),
        }
    }

    /// A pair that is attached: node 1 has the receiver, node 0 the sender.
    fn attached(config: &Config, terms: Terms) -> Self {
        let mut pair = Self::new(config);
        pair.nodes[1].open_home(CHANNEL, terms, face(), false).unwrap();
        pair.knows(0, 1);
        pair.attach();
        pair.run();
        assert!(pair.proxy_heard().contains(&ProxyHears::Attached(terms)));
        pair
    }

    fn knows(&mut self, node: usize, other: usize) {
        self.nodes[node].learn(id(other), &[other.to_string()]);
    }

    fn attach(&mut self) {
        self.nodes[0].attach(self.now, CHANNEL, id(1), face()).unwrap();
    }

    fn offer(&mut self, ticket: u64, value: &'static [u8]) {
        self.nodes[0].offer(self.now, CHANNEL, ticket, Bytes::from_static(value));
    }

    /// The end with which a node carries its connection to the other one.
    fn carrier(&self, node: usize) -> usize {
        self.nodes[node].carried_by(id(1 - node)).expect("it is connected").0 as usize
    }

    fn answer(&mut self, by: usize, dial: DialId, to: usize) {
        let end = self.ends.len();
        self.ends.extend([Some(by), Some(to)]);
        self.nodes[by].dialled(self.now, dial, SocketId(end as u64));
        self.nodes[to].accepted(self.now, SocketId(end as u64 + 1));
    }

    /// A node that the test plays dials another one. Returns that node's end.
    fn dialled_by(&mut self, node: usize, me: Life) -> usize {
        let end = self.ends.len() + 1;
        self.ends.extend([None, Some(node)]);
        self.nodes[node].accepted(self.now, SocketId(end as u64));
        let hello = hello(me, id(node));
        let confirmed = confirmed(&mut self.nodes[node], self.now, SocketId(end as u64), &hello);
        self.run();
        self.nodes[node].received(self.now, SocketId(end as u64), confirmed);
        self.run();
        end
    }

    fn write(&mut self, end: usize) {
        let Some(from) = self.ends[end] else { return };
        let mut out = Vec::new();
        while self.nodes[from].fill(self.now, SocketId(end as u64), 64 << 10, &mut out) > 0 {}
        if let Some(to) = self.ends[end ^ 1] {
            out.into_iter().for_each(|bytes| self.nodes[to].received(self.now, SocketId(end as u64 ^ 1), bytes));
        }
    }

    fn close(&mut self, end: usize) {
        if let Some(node) = self.ends[end].take() {
            self.nodes[node].closed(self.now, SocketId(end as u64));
        }
    }

    /// Closes both sides of the socket that carries their connection; what was written on it and not read is
    /// lost.
    fn cut(&mut self) {
        let end = self.carrier(0);
        self.close(end);
        self.close(end ^ 1);
    }

    fn run(&mut self) {
        loop {
            let Some((node, action)) = (0..2).find_map(|node| Some((node, self.nodes[node].poll()?))) else { return };
            match action {
                Action::Dial(dial, address) => {
                    let to = address.parse().expect("addresses are numbers here");
                    self.dials.push_back((node, dial, to));
                    if !self.holds_dials {
                        self.answer_all();
                    }
                }
                Action::Write(socket) if !self.holds_writes => self.write(socket.0 as usize),
                Action::Write(_) => {}
                Action::Close(socket, _) => {
                    let end = socket.0 as usize;
                    self.write(end);
                    self.close(end);
                    self.close(end ^ 1);
                }
                told => self.heard.push((node, told)),
            }
        }
    }

    fn answer_all(&mut self) {
        while let Some((by, dial, to)) = self.dials.pop_front() {
            self.answer(by, dial, to);
        }
    }

    /// Time passes, and all timers expire.
    fn wait(&mut self, wait: Duration) {
        let until = self.now + wait;
        while let Some(due) = self.nodes.iter().filter_map(Machine::next_tick).min()
            && due <= until
        {
            self.now = self.now.max(due);
            (0..2).for_each(|node| self.nodes[node].tick(self.now));
            self.run();
        }
        self.now = until;
    }

    fn proxy_heard(&self) -> Vec<ProxyHears> {
        let heard = self.heard.iter().filter_map(|(_, action)| match action {
            Action::Proxy(_, heard) => Some(heard.clone()),
            _ => None,
        });
        heard.collect()
    }

    fn home_heard(&self) -> Vec<HomeHears> {
        let heard = self.heard.iter().filter_map(|(_, action)| match action {
            Action::Home(_, _, heard) => Some(heard.clone()),
            _ => None,
        });
        heard.collect()
    }

    fn states(&self, of: usize) -> Vec<State> {
        let states = self.heard.iter().filter_map(|(node, action)| match action {
            Action::Connection(_, state) if *node == of => Some(state.clone()),
            _ => None,
        });
        states.collect()
    }

    fn deaths(&self) -> usize {
        (0..2).flat_map(|node| self.states(node)).filter(|state| matches!(state, State::Down(_))).count()
    }
}

/// A half that was dropped while its offers waited for the window reported the drop before them, and the home
/// treated the rest as a violation.
#[test]
fn dropped_half_reports_its_end_after_its_offers() {
    let mut pair = Pair::attached(&config(), terms(1, 0));
    (1..=3).for_each(|ticket| pair.offer(ticket, b"shoal"));
    pair.nodes[0].end_proxy(pair.now, CHANNEL, End::Gone);
    for ticket in 1..=3 {
        pair.run();
        assert!(pair.home_heard().contains(&HomeHears::Offered(ticket, Bytes::from_static(b"shoal"))), "{ticket}");
        pair.nodes[1].taken(pair.now, CHANNEL, id(0), ticket);
    }
    pair.run();
    assert_eq!(pair.home_heard().last(), Some(&HomeHears::Ended(End::Gone)));
    assert_eq!((pair.deaths(), pair.nodes[0].census().proxies), (0, 0));
}

/// A goodbye overtook the values that waited: a node that left in good order lost what it had sent on
/// credits.
#[test]
fn goodbye_follows_values_sent_on_credits() {
    let mut pair = Pair::attached(&config(), terms(1, 3));
    pair.holds_writes = true;
    for _ in 0..3 {
        assert!(pair.nodes[0].send_on_credit(pair.now, CHANNEL, Bytes::from_static(b"egg")));
    }
    pair.nodes[0].leave(pair.now);
    pair.run();
    pair.holds_writes = false;
    pair.write(pair.carrier(0));
    pair.run();
    let sent = pair.home_heard().iter().filter(|heard| matches!(heard, HomeHears::Sent(_))).count();
    assert_eq!((sent, pair.states(1).last()), (3, Some(&State::Down(Down::Left))));
    assert_eq!(pair.states(0).last(), Some(&State::Down(Down::Left)), "its last frame was acknowledged");
}

/// A node that left while its socket was gone lost what it had sent.
#[test]
fn a_leaving_node_reconnects_to_send_the_rest() {
    let mut pair = Pair::attached(&config(), terms(1, 1));
    pair.holds_writes = true;
    assert!(pair.nodes[0].send_on_credit(pair.now, CHANNEL, Bytes::from_static(b"egg")));
    pair.nodes[0].leave(pair.now);
    pair.run();
    pair.cut();
    pair.holds_writes = false;
    pair.run();
    pair.wait(Duration::from_secs(1));
    assert!(pair.home_heard().contains(&HomeHears::Sent(Bytes::from_static(b"egg"))));
    assert_eq!(pair.states(1).last(), Some(&State::Down(Down::Left)));
}

/// A connection that came up after the node had left received no goodbye.
#[test]
fn a_late_connection_receives_the_goodbye() {
    let mut pair = Pair::new(&config());
    pair.nodes[1].open_home(CHANNEL, terms(1, 0), face(), false).unwrap();
    pair.knows(0, 1);
    pair.holds_dials = true;
    pair.attach();
    pair.nodes[0].leave(pair.now);
    pair.run();
    pair.answer_all();
    pair.run();
    assert!(pair.home_heard().contains(&HomeHears::Attached));
    assert_eq!(pair.states(1).last(), Some(&State::Down(Down::Left)));
}

/// A node connected to a restarted one before the first socket of a life: it dropped the frames that waited,
/// and its proxies waited for ever.
#[test]
fn a_restart_before_the_first_socket_loses_nothing() {
    let mut pair = Pair::attached(&config(), terms(1, 0));
    pair.nodes[1] = machine(config(), 1, 2);
    pair.ends.fill(None);
    pair.holds_dials = true;
    pair.wait(Duration::from_secs(60));
    assert!(matches!(pair.states(0).last(), Some(State::Down(Down::Unreachable(..)))));
    // A new life; its dial hangs, and the other node, started again, dials itself.
    pair.attach();
    pair.run();
    pair.dials.clear();
    pair.holds_dials = false;
    pair.nodes[1].open_home(CHANNEL, terms(5, 0), face(), false).unwrap();
    pair.knows(1, 0);
    pair.nodes[1].connect(pair.now, id(0));
    pair.run();
    assert_eq!(pair.proxy_heard().last(), Some(&ProxyHears::Attached(terms(5, 0))));
}

/// A node that waited for a connection did not dial an address that it learned meanwhile.
#[test]
fn a_late_address_is_dialled() {
    let mut pair = Pair::new(&config());
    pair.nodes[1].open_home(CHANNEL, terms(1, 0), face(), false).unwrap();
    pair.attach();
    pair.run();
    pair.knows(0, 1);
    pair.wait(Duration::ZERO);
    assert_eq!(pair.proxy_heard(), [ProxyHears::Attached(terms(1, 0))]);
}

/// An address that led back to the node itself ended the attempt, although the next address was right.
#[test]
fn address_of_the_node_itself_does_not_end_the_attempt() {
    let mut pair = Pair::new(&config());
    pair.nodes[0].learn(id(1), &["0".into(), "1".into()]);
    pair.nodes[0].connect(pair.now, id(1));
    pair.run();
    pair.wait(Duration::from_secs(1));
    assert!(matches!(pair.states(0)[..], [State::Up(_)]), "{:?}", pair.states(0));
}

/// A hello that arrived after a later socket of the other side had been used ended a healthy connection.
#[test]
fn a_late_hello_has_no_effect() {
    let mut pair = Pair::new(&config());
    pair.nodes[1].open_home(CHANNEL, terms(4, 0), face(), false).unwrap();
    pair.knows(0, 1);
    pair.knows(1, 0);
    // Node 1 dials, and sends hello; node 0 is notified of the socket only at the end.
    pair.holds_dials = true;
    pair.nodes[1].connect(pair.now, id(0));
    pair.run();
    let (_, dial, _) = pair.dials.pop_front().expect("it has dialled");
    let late = pair.ends.len();
    pair.ends.extend([Some(1), None]);
    pair.nodes[1].dialled(pair.now, dial, SocketId(late as u64));
    let mut hello = Vec::new();
    pair.nodes[1].fill(pair.now, SocketId(late as u64), 1 << 10, &mut hello);
    // Meanwhile node 0 dials, and they exchange frames.
    pair.holds_dials = false;
    pair.attach();
    pair.run();
    pair.offer(1, b"reef");
    pair.run();
    pair.nodes[1].taken(pair.now, CHANNEL, id(0), 1);
    pair.run();
    pair.wait(Duration::from_secs(2));
    pair.ends[late + 1] = Some(0);
    pair.nodes[0].accepted(pair.now, SocketId(late as u64 + 1));
    for bytes in hello {
        pair.nodes[0].received(pair.now, SocketId(late as u64 + 1), bytes);
    }
    pair.run();
    for node in 0..2 {
        assert!(matches!(pair.states(node)[..], [State::Up(_)]), "node {node}: {:?}", pair.states(node));
    }
}

/// A node ran on in an earlier life. A node that knew the later life refused it, and one that had not
/// admitted it. There it answered for the later life, and reported that a home was not here: a sender waited
/// for ever (seed 61193368).
#[test]
fn an_earlier_life_that_is_refused_ends_all_its_connections() {
    let mut pair = Pair::attached(&config(), terms(1, 0));
    pair.offer(1, b"shoal");
    pair.run();
    let somebody = pair.dialled_by(0, Life { node: id(2), incarnation: Incarnation(1) });
    assert!(pair.nodes[0].carried_by(id(2)).is_some());
    // Node 1 connects to the later life, and the earlier one dials it again.
    pair.dialled_by(1, Life { node: id(0), incarnation: Incarnation(2) });
    pair.run();
    pair.wait(Duration::from_secs(1));
    let told = |wanted: &Action| pair.heard.iter().filter(|(node, told)| *node == 0 && told == wanted).count();
    let down = State::Down(Down::Refused(Refusal::Stale(Incarnation(2))));
    assert_eq!(pair.nodes[0].replaced_by(), Some(Incarnation(2)));
    assert_eq!([1, 2].map(|other| told(&Action::Connection(id(other), down.clone()))), [1, 1], "{:?}", pair.heard);
    assert!(matches!(pair.proxy_heard().last(), Some(ProxyHears::Lost { unknown, .. }) if unknown == &[1]));
    assert!(pair.ends[somebody].is_none());
    // It no longer admits or dials any node.
    pair.dialled_by(0, Life { node: id(3), incarnation: Incarnation(1) });
    pair.holds_dials = true;
    pair.attach();
    pair.run();
    pair.wait(Duration::ZERO);
    assert_eq!((pair.nodes[0].census().sockets, pair.dials.len()), (0, 0));
    assert!(matches!(pair.proxy_heard().last(), Some(ProxyHears::Lost { .. })), "{:?}", pair.proxy_heard());
}

/// After a socket was replaced, a machine kept reporting that it had something to write, and wrote nothing.
#[test]
fn after_a_resume_nothing_is_left_to_acknowledge() {
    let mut pair = Pair::attached(&config(), terms(8, 0));
    pair.holds_writes = true;
    for ticket in 1..=4 {
        pair.nodes[0].offer(pair.now, CHANNEL, ticket, Bytes::from(vec![1; 30 << 10]));
    }
    // They arrive, and the cut comes before any acknowledgement.
    let end = pair.carrier(0);
    pair.write(end);
    pair.run();
    pair.cut();
    pair.holds_writes = false;
    pair.run();
    pair.wait(Duration::from_secs(1));
    for node in 0..2 {
        let socket = pair.nodes[node].carried_by(id(1 - node)).expect("it has resumed");
        assert!(!pair.nodes[node].has_something(pair.now, socket), "node {node}");
    }
}

/// Frames of a home to a half that is gone reached the next half: credits that it had never been granted.
#[test]
fn a_new_half_does_not_receive_messages_to_the_previous_one() {
    let mut pair = Pair::attached(&config(), terms(1, 0));
    pair.holds_writes = true;
    pair.nodes[1].credit(pair.now, CHANNEL, id(0), 2);
    pair.nodes[0].end_proxy(pair.now, CHANNEL, End::Gone);
    pair.attach();
    pair.run();
    pair.holds_writes = false;
    let (one, other) = (pair.carrier(0), pair.carrier(1));
    pair.write(other);
    pair.write(one);
    pair.run();
    assert!(!pair.nodes[0].send_on_credit(pair.now, CHANNEL, Bytes::from_static(b"egg")));
    assert_eq!(pair.deaths(), 0);
}

/// A half that went before the home had answered its attachment was forgotten; the next one received two
/// answers, a violation.
#[test]
fn every_attachment_gets_its_own_answer() {
    let mut pair = Pair::new(&config());
    pair.nodes[1].open_home(CHANNEL, terms(1, 0), face(), false).unwrap();
    pair.knows(0, 1);
    pair.attach();
    pair.nodes[0].end_proxy(pair.now, CHANNEL, End::Gone);
    assert!(pair.nodes[0].has_half(CHANNEL), "its answer has not arrived");
    pair.run();
    assert!(!pair.nodes[0].has_half(CHANNEL));
    pair.attach();
    pair.run();
    assert_eq!((pair.deaths(), pair.nodes[1].census().attached), (0, 1));
}

/// A home that ended did not notify the halves that were gone; one that still waited for an outcome waited
/// for ever.
#[test]
fn a_waiting_half_that_is_gone_receives_the_end() {
    let mut pair = Pair::attached(&config(), terms(1, 0));
    pair.offer(1, b"shoal");
    pair.nodes[0].end_proxy(pair.now, CHANNEL, End::Gone);
    pair.run();
    pair.nodes[1].end_home(pair.now, CHANNEL, End::Gone);
    pair.run();
    assert_eq!(pair.proxy_heard().last(), Some(&ProxyHears::Ended(End::Gone)));
    let census = pair.nodes.each_ref().map(Machine::census);
    assert_eq!((census[0].proxies, census[0].offers, census[1].homes, census[1].offers), (0, 0, 0, 0));
}

/// A home answered a withdrawal after it had reported the channel as retired, which had settled the offer:
/// that broke the protocol.
#[test]
fn a_withdrawal_is_not_answered_after_the_end() {
    let mut pair = Pair::attached(&config(), terms(1, 0));
    pair.offer(1, b"shoal");
    pair.run();
    pair.nodes[0].withdraw(pair.now, CHANNEL, 1);
    pair.run();
    assert_eq!(pair.home_heard().last(), Some(&HomeHears::Withdraw(1)));
    pair.nodes[1].end_home(pair.now, CHANNEL, End::Retired);
    pair.nodes[1].withdrawn(pair.now, CHANNEL, id(0), 1);
    pair.run();
    assert_eq!(pair.proxy_heard().last(), Some(&ProxyHears::Ended(End::Retired)));
    assert_eq!(pair.deaths(), 0);
}

/// A value larger than the terms was sent, and ended the connection with all its channels.
#[test]
fn a_value_too_large_stays_at_its_sender() {
    let mut pair = Pair::attached(&config(), Terms { window: 2, credits: 1, value_max: 4 });
    assert!(!pair.nodes[0].send_on_credit(pair.now, CHANNEL, Bytes::from_static(b"whale")));
    pair.offer(1, b"whale");
    pair.nodes[0].offer_choice(pair.now, CHANNEL, 2, 1);
    pair.run();
    pair.nodes[1].reserve(pair.now, CHANNEL, id(0), 2, 1);
    pair.run();
    pair.nodes[0].grant(pair.now, CHANNEL, 2, 1, Bytes::from_static(b"whale"));
    pair.run();
    assert_eq!(pair.home_heard().last(), Some(&HomeHears::Withdraw(2)));
    pair.nodes[1].withdrawn(pair.now, CHANNEL, id(0), 2);
    pair.run();
    let told = [ProxyHears::Failed(1, Failure::TooLarge { max: 4 }), ProxyHears::Withdrawn(2)];
    assert!(told.iter().all(|told| pair.proxy_heard().contains(told)), "{:?}", pair.proxy_heard());
    assert_eq!(pair.deaths(), 0);
}

// What a peer that keeps to no rules can make a node keep.

/// A node that a peer has dialled, and that peer, which the test plays.
struct Prey {
    node: Machine,
    sockets: u64,
}

impl Prey {
    fn new(config: Config) -> Self {
        Self { node: machine(config, 0, 1), sockets: 0 }
    }

    /// A node of this number dials; `wanted`: for a connection, not only for an introduction.
    fn dialled_by(&mut self, number: u128, wanted: bool) -> SocketId {
        let socket = SocketId(self.sockets);
        self.sockets += 1;
        let me = Life { node: NodeId(number), incarnation: Incarnation(1) };
        let hello = hello(me, if wanted { id(0) } else { NodeId(0) });
        self.node.accepted(Time(0), socket);
        let confirmed = confirmed(&mut self.node, Time(0), socket, &hello);
        self.node.received(Time(0), socket, confirmed);
        socket
    }

    fn hears(&mut self, socket: SocketId, frame: &Frame) {
        let mut bytes = BytesMut::new();
        let piece = codec::encode(frame, &mut bytes);
        bytes.extend_from_slice(&piece.unwrap_or_default());
        self.node.received(Time(0), socket, bytes.freeze());
    }

    fn is_down(&mut self) -> bool {
        std::iter::from_fn(|| self.node.poll())
            .any(|action| matches!(action, Action::Connection(_, State::Down(Down::Violation(_)))))
    }
}

/// Every stranger left a record for ever, even if it only asked for an identity.
#[test]
fn strangers_leave_no_records() {
    let mut config = config();
    config.peers_max = 3;
    let mut prey = Prey::new(config);
    for number in 10..20 {
        prey.dialled_by(number, false);
    }
    let connected: Vec<bool> = (20..26)
        .map(|number| {
            prey.dialled_by(number, true);
            prey.node.carried_by(NodeId(number)).is_some()
        })
        .collect();
    assert_eq!(connected, [true, true, true, false, false, false]);
}

/// Heads of values on channels that are not there were counted for ever.
#[test]
fn values_in_pieces_have_a_bound() {
    let mut config = config();
    config.attached_max = 100;
    let mut prey = Prey::new(config);
    let socket = prey.dialled_by(10, true);
    for channel in 0..1000 {
        let value = ToHome::Value { head: Head::Offer(1), total: 2, first: Bytes::from_static(b"x") };
        prey.hears(socket, &Frame::ToHome(ChannelId(channel), value));
    }
    assert!(prey.is_down());
    assert_eq!(prey.node.census().unfinished, 0);
}

/// Answers to a peer that does not read them were kept without bound.
#[test]
fn unread_answers_are_bounded() {
    let mut config = config();
    config.unacked_max = 1000;
    let mut prey = Prey::new(config);
    let socket = prey.dialled_by(10, true);
    for channel in 0..100_000 {
        prey.hears(socket, &Frame::ToHome(ChannelId(channel), ToHome::Attach(face())));
    }
    assert!(prey.is_down());
}

/// The socket's time for the handshake was long over: the acknowledgement of a goodbye was dropped before it
/// was written.
#[test]
fn goodbye_acknowledgement_survives_a_tick() {
    let mut prey = Prey::new(config());
    let socket = prey.dialled_by(10, true);
    let mut goodbye = BytesMut::new();
    codec::encode(&Frame::Heartbeat, &mut goodbye);
    prey.node.received(Time(3_000_000), socket, goodbye.split().freeze());
    codec::encode(&Frame::Goodbye, &mut goodbye);
    prey.node.received(Time(6_000_000), socket, goodbye.freeze());
    prey.node.tick(Time(6_000_000));
    assert!(prey.node.fill(Time(6_000_000), socket, 100, &mut Vec::new()) > 0);
}

/// An end arrived in a message and was dropped at once: its home learned of the drop before it could send the
/// terms, and the record stayed.
#[test]
fn an_adopted_half_that_goes_at_once_leaves_nothing() {
    let mut pair = Pair::attached(&config(), terms(1, 0));
    let reply = ChannelId(8);
    pair.nodes[1].open_home_to(reply, terms(1, 0), face(), id(0));
    assert!(pair.nodes[0].adopt(reply, id(1), None));
    pair.nodes[0].end_proxy(pair.now, reply, End::Gone);
    pair.run();
    pair.nodes[1].tell_terms(pair.now, reply, id(0), terms(1, 0));
    pair.run();
    assert_eq!(pair.nodes[0].census().proxies, 1, "only the other channel's");
    assert_eq!(pair.deaths(), 0);
}

/// A receive asked again for an offer whose value had just arrived for the previous request: no request was
/// sent, and the offer stayed reserved for ever.
#[test]
fn new_reserve_aborts_the_grant_of_the_previous_request() {
    let mut pair = Pair::attached(&config(), terms(1, 0));
    pair.nodes[0].offer_choice(pair.now, CHANNEL, 1, 1);
    pair.run();
    pair.nodes[1].reserve(pair.now, CHANNEL, id(0), 1, 1);
    pair.run();
    pair.nodes[0].grant(pair.now, CHANNEL, 1, 1, Bytes::from_static(b"egg"));
    pair.run();
    pair.nodes[1].reserve(pair.now, CHANNEL, id(0), 1, 2);
    pair.run();
    assert_eq!(pair.proxy_heard()[2..], [ProxyHears::Abort(1), ProxyHears::Reserve(1, 2)]);
    pair.nodes[0].grant(pair.now, CHANNEL, 1, 2, Bytes::from_static(b"egg"));
    pair.run();
    assert_eq!(pair.home_heard().last(), Some(&HomeHears::Granted(1, 2, Bytes::from_static(b"egg"))));
}

/// The confirmation of a first socket was under way until the dialler had used another socket, and had left.
/// It was taken for that of a new connection, and the frames of that socket were received twice (seed
/// 7029823).
#[test]
fn a_late_confirmation_of_an_offer_that_was_taken_up_is_refused() {
    let (now, me) = (Time(0), Life { node: id(0), incarnation: Incarnation(1) });
    let mut node = machine(config(), 1, 1);
    let greet = |node: &mut Machine, socket, hello: &Hello| {
        node.accepted(now, socket);
        node.received(now, socket, StandIn::says(hello));
        let mut answer = Vec::new();
        node.fill(now, socket, 1 << 16, &mut answer);
        let answer = Answer::decode(&mut BytesMut::from(&answer.concat()[..]));
        let Ok(Some(answer @ Answer::Welcome(_))) = answer else { panic!("{answer:?}") };
        let mut first = BytesMut::new();
        codec::encode(&confirm(&StandIn::of(me.node), &StandIn::says(hello), &answer), &mut first);
        let Answer::Welcome(welcome) = answer else { unreachable!("it was matched above") };
        (first, welcome.resume.connection)
    };
    let once = hello(me, id(1));
    let (late, connection) = greet(&mut node, SocketId(1), &once);
    let again = Hello { attempt: 2, resume: Resume { connection, ..once.resume }, ..once };
    let (first, same) = greet(&mut node, SocketId(2), &again);
    assert_eq!(connection, same);
    node.received(now, SocketId(2), first.freeze());
    let mut goodbye = BytesMut::new();
    codec::encode(&Frame::Goodbye, &mut goodbye);
    node.received(now, SocketId(2), goodbye.freeze());
    node.closed(now, SocketId(2));
    let mut states = Vec::new();
    let mut told = |node: &mut Machine| {
        while let Some(action) = node.poll() {
            if let Action::Connection(_, state) = action {
                states.push(state);
            }
        }
    };
    told(&mut node);
    assert!(node.connection_id(me.node).is_none(), "nothing is left of the connection");
    node.received(now, SocketId(1), late.freeze());
    told(&mut node);
    assert!(matches!(states[..], [State::Up(_), State::Down(Down::Left)]), "{states:?}");
}

/// A choice revoked its grant before that had been sent, and the grant was dropped from the outbox. The abort
/// of the next request was then taken for that of the first: the next grant had no effect, and the offer
/// stood for ever (seed 127995994107438).
#[test]
fn revoking_an_unsent_grant_confuses_no_later_request() {
    let mut pair = Pair::attached(&config(), terms(1, 0));
    let egg = || Bytes::from_static(b"egg");
    pair.nodes[0].offer_choice(pair.now, CHANNEL, 1, 1);
    pair.run();
    pair.nodes[1].reserve(pair.now, CHANNEL, id(0), 1, 1);
    pair.run();
    pair.holds_writes = true;
    assert!(pair.nodes[0].grant(pair.now, CHANNEL, 1, 1, egg()));
    pair.nodes[0].revoke(pair.now, CHANNEL, 1);
    pair.nodes[1].reserve(pair.now, CHANNEL, id(0), 1, 2);
    pair.run();
    let (sender, home) = (pair.carrier(0), pair.carrier(1));
    pair.write(home);
    pair.run();
    assert_eq!(pair.proxy_heard().last(), Some(&ProxyHears::Reserve(1, 2)));
    pair.write(sender);
    pair.run();
    assert_eq!(pair.home_heard().last(), Some(&HomeHears::Revoke(1)));
    pair.nodes[1].abort(pair.now, CHANNEL, id(0), 1);
    pair.write(home);
    // The first abort answers the first request: the second request must be granted now, before anything else
    // arrives.
    while let Some(action) = pair.nodes[0].poll() {
        if let Action::Proxy(_, ProxyHears::Abort(1)) = action {
            pair.heard.push((0, action));
            break;
        }
    }
    pair.holds_writes = false;
    pair.run();
    pair.nodes[1].reserve(pair.now, CHANNEL, id(0), 1, 3);
    pair.run();
    assert!(pair.nodes[0].grant(pair.now, CHANNEL, 1, 3, egg()));
    pair.run();
    let aborts = pair.proxy_heard().into_iter().filter(|heard| *heard == ProxyHears::Abort(1)).count();
    assert_eq!(aborts, 2, "one for each request that the home has given up");
    assert_eq!(pair.home_heard().last(), Some(&HomeHears::Granted(1, 3, egg())));
}

/// A node that left waited for the grace period of an absent peer, to send it only a goodbye.
#[test]
fn an_absent_peer_delays_no_leaving_node() {
    let mut pair = Pair::attached(&config(), terms(1, 0));
    pair.wait(Duration::from_secs(1));
    pair.holds_dials = true;
    pair.cut();
    pair.run();
    pair.nodes[0].leave(pair.now);
    pair.run();
    assert!(pair.nodes[0].is_flushed());
    assert_eq!(pair.states(0).last(), Some(&State::Down(Down::Left)));
}

/// A node took both ends of a channel and was started again, and the giver's machine had processed all of
/// that before its program handled the first event. The connection was up when the program reported that the
/// ends had left; so no loss was reported, and their home waited for a receiver that did not exist (seed
/// 80125668).
#[test]
fn ends_that_went_to_a_node_that_is_started_again_are_lost() {
    const LINE: ChannelId = ChannelId(9);
    let mut pair = Pair::attached(&config(), terms(2, 0));
    let giver = &mut pair.nodes[0];
    giver.pair(LINE, terms(1, 0));
    let Leaving::Ready(_, sender) = giver.pack_sender(pair.now, LINE) else { panic!("the sender stays") };
    let Leaving::Ready(_, receiver) = giver.pack_receiver(LINE) else { panic!("the receiver stays") };
    for ticket in [1, 2] {
        pair.offer(ticket, b"pup");
        pair.run();
        pair.nodes[1].taken(pair.now, CHANNEL, id(0), ticket);
    }
    pair.run();
    pair.nodes[1] = machine(config(), 1, 2);
    pair.cut();
    pair.run();
    let life = Life { node: id(1), incarnation: Incarnation(2) };
    assert_eq!(pair.states(0).last(), Some(&State::Up(life)));
    let takers: Vec<Contact> = pair.proxy_heard().into_iter().filter_map(taker).collect();
    let [first, second] = takers[..] else { panic!("{takers:?}") };
    pair.nodes[0].sender_left(pair.now, LINE, sender, first);
    pair.nodes[0].receiver_left(pair.now, LINE, receiver, second);
    pair.run();
    let heard = pair.home_heard();
    assert!(heard.contains(&HomeHears::Ended(End::Lost)) && heard.contains(&HomeHears::Lapsed(End::Lost)), "{heard:?}");
}

fn taker(heard: ProxyHears) -> Option<Contact> {
    match heard {
        ProxyHears::Taken(_, taker) => Some(taker),
        _ => None,
    }
}

/// Two nodes with different grace periods: the receiver's node took a value, which the sender's node did not
/// learn, and gave the connection up. Played with and without the check of the connection's id.
fn the_impatient_one_forgets() -> Pair {
    let with_grace = |seconds| {
        let mut config = config();
        config.grace = Duration::from_secs(seconds);
        config
    };
    let mut pair = Pair::new(&with_grace(15));
    pair.nodes[1] = machine(with_grace(1), 1, 1);
    pair.nodes[1].open_home(CHANNEL, terms(1, 0), face(), false).unwrap();
    pair.knows(0, 1);
    pair.nodes[0].connect(pair.now, id(1));
    pair.run();
    pair.holds_writes = true;
    pair.holds_dials = true;
    pair.attach();
    pair.offer(1, b"krill");
    pair.run();
    pair.write(pair.carrier(0));
    pair.run();
    pair.nodes[1].taken(pair.now, CHANNEL, id(0), 1);
    pair.run();
    pair.cut();
    pair.wait(Duration::from_secs(2));
    assert!(matches!(pair.states(1).last(), Some(State::Down(Down::Unreachable(..)))), "{:?}", pair.states(1));
    assert_eq!((pair.nodes[1].census().nodes, pair.deaths()), (0, 1));
    pair.holds_writes = false;
    pair.holds_dials = false;
    pair.answer_all();
    pair.run();
    pair.wait(Duration::from_secs(1));
    pair
}

/// Values were received twice: the other side restarted the life of a connection that it had forgotten.
#[test]
fn a_forgotten_connection_does_not_resume() {
    let pair = the_impatient_one_forgets();
    let offered = HomeHears::Offered(1, Bytes::from_static(b"krill"));
    assert_eq!(pair.home_heard().iter().filter(|heard| **heard == offered).count(), 1);
    assert!(pair.states(0).contains(&State::Down(Down::GivenUp)), "{:?}", pair.states(0));
    assert!(pair.proxy_heard().iter().any(|heard| matches!(heard, ProxyHears::Lost { .. })));
    // The nodes are connected again.
    assert!(matches!(pair.states(0).last(), Some(State::Up(_))), "{:?}", pair.states(0));
    assert!(matches!(pair.states(1).last(), Some(State::Up(_))), "{:?}", pair.states(1));
    assert_eq!(pair.nodes[0].connection_id(id(1)), pair.nodes[1].connection_id(id(0)));
}

#[test]
fn the_scene_of_a_forgotten_connection_shows_the_planted_bug() {
    dunlin_sim::wake(Some("forgotten-resumes"));
    let pair = the_impatient_one_forgets();
    dunlin_sim::wake(None);
    let offered = HomeHears::Offered(1, Bytes::from_static(b"krill"));
    assert_eq!(pair.home_heard().iter().filter(|heard| **heard == offered).count(), 2, "{:?}", pair.states(0));
}

/// The dialler had read the answer, and begun, when the socket broke: the dialled side had read nothing.
#[test]
fn connection_resumes_after_an_unconfirmed_answer() {
    for dialler in 0..2 {
        let mut pair = Pair::new(&config());
        pair.nodes[1].open_home(CHANNEL, terms(1, 0), face(), false).unwrap();
        pair.knows(0, 1);
        pair.knows(1, 0);
        pair.attach();
        pair.offer(1, b"krill");
        // `Hello` and `Welcome` arrive, `Confirm` and the frames after it do not.
        pair.holds_writes = true;
        pair.run();
        pair.write(0);
        pair.write(1);
        assert_eq!(pair.nodes[0].carried_by(id(1)), Some(SocketId(0)));
        assert_eq!(pair.nodes[1].carried_by(id(0)), None);
        pair.holds_writes = false;
        pair.holds_dials = true;
        pair.close(0);
        pair.close(1);
        if dialler == 1 {
            // The other side needs the connection as well, and dials first.
            pair.nodes[1].connect(pair.now, id(0));
            pair.run();
            pair.dials.retain(|(by, ..)| *by == 1);
        }
        pair.holds_dials = false;
        pair.run();
        pair.answer_all();
        pair.run();
        pair.wait(Duration::from_secs(1));
        assert_eq!(pair.deaths(), 0, "{dialler}");
        assert!(pair.home_heard().contains(&HomeHears::Offered(1, Bytes::from_static(b"krill"))), "{dialler}");
    }
}
