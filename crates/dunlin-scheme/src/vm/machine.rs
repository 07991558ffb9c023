//! The state of a machine, and how code is loaded.

use std::collections::HashMap;
use std::rc::Rc;

use super::port::{Port, PortKind};
use crate::code::{Index, Instruction, Op, Unit};
use crate::compile::Inline;
use crate::expand::env::Syntaxes;
use crate::heap::word::{NIL, UNSET, fixnum};
use crate::heap::{Heap, Tag, Word};
use crate::names::{Name, Symbols};
use crate::value;

/// Registers of all frames on the stack. More frames move to the heap.
pub(super) const STACK_WORDS: usize = 1 << 16;
/// Room above, for what the machine itself calls and for arguments from lists.
const STACK_SLACK: usize = 1 << 16;
/// Words of the stack: a frame that begins below `STACK_WORDS` has all registers that code can name.
pub(super) const STACK_LEN: usize = STACK_WORDS + STACK_SLACK;
/// Arguments that one call may have.
pub(super) const ARGUMENTS_MAX: usize = STACK_SLACK - 64;
/// Words of young objects between two collections.
const NURSERY_WORDS: usize = 1 << 16;
/// Words of live objects, if no limit is set.
const LIMIT_WORDS: usize = 1 << 27;

/// Where a caller goes on.
#[derive(Clone, Copy)]
pub(super) struct Frame {
    pub(super) pc: u32,
    pub(super) base: u32,
}

#[derive(Clone)]
pub(crate) struct Machine {
    pub(crate) symbols: Symbols,
    pub(crate) syntaxes: Syntaxes,
    pub(crate) heap: Heap,
    pub(crate) inlines: HashMap<Name, Vec<Inline>>,
    /// All code. The loop holds on to it while it runs, so it grows only between.
    pub(super) text: Rc<Vec<Instruction>>,
    pub(super) index: Index,
    global_numbers: HashMap<Name, u32>,
    pub(super) global_names: Vec<Name>,
    pub(super) globals: Vec<Word>,
    pub(super) constants: Vec<Word>,
    pub(super) stack: Vec<Word>,
    pub(super) frames: Vec<Frame>,
    pub(super) pc: usize,
    pub(super) base: usize,
    pub(super) arguments: usize,
    /// Registers of the stack that hold values, between two turns.
    pub(super) live: usize,
    /// The frame on the heap that follows those on the stack.
    pub(super) kont: Word,
    /// Winders, handlers, parameters.
    pub(super) marks: Word,
    /// What primitives have charged and the loop has not yet counted.
    pub(super) charge: u64,
    /// The most fuel that a turn used past its end.
    pub(super) overrun: u64,
    pub(super) ports: Vec<Port>,
    pub(super) output: String,
    pub(super) next_number: i64,
}

impl Machine {
    pub(crate) fn new() -> Self {
        Self {
            symbols: Symbols::default(),
            syntaxes: Syntaxes::default(),
            heap: Heap::new(NURSERY_WORDS, LIMIT_WORDS),
            inlines: HashMap::new(),
            text: Rc::default(),
            index: Index::default(),
            global_numbers: HashMap::new(),
            global_names: Vec::new(),
            globals: Vec::new(),
            constants: Vec::new(),
            stack: vec![NIL; STACK_LEN],
            frames: Vec::new(),
            pc: 0,
            base: 0,
            arguments: 0,
            live: 0,
            kont: NIL,
            marks: NIL,
            charge: 0,
            overrun: 0,
            ports: vec![Port::new(PortKind::Console)],
            output: String::new(),
            next_number: 0,
        }
    }

    /// What the program printed since this was called last.
    pub(crate) fn take_output(&mut self) -> String {
        std::mem::take(&mut self.output)
    }

    /// The names of globals that have a value.
    pub(crate) fn defined_names(&self) -> Vec<String> {
        let defined = self.global_names.iter().zip(&self.globals).filter(|(_, value)| **value != UNSET);
        defined.map(|(name, _)| self.symbols.text(*name).to_string()).collect()
    }

    /// Whether both have one and the same text of code.
    #[cfg(test)]
    pub(crate) fn shares_code_with(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.text, &other.text)
    }

    /// The most fuel that a turn used past its end, since this was called last.
    pub(crate) fn take_overrun(&mut self) -> u64 {
        std::mem::take(&mut self.overrun)
    }

    /// The number of a global.
    pub(crate) fn global(&mut self, name: Name) -> u32 {
        if let Some(number) = self.global_numbers.get(&name) {
            return *number;
        }
        let number = self.globals.len() as u32;
        self.globals.push(UNSET);
        self.global_names.push(name);
        self.global_numbers.insert(name, number);
        number
    }

    pub(crate) fn global_value(&mut self, name: &str) -> Word {
        let name = self.symbols.intern(name);
        let number = self.global(name);
        self.globals[number as usize]
    }

    pub(crate) fn set_global(&mut self, name: &str, value: Word) {
        let name = self.symbols.intern(name);
        let number = self.global(name);
        self.globals[number as usize] = value;
    }

    /// Loads a unit; its first procedure begins at the place returned.
    ///
    /// # Errors
    /// A message, if the machine's tables are full or a constant names no label.
    pub(crate) fn load(&mut self, unit: Unit) -> Result<usize, String> {
        let base = self.text.len();
        let first_constant = self.constants.len();
        let full = first_constant + unit.constants.len() >= 1 << 24
            || self.globals.len() + unit.globals.len() >= 1 << 24
            || base + unit.code.len() >= u32::MAX as usize;
        if full {
            return Err("the machine's tables of code are full".into());
        }
        for constant in &unit.constants {
            let value =
                value::of_datum(&mut self.heap, constant).map_err(|label| format!("no datum has label #{label}="))?;
            self.constants.push(value);
        }
        let globals: Vec<u32> = unit.globals.iter().map(|name| self.global(*name)).collect();
        Rc::make_mut(&mut self.text).extend(unit.code.iter().map(|instruction| match instruction.op() {
            Op::Constant | Op::CellRead => instruction.with_c((first_constant + instruction.index()) as i64),
            Op::Global | Op::Define => instruction.with_c(i64::from(globals[instruction.index()])),
            _ => *instruction,
        }));
        let hash = unit.hash(&self.symbols);
        self.index.add(base, hash, unit);
        Ok(base)
    }

    /// Sets the machine to call the procedure that begins at `entry`, without arguments.
    pub(crate) fn start(&mut self, entry: usize) {
        let closure = self.heap.make(Tag::Closure, &[fixnum(entry as i64)]);
        self.frames.clear();
        self.kont = NIL;
        self.base = 0;
        self.stack[0] = closure;
        self.arguments = 0;
        self.live = 1;
        self.pc = entry;
    }
}
