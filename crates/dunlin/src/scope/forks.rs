//! The processes forked in a scope, and waiting for their ends.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use dunlin_core::__rt::{keep, panic_text, wake_all};
use dunlin_core::waits::{self, Doing, Pid, Watch};
use dunlin_sorted::SortedMap;

use super::error::{At, FinishError, ScopeError, Straggler};
use crate::lock::lock;
use crate::process::NotStarted;
use crate::world::{Canceller, Timer};
use crate::{Exit, ExitReason, Process};

/// The processes of one scope and of those within it. A process stands in the list of its own scope, and of
/// all around it.
#[derive(Default)]
pub(super) struct Forks {
    around: Option<Arc<Self>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// In the order in which they were forked.
    live: SortedMap<u64, Arc<Fork>>,
    finished: bool,
    /// A `finish` has timed out: dropping the scope's last handle cancels them.
    overdue: bool,
    failure: Option<FinishError>,
    waiting: Vec<Waker>,
}

/// One process that was forked.
pub(super) struct Fork {
    name: Option<String>,
    made: At,
    /// Known a moment after it has started.
    task: OnceLock<(Pid, Canceller)>,
    cancelled: AtomicBool,
    not_started: NotStarted,
}

impl Fork {
    /// Records the process of this fork.
    pub(super) fn is<T>(&self, process: Process<T>) -> Process<T> {
        let set = self.task.set((process.pid().into(), process.canceller()));
        debug_assert!(set.is_ok(), "a fork starts once");
        if self.cancelled.load(Ordering::SeqCst) {
            process.cancel();
        }
        process.unless_not_started(self.not_started.clone())
    }

    fn cancel(&self) {
        // In this order: either this finds the task, or `is` finds the flag.
        self.cancelled.store(true, Ordering::SeqCst);
        if let Some((_, canceller)) = self.task.get() {
            canceller.cancel();
        }
    }

    fn pid(&self) -> Pid {
        self.task.get().map_or(Pid::OUTSIDE, |(pid, _)| *pid)
    }

    /// The exit of the process that is being polled.
    fn exit(&self, reason: ExitReason) -> Exit {
        let pid = crate::Pid::current().unwrap_or_else(|| crate::Pid::nowhere(Pid::current()));
        Exit::new(pid, self.name.as_deref().map(Arc::from), reason)
    }

    fn straggler(&self, processes: &[waits::Known], waits: &[waits::Wait]) -> Straggler {
        let pid = self.pid();
        // The branches of a `par!` have numbers of their own.
        let mut within = vec![(pid.as_u64(), 1)];
        let is_in = |&(first, count): &(u64, u32), pid: Pid| (first..first + u64::from(count)).contains(&pid.as_u64());
        let mut index = 0;
        while let Some(range) = within.get(index).copied() {
            index += 1;
            let branches = processes.iter().filter(|known| known.count > 1 && is_in(&range, known.parent));
            within.extend(branches.map(|known| (known.first.as_u64(), known.count)));
        }
        let its_own = |wait: &&waits::Wait| within.iter().any(|range| is_in(range, wait.who));
        let waits = waits.iter().filter(its_own).cloned().collect();
        Straggler { pid, name: self.name.clone(), made: self.made, waits }
    }
}

static NEXT: AtomicU64 = AtomicU64::new(0);

impl Forks {
    pub(super) fn within(around: &Arc<Self>) -> Arc<Self> {
        Arc::new(Self { around: Some(around.clone()), state: Mutex::default() })
    }

