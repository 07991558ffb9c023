//! Which segments the heap of the process that runs keeps alive.

use std::sync::Arc;

use super::collect::Heap;
use super::segment::Segment;
use super::share::{CENSUS_WORDS, Shared};
use super::word::{MOVED, SHARED, TAG_MASK, Word, index, pointer};

impl Heap {
    fn shared(&mut self) -> &mut Shared {
        let old = self.old;
        self.shared.get_or_insert_with(|| {
            let mut shared = Box::<Shared>::default();
            shared.sent.young.clear(old);
            shared
        })
    }

    /// Keeps a segment alive: something points to it that the next collection will see.
    pub(super) fn hold(&mut self, segment: &Arc<Segment>) {
        let shared = self.shared();
        if !shared.old.contains(&segment.slot()) && shared.arrived.insert(segment.slot()) {
            shared.holdings.add(segment);
            if self.is_census_due() || self.size() > self.limit_words {
                self.due = 0;
            }
        }
    }

    /// Notes that objects of the heap have copies in a segment, at these indices; takes the places.
    pub(super) fn note_sent(&mut self, segment: &Arc<Segment>, places: &mut Vec<(usize, u64)>) {
        let (old, end) = (self.old, self.words.len());
        self.hold(segment);
        let shared = self.shared();
        if places.iter().any(|(at, _)| *at < old) {
            let (mut of_old, mut of_young) = places.drain(..).partition(|(at, _)| *at < old);
            shared.sent.old.add(&mut of_old, old);
            shared.sent.young.add(&mut of_young, end);
            shared.hold_old(segment);
        } else {
            shared.sent.young.add(places, end);
        }
    }

    /// Whether so much of the old objects was sent that a full collection pays: only the copies stay.
    pub(super) fn has_sent_much(&self) -> bool {
        self.shared.as_ref().is_some_and(|shared| 4 * shared.sent.old.items().len() > self.old)
    }

    /// Before a collection of objects from `from` on: those that were sent have moved to their copies.
    pub(super) fn forward_sent(&mut self, from: usize) {
        let Some(shared) = &mut self.shared else { return };
        let old = if from == 0 { shared.sent.old.items() } else { &[] };
        for (at, copy) in old.iter().chain(shared.sent.young.items()) {
            self.words[*at] = pointer(*copy as usize, MOVED);
        }
    }

    /// After a collection that met these segments: holds them, and lets others go.
    pub(super) fn keep_met(&mut self, met: &[u32], full: bool) {
        if self.shared.is_none() && met.is_empty() {
            return;
        }
        let first = self.words.len();
        self.shared();
        let Some(shared) = &mut self.shared else { return };
        // These first: what they share with others then stays.
        for slot in met {
            let segment = shared.holdings.in_slot(*slot).clone();
            shared.hold_old(&segment);
        }
        let Shared { old, arrived, holdings, sent, .. } = &mut **shared;
        for slot in arrived.drain() {
            holdings.remove(slot);
        }
        sent.young.clear(first);
        if full {
            sent.old.clear(0);
            old.retain(|slot| {
                let was_met = holdings.was_met(*slot);
                if !was_met {
                    holdings.remove(*slot);
                }
                was_met
            });
            if old.is_empty() {
                self.shared = None;
            }
        }
    }

    /// Whether the segments that are held have grown so much that what is alive in them should be counted.
    pub(super) fn is_census_due(&self) -> bool {
        self.shared.as_ref().is_some_and(|shared| shared.holdings.words() >= shared.census_at.max(CENSUS_WORDS))
    }

    /// The next census is due when what is held has doubled.
    pub(super) fn set_census(&mut self) {
        if let Some(shared) = &mut self.shared {
            shared.census_at = 2 * shared.holdings.words() + CENSUS_WORDS;
        }
    }

    /// Makes [`Heap::shared_one`] see all that was sent.
    pub(crate) fn prepare_sent(&mut self) {
        if let Some(shared) = &mut self.shared {
            shared.sent.old.prepare();
            shared.sent.young.prepare();
        }
    }

    /// The copy of an object in a segment, if it has one; otherwise the object.
    pub(crate) fn shared_one(&self, object: Word) -> Word {
        let at = index(object);
        let Some(shared) = self.shared.as_ref().filter(|_| at < SHARED) else { return object };
        let places = if at < self.old { &shared.sent.old } else { &shared.sent.young };
        places.find_prepared(at).map_or(object, |copy| pointer(copy, object & TAG_MASK))
    }

    /// Whether a segment is one of those that a heap holds.
    #[cfg(test)]
    pub(super) fn holds(&self, at: usize) -> bool {
        self.shared.as_ref().is_some_and(|shared| shared.old.contains(&super::segment::slot_of(at)))
    }
}
