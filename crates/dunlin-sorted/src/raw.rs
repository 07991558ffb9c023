//! The entries of a map, as bytes: a list of sorted lists of at most 128 entries.
//!
//! [`Chunks`] knows the types of keys and values and is the safe face of [`Raw`], which knows only the size
//! of an entry. All `unsafe` code of the crate is here.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error, realloc};
use std::borrow::Borrow;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, needs_drop};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The chunk of an entry, and its index there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) chunk: usize,
    pub(crate) at: usize,
}

impl Place {
    pub(crate) const START: Self = Self { chunk: 0, at: 0 };

    /// As a number. A chunk has at most 128 entries, so the eight lowest bits are enough for an index.
    fn number(self) -> usize {
        self.chunk << 8 | self.at
    }

    fn of(number: usize) -> Self {
        Self { chunk: number >> 8, at: number & 0xff }
    }
}

/// A key and its value. The key is at the start, where a search that does not know the value finds it.
#[repr(C)]
struct Entry<K, V> {
    key: K,
    value: V,
}

/// What [`Raw`] knows of its entries.
struct Shape {
    entry: Layout,
    /// How many entries a chunk has at most.
    most: usize,
}

impl Shape {
    const fn of<K, V>() -> Self {
        let entry = Layout::new::<Entry<K, V>>();
        assert!(entry.size() > 0, "a map of entries without bytes has one entry at most");
        let fit = 2048 / entry.size();
        Self {
            entry,
            most: if fit < 16 {
                16
            } else if fit > 128 {
                128
            } else {
                fit
            },
        }
    }

    fn bytes(&self, capacity: usize) -> Layout {
        let size = self.entry.size().checked_mul(capacity).expect("a chunk fits into memory");
        Layout::from_size_align(size, self.entry.align()).expect("a chunk fits into memory")
    }
}

/// A sorted list. The bytes of its entries are owned by the [`Chunks`] around it.
struct Chunk {
    /// Dangling without capacity.
    entries: NonNull<u8>,
    len: u32,
    capacity: u32,
}

// SAFETY: a chunk is only storage. `Chunks` is the only way to the entries, and has markers of their types.
unsafe impl Send for Chunk {}
// SAFETY: as above.
unsafe impl Sync for Chunk {}

/// All methods that take a [`Shape`] need the one of the entries that are in the chunk.
impl Chunk {
    const EMPTY: Self = Self { entries: NonNull::dangling(), len: 0, capacity: 0 };

    fn len(&self) -> usize {
        self.len as usize
    }

    /// The entry of this index, or the place behind the last one.
    ///
    /// # Safety
    ///
    /// `at` is at most the capacity.
    unsafe fn at(&self, at: usize, shape: &Shape) -> NonNull<u8> {
        debug_assert!(at <= self.capacity as usize);
        // SAFETY: the allocation has `capacity` entries.
        unsafe { self.entries.add(at * shape.entry.size()) }
    }

    /// The key of the entry of this index.
    ///
    /// # Safety
    ///
    /// `at` is below `len`, and the keys of the entries are `K`s.
    unsafe fn key<K>(&self, at: usize, shape: &Shape) -> &K {
        // SAFETY: as this method's; an entry begins with its key.
        unsafe { self.at(at, shape).cast().as_ref() }
    }

    /// # Safety
    ///
    /// `capacity` is not below `len`, and at most 128.
    unsafe fn set_capacity(&mut self, capacity: usize, shape: &Shape) {
        let (old, new) = (shape.bytes(self.capacity as usize), shape.bytes(capacity));
        // SAFETY: `entries` has the layout `old` if its size is not 0, and no size is 0 where it is used.
        self.entries = unsafe {
            if new.size() == 0 {
                if old.size() > 0 {
                    dealloc(self.entries.as_ptr(), old);
                }
                NonNull::dangling()
            } else {
                let entries =
                    if old.size() == 0 { alloc(new) } else { realloc(self.entries.as_ptr(), old, new.size()) };
                NonNull::new(entries).unwrap_or_else(|| handle_alloc_error(new))
            }
        };
        self.capacity = capacity as u32;
    }

