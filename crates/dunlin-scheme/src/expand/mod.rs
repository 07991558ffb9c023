//! The expander: data to core language, with macros that capture nothing.
//!
//! - `env`: what identifiers mean, and aliases;
//! - `rules`: `syntax-rules`;
//! - `special`: the names of forms;
//! - `library`: libraries, and what is included; `standard`: what the standard ones export;
//! - `forms`, `binding`, `body`, `quasi`, `patterns`: the rules of these forms.
//!
//! Every form costs a step, and forms nest to a limit, so a macro that expands without end is an error.

mod binding;
mod body;

pub(crate) mod env;
mod forms;
mod library;
mod patterns;
mod quasi;
mod rules;
mod special;
mod standard;

use std::sync::Arc;

use crate::core::{Core, Var};
use crate::datum::{Datum, Kind, Pos};
use crate::error::SyntaxError;
use crate::names::{Name, Symbols};
use crate::read::DEPTH_MAX;
pub(crate) use body::FEATURES;
use env::{Env, Meaning, Rules, Syntaxes};
pub(crate) use library::{MadeLibrary, PREFIX as LIBRARY_PREFIX};
use special::{MUTATORS, SPECIALS};
pub(crate) use standard::is_base;

/// One top-level form may take so many steps.
const STEPS_MAX: usize = 2_000_000;

/// Expands the forms of one source text.
pub(crate) struct Expander<'m> {
    pub(crate) symbols: &'m mut Symbols,
    pub(crate) syntaxes: &'m mut Syntaxes,
    source_name: Arc<str>,
    steps: usize,
    depth: usize,
    /// Expansions that procedures of `define-macro` made for this form, in order; and how many were used.
    expansions: &'m [Datum],
    used: usize,
    /// The next one, which the machine has to make before the form is expanded again.
    wanted: Option<MacroCall>,
    files: Option<&'m mut Files>,
    /// Libraries that this form has defined or imported for the first time, in the order in which they run.
    made: Vec<MadeLibrary>,
    /// Libraries that are looked for, and those that are expanded, the outermost first.
    looking: Vec<Arc<str>>,
    expanding: Vec<Arc<str>>,
}

/// Reads the text of a file beside the program, or says why not.
pub(crate) type Files = Box<dyn FnMut(&str) -> std::io::Result<String> + Send>;

/// A use of a macro of `define-macro`: the global that holds its procedure, and the arguments.
pub(crate) struct MacroCall {
    pub(crate) procedure: Name,
    pub(crate) arguments: Vec<Datum>,
    pub(crate) pos: Pos,
}

/// Binds the names of the special forms.
pub(crate) fn bind_specials(symbols: &mut Symbols, syntaxes: &mut Syntaxes) {
    for (text, special) in SPECIALS {
        syntaxes.bind(symbols.intern(text), Meaning::Special(*special));
    }
}

impl<'m> Expander<'m> {
    pub(crate) fn new(
        symbols: &'m mut Symbols,
        syntaxes: &'m mut Syntaxes,
        source_name: &Arc<str>,
        expansions: &'m [Datum],
        files: Option<&'m mut Files>,
    ) -> Self {
        Self {
            symbols,
            syntaxes,
            source_name: source_name.clone(),
            steps: STEPS_MAX,
            depth: 0,
            expansions,
            used: 0,
            wanted: None,
            files,
            made: Vec::new(),
            looking: Vec::new(),
            expanding: Vec::new(),
        }
    }

    /// The call that the machine has to make before the form can be expanded: then expansion failed for this.
    pub(crate) fn wanted(&mut self) -> Option<MacroCall> {
        self.wanted.take()
    }

    /// The libraries that the form has made, in the order in which they are to be loaded.
    pub(crate) fn take_made(&mut self) -> Vec<MadeLibrary> {
        std::mem::take(&mut self.made)
    }

    /// The expansion that a procedure makes. Expansion runs no code: it ends here with an error if the
    /// expansion is not known yet, the machine makes it, and the form is expanded again from its beginning.
    fn call_macro(&mut self, procedure: Name, form: &Datum, env: &Env) -> Result<Datum, SyntaxError> {
        if let Some(expansion) = self.expansions.get(self.used) {
            self.used += 1;
            let expansion = expansion.clone();
            return Ok(self.without_files(&expansion, env));
        }
        let Some(items) = form.items() else { return Err(self.error(form.pos, "a use of a macro is a proper list")) };
        let arguments = items[1..].iter().map(|item| self.strip(item)).collect();
        self.wanted = Some(MacroCall { procedure, arguments, pos: form.pos });
        Err(self.error(form.pos, "the expansion is not known yet"))
    }

    /// Expands a form of the top level.
    pub(crate) fn top(&mut self, form: &Datum) -> Result<Core, SyntaxError> {
        self.steps = STEPS_MAX;
        self.top_form(form)
    }

    pub(crate) fn error(&self, pos: Pos, message: impl Into<String>) -> SyntaxError {
        let source_name = self.syntaxes.sources.name(pos).unwrap_or(&self.source_name).clone();
        SyntaxError { source_name, pos: pos.plain(), message: message.into(), incomplete: false }
    }

    fn step(&mut self, pos: Pos) -> Result<(), SyntaxError> {
        self.steps = self.steps.checked_sub(1).ok_or_else(|| self.error(pos, "expansion takes too many steps"))?;
        Ok(())
    }

    fn new_var(&mut self) -> Var {
        self.syntaxes.vars += 1;
        Var(self.syntaxes.vars)
    }

    fn meaning(&self, name: Name, env: &Env) -> Meaning {
        self.syntaxes.resolve(name, env)
    }

