//! A slice on the heap whose elements stay where they are, so that each can be pinned.

use std::pin::Pin;

/// Elements that never move until they are dropped.
pub(crate) struct Pinned<T>(Box<[T]>);

impl<T> FromIterator<T> for Pinned<T> {
    fn from_iter<I: IntoIterator<Item = T>>(iter: I) -> Self {
        Self(iter.into_iter().collect())
    }
}

impl<T> Pinned<T> {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    #[inline]
    pub(crate) fn get(&mut self, index: usize) -> Pin<&mut T> {
        // SAFETY: the elements live on the heap from construction to drop. This type never hands out
        // `&mut T`, nor moves an element out, so what is pinned here stays pinned until it is dropped in
        // place.
        unsafe { Pin::new_unchecked(&mut self.0[index]) }
    }
}

// Moving the box does not move the elements.
impl<T> Unpin for Pinned<T> {}
