//! Data and values as text.

use std::collections::HashMap;
use std::fmt::Write;

use crate::datum::{Datum, Kind};
use crate::heap::word::{
    self, CLOSURE, EOF, FALSE, NIL, OBJECT, PAIR, TAG_MASK, TRUE, UNSET, Word, as_character, as_end, as_pid, as_symbol,
    as_tag, fixnum_value,
};
use crate::heap::{Heap, Tag};
use crate::names::Symbols;
use crate::num::{Number, is_long};
use crate::read::CHARACTER_NAMES;
use crate::value;

/// How a value is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Style {
    /// For people: strings and characters as they are.
    Display,
    /// As the reader reads it; labels where a value contains itself.
    Write,
    /// The same, with labels for all that is shared.
    Shared,
}

/// A datum as `write` shows it.
pub(crate) fn datum(datum: &Datum, symbols: &Symbols) -> String {
    let mut text = String::new();
    put_datum(datum, symbols, &mut text);
    text
}

fn put_datum(datum: &Datum, symbols: &Symbols, out: &mut String) {
    match &datum.kind {
        Kind::Bool(value) => out.push_str(if *value { "#t" } else { "#f" }),
        Kind::Char(value) => put_char(*value, out),
        Kind::Number(value) => out.push_str(&value.to_text(10)),
        Kind::String(text) => put_string(text, out),
        Kind::Symbol(name) => put_symbol(symbols.text(*name), out),
        Kind::List(items, tail) => {
            put_data("(", items, symbols, out);
            if let Some(tail) = tail {
                out.push_str(" . ");
                put_datum(tail, symbols, out);
            }
            out.push(')');
        }
        Kind::Vector(items) => {
            put_data("#(", items, symbols, out);
            out.push(')');
        }
        Kind::Bytes(bytes) => put_bytes(bytes, out),
        Kind::Unspecified => out.push_str("#<unspecified>"),
        Kind::Label(number, inner) => {
            let _ = write!(out, "#{number}=");
            put_datum(inner, symbols, out);
        }
        Kind::Reference(number) => {
            let _ = write!(out, "#{number}#");
        }
    }
}

fn put_data(open: &str, items: &[Datum], symbols: &Symbols, out: &mut String) {
    out.push_str(open);
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push(' ');
        }
        put_datum(item, symbols, out);
    }
}

/// The longest text of one value, in bytes: sharing can make a text of any length from a few objects.
pub(crate) const TEXT_MAX: usize = 1 << 25;

/// A value of the heap, cut where it is longer than `most` bytes.
pub(crate) fn value(heap: &Heap, symbols: &Symbols, word: Word, style: Style, most: usize) -> String {
    within(heap, symbols, word, style, most).unwrap_or_else(|cut| cut + "...")
}

/// A value of the heap. Nesting costs no stack.
///
/// # Errors
/// The first part of a text that is longer than `most` bytes.
pub(crate) fn within(heap: &Heap, symbols: &Symbols, word: Word, style: Style, most: usize) -> Result<String, String> {
    let mut printer = Printer::new(heap, symbols, word, style, None);
    if printer.run(word, most) { Ok(printer.out) } else { Err(printer.out) }
}

/// Why a value is not shown.
pub(crate) enum Unshown {
    TooLong,
    /// The texts of these numbers take long to compute.
    Numbers(Vec<Word>),
}

/// The texts of long numbers.
pub(crate) type Texts = HashMap<Word, String>;

/// A value of the heap, in a time that does not depend on the lengths of its numbers: `texts` has those of
/// long ones.
///
/// # Errors
/// The text is longer than `most` bytes, or needs more of `texts`.
pub(crate) fn shown(
    heap: &Heap,
    symbols: &Symbols,
    word: Word,
    style: Style,
    most: usize,
    texts: &Texts,
) -> Result<String, Unshown> {
    let mut printer = Printer::new(heap, symbols, word, style, Some(texts));
    match printer.run(word, most) {
        _ if !printer.missing.is_empty() => Err(Unshown::Numbers(printer.missing)),
        true => Ok(printer.out),
        false => Err(Unshown::TooLong),
    }
}

fn labels(heap: &Heap, word: Word, style: Style) -> Labels {
    if style == Style::Display || !word::is_pointer(word) {
        if word::is_pointer(word) { shared(heap, word, true) } else { HashMap::new() }
    } else {
        shared(heap, word, style == Style::Write)
    }
}

