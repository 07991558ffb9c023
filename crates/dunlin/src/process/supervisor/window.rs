//! How many deaths a supervisor bears, and how long it waits before a restart. Pure: time is an argument.

use std::collections::VecDeque;
use std::time::Duration;

use crate::time::Instant;

/// The deaths of the latest `period`: a sliding window.
#[derive(Debug)]
pub(super) struct Window {
    restarts: usize,
    period: Duration,
    deaths: VecDeque<Instant>,
}

/// What follows from a death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Restart,
    /// One death more than may be followed by a restart.
    Stop,
}

impl Window {
    pub(super) fn new(restarts: u32, period: Duration) -> Self {
        Self { restarts: usize::try_from(restarts).unwrap_or(usize::MAX), period, deaths: VecDeque::new() }
    }

    /// Counts a death. A death is in the window until `period` after it.
    pub(super) fn death(&mut self, now: Instant) -> Verdict {
        while self.deaths.front().is_some_and(|death| now.duration_since(*death) >= self.period) {
            self.deaths.pop_front();
        }
        self.deaths.push_back(now);
        if self.deaths.len() > self.restarts { Verdict::Stop } else { Verdict::Restart }
    }

    pub(super) fn period(&self) -> Duration {
        self.period
    }

    /// How many deaths the window held when the latest one was counted.
    pub(super) fn deaths(&self) -> usize {
        self.deaths.len()
    }
}

/// The wait before a child starts again: doubled with each death in a row, up to a maximum.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backoff {
    pub(super) first: Duration,
    pub(super) most: Duration,
}

impl Backoff {
    /// The wait after the given number of deaths in a row, the latest one included.
    pub(super) fn wait(self, deaths: u32) -> Duration {
        let doubled = 2u32.saturating_pow(deaths.saturating_sub(1));
        self.first.saturating_mul(doubled).min(self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of the first death after which the supervisor stops.
    fn stops_at(restarts: u32, period: u64, deaths: impl IntoIterator<Item = u64>) -> Option<usize> {
        let start = Instant::now();
        let mut window = Window::new(restarts, Duration::from_millis(period));
        deaths.into_iter().position(|at| window.death(start + Duration::from_millis(at)) == Verdict::Stop)
    }

    #[test]
    fn supervisor_stops_at_one_death_more_than_its_limit_in_one_period() {
        let table: [(u32, u64, &[u64], Option<usize>); 9] = [
            (3, 5_000, &[0, 0, 0], None),
            (3, 5_000, &[0, 0, 0, 0], Some(3)),
            (3, 5_000, &[0, 1_000, 2_000, 4_900], Some(3)),
            (3, 5_000, &[0, 1_000, 2_000, 4_999], Some(3)),
            (3, 5_000, &[0, 1_000, 2_000, 5_000], None),
            (3, 5_000, &[0, 4_000, 5_000, 6_000, 8_999], Some(4)),
            (0, 5_000, &[0], Some(0)),
            (1, 1_000, &[0, 1_000, 2_000, 2_500], Some(3)),
            // No two deaths are in one period of no length.
            (1, 0, &[0, 0, 0], None),
        ];
        for (restarts, period, deaths, expected) in table {
            assert_eq!(stops_at(restarts, period, deaths.iter().copied()), expected, "{restarts} {period} {deaths:?}");
        }
    }

    #[test]
    fn deaths_each_one_point_seven_seconds_never_reach_three_restarts_in_five() {
        assert_eq!(stops_at(3, 5_000, (0..3_600_000).step_by(1_700)), None);
        assert_eq!(stops_at(3, 5_000, (0..3_600_000).step_by(1_600)), Some(3));
    }

    #[test]
    fn window_keeps_only_the_deaths_of_one_period() {
        let start = Instant::now();
        let mut window = Window::new(u32::MAX, Duration::from_millis(10));
        for at in 0..10_000 {
            window.death(start + Duration::from_millis(at));
            assert!(window.deaths() <= 10, "{}", window.deaths());
        }
    }

    #[test]
    fn back_off_doubles_up_to_its_maximum() {
        let ms = Duration::from_millis;
        let backoff = Backoff { first: ms(100), most: ms(1_500) };
        let waits = [1, 2, 3, 4, 5, 6, u32::MAX].map(|deaths| backoff.wait(deaths));
        assert_eq!(waits, [ms(100), ms(200), ms(400), ms(800), ms(1_500), ms(1_500), ms(1_500)]);
        assert_eq!(Backoff::default().wait(7), Duration::ZERO);
    }
}
