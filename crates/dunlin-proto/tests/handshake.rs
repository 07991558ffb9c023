//! Which nodes may connect, and what refused nodes learn: the tables of `docs/wire.md`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use dunlin_proto::id::{ConnectionId, DialId, Incarnation, Life, NodeId, SocketId};
use dunlin_proto::identity::{Identity, StandIn, confirm, prove, proven_by};
use dunlin_proto::time::Time;
use dunlin_proto::wire::handshake::{Answer, Bound, Hello, Proof, Refusal, Resume, Welcome};
use dunlin_proto::wire::{Frame, Names, VERSIONS, codec};
use dunlin_proto::{Action, Closed, Config, Down, Machine, Source, State};

const NOW: Time = Time(0);
const ME: Life = Life { node: NodeId(20), incarnation: Incarnation(5) };

fn life(node: u128, incarnation: u64) -> Life {
    Life { node: NodeId(node), incarnation: Incarnation(incarnation) }
}

fn machine() -> Machine {
    StandIn::machine(Config::new("tides"), ME, 1)
}

fn hello(me: Life, attempt: u64) -> Hello {
    Hello {
        versions: VERSIONS,
        application: "tides".into(),
        me,
        wanted: ME.node,
        met: ME.incarnation,
        attempt,
        resume: Resume { run: 1, seen: 0, ..Resume::default() },
        addresses: Vec::new(),
        bound: Bound::default(),
        key: StandIn::of(me.node).key(),
        nonce: 1,
        signature: Bytes::new(),
    }
}

/// The answer of a machine, and the sockets that it closes, with the reason.
fn said(machine: &mut Machine, socket: u64, hello: &Hello) -> (Answer, Vec<(SocketId, Closed)>) {
    let socket = SocketId(socket);
    machine.accepted(NOW, socket);
    machine.received(NOW, socket, StandIn::says(hello));
    (answered(machine, socket, hello), closed(machine))
}

fn answered(machine: &mut Machine, socket: SocketId, hello: &Hello) -> Answer {
    let mut out = Vec::new();
    machine.fill(NOW, socket, 1, &mut out);
    let answer = Answer::decode(&mut BytesMut::from(&out.concat()[..])).expect("it can be read").expect("it is whole");
    let first = confirm(&StandIn::of(hello.me.node), &StandIn::says(hello), &answer);
    CONFIRMATIONS.with_borrow_mut(|known| known.insert(socket, first));
    if !matches!(answer, Answer::Refused(_)) {
        assert_eq!(proven_by(&StandIn::of(ME.node), &StandIn::says(hello), &answer), Some(ME.node), "{answer:?}");
    }
    answer
}

thread_local! {
    /// What the dialler of each socket sends after the answer it has received.
    static CONFIRMATIONS: RefCell<BTreeMap<SocketId, Frame>> = const { RefCell::new(BTreeMap::new()) };
}

fn closed(machine: &mut Machine) -> Vec<(SocketId, Closed)> {
    std::iter::from_fn(|| machine.poll())
        .filter_map(|action| match action {
            Action::Close(socket, why) => Some((socket, why)),
            _ => None,
        })
        .collect()
}

fn refused(machine: &mut Machine, socket: u64, hello: &Hello, why: Refusal) {
    let closed = match &why {
        Refusal::Application(_) => Closed::Stranger { node: hello.me.node, application: hello.application.clone() },
        why => Closed::Refused(why.clone()),
    };
    let closed = vec![(SocketId(socket), closed)];
    let (answer, told) = said(machine, socket, hello);
    let (Answer::Refused(said) | Answer::Over(said, _)) = &answer else { panic!("{hello:?}: {answer:?}") };
    assert_eq!((said, told), (&why, closed), "{hello:?}");
    // A refusal that ends something has to be proved.
    let ends = matches!(why, Refusal::Stale(_) | Refusal::Forgotten | Refusal::AnotherLife(_) | Refusal::Impossible);
    assert_eq!(matches!(answer, Answer::Over(..)), ends, "{answer:?}");
}

fn admitted(machine: &mut Machine, socket: u64, hello: &Hello) -> Vec<(SocketId, Closed)> {
    welcomed(machine, socket, hello);
    confirms(machine, socket)
}

/// The machine's id of the connection.
fn welcomed(machine: &mut Machine, socket: u64, hello: &Hello) -> ConnectionId {
    let (answer, nothing) = said(machine, socket, hello);
    let Answer::Welcome(Welcome { me: ME, resume, .. }) = answer else { panic!("{hello:?}: {answer:?}") };
    assert_eq!(nothing, [], "{hello:?}");
    resume.connection
}

/// The same `Hello`, from a dialler that knows that connection.
fn knows(hello: Hello, connection: ConnectionId) -> Hello {
    Hello { resume: Resume { connection, ..hello.resume }, ..hello }
}

/// The dialler has read the answer. Returns the sockets that are closed for that.
fn confirms(machine: &mut Machine, socket: u64) -> Vec<(SocketId, Closed)> {
    let first = CONFIRMATIONS.with_borrow(|known| known[&SocketId(socket)].clone());
    says(machine, socket, &first);
    closed(machine)
}

