//! What learns of the end of a process, and what that wakes.

use std::sync::Arc;
use std::task::Waker;

use dunlin_core::waits::Spawned;

use super::exit::Exit;

/// Gets the exit of a monitored process, or that there is none.
pub(super) type Watcher = Arc<dyn Watch>;

pub(super) trait Watch: Send + Sync {
    /// Runs no code of users.
    fn down(&self, exit: &Exit) -> Roused;
}

/// What an exit wakes. A node that is locked wakes it later.
#[must_use = "something waits to be woken"]
pub(super) enum Roused {
    Nothing,
    Waker(Waker),
    Process(Spawned),
    /// A value in it is a user's.
    Exit(Box<Exit>),
    Both(Box<[Self; 2]>),
}

impl Roused {
    pub(super) fn of(waker: Option<Waker>) -> Self {
        waker.map_or(Self::Nothing, Self::Waker)
    }

    /// The exit is dropped where nothing is locked.
    pub(super) fn dropped(exit: Exit) -> Self {
        if exit.carried().is_some() { Self::Exit(Box::new(exit)) } else { Self::Nothing }
    }

    pub(super) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Nothing, one) | (one, Self::Nothing) => one,
            (one, other) => Self::Both(Box::new([one, other])),
        }
    }

    /// Wakes it, and drops what waited for that. Nothing may be locked.
    pub(super) fn wake(self) {
        match self {
            Self::Nothing => {}
            Self::Waker(waker) => waker.wake(),
            Self::Process(process) => {
                process.rouse();
            }
            Self::Exit(exit) => drop(exit),
            Self::Both(both) => both.into_iter().for_each(Self::wake),
        }
    }

    /// Wakes when it is dropped.
    #[cfg(feature = "net")]
    pub(super) fn later(self) -> Option<Box<dyn Send>> {
        struct Later(Roused);

        impl Drop for Later {
            fn drop(&mut self) {
                std::mem::replace(&mut self.0, Roused::Nothing).wake();
            }
        }
        if matches!(self, Self::Nothing) { None } else { Some(Box::new(Later(self))) }
    }
}
