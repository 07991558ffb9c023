//! The scheduler inside a `par!`: which branches are ready, in the order they became so.
//!
//! One `par!` is polled by one thread at a time. A wake on that thread, while it polls, is a plain store into the list: the
//! common case, since branches of one `par!` mostly talk to each other. A wake from elsewhere goes through a locked
//! inbox and wakes the task that holds the `par!`. How the two keep apart:
//!
//! 1. The polling thread writes its token into `owner` before it touches `local`, and clears it when it is done.
//! 2. A waker that reads its own thread's token there knows that this very thread is inside that poll: so nobody else touches
//!    `local`, and what is done to it is never interrupted, because pushing and popping numbers calls no other code. For the
//!    innermost of nested `par!`s the thread remembers the same thing, which saves looking it up.
//! 3. Any other waker takes the lock of `remote`. If the `par!` is being polled it looks into the inbox once more before it
//!    ends; and whoever fills the inbox wakes the task after that, so no wake is lost in between.

pub(crate) mod alone;

use std::cell::Cell;
use std::panic::Location;
use std::task::{Context, Poll, Waker};

use crate::lock::Lock;
use crate::sync::{AtomicBool, AtomicUsize, Ordering, global, per_thread};
use crate::table::{Entry, Table};
use crate::waits::{self, Identities, Pid};
use crate::wake::keep;

global! { static HEADERS: Table<Header> = Table::new(); }

/// Wakes a branch. Any numbers will do: what does not exist is not woken.
#[inline(always)]
pub(super) fn wake(header: u32, branch: u32) {
    let innermost = INNERMOST.with(Cell::get);
    if innermost.index == header
        && let Some(innermost) = innermost.header
    {
        // SAFETY: this thread is inside the poll of this header's `par!` (step 2 above), and `push` calls nothing else.
        unsafe { innermost.local(|local| local.push(branch)) };
    } else {
        wake_another(header, branch);
    }
}

#[inline(never)]
fn wake_another(header: u32, branch: u32) {
    if let Some(header) = HEADERS.get(header) {
        header.wake(branch);
    }
}

/// Whether a `par!` is being polled on this thread.
pub(crate) fn is_inside() -> bool {
    INNERMOST.with(Cell::get).header.is_some()
}

/// An operation was refused on this thread, after so many that were ready: it counts for the innermost
/// `par!`, if there is one.
pub(crate) fn spend(operations: u32) {
    if let Some(innermost) = INNERMOST.with(Cell::get).header {
        // SAFETY: this thread is inside the poll of this header's `par!`, and `spend` calls nothing else.
        unsafe { innermost.local(|local| local.spend(operations)) };
    }
}

/// The innermost `par!` that is being polled on this thread.
#[derive(Clone, Copy)]
struct Innermost {
    index: u32,
    header: Option<&'static Header>,
}

const NOWHERE: Innermost = Innermost { index: u32::MAX, header: None };

#[cfg(not(loom))]
per_thread! { static INNERMOST: Cell<Innermost> = const { Cell::new(NOWHERE) } }
#[cfg(loom)]
per_thread! { static INNERMOST: Cell<Innermost> = Cell::new(NOWHERE) }

/// A number that no other living thread has. 0 is nobody's.
#[inline]
fn thread_token() -> usize {
    #[cfg(not(any(loom, shuttle)))]
    {
        per_thread! { static TOKEN: u8 = const { 0 } }
        TOKEN.with(|token| std::ptr::from_ref(token).addr())
    }
    #[cfg(any(loom, shuttle))]
    {
        per_thread! { static TOKEN: Box<u8> = Box::new(0) }
        TOKEN.with(|token| std::ptr::from_ref(&**token).addr())
    }
}

/// The ready branches, first in first out: a list threaded through one number for each branch.
#[derive(Default)]
struct Local {
    first: u32,
    last: u32,
    /// For each branch: the one behind it in the list, or [`LAST`]; [`IDLE`] if it is not in the list.
    next: Vec<u32>,
    /// How many operations of the branches may still be ready before this poll ends.
    operations: u32,
    /// A `par!` inside this one has spent its budget. Its poll is to end, and looks as if the list were at its end: what it held is here.
    ending: Option<Held>,
}

