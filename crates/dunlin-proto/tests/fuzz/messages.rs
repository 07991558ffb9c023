//! Any message that can be sent, from any bytes. Numbers and ids are mostly small, so that they coincide.

use arbitrary::{Arbitrary as _, Result, Unstructured};
use bytes::Bytes;
use dunlin_proto::id::{ChannelId, ConnectionId, Incarnation, Life, MailboxId, NodeId, ProcessId};
use dunlin_proto::wire::handshake::{Answer, Bound, Hello, Proof, Refusal, Resume, Welcome};
use dunlin_proto::wire::{
    Declaration, End, Exit, Expected, Face, Failure, Frame, FromHome, Head, Kind, Memory, Moved, Names, NoDial,
    NoRelay, Payload, Poison, Post, Read, Reason, Rejection, Relay, Room, Signal, Status, Terms, ToHome, Travel,
    VERSIONS, Which, limits,
};

pub(crate) fn number(u: &mut Unstructured<'_>) -> Result<u64> {
    Ok(match u8::arbitrary(u)? {
        small @ 0..=199 => u64::from(small % 5),
        large => u64::arbitrary(u)? >> (large % 64),
    })
}

fn number32(u: &mut Unstructured<'_>) -> Result<u32> {
    Ok(number(u)? as u32)
}

pub(crate) fn channel(u: &mut Unstructured<'_>) -> Result<ChannelId> {
    Ok(ChannelId(match u8::arbitrary(u)? {
        small @ 0..=249 => u128::from(small % 3),
        _ => u128::arbitrary(u)?,
    }))
}

pub(crate) fn life(u: &mut Unstructured<'_>) -> Result<Life> {
    let node = NodeId(u128::from(number(u)?) + 1);
    Ok(Life { node, incarnation: Incarnation(number(u)?.max(1)) })
}

pub(crate) fn bytes(u: &mut Unstructured<'_>, max: usize) -> Result<Bytes> {
    let length = (number(u)? as usize).min(u.len()).min(max);
    u.bytes(length).map(Bytes::copy_from_slice)
}

fn text(u: &mut Unstructured<'_>, max: usize) -> Result<String> {
    let mut text = String::from_utf8_lossy(&bytes(u, max / 3)?).into_owned();
    text.truncate(max);
    Ok(text)
}

fn addresses(u: &mut Unstructured<'_>) -> Result<Vec<String>> {
    let count = u.int_in_range(0..=limits::ADDRESSES)?;
    (0..count).map(|_| text(u, limits::ADDRESS)).collect()
}

fn poison(u: &mut Unstructured<'_>) -> Result<Poison> {
    Ok(Poison { strength: u8::arbitrary(u)?, reason: text(u, limits::TEXT)? })
}

pub(crate) fn end(u: &mut Unstructured<'_>) -> Result<End> {
    Ok(match u.int_in_range(0..=3)? {
        0 => End::Gone,
        1 => End::Retired,
        2 => End::Lost,
        _ => End::Poisoned(poison(u)?),
    })
}

pub(crate) fn failure(u: &mut Unstructured<'_>) -> Result<Failure> {
    Ok(match u.int_in_range(0..=9)? {
        0 => Failure::Closed,
        1 => Failure::Poisoned(poison(u)?),
        2 => Failure::Refused,
        3 => Failure::Expired,
        4 => Failure::WouldBlock,
        5 => Failure::TooLarge { max: number(u)? },
        6 => Failure::OwnChannel,
        7 => Failure::Unknown,
        8 => Failure::Unread,
        _ => Failure::Undecodable(text(u, limits::TEXT)?),
    })
}

pub(crate) fn declaration(u: &mut Unstructured<'_>) -> Result<Declaration> {
    let faces = [Face::Sender, Face::Receiver, Face::Client, Face::Server, Face::Acceptor];
    let expected = [Expected::Unknown, Expected::Unshared, Expected::Shared];
    Ok(Declaration {
        face: *u.choose(&faces)?,
        shared: bool::arbitrary(u)?,
        expects: *u.choose(&expected)?,
        schema: bytes(u, limits::SCHEMA)?,
    })
}

