//! Maps and sets in the order of their keys, in place of those of `std`.
//!
//! A [`BTreeMap`](std::collections::BTreeMap) is compiled anew for each type of key and value, 6,000 to
//! 10,000 lines of LLVM's language each. Trees were half of what this crate compiled to, and a fifth of what
//! `dunlin` did. The maps here take about a tenth of that. They are trees of two levels: a list of sorted
//! lists.

use std::borrow::Borrow;
use std::fmt;
use std::ops::{Bound, Index, RangeBounds};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A map with the methods of a [`BTreeMap`](std::collections::BTreeMap). All iteration is in the order of the
/// keys.
///
/// Looking up a key takes logarithmic time. Inserting or removing one moves 2 KiB of entries, or 16 entries
/// if these are larger, and once in some ten times the list of lists.
pub struct SortedMap<K, V> {
    /// Each is sorted, and below the next. None is empty, except one that is the only one.
    chunks: Vec<Vec<(K, V)>>,
    len: usize,
    /// The place of the key that was found last. Most keys are looked up several times in succession: the
    /// tree is searched only for the first. (It is no `Cell`, so that the map is `Sync`.)
    last: AtomicUsize,
}

/// An entry's chunk, and its place there.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    chunk: usize,
    at: usize,
}

impl<K, V> Default for SortedMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Clone, V: Clone> Clone for SortedMap<K, V> {
    fn clone(&self) -> Self {
        Self { chunks: self.chunks.clone(), len: self.len, last: AtomicUsize::new(0) }
    }
}

impl Place {
    /// As a number. A chunk has at most 128 entries, so the eight lowest bits are enough for a place in it.
    fn number(self) -> usize {
        self.chunk << 8 | self.at
    }

    fn of(number: usize) -> Self {
        Self { chunk: number >> 8, at: number & 0xff }
    }
}

impl<K, V> SortedMap<K, V> {
    /// How many entries a chunk has at most.
    const CHUNK: usize = {
        let fit = 2048 / if size_of::<(K, V)>() == 0 { 1 } else { size_of::<(K, V)>() };
        if fit < 16 {
            16
        } else if fit > 128 {
            128
        } else {
            fit
        }
    };

    /// An empty map. It allocates nothing.
    pub const fn new() -> Self {
        Self { chunks: Vec::new(), len: 0, last: AtomicUsize::new(0) }
    }

