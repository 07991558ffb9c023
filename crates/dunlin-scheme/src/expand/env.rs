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
use crate::names::{Name, Symbols};
use crate::read::Sources;

/// What an identifier means.
#[derive(Clone)]
pub(crate) enum Meaning {
    Special(Special),
    Macro(Arc<Rules>),
    Local(Var),
    Global(Name),
    /// Nothing: a library has neither imported nor defined it.
    Unbound(Name),
}

impl Meaning {
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Special(a), Self::Special(b)) => a == b,
            (Self::Macro(a), Self::Macro(b)) => Arc::ptr_eq(a, b),
            (Self::Local(a), Self::Local(b)) => a == b,
            // A library need not import the keywords that its macros and forms only compare, as `else`.
            (Self::Global(a) | Self::Unbound(a), Self::Global(b) | Self::Unbound(b)) => a == b,
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

/// The bindings of one form, or of a library.
#[derive(Default)]
pub(crate) struct Scope {
    bindings: Mutex<Vec<(Name, Meaning)>>,
    outer: Env,
    kind: ScopeKind,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum ScopeKind {
    /// What the prelude defines; in none other.
    #[default]
    Standard,
    /// A library: in none other.
    Library,
    /// Within another one, or the top level.
    Inner,
}

impl Scope {
    pub(super) fn new(outer: &Env) -> Arc<Self> {
        Arc::new(Self { bindings: Mutex::default(), outer: outer.clone(), kind: ScopeKind::Inner })
    }

    /// The scope of a library.
    pub(super) fn library() -> Arc<Self> {
        Arc::new(Self { bindings: Mutex::default(), outer: None, kind: ScopeKind::Library })
    }

    pub(super) fn is_library(&self) -> bool {
        self.kind == ScopeKind::Library
    }

    pub(super) fn bind(&self, name: Name, meaning: Meaning) {
        self.bindings().push((name, meaning));
    }

    /// Only the expander of one machine locks it; other machines have macros that were defined here.
    fn bindings(&self) -> MutexGuard<'_, Vec<(Name, Meaning)>> {
        self.bindings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn has(&self, name: Name) -> bool {
        self.get(name).is_some()
    }

    /// What it binds a name to.
    pub(super) fn get(&self, name: Name) -> Option<Meaning> {
        let bindings = self.bindings();
        bindings.iter().rev().find(|(bound, _)| *bound == name).map(|(_, meaning)| meaning.clone())
    }
}

/// An identifier that the expansion of a macro made: of which, and where that one has its meaning.
#[derive(Clone)]
struct Alias {
    of: Name,
    env: Env,
}

/// A library that a program has.
pub(crate) struct Library {
    pub(super) exports: Vec<(Name, Meaning)>,
    /// The globals that hold what runs its body, and whether that has run. Standard libraries have none.
    pub(crate) body: Option<(Name, Name)>,
}

/// What a machine's top level knows of syntax.
#[derive(Clone, Default)]
pub(crate) struct Syntaxes {
    /// What programs define and import.
    top: HashMap<Name, Meaning>,
    /// The syntax of the prelude, and its globals by their names: those of `(scheme base)` have these names,
    /// of others the program has a copy by that name.
    standard: HashMap<Name, Meaning>,
    standard_globals: HashMap<Name, Name>,
    standard_scope: Arc<Scope>,
    is_sealed: bool,
    aliases: Vec<Alias>,
    /// Names that the program defined; of these its own meaning counts.
    defined: HashSet<Name>,
    pub(super) vars: u32,
    /// Libraries that programs have defined, by their names as text.
    pub(crate) libraries: HashMap<Arc<str>, Arc<Library>>,
    /// Globals of libraries as the expander names them, and by the hashes of their libraries.
    hashed: HashMap<Name, Name>,
    /// What programs call a global that has another name.
    labels: HashMap<Name, Name>,
    /// The texts of libraries, and what was included.
    pub(crate) sources: Sources,
}

impl Syntaxes {
    /// Where the forms of a text have their meaning: that of the prelude, or the top level.
    pub(super) fn base(&self) -> Env {
        if self.is_sealed { None } else { self.standard_env() }
    }

    /// Where names mean what the prelude defines.
    pub(super) fn standard_env(&self) -> Env {
        Some(self.standard_scope.clone())
    }

    pub(super) fn bind(&mut self, name: Name, meaning: Meaning) {
        let table = if self.is_sealed { &mut self.top } else { &mut self.standard };
        table.insert(name, meaning);
    }

    /// Notes that a program defines `name`, and returns the global for it. A name of `(scheme base)` gets one
    /// of its own: for code that is compiled already it means what it did.
    pub(crate) fn define(&mut self, name: Name, symbols: &mut Symbols) -> Name {
        self.defined.insert(name);
        if !self.is_sealed {
            self.standard.remove(&name);
            return name;
        }
        let mut global = name;
        if self.standard_globals.get(&name) == Some(&name) {
            global = symbols.intern(&format!("{} of the program", symbols.text(name).clone()));
            self.label(global, name);
        }
        self.top.insert(name, Meaning::Global(global));
        global
    }

