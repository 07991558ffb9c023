//! The process that a worker polls next: the one that was woken last.

use std::ptr;

use super::process::{Header, Ready};
use super::sync::{AtomicPtr, Ordering};

/// A place for one process. Its worker puts processes in; any worker may take one out.
pub(super) struct Slot(AtomicPtr<Header>);

impl Slot {
    pub(super) fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// Puts a process in, if there is none. For the slot's own worker.
    #[inline]
    pub(super) fn put(&self, ready: Ready) -> Result<(), Ready> {
        if !self.is_empty() {
            return Err(ready);
        }
        // Others only take out, so it is empty still.
        self.0.store(ready.into_raw(), Ordering::Release);
        Ok(())
    }

    /// Puts a process in; gives the one that was there.
    pub(super) fn replace(&self, ready: Ready) -> Option<Ready> {
        let before = self.0.swap(ready.into_raw(), Ordering::AcqRel);
        // SAFETY: it was put in by `into_raw`, and who swaps it out is the only one to have it.
        unsafe { Ready::from_raw(before) }
    }

    /// Takes the process out.
    #[inline]
    pub(super) fn take(&self) -> Option<Ready> {
        if self.is_empty() {
            return None;
        }
        let before = self.0.swap(ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: as above.
        unsafe { Ready::from_raw(before) }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.load(Ordering::Relaxed).is_null()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        drop(self.take());
    }
}
