//! How many messages a mailbox holds.

use std::num::NonZeroUsize;

/// How many messages a mailbox holds, and what it does with one more.
///
/// Exits and downs are not counted, and are always accepted: there is at most one for each link and monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Bound {
    /// As many as there is memory for.
    Unbounded,
    /// So many: sending one more fails with [`PostError::Full`](crate::PostError::Full).
    Reject(NonZeroUsize),
    /// So many: one more takes the place of the oldest that has not been received.
    DropOldest(NonZeroUsize),
}

impl Bound {
    /// [`Reject`](Self::Reject) beyond `messages_max`; a mailbox holds at least one.
    pub fn reject(messages_max: usize) -> Self {
        Self::Reject(NonZeroUsize::new(messages_max).unwrap_or(NonZeroUsize::MIN))
    }

    /// [`DropOldest`](Self::DropOldest) beyond `messages_max`; a mailbox holds at least one.
    pub fn drop_oldest(messages_max: usize) -> Self {
        Self::DropOldest(NonZeroUsize::new(messages_max).unwrap_or(NonZeroUsize::MIN))
    }
}

/// A bound in one word, as each mailbox has one: twice the messages, and 1 if the oldest is dropped; 0 if
/// there is no bound. (Half of the address space is as good as all of it.)
#[derive(Clone, Copy)]
pub(super) struct Packed(usize);

impl Packed {
    pub(super) fn is_unbounded(self) -> bool {
        self.0 == 0
    }
}

impl From<Bound> for Packed {
    fn from(bound: Bound) -> Self {
        let twice = |max: NonZeroUsize| max.get().min(usize::MAX / 2) * 2;
        Self(match bound {
            Bound::Unbounded => 0,
            Bound::Reject(max) => twice(max),
            Bound::DropOldest(max) => twice(max) + 1,
        })
    }
}

impl From<Packed> for Bound {
    fn from(Packed(word): Packed) -> Self {
        match NonZeroUsize::new(word / 2) {
            None => Self::Unbounded,
            Some(max) if word % 2 == 0 => Self::Reject(max),
            Some(max) => Self::DropOldest(max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_bound_is_the_same_bound() {
        let half = usize::MAX / 2;
        for bound in [1, 2, 3, half].into_iter().flat_map(|max| [Bound::reject(max), Bound::drop_oldest(max)]) {
            assert_eq!(Bound::from(Packed::from(bound)), bound);
            assert!(!Packed::from(bound).is_unbounded());
        }
        assert_eq!(Bound::from(Packed::from(Bound::drop_oldest(usize::MAX))), Bound::drop_oldest(half));
        assert_eq!(Bound::from(Packed::from(Bound::Unbounded)), Bound::Unbounded);
        assert!(Packed::from(Bound::Unbounded).is_unbounded());
    }
}
