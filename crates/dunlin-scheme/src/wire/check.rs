//! What the machine relies on.
//!
//! The machine checks the kinds of what a program uses. What it does not check each time is checked here,
//! once: that a closure has the variables of its code, that a frame fits its return point, and the shapes of
//! objects that only the machine makes.

use std::collections::HashMap;

use crate::code::{Index, Instruction};
use crate::heap::object::{Tag, is_raw_header, size_of, tag_of};
use crate::heap::word::{
    HEADER, NIL, PAIR, TAG_MASK, UNSET, Word, as_code, as_pid, as_symbol, fixnum, fixnum_value, index as index_of,
    is_fixnum, is_pointer,
};
use crate::num::{IBig, Number};

/// The kind of the object at `start`; `None` is a pair.
pub(super) fn kind(words: &[Word], start: usize) -> Option<Tag> {
    if words[start] & TAG_MASK == HEADER { Some(tag_of(words[start])) } else { None }
}

/// The places of the values of the object at `start`.
pub(super) fn values(words: &[Word], start: usize) -> std::ops::Range<usize> {
    match kind(words, start) {
        None => start..start + 2,
        Some(_) if is_raw_header(words[start]) => start..start,
        Some(_) => start + 1..start + 1 + size_of(words[start]),
    }
}

/// Words of an image, as they will be on the heap from `base` on.
pub(super) struct Image<'a> {
    pub(super) words: &'a [Word],
    pub(super) starts: &'a [u32],
    pub(super) base: usize,
    pub(super) index: &'a Index,
    pub(super) text: &'a [Instruction],
}

impl Image<'_> {
    /// Whether every object is one that a machine could have made.
    pub(super) fn is_sound(&self) -> bool {
        self.starts.iter().all(|start| self.is_object_sound(*start as usize)) && self.frames_end()
    }

    /// Whether every chain of frames ends: returns cost no fuel, so a cycle of them would never stop.
    fn frames_end(&self) -> bool {
        let mut ends: HashMap<usize, bool> = HashMap::new();
        for start in self.starts {
            let mut chain = Vec::new();
            let mut at = *start as usize;
            while kind(self.words, at) == Some(Tag::Frame) {
                match ends.insert(at, false) {
                    Some(true) => break,
                    Some(false) => return false,
                    None => chain.push(at),
                }
                match self.words[at + 1] {
                    NIL => break,
                    parent => at = self.start(parent),
                }
            }
            ends.insert(at, true);
            ends.extend(chain.into_iter().map(|at| (at, true)));
        }
        true
    }

    fn is_object_sound(&self, start: usize) -> bool {
        let tag = kind(self.words, start);
        let places = values(self.words, start);
        let fields = &self.words[places];
        if tag != Some(Tag::Cell) && fields.contains(&UNSET) {
            return false;
        }
        let Some(tag) = tag else { return true };
        match (tag, fields) {
            (Tag::Flonum | Tag::String | Tag::Bytes, _) => true,
            (Tag::Bignum, _) => {
                let size = size_of(self.words[start]);
                let words = &self.words[start + 1..start + 1 + size];
                size >= 2 && words[0] <= 1 && words[size - 1] != 0
            }
            (Tag::Ratio, [n, d]) => self.is_integer(*n) && self.is_integer(*d) && self.is_above_one(*d),
            (Tag::Closure, [entry, variables @ ..]) => {
                is_fixnum(*entry) && self.index.closure(fixnum_value(*entry) as usize) == Some(variables.len())
            }
            (Tag::Frame, [parent, pc, registers @ ..]) => {
                (*parent == NIL || self.tag(*parent) == Some(Tag::Frame)) && self.is_frame(*pc, registers)
            }
            (Tag::Continuation, [frame, marks]) => {
                (*frame == NIL || self.tag(*frame) == Some(Tag::Frame))
                    && (*marks == NIL || self.tag(*marks) == Some(Tag::Marks))
            }
            (Tag::Record, [kind, values @ ..]) => self.type_fields(*kind) == Some(values.len()),
            (Tag::RecordType, [name, names, number]) => {
                as_symbol(*name).is_some() && self.tag(*names) == Some(Tag::Vector) && is_fixnum(*number)
            }
            (Tag::Condition, [kind, _, _, place]) => as_symbol(*kind).is_some() && *place == fixnum(-1),
            (Tag::Parameter, [_, _, number]) => is_fixnum(*number),
            (Tag::Port, [place, kind]) => is_port(*place, *kind),
            (Tag::Marks, [_, _, _]) | (Tag::Cell | Tag::Environment, [_]) => true,
            (Tag::Vector, _) => true,
            (Tag::Values, _) => fields.len() != 1,
            _ => false,
        }
    }

    /// A frame's register 0 holds the closure that runs, and the others are those of its return point.
    fn is_frame(&self, pc: Word, registers: &[Word]) -> bool {
        if !is_fixnum(pc) || registers.is_empty() || self.tag(registers[0]) != Some(Tag::Closure) {
            return false;
        }
        let pc = fixnum_value(pc) as usize;
        let entry = match as_code(registers[0]) {
            Some(entry) => fixnum(entry as i64),
            None => self.words[self.start(registers[0]) + 1],
        };
        is_fixnum(entry)
            && self.index.procedure(pc) == Some(fixnum_value(entry) as usize)
            && self.index.is_return_point(self.text, pc, registers.len())
    }

    fn start(&self, word: Word) -> usize {
        index_of(word) - self.base
    }

    fn tag(&self, word: Word) -> Option<Tag> {
        if as_code(word).is_some() {
            return Some(Tag::Closure);
        }
        if is_pointer(word) && word & TAG_MASK != PAIR { kind(self.words, self.start(word)) } else { None }
    }

    fn is_integer(&self, word: Word) -> bool {
        is_fixnum(word) || self.tag(word) == Some(Tag::Bignum)
    }

    fn is_above_one(&self, word: Word) -> bool {
        if is_fixnum(word) {
            return fixnum_value(word) > 1;
        }
        let start = self.start(word);
        let size = size_of(self.words[start]);
        size >= 2 && Number::from_words(self.words[start + 1] != 0, &self.words[start + 2..=start + size]) > IBig::ONE
    }

    fn type_fields(&self, kind: Word) -> Option<usize> {
        if self.tag(kind) != Some(Tag::RecordType) {
            return None;
        }
        let at = self.start(kind);
        if size_of(self.words[at]) != 3 {
            return None;
        }
        let names = self.words[at + 2];
        if self.tag(names) != Some(Tag::Vector) { None } else { Some(size_of(self.words[self.start(names)])) }
    }
}

/// A process, or one of the two ports that every program has; a kind.
fn is_port(place: Word, kind: Word) -> bool {
    let is_known = place == fixnum(0) || place == fixnum(1) || as_pid(place).is_some();
    is_known && is_fixnum(kind) && (0..4).contains(&fixnum_value(kind))
}
