//! Which value that stands for an end acts on a channel.

/// Which handle of an end acts: the end itself, or one of the clones of a shared one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Handle(u32);

impl Handle {
    /// The end itself: unshared, or held by a claim.
    pub(crate) const END: Self = Self(u32::MAX);

    /// None: a place in the buffer.
    pub(crate) const BUFFER: Self = Self(u32::MAX - 1);

    /// The agent of the receiver, which is elsewhere.
    pub(crate) const OUTLET: Self = Self(u32::MAX - 2);

    /// The clone of a shared end with this number.
    pub(crate) fn clone_number(number: u32) -> Self {
        Self(number)
    }
}
