//! What a connection has heard: how far, and the values that are not complete yet.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};

use crate::config::Config;
use crate::id::ChannelId;
use crate::planted::planted;
use crate::wire::Head;

/// A value of which pieces are still to come.
#[derive(Clone, Debug)]
struct Unfinished {
    head: Head,
    total: u64,
    /// `None`: nobody wants it; its pieces are only counted.
    bytes: Option<BytesMut>,
    arrived: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Inbox {
    /// So many numbered frames have been seen: the next has this number.
    pub(crate) seen: u64,
    /// So many have been acknowledged.
    pub(crate) acked: u64,
    /// Bytes seen and not yet acknowledged.
    pub(crate) unacked_bytes: usize,
    /// So many of the numbered frames that come next have been seen already, on the socket before.
    pub(crate) again: u64,
    /// A part of a frame has arrived.
    pub(crate) within_frame: bool,
    unfinished: BTreeMap<ChannelId, Unfinished>,
}

/// What a piece has led to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// More is to come.
    NotYet,
    /// The value is complete.
    Whole(Head, Bytes),
    /// The value is complete, and nobody wants it.
    Unwanted,
    /// The piece does not belong to anything, or is too long.
    Wrong,
}

/// A value whose first piece is here gets memory for so many times that, so that its pieces are not copied again as it grows.
const AHEAD: u64 = 16;

impl Inbox {
    /// So many numbered frames have come on the present socket, or before it took the connection up. Only
    /// these are acknowledged: of what is to come again the other side would believe that it has been
    /// written.
    pub(crate) fn heard(&self) -> u64 {
        self.seen - self.again
    }

    /// Whether so much has been seen that its acknowledgement waits for nothing to go along with.
    pub(crate) fn must_acknowledge(&self, config: &Config) -> bool {
        // Else the other side has said all it had to say, or waits for its window, which is as large as that.
        let more_comes = self.within_frame || !self.unfinished.is_empty();
        let bytes = if more_comes { config.ack_bytes } else { config.ack_bytes.saturating_mul(Config::QUIET) };
        self.heard() != self.acked && self.unacked_bytes >= bytes
    }

    /// Whether pieces of a value are to come on this channel: its sender says nothing else there before them.
    pub(crate) fn is_within_value(&self, channel: ChannelId) -> bool {
        self.unfinished.contains_key(&channel)
    }

    /// A value begins. `wanted`: it is kept; it gets memory for [`AHEAD`] times what has arrived, if it is as long. Returns it if that was
    /// all of it.
    pub(crate) fn begin(
        &mut self,
        channel: ChannelId,
        head: Head,
        total: u64,
        first: Bytes,
        wanted: bool,
    ) -> Option<Bytes> {
        let arrived = first.len() as u64;
        if arrived == total {
            return wanted.then_some(first);
        }
        let bytes = wanted.then(|| {
            let mut bytes = BytesMut::with_capacity(total.min(AHEAD * arrived) as usize);
            bytes.extend_from_slice(&first);
            bytes
        });
        self.unfinished.insert(channel, Unfinished { head, total, bytes, arrived });
        None
    }

    pub(crate) fn more(&mut self, channel: ChannelId, piece: &Bytes) -> Arrived {
        let Some(value) = self.unfinished.get_mut(&channel) else { return Arrived::Wrong };
        value.arrived += piece.len() as u64;
        if value.arrived > value.total {
            return Arrived::Wrong;
        }
        if let Some(bytes) = &mut value.bytes {
            bytes.extend_from_slice(piece);
        }
        if value.arrived < value.total {
            return Arrived::NotYet;
        }
        let value = self.unfinished.remove(&channel).expect("it was just found");
        value.bytes.map_or(Arrived::Unwanted, |bytes| Arrived::Whole(value.head, bytes.freeze()))
    }

    /// The value that has begun is not wanted any more by its sender. `false`: none has begun.
    pub(crate) fn cut(&mut self, channel: ChannelId) -> bool {
        if planted!(CutIgnored) {
            return self.unfinished.contains_key(&channel);
        }
        self.unfinished.remove(&channel).is_some()
    }

    /// Values that are not complete.
    pub(crate) fn unfinished(&self) -> usize {
        self.unfinished.len()
    }
}
