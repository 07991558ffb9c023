//! Equivalence and lists.

use std::collections::HashSet;

use super::super::fail::{Result, wrong_type};
use super::super::machine::Machine;
use super::super::run::truth;
use super::{ANY, Row};
use crate::heap::word::{NIL, PAIR, TAG_MASK, Word, fixnum, fixnum_value, is_fixnum, is_pointer};
use crate::heap::{Heap, Tag};
use crate::value;

pub(super) const TABLE: &[Row] = &[
    ("eqv?", 2, 2, |m, a| Ok(truth(eqv(&m.heap, a[0], a[1])))),
    ("%eqv?", 2, 2, |m, a| Ok(truth(eqv(&m.heap, a[0], a[1])))),
    ("%compare", 2, 2, |m, a| compare(m, Comparison { steps: 0, left: vec![(a[0], a[1], 0)], noted: Vec::new() })),
    ("%compare-more", 1, 1, |m, a| {
        let comparison = Comparison::of_vector(m, a[0])?;
        compare(m, comparison)
    }),
    ("list", 0, ANY, |m, a| Ok(m.heap.list(a, NIL))),
    ("%length", 2, 2, length),
];

/// Equal as `eqv?` tells: numbers and characters by value, strings and pairs by identity.
pub(super) fn eqv(heap: &Heap, a: Word, b: Word) -> bool {
    if a == b {
        return true;
    }
    let (Some(kind), Some(other)) = (heap.tag(a), heap.tag(b)) else { return false };
    match kind {
        Tag::Flonum | Tag::Bignum => kind == other && heap.fields(a) == heap.fields(b),
        Tag::Ratio => kind == other && value::number(heap, a) == value::number(heap, b),
        Tag::RecordType | Tag::Parameter => kind == other && heap.field(a, 3) == heap.field(b, 3),
        Tag::String | Tag::Bytes | Tag::Vector => {
            kind == other && heap.fields(a).len() <= 1 && heap.fields(a) == heap.fields(b) && heap.fields(b).is_empty()
        }
        _ => false,
    }
}

/// Of the pairs of objects that are compared one in so many is noted: those are taken as equal when they are
/// met again, so that cycles end and sharing costs little. The comparison fails as a whole, so that is no
/// mistake.
const NOTED_EACH: u64 = 256;

/// A comparison under way. Between two steps it is a vector: `[steps, n, a b from ..., a b ...]`, the `n`
/// parts that are left, then the pairs that were noted.
struct Comparison {
    steps: u64,
    /// Two objects, and from which of their fields on they are left to compare.
    left: Vec<(Word, Word, usize)>,
    noted: Vec<(Word, Word)>,
}

impl Comparison {
    fn of_vector(machine: &Machine, word: Word) -> Result<Self> {
        let fail = || wrong_type("a comparison", word);
        machine.expect(word, Tag::Vector, "a comparison")?;
        let size = |word: Word| if is_fixnum(word) { usize::try_from(fixnum_value(word)).ok() } else { None };
        let [steps, count, rest @ ..] = machine.heap.fields(word) else { return Err(fail()) };
        let steps = size(*steps).ok_or_else(fail)? as u64;
        let (left, noted) = rest.split_at_checked(size(*count).ok_or_else(fail)?).ok_or_else(fail)?;
        let (left, noted) = (left.as_chunks::<3>().0, noted.as_chunks::<2>().0);
        let left = left.iter().map(|[a, b, from]| Some((*a, *b, size(*from)?))).collect::<Option<_>>();
        Ok(Self { steps, left: left.ok_or_else(fail)?, noted: noted.iter().map(|[a, b]| (*a, *b)).collect() })
    }

    fn into_vector(self, machine: &mut Machine) -> Result {
        let left = self.left.iter().flat_map(|(a, b, from)| [*a, *b, fixnum(*from as i64)]);
        let left: Vec<Word> = left.collect();
        let mut fields = vec![fixnum(self.steps as i64), fixnum(left.len() as i64)];
        fields.extend(left);
        fields.extend(self.noted.iter().flat_map(|(a, b)| [*a, *b]));
        machine.heap.reserve(fields.len())?;
        Ok(machine.heap.make(Tag::Vector, &fields))
    }

    /// Compares until something differs, nothing is left, or the step is over: then `None`.
    fn step(&mut self, heap: &Heap) -> Option<bool> {
        let mut noted: HashSet<(Word, Word)> = self.noted.iter().copied().collect();
        for _ in 0..STEP {
            let Some((a, b, from)) = self.left.pop() else { return Some(true) };
            if a == b {
                continue;
            }
            if !is_pointer(a) || a & TAG_MASK != b & TAG_MASK {
                return Some(false);
            }
            if from == 0 {
                if noted.contains(&(a, b)) {
                    continue;
                }
                self.steps += 1;
                if self.steps.is_multiple_of(NOTED_EACH) {
                    noted.insert((a, b));
                    self.noted.push((a, b));
                }
            }
            if a & TAG_MASK == PAIR {
                self.left.push((heap.cdr(a), heap.cdr(b), 0));
                self.left.push((heap.car(a), heap.car(b), 0));
                continue;
            }
            let (kind, other) = (heap.tag(a), heap.tag(b));
            let (first, second) = (heap.fields(a), heap.fields(b));
            match kind {
                Some(Tag::String | Tag::Bytes) if kind == other && first == second => {}
                Some(Tag::Vector | Tag::Record) if kind == other && first.len() == second.len() => {
                    if let (Some(a_item), Some(b_item)) = (first.get(from), second.get(from)) {
                        self.left.push((a, b, from + 1));
                        self.left.push((*a_item, *b_item, 0));
                    }
                }
                _ if eqv(heap, a, b) => {}
                _ => return Some(false),
            }
        }
        None
    }
}

fn compare(machine: &mut Machine, mut comparison: Comparison) -> Result {
    let before = comparison.steps;
    let result = comparison.step(&machine.heap);
    machine.charge += (comparison.steps - before) / 8 + (comparison.left.len() + comparison.noted.len()) as u64 / 32;
    match result {
        Some(same) => Ok(truth(same)),
        None => {
            machine.charge += STEP as u64 / 16;
            comparison.into_vector(machine)
        }
    }
}

/// What one step of a long operation on a list or a vector does.
pub(super) const STEP: usize = 4096;

/// The length of a proper list, or false; after a step, a pair of the pairs counted and the rest of the list.
fn length(machine: &mut Machine, arguments: &[Word]) -> Result {
    let mut rest = arguments[0];
    let mut count = machine.size_argument(arguments[1])?;
    let end = count + STEP;
    // A list of more pairs than the heap has words is a cycle.
    let most = machine.heap.span();
    while rest & TAG_MASK == PAIR {
        if count == end {
            machine.charge += STEP as u64 / 16;
            return Ok(machine.heap.cons(fixnum(count as i64), rest));
        }
        count += 1;
        if count > most {
            return Ok(truth(false));
        }
        rest = machine.heap.cdr(rest);
    }
    machine.charge += (count + STEP - end) as u64 / 16;
    Ok(if rest == NIL { fixnum(count as i64) } else { truth(false) })
}