fn says(machine: &mut Machine, socket: u64, frame: &Frame) {
    let mut bytes = BytesMut::new();
    codec::encode(frame, &mut bytes);
    machine.received(NOW, SocketId(socket), bytes.freeze());
}

/// The machine has sent hello on this socket, and that node answers. Returns what the machine sends.
fn answers(machine: &mut Machine, socket: u64, by: NodeId, answer: Answer) -> Answer {
    let mut said = Vec::new();
    machine.fill(NOW, SocketId(socket), 1 << 16, &mut said);
    let answer = prove(&StandIn::of(by), &said.concat(), answer);
    machine.received(NOW, SocketId(socket), answer.encode());
    answer
}

fn welcome_of(me: Life, connection: ConnectionId) -> Welcome {
    Welcome {
        version: VERSIONS.1,
        me,
        resume: Resume { connection, run: 1, seen: 0 },
        addresses: Vec::new(),
        bound: Bound::default(),
        nonce: 1,
        proof: Proof::default(),
    }
}

fn dial_of(machine: &mut Machine) -> DialId {
    let of = |action| if let Action::Dial(dial, _) = action { Some(dial) } else { None };
    std::iter::from_fn(|| machine.poll()).find_map(of).expect("it dials")
}

/// The machine has dialled this node and sent hello on the socket.
fn dials(machine: &mut Machine, node: u128, socket: u64) {
    machine.learn(NodeId(node), &["there".to_owned()]);
    machine.connect(NOW, NodeId(node));
    let dial = dial_of(machine);
    machine.dialled(NOW, dial, SocketId(socket));
}

#[test]
fn mismatched_hello_is_refused_with_the_reason() {
    let mut machine = machine();
    let mut other = hello(life(10, 1), 1);
    other.application = "ebb".into();
    refused(&mut machine, 1, &other, Refusal::Application("tides".into()));
    other = hello(life(10, 1), 1);
    other.wanted = NodeId(21);
    refused(&mut machine, 2, &other, Refusal::WrongNode(ME.node));
    refused(&mut machine, 3, &hello(ME, 1), Refusal::Myself);
    refused(&mut machine, 4, &hello(life(20, 4), 1), Refusal::Stale(ME.incarnation));
    refused(&mut machine, 5, &hello(life(20, 6), 1), Refusal::WrongNode(ME.node));
}

/// A machine that has a connection with node 10, and has dialled node 30 for a connection, and an address to
/// learn which node is there.
fn busy_machine(config: Config) -> Machine {
    let mut machine = StandIn::machine(config, ME, 1);
    admitted(&mut machine, 1, &hello(life(10, 1), 1));
    dials(&mut machine, 30, 2);
    machine.introduce("anybody".to_owned());
    let dial = dial_of(&mut machine);
    machine.dialled(NOW, dial, SocketId(3));
    std::iter::from_fn(|| machine.poll()).for_each(drop);
    machine
}

#[test]
fn replaced_node_ends_all_its_connections() {
    let later = Incarnation(6);
    let stale = Answer::Refused(Refusal::Stale(later)).encode();
    let has_met_it = Hello { met: later, ..hello(life(11, 1), 1) };
    for (way, socket, said) in [
        ("a node dialled for a connection refuses", 2, stale.clone()),
        ("a node dialled for its identity refuses", 3, stale),
        ("a dialler knows the later life", 4, StandIn::says(&has_met_it)),
        ("the later life dials the earlier one", 4, StandIn::says(&hello(life(20, 6), 1))),
    ] {
        let mut machine = busy_machine(Config::new("tides"));
        machine.accepted(NOW, SocketId(4));
        machine.received(NOW, SocketId(socket), said);
        let done: Vec<Action> = std::iter::from_fn(|| machine.poll()).collect();
        assert_eq!(machine.replaced_by(), Some(later), "{way}");
        for node in [10, 30] {
            let down = Action::Connection(NodeId(node), State::Down(Down::Refused(Refusal::Stale(later))));
            assert_eq!(done.iter().filter(|done| **done == down).count(), 1, "{way}: {done:?}");
        }
        assert!(done.contains(&Action::Close(SocketId(1), Closed::Over)), "{way}: {done:?}");
        // It no longer admits or dials any node.
        refused(&mut machine, 5, &hello(life(12, 1), 1), Refusal::Busy);
        refused(&mut machine, 6, &Hello { wanted: NodeId(0), ..hello(life(12, 1), 1) }, Refusal::Busy);
        machine.connect(NOW, NodeId(10));
        assert!(machine.is_idle(NodeId(10)), "{way}");
        machine.introduce("somebody".to_owned());
        let done: Vec<Action> = std::iter::from_fn(|| machine.poll()).collect();
        assert!(matches!(&done[..], [Action::Introduced(_, Err(_))]), "{way}: {done:?}");
    }
}

#[test]
fn only_a_later_life_replaces_a_node() {
    // If each start has its own id, there is no later life.
    for (met, keeps_id) in [(1, true), (5, true), (6, false)] {
        let mut config = Config::new("tides");
        config.keeps_id = keeps_id;
        let mut machine = busy_machine(config);
        machine.received(NOW, SocketId(2), Answer::Refused(Refusal::Stale(Incarnation(met))).encode());
        assert_eq!(machine.replaced_by(), None);
        assert_eq!(machine.carried_by(NodeId(10)), Some(SocketId(1)));
        assert!(machine.is_idle(NodeId(30)), "{met}");
    }
}

