//! The processes that have not ended: their identities, what wakes them, and what a layer above keeps for
//! them.
//!
//! Each spawned process, and each `par!`, has an entry in a table whose entries are never freed. So a number
//! and the place of an entry name a process for ever: an entry that has another number by now belongs to
//! another process, and the named one has ended. The entry's lock carries the count of processes and two
//! marks in its tag. A poll reads that tag, and nothing else, to learn that it has nothing to do here.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::task::Waker;

use crate::lock::Lock;
use crate::sync::global;
use crate::table::{Entry, Table};

/// Identifies a process: a spawned one, or a branch of a `par!`. Never reused while the program runs.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pid(pub(super) u64);

impl Pid {
    /// Code outside every process: a plain task of some runtime, or the body of `main`.
    pub const OUTSIDE: Self = Self(0);

    /// The process that is being polled on this thread.
    pub fn current() -> Self {
        Self(current_number())
    }

    /// The number, for logs.
    pub fn as_u64(self) -> u64 {
        self.0
    }

    #[doc(hidden)]
    pub fn numbered(number: u64) -> Self {
        Self(number)
    }
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 { f.write_str("outside") } else { write!(f, "#{}", self.0) }
    }
}

impl fmt::Debug for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

thread_local! {
    static CURRENT: Current = const { Current { number: Cell::new(0), spawned: Cell::new(None) } };
}

/// What is being polled on this thread. (Two cells in one place: each poll of a process sets both.)
struct Current {
    /// The process: a spawned one, or a branch of a `par!`.
    number: Cell<u64>,
    /// The spawned process, also while a branch in it is polled.
    spawned: Cell<Option<&'static Entry<ProcessRecord>>>,
}

/// The number of the current process.
#[inline(always)]
pub(super) fn current_number() -> u64 {
    CURRENT.with(|current| current.number.get())
}

/// Makes `pid` the current process until the guard is dropped.
#[inline(always)]
pub(crate) fn enter(pid: u64) -> Entered {
    Entered { before: CURRENT.with(|current| current.number.replace(pid)) }
}

pub(crate) struct Entered {
    before: u64,
}

impl Entered {
    /// Switches to another process; the guard still restores the one that was current before it.
    #[inline(always)]
    pub(crate) fn switch(&self, pid: u64) {
        CURRENT.with(|current| current.number.set(pid));
    }
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        CURRENT.with(|current| current.number.set(self.before));
    }
}

/// A reference to something static that an atomic can hold.
pub(super) struct Place(AtomicPtr<Location<'static>>);

impl Default for Place {
    fn default() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }
}

impl Place {
    pub(super) fn set(&self, location: &'static Location<'static>) {
        self.0.store(std::ptr::from_ref(location).cast_mut(), Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> Option<&'static Location<'static>> {
        // SAFETY: the pointer is null or was made from a `&'static Location` in `set`, and is only ever read.
        unsafe { self.0.load(Ordering::Relaxed).as_ref() }
    }
}

static NEXT_PID: AtomicU64 = AtomicU64::new(1);

global! { static PROCESSES: Table<ProcessRecord> = Table::new(); }

/// The bits of the tag that count the processes of a record; 0: the entry is free.
const COUNT: u32 = (1 << 28) - 1;
/// The record has the waker of its task.
const WAKER: u32 = 1 << 28;
/// The layer above has something for the process, which it has not looked at.
const SIGNAL: u32 = 1 << 29;

/// The record of a range of processes: a spawned one, or the branches of one `par!`.
#[derive(Default)]
struct ProcessRecord {
    first: AtomicU64,
    parent: AtomicU64,
    made: Place,
    rest: Lock<Rest>,
}

#[derive(Default)]
struct Rest {
    /// Wakes a spawned process: kept when it first waits.
    waker: Option<Waker>,
    /// What the layer above keeps; until then the [`Name`], if the process has one.
    kept: Option<Kept>,
}

/// What a layer above keeps for a process until it ends.
#[doc(hidden)]
pub trait Keep: Any + Send + Sync {
    /// The name of the process. It may wait: not called under a lock.
    fn name(&self) -> Option<Arc<str>>;
}

#[doc(hidden)]
pub type Kept = Arc<dyn Keep>;

/// The name of a process for which the layer above keeps nothing.
struct Name(Arc<str>);

impl Name {
    fn of(kept: &Kept) -> Option<&Self> {
        let any: &dyn Any = &**kept;
        any.downcast_ref()
    }
}

impl Keep for Name {
    fn name(&self) -> Option<Arc<str>> {
        Some(self.0.clone())
    }
}

/// The identities of a spawned process or of the branches of a `par!`, listed by [`processes`] until dropped.
#[doc(hidden)]
pub struct Identities(&'static Entry<ProcessRecord>);

impl fmt::Debug for Identities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Identities").field(&self.first()).finish()
    }
}

impl Identities {
    /// New identities for `count` processes whose parent is the current one.
    pub fn new(count: u32, made: &'static Location<'static>) -> Self {
        Self::at(PROCESSES.take(), count, made)
    }

