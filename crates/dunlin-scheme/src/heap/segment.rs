//! Segments: words of messages, which processes share.
//!
//! A segment never changes, and its words have the same index in every process of the program: the machine's
//! table of segments tells which is where. Pointers in it lead to itself, to the frozen segment, or to
//! segments that were there before it, which it keeps alive: so there are no cycles of segments.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use super::word::{OFFSET_BITS, SHARED, SLOT_BITS, Word};

/// Words that heaps and mailboxes share.
#[derive(Debug)]
pub(crate) struct Segment {
    slot: u32,
    words: Box<[Word]>,
    /// The segments that its words point to.
    older: Vec<Arc<Self>>,
    /// At least the words of it and of all that it keeps alive: what it reaches on two ways counts twice.
    bound: usize,
}

impl Segment {
    /// Words of one segment.
    pub(super) const WORDS_MAX: usize = 1 << OFFSET_BITS;

    pub(super) fn slot(&self) -> u32 {
        self.slot
    }

    pub(super) fn words(&self) -> &[Word] {
        &self.words
    }

    pub(super) fn older(&self) -> &[Arc<Self>] {
        &self.older
    }
}

impl Drop for Segment {
    /// One after the other: the last holder of a chain of segments drops all of it.
    fn drop(&mut self) {
        let mut left = std::mem::take(&mut self.older);
        while let Some(next) = left.pop() {
            if let Some(mut next) = Arc::into_inner(next) {
                left.append(&mut next.older);
            }
        }
    }
}

/// Segments at once.
const SLOTS_MAX: usize = 1 << SLOT_BITS;
/// Words of new segments between two looks for those that nothing holds.
const SWEEP_WORDS: usize = 1 << 16;

/// The slot of the segment that holds what lies at `at`.
pub(super) fn slot_of(at: usize) -> u32 {
    ((at - SHARED) >> OFFSET_BITS) as u32
}

/// The place in its segment of what lies at `at`.
pub(super) fn offset_of(at: usize) -> usize {
    (at - SHARED) & (Segment::WORDS_MAX - 1)
}

/// All segments of a machine.
#[derive(Default)]
pub(super) struct Segments {
    slots: Vec<Slot>,
    free: Vec<u32>,
    words: usize,
    sweep_at: usize,
    /// How often there was no room.
    refused: usize,
}

#[derive(Default)]
struct Slot {
    segment: Option<Arc<Segment>>,
    /// The last collection that met a pointer to it.
    met: u64,
}

impl Segments {
    /// The index of the first word of the next segment; `None` if there may be no more.
    pub(super) fn next_base(&mut self) -> Option<usize> {
        if self.free.is_empty() && self.slots.len() == SLOTS_MAX {
            // A look at so many costs too much for each message.
            if self.refused.is_multiple_of(SLOTS_MAX / 16) {
                self.sweep();
            }
            self.refused += 1;
        }
        let slot = self.free.last().map_or(self.slots.len(), |slot| *slot as usize);
        if slot < SLOTS_MAX { Some(SHARED + (slot << OFFSET_BITS)) } else { None }
    }

    /// Makes a segment of words that lie where `next_base` said, at most `WORDS_MAX`.
    pub(super) fn add(&mut self, words: &[Word], older: Vec<Arc<Segment>>) -> Arc<Segment> {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        self.words += words.len();
        let bound = older.iter().fold(words.len(), |sum, older| sum.saturating_add(older.bound));
        let segment = Arc::new(Segment { slot, words: words.into(), older, bound });
        self.slots[slot as usize].segment = Some(segment.clone());
        if self.words > self.sweep_at.max(SWEEP_WORDS) {
            self.sweep();
            self.sweep_at = 2 * self.words + SWEEP_WORDS;
        }
        segment
    }

    /// Drops the segments that nothing holds but this table.
    fn sweep(&mut self) {
        let mut left: Vec<u32> = (0..self.slots.len() as u32).collect();
        while let Some(slot) = left.pop() {
            let place = &mut self.slots[slot as usize].segment;
            let Some(segment) = place.take_if(|segment| Arc::strong_count(segment) == 1) else { continue };
            self.free.push(slot);
            self.words -= segment.words.len();
            // Older ones may have been looked at while this one held them.
            left.extend(segment.older.iter().map(|older| older.slot));
        }
    }

    /// The words of all segments that were not dropped.
    pub(super) fn words(&self) -> usize {
        self.words
    }

    /// The segment that holds what lies at `at`.
    #[inline]
    pub(super) fn at(&self, at: usize) -> &Arc<Segment> {
        self.in_slot(slot_of(at))
    }

    #[inline]
    pub(super) fn in_slot(&self, slot: u32) -> &Arc<Segment> {
        self.slots[slot as usize].segment.as_ref().expect("what a heap points to is kept alive")
    }

    /// Whether a collection meets the segment for the first time.
    pub(super) fn meet(&mut self, slot: u32, collection: u64) -> bool {
        std::mem::replace(&mut self.slots[slot as usize].met, collection) != collection
    }

    /// Whether that collection met the segment.
    pub(super) fn was_met(&self, slot: u32, collection: u64) -> bool {
        self.slots[slot as usize].met == collection
    }
}

/// What messages of a mailbox point to.
///
/// Each message of a process that passes them on may point to a long chain. So what it keeps alive is not
/// counted when it comes, but when a bound of that exceeds the limit.
#[derive(Default)]
pub(crate) struct Mentions {
    /// How many messages point to each segment.
    counts: HashMap<u32, (u32, Arc<Segment>)>,
    bound: usize,
}

