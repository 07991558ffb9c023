//! Ports, reading and writing.

use std::sync::Arc;

use super::super::fail::{Fail, Result, wrong_type};
use super::super::machine::Machine;
use super::super::port::{Port, PortKind};
use super::super::run::truth;
use super::Row;
use super::text::char_argument;
use crate::heap::Tag;
use crate::heap::word::{EOF, UNSPECIFIED, Word, character, fixnum, fixnum_value, is_fixnum};
use crate::print::{self, Style};
use crate::read::Reader;
use crate::value;

pub(super) const TABLE: &[Row] = &[
    ("%console", 0, 0, |m, _| Ok(m.heap.make(Tag::Port, &[fixnum(0)]))),
    ("%display", 2, 2, |m, a| show(m, a, Style::Display)),
    ("%write", 2, 2, |m, a| show(m, a, Style::Write)),
    ("%write-shared", 2, 2, |m, a| show(m, a, Style::Shared)),
    ("%write-char", 2, 2, |m, a| {
        let text = char_argument(a[0])?.to_string();
        m.print(a[1], &text)
    }),
    ("%write-string", 2, 2, |m, a| {
        let text = m.text_argument(a[0])?;
        m.print(a[1], &text)
    }),
    ("%write-bytes", 2, 2, |m, a| {
        let bytes = m.bytes_argument(a[0])?;
        match &mut m.port(a[1])?.kind {
            PortKind::BytesOut(out) => out.extend_from_slice(&bytes),
            _ => return Err(wrong_type("a binary output port", a[1])),
        }
        Ok(UNSPECIFIED)
    }),
    ("open-input-string", 1, 1, |m, a| {
        let text: Arc<str> = m.text_argument(a[0])?.into();
        m.open(PortKind::TextIn { text, at: 0 })
    }),
    ("open-input-bytevector", 1, 1, |m, a| {
        let bytes = m.bytes_argument(a[0])?;
        m.open(PortKind::BytesIn(bytes.into()))
    }),
    ("open-output-string", 0, 0, |m, _| m.open(PortKind::TextOut(String::new()))),
    ("open-output-bytevector", 0, 0, |m, _| m.open(PortKind::BytesOut(Vec::new()))),
    ("get-output-string", 1, 1, |m, a| {
        let text = match &m.any_port(a[0])?.kind {
            PortKind::TextOut(text) => text.clone(),
            _ => return Err(wrong_type("a string output port", a[0])),
        };
        m.put_string(&text)
    }),
    ("get-output-bytevector", 1, 1, |m, a| {
        let bytes = match &m.any_port(a[0])?.kind {
            PortKind::BytesOut(bytes) => bytes.clone(),
            _ => return Err(wrong_type("a bytevector output port", a[0])),
        };
        Ok(m.heap.bytes(&bytes))
    }),
    ("%read", 1, 1, read),
    ("%read-char", 1, 1, |m, a| Ok(m.take_char(a[0], true)?.map_or(EOF, character))),
    ("%peek-char", 1, 1, |m, a| Ok(m.take_char(a[0], false)?.map_or(EOF, character))),
    ("%read-u8", 1, 1, |m, a| Ok(bytes_in(m, a[0])?.pop_front().map_or(EOF, |byte| fixnum(byte.into())))),
    ("%peek-u8", 1, 1, |m, a| Ok(bytes_in(m, a[0])?.front().map_or(EOF, |byte| fixnum((*byte).into())))),
    ("port?", 1, 1, |m, a| Ok(truth(m.heap.tag(a[0]) == Some(Tag::Port)))),
    ("%port-input?", 1, 1, |m, a| Ok(truth(m.any_port(a[0])?.is_input()))),
    ("%port-textual?", 1, 1, |m, a| Ok(truth(m.any_port(a[0])?.is_textual()))),
    ("%port-open?", 1, 1, |m, a| Ok(truth(m.any_port(a[0])?.is_open))),
    ("close-port", 1, 1, |m, a| {
        m.any_port(a[0])?.is_open = false;
        Ok(UNSPECIFIED)
    }),
    ("eof-object", 0, 0, |_, _| Ok(EOF)),
    ("eof-object?", 1, 1, |_, a| Ok(truth(a[0] == EOF))),
];

