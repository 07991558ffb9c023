//! A violation of the protocol ends the connection at once, with its reason, and nothing else; frames that
//! may cross on their way do not. The lists are those of `docs/wire.md`.

use bytes::{Bytes, BytesMut};
use dunlin_proto::id::{ChannelId, ConnectionId, Incarnation, Life, NodeId, SocketId};
use dunlin_proto::identity::{Identity, StandIn, confirm, prove, proven_by};
use dunlin_proto::time::Time;
use dunlin_proto::wire::handshake::{Answer, Bound, Hello, Proof, Refusal, Resume, Welcome};
use dunlin_proto::wire::{
    Declaration, End, Expected, Face, Failure, Frame, FromHome, Head, Kind, Memory, Poison, Terms, ToHome, VERSIONS,
    codec, limits,
};
use dunlin_proto::{
    Action, Config, Down, HomeHears, Machine,
    PeerMisbehaved::{self, *},
    State,
};

const NOW: Time = Time(0);
/// The peer that sends the frames, and another one that must not be harmed.
const PEERS: [NodeId; 2] = [NodeId(10), NodeId(11)];
/// Its home is here, for sending halves of peers.
const HERE: ChannelId = ChannelId(1);
/// Its home is at the first peer, and a sending half here.
const THERE: ChannelId = ChannelId(2);
/// Its home is at the other peer.
const ELSEWHERE: ChannelId = ChannelId(3);

fn face() -> Declaration {
    Declaration { face: Face::Sender, shared: false, expects: Expected::Unknown, schema: Bytes::new() }
}

fn hello(peer: usize) -> Hello {
    Hello {
        versions: VERSIONS,
        application: "laws".into(),
        me: Life { node: PEERS[peer], incarnation: Incarnation(1) },
        wanted: NodeId(1),
        met: Incarnation(0),
        attempt: 1,
        resume: Resume { run: 1, seen: 0, ..Resume::default() },
        addresses: Vec::new(),
        bound: Bound::default(),
        key: StandIn::of(PEERS[peer]).key(),
        nonce: 1,
        signature: Bytes::new(),
    }
}

/// A node that is up with both peers; it offers tickets 1 to 3 on `THERE`, 3 as a choice.
struct Node {
    machine: Machine,
    /// How the connection with the first peer has ended.
    down: Option<Down>,
    /// The machine's ids of the connections, in the order of their events.
    connections: Vec<ConnectionId>,
    /// The last answer of the machine.
    answer: Option<Answer>,
}

impl Node {
    fn new() -> Self {
        let mut machine =
            StandIn::machine(Config::new("laws"), Life { node: NodeId(1), incarnation: Incarnation(1) }, 1);
        let terms = Terms { window: 3, credits: 1, value_max: 100 };
        machine.open_home(HERE, terms, face(), true).unwrap();
        let mut node = Self { machine, down: None, connections: Vec::new(), answer: None };
        for peer in 0..2 {
            node.machine.accepted(NOW, SocketId(peer as u64));
            node.arrives(peer, StandIn::says(&hello(peer)));
            node.confirms(peer, &hello(peer));
        }
        node.machine.attach(NOW, THERE, PEERS[0], face()).unwrap();
        node.machine.attach(NOW, ELSEWHERE, PEERS[1], face()).unwrap();
        node.machine.offer(NOW, THERE, 1, Bytes::from_static(b"one"));
        node.machine.offer(NOW, THERE, 2, Bytes::from_static(b"two"));
        node.machine.offer_choice(NOW, THERE, 3, 1);
        node.hears(&[from_home(THERE, FromHome::Attached(terms))]);
        assert_eq!(node.down, None);
        node
    }

