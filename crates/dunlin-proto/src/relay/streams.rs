//! The streams of relayed sockets: those of this node, and those between others.

use std::collections::VecDeque;

use bytes::Bytes;
use dunlin_sorted::SortedMap;

use crate::id::{NodeId, SocketId};
use crate::source::{Shares, Source};
use crate::wire::limits;

/// Relayed sockets are numbered from here.
const RELAYED: u64 = 1 << 63;

pub(crate) fn is_relayed(socket: SocketId) -> bool {
    socket.0 >= RELAYED
}

/// A stream: the node on whose connection it is, and its number there.
pub(crate) type Key = (NodeId, u64);

/// What a stream is at this node.
#[derive(Clone, Debug)]
pub(crate) enum Stream {
    /// A socket of this node.
    End(End),
    /// This node relays between it and that other one. `room` more bytes may arrive on this one. `asked_by`:
    /// the source that requested it, on this one.
    Between { other: Key, room: usize, asked_by: Option<Source> },
}

/// A relayed socket of this node.
#[derive(Clone, Debug)]
pub(crate) struct End {
    pub(crate) socket: SocketId,
    /// The dialler, as the relay reports it.
    pub(crate) from: Option<NodeId>,
    /// Bytes pulled from the socket that may not be sent yet.
    pub(crate) left: VecDeque<Bytes>,
    /// How many bytes may be sent...
    pub(crate) may_say: usize,
    /// ... and how many may arrive...
    pub(crate) room: usize,
    /// ... with no credit given yet for this many that arrived.
    pub(crate) unreturned: usize,
    /// The socket may have something to send.
    pub(crate) stirred: bool,
    /// The socket is over once `left` is sent.
    pub(crate) closing: bool,
}

/// The sockets that others relay for this node, and the streams that it relays.
#[derive(Clone, Debug, Default)]
pub(crate) struct Relays {
    pub(crate) streams: SortedMap<Key, Stream>,
    pub(crate) sockets: SortedMap<SocketId, Key>,
    next: u64,
    /// How many sockets this node relays for each source.
    pub(crate) shares: Shares,
}

impl Relays {
    /// The node that relays this socket.
    pub(crate) fn by(&self, socket: SocketId) -> Option<NodeId> {
        self.sockets.get(&socket).map(|(by, _)| *by)
    }

    /// The node that has dialled on this socket, if its relay reports that.
    pub(crate) fn from(&self, socket: SocketId) -> Option<NodeId> {
        match self.streams.get(self.sockets.get(&socket)?)? {
            Stream::End(end) => end.from,
            Stream::Between { .. } => None,
        }
    }

    pub(crate) fn end(&mut self, key: Key) -> Option<&mut End> {
        match self.streams.get_mut(&key)? {
            Stream::End(end) => Some(end),
            Stream::Between { .. } => None,
        }
    }

    pub(crate) fn of(&self, node: NodeId) -> impl Iterator<Item = (&Key, &Stream)> {
        self.streams.range((node, 0)..=(node, u64::MAX))
    }

    /// Whether this node relays sockets of ours.
    pub(crate) fn needs(&self, node: NodeId) -> bool {
        !self.sockets.is_empty() && self.of(node).any(|(_, stream)| matches!(stream, Stream::End(_)))
    }

    /// Whether a socket that this node relays has something to send, and the credit for it.
    pub(crate) fn are_stirred(&self, node: NodeId) -> bool {
        let speaks = |end: &End| (end.stirred || !end.left.is_empty()) && end.may_say > 0;
        !self.sockets.is_empty() && self.of(node).any(|(_, stream)| matches!(stream, Stream::End(end) if speaks(end)))
    }

    /// Sockets of this node that others relay.
    pub(crate) fn relayed(&self) -> usize {
        self.sockets.len()
    }

    /// Sockets between others that this node relays.
    pub(crate) fn between_others(&self) -> usize {
        (self.streams.len() - self.sockets.len()) / 2
    }

    /// Removes a stream.
    pub(crate) fn remove(&mut self, key: Key) {
        match self.streams.remove(&key) {
            Some(Stream::End(end)) => drop(self.sockets.remove(&end.socket)),
            Some(Stream::Between { asked_by: Some(source), .. }) => self.shares.give_back(source),
            Some(Stream::Between { asked_by: None, .. }) | None => {}
        }
    }

    pub(crate) fn insert(&mut self, key: Key, from: Option<NodeId>) -> SocketId {
        let socket = SocketId(RELAYED + self.next);
        self.next += 1;
        let end = End {
            socket,
            from,
            left: VecDeque::new(),
            may_say: limits::RELAYED,
            room: limits::RELAYED,
            unreturned: 0,
            stirred: false,
            closing: false,
        };
        self.streams.insert(key, Stream::End(end));
        self.sockets.insert(socket, key);
        socket
    }
}
