//! What travels between two nodes, byte by byte: `docs/wire.md` is this folder in prose.
//!
//! [`handshake`] opens a socket; after it, a socket carries [`Frame`]s, which [`codec`] writes and reads.

pub mod codec;
mod error;
pub mod handshake;

use bytes::Bytes;
use error::WireError;

use crate::id::{ChannelId, ChoiceId, Life, NodeId, Request, Ticket};

/// The newest protocol version this crate speaks, and the oldest.
pub const VERSIONS: (u16, u16) = (5, 5);

/// Limits of what is read from a network, in bytes unless said otherwise.
pub mod limits {
    /// An application's name.
    pub const APPLICATION: usize = 64;
    /// An address.
    pub const ADDRESS: usize = 255;
    /// How many addresses a node may have.
    pub const ADDRESSES: usize = 8;
    /// A node's public key.
    pub const KEY: usize = 64;
    /// A signature.
    pub const SIGNATURE: usize = 128;
    /// A whole handshake message.
    pub const HANDSHAKE: usize = 16 << 10;
    /// The body of a frame without a piece of a value. So much of a frame that is not complete each socket
    /// may have here; of a longer one only what counts as a value that has its place.
    pub const FRAME: usize = 64 << 10;
    /// A piece of a value.
    pub const CHUNK: usize = 1 << 20;
    /// A reason, or another text for people.
    pub const TEXT: usize = 4096;
    /// A name of an end.
    pub const NAME: usize = 255;
    /// A schema.
    pub const SCHEMA: usize = dunlin_schema::limits::BYTES;
    /// A piece of a relayed socket.
    pub const RELAYED_PIECE: usize = FRAME - 10;
    /// So many bytes of a relayed socket may be on their way in one direction...
    pub const RELAYED: usize = 256 << 10;
    /// ... and so many more after each [`Credit`](super::Relay::Credit).
    pub const RELAY_CREDIT: usize = 64 << 10;
    /// So many bytes of values may be sent on a new connection unannounced. What a node gives beyond that it says ([`Credit`](super::Memory::Credit)).
    pub const CREDIT: u64 = 256 << 10;
    /// What a value takes of the credit beside its bytes.
    pub const VALUE: u64 = 128;
    /// So many values of a connection may be announced at once.
    pub const ANNOUNCED: usize = 1 << 16;
    /// So many bytes may be offered on one channel and not be received, if it is more than one value. Those of at most [`AHEAD_SMALL`] do not count.
    pub const AHEAD: u64 = 64 << 10;
    /// See [`AHEAD`].
    pub const AHEAD_SMALL: u64 = 2 << 10;
    /// The number of a connection's life: no honest one comes near it.
    pub const RUN: u64 = 1 << 48;
}

/// Which way a frame takes out of a node. Frames of one lane stay in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Not numbered, and not sent again: it speaks of the connection's state at this moment.
    Moment,
    /// Overtakes all that waits to be sent on channels.
    Control,
    /// From a channel's sending half: in order with what that half said before, in turns with other channels.
    Channel(ChannelId),
    /// Of a relayed socket: in order, in turns with channels.
    Relayed(u64),
}

/// One message between two nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Nothing else was to be said.
    Heartbeat,
    /// How many numbered frames have been seen.
    Ack {
        /// All frames with smaller numbers; the first frame has number 0.
        seen: u64,
    },
    /// The node leaves: nothing follows.
    Goodbye,
    /// The dialler has read `Welcome`. It is the dialler's first frame on each socket, and never comes later.
    Confirm {
        /// The dialler's signature of both messages of the handshake.
        signature: Bytes,
    },
    /// What a home says of a channel, to a node with a sending half.
    FromHome(ChannelId, FromHome),
    /// What a sending half says, to the home.
    ToHome(ChannelId, ToHome),
    /// The next piece of the value whose head went before on this channel.
    More(ChannelId, Bytes),
    /// The value whose head went before on this channel is not wanted any more; no piece follows.
    Cut(ChannelId),
    /// What nodes say of an end that has passed, or passes, between them in a message.
    Travel(ChannelId, Travel),
    /// A message of the name service.
    Names(Names),
    /// A value that was [offered unread](Head::Unread) is to be sent over this new channel, whose home is the node that says this.
    Read(ChannelId, Read),
    /// What helps two nodes that cannot dial each other.
    Relay(Relay),
    /// How much a node keeps for another one.
    Memory(Memory),
}

