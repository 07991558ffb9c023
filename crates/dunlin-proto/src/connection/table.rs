//! The nodes that this one deals with, and when each has to be examined.
//!
//! A [`Connection`] is here while this node needs the connection, or has learned an address of a node that it
//! is about to need; `former.rs` has what is kept of others. An event of one node costs the same however many
//! others there are: [`Connections::due`] finds the nodes to examine, and anything that examines all of them
//! is counted.

use std::cell::Cell;
use std::ops::Bound;

use dunlin_sorted::{SortedMap, SortedSet};

use super::Connection;
use crate::id::NodeId;
use crate::source::{Shares, Source, has_place};
use crate::time::Time;

/// How many nodes that this node has not met one source may name as holders of ends. Each of them is dialled,
/// and others are asked to help, until it is given up.
const UNMET_MAX: usize = 1024;

#[derive(Clone, Debug, Default)]
pub(crate) struct Connections {
    records: SortedMap<NodeId, Connection>,
    /// One entry for each record with a due time, the same as there.
    due: SortedSet<(Time, NodeId)>,
    /// How many lives of connections have begun.
    lives: u64,
    /// The nodes whose record is new, or has rested: perhaps nothing uses it.
    resting: Vec<NodeId>,
    /// How many of the records each source has for nodes that have connected to this one.
    shares: Shares,
    /// How many of the records are for nodes that have only been named, by source.
    unmet: Shares,
    /// How many records were examined because a deadline passed, or while searching for others.
    visited: Cell<u64>,
}

impl Connections {
    #[inline]
    pub(crate) fn get(&self, node: NodeId) -> Option<&Connection> {
        self.records.get(&node)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, node: NodeId) -> Option<&mut Connection> {
        self.records.get_mut(&node)
    }

    #[inline]
    pub(crate) fn contains(&self, node: NodeId) -> bool {
        self.records.contains_key(&node)
    }

    /// The record of that node. `insert` completes a new one, which is removed again if nothing uses it.
    pub(crate) fn get_or_insert(&mut self, node: NodeId, insert: impl FnOnce(&mut Connection)) -> &mut Connection {
        let lives = &mut self.lives;
        let resting = &mut self.resting;
        self.records.get_or_insert_with(node, || {
            *lives += 1;
            resting.push(node);
            let mut connection = Connection::new(*lives);
            insert(&mut connection);
            connection
        })
    }

    /// The number for a life of a connection that begins now.
    pub(crate) fn next_life(&mut self) -> u64 {
        self.lives += 1;
        self.lives
    }

    /// A node whose record may be unused.
    pub(crate) fn take_resting(&mut self) -> Option<NodeId> {
        self.resting.pop()
    }

    pub(crate) fn remove(&mut self, node: NodeId) -> Option<Connection> {
        self.no_due(node);
        self.is_met(node);
        let connection = self.records.remove(&node)?;
        connection.counts_for.into_iter().for_each(|source| self.shares.give_back(source));
        Some(connection)
    }

    /// Whether a node from that source has a place among `max`: it is here already, or one is free for its
    /// source ([`has_place`]).
    pub(crate) fn admits(&self, node: NodeId, source: Source, max: usize) -> bool {
        self.contains(node) || has_place(max, self.len(), self.shares.held(source))
    }

    /// That node has connected from that source, and is admitted. If its record is here for another reason,
    /// no source is charged for the place.
    pub(crate) fn comes(&mut self, node: NodeId, source: Source, insert: impl FnOnce(&mut Connection)) {
        if !self.contains(node) {
            self.get_or_insert(node, insert).counts_for = Some(source);
            self.shares.take(source);
        }
    }

    /// Only that source has named a node that this one does not know yet. `false`: the source may name no
    /// more of those ([`UNMET_MAX`]), and the node gets no record.
    pub(crate) fn admit_unmet(&mut self, node: NodeId, by: Source, insert: impl FnOnce(&mut Connection)) -> bool {
        if self.contains(node) {
            return true;
        }
        if self.unmet.held(by) >= UNMET_MAX {
            return false;
        }
        self.get_or_insert(node, insert).named_by = Some(by);
        self.unmet.take(by);
        true
    }

