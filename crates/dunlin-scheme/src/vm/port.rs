//! What a machine does with ports.
//!
//! The object of a port names its process, and never changes. What is read and written lies in that process,
//! which runs no code: the machine that uses a port carries out what is asked while it has the commons. So a
//! character costs no message.

use std::sync::Arc;

use super::fail::{Fail, Result, wrong_type};
use super::machine::Machine;
use crate::heap::Tag;
use crate::heap::word::{
    EOF, FALSE, NIL, PAIR, TAG_MASK, TRUE, UNSPECIFIED, Word, as_pid, as_symbol, fixnum, fixnum_value, pid,
};
use crate::proc::{Block, Port, PortKind, Process, Wait};
use crate::read::Reader;
use crate::value;

/// In place of a process: what the program prints. The embedder takes it.
const CONSOLE: Word = fixnum(0);
/// In place of a process: what it reads if no other port is named. It is at its end.
const NO_INPUT: Word = fixnum(1);

/// Bits of the kind of a port.
const OUTPUT: i64 = 1;
const BINARY: i64 = 2;

impl Machine {
    pub(super) fn console(&mut self) -> Word {
        self.heap.make(Tag::Port, &[CONSOLE, fixnum(OUTPUT)])
    }

    pub(super) fn no_input(&mut self) -> Word {
        self.heap.make(Tag::Port, &[NO_INPUT, fixnum(0)])
    }

    /// Opens a port. It ends with the process that runs if that was spawned.
    pub(super) fn open(&mut self, kind: PortKind) -> Result {
        if self.commons.table.is_full() {
            return Err(Fail::Raise("limit", "too many processes".into(), vec![]));
        }
        self.charge += kind.len() as u64 / 64;
        let bits = match kind {
            PortKind::TextIn(..) => 0,
            PortKind::BytesIn(..) => BINARY,
            PortKind::TextOut(_) => OUTPUT,
            PortKind::BytesOut(_) => OUTPUT | BINARY,
        };
        let number = self.commons.table.add();
        let mut process = Box::new(Process::new(number));
        process.wait = Wait::Message(None);
        let owner = if self.running.is_spawned { Some(self.running.pid) } else { None };
        if let Some(owner) = owner {
            process.links.insert(owner);
            self.running.links.insert(number);
        }
        process.port = Some(Box::new(Port { owner, kind }));
        self.commons.table.put(process);
        Ok(self.heap.make(Tag::Port, &[pid(number), fixnum(bits)]))
    }

    /// What a port is, by its object: it stays so when the port is closed.
    fn port_fields(&self, word: Word) -> Result<(Word, i64)> {
        self.expect(word, Tag::Port, "a port")?;
        Ok((self.heap.field(word, 1), fixnum_value(self.heap.field(word, 2))))
    }

    pub(super) fn is_input(&self, word: Word) -> Result<bool> {
        Ok(self.port_fields(word)?.1 & OUTPUT == 0)
    }

    pub(super) fn is_textual(&self, word: Word) -> Result<bool> {
        Ok(self.port_fields(word)?.1 & BINARY == 0)
    }

    pub(super) fn is_open(&mut self, word: Word) -> Result<bool> {
        let (place, _) = self.port_fields(word)?;
        Ok(as_pid(place).is_none_or(|process| self.commons.table.port(process).is_some()))
    }

    /// The process of a port; false for those of every program.
    pub(super) fn port_process(&self, word: Word) -> Result {
        let (place, _) = self.port_fields(word)?;
        Ok(if as_pid(place).is_some() { place } else { FALSE })
    }

    /// Closes a port; those of every program stay open.
    pub(super) fn close(&mut self, word: Word) -> Result {
        let (place, _) = self.port_fields(word)?;
        if let Some(process) = as_pid(place)
            && self.commons.table.port(process).is_some()
        {
            self.end_port(process);
        }
        Ok(UNSPECIFIED)
    }

