//! Segments: words of messages, which processes share.
//!
//! A segment never changes, and its words have the same index in every process of the program. A process
//! holds the segments that its heap points to, and finds them by number among those. Pointers in a segment
//! lead to itself, to the frozen segment, or to segments that were there before it, which it keeps alive: so
//! there are no cycles of segments.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::word::{OFFSET_BITS, SHARED, SLOT_BITS, Word};

/// Words that heaps and mailboxes share.
#[derive(Debug)]
pub(crate) struct Segment {
    number: Number,
    words: Box<[Word]>,
    /// The segments that its words point to.
    older: Vec<Arc<Self>>,
    /// At least the words of it and of all that it keeps alive: what it reaches on two ways counts twice.
    bound: usize,
}

impl Segment {
    /// Words of one segment.
    pub(super) const WORDS_MAX: usize = 1 << OFFSET_BITS;

    /// A segment of words that lie where the number says, at most `WORDS_MAX`.
    pub(super) fn new(number: Number, words: &[Word], older: Vec<Arc<Self>>) -> Arc<Self> {
        number.home.words.fetch_add(words.len(), Ordering::Relaxed);
        let bound = older.iter().fold(words.len(), |sum, older| sum.saturating_add(older.bound));
        Arc::new(Self { number, words: words.into(), older, bound })
    }

    pub(super) fn slot(&self) -> u32 {
        self.number.slot
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
        self.number.home.words.fetch_sub(self.words.len(), Ordering::Relaxed);
        let mut left = std::mem::take(&mut self.older);
        while let Some(next) = left.pop() {
            if let Some(mut next) = Arc::into_inner(next) {
                left.append(&mut next.older);
            }
        }
    }
}

/// Segments at once.
const SLOTS_MAX: u32 = 1 << SLOT_BITS;

/// The slot of the segment that holds what lies at `at`.
pub(super) fn slot_of(at: usize) -> u32 {
    ((at - SHARED) >> OFFSET_BITS) as u32
}

/// The place in its segment of what lies at `at`.
pub(super) fn offset_of(at: usize) -> usize {
    (at - SHARED) & (Segment::WORDS_MAX - 1)
}

/// The numbers of all segments of a program, of which each is free again once its segment is dropped.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    free: Mutex<Free>,
    words: AtomicUsize,
}

#[derive(Debug, Default)]
struct Free {
    slots: Vec<u32>,
    /// None from here on was used.
    unused: u32,
}

impl Numbers {
    /// A number that no segment has; `None` if there may be no more.
    pub(super) fn take(self: &Arc<Self>) -> Option<Number> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = match free.slots.pop() {
            Some(slot) => slot,
            None if free.unused < SLOTS_MAX => {
                free.unused += 1;
                free.unused - 1
            }
            None => return None,
        };
        Some(Number { slot, home: self.clone() })
    }

    /// The words of all segments.
    pub(super) fn words(&self) -> usize {
        self.words.load(Ordering::Relaxed)
    }
}

/// The number of a segment that is there, or is about to be.
#[derive(Debug)]
pub(super) struct Number {
    slot: u32,
    home: Arc<Numbers>,
}

impl Number {
    /// The index of the first word of the segment.
    pub(super) fn base(&self) -> usize {
        SHARED + ((self.slot as usize) << OFFSET_BITS)
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        self.home.free.lock().unwrap_or_else(PoisonError::into_inner).slots.push(self.slot);
    }
}

/// Spreads numbers of segments: a look-up by one costs little, since each word of a segment needs one.
#[derive(Default)]
pub(super) struct SlotHasher(u64);

impl Hasher for SlotHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32(u32::from(*byte)));
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}

/// A table by number of a segment.
type BySlot<T> = HashMap<u32, T, BuildHasherDefault<SlotHasher>>;

/// What messages of a mailbox point to.
///
/// Each message of a process that passes them on may point to a long chain. So what it keeps alive is not
/// counted when it comes, but when a bound of that exceeds the limit.
#[derive(Default)]
pub(crate) struct Mentions {
    /// How many messages point to each segment.
    counts: BySlot<(u32, Arc<Segment>)>,
    bound: usize,
}

impl Mentions {
    /// One more message points to the segment.
    pub(crate) fn add(&mut self, segment: &Arc<Segment>) {
        let (count, _) = self.counts.entry(segment.slot()).or_insert_with(|| {
            self.bound = self.bound.saturating_add(segment.bound);
            (0, segment.clone())
        });
        *count += 1;
    }

    /// One message less points to the segment.
    pub(crate) fn remove(&mut self, segment: &Segment) {
        let Entry::Occupied(mut entry) = self.counts.entry(segment.slot()) else { return };
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
    all: BySlot<Held>,
    words: usize,
    /// Numbers collections and transfers, which look at each segment once.
    round: u64,
}

struct Held {
    segment: Arc<Segment>,
    /// How often it is held: from outside, and by segments in this table.
    count: u32,
    /// The last round that met a pointer to it.
    met: u64,
}

impl Holdings {
    /// The words of all of them, each counted once.
    pub(super) fn words(&self) -> usize {
        self.words
    }

