//! The limit for everything that the connections of a node make it keep.

use std::collections::VecDeque;

use dunlin_sorted::SortedMap;

use super::charge::{END, FLOOR, cost};
use crate::config::Config;
use crate::id::NodeId;
use crate::source::Source;

/// How much is for halves besides four values, however little a node may keep.
const HALVES_MIN: u64 = 1 << 20;

/// What all connections of a node make it keep, and the share of each source.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    /// For announced values.
    pub(super) reserved: u64,
    pub(super) reserved_max: u64,
    /// How much of that is not for values that may stay here for ever, unless their source has little. Half
    /// of it, at least one of the largest values, is for values for which receives wait. The other half is
    /// only for sources with little, except for needs besides values.
    last: u64,
    /// For credits beyond the floor of each connection.
    pub(super) lent: u64,
    pub(super) lent_max: u64,
    credit_max: u64,
    pub(super) shares: SortedMap<Source, Share>,
    /// For what nodes have declared here, with their sources. It may be kept longer than their connections.
    declared: SortedMap<NodeId, (Source, u64)>,
    /// The connections with announcements that wait for room here, in order.
    pub(crate) waiting: VecDeque<NodeId>,
}

/// What the connections of one source have of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) reserved: u64,
    pub(super) lent: u64,
}

impl Pool {
    pub(crate) fn new(config: &Config) -> Self {
        // Four of the largest values, and a little for halves besides them. With less, one connection with
        // one full channel could not use another channel.
        let value = cost(config.value_max as u64);
        let least = value.saturating_mul(4).saturating_add(HALVES_MIN);
        let spare = config.held_max.saturating_sub(least);
        let lent_max = spare / 2;
        let reserved_max = least.saturating_add(spare - lent_max);
        Self {
            reserved: 0,
            reserved_max,
            last: (reserved_max / 4).max(value.saturating_mul(2)),
            lent: 0,
            lent_max,
            credit_max: (config.credit_max as u64).max(FLOOR),
            shares: SortedMap::new(),
            declared: SortedMap::new(),
            waiting: VecDeque::new(),
        }
    }

    /// The declarations of that node, from that source, take `bytes` bytes. `None`: there is no room for more
    /// than they took. Otherwise whether there is more room than before.
    pub(crate) fn declares(&mut self, node: NodeId, from: Source, bytes: u64) -> Option<bool> {
        let (source, before) = self.declared.get(&node).copied().unwrap_or((from, 0));
        if bytes > before && !self.reserve(source, before, bytes - before, Need::Beside) {
            return None;
        }
        self.release(source, before.saturating_sub(bytes));
        if bytes == 0 {
            self.declared.remove(&node);
        } else if bytes != before {
            self.declared.insert(node, (source, bytes));
        }
        Some(bytes < before)
    }

    /// The nodes with declarations.
    pub(crate) fn declarers(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.declared.keys().copied()
    }

    /// How many bytes the declarations of that node take.
    pub(crate) fn declared_by(&self, node: NodeId) -> u64 {
        self.declared.get(&node).map_or(0, |(_, bytes)| *bytes)
    }

    /// Takes room for an end that arrived in a message from that source; it may outlive the connection.
    /// `false`: there is none.
    pub(crate) fn pays_for_end(&mut self, from: Source) -> bool {
        let mine = self.shares.get(&from).map_or(0, |share| share.reserved);
        self.reserve(from, mine, END, Need::Beside)
    }

    /// Releases the room of such an end.
    pub(crate) fn end_is_over(&mut self, from: Source) {
        self.release(from, END);
    }

    /// Takes room for a connection that has reserved `mine` bytes already. `false`: there is none.
    pub(super) fn reserve(&mut self, from: Source, mine: u64, cost: u64, need: Need) -> bool {
        let free = self.reserved_max.saturating_sub(self.reserved);
        let Some(left) = free.checked_sub(cost) else { return false };
        let theirs = self.shares.get(&from).map_or(0, |share| share.reserved);
        let has_little = theirs < share(self.reserved_max);
        let for_others = match (need, has_little) {
            (Need::Ahead, false) => self.last,
            (Need::Ahead, true) | (Need::Awaited, false) => self.last / 2,
            // It is small, and is refused where a value would wait.
            (Need::Beside, false) => self.last / 4,
            (_, true) => 0,
        };
        let is_share = mine == 0 || need == Need::Awaited || mine.saturating_add(cost) <= left;
        if left < for_others || !is_share {
            return false;
        }
        self.reserved += cost;
        self.shares.get_or_default(from).reserved += cost;
        true
    }

    /// Releases what was reserved.
    pub(super) fn release(&mut self, from: Source, bytes: u64) {
        if bytes > 0 {
            self.change(from, |share| share.reserved -= bytes);
            self.reserved -= bytes;
        }
    }

    pub(super) fn change(&mut self, from: Source, change: impl FnOnce(&mut Share)) {
        let share = self.shares.get_or_default(from);
        change(share);
        if *share == Share::default() {
            self.shares.remove(&from);
        }
    }

    /// How much credit a connection should have that has been lent `mine` bytes beyond its floor.
    pub(super) fn target(&self, from: Source, mine: u64) -> u64 {
        let free = self.lent_max.saturating_sub(self.lent - mine);
        let theirs = self.shares.get(&from).map_or(0, |share| share.lent) - mine;
        let for_others = if theirs < share(self.lent_max) { 0 } else { self.lent_max / 4 };
        (FLOOR + free.saturating_sub(for_others) / 16).min(self.credit_max)
    }

    /// How many bytes are reserved, or lent.
    pub(crate) fn held(&self) -> u64 {
        self.reserved + self.lent
    }
}

/// A source with less than this has little.
fn share(max: u64) -> u64 {
    (max / 64).max(1)
}

/// The purpose of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// A value that may stay here for ever.
    Ahead,
    /// Something other than a value.
    Beside,
    /// A value for which a receive waits, so that it will not stay.
    Awaited,
}

impl Need {
    pub(super) fn of(is_awaited: bool) -> Self {
        if is_awaited { Self::Awaited } else { Self::Ahead }
    }
}
