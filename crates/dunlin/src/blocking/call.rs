//! A blocking call, its handle, and what becomes of a call that is terminated.
//!
//! The [phase](super::phase) says who may take the body: the thread that starts the call, or the party that
//! keeps it from starting. What the call returned lies in the cell, from its end until the handle takes it.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use dunlin_core::__rt::{ChoiceCx, wake_all};
use dunlin_core::waits::{Doing, Identities, Pid, Watch, tick};
use dunlin_core::{Branch, Operation};
use tokio::runtime::Handle;

use super::phase::{Asked, Phase};
use super::pool::{CallState, Job, KnownCall, NotRun, Pool, Seat};
use super::profile::{self, Event};
use super::refused::{Body, Refused};
use super::stop::Stop;
use crate::lock::lock;
use crate::world::{self, NoOutput};
use crate::{Error, Exit, ExitReason};

/// Starts `body` on a thread of `pool`.
pub(super) fn start<R: Send + 'static>(
    body: Body<R>,
    pool: Arc<Pool>,
    seat: Option<Seat>,
    made: &'static Location<'static>,
) -> Blocking<R> {
    crate::time::keep_ticking();
    let identities = Identities::new(1, made);
    let pid = identities.first();
    let start = Start { body, identities, runtime: Handle::current(), queued: Watch::default() };
    let call = Arc::new(Call {
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
    Blocking { call, pid, made, watch: Watch::default() }
}

/// A blocking call that was begun by [`blocking`](super::blocking()): await it for what it returns.
///
/// Dropping the handle asks the call to stop and abandons it: if it has not started it never will. If it runs
/// on, what it returns is dropped, and [`calls`](super::calls) lists it until then.
///
/// # Errors
/// [`Error::Exit`], with the panic's text, if the call panicked; or that it was cancelled, if the runtime
/// ended before it started. [`Error::Refused`], with the call, if it was not taken.
///
/// # Cancel safety
/// Awaiting through `&mut` loses nothing: what the call returns stays until it is taken.
///
/// # Panics
/// When polled again after it was ready.
///
/// # Waits
/// The process that awaits it has a line in the [wait records](crate::waits). The call is a process of its
/// own there. While it is queued it waits for [a thread](Doing::Thread).
#[must_use = "dropping it asks the call to stop"]
pub struct Blocking<R> {
    call: Arc<Call<R>>,
    pid: Pid,
    made: &'static Location<'static>,
    watch: Watch,
}

/// What became of a blocking call that was [terminated](Blocking::terminate).
#[derive(Debug)]
#[non_exhaustive]
pub enum Ended<R> {
    /// It had returned before it was asked to stop.
    AlreadyFinished(R),
    /// It was asked, saw that, and then returned: what it returned may be a part of its work.
    Terminated(R),
    /// It was asked, but returned without having seen that: this is all of its work.
    JustFinished(R),
    /// It said before it was asked that it was [finishing](Stop::finishing). Await it for what it returns.
    Finishing(Blocking<R>),
    /// It had not started, and now it never will.
    NeverStarted,
    /// It was asked, and the deadline of the termination has passed. It is in [`calls`](super::calls), and
    /// occupies its thread, until it returns. It may be awaited, or terminated again.
    Abandoned(Blocking<R>),
    /// It panicked, before or after it was asked, or what [cleans up](Stop::on_cut) after it did.
    Panicked(Exit),
}

impl<R> Blocking<R> {
    /// Asks the call to stop and waits for what becomes of that.
    ///
    /// A call that neither looks nor returns keeps this waiting. With a deadline (`.within(duration)`), it is
    /// then given back as [`Ended::Abandoned`].
    ///
    /// # Cancel safety
    /// Once polled, the call has been asked. Awaiting through `&mut`, or a choice over `&mut`, loses nothing.
    /// Dropped, the call is abandoned, as by dropping the handle.
    ///
    /// # Panics
    /// If what the call returned has been taken.
    ///
    /// # Examples
    /// ```
    /// use dunlin::prelude::*;
    /// # dunlin::block_on(async {
    /// let (mut tx, mut rx) = channel::<u8>();
    /// let stubborn = blocking(move |_| rx.recv().wait()); // it never looks
    /// # while !dunlin::waits::snapshot().iter().any(|wait| wait.channel == Some(tx.id())) {}
    /// let ended = stubborn.terminate().within(Duration::from_millis(1)).await;
    /// let Ended::Abandoned(stubborn) = ended else { panic!() };
    /// tx.send(7).await.unwrap();
    /// assert_eq!(stubborn.await.unwrap(), Ok(7));
    /// # });
    /// ```
    ///
    /// In a choice:
    /// ```
    /// use dunlin::prelude::*;
    /// # dunlin::block_on(async {
    /// let (_tx, mut rx) = channel::<u8>();
    /// let call = blocking(|stop| stop.requested().wait());
    /// # use dunlin::waits::{Doing, snapshot};
    /// # while !snapshot().iter().any(|wait| wait.who == call.pid() && wait.doing == Doing::Stop) {}
    /// let mut ending = call.terminate();
    /// alt! {
    ///     ended = &mut ending => assert!(matches!(ended, Ended::Terminated(true))),
    ///     n = rx.recv() => panic!("{n:?}"),
    /// }
    /// # });
    /// ```
    pub fn terminate(self) -> Terminating<R> {
        Terminating { job: Some(self), asked: false }
    }

    /// Its identity in the wait records.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Whether the call is over.
    pub fn is_finished(&self) -> bool {
        matches!(lock(&self.call.cell).stage, Stage::Over(_))
    }

    fn poll_outcome(&mut self, cx: &mut Context<'_>) -> Poll<Outcome<R>> {
        let polled = self.call.poll_taken(cx);
        self.watch.note(polled, Doing::Return, self.pid, self.made)
    }

    fn exit(&self, reason: ExitReason) -> Exit {
        Exit { pid: self.pid, name: None, reason }
    }
}

impl<R> Future for Blocking<R> {
    type Output = Result<R, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_outcome(cx).map(|outcome| match outcome {
            Outcome::Returned(value, _) => Ok(value),
            Outcome::Panicked(reason) => Err(self.exit(reason).into()),
            Outcome::NotRun(None) => Err(self.exit(ExitReason::Cancelled).into()),
            Outcome::NotRun(Some(refused)) => Err(Error::Refused(refused)),
        })
    }
}

impl<R> Branch for Blocking<R> {
    type Output = Result<R, Error>;

    fn poll_branch(self: Pin<&mut Self>, cx: &mut Context<'_>, choice: &ChoiceCx) -> Poll<Self::Output> {
        choice.poll_foreign(self.is_finished(), || self.poll(cx))
    }

    fn unchosen(&self) {
        self.watch.end();
    }
}

impl<R> Drop for Blocking<R> {
    fn drop(&mut self) {
        self.call.abandon();
    }
}

impl<R> fmt::Debug for Blocking<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blocking").field("pid", &self.pid).field("made", &self.made).finish()
    }
}

