//! Messages that go through this node: a value came in an offer, and goes on in another one before it has
//! been received. This happens where a shared end is kept, between a sender and a receiver at two other
//! nodes.
//!
//! The ends in such a value are not this node's. The message is written again as it came, except for its
//! trip numbers (`dunlin-proto/src/channel/travel/through.rs`).

use bytes::{Bytes, BytesMut};
use dunlin_core::Why;
use dunlin_core::agent::PassedOn;
use dunlin_proto::id::{Contact, NodeId};
use dunlin_proto::wire::Which;

use super::kept::{Place, Through};
use super::{Coming, Leaving, NotNow, Reading, read_ends};
use crate::node::codec::Encoding;
use crate::node::state::Locked;
use crate::node::state::{Says, Told};

const OWN_NODE: &str = "a value that contains an end cannot return to the node of the shared end over a channel that \
                        has travelled and has both ends there: make a new channel there";

const OTHER_ENCODING: &str = "a value that contains an end is forwarded to another node as it was encoded, and the \
                              two channels have different encodings: send the handles of the shared end over channels \
                              of the encoding that the end was declared with";

/// Writes a message that came under this name for the node `to`. `None`: it has no ends and is here, and is
/// written as any other.
pub(crate) fn pass_on(
    name: PassedOn,
    to: Option<NodeId>,
    encoding: Encoding,
    bytes_max: u64,
    says: &Says<'_>,
) -> Option<Result<(Bytes, Leaving), NotNow>> {
    says.speak(|locked| {
        let (over, from, bytes, written, is_unread) = {
            let passing = locked.state.passing.get(&name)?;
            (passing.over, passing.from, passing.bytes.clone(), passing.encoding, passing.is_unread)
        };
        let never = |why: &'static str| Some(Err(NotNow::Never(Why::Unsendable(why.into()))));
        if is_unread {
            let length = Reading::parse(bytes.clone()).map_or(0, |reading| reading.bytes);
            if length > bytes_max {
                return Some(Err(Why::TooLarge { bytes: length, bytes_max }.into()));
            }
            let through = Some(Through { name, from, ends: Vec::new(), is_unread });
            return Some(Ok((bytes, Leaving { sealed: None, ends: Vec::new(), encoding, through })));
        }
        if to == Some(locked.state.machine.me().node) {
            return never(OWN_NODE);
        }
        if written != encoding {
            return never(OTHER_ENCODING);
        }
        if bytes.len() as u64 > bytes_max {
            return Some(Err(Why::TooLarge { bytes: bytes.len() as u64, bytes_max }.into()));
        }
        let comings = read_ends(&mut bytes.clone())?;
        let parts = || comings.iter().flat_map(|whole| &whole.parts);
        if parts().any(|end| end.channel == says.channel) {
            return never("an end cannot be sent over its own channel");
        }
        if parts().any(|end| matches!(end.coming, Coming::First)) {
            // Its giver has written it for this node alone, and is asked to write it anew: once, since a
            // waiting half retries after each event on that channel.
            let passing = locked.state.passing.get_mut(&name)?;
            if !std::mem::replace(&mut passing.is_asked_anew, true) {
                locked.state.tell((over, Which::Receiver), Told::Onward(name.number()));
            }
            locked.state.wait_for(over, says.half());
            return Some(Err(NotNow::Later));
        }
        let mut message = BytesMut::from(&bytes[..]);
        let mut ends = Vec::new();
        for end in parts() {
            if let Coming::On(place, _) = &end.coming {
                let (trip, at) = (locked.state.machine.passes(), bytes.len() - end.left_at_trip);
                message[at..at + 8].copy_from_slice(&trip.to_be_bytes());
                ends.push((end.channel, place.clone(), trip));
            }
        }
        let through = Some(Through { name, from, ends, is_unread });
        Some(Ok((message.freeze(), Leaving { sealed: None, ends: Vec::new(), encoding, through })))
    })
}

impl Through {
    pub(super) fn is_unread(&self) -> bool {
        self.is_unread
    }

    /// The message has not been taken, or that is unknown: the message that came here stays as it is.
    pub(super) fn stay(&self, locked: &mut Locked<'_>) {
        self.ends.iter().for_each(|(_, _, trip)| locked.state.machine.end_stays(*trip));
    }

    /// A receiver on that node has taken the message, and so the message that came here is taken too.
    pub(super) fn hand_over(self, to: Contact, locked: &mut Locked<'_>) {
        locked.state.passing.remove(&self.name);
        let (now, from) = (locked.now, self.from);
        for (channel, place, trip) in self.ends {
            match place {
                Place::Sender(place) => locked.state.machine.sender_passed(now, channel, place, from, (to, trip)),
                Place::Receiver(place) => locked.state.machine.receiver_passed(now, channel, place, from, (to, trip)),
            }
        }
    }

    /// A receiver on that node has taken the message after its giver was notified that the outcome is
    /// unknown.
    pub(super) fn end(&self, to: NodeId, locked: &mut Locked<'_>) {
        for (channel, place, trip) in &self.ends {
            let which = match place {
                Place::Sender(_) => Which::Sender,
                Place::Receiver(_) => Which::Receiver,
            };
            locked.state.machine.end_taken(locked.now, *channel, which, *trip, to);
        }
    }
}