    /// Those of one process that is about to be spawned, and its place in the table.
    pub fn spawned(made: &'static Location<'static>) -> (Self, u32) {
        let entry = PROCESSES.take();
        (Self::at(entry, 1, made), entry.index())
    }

    fn at(entry: &'static Entry<ProcessRecord>, count: u32, made: &'static Location<'static>) -> Self {
        let first = NEXT_PID.fetch_add(u64::from(count.max(1)), Ordering::Relaxed);
        entry.first.store(first, Ordering::Relaxed);
        entry.parent.store(current_number(), Ordering::Relaxed);
        entry.made.set(made);
        entry.rest.lock().tag = count.min(COUNT);
        Self(entry)
    }

    /// The first of them; the others follow.
    pub fn first(&self) -> Pid {
        Pid(self.0.first.load(Ordering::Relaxed))
    }

    /// Names the process in the output.
    pub fn set_name(&self, name: Arc<str>) {
        let kept: Kept = Arc::new(Name(name));
        self.0.rest.lock().kept = Some(kept);
    }

    /// Runs `f` as the first of these processes.
    #[inline]
    pub fn run<R>(&self, f: impl FnOnce() -> R) -> R {
        let _entered = enter(self.0.first.load(Ordering::Relaxed));
        f()
    }

    /// Makes the first of these processes the current one, and the one that was spawned, until the guard is
    /// dropped.
    #[inline(always)]
    pub fn enter(&self) -> InSpawned {
        CURRENT.with(|current| {
            current.number.set(self.0.first.load(Ordering::Relaxed));
            current.spawned.set(Some(self.0));
        });
        InSpawned(())
    }

    /// Whether a poll of this process has nothing to do but its body: its waker is kept, and it has no
    /// signal.
    #[inline(always)]
    pub fn is_quiet(&self) -> bool {
        self.0.rest.tag() == Some(1 | WAKER)
    }

    /// What the layer above keeps, if it has a signal for the process.
    pub fn look(&self) -> Option<Kept> {
        // The first poll.
        if self.0.rest.tag() == Some(1) {
            return None;
        }
        let mut rest = self.0.rest.lock();
        let signal = rest.has(SIGNAL);
        rest.clear(SIGNAL);
        if signal { rest.kept.clone() } else { None }
    }

    /// The process waits: keeps the waker, unless it is kept. (A process that ends in its first poll needs
    /// none.)
    #[cold]
    pub fn waits(&self, waker: &Waker) {
        let kept = waker.clone();
        let mut rest = self.0.rest.lock();
        let old = if rest.has(WAKER) { Some(kept) } else { rest.waker.replace(kept) };
        // A signal of the first poll found no waker.
        let missed = rest.has(SIGNAL) && !rest.has(WAKER);
        rest.set(WAKER);
        drop(rest);
        drop(old);
        if missed {
            waker.wake_by_ref();
        }
    }

    /// Ends the process for all others: from now on none of them finds it. Returns what the layer above has
    /// kept.
    pub fn close(&self) -> Option<Kept> {
        if self.0.rest.tag() == Some(0) {
            return None;
        }
        let mut rest = self.0.rest.lock();
        rest.tag = 0;
        let (waker, kept) = (rest.waker.take(), rest.kept.take());
        drop(rest);
        drop(waker);
        kept
    }
}

impl Drop for Identities {
    fn drop(&mut self) {
        let kept = self.close();
        PROCESSES.give(self.0);
        drop(kept);
    }
}

/// See [`Identities::enter`].
///
/// A runtime polls a spawned process outside of every other, so nothing is restored: an executor that a
/// process runs within its own poll leaves that process, for the rest of the poll, outside of every process.
#[doc(hidden)]
#[derive(Debug)]
pub struct InSpawned(());

impl Drop for InSpawned {
    #[inline(always)]
    fn drop(&mut self) {
        CURRENT.with(|current| {
            current.spawned.set(None);
            current.number.set(0);
        });
    }
}

/// A spawned process, as others reach it. It may have ended.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct Spawned {
    entry: &'static Entry<ProcessRecord>,
    number: u64,
}

