//! The profile of blocking calls: when each was dispatched, triggered, killed and finished.
//!
//! It is off unless `DUNLIN_PROFILE` names a file, or [`start`] was called. While off, it costs one relaxed
//! load per stamp.

use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once};
use std::time::Instant;

use dunlin_core::waits::Pid;

use crate::lock::lock;

/// The variable that names the file to which a program writes its profile.
pub(crate) const VARIABLE: &str = "DUNLIN_PROFILE";

/// The maximum number of stamps. The oldest are dropped first, and counted.
const STAMPS_MAX: usize = 65_536;

/// What a stamp marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A process has started the call.
    Dispatch,
    /// A thread begins it.
    Trigger,
    /// It is asked to stop.
    Kill,
    /// It has returned.
    Finish,
}

struct Stamp {
    nanoseconds: u64,
    call: u64,
    event: Event,
    thread: Option<usize>,
}

struct Ring {
    began: Instant,
    stamps: Vec<Stamp>,
    /// The index of the oldest stamp, once all places are taken.
    oldest: usize,
    dropped: u64,
}

static ON: AtomicBool = AtomicBool::new(false);
static RING: Mutex<Option<Ring>> = Mutex::new(None);

/// Takes a stamp, if there is a profile.
#[inline]
pub(crate) fn stamp(event: Event, call: Pid, thread: Option<usize>) {
    if let Some(at) = now() {
        keep(at, event, call, thread);
    }
}

/// The time, if there is a profile.
#[inline]
pub(crate) fn now() -> Option<Instant> {
    ON.load(Ordering::Relaxed).then(Instant::now)
}

/// Keeps a stamp of an earlier moment.
#[cold]
pub(crate) fn keep(at: Instant, event: Event, call: Pid, thread: Option<usize>) {
    if let Some(ring) = &mut *lock(&RING) {
        // A moment before the profile began counts as its beginning.
        let nanoseconds = u64::try_from(at.saturating_duration_since(ring.began).as_nanos()).unwrap_or(u64::MAX);
        ring.push(Stamp { nanoseconds, call: call.as_u64(), event, thread });
    }
}

impl Ring {
    fn new() -> Self {
        Self { began: Instant::now(), stamps: Vec::new(), oldest: 0, dropped: 0 }
    }

    fn push(&mut self, stamp: Stamp) {
        if self.stamps.len() < STAMPS_MAX {
            return self.stamps.push(stamp);
        }
        self.stamps[self.oldest] = stamp;
        self.oldest = (self.oldest + 1) % STAMPS_MAX;
        self.dropped += 1;
    }

    fn write(&self, mut to: impl Write) -> io::Result<()> {
        writeln!(to, "{HEADER}")?;
        writeln!(to, "dropped {}", self.dropped)?;
        let (newer, older) = self.stamps.split_at(self.oldest);
        let mut stamps: Vec<_> = older.iter().chain(newer).collect();
        // The stamp of a stop request is kept after the request, with the time before it.
        stamps.sort_by_key(|stamp| stamp.nanoseconds);
        for Stamp { nanoseconds, call, event, thread } in stamps {
            write!(to, "{nanoseconds} {event} {call}")?;
            match thread {
                Some(thread) => writeln!(to, " {thread}")?,
                None => writeln!(to)?,
            }
        }
        to.flush()
    }
}

/// The first line of a profile.
const HEADER: &str = "dunlin profile 1";

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dispatch => "dispatch",
            Self::Trigger => "trigger",
            Self::Kill => "kill",
            Self::Finish => "finish",
        })
    }
}

/// Begins a profile of all blocking calls of the program. It replaces one that was begun before.
///
/// For each call it keeps when it was dispatched, when a thread triggered it, when it was asked to stop, and
/// when it had finished: 65,536 such stamps, of which the oldest are dropped first. The command `dunlin
/// profile` reads the output of [`write`](Profile::write).
///
/// A program that runs under [`block_on`](crate::block_on) or `#[dunlin::main]` need not call this: if the
/// variable `DUNLIN_PROFILE` names a file, the profile begins with the runtime and is written at its end.
///
/// # Examples
/// ```
/// use dunlin::prelude::*;
/// use dunlin::blocking::profile;
/// # dunlin::block_on(async {
/// # let path = std::env::temp_dir().join(format!("dunlin-profile-{}", std::process::id()));
/// let profile = profile::start();
/// blocking(|_| 6 * 7).await.unwrap();
/// profile.write(&path).unwrap();
/// let text = std::fs::read_to_string(&path).unwrap();
/// assert!(text.contains(" dispatch ") && text.contains(" finish "));
/// # std::fs::remove_file(path).unwrap();
/// # });
/// ```
pub fn start() -> Profile {
    *lock(&RING) = Some(Ring::new());
    ON.store(true, Ordering::Relaxed);
    Profile(())
}

/// A profile that is being taken: dropped, it ends.
#[must_use = "the profile ends when this is dropped"]
#[derive(Debug)]
pub struct Profile(());

impl Profile {
    /// Ends the profile and writes it to a file.
    ///
    /// # Errors
    /// Those of the file.
    pub fn write(self, path: impl AsRef<Path>) -> io::Result<()> {
        ON.store(false, Ordering::Relaxed);
        let ring = lock(&RING).take();
        match ring {
            Some(ring) => ring.write(io::BufWriter::new(std::fs::File::create(path)?)),
            None => Ok(()),
        }
    }
}

impl Drop for Profile {
    fn drop(&mut self) {
        ON.store(false, Ordering::Relaxed);
        drop(lock(&RING).take());
    }
}

/// The profile requested by the variable, until this is dropped.
pub(crate) struct Asked(Option<(Profile, PathBuf)>);

/// Begins it, with the first runtime of the program.
pub(crate) fn asked() -> Asked {
    static FIRST: Once = Once::new();
    let mut asked = None;
    FIRST.call_once(|| {
        let path = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
        asked = path.map(|path| (start(), PathBuf::from(path)));
    });
    Asked(asked)
}

impl Drop for Asked {
    fn drop(&mut self) {
        let Some((profile, path)) = self.0.take() else { return };
        if let Err(error) = profile.write(&path) {
            let _ = writeln!(io::stderr(), "dunlin: cannot write the profile to {}: {error}", path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ring_drops_the_oldest_stamps_and_counts_them() {
        let mut ring = Ring::new();
        for n in 0..STAMPS_MAX as u64 + 3 {
            ring.push(Stamp { nanoseconds: n, call: n, event: Event::Trigger, thread: Some(7) });
        }
        let mut text = Vec::new();
        ring.write(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[..3], [HEADER, "dropped 3", "3 trigger 3 7"]);
        assert_eq!(lines.len(), STAMPS_MAX + 2);
        assert_eq!(lines[STAMPS_MAX + 1], format!("{0} trigger {0} 7", STAMPS_MAX + 2));
    }
}
