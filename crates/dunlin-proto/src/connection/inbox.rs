//! What a connection has received: how far, and the incomplete values.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use dunlin_sorted::SortedMap;

use crate::account::{Account, Charge};
use crate::config::Config;
use crate::id::ChannelId;
use crate::misbehaved::PeerMisbehaved;
use crate::planted::planted;
use crate::time::Time;
use crate::wire::Head;

/// How many unacknowledged frames make an acknowledgement go with the next write.
const ACK_FRAMES: u64 = 8;

/// A value of which the first piece has arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    pub(crate) head: Head,
    pub(crate) total: u64,
    /// Its bytes are kept, and not only counted.
    pub(crate) wanted: bool,
    pub(crate) charge: Charge,
}

impl Begun {
    /// The value with all its bytes.
    pub(crate) fn whole(self, bytes: Bytes) -> Arrived {
        let Self { head, charge, .. } = self;
        if self.wanted { Arrived::Whole(Whole { head, bytes, charge }) } else { Arrived::Unwanted(charge) }
    }
}

/// A value that has arrived.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Whole {
    pub(crate) head: Head,
    pub(crate) bytes: Bytes,
    pub(crate) charge: Charge,
}

/// A value with pieces still to come.
#[derive(Clone, Debug)]
struct Unfinished {
    value: Begun,
    /// Empty if the value is not wanted.
    bytes: BytesMut,
    arrived: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Inbox {
    /// How many numbered frames have been received: the next has this number.
    pub(crate) seen: u64,
    /// How many have been acknowledged.
    pub(crate) acked: u64,
    /// When the last acknowledgement was sent.
    pub(crate) acked_at: Option<Time>,
    /// Bytes received and not yet acknowledged.
    pub(crate) unacked_bytes: usize,
    /// How many of the next numbered frames were already received, on the previous socket.
    pub(crate) again: u64,
    /// A part of a frame has arrived.
    pub(crate) within_frame: bool,
    unfinished: SortedMap<ChannelId, Unfinished>,
    /// What is kept of received values.
    pub(crate) account: Account,
    pub(crate) stall: Stall,
}

/// How long other frames have arrived since a value was admitted, or a piece of one arrived. A pause without
/// any frame counts as one heartbeat: this node, or the link, may have been held up.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stall {
    /// The other side has acknowledged the last admission once it has acknowledged this many frames.
    admitted_by: u64,
    /// Since it has.
    known: Duration,
    /// Before that: a link may carry frames in one direction only.
    unknown: Duration,
}

impl Stall {
    /// A value is admitted in the last of this many frames.
    pub(crate) fn admits(&mut self, frames: u64) {
        self.admitted_by = frames;
    }

    /// A piece of a value has arrived, or another value can.
    pub(crate) fn ends(&mut self) {
        (self.known, self.unknown) = (Duration::ZERO, Duration::ZERO);
    }

    /// A frame has arrived this long after the one before it. The other side has acknowledged `acked` frames.
    pub(crate) fn passes(&mut self, time: Duration, acked: u64) {
        *if acked >= self.admitted_by { &mut self.known } else { &mut self.unknown } += time;
    }

    /// Whether the other side has had the time to send something. If it has not received the admission it
    /// finds its socket silent, and it has the grace to acknowledge something over others.
    pub(crate) fn is_long(&self, config: &Config) -> bool {
        self.known >= config.grace || self.unknown >= config.grace + config.silence
    }
}

/// The result of a piece.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// More pieces are to come.
    NotYet,
    /// The value is complete.
    Whole(Whole),
    /// The value is complete, and is not wanted.
    Unwanted(Charge),
    /// The piece does not belong to anything, or is too long.
    Wrong,
}

/// The memory reserved for a value, as a multiple of its first piece, so that its pieces are not copied again
/// as it grows.
const AHEAD: u64 = 16;

impl Inbox {
    /// How many numbered frames have arrived on the present socket, or before it took over the connection.
    /// Only these are acknowledged: for one that is to come again, the other side would believe that it has
    /// already written it.
    pub(crate) fn heard(&self) -> u64 {
        self.seen - self.again
    }

    /// Whether to send an acknowledgement with the next write. A few frames soon after the last
    /// acknowledgement wait for more, or for the time or the bytes after which one goes alone. The peer
    /// measures the round trip by acknowledgements, so they must not be late by much.
    pub(crate) fn acknowledges_beside(&self, now: Time, config: &Config) -> bool {
        let owed = self.heard() - self.acked;
        let is_due = owed >= ACK_FRAMES
            || self.unacked_bytes >= config.ack_bytes
            || self.acked_at.is_none_or(|at| now >= at + config.ack_delay / 4);
        owed > 0 && is_due
    }

