//! The waker of a branch: two numbers in one word, without a count; and the branch that it wakes.
//!
//! Cloning and dropping it do nothing; waking it looks up the entry in a table that is never freed. If the
//! `par!` has ended and the entry serves another `par!` by then, a branch of that one is polled once for
//! nothing, which every future must tolerate. Measured: counted wakers and boxed branches made up half of the
//! cost of a rendezvous inside a task (`docs/performance.md`).
//!
//! On targets whose pointers have fewer than 64 bits the two numbers do not fit, and a counted waker takes
//! their place.
//!
//! # The list of ready branches
//! One thread at a time polls a `par!`. A wake on that thread, during the poll, is a plain store into the
//! list: the common case, since branches of one `par!` mostly communicate with each other. A wake from
//! elsewhere goes through a locked inbox and wakes the task that holds the `par!`. The two are kept apart as
//! follows:
//!
//! 1. The polling thread writes its token into `owner` before it touches `local`, and clears it when it is
//!    done.
//! 2. A waker that reads its own thread's token there knows that its thread is inside that poll. So no other
//!    thread accesses `local`, and an access is never interrupted, because pushing and popping numbers calls
//!    no other code. For the innermost of nested `par!`s the thread stores the header itself, which saves the
//!    lookup.
//! 3. Any other waker takes the lock of `remote`. If the `par!` is being polled it checks the inbox once more
//!    before the poll ends. A waker that fills the inbox wakes the task after that, so no wake is lost in
//!    between.

use std::cell::Cell;
use std::task::Waker;

use super::list::Local;
use crate::lock::Lock;
use crate::sync::{AtomicBool, AtomicUsize, Ordering, global, per_thread};
use crate::table::{Entry, Table};

#[cfg(target_pointer_width = "64")]
mod packed {
    use std::mem::ManuallyDrop;
    use std::ptr;
    use std::task::{RawWaker, RawWakerVTable, Waker};

    static VTABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake, drop);

    /// For the wakers that code outside of dunlin keeps, in dev builds: they are counted
    /// ([`crate::waits::activity`]).
    #[cfg(debug_assertions)]
    static FOREIGN: RawWakerVTable = RawWakerVTable::new(clone_foreign, wake_foreign, wake, drop_foreign);

    fn pack(header: u32, branch: u32) -> *const () {
        ptr::without_provenance((header as usize) << 32 | branch as usize)
    }

    /// Not for the core itself, which calls [`copy`].
    unsafe fn clone(data: *const ()) -> RawWaker {
        #[cfg(debug_assertions)]
        if !crate::waits::activity::is_keeping() {
            // SAFETY: it may be called with any data.
            return unsafe { clone_foreign(data) };
        }
        RawWaker::new(data, &VTABLE)
    }

    #[cfg(debug_assertions)]
    unsafe fn clone_foreign(data: *const ()) -> RawWaker {
        crate::waits::activity::kept();
        RawWaker::new(data, &FOREIGN)
    }

    #[cfg(debug_assertions)]
    unsafe fn wake_foreign(data: *const ()) {
        // SAFETY: it may be called with any data.
        unsafe { wake(data) };
        crate::waits::activity::given_up();
    }

    #[cfg(debug_assertions)]
    unsafe fn drop_foreign(_: *const ()) {
        crate::waits::activity::given_up();
    }

    unsafe fn wake(data: *const ()) {
        super::wake((data.addr() >> 32) as u32, data.addr() as u32);
    }

    unsafe fn drop(_: *const ()) {}

    /// The waker's two numbers, if it is one of a branch.
    #[inline(always)]
    fn unpack(waker: &Waker) -> Option<(u32, u32)> {
        let data = waker.data().addr();
        ptr::eq(waker.vtable(), &raw const VTABLE).then_some(((data >> 32) as u32, data as u32))
    }

    /// A copy of the waker, if it is one of a branch.
    #[inline(always)]
    pub(super) fn copy(waker: &Waker) -> Option<Waker> {
        let (header, branch) = unpack(waker)?;
        // SAFETY: as in `with_waker`; the numbers come from a waker that was made there.
        Some(unsafe { Waker::from_raw(RawWaker::new(pack(header, branch), &VTABLE)) })
    }

    /// Wakes the branch; returns a waker of another kind.
    #[inline(always)]
    pub(crate) fn wake_branch(waker: Waker) -> Option<Waker> {
        let Some((header, branch)) = unpack(&waker) else { return Some(waker) };
        std::mem::forget(waker);
        super::wake(header, branch);
        None
    }

    /// Calls `f` with the waker of this branch.
    #[inline(always)]
    pub(crate) fn with_waker<R>(header: u32, branch: u32, f: impl FnOnce(&Waker) -> R) -> R {
        // SAFETY: the contract of `RawWaker` asks for thread-safe functions on data that is valid for as long
        // as a clone lives. The data is two numbers, never dereferenced; `wake` may be called with any two
        // numbers, from any thread, at any time.
        let waker = ManuallyDrop::new(unsafe { Waker::from_raw(RawWaker::new(pack(header, branch), &VTABLE)) });
        f(&waker)
    }
}

