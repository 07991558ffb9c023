//! A machine's state as a value, and values as bytes.

use super::machine::Machine;
use crate::error::Error;
use crate::heap::Tag;
use crate::heap::word::{NIL, Word};
use crate::wire::{self, Limits, ReadError, WriteError};

impl Machine {
    /// Between two turns: moves all that runs to the heap, and returns it as a continuation to resume.
    pub(super) fn park(&mut self) -> Word {
        let mut stack = self.take_stack();
        stack.move_to_heap(&mut self.heap, self.base);
        let registers = &stack.words[self.base..self.live];
        let frame = self.heap.frame(stack.kont, self.pc as u32, registers);
        stack.kont = NIL;
        self.put_stack(stack);
        self.heap.make(Tag::Continuation, &[frame, self.marks])
    }

    /// Sets the machine to go on where `parked` was parked.
    pub(super) fn resume(&mut self, parked: Word) {
        let mut stack = self.take_stack();
        stack.frames.clear();
        stack.kont = self.heap.field(parked, 1);
        self.marks = self.heap.field(parked, 2);
        let (pc, registers) = stack.restore(&self.heap).expect("a parked machine has a frame");
        (self.pc, self.base, self.live) = (pc, 0, registers);
        self.put_stack(stack);
    }

    /// Writes what a value reaches.
    pub(crate) fn write(&self, value: Word) -> Result<Vec<u8>, WriteError> {
        wire::write(&self.heap, &self.symbols, &self.index, value, Limits::default().ports)
    }

    /// Writes what runs, and goes on with what was read from the bytes: as if it moved, but for its ports.
    pub(crate) fn rewrite(&mut self) -> Result<(), Error> {
        let failed = |error: &dyn std::error::Error| Error::Image(error.to_string());
        let parked = self.park();
        let limits = Limits { ports: self.ports.len(), ..Limits::default() };
        let image =
            wire::write(&self.heap, &self.symbols, &self.index, parked, limits.ports).map_err(|e| failed(&e))?;
        let parked = wire::read(&mut self.heap, &mut self.symbols, &self.index, &self.text, &image, limits);
        self.resume(parked.map_err(|e| failed(&e))?);
        Ok(())
    }

    /// Reads an image. Until the value is in a root, nothing may collect.
    pub(crate) fn read(&mut self, image: &[u8]) -> Result<Word, ReadError> {
        wire::read(&mut self.heap, &mut self.symbols, &self.index, &self.text, image, Limits::default())
    }
}
