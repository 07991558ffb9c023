//! Loom: the lock under every channel, with its real steps, and the table on top of it.
//!
//! The two modules are compiled here again with their own `sync`, because the other models take a lock in one
//! step.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p dunlin-core --test loom_lock`
#![cfg(loom)]
#![allow(dead_code, unreachable_pub)] // parts of the modules are unused here

#[path = "../src/lock.rs"]
mod lock;
mod loom_support;
#[path = "../src/table.rs"]
mod table;

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU32, Ordering};

    pub(crate) const LOCK_IN_ONE_STEP: bool = false;

    pub(crate) fn relax(_spins: u32) {
        loom::thread::yield_now();
    }
}

use std::sync::Arc;

use lock::Lock;
use loom_support::{model, model_within, spawn};
use table::Table;

/// Data that only the holder of the lock or its tag accesses: loom reports concurrent or unordered accesses.
struct Plain(loom::cell::UnsafeCell<u32>);

// SAFETY: loom's cell checks what these tests are about, that no two threads access it at once.
unsafe impl Sync for Plain {}
// SAFETY: as above.
unsafe impl Send for Plain {}

impl Plain {
    fn new() -> Self {
        Self(loom::cell::UnsafeCell::new(0))
    }

    fn add(&self, n: u32) -> u32 {
        // SAFETY: as above; loom checks that no other thread is here.
        self.0.with_mut(|value| unsafe {
            *value += n;
            *value
        })
    }

    fn get(&self) -> u32 {
        // SAFETY: as above.
        self.0.with(|value| unsafe { *value })
    }
}

/// One holder inside, one about to enter: the second sees the writes of the first, in either order.
#[test]
fn holders_exclude_each_other() {
    model_within(3, || {
        let shared = Arc::new((Lock::new(0), Plain::new()));
        let other = shared.clone();
        let both = |shared: &(Lock<u32>, Plain)| {
            for _ in 0..2 {
                let mut guard = shared.0.lock();
                *guard += 1;
                shared.1.add(1);
            }
        };
        let thread = spawn(move || both(&other));
        both(&shared);
        thread.join();
        assert_eq!((*shared.0.lock(), shared.1.get()), (4, 4));
    });
}

/// Two threads spin while the third is inside. One preemption: every spin of two threads is another order.
#[test]
fn three_holders_exclude_each_other() {
    model_within(1, || {
        let shared = Arc::new((Lock::new(0), Plain::new()));
        let once = |shared: &(Lock<u32>, Plain)| {
            *shared.0.lock() += 1;
        };
        let threads = [shared.clone(), shared.clone()].map(|shared| spawn(move || once(&shared)));
        once(&shared);
        threads.into_iter().for_each(loom_support::Running::join);
        assert_eq!(*shared.0.lock(), 3);
    });
}

/// The conditional path takes the lock only with the requested tag, and excludes like the other one.
#[test]
fn a_conditional_holder_excludes() {
    model_within(3, || {
        let shared = Arc::new((Lock::new(()), Plain::new()));
        let other = shared.clone();
        let thread = spawn(move || {
            let mut guard = other.0.lock();
            other.1.add(1);
            guard.set(1);
        });
        let entered = shared.0.lock_when(1, 0).map(|guard| {
            assert!(!guard.has(1));
            shared.1.add(1)
        });
        thread.join();
        assert_eq!(shared.1.get(), 1 + u32::from(entered.is_some()));
        assert_eq!(shared.0.tag(), Some(1));
    });
}

/// A thread that sees the tag without the lock also sees the writes before the holder set it. So one load
/// shows a sender that its offer was taken.
#[test]
fn tag_publishes_earlier_writes() {
    model(|| {
        let shared = Arc::new((Lock::new(()), Plain::new()));
        let other = shared.clone();
        let thread = spawn(move || {
            other.1.add(7);
            other.0.lock().set(1);
            // A later holder leaves the tag, which still publishes the writes of the first one.
            drop(other.0.lock());
        });
        if shared.0.tag() == Some(1) {
            assert_eq!(shared.1.get(), 7);
        }
        thread.join();
    });
}

loom::lazy_static! {
    static ref TABLE: Table<Owned> = Table::new();
}

struct Owned(Plain);

impl Default for Owned {
    fn default() -> Self {
        Self(Plain::new())
    }
}

/// Two threads take and give at once: no entry has two owners, and each owner finds what the last one left.
#[test]
fn an_entry_has_one_owner() {
    model(|| {
        let use_twice = || {
            for _ in 0..2 {
                let entry = TABLE.take();
                let value = entry.0.add(1);
                assert_eq!(entry.0.add(1), value + 1);
                TABLE.give(entry);
            }
        };
        let thread = spawn(use_twice);
        use_twice();
        thread.join();
        let total: u32 = TABLE.iter().map(|entry| entry.0.get()).sum();
        assert_eq!(total, 8);
    });
}

/// Entries held at the same time are different.
#[test]
fn entries_taken_at_once_differ() {
    model(|| {
        let thread = spawn(|| TABLE.take());
        let mine = TABLE.take();
        assert!(!std::ptr::eq(thread.join(), mine));
    });
}

/// One thread gives while the other takes an entry that was given before: the list is intact afterwards.
#[test]
fn giving_races_taking() {
    model_within(3, || {
        let (mine, before) = (TABLE.take(), TABLE.take());
        TABLE.give(before);
        let thread = spawn(|| {
            let entry = TABLE.take();
            entry.0.add(1);
            entry
        });
        TABLE.give(mine);
        let taken = [TABLE.take(), TABLE.take()];
        for entry in taken {
            entry.0.add(1);
        }
        let theirs = thread.join();
        assert!(taken.iter().all(|entry| !std::ptr::eq(*entry, theirs)));
    });
}
