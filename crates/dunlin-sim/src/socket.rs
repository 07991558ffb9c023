//! A socket between two nodes.

use std::collections::VecDeque;

use dunlin_proto::id::SocketId;

/// What happens to bytes from one node to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mute {
    None,
    /// They are held back, and arrive when the fault ends.
    Stalled,
    /// They vanish, and so does what follows on the same socket. No dial succeeds.
    Vanish,
    /// They vanish, perhaps only after the handshake, and so does what follows on the same socket; but
    /// sockets can be made and closed.
    Deaf {
        behind_handshake: bool,
    },
    /// The same, from the first piece of at least this size on.
    Large {
        from: usize,
    },
}

impl Mute {
    /// Whether sockets can be neither made nor closed.
    pub(crate) fn blocks(self) -> bool {
        matches!(self, Self::Stalled | Self::Vanish)
    }
}

/// One direction of a socket.
#[derive(Debug, Default)]
pub(crate) struct Pipe {
    pub(crate) bytes: VecDeque<u8>,
    /// When they arrive, and how many at a time.
    pub(crate) arrivals: VecDeque<(u64, usize)>,
    pub(crate) last: u64,
    /// How many bytes the writer's buffer has room for.
    pub(crate) limit: usize,
    /// Bytes that vanished, and occupy the writer's buffer all the same.
    pub(crate) vanished: usize,
    /// What is written vanishes from now on.
    pub(crate) gone: bool,
    /// The same, but the writer does not notice, and the reader learns when it is closed.
    pub(crate) deaf: bool,
    /// The writer waits for room.
    pub(crate) waits: bool,
    /// The writer has closed its end.
    pub(crate) ended: bool,
    /// The first bytes written, up to those that give the length of the handshake.
    pub(crate) head: Vec<u8>,
    /// How many bytes were written, and how many read.
    pub(crate) written: usize,
    pub(crate) delivered: usize,
}

/// Magic, kind and length of a message of the handshake.
pub(crate) const HEAD: usize = 11;
/// The frame after the handshake of the dialling side: its head, and a signature with its length.
const CONFIRM: usize = 2 + 1 + 8;

impl Pipe {
    pub(crate) fn room(&self) -> usize {
        self.limit.saturating_sub(self.bytes.len() + self.vanished)
    }

    /// The length of the handshake that this side writes, once it is known.
    pub(crate) fn handshake(&self, side: usize) -> Option<usize> {
        let length = usize::from(u16::from_be_bytes([*self.head.get(HEAD - 2)?, *self.head.get(HEAD - 1)?]));
        Some(HEAD + length + if side == 0 { CONFIRM } else { 0 })
    }
}

#[derive(Debug)]
pub(crate) struct Socket {
    /// Side 0 has dialled.
    pub(crate) procs: [Option<usize>; 2],
    pub(crate) nodes: [usize; 2],
    /// Whether the side's machine still has it open.
    pub(crate) open: [bool; 2],
    /// Indexed by the side that writes.
    pub(crate) pipes: [Pipe; 2],
    /// Whether the side never learns that it is closed.
    pub(crate) deaf: [bool; 2],
    /// Whether the socket has been cut, for good.
    pub(crate) cut: bool,
    pub(crate) close_heard: [bool; 2],
}

impl Socket {
    /// Whether its dialler has sent the end of the handshake, and the other side has read it.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.pipes[0].handshake(0).is_some_and(|bytes| self.pipes[0].delivered >= bytes)
    }
}

/// Each end has a number of its own.
pub(crate) fn end(socket: usize, side: usize) -> SocketId {
    SocketId((socket * 2 + side) as u64)
}

/// The socket and the side of it.
pub(crate) fn end_of(id: SocketId) -> (usize, usize) {
    (id.0 as usize / 2, id.0 as usize % 2)
}
