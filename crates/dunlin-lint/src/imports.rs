//! The imports between modules of a crate, and the cycles among them.
//!
//! A module is a file; code in braces belongs to its file. A module imports the module that *defines* an item
//! it names by a path: the lint follows a name that a module only re-exports (`pub use`) to its origin, and a
//! re-export is not an import. The imports of tests do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};

/// A name with more re-exports than this leads to itself.
const FOLLOWED_MAX: usize = 8;

/// The modules of one crate.
#[derive(Default)]
pub(crate) struct Modules(BTreeMap<Vec<String>, Module>);

#[derive(Default)]
struct Module {
    /// The paths that it names, from the root of the crate.
    named: BTreeSet<Vec<String>>,
    /// The names that its `use` items introduce: each with a path from the root of the crate, or nothing for
    /// an item of another crate.
    passed_on: BTreeMap<String, Option<Vec<String>>>,
    /// The macros that it defines. Paths name exported macros as if the root defined them.
    macros: BTreeSet<String>,
}

impl Modules {
    /// Adds the file at this path below `src`.
    pub(crate) fn add(&mut self, file: &Path, parsed: &syn::File) {
        let mut name: Vec<String> = file.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        let last = name.pop().expect("a file has a name");
        let last = last.trim_end_matches(".rs");
        if last != "mod" && !(name.is_empty() && (last == "lib" || last == "main")) {
            name.push(last.to_owned());
        }
        let children = parsed.items.iter().filter_map(|item| match item {
            syn::Item::Mod(module) => Some(module.ident.to_string()),
            _ => None,
        });
        let mut reader = Reader {
            here: name.clone(),
            children: children.collect(),
            passes_on_only: false,
            module: Module::default(),
        };
        reader.visit_file(parsed);
        self.0.insert(name, reader.module);
    }

    /// The cycles: sets of modules, each of which imports all the others, perhaps through other modules.
    pub(crate) fn cycles(&self) -> Vec<Vec<String>> {
        let reached: BTreeMap<&Vec<String>, BTreeSet<&Vec<String>>> =
            self.0.keys().map(|from| (from, self.reached_from(from))).collect();
        let mut cycles = BTreeSet::new();
        for (from, to) in &reached {
            let cycle: BTreeSet<_> = to.iter().filter(|to| reached[**to].contains(from)).collect();
            if cycle.len() > 1 {
                cycles.insert(cycle.iter().map(|module| shown(module)).collect::<Vec<_>>());
            }
        }
        cycles.into_iter().collect()
    }

    fn reached_from<'a>(&'a self, from: &'a Vec<String>) -> BTreeSet<&'a Vec<String>> {
        let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(module) = next.pop() {
            next.extend(self.imports(module).filter(|to| reached.insert(*to)));
        }
        reached
    }

    fn imports<'a>(&'a self, from: &'a Vec<String>) -> impl Iterator<Item = &'a Vec<String>> {
        self.0[from].named.iter().filter_map(|path| self.defined_in(path, 0)).filter(move |to| *to != from)
    }

    /// The module that defines the item at this path.
    fn defined_in(&self, path: &[String], followed: usize) -> Option<&Vec<String>> {
        let (module, rest) = (0..=path.len()).rev().find_map(|at| {
            let (module, _) = self.0.get_key_value(&path[..at])?;
            Some((module, &path[at..]))
        })?;
        let Some(name) = rest.first() else { return Some(module) };
        match self.0[module].passed_on.get(name) {
            Some(None) => None,
            Some(Some(target)) if followed < FOLLOWED_MAX => {
                let target: Vec<String> = target.iter().chain(&rest[1..]).cloned().collect();
                self.defined_in(&target, followed + 1)
            }
            _ if module.is_empty() => {
                self.0.iter().find(|(_, of)| of.macros.contains(name)).map_or(Some(module), |found| Some(found.0))
            }
            _ => Some(module),
        }
    }
}

fn shown(module: &[String]) -> String {
    if module.is_empty() { "crate".to_owned() } else { module.join("::") }
}

/// Collects the paths of one file.
struct Reader {
    /// The current module; modules in braces are below their file.
    here: Vec<String>,
    /// The names of the modules below it.
    children: BTreeSet<String>,
    /// Whether the current `use` item is a re-export.
    passes_on_only: bool,
    module: Module,
}

impl Reader {
    /// The path from the root of the crate, if it is a path of this crate.
    fn full_path(&self, path: &[String]) -> Option<Vec<String>> {
        let mut base = match path.first()?.as_str() {
            "crate" => vec![],
            "self" | "super" => self.here.clone(),
            _ => return None,
        };
        let mut rest = path;
        while let Some((first, after)) = rest.split_first() {
            match first.as_str() {
                "crate" | "self" => {}
                "super" => drop(base.pop()),
                _ => break,
            }
            rest = after;
        }
        base.extend(rest.iter().cloned());
        Some(base)
    }

    fn name(&mut self, path: &[String]) {
        self.module.named.extend(self.full_path(path));
    }

    fn read_use(&mut self, prefix: &[String], tree: &syn::UseTree) {
        let with = |name: &syn::Ident| [prefix, &[name.to_string()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.read_use(&with(&path.ident), &path.tree),
            syn::UseTree::Name(name) if name.ident == "self" => self.passes_on(prefix, prefix.last().cloned()),
            syn::UseTree::Name(name) => self.passes_on(&with(&name.ident), Some(name.ident.to_string())),
            syn::UseTree::Rename(rename) => self.passes_on(&with(&rename.ident), Some(rename.rename.to_string())),
            syn::UseTree::Glob(_) if self.passes_on_only => {}
            syn::UseTree::Glob(_) => self.name(prefix),
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.read_use(prefix, tree)),
        }
    }

