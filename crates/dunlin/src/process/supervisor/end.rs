//! How children and supervisors end.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::Exit;

/// How a child ended, or why it counts as dead.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChildEnd {
    /// Its process returned, and returned no error.
    Returned,
    /// Its process ended with this exit.
    Exited(Exit),
    /// It was not [ready](super::Supervised::ready) within its deadline.
    NotReady(Duration),
    /// It was cancelled and did not end within its deadline.
    Stuck,
}

impl ChildEnd {
    /// Whether it is normal, so that a transient child does not start again.
    pub fn is_normal(&self) -> bool {
        match self {
            Self::Returned => true,
            Self::Exited(exit) => exit.is_normal(),
            Self::NotReady(_) | Self::Stuck => false,
        }
    }
}

impl fmt::Display for ChildEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Returned => f.write_str("returned"),
            Self::Exited(exit) => exit.reason.fmt(f),
            Self::NotReady(deadline) => write!(f, "was not ready within {deadline:?}"),
            Self::Stuck => f.write_str("was cancelled and did not end"),
        }
    }
}

/// Why a supervisor ended otherwise than in order.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SupervisorError {
    /// More of its children died than may within the period of its limit. It has stopped all others.
    TooManyDeaths(Box<TooManyDeaths>),
    /// It was shut down, and these children did not end within their deadlines: they still run.
    StillRunning(Vec<Arc<str>>),
}

/// The deaths that ended a supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TooManyDeaths {
    /// The child that died last.
    pub child: Arc<str>,
    /// How it ended.
    pub end: ChildEnd,
    /// How many died.
    pub deaths: usize,
    /// In which period.
    pub period: Duration,
    /// Children that did not end within their deadlines: they still run.
    pub still_running: Vec<Arc<str>>,
}

impl fmt::Display for TooManyDeaths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { child, end, deaths, period, still_running } = self;
        write!(f, "too many children died, {deaths} within {period:?}: the last, {child}, {end}")?;
        if !still_running.is_empty() {
            write!(f, "; still running: {}", still_running.join(", "))?;
        }
        Ok(())
    }
}

impl fmt::Display for SupervisorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyDeaths(deaths) => deaths.fmt(f),
            Self::StillRunning(children) => {
                write!(f, "children did not end when they were cancelled: {}", children.join(", "))
            }
        }
    }
}

impl std::error::Error for SupervisorError {}
