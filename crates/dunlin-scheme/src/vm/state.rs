//! What runs as a value; values and processes as bytes.

use std::sync::Arc;

use super::machine::Machine;
use super::program::Program;
use super::slow::list_items;
use crate::error::Error;
use crate::heap::Tag;
use crate::heap::word::{NIL, PAIR, TAG_MASK, Word, as_natural, as_pid, as_symbol, fixnum, pid, symbol};
use crate::proc::{OwnGlobal, Process};
use crate::wire::{self, Limits, ReadError, WriteError};

impl Machine {
    /// Between two turns: moves all that runs to the heap, and returns it as a frame.
    pub(super) fn park_frames(&mut self) -> Word {
        let mut stack = self.take_stack();
        stack.move_to_heap(&mut self.heap, self.base);
        let registers = &stack.words[self.base..self.live];
        let frame = self.heap.frame(stack.kont, self.pc as u32, registers);
        stack.kont = NIL;
        self.put_stack(stack);
        frame
    }

    /// Between two turns: moves all that runs to the heap, and returns it as a continuation to resume.
    pub(super) fn park(&mut self) -> Word {
        let frame = self.park_frames();
        self.heap.make(Tag::Continuation, &[frame, self.marks])
    }

    /// Sets the machine to go on where `parked` was parked.
    pub(super) fn resume(&mut self, parked: Word) {
        self.marks = self.heap.field(parked, 2);
        self.resume_frame(self.heap.field(parked, 1));
    }

    /// Sets the machine to go on at a frame that was parked.
    pub(super) fn resume_frame(&mut self, frame: Word) {
        let mut stack = self.take_stack();
        stack.frames.clear();
        stack.kont = frame;
        let (pc, registers) = stack.restore(&self.heap).expect("a parked machine has a frame");
        (self.pc, self.base, self.live) = (pc, 0, registers);
        self.put_stack(stack);
    }

    /// Writes what a value reaches.
    pub(crate) fn write(&mut self, value: Word) -> Result<Vec<u8>, WriteError> {
        self.write_with(value, Limits::default())
    }

    fn write_with(&mut self, value: Word, limits: Limits) -> Result<Vec<u8>, WriteError> {
        self.heap.prepare_sent();
        let Program { symbols, index, names, .. } = &self.commons.program;
        wire::write(&self.heap, symbols, index, names, value, limits)
    }

    /// Reads an image. Until the value is in a root, nothing may collect.
    pub(crate) fn read(&mut self, image: &[u8]) -> Result<Word, ReadError> {
        self.read_with(image, Limits::default())
    }

    fn read_with(&mut self, image: &[u8], limits: Limits) -> Result<Word, ReadError> {
        self.sync();
        let Program { symbols, index, names, .. } = &mut self.commons.program;
        wire::read(&mut self.heap, symbols, names, index, &self.code.text, image, limits)
    }

    /// Writes the process that runs, and goes on with what was read from the bytes: as if it moved, but for
    /// its ends of channels.
    pub(crate) fn rewrite(&mut self) -> Result<(), Error> {
        let failed = |error: &dyn std::error::Error| Error::Image(error.to_string());
        let limits = Limits { ends: true, ..Limits::default() };
        let image = self.process_image(limits).map_err(|e| failed(&e))?;
        let running = &mut *self.running;
        let mut process = Process::new(running.pid);
        process.wait = running.wait;
        process.is_queued = running.is_queued;
        process.is_spawned = running.is_spawned;
        process.fuel_us = running.fuel_us;
        *running = process;
        self.heap.clear();
        self.restore_process(&image, limits).map_err(|e| failed(&e))
    }

