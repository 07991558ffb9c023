//! `syntax-rules`: patterns and templates.

use std::collections::HashMap;
use std::sync::Arc;

use super::Expander;
use super::env::{Env, Rules};
use crate::datum::{Datum, Kind};
use crate::error::SyntaxError;
use crate::names::Name;

/// Expansions nested deeper are refused.
const HEIGHT_MAX: u32 = 3_000;

/// What a variable of a pattern matched.
enum Match {
    One(Datum),
    Many(Vec<Bindings>),
}

type Bindings = HashMap<Name, Arc<Match>>;

impl Rules {
    /// Reads `(syntax-rules ...)`.
    pub(super) fn read(expander: &mut Expander<'_>, spec: &Datum, env: &Env) -> Result<Self, SyntaxError> {
        let wrong = |expander: &Expander<'_>| {
            expander.error(spec.pos, "expected (syntax-rules (literal ...) (pattern template) ...)")
        };
        let mut items = spec.items().ok_or_else(|| wrong(expander))?.get(1..).unwrap_or_default();
        let mut ellipsis = expander.symbols.intern("...");
        if let Some(name) = items.first().and_then(Datum::name) {
            ellipsis = name;
            items = &items[1..];
        }
        let [literals, rules @ ..] = items else { return Err(wrong(expander)) };
        let literals = literals.items().ok_or_else(|| wrong(expander))?;
        let literals: Option<Vec<Name>> = literals.iter().map(Datum::name).collect();
        let rules: Option<Vec<(Datum, Datum)>> = rules
            .iter()
            .map(|rule| match rule.items()? {
                [pattern @ Datum { kind: Kind::List(..), .. }, template] => Some((pattern.clone(), template.clone())),
                _ => None,
            })
            .collect();
        let (Some(literals), Some(rules)) = (literals, rules) else { return Err(wrong(expander)) };
        let underscore = expander.symbols.intern("_");
        Ok(Self { ellipsis, underscore, literals, rules, env: env.clone(), procedure: None })
    }

    /// The expansion of a use of the macro.
    pub(super) fn expand(&self, expander: &mut Expander<'_>, form: &Datum, env: &Env) -> Result<Datum, SyntaxError> {
        if let Some(procedure) = self.procedure {
            return expander.call_macro(procedure, form, env);
        }
        for (pattern, template) in &self.rules {
            let mut bindings = Bindings::new();
            let (Kind::List(pattern_items, pattern_tail), Kind::List(items, tail)) = (&pattern.kind, &form.kind) else {
                continue;
            };
            // The keyword itself is not matched.
            let (Some(pattern_items), Some(items)) = (pattern_items.get(1..), items.get(1..)) else { continue };
            let matching = Matching { rules: self, expander, env };
            if matching.list(pattern_items, pattern_tail.as_deref(), items, tail.as_deref(), &mut bindings) {
                let mut filling = Filling { rules: self, expander, aliases: HashMap::new(), use_pos: form.pos };
                let filled = filling.fill(template, &bindings, true)?;
                if filled.height() > HEIGHT_MAX {
                    return Err(expander.error(form.pos, format!("the expansion nests deeper than {HEIGHT_MAX}")));
                }
                return Ok(filled);
            }
        }
        Err(expander.error(form.pos, "no rule of the macro matches this form"))
    }

    /// A macro whose expansions the value of a global makes.
    pub(super) fn of_procedure(expander: &mut Expander<'_>, global: Name) -> Self {
        let ellipsis = expander.symbols.intern("...");
        let underscore = expander.symbols.intern("_");
        let (literals, rules) = (Vec::new(), Vec::new());
        Self { ellipsis, underscore, literals, rules, env: None, procedure: Some(global) }
    }

    fn is_ellipsis(&self, expander: &Expander<'_>, name: Name) -> bool {
        // A macro that defines macros renames the ellipsis of its template, too.
        !self.literals.contains(&name) && (name == self.ellipsis || expander.syntaxes.symbol(name) == self.ellipsis)
    }
}

struct Matching<'a, 'e, 'm> {
    rules: &'a Rules,
    expander: &'a Expander<'m>,
    env: &'e Env,
}

