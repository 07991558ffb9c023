//! A node's id proves itself: what a node without the key can send in the name of another, and what follows
//! from it.

use bytes::{Bytes, BytesMut};
use dunlin_proto::id::{ConnectionId, DialId, Incarnation, Life, NodeId, SocketId};
use dunlin_proto::identity::{Identity, StandIn, confirm, prove, proven_by, sign_hello};
use dunlin_proto::time::Time;
use dunlin_proto::wire::handshake::{Answer, Bound, Hello, Proof, Refusal, Resume, Welcome};
use dunlin_proto::wire::{Frame, VERSIONS, codec, limits};
use dunlin_proto::{Action, Closed, Config, Down, Machine, State};

const NOW: Time = Time(0);
const ME: NodeId = NodeId(20);
const PEER: NodeId = NodeId(10);
const THIEF: NodeId = NodeId(66);

fn life(node: NodeId) -> Life {
    Life { node, incarnation: Incarnation(1) }
}

fn hello(me: Life, attempt: u64, resume: Resume) -> Hello {
    Hello {
        versions: VERSIONS,
        application: "tides".into(),
        me,
        wanted: ME,
        met: Incarnation(1),
        attempt,
        resume,
        addresses: vec!["there".into()],
        bound: Bound::default(),
        key: StandIn::of(me.node).key(),
        nonce: u128::from(attempt),
        signature: Bytes::new(),
    }
}

/// A node whose ids are drawn, as dunlin's are, and its actions.
struct Node {
    machine: Machine,
    sockets: u64,
    done: Vec<Action>,
}

impl Node {
    fn new() -> Self {
        let mut config = Config::new("tides");
        config.keeps_id = false;
        Self { machine: StandIn::machine(config, life(ME), 1), sockets: 0, done: Vec::new() }
    }

    /// A node that is connected with its peer, which has dialled. Returns the socket, and the resume point of
    /// both.
    fn connected() -> (Self, SocketId, Resume) {
        let mut node = Self::new();
        let begin = hello(life(PEER), 1, Resume { run: 1, ..Resume::default() });
        let (socket, answer) = node.hears_hello(&begin);
        let Answer::Welcome(welcome) = &answer else { panic!("{answer:?}") };
        let resume = welcome.resume;
        node.hears(socket, &confirm(&StandIn::of(PEER), &StandIn::says(&begin), &answer));
        assert_eq!(node.machine.carried_by(PEER), Some(socket));
        node.done.clear();
        (node, socket, resume)
    }

    fn settle(&mut self) {
        self.done.extend(std::iter::from_fn(|| self.machine.poll()));
    }

    fn said(&mut self, socket: SocketId) -> Vec<u8> {
        let mut out = Vec::new();
        self.machine.fill(NOW, socket, 1 << 16, &mut out);
        out.concat()
    }

    fn hears_hello(&mut self, hello: &Hello) -> (SocketId, Answer) {
        self.hears_bytes(StandIn::says(hello))
    }

    fn hears_bytes(&mut self, hello: Bytes) -> (SocketId, Answer) {
        let socket = SocketId(self.sockets);
        self.sockets += 1;
        self.machine.accepted(NOW, socket);
        self.machine.received(NOW, socket, hello);
        self.settle();
        let said = self.said(socket);
        (socket, Answer::decode(&mut BytesMut::from(&said[..])).expect("it can be read").expect("it is whole"))
    }

    fn hears(&mut self, socket: SocketId, frame: &Frame) {
        let mut bytes = BytesMut::new();
        codec::encode(frame, &mut bytes);
        self.machine.received(NOW, socket, bytes.freeze());
        self.settle();
    }

    fn dial(&mut self) -> Option<DialId> {
        let at = self.done.iter().position(|action| matches!(action, Action::Dial(..)))?;
        let Action::Dial(dial, _) = self.done.remove(at) else { unreachable!("it is one") };
        Some(dial)
    }