impl Mentions {
    /// One more message points to the segment.
    pub(crate) fn add(&mut self, segment: &Arc<Segment>) {
        let (count, _) = self.counts.entry(segment.slot).or_insert_with(|| {
            self.bound = self.bound.saturating_add(segment.bound);
            (0, segment.clone())
        });
        *count += 1;
    }

    /// One message less points to the segment.
    pub(crate) fn remove(&mut self, segment: &Segment) {
        let Entry::Occupied(mut entry) = self.counts.entry(segment.slot) else { return };
        entry.get_mut().0 -= 1;
        if entry.get().0 == 0 {
            entry.remove();
            // Otherwise the bound stays: others may keep the same alive.
            if self.counts.is_empty() {
                self.bound = 0;
            }
        }
    }

    /// At least the words that the messages keep alive.
    pub(crate) fn bound(&self) -> usize {
        self.bound
    }

    /// The words that the messages keep alive, each counted once.
    pub(crate) fn words(&self) -> usize {
        let mut holdings = Holdings::default();
        self.counts.values().for_each(|(_, segment)| holdings.add(segment));
        holdings.words
    }

    /// Makes the bound an exact one.
    pub(crate) fn count(&mut self) {
        self.bound = self.words();
    }
}

/// What a heap keeps alive: segments that it holds, and those that these refer to.
#[derive(Default)]
pub(super) struct Holdings {
    /// How often each is held: from outside, and by segments in this table.
    counts: HashMap<u32, (u32, Arc<Segment>)>,
    words: usize,
}

impl Holdings {
    /// The words of all of them, each counted once.
    pub(super) fn words(&self) -> usize {
        self.words
    }

    /// Holds a segment once more.
    pub(super) fn add(&mut self, segment: &Arc<Segment>) {
        if let Some((count, _)) = self.counts.get_mut(&segment.slot) {
            *count += 1;
            return;
        }
        let mut left = Vec::new();
        let mut next = Some(segment.clone());
        while let Some(segment) = next {
            match self.counts.entry(segment.slot) {
                Entry::Occupied(mut entry) => entry.get_mut().0 += 1,
                Entry::Vacant(entry) => {
                    self.words += segment.words.len();
                    left.extend(segment.older.iter().cloned());
                    entry.insert((1, segment));
                }
            }
            next = left.pop();
        }
    }

    /// Holds a segment once less.
    pub(super) fn remove(&mut self, slot: u32) {
        let mut left = Vec::new();
        let mut next = Some(slot);
        while let Some(slot) = next {
            if let Entry::Occupied(mut entry) = self.counts.entry(slot) {
                entry.get_mut().0 -= 1;
                if entry.get().0 == 0 {
                    let (_, segment) = entry.remove();
                    self.words -= segment.words.len();
                    left.extend(segment.older.iter().map(|older| older.slot));
                }
            }
            next = left.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A chain of so many segments, each of which refers to the one before.
    fn chain(segments: &mut Segments, count: usize) -> Arc<Segment> {
        let mut last = segments.add(&[0], Vec::new());
        for _ in 1..count {
            last = segments.add(&[0], vec![last]);
        }
        last
    }

    #[test]
    fn chain_of_a_million_segments_is_dropped_without_recursion() {
        let mut segments = Segments::default();
        let mut holdings = Holdings::default();
        let last = chain(&mut segments, 1_000_000);
        holdings.add(&last);
        assert_eq!((segments.words(), holdings.words()), (1_000_000, 1_000_000));
        holdings.remove(last.slot());
        assert_eq!(holdings.words(), 0);
        drop(last);
        segments.sweep();
        assert_eq!(segments.words(), 0);
        let last = chain(&mut segments, 1_000_000);
        // The table goes first, the chain with its last holder.
        drop(segments);
        drop(last);
    }

    #[test]
    fn segments_that_nothing_holds_make_room_for_others() {
        let mut segments = Segments::default();
        let kept = segments.add(&[7; 100], Vec::new());
        for _ in 0..10_000 {
            segments.add(&[0; 1000], Vec::new());
            assert!(segments.words() <= 2 * SWEEP_WORDS + 2000, "{}", segments.words());
        }
        assert!(segments.slots.len() <= 200, "{}", segments.slots.len());
        assert_eq!(segments.in_slot(kept.slot()).words(), [7; 100]);
    }

    #[test]
    fn bound_of_what_messages_mention_is_above_it_until_it_is_counted() {
        let mut segments = Segments::default();
        let bottom = segments.add(&[0; 10], Vec::new());
        let sides = [1, 2].map(|_| segments.add(&[0; 20], vec![bottom.clone()]));
        let top = segments.add(&[0; 5], sides.to_vec());
        let mut mentions = Mentions::default();
        for segment in [&top, &sides[0], &top] {
            mentions.add(segment);
        }
        assert_eq!((mentions.bound(), mentions.words()), (65 + 30, 55));
        mentions.count();
        assert_eq!(mentions.bound(), 55);
        mentions.remove(&top);
        mentions.remove(&top);
        assert_eq!((mentions.bound(), mentions.words()), (55, 30));
        mentions.remove(&sides[0]);
        assert_eq!((mentions.bound(), mentions.words()), (0, 0));
    }

    #[test]
    fn holdings_count_what_segments_share_once() {
        let mut segments = Segments::default();
        let mut holdings = Holdings::default();
        let bottom = segments.add(&[0; 10], Vec::new());
        let sides = [1, 2].map(|_| segments.add(&[0; 20], vec![bottom.clone()]));
        for side in &sides {
            holdings.add(side);
            holdings.add(side);
        }
        assert_eq!(holdings.words(), 50);
        for (side, left) in [(0, 50), (0, 30), (1, 30), (1, 0)] {
            holdings.remove(sides[side].slot());
            assert_eq!(holdings.words(), left);
        }
    }
}
