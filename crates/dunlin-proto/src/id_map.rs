//! Maps from ids, in their order.
//!
//! A [`BTreeMap`] is compiled anew for each type of value, some 8,000 lines of LLVM's language each; with 30
//! of them, trees were more than half of what this crate compiled to. Here the tree leads from the number of
//! an id to a place in a slab, so it is compiled once.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::collections::btree_map::Range;
use std::fmt;
use std::ops::{Bound, Index, RangeBounds};

use slab::Slab;

use crate::id::{ChannelId, DialId, NodeId, SocketId};

/// A key of an [`IdMap`]: its number has the same order.
pub trait Id: Copy {
    /// The number of this id.
    fn number(self) -> u128;
}

impl Id for NodeId {
    fn number(self) -> u128 {
        self.0
    }
}

impl Id for ChannelId {
    fn number(self) -> u128 {
        self.0
    }
}

impl Id for SocketId {
    fn number(self) -> u128 {
        self.0.into()
    }
}

impl Id for DialId {
    fn number(self) -> u128 {
        self.0.into()
    }
}

impl Id for u128 {
    fn number(self) -> u128 {
        self
    }
}

impl Id for u64 {
    fn number(self) -> u128 {
        self.into()
    }
}

/// A slab with more places than this is rebuilt when three quarters of them are free, since a slab keeps its
/// memory.
const PLACES_KEPT: usize = 64;

/// A map from ids, with the methods of a [`BTreeMap`]. All iteration is in the order of the ids.
///
/// With small values it takes up to twice the memory of a tree, so records that a node has for each end or
/// channel are in trees.
#[derive(Clone)]
pub struct IdMap<K, V> {
    places: BTreeMap<u128, usize>,
    entries: Slab<(K, V)>,
    /// The place that was found last. Most ids are looked up several times in succession: the tree is
    /// searched only for the first.
    last: Cell<usize>,
}

impl<K, V> Default for IdMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K, V> IdMap<K, V> {
    /// An empty map. It allocates nothing.
    pub const fn new() -> Self {
        Self { places: BTreeMap::new(), entries: Slab::new(), last: Cell::new(0) }
    }

    /// How many entries it has.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entries.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> + Clone {
        self.places.values().map(|place| self.at(*place))
    }

    /// The ids.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &K> + Clone {
        self.iter().map(|(key, _)| key)
    }

    /// The values.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> + Clone {
        self.iter().map(|(_, value)| value)
    }

    /// The values, in a map that is not needed any more.
    pub fn into_values(self) -> impl Iterator<Item = V> {
        self.into_iter().map(|(_, value)| value)
    }

    fn at(&self, place: usize) -> (&K, &V) {
        let (key, value) = &self.entries[place];
        (key, value)
    }

    /// Removes the entry of this place, which is in the slab only.
    fn take(&mut self, place: usize) -> V {
        let (_, value) = self.entries.remove(place);
        self.shrink();
        value
    }

    fn shrink(&mut self) {
        if self.entries.capacity() > PLACES_KEPT && self.entries.len() < self.entries.capacity() / 4 {
            self.rebuild();
        }
    }

    #[cold]
    fn rebuild(&mut self) {
        let mut entries = Slab::with_capacity(2 * self.entries.len());
        for place in self.places.values_mut() {
            *place = entries.insert(self.entries.remove(*place));
        }
        self.entries = entries;
    }
}

impl<K: Id, V> IdMap<K, V> {
    /// The place of this id.
    #[inline]
    fn place(&self, number: u128) -> Option<usize> {
        let last = self.last.get();
        // (A place that was vacated or has another id by now does not have this one.)
        if self.entries.get(last).is_some_and(|(key, _)| key.number() == number) {
            return Some(last);
        }
        let place = search(&self.places, number)?;
        self.last.set(place);
        Some(place)
    }

    /// The value of this id.
    pub fn get(&self, key: &K) -> Option<&V> {
        let place = self.place(key.number())?;
        self.entries.get(place).map(|(_, value)| value)
    }