    /// The node has dialled, and sends hello on the socket.
    fn dials(&mut self) -> (SocketId, Vec<u8>) {
        let dial = self.dial().expect("it dials");
        let socket = SocketId(self.sockets);
        self.sockets += 1;
        self.machine.dialled(NOW, dial, socket);
        self.settle();
        let said = self.said(socket);
        (socket, said)
    }

    fn closed(&self, socket: SocketId) -> Option<&Closed> {
        self.done.iter().find_map(|action| match action {
            Action::Close(closed, why) if *closed == socket => Some(why),
            _ => None,
        })
    }

    fn states(&self) -> Vec<&State> {
        let mut states = Vec::new();
        for action in &self.done {
            if let Action::Connection(_, state) = action {
                states.push(state);
            }
        }
        states
    }
}

fn welcome(me: Life, resume: Resume) -> Answer {
    Answer::Welcome(Welcome {
        version: VERSIONS.1,
        me,
        resume,
        addresses: Vec::new(),
        bound: Bound::default(),
        nonce: 9,
        proof: Proof::default(),
    })
}

/// Another node replays whatever the peer has sent once: without the peer's key it can neither end a
/// connection nor take one over.
#[test]
fn a_replayed_hello_without_the_key_changes_nothing() {
    let (mut node, carrier, resume) = Node::connected();
    let mut attempt = 2;
    for guess in [
        resume,
        Resume { seen: 1, ..resume },
        Resume { run: resume.run + 1, ..resume },
        Resume { run: limits::RUN - 1, ..resume },
        Resume { run: 1, ..Resume::default() },
    ] {
        let claims = hello(life(PEER), attempt, guess);
        attempt += 1;
        let (socket, answer) = node.hears_hello(&claims);
        assert!(matches!(answer, Answer::Welcome(_)), "{guess:?}: {answer:?}");
        // The replaying node has its own key, and the peer's signature of another handshake.
        node.hears(socket, &confirm(&StandIn::of(THIEF), &StandIn::says(&claims), &answer));
        assert_eq!(node.closed(socket), Some(&Closed::Unproven(PEER)), "{guess:?}");
        assert_eq!((node.machine.carried_by(PEER), node.states().len()), (Some(carrier), 0), "{guess:?}");
        assert_eq!(node.machine.connection_id(PEER), Some(resume.connection));
    }
    // By contrast, the peer itself resumes, under a later attempt.
    let honest = hello(life(PEER), attempt, resume);
    let (socket, answer) = node.hears_hello(&honest);
    node.hears(socket, &confirm(&StandIn::of(PEER), &StandIn::says(&honest), &answer));
    assert_eq!(node.machine.carried_by(PEER), Some(socket));
    assert!(node.states().contains(&&State::Resumed), "{:?}", node.states());
}

/// A node does not answer what a stranger makes up in the peer's name, and no dial of its own gives way to
/// it.
#[test]
fn hello_that_the_node_has_not_signed_is_refused() {
    let (mut node, carrier, resume) = Node::connected();
    let honest = hello(life(PEER), 2, resume);
    let signed = sign_hello(&StandIn::of(PEER), honest.clone());
    let by_the_thief = sign_hello(&StandIn::of(THIEF), honest.clone()).signature;
    for claims in [
        honest.clone(),
        Hello { signature: by_the_thief, ..honest },
        Hello { attempt: 3, ..signed.clone() },
        Hello { resume: Resume { seen: 1, ..resume }, ..signed.clone() },
        Hello { addresses: vec!["elsewhere".into()], ..signed.clone() },
        Hello { nonce: 7, ..signed.clone() },
    ] {
        assert_eq!(node.hears_bytes(claims.encode()).1, Answer::Refused(Refusal::Unproven), "{claims:?}");
        // Neither does it answer what the peer has sent to a third node.
        let wanted = NodeId(21);
        let to_another = sign_hello(&StandIn::of(PEER), Hello { wanted, ..claims });
        let (_, answer) = node.hears_bytes(Hello { wanted: ME, ..to_another }.encode());
        assert_eq!(answer, Answer::Refused(Refusal::Unproven));
    }
    assert_eq!((node.machine.carried_by(PEER), node.states().len()), (Some(carrier), 0));
    // By contrast, the signed hello is welcome.
    assert!(matches!(node.hears_bytes(signed.encode()).1, Answer::Welcome(_)));
}