    /// How many entries it has.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// The entries.
    pub fn iter(&self) -> Iter<'_, K, V> {
        Iter { chunks: &self.chunks, front: self.start(), back: self.end() }
    }

    /// The keys.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &K> + Clone {
        self.iter().map(|(key, _)| key)
    }

    /// The values.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> + Clone {
        self.iter().map(|(_, value)| value)
    }

    /// The entries, with values to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.chunks.iter_mut().flatten().map(|(key, value)| (&*key, value))
    }

    /// The values, to be changed.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.chunks.iter_mut().flatten().map(|(_, value)| value)
    }

    /// The keys of a map that is not needed any more.
    pub fn into_keys(self) -> impl Iterator<Item = K> {
        self.into_iter().map(|(key, _)| key)
    }

    /// The values of a map that is not needed any more.
    pub fn into_values(self) -> impl Iterator<Item = V> {
        self.into_iter().map(|(_, value)| value)
    }

    /// The first entry.
    pub fn first_key_value(&self) -> Option<(&K, &V)> {
        self.chunks.first()?.first().map(|(key, value)| (key, value))
    }

    /// The last entry.
    pub fn last_key_value(&self) -> Option<(&K, &V)> {
        self.chunks.last()?.last().map(|(key, value)| (key, value))
    }

    /// Keeps only the entries for which `keeps` is true.
    pub fn retain(&mut self, mut keeps: impl FnMut(&K, &mut V) -> bool) {
        for entries in &mut self.chunks {
            let before = entries.len();
            entries.retain_mut(|(key, value)| keeps(key, value));
            self.len -= before - entries.len();
        }
        let mut chunk = 0;
        while chunk < self.chunks.len() {
            if self.tidy(chunk) {
                chunk += 1;
            }
        }
    }

    fn start(&self) -> Place {
        Place { chunk: 0, at: 0 }
    }

    /// Behind the last entry.
    fn end(&self) -> Place {
        let chunk = self.chunks.len().saturating_sub(1);
        Place { chunk, at: self.chunks.last().map_or(0, Vec::len) }
    }

    /// Removes the entry of this place.
    fn take(&mut self, place: Place) -> (K, V) {
        let entry = self.chunks[place.chunk].remove(place.at);
        self.len -= 1;
        self.tidy(place.chunk);
        entry
    }

    /// Entries of this chunk have been removed. `false`: the chunk was, too, or has the entries of the next
    /// one behind its own.
    fn tidy(&mut self, chunk: usize) -> bool {
        let (len, count) = (self.chunks[chunk].len(), self.chunks.len());
        if len == 0 && count > 1 {
            self.chunks.remove(chunk);
        }
        if self.chunks.capacity() > 16 && self.chunks.len() < self.chunks.capacity() / 4 {
            self.chunks.shrink_to(2 * self.chunks.len());
        }
        if len == 0 {
            if count == 1 && self.chunks[0].capacity() > 16 {
                self.chunks[0].shrink_to(4);
            }
            return count == 1;
        }
        if len >= Self::CHUNK / 4 {
            return true;
        }
        if chunk + 1 < count && len + self.chunks[chunk + 1].len() <= Self::CHUNK / 2 {
            let mut next = self.chunks.remove(chunk + 1);
            self.chunks[chunk].append(&mut next);
            return false;
        }
        if self.chunks[chunk].capacity() > 16 {
            self.chunks[chunk].shrink_to(2 * len);
        }
        true
    }

    /// Puts an entry at this place.
    fn put(&mut self, place: Place, entry: (K, V)) -> Place {
        let Place { mut chunk, mut at } = place;
        self.len += 1;
        if self.chunks.is_empty() {
            self.chunks.reserve_exact(1);
            self.chunks.push(Vec::with_capacity(1));
        }
        let is_full = |chunk: &Vec<(K, V)>| chunk.len() == Self::CHUNK;
        if at == Self::CHUNK && self.chunks.get(chunk + 1).is_some_and(|next| !is_full(next)) {
            (chunk, at) = (chunk + 1, 0);
        } else if is_full(&self.chunks[chunk]) {
            // Keys that come in order leave full chunks behind.
            let middle = if at == Self::CHUNK { Self::CHUNK } else { Self::CHUNK / 2 };
            let upper = self.chunks[chunk].split_off(middle);
            self.chunks.insert(chunk + 1, upper);
            if at > middle || middle == Self::CHUNK {
                (chunk, at) = (chunk + 1, at - middle);
            }
        }
        self.chunks[chunk].insert(at, entry);
        let put = Place { chunk, at };
        self.last = AtomicUsize::new(put.number());
        put
    }
}

impl<K: Ord, V> SortedMap<K, V> {
    /// The place of this key: `Err`, where it belongs.
    fn search_tree<Q: Ord + ?Sized>(&self, key: &Q) -> Result<Place, Place>
    where
        K: Borrow<Q>,
    {
        if let [entries] = &self.chunks[..] {
            return search(entries, 0, key);
        }
        // The last chunk whose first key is not above this one.
        let (mut chunk, mut above) = (0, self.chunks.len());
        while above - chunk > 1 {
            let middle = usize::midpoint(chunk, above);
            if self.chunks[middle][0].0.borrow() <= key { chunk = middle } else { above = middle }
        }
        search(self.chunks.get(chunk).map_or(&[], |entries| entries), chunk, key)
    }

