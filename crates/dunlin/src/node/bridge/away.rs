//! The bridge of a home without a receiver.

use std::task::{Context, Poll};

use dunlin_core::waits::ChannelId as CoreId;
use dunlin_proto::id::Contact;
use dunlin_proto::wire::{End, Which};
use dunlin_proto::{HomeHears, ProxyHears};

use crate::node::codec::Encoding;
use crate::node::state::{Bridge, Says};

/// At the home of a channel whose receiver has left in its first message, for any node: the home follows the
/// receiver as soon as that is used. Before that no value arrives here: the sending half gets no terms, so
/// offers wait there.
#[derive(Default)]
pub(crate) struct AwayBridge {
    over: bool,
}

impl Bridge for AwayBridge {
    fn which(&self) -> Which {
        Which::Receiver
    }

    fn core(&self) -> Option<(CoreId, Encoding)> {
        None
    }

    fn rests(&self) -> bool {
        true
    }

    fn poll(&mut self, _: &mut Context<'_>, _: &Says<'_>) -> Poll<()> {
        if self.over { Poll::Ready(()) } else { Poll::Pending }
    }

    fn hear_sender(&mut self, _: Contact, heard: HomeHears, says: &Says<'_>) {
        match heard {
            HomeHears::Leave => says.speak(|locked| locked.state.machine.leave_home(locked.now, says.channel)),
            HomeHears::Empty => {
                says.speak(|locked| locked.state.machine.ship(locked.now, says.channel, Vec::new()));
                self.over = true;
            }
            // The receiver was dropped unused, or lost on its way.
            HomeHears::Lapsed(how) => {
                says.end_home(how);
                self.over = true;
            }
            HomeHears::Failed(_) => self.over = true,
            // The sender's end of the channel goes along with the home, and so does the sender's place: this
            // home sends no terms.
            _ => {}
        }
    }

    fn hear_home(&mut self, _: ProxyHears, _: &Says<'_>) {
        debug_assert!(false, "a home is no sending half");
    }

    fn connection_lost(&mut self, _: &Says<'_>) {}

    fn poison(&mut self, _: &str) {}

    fn fail(&mut self, _: &str, says: &Says<'_>) {
        says.end_home(End::Lost);
        self.over = true;
    }
}
