//! How the core keeps a waker while an operation waits, and how it wakes it.
//!
//! The same as `Waker::clone` and `Waker::wake`, but for two kinds that the core knows more about:
//! - a `par!` branch's waker ([`crate::par::waker`]) is two numbers: no call through a pointer;
//! - a *trusted* runtime's waker is counted, and counting it up and down costs as much as the rest of a rendezvous. One
//!   that was woken is put by, on this thread, and the next operation of the same task takes it from there. A runtime is
//!   trusted if a waker that lives on keeps nothing of an ended task alive but its memory; the crate `dunlin` says so of
//!   tokio's.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::task::{RawWakerVTable, Waker};

use crate::par::waker;

static TRUSTED: AtomicPtr<RawWakerVTable> = AtomicPtr::new(ptr::null_mut());

/// From now on wakers of this kind may be kept for some time after their tasks have ended. One kind at a time.
pub fn trust(waker: &Waker) {
    TRUSTED.store(ptr::from_ref(waker.vtable()).cast_mut(), Ordering::Relaxed);
}

fn is_trusted(waker: &Waker) -> bool {
    ptr::eq(waker.vtable(), TRUSTED.load(Ordering::Relaxed))
}

/// As many tasks as take part in a small network; the more, the longer an ended task's memory may be kept.
const PUT_BY: usize = 8;

thread_local! {
    /// Wakers that were woken on this thread, each at a place by its task.
    static BY: [Cell<Option<Waker>>; PUT_BY] = const { [const { Cell::new(None) }; PUT_BY] };
}

fn place(waker: &Waker) -> usize {
    // Tasks are allocated at multiples of 64 bytes and more; their sizes are no powers of two.
    let address = waker.data().addr() >> 6;
    (address ^ address >> 5) % PUT_BY
}

/// `waker.clone()`.
#[inline(always)]
pub(crate) fn keep(waker: &Waker) -> Waker {
    waker::copy(waker).unwrap_or_else(|| keep_counted(waker))
}

#[inline(never)]
fn keep_counted(waker: &Waker) -> Waker {
    if is_trusted(waker) {
        let by = BY.try_with(|by| {
            let by = &by[place(waker)];
            let found = by.take()?;
            if found.will_wake(waker) {
                return Some(found);
            }
            by.set(Some(found));
            None
        });
        if let Ok(Some(found)) = by {
            return found;
        }
    }
    waker.clone()
}

/// `waker.wake()`. Not under a lock: it runs the scheduler's code.
#[inline(always)]
pub(crate) fn wake(waker: Waker) {
    if let Some(waker) = waker::wake_branch(waker) {
        wake_counted(waker);
    }
}

#[inline(never)]
fn wake_counted(waker: Waker) {
    if !is_trusted(&waker) {
        return waker.wake();
    }
    waker.wake_by_ref();
    let place = place(&waker);
    // A thread that is ending has no place for it any more.
    let mut waker = Some(waker);
    let before = BY.try_with(|by| by[place].replace(waker.take()));
    drop(before);
}
