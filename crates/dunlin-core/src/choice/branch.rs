//! The branches of a choice, and how a choice communicates with them.

use std::cell::{Cell, OnceCell};
use std::fmt;
use std::future::Future;
use std::ops::DerefMut;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::decision::{Branching, Decision};
use crate::budget;
use crate::waits::{Doing, Pid, Watch};

/// An operation not yet awaited: what may stand in a branch of [`alt!`](crate::alt) or
/// [`Choice`](crate::Choice).
///
/// Receives, sends with [`send_from`](crate::Sender::send_from), sends of `Copy` values, claims, accepts,
/// barriers and timers implement it. So do `&mut` to a branch that is `Unpin`, and a pinned pointer to any
/// branch. [`future`] makes a branch of any other future. Only this family of crates implements the trait.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a branch of a choice",
    note = "a send that may go unchosen must keep its value: `tx.send_from(&mut slot)` with `slot: Option<T>`",
    note = "wrap any other future: `future(f)`"
)]
pub trait Branch {
    /// The output of the branch when it is chosen.
    type Output;

    /// Carries out the operation if that is possible now and the choice is still open; else waits for a
    /// chance.
    #[doc(hidden)]
    fn poll_branch(self: Pin<&mut Self>, cx: &mut Context<'_>, choice: &ChoiceCx) -> Poll<Self::Output>;

    /// How the branch looks from outside, cheaply: a hint that may be wrong.
    #[doc(hidden)]
    fn look(&self) -> Look {
        Look::Maybe(None)
    }

    /// The branch was chosen; stores its turn for the order of later choices.
    #[doc(hidden)]
    fn chosen(&self, _turn: u32) {}

    /// Gives each of the branch's ends the turn that `next` computes from the end's look, if any.
    #[doc(hidden)]
    fn set_turn(&self, next: fn(Look) -> Option<u32>) {
        next(self.look()).into_iter().for_each(|turn| self.chosen(turn));
    }

    /// Wakes the parties that this branch's offer turned away.
    #[doc(hidden)]
    fn rouse(&self) {}

    /// The choice ended without this branch. Called only on branches polled with [`ChoiceCx::poll_foreign`]
    /// or [`ChoiceCx::poll_lasting`]: a choice may have borrowed them, so they may outlive it.
    #[doc(hidden)]
    fn unchosen(&self) {}
}

/// A branch whose operation is not awaited: only for the compiler's message about an awaited one.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "the operation of a branch is not awaited: remove the `.await`",
    label = "write `rx.recv()`, without `.await`: the choice awaits all its operations"
)]
pub trait Unawaited: Branch {}

#[diagnostic::do_not_recommend]
impl<B: Branch> Unawaited for B {}

/// How a branch looks from outside. The number is the turn of its end: when it was last chosen, and how often
/// it was passed over since.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Look {
    /// The branch is off: its precondition is false or its slot empty.
    #[default]
    Off,
    /// The branch would have to wait.
    Empty(Option<u32>),
    /// The branch may be ready.
    Maybe(Option<u32>),
}

