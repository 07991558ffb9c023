//! Choice: exactly one of several operations happens, and the others have no effect.
//!
//! - [`branch`]: the operations that may be a branch, and the context that a branch gets.
//! - [`decision`]: the state that a choice with sends or barriers shares with the parties that may decide it.
//! - [`builder`]: [`Choice`], for branches known only at run time, also in an order of the user's own.
//! - here: the order in which a choice polls its branches; [`alt!`](crate::alt) expands to it.
//!
//! # Order
//! *Prioritised* goes down the list. *Fair* looks at all branches and takes, of those that are ready, the one
//! whose end was chosen least recently. Every end stores its last turn, so fairness holds from one choice to
//! the next, also between choices at different places in the program. *Random* draws among the ready
//! branches.
//!
//! A branch without an end (a timer, a future, a process) stores no turn, so such branches get their share of
//! a fair choice by lot. The lot alone could pass an end over for long. So every ready end counts how often
//! the lot passed it over. A choice draws no lot once that count of any ready end exceeds the number of
//! branches without an end. Then each ready end of n branches is chosen at least once in n + 1 choices. The
//! count and the turn share one word ([`PASSED_OVER`]).
//!
//! A choice with no ready branch registers a waker at each of its ends, and unregisters from all of them once
//! a branch is chosen. With many ends ([`MANY`]) that costs several times as much as the event. A new choice
//! over many ends therefore first wakes its own task and returns `Pending`: tasks that were about to send
//! run, and the second poll finds their offers. It registers only if that poll finds nothing either.
//!
//! A send never completes in the poll that offers its value, because only a receive that is being polled
//! takes a value. So a send gets a turn ([`crate::turn`]): if its offer woke receivers, the choice lets them
//! be polled before it tries lower branches that look ready, or `skip`. With no such branch it just waits.

pub(crate) mod branch;
pub(crate) mod builder;
pub(crate) mod decision;

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

pub(crate) use branch::ChoiceCx;
use branch::{Asked, Branch, Look, Unawaited};
use decision::SKIPPED;

use crate::budget;
use crate::wake::Wakes;

/// In which order the branches of a choice are tried.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Prioritised,
    Fair,
    Random,
}

