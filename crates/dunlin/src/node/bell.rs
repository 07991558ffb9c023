//! How tasks of a node are woken, and learn which channels there is something to do for.

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
    /// Who is woken must not wait until whoever rings has done what it does.
    for_anybody: bool,
}

#[derive(Default)]
struct Stirred {
    channels: VecDeque<Half>,
    /// Nobody will look any more.
    closed: bool,
}

impl Bell {
    /// Of a task that looks after others, and so after those who ring: users' code may hold them up.
    pub(super) fn of_who_looks() -> Self {
        Self { for_anybody: true, ..Self::default() }
    }

    pub(crate) fn ring(&self) {
        if !self.rung.swap(true, Ordering::AcqRel) {
            // Not within the lock: who is woken may want to wait again at once.
            let waker = lock(&self.waker).take();
            if let Some(waker) = waker {
                waker.wake();
                if self.for_anybody {
                    world::let_anybody_run_it();
                }
            }
        }
    }

    /// Whether it was rung since it was last asked; if not, the task will be woken.
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

    /// The task is here, and looks at everything once more before it waits: nobody has to wake it until
    /// [`depart`](Self::depart).
    pub(super) fn attend(&self) {
        self.rung.store(true, Ordering::Release);
    }

    /// What is heard from now on, wakes. The task still has to look at what it was not woken for.
    pub(super) fn depart(&self) {
        self.rung.swap(false, Ordering::AcqRel);
    }

    /// There is something to do for this channel. `false`: not here any more. The bell is to be rung then.
    fn stir(&self, half: Half) -> bool {
        let mut stirred = lock(&self.stirred);
        if !stirred.closed {
            stirred.channels.push_back(half);
        }
        !stirred.closed
    }

    /// How many channels there is something to do for.
    pub(super) fn stirred(&self) -> usize {
        lock(&self.stirred).channels.len()
    }

    /// Takes those out for which this says so.
    pub(super) fn take_if(&self, mut take: impl FnMut(Half) -> bool) {
        lock(&self.stirred).channels.retain(|half| !take(*half));
    }

    /// The next of them.
    pub(super) fn next(&self) -> Option<Half> {
        lock(&self.stirred).channels.pop_front()
    }

    /// Nobody looks here any more. Gives the channels that are left.
    pub(super) fn close(&self) -> VecDeque<Half> {
        let mut stirred = lock(&self.stirred);
        stirred.closed = true;
        std::mem::take(&mut stirred.channels)
    }
}

/// How an end, and what is heard for it, finds whoever works on its channel.
pub(crate) struct EndWaker {
    half: Half,
    /// Of the task that looks after what no socket carries.
    common: Weak<Bell>,
    /// Somebody is going to work on it.
    stirred: AtomicBool,
    /// The task of the socket that carries the end's connection.
    carrier: Mutex<Option<Arc<Bell>>>,
}

impl EndWaker {
    pub(super) fn new(half: Half, common: Weak<Bell>) -> Arc<Self> {
        Arc::new(Self { half, common, stirred: AtomicBool::new(false), carrier: Mutex::new(None) })
    }

    /// Whether somebody is going to work on it.
    pub(super) fn is_stirred(&self) -> bool {
        self.stirred.load(Ordering::SeqCst)
    }

    /// Work on it begins: what comes from now on needs more work.
    pub(super) fn heed(&self) {
        self.stirred.store(false, Ordering::SeqCst);
    }

    /// From now on it is this socket that carries it.
    pub(super) fn carried_by(&self, bell: Option<Arc<Bell>>) {
        *lock(&self.carrier) = bell;
    }

    /// Wakes the task that carries the end's connection, to do what the machine says.
    pub(super) fn wake_carrier(&self) {
        let carrier = lock(&self.carrier).clone().filter(|bell| !lock(&bell.stirred).closed);
        if let Some(bell) = carrier.or_else(|| self.common.upgrade()) {
            bell.ring();
        }
    }

    /// Where it was listed nobody looks any more.
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
