//! Values to bytes and back, in the two formats of the carriers, with a bound on their depth and their size.
//!
//! This is here, and not in a carrier, because only the core knows the types of messages. So each type is
//! compiled for each format, and no element of a `Vec` is read or written through function pointers, or boxed
//! on its way. That was measured: `docs/notebook/pony.md`, *Processor time of a send*.
//!
//! This module trusts no input. But a user's `Serialize` or `Deserialize` may panic, and the carrier has to
//! catch that.

mod depth;

use std::convert::Infallible;

use serde::Serialize;
use serde::de::DeserializeOwned;

use depth::{Bounded, Context};
pub use depth::{DEPTH_MAX, Failure};

/// The encoding of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// CBOR (RFC 8949), with the names of fields and variants.
    Cbor,
    /// postcard: values only.
    Postcard,
}

/// A value that can be written, also one with its type erased.
pub trait Write {
    /// Writes the value.
    ///
    /// # Errors
    /// If the value nests too deep, or its `Serialize` or the format fails.
    fn write(&self, format: Format, sink: &mut Sink<'_>) -> Result<(), Failure>;
}

impl<T: Serialize> Write for T {
    fn write(&self, format: Format, sink: &mut Sink<'_>) -> Result<(), Failure> {
        let context = Context::new(0);
        match format {
            Format::Cbor => {
                let mut serializer = cbor4ii::serde::Serializer::new(sink);
                self.serialize(Bounded::new(&mut serializer, &context))
            }
            Format::Postcard => {
                let mut serializer = postcard::Serializer { output: sink };
                self.serialize(Bounded::new(&mut serializer, &context))
            }
        }
    }
}

/// Reads a value. Also returns how many bytes are left after it, or after the error.
pub fn read_value<T: DeserializeOwned>(format: Format, bytes: &[u8]) -> (Result<T, Failure>, usize) {
    let context = Context::new(bytes.len());
    match format {
        Format::Cbor => {
            let mut deserializer = cbor4ii::serde::Deserializer::new(Source::new(bytes));
            let value = T::deserialize(Bounded::new(&mut deserializer, &context));
            let source = deserializer.into_inner();
            let value = value.map_err(|failure| if source.too_deep { Failure::TooDeep } else { failure });
            (value, source.rest.len())
        }
        Format::Postcard => {
            let mut deserializer = postcard::Deserializer::from_bytes(bytes);
            let value = T::deserialize(Bounded::new(&mut deserializer, &context));
            (value, deserializer.finalize().map_or(0, <[u8]>::len))
        }
    }
}

/// Stores the bytes written up to a limit, and counts all of them.
#[derive(Debug)]
pub struct Sink<'b> {
    buffer: &'b mut Vec<u8>,
    bytes: u64,
    bytes_max: u64,
}

impl<'b> Sink<'b> {
    /// A sink that appends to the buffer.
    pub fn new(buffer: &'b mut Vec<u8>, bytes_max: u64) -> Self {
        Self { buffer, bytes: 0, bytes_max }
    }

    /// The number of bytes written, stored or not.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        if self.bytes <= self.bytes_max {
            self.buffer.extend_from_slice(bytes);
        }
    }
}

impl cbor4ii::core::enc::Write for Sink<'_> {
    type Error = Infallible;

    #[inline]
    fn push(&mut self, bytes: &[u8]) -> Result<(), Infallible> {
        self.write(bytes);
        Ok(())
    }
}

impl postcard::ser_flavors::Flavor for &mut Sink<'_> {
    type Output = ();

    #[inline]
    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.write(bytes);
        Ok(())
    }

    #[inline]
    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.write(&[byte]);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

/// CBOR to be read. It knows how far reading came.
struct Source<'de> {
    rest: &'de [u8],
    steps_left: u32,
    too_deep: bool,
}

impl<'de> Source<'de> {
    /// cbor4ii takes up to two of its steps for one of our levels. So this bound matters only where ours does
    /// not apply: in content that is skipped unread.
    const STEPS_MAX: u32 = 2 * (DEPTH_MAX + 1);

    fn new(rest: &'de [u8]) -> Self {
        Self { rest, steps_left: Self::STEPS_MAX, too_deep: false }
    }
}

impl<'de> cbor4ii::core::dec::Read<'de> for Source<'de> {
    type Error = Infallible;

    #[inline]
    fn fill<'short>(&'short mut self, want: usize) -> Result<cbor4ii::core::dec::Reference<'de, 'short>, Infallible> {
        Ok(cbor4ii::core::dec::Reference::Long(&self.rest[..want.min(self.rest.len())]))
    }

    #[inline]
    fn advance(&mut self, n: usize) {
        self.rest = &self.rest[n.min(self.rest.len())..];
    }

    #[inline]
    fn step_in(&mut self) -> bool {
        match self.steps_left.checked_sub(1) {
            Some(left) => {
                self.steps_left = left;
                true
            }
            None => {
                self.too_deep = true;
                false
            }
        }
    }

    #[inline]
    fn step_out(&mut self) {
        self.steps_left += 1;
    }
}
