//! Wait records: which process waits, on what, since when, and which process could end the wait.
//!
//! A channel has a record with two sides. An operation that has to wait writes its process and the coarse
//! time into its side: two plain stores, always on, in every figure of `docs/performance.md`. The holder of a
//! side is the process that used it last, so the other side's wait can name the process it is for.
//! [`snapshot`] reads all records without stopping any process; a line may be a moment old.
//!
//! Other waits have a record too, taken when the first poll finds that it must wait: for a process, a timer,
//! a future named as a branch of a choice, a blocking call. A deadline (`until`, `.within`, `.by`) has no
//! line of its own: the operation it bounds has one.
//!
//! A barrier has a record, and so has each enrolment on it: a wait there shows how many are there, and one
//! party that is not.
//!
//! A line goes when its operation is done or dropped, also by a cancel or a panic. If an operation is polled
//! through a borrow and then no longer polled, the core cannot know that it was given up. That is so for a
//! [`Receiver`](crate::Receiver) as a stream, or a `&mut` to a process in a `select!` of another crate. Such
//! a line shows the process that polled it last; it goes with the next use of the borrowed value, or with its
//! drop. A choice of this crate notifies its branches, so they leave no line. If an operation is forgotten
//! (`mem::forget`) together with the end it waits on, its line stays.
//!
//! # What a program prints by itself
//! Under `#[dunlin::main]` and `dunlin::block_on`:
//!
//! - On Unix, SIGQUIT (`kill -QUIT`, or Ctrl-\ at a terminal) prints all waits and processes to standard
//!   error, and the program continues. It does so while all worker threads are busy, too. Once `main` has
//!   returned, the signal ends the program as usual.
//! - In dev builds (`debug_assertions`) on Linux and Android, a *suspected deadlock* is printed, once for
//!   each: no process has run for 2 s, every process waits, and nothing else could end a wait. Nothing is
//!   printed while a timer or deadline runs, while code outside of dunlin keeps the waker of a process (a
//!   socket, a signal, a future in `future(..)`), while the runtime has tasks that are not processes (those
//!   of a node, too), or while the program has other threads (a blocking call, `std::thread`). So silence
//!   proves little.
//!
//! The variable `DUNLIN_WATCHDOG=off` turns both off; a number of seconds replaces the 2 s. Windows has
//! neither.
//!
//! Time here is a *tick*, in milliseconds, that the runtime stores with [`advance`]: the core reads no clock.
//! The `dunlin` crate advances it every 5 milliseconds while anything runs.

#[doc(hidden)]
pub mod activity;
mod identity;

use std::fmt;
use std::panic::Location;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::task::Poll;

use dunlin_sorted::SortedMap;

pub use crate::clock::{advance, tick};
use crate::sync::global;
use crate::table::{Entry, Table};
pub(crate) use identity::enter;
pub use identity::{Identities, Keep, Kept, Known, Pid, Spawned, processes};
use identity::{Place, current_number};

global! { static RECORDS: Table<Record> = Table::new(); }

/// What a process waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Doing {
    /// To have its value received.
    Send,
    /// To receive a value.
    Receive,
    /// To hold a shared end alone.
    Claim,
    /// For the channel's other end to go.
    Closed,
    /// For a process to end.
    Exit,
    /// For a blocking call to return.
    Return,
    /// For a timer.
    Time,
    /// To be asked to stop, within a blocking call.
    Stop,
    /// For a future named as a branch of a choice; nothing else is known about it.
    Future,
    /// For the other parties of a barrier.
    Sync,
    /// For more receivers to join a broadcast.
    Join,
    /// For a thread, as a blocking call in a queue.
    Thread,
    /// For room for a blocking call.
    Room,
    /// For a descriptor to be ready: a socket, or within a blocking call.
    Ready,
    /// For a bucket to be flushed.
    Flush,
}

impl fmt::Display for Doing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Send => "send",
            Self::Receive => "receive",
            Self::Claim => "claim",
            Self::Closed => "end",
            Self::Exit => "exit",
            Self::Return => "return",
            Self::Time => "a timer",
            Self::Stop => "a request to stop",
            Self::Future => "a future",
            Self::Sync => "a barrier",
            Self::Join => "receivers to join",
            Self::Thread => "a thread",
            Self::Room => "room for a blocking call",
            Self::Ready => "a descriptor",
            Self::Flush => "a flush",
        })
    }
}

