//! Characters, strings, symbols.

use std::cmp::Ordering;

use super::super::fail::{Fail, Result, out_of_range, wrong_type};
use super::super::machine::Machine;
use super::super::run::truth;
use super::{ANY, Row};
use crate::heap::Tag;
use crate::heap::word::{Word, as_character, as_symbol, character, fixnum, fixnum_value, is_fixnum, symbol};
use crate::names::Symbols;

pub(super) const TABLE: &[Row] = &[
    ("char?", 1, 1, |_, a| Ok(truth(as_character(a[0]).is_some()))),
    ("symbol?", 1, 1, |_, a| Ok(truth(as_symbol(a[0]).is_some()))),
    ("string?", 1, 1, |m, a| Ok(truth(m.heap.tag(a[0]) == Some(Tag::String)))),
    ("char->integer", 1, 1, |_, a| Ok(fixnum(i64::from(char_argument(a[0])? as u32)))),
    ("integer->char", 1, 1, |_, a| {
        let code = if is_fixnum(a[0]) { u32::try_from(fixnum_value(a[0])).ok() } else { None };
        code.and_then(char::from_u32).map(character).ok_or_else(|| wrong_type("the number of a character", a[0]))
    }),
    ("char-upcase", 1, 1, |_, a| Ok(character(single(char_argument(a[0])?, char_argument(a[0])?.to_uppercase())))),
    ("char-downcase", 1, 1, |_, a| Ok(character(single(char_argument(a[0])?, char_argument(a[0])?.to_lowercase())))),
    ("char-foldcase", 1, 1, |_, a| Ok(character(single(char_argument(a[0])?, char_argument(a[0])?.to_lowercase())))),
    ("char-alphabetic?", 1, 1, |_, a| Ok(truth(char_argument(a[0])?.is_alphabetic()))),
    ("char-numeric?", 1, 1, |_, a| Ok(truth(char_argument(a[0])?.is_numeric()))),
    ("char-whitespace?", 1, 1, |_, a| Ok(truth(char_argument(a[0])?.is_whitespace()))),
    ("char-upper-case?", 1, 1, |_, a| Ok(truth(char_argument(a[0])?.is_uppercase()))),
    ("char-lower-case?", 1, 1, |_, a| Ok(truth(char_argument(a[0])?.is_lowercase()))),
    ("digit-value", 1, 1, |_, a| Ok(digit_value(char_argument(a[0])?).map_or(truth(false), fixnum))),
    ("char=?", 1, ANY, |_, a| chars(a, |o| o == Ordering::Equal)),
    ("char<?", 1, ANY, |_, a| chars(a, |o| o == Ordering::Less)),
    ("char>?", 1, ANY, |_, a| chars(a, |o| o == Ordering::Greater)),
    ("char<=?", 1, ANY, |_, a| chars(a, |o| o != Ordering::Greater)),
    ("char>=?", 1, ANY, |_, a| chars(a, |o| o != Ordering::Less)),
    ("string=?", 1, ANY, |m, a| strings(m, a, |o| o == Ordering::Equal)),
    ("string<?", 1, ANY, |m, a| strings(m, a, |o| o == Ordering::Less)),
    ("string>?", 1, ANY, |m, a| strings(m, a, |o| o == Ordering::Greater)),
    ("string<=?", 1, ANY, |m, a| strings(m, a, |o| o != Ordering::Greater)),
    ("string>=?", 1, ANY, |m, a| strings(m, a, |o| o != Ordering::Less)),
    ("string-length", 1, 1, |m, a| {
        m.expect(a[0], Tag::String, "a string")?;
        Ok(fixnum(m.heap.string_lengths(a[0]).1 as i64))
    }),
    ("string-ref", 2, 2, string_ref),
    ("string-append", 0, ANY, |m, a| {
        let texts = a.iter().map(|word| m.text_argument(*word)).collect::<Result<Vec<_>>>()?;
        m.put_string(&texts.concat())
    }),
    ("make-string", 1, 2, |m, a| {
        let count = m.size_argument(a[0])?;
        let fill = a.get(1).map_or(Ok(' '), |word| char_argument(*word))?;
        m.heap.reserve(count * fill.len_utf8() / 8)?;
        m.put_string(&fill.to_string().repeat(count))
    }),
    ("string", 0, ANY, |m, a| {
        let text = a.iter().map(|word| char_argument(*word)).collect::<Result<String>>()?;
        m.put_string(&text)
    }),
    ("%substring", 3, 3, |m, a| {
        let text = m.text_argument(a[0])?;
        let (start, end) = m.range(a[1], a[2], m.heap.string_lengths(a[0]).1)?;
        let part: String = text.chars().skip(start).take(end - start).collect();
        m.put_string(&part)
    }),
    ("%string->list", 3, 3, |m, a| {
        let text = m.text_argument(a[0])?;
        let (start, end) = m.range(a[1], a[2], m.heap.string_lengths(a[0]).1)?;
        let items: Vec<Word> = text.chars().skip(start).take(end - start).map(character).collect();
        m.put_list(&items)
    }),
    ("list->string", 1, 1, |m, a| {
        let items = m.list_argument(a[0])?;
        let text = items.iter().map(|word| char_argument(*word)).collect::<Result<String>>()?;
        m.put_string(&text)
    }),
    ("string-upcase", 1, 1, |m, a| {
        let text = m.text_argument(a[0])?;
        m.put_string(&text.to_uppercase())
    }),
    ("string-downcase", 1, 1, |m, a| {
        let text = m.text_argument(a[0])?;
        m.put_string(&text.to_lowercase())
    }),
    ("string-foldcase", 1, 1, |m, a| {
        let text = m.text_argument(a[0])?;
        // Upper case first: several small letters have one capital in common.
        m.put_string(&text.to_uppercase().to_lowercase().replace('ς', "σ"))
    }),
    ("%string->utf8", 3, 3, |m, a| {
        let text = m.text_argument(a[0])?;
        let (start, end) = m.range(a[1], a[2], m.heap.string_lengths(a[0]).1)?;
        let part: String = text.chars().skip(start).take(end - start).collect();
        Ok(m.heap.bytes(part.as_bytes()))
    }),
    ("%utf8->string", 3, 3, |m, a| {
        let bytes = m.bytes_argument(a[0])?;
        let (start, end) = m.range(a[1], a[2], bytes.len())?;
        match std::str::from_utf8(&bytes[start..end]) {
            Ok(text) => m.put_string(text),
            Err(_) => Err(Fail::Raise("type", "the bytes are no UTF-8:".into(), vec![a[0]])),
        }
    }),
    ("symbol->string", 1, 1, |m, a| {
        let name = as_symbol(a[0]).ok_or_else(|| wrong_type("a symbol", a[0]))?;
        let text = m.commons.program.symbols.text(name).clone();
        Ok(m.heap.string(&text))
    }),
    ("string->symbol", 1, 1, |m, a| {
        let text = m.text_argument(a[0])?;
        if m.commons.program.symbols.len() >= Symbols::COUNT_MAX {
            return Err(Fail::Raise("limit", "too many symbols".into(), vec![]));
        }
        Ok(symbol(m.commons.program.symbols.intern(&text)))
    }),
];

