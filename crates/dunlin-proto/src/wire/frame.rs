//! Frames: those of the connection itself, and those about channels, mailboxes, processes, names, relays and
//! memory.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

use super::error::WireError;
use super::fields::{Facts, Reader, Wire, Writer, kinds};
use super::home::{self, FromHome};
use super::limits;
use super::memory::{self, Memory};
use super::names::{self, Names};
use super::post::{self, Post};
use super::relay::{self, Relay};
use super::sender::{self, ToHome};
use super::signal::{self, Signal};
use super::travel::{self, Travel};
use super::value;
use super::value::Read;
use crate::id::ChannelId;

kinds! {
    HEARTBEAT = 0x01, 0;
    ACK = 0x02, SHORT;
    GOODBYE = 0x03, 0;
    CONFIRM = 0x04, SIGNATURE + 2;
    MORE = 0x28, CHUNK + 64;
    CUT = 0x29, SHORT;
    READ = 0x48, SHORT;
}

/// The lane by which a frame leaves a node. Frames of one lane stay in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Not numbered, and not sent again: it describes the present state of the connection.
    Moment,
    /// Overtakes everything that waits to be sent on channels.
    Control,
    /// From a channel's sending half: in order with earlier frames of that half, in turns with other
    /// channels.
    Channel(ChannelId),
    /// Of a relayed socket: in order, in turns with channels.
    Relayed(u64),
    /// A message for a mailbox, or a signal: in order with all others of the connection, in turns with
    /// channels.
    Posts,
}

/// One message between two nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Sent when there is nothing else to send.
    Heartbeat,
    /// How many numbered frames have been received.
    Ack {
        /// All frames with smaller numbers; the first frame has number 0.
        seen: u64,
    },
    /// The node leaves: no frame follows.
    Goodbye,
    /// The dialler has read `Welcome`. It is the dialler's first frame on each socket, and never comes later.
    Confirm {
        /// The dialler's signature of both messages of the handshake.
        signature: Bytes,
    },
    /// From a channel's home to a node with a sending half.
    FromHome(ChannelId, FromHome),
    /// From a sending half to the home.
    ToHome(ChannelId, ToHome),
    /// The next piece of the value whose head came before on this channel.
    More(ChannelId, Bytes),
    /// The value whose head came before on this channel is no longer needed; no piece follows.
    Cut(ChannelId),
    /// About an end that passes, or has passed, between the two nodes in a message.
    Travel(ChannelId, Travel),
    /// A message of the name service.
    Names(Names),
    /// Requests a value that was [offered unread](super::Head::Unread), over this new channel, whose home is
    /// the sending node.
    Read(ChannelId, Read),
    /// Helps two nodes that cannot dial each other.
    Relay(Relay),
    /// About the memory that a node keeps for another one.
    Memory(Memory),
    /// About a mailbox.
    Post(Post),
    /// From a process, or about one.
    Signal(Box<Signal>),
}

/// Appends a frame to `out`. The returned bytes follow it, uncopied; `None` if `out` has everything.
pub fn encode(frame: &Frame, out: &mut BytesMut) -> Option<Bytes> {
    let mut w = match frame.channel() {
        Some(channel) => Writer::on(out, channel),
        None => Writer::frame(out),
    };
    match frame {
        Frame::Heartbeat => w.kind(kind::HEARTBEAT),
        Frame::Ack { seen } => w.kind(kind::ACK).number(*seen),
        Frame::Goodbye => w.kind(kind::GOODBYE),
        Frame::Confirm { signature } => w.kind(kind::CONFIRM).string(signature),
        Frame::FromHome(_, said) => w.say(said),
        Frame::ToHome(_, said) => w.say(said),
        Frame::More(_, piece) => w.kind(kind::MORE).piece(piece),
        Frame::Cut(_) => w.kind(kind::CUT),
        Frame::Travel(_, said) => w.say(said),
        Frame::Names(said) => w.say(said),
        Frame::Read(_, read) => w.kind(kind::READ).id(read.key).number(read.value_max),
        Frame::Relay(said) => w.say(said),
        Frame::Memory(said) => w.say(said),
        Frame::Post(said) => w.say(said),
        Frame::Signal(signal) => w.say(&**signal),
    };
    w.end()
}

/// Reads a frame: `kind` is its first byte, `body` what follows its length. The pieces of values are parts of
/// `body`, not copies.
///
/// # Errors
/// The bytes are not a frame.
pub fn decode(kind: u8, body: Bytes) -> Result<Frame, WireError> {
    decode_within(kind, &body, 0..body.len())
}

