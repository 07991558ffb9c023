//! How much of the segments that a heap holds is alive.
//!
//! A collection keeps a whole segment alive for one object of it. Now and then a full collection counts what
//! is alive: of a segment that is mostly dead it copies the rest to the heap, and lets go of the segment.

use std::collections::{HashMap, HashSet};

use super::collect::Heap;
use super::object::{fields_at, size_at};
use super::segment::{Holdings, offset_of, slot_of};
use super::word::{TAG_MASK, Word, pointer, shared_index};

/// What is alive of a segment.
#[derive(Default)]
struct Alive {
    /// One bit for each of its words: whether an object that begins there is alive.
    bits: Vec<u64>,
    words: usize,
}

struct Census<'a> {
    holdings: &'a Holdings,
    alive: HashMap<u32, Alive>,
    /// Objects whose fields were not looked at.
    left: Vec<usize>,
}

impl Census<'_> {
    fn visit(&mut self, word: Word) {
        let Some(at) = shared_index(word) else { return };
        let (words, offset) = (self.holdings.at(at).words(), offset_of(at));
        let alive = self.alive.entry(slot_of(at)).or_default();
        if alive.bits.is_empty() {
            alive.bits.resize(words.len().div_ceil(64), 0);
        }
        let bit = 1 << (offset % 64);
        if alive.bits[offset / 64] & bit == 0 {
            alive.bits[offset / 64] |= bit;
            alive.words += size_at(words, offset);
            self.left.push(at);
        }
    }

    fn visit_all(&mut self) {
        while let Some(at) = self.left.pop() {
            let words = self.holdings.at(at).words();
            for field in fields_at(words, offset_of(at)).0 {
                self.visit(words[field]);
            }
        }
    }

    /// The segments that are mostly dead, and that no other one keeps alive.
    fn thin(self) -> HashSet<u32> {
        let is_thin = |slot: u32, alive: &Alive| 4 * alive.words < self.holdings.in_slot(slot).words().len();
        let mut thin: HashSet<u32> =
            self.alive.iter().filter(|(slot, alive)| is_thin(**slot, alive)).map(|(slot, _)| *slot).collect();
        if thin.is_empty() {
            return thin;
        }
        let mut kept: HashSet<u32> = self.alive.into_keys().filter(|slot| !thin.contains(slot)).collect();
        let mut left: Vec<u32> = kept.iter().copied().collect();
        while let Some(slot) = left.pop() {
            let older = self.holdings.in_slot(slot).older().iter().map(|older| older.slot());
            left.extend(older.filter(|older| kept.insert(*older)));
        }
        thin.retain(|slot| !kept.contains(slot));
        thin
    }
}

impl Heap {
    /// After a full collection: counts what is alive of segments if that is due, or if more is held than may
    /// be, and copies out what little is alive of those that are mostly dead.
    pub(super) fn census(&mut self, roots: &mut [&mut [Word]]) {
        let Some(shared) = self.shared.as_ref().filter(|_| self.is_census_due() || self.size() > self.limit_words)
        else {
            return;
        };
        let mut census = Census { holdings: &shared.holdings, alive: HashMap::new(), left: Vec::new() };
        roots.iter().flat_map(|root| root.iter()).for_each(|word| census.visit(*word));
        let mut at = 0;
        while at < self.words.len() {
            let (fields, end) = fields_at(&self.words, at);
            self.words[fields].iter().for_each(|word| census.visit(*word));
            at = end;
        }
        census.visit_all();
        let thin = census.thin();
        if !thin.is_empty() {
            self.copy_out(&thin, roots);
        }
        self.set_census();
    }

    /// Copies what is alive of these segments to the heap, all of which is alive.
    fn copy_out(&mut self, thin: &HashSet<u32>, roots: &mut [&mut [Word]]) {
        let Some(shared) = &mut self.shared else { return };
        let (words, holdings) = (&mut self.words, &mut shared.holdings);
        holdings.begin_round();
        let mut met = Vec::new();
        let mut places: HashMap<usize, usize> = HashMap::new();
        let mut placed = |words: &mut Vec<Word>, word: Word| {
            let Some(at) = shared_index(word) else { return word };
            let slot = slot_of(at);
            if !thin.contains(&slot) {
                if holdings.meet(slot).is_some() {
                    met.push(slot);
                }
                return word;
            }
            let new = *places.entry(at).or_insert_with(|| {
                let (new, from, offset) = (words.len(), holdings.at(at).words(), offset_of(at));
                words.extend_from_slice(&from[offset..offset + size_at(from, offset)]);
                new
            });
            pointer(new, word & TAG_MASK)
        };
        for root in roots.iter_mut() {
            for word in root.iter_mut() {
                *word = placed(words, *word);
            }
        }
        let mut at = 0;
        while at < words.len() {
            let (fields, end) = fields_at(words, at);
            for field in fields {
                let word = words[field];
                words[field] = placed(words, word);
            }
            at = end;
        }
        self.keep_met(&met, true);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::word::{NIL, fixnum, fixnum_value, index};
    use super::*;

    /// A heap with a list of so many numbers in a segment.
    fn heap_with_segment(count: i64) -> (Heap, Word) {
        let mut heap = Heap::new(64, 1 << 20, Arc::default());
        let items: Vec<Word> = (0..count).map(fixnum).collect();
        let list = heap.list(&items, NIL);
        let (parcel, _) = heap.pack(list);
        let list = heap.unpack(&parcel);
        (heap, list)
    }

    #[test]
    fn rest_of_a_segment_that_is_mostly_dead_is_copied_out() {
        let (mut heap, list) = heap_with_segment(10_000);
        let late = |heap: &Heap, from, count| (0..count).fold(from, |list, _| heap.cdr(list));
        let mut roots = [late(&heap, list, 1000)];
        heap.collect(&mut [&mut roots], true).unwrap();
        assert!(heap.holds(index(roots[0])), "nine tenths of it are alive");
        // The next census is due at twice as much.
        let items = vec![fixnum(1); 20_000];
        let more = heap.list(&items, NIL);
        let (parcel, _) = heap.pack(more);
        let more = heap.unpack(&parcel);
        let mut roots = [late(&heap, list, 9000), more];
        let held = index(roots[0]);
        heap.collect(&mut [&mut roots], true).unwrap();
        assert!(!heap.holds(held) && heap.holds(index(roots[1])));
        assert_eq!((heap.len(), fixnum_value(heap.car(roots[0]))), (2000, 9000));
        assert_eq!(fixnum_value(heap.car(late(&heap, roots[0], 999))), 9999);
        assert_eq!(heap.cdr(late(&heap, roots[0], 999)), NIL);
    }

    #[test]
    fn segment_that_another_one_needs_stays() {
        let (mut heap, list) = heap_with_segment(10_000);
        let mut end = list;
        while heap.cdr(end) != NIL {
            end = heap.cdr(end);
        }
        let newer = heap.list(&[fixnum(7); 10_000], end);
        let (parcel, _) = heap.pack(newer);
        let mut roots = [heap.unpack(&parcel), end];
        heap.collect(&mut [&mut roots], true).unwrap();
        assert!(heap.holds(index(roots[0])) && heap.holds(index(roots[1])));
        assert_eq!((heap.len(), roots[1]), (0, end));
    }
}