pub(crate) fn names(u: &mut Unstructured<'_>) -> Result<Names> {
    let number = number(u)?;
    Ok(match u.int_in_range(0..=10)? {
        0 => Names::Declare {
            number,
            name: text(u, limits::NAME)?,
            channel: channel(u)?,
            face: declaration(u)?,
            status: match u.int_in_range(0..=2)? {
                0 => Status::New,
                1 => Status::Known,
                _ => Status::Joined(channel(u)?),
            },
        },
        1 => Names::Undeclare { number },
        2 => Names::Found {
            number,
            partner: life(u)?,
            addresses: addresses(u)?,
            channel: channel(u)?,
            face: declaration(u)?,
        },
        3 => Names::Refused { number, there: declaration(u)?, holder: life(u)?, addresses: addresses(u)? },
        4 => Names::BadName { number },
        5 => Names::Full {
            number,
            room: *u.choose(&[Room::Declarations, Room::Names, Room::Bytes, Room::Share, Room::Memory])?,
            max: number,
        },
        6 => Names::Waiting { number },
        7 => Names::Gone { number, partner: life(u)? },
        8 => Names::Elsewhere,
        9 => Names::Unfit { number, refused: declaration(u)?, by: life(u)?, addresses: addresses(u)? },
        _ => Names::Guest { acceptor: channel(u)?, guest: channel(u)? },
    })
}

fn terms(u: &mut Unstructured<'_>) -> Result<Terms> {
    Ok(Terms { window: number32(u)?.max(1), credits: number32(u)?, value_max: number(u)? })
}

fn which(u: &mut Unstructured<'_>) -> Result<Which> {
    Ok(if bool::arbitrary(u)? { Which::Sender } else { Which::Receiver })
}

fn travel(u: &mut Unstructured<'_>) -> Result<Travel> {
    Ok(match u.int_in_range(0..=6)? {
        0 => Travel::Where(number(u)?),
        1 => Travel::At { epoch: number(u)?, home: life(u)?.node, addresses: addresses(u)? },
        2 => Travel::Fetch(number(u)?),
        3 => Travel::Settled(which(u)?, number(u)?),
        4 => Travel::Over(which(u)?, end(u)?),
        5 => Travel::Hurry(which(u)?, number(u)?),
        _ => Travel::Lapsed(which(u)?, number(u)?, end(u)?),
    })
}

fn moved(u: &mut Unstructured<'_>) -> Result<Moved> {
    Ok(Moved {
        epoch: number(u)?,
        transfer: number(u)?,
        sender: if bool::arbitrary(u)? { Some((life(u)?.node, addresses(u)?)) } else { None },
        ended: if bool::arbitrary(u)? { Some(end(u)?) } else { None },
        credits: number(u)?,
        values: number(u)?,
    })
}

fn from_home(u: &mut Unstructured<'_>) -> Result<FromHome> {
    Ok(match u.int_in_range(0..=18)? {
        0 => FromHome::Attached(terms(u)?),
        1 => FromHome::Rejected(match u.int_in_range(0..=3)? {
            0 => Rejection::NoSuchChannel,
            1 => Rejection::Occupied,
            2 => Rejection::Mismatch(declaration(u)?),
            _ => Rejection::Full,
        }),
        2 => FromHome::Taken(number(u)?),
        3 => FromHome::Held(number(u)?),
        4 => FromHome::Released(number(u)?),
        5 => FromHome::Failed(number(u)?, failure(u)?),
        6 => FromHome::Withdrawn(number(u)?),
        7 => FromHome::Reserve(number(u)?, number(u)?),
        8 => FromHome::Abort(number(u)?, number(u)?),
        9 => FromHome::Credit(number32(u)?),
        10 => FromHome::HomeIs { transfer: number(u)?, epoch: number(u)?, terms: terms(u)? },
        11 => FromHome::NotHome(number(u)?),
        12 => FromHome::Fenced(number(u)?),
        13 => FromHome::Moving { epoch: number(u)?, to: life(u)?.node, addresses: addresses(u)? },
        14 => FromHome::Superseded(number(u)?),
        15 => FromHome::Drained,
        16 => FromHome::Onward(number(u)?),
        17 => FromHome::Unread(number(u)?),
        _ => FromHome::Ended(end(u)?),
    })
}

fn to_home(u: &mut Unstructured<'_>) -> Result<ToHome> {
    Ok(match u.int_in_range(0..=15)? {
        0 => ToHome::Attach(declaration(u)?),
        1 => ToHome::OfferChoice(number(u)?, u128::arbitrary(u)?),
        2 => ToHome::Withdraw(number(u)?),
        3 => ToHome::Revoke(number(u)?),
        4 => ToHome::Ended(end(u)?),
        8 => ToHome::Take(number(u)?),
        9 => ToHome::Quiet,
        10 => ToHome::Drain,
        11 => ToHome::State(Box::new(moved(u)?)),
        14 => ToHome::Reply(bytes(u, limits::REPLY)?),
        15 => ToHome::ReplyComes,
        kind => {
            let head = match kind {
                5 => Head::Offer(number(u)?),
                6 => Head::Grant(number(u)?, number(u)?),
                12 => Head::Unread(number(u)?),
                13 => Head::GrantUnread(number(u)?, number(u)?),
                _ => Head::Sent,
            };
            let first = bytes(u, limits::CHUNK)?;
            let rest = if first.is_empty() { 0 } else { number(u)? };
            ToHome::Value { head, total: (first.len() as u64).saturating_add(rest), first }
        }
    })
}