/// Whichever of the two has the smaller id, and whenever a stranger sends a hello in the peer's name: it
/// costs this node's dial no time, no answer and no offer.
#[test]
fn unsigned_hellos_do_not_delay_a_dial() {
    for peer in [PEER, NodeId(30)] {
        for strangers_come in 0..3 {
            let mut node = Node::new();
            let strangers = |node: &mut Node, moment| {
                for attempt in 1..=6 * u64::from(moment == strangers_come) {
                    let claims = hello(life(peer), attempt, Resume { run: 1, ..Resume::default() });
                    node.hears_bytes(claims.encode());
                }
            };
            strangers(&mut node, 0);
            node.machine.learn(peer, &["there".to_owned()]);
            node.machine.connect(NOW, peer);
            node.settle();
            strangers(&mut node, 1);
            let (socket, said) = node.dials();
            let heard = Hello::decode(&mut BytesMut::from(&said[..])).unwrap();
            let heard = heard.unwrap_or_else(|| panic!("{peer}, {strangers_come}: it gives way to a stranger"));
            assert_eq!(heard.resume.connection, ConnectionId::NONE, "{peer}, {strangers_come}");
            strangers(&mut node, 2);
            let answer = welcome(life(peer), Resume { connection: ConnectionId(7), run: 1, seen: 0 });
            node.machine.received(NOW, socket, prove(&StandIn::of(peer), &said, answer).encode());
            node.settle();
            assert_eq!(node.machine.carried_by(peer), Some(socket), "{peer}, {strangers_come}");
        }
    }
}

#[test]
fn confirmation_of_another_handshake_proves_nothing() {
    let (mut node, carrier, resume) = Node::connected();
    let honest = hello(life(PEER), 2, resume);
    let (_, first) = node.hears_hello(&honest);
    let replayed = confirm(&StandIn::of(PEER), &StandIn::says(&honest), &first);
    // The same hello, byte for byte; but the answer has another nonce.
    let (socket, second) = node.hears_hello(&honest);
    assert_ne!(first, second);
    node.hears(socket, &replayed);
    assert_eq!(node.closed(socket), Some(&Closed::Unproven(PEER)));
    // The signature of a dialled node is not that of a dialler.
    let (socket, answer) = node.hears_hello(&honest);
    let Answer::Welcome(Welcome { proof, .. }) = prove(&StandIn::of(PEER), &StandIn::says(&honest), answer) else {
        panic!()
    };
    node.hears(socket, &Frame::Confirm { signature: proof.signature });
    assert_eq!(node.closed(socket), Some(&Closed::Unproven(PEER)));
    assert_eq!(node.machine.carried_by(PEER), Some(carrier));
}

#[test]
fn hello_whose_key_does_not_match_its_id_is_refused() {
    let (mut node, carrier, resume) = Node::connected();
    for key in [StandIn::of(THIEF).key(), Bytes::new(), Bytes::from_static(&[7; limits::KEY])] {
        for wanted in [ME, NodeId(0)] {
            let claims = Hello { key: key.clone(), wanted, ..hello(life(PEER), 2, resume) };
            let (socket, answer) = node.hears_hello(&claims);
            assert_eq!(answer, Answer::Refused(Refusal::Unproven));
            assert_eq!(node.closed(socket), Some(&Closed::Refused(Refusal::Unproven)));
        }
    }
    assert_eq!(node.machine.carried_by(PEER), Some(carrier));
}

