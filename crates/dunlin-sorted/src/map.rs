//! [`SortedMap`], over the chunks of [`raw`](crate::raw).

use std::borrow::Borrow;
use std::fmt;
use std::ops::{Bound, Index, RangeBounds};

use crate::raw::{Chunks, Place};

pub use crate::raw::{IntoIter, Iter, IterMut};

/// A map with the methods of a [`BTreeMap`](std::collections::BTreeMap). All iteration is in the order of the
/// keys.
///
/// Looking up a key takes logarithmic time. Inserting or removing one moves 2 KiB of entries, or 16 entries
/// if these are larger, and once in some ten times the list of lists.
///
/// A map is `Send` and `Sync` if its keys and values are:
/// ```compile_fail,E0277
/// fn is_sync<T: Sync>(_: T) {}
/// is_sync(dunlin_sorted::SortedMap::<u8, std::cell::Cell<u8>>::new());
/// ```
pub struct SortedMap<K, V> {
    chunks: Chunks<K, V>,
}

impl<K, V> Default for SortedMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Clone, V: Clone> Clone for SortedMap<K, V> {
    fn clone(&self) -> Self {
        let mut clone = Self::new();
        for (key, value) in self {
            clone.chunks.put(clone.chunks.end(), key.clone(), value.clone());
        }
        clone
    }
}

impl<K, V> SortedMap<K, V> {
    /// An empty map. It allocates nothing.
    pub const fn new() -> Self {
        Self { chunks: Chunks::new() }
    }

    /// How many entries it has.
    pub fn len(&self) -> usize {
        self.chunks.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// The entries.
    pub fn iter(&self) -> Iter<'_, K, V> {
        self.chunks.between(Place::START, self.chunks.end())
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
    pub fn iter_mut(&mut self) -> IterMut<'_, K, V> {
        self.chunks.between_mut(Place::START, self.chunks.end())
    }

    /// The values, to be changed.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.iter_mut().map(|(_, value)| value)
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
        self.chunks.entry(Place::START)
    }

    /// The last entry.
    pub fn last_key_value(&self) -> Option<(&K, &V)> {
        self.iter().next_back()
    }

    /// Removes the first entry, and returns it.
    pub fn pop_first(&mut self) -> Option<(K, V)> {
        self.chunks.take(Place::START)
    }

    /// Removes the last entry, and returns it.
    pub fn pop_last(&mut self) -> Option<(K, V)> {
        let end = self.chunks.end();
        self.chunks.take(Place { at: end.at.checked_sub(1)?, ..end })
    }

    /// Keeps only the entries for which `keeps` is true.
    pub fn retain(&mut self, mut keeps: impl FnMut(&K, &mut V) -> bool) {
        let mut place = Place::START;
        while let Some((key, value)) = self.chunks.entry_mut(place) {
            if keeps(key, value) {
                place.at += 1;
            } else {
                self.chunks.take(place);
            }
            place = self.chunks.next_of(place);
        }
        self.chunks.tidy();
    }
}

