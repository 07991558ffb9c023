//! The state of a machine, and how code is loaded.

use std::sync::Arc;

use super::fail::Fail;
use super::outside::Outside;
use super::program::Program;
use crate::code::{Op, Unit};
use crate::data::Value;
use crate::error::Error;
use crate::heap::word::{NIL, UNSET, code};
use crate::heap::{Heap, Word};
use crate::interrupt::Interrupts;
use crate::proc::{Host, Local, Operations, OwnGlobal, Process, Table};
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

/// Hears of processes that failed: their number, and why.
pub(crate) type FailureLog = Box<dyn FnMut(u64, &Error) + Send>;

/// Runs the processes of a program, one at a time: that one's heap and frames are in the machine.
pub(crate) struct Machine {
    pub(crate) program: Program,
    pub(crate) heap: Heap,
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
    /// What runs is parked here while a macro's procedure runs for it.
    pub(super) parked: Vec<Word>,
    /// What primitives have charged and the loop has not yet counted.
    pub(super) charge: u64,
    /// What the last turn used.
    pub(super) used: u64,
    /// The most fuel that a turn used past its end.
    pub(super) overrun: u64,
    pub(super) output: String,
    /// What the process raised that ended it.
    pub(super) failure: Option<Word>,
    /// What ended the main process while another one ran.
    pub(super) main_failure: Option<Error>,
    /// Hears of processes that failed, unless others are linked to them.
    pub(super) on_failure: Option<FailureLog>,
    /// The process that runs, but for its heap and frames.
    pub(super) running: Box<Process>,
    /// The others.
    pub(super) table: Table,
    pub(super) host: Box<dyn Host + Send>,
    pub(crate) interrupts: Interrupts,
    pub(super) operations: Operations,
    /// There is one if the embedder gives the turns.
    pub(super) outside: Option<Outside>,
}

impl Machine {
    pub(crate) fn new() -> Self {
        Self::with(Program::new(), Arc::default())
    }

    /// A machine with a copy of the program, without its processes.
    pub(crate) fn another(&self) -> Self {
        Self::with(self.program.another(), self.heap.frozen().clone())
    }

    fn with(program: Program, frozen: Arc<Vec<Word>>) -> Self {
        let mut heap = Heap::new(NURSERY_WORDS, LIMIT_WORDS);
        heap.set_frozen(frozen);
        let mut table = Table::default();
        // The main process: the first number of a table.
        let running = Box::new(Process::new(table.add()));
        Self {
            program,
            heap,
            stack: vec![NIL; STACK_LEN],
            frames: Vec::new(),
            pc: 0,
            base: 0,
            arguments: 0,
            live: 0,
            kont: NIL,
            marks: NIL,
            parked: Vec::new(),
            charge: 0,
            used: 0,
            overrun: 0,
            output: String::new(),
            failure: None,
            main_failure: None,
            on_failure: None,
            running,
            table,
            host: Box::new(Local::real()),
            interrupts: Interrupts::default(),
            operations: Operations::default(),
            outside: None,
        }
    }

    /// What the program printed since this was called last.
    pub(crate) fn take_output(&mut self) -> String {
        std::mem::take(&mut self.output)
    }