pub(super) fn char_argument(word: Word) -> Result<char> {
    as_character(word).ok_or_else(|| wrong_type("a character", word))
}

/// The one character of another case; where it is several, the character itself.
fn single(itself: char, mut other: impl Iterator<Item = char>) -> char {
    match (other.next(), other.next()) {
        (Some(only), None) => only,
        _ => itself,
    }
}

/// The value of a decimal digit of any script: Unicode keeps each script's ten in one row.
fn digit_value(digit: char) -> Option<i64> {
    const ZEROS: [u32; 24] = [
        0x30, 0x660, 0x6f0, 0x7c0, 0x966, 0x9e6, 0xa66, 0xae6, 0xb66, 0xbe6, 0xc66, 0xce6, 0xd66, 0xe50, 0xed0, 0xf20,
        0x1040, 0x17e0, 0x1810, 0x1946, 0x19d0, 0x1b50, 0xff10, 0x104a0,
    ];
    let code = digit as u32;
    ZEROS.iter().find(|zero| (**zero..**zero + 10).contains(&code)).map(|zero| i64::from(code - zero))
}

fn chars(arguments: &[Word], holds: fn(Ordering) -> bool) -> Result {
    let values = arguments.iter().map(|word| char_argument(*word)).collect::<Result<Vec<_>>>()?;
    Ok(truth(values.windows(2).all(|pair| holds(pair[0].cmp(&pair[1])))))
}