fn relay(u: &mut Unstructured<'_>) -> Result<Relay> {
    let (node, stream) = (life(u)?.node, number(u)?);
    Ok(match u.int_in_range(0..=10)? {
        0 => Relay::AskDial { node, addresses: addresses(u)? },
        1 => Relay::DialBack { node, addresses: addresses(u)? },
        2 => Relay::Undialled(node),
        3 => Relay::NotDialled(node, *u.choose(&[NoDial::NotConnected, NoDial::Failed])?),
        4 => Relay::To { stream, node },
        5 => Relay::From { stream, node },
        6 => Relay::Refused {
            stream,
            why: *u.choose(&[NoRelay::Unwilling, NoRelay::Full, NoRelay::NotConnected, NoRelay::Local])?,
        },
        7 => Relay::Credit { stream },
        8 => {
            let piece = bytes(u, limits::RELAYED_PIECE)?;
            Relay::Bytes { stream, piece: if piece.is_empty() { Bytes::from_static(b"x") } else { piece } }
        }
        9 => Relay::Admit,
        _ => Relay::End { stream },
    })
}

pub(crate) fn frame(u: &mut Unstructured<'_>) -> Result<Frame> {
    Ok(match u8::arbitrary(u)? {
        0..=2 => Frame::Heartbeat,
        3 => Frame::Confirm { signature: bytes(u, limits::SIGNATURE)? },
        4..=15 => Frame::Ack { seen: number(u)? },
        16..=17 => Frame::Goodbye,
        18..=90 => Frame::FromHome(channel(u)?, from_home(u)?),
        91..=190 => Frame::ToHome(channel(u)?, to_home(u)?),
        191..=215 => {
            let (channel, piece) = (channel(u)?, bytes(u, limits::CHUNK)?);
            Frame::More(channel, if piece.is_empty() { Bytes::from_static(b"x") } else { piece })
        }
        216..=225 => Frame::Cut(channel(u)?),
        226..=238 => Frame::Travel(channel(u)?, travel(u)?),
        239..=241 => Frame::Relay(relay(u)?),
        242..=243 => Frame::Memory(memory(u)?),
        247 | 248 => Frame::Post(post(u)?),
        249 => Frame::Signal(Box::new(signal(u)?)),
        244..=246 => Frame::Read(channel(u)?, Read { key: u128::arbitrary(u)?, value_max: number(u)? }),
        _ => Frame::Names(names(u)?),
    })
}

fn post(u: &mut Unstructured<'_>) -> Result<Post> {
    let mailbox = u64::from(u8::arbitrary(u)? % 4);
    Ok(match u8::arbitrary(u)? % 8 {
        0 | 1 => {
            let (to, first) = (MailboxId { number: mailbox, bits: mailbox % 3 }, bytes(u, limits::POST)?);
            let more = if first.is_empty() { 0 } else { usize::from(u8::arbitrary(u)?) };
            Post::Message { to, total: (first.len() + more).min(limits::POST) as u64, first }
        }
        2 => {
            let piece = bytes(u, limits::POST)?;
            Post::More(if piece.is_empty() { Bytes::from_static(b"x") } else { piece })
        }
        3 => Post::Ask(mailbox),
        4 => Post::Room { mailbox, posts: u32::arbitrary(u)?, bytes: number(u)? },
        5 => Post::Closed(mailbox),
        6 => {
            let to = MailboxId { number: mailbox, bits: mailbox % 3 };
            Post::Use { to, schema: bytes(u, limits::SCHEMA)? }
        }
        _ => Post::Mismatch { mailbox, schema: bytes(u, limits::SCHEMA)? },
    })
}

fn process(u: &mut Unstructured<'_>) -> Result<ProcessId> {
    let number = u64::from(u8::arbitrary(u)? % 4);
    let life = Life { node: NodeId(1 + u128::from(u8::arbitrary(u)? % 3)), incarnation: Incarnation(1) };
    Ok(ProcessId { life, number, place: u32::arbitrary(u)?, bits: number % 3 })
}

fn exit(u: &mut Unstructured<'_>) -> Result<Exit> {
    use Reason::{Cancelled, Error, Killed, NoSuchProcess, NodeLeft, NodeLost, Normal, Panicked, Refused};
    let reasons = [Normal, Error, Panicked, Cancelled, Killed, NoSuchProcess, NodeLost, NodeLeft, Refused];
    let payload = match u8::arbitrary(u)? % 3 {
        0 => Payload::None,
        1 => Payload::Left,
        _ => Payload::Value { schema: bytes(u, limits::EXIT_PAYLOAD / 2)?, value: bytes(u, limits::EXIT_PAYLOAD / 2)? },
    };
    Ok(Exit {
        reason: *u.choose(&reasons)?,
        text: text(u, limits::TEXT)?,
        name: text(u, limits::NAME)?,
        origin: if bool::arbitrary(u)? { Some(process(u)?) } else { None },
        payload,
    })
}

