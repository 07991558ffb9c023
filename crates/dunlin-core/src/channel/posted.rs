//! A posted value: its send continues without a task that waits for it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::state::Chan;
use crate::budget;
use crate::choice::ChoiceCx;
use crate::choice::branch::Branch;
use crate::error::SendError;
use crate::handle::Handle;
use crate::operation::Operation;
use crate::turn::Turn;
use crate::waits::{Doing, Recorded};

/// A value posted with [`Sender::send_nowait`](crate::Sender::send_nowait): it can be inspected, awaited,
/// chosen over `&mut` it, or [cancelled](Self::cancel).
///
/// Awaiting it returns the result that a [`send`](crate::Sender::send) would have returned. As a branch of a
/// choice it is ready when that result is known.
///
/// # Cancel safety
/// Dropping it, at any time, detaches the value. The value stays offered until it is received or the channel
/// ends, even if the sender is dropped; [`detach`](Self::detach) does the same explicitly. A process that
/// needs the outcome keeps the handle.
#[must_use = "a dropped handle detaches its value: call `detach` if the outcome does not matter"]
pub struct Posted<T> {
    state: State<T>,
    /// Created when a task first has to wait for the outcome.
    record: Option<Recorded>,
    /// It has been polled before.
    again: bool,
}

enum State<T> {
    Out(Arc<Chan<T>>, u64),
    /// `None` once the outcome has been returned.
    Done(Option<Result<(), SendError<T>>>),
}

impl<T> Posted<T> {
    pub(crate) fn new(chan: &Arc<Chan<T>>, handle: Handle, value: T) -> Self {
        let state = match chan.post(handle, value) {
            Ok(Some(ticket)) => State::Out(chan.clone(), ticket),
            Ok(None) => State::Done(Some(Ok(()))),
            Err(error) => State::Done(Some(Err(error))),
        };
        Self { state, record: None, again: false }
    }

    /// Looks up the outcome. `Ready`: the send has ended.
    fn poll_state(&mut self, waker: &Waker) -> Poll<()> {
        if let State::Out(chan, ticket) = &self.state {
            let outcome = std::task::ready!(chan.poll_posted(*ticket, waker));
            self.finish(outcome);
        }
        Poll::Ready(())
    }

    fn finish(&mut self, outcome: Result<(), SendError<T>>) {
        self.state = State::Done(Some(outcome));
        self.record = None;
    }

    /// Like [`poll_state`](Self::poll_state), with a record of the wait.
    fn poll_waiting(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let polled = self.poll_state(cx.waker());
        if let State::Out(chan, _) = &self.state {
            let record = self.record.get_or_insert_with(|| chan.record_for_handle());
            record.sender.begin(Doing::Send);
        }
        polled
    }

    fn take(&mut self) -> Option<Result<(), SendError<T>>> {
        if let State::Done(outcome) = &mut self.state { outcome.take() } else { None }
    }

    /// Withdraws the value. If it is not back yet, the answer follows.
    fn withdraw(&mut self) {
        if let State::Out(chan, ticket) = &self.state
            && let Some(back) = chan.withdraw_posted(*ticket)
        {
            let why = chan.send_timed_out();
            self.finish(back.map_or(Ok(()), |value| Err(SendError::NotTaken { value, why })));
        }
    }

    /// Whether the send has ended: the value was received or admitted by a buffer, or the send failed.
    pub fn is_done(&self) -> bool {
        if let State::Out(chan, ticket) = &self.state { chan.is_posted_done(*ticket) } else { true }
    }

    /// The outcome, if it is known. `None`: the value is still offered, or the outcome has been taken
    /// already.
    ///
    /// # Examples
    /// ```
    /// use dunlin_core::channel;
    /// let (mut tx, mut rx) = channel();
    /// let mut posted = tx.send_nowait("krill");
    /// assert_eq!(posted.try_outcome(), None);
    /// assert_eq!(rx.try_recv(), Ok("krill"));
    /// assert_eq!(posted.try_outcome(), Some(Ok(())));
    /// ```
    pub fn try_outcome(&mut self) -> Option<Result<(), SendError<T>>> {
        let _ = self.poll_state(Waker::noop());
        self.take()
    }

    /// Detaches the value: it stays offered, and is dropped if the channel ends before it is received.
    pub fn detach(self) {}

    /// Withdraws the value. `None`: too late, it has been received (or admitted by a buffer).
    ///
    /// With both ends in one program this does not wait, unless an extended receive holds the value; with the
    /// receiver on another node it asks that node.
    ///
    /// # Errors
    /// Those of [`send`](crate::Sender::send), if the send failed for another reason; the error holds the
    /// value.
    ///
    /// # Cancel safety
    /// Dropped while it waits for the answer, it drops the value, unless that has been received.
    ///
    /// # Panics
    /// If the outcome has been taken already.
    ///
    /// # Examples
    /// ```
    /// # dunlin_core::doc::block_on(async {
    /// let (mut tx, _rx) = dunlin_core::channel();
    /// let posted = tx.send_nowait("krill");
    /// assert_eq!(posted.cancel().await, Ok(Some("krill")));
    /// # });
    /// ```
    pub async fn cancel(mut self) -> Result<Option<T>, SendError<T>> {
        let mut asked = false;
        let outcome = std::future::poll_fn(|cx| {
            if self.poll_state(cx.waker()).is_pending() && !std::mem::replace(&mut asked, true) {
                self.withdraw();
            }
            Pin::new(&mut self).poll(cx)
        });
        match outcome.await {
            Ok(()) => Ok(None),
            Err(SendError::NotTaken { value, why }) if why.is_timed_out() => Ok(Some(value)),
            Err(error) => Err(error),
        }
    }
}

// The value is never pinned: it moves through the channel.
impl<T> Unpin for Posted<T> {}

impl<T> Future for Posted<T> {
    type Output = Result<(), SendError<T>>;

    /// # Panics
    /// If the outcome has been taken already.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let again = std::mem::replace(&mut this.again, true);
        std::task::ready!(budget::counted(again, cx, |cx| this.poll_waiting(cx)));
        Poll::Ready(this.take().expect("a post that has given its outcome was polled again"))
    }
}

impl<T> Branch for Posted<T> {
    type Output = Result<(), SendError<T>>;

    fn poll_branch(self: Pin<&mut Self>, cx: &mut Context<'_>, choice: &ChoiceCx) -> Poll<Self::Output> {
        let this = self.get_mut();
        std::task::ready!(choice.poll_lasting(|| this.poll_waiting(cx)));
        Poll::Ready(this.take().expect("a post that has given its outcome was polled again"))
    }

    fn unchosen(&self) {
        if let Some(record) = &self.record {
            record.sender.end();
        }
    }
}

impl<T> Operation for Posted<T> {
    fn poll_expire(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.withdraw();
        self.poll(cx)
    }

    fn turn(&self) -> Turn {
        if let State::Out(chan, ticket) = &self.state { chan.turn(*ticket) } else { Turn::Over }
    }
}

impl<T> Drop for Posted<T> {
    fn drop(&mut self) {
        if let State::Out(chan, ticket) = &self.state {
            chan.detach(*ticket);
        }
    }
}

impl<T> fmt::Debug for Posted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.state {
            State::Out(chan, _) => f.debug_tuple("Posted").field(&chan.record.id()).finish(),
            State::Done(outcome) => f.debug_tuple("Posted").field(outcome).finish(),
        }
    }
}
