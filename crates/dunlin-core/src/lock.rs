//! The lock under every channel: one word that also publishes the kind of state it guards.
//!
//! Taking it is one compare-and-set, releasing it one plain store. The word's other bits are a *tag* that the
//! holder sets and any thread may read without the lock: a sender sees with one load that its offer is gone.
//! Measured in `docs/performance.md`: compared with a parking lock this saves 4 to 5 ns of the 20 that a
//! rendezvous costs inside `par!`.
//!
//! Three rules make a spinning lock right here. No code that waits is ever called under it. Values are
//! dropped and wakers woken after it is released ([`crate::channel`] collects them). A panic under it (a
//! user's policy) releases it.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use crate::sync::{AtomicU32, Ordering, relax};

const LOCKED: u32 = 1 << 31;

/// A value under a spinning lock whose word carries a tag of 31 bits.
pub(crate) struct Lock<T> {
    word: AtomicU32,
    #[cfg(not(loom))]
    value: crate::sync::UnsafeCell<T>,
    #[cfg(loom)]
    value: loom::cell::UnsafeCell<T>,
    /// For models of code built on locks ([`LOCK_IN_ONE_STEP`](crate::sync::LOCK_IN_ONE_STEP)): the lock
    /// itself, for which loom can wait, with the tag.
    #[cfg(loom)]
    gate: loom::sync::Mutex<u32>,
}

// SAFETY: `value` is only reached through a `Guard`, and the word lets one guard exist at a time.
unsafe impl<T: Send> Sync for Lock<T> {}
// SAFETY: as for any owned cell; sending the lock sends the value.
unsafe impl<T: Send> Send for Lock<T> {}

impl<T> Lock<T> {
    #[cfg(not(loom))]
    pub(crate) const fn new(value: T) -> Self {
        Self { word: AtomicU32::new(0), value: crate::sync::UnsafeCell::new(value) }
    }

    #[cfg(loom)]
    pub(crate) fn new(value: T) -> Self {
        Self { word: AtomicU32::new(0), value: loom::cell::UnsafeCell::new(value), gate: loom::sync::Mutex::new(0) }
    }

    /// Waits for the lock. The wait is short by the rules above.
    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        #[cfg(loom)]
        if crate::sync::LOCK_IN_ONE_STEP {
            return Guard::through(self, self.gate.lock().expect("a model ends with its first panic"));
        }
        let word = self.word.load(Ordering::Relaxed);
        if word & LOCKED == 0
            && self.word.compare_exchange(word, word | LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok()
        {
            return Guard::new(self, word);
        }
        self.lock_contended()
    }

    /// Takes the lock if it is free and the tag, within `mask`, is `tag`. For the shortest paths: otherwise
    /// the caller takes the long one.
    #[inline(always)]
    pub(crate) fn lock_when(&self, mask: u32, tag: u32) -> Option<Guard<'_, T>> {
        #[cfg(loom)]
        if crate::sync::LOCK_IN_ONE_STEP {
            let gate = self.gate.try_lock().ok()?;
            return if *gate & mask == tag { Some(Guard::through(self, gate)) } else { None };
        }
        let word = self.word.load(Ordering::Relaxed);
        if word & (mask | LOCKED) == tag
            && self.word.compare_exchange(word, word | LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok()
        {
            return Some(Guard::new(self, word));
        }
        None
    }

    #[cold]
    fn lock_contended(&self) -> Guard<'_, T> {
        let mut spins = 0;
        loop {
            let word = self.word.load(Ordering::Relaxed);
            if word & LOCKED == 0
                && self.word.compare_exchange(word, word | LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return Guard::new(self, word);
            }
            relax(spins);
            spins = spins.saturating_add(1);
        }
    }

    /// The tag as the last holder left it, or `None` while the lock is held.
    ///
    /// The last holder's writes before its release happen before all code that relies on the tag.
    #[inline(always)]
    pub(crate) fn tag(&self) -> Option<u32> {
        let word = self.word.load(Ordering::Acquire);
        if word & LOCKED == 0 { Some(word) } else { None }
    }
}

impl<T: Default> Default for Lock<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

