//! A choice whose order is the user's own: a [`Strategy`] picks among the branches that look ready.
//!
//! The loop is that of [`Choosing`], with two differences: it asks the strategy where that surveys its
//! branches, and it ends without a branch if the answer is none of those that it showed. That end is decided
//! like a `skip`: if another party has decided for a branch meanwhile, the branch has happened. The other
//! choices run none of this code.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::{Choice, ChoiceFuture, Group, place};
use crate::budget;
use crate::choice::branch::Look;
use crate::choice::decision::{Decision, SKIPPED};
use crate::choice::{Choosing, EVERY_BRANCH_IS_OFF, HOPELESS, Stage, Step};
use crate::wake::Wakes;

/// A branch that a [`Strategy`] may pick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Candidate {
    /// The number of the branch, counted from 0 in the order in which the branches were added.
    pub branch: usize,
    /// How often the branch of this number has happened, in all choices of the [`Picker`].
    pub turns: u64,
    /// How many choices of the [`Picker`] have ended since that branch last happened; if it never has, how
    /// many there were.
    pub passed: u64,
}

/// Picks the branch that a choice tries next.
///
/// A closure from `&[Candidate]` to the number of a branch is a strategy.
pub trait Strategy: Send {
    /// Returns the [number](Candidate::branch) of one of `ready`, which is never empty and in the order of
    /// the numbers.
    ///
    /// These are the branches that look ready; a send, a timer and a future always do. If the picked one
    /// turns out not to be, the strategy is asked again without it. Any other answer ends the choice with a
    /// [`StrategyError`].
    fn pick(&mut self, ready: &[Candidate]) -> usize;
}

impl<F: FnMut(&[Candidate]) -> usize + Send> Strategy for F {
    fn pick(&mut self, ready: &[Candidate]) -> usize {
        self(ready)
    }
}

/// A [`Strategy`], and the turns that the branches have had in the choices that it picked for.
///
/// Use one for all choices of one place in a program: it counts by the numbers of branches.
///
/// # Examples
/// Two from the first for each one from the second:
/// ```
/// use dunlin_core::{Candidate, Choice, Picker, channel_with, fifo};
/// # dunlin_core::doc::block_on(async {
/// let ((mut tx, mut rx), (mut ty, mut ry)) = (channel_with(fifo(6)), channel_with(fifo(6)));
/// for _ in 0..6 {
///     (tx.send("krill").await.unwrap(), ty.send("cod").await.unwrap());
/// }
/// let share = |c: &Candidate| if c.branch == 0 { c.turns } else { 2 * c.turns };
/// let least = move |ready: &[Candidate]| ready.iter().min_by_key(|c| share(c)).unwrap().branch;
/// let mut picker = Picker::new(least);
/// for _ in 0..6 {
///     Choice::fair().all([rx.recv(), ry.recv()]).picked_by(&mut picker).await.unwrap().1.unwrap();
/// }
/// assert_eq!((picker.turns(0), picker.turns(1)), (4, 2));
/// # });
/// ```
pub struct Picker<S> {
    strategy: S,
    /// For each branch: how often it has happened, and the number of the last choice in which it did.
    turns: Vec<(u64, u64)>,
    choices: u64,
}

impl<S: Strategy> Picker<S> {
    /// A picker whose branches have had no turns.
    pub fn new(strategy: S) -> Self {
        Self { strategy, turns: Vec::new(), choices: 0 }
    }

    /// How often the branch of this number has happened.
    pub fn turns(&self, branch: usize) -> u64 {
        self.turns.get(branch).map_or(0, |(turns, _)| *turns)
    }

    /// The strategy.
    pub fn strategy(&self) -> &S {
        &self.strategy
    }
}

impl<S> fmt::Debug for Picker<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let turns: Vec<u64> = self.turns.iter().map(|(turns, _)| *turns).collect();
        f.debug_struct("Picker").field("choices", &self.choices).field("turns", &turns).finish_non_exhaustive()
    }
}

/// A picker, whatever its strategy.
trait Pick: Send {
    fn candidate(&self, branch: usize) -> Candidate;
    fn pick(&mut self, ready: &[Candidate]) -> usize;
    /// A choice has ended, with this branch or with none.
    fn ended(&mut self, branch: Option<usize>);
}

impl<S: Strategy> Pick for Picker<S> {
    fn candidate(&self, branch: usize) -> Candidate {
        let (turns, last) = self.turns.get(branch).copied().unwrap_or_default();
        Candidate { branch, turns, passed: self.choices - last }
    }

    fn pick(&mut self, ready: &[Candidate]) -> usize {
        self.strategy.pick(ready)
    }

    fn ended(&mut self, branch: Option<usize>) {
        self.choices += 1;
        let Some(branch) = branch else { return };
        if self.turns.len() <= branch {
            self.turns.resize(branch + 1, (0, 0));
        }
        let (turns, last) = &mut self.turns[branch];
        (*turns, *last) = (*turns + 1, self.choices);
    }
}

