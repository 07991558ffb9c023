//! What the processes of a program share: names, code, globals.

use std::collections::HashMap;
use std::sync::Arc;

use super::port::{Port, PortKind};
use crate::code::{Index, Instruction};
use crate::compile::Inline;
use crate::expand::env::Syntaxes;
use crate::heap::Word;
use crate::heap::word::UNSET;
use crate::names::{Name, Symbols};
use crate::wire::NodeNames;

/// What the processes of a program share. Values in it are immediate, or lie in the frozen segment.
#[derive(Clone)]
pub(crate) struct Program {
    pub(crate) symbols: Symbols,
    pub(crate) syntaxes: Syntaxes,
    pub(crate) inlines: HashMap<Name, Vec<Inline>>,
    /// All code. A turn holds on to it, so it grows only between turns.
    pub(super) text: Arc<Vec<Instruction>>,
    pub(super) index: Index,
    global_numbers: HashMap<Name, u32>,
    pub(super) global_names: Vec<Name>,
    pub(super) globals: Vec<Word>,
    /// Globals whose values have cells that are not written: every process writes those of its own copy, so
    /// the table of globals has no value for them.
    pub(super) open: HashMap<u32, Word>,
    pub(super) constants: Vec<Word>,
    pub(super) ports: Vec<Port>,
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
            text: Arc::default(),
            index: Index::default(),
            global_numbers: HashMap::new(),
            global_names: Vec::new(),
            globals: Vec::new(),
            open: HashMap::new(),
            constants: Vec::new(),
            ports: vec![Port::new(PortKind::Console)],
            next_number: 0,
            names: NodeNames::new(),
            process_entry: 0,
        }
    }

    /// The same, as another program: its processes and tags are not those of this one.
    pub(super) fn another(&self) -> Self {
        Self { names: NodeNames::new(), ..self.clone() }
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

    /// The names of globals that have a value.
    pub(crate) fn defined_names(&self) -> Vec<String> {
        let numbers = (0..).zip(&self.globals);
        let defined = numbers.filter(|(number, value)| **value != UNSET || self.open.contains_key(number));
        defined.map(|(number, _)| self.symbols.text(self.global_names[number as usize]).to_string()).collect()
    }

    /// A number that no other parameter or tag has.
    pub(super) fn new_number(&mut self) -> i64 {
        self.next_number += 1;
        self.next_number
    }
}