/// The held lock. It is released on drop, with the tag as it is then.
pub(crate) struct Guard<'a, T> {
    lock: &'a Lock<T>,
    /// Not `Sync`: a shared guard would share the value, which need not be `Sync`.
    not_sync: PhantomData<Cell<()>>,
    /// The word's value once this guard is dropped.
    pub(crate) tag: u32,
    #[cfg(loom)]
    value: Option<loom::cell::MutPtr<T>>,
    #[cfg(loom)]
    gate: Option<loom::sync::MutexGuard<'a, u32>>,
}

impl<'a, T> Guard<'a, T> {
    #[inline(always)]
    fn new(lock: &'a Lock<T>, tag: u32) -> Self {
        Self {
            lock,
            not_sync: PhantomData,
            tag,
            #[cfg(loom)]
            value: Some(lock.value.get_mut()),
            #[cfg(loom)]
            gate: None,
        }
    }

    #[cfg(loom)]
    fn through(lock: &'a Lock<T>, gate: loom::sync::MutexGuard<'a, u32>) -> Self {
        let mut guard = Self::new(lock, *gate);
        guard.gate = Some(gate);
        guard
    }

    /// Whether all of `bits` are set in the tag.
    #[inline(always)]
    pub(crate) fn has(&self, bits: u32) -> bool {
        self.tag & bits == bits
    }

    /// Whether any of `bits` is set in the tag.
    #[inline(always)]
    pub(crate) fn has_any(&self, bits: u32) -> bool {
        self.tag & bits != 0
    }

    /// Takes `one` from the number in the bits `number`. `false`: it is zero.
    #[inline(always)]
    pub(crate) fn take_one(&mut self, number: u32, one: u32) -> bool {
        let is_one_there = self.has_any(number);
        if is_one_there {
            self.tag -= one;
        }
        is_one_there
    }

    #[inline(always)]
    pub(crate) fn set(&mut self, bits: u32) {
        self.tag |= bits;
    }

    #[inline(always)]
    pub(crate) fn clear(&mut self, bits: u32) {
        self.tag &= !bits;
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        #[cfg(not(loom))]
        // SAFETY: the word is LOCKED on behalf of this guard alone, so no other reference to the value
        // exists.
        unsafe {
            &*self.lock.value.get()
        }
        #[cfg(loom)]
        // SAFETY: as above; loom checks it.
        unsafe {
            self.value.as_ref().expect("held until drop").deref()
        }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        #[cfg(not(loom))]
        // SAFETY: as in `deref`, and `&mut self` keeps other uses of this guard away.
        unsafe {
            &mut *self.lock.value.get()
        }
        #[cfg(loom)]
        // SAFETY: as above; loom checks it.
        unsafe {
            self.value.as_ref().expect("held until drop").deref()
        }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        #[cfg(loom)]
        drop(self.value.take());
        #[cfg(loom)]
        if let Some(mut gate) = self.gate.take() {
            if *gate != self.tag {
                *gate = self.tag;
                self.lock.word.store(self.tag, Ordering::Release);
            }
            return;
        }
        // A plain store suffices: while LOCKED is set no other thread writes the word.
        self.lock.word.store(self.tag, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn tag_is_published_when_the_guard_drops() {
        let lock = Lock::new(5);
        let mut guard = lock.lock();
        guard.set(3);
        *guard += 1;
        assert_eq!(lock.tag(), None, "held");
        drop(guard);
        assert_eq!(lock.tag(), Some(3));
        assert_eq!(*lock.lock(), 6);
    }

    #[test]
    fn a_panic_under_the_lock_releases_it() {
        let lock = Arc::new(Lock::new(0));
        let other = lock.clone();
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let _guard = other.lock();
            panic!("on purpose");
        }));
        assert!(result.is_err());
        assert_eq!(lock.tag(), Some(0));
    }

    #[test]
    #[allow(clippy::disallowed_methods)] // threads are what is tested
    fn two_threads_exclude_each_other() {
        const ROUNDS: usize = if cfg!(miri) { 50 } else { 50_000 };
        let lock = Lock::new(0_usize);
        std::thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    for _ in 0..ROUNDS {
                        *lock.lock() += 1;
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), 2 * ROUNDS);
    }
}
