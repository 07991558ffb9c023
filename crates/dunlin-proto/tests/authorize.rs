//! The driver decides which nodes may have connections with this one.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use dunlin_proto::id::{Incarnation, Life, NodeId, SocketId};
use dunlin_proto::identity::StandIn;
use dunlin_proto::time::Time;
use dunlin_proto::wire::handshake::Refusal;
use dunlin_proto::{Action, Closed, Config, Down, Machine, State};

const SOCKET: SocketId = SocketId(1);
const DIALLER: usize = 0;
const DIALLED: usize = 1;

/// Two nodes, of which the first knows the address of the second, and one socket between them.
struct Pair {
    now: Time,
    nodes: [Machine; 2],
    /// The questions to each driver, and the events of its connection and its sockets.
    asked: [Vec<Life>; 2],
    states: [Vec<State>; 2],
    closed: [Vec<Closed>; 2],
    introduced: Vec<Result<NodeId, String>>,
}

fn life(at: usize) -> Life {
    Life { node: NodeId(10 + at as u128), incarnation: Incarnation(1) }
}

impl Pair {
    fn new(authorizes: [bool; 2]) -> Self {
        let machine = |at: usize| {
            let mut config = Config::new("tides");
            config.authorizes = authorizes[at];
            StandIn::machine(config, life(at), 1)
        };
        let mut nodes = [machine(0), machine(1)];
        nodes[DIALLER].learn(life(DIALLED).node, &["there".to_owned()]);
        let (asked, states, closed) = Default::default();
        Self { now: Time(0), nodes, asked, states, closed, introduced: Vec::new() }
    }

    fn dial(&mut self) {
        self.nodes[DIALLER].connect(self.now, life(DIALLED).node);
        self.settle();
    }

    fn admit(&mut self, at: usize, is_admitted: bool) {
        self.nodes[at].authorized(self.now, SOCKET, is_admitted);
        self.settle();
    }

    /// Runs until neither machine has anything to do.
    fn settle(&mut self) {
        loop {
            let Some((at, action)) = (0..2).find_map(|at| self.nodes[at].poll().map(|action| (at, action))) else {
                return;
            };
            match action {
                Action::Dial(dial, _) => {
                    self.nodes[at].dialled(self.now, dial, SOCKET);
                    self.nodes[1 - at].accepted(self.now, SOCKET);
                }
                Action::Write(SOCKET) => self.carry(at),
                Action::Close(SOCKET, why) => {
                    self.closed[at].push(why);
                    self.carry(at);
                    self.nodes.iter_mut().for_each(|node| node.closed(self.now, SOCKET));
                }
                Action::Authorize(SOCKET, node) => self.asked[at].push(node),
                Action::Connection(_, state) => self.states[at].push(state),
                Action::Introduced(_, who) => self.introduced.push(who),
                other => panic!("{other:?}"),
            }
        }
    }

    fn carry(&mut self, from: usize) {
        let mut out = Vec::new();
        self.nodes[from].fill(self.now, SOCKET, usize::MAX, &mut out);
        self.nodes[1 - from].received(self.now, SOCKET, out.concat().into());
    }

    fn is_up(&self) -> [bool; 2] {
        [0, 1].map(|at| self.states[at].iter().any(|state| matches!(state, State::Up(_))))
    }
}

#[test]
fn each_driver_is_asked_once_and_the_connection_waits_for_both() {
    let mut pair = Pair::new([true, true]);
    pair.dial();
    assert_eq!(pair.asked, [vec![], vec![life(DIALLER)]]);
    pair.admit(DIALLED, true);
    assert_eq!((&pair.asked, pair.is_up()), (&[vec![life(DIALLED)], vec![life(DIALLER)]], [false, false]));
    pair.admit(DIALLER, true);
    assert_eq!(
        (pair.asked.map(|asked| asked.len()), [true, true]),
        ([1, 1], pair.states.map(|states| !states.is_empty()))
    );
}

#[test]
fn node_asks_its_driver_only_if_it_authorizes() {
    for authorizes in [[false, false], [false, true], [true, false]] {
        let mut pair = Pair::new(authorizes);
        pair.dial();
        (0..2).filter(|at| authorizes[*at]).for_each(|at| pair.admit(at, true));
        assert_eq!(pair.is_up(), [true, true], "{authorizes:?}");
        assert_eq!([0, 1].map(|at| !pair.asked[at].is_empty()), authorizes);
    }
}

#[test]
fn refused_dialler_receives_the_reason_and_stops_dialling() {
    let mut pair = Pair::new([false, true]);
    pair.dial();
    pair.admit(DIALLED, false);
    let down = Down::Refused(Refusal::Unauthorized);
    assert_eq!(pair.states, [vec![State::Down(down)], vec![]]);
    assert_eq!(pair.closed[DIALLED], [Closed::Refused(Refusal::Unauthorized)]);
    pair.now = pair.now + Duration::from_secs(60);
    pair.nodes[DIALLER].tick(pair.now);
    assert_eq!(pair.nodes[DIALLER].poll(), None, "it dials again");
}