/// A request from a choice to one of its branches; a survey goes to all at once, under the number [`ALL`].
#[doc(hidden)]
#[derive(Debug)]
pub enum Step<'a, 'b> {
    Survey(&'a mut Survey),
    Poll(&'a mut Context<'b>, &'a ChoiceCx),
    Chosen(u32),
    Rouse,
    Unchosen,
    /// Gives the end of the branch another turn, if the function has one for how it looks.
    Turn(fn(Look) -> Option<u32>),
}

/// Not a branch number: the step is for all branches.
const ALL: usize = usize::MAX;

/// The result of a choice whose branches are all off and that has no `skip`. The caller panics, so that the
/// panic names a line of users' code.
pub(crate) const HOPELESS: usize = ALL;

/// The panic of an [`alt!`](crate::alt) in which every branch is off.
#[doc(hidden)]
#[cold]
#[track_caller]
pub fn hopeless() -> ! {
    panic!("{EVERY_BRANCH_IS_OFF}");
}

pub(crate) const EVERY_BRANCH_IS_OFF: &str =
    "a choice in which every branch is off would wait for ever: add a `skip` or a timeout";

/// Carries out a step on a branch; a branch that is `None` is off.
#[doc(hidden)]
#[inline]
pub fn step<B: Branch>(branch: Pin<&mut Option<B>>, step: Step<'_, '_>) -> Poll<B::Output> {
    match branch.as_pin_mut() {
        Some(branch) => step_on(branch, step),
        None => Poll::Pending,
    }
}

/// [`step`] on the value of an expression that ends in `.await`.
#[doc(hidden)]
#[inline]
pub fn step_unawaited<B: Unawaited>(branch: Pin<&mut Option<B>>, at: Step<'_, '_>) -> Poll<B::Output> {
    step(branch, at)
}

#[inline]
pub(crate) fn step_on<B: Branch>(branch: Pin<&mut B>, step: Step<'_, '_>) -> Poll<B::Output> {
    match step {
        Step::Poll(cx, choice) => return branch.poll_branch(cx, choice),
        Step::Chosen(turn) => branch.chosen(turn),
        Step::Rouse => branch.rouse(),
        Step::Unchosen => branch.unchosen(),
        Step::Turn(next) => branch.set_turn(next),
        Step::Survey(_) => {}
    }
    Poll::Pending
}

/// Reports the look of a branch to a survey.
#[doc(hidden)]
#[inline(always)]
pub fn survey<B: Branch>(branch: Pin<&mut Option<B>>, number: usize, survey: &mut Survey) {
    if let Some(branch) = branch.as_pin_mut() {
        survey.see(number, branch.look());
    }
}

/// The bits of an end's turn that count the choices, since that turn, in which the end looked ready and the
/// lot chose a branch without an end. The bits above them are the turn itself: a choice's next turn is
/// greater than those of all its ends.
const PASSED_OVER: u32 = 0xff;

/// From this turn on, a choice first gives its ends [`renumbered`] turns.
const TURN_MAX: u32 = u32::MAX - 2 * PASSED_OVER;

/// The turn after the latest one.
fn next_turn(last: u32) -> u32 {
    (last | PASSED_OVER) + 1
}

/// Counts one more choice that passed over a ready end.
fn passed_over(look: Look) -> Option<u32> {
    match look {
        Look::Maybe(Some(turn)) if turn & PASSED_OVER < PASSED_OVER => Some(turn + 1),
        _ => None,
    }
}

/// Restarts the turns. Ends that had a turn in the last eight million choices keep their order.
fn renumbered(look: Look) -> Option<u32> {
    match look {
        Look::Empty(turn) | Look::Maybe(turn) => turn.map(|turn| turn.saturating_sub((TURN_MAX / 2) & !PASSED_OVER)),
        Look::Off => None,
    }
}

/// The branch that a survey looks for, among those that look ready and are untried.
#[derive(Clone, Copy, Debug)]
enum Wanted {
    First,
    /// The end with the earliest turn, and any of the branches without an end.
    Earliest,
    Any,
    /// Whether an end was passed over too often.
    Overdue,
}

/// A look at all branches: which are on, and which to try first.
#[doc(hidden)]
#[derive(Debug)]
pub struct Survey {
    wanted: Wanted,
    marks: Marks,
    /// The latest turn of any surveyed end.
    last: u32,
    /// How many branches look ready and are untried, and which of them is first, with its turn.
    ready: u32,
    best: usize,
    best_turn: u32,
    /// How many of the ready branches have no end, and one of them.
    endless: u32,
    drawn: usize,
    overdue: bool,
}

impl Survey {
    #[inline(always)]
    fn new(order: Order, branches: usize, last: u32) -> Self {
        let wanted = match order {
            Order::Prioritised => Wanted::First,
            Order::Fair => Wanted::Earliest,
            Order::Random => Wanted::Any,
        };
        let (best, best_turn, drawn) = (0, u32::MAX, 0);
        let marks = Marks::below(branches);
        Self { wanted, marks, last, ready: 0, best, best_turn, endless: 0, drawn, overdue: false }
    }

    #[inline(always)]
    pub(crate) fn see(&mut self, number: usize, look: Look) {
        let (turn, maybe) = match look {
            Look::Off => return,
            Look::Empty(turn) => (turn, false),
            Look::Maybe(turn) => (turn, true),
        };
        let marked = self.marks.of(number);
        let bit = 1 << (number % 64);
        marked.on |= bit;
        let is_new = maybe && marked.tried & bit == 0;
        self.last = self.last.max(turn.unwrap_or(0));
        if is_new {
            self.consider(number, turn);
        }
    }

    /// Inlines only the case of an end in a fair choice; the other cases are a call.
    #[inline(always)]
    fn consider(&mut self, number: usize, turn: Option<u32>) {
        self.ready += 1;
        match (self.wanted, turn) {
            (Wanted::Earliest, Some(turn)) => {
                if turn < self.best_turn {
                    (self.best, self.best_turn) = (number, turn);
                }
            }
            _ => self.consider_other(number, turn),
        }
    }

    #[inline(never)]
    fn consider_other(&mut self, number: usize, turn: Option<u32>) {
        match (self.wanted, turn) {
            (Wanted::Earliest, _) => {
                self.endless += 1;
                if random(self.endless) == 0 {
                    self.drawn = number;
                }
            }
            (Wanted::First, _) => {
                if self.ready == 1 {
                    self.best = number;
                }
            }
            // Each branch that looks ready is kept with the same chance.
            (Wanted::Any, _) => {
                if random(self.ready) == 0 {
                    self.best = number;
                }
            }
            (Wanted::Overdue, turn) => {
                self.overdue |= turn.is_some_and(|turn| {
                    let passed_over = turn & PASSED_OVER;
                    passed_over > self.endless || passed_over == PASSED_OVER
                });
            }
        }
    }

    /// Surveys the untried branches. Returns the branch to try next, unless none looks ready, and whether the
    /// lot chose it.
    #[inline(always)]
    fn next(&mut self, step: &mut impl Stepper) -> Option<(usize, bool)> {
        (self.ready, self.endless, self.best_turn) = (0, 0, u32::MAX);
        let _ = step(ALL, Step::Survey(self));
        match (self.ready, self.endless) {
            (0, _) => None,
            (_, 0) => Some((self.best, false)),
            _ => Some(self.draw(step)),
        }
    }

    /// Draws between the end with the earliest turn and a branch without an end. The chance of the latter is
    /// the share of such branches among the ready ones.
    #[inline(never)]
    fn draw(&mut self, step: &mut impl Stepper) -> (usize, bool) {
        let (ready, wanted) = (self.ready, self.wanted);
        if self.endless < ready {
            (self.wanted, self.overdue) = (Wanted::Overdue, false);
            let _ = step(ALL, Step::Survey(self));
            (self.ready, self.wanted) = (ready, wanted);
            if self.overdue || random(ready) >= self.endless {
                return (self.best, false);
            }
        }
        (self.drawn, true)
    }
}

/// Which branches are on, and which of them were tried. Allocates only for more than 64 branches.
#[derive(Debug)]
struct Marks {
    first: Marked,
    more: Vec<Marked>,
}

/// The marks of 64 branches.
#[derive(Clone, Copy, Debug, Default)]
struct Marked {
    on: u64,
    tried: u64,
}

impl Marks {
    /// No marks, for numbers below `branches`.
    #[inline(always)]
    fn below(branches: usize) -> Self {
        let more = if branches <= 64 { Vec::new() } else { Self::more(branches) };
        Self { first: Marked::default(), more }
    }

    #[cold]
    fn more(branches: usize) -> Vec<Marked> {
        vec![Marked::default(); (branches - 1) / 64]
    }

    #[inline(always)]
    fn of(&mut self, number: usize) -> &mut Marked {
        if number < 64 { &mut self.first } else { &mut self.more[number / 64 - 1] }
    }

    fn is_any_on(&self) -> bool {
        self.first.on != 0 || self.more.iter().any(|marked| marked.on != 0)
    }

    fn is_any_untried(&self) -> bool {
        (0..=self.more.len()).any(|word| self.untried(word).is_some_and(|untried| untried != 0))
    }

    /// The branches with the numbers from 64 * `word` that are on and were not tried, as bits.
    #[inline(always)]
    fn untried(&self, word: usize) -> Option<u64> {
        let marked = if word == 0 { self.first } else { *self.more.get(word - 1)? };
        Some(marked.on & !marked.tried)
    }
}

/// A choice over `branches` branches, reached through `step`. Ready with the number of the branch that
/// happened, or with `branches` for `skip`.
#[doc(hidden)]
pub fn choose<F>(order: Order, skip: bool, branches: usize, step: F) -> Choose<F>
where
    F: FnMut(usize, Step<'_, '_>) -> Poll<()>,
{
    Choose { choosing: Choosing::new(order, skip, branches), step }
}

/// The future of [`choose`].
#[doc(hidden)]
#[derive(Debug)]
pub struct Choose<F: FnMut(usize, Step<'_, '_>) -> Poll<()>> {
    choosing: Choosing,
    step: F,
}

// What `step` refers to is pinned elsewhere.
impl<F: FnMut(usize, Step<'_, '_>) -> Poll<()>> Unpin for Choose<F> {}

impl<F: FnMut(usize, Step<'_, '_>) -> Poll<()>> Drop for Choose<F> {
    fn drop(&mut self) {
        self.choosing.tell_unchosen(&mut self.step);
    }
}

impl<F: FnMut(usize, Step<'_, '_>) -> Poll<()>> Future for Choose<F> {
    type Output = usize;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<usize> {
        let Self { choosing, step } = &mut *self;
        choosing.poll(step, cx)
    }
}

/// A choice in progress. The caller passes access to its branches to every poll.
#[derive(Debug)]
pub(crate) struct Choosing {
    order: Order,
    skip: bool,
    branches: usize,
    cx: ChoiceCx,
    stage: Stage,
    /// The latest turn of any of the ends, as of the last survey.
    last: u32,
}

/// The progress of a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    New,
    /// The choice has been polled, but the budget refused it before it polled a branch.
    Refused,
    /// Its branches have been polled once, and it has not surveyed them a second time ([`MANY`]).
    First,
    Begun,
    /// The lot chose the branch that happened, which has no end.
    ByLot,
}

/// A new choice over at least this many branches is polled twice before it registers, unless it has offered a
/// value. A runtime that polls a woken task next (tokio's LIFO slot) would otherwise poll the choice after
/// each single offer. Each of these polls would register at every end for one event.
const MANY: usize = 32;

/// How trying one branch went.
enum Tried {
    Happened,
    NotYet,
    /// Let other tasks be polled first.
    Turn,
    /// Let other tasks be polled, until the choice is woken.
    TimedTurn,
    /// A budget refused an operation inside the branch.
    Refused,
    /// Another party decided for this branch.
    Decided(u32),
}

impl Choosing {
    pub(crate) fn new(order: Order, skip: bool, branches: usize) -> Self {
        Self { order, skip, branches, cx: ChoiceCx::default(), stage: Stage::New, last: 0 }
    }

