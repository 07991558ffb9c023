//! Bodies of libraries: each runs once, in one process at a time.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::heap::Word;

/// Which bodies have run, and which run. A body is known by the word of its procedure.
#[derive(Default)]
pub(crate) struct Bodies {
    ended: HashSet<Word>,
    /// The processes that run them.
    running: HashMap<Word, u64>,
    /// Processes that wait for a body that another one runs.
    waiting: BTreeMap<u64, Word>,
}

/// What a process that needs a body does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Claim {
    /// The body has run.
    Ended,
    /// The process runs it.
    Run,
    /// Another process runs it: this one waits, and asks anew when it is woken.
    Wait,
    /// The body waits for itself: the process runs it, or processes wait for each other.
    Cycle,
}

impl Bodies {
    /// A process needs a body.
    pub(crate) fn claim(&mut self, body: Word, pid: u64) -> Claim {
        self.waiting.remove(&pid);
        if self.ended.contains(&body) {
            return Claim::Ended;
        }
        let Some(&runner) = self.running.get(&body) else {
            self.running.insert(body, pid);
            return Claim::Run;
        };
        if self.waits_for(runner, pid) {
            return Claim::Cycle;
        }
        self.waiting.insert(pid, body);
        Claim::Wait
    }

    /// Whether `pid` is `other`, or waits for it. A process waits for one other, and none of them for itself.
    fn waits_for(&self, mut pid: u64, other: u64) -> bool {
        while pid != other {
            let runner = self.waiting.get(&pid).and_then(|body| self.running.get(body));
            let Some(&runner) = runner else { return false };
            pid = runner;
        }
        true
    }

    /// A body has run to its end.
    pub(crate) fn finish(&mut self, body: Word) {
        self.ended.insert(body);
    }

    /// A process leaves a body, also by an error or a continuation. Returns those that wait for it.
    pub(crate) fn leave(&mut self, body: Word, pid: u64) -> Vec<u64> {
        if self.running.get(&body) != Some(&pid) {
            return Vec::new();
        }
        self.running.remove(&body);
        self.waiting.iter().filter(|(_, wanted)| **wanted == body).map(|(waiting, _)| *waiting).collect()
    }

    /// A process leaves all bodies, and waits for none. Returns those that wait for it.
    pub(crate) fn forget(&mut self, pid: u64) -> Vec<u64> {
        self.waiting.remove(&pid);
        let bodies: Vec<Word> = self.running.iter().filter(|(_, by)| **by == pid).map(|(body, _)| *body).collect();
        bodies.into_iter().flat_map(|body| self.leave(body, pid)).collect()
    }

    /// Whether no body runs, and none is waited for.
    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_process_waits_until_the_first_has_left() {
        let mut bodies = Bodies::default();
        assert_eq!(bodies.claim(7, 1), Claim::Run);
        assert_eq!(bodies.claim(7, 2), Claim::Wait);
        assert_eq!(bodies.leave(7, 2), [0; 0]);
        bodies.finish(7);
        assert_eq!(bodies.leave(7, 1), [2]);
        assert_eq!(bodies.claim(7, 2), Claim::Ended);
        assert!(bodies.is_idle());
    }

    #[test]
    fn body_of_a_process_that_has_ended_is_run_by_another() {
        let mut bodies = Bodies::default();
        assert_eq!((bodies.claim(7, 1), bodies.claim(8, 1)), (Claim::Run, Claim::Run));
        assert_eq!((bodies.claim(7, 2), bodies.claim(8, 3)), (Claim::Wait, Claim::Wait));
        let mut woken = bodies.forget(1);
        woken.sort();
        assert_eq!(woken, [2, 3]);
        assert_eq!(bodies.claim(7, 2), Claim::Run);
    }

    #[test]
    fn processes_that_would_wait_for_each_other_do_not() {
        let mut bodies = Bodies::default();
        assert_eq!(bodies.claim(7, 1), Claim::Run);
        assert_eq!(bodies.claim(7, 1), Claim::Cycle);
        assert_eq!((bodies.claim(8, 2), bodies.claim(9, 3)), (Claim::Run, Claim::Run));
        assert_eq!((bodies.claim(8, 1), bodies.claim(9, 2)), (Claim::Wait, Claim::Wait));
        assert_eq!(bodies.claim(7, 3), Claim::Cycle);
        // One that no longer waits stands in nobody's way.
        assert_eq!(bodies.forget(2), [1]);
        assert_eq!(bodies.claim(7, 3), Claim::Wait);
    }
}
