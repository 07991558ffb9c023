//! How values become bytes, and bytes values.
//!
//! Nothing here is trusted: neither the bytes, which come from the network, nor the `Serialize` and
//! `Deserialize` of messages, which are a user's code. Whatever these do, the result is a value or a typed
//! error.

#[cfg(test)]
mod tests;

use std::any::{Any, TypeId};

use bytes::Bytes;
use dunlin_core::Portable;
pub(super) use dunlin_core::carrier::catch;
use dunlin_core::carrier::{DEPTH_MAX, Failure, Format, Scratch, Shape, Sink, Value, Write, kept, read_value};

/// How the messages of a channel are encoded.
///
/// Both encodings nest at most 256 levels deep: one for each struct, tuple, sequence, map, `Some`, and enum
/// variant with content. (A type so large that fewer levels fill a megabyte of the stack may nest less deep:
/// that happens in debug builds, from about a kilobyte up.) A byte string, such as a field of type
/// `bytes::Bytes` or one with `#[serde(with = "serde_bytes")]`, is written as it is, in one piece. A message
/// that *is* a [`Bytes`] is not encoded at all, and not copied if it is of 2 KiB or more: whatever is kept of
/// it then keeps the buffer of up to 256 KiB in which it arrived. A message that is a `Vec<u8>` travels as
/// its bytes, so either end may use either type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Encoding {
    /// CBOR (RFC 8949), with the names of fields and variants.
    ///
    /// Programs of different age understand each other: the reader skips a field that it does not know, and a
    /// field that the writer did not know may be missing if it is an `Option` or has `#[serde(default)]`. A
    /// number may become wider, and a value an `Option` of it. Any other change is
    /// [refused](super::NameError::Mismatch) when the second end is declared. An `Option<Option<T>>` loses a
    /// level: `Some(None)` arrives as `None`, and so does `Some(N(None))` of a newtype
    /// `struct N(Option<u8>)`. [`Compact`](Self::Compact) keeps it.
    #[default]
    Cbor,
    /// postcard: values only, without names. Smaller, and faster.
    ///
    /// Both sides must have the same type, with fields of the same names and kinds in the same order: any
    /// difference is [refused](super::NameError::Mismatch) when the second end is declared. Types that must
    /// inspect the bytes to know what they are do not work: `untagged` and internally tagged enums,
    /// `flatten`, `skip_serializing_if`, `serde_json::Value`. A message may hold at most about 65,000
    /// elements of sequences and maps that have no content, such as those of a `Vec<()>`.
    Compact,
}

impl Encoding {
    /// The number that stands for it between nodes.
    pub(super) fn code(self) -> u8 {
        match self {
            Self::Cbor => 0,
            Self::Compact => 1,
        }
    }

    pub(super) fn format(self) -> Format {
        match self {
            Self::Cbor => Format::Cbor,
            Self::Compact => Format::Postcard,
        }
    }

    pub(super) fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Cbor),
            1 => Some(Self::Compact),
            _ => None,
        }
    }
}

/// Why a value was not encoded. The value is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EncodeError {
    /// The message is larger than the limit.
    #[error("the message is {bytes} bytes, and the limit is {bytes_max}")]
    TooLarge {
        /// The size that the message would take.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// The message nests too deep.
    #[error("the message nests too deep: {DEPTH_MAX} levels at most, and a megabyte of stack")]
    TooDeep,
    /// Its `Serialize`, or the encoding, failed.
    #[error("the message cannot be written: {0}")]
    Failed(String),
    /// Its `Serialize` panicked.
    #[error("writing the message panicked: {0}")]
    Panicked(String),
}

/// Why bytes were not decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DecodeError {
    /// The message nests too deep.
    #[error("the message nests too deep at byte {at}: {DEPTH_MAX} levels at most, and a megabyte of stack")]
    TooDeep {
        /// How many bytes had been read.
        at: usize,
    },
    /// The bytes are not a value of the type.
    #[error("the message cannot be read at byte {at}: {text}")]
    Invalid {
        /// How many bytes had been read.
        at: usize,
        /// What is wrong there.
        text: String,
    },
    /// More bytes follow the value.
    #[error("the message ends at byte {at}, and {bytes} more follow")]
    Trailing {
        /// Where the value ends.
        at: usize,
        /// How many bytes follow.
        bytes: usize,
    },
    /// The type's `Deserialize`, or the drop of a value that was discarded, panicked.
    #[error("reading the message panicked: {0}")]
    Panicked(String),
}

/// Only the bytes: the last message in a read buffer of sockets would otherwise keep that buffer.
fn owned(bytes: Bytes) -> Vec<u8> {
    let mut bytes = Vec::from(bytes);
    if bytes.capacity() > bytes.len() + bytes.len() / 8 {
        bytes.shrink_to_fit();
    }
    bytes
}

/// Whether messages of this shape are bytes, which are not encoded. Serde would encode a `Vec<u8>` number by
/// number.
pub(crate) fn is_raw(shape: Shape) -> bool {
    shape.is::<Bytes>() || shape.is::<Vec<u8>>()
}

