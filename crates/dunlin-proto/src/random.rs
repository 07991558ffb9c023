//! The machine's only source of chance: its seed.

use std::time::Duration;

use crate::id::ConnectionId;

/// SplitMix64 (Steele, Lea and Flood 2014). Not for secrets: it spreads out attempts to dial, and draws the
/// ids of connections.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The id of a new connection.
    pub(crate) fn connection(&mut self) -> ConnectionId {
        loop {
            let id = ConnectionId(u128::from(self.next()) << 64 | u128::from(self.next()));
            if id.is_some() {
                return id;
            }
        }
    }

    /// Between half of `wait` and the whole of it.
    pub(crate) fn jitter(&mut self, wait: Duration) -> Duration {
        let half = u64::try_from(wait.as_micros() / 2).unwrap_or(u64::MAX);
        Duration::from_micros(half + self.next() % (half + 1))
    }
}