/// A strategy picked what is no ready branch. No branch has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StrategyError {
    /// The answer of the strategy.
    pub picked: usize,
    /// The numbers of the branches that it could pick.
    pub ready: Vec<usize>,
}

impl fmt::Display for StrategyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the strategy picked branch {}, which is none of the ready ones {:?}", self.picked, self.ready)
    }
}

impl std::error::Error for StrategyError {}

impl<'a, T> Choice<'a, T> {
    /// Lets the strategy of `picker` choose among the ready branches, instead of this choice's own order.
    ///
    /// Awaited, it returns what the choice would. A `skip` is taken when none of the picked branches was
    /// ready.
    ///
    /// # Errors
    /// [`StrategyError`], if the strategy picked a branch that was not among those it was shown. No branch
    /// has happened then: all operations are withdrawn.
    ///
    /// # Panics
    /// As the choice does: if every branch is off, and there is no `skip`. A panic of the strategy goes to
    /// the caller; no branch has happened.
    ///
    /// # Cancel safety
    /// If the choice is dropped, no branch has happened, and the picker has counted no turn.
    ///
    /// # Examples
    /// ```
    /// use dunlin_core::{Candidate, Choice, Picker, channel, channel_with, fifo};
    /// # dunlin_core::doc::block_on(async {
    /// let ((mut tx, mut rx), (mut ty, mut ry)) = (channel_with(fifo(1)), channel_with(fifo(1)));
    /// tx.send(1).await.unwrap();
    /// ty.send(2).await.unwrap();
    /// // The last of those that are ready.
    /// let mut last = Picker::new(|ready: &[Candidate]| ready[ready.len() - 1].branch);
    /// let chosen = Choice::fair().all([rx.recv(), ry.recv()]).picked_by(&mut last).await;
    /// assert_eq!(chosen, Ok((1, Ok(2))));
    ///
    /// let mut wrong = Picker::new(|_: &[Candidate]| 7);
    /// let error = Choice::fair().all([rx.recv(), ry.recv()]).picked_by(&mut wrong).await.unwrap_err();
    /// assert_eq!((error.picked, error.ready), (7, vec![0]));
    /// assert_eq!(rx.recv().await, Ok(1));
    /// # });
    /// ```
    ///
    /// # Source
    /// The priorities of CoCoL (Skovhede and Vinter, 2015), here written by the user.
    pub fn picked_by<S: Strategy>(self, picker: &'a mut Picker<S>) -> PickedChoice<'a, T> {
        PickedChoice { choice: self, picker }
    }
}

/// A choice with a strategy: see [`Choice::picked_by`].
#[must_use = "a choice does nothing until it is awaited"]
pub struct PickedChoice<'a, T> {
    choice: Choice<'a, T>,
    picker: &'a mut dyn Pick,
}

impl<T> fmt::Debug for PickedChoice<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PickedChoice").field(&self.choice).finish()
    }
}

impl<'a, T> IntoFuture for PickedChoice<'a, T> {
    type Output = Result<(usize, T), StrategyError>;
    type IntoFuture = PickedFuture<'a, T>;

    #[track_caller]
    fn into_future(self) -> PickedFuture<'a, T> {
        PickedFuture { choice: self.choice.into_future(), picker: self.picker, wrong: None }
    }
}

/// The future of a [`PickedChoice`].
pub struct PickedFuture<'a, T> {
    choice: ChoiceFuture<'a, T>,
    picker: &'a mut dyn Pick,
    /// The strategy picked no ready branch, and the choice is about to end.
    wrong: Option<StrategyError>,
}

impl<T> fmt::Debug for PickedFuture<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PickedFuture").field(&self.choice).finish()
    }
}

impl<T> Unpin for PickedFuture<'_, T> {}

/// The branches of a choice, and the output of the one that happened.
struct Branches<'b, 'a, T> {
    firsts: &'b [usize],
    groups: &'b mut [Box<dyn Group<T> + Send + 'a>],
    output: Option<T>,
}

impl<T> Branches<'_, '_, T> {
    fn step(&mut self, branch: usize, step: Step<'_, '_>) -> Poll<()> {
        let (group, index) = place(self.firsts, branch);
        self.groups[group].step(index, step).map(|value| self.output = Some(value))
    }

    fn look(&mut self, branch: usize) -> Look {
        let (group, index) = place(self.firsts, branch);
        self.groups[group].look(index)
    }
}