fn signal(u: &mut Unstructured<'_>) -> Result<Signal> {
    let watch = u64::from(u8::arbitrary(u)? % 4);
    Ok(match u8::arbitrary(u)? % 7 {
        0 => Signal::Watch { watch, of: process(u)? },
        1 => Signal::Unwatch(watch),
        2 => Signal::Down { watch, exit: exit(u)? },
        3 => Signal::Link { source: process(u)?, target: process(u)? },
        4 => Signal::Unlink { source: process(u)?, target: process(u)? },
        5 => Signal::Exit { to: process(u)?, from: process(u)?, exit: exit(u)? },
        _ => Signal::Kill { to: process(u)?, by: process(u)? },
    })
}

fn memory(u: &mut Unstructured<'_>) -> Result<Memory> {
    Ok(match u8::arbitrary(u)? % 4 {
        0 => Memory::Credit(number(u)?),
        1 => Memory::Announce {
            number: number(u)?,
            channel: channel(u)?,
            kind: *u.choose(&[Kind::Offer, Kind::Grant, Kind::Sent])?,
            total: number(u)?,
        },
        2 => Memory::Admit(number(u)?),
        _ => Memory::Recant(number(u)?),
    })
}

pub(crate) fn resume(u: &mut Unstructured<'_>) -> Result<Resume> {
    // Below the limit: a machine counts on from there, and its frames have to be readable.
    Ok(Resume {
        connection: ConnectionId(u128::from(number(u)?)),
        run: number(u)?.min(limits::RUN - 10_000),
        seen: number(u)?,
    })
}

fn bound(u: &mut Unstructured<'_>, addresses: usize) -> Result<Bound> {
    let which = u8::arbitrary(u)? & ((1u16 << addresses.min(8)) - 1) as u8;
    Ok(Bound { which, refused_ms: number(u)? })
}

pub(crate) fn hello(u: &mut Unstructured<'_>) -> Result<Hello> {
    let addresses = addresses(u)?;
    Ok(Hello {
        versions: VERSIONS,
        application: text(u, limits::APPLICATION)?,
        me: life(u)?,
        wanted: NodeId(number(u)?.into()),
        met: Incarnation(number(u)?),
        attempt: number(u)?,
        resume: resume(u)?,
        bound: bound(u, addresses.len())?,
        addresses,
        key: bytes(u, limits::KEY)?,
        nonce: u128::arbitrary(u)?,
        signature: bytes(u, limits::SIGNATURE)?,
    })
}

fn proof(u: &mut Unstructured<'_>) -> Result<Proof> {
    Ok(Proof { key: bytes(u, limits::KEY)?, signature: bytes(u, limits::SIGNATURE)? })
}

pub(crate) fn answer(u: &mut Unstructured<'_>) -> Result<Answer> {
    Ok(match u.int_in_range(0..=14)? {
        10 => Answer::Refused(Refusal::Unproven),
        11 => Answer::Over(Refusal::AnotherLife(Incarnation(number(u)?)), proof(u)?),
        12 => Answer::Over(Refusal::Impossible, proof(u)?),
        13 => Answer::Over(Refusal::Forgotten, proof(u)?),
        14 => Answer::Over(Refusal::Stale(Incarnation(number(u)?)), proof(u)?),
        0 => Answer::Refused(Refusal::Version((u16::arbitrary(u)?, u16::arbitrary(u)?))),
        1 => Answer::Refused(Refusal::Application(text(u, limits::APPLICATION)?)),
        2 => Answer::Refused(Refusal::WrongNode(NodeId(u128::arbitrary(u)?))),
        3 => Answer::Refused(Refusal::Stale(Incarnation(number(u)?))),
        4 => Answer::Refused(Refusal::Late),
        5 => Answer::Refused(Refusal::Crossed),
        6 => Answer::Refused(Refusal::Myself),
        7 => Answer::Refused(Refusal::Busy),
        8 => Answer::Refused(Refusal::Forgotten),
        _ => {
            let addresses = addresses(u)?;
            let bound = bound(u, addresses.len())?;
            Answer::Welcome(Welcome {
                version: number(u)? as u16,
                me: life(u)?,
                resume: resume(u)?,
                addresses,
                bound,
                nonce: u128::arbitrary(u)?,
                proof: proof(u)?,
            })
        }
    })
}