    /// What the process of a port of this kind keeps.
    fn port(&mut self, word: Word, kind: i64, expected: &str) -> Result<&mut PortKind> {
        let (place, own_kind) = self.port_fields(word)?;
        if own_kind != kind {
            return Err(wrong_type(expected, word));
        }
        let port = as_pid(place).and_then(|process| self.commons.table.port(process));
        let gone = || Fail::Raise("port", "the port is closed, or of another program:".into(), vec![word]);
        port.map(|port| &mut port.kind).ok_or_else(gone)
    }

    /// Whether it is the port of a program that is given no other to read from.
    fn is_no_input(&self, word: Word) -> bool {
        self.heap.tag(word) == Some(Tag::Port) && self.heap.field(word, 1) == NO_INPUT
    }

    /// Writes text to a port.
    pub(super) fn print(&mut self, port: Word, text: &str) -> Result {
        const EXPECTED: &str = "a textual output port";
        if self.port_fields(port)? == (CONSOLE, OUTPUT) {
            self.commons.output.push_str(text);
            return Ok(UNSPECIFIED);
        }
        let room = 8 * self.heap.limit();
        match self.port(port, OUTPUT, EXPECTED)? {
            PortKind::TextOut(out) if out.len() + text.len() <= room => out.push_str(text),
            PortKind::TextOut(_) => return Err(no_room(room)),
            _ => return Err(wrong_type(EXPECTED, port)),
        }
        Ok(UNSPECIFIED)
    }

    /// Writes bytes to a port.
    pub(super) fn print_bytes(&mut self, port: Word, bytes: &[u8]) -> Result {
        const EXPECTED: &str = "a binary output port";
        let room = 8 * self.heap.limit();
        match self.port(port, OUTPUT | BINARY, EXPECTED)? {
            PortKind::BytesOut(out) if out.len() + bytes.len() <= room => out.extend_from_slice(bytes),
            PortKind::BytesOut(_) => return Err(no_room(room)),
            _ => return Err(wrong_type(EXPECTED, port)),
        }
        Ok(UNSPECIFIED)
    }

    /// The text that was written to a port.
    pub(super) fn written_text(&mut self, port: Word) -> Result<String> {
        const EXPECTED: &str = "a string output port";
        match self.port(port, OUTPUT, EXPECTED)? {
            PortKind::TextOut(text) => Ok(text.clone()),
            _ => Err(wrong_type(EXPECTED, port)),
        }
    }

    /// The bytes that were written to a port.
    pub(super) fn written_bytes(&mut self, port: Word) -> Result<Vec<u8>> {
        const EXPECTED: &str = "a bytevector output port";
        match self.port(port, OUTPUT | BINARY, EXPECTED)? {
            PortKind::BytesOut(bytes) => Ok(bytes.clone()),
            _ => Err(wrong_type(EXPECTED, port)),
        }
    }

    /// The text of a port, and where the next character begins.
    pub(super) fn text_left(&mut self, port: Word) -> Result<(&Arc<str>, &mut usize)> {
        const EXPECTED: &str = "a textual input port";
        match self.port(port, 0, EXPECTED)? {
            PortKind::TextIn(text, at) => Ok((text, at)),
            _ => Err(wrong_type(EXPECTED, port)),
        }
    }

    /// The next character of a port, which `advance` takes.
    pub(super) fn take_char(&mut self, port: Word, advance: bool) -> Result<Option<char>> {
        if self.is_no_input(port) {
            return Ok(None);
        }
        let (text, at) = self.text_left(port)?;
        let next = text[*at..].chars().next();
        if advance {
            *at += next.map_or(0, char::len_utf8);
        }
        Ok(next)
    }

    /// The next byte of a port, which `advance` takes.
    pub(super) fn take_byte(&mut self, port: Word, advance: bool) -> Result<Option<u8>> {
        const EXPECTED: &str = "a binary input port";
        match self.port(port, BINARY, EXPECTED)? {
            PortKind::BytesIn(bytes, at) => {
                let next = bytes.get(*at).copied();
                *at += usize::from(advance && next.is_some());
                Ok(next)
            }
            _ => Err(wrong_type(EXPECTED, port)),
        }
    }

