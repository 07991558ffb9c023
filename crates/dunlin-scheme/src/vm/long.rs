//! Operations on long numbers: a process waits for them, as for an operation on channels.

use super::fail::{Fail, Result, wrong_type};
use super::machine::Machine;
use crate::heap::Tag;
use crate::heap::word::{FALSE, NIL, Word, as_natural, boolean, fixnum};
use crate::num::{Answer, Computation, Computed, Number, PAIRS, Pair, Task};
use crate::proc::{Operation, Outcome};
use crate::value;

/// The kinds of requests that follow those of [`PAIRS`].
const SQUARE_ROOT: u64 = 16;
const INTEGER_ROOT: u64 = 17;
const TO_TEXT: u64 = 18;
const OF_TEXT: u64 = 19;

/// The value is that of a long operation on these.
fn compute(kind: u64, left: Word, right: Word) -> Fail {
    Fail::Call("%compute", vec![fixnum(kind as i64), left, right])
}

pub(super) fn compute_pair(pair: Pair, left: Word, right: Word) -> Fail {
    compute(pair as u64, left, right)
}

pub(super) fn compute_square_root(number: Word) -> Fail {
    compute(SQUARE_ROOT, number, FALSE)
}

pub(super) fn compute_integer_root(number: Word) -> Fail {
    compute(INTEGER_ROOT, number, FALSE)
}

pub(super) fn compute_text(number: Word, radix: u32) -> Fail {
    compute(TO_TEXT, number, fixnum(radix.into()))
}

pub(super) fn compute_number(text: Word, radix: u32) -> Fail {
    compute(OF_TEXT, text, fixnum(radix.into()))
}

impl Machine {
    /// What a long operation has computed, or how long the process waits: until it has.
    pub(super) fn compute(
        &mut self,
        request: &[Word],
        outcome: Option<Outcome>,
    ) -> Result<std::result::Result<Word, Option<u64>>> {
        match outcome {
            Some(Outcome::Computed(computed)) => return self.computed(computed).map(Ok),
            Some(Outcome::Failed(refusal)) => return Err(Fail::Raise(refusal.kind, refusal.message, vec![])),
            _ => {}
        }
        let computation = self.computation(request)?;
        self.charge += computation.cost();
        if self.is_embedded || self.commons.operations.driver.is_some() {
            self.asked = Some(Operation::Compute(computation));
            return Ok(Err(None));
        }
        self.computed(computation.run()).map(Ok)
    }

    fn computation(&mut self, request: &[Word]) -> Result<Computation> {
        let &[_, kind, left, right] = request else { return Err(wrong_type("a long operation", NIL)) };
        let kind = as_natural(kind).ok_or_else(|| wrong_type("a long operation", kind))?;
        if kind == OF_TEXT {
            return Ok(Computation(Task::OfText(self.text_argument(left)?, radix(right)?)));
        }
        let number = self.operand(left)?;
        Ok(Computation(match kind {
            SQUARE_ROOT => Task::SquareRoot(number),
            INTEGER_ROOT => Task::IntegerRoot(number),
            TO_TEXT => Task::ToText(number, radix(right)?),
            _ => {
                let pair = PAIRS.get(kind as usize).ok_or_else(|| wrong_type("a long operation", left))?;
                Task::Pair(*pair, number, self.operand(right)?)
            }
        }))
    }

    fn operand(&self, word: Word) -> Result<Number> {
        value::number(&self.heap, word).ok_or_else(|| wrong_type("a number", word))
    }

    fn computed(&mut self, Computed(answer): Computed) -> Result {
        let answer = answer.map_err(|error| Fail::Raise("number", error.to_string(), vec![]))?;
        match answer {
            Answer::One(number) => self.put_number(&number),
            Answer::Two(one, other) => {
                let both = [self.put_number(&one)?, self.put_number(&other)?];
                Ok(self.heap.make(Tag::Values, &both))
            }
            Answer::Text(text) => self.put_string(&text),
            Answer::Truth(truth) => Ok(boolean(truth)),
            Answer::NoNumber => Ok(FALSE),
        }
    }

    fn put_number(&mut self, number: &Number) -> Result {
        self.charge += number.bits() as u64 / 4096;
        self.heap.reserve(number.bits() / 32)?;
        Ok(value::of_number(&mut self.heap, number))
    }
}

fn radix(word: Word) -> Result<u32> {
    let radix = as_natural(word).filter(|radix| (2..=36).contains(radix));
    radix.map(|radix| radix as u32).ok_or_else(|| wrong_type("a radix, 2 to 36", word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_named_by_their_place() {
        assert!(PAIRS.iter().enumerate().all(|(at, pair)| *pair as usize == at));
        assert_eq!(PAIRS.len() as u64, SQUARE_ROOT);
    }
}
