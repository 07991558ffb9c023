//! What a channel has buffered, and the places of those values of it that are out with handles elsewhere.

use std::collections::VecDeque;

use super::seldom::Seldom;

/// A buffer to which a value can come back that was [taken on trial](Buffer::pop_on_trial): to its old place, whatever has come back or was taken meanwhile.
///
/// A value gets the number of its place when it is first taken so. So those that have come back, and they alone, have numbers; and they are before all others,
/// since all are taken from the front.
pub(super) struct Buffer<T> {
    values: VecDeque<T>,
    /// The places of the first values, which have come back. Ascending.
    places: Seldom<u64>,
    next_place: u64,
}

impl<T> Buffer<T> {
    pub(super) const fn new() -> Self {
        Self { values: VecDeque::new(), places: Seldom::new(), next_place: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    pub(super) fn push_back(&mut self, value: T) {
        self.values.push_back(value);
    }

    pub(super) fn pop_front(&mut self) -> Option<T> {
        let value = self.values.pop_front()?;
        if !self.places.is_empty() {
            self.places.list().remove(0);
        }
        Some(value)
    }

    pub(super) fn pop_back(&mut self) -> Option<T> {
        let value = self.values.pop_back()?;
        if !self.places.is_empty() {
            self.places.list().truncate(self.values.len());
        }
        Some(value)
    }

    /// The first value, which may [come back](Self::put_back), and its place.
    pub(super) fn pop_on_trial(&mut self) -> Option<(T, u64)> {
        let value = self.values.pop_front()?;
        if !self.places.is_empty() {
            return Some((value, self.places.list().remove(0)));
        }
        let place = self.next_place;
        self.next_place += 1;
        Some((value, place))
    }

    pub(super) fn put_back(&mut self, value: T, place: u64) {
        let at = self.places.partition_point(|other| *other < place);
        self.places.list().insert(at, place);
        self.values.insert(at, value);
    }

    /// All of it, in order.
    pub(super) fn take(&mut self) -> VecDeque<T> {
        self.places.take();
        std::mem::take(&mut self.values)
    }
}
