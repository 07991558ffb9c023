//! Forms to units, and the macros that are procedures.

use std::collections::HashMap;
use std::sync::Arc;

use super::machine::Machine;
use super::program::Program;
use super::turn::Turn;
use crate::code::Unit;
use crate::compile::{Inlines, compile};
use crate::core::Core;
use crate::datum::{Datum, Kind, Pos};
use crate::error::SyntaxError;
use crate::expand::{Expander, LIBRARY_PREFIX, MacroCall, MadeLibrary, is_base};
use crate::heap::Word;
use crate::heap::word::{CLOSURE, FALSE, NIL, TAG_MASK, code};
use crate::names::Name;
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
        let (core, libraries) = loop {
            let Program { symbols, syntaxes, .. } = &mut self.commons.program;
            // What `eval` evaluates reads no files.
            let files = self.files.as_mut().filter(|_| !runs);
            let mut expander = Expander::new(symbols, syntaxes, source_name, &expansions, files);
            let result = expander.top(form);
            let Some(call) = expander.wanted() else { break (result?, expander.take_made()) };
            let failed = |message| expander.error(call.pos, message);
            if expansions.len() == MACRO_CALLS_MAX {
                return Err(failed(format!("more than {MACRO_CALLS_MAX} uses of macros of define-macro in one form")));
            }
            let source_name = expander.error(call.pos, "").source_name;
            let failed = |message| SyntaxError { source_name, pos: call.pos.plain(), message, incomplete: false };
            let expansion = self.expand_by_call(&call, runs).map_err(failed)?;
            expansions.push(expansion);
        };
        for library in libraries {
            self.load_library(library, source_name)?;
        }
        let mut unit = self.compile_core(core, source_name)?;
        self.name_by_hash(&mut unit);
        Ok(unit)
    }

    fn compile_core(&mut self, core: Core, source_name: &Arc<str>) -> Result<Unit, SyntaxError> {
        let Program { symbols, syntaxes, inlines, .. } = &self.commons.program;
        let is_replaced = |name| syntaxes.is_replaced(name);
        let inlines = Inlines { table: inlines, is_replaced: &is_replaced };
        let mut unit = compile(core, symbols, &inlines, source_name)?;
        unit.sources = syntaxes.sources.clone();
        Ok(unit)
    }

    /// Ends the prelude. Of standard procedures that are not of `(scheme base)` the program has a copy under
    /// that name, which its definitions replace for all of its code; the prelude and libraries keep the
    /// original.
    pub(crate) fn seal(&mut self) {
        let names: Vec<Name> = self.commons.program.defined_globals().collect();
        let mut globals = HashMap::new();
        for name in names {
            let Program { symbols, inlines, .. } = &mut self.commons.program;
            let text = symbols.text(name).clone();
            if text.starts_with('%') || is_base(&text) {
                globals.insert(name, name);
                continue;
            }
            let standard = symbols.intern(&format!("standard {text}"));
            if let Some(known) = inlines.get(&name).cloned() {
                inlines.insert(standard, known);
            }
            globals.insert(name, standard);
            let number = self.commons.program.rename_global(name, standard);
            if let Some(value) = self.global_at(number) {
                let copy = self.commons.program.global(name);
                self.define(copy, value, usize::MAX).expect("it has no limit");
            }
        }
        self.charge = 0;
        self.commons.program.syntaxes.seal(globals);
    }

    /// Names the globals of libraries by the hashes of these.
    fn name_by_hash(&self, unit: &mut Unit) {
        for global in &mut unit.globals {
            *global = self.commons.program.syntaxes.hashed(*global);
        }
    }

    /// Compiles a library and loads its code. The first import runs it.
    fn load_library(&mut self, made: MadeLibrary, source_name: &Arc<str>) -> Result<(), SyntaxError> {
        let MadeLibrary { name, library, globals, core } = made;
        let mut unit = self.compile_core(core, source_name)?;
        let numbers: HashMap<Name, usize> = globals.iter().enumerate().map(|(at, (name, _))| (*name, at)).collect();
        let Program { symbols, syntaxes, .. } = &self.commons.program;
        let hash = unit.hash_of_names(symbols, |name| match numbers.get(&name) {
            Some(number) => format!("{LIBRARY_PREFIX}{number}"),
            None => symbols.text(syntaxes.hashed(name)).to_string(),
        });
        let (body, done) = library.body.expect("a program's library has one");
        let body_label = (body, self.commons.program.symbols.intern(&name));
        let mut entry_and_done = [NIL; 2];
        for (at, (global, label)) in globals.into_iter().chain([body_label]).enumerate() {
            let Program { symbols, syntaxes, .. } = &mut self.commons.program;
            let part = if global == body { "run".into() } else { at.to_string() };
            let hashed = symbols.intern(&format!("{LIBRARY_PREFIX}{hash} {part}"));
            syntaxes.name_by_hash(global, hashed, label);
            let number = self.commons.program.global(hashed);
            if global == body || global == done {
                entry_and_done[usize::from(global == done)] = Word::from(number);
            } else {
                self.commons.program.once.insert(number);
            }
        }
        self.name_by_hash(&mut unit);
        let [entry, done] = entry_and_done.map(|number| number as u32);
        // The same library may be there already, and may have run.
        if self.global_at(done).is_none() {
            let failed = |message| SyntaxError {
                source_name: source_name.clone(),
                pos: Pos::default(),
                message,
                incomplete: false,
            };
            let place = self.load(unit).map_err(failed)?;
            let full = |_| failed("the values of globals take more than the limit of a heap".into());
            self.define(entry, code(place), self.heap.limit()).map_err(full)?;
            self.define(done, FALSE, self.heap.limit()).map_err(full)?;
        }
        self.commons.program.syntaxes.libraries.insert(name, library);
        Ok(())
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
        let ended = self.run(MACRO_FUEL);
        if !matches!(ended, Ok(Turn::Done(_))) {
            // It may have stopped in the body of a library.
            self.leave_bodies(self.running.pid);
        }
        match ended {
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
