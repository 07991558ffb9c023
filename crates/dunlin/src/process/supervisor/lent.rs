//! Ends that outlive the processes that use them.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex};

use super::notice::Notice;
use crate::lock::lock;

/// The supervisor's place for the ends of one child.
pub(super) struct Slot<E>(Arc<Mutex<State<E>>>);

struct State<E> {
    ends: Option<E>,
    /// Posted when the ends are back.
    wanted: Option<Notice>,
}

impl<E> Slot<E> {
    pub(super) fn new(ends: E) -> Self {
        Self(Arc::new(Mutex::new(State { ends: Some(ends), wanted: None })))
    }

    /// Lends the ends. If another process still has them, `wanted` is posted when they are back.
    pub(super) fn lend(&self, wanted: Notice) -> Option<Lent<E>> {
        let mut state = lock(&self.0);
        let Some(ends) = state.ends.take() else {
            state.wanted = Some(wanted);
            return None;
        };
        Some(Lent { ends: Some(ends), slot: Self(self.0.clone()) })
    }

    fn give_back(&self, ends: E) {
        let wanted = {
            let mut state = lock(&self.0);
            state.ends = Some(ends);
            state.wanted.take()
        };
        if let Some(wanted) = wanted {
            wanted.post();
        }
    }
}

/// What a supervisor lends to a process that it supervises: channel ends, and whatever else outlives the
/// process.
///
/// It derefs to the ends. Dropped, also by a panic or a cancellation, it gives them back to the supervisor,
/// which lends them to the next process. So a send that was pending to a lent receiver is taken by the
/// successor, and a value that an interrupted send left in a lent sender stays there. It cannot be moved out
/// of and does not travel to other nodes. (`std::mem::swap` can exchange the ends for others, which the
/// successor then gets.)
///
/// # Examples
/// A process that is given the guard can pass it on, and the ends are back only when it is dropped:
/// ```
/// use dunlin::prelude::*;
/// use dunlin::supervisor::{Child, Lent, Supervised, Supervisor};
///
/// async fn first_line(mut lines: Lent<Receiver<&'static str>>, _: Supervised) -> Result {
///     assert_eq!(lines.recv().await?, "krill");
///     Ok(())
/// }
/// # dunlin::block_on(async {
/// let (mut tx, rx) = channel();
/// let tree = Supervisor::one_for_one().with(Child::lent("reader", rx, first_line)).spawn();
/// tx.send("krill").await?;
/// tree.await??;
/// # Ok::<(), Error>(())
/// # }).unwrap();
/// ```
pub struct Lent<E> {
    /// `None` only while it is dropped.
    ends: Option<E>,
    slot: Slot<E>,
}

const LENT: &str = "the ends are there until the guard is dropped";

impl<E> Deref for Lent<E> {
    type Target = E;

    fn deref(&self) -> &E {
        self.ends.as_ref().expect(LENT)
    }
}

impl<E> DerefMut for Lent<E> {
    fn deref_mut(&mut self) -> &mut E {
        self.ends.as_mut().expect(LENT)
    }
}

impl<E> Drop for Lent<E> {
    fn drop(&mut self) {
        if let Some(ends) = self.ends.take() {
            self.slot.give_back(ends);
        }
    }
}

impl<E: fmt::Debug> fmt::Debug for Lent<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lent").field(&**self).finish()
    }
}
