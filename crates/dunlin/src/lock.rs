//! How this crate takes its locks.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks. The locked value is consistent wherever a panic can happen.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
