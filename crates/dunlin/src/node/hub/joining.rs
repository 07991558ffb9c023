//! Joins ends that have found each other.

use std::sync::{Arc, Weak};

use dunlin_core::carrier::{Agent, AnyInlet, AnyOutlet};
use dunlin_proto::Source;
use dunlin_proto::id::{ChannelId, Life, NodeId};
use dunlin_proto::wire::{Declaration, End, Face, Names, Which};

use super::Hub;
use super::end::{Introduction, Role};
use super::guests::numbered;
use crate::node::events::NodeEvent;
use crate::node::id;
use crate::node::state::{Bridge, Driver, Locked};

/// Where to dial a node at which a name was found, and the node that reported it: it can help, if the two
/// cannot dial each other.
pub(super) struct Addresses {
    pub(super) by: NodeId,
    pub(super) addresses: Vec<String>,
}

impl Hub {
    pub(super) fn found(
        &mut self,
        cx: &mut Locked<'_>,
        number: u64,
        partner: Life,
        addresses: Addresses,
        channel: ChannelId,
        face: &Declaration,
    ) {
        let Some(end) = self.ends.get_mut(number) else { return };
        let here = partner.node == self.me.node;
        let (options, declaration, own) = (end.options, end.declaration.clone(), end.channel);
        match &mut end.role {
            Role::Sender(_) => {
                cx.state.take_bridge((own, Which::Sender), move |driver, bridge| {
                    if here {
                        let mut outlet = bridge.into_outlet();
                        driver.with_hub_now(|hub, cx| hub.sender_is_here(cx, number, channel, &mut outlet));
                    } else {
                        let (home, declaration) = (partner.node, Declaration::clone(&declaration));
                        let mut bridge = Some(bridge);
                        driver.with_hub_now(|hub, cx| {
                            hub.sender_is_away(cx, number, channel, (home, addresses), &mut bridge, declaration);
                        });
                    }
                });
            }
            Role::Client(agents) => {
                let Some(agents) = agents.take() else { return };
                if here {
                    return self.join_bundle_here(cx, number, channel, agents);
                }
                end.more().unanswered = true;
                let guest = if face.face == Face::Acceptor { id::channel() } else { channel };
                let server = partner.node;
                // The server is notified of the guest at once.
                cx.state.machine.introduced(server, addresses.by, &addresses.addresses);
                let places = agents.len();
                let agents = numbered(guest, agents).filter_map(|(channel, agent)| Some((channel, agent?)));
                let outlets = self.open_homes(cx, Some(number), options, &declaration, agents, Some(server));
                let client = Introduction { server, number, places, outlets, options, declaration };
                self.introductions.insert(guest, client);
                let said = Names::Guest { acceptor: channel, guest };
                let _ = cx.state.machine.say_names(cx.now, server, said);
            }
            // A home waits for any sender.
            Role::Receiver(_) | Role::Server(_) | Role::Acceptor(_) => {}
        }
    }

    /// The receiver of a waiting sender is on this node as well.
    fn sender_is_here(&mut self, cx: &mut Locked<'_>, number: u64, channel: ChannelId, outlet: &mut Option<AnyOutlet>) {
        let Some(end) = self.ends.get(number) else { return };
        self.channels.remove(end.channel);
        let joined = Joined::new(cx, self.belonging(channel).into_iter().chain([number]).collect());
        if let Some(outlet) = outlet.take() {
            self.join_here(cx, channel, outlet, &joined);
        }
    }

    /// The receiver of a waiting sender is on that node.
    fn sender_is_away(
        &mut self,
        cx: &mut Locked<'_>,
        number: u64,
        channel: ChannelId,
        (home, addresses): (NodeId, Addresses),
        bridge: &mut Option<Box<dyn Bridge>>,
        declaration: Declaration,
    ) {
        let Some(end) = self.ends.get(number) else { return };
        self.channels.remove(end.channel);
        if let Some(bridge) = bridge.take() {
            cx.state.machine.introduced(home, addresses.by, &addresses.addresses);
            self.attach(cx, Some(number), channel, home, bridge, declaration);
        }
    }

    /// The declaration that a home here belongs to.
    fn belonging(&self, channel: ChannelId) -> Option<u64> {
        self.ends.iter().find(|(_, end)| end.channel == channel).map(|(number, _)| number)
    }

