//! Procedures that are loops.
//!
//! A `letrec` procedure that is only called, with the right number of arguments, and only where the value of
//! the call is the value of the whole `letrec`, needs no closure and no frame: its calls are jumps.

use std::cell::RefCell;
use std::collections::HashMap;

use crate::core::{Clause, Core, Var};

/// What was found of each variable: loops nest, and each is looked at once.
pub(super) type Known = RefCell<HashMap<Var, bool>>;

/// The clause of a loop, if `bindings` bind one and it is used as one only.
pub(super) fn as_loop<'c>(known: &Known, var: Var, value: &'c Core, body: &Core) -> Option<&'c Clause> {
    let Core::Lambda(lambda) = value else { return None };
    let [clause] = &*lambda.clauses else { return None };
    if clause.rest.is_some() {
        return None;
    }
    let found = known.borrow().get(&var).copied();
    let is_loop = found.unwrap_or_else(|| {
        let check = Check { known, var, arguments: clause.parameters.len() };
        let is_loop = check.tail(&clause.body) && check.tail(body);
        known.borrow_mut().insert(var, is_loop);
        is_loop
    });
    if is_loop { Some(clause) } else { None }
}

struct Check<'k> {
    known: &'k Known,
    var: Var,
    arguments: usize,
}

impl Check<'_> {
    /// Whether every use in `core` is a call in tail position.
    fn tail(&self, core: &Core) -> bool {
        stacker::maybe_grow(64 << 10, 2 << 20, || match core {
            Core::If(parts) => self.none(&parts[0]) && self.tail(&parts[1]) && self.tail(&parts[2]),
            Core::Or(parts) => self.none(&parts[0]) && self.tail(&parts[1]),
            Core::Call(procedure, arguments, _) => match **procedure {
                Core::Local(var) if var == self.var => {
                    arguments.len() == self.arguments && arguments.iter().all(|argument| self.none(argument))
                }
                _ => self.none(core),
            },
            Core::Let(bindings, body) => bindings.iter().all(|(_, value)| self.none(value)) && self.tail(body),
            Core::Letrec(bindings, body, _) => match &**bindings {
                [(var, _, value)] if as_loop(self.known, *var, value, body).is_some() => {
                    let Core::Lambda(lambda) = value else { return false };
                    self.tail(&lambda.clauses[0].body) && self.tail(body)
                }
                _ => bindings.iter().all(|(_, _, value)| self.none(value)) && self.tail(body),
            },
            Core::Seq(parts) => {
                let (last, others) = parts.split_last().expect("a sequence is not empty");
                others.iter().all(|part| self.none(part)) && self.tail(last)
            }
            _ => self.none(core),
        })
    }

    /// Whether `core` does not use the procedure.
    fn none(&self, core: &Core) -> bool {
        stacker::maybe_grow(64 << 10, 2 << 20, || match core {
            Core::Const(_) | Core::Global(..) => true,
            Core::Local(var) => *var != self.var,
            Core::If(parts) => parts.iter().all(|part| self.none(part)),
            Core::Or(parts) => parts.iter().all(|part| self.none(part)),
            Core::Lambda(lambda) => lambda.clauses.iter().all(|clause| self.none(&clause.body)),
            Core::Call(procedure, arguments, _) => {
                self.none(procedure) && arguments.iter().all(|argument| self.none(argument))
            }
            Core::Let(bindings, body) => bindings.iter().all(|(_, value)| self.none(value)) && self.none(body),
            Core::Letrec(bindings, body, _) => bindings.iter().all(|(_, _, value)| self.none(value)) && self.none(body),
            Core::Seq(parts) => parts.iter().all(|part| self.none(part)),
            Core::Define(_, value) => self.none(value),
        })
    }
}
