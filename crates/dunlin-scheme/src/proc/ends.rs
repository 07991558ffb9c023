//! Which process holds which ends of channels.

use std::collections::{BTreeSet, HashMap};

use crate::data::{End, Value, ends_of};

/// The ends that the processes of a program know.
#[derive(Default)]
pub(crate) struct Ends {
    held: HashMap<u64, Held>,
    /// The ends that a process holds, those that are not shared.
    of: HashMap<u64, BTreeSet<u64>>,
    /// Ends that no process has any more: dropping one may wake others.
    released: Vec<End>,
}

struct Held {
    end: End,
    /// `None` if all processes have it, or none yet.
    owner: Option<u64>,
    /// Until it is used, it belongs to the first process that does so.
    is_used: bool,
}

/// Ends that a program knows at once.
pub(crate) const ENDS_MAX: usize = 1 << 20;

impl Ends {
    /// Whether a program may make no more ends.
    pub(crate) fn is_full(&self) -> bool {
        self.held.len() + 2 > ENDS_MAX
    }

    /// Whether the process holds any end.
    pub(crate) fn holds_any(&self, process: u64) -> bool {
        self.of.contains_key(&process)
    }

    /// The end with this number, if the process may use it.
    pub(crate) fn find(&self, number: u64, process: u64) -> Option<&End> {
        let held = self.held.get(&number)?;
        let is_free = held.end.is_shared() || !held.is_used;
        if is_free || held.owner == Some(process) { Some(&held.end) } else { None }
    }

    /// Gives an end to a process, or, until one uses it, to none.
    pub(crate) fn add(&mut self, end: End, owner: Option<u64>) {
        self.insert(end, owner, owner.is_some());
    }

    /// Gives a new end to the process that made it, until one uses it.
    pub(crate) fn add_new(&mut self, end: End, owner: u64) {
        self.insert(end, Some(owner), false);
    }

    fn insert(&mut self, end: End, owner: Option<u64>, is_used: bool) {
        let number = end.number();
        let owner = if end.is_shared() { None } else { owner };
        if let Some(owner) = owner {
            self.of.entry(owner).or_default().insert(number);
        }
        if let Some(before) = self.held.insert(number, Held { end, owner, is_used }) {
            self.disown(number, before.owner.filter(|before| Some(*before) != owner));
            self.released.push(before.end);
        }
    }

    /// The process uses an end: one that none used before is its own from now on.
    pub(crate) fn use_end(&mut self, number: u64, process: u64) -> Option<End> {
        let end = self.find(number, process)?.clone();
        if self.held.get(&number).is_some_and(|held| !held.is_used) {
            self.add(end.clone(), Some(process));
        }
        Some(end)
    }

    /// Gives an end that `from` may use to another process.
    pub(crate) fn pass(&mut self, number: u64, from: u64, to: u64) {
        if let Some(end) = self.find(number, from).cloned() {
            self.add(end, Some(to));
        }
    }

    /// Takes an end from the process that holds it. One that another process has by now stays.
    pub(crate) fn remove(&mut self, number: u64, process: u64) {
        if self.find(number, process).is_some()
            && let Some(held) = self.held.remove(&number)
        {
            self.disown(number, held.owner);
            self.released.push(held.end);
        }
    }

    /// The process has ended, and with it the ends that it holds.
    pub(crate) fn release(&mut self, process: u64) {
        let own = self.of.remove(&process).unwrap_or_default();
        let ends = own.iter().filter_map(|number| self.held.remove(number));
        self.released.extend(ends.map(|held| held.end));
    }

    /// An end that no process holds.
    pub(crate) fn release_end(&mut self, end: End) {
        self.released.push(end);
    }

    /// The ends in a value that comes to no process.
    pub(crate) fn release_value(&mut self, value: &Value) {
        self.released.extend(ends_of(value));
    }

    fn disown(&mut self, number: u64, owner: Option<u64>) {
        let Some(owner) = owner else { return };
        if let Some(own) = self.of.get_mut(&owner) {
            own.remove(&number);
            if own.is_empty() {
                self.of.remove(&owner);
            }
        }
    }

    /// The ends that no process has any more, since this was called last.
    pub(crate) fn take_released(&mut self) -> Vec<End> {
        std::mem::take(&mut self.released)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::data::EndKind;

    fn end(is_shared: bool) -> End {
        End::new(EndKind::Sender, is_shared, Arc::new(()))
    }

    #[test]
    fn end_belongs_to_one_process_unless_it_is_shared() {
        let mut ends = Ends::default();
        let (own, shared) = (end(false), end(true));
        ends.add(own.clone(), Some(1));
        ends.add(shared.clone(), Some(1));
        assert!(ends.find(own.number(), 1).is_some() && ends.find(own.number(), 2).is_none());
        assert!(ends.find(shared.number(), 1).is_some() && ends.find(shared.number(), 2).is_some());
        // Only its holder can pass it on.
        ends.pass(own.number(), 2, 3);
        assert!(ends.find(own.number(), 1).is_some());
        ends.pass(own.number(), 1, 3);
        assert!(ends.find(own.number(), 1).is_none() && ends.find(own.number(), 3).is_some());
        assert!(!ends.holds_any(1) && ends.holds_any(3));
        ends.take_released();
        ends.release(1);
        assert!(ends.take_released().is_empty());
        ends.release(3);
        assert_eq!(ends.take_released(), std::slice::from_ref(&own));
        assert!(ends.find(own.number(), 3).is_none() && ends.find(shared.number(), 3).is_some());
    }

    #[test]
    fn end_that_none_holds_belongs_to_the_first_that_uses_it() {
        let mut ends = Ends::default();
        let own = end(false);
        ends.add(own.clone(), None);
        assert!(ends.use_end(own.number(), 2).is_some());
        assert!(ends.use_end(own.number(), 1).is_none() && ends.use_end(own.number(), 2).is_some());
        // What moved on meanwhile is not removed.
        ends.remove(own.number(), 1);
        assert!(ends.find(own.number(), 2).is_some());
        ends.remove(own.number(), 2);
        assert!(ends.find(own.number(), 2).is_none() && !ends.holds_any(2));
    }

    #[test]
    fn new_end_is_released_with_its_maker_unless_another_process_used_it() {
        let mut ends = Ends::default();
        let (kept, used) = (end(false), end(false));
        ends.add_new(kept.clone(), 1);
        ends.add_new(used.clone(), 1);
        assert!(ends.use_end(used.number(), 2).is_some() && ends.use_end(used.number(), 1).is_none());
        ends.take_released();
        ends.release(1);
        assert_eq!(ends.take_released(), [kept]);
        assert!(ends.find(used.number(), 2).is_some());
    }
}