    /// Acknowledges everything received now, and returns the number of frames.
    pub(crate) fn acknowledge(&mut self, now: Time) -> u64 {
        (self.acked, self.acked_at, self.unacked_bytes) = (self.heard(), Some(now), 0);
        self.acked
    }

    /// Whether so much has been received that its acknowledgement does not wait for another frame.
    pub(crate) fn must_acknowledge(&self, config: &Config) -> bool {
        // Otherwise the other side has sent everything, or waits for its window, which is as large as that.
        let more_comes = self.within_frame || !self.unfinished.is_empty();
        let bytes = if more_comes { config.ack_bytes } else { config.ack_bytes.saturating_mul(Config::QUIET) };
        self.heard() != self.acked && self.unacked_bytes >= bytes
    }

    /// Whether pieces of a value are to come on this channel: its sender sends nothing else there before
    /// them.
    pub(crate) fn is_within_value(&self, channel: ChannelId) -> bool {
        self.unfinished.contains_key(&channel)
    }

    /// A piece of `piece` bytes arrives on this channel: whether it is kept.
    pub(crate) fn keeps(&self, channel: ChannelId, piece: u64) -> Result<bool, PeerMisbehaved> {
        match self.unfinished.get(&channel) {
            Some(unfinished) if unfinished.arrived + piece <= unfinished.value.total => Ok(unfinished.value.wanted),
            _ => Err(PeerMisbehaved::StrayPiece),
        }
    }

    /// A value begins. If it is wanted, reserves memory for [`AHEAD`] times the first piece, up to its
    /// length.
    pub(crate) fn begin(&mut self, channel: ChannelId, value: Begun, first: Bytes) -> Arrived {
        let arrived = first.len() as u64;
        if arrived == value.total {
            self.account.arrived(value.charge);
            return value.whole(first);
        }
        let mut bytes = BytesMut::new();
        if value.wanted {
            bytes.reserve(value.total.min(AHEAD * arrived) as usize);
            bytes.extend_from_slice(&first);
        }
        self.unfinished.insert(channel, Unfinished { value, bytes, arrived });
        Arrived::NotYet
    }

    pub(crate) fn more(&mut self, channel: ChannelId, piece: &Bytes) -> Arrived {
        let Some(unfinished) = self.unfinished.get_mut(&channel) else { return Arrived::Wrong };
        unfinished.arrived += piece.len() as u64;
        if unfinished.arrived > unfinished.value.total {
            return Arrived::Wrong;
        }
        if unfinished.value.wanted {
            unfinished.bytes.extend_from_slice(piece);
        }
        if unfinished.arrived < unfinished.value.total {
            return Arrived::NotYet;
        }
        let Unfinished { value, bytes, .. } = self.unfinished.remove(&channel).expect("it was just found");
        self.account.arrived(value.charge);
        value.whole(bytes.freeze())
    }

    /// The sender has withdrawn the value that has begun. `None`: none has begun.
    pub(crate) fn cut(&mut self, channel: ChannelId) -> Option<Charge> {
        if planted!(CutIgnored) {
            return self.unfinished.contains_key(&channel).then_some(Charge::NONE);
        }
        let charge = self.unfinished.remove(&channel)?.value.charge;
        self.account.arrived(charge);
        Some(charge)
    }

    /// How many values are incomplete.
    pub(crate) fn unfinished(&self) -> usize {
        self.unfinished.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether `seen` frames with `bytes` bytes are acknowledged, when the last acknowledgement went at zero.
    fn acknowledges(seen: u64, bytes: usize, at: Duration) -> bool {
        let mut inbox = Inbox { seen: 10, ..Inbox::default() };
        assert_eq!(inbox.acknowledge(Time(0)), 10);
        (inbox.seen, inbox.unacked_bytes) = (10 + seen, bytes);
        inbox.acknowledges_beside(Time(0) + at, &Config::new("tides"))
    }

    #[test]
    fn few_frames_are_not_acknowledged_at_once() {
        let config = Config::new("tides");
        let (soon, late) = (config.ack_delay / 5, config.ack_delay / 4);
        for (seen, bytes, at, is_due) in [
            (0, 0, late, false),
            (1, 40, soon, false),
            (1, 40, late, true),
            (ACK_FRAMES - 1, 300, soon, false),
            (ACK_FRAMES, 300, soon, true),
            (1, config.ack_bytes - 1, soon, false),
            (1, config.ack_bytes, soon, true),
        ] {
            assert_eq!(acknowledges(seen, bytes, at), is_due, "{seen} frames, {bytes} bytes, after {at:?}");
        }
    }

    #[test]
    fn first_frame_is_acknowledged_with_the_first_answer() {
        let inbox = Inbox { seen: 1, ..Inbox::default() };
        assert!(inbox.acknowledges_beside(Time(0), &Config::new("tides")));
    }
}