impl<T> Future for PickedFuture<'_, T> {
    type Output = Result<(usize, T), StrategyError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { choice, picker, wrong } = self.get_mut();
        let ChoiceFuture { awaited, choosing, firsts, groups, skip } = choice;
        let mut branches = Branches { firsts, groups, output: None };
        let chosen = ready!(choosing.poll_picked(&mut branches, &mut **picker, wrong, cx));
        assert!(chosen != HOPELESS, "at {awaited}: {EVERY_BRANCH_IS_OFF}");
        if let Some(value) = branches.output {
            picker.ended(Some(chosen));
            return Poll::Ready(Ok((chosen, value)));
        }
        picker.ended(None);
        Poll::Ready(match wrong.take() {
            Some(wrong) => Err(wrong),
            None => Ok((chosen, skip.take().expect("a branch that happened has an output, and skip a value"))),
        })
    }
}

impl Choosing {
    /// [`poll`](Self::poll), with the branches in the order of `picker`. Ready with the number of the branch
    /// that happened, or with that of `skip`: then `wrong` has the error, if there is one.
    fn poll_picked<T>(
        &mut self,
        branches: &mut Branches<'_, '_, T>,
        picker: &mut dyn Pick,
        wrong: &mut Option<StrategyError>,
        cx: &mut Context<'_>,
    ) -> Poll<usize> {
        if budget::is_spent() && self.is_refused(cx) {
            return Poll::Pending;
        }
        if let Some(decision) = self.cx.decision() {
            decision.set_owner(cx.waker());
            if let Some(branch) = decision.decided() {
                return self.finish(&mut |at, step: Step<'_, '_>| branches.step(at, step), branch, cx);
            }
            self.rouse(&mut |at, step: Step<'_, '_>| branches.step(at, step));
        }
        let poll = if wrong.is_some() { None } else { self.try_picked(branches, picker, wrong, cx) };
        let all = poll.is_none() && wrong.is_none();
        let poll = poll.unwrap_or_else(|| {
            if wrong.is_some() || self.skip { self.end_without_a_branch(branches, cx) } else { Poll::Pending }
        });
        if let Some(decision) = self.cx.decision() {
            decision.polled(all, &mut Wakes::default());
            decision.ask_back();
        }
        if poll.is_ready() {
            budget::count();
        }
        poll
    }

    /// Tries the branches that look ready, as they are picked, and then registers the rest. `None`: no branch
    /// happened at once, or `wrong` is set.
    fn try_picked<T>(
        &mut self,
        branches: &mut Branches<'_, '_, T>,
        picker: &mut dyn Pick,
        wrong: &mut Option<StrategyError>,
        cx: &mut Context<'_>,
    ) -> Option<Poll<usize>> {
        let mut untried: Vec<usize> = (0..self.branches).filter(|branch| branches.look(*branch) != Look::Off).collect();
        if matches!(self.stage, Stage::New | Stage::Refused) {
            self.stage = Stage::Begun;
            if !self.skip && untried.is_empty() {
                return Some(Poll::Ready(HOPELESS));
            }
        }
        // From here on the budget may refuse an operation inside a branch.
        let begin = budget::refusals();
        let mut refusals = Some(begin);
        loop {
            let ready = untried.iter().filter(|branch| matches!(branches.look(**branch), Look::Maybe(_)));
            let candidates: Vec<Candidate> = ready.map(|branch| picker.candidate(*branch)).collect();
            if candidates.is_empty() {
                break;
            }
            let picked = picker.pick(&candidates);
            if !candidates.iter().any(|candidate| candidate.branch == picked) {
                let ready = candidates.iter().map(|candidate| candidate.branch).collect();
                *wrong = Some(StrategyError { picked, ready });
                return None;
            }
            untried.retain(|branch| *branch != picked);
            self.cx.set_rivals(candidates.len() > 1 || self.skip);
            let tried = self.after(&mut |at, step: Step<'_, '_>| branches.step(at, step), picked, &mut refusals, cx);
            if tried.is_some() {
                return tried;
            }
        }
        self.cx.set_rivals(self.skip);
        for branch in untried {
            let tried = self.after(&mut |at, step: Step<'_, '_>| branches.step(at, step), branch, &mut None, cx);
            if tried.is_some() {
                return tried;
            }
        }
        // As in `try_all`: a branch that spends the whole budget may be ready soon.
        (self.skip && refusals != Some(begin)).then_some(Poll::Pending)
    }

    /// Ends the choice, unless another party has decided for a branch or has reserved one.
    fn end_without_a_branch<T>(&mut self, branches: &mut Branches<'_, '_, T>, cx: &mut Context<'_>) -> Poll<usize> {
        self.cx.at(SKIPPED);
        if self.cx.decide() {
            return Poll::Ready(self.branches);
        }
        match self.cx.decision().and_then(Decision::decided) {
            Some(branch) => self.finish(&mut |at, step: Step<'_, '_>| branches.step(at, step), branch, cx),
            // The answer to the reservation wakes this choice.
            None => Poll::Pending,
        }
    }
}
