//! How much of a channel may lie at its receiver's node.

use std::collections::VecDeque;

use dunlin_core::carrier::{AnyInlet, AnyOutlet};

/// What the heap adds to a value that owns memory, on average: the allocator's header and rounding.
const HEAP: u64 = 24;
/// As long as nothing has come, values that may own memory are taken to be as large as this.
const GUESS: u64 = 1 << 20;

/// The bytes of a channel's values that were sent on credits and have not been received, and for how many
/// values there is room.
///
/// It is told only of what comes. So it says how many values may be there in all, if the next are as large as
/// the largest of the last ones, and the channel sees to the rest: what is received makes room for as many.
/// What was promised cannot be taken back: if values grow, there may be more for that long.
pub(super) struct Budget {
    bytes_max: u64,
    /// What each value costs beside its bytes.
    beside: u64,
    /// What the first value is taken to be.
    guess: u64,
    places: u32,
    /// `None`: nothing has come yet.
    come: Option<Box<Come>>,
}

/// What is known of the values that have come.
#[derive(Default)]
struct Come {
    /// Of the values that were there when the last came.
    sizes: VecDeque<u64>,
    bytes: u64,
    /// Of values that are not there any more, and of which that has not been [said](Self::left): how many,
    /// and their bytes.
    gone: (u64, u64),
    /// What the next value is taken to be.
    likely: u64,
}

impl Budget {
    /// Of the channel whose half this is, before places of it are promised.
    pub(super) fn of(inlet: &AnyInlet, bytes_max: u64) -> Self {
        let shape = inlet.shape();
        let budget = Self::new(bytes_max, shape.size(), shape.owns_more());
        inlet.lend_at_most(budget.places());
        budget
    }

    /// `size`: of a message, beside the memory that it owns, if it owns any.
    fn new(bytes_max: u64, size: usize, owns_more: bool) -> Self {
        // Its place in the channel's queue and in `sizes`: both double when they are full, so half of each
        // may be empty.
        let places = 2 * (size as u64 + size_of::<u64>() as u64);
        let (beside, guess) = if owns_more { (places + HEAP, GUESS) } else { (places, places) };
        let mut budget = Self { bytes_max, beside, guess, places: 0, come: None };
        budget.places = budget.room(0);
        budget
    }

    /// How many values may be there in all.
    pub(super) fn places(&self) -> u32 {
        self.places
    }

    /// The same, if so many are there.
    fn room(&self, buffered: usize) -> u32 {
        let (bytes, likely) = self.come.as_ref().map_or((0, self.guess), |come| (come.bytes, come.likely));
        let places = match self.bytes_max.checked_sub(bytes) {
            Some(left) => buffered as u64 + left / likely,
            None => self.bytes_max / likely,
        };
        u32::try_from(places).unwrap_or(u32::MAX).max(1)
    }

    /// So many are there now: how many have gone since that was last said, and of how many bytes they were.
    pub(super) fn left(&mut self, buffered: usize) -> (u64, u64) {
        let Some(come) = &mut self.come else { return (0, 0) };
        let (mut values, mut bytes) = std::mem::take(&mut come.gone);
        while come.sizes.len() > buffered {
            let size = come.sizes.pop_front().unwrap_or(0);
            come.bytes -= size;
            values += 1;
            bytes += size - self.beside;
        }
        (values, bytes)
    }

    /// A value of this length has come, and so many are there now. Gives how many there may be, if that has
    /// changed.
    pub(super) fn arrived(&mut self, bytes: usize, buffered: usize) -> Option<u32> {
        let size = bytes as u64 + self.beside;
        let come = self.come.get_or_insert_default();
        come.likely = size.max(come.likely - come.likely.saturating_sub(size) / 16);
        come.sizes.push_back(size);
        come.bytes += size;
        let gone = self.left(buffered);
        if let Some(come) = &mut self.come {
            come.gone = gone;
        }
        let places = self.room(buffered);
        (std::mem::replace(&mut self.places, places) != places).then_some(places)
    }
}

/// How many bytes each message of this channel has, about, if that is known before there is one: it owns no
/// memory beside itself.
pub(crate) fn value_bytes(outlet: &AnyOutlet) -> Option<u64> {
    let shape = outlet.shape();
    (!shape.owns_more()).then(|| shape.size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_as_there_is_room_for() {
        let new = |bytes_max| Budget::new(bytes_max, 24, true);
        let mut budget = new(16 << 20);
        assert_eq!(budget.places(), 16, "nothing is known of them");
        // 64 KiB with what is beside them.
        let value = (64 << 10) - budget.beside as usize;
        assert_eq!(budget.arrived(value, 1), Some(256));
        for n in 2..=256 {
            assert_eq!(budget.arrived(value, n), None, "{n}");
        }
        // They grow: of those that come there is one at a time, once the others are gone.
        assert_eq!(budget.arrived(32 << 20, 256), Some(1));
        assert_eq!(budget.arrived(32 << 20, 1), None);
        // They are small again: that is believed in time.
        let mut places = 1;
        for _ in 0..200 {
            places = budget.arrived(0, 1).unwrap_or(places);
        }
        assert!(places > 64 << 10, "{places}");
        // Nothing is there of what was received.
        let come = budget.come.as_ref().unwrap();
        assert_eq!((come.sizes.len(), come.bytes), (1, budget.beside));
    }

    #[test]
    fn small_values_count_their_places() {
        let mut budget = Budget::new(1 << 20, 24, true);
        // 2 bytes, twice 24 + 8 for their places, and 24 of the heap.
        let fit = (1 << 20) / 90;
        assert_eq!(budget.arrived(2, 1), Some(fit));
        for n in 2..=fit {
            assert_eq!(budget.arrived(2, n as usize), None, "{n}");
        }
        let bytes = budget.come.as_ref().unwrap().bytes;
        assert!(bytes <= 1 << 20 && bytes > (1 << 20) - 90, "{bytes}");
        // Values that own nothing are known before they come.
        assert_eq!(Budget::new(1 << 20, 4, false).places(), (1 << 20) / 24);
    }
}
