//! `letrec`: which variables need a cell.
//!
//! Bindings are evaluated in order. Procedures that follow each other are closed over one another when all of
//! them exist. A variable needs a cell only where it is used by a binding that is evaluated before its own.

use std::collections::HashSet;

use super::emit::Emitter;
use super::free;
use crate::core::{Core, Lambda, Var};
use crate::names::Name;

/// Bindings that are made in one step.
pub(super) enum Group<'c> {
    /// One value.
    Value(Var, &'c Core),
    /// Procedures that may use each other.
    Procedures(Vec<(Var, &'c Lambda)>),
}

pub(super) struct Plan<'c> {
    pub(super) groups: Vec<Group<'c>>,
    /// Variables that live in a cell, with their names for errors.
    pub(super) cells: Vec<(Var, Name)>,
}

pub(super) fn plan<'c>(emitter: &mut Emitter<'_>, bindings: &'c [(Var, Name, Core)]) -> Plan<'c> {
    let mut groups: Vec<Group<'c>> = Vec::new();
    for (var, _, value) in bindings {
        match (value, groups.last_mut()) {
            (Core::Lambda(lambda), Some(Group::Procedures(procedures))) => procedures.push((*var, lambda)),
            (Core::Lambda(lambda), _) => groups.push(Group::Procedures(vec![(*var, lambda)])),
            _ => groups.push(Group::Value(*var, value)),
        }
    }
    let mut later: HashSet<Var> = bindings.iter().map(|(var, ..)| *var).collect();
    let mut in_cells = HashSet::new();
    for group in &groups {
        let used: HashSet<Var> = match group {
            Group::Value(_, value) => free::used(emitter, value),
            Group::Procedures(procedures) => {
                for (var, _) in procedures {
                    later.remove(var);
                }
                procedures.iter().flat_map(|(_, lambda)| free::of_lambda(emitter, lambda)).collect()
            }
        };
        in_cells.extend(used.intersection(&later).copied());
        if let Group::Value(var, _) = group {
            later.remove(var);
        }
    }
    let cells = bindings.iter().filter(|(var, ..)| in_cells.contains(var)).map(|(var, name, _)| (*var, *name));
    Plan { groups, cells: cells.collect() }
}
