//! The master's book: the jobs of each worker.

use std::collections::{BTreeSet, VecDeque};

use super::protocol::{Job, Numbered};

/// The jobs of one run: those to be given out, those that are out, and those that are done.
///
/// A job is done once, whichever worker reports it, and however often it was given out.
#[derive(Debug)]
pub(super) struct Ledger<J> {
    first: u64,
    jobs: Vec<J>,
    is_done: Vec<bool>,
    left: usize,
    /// Jobs in the order in which they are given out. Those that are done meanwhile are skipped.
    to_give: VecDeque<usize>,
    /// Jobs that are given out and not done.
    out: BTreeSet<u64>,
}

impl<J: Job> Ledger<J> {
    /// The jobs are numbered from `first`.
    pub(super) fn new(first: u64, jobs: Vec<J>) -> Self {
        let count = jobs.len();
        Self {
            first,
            jobs,
            is_done: vec![false; count],
            left: count,
            to_give: (0..count).collect(),
            out: BTreeSet::new(),
        }
    }

    /// How many jobs are not done.
    pub(super) fn left(&self) -> usize {
        self.left
    }

    /// The next job to be given out.
    pub(super) fn give(&mut self) -> Option<Numbered<J>> {
        loop {
            let index = self.to_give.pop_front()?;
            if !self.is_done[index] {
                let number = self.first + index as u64;
                self.out.insert(number);
                return Some(Numbered { number, job: self.jobs[index].clone() });
            }
        }
    }

    /// Marks a job as done. `Some`: it was not done before, and has this place among the jobs of the run.
    pub(super) fn done(&mut self, number: u64) -> Option<usize> {
        let index = self.index(number)?;
        self.out.remove(&number);
        if std::mem::replace(&mut self.is_done[index], true) {
            return None;
        }
        self.left -= 1;
        Some(index)
    }

    /// Puts these jobs last for other workers: in a shared farm another worker may already hold some of them,
    /// and finish them first.
    pub(super) fn back(&mut self, numbers: impl IntoIterator<Item = u64>) -> usize {
        let before = self.to_give.len();
        for number in numbers {
            if self.out.remove(&number)
                && let Some(index) = self.index(number)
            {
                self.to_give.push_back(index);
            }
        }
        self.to_give.len() - before
    }

    /// Puts all jobs that are out back, since any of them may be lost.
    pub(super) fn all_back(&mut self) -> usize {
        let out = std::mem::take(&mut self.out);
        self.to_give.extend(out.iter().map(|number| (number - self.first) as usize));
        out.len()
    }

    /// `None`: the job belongs to an earlier run, or to none.
    fn index(&self, number: u64) -> Option<usize> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        (index < self.jobs.len()).then_some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::farm::mandelbrot::{Plan, Rectangle};

    /// A ledger of three jobs; the first has number 10.
    fn three() -> Ledger<Rectangle> {
        let plan = Plan { width: 3, height: 1, iterations_max: 1, side: 1 };
        Ledger::new(10, plan.rectangles())
    }

    fn give(ledger: &mut Ledger<Rectangle>) -> Option<u64> {
        ledger.give().map(|job| job.number)
    }

    #[test]
    fn a_job_is_done_once_with_any_reporter() {
        let mut ledger = three();
        assert_eq!([give(&mut ledger), give(&mut ledger)], [Some(10), Some(11)]);
        assert_eq!((ledger.done(11), ledger.left()), (Some(1), 2));
        assert_eq!((ledger.done(11), ledger.left()), (None, 2));
        // Of an earlier run, and of none.
        assert_eq!((ledger.done(9), ledger.done(13), ledger.left()), (None, None, 2));
    }

    #[test]
    fn returned_jobs_are_given_last_unless_done_meanwhile() {
        let mut ledger = three();
        assert_eq!([give(&mut ledger), give(&mut ledger)], [Some(10), Some(11)]);
        // 12 is not out.
        assert_eq!(ledger.back([11, 10, 12]), 2);
        assert_eq!(ledger.done(11), Some(1));
        assert_eq!([give(&mut ledger), give(&mut ledger), give(&mut ledger)], [Some(12), Some(10), None]);
    }

    #[test]
    fn all_jobs_that_are_out_can_be_put_back() {
        let mut ledger = three();
        assert_eq!([give(&mut ledger), give(&mut ledger)], [Some(10), Some(11)]);
        assert_eq!(ledger.done(10), Some(0));
        assert_eq!(ledger.all_back(), 1);
        assert_eq!([give(&mut ledger), give(&mut ledger), give(&mut ledger)], [Some(12), Some(11), None]);
    }
}
