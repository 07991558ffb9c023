//! Buckets: processes fall in and wait; a flush releases all that are in it.
//!
//! - [`inside`]: what is in the bucket, and the flushes of it.
//! - here: the two ends, and their operations.

mod inside;

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use inside::Inside;

use crate::budget;
use crate::choice::ChoiceCx;
use crate::choice::branch::{Branch, Look};
use crate::error::{BucketError, Reason};
use crate::operation::Operation;
use crate::waits::Recorded;

/// Makes a bucket: its [`Flusher`], and a [`Bucket`] to fall into.
///
/// A process that falls in waits until a flush. A flush never waits for processes: it releases those that are
/// in the bucket, and says how many they were. Use a [`barrier`](crate::barrier()) where all must come.
///
/// Clone the `Bucket` for every process that may fall in, and the `Flusher` for every process that may flush.
/// A bucket is local: neither end can be sent to another node.
///
/// # Examples
/// ```
/// use dunlin_core::{BucketError, bucket, par};
/// # dunlin_core::doc::block_on(async {
/// let (flusher, mut first) = bucket();
/// let mut second = first.clone();
/// let (a, b, flushed) = par!(first.fall_in(), second.fall_in(), flusher.flush());
/// assert_eq!((a, b, flushed), (Ok(()), Ok(()), Ok(2)));
/// assert_eq!(flusher.flush().await, Ok(0));
///
/// drop(flusher);
/// assert_eq!(first.fall_in().await, Err(BucketError::Closed));
/// # });
/// ```
///
/// # Source
/// Buckets of JCSP and C++CSP (Brown and Welch, 2003).
#[track_caller]
pub fn bucket() -> (Flusher, Bucket) {
    let inside = Arc::new(Inside::new(Location::caller()));
    (Flusher { inside: inside.clone() }, Bucket::new(inside))
}

/// A place to wait for a flush: see [`bucket`]. Each clone is a place for one process.
pub struct Bucket {
    record: Recorded,
    inside: Arc<Inside>,
    /// The ticket of the fall that stands, also of one that was forgotten (`mem::forget`).
    ticket: Option<u64>,
}

impl Bucket {
    fn new(inside: Arc<Inside>) -> Self {
        Self { record: Recorded::wait(inside.made()), inside, ticket: None }
    }

    /// Falls in, and waits until a flush.
    ///
    /// As a branch of a choice it is an offer, like that of a send: a flush releases it together with the
    /// choice, or the choice takes another branch, and no flush has counted it. It is never ready at once, so
    /// a choice with a `skip` does not take it.
    ///
    /// # Errors
    /// [`BucketError::TimedOut`] with a deadline: then no flush has released it;
    /// [`BucketError::Closed`] when all flushers have been dropped;
    /// [`BucketError::Poisoned`] when a flusher has poisoned the bucket.
    ///
    /// # Cancel safety
    /// If it is dropped before it is ready, it is no longer in the bucket. If a flush released it before the
    /// drop, that flush counted it.
    ///
    /// # Examples
    /// ```
    /// use dunlin_core::{alt, bucket, channel, par};
    /// # dunlin_core::doc::block_on(async {
    /// let ((flusher, mut bucket), (_tx, mut rx)) = (bucket(), channel::<u8>());
    /// let (chosen, flushed) = par!(
    ///     async {
    ///         alt! {
    ///             r = bucket.fall_in() => { r.unwrap(); "flushed" }
    ///             _ = rx.recv() => "received",
    ///         }
    ///     },
    ///     flusher.flush(),
    /// );
    /// assert_eq!((chosen, flushed), ("flushed", Ok(1)));
    /// # });
    /// ```
    pub fn fall_in(&mut self) -> Falling<'_> {
        // A fall that was forgotten ends here.
        self.leave();
        Falling { bucket: self, again: false }
    }

    /// How many are in the bucket now.
    pub fn holding(&self) -> usize {
        self.inside.holding()
    }

    fn leave(&mut self) -> bool {
        self.inside.leave(&mut self.ticket, self.record.entry())
    }
}

impl Clone for Bucket {
    fn clone(&self) -> Self {
        Self::new(self.inside.clone())
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        self.leave();
    }
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show("Bucket", &self.inside, f)
    }
}

/// Releases all that are in a bucket: see [`bucket`].
///
/// When the last flusher is dropped, all that are in the bucket, and all that fall in later, get
/// [`BucketError::Closed`].
pub struct Flusher {
    inside: Arc<Inside>,
}

