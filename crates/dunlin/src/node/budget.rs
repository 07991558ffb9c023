//! How much of a channel may be buffered at its receiver's node.

use std::collections::VecDeque;

use dunlin_core::carrier::{AnyInlet, AnyOutlet};

/// What the heap adds to a value that owns memory, on average: the allocator's header and rounding.
const HEAP: u64 = 24;
/// The size that values which may own memory are assumed to have until one has arrived.
const GUESS: u64 = 1 << 20;

/// The bytes of a channel's values that were sent on credits and have not been received, and for how many
/// values there is room.
///
/// A budget learns only of arrivals. So it limits how many values may be here in all, if the next are as
/// large as the largest of the last ones, and the channel does the rest: each value that is received makes
/// room for another. A promise cannot be withdrawn: if values grow, there may be more than that for a while.
pub(super) struct Budget {
    bytes_max: u64,
    /// What each value costs beside its bytes.
    beside: u64,
    /// The assumed size of the first value.
    guess: u64,
    places: u32,
    /// `None`: no value has arrived yet.
    come: Option<Box<Come>>,
}

/// What is known of the values that have arrived.
#[derive(Default)]
struct Come {
    /// The sizes of the values that were here when the last one arrived.
    sizes: VecDeque<u64>,
    bytes: u64,
    /// Values that are not here any more, and that [`left`](Self::left) has not reported: how many, and their
    /// bytes.
    gone: (u64, u64),
    /// The assumed size of the next value.
    likely: u64,
}

impl Budget {
    /// For the channel of this half, before places of it are promised.
    pub(super) fn of(inlet: &AnyInlet, bytes_max: u64) -> Self {
        let shape = inlet.shape();
        let budget = Self::new(bytes_max, shape.size(), shape.owns_more());
        inlet.lend_at_most(budget.places());
        budget
    }

    /// `size`: of a message, without the memory that it owns, if any.
    fn new(bytes_max: u64, size: usize, owns_more: bool) -> Self {
        // Its place in the channel's queue and in `sizes`: both double when they are full, so half of each
        // may be empty.
        let places = 2 * (size as u64 + size_of::<u64>() as u64);
        let (beside, guess) = if owns_more { (places + HEAP, GUESS) } else { (places, places) };
        let mut budget = Self { bytes_max, beside, guess, places: 0, come: None };
        budget.places = budget.room(0);
        budget
    }

    /// How many values may be here in all.
    pub(super) fn places(&self) -> u32 {
        self.places
    }

    /// The same, with this many here.
    fn room(&self, buffered: usize) -> u32 {
        let (bytes, likely) = self.come.as_ref().map_or((0, self.guess), |come| (come.bytes, come.likely));
        let places = match self.bytes_max.checked_sub(bytes) {
            Some(left) => buffered as u64 + left / likely,
            None => self.bytes_max / likely,
        };
        u32::try_from(places).unwrap_or(u32::MAX).max(1)
    }

    /// With this many here now: how many have left since the last report, and their bytes.
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

    /// A value of this length has arrived, and this many are here now. Returns how many may be here, if that
    /// has changed.
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

/// The approximate size of each message of this channel in bytes, if it is known before there is one: the
/// message owns no memory.
pub(crate) fn value_bytes(outlet: &AnyOutlet) -> Option<u64> {
    let shape = outlet.shape();
    (!shape.owns_more()).then(|| shape.size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_gives_places_for_which_there_is_room() {
        let new = |bytes_max| Budget::new(bytes_max, 24, true);
        let mut budget = new(16 << 20);
        assert_eq!(budget.places(), 16, "nothing is known of them");
        // 64 KiB, including what is beside them.
        let value = (64 << 10) - budget.beside as usize;
        assert_eq!(budget.arrived(value, 1), Some(256));
        for n in 2..=256 {
            assert_eq!(budget.arrived(value, n), None, "{n}");
        }
        // They grow: one at a time may arrive, once the others are gone.
        assert_eq!(budget.arrived(32 << 20, 256), Some(1));
        assert_eq!(budget.arrived(32 << 20, 1), None);
        // They are small again: the budget adapts in time.
        let mut places = 1;
        for _ in 0..200 {
            places = budget.arrived(0, 1).unwrap_or(places);
        }
        assert!(places > 64 << 10, "{places}");
        // What was received does not count any more.
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
        // The size of values that own no memory is known before they arrive.
        assert_eq!(Budget::new(1 << 20, 4, false).places(), (1 << 20) / 24);
    }
}
