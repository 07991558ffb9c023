//! How many bytes may be in flight.
//!
//! Nothing overtakes what has been written: a ping behind a transfer waits until the other side has read
//! everything in front of it, in the buffers of two kernels. So values are written only up to what the other
//! side reads in the time allowed: twice the least round trip, plus [`Config::queueing`]. A link of long
//! delay is full all the same, and a window that is too small doubles in each round trip. On a short link
//! there is hardly a queue, and fresh writes are still in the processor's caches when they are read.
//!
//! The parts are known. The rate of delivery and the least round trip bound what is in flight; the least
//! round trip is kept for some seconds and then measured again with little in flight: BBR (Cardwell, Cheng,
//! Gunn, Yeganeh and Jacobson, "BBR: Congestion-Based Congestion Control", 2016). The next window is the last
//! one times the quotient of two delays: FAST TCP (Wei, Jin, Low and Hegde, 2006). The target is a fixed
//! delay in the queue: LEDBAT (RFC 6817). Those algorithms share links with strangers, and have to be fair
//! and slow to change. The queue here is this connection's own, and the socket below has its own congestion
//! control, so one round trip is enough to judge by.

use std::time::Duration;

use crate::config::Config;
use crate::time::Time;

/// A frame whose acknowledgement is timed. There is one at a time.
#[derive(Clone, Debug)]
struct Mark {
    /// The number of acknowledged frames that includes it.
    seen: u64,
    at: Time,
    /// How many bytes were in flight with it, if more followed at once. (Otherwise the other side may delay
    /// its acknowledgement.)
    bytes: Option<usize>,
    /// Nothing has been acknowledged since.
    fresh: bool,
}

/// A round trip is remembered for one to two times this long; then the path may have changed.
const AGE: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, Default)]
pub(crate) struct Window {
    /// `None`: not known yet.
    bytes: Option<usize>,
    /// The same for a connection that hardly anything else uses.
    bytes_alone: Option<usize>,
    /// The rate of reading has been measured.
    is_measured: bool,
    mark: Option<Mark>,
    /// The least round trip since `since`, and in the [`AGE`] before that.
    least: Option<Duration>,
    least_before: Option<Duration>,
    since: Option<Time>,
    /// Write one piece of a value when nothing is in flight, and no more before it is acknowledged: it meets
    /// no queue.
    probing: bool,
}

impl Window {
    /// How many bytes may be in flight. `alone`: by [`Config::queueing_alone`].
    pub(crate) fn bytes(&self, alone: bool, config: &Config) -> usize {
        let min = config.unacked_min.min(config.unacked_max);
        let bytes = if alone { self.bytes_alone } else { self.bytes };
        let usual = bytes.map_or(config.unacked_max, |bytes| bytes.clamp(min, config.unacked_max));
        if self.probing { 1 } else { usual }
    }

    /// Whether this many bytes are known to be read in the time allowed when nothing else waits.
    pub(crate) fn is_wide(&self, bytes: usize, config: &Config) -> bool {
        self.is_measured && self.bytes(true, config) >= bytes
    }

    /// Frames have been written, `count` since the connection's life began. `bytes` bytes are in flight, and
    /// `more`: there is more to send.
    pub(crate) fn written(&mut self, now: Time, count: u64, bytes: usize, more: bool, config: &Config) {
        // A piece, and some control frames, which go whatever is in flight.
        let little = bytes <= 2 * config.chunk_alone.max(config.chunk);
        if now.since(*self.since.get_or_insert(now)) >= AGE {
            (self.least_before, self.least, self.since) = (self.least, None, Some(now));
            self.probing = !little;
            self.mark = None;
        }
        // When one write takes several calls, the last call has the total.
        let free = self.mark.as_ref().is_none_or(|mark| more && (mark.fresh || mark.bytes.is_none()));
        if free && (little || !self.probing) {
            self.mark = Some(Mark { seen: count, at: now, bytes: more.then_some(bytes), fresh: true });
        }
    }

