//! Buffers in which user code writes a message, and the handling of its panics.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;

use crate::error::panic_text;

/// Shorter [`Bytes`] are copied when they arrive: they are part of a large buffer (of up to 256 KiB), and
/// each part keeps the whole buffer.
const SHARED_MIN: usize = 2 << 10;

/// Arrived bytes, as a message keeps them.
pub fn kept(bytes: &Bytes) -> Bytes {
    if bytes.len() < SHARED_MIN { copied(bytes) } else { bytes.clone() }
}

/// A copy of these bytes, in an allocation of their own. The first clone of `Bytes` that come from a vector
/// allocates, too: clones of few bytes do not.
pub(crate) fn copied(bytes: &[u8]) -> Bytes {
    let mut few = Few { bytes: [0; FEW], length: bytes.len() };
    match few.bytes.get_mut(..bytes.len()) {
        Some(room) => room.copy_from_slice(bytes),
        None => return Bytes::copy_from_slice(bytes),
    }
    Bytes::from_owner(few)
}

const FEW: usize = 48;

struct Few {
    bytes: [u8; FEW],
    length: usize,
}

impl AsRef<[u8]> for Few {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Calls user code. If it panics, returns the panic's text.
///
/// To continue after a panic is sound: the type system guarantees that, and callers may rely on no more.
/// `AssertUnwindSafe` concerns values that a panic leaves half changed. Here those are a buffer, which is
/// discarded or cleared, and a context that ends with the call. The user's value is the message: one that
/// changes itself while it is written (a `RefCell`, a `Mutex`) stays as the panic left it, as after a panic
/// of a user's process.
///
/// # Errors
/// The text.
pub fn catch<R>(f: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|panic| {
        let text = panic_text(&*panic);
        // The payload of a panic is the user's as well. It may panic when it is dropped, and so may the
        // payload of that panic: the last one is leaked.
        if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
            std::mem::forget(again);
        }
        text
    })
}

/// A buffer of this thread, which keeps its memory from message to message.
///
/// A message of up to 64 KiB is copied out of it, into one allocation of its size. A larger message takes the
/// buffer itself: that is cheaper than a copy.
#[derive(Debug)]
pub struct Scratch(Vec<u8>);

thread_local! {
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

impl Scratch {
    const BYTES_KEPT: usize = 64 << 10;

    /// Takes an empty buffer. While it is taken, a `Serialize` that encodes a message of its own gets
    /// another.
    pub fn take() -> Self {
        // A thread that is ending has none.
        let mut buffer = SCRATCH.try_with(Cell::take).unwrap_or_default();
        buffer.clear();
        Self(buffer)
    }

    /// The bytes written.
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
        // A buffer grows by doubling, so its capacity can be twice its length.
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
