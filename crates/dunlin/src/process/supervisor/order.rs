//! Which children stop and start, and in which order. Pure.
//!
//! Children are numbered in the order in which the supervisor got them: first those of its specification,
//! then those that were added while it ran. The latter have no order among themselves.

use std::ops::RangeInclusive;

use dunlin_sorted::SortedSet;

/// Which children a death concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Only the child that died starts again.
    OneForOne,
    /// All children stop, and start again.
    OneForAll,
    /// The child that died, and all that were started after it, stop and start again.
    RestForOne,
}

/// The number of a child.
pub(super) type Number = u64;

impl Strategy {
    /// The children that stop and start again after the death of `died`, with that child. `fixed` is the
    /// number of children of the specification.
    pub(super) fn concerns(self, died: Number, fixed: Number) -> RangeInclusive<Number> {
        match self {
            Self::OneForAll => 0..=Number::MAX,
            Self::RestForOne if died < fixed => died..=Number::MAX,
            Self::OneForOne | Self::RestForOne => died..=died,
        }
    }
}

/// What is still to do: the children to stop, and the children to start once those have ended. A death
/// during a restart adds to it.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// To stop, and not asked to yet.
    stop: SortedSet<Number>,
    /// Asked to stop, and not ended yet.
    stopping: SortedSet<Number>,
    /// Children of the specification that start in turn, until they have started.
    in_turn: SortedSet<Number>,
    /// Those of `in_turn` that are to be started. The others are starting, or wait before they start again.
    due: SortedSet<Number>,
    /// To start without regard to others.
    start: SortedSet<Number>,
}

impl Plan {
    pub(super) fn stop(&mut self, child: Number) {
        if !self.stopping.contains(&child) {
            self.stop.insert(child);
        }
    }

    /// The child starts after all before it that start in turn.
    pub(super) fn take_turn(&mut self, child: Number) {
        self.in_turn.insert(child);
        if self.start.remove(&child) {
            self.due.insert(child);
        }
    }

    /// The child can be started, when it is its turn.
    pub(super) fn start(&mut self, child: Number) {
        let set = if self.in_turn.contains(&child) { &mut self.due } else { &mut self.start };
        set.insert(child);
    }

    /// The child has ended, or the plan no longer waits for its end.
    pub(super) fn stopped(&mut self, child: Number) {
        self.stop.remove(&child);
        self.stopping.remove(&child);
    }

    /// The child has started, or will not: its successor in turn can be started.
    pub(super) fn settle(&mut self, child: Number) {
        self.in_turn.remove(&child);
        self.due.remove(&child);
        self.start.remove(&child);
    }

    /// The supervisor ends: no child starts again.
    pub(super) fn start_none(&mut self) {
        self.in_turn.clear();
        self.due.clear();
        self.start.clear();
    }

    pub(super) fn is_stopping(&self) -> bool {
        !self.stop.is_empty() || !self.stopping.is_empty()
    }

    /// Whether children of the specification have still to start.
    pub(super) fn is_in_turn(&self) -> bool {
        !self.in_turn.is_empty()
    }

    /// Takes the children to stop now: all that were added while the supervisor ran, at once; when they have
    /// ended, the others in turn, the last first.
    pub(super) fn take_to_stop(&mut self, fixed: Number) -> Vec<Number> {
        let mut now: Vec<_> = self.stop.split_off(&fixed).into_iter().collect();
        if now.is_empty() && self.stopping.is_empty() {
            now.extend(self.stop.pop_last());
        }
        self.stopping.extend(now.iter().copied());
        now
    }

    /// Takes the children to start now: none before all that stop have ended, and those that were added after
    /// those that start in turn.
    pub(super) fn take_to_start(&mut self, fixed: Number) -> Vec<Number> {
        if self.is_stopping() {
            return Vec::new();
        }
        let added = if self.in_turn.is_empty() { SortedSet::new() } else { self.start.split_off(&fixed) };
        let mut now: Vec<_> = std::mem::replace(&mut self.start, added).into_iter().collect();
        if let Some(first) = self.in_turn.first()
            && self.due.remove(first)
        {
            now.push(*first);
        }
        now
    }
}

#[cfg(test)]
mod tests {
    use super::Strategy::{OneForAll, OneForOne, RestForOne};
    use super::*;

