//! Values as bytes.
//!
//! An image holds the objects that a value reaches, in the order in which they are met; sharing and cycles
//! are kept, and depth costs nothing. Code is named by the hash of its unit and the place within it, so the
//! reader must have loaded the same code; no source text is written.
//!
//! - [`write`]: a value to bytes;
//! - [`read`]: bytes to words, with limits;
//! - [`node`]: processes and tags of other programs;
//! - [`check`]: what the machine relies on, before it sees the words.
//!
//! # Format
//!
//! `DSI`, the version of the format (4), that of the code (varint); the number of units and their hashes; the
//! number of symbols and their texts; the number of programs and their numbers (8 bytes each); the number of
//! objects; each object; the value. Numbers are varints of
//! seven bits a byte, the least first. An object is its kind (0 a pair, or the tag plus one), its size
//! unless the kind tells it, and its fields. A field begins with a byte: 0 a fixnum (zigzag), 1 a character,
//! 2 a symbol, 3 a constant, 4 an object, 5 a place in code (unit, place), 6 a process, 7 a tag (program,
//! number), 8 a process that is a copy (program, number, program and number of its original), 9 an end of a
//! channel (only where the program that wrote the image reads it).

mod check;
mod node;
mod read;
mod write;

pub(crate) use node::NodeNames;
pub use read::ReadError;
pub(crate) use read::{Limits, read};
pub use write::WriteError;
pub(crate) use write::write;

/// What an image begins with.
const MAGIC: &[u8; 4] = b"DSI\x04";

/// The bytes that a field begins with.
mod field {
    pub(super) const FIXNUM: u8 = 0;
    pub(super) const CHARACTER: u8 = 1;
    pub(super) const SYMBOL: u8 = 2;
    pub(super) const CONSTANT: u8 = 3;
    pub(super) const OBJECT: u8 = 4;
    pub(super) const CODE: u8 = 5;
    pub(super) const PROCESS: u8 = 6;
    pub(super) const TAG: u8 = 7;
    pub(super) const COPY: u8 = 8;
    pub(super) const END: u8 = 9;
}
