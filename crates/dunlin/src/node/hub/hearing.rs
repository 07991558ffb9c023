//! The hub's events, and the messages that it sends in answer.

use dunlin_proto::id::NodeId;
use dunlin_proto::names::DirectoryEvent;
use dunlin_proto::wire::Names;

use super::{Heard, Hub, declared};
use crate::node::events::{Limit, NodeEvent};
use crate::node::peer::Peer;
use crate::node::state::Locked;

impl Hub {
    pub(crate) fn hear(&mut self, cx: &mut Locked<'_>, heard: Heard) {
        match heard {
            Heard::Connection(node, state) => self.connection(cx, node, state),
            Heard::Names(from, said) => self.names(cx, from, said),
            Heard::Introduced(address, who) => self.introduced(cx, &address, who),
        }
    }

    /// Sends and handles messages of names and directories until none is left.
    pub(crate) fn settle(&mut self, cx: &mut Locked<'_>) {
        self.forget_declared(cx);
        let now = cx.now;
        let asked: Vec<String> =
            self.ask_again.iter().filter(|(_, at)| **at <= now).map(|(address, _)| address.clone()).collect();
        self.ask_again.retain(|_, at| *at > now);
        asked.into_iter().for_each(|address| cx.state.machine.introduce(address));
        loop {
            let mut said: Vec<(NodeId, Names)> = Vec::new();
            while let Some((to, answer)) = self.service.poll() {
                if let Names::Full { room, max, .. } = answer
                    && to != self.me
                {
                    let full = Limit::Registrations { peer: Peer(to), what: declared::room(room), max };
                    self.refuse(NodeEvent::Limit(full), cx.state.machine.source_of(to.node));
                }
                said.push((to.node, answer));
            }
            for directory in [&mut self.directory, &mut self.own].into_iter().chain(self.others.values_mut()) {
                while let Some(message) = directory.poll_said() {
                    said.push(message);
                }
            }
            let mut events = Vec::new();
            for directory in std::iter::once(&mut self.directory).chain(self.others.values_mut()) {
                let by = directory.server();
                while let Some(event) = directory.poll() {
                    events.push((by, event));
                }
            }
            while let Some(event) = self.own.poll() {
                // The application's name service decides whether a home is admitted; here it is only found.
                if matches!(event, DirectoryEvent::Found { .. } | DirectoryEvent::Unfit { .. }) {
                    events.push((None, event));
                }
            }
            if said.is_empty() && events.is_empty() && self.local.is_empty() {
                break;
            }
            for (to, message) in said {
                if to == self.me.node {
                    self.local.push_back(message);
                } else if !cx.state.machine.is_idle(to) {
                    // (An idle node is lost, which is not noticed here yet: it must not be dialled for this.)
                    // Whether an end can be declared is checked where it is declared.
                    if matches!(message, Names::Declare { .. }) {
                        self.has_declared_to(to);
                    }
                    let _ = cx.state.machine.say_names(cx.now, to, message);
                }
            }
            while let Some(message) = self.local.pop_front() {
                self.names(cx, self.me, message);
            }
            for (by, event) in events {
                self.event(cx, by, event);
            }
        }
        self.tell_watchers(now, &mut cx.state.lines);
        let ended = self.news.front().and_then(|news| news.ended.as_ref()).map(|(_, until)| *until);
        let due = self.throttle.due();
        if let Some(at) =
            self.service.next_tick().into_iter().chain(self.ask_again.values().copied()).chain(ended).chain(due).min()
        {
            cx.driver.alarm(cx.state, at);
        }
    }
}