    fn arrives(&mut self, peer: usize, bytes: Bytes) {
        self.machine.received(NOW, SocketId(peer as u64), bytes);
        while let Some(action) = self.machine.poll() {
            match action {
                Action::Write(socket) | Action::Close(socket, _) => {
                    let mut out = Vec::new();
                    while self.machine.fill(NOW, socket, 1 << 16, &mut out) > 0 {}
                    if let Ok(Some(answer)) = Answer::decode(&mut BytesMut::from(&out.concat()[..])) {
                        if let Answer::Welcome(welcome) = &answer {
                            self.connections.push(welcome.resume.connection);
                        }
                        self.answer = Some(answer);
                    }
                }
                Action::Connection(node, State::Down(why)) => {
                    assert_eq!(node, PEERS[0], "the other peer has done nothing");
                    self.down = Some(why);
                }
                _ => {}
            }
        }
    }

    /// The first frame of the dialling side, which has read the last answer.
    fn confirms(&mut self, socket: usize, hello: &Hello) {
        let answer = self.answer.take().expect("its hello is answered");
        let mut bytes = BytesMut::new();
        codec::encode(&confirm(&StandIn::of(hello.me.node), &StandIn::says(hello), &answer), &mut bytes);
        self.arrives(socket, bytes.freeze());
    }

    fn hears(&mut self, frames: &[Frame]) {
        let mut bytes = BytesMut::new();
        for frame in frames {
            let piece = codec::encode(frame, &mut bytes);
            bytes.extend_from_slice(&piece.unwrap_or_default());
        }
        self.arrives(0, bytes.freeze());
    }
}

fn from_home(channel: ChannelId, said: FromHome) -> Frame {
    Frame::FromHome(channel, said)
}

fn to_home(said: ToHome) -> Frame {
    Frame::ToHome(HERE, said)
}

fn attach() -> Frame {
    to_home(ToHome::Attach(face()))
}

fn gone() -> Frame {
    to_home(ToHome::Ended(End::Gone))
}

fn value(head: Head, total: u64, first: &'static [u8]) -> Frame {
    to_home(ToHome::Value { head, total, first: Bytes::from_static(first) })
}

fn offer(ticket: u64) -> Frame {
    value(Head::Offer(ticket), 1, b"x")
}

/// A value of this length, where none has arrived.
fn above_credit(bytes: u64) -> PeerMisbehaved {
    AboveCredit { bytes: bytes + limits::VALUE, bytes_left: limits::CREDIT }
}

fn more(piece: &'static [u8]) -> Frame {
    Frame::More(HERE, Bytes::from_static(piece))
}

