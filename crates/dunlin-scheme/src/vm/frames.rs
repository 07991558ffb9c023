//! The stack, and frames on the heap.
//!
//! The stack belongs to the machine. Its frames move to the heap when a continuation is captured and when
//! the stack is full, each frame once; a return to the heap brings one frame back.

use super::machine::{Frame, Machine};
use crate::heap::Heap;
use crate::heap::word::{NIL, Word, fixnum_value};

/// The stack while the loop runs.
pub(super) struct Stack {
    pub(super) words: Vec<Word>,
    pub(super) frames: Vec<Frame>,
    pub(super) kont: Word,
}

impl Stack {
    /// Moves all frames but the running one, which begins at `base`, to the heap.
    pub(super) fn move_to_heap(&mut self, heap: &mut Heap, base: usize) {
        for at in 0..self.frames.len() {
            let frame = self.frames[at];
            let end = self.frames.get(at + 1).map_or(base, |next| next.base as usize);
            self.kont = heap.frame(self.kont, frame.pc, &self.words[frame.base as usize..end]);
        }
        self.frames.clear();
    }

    /// Moves the registers of the running frame, `live` of them, to the bottom.
    pub(super) fn sink(&mut self, base: usize, live: usize) {
        self.words.copy_within(base..base + live, 0);
    }

    /// Brings the next frame back from the heap: its return point, and where the value goes.
    pub(super) fn restore(&mut self, heap: &Heap) -> Option<(usize, usize)> {
        restore(&mut self.words, &mut self.kont, heap)
    }
}

/// Brings the frame `kont` back to the bottom of `words`: its return point, and where the value goes.
#[cold]
#[inline(never)]
pub(super) fn restore(words: &mut [Word], kont: &mut Word, heap: &Heap) -> Option<(usize, usize)> {
    if *kont == NIL {
        return None;
    }
    let [parent, pc, registers @ ..] = heap.fields(*kont) else { unreachable!("a frame has two fields") };
    words[..registers.len()].copy_from_slice(registers);
    *kont = *parent;
    Some((fixnum_value(*pc) as usize, registers.len()))
}

impl Machine {
    /// Takes the stack out of the machine, so that the loop has it at hand.
    pub(super) fn take_stack(&mut self) -> Stack {
        Stack {
            words: std::mem::take(&mut self.stack),
            frames: std::mem::take(&mut self.frames),
            kont: std::mem::replace(&mut self.kont, NIL),
        }
    }

    pub(super) fn put_stack(&mut self, stack: Stack) {
        self.stack = stack.words;
        self.frames = stack.frames;
        self.kont = stack.kont;
    }
}