#[test]
fn lives_and_attempts_come_in_order() {
    let mut machine = machine();
    let known = welcomed(&mut machine, 1, &hello(life(10, 3), 2));
    assert_eq!(confirms(&mut machine, 1), []);
    refused(&mut machine, 2, &hello(life(10, 2), 9), Refusal::Stale(Incarnation(3)));
    refused(&mut machine, 3, &hello(life(10, 3), 2), Refusal::Late);
    refused(&mut machine, 4, &hello(life(10, 3), 1), Refusal::Late);
    // The dialler has noticed the loss of its old socket before this node has.
    let again = knows(hello(life(10, 3), 3), known);
    assert_eq!(admitted(&mut machine, 5, &again), [(SocketId(1), Closed::Superseded)]);
    // The dialler is restarted, and counts from the start.
    assert_eq!(admitted(&mut machine, 6, &hello(life(10, 4), 1)), [(SocketId(5), Closed::Over)]);
}

#[test]
fn crossed_dials_keep_the_socket_of_the_smaller_node() {
    let mut machine = machine();
    dials(&mut machine, 30, 1);
    refused(&mut machine, 2, &hello(life(30, 1), 1), Refusal::Crossed);
    dials(&mut machine, 10, 3);
    assert_eq!(admitted(&mut machine, 4, &hello(life(10, 1), 1)), [(SocketId(3), Closed::Superseded)]);
}

#[test]
fn nothing_changes_until_the_dialler_has_confirmed() {
    let mut machine = machine();
    let known = welcomed(&mut machine, 1, &hello(life(10, 3), 1));
    assert_eq!(confirms(&mut machine, 1), []);
    // A later socket, and a later life.
    for (socket, hello) in [(2, knows(hello(life(10, 3), 2), known)), (3, hello(life(10, 4), 1))] {
        let (answer, closed) = said(&mut machine, socket, &hello);
        assert!(matches!(answer, Answer::Welcome(_)), "{answer:?}");
        assert_eq!(closed, []);
        assert_eq!(machine.carried_by(NodeId(10)), Some(SocketId(1)));
        let mut out = Vec::new();
        machine.fill(NOW, SocketId(socket), 1 << 16, &mut out);
        assert_eq!(out, Vec::<Bytes>::new(), "no frame is written");
    }
    assert_eq!(confirms(&mut machine, 2), [(SocketId(1), Closed::Superseded)]);
    assert_eq!(confirms(&mut machine, 3), [(SocketId(2), Closed::Over)]);
}

fn states(machine: &mut Machine) -> Vec<State> {
    let of = |action| if let Action::Connection(_, state) = action { Some(state) } else { None };
    std::iter::from_fn(|| machine.poll()).filter_map(of).collect()
}

/// Otherwise the connection would be up, and lost when the other socket is confirmed.
#[test]
fn a_dial_gives_way_to_a_socket_that_is_about_to_be_confirmed() {
    let other = life(10, 1);
    // The dial is answered before or after this side has sent hello.
    for is_said in [false, true] {
        let mut machine = machine();
        if is_said {
            dials(&mut machine, 10, 1);
        }
        said(&mut machine, 2, &hello(other, 1));
        if is_said {
            answers(&mut machine, 1, other.node, Answer::Welcome(welcome_of(other, ConnectionId(7))));
        } else {
            dials(&mut machine, 10, 1);
        }
        assert_eq!(closed(&mut machine), [(SocketId(1), Closed::Superseded)]);
        let first = CONFIRMATIONS.with_borrow(|known| known[&SocketId(2)].clone());
        says(&mut machine, 2, &first);
        assert_eq!(states(&mut machine), [State::Up(other)], "{is_said}");
        assert_eq!(machine.carried_by(NodeId(10)), Some(SocketId(2)));
    }
}

#[test]
fn a_socket_that_is_never_confirmed_holds_a_dial_up_once() {
    let mut machine = machine();
    for (socket, attempt) in [(2, 1), (3, 2)] {
        said(&mut machine, socket, &hello(life(10, 1), attempt));
    }
    dials(&mut machine, 10, 1);
    assert_eq!(closed(&mut machine), [(SocketId(1), Closed::Superseded)]);
    let soon = machine.next_tick().expect("it dials again");
    assert!(soon <= NOW + std::time::Duration::from_millis(100));
    machine.tick(soon);
    let dial = dial_of(&mut machine);
    machine.dialled(soon, dial, SocketId(4));
    let mut out = Vec::new();
    assert!(machine.fill(soon, SocketId(4), 1000, &mut out) > 0, "the node sends hello");
}