#[test]
fn dialler_refuses_the_dialled_node_without_a_notice() {
    let mut pair = Pair::new([true, false]);
    pair.dial();
    pair.admit(DIALLER, false);
    assert_eq!(pair.states, [vec![State::Down(Down::Unauthorized)], vec![]]);
    assert_eq!(pair.closed[DIALLER], [Closed::Unauthorized(life(DIALLED).node)]);
}

/// The dialler may look for the name service: it learns that this node does not admit it.
#[test]
fn identity_request_requires_admission() {
    for is_admitted in [true, false] {
        let mut pair = Pair::new([false, true]);
        pair.nodes[DIALLER].introduce("there".to_owned());
        pair.settle();
        assert_eq!((&pair.introduced, &pair.asked[DIALLED]), (&vec![], &vec![life(DIALLER)]));
        pair.admit(DIALLED, is_admitted);
        match &pair.introduced[..] {
            [Ok(node)] if is_admitted => assert_eq!(*node, life(DIALLED).node),
            [Err(why)] if !is_admitted => assert!(why.contains("does not admit"), "{why}"),
            introduced => panic!("{is_admitted}: {introduced:?}"),
        }
    }
}

/// The other node closes the socket after its answer: the driver's decision would come too late.
#[test]
fn identity_response_requires_no_admission() {
    let mut pair = Pair::new([true, false]);
    pair.nodes[DIALLER].introduce("there".to_owned());
    pair.settle();
    assert_eq!((&pair.introduced, &pair.asked[DIALLER]), (&vec![Ok(life(DIALLED).node)], &vec![]));
}

/// The node keeps nothing for a stranger that sends more while the driver decides.
#[test]
fn socket_that_sends_before_its_admission_is_closed() {
    let mut pair = Pair::new([false, true]);
    pair.dial();
    // These bytes could become another `Hello`.
    pair.nodes[DIALLED].received(pair.now, SOCKET, Bytes::from_static(b"dun"));
    pair.settle();
    assert!(matches!(&pair.closed[DIALLED][..], [Closed::Garbage(_)]), "{:?}", pair.closed);
    pair.admit(DIALLED, true);
    assert_eq!(pair.is_up(), [false, false]);
}

/// The driver decides after the socket has closed, twice, or about no socket.
#[test]
fn unexpected_authorization_has_no_effect() {
    let mut pair = Pair::new([false, true]);
    pair.nodes[DIALLED].authorized(pair.now, SocketId(7), true);
    pair.dial();
    pair.nodes.iter_mut().for_each(|node| node.closed(pair.now, SOCKET));
    pair.nodes[DIALLED].authorized(pair.now, SOCKET, true);
    while pair.nodes[DIALLED].poll().is_some() {}
    assert_eq!(pair.is_up(), [false, false]);

    let mut pair = Pair::new([false, true]);
    pair.dial();
    pair.admit(DIALLED, true);
    pair.admit(DIALLED, false);
    assert_eq!(pair.is_up(), [true, true]);
    assert_eq!(pair.closed, [vec![], vec![]]);
}

/// If the driver never answers, the socket is closed at the limit of the handshake.
#[test]
fn handshake_times_out_without_a_decision_of_the_driver() {
    let mut pair = Pair::new([false, true]);
    pair.dial();
    pair.now = pair.now + Config::new("tides").handshake;
    pair.nodes[DIALLED].tick(pair.now);
    pair.settle();
    assert_eq!(pair.closed[DIALLED], [Closed::NoHandshake]);
}

/// A thief replays what it has recorded of an admitted node.
#[test]
fn replayed_hello_still_needs_confirmation_after_admission() {
    let mut pair = Pair::new([false, true]);
    pair.nodes[DIALLER].connect(pair.now, life(DIALLED).node);
    let Some(Action::Dial(dial, _)) = pair.nodes[DIALLER].poll() else { panic!("it does not dial") };
    pair.nodes[DIALLER].dialled(pair.now, dial, SOCKET);
    let mut hello = Vec::new();
    pair.nodes[DIALLER].fill(pair.now, SOCKET, usize::MAX, &mut hello);
    let thief = &mut pair.nodes[DIALLED];
    thief.accepted(pair.now, SOCKET);
    thief.received(pair.now, SOCKET, hello.concat().into());
    thief.authorized(pair.now, SOCKET, true);
    let mut welcome = Vec::new();
    thief.fill(pair.now, SOCKET, usize::MAX, &mut welcome);
    assert!(!welcome.is_empty());
    let mut forged = BytesMut::new();
    let signature = Bytes::from_static(&[0; 8]);
    dunlin_proto::wire::codec::encode(&dunlin_proto::wire::Frame::Confirm { signature }, &mut forged);
    thief.received(pair.now, SOCKET, forged.freeze());
    pair.closed[DIALLED].extend(std::iter::from_fn(|| pair.nodes[DIALLED].poll()).filter_map(|action| match action {
        Action::Close(_, why) => Some(why),
        _ => None,
    }));
    assert_eq!(pair.closed[DIALLED], [Closed::Unproven(life(DIALLER).node)]);
}
