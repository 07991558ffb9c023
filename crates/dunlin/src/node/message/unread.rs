//! Large values that are offered *unread*: they stay at their sender's node until it is known which node
//! receives them, and go there straight.
//!
//! This is for a receiver that several nodes share. Its offers come to the node that keeps it, and are
//! matched there with a request of another node. The keeper passes on the place where the value can be read
//! ([`Reading`]), and the other node reads it from the sender's node: over a new channel, as a reply comes.
//! That does not change the offer: the receiver of the value acknowledges it over the path of the offer, and
//! until then other nodes can read the value again. If it cannot be read there, the keeper reads it, and
//! passes it on.
//!
//! (`docs/claim.md`, *Large values go straight*. The matched receiver requests the value. So no node keeps
//! state for a value whose receiver has gone, and the keeper, which can always reach the sender, reads in the
//! same way.)

use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use dunlin_core::agent::{Inlet, Outlet};
use dunlin_core::carrier::{AnyInlet, AnyOutlet};
use dunlin_core::{Sender, channel};
use dunlin_proto::id::{ChannelId, NodeId, Ticket};
use dunlin_proto::wire::{End, Read};

use super::kept::Shelved;
use super::{declaration, read_node, terms_for_one, write_node};
use crate::lock::lock;
use crate::node::budget::Budget;
use crate::node::codec::Encoding;
use crate::node::id;
use crate::node::state::{Locked, NewReceiver, NewReceiverKind, NewSender, NewSenderKind, Says, Told};
use crate::world;

/// The message that stands in for a value: where the value can be read.
pub(crate) struct Reading {
    node: NodeId,
    addresses: Vec<String>,
    /// Any node that knows the key may read the value.
    key: u128,
    /// The length of the value.
    pub(crate) bytes: u64,
    /// The encoding of the value.
    pub(crate) encoding: Encoding,
}

impl Reading {
    fn write(&self) -> Bytes {
        let mut out = BytesMut::new();
        write_node(self.node, &self.addresses, &mut out);
        out.put_u128(self.key);
        out.put_u64(self.bytes);
        out.put_u8(self.encoding.code());
        out.freeze()
    }

    /// `None`: the bytes are not a reading written by dunlin.
    pub(crate) fn parse(mut bytes: Bytes) -> Option<Self> {
        let (node, addresses) = read_node(&mut bytes)?;
        let key = bytes.try_get_u128().ok()?;
        let length = bytes.try_get_u64().ok()?;
        let encoding = Encoding::from_code(bytes.try_get_u8().ok()?)?;
        bytes.is_empty().then_some(Self { node, addresses, key, bytes: length, encoding })
    }
}

/// Puts a message on the shelf. Returns the message that is offered in its place.
pub(crate) fn shelve(message: Bytes, encoding: Encoding, says: &Says<'_>) -> (Bytes, Shelved) {
    let key = id::channel().0;
    says.speak(|locked| {
        let machine = &locked.state.machine;
        let (node, addresses) = (machine.me().node, machine.addresses_here().to_vec());
        let reading = Reading { node, addresses, key, bytes: message.len() as u64, encoding };
        let shelf = locked.state.shelf.clone();
        lock(&shelf.0).insert(key, Arc::new(message));
        (reading.write(), Shelved { shelf, key })
    })
}

/// Serves a value of this node to another node that reads it.
pub(crate) fn serve(to: NodeId, channel_id: ChannelId, read: Read, locked: &mut Locked<'_>) {
    let Some(message) = locked.state.shelf.take(read.key) else {
        return locked.state.machine.end_proxy(locked.now, channel_id, End::Gone);
    };
    let (mut tx, rx) = channel::<Bytes>();
    let outlet = AnyOutlet::from(Outlet::new(rx));
    let kind = NewSenderKind::Reply { value_max: read.value_max, first: None };
    let sender = NewSender { outlet, home: Some(to), encoding: Encoding::default(), kind };
    locked.driver.stretch_sender(locked.state, channel_id, Some(to), sender);
    world::spawn_own(async move {
        // A reader that no longer needs the value has ended the channel.
        let _ = tx.send(Bytes::clone(&message)).await;
    });
}

/// A value that is being read. Dropping it stops the read.
pub(crate) struct Reads {
    /// The encoding of the value.
    pub(crate) encoding: Encoding,
    _stop: Option<Sender<()>>,
}

/// Reads a value: this half's bridge gets it as [`Told::Read`] under this number. `by`: the node that sent
/// the place.
pub(crate) fn read(reading: Reading, ticket: Ticket, by: NodeId, says: &Says<'_>) -> Reads {
    let Reading { node, addresses, key, encoding, .. } = reading;
    let half = says.half();
    let is_here = says.speak(|locked| {
        let is_here = locked.state.machine.me().node == node;
        if is_here {
            let message = lock(&locked.state.shelf.0).get(&key).map(|message| Bytes::clone(message));
            locked.state.tell(half, Told::Read(ticket, message));
        }
        is_here
    });
    if is_here {
        return Reads { encoding, _stop: None };
    }
    let (tx, mut rx) = channel::<Bytes>();
    let inlet = AnyInlet::from(Inlet::new(tx));
    let (stop, mut stopped) = channel::<()>();
    let driver = says.speak(|locked| {
        let (channel_id, value_max) = (id::channel(), locked.state.machine.value_max());
        locked.state.machine.introduced(node, by, &addresses);
        locked.state.machine.open_home_to(channel_id, terms_for_one(value_max), declaration(), node);
        let budget = Budget::of(&inlet, locked.state.buffered_max);
        let kind = NewReceiverKind::Reply;
        let receiver = NewReceiver { inlet, budget, credits: 0, encoding, from: Some(node), kind };
        locked.driver.stretch_receiver(locked.state, channel_id, Some(node), receiver);
        locked.state.machine.read(locked.now, node, channel_id, Read { key, value_max });
        locked.driver.clone()
    });
    world::spawn_own(async move {
        let message = crate::alt! {
            message = rx.recv() => message.ok(),
            _ = stopped.recv() => return,
        };
        driver.with(|state, _| state.tell(half, Told::Read(ticket, message)));
    });
    Reads { encoding, _stop: Some(stop) }
}