    /// Both ends of a channel are on this node: they are joined in memory.
    fn join_here(&mut self, cx: &mut Locked<'_>, channel: ChannelId, outlet: AnyOutlet, joined: &Arc<Joined>) {
        self.rouse_home(cx, channel);
        if let Some(number) = self.channels.remove(channel) {
            self.directory.attached(number);
            self.own.attached(number);
        }
        let joined = joined.clone();
        cx.state.take_bridge((channel, Which::Receiver), move |_, bridge| {
            if let Some((inlet, credits)) = bridge.into_home() {
                join(outlet, inlet, credits, &joined);
            }
        });
        cx.state.machine.end_home(cx.now, channel, End::Gone);
    }

    /// Client and server of a bundle are on this node.
    fn join_bundle_here(&mut self, cx: &mut Locked<'_>, number: u64, channel: ChannelId, client: Vec<Option<Agent>>) {
        let me = self.me;
        let Some((home, server)) = self.ends.called(channel) else { return };
        match &mut server.role {
            Role::Acceptor(accept) => {
                let joined = Joined::new(cx, vec![number]);
                // An acceptor that is gone has no face: the client's ends end with their agents.
                let accepted = accept.accept(me, Source::Unknown, &mut cx.state.garbage);
                let server = accepted.map_or_else(Vec::new, |accepted| accepted.agents);
                for pair in client.into_iter().zip(server) {
                    match pair {
                        (Some(Agent::Outlet(outlet)), Agent::Inlet(inlet))
                        | (Some(Agent::Inlet(inlet)), Agent::Outlet(outlet)) => {
                            let credits = inlet.credits_anew(0);
                            join(outlet, inlet, credits, &joined);
                        }
                        _ => {}
                    }
                }
            }
            Role::Server(outlets) => {
                let joined = Joined::new(cx, vec![number, home]);
                let mut outlets = outlets.take().unwrap_or_default();
                for (channel, agent) in numbered(channel, client) {
                    match agent {
                        // The end has ended: so has the server's.
                        None => {
                            outlets.retain(|(other, _)| *other != channel);
                            cx.state.take_bridge((channel, Which::Receiver), |_, bridge| drop(bridge.into_home()));
                            cx.state.machine.end_home(cx.now, channel, End::Gone);
                            self.channels.remove(channel);
                        }
                        Some(Agent::Outlet(outlet)) => self.join_here(cx, channel, outlet, &joined),
                        Some(Agent::Inlet(inlet)) => {
                            if let Some(at) = outlets.iter().position(|(other, _)| *other == channel) {
                                let credits = inlet.credits_anew(0);
                                join(outlets.swap_remove(at).1, inlet, credits, &joined);
                            }
                        }
                        Some(Agent::Several(_)) => debug_assert!(false, "`agents_of` refuses it"),
                    }
                }
                // The bundle may have no channel with its home at the server.
                self.directory.attached(home);
                self.own.attached(home);
            }
            Role::Sender(_) | Role::Receiver(_) | Role::Client(_) => {}
        }
    }
}

/// Ends of this node that are joined with each other. They end with the last of their channels, which frees
/// their names.
struct Joined {
    driver: Weak<Driver>,
    numbers: Vec<u64>,
}

impl Joined {
    fn new(cx: &Locked<'_>, numbers: Vec<u64>) -> Arc<Self> {
        Arc::new(Self { driver: Arc::downgrade(cx.driver), numbers })
    }

    /// Reports that their message types differ.
    fn mismatch(&self, difference: String) {
        let Some(driver) = self.driver.upgrade() else { return };
        driver.with_hub_now(|hub, _| {
            let name = self.numbers.iter().find_map(|number| hub.ends.get(*number)).map(|end| end.name.to_string());
            hub.tell(NodeEvent::Mismatch { name, difference });
        });
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        if let Some(driver) = self.driver.upgrade() {
            self.numbers.iter().for_each(|number| driver.give_up(*number));
        }
    }
}

/// Both halves are in this memory after all.
fn join(outlet: AnyOutlet, inlet: AnyInlet, credits: u32, joined: &Arc<Joined>) {
    match outlet.join(inlet, credits) {
        Ok(joining) => {
            let joined = joined.clone();
            crate::world::spawn_own(async move {
                joining.await;
                drop(joined);
            });
        }
        Err((outlet, inlet)) => {
            let text = format!("the sender has messages of {:?}, the receiver of {:?}", outlet.shape(), inlet.shape());
            outlet.poison(text.as_str().into());
            inlet.poison(text.as_str().into());
            let joined = joined.clone();
            // Deferred: the node may be locked here.
            crate::world::spawn_own(async move { joined.mismatch(text) });
        }
    }
}