#[cfg(not(target_pointer_width = "64"))]
mod counted {
    use std::sync::Arc;
    use std::task::{Wake, Waker};

    struct Branch {
        header: u32,
        branch: u32,
    }

    impl Wake for Branch {
        fn wake(self: Arc<Self>) {
            super::wake(self.header, self.branch);
        }
    }

    pub(crate) fn with_waker<R>(header: u32, branch: u32, f: impl FnOnce(&Waker) -> R) -> R {
        f(&Waker::from(Arc::new(Branch { header, branch })))
    }

    pub(super) fn copy(_: &Waker) -> Option<Waker> {
        None
    }

    pub(crate) fn wake_branch(waker: Waker) -> Option<Waker> {
        Some(waker)
    }
}

#[cfg(not(target_pointer_width = "64"))]
use counted as kind;
#[cfg(target_pointer_width = "64")]
use packed as kind;

pub(crate) use kind::wake_branch;
pub(super) use kind::with_waker;

/// `waker.clone()`, and not counted as kept outside of dunlin ([`crate::waits::activity`]).
#[inline(always)]
pub fn keep(waker: &Waker) -> Waker {
    kind::copy(waker).unwrap_or_else(|| waker.clone())
}

global! { static HEADERS: Table<Header> = Table::new(); }

/// Wakes a branch. Any numbers will do: a branch that does not exist is not woken.
#[inline(always)]
fn wake(header: u32, branch: u32) {
    let innermost = INNERMOST.with(Cell::get);
    if innermost.index == header
        && let Some(innermost) = innermost.header
    {
        // SAFETY: this thread is inside the poll of this header's `par!` (step 2 above), and `push` calls
        // nothing else.
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

/// An operation was refused on this thread, after `operations` that were ready: it counts for the innermost
/// `par!`, if there is one.
pub(crate) fn spend(operations: u32) {
    if let Some(innermost) = INNERMOST.with(Cell::get).header {
        // SAFETY: this thread is inside the poll of this header's `par!`, and `spend` calls nothing else.
        unsafe { innermost.local(|local| local.spend(operations)) };
    }
}

/// The innermost `par!` that is being polled on this thread.
#[derive(Clone, Copy)]
pub(super) struct Innermost {
    pub(super) index: u32,
    pub(super) header: Option<&'static Header>,
}

const NOWHERE: Innermost = Innermost { index: u32::MAX, header: None };

#[cfg(not(loom))]
per_thread! { pub(super) static INNERMOST: Cell<Innermost> = const { Cell::new(NOWHERE) } }
#[cfg(loom)]
per_thread! { pub(super) static INNERMOST: Cell<Innermost> = Cell::new(NOWHERE) }

/// A number that no other living thread has. 0 is no thread's.
#[inline]
pub(super) fn thread_token() -> usize {
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

/// How many wakes from elsewhere the inbox lists before it removes duplicates.
const INBOX_MAX: usize = 64;

#[derive(Default)]
pub(super) struct Remote {
    pub(super) inbox: Vec<u32>,
    inbox_max: usize,
    pub(super) task: Option<Waker>,
}

/// The scheduler's state, in a table entry that outlives every waker.
pub(super) struct Header {
    pub(super) owner: AtomicUsize,
    #[cfg(not(loom))]
    local: crate::sync::UnsafeCell<Local>,
    #[cfg(loom)]
    local: loom::cell::UnsafeCell<Local>,
    pub(super) remote: Lock<Remote>,
    pub(super) has_mail: AtomicBool,
}

// SAFETY: everything but `local` is thread-safe by itself. `local` is touched only through `Header::local`,
// whose callers are the thread whose token is in `owner`, or have the `par!` to themselves (`&mut Ready`
// while no thread polls).
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
    /// An entry for a new `par!`, and its number.
    pub(super) fn take() -> (&'static Entry<Self>, u32) {
        let entry = HEADERS.take();
        (entry, entry.index())
    }

    /// Returns the entry of a dropped `par!`.
    pub(super) fn give(entry: &'static Entry<Self>) {
        HEADERS.give(entry);
    }

    /// # Safety
    /// The caller must be the thread whose token is in `owner`, or hold the `par!` by `&mut` while `owner` is
    /// 0; and `f` must not reach this function again.
    #[inline(always)]
    pub(super) unsafe fn local<R>(&self, f: impl FnOnce(&mut Local) -> R) -> R {
        #[cfg(not(loom))]
        // SAFETY: by this function's contract no other reference to the contents exists now.
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

    /// Moves the wakes from elsewhere into the list. The caller owns the header.
    pub(super) fn take_mail(&self) {
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