/// `B` is `Unpin`, and so a branch through a plain `&mut`: only for the compiler's message if it is not. (For
/// a bound on `B` itself the compiler would report that `&mut B` is no branch.)
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{B}` has to be pinned to be borrowed by a choice",
    label = "pin it before, and borrow it by `as_mut()`",
    note = "`let mut end = std::pin::pin!(end);`, and in the branch `end.as_mut()`",
    note = "a timer that is kept can be a `Timer::after(duration)`, which needs no pin: `&mut timer`"
)]
pub trait Borrows<B: ?Sized> {
    fn pin(branch: &mut B) -> Pin<&mut B>;
}

#[diagnostic::do_not_recommend]
impl<B: Unpin + ?Sized> Borrows<B> for () {
    #[inline(always)]
    fn pin(branch: &mut B) -> Pin<&mut B> {
        Pin::new(branch)
    }
}

impl<B: Branch + ?Sized> Branch for &mut B
where
    (): Borrows<B>,
{
    type Output = B::Output;

    fn poll_branch(mut self: Pin<&mut Self>, cx: &mut Context<'_>, choice: &ChoiceCx) -> Poll<B::Output> {
        <()>::pin(&mut **self).poll_branch(cx, choice)
    }

    fn look(&self) -> Look {
        (**self).look()
    }

    fn chosen(&self, turn: u32) {
        (**self).chosen(turn);
    }

    fn set_turn(&self, next: fn(Look) -> Option<u32>) {
        (**self).set_turn(next);
    }

    fn rouse(&self) {
        (**self).rouse();
    }

    fn unchosen(&self) {
        (**self).unchosen();
    }
}

impl<P: DerefMut<Target: Branch>> Branch for Pin<P> {
    type Output = <P::Target as Branch>::Output;

    fn poll_branch(self: Pin<&mut Self>, cx: &mut Context<'_>, choice: &ChoiceCx) -> Poll<Self::Output> {
        self.as_deref_mut().poll_branch(cx, choice)
    }

    fn look(&self) -> Look {
        (**self).look()
    }

    fn chosen(&self, turn: u32) {
        (**self).chosen(turn);
    }

    fn set_turn(&self, next: fn(Look) -> Option<u32>) {
        (**self).set_turn(next);
    }

    fn rouse(&self) {
        (**self).rouse();
    }

    fn unchosen(&self) {
        (**self).unchosen();
    }
}

/// The context that a choice passes to its branches.
#[doc(hidden)]
#[derive(Default)]
pub struct ChoiceCx {
    /// Made by the first branch that offers a value.
    decision: OnceCell<Arc<Decision>>,
    branch: Cell<u32>,
    turn: Cell<Asked>,
    /// The choice would try another branch that looks ready.
    rivals: Cell<bool>,
    /// A waiting branch must be notified if it is not chosen.
    foreign: Cell<bool>,
    /// The branch that is being polled spends the whole budget in a poll.
    busy: Cell<bool>,
}

/// A branch's request to its choice before the choice looks at lower branches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Asked {
    #[default]
    Nothing,
    /// Poll the choice again at once, so that other tasks are polled in between.
    OnePoll,
    /// Wait until a receiver that the offer woke, or a timer, wakes the choice.
    Timed,
}

impl fmt::Debug for ChoiceCx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChoiceCx").field("branch", &self.branch).finish_non_exhaustive()
    }
}

/// A branch that offers one value in several channels has several *parts*, and its choice decides for one
/// part. The number of a part has that of the branch in the lower bits, and its own, from 1, above them.
const PART_SHIFT: u32 = 20;

/// How many parts a branch can have.
pub(super) const PARTS_MAX: usize = (1 << (u32::BITS - PART_SHIFT)) - 2;

/// The branch that a decided number belongs to.
pub(super) fn branch_of(number: u32) -> u32 {
    number & ((1 << PART_SHIFT) - 1)
}

impl ChoiceCx {
    pub(super) fn at(&self, branch: u32) {
        self.branch.set(branch);
    }

    /// Sets the part that the branch being polled polls now; `None`: the branch itself.
    pub(super) fn at_part(&self, part: Option<usize>) {
        let part = part.map_or(0, |part| part as u32 + 1);
        self.branch.set(branch_of(self.branch.get()) | part << PART_SHIFT);
    }

    /// The part for which another party has decided, if it belongs to the branch that is being polled.
    pub(super) fn decided_part(&self) -> Option<usize> {
        let decided = self.decision()?.decided()?;
        if branch_of(decided) != branch_of(self.branch.get()) {
            return None;
        }
        (decided >> PART_SHIFT).checked_sub(1).map(|part| part as usize)
    }

    pub(super) fn decision(&self) -> Option<&Decision> {
        self.decision.get().map(|decision| &**decision)
    }

    /// Opens the choice again after a value was encoded for one of its branches.
    #[cfg(feature = "link")]
    pub(crate) fn reopen(&self) {
        self.decision().iter().for_each(|decision| decision.reopen());
    }

    /// This choice's state and the branch that is being polled, if any branch has offered something.
    pub(crate) fn own(&self) -> Branching<'_> {
        self.decision().map(|decision| (decision, self.branch.get()))
    }

    /// The same, for a branch that is about to offer.
    pub(crate) fn offering(&self, owner: &Waker) -> (&Arc<Decision>, u32) {
        (self.decision.get_or_init(|| Arc::new(Decision::new(owner))), self.branch.get())
    }

    /// Decides for the branch that is being polled. `false`: another party has decided for another branch, or
    /// has reserved one.
    #[doc(hidden)]
    pub fn commit(&self) -> bool {
        self.own().is_none_or(|(decision, branch)| decision.take(branch))
    }

    /// As [`commit`](Self::commit), but if a receiver elsewhere has reserved an offer of this choice, it also
    /// asks that receiver to give the offer back.
    pub(crate) fn decide(&self) -> bool {
        self.own().is_none_or(|(decision, branch)| decision.close(true) && decision.take(branch))
    }

    /// The branch that is being polled has woken the receivers that may take its offer. They should be polled
    /// before this choice looks at lower branches.
    pub(crate) fn ask_for_a_turn(&self, asked: Asked) {
        self.turn.set(asked);
    }

    /// Begins the choice's turn, which a timer ends. `false`: there is no timer.
    pub(crate) fn begin_turn(&self, cx: &Context<'_>) -> bool {
        self.decision().is_some_and(|decision| decision.begin_turn(cx.waker()))
    }

    /// Whether that turn continues; then its end wakes the choice.
    pub(crate) fn waits_for_turn(&self, cx: &Context<'_>) -> bool {
        self.decision().is_some_and(|decision| decision.waits_for_turn(cx.waker()))
    }

    /// Whether the branch that is being polled needs a turn: without rivals the choice waits anyway.
    pub(crate) fn has_rivals(&self) -> bool {
        self.rivals.get()
    }

    pub(super) fn set_rivals(&self, rivals: bool) {
        self.rivals.set(rivals);
    }

    pub(super) fn take_turn(&self) -> Asked {
        self.turn.take()
    }

    /// Whether the branch that was polled spends the whole budget in a poll. Clears the mark.
    pub(super) fn take_busy(&self) -> bool {
        self.busy.take()
    }

    /// Whether waiting branches must be notified that they were not chosen. Clears the mark.
    pub(super) fn take_foreign(&self) -> bool {
        self.foreign.take()
    }

    /// Polls an operation that cannot be undone. Meanwhile no other party can decide this choice, and if the
    /// operation is ready, it is chosen. `sure`: it is known to be ready.
    #[doc(hidden)]
    pub fn poll_foreign<R>(&self, sure: bool, poll: impl FnOnce() -> Poll<R>) -> Poll<R> {
        self.foreign.set(true);
        let Some((decision, branch)) = self.own() else { return poll() };
        if !decision.close(sure) {
            return Poll::Pending;
        }
        let polled = poll();
        if polled.is_ready() {
            decision.take(branch);
        } else {
            decision.reopen();
        }
        polled
    }

    /// Polls an operation that takes nothing when polled and stays ready once it is: no other party has to
    /// wait for this poll.
    #[doc(hidden)]
    pub fn poll_lasting<R>(&self, poll: impl FnOnce() -> Poll<R>) -> Poll<R> {
        self.foreign.set(true);
        let polled = poll();
        if polled.is_pending() || self.decide() { polled } else { Poll::Pending }
    }
}

pin_project_lite::pin_project! {
    /// Any future as a branch: see [`future`].
    #[derive(Debug)]
    #[must_use = "a branch does nothing until it is chosen over"]
    pub struct Foreign<F> {
        #[pin]
        future: F,
        made: &'static Location<'static>,
        watch: Watch,
    }
}

/// Makes any future a branch of a choice.
///
/// The function marks the one kind of branch whose side effects a choice cannot undo. A future that was
/// polled and not chosen is dropped, with everything that it has begun. A future that does more than 128
/// operations in a poll counts as waiting after these: a prioritised choice tries lower branches, but not
/// `skip`. While it waits, its line in the [wait records](crate::waits) reads "a future", with the location
/// of this call. The operations inside it may have lines of their own.
///
/// # Examples
/// ```
/// use dunlin_core::{alt, channel, future};
/// # dunlin_core::doc::block_on(async {
/// let (_tx, mut rx) = channel::<u8>();
/// let n = alt! {
///     v = rx.recv() => u32::from(v.unwrap()),
///     v = future(async { 7 }) => v,
/// };
/// assert_eq!(n, 7);
/// # });
/// ```
#[track_caller]
pub fn future<F: Future>(future: F) -> Foreign<F> {
    Foreign { future, made: Location::caller(), watch: Watch::default() }
}

impl<F: Future> Branch for Foreign<F> {
    type Output = F::Output;

    fn poll_branch(self: Pin<&mut Self>, cx: &mut Context<'_>, choice: &ChoiceCx) -> Poll<F::Output> {
        let this = self.project();
        let before = budget::Before::new();
        let polled = choice.poll_foreign(false, || this.future.poll(cx));
        choice.busy.set(polled.is_pending() && before.was_spent());
        this.watch.note(polled, Doing::Future, Pid::OUTSIDE, this.made)
    }

    fn unchosen(&self) {
        self.watch.end();
    }
}
