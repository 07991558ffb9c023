//! What is known of a blocking call.

use std::fmt;
use std::panic::Location;

use dunlin_core::waits::{Pid, tick};

/// What a blocking call does: see [`calls`](super::calls).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallState {
    /// It waits for a thread.
    Queued,
    /// It runs.
    Running,
    /// It runs, and has been asked to stop.
    Asked,
    /// It has declared that it goes to its [end](super::Stop::finishing).
    Finishing,
    /// It runs on after its handle was dropped, or a deadline of its termination has passed.
    Abandoned,
}

impl fmt::Display for CallState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Queued => "waits for a thread",
            Self::Running => "runs",
            Self::Asked => "runs, and was asked to stop",
            Self::Finishing => "runs to its end",
            Self::Abandoned => "runs on, abandoned",
        })
    }
}

/// A blocking call that has not ended: one line of [`calls`](super::calls).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KnownCall {
    /// The process that the call is in the [wait records](crate::waits).
    pub pid: Pid,
    /// Where in the source it was started.
    pub made: &'static Location<'static>,
    /// What it does.
    pub state: CallState,
    /// Since which [`tick`], in milliseconds, it runs or waits for a thread.
    pub since: u32,
}

impl fmt::Display for KnownCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let for_ms = tick().wrapping_sub(self.since);
        write!(f, "{} is a blocking call ({}) and {}, for {for_ms} ms", self.pid, self.made, self.state)
    }
}
