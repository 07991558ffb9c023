//! Watches the tasks of sockets, so that neither work on channels nor a blocked worker keeps one for long.
//!
//! A worker of tokio's keeps the task that it woke last, and no other worker takes it from there. If code of
//! users then blocks that worker, the task does not run before it returns.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::Waker;
use std::time::Duration;

use dunlin_proto::time::Time;

use crate::world;

/// How long channels, or a worker that does not run it, may keep the task of a socket.
pub(super) const HELD_UP: Duration = Duration::from_millis(20);

/// The carrier of a socket.
pub(crate) trait Serves: Send + Sync {
    /// Gives the socket to another task if its own has been kept too long. Returns when to look again, if its
    /// own is at work, or has been woken and does not run.
    fn relieve(self: Arc<Self>, now: Time) -> Option<Time>;
}

/// Whether the tasks of sockets are watched: only while they work, so that a quiet node sleeps.
pub(crate) struct Watch {
    state: AtomicU8,
    /// Rings for the node's own task, which looks.
    looker: Waker,
}

impl Watch {
    const OFF: u8 = 0;
    /// No work has begun since the last look.
    const ON: u8 = 1;
    const BUSY: u8 = 2;

    pub(super) fn new(looker: Waker) -> Self {
        Self { state: AtomicU8::new(Self::OFF), looker }
    }

    /// The task of a socket begins to work on channels, or has been woken.
    pub(super) fn begin(&self) {
        if let Some(looker) = self.begin_later() {
            looker.wake_by_ref();
        }
    }

    /// The same where nothing may be woken. The caller must wake what it returns.
    pub(super) fn begin_later(&self) -> Option<&Waker> {
        // In a simulation one thread does all the work, and time stands still.
        let begins = self.state.load(Ordering::Acquire) != Self::BUSY
            && !world::is_simulated()
            && self.state.swap(Self::BUSY, Ordering::AcqRel) == Self::OFF;
        begins.then_some(&self.looker)
    }

    /// Looks at the tasks. `None`: none is at work, and the bell will ring when one is.
    pub(super) fn look(&self, now: Time, posts: impl FnOnce() -> Vec<Arc<dyn Serves>>) -> Option<Time> {
        if self.state.load(Ordering::Acquire) == Self::OFF {
            return None;
        }
        let again = posts().iter().filter_map(|post| post.clone().relieve(now)).min();
        if again.is_some() {
            return again;
        }
        match self.state.compare_exchange(Self::ON, Self::OFF, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => None,
            Err(_) => {
                self.state.store(Self::ON, Ordering::Release);
                Some(now + HELD_UP)
            }
        }
    }
}
