//! A small map in order: most processes have a few links, and some supervisors many.

use dunlin_sorted::SortedMap;

/// From this many entries on a tree is used.
const FEW: usize = 8;

/// A map that takes no more than its entries while there are few.
pub(super) enum Set<K, V> {
    Few(Vec<(K, V)>),
    #[allow(clippy::box_collection, reason = "a tree is larger than a list, and most sets are lists")]
    Many(Box<SortedMap<K, V>>),
}

impl<K, V> Default for Set<K, V> {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl<K: Ord + Copy, V> Set<K, V> {
    pub(super) fn get(&self, key: K) -> Option<&V> {
        match self {
            Self::Few(few) => few.iter().find(|(other, _)| *other == key).map(|(_, value)| value),
            Self::Many(many) => many.get(&key),
        }
    }

    /// Adds an entry; the one of that key is replaced, and returned.
    pub(super) fn insert(&mut self, key: K, value: V) -> Option<V> {
        if let Self::Few(few) = self {
            if let Some((_, old)) = few.iter_mut().find(|(other, _)| *other == key) {
                return Some(std::mem::replace(old, value));
            }
            if few.len() < FEW {
                // A `Vec` would begin with four, and double.
                few.reserve_exact(1);
                few.push((key, value));
                return None;
            }
            *self = Self::Many(Box::new(std::mem::take(few).into_iter().collect()));
        }
        match self {
            Self::Many(many) => many.insert(key, value),
            Self::Few(_) => None,
        }
    }

    pub(super) fn remove(&mut self, key: K) -> Option<V> {
        match self {
            Self::Few(few) => {
                let index = few.iter().position(|(other, _)| *other == key)?;
                Some(few.swap_remove(index).1)
            }
            Self::Many(many) => {
                let removed = many.remove(&key);
                if many.is_empty() {
                    *self = Self::default();
                }
                removed
            }
        }
    }

    pub(super) fn take(&mut self) -> Vec<(K, V)> {
        match std::mem::take(self) {
            Self::Few(few) => few,
            Self::Many(many) => many.into_iter().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_and_many_entries_behave_alike() {
        let mut set = Set::default();
        for n in 0..100_u32 {
            assert_eq!(set.insert(n, n), None);
            assert_eq!(set.insert(n, n + 1), Some(n));
            assert_eq!((set.get(n), set.get(n + 1)), (Some(&(n + 1)), None));
        }
        for n in 0..99 {
            assert_eq!((set.remove(n), set.remove(n)), (Some(n + 1), None));
        }
        assert_eq!(set.take(), [(99, 100)]);
        assert_eq!(set.get(99), None);
    }
}
