//! The state of a blocking call: one atomic word. The start, the stop request, each check and the return are
//! steps of it, so each call has exactly one outcome.
//!
//! ```text
//!  Queued ──start──▶ Running ──ask──▶ Asked ──heed──▶ Heeded
//!    │                 │                │                │
//!    │ ask, refuse     │ finish         │                │       over: the phase before it is the outcome
//!    ▼                 ▼                ▼                ▼
//!  Never            Finishing ──────▶ Over ◀─────────────┘
//! ```
//!
//! `dunlin-core/tests/loom_blocking.rs` compiles this file again, with loom's atomics.

use super::atomic::{AtomicU8, Ordering};

/// How far a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// No thread has begun it.
    Queued,
    /// No thread ever will.
    Never,
    Running,
    /// It was asked to stop, and has not checked since.
    Asked,
    /// It was asked, and has seen the request.
    Heeded,
    /// It declared that it goes to its end before it was asked.
    Finishing,
    /// It has returned.
    Over,
}

/// What a stop request found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// No thread had begun the call, and this request has kept it from starting: the caller drops its body.
    NotStarted,
    /// The call runs, and this is the first request.
    First,
    /// Another request came first, or the call has returned: its return is, or was, the answer.
    Again,
    /// The call is finishing, and is not asked.
    Finishing,
}

/// The phase of one call.
pub(crate) struct Word(AtomicU8);

impl Word {
    pub(crate) fn new() -> Self {
        Self(AtomicU8::new(Phase::Queued as u8))
    }

    /// Begins the call, on the thread that calls this. `false`: it must not begin.
    #[must_use]
    pub(crate) fn start(&self) -> bool {
        self.step(Phase::Queued, Phase::Running)
    }

    /// Keeps the call from starting, if it has not started. `true`: its body is the caller's.
    #[must_use]
    pub(crate) fn refuse(&self) -> bool {
        self.step(Phase::Queued, Phase::Never)
    }

    /// Asks the call to stop.
    pub(crate) fn ask(&self) -> Asked {
        loop {
            let (from, to, found) = match self.get() {
                Phase::Queued => (Phase::Queued, Phase::Never, Asked::NotStarted),
                Phase::Running => (Phase::Running, Phase::Asked, Asked::First),
                Phase::Finishing => return Asked::Finishing,
                Phase::Never | Phase::Asked | Phase::Heeded | Phase::Over => return Asked::Again,
            };
            if self.step(from, to) {
                return found;
            }
        }
    }

    /// Whether the call has been asked. Once this is true, the call counts as having seen it.
    pub(crate) fn heed(&self) -> bool {
        // The load first: it is the whole cost for a call that checks in a loop.
        self.step(Phase::Asked, Phase::Heeded) || self.get() == Phase::Heeded
    }

    /// Closes the call to stop requests. `false`: it has been asked before, and has seen that now.
    pub(crate) fn finish(&self) -> bool {
        self.step(Phase::Running, Phase::Finishing) || !self.heed()
    }

    /// Records that the call has returned. Gives the phase in which it did.
    pub(crate) fn over(&self) -> Phase {
        Self::phase(self.0.swap(Phase::Over as u8, Ordering::AcqRel))
    }

    pub(crate) fn get(&self) -> Phase {
        Self::phase(self.0.load(Ordering::Acquire))
    }

    fn step(&self, from: Phase, to: Phase) -> bool {
        self.get() == from && self.0.compare_exchange(from as u8, to as u8, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    fn phase(number: u8) -> Phase {
        use Phase::{Asked, Finishing, Heeded, Never, Over, Queued, Running};
        [Queued, Never, Running, Asked, Heeded, Finishing, Over][usize::from(number)]
    }
}
