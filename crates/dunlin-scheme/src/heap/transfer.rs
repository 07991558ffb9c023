//! Copies between heaps: messages, and values of globals.
//!
//! What is shared within a value stays shared in the copy. Objects of the frozen segment are not copied:
//! every process of the program has them. A large message is copied into a segment, once: what points to
//! segments is not copied again.

use std::collections::HashMap;
use std::sync::Arc;

use super::collect::{Full, Heap};
use super::object::{Tag, fields_at, is_header_of, size_at, size_of};
use super::segment::{Segment, offset_of, slot_of};
use super::share::Shared;
use super::word::{FROZEN, HEADER, MOVED, SHARED, TAG_MASK, UNSET, Word, index, is_pointer, pointer, shared_index};

/// A value outside of any heap: its objects, with pointers counted from the first word of them, and the
/// segments that they point to.
#[derive(Clone, Debug)]
pub(crate) struct Parcel {
    pub(crate) words: Box<[Word]>,
    pub(crate) root: Word,
    pub(crate) segments: Box<[Arc<Segment>]>,
}

impl Parcel {
    /// A value that has no objects, or has them in a heap.
    pub(crate) fn of_word(root: Word) -> Self {
        Self { words: Box::default(), root, segments: Box::default() }
    }
}

/// Messages of so many words become segments; smaller ones cost less to copy than to share.
const SEGMENT_WORDS: usize = 64;

/// What a copy found; its words are in the heap's `copy`.
struct Copied {
    root: Word,
    /// The segments that the words point to.
    segments: Vec<Arc<Segment>>,
    /// Whether there are cells that are not written.
    is_open: bool,
}

impl Heap {
    /// Copies a value out of the heap, but for what is in segments; a large one becomes a segment. Tells how
    /// many words were copied.
    pub(crate) fn pack(&mut self, root: Word) -> (Parcel, usize) {
        let (root, segments, copied) = self.shared_copy(root);
        let words = self.copy.as_slice().into();
        self.clear_copy();
        (Parcel { words, root, segments: segments.into() }, copied)
    }

    /// The same, as the words that a new process begins with: there is room for `more`.
    pub(crate) fn pack_for(&mut self, root: Word, more: usize) -> (Vec<Word>, Word, Vec<Arc<Segment>>, usize) {
        let (root, segments, copied) = self.shared_copy(root);
        let mut words = Vec::with_capacity(self.copy.len() + more);
        words.extend_from_slice(&self.copy);
        self.clear_copy();
        (words, root, segments, copied)
    }

    /// Copies a value: to a new segment if it is large, otherwise to `self.copy`. Returns the segments that
    /// it points to, and how many words were copied.
    fn shared_copy(&mut self, root: Word) -> (Word, Vec<Arc<Segment>>, usize) {
        if !is_pointer(root) || index(root) >= FROZEN {
            return (root, Vec::new(), 0);
        }
        let base = if self.words.len() <= Segment::WORDS_MAX { self.next_base() } else { None };
        let Copied { mut root, segments, is_open } = self.copied(root, base.unwrap_or(0), Kept::Shared);
        let count = self.copy.len();
        if let Some(base) = base {
            if count >= SEGMENT_WORDS
                && !is_open
                && let Some(number) = self.number.take()
            {
                let segment = Segment::new(number, &self.copy, segments);
                self.note_marked(&segment);
                self.clear_copy();
                return (root, vec![segment], count);
            }
            let moved = |word| if points_into(word, base, count) { word - pointer(base, 0) } else { word };
            relocate(&mut self.copy, moved);
            root = moved(root);
        }
        self.unmark();
        (root, segments, count)
    }

    /// The index of the first word of the next segment; `None` if there may be no more.
    fn next_base(&mut self) -> Option<usize> {
        if self.number.is_none() {
            self.number = self.numbers.take();
        }
        self.number.as_ref().map(|number| number.base())
    }

    /// Puts a value into the heap.
    pub(crate) fn unpack(&mut self, parcel: &Parcel) -> Word {
        parcel.segments.iter().for_each(|segment| self.hold(segment));
        let base = self.words.len();
        let moved = |word: Word| {
            if is_own(word) { pointer(index(word) + base, word & TAG_MASK) } else { word }
        };
        self.words.extend_from_slice(&parcel.words);
        relocate(&mut self.words[base..], moved);
        moved(parcel.root)
    }

    /// Copies a value to the frozen segment, whole, and tells whether it has cells that are not written yet.
    ///
    /// # Errors
    /// [`Full`] if the frozen segment would pass `limit` words.
    pub(crate) fn freeze(&mut self, root: Word, limit: usize) -> Result<(Word, bool), Full> {
        if !is_pointer(root) || index(root) >= FROZEN {
            return Ok((root, false));
        }
        let base = FROZEN + self.frozen.len();
        let Copied { root, is_open, .. } = self.copied(root, base, Kept::Frozen);
        self.unmark();
        let fits = self.frozen.len() + self.copy.len() <= limit;
        if fits {
            Arc::make_mut(&mut self.frozen).extend_from_slice(&self.copy);
        }
        self.clear_copy();
        if fits { Ok((root, is_open)) } else { Err(Full) }
    }

