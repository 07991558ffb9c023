//! Frames of which only a part has arrived.
//!
//! A socket may hold [`FRAME`](crate::wire::limits::FRAME) bytes of one, which is part of the cost of a
//! connection. A longer frame has a piece of a value, and its beginning names that value. A piece that is
//! charged to the account of the connection, or is within its credit, is kept as it arrives. For a piece that
//! is discarded anyway, only the bytes are counted. Anything else breaks the protocol, and the node does not
//! wait for the rest.

use bytes::{Bytes, BytesMut};

use super::socket_table::{Passed, Phase, Socket};
use super::{Closed, Machine};
use crate::id::{NodeId, SocketId};
use crate::misbehaved::PeerMisbehaved;
use crate::time::Time;
use crate::wire::codec::{self, Long};

impl Machine {
    /// Whether to keep an incomplete frame as it arrives. `true` also if that is not known yet.
    fn keeps(&mut self, node: NodeId, long: &Long) -> Result<bool, PeerMisbehaved> {
        let Some(connection) = self.endpoint.connections.get(node) else { return Ok(true) };
        let inbox = &connection.inbox;
        if inbox.again > 0 {
            // It arrived on the previous socket.
            return Ok(false);
        }
        let channel = long.channel;
        let Some((head, total)) = long.value else { return inbox.keeps(channel, long.piece) };
        if inbox.account.covers(channel, total)? {
            return Ok(true);
        }
        let (wanted, kept) = self.channels.expects(&self.endpoint, node, channel, head, total);
        if kept && let Some(connection) = self.endpoint.connections.get_mut(node) {
            // When the value was announced, its channel was not here.
            let has_room = connection.inbox.account.keep_unkept(channel, &mut self.endpoint.pool);
            return if has_room { Ok(true) } else { Err(PeerMisbehaved::ChannelNotThere) };
        }
        Ok(wanted)
    }

    /// Examines the beginning of an incomplete frame, which stays in `arrived` or is passed over. Returns how
    /// many more bytes are needed at least.
    pub(super) fn wait(&mut self, now: Time, id: SocketId, arrived: &mut BytesMut, missing: usize) -> usize {
        let Some(Socket { phase: Phase::Carries(node), .. }) = self.endpoint.sockets.get(id) else { return missing };
        let node = *node;
        let long = match codec::begins_long(arrived) {
            Ok(Some(long)) => long,
            Ok(None) => return missing,
            Err(why) => {
                self.violation(now, node, why);
                return missing;
            }
        };
        match self.keeps(node, &long) {
            Ok(true) => missing,
            Ok(false) => {
                let left = long.whole - arrived.len();
                let beginning = Bytes::copy_from_slice(&arrived[..long.fields]);
                *arrived = BytesMut::new();
                if let Some(socket) = self.endpoint.sockets.get_mut(id) {
                    socket.passed = Some(Passed { beginning, whole: long.whole, left });
                }
                // More of it is passed over as it arrives.
                1
            }
            Err(why) => {
                self.violation(now, node, why);
                missing
            }
        }
    }

    /// `arrived` bytes have arrived: returns how many of them belong to a frame that is passed over. They are
    /// not read. The complete frame is handled with a piece of zeros, which nothing reads.
    pub(super) fn pass_over(&mut self, now: Time, id: SocketId, node: NodeId, arrived: usize) -> usize {
        let Some(socket) = self.endpoint.sockets.get_mut(id) else { return 0 };
        let Some(passed) = &mut socket.passed else { return 0 };
        let bytes = passed.left.min(arrived);
        passed.left -= bytes;
        if passed.left > 0 {
            self.carry(now, id, node, BytesMut::new(), Bytes::new(), true);
            return bytes;
        }
        let Some(Passed { beginning, whole, .. }) = socket.passed.take() else { return bytes };
        let long = codec::begins_long(&beginning).ok().flatten();
        if long.is_none_or(|long| self.keeps(node, &long) != Ok(false)) {
            // Its channel has arrived here meanwhile: the peer sends the frame again on the next socket.
            self.close(now, id, Closed::Again);
            return bytes;
        }
        let mut frame = BytesMut::zeroed(whole);
        frame[..beginning.len()].copy_from_slice(&beginning);
        self.carry(now, id, node, BytesMut::new(), frame.freeze(), arrived > bytes);
        bytes
    }
}
