//! The state of a machine, and how code is loaded.

use std::num::NonZeroU64;
use std::sync::Arc;

use super::commons::{Commons, Home, Lease};
use super::fail::Fail;
use super::outside::Request;
use super::program::{Code, Program};
use crate::code::{Op, Unit};
use crate::data::{End, Value};
use crate::error::Error;
use crate::expand::Files;
use crate::heap::word::{NIL, UNSET, code};
use crate::heap::{Heap, Word};
use crate::interrupt::Interrupts;
use crate::proc::{Host, Local, Operation, OwnGlobal, Parting, Process};
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

/// The number of no process: none is in the machine.
pub(super) const NONE: u64 = u64::MAX;

/// Where a caller goes on.
#[derive(Clone, Copy)]
pub(super) struct Frame {
    pub(super) pc: u32,
    pub(super) base: u32,
}

/// Runs processes of a program, one at a time: that one's heap and frames are in the machine. What it shares
/// with the other machines of the program is in the commons.
pub(crate) struct Machine {
    pub(crate) commons: Lease,
    /// What the program had when the machine looked last: also the frozen segment of the heap.
    pub(super) code: Code,
    pub(super) version: u64,
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
    /// Fuel that a process may use in a second, if that is limited.
    pub(super) fuel_rate: Option<NonZeroU64>,
    /// The most fuel that a turn used past its end.
    pub(super) overrun: u64,
    /// What the process raised that ended it.
    pub(super) failure: Option<Word>,
    /// What ended the main process while another one ran.
    pub(super) main_failure: Option<Error>,
    /// The process that runs, but for its heap and frames.
    pub(super) running: Box<Process>,
    /// What another process ended it with.
    pub(super) parting: Option<Box<Parting>>,
    pub(super) host: Box<dyn Host + Send>,
    /// Reads what programs include, and their libraries. The machines of an engine have none: nothing waits
    /// for a file while it has the commons.
    pub(crate) files: Option<Files>,
    pub(crate) interrupts: Interrupts,
    /// What the process asks of channels.
    pub(super) asked: Option<Operation>,
    /// Whether the embedder gives the turns.
    pub(super) is_embedded: bool,
    /// What processes have asked of the embedder, which it has not taken yet.
    pub(super) requests: Vec<Request>,
    /// Whether the program had printed something that the embedder has not taken.
    pub(super) has_output: bool,
    /// Ends of channels that the embedder has not taken yet.
    pub(super) released: Vec<End>,
}

impl Machine {
    pub(crate) fn new() -> Self {
        Self::with(Program::new())
    }

    /// A machine with a copy of the program, without its processes.
    pub(crate) fn another(&self) -> Self {
        Self::with(self.commons.program.another())
    }

    fn with(program: Program) -> Self {
        let mut machine = Self::of(Home::new(Commons::new(program)));
        // The main process: the first number of a table.
        let main = machine.commons.table.add();
        *machine.running = Process::new(main);
        machine.sync();
        machine
    }

    /// Another machine of a program, without a process.
    pub(crate) fn of(home: Arc<Home>) -> Self {
        let commons = Lease::new(home);
        let Program { numbers, heap_limit, .. } = &commons.program;
        let heap = Heap::new(NURSERY_WORDS, *heap_limit, numbers.clone());
        Self {
            commons,
            code: Code::default(),
            version: 0,
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
            fuel_rate: None,
            overrun: 0,
            failure: None,
            main_failure: None,
            running: Box::new(Process::new(NONE)),
            parting: None,
            host: Box::new(Local::real()),
            files: None,
            interrupts: Interrupts::default(),
            asked: None,
            is_embedded: false,
            requests: Vec::new(),
            has_output: false,
            released: Vec::new(),
        }
    }

    /// What the program printed since this was called last.
    pub(crate) fn take_output(&mut self) -> String {
        std::mem::take(&mut self.commons.output)
    }

