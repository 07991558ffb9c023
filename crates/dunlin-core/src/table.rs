//! Tables whose entries never move and are never freed, only reused.
//!
//! A reference to an entry stays valid for the life of the program. So the waker of a `par!` branch can be
//! two numbers in a word, without a count, and a snapshot can read a wait record without a lock. A stale
//! reference finds an entry that has a new user by then: at worst there is a wake or a line too many.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::lock::Lock;

const FIRST_CHUNK: usize = if cfg!(loom) { 4 } else { 64 };
/// Chunks double, so 26 of them hold more than 2^31 entries: an index always fits into 32 bits.
const CHUNKS: usize = 26;
const NONE: u32 = u32::MAX;

/// An entry of a table.
pub(crate) struct Entry<T> {
    /// While the entry is free: the next free one. While it is in use: any number of its user. (Records are
    /// many and small.)
    pub(crate) link: AtomicU32,
    index: u32,
    value: T,
}

impl<T> Entry<T> {
    /// Its number in its table.
    #[inline(always)]
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// The value itself, which lives as long as the table.
    pub(crate) fn value(&'static self) -> &'static T {
        &self.value
    }
}

impl<T> std::ops::Deref for Entry<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

struct Free {
    head: u32,
    /// How many entries have ever been handed out.
    fresh: u32,
}

/// A growing table of entries that are handed out and returned.
pub(crate) struct Table<T: 'static> {
    chunks: [OnceLock<Box<[Entry<T>]>>; CHUNKS],
    free: Lock<Free>,
}

impl<T: Default + Sync> Table<T> {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Self { chunks: [const { OnceLock::new() }; CHUNKS], free: Lock::new(Free { head: NONE, fresh: 0 }) }
    }

    /// The first chunk is made at once: loom does not know `OnceLock`, and would miss its ordering.
    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        let table =
            Self { chunks: [const { OnceLock::new() }; CHUNKS], free: Lock::new(Free { head: NONE, fresh: 0 }) };
        table.chunk(0);
        table
    }

    /// Takes an entry: a returned one, as it was left, or a new one.
    pub(crate) fn take(&'static self) -> &'static Entry<T> {
        let mut free = self.free.lock();
        if free.head != NONE {
            let entry = self.get(free.head).expect("what was given back exists");
            free.head = entry.link.load(Ordering::Relaxed);
            return entry;
        }
        let index = free.fresh;
        assert!(index < NONE, "more than 2^32 - 1 channels or parallel compositions at once");
        free.fresh += 1;
        drop(free);
        let (chunk, offset) = place(index);
        &self.chunk(chunk)[offset]
    }

    /// Several threads may call this for one chunk; `OnceLock` lets one of them make it.
    fn chunk(&self, chunk: usize) -> &[Entry<T>] {
        self.chunks[chunk].get_or_init(|| {
            let first = (FIRST_CHUNK << chunk) - FIRST_CHUNK;
            let indices = (first..).take(FIRST_CHUNK << chunk).map(|index| index as u32);
            indices.map(|index| Entry { link: AtomicU32::new(NONE), index, value: T::default() }).collect()
        })
    }

    /// Returns an entry. The caller must no longer use it as its own.
    pub(crate) fn give(&'static self, entry: &'static Entry<T>) {
        let mut free = self.free.lock();
        entry.link.store(free.head, Ordering::Relaxed);
        free.head = entry.index;
    }

    /// The entry at `index`, in use or not; `None` if there never was one.
    #[inline]
    pub(crate) fn get(&'static self, index: u32) -> Option<&'static Entry<T>> {
        let (chunk, offset) = place(index);
        self.chunks.get(chunk)?.get()?.get(offset)
    }

    /// All entries that exist, in use or not.
    pub(crate) fn iter(&'static self) -> impl Iterator<Item = &'static Entry<T>> {
        self.chunks.iter().filter_map(|chunk| chunk.get()).flat_map(|chunk| chunk.iter())
    }
}

#[inline]
fn place(index: u32) -> (usize, usize) {
    let position = index as usize + FIRST_CHUNK;
    let chunk = (usize::BITS - 1 - position.leading_zeros()) as usize - FIRST_CHUNK.trailing_zeros() as usize;
    (chunk, position - (FIRST_CHUNK << chunk))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn places_are_dense() {
        let mut expected = (0, 0);
        for index in 0..10_000 {
            assert_eq!(place(index), expected);
            expected = if expected.1 + 1 == FIRST_CHUNK << expected.0 {
                (expected.0 + 1, 0)
            } else {
                (expected.0, expected.1 + 1)
            };
        }
        let last = place(u32::MAX - 1);
        assert!(last.0 <= CHUNKS, "{last:?}");
    }

    #[test]
    fn returned_entry_is_reused() {
        static TABLE: Table<AtomicU32> = Table::new();
        let taken: Vec<_> = (0..200).map(|_| TABLE.take()).collect();
        for (n, entry) in taken.iter().enumerate() {
            assert_eq!(entry.index() as usize, n);
            entry.value().store(n as u32, Ordering::Relaxed);
        }
        TABLE.give(taken[7]);
        assert_eq!(TABLE.take().index(), 7);
        assert_eq!(TABLE.get(150).unwrap().value().load(Ordering::Relaxed), 150);
        assert_eq!(TABLE.iter().filter(|e| e.value().load(Ordering::Relaxed) > 0).count(), 199);
    }
}
