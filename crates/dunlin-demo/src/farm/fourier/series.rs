//! A part of a Fourier series, as a job.

use std::f64::consts::PI;

use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use crate::farm::protocol::Job;

/// The function is developed over 0 to this.
pub const PERIOD: f64 = 2.0;

/// Some coefficients of the series of (x+1)^x over 0 to 2, by the trapezium rule.
///
/// They are counted a₀, a₁, b₁, a₂, b₂ and so on, where aₙ is the integral of f(x)·cos(πnx), bₙ that of
/// f(x)·sin(πnx), and a₀ half of its. With the job's number it is a request of 40 bytes, in which every
/// number has 8.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Package {
    /// The number of the first coefficient.
    #[serde(with = "postcard::fixint::le")]
    pub first: u64,
    /// How many coefficients.
    #[serde(with = "postcard::fixint::le")]
    pub count: u64,
    /// The number of parts of the interval.
    #[serde(with = "postcard::fixint::le")]
    pub trapeziums: u64,
    /// Where the interval ends.
    pub to: f64,
}

/// The coefficients: four bytes for each, an IEEE 754 number of single precision, the lowest byte first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coefficients(pub Bytes);

impl Coefficients {
    /// The coefficients as numbers.
    pub fn numbers(&self) -> impl Iterator<Item = f32> {
        self.0.chunks_exact(4).map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }
}

impl Package {
    /// Divides this many coefficients into this many packages, which differ by at most one coefficient.
    pub fn divide(coefficients: u64, packages: u64, trapeziums: u64) -> Vec<Self> {
        let start = |package: u64| package * coefficients / packages;
        let package = |n| Self { first: start(n), count: start(n + 1) - start(n), trapeziums, to: PERIOD };
        (0..packages).map(package).collect()
    }
}

impl Job for Package {
    type Outcome = Coefficients;

    fn work(&self, is_asked: &dyn Fn() -> bool) -> Option<Coefficients> {
        let mut bytes = BytesMut::new();
        for k in self.first..self.first + self.count {
            if is_asked() {
                return None;
            }
            bytes.put_f32_le(coefficient(k, self.trapeziums, self.to) as f32);
        }
        Some(Coefficients(bytes.freeze()))
    }

    fn is_long(&self) -> bool {
        // About 50 nanoseconds for each point.
        self.count.saturating_mul(self.trapeziums) > 10_000
    }
}

/// One coefficient: see [`Package`].
pub fn coefficient(k: u64, trapeziums: u64, to: f64) -> f64 {
    let omega = 2.0 * PI / to * k.div_ceil(2) as f64;
    match k {
        0 => trapezium_rule(trapeziums, to, |x| (x + 1.0).powf(x)) / 2.0,
        k if k % 2 == 1 => trapezium_rule(trapeziums, to, |x| (x + 1.0).powf(x) * (omega * x).cos()),
        _ => trapezium_rule(trapeziums, to, |x| (x + 1.0).powf(x) * (omega * x).sin()),
    }
}

fn trapezium_rule(trapeziums: u64, to: f64, f: impl Fn(f64) -> f64) -> f64 {
    let width = to / trapeziums as f64;
    let inner: f64 = (1..trapeziums).map(|n| f(n as f64 * width)).sum();
    (f64::midpoint(f(0.0), f(to)) + inner) * width
}

/// The first coefficients, by the trapezium rule with 20,000 and with 40,000 trapeziums, and Richardson's
/// extrapolation.
///
/// (The known reference values of Java Grande's benchmark *Series*, 2.8729524964837996 and so on, are 0.3 to
/// 1.6 per cent away: its rule omits the last inner point. A test shows that.)
pub const KNOWN: [f64; 7] = [
    2.881_918_137_544_813,
    1.134_035_595_673_666,
    -1.882_090_265_020_987,
    0.362_220_469_865_101,
    -1.164_806_409_278_411,
    0.170_317_082_662_762,
    -0.814_709_320_683_940,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_known_coefficients_are_those_of_the_integrals() {
        for (k, known) in (0..).zip(KNOWN) {
            // The rule's error falls with the square of the width: 3 is 2² - 1.
            let (coarse, fine) = (coefficient(k, 2_000, PERIOD), coefficient(k, 4_000, PERIOD));
            let extrapolated = fine + (fine - coarse) / 3.0;
            assert!((extrapolated - known).abs() < 1e-9, "{k}: {extrapolated}");
        }
    }

    #[test]
    fn java_grandes_values_are_those_without_the_last_inner_point() {
        let published = [2.872_952_496_483_8, 1.116_104_667_614_789, -1.881_969_189_339_803, 0.344_290_603_981_687];
        let (trapeziums, width) = (1000, PERIOD / 1000.0);
        for (k, published) in (0u64..).zip(published) {
            let x = PERIOD - width;
            let omega = PI * k.div_ceil(2) as f64;
            let wave = if k % 2 == 1 { (omega * x).cos() } else { (omega * x).sin() };
            let left_out = width * (x + 1.0).powf(x) * if k == 0 { 0.5 } else { wave };
            assert!((coefficient(k, trapeziums, PERIOD) - left_out - published).abs() < 1e-11, "{k}");
        }
    }

    #[test]
    fn packages_have_every_coefficient_once() {
        for packages in [1, 3, 7, 10_000] {
            let mut next = 0;
            for package in Package::divide(10_000, packages, 10) {
                assert_eq!(package.first, next);
                assert!(package.count.abs_diff(10_000 / packages) <= 1);
                next += package.count;
            }
            assert_eq!(next, 10_000);
        }
    }

    #[test]
    fn a_request_has_40_bytes_and_a_coefficient_4() {
        use crate::farm::protocol::{Numbered, Report};
        for job in [Package::divide(10_000, 10_000, 10).remove(0), Package::divide(u64::MAX, 1, u64::MAX).remove(0)] {
            assert_eq!(postcard::to_stdvec(&Numbered { number: u64::MAX, job }).unwrap().len(), 40);
        }
        let outcome = Package::divide(100, 1, 10)[0].work(&|| false).unwrap();
        let body = postcard::to_stdvec(&Report { number: 1, outcome }).unwrap().len();
        // The job's number, and the length of the rest.
        assert_eq!(body, 8 + 2 + 4 * 100);
    }
}
