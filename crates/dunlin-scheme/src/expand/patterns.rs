//! `match`: patterns.
//!
//! An identifier binds, `_` takes anything, a literal and `'datum` match what is `equal?` to them,
//! `,expression` matches its value; lists, dotted lists and vectors match item by item. `(where test)` after
//! the pattern must hold, too. The value of a `match` without a clause that matches is an error.

use std::rc::Rc;

use super::Expander;
use super::binding::procedure;
use super::env::{Env, Meaning, Scope};
use crate::core::{Clause, Core, Var};
use crate::datum::{Datum, Kind, Pos};
use crate::error::SyntaxError;
use crate::num::Number;

/// A clause while its pattern is taken apart.
struct Matching<'d> {
    scope: Rc<Scope>,
    /// Where expressions in the pattern belong.
    env: &'d Env,
    body: &'d [Datum],
    pos: Pos,
    /// The procedure that tries the next clause.
    fail: Var,
}

impl Expander<'_> {
    pub(super) fn match_form(
        &mut self,
        subject: &Datum,
        clauses: &[Datum],
        pos: Pos,
        env: &Env,
    ) -> Result<Core, SyntaxError> {
        let value = self.expand(subject, env)?;
        let subject = self.new_var();
        let mut next = self.core_call("%match-failed", vec![Core::Local(subject)], pos);
        for clause in clauses.iter().rev() {
            let Some([pattern, body @ ..]) = clause.items() else {
                return Err(self.error(clause.pos, "expected (pattern expression ...)"));
            };
            let fail = self.new_var();
            let matching = Matching { scope: Scope::new(env), env, body, pos: clause.pos, fail };
            let tried = self.patterns(&matching, vec![(pattern.clone(), subject)])?;
            let name = self.symbols.intern("match");
            let again =
                procedure(Some(name), vec![Rc::new(Clause { parameters: vec![], rest: None, body: next })], pos);
            next = Core::Letrec(vec![(fail, name, again)], Box::new(tried), pos);
        }
        Ok(Core::Let(vec![(subject, value)], Box::new(next)))
    }

    /// Matches the patterns that are left, the last first, and then evaluates the body.
    fn patterns(&mut self, matching: &Matching<'_>, mut left: Vec<(Datum, Var)>) -> Result<Core, SyntaxError> {
        let Some((pattern, subject)) = left.pop() else { return self.matched(matching) };
        let pos = pattern.pos;
        self.deeper(pos, |this| match &pattern.kind {
            Kind::Symbol(name) => {
                let symbol = this.syntaxes.symbol(*name);
                if &**this.symbols.text(symbol) != "_" {
                    if matching.scope.has(*name) {
                        return Err(this.error(pos, "this identifier is in the pattern twice"));
                    }
                    matching.scope.bind(*name, Meaning::Local(subject));
                }
                this.patterns(matching, left)
            }
            Kind::List(items, tail) => match this.quotation(items, matching.env) {
                Some(("quote", datum)) => {
                    let constant = Core::Const(this.strip(datum));
                    this.equal(matching, left, subject, constant, pos)
                }
                Some((_, expression)) => {
                    let value = this.expand(expression, matching.env)?;
                    this.equal(matching, left, subject, value, pos)
                }
                None if items.is_empty() => {
                    let test = this.core_call("%null?", vec![Core::Local(subject)], pos);
                    this.guarded(matching, left, test)
                }
                None => {
                    let rest = match (&items[1..], tail) {
                        ([], Some(tail)) => (**tail).clone(),
                        (rest, tail) => Datum::new(pos, Kind::List(rest.into(), tail.clone())),
                    };
                    let (first, others) = (this.new_var(), this.new_var());
                    left.extend([(rest, others), (items[0].clone(), first)]);
                    let test = this.core_call("%pair?", vec![Core::Local(subject)], pos);
                    let car = this.core_call("%car", vec![Core::Local(subject)], pos);
                    let cdr = this.core_call("%cdr", vec![Core::Local(subject)], pos);
                    let inner = this.patterns(matching, left)?;
                    let bound = Core::Let(vec![(first, car), (others, cdr)], Box::new(inner));
                    Ok(this.or_fail(matching, test, bound))
                }
            },
            Kind::Vector(items) => {
                let list = this.new_var();
                left.push((Datum::list(pos, items.to_vec()), list));
                let test = this.core_call("%vector?", vec![Core::Local(subject)], pos);
                let whole = Core::Const(Datum::new(pos, Kind::Bool(false)));
                let start = Core::Const(Datum::new(pos, Kind::Number(Number::Fix(0))));
                let value = this.core_call("%vector->list", vec![Core::Local(subject), start, whole], pos);
                let inner = this.patterns(matching, left)?;
                Ok(this.or_fail(matching, test, Core::Let(vec![(list, value)], Box::new(inner))))
            }
            _ => this.equal(matching, left, subject, Core::Const(pattern.clone()), pos),
        })
    }

    fn matched(&mut self, matching: &Matching<'_>) -> Result<Core, SyntaxError> {
        let env = Some(matching.scope.clone());
        if let [guard, body @ ..] = matching.body
            && let Some([keyword, test]) = guard.items()
            && self.is_keyword(keyword, "where", &env)
        {
            let test = self.expand(test, &env)?;
            let body = self.body(body, matching.pos, &env)?;
            return Ok(self.or_fail(matching, test, body));
        }
        self.body(matching.body, matching.pos, &env)
    }

    fn or_fail(&mut self, matching: &Matching<'_>, test: Core, then: Core) -> Core {
        let fail = Core::Call(Box::new(Core::Local(matching.fail)), vec![], matching.pos);
        Core::If(Box::new([test, then, fail]))
    }

    fn guarded(&mut self, matching: &Matching<'_>, left: Vec<(Datum, Var)>, test: Core) -> Result<Core, SyntaxError> {
        let then = self.patterns(matching, left)?;
        Ok(self.or_fail(matching, test, then))
    }

    fn equal(
        &mut self,
        matching: &Matching<'_>,
        left: Vec<(Datum, Var)>,
        subject: Var,
        value: Core,
        pos: Pos,
    ) -> Result<Core, SyntaxError> {
        // What is one word is equal to itself only; the rest takes a call.
        let is_word = |datum: &Datum| match &datum.kind {
            Kind::Symbol(_) | Kind::Char(_) | Kind::Bool(_) | Kind::Number(Number::Fix(_)) => true,
            Kind::List(items, None) => items.is_empty(),
            _ => false,
        };
        let same = if matches!(&value, Core::Const(datum) if is_word(datum)) { "%eq?" } else { "%equal?" };
        let test = self.core_call(same, vec![Core::Local(subject), value], pos);
        self.guarded(matching, left, test)
    }

    /// What follows the keyword in `(quote datum)` and `(unquote expression)`.
    fn quotation<'d>(&mut self, items: &'d [Datum], env: &Env) -> Option<(&'static str, &'d Datum)> {
        let [keyword, datum] = items else { return None };
        if matches!(self.meaning(keyword.name()?, env), Meaning::Special(super::special::Special::Quote)) {
            return Some(("quote", datum));
        }
        self.is_keyword(keyword, "unquote", env).then_some(("unquote", datum))
    }
}
