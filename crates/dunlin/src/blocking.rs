//! Blocking calls: what would hold up a process worker runs on threads of its own, and can be asked to stop.
//!
//! A call runs on tokio's blocking pool: threads that are made when needed, up to a bound
//! (`max_blocking_threads` of the runtime's builder, 512 if unset), and that never drive processes. It starts
//! at once, or when one of them is free.
//!
//! Nothing can stop a thread from outside, so stopping is asked for, and the call looks: [`Stop::asked`].
//! What became of that is known exactly, because the question, each look and the return are ordered in one
//! word:
//!
//! ```text
//!              began            asks             looks            returns
//! queued ──────────────▶ running ─────▶ asked ─────────▶ heeded ──────────▶ Terminated
//!    │ asked                │  │          │ returns, without having looked
//!    ▼                      │  │          └──────────────────────────────▶ JustFinished
//! NeverStarted              │  └ returns, and is asked then ─────────────▶ AlreadyFinished
//!                           └ says that it is finishing, and is asked then ▶ Finishing
//! ```

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use dunlin_core::__rt::{ChoiceCx, wake_all};
use dunlin_core::waits::{Doing, Identities, Pid, Watch};
use dunlin_core::{Branch, Operation};

use crate::lock::lock;
use crate::{Error, Exit, ExitReason, world};

/// Runs `call`, which may block, on a thread where it holds up no process.
///
/// It starts at once, or when a thread of the pool is free, whether or not the handle is awaited. The handle
/// gives what the call returns, can be a branch of a choice (`&mut handle`), and can
/// [`terminate`](Blocking::terminate) the call, if that looks at its [`Stop`]. Within the call, operations on
/// ends have their blocking form, [`Deadline::wait`](crate::Deadline::wait).
///
/// A runtime that ends waits for the calls that run: one that neither returns nor looks holds up the end of
/// [`block_on`](crate::block_on) too. Those in the queue then may or may not be run.
///
/// # Panics
/// Outside a tokio runtime.
///
/// # Examples
/// ```
/// use dunlin::prelude::*;
///
/// async fn motto() -> Result<String> {
///     Ok(blocking(|_| std::fs::read_to_string("/etc/motto")).await??)
/// }
/// # dunlin::block_on(async {
/// assert!(matches!(motto().await, Err(Error::Io(_))));
/// # });
/// ```
///
/// One that can be stopped:
/// ```
/// use dunlin::prelude::*;
/// # dunlin::block_on(async {
/// let mut count = blocking(|stop| (0..u64::MAX).take_while(|_| !stop.asked()).count());
/// alt! {
///     n = &mut count => panic!("{n:?}"),
///     () = sleep(Duration::from_millis(1)) => {}
/// }
/// assert!(matches!(count.terminate().await, Ended::Terminated | Ended::NeverStarted));
/// # });
/// ```
///
/// # Source
/// Blocking system calls of KRoC for Linux (Barnes, 2000).
#[track_caller]
pub fn blocking<R, F>(call: F) -> Blocking<R>
where
    F: FnOnce(&Stop) -> R + Send + 'static,
    R: Send + 'static,
{
    crate::time::keep_ticking();
    let made = Location::caller();
    let identities = Identities::new(1, made);
    let pid = identities.first();
    let body = Box::new(move |stop: &Stop| identities.run(|| call(stop)));
    let call = Arc::new(Call { stop: Stop::new(), body: Mutex::new(Some(body)) });
    let running = call.clone();
    crate::world::needs_runtime("a blocking call was started");
    let task = tokio::task::spawn_blocking(move || running.run());
    Blocking { task, call, failed: None, pid, made, watch: Watch::default() }
}

