//! How tasks of a node are woken, and learn which channels need work.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Wake, Waker};

use super::id::Half;
use crate::lock::lock;
use crate::world;

/// A task that can be woken from anywhere, and remembers that it was; and the channels that it has to work
/// on.
#[derive(Default)]
pub(crate) struct Bell {
    rung: AtomicBool,
    /// It was rung since [`take_news`](Self::take_news), also while the task [attended](Self::attend).
    has_news: AtomicBool,
    waker: Mutex<Option<Waker>>,
    stirred: Mutex<VecDeque<Half>>,
    /// How many channels that has. It changes only under that lock.
    waiting: AtomicUsize,
    /// No task looks at those any more. It is set under that lock.
    closed: AtomicBool,
    /// The woken task must not wait until the thread that rings has finished its work.
    for_anybody: bool,
}

impl Bell {
    /// The bell of a task that watches others, among them those that ring: users' code may hold them up.
    pub(super) fn of_who_looks() -> Self {
        Self { for_anybody: true, ..Self::default() }
    }

    pub(crate) fn ring(&self) {
        // Not within the lock: the woken task may wait again at once.
        if let Some(waker) = self.ring_later() {
            waker.wake();
            if self.for_anybody {
                world::let_anybody_run_it();
            }
        }
    }

    /// Rings, and returns the waker of the task if it waits. The caller must wake it.
    fn ring_later(&self) -> Option<Waker> {
        self.has_news.store(true, Ordering::Release);
        if self.rung.swap(true, Ordering::AcqRel) { None } else { lock(&self.waker).take() }
    }

    /// Whether the bell has rung since the last call; if not, the task will be woken.
    pub(super) fn poll_rung(&self, cx: &Context<'_>) -> bool {
        if self.rung.swap(false, Ordering::AcqRel) {
            return true;
        }
        let mut waker = lock(&self.waker);
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        drop(waker);
        self.rung.swap(false, Ordering::AcqRel)
    }

    /// The task is running, and looks at everything once more before it waits: it needs no waking until
    /// [`depart`](Self::depart).
    pub(super) fn attend(&self) {
        self.rung.store(true, Ordering::Release);
    }

    /// Whatever arrives from now on wakes the task. The task still has to look at what did not wake it.
    pub(super) fn depart(&self) {
        self.rung.swap(false, Ordering::AcqRel);
    }

    /// Whether the bell has rung since the last call, whatever the task did meanwhile. A ring after
    /// [`depart`](Self::depart) wakes the task as well.
    pub(super) fn take_news(&self) -> bool {
        self.has_news() && self.has_news.swap(false, Ordering::AcqRel)
    }

    /// Whether [`take_news`](Self::take_news) would return true.
    pub(super) fn has_news(&self) -> bool {
        self.has_news.load(Ordering::Acquire)
    }

    /// This channel needs work. `false`: not here any more. The caller then has to ring the bell.
    fn stir(&self, half: Half) -> bool {
        let mut stirred = lock(&self.stirred);
        let is_open = !self.is_closed();
        if is_open {
            stirred.push_back(half);
            self.waiting.store(stirred.len(), Ordering::Release);
        }
        is_open
    }

    /// How many channels need work. A task that has called [`depart`](Self::depart) sees all of them but
    /// those whose ring wakes it.
    pub(super) fn stirred(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    /// The next of them.
    pub(super) fn next(&self) -> Option<Half> {
        let mut stirred = lock(&self.stirred);
        let next = stirred.pop_front();
        self.waiting.store(stirred.len(), Ordering::Release);
        next
    }

    /// No task looks here any more. Returns the channels that are left.
    pub(super) fn close(&self) -> VecDeque<Half> {
        let mut stirred = lock(&self.stirred);
        self.closed.store(true, Ordering::Release);
        self.waiting.store(0, Ordering::Release);
        std::mem::take(&mut *stirred)
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

/// How an end, and what arrives for it, finds the task that works on its channel.
pub(crate) struct EndWaker {
    half: Half,
    /// The bell of the task that works on channels that no socket carries.
    common: Weak<Bell>,
    /// A task is going to work on it.
    stirred: AtomicBool,
    /// The task of the socket that carries the end's connection.
    carrier: Mutex<Option<Arc<Bell>>>,
}

impl EndWaker {
    pub(super) fn new(half: Half, common: Weak<Bell>) -> Arc<Self> {
        Arc::new(Self { half, common, stirred: AtomicBool::new(false), carrier: Mutex::new(None) })
    }

    /// Whether a task is going to work on it.
    pub(super) fn is_stirred(&self) -> bool {
        self.stirred.load(Ordering::SeqCst)
    }

    /// Work on it begins: whatever arrives from now on needs more work.
    pub(super) fn heed(&self) {
        self.stirred.store(false, Ordering::SeqCst);
    }

    /// From now on this socket carries it.
    pub(super) fn carried_by(&self, bell: Option<Arc<Bell>>) {
        *lock(&self.carrier) = bell;
    }

    /// Rings for the task that carries the end's connection, which then does what the machine requires.
    /// Returns its waker if it waits: the caller must wake it.
    pub(super) fn ring_carrier(&self) -> Option<Waker> {
        if let Some(bell) = lock(&self.carrier).as_ref().filter(|bell| !bell.is_closed()) {
            return bell.ring_later();
        }
        self.common.upgrade().map(|bell| Waker::from(Arc::new(Rings(bell))))
    }

    /// Lists the channel elsewhere: no task looks any more where it was listed.
    pub(super) fn list_anew(&self) {
        if let Some(bell) = lock(&self.carrier).as_ref().filter(|bell| bell.stir(self.half)) {
            return bell.ring();
        }
        if let Some(bell) = self.common.upgrade() {
            bell.stir(self.half);
            bell.ring();
        }
    }
}

impl Wake for EndWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.stirred.swap(true, Ordering::SeqCst) {
            self.list_anew();
        }
    }
}

/// Rings a bell.
struct Rings(Arc<Bell>);

impl Wake for Rings {
    fn wake(self: Arc<Self>) {
        self.0.ring();
    }
}
