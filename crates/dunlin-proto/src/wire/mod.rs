//! What travels between two nodes, byte by byte: `docs/wire.md` is this folder in prose.
//!
//! [`handshake`] opens a socket; after it, a socket carries [`Frame`]s. Each file has what is said of one subject:
//! the kinds of its frames, their fields, and beside them how they are written and read, over `fields.rs`.
//! [`codec`] finds frames in what has arrived.

pub mod codec;
mod declaration;
mod end;
mod error;
mod fields;
mod frame;
pub mod handshake;
mod home;
pub mod limits;
mod memory;
mod names;
mod relay;
mod sender;
mod travel;
mod value;

pub use declaration::{Declaration, Expected, Face};
pub use end::{End, Failure, Poison};
pub(crate) use fields::check_addresses;
pub use frame::{Frame, Lane};
pub use home::{FromHome, Rejection, Terms};
pub use memory::Memory;
pub use names::{Names, Room, Status};
pub use relay::{NoDial, NoRelay, Relay};
pub use sender::{Moved, ToHome};
pub use travel::{Travel, Which};
pub use value::{Head, Kind, Read};

/// The newest protocol version this crate speaks, and the oldest.
pub const VERSIONS: (u16, u16) = (6, 6);
