//! The heap and its collector.
//!
//! A young collection copies what is alive of the young objects, then puts the copy where they were: it
//! ends old. A full collection copies everything. The collector runs only between instructions, when every
//! live value is in one of the roots that it is handed.

use std::sync::Arc;

use super::object::{Tag, header, is_header_of, is_raw_header, size_of, tag_of};
use super::segment::{Holdings, Number, Numbers, Segment, offset_of, slot_of};
use super::share::Shared;
use super::word::{
    CLOSURE, FROZEN, HEADER, MOVED, OBJECT, PAIR, SHARED, TAG_MASK, UNSET, Word, as_code, fixnum, fixnum_value, index,
    is_pointer, pointer,
};

/// The objects of the process that runs, and those that all processes share.
pub(crate) struct Heap {
    pub(super) words: Vec<Word>,
    pub(super) frozen: Arc<Vec<Word>>,
    /// The numbers of the segments of all processes.
    pub(super) numbers: Arc<Numbers>,
    /// That of the next segment.
    pub(super) number: Option<Number>,
    /// What the process that runs has to do with segments; most have nothing.
    pub(super) shared: Option<Box<Shared>>,
    /// Objects before this index are old.
    pub(super) old: usize,
    /// The length at which the next collection is due.
    pub(super) due: usize,
    /// The length of old objects at which the next collection is a full one.
    full_at: usize,
    /// The same for a process that parks with a small heap.
    compact_at: usize,
    /// Cells before `old` that were written since the last collection.
    written: Vec<usize>,
    nursery_words: usize,
    pub(super) limit_words: usize,
    stress: bool,
    spare: Vec<Word>,
    /// The words of the machine, while a process with a large heap runs in its own.
    nursery: Vec<Word>,
    /// The words of a transfer under way.
    pub(super) copy: Vec<Word>,
    /// Objects that a transfer has marked, and what was there.
    pub(super) marked: Vec<(usize, Word)>,
    collections: u64,
}

/// The objects of a process that does not run.
#[derive(Default)]
pub(crate) struct Space {
    words: Vec<Word>,
    old: usize,
    full_at: usize,
    compact_at: usize,
    written: Vec<usize>,
    shared: Option<Box<Shared>>,
}

impl Space {
    /// A heap of these words, all of them old, and of what they point to.
    pub(crate) fn new(words: Vec<Word>, segments: &[Arc<Segment>]) -> Self {
        let old = words.len();
        let shared = Shared::of_old(segments);
        Self { words, old, full_at: 0, compact_at: 2 * old + COMPACT_WORDS, written: Vec::new(), shared }
    }

    /// The bytes that it takes, besides itself; of segments all that it keeps alive.
    pub(crate) fn bytes(&self) -> usize {
        let shared = self.shared.as_ref().map_or(0, |shared| shared.bytes());
        8 * (self.words.capacity() + self.written.capacity()) + shared
    }
}

/// Heaps up to this size are copied into the machine's nursery when their process runs, and out of it.
const SMALL_WORDS: usize = 4096;
/// Small heaps may have so much garbage when they park, besides as much as is alive.
const COMPACT_WORDS: usize = 64;

