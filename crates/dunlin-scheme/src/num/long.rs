//! Operations on long numbers, which take longer than a turn may.
//!
//! The crate of bignums cannot be interrupted, so such an operation is computed where it holds up no process.

use std::cmp::Ordering;

use super::Number;
use super::arith::{NumError, Round};

/// The product of the lengths of two numbers, in words, from which on an operation on them is a long one: two
/// of 2,048 words. A product takes about 2 ms then.
const PRODUCT_WORDS: u64 = 2_048 * 2_048;
/// Characters of a number that is read in one step: about as many as 2,048 words have.
const TEXT_MAX: usize = 39_000;

/// A long operation, to be computed anywhere: [`run`](Self::run) takes from milliseconds to seconds.
///
/// A machine asks for it as [`Operation::Compute`](crate::Operation::Compute).
#[derive(Clone, Debug, PartialEq)]
pub struct Computation(pub(crate) Task);

/// What a [`Computation`] has computed.
#[derive(Clone, Debug, PartialEq)]
pub struct Computed(pub(crate) Result<Answer, NumError>);

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Task {
    Pair(Pair, Number, Number),
    SquareRoot(Number),
    IntegerRoot(Number),
    ToText(Number, u32),
    OfText(String, u32),
}

/// An operation on two numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pair {
    Add,
    Subtract,
    Multiply,
    Divide,
    Gcd,
    TruncateQuotient,
    TruncateRemainder,
    FloorRemainder,
    FloorQuotient,
    FloorBoth,
    TruncateBoth,
    Equal,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

/// All of them; requests name them by their place.
pub(crate) const PAIRS: [Pair; 16] = [
    Pair::Add,
    Pair::Subtract,
    Pair::Multiply,
    Pair::Divide,
    Pair::Gcd,
    Pair::TruncateQuotient,
    Pair::TruncateRemainder,
    Pair::FloorRemainder,
    Pair::FloorQuotient,
    Pair::FloorBoth,
    Pair::TruncateBoth,
    Pair::Equal,
    Pair::Less,
    Pair::LessEqual,
    Pair::Greater,
    Pair::GreaterEqual,
];

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answer {
    One(Number),
    Two(Number, Number),
    Text(String),
    /// Whether a comparison holds.
    Truth(bool),
    /// The text is no number.
    NoNumber,
}

fn words(number: &Number) -> u64 {
    number.bits().div_ceil(64) as u64
}

/// Whether a number takes long to be written as text, or its root to be found.
pub(crate) fn is_long(number: &Number) -> bool {
    words(number) * words(number) > PRODUCT_WORDS
}

/// Whether a text takes long to be read as a number.
pub(crate) fn is_long_text(text: &str) -> bool {
    text.len() > TEXT_MAX
}

impl Pair {
    /// Whether the operation takes long. Sums and comparisons of integers do not, and the machine splits
    /// their products.
    pub(crate) fn is_long(self, left: &Number, right: &Number) -> bool {
        let is_of_ratios = self.holds().is_some() || matches!(self, Self::Add | Self::Subtract | Self::Multiply);
        let is_of_integers = !matches!((left, right), (Number::Ratio(..), _) | (_, Number::Ratio(..)));
        let is_exact = left.is_exact() && right.is_exact();
        is_exact && !(is_of_ratios && is_of_integers) && words(left).saturating_mul(words(right)) > PRODUCT_WORDS
    }

    /// If it is a comparison: which orders fit it.
    pub(crate) fn holds(self) -> Option<fn(Ordering) -> bool> {
        Some(match self {
            Self::Equal => Ordering::is_eq,
            Self::Less => Ordering::is_lt,
            Self::LessEqual => Ordering::is_le,
            Self::Greater => Ordering::is_gt,
            Self::GreaterEqual => Ordering::is_ge,
            _ => return None,
        })
    }