enum Job {
    Text(&'static str),
    Value(Word),
    /// The rest of a list.
    Rest(Word),
}

/// The label of an object that is met more than once, when it has got one.
type Labels = HashMap<Word, Option<usize>>;

/// The objects that are met again: inside themselves only, or anywhere.
fn shared(heap: &Heap, root: Word, cycles_only: bool) -> Labels {
    enum Step {
        Enter(Word),
        Leave(Word),
    }
    let mut open: HashMap<Word, bool> = HashMap::new();
    let mut labels = Labels::new();
    let mut steps = vec![Step::Enter(root)];
    while let Some(step) = steps.pop() {
        let word = match step {
            Step::Enter(word) => word,
            Step::Leave(word) => {
                open.insert(word, false);
                continue;
            }
        };
        let children: &[Word] = match (word & TAG_MASK, heap.tag(word)) {
            (PAIR, _) => &[heap.car(word), heap.cdr(word)],
            (_, Some(Tag::Vector | Tag::Record | Tag::Values)) => heap.fields(word),
            _ => continue,
        };
        match open.get(&word) {
            Some(is_open) => {
                if *is_open || !cycles_only {
                    labels.insert(word, None);
                }
                continue;
            }
            None => open.insert(word, true),
        };
        steps.push(Step::Leave(word));
        steps.extend(children.iter().rev().filter(|child| word::is_pointer(**child)).map(|child| Step::Enter(*child)));
    }
    labels
}

struct Printer<'a> {
    heap: &'a Heap,
    symbols: &'a Symbols,
    style: Style,
    labels: Labels,
    next_label: usize,
    out: String,
    jobs: Vec<Job>,
    /// If long numbers are not computed: their texts.
    texts: Option<&'a Texts>,
    /// Long numbers without one.
    missing: Vec<Word>,
}

impl<'a> Printer<'a> {
    fn new(heap: &'a Heap, symbols: &'a Symbols, word: Word, style: Style, texts: Option<&'a Texts>) -> Self {
        let labels = labels(heap, word, style);
        let (out, jobs, missing) = (String::new(), Vec::new(), Vec::new());
        Self { heap, symbols, style, labels, next_label: 0, out, jobs, texts, missing }
    }

    /// Writes a value. `false`: its text is longer than that, and cut.
    fn run(&mut self, word: Word, most: usize) -> bool {
        self.jobs.push(Job::Value(word));
        while let Some(job) = self.jobs.pop() {
            match job {
                Job::Text(text) => self.out.push_str(text),
                Job::Value(word) => self.one(word),
                Job::Rest(word) => self.rest(word),
            }
            if self.out.len() > most {
                let end = (0..=most).rev().find(|end| self.out.is_char_boundary(*end)).unwrap_or(0);
                self.out.truncate(end);
                return false;
            }
        }
        true
    }

    fn number(&mut self, word: Word) {
        let number = value::number(self.heap, word).unwrap_or(Number::Fix(0));
        match self.texts {
            Some(texts) if is_long(&number) => match texts.get(&word) {
                Some(text) => self.out.push_str(text),
                None if self.missing.contains(&word) => {}
                None => self.missing.push(word),
            },
            _ => self.out.push_str(&number.to_text(10)),
        }
    }

    /// Writes the label of a shared object; true if that is all there is to write.
    fn label(&mut self, word: Word) -> bool {
        let Some(label) = self.labels.get_mut(&word) else { return false };
        match label {
            Some(number) => {
                let _ = write!(self.out, "#{number}#");
                true
            }
            None => {
                *label = Some(self.next_label);
                let _ = write!(self.out, "#{}=", self.next_label);
                self.next_label += 1;
                false
            }
        }
    }

    fn one(&mut self, word: Word) {
        if self.label(word) {
            return;
        }
        match word & TAG_MASK {
            word::FIXNUM => {
                let _ = write!(self.out, "{}", fixnum_value(word));
            }
            PAIR => self.pair(word),
            CLOSURE => self.out.push_str("#<procedure>"),
            OBJECT => self.object(word),
            _ => self.immediate(word),
        }
    }

    fn immediate(&mut self, word: Word) {
        if let Some(value) = as_character(word) {
            match self.style {
                Style::Display => self.out.push(value),
                _ => put_char(value, &mut self.out),
            }
        } else if let Some(name) = as_symbol(word) {
            match self.style {
                Style::Display => self.out.push_str(self.symbols.text(name)),
                _ => put_symbol(self.symbols.text(name), &mut self.out),
            }
        } else if let Some(number) = as_pid(word) {
            let _ = write!(self.out, "#<process {number}>");
        } else if let Some(number) = as_tag(word) {
            let _ = write!(self.out, "#<tag {number}>");
        } else if let Some(number) = as_end(word) {
            let _ = write!(self.out, "#<{} {number}>", word::end_name(number));
        } else {
            self.out.push_str(match word {
                FALSE => "#f",
                TRUE => "#t",
                NIL => "()",
                EOF => "#<eof>",
                UNSET => "#<unset>",
                _ => "#<unspecified>",
            });
        }
    }