/// Memory past the limit was asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl Heap {
    /// A heap whose live objects take at most `limit_words`, in a program whose segments have these numbers.
    pub(crate) fn new(nursery_words: usize, limit_words: usize, numbers: Arc<Numbers>) -> Self {
        let words = Vec::with_capacity(nursery_words.min(limit_words) + 1024);
        Self {
            words,
            frozen: Arc::default(),
            numbers,
            number: None,
            shared: None,
            old: 0,
            due: nursery_words,
            full_at: 4 * nursery_words,
            compact_at: COMPACT_WORDS,
            written: Vec::new(),
            nursery_words,
            limit_words,
            stress: false,
            spare: Vec::new(),
            nursery: Vec::new(),
            copy: Vec::new(),
            marked: Vec::new(),
            collections: 0,
        }
    }

    /// Makes every point that may collect do so: a value that no root holds is then found at once.
    pub(crate) fn set_stress(&mut self, stress: bool) {
        self.stress = stress;
        self.due = if stress { 0 } else { self.old + self.nursery_words };
    }

    /// Whether every point that may collect does so.
    pub(crate) fn is_stressed(&self) -> bool {
        self.stress
    }

    /// Sets the limit of live words.
    pub(crate) fn set_limit(&mut self, limit_words: usize) {
        self.limit_words = limit_words;
    }

    /// The limit of live words.
    pub(crate) fn limit(&self) -> usize {
        self.limit_words
    }

    /// How often the collector ran.
    pub(crate) fn collections(&self) -> u64 {
        self.collections
    }

    /// The words of this process in use, alive or not.
    pub(crate) fn len(&self) -> usize {
        self.words.len()
    }

    /// More words than any list has pairs, unless it is a cycle.
    pub(crate) fn span(&self) -> usize {
        self.words.len() + self.frozen.len() + self.numbers.words()
    }

    /// The segment that all processes share.
    pub(crate) fn frozen(&self) -> &Arc<Vec<Word>> {
        &self.frozen
    }

    /// Sets the shared segment, of which no word may be in use.
    pub(crate) fn set_frozen(&mut self, frozen: Arc<Vec<Word>>) {
        self.frozen = frozen;
    }

    /// The word at `at`: one comparison, as for any index, for a word of the process that runs.
    #[inline]
    fn word(&self, at: usize) -> Word {
        match self.words.get(at) {
            Some(word) => *word,
            None => self.far_word(at),
        }
    }

    // A call: inlined, or marked as cold, it slows the whole loop of instructions.
    #[inline(never)]
    fn far_word(&self, at: usize) -> Word {
        if at >= FROZEN { self.frozen[at - FROZEN] } else { self.segment_at(at).words()[offset_of(at)] }
    }

    /// The segment that holds what lies at `at`.
    fn segment_at(&self, at: usize) -> &Segment {
        self.shared.as_ref().expect("a heap that points to segments holds some").holdings.at(at)
    }

    /// The words among which those at `at` lie, and where there.
    pub(super) fn place(&self, at: usize) -> (&[Word], usize) {
        if at < self.words.len() {
            (&self.words, at)
        } else if at >= FROZEN {
            (&self.frozen, at - FROZEN)
        } else {
            (self.segment_at(at).words(), offset_of(at))
        }
    }

    /// Where the code of a closure begins.
    #[inline]
    pub(crate) fn entry(&self, closure: Word) -> usize {
        match as_code(closure) {
            Some(entry) => entry,
            None => fixnum_value(self.field(closure, 1)) as usize,
        }
    }

    /// Whether a collection is due.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.words.len() >= self.due
    }

    /// The words of this process in use, alive or not, with those of the segments that it keeps alive.
    pub(super) fn size(&self) -> usize {
        self.words.len() + self.shared.as_ref().map_or(0, |shared| shared.words())
    }

    /// Checks that `words` more fit the limit, before they are taken.
    ///
    /// # Errors
    /// [`Full`]: young objects that are dead count until they are collected, within the size of a nursery.
    pub(crate) fn reserve(&self, words: usize) -> Result<(), Full> {
        let most = self.limit_words.saturating_add(self.limit_words / 2).saturating_add(self.nursery_words);
        if self.size().saturating_add(words) > most { Err(Full) } else { Ok(()) }
    }

    /// The word at `offset` of the object that `word` points to; zero is its header.
    #[inline]
    pub(crate) fn field(&self, word: Word, offset: usize) -> Word {
        self.word(index(word) + offset)
    }

    /// The words of an object after its header.
    pub(crate) fn fields(&self, word: Word) -> &[Word] {
        let (words, at) = self.place(index(word));
        &words[at + 1..at + 1 + size_of(words[at])]
    }

    /// An item of the vector that `word` points to; `None` if it is another object, or has no such item.
    #[inline]
    pub(crate) fn item(&self, word: Word, at: usize) -> Option<Word> {
        let start = index(word);
        let first = self.word(start);
        let is_item = is_header_of(first, Tag::Vector) && at < size_of(first);
        if is_item { Some(self.word(start + 1 + at)) } else { None }
    }

    /// The kind of an object that is no pair; `None` for immediates and pairs.
    #[inline]
    pub(crate) fn tag(&self, word: Word) -> Option<Tag> {
        match word & TAG_MASK {
            CLOSURE => Some(Tag::Closure),
            OBJECT => Some(tag_of(self.word(index(word)))),
            _ => None,
        }
    }

    /// A pair.
    #[inline]
    pub(crate) fn cons(&mut self, car: Word, cdr: Word) -> Word {
        let at = self.words.len();
        self.words.extend_from_slice(&[car, cdr]);
        pointer(at, PAIR)
    }

    /// The first of a pair, which `word` must point to.
    #[inline]
    pub(crate) fn car(&self, word: Word) -> Word {
        self.word(index(word))
    }

    /// The second of a pair, which `word` must point to.
    #[inline]
    pub(crate) fn cdr(&self, word: Word) -> Word {
        self.word(index(word) + 1)
    }

    /// An object of these words.
    pub(crate) fn make(&mut self, tag: Tag, fields: &[Word]) -> Word {
        let at = self.words.len();
        self.words.push(header(tag, fields.len()));
        self.words.extend_from_slice(fields);
        pointer(at, if tag == Tag::Closure { CLOSURE } else { OBJECT })
    }

    /// An object of `first`, then `rest`.
    pub(crate) fn make_with(&mut self, tag: Tag, first: &[Word], rest: &[Word]) -> Word {
        let at = self.words.len();
        self.words.push(header(tag, first.len() + rest.len()));
        self.words.extend_from_slice(first);
        self.words.extend_from_slice(rest);
        pointer(at, if tag == Tag::Closure { CLOSURE } else { OBJECT })
    }

    /// A frame that returns to `parent`.
    #[inline]
    pub(crate) fn frame(&mut self, parent: Word, pc: u32, registers: &[Word]) -> Word {
        let at = self.words.len();
        self.words.reserve(3 + registers.len());
        self.words.extend_from_slice(&[header(Tag::Frame, 2 + registers.len()), parent, fixnum(i64::from(pc))]);
        self.words.extend_from_slice(registers);
        pointer(at, OBJECT)
    }

    /// An object of `size` times the same word.
    pub(crate) fn make_filled(&mut self, tag: Tag, size: usize, word: Word) -> Word {
        let at = self.words.len();
        self.words.push(header(tag, size));
        self.words.resize(at + 1 + size, word);
        pointer(at, OBJECT)
    }

    /// A list of these items, before `tail`.
    pub(crate) fn list(&mut self, items: &[Word], tail: Word) -> Word {
        items.iter().rev().fold(tail, |rest, &item| self.cons(item, rest))
    }

    /// A string.
    pub(crate) fn string(&mut self, text: &str) -> Word {
        let characters = text.chars().count() as u64;
        self.raw(Tag::String, ((text.len() as u64) << 32) | characters, text.as_bytes())
    }

    /// A bytevector.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Word {
        self.raw(Tag::Bytes, bytes.len() as u64, bytes)
    }

    fn raw(&mut self, tag: Tag, length: u64, bytes: &[u8]) -> Word {
        let at = self.words.len();
        self.words.push(header(tag, 1 + bytes.len().div_ceil(8)));
        self.words.push(length);
        self.words.extend(bytes.chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(word)
        }));
        pointer(at, OBJECT)
    }

    /// The characters of a string, in bytes and in number.
    pub(crate) fn string_lengths(&self, word: Word) -> (usize, usize) {
        let lengths = self.field(word, 1);
        ((lengths >> 32) as usize, (lengths & 0xffff_ffff) as usize)
    }

    /// The text of a string.
    pub(crate) fn text(&self, word: Word) -> String {
        let (length, _) = self.string_lengths(word);
        String::from_utf8(self.raw_bytes(word, length)).expect("strings are made of text")
    }

    /// The bytes of a bytevector.
    pub(crate) fn bytes_of(&self, word: Word) -> Vec<u8> {
        self.raw_bytes(word, self.field(word, 1) as usize)
    }

    fn raw_bytes(&self, word: Word, length: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.fields(word)[1..].iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.truncate(length);
        bytes
    }

    /// One byte of a string or a bytevector.
    #[inline]
    pub(crate) fn byte_at(&self, word: Word, at: usize) -> u8 {
        self.field(word, 2 + at / 8).to_le_bytes()[at % 8]
    }

    /// Appends objects whose pointers are already those that they will have here.
    pub(crate) fn adopt(&mut self, words: &[Word]) {
        self.words.extend_from_slice(words);
    }

    /// Fills a field of an object that was just made and that nothing else has seen.
    ///
    /// # Panics
    /// If the object is old: then a collection came between.
    pub(crate) fn patch(&mut self, word: Word, offset: usize, value: Word) {
        let at = index(word);
        assert!(at >= self.old, "an object is patched before a collection can see it");
        self.words[at + offset] = value;
    }

    /// Writes a cell, which must be unset.
    pub(crate) fn write_cell(&mut self, cell: Word, value: Word) {
        let at = index(cell);
        debug_assert_eq!(self.words[at + 1], UNSET);
        self.words[at + 1] = value;
        if at < self.old && is_pointer(value) {
            self.written.push(at);
        }
    }

    /// Takes the objects of the process that ran. What the roots reach is moved, if that makes them smaller:
    /// always if `parks`, or if the heap is small.
    ///
    /// # Errors
    /// [`Full`] if more is alive than the limit; the heap is still there then.
    pub(crate) fn save(&mut self, roots: &mut [&mut [Word]], parks: bool) -> Result<Space, Full> {
        if parks || self.words.len() <= SMALL_WORDS {
            let full = self.words.len() <= 2 * SMALL_WORDS && self.old >= self.compact_at;
            self.collect(roots, full)?;
            if full {
                self.compact_at = 2 * self.old + COMPACT_WORDS;
            }
        }
        let (old, full_at, compact_at) = (self.old, self.full_at, self.compact_at);
        let written = std::mem::take(&mut self.written);
        let words = if self.words.len() <= SMALL_WORDS {
            // A heap that has become small gives its memory back, below.
            self.words.to_vec()
        } else if self.nursery.capacity() > 0 {
            let mut own = std::mem::take(&mut self.words);
            if own.capacity() / 2 > own.len() + self.nursery_words {
                own.shrink_to(own.len() + self.nursery_words);
            }
            own
        } else {
            let mut own = Vec::with_capacity(self.words.len() + self.nursery_words);
            own.extend_from_slice(&self.words);
            own
        };
        let shared = self.shared.take();
        self.clear();
        Ok(Space { words, old, full_at, compact_at, written, shared })
    }

    /// Forgets the objects of the process that ran.
    pub(crate) fn clear(&mut self) {
        if self.nursery.capacity() > 0 {
            self.words = std::mem::take(&mut self.nursery);
        }
        self.words.clear();
        self.written.clear();
        self.shared = None;
        self.old = 0;
        self.full_at = 4 * self.nursery_words;
        self.compact_at = COMPACT_WORDS;
        self.due = if self.stress { 0 } else { self.nursery_words };
    }

    /// Puts the objects of a process in place; the heap must be clear.
    pub(crate) fn load(&mut self, space: Space) {
        let Space { words, old, full_at, compact_at, written, shared } = space;
        if words.len() <= SMALL_WORDS {
            self.words.extend_from_slice(&words);
        } else {
            self.nursery = std::mem::replace(&mut self.words, words);
        }
        (self.old, self.compact_at, self.written, self.shared) = (old, compact_at, written, shared);
        self.full_at = full_at.max(4 * self.nursery_words);
        self.due = if self.stress { 0 } else { self.old + self.nursery_words };
    }

    /// Moves what the roots reach, and forgets the rest. Every word of `roots` must be a value.
    ///
    /// # Errors
    /// [`Full`] if more is alive than the limit; the heap is whole, and larger than it may be.
    pub(crate) fn collect(&mut self, roots: &mut [&mut [Word]], full: bool) -> Result<(), Full> {
        self.collections += 1;
        let full = full || self.old >= self.full_at || self.has_sent_much();
        let from = if full { 0 } else { self.old };
        self.forward_sent(from);
        let to = std::mem::take(&mut self.spare);
        let mut holdings = self.shared.as_mut().map(|shared| &mut shared.holdings);
        holdings.iter_mut().for_each(|holdings| holdings.begin_round());
        let mut copy = Copy { words: &mut self.words, to, from, holdings, met: Vec::new() };
        copy.to.clear();
        for root in roots.iter_mut() {
            for word in root.iter_mut() {
                *word = copy.moved(*word);
            }
        }
        if !full {
            for at in std::mem::take(&mut self.written) {
                copy.words[at + 1] = copy.moved(copy.words[at + 1]);
            }
        }
        self.written.clear();
        copy.scan();
        let Copy { to, met, .. } = copy;
        if full {
            self.words = to;
        } else {
            self.words.truncate(from);
            self.words.extend_from_slice(&to);
            self.spare = to;
        }
        self.keep_met(&met, full);
        if full {
            self.census(roots);
            self.full_at = (2 * self.words.len()).max(4 * self.nursery_words);
        }
        self.old = self.words.len();
        self.due = if self.stress { 0 } else { self.old + self.nursery_words };
        let fits = self.size() <= self.limit_words;
        if fits && (full || !self.is_census_due()) {
            return Ok(());
        }
        // Old objects may be dead, and with them segments: only a full collection tells.
        if full { Err(Full) } else { self.collect(roots, true) }
    }
}