#[test]
fn late_confirmation_does_not_replace_a_later_socket() {
    let mut machine = machine();
    for (socket, attempt) in [(1, 1), (2, 2)] {
        said(&mut machine, socket, &hello(life(10, 3), attempt));
    }
    assert_eq!(confirms(&mut machine, 2), []);
    assert_eq!(confirms(&mut machine, 1), [(SocketId(1), Closed::Refused(Refusal::Late))]);
    // Neither does it replace a later life.
    said(&mut machine, 3, &hello(life(10, 3), 3));
    assert_eq!(admitted(&mut machine, 4, &hello(life(10, 4), 1)), [(SocketId(2), Closed::Over)]);
    assert_eq!(confirms(&mut machine, 3), [(SocketId(3), Closed::Refused(Refusal::Stale(Incarnation(4))))]);
    assert_eq!(machine.carried_by(NodeId(10)), Some(SocketId(4)));
}

#[test]
fn frame_other_than_confirm_ends_the_handshake() {
    let mut machine = machine();
    said(&mut machine, 1, &hello(life(10, 3), 1));
    // The first byte of a long frame: the machine does not wait for the rest.
    machine.received(NOW, SocketId(1), Bytes::from_static(b"\x21"));
    let closed = closed(&mut machine);
    let [(SocketId(1), Closed::Garbage(why))] = &closed[..] else { panic!("{closed:?}") };
    assert_eq!(why, "the kind of the first frame cannot be 33");
    assert!(machine.is_idle(NodeId(10)));
}

#[test]
fn frames_on_the_old_socket_after_the_answer_are_not_processed_twice() {
    let mut machine = machine();
    let known = welcomed(&mut machine, 1, &hello(life(10, 3), 1));
    assert_eq!(confirms(&mut machine, 1), []);
    said(&mut machine, 2, &knows(hello(life(10, 3), 2), known));
    let say = |machine: &mut Machine, socket: u64, numbers: std::ops::Range<u64>| {
        let mut bytes = BytesMut::new();
        numbers.for_each(|number| drop(codec::encode(&Frame::Names(Names::Undeclare { number }), &mut bytes)));
        machine.received(NOW, SocketId(socket), bytes.freeze());
        std::iter::from_fn(|| machine.poll()).filter(|action| matches!(action, Action::Names(..))).count()
    };
    assert_eq!(say(&mut machine, 1, 0..3), 3);
    assert_eq!(confirms(&mut machine, 2), [(SocketId(1), Closed::Superseded)]);
    // The answer has shown that nothing was received: all frames are sent again.
    let acknowledged = |machine: &mut Machine| {
        machine.tick(Time(1_000_000));
        let mut out = Vec::new();
        machine.fill(Time(1_000_000), SocketId(2), 1 << 16, &mut out);
        out.concat().windows(3).find(|frame| frame[..2] == [2, 1]).map(|frame| frame[2])
    };
    assert_eq!(say(&mut machine, 2, 0..1), 0);
    assert_eq!(acknowledged(&mut machine), Some(1), "frames that were not sent again are not acknowledged");
    assert_eq!(say(&mut machine, 2, 1..5), 2);
    assert_eq!(acknowledged(&mut machine), Some(5));
}

#[test]
fn introduction_makes_no_connection() {
    let mut machine = machine();
    let asks = Hello { wanted: NodeId(0), met: Incarnation(0), attempt: 0, ..hello(life(10, 1), 0) };
    let (answer, closed) = said(&mut machine, 1, &asks);
    let Answer::Welcome(welcome) = answer else { panic!("{answer:?}") };
    assert_eq!((welcome.me, welcome.resume), (ME, Resume::default()));
    assert_eq!(closed, [(SocketId(1), Closed::Over)]);
    assert_eq!(machine.carried_by(NodeId(10)), None);
}

#[test]
fn a_welcome_is_from_the_dialled_node_and_not_an_earlier_life() {
    type Answers = fn(ConnectionId) -> Welcome;
    let cases: [(Answers, Option<Closed>); 5] = [
        (|known| welcome_of(life(11, 3), known), Some(Closed::Refused(Refusal::WrongNode(NodeId(11))))),
        (|known| welcome_of(life(10, 2), known), Some(Closed::Refused(Refusal::Stale(Incarnation(3))))),
        (
            |known| Welcome { version: 11, ..welcome_of(life(10, 3), known) },
            Some(Closed::Refused(Refusal::Version((11, 11)))),
        ),
        (
            |_| welcome_of(life(10, 3), ConnectionId(7)),
            Some(Closed::Garbage("it goes on with another connection".to_owned())),
        ),
        (|known| welcome_of(life(10, 3), known), None),
    ];
    for (gives, why) in cases {
        // It has connected to the third life of node 10, and its socket is lost.
        let mut machine = machine();
        let known = welcomed(&mut machine, 1, &hello(life(10, 3), 1));
        assert_eq!(confirms(&mut machine, 1), []);
        machine.learn(NodeId(10), &["there".to_owned()]);
        machine.closed(NOW, SocketId(1));
        let dial = std::iter::from_fn(|| machine.poll()).find_map(|action| match action {
            Action::Dial(dial, _) => Some(dial),
            _ => None,
        });
        machine.dialled(NOW, dial.expect("it dials"), SocketId(2));
        let welcome = gives(known);
        answers(&mut machine, 2, welcome.me.node, Answer::Welcome(welcome));
        let expected: Vec<_> = why.into_iter().map(|why| (SocketId(2), why)).collect();
        assert_eq!(closed(&mut machine), expected);
        assert_eq!(machine.carried_by(NodeId(10)).is_some(), expected.is_empty());
    }
}

