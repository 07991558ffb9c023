//! Parts that most records of a kind never need, and that take one word until they do.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// A part of a record that stays in its first state in most records: until it is changed it takes one word.
///
/// A read returns the [first state](First::first) until then. A mutable borrow allocates the part.
#[derive(Clone)]
pub struct Seldom<T>(Option<Box<T>>);

/// A type with a first state, which all unchanged values share.
pub trait First: Default + 'static {
    /// That state.
    fn first() -> &'static Self;
}

impl<T> Default for Seldom<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: First> Deref for Seldom<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.0.as_deref().unwrap_or_else(|| T::first())
    }
}

impl<T: First> DerefMut for Seldom<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_or_insert_default()
    }
}

impl<T> Seldom<T> {
    /// The part, if it has been changed.
    #[inline]
    pub fn changed(&mut self) -> Option<&mut T> {
        self.0.as_deref_mut()
    }
}

impl<T: First + fmt::Debug> fmt::Debug for Seldom<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, Default, PartialEq)]
    struct Part {
        list: Vec<u8>,
    }

    impl First for Part {
        fn first() -> &'static Self {
            static FIRST: Part = Part { list: Vec::new() };
            &FIRST
        }
    }

    #[test]
    fn seldom_part_is_allocated_at_its_first_change() {
        let mut part: Seldom<Part> = Seldom::default();
        assert!(part.list.is_empty() && part.changed().is_none());
        assert_eq!(size_of_val(&part), size_of::<usize>());
        part.list.push(1);
        let copy = part.clone();
        part.list.push(2);
        assert_eq!((&copy.list[..], &part.list[..]), (&[1][..], &[1, 2][..]));
        assert!(part.changed().is_some());
    }
}
