//! The parts of frames: how their kinds are declared, and how their fields are written and read.

use std::ops::Range;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::error::WireError;
use super::limits;
use crate::id::{ChannelId, Incarnation, Life, NodeId};

/// Pieces of values up to this size are copied behind their heads; larger ones are not copied.
const INLINE: usize = 2048;

/// Frames with one subject, each with its kind. A kind is known before the body is read, so `read` gets it.
pub(super) trait Wire: Sized {
    /// All kinds of these frames.
    const KINDS: &'static [(u8, Facts)];

    /// Writes the kind and the body, except for a channel that precedes it.
    fn write<'a>(&'a self, w: &mut Writer<'a>);

    /// Reads what [`write`](Self::write) writes behind the kind.
    fn read(kind: u8, r: &mut Reader<'_>) -> Result<Self, WireError>;
}

/// A part of a frame with a form of its own.
pub(crate) trait Field: Sized {
    fn write(&self, w: &mut Writer<'_>);
    fn read(r: &mut Reader<'_>) -> Result<Self, WireError>;
}

/// The facts about a frame that are needed before its body is read.
#[derive(Clone, Copy)]
pub(super) struct Facts {
    /// The maximum length of the body.
    pub(super) longest: u32,
    /// It answers a frame of the other node, now or later, rather than an action of processes here.
    pub(super) answer: bool,
    /// It may need a comparison of schemas, which is slow.
    pub(super) compares: bool,
}

impl Facts {
    pub(super) const fn of(longest: usize) -> Self {
        Self { longest: longest as u32, answer: false, compares: false }
    }
}

/// Bodies whose length takes one byte.
pub(super) const SHORT: usize = 127;

/// Declares kinds of frames: for each its number, the maximum length of its body, and its other facts.
macro_rules! kinds {
    ($($name:ident = $number:literal, $longest:expr $(, $fact:ident)*;)*) => {
        pub(super) mod kind {
            #[allow(unused_imports, reason = "not every subject has frames of each length")]
            use crate::wire::{fields::{Facts, SHORT}, limits::{CHUNK, FRAME, SIGNATURE}};

            $(pub(in crate::wire) const $name: u8 = $number;)*
            pub(in crate::wire) const KINDS: &[(u8, Facts)] =
                &[$(($number, Facts { $($fact: true,)* ..Facts::of($longest) })),*];
        }
    };
}

/// Fields of one byte, which selects one of these variants: the first is 0.
macro_rules! byte_field {
    ($field:ident, $what:literal, $($one:ident),*) => {
        impl $crate::wire::fields::Field for $field {
            fn write(&self, w: &mut $crate::wire::fields::Writer<'_>) {
                w.byte(*self as u8);
            }

            fn read(r: &mut $crate::wire::fields::Reader<'_>) -> Result<Self, $crate::wire::error::WireError> {
                r.one_of($what, &[$(Self::$one),*])
            }
        }
    };
}
pub(super) use byte_field;
pub(super) use kinds;

/// Writes frames, field by field. The length of a body is known at its end, so it is written last.
pub(crate) struct Writer<'a> {
    out: &'a mut BytesMut,
    /// Where the frame begins.
    at: usize,
    piece: Option<&'a Bytes>,
}

impl<'a> Writer<'a> {
    /// Nearly all bodies are short enough for a length of one byte.
    const HEAD: usize = 2;

    /// Begins a frame at the end of `out`.
    #[inline]
    pub(super) fn frame(out: &'a mut BytesMut) -> Self {
        let at = out.len();
        out.put_slice(&[0; Self::HEAD]);
        Self { out, at, piece: None }
    }

    /// Begins a frame on a channel.
    #[inline]
    pub(super) fn on(out: &'a mut BytesMut, channel: ChannelId) -> Self {
        let at = out.len();
        let mut head = [0; Self::HEAD + 16];
        head[Self::HEAD..].copy_from_slice(&channel.0.to_be_bytes());
        out.put_slice(&head);
        Self { out, at, piece: None }
    }

    /// Writes fields that belong to no frame of this module.
    pub(crate) fn fields(out: &'a mut BytesMut) -> Self {
        Self { at: out.len(), out, piece: None }
    }

    /// Ends the frame. The returned bytes follow it, uncopied.
    #[inline]
    pub(super) fn end(self) -> Option<Bytes> {
        let length = self.out.len() - self.at - Self::HEAD + self.piece.map_or(0, Bytes::len);
        if length <= SHORT {
            self.out[self.at + 1] = length as u8;
        } else {
            lengthen(self.out, self.at + 1, length);
        }
        tail(self.out, self.piece?)
    }

