//! What identifiers mean.
//!
//! A macro's expansion renames the identifiers of its template to fresh aliases. An alias that some binding
//! form of the expansion binds is that variable; any other means what the identifier meant where the macro
//! was defined. So neither can capture the other.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::special::Special;
use crate::core::Var;
use crate::datum::Datum;
use crate::names::Name;

/// What an identifier means.
#[derive(Clone)]
pub(crate) enum Meaning {
    Special(Special),
    Macro(Arc<Rules>),
    Local(Var),
    Global(Name),
}

impl Meaning {
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Special(a), Self::Special(b)) => a == b,
            (Self::Macro(a), Self::Macro(b)) => Arc::ptr_eq(a, b),
            (Self::Local(a), Self::Local(b)) => a == b,
            (Self::Global(a), Self::Global(b)) => a == b,
            _ => false,
        }
    }
}

/// A macro: its rules, and where it was defined.
pub(crate) struct Rules {
    pub(super) ellipsis: Name,
    pub(super) underscore: Name,
    pub(super) literals: Vec<Name>,
    pub(super) rules: Vec<(Datum, Datum)>,
    pub(super) env: Env,
    /// Of a `define-macro`: the global whose value is the procedure that makes expansions. It has no rules.
    pub(super) procedure: Option<Name>,
}

/// A scope of bindings inside others; `None` is the top level.
pub(crate) type Env = Option<Arc<Scope>>;

/// The bindings of one form.
pub(crate) struct Scope {
    bindings: Mutex<Vec<(Name, Meaning)>>,
    outer: Env,
}

impl Scope {
    pub(super) fn new(outer: &Env) -> Arc<Self> {
        Arc::new(Self { bindings: Mutex::default(), outer: outer.clone() })
    }

    pub(super) fn bind(&self, name: Name, meaning: Meaning) {
        self.bindings().push((name, meaning));
    }

    /// Only the expander of one machine locks it; other machines have macros that were defined here.
    fn bindings(&self) -> MutexGuard<'_, Vec<(Name, Meaning)>> {
        self.bindings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn has(&self, name: Name) -> bool {
        self.bindings().iter().any(|(bound, _)| *bound == name)
    }
}

/// An identifier that the expansion of a macro made: of which, and where that one has its meaning.
#[derive(Clone)]
struct Alias {
    of: Name,
    env: Env,
}

/// What a machine's top level knows of syntax.
#[derive(Clone, Default)]
pub(crate) struct Syntaxes {
    top: HashMap<Name, Meaning>,
    aliases: Vec<Alias>,
    /// Names that the program defined; of these its own meaning counts.
    defined: HashSet<Name>,
    pub(super) vars: u32,
}

impl Syntaxes {
    pub(super) fn bind(&mut self, name: Name, meaning: Meaning) {
        self.top.insert(name, meaning);
    }

    /// Notes that a program defines `name`: as a variable, not as syntax any more.
    pub(super) fn define(&mut self, name: Name) {
        self.top.remove(&name);
        self.defined.insert(name);
    }

    /// The names of syntax.
    pub(crate) fn names(&self) -> impl Iterator<Item = Name> {
        self.top.keys().copied().filter(|name| !name.is_alias())
    }

    /// Whether a program has defined this name.
    pub(crate) fn is_defined(&self, name: Name) -> bool {
        self.defined.contains(&name)
    }

    /// The names that programs have defined.
    pub(crate) fn defined(&self) -> impl Iterator<Item = Name> {
        self.defined.iter().copied().filter(|name| !name.is_alias())
    }

    /// Forgets which names are defined: what the prelude defines is no program's.
    pub(crate) fn seal(&mut self) {
        self.defined.clear();
    }

    pub(super) fn alias(&mut self, of: Name, env: &Env) -> Name {
        self.aliases.push(Alias { of, env: env.clone() });
        Name(Name::FIRST_ALIAS + (self.aliases.len() - 1) as u32)
    }

    fn alias_of(&self, name: Name) -> &Alias {
        &self.aliases[(name.0 - Name::FIRST_ALIAS) as usize]
    }

    /// The symbol that an identifier was before it was renamed.
    pub(super) fn symbol(&self, mut name: Name) -> Name {
        while name.is_alias() {
            name = self.alias_of(name).of;
        }
        name
    }

    /// What an identifier means in a scope.
    pub(super) fn resolve(&self, mut name: Name, env: &Env) -> Meaning {
        let mut env = env.clone();
        loop {
            let mut scope = env.clone();
            while let Some(here) = scope {
                if let Some((_, meaning)) = here.bindings().iter().rev().find(|(bound, _)| *bound == name) {
                    return meaning.clone();
                }
                scope = here.outer.clone();
            }
            if let Some(meaning) = self.top.get(&name) {
                return meaning.clone();
            }
            if !name.is_alias() {
                return Meaning::Global(name);
            }
            let alias = self.alias_of(name);
            (name, env) = (alias.of, alias.env.clone());
        }
    }
}
