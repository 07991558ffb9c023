//! Limits of what is read from a network, in bytes unless stated otherwise.

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
/// The body of a frame without a piece of a value. A socket may hold this much of an incomplete frame here;
/// of a longer frame, only a value that is charged.
pub const FRAME: usize = 64 << 10;
/// A piece of a value.
pub const CHUNK: usize = 1 << 20;
/// A reason, or another text for people.
pub const TEXT: usize = 4096;
/// A reply in one frame. A longer one, or one with ends in it, comes as a value.
pub const REPLY: usize = 1 << 10;
/// A name of an end.
pub const NAME: usize = 255;
/// A schema.
pub const SCHEMA: usize = dunlin_schema::limits::BYTES;
/// A piece of a relayed socket.
pub const RELAYED_PIECE: usize = FRAME - 10;
/// How many bytes of a relayed socket may be in flight in one direction at first...
pub const RELAYED: usize = 256 << 10;
/// ... and how many more each [`Credit`](super::Relay::Credit) allows.
pub const RELAY_CREDIT: usize = 64 << 10;
/// How many bytes of values a new connection may carry unannounced. Frames announce any further credit
/// ([`Credit`](super::Memory::Credit)).
pub const CREDIT: u64 = 256 << 10;
/// What a value takes of the credit besides its bytes.
pub const VALUE: u64 = 128;
/// How many values of a connection may be announced at once.
pub const ANNOUNCED: usize = 1 << 16;
/// How many offered bytes may be unreceived on one channel, if they are more than one value. Values of at
/// most [`AHEAD_SMALL`] do not count.
pub const AHEAD: u64 = 64 << 10;
/// See [`AHEAD`].
pub const AHEAD_SMALL: u64 = 2 << 10;
/// A message for a mailbox: with [what it takes besides](VALUE), it is within what a node may send to a
/// mailbox before it has heard from it.
pub const POST: usize = (POST_ROOM - VALUE) as usize;
/// How many bytes a node may have sent to one mailbox of another node without their having been received...
pub const POST_ROOM: u64 = 64 << 10;
/// ... and how many messages, before the node of the mailbox has allowed more.
pub const POSTS_FIRST: u32 = 16;
/// How many watches of processes one node may have at another one.
pub const WATCHES: usize = 1 << 16;
/// The payload of an exit, with its schema.
pub const EXIT_PAYLOAD: usize = 16 << 10;
/// The greatest number of a connection's life: no honest one comes near it.
pub const RUN: u64 = 1 << 48;