/// The operation of [`Blocking::terminate`].
#[must_use = "nothing is asked until it is awaited"]
pub struct Terminating<R> {
    /// `None` once it is known what became of it.
    job: Option<Blocking<R>>,
    asked: bool,
}

// What the call returns is never pinned.
impl<R> Unpin for Terminating<R> {}

impl<R> Terminating<R> {
    fn job(&mut self) -> Blocking<R> {
        self.job.take().expect("polled again after it was ready")
    }

    fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<Ended<R>> {
        let mut job = self.job();
        if !std::mem::replace(&mut self.asked, true) {
            match job.call.ask() {
                Asked::NotStarted => return Poll::Ready(Ended::NeverStarted),
                Asked::Finishing => return Poll::Ready(Ended::Finishing(job)),
                Asked::First | Asked::Again => {}
            }
        }
        Poll::Ready(match job.poll_outcome(cx) {
            Poll::Ready(Outcome::Returned(value, Phase::Heeded)) => Ended::Terminated(value),
            Poll::Ready(Outcome::Returned(value, Phase::Asked)) => Ended::JustFinished(value),
            Poll::Ready(Outcome::Returned(value, _)) => Ended::AlreadyFinished(value),
            Poll::Ready(Outcome::Panicked(reason)) => Ended::Panicked(job.exit(reason)),
            Poll::Ready(Outcome::NotRun(_)) => Ended::NeverStarted,
            Poll::Pending => {
                self.job = Some(job);
                return Poll::Pending;
            }
        })
    }
}

