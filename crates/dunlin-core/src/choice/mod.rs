//! Choice: exactly one of several operations happens, and the others have had no effect.
//!
//! - [`branch`]: what may be a branch, and what a branch is told.
//! - [`decision`]: the state that a choice with sends shares with those who may take its offers.
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
//! to lower branches, or to `skip`.

pub(crate) mod branch;
pub(crate) mod builder;
pub(crate) mod decision;

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

pub(crate) use branch::ChoiceCx;
use branch::{Branch, Look};

/// In which order the branches of a choice are tried.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Prioritised,
    Fair,
    Random,
}

/// What a choice asks of one of its branches.
#[doc(hidden)]
#[derive(Debug)]
pub enum Step<'a, 'b> {
    Look(&'a mut Look),
    Poll(&'a mut Context<'b>, &'a ChoiceCx),
    Chosen(u32),
    Rouse,
}

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
        Step::Look(look) => *look = branch.look(),
        Step::Chosen(turn) => branch.chosen(turn),
        Step::Rouse => branch.rouse(),
    }
    Poll::Pending
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
pub struct Choose<F> {
    choosing: Choosing,
    step: F,
}

// What `step` refers to is pinned elsewhere.
impl<F> Unpin for Choose<F> {}

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
const SKIPPED: u32 = u32::MAX;

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

    fn look(&mut self, step: &mut impl Stepper, branch: usize) -> Look {
        let mut look = Look::Off;
        let _ = step(branch, Step::Look(&mut look));
        look
    }

    fn attempt(&mut self, step: &mut impl Stepper, branch: usize, cx: &mut Context<'_>) -> Tried {
        self.cx.at(branch as u32);
        if step(branch, Step::Poll(cx, &self.cx)).is_ready() {
            return Tried::Happened;
        }
        self.rouse(step);
        match self.cx.decision().and_then(decision::Decision::decided) {
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
    #[inline]
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

    fn poll_in_order(&mut self, step: &mut impl Stepper, cx: &mut Context<'_>) -> Option<Poll<usize>> {
        for branch in 0..self.branches {
            if self.look(step, branch) != Look::Off
                && let Some(poll) = self.after(step, branch, cx)
            {
                return Some(poll);
            }
        }
        None
    }

    /// Fair or random: those that look ready first, one after the other as the order says, then the rest.
    fn poll_by_turns(&mut self, step: &mut impl Stepper, cx: &mut Context<'_>) -> Option<Poll<usize>> {
        let mut tried = Tries::new(self.branches);
        loop {
            let mut best: Option<(usize, u32)> = None;
            let mut ready = 0;
            for branch in 0..self.branches {
                let (turn, maybe) = match self.look(step, branch) {
                    Look::Off => continue,
                    Look::Empty(turn) => (turn, false),
                    Look::Maybe(turn) => (turn, true),
                };
                self.last = later(self.last, turn.unwrap_or(self.last));
                if !maybe || tried.has(branch) {
                    continue;
                }
                ready += 1;
                let better = match (self.order, best) {
                    (_, None) => true,
                    // Each of `ready` is kept with the same chance.
                    (Order::Random, _) => random(ready) == 0,
                    // What has no memory of its turns, such as a timer, goes first once in a while.
                    (_, Some((_, best))) => match turn {
                        Some(turn) => (turn.wrapping_sub(best) as i32) < 0,
                        None => random(self.branches as u32) == 0,
                    },
                };
                if better {
                    best = Some((branch, turn.unwrap_or(self.last)));
                }
            }
            let Some((branch, _)) = best else { break };
            tried.add(branch);
            if let Some(poll) = self.after(step, branch, cx) {
                return Some(poll);
            }
        }
        for branch in 0..self.branches {
            if tried.has(branch) || self.look(step, branch) == Look::Off {
                continue;
            }
            if let Some(poll) = self.after(step, branch, cx) {
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
            let _ = step(chosen, Step::Chosen(self.last.wrapping_add(1)));
        }
        poll
    }

    fn poll_branches(&mut self, step: &mut impl Stepper, cx: &mut Context<'_>) -> Poll<usize> {
        if let Some(decision) = self.cx.decision() {
            decision.set_owner(cx.waker());
            if let Some(branch) = decision.decided() {
                return self.finish(step, branch, cx);
            }
            self.rouse(step);
        }
        if !self.begun {
            self.begun = true;
            let nothing = !self.skip && (0..self.branches).all(|branch| self.look(step, branch) == Look::Off);
            assert!(!nothing, "a choice in which every branch is off would wait for ever: add a `skip` or a timeout");
        }
        let poll = match self.order {
            Order::Prioritised => self.poll_in_order(step, cx),
            Order::Fair | Order::Random => self.poll_by_turns(step, cx),
        };
        if let Some(poll) = poll {
            return poll;
        }
        if !self.skip {
            return Poll::Pending;
        }
        self.cx.at(SKIPPED);
        if self.cx.commit() {
            return Poll::Ready(self.branches);
        }
        match self.cx.decision().and_then(decision::Decision::decided) {
            Some(branch) => self.finish(step, branch, cx),
            None => Poll::Ready(self.branches),
        }
    }
}

/// How a choice reaches its branches.
pub(crate) trait Stepper: FnMut(usize, Step<'_, '_>) -> Poll<()> {}
impl<F: FnMut(usize, Step<'_, '_>) -> Poll<()>> Stepper for F {}

fn later(a: u32, b: u32) -> u32 {
    if (b.wrapping_sub(a) as i32) > 0 { b } else { a }
}

/// Which branches have been tried in this poll.
struct Tries {
    first: u64,
    more: Vec<u64>,
}

impl Tries {
    fn new(branches: usize) -> Self {
        Self { first: 0, more: vec![0; branches.saturating_sub(1) / 64] }
    }

    fn word(&mut self, branch: usize) -> &mut u64 {
        if branch < 64 { &mut self.first } else { &mut self.more[branch / 64 - 1] }
    }

    fn has(&mut self, branch: usize) -> bool {
        *self.word(branch) & 1 << (branch % 64) != 0
    }

    fn add(&mut self, branch: usize) {
        *self.word(branch) |= 1 << (branch % 64);
    }
}

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
