//! The processes of a runtime that have been pending: they end with it.
//!
//! A process comes into the list when it first has to wait: one that never waits needs no list, since until then it is in a queue.

use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::process::{Header, Ready};

/// A process's neighbours. They are read and written under the lock of the list only.
#[derive(Default)]
pub(super) struct Links {
    before: Option<NonNull<Header>>,
    after: Option<NonNull<Header>>,
}

/// A list through the headers. It has a reference to each process in it.
pub(super) struct List(Mutex<Option<NonNull<Header>>>);

// SAFETY: the headers that it leads to are used under the lock, and are `Sync` but for their links, which only this uses.
unsafe impl Send for List {}
// SAFETY: as above.
unsafe impl Sync for List {}

impl List {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(None))
    }

    fn lock(&self) -> MutexGuard<'_, Option<NonNull<Header>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a process that is in no list, with a reference that is the list's from now on.
    pub(super) fn add(&self, process: NonNull<Header>) {
        let mut first = self.lock();
        let before = first.replace(process);
        // SAFETY: both are referenced by the list, whose lock is held.
        unsafe {
            *links(process) = Links { before: None, after: before };
            if let Some(before) = before {
                (*links(before)).before = Some(process);
            }
        }
    }

    /// Removes a process that is in this list. Its reference is the caller's now.
    pub(super) fn remove(&self, process: NonNull<Header>) {
        let mut first = self.lock();
        // SAFETY: all are referenced by the list, whose lock is held.
        unsafe {
            let Links { before, after } = std::mem::take(&mut *links(process));
            match before {
                Some(before) => (*links(before)).after = after,
                None => *first = after,
            }
            if let Some(after) = after {
                (*links(after)).before = before;
            }
        }
    }

    /// Asks all of them to end; those that have to be put into a queue for that are given to `queue`.
    pub(super) fn cancel(&self, mut queue: impl FnMut(Ready)) {
        let first = self.lock();
        let mut next = *first;
        while let Some(process) = next {
            // SAFETY: it is referenced by the list, whose lock is held.
            unsafe {
                if let Some(ready) = Ready::cancel(process) {
                    queue(ready);
                }
                next = (*links(process)).after;
            }
        }
    }
}

/// # Safety
/// The list has a reference to the process, and its lock is held.
unsafe fn links(process: NonNull<Header>) -> *mut Links {
    // SAFETY: by the caller.
    UnsafeCell::raw_get(unsafe { &raw const (*process.as_ptr()).links })
}