    /// `refusals`: the count before the poll, if the budget may refuse an operation inside the branch.
    #[inline(always)]
    fn attempt(
        &mut self,
        step: &mut impl Stepper,
        branch: usize,
        refusals: Option<u32>,
        cx: &mut Context<'_>,
    ) -> Tried {
        self.cx.at(branch as u32);
        if step(branch, Step::Poll(cx, &self.cx)).is_ready() {
            return Tried::Happened;
        }
        // An operation inside the branch may be ready: the choice must not try another branch because of a
        // budget.
        let refused = refusals.is_some_and(|before| budget::refusals() != before);
        // Nothing was offered, so no other party can have decided, and none needs a turn.
        let Some(decision) = self.cx.decision() else { return if refused { Tried::Refused } else { Tried::NotYet } };
        let decided = decision.decided();
        self.rouse(step);
        match (decided, self.cx.take_turn()) {
            (Some(branch), _) => Tried::Decided(branch),
            (None, Asked::OnePoll) => Tried::Turn,
            (None, Asked::Timed) => Tried::TimedTurn,
            (None, Asked::Nothing) if refused => Tried::Refused,
            (None, Asked::Nothing) => Tried::NotYet,
        }
    }

    /// Wakes the parties that were turned away while the choice was closed or reserved.
    fn rouse(&self, step: &mut impl Stepper) {
        if self.cx.decision().is_some_and(decision::Decision::take_turned_away) {
            for branch in 0..self.branches {
                let _ = step(branch, Step::Rouse);
            }
        }
    }