/// First and last of a list; both [`LAST`] if it is empty.
type Held = (u32, u32);

const IDLE: u32 = u32::MAX;
const LAST: u32 = u32::MAX - 1;

impl Local {
    /// All of `branches`, in their order.
    fn fill(&mut self, branches: u32) {
        self.next.clear();
        self.next.extend(1..=branches);
        self.first = if branches == 0 { LAST } else { 0 };
        self.ending = None;
        if let Some(last) = self.next.last_mut() {
            *last = LAST;
            self.last = branches - 1;
        }
    }

    #[inline(always)]
    fn push(&mut self, branch: u32) {
        let Some(next) = self.next.get_mut(branch as usize) else { return };
        if *next != IDLE {
            return;
        }
        *next = LAST;
        if self.first == LAST {
            self.first = branch;
        } else {
            self.next[self.last as usize] = branch;
        }
        self.last = branch;
    }

    #[inline(always)]
    fn pop(&mut self) -> Option<u32> {
        let branch = self.first;
        // `LAST`, of an empty list, is the number of no branch.
        let next = self.next.get_mut(branch as usize)?;
        self.first = std::mem::replace(next, IDLE);
        Some(branch)
    }

    /// Has the poll end soon: `pop` gives only what is pushed from now on.
    fn end_poll(&mut self) {
        let (first, last) = (std::mem::replace(&mut self.first, LAST), self.last);
        self.ending = Some(match self.ending {
            None | Some((LAST, _)) => (first, last),
            Some(held) if first == LAST => held,
            Some((held, before)) => {
                self.next[before as usize] = first;
                (held, last)
            }
        });
    }

    /// One of its operations was refused by the [budget](crate::budget), after so many that were ready.
    fn spend(&mut self, operations: u32) {
        self.operations = self.operations.saturating_sub(operations);
        if self.operations == 0 {
            self.end_poll();
        }
    }

    /// Whether the poll is to end. The list is then as it was, and ready for the next one.
    fn take_ending(&mut self) -> bool {
        let Some((first, last)) = self.ending.take() else { return false };
        if first != LAST {
            if self.first == LAST {
                self.last = last;
            } else {
                self.next[last as usize] = self.first;
            }
            self.first = first;
        }
        true
    }
}

/// How many wakes from elsewhere are listed before it is looked whether they are the same ones.
const INBOX_MAX: usize = 64;

#[derive(Default)]
struct Remote {
    inbox: Vec<u32>,
    inbox_max: usize,
    task: Option<Waker>,
}

/// The scheduler's state, in a table entry that outlives every waker.
pub(crate) struct Header {
    owner: AtomicUsize,
    #[cfg(not(loom))]
    local: crate::sync::UnsafeCell<Local>,
    #[cfg(loom)]
    local: loom::cell::UnsafeCell<Local>,
    remote: Lock<Remote>,
    has_mail: AtomicBool,
}

// SAFETY: everything but `local` is thread-safe by itself. `local` is touched only through `Header::local`, whose callers
// are the thread whose token is in `owner`, or have the `par!` to themselves (`&mut Ready` while nobody polls).
unsafe impl Sync for Header {}

impl Default for Header {
    fn default() -> Self {
        Self {
            owner: AtomicUsize::new(0),
            #[cfg(not(loom))]
            local: crate::sync::UnsafeCell::new(Local::default()),
            #[cfg(loom)]
            local: loom::cell::UnsafeCell::new(Local::default()),
            remote: Lock::new(Remote::default()),
            has_mail: AtomicBool::new(false),
        }
    }
}

impl Header {
    /// # Safety
    /// The caller must be the thread whose token is in `owner`, or hold the `par!` by `&mut` while `owner` is 0; and `f` must not
    /// reach this function again.
    #[inline(always)]
    unsafe fn local<R>(&self, f: impl FnOnce(&mut Local) -> R) -> R {
        #[cfg(not(loom))]
        // SAFETY: by this function's contract nobody else has a reference to the contents now.
        return f(unsafe { &mut *self.local.get() });
        #[cfg(loom)]
        // SAFETY: as above; loom checks it.
        return self.local.with_mut(|local| f(unsafe { &mut *local }));
    }

