//! What one process has to do with segments: those that it holds, and what it has sent.

use std::collections::HashSet;
use std::sync::Arc;

use super::segment::{Holdings, Segment};

/// What a process has to do with segments.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) holdings: Holdings,
    /// Segments that old objects may point to: only a full collection tells if none does.
    pub(super) old: HashSet<u32>,
    /// Segments that came since the last collection.
    pub(super) arrived: HashSet<u32>,
    pub(super) sent: Sent,
    /// The words of segments at which the next census is due.
    pub(super) census_at: usize,
}

/// A census is due when so many more words of segments are held than twice those after the last one.
pub(super) const CENSUS_WORDS: usize = 1 << 12;

impl Shared {
    /// That of a process whose old objects point to these.
    pub(super) fn of_old(segments: &[Arc<Segment>]) -> Option<Box<Self>> {
        if segments.is_empty() {
            return None;
        }
        let mut shared = Box::<Self>::default();
        for segment in segments {
            shared.hold_old(segment);
        }
        Some(shared)
    }

    /// Where the copy of an object in a segment is.
    #[inline]
    pub(super) fn copy_of(&mut self, at: usize, old: usize) -> Option<usize> {
        if at < old { self.sent.old.find(at) } else { self.sent.young.find(at) }
    }

    /// Keeps a segment alive until no old object points to it.
    pub(super) fn hold_old(&mut self, segment: &Arc<Segment>) {
        if self.old.insert(segment.slot()) && !self.arrived.remove(&segment.slot()) {
            self.holdings.add(segment);
        }
    }

    /// The words of the segments that the heap keeps alive.
    pub(super) fn words(&self) -> usize {
        self.holdings.words() + 2 * (self.sent.old.items().len() + self.sent.young.items().len())
    }

    /// The bytes of that.
    pub(super) fn bytes(&self) -> usize {
        8 * self.words() + size_of::<Self>()
    }
}

/// Objects of a heap that have a copy in a segment.
#[derive(Default)]
pub(super) struct Sent {
    pub(super) old: Places,
    pub(super) young: Places,
}

/// Where copies of objects are.
#[derive(Default)]
pub(super) struct Places {
    /// The index of an object, and that of its copy: the form of what a transfer has marked.
    items: Vec<(usize, u64)>,
    /// So many of the items are sorted, and have their bits. The others follow when an object is looked for:
    /// most never are.
    ready: usize,
    /// One bit for each index from `first` on: whether the object there has a copy.
    bits: Vec<u64>,
    first: usize,
    /// All objects are before it.
    end: usize,
}

impl Places {
    /// Adds objects, all before `end`, with their copies.
    pub(super) fn add(&mut self, places: &mut Vec<(usize, u64)>, end: usize) {
        if self.items.is_empty() {
            std::mem::swap(&mut self.items, places);
        } else {
            self.items.append(places);
        }
        self.end = self.end.max(end);
    }

    pub(super) fn items(&self) -> &[(usize, u64)] {
        &self.items
    }

    /// Where the copy of an object is.
    #[inline]
    pub(super) fn find(&mut self, at: usize) -> Option<usize> {
        // What was made since the last message is none.
        if at >= self.end {
            return None;
        }
        self.prepare();
        self.find_prepared(at)
    }

    pub(super) fn prepare(&mut self) {
        if self.ready == self.items.len() {
            return;
        }
        self.bits.resize((self.end - self.first).div_ceil(64), 0);
        for (at, _) in &self.items[self.ready..] {
            let bit = at - self.first;
            self.bits[bit / 64] |= 1 << (bit % 64);
        }
        self.items.sort_unstable();
        self.ready = self.items.len();
    }

    pub(super) fn find_prepared(&self, at: usize) -> Option<usize> {
        let bit = at.wrapping_sub(self.first);
        if self.bits.get(bit / 64).is_none_or(|bits| bits & (1 << (bit % 64)) == 0) {
            return None;
        }
        let found = self.items.binary_search_by_key(&at, |item| item.0).ok()?;
        Some(self.items[found].1 as usize)
    }

    /// Forgets all; those to come have an index from `first` on.
    pub(super) fn clear(&mut self, first: usize) {
        self.items.clear();
        self.bits.clear();
        (self.ready, self.first, self.end) = (0, first, 0);
    }
}
