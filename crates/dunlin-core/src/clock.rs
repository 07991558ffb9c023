//! The coarse time, and waits for an operation to be polled that are bounded by it.
//!
//! The core has no clock: the runtime sets the time ([`advance`]).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use crate::lock::Lock;
use crate::sync::global;

/// How long a waiter that was offered the end, or a send that was held back, blocks the others without being
/// polled, in ticks (milliseconds). Longer than a scheduler needs to poll a woken task; shorter than people
/// notice.
pub const PATIENCE_TICKS: u32 = 20;

static TICK: AtomicU32 = AtomicU32::new(0);

/// The coarse time, in milliseconds since the runtime began to [`advance`] it. Wraps after 49 days.
pub fn tick() -> u32 {
    TICK.load(Ordering::Relaxed)
}

/// Stores the coarse time, in milliseconds, and ends every patience that has run out. A claim offered to a
/// waiter that was not polled goes to the next in line. A value whose woken receivers were not polled wakes
/// the other receivers.
///
/// The runtime calls this; a program on another runtime, or a test, may call it instead.
pub fn advance(tick: u32) {
    TICK.store(tick, Ordering::Relaxed);
    patience_ran_out(tick);
}

/// A value that waits for an operation to be polled, but not for ever.
pub(crate) trait Patient: Send + Sync {
    /// Time has passed: an operation that was not polled in time loses its turn. `true`: the value still
    /// waits for one.
    fn patience_ran_out(self: Arc<Self>, tick: u32) -> bool;
}

/// Calls `patient` as time passes, until it waits for nothing.
pub(crate) fn be_patient(patient: Weak<dyn Patient>) {
    PATIENT.lock().push(patient);
}

global! { static PATIENT: Lock<Vec<Weak<dyn Patient>>> = Lock::new(Vec::new()); }

fn patience_ran_out(tick: u32) {
    let mut patient = std::mem::take(&mut *PATIENT.lock());
    patient.retain(|patient| {
        // The call may wake a task, or drop a user's value. A panic of that must not keep the others from
        // being called. The one that panicked has stored before whether it still waits, so it is called
        // again.
        let told = || patient.upgrade().is_some_and(|patient| patient.patience_ran_out(tick));
        catch_unwind(AssertUnwindSafe(told)).unwrap_or(true)
    });
    PATIENT.lock().append(&mut patient);
}
