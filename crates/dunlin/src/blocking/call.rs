//! A blocking call: what its handle, its thread and the pool share.
//!
//! The [phase](super::phase) decides which party may take the body: the thread that starts the call, or the
//! party that keeps it from starting. The result lies in the cell, from the call's end until the handle takes
//! it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use dunlin_core::__rt::wake_all;
use dunlin_core::waits::{Doing, Identities, Pid, Watch, tick};
use tokio::runtime::Handle;

use super::known::{CallState, KnownCall};
use super::phase::{Asked, Phase};
use super::pool::{Pool, Seat};
use super::profile::{self, Event};
use super::refused::{Body, Refused};
use super::state::{Job, NotRun};
use super::stop::Stop;
use crate::ExitReason;
use crate::lock::lock;
use crate::quiet::quietly;
use crate::world::{self, NoOutput};

/// What a call shares with its handle and with the pool.
pub(super) struct Call<R> {
    stop: Stop,
    pub(super) pid: Pid,
    made: &'static Location<'static>,
    /// Since which tick it waits for a thread, or runs.
    since: AtomicU32,
    abandoned: AtomicBool,
    cell: Mutex<Cell<R>>,
    pool: Arc<Pool>,
}

struct Cell<R> {
    stage: Stage<R>,
    waker: Option<Waker>,
    /// The handle was dropped.
    detached: bool,
}

enum Stage<R> {
    /// Not begun. The party that moves the phase out of `Queued` takes the start.
    Waiting(Start<R>),
    Running,
    Over(Outcome<R>),
    /// The result was taken, or will never come.
    Taken,
}

struct Start<R> {
    body: Body<R>,
    identities: Identities,
    runtime: Handle,
    /// The wait record of a queued call.
    queued: Watch,
}

pub(super) enum Outcome<R> {
    /// The result, with the phase in which it returned.
    Returned(R, Phase),
    Panicked(ExitReason),
    /// `None`: its runtime has ended.
    NotRun(Option<Refused>),
}

impl<R: Send + 'static> Call<R> {
    /// Gives the call to `pool`, which starts or refuses it.
    pub(super) fn submit(
        body: Body<R>,
        pool: Arc<Pool>,
        seat: Option<Seat>,
        made: &'static Location<'static>,
    ) -> Arc<Self> {
        let identities = Identities::new(1, made);
        let pid = identities.first();
        let start = Start { body, identities, runtime: Handle::current(), queued: Watch::default() };
        let call = Arc::new(Self {
            stop: Stop::new(),
            pid,
            made,
            since: AtomicU32::new(tick()),
            abandoned: AtomicBool::new(false),
            cell: Mutex::new(Cell { stage: Stage::Waiting(start), waker: None, detached: false }),
            pool,
        });
        let job: Arc<dyn Job> = call.clone();
        profile::stamp(Event::Dispatch, pid, None);
        match call.pool.submit(&job, seat) {
            Ok(false) => {}
            Ok(true) => call.is_queued(),
            Err(why) => job.cancel(why),
        }
        call
    }
}

impl<R> Call<R> {
    pub(super) fn is_over(&self) -> bool {
        matches!(lock(&self.cell).stage, Stage::Over(_))
    }

    /// Lists the call as abandoned: a deadline of its termination has passed.
    pub(super) fn list_as_abandoned(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }

    /// Records the wait of a call that found no free thread.
    fn is_queued(&self) {
        let mut cell = lock(&self.cell);
        // Unless a thread has become free meanwhile.
        if let Stage::Waiting(start) = &mut cell.stage {
            let Start { identities, queued, .. } = start;
            let _: Poll<()> = identities.run(|| queued.note(Poll::Pending, Doing::Thread, Pid::OUTSIDE, self.made));
        }
    }

    /// Takes the start: only for the party that has moved the phase out of `Queued`.
    fn take_start(&self, then: Stage<R>) -> Option<Start<R>> {
        match std::mem::replace(&mut lock(&self.cell).stage, then) {
            Stage::Waiting(start) => Some(start),
            _ => None,
        }
    }

    fn perform(&self, body: Body<R>) -> Outcome<R> {
        let returned = catch_unwind(AssertUnwindSafe(|| body(&self.stop)));
        let (phase, clean_ups) = self.stop.over();
        let was_cut = phase == Phase::Heeded;
        let mut outcome = match returned {
            Ok(value) => Outcome::Returned(value, phase),
            Err(panic) => Outcome::panicked(panic),
        };
        for clean_up in clean_ups.into_iter().rev() {
            let done = catch_unwind(AssertUnwindSafe(move || if was_cut { clean_up() } else { drop(clean_up) }));
            // Only the first panic is reported.
            if let Err(panic) = done
                && !matches!(outcome, Outcome::Panicked(_))
            {
                let value = std::mem::replace(&mut outcome, Outcome::panicked(panic));
                quietly(|| drop(value));
            }
        }
        outcome
    }