    /// The global that a name of the program means.
    pub(crate) fn global(&self, name: Name) -> Name {
        match self.top.get(&name) {
            Some(Meaning::Global(global)) => self.hashed(*global),
            _ => name,
        }
    }

    /// The name of a global: that by the hash of its library, if it is of one.
    pub(crate) fn hashed(&self, global: Name) -> Name {
        self.hashed.get(&global).copied().unwrap_or(global)
    }

    /// Gives a global of a library its name by the hash of the library.
    pub(crate) fn name_by_hash(&mut self, global: Name, hashed: Name, label: Name) {
        self.hashed.insert(global, hashed);
        self.label(hashed, label);
    }

    /// Notes what programs call a global.
    fn label(&mut self, global: Name, label: Name) {
        self.labels.insert(global, label);
    }

    /// What programs call a global, if that is not its name.
    pub(crate) fn label_of(&self, global: Name) -> Option<Name> {
        self.labels.get(&global).copied()
    }

    /// What a name means in the prelude, if anything.
    pub(super) fn standard(&self, name: Name) -> Option<Meaning> {
        let global = || self.standard_globals.get(&name).copied().map(Meaning::Global);
        self.standard.get(&name).cloned().or_else(global)
    }

    /// The names that the prelude defines.
    pub(super) fn standard_names(&self) -> impl Iterator<Item = Name> {
        self.standard.keys().chain(self.standard_globals.keys()).copied()
    }

    /// The names of syntax.
    pub(crate) fn names(&self) -> impl Iterator<Item = Name> {
        let is_syntax = |meaning: &Meaning| matches!(meaning, Meaning::Macro(_) | Meaning::Special(_));
        let standard = self.standard.keys().filter(|name| !self.top.contains_key(name));
        let own = self.top.iter().filter(move |(_, meaning)| is_syntax(meaning)).map(|(name, _)| name);
        own.chain(standard).copied().filter(|name| !name.is_alias())
    }

    /// The names of variables that programs have imported.
    pub(crate) fn imported(&self) -> impl Iterator<Item = Name> {
        let is_imported =
            |meaning: &Meaning| matches!(meaning, Meaning::Global(global) if self.hashed.contains_key(global));
        self.top.iter().filter(move |(_, meaning)| is_imported(meaning)).map(|(name, _)| *name)
    }

    /// Whether a program has defined this name.
    pub(crate) fn is_defined(&self, name: Name) -> bool {
        self.defined.contains(&name)
    }

    /// Whether this global has another value than the built-in one.
    pub(crate) fn is_replaced(&self, name: Name) -> bool {
        self.is_defined(name) && self.standard_globals.get(&name) != Some(&name)
    }

    /// The names that programs have defined.
    pub(crate) fn defined(&self) -> impl Iterator<Item = Name> {
        self.defined.iter().copied().filter(|name| !name.is_alias())
    }

    /// Ends the prelude, which has these globals: what it defines is no program's.
    pub(crate) fn seal(&mut self, globals: HashMap<Name, Name>) {
        for (name, global) in globals.iter().filter(|(name, global)| name != global) {
            self.labels.insert(*global, *name);
        }
        self.standard_globals = globals;
        self.is_sealed = true;
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

    /// What an identifier means in a scope, to be compared: the program's copy of a standard procedure is the
    /// procedure, unless the program has defined it.
    pub(super) fn literal(&self, name: Name, env: &Env) -> Meaning {
        match self.resolve(name, env) {
            Meaning::Global(global) if !self.is_defined(global) => {
                Meaning::Global(self.standard_globals.get(&global).copied().unwrap_or(global))
            }
            meaning => meaning,
        }
    }

    /// What an identifier means in a scope.
    pub(super) fn resolve(&self, mut name: Name, env: &Env) -> Meaning {
        let mut env = env.clone();
        loop {
            let mut scope = env.clone();
            let mut kind = ScopeKind::Inner;
            while let Some(here) = scope {
                if let Some(meaning) = here.get(name) {
                    return meaning;
                }
                kind = here.kind;
                scope = here.outer.clone();
            }
            let top = if kind == ScopeKind::Inner { self.top.get(&name) } else { None };
            let standard = if kind == ScopeKind::Library { None } else { self.standard.get(&name) };
            if let Some(meaning) = top.or(standard) {
                return meaning.clone();
            }
            if !name.is_alias() {
                return match kind {
                    ScopeKind::Library => Meaning::Unbound(name),
                    ScopeKind::Standard => Meaning::Global(self.standard_globals.get(&name).copied().unwrap_or(name)),
                    ScopeKind::Inner => Meaning::Global(name),
                };
            }
            let alias = self.alias_of(name);
            (name, env) = (alias.of, alias.env.clone());
        }
    }
}
