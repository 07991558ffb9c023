//! Loom: a signal for a process, beside its first polls and its end.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p dunlin-core --test loom_signal`
#![cfg(loom)]

mod loom_support;

use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Wake, Waker};

use dunlin_core::waits::{self, Identities, Keep, Spawned};
use loom_support::{model, spawn};

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

struct Kept;

impl Keep for Kept {
    fn name(&self) -> Option<Arc<str>> {
        None
    }
}

fn process() -> (Identities, Spawned) {
    let (identities, place) = Identities::spawned(Location::caller());
    let process = Spawned::find(place, identities.first()).expect("the place exists");
    process.kept(|_| Arc::new(Kept)).expect("the process has not ended");
    (identities, process)
}

/// One poll of a process whose body waits. Returns whether it has found a signal.
fn poll(identities: &Identities, waker: &Waker) -> bool {
    let found = !identities.is_quiet() && identities.look().is_some();
    if !identities.is_quiet() {
        identities.waits(waker);
    }
    found
}

/// The process finds it in this poll, or is woken and finds it in the next.
#[test]
fn sent_beside_the_first_poll() {
    model(|| {
        let (identities, process) = process();
        let sender = spawn(move || process.rouse());
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        let mut found = poll(&identities, &waker);
        assert!(sender.join());
        if woken.0.swap(false, Relaxed) {
            assert!(!found, "there was one signal");
            found = poll(&identities, &waker);
        }
        assert!(found);
    });
}

/// As before; the second signal may be found with the first.
#[test]
fn two_sent_beside_two_polls() {
    model(|| {
        let (identities, process) = process();
        let sender = spawn(move || [process.rouse(), process.rouse()]);
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        let mut found = poll(&identities, &waker);
        found |= poll(&identities, &waker);
        assert_eq!(sender.join(), [true; 2]);
        if woken.0.swap(false, Relaxed) {
            found |= poll(&identities, &waker);
        }
        assert!(found);
        assert!(identities.is_quiet(), "no signal is left");
    });
}

/// Whoever sends it learns that the process has ended, or has sent it before.
#[test]
fn sent_beside_the_end() {
    model(|| {
        let (identities, process) = process();
        let sender = spawn(move || (process.rouse(), process.kept(|_| Arc::new(Kept)).is_some()));
        let waker = Waker::from(Arc::new(Woken::default()));
        poll(&identities, &waker);
        let kept = identities.close();
        assert!(kept.is_some());
        let (sent, found) = sender.join();
        assert!(sent || !found, "it has ended, and is found later");
        // Nothing kept has a second owner but the sender, which has gone.
        assert_eq!(kept.map(|kept| Arc::strong_count(&kept)), Some(1));
        assert!(!process.is_alive());
    });
}

/// Two that first need what is kept for a process get the same, and its name is there before and after.
#[test]
fn kept_by_two_at_once() {
    model(|| {
        let (identities, place) = Identities::spawned(Location::caller());
        identities.set_name(Arc::from("krill"));
        let process = Spawned::find(place, identities.first()).expect("the place exists");
        let new = |name: Option<Arc<str>>| -> waits::Kept {
            assert_eq!(name.as_deref(), Some("krill"));
            Arc::new(Kept)
        };
        let other = spawn(move || process.kept(new));
        let own = process.kept(new).expect("it has not ended");
        let others = other.join().expect("it has not ended");
        assert!(Arc::ptr_eq(&own, &others));
        drop(others);
        drop(identities);
        assert_eq!(Arc::strong_count(&own), 1);
    });
}
