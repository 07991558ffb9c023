//! The open demands at the agent for one handle of a shared receiver elsewhere.

use std::collections::{BTreeMap, VecDeque};

use super::events::{FromSender, Heard};
use crate::error::Reason;

/// The origin of a value that an agent has.
#[derive(Clone, Copy)]
pub(super) enum Source {
    /// This place of the buffer, which is held.
    Buffer(u64),
    /// The offer under this ticket.
    Offer(u64),
}

/// The open demands at the agent of one handle.
pub(crate) struct Demands<T> {
    pub(crate) heard: Heard<FromSender<T>>,
    /// The next number to offer to the half elsewhere.
    pub(super) next: u64,
    /// How many numbers the half elsewhere can reserve.
    pub(super) posted: usize,
    /// Reserved, and not answered yet.
    pub(super) wants: VecDeque<u64>,
    /// Answered.
    pub(super) given: BTreeMap<u64, Source>,
    /// The reserving half can take unread values.
    pub(super) reads: bool,
    /// The half elsewhere has got the event that the channel is poisoned.
    pub(super) poisoned: bool,
    /// It has got the event that no more values follow.
    pub(super) over: bool,
}

/// The next event of an agent for its handle.
pub(crate) enum Demanded {
    /// This number can be reserved.
    Post(u64),
    /// A value may be available for the reservation of this number.
    Try(u64),
    AskedBack(u64),
    Revoke(u64),
    Poisoned(Reason),
    Gone,
    Lost,
}

impl<T> Demands<T> {
    pub(super) fn number_of(&self, ticket: u64) -> Option<u64> {
        let given = self.given.iter().find(|(_, source)| matches!(source, Source::Offer(other) if *other == ticket));
        given.map(|(number, _)| *number)
    }

    pub(super) fn wants_something(&self) -> bool {
        !self.wants.is_empty()
    }
}