impl<R> Future for Terminating<R> {
    type Output = Ended<R>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ended<R>> {
        self.get_mut().poll_ended(cx)
    }
}

impl<R> Branch for Terminating<R> {
    type Output = Ended<R>;

    fn poll_branch(self: Pin<&mut Self>, cx: &mut Context<'_>, choice: &ChoiceCx) -> Poll<Ended<R>> {
        let finished = self.job.as_ref().is_some_and(Blocking::is_finished);
        choice.poll_foreign(finished, || self.poll(cx))
    }

    fn unchosen(&self) {
        if let Some(job) = &self.job {
            job.watch.end();
        }
    }
}

impl<R> Operation for Terminating<R> {
    fn poll_expire(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Ended<R>> {
        let job = self.get_mut().job();
        job.call.abandoned.store(true, Ordering::Relaxed);
        Poll::Ready(Ended::Abandoned(job))
    }
}

impl<R> fmt::Debug for Terminating<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Terminating").field(&self.job).finish()
    }
}

/// What a call shares with its handle and with the pool.
struct Call<R> {
    stop: Stop,
    pid: Pid,
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
    /// The handle has gone.
    detached: bool,
}

enum Stage<R> {
    /// Not begun. Whoever moves the phase out of `Queued` takes what is in it.
    Waiting(Start<R>),
    Running,
    Over(Outcome<R>),
    /// Nothing more will come of it.
    Taken,
}

struct Start<R> {
    body: Body<R>,
    identities: Identities,
    runtime: Handle,
    /// The line of a call that is in the queue.
    queued: Watch,
}

enum Outcome<R> {
    /// With the phase in which it returned.
    Returned(R, Phase),
    Panicked(ExitReason),
    /// `None`: its runtime has ended.
    NotRun(Option<Refused>),
}

impl<R> Call<R> {
    /// It did not find a free thread: its wait is shown.
    fn is_queued(&self) {
        let mut cell = lock(&self.cell);
        // Unless a thread has become free meanwhile.
        if let Stage::Waiting(start) = &mut cell.stage {
            let Start { identities, queued, .. } = start;
            let _: Poll<()> = identities.run(|| queued.note(Poll::Pending, Doing::Thread, Pid::OUTSIDE, self.made));
        }
    }

    /// Takes what there is to begin with: only for the party that has moved the phase out of `Queued`.
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
            // The first panic is the one that is told.
            if let Err(panic) = done
                && !matches!(outcome, Outcome::Panicked(_))
            {
                let value = std::mem::replace(&mut outcome, Outcome::panicked(panic));
                quietly(|| drop(value));
            }
        }
        outcome
    }

    /// Gives the outcome to the handle, if that is still there.
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

    fn poll_taken(&self, cx: &mut Context<'_>) -> Poll<Outcome<R>> {
        std::task::ready!(world::poll_budget(cx));
        // As what is tokio's: it takes from the budget that tokio gives the task.
        let coop = std::task::ready!(tokio::task::coop::poll_proceed(cx));
        // Cloned before the lock is taken, and dropped after: a waker is a user's code.
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

    fn ask(&self) -> Asked {
        // Taken before the question: the call may have returned by the time that this thread goes on.
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
                // Dropped here and now, with the ends that it may hold.
                drop(start);
            }
            Asked::Again | Asked::Finishing => {}
        }
        asked
    }

    /// The handle goes.
    fn abandon(&self) {
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

/// Runs what may panic where a panic would end a thread of the pool. The hook for panics has reported it.
fn quietly(f: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(f)) {
        // What was thrown may panic when it is dropped.
        std::mem::forget(panic);
    }
}
