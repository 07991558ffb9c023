//! The present sockets, what each is used for, and the dials under way.

use bytes::{Bytes, BytesMut};
use dunlin_sorted::{SortedMap, SortedSet};

use crate::id::{ConnectionId, Incarnation, Life, NodeId, SocketId};
use crate::planted::planted;
use crate::source::{Shares, Source};
use crate::time::Time;
use crate::wire::handshake::{Bound, Hello, Resume, Welcome};

/// What a dial is for.
#[derive(Clone, Debug)]
pub(super) struct Dial {
    pub(super) wanted: Wanted,
    pub(super) address: String,
    /// Set if the address was only learned from another node: whether over a socket of this host, and from
    /// which source.
    pub(super) told: Option<(bool, Source)>,
}

/// The target of a dial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// This node, for a connection.
    Node(NodeId),
    /// Any node; [`Action::Introduced`] reports which.
    Anybody,
    /// Any node; if it is this one, the connection with it needs no relay.
    Probe(NodeId),
    /// Any node; if it is this one, it is reachable where it listens.
    Check(NodeId),
}

/// What a `Hello` that was answered by `Welcome` declares, and the answer.
#[derive(Clone, Debug)]
pub(crate) struct Promise {
    pub(super) dialler: Life,
    /// The dialler's public key, and what it has to sign.
    pub(super) key: Bytes,
    pub(super) signed: Bytes,
    pub(super) attempt: u64,
    pub(super) addresses: Vec<String>,
    pub(super) bound: Bound,
    /// How many numbered frames the dialler has received in the life that was answered.
    pub(super) seen: u64,
    /// The id of the connection at this side before.
    pub(super) before: ConnectionId,
    /// The state of the connection at this side, as in `Welcome`.
    pub(super) answered: Resume,
    /// The connection is new, and was offered only in this answer.
    pub(super) begins: bool,
}

/// A handshake message from the node that the driver is [asked about](crate::Action::Authorize).
#[derive(Clone, Debug)]
pub(crate) enum Asked {
    /// From the dialler: the decoded message, and its bytes.
    Hello(Hello, Bytes),
    /// The answer of the dialled node.
    Welcome(Welcome),
}

/// A dial-back that was requested.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Undialled {
    pub(crate) at: Time,
    /// The helper.
    pub(crate) to: NodeId,
    /// The node that is to be dialled.
    pub(crate) node: NodeId,
    /// The socket that carried the connection with it at that time.
    pub(crate) socket: Option<SocketId>,
}

/// What a socket is used for.
#[derive(Clone, Debug)]
pub(crate) enum Phase {
    /// A node has dialled; its `Hello` has not arrived.
    Stranger,
    /// This node has answered the `Hello` by `Welcome`. The `Hello` takes effect when the dialler has
    /// confirmed the `Welcome`.
    Answered(Box<Promise>),
    /// This node has dialled and sent `Hello`, with the state of the connection and the life of the other
    /// node that it has met.
    Greeting { wanted: Wanted, met: Incarnation, said: Resume, address: String, hello: Bytes },
    /// It carries the connection to this node.
    Carries(NodeId),
    /// It has been answered for good; what still arrives is discarded.
    Parting,
}

/// A frame of which only the beginning, before the piece, is kept.
#[derive(Clone, Debug)]
pub(super) struct Passed {
    pub(super) beginning: Bytes,
    pub(super) whole: usize,
    /// How many bytes of it have not arrived.
    pub(super) left: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct Socket {
    pub(crate) phase: Phase,
    /// What has arrived and is not a whole message yet.
    pub(super) arrived: BytesMut,
    /// The frame that is arriving, if nothing of it is kept.
    pub(super) passed: Option<Passed>,
    /// What waits for the driver's answer.
    pub(super) asked: Option<Box<Asked>>,
    /// The driver has admitted the node at its other end.
    pub(super) is_authorized: bool,
    /// A message outside the sequence: one of a handshake, or the last one.
    pub(crate) ready: Option<Bytes>,
    /// The deadline for its handshake.
    pub(super) until: Time,
    /// Its other end is on this host.
    pub(crate) near: bool,
    /// The host that it comes from, or leads to, as the driver sees it.
    pub(crate) host: Option<String>,
    pub(super) source: Source,
}

impl Socket {
    /// Its other end is on this host.
    pub(crate) fn is_near(&self) -> bool {
        self.near
    }
}

/// The present sockets, and which of them have yet to complete the handshake, or are parting.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sockets {
    all: SortedMap<SocketId, Socket>,
    /// Those that carry no connection, by the time at which they are closed.
    shaking: SortedSet<(Time, SocketId)>,
    /// The ones among them that were accepted and have not confirmed a `Welcome`, by source and by whether
    /// their `Hello` has arrived; the oldest comes first in each group.
    unproven: SortedSet<(Source, bool, Time, SocketId)>,
    shares: Shares,
    /// How many are parting.
    parting: usize,
}

