//! Watches the tasks of sockets, so that work on channels keeps none of them for long.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use dunlin_proto::time::Time;

use super::bell::Bell;
use crate::world;

/// How long channels may keep the task of a socket.
pub(super) const HELD_UP: Duration = Duration::from_millis(20);

/// The carrier of a socket.
pub(crate) trait Serves: Send + Sync {
    /// Gives the socket to another task if its own has been kept too long. Returns when to look again, if it
    /// is at work.
    fn relieve(self: Arc<Self>, now: Time) -> Option<Time>;
}

/// Whether the tasks of sockets are watched: only while they work, so that a quiet node sleeps.
#[derive(Default)]
pub(crate) struct Watch(AtomicU8);

impl Watch {
    const OFF: u8 = 0;
    /// No work has begun since the last look.
    const ON: u8 = 1;
    const BUSY: u8 = 2;

    pub(super) fn work_begins(&self, bell: &Bell) {
        if world::is_simulated() {
            // One thread does all the work, and time stands still.
            return;
        }
        if self.0.load(Ordering::Acquire) != Self::BUSY && self.0.swap(Self::BUSY, Ordering::AcqRel) == Self::OFF {
            bell.ring();
        }
    }

    /// Looks at the tasks. `None`: none is at work, and the bell will ring when one is.
    pub(super) fn look(&self, now: Time, posts: impl FnOnce() -> Vec<Arc<dyn Serves>>) -> Option<Time> {
        if self.0.load(Ordering::Acquire) == Self::OFF {
            return None;
        }
        let again = posts().iter().filter_map(|post| post.clone().relieve(now)).min();
        if again.is_some() {
            return again;
        }
        match self.0.compare_exchange(Self::ON, Self::OFF, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => None,
            Err(_) => {
                self.0.store(Self::ON, Ordering::Release);
                Some(now + HELD_UP)
            }
        }
    }
}