    /// The place of the key that was found last, if it is this one.
    #[inline(always)]
    fn found_last<Q: Ord + ?Sized>(&self, key: &Q) -> Option<Place>
    where
        K: Borrow<Q>,
    {
        let last = Place::of(self.last.load(Ordering::Relaxed));
        let (other, _) = self.chunks.get(last.chunk)?.get(last.at)?;
        (other.borrow() == key).then_some(last)
    }

    /// As [`search_tree`](Self::search_tree), and what it finds is found last.
    #[inline(never)]
    fn find<Q: Ord + ?Sized>(&self, key: &Q) -> Result<Place, Place>
    where
        K: Borrow<Q>,
    {
        if self.len == 0 {
            return Err(self.start());
        }
        if let Some(last) = self.found_last(key) {
            return Ok(last);
        }
        let place = self.search_tree(key)?;
        self.last.store(place.number(), Ordering::Relaxed);
        Ok(place)
    }

    /// The value of this key.
    #[inline]
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        if let Some(Place { chunk, at }) = self.found_last(key) {
            return Some(&self.chunks[chunk][at].1);
        }
        let Place { chunk, at } = self.find(key).ok()?;
        Some(&self.chunks[chunk][at].1)
    }

    /// The value of this key, to be changed.
    #[inline]
    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        if let Some(Place { chunk, at }) = self.found_last(key) {
            return Some(&mut self.chunks[chunk][at].1);
        }
        let Place { chunk, at } = self.find(key).ok()?;
        Some(&mut self.chunks[chunk][at].1)
    }

    /// Whether this key has a value.
    #[inline]
    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.len > 0 && (self.found_last(key).is_some() || self.find(key).is_ok())
    }

    /// Gives this key a value, and returns the one that it had.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.find(&key) {
            Ok(Place { chunk, at }) => Some(std::mem::replace(&mut self.chunks[chunk][at].1, value)),
            Err(place) => {
                self.put(place, (key, value));
                None
            }
        }
    }

    /// The value of this key, which is made if there is none.
    pub fn get_or_insert_with(&mut self, key: K, value: impl FnOnce() -> V) -> &mut V {
        let found = self.found_last(&key).map_or_else(|| self.find(&key), Ok);
        let place = found.unwrap_or_else(|place| self.put(place, (key, value())));
        &mut self.chunks[place.chunk][place.at].1
    }

    /// The value of this key, which is the default one if it had none.
    pub fn get_or_default(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        self.get_or_insert_with(key, V::default)
    }

    /// Removes an entry, and returns its value.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.remove_entry(key).map(|(_, value)| value)
    }

    /// Removes an entry, and returns it.
    pub fn remove_entry<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<(K, V)>
    where
        K: Borrow<Q>,
    {
        let place = self.find(key).ok()?;
        Some(self.take(place))
    }

    /// The entries whose keys are in this range.
    pub fn range<Q: Ord + ?Sized>(&self, range: impl RangeBounds<Q>) -> Iter<'_, K, V>
    where
        K: Borrow<Q>,
    {
        let front = match range.start_bound() {
            Bound::Unbounded => self.start(),
            Bound::Included(key) => self.search_tree(key).unwrap_or_else(|place| place),
            Bound::Excluded(key) => self.behind(key),
        };
        let back = match range.end_bound() {
            Bound::Unbounded => self.end(),
            Bound::Included(key) => self.behind(key),
            Bound::Excluded(key) => self.search_tree(key).unwrap_or_else(|place| place),
        };
        let is_empty = (back.chunk, back.at) < (front.chunk, front.at);
        Iter { chunks: &self.chunks, front, back: if is_empty { front } else { back } }
    }

    /// The place of the first key above this one.
    fn behind<Q: Ord + ?Sized>(&self, key: &Q) -> Place
    where
        K: Borrow<Q>,
    {
        self.search_tree(key).map_or_else(|place| place, |Place { chunk, at }| Place { chunk, at: at + 1 })
    }
}

impl<K: Ord + Borrow<Q>, V, Q: Ord + ?Sized> Index<&Q> for SortedMap<K, V> {
    type Output = V;