#[test]
fn protocol_violation_ends_only_its_own_connection() {
    let at_home = |said: FromHome| from_home(THERE, said);
    let choice = |ticket| to_home(ToHome::OfferChoice(ticket, 7));
    let terms = Terms { window: 1, credits: 0, value_max: 1 };
    let announce = |number, kind, total| Frame::Memory(Memory::Announce { number, channel: HERE, kind, total });
    let offered = |number, total| announce(number, Kind::Offer, total);
    let elsewhere =
        |number| Frame::Memory(Memory::Announce { number, channel: ChannelId(98), kind: Kind::Sent, total: 1 });
    let recant = |number| Frame::Memory(Memory::Recant(number));
    let cases: &[(PeerMisbehaved, &[Frame])] = &[
        (LateConfirm, &[Frame::Confirm { signature: Bytes::new() }]),
        (Acknowledged { seen: 100 }, &[Frame::Ack { seen: 100 }]),
        (Acknowledged { seen: 2 }, &[Frame::Ack { seen: 3 }, Frame::Ack { seen: 2 }]),
        (StrayPiece, &[attach(), more(b"x")]),
        (StrayPiece, &[attach(), value(Head::Offer(1), 3, b"x"), more(b"xyz")]),
        (StrayCut, &[attach(), Frame::Cut(HERE)]),
        (WithinValue, &[attach(), value(Head::Offer(1), 3, b"x"), offer(2)]),
        // Otherwise the rest would use a credit of the next half, which may have none.
        (WithinValue, &[attach(), value(Head::Sent, 3, b"x"), gone()]),
        (TicketInUse(1), &[attach(), offer(1), offer(1)]),
        (TicketInUse(1), &[attach(), offer(1), choice(1)]),
        (WindowFull { window: 3 }, &[attach(), offer(1), choice(2), offer(3), offer(4)]),
        (WindowFull { window: 3 }, &[attach(), offer(1), choice(2), offer(3), choice(4)]),
        (SentAfterEnd, &[attach(), to_home(ToHome::Ended(End::Retired)), value(Head::Sent, 1, b"x")]),
        (NoCredit, &[attach(), value(Head::Sent, 1, b"x"), value(Head::Sent, 1, b"x")]),
        (above_credit(300_000), &[attach(), value(Head::Offer(1), 300_000, b"x")]),
        (LengthChanged { announced: 10, bytes: 1 }, &[attach(), offered(1, 10), offer(1)]),
        (AnnouncedTwice(2), &[attach(), offered(1, 10), offered(2, 10)]),
        (AnnouncementInUse(2), &[attach(), offered(1, 10), recant(1), offered(2, 10), elsewhere(2)]),
        (UnknownAnnouncement(1), &[attach(), recant(1)]),
        (UnknownAnnouncement(1), &[attach(), offered(1, 10), recant(1), recant(1)]),
        (ValueTooLarge { bytes: 101, bytes_max: 100 }, &[attach(), value(Head::Sent, 101, b"x")]),
        (ValueTooLarge { bytes: 101, bytes_max: 100 }, &[attach(), choice(1), value(Head::Grant(1, 1), 101, b"x")]),
        (NotAChoice(1), &[attach(), offer(1), value(Head::Grant(1, 1), 1, b"x")]),
        (HalfGone, &[attach(), offer(1), gone(), offer(2)]),
        (HalfGone, &[attach(), offer(1), gone(), choice(2)]),
        (HalfGone, &[attach(), offer(1), gone(), gone()]),
        (TermsTwice, &[at_home(FromHome::Attached(terms))]),
        (NotOffered(9), &[at_home(FromHome::Taken(9))]),
        (NotOffered(1), &[at_home(FromHome::Taken(1)), at_home(FromHome::Taken(1))]),
        (CannotHold(9), &[at_home(FromHome::Held(9))]),
        (CannotHold(1), &[at_home(FromHome::Held(1)), at_home(FromHome::Held(1))]),
        (NotHeld(1), &[at_home(FromHome::Released(1))]),
        (NotOffered(9), &[at_home(FromHome::Withdrawn(9))]),
        (OnwardHeld(1), &[at_home(FromHome::Held(1)), at_home(FromHome::Onward(1))]),
        (NotAChoice(1), &[at_home(FromHome::Reserve(1, 1))]),
        (NotAChoice(9), &[at_home(FromHome::Reserve(9, 1))]),
        (NotTheHome, &[from_home(ELSEWHERE, FromHome::Taken(1))]),
    ];
    for (why, frames) in cases {
        let mut node = Node::new();
        let (last, before) = frames.split_last().unwrap();
        node.hears(before);
        assert_eq!(node.down, None, "{before:?} breaks nothing");
        node.hears(std::slice::from_ref(last));
        assert_eq!(node.down, Some(Down::Violation(why.to_string())), "{frames:?}");
        assert!(node.machine.carried_by(PEERS[1]).is_some());
    }
}

