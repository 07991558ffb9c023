//! The waker of a branch: two numbers in one word, without a count.
//!
//! Cloning and dropping it do nothing; waking it looks up the entry in a table that is never freed. If the `par!` has
//! ended and the entry serves another one by then, that one's branch is polled once for nothing, which every future must bear.
//! Measured: counted wakers and boxed branches made up half of the cost of a rendezvous inside a task
//! (`docs/performance.md`).
//!
//! On targets whose pointers have fewer than 64 bits the two numbers do not fit, and a counted waker takes their place.

#[cfg(target_pointer_width = "64")]
mod packed {
    use std::mem::ManuallyDrop;
    use std::ptr;
    use std::task::{RawWaker, RawWakerVTable, Waker};

    static VTABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake, drop);

    /// Of the wakers that code outside of dunlin keeps, in dev builds: they are counted
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
        super::super::ready::wake((data.addr() >> 32) as u32, data.addr() as u32);
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
    pub(crate) fn copy(waker: &Waker) -> Option<Waker> {
        let (header, branch) = unpack(waker)?;
        // SAFETY: as in `with_waker`; the numbers come from a waker that was made there.
        Some(unsafe { Waker::from_raw(RawWaker::new(pack(header, branch), &VTABLE)) })
    }

    /// Wakes the branch; gives the waker back if it is of another kind.
    #[inline(always)]
    pub(crate) fn wake_branch(waker: Waker) -> Option<Waker> {
        let Some((header, branch)) = unpack(&waker) else { return Some(waker) };
        std::mem::forget(waker);
        super::super::ready::wake(header, branch);
        None
    }

    /// Calls `f` with the waker of this branch.
    #[inline(always)]
    pub(crate) fn with_waker<R>(header: u32, branch: u32, f: impl FnOnce(&Waker) -> R) -> R {
        // SAFETY: the contract of `RawWaker` asks for thread-safe functions on data that is valid for as long as a clone
        // lives. The data is two numbers, never dereferenced; `ready::wake` may be called with any two
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
            super::super::ready::wake(self.header, self.branch);
        }
    }

    pub(crate) fn with_waker<R>(header: u32, branch: u32, f: impl FnOnce(&Waker) -> R) -> R {
        f(&Waker::from(Arc::new(Branch { header, branch })))
    }

    pub(crate) fn copy(_: &Waker) -> Option<Waker> {
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

pub(super) use kind::with_waker;
pub(crate) use kind::{copy, wake_branch};
