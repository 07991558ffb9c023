//! The numeric tower: integers of any size, exact rationals, and flonums.
//!
//! The only module that knows the crate of bignums. Machine words are handled before it is reached, in the
//! machine's loop; everything else becomes a [`Number`], is computed here, and goes back to the heap.

mod arith;
mod long;
mod text;

pub(crate) use arith::{NumError, RatioRounding, Round};
pub(crate) use dashu_int::IBig;
pub(crate) use long::{Answer, PAIRS, Pair, Task, is_long, is_long_text};
pub use long::{Computation, Computed};

/// A number. An integer that fits a fixnum is always `Fix`; a ratio is in lowest terms and no integer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Number {
    /// An integer that fits in 61 bits.
    Fix(i64),
    /// A larger integer.
    Big(IBig),
    /// Numerator and denominator.
    Ratio(IBig, IBig),
    /// An inexact number.
    Flo(f64),
}

/// The largest fixnum.
pub(crate) const FIXNUM_MAX: i64 = (1 << 60) - 1;
/// The least fixnum.
pub(crate) const FIXNUM_MIN: i64 = -(1 << 60);
/// Integers of more bits are refused before memory is taken.
pub(crate) const BITS_MAX: usize = 1 << 26;