    /// Runs `inner` one level deeper, on more stack if there is little left.
    fn deeper<T>(
        &mut self,
        pos: Pos,
        inner: impl FnOnce(&mut Self) -> Result<T, SyntaxError>,
    ) -> Result<T, SyntaxError> {
        if self.depth >= DEPTH_MAX {
            return Err(self.error(pos, format!("forms nest deeper than {DEPTH_MAX}")));
        }
        self.depth += 1;
        let result = stacker::maybe_grow(64 << 10, 2 << 20, || inner(self));
        self.depth -= 1;
        result
    }

    /// Expands an expression.
    fn expand(&mut self, form: &Datum, env: &Env) -> Result<Core, SyntaxError> {
        self.step(form.pos)?;
        match &form.kind {
            Kind::Symbol(name) => self.reference(*name, form.pos, env),
            Kind::List(items, None) if !items.is_empty() => {
                self.deeper(form.pos, |this| this.compound(form, items, env))
            }
            Kind::List(items, _) if items.is_empty() => {
                Err(self.error(form.pos, "() is no expression; write '() for the empty list"))
            }
            Kind::List(items, _) => {
                // Only a macro may be used in a form with a dotted tail.
                match items[0].name().map(|name| self.meaning(name, env)) {
                    Some(Meaning::Macro(rules)) => self.deeper(form.pos, |this| {
                        let expanded = rules.expand(this, form, env)?;
                        this.expand(&expanded, env)
                    }),
                    _ => Err(self.error(form.pos, "a call is a proper list")),
                }
            }
            _ => Ok(Core::Const(self.strip(form))),
        }
    }

    fn compound(&mut self, form: &Datum, items: &[Datum], env: &Env) -> Result<Core, SyntaxError> {
        match items[0].name().map(|name| self.meaning(name, env)) {
            Some(Meaning::Special(special)) => self.special(special, form, items, env),
            Some(Meaning::Macro(rules)) => {
                let expanded = rules.expand(self, form, env)?;
                self.expand(&expanded, env)
            }
            _ => {
                let procedure = self.expand(&items[0], env)?;
                let arguments = self.expand_all(&items[1..], env)?;
                Ok(Core::Call(Box::new(procedure), arguments, form.pos))
            }
        }
    }

    fn expand_all(&mut self, forms: &[Datum], env: &Env) -> Result<Vec<Core>, SyntaxError> {
        forms.iter().map(|form| self.expand(form, env)).collect()
    }

    fn reference(&mut self, name: Name, pos: Pos, env: &Env) -> Result<Core, SyntaxError> {
        match self.meaning(name, env) {
            Meaning::Local(var) => Ok(Core::Local(var)),
            Meaning::Global(symbol) => {
                let text = self.symbols.text(symbol).clone();
                if text.ends_with('!')
                    && !self.syntaxes.is_defined(symbol)
                    && let Some((_, instead)) = MUTATORS.iter().find(|(mutator, _)| **mutator == *text)
                {
                    return Err(
                        self.error(pos, format!("{text} is not available, objects never change: use {instead}"))
                    );
                }
                Ok(Core::Global(symbol, pos))
            }
            Meaning::Unbound(symbol) => {
                let text = self.symbols.text(symbol).clone();
                Err(self.error(pos, format!("{text} is neither imported nor defined in this library")))
            }
            Meaning::Special(_) | Meaning::Macro(_) => {
                let text = self.symbols.text(self.syntaxes.symbol(name)).clone();
                Err(self.error(pos, format!("{text} is syntax, not a variable")))
            }
        }
    }

    /// A call of a procedure of the prelude, whatever the program calls by its name.
    fn core_call(&mut self, name: &str, arguments: Vec<Core>, pos: Pos) -> Core {
        let name = self.symbols.intern(name);
        Core::Call(Box::new(Core::Global(name, pos)), arguments, pos)
    }

    /// An identifier that means what the prelude defines.
    fn top_identifier(&mut self, name: &str, pos: Pos) -> Datum {
        let name = self.symbols.intern(name);
        let env = self.syntaxes.standard_env();
        Datum::symbol(pos, self.syntaxes.alias(name, &env))
    }

    /// The datum with every alias turned back into its symbol.
    fn strip(&self, datum: &Datum) -> Datum {
        let strip_all = |items: &Arc<[Datum]>| -> Arc<[Datum]> { items.iter().map(|item| self.strip(item)).collect() };
        let kind = match &datum.kind {
            Kind::Symbol(name) => Kind::Symbol(self.syntaxes.symbol(*name)),
            Kind::List(items, tail) => {
                Kind::List(strip_all(items), tail.as_ref().map(|tail| Arc::new(self.strip(tail))))
            }
            Kind::Vector(items) => Kind::Vector(strip_all(items)),
            Kind::Label(number, inner) => Kind::Label(*number, Arc::new(self.strip(inner))),
            other => other.clone(),
        };
        Datum::new(datum.pos, kind)
    }

    /// The macro that a `syntax-rules` form, or the name of a macro, stands for.
    fn transformer(&mut self, spec: &Datum, env: &Env) -> Result<Meaning, SyntaxError> {
        if let Some(name) = spec.name() {
            match self.meaning(name, env) {
                meaning @ (Meaning::Macro(_) | Meaning::Special(_)) => return Ok(meaning),
                _ => return Err(self.error(spec.pos, "expected syntax-rules, or the name of a macro")),
            }
        }
        let keyword = spec.items().and_then(|items| items.first()).and_then(Datum::name);
        let is_rules = keyword.is_some_and(|name| {
            let symbol = self.syntaxes.symbol(name);
            &**self.symbols.text(symbol) == "syntax-rules"
        });
        if !is_rules {
            return Err(self.error(spec.pos, "expected syntax-rules, or the name of a macro"));
        }
        Ok(Meaning::Macro(Arc::new(Rules::read(self, spec, env)?)))
    }
}