/// What is said of the memory that values take at the node to which they are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Values of so many bytes more may be sent unannounced, each with [what it costs beside](limits::VALUE).
    Credit(u64),
    /// A value waits that is not within the credit.
    Announce {
        /// Which one of the connection.
        number: u64,
        /// The channel on which it is to be sent.
        channel: ChannelId,
        /// What it is for.
        kind: Kind,
        /// How long the whole value is, in bytes.
        total: u64,
    },
    /// The announced value may be sent: there is room for all of it.
    Admit(u64),
    /// The value is not announced any more. Its admission may have been said meanwhile.
    Recant(u64),
}

/// What an announced value is for: a [`Head`] without its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A send offers it.
    Offer,
    /// A receive has asked for it.
    Grant,
    /// A place in the buffer is promised for it.
    Sent,
}

/// Which value, and how long it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// Its number, which nobody else knows but who was told of the offer.
    pub key: u128,
    /// In bytes, as it was encoded.
    pub value_max: u64,
}

/// What is said so that two nodes that cannot dial each other have a connection all the same: by dial-back, or else through a third one, the *relay*.
///
/// A relayed socket is a *stream* on the connection between one of the two and the relay, and another one on that between the relay and the other. Who
/// begins a stream numbers it, ever upwards: the numbers of the node with the smaller id are even, those of the other one odd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Relay {
    /// Have that node dial me, at these addresses.
    AskDial {
        /// Who is to dial.
        node: NodeId,
        /// Whereto.
        addresses: Vec<String>,
    },
    /// That node has asked to be dialled, at these addresses.
    DialBack {
        /// Who has asked.
        node: NodeId,
        /// Whereto.
        addresses: Vec<String>,
    },
    /// The answer to [`DialBack`](Self::DialBack) if that failed: that node could not be dialled.
    Undialled(NodeId),
    /// The answer to [`AskDial`](Self::AskDial) if that failed: that node has not dialled.
    NotDialled(NodeId, NoDial),
    /// What is relayed may come to this node, though its own socket to the relay is on their host.
    Admit,
    /// Begins a stream, to be relayed to that node. What is written on it may follow at once.
    To {
        /// The stream.
        stream: u64,
        /// Whereto.
        node: NodeId,
    },
    /// Begins a stream, relayed from that node.
    From {
        /// The stream.
        stream: u64,
        /// Who dials.
        node: NodeId,
    },
    /// The answer to [`To`](Self::To) of what is not relayed: the stream is over.
    Refused {
        /// The stream.
        stream: u64,
        /// Why it is not.
        why: NoRelay,
    },
    /// [`limits::RELAY_CREDIT`] more bytes may follow on the stream.
    Credit {
        /// The stream.
        stream: u64,
    },
    /// The next bytes of the stream.
    Bytes {
        /// The stream.
        stream: u64,
        /// At least one.
        piece: Bytes,
    },
    /// The stream is over.
    End {
        /// Which one.
        stream: u64,
    },
}

/// Why a node has not been dialled by another one that was asked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoDial {
    /// Who was asked to tell it has no connection to it.
    NotConnected,
    /// It has tried, or cannot try.
    Failed,
}

/// Why a node does not relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRelay {
    /// It does not relay.
    #[error("it does not relay")]
    Unwilling,
    /// It relays as much as it may already.
    #[error("it relays as many sockets as it may already")]
    Full,
    /// It has no connection of its own to the other node.
    #[error("it has no connection of its own to the other node")]
    NotConnected,
    /// It reaches the other node only on their own host, and who asks is on another one.
    #[error("the other node is on the relay's own host and has not said that it may be relayed to (`relayed = true`)")]
    Local,
}

/// Which end of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Which {
    /// The sender.
    Sender,
    /// The receiver.
    Receiver,
}

/// What is said of ends that travel: `docs/mobility.md`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Travel {
    /// To the node that speaks for a sender: where is the home with this epoch, or a later one?
    Where(u64),
    /// The answer.
    At {
        /// The home's epoch.
        epoch: u64,
        /// The home.
        home: NodeId,
        /// Where it can be dialled.
        addresses: Vec<String>,
    },
    /// To the home: the receiver is here, under this number, and used. [`ToHome::State`] answers.
    Fetch(u64),
    /// To whom the end was given, in that message: it is in use, and nobody has to answer for it any more.
    Settled(Which, u64),
    /// To whom the end was given: its channel is over, or another one has it.
    Over(Which, End),
    /// To who gave the end, in that message: it was dropped without having been used, or is lost.
    Lapsed(Which, u64, End),
    /// To whom the end was given, in that message: it is to be used now, or whoever has it from there; who gave it is to leave.
    Hurry(Which, u64),
}

