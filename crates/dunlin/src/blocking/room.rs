//! Waiting until the pool can take a call.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use dunlin_core::__rt::ChoiceCx;
use dunlin_core::Branch;
use dunlin_core::waits::{Doing, Pid, Watch};

use super::handle::{Blocking, start};
use super::pool::{Pool, Seat};
use super::stop::Stop;

/// Waits until the pool can take a call, and keeps its place: a thread, or one of the 4,096 places in the
/// queue.
///
/// Waits are served in the order in which they began. It can be a branch of a choice.
///
/// # Cancel safety
/// Dropped, it loses its place in the line.
///
/// # Waits
/// The process that waits has a line in the [wait records](crate::waits): for [room](Doing::Room).
///
/// # Examples
/// ```
/// use dunlin::prelude::*;
/// # dunlin::block_on(async {
/// let (_tx, mut rx) = channel::<u8>();
/// alt! {
///     place = blocking::room() => assert_eq!(place.blocking(|_| 6 * 7).await.unwrap(), 42),
///     n = rx.recv() => panic!("{n:?}"),
/// }
/// # });
/// ```
#[track_caller]
pub fn room() -> Room {
    Room { pool: Pool::current(), ticket: None, made: Location::caller(), watch: Watch::default() }
}

/// The operation of [`room`].
#[must_use = "an operation does nothing until it is awaited or chosen"]
pub struct Room {
    pool: Arc<Pool>,
    ticket: Option<u64>,
    made: &'static Location<'static>,
    watch: Watch,
}

impl Room {
    /// For an operation that has a wait record itself, and may leave this one waiting.
    pub(crate) fn poll_unseen(&mut self, cx: &Context<'_>) -> Poll<Reserved> {
        self.pool.poll_seat(&mut self.ticket, cx).map(|seat| Reserved { pool: self.pool.clone(), seat })
    }
}

impl Future for Room {
    type Output = Reserved;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Reserved> {
        let polled = self.poll_unseen(cx);
        let made = self.made;
        self.watch.note(polled, Doing::Room, Pid::OUTSIDE, made)
    }
}

impl Branch for Room {
    type Output = Reserved;

    fn poll_branch(self: Pin<&mut Self>, cx: &mut Context<'_>, choice: &ChoiceCx) -> Poll<Reserved> {
        choice.poll_foreign(false, || self.poll(cx))
    }

    fn unchosen(&self) {
        self.watch.end();
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if self.ticket.is_some() {
            self.pool.leave_line(&mut self.ticket);
        }
    }
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room").field("made", &self.made).finish_non_exhaustive()
    }
}

/// A place for one call: given by [`room`]. Dropped, it is free for others.
#[must_use = "the place is released when this is dropped"]
pub struct Reserved {
    pool: Arc<Pool>,
    seat: Seat,
}

impl Reserved {
    /// Starts a call as [`blocking`](super::blocking()) does. It is not refused for lack of room.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[track_caller]
    pub fn blocking<R, F>(self, call: F) -> Blocking<R>
    where
        F: FnOnce(&Stop) -> R + Send + 'static,
        R: Send + 'static,
    {
        crate::world::needs_runtime("a blocking call was started");
        start(Box::new(call), self.pool, Some(self.seat), Location::caller())
    }
}

impl fmt::Debug for Reserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reserved").finish_non_exhaustive()
    }
}
