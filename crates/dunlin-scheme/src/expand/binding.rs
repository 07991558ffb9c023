//! Forms that bind variables.

use std::sync::Arc;

use super::Expander;
use super::env::{Env, Meaning, Scope};
use crate::core::{Clause, Core, Lambda};
use crate::datum::{Datum, Kind, Pos};
use crate::error::SyntaxError;
use crate::names::Name;

impl Expander<'_> {
    pub(super) fn lambda(&mut self, form: &Datum, items: &[Datum], env: &Env) -> Result<Core, SyntaxError> {
        let [_, parameters, body @ ..] = items else {
            return Err(self.error(form.pos, "expected (lambda parameters body ...)"));
        };
        let clause = self.clause(parameters, body, form.pos, env)?;
        Ok(procedure(None, vec![clause], form.pos))
    }

    pub(super) fn case_lambda(&mut self, form: &Datum, items: &[Datum], env: &Env) -> Result<Core, SyntaxError> {
        let mut clauses = Vec::with_capacity(items.len());
        for clause in &items[1..] {
            match clause.items() {
                Some([parameters, body @ ..]) => clauses.push(self.clause(parameters, body, clause.pos, env)?),
                _ => return Err(self.error(clause.pos, "expected (parameters body ...)")),
            }
        }
        Ok(procedure(None, clauses, form.pos))
    }

    /// Parameters and body of a procedure.
    pub(super) fn clause(
        &mut self,
        parameters: &Datum,
        body: &[Datum],
        pos: Pos,
        env: &Env,
    ) -> Result<Arc<Clause>, SyntaxError> {
        let scope = Scope::new(env);
        let (names, rest) = match &parameters.kind {
            Kind::Symbol(_) => (&[][..], Some(parameters)),
            Kind::List(items, tail) => (&**items, tail.as_deref()),
            _ => return Err(self.error(parameters.pos, "expected parameters")),
        };
        let mut vars = Vec::with_capacity(names.len());
        for parameter in names {
            vars.push(self.bind(parameter, &scope)?);
        }
        let rest = rest.map(|rest| self.bind(rest, &scope)).transpose()?;
        let body = self.body(body, pos, &Some(scope))?;
        Ok(Arc::new(Clause { parameters: vars, rest, body }))
    }

    fn bind(&mut self, identifier: &Datum, scope: &Scope) -> Result<crate::core::Var, SyntaxError> {
        let name = identifier.name().ok_or_else(|| self.error(identifier.pos, "expected an identifier"))?;
        if scope.has(name) {
            return Err(self.error(identifier.pos, "this identifier is bound twice"));
        }
        let var = self.new_var();
        scope.bind(name, Meaning::Local(var));
        Ok(var)
    }

    /// The pairs of identifier and initialiser of a `let` and its like.
    pub(super) fn bindings<'d>(&self, bindings: &'d Datum) -> Result<Vec<(&'d Datum, &'d Datum)>, SyntaxError> {
        let items = bindings.items().ok_or_else(|| self.error(bindings.pos, "expected ((identifier value) ...)"))?;
        let pairs = items.iter().map(|binding| match binding.items() {
            Some([identifier, value]) => Ok((identifier, value)),
            _ => Err(self.error(binding.pos, "expected (identifier value)")),
        });
        pairs.collect()
    }

    pub(super) fn let_form(&mut self, form: &Datum, items: &[Datum], env: &Env) -> Result<Core, SyntaxError> {
        match items {
            [_, name, bindings, body @ ..] if name.name().is_some() => {
                self.named_let(name, bindings, body, form.pos, env)
            }
            [_, bindings, body @ ..] => {
                let scope = Scope::new(env);
                let mut bound = Vec::new();
                for (identifier, value) in self.bindings(bindings)? {
                    let value = self.named(identifier, value, env)?;
                    bound.push((self.bind(identifier, &scope)?, value));
                }
                let body = self.body(body, form.pos, &Some(scope))?;
                Ok(if bound.is_empty() { body } else { Core::Let(bound, Box::new(body)) })
            }
            _ => Err(self.error(form.pos, "expected (let ((identifier value) ...) body ...)")),
        }
    }

    fn named_let(
        &mut self,
        name: &Datum,
        bindings: &Datum,
        body: &[Datum],
        pos: Pos,
        env: &Env,
    ) -> Result<Core, SyntaxError> {
        let pairs = self.bindings(bindings)?;
        let values = pairs.iter().map(|(_, value)| self.expand(value, env)).collect::<Result<Vec<_>, _>>()?;
        let scope = Scope::new(env);
        let var = self.bind(name, &scope)?;
        let parameters = Datum::list(bindings.pos, pairs.iter().map(|(identifier, _)| (*identifier).clone()).collect());
        let clause = self.clause(&parameters, body, pos, &Some(scope))?;
        let symbol = self.syntaxes.symbol(name.name().expect("checked by the caller"));
        let looping = procedure(Some(symbol), vec![clause], pos);
        let call = Core::Call(Box::new(Core::Local(var)), values, pos);
        Ok(Core::Letrec(vec![(var, symbol, looping)], Box::new(call), pos))
    }

    pub(super) fn let_star(&mut self, form: &Datum, items: &[Datum], env: &Env) -> Result<Core, SyntaxError> {
        let [_, bindings, body @ ..] = items else {
            return Err(self.error(form.pos, "expected (let* ((identifier value) ...) body ...)"));
        };
        let mut env = env.clone();
        let mut bound = Vec::new();
        for (identifier, value) in self.bindings(bindings)? {
            let value = self.named(identifier, value, &env)?;
            let scope = Scope::new(&env);
            bound.push((self.bind(identifier, &scope)?, value));
            env = Some(scope);
        }
        let body = self.body(body, form.pos, &env)?;
        Ok(bound.into_iter().rev().fold(body, |body, binding| Core::Let(vec![binding], Box::new(body))))
    }

    pub(super) fn letrec(&mut self, form: &Datum, items: &[Datum], env: &Env) -> Result<Core, SyntaxError> {
        let [_, bindings, body @ ..] = items else {
            return Err(self.error(form.pos, "expected (letrec ((identifier value) ...) body ...)"));
        };
        let scope = Scope::new(env);
        let pairs = self.bindings(bindings)?;
        let vars = pairs.iter().map(|(identifier, _)| self.bind(identifier, &scope)).collect::<Result<Vec<_>, _>>()?;
        let env = Some(scope);
        let mut bound = Vec::new();
        for (var, (identifier, value)) in vars.into_iter().zip(pairs) {
            let symbol = self.syntaxes.symbol(identifier.name().expect("it was bound"));
            bound.push((var, symbol, self.named(identifier, value, &env)?));
        }
        let body = self.body(body, form.pos, &env)?;
        Ok(if bound.is_empty() { body } else { Core::Letrec(bound, Box::new(body), form.pos) })
    }

    pub(super) fn do_form(&mut self, form: &Datum, items: &[Datum], env: &Env) -> Result<Core, SyntaxError> {
        let wrong = "expected (do ((identifier value step) ...) (test result ...) body ...)";
        let [_, bindings, end, body @ ..] = items else { return Err(self.error(form.pos, wrong)) };
        let (Some(bindings), Some([test, results @ ..])) = (bindings.items(), end.items()) else {
            return Err(self.error(form.pos, wrong));
        };
        let scope = Scope::new(env);
        let (mut vars, mut values, mut steps) = (Vec::new(), Vec::new(), Vec::new());
        for binding in bindings {
            let (identifier, value, step) = match binding.items() {
                Some([identifier, value]) => (identifier, value, identifier),
                Some([identifier, value, step]) => (identifier, value, step),
                _ => return Err(self.error(binding.pos, "expected (identifier value step)")),
            };
            values.push(self.expand(value, env)?);
            vars.push(self.bind(identifier, &scope)?);
            steps.push(step);
        }
        let env = Some(scope);
        let test = self.expand(test, &env)?;
        let result = match results {
            [] => Core::Const(Datum::new(end.pos, Kind::Unspecified)),
            _ => self.sequence(results, end.pos, &env)?,
        };
        let var = self.new_var();
        let mut turn = self.expand_all(body, &env)?;
        let steps = steps.into_iter().map(|step| self.expand(step, &env)).collect::<Result<Vec<_>, _>>()?;
        turn.push(Core::Call(Box::new(Core::Local(var)), steps, form.pos));
        let body = Core::If(Box::new([test, result, Core::Seq(turn)]));
        let symbol = self.symbols.intern("do");
        let clause = Arc::new(Clause { parameters: vars, rest: None, body });
        let looping = procedure(Some(symbol), vec![clause], form.pos);
        let call = Core::Call(Box::new(Core::Local(var)), values, form.pos);
        Ok(Core::Letrec(vec![(var, symbol, looping)], Box::new(call), form.pos))
    }

    /// Expands a value that gets a name: a procedure is shown by it in backtraces.
    pub(super) fn named(&mut self, identifier: &Datum, value: &Datum, env: &Env) -> Result<Core, SyntaxError> {
        let value = self.expand(value, env)?;
        Ok(match identifier.name() {
            Some(name) => with_name(value, self.syntaxes.symbol(name)),
            None => value,
        })
    }
}

pub(super) fn procedure(name: Option<Name>, clauses: Vec<Arc<Clause>>, pos: Pos) -> Core {
    Core::Lambda(Box::new(Lambda { name, clauses, pos }))
}

pub(super) fn with_name(mut value: Core, name: Name) -> Core {
    if let Core::Lambda(lambda) = &mut value {
        lambda.name.get_or_insert(name);
    }
    value
}