/// Only the dialler confirms, and only as its first frame after the handshake.
#[test]
fn the_dialled_side_does_not_confirm() {
    let mut node = Node::new();
    let (dialled, socket) = (NodeId(12), SocketId(7));
    node.machine.learn(dialled, &["there".to_owned()]);
    node.machine.connect(NOW, dialled);
    let dial = std::iter::from_fn(|| node.machine.poll()).find_map(|action| match action {
        Action::Dial(dial, _) => Some(dial),
        _ => None,
    });
    node.machine.dialled(NOW, dial.expect("it dials"), socket);
    let me = Life { node: dialled, incarnation: Incarnation(1) };
    let welcome = Welcome {
        version: VERSIONS.1,
        me,
        resume: Resume { connection: ConnectionId(7), run: 1, seen: 0 },
        addresses: Vec::new(),
        bound: Bound::default(),
        nonce: 1,
        proof: Proof::default(),
    };
    let mut said = Vec::new();
    node.machine.fill(NOW, socket, 1 << 16, &mut said);
    let answer = prove(&StandIn::of(dialled), &said.concat(), Answer::Welcome(welcome));
    node.machine.received(NOW, socket, answer.encode());
    assert!(
        std::iter::from_fn(|| node.machine.poll()).any(|action| action == Action::Connection(dialled, State::Up(me)))
    );
    let mut again = BytesMut::new();
    codec::encode(&Frame::Confirm { signature: Bytes::new() }, &mut again);
    node.machine.received(NOW, socket, again.freeze());
    let why = Down::Violation(LateConfirm.to_string());
    let down = Action::Connection(dialled, State::Down(why));
    assert!(std::iter::from_fn(|| node.machine.poll()).any(|action| action == down));
}

#[test]
fn frames_that_may_cross_in_flight_are_no_violation() {
    let nowhere = ChannelId(99);
    let to_nowhere = |said| Frame::ToHome(nowhere, said);
    let first = Bytes::from_static(b"x");
    let cases: &[&[Frame]] = &[
        &[Frame::Heartbeat, Frame::Ack { seen: 0 }, Frame::Ack { seen: 3 }, Frame::Ack { seen: 3 }],
        &[from_home(nowhere, FromHome::Taken(1)), from_home(nowhere, FromHome::Ended(End::Gone))],
        &[to_nowhere(ToHome::Withdraw(1)), to_nowhere(ToHome::Ended(End::Gone))],
        &[
            to_nowhere(ToHome::Value { head: Head::Offer(1), total: 2, first: first.clone() }),
            Frame::More(nowhere, first.clone()),
            to_nowhere(ToHome::Value { head: Head::Offer(1), total: 2, first }),
            Frame::Cut(nowhere),
        ],
        &[from_home(THERE, FromHome::Failed(9, Failure::Closed)), from_home(THERE, FromHome::Abort(9, 1))],
        &[attach(), to_home(ToHome::Withdraw(9)), to_home(ToHome::Revoke(9)), value(Head::Grant(9, 1), 1, b"x")],
        &[attach(), value(Head::Offer(1), 101, b"x"), Frame::Cut(HERE), offer(1)],
        &[attach(), gone(), attach(), gone()],
        &[attach(), attach()],
        // The other side has yet to learn that the channel has ended, or what was admitted.
        &[
            Frame::Memory(Memory::Announce { number: 1, channel: nowhere, kind: Kind::Offer, total: 1 << 30 }),
            to_nowhere(ToHome::Value { head: Head::Offer(1), total: 1 << 30, first: Bytes::from_static(b"x") }),
            Frame::Cut(nowhere),
        ],
        &[
            Frame::Memory(Memory::Announce { number: 1, channel: nowhere, kind: Kind::Grant, total: 9 }),
            Frame::Memory(Memory::Recant(1)),
            Frame::Memory(Memory::Admit(7)),
            Frame::Memory(Memory::Credit(u64::MAX)),
            Frame::Memory(Memory::Credit(u64::MAX)),
        ],
    ];
    for frames in cases {
        let mut node = Node::new();
        node.hears(frames);
        assert_eq!(node.down, None, "{frames:?}");
    }
}

#[test]
fn announced_values_are_bounded() {
    let announce = |number: u64| {
        let channel = ChannelId(1000 + u128::from(number));
        Frame::Memory(Memory::Announce { number, channel, kind: Kind::Offer, total: 9 })
    };
    let most = limits::ANNOUNCED as u64;
    let mut node = Node::new();
    for from in (0..most).step_by(1024) {
        node.hears(&(from..from + 1024).map(announce).collect::<Vec<_>>());
    }
    assert_eq!(node.down, None);
    node.hears(&[announce(most)]);
    assert_eq!(node.down, Some(Down::Violation(TooManyAnnounced { values_max: limits::ANNOUNCED }.to_string())));
}

