//! What is open at the agent of a handle of a shared receiver that is elsewhere.

use std::collections::{BTreeMap, VecDeque};

use super::events::{FromSender, Heard};
use crate::error::Reason;

/// Where a value comes from that an agent has.
#[derive(Clone, Copy)]
pub(super) enum Source {
    /// It was in this place of the buffer, which is held.
    Buffer(u64),
    /// The offer under this ticket.
    Offer(u64),
}

/// What is open at the agent of one handle.
pub(crate) struct Demands<T> {
    pub(crate) heard: Heard<FromSender<T>>,
    /// The next number of those that the half elsewhere knows.
    pub(super) next: u64,
    /// So many of them it can reserve.
    pub(super) posted: usize,
    /// Reserved, and not answered.
    pub(super) wants: VecDeque<u64>,
    /// Answered.
    pub(super) given: BTreeMap<u64, Source>,
    /// Who reserves can have what is unread.
    pub(super) reads: bool,
    /// The half elsewhere has been told that the channel is poisoned.
    pub(super) poisoned: bool,
    /// It has been told that nothing more comes.
    pub(super) over: bool,
}

/// What an agent says next for its handle.
pub(crate) enum Demanded {
    /// This number can be reserved.
    Post(u64),
    /// There may be something for the reservation of this number.
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
