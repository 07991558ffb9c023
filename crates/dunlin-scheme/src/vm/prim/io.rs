//! Ports, reading and writing.

use super::super::fail::{Fail, Result, wrong_type};
use super::super::machine::Machine;
use super::super::run::truth;
use super::Row;
use super::text::char_argument;
use crate::heap::Tag;
use crate::heap::word::{EOF, NIL, PAIR, TAG_MASK, Word, character, fixnum};
use crate::print::{self, Style, Texts, Unshown};
use crate::proc::PortKind;

pub(super) const TABLE: &[Row] = &[
    ("%console", 0, 0, |m, _| Ok(m.console())),
    ("%no-input", 0, 0, |m, _| Ok(m.no_input())),
    ("%display", 2, 2, |m, a| show(m, a, Style::Display)),
    ("%write", 2, 2, |m, a| show(m, a, Style::Write)),
    ("%write-shared", 2, 2, |m, a| show(m, a, Style::Shared)),
    ("%write-char", 2, 2, |m, a| {
        let char = char_argument(a[0])?;
        m.print(a[1], char.encode_utf8(&mut [0; 4]))
    }),
    ("%write-string", 2, 2, |m, a| {
        let text = m.text_argument(a[0])?;
        m.print(a[1], &text)
    }),
    ("%write-bytes", 2, 2, |m, a| {
        let bytes = m.bytes_argument(a[0])?;
        m.print_bytes(a[1], &bytes)
    }),
    ("open-input-string", 1, 1, |m, a| {
        let text = m.text_argument(a[0])?;
        m.open(PortKind::TextIn(text.into(), 0))
    }),
    ("open-input-bytevector", 1, 1, |m, a| {
        let bytes = m.bytes_argument(a[0])?;
        m.open(PortKind::BytesIn(bytes, 0))
    }),
    ("open-output-string", 0, 0, |m, _| m.open(PortKind::TextOut(String::new()))),
    ("open-output-bytevector", 0, 0, |m, _| m.open(PortKind::BytesOut(Vec::new()))),
    ("get-output-string", 1, 1, |m, a| {
        let text = m.written_text(a[0])?;
        m.put_string(&text)
    }),
    ("get-output-bytevector", 1, 1, |m, a| {
        let bytes = m.written_bytes(a[0])?;
        m.heap.reserve(bytes.len() / 8)?;
        Ok(m.heap.bytes(&bytes))
    }),
    ("%read", 1, 1, |m, a| m.read_datum(a[0])),
    ("%read-char", 1, 1, |m, a| Ok(m.take_char(a[0], true)?.map_or(EOF, character))),
    ("%peek-char", 1, 1, |m, a| Ok(m.take_char(a[0], false)?.map_or(EOF, character))),
    ("%read-u8", 1, 1, |m, a| Ok(m.take_byte(a[0], true)?.map_or(EOF, |byte| fixnum(byte.into())))),
    ("%peek-u8", 1, 1, |m, a| Ok(m.take_byte(a[0], false)?.map_or(EOF, |byte| fixnum(byte.into())))),
    ("port?", 1, 1, |m, a| Ok(truth(m.heap.tag(a[0]) == Some(Tag::Port)))),
    ("%port-input?", 1, 1, |m, a| Ok(truth(m.is_input(a[0])?))),
    ("%port-textual?", 1, 1, |m, a| Ok(truth(m.is_textual(a[0])?))),
    ("%port-open?", 1, 1, |m, a| Ok(truth(m.is_open(a[0])?))),
    ("port-process", 1, 1, |m, a| m.port_process(a[0])),
    ("close-port", 1, 1, |m, a| m.close(a[0])),
    ("%show-long", 4, 4, show_long),
    ("eof-object", 0, 0, |_, _| Ok(EOF)),
    ("eof-object?", 1, 1, |_, a| Ok(truth(a[0] == EOF))),
];

fn show(machine: &mut Machine, arguments: &[Word], style: Style) -> Result {
    show_with(machine, arguments[0], arguments[1], style, &Texts::new())
}

/// The texts of long numbers were computed elsewhere: a list of pairs has them.
fn show_long(machine: &mut Machine, arguments: &[Word]) -> Result {
    let &[style, object, port, mut pairs] = arguments else { return Err(wrong_type("four arguments", NIL)) };
    let style = STYLES.into_iter().find(|known| fixnum(*known as i64) == style);
    let style = style.ok_or_else(|| wrong_type("a style", arguments[0]))?;
    let mut texts = Texts::new();
    while pairs & TAG_MASK == PAIR {
        let pair = machine.heap.car(pairs);
        if pair & TAG_MASK != PAIR {
            return Err(wrong_type("a pair", pair));
        }
        texts.insert(machine.heap.car(pair), machine.text_argument(machine.heap.cdr(pair))?);
        pairs = machine.heap.cdr(pairs);
    }
    show_with(machine, object, port, style, &texts)
}

const STYLES: [Style; 3] = [Style::Display, Style::Write, Style::Shared];

fn show_with(machine: &mut Machine, object: Word, port: Word, style: Style, texts: &Texts) -> Result {
    let symbols = &machine.commons.program.symbols;
    let text = match print::shown(&machine.heap, symbols, object, style, print::TEXT_MAX, texts) {
        Ok(text) => text,
        Err(Unshown::TooLong) => {
            let message = format!("the text is longer than {} bytes", print::TEXT_MAX);
            return Err(Fail::Raise("limit", message, vec![]));
        }
        Err(Unshown::Numbers(numbers)) if texts.is_empty() => {
            let numbers = machine.heap.list(&numbers, NIL);
            return Err(Fail::Call("%show-numbers", vec![fixnum(style as i64), object, port, numbers]));
        }
        // Others than those that were computed: a number was exchanged for a copy meanwhile.
        Err(Unshown::Numbers(_)) => print::value(&machine.heap, symbols, object, style, print::TEXT_MAX),
    };
    machine.charge += text.len() as u64 / 16;
    machine.heap.reserve(text.len() / 8)?;
    machine.print(port, &text)
}
