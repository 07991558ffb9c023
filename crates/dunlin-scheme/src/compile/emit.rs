//! Code as it grows: labels, constants, globals, positions.

use std::collections::HashMap;
use std::sync::Arc;

use super::inline::Inlines;
use crate::code::instruction::C_RANGE;
use crate::code::{Instruction, Op, Unit};
use crate::core::{Clause, Lambda, Var};
use crate::datum::{Datum, Kind, Pos};
use crate::error::SyntaxError;
use crate::names::{Name, Symbols};

/// A place in code that jumps name before it is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Label(usize);

pub(super) struct Emitter<'c> {
    pub(super) inlines: &'c Inlines<'c>,
    pub(super) symbols: &'c Symbols,
    unit: Unit,
    constants: HashMap<Name, usize>,
    globals: HashMap<Name, usize>,
    labels: Vec<Option<usize>>,
    jumps: Vec<(usize, Label)>,
    /// Where the last label is: what comes before it is not made one with what comes after.
    last_label: usize,
    /// Free variables of each procedure, by its address: the tree does not move while it is compiled.
    pub(super) free: HashMap<*const Clause, Arc<[Var]>>,
}

impl<'c> Emitter<'c> {
    pub(super) fn new(symbols: &'c Symbols, inlines: &'c Inlines<'c>, source_name: &Arc<str>) -> Self {
        let unit = Unit {
            code: Vec::new(),
            constants: Vec::new(),
            globals: Vec::new(),
            positions: Vec::new(),
            procedures: Vec::new(),
            source_name: source_name.clone(),
            sources: Default::default(),
        };
        Self {
            inlines,
            symbols,
            unit,
            constants: HashMap::new(),
            globals: HashMap::new(),
            labels: Vec::new(),
            jumps: Vec::new(),
            last_label: 0,
            free: HashMap::new(),
        }
    }

    pub(super) fn here(&self) -> usize {
        self.unit.code.len()
    }

    pub(super) fn emit(&mut self, op: Op, a: u16, b: u16, c: i64) -> usize {
        if op == Op::Move && self.fuse_move(a, b) {
            return self.here() - 1;
        }
        self.unit.code.push(Instruction::new(op, a, b, c));
        self.here() - 1
    }

    /// Makes one instruction of two moves to registers that follow each other.
    fn fuse_move(&mut self, a: u16, b: u16) -> bool {
        let here = self.here();
        match self.unit.code.last_mut() {
            Some(last) if last.op() == Op::Move && last.a() + 1 == usize::from(a) && self.last_label < here => {
                *last = Instruction::new(Op::MoveTwo, last.a() as u16, last.b() as u16, i64::from(b));
                true
            }
            _ => false,
        }
    }

    pub(super) fn emit_wide(&mut self, op: Op, a: u16, value: i64) {
        self.unit.code.push(Instruction::wide(op, a, value));
    }

    /// Notes that the next instruction comes from here.
    pub(super) fn at(&mut self, pos: Pos) {
        let here = self.here() as u32;
        if pos != Pos::default() && self.unit.positions.last().is_none_or(|(last, _)| *last < here) {
            self.unit.positions.push((here, pos));
        }
    }

    pub(super) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    pub(super) fn place(&mut self, label: Label) {
        self.last_label = self.here();
        self.labels[label.0] = Some(self.last_label);
    }

    pub(super) fn jump(&mut self, op: Op, a: u16, b: u16, label: Label) {
        let at = self.emit(op, a, b, 0);
        self.jumps.push((at, label));
    }

    pub(super) fn set_c(&mut self, at: usize, c: i64) {
        self.unit.code[at] = self.unit.code[at].with_c(c);
    }

    pub(super) fn begin_procedure(&mut self, lambda: &Lambda) {
        let name = lambda.name.map_or_else(|| "".into(), |name| self.symbols.text(name).clone());
        let here = self.here() as u32;
        self.unit.procedures.push((here, name));
    }

    pub(super) fn global(&mut self, name: Name) -> i64 {
        let globals = &mut self.unit.globals;
        *self.globals.entry(name).or_insert_with(|| {
            globals.push(name);
            globals.len() - 1
        }) as i64
    }

    pub(super) fn constant(&mut self, datum: &Datum) -> i64 {
        let constants = &mut self.unit.constants;
        let mut add = || {
            constants.push(datum.clone());
            constants.len() - 1
        };
        match datum.kind {
            Kind::Symbol(name) => *self.constants.entry(name).or_insert_with(add) as i64,
            _ => add() as i64,
        }
    }

    pub(super) fn too_large(&self, pos: Pos) -> SyntaxError {
        let message = "the procedure is too large: at most 65,000 variables and arguments, and 8,000,000 instructions";
        SyntaxError { source_name: self.unit.source_name.clone(), pos, message: message.into(), incomplete: false }
    }

    /// Whether distances still fit an instruction.
    pub(super) fn fits(&self) -> bool {
        C_RANGE.contains(&(self.here() as i64)) && self.unit.constants.len() < *C_RANGE.end() as usize
    }

    pub(super) fn finish(mut self) -> Unit {
        for (at, label) in std::mem::take(&mut self.jumps) {
            let target = self.labels[label.0].expect("every label is placed");
            self.set_c(at, target as i64 - (at as i64 + 1));
        }
        self.unit
    }
}
