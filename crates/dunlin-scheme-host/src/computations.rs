//! Long computations of a machine without tasks.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::thread::{self, Thread};

use dunlin_scheme::{Computation, Outcome};

use crate::machine::lock;
use crate::operation::failed;

/// Computations that run at once: two leave the machine a processor where there are three.
const THREADS_MAX: usize = 2;

/// Computations, each on a thread of its own while it runs. Whatever ends unparks the thread of the machine.
#[derive(Default)]
pub(crate) struct Computations {
    waiting: VecDeque<(u64, Computation)>,
    /// The number of the last computation that began.
    last: u64,
    /// The computations that run, by their processes: one that has ended has none.
    running: HashMap<u64, u64>,
    threads: usize,
    ended: Arc<Mutex<Vec<Ended>>>,
}

struct Ended {
    process: u64,
    number: u64,
    outcome: Outcome,
}

impl Computations {
    pub(crate) fn start(&mut self, process: u64, computation: Computation) {
        self.waiting.push_back((process, computation));
        self.begin();
    }

    fn begin(&mut self) {
        while self.threads < THREADS_MAX
            && let Some((process, computation)) = self.waiting.pop_front()
        {
            self.last += 1;
            self.threads += 1;
            let number = self.last;
            self.running.insert(process, number);
            let (ended, machine) = (self.ended.clone(), thread::current());
            let run = move || compute(&ended, &machine, process, number, computation);
            // Without a thread nothing can be computed: the process hears that.
            if thread::Builder::new().name("dunlin-scheme".to_owned()).spawn(run).is_err() {
                let outcome = failed("number", "there is no thread for a long computation");
                lock(&self.ended).push(Ended { process, number, outcome });
            }
        }
    }

    /// What has been computed, for processes that still wait for it.
    pub(crate) fn finished(&mut self) -> Vec<(u64, Outcome)> {
        let mut outcomes = Vec::new();
        if self.threads == 0 {
            return outcomes;
        }
        for Ended { process, number, outcome } in std::mem::take(&mut *lock(&self.ended)) {
            self.threads -= 1;
            if self.running.get(&process) == Some(&number) {
                self.running.remove(&process);
                outcomes.push((process, outcome));
            }
        }
        self.begin();
        outcomes
    }

    /// A process no longer waits for a computation. False if it did not.
    pub(crate) fn forget(&mut self, process: u64) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|(waiting, _)| *waiting != process);
        self.running.remove(&process).is_some() || self.waiting.len() < before
    }
}

fn compute(ended: &Mutex<Vec<Ended>>, machine: &Thread, process: u64, number: u64, computation: Computation) {
    let computed = catch_unwind(AssertUnwindSafe(|| computation.run()));
    let outcome = computed.map_or_else(|_| failed("number", "a long computation has panicked"), Outcome::Computed);
    lock(ended).push(Ended { process, number, outcome });
    machine.unpark();
}
