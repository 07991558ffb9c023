//! Equivalence and lists.

use std::collections::HashSet;

use super::super::fail::Result;
use super::super::machine::Machine;
use super::super::run::truth;
use super::{ANY, Row};
use crate::heap::word::{NIL, PAIR, TAG_MASK, Word, fixnum, is_pointer};
use crate::heap::{Heap, Tag};
use crate::value;

pub(super) const TABLE: &[Row] = &[
    ("eqv?", 2, 2, |m, a| Ok(truth(eqv(&m.heap, a[0], a[1])))),
    ("%eqv?", 2, 2, |m, a| Ok(truth(eqv(&m.heap, a[0], a[1])))),
    ("equal?", 2, 2, |m, a| Ok(truth(equal(m, a[0], a[1])))),
    ("%equal?", 2, 2, |m, a| Ok(truth(equal(m, a[0], a[1])))),
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

/// Pairs of objects after which each further pair is noted, so that cycles end.
const NOTED_AFTER: usize = 10_000;

fn equal(machine: &mut Machine, a: Word, b: Word) -> bool {
    let heap = &machine.heap;
    let mut pairs = vec![(a, b)];
    let mut noted: HashSet<(Word, Word)> = HashSet::new();
    let mut steps = 0;
    let mut same = true;
    while let Some((a, b)) = pairs.pop() {
        if a == b {
            continue;
        }
        if !is_pointer(a) || a & TAG_MASK != b & TAG_MASK {
            same = false;
            break;
        }
        steps += 1;
        if steps > NOTED_AFTER && !noted.insert((a, b)) {
            continue;
        }
        if a & TAG_MASK == PAIR {
            pairs.push((heap.cdr(a), heap.cdr(b)));
            pairs.push((heap.car(a), heap.car(b)));
            continue;
        }
        let (kind, other) = (heap.tag(a), heap.tag(b));
        let alike = match kind {
            Some(Tag::String | Tag::Bytes) => kind == other && heap.fields(a) == heap.fields(b),
            Some(Tag::Vector | Tag::Record) if kind == other && heap.fields(a).len() == heap.fields(b).len() => {
                pairs.extend(heap.fields(a).iter().copied().zip(heap.fields(b).iter().copied()));
                true
            }
            _ => eqv(heap, a, b),
        };
        if !alike {
            same = false;
            break;
        }
    }
    machine.charge += steps as u64 / 8;
    same
}

/// What one step of a long operation on a list or a vector does.
pub(super) const STEP: usize = 4096;

/// The length of a proper list, or false; after a step, a pair of the pairs counted and the rest of the list.
fn length(machine: &mut Machine, arguments: &[Word]) -> Result {
    let mut rest = arguments[0];
    let mut count = machine.size_argument(arguments[1])?;
    let end = count + STEP;
    // A list of more pairs than the heap has words is a cycle.
    let most = machine.heap.len();
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
