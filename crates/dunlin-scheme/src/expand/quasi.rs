//! `quasiquote`.

use super::Expander;
use super::env::{Env, Meaning};
use super::special::Special;
use crate::core::Core;
use crate::datum::{Datum, Kind};
use crate::error::SyntaxError;

impl Expander<'_> {
    /// Expands a template at a depth of nested `quasiquote`; what has no unquote in it is a constant.
    pub(super) fn quasi(&mut self, template: &Datum, depth: usize, env: &Env) -> Result<Core, SyntaxError> {
        self.step(template.pos)?;
        match &template.kind {
            Kind::List(items, tail) => self.deeper(template.pos, |this| {
                if let Some(unquoted) = this.unquoted(items, "unquote", env) {
                    return if depth == 1 {
                        this.expand(unquoted, env)
                    } else {
                        this.nested("unquote", unquoted, depth - 1, env)
                    };
                }
                if let [keyword, inner] = &**items
                    && tail.is_none()
                    && let Some(name) = keyword.name()
                    && matches!(this.meaning(name, env), Meaning::Special(Special::Quasiquote))
                {
                    return this.nested("quasiquote", inner, depth + 1, env);
                }
                this.quasi_items(items, tail.as_deref(), depth, env)
            }),
            Kind::Vector(items) => self.deeper(template.pos, |this| {
                let list = this.quasi_items(items, None, depth, env)?;
                if let Core::Const(_) = list {
                    return Ok(Core::Const(this.strip(template)));
                }
                Ok(this.core_call("%list->vector", vec![list], template.pos))
            }),
            _ => Ok(Core::Const(self.strip(template))),
        }
    }

    fn quasi_items(
        &mut self,
        items: &[Datum],
        tail: Option<&Datum>,
        depth: usize,
        env: &Env,
    ) -> Result<Core, SyntaxError> {
        // `(a . ,b)` is read as `(a unquote b)`.
        if items.len() > 2
            && tail.is_none()
            && let Some(unquoted) = self.unquoted(&items[items.len() - 2..], "unquote", env)
            && depth == 1
        {
            let end = self.expand(unquoted, env)?;
            return self.quasi_before(&items[..items.len() - 2], end, depth, env);
        }
        let end = match tail {
            Some(tail) => self.quasi(tail, depth, env)?,
            None => Core::Const(Datum::list(Default::default(), vec![])),
        };
        self.quasi_before(items, end, depth, env)
    }

    fn quasi_before(&mut self, items: &[Datum], end: Core, depth: usize, env: &Env) -> Result<Core, SyntaxError> {
        let mut list = end;
        // Constants directly before `list`, the last first.
        let mut constants = Vec::new();
        for item in items.iter().rev() {
            if let Kind::List(parts, None) = &item.kind
                && let Some(unquoted) = self.unquoted(parts, "unquote-splicing", env)
            {
                list = self.before(&mut constants, list);
                list = if depth == 1 {
                    let spliced = self.expand(unquoted, env)?;
                    self.core_call("%append2", vec![spliced, list], item.pos)
                } else {
                    let inner = self.nested("unquote-splicing", unquoted, depth - 1, env)?;
                    self.core_call("%cons", vec![inner, list], item.pos)
                };
                continue;
            }
            let first = self.quasi(item, depth, env)?;
            if let Core::Const(datum) = &first {
                constants.push(datum.clone());
            } else {
                list = self.before(&mut constants, list);
                list = self.core_call("%cons", vec![first, list], item.pos);
            }
        }
        Ok(self.before(&mut constants, list))
    }

    fn before(&mut self, constants: &mut Vec<Datum>, list: Core) -> Core {
        let constants = std::mem::take(constants).into_iter();
        if let Core::Const(rest) = &list {
            return Core::Const(Datum::improper(rest.pos, constants.rev().collect(), rest.clone()));
        }
        constants.fold(list, |rest, first| {
            let pos = first.pos;
            self.core_call("%cons", vec![Core::Const(first), rest], pos)
        })
    }

    fn nested(&mut self, keyword: &str, inner: &Datum, depth: usize, env: &Env) -> Result<Core, SyntaxError> {
        let keyword = Datum::symbol(inner.pos, self.symbols.intern(keyword));
        let list = Datum::list(inner.pos, vec![inner.clone()]);
        let list = self.quasi(&list, depth, env)?;
        if let Core::Const(rest) = &list {
            return Ok(Core::Const(Datum::improper(inner.pos, vec![keyword], rest.clone())));
        }
        Ok(self.core_call("%cons", vec![Core::Const(keyword), list], inner.pos))
    }

    /// The datum after `keyword`, if these are the items of such a form.
    fn unquoted<'d>(&mut self, items: &'d [Datum], keyword: &str, env: &Env) -> Option<&'d Datum> {
        let [first, unquoted] = items else { return None };
        let Meaning::Global(symbol) = self.meaning(first.name()?, env) else { return None };
        if &**self.symbols.text(symbol) == keyword { Some(unquoted) } else { None }
    }
}
