//! Rate limits for events that a peer can cause: a burst at once, and then a steady pace.

use std::time::Duration;

use dunlin_sorted::SortedMap;

use crate::source::Source;
use crate::time::Time;

/// How many times a peer may cause an event at once; each of these periods allows one more.
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
    /// When all of it is available again.
    full_at: Time,
}

impl Pace {
    /// Returns when the event may happen next, and uses up that time.
    pub(crate) fn next(&mut self, now: Time, rate: Rate) -> Time {
        let ahead = rate.each * (rate.at_once - 1);
        let wait = self.full_at.since(now).saturating_sub(ahead);
        self.full_at = self.full_at.max(now) + rate.each;
        now + wait
    }

    /// Whether the event may happen now. Uses nothing up.
    pub(crate) fn is_free(&self, now: Time, rate: Rate) -> bool {
        self.full_at.since(now) <= rate.each * (rate.at_once - 1)
    }

    /// Returns this many uses.
    pub(crate) fn give_back(&mut self, times: u32, rate: Rate) {
        self.full_at = Time(self.full_at.0.saturating_sub((rate.each * times).as_micros() as u64));
    }

    /// Whether the event may happen now. If so, uses it up.
    pub(crate) fn allows(&mut self, now: Time, rate: Rate) -> bool {
        let before = *self;
        let is_now = self.next(now, rate) <= now;
        if !is_now {
            *self = before;
        }
        is_now
    }
}

/// A [`Rate`] for each source.
#[derive(Clone, Debug, Default)]
pub(crate) struct Paces {
    paces: SortedMap<Source, Pace>,
    /// From this many entries on, those that are fully available again are removed.
    many: usize,
}

impl Paces {
    const FEW: usize = 64;

    pub(crate) fn is_free(&self, source: Source, now: Time, rate: Rate) -> bool {
        self.paces.get(&source).is_none_or(|pace| pace.is_free(now, rate))
    }

    pub(crate) fn uses(&mut self, source: Source, now: Time, rate: Rate) {
        if self.paces.len() >= self.many.max(Self::FEW) {
            self.paces.retain(|_, pace| pace.full_at > now);
            self.many = 2 * self.paces.len();
        }
        self.paces.get_or_default(source).next(now, rate);
    }

    pub(crate) fn give_back(&mut self, source: Source, times: u32, rate: Rate) {
        if let Some(pace) = self.paces.get_mut(&source) {
            pace.give_back(times, rate);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate { at_once: 3, each: Duration::from_millis(100) };

    #[test]
    fn pace_allows_a_burst_and_then_one_event_in_each_period() {
        let (mut pace, now) = (Pace::default(), Time(5_000_000));
        let waits: Vec<u64> = (0..6).map(|_| pace.next(now, RATE).0 - now.0).collect();
        assert_eq!(waits, [0, 0, 0, 100_000, 200_000, 300_000]);
        // The used ones have to recover first.
        assert_eq!(pace.next(now + Duration::from_millis(400), RATE), now + Duration::from_millis(400));
        assert!(pace.next(now + Duration::from_secs(9), RATE) == now + Duration::from_secs(9));
    }

    #[test]
    fn disallowed_events_do_not_use_up_the_rate() {
        let (mut pace, now) = (Pace::default(), Time(0));
        let allowed = (0..1_000).filter(|n| pace.allows(now + Duration::from_millis(*n), RATE)).count();
        assert_eq!(allowed, 12);
    }

    #[test]
    fn each_source_has_its_own_pace_and_is_forgotten_when_that_recovers() {
        let (mut paces, now) = (Paces::default(), Time(5_000_000));
        let host = |n: u16| Source::V4([10, 0, n.to_be_bytes()[0], n.to_be_bytes()[1]]);
        let mut used = 0;
        while paces.is_free(host(1), now, RATE) {
            paces.uses(host(1), now, RATE);
            used += 1;
        }
        assert_eq!(used, 3);
        assert!(!paces.is_free(host(1), now, RATE) && paces.is_free(host(2), now, RATE));
        paces.give_back(host(1), 2, RATE);
        assert!(paces.is_free(host(1), now, RATE));
        for n in 0..10_000 {
            paces.uses(host(n), now + Duration::from_secs(u64::from(n)), RATE);
        }
        assert!(paces.paces.len() <= Paces::FEW);
    }
}
