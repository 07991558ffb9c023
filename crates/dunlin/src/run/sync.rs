//! What threads share in the parts of this folder that loom checks: the standard library's, or loom's when a model runs
//! (`--cfg dunlin_loom`; plain `loom` would reach into tokio too).

#[cfg(dunlin_loom)]
pub(super) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicPtr, AtomicUsize, Ordering, fence},
};
#[cfg(not(dunlin_loom))]
pub(super) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicPtr, AtomicUsize, Ordering, fence},
};

/// Nothing panics under these locks, so what they guard is whole.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
