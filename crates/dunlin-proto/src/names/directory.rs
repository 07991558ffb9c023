//! What a node has declared, and the state of each declaration.

use std::collections::VecDeque;
use std::sync::Arc;

use dunlin_sorted::{SortedMap, SortedSet};

use super::{is_home, is_name};
use crate::id::{ChannelId, Life, NodeId};
use crate::seldom::{First, Seldom};
use crate::time::Time;
use crate::wire::{Declaration, Face, Names, Room, Status, limits};

/// A change of a declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DirectoryEvent {
    /// It is admitted, but its other face has not been found. At most once, and before any other event.
    Waiting {
        /// Its number.
        number: u64,
    },
    /// The other face is found. Once if this end is not a home; if it is, once per life of a partner, as long
    /// as that has not gone.
    Found {
        /// The number of the declaration.
        number: u64,
        /// The node with the other face; or, if `face` is of this end's own side, the node with the home of a
        /// shared face.
        partner: Life,
        /// Where that node can be dialled.
        addresses: Vec<String>,
        /// The home's channel or bundle.
        channel: ChannelId,
        /// The partner's declaration.
        face: Declaration,
    },
    /// It does not fit an existing declaration, and is over.
    Refused {
        /// Its number.
        number: u64,
        /// The existing declaration.
        there: Declaration,
        /// The node that has it.
        holder: Life,
        /// Where that node can be dialled.
        addresses: Vec<String>,
    },
    /// It stands; the server has refused a declaration of the other face, since it does not fit.
    Unfit {
        /// Its number.
        number: u64,
        /// The refused declaration.
        refused: Declaration,
        /// The node that had declared it.
        by: Life,
        /// Where that node can be dialled.
        addresses: Vec<String>,
    },
    /// It is joined, and its server has another node's declaration that it does not fit. It stays, beside
    /// that one. Once for each holder.
    Conflict {
        /// Its number.
        number: u64,
        /// The existing declaration.
        there: Declaration,
        /// The node that has it.
        holder: Life,
    },
    /// Its name is not [valid](is_name). It is over.
    BadName {
        /// Its number.
        number: u64,
    },
    /// There is no room for it. It is over.
    Full {
        /// Its number.
        number: u64,
        /// The room that is exhausted.
        room: Room,
        /// Its size.
        max: u64,
    },
}

/// An end of this node that is not joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingHere<'a> {
    /// The number of its declaration.
    pub number: u64,
    /// Its name.
    pub name: &'a str,
    /// Its face.
    pub face: Face,
    /// When it was declared.
    pub since: Time,
    /// Whether a server of names has admitted it.
    pub admitted: bool,
}

/// The state of an end of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeclaredHere {
    /// When it was declared.
    pub since: Time,
    /// It has a partner for good.
    pub joined: bool,
    /// A server of names has admitted it, but its other face has not been found.
    pub waits: bool,
}

#[derive(Debug)]
struct End {
    name: Arc<str>,
    channel: ChannelId,
    face: Arc<Declaration>,
    since: Time,
    /// A server has admitted it.
    is_known: bool,
    told_waiting: bool,
    met: Seldom<Met>,
}

/// The other declarations of its name that an end has been told of. Most ends still wait for the first.
#[derive(Clone, Debug, Default)]
struct Met {
    /// It has a partner for good, on this channel.
    joined: Option<ChannelId>,
    /// At a home: the partners that were found.
    partners: SortedSet<Life>,
    /// The holders of declarations that conflict with it.
    conflicts: SortedSet<Life>,
}

impl First for Met {
    fn first() -> &'static Self {
        static NOBODY: Met = Met { joined: None, partners: SortedSet::new(), conflicts: SortedSet::new() };
        &NOBODY
    }
}

impl End {
    fn declare(&self, number: u64) -> Names {
        let (name, face) = (self.name.to_string(), Declaration::clone(&self.face));
        Names::Declare { number, name, channel: self.channel, face, status: self.status() }
    }

    fn status(&self) -> Status {
        match self.met.joined {
            Some(channel) => Status::Joined(channel),
            None if self.is_known => Status::Known,
            None => Status::New,
        }
    }

