//! What is kept of nodes without a connection any more: a little, for the last ones, and only for some time.
//!
//! A node does not need this to be correct. A connection that both sides have given up begins anew under
//! another [`ConnectionId`], and a side that has not given it up gets an answer that the other one has.

use std::collections::VecDeque;
use std::time::Duration;

use dunlin_sorted::SortedMap;

use super::{Before, Connection, Traffic};
use crate::id::{ConnectionId, Incarnation, Life, NodeId};
use crate::source::{Shares, Source};
use crate::time::Time;

/// How many ended connections are remembered: their traffic, and whether everything was acknowledged.
const ENDED_MAX: usize = 64;

/// How many answers are remembered that may not have arrived. More than there may be sockets in a handshake,
/// unless configured otherwise.
const PROMISES_MAX: usize = 2048;

/// How many of them are for one life of a node, from one source: a `Hello` that was delayed for long is
/// answered too.
pub(super) const PROMISES_EACH: usize = 4;

/// For how many nodes the life that was met last is remembered.
const MET_MAX: usize = 4096;

/// How long both are remembered. An earlier life that was held up for longer is admitted again.
const KEPT_FOR: Duration = Duration::from_secs(60 * 60);

#[derive(Clone, Debug)]
struct Ended {
    node: NodeId,
    met: Option<Incarnation>,
    before: Option<Before>,
    traffic: Traffic,
    /// Where it could be dialled: for errors about what was lost with it.
    addresses: Vec<String>,
}

/// A connection that was offered.
#[derive(Clone, Copy, Debug)]
struct Promised {
    until: Time,
    to: Life,
    source: Source,
    id: ConnectionId,
    /// The life of that connection that would begin.
    run: u64,
    /// The dialler's attempt that was answered with this offer.
    attempt: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Former {
    /// The last ones, the latest last.
    ended: VecDeque<Ended>,
    /// The connections that this node has offered as the dialled side, while it does not know whether the
    /// offer arrived: a few for each life of a node and source, the latest last. Any receiver of a node's
    /// `Hello` can replay it, so each source makes room at its own expense.
    promises: VecDeque<Promised>,
    shares: Shares,
    /// The life of each node that was met last, and when its record was removed.
    met: SortedMap<NodeId, (Incarnation, Time)>,
    /// The same, in the order of those times.
    met_order: VecDeque<(Time, NodeId)>,
}

impl Former {
    /// The record of that node is removed. `keeps_ids`: an earlier life of the node may still be held up.
    pub(crate) fn ended(&mut self, now: Time, node: NodeId, connection: &Connection, keeps_ids: bool) {
        let Connection { met, before, traffic, .. } = *connection;
        if before.is_some() || met.is_some() {
            self.ended.push_back(Ended { node, met, before, traffic, addresses: connection.book.addresses().to_vec() });
            if self.ended.len() > ENDED_MAX {
                self.ended.pop_front();
            }
        }
        if let Some(met) = met.filter(|_| keeps_ids) {
            self.met.insert(node, (met, now));
            self.met_order.push_back((now, node));
            while let Some((at, node)) = self.met_order.front().copied()
                && (self.met_order.len() > MET_MAX || now >= at + KEPT_FOR)
            {
                self.met_order.pop_front();
                if self.met.get(&node).is_some_and(|(_, known)| *known == at) {
                    self.met.remove(&node);
                }
            }
        }
    }

    /// That node has a record again: moves what is known into it.
    pub(crate) fn comes_back(&mut self, node: NodeId, connection: &mut Connection) {
        connection.met = self.met(node);
        if let Some(at) = self.ended.iter().rposition(|ended| ended.node == node)
            && let Some(ended) = self.ended.remove(at)
        {
            (connection.before, connection.traffic) = (ended.before, ended.traffic);
        }
    }

    /// The life of that node that was met last.
    pub(crate) fn met(&self, node: NodeId) -> Option<Incarnation> {
        self.met.get(&node).map(|(met, _)| *met)
    }

    /// How the last life of the connection with that node ended, if known.
    pub(crate) fn before(&self, node: NodeId) -> Option<Before> {
        self.ended.iter().rfind(|ended| ended.node == node).and_then(|ended| ended.before)
    }

