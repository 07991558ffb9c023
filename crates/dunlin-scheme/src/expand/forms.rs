//! Special forms that bind nothing.

use super::Expander;
use super::env::{Env, Meaning, Scope};
use super::special::Special;
use crate::core::Core;
use crate::datum::{Datum, Kind, Pos};
use crate::error::SyntaxError;
use crate::num::Number;

impl Expander<'_> {
    /// Expands a special form as an expression.
    pub(super) fn special(
        &mut self,
        special: Special,
        form: &Datum,
        items: &[Datum],
        env: &Env,
    ) -> Result<Core, SyntaxError> {
        let pos = form.pos;
        match (special, &items[1..]) {
            (Special::Quote, [datum]) => Ok(Core::Const(self.strip(datum))),
            (Special::Quote, _) => Err(self.error(pos, "expected (quote datum)")),
            (Special::Quasiquote, [template]) => self.quasi(template, 1, env),
            (Special::Quasiquote, _) => Err(self.error(pos, "expected (quasiquote template)")),
            (Special::If, [test, then]) => {
                let unspecified = Core::Const(Datum::new(pos, Kind::Unspecified));
                Ok(Core::If(Box::new([self.expand(test, env)?, self.expand(then, env)?, unspecified])))
            }
            (Special::If, [test, then, other]) => {
                let parts = [self.expand(test, env)?, self.expand(then, env)?, self.expand(other, env)?];
                Ok(Core::If(Box::new(parts)))
            }
            (Special::If, _) => Err(self.error(pos, "expected (if test then else)")),
            (Special::Begin, []) => Ok(Core::Const(Datum::new(pos, Kind::Unspecified))),
            (Special::Begin, forms) => self.sequence(forms, pos, env),
            (Special::And, forms) => self.and(forms, env),
            (Special::Or, forms) => self.or(forms, env),
            (Special::When | Special::Unless, [test, body @ ..]) if !body.is_empty() => {
                let test = self.expand(test, env)?;
                let body = self.sequence(body, pos, env)?;
                let none = Core::Const(Datum::new(pos, Kind::Unspecified));
                let parts = if special == Special::When { [test, body, none] } else { [test, none, body] };
                Ok(Core::If(Box::new(parts)))
            }
            (Special::When | Special::Unless, _) => Err(self.error(pos, "expected a test and a body")),
            (Special::Cond, clauses) => self.cond(clauses, env),
            (Special::Case, [key, clauses @ ..]) => self.case(key, clauses, env),
            (Special::Case, _) => Err(self.error(pos, "expected (case key clause ...)")),
            (Special::Match, [subject, clauses @ ..]) => self.match_form(subject, clauses, pos, env),
            (Special::Match, _) => Err(self.error(pos, "expected (match value (pattern expression ...) ...)")),
            (Special::Recv, clauses) => self.recv(clauses, pos, env),
            (Special::Lambda, _) => self.lambda(form, items, env),
            (Special::CaseLambda, _) => self.case_lambda(form, items, env),
            (Special::Let, _) => self.let_form(form, items, env),
            (Special::LetStar, _) => self.let_star(form, items, env),
            (Special::Letrec, _) => self.letrec(form, items, env),
            (Special::Do, _) => self.do_form(form, items, env),
            (Special::LetSyntax | Special::LetrecSyntax, [bindings, body @ ..]) => {
                self.let_syntax(special, bindings, body, pos, env)
            }
            (Special::SyntaxError, [message, irritants @ ..]) => {
                let mut text = match &message.kind {
                    Kind::String(text) => text.to_string(),
                    _ => "syntax error".into(),
                };
                for irritant in irritants {
                    text.push(' ');
                    text += &crate::print::datum(&self.strip(irritant), self.symbols);
                }
                Err(self.error(pos, text))
            }
            (Special::Set, _) => {
                Err(self.error(pos, "set! is not available, variables never change: bind a new one with let or a loop"))
            }
            (Special::Include | Special::IncludeCi, _) => {
                let forms = self.include(special, form, items)?;
                self.sequence(&forms, pos, env)
            }
            (Special::CondExpand, _) => self.body(std::slice::from_ref(form), pos, env),
            (Special::LetSyntax | Special::LetrecSyntax | Special::SyntaxError, _) => {
                Err(self.error(pos, "expected bindings and a body, or a message"))
            }
            (
                Special::Define
                | Special::DefineLibrary
                | Special::DefineMacro
                | Special::DefineSyntax
                | Special::DefineValues
                | Special::DefineRecordType
                | Special::Import,
                _,
            ) => Err(self.error(pos, "a definition belongs at the top level, or at the beginning of a body")),
        }
    }

    /// Expressions one after the other; there must be one.
    pub(super) fn sequence(&mut self, forms: &[Datum], pos: Pos, env: &Env) -> Result<Core, SyntaxError> {
        let mut forms = self.expand_all(forms, env)?;
        match forms.len() {
            0 => Err(self.error(pos, "expected an expression")),
            1 => Ok(forms.remove(0)),
            _ => Ok(Core::Seq(forms)),
        }
    }

    fn and(&mut self, forms: &[Datum], env: &Env) -> Result<Core, SyntaxError> {
        let mut parts = self.expand_all(forms, env)?.into_iter().rev();
        let last = parts.next().unwrap_or_else(|| truth(true));
        Ok(parts.fold(last, |rest, part| Core::If(Box::new([part, rest, truth(false)]))))
    }

    fn or(&mut self, forms: &[Datum], env: &Env) -> Result<Core, SyntaxError> {
        let mut parts = self.expand_all(forms, env)?.into_iter().rev();
        let last = parts.next().unwrap_or_else(|| truth(false));
        Ok(parts.fold(last, |rest, part| Core::Or(Box::new([part, rest]))))
    }

    pub(super) fn is_keyword(&mut self, datum: &Datum, keyword: &str, env: &Env) -> bool {
        let meaning = datum.name().map(|name| self.meaning(name, env));
        let Some(Meaning::Global(symbol) | Meaning::Unbound(symbol)) = meaning else { return false };
        &**self.symbols.text(symbol) == keyword
    }

    fn cond(&mut self, clauses: &[Datum], env: &Env) -> Result<Core, SyntaxError> {
        let mut result = Core::Const(Datum::new(Pos::default(), Kind::Unspecified));
        for (at, clause) in clauses.iter().enumerate().rev() {
            let Some([test, body @ ..]) = clause.items() else {
                return Err(self.error(clause.pos, "expected (test expression ...)"));
            };
            if self.is_keyword(test, "else", env) {
                if at + 1 < clauses.len() {
                    return Err(self.error(clause.pos, "else belongs in the last clause"));
                }
                result = self.sequence(body, clause.pos, env)?;
                continue;
            }
            let test = self.expand(test, env)?;
            result = match body {
                [] => Core::Or(Box::new([test, result])),
                [arrow, receiver] if self.is_keyword(arrow, "=>", env) => {
                    let var = self.new_var();
                    let receiver = self.expand(receiver, env)?;
                    let call = Core::Call(Box::new(receiver), vec![Core::Local(var)], clause.pos);
                    Core::Let(vec![(var, test)], Box::new(Core::If(Box::new([Core::Local(var), call, result]))))
                }
                _ => Core::If(Box::new([test, self.sequence(body, clause.pos, env)?, result])),
            };
        }
        Ok(result)
    }

    fn case(&mut self, key: &Datum, clauses: &[Datum], env: &Env) -> Result<Core, SyntaxError> {
        let key_value = self.expand(key, env)?;
        let var = self.new_var();
        let mut result = Core::Const(Datum::new(key.pos, Kind::Unspecified));
        for (at, clause) in clauses.iter().enumerate().rev() {
            let Some([data, body @ ..]) = clause.items() else {
                return Err(self.error(clause.pos, "expected ((datum ...) expression ...)"));
            };
            let body = match body {
                [arrow, receiver] if self.is_keyword(arrow, "=>", env) => {
                    let receiver = self.expand(receiver, env)?;
                    Core::Call(Box::new(receiver), vec![Core::Local(var)], clause.pos)
                }
                _ => self.sequence(body, clause.pos, env)?,
            };
            if self.is_keyword(data, "else", env) {
                if at + 1 < clauses.len() {
                    return Err(self.error(clause.pos, "else belongs in the last clause"));
                }
                result = body;
                continue;
            }
            let Some(data) = data.items() else { return Err(self.error(data.pos, "expected (datum ...)")) };
            let mut test = truth(false);
            for datum in data.iter().rev() {
                let comparison = match datum.kind {
                    Kind::Number(Number::Fix(_)) | Kind::Symbol(_) | Kind::Char(_) | Kind::Bool(_) => "%eq?",
                    _ => "%eqv?",
                };
                let constant = Core::Const(self.strip(datum));
                let same = self.core_call(comparison, vec![Core::Local(var), constant], datum.pos);
                test = Core::Or(Box::new([same, test]));
            }
            result = Core::If(Box::new([test, body, result]));
        }
        Ok(Core::Let(vec![(var, key_value)], Box::new(result)))
    }

    fn let_syntax(
        &mut self,
        special: Special,
        bindings: &Datum,
        body: &[Datum],
        pos: Pos,
        env: &Env,
    ) -> Result<Core, SyntaxError> {
        let scope = Scope::new(env);
        let inner = Some(scope.clone());
        let defined_in = if special == Special::LetrecSyntax { &inner } else { env };
        for (identifier, spec) in self.bindings(bindings)? {
            let name = identifier.name().ok_or_else(|| self.error(identifier.pos, "expected an identifier"))?;
            let meaning = self.transformer(spec, defined_in)?;
            scope.bind(name, meaning);
        }
        self.body(body, pos, &inner)
    }
}

fn truth(value: bool) -> Core {
    Core::Const(Datum::new(Pos::default(), Kind::Bool(value)))
}
