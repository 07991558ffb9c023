//! An attempt at a phase: the choices to take it, and which of them are reserved.

use std::sync::Arc;

use crate::channel::after::After;
use crate::choice::decision::Decision;

/// A choice to take the phase.
pub(super) struct Entry {
    pub(super) id: u128,
    /// The place of its party.
    pub(super) place: usize,
    /// `None`: it is in the group at that place.
    pub(super) choice: Option<(Arc<Decision>, u32)>,
}

/// Reserves the choices of all parties that are there.
pub(super) struct Attempt {
    /// The number by which the groups here know it.
    pub(super) number: u64,
    /// In ascending order.
    pub(super) entries: Vec<Entry>,
    /// How many of them are reserved, and how many are to be.
    pub(super) held: usize,
    pub(super) limit: usize,
    pub(super) began: u32,
}

impl Attempt {
    /// How many choices there are.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Their numbers.
    pub(super) fn ids(&self) -> Vec<u128> {
        self.entries.iter().map(|entry| entry.id).collect()
    }

    /// Takes all choices, which are reserved.
    pub(super) fn confirm(self, after: &mut After) {
        for (decision, branch) in self.entries.into_iter().filter_map(|entry| entry.choice) {
            decision.confirm(branch, &mut after.wakes);
            after.decisions.push(decision);
        }
    }

    /// Has its choices dropped where no lock is held.
    pub(super) fn discard(self, after: &mut After) {
        after.decisions.extend(self.entries.into_iter().filter_map(|entry| entry.choice).map(|(decision, _)| decision));
    }

    /// Decides the reserved local choices for the branch that syncs, whatever its result.
    pub(super) fn confirm_held(mut self, after: &mut After) {
        let rest = self.entries.split_off(self.held);
        after.decisions.extend(rest.into_iter().filter_map(|entry| entry.choice).map(|(decision, _)| decision));
        self.confirm(after);
    }
}