    /// Where that node could be dialled.
    pub(crate) fn addresses(&self, node: NodeId) -> &[String] {
        self.ended.iter().rfind(|ended| ended.node == node).map_or(&[], |ended| &ended.addresses)
    }

    /// The traffic of the ended connections.
    pub(crate) fn traffic(&self) -> impl Iterator<Item = (Life, Traffic)> {
        self.ended.iter().filter_map(|Ended { node, met, traffic, .. }| {
            met.map(|incarnation| (Life { node: *node, incarnation }, *traffic))
        })
    }

    /// A connection was offered to that node, which has dialled from that source; nothing has been sent in
    /// that run of it.
    pub(crate) fn promise(
        &mut self,
        now: Time,
        to: Life,
        source: Source,
        (id, run): (ConnectionId, u64),
        attempt: u64,
    ) {
        // The latest answer counts.
        self.keep_promises(|promise| (promise.to, promise.source, promise.id) != (to, source, id));
        let expired = self.promises.iter().take_while(|promise| promise.until <= now).count();
        (0..expired).for_each(|_| self.drop_promise(0));
        let alike = |promise: &Promised| promise.to == to && promise.source == source;
        if self.promises.iter().filter(|promise| alike(promise)).count() >= PROMISES_EACH
            && let Some(first) = self.promises.iter().position(alike)
        {
            self.drop_promise(first);
        }
        if self.promises.len() >= PROMISES_MAX
            && let Some(most) = self.shares.greatest()
            && let Some(first) = self.promises.iter().position(|promise| promise.source == most)
        {
            self.drop_promise(first);
        }
        self.shares.take(source);
        self.promises.push_back(Promised { until: now + KEPT_FOR, to, source, id, run, attempt });
    }

    fn drop_promise(&mut self, at: usize) {
        if let Some(promise) = self.promises.remove(at) {
            self.shares.give_back(promise.source);
        }
    }

    fn keep_promises(&mut self, keeps: impl Fn(&Promised) -> bool) {
        let shares = &mut self.shares;
        self.promises.retain(|promise| {
            let is_kept = keeps(promise);
            if !is_kept {
                shares.give_back(promise.source);
            }
            is_kept
        });
    }

    /// The offers to that node, and the life that each was made to: the latest of each source first, so that
    /// no source comes before all others.
    pub(crate) fn promised(&self, now: Time, node: NodeId) -> impl Iterator<Item = (Incarnation, ConnectionId)> {
        let offered = self.promises.iter().rev().filter(move |promise| promise.to.node == node && now < promise.until);
        let mut ranked: Vec<(usize, (Incarnation, ConnectionId))> = Vec::new();
        let mut seen: Vec<(Source, usize)> = Vec::new();
        for promise in offered {
            let rank = match seen.iter_mut().find(|(source, _)| *source == promise.source) {
                Some((_, count)) => {
                    *count += 1;
                    *count
                }
                None => {
                    seen.push((promise.source, 0));
                    0
                }
            };
            ranked.push((rank, (promise.to.incarnation, promise.id)));
        }
        ranked.sort_by_key(|(rank, _)| *rank);
        ranked.into_iter().map(|(_, offer)| offer)
    }

    /// The run of this connection in which nothing has been sent, if it was offered to that life.
    pub(crate) fn offered_run(&self, now: Time, to: Life, id: ConnectionId) -> Option<u64> {
        let is_it = |promise: &&Promised| (promise.to, promise.id) == (to, id) && now < promise.until;
        self.promises.iter().filter(is_it).map(|promise| promise.run).max()
    }

    /// The latest answered attempt of that life that it has not confirmed.
    pub(crate) fn attempt_answered(&self, now: Time, by: Life) -> u64 {
        let is_it = |promise: &&Promised| promise.to == by && now < promise.until;
        self.promises.iter().filter(is_it).map(|promise| promise.attempt).max().unwrap_or(0)
    }

    /// That node does not know this connection.
    pub(crate) fn is_unknown_to(&mut self, node: NodeId, id: ConnectionId) {
        self.keep_promises(|promise| (promise.to.node, promise.id) != (node, id));
    }