#[test]
fn socket_times_out_without_a_handshake() {
    let mut machine = machine();
    machine.accepted(NOW, SocketId(1));
    let until = NOW + Config::new("tides").handshake;
    let mut gone = Vec::new();
    while gone.is_empty() {
        let due = machine.next_tick().expect("it is closed");
        machine.tick(due);
        gone = closed(&mut machine);
        assert_eq!(gone.is_empty(), due < until, "{due:?}");
    }
    assert_eq!(gone, [(SocketId(1), Closed::NoHandshake)]);
}

/// Accepts sockets from two hosts, in this order: the number of the socket, the last octet of the host, and
/// whether it sends `Hello`. Returns the sockets that are closed.
fn crowd(machine: &mut Machine, sockets: impl IntoIterator<Item = (u64, u8, bool)>) -> Vec<u64> {
    let mut gone = Vec::new();
    for (socket, host, speaks) in sockets {
        machine.accepted_from(NOW, SocketId(socket), Source::V4([127, 0, 0, host]));
        if speaks {
            let hello = hello(life(1000 + u128::from(socket), 1), 1);
            machine.received(NOW, SocketId(socket), StandIn::says(&hello));
            let mut kept = machine.clone();
            answered(&mut kept, SocketId(socket), &hello);
        }
        for (socket, why) in closed(machine) {
            assert_eq!(why, Closed::Crowded);
            let mut last = Vec::new();
            machine.fill(NOW, socket, 1, &mut last);
            let busy = Answer::Refused(Refusal::Busy).encode();
            // A socket that has received a `Welcome` receives nothing more.
            assert!(last.is_empty() || last.concat() == busy, "{last:?}");
            machine.closed(NOW, socket);
            gone.push(socket.0);
        }
    }
    gone
}

#[test]
fn a_flood_of_silent_sockets_costs_its_own_source_only() {
    let mut config = Config::new("tides");
    config.strangers_max = 8;
    let mut machine = StandIn::machine(config, ME, 1);
    assert_eq!(crowd(&mut machine, (0..8).map(|n| (n, 2, false))), [0; 0], "while there is room, no share binds");
    assert_eq!(crowd(&mut machine, [(8, 3, true)]), [0]);
    assert_eq!(crowd(&mut machine, (9..1000).map(|n| (n, 2, false))), (1..8).chain(9..993).collect::<Vec<_>>());
    assert_eq!(confirms(&mut machine, 8), [], "the other host's handshake continues");
    assert_eq!(machine.census().sockets, 8);
    assert_eq!(machine.carried_by(NodeId(1008)), Some(SocketId(8)));
}

#[test]
fn of_one_source_sockets_with_a_hello_stay_longest() {
    let mut config = Config::new("tides");
    config.strangers_max = 4;
    let mut machine = StandIn::machine(config, ME, 1);
    assert_eq!(crowd(&mut machine, [(0, 2, true), (1, 2, false), (2, 2, false), (3, 2, false)]), [0; 0]);
    assert_eq!(crowd(&mut machine, (4..100).map(|n| (n, 2, false))), (1..97).collect::<Vec<_>>());
    assert_eq!(confirms(&mut machine, 0), []);
    // If all of them have sent `Hello`, the oldest is closed.
    assert_eq!(crowd(&mut machine, (100..108).map(|n| (n, 2, true)))[3..], [100, 101, 102, 103]);
}

#[test]
fn of_many_sources_the_one_that_has_been_there_longest_makes_room() {
    let mut config = Config::new("tides");
    config.strangers_max = 4;
    let mut machine = StandIn::machine(config, ME, 1);
    assert_eq!(crowd(&mut machine, (0..8).map(|n| (n, n as u8, false))), [0, 1, 2, 3]);
    // A place that is released is free.
    machine.closed(NOW, SocketId(5));
    assert_eq!(crowd(&mut machine, [(8, 20, false)]), [0; 0]);
    assert_eq!(crowd(&mut machine, [(9, 21, false)]), [4]);
}

/// A life that was only paused may have begun the connection that it was offered. A dialler that names the
/// offer may reach a later life, which knows nothing of it: the two connect, and the earlier life learns that
/// it is stale, not that the other side has given up.
#[test]
fn an_offer_names_the_life_to_which_it_was_made() {
    let mut machine = machine();
    let offered = welcomed(&mut machine, 1, &hello(life(10, 1), 1));
    machine.closed(NOW, SocketId(1));
    dials(&mut machine, 10, 2);
    let mut said = Vec::new();
    machine.fill(NOW, SocketId(2), 1 << 16, &mut said);
    let heard = Hello::decode(&mut BytesMut::from(&said.concat()[..])).unwrap().unwrap();
    assert_eq!((heard.met, heard.resume.connection), (Incarnation(1), offered));
    let welcome = Answer::Welcome(welcome_of(life(10, 2), ConnectionId(7)));
    let answer = prove(&StandIn::of(NodeId(10)), &said.concat(), welcome);
    machine.received(NOW, SocketId(2), answer.encode());
    assert_eq!((closed(&mut machine), machine.carried_by(NodeId(10))), (vec![], Some(SocketId(2))));
    refused(&mut machine, 3, &knows(hello(life(10, 1), 2), offered), Refusal::Stale(Incarnation(2)));
}