impl fmt::Debug for Spawned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Spawned").field(&self.pid()).finish()
    }
}

impl Spawned {
    /// The process whose body is being polled on this thread.
    pub fn current() -> Option<Self> {
        CURRENT
            .with(|current| current.spawned.get())
            .map(|entry| Self { entry, number: entry.first.load(Ordering::Relaxed) })
    }

    /// The process with this number, at this place; `None` if there never was such a place.
    pub fn find(place: u32, pid: Pid) -> Option<Self> {
        PROCESSES.get(place).map(|entry| Self { entry, number: pid.0 })
    }

    /// Its number.
    pub fn pid(self) -> Pid {
        Pid(self.number)
    }

    /// The place at which it is found.
    pub fn place(self) -> u32 {
        self.entry.index()
    }

    /// Whether it has not ended.
    pub fn is_alive(self) -> bool {
        let rest = self.entry.rest.lock();
        self.is_in(rest.tag)
    }

    /// Whether its record, locked and with this tag, is still its own.
    fn is_in(self, tag: u32) -> bool {
        // A record is taken, and given back, under its lock; and numbers are not reused.
        tag & COUNT == 1 && self.entry.first.load(Ordering::Relaxed) == self.number
    }

    /// What the layer above keeps for the process, made by `new` if there is nothing. `None`: it has ended.
    pub fn kept(self, new: impl FnOnce(Option<Arc<str>>) -> Kept) -> Option<Kept> {
        let name = {
            let rest = self.entry.rest.lock();
            if !self.is_in(rest.tag) {
                return None;
            }
            match &rest.kept {
                Some(kept) => match Name::of(kept) {
                    Some(Name(name)) => Some(name.clone()),
                    None => return Some(kept.clone()),
                },
                None => None,
            }
        };
        // Made while the record is not locked: the lock spins.
        let new = new(name);
        let mut rest = self.entry.rest.lock();
        if !self.is_in(rest.tag) {
            return None;
        }
        // Another thread may have been faster.
        let (kept, old) = match &rest.kept {
            Some(kept) if Name::of(kept).is_none() => (kept.clone(), Some(new)),
            _ => (new.clone(), rest.kept.replace(new)),
        };
        drop(rest);
        drop(old);
        Some(kept)
    }

    /// Polls the process, which then looks at what the layer above keeps. `false`: it has ended.
    pub fn rouse(self) -> bool {
        let mut rest = self.entry.rest.lock();
        if !self.is_in(rest.tag) {
            return false;
        }
        rest.set(SIGNAL);
        // Before it has waited it has no waker: its first poll looks, and it looks when it waits.
        let waker = rest.waker.clone();
        drop(rest);
        waker.into_iter().for_each(Waker::wake);
        true
    }
}

/// A process, or the branches of one `par!`: one line of [`processes`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Known {
    /// The process, or the first branch.
    pub first: Pid,
    /// How many: 1 for a spawned process, the number of branches for a `par!`.
    pub count: u32,
    /// The process that started it.
    pub parent: Pid,
    /// The source location.
    pub made: &'static Location<'static>,
    /// Its name, if it has one.
    pub name: Option<String>,
}

/// All processes that have not ended.
pub fn processes() -> Vec<Known> {
    let known = |entry: &'static Entry<ProcessRecord>| {
        let rest = entry.rest.lock();
        let count = rest.tag & COUNT;
        if count == 0 {
            return None;
        }
        let kept = rest.kept.clone();
        let known = Known {
            first: Pid(entry.first.load(Ordering::Relaxed)),
            count,
            parent: Pid(entry.parent.load(Ordering::Relaxed)),
            made: entry.made.get()?,
            name: None,
        };
        drop(rest);
        let name = kept.and_then(|kept| kept.name());
        Some(Known { name: name.as_deref().map(String::from), ..known })
    };
    PROCESSES.iter().filter_map(known).collect()
}