    fn passes_on(&mut self, path: &[String], name: Option<String>) {
        // `use below::X` in a module names its own child, if it has a child of that name.
        let below = path.first().is_some_and(|first| self.children.contains(first));
        let target = if below { Some([&self.here[..], path].concat()) } else { self.full_path(path) };
        if !self.passes_on_only {
            self.module.named.extend(target.clone());
        }
        if let Some(name) = name {
            self.module.passed_on.insert(name, target);
        }
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    // `pub(crate)` does not name an item.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        self.here.push(module.ident.to_string());
        visit::visit_item_mod(self, module);
        self.here.pop();
    }

    fn visit_item_macro(&mut self, item: &'ast syn::ItemMacro) {
        self.module.macros.extend(item.ident.as_ref().map(ToString::to_string));
        visit::visit_item_macro(self, item);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        // A module does not import what it only re-exports.
        self.passes_on_only = !matches!(item.vis, syn::Visibility::Inherited);
        self.read_use(&[], &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let parts: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.name(&parts);
        visit::visit_path(self, path);
    }

    // The arguments of a macro are not parsed: the lint searches their tokens for `crate::a::b`.
    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.visit_path(&call.path);
        self.read_tokens(call.tokens.clone());
    }
}

impl Reader {
    fn read_tokens(&mut self, tokens: proc_macro2::TokenStream) {
        use proc_macro2::TokenTree;
        let mut path: Vec<String> = vec![];
        for token in tokens {
            match token {
                TokenTree::Ident(name) if name == "crate" => path = vec!["crate".to_owned()],
                TokenTree::Ident(name) if !path.is_empty() => path.push(name.to_string()),
                TokenTree::Punct(colon) if colon.as_char() == ':' => {}
                other => {
                    self.name(&std::mem::take(&mut path));
                    if let TokenTree::Group(group) = other {
                        self.read_tokens(group.stream());
                    }
                }
            }
        }
        self.name(&path);
    }
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args().is_ok_and(|condition: syn::Meta| holds_in_tests_only(&condition))
    })
}

/// `test`, or `all(..)` that contains it.
fn holds_in_tests_only(condition: &syn::Meta) -> bool {
    match condition {
        syn::Meta::Path(path) => path.is_ident("test"),
        syn::Meta::List(list) if list.path.is_ident("all") => {
            let all = list.parse_args_with(Punctuated::<syn::Meta, syn::Token![,]>::parse_terminated);
            all.is_ok_and(|all| all.iter().any(holds_in_tests_only))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cycles(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let mut modules = Modules::default();
        for (path, text) in files {
            modules.add(Path::new(path), &syn::parse_file(text).unwrap());
        }
        modules.cycles()
    }

    #[test]
    fn imports_through_a_third_module_form_a_cycle() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c; mod d; pub use a::A;"),
            ("a/mod.rs", "use crate::b::B; pub struct A;"),
            ("b.rs", "fn f() { crate::c::g(); }"),
            ("c.rs", "macro_rules! m { () => { $crate::a::A } }"),
            ("d.rs", "use super::a::A;"),
        ];
        assert_eq!(cycles(&files), [["a", "b", "c"]]);
    }

    #[test]
    fn re_exports_are_followed_to_the_defining_module() {
        let files = [
            ("lib.rs", "mod a; mod b; pub use a::A; pub use b::B;"),
            ("a.rs", "pub struct A;"),
            ("b.rs", "use crate::A; pub struct B;"),
        ];
        assert_eq!(cycles(&files), Vec::<Vec<String>>::new());
        // An item that the root itself defines belongs to the root.
        let files = [("lib.rs", "mod a; use crate::a::A; pub struct Own;"), ("a.rs", "use crate::Own; pub struct A;")];
        assert_eq!(cycles(&files), [["crate", "a"]]);
        // An item of another crate belongs to no module here.
        let files =
            [("lib.rs", "mod a; pub use a::A; pub use std::sync::Arc;"), ("a.rs", "use crate::Arc; pub struct A;")];
        assert_eq!(cycles(&files), Vec::<Vec<String>>::new());
        let files = [
            ("lib.rs", "mod a; mod b; use a::A;"),
            ("a.rs", "pub struct A; fn f() { crate::m!(); }"),
            ("b.rs", "macro_rules! m { () => {} } use crate::a::A;"),
        ];
        assert_eq!(cycles(&files), [["a", "b"]]);
    }

    #[test]
    fn parent_and_child_that_use_each_other_are_a_cycle() {
        let child = ("p/child.rs", "use super::Parent; pub struct Child;");
        let parent = "mod child; pub use child::Child; pub struct Parent; fn f(_: self::child::Child) {}";
        assert_eq!(cycles(&[("lib.rs", "mod p;"), ("p.rs", parent), child]), [["p", "p::child"]]);
    }

    #[test]
    fn imports_in_test_modules_form_no_cycle() {
        for tests in ["test", "all(test, not(loom))"] {
            let a = format!("#[cfg({tests})] mod tests {{ use crate::b::B; }} pub struct A;");
            let files = [("lib.rs", "mod a; mod b;"), ("a.rs", &a), ("b.rs", "use crate::a::A; pub struct B;")];
            assert_eq!(cycles(&files), Vec::<Vec<String>>::new());
        }
    }
}