/// A connection is confirmed late: its dialler has given it up since, and sends hello for another one, which
/// is answered before that confirmation is read. The last confirmation of the dialler counts.
#[test]
fn connection_that_the_dialler_confirms_last_begins() {
    let mut machine = machine();
    let first = welcomed(&mut machine, 1, &hello(life(10, 1), 1));
    let second = welcomed(&mut machine, 2, &hello(life(10, 1), 2));
    assert_ne!(first, second);
    assert_eq!(confirms(&mut machine, 1), []);
    machine.closed(NOW, SocketId(1));
    assert_eq!(confirms(&mut machine, 2), []);
    assert_eq!(machine.carried_by(NodeId(10)), Some(SocketId(2)));
    machine.closed(NOW, SocketId(2));
    assert_eq!(welcomed(&mut machine, 3, &knows(hello(life(10, 1), 3), second)), second);
}

/// An earlier life and a later one were both offered a connection: the later one may have begun.
#[test]
fn hello_names_the_connection_offered_to_the_latest_life() {
    for order in [[1, 2], [2, 1]] {
        let mut machine = machine();
        let offered = order.map(|incarnation| {
            let offered = welcomed(&mut machine, incarnation, &hello(life(10, incarnation), 1));
            machine.closed(NOW, SocketId(incarnation));
            (incarnation, offered)
        });
        let later = offered.into_iter().max_by_key(|(incarnation, _)| *incarnation);
        dials(&mut machine, 10, 3);
        let mut said = Vec::new();
        machine.fill(NOW, SocketId(3), 1 << 16, &mut said);
        let heard = Hello::decode(&mut BytesMut::from(&said.concat()[..])).unwrap().unwrap();
        assert_eq!(Some((heard.met.0, heard.resume.connection)), later, "{order:?}");
    }
}

/// By contrast, the intended life begins the connection that it was offered.
#[test]
fn intended_life_begins_the_offered_connection() {
    let mut machine = machine();
    let offered = welcomed(&mut machine, 1, &hello(life(10, 1), 1));
    machine.closed(NOW, SocketId(1));
    dials(&mut machine, 10, 2);
    answers(&mut machine, 2, NodeId(10), Answer::Welcome(welcome_of(life(10, 1), offered)));
    assert_eq!((closed(&mut machine), machine.carried_by(NodeId(10))), (vec![], Some(SocketId(2))));
    // An earlier life than the one that was offered the connection is not admitted by that.
    let mut machine = self::machine();
    let offered = welcomed(&mut machine, 1, &hello(life(10, 2), 1));
    machine.closed(NOW, SocketId(1));
    dials(&mut machine, 10, 2);
    answers(&mut machine, 2, NodeId(10), Answer::Welcome(welcome_of(life(10, 1), offered)));
    let stale = vec![(SocketId(2), Closed::Refused(Refusal::Stale(Incarnation(2))))];
    assert_eq!((closed(&mut machine), machine.carried_by(NodeId(10))), (stale, None));
}

/// A peer takes the connection up on each socket, and closes the socket: so it decides how many sockets this
/// node makes.
#[test]
fn a_node_that_ends_each_socket_is_dialled_at_a_steady_pace() {
    let (mut machine, mut now, mut dials) = (machine(), NOW, 0);
    machine.learn(NodeId(10), &["there".to_owned()]);
    machine.connect(now, NodeId(10));
    loop {
        let of = |action| if let Action::Dial(dial, _) = action { Some(dial) } else { None };
        let Some(dial) = std::iter::from_fn(|| machine.poll()).find_map(of) else {
            let Some(at) = machine.next_tick().filter(|at| *at <= NOW + Duration::from_secs(5)) else { break };
            now = at;
            machine.tick(now);
            continue;
        };
        dials += 1;
        let socket = SocketId(dials);
        machine.dialled(now, dial, socket);
        let mut said = Vec::new();
        machine.fill(now, socket, 1 << 16, &mut said);
        let welcome = Answer::Welcome(welcome_of(life(10, 1), ConnectionId(7)));
        machine.received(now, socket, prove(&StandIn::of(NodeId(10)), &said.concat(), welcome).encode());
        assert_eq!(machine.carried_by(NodeId(10)), Some(socket));
        machine.closed(now, socket);
    }
    // Ten at once, and then ten a second.
    assert!((58..=61).contains(&dials), "{dials}");
}

/// A node that asks only for an identity would dial again for a connection, and find no room then.
#[test]
fn a_node_without_room_reports_it_to_an_identity_request() {
    let mut config = Config::new("tides");
    config.peers_max = 1;
    let mut machine = StandIn::machine(config, ME, 1);
    let asks = |node| Hello { wanted: NodeId(0), ..hello(life(node, 1), 1) };
    let (answer, _) = said(&mut machine, 1, &asks(10));
    assert!(matches!(answer, Answer::Welcome(_)), "{answer:?}");
    admitted(&mut machine, 2, &hello(life(10, 1), 2));
    refused(&mut machine, 3, &asks(30), Refusal::Busy);
    let (answer, _) = said(&mut machine, 4, &asks(10));
    assert!(matches!(answer, Answer::Welcome(_)), "a connected node has a place: {answer:?}");
}

