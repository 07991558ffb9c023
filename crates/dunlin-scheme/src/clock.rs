//! The clock that programs read.

use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Time since the first call.
pub(crate) fn since_start() -> Duration {
    START.elapsed()
}

/// Microseconds since 1970 that go on evenly: what the system's clock is set to later does not count.
pub(crate) fn now_us() -> u64 {
    static BEGAN: LazyLock<Duration> = LazyLock::new(|| since_epoch().saturating_sub(since_start()));
    (*BEGAN + since_start()).as_micros() as u64
}

/// Time since 1970.
pub(crate) fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
