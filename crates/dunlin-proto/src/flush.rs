//! Frames that other nodes have yet to acknowledge.

use dunlin_sorted::SortedMap;

use crate::channel::Waiting;
use crate::connection::outbox::Unwritten;
use crate::connection::{Before, Connection};
use crate::id::{ChannelId, Incarnation, Life, NodeId};
use crate::machine::{Endpoint, Machine};

/// Everything that the channels of a node had sent at one moment: see [`Machine::mark`].
#[derive(Clone, Debug)]
pub struct Mark(Vec<Marked>);

#[derive(Clone, Debug)]
struct Marked {
    node: NodeId,
    /// The life of the connection.
    lives: u64,
    unwritten: Vec<Unwritten>,
    /// Set once `unwritten` is empty: past when this many frames are acknowledged.
    until: Option<u64>,
}

impl Endpoint {
    /// Whether that node has acknowledged everything sent to it.
    pub(crate) fn is_flushed_to(&self, node: NodeId, connection: &Connection) -> bool {
        let is_heard = connection.outbox.is_done() && !connection.goodbye_waits;
        is_heard || (!connection.was_up && self.left.contains(&node))
    }
}

impl Machine {
    /// Marks what channels have sent, and what mailboxes of other nodes have been sent, until now, whether it
    /// has been written or not. [`is_past`](Self::is_past) returns whether it has been acknowledged.
    pub fn mark(&self) -> Mark {
        let connections = self.endpoint.connections.iter().filter(|(_, connection)| !connection.outbox.is_done());
        let marked = connections.map(|(node, connection)| Marked {
            node,
            lives: connection.lives,
            unwritten: connection.outbox.mark(),
            until: None,
        });
        Mark(marked.collect())
    }

    /// Whether everything marked has been acknowledged, or lost with its connection. Appends the nodes of
    /// connections that ended with values, or messages to mailboxes, unacknowledged to `lost`.
    pub fn is_past(&self, mark: &mut Mark, lost: &mut Vec<NodeId>) -> bool {
        mark.0.retain_mut(|marked| {
            let connection = self.endpoint.connections.get(marked.node);
            let Some(connection) = connection.filter(|connection| connection.lives == marked.lives) else {
                let before =
                    connection.map_or_else(|| self.endpoint.former.before(marked.node), |connection| connection.before);
                if before != Some(Before { lives: marked.lives, was_flushed: true }) {
                    lost.push(marked.node);
                }
                return false;
            };
            let outbox = &connection.outbox;
            marked.unwritten.retain(|unwritten| !outbox.has_written(unwritten));
            if !marked.unwritten.is_empty() {
                return true;
            }
            let until = *marked.until.get_or_insert_with(|| outbox.written());
            outbox.acked() < until
        });
        mark.0.is_empty()
    }

    /// The channels whose sent values wait here until the home of the channel is known.
    pub fn detained(&self) -> impl Iterator<Item = ChannelId> {
        let detained =
            self.channels.proxies.survey().filter(|(_, proxy)| proxy.backlog.iter().any(|(_, what)| is_sent(what)));
        detained.map(|(channel, _)| *channel)
    }

    /// Whether values of this channel wait in this way.
    pub fn is_detained(&self, channel: ChannelId) -> bool {
        self.channels.proxies.get(&channel).is_some_and(|proxy| proxy.backlog.iter().any(|(_, what)| is_sent(what)))
    }

    /// The nodes that have not acknowledged everything sent to them, and how many values of complete sends
    /// are unacknowledged there.
    pub fn unacknowledged(&self) -> Vec<(Life, u64)> {
        let mut detained_for: SortedMap<NodeId, usize> = SortedMap::new();
        for (_, proxy) in self.channels.proxies.survey().filter(|(_, proxy)| !proxy.backlog.is_empty()) {
            let detained = proxy.backlog.iter().filter(|(_, what)| is_sent(what)).count();
            *detained_for.get_or_default(proxy.home) += detained;
        }
        let mut unacknowledged = Vec::new();
        for (node, connection) in self.endpoint.connections.iter() {
            let detained = detained_for.get(&node).copied().unwrap_or(0);
            if detained > 0 || !self.endpoint.is_flushed_to(node, connection) {
                let incarnation = connection.met.unwrap_or(Incarnation(0));
                let values = connection.outbox.unacked_sent() + detained as u64;
                unacknowledged.push((Life { node, incarnation }, values));
            }
        }
        unacknowledged
    }
}

fn is_sent(what: &Waiting) -> bool {
    matches!(what, Waiting::Sent(_))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::config::Config;
    use crate::connection::outbox::Outbox;
    use crate::time::Time;
    use crate::wire::{Frame, Head, ToHome};

    fn value(channel: u128, head: Head, bytes: usize) -> Frame {
        let first = Bytes::from(vec![7; bytes]);
        Frame::ToHome(ChannelId(channel), ToHome::Value { head, total: bytes as u64, first })
    }

    fn config() -> Config {
        Config::new("flush".to_owned())
    }

    /// Writes about `room` bytes.
    fn write(outbox: &mut Outbox, room: usize) -> usize {
        outbox.fill(Time(1), None, &config(), room, &mut Vec::new())
    }

    #[test]
    fn values_are_counted_until_their_last_piece_is_acknowledged() {
        let mut outbox = Outbox::default();
        outbox.grow_credit(1 << 30);
        outbox.push(value(1, Head::Sent, 500_000));
        outbox.push(value(1, Head::Sent, 10));
        outbox.push(value(2, Head::Sent, 10));
        outbox.push(value(3, Head::Offer(1), 10));
        let mut seen = 0;
        loop {
            let left = outbox.unacked_sent();
            let begun = write(&mut outbox, 1);
            assert_eq!(outbox.unacked_sent(), left, "what is written is not acknowledged");
            if begun == 0 && outbox.written() == seen {
                assert_eq!(left, 0);
                return;
            }
            seen = outbox.written();
            assert!(outbox.acknowledge(Time(1), seen, &config()));
        }
    }

    #[test]
    fn one_value_in_pieces_is_counted_once() {
        let mut outbox = Outbox::default();
        outbox.grow_credit(1 << 30);
        outbox.push(value(1, Head::Sent, 500_000));
        while write(&mut outbox, 1) > 0 {
            assert_eq!(outbox.unacked_sent(), 1);
            // The head is acknowledged, and perhaps some pieces; others are written or wait.
            if outbox.written() > outbox.acked() + 1 {
                let seen = outbox.acked() + 1;
                assert!(outbox.acknowledge(Time(1), seen, &config()));
                assert_eq!(outbox.unacked_sent(), 1);
            }
        }
    }

    #[test]
    fn mark_does_not_wait_for_values_pushed_after_it() {
        let mut outbox = Outbox::default();
        outbox.grow_credit(1 << 30);
        outbox.push(value(1, Head::Sent, 10));
        outbox.push(value(1, Head::Sent, 500_000));
        outbox.push(value(2, Head::Sent, 10));
        let marks = outbox.mark();
        let has_written = |outbox: &Outbox| marks.iter().all(|unwritten| outbox.has_written(unwritten));
        outbox.push(value(1, Head::Sent, 30_000_000));
        let mut written = 0;
        while !has_written(&outbox) {
            written += write(&mut outbox, 1);
            assert!(written < 1_000_000, "the value behind the mark is written first");
            let seen = outbox.written();
            assert!(outbox.acknowledge(Time(1), seen, &config()));
        }
        assert!(written > 500_000, "the pieces of the marked value are not written");
    }
}