    fn index(&self, key: &Q) -> &V {
        self.get(key).expect("the key has a value")
    }
}

/// The place of this key in a chunk.
fn search<K: Borrow<Q>, V, Q: Ord + ?Sized>(entries: &[(K, V)], chunk: usize, key: &Q) -> Result<Place, Place> {
    match entries.binary_search_by(|(other, _)| other.borrow().cmp(key)) {
        Ok(at) => Ok(Place { chunk, at }),
        Err(at) => Err(Place { chunk, at }),
    }
}

/// The entries of a [`SortedMap`].
pub struct Iter<'a, K, V> {
    chunks: &'a [Vec<(K, V)>],
    front: Place,
    back: Place,
}

impl<K, V> Clone for Iter<'_, K, V> {
    fn clone(&self) -> Self {
        Self { ..*self }
    }
}

impl<'a, K, V> Iterator for Iter<'a, K, V> {
    type Item = (&'a K, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        if self.front == self.back {
            return None;
        }
        if self.front.at == self.chunks[self.front.chunk].len() {
            self.front = Place { chunk: self.front.chunk + 1, at: 0 };
            return self.next();
        }
        let (key, value) = &self.chunks[self.front.chunk][self.front.at];
        self.front.at += 1;
        Some((key, value))
    }
}

impl<K, V> DoubleEndedIterator for Iter<'_, K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.front == self.back {
            return None;
        }
        if self.back.at == 0 {
            let chunk = self.back.chunk - 1;
            self.back = Place { chunk, at: self.chunks[chunk].len() };
            return self.next_back();
        }
        self.back.at -= 1;
        let (key, value) = &self.chunks[self.back.chunk][self.back.at];
        Some((key, value))
    }
}

impl<'a, K, V> IntoIterator for &'a SortedMap<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = Iter<'a, K, V>;

    fn into_iter(self) -> Iter<'a, K, V> {
        self.iter()
    }
}

impl<K, V> IntoIterator for SortedMap<K, V> {
    type Item = (K, V);
    type IntoIter = std::iter::Flatten<std::vec::IntoIter<Vec<(K, V)>>>;

    fn into_iter(self) -> Self::IntoIter {
        self.chunks.into_iter().flatten()
    }
}

impl<K: Ord, V> Extend<(K, V)> for SortedMap<K, V> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        for (key, value) in entries {
            self.insert(key, value);
        }
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for SortedMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut map = Self::new();
        map.extend(entries);
        map
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for SortedMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}

/// A set with the methods of a [`BTreeSet`](std::collections::BTreeSet). All iteration is in the order of the
/// elements.
#[derive(Clone)]
pub struct SortedSet<T>(SortedMap<T, ()>);

impl<T> Default for SortedSet<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> SortedSet<T> {
    /// An empty set. It allocates nothing.
    pub const fn new() -> Self {
        Self(SortedMap::new())
    }

    /// How many elements it has.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes all elements.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The elements.
    pub fn iter(&self) -> Elements<'_, T> {
        Elements(self.0.iter())
    }

    /// The first element.
    pub fn first(&self) -> Option<&T> {
        self.0.first_key_value().map(|(element, ())| element)
    }

    /// The last element.
    pub fn last(&self) -> Option<&T> {
        self.0.last_key_value().map(|(element, ())| element)
    }

    /// Keeps only the elements for which `keeps` is true.
    pub fn retain(&mut self, mut keeps: impl FnMut(&T) -> bool) {
        self.0.retain(|element, ()| keeps(element));
    }
}

impl<T: Ord> SortedSet<T> {
    /// Whether it has this element.
    pub fn contains<Q: Ord + ?Sized>(&self, element: &Q) -> bool
    where
        T: Borrow<Q>,
    {
        self.0.contains_key(element)
    }

    /// Adds an element. `false`: it was there.
    pub fn insert(&mut self, element: T) -> bool {
        self.0.insert(element, ()).is_none()
    }