impl<K: Ord, V> SortedMap<K, V> {
    /// The value of this key.
    #[inline]
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.chunks.get(key).map(|(_, value)| value)
    }

    /// The value of this key, to be changed.
    #[inline]
    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.chunks.get_mut(key)
    }

    /// Whether this key has a value.
    #[inline]
    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.chunks.get(key).is_some()
    }

    /// Gives this key a value, and returns the one that it had.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.chunks.find(&key) {
            Ok(place) => self.chunks.entry_mut(place).map(|(_, old)| std::mem::replace(old, value)),
            Err(place) => {
                self.chunks.put(place, key, value);
                None
            }
        }
    }

    /// The value of this key, which is made if there is none.
    pub fn get_or_insert_with(&mut self, key: K, value: impl FnOnce() -> V) -> &mut V {
        let place = self.chunks.find(&key).unwrap_or_else(|place| self.chunks.put(place, key, value()));
        self.chunks.entry_mut(place).expect("it was found, or put there").1
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
        self.chunks.find(key).ok().and_then(|place| self.chunks.take(place))
    }

    /// The entry of this key.
    pub fn get_key_value<Q: Ord + ?Sized>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
    {
        self.chunks.get(key)
    }

    /// Removes the entries from this key on, and returns them.
    pub fn split_off<Q: Ord + ?Sized>(&mut self, key: &Q) -> Self
    where
        K: Borrow<Q>,
    {
        let mut upper = Self::new();
        let mut place = self.chunks.search(key).unwrap_or_else(|place| place);
        loop {
            place = self.chunks.next_of(place);
            let Some((key, value)) = self.chunks.take(place) else { return upper };
            upper.chunks.put(upper.chunks.end(), key, value);
        }
    }

    /// The entries whose keys are in this range.
    pub fn range<Q: Ord + ?Sized>(&self, range: impl RangeBounds<Q>) -> Iter<'_, K, V>
    where
        K: Borrow<Q>,
    {
        let (front, back) = self.places(&range);
        self.chunks.between(front, back)
    }

    /// The entries whose keys are in this range, with values to be changed.
    pub fn range_mut<Q: Ord + ?Sized>(&mut self, range: impl RangeBounds<Q>) -> IterMut<'_, K, V>
    where
        K: Borrow<Q>,
    {
        let (front, back) = self.places(&range);
        self.chunks.between_mut(front, back)
    }

    /// Where a range begins and ends.
    fn places<Q: Ord + ?Sized>(&self, range: &impl RangeBounds<Q>) -> (Place, Place)
    where
        K: Borrow<Q>,
    {
        let at = |key| self.chunks.search(key).unwrap_or_else(|place| place);
        let behind = |key| self.chunks.search(key).map_or_else(|place| place, |at| Place { at: at.at + 1, ..at });
        let front = match range.start_bound() {
            Bound::Unbounded => Place::START,
            Bound::Included(key) => at(key),
            Bound::Excluded(key) => behind(key),
        };
        let back = match range.end_bound() {
            Bound::Unbounded => self.chunks.end(),
            Bound::Included(key) => behind(key),
            Bound::Excluded(key) => at(key),
        };
        (front, back)
    }
}

impl<K: Ord + Borrow<Q>, V, Q: Ord + ?Sized> Index<&Q> for SortedMap<K, V> {
    type Output = V;

    fn index(&self, key: &Q) -> &V {
        self.get(key).expect("the key has a value")
    }
}

impl<'a, K, V> IntoIterator for &'a SortedMap<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = Iter<'a, K, V>;

    fn into_iter(self) -> Iter<'a, K, V> {
        self.iter()
    }
}

impl<'a, K, V> IntoIterator for &'a mut SortedMap<K, V> {
    type Item = (&'a K, &'a mut V);
    type IntoIter = IterMut<'a, K, V>;

    fn into_iter(self) -> IterMut<'a, K, V> {
        self.iter_mut()
    }
}

impl<K, V> IntoIterator for SortedMap<K, V> {
    type Item = (K, V);
    type IntoIter = IntoIter<K, V>;

    fn into_iter(self) -> IntoIter<K, V> {
        self.chunks.into_iter()
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::BTreeMap;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    /// Entries of 512 bytes, of which 16 fit into a chunk.
    type Large = [u64; 63];

    // Miri takes minutes for as many.
    const STEPS: u64 = if cfg!(miri) { 180 } else { 6_000 };
    const MANY: u64 = if cfg!(miri) { 1_500 } else { 10_000 };

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
        let (lens, most) = map.chunks.lens();
        assert!(lens.iter().all(|len| (1..=most).contains(len) || lens.len() == 1), "{lens:?}");
    }

