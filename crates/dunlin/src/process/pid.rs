//! The number of a process, with which other processes reach it.

use std::fmt;

use dunlin_core::waits::{self, Spawned};

/// Identifies a process. Never reused while the program runs.
///
/// It is compared by value, and keeps nothing alive: [`link`](crate::link), [`monitor`](crate::monitor) and
/// [`kill`](Pid::kill) take the pid of a process that may have ended long ago. The [wait
/// records](crate::waits) know a process by its number alone; the two kinds of pid can be compared.
///
/// # Examples
/// ```
/// use dunlin::prelude::*;
/// use dunlin::{Pid, waits};
/// # dunlin::block_on(async {
/// let process = spawn(async { (Pid::current(), waits::Pid::current()) });
/// let pid = process.pid();
/// let (own, in_records) = process.await.unwrap();
/// assert_eq!(own, Some(pid));
/// assert_eq!(in_records, pid);
/// # });
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pid {
    number: u64,
    /// The life of a node that it belongs to, by its number in this program. So far there is one: this
    /// program.
    node: u32,
    /// Where the process is found in the table of its program.
    place: u32,
}

/// The number of this program's own node.
const HERE: u32 = 0;

/// The place of what is a process only in the wait records.
const NOWHERE: u32 = u32::MAX;

impl Pid {
    /// The spawned process whose code calls this; `None` outside of every spawned process. A branch of a
    /// `par!` belongs to the process around it.
    pub fn current() -> Option<Self> {
        Spawned::current().map(|process| Self::of(process.place(), process.pid()))
    }

    /// Whether the process runs: it has started, and has not ended.
    pub fn is_alive(self) -> bool {
        self.find().is_some_and(Spawned::is_alive)
    }

    pub(crate) fn of(place: u32, pid: waits::Pid) -> Self {
        Self { number: pid.as_u64(), node: HERE, place }
    }

    /// The pid of a blocking call, or of the code that runs now outside of every spawned process: nothing can
    /// be sent there.
    pub(crate) fn nowhere(pid: waits::Pid) -> Self {
        Self::of(NOWHERE, pid)
    }

    pub(super) fn find(self) -> Option<Spawned> {
        Spawned::find(self.place, waits::Pid::numbered(self.number))
    }
}

impl From<Pid> for waits::Pid {
    fn from(pid: Pid) -> Self {
        Self::numbered(pid.number)
    }
}

impl PartialEq<waits::Pid> for Pid {
    fn eq(&self, other: &waits::Pid) -> bool {
        self.node == HERE && self.number == other.as_u64()
    }
}

impl PartialEq<Pid> for waits::Pid {
    fn eq(&self, other: &Pid) -> bool {
        other == self
    }
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        waits::Pid::from(*self).fmt(f)
    }
}

impl fmt::Debug for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