/// A `Hello` that crosses this node's own, and names a connection that is unknown here.
fn names_unknown(node: u128, connection: u128) -> Hello {
    knows(hello(life(node, 1), connection as u64), ConnectionId(connection))
}

/// While both have dialled, the node whose own socket is not kept reports the connections it does not know,
/// so that one of the two is answered; it then refuses any answer that names them. That holds for up to eight
/// connections: the other node could name any number.
#[test]
fn answer_naming_a_connection_declared_unknown_is_refused() {
    const MAX: u128 = 8;
    for (answered, is_taken) in [(1, false), (MAX, false), (MAX + 1, true), (100, true)] {
        let mut machine = machine();
        dials(&mut machine, 10, 50);
        for unknown in 1..=MAX {
            refused(&mut machine, unknown as u64, &names_unknown(10, unknown), Refusal::Forgotten);
        }
        refused(&mut machine, 60, &names_unknown(10, MAX + 1), Refusal::Crossed);
        answers(&mut machine, 50, NodeId(10), Answer::Welcome(welcome_of(life(10, 1), ConnectionId(answered))));
        let (is_closed, carried) = (closed(&mut machine), machine.carried_by(NodeId(10)));
        assert_eq!(carried == Some(SocketId(50)), is_taken, "{answered}: {is_closed:?}");
        assert_eq!(is_closed == [(SocketId(50), Closed::Superseded)], !is_taken, "{answered}: {is_closed:?}");
        if !is_taken {
            // Its next `Hello` is another question.
            let again = machine.next_tick().expect("it dials again");
            machine.tick(again);
            let dial = dial_of(&mut machine);
            machine.dialled(again, dial, SocketId(51));
            refused(&mut machine, 61, &names_unknown(10, MAX + 2), Refusal::Forgotten);
        }
    }
}

/// By contrast, a node whose own socket is kept, or that has not sent `Hello`, has nothing to remember.
#[test]
fn hello_naming_unknown_connections_is_crossed_or_forgotten() {
    let mut keeps_its_own = machine();
    dials(&mut keeps_its_own, 30, 50);
    let mut has_not_dialled = machine();
    for unknown in 1..=20 {
        refused(&mut keeps_its_own, unknown as u64, &names_unknown(30, unknown), Refusal::Crossed);
        refused(&mut has_not_dialled, unknown as u64, &names_unknown(10, unknown), Refusal::Forgotten);
    }
}

/// While a `Hello` that names the offer to an earlier life is on its way, this node answers a later life,
/// which may have begun a connection by that. So it refuses that life's answer to the `Hello`, which names
/// another connection: its next `Hello` names the later offer.
#[test]
fn offer_made_meanwhile_supersedes_a_welcome() {
    let mut machine = machine();
    welcomed(&mut machine, 1, &hello(life(10, 1), 1));
    machine.closed(NOW, SocketId(1));
    dials(&mut machine, 10, 2);
    let offered = welcomed(&mut machine, 3, &hello(life(10, 2), 1));
    machine.closed(NOW, SocketId(3));
    answers(&mut machine, 2, NodeId(10), Answer::Welcome(welcome_of(life(10, 2), ConnectionId(7))));
    assert_eq!(closed(&mut machine), [(SocketId(2), Closed::Superseded)]);
    let again = machine.next_tick().expect("it dials again");
    machine.tick(again);
    let dial = dial_of(&mut machine);
    machine.dialled(again, dial, SocketId(4));
    let mut said = Vec::new();
    machine.fill(again, SocketId(4), 1 << 16, &mut said);
    let heard = Hello::decode(&mut BytesMut::from(&said.concat()[..])).unwrap().unwrap();
    assert_eq!((heard.met, heard.resume.connection), (Incarnation(2), offered));
}

/// A node that was paused reads the `Hello` that its dialler still uses, and after it earlier ones that the
/// dialler has given up. They are not answered: new offers to them would replace the one that the dialler has
/// begun.
#[test]
fn late_hello_replaces_no_offer() {
    let mut machine = machine();
    let offered = welcomed(&mut machine, 1, &hello(life(10, 1), 20));
    for late in 2..12 {
        refused(&mut machine, late, &hello(life(10, 1), late), Refusal::Late);
    }
    // By contrast, the same `Hello` again, later ones, and those of another node are answered.
    welcomed(&mut machine, 12, &hello(life(10, 1), 20));
    welcomed(&mut machine, 13, &hello(life(10, 1), 21));
    welcomed(&mut machine, 14, &hello(life(11, 1), 1));
    assert_eq!(welcomed(&mut machine, 15, &knows(hello(life(10, 1), 22), offered)), offered);
}