/// The bytes of a frame before its piece suffice to refuse it: the machine does not wait for the rest.
#[test]
fn disallowed_long_frame_is_refused_before_it_is_complete() {
    let piece = |length| Bytes::from(vec![7; length]);
    let value = |channel, total: usize| {
        Frame::ToHome(channel, ToHome::Value { head: Head::Offer(9), total: total as u64, first: piece(total) })
    };
    let announced = Memory::Announce { number: 1, channel: HERE, kind: Kind::Offer, total: 200_000 };
    for (before, frame, why) in [
        (None, Frame::More(HERE, piece(100_000)), StrayPiece),
        (None, value(HERE, 300_000), above_credit(300_000)),
        (None, value(ChannelId(99), 300_000), above_credit(300_000)),
        (Some(announced), value(HERE, 100_000), LengthChanged { announced: 200_000, bytes: 100_000 }),
    ] {
        let mut node = Node::new();
        if let Some(before) = before {
            node.hears(&[Frame::Memory(before)]);
        }
        assert_eq!(node.down, None);
        let mut bytes = BytesMut::new();
        let tail = codec::encode(&frame, &mut bytes);
        bytes.extend(tail);
        node.arrives(0, bytes.freeze().slice(..1000));
        assert_eq!(node.down, Some(Down::Violation(why.to_string())));
    }
    // This frame is allowed.
    let mut node = Node::new();
    let mut bytes = BytesMut::new();
    let tail = codec::encode(&value(HERE, 200_000), &mut bytes);
    bytes.extend(tail);
    node.arrives(0, bytes.split_to(100_000).freeze());
    assert_eq!(node.down, None);
    node.arrives(0, bytes.freeze());
    assert_eq!(node.down, None);
}

/// A value was admitted for a channel that is not here: none of its frames is kept, in whatever parts they
/// arrive, and the frames after them are received.
#[test]
fn unneeded_long_frames_are_skipped() {
    const TOTAL: usize = 2 << 20;
    let nowhere = ChannelId(99);
    let announce = Memory::Announce { number: 1, channel: nowhere, kind: Kind::Offer, total: TOTAL as u64 };
    let first = Bytes::from(vec![7; limits::CHUNK]);
    let head = ToHome::Value { head: Head::Offer(9), total: TOTAL as u64, first: first.clone() };
    let frames = [
        Frame::ToHome(nowhere, head),
        Frame::More(nowhere, first.clone()),
        Frame::ToHome(HERE, ToHome::Attach(face())),
    ];
    let mut bytes = BytesMut::new();
    for frame in &frames {
        let tail = codec::encode(frame, &mut bytes);
        bytes.extend(tail);
    }
    for (part, drivers_buffer) in [(700_000, false), (700_000, true), (65_000, false), (65_000, true)] {
        let mut node = Node::new();
        node.hears(&[Frame::Memory(announce)]);
        let (mut rest, mut buffer, mut kept) = (bytes.clone().freeze(), BytesMut::new(), 0);
        while !rest.is_empty() {
            let arrives = rest.split_to(part.min(rest.len()));
            if drivers_buffer {
                buffer.extend_from_slice(&arrives);
                node.machine.received_in(NOW, SocketId(0), &mut buffer);
                kept = kept.max(buffer.len());
            } else {
                node.arrives(0, arrives);
            }
        }
        assert!(kept < limits::FRAME, "{kept} bytes of an unneeded frame are kept");
        let is_attached = |action| matches!(action, Action::Home(HERE, _, HomeHears::Attached));
        let attached = std::iter::from_fn(|| node.machine.poll()).any(is_attached);
        // (`arrives` has already polled the actions.)
        assert!(attached || !drivers_buffer, "the frames after it are received");
        assert_eq!(node.down, None);
        // Otherwise this value would have no half.
        node.hears(&[Frame::ToHome(HERE, ToHome::Value { head: Head::Sent, total: 1, first: first.slice(..1) })]);
        node.hears(&[Frame::ToHome(HERE, ToHome::Value { head: Head::Sent, total: 1, first: first.slice(..1) })]);
        assert!(matches!(node.down, Some(Down::Violation(_))), "one credit was given: {:?}", node.down);
    }
}

