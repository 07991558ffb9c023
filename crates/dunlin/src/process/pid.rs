//! The number of a process, with which other processes reach it.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::num::NonZeroU32;

use dunlin_core::waits::{self, Spawned};
#[cfg(feature = "net")]
use dunlin_proto::id::{Incarnation, Life, NodeId, ProcessId};

/// Identifies a process: its node, the incarnation of the node, and a number, which the node never uses
/// again.
///
/// It is compared by value, and keeps nothing alive: [`link`](crate::link), [`monitor`](crate::monitor) and
/// [`kill`](Pid::kill) take the pid of a process that may have ended long ago. The [wait
/// records](crate::waits) know a process of this program by its number alone; the two kinds of pid can be
/// compared.
///
/// With the feature `net` it is [`Portable`](crate::Portable). In a message to another node it takes 64
/// random bits with it, without which that node could not send signals to the process: a pid that was given
/// away is the right to link, monitor and kill. At the node of its process a pid is that of a process of the
/// program again. The processes that an [`Exit`](crate::Exit) from another node names can be compared, and
/// not signalled.
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
#[derive(Clone, Copy)]
pub struct Pid {
    number: u64,
    /// Where the process is found in the table of its program.
    place: u32,
    /// The node of this program that the pid has arrived at, counted from 1; 0: the process is one of this
    /// program.
    #[cfg(feature = "net")]
    via: u32,
    #[cfg(feature = "net")]
    far: Far,
}

/// What only the pid of a process of another node has. (Not interned: a pid is `Copy`, so nothing could ever
/// release a life of a node, and each client joins with a new one.)
#[cfg(feature = "net")]
#[derive(Clone, Copy, Default)]
struct Far {
    /// In two halves, which need no padding.
    node: [u64; 2],
    incarnation: u64,
    bits: u64,
}

/// The pid of a process of this program, or of the code outside of every process: 16 bytes, also in an
/// `Option`, where a [`Pid`] has 56.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct NearPid {
    number: u64,
    /// The complement of its place, which is below [`NOWHERE`].
    place: NonZeroU32,
}

impl NearPid {
    /// The spawned process whose code calls this, or the code outside of every process.
    pub(super) fn current() -> Self {
        let process = Spawned::current();
        process.map_or(Self::of(NOWHERE, waits::Pid::OUTSIDE), |process| Self::of(process.place(), process.pid()))
    }

    pub(super) fn of(place: u32, pid: waits::Pid) -> Self {
        Self { number: pid.as_u64(), place: NonZeroU32::new(!place).unwrap_or(NonZeroU32::MIN) }
    }

    /// Whether it is the spawned process whose code calls this.
    pub(super) fn is_current(self) -> bool {
        is_current(self.number)
    }

    pub(super) fn pid(self) -> Pid {
        Pid::of(!self.place.get(), self.in_records())
    }

    pub(super) fn in_records(self) -> waits::Pid {
        waits::Pid::numbered(self.number)
    }
}

/// Whether the spawned process whose code calls this has this number.
fn is_current(number: u64) -> bool {
    Spawned::current().is_some_and(|process| process.pid().as_u64() == number)
}

/// The place of what is a process only in the wait records.
const NOWHERE: u32 = u32::MAX;

impl Pid {
    /// The spawned process whose code calls this; `None` outside of every spawned process. A branch of a
    /// `par!` belongs to the process around it.
    pub fn current() -> Option<Self> {
        Spawned::current().map(|process| Self::of(process.place(), process.pid()))
    }

    /// Whether the process runs: it has started, and has not ended. Of a process of another node this is
    /// false: only a [monitor](crate::monitor()) finds out.
    pub fn is_alive(self) -> bool {
        self.find().is_some_and(Spawned::is_alive)
    }

    /// Whether it is the process whose code calls this.
    pub(super) fn is_current(self) -> bool {
        !self.is_far() && is_current(self.number)
    }

    pub(crate) fn of(place: u32, pid: waits::Pid) -> Self {
        Self {
            number: pid.as_u64(),
            place,
            #[cfg(feature = "net")]
            via: 0,
            #[cfg(feature = "net")]
            far: Far::default(),
        }
    }

    /// The pid of a blocking call, or of the code that runs now outside of every spawned process: nothing can
    /// be sent there.
    pub(crate) fn nowhere(pid: waits::Pid) -> Self {
        Self::of(NOWHERE, pid)
    }

    pub(super) fn number(self) -> u64 {
        self.number
    }

    pub(super) fn place(self) -> u32 {
        self.place
    }

    pub(super) fn find(self) -> Option<Spawned> {
        if self.is_far() { None } else { Spawned::find(self.place, waits::Pid::numbered(self.number)) }
    }

    /// Whether the process is one of another node.
    pub(super) fn is_far(self) -> bool {
        #[cfg(feature = "net")]
        return self.via > 0;
        #[cfg(not(feature = "net"))]
        false
    }

    /// What two pids of one process have in common.
    fn key(&self) -> (u64, u64, u64, u64) {
        #[cfg(feature = "net")]
        return (self.far.node[0], self.far.node[1], self.far.incarnation, self.number);
        #[cfg(not(feature = "net"))]
        (0, 0, 0, self.number)
    }
}

#[cfg(feature = "net")]
impl Pid {
    /// The pid of a process of another node, that has arrived at node `via` of this program.
    pub(super) fn there(id: ProcessId, via: u64) -> Self {
        let ProcessId { life, number, place, bits } = id;
        let node = [(life.node.0 >> 64) as u64, life.node.0 as u64];
        let via = u32::try_from(via).unwrap_or(u32::MAX).saturating_add(1);
        Self { number, place, via, far: Far { node, incarnation: life.incarnation.0, bits } }
    }

    /// How other nodes name it, and the node of this program that it has arrived at. `None`: it is one of
    /// this program.
    pub(super) fn id_there(self) -> Option<(ProcessId, u64)> {
        let far = self.is_far().then_some(self.far)?;
        let node = NodeId(u128::from(far.node[0]) << 64 | u128::from(far.node[1]));
        let life = Life { node, incarnation: Incarnation(far.incarnation) };
        Some((ProcessId { life, number: self.number, place: self.place, bits: far.bits }, u64::from(self.via) - 1))
    }
}

impl PartialEq for Pid {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Pid {}

impl PartialOrd for Pid {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Pid {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl Hash for Pid {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl From<Pid> for waits::Pid {
    /// The records of this program do not know a process of another node: its pid is
    /// [`OUTSIDE`](Self::OUTSIDE).
    fn from(pid: Pid) -> Self {
        if pid.is_far() { Self::OUTSIDE } else { Self::numbered(pid.number) }
    }
}

impl PartialEq<waits::Pid> for Pid {
    fn eq(&self, other: &waits::Pid) -> bool {
        !self.is_far() && self.number == other.as_u64()
    }
}

impl PartialEq<Pid> for waits::Pid {
    fn eq(&self, other: &Pid) -> bool {
        other == self
    }
}

impl fmt::Display for Pid {
    /// The number, and the beginning of the node's id if that is another one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        waits::Pid::numbered(self.number).fmt(f)?;
        #[cfg(feature = "net")]
        if let Some((id, _)) = self.id_there() {
            write!(f, "@{}", id.life)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
