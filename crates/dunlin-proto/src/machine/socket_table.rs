//! The sockets that are there, what each is used for, and what is being dialled.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Bytes, BytesMut};

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
    /// It was only told; whether over a socket of this host, and the source of that word.
    pub(super) told: Option<(bool, Source)>,
}

/// Whom this node has dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// This node, for a connection.
    Node(NodeId),
    /// Whoever is there: [`Action::Introduced`] tells.
    Anybody,
    /// Whoever is there; if it is this node, the connection with it needs no relay.
    Probe(NodeId),
    /// The node that is there: if it is this one, it is reached where it listens.
    Check(NodeId),
}

/// What a `Hello` that has been answered by `Welcome` says, and what was answered.
#[derive(Clone, Debug)]
pub(crate) struct Promise {
    pub(super) dialler: Life,
    /// The dialler's public key, and what it has to sign.
    pub(super) key: Bytes,
    pub(super) signed: Bytes,
    pub(super) attempt: u64,
    pub(super) addresses: Vec<String>,
    pub(super) bound: Bound,
    /// So many numbered frames the dialler has seen in the life that was answered.
    pub(super) seen: u64,
    /// What this side called the connection before.
    pub(super) before: ConnectionId,
    /// Where the connection stands at this side, as `Welcome` says it.
    pub(super) answered: Resume,
    /// It is a new one, which was offered in this answer only.
    pub(super) begins: bool,
}

/// What came in the handshake of a node that the driver is [asked about](crate::Action::Authorize).
#[derive(Clone, Debug)]
pub(crate) enum Asked {
    /// From the dialler: what it says, and the whole message.
    Hello(Hello, Bytes),
    /// The answer of the dialled node.
    Welcome(Welcome),
}

/// A dial-back that was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Undialled {
    pub(crate) at: Time,
    /// The helper.
    pub(crate) to: NodeId,
    /// The node that is to be dialled.
    pub(crate) node: NodeId,
    /// What carried the connection with it then.
    pub(crate) socket: Option<SocketId>,
}

/// What a socket is used for.
#[derive(Clone, Debug)]
pub(crate) enum Phase {
    /// Somebody has dialled; a `Hello` is to come.
    Stranger,
    /// That `Hello` has been answered by `Welcome`. What it says holds when the dialler has confirmed that it
    /// has arrived.
    Answered(Box<Promise>),
    /// This node has dialled and said `Hello`, and in it where the connection stands, with which life of the
    /// other node.
    Greeting { wanted: Wanted, met: Incarnation, said: Resume, address: String, hello: Bytes },
    /// It carries the connection to this node.
    Carries(NodeId),
    /// It has been answered for good; what still arrives is not read.
    Parting,
}

/// A frame of which nothing is kept but its beginning, before the piece.
#[derive(Clone, Debug)]
pub(super) struct Passed {
    pub(super) beginning: Bytes,
    pub(super) whole: usize,
    /// So many bytes of it have not come.
    pub(super) left: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct Socket {
    pub(crate) phase: Phase,
    /// What has arrived and is no whole message yet.
    pub(super) arrived: BytesMut,
    /// The frame that comes, if nothing of it is kept.
    pub(super) passed: Option<Passed>,
    /// What waits for the driver's word.
    pub(super) asked: Option<Box<Asked>>,
    /// The driver has admitted the node at its other end.
    pub(super) is_authorized: bool,
    /// A message outside the sequence: a handshake's, or the last.
    pub(crate) ready: Option<Bytes>,
    /// When it has to have shaken hands.
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

/// The sockets that are there, and which of them have yet to shake hands, or to part.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sockets {
    all: BTreeMap<SocketId, Socket>,
    /// Those that carry no connection, by the time at which they are closed.
    shaking: BTreeSet<(Time, SocketId)>,
    /// Of those, the ones that were accepted and have not confirmed a `Welcome`, by where they come from and
    /// whether they have said who they are; in each such group the oldest is the first.
    unproven: BTreeSet<(Source, bool, Time, SocketId)>,
    shares: Shares,
    /// How many are parting.
    parting: usize,
}

impl Sockets {
    pub(crate) fn get(&self, id: SocketId) -> Option<&Socket> {
        self.all.get(&id)
    }

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

    /// A `Hello` has been answered, and what it says is to be confirmed.
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

    /// How many were answered for good, and are still there.
    pub(super) fn parting(&self) -> usize {
        self.parting
    }

    /// Which of these makes room for a newcomer: the oldest of the source that has most, and rather one that
    /// has said nothing yet. The newcomer itself only if its source has no other.
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

    /// This is the last word on the socket, which is closed at that time at the latest.
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

    /// When the next of these is closed.
    pub(super) fn next_due(&self) -> Option<Time> {
        self.shaking.first().map(|(until, _)| *until)
    }

    /// Those of them for which it is time.
    pub(super) fn late(&self, now: Time) -> Vec<SocketId> {
        self.shaking.iter().take_while(|(until, _)| *until <= now).map(|(_, id)| *id).collect()
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = SocketId> {
        self.all.keys().copied()
    }
}
