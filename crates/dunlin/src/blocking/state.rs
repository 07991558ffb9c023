//! What a pool keeps under its lock: its queue, its threads, and the waits for room.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::Waker;
use std::thread::{JoinHandle, Thread};

use super::known::KnownCall;
use super::limits::Limits;
use crate::lock::lock;

/// What a pool runs.
pub(crate) trait Job: Send + Sync {
    /// Runs the call, on a thread of the pool. Does not panic.
    fn run(&self, thread: usize);

    /// Cancels the call, which never starts, since its runtime has ended or the system gives no thread.
    fn cancel(&self, why: NotRun);

    /// Asks the call to stop.
    fn ask(&self);

    /// What is known of it; `None` once it has ended.
    fn known(&self) -> Option<KnownCall>;
}

/// Why a pool does not run a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotRun {
    /// The queue has this bound, and is full.
    Full { queue_max: usize },
    /// The operating system gives the pool no thread at all.
    NoThread,
    /// The runtime of the pool has ended.
    Ended,
}

/// One thread is kept free, so that the next call need not wait for its start.
const SPARE: usize = 1;

pub(super) struct State {
    pub(super) limits: Limits,
    /// Waiting calls, the next one first.
    pub(super) queue: VecDeque<Arc<dyn Job>>,
    /// Places that were given to waits for room, and are not used yet.
    pub(super) reserved: usize,
    /// The waits for room, the first one first. One that was woken has no waker until it is polled again.
    pub(super) line: VecDeque<(u64, Option<Waker>)>,
    pub(super) next_ticket: u64,
    /// Idle threads. The last one is woken first.
    pub(super) idle: Vec<Arc<Worker>>,
    /// What each thread runs, by its number, and how it is joined. A number is reused.
    pub(super) slots: Vec<Slot>,
    /// How many threads exist, including those that have not begun.
    pub(super) threads: usize,
    /// Threads that have not begun.
    pub(super) starting: usize,
    pub(super) closed: bool,
}

#[derive(Default)]
pub(super) struct Slot {
    pub(super) taken: bool,
    pub(super) running: Option<Arc<dyn Job>>,
    pub(super) thread: Option<JoinHandle<()>>,
}

/// A thread of the pool, as seen by the code that gives it work.
pub(super) struct Worker {
    pub(super) number: usize,
    pub(super) thread: OnceLock<Thread>,
    pub(super) handed: Mutex<Option<Handed>>,
}

pub(super) enum Handed {
    Call(Arc<dyn Job>),
    /// The pool is closed, or has threads beyond its bound.
    Nothing,
}

impl State {
    /// How many more calls can be given to threads, started or not, or be queued.
    pub(super) fn capacity(&self) -> usize {
        let threads = self.idle.len() + self.starting + self.limits.threads_max.saturating_sub(self.threads);
        (threads + self.limits.queue_max).saturating_sub(self.queue.len())
    }

    /// How many threads there are beyond the bound, which has been lowered.
    pub(super) fn beyond(&self) -> usize {
        self.threads.saturating_sub(self.limits.threads_max)
    }

    pub(super) fn free(&self) -> usize {
        self.capacity().saturating_sub(self.reserved)
    }

    pub(super) fn has_room(&self) -> bool {
        self.free() > 0
    }

    /// Counts the threads that are to begin, and returns their numbers.
    pub(super) fn begin(&mut self) -> Vec<usize> {
        let needed = (self.queue.len() + SPARE).saturating_sub(self.idle.len() + self.starting);
        let fewest = self.limits.threads_min.saturating_sub(self.threads);
        let allowed = self.limits.threads_max.saturating_sub(self.threads);
        (0..needed.max(fewest).min(allowed)).map(|_| self.take_number()).collect()
    }

    pub(super) fn take_number(&mut self) -> usize {
        self.threads += 1;
        self.starting += 1;
        let free = self.slots.iter().position(|slot| !slot.taken && slot.thread.is_none());
        let number = free.unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() - 1
        });
        self.slots[number].taken = true;
        number
    }

    /// Releases the number of a thread that ends.
    pub(super) fn release(&mut self, number: usize) {
        self.threads -= 1;
        let closed = self.closed;
        let slot = &mut self.slots[number];
        slot.taken = false;
        if !closed {
            // It is joined only at the end of the runtime.
            slot.thread = None;
        }
    }

    pub(super) fn leave_line(&mut self, ticket: &mut Option<u64>) -> Option<(u64, Option<Waker>)> {
        let number = ticket.take()?;
        let place = self.line.iter().position(|(other, _)| *other == number)?;
        self.line.remove(place)
    }

    /// The wakers of the waits that may check for room again: as many as there is room for.
    pub(super) fn take_woken(&mut self) -> Vec<Waker> {
        if self.line.is_empty() {
            return Vec::new();
        }
        let free = self.free();
        self.line.iter_mut().take(free).filter_map(|(_, waker)| waker.take()).collect()
    }
}

impl Worker {
    pub(super) fn hand(&self, handed: Handed) {
        *lock(&self.handed) = Some(handed);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}
