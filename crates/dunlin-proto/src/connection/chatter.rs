//! Limits on idle frames and slow frames: a flood of them from a peer is read more slowly than it arrives.
//!
//! A limit for frames of any kind would slow honest acknowledgements and credits. Only frames without news
//! are counted: heartbeats, repeated acknowledgements, frames about channels or acceptors that are not here,
//! dial-backs that begin nothing. Any connection has some of each, so the socket is not closed.

use std::time::Duration;

use crate::time::Time;

/// How many of them are normal in a second. One heartbeat each millisecond is the most that a node can be
/// configured to send.
const CHATTER_MAX: u32 = 1_000;
/// How many steps of comparing schemas count as one of them: a comparison of 2^17 steps, the maximum for one
/// frame, is enough for a pause.
const STEPS_EACH: u64 = 128;
/// How long a socket with more than that is not read.
const PAUSE: Duration = Duration::from_millis(100);

/// How many frames without news a connection has had lately.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chatter {
    since: Time,
    count: u32,
    /// Steps of comparisons that do not yet count as a frame.
    steps: u64,
    /// Until when the socket is not read.
    until: Option<Time>,
}

impl Chatter {
    /// Counts one more.
    pub(crate) fn hears(&mut self, now: Time) {
        self.hears_many(now, 1);
    }

    /// Counts the steps of comparing schemas.
    pub(crate) fn compares(&mut self, now: Time, steps: u64) {
        self.steps += steps;
        let frames = self.steps / STEPS_EACH;
        self.steps %= STEPS_EACH;
        if frames > 0 {
            self.hears_many(now, u32::try_from(frames).unwrap_or(u32::MAX));
        }
    }

    fn hears_many(&mut self, now: Time, frames: u32) {
        if now.since(self.since) >= Duration::from_secs(1) {
            (self.since, self.count) = (now, 0);
        }
        self.count = self.count.saturating_add(frames);
        if self.count > CHATTER_MAX {
            self.until = Some(now + PAUSE);
        }
    }

    /// Until when the driver should not read the socket, if at all.
    pub(crate) fn paused_until(&self, now: Time) -> Option<Time> {
        self.until.filter(|until| now < *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_comparisons_count_as_frames() {
        let (mut chatter, now) = (Chatter::default(), Time(7));
        for _ in 0..u64::from(CHATTER_MAX) {
            chatter.compares(now, STEPS_EACH - 1);
        }
        assert_eq!(chatter.paused_until(now), None);
        chatter.compares(now, 10 * STEPS_EACH);
        assert_eq!(chatter.paused_until(now), Some(now + PAUSE));
    }

    const MILLISECOND: Duration = Duration::from_millis(1);

    #[test]
    fn reading_slows_down_beyond_one_heartbeat_a_millisecond() {
        let mut chatter = Chatter::default();
        let mut now = Time(7);
        for _ in 0..10_000 {
            now = now + MILLISECOND;
            chatter.hears(now);
            assert_eq!(chatter.paused_until(now), None);
        }
        for _ in 0..1_000 {
            chatter.hears(now);
        }
        assert_eq!(chatter.paused_until(now), Some(now + PAUSE));
        assert_eq!(chatter.paused_until(now + PAUSE), None);
        // It stays slow while more of them arrive.
        chatter.hears(now + PAUSE);
        assert_eq!(chatter.paused_until(now + PAUSE), Some(now + 2 * PAUSE));
        now = now + Duration::from_secs(2);
        chatter.hears(now);
        assert_eq!(chatter.paused_until(now), None);
    }
}
