//! How much of a channel may lie at its receiver's node.

use std::collections::VecDeque;

use dunlin_core::carrier::AnyInlet;

/// So many bytes a value takes at least, whatever its encoding.
const OVERHEAD: u64 = 64;
/// As long as nothing has come, values are taken to be as large as this.
const GUESS: u64 = 64 << 10;
/// More places than this are as good as any number.
const MANY: u64 = 1 << 16;

/// The bytes of a channel's values that were sent on credits and have not been received, and for how many values there is room.
///
/// It is told only of what comes. So it says how many values may be there in all, if the next are as large as the largest of the last ones, and the channel
/// sees to the rest: what is received makes room for as many. What was promised cannot be taken back: if values grow, there may be more for that long.
pub(super) struct Budget {
    bytes_max: u64,
    /// Of the values that were there when the last came.
    sizes: VecDeque<u64>,
    bytes: u64,
    /// What the next value is taken to be; zero if none has come.
    likely: u64,
    places: u32,
}

impl Budget {
    /// Of the channel whose half this is, before places of it are promised.
    pub(super) fn of(inlet: &AnyInlet, bytes_max: u64) -> Self {
        let budget = Self::new(bytes_max);
        inlet.lend_at_most(budget.places());
        budget
    }

    fn new(bytes_max: u64) -> Self {
        let mut budget = Self { bytes_max, sizes: VecDeque::new(), bytes: 0, likely: 0, places: 0 };
        budget.places = budget.room(0);
        budget
    }

    /// How many values may be there in all.
    pub(super) fn places(&self) -> u32 {
        self.places
    }

    /// The same, if so many are there.
    fn room(&self, buffered: usize) -> u32 {
        let likely = if self.likely == 0 { GUESS } else { self.likely };
        let places = match self.bytes_max.checked_sub(self.bytes) {
            Some(left) => buffered as u64 + left / likely,
            None => self.bytes_max / likely,
        };
        if places >= MANY { u32::MAX } else { (places as u32).max(1) }
    }

    /// A value of this length has come, and so many are there now. Gives how many there may be, if that has changed.
    pub(super) fn arrived(&mut self, bytes: usize, buffered: usize) -> Option<u32> {
        let size = bytes as u64 + OVERHEAD;
        self.likely = size.max(self.likely - self.likely.saturating_sub(size) / 16);
        self.sizes.push_back(size);
        self.bytes += size;
        while self.sizes.len() > buffered {
            self.bytes -= self.sizes.pop_front().unwrap_or(0);
        }
        let places = self.room(buffered);
        (std::mem::replace(&mut self.places, places) != places).then_some(places)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_as_there_is_room_for() {
        let mut budget = Budget::new(1 << 20);
        assert_eq!(budget.places(), 16, "nothing is known of them");
        // Small ones are as many as one likes.
        assert_eq!(Budget::new(1 << 30).arrived(8, 1), Some(u32::MAX));
        // 64 KiB with what is beside them.
        let value = (64 << 10) - OVERHEAD as usize;
        for n in 1..16 {
            assert_eq!(budget.arrived(value, n), None, "{n}");
        }
        // They grow: of those that come there is one at a time, once the others are gone.
        assert_eq!(budget.arrived(2 << 20, 16), Some(1));
        assert_eq!(budget.arrived(2 << 20, 1), None);
        // They are small again: that is believed in time.
        let mut places = 1;
        for _ in 0..200 {
            places = budget.arrived(0, 1).unwrap_or(places);
        }
        assert!(places > 8 << 10, "{places}");
        // Nothing is there of what was received.
        assert_eq!((budget.sizes.len(), budget.bytes), (1, OVERHEAD));
    }
}
