//! Code of users whose panic concerns no caller.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs it. Only the panic hook reports a panic.
pub(crate) fn quietly(f: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(f)) {
        // The payload may panic when it is dropped.
        std::mem::forget(panic);
    }
}
