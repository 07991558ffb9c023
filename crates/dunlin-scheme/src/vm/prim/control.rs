//! Procedures, several values, marks, records, conditions, parameters, promises, the system.

use sha2::{Digest, Sha256};

use super::super::fail::{Fail, Result, out_of_range, wrong_type};
use super::super::machine::Machine;
use super::super::run::truth;
use super::{ANY, Row};
use crate::error::{Error, Raised};
use crate::expand::FEATURES;
use crate::heap::Tag;
use crate::heap::word::{
    FALSE, NIL, TRUE, UNSET, UNSPECIFIED, Word, as_symbol, fixnum, fixnum_value, is_fixnum, symbol,
};
use crate::num::Number;
use crate::print::{self, Style};
use crate::value;

/// The longest text of an object in an error, in bytes.
const ERROR_MAX: usize = 1 << 16;

pub(super) const TABLE: &[Row] = &[
    ("procedure?", 1, 1, |m, a| Ok(truth(is_procedure(m, a[0])))),
    ("values", 0, ANY, |m, a| match a {
        [only] => Ok(*only),
        _ => Ok(m.heap.make(Tag::Values, a)),
    }),
    ("%marks", 0, 0, |m, _| Ok(if m.marks == NIL { m.heap.make(Tag::Marks, &[NIL; 3]) } else { m.marks })),
    ("%set-marks", 1, 1, |m, a| {
        m.expect(a[0], Tag::Marks, "marks")?;
        m.marks = a[0];
        Ok(UNSPECIFIED)
    }),
    ("%make-marks", 3, 3, |m, a| Ok(m.heap.make(Tag::Marks, a))),
    ("%mark", 2, 2, |m, a| {
        m.expect(a[0], Tag::Marks, "marks")?;
        let at = m.index(a[1], 3)?;
        Ok(m.heap.field(a[0], at + 1))
    }),
    ("%continuation?", 1, 1, |m, a| Ok(truth(m.heap.tag(a[0]) == Some(Tag::Continuation)))),
    ("%continuation-marks", 1, 1, |m, a| {
        m.expect(a[0], Tag::Continuation, "a continuation")?;
        let marks = m.heap.field(a[0], 2);
        Ok(if marks == NIL { m.heap.make(Tag::Marks, &[NIL; 3]) } else { marks })
    }),
    ("%make-record-type", 2, 2, |m, a| {
        let number = type_number(m, a[0], a[1]);
        Ok(m.heap.make(Tag::RecordType, &[a[0], a[1], number]))
    }),
    ("%record", 1, ANY, |m, a| {
        m.expect(a[0], Tag::RecordType, "a record type")?;
        Ok(m.heap.make(Tag::Record, a))
    }),
    ("%record-ref", 3, 3, |m, a| {
        if !is_record(m, a[0], a[1]) {
            let name = as_symbol(m.heap.field(a[1], 1)).map(|name| m.commons.program.symbols.text(name).to_string());
            return Err(wrong_type(&format!("a record of type {}", name.unwrap_or_default()), a[0]));
        }
        let at = m.index(a[2], m.heap.fields(a[0]).len())?;
        Ok(m.heap.field(a[0], at + 1))
    }),
    ("%record-is", 2, 2, |m, a| Ok(truth(is_record(m, a[0], a[1])))),
    ("record?", 1, 1, |m, a| Ok(truth(m.heap.tag(a[0]) == Some(Tag::Record)))),
    ("record-update", 3, ANY, record_update),
    ("%condition", 3, 3, |m, a| Ok(m.heap.make(Tag::Condition, &[a[0], a[1], a[2], fixnum(-1)]))),
    ("error-object?", 1, 1, |m, a| Ok(truth(m.heap.tag(a[0]) == Some(Tag::Condition)))),
    ("error-object-kind", 1, 1, |m, a| condition_field(m, a[0], 1)),
    ("error-object-message", 1, 1, |m, a| condition_field(m, a[0], 2)),
    ("error-object-irritants", 1, 1, |m, a| condition_field(m, a[0], 3)),
    ("%make-parameter", 2, 2, |m, a| {
        let number = fixnum(m.commons.program.new_number());
        Ok(m.heap.make(Tag::Parameter, &[a[0], a[1], number]))
    }),
    ("%parameter?", 1, 1, |m, a| Ok(truth(m.heap.tag(a[0]) == Some(Tag::Parameter)))),
    ("%parameter-field", 2, 2, |m, a| {
        m.expect(a[0], Tag::Parameter, "a parameter")?;
        let at = m.index(a[1], 3)?;
        Ok(m.heap.field(a[0], at + 1))
    }),
    ("%make-cell", 0, 0, |m, _| Ok(m.heap.make(Tag::Cell, &[UNSET]))),
    ("%cell?", 1, 1, |m, a| Ok(truth(m.heap.tag(a[0]) == Some(Tag::Cell)))),
    ("%cell-full?", 1, 1, |m, a| {
        m.expect(a[0], Tag::Cell, "a cell")?;
        Ok(truth(m.heap.field(a[0], 1) != UNSET))
    }),
    ("%cell-value", 1, 1, |m, a| {
        m.expect(a[0], Tag::Cell, "a cell")?;
        match m.heap.field(a[0], 1) {
            UNSET => Err(wrong_type("a cell with a value", a[0])),
            value => Ok(value),
        }
    }),
    // The first value stays.
    ("%fill-cell", 2, 2, |m, a| {
        m.expect(a[0], Tag::Cell, "a cell")?;
        if m.heap.field(a[0], 1) == UNSET {
            m.heap.write_cell(a[0], a[1]);
        }
        Ok(UNSPECIFIED)
    }),
    ("value->bytes", 1, 1, |m, a| {
        let image = m.write(a[0]).map_err(|error| Fail::Raise("image", error.to_string(), vec![a[0]]))?;
        m.charge += image.len() as u64 / 16;
        m.heap.reserve(image.len() / 8)?;
        Ok(m.heap.bytes(&image))
    }),
    ("bytes->value", 1, 1, |m, a| {
        let image = m.bytes_argument(a[0])?;
        m.charge += image.len() as u64 / 16;
        m.read(&image).map_err(|error| Fail::Raise("image", error.to_string(), vec![]))
    }),
    ("%environment", 0, 0, |m, _| Ok(m.heap.make(Tag::Environment, &[NIL]))),
    ("%exit", 1, 1, |_, a| {
        let code = match a[0] {
            TRUE => 0,
            FALSE => 1,
            word if is_fixnum(word) => fixnum_value(word) as u8,
            _ => 1,
        };
        Err(Fail::End(Error::Exit(code)))
    }),
    ("features", 0, 0, |m, _| {
        let names: Vec<Word> = FEATURES.iter().map(|name| symbol(m.commons.program.symbols.intern(name))).collect();
        m.put_list(&names)
    }),
    ("current-jiffy", 0, 0, |m, _| {
        let number = Number::from_i64(crate::clock::since_start().as_micros() as i64);
        Ok(value::of_number(&mut m.heap, &number))
    }),
    ("current-second", 0, 0, |m, _| {
        Ok(value::of_number(&mut m.heap, &Number::Flo(crate::clock::since_epoch().as_secs_f64())))
    }),
];

