//! Values from and to the words of a heap.

use super::{DEPTH_MAX, End, PARTS_MAX, Value, ValueError};
use crate::heap::word::{self, NIL, PAIR, TAG_MASK, Word};
use crate::heap::{Heap, Tag};
use crate::names::Symbols;
use crate::num::Number;
use crate::print::{self, Style};
use crate::value;

/// Numbers of processes and tags from here on are places in a table of one machine.
const OWN_NUMBERS: u64 = 1 << 55;

/// The value of a word.
///
/// # Errors
/// [`ValueError`] if a part is no data, or there are too many. An end of a channel is data if `end` knows it.
pub(crate) fn to_value(
    heap: &Heap,
    symbols: &Symbols,
    end: &dyn Fn(u64) -> Option<End>,
    word: Word,
) -> Result<Value, ValueError> {
    Reading { heap, symbols, end, room: PARTS_MAX }.value(word, 0)
}

struct Reading<'m> {
    heap: &'m Heap,
    symbols: &'m Symbols,
    end: &'m dyn Fn(u64) -> Option<End>,
    room: usize,
}

impl Reading<'_> {
    fn take(&mut self, parts: usize) -> Result<(), ValueError> {
        self.room = self.room.checked_sub(parts).ok_or(ValueError::TooLarge)?;
        Ok(())
    }

    fn value(&mut self, word: Word, depth: usize) -> Result<Value, ValueError> {
        if depth > DEPTH_MAX {
            return Err(ValueError::TooDeep);
        }
        self.take(1)?;
        if let Some(number) = value::number(self.heap, word) {
            return self.number(&number);
        }
        if let Some(value) = word::as_character(word) {
            return Ok(Value::Char(value));
        }
        if let Some(name) = word::as_symbol(word) {
            let text = self.symbols.text(name);
            self.take(text.len() / 8)?;
            return Ok(Value::Symbol(text.to_string()));
        }
        if word == NIL || word & TAG_MASK == PAIR {
            return self.list(word, depth);
        }
        let heap = self.heap;
        if let Some(end) = word::as_end(word).and_then(self.end) {
            return Ok(Value::End(end));
        }
        match (word, heap.tag(word)) {
            (word::TRUE, _) => Ok(Value::Bool(true)),
            (word::FALSE, _) => Ok(Value::Bool(false)),
            (word::UNSPECIFIED, _) => Ok(Value::Unspecified),
            (_, Some(Tag::String)) => {
                self.take(heap.string_lengths(word).0 / 8)?;
                Ok(Value::String(heap.text(word)))
            }
            (_, Some(Tag::Bytes)) => {
                self.take(heap.field(word, 1) as usize / 8)?;
                Ok(Value::Bytes(heap.bytes_of(word)))
            }
            (_, Some(Tag::Vector)) => {
                let items = heap.fields(word).iter().map(|item| self.value(*item, depth + 1));
                Ok(Value::Vector(items.collect::<Result<_, _>>()?))
            }
            _ => match (word::as_pid(word), word::as_tag(word)) {
                (Some(number), _) if number < OWN_NUMBERS => Ok(Value::Process(number)),
                (_, Some(number)) if number < OWN_NUMBERS => Ok(Value::Tag(number)),
                _ => Err(ValueError::NotData(print::value(heap, self.symbols, word, Style::Write, 200))),
            },
        }
    }

    fn number(&mut self, number: &Number) -> Result<Value, ValueError> {
        Ok(match number {
            Number::Fix(value) => Value::Integer(i128::from(*value)),
            Number::Flo(value) => Value::Real(*value),
            exact => {
                // Its text takes time that grows with the square of its length.
                if exact.bits() > BITS_MAX {
                    return Err(ValueError::TooLarge);
                }
                let text = exact.to_text(10);
                text.parse().map_or(Value::Exact(text), Value::Integer)
            }
        })
    }

    fn list(&mut self, mut rest: Word, depth: usize) -> Result<Value, ValueError> {
        let mut items = Vec::new();
        while rest & TAG_MASK == PAIR {
            items.push(self.value(self.heap.car(rest), depth + 1)?);
            rest = self.heap.cdr(rest);
        }
        if rest == NIL {
            return Ok(Value::List(items));
        }
        Ok(Value::Improper(items, Box::new(self.value(rest, depth + 1)?)))
    }
}

