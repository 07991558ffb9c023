//! The listing of a supervisor's children.

use std::fmt;
use std::sync::{Arc, Mutex};

use dunlin_sorted::SortedMap;

use super::end::ChildEnd;
use super::order::Number;
use crate::Pid;
use crate::lock::lock;

/// The children of a supervisor, and theirs if they are supervisors: what
/// [`Control::tree`](super::Control::tree) returns. Displayed, it has a line for each.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Tree {
    /// In the order in which they start.
    pub children: Vec<TreeChild>,
}

/// A child in a [`Tree`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TreeChild {
    /// Its name.
    pub name: Arc<str>,
    /// Its process, if it has one.
    pub pid: Option<Pid>,
    /// How it is.
    pub state: ChildState,
    /// How often it was started again.
    pub restarts: u64,
    /// Its children, if it is a supervisor.
    pub children: Option<Tree>,
}

/// How a child is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChildState {
    /// It has not been started: it waits for its turn, for the end of a back-off, or for its ends.
    Waiting,
    /// It runs, and has not said that it is ready.
    Starting,
    /// It has started.
    Running,
    /// It was asked to shut down, or cancelled, and has not ended.
    Stopping,
    /// It has not ended within its deadline after it was cancelled. It keeps its ends, so it has no
    /// successor.
    Stuck,
    /// It was stopped with its supervisor, which has ended.
    Stopped,
    /// It has ended for good: how.
    Ended(ChildEnd),
}

impl fmt::Display for ChildState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting => f.write_str("waiting to start"),
            Self::Starting => f.write_str("starting"),
            Self::Running => f.write_str("running"),
            Self::Stopping => f.write_str("stopping"),
            Self::Stuck => f.write_str("cancelled and does not end"),
            Self::Stopped => f.write_str("stopped"),
            Self::Ended(how) => write!(f, "ended: {how}"),
        }
    }
}

impl Tree {
    fn lines(&self, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
        for child in &self.children {
            write!(f, "{:1$}{2}", "", depth * 2, child.name)?;
            if let Some(pid) = child.pid {
                write!(f, " ({pid})")?;
            }
            write!(f, ": {}", child.state)?;
            match child.restarts {
                0 => writeln!(f)?,
                1 => writeln!(f, ", restarted once")?,
                n => writeln!(f, ", restarted {n} times")?,
            }
            if let Some(tree) = &child.children {
                tree.lines(f, depth + 1)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines(f, 0)
    }
}

/// Where a supervisor writes how its children are, so that the listing waits for no supervisor.
#[derive(Clone, Debug, Default)]
pub(super) struct Rows(Arc<Mutex<SortedMap<Number, Row>>>);

/// A child's line.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) name: Arc<str>,
    pub(super) pid: Option<Pid>,
    pub(super) state: ChildState,
    pub(super) restarts: u64,
    pub(super) children: Option<Rows>,
}

impl Rows {
    pub(super) fn insert(&self, child: Number, row: Row) {
        lock(&self.0).insert(child, row);
    }

    pub(super) fn remove(&self, child: Number) {
        lock(&self.0).remove(&child);
    }

    pub(super) fn change(&self, child: Number, change: impl FnOnce(&mut Row)) {
        if let Some(row) = lock(&self.0).get_mut(&child) {
            change(row);
        }
    }

    pub(super) fn tree(&self) -> Tree {
        // A copy, so that no two listings are locked at once.
        let rows: Vec<Row> = lock(&self.0).values().cloned().collect();
        let children = rows.into_iter().map(|row| TreeChild {
            name: row.name,
            pid: row.pid,
            state: row.state,
            restarts: row.restarts,
            children: row.children.map(|rows| rows.tree()),
        });
        Tree { children: children.collect() }
    }
}
