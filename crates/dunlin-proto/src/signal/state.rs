//! The watches of a connection, and what a driver learns of signals.

use dunlin_sorted::{SortedMap, SortedSet};

use crate::account::Charge;
use crate::id::{Contact, NodeId, ProcessId};
use crate::misbehaved::PeerMisbehaved;
use crate::planted::planted;
use crate::wire::{Exit, limits};

/// Why a signal was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotSignalled {
    /// This node has as many watches at that one as it may, or the connection has no room for more signals.
    #[error("the connection has no room for the signal")]
    Full,
    /// That node has left in order, and not come back.
    #[error("the node has left")]
    Left,
    /// This node is leaving or replaced, or is the node of the process: its own signals do not need the
    /// machine.
    #[error("this node sends no signals there")]
    NotHere,
}

/// What a driver learns of signals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignalHears {
    /// That node watches this process, under this number. Answer with [`Machine::down`](crate::Machine::down)
    /// when the process has ended, or if there is none.
    Watch(Contact, u64, ProcessId),
    /// The watch of that node has ended, and needs no answer.
    Unwatch(NodeId, u64),
    /// All watches of that node have ended.
    AllUnwatched(NodeId),
    /// A watch of this node has ended: reported once for each, unless this node ends it. If the process's
    /// node is lost, this says so.
    Down(NodeId, u64, Box<Exit>),
    /// A node asks that the exit of `source` end `target`, a process of this node.
    Link {
        /// The node that asks.
        by: NodeId,
        /// Any process.
        source: ProcessId,
        /// The process that is linked.
        target: ProcessId,
    },
    /// A node asks that this link end.
    Unlink {
        /// The node that asks.
        by: NodeId,
        /// Any process.
        source: ProcessId,
        /// The process that is linked.
        target: ProcessId,
    },
    /// An exit for this process. Report with [`Machine::exit_received`](crate::Machine::exit_received) once
    /// it has been received, or dropped.
    Exit {
        /// The node that has sent it.
        by: Contact,
        /// A process of this node.
        to: ProcessId,
        /// The process that has sent it.
        from: ProcessId,
        /// The exit.
        exit: Box<Exit>,
    },
    /// A node asks that this process end.
    Kill {
        /// The node that asks.
        by: NodeId,
        /// A process of this node.
        to: ProcessId,
        /// The process that has sent it.
        from: ProcessId,
    },
}

/// The watches that one connection carries, in its present life. A watch leaves its set when it ends, and
/// only what leaves a set is reported.
///
/// The node of the process has at most as many watches as the watching node: that one adds a watch before it
/// sends it, and removes it after the other node has. So it alone has to keep the limit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watches {
    /// Those of this node on processes of the other one.
    asked: SortedSet<u64>,
    /// Those of the other node on processes of this one.
    here: SortedMap<u64, Charge>,
}

impl Watches {
    /// This node watches a process of the other one. `false`: it may not.
    pub(super) fn ask(&mut self, watch: u64) -> bool {
        self.asked.len() < limits::WATCHES && self.asked.insert(watch)
    }

    /// The process has ended, or this node needs no answer. `false`: the watch has ended before.
    pub(super) fn asked_ends(&mut self, watch: u64) -> bool {
        if planted!(WatchKept) {
            return self.asked.contains(&watch);
        }
        self.asked.remove(&watch)
    }

    /// The life of the connection is over: the watches of this node that this ends.
    pub(super) fn take_asked(&mut self) -> SortedSet<u64> {
        std::mem::take(&mut self.asked)
    }

    /// The other node watches a process of this one.
    pub(super) fn may_begin(&self, watch: u64) -> Result<(), PeerMisbehaved> {
        if self.here.contains_key(&watch) {
            return Err(PeerMisbehaved::WatchInUse(watch));
        }
        if self.here.len() >= limits::WATCHES {
            return Err(PeerMisbehaved::TooManyWatches { watches_max: limits::WATCHES });
        }
        Ok(())
    }

    pub(super) fn begins(&mut self, watch: u64, charge: Charge) {
        self.here.insert(watch, charge);
    }

    /// The process has ended, or the other node needs no answer. `None`: the watch has ended before.
    pub(super) fn ends(&mut self, watch: u64) -> Option<Charge> {
        self.here.remove(&watch)
    }

    /// Whether the other node watches any process.
    pub(super) fn is_watched(&self) -> bool {
        !self.here.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watch_ends_once_at_each_side() {
        let mut watches = Watches::default();
        assert!(watches.ask(1));
        assert!(watches.asked_ends(1));
        assert!(!watches.asked_ends(1));
        assert_eq!(watches.may_begin(7), Ok(()));
        watches.begins(7, Charge::NONE);
        assert_eq!(watches.may_begin(7), Err(PeerMisbehaved::WatchInUse(7)));
        assert_eq!(watches.ends(7), Some(Charge::NONE));
        assert_eq!(watches.ends(7), None);
    }

    #[test]
    fn both_sides_keep_the_same_limit() {
        let (mut asks, mut answers) = (Watches::default(), Watches::default());
        for watch in 0..limits::WATCHES as u64 {
            assert!(asks.ask(watch));
            assert_eq!(answers.may_begin(watch), Ok(()));
            answers.begins(watch, Charge::NONE);
        }
        let next = limits::WATCHES as u64;
        assert!(!asks.ask(next));
        assert_eq!(answers.may_begin(next), Err(PeerMisbehaved::TooManyWatches { watches_max: limits::WATCHES }));
        assert!(asks.asked_ends(0) && asks.ask(next));
        assert!(answers.ends(0).is_some());
        assert_eq!(answers.may_begin(next), Ok(()));
    }
}