    /// Room for an entry at this index, which the caller fills.
    ///
    /// # Safety
    ///
    /// `at` is at most `len`, which is below `shape.most`.
    unsafe fn open(&mut self, at: usize, shape: &Shape) -> NonNull<u8> {
        if self.len == self.capacity {
            let more = if self.len == 0 { 1 } else { (2 * self.len()).max(4) };
            // SAFETY: it grows.
            unsafe { self.set_capacity(more.min(shape.most), shape) };
        }
        // SAFETY: `len` is below the capacity, so the entries behind `at` may move by one.
        unsafe {
            let entry = self.at(at, shape);
            if at < self.len() {
                ptr::copy(entry.as_ptr(), self.at(at + 1, shape).as_ptr(), (self.len() - at) * shape.entry.size());
            }
            self.len += 1;
            entry
        }
    }

    /// Closes the gap of an entry that the caller has moved out.
    ///
    /// # Safety
    ///
    /// `at` is below `len`.
    unsafe fn close(&mut self, at: usize, shape: &Shape) {
        // SAFETY: the entries behind `at` move by one.
        unsafe {
            if at + 1 < self.len() {
                let behind = self.at(at + 1, shape);
                ptr::copy(behind.as_ptr(), self.at(at, shape).as_ptr(), (self.len() - at - 1) * shape.entry.size());
            }
        }
        self.len -= 1;
    }

    /// Moves the entries from this index on into a chunk of their own.
    ///
    /// # Safety
    ///
    /// `at` is at most `len`.
    unsafe fn split_off(&mut self, at: usize, shape: &Shape) -> Self {
        let mut upper = Self::EMPTY;
        let moved = self.len() - at;
        // SAFETY: the new chunk has room for what it gets.
        unsafe {
            upper.set_capacity(moved, shape);
            ptr::copy_nonoverlapping(self.at(at, shape).as_ptr(), upper.entries.as_ptr(), moved * shape.entry.size());
        }
        (self.len, upper.len) = (at as u32, moved as u32);
        upper
    }

    /// Moves all entries of the next chunk behind these.
    ///
    /// # Safety
    ///
    /// Both have at most `shape.most` entries together.
    unsafe fn append(&mut self, mut next: Self, shape: &Shape) {
        let len = self.len() + next.len();
        // SAFETY: there is room for the entries of `next`, which has none afterwards.
        unsafe {
            if len > self.capacity as usize {
                self.set_capacity(len, shape);
            }
            let end = self.at(self.len(), shape).as_ptr();
            ptr::copy_nonoverlapping(next.entries.as_ptr(), end, next.len() * shape.entry.size());
            next.len = 0;
            next.set_capacity(0, shape);
        }
        self.len = len as u32;
    }
}

/// Chunks of entries whose types it does not know. It does not drop them.
struct Raw {
    /// Each is sorted, and below the next. None is empty, except one that is the only one.
    chunks: Vec<Chunk>,
    len: usize,
    /// The place of the key that was found last. Most keys are looked up several times in succession: the
    /// chunks are searched only for the first. (It is no `Cell`, so that the map is `Sync`.)
    last: AtomicUsize,
}

/// All methods that take a [`Shape`] need the one of the entries that are in the chunks.
impl Raw {
    const fn new() -> Self {
        Self { chunks: Vec::new(), len: 0, last: AtomicUsize::new(0) }
    }

    /// The entry of this place.
    ///
    /// # Safety
    ///
    /// See above.
    #[inline]
    unsafe fn get(&self, place: Place, shape: &Shape) -> Option<NonNull<u8>> {
        let chunk = self.chunks.get(place.chunk)?;
        // SAFETY: the index is below `len`.
        (place.at < chunk.len()).then(|| unsafe { chunk.at(place.at, shape) })
    }

