//! The code of one top-level form.

use std::rc::Rc;

use super::Instruction;
use crate::datum::{Datum, Pos};
use crate::names::Name;

/// Code with all that it names. Jumps are distances; constants and globals are places in its own tables.
#[derive(Debug)]
pub(crate) struct Unit {
    /// The instructions.
    pub(crate) code: Vec<Instruction>,
    /// The constants.
    pub(crate) constants: Vec<Datum>,
    /// The globals.
    pub(crate) globals: Vec<Name>,
    /// Where calls come from: place in `code`, ascending.
    pub(crate) positions: Vec<(u32, Pos)>,
    /// Where procedures begin in `code`, ascending, and their names.
    pub(crate) procedures: Vec<(u32, Rc<str>)>,
    /// The name of the text.
    pub(crate) source_name: Rc<str>,
}

impl std::fmt::Debug for Instruction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {} {} {}", self.op(), self.a(), self.b(), self.c())
    }
}
