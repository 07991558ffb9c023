//! Who wants to hear of what happens to the node.

use std::time::Duration;

use dunlin_proto::id::{Incarnation, Life, NodeId};
use dunlin_proto::time::Time;
use dunlin_proto::{Declined, Down, Source, State};
use tokio::sync::oneshot;
use tracing::Level;

use super::served::ASK_AGAIN;
use super::{Hub, News};
use crate::node::events::{Limit, NodeEvent, Refusals, Watcher};
use crate::node::log::{Line, Throttle};
use crate::node::peer::{ConnectionState, Peer, Route};
use crate::node::state::Locked;

/// So long the news that a connection is over may wait for its ends, which code of users may hold up.
const ENDED: Duration = Duration::from_secs(1);

/// So many addresses are known at which this node was turned away.
const UNWELCOME_MAX: usize = 1024;

/// So many nodes of other applications are known.
const STRANGERS_MAX: usize = 1024;

impl Hub {
    pub(crate) fn peers(&self, cx: &Locked<'_>) -> Vec<(Peer, Route)> {
        let machine = &cx.state.machine;
        let route = |node| match machine.relayed_by(node).map(|relay| self.lives.get(&relay)) {
            Some(relay) => relay.map_or(Route::Lost, |life| Route::Relayed(Peer(*life))),
            None if machine.carried_by(node).is_some() => Route::Direct,
            None => Route::Lost,
        };
        self.lives.values().map(|life| (Peer(*life), route(life.node))).collect()
    }

    pub(crate) fn watch(&mut self, watcher: Watcher) {
        self.watchers.push(watcher);
    }

    /// What whoever begins to watch has missed, and is still so.
    pub(crate) fn present(&self) -> Vec<NodeEvent> {
        let joined = |(peer, name): (&Peer, &String)| NodeEvent::Joined { peer: *peer, name: name.clone() };
        let more = self.ends.iter().filter_map(|(_, end)| end.more.as_ref());
        let conflicts = more.flat_map(|more| more.conflicts.iter().cloned().map(NodeEvent::Conflict));
        let closing = self.closing.map(|within| NodeEvent::Closing { within });
        self.there.iter().map(joined).chain(conflicts).chain(closing).collect()
    }

    /// Those who watch are told, after what they are still to be told.
    pub(crate) fn tell(&mut self, event: NodeEvent) {
        let level = event.level();
        self.news.push_back(News { event, ended: None, source: None, level, is_said: false });
    }

    /// The same, of what another node has brought about, over a socket from there: people are told of it as
    /// of refusals.
    pub(crate) fn tell_of(&mut self, event: NodeEvent, source: Source) {
        let level = event.level();
        self.news.push_back(News { event, ended: None, source: Some(source), level, is_said: false });
    }

    /// A socket, or what a node wants, is refused.
    pub(crate) fn refuse(&mut self, event: NodeEvent, source: Source) {
        self.refusals.count(&event);
        self.tell_of(event, source);
    }

    /// This node will not relay for that one.
    pub(crate) fn refuse_relay(&mut self, node: NodeId, source: Source) {
        if let Some(life) = self.lives.get(&node) {
            self.refuse(NodeEvent::Limit(Limit::Relays { peer: Peer(*life) }), source);
        }
    }

    /// That node was not given what it asked for.
    pub(crate) fn decline(&mut self, node: NodeId, source: Source, what: Declined) {
        let Some(life) = self.lives.get(&node) else { return };
        let peer = Peer(*life);
        let limit = match what {
            Declined::Half(channel) => Limit::Halves { peer, name: self.name_of(channel) },
            Declined::DialBack => Limit::DialBacks { peer },
            Declined::Admittance(to) => {
                let Some(to) = self.lives.get(&to) else { return };
                Limit::Admittance { peer, to: Peer(*to) }
            }
            _ => return,
        };
        self.refuse(NodeEvent::Limit(limit), source);
    }

    /// The connection with this node will be refused for what it said, over a socket from there.
    pub(crate) fn came_from(&mut self, node: NodeId, source: Source) {
        self.violator = Some((node, source));
    }

    pub(crate) fn refusals(&self) -> Refusals {
        self.refusals
    }

    /// Whoever listens there will not have this node. It will dial again: that is told once.
    pub(crate) fn unwelcome(&mut self, at: String, why: String) {
        if self.unwelcome.len() >= UNWELCOME_MAX {
            self.unwelcome.clear();
        }
        if self.unwelcome.insert(at.clone(), why.clone()).as_ref() != Some(&why) {
            self.tell(NodeEvent::Unwelcome { at, why });
        }
    }