/// As [`decode`], with a body that is this part of `bytes`.
pub(crate) fn decode_within(kind: u8, bytes: &Bytes, body: Range<usize>) -> Result<Frame, WireError> {
    let mut r = Reader::new(bytes, body);
    let r = &mut r;
    let frame = match kind {
        kind::HEARTBEAT => Frame::Heartbeat,
        kind::ACK => Frame::Ack { seen: r.number("a count of frames")? },
        kind::GOODBYE => Frame::Goodbye,
        kind::CONFIRM => Frame::Confirm { signature: r.bytes("a signature", limits::SIGNATURE)? },
        home::kind::ATTACHED..=home::kind::DRAINED | home::kind::ONWARD | home::kind::OFFER_UNREAD => {
            Frame::FromHome(r.channel()?, FromHome::read(kind, r)?)
        }
        sender::kind::ATTACH..=sender::kind::SENDER_ENDED
        | sender::kind::TAKE..=sender::kind::STATE
        | sender::kind::REPLY..=sender::kind::REPLY_COMES
        | value::kind::UNREAD
        | value::kind::GRANT_UNREAD => Frame::ToHome(r.channel()?, ToHome::read(kind, r)?),
        kind::MORE => Frame::More(r.channel()?, r.piece()?),
        kind::CUT => Frame::Cut(r.channel()?),
        kind::READ => Frame::Read(r.channel()?, Read { key: r.id("a key")?, value_max: r.number("a limit")? }),
        travel::kind::WHERE..=travel::kind::LAPSED | travel::kind::HURRY => {
            Frame::Travel(r.channel()?, Travel::read(kind, r)?)
        }
        names::kind::DECLARE..=names::kind::UNFIT => Frame::Names(Names::read(kind, r)?),
        relay::kind::ASK_DIAL..=relay::kind::ADMIT => Frame::Relay(Relay::read(kind, r)?),
        memory::kind::CREDIT..=memory::kind::RECANT => Frame::Memory(Memory::read(kind, r)?),
        post::kind::MESSAGE..=post::kind::MISMATCH => Frame::Post(Post::read(kind, r)?),
        signal::kind::WATCH..=signal::kind::KILL => Frame::Signal(Box::new(Signal::read(kind, r)?)),
        unknown => return Err(WireError::UnknownKind(unknown)),
    };
    r.finish()?;
    Ok(frame)
}

/// The facts about a frame, by kind, that are needed before its body is read.
static FACTS: [Option<Facts>; 256] = {
    let families = [
        kind::KINDS,
        FromHome::KINDS,
        ToHome::KINDS,
        value::kind::KINDS,
        Travel::KINDS,
        Names::KINDS,
        Relay::KINDS,
        Memory::KINDS,
        Post::KINDS,
        Signal::KINDS,
    ];
    let mut table = [None; 256];
    let mut family = 0;
    while family < families.len() {
        let mut at = 0;
        while at < families[family].len() {
            let (kind, facts) = families[family][at];
            assert!(table[kind as usize].is_none(), "two frames have the same kind");
            table[kind as usize] = Some(facts);
            at += 1;
        }
        family += 1;
    }
    table
};

#[inline]
pub(super) fn facts(kind: u8) -> Result<Facts, WireError> {
    FACTS[kind as usize].ok_or(WireError::UnknownKind(kind))
}

impl Frame {
    /// The channel that the frame is about.
    pub(crate) fn channel(&self) -> Option<ChannelId> {
        match self {
            Self::FromHome(channel, _)
            | Self::ToHome(channel, _)
            | Self::More(channel, _)
            | Self::Cut(channel)
            | Self::Read(channel, _)
            | Self::Travel(channel, _) => Some(*channel),
            Self::Heartbeat
            | Self::Ack { .. }
            | Self::Goodbye
            | Self::Confirm { .. }
            | Self::Names(_)
            | Self::Relay(_)
            | Self::Memory(_)
            | Self::Post(_)
            | Self::Signal(_) => None,
        }
    }

    /// The lane that the frame takes.
    pub fn lane(&self) -> Lane {
        match self {
            Self::Heartbeat | Self::Ack { .. } | Self::Confirm { .. } => Lane::Moment,
            Self::Relay(Relay::Bytes { stream, .. } | Relay::End { stream }) => Lane::Relayed(*stream),
            Self::Post(Post::Message { .. } | Post::More(_)) | Self::Signal(_) => Lane::Posts,
            // A cut follows the pieces that have been written, and precedes its channel's next frames: the
            // control lane ensures both.
            Self::Goodbye
            | Self::FromHome(..)
            | Self::Travel(..)
            | Self::Names(_)
            | Self::Read(..)
            | Self::Relay(_)
            | Self::Memory(_)
            | Self::Post(_)
            | Self::Cut(_) => Lane::Control,
            Self::ToHome(channel, _) | Self::More(channel, _) => Lane::Channel(*channel),
        }
    }

    /// Whether the frame has a number, and is sent again after a socket is lost.
    pub fn is_numbered(&self) -> bool {
        self.lane() != Lane::Moment
    }
}
