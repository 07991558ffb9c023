//! Loom: the mark of a half whose words are being passed on. As `loom_blocking.rs`, this test compiles a file
//! of the crate `dunlin` again.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p dunlin-core --test loom_busy`
#![cfg(loom)]
#![allow(unreachable_pub)] // as in the crate

mod atomic {
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
}
#[path = "../../dunlin/src/node/bridge/busy.rs"]
mod busy;
mod loom_support;

use atomic::Ordering;
use busy::Busy;
use loom::sync::atomic::AtomicBool;
use loom::sync::{Arc, Mutex};
use loom::thread;
use loom_support::model;

#[test]
fn bridge_is_woken_exactly_if_it_has_found_its_half_busy() {
    model(|| {
        let busy = Arc::new(Busy::new());
        assert!(busy.begin(1) && busy.begin(1));
        let there = busy.clone();
        let socket = thread::spawn(move || there.end(1));
        let waits = busy.is_busy();
        assert_eq!(socket.join().unwrap(), waits);
        assert!(!busy.is_busy() && !busy.end(1));
    });
}

/// A half is told of the end of a batch once for each word.
#[test]
fn second_word_of_a_batch_does_not_end_the_next_one() {
    model(|| {
        let busy = Busy::new();
        assert!(busy.begin(1) && !busy.end(1) && busy.begin(2));
        assert!(!busy.end(1) && busy.is_busy());
        assert!(!busy.end(1) && busy.end(2) && !busy.is_busy());
    });
}

#[test]
fn batches_and_the_bridge_exclude_each_other() {
    model(|| {
        let node = Arc::new((Mutex::new(()), Busy::new(), AtomicBool::new(false)));
        let work = |is_at_work: &AtomicBool| {
            assert!(!is_at_work.swap(true, Ordering::Relaxed), "another one is at work");
            is_at_work.store(false, Ordering::Relaxed);
        };
        let sockets = [1, 2].map(|batch| {
            let node = node.clone();
            thread::spawn(move || {
                let (lock, busy, is_at_work) = &*node;
                let locked = lock.lock().unwrap();
                let begins = busy.begin(batch);
                drop(locked);
                if begins {
                    work(is_at_work);
                    let _ = busy.end(batch);
                }
            })
        });
        let (lock, busy, is_at_work) = &*node;
        let locked = lock.lock().unwrap();
        if !busy.is_busy() {
            // The bridge is taken out in the same lock, so no batch begins meanwhile.
            work(is_at_work);
        }
        drop(locked);
        sockets.into_iter().for_each(|socket| socket.join().unwrap());
    });
}
