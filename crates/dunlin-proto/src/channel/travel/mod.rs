//! Ends that travel: `docs/mobility.md` in code. P, D, A and Z are the nodes of that text: a sender goes from P to D, a receiver from A to Z.
//!
//! An end that is only passed on leaves no trace but a record at each node on its way, which says who gave it and to whom it was given. The first use makes
//! it known: a sender's by [`ToHome::Take`](crate::wire::ToHome::Take), a receiver's by [`Travel::Fetch`].
//!
//! What is here of such ends is in `state.rs`, `senders.rs` and `receivers.rs` have what becomes of them, `words.rs` what nodes say to each other of both.

mod passage;
mod receivers;
mod senders;
pub(in crate::channel) mod state;
mod through;
mod words;

use std::sync::{Arc, LazyLock};

use bytes::Bytes;

use crate::id::{ChannelId, Contact, NodeId};
use crate::machine::Machine;
use crate::planted::planted;
use crate::time::Time;
use crate::wire::{Declaration, End, Expected, Face, Frame, Travel, Which};
use state::{Trip, Whereabouts};

pub use passage::{Passage, Stand, Unsettled};

/// What is there to be said of an end that came in a message.
fn declaration() -> Arc<Declaration> {
    static SAID: LazyLock<Arc<Declaration>> = LazyLock::new(|| {
        let (face, expects, schema) = (Face::Receiver, Expected::Unknown, Bytes::new());
        Arc::new(Declaration { face, shared: false, expects, schema })
    });
    SAID.clone()
}

impl Machine {
    fn next_trip(&mut self) -> Trip {
        self.trips += 1;
        self.trips
    }

    fn addresses_of_any(&self, node: NodeId) -> Vec<String> {
        let mut addresses = if self.is_me(node) { self.addresses_here() } else { self.addresses_of(node) }.to_vec();
        addresses.truncate(crate::wire::limits::ADDRESSES);
        addresses
    }

    /// Whether who took an end is lost, and the end with it.
    fn has_lost_taker(&self, taker: Contact) -> bool {
        self.is_over(if planted!(TakersLifeIgnored) { self.contact(taker.node) } else { taker })
            && !planted!(LeftToNobody)
    }

    /// Whether who gave an end will not say when it is in use: it is lost, or this node.
    fn is_silent(&self, giver: Contact) -> bool {
        self.is_over(giver) || self.is_me(giver.node)
    }

    /// Says of an end who has it, to who gave it or took it. If that life of the connection is over, it has been given up there.
    fn answer(&mut self, now: Time, to: Contact, channel: ChannelId, said: Travel) {
        self.answer_unless_over(now, to, Frame::Travel(channel, said));
    }

    /// Says something to a node that can hear it only in that life of the connection.
    pub(in crate::channel) fn answer_unless_over(&mut self, now: Time, to: Contact, frame: Frame) {
        if !self.is_over(to) {
            self.say(now, to.node, frame);
        }
    }

    /// A record of an end that was passed on, whose giver is lost: nobody will say when it is settled, and nobody has to hear if it is lost.
    fn forget_passed_on(&mut self, now: Time, channel: ChannelId) {
        if let Some(proxy) = self.proxies.get(&channel)
            && proxy.way.state == Whereabouts::Resting
            && proxy.way.givers.is_empty()
            && proxy.way.lent.is_some()
        {
            self.settle_lent(now, channel);
            self.drop_way(now, channel, &End::Lost);
        }
        if let Some(visitor) = self.visitors.get(&channel)
            && visitor.givers.is_empty()
            && let Some((to, trip)) = visitor.lent
        {
            self.say(now, to, Frame::Travel(channel, Travel::Settled(Which::Receiver, trip)));
            self.remove_visitor(channel);
        }
    }
}
