//! Choice: exactly one of several operations happens, and the others have had no effect.
//!
//! - [`branch`]: what may be a branch, and what a branch is told.
//! - [`decision`]: the state that a choice with sends or barriers shares with those who may decide it.
//! - [`builder`]: [`Choice`], for branches known only at run time.
//! - here: how a choice goes over its branches; [`alt!`](crate::alt) expands to it.
//!
//! # Order
//! *Prioritised* goes down the list. *Fair* looks at all branches and takes, of those that are ready, the one whose
//! end was chosen least recently: every end remembers when its last turn was, so fairness holds from one choice to the
//! next, also if they are at different places of the program. *Random* draws among the ready ones.
//!
//! A send can never happen in the poll that offers its value, because only a receive that is being polled takes one.
//! So a send gets its turn: if it woke a receiver, the choice lets that one be polled before it goes on
//! to lower branches that look ready, or to `skip`. With nothing to go on to it just waits.

pub(crate) mod branch;
pub(crate) mod builder;
pub(crate) mod decision;

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

pub(crate) use branch::ChoiceCx;
use branch::{Branch, Look};

use crate::channel::after::Wakes;

/// In which order the branches of a choice are tried.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Prioritised,
    Fair,
    Random,
}

/// What a choice asks of one of its branches; a survey it asks of all at once, under the number [`ALL`].
#[doc(hidden)]
#[derive(Debug)]
pub enum Step<'a, 'b> {
    Survey(&'a mut Survey),
    Poll(&'a mut Context<'b>, &'a ChoiceCx),
    Chosen(u32),
    Rouse,
    Unchosen,
}

/// Not the number of a branch: the step is for all of them.
const ALL: usize = usize::MAX;

/// Carries out a step on a branch; one that is `None` is off.
#[doc(hidden)]
#[inline]
pub fn step<B: Branch>(branch: Pin<&mut Option<B>>, step: Step<'_, '_>) -> Poll<B::Output> {
    match branch.as_pin_mut() {
        Some(branch) => step_on(branch, step),
        None => Poll::Pending,
    }
}

#[inline]
pub(crate) fn step_on<B: Branch>(branch: Pin<&mut B>, step: Step<'_, '_>) -> Poll<B::Output> {
    match step {
        Step::Poll(cx, choice) => return branch.poll_branch(cx, choice),
        Step::Chosen(turn) => branch.chosen(turn),
        Step::Rouse => branch.rouse(),
        Step::Unchosen => branch.unchosen(),
        Step::Survey(_) => {}
    }
    Poll::Pending
}

/// Tells a survey how a branch looks.
#[doc(hidden)]
#[inline(always)]
pub fn survey<B: Branch>(branch: Pin<&mut Option<B>>, number: usize, survey: &mut Survey) {
    if let Some(branch) = branch.as_pin_mut() {
        survey.see(number, branch.look());
    }
}

/// A look at all branches: which are on, and which to try first.
#[doc(hidden)]
#[derive(Debug)]
pub struct Survey {
    order: Order,
    branches: usize,
    on: Numbers,
    tried: Numbers,
    any_on: bool,
    /// The latest turn of any end that was seen.
    last: u32,
    /// How many look ready and have not been tried, and which of them is first, with its turn.
    ready: u32,
    best: usize,
    best_turn: u32,
}

impl Survey {
    fn new(order: Order, branches: usize, last: u32) -> Self {
        let (on, tried) = (Numbers::below(branches), Numbers::below(branches));
        Self { order, branches, on, tried, any_on: false, last, ready: 0, best: 0, best_turn: 0 }
    }

    #[inline(always)]
    pub(crate) fn see(&mut self, number: usize, look: Look) {
        let (turn, maybe) = match look {
            Look::Off => return,
            Look::Empty(turn) => (turn, false),
            Look::Maybe(turn) => (turn, true),
        };
        self.any_on = true;
        self.on.add(number);
        self.last = self.last.max(turn.unwrap_or(0));
        if maybe && !self.tried.has(number) {
            self.consider(number, turn);
        }
    }

    fn consider(&mut self, number: usize, turn: Option<u32>) {
        self.ready += 1;
        let better = self.ready == 1
            || match self.order {
                Order::Prioritised => false,
                // Each of those that look ready is kept with the same chance.
                Order::Random => random(self.ready) == 0,
                // What has no memory of its turns, such as a timer, goes first once in a while.
                Order::Fair => match turn {
                    Some(turn) => turn < self.best_turn,
                    None => random(self.branches as u32) == 0,
                },
            };
        if better {
            (self.best, self.best_turn) = (number, turn.unwrap_or(self.last));
        }
    }
}

/// A set of branch numbers. Up to 64 need no memory of their own.
#[derive(Debug)]
struct Numbers {
    first: u64,
    more: Vec<u64>,
}

impl Numbers {
    /// An empty set, for numbers below `branches`.
    fn below(branches: usize) -> Self {
        Self { first: 0, more: vec![0; branches.saturating_sub(1) / 64] }
    }

    #[inline(always)]
    fn has(&self, number: usize) -> bool {
        let word = if number < 64 { self.first } else { self.more[number / 64 - 1] };
        word & 1 << (number % 64) != 0
    }

    #[inline(always)]
    fn add(&mut self, number: usize) {
        let word = if number < 64 { &mut self.first } else { &mut self.more[number / 64 - 1] };
        *word |= 1 << (number % 64);
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

/// A choice under way. Its branches are reached by what the caller hands in at every poll.
#[derive(Debug)]
pub(crate) struct Choosing {
    order: Order,
    skip: bool,
    branches: usize,
    cx: ChoiceCx,
    begun: bool,
    /// The latest turn of any of the ends, as of the last look.
    last: u32,
}

/// The branch number that stands for `skip`.
pub(crate) const SKIPPED: u32 = u32::MAX;

/// How trying one branch went.
enum Tried {
    Happened,
    NotYet,
    /// Let others be polled first.
    Turn,
    /// Another party decided for this branch.
    Decided(u32),
}

impl Choosing {
    pub(crate) fn new(order: Order, skip: bool, branches: usize) -> Self {
        Self { order, skip, branches, cx: ChoiceCx::default(), begun: false, last: 0 }
    }

    /// Whether it has been polled.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun
    }

    #[inline(always)]
    fn attempt(&mut self, step: &mut impl Stepper, branch: usize, cx: &mut Context<'_>) -> Tried {
        self.cx.at(branch as u32);
        if step(branch, Step::Poll(cx, &self.cx)).is_ready() {
            return Tried::Happened;
        }
        // Nothing was offered, so nobody else can have decided, nor needs a turn.
        let Some(decision) = self.cx.decision() else { return Tried::NotYet };
        let decided = decision.decided();
        self.rouse(step);
        match decided {
            Some(branch) => Tried::Decided(branch),
            None if self.cx.take_turn() => Tried::Turn,
            None => Tried::NotYet,
        }
    }

    /// Whoever was turned away while the choice was closed or reserved looks again.
    fn rouse(&self, step: &mut impl Stepper) {
        if self.cx.decision().is_some_and(decision::Decision::take_turned_away) {
            for branch in 0..self.branches {
                let _ = step(branch, Step::Rouse);
            }
        }
    }

    /// Another party decided: that branch is done, or an extended receive still holds its value.
    fn finish(&mut self, step: &mut impl Stepper, branch: u32, cx: &mut Context<'_>) -> Poll<usize> {
        if branch == SKIPPED {
            return Poll::Ready(self.branches);
        }
        self.cx.at(branch);
        step(branch as usize, Step::Poll(cx, &self.cx)).map(|()| branch as usize)
    }

    /// Tries one branch; `Some`: the poll ends with this.
    #[inline(always)]
    fn after(&mut self, step: &mut impl Stepper, branch: usize, cx: &mut Context<'_>) -> Option<Poll<usize>> {
        match self.attempt(step, branch, cx) {
            Tried::Happened => Some(Poll::Ready(branch)),
            Tried::NotYet => None,
            Tried::Decided(branch) => Some(self.finish(step, branch, cx)),
            Tried::Turn => {
                cx.waker().wake_by_ref();
                Some(Poll::Pending)
            }
        }
    }

    /// Tries those that look ready, one after the other as the order says, and then has the rest wait.
    fn try_all(&mut self, step: &mut impl Stepper, cx: &mut Context<'_>) -> Option<Poll<usize>> {
        let mut survey = Survey::new(self.order, self.branches, self.last);
        loop {
            survey.ready = 0;
            let _ = step(ALL, Step::Survey(&mut survey));
            self.last = survey.last;
            if !self.begun {
                self.begun = true;
                let hopeless = !survey.any_on && !self.skip;
                assert!(
                    !hopeless,
                    "a choice in which every branch is off would wait for ever: add a `skip` or a timeout"
                );
            }
            if survey.ready == 0 {
                break;
            }
            let branch = survey.best;
            survey.tried.add(branch);
            self.cx.set_rivals(survey.ready > 1 || self.skip);
            if let Some(poll) = self.after(step, branch, cx) {
                return Some(poll);
            }
            if survey.ready == 1 {
                break;
            }
        }
        self.cx.set_rivals(self.skip);
        for branch in 0..self.branches {
            if survey.on.has(branch)
                && !survey.tried.has(branch)
                && let Some(poll) = self.after(step, branch, cx)
            {
                return Some(poll);
            }
        }
        None
    }

    pub(crate) fn poll(&mut self, step: &mut impl Stepper, cx: &mut Context<'_>) -> Poll<usize> {
        let poll = self.poll_branches(step, cx);
        if let (Poll::Ready(chosen), Order::Fair) = (poll, self.order)
            && chosen < self.branches
        {
            if self.last == u32::MAX {
                // The count is full: all begin anew, as equals.
                self.last = 0;
                for branch in 0..self.branches {
                    let _ = step(branch, Step::Chosen(0));
                }
            }
            let _ = step(chosen, Step::Chosen(self.last + 1));
        }
        poll
    }

    /// The choice is dropped, decided or not: those who wait on what may outlive it say so no more. (To the one that was chosen
    /// it means nothing.)
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

    /// No branch can happen at once.
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
            // Reserved, for a receiver elsewhere that has been asked to give it back: one of both will wake us.
            None => Poll::Pending,
        }
    }
}

/// How a choice reaches its branches.
pub(crate) trait Stepper: FnMut(usize, Step<'_, '_>) -> Poll<()> {}
impl<F: FnMut(usize, Step<'_, '_>) -> Poll<()>> Stepper for F {}

/// A number below `n`. Xorshift (Marsaglia, 2003), seeded by where this thread keeps its state: good enough to
/// break ties, and not for anything else.
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

/// In a model the draw is part of the execution: none, or the scheduler's.
#[cfg(loom)]
fn random(_: u32) -> u32 {
    0
}

#[cfg(shuttle)]
fn random(n: u32) -> u32 {
    use shuttle::rand::Rng;
    shuttle::rand::thread_rng().gen_range(0..n)
}
