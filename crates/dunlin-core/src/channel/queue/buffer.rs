//! The buffered values of a channel, and the places of those that handles elsewhere have.

#[cfg(feature = "link")]
use std::collections::VecDeque;

#[cfg(feature = "link")]
use bytes::Bytes;

use super::value::Source;
use crate::channel::erased::{AnySlot, Erased, Ring};

/// A buffer to which a value [taken on trial](Buffer::pop_on_trial) can return: to its old place, whatever
/// has returned or was taken meanwhile.
///
/// A value gets the number of its place when it is first taken on trial. So only returned values have
/// numbers, and they precede all others, since all are taken from the front.
pub(super) struct Buffer {
    values: Ring,
    /// Boxed, because most buffers never need it.
    rare: Option<Box<Rare>>,
}

#[derive(Default)]
struct Rare {
    /// The places of the first values, which have returned. Ascending.
    places: Vec<u64>,
    next_place: u64,
    /// Set once a value has come over a link: the order of all buffered values.
    #[cfg(feature = "link")]
    order: Option<VecDeque<Buffered>>,
}

/// One entry of a buffer that may get values over a link.
#[cfg(feature = "link")]
enum Buffered {
    /// The next of `values`.
    Here,
    /// A value that came over a link.
    Encoded(Encoded),
}

/// The bytes of a value.
#[cfg(feature = "link")]
pub(super) struct Encoded {
    pub(super) bytes: Bytes,
    /// The number of the read that decodes them.
    pub(super) read: Option<u64>,
}

impl Buffer {
    pub(super) const fn new() -> Self {
        Self { values: Ring::new(), rare: None }
    }

    #[cfg(feature = "link")]
    fn order(&mut self) -> Option<&mut VecDeque<Buffered>> {
        self.rare.as_mut()?.order.as_mut()
    }

    pub(super) fn len(&self) -> usize {
        #[cfg(feature = "link")]
        if let Some(order) = self.rare.as_ref().and_then(|rare| rare.order.as_ref()) {
            return order.len();
        }
        self.values.len()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty() && (self.rare.is_none() || self.len() == 0)
    }

    pub(super) fn push_back(&mut self, value: Erased) {
        #[cfg(feature = "link")]
        if let Some(order) = self.order() {
            order.push_back(Buffered::Here);
        }
        self.values.push_back(value);
    }

    /// Takes the value of a send, if there is one.
    pub(super) fn push_from(&mut self, source: &mut Source<'_>) {
        match source {
            // Straight from its slot, whatever its size.
            Source::Slot(slot) if self.rare.is_none() => self.values.push_from(*slot),
            source => source.take().into_iter().for_each(|value| self.push_back(value)),
        }
    }

    /// Adds a value that came over a link.
    #[cfg(feature = "link")]
    pub(super) fn push_encoded(&mut self, bytes: Bytes) {
        let values = &self.values;
        let order = &mut self.rare.get_or_insert_default().order;
        let order = order.get_or_insert_with(|| (0..values.len()).map(|_| Buffered::Here).collect());
        order.push_back(Buffered::Encoded(Encoded { bytes, read: None }));
    }

    /// Takes out all encoded values, and ends the order.
    #[cfg(feature = "link")]
    pub(super) fn take_encoded(&mut self) -> Vec<Bytes> {
        let order = self.rare.as_mut().and_then(|rare| rare.order.take());
        let encoded = order.into_iter().flatten().filter_map(|buffered| match buffered {
            Buffered::Encoded(encoded) => Some(encoded.bytes),
            Buffered::Here => None,
        });
        encoded.collect()
    }

    /// The first value, if it is encoded.
    #[cfg(feature = "link")]
    pub(super) fn first_encoded(&mut self) -> Option<&mut Encoded> {
        match self.order()?.front_mut()? {
            Buffered::Encoded(encoded) => Some(encoded),
            Buffered::Here => None,
        }
    }

    /// Takes the first value out. `None`: the buffer is empty, or the value was encoded.
    pub(super) fn pop_front(&mut self) -> Option<Erased> {
        if self.first_leaves() { self.values.pop_front() } else { None }
    }

    /// Moves the first value to a receive's slot. `false`: the buffer is empty, or the value was encoded.
    pub(super) fn pop_into(&mut self, slot: &mut dyn AnySlot) -> bool {
        // SAFETY: the buffer and the slot are of one channel.
        self.first_leaves() && unsafe { self.values.pop_into(slot) }
    }

    /// Notes that the first value leaves. `true`: it is one of `values`.
    #[inline]
    fn first_leaves(&mut self) -> bool {
        let Some(rare) = &mut self.rare else { return !self.values.is_empty() };
        #[cfg(feature = "link")]
        if let Some(order) = &mut rare.order
            && !matches!(order.pop_front(), Some(Buffered::Here))
        {
            return false;
        }
        if !rare.places.is_empty() {
            rare.places.remove(0);
        }
        !self.values.is_empty()
    }

    /// The same for the last value.
    pub(super) fn pop_back(&mut self) -> Option<Erased> {
        #[cfg(feature = "link")]
        if let Some(order) = self.order()
            && matches!(order.pop_back()?, Buffered::Encoded(_))
        {
            return None;
        }
        let value = self.values.pop_back()?;
        if let Some(rare) = &mut self.rare {
            rare.places.truncate(self.values.len());
        }
        Some(value)
    }

    /// Takes the first value out, which may [return](Self::put_back) to the place returned with it.
    pub(super) fn pop_on_trial(&mut self) -> Option<(Erased, u64)> {
        #[cfg(feature = "link")]
        debug_assert!(self.order().is_none(), "handles elsewhere of an end that has a link");
        let value = self.values.pop_front()?;
        let rare = self.rare.get_or_insert_default();
        if !rare.places.is_empty() {
            return Some((value, rare.places.remove(0)));
        }
        let place = rare.next_place;
        rare.next_place += 1;
        Some((value, place))
    }

    pub(super) fn put_back(&mut self, value: Erased, place: u64) {
        let places = &mut self.rare.get_or_insert_default().places;
        let at = places.partition_point(|other| *other < place);
        places.insert(at, place);
        self.values.insert(at, value);
    }

    /// Takes all values out, in order; encoded ones are dropped.
    pub(super) fn take(&mut self) -> Ring {
        if let Some(rare) = &mut self.rare {
            rare.places.clear();
            #[cfg(feature = "link")]
            drop(rare.order.take());
        }
        std::mem::replace(&mut self.values, Ring::new())
    }

    /// # Panics
    /// If the order, or the places, do not match the buffered values.
    #[cfg(debug_assertions)]
    pub(super) fn check(&self) {
        let Some(rare) = &self.rare else { return };
        assert!(rare.places.len() <= self.values.len(), "more places than values");
        assert!(rare.places.is_sorted(), "places ascend");
        #[cfg(feature = "link")]
        if let Some(order) = &rare.order {
            let here = order.iter().filter(|buffered| matches!(buffered, Buffered::Here)).count();
            assert_eq!(here, self.values.len(), "each value has its place in the order");
        }
    }
}
