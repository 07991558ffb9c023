//! Requests: messages whose ends are places for replies, which go over a link while the agents of their
//! channel stand by.
//!
//! At the sending half the link describes the places and keeps them until the outcome of the offer is known.
//! At the home a receive decodes the request, and the link holds its places once the request is taken.

use std::sync::Arc;
use std::task::Poll;

use bytes::{BufMut, Bytes, BytesMut};
use dunlin_core::carrier::{Agent, CarriedEnd, EndKind, Inbox, Outbox, Sealed};
use dunlin_core::{Why, fifo};
use dunlin_proto::id::{ChannelId, Contact, NodeId};

use super::{Going, Gone, Leaving, LeavingEnd, code, go, write_end};
use crate::node::codec::Encoding;
use crate::node::id;
use crate::node::state::{Delivery, Driver, Held, Says, State};

/// How many bytes describe a place: its code, and its channel.
const PLACE: usize = 17;

/// The code of a place that travels for the first time.
fn is_place(described: &[u8]) -> bool {
    described.first().copied() == code(EndKind::Reply)
}

/// The descriptions of the places of a request. `None`: the message is not one.
fn described(message: &[u8]) -> Option<std::slice::ChunksExact<'_, u8>> {
    let (count, rest) = message.split_first().filter(|(count, _)| **count > 0)?;
    let places = rest.get(..PLACE * usize::from(*count))?.chunks_exact(PLACE);
    places.clone().all(is_place).then_some(places)
}

/// Whether all ends of this message are places for replies that travel for the first time.
pub(in crate::node) fn is_request(message: &[u8]) -> bool {
    described(message).is_some()
}

/// Encodes a value by `write`, and returns the places in it, if it has any. Other ends do not go over a link.
pub(in crate::node) fn write(
    write: &mut dyn FnMut() -> Poll<Result<Bytes, Why>>,
) -> Poll<Result<(Bytes, Option<Sealed>), Why>> {
    let mut outbox = Outbox::new();
    let written = outbox.encode(|| match write() {
        Poll::Ready(Ok(value)) => Ok(value),
        Poll::Ready(Err(why)) => Err(Some(why)),
        Poll::Pending => Err(None),
    });
    let value = match written {
        Ok(value) => value,
        Err(Some(why)) => return Poll::Ready(Err(why)),
        Err(None) => return Poll::Pending,
    };
    let sealed = match outbox.seal() {
        Ok(sealed) => sealed,
        Err(error) => return Poll::Ready(Err(Why::Unsendable(error.to_string().into()))),
    };
    let count = sealed.ends().len();
    Poll::Ready(match count {
        0 => Ok((value, None)),
        _ if count <= usize::from(u8::MAX) && sealed.ends().all(|end| end.kind == EndKind::Reply && !end.stretched) => {
            Ok((value, Some(sealed)))
        }
        _ => Err(Why::Unsendable("it has other ends than new places for replies".into())),
    })
}

/// A request that leaves for that node, with these places: `body` is its value, encoded as a message without
/// ends. `None`: one of the places is in another message, or was.
pub(in crate::node) fn leave(
    body: &[u8],
    places: Sealed,
    encoding: Encoding,
    to: NodeId,
    state: &mut State,
) -> Option<(Bytes, Leaving)> {
    let is_new = |core| {
        !(state.first.contains_key(&core) || state.arriving.contains_key(&core) || state.by_core.contains_key(&core))
    };
    if !places.ends().all(|end| end.channel.is_some_and(is_new)) {
        return None;
    }
    let ends = places.ends().map(|end| LeavingEnd {
        token: end.token,
        handle: None,
        number: 0,
        channel: id::channel(),
        core: end.channel,
        kind: EndKind::Reply,
        policy: None,
        going: Going::First,
    });
    let ends: Vec<LeavingEnd> = ends.collect();
    let mut message = BytesMut::with_capacity(PLACE * ends.len() + body.len());
    message.put_u8(ends.len() as u8);
    for end in &ends {
        write_end(end, encoding, &mut message);
        state.first.extend(end.core.map(|core| (core, end.channel)));
        state.expect_reply(end.channel, to);
    }
    message.put_slice(&body[1..]);
    Some((message.freeze(), Leaving { sealed: Some(places), ends, encoding, through: None }))
}

impl Leaving {
    /// The request was taken by a receiver on that node. Its owner drops the value later.
    pub(in crate::node) fn hand_over_places(self, to: Contact, says: &Says<'_>) {
        let Some(sealed) = self.sealed else { return };
        let agents = sealed.hand_over().map(|end| end.map(CarriedEnd::into_agent));
        let ends: Vec<_> = self.ends.into_iter().zip(agents).collect();
        let replies = says.speak(|locked| {
            let go = |(end, agent)| go(end, Gone::First(agent), to, self.encoding, locked);
            ends.into_iter().filter_map(go).collect::<Vec<_>>()
        });
        replies.into_iter().for_each(Delivery::run);
    }
}

/// The places of a request that has been decoded here. `None`: the place was discarded.
pub(in crate::node) type Places = Vec<(ChannelId, Option<Arc<Held>>)>;

/// Decodes this request by `read`, which gets it as a message without ends, and returns its places.
pub(in crate::node) fn arrive(
    message: &Bytes,
    encoding: Encoding,
    driver: &Arc<Driver>,
    read: &mut dyn FnMut(&Bytes) -> Result<(), Why>,
) -> Result<Places, Why> {
    let places = described(message).ok_or_else(|| Why::Unsendable("it has other ends than places".into()))?;
    let channels = places.clone().filter_map(|described| {
        let number = described.get(1..)?.try_into().ok()?;
        Some(ChannelId(u128::from_be_bytes(number)))
    });
    let body = &message[1 + PLACE * places.len()..];
    let mut value = BytesMut::with_capacity(1 + body.len());
    value.put_u8(0);
    value.put_slice(body);
    let value = value.freeze();
    let mut inbox = Inbox::by(driver.number);
    (0..places.len() as u64).for_each(|token| inbox.expect(token, EndKind::Reply, fifo(1)));
    inbox.decode(|| read(&value))?;
    let held = channels.zip(inbox.into_adopted()).map(|(channel, end)| {
        let held = match end.agent {
            Some(Agent::Outlet(slot)) => Some(Held::new(driver, channel, slot, encoding)),
            _ => None,
        };
        (channel, held)
    });
    Ok(held.collect())
}