    /// That node is known: it no longer counts among those that were only named.
    pub(crate) fn is_met(&mut self, node: NodeId) {
        let by = self.records.get_mut(&node).and_then(|connection| connection.named_by.take());
        by.into_iter().for_each(|source| self.unmet.give_back(source));
    }

    /// This node need not be examined any more.
    pub(crate) fn rests(&mut self, node: NodeId) {
        self.resting.push(node);
        self.no_due(node);
    }

    fn no_due(&mut self, node: NodeId) {
        if let Some(at) = self.records.get_mut(&node).and_then(|connection| connection.due.take()) {
            self.due.remove(&(at, node));
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// All records. Not for use when a deadline passes, or in a handshake.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (NodeId, &Connection)> {
        self.records.iter().map(|(node, connection)| {
            self.visit();
            (*node, connection)
        })
    }

    /// All records, for outside observers: not counted.
    pub(crate) fn survey(&self) -> impl Iterator<Item = (NodeId, &Connection)> {
        self.records.iter().map(|(node, connection)| (*node, connection))
    }

    /// As [`iter`](Self::iter).
    pub(crate) fn nodes(&self) -> Vec<NodeId> {
        self.iter().map(|(node, _)| node).collect()
    }

    /// The nodes after that one, or all, in the order of their ids.
    pub(crate) fn nodes_behind(&self, node: Option<NodeId>) -> impl Iterator<Item = NodeId> {
        let from = node.map_or(Bound::Unbounded, Bound::Excluded);
        self.records.range((from, Bound::Unbounded)).map(|(node, _)| {
            self.visit();
            *node
        })
    }

    fn visit(&self) {
        self.visited.set(self.visited.get() + 1);
    }

    /// How many records were examined because a deadline passed, or while searching for others.
    pub(crate) fn visited(&self) -> u64 {
        self.visited.get()
    }

    // Due times.

    /// This node has to be examined at that time, or before.
    pub(crate) fn due_at(&mut self, node: NodeId, at: Time) {
        let Some(connection) = self.records.get_mut(&node) else { return };
        if connection.due.is_none_or(|due| at < due) {
            if let Some(before) = connection.due.replace(at) {
                self.due.remove(&(before, node));
            }
            self.due.insert((at, node));
        }
    }

    /// When the next node has to be examined.
    pub(crate) fn next_due(&self) -> Option<Time> {
        self.due.first().map(|(at, _)| *at)
    }

    /// The nodes to examine now. None of them is due any more.
    pub(crate) fn take_due(&mut self, now: Time) -> Vec<NodeId> {
        let mut nodes = Vec::new();
        while let Some((at, node)) = self.due.first().copied().filter(|(at, _)| *at <= now) {
            self.due.remove(&(at, node));
            self.visit();
            if let Some(connection) = self.records.get_mut(&node) {
                connection.due = None;
            }
            nodes.push(node);
        }
        // By id, not by the time at which they were due.
        nodes.sort_unstable();
        nodes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(nodes: u128) -> Connections {
        let mut table = Connections::default();
        for node in 1..=nodes {
            table.get_or_insert(NodeId(node), |_| {});
        }
        table
    }

    #[test]
    fn only_the_nodes_that_are_due_are_visited() {
        let mut table = table(1000);
        table.due_at(NodeId(7), Time(30));
        table.due_at(NodeId(9), Time(10));
        table.due_at(NodeId(7), Time(20));
        table.due_at(NodeId(7), Time(40));
        assert_eq!(table.next_due(), Some(Time(10)));
        assert_eq!(table.take_due(Time(9)), []);
        assert_eq!(table.take_due(Time(25)), [NodeId(7), NodeId(9)]);
        assert_eq!((table.next_due(), table.visited()), (None, 2));
        table.due_at(NodeId(7), Time(50));
        table.remove(NodeId(7));
        assert_eq!((table.next_due(), table.len()), (None, 999));
    }
}
