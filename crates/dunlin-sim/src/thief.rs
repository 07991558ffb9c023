//! What the thief of `hostile.rs` has, and how its sockets are told from others.

use bytes::Bytes;
use dunlin_proto::id::SocketId;

/// The numbers of its sockets begin above this one.
pub(crate) const SOCKETS: u64 = 1 << 40;

/// So many sockets without a handshake a node has where there is a thief: no innocent nodes have as many.
pub(crate) const STRANGERS_MAX: usize = 16;

/// What it does in a run.
#[derive(Debug, Default)]
pub(crate) struct Thief {
    /// In this run there is one.
    pub(crate) is_there: bool,
    pub(crate) sockets: u64,
    /// Sockets that it has left open, and whose process has them.
    pub(crate) open: Vec<(usize, SocketId)>,
    /// What nodes have sent to it, which they took for another one: that node, and the words.
    pub(crate) heard: Vec<(usize, Bytes)>,
}

impl Thief {
    pub(crate) fn new(is_there: bool) -> Self {
        Self { is_there, ..Self::default() }
    }
}

/// Whether it is one of the thief's.
pub(crate) fn is_thiefs(socket: SocketId) -> bool {
    (SOCKETS..1 << 63).contains(&socket.0)
}
