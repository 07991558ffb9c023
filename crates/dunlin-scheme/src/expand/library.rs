//! Libraries: `define-library`, `import`, `include`.
//!
//! A library is one unit of code. What it defines are globals that no program can name or define: the unit is
//! hashed with their numbers in place of their names, and then they have the name `library HASH NUMBER`, with
//! that hash. So code that uses a library names its hash, and to change a library makes another one.

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::{Component, Path};
use std::sync::Arc;

use super::env::{Env, Library, Meaning, Scope};
use super::special::{MUTATORS, Special};
use super::{Expander, STEPS_MAX, standard};
use crate::core::{Core, Var};
use crate::datum::{Datum, Kind, Pos};
use crate::error::SyntaxError;
use crate::names::Name;
use crate::num::Number;
use crate::read::{FILE_BYTES_MAX, Reader};

/// A library that is expanded, and not yet compiled.
pub(crate) struct MadeLibrary {
    pub(crate) name: Arc<str>,
    pub(crate) library: Arc<Library>,
    /// Its globals as the core names them, with what its text calls them. The first says that its body has
    /// run.
    pub(crate) globals: Vec<(Name, Name)>,
    pub(crate) core: Core,
}

/// Identifiers with what they mean, and the library that they are from.
struct ImportSet {
    library: Arc<Library>,
    bindings: Bindings,
}

type Bindings = Vec<(Name, Meaning)>;

/// What the parts of a library declare.
#[derive(Default)]
struct Declarations {
    /// What exports name here, and what they are called outside.
    exports: Vec<(Datum, Datum)>,
    imports: Vec<Datum>,
    body: Vec<Datum>,
}

/// A step of the expansion is charged for so much of a file.
const BYTES_PER_STEP: usize = 16;
/// What the names of globals of libraries begin with; the hash follows.
pub(crate) const PREFIX: &str = "library ";