impl Matching<'_, '_, '_> {
    fn datum(&self, pattern: &Datum, form: &Datum, bindings: &mut Bindings) -> bool {
        match (&pattern.kind, &form.kind) {
            (Kind::Symbol(name), _) => self.identifier(*name, form, bindings),
            (Kind::List(patterns, tail), Kind::List(items, end)) => {
                self.list(patterns, tail.as_deref(), items, end.as_deref(), bindings)
            }
            (Kind::Vector(patterns), Kind::Vector(items)) => self.list(patterns, None, items, None, bindings),
            (Kind::List(..) | Kind::Vector(_), _) => false,
            (literal, other) => same_constant(literal, other),
        }
    }

    fn identifier(&self, name: Name, form: &Datum, bindings: &mut Bindings) -> bool {
        if self.rules.literals.contains(&name) {
            let syntaxes = &self.expander.syntaxes;
            return form.name().is_some_and(|used| {
                syntaxes.literal(used, self.env).is_same(&syntaxes.literal(name, &self.rules.env))
            });
        }
        if self.expander.syntaxes.symbol(name) != self.rules.underscore {
            bindings.insert(name, Arc::new(Match::One(form.clone())));
        }
        true
    }

    fn list(
        &self,
        patterns: &[Datum],
        tail: Option<&Datum>,
        items: &[Datum],
        end: Option<&Datum>,
        bindings: &mut Bindings,
    ) -> bool {
        let ellipsis = patterns
            .iter()
            .position(|pattern| pattern.name().is_some_and(|name| self.rules.is_ellipsis(self.expander, name)));
        let (before, repeated, after) = match ellipsis {
            Some(at) if at > 0 => (&patterns[..at - 1], Some(&patterns[at - 1]), &patterns[at + 1..]),
            _ => (patterns, None, &patterns[..0]),
        };
        let least = before.len() + after.len();
        if items.len() < least {
            return false;
        }
        if !before.iter().zip(items).all(|(pattern, item)| self.datum(pattern, item, bindings)) {
            return false;
        }
        let Some(repeated) = repeated else {
            return self.tail(tail, &items[before.len()..], end, bindings);
        };
        let middle = before.len()..items.len() - after.len();
        let mut matches = Vec::with_capacity(middle.len());
        for item in &items[middle.clone()] {
            let mut inner = Bindings::new();
            if !self.datum(repeated, item, &mut inner) {
                return false;
            }
            matches.push(inner);
        }
        let matches = Arc::new(Match::Many(matches));
        let mut names = Vec::new();
        self.variables(repeated, &mut names);
        bindings.extend(names.into_iter().map(|name| (name, matches.clone())));
        if !after.iter().zip(&items[middle.end..]).all(|(pattern, item)| self.datum(pattern, item, bindings)) {
            return false;
        }
        self.tail(tail, &[], end, bindings)
    }

    fn tail(&self, tail: Option<&Datum>, rest: &[Datum], end: Option<&Datum>, bindings: &mut Bindings) -> bool {
        match (tail, end) {
            (None, None) => rest.is_empty(),
            (None, Some(_)) => false,
            (Some(pattern), None) => {
                let pos = rest.first().map_or(pattern.pos, |first| first.pos);
                self.datum(pattern, &Datum::list(pos, rest.to_vec()), bindings)
            }
            (Some(pattern), Some(end)) => {
                self.datum(pattern, &Datum::improper(end.pos, rest.to_vec(), end.clone()), bindings)
            }
        }
    }

    fn variables(&self, pattern: &Datum, names: &mut Vec<Name>) {
        match &pattern.kind {
            Kind::Symbol(name)
                if !self.rules.literals.contains(name) && !self.rules.is_ellipsis(self.expander, *name) =>
            {
                names.push(*name);
            }
            Kind::List(items, tail) => {
                items.iter().for_each(|item| self.variables(item, names));
                tail.iter().for_each(|tail| self.variables(tail, names));
            }
            Kind::Vector(items) => items.iter().for_each(|item| self.variables(item, names)),
            _ => {}
        }
    }
}

struct Filling<'a, 'm> {
    rules: &'a Rules,
    expander: &'a mut Expander<'m>,
    aliases: HashMap<Name, Name>,
    use_pos: crate::datum::Pos,
}

