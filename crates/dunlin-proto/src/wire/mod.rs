//! The bytes that travel between two nodes. `docs/wire.md` describes this folder in prose.
//!
//! [`handshake`] opens a socket; after that, a socket carries [`Frame`]s. Each file has the frames of one
//! subject: their kinds, their fields, and next to these how they are written and read, on top of
//! `fields.rs`. [`codec`] finds frames in received bytes.

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
mod post;
mod relay;
mod sender;
mod signal;
mod travel;
mod value;

pub use declaration::{Declaration, Expected, Face};
pub use end::{End, Failure, Poison};
pub(crate) use fields::check_addresses;
pub use frame::{Frame, Lane};
pub use home::{FromHome, Rejection, Terms};
pub use memory::Memory;
pub use names::{Names, Room, Status};
pub use post::Post;
pub use relay::{NoDial, NoRelay, Relay};
pub use sender::{Moved, ToHome};
pub use signal::{Exit, Payload, Reason, Signal};
pub use travel::{Travel, Which};
pub use value::{Head, Kind, Read};

/// The newest and the oldest protocol version that this crate speaks.
pub const VERSIONS: (u16, u16) = (10, 10);
