//! Ends that travel: `docs/mobility.md` in code. P, D, A and Z are the nodes of that text: a sender goes from
//! P to D, a receiver from A to Z.
//!
//! An end that is only forwarded leaves no trace but a record at each node on its way, with its giver and its
//! taker. The first use makes it known: a sender's by [`ToHome::Take`](crate::wire::ToHome::Take), a
//! receiver's by [`Travel::Fetch`].
//!
//! `state.rs` has the records of such ends here, `senders.rs` and `receivers.rs` their transitions,
//! `words.rs` the frames that nodes exchange about both.

mod passage;
mod receivers;
mod senders;
pub(in crate::channel) mod state;
mod through;
mod words;

use std::sync::{Arc, LazyLock};

use bytes::Bytes;

use crate::channel::{Channels, Peers};
use crate::id::ChannelId;
use crate::wire::{Declaration, End, Expected, Face, Frame, Travel, Which};
use state::{Trip, Whereabouts};

pub use passage::{Passage, Stand, Unsettled};

/// The declaration of an end that arrived in a message.
fn declaration() -> Arc<Declaration> {
    static SAID: LazyLock<Arc<Declaration>> = LazyLock::new(|| {
        let (face, expects, schema) = (Face::Receiver, Expected::Unknown, Bytes::new());
        Arc::new(Declaration { face, shared: false, expects, schema })
    });
    SAID.clone()
}

impl Channels {
    fn next_trip(&mut self) -> Trip {
        self.trips += 1;
        self.trips
    }

    /// Removes the record of an end that was forwarded and whose giver is lost: no node will report it
    /// settled, and none needs a report of its loss.
    fn forget_passed_on(&mut self, peers: &mut impl Peers, channel: ChannelId) {
        if let Some(proxy) = self.proxies.get(&channel)
            && proxy.way.state == Whereabouts::Resting
            && proxy.way.givers.is_empty()
            && proxy.way.lent.is_some()
        {
            self.settle_lent(peers, channel);
            self.drop_way(peers, channel, &End::Lost);
        }
        if let Some(visitor) = self.visitors.get(&channel)
            && visitor.givers.is_empty()
            && let Some((to, trip)) = visitor.lent
        {
            peers.say(to, Frame::Travel(channel, Travel::Settled(Which::Receiver, trip)));
            self.remove_visitor(peers, channel);
        }
    }
}