/// Encodes a message. [`Bytes`] are passed on as they are, a `Vec<u8>` as its bytes; anything else is
/// preceded by a zero byte, which marks it as having no ends.
///
/// # Errors
/// See [`EncodeError`]. A value that is too large is measured to its end, but not stored.
pub(crate) fn encode(value: &Value, encoding: Encoding, bytes_max: u64) -> Result<Bytes, EncodeError> {
    if let Some(bytes) = value.downcast_ref::<Bytes>() {
        check_size(bytes.len() as u64, bytes_max)?;
        return Ok(bytes.clone());
    }
    if let Some(bytes) = value.downcast_ref::<Vec<u8>>() {
        check_size(bytes.len() as u64, bytes_max)?;
        return Ok(Bytes::copy_from_slice(bytes));
    }
    let mut buffer = Scratch::take();
    buffer.push(0);
    encode_into(&mut buffer, value, encoding, bytes_max)?;
    Ok(buffer.into_bytes())
}

/// Encodes a message for a mailbox, which has no ends. [`Bytes`] and a `Vec<u8>` are passed on as they are.
///
/// # Errors
/// As of [`encode`]; an end in the message is one.
pub(crate) fn encode_post<T: Write + Any>(value: &T, encoding: Encoding, bytes_max: u64) -> Result<Bytes, EncodeError> {
    let any: &dyn Any = value;
    let raw = any.downcast_ref::<Bytes>().map(|bytes| &bytes[..]);
    if let Some(raw) = raw.or_else(|| any.downcast_ref::<Vec<u8>>().map(|bytes| &bytes[..])) {
        check_size(raw.len() as u64, bytes_max)?;
        return Ok(Bytes::copy_from_slice(raw));
    }
    let mut buffer = Scratch::take();
    encode_into(&mut buffer, value, encoding, bytes_max)?;
    Ok(buffer.into_bytes())
}

/// Decodes a message for a mailbox.
///
/// # Errors
/// See [`DecodeError`].
pub(crate) fn decode_post<T: Portable>(bytes: &Bytes, encoding: Encoding) -> Result<T, DecodeError> {
    let raw: Option<Box<dyn Any>> = match TypeId::of::<T>() {
        id if id == TypeId::of::<Bytes>() => Some(Box::new(kept(bytes))),
        id if id == TypeId::of::<Vec<u8>>() => Some(Box::new(owned(bytes.clone()))),
        _ => None,
    };
    match raw.and_then(|raw| raw.downcast::<T>().ok()) {
        Some(raw) => Ok(*raw),
        None => read_all(read_value::<T>, bytes, encoding),
    }
}

/// Encodes a value only to find the ends in it.
pub(crate) fn survey(value: &impl Write) -> Result<(), EncodeError> {
    encode_into(&mut Scratch::take(), value, Encoding::Compact, u64::MAX)
}

/// How many bytes a value is encoded in, without the byte before it.
#[cfg(test)]
pub(super) fn length(value: &impl Write, encoding: Encoding) -> usize {
    let mut buffer = Scratch::take();
    encode_into(&mut buffer, value, encoding, u64::MAX).unwrap();
    buffer.len()
}

/// Decodes a message of this shape, from all of the bytes. [`Bytes`] are [passed on](kept) as they are, if
/// they are not short; of anything else the first byte is skipped.
///
/// # Errors
/// See [`DecodeError`].
pub(crate) fn decode(shape: Shape, bytes: Bytes, encoding: Encoding) -> Result<Value, DecodeError> {
    if shape.is::<Vec<u8>>() {
        return Ok(shape.wrap(owned(bytes)).unwrap_or_else(|_| unreachable!("it is of this shape")));
    }
    if shape.is::<Bytes>() {
        return Ok(shape.wrap(kept(&bytes)).unwrap_or_else(|_| unreachable!("it is of this shape")));
    }
    shape.wrap(bytes).or_else(|bytes| {
        read_all(|format, bytes| shape.read(format, bytes), bytes.get(1..).unwrap_or_default(), encoding)
    })
}

fn encode_into(
    buffer: &mut Vec<u8>,
    value: &impl Write,
    encoding: Encoding,
    bytes_max: u64,
) -> Result<(), EncodeError> {
    let mut sink = Sink::new(buffer, bytes_max);
    write(value, encoding, &mut sink)?;
    check_size(sink.bytes(), bytes_max)
}

fn check_size(bytes: u64, bytes_max: u64) -> Result<(), EncodeError> {
    if bytes > bytes_max { Err(EncodeError::TooLarge { bytes, bytes_max }) } else { Ok(()) }
}

fn write(value: &impl Write, encoding: Encoding, sink: &mut Sink<'_>) -> Result<(), EncodeError> {
    match catch(|| value.write(encoding.format(), sink)) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(Failure::TooDeep)) => Err(EncodeError::TooDeep),
        Ok(Err(Failure::Text(text))) => Err(EncodeError::Failed(text)),
        Err(text) => Err(EncodeError::Panicked(text)),
    }
}

/// Decodes a value that takes all of the bytes, by a function that returns how many it has left.
fn read_all<T>(
    read: impl FnOnce(Format, &[u8]) -> (Result<T, Failure>, usize),
    bytes: &[u8],
    encoding: Encoding,
) -> Result<T, DecodeError> {
    // A discarded value is the user's as well, so it is dropped within `catch`.
    let read = || {
        let (value, rest) = read(encoding.format(), bytes);
        let at = bytes.len() - rest;
        match value {
            Ok(value) if rest == 0 => Ok(value),
            Ok(_) => Err(DecodeError::Trailing { at, bytes: rest }),
            Err(Failure::TooDeep) => Err(DecodeError::TooDeep { at }),
            Err(Failure::Text(text)) => Err(DecodeError::Invalid { at, text }),
        }
    };
    catch(read).unwrap_or_else(|text| Err(DecodeError::Panicked(text)))
}
