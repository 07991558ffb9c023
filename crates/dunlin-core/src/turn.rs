//! Turns: how long a send that cannot wait still waits for the receivers that it has woken.
//!
//! A send whose deadline has passed, or whose choice would try another branch, gives the receivers that it
//! woke the chance to take its value. Its turn ends when each of them has been polled: the queue records that
//! and wakes the sender. A receiver that is not polled ends no turn, so a turn also ends after a millisecond,
//! or up to five where threads wait for a processor. The core has no clock: a runtime that has one sets the
//! timer that ends a turn ([`set_timer`]). Without it the sender is polled again and again instead, a fixed
//! number of times.

use std::sync::OnceLock;
use std::task::Waker;

use dunlin_sorted::SortedMap;

use crate::lock::Lock;
use crate::sync::{AtomicU32, Ordering, global};
use crate::wake;

/// What a send that would have to end now still waits for.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Nothing: it has its result, or woke no receiver.
    Over,
    /// Local receivers that it woke and that have not been polled since.
    Here,
    /// A receiver elsewhere, whose polls it cannot see.
    Elsewhere,
}

static TIMER: OnceLock<fn(u32) -> bool> = OnceLock::new();

global! { static NEXT: AtomicU32 = AtomicU32::new(1); }
global! { static TURNS: Lock<SortedMap<u32, Waker>> = Lock::new(SortedMap::new()); }

/// Sets the function that is called with the number of each new turn. It must have [`end`] called with that
/// number one millisecond later, or up to five, on another thread or by another task. It returns `false` if
/// it cannot. The first setting stays.
pub fn set_timer(timer: fn(u32) -> bool) {
    let _ = TIMER.set(timer);
}

/// Begins a turn, whose end wakes `waker`. `None`: no timer could end it.
pub(crate) fn begin(waker: &Waker) -> Option<u32> {
    let timer = *TIMER.get()?;
    // The highest bit is for the callers.
    let number = NEXT.fetch_add(1, Ordering::Relaxed) & (u32::MAX >> 1);
    let waker = wake::keep(waker);
    let stale = TURNS.lock().insert(number, waker);
    drop(stale);
    if timer(number) {
        return Some(number);
    }
    forget(number);
    None
}

/// Whether the turn has ended. If not, its end wakes `waker`.
pub(crate) fn is_over(number: u32, waker: &Waker) -> bool {
    let waker = wake::keep(waker);
    let mut turns = TURNS.lock();
    let Some(kept) = turns.get_mut(&number) else {
        drop(turns);
        return true;
    };
    let stale = std::mem::replace(kept, waker);
    drop(turns);
    drop(stale);
    false
}

/// Ends a turn, if it has not ended.
pub fn end(number: u32) {
    let waker = TURNS.lock().remove(&number);
    waker.into_iter().for_each(wake::wake);
}

/// Drops a turn that its sender no longer needs.
pub(crate) fn forget(number: u32) {
    let stale = TURNS.lock().remove(&number);
    drop(stale);
}