    /// The place of this key: `Err`, where it belongs.
    ///
    /// # Safety
    ///
    /// The keys of the entries are `K`s.
    unsafe fn search_tree<K: Borrow<Q>, Q: Ord + ?Sized>(&self, key: &Q, shape: &Shape) -> Result<Place, Place> {
        // The last chunk whose first key is not above this one.
        let (mut chunk, mut above) = (0, self.chunks.len());
        while above - chunk > 1 {
            let middle = usize::midpoint(chunk, above);
            // SAFETY: no chunk of several is empty.
            if unsafe { self.chunks[middle].key::<K>(0, shape) }.borrow() <= key {
                chunk = middle
            } else {
                above = middle
            }
        }
        let Some(entries) = self.chunks.get(chunk) else { return Err(Place::START) };
        let (mut at, mut above) = (0, entries.len());
        while at < above {
            let middle = usize::midpoint(at, above);
            // SAFETY: the index is below `len`.
            match unsafe { entries.key::<K>(middle, shape) }.borrow().cmp(key) {
                std::cmp::Ordering::Less => at = middle + 1,
                std::cmp::Ordering::Greater => above = middle,
                std::cmp::Ordering::Equal => return Ok(Place { chunk, at: middle }),
            }
        }
        Err(Place { chunk, at })
    }

    /// As [`search_tree`](Self::search_tree), and what it finds is found last.
    ///
    /// # Safety
    ///
    /// As of `search_tree`.
    unsafe fn search_on<K: Borrow<Q>, Q: Ord + ?Sized>(&self, key: &Q, shape: &Shape) -> Result<Place, Place> {
        if self.len == 0 {
            return Err(Place::START);
        }
        // SAFETY: as this method's.
        let place = unsafe { self.search_tree::<K, Q>(key, shape)? };
        self.last.store(place.number(), Ordering::Relaxed);
        Ok(place)
    }

    /// The place and the entry that were found last, if they are those of this key.
    ///
    /// # Safety
    ///
    /// As of `search_tree`.
    #[inline(always)]
    unsafe fn found_last<K: Borrow<Q>, Q: Ord + ?Sized>(&self, key: &Q, shape: &Shape) -> Option<(Place, NonNull<u8>)> {
        let last = Place::of(self.last.load(Ordering::Relaxed));
        // SAFETY: as this method's; the entries begin with their keys.
        unsafe {
            let entry = self.get(last, shape)?;
            (entry.cast::<K>().as_ref().borrow() == key).then_some((last, entry))
        }
    }

    /// The entry of this key.
    ///
    /// # Safety
    ///
    /// As of `search_tree`.
    #[inline]
    unsafe fn locate<K: Borrow<Q>, Q: Ord + ?Sized>(&self, key: &Q, shape: &Shape) -> Option<NonNull<u8>> {
        // SAFETY: as this method's.
        unsafe {
            match self.found_last::<K, Q>(key, shape) {
                Some((_, entry)) => Some(entry),
                None => self.locate_on::<K, Q>(key, shape),
            }
        }
    }

    /// As [`locate`](Self::locate), for a key that was not found last.
    ///
    /// # Safety
    ///
    /// As of `search_tree`.
    #[inline(never)]
    unsafe fn locate_on<K: Borrow<Q>, Q: Ord + ?Sized>(&self, key: &Q, shape: &Shape) -> Option<NonNull<u8>> {
        // SAFETY: as this method's.
        unsafe { self.get(self.search_on::<K, Q>(key, shape).ok()?, shape) }
    }

    /// The place of this key: `Err`, where it belongs. What it finds is found last.
    ///
    /// # Safety
    ///
    /// As of `search_tree`.
    #[inline(never)]
    unsafe fn find<K: Borrow<Q>, Q: Ord + ?Sized>(&self, key: &Q, shape: &Shape) -> Result<Place, Place> {
        // SAFETY: as this method's.
        unsafe {
            match self.found_last::<K, Q>(key, shape) {
                Some((place, _)) => Ok(place),
                None => self.search_on::<K, Q>(key, shape),
            }
        }
    }