    /// Another party decided: that branch has happened, or an extended receive still holds its value.
    fn finish(&mut self, step: &mut impl Stepper, branch: u32, cx: &mut Context<'_>) -> Poll<usize> {
        if branch == SKIPPED {
            return Poll::Ready(self.branches);
        }
        let branch = branch::branch_of(branch);
        self.cx.at(branch);
        step(branch as usize, Step::Poll(cx, &self.cx)).map(|()| branch as usize)
    }

    /// Tries one branch; `Some` is the result of this poll.
    #[inline(always)]
    fn after(
        &mut self,
        step: &mut impl Stepper,
        branch: usize,
        refusals: &mut Option<u32>,
        cx: &mut Context<'_>,
    ) -> Option<Poll<usize>> {
        match self.attempt(step, branch, *refusals, cx) {
            Tried::Happened => Some(Poll::Ready(branch)),
            Tried::NotYet => None,
            Tried::Decided(branch) => Some(self.finish(step, branch, cx)),
            Tried::Turn => {
                cx.waker().wake_by_ref();
                Some(Poll::Pending)
            }
            Tried::TimedTurn => Some(Poll::Pending),
            Tried::Refused => {
                // The refusal may have woken an operation inside the branch, and no more.
                budget::poll_again(cx.waker(), 0);
                *refusals = Some(budget::refusals());
                if self.cx.take_busy() { None } else { Some(Poll::Pending) }
            }
        }
    }

