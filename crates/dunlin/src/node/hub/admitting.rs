//! Clients that introduce themselves to servers and acceptors here, and the answers to clients here.

use dunlin_proto::id::{ChannelId, Life};
use dunlin_proto::wire::{End, Names, Which};

use super::Hub;
use super::end::{Outlets, Role};
use super::guests::{Accepted, BUNDLE_ENDS_MAX, numbered};
use crate::node::events::{Limit, NodeEvent};
use crate::node::peer::Peer;
use crate::node::state::Locked;

/// Answers a client in place of an acceptor that no longer exists, or has no room.
const NOT_THERE: ChannelId = ChannelId(0);

/// The senders of a refused client. Dropped where nothing is locked.
struct TurnedAway {
    outlets: Outlets,
    why: String,
}

impl Drop for TurnedAway {
    fn drop(&mut self) {
        self.outlets.drain(..).for_each(|(_, outlet)| outlet.poison(self.why.as_str().into()));
    }
}

impl Hub {
    /// The acceptor or server of a client no longer exists, or has no room. The client's ends are poisoned,
    /// since without a reason the client would take this for an orderly end.
    fn turned_away(&mut self, cx: &mut Locked<'_>, number: u64, outlets: Outlets) {
        let name = self.ends.get(number).map(|end| end.name.to_string()).unwrap_or_default();
        let why = format!(
            "{name:?} refused this client: the accepting node has no room for another client, or no longer accepts \
             clients. The log of that node names the reason; if room was missing, declare the client again later"
        );
        let homes: Vec<ChannelId> = self.channels.of(number).collect();
        for channel in homes {
            self.channels.remove(channel);
            let why = why.clone();
            cx.state.take_bridge((channel, Which::Receiver), move |_, mut bridge| bridge.poison(&why));
            cx.state.machine.end_home(cx.now, channel, End::Gone);
        }
        cx.state.garbage.push(Box::new(TurnedAway { outlets, why }));
        self.undeclare(cx, number);
    }

