//! The watchers of the node's events.

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

/// How long the event that a connection is over may wait for its ends, which user code may delay.
const ENDED: Duration = Duration::from_secs(1);

/// How many addresses are remembered that refused this node.
const UNWELCOME_MAX: usize = 1024;

/// How many nodes of other applications are remembered.
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

    /// The events that a new watcher has missed and that still hold.
    pub(crate) fn present(&self) -> Vec<NodeEvent> {
        let joined = |(peer, name): (&Peer, &String)| NodeEvent::Joined { peer: *peer, name: name.clone() };
        let more = self.ends.iter().filter_map(|(_, end)| end.more.as_ref());
        let conflicts = more.flat_map(|more| more.conflicts.iter().cloned().map(NodeEvent::Conflict));
        let closing = self.closing.map(|within| NodeEvent::Closing { within });
        self.there.iter().map(joined).chain(conflicts).chain(closing).collect()
    }

    /// Sends an event to the watchers, behind the pending ones.
    pub(crate) fn tell(&mut self, event: NodeEvent) {
        let level = event.level();
        self.news.push_back(News { event, ended: None, source: None, level, is_said: false });
    }

    /// As [`tell`](Self::tell), for an event that another node has caused, over a socket from there: it is
    /// reported to users as refusals are.
    pub(crate) fn tell_of(&mut self, event: NodeEvent, source: Source) {
        let level = event.level();
        self.news.push_back(News { event, ended: None, source: Some(source), level, is_said: false });
    }

    /// Reports that a socket, or a request of a node, is refused.
    pub(crate) fn refuse(&mut self, event: NodeEvent, source: Source) {
        self.refusals.count(&event);
        self.tell_of(event, source);
    }

    /// That node, if there is a connection with it.
    pub(crate) fn peer(&self, node: NodeId) -> Option<Peer> {
        self.lives.get(&node).map(|life| Peer(*life))
    }

    /// This node refuses to relay for that one.
    pub(crate) fn refuse_relay(&mut self, node: NodeId, source: Source) {
        if let Some(life) = self.lives.get(&node) {
            self.refuse(NodeEvent::Limit(Limit::Relays { peer: Peer(*life) }), source);
        }
    }

    /// Reports that the request of that node was declined.
    pub(crate) fn decline(&mut self, node: NodeId, source: Source, what: Declined) {
        let Some(life) = self.lives.get(&node) else { return };
        let peer = Peer(*life);
        let limit = match what {
            Declined::Half(channel) => Limit::Halves { peer, name: self.name_of(channel) },
            Declined::Post(_) => Limit::Post { peer },
            Declined::Signal(_) => Limit::Signal { peer },
            Declined::Link(_) => Limit::Links { peer },
            Declined::DialBack => Limit::DialBacks { peer },
            Declined::Admittance(to) => {
                let Some(to) = self.lives.get(&to) else { return };
                Limit::Admittance { peer, to: Peer(*to) }
            }
            _ => return,
        };
        self.refuse(NodeEvent::Limit(limit), source);
    }

    /// The connection with this node is about to be refused for a violation, over a socket from there.
    pub(crate) fn came_from(&mut self, node: NodeId, source: Source) {
        self.violator = Some((node, source));
    }

    pub(crate) fn refusals(&self) -> Refusals {
        self.refusals
    }

    /// The listener there refuses this node. This node will dial again, so the event is sent once.
    pub(crate) fn unwelcome(&mut self, at: String, why: String) {
        if self.unwelcome.len() >= UNWELCOME_MAX {
            self.unwelcome.clear();
        }
        if self.unwelcome.insert(at.clone(), why.clone()).as_ref() != Some(&why) {
            self.tell(NodeEvent::Unwelcome { at, why });
        }
    }

    /// A node of another application has dialled this one, and will again while it looks for its own, so the
    /// event is sent once.
    pub(crate) fn stranger(&mut self, node: NodeId, source: Source, from: String, why: String) {
        if self.strangers.len() >= STRANGERS_MAX {
            self.strangers.clear();
        }
        self.refusals.strangers += 1;
        if self.strangers.insert(node) {
            // This is usual where applications share a host: their nodes ask each other's name services for
            // their own.
            let (event, level) = (NodeEvent::Stranger { from, why }, Level::DEBUG);
            self.news.push_back(News { event, ended: None, source: Some(source), level, is_said: false });
        }
    }

    /// A node is present, as far as roles go: see [`roles`](crate::node::roles).
    pub(crate) fn joined(&mut self, peer: Peer, name: &str) {
        self.there.insert(peer, name.to_owned());
        self.tell(NodeEvent::Joined { peer, name: name.to_owned() });
    }

    /// A node is no longer present.
    pub(crate) fn left(&mut self, peer: Peer, in_order: bool) {
        if let Some(name) = self.there.remove(&peer) {
            self.tell(NodeEvent::Left { peer, name, in_order });
        }
    }

    /// The main node is lost, and with it its information on other nodes.
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

    /// This node has left: its connections end, and their watchers get that event before the channel ends.
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
            // Events of the whole application are always reported, and happen once.
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
                let machine = &cx.state.machine;
                self.service.met(life, machine.addresses_of(node), machine.source_of(node));
                // A former life of the node may have declared more.
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
                // The relay is already lost, which will be reported.
                None => return,
            },
            State::Down(why) => {
                self.service.lost(cx.now, node, &why);
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
                // One of the two left first; to its watchers, it is this node that leaves.
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
            // With roles, membership reports which nodes are present. When this node leaves, all its
            // connections end.
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

    /// That node may have served names at addresses where ends were found.
    fn server_lost_elsewhere(&mut self, cx: &mut Locked<'_>, node: NodeId, why: &Down) {
        let mut served = Vec::new();
        for (address, directory) in self.others.iter_mut() {
            if directory.server() == Some(node) {
                directory.server_lost();
                served.push((address.clone(), !directory.is_empty()));
            }
        }
        for (address, is_used) in served {
            if matches!(why, Down::Refused(_) | Down::Unauthorized) {
                // The node would refuse again.
                self.unreachable(cx, &address, &why.to_string());
            } else if is_used && !self.leaving {
                // Not at once: the node there may end each connection as soon as it is up.
                self.ask_again.insert(address, cx.now + ASK_AGAIN);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::far;

    const ME: Life = Life { node: NodeId(1), incarnation: Incarnation(1) };

    #[test]
    fn nodes_of_other_applications_are_remembered_within_a_limit() {
        let mut hub = far::hub(ME);
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
        let mut hub = far::hub(ME);
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
