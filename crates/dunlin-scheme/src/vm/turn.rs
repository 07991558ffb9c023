//! What a turn of the loop begins and ends with.

use super::fail::Fail;
use super::frames::Stack;
use super::machine::Frame;
use crate::heap::word::Word;

/// How a turn ended.
#[derive(Debug)]
pub(crate) enum Turn {
    /// With the value of the program.
    Done(Word),
    /// The fuel is used up; the next turn goes on.
    OutOfFuel,
    /// The process waits for a message, at most until this time.
    Waiting(Option<u64>),
    /// The process waits for the outcome of what it has asked, at most until this time.
    Operating(Option<u64>),
    /// The process ended itself.
    Halted,
}

/// What the machine does after it has left the loop.
pub(super) enum Next {
    /// The running procedure wants its argument compiled.
    Compile,
    /// What the process got may call code that was loaded since the turn began.
    Reload,
    Return(Turn),
}

/// Why the loop stops at an instruction.
pub(super) enum Exit {
    /// It is not the common case.
    Slow,
    /// It made an object in this register, and every allocation collects.
    Made(usize),
    /// It failed: the value of the error's handler goes to this register.
    Raise(usize, Fail),
}

/// The loop's registers, while it does not run.
pub(super) struct State {
    pub(super) stack: Stack,
    pub(super) pc: usize,
    pub(super) base: usize,
    pub(super) arguments: usize,
    pub(super) fuel: i64,
}

impl State {
    /// Makes the running frame's register `a` the start of a call that returns to `pc`.
    pub(super) fn push(&mut self, a: usize) {
        self.stack.frames.push(Frame { pc: self.pc as u32, base: self.base as u32 });
        self.base += a;
    }

    /// A register of the running frame.
    pub(super) fn register(&self, at: usize) -> Word {
        self.stack.words[self.base + at]
    }

    pub(super) fn set_register(&mut self, at: usize, value: Word) {
        self.stack.words[self.base + at] = value;
    }
}