    fn behaves_as_a_tree<V: Value>(mut seed: u64) {
        let mut below = |n: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % n
        };
        let (mut map, mut model) = (SortedMap::new(), BTreeMap::new());
        for step in 0..STEPS {
            // The map grows to some hundred entries, shrinks to a few, and so on.
            let (key, grows, value) = (below(1_000), (step / (STEPS / 6)).is_multiple_of(2), V::of(step));
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
                7 if below(30) == 0 => {
                    let (upper, model_upper) = (map.split_off(&key), model.split_off(&key));
                    agree(&upper, &model_upper);
                    agree(&map, &model);
                    map.extend(upper);
                    model.extend(model_upper);
                }
                7 if !grows => {
                    assert_eq!((map.pop_first(), map.pop_last()), (model.pop_first(), model.pop_last()));
                }
                8 => {
                    assert_eq!(map.get_mut(&key), model.get_mut(&key));
                    assert_eq!(map.get_key_value(&key), model.get_key_value(&key));
                    map.range_mut(key..key + 40).for_each(|(_, of)| *of = value);
                    model.range_mut(key..key + 40).for_each(|(_, of)| *of = value);
                }
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

    /// The keys of some maps are chosen by peers.
    #[test]
    fn no_order_of_keys_leaves_many_small_chunks() {
        type Keys = fn(u64) -> u64;
        let up: Keys = |n| n;
        let down: Keys = |n| 1 << 40 | (MANY - n);
        // Each into the gap behind eight full chunks.
        let gap: Keys = |n| if n < 1_024 { n } else { 1 << 40 | (MANY - n) };
        let both: Keys = |n| if n % 2 == 0 { n } else { 1 << 40 | (MANY - n) };
        for keys in [up, down, gap, both] {
            let map: SortedMap<u64, u64> = (0..MANY).map(|n| (keys(n), n)).collect();
            let (lens, most) = map.chunks.lens();
            assert!(map.len() == MANY as usize && lens.len() <= MANY as usize / (most / 2) + 2, "{}", lens.len());
        }
    }

    #[test]
    fn memory_of_removed_entries_is_released() {
        let bytes = |map: &SortedMap<u64, u64>| map.chunks.bytes();
        let full = || (0..MANY).map(|n| (n, n)).collect::<SortedMap<u64, u64>>();
        assert!(bytes(&full()) < MANY as usize * 20, "{}", bytes(&full()));
        let mut map = full();
        assert!((0..MANY - 10).all(|n| map.remove(&n) == Some(n)));
        assert!(bytes(&map) < 1_000, "{}", bytes(&map));
        assert!((MANY - 10..MANY).rev().all(|n| map.remove(&n) == Some(n)));
        assert!(bytes(&map) < 600, "{}", bytes(&map));
        let mut map = full();
        map.retain(|n, _| n % 1_000 == 5);
        assert!(bytes(&map) < 1_000, "{}", bytes(&map));
    }

    /// A value that counts its drops, of which one panics.
    struct Counted<'a>(&'a Cell<usize>, bool);

    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
            assert!(!self.1, "krill");
        }
    }

    #[test]
    fn each_entry_is_dropped_once_also_when_a_drop_panics() {
        let drops = Cell::new(0);
        let full = |bad| (0..300).map(|n| (n, Counted(&drops, n == bad))).collect::<SortedMap<_, _>>();
        let dropped = |f: &mut dyn FnMut()| {
            drops.set(0);
            (catch_unwind(AssertUnwindSafe(f)).is_err(), drops.get())
        };
        let none = u32::MAX;
        assert_eq!(dropped(&mut || drop(full(none))), (false, 300));
        assert_eq!(dropped(&mut || drop(full(120))), (true, 300));
        assert_eq!(dropped(&mut || full(none).clear()), (false, 300));
        assert_eq!(dropped(&mut || drop(full(none).into_iter().nth(200))), (false, 300));
        assert_eq!(dropped(&mut || drop(full(250).into_iter().nth(200))), (true, 300));
        assert_eq!(dropped(&mut || full(none).retain(|n, _| n % 7 == 0)), (false, 300));
        let mut map = full(120);
        assert_eq!(dropped(&mut || map.retain(|n, _| n % 7 == 0)), (true, 103));
        assert!(map.keys().copied().eq((0..=119).filter(|n| n % 7 == 0).chain(121..300)));
        assert_eq!(dropped(&mut || drop(map.insert(200, Counted(&drops, false)))), (false, 1));
        assert_eq!(dropped(&mut || drop(map.remove(&200))), (false, 1));
        assert_eq!(dropped(&mut || drop(map.pop_first())), (false, 1));
        let left = map.len();
        assert_eq!(dropped(&mut || map.clear()), (false, left));
    }

    #[test]
    fn entries_are_aligned() {
        #[derive(Debug, Clone, Copy, PartialEq)]
        #[repr(align(64))]
        struct Wide(u8);
        let mut map: SortedMap<u8, Wide> = (0..200).map(|n| (n, Wide(n))).collect();
        assert!((0..200).step_by(2).all(|n| map.remove(&n) == Some(Wide(n))));
        assert!(map.iter().all(|(n, value)| value.0 == *n && (&raw const *value).addr() % 64 == 0));
    }

    #[test]
    fn map_is_shared_as_its_entries_are() {
        fn is_send_and_sync<T: Send + Sync + std::panic::UnwindSafe>() {}
        is_send_and_sync::<SortedMap<u64, String>>();
        is_send_and_sync::<Iter<'_, u64, String>>();
        is_send_and_sync::<IntoIter<u64, String>>();
    }
}