    /// The order in which children stop, in groups that stop at once, and then start.
    fn carry_out(plan: &mut Plan, fixed: Number) -> (Vec<Vec<Number>>, Vec<Vec<Number>>) {
        let (mut stops, mut starts) = (Vec::new(), Vec::new());
        while plan.is_stopping() {
            assert!(plan.take_to_start(fixed).is_empty(), "a child starts before another has stopped");
            let group = plan.take_to_stop(fixed);
            assert!(plan.take_to_stop(fixed).is_empty(), "a child stops before the last one has ended");
            group.iter().for_each(|child| plan.stopped(*child));
            stops.push(group);
        }
        loop {
            let group = plan.take_to_start(fixed);
            if group.is_empty() {
                return (stops, starts);
            }
            group.iter().for_each(|child| plan.settle(*child));
            starts.push(group);
        }
    }

    /// The same for a death among running children.
    fn after(strategy: Strategy, died: Number) -> (Vec<Vec<Number>>, Vec<Vec<Number>>) {
        let mut plan = Plan::default();
        for child in (0..CHILDREN).filter(|child| strategy.concerns(died, FIXED).contains(child)) {
            if child != died {
                plan.stop(child);
            }
            if strategy != OneForOne && child < FIXED {
                plan.take_turn(child);
            }
            plan.start(child);
        }
        carry_out(&mut plan, FIXED)
    }

    /// Children 0 to 3 are of the specification, 4 and 5 were added.
    const FIXED: Number = 4;
    const CHILDREN: Number = 6;

    #[test]
    fn strategy_decides_which_children_stop_and_start() {
        type Groups = &'static [&'static [Number]];
        const ALL: Groups = &[&[0], &[1], &[2], &[3], &[4, 5]];
        let table: [(Strategy, Number, Groups, Groups); 9] = [
            (OneForOne, 0, &[], &[&[0]]),
            (OneForOne, 3, &[], &[&[3]]),
            (OneForOne, 5, &[], &[&[5]]),
            (OneForAll, 0, &[&[4, 5], &[3], &[2], &[1]], ALL),
            (OneForAll, 2, &[&[4, 5], &[3], &[1], &[0]], ALL),
            (OneForAll, 5, &[&[4], &[3], &[2], &[1], &[0]], ALL),
            (RestForOne, 0, &[&[4, 5], &[3], &[2], &[1]], ALL),
            (RestForOne, 2, &[&[4, 5], &[3]], &[&[2], &[3], &[4, 5]]),
            // Added children have no order, so none was started after another.
            (RestForOne, 4, &[], &[&[4]]),
        ];
        for (strategy, died, stops, starts) in table {
            let (stopped, started) = after(strategy, died);
            assert_eq!(stopped, stops, "{strategy:?} {died}");
            assert_eq!(started, starts, "{strategy:?} {died}");
        }
    }

    #[test]
    fn a_death_during_a_restart_adds_to_the_plan() {
        let mut plan = Plan::default();
        for child in [2, 3] {
            plan.stop(child);
            plan.take_turn(child);
            plan.start(child);
        }
        plan.take_turn(1);
        plan.start(1);
        assert_eq!(plan.take_to_stop(FIXED), [3]);
        // Child 0 dies while child 3 stops, and child 3 is to stop again.
        plan.start(0);
        plan.stop(3);
        assert!(plan.take_to_stop(FIXED).is_empty());
        plan.stopped(3);
        assert_eq!(carry_out(&mut plan, FIXED), (vec![vec![2]], vec![vec![0, 1], vec![2], vec![3]]));
    }

    #[test]
    fn a_child_in_turn_waits_for_those_before_it_to_start() {
        let mut plan = Plan::default();
        for child in [0, 1] {
            plan.take_turn(child);
            plan.start(child);
        }
        plan.start(4);
        assert_eq!(plan.take_to_start(FIXED), [0]);
        // It fails to start, and waits before it starts again.
        assert!(plan.take_to_start(FIXED).is_empty());
        plan.start(0);
        assert_eq!(plan.take_to_start(FIXED), [0]);
        plan.settle(0);
        assert_eq!(plan.take_to_start(FIXED), [1]);
        plan.settle(1);
        assert_eq!(plan.take_to_start(FIXED), [4]);
        assert!(!plan.is_in_turn());
    }
}
