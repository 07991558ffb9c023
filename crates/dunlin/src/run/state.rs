//! The state word of a process: what it does, who is interested, and how many references there are.
//!
//! ```text
//!            wake                    the worker takes it from a queue
//! parked ───────────▶ scheduled: queued ──────────────▶ scheduled: polled ──▶ done
//!    ▲                                                        │ pending
//!    └────────────────────────────────────────────────────────┤ not woken meanwhile
//!                                                             └ woken meanwhile (AGAIN): queued again
//! ```
//!
//! There is one right to poll, and it goes with `SCHEDULED`: whoever sets that bit puts the process into a queue, and who
//! takes it out polls it. A wake of a scheduled process sets `AGAIN`, always by a read-modify-write, so that what was written
//! before the wake is seen by the poll after it. The reference of a queue entry goes on to the poll and ends with it.

use super::sync::{AtomicUsize, Ordering};

/// Queued or polled.
const SCHEDULED: usize = 1;
/// Woken since it was scheduled.
const AGAIN: usize = 1 << 1;
/// It has ended: the output is there, the future is gone.
const DONE: usize = 1 << 2;
/// It is to end.
const CANCEL: usize = 1 << 3;
/// The handle lives, and gets the output.
const HANDLE: usize = 1 << 4;
/// The joiner's waker is set: whoever ends the process may read it. Else it is the handle's.
const JOINER: usize = 1 << 5;
/// It is in the list of its runtime, which has a reference. Changed only with the right to poll.
const LISTED: usize = 1 << 6;
const ONE: usize = 1 << 7;
/// More references than this are a leak in somebody's code; before the count can wrap the program ends.
const REFERENCES_MAX: usize = usize::MAX / 2;

/// The word.
pub(super) struct State(AtomicUsize);

/// What a worker is to do with a process that it took out of a queue.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Begin {
    Poll,
    Cancel,
}

/// What is to be done after a poll that was pending.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Pause {
    /// Nothing: it is parked.
    Parked,
    /// The list must have it first.
    Unlisted,
    /// It was woken meanwhile: put it into a queue.
    Again,
}

/// What a wake has to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wake {
    /// Put it into a queue: the caller has the right to.
    Queue,
    /// Nothing, and the reference that was given up was not the last.
    Nothing,
    /// Free the process: it has ended, and the reference that was given up was the last.
    Free,
}

/// Who is to hear of the end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Finished {
    /// A handle gets the output. Else it is to be dropped.
    pub(super) handle: bool,
    /// There is a joiner to be woken.
    pub(super) joiner: bool,
}

impl State {
    /// Scheduled, with a handle; one reference for each of the two.
    pub(super) fn new() -> Self {
        Self(AtomicUsize::new(SCHEDULED | HANDLE | (2 * ONE)))
    }

    /// One more reference.
    #[inline]
    pub(super) fn retain(&self) {
        if self.0.fetch_add(ONE, Ordering::Relaxed) > REFERENCES_MAX {
            std::process::abort();
        }
    }

    /// One reference less. Whether it was the last: then the caller frees the process.
    #[inline]
    pub(super) fn release(&self) -> bool {
        let before = self.0.fetch_sub(ONE, Ordering::AcqRel);
        before / ONE == 1
    }

    /// Gives up a reference, or hands it to the queue entry.
    #[inline]
    pub(super) fn wake(&self) -> Wake {
        let mut now = self.0.load(Ordering::Relaxed);
        loop {
            let (next, wake) = match now {
                _ if now & DONE != 0 => (now - ONE, if now / ONE == 1 { Wake::Free } else { Wake::Nothing }),
                // The queue's reference, or the poll's, is left.
                _ if now & SCHEDULED != 0 => ((now | AGAIN) - ONE, Wake::Nothing),
                _ => (now | SCHEDULED, Wake::Queue),
            };
            match self.0.compare_exchange_weak(now, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return wake,
                Err(changed) => now = changed,
            }
        }
    }

    /// Whether the caller is to put it into a queue, with a new reference.
    #[inline]
    pub(super) fn wake_by_ref(&self) -> bool {
        self.schedule(0)
    }

    /// Asks it to end. Whether the caller is to put it into a queue, with a new reference.
    pub(super) fn cancel(&self) -> bool {
        self.schedule(CANCEL)
    }

    #[inline]
    fn schedule(&self, also: usize) -> bool {
        let mut now = self.0.load(Ordering::Relaxed);
        loop {
            if now & DONE != 0 {
                return false;
            }
            let parked = now & SCHEDULED == 0;
            let next = also | if parked { (now | SCHEDULED) + ONE } else { now | AGAIN };
            match self.0.compare_exchange_weak(now, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return parked,
                Err(changed) => now = changed,
            }
        }
    }

    /// Before a poll. What woke it first came with the queue entry; what woke it since is taken note of here.
    #[inline]
    pub(super) fn begin(&self) -> Begin {
        let mut now = self.0.load(Ordering::Relaxed);
        if now & AGAIN != 0 {
            now = self.0.fetch_and(!AGAIN, Ordering::AcqRel);
        }
        if now & CANCEL != 0 { Begin::Cancel } else { Begin::Poll }
    }

    /// Whether the list has it. Only with the right to poll.
    #[inline]
    pub(super) fn is_listed(&self) -> bool {
        self.0.load(Ordering::Relaxed) & LISTED != 0
    }

    /// The list has it from now on, with a reference of its own. Only with the right to poll.
    pub(super) fn list(&self) {
        self.0.fetch_add(LISTED + ONE, Ordering::Relaxed);
    }

    /// After a poll that was pending. The list has the process, so that the reference of the poll is not the last one.
    #[inline]
    pub(super) fn pause(&self) -> Pause {
        let mut now = self.0.load(Ordering::Relaxed);
        if now & LISTED == 0 {
            return Pause::Unlisted;
        }
        loop {
            let (next, pause) =
                if now & AGAIN != 0 { (now & !AGAIN, Pause::Again) } else { ((now & !SCHEDULED) - ONE, Pause::Parked) };
            match self.0.compare_exchange_weak(now, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return pause,
                Err(changed) => now = changed,
            }
        }
    }

    /// The output is in its place.
    pub(super) fn finish(&self) -> Finished {
        let before = self.0.fetch_xor(SCHEDULED | DONE, Ordering::AcqRel);
        Finished { handle: before & HANDLE != 0, joiner: before & JOINER != 0 }
    }

    #[inline]
    pub(super) fn is_done(&self) -> bool {
        self.0.load(Ordering::Acquire) & DONE != 0
    }

    /// Whether the place of the joiner's waker is shared with whoever ends the process.
    pub(super) fn has_joiner(&self) -> bool {
        self.0.load(Ordering::Relaxed) & JOINER != 0
    }

    /// Shares the waker. `false`: the process has ended meanwhile, and nobody will look at it.
    pub(super) fn share_joiner(&self) -> bool {
        self.unless_done(|now| now | JOINER)
    }

    /// Takes the place of the waker back. `false`: the process has ended meanwhile, and somebody may be looking at it.
    pub(super) fn take_joiner(&self) -> bool {
        self.unless_done(|now| now & !JOINER)
    }

    /// The handle goes, and with it the joiner. `false`: the process has ended, and the output is the handle's to drop.
    pub(super) fn drop_handle(&self) -> bool {
        self.unless_done(|now| now & !(HANDLE | JOINER))
    }

    fn unless_done(&self, change: impl Fn(usize) -> usize) -> bool {
        let change = |now| if now & DONE == 0 { Some(change(now)) } else { None };
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, change).is_ok()
    }
}
