//! The first half of a broadcast's send: a branch that is chosen when enough receivers have joined. The
//! second half, the wait for these receivers, is what it returns.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::{Broadcast, Broadcasting, poll_begin};
use crate::budget;
use crate::channel::sender::Spare;
use crate::choice::ChoiceCx;
use crate::choice::branch::{Branch, Look};
use crate::error::{BroadcastError, Why};
use crate::operation::Operation;
use crate::waits::Watch;

impl<T: Clone> Broadcast<T> {
    /// Begins to send `value`: [`send`](Self::send) in two halves.
    ///
    /// It is ready when at least [the required number](Self::at_least) have joined, and returns the
    /// [`Broadcasting`], which offers the value to those that have joined when it is awaited. In a choice, `T`
    /// must be `Copy`: otherwise an unchosen branch would drop the value. Use
    /// [`begin_from`](Self::begin_from) there. A fair choice gives this branch its share by lot.
    ///
    /// # Errors
    /// [`BroadcastError`] with the value: as [`send`](Self::send), but without those of a receiver.
    ///
    /// # Cancel safety
    /// If it is dropped before it is ready, nothing has happened. The [`Broadcasting`] has the cancel safety
    /// of a send: dropped before it is awaited, no receiver gets the value.
    ///
    /// # Examples
    /// ```
    /// use dunlin_core::{alt, broadcast, channel, par};
    /// # dunlin_core::doc::block_on(async {
    /// let ((clock, joiner), (mut tx, mut rx)) = (broadcast(), channel());
    /// let mut clock = clock.at_least(1);
    /// // No receiver has joined yet.
    /// let (chosen, _) = par!(
    ///     async {
    ///         alt! { b = clock.begin(1) => b.is_ok(), _ = rx.recv() => false }
    ///     },
    ///     tx.send(()),
    /// );
    /// assert!(!chosen);
    ///
    /// let mut watch = joiner.join();
    /// let (sent, got) = par!(
    ///     async {
    ///         alt! { b = clock.begin(2) => b?.await, _ = rx.recv() => Ok(()) }
    ///     },
    ///     watch.recv(),
    /// );
    /// assert_eq!((sent, got), (Ok(()), Ok(2)));
    /// # });
    /// ```
    pub fn begin(&mut self, value: T) -> BeginningBroadcast<'_, T> {
        BeginningBroadcast { value: Some(value), opening: Opening::new(self) }
    }

    /// As [`begin`](Self::begin), with the value in `slot`, which is empty if and only if the send has begun.
    ///
    /// An empty slot has nothing to send: as a branch of a choice the operation is off.
    ///
    /// # Errors
    /// Those of [`begin`](Self::begin); the value is in `slot`.
    ///
    /// # Cancel safety
    /// If it is dropped before it is ready, the value is in `slot`.
    ///
    /// # Examples
    /// ```
    /// use dunlin_core::{alt, broadcast};
    /// # dunlin_core::doc::block_on(async {
    /// let (clock, _joiner) = broadcast();
    /// let (mut clock, mut slot) = (clock.at_least(1), Some("tick".to_string()));
    /// alt! { biased; begun = clock.begin_from(&mut slot) => drop(begun), skip => {} }
    /// assert_eq!(slot.as_deref(), Some("tick"));
    /// # });
    /// ```
    pub fn begin_from<'a>(&'a mut self, slot: &'a mut Option<T>) -> BeginningBroadcastFrom<'a, T> {
        BeginningBroadcastFrom { slot, opening: Opening::new(self) }
    }
}

/// A send that has not begun.
struct Opening<'a, T> {
    /// `None` once it has begun.
    broadcast: Option<&'a mut Broadcast<T>>,
    watch: Watch,
    /// It has been polled.
    again: bool,
}

impl<'a, T: Clone> Opening<'a, T> {
    fn new(broadcast: &'a mut Broadcast<T>) -> Self {
        Self { broadcast: Some(broadcast), watch: Watch::default(), again: false }
    }