impl Sockets {
    #[inline]
    pub(crate) fn get(&self, id: SocketId) -> Option<&Socket> {
        self.all.get(&id)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: SocketId) -> Option<&mut Socket> {
        self.all.get_mut(&id)
    }

    pub(super) fn insert(&mut self, id: SocketId, socket: Socket) {
        if let Phase::Stranger = socket.phase {
            self.unproven.insert((socket.source, false, socket.until, id));
            self.shares.take(socket.source);
        }
        self.shaking.insert((socket.until, id));
        self.all.insert(id, socket);
    }

    pub(crate) fn remove(&mut self, id: SocketId) -> Option<Socket> {
        self.leaves_the_unproven(id);
        let socket = self.all.remove(&id)?;
        self.shaking.remove(&(socket.until, id));
        self.parting -= usize::from(matches!(socket.phase, Phase::Parting));
        Some(socket)
    }

    /// A `Hello` has been answered, and the promise waits for confirmation.
    pub(super) fn is_answered(&mut self, id: SocketId, promise: Box<Promise>) {
        let Some(socket) = self.all.get_mut(&id) else { return };
        if self.unproven.remove(&(socket.source, false, socket.until, id)) {
            self.unproven.insert((socket.source, true, socket.until, id));
        }
        socket.phase = Phase::Answered(promise);
    }

    fn leaves_the_unproven(&mut self, id: SocketId) {
        let Some(socket) = self.all.get(&id) else { return };
        let places = [false, true].map(|answered| (socket.source, answered, socket.until, id));
        if places.iter().any(|place| self.unproven.remove(place)) {
            self.shares.give_back(socket.source);
        }
    }

    /// How many sockets were accepted and have not confirmed a `Welcome`.
    pub(super) fn unproven(&self) -> usize {
        self.shares.taken()
    }

    /// How many were answered for good and still exist.
    pub(super) fn parting(&self) -> usize {
        self.parting
    }

    /// Which of these makes room for a newcomer: the oldest of the source that has most, preferably one that
    /// has not sent a `Hello`. It is the newcomer only if its source has no other.
    pub(super) fn least_promising(&self, newcomer: SocketId) -> SocketId {
        if planted!(OldestOut) {
            let oldest = self.unproven.iter().min_by_key(|(.., until, id)| (*until, *id));
            return oldest.map_or(newcomer, |(.., id)| *id);
        }
        let Some(source) = self.shares.greatest() else { return newcomer };
        let of_it = self.unproven.range((source, false, Time::default(), SocketId(0))..);
        let mut of_it = of_it.take_while(|(other, ..)| *other == source).map(|(.., id)| *id);
        of_it.find(|id| *id != newcomer).unwrap_or(newcomer)
    }

    /// The socket carries the connection with that node from now on.
    pub(super) fn carries(&mut self, id: SocketId, node: NodeId) -> Option<&mut Socket> {
        self.leaves_the_unproven(id);
        let socket = self.all.get_mut(&id)?;
        self.shaking.remove(&(socket.until, id));
        socket.phase = Phase::Carries(node);
        Some(socket)
    }

    /// The last message on the socket, which is closed at `until` at the latest.
    pub(super) fn parts(&mut self, id: SocketId, last: Bytes, until: Time) -> bool {
        self.leaves_the_unproven(id);
        let Some(socket) = self.all.get_mut(&id) else { return false };
        self.shaking.remove(&(socket.until, id));
        self.shaking.insert((until, id));
        self.parting += usize::from(!matches!(socket.phase, Phase::Parting));
        (socket.until, socket.ready, socket.phase) = (until, Some(last), Phase::Parting);
        true
    }

    /// Those that carry no connection.
    pub(super) fn shaking(&self) -> impl Iterator<Item = (SocketId, &Socket)> {
        self.shaking.iter().filter_map(|(_, id)| self.all.get(id).map(|socket| (*id, socket)))
    }

    /// When the next of these times out.
    pub(super) fn next_due(&self) -> Option<Time> {
        self.shaking.first().map(|(until, _)| *until)
    }

    /// The ones among them that have timed out.
    pub(super) fn late(&self, now: Time) -> Vec<SocketId> {
        self.shaking.iter().take_while(|(until, _)| *until <= now).map(|(_, id)| *id).collect()
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = SocketId> {
        self.all.keys().copied()
    }
}