    /// Between two turns: the process in the machine as bytes, all that it holds, with its mailbox.
    pub(super) fn process_image(&mut self, limits: Limits) -> Result<Vec<u8>, WriteError> {
        let frame = self.park_frames();
        let mut messages = Vec::new();
        for number in self.running.mailbox.numbers() {
            if let Some(message) = self.message(number) {
                messages.push(self.heap.cons(fixnum(number as i64), message));
            }
        }
        let mut exits = Vec::new();
        for (from, exit) in self.running.mailbox.exits() {
            let exit = self.heap.unpack(exit);
            exits.push(self.heap.cons(pid(from), exit));
        }
        let links: Vec<Word> = self.running.links.iter().map(|link| pid(*link)).collect();
        let mut own = Vec::new();
        for OwnGlobal { number, value, .. } in &self.running.own {
            let name = symbol(self.commons.program.global_names[*number as usize]);
            own.push(self.heap.cons(name, *value));
        }
        let last = fixnum(self.running.mailbox.last() as i64);
        let [messages, exits, links, own] = [messages, exits, links, own].map(|items| self.heap.list(&items, NIL));
        let fields = [pid(self.running.pid), frame, self.marks, messages, last, exits, links, own];
        let whole = self.heap.make(Tag::Vector, &fields);
        self.resume_frame(frame);
        self.write_with(whole, limits)
    }

    /// Makes the process in the machine, which must be new, the one that an image holds. Its number in the
    /// image becomes the number of this one.
    pub(super) fn restore_process(&mut self, image: &[u8], limits: Limits) -> Result<(), ReadError> {
        let base = self.heap.len();
        let whole = self.read_with(image, limits)?;
        if self.heap.tag(whole) != Some(Tag::Vector) {
            return Err(ReadError::Unsound);
        }
        let old = self.heap.item(whole, 0).and_then(as_pid);
        if let Some(old) = old {
            self.heap.replace(base, pid(old), pid(self.running.pid));
        }
        let fields = self.heap.fields(whole).to_vec();
        self.restored(&fields).ok_or(ReadError::Unsound)?;
        let has_room = old.is_none_or(|old| self.commons.program.names.set_copy(self.running.pid, old, limits.names));
        if has_room { Ok(()) } else { Err(ReadError::TooLarge) }
    }

    fn restored(&mut self, fields: &[Word]) -> Option<()> {
        let [_, frame, marks, messages, last, exits, links, own] = *fields else { return None };
        let heap = &self.heap;
        let is_frame = heap.tag(frame) == Some(Tag::Frame);
        if !is_frame || !(marks == NIL || heap.tag(marks) == Some(Tag::Marks)) {
            return None;
        }
        let items = |list| {
            let mut items = Vec::new();
            list_items(heap, list, &mut items).then_some(items)
        };
        let pair = |word: Word| if word & TAG_MASK == PAIR { Some((heap.car(word), heap.cdr(word))) } else { None };
        let message = |word: Word| pair(word).and_then(|(at, message)| Some((as_natural(at)?, message)));
        let messages = items(messages)?.into_iter().map(message).collect::<Option<Vec<_>>>()?;
        let links = items(links)?.into_iter().map(as_pid).collect::<Option<_>>()?;
        let named = |word: Word| pair(word).and_then(|(name, value)| Some((as_symbol(name)?, value)));
        let named = items(own)?.into_iter().map(named).collect::<Option<Vec<_>>>()?;
        let exit = |word: Word| pair(word).and_then(|(from, exit)| Some((as_pid(from)?, exit)));
        let exits = items(exits)?.into_iter().map(exit).collect::<Option<Vec<_>>>()?;
        let process = &mut *self.running;
        if !process.mailbox.restore(&messages, as_natural(last)?) {
            return None;
        }
        process.links = links;
        for (from, exit) in exits {
            process.mailbox.push_exit(from, Arc::new(self.heap.pack(exit).0));
        }
        for (name, value) in named {
            let number = self.commons.program.global(name);
            // Where the program has another value by now, that counts.
            if let Some(frozen) = self.commons.program.open.get(&number) {
                process.own.push(OwnGlobal { number, frozen: *frozen, value });
            }
        }
        self.marks = marks;
        self.resume_frame(frame);
        Some(())
    }
}
