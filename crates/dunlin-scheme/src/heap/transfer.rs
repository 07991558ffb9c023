//! Copies between heaps: messages, and values of globals.
//!
//! What is shared within a value stays shared in the copy. Objects of the frozen segment are not copied:
//! every process of the program has them.

use std::sync::Arc;

use super::collect::{Copy, Full, Heap};
use super::object::{Tag, is_header_of, is_raw_header, size_of};
use super::word::{FROZEN, HEADER, TAG_MASK, UNSET, Word, index, is_pointer, pointer};

/// A value outside of any heap: its objects, with pointers counted from the first word of them.
#[derive(Clone, Debug)]
pub(crate) struct Parcel {
    pub(crate) words: Box<[Word]>,
    pub(crate) root: Word,
}

impl Heap {
    /// Copies a value out of the heap.
    pub(crate) fn pack(&mut self, root: Word) -> Parcel {
        if !is_own(root) {
            return Parcel { words: Box::default(), root };
        }
        let (words, root) = self.copied(root, 0, Vec::new());
        Parcel { words: words.into(), root }
    }

    /// Copies a value to the words that a new process begins with, with room for `more` words.
    pub(crate) fn pack_for(&mut self, root: Word, more: usize) -> (Vec<Word>, Word) {
        if !is_own(root) {
            return (Vec::with_capacity(more), root);
        }
        self.copied(root, 0, Vec::with_capacity(8 + more))
    }

    /// Puts a value into the heap.
    pub(crate) fn unpack(&mut self, parcel: &Parcel) -> Word {
        let base = self.words.len();
        let moved = |word: Word| {
            if is_own(word) { pointer(index(word) + base, word & TAG_MASK) } else { word }
        };
        self.words.extend_from_slice(&parcel.words);
        relocate(&mut self.words[base..], moved);
        moved(parcel.root)
    }

    /// Copies a value to the frozen segment, and tells whether it has cells that are not written yet.
    ///
    /// # Errors
    /// [`Full`] if the segment would pass the limit of a heap.
    pub(crate) fn freeze(&mut self, root: Word) -> Result<(Word, bool), Full> {
        if !is_own(root) {
            return Ok((root, false));
        }
        let base = FROZEN + self.frozen.len();
        let (words, root) = self.copied(root, base, Vec::new());
        if self.frozen.len() + words.len() > self.limit() {
            return Err(Full);
        }
        let is_open = has_open_cell(&words);
        Arc::make_mut(&mut self.frozen).extend_from_slice(&words);
        Ok((root, is_open))
    }

    /// Copies a value of the frozen segment, with all that it reaches there, to the heap: its cells can be
    /// written here.
    pub(crate) fn thaw(&mut self, root: Word) -> Word {
        let frozen = self.frozen.clone();
        let mut places = std::collections::HashMap::new();
        let mut place = |words: &mut Vec<Word>, word: Word| {
            let at = index(word);
            if !is_pointer(word) || !(FROZEN..FROZEN + frozen.len()).contains(&at) {
                return word;
            }
            let new = *places.entry(at).or_insert_with(|| {
                let from = at - FROZEN;
                let size = if frozen[from] & TAG_MASK == HEADER { 1 + size_of(frozen[from]) } else { 2 };
                words.extend_from_slice(&frozen[from..from + size]);
                words.len() - size
            });
            pointer(new, word & TAG_MASK)
        };
        let mut at = self.words.len();
        let root = place(&mut self.words, root);
        while at < self.words.len() {
            let (fields, end) = fields_at(&self.words, at);
            for field in fields {
                let word = self.words[field];
                self.words[field] = place(&mut self.words, word);
            }
            at = end;
        }
        root
    }

    /// Replaces one immediate value by another in all objects from `base` on.
    pub(crate) fn replace(&mut self, base: usize, old: Word, new: Word) {
        relocate(&mut self.words[base..], |word| if word == old { new } else { word });
    }

    /// Copies what `root` reaches. The originals are marked meanwhile, so that each is copied once.
    fn copied(&mut self, root: Word, base: usize, to: Vec<Word>) -> (Vec<Word>, Word) {
        let mut copy = Copy { words: &mut self.words, to, from: 0, base, marks: Some(&mut self.marked) };
        let root = copy.moved(root);
        copy.scan();
        let Copy { to, .. } = copy;
        for (at, first) in self.marked.drain(..) {
            self.words[at] = first;
        }
        (to, root)
    }
}

/// Whether the word is an object of a heap or a parcel, not of the frozen segment.
fn is_own(word: Word) -> bool {
    is_pointer(word) && index(word) < FROZEN
}

/// The places of the values of the object at `at`, and where the next begins.
fn fields_at(words: &[Word], at: usize) -> (std::ops::Range<usize>, usize) {
    let first = words[at];
    if first & TAG_MASK != HEADER {
        return (at..at + 2, at + 2);
    }
    let end = at + 1 + size_of(first);
    (if is_raw_header(first) { end..end } else { at + 1..end }, end)
}

/// Replaces every value of these objects.
fn relocate(words: &mut [Word], moved: impl Fn(Word) -> Word) {
    let mut at = 0;
    while at < words.len() {
        let (fields, end) = fields_at(words, at);
        for field in fields {
            words[field] = moved(words[field]);
        }
        at = end;
    }
}

fn has_open_cell(words: &[Word]) -> bool {
    let mut at = 0;
    while at < words.len() {
        if is_header_of(words[at], Tag::Cell) && words[at + 1] == UNSET {
            return true;
        }
        at = fields_at(words, at).1;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::super::word::{NIL, PAIR, fixnum};
    use super::*;

    #[test]
    fn copies_keep_sharing_and_leave_the_original() {
        let mut heap = Heap::new(64, 1 << 20);
        let shared = heap.cons(fixnum(7), NIL);
        let whole = heap.cons(shared, shared);
        let before = heap.words.clone();
        let parcel = heap.pack(whole);
        assert_eq!((&heap.words, parcel.words.len()), (&before, 4));
        let copy = heap.unpack(&parcel);
        assert_ne!(copy, whole);
        assert_eq!(heap.car(copy), heap.cdr(copy));
        assert_eq!(heap.car(heap.car(copy)), fixnum(7));
    }

    #[test]
    fn cycles_are_copied_once() {
        let mut heap = Heap::new(64, 1 << 20);
        let ring = heap.cons(fixnum(1), NIL);
        heap.patch(ring, 1, ring);
        let (frozen, is_open) = heap.freeze(ring).unwrap();
        assert!(!is_open);
        assert_eq!(heap.cdr(frozen), frozen);
        // Frozen objects travel as they are.
        let list = heap.cons(frozen, NIL);
        let parcel = heap.pack(list);
        assert_eq!((parcel.words.len(), parcel.words[0]), (2, frozen));
        let thawed = heap.thaw(frozen);
        assert_eq!((heap.cdr(thawed), thawed & TAG_MASK), (thawed, PAIR));
    }

    #[test]
    fn frozen_values_with_open_cells_are_found() {
        let mut heap = Heap::new(64, 1 << 20);
        let cell = heap.make(Tag::Cell, &[UNSET]);
        let list = heap.cons(fixnum(1), cell);
        assert!(heap.freeze(list).unwrap().1);
        heap.write_cell(cell, NIL);
        assert!(!heap.freeze(list).unwrap().1);
    }
}
