//! Which process runs next, and what time it is.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use crate::clock;

/// What a machine asks of its surroundings: an order of turns, and time.
///
/// Processes are known by number. The machine gives every process a turn that [`Host::next`] names, and skips
/// those that ended meanwhile.
///
/// ```
/// use dunlin_scheme::{Host, Scheme};
///
/// /// Runs the process that became ready last, and has no clock.
/// struct Latest(Vec<u64>);
///
/// impl Host for Latest {
///     fn ready(&mut self, process: u64) {
///         self.0.push(process);
///     }
///     fn next(&mut self) -> Option<u64> {
///         self.0.pop()
///     }
///     fn now_us(&mut self) -> u64 {
///         0
///     }
///     fn set_timer(&mut self, _process: u64, _at_us: u64) {}
///     fn cancel_timer(&mut self, _process: u64, _at_us: u64) {}
///     fn wait(&mut self) -> bool {
///         false
///     }
/// }
///
/// let mut scheme = Scheme::new();
/// scheme.set_host(Latest(Vec::new()));
/// let start = "(define main (self)) (define (tell what) (spawn (lambda () (! main what))))";
/// scheme.eval("example", start)?;
/// assert_eq!(scheme.eval("example", "(tell 'first) (tell 'second) (?)")?, "second");
/// # Ok::<(), dunlin_scheme::Error>(())
/// ```
pub trait Host {
    /// A process can run: it was spawned, its turn is over, or it was woken.
    fn ready(&mut self, process: u64);

    /// The process that runs next, taken out of those that can run; those whose timer has passed can.
    fn next(&mut self) -> Option<u64>;

    /// Microseconds; never less than before. Where processes move between programs, count from 1970.
    fn now_us(&mut self) -> u64;

    /// From this time on the process can run.
    fn set_timer(&mut self, process: u64, at_us: u64);

    /// Takes back a timer that was set, if it has not passed.
    fn cancel_timer(&mut self, process: u64, at_us: u64);

    /// No process can run: waits for the first timer, or for less: an
    /// [`Interrupter`](crate::Interrupter) unparks this thread. False if there is none.
    fn wait(&mut self) -> bool;
}

/// A host of one thread, fair to all: each process that can run has its turn before another has two. A
/// process whose timer passed goes before those, but at most every second turn is such a one.
pub(crate) struct Local {
    ready: VecDeque<u64>,
    due: VecDeque<u64>,
    was_due: bool,
    timers: BTreeSet<(u64, u64)>,
    clock: Clock,
}

enum Clock {
    Real,
    /// Goes on with every turn, and to the next timer where all wait.
    Virtual(u64),
}

/// What a turn takes in virtual time: about what its fuel takes.
const TURN_US: u64 = 20;

impl Local {
    /// With the time of the system.
    pub(crate) fn real() -> Self {
        Self::with(Clock::Real)
    }

    /// With a time that begins at zero.
    pub(crate) fn simulated() -> Self {
        Self::with(Clock::Virtual(0))
    }

    fn with(clock: Clock) -> Self {
        Self { ready: VecDeque::new(), due: VecDeque::new(), was_due: false, timers: BTreeSet::new(), clock }
    }

    fn expire(&mut self) {
        if self.timers.is_empty() {
            return;
        }
        let now = self.now_us();
        while let Some((_, process)) = self.timers.first().filter(|(at, _)| *at <= now).copied() {
            self.timers.pop_first();
            self.due.push_back(process);
        }
    }
}

impl Host for Local {
    fn ready(&mut self, process: u64) {
        self.ready.push_back(process);
    }

    fn next(&mut self) -> Option<u64> {
        if let Clock::Virtual(now) = &mut self.clock {
            *now += TURN_US;
        }
        self.expire();
        let first = if self.was_due { self.ready.pop_front() } else { None };
        if first.is_some() {
            self.was_due = false;
            return first;
        }
        self.was_due = !self.due.is_empty();
        self.due.pop_front().or_else(|| self.ready.pop_front())
    }

    fn now_us(&mut self) -> u64 {
        match self.clock {
            Clock::Real => clock::now_us(),
            Clock::Virtual(now) => now,
        }
    }

    fn set_timer(&mut self, process: u64, at_us: u64) {
        self.timers.insert((at_us, process));
    }

    fn cancel_timer(&mut self, process: u64, at_us: u64) {
        self.timers.remove(&(at_us, process));
    }

    fn wait(&mut self) -> bool {
        let Some((at, _)) = self.timers.first().copied() else { return false };
        match &mut self.clock {
            // Only this thread runs the processes: nothing that happens meanwhile wakes one, but an
            // interrupter may end the evaluation.
            Clock::Real => std::thread::park_timeout(Duration::from_micros(at.saturating_sub(clock::now_us()))),
            Clock::Virtual(now) => *now = at.max(*now),
        }
        true
    }
}
