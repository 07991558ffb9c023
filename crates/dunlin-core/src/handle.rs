//! The value that acts on a channel for an end, and the one of several that keeps the end.

#[cfg(feature = "serde")]
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The handle of an end that acts: the end itself, or one of the clones of a shared end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Handle(u32);

impl Handle {
    /// The end itself: unshared, or held by a claim.
    pub(crate) const END: Self = Self(u32::MAX);

    /// No handle: a place in the buffer.
    pub(crate) const BUFFER: Self = Self(u32::MAX - 1);

    /// The agent of the receiver, which is elsewhere.
    pub(crate) const OUTLET: Self = Self(u32::MAX - 2);

    /// The clone of a shared end with this number.
    pub(crate) fn clone_number(number: u32) -> Self {
        Self(number)
    }
}

/// Held while a value gives up its end because another value stands for the end too.
#[cfg(feature = "serde")]
static GIVING_UP: Mutex<()> = Mutex::new(());

/// Of several values that give up at once the last keeps the end: the lock orders them.
#[cfg(feature = "serde")]
pub(crate) fn one_gives_up() -> MutexGuard<'static, ()> {
    GIVING_UP.lock().unwrap_or_else(PoisonError::into_inner)
}
