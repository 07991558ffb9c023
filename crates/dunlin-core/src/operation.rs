//! What all operations on ends have in common: each is a future, can be a branch of a choice, and takes a
//! deadline.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::budget;
use crate::choice::ChoiceCx;
use crate::choice::branch::{Branch, Look};
use crate::turn::{self, Turn};

/// An operation on an end: a send, a receive, a claim, a call.
///
/// An operation does nothing until it is awaited or chosen. Dropping it before it is ready leaves no effect.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an operation, and has no deadline of its own",
    note = "in a choice, a timer bounds any future: `alt! {{ x = future(f) => .., _ = sleep(patience) => .. }}`"
)]
pub trait Operation: Future + Sized {
    /// Ends the operation because its deadline has passed: withdraws its offer and returns the outcome.
    /// `Pending` only while the outcome is unknown.
    #[doc(hidden)]
    fn poll_expire(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output>;

    /// Whether this operation has woken receivers that should be polled before a zero deadline ends it.
    #[doc(hidden)]
    fn turn(&self) -> Turn {
        Turn::Over
    }

    /// Runs this operation until `deadline` is ready, and then fails it with a timeout error. A send that
    /// times out returns its value, and no receive has taken it.
    ///
    /// The crate `dunlin` adds `.within(duration)` and `.by(instant)`; this core has no clock. The deadline
    /// bounds only the wait for the other side to take part: a send whose value an extended receive has taken
    /// waits until the release.
    ///
    /// # Cancel safety
    /// The same as the operation's own.
    ///
    /// # Examples
    /// ```
    /// use dunlin_core::{Operation, SendError, Why, channel};
    /// # dunlin_core::doc::block_on(async {
    /// let (mut tx, _rx) = channel();
    /// let at_once = std::future::ready(());
    /// let sent = tx.send("krill").until(at_once).await;
    /// let Err(SendError::NotTaken { value, why }) = sent else { unreachable!() };
    /// assert_eq!((value, why), ("krill", Why::TimedOut));
    /// # });
    /// ```
    ///
    /// # Source
    /// The timed guard of occam's ALT.
    fn until<D: Future>(self, deadline: D) -> Until<Self, D> {
        Until { operation: self, deadline, patience: 0, expired: false, again: false }
    }
}

pin_project_lite::pin_project! {
    /// An operation with a deadline: see [`Operation::until`].
    #[derive(Debug)]
    #[must_use = "an operation does nothing until it is awaited or chosen"]
    pub struct Until<O, D> {
        #[pin]
        operation: O,
        #[pin]
        deadline: D,
        // The number of polls of the turn so far, or [`TIMED`] and the number of the turn.
        patience: u32,
        expired: bool,
        // The operation has been polled before.
        again: bool,
    }

    impl<O, D> PinnedDrop for Until<O, D> {
        fn drop(this: Pin<&mut Self>) {
            let patience = *this.project().patience;
            if patience & TIMED != 0 {
                // Otherwise the end of the turn would wake whichever task then uses the waker's slot.
                turn::forget(patience & !TIMED);
            }
        }
    }
}

/// Marks a turn that a timer ends, for an offer whose deadline has passed.
const TIMED: u32 = 1 << 31;

/// How many polls such an offer waits where no timer ends its turn. One poll is enough within one scheduler.
/// It also waits this long for a receiver elsewhere, because the sender cannot know whether that was polled.
const TURN_POLLS_MAX: u32 = if cfg!(loom) { 1 } else { 64 };

impl<O: Operation, D: Future> Until<O, D> {
    /// Handles an operation that is still pending. `commit` runs before the operation is ended, because a
    /// choice may have been decided already.
    fn poll_deadline(self: Pin<&mut Self>, cx: &mut Context<'_>, commit: impl FnOnce() -> bool) -> Poll<O::Output> {
        let mut this = self.project();
        if !*this.expired {
            std::task::ready!(this.deadline.poll(cx));
            *this.expired = true;
        }
        match this.operation.turn() {
            Turn::Over if *this.patience & TIMED != 0 => turn::forget(*this.patience & !TIMED),
            Turn::Over => {}
            turn => {
                if waits_for(turn, this.patience, cx) {
                    return Poll::Pending;
                }
            }
        }
        if !commit() {
            return Poll::Pending;
        }
        this.operation.as_mut().poll_expire(cx)
    }
}

/// Whether the turn still runs. If so, the task is woken when it ends.
fn waits_for(turn: Turn, patience: &mut u32, cx: &mut Context<'_>) -> bool {
    if *patience & TIMED != 0 {
        return !turn::is_over(*patience & !TIMED, cx.waker());
    }
    if turn == Turn::Here
        && *patience == 0
        && let Some(number) = turn::begin(cx.waker())
    {
        *patience = TIMED | number;
        return true;
    }
    let waits = *patience < TURN_POLLS_MAX;
    if waits {
        *patience += 1;
        cx.waker().wake_by_ref();
    }
    waits
}

impl<O: Operation, D: Future> Future for Until<O, D> {
    type Output = O::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<O::Output> {
        let this = self.as_mut().project();
        if budget::is_spent() {
            if !*this.again && budget::refuse(cx) {
                *this.again = true;
                return Poll::Pending;
            }
            budget::renew();
        }
        *this.again = true;
        let refusals = budget::refusals();
        if let Poll::Ready(output) = this.operation.poll(cx) {
            return Poll::Ready(output);
        }
        if budget::refusals() != refusals {
            // The operation may be ready, so the deadline must not end it.
            return Poll::Pending;
        }
        let polled = self.poll_deadline(cx, || true);
        if polled.is_ready() {
            budget::count();
        }
        polled
    }
}

impl<O: Operation + Branch<Output = <O as Future>::Output>, D: Future> Branch for Until<O, D> {
    type Output = <O as Future>::Output;

    fn poll_branch(mut self: Pin<&mut Self>, cx: &mut Context<'_>, choice: &ChoiceCx) -> Poll<<O as Future>::Output> {
        if let Poll::Ready(output) = self.as_mut().project().operation.poll_branch(cx, choice) {
            return Poll::Ready(output);
        }
        // Once the choice is decided for this branch, no receiver can take its offer any more.
        self.poll_deadline(cx, || choice.decide())
    }

    fn look(&self) -> Look {
        match self.operation.look() {
            Look::Off => Look::Off,
            Look::Empty(turn) | Look::Maybe(turn) => Look::Maybe(turn),
        }
    }

    fn chosen(&self, turn: u32) {
        self.operation.chosen(turn);
    }

    fn rouse(&self) {
        self.operation.rouse();
    }
}

impl<O: Operation, D: Future> Operation for Until<O, D> {
    fn poll_expire(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<O::Output> {
        self.project().operation.poll_expire(cx)
    }

    fn turn(&self) -> Turn {
        self.operation.turn()
    }
}