impl Filling<'_, '_> {
    fn fill(&mut self, template: &Datum, bindings: &Bindings, ellipses: bool) -> Result<Datum, SyntaxError> {
        self.expander.step(self.use_pos)?;
        match &template.kind {
            Kind::Symbol(name) => match bindings.get(name).map(|found| &**found) {
                Some(Match::One(datum)) => Ok(datum.clone()),
                Some(Match::Many(_)) => {
                    Err(self.expander.error(template.pos, "expected an ellipsis after this variable of the pattern"))
                }
                None => {
                    let alias = match self.aliases.get(name) {
                        Some(alias) => *alias,
                        None => self.expander.syntaxes.alias(*name, &self.rules.env),
                    };
                    self.aliases.insert(*name, alias);
                    Ok(Datum::symbol(self.use_pos, alias))
                }
            },
            Kind::List(items, tail) => {
                if ellipses
                    && let [first, escaped] = &**items
                    && self.is_ellipsis(first)
                {
                    return self.fill(escaped, bindings, false);
                }
                let filled = self.items(items, bindings, ellipses)?;
                match tail {
                    None => Ok(Datum::list(self.use_pos, filled)),
                    Some(tail) => {
                        let tail = self.fill(tail, bindings, ellipses)?;
                        Ok(Datum::improper(self.use_pos, filled, tail))
                    }
                }
            }
            Kind::Vector(items) => {
                let filled = self.items(items, bindings, ellipses)?;
                Ok(Datum::new(self.use_pos, Kind::Vector(filled.into())))
            }
            _ => Ok(template.clone()),
        }
    }

    fn is_ellipsis(&self, datum: &Datum) -> bool {
        datum.name().is_some_and(|name| self.rules.is_ellipsis(self.expander, name))
    }

    fn items(&mut self, items: &[Datum], bindings: &Bindings, ellipses: bool) -> Result<Vec<Datum>, SyntaxError> {
        let mut filled = Vec::with_capacity(items.len());
        let mut at = 0;
        while at < items.len() {
            let item = &items[at];
            at += 1;
            let mut depth = 0;
            while ellipses && items.get(at).is_some_and(|next| self.is_ellipsis(next)) {
                depth += 1;
                at += 1;
            }
            self.repeat(item, bindings, ellipses, depth, &mut filled)?;
        }
        Ok(filled)
    }

    fn repeat(
        &mut self,
        item: &Datum,
        bindings: &Bindings,
        ellipses: bool,
        depth: usize,
        filled: &mut Vec<Datum>,
    ) -> Result<(), SyntaxError> {
        if depth == 0 {
            filled.push(self.fill(item, bindings, ellipses)?);
            return Ok(());
        }
        let mut names = Vec::new();
        variables(item, bindings, &mut names);
        let mut repeated: Vec<Arc<Match>> = Vec::new();
        for name in names {
            if let Some(found) = bindings.get(&name)
                && matches!(**found, Match::Many(_))
                && !repeated.iter().any(|known| Arc::ptr_eq(known, found))
            {
                repeated.push(found.clone());
            }
        }
        let lists =
            repeated.iter().filter_map(|found| if let Match::Many(many) = &**found { Some(many) } else { None });
        let lists: Vec<&Vec<Bindings>> = lists.collect();
        let Some(count) = lists.iter().map(|list| list.len()).max() else {
            return Err(self.expander.error(item.pos, "nothing before this ellipsis repeats"));
        };
        if lists.iter().any(|list| list.len() != count) {
            return Err(self
                .expander
                .error(self.use_pos, "variables under one ellipsis matched different numbers of forms"));
        }
        for at in 0..count {
            let mut inner = bindings.clone();
            for list in &lists {
                inner.extend(list[at].iter().map(|(name, found)| (*name, found.clone())));
            }
            self.repeat(item, &inner, ellipses, depth - 1, filled)?;
        }
        Ok(())
    }
}

/// The variables of a pattern that a template uses.
fn variables(template: &Datum, bindings: &Bindings, names: &mut Vec<Name>) {
    match &template.kind {
        Kind::Symbol(name) if bindings.contains_key(name) => names.push(*name),
        Kind::List(items, tail) => {
            items.iter().for_each(|item| variables(item, bindings, names));
            tail.iter().for_each(|tail| variables(tail, bindings, names));
        }
        Kind::Vector(items) => items.iter().for_each(|item| variables(item, bindings, names)),
        _ => {}
    }
}

fn same_constant(a: &Kind, b: &Kind) -> bool {
    match (a, b) {
        (Kind::Bool(a), Kind::Bool(b)) => a == b,
        (Kind::Char(a), Kind::Char(b)) => a == b,
        (Kind::Number(a), Kind::Number(b)) => a == b,
        (Kind::String(a), Kind::String(b)) => a == b,
        (Kind::Bytes(a), Kind::Bytes(b)) => a == b,
        _ => false,
    }
}
