//! Values as tagged words of 64 bits.
//!
//! The lowest three bits tell: `000` a fixnum of 61 bits, `001` a closure, `011` a pair, `101` another
//! object, `010` an immediate, `110` where an object has moved to, `111` the header of an object. The last
//! two never are values.

use crate::names::Name;

/// A value, or a header.
pub(crate) type Word = u64;

/// The bits that tell.
pub(crate) const TAG_MASK: u64 = 7;
/// A fixnum.
pub(crate) const FIXNUM: u64 = 0;
/// A closure.
pub(crate) const CLOSURE: u64 = 1;
/// A character, a symbol, or one of few constants.
pub(crate) const IMMEDIATE: u64 = 2;
/// A pair.
pub(crate) const PAIR: u64 = 3;
/// Any other object.
pub(crate) const OBJECT: u64 = 5;
/// Where an object has moved to, during a collection.
pub(crate) const MOVED: u64 = 6;
/// The header of an object.
pub(crate) const HEADER: u64 = 7;

const CHAR: u64 = 1;
const SYMBOL: u64 = 2;
const PID: u64 = 3;
const TAG: u64 = 4;
const END: u64 = 5;

/// From this index on, objects lie in segments that processes share: the number of a slot, then a place.
pub(crate) const SHARED: usize = 1 << 55;
/// Bits of the slot.
pub(crate) const SLOT_BITS: u32 = 24;
/// Bits of the place in a segment.
pub(crate) const OFFSET_BITS: u32 = 31;
/// From this index on, objects lie in the frozen segment of the program.
pub(crate) const FROZEN: usize = 1 << 56;
/// From this index on, a closure is the place of its code: it has no variables, so it takes no memory.
const CODE: usize = 1 << 57;

const fn immediate(kind: u64, payload: u64) -> Word {
    (payload << 8) | (kind << 3) | IMMEDIATE
}

/// `#f`
pub(crate) const FALSE: Word = immediate(0, 0);
/// `#t`
pub(crate) const TRUE: Word = immediate(0, 1);
/// `()`
pub(crate) const NIL: Word = immediate(0, 2);
/// What has no better value.
pub(crate) const UNSPECIFIED: Word = immediate(0, 3);
/// The end of a port.
pub(crate) const EOF: Word = immediate(0, 4);
/// A cell that was not written yet, or a name without a value. No program sees it.
pub(crate) const UNSET: Word = immediate(0, 5);

/// The word of a fixnum.
pub(crate) const fn fixnum(value: i64) -> Word {
    (value << 3) as u64
}

/// The value of a fixnum's word.
pub(crate) const fn fixnum_value(word: Word) -> i64 {
    (word as i64) >> 3
}

/// Whether it is a fixnum.
pub(crate) const fn is_fixnum(word: Word) -> bool {
    word & TAG_MASK == FIXNUM
}

/// The word of a truth value.
pub(crate) const fn boolean(value: bool) -> Word {
    if value { TRUE } else { FALSE }
}

/// The word of a character.
pub(crate) const fn character(value: char) -> Word {
    immediate(CHAR, value as u64)
}

/// The character of a word.
pub(crate) fn as_character(word: Word) -> Option<char> {
    if word & 0xff == immediate(CHAR, 0) { char::from_u32((word >> 8) as u32) } else { None }
}

/// The word of a symbol.
pub(crate) const fn symbol(name: Name) -> Word {
    immediate(SYMBOL, name.0 as u64)
}

/// The symbol of a word.
pub(crate) const fn as_symbol(word: Word) -> Option<Name> {
    if word & 0xff == immediate(SYMBOL, 0) { Some(Name((word >> 8) as u32)) } else { None }
}

/// The number of a fixnum that is not negative.
pub(crate) fn as_natural(word: Word) -> Option<u64> {
    if is_fixnum(word) { u64::try_from(fixnum_value(word)).ok() } else { None }
}

/// The word of a process's number.
pub(crate) const fn pid(number: u64) -> Word {
    immediate(PID, number)
}

/// The number of a process.
pub(crate) const fn as_pid(word: Word) -> Option<u64> {
    if word & 0xff == immediate(PID, 0) { Some(word >> 8) } else { None }
}

/// The word of a tag.
pub(crate) const fn tag(number: u64) -> Word {
    immediate(TAG, number)
}

/// The number of a tag.
pub(crate) const fn as_tag(word: Word) -> Option<u64> {
    if word & 0xff == immediate(TAG, 0) { Some(word >> 8) } else { None }
}

/// The word of the number of an end of a channel.
pub(crate) const fn end(number: u64) -> Word {
    immediate(END, number)
}

/// The number of an end of a channel.
pub(crate) const fn as_end(word: Word) -> Option<u64> {
    if word & 0xff == immediate(END, 0) { Some(word >> 8) } else { None }
}

/// The lowest bits of an end's number tell which it is; of the others there are 52.
const RECEIVER: u64 = 1;
const SHARED_END: u64 = 2;

/// The number of an end.
pub(crate) const fn end_number(serial: u64, is_receiver: bool, is_shared: bool) -> u64 {
    ((serial << 2) & ((1 << 54) - 1)) | is_receiver as u64 | ((is_shared as u64) << 1)
}

/// Whether the end with this number is a receiver.
pub(crate) const fn is_receiver(number: u64) -> bool {
    number & RECEIVER != 0
}

/// Whether the end with this number is shared.
pub(crate) const fn is_shared_end(number: u64) -> bool {
    number & SHARED_END != 0
}

/// What the end with this number is called.
pub(crate) const fn end_name(number: u64) -> &'static str {
    match (is_shared_end(number), is_receiver(number)) {
        (false, false) => "sender",
        (false, true) => "receiver",
        (true, false) => "shared-sender",
        (true, true) => "shared-receiver",
    }
}

/// The closure without variables whose code begins at `entry`.
pub(crate) const fn code(entry: usize) -> Word {
    pointer(CODE + entry, CLOSURE)
}

/// Where the code of a closure without variables begins.
#[inline]
pub(crate) const fn as_code(word: Word) -> Option<usize> {
    if word & TAG_MASK == CLOSURE && index(word) >= CODE { Some(index(word) - CODE) } else { None }
}

/// A pointer to the object at `index`.
pub(crate) const fn pointer(index: usize, tag: u64) -> Word {
    ((index as u64) << 3) | tag
}

/// The index of a pointer.
pub(crate) const fn index(word: Word) -> usize {
    (word >> 3) as usize
}

/// Whether the word is an object: of the heap, of a segment, or a closure without variables.
pub(crate) const fn is_pointer(word: Word) -> bool {
    matches!(word & TAG_MASK, CLOSURE | PAIR | OBJECT)
}

/// The index of what lies in a segment that processes share; `None` for any other word.
pub(crate) fn shared_index(word: Word) -> Option<usize> {
    if is_pointer(word) && (SHARED..FROZEN).contains(&index(word)) { Some(index(word)) } else { None }
}