/// A channel, as it moves to its new home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The new home's epoch.
    pub epoch: u64,
    /// The number of the last move of the sender that was admitted.
    pub transfer: u64,
    /// The node with the sender, and where it can be dialled; `None`: there is no sender any more.
    pub sender: Option<(NodeId, Vec<String>)>,
    /// How the sender has ended the channel.
    pub ended: Option<End>,
    /// So many values more the sender may send on credits: the new home has places for them, too.
    pub credits: u64,
    /// So many buffered values follow, as values that are [`Sent`](Head::Sent).
    pub values: u64,
}

/// What the home of a channel says to a node with a sending half.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromHome {
    /// The answer to [`ToHome::Attach`].
    Attached(Terms),
    /// The answer to [`ToHome::Attach`] of what does not fit; nothing that follows it will be heard.
    Rejected(Rejection),
    /// A receive has returned the value.
    Taken(Ticket),
    /// An extended receive has returned the value; [`Released`](Self::Released) follows.
    Held(Ticket),
    /// The extended receive of this value is over.
    Released(Ticket),
    /// The offer has failed.
    Failed(Ticket, Failure),
    /// The answer to [`ToHome::Withdraw`]: the value has not been taken.
    Withdrawn(Ticket),
    /// Asks for what a choice offers.
    Reserve(Ticket, Request),
    /// The reservation is given up; the offer stands.
    Abort(Ticket, Request),
    /// So many more values may be [`Sent`](Head::Sent).
    Credit(u32),
    /// The channel has ended; offers that stand have failed.
    Ended(End),
    /// The answer to [`ToHome::Take`]: this node is the channel's home, and knows the half.
    HomeIs {
        /// The number that is answered.
        transfer: u64,
        /// Counts the channel's homes.
        epoch: u64,
        /// What it grants.
        terms: Terms,
    },
    /// The answer to [`ToHome::Take`] with this number: the home is not here (any more).
    NotHome(u64),
    /// The answer to [`ToHome::Take`] with this number: another one has the sender.
    Fenced(u64),
    /// The receiver has left for another node. Nothing more is said of what was offered here; [`ToHome::Quiet`] answers.
    Moving {
        /// The new home's epoch.
        epoch: u64,
        /// The new home.
        to: NodeId,
        /// Where it can be dialled.
        addresses: Vec<String>,
    },
    /// To a node that the sender has left: the home knows the half with this number.
    Superseded(u64),
    /// The answer to [`ToHome::Drain`].
    Drained,
    /// What is offered is to go on to another node, and the ends in it are said so that only this one can use them. An offer of a value is over, and is made
    /// again; a choice's stands.
    Onward(Ticket),
    /// Receivers of what is offered here are at other nodes. From here on values of so many bytes or more are to be [offered unread](Head::Unread). Zero: none any more.
    Unread(u64),
}

/// What a sending half says to the home of its channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToHome {
    /// There is a sending half here.
    Attach(Declaration),
    /// A value, or its first piece: `total` bytes in all.
    Value {
        /// What the value is for.
        head: Head,
        /// How long the whole value is, in bytes.
        total: u64,
        /// As much of it as goes with the head.
        first: Bytes,
    },
    /// A choice offers something. The value is asked for by [`FromHome::Reserve`].
    OfferChoice(Ticket, ChoiceId),
    /// The offer is asked back.
    Withdraw(Ticket),
    /// The reserved choice would like to decide for another branch.
    Revoke(Ticket),
    /// How the sending half ended the channel, or that it is gone.
    Ended(End),
    /// The sender came to this node in a message, and is used; the number counts its moves.
    Take(u64),
    /// Nothing more comes from here: the answer to [`FromHome::Moving`].
    Quiet,
    /// Has all arrived that was said before this? [`FromHome::Drained`] answers.
    Drain,
    /// From the old home to the new one: the channel, and behind it the values of its buffer.
    State(Moved),
}

/// What a value is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// A send offers it.
    Offer(Ticket),
    /// A send offers a value that stays where it is. What comes here says where it can be [read](Frame::Read), by whatever node it goes on to.
    Unread(Ticket),
    /// It was asked for by [`FromHome::Reserve`].
    Grant(Ticket, Request),
    /// The same, and the value is [unread](Self::Unread).
    GrantUnread(Ticket, Request),
    /// It was sent on a credit.
    Sent,
}