fn show(machine: &mut Machine, arguments: &[Word], style: Style) -> Result {
    let text = print::within(&machine.heap, &machine.commons.program.symbols, arguments[0], style, print::TEXT_MAX);
    let too_long = |_| Fail::Raise("limit", format!("the text is longer than {} bytes", print::TEXT_MAX), vec![]);
    let text = text.map_err(too_long)?;
    machine.charge += text.len() as u64 / 16;
    machine.heap.reserve(text.len() / 8)?;
    machine.print(arguments[1], &text)
}

fn read(machine: &mut Machine, arguments: &[Word]) -> Result {
    let (text, at) = match &machine.port(arguments[0])?.kind {
        PortKind::TextIn { text, at } => (text.clone(), *at),
        _ => return Err(wrong_type("a textual input port", arguments[0])),
    };
    let mut reader = Reader::new(&text[at..], &"input".into());
    let datum = reader.next(&mut machine.commons.program.symbols);
    let end = at + reader.offset();
    machine.charge += (end - at) as u64 / 8;
    if let PortKind::TextIn { at, .. } = &mut machine.port(arguments[0])?.kind {
        *at = end;
    }
    let datum = match datum {
        Ok(Some(datum)) => datum,
        Ok(None) => return Ok(EOF),
        Err(error) => return Err(Fail::Raise("read", error.to_string(), vec![])),
    };
    machine.heap.reserve(2 * (end - at))?;
    value::of_datum(&mut machine.heap, &datum)
        .map_err(|label| Fail::Raise("read", format!("no datum has label #{label}="), vec![]))
}

fn bytes_in(machine: &mut Machine, port: Word) -> Result<&mut std::collections::VecDeque<u8>> {
    match &mut machine.port(port)?.kind {
        PortKind::BytesIn(bytes) => Ok(bytes),
        _ => Err(wrong_type("a binary input port", port)),
    }
}

/// Ports that one machine may open.
const PORTS_MAX: usize = 1 << 20;

impl Machine {
    fn open(&mut self, kind: PortKind) -> Result {
        if self.commons.program.ports.len() >= PORTS_MAX {
            return Err(Fail::Raise("limit", "too many ports".into(), vec![]));
        }
        self.commons.program.ports.push(Port::new(kind));
        let number = fixnum(self.commons.program.ports.len() as i64 - 1);
        Ok(self.heap.make(Tag::Port, &[number]))
    }

    fn any_port(&mut self, word: Word) -> Result<&mut Port> {
        if self.heap.tag(word) != Some(Tag::Port) {
            return Err(wrong_type("a port", word));
        }
        let number = self.heap.field(word, 1);
        let number = if is_fixnum(number) { usize::try_from(fixnum_value(number)).ok() } else { None };
        let gone = || Fail::Raise("port", "the port is not of this machine".into(), vec![word]);
        self.commons.program.ports.get_mut(number.ok_or_else(gone)?).ok_or_else(gone)
    }

    fn port(&mut self, word: Word) -> Result<&mut Port> {
        match self.any_port(word)? {
            port if port.is_open => Ok(port),
            _ => Err(Fail::Raise("port", "the port is closed".into(), vec![word])),
        }
    }

    fn print(&mut self, port: Word, text: &str) -> Result {
        match &mut self.port(port)?.kind {
            PortKind::TextOut(out) => out.push_str(text),
            PortKind::Console => self.commons.output.push_str(text),
            _ => return Err(wrong_type("a textual output port", port)),
        }
        Ok(UNSPECIFIED)
    }

    fn take_char(&mut self, port: Word, advance: bool) -> Result<Option<char>> {
        match &mut self.port(port)?.kind {
            PortKind::TextIn { text, at } => {
                let next = text[*at..].chars().next();
                if advance {
                    *at += next.map_or(0, char::len_utf8);
                }
                Ok(next)
            }
            _ => Err(wrong_type("a textual input port", port)),
        }
    }
}