/// Each node draws its id when it starts: another incarnation is not a restart, whichever key has signed it.
#[test]
fn another_incarnation_of_an_id_is_refused() {
    let (mut node, carrier, resume) = Node::connected();
    for incarnation in [2, u64::MAX] {
        let later = Life { incarnation: Incarnation(incarnation), ..life(PEER) };
        let (socket, answer) = node.hears_hello(&hello(later, 2, resume));
        let Answer::Over(Refusal::AnotherLife(Incarnation(1)), _) = answer else { panic!("{answer:?}") };
        assert_eq!(node.closed(socket), Some(&Closed::Refused(Refusal::AnotherLife(Incarnation(1)))));
    }
    assert_eq!((node.machine.carried_by(PEER), node.states().len()), (Some(carrier), 0));
    // And the true one is not taken for an earlier life of itself.
    let honest = hello(life(PEER), 2, resume);
    let (socket, answer) = node.hears_hello(&honest);
    node.hears(socket, &confirm(&StandIn::of(PEER), &StandIn::says(&honest), &answer));
    assert_eq!(node.machine.carried_by(PEER), Some(socket));
}

/// The dialler rejects a `Welcome` that the wanted node has not signed over the dialler's own `Hello`.
#[test]
fn welcome_requires_the_signature_of_the_dialled_node() {
    let resume = Resume { connection: ConnectionId(7), run: 1, seen: 0 };
    let proved_for_another_hello = |said: &[u8]| {
        let mut other = said.to_vec();
        *other.last_mut().expect("it is not empty") ^= 1;
        prove(&StandIn::of(PEER), &other, welcome(life(PEER), resume))
    };
    let changed_behind_the_signature = |said: &[u8]| {
        let Answer::Welcome(signed) = prove(&StandIn::of(PEER), said, welcome(life(PEER), resume)) else { panic!() };
        Answer::Welcome(Welcome { addresses: vec!["elsewhere".into()], ..signed })
    };
    type Forges<'a> = &'a dyn Fn(&[u8]) -> Answer;
    let forgeries: [Forges<'_>; 4] = [
        &|_| welcome(life(PEER), resume),
        &|said| prove(&StandIn::of(THIEF), said, welcome(life(PEER), resume)),
        &proved_for_another_hello,
        &changed_behind_the_signature,
    ];
    for (n, forge) in forgeries.into_iter().enumerate() {
        let mut node = Node::new();
        node.machine.learn(PEER, &["there".to_owned()]);
        node.machine.connect(NOW, PEER);
        node.settle();
        let (socket, said) = node.dials();
        node.machine.received(NOW, socket, forge(&said).encode());
        node.settle();
        assert_eq!(node.closed(socket), Some(&Closed::Unproven(PEER)), "{n}");
        assert_eq!((node.machine.carried_by(PEER), node.states().len()), (None, 0), "{n}");
        assert_eq!(node.machine.connection_id(PEER), None, "{n}");

        // The node dials again, and accepts the answer of the peer itself.
        let at = node.machine.next_tick().expect("it tries again");
        node.machine.tick(at);
        node.settle();
        let (socket, said) = node.dials();
        let answer = prove(&StandIn::of(PEER), &said, welcome(life(PEER), resume));
        node.machine.received(NOW, socket, answer.encode());
        node.settle();
        assert_eq!(node.machine.carried_by(PEER), Some(socket), "{n}");
    }
}

