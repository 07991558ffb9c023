//! The top level, and bodies with definitions.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Expander;
use super::binding::{procedure, with_name};
use super::env::{Env, Meaning, Rules, Scope};
use super::library;
use super::special::Special;
use crate::core::{Core, Var};
use crate::datum::{Datum, Kind, Pos};
use crate::error::SyntaxError;
use crate::names::Name;

/// A definition: what it defines, and its value.
pub(super) struct Definition {
    identifier: Datum,
    value: Value,
}

enum Value {
    Expression(Datum),
    Procedure { parameters: Datum, body: Vec<Datum>, pos: Pos },
}

/// An item of a body, found before any expression in it is expanded.
pub(super) enum Item {
    Definition(Var, Name, Definition),
    Expression(Datum),
}

impl Expander<'_> {
    pub(super) fn top_form(&mut self, form: &Datum) -> Result<Core, SyntaxError> {
        let base = self.syntaxes.base();
        let (form, special) = self.head(form, &base)?;
        let items = form.items().unwrap_or_default();
        match special {
            Some(Special::Begin) if items.len() > 1 => {
                let forms = items[1..].iter().map(|item| self.deeper(item.pos, |this| this.top_form(item)));
                Ok(Core::Seq(forms.collect::<Result<_, _>>()?))
            }
            Some(Special::Begin) => Ok(unspecified(form.pos)),
            Some(Special::Import) => self.import(&form, items),
            Some(Special::DefineLibrary) => {
                self.define_library(&form, items)?;
                Ok(unspecified(form.pos))
            }
            Some(Special::Define) => {
                let definition = self.definition(&form, items)?;
                let name = self.syntaxes.symbol(definition.identifier.name().expect("checked by `definition`"));
                if self.syntaxes.label_of(name).is_some() || library::is_hashed(self.symbols.text(name)) {
                    return Err(self.error(definition.identifier.pos, "this name is that of a library's global"));
                }
                let global = self.syntaxes.define(name, self.symbols);
                let value = with_name(self.value(definition, &base)?, name);
                Ok(Core::Define(global, Box::new(value)))
            }
            Some(Special::DefineSyntax) => {
                let (name, meaning) = self.define_syntax(&form, items, &base)?;
                let name = self.syntaxes.symbol(name);
                self.syntaxes.bind(name, meaning);
                Ok(unspecified(form.pos))
            }
            Some(Special::DefineMacro) => self.define_macro(&form, items),
            Some(special) if special.is_spliced() => {
                let spliced = self.spliced(special, &form, items)?;
                let forms = spliced
                    .iter()
                    .map(|item| self.deeper(item.pos, |this| this.top_form(item)))
                    .collect::<Result<Vec<_>, _>>()?;
                Ok(if forms.is_empty() { unspecified(form.pos) } else { Core::Seq(forms) })
            }
            _ => self.expand(&form, &base),
        }
    }

    /// Expands a body: definitions, then expressions.
    pub(super) fn body(&mut self, forms: &[Datum], pos: Pos, env: &Env) -> Result<Core, SyntaxError> {
        let scope = Scope::new(env);
        let items = self.items(forms, &scope, |this, _| {
            let var = this.new_var();
            (var, Meaning::Local(var))
        })?;
        self.finish_body(items, pos, &Some(scope))
    }

    /// The items of a body. What they define is bound in `scope`, to what `bind` makes for it.
    pub(super) fn items(
        &mut self,
        forms: &[Datum],
        scope: &Arc<Scope>,
        mut bind: impl FnMut(&mut Self, Name) -> (Var, Meaning),
    ) -> Result<Vec<Item>, SyntaxError> {
        let env = Some(scope.clone());
        let mut queue: VecDeque<Datum> = forms.iter().cloned().collect();
        let mut items = Vec::with_capacity(forms.len());
        while let Some(form) = queue.pop_front() {
            let (form, special) = self.head(&form, &env)?;
            let parts = form.items().unwrap_or_default();
            match special {
                Some(Special::Begin) => {
                    for part in parts[1..].iter().rev() {
                        queue.push_front(part.clone());
                    }
                }
                Some(Special::Define) => {
                    let definition = self.definition(&form, parts)?;
                    let name = definition.identifier.name().expect("checked by `definition`");
                    self.check_unbound(name, definition.identifier.pos, scope)?;
                    let symbol = self.syntaxes.symbol(name);
                    let (var, meaning) = bind(self, symbol);
                    scope.bind(name, meaning);
                    items.push(Item::Definition(var, symbol, definition));
                }
                Some(Special::DefineSyntax) => {
                    let (name, meaning) = self.define_syntax(&form, parts, &env)?;
                    if scope.is_library() {
                        self.check_unbound(name, form.pos, scope)?;
                    }
                    scope.bind(name, meaning);
                }
                Some(special) if special.is_spliced() => {
                    for part in self.spliced(special, &form, parts)?.into_iter().rev() {
                        queue.push_front(part);
                    }
                }
                _ => items.push(Item::Expression(form)),
            }
        }
        Ok(items)
    }

    fn check_unbound(&self, name: Name, pos: Pos, scope: &Scope) -> Result<(), SyntaxError> {
        let message = match (scope.has(name), scope.is_library()) {
            (false, _) => return Ok(()),
            (true, false) => "this identifier is defined twice",
            (true, true) => "this identifier is imported or defined already, and bindings of libraries never change",
        };
        Err(self.error(pos, message))
    }

    /// Expands the items of a library, in order.
    pub(super) fn library_items(
        &mut self,
        items: Vec<Item>,
        env: &Env,
        global: impl Fn(Var) -> Name,
    ) -> Result<Vec<Core>, SyntaxError> {
        let item = |item| match item {
            Item::Definition(var, name, definition) => {
                let value = with_name(self.value(definition, env)?, name);
                Ok(Core::Define(global(var), Box::new(value)))
            }
            Item::Expression(form) => self.expand(&form, env),
        };
        items.into_iter().map(item).collect()
    }

    fn finish_body(&mut self, items: Vec<Item>, pos: Pos, env: &Env) -> Result<Core, SyntaxError> {
        let last = items.iter().rposition(|item| matches!(item, Item::Definition(..)));
        let (mut bound, mut expressions) = (Vec::new(), Vec::new());
        for (at, item) in items.into_iter().enumerate() {
            match item {
                Item::Definition(var, name, definition) => {
                    let value = with_name(self.value(definition, env)?, name);
                    bound.push((var, name, value));
                }
                // An expression before a definition runs in its place.
                Item::Expression(form) if last.is_some_and(|last| at < last) => {
                    let (var, name) = (self.new_var(), self.symbols.intern("_"));
                    bound.push((var, name, self.expand(&form, env)?));
                }
                Item::Expression(form) => expressions.push(self.expand(&form, env)?),
            }
        }
        let body = match expressions.len() {
            0 if bound.is_empty() => return Err(self.error(pos, "expected an expression in the body")),
            0 => unspecified(pos),
            1 => expressions.remove(0),
            _ => Core::Seq(expressions),
        };
        Ok(if bound.is_empty() { body } else { Core::Letrec(bound, Box::new(body), pos) })
    }

    /// Expands macros at the head of a form until none is left, and tells which special form it is.
    fn head(&mut self, form: &Datum, env: &Env) -> Result<(Datum, Option<Special>), SyntaxError> {
        let mut form = form.clone();
        loop {
            self.step(form.pos)?;
            let Kind::List(items, _) = &form.kind else { return Ok((form, None)) };
            let Some(name) = items.first().and_then(Datum::name) else { return Ok((form, None)) };
            match self.meaning(name, env) {
                Meaning::Special(special) => {
                    if form.items().is_none() {
                        return Err(self.error(form.pos, "a form is a proper list"));
                    }
                    return Ok((form, Some(special)));
                }
                Meaning::Macro(rules) => form = rules.expand(self, &form, env)?,
                _ => return Ok((form, None)),
            }
        }
    }

    fn definition(&self, form: &Datum, items: &[Datum]) -> Result<Definition, SyntaxError> {
        let [_, target, rest @ ..] = items else { return Err(self.error(form.pos, "expected (define name value)")) };
        let definition = match (&target.kind, rest) {
            (Kind::Symbol(_), [value]) => {
                Definition { identifier: target.clone(), value: Value::Expression(value.clone()) }
            }
            (Kind::Symbol(_), []) => {
                let value = Datum::new(form.pos, Kind::Unspecified);
                Definition { identifier: target.clone(), value: Value::Expression(value) }
            }
            (Kind::List(header, tail), body) if !header.is_empty() => {
                let parameters = Kind::List(header[1..].into(), tail.clone());
                let parameters = match (&header[1..], tail) {
                    ([], Some(rest)) => (**rest).clone(),
                    _ => Datum::new(target.pos, parameters),
                };
                let value = Value::Procedure { parameters, body: body.to_vec(), pos: form.pos };
                Definition { identifier: header[0].clone(), value }
            }
            _ => return Err(self.error(form.pos, "expected (define name value) or (define (name ...) body ...)")),
        };
        if definition.identifier.name().is_none() {
            return Err(self.error(definition.identifier.pos, "expected an identifier"));
        }
        Ok(definition)
    }

    fn value(&mut self, definition: Definition, env: &Env) -> Result<Core, SyntaxError> {
        match definition.value {
            Value::Expression(form) => self.deeper(form.pos, |this| this.expand(&form, env)),
            Value::Procedure { parameters, body, pos } => {
                let clause = self.deeper(pos, |this| this.clause(&parameters, &body, pos, env))?;
                Ok(procedure(None, vec![clause], pos))
            }
        }
    }

    /// `(define-macro (name . parameters) body ...)` or `(define-macro name procedure)`: defines the
    /// procedure that makes expansions as a global that no program can name.
    fn define_macro(&mut self, form: &Datum, items: &[Datum]) -> Result<Core, SyntaxError> {
        let wrong = "expected (define-macro (name . parameters) body ...) or (define-macro name procedure)";
        let (name, procedure) = match items {
            [_, name, procedure] if name.name().is_some() => (name.name(), procedure.clone()),
            [_, head, body @ ..] if !body.is_empty() => {
                let Kind::List(parts, tail) = &head.kind else { return Err(self.error(form.pos, wrong)) };
                let [name, parameters @ ..] = &**parts else { return Err(self.error(form.pos, wrong)) };
                let parameters = match tail {
                    Some(tail) => Datum::improper(head.pos, parameters.to_vec(), (**tail).clone()),
                    None => Datum::list(head.pos, parameters.to_vec()),
                };
                let mut lambda = vec![self.top_identifier("lambda", form.pos), parameters];
                lambda.extend_from_slice(body);
                (name.name(), Datum::list(form.pos, lambda))
            }
            _ => return Err(self.error(form.pos, wrong)),
        };
        let name = self.syntaxes.symbol(name.ok_or_else(|| self.error(form.pos, wrong))?);
        let global = format!("macro {}", self.symbols.text(name));
        let global = self.symbols.intern(&global);
        let procedure = with_name(self.expand(&procedure, &None)?, name);
        let rules = Rules::of_procedure(self, global);
        self.syntaxes.bind(name, Meaning::Macro(Arc::new(rules)));
        Ok(Core::Define(global, Box::new(procedure)))
    }

    fn define_syntax(&mut self, form: &Datum, items: &[Datum], env: &Env) -> Result<(Name, Meaning), SyntaxError> {
        match items {
            [_, name, spec] if name.name().is_some() => {
                let meaning = self.transformer(spec, env)?;
                Ok((name.name().expect("checked above"), meaning))
            }
            _ => Err(self.error(form.pos, "expected (define-syntax name (syntax-rules ...))")),
        }
    }

    /// The forms that one that [is spliced](Special::is_spliced) stands for.
    fn spliced(&mut self, special: Special, form: &Datum, items: &[Datum]) -> Result<Vec<Datum>, SyntaxError> {
        match special {
            Special::DefineValues => self.define_values(form, items),
            Special::DefineRecordType => self.define_record_type(form, items),
            Special::Include | Special::IncludeCi => self.include(special, form, items),
            _ => self.cond_expand(form, items),
        }
    }

    fn define_values(&mut self, form: &Datum, items: &[Datum]) -> Result<Vec<Datum>, SyntaxError> {
        let [_, formals, value] = items else {
            return Err(self.error(form.pos, "expected (define-values (identifier ...) value)"));
        };
        let pos = form.pos;
        let (names, rest) = match &formals.kind {
            Kind::Symbol(_) => (&[][..], Some(formals)),
            Kind::List(items, tail) => (&**items, tail.as_deref()),
            _ => return Err(self.error(formals.pos, "expected identifiers")),
        };
        let mut call = |name: &str, arguments: Vec<Datum>| {
            let mut items = vec![self.top_identifier(name, pos)];
            items.extend(arguments);
            Datum::list(pos, items)
        };
        // The results in order, in a list that nothing else can name.
        let thunk = call("lambda", vec![Datum::list(pos, vec![]), value.clone()]);
        let count = Datum::new(pos, Kind::Number(crate::num::Number::Fix(names.len() as i64)));
        let exact = Datum::new(pos, Kind::Bool(rest.is_none()));
        let results = call("%values->list", vec![thunk, count, exact]);
        let define = call("define", vec![]);
        let define = define.items().expect("it is a list")[0].clone();
        let mut parts = Vec::new();
        for (at, name) in names.iter().enumerate() {
            let at = Datum::new(pos, Kind::Number(crate::num::Number::Fix(at as i64)));
            parts.push((name, "list-ref", at));
        }
        if let Some(rest) = rest {
            let at = Datum::new(pos, Kind::Number(crate::num::Number::Fix(names.len() as i64)));
            parts.push((rest, "list-tail", at));
        }
        self.syntaxes.vars += 1;
        let list = format!("results {}", self.syntaxes.vars);
        let list = Datum::symbol(pos, self.symbols.intern(&list));
        let mut forms = vec![Datum::list(pos, vec![define.clone(), list.clone(), results])];
        for (name, accessor, at) in parts {
            let value = vec![self.top_identifier(accessor, pos), list.clone(), at];
            forms.push(Datum::list(pos, vec![define.clone(), name.clone(), Datum::list(pos, value)]));
        }
        Ok(forms)
    }

    fn define_record_type(&mut self, form: &Datum, items: &[Datum]) -> Result<Vec<Datum>, SyntaxError> {
        let wrong = "expected (define-record-type name (constructor field ...) predicate (field accessor) ...)";
        let [_, name, constructor, predicate, fields @ ..] = items else { return Err(self.error(form.pos, wrong)) };
        let pos = form.pos;
        let type_name = match name.items() {
            Some([first, ..]) => first.clone(),
            _ => name.clone(),
        };
        let mut field_names = Vec::new();
        let mut forms = Vec::new();
        let define = self.top_identifier("define", pos);
        let quote = self.top_identifier("quote", pos);
        for (at, field) in fields.iter().enumerate() {
            let (field_name, parts) = match field.items() {
                Some([field_name, parts @ ..]) if parts.len() <= 1 => (field_name, parts),
                Some([_, _, modifier]) => {
                    let instead = "fields never change: use record-update, which gives a new record";
                    return Err(self.error(modifier.pos, instead));
                }
                _ if field.name().is_some() => (field, &[][..]),
                _ => return Err(self.error(field.pos, "expected (field accessor)")),
            };
            if let [accessor] = parts {
                let index = Datum::new(pos, Kind::Number(crate::num::Number::Fix(at as i64 + 1)));
                let value = vec![self.top_identifier("%record-accessor", pos), type_name.clone(), index];
                forms.push(Datum::list(pos, vec![define.clone(), accessor.clone(), Datum::list(pos, value)]));
            }
            field_names.push(field_name.clone());
        }
        let names = Datum::new(pos, Kind::Vector(field_names.clone().into()));
        let quoted = |datum: Datum| Datum::list(pos, vec![quote.clone(), datum]);
        let make = vec![self.top_identifier("%make-record-type", pos), quoted(type_name.clone()), quoted(names)];
        let mut all = vec![Datum::list(pos, vec![define.clone(), type_name.clone(), Datum::list(pos, make)])];
        let (maker, arguments) = match &constructor.kind {
            Kind::List(parts, None) if !parts.is_empty() => (Some(parts[0].clone()), parts[1..].to_vec()),
            Kind::Symbol(_) => (Some(constructor.clone()), field_names.clone()),
            Kind::Bool(false) => (None, vec![]),
            _ => return Err(self.error(constructor.pos, wrong)),
        };
        if let Some(maker) = maker {
            let unset = Datum::new(pos, Kind::Bool(false));
            let mut record = vec![self.top_identifier("%record", pos), type_name.clone()];
            for argument in &arguments {
                if !field_names.iter().any(|field| field.name() == argument.name()) {
                    return Err(self.error(argument.pos, "the record has no such field"));
                }
            }
            record.extend(field_names.iter().map(|field| {
                let given = arguments.iter().find(|argument| argument.name() == field.name());
                given.unwrap_or(&unset).clone()
            }));
            let mut header = vec![maker];
            header.extend(arguments);
            all.push(Datum::list(pos, vec![define.clone(), Datum::list(pos, header), Datum::list(pos, record)]));
        }
        if predicate.name().is_some() {
            let value = vec![self.top_identifier("%record-predicate", pos), type_name];
            all.push(Datum::list(pos, vec![define, predicate.clone(), Datum::list(pos, value)]));
        }
        all.extend(forms);
        Ok(all)
    }

    pub(super) fn cond_expand(&mut self, form: &Datum, items: &[Datum]) -> Result<Vec<Datum>, SyntaxError> {
        for clause in &items[1..] {
            match clause.items() {
                Some([requirement, forms @ ..]) => {
                    if self.has_feature(requirement)? {
                        return Ok(forms.to_vec());
                    }
                }
                _ => return Err(self.error(clause.pos, "expected (requirement form ...)")),
            }
        }
        Err(self.error(form.pos, "no requirement of cond-expand is met"))
    }

    fn has_feature(&mut self, requirement: &Datum) -> Result<bool, SyntaxError> {
        let text =
            |this: &Self, datum: &Datum| datum.name().map(|name| this.symbols.text(this.syntaxes.symbol(name)).clone());
        if let Some(name) = text(self, requirement) {
            return Ok(&*name == "else" || FEATURES.contains(&&*name));
        }
        let parts: Arc<[Datum]> = match &requirement.kind {
            Kind::List(parts, None) if !parts.is_empty() => parts.clone(),
            _ => return Err(self.error(requirement.pos, "expected a feature")),
        };
        let operator = text(self, &parts[0]);
        match (operator.as_deref(), &parts[1..]) {
            (Some("not"), [inner]) => Ok(!self.deeper(inner.pos, |this| this.has_feature(inner))?),
            (Some("library"), [library]) => Ok(self.has_library(library)),
            (Some(operator @ ("and" | "or")), inner) => {
                let all = operator == "and";
                for part in inner {
                    if self.deeper(part.pos, |this| this.has_feature(part))? != all {
                        return Ok(!all);
                    }
                }
                Ok(all)
            }
            _ => Err(self.error(requirement.pos, "expected and, or, not, or library")),
        }
    }
}

/// What `(features)` lists.
pub(crate) const FEATURES: &[&str] = &["r7rs", "exact-closed", "ratios", "full-unicode", "dunlin"];

fn unspecified(pos: Pos) -> Core {
    Core::Const(Datum::new(pos, Kind::Unspecified))
}
