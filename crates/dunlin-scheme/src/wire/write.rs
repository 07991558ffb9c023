//! A value to bytes.

use std::collections::HashMap;

use super::{Limits, MAGIC, NodeNames, field};
use crate::code::Index;
use crate::code::unit::{CODE_VERSION, Hash};
use crate::heap::word::{
    FIXNUM, PAIR, TAG_MASK, Word, as_character, as_code, as_end, as_pid, as_symbol, as_tag, fixnum, fixnum_value,
    is_pointer,
};
use crate::heap::{Heap, Tag};
use crate::names::{Name, Symbols};

/// Why a value cannot be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// An end of a channel stays in its program.
    #[error("an end of a channel cannot be written as bytes")]
    End,
}

/// Writes what `root` reaches, each object once: what was sent is the same as its copy in a segment.
/// [`Heap::prepare_sent`] comes before. It writes ends of channels if `limits` allow them.
pub(crate) fn write(
    heap: &Heap,
    symbols: &Symbols,
    index: &Index,
    nodes: &NodeNames,
    root: Word,
    limits: Limits,
) -> Result<Vec<u8>, WriteError> {
    let mut writer = Writer {
        heap,
        index,
        writes_ends: limits.ends,
        refused: None,
        objects: Vec::new(),
        numbers: HashMap::new(),
        units: Table::default(),
        nodes,
        programs: Table::default(),
        symbols: Table::default(),
        out: Vec::new(),
    };
    if is_pointer(root) {
        writer.number(root);
    }
    let mut at = 0;
    while let Some(&object) = writer.objects.get(at) {
        writer.object(object)?;
        at += 1;
    }
    writer.word(root);
    if let Some(error) = writer.refused {
        return Err(error);
    }
    let Writer { objects, units, symbols: names, programs, out: body, .. } = writer;
    let mut image = MAGIC.to_vec();
    varint(&mut image, u64::from(CODE_VERSION));
    varint(&mut image, units.items.len() as u64);
    units.items.iter().for_each(|hash| image.extend_from_slice(&hash.0));
    varint(&mut image, names.items.len() as u64);
    names.items.iter().for_each(|name| bytes(&mut image, symbols.text(*name).as_bytes()));
    varint(&mut image, programs.items.len() as u64);
    programs.items.iter().for_each(|node| image.extend_from_slice(&node.to_le_bytes()));
    varint(&mut image, objects.len() as u64);
    image.extend_from_slice(&body);
    Ok(image)
}

struct Writer<'a> {
    heap: &'a Heap,
    index: &'a Index,
    writes_ends: bool,
    /// What a word met that cannot be written.
    refused: Option<WriteError>,
    /// Objects in the order in which they were met; those past the current one wait.
    objects: Vec<Word>,
    numbers: HashMap<Word, u64>,
    units: Table<Hash>,
    nodes: &'a NodeNames,
    programs: Table<u64>,
    symbols: Table<Name>,
    out: Vec<u8>,
}

/// Items numbered in the order of their first use.
struct Table<T> {
    items: Vec<T>,
    numbers: HashMap<T, u64>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { items: Vec::new(), numbers: HashMap::new() }
    }
}

impl<T: Copy + Eq + std::hash::Hash> Table<T> {
    fn number(&mut self, item: T) -> u64 {
        *self.numbers.entry(item).or_insert_with(|| {
            self.items.push(item);
            self.items.len() as u64 - 1
        })
    }
}

impl Writer<'_> {
    fn number(&mut self, object: Word) -> u64 {
        let object = self.heap.shared_one(object);
        *self.numbers.entry(object).or_insert_with(|| {
            self.objects.push(object);
            self.objects.len() as u64 - 1
        })
    }

    fn object(&mut self, object: Word) -> Result<(), WriteError> {
        let heap = self.heap;
        let Some(tag) = heap.tag(object) else {
            debug_assert_eq!(object & TAG_MASK, PAIR);
            self.out.push(0);
            self.word(heap.car(object));
            self.word(heap.cdr(object));
            return Ok(());
        };
        self.out.push(tag as u8 + 1);
        if let Some(entry) = as_code(object) {
            varint(&mut self.out, 1);
            self.code(fixnum(entry as i64));
            return Ok(());
        }
        let fields = heap.fields(object);
        match tag {
            Tag::Flonum => self.out.extend_from_slice(&fields[0].to_le_bytes()),
            Tag::Bignum => {
                varint(&mut self.out, fields.len() as u64);
                fields.iter().for_each(|word| self.out.extend_from_slice(&word.to_le_bytes()));
            }
            Tag::String => bytes(&mut self.out, heap.text(object).as_bytes()),
            Tag::Bytes => bytes(&mut self.out, &heap.bytes_of(object)),
            Tag::Closure => {
                varint(&mut self.out, fields.len() as u64);
                self.code(fields[0]);
                fields[1..].iter().for_each(|word| self.word(*word));
            }
            Tag::Frame => {
                varint(&mut self.out, fields.len() as u64);
                self.word(fields[0]);
                self.code(fields[1]);
                fields[2..].iter().for_each(|word| self.word(*word));
            }
            // Where an error was raised is of this machine only.
            Tag::Condition => {
                varint(&mut self.out, fields.len() as u64);
                fields[..3].iter().for_each(|word| self.word(*word));
                self.word(fixnum(-1));
            }
            _ => {
                varint(&mut self.out, fields.len() as u64);
                fields.iter().for_each(|word| self.word(*word));
            }
        }
        Ok(())
    }

    fn word(&mut self, word: Word) {
        if word & TAG_MASK == FIXNUM {
            let value = fixnum_value(word);
            self.put(field::FIXNUM, ((value << 1) ^ (value >> 63)) as u64);
        } else if let Some(value) = as_character(word) {
            self.put(field::CHARACTER, u64::from(value as u32));
        } else if let Some(name) = as_symbol(word) {
            let number = self.symbols.number(name);
            self.put(field::SYMBOL, number);
        } else if let Some(number) = as_pid(word) {
            self.far(field::PROCESS, number);
        } else if let Some(number) = as_tag(word) {
            self.far(field::TAG, number);
        } else if let Some(number) = as_end(word) {
            if !self.writes_ends {
                self.refused = Some(WriteError::End);
            }
            self.put(field::END, number);
        } else if is_pointer(word) {
            let number = self.number(word);
            self.put(field::OBJECT, number);
        } else {
            self.put(field::CONSTANT, word >> 8);
        }
    }

    fn far(&mut self, kind: u8, number: u64) {
        let original = if kind == field::PROCESS { self.nodes.original(number) } else { None };
        self.name(if original.is_some() { field::COPY } else { kind }, self.nodes.far(number));
        if let Some((node, number)) = original {
            let program = self.programs.number(node);
            varint(&mut self.out, program);
            varint(&mut self.out, number);
        }
    }

    fn name(&mut self, kind: u8, (node, number): (u64, u64)) {
        let program = self.programs.number(node);
        self.put(kind, program);
        varint(&mut self.out, number);
    }

    fn code(&mut self, pc: Word) {
        let (hash, offset) = self.index.locate(fixnum_value(pc) as usize).expect("code of a live closure is loaded");
        let unit = self.units.number(hash);
        self.put(field::CODE, unit);
        varint(&mut self.out, u64::from(offset));
    }

    fn put(&mut self, kind: u8, value: u64) {
        self.out.push(kind);
        varint(&mut self.out, value);
    }
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}
