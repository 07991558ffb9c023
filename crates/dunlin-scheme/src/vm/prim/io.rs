//! Ports, reading and writing.

use super::super::fail::{Fail, Result};
use super::super::machine::Machine;
use super::super::run::truth;
use super::Row;
use super::text::char_argument;
use crate::heap::Tag;
use crate::heap::word::{EOF, Word, character, fixnum};
use crate::num::is_long;
use crate::print::{self, Style};
use crate::proc::PortKind;
use crate::value;

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
    ("eof-object", 0, 0, |_, _| Ok(EOF)),
    ("eof-object?", 1, 1, |_, a| Ok(truth(a[0] == EOF))),
];

fn show(machine: &mut Machine, arguments: &[Word], style: Style) -> Result {
    if machine.heap.tag(arguments[0]) == Some(Tag::Bignum)
        && value::number(&machine.heap, arguments[0]).is_some_and(|number| is_long(&number))
    {
        return Err(Fail::Call("%show-long", arguments.to_vec()));
    }
    let text = print::within(&machine.heap, &machine.commons.program.symbols, arguments[0], style, print::TEXT_MAX);
    let too_long = |_| Fail::Raise("limit", format!("the text is longer than {} bytes", print::TEXT_MAX), vec![]);
    let text = text.map_err(too_long)?;
    machine.charge += text.len() as u64 / 16;
    machine.heap.reserve(text.len() / 8)?;
    machine.print(arguments[1], &text)
}
