//! Between an agent at one of this node's channels and the protocol machine: one bridge for a channel that
//! reaches another node.
//!
//! A [`SendingBridge`] stands at the sender's half, where the core has an
//! [`Outlet`](dunlin_core::agent::Outlet) in the receiver's place; a [`ReceivingBridge`] at the receiver's
//! half, its home, and an [`AwayBridge`] at a home that its receiver has left before anything came there.
//! Neither keeps any state of the protocol: what is open is the machine's, what is waiting the core's.
//! Between them are only the values that are on their way, and their ends.

mod away;
pub(in crate::node) mod link;
mod receiving;
mod sending;
pub(in crate::node) mod words;

use std::task::{Context, Poll};

use bytes::Bytes;
use dunlin_core::carrier::{AnyInlet, CarriedEnd};
use dunlin_core::waits::ChannelId as CoreId;
use dunlin_proto::id::{Contact, Ticket};
use dunlin_proto::wire::Which;
use dunlin_proto::{HomeHears, ProxyHears};

use super::codec::Encoding;
use super::work::{Says, Told};

pub(crate) use away::AwayBridge;
pub(crate) use receiving::ReceivingBridge;
pub(crate) use sending::{SendingBridge, value_bytes};

/// A channel of this node that reaches another one.
pub(crate) trait Bridge: Send {
    /// Of which end of its channel the agent speaks.
    fn which(&self) -> Which;
    /// Its channel in the core, and how messages are written on it.
    fn core(&self) -> Option<(CoreId, Encoding)>;
    /// Whether it has nothing that it has yet to say.
    fn rests(&self) -> bool;
    /// Whether it has yet to say messages for which nobody waits: their sends are complete, or those who made
    /// them gone.
    fn owes(&self) -> bool {
        false
    }
    /// How many values it has yet to say of which the sends are complete.
    fn unsaid(&self) -> usize {
        0
    }
    /// Passes on what the agent has to say. `Ready`: the bridge is over.
    fn poll(&mut self, cx: &mut Context<'_>, says: &Says<'_>) -> Poll<()>;
    /// How messages are written whose ends somebody has to answer for also when this bridge is over. `None`:
    /// there are none.
    fn late_values(&self) -> Option<Encoding> {
        None
    }
    /// Whether its agent stands by, so that it does little and runs no code of users.
    fn is_quick(&self) -> bool {
        false
    }
    /// The agent goes on, if it stands by.
    fn unlink(&mut self, _: &Says<'_>) {}
    /// # Errors
    /// What it was told, if that takes longer.
    fn hear_quickly(&mut self, told: Told) -> Result<(), Told> {
        Err(told)
    }
    /// `false`: it has to be [polled](Self::poll).
    fn poll_quickly(&mut self, _: &Context<'_>) -> bool {
        false
    }
    /// The channel's home has spoken to this sending half.
    fn hear_home(&mut self, heard: ProxyHears, says: &Says<'_>);
    /// A sending half has spoken to this home.
    fn hear_sender(&mut self, from: Contact, heard: HomeHears, says: &Says<'_>);
    /// A sender that one of its messages waits for may be at rest.
    fn retry(&mut self, _: &Says<'_>) {}
    /// Its other end is found: a deadline does not ask any more what is missing.
    fn matched(&mut self) {}
    /// The receiver of this home has left in a message.
    fn lent(&mut self, _: CarriedEnd, _: &Says<'_>) {}
    /// This offer to the home is to go on to another node, and the ends in it cannot: it has to be made anew.
    fn onward(&mut self, _: Ticket, _: &Says<'_>) {}
    /// The value under this number has been read. `None`: it could not be.
    fn read(&mut self, _: Ticket, _: Option<Bytes>, _: &Says<'_>) {}
    /// The connection has lost its socket, and may come back.
    fn connection_lost(&mut self, says: &Says<'_>);
    /// The sender turns out to be on this node as well: the inlet, and how many credits it has given.
    fn into_home(self: Box<Self>) -> Option<(AnyInlet, u32)> {
        None
    }
    /// The home of this sending half has been found.
    fn into_sender(self: Box<Self>) -> Option<SendingBridge> {
        None
    }
    /// The end cannot be what its holder has declared.
    fn poison(&mut self, text: &str);
    /// A message panicked in what was last asked of this bridge.
    fn fail(&mut self, text: &str, says: &Says<'_>);
}
