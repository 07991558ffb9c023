//! What lies between the nodes of a simulation: listeners, blocked pairs, and bytes in flight.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, Weak};
use std::task::Waker;

use dunlin_core::__rt::wake_all;

use crate::lock::lock;

/// A node, as the network knows it.
pub(crate) type Host = u64;

/// Everything in flight.
#[derive(Default)]
pub(super) struct Wires(pub(super) Mutex<State>);

pub(super) struct State {
    pub(super) next_host: Host,
    pub(super) next_port: u64,
    pub(super) listeners: BTreeMap<String, Arc<Mutex<Backlog>>>,
    /// Each socket's two directions.
    pub(super) sockets: Vec<(Pair, [Weak<Mutex<Pipe>>; 2])>,
    pub(super) parted: BTreeSet<Pair>,
    /// Which nodes cannot dial which.
    pub(super) blocked: BTreeSet<(Host, Host)>,
    pub(super) delay: (u64, u64),
}

impl Default for State {
    fn default() -> Self {
        Self {
            next_host: 0,
            next_port: 0,
            listeners: BTreeMap::new(),
            sockets: Vec::new(),
            parted: BTreeSet::new(),
            blocked: BTreeSet::new(),
            delay: (100, 2000),
        }
    }
}

/// Two hosts, the lower first.
pub(super) type Pair = (Host, Host);

pub(super) fn pair(one: Host, other: Host) -> Pair {
    (one.min(other), one.max(other))
}

/// Where a node listens, and the dialled sockets that wait there.
pub(super) struct Backlog {
    pub(super) host: Host,
    pub(super) sockets: VecDeque<Pipes>,
    pub(super) waker: Option<Waker>,
}

/// One direction of a socket.
#[derive(Default)]
pub(super) struct Pipe {
    /// When each piece arrives.
    pub(super) pieces: VecDeque<(u64, VecDeque<u8>)>,
    pub(super) bytes: usize,
    /// No more is written.
    pub(super) closed: bool,
    /// The bytes in flight end early.
    pub(super) cut: bool,
    pub(super) reader: Option<Waker>,
    pub(super) writer: Option<Waker>,
}

impl Pipe {
    pub(super) fn wake(&mut self) -> [Option<Waker>; 2] {
        [self.reader.take(), self.writer.take()]
    }
}

pub(super) fn wake(wakers: impl IntoIterator<Item = Option<Waker>>) {
    wake_all(wakers.into_iter().flatten());
}

/// The two directions of a socket, as one end has them. Dropped, both are closed.
pub(super) struct Pipes {
    pub(super) out: Arc<Mutex<Pipe>>,
    pub(super) into: Arc<Mutex<Pipe>>,
    pub(super) peer: String,
}

impl Drop for Pipes {
    fn drop(&mut self) {
        for pipe in [&self.out, &self.into] {
            let mut pipe = lock(pipe);
            pipe.closed = true;
            let wakers = pipe.wake();
            drop(pipe);
            wake(wakers);
        }
    }
}
