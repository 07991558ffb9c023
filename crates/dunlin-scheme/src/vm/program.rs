//! What the processes of a program share: names, code, globals.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU64;
use std::sync::Arc;

use crate::code::{Index, Instruction};
use crate::compile::Inline;
use crate::expand::env::Syntaxes;
use crate::heap::word::UNSET;
use crate::heap::{Numbers, Word};
use crate::names::{Name, Symbols};
use crate::wire::NodeNames;

/// What running processes read all the time: each machine has a copy. The text is one for all of them, until
/// a machine adds to it while others read it.
#[derive(Clone, Default)]
pub(super) struct Code {
    /// All code. A turn holds on to it.
    pub(super) text: Arc<Vec<Instruction>>,
    /// By number: those that code names, and those that have a value.
    pub(super) globals: Vec<Word>,
    pub(super) constants: Vec<Word>,
}

impl Code {
    /// The value of a global in this table, or no value's word.
    #[inline]
    pub(super) fn global(&self, number: usize) -> Word {
        self.globals.get(number).copied().unwrap_or(UNSET)
    }

    pub(super) fn set_global(&mut self, number: usize, value: Word) {
        if self.globals.len() <= number {
            self.globals.resize(number + 1, UNSET);
        }
        self.globals[number] = value;
    }
}

/// Words of live objects, if no limit is set.
const LIMIT_WORDS: usize = 1 << 27;

/// What the processes of a program share. Values in it are immediate, or lie in the frozen segment.
#[derive(Clone)]
pub(crate) struct Program {
    pub(crate) symbols: Symbols,
    pub(crate) syntaxes: Syntaxes,
    pub(crate) inlines: HashMap<Name, Vec<Inline>>,
    /// What the machines have copies of, and which version that is.
    pub(super) code: Code,
    pub(super) frozen: Arc<Vec<Word>>,
    pub(super) numbers: Arc<Numbers>,
    pub(super) version: u64,
    /// Words that a heap may have.
    pub(super) heap_limit: usize,
    /// Fuel that a process may use in a second, if that is limited.
    pub(super) fuel_rate: Option<NonZeroU64>,
    pub(super) index: Index,
    global_numbers: HashMap<Name, u32>,
    pub(super) global_names: Vec<Name>,
    /// Globals whose values have cells that are not written: every process writes those of its own copy, so
    /// the table of globals has no value for them.
    pub(super) open: HashMap<u32, Word>,
    /// Globals that keep their first value: those of libraries.
    pub(super) once: HashSet<u32>,
    pub(super) next_number: i64,
    pub(super) names: NodeNames,
    /// Where `%process` begins: what every process but the main one runs.
    pub(super) process_entry: usize,
}

impl Program {
    pub(super) fn new() -> Self {
        Self {
            symbols: Symbols::default(),
            syntaxes: Syntaxes::default(),
            inlines: HashMap::new(),
            code: Code::default(),
            frozen: Arc::default(),
            numbers: Arc::default(),
            version: 0,
            heap_limit: LIMIT_WORDS,
            fuel_rate: None,
            index: Index::default(),
            global_numbers: HashMap::new(),
            global_names: Vec::new(),
            open: HashMap::new(),
            once: HashSet::new(),
            next_number: 0,
            names: NodeNames::new(),
            process_entry: 0,
        }
    }

    /// The same, as another program: its processes and tags are not those of this one.
    pub(super) fn another(&self) -> Self {
        Self { names: NodeNames::new(), numbers: Arc::default(), ..self.clone() }
    }

    /// The number of a global.
    pub(crate) fn global(&mut self, name: Name) -> u32 {
        if let Some(number) = self.global_numbers.get(&name) {
            return *number;
        }
        let number = self.global_names.len() as u32;
        self.global_names.push(name);
        self.global_numbers.insert(name, number);
        number
    }

    /// Gives a global another name, and returns its number. The old name is free.
    pub(super) fn rename_global(&mut self, from: Name, to: Name) -> u32 {
        let number = self.global(from);
        self.global_numbers.remove(&from);
        self.global_numbers.insert(to, number);
        self.global_names[number as usize] = to;
        number
    }

    /// The name of a global, as programs know it.
    pub(super) fn label(&self, number: usize) -> Name {
        let name = self.global_names[number];
        self.syntaxes.label_of(name).unwrap_or(name)
    }

    /// The names of globals that have a value, and that all programs know by these names.
    pub(crate) fn defined_globals(&self) -> impl Iterator<Item = Name> {
        let is_defined =
            move |number: u32| self.code.global(number as usize) != UNSET || self.open.contains_key(&number);
        let defined = (0..).zip(&self.global_names).filter(move |(number, _)| is_defined(*number));
        defined.map(|(_, name)| *name).filter(|name| self.syntaxes.label_of(*name).is_none())
    }

    /// A number that no other parameter or tag has.
    pub(super) fn new_number(&mut self) -> i64 {
        self.next_number += 1;
        self.next_number
    }
}
