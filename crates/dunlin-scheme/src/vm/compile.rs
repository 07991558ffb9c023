//! Forms to units, and the macros that are procedures.

use std::sync::Arc;

use super::machine::Machine;
use super::program::Program;
use super::turn::Turn;
use crate::code::Unit;
use crate::compile::{Inlines, compile};
use crate::datum::{Datum, Kind, Pos};
use crate::error::SyntaxError;
use crate::expand::{Expander, MacroCall};
use crate::heap::Word;
use crate::heap::word::{CLOSURE, NIL, TAG_MASK, code};
use crate::value;

/// Fuel of one call of a macro's procedure.
const MACRO_FUEL: u64 = 10_000_000;
/// Uses of macros that are procedures, in one form of the top level: each expands the form again.
const MACRO_CALLS_MAX: usize = 1_000;

impl Machine {
    /// Expands and compiles a form of the top level. Nothing may run meanwhile.
    pub(crate) fn compile(&mut self, form: &Datum, source_name: &Arc<str>) -> Result<Unit, SyntaxError> {
        self.compile_beside(form, source_name, false)
    }

    fn compile_beside(&mut self, form: &Datum, source_name: &Arc<str>, runs: bool) -> Result<Unit, SyntaxError> {
        let mut expansions = Vec::new();
        let core = loop {
            let Program { symbols, syntaxes, .. } = &mut self.commons.program;
            let mut expander = Expander::new(symbols, syntaxes, source_name, &expansions);
            let result = expander.top(form);
            let Some(call) = expander.wanted() else { break result? };
            let pos = call.pos;
            let failed = |message| SyntaxError { source_name: source_name.clone(), pos, message, incomplete: false };
            if expansions.len() == MACRO_CALLS_MAX {
                return Err(failed(format!("more than {MACRO_CALLS_MAX} uses of macros of define-macro in one form")));
            }
            let expansion = self.expand_by_call(&call, runs).map_err(failed)?;
            expansions.push(expansion);
        };
        let is_defined = |name| self.commons.program.syntaxes.is_defined(name);
        let inlines = Inlines { table: &self.commons.program.inlines, is_defined: &is_defined };
        compile(core, &self.commons.program.symbols, &inlines, source_name)
    }

    /// Calls the procedure of a macro. What runs, if anything does, is parked meanwhile.
    fn expand_by_call(&mut self, call: &MacroCall, runs: bool) -> Result<Datum, String> {
        let number = self.commons.program.global(call.procedure);
        let name = self.commons.program.symbols.text(call.procedure).clone();
        let procedure = self.global_at(number).unwrap_or(NIL);
        if procedure & TAG_MASK != CLOSURE {
            return Err(format!("{name} is no procedure, or its definition has not run"));
        }
        if runs {
            let parked = self.park();
            self.parked.push(parked);
        }
        let result = self.call_macro(procedure, call);
        if runs {
            let parked = self.parked.pop().expect("it was pushed above");
            self.resume(parked);
        }
        result.map_err(|message| format!("{name}: {message}"))
    }

    fn call_macro(&mut self, procedure: Word, call: &MacroCall) -> Result<Datum, String> {
        let mut words = Vec::with_capacity(call.arguments.len() + 1);
        for argument in &call.arguments {
            words.push(
                value::of_datum(&mut self.heap, argument).map_err(|label| format!("no datum has label #{label}="))?,
            );
        }
        if words.len() > super::machine::ARGUMENTS_MAX {
            return Err("too many arguments".into());
        }
        self.frames.clear();
        (self.kont, self.marks, self.base) = (NIL, NIL, 0);
        self.stack[0] = procedure;
        self.stack[1..=words.len()].copy_from_slice(&words);
        self.arguments = words.len();
        self.live = words.len() + 1;
        self.pc = self.heap.entry(procedure);
        match self.run(MACRO_FUEL) {
            Ok(Turn::Done(value)) => {
                let datum =
                    value::to_datum(&self.heap, value, 0).map_err(|message| format!("its value is {message}"))?;
                Ok(placed(datum, call.pos))
            }
            Ok(Turn::OutOfFuel) => Err("it takes too long".into()),
            Ok(Turn::Operating(_)) => {
                self.forget_asked();
                Err("the procedure of a macro may not use channels".into())
            }
            Ok(Turn::Waiting(_) | Turn::Halted) => Err("the procedure of a macro may not wait or end".into()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Compiles the argument of the running procedure; its value is a procedure, or an error object.
    pub(super) fn compile_argument(&mut self) {
        let datum = value::to_datum(&self.heap, self.stack[self.base + 1], 0);
        let source_name: Arc<str> = "eval".into();
        self.live = self.base + 2;
        let compiled = match datum {
            Ok(datum) => self.compile_beside(&datum, &source_name, true).map_err(|error| error.message),
            Err(message) => Err(format!("expected a datum to evaluate: {message}")),
        };
        let result = match compiled.and_then(|unit| self.load(unit)) {
            Ok(entry) => code(entry),
            Err(message) => self.condition("syntax", &message, &[], -1),
        };
        self.stack[self.base + 1] = result;
    }
}

/// The datum as if it stood at `pos`.
fn placed(datum: Datum, pos: Pos) -> Datum {
    let all = |items: &[Datum]| -> Arc<[Datum]> { items.iter().map(|item| placed(item.clone(), pos)).collect() };
    let kind = match datum.kind {
        Kind::List(items, tail) => Kind::List(all(&items), tail.map(|tail| Arc::new(placed((*tail).clone(), pos)))),
        Kind::Vector(items) => Kind::Vector(all(&items)),
        other => other,
    };
    Datum::new(pos, kind)
}
