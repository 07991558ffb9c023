//! How often something happens that a peer can bring about: some times at once, and then at a steady pace.

use std::time::Duration;

use crate::time::Time;

/// What a peer may bring about so many times at once, and once more in each of these periods.
///
/// # Source
/// The generic cell rate algorithm (ITU-T I.371).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    pub(crate) at_once: u32,
    pub(crate) each: Duration,
}

/// How far a [`Rate`] has been used.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// Then all of it can be used again.
    full_at: Time,
}

impl Pace {
    /// When it may happen next. That time has been used then.
    pub(crate) fn next(&mut self, now: Time, rate: Rate) -> Time {
        let ahead = rate.each * (rate.at_once - 1);
        let wait = self.full_at.since(now).saturating_sub(ahead);
        self.full_at = self.full_at.max(now) + rate.each;
        now + wait
    }

    /// Whether it may happen now. If so, that has been used.
    pub(crate) fn allows(&mut self, now: Time, rate: Rate) -> bool {
        let before = *self;
        let is_now = self.next(now, rate) <= now;
        if !is_now {
            *self = before;
        }
        is_now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate { at_once: 3, each: Duration::from_millis(100) };

    #[test]
    fn some_times_at_once_and_then_one_in_each_period() {
        let (mut pace, now) = (Pace::default(), Time(5_000_000));
        let waits: Vec<u64> = (0..6).map(|_| pace.next(now, RATE).0 - now.0).collect();
        assert_eq!(waits, [0, 0, 0, 100_000, 200_000, 300_000]);
        // Those that were used have to come back first.
        assert_eq!(pace.next(now + Duration::from_millis(400), RATE), now + Duration::from_millis(400));
        assert!(pace.next(now + Duration::from_secs(9), RATE) == now + Duration::from_secs(9));
    }

    #[test]
    fn what_is_not_allowed_uses_nothing() {
        let (mut pace, now) = (Pace::default(), Time(0));
        let allowed = (0..1_000).filter(|n| pace.allows(now + Duration::from_millis(*n), RATE)).count();
        assert_eq!(allowed, 12);
    }
}