    /// A client elsewhere introduces itself to a server or an acceptor here; or the server elsewhere answers
    /// a client here.
    pub(super) fn guest(&mut self, cx: &mut Locked<'_>, from: Life, acceptor: ChannelId, guest: ChannelId) {
        if self.introductions.get(&guest).is_some_and(|client| client.server == from.node) {
            let Some(client) = self.introductions.remove(&guest) else { return };
            if let Some(end) = self.ends.get_mut(client.number) {
                end.is_answered();
            }
            if acceptor == NOT_THERE {
                return self.turned_away(cx, client.number, client.outlets);
            }
            return self.attach_all(
                cx,
                Some(client.number),
                from.node,
                client.outlets,
                client.options,
                &client.declaration,
            );
        }
        if acceptor == NOT_THERE {
            // The client has gone meanwhile.
            return cx.state.machine.hears_nothing(cx.now, from.node);
        }
        let not_there = Names::Guest { acceptor: NOT_THERE, guest };
        let Some((number, end)) = self.ends.called(acceptor) else {
            cx.state.machine.hears_nothing(cx.now, from.node);
            let _ = cx.state.machine.say_names(cx.now, from.node, not_there);
            return;
        };
        let (options, declaration) = (end.options, end.declaration.clone());
        let (number, outlets) = match &mut end.role {
            Role::Acceptor(accept) => {
                // Another node chose the number: it must not replace an existing channel here.
                if cx.state.machine.knows_any(guest, BUNDLE_ENDS_MAX as u128) {
                    cx.state.machine.hears_nothing(cx.now, from.node);
                    let _ = cx.state.machine.say_names(cx.now, from.node, not_there);
                    return;
                }
                let source = cx.state.machine.source_of(from.node);
                let ends = accept.ends();
                let channels = || numbered(guest, vec![(); ends]).map(|(channel, ())| channel);
                if let Err(max) = cx.state.machine.keep_guest(from.node, channels()) {
                    let name = end.name.to_string();
                    self.refuse(NodeEvent::Limit(Limit::Memory { name, peer: Peer(from), max }), source);
                    let _ = cx.state.machine.say_names(cx.now, from.node, not_there);
                    return;
                }
                let Some(Accepted { agents, full }) = accept.accept(from, source, &mut cx.state.garbage) else {
                    self.undeclare(cx, number);
                    cx.state.machine.forget_guest(channels());
                    let _ = cx.state.machine.say_names(cx.now, from.node, not_there);
                    return;
                };
                if let Some(max) = full {
                    let name = end.name.to_string();
                    let peer = Peer(from);
                    self.refuse(NodeEvent::Limit(Limit::Guests { name, peer, max }), source);
                    cx.state.machine.forget_guest(channels());
                    let _ = cx.state.machine.say_names(cx.now, from.node, not_there);
                    return;
                }
                let agents = numbered(guest, agents);
                (None, self.open_homes(cx, None, options, &declaration, agents, Some(from.node)))
            }
            Role::Server(outlets) => {
                let Some(outlets) = outlets.take() else { return };
                for home in self.channels.of(number) {
                    cx.state.machine.await_half(home, from.node);
                }
                self.directory.attached(number);
                self.own.attached(number);
                (Some(number), outlets)
            }
            Role::Sender(_) | Role::Receiver(_) | Role::Client(_) => {
                return cx.state.machine.hears_nothing(cx.now, from.node);
            }
        };
        self.attach_all(cx, number, from.node, outlets, options, &declaration);
        let _ = cx.state.machine.say_names(cx.now, from.node, Names::Guest { acceptor, guest });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use dunlin_proto::id::{Incarnation, NodeId};
    use dunlin_proto::wire::{Declaration, Expected, Face, Terms};

    use super::*;
    use crate::node::far;
    use crate::node::hub::end::{Half, Options};
    use crate::node::hub::guests::{Acceptance, GUESTS_MAX};

    #[test]
    fn a_guest_costs_the_same_however_many_ends_there_are() {
        const ENDS: usize = 1_000;
        let driver = far::driver();
        driver.with_hub_now(|hub, cx| {
            for n in 0..ENDS {
                // No receiver exists: the acceptor ends with its first client.
                let gone = Acceptance::unwatched(Box::new(|_, _, _| None), 1);
                let options = Options { face: Face::Acceptor, ..Options::default() };
                let _ = hub.declare(cx, &format!("krill {n}"), options, Default::default(), Half::Acceptor(gone));
            }
            let channels: Vec<ChannelId> = hub.ends.iter().map(|(_, end)| end.channel).collect();
            let from = Life { node: NodeId(7), incarnation: Incarnation(1) };
            let before = hub.ends.visited();
            for n in 1..=100 {
                hub.guest(cx, from, ChannelId(n), ChannelId(1_000 + n));
            }
            assert_eq!(hub.ends.visited(), before, "guests of nothing");
            assert_eq!(hub.ends.iter().count(), ENDS);
            // The twin: guests find the existing acceptors.
            let before = hub.ends.visited();
            for (n, channel) in channels.into_iter().enumerate() {
                hub.guest(cx, from, channel, ChannelId(10_000 + n as u128 * 1_000));
            }
            assert_eq!(hub.ends.visited(), before, "guests of acceptors");
            assert_eq!(hub.ends.iter().count(), 0);
        });
    }

    /// A driver with an acceptor that admits no client, its channel, and a node that has joined it.
    fn accepting() -> (Arc<crate::node::state::Driver>, ChannelId, Life) {
        let driver = far::driver();
        let far = far::joins(&driver);
        let acceptor = driver.with_hub_now(|hub, cx| {
            let full = Box::new(|_, _, _: &mut Vec<_>| Some(Accepted { agents: Vec::new(), full: Some(GUESTS_MAX) }));
            let options = Options { face: Face::Acceptor, ..Options::default() };
            let half = Half::Acceptor(Acceptance::unwatched(full, 1));
            let _ = hub.declare(cx, "krill", options, Default::default(), half);
            hub.ends.iter().map(|(_, end)| end.channel).collect::<Vec<_>>()
        });
        (driver, acceptor[0], far.me())
    }

    fn open(cx: &mut Locked<'_>, channel: ChannelId) {
        let terms = Terms { window: 1, credits: 0, value_max: 1 };
        let schema = Default::default();
        let face = Declaration { face: Face::Receiver, shared: false, expects: Expected::Unknown, schema };
        cx.state.machine.open_home(channel, terms, face, false).unwrap();
    }

    #[test]
    fn peer_with_many_useless_guests_is_read_more_slowly() {
        const GUEST: ChannelId = ChannelId(1000);
        for what in ["no acceptor", "a client that has gone", "numbers that are taken"] {
            let (driver, acceptor, from) = accepting();
            driver.with_hub_now(|hub, cx| {
                let to = match what {
                    "no acceptor" => ChannelId(77),
                    "a client that has gone" => NOT_THERE,
                    _ => {
                        open(cx, GUEST);
                        acceptor
                    }
                };
                for _ in 0..1000 {
                    hub.guest(cx, from, to, GUEST);
                }
                assert_eq!(cx.state.machine.paused_until(cx.now, far::SOCKET), None, "{what}");
                hub.guest(cx, from, to, GUEST);
                assert!(cx.state.machine.paused_until(cx.now, far::SOCKET).is_some(), "{what}");
                // The connection stays.
                assert_eq!(cx.state.machine.carried_by(from.node), Some(far::SOCKET), "{what}");
            });
        }
    }

    #[test]
    fn guest_with_channel_numbers_in_use_is_refused() {
        let (driver, acceptor, from) = accepting();
        // The last of the bundle's numbers may wrap around to the first of all numbers.
        for first in [ChannelId(1000), ChannelId(u128::MAX - 100)] {
            let channel = |nth: u128| ChannelId(first.0.wrapping_add(nth));
            for (nth, is_admitted) in [(0, false), (100, false), (101, false), (255, false), (256, true)] {
                driver.with_hub_now(|hub, cx| {
                    open(cx, channel(nth));
                    let before = hub.refusals().guests;
                    hub.guest(cx, from, acceptor, first);
                    // The acceptor has no room for it, which is checked next.
                    assert_eq!(hub.refusals().guests - before, u64::from(is_admitted), "{first} + {nth}");
                    cx.state.machine.end_home(cx.now, channel(nth), End::Gone);
                });
            }
        }
    }
}