    /// Reads a datum from a port.
    pub(super) fn read_datum(&mut self, port: Word) -> Result {
        if self.is_no_input(port) {
            return Ok(EOF);
        }
        let (text, at) = self.text_left(port)?;
        let (text, start) = (text.clone(), *at);
        let mut reader = Reader::new(&text[start..], &"input".into());
        let datum = reader.next(&mut self.commons.program.symbols);
        let end = start + reader.offset();
        self.charge += (end - start) as u64 / 8;
        *self.text_left(port)?.1 = end;
        let datum = match datum {
            Ok(Some(datum)) => datum,
            Ok(None) => return Ok(EOF),
            Err(error) => return Err(Fail::Raise("read", error.to_string(), vec![])),
        };
        self.heap.reserve(2 * (end - start))?;
        value::of_datum(&mut self.heap, &datum)
            .map_err(|label| Fail::Raise("read", format!("no datum has label #{label}="), vec![]))
    }

    /// A port answers the message `(from tag request)` with `(tag value)`. It drops others, as a server
    /// without a clause for them does.
    pub(super) fn ask_port(&mut self, port: u64, message: Word) -> Result<()> {
        self.pass_ends(message, None);
        let Some([from, tag, request]) = self.three(message) else { return Ok(()) };
        let Some(from) = as_pid(from) else { return Ok(()) };
        let value = self.port_answer(port, request).unwrap_or(FALSE);
        let reply = self.heap.list(&[tag, value], NIL);
        if self.commons.table.port(from).is_some() {
            return Ok(());
        }
        self.send(from, reply)
    }

    /// The items of a list that has three.
    fn three(&self, mut list: Word) -> Option<[Word; 3]> {
        let mut items = [NIL; 3];
        for item in &mut items {
            if list & TAG_MASK != PAIR {
                return None;
            }
            (*item, list) = (self.heap.car(list), self.heap.cdr(list));
        }
        (list == NIL).then_some(items)
    }

    /// What a port answers; none for what it cannot do.
    fn port_answer(&mut self, port: u64, request: Word) -> Option<Word> {
        if request & TAG_MASK == PAIR {
            return self.write_block(port, request);
        }
        let request = as_symbol(request)?;
        let text = self.commons.program.symbols.text(request).clone();
        let Port { kind, .. } = self.commons.table.port(port)?;
        let block = match &*text {
            "read" => match kind.next_block()? {
                None => return Some(EOF),
                Some(block) => block,
            },
            "written" => match kind {
                PortKind::TextOut(text) => Block::Text(text.clone()),
                PortKind::BytesOut(bytes) => Block::Bytes(bytes.clone()),
                PortKind::TextIn(..) | PortKind::BytesIn(..) => return None,
            },
            "close" => {
                self.end_port(port);
                return Some(TRUE);
            }
            _ => return None,
        };
        match block {
            Block::Text(text) => self.put_string(&text).ok(),
            Block::Bytes(bytes) => {
                self.heap.reserve(bytes.len() / 8).ok()?;
                Some(self.heap.bytes(&bytes))
            }
        }
    }

    /// `(write block)`, with a string or a bytevector.
    fn write_block(&mut self, port: u64, request: Word) -> Option<Word> {
        let write = as_symbol(self.heap.car(request))?;
        let rest = self.heap.cdr(request);
        let is_write = &**self.commons.program.symbols.text(write) == "write";
        if !is_write || rest & TAG_MASK != PAIR || self.heap.cdr(rest) != NIL {
            return None;
        }
        let block = self.heap.car(rest);
        let room = 8 * self.heap.limit();
        let written = match self.heap.tag(block)? {
            Tag::String => Block::Text(self.text_argument(block).ok()?),
            Tag::Bytes => Block::Bytes(self.bytes_argument(block).ok()?),
            _ => return None,
        };
        match (&mut self.commons.table.port(port)?.kind, written) {
            (PortKind::TextOut(out), Block::Text(text)) if out.len() + text.len() <= room => out.push_str(&text),
            (PortKind::BytesOut(out), Block::Bytes(bytes)) if out.len() + bytes.len() <= room => out.extend(bytes),
            _ => return None,
        }
        Some(TRUE)
    }
}

fn no_room(room: usize) -> Fail {
    Fail::Raise("limit", format!("a port keeps at most {room} bytes"), vec![])
}
