//! Expressions to instructions.
//!
//! `depth` is the lowest free register everywhere: a value is left there, and all registers below it hold
//! values. See the crate's `code` for why that matters.

use std::collections::HashMap;

use super::emit::{Emitter, Label};
use super::free;
use super::inline::Inline;
use super::letrec::{self, Group};
use super::loops::{self, Known};
use crate::code::Op;
use crate::code::instruction::C_RANGE;
use crate::core::{Clause, Core, Lambda, Var};
use crate::datum::{Datum, Kind, Pos};
use crate::error::SyntaxError;
use crate::heap::word;
use crate::num::Number;

type Result<T = ()> = std::result::Result<T, SyntaxError>;

/// Registers of one frame.
const REGISTERS_MAX: u16 = 65_000;

/// Where a variable is.
#[derive(Clone, Copy, Debug)]
enum Place {
    Register(u16),
    Free(i64),
    /// The procedure that runs.
    This,
    /// It is no value: its calls go to the label, with arguments in the registers from here on.
    Loop {
        first: u16,
        label: Label,
    },
}

/// A procedure that is compiled after the one around it.
struct Pending<'c> {
    lambda: &'c Lambda,
    label: Label,
    free: Vec<Var>,
    this: Option<Var>,
    /// It is the top level: its last call keeps the frame, so that an error there has a position.
    is_top: bool,
}

struct Compiler<'e, 'c> {
    emitter: &'e mut Emitter<'c>,
    pending: Vec<Pending<'c>>,
    places: HashMap<Var, Place>,
    /// Variables whose place holds a cell: their names for errors, and where they are bound.
    cells: HashMap<Var, (i64, Pos)>,
    known: Known,
    registers: u16,
}

pub(super) fn compile_all<'c>(emitter: &mut Emitter<'c>, first: &'c Lambda) -> Result {
    let label = emitter.label();
    let pending = vec![Pending { lambda: first, label, free: Vec::new(), this: None, is_top: true }];
    let places = HashMap::new();
    let mut compiler =
        Compiler { emitter, pending, places, cells: HashMap::new(), known: Known::default(), registers: 0 };
    while let Some(next) = compiler.pending.pop() {
        compiler.procedure(next)?;
    }
    Ok(())
}