    /// Room for an entry at this place, which the caller fills, and the place that it got.
    ///
    /// # Safety
    ///
    /// The place is one of an entry, or behind one.
    unsafe fn open(&mut self, place: Place, shape: &Shape) -> (Place, NonNull<u8>) {
        let Place { mut chunk, mut at } = place;
        self.len += 1;
        if self.chunks.is_empty() {
            self.chunks.reserve_exact(1);
            self.chunks.push(Chunk::EMPTY);
        }
        if at == shape.most && self.chunks.get(chunk + 1).is_some_and(|next| next.len() < shape.most) {
            (chunk, at) = (chunk + 1, 0);
        } else if self.chunks[chunk].len() == shape.most {
            // Keys that come in order leave full chunks behind.
            let middle = if at == shape.most { at } else { shape.most / 2 };
            // SAFETY: it has `most` entries.
            let upper = unsafe { self.chunks[chunk].split_off(middle, shape) };
            self.chunks.insert(chunk + 1, upper);
            if at > middle || middle == shape.most {
                (chunk, at) = (chunk + 1, at - middle);
            }
        }
        let opened = Place { chunk, at };
        self.last = AtomicUsize::new(opened.number());
        // SAFETY: the chunk is not full, and `at` is one of its indices or its end.
        (opened, unsafe { self.chunks[chunk].open(at, shape) })
    }

    /// Closes the gap of an entry that the caller has moved out.
    ///
    /// # Safety
    ///
    /// The place had that entry.
    unsafe fn close(&mut self, Place { chunk, at }: Place, shape: &Shape) {
        self.len -= 1;
        // SAFETY: as this method's.
        unsafe {
            self.chunks[chunk].close(at, shape);
            self.tidy(chunk, shape);
        }
    }

    /// Entries of this chunk have been taken. It goes if it is empty, and gets the entries of the next one
    /// behind its own if both have few. `false`: it did one of these.
    ///
    /// # Safety
    ///
    /// See above.
    unsafe fn tidy(&mut self, chunk: usize, shape: &Shape) -> bool {
        let (len, count) = (self.chunks[chunk].len(), self.chunks.len());
        // SAFETY: capacities stay above lengths; the chunk that is removed is empty.
        unsafe {
            if len == 0 && count > 1 {
                self.chunks.remove(chunk).set_capacity(0, shape);
            } else if len == 0 {
                self.shrink(chunk, 4, shape);
            } else if len < shape.most / 4 {
                let next = self.chunks.get(chunk + 1).map_or(usize::MAX, Chunk::len);
                if next <= shape.most / 2 - len {
                    let next = self.chunks.remove(chunk + 1);
                    self.chunks[chunk].append(next, shape);
                } else {
                    self.shrink(chunk, 2 * len, shape);
                }
            }
        }
        if self.chunks.capacity() > 16 && self.chunks.len() < self.chunks.capacity() / 4 {
            self.chunks.shrink_to(2 * self.chunks.len());
        }
        self.chunks.len() == count
    }

    /// # Safety
    ///
    /// `capacity` is not below the length of the chunk.
    unsafe fn shrink(&mut self, chunk: usize, capacity: usize, shape: &Shape) {
        let entries = &mut self.chunks[chunk];
        if entries.capacity > 16 && capacity < entries.capacity as usize {
            // SAFETY: as this method's.
            unsafe { entries.set_capacity(capacity, shape) }
        }
    }

    /// Behind the last entry.
    fn end(&self) -> Place {
        let chunk = self.chunks.len().saturating_sub(1);
        Place { chunk, at: self.chunks.last().map_or(0, Chunk::len) }
    }

    /// This place, or the start of the next chunk if the place is behind the entries of its own.
    fn next_of(&self, place: Place) -> Place {
        let is_end = self.chunks.get(place.chunk).is_some_and(|chunk| place.at >= chunk.len());
        if is_end && place.chunk + 1 < self.chunks.len() { Place { chunk: place.chunk + 1, at: 0 } } else { place }
    }
}

/// Drops entries in their order, then the chunks; also when the drop of one panics.
struct Dropping<'a> {
    raw: Raw,
    next: Place,
    shape: &'a Shape,
    drop_entry: Option<unsafe fn(NonNull<u8>)>,
}

