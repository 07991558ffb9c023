//! A broadcast send whose wait for the remaining receivers is bounded.
//!
//! When its bound passes, the send withdraws the value from all of them. A value in a channel at this node is
//! returned at once. A value that an agent holds is recalled, and the answer takes a round trip, or never
//! arrives: so that wait has a bound too.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::{Broadcasting, Part};
use crate::channel::sender::expire;
use crate::error::{CompleteError, Failed, Why};
use crate::operation::Operation;

pin_project_lite::pin_project! {
    /// The operation of [`Broadcasting::complete_until`].
    #[must_use = "an operation does nothing until it is awaited"]
    pub struct Completing<'a, T: Clone, D, A> {
        sending: Broadcasting<'a, T>,
        #[pin]
        bound: D,
        #[pin]
        answers: A,
        // The bound has passed.
        passed: bool,
    }
}

impl<'a, T: Clone> Broadcasting<'a, T> {
    /// Waits for the remaining receivers only until `bound` is ready. `bound` is polled once the value has
    /// been offered to all of them.
    ///
    /// The value is then withdrawn from the receivers that have not received it, and they never get it. A
    /// receiver at another node is asked, and the send waits for its answer until `answers` is ready, which
    /// is polled from then on. If it does not answer, it is unknown whether it has received the value. All of
    /// them are still joined, and the next value goes to them too.
    ///
    /// `complete_within(duration)` of the crate `dunlin` passes timers. A deadline on this operation ends the
    /// wait for [enough receivers](crate::Broadcast::at_least), as without this bound.
    ///
    /// # Errors
    /// [`CompleteError::Incomplete`] when some have not received the value, with how many have, how many
    /// never will, and for how many that is unknown; [`CompleteError::Failed`] for the errors of a
    /// [send](crate::Broadcast::send) without this bound.
    ///
    /// # Cancel safety
    /// That of [`send`](crate::Broadcast::send).
    ///
    /// # Examples
    /// ```
    /// use dunlin_core::{CompleteError, broadcast, par};
    /// use std::future::ready;
    /// # dunlin_core::doc::block_on(async {
    /// let (mut clock, joiner) = broadcast();
    /// let (mut quick, mut slow) = (joiner.join(), joiner.join());
    /// // The bound: when the quick one has received the value.
    /// let (mut rings, mut bell) = dunlin_core::channel();
    /// let (sent, ()) = par!(clock.send(1).complete_until(bell.recv(), ready(())), async {
    ///     assert_eq!(quick.recv().await, Ok(1));
    ///     rings.send(()).await.unwrap();
    /// });
    /// let Err(CompleteError::Incomplete { received, withdrawn, unknown, .. }) = sent else {
    ///     unreachable!()
    /// };
    /// assert_eq!((received, withdrawn, unknown), (1, 1, 0));
    ///
    /// // The slow one never gets it, but the next one.
    /// let (sent, _, got) = par!(clock.send(2), quick.recv(), slow.recv());
    /// assert_eq!((sent, got), (Ok(()), Ok(2)));
    /// # });
    /// ```
    pub fn complete_until<D: Future, A: Future>(self, bound: D, answers: A) -> Completing<'a, T, D, A> {
        Completing { sending: self, bound, answers, passed: false }
    }

    /// Ends the wait for the remaining receivers.
    fn give_up(&mut self) -> Result<(), CompleteError<T>> {
        let mut left = self.parts.replace(Vec::new()).unwrap_or_default();
        let unknown = left.len();
        left.iter_mut().for_each(Part::abandon);
        if matches!(self.why, Some(Why::Poisoned(_))) || self.withdrawn + unknown == 0 {
            return self.end().map_err(CompleteError::Failed);
        }
        match self.value.take() {
            Some(value) => Err(CompleteError::Incomplete {
                value,
                received: self.received,
                withdrawn: self.withdrawn + self.refused,
                unknown,
            }),
            None => Ok(()),
        }
    }
}

impl<T> Part<T> {
    /// Takes the value back, or waits for the answer of an agent that has it.
    fn poll_expire(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        // A result that the part already has comes first: a withdrawal would not report that its node is
        // lost.
        if let Poll::Ready(sent) = self.chan.poll_send_slowly(&mut self.post, &mut self.value, cx) {
            return Poll::Ready(sent);
        }
        let polled = expire(&self.chan, &mut self.post, &mut self.value, cx);
        if polled.is_pending() && self.chan.is_held(&self.post) {
            // An extended receive has returned the value, so there is nothing to wait for.
            self.abandon();
            return Poll::Ready(Ok(()));
        }
        polled
    }
}

impl<T: Clone, D: Future, A: Future> Future for Completing<'_, T, D, A> {
    type Output = Result<(), CompleteError<T>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if !*this.passed {
            if let Poll::Ready(sent) = Pin::new(&mut *this.sending).poll(cx) {
                return Poll::Ready(sent.map_err(CompleteError::Failed));
            }
            if this.sending.parts.is_none() {
                return Poll::Pending;
            }
            std::task::ready!(this.bound.poll(cx));
            *this.passed = true;
        }
        if !this.sending.poll_parts(cx, Part::poll_expire) {
            std::task::ready!(this.answers.poll(cx));
        }
        Poll::Ready(this.sending.give_up())
    }
}

impl<T: Clone, D: Future, A: Future> Operation for Completing<'_, T, D, A> {
    fn poll_expire(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.as_mut().project();
        if this.sending.parts.is_some() {
            return self.poll(cx);
        }
        Pin::new(this.sending).poll_expire(cx).map_err(CompleteError::Failed)
    }
}

impl<T: Clone, D, A> fmt::Debug for Completing<'_, T, D, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completing").field("sending", &self.sending).field("passed", &self.passed).finish()
    }
}
