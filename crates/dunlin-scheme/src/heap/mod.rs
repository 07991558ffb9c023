//! The heap of a process: words, objects made of them, and the collector.
//!
//! - [`word`]: what the 64 bits of a value mean;
//! - [`object`]: the kinds of objects, and how their fields lie;
//! - [`collect`]: moves what is alive.
//!
//! A heap is one vector of words, and a pointer is an index into it, so the module needs no `unsafe`. Old
//! objects come first, young ones follow. An object never changes once it is made, except for cells: so old
//! objects point to old ones only, and no write needs a barrier but that of a cell.

pub(crate) mod collect;
pub(crate) mod object;
pub(crate) mod word;

pub(crate) use collect::Heap;
pub(crate) use object::Tag;
pub(crate) use word::Word;
