//! Ends that wait under a name, and have only their agents yet: no bridge, no record of one, and no waker.
//! They get these when their other end is found, when a sending half attaches, when they are used, or when
//! they leave in a message ([`Hub::rouse`]).

use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};

use dunlin_core::Reason;
use dunlin_core::agent::Missing;
use dunlin_core::carrier::Agent;
use dunlin_core::waits::ChannelId as CoreId;
use dunlin_proto::id::ChannelId;

use super::Hub;
use super::end::{Half, Kept, Role, down, set_unmatched};
use crate::node::bridge::{ReceivingBridge, SendingBridge};
use crate::node::budget::Budget;
use crate::node::state::{Bridge, Driver, Locked};

/// A declared end, as the channels of its agents know it: they wake it when their ends are used, and ask it
/// for the reason of a deadline.
pub(super) struct Unmet {
    driver: Weak<Driver>,
    number: u64,
}

impl Unmet {
    pub(super) fn new(driver: &Arc<Driver>, number: u64) -> Arc<Self> {
        Arc::new(Self { driver: Arc::downgrade(driver), number })
    }
}

impl Wake for Unmet {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(driver) = self.driver.upgrade() {
            driver.end_stirs(self.number);
        }
    }
}

impl Missing for Unmet {
    fn text(&self, _: CoreId) -> Option<Reason> {
        self.driver.upgrade()?.with_hub_now(|hub, cx| hub.what_is_missing(cx, self.number))
    }

    fn leaves(&self) {
        if let Some(driver) = self.driver.upgrade() {
            // Deferred: this is called while a message is encoded.
            driver.speak(|locked| {
                driver.with_hub(locked.state, locked.now, |hub, cx| hub.rouse(cx, self.number));
            });
        }
    }
}

impl Role {
    /// Takes the agent of an end that has no bridge yet, to give it one.
    fn take_agent(&mut self) -> Option<Agent> {
        match self {
            Self::Sender(outlet) => outlet.take().map(Agent::Outlet),
            Self::Receiver(inlet) => inlet.take().map(Agent::Inlet),
            Self::Client(_) | Self::Server(_) | Self::Acceptor(_) => None,
        }
    }
}

impl Hub {
    /// Until the other face of an end is found, its agents ask this end for the reason of a deadline, and a
    /// sender or receiver is woken when it is used. `Ready`: it has been used.
    pub(super) fn waits(&self, cx: &Locked<'_>, number: u64, options: Kept, half: &Half) -> Poll<()> {
        let unmet = Unmet::new(cx.driver, number);
        let waker = Waker::from(unmet.clone());
        let cx_of_agent = Context::from_waker(&waker);
        match half {
            Half::Sender(outlet) => {
                outlet.unmatched(Some(unmet));
                outlet.poll_stirs(&cx_of_agent)
            }
            Half::Receiver(inlet) => {
                inlet.unmatched(Some(unmet));
                inlet.poll_stirs(&cx_of_agent)
            }
            Half::Client(_) | Half::Server(_) | Half::Acceptor(_) if options.reserved => Poll::Pending,
            Half::Client(agents) | Half::Server(agents) => {
                let missing = unmet as Arc<dyn Missing>;
                agents.iter().for_each(|agent| set_unmatched(agent, Some(&missing)));
                Poll::Pending
            }
            Half::Acceptor(acceptance) => {
                acceptance.unmatched(Some(unmet));
                Poll::Pending
            }
        }
    }

    /// A waiting end was woken: a sender or a receiver gets its bridge, and a client may be gone.
    pub(crate) fn stirs(&mut self, cx: &mut Locked<'_>, number: u64) {
        self.rouse(cx, number);
        self.look_at_client(cx, number);
    }

    /// Gives a sender or a receiver its bridge, if it has none yet.
    pub(super) fn rouse(&mut self, cx: &mut Locked<'_>, number: u64) {
        let Some(end) = self.ends.get_mut(number) else { return };
        let (channel, options) = (end.channel, end.options);
        let bridge: Box<dyn Bridge> = match end.role.take_agent() {
            Some(Agent::Outlet(outlet)) => {
                self.channels.insert_alone(channel, number);
                Box::new(SendingBridge::new(outlet, None, options.encoding, options.fail_fast))
            }
            Some(Agent::Inlet(inlet)) => {
                let credits = cx.state.machine.granted_at(channel).map_or(0, |terms| terms.credits);
                let budget = Budget::of(&inlet, cx.state.buffered_max);
                Box::new(ReceivingBridge::new(inlet, credits, budget, options.encoding, None))
            }
            Some(Agent::Several(_)) | None => return,
        };
        cx.driver.stretch(cx.state, channel, None, bridge);
    }

    /// As [`rouse`](Self::rouse), by the channel of a home.
    pub(crate) fn rouse_home(&mut self, cx: &mut Locked<'_>, channel: ChannelId) {
        if let Some(number) = self.channels.end_of(channel) {
            self.rouse(cx, number);
        }
    }

    /// This node has left, or its driver is gone: the ends without a bridge end with it.
    pub(super) fn end_all(&mut self) {
        for mut end in self.ends.take_all() {
            end.role.take_agent().into_iter().for_each(down);
            match end.role {
                Role::Client(Some(agents)) => agents.into_iter().flatten().for_each(down),
                Role::Server(Some(outlets)) => {
                    outlets.into_iter().for_each(|(_, outlet)| down(Agent::Outlet(outlet)));
                }
                Role::Client(None) | Role::Server(None) | Role::Sender(_) | Role::Receiver(_) | Role::Acceptor(_) => {}
            }
        }
        for client in std::mem::take(&mut self.introductions).into_values() {
            client.outlets.into_iter().for_each(|(_, outlet)| down(Agent::Outlet(outlet)));
        }
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.end_all();
    }
}
