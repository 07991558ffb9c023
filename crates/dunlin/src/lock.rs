//! How this crate takes its locks.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks. What is locked is whole whenever a panic can come.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