/// Whether it is the name of a global of a library.
pub(super) fn is_hashed(name: &str) -> bool {
    let hash = name.strip_prefix(PREFIX).and_then(|rest| rest.get(..64));
    hash.is_some_and(|hash| hash.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

impl Expander<'_> {
    /// `(import set ...)` at the top level: binds what it imports, and runs the libraries that have not run.
    pub(super) fn import(&mut self, form: &Datum, items: &[Datum]) -> Result<Core, SyntaxError> {
        self.refuse_macro(&items[0])?;
        let (libraries, bindings) = self.imports(&items[1..])?;
        for (name, meaning) in bindings {
            self.syntaxes.bind(name, meaning);
        }
        let mut parts = self.runs(&libraries, form.pos);
        parts.push(Core::Const(Datum::new(form.pos, Kind::Unspecified)));
        Ok(Core::Seq(parts))
    }

    /// Runs the bodies of libraries that have not run.
    fn runs(&mut self, libraries: &[Arc<Library>], pos: Pos) -> Vec<Core> {
        let mut parts = Vec::new();
        for (body, done) in libraries.iter().filter_map(|library| library.body) {
            let call = self.core_call("%run-body", vec![Core::Global(body, pos)], pos);
            let none = Core::Const(Datum::new(pos, Kind::Unspecified));
            parts.push(Core::If(Box::new([Core::Global(done, pos), none, call])));
        }
        parts
    }

    /// The libraries of import sets, each once, and what the sets bind.
    fn imports(&mut self, sets: &[Datum]) -> Result<(Vec<Arc<Library>>, Bindings), SyntaxError> {
        let (mut libraries, mut bindings) = (Vec::<Arc<Library>>::new(), Bindings::new());
        let mut places: HashMap<Name, usize> = HashMap::new();
        for datum in sets {
            let set = self.import_set(datum)?;
            for (name, meaning) in set.bindings {
                match places.get(&name) {
                    Some(at) if bindings[*at].1.is_same(&meaning) => {}
                    Some(_) => {
                        let text = self.symbols.text(name);
                        return Err(self.error(datum.pos, format!("{text} is imported twice, with two meanings")));
                    }
                    None => {
                        places.insert(name, bindings.len());
                        bindings.push((name, meaning));
                    }
                }
            }
            if !libraries.iter().any(|library| Arc::ptr_eq(library, &set.library)) {
                libraries.push(set.library);
            }
        }
        Ok((libraries, bindings))
    }

    /// An import set: a library's name, or a part of another set.
    fn import_set(&mut self, datum: &Datum) -> Result<ImportSet, SyntaxError> {
        self.step(datum.pos)?;
        let Some(items) = datum.items() else {
            return Err(self.error(datum.pos, "expected the name of a library, or (only ...), (except ...) and so on"));
        };
        // `(only example)` names a library, `(only (example) a)` a part of one.
        let [keyword, inner, rest @ ..] = items else { return self.whole(datum) };
        let (Some(keyword), Some(_)) = (keyword.name(), inner.items()) else { return self.whole(datum) };
        let keyword = self.symbols.text(self.syntaxes.symbol(keyword)).clone();
        let mut set = self.deeper(inner.pos, |this| this.import_set(inner))?;
        match &*keyword {
            "only" => {
                let mut kept = Vec::with_capacity(rest.len());
                for identifier in rest {
                    let at = self.imported(&set, identifier, inner)?;
                    kept.push(set.bindings[at].clone());
                }
                set.bindings = kept;
            }
            "except" => {
                let mut dropped = HashSet::new();
                for identifier in rest {
                    dropped.insert(set.bindings[self.imported(&set, identifier, inner)?].0);
                }
                set.bindings.retain(|(name, _)| !dropped.contains(name));
            }
            "prefix" => {
                let [prefix] = rest else { return Err(self.error(datum.pos, "expected (prefix set identifier)")) };
                let prefix = self.identifier(prefix)?;
                let prefix = self.symbols.text(prefix).clone();
                for (name, _) in &mut set.bindings {
                    let text = format!("{prefix}{}", self.symbols.text(*name));
                    *name = self.symbols.intern(&text);
                }
            }
            "rename" => {
                let mut renamed = Vec::with_capacity(rest.len());
                for pair in rest {
                    let Some([from, to]) = pair.items() else {
                        return Err(self.error(pair.pos, "expected (identifier new-identifier)"));
                    };
                    renamed.push((self.imported(&set, from, inner)?, self.identifier(to)?));
                }
                for (at, to) in renamed {
                    set.bindings[at].0 = to;
                }
                let mut names = HashSet::new();
                if let Some((twice, _)) = set.bindings.iter().find(|(name, _)| !names.insert(*name)) {
                    let text = self.symbols.text(*twice);
                    return Err(self.error(datum.pos, format!("two names are renamed to {text}, or it is one already")));
                }
            }
            _ => return Err(self.error(datum.pos, "expected only, except, prefix or rename before an import set")),
        }
        Ok(set)
    }

    /// The place of an identifier in an import set.
    fn imported(&self, set: &ImportSet, identifier: &Datum, of: &Datum) -> Result<usize, SyntaxError> {
        let name = self.identifier(identifier)?;
        let place = set.bindings.iter().position(|(bound, _)| *bound == name);
        place.ok_or_else(|| {
            let text = self.symbols.text(name);
            let set = crate::print::datum(&self.strip(of), self.symbols);
            let instead = MUTATORS.iter().find(|(mutator, _)| **mutator == **text);
            let message = match instead {
                Some((_, instead)) => format!("{set} has no {text}, objects never change: use {instead}"),
                None => format!("{set} has no {text}"),
            };
            self.error(identifier.pos, message)
        })
    }

    fn identifier(&self, datum: &Datum) -> Result<Name, SyntaxError> {
        let name = datum.name().ok_or_else(|| self.error(datum.pos, "expected an identifier"))?;
        Ok(self.syntaxes.symbol(name))
    }

    /// All that a library exports.
    fn whole(&mut self, name: &Datum) -> Result<ImportSet, SyntaxError> {
        let library = self.deeper(name.pos, |this| this.library(name))?;
        Ok(ImportSet { bindings: library.exports.clone(), library })
    }

    /// A library's name as text, and its parts.
    fn library_name(&self, name: &Datum) -> Result<(Arc<str>, Vec<String>), SyntaxError> {
        let wrong = || self.error(name.pos, "expected the name of a library: (identifier or number ...)");
        let parts = name.items().filter(|items| !items.is_empty()).ok_or_else(wrong)?;
        let part = |part: &Datum| match &part.kind {
            Kind::Symbol(symbol) => Ok(self.symbols.text(self.syntaxes.symbol(*symbol)).to_string()),
            Kind::Number(Number::Fix(number @ 0..)) => Ok(number.to_string()),
            _ => Err(wrong()),
        };
        let parts = parts.iter().map(part).collect::<Result<Vec<_>, _>>()?;
        Ok((crate::print::datum(&self.strip(name), self.symbols).into(), parts))
    }

    /// Finds a library: among the standard ones, those that are defined, or in a file.
    fn library(&mut self, name: &Datum) -> Result<Arc<Library>, SyntaxError> {
        let (text, parts) = self.library_name(name)?;
        if let Some(library) = self.known_library(&text) {
            return Ok(library);
        }
        if let Some(at) = self.expanding.iter().position(|open| *open == text) {
            let way: Vec<&str> = self.expanding[at..].iter().map(|open| &**open).chain([&*text]).collect();
            return Err(self.error(name.pos, format!("libraries import each other: {}", way.join(" imports "))));
        }
        if self.looking.contains(&text) {
            return Err(self.error(name.pos, format!("the file of {text} imports {text} before it defines it")));
        }
        let path =
            self.library_path(&parts).ok_or_else(|| self.error(name.pos, format!("there is no library {text}")))?;
        let contents = self.read_file(&path, name.pos, &format!("there is no library {text}: "))?;
        self.looking.push(text.clone());
        for form in self.data(&contents, &path, name.pos, false)? {
            match form.items() {
                Some([keyword, ..]) if self.is_symbol(keyword, "define-library") => {
                    let items = form.items().expect("checked above");
                    self.define_library(&form, items)?;
                }
                _ => return Err(self.error(form.pos, "the file of a library contains only define-library")),
            }
        }
        self.looking.pop();
        let known = self.known_library(&text);
        known.ok_or_else(|| self.error(name.pos, format!("{path} does not define the library {text}")))
    }

    fn known_library(&mut self, text: &str) -> Option<Arc<Library>> {
        if let Some(made) = self.made.iter().rev().find(|made| *made.name == *text) {
            return Some(made.library.clone());
        }
        if let Some(library) = self.syntaxes.libraries.get(text) {
            return Some(library.clone());
        }
        let exports = standard::exports(text, self.symbols, self.syntaxes)?;
        Some(Arc::new(Library { exports, body: None }))
    }

    /// Where the file of a library is, if it can have one.
    fn library_path(&self, parts: &[String]) -> Option<Arc<str>> {
        self.files.as_ref()?;
        let path = format!("{}.sld", parts.join("/"));
        let is_plain =
            |part: &String| !part.contains(['/', '\\', '\0', ':']) && !part.starts_with('.') && !part.is_empty();
        if parts.iter().all(is_plain) { Some(path.into()) } else { None }
    }

    /// Whether a library can be imported, for `cond-expand`.
    pub(super) fn has_library(&mut self, name: &Datum) -> bool {
        let Ok((text, parts)) = self.library_name(name) else { return false };
        if self.known_library(&text).is_some() {
            return true;
        }
        // Macros may not read files.
        let is_written = name.items().into_iter().flatten().all(|part| part.name().is_none_or(|name| !name.is_alias()));
        let Some(path) = self.library_path(&parts).filter(|_| is_written) else { return false };
        self.read_file(&path, name.pos, "").is_ok()
    }

    /// `(define-library name declaration ...)`
    pub(super) fn define_library(&mut self, form: &Datum, items: &[Datum]) -> Result<(), SyntaxError> {
        self.refuse_macro(&items[0])?;
        let [_, name, declarations @ ..] = items else {
            return Err(self.error(form.pos, "expected (define-library name declaration ...)"));
        };
        let (text, _) = self.library_name(name)?;
        if standard::is_standard(&text) {
            return Err(self.error(name.pos, format!("{text} is a standard library")));
        }
        if self.expanding.contains(&text) {
            return Err(self.error(name.pos, format!("{text} is defined within itself")));
        }
        if self.made.iter().any(|made| made.name == text) {
            return Err(self.error(name.pos, format!("{text} is defined twice")));
        }
        self.expanding.push(text.clone());
        let steps = std::mem::replace(&mut self.steps, STEPS_MAX);
        let declared = self.declarations(declarations)?;
        let made = self.deeper(form.pos, |this| this.make_library(text, declared, form.pos))?;
        self.made.push(made);
        self.steps = steps;
        self.expanding.pop();
        Ok(())
    }

    fn declarations(&mut self, declarations: &[Datum]) -> Result<Declarations, SyntaxError> {
        let mut declared = Declarations::default();
        let mut queue: VecDeque<Datum> = declarations.iter().cloned().collect();
        while let Some(declaration) = queue.pop_front() {
            self.step(declaration.pos)?;
            let wrong =
                "expected export, import, begin, include, include-ci, include-library-declarations or cond-expand";
            let Some([keyword, rest @ ..]) = declaration.items() else {
                return Err(self.error(declaration.pos, wrong));
            };
            let Some(keyword) = keyword.name() else { return Err(self.error(declaration.pos, wrong)) };
            let keyword = self.symbols.text(self.syntaxes.symbol(keyword)).clone();
            let items = declaration.items().expect("checked above");
            match &*keyword {
                "export" => {
                    for spec in rest {
                        declared.exports.push(self.export(spec)?);
                    }
                }
                "import" => declared.imports.extend_from_slice(rest),
                "begin" => declared.body.extend_from_slice(rest),
                "include" => declared.body.extend(self.include(Special::Include, &declaration, items)?),
                "include-ci" => declared.body.extend(self.include(Special::IncludeCi, &declaration, items)?),
                "include-library-declarations" => {
                    let included = self.include(Special::Include, &declaration, items)?;
                    included.into_iter().rev().for_each(|form| queue.push_front(form));
                }
                "cond-expand" => {
                    let chosen = self.cond_expand(&declaration, items)?;
                    chosen.into_iter().rev().for_each(|form| queue.push_front(form));
                }
                _ => return Err(self.error(declaration.pos, wrong)),
            }
        }
        Ok(declared)
    }

    fn export(&self, spec: &Datum) -> Result<(Datum, Datum), SyntaxError> {
        match spec.items() {
            None if spec.name().is_some() => Ok((spec.clone(), spec.clone())),
            Some([keyword, from, to])
                if self.is_symbol(keyword, "rename") && from.name().is_some() && to.name().is_some() =>
            {
                Ok((from.clone(), to.clone()))
            }
            _ => Err(self.error(spec.pos, "expected identifier or (rename identifier exported-identifier)")),
        }
    }

    fn make_library(&mut self, text: Arc<str>, declared: Declarations, pos: Pos) -> Result<MadeLibrary, SyntaxError> {
        let (libraries, bindings) = self.imports(&declared.imports)?;
        let scope = Scope::library();
        for (name, meaning) in bindings {
            scope.bind(name, meaning);
        }
        let done = self.symbols.intern("done");
        let mut globals = vec![(self.library_global(done), done)];
        let items = self.items(&declared.body, &scope, |this, symbol| {
            let global = this.library_global(symbol);
            globals.push((global, symbol));
            (Var(globals.len() as u32 - 1), Meaning::Global(global))
        })?;
        let env: Env = Some(scope.clone());
        let mut core = self.runs(&libraries, pos);
        core.extend(self.library_items(items, &env, |var| globals[var.0 as usize].0)?);
        let done = globals[0].0;
        core.push(Core::Define(done, Box::new(Core::Const(Datum::new(pos, Kind::Bool(true))))));
        let exports = self.exports(&text, &declared.exports, &scope)?;
        let run = self.symbols.intern("run");
        let body = self.library_global(run);
        let library = Arc::new(Library { exports, body: Some((body, done)) });
        Ok(MadeLibrary { name: text, library, globals, core: Core::Seq(core) })
    }

    fn exports(
        &self,
        library: &str,
        specs: &[(Datum, Datum)],
        scope: &Scope,
    ) -> Result<Vec<(Name, Meaning)>, SyntaxError> {
        let mut exports = Vec::with_capacity(specs.len());
        let mut names = HashSet::new();
        for (from, to) in specs {
            let (inside, outside) = (self.identifier(from)?, self.identifier(to)?);
            if !names.insert(outside) {
                let text = self.symbols.text(outside);
                return Err(self.error(to.pos, format!("{library} exports {text} twice")));
            }
            let Some(meaning) = scope.get(inside) else {
                let text = self.symbols.text(inside);
                let message = format!("{library} exports {text}, which it neither defines nor imports");
                return Err(self.error(from.pos, message));
            };
            exports.push((outside, meaning));
        }
        Ok(exports)
    }

    /// A global that only the library which is expanded knows by this name.
    fn library_global(&mut self, symbol: Name) -> Name {
        self.syntaxes.vars += 1;
        let text = format!("{} in library {}", self.symbols.text(symbol), self.syntaxes.vars);
        self.symbols.intern(&text)
    }

    /// The forms of `(include file ...)`.
    pub(super) fn include(
        &mut self,
        special: Special,
        form: &Datum,
        items: &[Datum],
    ) -> Result<Vec<Datum>, SyntaxError> {
        self.refuse_macro(&items[0])?;
        if items.len() < 2 {
            return Err(self.error(form.pos, "expected (include \"file\" ...)"));
        }
        let mut forms = Vec::new();
        for item in &items[1..] {
            let Kind::String(name) = &item.kind else {
                return Err(self.error(item.pos, "expected the name of a file, as a string"));
            };
            let path = self.include_path(name, item.pos)?;
            if self.syntaxes.sources.is_within(&path, item.pos) {
                return Err(self.error(item.pos, format!("{path} includes itself")));
            }
            let contents = self.read_file(&path, item.pos, "cannot include ")?;
            forms.extend(self.data(&contents, &path, item.pos, special == Special::IncludeCi)?);
        }
        Ok(forms)
    }

    /// The path of an included file, relative to the program: its name is relative to the file that names it.
    fn include_path(&self, name: &str, pos: Pos) -> Result<Arc<str>, SyntaxError> {
        let wrong =
            || self.error(pos, "an included file is named by a relative path without .., with / between folders");
        let path = Path::new(name);
        let is_plain = path.components().all(|part| matches!(part, Component::Normal(_)));
        if name.is_empty() || name.contains(['\\', '\0', ':']) || !is_plain {
            return Err(wrong());
        }
        let folder = self.syntaxes.sources.name(pos).and_then(|path| path.rsplit_once('/')).map(|(folder, _)| folder);
        Ok(folder.map_or_else(|| name.into(), |folder| format!("{folder}/{name}").into()))
    }

    /// The text of a file beside the program.
    fn read_file(&mut self, path: &str, pos: Pos, what: &str) -> Result<String, SyntaxError> {
        let Some(files) = &mut self.files else {
            return Err(self.error(pos, format!("{what}{path}: there are no files here")));
        };
        let text = files(path).map_err(|error| self.error(pos, format!("{what}{path}: {error}")))?;
        if text.len() > FILE_BYTES_MAX {
            return Err(self.error(pos, format!("{path} is longer than {} MiB", FILE_BYTES_MAX >> 20)));
        }
        let left = self.steps.checked_sub(text.len() / BYTES_PER_STEP);
        self.steps = left.ok_or_else(|| self.error(pos, "the files of this form are too long together"))?;
        Ok(text)
    }

    fn data(&mut self, text: &str, path: &Arc<str>, pos: Pos, fold_case: bool) -> Result<Vec<Datum>, SyntaxError> {
        let source = self.syntaxes.sources.add(path, pos);
        let source = source.ok_or_else(|| self.error(pos, "the program reads too many files"))?;
        let mut reader = Reader::of_source(text, path, source, fold_case);
        let mut data = Vec::new();
        while let Some(datum) = reader.next(self.symbols)? {
            data.push(datum);
        }
        Ok(data)
    }

    fn is_symbol(&self, datum: &Datum, text: &str) -> bool {
        datum.name().is_some_and(|name| &**self.symbols.text(self.syntaxes.symbol(name)) == text)
    }

    /// Macros may not read files: a keyword that a macro wrote is an alias.
    fn refuse_macro(&self, keyword: &Datum) -> Result<(), SyntaxError> {
        match keyword.name() {
            Some(name) if name.is_alias() => {
                let text = self.symbols.text(self.syntaxes.symbol(name));
                Err(self.error(keyword.pos, format!("macros may not read files: this {text} is not in the text")))
            }
            _ => Ok(()),
        }
    }

    /// What a procedure of `define-macro` made, with aliases for the keywords of forms that read files.
    pub(super) fn without_files(&mut self, datum: &Datum, env: &Env) -> Datum {
        let kind = match &datum.kind {
            Kind::List(items, tail) => {
                let mut items: Vec<Datum> = items.iter().map(|item| self.without_files(item, env)).collect();
                let head = items.first().and_then(Datum::name);
                let reads = |special| {
                    use Special::{DefineLibrary, Import, Include, IncludeCi};
                    matches!(special, DefineLibrary | Import | Include | IncludeCi)
                };
                if let Some(name) = head
                    && let Meaning::Special(special) = self.meaning(name, env)
                    && reads(special)
                {
                    items[0] = Datum::symbol(items[0].pos, self.syntaxes.alias(name, env));
                }
                Kind::List(items.into(), tail.clone())
            }
            Kind::Vector(items) => Kind::Vector(items.iter().map(|item| self.without_files(item, env)).collect()),
            _ => return datum.clone(),
        };
        Datum::new(datum.pos, kind)
    }
}
