//! What can be a branch of a choice, and how a choice speaks to its branches.

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

/// What may stand in a branch of [`alt!`](crate::alt) or [`Choice`](crate::Choice): an operation not yet
/// awaited.
///
/// Receives, sends with [`send_from`](crate::Sender::send_from), sends of `Copy` values, claims, accepts,
/// barriers, timers; any other future through [`future`]; and `&mut` to one of these that is `Unpin`, or a
/// pinned pointer to any. Implemented by this family of crates only.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a branch of a choice",
    note = "a send that may go unchosen must keep its value: `tx.send_from(&mut slot)` with `slot: Option<T>`",
    note = "wrap any other future: `future(f)`"
)]
pub trait Branch {
    /// What the branch gives when it is chosen.
    type Output;

    /// Does the operation if that is possible now and the choice is still open; else waits for a chance.
    #[doc(hidden)]
    fn poll_branch(self: Pin<&mut Self>, cx: &mut Context<'_>, choice: &ChoiceCx) -> Poll<Self::Output>;

    /// How it looks from outside, cheaply: a hint that may be wrong.
    #[doc(hidden)]
    fn look(&self) -> Look {
        Look::Maybe(None)
    }

    /// It was chosen; for the order of later choices.
    #[doc(hidden)]
    fn chosen(&self, _turn: u32) {}

    /// Gives its end, or each of its ends, another turn, if the function has one for how that looks.
    #[doc(hidden)]
    fn set_turn(&self, next: fn(Look) -> Option<u32>) {
        next(self.look()).into_iter().for_each(|turn| self.chosen(turn));
    }

    /// Whoever was turned away by this branch's offer looks again.
    #[doc(hidden)]
    fn rouse(&self) {}

    /// The choice is over without it. Told only to those that were polled as what cannot be undone: they may
    /// be polled through a borrow, and live on.
    #[doc(hidden)]
    fn unchosen(&self) {}
}

/// A branch, where the operation was awaited: only for what the compiler says if it is none.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "the operation of a branch is not awaited: remove the `.await`",
    label = "write `rx.recv()`, without `.await`: the choice awaits all its operations"
)]
pub trait Unawaited: Branch {}

#[diagnostic::do_not_recommend]
impl<B: Branch> Unawaited for B {}

/// How a branch looks from outside. The number is the turn of its end: when it was last chosen, and how often
/// passed over since.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Look {
    /// It is not there: its precondition is false or its slot empty.
    #[default]
    Off,
    /// It would have to wait.
    Empty(Option<u32>),
    /// It may be ready.
    Maybe(Option<u32>),
}

/// That `B` is `Unpin`, and so a branch through a plain `&mut`: only for what the compiler says if it is not.
/// (Of a bound of `B` itself it would say that `&mut B` is no branch.)
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

/// What a branch is told of the choice it is in.
#[doc(hidden)]
#[derive(Default)]
pub struct ChoiceCx {
    /// Made by the first branch that offers something.
    decision: OnceCell<Arc<Decision>>,
    branch: Cell<u32>,
    turn: Cell<Asked>,
    /// The choice would go on to something that looks ready.
    rivals: Cell<bool>,
    /// Something waits that is to be told if it is not chosen.
    foreign: Cell<bool>,
    /// The branch that is being polled spends the whole budget in a poll.
    busy: Cell<bool>,
}

/// What a branch asks of its choice before that looks at lower branches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Asked {
    #[default]
    Nothing,
    /// To be polled again at once, so that others are polled in between.
    OnePoll,
    /// To wait until it is woken: by those who were woken for the offer, or by a timer.
    Timed,
}

impl fmt::Debug for ChoiceCx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChoiceCx").field("branch", &self.branch).finish_non_exhaustive()
    }
}

/// A branch that offers one value in several channels has several *parts*, each of which is decided under a
/// number of its own: that of the branch in the lower bits, and above them that of the part, from 1.
const PART_SHIFT: u32 = 20;

/// How many parts a branch can have.
pub(super) const PARTS_MAX: usize = (1 << (u32::BITS - PART_SHIFT)) - 2;

/// The branch to which a number belongs that was decided.
pub(super) fn branch_of(number: u32) -> u32 {
    number & ((1 << PART_SHIFT) - 1)
}

impl ChoiceCx {
    pub(super) fn at(&self, branch: u32) {
        self.branch.set(branch);
    }

    /// The branch that is being polled goes on to this part of it; `None`: to itself.
    pub(super) fn at_part(&self, part: Option<usize>) {
        let part = part.map_or(0, |part| part as u32 + 1);
        self.branch.set(branch_of(self.branch.get()) | part << PART_SHIFT);
    }

    /// The part for which another party has decided, if that is one of the branch that is being polled.
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

    /// Opens it again after a value was encoded for one of its branches.
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

    /// Decides for the branch that is being polled. `false`: another party has decided for another one, or
    /// has one reserved.
    #[doc(hidden)]
    pub fn commit(&self) -> bool {
        self.own().is_none_or(|(decision, branch)| decision.take(branch))
    }

    /// As [`commit`](Self::commit), and if a receiver elsewhere has an offer of this choice reserved, it is
    /// asked to give it back.
    pub(crate) fn decide(&self) -> bool {
        self.own().is_none_or(|(decision, branch)| decision.close(true) && decision.take(branch))
    }

    /// The branch that is being polled has woken whoever may take its offer, and they should be polled
    /// before this choice looks at lower branches.
    pub(crate) fn ask_for_a_turn(&self, asked: Asked) {
        self.turn.set(asked);
    }

    /// Begins the choice's turn that a timer ends. `false`: there is no timer.
    pub(crate) fn begin_turn(&self, cx: &Context<'_>) -> bool {
        self.decision().is_some_and(|decision| decision.begin_turn(cx.waker()))
    }

    /// Whether that turn goes on; then its end wakes the choice.
    pub(crate) fn waits_for_turn(&self, cx: &Context<'_>) -> bool {
        self.decision().is_some_and(|decision| decision.waits_for_turn(cx.waker()))
    }

    /// Whether the branch that is being polled loses something if the choice gives it no turn: if not, the
    /// choice waits anyway.
    pub(crate) fn has_rivals(&self) -> bool {
        self.rivals.get()
    }

    pub(super) fn set_rivals(&self, rivals: bool) {
        self.rivals.set(rivals);
    }

    pub(super) fn take_turn(&self) -> Asked {
        self.turn.take()
    }

    /// Whether the branch that was polled spends the whole budget in a poll. Told once.
    pub(super) fn take_busy(&self) -> bool {
        self.busy.take()
    }

    /// Whether branches wait that are to be told once that they were not chosen.
    pub(super) fn take_foreign(&self) -> bool {
        self.foreign.take()
    }

    /// Polls what cannot be undone: meanwhile no other party can decide this choice, and if it is ready, it
    /// is chosen. `sure`: it is known to be ready.
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

    /// Polls what stays ready once it is, and takes nothing by that: no other party has to wait for this
    /// poll.
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
/// The word marks the one kind of branch whose side effects a choice cannot undo: a future that was polled
/// and not chosen is dropped, with whatever it had begun. One that does more than 128 operations in a poll
/// counts as waiting after these: a prioritised choice goes on to lower branches, but not to `skip`. While it
/// waits, its line in the [wait records](crate::waits) says "a future", and where it was named; what it waits
/// for itself may have lines of its own.
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
