//! The path from a choice to the agent that has reserved one of its offers.

use std::sync::Arc;

use super::FarChan;
use crate::channel::queue::events::FromSender;
use crate::choice::decision::Reserver;
use crate::handle::Handle;
use crate::wake::Queued;

pub(super) struct Ticket {
    pub(super) chan: Arc<dyn FarChan>,
    /// The handle of a shared receiver that the agent stands in for; `None`: the receiver itself.
    pub(super) demanded_by: Option<Handle>,
    pub(super) ticket: u64,
}

impl Ticket {
    fn tell(&self, event: FromSender) {
        self.chan.any().with_queue(|queue, _, after| queue.tell_taker(self.demanded_by, event, after));
    }
}

impl Queued for Ticket {
    fn unlocked(self: Arc<Self>) {
        self.tell(FromSender::Unlocked(self.ticket));
    }
}

impl Reserver for Ticket {
    fn revoke(self: Arc<Self>) {
        self.tell(FromSender::Revoke(self.ticket));
    }
}
