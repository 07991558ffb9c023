//! What can go wrong with a name, and with a scope's end.

use std::fmt;
use std::panic::Location;
use std::time::Duration;

use dunlin_core::waits::{Pid, Wait};

use crate::Exit;

/// A place in the source.
pub(crate) type At = &'static Location<'static>;

/// Why an end of a scope's name could not be joined, or a process not be forked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScopeError {
    /// The name stands for something else.
    #[error("{name:?} is {declared} ({declared_at}), not {wanted} ({wanted_at})")]
    Type {
        /// The name.
        name: String,
        /// What it stands for.
        declared: String,
        /// Where it was declared first.
        declared_at: At,
        /// What was asked for.
        wanted: String,
        /// Where.
        wanted_at: At,
    },
    /// The face was joined, and not by sharing it.
    #[error(
        "the {face} of {name:?} was joined at {joined_at}, and {}; if several processes join, each must take a \
         `Shared` {face} (joined again at {wanted_at})",
        if *.shared { "shared there" } else { "alone" }
    )]
    Taken {
        /// The name.
        name: String,
        /// Which of its ends.
        face: &'static str,
        /// Where it was joined.
        joined_at: At,
        /// Whether it was shared there.
        shared: bool,
        /// Where it was to be joined again.
        wanted_at: At,
    },
    /// All holders of the face have left, so its channel is over.
    #[error(
        "all holders of the {face} of {name:?} have dropped it: fork the processes that join one name together \
         (`fork_all`, `fork_n`)"
    )]
    Left {
        /// The name.
        name: String,
        /// Which of its ends.
        face: &'static str,
    },
    /// The name has a policy from another place, or its channel was in use without one.
    #[error("{name:?} is given a policy at {wanted_at}, but {}", match .declared_at {
        Some(at) => format!("has one from {at}"),
        None => "both its ends were joined before".to_owned(),
    })]
    Policy {
        /// The name.
        name: String,
        /// Where its policy was given; `None`: nowhere, and it is too late.
        declared_at: Option<At>,
        /// Where another one was.
        wanted_at: At,
    },
    /// The scope, or one around it, was finished: nothing forks or joins there any more.
    #[error("the scope is finished: no process can fork or join there any more")]
    Finished,
    /// A process that was forked together with this one ended before it had joined its ends.
    #[error("a process forked together with this one ended before it had joined its ends")]
    Sibling,
    /// The scope's rule gives the name to a node, but this end was not declared as portable.
    #[error(
        "{name:?} is on the network by the scope's rule, but {carries} (joined at {wanted_at}) is not declared \
         portable: write `.portable()`, or `#[sender(\"name\", portable)]`"
    )]
    NotPortable {
        /// The name.
        name: String,
        /// What it stands for.
        carries: String,
        /// Where it was to be joined.
        wanted_at: At,
    },
    /// The node to which the scope's rule gives the name could not declare it.
    #[cfg(feature = "net")]
    #[error(transparent)]
    Name(#[from] crate::node::NameError),
}

/// Why a scope did not finish in order.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FinishError {
    /// Processes had not ended when the deadline passed. They run on.
    Stragglers {
        /// The processes, in the order in which they were forked.
        stragglers: Vec<Straggler>,
        /// How long they were waited for.
        patience: Duration,
        /// What else went wrong.
        failure: Option<Box<Self>>,
    },
    /// All have ended; this one was the first to panic.
    Panicked(Exit),
    /// All have ended; this one was the first that could not join its ends.
    NotStarted(Exit),
}

impl FinishError {
    /// The processes that had not ended.
    pub fn stragglers(&self) -> &[Straggler] {
        match self {
            Self::Stragglers { stragglers, .. } => stragglers,
            _ => &[],
        }
    }
}

impl fmt::Display for FinishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stragglers { stragglers, patience, failure } => {
                write!(f, "after {patience:?} {} of the scope still run:", stragglers.len())?;
                stragglers.iter().try_for_each(|straggler| write!(f, "\n  {straggler}"))?;
                failure.iter().try_for_each(|failure| write!(f, "\nand {failure}"))
            }
            Self::Panicked(exit) | Self::NotStarted(exit) => write!(f, "in the scope {exit}"),
        }
    }
}

impl std::error::Error for FinishError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Stragglers { failure, .. } => failure.as_deref().map(|failure| failure as _),
            Self::Panicked(exit) | Self::NotStarted(exit) => Some(exit),
        }
    }
}

/// A process that had not ended when its scope was to be finished.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Straggler {
    /// Which process.
    pub pid: Pid,
    /// Its name: of the function, if it is a `#[process]`.
    pub name: Option<String>,
    /// Where it was forked.
    pub made: At,
    /// What it, or a branch of a `par!` in it, waits on. Empty: it runs, or its wait has no record.
    pub waits: Vec<Wait>,
}

impl fmt::Display for Straggler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.name {
            write!(f, "{name} ")?;
        }
        write!(f, "{} (forked at {})", self.pid, self.made)?;
        self.waits.iter().try_for_each(|wait| write!(f, "\n    {wait}"))
    }
}