impl<'a> Dropping<'a> {
    /// Takes all chunks of `raw`, and drops the entries from `next` on, unless their drop does nothing.
    ///
    /// # Safety
    ///
    /// The shape and `drop_entry` are those of the entries. Those before `next` are not used again.
    unsafe fn run(raw: &mut Raw, next: Place, shape: &'a Shape, drop_entry: Option<unsafe fn(NonNull<u8>)>) {
        let raw = std::mem::replace(raw, Raw::new());
        Self { raw, next, shape, drop_entry }.go_on();
    }

    fn go_on(&mut self) {
        if let Some(drop_entry) = self.drop_entry {
            self.next = self.raw.next_of(self.next);
            // SAFETY: each entry is dropped once: `next` is behind it before it is dropped.
            while let Some(entry) = unsafe { self.raw.get(self.next, self.shape) } {
                self.next = self.raw.next_of(Place { at: self.next.at + 1, ..self.next });
                // SAFETY: as above.
                unsafe { drop_entry(entry) };
            }
        }
        for mut chunk in std::mem::take(&mut self.raw.chunks) {
            chunk.len = 0;
            // SAFETY: its entries are dropped.
            unsafe { chunk.set_capacity(0, self.shape) };
        }
    }
}

impl Drop for Dropping<'_> {
    fn drop(&mut self) {
        self.go_on();
    }
}

/// Sorted lists of entries: what a map is made of.
pub(crate) struct Chunks<K, V> {
    raw: Raw,
    entries: PhantomData<Entry<K, V>>,
}

impl<K, V> Chunks<K, V> {
    const SHAPE: &'static Shape = &Shape::of::<K, V>();

    pub(crate) const fn new() -> Self {
        Self { raw: Raw::new(), entries: PhantomData }
    }

    pub(crate) fn len(&self) -> usize {
        self.raw.len
    }

    /// Behind the last entry.
    pub(crate) fn end(&self) -> Place {
        self.raw.end()
    }

    /// As [`Raw::next_of`].
    pub(crate) fn next_of(&self, place: Place) -> Place {
        self.raw.next_of(place)
    }

    #[inline]
    pub(crate) fn entry(&self, place: Place) -> Option<(&K, &V)> {
        // SAFETY: the entries are `Entry<K, V>`, borrowed as `self` is.
        let entry = unsafe { self.raw.get(place, Self::SHAPE)?.cast::<Entry<K, V>>().as_ref() };
        Some((&entry.key, &entry.value))
    }

    #[inline]
    pub(crate) fn entry_mut(&mut self, place: Place) -> Option<(&K, &mut V)> {
        // SAFETY: the entries are `Entry<K, V>`, borrowed as `self` is.
        let entry = unsafe { self.raw.get(place, Self::SHAPE)?.cast::<Entry<K, V>>().as_mut() };
        Some((&entry.key, &mut entry.value))
    }

    /// Puts an entry at this place, which a search has given, and returns the place that it got.
    pub(crate) fn put(&mut self, place: Place, key: K, value: V) -> Place {
        assert!(place.at <= self.raw.chunks.get(place.chunk).map_or(0, Chunk::len), "the place is one of the map");
        // SAFETY: the place has an entry or is behind one, and the room is filled at once.
        unsafe {
            let (put, room) = self.raw.open(place, Self::SHAPE);
            room.cast().write(Entry { key, value });
            put
        }
    }

    /// Removes the entry of this place.
    pub(crate) fn take(&mut self, place: Place) -> Option<(K, V)> {
        // SAFETY: the entry is moved out before its gap is closed.
        let Entry { key, value } = unsafe {
            let entry = self.raw.get(place, Self::SHAPE)?.cast::<Entry<K, V>>().read();
            self.raw.close(place, Self::SHAPE);
            entry
        };
        Some((key, value))
    }

    /// Many entries have been taken: neighbours with few become one chunk.
    pub(crate) fn tidy(&mut self) {
        let mut chunk = 0;
        while chunk < self.raw.chunks.len() {
            // SAFETY: the shape is that of the entries.
            if unsafe { self.raw.tidy(chunk, Self::SHAPE) } {
                chunk += 1;
            }
        }
    }