/// A connection was given up here; its dialler sends hello for it, and learns the run with which it
/// continues. Then this node forgets the connection, since it needs nothing from it. Socket 2 carries the
/// answer.
fn forgets_what_it_has_answered() -> (Machine, ConnectionId) {
    let mut machine = machine();
    let known = welcomed(&mut machine, 1, &hello(life(10, 1), 1));
    assert_eq!(confirms(&mut machine, 1), []);
    machine.closed(NOW, SocketId(1));
    while machine.poll().is_some() {}
    machine.tick(NOW + Config::new("tides").grace);
    let (answer, _) = said(&mut machine, 2, &knows(hello(life(10, 1), 2), known));
    let Answer::Welcome(Welcome { resume, .. }) = answer else { panic!("{answer:?}") };
    assert_eq!(resume, Resume { connection: known, run: 2, seen: 0 });
    (machine, known)
}

#[test]
fn the_next_run_of_a_connection_is_an_offer_as_well() {
    let (mut machine, known) = forgets_what_it_has_answered();
    assert_eq!(confirms(&mut machine, 2), []);
    assert_eq!(machine.carried_by(NodeId(10)), Some(SocketId(2)));
    // Its dialler may have received the answer, and the confirmation may be lost.
    for (said, answered) in [((2, 0), (2, 0)), ((1, 7), (2, 0)), ((2, 7), (3, 0)), ((4, 0), (4, 0))] {
        let (mut machine, known) = forgets_what_it_has_answered();
        machine.closed(NOW, SocketId(2));
        let resume = Resume { connection: known, run: said.0, seen: said.1 };
        let (answer, _) = self::said(&mut machine, 3, &Hello { resume, ..hello(life(10, 1), 3) });
        let Answer::Welcome(Welcome { resume, .. }) = answer else { panic!("{answer:?}") };
        assert_eq!((resume.connection, (resume.run, resume.seen)), (known, answered), "{said:?}");
    }
    // Once it is confirmed, and given up again, nothing is left of it.
    machine.closed(NOW, SocketId(2));
    machine.tick(NOW + Config::new("tides").grace);
    while machine.poll().is_some() {}
    refused(&mut machine, 3, &knows(hello(life(10, 1), 3), known), Refusal::Forgotten);
}

/// While the confirmation of its answer is on its way, this node dials as well, and names the connection that
/// it has offered; so that connection begins, and then ends. The frames after the late confirmation belong to
/// that connection, and were received.
#[test]
fn ended_connection_does_not_begin_again_on_a_late_confirmation() {
    let mut machine = machine();
    let offered = welcomed(&mut machine, 1, &hello(life(10, 1), 1));
    // Its first dial gives way to the socket that is about to be confirmed.
    dials(&mut machine, 10, 3);
    assert_eq!(closed(&mut machine), [(SocketId(3), Closed::Superseded)]);
    machine.tick(machine.next_tick().expect("it dials again"));
    let dial = dial_of(&mut machine);
    machine.dialled(NOW, dial, SocketId(2));
    answers(&mut machine, 2, NodeId(10), Answer::Welcome(welcome_of(life(10, 1), offered)));
    assert_eq!(machine.carried_by(NodeId(10)), Some(SocketId(2)));
    says(&mut machine, 2, &Frame::Goodbye);
    machine.closed(NOW, SocketId(2));
    while machine.poll().is_some() {}
    assert_eq!(confirms(&mut machine, 1), [(SocketId(1), Closed::Superseded)]);
    assert_eq!(machine.carried_by(NodeId(10)), None);
}

/// An answer lay unread while this node was paused; then its sender sends hello on another socket and names
/// no connection: it has given up the one in the answer. So this node refuses that answer, once: strangers
/// may replay what a node has sent before.
#[test]
fn answer_is_refused_if_a_later_hello_does_not_name_its_connection() {
    let mut machine = machine();
    let known = welcomed(&mut machine, 1, &hello(life(10, 1), 1));
    assert_eq!(confirms(&mut machine, 1), []);
    machine.learn(NodeId(10), &["there".to_owned()]);
    machine.closed(NOW, SocketId(1));
    let dial = dial_of(&mut machine);
    machine.dialled(NOW, dial, SocketId(2));
    let offered = welcomed(&mut machine, 3, &hello(life(10, 1), 2));
    assert_ne!(offered, known);
    machine.closed(NOW, SocketId(3));
    answers(&mut machine, 2, NodeId(10), Answer::Welcome(welcome_of(life(10, 1), known)));
    assert_eq!(closed(&mut machine), [(SocketId(2), Closed::Superseded)]);
    assert_eq!(machine.carried_by(NodeId(10)), None);
    // The offer still stands, and the next answer counts.
    let again = machine.next_tick().expect("it dials again");
    machine.tick(again);
    let dial = dial_of(&mut machine);
    machine.dialled(again, dial, SocketId(4));
    assert_eq!(welcomed(&mut machine, 5, &knows(hello(life(10, 1), 3), offered)), offered);
    machine.closed(NOW, SocketId(5));
    answers(&mut machine, 4, NodeId(10), Answer::Welcome(welcome_of(life(10, 1), known)));
    assert_eq!(machine.carried_by(NodeId(10)), Some(SocketId(4)));
}