    /// The value of this id, to be changed.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let place = self.place(key.number())?;
        self.entries.get_mut(place).map(|(_, value)| value)
    }

    /// Whether this id has a value.
    pub fn contains_key(&self, key: &K) -> bool {
        self.place(key.number()).is_some()
    }

    /// Gives this id a value, and returns the one that it had.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.get_mut(&key) {
            Some(before) => Some(std::mem::replace(before, value)),
            None => {
                self.add(key, value);
                None
            }
        }
    }

    /// The id has no value yet.
    fn add(&mut self, key: K, value: V) -> usize {
        let place = self.entries.insert((key, value));
        self.places.insert(key.number(), place);
        place
    }

    /// The value of this id, which is made if there is none.
    pub fn get_or_insert_with(&mut self, key: K, value: impl FnOnce() -> V) -> &mut V {
        let place = match self.place(key.number()) {
            Some(place) => place,
            None => self.add(key, value()),
        };
        &mut self.entries[place].1
    }

    /// Removes an entry, and returns its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let place = self.places.remove(&key.number())?;
        Some(self.take(place))
    }

    /// The entries whose ids are in this range.
    pub fn range(&self, range: impl RangeBounds<K>) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        let number = |bound: Bound<&K>| bound.map(|key| key.number());
        let places: Range<'_, u128, usize> =
            self.places.range((number(range.start_bound()), number(range.end_bound())));
        places.map(|(_, place)| self.at(*place))
    }

    /// Keeps only the entries for which `keeps` is true.
    pub fn retain(&mut self, mut keeps: impl FnMut(&K, &mut V) -> bool) {
        let entries = &mut self.entries;
        let mut gone = Vec::new();
        self.places.retain(|_, place| {
            let (key, value) = &mut entries[*place];
            let is_kept = keeps(key, value);
            if !is_kept {
                gone.push(*place);
            }
            is_kept
        });
        for place in gone {
            drop(entries.remove(place));
        }
        self.shrink();
    }

    /// The values, to be changed.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        let mut entries: Vec<&mut (K, V)> = self.entries.iter_mut().map(|(_, entry)| entry).collect();
        entries.sort_unstable_by_key(|(key, _)| key.number());
        entries.into_iter().map(|(_, value)| value)
    }
}

/// Compiled once, for all maps.
fn search(places: &BTreeMap<u128, usize>, number: u128) -> Option<usize> {
    places.get(&number).copied()
}

impl<K, V> IntoIterator for IdMap<K, V> {
    type Item = (K, V);
    type IntoIter = IntoIter<K, V>;

    fn into_iter(self) -> IntoIter<K, V> {
        IntoIter { places: self.places.into_values(), entries: self.entries }
    }
}

/// The entries of an [`IdMap`].
pub struct IntoIter<K, V> {
    places: std::collections::btree_map::IntoValues<u128, usize>,
    entries: Slab<(K, V)>,
}

impl<K, V> Iterator for IntoIter<K, V> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        self.places.next().map(|place| self.entries.remove(place))
    }
}

impl<K: Id, V> FromIterator<(K, V)> for IdMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut map = Self::new();
        for (key, value) in entries {
            map.insert(key, value);
        }
        map
    }
}

impl<K: Id, V> Index<&K> for IdMap<K, V> {
    type Output = V;

    fn index(&self, key: &K) -> &V {
        self.get(key).expect("the id has a value")
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for IdMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agree(map: &IdMap<u64, u32>, model: &BTreeMap<u64, u32>) {
        assert_eq!((map.len(), map.is_empty()), (model.len(), model.is_empty()));
        assert!(map.iter().eq(model.iter()) && map.iter().rev().eq(model.iter().rev()));
        assert!(map.keys().eq(model.keys()) && map.values().eq(model.values()));
        assert_eq!(format!("{map:?}"), format!("{model:?}"));
    }

    #[test]
    fn behaves_as_a_tree_through_random_operations() {
        let mut seed = 7_u64;
        let mut below = |n: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % n
        };
        let (mut map, mut model) = (IdMap::new(), BTreeMap::new());
        for step in 0..20_000_u32 {
            // The map grows to some hundred entries, shrinks to a few, and so on.
            let (key, grows) = (below(700), step / 2_000 % 2 == 0);
            match below(10) {
                0..6 if grows => assert_eq!(map.insert(key, step), model.insert(key, step)),
                0..6 => assert_eq!(map.remove(&key), model.remove(&key)),
                6 => assert_eq!(map.get_or_insert_with(key, || step), model.entry(key).or_insert(step)),
                7 => {
                    assert_eq!((map.get(&key), map.contains_key(&key)), (model.get(&key), model.contains_key(&key)));
                    let range = key..=key + 50;
                    assert!(map.range(range.clone()).eq(model.range(range)));
                }
                8 if below(20) == 0 => {
                    let keeps = |key: &u64, value: &mut u32| {
                        *value = value.wrapping_add(1);
                        key % 4 != 1
                    };
                    map.retain(keeps);
                    model.retain(keeps);
                }
                _ => {
                    map.values_mut().zip(0..).for_each(|(value, n)| *value ^= n);
                    model.values_mut().zip(0..).for_each(|(value, n)| *value ^= n);
                }
            }
            agree(&map, &model);
        }
        let again: IdMap<u64, u32> = map.iter().rev().map(|(key, value)| (*key, *value)).collect();
        agree(&again, &model);
        assert!(map.into_iter().eq(model));
    }

    #[test]
    fn memory_of_removed_entries_is_released() {
        let mut map: IdMap<u64, u64> = (0..10_000).map(|n| (n, n)).collect();
        assert!((0..9_990).all(|n| map.remove(&n) == Some(n)));
        assert!(map.entries.capacity() <= PLACES_KEPT, "{}", map.entries.capacity());
        assert!(map.keys().copied().eq(9_990..10_000));
        let mut map: IdMap<u64, u64> = (0..10_000).map(|n| (n, n)).collect();
        map.retain(|n, _| *n == 5);
        assert!(map.entries.capacity() <= PLACES_KEPT, "{}", map.entries.capacity());
    }
}