    /// The place of this key, without a look at what was found last: `Err`, where it belongs.
    pub(crate) fn search<Q: Ord + ?Sized>(&self, key: &Q) -> Result<Place, Place>
    where
        K: Borrow<Q>,
    {
        // SAFETY: the keys are `K`s.
        unsafe { self.raw.search_tree::<K, Q>(key, Self::SHAPE) }
    }

    /// The entry of this key.
    #[inline]
    pub(crate) fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
    {
        // SAFETY: the keys are `K`s, and the entries are borrowed as `self` is.
        let entry = unsafe { self.raw.locate::<K, Q>(key, Self::SHAPE)?.cast::<Entry<K, V>>().as_ref() };
        Some((&entry.key, &entry.value))
    }

    /// The value of this key, to be changed.
    #[inline]
    pub(crate) fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        // SAFETY: the keys are `K`s, and the entries are borrowed as `self` is.
        let entry = unsafe { self.raw.locate::<K, Q>(key, Self::SHAPE)?.cast::<Entry<K, V>>().as_mut() };
        Some(&mut entry.value)
    }

    /// The place of this key: `Err`, where it belongs. What it finds is found last.
    pub(crate) fn find<Q: Ord + ?Sized>(&self, key: &Q) -> Result<Place, Place>
    where
        K: Borrow<Q>,
    {
        // SAFETY: the keys are `K`s.
        unsafe { self.raw.find::<K, Q>(key, Self::SHAPE) }
    }

    /// The entries from `front` up to `back`.
    pub(crate) fn between(&self, front: Place, back: Place) -> Iter<'_, K, V> {
        Iter { between: Between::new(&self.raw, front, back), entries: PhantomData }
    }

    /// As [`between`](Self::between).
    pub(crate) fn between_mut(&mut self, front: Place, back: Place) -> IterMut<'_, K, V> {
        IterMut { between: Between::new(&self.raw, front, back), entries: PhantomData }
    }

    pub(crate) fn into_iter(self) -> IntoIter<K, V> {
        IntoIter { chunks: ManuallyDrop::new(self), next: Place::START }
    }

    /// # Safety
    ///
    /// `entry` is one of these chunks, and is not used again.
    unsafe fn drop_entry(entry: NonNull<u8>) {
        // SAFETY: as this function's.
        unsafe { entry.cast::<Entry<K, V>>().drop_in_place() }
    }

    /// Drops the entries from this place on, and the chunks.
    #[inline]
    fn drop_from(&mut self, place: Place) {
        let drop_entry =
            const { if needs_drop::<Entry<K, V>>() { Some(Self::drop_entry as unsafe fn(_)) } else { None } };
        // SAFETY: the shape is that of the entries; those before the place have been moved out.
        unsafe { Dropping::run(&mut self.raw, place, Self::SHAPE, drop_entry) }
    }
}

#[cfg(test)]
impl<K, V> Chunks<K, V> {
    /// The lengths of the chunks, and the largest allowed one.
    pub(crate) fn lens(&self) -> (Vec<usize>, usize) {
        (self.raw.chunks.iter().map(Chunk::len).collect(), Self::SHAPE.most)
    }

    /// The memory of the chunks.
    pub(crate) fn bytes(&self) -> usize {
        let chunks = self.raw.chunks.iter().map(|chunk| chunk.capacity as usize * Self::SHAPE.entry.size());
        self.raw.chunks.capacity() * size_of::<Chunk>() + chunks.sum::<usize>()
    }
}

impl<K, V> Drop for Chunks<K, V> {
    fn drop(&mut self) {
        if !self.raw.chunks.is_empty() {
            self.drop_from(Place::START);
        }
    }
}

/// The entries between two places.
#[derive(Clone, Copy)]
struct Between<'a> {
    chunks: &'a [Chunk],
    front: Place,
    back: Place,
}