impl<'c> Compiler<'_, 'c> {
    fn procedure(&mut self, procedure: Pending<'c>) -> Result {
        let Pending { lambda, label, free, this, is_top } = procedure;
        self.emitter.place(label);
        self.emitter.begin_procedure(lambda);
        self.emitter.at(lambda.pos);
        for (at, clause) in lambda.clauses.iter().enumerate() {
            self.places = free.iter().enumerate().map(|(at, var)| (*var, Place::Free(at as i64))).collect();
            if let Some(this) = this {
                self.places.insert(this, Place::This);
            }
            let vars = clause.parameters.iter().chain(clause.rest.iter());
            self.places.extend(vars.zip(1..).map(|(var, register)| (*var, Place::Register(register))));
            let count = clause.parameters.len() + usize::from(clause.rest.is_some());
            if count > usize::from(REGISTERS_MAX) {
                return Err(self.emitter.too_large(lambda.pos));
            }
            let (parameters, rest) = (clause.parameters.len() as u16, u16::from(clause.rest.is_some()));
            self.registers = count as u16 + 1;
            let is_last = at + 1 == lambda.clauses.len();
            let next = self.emitter.label();
            let enter = if is_last {
                self.emitter.emit(Op::Entry, parameters, rest, 0)
            } else {
                self.emitter.jump(Op::EntryOr, parameters, rest, next);
                self.emitter.emit(Op::Enter, 0, 0, 0)
            };
            if is_top {
                self.value(&clause.body, 1)?;
                self.emitter.emit(Op::Return, 0, 1, 0);
            } else {
                self.tail(&clause.body, count as u16 + 1)?;
            }
            self.emitter.set_c(enter, i64::from(self.registers));
            self.emitter.place(next);
            if !self.emitter.fits() {
                return Err(self.emitter.too_large(lambda.pos));
            }
        }
        if lambda.clauses.is_empty() {
            self.emitter.emit(Op::Entry, u16::MAX, 0, 1);
        }
        Ok(())
    }

    /// Notes that the register is used.
    fn use_register(&mut self, register: u16, pos: Pos) -> Result {
        if register >= REGISTERS_MAX {
            return Err(self.emitter.too_large(pos));
        }
        self.registers = self.registers.max(register + 1);
        Ok(())
    }

    /// Code that returns the value of `core`.
    fn tail(&mut self, core: &'c Core, depth: u16) -> Result {
        stacker::maybe_grow(64 << 10, 2 << 20, || match core {
            Core::If(parts) => {
                let other = self.emitter.label();
                self.test(&parts[0], depth, false, other)?;
                self.tail(&parts[1], depth)?;
                self.emitter.place(other);
                self.tail(&parts[2], depth)
            }
            Core::Or(parts) => {
                let other = self.emitter.label();
                self.value(&parts[0], depth)?;
                self.emitter.jump(Op::JumpFalse, depth, 0, other);
                self.emitter.emit(Op::Return, 0, depth, 0);
                self.emitter.place(other);
                self.tail(&parts[1], depth)
            }
            Core::Call(procedure, arguments, pos) => {
                if self.loop_call(procedure, arguments, depth)? || self.inlined(procedure, arguments, *pos, depth)? {
                    return self.finish_tail(core, depth);
                }
                self.call(procedure, arguments, depth)?;
                self.emitter.at(*pos);
                self.emitter.emit(Op::TailCall, depth, arguments.len() as u16, 0);
                Ok(())
            }
            Core::Let(bindings, body) => {
                let depth = self.bind(bindings, depth)?;
                self.tail(body, depth)
            }
            Core::Letrec(bindings, body, pos) => {
                if let Some((label, clause, first)) = self.enter_loop(bindings, body, depth)? {
                    self.tail(body, depth)?;
                    return self.loop_body(label, clause, first, |this, depth| this.tail(&clause.body, depth));
                }
                let depth = self.letrec(bindings, depth, *pos)?;
                self.tail(body, depth)
            }
            Core::Seq(parts) => {
                let (last, others) = parts.split_last().expect("a sequence is not empty");
                for part in others {
                    self.effect(part, depth)?;
                }
                self.tail(last, depth)
            }
            _ => {
                let register = self.operand(core, &mut depth.clone())?;
                self.emitter.emit(Op::Return, 0, register, 0);
                Ok(())
            }
        })
    }

    /// After a call that left its value, or jumped.
    fn finish_tail(&mut self, core: &Core, depth: u16) -> Result {
        if let Core::Call(procedure, ..) = core
            && let Core::Local(var) = **procedure
            && let Some(Place::Loop { .. }) = self.places.get(&var)
        {
            return Ok(());
        }
        self.emitter.emit(Op::Return, 0, depth, 0);
        Ok(())
    }

    fn plain_place(&self, var: Var) -> Option<Place> {
        if self.cells.contains_key(&var) { None } else { self.places.get(&var).copied() }
    }

    /// Code whose value is not used.
    fn effect(&mut self, core: &'c Core, depth: u16) -> Result {
        match core {
            Core::Const(_) => Ok(()),
            Core::Local(var) if !self.cells.contains_key(var) => Ok(()),
            _ => self.value(core, depth),
        }
    }

    /// Code that leaves the value of `core` in register `depth`.
    fn value(&mut self, core: &'c Core, depth: u16) -> Result {
        stacker::maybe_grow(64 << 10, 2 << 20, || self.value_here(core, depth))
    }

    fn value_here(&mut self, core: &'c Core, depth: u16) -> Result {
        self.use_register(depth, Pos::default())?;
        match core {
            Core::Const(datum) => self.constant(datum, depth),
            Core::Local(var) => self.variable(*var, depth),
            Core::Global(name, pos) => {
                let global = self.emitter.global(*name);
                self.emitter.at(*pos);
                self.emitter.emit(Op::Global, depth, 0, global);
            }
            Core::If(parts) => {
                let (other, end) = (self.emitter.label(), self.emitter.label());
                self.test(&parts[0], depth, false, other)?;
                self.value(&parts[1], depth)?;
                self.emitter.jump(Op::Jump, 0, 0, end);
                self.emitter.place(other);
                self.value(&parts[2], depth)?;
                self.emitter.place(end);
            }
            Core::Or(parts) => {
                let end = self.emitter.label();
                self.value(&parts[0], depth)?;
                self.emitter.jump(Op::JumpTrue, depth, 0, end);
                self.value(&parts[1], depth)?;
                self.emitter.place(end);
            }
            Core::Lambda(lambda) => self.closure(lambda, None, depth)?,
            Core::Call(procedure, arguments, pos) => {
                if !self.loop_call(procedure, arguments, depth)? && !self.inlined(procedure, arguments, *pos, depth)? {
                    self.call(procedure, arguments, depth)?;
                    self.emitter.at(*pos);
                    self.emitter.emit(Op::Call, depth, arguments.len() as u16, 0);
                }
            }
            Core::Let(bindings, body) => {
                let inner = self.bind(bindings, depth)?;
                self.value(body, inner)?;
                self.emitter.emit(Op::Move, depth, inner, 0);
            }
            Core::Letrec(bindings, body, pos) => {
                if let Some((label, clause, first)) = self.enter_loop(bindings, body, depth)? {
                    let end = self.emitter.label();
                    self.value(body, depth)?;
                    if !self.is_loop_call(body, label) {
                        self.emitter.jump(Op::Jump, 0, 0, end);
                    }
                    self.loop_body(label, clause, first, |this, inner| {
                        this.value(&clause.body, inner)?;
                        this.emitter.emit(Op::Move, depth, inner, 0);
                        Ok(())
                    })?;
                    self.emitter.place(end);
                    return Ok(());
                }
                let inner = self.letrec(bindings, depth, *pos)?;
                self.value(body, inner)?;
                if inner != depth {
                    self.emitter.emit(Op::Move, depth, inner, 0);
                }
            }
            Core::Seq(parts) => {
                let (last, others) = parts.split_last().expect("a sequence is not empty");
                for part in others {
                    self.effect(part, depth)?;
                }
                self.value(last, depth)?;
            }
            Core::Define(name, value) => {
                self.value(value, depth)?;
                let global = self.emitter.global(*name);
                self.emitter.emit(Op::Define, depth, 0, global);
                self.emitter.emit_wide(Op::LoadImmediate, depth, word::UNSPECIFIED as i64);
            }
        }
        Ok(())
    }

    fn constant(&mut self, datum: &Datum, depth: u16) {
        let immediate = match &datum.kind {
            Kind::Number(Number::Fix(value)) if (-(1 << 39)..1 << 39).contains(value) => {
                return self.emitter.emit_wide(Op::LoadInt, depth, *value);
            }
            Kind::Bool(value) => word::boolean(*value),
            Kind::Char(value) => word::character(*value),
            Kind::List(items, _) if items.is_empty() => word::NIL,
            Kind::Unspecified => word::UNSPECIFIED,
            _ => {
                let constant = self.emitter.constant(datum);
                self.emitter.emit(Op::Constant, depth, 0, constant);
                return;
            }
        };
        self.emitter.emit_wide(Op::LoadImmediate, depth, immediate as i64);
    }

    /// Leaves what the place of a variable holds, which may be a cell.
    fn place(&mut self, var: Var, depth: u16) {
        match self.places.get(&var) {
            Some(Place::Register(register)) => self.emitter.emit(Op::Move, depth, *register, 0),
            Some(Place::Free(at)) => self.emitter.emit(Op::Free, depth, 0, *at),
            Some(Place::This) => self.emitter.emit(Op::Move, depth, 0, 0),
            Some(Place::Loop { .. }) | None => unreachable!("a loop is only called, and every variable is bound"),
        };
    }

    fn variable(&mut self, var: Var, depth: u16) {
        let Some((name, pos)) = self.cells.get(&var).copied() else { return self.place(var, depth) };
        let cell = match self.places.get(&var) {
            Some(Place::Register(register)) => *register,
            _ => {
                self.place(var, depth);
                depth
            }
        };
        self.emitter.at(pos);
        self.emitter.emit(Op::CellRead, depth, cell, name);
    }

    /// The register of an operand: the variable's own, or the next free one.
    fn operand(&mut self, core: &'c Core, depth: &mut u16) -> Result<u16> {
        if let Core::Local(var) = core {
            match self.plain_place(*var) {
                Some(Place::Register(register)) => return Ok(register),
                Some(Place::This) => return Ok(0),
                _ => {}
            }
        }
        self.value(core, *depth)?;
        *depth += 1;
        Ok(*depth - 1)
    }

    fn call(&mut self, procedure: &'c Core, arguments: &'c [Core], depth: u16) -> Result {
        self.value(procedure, depth)?;
        for (argument, register) in arguments.iter().zip(depth + 1..) {
            self.value(argument, register)?;
        }
        if arguments.len() >= usize::from(REGISTERS_MAX) {
            return Err(self.emitter.too_large(Pos::default()));
        }
        Ok(())
    }

    fn bind(&mut self, bindings: &'c [(Var, Core)], depth: u16) -> Result<u16> {
        let mut depth = depth;
        for (var, value) in bindings {
            self.value(value, depth)?;
            self.places.insert(*var, Place::Register(depth));
            depth += 1;
        }
        Ok(depth)
    }

    /// Leaves a closure; what it needs of the variables around it is copied into it.
    fn closure(&mut self, lambda: &'c Lambda, this: Option<Var>, depth: u16) -> Result {
        let mut variables = free::of_lambda(self.emitter, lambda);
        variables.retain(|var| Some(*var) != this);
        for (var, register) in variables.iter().zip(depth..) {
            self.use_register(register, lambda.pos)?;
            self.place(*var, register);
        }
        let label = self.emitter.label();
        self.emitter.jump(Op::Closure, depth, variables.len() as u16, label);
        self.pending.push(Pending { lambda, label, free: variables, this, is_top: false });
        Ok(())
    }

    fn letrec(&mut self, bindings: &'c [(Var, crate::names::Name, Core)], depth: u16, pos: Pos) -> Result<u16> {
        let plan = letrec::plan(self.emitter, bindings);
        let mut depth = depth;
        for (var, name) in &plan.cells {
            self.use_register(depth, pos)?;
            self.emitter.emit(Op::Cell, depth, 0, 0);
            self.places.insert(*var, Place::Register(depth));
            let name = self.emitter.constant(&Datum::symbol(pos, *name));
            self.cells.insert(*var, (name, pos));
            depth += 1;
        }
        for group in plan.groups {
            match group {
                Group::Value(var, value) => {
                    self.value(value, depth)?;
                    self.settle(var, &mut depth)?;
                }
                Group::Procedures(procedures) => depth = self.procedures(&procedures, depth)?,
            }
        }
        Ok(depth)
    }

    /// Gives a variable the value in the lowest free register: there, or in its cell.
    fn settle(&mut self, var: Var, depth: &mut u16) -> Result {
        if self.cells.contains_key(&var) {
            let Some(Place::Register(cell)) = self.places.get(&var).copied() else {
                unreachable!("a cell of this letrec is in a register");
            };
            self.use_register(*depth + 1, Pos::default())?;
            self.emitter.emit(Op::CellWrite, cell, *depth, i64::from(*depth + 1));
        } else {
            self.places.insert(var, Place::Register(*depth));
            *depth += 1;
        }
        Ok(())
    }

    fn procedures(&mut self, procedures: &[(Var, &'c Lambda)], depth: u16) -> Result<u16> {
        let mut depth = depth;
        if let [(var, lambda)] = procedures {
            let this = if self.cells.contains_key(var) { None } else { Some(*var) };
            self.closure(lambda, this, depth)?;
            self.settle(*var, &mut depth)?;
            return Ok(depth);
        }
        let mut patches = Vec::new();
        let first = depth;
        let register = |var: Var| procedures.iter().zip(first..).find(|((known, _), _)| *known == var);
        for (this, lambda) in procedures {
            let mut variables = free::of_lambda(self.emitter, lambda);
            variables.retain(|var| var != this || self.cells.contains_key(var));
            for (at, var) in variables.iter().enumerate() {
                let target = depth + at as u16;
                self.use_register(target, lambda.pos)?;
                match register(*var) {
                    Some((_, other)) if !self.cells.contains_key(var) => {
                        patches.push((depth, other, at as i64));
                        self.emitter.emit_wide(Op::LoadImmediate, target, word::FALSE as i64);
                    }
                    _ => self.place(*var, target),
                }
            }
            self.use_register(depth, lambda.pos)?;
            let label = self.emitter.label();
            self.emitter.jump(Op::ClosureOpen, depth, variables.len() as u16, label);
            let this = if self.cells.contains_key(this) { None } else { Some(*this) };
            self.pending.push(Pending { lambda, label, free: variables, this, is_top: false });
            depth += 1;
        }
        self.use_register(depth, Pos::default())?;
        for (closure, other, at) in patches {
            self.emitter.emit(Op::Patch, closure, other, at);
        }
        for ((var, _), register) in procedures.iter().zip(first..) {
            match self.places.get(var).copied() {
                Some(Place::Register(cell)) if self.cells.contains_key(var) => {
                    self.emitter.emit(Op::CellWrite, cell, register, i64::from(depth));
                }
                _ => {
                    self.places.insert(*var, Place::Register(register));
                }
            }
        }
        Ok(depth)
    }

    /// If the bindings are a loop, makes its label, for which the registers of its variables come next.
    fn enter_loop(
        &mut self,
        bindings: &'c [(Var, crate::names::Name, Core)],
        body: &Core,
        depth: u16,
    ) -> Result<Option<(Label, &'c Clause, u16)>> {
        let [(var, _, value)] = bindings else { return Ok(None) };
        let Some(clause) = loops::as_loop(&self.known, *var, value, body) else { return Ok(None) };
        let label = self.emitter.label();
        self.places.insert(*var, Place::Loop { first: depth, label });
        Ok(Some((label, clause, depth)))
    }

    fn loop_body(
        &mut self,
        label: Label,
        clause: &'c Clause,
        first: u16,
        body: impl FnOnce(&mut Self, u16) -> Result,
    ) -> Result {
        self.emitter.emit(Op::LoopHead, first + clause.parameters.len() as u16, 0, 0);
        self.emitter.place(label);
        self.places.extend(clause.parameters.iter().zip(first..).map(|(var, at)| (*var, Place::Register(at))));
        body(self, first + clause.parameters.len() as u16)
    }

    fn is_loop_call(&self, core: &Core, wanted: Label) -> bool {
        let Core::Call(procedure, ..) = core else { return false };
        let Core::Local(var) = **procedure else { return false };
        matches!(self.places.get(&var), Some(Place::Loop { label, .. }) if *label == wanted)
    }

    /// Compiles the call of a loop. Its arguments are computed before any variable changes.
    fn loop_call(&mut self, procedure: &Core, arguments: &'c [Core], depth: u16) -> Result<bool> {
        let Core::Local(var) = procedure else { return Ok(false) };
        let Some(Place::Loop { first, label, .. }) = self.places.get(var).copied() else { return Ok(false) };
        let mut moves = Vec::new();
        let mut next = depth;
        for (argument, target) in arguments.iter().zip(first..) {
            let is_same = |var| matches!(self.plain_place(var), Some(Place::Register(at)) if at == target);
            if matches!(argument, Core::Local(var) if is_same(*var)) {
                continue;
            }
            self.value(argument, next)?;
            if next != target {
                moves.push((target, next));
            }
            next += 1;
        }
        let last = moves.pop();
        for (target, register) in moves {
            self.emitter.emit(Op::Move, target, register, 0);
        }
        match last {
            Some((target, register)) => self.emitter.jump(Op::LoopMove, target, register, label),
            None => self.emitter.jump(Op::Loop, 0, 0, label),
        }
        Ok(true)
    }

    /// Compiles the call of a standard procedure that has an instruction, or is a primitive.
    fn inlined(&mut self, procedure: &Core, arguments: &'c [Core], pos: Pos, depth: u16) -> Result<bool> {
        let Some(inline) = self.inline_of(procedure, arguments.len()) else { return Ok(false) };
        let mut next = depth;
        match inline {
            Inline::Unary(op) => {
                let b = self.operand(&arguments[0], &mut next)?;
                self.use_register(depth, pos)?;
                self.emitter.at(pos);
                self.emitter.emit(op, depth, b, 0);
            }
            Inline::Binary(op) => self.binary(op, arguments, pos, depth, false)?,
            Inline::Arithmetic(op) => {
                let constant = match (op, small_constant(&arguments[0]), small_constant(&arguments[1])) {
                    (Op::Add, Some(c), _) => Some((&arguments[1], c)),
                    (Op::Add, _, Some(c)) => Some((&arguments[0], c)),
                    (Op::Subtract, _, Some(c)) if c > *C_RANGE.start() => Some((&arguments[0], -c)),
                    _ => None,
                };
                let Some((argument, c)) = constant else {
                    self.binary(op, arguments, pos, depth, false)?;
                    return Ok(true);
                };
                let b = self.operand(argument, &mut next)?;
                self.use_register(depth, pos)?;
                self.emitter.at(pos);
                self.emitter.emit(Op::AddConstant, depth, b, c);
            }
            Inline::Compare(_) | Inline::CompareSwapped(_) => self.compare(inline, arguments, pos, depth, false)?,
            Inline::Primitive { number, .. } => {
                for (argument, register) in arguments.iter().zip(depth..) {
                    self.value(argument, register)?;
                }
                self.use_register(depth, pos)?;
                self.emitter.at(pos);
                self.emitter.emit(Op::Primitive, depth, arguments.len() as u16, i64::from(number));
            }
        }
        Ok(true)
    }

    fn inline_of(&self, procedure: &Core, arguments: usize) -> Option<Inline> {
        let Core::Global(name, _) = procedure else { return None };
        if (self.emitter.inlines.is_replaced)(*name) {
            return None;
        }
        let known = self.emitter.inlines.table.get(name)?;
        known.iter().copied().find(|inline| match inline {
            Inline::Unary(_) => arguments == 1,
            Inline::Binary(_) | Inline::Arithmetic(_) | Inline::Compare(_) | Inline::CompareSwapped(_) => {
                arguments == 2
            }
            Inline::Primitive { least, most, .. } => {
                usize::from(*least) <= arguments && arguments <= usize::from(*most)
            }
        })
    }

    fn binary(&mut self, op: Op, arguments: &'c [Core], pos: Pos, depth: u16, swap: bool) -> Result {
        let mut next = depth;
        let b = self.operand(&arguments[0], &mut next)?;
        let c = self.operand(&arguments[1], &mut next)?;
        let (b, c) = if swap { (c, b) } else { (b, c) };
        self.use_register(depth, pos)?;
        self.emitter.at(pos);
        self.emitter.emit(op, depth, b, i64::from(c));
        Ok(())
    }

    /// Compares two numbers; with `fused` the next instruction is a `JumpFalse` of register `depth`.
    fn compare(&mut self, inline: Inline, arguments: &'c [Core], pos: Pos, depth: u16, fused: bool) -> Result {
        let (op, swapped) = match inline {
            Inline::CompareSwapped(op) => (op, true),
            Inline::Compare(op) => (op, false),
            _ => unreachable!("only comparisons are compared"),
        };
        let (left, right) = (small_constant(&arguments[0]), small_constant(&arguments[1]));
        if let Some(c) = right.or(left) {
            let argument = if right.is_some() { &arguments[0] } else { &arguments[1] };
            // The constant is the second operand of the instruction.
            let turned = swapped != right.is_none();
            let op = match (op, turned) {
                (Op::Less, false) => [Op::LessConstant, Op::LessConstantJump],
                (Op::LessEqual, false) => [Op::LessEqualConstant, Op::LessEqualConstantJump],
                (Op::Less, true) => [Op::GreaterConstant, Op::GreaterConstantJump],
                (Op::LessEqual, true) => [Op::GreaterEqualConstant, Op::GreaterEqualConstantJump],
                _ => [Op::NumberEqualConstant, Op::NumberEqualConstantJump],
            }[usize::from(fused)];
            let b = self.operand(argument, &mut { depth })?;
            self.use_register(depth, pos)?;
            self.emitter.at(pos);
            self.emitter.emit(op, depth, b, c);
            return Ok(());
        }
        let op = match (op, fused) {
            (Op::Less, true) => Op::LessJump,
            (Op::LessEqual, true) => Op::LessEqualJump,
            (Op::NumberEqual, true) => Op::NumberEqualJump,
            _ => op,
        };
        self.binary(op, arguments, pos, depth, swapped)
    }

    /// Code that goes to `label` if the truth of `core` is `when`, and else to what follows.
    fn test(&mut self, core: &'c Core, depth: u16, when: bool, label: Label) -> Result {
        stacker::maybe_grow(64 << 10, 2 << 20, || match core {
            Core::Const(datum) => {
                if !matches!(datum.kind, Kind::Bool(false)) == when {
                    self.emitter.jump(Op::Jump, 0, 0, label);
                }
                Ok(())
            }
            Core::If(parts) => {
                let (other, end) = (self.emitter.label(), self.emitter.label());
                self.test(&parts[0], depth, false, other)?;
                self.test(&parts[1], depth, when, label)?;
                self.emitter.jump(Op::Jump, 0, 0, end);
                self.emitter.place(other);
                self.test(&parts[2], depth, when, label)?;
                self.emitter.place(end);
                Ok(())
            }
            Core::Or(parts) if when => {
                self.test(&parts[0], depth, true, label)?;
                self.test(&parts[1], depth, true, label)
            }
            Core::Or(parts) => {
                let end = self.emitter.label();
                self.test(&parts[0], depth, true, end)?;
                self.test(&parts[1], depth, false, label)?;
                self.emitter.place(end);
                Ok(())
            }
            Core::Let(bindings, body) => {
                let depth = self.bind(bindings, depth)?;
                self.test(body, depth, when, label)
            }
            Core::Call(procedure, arguments, pos) => {
                let inline = self.inline_of(procedure, arguments.len());
                match inline {
                    Some(Inline::Unary(Op::Not)) => self.test(&arguments[0], depth, !when, label),
                    Some(Inline::Unary(op @ (Op::IsNull | Op::IsPair))) => {
                        let op = match (op, when) {
                            (Op::IsNull, true) => Op::JumpNull,
                            (Op::IsNull, false) => Op::JumpNotNull,
                            (_, true) => Op::JumpPair,
                            (_, false) => Op::JumpNotPair,
                        };
                        let a = self.operand(&arguments[0], &mut { depth })?;
                        self.emitter.jump(op, a, 0, label);
                        Ok(())
                    }
                    Some(Inline::Binary(Op::Eq)) => {
                        let mut next = depth;
                        let a = self.operand(&arguments[0], &mut next)?;
                        let b = self.operand(&arguments[1], &mut next)?;
                        self.emitter.jump(if when { Op::JumpEq } else { Op::JumpNotEq }, a, b, label);
                        Ok(())
                    }
                    Some(inline @ (Inline::Compare(_) | Inline::CompareSwapped(_))) => {
                        self.compare(inline, arguments, *pos, depth, !when)?;
                        let op = if when { Op::JumpTrue } else { Op::JumpFalse };
                        self.emitter.jump(op, depth, 0, label);
                        Ok(())
                    }
                    _ => self.test_value(core, depth, when, label),
                }
            }
            _ => self.test_value(core, depth, when, label),
        })
    }

    fn test_value(&mut self, core: &'c Core, depth: u16, when: bool, label: Label) -> Result {
        let register = self.operand(core, &mut { depth })?;
        self.emitter.jump(if when { Op::JumpTrue } else { Op::JumpFalse }, register, 0, label);
        Ok(())
    }
}

fn small_constant(core: &Core) -> Option<i64> {
    match core {
        Core::Const(Datum { kind: Kind::Number(Number::Fix(value)), .. }) if C_RANGE.contains(value) => Some(*value),
        _ => None,
    }
}