/// `who` has the process in its lower bits and its [`Doing`] above them, in four bits: one store sets both.
const DOING_SHIFT: u32 = 60;

/// One side of a record: the process that used it last, and whether it waits there.
#[derive(Default)]
pub(crate) struct Side {
    who: AtomicU64,
    since: AtomicU32,
    /// The turn in which this end was last chosen ([`crate::choice`], fair order).
    turn: AtomicU32,
}

impl Side {
    #[inline(always)]
    pub(crate) fn begin(&self, doing: Doing) {
        let who = current_number() | (doing as u64 + 1) << DOING_SHIFT;
        // An operation that is polled again and still waits keeps its first time.
        if self.who.load(Ordering::Relaxed) != who {
            self.since.store(tick(), Ordering::Relaxed);
            self.who.store(who, Ordering::Relaxed);
        }
    }

    /// The wait has ended, or there was none: the current process holds this side.
    #[inline(always)]
    pub(crate) fn end(&self) {
        self.who.store(current_number(), Ordering::Relaxed);
    }

    /// Another process has ended the holder's wait.
    pub(crate) fn end_for_holder(&self) {
        self.who.store(self.read().0.0, Ordering::Relaxed);
    }

    /// Makes this process the holder of the side, whichever process made it.
    pub(crate) fn hand_to(&self, pid: Pid) {
        self.who.store(pid.0, Ordering::Relaxed);
    }

    pub(crate) fn turn(&self) -> u32 {
        self.turn.load(Ordering::Relaxed)
    }

    pub(crate) fn set_turn(&self, turn: u32) {
        self.turn.store(turn, Ordering::Relaxed);
    }

    fn read(&self) -> (Pid, Option<Doing>, u32) {
        let who = self.who.load(Ordering::Relaxed);
        let doing = match who >> DOING_SHIFT {
            1 => Some(Doing::Send),
            2 => Some(Doing::Receive),
            3 => Some(Doing::Claim),
            4 => Some(Doing::Closed),
            5 => Some(Doing::Exit),
            6 => Some(Doing::Return),
            7 => Some(Doing::Time),
            8 => Some(Doing::Stop),
            9 => Some(Doing::Future),
            10 => Some(Doing::Sync),
            11 => Some(Doing::Join),
            12 => Some(Doing::Thread),
            13 => Some(Doing::Room),
            14 => Some(Doing::Ready),
            15 => Some(Doing::Flush),
            _ => None,
        };
        (Pid(who & ((1 << DOING_SHIFT) - 1)), doing, self.since.load(Ordering::Relaxed))
    }
}

/// The wait record of a channel, of one handle to a shared end, of one enrolment on a barrier, or of another
/// wait. A handle's entry has the channel's number as its link. An enrolment's has that of the barrier's
/// record, and the receiver's side waits. In another wait's record the receiver's side waits, and the
/// sender's names the process it waits for.
#[derive(Default)]
pub(crate) struct Record {
    made: Place,
    /// How often this entry has been taken; odd while it is in use.
    generation: AtomicU32,
    pub(crate) sender: Side,
    pub(crate) receiver: Side,
}

const NOT_A_HANDLE: u32 = u32::MAX;
const NOT_A_CHANNEL: u32 = u32::MAX - 1;
const BARRIER: u32 = u32::MAX - 2;