/// A blocking call that was begun by [`blocking`]: await it for what it returns.
///
/// Dropping the handle asks the call to stop and abandons it: if it has not started it never will, and if it
/// runs on, its result is dropped.
///
/// # Errors
/// [`Error::Exit`], with the panic's text, if the call panicked; or that it was cancelled, if the runtime was
/// shut down before it started.
///
/// # Cancel safety
/// Awaiting through `&mut` loses nothing: what the call returns stays until it is taken.
///
/// # Panics
/// When polled again after it was ready.
///
/// # Waits
/// An awaiting process has a line in the [wait records](crate::waits). The call is a process of its own
/// there, also while it is queued.
#[must_use = "dropping it asks the call to stop"]
pub struct Blocking<R> {
    task: tokio::task::JoinHandle<Option<(R, Phase)>>,
    call: Arc<Call<R>>,
    /// It did not return, as its termination has found out.
    failed: Option<Exit>,
    pid: Pid,
    made: &'static Location<'static>,
    watch: Watch,
}

/// What became of a blocking call that was [terminated](Blocking::terminate).
#[derive(Debug)]
pub enum Ended<R> {
    /// It had returned before it was asked to stop.
    AlreadyFinished(R),
    /// It was asked, and looked, and then returned; what it returned then is dropped.
    Terminated,
    /// It was asked, but returned without having looked: this is all of its work.
    JustFinished(R),
    /// It has not stopped: it was already [finishing](Stop::finishing), or did not return before
    /// the deadline given to the termination, or it panicked. Await it for what it returns, or for the panic.
    Finishing(Blocking<R>),
    /// No thread had been free for it, and now it will never start.
    NeverStarted,
}

impl<R> Blocking<R> {
    /// Asks the call to stop and waits for what becomes of that.
    ///
    /// A call that neither looks nor returns keeps this waiting. With a deadline (`.within(duration)`), it is
    /// then given back as [`Ended::Finishing`].
    ///
    /// # Cancel safety
    /// Once polled, the call has been asked. Dropped, the call is abandoned, as by dropping the handle.
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
    /// let Ended::Finishing(stubborn) = stubborn.terminate().within(Duration::from_millis(1)).await else { panic!() };
    /// tx.send(7).await.unwrap();
    /// assert_eq!(stubborn.await.unwrap(), Ok(7));
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
        self.failed.is_some() || self.task.is_finished()
    }

    fn poll_returned(&mut self, cx: &mut Context<'_>) -> Poll<Result<(R, Phase), Exit>> {
        if let Some(exit) = self.failed.take() {
            return Poll::Ready(Err(exit));
        }
        let has_budget = world::poll_budget(cx).is_ready();
        let ended = if has_budget { Pin::new(&mut self.task).poll(cx) } else { Poll::Pending };
        let ended = self.watch.note(ended, Doing::Return, self.pid, self.made);
        ended.map(|ended| {
            let returned =
                ended.map_err(|error| ExitReason::of(error.into())).and_then(|run| run.ok_or(ExitReason::Cancelled));
            returned.map_err(|reason| Exit { pid: self.pid, name: None, reason })
        })
    }
}

impl<R> Future for Blocking<R> {
    type Output = Result<R, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_returned(cx).map(|returned| Ok(returned?.0))
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
        let _ = self.call.ask();
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
}

impl<R> Future for Terminating<R> {
    type Output = Ended<R>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ended<R>> {
        let this = self.get_mut();
        let mut job = this.job();
        if !std::mem::replace(&mut this.asked, true) {
            match job.call.ask() {
                Asked::BeforeStart => return Poll::Ready(Ended::NeverStarted),
                Asked::TooLate => return Poll::Ready(Ended::Finishing(job)),
                Asked::InTime => {}
            }
        }
        Poll::Ready(match job.poll_returned(cx) {
            Poll::Ready(Ok((_, Phase::Heeded))) => Ended::Terminated,
            Poll::Ready(Ok((value, Phase::Asked))) => Ended::JustFinished(value),
            Poll::Ready(Ok((value, Phase::Running | Phase::Finishing | Phase::Over))) => Ended::AlreadyFinished(value),
            Poll::Ready(Err(exit)) => {
                job.failed = Some(exit);
                Ended::Finishing(job)
            }
            Poll::Pending => {
                this.job = Some(job);
                return Poll::Pending;
            }
        })
    }
}