/// What a channel was poisoned with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Poison {
    /// How strong it is: 255 is full strength, which nothing is immune to.
    pub strength: u8,
    /// Why.
    pub reason: String,
}

/// How a channel ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The end was dropped.
    Gone,
    /// The channel was retired.
    Retired,
    /// The channel was poisoned. From a sending half, if not of full strength: it is to be, unless its home is immune to that.
    Poisoned(Poison),
    /// The end was lost with a node, or on its way.
    Lost,
}

/// What a home grants to a sending half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// So many offers may stand at once.
    pub window: u32,
    /// So many values may be [`Sent`](Head::Sent) at first.
    pub credits: u32,
    /// The largest encoded value, in bytes.
    pub value_max: u64,
}

/// Why an offer failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The receiver is gone, or the channel was retired.
    Closed,
    /// The channel was poisoned.
    Poisoned(Poison),
    /// The policy refused it.
    Refused,
    /// A later sender pushed it out of the queue.
    Expired,
    /// It would have had to wait.
    WouldBlock,
    /// It is larger than the home allows.
    TooLarge {
        /// The limit, in bytes.
        max: u64,
    },
    /// What arrived is no value of the receiver's type.
    Undecodable(String),
    /// The receive is in the same choice as the send.
    OwnChannel,
    /// It had gone on from there to another node, which is lost: nobody knows whether it was received.
    Unknown,
    /// It is [unread](Head::Unread), and could not be read.
    Unread,
}

/// Why an attachment was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// There is no such channel here (any more).
    NoSuchChannel,
    /// Another node has this unshared end.
    Occupied,
    /// The two declarations do not fit: the home's.
    Mismatch(Declaration),
    /// The node has no room for another channel.
    Full,
}

/// Which face of a named channel or bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Face {
    /// A channel's sender.
    Sender,
    /// A channel's receiver.
    Receiver,
    /// A bundle's client.
    Client,
    /// A bundle's server.
    Server,
    /// A receiver of a fresh bundle for every client.
    Acceptor,
}

/// What the holder of a face says of the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Expected {
    /// Nothing.
    Unknown,
    /// It is held by one.
    Unshared,
    /// It may be held by many.
    Shared,
}

/// What the holder of a face has declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declaration {
    /// Which face it is.
    pub face: Face,
    /// Whether many may hold it.
    pub shared: bool,
    /// What it expects of the other face.
    pub expects: Expected,
    /// What the messages look like, as [`Schema::encode`](dunlin_schema::Schema::encode) writes it; empty if that is not known.
    pub schema: Bytes,
}

/// How far a declared end has come, as its own node knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// No server of names has admitted it.
    New,
    /// One has, and it may still be joined.
    Known,
    /// It belongs to this channel for good.
    Joined(ChannelId),
}

/// What a server of names has only so much room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Room {
    /// Declarations of one node.
    Declarations,
    /// Names.
    Names,
    /// Bytes of the names and schemas of one node.
    Bytes,
    /// Names of one source, now that three quarters of all are taken: see [`has_place`](crate::source::has_place).
    Share,
    /// Bytes that the node which serves the names keeps for others in all: [`Config::held_max`](crate::Config::held_max).
    Memory,
}