/// An entry of the record table, given back on drop.
pub(crate) struct Recorded(&'static Entry<Record>);

impl Recorded {
    #[inline]
    pub(crate) fn channel(made: &'static Location<'static>) -> Self {
        Self::take(made, NOT_A_HANDLE, current_number())
    }

    /// A record for one of several handles to an end of this channel.
    pub(crate) fn handle(of: ChannelId, made: &'static Location<'static>) -> Self {
        Self::take(made, of.0 as u32, current_number())
    }

    /// The record of a barrier, on which no process waits: its enrolments have their own.
    pub(crate) fn barrier(made: &'static Location<'static>) -> Self {
        Self::take(made, BARRIER, 0)
    }

    /// A record for waits on something else than a channel.
    pub(crate) fn wait(made: &'static Location<'static>) -> Self {
        Self::take(made, NOT_A_CHANNEL, 0)
    }

    /// A record for one enrolment on the barrier that has this record.
    pub(crate) fn enrolment(of: &Self) -> Self {
        Self::take(of.made(), of.index(), current_number())
    }

    /// Where in the source its channel or barrier was made.
    pub(crate) fn made(&self) -> &'static Location<'static> {
        self.0.made.get().expect("a record in use says where it was made")
    }

    pub(crate) fn index(&self) -> u32 {
        self.0.index()
    }

    fn take(made: &'static Location<'static>, of: u32, sender: u64) -> Self {
        let entry = RECORDS.take();
        entry.made.set(made);
        entry.link.store(of, Ordering::Relaxed);
        for (side, who) in [(&entry.sender, sender), (&entry.receiver, current_number())] {
            side.who.store(who, Ordering::Relaxed);
            side.turn.store(0, Ordering::Relaxed);
        }
        entry.generation.fetch_add(1, Ordering::Release);
        Self(entry)
    }

    /// The channel's number: unique until an entry has been used two thousand million times.
    pub(crate) fn id(&self) -> ChannelId {
        ChannelId(u64::from(self.generation.load(Ordering::Relaxed)) << 32 | u64::from(self.0.index()))
    }
}

impl Recorded {
    /// The record itself, which is never freed.
    pub(crate) fn entry(&self) -> &'static Record {
        self.0.value()
    }
}

impl std::ops::Deref for Recorded {
    type Target = Record;

    #[inline]
    fn deref(&self) -> &Record {
        self.0
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        self.generation.fetch_add(1, Ordering::Release);
        RECORDS.give(self.0);
    }
}

/// The wait record of an operation that is not on a channel; taken when it first has to wait, and returned
/// when the wait ends.
#[doc(hidden)]
#[derive(Default)]
pub struct Watch(Option<Recorded>);

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watch").field(&self.0.is_some()).finish()
    }
}

impl Watch {
    /// Stores the outcome of a poll in the record. `on`: the process it waits for, or [`Pid::OUTSIDE`].
    #[inline]
    pub fn note<R>(&mut self, polled: Poll<R>, doing: Doing, on: Pid, made: &'static Location<'static>) -> Poll<R> {
        if polled.is_pending() {
            self.0.get_or_insert_with(|| Recorded::take(made, NOT_A_CHANNEL, on.0)).receiver.begin(doing);
        } else {
            self.0 = None;
        }
        polled
    }

    /// No process waits any more; the awaited value lives on.
    #[inline]
    pub fn end(&self) {
        if let Some(recorded) = &self.0 {
            recorded.receiver.end();
        }
    }
}

/// Identifies a channel within this program: unique among the channels that exist at once, and reused only
/// after two thousand million others.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelId(u64);

impl ChannelId {
    /// The number, for logs.
    pub fn as_u64(self) -> u64 {
        self.0
    }
}

impl fmt::Display for ChannelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The generation counts takes and gives; its half counts the channels that this entry has served.
        write!(f, "c{}.{}", self.0 & 0xffff_ffff, (self.0 >> 33) + 1)
    }
}

