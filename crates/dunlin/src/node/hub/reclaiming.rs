//! Waiting clients: those whose server is lost before it has answered their introduction, and those dropped
//! before a server comes.

use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Waker};

use dunlin_core::carrier::Agent;
use dunlin_proto::id::{ChannelId, NodeId};
use dunlin_proto::wire::{End, Which};

use super::Hub;
use super::end::{DeclaredEnd, Introduction, Outlets, Reclaimed, Role};
use super::idle::Unmet;
use crate::lock::lock;
use crate::node::state::{Driver, Locked};

/// Collects the agents of one client: each of its homes releases its own when its bridge is next processed.
struct Reclaiming {
    driver: Weak<Driver>,
    number: u64,
    agents: Mutex<Vec<Option<Agent>>>,
}

/// The last bridge has released its agent, or had ended before.
impl Drop for Reclaiming {
    fn drop(&mut self) {
        let reclaimed = Reclaimed { number: self.number, agents: std::mem::take(&mut lock(&self.agents)) };
        if let Some(driver) = self.driver.upgrade() {
            driver.reclaimed(reclaimed);
        }
    }
}

/// The senders of a lost server's client. Dropped where nothing is locked.
struct Lost(Outlets);

impl Drop for Lost {
    fn drop(&mut self) {
        self.0.drain(..).for_each(|(_, outlet)| outlet.down());
    }
}

impl Hub {
    /// Withdraws a client that waits for a server once all its ends have been dropped.
    pub(crate) fn look_at_client(&mut self, cx: &mut Locked<'_>, number: u64) {
        let Some(Role::Client(Some(agents))) = self.ends.get(number).map(|end| &end.role) else { return };
        let waker = Waker::from(Unmet::new(cx.driver, number));
        let cx_of_agents = Context::from_waker(&waker);
        // The first end that still exists is checked again when it is woken.
        let is_gone = |agent: &Agent| match agent {
            Agent::Outlet(outlet) => outlet.poll_gone(&cx_of_agents).is_ready(),
            Agent::Inlet(inlet) => inlet.poll_gone(&cx_of_agents).is_ready(),
            Agent::Several(_) => false,
        };
        if agents.is_empty() || !agents.iter().flatten().all(is_gone) {
            return;
        }
        if let Some(end) = self.ends.get_mut(number) {
            cx.state.garbage.push(Box::new(std::mem::replace(&mut end.role, Role::Client(None))));
        }
        self.undeclare(cx, number);
    }

    /// This node is lost, and has not answered the clients that had introduced themselves to it. Those ends
    /// are unused so far, so the clients are declared anew. If the server has attached to one, its ends end:
    /// the machine has notified their homes.
    pub(super) fn reclaim(&mut self, cx: &mut Locked<'_>, server: NodeId) {
        let waits = std::mem::take(&mut self.introductions).into_iter();
        let (lost, stays): (Vec<_>, Vec<_>) = waits.partition(|(_, client)| client.server == server);
        self.introductions = stays.into_iter().collect();
        for (first, client) in lost {
            if self.leaving || !self.ends.get(client.number).is_some_and(DeclaredEnd::is_unanswered) {
                client.outlets.iter().filter(|_| self.leaving).for_each(|(_, outlet)| outlet.own_node_leaves());
                cx.state.garbage.push(Box::new(Lost(client.outlets)));
                if self.channels.of(client.number).next().is_none() {
                    self.undeclare(cx, client.number);
                }
            } else {
                self.reclaim_client(cx, first, client);
            }
        }
    }

    /// Whether the server that this home waits for has not answered its client. If it is lost, the client is
    /// [reclaimed](Self::reclaim).
    pub(crate) fn is_unanswered(&self, home: ChannelId) -> bool {
        let end = self.channels.end_of(home).and_then(|number| self.ends.get(number));
        !self.leaving && end.is_some_and(DeclaredEnd::is_unanswered)
    }

    fn reclaim_client(&mut self, cx: &mut Locked<'_>, first: ChannelId, client: Introduction) {
        let number = client.number;
        let at = self.ends.get(number).and_then(DeclaredEnd::at).map(str::to_owned);
        self.unlist(number, at.as_deref());
        let place = |channel: ChannelId| channel.0.wrapping_sub(first.0) as usize;
        let mut agents: Vec<Option<Agent>> = (0..client.places).map(|_| None).collect();
        for (channel, outlet) in client.outlets {
            agents[place(channel)] = Some(Agent::Outlet(outlet));
        }
        let agents = Mutex::new(agents);
        let reclaiming = Arc::new(Reclaiming { driver: Arc::downgrade(cx.driver), number, agents });
        let homes: Vec<ChannelId> = self.channels.of(number).collect();
        for channel in homes {
            self.channels.remove(channel);
            let (place, reclaiming) = (place(channel), reclaiming.clone());
            cx.state.take_bridge((channel, Which::Receiver), move |_, bridge| {
                if let Some((inlet, _)) = bridge.into_home() {
                    lock(&reclaiming.agents)[place] = Some(Agent::Inlet(inlet));
                }
            });
            cx.state.machine.end_home(cx.now, channel, End::Gone);
        }
    }

    /// All agents of a client are collected: it waits for the next server.
    pub(crate) fn declare_anew(&mut self, cx: &mut Locked<'_>, reclaimed: &mut Reclaimed) {
        let agents = std::mem::take(&mut reclaimed.agents);
        // A new number: later events of the former declaration do not concern this one.
        let ended = self.ends.remove(reclaimed.number).filter(|_| agents.iter().any(Option::is_some));
        let Some(mut end) = ended else { return cx.state.garbage.push(Box::new(agents)) };
        end.role = Role::Client(Some(agents));
        let number = self.next;
        self.next += 1;
        self.list(cx, number, end);
        self.is_unmatched_again(cx, number);
    }
}
