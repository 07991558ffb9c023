//! How far a blocking call is: one atomic word. The start, the question to stop, each look and the return are
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
    /// It was asked to stop, and has not looked since.
    Asked,
    /// It was asked, and has seen the question.
    Heeded,
    /// It said that it goes to its end before it was asked.
    Finishing,
    /// It has returned.
    Over,
}

/// What a question to stop found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// No thread had begun the call, and this question has kept it from starting: the caller drops its body.
    NotStarted,
    /// The call runs, and this is the first question.
    First,
    /// Another question came first, or the call has returned: its return is, or was, the answer.
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

    /// The call begins, on the thread that calls this, unless it may not.
    #[must_use]
    pub(crate) fn start(&self) -> bool {
        self.step(Phase::Queued, Phase::Running)
    }

    /// The call will never start, if it has not. Then its body is the caller's.
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
        // The load first: it is what a call that looks in a loop pays.
        self.step(Phase::Asked, Phase::Heeded) || self.get() == Phase::Heeded
    }

    /// Closes the call to questions. `false`: it has been asked before, and has seen it now.
    pub(crate) fn finish(&self) -> bool {
        self.step(Phase::Running, Phase::Finishing) || !self.heed()
    }

    /// The call has returned. In which phase?
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
