//! What a node owes to the callers that end it: waiting flushes, values that could not be written, and what
//! remains of it when its last handle is dropped.

use std::collections::VecDeque;
use std::sync::Arc;

use dunlin_proto::Mark;
use dunlin_proto::id::{ChannelId, NodeId};
use dunlin_sorted::{SortedMap, SortedSet};
use tokio::sync::oneshot;

use super::error::{NodeError, Unwritten};
use super::id::Half;
use super::roles::Roles;
use crate::world::Own;

/// A node without handles, until it has left.
pub(super) struct Abandoned {
    pub(super) roles: Arc<Roles>,
    /// The tasks of a node with a role, which end with it.
    pub(super) tasks: Vec<Own>,
}

/// The values of a node that could not be written: how many there were, and the last of them.
#[derive(Default)]
pub(super) struct Losses {
    count: u64,
    /// How many of them have been reported.
    pub(super) told: u64,
    last: VecDeque<Unwritten>,
}

impl Losses {
    /// As many as a text names.
    const KEPT: usize = 8;

    pub(super) fn push(&mut self, name: Option<String>, why: String) {
        self.count += 1;
        self.last.push_back(Unwritten { name, why });
        if self.last.len() > Self::KEPT {
            self.last.pop_front();
        }
    }

    /// Reports those after the first `first`.
    pub(super) fn tell(&mut self, first: u64) -> Result<(), NodeError> {
        let count = self.count - first;
        if count == 0 {
            return Ok(());
        }
        self.told = self.count;
        let kept = self.last.len().min(usize::try_from(count).unwrap_or(usize::MAX));
        Err(NodeError::Unwritten { count, values: self.last.range(self.last.len() - kept..).cloned().collect() })
    }
}

/// A call of [`Node::flush`](super::Node::flush) that waits.
pub(super) struct Flush {
    /// Halves with messages whose sends are complete, and which wait for an end in them to be at rest.
    pub(super) owing: SortedSet<Half>,
    /// Channels whose values wait until the home is known, and the node that is believed to have it.
    pub(super) detained: SortedMap<ChannelId, Option<NodeId>>,
    /// Set once these two are empty.
    pub(super) mark: Option<Mark>,
    pub(super) lost: Vec<NodeId>,
    pub(super) told: oneshot::Sender<Vec<NodeId>>,
}
