//! The open demands at the agent for one handle of a shared receiver elsewhere.

use std::collections::VecDeque;

use dunlin_sorted::SortedMap;

use super::events::{FromSender, Heard};
use crate::error::Reason;
use crate::handle::Handle;

/// The origin of a value that an agent has.
#[derive(Clone, Copy)]
pub(super) enum Source {
    /// This place of the buffer, which is held.
    Buffer(u64),
    /// The offer under this ticket.
    Offer(u64),
}

/// The open demands at the agent of one handle.
pub(crate) struct Demands {
    pub(crate) heard: Heard<FromSender>,
    /// The next number to offer to the half elsewhere.
    pub(super) next: u64,
    /// How many numbers the half elsewhere can reserve.
    pub(super) posted: usize,
    /// Reserved, and not answered yet.
    pub(super) wants: VecDeque<u64>,
    /// Answered.
    pub(super) given: SortedMap<u64, Source>,
    /// The reserving half can take unread values.
    pub(super) reads: bool,
    /// The half elsewhere has got the event that the channel is poisoned.
    pub(super) poisoned: bool,
    /// It has got the event that no more values follow.
    pub(super) over: bool,
}

/// The demands of all such agents, sorted by handle.
#[derive(Default)]
pub(crate) struct AllDemands(Vec<(Handle, Box<Demands>)>);

impl AllDemands {
    fn place(&self, handle: Handle) -> Result<usize, usize> {
        self.0.binary_search_by_key(&handle, |(handle, _)| *handle)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn get(&self, handle: Handle) -> Option<&Demands> {
        let at = self.place(handle).ok()?;
        Some(&self.0[at].1)
    }

    pub(super) fn get_mut(&mut self, handle: Handle) -> Option<&mut Demands> {
        let at = self.place(handle).ok()?;
        Some(&mut self.0[at].1)
    }

    pub(super) fn insert(&mut self, handle: Handle, demands: Demands) {
        let demands = Box::new(demands);
        match self.place(handle) {
            Ok(at) => self.0[at].1 = demands,
            Err(at) => self.0.insert(at, (handle, demands)),
        }
    }

    pub(super) fn remove(&mut self, handle: Handle) -> Option<Box<Demands>> {
        let at = self.place(handle).ok()?;
        Some(self.0.remove(at).1)
    }

    #[cfg(debug_assertions)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &Demands> {
        self.0.iter().map(|(_, demands)| &**demands)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Demands> {
        self.0.iter_mut().map(|(_, demands)| &mut **demands)
    }
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

impl Demands {
    pub(super) fn number_of(&self, ticket: u64) -> Option<u64> {
        let given = self.given.iter().find(|(_, source)| matches!(source, Source::Offer(other) if *other == ticket));
        given.map(|(number, _)| *number)
    }

    pub(super) fn wants_something(&self) -> bool {
        !self.wants.is_empty()
    }
}
