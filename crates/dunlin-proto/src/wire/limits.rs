//! Limits of what is read from a network, in bytes unless said otherwise.

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
/// So many bytes of values may be sent on a new connection unannounced. What a node gives beyond that it
/// says ([`Credit`](super::Memory::Credit)).
pub const CREDIT: u64 = 256 << 10;
/// What a value takes of the credit beside its bytes.
pub const VALUE: u64 = 128;
/// So many values of a connection may be announced at once.
pub const ANNOUNCED: usize = 1 << 16;
/// So many bytes may be offered on one channel and not be received, if it is more than one value. Those of at
/// most [`AHEAD_SMALL`] do not count.
pub const AHEAD: u64 = 64 << 10;
/// See [`AHEAD`].
pub const AHEAD_SMALL: u64 = 2 << 10;
/// The number of a connection's life: no honest one comes near it.
pub const RUN: u64 = 1 << 48;