#[test]
fn bytes_that_are_no_frame_end_the_connection() {
    for (bytes, why) in [
        (&b"\x77\x00"[..], "unknown frame kind 0x77"),
        (b"\x01\x01x", "a frame of 1 bytes; at most 0 are allowed"),
        (b"\x21\xff\xff\xff\x7f", "a frame of 268435455 bytes; at most 1048640 are allowed"),
        (b"\x02\x02\x00\x00", "1 bytes follow the frame's last field"),
        (b"\x02\x80\x00", "a length is encoded in more bytes than needed"),
        (b"\x12\x01x", "the frame ends within a channel"),
    ] {
        let mut node = Node::new();
        node.arrives(0, Bytes::from_static(bytes));
        assert_eq!(node.down, Some(Down::Violation(why.to_owned())));
        assert!(node.machine.carried_by(PEERS[1]).is_some());
    }
}

/// A peer may name any run of the connection that can be encoded. This node never answers with one that
/// cannot, nor reaches one.
#[test]
fn node_survives_a_hello_with_the_greatest_run() {
    let greatest = |node: &Node, seen| {
        let resume = Resume { connection: node.connections[0], run: limits::RUN, seen };
        Hello { met: Incarnation(1), attempt: 2, resume, ..hello(0) }
    };
    // The connection cannot continue there, and there is no next run.
    let mut node = Node::new();
    let hopeless = greatest(&node, 9);
    node.machine.accepted(NOW, SocketId(5));
    node.arrives(5, StandIn::says(&hopeless));
    let Some(answer @ Answer::Over(Refusal::Impossible, ..)) = &node.answer else { panic!("{:?}", node.answer) };
    assert_eq!(proven_by(&StandIn::of(PEERS[0]), &StandIn::says(&hopeless), answer), Some(NodeId(1)));
    assert_eq!(node.down, None);

    // The connection can continue, and then that run ends: the next one is another connection.
    let last = greatest(&node, 0);
    node.machine.accepted(NOW, SocketId(6));
    node.arrives(6, StandIn::says(&last));
    assert_eq!(node.down, None, "it has not confirmed");
    node.confirms(6, &last);
    assert_eq!(node.down, Some(Down::GivenUp));
    node.arrives(6, Bytes::from_static(b"\x77\x00"));
    assert!(matches!(node.down, Some(Down::Violation(_))), "{:?}", node.down);
    assert_eq!(node.machine.connection_id(PEERS[0]), None);

    let mut beyond = hello(0);
    beyond.resume.run = u64::MAX;
    node.machine.accepted(NOW, SocketId(7));
    node.machine.received(NOW, SocketId(7), StandIn::says(&beyond));
    let garbage = std::iter::from_fn(|| node.machine.poll()).find_map(|action| match action {
        Action::Close(SocketId(7), why) => Some(why.to_string()),
        _ => None,
    });
    assert_eq!(
        garbage.as_deref(),
        Some("the bytes that arrived are not the protocol: a run cannot be 18446744073709551615")
    );
}

/// The half's credits may change while the value is on its way.
#[test]
fn a_credit_is_spent_when_its_value_begins() {
    let mut node = Node::new();
    let terms = Terms { window: 3, credits: 1, value_max: 100 };
    node.hears(&[attach(), value(Head::Sent, 3, b"x")]);
    node.machine.tell_terms(NOW, HERE, PEERS[0], Terms { credits: 0, ..terms });
    node.hears(&[more(b"yz")]);
    assert_eq!(node.down, None);
    node.hears(&[value(Head::Sent, 1, b"x")]);
    assert_eq!(node.down, Some(Down::Violation(NoCredit.to_string())));
}

