//! How many operations may be ready in a row before their task yields to other tasks.
//!
//! A loop of operations that are all ready never returns to its runtime, so no other task, timer or deadline
//! gets its turn. Therefore each thread counts the operations that were ready. After [`OPERATIONS_MAX`] of
//! them the next one wakes itself and returns `Pending`, before it has offered or taken anything: it is
//! *refused*. The forms that never wait (`try_recv` and the like) are exempt.
//!
//! 1. An operation is refused in its first poll only. Before a later poll its task has returned to the
//!    runtime, so the operation proceeds and renews the budget. The core knows no runtime, and this is its
//!    only sign of one in a task that is no process of dunlin's. The processes of the crate `dunlin` and its
//!    simulation renew the budget at each poll ([`renew`]).
//! 2. The budget stays spent until then: each of several branches of another crate's `select!` is refused, so
//!    none of them overtakes another. A loop that drops every refused operation proceeds after
//!    [`REFUSALS_MAX`].
//! 3. A choice asks once for all its branches. An operation inside a branch (`future(f)`, a deadline) may be
//!    refused, by this budget or by the runtime's own ([`give_way_to_runtime`]). Then the choice yields too:
//!    it tries neither lower branches nor `skip`. It wakes its task itself, because the refused operation may
//!    have woken another waker. A `future(f)` that spends the whole budget in one poll counts as waiting: the
//!    choice looks at lower branches, since otherwise such a branch would starve timers below it, but does
//!    not `skip`.
//! 4. A `par!` with a refused branch still polls its other branches, and ends its poll after as many
//!    operations as it may do polls. It renews the budget in each poll but its first. Its first poll may be
//!    refused, and a `par!` with a refusal inside that ends in the same poll leaves the budget spent:
//!    otherwise a loop of such `par!`s would never yield. For the code around it nothing was refused, unless
//!    the `par!` itself yielded: the refused branches have been polled again.
//! 5. The runtime may set how a task that yields is woken ([`set_waking`]): after other tasks, timers and
//!    sockets.
//!
//! A blocking executor that runs inside a task (`block_on` of another crate, on a thread of a runtime) may
//! hang. An operation that is refused there, by this budget or by that of tokio's own operations, may be
//! woken only when the blocking task has returned to its runtime.
//!
//! A deterministic executor renews the budget at each poll: the remainder depends on what the thread did
//! before. In loom and shuttle models the budget is never spent.

use std::cell::Cell;
use std::sync::OnceLock;
use std::task::{Context, Poll, Waker};

use crate::par::waker;

/// How many operations may be ready in a row: the same number as in a tokio task.
pub const OPERATIONS_MAX: u32 = 128;

/// How many operations are refused in a row before the budget is renewed: more than the branches of any
/// `select!`.
const REFUSALS_MAX: u32 = 64;

/// Two cells in one place: each poll of a process renews both, with one store.
struct Budget {
    /// How many are left. If not above 0, the budget is spent.
    left: Cell<i32>,
    /// How many operations were refused since the budget was renewed.
    refused: Cell<u32>,
}

thread_local! {
    static BUDGET: Budget = const { Budget { left: Cell::new(OPERATIONS_MAX as i32), refused: Cell::new(0) } };
    /// How many operations were refused in total, also by the runtime's budget. Wraps.
    static REFUSALS: Cell<u32> = const { Cell::new(0) };
    /// How many operations the runtime's budget refused. Wraps.
    static BY_RUNTIME: Cell<u32> = const { Cell::new(0) };
}

static WAKING: OnceLock<fn(&Waker)> = OnceLock::new();

const IS_MODEL: bool = cfg!(any(loom, shuttle));

#[inline(always)]
fn left() -> i32 {
    BUDGET.with(|budget| budget.left.get())
}

/// Counts an operation that is about to be ready. `false`: the budget is spent.
#[inline(always)]
pub(crate) fn take_one() -> bool {
    BUDGET.with(|budget| {
        let left = budget.left.get() - i32::from(!IS_MODEL);
        budget.left.set(left);
        left >= 0
    })
}

