//! The bytes of a frame of each kind, and of each form of its fields. Nodes of this version exist: a change
//! here needs another version.

use std::collections::BTreeSet;

use bytes::{Bytes, BytesMut};
use dunlin_proto::id::{ChannelId, Incarnation, Life, MailboxId, NodeId, ProcessId};
use dunlin_proto::wire::codec::{self, Next};
use dunlin_proto::wire::{
    Declaration, End, Exit, Expected, Face, Failure, Frame, FromHome, Head, Kind, Memory, Moved, Names, NoDial,
    NoRelay, Payload, Poison, Post, Read, Reason, Rejection, Relay, Room, Signal, Status, Terms, ToHome, Travel, Which,
};

const CHANNEL: ChannelId = ChannelId(0xc0ffee);
const NODE: NodeId = NodeId(0xb);
const LIFE: Life = Life { node: NODE, incarnation: Incarnation(7) };

fn addresses() -> Vec<String> {
    vec!["reef:4115".into()]
}

fn poison() -> Poison {
    Poison { strength: 9, reason: "oil".into() }
}

fn krill() -> Bytes {
    Bytes::from_static(b"krill")
}

fn face(face: Face, shared: bool, expects: Expected) -> Declaration {
    Declaration { face, shared, expects, schema: Bytes::from_static(b"s") }
}

fn from_home() -> Vec<FromHome> {
    let terms = Terms { window: 8, credits: 300, value_max: 1 << 20 };
    vec![
        FromHome::Attached(terms),
        FromHome::Rejected(Rejection::NoSuchChannel),
        FromHome::Rejected(Rejection::Occupied),
        FromHome::Rejected(Rejection::Mismatch(face(Face::Sender, false, Expected::Unknown))),
        FromHome::Rejected(Rejection::Full),
        FromHome::Taken(300),
        FromHome::Held(1),
        FromHome::Released(2),
        FromHome::Failed(1, Failure::Closed),
        FromHome::Failed(1, Failure::Poisoned(poison())),
        FromHome::Failed(1, Failure::Refused),
        FromHome::Failed(1, Failure::Expired),
        FromHome::Failed(1, Failure::WouldBlock),
        FromHome::Failed(1, Failure::TooLarge { max: 200 }),
        FromHome::Failed(1, Failure::Undecodable("odd".into())),
        FromHome::Failed(1, Failure::OwnChannel),
        FromHome::Failed(1, Failure::Unknown),
        FromHome::Failed(1, Failure::Unread),
        FromHome::Withdrawn(3),
        FromHome::Reserve(4, 5),
        FromHome::Abort(6, 7),
        FromHome::Credit(u32::MAX),
        FromHome::Ended(End::Gone),
        FromHome::Ended(End::Retired),
        FromHome::Ended(End::Poisoned(poison())),
        FromHome::Ended(End::Lost),
        FromHome::HomeIs { transfer: 1, epoch: 2, terms },
        FromHome::NotHome(1),
        FromHome::Fenced(1),
        FromHome::Moving { epoch: 1, to: NODE, addresses: addresses() },
        FromHome::Superseded(u64::MAX),
        FromHome::Drained,
        FromHome::Onward(1),
        FromHome::Unread(1 << 14),
    ]
}

fn to_home() -> Vec<ToHome> {
    let value = |head, total, first| ToHome::Value { head, total, first };
    vec![
        ToHome::Attach(face(Face::Receiver, true, Expected::Unshared)),
        value(Head::Offer(1), 5, krill()),
        value(Head::Offer(1), 0, Bytes::new()),
        value(Head::Unread(300), 6, krill()),
        value(Head::Grant(1, 2), 128, krill()),
        value(Head::GrantUnread(1, 2), 5, krill()),
        value(Head::Sent, 5, krill()),
        ToHome::OfferChoice(1, 0xabc),
        ToHome::Withdraw(1),
        ToHome::Revoke(2),
        ToHome::Ended(End::Gone),
        ToHome::Take(3),
        ToHome::Quiet,
        ToHome::Drain,
        ToHome::State(Box::new(Moved { epoch: 1, transfer: 2, sender: None, ended: None, credits: 3, values: 4 })),
        ToHome::State(Box::new(Moved {
            epoch: 1,
            transfer: 2,
            sender: Some((NODE, addresses())),
            ended: Some(End::Lost),
            credits: 3,
            values: 4,
        })),
        ToHome::Reply(krill()),
        ToHome::ReplyComes,
    ]
}