    /// A node of another application has dialled this one, and will again while it looks for its own: that is
    /// told once.
    pub(crate) fn stranger(&mut self, node: NodeId, source: Source, from: String, why: String) {
        if self.strangers.len() >= STRANGERS_MAX {
            self.strangers.clear();
        }
        self.refusals.strangers += 1;
        if self.strangers.insert(node) {
            // Where applications share a host, their nodes ask each other's name services for their own: that
            // is nothing unusual.
            let (event, level) = (NodeEvent::Stranger { from, why }, Level::DEBUG);
            self.news.push_back(News { event, ended: None, source: Some(source), level, is_said: false });
        }
    }

    /// A node is there, as far as roles go: see [`roles`](crate::node::roles).
    pub(crate) fn joined(&mut self, peer: Peer, name: &str) {
        self.there.insert(peer, name.to_owned());
        self.tell(NodeEvent::Joined { peer, name: name.to_owned() });
    }

    /// A node that was there is so no more.
    pub(crate) fn left(&mut self, peer: Peer, in_order: bool) {
        if let Some(name) = self.there.remove(&peer) {
            self.tell(NodeEvent::Left { peer, name, in_order });
        }
    }

    /// The main node is gone, and with it what it told of others.
    pub(crate) fn main_lost(&mut self, peer: Peer) {
        if let Some(name) = self.there.remove(&peer) {
            self.there.clear();
            self.closing = None;
            self.tell(NodeEvent::MainLost { peer, name });
        }
    }

    /// The application closes.
    pub(crate) fn closing(&mut self, within: Duration) {
        if self.closing.replace(within).is_none() {
            self.tell(NodeEvent::Closing { within });
        }
    }

    /// This node has left: its connections are over, and who watches them hears it before the channel ends.
    pub(crate) fn farewell(mut self: Box<Self>, lines: &mut Vec<Line>) {
        self.end_all();
        for life in std::mem::take(&mut self.lives).into_values() {
            self.tell(NodeEvent::Connection(Peer(life), ConnectionState::Down(Down::Leaving)));
        }
        self.tell_watchers(Time(u64::MAX), lines);
    }

    pub(super) fn tell_watchers(&mut self, now: Time, lines: &mut Vec<Line>) {
        lines.extend(self.throttle.over(now));
        while let Some(next) = self.news.pop_front() {
            let mut next = next;
            if let Some((ended, until)) = &mut next.ended
                && now < *until
                && ended.try_recv() == Err(oneshot::error::TryRecvError::Empty)
            {
                return self.news.push_front(next);
            }
            let is_of_interest = next.event.is_of_interest(next.level) && !next.is_said;
            // What concerns the whole application is told in any case, and happens once.
            let is_written = |throttle: &mut Throttle| match (next.source, &next.event) {
                (Some(source), _) => throttle.admits(now, source),
                (None, NodeEvent::Closing { .. } | NodeEvent::MainLost { .. }) => true,
                (None, _) => throttle.admits_event(now),
            };
            if is_of_interest && is_written(&mut self.throttle) {
                lines.push(Line::Event(next.level, next.event.clone()));
            }
            self.watchers.retain_mut(|watcher| watcher(&next.event));
        }
    }