/// All methods that take a [`Shape`] need the one of the entries.
impl<'a> Between<'a> {
    fn new(raw: &'a Raw, front: Place, back: Place) -> Self {
        let at = back.at.min(raw.chunks.get(back.chunk).map_or(0, Chunk::len));
        Self { chunks: &raw.chunks, front, back: Place { at, ..back } }
    }

    /// # Safety
    ///
    /// See above.
    unsafe fn next(&mut self, shape: &Shape) -> Option<NonNull<u8>> {
        while self.front < self.back {
            let (chunk, at) = (&self.chunks[self.front.chunk], self.front.at);
            if at < chunk.len() {
                self.front.at += 1;
                // SAFETY: the index is below the length.
                return Some(unsafe { chunk.at(at, shape) });
            }
            self.front = Place { chunk: self.front.chunk + 1, at: 0 };
        }
        None
    }

    /// # Safety
    ///
    /// See above.
    unsafe fn next_back(&mut self, shape: &Shape) -> Option<NonNull<u8>> {
        while self.front < self.back {
            if self.back.at > 0 {
                self.back.at -= 1;
                // SAFETY: it was at most the length of its chunk.
                return Some(unsafe { self.chunks[self.back.chunk].at(self.back.at, shape) });
            }
            let chunk = self.back.chunk - 1;
            self.back = Place { chunk, at: self.chunks[chunk].len() };
        }
        None
    }
}

/// The entries of a [`SortedMap`](crate::SortedMap).
pub struct Iter<'a, K, V> {
    between: Between<'a>,
    entries: PhantomData<&'a Entry<K, V>>,
}

impl<K, V> Clone for Iter<'_, K, V> {
    fn clone(&self) -> Self {
        Self { ..*self }
    }
}

impl<'a, K, V> Iter<'a, K, V> {
    fn of(entry: NonNull<u8>) -> (&'a K, &'a V) {
        // SAFETY: only entries of the map come here, which is borrowed for `'a`.
        let entry = unsafe { entry.cast::<Entry<K, V>>().as_ref() };
        (&entry.key, &entry.value)
    }
}

impl<'a, K, V> Iterator for Iter<'a, K, V> {
    type Item = (&'a K, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        // SAFETY: the shape is that of the entries.
        unsafe { self.between.next(Chunks::<K, V>::SHAPE) }.map(Self::of)
    }
}

impl<K, V> DoubleEndedIterator for Iter<'_, K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        // SAFETY: the shape is that of the entries.
        unsafe { self.between.next_back(Chunks::<K, V>::SHAPE) }.map(Self::of)
    }
}

/// The entries of a [`SortedMap`](crate::SortedMap), with values to be changed.
pub struct IterMut<'a, K, V> {
    between: Between<'a>,
    entries: PhantomData<&'a mut Entry<K, V>>,
}

impl<'a, K, V> Iterator for IterMut<'a, K, V> {
    type Item = (&'a K, &'a mut V);

    fn next(&mut self) -> Option<Self::Item> {
        // SAFETY: the shape is that of the entries; each comes once, and the map is borrowed for `'a`.
        let entry = unsafe { self.between.next(Chunks::<K, V>::SHAPE)?.cast::<Entry<K, V>>().as_mut() };
        Some((&entry.key, &mut entry.value))
    }
}

/// The entries of a [`SortedMap`](crate::SortedMap) that is not needed any more.
pub struct IntoIter<K, V> {
    /// Without the entries before `next`.
    chunks: ManuallyDrop<Chunks<K, V>>,
    next: Place,
}

impl<K, V> Iterator for IntoIter<K, V> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        let raw = &self.chunks.raw;
        let place = raw.next_of(self.next);
        // SAFETY: the shape is that of the entries, and each is read once.
        let Entry { key, value } = unsafe { raw.get(place, Chunks::<K, V>::SHAPE)?.cast::<Entry<K, V>>().read() };
        self.next = Place { at: place.at + 1, ..place };
        Some((key, value))
    }
}

impl<K, V> Drop for IntoIter<K, V> {
    fn drop(&mut self) {
        self.chunks.drop_from(self.next);
    }
}
