//! A channel, whatever its slot is, and its lock.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::task::Waker;

use crate::channel::erased::AnySlot;
use crate::channel::hub::{AnyHub, HubRef};
use crate::channel::policy::Policy;
use crate::channel::queue::Queue;
use crate::lock::{Guard, Lock};
use crate::waits::Recorded;

/// What the lock of a channel guards, beside the slot for the value.
pub(super) struct Inner {
    /// The sender's if an offer exists, the receiver's if it watches: the two never wait at once.
    pub(super) waiter: Option<Waker>,
    pub(super) queue: Option<Box<QueueAndHub>>,
}

/// The queue, and the broadcast that the channel belongs to. They share a box because most channels have
/// neither.
pub(super) struct QueueAndHub {
    queue: Queue,
    // Boxed: few channels have one.
    pub(super) hub: Option<Box<HubRef>>,
}

impl QueueAndHub {
    pub(super) fn new(policy: &Policy) -> Box<Self> {
        Box::new(Self { queue: Queue::new(policy), hub: None })
    }

    pub(super) fn hub(&self) -> Option<Arc<dyn AnyHub>> {
        self.hub.as_ref()?.upgrade()
    }
}

impl Deref for QueueAndHub {
    type Target = Queue;

    #[inline(always)]
    fn deref(&self) -> &Queue {
        &self.queue
    }
}

impl DerefMut for QueueAndHub {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Queue {
        &mut self.queue
    }
}

/// The state that both ends of a channel share, with this slot for a value.
#[allow(unreachable_pub)] // an associated type of the public trait `End` names it
pub struct ChanOf<S: ?Sized> {
    pub(crate) record: Recorded,
    pub(super) state: Lock<Inner>,
    /// The slot for the value, under the lock as well. It is not inside: where a part is that follows a value
    /// of unknown type, and so of unknown alignment, has to be computed at each access.
    pub(super) value: UnsafeCell<S>,
}

// SAFETY: `value` is only reached through a `Locked`, which has the lock.
unsafe impl<S: ?Sized + Send> Sync for ChanOf<S> {}

/// A channel of values of type `T`.
#[allow(unreachable_pub)] // an associated type of the public trait `End` names it
pub type Chan<T> = ChanOf<Option<T>>;

/// A channel whose values have a type that its users know.
pub(crate) type AnyChan<'v> = ChanOf<dyn AnySlot + 'v>;

/// A channel, locked.
pub(super) struct Locked<'g, S: ?Sized> {
    guard: Guard<'g, Inner>,
    chan: &'g ChanOf<S>,
}

pub(super) type AnyGuard<'g, 'v> = Locked<'g, dyn AnySlot + 'v>;

impl<'g, S: ?Sized> Deref for Locked<'g, S> {
    type Target = Guard<'g, Inner>;

    #[inline(always)]
    fn deref(&self) -> &Guard<'g, Inner> {
        &self.guard
    }
}

impl<S: ?Sized> DerefMut for Locked<'_, S> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.guard
    }
}

impl<S: ?Sized> Locked<'_, S> {
    /// The slot for the value.
    #[inline(always)]
    pub(super) fn value(&mut self) -> &mut S {
        // SAFETY: this has the lock of the channel, and `&mut self` keeps other uses of it away.
        unsafe { &mut *self.chan.value.get() }
    }

    /// The slot for the value, and the rest.
    #[cfg(feature = "link")]
    pub(super) fn parts(&mut self) -> (&mut S, &mut Inner) {
        // SAFETY: as above; the rest is elsewhere.
        (unsafe { &mut *self.chan.value.get() }, &mut self.guard)
    }
}

impl<S: ?Sized> ChanOf<S> {
    /// Locks the state as it is.
    #[inline(always)]
    pub(super) fn locked(&self) -> Locked<'_, S> {
        Locked { guard: self.state.lock(), chan: self }
    }

    /// Locks the state if it is not locked, and none of these bits is set.
    #[inline(always)]
    pub(super) fn locked_when(&self, not: u32) -> Option<Locked<'_, S>> {
        self.state.lock_when(not, 0).map(|guard| Locked { guard, chan: self })
    }
}
