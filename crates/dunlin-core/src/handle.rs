//! Which value that stands for an end acts on a channel, and which of several keeps it.

#[cfg(feature = "serde")]
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Which handle of an end acts: the end itself, or one of the clones of a shared one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Handle(u32);

impl Handle {
    /// The end itself: unshared, or held by a claim.
    pub(crate) const END: Self = Self(u32::MAX);

    /// None: a place in the buffer.
    pub(crate) const BUFFER: Self = Self(u32::MAX - 1);

    /// The agent of the receiver, which is elsewhere.
    pub(crate) const OUTLET: Self = Self(u32::MAX - 2);

    /// The clone of a shared end with this number.
    pub(crate) fn clone_number(number: u32) -> Self {
        Self(number)
    }
}

/// Held while a value that stands for an end gives it up because another one stands for it too.
#[cfg(feature = "serde")]
static GIVING_UP: Mutex<()> = Mutex::new(());

/// Of several that give up at once one is the last, and keeps the end: they go one by one.
#[cfg(feature = "serde")]
pub(crate) fn one_gives_up() -> MutexGuard<'static, ()> {
    GIVING_UP.lock().unwrap_or_else(PoisonError::into_inner)
}
