//! Vectors and bytevectors.

use super::super::fail::{Fail, Result, wrong_type};
use super::super::machine::Machine;
use super::super::run::truth;
use super::super::slow::list_items;
use super::lists::STEP;
use super::{ANY, Row};
use crate::heap::Tag;
use crate::heap::word::{NIL, PAIR, TAG_MASK, UNSPECIFIED, Word, fixnum, fixnum_value, is_fixnum};

pub(super) const TABLE: &[Row] = &[
    ("vector?", 1, 1, |m, a| Ok(truth(m.heap.tag(a[0]) == Some(Tag::Vector)))),
    ("%vector?", 1, 1, |m, a| Ok(truth(m.heap.tag(a[0]) == Some(Tag::Vector)))),
    ("vector", 0, ANY, |m, a| Ok(m.heap.make(Tag::Vector, a))),
    ("make-vector", 1, 2, |m, a| {
        let count = m.size_argument(a[0])?;
        m.heap.reserve(count)?;
        m.charge += count as u64 / 64;
        Ok(m.heap.make_filled(Tag::Vector, count, a.get(1).copied().unwrap_or(UNSPECIFIED)))
    }),
    ("vector-length", 1, 1, |m, a| {
        m.expect(a[0], Tag::Vector, "a vector")?;
        Ok(fixnum(m.heap.fields(a[0]).len() as i64))
    }),
    ("%vector-copy", 3, 3, |m, a| {
        let items = part(m, a)?;
        put(m, &items)
    }),
    ("%list-part", 4, 4, list_part),
    ("%vector-part", 1, 1, vector_part),
    ("%list->vector", 1, 1, |m, a| {
        let items = m.list_argument(a[0])?;
        put(m, &items)
    }),
    ("vector-append", 0, ANY, |m, a| {
        let mut all = Vec::new();
        for word in a {
            m.expect(*word, Tag::Vector, "a vector")?;
            m.heap.reserve(all.len() + m.heap.fields(*word).len())?;
            all.extend_from_slice(m.heap.fields(*word));
        }
        put(m, &all)
    }),
    ("bytevector?", 1, 1, |m, a| Ok(truth(m.heap.tag(a[0]) == Some(Tag::Bytes)))),
    ("bytevector", 0, ANY, |m, a| {
        let bytes = a.iter().map(|word| byte(*word)).collect::<Result<Vec<u8>>>()?;
        Ok(m.heap.bytes(&bytes))
    }),
    ("make-bytevector", 1, 2, |m, a| {
        let count = m.size_argument(a[0])?;
        let fill = a.get(1).map_or(Ok(0), |word| byte(*word))?;
        Ok(m.heap.bytes(&vec![fill; count]))
    }),
    ("bytevector-length", 1, 1, |m, a| {
        m.expect(a[0], Tag::Bytes, "a bytevector")?;
        Ok(fixnum(m.heap.field(a[0], 1) as i64))
    }),
    ("bytevector-u8-ref", 2, 2, |m, a| {
        m.expect(a[0], Tag::Bytes, "a bytevector")?;
        let at = m.index(a[1], m.heap.field(a[0], 1) as usize)?;
        Ok(fixnum(i64::from(m.heap.byte_at(a[0], at))))
    }),
    ("%bytevector-copy", 3, 3, |m, a| {
        let bytes = m.bytes_argument(a[0])?;
        let (start, end) = m.range(a[1], a[2], bytes.len())?;
        Ok(m.heap.bytes(&bytes[start..end]))
    }),
    ("bytevector-append", 0, ANY, |m, a| {
        let all = a.iter().map(|word| m.bytes_argument(*word)).collect::<Result<Vec<_>>>()?;
        Ok(m.heap.bytes(&all.concat()))
    }),
];

fn part(machine: &mut Machine, arguments: &[Word]) -> Result<Vec<Word>> {
    machine.expect(arguments[0], Tag::Vector, "a vector")?;
    let (start, end) = machine.range(arguments[1], arguments[2], machine.heap.fields(arguments[0]).len())?;
    Ok(machine.heap.fields(arguments[0])[start..end].to_vec())
}

/// A list of items before `tail`; or, after a step, a vector of where the items end that are left, and the
/// list.
fn list_part(machine: &mut Machine, arguments: &[Word]) -> Result {
    machine.expect(arguments[0], Tag::Vector, "a vector")?;
    let (start, end) = machine.range(arguments[1], arguments[2], machine.heap.fields(arguments[0]).len())?;
    let first = start.max(end.saturating_sub(STEP));
    machine.heap.reserve(2 * (end - first))?;
    machine.charge += (end - first) as u64 / 32;
    let items = machine.heap.fields(arguments[0])[first..end].to_vec();
    let list = machine.heap.list(&items, arguments[3]);
    if first == start {
        return Ok(list);
    }
    Ok(machine.heap.make(Tag::Vector, &[fixnum(first as i64), list]))
}

/// A vector of the items of a list; or, after a step, a pair of a vector and the rest of the list.
fn vector_part(machine: &mut Machine, arguments: &[Word]) -> Result {
    let mut items = Vec::new();
    let mut rest = arguments[0];
    while rest & TAG_MASK == PAIR && items.len() < STEP {
        items.push(machine.heap.car(rest));
        rest = machine.heap.cdr(rest);
    }
    machine.charge += items.len() as u64 / 16;
    let vector = put(machine, &items)?;
    match rest {
        NIL => Ok(vector),
        _ if rest & TAG_MASK == PAIR => Ok(machine.heap.cons(vector, rest)),
        _ => Err(wrong_type("a list", arguments[0])),
    }
}

fn put(machine: &mut Machine, items: &[Word]) -> Result {
    machine.heap.reserve(items.len() + 1)?;
    machine.charge += items.len() as u64 / 64;
    Ok(machine.heap.make(Tag::Vector, items))
}

fn byte(word: Word) -> Result<u8> {
    let value = if is_fixnum(word) { u8::try_from(fixnum_value(word)).ok() } else { None };
    value.ok_or_else(|| wrong_type("a byte, 0 to 255", word))
}

impl Machine {
    pub(in super::super) fn bytes_argument(&mut self, word: Word) -> Result<Vec<u8>> {
        self.expect(word, Tag::Bytes, "a bytevector")?;
        let bytes = self.heap.bytes_of(word);
        self.charge += bytes.len() as u64 / 256;
        self.heap.reserve(bytes.len() / 8)?;
        Ok(bytes)
    }

    /// The items of a proper list.
    pub(super) fn list_argument(&mut self, word: Word) -> Result<Vec<Word>> {
        let mut items = Vec::new();
        if !list_items(&self.heap, word, &mut items) {
            return Err(Fail::Raise("type", "expected a list, got".into(), vec![word]));
        }
        self.charge += items.len() as u64 / 16;
        Ok(items)
    }

    pub(super) fn put_list(&mut self, items: &[Word]) -> Result {
        self.heap.reserve(2 * items.len())?;
        self.charge += items.len() as u64 / 32;
        Ok(self.heap.list(items, NIL))
    }
}
