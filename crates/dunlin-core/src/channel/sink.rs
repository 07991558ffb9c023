//! A sender as a [`Sink`], for code that is written against that trait.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use futures_sink::Sink;

use super::MayPoison;
use super::sender::Sender;
use super::state::Post;
use crate::budget;
use crate::error::{SendError, Why};
use crate::handle::Handle;

/// A sender as a [`Sink`]: see [`Sender::into_sink`].
///
/// *Ready* means that the previous value has been received, *flushed* that all have (with a buffer:
/// admitted), and *closed* that the sender has left the channel after that. Errors hold the value that was
/// not sent.
///
/// Dropping it withdraws the last value, if that has not been received, and drops it.
pub struct SenderSink<T, P = MayPoison> {
    /// `None` once it is closed.
    sender: Option<Sender<T, P>>,
    post: Post,
    /// The value of the send in progress, before it is offered and after it returns.
    slot: Option<T>,
    /// The last `poll_ready` returned `Pending`.
    again: bool,
}

impl<T, P> Sender<T, P> {
    /// Makes this a [`Sink`](futures_sink::Sink), for code that is written against that trait.
    ///
    /// # Examples
    /// ```
    /// use dunlin_core::{channel, par};
    /// use futures_util::{StreamExt, stream};
    /// # dunlin_core::doc::block_on(async {
    /// let (tx, mut rx) = channel();
    /// let (forwarded, got) = par!(
    ///     stream::iter([1, 2, 3]).map(Ok).forward(tx.into_sink()),
    ///     async {
    ///         let mut got = vec![];
    ///         while let Some(n) = rx.next().await.unwrap() {
    ///             got.push(n);
    ///         }
    ///         got
    ///     },
    /// );
    /// assert_eq!((forwarded, got), (Ok(()), vec![1, 2, 3]));
    /// # });
    /// ```
    pub fn into_sink(self) -> SenderSink<T, P> {
        SenderSink::new(self)
    }
}

impl<T, P> SenderSink<T, P> {
    fn new(sender: Sender<T, P>) -> Self {
        Self { sender: Some(sender), post: Post::new(Handle::END), slot: None, again: false }
    }

    fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SendError<T>>> {
        let Some(sender) = &self.sender else { return Poll::Ready(Ok(())) };
        if self.slot.is_none() && !self.post.is_out() {
            return Poll::Ready(Ok(()));
        }
        let sent = std::task::ready!(sender.chan().poll_send_slowly(&mut self.post, &mut self.slot, cx));
        Poll::Ready(match (sent, self.slot.take()) {
            (Err(failed), Some(value)) => Err(failed.with(value)),
            _ => Ok(()),
        })
    }
}

// The value is never pinned: it moves through the channel.
impl<T, P> Unpin for SenderSink<T, P> {}

impl<T, P> Sink<T> for SenderSink<T, P> {
    type Error = SendError<T>;

    fn poll_ready(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SendError<T>>> {
        let this = self.get_mut();
        let polled = budget::counted(this.again, cx, |cx| this.poll_sent(cx));
        this.again = polled.is_pending();
        polled
    }

    /// Offers the value, and wakes a waiting receiver.
    ///
    /// # Panics
    /// If the sink is not ready: the previous value would be lost.
    #[track_caller]
    fn start_send(self: Pin<&mut Self>, value: T) -> Result<(), SendError<T>> {
        let this = self.get_mut();
        if this.sender.is_none() {
            return Err(SendError::NotTaken { value, why: Why::Closed });
        }
        assert!(
            this.slot.is_none() && !this.post.is_out(),
            "`start_send` on a sink that is not ready: `poll_ready` first"
        );
        this.slot = Some(value);
        match this.poll_sent(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(sent) => sent,
            Poll::Pending => Ok(()),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SendError<T>>> {
        self.get_mut().poll_sent(cx)
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SendError<T>>> {
        let this = self.get_mut();
        let sent = std::task::ready!(this.poll_sent(cx));
        this.sender = None;
        Poll::Ready(sent)
    }
}

impl<T, P> Drop for SenderSink<T, P> {
    fn drop(&mut self) {
        if let Some(sender) = &self.sender {
            sender.chan().abandon(&mut self.post, &mut self.slot);
        }
    }
}

impl<T, P> fmt::Debug for SenderSink<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SenderSink").field(&self.sender).finish()
    }
}
