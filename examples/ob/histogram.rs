//! Latencies in buckets of 1.6 % width.

use std::fmt::Write;
use std::time::Duration;

/// How often each latency occurred, from nanoseconds to hours, in 30 KiB.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    sum_ns: u128,
    max_ns: u64,
}

/// Buckets for each power of two.
const STEPS: u64 = 64;

impl Histogram {
    pub(crate) fn new() -> Self {
        let buckets = bucket(u64::MAX) + 1;
        Self { buckets: vec![0; buckets], count: 0, sum_ns: 0, max_ns: 0 }
    }

    pub(crate) fn add(&mut self, latency: Duration) {
        let ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket(ns)] += 1;
        self.count += 1;
        self.sum_ns += u128::from(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (bucket, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *bucket += more;
        }
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn mean(&self) -> Duration {
        let mean = self.sum_ns / u128::from(self.count.max(1));
        Duration::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX))
    }

    pub(crate) fn max(&self) -> Duration {
        Duration::from_nanos(self.max_ns)
    }

    /// The maximum latency of this fraction of all requests, from 0 to 1, to 1.6 %.
    pub(crate) fn quantile(&self, part: f64) -> Duration {
        let rank = ((self.count as f64 * part).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Duration::from_nanos(last_of(index).min(self.max_ns));
            }
        }
        self.max()
    }

    /// A line for each power of two that has latencies.
    pub(crate) fn bars(&self) -> String {
        let rows: Vec<u64> = self.buckets.chunks(STEPS as usize).map(|row| row.iter().sum()).collect();
        let most = rows.iter().copied().max().unwrap_or(0).max(1);
        let mut text = String::new();
        for (row, count) in rows.iter().enumerate().filter(|(_, count)| **count > 0) {
            let last = Duration::from_nanos(last_of((row + 1) * STEPS as usize - 1));
            let bar = "#".repeat((count * 50).div_ceil(most) as usize);
            let _ = writeln!(text, "{:>12} {count:>10} {bar}", format!("{last:.1?}"));
        }
        text
    }
}

fn bucket(ns: u64) -> usize {
    // The first two rows have steps of one.
    let shift = (u64::BITS - ns.leading_zeros()).saturating_sub(STEPS.ilog2() + 1);
    (u64::from(shift) * STEPS + (ns >> shift)) as usize
}

/// The greatest latency of a bucket.
fn last_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let shift = (bucket / STEPS).saturating_sub(1);
    let low = bucket - shift * STEPS;
    (((u128::from(low) + 1) << shift) - 1).try_into().unwrap_or(u64::MAX)
}