    /// Tries the branches that look ready, in order, and then registers the rest.
    fn try_all(&mut self, step: &mut impl Stepper, cx: &mut Context<'_>) -> Option<Poll<usize>> {
        let mut survey = Survey::new(self.order, self.branches, self.last);
        // From here on the budget may refuse an operation inside a branch.
        let begin = budget::refusals();
        let mut refusals = Some(begin);
        loop {
            let next = survey.next(step);
            self.last = survey.last;
            if matches!(self.stage, Stage::New | Stage::Refused) {
                self.stage = if self.stage == Stage::New { Stage::First } else { Stage::Begun };
                if !self.skip && !survey.marks.is_any_on() {
                    return Some(Poll::Ready(HOPELESS));
                }
            }
            let Some((branch, by_lot)) = next else { break };
            survey.marks.of(branch).tried |= 1 << (branch % 64);
            self.cx.set_rivals(survey.ready > 1 || self.skip);
            if let Some(poll) = self.after(step, branch, &mut refusals, cx) {
                if by_lot && poll == Poll::Ready(branch) {
                    self.stage = Stage::ByLot;
                }
                return Some(poll);
            }
            if survey.ready == 1 {
                break;
            }
        }
        if self.branches >= MANY && self.looks_again(&survey) {
            cx.waker().wake_by_ref();
            return Some(Poll::Pending);
        }
        self.cx.set_rivals(self.skip);
        // These looked empty, as only ends of channels and barriers do: their operations never ask the
        // budget.
        let mut word = 0;
        while let Some(mut untried) = survey.marks.untried(word) {
            while untried != 0 {
                let branch = word * 64 + untried.trailing_zeros() as usize;
                untried &= untried - 1;
                if let Some(poll) = self.after(step, branch, &mut None, cx) {
                    return Some(poll);
                }
            }
            word += 1;
        }
        // A branch that spends the whole budget is not ready at once, but may be soon: the choice tries lower
        // branches before it, but not `skip`.
        (self.skip && refusals != Some(begin)).then_some(Poll::Pending)
    }

    pub(crate) fn poll(&mut self, step: &mut impl Stepper, cx: &mut Context<'_>) -> Poll<usize> {
        if budget::is_spent() && self.is_refused(cx) {
            return Poll::Pending;
        }
        let poll = self.poll_branches(step, cx);
        if poll.is_ready() {
            budget::count();
        }
        if let (Poll::Ready(chosen), Order::Fair) = (poll, self.order)
            && chosen < self.branches
        {
            if self.stage == Stage::ByLot {
                for branch in (0..self.branches).filter(|branch| *branch != chosen) {
                    let _ = step(branch, Step::Turn(passed_over));
                }
            } else {
                if self.last >= TURN_MAX {
                    self.renumber(step);
                }
                let _ = step(chosen, Step::Chosen(next_turn(self.last)));
            }
        }
        poll
    }

    /// Whether to return `Pending` now, and to register at the many ends only in the next poll.
    #[cold]
    fn looks_again(&mut self, survey: &Survey) -> bool {
        let is_first = std::mem::replace(&mut self.stage, Stage::Begun) == Stage::First;
        is_first && !self.skip && self.cx.decision().is_none() && survey.marks.is_any_untried()
    }

    /// Whether the spent budget refuses this poll; otherwise the budget is renewed.
    #[cold]
    fn is_refused(&mut self, cx: &Context<'_>) -> bool {
        let refused = self.stage == Stage::New && budget::refuse(cx);
        if refused {
            self.stage = Stage::Refused;
        } else {
            budget::renew();
        }
        refused
    }

    #[cold]
    fn renumber(&mut self, step: &mut impl Stepper) {
        for branch in 0..self.branches {
            let _ = step(branch, Step::Turn(renumbered));
        }
        self.last = renumbered(Look::Empty(Some(self.last))).unwrap_or(0);
    }