    /// The peer has acknowledged `seen` frames.
    pub(crate) fn acknowledged(&mut self, now: Time, seen: u64, config: &Config) {
        let Some(mark) = self.mark.take_if(|mark| mark.seen <= seen) else {
            self.mark.iter_mut().for_each(|mark| mark.fresh = false);
            return;
        };
        let trip = now.since(mark.at).max(Duration::from_micros(1));
        let least = self.least.into_iter().chain([trip]).min();
        self.least = least;
        let least = least.into_iter().chain(self.least_before).min().unwrap_or(trip);
        let Some(bytes) = mark.bytes else { return };
        self.probing = false;
        self.is_measured = true;
        for (window, queueing) in [(&mut self.bytes, config.queueing), (&mut self.bytes_alone, config.queueing_alone)] {
            let allowed = (2 * least).saturating_add(queueing);
            let read = bytes as u128 * allowed.as_micros() / trip.as_micros();
            let read = usize::try_from(read).unwrap_or(usize::MAX).min(config.unacked_max);
            // A trip in time may have had less in flight than allowed, and is then no evidence against the
            // present window.
            if trip > allowed || read > window.unwrap_or(config.unacked_max) {
                *window = Some(read);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: usize = 1 << 20;

    /// A window over a pipe that is as full as the window allows.
    struct Piped {
        window: Window,
        config: Config,
        now: Time,
        count: u64,
    }

    impl Piped {
        fn new() -> Self {
            Self { window: Window::default(), config: Config::new("window"), now: Time(50_000_000), count: 0 }
        }

        /// Writes a full window, which is acknowledged when the other side has read it: `rate` bytes in a
        /// microsecond, with `way` microseconds for the round trip. Returns the window, and the time taken.
        fn turn(&mut self, rate: u64, way: u64) -> (usize, u64) {
            let bytes = self.window.bytes(false, &self.config);
            self.count += 1;
            self.window.written(self.now, self.count, bytes, true, &self.config);
            let trip = way + bytes as u64 / rate;
            self.now.0 += trip;
            self.window.acknowledged(self.now, self.count, &self.config);
            (bytes, trip)
        }

        /// A small frame is acknowledged at once.
        fn ping(&mut self, way: u64) {
            self.count += 1;
            self.window.written(self.now, self.count, 40, false, &self.config);
            self.now.0 += way;
            self.window.acknowledged(self.now, self.count, &self.config);
        }

        fn bytes(&self) -> usize {
            self.window.bytes(false, &self.config)
        }
    }

    #[test]
    fn slow_reader_shrinks_the_window_in_one_round_trip() {
        let mut piped = Piped::new();
        piped.ping(20);
        assert_eq!(piped.bytes(), 4 * MB, "nothing is known against it");
        assert_eq!(piped.turn(1000, 20).0, 4 * MB);
        assert_eq!(piped.bytes(), piped.config.unacked_min);
        // 500 bytes in a microsecond, and a round trip of a millisecond: the pipe holds half a megabyte.
        let mut piped = Piped::new();
        piped.ping(1000);
        for _ in 0..20 {
            piped.turn(500, 1000);
        }
        assert!((MB / 2..MB + MB / 4).contains(&piped.bytes()), "{}", piped.bytes());
    }

    #[test]
    fn window_doubles_until_the_pipe_is_full() {
        let mut piped = Piped::new();
        piped.ping(50_000);
        piped.turn(1, 50_000);
        assert_eq!(piped.bytes(), 128 << 10);
        let sizes = [128 << 10, 256 << 10, 512 << 10, MB, 2 * MB, 4 * MB, 4 * MB];
        for size in sizes {
            let window = piped.turn(1_000_000, 50_000).0;
            assert!(window.abs_diff(size) <= size / 100, "{window} is not {size}");
        }
    }

    #[test]
    fn window_stays_while_little_is_written() {
        let mut piped = Piped::new();
        piped.ping(20);
        for _ in 0..100 {
            // Acknowledged after a while, because nothing more came.
            piped.ping(20_000);
        }
        assert_eq!(piped.bytes(), 4 * MB);
        // A trip in time is no reason to shrink either.
        piped.count += 1;
        piped.window.written(piped.now, piped.count, 1000, true, &piped.config);
        piped.now.0 += 60;
        piped.window.acknowledged(piped.now, piped.count, &piped.config);
        assert_eq!(piped.bytes(), 4 * MB);
    }

    /// The acknowledgement of a ping may be delayed; that of a transfer which begins meanwhile is not.
    #[test]
    fn a_transfer_is_timed_at_once() {
        let mut piped = Piped::new();
        piped.window.written(piped.now, 1, 40, false, &piped.config);
        piped.count = 1;
        piped.turn(100, 20);
        assert_eq!(piped.window.least, Some(Duration::from_micros(20 + 4 * MB as u64 / 100)));
    }

    #[test]
    fn the_least_round_trip_is_measured_again() {
        let mut piped = Piped::new();
        piped.ping(20);
        for _ in 0..100 {
            piped.turn(1000, 20);
        }
        let small = piped.bytes();
        // From now on the path is longer. The old least round trip expires, and the pipe is filled.
        let start = piped.now;
        let mut longest = 0;
        while piped.now.since(start) < 2 * AGE + Duration::from_secs(2) {
            longest = piped.turn(10_000, 10_000).0;
        }
        assert_eq!((small, longest), (128 << 10, 4 * MB));
        // A permanent queue is not mistaken for the path.
        let mut piped = Piped::new();
        piped.ping(20);
        let start = piped.now;
        let mut most = 0;
        while piped.now.since(start) < 10 * AGE {
            let since = piped.now.since(start);
            let window = piped.turn(1000, 20).0;
            if since > AGE {
                most = most.max(window);
            }
        }
        assert!(most <= 512 << 10, "{most}");
    }
}
