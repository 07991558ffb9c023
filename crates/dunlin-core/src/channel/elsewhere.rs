//! What the other half of a channel is asked, and what its offers are called, where that half is at another
//! node.

use std::sync::Arc;

use crate::error::Reason;
use crate::handle::Handle;
use crate::waits::ChannelId;

/// Knows what is missing at the other end of a channel.
///
/// It is asked when a deadline passes, so an end that waits costs no text.
pub trait Missing: Send + Sync {
    /// What the deadline says, at the end of this channel. `None`: that it has passed, and nothing more.
    /// Nothing of this crate is locked when it is asked.
    fn text(&self, channel: ChannelId) -> Option<Reason>;

    /// The end at this channel is about to leave in a message. Nothing of this crate is locked when this is
    /// called.
    fn leaves(&self) {}
}

/// An offer that came by an [`Inlet`](crate::agent::Inlet) and may go on by an outlet of the same channel:
/// which one it is, of all that came.
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

/// What an offer of an outlet is called that came from elsewhere itself, by its ticket.
pub(crate) type Names = Arc<dyn Fn(u64) -> Option<PassedOn> + Send + Sync>;