    /// Copies a value of the frozen segment, with all that it reaches there, to the heap: its cells can be
    /// written here.
    pub(crate) fn thaw(&mut self, root: Word) -> Word {
        let frozen = self.frozen.clone();
        let mut places = HashMap::new();
        let mut place = |words: &mut Vec<Word>, word: Word| {
            let at = index(word);
            if !is_pointer(word) || !(FROZEN..FROZEN + frozen.len()).contains(&at) {
                return word;
            }
            let new = *places.entry(at).or_insert_with(|| {
                let (new, from) = (words.len(), at - FROZEN);
                words.extend_from_slice(&frozen[from..from + size_at(&frozen, from)]);
                new
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

    /// Copies what `root` reaches, but for what is kept. The originals are marked, so that each is copied
    /// once, until `unmark` or `note_marked`.
    fn copied(&mut self, root: Word, base: usize, kept: Kept) -> Copied {
        if let Some(shared) = &mut self.shared {
            shared.holdings.begin_round();
        }
        let mut transfer = Transfer {
            words: &mut self.words,
            old: self.old,
            to: &mut self.copy,
            base,
            marked: &mut self.marked,
            shared: self.shared.as_deref_mut(),
            kept,
            met: Vec::new(),
            places: HashMap::new(),
            is_open: false,
        };
        let root = transfer.moved(root);
        transfer.scan();
        Copied { root, segments: transfer.met, is_open: transfer.is_open }
    }

    /// Empties the copy; it keeps its memory for the next one, unless that is much.
    fn clear_copy(&mut self) {
        self.copy.clear();
        self.copy.shrink_to(COPY_WORDS);
    }

    /// Takes the marks from the originals of a copy.
    fn unmark(&mut self) {
        for (at, first) in self.marked.drain(..) {
            self.words[at] = first;
        }
        self.marked.shrink_to(COPY_WORDS);
    }

    /// Takes the marks from the originals of a segment, and notes where their copies are.
    fn note_marked(&mut self, segment: &Arc<Segment>) {
        let mut marked = std::mem::take(&mut self.marked);
        for (at, first) in &mut marked {
            let copy = index(self.words[*at]);
            self.words[*at] = std::mem::replace(first, copy as u64);
        }
        self.note_sent(segment, &mut marked);
        self.marked = marked;
        self.marked.clear();
    }
}

/// Words that a copy keeps room for.
const COPY_WORDS: usize = 1 << 16;

/// What a copy points to and does not copy, besides the frozen segment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    /// Segments, also where objects of the heap have their copies in one.
    Shared,
    /// Nothing.
    Frozen,
}

/// A copy under way.
struct Transfer<'a> {
    words: &'a mut Vec<Word>,
    /// Objects before this index are old.
    old: usize,
    to: &'a mut Vec<Word>,
    /// The index that the first copy gets.
    base: usize,
    /// Where objects that were copied begin, with the word that was there.
    marked: &'a mut Vec<(usize, Word)>,
    shared: Option<&'a mut Shared>,
    kept: Kept,
    met: Vec<Arc<Segment>>,
    /// Where objects of segments were copied to.
    places: HashMap<usize, usize>,
    /// Whether a cell was copied that is not written.
    is_open: bool,
}

impl Transfer<'_> {
    /// What becomes of a pointer.
    #[inline]
    fn moved(&mut self, word: Word) -> Word {
        let at = index(word);
        if at >= SHARED {
            return self.moved_shared(word);
        }
        let first = self.words[at];
        if first & TAG_MASK == MOVED {
            return pointer(index(first), word & TAG_MASK);
        }
        if self.kept == Kept::Shared
            && let Some(shared) = &mut self.shared
            && let Some(copy) = shared.copy_of(at, self.old)
        {
            return self.moved_shared(pointer(copy, word & TAG_MASK));
        }
        let new = self.base + self.to.len();
        if first & TAG_MASK == HEADER {
            self.to.extend_from_slice(&self.words[at..at + 1 + size_of(first)]);
            self.is_open |= is_header_of(first, Tag::Cell) && self.words[at + 1] == UNSET;
        } else {
            self.to.extend_from_slice(&[first, self.words[at + 1]]);
        }
        self.marked.push((at, first));
        self.words[at] = pointer(new, MOVED);
        pointer(new, word & TAG_MASK)
    }

    /// What was copied may point to what was not: the copy itself is the queue.
    fn scan(&mut self) {
        let mut at = 0;
        while let Some(&first) = self.to.get(at) {
            let (fields, end) = if first & TAG_MASK == HEADER { fields_at(self.to, at) } else { (at..at + 2, at + 2) };
            for field in fields {
                let word = self.to[field];
                if is_pointer(word) {
                    self.to[field] = self.moved(word);
                }
            }
            at = end;
        }
    }

    /// What becomes of a pointer to a segment.
    #[inline(never)]
    fn moved_shared(&mut self, word: Word) -> Word {
        let (Some(at), Some(shared)) = (shared_index(word), &mut self.shared) else { return word };
        let holdings = &mut shared.holdings;
        if self.kept == Kept::Shared {
            self.met.extend(holdings.meet(slot_of(at)).cloned());
            return word;
        }
        let (to, base) = (&mut *self.to, self.base);
        let new = *self.places.entry(at).or_insert_with(|| {
            let (new, from, offset) = (base + to.len(), holdings.at(at).words(), offset_of(at));
            to.extend_from_slice(&from[offset..offset + size_at(from, offset)]);
            new
        });
        pointer(new, word & TAG_MASK)
    }
}

/// Whether the word points to one of `count` words from `base` on.
fn points_into(word: Word, base: usize, count: usize) -> bool {
    is_pointer(word) && index(word).wrapping_sub(base) < count
}

/// Whether the word is an object of a heap or a parcel, not of a segment.
fn is_own(word: Word) -> bool {
    is_pointer(word) && index(word) < SHARED
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

#[cfg(test)]
mod tests {
    use super::super::word::{NIL, PAIR, fixnum};
    use super::*;

    #[test]
    fn copies_keep_sharing_and_leave_the_original() {
        let mut heap = Heap::new(64, 1 << 20, Arc::default());
        let shared = heap.cons(fixnum(7), NIL);
        let whole = heap.cons(shared, shared);
        let before = heap.words.clone();
        let (parcel, count) = heap.pack(whole);
        assert_eq!((&heap.words, parcel.words.len(), count), (&before, 4, 4));
        let copy = heap.unpack(&parcel);
        assert_ne!(copy, whole);
        assert_eq!(heap.car(copy), heap.cdr(copy));
        assert_eq!(heap.car(heap.car(copy)), fixnum(7));
    }

    #[test]
    fn objects_of_a_segment_are_not_copied_again() {
        let mut heap = Heap::new(64, 1 << 20, Arc::default());
        let old = heap.list(&[fixnum(1); 100], NIL);
        let mut roots = [old];
        heap.collect(&mut [&mut roots], false).unwrap();
        let (young, old) = (heap.list(&[fixnum(2); 100], NIL), roots[0]);
        for list in [old, young] {
            let (parcel, count) = heap.pack(list);
            assert_eq!((count, parcel.words.len(), parcel.segments.len()), (200, 0, 1));
            let (again, count) = heap.pack(list);
            assert_eq!((count, again.root), (0, parcel.root));
            let rest = heap.cdr(list);
            let (rest, count) = heap.pack(rest);
            assert_eq!((count, rest.root), (0, heap.cdr(parcel.root)));
        }
        let both = heap.cons(old, young);
        let (parcel, count) = heap.pack(both);
        assert_eq!((count, parcel.words.len(), parcel.segments.len()), (2, 2, 2));
        // A collection leaves only the copies; small and open values have none.
        let open = heap.make(Tag::Cell, &[UNSET]);
        let open = heap.list(&[fixnum(3); 100], open);
        let mut roots = [both, old, open];
        heap.collect(&mut [&mut roots], true).unwrap();
        assert_eq!(heap.len(), 2 + 201 + 1);
        assert!(shared_index(roots[1]).is_some() && heap.car(roots[0]) == roots[1]);
        let (parcel, count) = heap.pack(roots[2]);
        assert_eq!((count, parcel.words.len()), (202, 202));
    }

    #[test]
    fn cycles_are_copied_once() {
        let mut heap = Heap::new(64, 1 << 20, Arc::default());
        let ring = heap.cons(fixnum(1), NIL);
        heap.patch(ring, 1, ring);
        let (frozen, is_open) = heap.freeze(ring, 100).unwrap();
        assert!(!is_open);
        assert_eq!(heap.cdr(frozen), frozen);
        // Frozen objects travel as they are.
        let list = heap.cons(frozen, NIL);
        let (parcel, _) = heap.pack(list);
        assert_eq!((parcel.words.len(), parcel.words[0]), (2, frozen));
        let thawed = heap.thaw(frozen);
        assert_eq!((heap.cdr(thawed), thawed & TAG_MASK), (thawed, PAIR));
    }

    #[test]
    fn frozen_values_with_open_cells_are_found() {
        let mut heap = Heap::new(64, 1 << 20, Arc::default());
        let cell = heap.make(Tag::Cell, &[UNSET]);
        let list = heap.cons(fixnum(1), cell);
        assert!(heap.freeze(list, 100).unwrap().1);
        heap.write_cell(cell, NIL);
        assert!(!heap.freeze(list, 100).unwrap().1);
    }
}