    fn is_joined(&self) -> bool {
        self.met.joined.is_some()
    }

    /// Whether its other side may be in use.
    fn is_in_use(&self) -> bool {
        self.is_joined() || !self.met.partners.is_empty()
    }
}

/// How many partners of one home are remembered. Further ones from a server are ignored.
const PARTNERS_MAX: usize = 1 << 16;

/// How many conflicting holders are reported for one declaration.
const CONFLICTS_MAX: usize = 16;

/// What a node has declared, and the server of names to which it declares. See [the module](super).
#[derive(Debug, Default)]
pub struct Directory {
    server: Option<NodeId>,
    // Boxed: a node of a B-tree is about half empty where numbers ascend.
    ends: SortedMap<u64, Box<End>>,
    said: VecDeque<(NodeId, Names)>,
    events: VecDeque<DirectoryEvent>,
}

impl Directory {
    /// An empty directory without a server.
    pub fn new() -> Self {
        Self::default()
    }

    /// The next event, if there is one.
    pub fn poll(&mut self) -> Option<DirectoryEvent> {
        self.events.pop_front()
    }

    /// The next message, with the server that it is for.
    pub fn poll_said(&mut self) -> Option<(NodeId, Names)> {
        self.said.pop_front()
    }

    /// The server that declarations go to.
    pub fn server(&self) -> Option<NodeId> {
        self.server
    }