    /// The lists of this scope, and of those around it.
    fn levels(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |forks| forks.around.as_deref())
    }

    /// Whether the scope is closed to forks.
    pub(super) fn is_finished(&self) -> bool {
        self.levels().any(|forks| lock(&forks.state).finished)
    }

    pub(super) fn finish(&self) {
        lock(&self.state).finished = true;
    }

    pub(super) fn enrol(self: &Arc<Self>, name: Option<String>, made: At) -> Result<Enrolled, ScopeError> {
        let fork = Fork {
            name,
            made,
            task: OnceLock::new(),
            cancelled: AtomicBool::new(false),
            not_started: NotStarted::default(),
        };
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // If this returns early, its drop removes what has been entered.
        let enrolled = Enrolled { forks: self.clone(), number, fork: Arc::new(fork) };
        for forks in self.levels() {
            let mut state = lock(&forks.state);
            if state.finished {
                return Err(ScopeError::Finished);
            }
            state.live.insert(number, enrolled.fork.clone());
        }
        Ok(enrolled)
    }

    /// A fork that could not be enrolled: its process only reports why.
    pub(super) fn refused(self: &Arc<Self>, name: Option<String>, made: At, why: ScopeError) -> Enrolled {
        let fork = Fork {
            name,
            made,
            task: OnceLock::new(),
            cancelled: AtomicBool::new(false),
            not_started: Arc::new(why.into()),
        };
        Enrolled { forks: self.clone(), number: NEXT.fetch_add(1, Ordering::Relaxed), fork: Arc::new(fork) }
    }

    fn fails(&self, failure: &FinishError) {
        for forks in self.levels() {
            lock(&forks.state).failure.get_or_insert_with(|| failure.clone());
        }
    }

    pub(super) fn cancel(&self) {
        let live: Vec<_> = lock(&self.state).live.values().cloned().collect();
        live.iter().for_each(|fork| fork.cancel());
    }

    /// Called when the last handle of the scope is dropped.
    pub(super) fn forgotten(&self) {
        if lock(&self.state).overdue {
            self.cancel();
        }
    }

    fn stragglers(&self, patience: Duration) -> FinishError {
        let (live, failure): (Vec<_>, _) = {
            let mut state = lock(&self.state);
            state.overdue = true;
            (state.live.values().cloned().collect(), state.failure.clone())
        };
        let (processes, waits) = (waits::processes(), waits::snapshot());
        let stragglers = live.iter().map(|fork| fork.straggler(&processes, &waits)).collect();
        FinishError::Stragglers { stragglers, patience, failure: failure.map(Box::new) }
    }
}

/// A process's entry in its scopes' lists; dropped when the process has ended and released all it held.
pub(super) struct Enrolled {
    forks: Arc<Forks>,
    number: u64,
    fork: Arc<Fork>,
}

impl Enrolled {
    pub(super) fn fork(&self) -> &Arc<Fork> {
        &self.fork
    }

    pub(super) fn panicked(&self, panic: &(dyn Any + Send)) {
        let reason = ExitReason::Panicked(panic_text(panic));
        self.forks.fails(&FinishError::Panicked(self.fork.exit(reason)));
    }

    /// The process cannot begin, and ends at this await. A refused process does not notify the scope, which
    /// was finished before.
    pub(super) fn give_up(&self, why: ScopeError) {
        if self.fork.not_started.set(why.clone()).is_ok() {
            self.forks.fails(&FinishError::NotStarted(self.fork.exit(ExitReason::NotStarted(why.into()))));
        }
        self.fork.cancel();
    }
}

impl Drop for Enrolled {
    fn drop(&mut self) {
        let mut woken = Vec::new();
        for forks in self.forks.levels() {
            let mut state = lock(&forks.state);
            let gone = state.live.remove(&self.number);
            if state.live.is_empty() {
                woken.append(&mut state.waiting);
            }
            drop(state);
            drop(gone);
        }
        // After all levels are updated: a waker may panic.
        wake_all(woken);
    }
}

/// Waits for all forked processes.
pub(super) struct Finishing {
    pub(super) forks: Arc<Forks>,
    pub(super) patience: Duration,
    pub(super) made: At,
    timer: Option<Pin<Box<Timer>>>,
    watch: Watch,
}

impl Finishing {
    pub(super) fn new(forks: Arc<Forks>, patience: Duration, made: At) -> Self {
        Self { forks, patience, made, timer: None, watch: Watch::default() }
    }
}

impl Future for Finishing {
    type Output = Result<(), FinishError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let mut state = lock(&this.forks.state);
        let first = match state.live.first_key_value().map(|(_, fork)| fork) {
            None => {
                let failure = state.failure.clone();
                drop(state);
                let _: Poll<()> = this.watch.note(Poll::Ready(()), Doing::Exit, Pid::OUTSIDE, this.made);
                return Poll::Ready(failure.map_or(Ok(()), Err));
            }
            Some(fork) => fork.clone(),
        };
        if !state.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            state.waiting.push(keep(cx.waker()));
        }
        drop(state);
        let patience = this.patience;
        let timer = this.timer.get_or_insert_with(|| {
            crate::time::keep_ticking();
            Box::pin(Timer::after(patience))
        });
        let polled = timer.as_mut().poll(cx);
        this.watch.note(polled, Doing::Exit, first.pid(), first.made).map(|()| Err(this.forks.stragglers(patience)))
    }
}
