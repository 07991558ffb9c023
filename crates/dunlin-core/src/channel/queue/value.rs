//! The value of an offer: where it is, where it comes from, and where it returns to.

use std::sync::Arc;

use crate::lock::Lock;

/// A value that one choice offers on several channels at once: the party that settles that choice takes it.
pub(crate) type Pool<T> = Arc<Lock<Pooled<T>>>;

pub(crate) struct Pooled<T> {
    value: Option<T>,
    /// Its bytes, if one of the channels goes over a link.
    #[cfg(feature = "link")]
    pub(crate) encoded: Option<bytes::Bytes>,
}

impl<T> Pooled<T> {
    pub(crate) fn new() -> Self {
        Self {
            value: None,
            #[cfg(feature = "link")]
            encoded: None,
        }
    }

    pub(crate) fn put(&mut self, value: T) {
        self.value = Some(value);
    }

    pub(crate) fn take(&mut self) -> Option<T> {
        self.value.take()
    }
}

/// Where a value comes from when it is sent, and where it returns if it is not taken.
pub(crate) enum Source<'a, T> {
    Slot(&'a mut Option<T>),
    Pool(&'a Pool<T>),
}

impl<T> Source<'_, T> {
    #[cfg(feature = "link")]
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Slot(None))
    }

    pub(super) fn take(&mut self) -> Option<T> {
        match self {
            Self::Slot(slot) => slot.take(),
            Self::Pool(pool) => pool.lock().take(),
        }
    }

    pub(super) fn offered(&mut self) -> Value<T> {
        match self {
            Self::Slot(slot) => slot.take().map_or(Value::Gone, Value::Here),
            Self::Pool(pool) => Value::Pooled(pool.clone()),
        }
    }

    /// Returns a value to its slot; a value of the pool stays in the pool.
    pub(super) fn put_back(&mut self, value: Option<T>) {
        if let (Self::Slot(slot), Some(value)) = (self, value) {
            **slot = Some(value);
        }
    }
}

/// The value of an offer.
pub(super) enum Value<T> {
    Here(T),
    Pooled(Pool<T>),
    /// An extended receive has it.
    Gone,
    /// It came over a link, and is decoded in the poll of the receive that would take it.
    #[cfg(feature = "link")]
    Encoded(bytes::Bytes),
}

impl<T> Value<T> {
    /// The value, for the receive that has settled the offer.
    #[inline]
    pub(super) fn take(&mut self) -> Option<T> {
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
    pub(super) fn back(self) -> Option<T> {
        match self {
            Self::Here(value) => Some(value),
            Self::Pooled(_) | Self::Gone => None,
            #[cfg(feature = "link")]
            Self::Encoded(_) => None,
        }
    }
}
