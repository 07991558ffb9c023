//! The handle of a blocking call, and the outcome of a call that is terminated.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use dunlin_core::__rt::ChoiceCx;
use dunlin_core::waits::{Doing, Pid, Watch};
use dunlin_core::{Branch, Operation};

use super::call::{Call, Outcome};
use super::phase::{Asked, Phase};
use super::pool::{Pool, Seat};
use super::refused::Body;
use crate::{Error, Exit, ExitReason};

/// Starts `body` on a thread of `pool`.
pub(super) fn start<R: Send + 'static>(
    body: Body<R>,
    pool: Arc<Pool>,
    seat: Option<Seat>,
    made: &'static Location<'static>,
) -> Blocking<R> {
    crate::time::keep_ticking();
    let call = Call::submit(body, pool, seat, made);
    let pid = call.pid;
    Blocking { call, pid, made, watch: Watch::default() }
}

/// A blocking call that was begun by [`blocking`](super::blocking()): await it for its result.
///
/// Dropping the handle asks the call to stop and abandons it: if it has not started it never will. If it runs
/// on, its result is dropped, and [`calls`](super::calls) lists it until then.
///
/// # Errors
/// [`Error::Exit`], with the panic's text if the call panicked, or as cancelled if the runtime ended before
/// the call started. [`Error::Refused`], with the call, if it was not taken. [`Error::CallTimedOut`] at a
/// deadline.
///
/// # Deadlines
/// `call.within(duration)` drops the handle at the deadline, so the call is asked to stop. `(&mut call)
/// .within(duration)` only ends the wait: the call goes on, and its result stays until it is taken.
///
/// # Cancel safety
/// Awaiting through `&mut` loses nothing: the result stays until it is taken.
///
/// # Panics
/// When polled again after it was ready.
///
/// # Waits
/// The process that awaits it has a line in the [wait records](crate::waits). The call is a process of its
/// own there. While it is queued it waits for [a thread](Doing::Thread).
///
/// # Examples
/// ```
/// use dunlin::prelude::*;
/// # dunlin::block_on(async {
/// let (mut tx, mut rx) = channel();
/// let mut call = blocking(move |_| rx.recv().wait());
/// let late = (&mut call).within(Duration::from_millis(1)).await;
/// assert!(matches!(late, Err(Error::CallTimedOut)));
/// tx.send(7).await.unwrap();
/// assert_eq!(call.within(Duration::from_secs(5)).await.unwrap(), Ok(7));
/// # });
/// ```
#[must_use = "dropping the handle asks the call to stop"]
pub struct Blocking<R> {
    call: Arc<Call<R>>,
    pid: Pid,
    made: &'static Location<'static>,
    watch: Watch,
}

/// The outcome of a blocking call that was [terminated](Blocking::terminate).
#[derive(Debug)]
#[non_exhaustive]
pub enum Ended<R> {
    /// It had returned before it was asked to stop.
    AlreadyFinished(R),
    /// It was asked, saw that, and then returned: the result may be a part of its work.
    Terminated(R),
    /// It was asked, but returned without having seen that: the result is all of its work.
    JustFinished(R),
    /// Before it was asked it had declared that it is [finishing](super::Stop::finishing). Await it for its
    /// output.
    Finishing(Blocking<R>),
    /// It had not started, and now it never will.
    NeverStarted,
    /// It was asked, and the deadline of the termination has passed. It is in [`calls`](super::calls), and
    /// occupies its thread, until it returns. It may be awaited, or terminated again.
    Abandoned(Blocking<R>),
    /// It panicked, before or after it was asked, or what [cleans up](super::Stop::on_cut) after it did.
    Panicked(Exit),
}

impl<R> Blocking<R> {
    /// Asks the call to stop and waits for the outcome.
    ///
    /// A call that neither checks nor returns keeps this waiting. With a deadline (`.within(duration)`), the
    /// call is then returned as [`Ended::Abandoned`].
    ///
    /// # Cancel safety
    /// Once polled, the call has been asked. Awaiting through `&mut`, or a choice over `&mut`, loses nothing.
    /// Dropped, the call is abandoned, as by dropping the handle.
    ///
    /// # Panics
    /// If the result has been taken.
    ///
    /// # Examples
    /// ```
    /// use dunlin::prelude::*;
    /// # dunlin::block_on(async {
    /// let (mut tx, mut rx) = channel::<u8>();
    /// let stubborn = blocking(move |_| rx.recv().wait()); // it never checks
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

    /// Whether the call has ended.
    pub fn is_finished(&self) -> bool {
        self.call.is_over()
    }

    /// For an operation that has a wait record itself, and may leave this one waiting.
    #[cfg(all(unix, feature = "io"))]
    pub(crate) fn poll_unseen(&mut self, cx: &mut Context<'_>) -> Poll<Result<R, Error>> {
        self.call.poll_taken(cx).map(|outcome| self.result(outcome))
    }

    fn result(&self, outcome: Outcome<R>) -> Result<R, Error> {
        match outcome {
            Outcome::Returned(value, _) => Ok(value),
            Outcome::Panicked(reason) => Err(self.exit(reason).into()),
            Outcome::NotRun(None) => Err(self.exit(ExitReason::Cancelled).into()),
            Outcome::NotRun(Some(refused)) => Err(Error::Refused(refused)),
        }
    }

    fn poll_outcome(&mut self, cx: &mut Context<'_>) -> Poll<Outcome<R>> {
        let polled = self.call.poll_taken(cx);
        self.watch.note(polled, Doing::Return, self.pid, self.made)
    }

    fn exit(&self, reason: ExitReason) -> Exit {
        Exit::new(crate::Pid::nowhere(self.pid), None, reason)
    }
}

impl<R> Future for Blocking<R> {
    type Output = Result<R, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_outcome(cx).map(|outcome| self.result(outcome))
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

impl<R> Operation for Blocking<R> {
    fn poll_expire(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Err(Error::CallTimedOut))
    }
}

impl<R> Operation for &mut Blocking<R> {
    fn poll_expire(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        self.watch.end();
        Poll::Ready(Err(Error::CallTimedOut))
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
#[must_use = "the call is not asked to stop until this is awaited"]
pub struct Terminating<R> {
    /// `None` once the outcome is known.
    job: Option<Blocking<R>>,
    asked: bool,
}

// The call's result is never pinned.
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
        job.call.list_as_abandoned();
        Poll::Ready(Ended::Abandoned(job))
    }
}

impl<R> fmt::Debug for Terminating<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Terminating").field(&self.job).finish()
    }
}