fn travel() -> Vec<Travel> {
    vec![
        Travel::Where(1),
        Travel::At { epoch: 1, home: NODE, addresses: addresses() },
        Travel::Fetch(1),
        Travel::Settled(Which::Sender, 1),
        Travel::Over(Which::Receiver, End::Gone),
        Travel::Lapsed(Which::Sender, 1, End::Lost),
        Travel::Hurry(Which::Receiver, 1),
    ]
}

fn names() -> Vec<Names> {
    let declare = |face, status| Names::Declare { number: 1, name: "tide".into(), channel: CHANNEL, face, status };
    let client = || face(Face::Client, false, Expected::Shared);
    let full = |room| Names::Full { number: 1, room, max: 300 };
    vec![
        declare(face(Face::Server, false, Expected::Unknown), Status::New),
        declare(face(Face::Acceptor, false, Expected::Unknown), Status::Known),
        declare(client(), Status::Joined(CHANNEL)),
        Names::Undeclare { number: 1 },
        Names::Found { number: 1, partner: LIFE, addresses: addresses(), channel: CHANNEL, face: client() },
        Names::Refused { number: 1, there: client(), holder: LIFE, addresses: addresses() },
        Names::Unfit { number: 1, refused: client(), by: LIFE, addresses: addresses() },
        Names::BadName { number: 1 },
        full(Room::Declarations),
        full(Room::Names),
        full(Room::Bytes),
        full(Room::Share),
        full(Room::Memory),
        Names::Waiting { number: 1 },
        Names::Gone { number: 1, partner: LIFE },
        Names::Guest { acceptor: CHANNEL, guest: ChannelId(1) },
        Names::Elsewhere,
    ]
}

fn relay() -> Vec<Relay> {
    let refused = |why| Relay::Refused { stream: 2, why };
    vec![
        Relay::AskDial { node: NODE, addresses: addresses() },
        Relay::DialBack { node: NODE, addresses: Vec::new() },
        Relay::Undialled(NODE),
        Relay::NotDialled(NODE, NoDial::NotConnected),
        Relay::NotDialled(NODE, NoDial::Failed),
        Relay::Admit,
        Relay::To { stream: 2, node: NODE },
        Relay::From { stream: 3, node: NODE },
        refused(NoRelay::Unwilling),
        refused(NoRelay::Full),
        refused(NoRelay::NotConnected),
        refused(NoRelay::Local),
        Relay::Credit { stream: 2 },
        Relay::Bytes { stream: 2, piece: krill() },
        Relay::End { stream: 2 },
    ]
}

fn post() -> [Post; 8] {
    let to = MailboxId { number: 300, bits: 0xabc };
    let message = |total, first| Post::Message { to, total, first };
    [
        message(5, krill()),
        message(0, Bytes::new()),
        Post::More(krill()),
        Post::Ask(300),
        Post::Room { mailbox: 300, posts: u32::MAX, bytes: 1 },
        Post::Closed(300),
        Post::Use { to, schema: krill() },
        Post::Mismatch { mailbox: 300, schema: krill() },
    ]
}

