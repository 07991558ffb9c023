//! The scheduler inside a `par!`: it polls the branches that are ready, in the order they became so.
//!
//! [`waker`](super::waker) describes how a branch becomes ready, and how the polling thread and others are
//! kept apart.

pub(crate) mod alone;

use std::panic::Location;
use std::task::{Context, Poll};

use super::list::Local;
use super::waker::{Header, INNERMOST, Innermost, thread_token, with_waker};
use crate::sync::Ordering;
use crate::table::Entry;
use crate::waits::{self, Identities, Pid};
use crate::wake::keep;

/// Makes this thread the owner of a header until the poll ends, also by panic.
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
    /// Yields to other tasks. The `par!`s around this one end their polls too: otherwise each of them would
    /// poll this one for its own budget, and nested budgets would multiply.
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

/// A branch that is being polled. If the poll panics, its branch stays ready: it is polled again, with those
/// behind it, if the `par!` is.
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

/// The branches of one `par!`: which are ready, and how many have not ended.
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

/// How many branch polls one poll of a `par!` does before it yields to other tasks. Measured: 256 costs a
/// tenth more than this.
const BUDGET: u32 = 2048;

/// The maximum number of branch polls between two checks of the mail.
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
            let (header, index) = Header::take();
            // Entries left by a stale waker of the entry's last user.
            header.remote.lock().inbox.clear();
            // SAFETY: no thread polls a `par!` on this entry yet, so `owner` is 0 and the entry is ours
            // alone.
            unsafe {
                header.local(|local| local.fill(branches));
            }
            Begun { header, index, identities: Identities::new(branches, made) }
        })
    }

    /// Polls ready branches until none is ready, all have ended, or the budget is spent. `poll` returns
    /// whether its branch has ended.
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
            // This poll comes from the runtime.
            crate::budget::renew();
        }
        let entered = waits::enter(first);
        let polling = Polling { header, first };
        // SAFETY: this thread's token is in `owner`, and nothing else is called.
        unsafe { header.local(|local| local.operations = budget) };
        // How many polls remain until the next check of the mail, and how many after that.
        let (mut until_mail, mut polls) = (0, budget);
        let end = loop {
            if until_mail == 0 {
                if polls == 0 {
                    owned.yield_task(cx);
                    break End::GaveWay;
                }
                // Otherwise two branches that always wake each other would keep it unread for ever.
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
            let done = with_waker(index, branch, |waker| poll(branch as usize, &mut Context::from_waker(waker)));
            if done {
                left -= 1;
                // Stored at once: a branch after it may panic.
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
                // Its task still has to yield.
                crate::budget::exhaust();
            }
        }
        if end == End::Done { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        let Some(Begun { header, .. }) = self.begun.take() else { return };
        // SAFETY: dropped, so not being polled: `owner` is 0, and no other thread has this entry.
        unsafe {
            header.local(|local| {
                local.fill(0);
                // An entry is reused often; the memory of a huge `par!` is not kept.
                local.next.shrink_to(64);
            });
        }
        let task = header.remote.lock().task.take();
        drop(task);
        Header::give(header);
    }
}