    /// Whether both have one and the same text of code.
    #[cfg(test)]
    pub(crate) fn shares_code_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.code.text, &other.code.text)
    }

    /// The most fuel that a turn used past its end, since this was called last.
    pub(crate) fn take_overrun(&mut self) -> u64 {
        std::mem::take(&mut self.overrun)
    }

    /// Takes over what the program has by now. Values that come from elsewhere may need it.
    pub(super) fn sync(&mut self) {
        let program = &self.commons.program;
        if self.version != program.version {
            self.version = program.version;
            self.code.clone_from(&program.code);
            self.heap.set_frozen(program.frozen.clone());
            self.heap.set_limit(program.heap_limit);
            self.fuel_rate = program.fuel_rate;
        }
    }

    /// Lets this machine change what all have copies of, until [`Machine::publish`]: without a copy if this
    /// is the only one.
    fn unpublish(&mut self) {
        self.sync();
        let program = &mut self.commons.program;
        program.code.text = Arc::default();
        program.frozen = Arc::default();
    }

    fn publish(&mut self) {
        let program = &mut self.commons.program;
        program.code.text = self.code.text.clone();
        let known = program.code.constants.len();
        program.code.constants.extend_from_slice(&self.code.constants[known..]);
        program.code.globals.resize(self.code.globals.len(), UNSET);
        program.frozen = self.heap.frozen().clone();
        program.version += 1;
        self.version = program.version;
    }

    /// Limits the words of live objects, for each process.
    pub(crate) fn set_heap_limit(&mut self, words: usize) {
        self.commons.program.heap_limit = words;
        self.commons.program.version += 1;
        self.sync();
    }

    /// Limits the fuel that a process may use in a second.
    pub(crate) fn set_fuel_rate(&mut self, rate: Option<NonZeroU64>) {
        self.commons.program.fuel_rate = rate;
        self.commons.program.version += 1;
        self.sync();
    }

    /// The value of a global for the process that runs.
    pub(super) fn global_at(&mut self, number: u32) -> Option<Word> {
        self.sync();
        let value = self.code.global(number as usize);
        if value != UNSET {
            return Some(value);
        }
        let frozen = *self.commons.program.open.get(&number)?;
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
        self.unpublish();
        let before = self.heap.frozen().len();
        let frozen = self.heap.freeze(value, limit);
        if let Ok((frozen, is_open)) = frozen {
            let value = if is_open { UNSET } else { frozen };
            self.code.set_global(number as usize, value);
            self.commons.program.code.set_global(number as usize, value);
        }
        self.publish();
        self.charge += (self.heap.frozen().len() - before) as u64 / 16;
        let (frozen, is_open) = frozen?;
        if is_open {
            self.commons.program.open.insert(number, frozen);
            self.keep(OwnGlobal { number, frozen, value });
        } else if self.commons.program.open.remove(&number).is_some() {
            self.running.own.retain(|own| own.number != number);
        }
        Ok(())
    }

    /// The value of a global, or no value's word.
    pub(crate) fn global_value(&mut self, name: &str) -> Word {
        let name = self.commons.program.symbols.intern(name);
        let number = self.commons.program.global(name);
        self.global_at(number).unwrap_or(UNSET)
    }

    /// Gives a global a value, for all processes.
    ///
    /// # Errors
    /// [`Fail::Full`] if the values of globals would take more than `limit` words.
    pub(crate) fn set_global(&mut self, name: &str, value: Word, limit: usize) -> Result<(), Fail> {
        let name = self.commons.program.symbols.intern(name);
        let number = self.commons.program.global(name);
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
        let name = self.defined_name(name);
        self.set_global(&name, word, limit).map_err(|_| Error::HeapLimit { limit_bytes, trace: Vec::new() })
    }

    /// The global that a program defines by this name: its own if it is that of a standard procedure.
    pub(crate) fn defined_name(&mut self, name: &str) -> Arc<str> {
        let Program { symbols, syntaxes, .. } = &mut self.commons.program;
        let name = symbols.intern(name);
        let global = syntaxes.define(name, symbols);
        symbols.text(global).clone()
    }

    /// The global that a name means at the top level.
    pub(crate) fn program_name(&mut self, name: &str) -> Arc<str> {
        let Program { symbols, syntaxes, .. } = &mut self.commons.program;
        let name = symbols.intern(name);
        symbols.text(syntaxes.global(name)).clone()
    }

    /// Loads a unit; its first procedure begins at the place returned.
    ///
    /// # Errors
    /// A message, if the machine's tables are full or a constant names no label.
    pub(crate) fn load(&mut self, unit: Unit) -> Result<usize, String> {
        self.sync();
        let base = self.code.text.len();
        let first_constant = self.code.constants.len();
        let full = first_constant + unit.constants.len() >= 1 << 24
            || self.commons.program.global_names.len() + unit.globals.len() >= 1 << 24
            || base + unit.code.len() >= u32::MAX as usize;
        if full {
            return Err("the machine's tables of code are full".into());
        }
        self.unpublish();
        let constants = self.freeze_constants(&unit);
        if constants.is_ok() {
            let program = &mut self.commons.program;
            let globals: Vec<u32> = unit.globals.iter().map(|name| program.global(*name)).collect();
            self.code.globals.resize(program.global_names.len(), UNSET);
            let linked = unit.code.iter().map(|instruction| match instruction.op() {
                Op::Constant | Op::CellRead => instruction.with_c((first_constant + instruction.index()) as i64),
                Op::Global | Op::Define => instruction.with_c(i64::from(globals[instruction.index()])),
                _ => *instruction,
            });
            Arc::make_mut(&mut self.code.text).extend(linked);
        }
        self.publish();
        constants?;
        let program = &mut self.commons.program;
        let hash = unit.hash(&program.symbols);
        program.index.add(base, hash, unit);
        Ok(base)
    }

    fn freeze_constants(&mut self, unit: &Unit) -> Result<(), String> {
        for constant in &unit.constants {
            let value =
                value::of_datum(&mut self.heap, constant).map_err(|label| format!("no datum has label #{label}="))?;
            let (frozen, _) = self
                .heap
                .freeze(value, self.heap.limit())
                .map_err(|_| "constants take more than the limit of a heap")?;
            self.code.constants.push(frozen);
        }
        Ok(())
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