    fn pair(&mut self, word: Word) {
        let rest = self.heap.cdr(word);
        if let Some(keyword) = as_symbol(self.heap.car(word))
            && rest & TAG_MASK == PAIR
            && self.heap.cdr(rest) == NIL
            && !self.labels.contains_key(&rest)
        {
            let prefix = match &**self.symbols.text(keyword) {
                "quote" => "'",
                "quasiquote" => "`",
                "unquote" => ",",
                "unquote-splicing" => ",@",
                _ => "",
            };
            if !prefix.is_empty() {
                self.out.push_str(prefix);
                self.jobs.push(Job::Value(self.heap.car(rest)));
                return;
            }
        }
        self.out.push('(');
        self.jobs.push(Job::Rest(rest));
        self.jobs.push(Job::Value(self.heap.car(word)));
    }

    fn rest(&mut self, word: Word) {
        if word == NIL {
            self.out.push(')');
        } else if word & TAG_MASK == PAIR && !self.labels.contains_key(&word) {
            self.out.push(' ');
            self.jobs.push(Job::Rest(self.heap.cdr(word)));
            self.jobs.push(Job::Value(self.heap.car(word)));
        } else {
            self.out.push_str(" . ");
            self.jobs.push(Job::Text(")"));
            self.jobs.push(Job::Value(word));
        }
    }

    fn object(&mut self, word: Word) {
        let heap = self.heap;
        match heap.tag(word).expect("an object has a header") {
            Tag::Flonum | Tag::Bignum | Tag::Ratio => self.number(word),
            Tag::String => match self.style {
                Style::Display => self.out.push_str(&heap.text(word)),
                _ => put_string(&heap.text(word), &mut self.out),
            },
            Tag::Bytes => put_bytes(&heap.bytes_of(word), &mut self.out),
            Tag::Vector => self.items("#(", heap.fields(word), ")"),
            Tag::Values => self.items("#<values ", heap.fields(word), ">"),
            Tag::Record => {
                let kind = heap.field(word, 1);
                let name = as_symbol(heap.field(kind, 1)).map(|name| self.symbols.text(name).clone());
                let _ = write!(self.out, "#<{}", name.as_deref().unwrap_or("record"));
                self.items(" ", &heap.fields(word)[1..], ">");
            }
            Tag::Condition => {
                self.out.push_str("#<error ");
                self.jobs.push(Job::Text(">"));
                self.jobs.push(Job::Value(heap.field(word, 3)));
                self.jobs.push(Job::Text(" "));
                self.jobs.push(Job::Value(heap.field(word, 2)));
            }
            Tag::Closure | Tag::Continuation | Tag::Parameter => self.out.push_str("#<procedure>"),
            Tag::Cell => self.out.push_str("#<promise>"),
            Tag::RecordType => self.out.push_str("#<record-type>"),
            Tag::Port => self.out.push_str("#<port>"),
            Tag::Environment => self.out.push_str("#<environment>"),
            Tag::Frame | Tag::Marks => self.out.push_str("#<internal>"),
        }
    }

    fn items(&mut self, open: &str, items: &[Word], close: &'static str) {
        self.out.push_str(open);
        self.jobs.push(Job::Text(close));
        for (at, item) in items.iter().enumerate().rev() {
            self.jobs.push(Job::Value(*item));
            if at > 0 {
                self.jobs.push(Job::Text(" "));
            }
        }
    }
}

fn put_bytes(bytes: &[u8], out: &mut String) {
    out.push_str("#u8(");
    for (at, byte) in bytes.iter().enumerate() {
        if at > 0 {
            out.push(' ');
        }
        let _ = write!(out, "{byte}");
    }
    out.push(')');
}

fn put_char(value: char, out: &mut String) {
    out.push_str("#\\");
    match CHARACTER_NAMES.iter().find(|(_, named)| *named == value) {
        Some((name, _)) => out.push_str(name),
        None if value.is_control() => {
            let _ = write!(out, "x{:x}", value as u32);
        }
        None => out.push(value),
    }
}

fn put_string(text: &str, out: &mut String) {
    out.push('"');
    put_escaped(text, '"', out);
    out.push('"');
}

fn put_escaped(text: &str, end: char, out: &mut String) {
    for next in text.chars() {
        match next {
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            '\x07' => out.push_str("\\a"),
            '\x08' => out.push_str("\\b"),
            '\\' => out.push_str("\\\\"),
            next if next == end => {
                out.push('\\');
                out.push(next);
            }
            next if next.is_control() => {
                let _ = write!(out, "\\x{:x};", next as u32);
            }
            next => out.push(next),
        }
    }
}

fn put_symbol(text: &str, out: &mut String) {
    let plain = !text.is_empty()
        && text != "."
        && !text.starts_with('#')
        && !["+nan.0", "-nan.0", "+inf.0", "-inf.0"].iter().any(|number| text.to_lowercase().starts_with(number))
        && Number::parse(text, 10).is_none()
        && !text.chars().any(|next| {
            next.is_whitespace()
                || next.is_control()
                || matches!(next, '(' | ')' | '"' | ';' | '\'' | '|' | '`' | ',' | '\\')
        });
    if plain {
        out.push_str(text);
    } else {
        out.push('|');
        put_escaped(text, '|', out);
        out.push('|');
    }
}