/// Messages of the name service: between any node and one that serves names. `names` has what they mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Names {
    /// A face is here, under this name.
    Declare {
        /// The declarer's number for it.
        number: u64,
        /// Printable ASCII without `/`.
        name: String,
        /// Identifies the channel or bundle, if this face is its home.
        channel: ChannelId,
        /// The face.
        face: Declaration,
        /// How far it has come, if it was declared before, here or elsewhere.
        status: Status,
    },
    /// A declaration is taken back.
    Undeclare {
        /// Its number.
        number: u64,
    },
    /// The other face has been found.
    Found {
        /// The number of the declaration that this answers.
        number: u64,
        /// Who has the other face.
        partner: Life,
        /// Where that node can be dialled.
        addresses: Vec<String>,
        /// Identifies the channel or bundle.
        channel: ChannelId,
        /// The other face.
        face: Declaration,
    },
    /// The declaration does not fit what is there. If it is joined already, it goes on, here too: it has come second.
    Refused {
        /// Its number.
        number: u64,
        /// What is there instead.
        there: Declaration,
        /// The node that has it.
        holder: Life,
        /// Where that node can be dialled.
        addresses: Vec<String>,
    },
    /// A declaration of the other face has been refused, since it does not fit this one, which stands as
    /// before.
    Unfit {
        /// The number of the declaration that stands.
        number: u64,
        /// What was refused.
        refused: Declaration,
        /// The node that had declared it.
        by: Life,
        /// Where that node can be dialled.
        addresses: Vec<String>,
    },
    /// The name is not one.
    BadName {
        /// The number of the declaration.
        number: u64,
    },
    /// There is no room for the declaration.
    Full {
        /// Its number.
        number: u64,
        /// What there is no room for.
        room: Room,
        /// How much there is.
        max: u64,
    },
    /// The declaration is admitted; nobody has been found.
    Waiting {
        /// Its number.
        number: u64,
    },
    /// To a home: a node that was found declares the other face no more. A home that is not joined declares itself again.
    Gone {
        /// The number of the home's declaration.
        number: u64,
        /// Who was found.
        partner: Life,
    },
    /// A client of an acceptor introduces itself: its bundle has this identity.
    Guest {
        /// The acceptor's.
        acceptor: ChannelId,
        /// The fresh bundle's.
        guest: ChannelId,
    },
    /// This node does not serve the application's names any more: somebody else does, who has to be looked for.
    Elsewhere,
}

impl Head {
    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::Offer(_) | Self::Unread(_) => Kind::Offer,
            Self::Grant(..) | Self::GrantUnread(..) => Kind::Grant,
            Self::Sent => Kind::Sent,
        }
    }
}

impl Declaration {
    /// Whether it can be sent.
    ///
    /// # Errors
    /// [`WireError::TooLong`] with both numbers, if the schema is longer than [`limits::SCHEMA`].
    pub fn check(&self) -> Result<(), WireError> {
        fits("a schema", self.schema.len(), limits::SCHEMA)
    }
}

impl Names {
    /// Whether it can be sent.
    ///
    /// # Errors
    /// [`WireError`], which names the field that is too long, with both numbers.
    pub fn check(&self) -> Result<(), WireError> {
        match self {
            Self::Declare { name, face, .. } => {
                fits("a name", name.len(), limits::NAME)?;
                face.check()
            }
            Self::Found { addresses, face, .. } => {
                check_addresses(addresses)?;
                face.check()
            }
            Self::Refused { there, addresses, .. } => {
                check_addresses(addresses)?;
                there.check()
            }
            Self::Unfit { refused, addresses, .. } => {
                check_addresses(addresses)?;
                refused.check()
            }
            Self::Undeclare { .. }
            | Self::BadName { .. }
            | Self::Guest { .. }
            | Self::Full { .. }
            | Self::Waiting { .. }
            | Self::Gone { .. }
            | Self::Elsewhere => Ok(()),
        }
    }
}

pub(crate) fn fits(what: &'static str, bytes: usize, bytes_max: usize) -> Result<(), WireError> {
    if bytes <= bytes_max {
        return Ok(());
    }
    Err(WireError::TooLong { what, bytes: bytes as u64, bytes_max: bytes_max as u64 })
}

/// What the reader of a list of addresses will insist on.
pub(crate) fn check_addresses(addresses: &[String]) -> Result<(), WireError> {
    if addresses.len() > limits::ADDRESSES {
        return Err(WireError::Invalid { what: "a count of addresses", value: addresses.len() as u64 });
    }
    addresses.iter().try_for_each(|address| fits("an address", address.len(), limits::ADDRESS))
}

impl Frame {
    /// The channel that it speaks of.
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
            | Self::Memory(_) => None,
        }
    }

    /// Which way the frame takes.
    pub fn lane(&self) -> Lane {
        match self {
            Self::Heartbeat | Self::Ack { .. } | Self::Confirm { .. } => Lane::Moment,
            Self::Relay(Relay::Bytes { stream, .. } | Relay::End { stream }) => Lane::Relayed(*stream),
            // A cut follows the pieces that have been written, and comes before all that its channel says next: control does both.
            Self::Goodbye
            | Self::FromHome(..)
            | Self::Travel(..)
            | Self::Names(_)
            | Self::Read(..)
            | Self::Relay(_)
            | Self::Memory(_)
            | Self::Cut(_) => Lane::Control,
            Self::ToHome(channel, _) | Self::More(channel, _) => Lane::Channel(*channel),
        }
    }

    /// Whether the frame has a number, and is sent again after a socket was lost.
    pub fn is_numbered(&self) -> bool {
        self.lane() != Lane::Moment
    }
}
