//! Queries to the other half of a channel at another node, and the names of its offers.

use std::sync::Arc;

use crate::error::Reason;
use crate::handle::Handle;
use crate::waits::ChannelId;

/// Knows what is missing at the other end of a channel.
///
/// It runs only when a deadline passes, so a waiting end costs no text.
pub trait Missing: Send + Sync {
    /// The text of a timeout at the end of this channel. `None`: only that the deadline passed. The caller
    /// holds no lock of this crate.
    fn text(&self, channel: ChannelId) -> Option<Reason>;

    /// Reports that the end at this channel is about to leave in a message. The caller holds no lock of this
    /// crate.
    fn leaves(&self) {}
}

/// Identifies an offer that came through an [`Inlet`](crate::agent::Inlet) and may be forwarded by an outlet
/// of the same channel, among all offers that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PassedOn {
    pub(crate) channel: ChannelId,
    pub(crate) of: Handle,
    pub(crate) number: u64,
}

impl PassedOn {
    /// The number under which the inlet [offered](crate::agent::Inlet::offer) it.
    pub fn number(&self) -> u64 {
        self.number
    }
}

/// Maps the ticket of an outlet's offer to its name, if the offer itself came from elsewhere.
pub(crate) type Names = Arc<dyn Fn(u64) -> Option<PassedOn> + Send + Sync>;