    pub(super) fn connection(&mut self, cx: &mut Locked<'_>, node: NodeId, state: State) {
        let over = matches!(state, State::Down(_));
        let state = match state {
            State::Up(life) => {
                self.lives.insert(node, life);
                self.registry.met(life, cx.state.machine.addresses_of(node));
                self.registry.comes_from(life, cx.state.machine.source_of(node));
                // A former life of it may have declared more.
                self.count_declared(cx, node);
                if self.ceded {
                    // It may have found this node when that still served the names.
                    self.tell_elsewhere(cx, node);
                }
                ConnectionState::Up
            }
            State::Lost(_) => ConnectionState::Lost,
            State::Resumed => ConnectionState::Resumed,
            State::Relayed(relay) => match self.lives.get(&relay) {
                Some(life) => ConnectionState::Relayed(Peer(*life)),
                // It is lost already, which is still to be heard.
                None => return,
            },
            State::Down(why) => {
                self.registry.lost(cx.now, node, &why);
                self.count_declared(cx, node);
                self.reclaim(cx, node);
                if self.directory.server() == Some(node) {
                    self.directory.server_lost();
                    if !self.leaving {
                        self.names_lost.notify_one();
                    }
                }
                self.server_lost_elsewhere(cx, node, &why);
                ConnectionState::Down(why)
            }
        };
        let never_met = Life { node, incarnation: Incarnation(0) };
        let tells_why = matches!(state, ConnectionState::Down(Down::Unrelayed { .. }));
        if let Some(life) = self.lives.get(&node).or(tells_why.then_some(&never_met)) {
            let peer = Peer(*life);
            let state = match state {
                // One of the two was first; to who hears it, it is this node that ends.
                ConnectionState::Down(Down::Left) if self.leaving => ConnectionState::Down(Down::Leaving),
                state => state,
            };
            let ended = over.then(|| (cx.state.said_of(node), cx.now + ENDED));
            let (is_up, why) = match &state {
                ConnectionState::Down(why) => (false, Some(why.clone())),
                state => (*state == ConnectionState::Up, None),
            };
            let event = NodeEvent::Connection(peer, state);
            let level = event.level();
            self.news.push_back(News { event, ended, source: None, level, is_said: false });
            let is_violation = matches!(why, Some(Down::Violation(_)));
            if let Some(Down::Violation(why)) = &why {
                // (No socket: it was relayed.)
                let source = self.violator.take().filter(|(who, _)| *who == node).map(|(_, source)| source);
                let refused = NodeEvent::Limit(Limit::Peer { peer, why: why.clone() });
                self.refuse(refused, source.unwrap_or_default());
            }
            // With roles, membership tells who is there. And of a node that leaves all connections end.
            match why {
                _ if self.has_role || self.leaving => {}
                Some(why) => {
                    self.left(peer, why == Down::Left);
                    if is_violation
                        && let Some(News { event: NodeEvent::Left { .. }, is_said, .. }) = self.news.back_mut()
                    {
                        *is_said = true;
                    }
                }
                None if is_up => self.joined(peer, &peer.to_string()),
                None => {}
            }
        }
        if over {
            self.lives.remove(&node);
        }
    }

    /// That node may have served names at addresses that ends were found by.
    fn server_lost_elsewhere(&mut self, cx: &mut Locked<'_>, node: NodeId, why: &Down) {
        let mut served = Vec::new();
        for (address, directory) in &mut self.others {
            if directory.server() == Some(node) {
                directory.server_lost();
                served.push((address.clone(), !directory.is_empty()));
            }
        }
        for (address, is_used) in served {
            if matches!(why, Down::Refused(_) | Down::Unauthorized) {
                // It would be said again.
                self.unreachable(cx, &address, &why.to_string());
            } else if is_used && !self.leaving {
                // Not at once: whoever is there may end each connection as soon as it is up.
                self.ask_again.insert(address, cx.now + ASK_AGAIN);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: Life = Life { node: NodeId(1), incarnation: Incarnation(1) };

    #[test]
    fn nodes_of_other_applications_are_remembered_within_a_limit() {
        let mut hub = Hub::new(ME, false);
        let dials = |hub: &mut Hub, nth: usize| {
            hub.stranger(
                NodeId(nth as u128),
                Source::Unknown,
                format!("socket {nth}"),
                "another application".to_owned(),
            );
            hub.strangers.len()
        };
        for nth in 0..STRANGERS_MAX {
            assert_eq!(dials(&mut hub, nth), nth + 1);
        }
        assert_eq!(dials(&mut hub, 0), 1, "a full table begins anew");
        assert!((0..10 * STRANGERS_MAX).all(|nth| dials(&mut hub, nth) <= STRANGERS_MAX));
        assert_eq!(hub.refusals().strangers as usize, 11 * STRANGERS_MAX + 1, "each is counted");
    }

    #[test]
    fn addresses_where_this_node_is_unwelcome_are_remembered_within_a_limit() {
        let mut hub = Hub::new(ME, false);
        let dials = |hub: &mut Hub, nth: usize| {
            hub.unwelcome(format!("host:{nth}"), "another application".to_owned());
            hub.unwelcome.len()
        };
        for nth in 0..UNWELCOME_MAX {
            assert_eq!(dials(&mut hub, nth), nth + 1);
        }
        assert_eq!(dials(&mut hub, UNWELCOME_MAX), 1, "a full table begins anew");
        assert!((0..10 * UNWELCOME_MAX).all(|nth| dials(&mut hub, nth) <= UNWELCOME_MAX));
    }
}
