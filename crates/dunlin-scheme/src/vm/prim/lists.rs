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
    ("%length", 1, 1, length),
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

/// The length of a proper list, or false.
fn length(machine: &mut Machine, arguments: &[Word]) -> Result {
    let heap = &machine.heap;
    let mut rest = arguments[0];
    let mut count = 0;
    while rest & TAG_MASK == PAIR {
        count += 1;
        if count > heap.len() {
            return Ok(truth(false));
        }
        rest = heap.cdr(rest);
    }
    machine.charge += count as u64 / 16;
    Ok(if rest == NIL { fixnum(count as i64) } else { truth(false) })
}