impl fmt::Debug for ChannelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One wait: one line of a [`snapshot`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Wait {
    /// The waiting process. A process in a choice has a line for every channel it watches.
    pub who: Pid,
    /// What it waits to do.
    pub doing: Doing,
    /// The channel it waits on; `None` if it waits for something else.
    pub channel: Option<ChannelId>,
    /// Where that channel, or the process, timer, future or blocking call was made.
    pub made: &'static Location<'static>,
    /// The [`tick`] since which it waits, in milliseconds.
    pub since: u32,
    /// The process that used the channel's other end last, and so may hold it; `None` if no process has, or
    /// the end is shared. Without a channel: the process, or blocking call, that it waits for. For a barrier:
    /// one of the enrolled parties that are not there.
    pub on: Option<Pid>,
    /// For a barrier: how many parties are there, and how many are enrolled.
    pub there: Option<(u32, u32)>,
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waited = tick().wrapping_sub(self.since);
        write!(f, "{} waits {waited} ms for {}", self.who, self.doing)?;
        if let Some((there, enrolled)) = self.there {
            write!(f, " ({}), {there} of {enrolled} there", self.made)?;
            return self.on.map_or(Ok(()), |on| write!(f, ", not yet {on}"));
        }
        match (self.channel, self.on) {
            (Some(channel), Some(on)) => write!(f, " on {channel} ({}), other end last used by {on}", self.made),
            (Some(channel), None) => write!(f, " on {channel} ({})", self.made),
            (None, Some(on)) => write!(f, " of {on} ({})", self.made),
            (None, None) => write!(f, " ({})", self.made),
        }
    }
}

/// Returns all current waits.
///
/// It reads while processes run, without stopping them: each line was true at some moment during the call.
///
/// # Examples
/// ```
/// use dunlin_core::{channel, waits};
/// use std::{future::Future, pin::pin, task::{Context, Waker}};
///
/// let (tx, mut rx) = channel::<u8>();
/// let mut receive = pin!(rx.recv());
/// assert!(receive.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
/// let here: Vec<_> = waits::snapshot().into_iter().filter(|w| w.channel == Some(tx.id())).collect();
/// assert_eq!(here.len(), 1);
/// assert_eq!(here[0].doing, waits::Doing::Receive);
/// ```
pub fn snapshot() -> Vec<Wait> {
    let mut waits = Vec::new();
    // The parties by the number of the barrier's record: each with its wait there, and since when.
    let mut barriers = SortedMap::<u32, Vec<(Pid, Option<Doing>, u32)>>::new();
    for entry in RECORDS.iter() {
        let generation = entry.generation.load(Ordering::Acquire);
        if generation.is_multiple_of(2) {
            continue;
        }
        let of = entry.link.load(Ordering::Relaxed);
        if of == BARRIER {
            continue;
        }
        let own = of == NOT_A_HANDLE || of == NOT_A_CHANNEL;
        let channel_entry = if own { Some(entry) } else { RECORDS.get(of) };
        let Some(channel_entry) = channel_entry else { continue };
        if !own && channel_entry.link.load(Ordering::Relaxed) == BARRIER {
            let party = entry.receiver.read();
            if entry.generation.load(Ordering::Acquire) == generation {
                barriers.get_or_default(of).push(party);
            }
            continue;
        }
        let Some(made) = channel_entry.made.get() else { continue };
        let id = u64::from(channel_entry.generation.load(Ordering::Relaxed)) << 32 | u64::from(channel_entry.index());
        let channel = (of != NOT_A_CHANNEL).then_some(ChannelId(id));
        let before = waits.len();
        let sides = [(&entry.sender, &entry.receiver), (&entry.receiver, &entry.sender)];
        for (side, other) in sides {
            let (who, Some(doing), since) = side.read() else { continue };
            let (other, ..) = other.read();
            let on = if own && other != Pid::OUTSIDE { Some(other) } else { None };
            waits.push(Wait { who, doing, channel, made, since, on, there: None });
        }
        if entry.generation.load(Ordering::Acquire) != generation {
            // Returned meanwhile: the fields read may be of two channels.
            waits.truncate(before);
        }
    }
    for (barrier, parties) in barriers {
        let Some(made) = RECORDS.get(barrier).and_then(|entry| entry.made.get()) else { continue };
        let there = parties.iter().filter(|(_, doing, _)| doing.is_some()).count();
        let there = Some((there as u32, parties.len() as u32));
        let absent = parties.iter().filter(|(_, doing, _)| doing.is_none()).map(|(who, ..)| *who);
        let on = absent.into_iter().find(|who| *who != Pid::OUTSIDE);
        let waiting = parties.iter().filter_map(|(who, doing, since)| Some((*who, (*doing)?, *since)));
        waits.extend(waiting.map(|(who, doing, since)| Wait { who, doing, channel: None, made, since, on, there }));
    }
    waits
}