    /// Whether both have one and the same text of code.
    #[cfg(test)]
    pub(crate) fn shares_code_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.program.text, &other.program.text)
    }

    /// The most fuel that a turn used past its end, since this was called last.
    pub(crate) fn take_overrun(&mut self) -> u64 {
        std::mem::take(&mut self.overrun)
    }

    /// The value of a global for the process that runs.
    pub(super) fn global_at(&mut self, number: u32) -> Option<Word> {
        let value = self.program.globals[number as usize];
        if value != UNSET {
            return Some(value);
        }
        let frozen = *self.program.open.get(&number)?;
        let own = &self.running.own;
        if let Some(own) = own.iter().find(|own| own.number == number && own.frozen == frozen) {
            return Some(own.value);
        }
        let value = self.heap.thaw(frozen);
        self.keep(OwnGlobal { number, frozen, value });
        Some(value)
    }

    fn keep(&mut self, own: OwnGlobal) {
        self.running.own.retain(|other| other.number != own.number);
        self.running.own.push(own);
    }

    /// Gives a global a value, for all processes.
    ///
    /// # Errors
    /// [`Fail::Full`] if the values of globals would take more than `limit` words.
    pub(super) fn define(&mut self, number: u32, value: Word, limit: usize) -> Result<(), Fail> {
        let before = self.heap.frozen().len();
        let (frozen, is_open) = self.heap.freeze(value, limit)?;
        self.charge += (self.heap.frozen().len() - before) as u64 / 16;
        self.program.globals[number as usize] = if is_open { UNSET } else { frozen };
        if is_open {
            self.program.open.insert(number, frozen);
            self.keep(OwnGlobal { number, frozen, value });
        } else if self.program.open.remove(&number).is_some() {
            self.running.own.retain(|own| own.number != number);
        }
        Ok(())
    }

    /// The value of a global, or no value's word.
    pub(crate) fn global_value(&mut self, name: &str) -> Word {
        let name = self.program.symbols.intern(name);
        let number = self.program.global(name);
        self.global_at(number).unwrap_or(UNSET)
    }

    /// Gives a global a value, for all processes.
    ///
    /// # Errors
    /// [`Fail::Full`] if the values of globals would take more than `limit` words.
    pub(crate) fn set_global(&mut self, name: &str, value: Word, limit: usize) -> Result<(), Fail> {
        let name = self.program.symbols.intern(name);
        let number = self.program.global(name);
        self.define(number, value, limit)?;
        self.charge = 0;
        Ok(())
    }

    /// Gives a global a value of data, for all processes.
    ///
    /// # Errors
    /// As those of [`Scheme::define`](crate::Scheme::define).
    pub(crate) fn define_value(&mut self, name: &str, value: &Value) -> Result<(), Error> {
        let word = self.import(value, None)?;
        let limit = self.heap.limit();
        let limit_bytes = 8 * limit;
        self.set_global(name, word, limit).map_err(|_| Error::HeapLimit { limit_bytes, trace: Vec::new() })
    }

    /// Loads a unit; its first procedure begins at the place returned.
    ///
    /// # Errors
    /// A message, if the machine's tables are full or a constant names no label.
    pub(crate) fn load(&mut self, unit: Unit) -> Result<usize, String> {
        let base = self.program.text.len();
        let first_constant = self.program.constants.len();
        let full = first_constant + unit.constants.len() >= 1 << 24
            || self.program.globals.len() + unit.globals.len() >= 1 << 24
            || base + unit.code.len() >= u32::MAX as usize;
        if full {
            return Err("the machine's tables of code are full".into());
        }
        for constant in &unit.constants {
            let value =
                value::of_datum(&mut self.heap, constant).map_err(|label| format!("no datum has label #{label}="))?;
            let (frozen, _) = self
                .heap
                .freeze(value, self.heap.limit())
                .map_err(|_| "constants take more than the limit of a heap")?;
            self.program.constants.push(frozen);
        }
        let program = &mut self.program;
        let globals: Vec<u32> = unit.globals.iter().map(|name| program.global(*name)).collect();
        Arc::make_mut(&mut program.text).extend(unit.code.iter().map(|instruction| match instruction.op() {
            Op::Constant | Op::CellRead => instruction.with_c((first_constant + instruction.index()) as i64),
            Op::Global | Op::Define => instruction.with_c(i64::from(globals[instruction.index()])),
            _ => *instruction,
        }));
        let hash = unit.hash(&program.symbols);
        program.index.add(base, hash, unit);
        Ok(base)
    }

    /// Sets the machine to call the procedure that begins at `entry`, without arguments.
    pub(crate) fn start(&mut self, entry: usize) {
        self.frames.clear();
        self.kont = NIL;
        self.marks = NIL;
        self.base = 0;
        self.stack[0] = code(entry);
        self.arguments = 0;
        self.live = 1;
        self.pc = entry;
    }
}
