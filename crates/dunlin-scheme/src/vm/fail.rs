//! How primitives fail.

use crate::error::Error;
use crate::heap::Word;
use crate::heap::collect::Full;

/// Why a primitive has no value.
#[derive(Debug)]
pub(crate) enum Fail {
    /// An error that the program can handle: its kind, a message, and the objects that it is about.
    Raise(&'static str, String, Vec<Word>),
    /// The value is that of a procedure of the prelude, with these arguments.
    Call(&'static str, Vec<Word>),
    /// The program ends.
    End(Error),
    /// The process ends, and nothing was wrong.
    Halt,
    /// The heap is full.
    Full,
}

pub(crate) type Result<T = Word> = std::result::Result<T, Fail>;

impl From<Full> for Fail {
    fn from(_: Full) -> Self {
        Self::Full
    }
}

/// An argument of the wrong type.
pub(super) fn wrong_type(expected: &str, got: Word) -> Fail {
    Fail::Raise("type", format!("expected {expected}, got"), vec![got])
}

/// An index outside of an object.
pub(super) fn out_of_range(index: Word, limit: usize) -> Fail {
    Fail::Raise("range", format!("index out of range, expected 0 to {limit}, got"), vec![index])
}