    /// How many declarations there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The ends that are not joined. An acceptor never is; it is not listed once it is admitted.
    pub fn waiting(&self) -> impl Iterator<Item = WaitingHere<'_>> {
        let waits = |end: &End| !end.is_in_use() && (end.face.face != Face::Acceptor || end.status() == Status::New);
        self.ends.iter().filter(move |(_, end)| waits(end)).map(|(&number, end)| WaitingHere {
            number,
            name: &end.name,
            face: end.face.face,
            since: end.since,
            admitted: end.status() != Status::New,
        })
    }

    /// The state of the end with this number.
    pub fn end(&self, number: u64) -> Option<DeclaredHere> {
        let end = self.ends.get(&number)?;
        let (joined, waits) = (end.is_joined(), end.is_known && !end.is_in_use());
        Some(DeclaredHere { since: end.since, joined, waits })
    }

    /// Declares an end. `number` is chosen by the caller, which uses it only once in this life of the node;
    /// `channel` identifies a home's channel or bundle, and means nothing for other faces.
    ///
    /// A node may declare very many ends. Their names and declarations are shared with other holders.
    pub fn declare(
        &mut self,
        now: Time,
        number: u64,
        name: impl Into<Arc<str>>,
        face: impl Into<Arc<Declaration>>,
        channel: ChannelId,
    ) {
        let (name, face) = (name.into(), face.into());
        if !is_name(&name) {
            return self.events.push_back(DirectoryEvent::BadName { number });
        }
        if face.schema.len() > limits::SCHEMA {
            let (room, max) = (Room::Bytes, limits::SCHEMA as u64);
            return self.events.push_back(DirectoryEvent::Full { number, room, max });
        }
        let (is_known, told_waiting) = (false, false);
        let end = End { name, channel, face, since: now, is_known, told_waiting, met: Seldom::default() };
        self.ends.insert(number, Box::new(end));
        self.say_declare(number);
    }

    /// The end is gone, or its channel is over. Undeclare an end that has been found only after the home has
    /// answered its attach: the home's node must first know which node attached.
    pub fn undeclare(&mut self, number: u64) {
        if self.ends.remove(&number).is_some() {
            self.say(Names::Undeclare { number });
        }
    }

    /// An unshared partner has attached to this home: the server must not join another one to it.
    pub fn attached(&mut self, number: u64) {
        let Some(end) = self.ends.get_mut(&number) else { return };
        if !is_home(end.face.face) || end.is_joined() {
            return;
        }
        end.met.joined = Some(end.channel);
        self.say_declare(number);
    }

    /// Sets the server of names, and declares everything to it. It may be this node, or the same server as
    /// before [`server_lost`](Self::server_lost).
    pub fn server_is(&mut self, server: NodeId) {
        if self.server == Some(server) {
            return;
        }
        if self.server.is_some() {
            self.server_lost();
        }
        self.server = Some(server);
        let numbers: Vec<u64> = self.ends.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.say_declare(number));
    }

    /// The connection to the server is over. Further messages from it are ignored; the declarations wait for
    /// the next server.
    pub fn server_lost(&mut self) {
        self.server = None;
        self.said.clear();
    }

    /// The server no longer serves these names: this node withdraws its declarations there, and they wait for
    /// the next server.
    pub fn leave_server(&mut self) {
        let numbers: Vec<u64> = self.ends.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.say(Names::Undeclare { number }));
        self.server = None;
    }

    fn say(&mut self, said: Names) {
        if let Some(server) = self.server {
            self.said.push_back((server, said));
        }
    }

    fn say_declare(&mut self, number: u64) {
        let declare = self.ends[&number].declare(number);
        self.say(declare);
    }

    /// Handles an answer of a server.
    pub fn heard(&mut self, from: NodeId, said: Names) {
        if self.server != Some(from) {
            return;
        }
        match said {
            Names::Found { number, partner, addresses, channel, face } => {
                if self.found(number, partner, channel, &face) {
                    self.events.push_back(DirectoryEvent::Found { number, partner, addresses, channel, face });
                }
            }
            Names::Waiting { number } => {
                let Some(end) = self.ends.get_mut(&number) else { return };
                end.is_known = true;
                if !end.told_waiting && !end.is_in_use() {
                    end.told_waiting = true;
                    self.events.push_back(DirectoryEvent::Waiting { number });
                }
            }
            Names::Refused { number, there, holder, addresses } => match self.ends.get_mut(&number) {
                Some(end) if end.is_in_use() => {
                    if end.met.conflicts.len() < CONFLICTS_MAX && end.met.conflicts.insert(holder) {
                        self.events.push_back(DirectoryEvent::Conflict { number, there, holder });
                    }
                }
                _ => self.over(number, DirectoryEvent::Refused { number, there, holder, addresses }),
            },
            Names::Unfit { number, refused, by, addresses } => {
                if self.ends.contains_key(&number) {
                    self.events.push_back(DirectoryEvent::Unfit { number, refused, by, addresses });
                }
            }
            Names::BadName { number } => self.over(number, DirectoryEvent::BadName { number }),
            Names::Full { number, room, max } => self.over(number, DirectoryEvent::Full { number, room, max }),
            Names::Gone { number, partner } => self.gone(number, partner),
            // For a server, for an acceptor's node, or for a node that looks for a server.
            Names::Declare { .. } | Names::Undeclare { .. } | Names::Guest { .. } | Names::Elsewhere => {}
        }
    }

    /// Returns whether this is news.
    fn found(&mut self, number: u64, partner: Life, channel: ChannelId, face: &Declaration) -> bool {
        let Some(end) = self.ends.get_mut(&number) else { return false };
        if end.is_joined() && !is_home(end.face.face) {
            return false;
        }
        match (is_home(end.face.face), is_home(face.face)) {
            // The server is wrong: these two have no home to be joined to.
            (false, false) => false,
            (false, true) if face.face == Face::Acceptor => {
                self.ends.remove(&number);
                true
            }
            (false, true) => {
                end.met.joined = Some(channel);
                true
            }
            (true, true) => {
                let news = !end.is_joined();
                end.met.joined.get_or_insert(channel);
                news
            }
            (true, false) => {
                end.is_known = true;
                channel == end.channel && end.met.partners.len() < PARTNERS_MAX && end.met.partners.insert(partner)
            }
        }
    }

    fn gone(&mut self, number: u64, partner: Life) {
        let Some(end) = self.ends.get_mut(&number) else { return };
        if end.met.changed().is_some_and(|met| met.partners.remove(&partner)) && !end.is_joined() {
            // It never attached, so another one may be joined.
            self.say_declare(number);
        }
    }

    /// The declaration is over, unless it is in use: then it stays with its partners, and is declared to the
    /// next server.
    fn over(&mut self, number: u64, event: DirectoryEvent) {
        if self.ends.get(&number).is_some_and(|end| !end.is_in_use()) {
            self.ends.remove(&number);
            self.events.push_back(event);
        }
    }
}