fn strings(machine: &mut Machine, arguments: &[Word], holds: fn(Ordering) -> bool) -> Result {
    let values = arguments.iter().map(|word| machine.text_argument(*word)).collect::<Result<Vec<_>>>()?;
    Ok(truth(values.windows(2).all(|pair| holds(pair[0].cmp(&pair[1])))))
}

fn string_ref(machine: &mut Machine, arguments: &[Word]) -> Result {
    let [text, index] = *arguments else { unreachable!("two arguments") };
    machine.expect(text, Tag::String, "a string")?;
    let (bytes, count) = machine.heap.string_lengths(text);
    let at = machine.index(index, count)?;
    if bytes == count {
        return Ok(character(char::from(machine.heap.byte_at(text, at))));
    }
    machine.charge += bytes as u64 / 256;
    let found = machine.heap.text(text).chars().nth(at);
    found.map(character).ok_or_else(|| out_of_range(index, count))
}

impl Machine {
    /// Checks the kind of an object.
    pub(in super::super) fn expect(&self, word: Word, tag: Tag, expected: &str) -> Result<()> {
        if self.heap.tag(word) == Some(tag) { Ok(()) } else { Err(wrong_type(expected, word)) }
    }

    pub(in super::super) fn text_argument(&mut self, word: Word) -> Result<String> {
        self.expect(word, Tag::String, "a string")?;
        let text = self.heap.text(word);
        self.charge += text.len() as u64 / 256;
        Ok(text)
    }

    pub(in super::super) fn put_string(&mut self, text: &str) -> Result {
        self.charge += text.len() as u64 / 256;
        if text.len() > u32::MAX as usize {
            return Err(Fail::Full);
        }
        self.heap.reserve(text.len() / 8 + 3)?;
        Ok(self.heap.string(text))
    }

    /// An index below `count`.
    pub(super) fn index(&self, word: Word, count: usize) -> Result<usize> {
        let at = if is_fixnum(word) { usize::try_from(fixnum_value(word)).ok() } else { None };
        match at {
            Some(at) if at < count => Ok(at),
            _ => Err(out_of_range(word, count.saturating_sub(1))),
        }
    }

    /// Start and end of a part; an end of false is the whole.
    pub(super) fn range(&self, start: Word, end: Word, count: usize) -> Result<(usize, usize)> {
        let start_at = self.index(start, count + 1)?;
        let end_at = if end == truth(false) { count } else { self.index(end, count + 1)? };
        if start_at > end_at { Err(out_of_range(start, end_at)) } else { Ok((start_at, end_at)) }
    }

    /// A number of items to make.
    pub(super) fn size_argument(&self, word: Word) -> Result<usize> {
        let count = if is_fixnum(word) { usize::try_from(fixnum_value(word)).ok() } else { None };
        let count = count.ok_or_else(|| wrong_type("a size", word))?;
        self.heap.reserve(count / 8)?;
        Ok(count)
    }
}
