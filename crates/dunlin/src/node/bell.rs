//! How tasks of a node are woken, and learn which channels need work.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
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
    waker: Mutex<Option<Waker>>,
    stirred: Mutex<Stirred>,
    /// The woken task must not wait until the thread that rings has finished its work.
    for_anybody: bool,
}

#[derive(Default)]
struct Stirred {
    channels: VecDeque<Half>,
    /// No task looks here any more.
    closed: bool,
}

impl Bell {
    /// The bell of a task that watches others, among them those that ring: users' code may hold them up.
    pub(super) fn of_who_looks() -> Self {
        Self { for_anybody: true, ..Self::default() }
    }

    pub(crate) fn ring(&self) {
        if !self.rung.swap(true, Ordering::AcqRel) {
            // Not within the lock: the woken task may wait again at once.
            let waker = lock(&self.waker).take();
            if let Some(waker) = waker {
                waker.wake();
                if self.for_anybody {
                    world::let_anybody_run_it();
                }
            }
        }
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

    /// This channel needs work. `false`: not here any more. The caller then has to ring the bell.
    fn stir(&self, half: Half) -> bool {
        let mut stirred = lock(&self.stirred);
        if !stirred.closed {
            stirred.channels.push_back(half);
        }
        !stirred.closed
    }

    /// How many channels need work.
    pub(super) fn stirred(&self) -> usize {
        lock(&self.stirred).channels.len()
    }

    /// Takes out those for which `take` returns true.
    pub(super) fn take_if(&self, mut take: impl FnMut(Half) -> bool) {
        lock(&self.stirred).channels.retain(|half| !take(*half));
    }

    /// The next of them.
    pub(super) fn next(&self) -> Option<Half> {
        lock(&self.stirred).channels.pop_front()
    }

    /// No task looks here any more. Returns the channels that are left.
    pub(super) fn close(&self) -> VecDeque<Half> {
        let mut stirred = lock(&self.stirred);
        stirred.closed = true;
        std::mem::take(&mut stirred.channels)
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

    /// Wakes the task that carries the end's connection, to do what the machine requires.
    pub(super) fn wake_carrier(&self) {
        let carrier = lock(&self.carrier).clone().filter(|bell| !lock(&bell.stirred).closed);
        if let Some(bell) = carrier.or_else(|| self.common.upgrade()) {
            bell.ring();
        }
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