pub(super) fn is_procedure(machine: &Machine, word: Word) -> bool {
    matches!(machine.heap.tag(word), Some(Tag::Closure | Tag::Continuation | Tag::Parameter))
}

/// What tells a type from others: its name and fields, so that it is the same on every machine.
fn type_number(machine: &Machine, name: Word, fields: Word) -> Word {
    let text =
        |word| print::value(&machine.heap, &machine.commons.program.symbols, word, Style::Write, print::TEXT_MAX);
    let hash = Sha256::digest(format!("{} {}", text(name), text(fields)));
    let bytes = hash.as_slice().first_chunk::<8>().expect("a hash has 32 bytes");
    fixnum((u64::from_le_bytes(*bytes) >> 5) as i64)
}

fn is_record(machine: &Machine, record: Word, kind: Word) -> bool {
    let heap = &machine.heap;
    heap.tag(record) == Some(Tag::Record)
        && heap.tag(kind) == Some(Tag::RecordType)
        && heap.field(heap.field(record, 1), 3) == heap.field(kind, 3)
}

/// `(record-update record 'field value ...)`: a record with other values in these fields.
fn record_update(machine: &mut Machine, arguments: &[Word]) -> Result {
    let record = arguments[0];
    machine.expect(record, Tag::Record, "a record")?;
    let mut fields = machine.heap.fields(record).to_vec();
    let names = machine.heap.field(fields[0], 2);
    let names = machine.heap.fields(names).to_vec();
    let (pairs, odd) = arguments[1..].as_chunks::<2>();
    if !odd.is_empty() {
        return Err(wrong_type("a field and its value, got only", odd[0]));
    }
    for [name, value] in pairs {
        let at =
            names.iter().position(|known| known == name).ok_or_else(|| wrong_type("a field of the record", *name))?;
        *fields.get_mut(at + 1).ok_or_else(|| wrong_type("a field of the record", *name))? = *value;
    }
    Ok(machine.heap.make(Tag::Record, &fields))
}

