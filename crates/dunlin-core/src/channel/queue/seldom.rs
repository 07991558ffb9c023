//! A list that takes one word in a channel that never uses it.

use std::ops::{Deref, DerefMut};

/// A list that is empty in most channels: one word until the first insertion.
// A `Vec` has three words, a queue has many lists, and a node may have very many queues.
#[expect(clippy::box_collection, reason = "a `Vec` takes three words also when it is empty")]
pub(crate) struct Seldom<T>(Option<Box<Vec<T>>>);

impl<T> Seldom<T> {
    pub(crate) const fn new() -> Self {
        Self(None)
    }

    /// The list, for changes. The first call allocates it.
    pub(crate) fn list(&mut self) -> &mut Vec<T> {
        self.0.get_or_insert_default()
    }

    pub(crate) fn push(&mut self, item: T) {
        self.list().push(item);
    }

    /// # Panics
    /// Those of [`Vec::swap_remove`].
    pub(crate) fn swap_remove(&mut self, index: usize) -> T {
        self.list().swap_remove(index)
    }

    /// Takes all items out, and their memory.
    pub(crate) fn take(&mut self) -> Vec<T> {
        self.0.take().map_or_else(Vec::new, |list| *list)
    }
}

impl<T> Deref for Seldom<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        self.0.as_deref().map_or(&[], Vec::as_slice)
    }
}

impl<T> DerefMut for Seldom<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        self.0.as_deref_mut().map_or(&mut [], Vec::as_mut_slice)
    }
}