    #[inline]
    pub(super) fn kind(&mut self, kind: u8) -> &mut Self {
        self.out[self.at] = kind;
        self
    }

    #[inline]
    pub(super) fn say(&mut self, said: &'a impl Wire) -> &mut Self {
        said.write(self);
        self
    }

    #[inline]
    pub(super) fn byte(&mut self, byte: u8) -> &mut Self {
        self.out.put_u8(byte);
        self
    }

    #[inline]
    pub(super) fn number(&mut self, n: u64) -> &mut Self {
        number(self.out, n);
        self
    }

    pub(super) fn fixed64(&mut self, n: u64) -> &mut Self {
        self.out.put_u64(n);
        self
    }

    #[inline]
    pub(super) fn id(&mut self, id: u128) -> &mut Self {
        self.out.put_u128(id);
        self
    }

    pub(super) fn string(&mut self, text: &[u8]) -> &mut Self {
        string(self.out, text);
        self
    }

    /// Writes a text for people, cut at its limit: a shorter reason is better than a connection that fails
    /// because of it.
    pub(super) fn clipped(&mut self, text: &str) -> &mut Self {
        let end = (0..=limits::TEXT.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
        self.string(&text.as_bytes()[..end.unwrap_or(0)])
    }

    pub(super) fn life(&mut self, life: Life) -> &mut Self {
        self.out.put_u128(life.node.0);
        self.out.put_u64(life.incarnation.0);
        self
    }

    pub(super) fn addresses(&mut self, addresses: &[String]) -> &mut Self {
        self.number(addresses.len() as u64);
        addresses.iter().for_each(|address| string(self.out, address.as_bytes()));
        self
    }

    #[inline]
    pub(super) fn put(&mut self, field: &impl Field) -> &mut Self {
        field.write(self);
        self
    }

    /// Writes the rest of the frame.
    #[inline]
    pub(super) fn piece(&mut self, piece: &'a Bytes) -> &mut Self {
        self.piece = Some(piece);
        self
    }
}

/// Writes a length of more than one byte where one byte was reserved.
fn lengthen(out: &mut BytesMut, at: usize, length: usize) {
    let (end, more) = (out.len(), number_len(length as u64) - 1);
    out.put_bytes(0, more);
    out.copy_within(at + 1..end, at + 1 + more);
    let mut rest = length;
    for byte in &mut out[at..at + more] {
        *byte = rest as u8 | 0x80;
        rest >>= 7;
    }
    out[at + more] = rest as u8;
}

pub(super) fn tail(out: &mut BytesMut, piece: &Bytes) -> Option<Bytes> {
    if piece.len() > INLINE {
        return Some(piece.clone());
    }
    out.put_slice(piece);
    None
}

pub(super) fn number(out: &mut BytesMut, mut n: u64) {
    while n >= 0x80 {
        out.put_u8(n as u8 | 0x80);
        n >>= 7;
    }
    out.put_u8(n as u8);
}

pub(super) fn number_len(n: u64) -> usize {
    (64 - (n | 1).leading_zeros() as usize).div_ceil(7)
}

pub(super) fn string(out: &mut BytesMut, text: &[u8]) {
    number(out, text.len() as u64);
    out.put_slice(text);
}

pub(super) fn invalid(what: &'static str, value: u8) -> WireError {
    WireError::Invalid { what, value: value.into() }
}

pub(crate) fn fits(what: &'static str, bytes: usize, bytes_max: usize) -> Result<(), WireError> {
    if bytes <= bytes_max {
        return Ok(());
    }
    Err(WireError::TooLong { what, bytes: bytes as u64, bytes_max: bytes_max as u64 })
}

/// Checks what the reader of a list of addresses requires.
pub(crate) fn check_addresses(addresses: &[String]) -> Result<(), WireError> {
    if addresses.len() > limits::ADDRESSES {
        return Err(WireError::Invalid { what: "a count of addresses", value: addresses.len() as u64 });
    }
    addresses.iter().try_for_each(|address| fits("an address", address.len(), limits::ADDRESS))
}

/// Reads fields from the front; a missing or overlong field is an error. Byte strings are parts of the input,
/// not copies.
pub(crate) struct Reader<'a> {
    all: &'a Bytes,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads this part of the bytes.
    pub(super) fn new(all: &'a Bytes, part: Range<usize>) -> Self {
        Self { all, rest: &all[part] }
    }

    /// How many bytes are unread.
    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }

    fn take(&mut self, length: usize) -> Bytes {
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        self.all.slice_ref(taken)
    }