    /// The choice is dropped, decided or not: branches that may outlive it end their wait records. The chosen
    /// branch ignores this.
    pub(crate) fn tell_unchosen(&self, step: &mut impl Stepper) {
        if self.cx.take_foreign() {
            for branch in 0..self.branches {
                let _ = step(branch, Step::Unchosen);
            }
        }
    }

    fn poll_branches(&mut self, step: &mut impl Stepper, cx: &mut Context<'_>) -> Poll<usize> {
        if let Some(decision) = self.cx.decision() {
            decision.set_owner(cx.waker());
            if let Some(branch) = decision.decided() {
                return self.finish(step, branch, cx);
            }
            self.rouse(step);
        }
        let poll = self.try_all(step, cx);
        let all = poll.is_none();
        let poll = poll.unwrap_or_else(|| self.poll_skip(step, cx));
        if let Some(decision) = self.cx.decision() {
            decision.polled(all, &mut Wakes::default());
            decision.ask_back();
        }
        poll
    }

    /// Called if no branch can happen at once.
    fn poll_skip(&mut self, step: &mut impl Stepper, cx: &mut Context<'_>) -> Poll<usize> {
        if !self.skip {
            return Poll::Pending;
        }
        self.cx.at(SKIPPED);
        if self.cx.decide() {
            return Poll::Ready(self.branches);
        }
        match self.cx.decision().and_then(decision::Decision::decided) {
            Some(branch) => self.finish(step, branch, cx),
            // A receiver elsewhere has it reserved and has been asked to give it back: its answer wakes this
            // choice.
            None => Poll::Pending,
        }
    }
}

/// How a choice reaches its branches.
pub(crate) trait Stepper: FnMut(usize, Step<'_, '_>) -> Poll<()> {}
impl<F: FnMut(usize, Step<'_, '_>) -> Poll<()>> Stepper for F {}

/// A number below `n`. Xorshift (Marsaglia, 2003), seeded by the address of this thread's state: good enough
/// to break ties, and for nothing else.
#[cfg(not(any(loom, shuttle)))]
fn random(n: u32) -> u32 {
    use std::cell::Cell;
    thread_local! { static STATE: Cell<u32> = const { Cell::new(0) } }
    STATE.with(|state| {
        let mut x = state.get();
        if x == 0 {
            x = (std::ptr::from_ref(state).addr() as u32) | 1;
        }
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        state.set(x);
        ((u64::from(x) * u64::from(n)) >> 32) as u32
    })
}

/// In a model the draw is part of the execution: constant, or the scheduler's.
#[cfg(loom)]
fn random(_: u32) -> u32 {
    0
}

#[cfg(shuttle)]
fn random(n: u32) -> u32 {
    use shuttle::rand::Rng;
    shuttle::rand::thread_rng().gen_range(0..n)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::{Choice, RecvError, Sender, channel};

    /// The index that a fair choice takes of two channels, both without a sender.
    fn chosen(ends: &mut [crate::Receiver<u8>; 2]) -> usize {
        let mut choice = Choice::fair().all(ends.iter_mut().map(|rx| rx.recv())).into_future();
        let polled = Pin::new(&mut choice).poll(&mut Context::from_waker(std::task::Waker::noop()));
        let Poll::Ready((chosen, Err(RecvError::Closed))) = polled else { panic!("{polled:?}") };
        chosen
    }

    #[test]
    fn renumbered_turns_keep_their_order() {
        let mut ends = [(); 2].map(|()| channel::<u8>()).map(|(_, rx): (Sender<u8>, _)| rx);
        ends[0].chan().record.receiver.set_turn(TURN_MAX);
        ends[1].chan().record.receiver.set_turn(TURN_MAX - 1000);
        let turn = |ends: &[crate::Receiver<u8>; 2], end: usize| ends[end].chan().record.receiver.turn();
        assert_eq!(chosen(&mut ends), 1);
        assert!(turn(&ends, 0) < turn(&ends, 1) && turn(&ends, 1) < TURN_MAX);
        assert_eq!([0; 4].map(|_| chosen(&mut ends)), [0, 1, 0, 1]);
    }
}