    #[inline]
    fn wake(&self, branch: u32) {
        if self.owner.load(Ordering::Relaxed) == thread_token() {
            // SAFETY: this thread owns the header (step 2 above), and `push` calls nothing else.
            unsafe { self.local(|local| local.push(branch)) };
        } else {
            self.wake_from_elsewhere(branch);
        }
    }

    #[cold]
    fn wake_from_elsewhere(&self, branch: u32) {
        let mut remote = self.remote.lock();
        remote.inbox.push(branch);
        if remote.inbox.len() > remote.inbox_max {
            // A branch may have been woken many times before its `par!` is polled.
            remote.inbox.sort_unstable();
            remote.inbox.dedup();
            remote.inbox_max = INBOX_MAX.max(2 * remote.inbox.len());
        }
        self.has_mail.store(true, Ordering::Release);
        let task = remote.task.as_ref().map(keep);
        drop(remote);
        if let Some(task) = task {
            task.wake();
        }
    }

    /// Moves what came from elsewhere into the list. The caller owns the header.
    fn take_mail(&self) {
        let mut remote = self.remote.lock();
        self.has_mail.store(false, Ordering::Relaxed);
        let mail = std::mem::take(&mut remote.inbox);
        drop(remote);
        for branch in mail {
            // SAFETY: the caller owns the header, and `push` calls nothing else.
            unsafe { self.local(|local| local.push(branch)) };
        }
    }
}

/// This thread owns a header while this lives: until the poll ends, also by panic.
struct Owned {
    header: &'static Header,
    outer: Innermost,
}

impl Owned {
    #[inline]
    fn new(index: u32, header: &'static Header) -> Self {
        header.owner.store(thread_token(), Ordering::Relaxed);
        Self { header, outer: INNERMOST.with(|cell| cell.replace(Innermost { index, header: Some(header) })) }
    }
}

impl Owned {
    /// The task's neighbours are to have their turn. The `par!`s around this one end their polls too: else each of them would poll this
    /// one for its own budget, and nested budgets would multiply.
    #[cold]
    fn yield_task(&self, cx: &mut Context<'_>) {
        let Some(outer) = self.outer.header else { return crate::budget::wake_later(cx.waker()) };
        cx.waker().wake_by_ref();
        // SAFETY: this thread is inside the poll of that `par!` too (it was the innermost when this one's
        // began), and `end_poll` calls nothing else.
        unsafe { outer.local(Local::end_poll) };
    }
}

impl Drop for Owned {
    #[inline]
    fn drop(&mut self) {
        INNERMOST.with(|cell| cell.set(self.outer));
        self.header.owner.store(0, Ordering::Relaxed);
    }
}

/// A branch that is being polled. If the poll panics, its branch is ready still: it is polled again, with
/// those behind it, if the `par!` is.
struct Polling {
    header: &'static Header,
    /// The process of the first branch.
    first: u64,
}

impl Drop for Polling {
    #[cold]
    #[inline(never)]
    fn drop(&mut self) {
        let branch = Pid::current().as_u64().wrapping_sub(self.first) as u32;
        // SAFETY: dropped before `Owned`, so this thread's token is in `owner`, and `push` calls nothing
        // else.
        unsafe { self.header.local(|local| local.push(branch)) };
    }
}

/// The branches of one `par!`: which are ready, and how many are not done.
pub(crate) struct Ready {
    made: &'static Location<'static>,
    budget: u32,
    left: u32,
    begun: Option<Begun>,
}

struct Begun {
    header: &'static Entry<Header>,
    index: u32,
    identities: Identities,
}

/// How many branch polls one poll of a `par!` does before it lets the task's other neighbours run. Measured: 256 costs a
/// tenth more than this.
const BUDGET: u32 = 2048;

/// After how many branch polls the mail is looked into at the latest.
const MAIL_EVERY: u32 = 64;

/// How a poll of a `par!` ends.
#[derive(Clone, Copy, PartialEq)]
enum End {
    /// No branch is left.
    Done,
    /// No branch is ready.
    Waits,
    /// Its task is woken.
    GaveWay,
}

impl Ready {
    pub(crate) fn new(branches: usize, made: &'static Location<'static>) -> Self {
        let left = u32::try_from(branches).expect("a `par!` has less than 2^32 branches");
        Self { made, budget: BUDGET, left, begun: None }
    }