/// Copies objects, and leaves where they went in their place.
struct Copy<'a> {
    words: &'a mut Vec<Word>,
    to: Vec<Word>,
    /// Objects before this index stay; the first copy gets it.
    from: usize,
    holdings: Option<&'a mut Holdings>,
    /// The segments that what was copied points to.
    met: Vec<u32>,
}

impl Copy<'_> {
    fn moved(&mut self, word: Word) -> Word {
        if !is_pointer(word) {
            return word;
        }
        let at = index(word);
        if at < self.from {
            return word;
        }
        if at >= SHARED {
            self.meet(at);
            return word;
        }
        let first = self.words[at];
        if first & TAG_MASK == MOVED {
            let new = index(first);
            if new >= SHARED {
                self.meet(new);
            }
            return pointer(new, word & TAG_MASK);
        }
        let size = if first & TAG_MASK == HEADER { 1 + size_of(first) } else { 2 };
        let new = self.from + self.to.len();
        self.to.extend_from_slice(&self.words[at..at + size]);
        self.words[at] = pointer(new, MOVED);
        pointer(new, word & TAG_MASK)
    }

    // Few objects of few processes point out of the heap.
    #[cold]
    #[inline(never)]
    fn meet(&mut self, at: usize) {
        if at < FROZEN
            && let Some(holdings) = &mut self.holdings
            && holdings.meet(slot_of(at)).is_some()
        {
            self.met.push(slot_of(at));
        }
    }

    /// What was copied may point to what was not: the copy itself is the queue.
    fn scan(&mut self) {
        let mut at = 0;
        while at < self.to.len() {
            let first = self.to[at];
            let (start, end) =
                if first & TAG_MASK == HEADER { (at + 1, at + 1 + size_of(first)) } else { (at, at + 2) };
            if first & TAG_MASK != HEADER || !is_raw_header(first) {
                for field in start..end {
                    self.to[field] = self.moved(self.to[field]);
                }
            }
            at = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::word::{NIL, fixnum_value};
    use super::*;

    #[test]
    fn young_collection_keeps_reachable_objects_and_frees_the_rest() {
        let mut heap = Heap::new(64, 1 << 20, Arc::default());
        let kept = heap.list(&[fixnum(1), fixnum(2)], NIL);
        heap.list(&[fixnum(3); 100], NIL);
        let mut roots = [kept];
        heap.collect(&mut [&mut roots], false).unwrap();
        assert_eq!(heap.len(), 4);
        assert_eq!(fixnum_value(heap.car(heap.cdr(roots[0]))), 2);
    }

    #[test]
    fn an_old_cell_keeps_the_young_object_that_was_written_into_it() {
        let mut heap = Heap::new(64, 1 << 20, Arc::default());
        let mut roots = [heap.make(Tag::Cell, &[UNSET])];
        heap.collect(&mut [&mut roots], false).unwrap();
        let young = heap.cons(fixnum(7), NIL);
        heap.write_cell(roots[0], young);
        heap.collect(&mut [&mut roots], false).unwrap();
        assert_eq!(fixnum_value(heap.car(heap.field(roots[0], 1))), 7);
    }

    #[test]
    fn sharing_and_cycles_survive_a_full_collection() {
        let mut heap = Heap::new(64, 1 << 20, Arc::default());
        let cell = heap.make(Tag::Cell, &[UNSET]);
        let pair = heap.cons(cell, cell);
        heap.write_cell(cell, pair);
        let mut roots = [pair];
        heap.collect(&mut [&mut roots], true).unwrap();
        let pair = roots[0];
        assert_eq!(heap.car(pair), heap.cdr(pair));
        assert_eq!(heap.field(heap.car(pair), 1), pair);
    }

    #[test]
    fn collections_in_a_row_keep_what_is_alive_and_nothing_else() {
        let mut heap = Heap::new(64, 1 << 20, Arc::default());
        let mut roots = [heap.cons(fixnum(1), NIL)];
        for round in 1..=100 {
            heap.list(&[fixnum(0); 10], NIL);
            roots[0] = heap.cons(fixnum(round), NIL);
            heap.collect(&mut [&mut roots], false).unwrap();
            // The pairs of the rounds before are old and dead.
            assert!(heap.len() <= 2 * round as usize, "{} in round {round}", heap.len());
        }
        for _ in 0..100 {
            roots[0] = heap.list(&[fixnum(1); 40], NIL);
            heap.collect(&mut [&mut roots], false).unwrap();
            // A full collection is due at four nurseries.
            assert!(heap.len() <= 4 * 64 + 80, "{}", heap.len());
        }
    }

    #[test]
    fn dead_old_objects_make_room_at_the_limit() {
        let mut heap = Heap::new(64, 200, Arc::default());
        let mut roots = [NIL];
        for _ in 0..3 {
            roots[0] = heap.list(&[fixnum(1); 60], NIL);
            assert_eq!(heap.collect(&mut [&mut roots], false), Ok(()));
        }
    }

    #[test]
    fn full_collection_forgets_where_cells_were_written() {
        let mut heap = Heap::new(64, 1 << 20, Arc::default());
        let mut roots = [heap.make(Tag::Cell, &[UNSET])];
        heap.collect(&mut [&mut roots], false).unwrap();
        let young = heap.cons(fixnum(7), NIL);
        heap.write_cell(roots[0], young);
        // A flonum takes the place of the cell. Its bits look like a pointer to the second of two pairs.
        let bits = pointer(4, PAIR);
        roots[0] = heap.make(Tag::Flonum, &[bits]);
        heap.collect(&mut [&mut roots], true).unwrap();
        heap.list(&[fixnum(1); 2], NIL);
        heap.collect(&mut [&mut roots], false).unwrap();
        assert_eq!((heap.field(roots[0], 1), heap.len()), (bits, 2));
    }

    #[test]
    fn more_live_words_than_the_limit_are_refused() {
        let mut heap = Heap::new(16, 100, Arc::default());
        let mut roots = [heap.list(&[fixnum(1); 60], NIL)];
        assert_eq!(heap.collect(&mut [&mut roots], false), Err(Full));
        assert_eq!(heap.reserve(1 << 40), Err(Full));
    }
}