    /// Gives the outcome to the handle, if the handle still exists.
    fn publish(&self, outcome: Outcome<R>) {
        let mut cell = lock(&self.cell);
        if cell.detached {
            cell.stage = Stage::Taken;
            drop(cell);
            return quietly(|| drop(outcome));
        }
        cell.stage = Stage::Over(outcome);
        let waker = cell.waker.take();
        drop(cell);
        quietly(|| wake_all(waker));
    }

    pub(super) fn poll_taken(&self, cx: &mut Context<'_>) -> Poll<Outcome<R>> {
        std::task::ready!(world::poll_budget(cx));
        // Like tokio's own futures, it takes from the budget that tokio gives the task.
        let coop = std::task::ready!(tokio::task::coop::poll_proceed(cx));
        // Cloned before the lock is taken, and dropped after: a waker is user code.
        let waker = cx.waker().clone();
        let mut cell = lock(&self.cell);
        match std::mem::replace(&mut cell.stage, Stage::Taken) {
            Stage::Over(outcome) => {
                drop(cell);
                coop.made_progress();
                Poll::Ready(outcome)
            }
            Stage::Taken => panic!("a blocking call was polled again after it was ready"),
            unfinished => {
                cell.stage = unfinished;
                let old = cell.waker.replace(waker);
                drop(cell);
                drop(old);
                Poll::Pending
            }
        }
    }

    pub(super) fn ask(&self) -> Asked {
        // The time before the stop request: the call may have returned before this thread continues.
        let at = profile::now();
        let asked = self.stop.ask();
        match asked {
            Asked::First => {
                if let Some(at) = at {
                    profile::keep(at, Event::Kill, self.pid, None);
                }
            }
            Asked::NotStarted => {
                let start = self.take_start(Stage::Taken);
                self.pool.forget(std::ptr::from_ref(self).cast());
                // Drops the body at once, with the ends that it may hold.
                drop(start);
            }
            Asked::Again | Asked::Finishing => {}
        }
        asked
    }

    /// Abandons the call: its handle was dropped.
    pub(super) fn abandon(&self) {
        let _ = self.ask();
        self.abandoned.store(true, Ordering::Relaxed);
        let mut cell = lock(&self.cell);
        cell.detached = true;
        let waker = cell.waker.take();
        let outcome = match &cell.stage {
            Stage::Over(_) => Some(std::mem::replace(&mut cell.stage, Stage::Taken)),
            _ => None,
        };
        drop(cell);
        drop((waker, outcome));
    }
}

impl<R: Send + 'static> Job for Call<R> {
    fn run(&self, thread: usize) {
        if !self.stop.word.start() {
            return;
        }
        let Some(Start { body, identities, runtime, queued }) = self.take_start(Stage::Running) else { return };
        self.since.store(tick(), Ordering::Relaxed);
        profile::stamp(Event::Trigger, self.pid, Some(thread));
        drop(queued);
        let outcome = {
            let _entered = runtime.enter();
            identities.run(|| self.perform(body))
        };
        drop((identities, runtime));
        profile::stamp(Event::Finish, self.pid, Some(thread));
        self.publish(outcome);
    }

    fn cancel(&self, why: NotRun) {
        if !self.stop.word.refuse() {
            return;
        }
        let Some(Start { body, .. }) = self.take_start(Stage::Running) else { return };
        let refused = match why {
            NotRun::Ended => {
                quietly(|| drop(body));
                None
            }
            NotRun::Full { .. } | NotRun::NoThread => Some(Refused::new(why, body)),
        };
        self.publish(Outcome::NotRun(refused));
    }

    fn ask(&self) {
        let _ = Self::ask(self);
    }

    fn known(&self) -> Option<KnownCall> {
        let state = match self.stop.word.get() {
            Phase::Never | Phase::Over => return None,
            Phase::Queued => CallState::Queued,
            _ if self.abandoned.load(Ordering::Relaxed) => CallState::Abandoned,
            Phase::Running => CallState::Running,
            Phase::Asked | Phase::Heeded => CallState::Asked,
            Phase::Finishing => CallState::Finishing,
        };
        Some(KnownCall { pid: self.pid, made: self.made, state, since: self.since.load(Ordering::Relaxed) })
    }
}

impl<R> Outcome<R> {
    fn panicked(panic: Box<dyn Any + Send>) -> Self {
        Self::Panicked(ExitReason::of(NoOutput::Panicked(panic)))
    }
}
