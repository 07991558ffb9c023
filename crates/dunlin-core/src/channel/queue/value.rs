//! The value of an offer: where it is, where it comes from, and where it returns to.

use std::sync::Arc;

use crate::channel::erased::{AnySlot, Erased};
use crate::lock::Lock;

/// A value that one choice offers on several channels at once: the party that settles that choice takes it.
pub(crate) type Pool = Arc<Lock<Pooled>>;

pub(crate) struct Pooled {
    value: Option<Erased>,
    /// Its bytes, if one of the channels goes over a link.
    #[cfg(feature = "link")]
    pub(crate) encoded: Option<bytes::Bytes>,
}

impl Pooled {
    pub(crate) fn new() -> Self {
        Self {
            value: None,
            #[cfg(feature = "link")]
            encoded: None,
        }
    }

    pub(crate) fn put(&mut self, value: Erased) {
        self.value = Some(value);
    }

    pub(crate) fn take(&mut self) -> Option<Erased> {
        self.value.take()
    }
}

/// Where a value comes from when it is sent, and where it returns if it is not taken.
pub(crate) enum Source<'a> {
    Slot(&'a mut dyn AnySlot),
    /// A value that came from elsewhere.
    Far(&'a mut Option<Erased>),
    Pool(&'a Pool),
}

impl Source<'_> {
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Slot(slot) => !slot.is_full(),
            Self::Far(value) => value.is_none(),
            Self::Pool(_) => false,
        }
    }

    pub(super) fn take(&mut self) -> Option<Erased> {
        match self {
            Self::Slot(slot) => slot.take(),
            Self::Far(value) => value.take(),
            Self::Pool(pool) => pool.lock().take(),
        }
    }

    pub(super) fn offered(&mut self) -> Value {
        match self {
            Self::Slot(slot) => slot.take().map_or(Value::Gone, Value::Here),
            Self::Far(value) => value.take().map_or(Value::Gone, Value::Here),
            Self::Pool(pool) => Value::Pooled(pool.clone()),
        }
    }

    /// Returns a value to its slot; a value of the pool stays in the pool.
    pub(super) fn put_back(&mut self, value: Option<Erased>) {
        let Some(value) = value else { return };
        match self {
            // SAFETY: the slot is one of the channel that the value came from.
            Self::Slot(slot) => unsafe { slot.put(value) },
            Self::Far(place) => **place = Some(value),
            // Its pool still has it.
            Self::Pool(_) => drop(value),
        }
    }
}

/// The value of an offer.
pub(super) enum Value {
    Here(Erased),
    Pooled(Pool),
    /// An extended receive has it.
    Gone,
    /// It came over a link, and is decoded in the poll of the receive that would take it.
    #[cfg(feature = "link")]
    Encoded(bytes::Bytes),
}

impl Value {
    /// The value, for the receive that has settled the offer.
    #[inline(always)]
    pub(super) fn take(&mut self) -> Option<Erased> {
        #[cfg(feature = "link")]
        if let Self::Encoded(_) = self {
            return None;
        }
        match std::mem::replace(self, Self::Gone) {
            Self::Here(value) => Some(value),
            Self::Pooled(pool) => pool.lock().take(),
            Self::Gone => None,
            #[cfg(feature = "link")]
            Self::Encoded(_) => None,
        }
    }

    /// The bytes from a link, for the buffer.
    #[cfg(feature = "link")]
    pub(super) fn take_encoded(&mut self) -> Option<bytes::Bytes> {
        match self {
            Self::Encoded(bytes) => {
                let bytes = std::mem::take(bytes);
                *self = Self::Gone;
                Some(bytes)
            }
            _ => None,
        }
    }

    /// The value, for the sender whose offer was not taken.
    pub(super) fn back(self) -> Option<Erased> {
        match self {
            Self::Here(value) => Some(value),
            Self::Pooled(_) | Self::Gone => None,
            #[cfg(feature = "link")]
            Self::Encoded(_) => None,
        }
    }
}
