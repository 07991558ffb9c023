//! A part of the picture, as a job.

use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use crate::farm::protocol::Job;

/// A rectangle of the picture: its pixels, and their points of the plane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rectangle {
    /// The first column of pixels.
    pub x: u32,
    /// The first row.
    pub y: u32,
    /// How many columns.
    pub width: u32,
    /// How many rows.
    pub height: u32,
    /// The real part of the picture's first column.
    pub left: f64,
    /// The imaginary part of its first row.
    pub top: f64,
    /// The distance from one pixel to the next.
    pub step: f64,
    /// After this many iterations a point counts as one of the set.
    pub iterations_max: u16,
}

/// How many iterations each pixel takes to leave the circle, row by row: two bytes for each, the lower one
/// first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts(pub Bytes);

impl Job for Rectangle {
    type Outcome = Counts;

    fn work(&self, is_asked: &dyn Fn() -> bool) -> Option<Counts> {
        let mut counts = BytesMut::with_capacity(2 * self.width as usize * self.height as usize);
        for y in self.y..self.y + self.height {
            if is_asked() {
                return None;
            }
            let im = self.top - f64::from(y) * self.step;
            for x in self.x..self.x + self.width {
                counts.put_u16_le(iterations(self.left + f64::from(x) * self.step, im, self.iterations_max));
            }
        }
        Some(Counts(counts.freeze()))
    }

    fn is_long(&self) -> bool {
        // About a nanosecond for each iteration.
        u64::from(self.width) * u64::from(self.height) * u64::from(self.iterations_max) > 500_000
    }
}

/// How many iterations of z² + c it takes `c` to leave the circle of radius 2.
fn iterations(re: f64, im: f64, max: u16) -> u16 {
    let (mut x, mut y) = (0.0, 0.0);
    for n in 0..max {
        let (xx, yy) = (x * x, y * y);
        if xx + yy > 4.0 {
            return n;
        }
        (x, y) = (xx - yy + re, 2.0 * x * y + im);
    }
    max
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iterations_equal_values_computed_by_hand() {
        // 0; 0, -2, 2, 2, ...; 0, i, -1 + i, -i, -1 + i, ...
        for (re, im) in [(0.0, 0.0), (-2.0, 0.0), (0.0, 1.0), (0.25, 0.0)] {
            assert_eq!(iterations(re, im, 1000), 1000, "{re}, {im}");
        }
        // 0, 2 + 2i; 0, 1 + i, 1 + 3i; 0, 1, 2, 5
        for (re, im, expected) in [(2.0, 2.0, 1), (1.0, 1.0, 2), (1.0, 0.0, 3)] {
            assert_eq!(iterations(re, im, 1000), expected, "{re}, {im}");
            assert_eq!(iterations(re, im, 1), 1, "{re}, {im}");
        }
    }
}