    fn run(self, left: &Number, right: &Number) -> Result<Answer, NumError> {
        if let Some(holds) = self.holds() {
            return Ok(Answer::Truth(left.compare(right).is_some_and(holds)));
        }
        let divided = |round| left.divide(right, round);
        Ok(Answer::One(match self {
            Self::Add => left.add(right)?,
            Self::Subtract => left.sub(right)?,
            Self::Multiply => left.mul(right)?,
            Self::Divide => left.div(right)?,
            Self::Gcd => left.gcd(right)?,
            Self::TruncateQuotient => divided(Round::Truncate)?.0,
            Self::TruncateRemainder => divided(Round::Truncate)?.1,
            Self::FloorQuotient => divided(Round::Floor)?.0,
            Self::FloorRemainder => divided(Round::Floor)?.1,
            Self::FloorBoth | Self::TruncateBoth => {
                let round = if self == Self::FloorBoth { Round::Floor } else { Round::Truncate };
                let (quotient, rest) = divided(round)?;
                return Ok(Answer::Two(quotient, rest));
            }
            Self::Equal | Self::Less | Self::LessEqual | Self::Greater | Self::GreaterEqual => {
                unreachable!("it is a comparison")
            }
        }))
    }
}

impl Computation {
    /// What it costs, in fuel: about `n^1.6` for `n` words.
    pub(crate) fn cost(&self) -> u64 {
        let words = match &self.0 {
            Task::Pair(_, left, right) => words(left).max(words(right)),
            Task::SquareRoot(number) | Task::IntegerRoot(number) | Task::ToText(number, _) => words(number),
            Task::OfText(text, _) => text.len() as u64 / 16,
        };
        ((words as f64).powf(1.6) / 8.0) as u64
    }

    /// Computes it, on the thread that calls this.
    #[must_use]
    pub fn run(self) -> Computed {
        Computed(match self.0 {
            Task::Pair(pair, left, right) => pair.run(&left, &right),
            Task::SquareRoot(number) => Ok(Answer::One(number.sqrt())),
            Task::IntegerRoot(number) => number.exact_integer_sqrt().map(|(root, rest)| Answer::Two(root, rest)),
            Task::ToText(number, radix) => Ok(Answer::Text(number.to_text(radix))),
            Task::OfText(text, radix) => Ok(Number::parse(&text, radix).map_or(Answer::NoNumber, Answer::One)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::num::IBig;

    fn of_words(words: usize) -> Number {
        Number::from_big(IBig::from(1) << (64 * words - 1))
    }

    #[test]
    fn operations_on_two_numbers_of_more_than_2048_words_are_long() {
        let (short, long) = (of_words(2_048), of_words(2_049));
        assert!(!Pair::Gcd.is_long(&short, &short) && Pair::Gcd.is_long(&long, &long));
        assert!(!Pair::TruncateQuotient.is_long(&of_words(500_000), &of_words(8)));
        assert!(Pair::TruncateQuotient.is_long(&of_words(500_000), &of_words(9)));
        assert!(!Pair::Add.is_long(&long, &long) && !Pair::Divide.is_long(&long, &Number::Flo(2.0)));
        let ratio = Number::Ratio(IBig::from(1) << (64 * 2_049), IBig::from(3));
        assert!(Pair::Add.is_long(&ratio, &long) && !Pair::Add.is_long(&ratio, &Number::Fix(1)));
        assert!(Pair::Less.is_long(&ratio, &ratio) && Pair::Equal.is_long(&long, &ratio));
        assert!(!Pair::Less.is_long(&long, &long) && !Pair::Less.is_long(&ratio, &Number::Fix(1)));
        assert!(!is_long(&short) && is_long(&long));
    }

    #[test]
    fn long_operations_cost_more_than_their_words() {
        let cost = |words| Computation(Task::SquareRoot(of_words(words))).cost();
        assert!(cost(4_000) > 4_000 && cost(40_000) > 30 * cost(4_000));
    }
}