    /// Removes an element. `false`: it was not there.
    pub fn remove<Q: Ord + ?Sized>(&mut self, element: &Q) -> bool
    where
        T: Borrow<Q>,
    {
        self.0.remove(element).is_some()
    }

    /// The elements in this range.
    pub fn range(&self, range: impl RangeBounds<T>) -> Elements<'_, T> {
        Elements(self.0.range(range))
    }
}

/// The elements of a [`SortedSet`].
pub struct Elements<'a, T>(Iter<'a, T, ()>);

impl<T> Clone for Elements<'_, T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<'a, T> Iterator for Elements<'a, T> {
    type Item = &'a T;

    fn next(&mut self) -> Option<&'a T> {
        self.0.next().map(|(element, ())| element)
    }
}

impl<T> DoubleEndedIterator for Elements<'_, T> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.0.next_back().map(|(element, ())| element)
    }
}

impl<'a, T> IntoIterator for &'a SortedSet<T> {
    type Item = &'a T;
    type IntoIter = Elements<'a, T>;

    fn into_iter(self) -> Elements<'a, T> {
        self.iter()
    }
}

impl<T> IntoIterator for SortedSet<T> {
    type Item = T;
    type IntoIter = std::iter::Map<<SortedMap<T, ()> as IntoIterator>::IntoIter, fn((T, ())) -> T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter().map(|(element, ())| element)
    }
}

impl<T: Ord> Extend<T> for SortedSet<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, elements: I) {
        self.0.extend(elements.into_iter().map(|element| (element, ())));
    }
}

impl<T: Ord> FromIterator<T> for SortedSet<T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        let mut set = Self::new();
        set.extend(elements);
        set
    }
}