impl<R> Operation for Terminating<R> {
    fn poll_expire(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Ended<R>> {
        Poll::Ready(Ended::Finishing(self.get_mut().job()))
    }
}

impl<R> fmt::Debug for Terminating<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Terminating").field(&self.job).finish()
    }
}

/// How far a call that was started is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Phase {
    Running,
    /// It was asked to stop and has not looked since.
    Asked,
    /// It was asked, and has seen it.
    Heeded,
    /// It was asked only after it had declared that it cannot be stopped any more.
    Finishing,
    /// It has returned.
    Over,
}

impl Phase {
    fn of(number: u8) -> Self {
        [Self::Running, Self::Asked, Self::Heeded, Self::Finishing, Self::Over][usize::from(number)]
    }
}

/// How a question to stop was met.
enum Asked {
    /// No thread has taken the call, and now none will.
    BeforeStart,
    /// It is finishing.
    TooLate,
    /// Its return will decide, or has decided.
    InTime,
}

type Body<R> = Box<dyn FnOnce(&Stop) -> R + Send>;

/// What a call shares with its handle.
struct Call<R> {
    stop: Stop,
    /// The side that takes it decides: a thread, that the call is started; a termination, that it never is.
    body: Mutex<Option<Body<R>>>,
}

impl<R> Call<R> {
    /// Runs the call, on a thread of the pool, and reports in which phase it returned.
    fn run(&self) -> Option<(R, Phase)> {
        let body = lock(&self.body).take()?;
        let value = body(&self.stop);
        Some((value, self.stop.over()))
    }

    fn ask(&self) -> Asked {
        let body = lock(&self.body).take();
        if body.is_some() {
            // Dropped here and now, with the ends that it may hold.
            return Asked::BeforeStart;
        }
        self.stop.ask()
    }
}

/// Tells a blocking call whether it should stop. Threads that the call starts may look too.
pub struct Stop {
    /// A [`Phase`]. It becomes `Asked` under the lock of `waiting`.
    phase: AtomicU8,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    next_ticket: u64,
    wakers: Vec<(u64, Waker)>,
}

impl Stop {
    fn new() -> Self {
        Self { phase: AtomicU8::new(Phase::Running as u8), waiting: Mutex::default() }
    }

    /// Whether the call has been asked to stop. Cheap: a load. Once this has returned `true` the call counts
    /// as [terminated](Ended::Terminated), and what it returns is dropped.
    pub fn asked(&self) -> bool {
        self.leave(Phase::Asked, Phase::Heeded) || self.phase() == Phase::Heeded
    }