/// Bits of a number that becomes text.
const BITS_MAX: usize = 1 << 16;

/// The word of a value.
///
/// # Errors
/// [`ValueError`] if it nests too deeply, or has a number that no machine has.
pub(crate) fn of_value(heap: &mut Heap, symbols: &mut Symbols, value: &Value) -> Result<Word, ValueError> {
    build(heap, symbols, value, 0)
}

fn build(heap: &mut Heap, symbols: &mut Symbols, value: &Value, depth: usize) -> Result<Word, ValueError> {
    if depth > DEPTH_MAX {
        return Err(ValueError::TooDeep);
    }
    Ok(match value {
        Value::Unspecified => word::UNSPECIFIED,
        Value::Bool(value) => word::boolean(*value),
        Value::Integer(number) => match i64::try_from(*number) {
            Ok(number) => value::of_number(heap, &Number::from_i64(number)),
            Err(_) => exact(heap, &number.to_string())?,
        },
        Value::Exact(text) => exact(heap, text)?,
        Value::Real(number) => value::of_number(heap, &Number::Flo(*number)),
        Value::Char(value) => word::character(*value),
        Value::String(text) => heap.string(text),
        Value::Symbol(_) if symbols.len() >= Symbols::COUNT_MAX => return Err(ValueError::TooLarge),
        Value::Symbol(text) => word::symbol(symbols.intern(text)),
        Value::Bytes(bytes) => heap.bytes(bytes),
        Value::List(items) => {
            let items = build_all(heap, symbols, items, depth)?;
            heap.list(&items, NIL)
        }
        Value::Improper(items, tail) => {
            let items = build_all(heap, symbols, items, depth)?;
            let tail = build(heap, symbols, tail, depth + 1)?;
            heap.list(&items, tail)
        }
        Value::Vector(items) => {
            let items = build_all(heap, symbols, items, depth)?;
            heap.make(Tag::Vector, &items)
        }
        Value::Process(number) if *number < OWN_NUMBERS => word::pid(*number),
        Value::Tag(number) if *number < OWN_NUMBERS => word::tag(*number),
        Value::End(end) => word::end(end.number()),
        Value::Process(number) | Value::Tag(number) => return Err(ValueError::Number(number.to_string())),
    })
}

fn build_all(heap: &mut Heap, symbols: &mut Symbols, items: &[Value], depth: usize) -> Result<Vec<Word>, ValueError> {
    items.iter().map(|item| build(heap, symbols, item, depth + 1)).collect()
}

/// An exact number of its text.
fn exact(heap: &mut Heap, text: &str) -> Result<Word, ValueError> {
    let wrong = || ValueError::Number(text.chars().take(40).collect());
    // 4 bits are more than a digit has.
    if text.len() > BITS_MAX / 3 {
        return Err(wrong());
    }
    let number = Number::parse(text, 10).filter(Number::is_exact).ok_or_else(wrong)?;
    Ok(value::of_number(heap, &number))
}

/// The ends in a value, of which [`of_value`] made a word.
pub(crate) fn ends_of(value: &Value) -> Vec<End> {
    let mut ends = Vec::new();
    add_ends(value, &mut ends);
    ends
}

fn add_ends(value: &Value, ends: &mut Vec<End>) {
    match value {
        Value::End(end) => ends.push(end.clone()),
        Value::List(items) | Value::Vector(items) => items.iter().for_each(|item| add_ends(item, ends)),
        Value::Improper(items, tail) => {
            items.iter().for_each(|item| add_ends(item, ends));
            add_ends(tail, ends);
        }
        _ => {}
    }
}
