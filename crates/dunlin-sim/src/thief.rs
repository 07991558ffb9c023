//! The state of the thief of `hostile.rs`, and how its sockets differ from others.

use bytes::Bytes;
use dunlin_proto::id::SocketId;

/// The numbers of its sockets begin above this one.
pub(crate) const SOCKETS: u64 = 1 << 40;

/// The limit of sockets without a handshake at a node, in runs with a thief: innocent nodes never have as
/// many.
pub(crate) const STRANGERS_MAX: usize = 16;

/// The thief's part in a run.
#[derive(Debug, Default)]
pub(crate) struct Thief {
    /// Whether this run has a thief.
    pub(crate) is_there: bool,
    pub(crate) sockets: u64,
    /// Sockets that it has left open, and the process that each is connected to.
    pub(crate) open: Vec<(usize, SocketId)>,
    /// What nodes have sent to the thief in the belief that it is another node: that node, and the bytes.
    pub(crate) heard: Vec<(usize, Bytes)>,
}

impl Thief {
    pub(crate) fn new(is_there: bool) -> Self {
        Self { is_there, ..Self::default() }
    }
}

/// Whether the socket is one of the thief's.
pub(crate) fn is_thiefs(socket: SocketId) -> bool {
    (SOCKETS..1 << 63).contains(&socket.0)
}
