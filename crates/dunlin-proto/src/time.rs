//! Time as the driver passes it to the machine.

use std::ops::Add;
use std::time::Duration;

/// A moment: microseconds since a start of the driver's choosing. It never goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// The time from `earlier` to `self`; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// The first multiple of `grid` that is not before `self`.
    pub(crate) fn rounded_up(self, grid: Duration) -> Self {
        let grid = u64::try_from(grid.as_micros()).unwrap_or(u64::MAX).max(1);
        Self(self.0.checked_next_multiple_of(grid).unwrap_or(u64::MAX))
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    fn add(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(wait.as_micros()).unwrap_or(u64::MAX)))
    }
}
