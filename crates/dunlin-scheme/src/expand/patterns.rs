//! `match` and `recv`: patterns.
//!
//! An identifier binds, `_` takes anything, a literal and `'datum` match what is `equal?` to them,
//! `,expression` matches its value; lists, dotted lists and vectors match item by item. `(where test)` after
//! the pattern must hold, too. The value of a `match` without a clause that matches is an error.
//!
//! `recv` matches messages, in the order in which they came, until one matches: that one it takes out of the
//! mailbox, the others stay. `(after seconds expression ...)` as the last clause bounds the whole wait.

use std::sync::Arc;

use super::Expander;
use super::binding::procedure;
use super::env::{Env, Meaning, Scope};
use crate::core::{Clause, Core, Var};
use crate::datum::{Datum, Kind, Pos};
use crate::error::SyntaxError;
use crate::num::Number;

/// A clause while its pattern is taken apart.
struct Matching<'d> {
    scope: Arc<Scope>,
    /// Where expressions in the pattern belong.
    env: &'d Env,
    body: &'d [Datum],
    pos: Pos,
    /// The procedure that tries the next clause.
    fail: Var,
    /// Of a message: the process that looks at it, and its number.
    message: Option<(Var, Var)>,
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
        let failed = self.core_call("%match-failed", vec![Core::Local(subject)], pos);
        let clauses = self.match_clauses(subject, clauses, failed, None, pos, env)?;
        Ok(Core::Let(vec![(subject, value)], Box::new(clauses)))
    }

    /// Tries clauses in turn, then evaluates `next`.
    fn match_clauses(
        &mut self,
        subject: Var,
        clauses: &[Datum],
        mut next: Core,
        message: Option<(Var, Var)>,
        pos: Pos,
        env: &Env,
    ) -> Result<Core, SyntaxError> {
        for clause in clauses.iter().rev() {
            let Some([pattern, body @ ..]) = clause.items() else {
                return Err(self.error(clause.pos, "expected (pattern expression ...)"));
            };
            let fail = self.new_var();
            let matching = Matching { scope: Scope::new(env), env, body, pos: clause.pos, fail, message };
            let tried = self.patterns(&matching, vec![(pattern.clone(), subject)])?;
            let name = self.symbols.intern("match");
            let again =
                procedure(Some(name), vec![Arc::new(Clause { parameters: vec![], rest: None, body: next })], pos);
            next = Core::Letrec(vec![(fail, name, again)], Box::new(tried), pos);
        }
        Ok(next)
    }

    /// A loop over messages; `%wait` tells the number of the next one.
    pub(super) fn recv(&mut self, clauses: &[Datum], pos: Pos, env: &Env) -> Result<Core, SyntaxError> {
        let (after, clauses) = match clauses.split_last() {
            Some((last, others)) if self.is_after(last, env) => (last.items(), others),
            _ => (None, clauses),
        };
        if let Some(early) = clauses.iter().find(|clause| self.is_after(clause, env)) {
            return Err(self.error(early.pos, "the clause of after comes last, and once"));
        }
        let (deadline, late) = match after {
            Some([_, seconds, body @ ..]) if !body.is_empty() => {
                let seconds = self.expand(seconds, env)?;
                (self.core_call("%deadline", vec![seconds], pos), self.sequence(body, pos, env)?)
            }
            Some(_) => return Err(self.error(pos, "expected (after seconds expression ...)")),
            None if clauses.is_empty() => {
                return Err(self.error(pos, "expected (recv (pattern expression ...) ...)"));
            }
            None => (constant(Kind::Bool(false), pos), constant(Kind::Unspecified, pos)),
        };
        let [me, until, again, owner, seen, step, message] = std::array::from_fn(|_| self.new_var());
        // A continuation of a clause may go on in another process: the number of a message counts only
        // together with the process that looked at it.
        let next = Core::Call(Box::new(Core::Local(again)), vec![Core::Local(me), Core::Local(step)], pos);
        let matched = self.match_clauses(message, clauses, next, Some((me, step)), pos, env)?;
        let value = self.core_call("%message", vec![Core::Local(step)], pos);
        let this = self.core_call("%self", vec![], pos);
        let found = Core::Let(vec![(me, this), (message, value)], Box::new(matched));
        let exit = self.core_call("%raise-exit", vec![], pos);
        let truth = constant(Kind::Bool(true), pos);
        let is_exit = self.core_call("%eq?", vec![Core::Local(step), truth], pos);
        let found = Core::If(Box::new([Core::Local(step), found, late]));
        let body = Core::If(Box::new([is_exit, exit, found]));
        let wait = self.core_call("%wait", vec![Core::Local(owner), Core::Local(seen), Core::Local(until)], pos);
        let body = Core::Let(vec![(step, wait)], Box::new(body));
        let name = self.symbols.intern("recv");
        let clause = Arc::new(Clause { parameters: vec![owner, seen], rest: None, body });
        let first = vec![constant(Kind::Bool(false), pos), constant(Kind::Number(Number::Fix(0)), pos)];
        let start = Core::Call(Box::new(Core::Local(again)), first, pos);
        let each = Core::Letrec(vec![(again, name, procedure(Some(name), vec![clause], pos))], Box::new(start), pos);
        Ok(Core::Let(vec![(until, deadline)], Box::new(each)))
    }

    fn is_after(&mut self, clause: &Datum, env: &Env) -> bool {
        clause.items().and_then(|items| items.first()).is_some_and(|first| self.is_keyword(first, "after", env))
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
            let body = self.accepted(matching, body, &env)?;
            return Ok(self.or_fail(matching, test, body));
        }
        self.accepted(matching, matching.body, &env)
    }

    /// The body of the clause that matches; a message is taken out of the mailbox before.
    fn accepted(&mut self, matching: &Matching<'_>, body: &[Datum], env: &Env) -> Result<Core, SyntaxError> {
        let body = self.body(body, matching.pos, env)?;
        let Some((me, step)) = matching.message else { return Ok(body) };
        let accept = self.core_call("%accept", vec![Core::Local(me), Core::Local(step)], matching.pos);
        Ok(Core::Seq(vec![accept, body]))
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

fn constant(kind: Kind, pos: Pos) -> Core {
    Core::Const(Datum::new(pos, kind))
}