fn signals() -> Vec<Signal> {
    let life = Life { node: NodeId(0xa), incarnation: Incarnation(7) };
    let one = ProcessId { life, number: 300, place: 3, bits: 0xabc };
    let other = ProcessId { number: 1, ..one };
    let exit = Exit::of(Reason::Killed);
    let payload = Payload::Value { schema: krill(), value: krill() };
    let full = Exit { reason: Reason::Error, text: "no krill".into(), name: "a".into(), origin: Some(other), payload };
    vec![
        Signal::Watch { watch: 300, of: one },
        Signal::Unwatch(300),
        Signal::Down { watch: 300, exit: exit.clone() },
        Signal::Down { watch: 300, exit: Exit { payload: Payload::Left, ..exit.clone() } },
        Signal::Link { source: one, target: other },
        Signal::Unlink { source: one, target: other },
        Signal::Exit { to: one, from: other, exit: full },
        Signal::Kill { to: one, by: other },
    ]
}

fn frames() -> Vec<Frame> {
    let announce = |kind| Memory::Announce { number: 1, channel: CHANNEL, kind, total: 300 };
    let memory = [Memory::Credit(1), Memory::Admit(1), Memory::Recant(1)];
    let memory = memory.into_iter().chain([Kind::Offer, Kind::Grant, Kind::Sent].map(announce));
    let mut frames = vec![
        Frame::Heartbeat,
        Frame::Ack { seen: 300 },
        Frame::Goodbye,
        Frame::Confirm { signature: krill() },
        Frame::More(CHANNEL, krill()),
        Frame::Cut(CHANNEL),
        Frame::Read(CHANNEL, Read { key: 0xabc, value_max: 300 }),
    ];
    frames.extend(from_home().into_iter().map(|said| Frame::FromHome(CHANNEL, said)));
    frames.extend(to_home().into_iter().map(|said| Frame::ToHome(CHANNEL, said)));
    frames.extend(travel().into_iter().map(|said| Frame::Travel(CHANNEL, said)));
    frames.extend(names().into_iter().map(Frame::Names));
    frames.extend(relay().into_iter().map(Frame::Relay));
    frames.extend(memory.map(Frame::Memory));
    frames.extend(post().map(Frame::Post));
    frames.extend(signals().into_iter().map(|signal| Frame::Signal(Box::new(signal))));
    frames
}

/// The channel and the node are written as `C` and `N`, so that the rest stands out.
fn written(frame: &Frame) -> String {
    let mut out = BytesMut::new();
    let tail = codec::encode(frame, &mut out);
    assert!(tail.is_none(), "pieces of these frames are short");
    let Ok(Next::Frame { head, body }) = codec::next(&out) else { panic!("{frame:?} is no whole frame") };
    assert_eq!(head + body, out.len());
    assert_eq!(codec::decode(out[0], out.clone().freeze().slice(head..)).as_ref(), Ok(frame));
    let hex: String = out.iter().map(|byte| format!("{byte:02x}")).collect();
    let id = |id: u128| format!("{id:032x}");
    hex.replace(&id(CHANNEL.0), " C ").replace(&id(NODE.0), " N ").trim().to_owned()
}

#[test]
fn the_bytes_of_each_frame_are_those_of_this_version() {
    let written: Vec<String> = frames().iter().map(written).collect();
    let kinds: BTreeSet<&str> = written.iter().map(|bytes| &bytes[..2]).collect();
    let known = (0..=u8::MAX).filter(|kind| codec::next(&[*kind]).is_ok());
    assert_eq!(kinds.len(), known.count(), "each kind has a frame here");
    assert_eq!(written.join("\n"), include_str!("wire_bytes.txt").trim());
}

#[test]
fn longer_bodies_have_longer_lengths() {
    for (length, head) in [
        (111, &[0x28, 127][..]),
        (112, &[0x28, 0x80, 1]),
        (16_367, &[0x28, 0xff, 0x7f]),
        (16_368, &[0x28, 0x80, 0x80, 1]),
    ] {
        let mut out = BytesMut::new();
        codec::encode(&Frame::More(CHANNEL, Bytes::from(vec![7; length])), &mut out);
        assert_eq!((&out[..head.len()], &out[head.len()..][..16]), (head, &CHANNEL.0.to_be_bytes()[..]));
    }
}
