//! What all operations on descriptors share: they are futures and branches, with deadlines and lines in the
//! wait records.

use std::fmt;
use std::future::Future;
use std::io;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};

use dunlin_core::__rt::ChoiceCx;
use dunlin_core::waits::{Doing, Pid, Watch};
use dunlin_core::{Branch, Operation};

use crate::world;

/// One step with the operating system, which waits or has its whole effect in one poll.
#[doc(hidden)]
pub trait Action: Unpin {
    /// The output on success.
    type Output;

    /// Performs the operation, or registers the waker and has no effect.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Self::Output>>;
}

/// The action of a future that has no effect until it is polled, and leaves none when it is dropped.
pub(super) struct Awaiting<F>(Pin<Box<F>>);

impl<F> Awaiting<F> {
    pub(super) fn new(future: F) -> Self {
        Self(Box::pin(future))
    }
}

impl<T, F: Future<Output = io::Result<T>>> Action for Awaiting<F> {
    type Output = T;

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        self.0.as_mut().poll(cx)
    }
}

/// The maximum bytes of one read of a stream, however many the caller accepts: their memory is allocated
/// before the system reports how many there are. By default, a pipe of Linux holds no more.
pub(super) const READ_MAX: usize = 1 << 20;

/// An operation on a socket: a read, a write, an accept, a connect. It does nothing until it is awaited or
/// chosen.
///
/// # Errors
/// Those of the system. With a deadline ([`within`](crate::Deadline::within)), when that passes:
/// [`TimedOut`](io::ErrorKind::TimedOut).
///
/// # Waits
/// The process that waits has a line in the [wait records](crate::waits): for [a descriptor](Doing::Ready).
#[must_use = "an operation does nothing until it is awaited or chosen"]
pub struct IoOperation<A> {
    action: A,
    made: &'static Location<'static>,
    watch: Watch,
}

impl<A: Action> IoOperation<A> {
    #[track_caller]
    pub(super) fn new(action: A) -> Self {
        Self { action, made: Location::caller(), watch: Watch::default() }
    }
}

impl<A: Action> Future for IoOperation<A> {
    type Output = io::Result<A::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let polled = match world::poll_budget(cx) {
            Poll::Ready(()) => this.action.poll(cx),
            Poll::Pending => Poll::Pending,
        };
        this.watch.note(polled, Doing::Ready, Pid::OUTSIDE, this.made)
    }
}

impl<A: Action> Branch for IoOperation<A> {
    type Output = io::Result<A::Output>;

    fn poll_branch(self: Pin<&mut Self>, cx: &mut Context<'_>, choice: &ChoiceCx) -> Poll<Self::Output> {
        choice.poll_foreign(false, || self.poll(cx))
    }

    fn unchosen(&self) {
        self.watch.end();
    }
}

impl<A: Action> Operation for IoOperation<A> {
    fn poll_expire(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<A> fmt::Debug for IoOperation<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IoOperation").field("made", &self.made).finish_non_exhaustive()
    }
}