    pub(super) fn finish(&self) -> Result<(), WireError> {
        if self.rest.is_empty() { Ok(()) } else { Err(WireError::Trailing(self.rest.len())) }
    }

    pub(super) fn byte(&mut self, what: &'static str) -> Result<u8, WireError> {
        self.rest.try_get_u8().map_err(|_| WireError::Truncated(what))
    }

    #[inline]
    pub(super) fn number(&mut self, what: &'static str) -> Result<u64, WireError> {
        // Most have one byte.
        match self.rest.first() {
            Some(&byte @ 0..0x80) => {
                self.rest.advance(1);
                Ok(byte.into())
            }
            _ => self.long_number(what),
        }
    }

    fn long_number(&mut self, what: &'static str) -> Result<u64, WireError> {
        let mut n: u64 = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte(what)?;
            let part = u64::from(byte & 0x7f);
            if shift == 63 && part > 1 {
                break;
            }
            n |= part << shift;
            if byte & 0x80 == 0 {
                return if byte == 0 && shift > 0 { Err(WireError::Overlong(what)) } else { Ok(n) };
            }
        }
        Err(WireError::Invalid { what, value: u64::MAX })
    }

    pub(super) fn number32(&mut self, what: &'static str) -> Result<u32, WireError> {
        let value = self.number(what)?;
        u32::try_from(value).map_err(|_| WireError::Invalid { what, value })
    }

    pub(super) fn fixed64(&mut self, what: &'static str) -> Result<u64, WireError> {
        self.rest.try_get_u64().map_err(|_| WireError::Truncated(what))
    }

    pub(super) fn id(&mut self, what: &'static str) -> Result<u128, WireError> {
        self.rest.try_get_u128().map_err(|_| WireError::Truncated(what))
    }

    pub(super) fn channel(&mut self) -> Result<ChannelId, WireError> {
        self.id("a channel").map(ChannelId)
    }

    pub(super) fn node(&mut self) -> Result<NodeId, WireError> {
        match self.id("a node")? {
            0 => Err(invalid("a node", 0)),
            node => Ok(NodeId(node)),
        }
    }

    /// Zero marks an unknown node or incarnation: no life of a node has either.
    pub(super) fn life(&mut self) -> Result<Life, WireError> {
        let (node, incarnation) = (self.id("a node")?, self.fixed64("an incarnation")?);
        match (node, incarnation) {
            (0, _) => Err(invalid("a node", 0)),
            (_, 0) => Err(invalid("an incarnation", 0)),
            _ => Ok(Life { node: NodeId(node), incarnation: Incarnation(incarnation) }),
        }
    }

    pub(super) fn flag(&mut self, what: &'static str) -> Result<bool, WireError> {
        self.one_of(what, &[false, true])
    }

    /// Reads a byte that selects one of `all`.
    pub(super) fn one_of<T: Copy>(&mut self, what: &'static str, all: &[T]) -> Result<T, WireError> {
        let byte = self.byte(what)?;
        all.get(usize::from(byte)).copied().ok_or(invalid(what, byte))
    }

    pub(super) fn field<F: Field>(&mut self) -> Result<F, WireError> {
        F::read(self)
    }

    pub(super) fn bytes(&mut self, what: &'static str, max: usize) -> Result<Bytes, WireError> {
        let length = self.number(what)?;
        if length > max as u64 {
            return Err(WireError::TooLong { what, bytes: length, bytes_max: max as u64 });
        }
        if length > self.rest.len() as u64 {
            return Err(WireError::Truncated(what));
        }
        Ok(self.take(length as usize))
    }

    pub(super) fn text(&mut self, what: &'static str, max: usize) -> Result<String, WireError> {
        let bytes = self.bytes(what, max)?;
        std::str::from_utf8(&bytes).map(str::to_owned).map_err(|_| WireError::NotText(what))
    }

    pub(super) fn addresses(&mut self) -> Result<Vec<String>, WireError> {
        let count = self.number("a count of addresses")?;
        if count > limits::ADDRESSES as u64 {
            return Err(WireError::Invalid { what: "a count of addresses", value: count });
        }
        (0..count).map(|_| self.text("an address", limits::ADDRESS)).collect()
    }

    /// Reads the rest, which is at least one byte.
    pub(super) fn piece(&mut self) -> Result<Bytes, WireError> {
        let length = self.rest.len();
        if length == 0 {
            return Err(WireError::Truncated("a piece of a value"));
        }
        if length > limits::CHUNK {
            let (bytes, bytes_max) = (length as u64, limits::CHUNK as u64);
            return Err(WireError::TooLong { what: "a piece of a value", bytes, bytes_max });
        }
        Ok(self.take(length))
    }
}
