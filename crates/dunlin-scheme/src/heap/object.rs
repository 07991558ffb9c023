//! The kinds of objects, and how their fields lie.
//!
//! A pair is two words. Any other object begins with a header: eight bits of kind, and the number of words
//! that follow. The words of "raw" kinds are bits, those of others are values.

use super::word::{HEADER, TAG_MASK, Word};

/// The kinds of objects with a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Tag {
    /// Raw: the bits of a flonum.
    Flonum,
    /// Raw: sign, then words, the least first.
    Bignum,
    /// Raw: length in bytes and characters, then UTF-8.
    String,
    /// Raw: length, then bytes.
    Bytes,
    /// Entry point as a fixnum, then the values of free variables.
    Closure,
    /// Items.
    Vector,
    /// Numerator, denominator.
    Ratio,
    /// Results that are not exactly one.
    Values,
    /// The value of a variable of `letrec` or a promise, written once.
    Cell,
    /// Frame of a caller (a frame or `()`), return point as a fixnum, registers.
    Frame,
    /// Frame, marks.
    Continuation,
    /// Type, fields.
    Record,
    /// Name, vector of names of fields, and a number made of both that tells it from others.
    RecordType,
    /// Kind (a symbol), message, irritants, and the place as a fixnum.
    Condition,
    /// Default, converter, and a number that tells it from others.
    Parameter,
    /// Its process, or a fixnum for a port that every program has; its kind.
    Port,
    /// Winders, handlers, parameters.
    Marks,
    /// What it evaluates in.
    Environment,
}

impl Tag {
    const ALL: [Self; 18] = [
        Self::Flonum,
        Self::Bignum,
        Self::String,
        Self::Bytes,
        Self::Closure,
        Self::Vector,
        Self::Ratio,
        Self::Values,
        Self::Cell,
        Self::Frame,
        Self::Continuation,
        Self::Record,
        Self::RecordType,
        Self::Condition,
        Self::Parameter,
        Self::Port,
        Self::Marks,
        Self::Environment,
    ];

    /// The kind of this number.
    pub(crate) fn of_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Whether the words are bits, not values.
    pub(crate) const fn is_raw(self) -> bool {
        matches!(self, Self::Flonum | Self::Bignum | Self::String | Self::Bytes)
    }
}

/// The header of an object of `size` words after it.
pub(crate) const fn header(tag: Tag, size: usize) -> Word {
    ((size as u64) << 16) | ((tag as u64) << 8) | HEADER
}

/// The kind that a header tells.
pub(crate) fn tag_of(header: Word) -> Tag {
    Tag::of_number((header >> 8) as u8).expect("a header has one of the kinds")
}

/// Whether the header is one of this kind.
pub(crate) const fn is_header_of(header: Word, tag: Tag) -> bool {
    header as u16 == ((tag as u16) << 8) | HEADER as u16
}

/// The number of words after a header.
pub(crate) const fn size_of(header: Word) -> usize {
    (header >> 16) as usize
}

/// Whether the words after this header are bits.
pub(crate) fn is_raw_header(header: Word) -> bool {
    tag_of(header).is_raw()
}

/// The words of the object at `at`.
pub(super) fn size_at(words: &[Word], at: usize) -> usize {
    if words[at] & TAG_MASK == HEADER { 1 + size_of(words[at]) } else { 2 }
}

/// The places of the values of the object at `at`, and where the next begins.
pub(super) fn fields_at(words: &[Word], at: usize) -> (std::ops::Range<usize>, usize) {
    let first = words[at];
    if first & TAG_MASK != HEADER {
        return (at..at + 2, at + 2);
    }
    let end = at + 1 + size_of(first);
    (if is_raw_header(first) { end..end } else { at + 1..end }, end)
}