impl<T: fmt::Debug> fmt::Debug for SortedSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Entries of 512 bytes, of which 16 fit into a chunk.
    type Large = [u64; 63];

    trait Value: Copy + fmt::Debug + PartialEq {
        fn of(number: u64) -> Self;
    }

    impl Value for u64 {
        fn of(number: u64) -> Self {
            number
        }
    }

    impl Value for Large {
        fn of(number: u64) -> Self {
            [number; 63]
        }
    }

    fn agree<V: Value>(map: &SortedMap<u64, V>, model: &BTreeMap<u64, V>) {
        assert_eq!((map.len(), map.is_empty()), (model.len(), model.is_empty()));
        assert!(map.iter().eq(model.iter()) && map.iter().rev().eq(model.iter().rev()));
        assert!(map.keys().eq(model.keys()) && map.values().eq(model.values()));
        assert_eq!((map.first_key_value(), map.last_key_value()), (model.first_key_value(), model.last_key_value()));
        let most = SortedMap::<u64, V>::CHUNK;
        let is_alone = map.chunks.len() == 1;
        assert!(map.chunks.iter().all(|chunk| (1..=most).contains(&chunk.len()) || is_alone));
    }

    fn behaves_as_a_tree<V: Value>(mut seed: u64) {
        let mut below = |n: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % n
        };
        let (mut map, mut model) = (SortedMap::new(), BTreeMap::new());
        for step in 0..6_000 {
            // The map grows to some hundred entries, shrinks to a few, and so on.
            let (key, grows, value) = (below(1_000), step / 1_000 % 2 == 0, V::of(step));
            match below(10) {
                0..5 if grows => assert_eq!(map.insert(key, value), model.insert(key, value)),
                0..5 => assert_eq!(map.remove(&key), model.remove(&key)),
                5 if grows => assert_eq!(map.get_or_insert_with(key, || value), model.entry(key).or_insert(value)),
                5 => assert_eq!(map.remove_entry(&key), model.remove_entry(&key)),
                6 => {
                    assert_eq!((map.get(&key), map.contains_key(&key)), (model.get(&key), model.contains_key(&key)));
                    let range = key..=key + 80;
                    assert!(map.range(range.clone()).rev().eq(model.range(range).rev()));
                    let range = (Bound::Excluded(key), Bound::Excluded(key + 80));
                    assert!(map.range(range).eq(model.range(range)));
                    assert!(map.range(..key).eq(model.range(..key)) && map.range(key..).eq(model.range(key..)));
                    assert!(map.range(key..key).eq([]));
                }
                7 if below(30) == 0 => {
                    let keeps = |key: &u64, value: &mut V| {
                        *value = V::of(*key);
                        key % 3 != 1 && !(300..500).contains(key)
                    };
                    map.retain(keeps);
                    model.retain(keeps);
                }
                8 => assert_eq!(map.get_mut(&key), model.get_mut(&key)),
                _ => {
                    map.values_mut().for_each(|of| *of = value);
                    model.values_mut().for_each(|of| *of = value);
                    assert!(map.iter_mut().eq(model.iter_mut()));
                }
            }
            assert_eq!(map.get(&key), model.get(&key));
            agree(&map, &model);
        }
        let again: SortedMap<u64, V> = map.iter().rev().map(|(key, value)| (*key, *value)).collect();
        agree(&again, &model);
        assert!(map.clone().into_iter().eq(model.clone()));
        map.clear();
        agree(&map, &BTreeMap::new());
    }

    #[test]
    fn map_behaves_as_a_tree_through_random_operations() {
        for seed in 0..2 {
            behaves_as_a_tree::<u64>(seed);
            behaves_as_a_tree::<Large>(seed);
        }
    }

    #[test]
    fn set_has_each_element_once_in_order() {
        let mut set: SortedSet<u64> = [5, 3, 9, 3].into_iter().collect();
        assert!(!set.insert(9) && set.insert(1) && set.remove(&3) && !set.remove(&3));
        assert!(set.iter().eq(&[1, 5, 9]) && set.range(2..).eq(&[5, 9]));
        assert_eq!((set.first(), set.last(), set.contains(&5), set.len()), (Some(&1), Some(&9), true, 3));
        assert_eq!(format!("{set:?}"), "{1, 5, 9}");
        set.retain(|element| *element != 5);
        assert!(set.into_iter().eq([1, 9]));
    }

    /// The keys of some maps are chosen by peers.
    #[test]
    fn no_order_of_keys_leaves_many_small_chunks() {
        type Keys = fn(u64) -> u64;
        let up: Keys = |n| n;
        let down: Keys = |n| 1 << 40 | (10_000 - n);
        // Each into the gap behind eight full chunks.
        let gap: Keys = |n| if n < 1_024 { n } else { 1 << 40 | (10_000 - n) };
        let both: Keys = |n| if n % 2 == 0 { n } else { 1 << 40 | (10_000 - n) };
        for keys in [up, down, gap, both] {
            let map: SortedMap<u64, u64> = (0..10_000).map(|n| (keys(n), n)).collect();
            let most = 10_000 / (SortedMap::<u64, u64>::CHUNK / 2) + 2;
            assert!(map.len() == 10_000 && map.chunks.len() <= most, "{}", map.chunks.len());
        }
    }

    #[test]
    fn memory_of_removed_entries_is_released() {
        let bytes = |map: &SortedMap<u64, u64>| {
            let chunks = map.chunks.iter().map(|chunk| chunk.capacity() * 16);
            map.chunks.capacity() * 24 + chunks.sum::<usize>()
        };
        let full = || (0..10_000).map(|n| (n, n)).collect::<SortedMap<u64, u64>>();
        assert!(bytes(&full()) < 10_000 * 20, "{}", bytes(&full()));
        let mut map = full();
        assert!((0..9_990).all(|n| map.remove(&n) == Some(n)));
        assert!(bytes(&map) < 1_000, "{}", bytes(&map));
        assert!((9_990..10_000).rev().all(|n| map.remove(&n) == Some(n)));
        assert!(bytes(&map) < 600, "{}", bytes(&map));
        let mut map = full();
        map.retain(|n, _| n % 1_000 == 5);
        assert!(bytes(&map) < 1_000, "{}", bytes(&map));
    }
}
