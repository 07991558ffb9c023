//! All primitives that threads share: the standard library's, or loom's or shuttle's when a model runs
//! (`--cfg loom`, `--cfg shuttle`).
//!
//! All state in the core that two threads may access is built on this module's exports, so a model sees each
//! access. Advisory state (the wait records of [`crate::waits`]) always uses the standard atomics.

#[cfg(loom)]
pub(crate) use loom::{
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    thread_local as per_thread,
};
#[cfg(shuttle)]
pub(crate) use shuttle::{
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    thread_local as per_thread,
};
#[cfg(not(loom))]
pub(crate) use std::cell::UnsafeCell;
#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::{
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    thread_local as per_thread,
};

/// A static; in a model, one for each execution.
#[cfg(not(any(loom, shuttle)))]
macro_rules! global {
    ($(#[$meta:meta])* static $name:ident: $type:ty = $value:expr;) => { $(#[$meta])* static $name: $type = $value; };
}
#[cfg(loom)]
macro_rules! global {
    ($(#[$meta:meta])* static $name:ident: $type:ty = $value:expr;) => {
        loom::lazy_static! { $(#[$meta])* static ref $name: $type = $value; }
    };
}
#[cfg(shuttle)]
macro_rules! global {
    ($(#[$meta:meta])* static $name:ident: $type:ty = $value:expr;) => {
        shuttle::lazy_static! { $(#[$meta])* static ref $name: $type = $value; }
    };
}
pub(crate) use global;

/// Lets the holder of a lock proceed: a hint first, the rest of the time slice after that.
///
/// A lock of the core is held for some tens of nanoseconds and never over user code that waits. So if a
/// thread finds it taken for long, the holder's thread was preempted.
#[cfg(not(any(loom, shuttle)))]
#[inline]
pub(crate) fn relax(spins: u32) {
    if spins < 64 {
        std::hint::spin_loop();
    } else {
        // The only call into the thread library in this crate: there is no other way to let a preempted
        // holder run.
        #[allow(clippy::disallowed_methods)]
        std::thread::yield_now();
    }
}

/// Whether models take a lock in one step and wait for it without spinning, which makes them a thousand times
/// smaller. The model of the lock itself does not.
#[cfg(loom)]
pub(crate) const LOCK_IN_ONE_STEP: bool = true;

#[cfg(loom)]
pub(crate) fn relax(_spins: u32) {
    loom::thread::yield_now();
}

#[cfg(shuttle)]
pub(crate) fn relax(_spins: u32) {
    shuttle::thread::yield_now();
}