/// An extended receive continues if its channel ends meanwhile.
#[test]
fn held_value_is_released_after_its_channel_ends() {
    for end in [End::Retired, End::Poisoned(Poison { strength: 255, reason: "enough".into() })] {
        let mut node = Node::new();
        node.hears(&[from_home(THERE, FromHome::Held(1)), from_home(THERE, FromHome::Ended(end.clone()))]);
        node.hears(&[from_home(THERE, FromHome::Released(1))]);
        assert_eq!(node.down, None, "{end:?}");
        // A home may release it as well, although its sending half is gone by then.
        node.hears(&[attach(), offer(1)]);
        node.machine.held(NOW, HERE, PEERS[0], 1);
        node.machine.end_home(NOW, HERE, end.clone());
        node.hears(&[gone()]);
        node.machine.released(NOW, HERE, PEERS[0], 1);
        let mut out = Vec::new();
        node.machine.fill(NOW, SocketId(0), 1 << 16, &mut out);
        let mut released = BytesMut::new();
        codec::encode(&from_home(HERE, FromHome::Released(1)), &mut released);
        let out = out.concat();
        assert!(out.windows(released.len()).any(|bytes| bytes == released), "{end:?}: {out:?}");
    }
}

/// Both requests may have arrived before the driver learns of the first.
#[test]
fn a_request_that_was_given_up_is_not_granted() {
    let mut node = Node::new();
    node.hears(&[from_home(THERE, FromHome::Reserve(3, 0)), from_home(THERE, FromHome::Reserve(3, 1))]);
    assert!(!node.machine.grant(NOW, THERE, 3, 0, Bytes::from_static(b"three")));
    assert!(node.machine.grant(NOW, THERE, 3, 1, Bytes::from_static(b"three")));
    assert_eq!(node.down, None);
}

/// A home asks again while the grant is on its way, and its driver learns of the grant only then: it declines
/// the first request.
#[test]
fn a_grant_that_is_declined_leaves_the_next_request() {
    let mut node = Node::new();
    node.hears(&[attach(), to_home(ToHome::OfferChoice(1, 7))]);
    node.machine.reserve(NOW, HERE, PEERS[0], 1, 0);
    node.hears(&[value(Head::Grant(1, 0), 1, b"x")]);
    node.machine.reserve(NOW, HERE, PEERS[0], 1, 1);
    node.machine.decline(NOW, HERE, PEERS[0], 1, 0);
    let mut bytes = BytesMut::new();
    let piece = codec::encode(&value(Head::Grant(1, 1), 1, b"x"), &mut bytes);
    bytes.extend_from_slice(&piece.unwrap_or_default());
    node.machine.received(NOW, SocketId(0), bytes.freeze());
    let from = node.machine.contact(PEERS[0]);
    let granted = Action::Home(HERE, from, HomeHears::Granted(1, 1, Bytes::from_static(b"x")));
    assert!(std::iter::from_fn(|| node.machine.poll()).any(|action| action == granted));
}

// Frames without effect are no violation, but the node slows down its reading of a flood.

#[test]
fn flood_of_ineffective_frames_is_throttled_without_a_violation() {
    let nowhere = ChannelId(99);
    let floods = [
        ("heartbeats", Frame::Heartbeat),
        ("acknowledgements of nothing new", Frame::Ack { seen: 0 }),
        ("to a home that is not here", Frame::ToHome(nowhere, ToHome::Withdraw(1))),
        ("to a home from a half that is not attached", to_home(ToHome::Withdraw(1))),
        ("to a half that is not here", from_home(nowhere, FromHome::Taken(1))),
    ];
    for (what, frame) in floods {
        let mut node = Node::new();
        assert_eq!(node.machine.paused_until(NOW, SocketId(0)), None, "{what}");
        node.hears(&vec![frame; 1100]);
        assert!(node.machine.paused_until(NOW, SocketId(0)).is_some(), "{what}");
        assert_eq!(node.down, None, "{what}");
        assert_eq!(node.machine.carried_by(PEERS[0]), Some(SocketId(0)), "{what}");
        // The other peer is read at full speed.
        assert_eq!(node.machine.paused_until(NOW, SocketId(1)), None, "{what}");
    }
}