    pub(crate) fn set_budget(&mut self, polls: u32) {
        self.budget = polls.max(1);
    }

    fn begin(&mut self) -> &Begun {
        let (made, branches) = (self.made, self.left);
        self.begun.get_or_insert_with(|| {
            let header = HEADERS.take();
            // What a stale waker of the entry's last user left behind.
            header.remote.lock().inbox.clear();
            // SAFETY: nobody polls a `par!` on this entry yet, so `owner` is 0 and the entry is ours alone.
            unsafe {
                header.local(|local| local.fill(branches));
            }
            Begun { header, index: HEADERS.index_of(header), identities: Identities::new(branches, made) }
        })
    }

    /// Polls ready branches until none is, all are done, or the budget is spent. `poll` says whether its branch is done.
    #[inline]
    pub(crate) fn run(
        &mut self,
        cx: &mut Context<'_>,
        mut poll: impl FnMut(usize, &mut Context<'_>) -> bool,
    ) -> Poll<()> {
        if self.left == 0 {
            return Poll::Ready(());
        }
        let mut left = self.left;
        let budget = self.budget;
        let is_first = self.begun.is_none();
        let Begun { header, index, identities } = self.begin();
        let (header, index, first) = (header.value(), *index, identities.first().as_u64());
        if is_first && crate::budget::is_spent() && crate::budget::refuse(cx) {
            return Poll::Pending;
        }
        let refusals = crate::budget::refusals();
        let mut remote = header.remote.lock();
        let old = match &mut remote.task {
            Some(task) if task.will_wake(cx.waker()) => None,
            task => task.replace(keep(cx.waker())),
        };
        drop(remote);
        drop(old);
        let owned = Owned::new(index, header);
        if !is_first && owned.outer.header.is_none() {
            // It comes from its runtime.
            crate::budget::renew();
        }
        let entered = waits::enter(first);
        let polling = Polling { header, first };
        // SAFETY: this thread's token is in `owner`, and nothing else is called.
        unsafe { header.local(|local| local.operations = budget) };
        // How many polls until the next look at the mail, and how many behind that.
        let (mut until_mail, mut polls) = (0, budget);
        let end = loop {
            if until_mail == 0 {
                if polls == 0 {
                    owned.yield_task(cx);
                    break End::GaveWay;
                }
                // Else two branches that always wake each other would keep it unread for ever.
                if header.has_mail.load(Ordering::Acquire) {
                    header.take_mail();
                }
                until_mail = MAIL_EVERY.min(polls);
                polls -= until_mail;
            }
            // SAFETY: this thread's token is in `owner`, and `pop` calls nothing else.
            let Some(branch) = (unsafe { header.local(Local::pop) }) else {
                // SAFETY: as above, and `take_ending` calls nothing else.
                if unsafe { header.local(Local::take_ending) } {
                    owned.yield_task(cx);
                    break End::GaveWay;
                }
                if header.has_mail.load(Ordering::Acquire) {
                    header.take_mail();
                    continue;
                }
                break End::Waits;
            };
            until_mail -= 1;
            entered.switch(first + u64::from(branch));
            let done =
                super::waker::with_waker(index, branch, |waker| poll(branch as usize, &mut Context::from_waker(waker)));
            if done {
                left -= 1;
                // At once: a branch behind it may panic.
                self.left = left;
                if left == 0 {
                    break End::Done;
                }
            }
        };
        std::mem::forget(polling);
        drop((entered, owned));
        if end != End::GaveWay && crate::budget::refusals() != refusals {
            crate::budget::forget_refusals(refusals);
            if end == End::Done {
                // Its task has yet to give way.
                crate::budget::exhaust();
            }
        }
        if end == End::Done { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        let Some(Begun { header, .. }) = self.begun.take() else { return };
        // SAFETY: dropped, so not being polled: `owner` is 0, and nobody else has this entry.
        unsafe {
            header.local(|local| {
                local.fill(0);
                // An entry serves many; what a huge one needed is not kept.
                local.next.shrink_to(64);
            });
        }
        let task = header.remote.lock().task.take();
        drop(task);
        HEADERS.give(header);
    }
}
