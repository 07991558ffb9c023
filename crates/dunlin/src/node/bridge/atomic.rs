//! The atomics of the [busy word](super::busy), which a model replaces by loom's.

pub(super) use std::sync::atomic::{AtomicU64, Ordering};
