//! A node's state beside its channels: names, declared ends, guests, and the watchers of connections.
//!
//! The [`Hub`] and its parts are here (`end.rs`: a declared end, `ends.rs`: all of them, `guests.rs`: what an
//! acceptor gives its clients, `channels.rs`: which channels belong to which end). Its actions are in the
//! folder: `declared.rs` declares ends and handles the outcome, `served.rs` finds or serves the names,
//! `idle.rs` has the ends that wait and have no bridge yet, `joining.rs` joins ends that have found each
//! other, `admitting.rs` admits the clients of acceptors and servers, `watchers.rs` notifies watchers of
//! connections and conflicts, `reclaiming.rs` declares clients anew whose server is lost before it has
//! answered.

mod admitting;
mod channels;
mod declared;
mod end;
mod ends;
mod guests;
mod hearing;
mod idle;
mod inquiries;
mod joining;
mod reclaiming;
mod served;
#[cfg(test)]
mod tests;
mod watchers;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use dunlin_proto::id::{ChannelId, Life, NodeId};
use dunlin_proto::names::{Directory, NameService};
use dunlin_proto::time::Time;
use dunlin_proto::wire::{Declaration, Names};
use dunlin_proto::{Source, State};
use dunlin_sorted::{SortedMap, SortedSet};
use tokio::sync::{Notify, oneshot};
use tracing::Level;

use super::events::{NodeEvent, Refusals, Watcher};
use super::log::Throttle;
use super::name::word;
use super::peer::Peer;
use channels::Channels;
use end::Introduction;
pub(crate) use end::{Half, Options, Reclaimed};
use ends::Ends;
pub use guests::Guest;
pub(crate) use guests::{Acceptance, Accepted, GUESTS_MAX, Waiting, agents_of};

/// An end of this node that has not found its other end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitingEnd {
    /// Its name.
    pub name: String,
    /// Its kind: "sender", "server", ...
    pub what: String,
    /// How long it has waited.
    pub waited: Duration,
    /// The last declaration of another node that was refused because it does not fit this end: which node,
    /// and what differs.
    pub refused: Option<String>,
}

/// An event for a [`Hub`].
#[derive(Debug)]
pub(crate) enum Heard {
    Connection(NodeId, State),
    Names(Life, Names),
    Introduced(String, Result<NodeId, String>),
}

/// An event for the watchers. The end of a connection is sent once its ends have ended, and no later
/// than `ended` allows.
struct News {
    event: NodeEvent,
    ended: Option<(oneshot::Receiver<()>, Time)>,
    /// For a refusal, and for what another node has caused: the source of its socket.
    source: Option<Source>,
    /// How much it concerns users.
    level: Level,
    /// Another message has already reported it to users.
    is_said: bool,
}

pub(crate) struct Hub {
    me: Life,
    /// The name service that this node runs: for the application's names, or for its own, which nodes that
    /// dial it ask for.
    service: Box<dyn NameService>,
    serves: bool,
    /// The address at which the application's names were found, or are served here.
    names_at: Option<String>,
    /// It has served them, and ceded that to another node.
    ceded: bool,
    /// This node is leaving, and dials no other node.
    leaving: bool,
    /// What is declared to the application's name service.
    directory: Directory,
    /// What is declared to this node, for nodes that dial it.
    own: Directory,
    /// What is declared to a node whose address a name contains.
    others: SortedMap<String, Directory>,
    /// When to ask again at addresses that did not answer, and for which ends here wait.
    ask_again: SortedMap<String, Time>,
    ends: Ends,
    /// Homes of the application's names that are not declared to this node itself, by name. They are declared
    /// as soon as a node that dials this one asks for the name.
    unasked: SortedSet<(Arc<str>, u64)>,
    /// The last declaration: ends of one type share it.
    declared: Option<Arc<Declaration>>,
    channels: Channels,
    introductions: SortedMap<ChannelId, Introduction>,
    next: u64,
    watchers: Vec<Watcher>,
    news: VecDeque<News>,
    refusals: Refusals,
    throttle: Throttle,
    /// The node whose connection is about to end for a violation, and the source of its socket.
    violator: Option<(NodeId, Source)>,
    /// This node has a role: membership reports which nodes are present.
    has_role: bool,
    /// The nodes that are present, with their names.
    there: SortedMap<Peer, String>,
    /// Set when the application closes: how long the main node waits.
    closing: Option<Duration>,
    /// Where this node was refused, and why.
    unwelcome: SortedMap<String, String>,
    /// Nodes of other applications that have dialled this one.
    strangers: SortedSet<NodeId>,
    /// Where the last search for the name service got no answer, and why.
    unreached: SortedMap<String, String>,
    /// The lives of the connected nodes.
    lives: SortedMap<NodeId, Life>,
    asked: Vec<(String, oneshot::Sender<Result<NodeId, String>>)>,
    /// The nodes that ends were last declared to, the latest last: only they may answer.
    declared_to: VecDeque<NodeId>,
    /// The name service is lost: a node has to find or serve another.
    pub(crate) names_lost: Arc<Notify>,
    /// Messages of this node to itself.
    local: VecDeque<Names>,
}

impl Hub {
    pub(crate) fn new(me: Life, has_role: bool, service: Box<dyn NameService>) -> Self {
        let mut own = Directory::new();
        own.server_is(me.node);
        Self {
            me,
            service,
            serves: false,
            names_at: None,
            ceded: false,
            leaving: false,
            directory: Directory::new(),
            own,
            others: SortedMap::new(),
            ask_again: SortedMap::new(),
            ends: Ends::default(),
            unasked: SortedSet::new(),
            declared: None,
            channels: Channels::default(),
            introductions: SortedMap::new(),
            next: 0,
            watchers: Vec::new(),
            news: VecDeque::new(),
            refusals: Refusals::default(),
            throttle: Throttle::default(),
            violator: None,
            has_role,
            there: SortedMap::new(),
            closing: None,
            unwelcome: SortedMap::new(),
            strangers: SortedSet::new(),
            unreached: SortedMap::new(),
            lives: SortedMap::new(),
            asked: Vec::new(),
            declared_to: VecDeque::new(),
            names_lost: Arc::default(),
            local: VecDeque::new(),
        }
    }

    pub(crate) fn waiting(&self, now: Time) -> Vec<WaitingEnd> {
        let directories = std::iter::once(&self.directory).chain(self.others.values());
        let waiting = directories.flat_map(Directory::waiting).map(|end| WaitingEnd {
            name: end.name.to_owned(),
            what: word(end.face).to_owned(),
            waited: now.since(end.since),
            refused: self.ends.get(end.number).and_then(|declared| declared.unfit().cloned()),
        });
        waiting.collect()
    }

    /// This node leaves. A connection made from now on would only carry its goodbye.
    pub(crate) fn leave(&mut self) {
        self.leaving = true;
    }
}
