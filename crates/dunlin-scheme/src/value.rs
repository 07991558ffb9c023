//! Values of the heap from and to numbers and data.

use std::collections::HashMap;

use crate::datum::{Datum, Kind};
use crate::heap::word::{self, NIL, UNSET, Word, fixnum, fixnum_value, is_fixnum};
use crate::heap::{Heap, Tag};
use crate::num::Number;

/// The number that a word is.
pub(crate) fn number(heap: &Heap, word: Word) -> Option<Number> {
    if is_fixnum(word) {
        return Some(Number::Fix(fixnum_value(word)));
    }
    match heap.tag(word)? {
        Tag::Flonum => Some(Number::Flo(f64::from_bits(heap.field(word, 1)))),
        Tag::Bignum => {
            let fields = heap.fields(word);
            Some(Number::Big(Number::from_words(fields[0] != 0, &fields[1..])))
        }
        Tag::Ratio => {
            let integer = |word| match number(heap, word) {
                Some(Number::Fix(value)) => Some(value.into()),
                Some(Number::Big(value)) => Some(value),
                _ => None,
            };
            Some(Number::Ratio(integer(heap.field(word, 1))?, integer(heap.field(word, 2))?))
        }
        _ => None,
    }
}

/// The word of a number.
pub(crate) fn of_number(heap: &mut Heap, number: &Number) -> Word {
    match number {
        Number::Fix(value) => fixnum(*value),
        Number::Flo(value) => heap.make(Tag::Flonum, &[value.to_bits()]),
        Number::Big(value) => {
            let (negative, words) = Number::to_words(value);
            heap.make_with(Tag::Bignum, &[u64::from(negative)], &words)
        }
        Number::Ratio(n, d) => {
            let n = of_number(heap, &Number::from_big(n.clone()));
            let d = of_number(heap, &Number::from_big(d.clone()));
            heap.make(Tag::Ratio, &[n, d])
        }
    }
}

/// The value of a datum. Lists that labels make cyclic are closed here, before anything sees them.
///
/// # Errors
/// The number of a label that nothing has.
pub(crate) fn of_datum(heap: &mut Heap, datum: &Datum) -> Result<Word, u32> {
    let mut labels = Labels { known: HashMap::new(), open: Vec::new() };
    build(heap, datum, &mut labels)
}

struct Labels {
    known: HashMap<u32, Word>,
    /// Labels whose datum is not complete, and the fields that wait for it.
    open: Vec<(u32, Vec<(Word, usize)>)>,
}

fn build(heap: &mut Heap, datum: &Datum, labels: &mut Labels) -> Result<Word, u32> {
    Ok(match &datum.kind {
        Kind::Bool(value) => word::boolean(*value),
        Kind::Char(value) => word::character(*value),
        Kind::Number(value) => of_number(heap, value),
        Kind::String(text) => heap.string(text),
        Kind::Symbol(name) => word::symbol(*name),
        Kind::Bytes(bytes) => heap.bytes(bytes),
        Kind::Unspecified => word::UNSPECIFIED,
        Kind::Vector(items) => {
            let mut words = Vec::with_capacity(items.len());
            for item in items.iter() {
                words.push(build(heap, item, labels)?);
            }
            let vector = heap.make(Tag::Vector, &words);
            for (at, item) in items.iter().enumerate() {
                wait(labels, item, vector, at + 1);
            }
            vector
        }
        Kind::List(items, tail) => {
            // In order: a label comes before what refers to it.
            let mut words = Vec::with_capacity(items.len());
            for item in items.iter() {
                words.push(build(heap, item, labels)?);
            }
            let mut list = match tail {
                Some(tail) => build(heap, tail, labels)?,
                None => NIL,
            };
            for (at, (item, first)) in items.iter().zip(words).enumerate().rev() {
                list = heap.cons(first, list);
                wait(labels, item, list, 0);
                if let (true, Some(tail)) = (at + 1 == items.len(), tail) {
                    wait(labels, tail, list, 1);
                }
            }
            list
        }
        Kind::Label(number, inner) => {
            labels.open.push((*number, Vec::new()));
            let value = build(heap, inner, labels)?;
            let (_, waiting) = labels.open.pop().expect("it was pushed above");
            for (object, offset) in waiting {
                heap.patch(object, offset, value);
            }
            labels.known.insert(*number, value);
            value
        }
        Kind::Reference(number) => match labels.known.get(number) {
            Some(value) => *value,
            None if labels.open.iter().any(|(open, _)| open == number) => UNSET,
            None => return Err(*number),
        },
    })
}

/// Notes that a field refers to a label whose datum is still being built.
fn wait(labels: &mut Labels, item: &Datum, object: Word, offset: usize) {
    if let Kind::Reference(number) = item.kind
        && !labels.known.contains_key(&number)
        && let Some((_, waiting)) = labels.open.iter_mut().rev().find(|(open, _)| *open == number)
    {
        waiting.push((object, offset));
    }
}

/// The datum of a value, for what `eval` gets.
///
/// # Errors
/// A text that says which part is no datum.
pub(crate) fn to_datum(heap: &Heap, value: Word, depth: usize) -> Result<Datum, &'static str> {
    if depth > crate::read::DEPTH_MAX {
        return Err("nested too deeply");
    }
    let kind = if let Some(number) = number(heap, value) {
        Kind::Number(number)
    } else if let Some(value) = word::as_character(value) {
        Kind::Char(value)
    } else if let Some(name) = word::as_symbol(value) {
        Kind::Symbol(name)
    } else if value & word::TAG_MASK == word::PAIR || value == NIL {
        return list_to_datum(heap, value, depth);
    } else {
        match (value, heap.tag(value)) {
            (word::TRUE, _) => Kind::Bool(true),
            (word::FALSE, _) => Kind::Bool(false),
            (word::UNSPECIFIED, _) => Kind::Unspecified,
            (_, Some(Tag::String)) => Kind::String(heap.text(value).into()),
            (_, Some(Tag::Bytes)) => Kind::Bytes(heap.bytes_of(value).into()),
            (_, Some(Tag::Vector)) => {
                let items = heap.fields(value).iter().map(|item| to_datum(heap, *item, depth + 1));
                Kind::Vector(items.collect::<Result<Vec<_>, _>>()?.into())
            }
            _ => return Err("not a datum"),
        }
    };
    Ok(Datum::new(Default::default(), kind))
}

fn list_to_datum(heap: &Heap, value: Word, depth: usize) -> Result<Datum, &'static str> {
    let mut items = Vec::new();
    let mut rest = value;
    while rest & word::TAG_MASK == word::PAIR {
        // More pairs than the heap has words: the list is a cycle.
        if items.len() > heap.span() {
            return Err("cyclic");
        }
        items.push(to_datum(heap, heap.car(rest), depth + 1)?);
        rest = heap.cdr(rest);
    }
    if rest == NIL {
        return Ok(Datum::list(Default::default(), items));
    }
    Ok(Datum::improper(Default::default(), items, to_datum(heap, rest, depth + 1)?))
}
