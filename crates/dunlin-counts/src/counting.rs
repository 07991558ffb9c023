//! An allocator that counts what its thread asks for.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, which counts.
pub(crate) struct Counting;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<u64> = const { Cell::new(0) };
    static FREED: Cell<u64> = const { Cell::new(0) };
}

/// What this thread has asked for, from its start on or between two moments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allocated {
    pub(crate) calls: u64,
    pub(crate) bytes: u64,
}

/// All that this thread has asked for.
pub(crate) fn allocated() -> Allocated {
    Allocated { calls: CALLS.get(), bytes: BYTES.get() }
}

/// Of the bytes that this thread has asked for, those that it has not given back.
pub(crate) fn held() -> u64 {
    BYTES.get() - FREED.get()
}

fn count(bytes: usize) {
    CALLS.set(CALLS.get() + 1);
    BYTES.set(BYTES.get() + bytes as u64);
}

// SAFETY: everything is passed on to the system's allocator as it came. The counters allocate nothing: they
// are constants at first, and have no destructors.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        FREED.set(FREED.get() + layout.size() as u64);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.realloc(old, layout, size) }
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        FREED.set(FREED.get() + layout.size() as u64);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(old, layout) }
    }
}
