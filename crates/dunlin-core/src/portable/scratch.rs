//! Where the code of users writes a message, and what becomes of its panics.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;

use crate::error::panic_text;

/// Shorter [`Bytes`] are copied when they arrive: they are a part of a large buffer (of up to 256 KiB), which
/// a part keeps whole.
const SHARED_MIN: usize = 2 << 10;

/// Bytes that have arrived, as a message keeps them.
pub fn kept(bytes: &Bytes) -> Bytes {
    if bytes.len() < SHARED_MIN { Bytes::copy_from_slice(bytes) } else { bytes.clone() }
}

/// Calls a user's code. If it panics, gives the panic's text.
///
/// To go on after a panic is sound: that is the type system's affair, and a caller may not rely on more.
/// `AssertUnwindSafe` is about values that a panic leaves half changed. Those here are a buffer, which is
/// given up or cleared, and a context that ends with the call. The user's is the message: one that changes
/// itself while it is written (a `RefCell`, a `Mutex`) is as the panic left it, as it would be if a process
/// of the user's had panicked over it.
///
/// # Errors
/// The text.
pub fn catch<R>(f: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|panic| {
        let text = panic_text(&*panic);
        // What a panic carries is the user's as well, and may panic when it is dropped, and so may what that
        // carries: the last is left alone.
        if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
            std::mem::forget(again);
        }
        text
    })
}

/// A buffer of this thread's, which keeps its memory from message to message.
///
/// A message of up to 64 KiB is copied out of it, into one allocation of its size. A larger one takes the
/// buffer along: that is cheaper than a copy.
#[derive(Debug)]
pub struct Scratch(Vec<u8>);

thread_local! {
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

impl Scratch {
    const BYTES_KEPT: usize = 64 << 10;

    /// An empty one. While it is taken, a `Serialize` that encodes a message of its own gets another.
    pub fn take() -> Self {
        // A thread that is ending has none.
        let mut buffer = SCRATCH.try_with(Cell::take).unwrap_or_default();
        buffer.clear();
        Self(buffer)
    }

    /// What was written.
    pub fn into_bytes(mut self) -> Bytes {
        if self.0.len() > Self::BYTES_KEPT {
            Bytes::from(std::mem::take(&mut self.0))
        } else {
            Bytes::copy_from_slice(&self.0)
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A buffer grows by doubling, so it can have twice what was in it.
        if (1..=2 * Self::BYTES_KEPT).contains(&self.0.capacity()) {
            let _ = SCRATCH.try_with(|scratch| scratch.set(std::mem::take(&mut self.0)));
        }
    }
}

impl Deref for Scratch {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl DerefMut for Scratch {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}
