//! Frames and handshakes: the decoder reads what the encoder writes, anything else is an error or incomplete,
//! and each limit is exact.
//!
//! The decoder allocates nothing beyond what has arrived, because it splits each field off the bytes it has.
//! The tests check that a wrong length has no effect.

#[path = "fuzz/decoder.rs"]
mod decoder;
#[path = "fuzz/messages.rs"]
mod messages;

use arbitrary::Unstructured;
use bytes::{Bytes, BytesMut};
use dunlin_proto::id::{ChannelId, Incarnation, Life, NodeId, SocketId};
use dunlin_proto::identity::{Identity, StandIn};
use dunlin_proto::time::Time;
use dunlin_proto::wire::codec::{self, Next, WireError};
use dunlin_proto::wire::handshake::{Answer, Bound, Hello, Proof, Refusal, Resume, Welcome};
use dunlin_proto::wire::{
    Declaration, End, Expected, Face, Frame, FromHome, Head, Lane, Names, NoRelay, Poison, Post, Relay, Status, Terms,
    ToHome, VERSIONS, limits,
};
use dunlin_proto::{Action, Config, Machine};
use proptest::collection::vec;
use proptest::prelude::*;

fn made<T>(make: impl Fn(&mut Unstructured<'_>) -> arbitrary::Result<T>) -> impl Strategy<Value = T>
where
    T: std::fmt::Debug,
{
    vec(any::<u8>(), 0..600).prop_map(move |bytes| make(&mut Unstructured::new(&bytes)).expect("zeros do"))
}

fn frame() -> impl Strategy<Value = Frame> {
    made(messages::frame)
}

fn written(frame: &Frame) -> Bytes {
    let mut out = BytesMut::new();
    let tail = codec::encode(frame, &mut out);
    out.extend_from_slice(&tail.unwrap_or_default());
    out.freeze()
}

fn read(bytes: &Bytes) -> Result<Frame, WireError> {
    match codec::next(bytes)? {
        Next::Frame { head, body } => {
            assert_eq!(head + body, bytes.len());
            codec::decode(bytes[0], bytes.slice(head..))
        }
        Next::Wait(missing) => panic!("{missing} bytes are missing"),
    }
}

/// A frame of this kind with any body.
fn raw(kind: u8, body: &[u8]) -> Bytes {
    let mut out = vec![kind];
    let mut length = body.len();
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(body);
    Bytes::from(out)
}

fn too_long(what: &'static str, bytes: usize, bytes_max: usize) -> WireError {
    WireError::TooLong { what, bytes: bytes as u64, bytes_max: bytes_max as u64 }
}

proptest! {
    #[test]
    fn frames_round_trip(frame in frame()) {
        prop_assert_eq!(read(&written(&frame)), Ok(frame));
    }

    #[test]
    fn hellos_round_trip(hello in made(messages::hello), behind in vec(any::<u8>(), 0..3)) {
        let mut arrived = BytesMut::from(&hello.encode()[..]);
        arrived.extend_from_slice(&behind);
        prop_assert_eq!(Hello::decode(&mut arrived), Ok(Some(hello)));
        prop_assert_eq!(&arrived[..], &behind[..]);
    }

    #[test]
    fn answers_round_trip(answer in made(messages::answer), behind in vec(any::<u8>(), 0..3)) {
        let mut arrived = BytesMut::from(&answer.encode()[..]);
        arrived.extend_from_slice(&behind);
        prop_assert_eq!(Answer::decode(&mut arrived), Ok(Some(answer)));
        prop_assert_eq!(&arrived[..], &behind[..]);
    }

    /// What the decoder accepts of them, the encoder would write in the same way.
    #[test]
    fn decoder_survives_any_bytes(bytes in vec(any::<u8>(), 0..200)) {
        decoder::run(&bytes);
    }

    /// The same, but the bytes are the body of a frame: the decoder accepts more of them.
    #[test]
    fn decoder_survives_any_body(kind in 0u8..0x80, body in vec(prop_oneof![Just(0u8), 0u8..4, any::<u8>()], 0..120)) {
        let mut bytes = vec![0];
        bytes.extend_from_slice(&raw(kind, &body));
        decoder::run(&bytes);
    }

    /// The same, but one byte of a frame is changed.
    #[test]
    fn decoder_survives_a_changed_byte(frame in frame(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = written(&frame).to_vec();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        bytes.insert(0, 0);
        decoder::run(&bytes);
    }

    #[test]
    fn decoder_waits_for_the_rest_of_an_incomplete_frame(frame in frame()) {
        let whole = written(&frame);
        for cut in 0..whole.len() {
            match codec::next(&whole[..cut]) {
                Ok(Next::Wait(missing)) => prop_assert!((1..=whole.len() - cut).contains(&missing)),
                other => prop_assert!(false, "{} of {} bytes are {:?}", cut, whole.len(), other),
            }
        }
    }

    #[test]
    fn decoder_waits_for_the_rest_of_an_incomplete_handshake(
        hello in made(messages::hello),
        answer in made(messages::answer),
    ) {
        let (hello, answer) = (hello.encode(), answer.encode());
        for cut in 0..hello.len() {
            prop_assert_eq!(Hello::decode(&mut BytesMut::from(&hello[..cut])), Ok(None));
        }
        for cut in 0..answer.len() {
            prop_assert_eq!(Answer::decode(&mut BytesMut::from(&answer[..cut])), Ok(None));
        }
    }

    /// A body that is shorter than its length is no frame, nor is one with bytes after its last field.
    #[test]
    fn body_of_another_length_is_refused_or_a_piece(frame in frame(), byte in any::<u8>()) {
        let whole = written(&frame);
        let Ok(Next::Frame { head, .. }) = codec::next(&whole) else { panic!("it is whole") };
        let body = whole.slice(head..);
        let mut longer = body.to_vec();
        longer.push(byte);
        let longer = codec::decode(whole[0], Bytes::from(longer));
        let of_a_value = match &frame {
            Frame::More(..) | Frame::Relay(Relay::Bytes { .. }) | Frame::Post(Post::More(_)) => true,
            Frame::ToHome(_, ToHome::Value { total, first, .. }) | Frame::Post(Post::Message { total, first, .. }) => {
                *total > first.len() as u64
            }
            _ => false,
        };
        if !of_a_value {
            prop_assert!(matches!(longer, Err(WireError::Trailing(1))), "{:?}", longer);
        }
        for cut in 0..body.len() {
            if let Ok(shorter) = codec::decode(whole[0], body.slice(..cut)) {
                let is_piece = matches!(
                    shorter,
                    Frame::More(..)
                        | Frame::ToHome(_, ToHome::Value { .. })
                        | Frame::Relay(Relay::Bytes { .. })
                        | Frame::Post(Post::Message { .. } | Post::More(_))
                );
                prop_assert!(is_piece, "{:?}", shorter);
            }
        }
    }
}

#[test]
fn decoder_refuses_a_claimed_length_before_it_waits_for_the_body() {
    for kind in 0..=u8::MAX {
        for claimed in [
            &[0xff, 0xff, 0xff, 0xff, 0x0f][..],
            &[0xff, 0xff, 0xff, 0xff, 0x7f],
            &[0xff; 5],
            &[0xff; 10],
            &[0xc1, 0x80, 0x40],
        ] {
            let bytes: Vec<u8> = [&[kind], claimed].concat();
            match codec::next(&bytes) {
                Err(WireError::TooLong { .. } | WireError::UnknownKind(_)) => {}
                other => panic!("{bytes:02x?}: {other:?}"),
            }
        }
    }
}

#[test]
fn the_bodies_of_frames_have_exact_limits() {
    for (kind, max) in
        [(0x01, 0), (0x03, 0), (0x12, 127), (0x20, limits::FRAME), (0x58, limits::FRAME), (0x21, limits::CHUNK + 64)]
    {
        assert!(matches!(codec::next(&raw(kind, &vec![0; max])), Ok(Next::Frame { body, .. }) if body == max));
        assert_eq!(codec::next(&raw(kind, &vec![0; max + 1])), Err(too_long("a frame", max + 1, max)));
    }
}

#[test]
fn a_piece_has_an_exact_limit() {
    let piece = |length| Frame::More(ChannelId(1), Bytes::from(vec![7; length]));
    let head = |length: usize| {
        let (head, total, first) = (Head::Sent, length as u64, Bytes::from(vec![7; length]));
        Frame::ToHome(ChannelId(1), ToHome::Value { head, total, first })
    };
    for make in [&piece as &dyn Fn(usize) -> Frame, &head] {
        let (max, above) = (make(limits::CHUNK), make(limits::CHUNK + 1));
        assert_eq!(read(&written(&max)), Ok(max));
        let refused = too_long("a piece of a value", limits::CHUNK + 1, limits::CHUNK);
        assert_eq!(read(&written(&above)), Err(refused));
    }
}

/// Relayed bytes are recognised by the kind of their frame, are never empty, and go in their own lane;
/// requests go in the control lane.
#[test]
fn relay_frames_have_their_documented_bytes_and_lanes() {
    let stream = 0x80;
    let bytes = |piece: &'static [u8]| Frame::Relay(Relay::Bytes { stream, piece: Bytes::from_static(piece) });
    assert_eq!(&written(&bytes(b"hi"))[..], [0x58, 4, 0x80, 0x01, b'h', b'i']);
    assert_eq!(read(&written(&bytes(b""))), Err(WireError::Truncated("a piece of a value")));
    assert_eq!(bytes(b"hi").lane(), Lane::Relayed(stream));
    assert_eq!(Frame::Relay(Relay::End { stream }).lane(), Lane::Relayed(stream));
    assert_eq!(&written(&Frame::Relay(Relay::End { stream }))[..], [0x59, 2, 0x80, 0x01]);
    assert_eq!(&written(&Frame::Relay(Relay::Credit { stream }))[..], [0x57, 2, 0x80, 0x01]);
    assert_eq!(&written(&Frame::Relay(Relay::Admit))[..], [0x5a, 0]);
    let large = |length: usize| Frame::Relay(Relay::Bytes { stream: 1, piece: Bytes::from(vec![7; length]) });
    assert_eq!(read(&written(&large(limits::RELAYED_PIECE))), Ok(large(limits::RELAYED_PIECE)));
    // (The stream has one byte here.)
    let refused = too_long("a frame", limits::FRAME + 1, limits::FRAME);
    assert_eq!(codec::next(&written(&large(limits::FRAME))), Err(refused));

    for (why, code) in [(NoRelay::Unwilling, 0), (NoRelay::Full, 1), (NoRelay::NotConnected, 2), (NoRelay::Local, 3)] {
        let refused = Frame::Relay(Relay::Refused { stream: 5, why });
        assert_eq!(&written(&refused)[..], [0x56, 2, 5, code]);
        assert_eq!(refused.lane(), Lane::Control);
    }
    let unknown = Err(WireError::Invalid { what: "the reason for not relaying", value: 4 });
    assert_eq!(read(&raw(0x56, &[5, 4])), unknown);
    let unknown = Err(WireError::Invalid { what: "the reason for not dialling", value: 2 });
    assert_eq!(read(&raw(0x53, &[[0; 15].as_slice(), &[9, 2]].concat())), unknown);
    for kind in [0x50, 0x51, 0x52, 0x53, 0x54, 0x55] {
        // A node with an invalid id.
        let body = if kind < 0x54 { vec![0; 17] } else { vec![0; 18] };
        assert_eq!(read(&raw(kind, &body)), Err(WireError::Invalid { what: "a node", value: 0 }), "{kind:#x}");
    }
    let ask = |count: usize, length: usize| {
        Frame::Relay(Relay::AskDial { node: NodeId(1), addresses: vec!["a".repeat(length); count] })
    };
    let most = ask(limits::ADDRESSES, limits::ADDRESS);
    assert_eq!(read(&written(&most)), Ok(most));
    let refused = too_long("an address", limits::ADDRESS + 1, limits::ADDRESS);
    assert_eq!(read(&written(&ask(1, limits::ADDRESS + 1))), Err(refused));
    assert!(read(&written(&ask(limits::ADDRESSES + 1, 1))).is_err());
}

#[test]
fn only_the_empty_value_has_an_empty_piece() {
    let value = |total, first| {
        Frame::ToHome(ChannelId(1), ToHome::Value { head: Head::Sent, total, first: Bytes::from_static(first) })
    };
    assert_eq!(read(&written(&value(0, b""))), Ok(value(0, b"")));
    assert_eq!(read(&written(&value(1, b""))), Err(WireError::Truncated("a piece of a value")));
    assert_eq!(read(&written(&value(0, b"x"))), Err(WireError::Trailing(1)));
    assert_eq!(read(&written(&value(1, b"xy"))), Err(WireError::Trailing(1)));
    let more = Frame::More(ChannelId(1), Bytes::new());
    assert_eq!(read(&written(&more)), Err(WireError::Truncated("a piece of a value")));
}

#[test]
fn a_number_has_one_encoding_and_64_bits() {
    let ack = |number: &[u8]| read(&raw(0x02, number));
    assert_eq!(ack(&[0x00]), Ok(Frame::Ack { seen: 0 }));
    assert_eq!(ack(&[0xff, 0x01]), Ok(Frame::Ack { seen: 255 }));
    let most = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
    assert_eq!(ack(&most), Ok(Frame::Ack { seen: u64::MAX }));
    let what = "a count of frames";
    let out_of_range = Err(WireError::Invalid { what, value: u64::MAX });
    assert_eq!(ack(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]), out_of_range);
    assert_eq!(ack(&[0xff; 11]), out_of_range);
    assert_eq!(ack(&[0x80, 0x00]), Err(WireError::Overlong(what)));
    assert_eq!(ack(&[0xff, 0x80, 0x00]), Err(WireError::Overlong(what)));
    assert_eq!(ack(&[0x80]), Err(WireError::Truncated(what)));
    assert_eq!(codec::next(&[0x02, 0x80, 0x00]), Err(WireError::Overlong("a length")));
    assert_eq!(codec::next(&[0x02, 0x81, 0x00, 0x00]), Err(WireError::Overlong("a length")));

    let credit = |count: u64| {
        let mut body = vec![0; 16];
        body.extend_from_slice(&written(&Frame::Ack { seen: count })[2..]);
        read(&raw(0x19, &body))
    };
    let most = u64::from(u32::MAX);
    assert_eq!(credit(most), Ok(Frame::FromHome(ChannelId(0), FromHome::Credit(u32::MAX))));
    assert_eq!(credit(most + 1), Err(WireError::Invalid { what: "credits", value: most + 1 }));
}

fn face(schema: usize) -> Declaration {
    let schema = Bytes::from(vec![1; schema]);
    Declaration { face: Face::Sender, shared: false, expects: Expected::Unknown, schema }
}

fn declare(name: usize) -> Names {
    Names::Declare { number: 1, name: "n".repeat(name), channel: ChannelId(0), face: face(0), status: Status::New }
}

fn found(count: usize, address: usize) -> Names {
    let partner = Life { node: NodeId(1), incarnation: Incarnation(1) };
    let addresses = vec!["a".repeat(address); count];
    Names::Found { number: 1, partner, addresses, channel: ChannelId(0), face: face(0) }
}

/// Each field is refused where it is read, and, with the same error, where it would be sent.
#[test]
fn the_fields_of_names_have_exact_limits() {
    let declares = |schema| {
        let (name, channel, face) = ("n".into(), ChannelId(0), face(schema));
        Names::Declare { number: 1, name, channel, face, status: Status::New }
    };
    let refuses = |schema| {
        let holder = Life { node: NodeId(1), incarnation: Incarnation(1) };
        Names::Refused { number: 1, there: face(schema), holder, addresses: Vec::new() }
    };
    let unfit = |schema| {
        let by = Life { node: NodeId(1), incarnation: Incarnation(1) };
        Names::Unfit { number: 1, refused: face(schema), by, addresses: vec!["a".repeat(limits::ADDRESS)] }
    };
    let address = |address| found(1, address);
    let addresses = |count| found(count, limits::ADDRESS);
    let count = WireError::Invalid { what: "a count of addresses", value: limits::ADDRESSES as u64 + 1 };
    let above = |what, max| too_long(what, max + 1, max);
    for (max, make, error) in [
        (limits::NAME, &declare as &dyn Fn(usize) -> Names, above("a name", limits::NAME)),
        (limits::SCHEMA, &declares, above("a schema", limits::SCHEMA)),
        (limits::SCHEMA, &refuses, above("a schema", limits::SCHEMA)),
        (limits::SCHEMA, &unfit, above("a schema", limits::SCHEMA)),
        (limits::ADDRESS, &address, above("an address", limits::ADDRESS)),
        (limits::ADDRESSES, &addresses, count),
    ] {
        assert_eq!(make(max).check(), Ok(()));
        assert_eq!(read(&written(&Frame::Names(make(max)))), Ok(Frame::Names(make(max))));
        assert_eq!(make(max + 1).check(), Err(error.clone()));
        assert_eq!(read(&written(&Frame::Names(make(max + 1)))), Err(error.clone()));

        let mut node =
            StandIn::machine(Config::new("limits"), Life { node: NodeId(1), incarnation: Incarnation(1) }, 1);
        assert_eq!(node.say_names(Time(0), NodeId(2), make(max)), Ok(()));
        assert_eq!(node.say_names(Time(0), NodeId(2), make(max + 1)), Err(error));
    }
}

#[test]
fn sender_refuses_a_schema_above_the_limit() {
    let mut node = StandIn::machine(Config::new("limits"), Life { node: NodeId(1), incarnation: Incarnation(1) }, 1);
    let terms = Terms { window: 1, credits: 0, value_max: 1 };
    let (fits, too_large) = (face(limits::SCHEMA), face(limits::SCHEMA + 1));
    let refused = Err(too_long("a schema", limits::SCHEMA + 1, limits::SCHEMA));
    assert_eq!(node.attach(Time(0), ChannelId(1), NodeId(2), too_large.clone()), refused);
    assert_eq!(node.open_home(ChannelId(2), terms, too_large, false), refused);
    assert_eq!((node.census().proxies, node.census().homes), (0, 0));
    assert_eq!(node.attach(Time(0), ChannelId(1), NodeId(2), fits.clone()), Ok(()));
    assert_eq!(node.open_home(ChannelId(2), terms, fits, false), Ok(()));
}

/// The writer cuts longer reasons; the reader refuses them.
#[test]
fn reasons_have_an_exact_limit() {
    let poisoned = |reason: &str| {
        let poison = Poison { strength: 7, reason: reason.into() };
        Frame::ToHome(ChannelId(1), ToHome::Ended(End::Poisoned(poison)))
    };
    let longest = "r".repeat(limits::TEXT);
    assert_eq!(read(&written(&poisoned(&longest))), Ok(poisoned(&longest)));
    assert_eq!(read(&written(&poisoned(&format!("{longest}r")))), Ok(poisoned(&longest)));
    // A character of two bytes no longer fits.
    let before = "r".repeat(limits::TEXT - 1);
    assert_eq!(read(&written(&poisoned(&format!("{before}ß")))), Ok(poisoned(&before)));

    let mut body = written(&poisoned(&longest)).slice(3..).to_vec();
    // Two bytes of length after the channel, the kind of end and the strength: one more, and one more byte of
    // text.
    body[18] += 1;
    body.push(b'r');
    assert_eq!(read(&raw(0x27, &body)), Err(too_long("a reason", limits::TEXT + 1, limits::TEXT)));
    body[21] = 0xff;
    body[18] -= 1;
    body.pop();
    assert_eq!(read(&raw(0x27, &body)), Err(WireError::NotText("a reason")));
}

fn hello() -> Hello {
    Hello {
        versions: VERSIONS,
        application: "limits".into(),
        me: Life { node: NodeId(2), incarnation: Incarnation(3) },
        wanted: NodeId(1),
        met: Incarnation(0),
        attempt: 1,
        resume: Resume { run: 1, seen: 0, ..Resume::default() },
        addresses: Vec::new(),
        bound: Bound::default(),
        key: StandIn::of(NodeId(2)).key(),
        nonce: 7,
        signature: Bytes::from_static(&[8; 8]),
    }
}

fn decoded(hello: &Hello) -> Result<Option<Hello>, WireError> {
    Hello::decode(&mut BytesMut::from(&hello.encode()[..]))
}

#[test]
fn the_fields_of_a_hello_have_exact_limits() {
    let with = |change: &dyn Fn(&mut Hello)| {
        let mut hello = hello();
        change(&mut hello);
        hello
    };
    let above = |what, max| too_long(what, max + 1, max);
    let invalid = |what, value| WireError::Invalid { what, value };
    for (fits, not, error) in [
        (
            with(&|hello| hello.application = "x".repeat(limits::APPLICATION)),
            with(&|hello| hello.application = "x".repeat(limits::APPLICATION + 1)),
            above("an application", limits::APPLICATION),
        ),
        (
            with(&|hello| hello.addresses = vec!["x".repeat(limits::ADDRESS); limits::ADDRESSES]),
            with(&|hello| hello.addresses = vec!["x".repeat(limits::ADDRESS + 1)]),
            above("an address", limits::ADDRESS),
        ),
        (
            with(&|hello| hello.addresses = vec![String::new(); limits::ADDRESSES]),
            with(&|hello| hello.addresses = vec![String::new(); limits::ADDRESSES + 1]),
            invalid("a count of addresses", limits::ADDRESSES as u64 + 1),
        ),
        (
            with(&|hello| (hello.addresses, hello.bound.which) = (vec![String::new(); 3], 0b111)),
            with(&|hello| (hello.addresses, hello.bound.which) = (vec![String::new(); 3], 0b1000)),
            invalid("the addresses that are bound", 0b1000),
        ),
        (
            with(&|hello| (hello.addresses, hello.bound.which) = (vec![String::new(); limits::ADDRESSES], 0xff)),
            with(&|hello| hello.bound.which = 1),
            invalid("the addresses that are bound", 1),
        ),
        (
            with(&|hello| hello.key = Bytes::from(vec![0; limits::KEY])),
            with(&|hello| hello.key = Bytes::from(vec![0; limits::KEY + 1])),
            above("a public key", limits::KEY),
        ),
        (
            with(&|hello| hello.signature = Bytes::from(vec![0; limits::SIGNATURE])),
            with(&|hello| hello.signature = Bytes::from(vec![0; limits::SIGNATURE + 1])),
            above("a signature", limits::SIGNATURE),
        ),
        (
            with(&|hello| hello.resume.run = limits::RUN),
            with(&|hello| hello.resume.run = limits::RUN + 1),
            invalid("a run", limits::RUN + 1),
        ),
        (with(&|hello| hello.me.node.0 = 1), with(&|hello| hello.me.node.0 = 0), invalid("a node", 0)),
        (
            with(&|hello| hello.me.incarnation.0 = 1),
            with(&|hello| hello.me.incarnation.0 = 0),
            invalid("an incarnation", 0),
        ),
    ] {
        assert_eq!(decoded(&fits), Ok(Some(fits)));
        assert_eq!(decoded(&not), Err(error));
    }
}

#[test]
fn proofs_have_exact_limits() {
    let welcome = |proof| {
        Answer::Welcome(Welcome {
            version: VERSIONS.1,
            me: Life { node: NodeId(2), incarnation: Incarnation(3) },
            resume: Resume::default(),
            addresses: Vec::new(),
            bound: Bound::default(),
            nonce: u128::MAX,
            proof,
        })
    };
    let proof = |key, signature| Proof { key: vec![1; key].into(), signature: vec![2; signature].into() };
    let over = |proof| Answer::Over(Refusal::Forgotten, proof);
    let decoded = |answer: &Answer| Answer::decode(&mut BytesMut::from(&answer.encode()[..]));
    for fits in [proof(0, 0), proof(limits::KEY, limits::SIGNATURE)] {
        for answer in [welcome(fits.clone()), over(fits.clone())] {
            assert_eq!(decoded(&answer), Ok(Some(answer)));
        }
    }
    for (not, error) in [
        (proof(limits::KEY + 1, 0), too_long("a public key", limits::KEY + 1, limits::KEY)),
        (proof(0, limits::SIGNATURE + 1), too_long("a signature", limits::SIGNATURE + 1, limits::SIGNATURE)),
    ] {
        assert_eq!(decoded(&welcome(not.clone())), Err(error.clone()));
        assert_eq!(decoded(&over(not)), Err(error));
    }
    let confirm = |length| Frame::Confirm { signature: vec![3; length].into() };
    for length in [0, 1, 127, 128] {
        assert_eq!(read(&written(&confirm(length))), Ok(confirm(length)));
    }
    let refused = too_long("a frame", limits::SIGNATURE + 3, limits::SIGNATURE + 2);
    assert_eq!(read(&written(&confirm(limits::SIGNATURE + 1))), Err(refused));
}

#[test]
fn a_handshake_has_an_exact_limit_and_a_kind() {
    let header = |kind: u8, length: usize| {
        let mut bytes = BytesMut::from(&b"dunlin\r\n"[..]);
        bytes.extend_from_slice(&[kind, (length >> 8) as u8, length as u8]);
        bytes
    };
    assert_eq!(Hello::decode(&mut header(1, limits::HANDSHAKE)), Ok(None));
    let refused = too_long("a handshake", limits::HANDSHAKE + 1, limits::HANDSHAKE);
    assert_eq!(Hello::decode(&mut header(1, limits::HANDSHAKE + 1)), Err(refused.clone()));
    assert_eq!(Answer::decode(&mut header(2, limits::HANDSHAKE + 1)), Err(refused));
    let invalid = |what, value| WireError::Invalid { what, value };
    assert_eq!(Hello::decode(&mut header(2, 0)), Err(invalid("a first message", 2)));
    assert_eq!(Answer::decode(&mut header(1, 0)), Err(invalid("an answer", 1)));
    for wrong in ["GET / HTTP/1.1\r\n", "d\n", "dunlin\n", "dunlin\r\r"] {
        assert_eq!(Hello::decode(&mut BytesMut::from(wrong)), Err(WireError::NotDunlin), "{wrong:?}");
    }
}

/// Additions of a later version are unknown here: after the fields, or instead of all but the versions.
#[test]
fn hello_of_a_later_version_is_read_as_far_as_possible() {
    let (oldest, newest) = VERSIONS;
    let mut later = hello();
    later.versions = (newest, newest + 3);
    let mut bytes = BytesMut::from(&later.encode()[..]);
    bytes.extend_from_slice(b"more");
    bytes[10] += 4;
    assert_eq!(Hello::decode(&mut bytes), Ok(Some(later)));

    for versions in [(newest + 1, newest + 2), (0, 0), (oldest - 1, oldest - 1), (newest + 4, oldest - 2)] {
        let mut bytes = BytesMut::from(&b"dunlin\r\n\x01\x00\x06"[..]);
        bytes.extend_from_slice(&[
            (versions.0 >> 8) as u8,
            versions.0 as u8,
            (versions.1 >> 8) as u8,
            versions.1 as u8,
        ]);
        bytes.extend_from_slice(b"??");
        assert_eq!(Hello::decode(&mut bytes.clone()), Err(WireError::Version(versions)));

        let mut node =
            StandIn::machine(Config::new("limits"), Life { node: NodeId(1), incarnation: Incarnation(1) }, 1);
        node.accepted(Time(0), SocketId(1));
        node.received(Time(0), SocketId(1), bytes.freeze());
        let mut out = Vec::new();
        node.fill(Time(0), SocketId(1), 1, &mut out);
        let answer = Answer::decode(&mut BytesMut::from(&out.concat()[..]));
        assert_eq!(answer, Ok(Some(Answer::Refused(Refusal::Version(VERSIONS)))));
    }

    let mut same = BytesMut::from(&hello().encode()[..]);
    same.extend_from_slice(b"x");
    same[10] += 1;
    assert_eq!(Hello::decode(&mut same), Err(WireError::Trailing(1)));
}

// Frames over sockets.

const SOCKET: SocketId = SocketId(1);

fn listener() -> Machine {
    let life = Life { node: NodeId(1), incarnation: Incarnation(1) };
    let mut node = StandIn::machine(Config::new("limits"), life, 1);
    let terms = Terms { window: 100, credits: 3, value_max: 1 << 20 };
    for channel in 0..3 {
        node.open_home(ChannelId(channel), terms, face(0), false).unwrap();
    }
    node.accepted(Time(0), SOCKET);
    node
}

/// Everything a dialler sends, one entry for each write: small frames, large ones, and values in several
/// pieces.
fn speech() -> Vec<Bytes> {
    let config = {
        let mut config = Config::new("limits");
        config.chunk = 3000;
        config.chunk_alone = config.chunk;
        config
    };
    let mut dialler = StandIn::machine(config, Life { node: NodeId(2), incarnation: Incarnation(3) }, 1);
    let mut listener = listener();
    dialler.learn(NodeId(1), &["there".to_owned()]);
    for channel in 0..3 {
        dialler.attach(Time(0), ChannelId(channel), NodeId(1), face(200)).unwrap();
        for ticket in 0..2 {
            let length = 10usize.pow(channel as u32 + 1 + ticket) - 7;
            dialler.offer(Time(0), ChannelId(channel), u64::from(ticket), Bytes::from(vec![channel as u8; length]));
        }
    }
    dialler.say_names(Time(0), NodeId(1), declare(limits::NAME)).unwrap();
    let mut said = Vec::new();
    let mut busy = true;
    while std::mem::take(&mut busy) {
        while let Some(action) = dialler.poll() {
            busy = true;
            match action {
                Action::Dial(dial, _) => dialler.dialled(Time(0), dial, SOCKET),
                Action::Write(_) => {
                    let mut out = Vec::new();
                    while dialler.fill(Time(0), SOCKET, 1 << 16, &mut out) > 0 {}
                    said.push(Bytes::from(out.concat()));
                    out.into_iter().for_each(|bytes| listener.received(Time(0), SOCKET, bytes));
                }
                _ => {}
            }
        }
        while let Some(action) = listener.poll() {
            busy = true;
            if let Action::Write(_) = action {
                let mut out = Vec::new();
                while listener.fill(Time(0), SOCKET, 1 << 16, &mut out) > 0 {}
                out.into_iter().for_each(|bytes| dialler.received(Time(0), SOCKET, bytes));
            }
        }
    }
    said
}

/// The actions of a listener that receives these pieces, except for writing, which it does. `kept`: the
/// pieces arrive in a buffer that keeps the beginning of a frame.
fn heard_as<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, kept: bool) -> Vec<Action> {
    let mut buffer = BytesMut::new();
    let mut listener = listener();
    let mut actions = Vec::new();
    for piece in pieces {
        if kept {
            buffer.extend_from_slice(piece);
            let mut missing = listener.received_in(Time(0), SOCKET, &mut buffer);
            while missing == 0 && !buffer.is_empty() {
                // A batch ends after a frame that may take long.
                let before = buffer.len();
                missing = listener.received_in(Time(0), SOCKET, &mut buffer);
                assert!(buffer.len() < before || missing > 0);
            }
            assert_eq!(missing > 0, !buffer.is_empty(), "only an incomplete frame is kept");
        } else {
            listener.received(Time(0), SOCKET, Bytes::copy_from_slice(piece));
        }
        while let Some(action) = listener.poll() {
            match action {
                Action::Write(_) => while listener.fill(Time(0), SOCKET, 1 << 16, &mut Vec::new()) > 0 {},
                action => actions.push(action),
            }
        }
    }
    actions
}

fn heard<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Action> {
    heard_as(pieces, false)
}

#[test]
fn frames_arrive_the_same_however_they_are_split() {
    let said = speech();
    let whole = heard(said.iter().map(|turn| &turn[..]));
    let values = whole.iter().filter(|action| matches!(action, Action::Home(_, _, heard) if is_offer(heard)));
    assert_eq!(values.count(), 6);
    assert!(heard(said.iter().flat_map(|turn| turn.chunks(1))) == whole, "byte by byte");
    for size in [1, 7, 1000, 1 << 20] {
        assert!(
            heard_as(said.iter().flat_map(|turn| turn.chunks(size)), true) == whole,
            "kept, {size} bytes at a time"
        );
    }
    for split in 0..said.len() {
        for at in 1..said[split].len() {
            let pieces = said.iter().enumerate().flat_map(|(turn, bytes)| {
                let (one, two) = if turn == split { bytes.split_at(at) } else { (&bytes[..], &[][..]) };
                [one, two]
            });
            assert!(heard(pieces) == whole, "turn {split} split at {at}");
        }
    }
}

fn is_offer(heard: &dunlin_proto::HomeHears) -> bool {
    matches!(heard, dunlin_proto::HomeHears::Offered(..))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn frames_arrive_the_same_in_many_pieces(mut cuts in vec(any::<prop::sample::Index>(), 0..40)) {
        let said = speech();
        let mut pieces = Vec::new();
        for turn in &said {
            let mut rest = &turn[..];
            while let Some(cut) = cuts.pop().filter(|cut| cut.index(4) > 0 && !rest.is_empty()) {
                let (piece, behind) = rest.split_at(cut.index(rest.len()));
                pieces.push(piece);
                rest = behind;
            }
            pieces.push(rest);
        }
        prop_assert!(heard(pieces) == heard(said.iter().map(|turn| &turn[..])));
    }
}

/// A new frame has to be added to the document too.
#[test]
fn every_kind_of_frame_is_documented_in_its_lane() {
    let document = include_str!("../../../docs/wire.md");
    let section = |title: &str| -> Vec<u8> {
        let rows = document.split(title).nth(1).expect("there is such a section").split("##").next().unwrap_or("");
        let first = rows.lines().filter_map(|row| row.strip_prefix("| ")?.split(' ').next());
        first.filter(|cell| cell.len() == 2).filter_map(|cell| u8::from_str_radix(cell, 16).ok()).collect()
    };
    let lanes = ["### Of the moment", "### Control", "### Of a channel", "### Of a relayed socket", "### Of a mailbox"]
        .map(section);

    let known = |kind: &u8| !matches!(codec::next(&[*kind, 0]), Err(WireError::UnknownKind(_)));
    let mut documented = lanes.concat();
    documented.sort_unstable();
    assert_eq!((0..=u8::MAX).filter(known).collect::<Vec<_>>(), documented);

    let mut seen = std::collections::BTreeSet::new();
    let mut bytes = vec![0; 200];
    let mut state = 1u64;
    while seen.len() < documented.len() {
        for byte in &mut bytes {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = (state >> 56) as u8;
        }
        let frame = messages::frame(&mut Unstructured::new(&bytes)).expect("zeros do");
        let kind = written(&frame)[0];
        let lane = match frame.lane() {
            Lane::Moment => 0,
            Lane::Control => 1,
            Lane::Channel(_) => 2,
            Lane::Relayed(_) => 3,
            Lane::Posts => 4,
        };
        assert!(lanes[lane].contains(&kind), "{kind:#04x} is of lane {lane}");
        seen.insert(kind);
    }
}

/// While only one channel has a value to send, that is split into pieces of half of `chunk_alone` if it does
/// not fit in one; while others have values too, into pieces of `chunk`.
#[test]
fn pieces_are_larger_where_no_other_channel_waits() {
    let pieces = |channels: u128, length: usize| {
        let mut config = Config::new("limits");
        (config.chunk, config.chunk_alone) = (3000, 10_000);
        let mut dialler = StandIn::machine(config, Life { node: NodeId(2), incarnation: Incarnation(3) }, 1);
        let mut listener = listener();
        dialler.learn(NodeId(1), &["there".to_owned()]);
        for channel in 0..channels {
            dialler.attach(Time(0), ChannelId(channel), NodeId(1), face(0)).unwrap();
        }
        let (mut longest, mut offered, mut busy) = (0, false, true);
        while std::mem::take(&mut busy) {
            while let Some(action) = dialler.poll() {
                busy = true;
                match action {
                    Action::Dial(dial, _) => dialler.dialled(Time(0), dial, SOCKET),
                    Action::Write(_) => {
                        let mut out = Vec::new();
                        while dialler.fill(Time(0), SOCKET, 1 << 16, &mut out) > 0 {}
                        longest = longest.max(out.iter().map(Bytes::len).max().unwrap_or(0));
                        out.into_iter().for_each(|bytes| listener.received(Time(0), SOCKET, bytes));
                    }
                    _ => {}
                }
            }
            while let Some(action) = listener.poll() {
                busy = true;
                if let Action::Write(_) = action {
                    let mut out = Vec::new();
                    while listener.fill(Time(0), SOCKET, 1 << 16, &mut out) > 0 {}
                    out.into_iter().for_each(|bytes| dialler.received(Time(0), SOCKET, bytes));
                }
            }
            if !busy && !std::mem::replace(&mut offered, true) {
                busy = true;
                for channel in 0..channels {
                    dialler.offer(Time(0), ChannelId(channel), 0, Bytes::from(vec![7; length]));
                }
            }
        }
        assert_eq!(listener.census().offers, channels as usize, "they have arrived");
        longest
    };
    assert_eq!(pieces(1, 10_000), 10_000);
    assert_eq!(pieces(1, 20_999), 5000);
    assert_eq!(pieces(2, 20_999), 3000);
}