    /// The segment that holds what lies at `at`.
    pub(super) fn at(&self, at: usize) -> &Arc<Segment> {
        self.in_slot(slot_of(at))
    }

    pub(super) fn in_slot(&self, slot: u32) -> &Arc<Segment> {
        &self.all.get(&slot).expect("what a heap points to is kept alive").segment
    }

    /// A collection or transfer begins: it has met no segment.
    pub(super) fn begin_round(&mut self) {
        self.round += 1;
    }

    /// The segment, if this round meets it for the first time.
    pub(super) fn meet(&mut self, slot: u32) -> Option<&Arc<Segment>> {
        let held = self.all.get_mut(&slot).expect("what a heap points to is kept alive");
        let is_first = std::mem::replace(&mut held.met, self.round) != self.round;
        is_first.then_some(&held.segment)
    }

    /// Whether this round met the segment.
    pub(super) fn was_met(&self, slot: u32) -> bool {
        self.all.get(&slot).is_some_and(|held| held.met == self.round)
    }

    /// Holds a segment once more.
    pub(super) fn add(&mut self, segment: &Arc<Segment>) {
        if let Some(held) = self.all.get_mut(&segment.slot()) {
            held.count += 1;
            return;
        }
        let mut left = Vec::new();
        let mut next = Some(segment.clone());
        while let Some(segment) = next {
            match self.all.entry(segment.slot()) {
                Entry::Occupied(mut entry) => entry.get_mut().count += 1,
                Entry::Vacant(entry) => {
                    self.words += segment.words.len();
                    left.extend(segment.older.iter().cloned());
                    entry.insert(Held { segment, count: 1, met: 0 });
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
            if let Entry::Occupied(mut entry) = self.all.entry(slot) {
                entry.get_mut().count -= 1;
                if entry.get().count == 0 {
                    let Held { segment, .. } = entry.remove();
                    self.words -= segment.words.len();
                    left.extend(segment.older.iter().map(|older| older.slot()));
                }
            }
            next = left.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(numbers: &Arc<Numbers>, words: &[Word], older: Vec<Arc<Segment>>) -> Arc<Segment> {
        Segment::new(numbers.take().unwrap(), words, older)
    }

    #[test]
    fn chain_of_a_million_segments_is_dropped_without_recursion() {
        let numbers = Arc::<Numbers>::default();
        let mut holdings = Holdings::default();
        let mut last = segment(&numbers, &[0], Vec::new());
        for _ in 1..1_000_000 {
            last = segment(&numbers, &[0], vec![last]);
        }
        holdings.add(&last);
        assert_eq!((numbers.words(), holdings.words()), (1_000_000, 1_000_000));
        holdings.remove(last.slot());
        assert_eq!((numbers.words(), holdings.words()), (1_000_000, 0));
        drop(last);
        assert_eq!(numbers.words(), 0);
    }

    #[test]
    fn number_is_free_again_once_its_segment_is_dropped() {
        let numbers = Arc::<Numbers>::default();
        let kept = segment(&numbers, &[7; 100], Vec::new());
        for _ in 0..10 {
            let other = segment(&numbers, &[0; 1000], vec![kept.clone()]);
            assert_eq!((kept.slot(), other.slot(), numbers.words()), (0, 1, 1100));
        }
        assert_eq!((numbers.words(), kept.words()), (100, &[7; 100][..]));
    }

    #[test]
    fn round_meets_each_segment_once() {
        let numbers = Arc::<Numbers>::default();
        let mut holdings = Holdings::default();
        let one = segment(&numbers, &[0], Vec::new());
        holdings.add(&one);
        for _ in 0..2 {
            holdings.begin_round();
            assert!(!holdings.was_met(one.slot()));
            assert!(holdings.meet(one.slot()).is_some() && holdings.meet(one.slot()).is_none());
            assert!(holdings.was_met(one.slot()));
        }
    }

    #[test]
    fn bound_of_what_messages_mention_is_above_it_until_it_is_counted() {
        let numbers = Arc::<Numbers>::default();
        let bottom = segment(&numbers, &[0; 10], Vec::new());
        let sides = [1, 2].map(|_| segment(&numbers, &[0; 20], vec![bottom.clone()]));
        let top = segment(&numbers, &[0; 5], sides.to_vec());
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
        let numbers = Arc::<Numbers>::default();
        let mut holdings = Holdings::default();
        let bottom = segment(&numbers, &[0; 10], Vec::new());
        let sides = [1, 2].map(|_| segment(&numbers, &[0; 20], vec![bottom.clone()]));
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