    /// Waits until the call is asked to stop: `true`, and it counts as seen. `false`: only with a deadline,
    /// that it has passed.
    ///
    /// # Cancel safety
    /// Dropped before it is ready, it has seen nothing.
    ///
    /// # Examples
    /// ```
    /// use dunlin::prelude::*;
    /// # dunlin::block_on(async {
    /// let beats = blocking(|stop| {
    ///     let mut beats = 0;
    ///     while !stop.requested().within(Duration::from_millis(1)).wait() {
    ///         beats += 1; // every millisecond, and it stops at once
    ///     }
    ///     println!("{beats} beats");
    /// });
    /// # while !dunlin::waits::snapshot().iter().any(|wait| wait.who == beats.pid()) {}
    /// assert!(matches!(beats.terminate().await, Ended::Terminated));
    /// # });
    /// ```
    #[track_caller]
    pub fn requested(&self) -> Requested<'_> {
        Requested { stop: self, ticket: None, made: Location::caller(), watch: Watch::default() }
    }

    /// Declares that from here on the call goes to its end: a request to stop after this returns at once
    /// ([`Ended::Finishing`]), and [`asked`](Self::asked) stays false. `false`: it has been asked already,
    /// counts as having seen it, and should stop.
    ///
    /// # Examples
    /// ```
    /// use dunlin::prelude::*;
    /// # dunlin::block_on(async {
    /// let (mut began, mut has_begun) = channel();
    /// let (mut tx, mut rx) = channel::<u8>();
    /// let writing = blocking(move |stop| {
    ///     let committed = stop.finishing();
    ///     began.send(committed).wait().unwrap();
    ///     rx.recv().wait().unwrap() // what must not be cut off
    /// });
    /// assert!(has_begun.recv().await.unwrap());
    /// let Ended::Finishing(writing) = writing.terminate().await else { panic!() };
    /// tx.send(7).await.unwrap();
    /// assert_eq!(writing.await.unwrap(), 7);
    /// # });
    /// ```
    pub fn finishing(&self) -> bool {
        self.leave(Phase::Running, Phase::Finishing) || !self.asked()
    }

    fn phase(&self) -> Phase {
        Phase::of(self.phase.load(Ordering::Acquire))
    }

    /// Goes from one phase to another, if it is in the one.
    fn leave(&self, from: Phase, to: Phase) -> bool {
        // The load first: it is what a call that looks in a loop pays.
        self.phase() == from
            && self.phase.compare_exchange(from as u8, to as u8, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    fn ask(&self) -> Asked {
        let mut waiting = lock(&self.waiting);
        if !self.leave(Phase::Running, Phase::Asked) {
            return if self.phase() == Phase::Finishing { Asked::TooLate } else { Asked::InTime };
        }
        let wakers = std::mem::take(&mut waiting.wakers);
        drop(waiting);
        wake_all(wakers.into_iter().map(|(_, waker)| waker));
        Asked::InTime
    }

    /// The call has returned; in which phase?
    fn over(&self) -> Phase {
        Phase::of(self.phase.swap(Phase::Over as u8, Ordering::AcqRel))
    }
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stop").field(&self.phase()).finish()
    }
}

/// The operation of [`Stop::requested`].
#[must_use = "an operation does nothing until it is awaited or chosen"]
pub struct Requested<'a> {
    stop: &'a Stop,
    ticket: Option<u64>,
    made: &'static Location<'static>,
    watch: Watch,
}

impl Requested<'_> {
    fn poll_asked(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        // Cloned before the lock is taken, and dropped after: a waker is a user's code.
        let waker = cx.waker().clone();
        let mut waiting = lock(&self.stop.waiting);
        if self.stop.asked() {
            return Poll::Ready(true);
        }
        let ticket = *self.ticket.get_or_insert_with(|| {
            waiting.next_ticket += 1;
            waiting.next_ticket
        });
        let old = match waiting.wakers.iter_mut().find(|(other, _)| *other == ticket) {
            Some((_, old)) => Some(std::mem::replace(old, waker)),
            None => {
                waiting.wakers.push((ticket, waker));
                None
            }
        };
        drop(waiting);
        drop(old);
        Poll::Pending
    }
}

impl Future for Requested<'_> {
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<bool> {
        let polled = self.poll_asked(cx);
        let made = self.made;
        self.watch.note(polled, Doing::Stop, Pid::OUTSIDE, made)
    }
}

impl Branch for Requested<'_> {
    type Output = bool;

    fn poll_branch(self: Pin<&mut Self>, cx: &mut Context<'_>, choice: &ChoiceCx) -> Poll<bool> {
        choice.poll_lasting(|| self.poll(cx))
    }

    fn unchosen(&self) {
        self.watch.end();
    }
}

impl Operation for Requested<'_> {
    fn poll_expire(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<bool> {
        Poll::Ready(false)
    }
}

impl Drop for Requested<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            let mut waiting = lock(&self.stop.waiting);
            let index = waiting.wakers.iter().position(|(other, _)| *other == ticket);
            let gone = index.map(|index| waiting.wakers.swap_remove(index));
            drop(waiting);
            drop(gone);
        }
    }
}

impl fmt::Debug for Requested<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Requested").field(self.stop).finish()
    }
}