    /// The connection with that life of a node is known.
    pub(crate) fn redeem(&mut self, life: Life) {
        self.keep_promises(|promise| promise.to != life);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(node: u128) -> Life {
        Life { node: NodeId(node), incarnation: Incarnation(1) }
    }

    fn offer(id: u128) -> (Incarnation, ConnectionId) {
        (Incarnation(1), ConnectionId(id))
    }

    fn met(incarnation: u64) -> Connection {
        Connection { met: Some(Incarnation(incarnation)), ..Connection::new(1) }
    }

    #[test]
    fn records_of_former_nodes_are_bounded_and_expire() {
        let mut former = Former::default();
        for node in 1..=MET_MAX as u128 + 1 {
            former.ended(Time(1), NodeId(node), &met(7), true);
            former.promise(Time(1), life(node), Source::Unknown, (ConnectionId(node), 1), 1);
        }
        assert_eq!((former.ended.len(), former.promises.len()), (ENDED_MAX, PROMISES_MAX));
        assert_eq!((former.met.len(), former.met_order.len()), (MET_MAX, MET_MAX));
        assert_eq!((former.met(NodeId(1)), former.met(NodeId(2))), (None, Some(Incarnation(7))));
        // The same node repeatedly.
        for incarnation in 8..20 {
            former.ended(Time(2), NodeId(2), &met(incarnation), true);
        }
        assert_eq!(former.met(NodeId(2)), Some(Incarnation(19)));
        let later = Time(2) + KEPT_FOR;
        former.ended(later, NodeId(3), &met(9), true);
        assert_eq!((former.met.len(), former.met(NodeId(2)), former.met(NodeId(3))), (1, None, Some(Incarnation(9))));
        assert_eq!(former.promised(later, NodeId(MET_MAX as u128)).next(), None);
        for id in 1..=6 {
            former.promise(later, life(3), Source::Unknown, (ConnectionId(id), 1), 1);
        }
        former.is_unknown_to(NodeId(3), ConnectionId(5));
        assert!(former.promised(later, NodeId(3)).eq([6, 4, 3].map(offer)));
        former.ended(later, NodeId(4), &met(1), false);
        assert_eq!(former.met(NodeId(4)), None);
    }

    /// A dialler, under any id, makes room at the expense of its own source.
    #[test]
    fn offers_of_one_source_do_not_push_out_those_of_another() {
        let thief = Source::V4([192, 0, 2, 66]);
        let mut former = Former::default();
        former.promise(Time(1), life(1), Source::Unknown, (ConnectionId(1), 1), 1);
        // Under the id of the same node, and of others.
        for id in 2..100 {
            former.promise(Time(1), life(1), thief, (ConnectionId(id), 1), 1);
        }
        assert!(former.promised(Time(1), NodeId(1)).eq([99, 1, 98, 97, 96].map(offer)));
        for node in 2..3 * PROMISES_MAX as u128 {
            former.promise(Time(1), life(node), thief, (ConnectionId(node), 1), 1);
        }
        assert_eq!((former.promises.len(), former.shares.taken()), (PROMISES_MAX, PROMISES_MAX));
        assert!(former.promised(Time(1), NodeId(1)).eq([1].map(offer)));
        former.redeem(life(1));
        former.promise(Time(1) + KEPT_FOR, life(5), thief, (ConnectionId(5), 1), 1);
        assert_eq!((former.promises.len(), former.shares.taken()), (1, 1));
    }

    /// An earlier life may have begun the connection offered to it, whatever a later one is offered after
    /// that.
    #[test]
    fn offers_of_one_life_do_not_push_out_those_of_another() {
        let mut former = Former::default();
        let later = Life { incarnation: Incarnation(2), ..life(1) };
        former.promise(Time(1), life(1), Source::Unknown, (ConnectionId(1), 1), 1);
        for id in 2..20 {
            former.promise(Time(1), later, Source::Unknown, (ConnectionId(id), 1), id as u64);
        }
        assert_eq!(former.offered_run(Time(1), life(1), ConnectionId(1)), Some(1));
        assert_eq!(former.promises.len(), 1 + PROMISES_EACH);
        assert_eq!(former.attempt_answered(Time(1), later), 19);
    }
}
