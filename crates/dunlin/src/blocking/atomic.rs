//! The atomics of the [phase word](super::phase), which a model replaces by loom's.

pub(super) use std::sync::atomic::{AtomicU8, Ordering};