fn condition_field(machine: &Machine, condition: Word, at: usize) -> Result {
    machine.expect(condition, Tag::Condition, "an error object")?;
    machine.heap.fields(condition).get(at - 1).copied().ok_or_else(|| out_of_range(fixnum(at as i64), 3))
}

impl Machine {
    /// An error object.
    pub(in super::super) fn condition(&mut self, kind: &str, message: &str, irritants: &[Word], place: i64) -> Word {
        let kind = symbol(self.commons.program.symbols.intern(kind));
        let message = self.heap.string(message);
        let irritants = self.heap.list(irritants, NIL);
        self.heap.make(Tag::Condition, &[kind, message, irritants, fixnum(place)])
    }

    /// The error of an object that no handler took.
    pub(in super::super) fn raised(&self, object: Word) -> Error {
        let show = |word, style| print::value(&self.heap, &self.commons.program.symbols, word, style, ERROR_MAX);
        let (text, place) = if self.heap.tag(object) == Some(Tag::Condition) {
            let mut text = show(self.heap.field(object, 2), Style::Display);
            let mut irritants = self.heap.field(object, 3);
            while irritants & crate::heap::word::TAG_MASK == crate::heap::word::PAIR {
                text.push(' ');
                text += &show(self.heap.car(irritants), Style::Write);
                irritants = self.heap.cdr(irritants);
            }
            (text, usize::try_from(fixnum_value(self.heap.field(object, 4))).ok())
        } else {
            (format!("uncaught object: {}", show(object, Style::Write)), None)
        };
        let trace = place.and_then(|pc| self.commons.program.index.place(pc)).into_iter().collect();
        Error::Raised(Box::new(Raised { text, trace }))
    }

    pub(in super::super) fn raised_text(&self, message: &str, irritants: &[Word]) -> Error {
        let mut text = message.to_owned();
        for irritant in irritants {
            text.push(' ');
            text += &print::value(&self.heap, &self.commons.program.symbols, *irritant, Style::Write, ERROR_MAX);
        }
        Error::Raised(Box::new(Raised { text, trace: self.trace(Some(self.pc.saturating_sub(1))) }))
    }

    /// Adds the calls that are running to an error.
    pub(in super::super) fn with_trace(&self, error: Error) -> Error {
        let Error::Raised(mut raised) = error else { return error };
        for place in self.trace(None) {
            if raised.trace.last() != Some(&place) {
                raised.trace.push(place);
            }
        }
        Error::Raised(raised)
    }
}