impl Flusher {
    /// Releases all that are in the bucket when it begins, and returns how many it released.
    ///
    /// It waits for no process to fall in. It waits only for a choice that is in the bucket and may be about
    /// to take another branch: one that is being polled on another thread, or whose offer a receiver at
    /// another node has reserved. If that choice takes the other branch, it is not counted. What falls in
    /// meanwhile stays for the next flush.
    ///
    /// # Errors
    /// [`BucketError::Poisoned`], if the bucket was poisoned before.
    ///
    /// # Cancel safety
    /// If it is dropped before it is ready, some have been released, and the others are still in the bucket.
    ///
    /// # Examples
    /// ```
    /// use dunlin_core::bucket;
    /// # dunlin_core::doc::block_on(async {
    /// let (flusher, _bucket) = bucket();
    /// assert_eq!(flusher.flush().await, Ok(0));
    /// # });
    /// ```
    pub fn flush(&self) -> Flushing<'_> {
        Flushing { flusher: self, number: None, again: false }
    }

    /// How many are in the bucket now.
    pub fn holding(&self) -> usize {
        self.inside.holding()
    }

    /// Ends the bucket: all that are in it, all that fall in later, and all flushes fail with `reason`. The
    /// first poison stays.
    ///
    /// # Examples
    /// ```
    /// use dunlin_core::{BucketError, bucket};
    /// # dunlin_core::doc::block_on(async {
    /// let (flusher, mut bucket) = bucket();
    /// flusher.poison("no more");
    /// let Err(BucketError::Poisoned(reason)) = bucket.fall_in().await else { unreachable!() };
    /// assert_eq!(reason.as_str(), "no more");
    /// # });
    /// ```
    pub fn poison(&self, reason: impl Into<Reason>) {
        self.inside.poison(reason.into());
    }
}

impl Clone for Flusher {
    fn clone(&self) -> Self {
        self.inside.add_flusher();
        Self { inside: self.inside.clone() }
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        self.inside.remove_flusher();
    }
}

impl fmt::Debug for Flusher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show("Flusher", &self.inside, f)
    }
}

fn show(name: &str, inside: &Inside, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let made = inside.made().to_string();
    f.debug_struct(name).field("made", &format_args!("{made}")).field("holding", &inside.holding()).finish()
}

/// The operation of [`Bucket::fall_in`].
#[must_use = "an operation does nothing until it is awaited or chosen"]
pub struct Falling<'a> {
    bucket: &'a mut Bucket,
    /// It has been polled.
    again: bool,
}

impl Falling<'_> {
    fn poll_fall(&mut self, cx: &mut Context<'_>, choice: Option<&ChoiceCx>) -> Poll<Result<(), BucketError>> {
        let Bucket { record, inside, ticket } = &mut *self.bucket;
        inside.poll_fall(ticket, record.entry(), cx, choice)
    }
}

impl Future for Falling<'_> {
    type Output = Result<(), BucketError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let again = std::mem::replace(&mut this.again, true);
        budget::counted(again, cx, |cx| this.poll_fall(cx, None))
    }
}

impl Branch for Falling<'_> {
    type Output = Result<(), BucketError>;

    fn poll_branch(self: Pin<&mut Self>, cx: &mut Context<'_>, choice: &ChoiceCx) -> Poll<Self::Output> {
        self.get_mut().poll_fall(cx, Some(choice))
    }

    fn look(&self) -> Look {
        let turn = Some(self.bucket.record.receiver.turn());
        if self.bucket.inside.seems_ready(self.bucket.ticket) { Look::Maybe(turn) } else { Look::Empty(turn) }
    }

    fn chosen(&self, turn: u32) {
        self.bucket.record.receiver.set_turn(turn);
    }
}

impl Operation for Falling<'_> {
    fn poll_expire(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let left = self.get_mut().bucket.leave();
        Poll::Ready(if left { Err(BucketError::TimedOut) } else { Ok(()) })
    }
}

impl Drop for Falling<'_> {
    fn drop(&mut self) {
        self.bucket.leave();
    }
}

impl fmt::Debug for Falling<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Falling").field(self.bucket).finish()
    }
}

/// The future of [`Flusher::flush`].
#[must_use = "a flush does nothing until it is awaited"]
pub struct Flushing<'a> {
    flusher: &'a Flusher,
    /// The number of the flush, while it waits for choices.
    number: Option<u64>,
    /// It has been polled.
    again: bool,
}

impl Future for Flushing<'_> {
    type Output = Result<usize, BucketError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let again = std::mem::replace(&mut this.again, true);
        budget::counted(again, cx, |cx| this.flusher.inside.poll_flush(&mut this.number, cx))
    }
}

impl Drop for Flushing<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.flusher.inside.forget_flush(number);
        }
    }
}

impl fmt::Debug for Flushing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Flushing").field(self.flusher).finish()
    }
}
