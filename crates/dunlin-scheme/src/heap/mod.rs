//! The heap of a process: words, objects made of them, and the collector.
//!
//! - [`word`]: what the 64 bits of a value mean;
//! - [`object`]: the kinds of objects, and how their fields lie;
//! - [`collect`]: moves what is alive;
//! - [`segment`]: words of messages, which processes share;
//! - `share`: the segments that a heap holds, and what of it has a copy in one; `hold`: when they change;
//! - `census`: copies out of segments that are mostly dead;
//! - `transfer`: copies between heaps.
//!
//! A heap is one vector of words, and a pointer is an index into it, so the module needs no `unsafe`. Old
//! objects come first, young ones follow. An object never changes once it is made, except for cells: so old
//! objects point to old ones only, and no write needs a barrier but that of a cell.
//!
//! Values of globals and constants lie in a second vector, the frozen segment, which all processes read, and
//! large messages in segments. An index past the heap's own words is one of these.

mod census;
pub(crate) mod collect;
mod hold;
mod mention;
pub(crate) mod object;
mod segment;
mod share;
mod transfer;
pub(crate) mod word;

pub(crate) use collect::{Heap, Space};
pub(crate) use object::Tag;
pub(crate) use segment::{Mentions, Numbers};
pub(crate) use transfer::Parcel;
pub(crate) use word::Word;
