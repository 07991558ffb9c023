//! [`SortedSet`]: a map without values.

use std::borrow::Borrow;
use std::fmt;
use std::ops::RangeBounds;

use crate::{IntoIter, Iter, SortedMap};

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

    /// Removes the first element, and returns it.
    pub fn pop_first(&mut self) -> Option<T> {
        self.0.pop_first().map(|(element, ())| element)
    }

    /// Removes the last element, and returns it.
    pub fn pop_last(&mut self) -> Option<T> {
        self.0.pop_last().map(|(element, ())| element)
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

    /// Removes the elements from this one on, and returns them.
    pub fn split_off<Q: Ord + ?Sized>(&mut self, element: &Q) -> Self
    where
        T: Borrow<Q>,
    {
        Self(self.0.split_off(element))
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

/// The elements of a [`SortedSet`] that is not needed any more.
pub struct IntoElements<T>(IntoIter<T, ()>);

impl<T> Iterator for IntoElements<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.0.next().map(|(element, ())| element)
    }
}

impl<T> IntoIterator for SortedSet<T> {
    type Item = T;
    type IntoIter = IntoElements<T>;

    fn into_iter(self) -> IntoElements<T> {
        IntoElements(self.0.into_iter())
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
    use super::*;

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
}
