//! A counting wrapper of the system's allocator, for tests that bound memory, and for counted costs.
//!
//! A binary chooses whether to count each thread or the whole program:
//!
//! ```
//! use dunlin_heap::{Counting, Program};
//!
//! #[global_allocator]
//! static HEAP: Counting<Program> = Counting(Program::new());
//!
//! let before = HEAP.0.live();
//! let block = vec![0_u8; 1 << 20];
//! assert!(HEAP.0.live() >= before + (1 << 20));
//! drop(block);
//! assert!(HEAP.0.peak() >= before + (1 << 20));
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The allocator calls it for each block that it allocates or frees.
pub trait Counter {
    /// `bytes` more are in use.
    fn taken(&self, bytes: usize);

    /// `bytes` fewer are in use.
    fn given_back(&self, bytes: usize);
}

/// The system's allocator, which reports to a [`Counter`].
#[derive(Debug)]
pub struct Counting<C>(
    /// The counter.
    pub C,
);

// SAFETY: each call is forwarded unchanged to the system's allocator. Neither counter allocates: one has
// atomic numbers; the other has numbers of a thread that start as constants and have no destructors.
unsafe impl<C: Counter> GlobalAlloc for Counting<C> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.0.taken(layout.size());
        // SAFETY: the caller upholds the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        self.0.taken(layout.size());
        // SAFETY: the caller upholds the contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // The old block may exist until the new one has been filled, but seldom does.
        self.0.given_back(layout.size());
        self.0.taken(size);
        // SAFETY: the caller upholds the contract.
        unsafe { System.realloc(old, layout, size) }
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        self.0.given_back(layout.size());
        // SAFETY: the caller upholds the contract.
        unsafe { System.dealloc(old, layout) }
    }
}

/// Counts all threads together: the bytes in use now, and their maximum.
#[derive(Debug, Default)]
pub struct Program {
    live: AtomicUsize,
    peak: AtomicUsize,
}

impl Program {
    /// A counter at zero.
    #[must_use]
    pub const fn new() -> Self {
        Self { live: AtomicUsize::new(0), peak: AtomicUsize::new(0) }
    }

    /// The bytes that are in use.
    pub fn live(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }

    /// The maximum of bytes in use since the program began, or since [`forget_peak`](Self::forget_peak).
    pub fn peak(&self) -> usize {
        self.peak.load(Ordering::Relaxed)
    }

    /// Restarts the count of the peak. Returns the bytes that are in use.
    pub fn forget_peak(&self) -> usize {
        let live = self.live();
        self.peak.store(live, Ordering::Relaxed);
        live
    }
}

impl Counter for Program {
    fn taken(&self, bytes: usize) {
        let live = self.live.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.peak.fetch_max(live, Ordering::Relaxed);
    }

    fn given_back(&self, bytes: usize) {
        self.live.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Counts the allocations of each thread by itself, so other threads do not disturb it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Thread;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<u64> = const { Cell::new(0) };
    static GIVEN_BACK: Cell<u64> = const { Cell::new(0) };
}

/// The allocations of a thread, from its start or between two moments.
#[derive(Clone, Copy, Debug)]
pub struct Allocated {
    /// How many calls.
    pub calls: u64,
    /// How many bytes.
    pub bytes: u64,
}

impl Thread {
    /// All that this thread has allocated.
    #[must_use]
    pub fn allocated(self) -> Allocated {
        Allocated { calls: CALLS.get(), bytes: BYTES.get() }
    }

    /// The bytes that this thread has allocated, less those that it has freed. Negative if it has freed
    /// blocks that other threads allocated.
    #[must_use]
    pub fn held(self) -> i64 {
        BYTES.get().wrapping_sub(GIVEN_BACK.get()).cast_signed()
    }
}

impl Counter for Thread {
    fn taken(&self, bytes: usize) {
        CALLS.set(CALLS.get() + 1);
        BYTES.set(BYTES.get() + bytes as u64);
    }

    fn given_back(&self, bytes: usize) {
        GIVEN_BACK.set(GIVEN_BACK.get() + bytes as u64);
    }
}