    fn poll(&mut self, slot: &mut Option<T>, cx: &mut Context<'_>) -> Poll<Result<Broadcasting<'a, T>, Why>> {
        let broadcast = self.broadcast.as_deref().expect("a send that has begun is not polled again");
        let begun = ready!(poll_begin(broadcast, slot, &mut self.watch, cx));
        Poll::Ready(begun.map(|parts| {
            let broadcast = self.broadcast.take().expect("it was there before");
            let mut sending = Broadcasting::new(broadcast, slot.take());
            sending.parts = Some(parts);
            sending
        }))
    }

    fn poll_counted(&mut self, slot: &mut Option<T>, cx: &mut Context<'_>) -> Poll<Result<Broadcasting<'a, T>, Why>> {
        let again = std::mem::replace(&mut self.again, true);
        budget::counted(again, cx, |cx| self.poll(slot, cx))
    }
}

fn failed<T>(value: T, why: Why) -> BroadcastError<T> {
    BroadcastError { value, why, received: 0 }
}

/// The operation of [`Broadcast::begin`].
#[must_use = "an operation does nothing until it is awaited or chosen"]
pub struct BeginningBroadcast<'a, T> {
    value: Option<T>,
    opening: Opening<'a, T>,
}

// The value is never pinned: it moves through the channels.
impl<T> Unpin for BeginningBroadcast<'_, T> {}

impl<'a, T> BeginningBroadcast<'a, T> {
    fn outcome(&mut self, begun: Result<Broadcasting<'a, T>, Why>) -> Result<Broadcasting<'a, T>, BroadcastError<T>>
    where
        T: Clone,
    {
        begun.map_err(|why| failed(self.value.take().expect("it has not been sent"), why))
    }
}

impl<'a, T: Clone> Future for BeginningBroadcast<'a, T> {
    type Output = Result<Broadcasting<'a, T>, BroadcastError<T>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let begun = ready!(this.opening.poll_counted(&mut this.value, cx));
        Poll::Ready(this.outcome(begun))
    }
}

impl<'a, T: Clone + Spare> Branch for BeginningBroadcast<'a, T> {
    type Output = Result<Broadcasting<'a, T>, BroadcastError<T>>;

    fn poll_branch(self: Pin<&mut Self>, cx: &mut Context<'_>, choice: &ChoiceCx) -> Poll<Self::Output> {
        let this = self.get_mut();
        let begun = ready!(choice.poll_foreign(false, || this.opening.poll(&mut this.value, cx)));
        Poll::Ready(this.outcome(begun))
    }

    fn unchosen(&self) {
        self.opening.watch.end();
    }
}

impl<T: Clone> Operation for BeginningBroadcast<'_, T> {
    fn poll_expire(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(self.get_mut().outcome(Err(Why::TimedOut)))
    }
}

/// The operation of [`Broadcast::begin_from`].
#[must_use = "an operation does nothing until it is awaited or chosen"]
pub struct BeginningBroadcastFrom<'a, T> {
    slot: &'a mut Option<T>,
    opening: Opening<'a, T>,
}

impl<T> Unpin for BeginningBroadcastFrom<'_, T> {}

impl<'a, T: Clone> Future for BeginningBroadcastFrom<'a, T> {
    type Output = Result<Broadcasting<'a, T>, BroadcastError<()>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        this.opening.poll_counted(this.slot, cx).map_err(|why| failed((), why))
    }
}

impl<'a, T: Clone> Branch for BeginningBroadcastFrom<'a, T> {
    type Output = Result<Broadcasting<'a, T>, BroadcastError<()>>;

    fn poll_branch(self: Pin<&mut Self>, cx: &mut Context<'_>, choice: &ChoiceCx) -> Poll<Self::Output> {
        let this = self.get_mut();
        choice.poll_foreign(false, || this.opening.poll(this.slot, cx)).map_err(|why| failed((), why))
    }

    fn look(&self) -> Look {
        if self.slot.is_none() { Look::Off } else { Look::Maybe(None) }
    }

    fn unchosen(&self) {
        self.opening.watch.end();
    }
}

impl<T: Clone> Operation for BeginningBroadcastFrom<'_, T> {
    fn poll_expire(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Err(failed((), Why::TimedOut)))
    }
}

impl<T> fmt::Debug for BeginningBroadcast<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BeginningBroadcast").field(&self.opening.broadcast).finish()
    }
}

impl<T> fmt::Debug for BeginningBroadcastFrom<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BeginningBroadcastFrom").field(&self.opening.broadcast).finish()
    }
}