#[inline(always)]
pub(crate) fn is_spent() -> bool {
    left() <= 0
}

/// Counts an operation that was ready, and was not refused.
#[inline]
pub(crate) fn count() {
    if !take_one() {
        renew();
    }
}

/// Restores the whole budget, when a task's poll begins.
#[inline]
pub fn renew() {
    BUDGET.with(|budget| {
        budget.left.set(OPERATIONS_MAX as i32);
        budget.refused.set(0);
    });
}

/// How many operations have been refused on this thread. If two results differ, one was refused in between.
#[inline]
pub(crate) fn refusals() -> u32 {
    REFUSALS.get()
}

/// Resets the count of refusals to `since`: the operations refused after that have been polled again, and do
/// not wait for another poll of the task.
#[inline]
pub(crate) fn forget_refusals(since: u32) {
    REFUSALS.set(since);
}

/// The state of the budget before a poll.
pub(crate) struct Before {
    is_whole: bool,
    refusals: u32,
    by_runtime: u32,
}

impl Before {
    pub(crate) fn new() -> Self {
        let is_whole = left() == OPERATIONS_MAX as i32;
        Self { is_whole, refusals: refusals(), by_runtime: BY_RUNTIME.get() }
    }

    /// Whether the whole budget was spent since, and an operation was refused for that reason alone.
    pub(crate) fn was_spent(&self) -> bool {
        self.is_whole && self.refusals != refusals() && self.by_runtime == BY_RUNTIME.get()
    }
}

/// Makes the next operation in this poll be refused.
#[cold]
pub(crate) fn exhaust() {
    BUDGET.with(|budget| budget.left.set(0));
}

/// Called with a spent budget: refuses the operation that asks in its first poll. `false`: it proceeds, with
/// a new budget.
#[cold]
pub(crate) fn refuse(cx: &Context<'_>) -> bool {
    let refused = BUDGET.with(|budget| {
        budget.left.set(0);
        budget.refused.set(budget.refused.get() + 1);
        budget.refused.get()
    });
    if refused > REFUSALS_MAX {
        renew();
        return false;
    }
    give_way(cx.waker(), OPERATIONS_MAX);
    true
}

/// The budget of the runtime is spent, so no operation that asks it can be ready. The task is polled again,
/// and until then no choice tries another branch because of that.
#[cold]
pub fn give_way_to_runtime(cx: &Context<'_>) {
    BY_RUNTIME.set(BY_RUNTIME.get().wrapping_add(1));
    give_way(cx.waker(), u32::MAX);
}

/// An operation was refused, after `operations` that were ready. Its task, or its branch of a `par!`, is
/// polled again.
fn give_way(waker: &Waker, operations: u32) {
    REFUSALS.set(REFUSALS.get().wrapping_add(1));
    poll_again(waker, operations);
}

/// Wakes a task that yields, or its branch of a `par!`, after `operations` that were ready.
#[cold]
pub(crate) fn poll_again(waker: &Waker, operations: u32) {
    if waker::is_inside() {
        // Woken first, so that it waits for the next poll of the `par!` if this one has to end.
        waker.wake_by_ref();
        waker::spend(operations);
    } else {
        wake_later(waker);
    }
}

/// Sets how a task that yields is woken. The first setting stays.
pub fn set_waking(waking: fn(&Waker)) {
    let _ = WAKING.set(waking);
}

/// Wakes a task that yields.
pub(crate) fn wake_later(task: &Waker) {
    match WAKING.get() {
        Some(waking) => waking(task),
        None => task.wake_by_ref(),
    }
}

/// Polls an operation that is not a branch. `again`: it has been polled before.
#[inline]
pub fn counted<'a, R>(again: bool, cx: &mut Context<'a>, poll: impl FnOnce(&mut Context<'a>) -> Poll<R>) -> Poll<R> {
    if is_spent() && !again && refuse(cx) {
        return Poll::Pending;
    }
    let polled = poll(cx);
    if polled.is_ready() {
        count();
    }
    polled
}
