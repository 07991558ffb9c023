//! Free variables.

use std::collections::HashSet;
use std::sync::Arc;

use super::emit::Emitter;
use crate::core::{Clause, Core, Lambda, Var};

/// The free variables of a procedure, in the order of their first use.
pub(super) fn of_lambda(emitter: &mut Emitter<'_>, lambda: &Lambda) -> Vec<Var> {
    let mut seen = HashSet::new();
    let mut all = Vec::new();
    for clause in &lambda.clauses {
        for var in of_clause(emitter, clause).iter() {
            if seen.insert(*var) {
                all.push(*var);
            }
        }
    }
    all
}

fn of_clause(emitter: &mut Emitter<'_>, clause: &Arc<Clause>) -> Arc<[Var]> {
    let address = Arc::as_ptr(clause);
    if let Some(known) = emitter.free.get(&address) {
        return known.clone();
    }
    let mut search = Search { emitter, bound: HashSet::new(), seen: HashSet::new(), found: Vec::new() };
    search.bound.extend(clause.parameters.iter().chain(clause.rest.iter()));
    search.visit(&clause.body);
    let Search { bound, found, .. } = search;
    // A variable of this clause may be used before its binding is seen, in a `letrec`.
    let found: Arc<[Var]> = found.into_iter().filter(|var| !bound.contains(var)).collect();
    emitter.free.insert(address, found.clone());
    found
}

struct Search<'e, 'c> {
    emitter: &'e mut Emitter<'c>,
    bound: HashSet<Var>,
    seen: HashSet<Var>,
    found: Vec<Var>,
}

impl Search<'_, '_> {
    fn add(&mut self, var: Var) {
        if self.seen.insert(var) {
            self.found.push(var);
        }
    }

    fn visit(&mut self, core: &Core) {
        stacker::maybe_grow(64 << 10, 2 << 20, || match core {
            Core::Const(_) | Core::Global(..) => {}
            Core::Local(var) => self.add(*var),
            Core::If(parts) => parts.iter().for_each(|part| self.visit(part)),
            Core::Or(parts) => parts.iter().for_each(|part| self.visit(part)),
            Core::Lambda(lambda) => {
                let inner = of_lambda(self.emitter, lambda);
                inner.into_iter().for_each(|var| self.add(var));
            }
            Core::Call(procedure, arguments, _) => {
                self.visit(procedure);
                arguments.iter().for_each(|argument| self.visit(argument));
            }
            Core::Let(bindings, body) => {
                for (var, value) in bindings {
                    self.bound.insert(*var);
                    self.visit(value);
                }
                self.visit(body);
            }
            Core::Letrec(bindings, body, _) => {
                for (var, _, value) in bindings {
                    self.bound.insert(*var);
                    self.visit(value);
                }
                self.visit(body);
            }
            Core::Seq(parts) => parts.iter().for_each(|part| self.visit(part)),
            Core::Define(_, value) => self.visit(value),
        });
    }
}

/// The variables that an expression uses, also inside procedures.
pub(super) fn used(emitter: &mut Emitter<'_>, core: &Core) -> HashSet<Var> {
    let mut search = Search { emitter, bound: HashSet::new(), seen: HashSet::new(), found: Vec::new() };
    search.visit(core);
    search.seen
}