/// A node's answer to an identity request is signed, too; and a third node cannot use it for a connection.
#[test]
fn introductions_are_proved_and_prove_no_connection() {
    for (by, believed) in [(PEER, true), (THIEF, false)] {
        let mut node = Node::new();
        node.machine.introduce("there".to_owned());
        node.settle();
        let (socket, said) = node.dials();
        let answer = prove(&StandIn::of(by), &said, welcome(life(PEER), Resume::default()));
        node.machine.received(NOW, socket, answer.encode());
        node.settle();
        let told = node.done.iter().find_map(|action| match action {
            Action::Introduced(_, told) => Some(told.as_ref().is_ok_and(|node| *node == PEER)),
            _ => None,
        });
        assert_eq!(told, Some(believed));
    }
    // The dialler signs nothing in an introduction, and the answer is signed over a hello for no particular
    // node.
    let mut node = Node::new();
    let asks = Hello { wanted: NodeId(0), attempt: 0, ..hello(life(PEER), 0, Resume::default()) };
    let (socket, answer) = node.hears_hello(&asks);
    assert_eq!(proven_by(&StandIn::of(PEER), &StandIn::says(&asks), &answer), Some(ME));
    let wants = Hello { wanted: ME, ..asks.clone() };
    assert_eq!(proven_by(&StandIn::of(PEER), &StandIn::says(&wants), &answer), None);
    node.hears(socket, &confirm(&StandIn::of(PEER), &StandIn::says(&asks), &answer));
    assert_eq!(node.machine.carried_by(PEER), None);
}

/// Only the peer itself can end what the two nodes share. Another node cannot, even if it answers at an
/// address that the peer or other nodes have sent.
#[test]
fn refusals_that_end_a_connection_must_be_proved() {
    for why in
        [Refusal::Forgotten, Refusal::Impossible, Refusal::Stale(Incarnation(9)), Refusal::AnotherLife(Incarnation(9))]
    {
        for by in [None, Some(THIEF), Some(PEER)] {
            let (mut node, carrier, _) = Node::connected();
            node.machine.learn(PEER, &["there".to_owned()]);
            node.machine.closed(NOW, carrier);
            node.settle();
            let (socket, said) = node.dials();
            let answer = match by {
                None => Answer::Refused(why.clone()),
                Some(by) => prove(&StandIn::of(by), &said, Answer::Over(why.clone(), Proof::default())),
            };
            node.machine.received(NOW, socket, answer.encode());
            node.settle();
            let is_down = node.states().iter().any(|state| matches!(state, State::Down(_)));
            assert_eq!(is_down, by == Some(PEER), "{why:?} by {by:?}: {:?}", node.states());
        }
    }
}

/// Hellos that a peer sent once delay this node's own dial to that peer for a few attempts, not for ever.
#[test]
fn replayed_hellos_of_a_peer_do_not_prevent_its_dial() {
    let mut node = Node::new();
    node.machine.learn(PEER, &["there".to_owned()]);
    node.machine.connect(NOW, PEER);
    node.settle();
    let mut now = NOW;
    for tries in 1.. {
        assert!(tries < 20, "it is never connected");
        let Some(dial) = node.dial() else {
            now = node.machine.next_tick().expect("it tries again").max(now);
            node.machine.tick(now);
            node.settle();
            continue;
        };
        let socket = SocketId(node.sockets);
        node.sockets += 1;
        node.machine.dialled(now, dial, socket);
        node.settle();
        let said = node.said(socket);
        if said.is_empty() {
            // For a moment, it gives way to the socket that was answered.
            continue;
        }
        let heard = Hello::decode(&mut BytesMut::from(&said[..])).unwrap().unwrap();
        // The peer knows of no connection; and another node repeatedly sends a hello in its name.
        let answer = if heard.resume.connection.is_some() {
            Answer::Over(Refusal::Forgotten, Proof::default())
        } else {
            welcome(life(PEER), Resume { connection: ConnectionId(7), run: 1, seen: 0 })
        };
        let claims = hello(life(PEER), 100 + tries, Resume { run: 1, ..Resume::default() });
        let stranger = SocketId(1_000_000 + tries);
        node.machine.accepted(now, stranger);
        node.machine.received(now, stranger, StandIn::says(&claims));
        node.machine.received(now, socket, prove(&StandIn::of(PEER), &said, answer).encode());
        node.settle();
        if node.machine.carried_by(PEER) == Some(socket) {
            return assert!(!node.states().iter().any(|state| matches!(state, State::Down(Down::Unreachable(..)))));
        }
    }
}
