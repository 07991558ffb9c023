//! What a node knows beside its channels: names, the ends that were declared, guests, and who wants to hear of connections.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use dunlin_core::carrier::{Agent, AnyInlet, AnyOutlet, Outbox};
use dunlin_core::{Portable, Sender};
use dunlin_proto::id::{ChannelId, Life, NodeId};
use dunlin_proto::names::{Directory, DirectoryEvent, Registry, RegistryConfig};
use dunlin_proto::time::Time;
use dunlin_proto::wire::{Declaration, End, Expected, Face, Names, Room, Terms, Which};
use dunlin_proto::{Down, State};
use tokio::sync::{Notify, oneshot};

use super::Peer;
use super::bridge::{ReceivingBridge, SendingBridge, full_poison};
use super::budget::Budget;
use super::codec::{self, Encoding};
use super::driver::{Driver, Locked};
use super::error::NameError;
use super::id;
use super::message::WINDOW;
use super::name::{describe, split, word};

/// So many guests may wait to be received; others are turned away.
pub(crate) const GUESTS_MAX: usize = 1024;

/// What answers a client, in the place of the acceptor, if that is not there any more.
const NOT_THERE: ChannelId = ChannelId(0);

/// So long a node waits before it asks again at an address where nobody is.
const ASK_AGAIN: Duration = Duration::from_millis(250);

/// So long the news that a connection is over may wait for its ends, which code of users may hold up.
const ENDED: Duration = Duration::from_secs(1);

/// So many ends may a bundle have that others reach by name.
const BUNDLE_ENDS_MAX: usize = 256;

/// How an end is declared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub(crate) face: Face,
    pub(crate) shared: bool,
    pub(crate) expects: Expected,
    pub(crate) encoding: Encoding,
    pub(crate) fail_fast: bool,
    /// So long it may take until the end is admitted.
    pub(crate) patience: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        let encoding = Encoding::default();
        Self {
            face: Face::Sender,
            shared: false,
            expects: Expected::Unknown,
            encoding,
            fail_fast: false,
            patience: None,
        }
    }
}

/// Makes a fresh bundle for a guest, and hands it over; if there is no room, the guest's other face has been dropped. `None`: the acceptor is gone.
/// What is dropped of it then, is so later.
pub(crate) type Acceptance = Box<dyn FnMut(Life, &mut Vec<Box<dyn Send>>) -> Option<Vec<Agent>> + Send>;

/// What is to be declared: the agents in the place of the other end.
pub(crate) enum Half {
    Sender(AnyOutlet),
    Receiver(AnyInlet),
    Client(Vec<Agent>),
    Server(Vec<Agent>),
    Acceptor(Acceptance),
}

impl Half {
    /// Whether its messages are bytes, which are not encoded.
    fn is_raw(&self) -> bool {
        match self {
            Self::Sender(outlet) => codec::is_raw(outlet.shape()),
            Self::Receiver(inlet) => codec::is_raw(inlet.shape()),
            Self::Client(_) | Self::Server(_) | Self::Acceptor(_) => false,
        }
    }
}

/// The agents of a face, in the order of its fields.
pub(crate) fn agents_of<F: Portable>(face: F) -> Result<Vec<Agent>, NameError> {
    let refused = |why: String| NameError::Unstretchable(why);
    let mut outbox = Outbox::new();
    outbox.encode(|| codec::survey(&face)).map_err(|error| refused(error.to_string()))?;
    let sealed = outbox.seal().map_err(|error| refused(error.to_string()))?;
    if sealed.ends().len() > BUNDLE_ENDS_MAX {
        return Err(refused(format!("number of ends above {BUNDLE_ENDS_MAX}")));
    }
    let ends = sealed.commit(face).map_err(|error| refused(error.to_string()))?;
    ends.into_iter().map(|end| end.into_agent().map_err(|end| refused(end.kind().to_string()))).collect()
}

/// A guest: a fresh server's face, and who is at the other end of it. It can be used as the face itself.
pub struct Guest<S> {
    face: S,
    peer: Peer,
}

impl<S> Guest<S> {
    pub(crate) fn new(face: S, peer: Peer) -> Self {
        Self { face, peer }
    }

    /// Who it is.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// The face alone.
    pub fn into_face(self) -> S {
        self.face
    }
}

impl<S> Deref for Guest<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.face
    }
}

impl<S> DerefMut for Guest<S> {
    fn deref_mut(&mut self) -> &mut S {
        &mut self.face
    }
}

impl<S> fmt::Debug for Guest<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guest").field("peer", &self.peer).finish_non_exhaustive()
    }
}

/// How a connection to another node is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionState {
    /// It carries.
    Up,
    /// Its socket is gone. Channels do not notice, unless it stays away.
    Lost,
    /// It carries again; nothing was lost.
    Resumed,
    /// It is over: the ends that reached over it have ended.
    Down(Down),
}

/// An end of this node that has not found its other end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitingEnd {
    /// Its name.
    pub name: String,
    /// What it is: "sender", "server", ...
    pub what: String,
    /// For how long it has waited.
    pub waited: Duration,
}

/// An end of this node that is joined, and whose name is somebody else's where the nodes meet: see [`Node::conflicts`](super::Node::conflicts).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NameConflict {
    /// The name.
    pub name: String,
    /// What is declared here.
    pub mine: String,
    /// What the name service had already.
    pub theirs: String,
    /// Who has that.
    pub holder: Peer,
}

/// What a [`Hub`] hears.
#[derive(Debug)]
pub(crate) enum Heard {
    Connection(NodeId, State),
    Names(Life, Names),
    Introduced(String, Result<NodeId, String>),
}

/// What of a declared end waits for the other one.
enum Role {
    /// The bridge waits, stretched to nowhere, under the end's own channel number.
    Sender,
    /// Its home is open.
    Receiver,
    /// `None`: it has been found.
    Client(Option<Vec<Agent>>),
    /// Its homes are open; these are its senders. `None`: its client has come.
    Server(Option<Outlets>),
    Acceptor(Acceptance),
}

/// The sending halves of a bundle, by their channels.
type Outlets = Vec<(ChannelId, AnyOutlet)>;

/// An end that was declared here.
struct DeclaredEnd {
    name: String,
    options: Options,
    declaration: Declaration,
    role: Role,
    /// The channel of a home, or the first of a bundle's; of a sender, a number of its own.
    channel: ChannelId,
    /// Told once the end is admitted, or is not.
    answer: Option<oneshot::Sender<Result<(), NameError>>>,
    /// Who was asked: the node at this address, or the application's name service.
    at: Option<String>,
    conflicts: Vec<NameConflict>,
}

/// A client that has introduced itself and waits for the server's word.
struct Introduction {
    server: NodeId,
    number: u64,
    outlets: Outlets,
    options: Options,
    declaration: Declaration,
}

/// What watchers of connections are to hear. That one is over, once its ends have ended; but not later than then.
struct News {
    news: (Peer, ConnectionState),
    ended: Option<(oneshot::Receiver<()>, Time)>,
}

pub(crate) struct Hub {
    me: Life,
    /// The names that this node serves: the application's, or its own for those who dial it.
    registry: Registry,
    serves: bool,
    /// It has served them, and left that to another node.
    ceded: bool,
    /// This node looks for nobody any more.
    leaving: bool,
    /// What is declared to the application's name service.
    directory: Directory,
    /// What is declared to this node, for those who dial it.
    own: Directory,
    /// What is declared to a node that a name has told.
    others: BTreeMap<String, Directory>,
    /// Addresses that did not answer, and for which ends here wait: when they are asked again.
    ask_again: BTreeMap<String, Time>,
    ends: BTreeMap<u64, DeclaredEnd>,
    /// Which end a stretched channel belongs to.
    channels: BTreeMap<ChannelId, u64>,
    introductions: BTreeMap<ChannelId, Introduction>,
    next: u64,
    watchers: Vec<Sender<(Peer, ConnectionState)>>,
    conflict_watchers: Vec<Sender<NameConflict>>,
    news: VecDeque<News>,
    /// Of the nodes that there are connections to.
    lives: BTreeMap<NodeId, Life>,
    asked: Vec<(String, oneshot::Sender<Result<NodeId, String>>)>,
    /// The name service is lost: somebody has to find or serve another.
    pub(crate) names_lost: Arc<Notify>,
    /// Messages of this node to itself.
    local: VecDeque<Names>,
}

impl Hub {
    pub(crate) fn new(me: Life) -> Self {
        let mut own = Directory::new();
        own.server_is(me.node);
        let mut names = RegistryConfig::default();
        // A home has one sending half: claims of an end that several nodes hold are not there yet.
        names.several_holders = false;
        Self {
            me,
            registry: Registry::new(names),
            serves: false,
            ceded: false,
            leaving: false,
            directory: Directory::new(),
            own,
            others: BTreeMap::new(),
            ask_again: BTreeMap::new(),
            ends: BTreeMap::new(),
            channels: BTreeMap::new(),
            introductions: BTreeMap::new(),
            next: 0,
            watchers: Vec::new(),
            conflict_watchers: Vec::new(),
            news: VecDeque::new(),
            lives: BTreeMap::new(),
            asked: Vec::new(),
            names_lost: Arc::default(),
            local: VecDeque::new(),
        }
    }

    pub(crate) fn watch(&mut self, watcher: Sender<(Peer, ConnectionState)>) {
        self.watchers.push(watcher);
    }

    /// The watcher hears of the conflicts that there are, too.
    pub(crate) fn watch_conflicts(&mut self, mut watcher: Sender<NameConflict>) {
        let known = self.ends.values().flat_map(|end| &end.conflicts);
        if known.cloned().all(|conflict| watcher.try_send(conflict).is_ok()) {
            self.conflict_watchers.push(watcher);
        }
    }

    /// This node has left: its connections are over, and who watches them hears it before the channel ends.
    pub(crate) fn farewell(mut self: Box<Self>) {
        for end in std::mem::take(&mut self.ends).into_values() {
            match end.role {
                Role::Client(Some(agents)) => agents.into_iter().for_each(down),
                Role::Server(Some(outlets)) => outlets.into_iter().for_each(|(_, outlet)| outlet.down()),
                Role::Sender | Role::Receiver | Role::Client(None) | Role::Server(None) | Role::Acceptor(_) => {}
            }
        }
        for client in std::mem::take(&mut self.introductions).into_values() {
            client.outlets.into_iter().for_each(|(_, outlet)| outlet.down());
        }
        for life in std::mem::take(&mut self.lives).into_values() {
            self.news.push_back(News { news: (Peer(life), ConnectionState::Down(Down::Left)), ended: None });
        }
        self.tell_watchers(Time(u64::MAX));
    }

    fn tell_watchers(&mut self, now: Time) {
        while let Some(next) = self.news.pop_front() {
            let mut next = next;
            if let Some((ended, until)) = &mut next.ended
                && now < *until
                && ended.try_recv() == Err(oneshot::error::TryRecvError::Empty)
            {
                return self.news.push_front(next);
            }
            self.watchers.retain_mut(|watcher| watcher.try_send(next.news.clone()).is_ok());
        }
    }

    pub(crate) fn serves_names(&self) -> bool {
        self.serves
    }

    pub(crate) fn waiting(&self, now: Time) -> Vec<WaitingEnd> {
        let directories = std::iter::once(&self.directory).chain(self.others.values());
        let waiting = directories.flat_map(Directory::waiting).map(|end| WaitingEnd {
            name: end.name.to_owned(),
            what: word(end.face).to_owned(),
            waited: now.since(end.since),
        });
        waiting.collect()
    }

    /// Which node is at this address?
    pub(crate) fn ask(&mut self, cx: &mut Locked<'_>, address: String) -> oneshot::Receiver<Result<NodeId, String>> {
        let (asked, answer) = oneshot::channel();
        self.asked.push((address.clone(), asked));
        cx.state.machine.introduce(address);
        answer
    }

    /// This node serves the application's names from now on. `again`: after another one.
    pub(crate) fn serve(&mut self, cx: &mut Locked<'_>, again: bool) {
        // What others have declared to this node because they dialled it, perhaps for its names already, is the application's now.
        if again {
            self.registry.take_over(cx.now);
        }
        self.registry.met(self.me, cx.state.machine.addresses_here());
        for (node, life) in &self.lives {
            self.registry.met(*life, cx.state.machine.addresses_of(*node));
        }
        (self.serves, self.ceded) = (true, false);
        self.directory.server_is(self.me.node);
    }

    /// Another node serves the application's names, at an address that comes before this node's: all who used this one go there.
    pub(crate) fn cede(&mut self, cx: &mut Locked<'_>, to: NodeId) {
        (self.serves, self.ceded) = (false, true);
        let nodes: Vec<NodeId> = self.lives.keys().copied().collect();
        nodes.into_iter().for_each(|node| self.tell_elsewhere(cx, node));
        self.directory.leave_server();
        // What this node's own ends have declared here for those who dial it stays, and is taken back with the rest: so it is said again.
        self.own.server_lost();
        self.own.server_is(self.me.node);
        self.use_names_of(cx, to);
    }

    fn tell_elsewhere(&mut self, cx: &mut Locked<'_>, node: NodeId) {
        let _ = cx.state.machine.say_names(cx.now, node, Names::Elsewhere);
    }

    /// This node leaves. A connection that was made from now on would only carry its goodbye.
    pub(crate) fn leave(&mut self) {
        self.leaving = true;
    }

    /// That node serves the application's names.
    pub(crate) fn use_names_of(&mut self, cx: &mut Locked<'_>, node: NodeId) {
        if self.leaving {
            return;
        }
        self.directory.server_is(node);
        cx.state.machine.connect(cx.now, node);
    }

    // Declaring.

    fn declare(
        &mut self,
        cx: &mut Locked<'_>,
        name: &str,
        options: Options,
        half: Half,
    ) -> (u64, oneshot::Receiver<Result<(), NameError>>) {
        let (told, answer) = oneshot::channel();
        let number = self.next;
        self.next += 1;
        let (at, bare) = split(name);
        // What the two ends have to agree on. (The types of their messages come with a later version.)
        let schema = Bytes::from_static(match options.encoding {
            _ if half.is_raw() => b"bytes",
            Encoding::Cbor => b"cbor",
            Encoding::Compact => b"compact",
        });
        let Options { face, shared, expects, .. } = options;
        let declaration = Declaration { face, shared, expects, schema };
        let channel = id::channel();
        let at = at.map(str::to_owned);
        let is_home = !matches!(half, Half::Sender(_) | Half::Client(_));
        let role = match half {
            Half::Sender(outlet) => {
                self.channels.insert(channel, number);
                let bridge = SendingBridge::new(outlet, None, options.encoding, options.fail_fast);
                cx.driver.stretch(cx.state, channel, None, Box::new(bridge));
                Role::Sender
            }
            Half::Receiver(inlet) => {
                self.open_home(cx, Some(number), channel, options, &declaration, inlet);
                Role::Receiver
            }
            Half::Client(agents) => Role::Client(Some(agents)),
            Half::Server(agents) => {
                Role::Server(Some(self.open_homes(cx, Some(number), channel, options, &declaration, agents, None)))
            }
            Half::Acceptor(accept) => Role::Acceptor(accept),
        };
        let end = DeclaredEnd {
            name: bare.to_owned(),
            options,
            declaration: declaration.clone(),
            role,
            channel,
            answer: Some(told),
            at: at.clone(),
            conflicts: Vec::new(),
        };
        self.ends.insert(number, end);
        match &at {
            None => self.directory.declare(cx.now, number, bare, declaration.clone(), channel),
            Some(address) => {
                let directory = self.others.entry(address.clone()).or_default();
                directory.declare(cx.now, number, bare, declaration.clone(), channel);
                if directory.server().is_none() {
                    cx.state.machine.introduce(address.clone());
                }
            }
        }
        if is_home && at.is_none() {
            self.own.declare(cx.now, number, bare, declaration, channel);
        }
        (number, answer)
    }

    /// The channel is this end's: when the last of its channels is over, the end is. A guest's channels are nobody's: the acceptor goes on.
    fn belongs(&mut self, channel: ChannelId, number: Option<u64>) {
        if let Some(number) = number {
            self.channels.insert(channel, number);
        }
    }

    fn open_home(
        &mut self,
        cx: &mut Locked<'_>,
        number: Option<u64>,
        channel: ChannelId,
        options: Options,
        declaration: &Declaration,
        inlet: AnyInlet,
    ) {
        self.belongs(channel, number);
        let budget = Budget::new(cx.state.buffered_max);
        inlet.lend_at_most(budget.places());
        let terms = Terms { window: WINDOW, credits: inlet.credits(), value_max: cx.state.machine.value_max() };
        let opened = cx.state.machine.open_home(channel, terms, declaration.clone(), false);
        debug_assert!(opened.is_ok(), "the schema is short");
        let bridge = ReceivingBridge::new(inlet, terms.credits, budget, options.encoding, None);
        cx.driver.stretch(cx.state, channel, None, Box::new(bridge));
    }

    /// Opens the homes among a bundle's channels; `from`: the node of the other face, once it is known. Gives the other channels, which have their
    /// homes elsewhere.
    #[expect(clippy::too_many_arguments, reason = "what the channels of a bundle have in common")]
    fn open_homes(
        &mut self,
        cx: &mut Locked<'_>,
        number: Option<u64>,
        first: ChannelId,
        options: Options,
        declaration: &Declaration,
        agents: Vec<Agent>,
        from: Option<NodeId>,
    ) -> Outlets {
        let mut outlets = Vec::new();
        for (channel, agent) in numbered(first, agents) {
            match agent {
                Agent::Inlet(inlet) => {
                    self.open_home(cx, number, channel, options, declaration, inlet);
                    if let Some(from) = from {
                        cx.state.machine.await_half(channel, from);
                    }
                }
                Agent::Outlet(outlet) => outlets.push((channel, outlet)),
            }
        }
        outlets
    }

    fn attach(
        &mut self,
        cx: &mut Locked<'_>,
        number: Option<u64>,
        channel: ChannelId,
        home: NodeId,
        bridge: SendingBridge,
        declaration: Declaration,
    ) {
        self.belongs(channel, number);
        let attached = cx.state.machine.attach(cx.now, channel, home, declaration);
        debug_assert!(attached.is_ok(), "the schema is short");
        cx.driver.stretch(cx.state, channel, Some(home), Box::new(bridge.connected(home)));
    }

    fn attach_all(
        &mut self,
        cx: &mut Locked<'_>,
        number: Option<u64>,
        home: NodeId,
        outlets: Outlets,
        options: Options,
        declaration: &Declaration,
    ) {
        for (channel, outlet) in outlets {
            let bridge = SendingBridge::new(outlet, Some(home), options.encoding, options.fail_fast);
            self.attach(cx, number, channel, home, bridge, declaration.clone());
        }
    }

    pub(crate) fn undeclare(&mut self, number: u64) {
        self.own.undeclare(number);
        match self.ends.remove(&number) {
            Some(DeclaredEnd { at: Some(address), .. }) => {
                if let Some(directory) = self.others.get_mut(&address) {
                    directory.undeclare(number);
                }
            }
            _ => self.directory.undeclare(number),
        }
    }

    /// A sending half elsewhere has attached to a home here.
    pub(crate) fn attached(&mut self, _: &mut Locked<'_>, channel: ChannelId) {
        if let Some(number) = self.channels.get(&channel) {
            self.directory.attached(*number);
            self.own.attached(*number);
            self.others.values_mut().for_each(|directory| directory.attached(*number));
        }
    }

    /// The bridge of a channel is over.
    pub(crate) fn over(&mut self, _: &mut Locked<'_>, channel: ChannelId) {
        if let Some(number) = self.channels.remove(&channel)
            && !self.channels.values().any(|other| *other == number)
        {
            self.undeclare(number);
        }
    }

    // Hearing.

    pub(crate) fn hear(&mut self, cx: &mut Locked<'_>, heard: Heard) {
        match heard {
            Heard::Connection(node, state) => self.connection(cx, node, state),
            Heard::Names(from, said) => self.names(cx, from, said),
            Heard::Introduced(address, who) => self.introduced(cx, &address, who),
        }
    }

    fn connection(&mut self, cx: &mut Locked<'_>, node: NodeId, state: State) {
        let over = matches!(state, State::Down(_));
        let state = match state {
            State::Up(life) => {
                self.lives.insert(node, life);
                self.registry.met(life, cx.state.machine.addresses_of(node));
                if self.ceded {
                    // It may have found this node when that still served the names.
                    self.tell_elsewhere(cx, node);
                }
                ConnectionState::Up
            }
            State::Lost(_) => ConnectionState::Lost,
            State::Resumed => ConnectionState::Resumed,
            State::Down(why) => {
                self.registry.lost(cx.now, node, &why);
                // Their agents are dropped, and with them the clients' ends end. Their homes have heard of it from the machine.
                let waits = std::mem::take(&mut self.introductions).into_iter();
                let (lost, stays): (Vec<_>, Vec<_>) = waits.partition(|(_, client)| client.server == node);
                self.introductions = stays.into_iter().collect();
                cx.state.garbage.push(Box::new(lost));
                if self.directory.server() == Some(node) {
                    self.directory.server_lost();
                    if !self.leaving {
                        self.names_lost.notify_one();
                    }
                }
                for (address, directory) in &mut self.others {
                    if directory.server() == Some(node) {
                        directory.server_lost();
                        if !directory.is_empty() && !self.leaving {
                            cx.state.machine.introduce(address.clone());
                        }
                    }
                }
                ConnectionState::Down(why)
            }
        };
        if let Some(life) = self.lives.get(&node) {
            let ended = over.then(|| (cx.state.said_of(node), cx.now + ENDED));
            self.news.push_back(News { news: (Peer(*life), state), ended });
        }
        if over {
            self.lives.remove(&node);
        }
    }

    fn introduced(&mut self, cx: &mut Locked<'_>, address: &str, who: Result<NodeId, String>) {
        while let Some(at) = self.asked.iter().position(|(asked, _)| asked == address) {
            let _ = self.asked.swap_remove(at).1.send(who.clone());
        }
        let Some(directory) = self.others.get_mut(address) else { return };
        match who {
            Ok(node) => {
                directory.server_is(node);
                if node != self.me.node {
                    cx.state.machine.connect(cx.now, node);
                }
            }
            Err(why) => {
                let waits: Vec<u64> = self
                    .ends
                    .iter()
                    .filter(|(_, end)| end.at.as_deref() == Some(address) && end.answer.is_some())
                    .map(|(number, _)| *number)
                    .collect();
                for number in waits {
                    let error = NameError::Unreachable { address: address.to_owned(), why: why.clone() };
                    self.fail(cx, number, error);
                }
                // What was admitted there waits until somebody is there again.
                if self.others.get(address).is_some_and(|directory| !directory.is_empty()) {
                    self.ask_again.insert(address.to_owned(), cx.now + ASK_AGAIN);
                }
            }
        }
    }

    fn names(&mut self, cx: &mut Locked<'_>, from: Life, said: Names) {
        match said {
            Names::Declare { .. } | Names::Undeclare { .. } => self.registry.heard(cx.now, from, said),
            Names::Guest { acceptor, guest } => self.guest(cx, from, acceptor, guest),
            Names::Elsewhere if self.directory.server() == Some(from.node) => {
                self.directory.leave_server();
                if !self.leaving {
                    self.names_lost.notify_one();
                }
            }
            Names::Elsewhere => {}
            answer => {
                self.directory.heard(from.node, answer.clone());
                self.own.heard(from.node, answer.clone());
                self.others.values_mut().for_each(|directory| directory.heard(from.node, answer.clone()));
            }
        }
    }

    /// Lets names and directories speak until they are quiet.
    pub(crate) fn settle(&mut self, cx: &mut Locked<'_>) {
        self.registry.tick(cx.now);
        let now = cx.now;
        self.tell_watchers(now);
        let asked: Vec<String> =
            self.ask_again.iter().filter(|(_, at)| **at <= now).map(|(address, _)| address.clone()).collect();
        self.ask_again.retain(|_, at| *at > now);
        asked.into_iter().for_each(|address| cx.state.machine.introduce(address));
        loop {
            let mut said: Vec<(NodeId, Names)> = Vec::new();
            while let Some((to, answer)) = self.registry.poll() {
                said.push((to.node, answer));
            }
            for directory in [&mut self.directory, &mut self.own].into_iter().chain(self.others.values_mut()) {
                while let Some(message) = directory.poll_said() {
                    said.push(message);
                }
            }
            let mut events = Vec::new();
            for directory in std::iter::once(&mut self.directory).chain(self.others.values_mut()) {
                while let Some(event) = directory.poll() {
                    events.push(event);
                }
            }
            while let Some(event) = self.own.poll() {
                // Whether a home is admitted says the application's name service; here it is only found.
                if matches!(event, DirectoryEvent::Found { .. }) {
                    events.push(event);
                }
            }
            if said.is_empty() && events.is_empty() && self.local.is_empty() {
                break;
            }
            for (to, message) in said {
                if to == self.me.node {
                    self.local.push_back(message);
                } else if !cx.state.machine.is_idle(to) {
                    // (Else that it is lost has only not been heard of here: it must not be dialled for this.)
                    // What can be declared is checked where it is declared.
                    let _ = cx.state.machine.say_names(cx.now, to, message);
                }
            }
            while let Some(message) = self.local.pop_front() {
                self.names(cx, self.me, message);
            }
            for event in events {
                self.event(cx, event);
            }
        }
        let ended = self.news.front().and_then(|news| news.ended.as_ref()).map(|(_, until)| *until);
        if let Some(at) =
            self.registry.next_tick().into_iter().chain(self.ask_again.values().copied()).chain(ended).min()
        {
            cx.driver.alarm(cx.state, at);
        }
    }

    fn answer(&mut self, number: u64) {
        if let Some(answer) = self.ends.get_mut(&number).and_then(|end| end.answer.take())
            && answer.send(Ok(())).is_err()
        {
            // Whoever asked has given up.
            self.undeclare(number);
        }
    }

    /// The declaration is over.
    fn fail(&mut self, cx: &mut Locked<'_>, number: u64, error: NameError) {
        let Some(end) = self.ends.get_mut(&number) else { return };
        let text = error.to_string();
        let told = end.answer.take().is_some_and(|answer| answer.send(Err(error)).is_ok());
        if !told {
            // The end has been given out already: its operations fail with this.
            let channel = end.channel;
            match &mut end.role {
                Role::Client(Some(agents)) => agents.iter().for_each(|agent| poison(agent, &text)),
                Role::Sender | Role::Receiver | Role::Server(_) => {
                    cx.state.machine.end_home(cx.now, channel, full_poison(&text));
                    let which = if matches!(end.role, Role::Sender) { Which::Sender } else { Which::Receiver };
                    cx.state.take_bridge((channel, which), move |_, mut bridge| bridge.poison(&text));
                }
                Role::Client(None) | Role::Acceptor(_) => {}
            }
        }
        self.undeclare(number);
    }

    fn event(&mut self, cx: &mut Locked<'_>, event: DirectoryEvent) {
        match event {
            DirectoryEvent::Waiting { number } => self.answer(number),
            DirectoryEvent::Found { number, partner, addresses, channel, face } => {
                self.found(cx, number, partner, &addresses, channel, &face);
                self.answer(number);
            }
            DirectoryEvent::Refused { number, there, holder } => {
                if let Some(end) = self.ends.get(&number) {
                    let (name, mine, holder, here) =
                        (end.name.clone(), &end.declaration, holder.node.to_string(), holder == self.me);
                    let error = if mine.face == there.face && mine.shared && there.shared {
                        NameError::Shared { name, what: word(mine.face), holder, here }
                    } else {
                        NameError::Refused { name, mine: describe(mine), theirs: describe(&there), holder }
                    };
                    self.fail(cx, number, error);
                }
            }
            DirectoryEvent::Conflict { number, there, holder } => {
                if let Some(end) = self.ends.get_mut(&number) {
                    let (mine, theirs) = (describe(&end.declaration), describe(&there));
                    let conflict = NameConflict { name: end.name.clone(), mine, theirs, holder: Peer(holder) };
                    self.conflict_watchers.retain_mut(|watcher| watcher.try_send(conflict.clone()).is_ok());
                    end.conflicts.push(conflict);
                }
            }
            DirectoryEvent::BadName { number } => {
                if let Some(end) = self.ends.get(&number) {
                    let error = NameError::BadName(end.name.clone());
                    self.fail(cx, number, error);
                }
            }
            DirectoryEvent::Full { number, room, max } => {
                if let Some(end) = self.ends.get(&number) {
                    let what = match room {
                        Room::Declarations => "declarations of one node",
                        Room::Names => "names",
                        Room::Bytes => "bytes of names and schemas of one node",
                    };
                    let error = NameError::Full { name: end.name.clone(), what, max };
                    self.fail(cx, number, error);
                }
            }
        }
    }

    // Joining.

    fn found(
        &mut self,
        cx: &mut Locked<'_>,
        number: u64,
        partner: Life,
        addresses: &[String],
        channel: ChannelId,
        face: &Declaration,
    ) {
        let Some(end) = self.ends.get_mut(&number) else { return };
        let here = partner.node == self.me.node;
        if !here {
            cx.state.machine.learn(partner.node, addresses);
        }
        let (options, declaration, own) = (end.options, end.declaration.clone(), end.channel);
        match &mut end.role {
            Role::Sender => {
                cx.state.take_bridge((own, Which::Sender), move |driver, bridge| {
                    let mut bridge = bridge.into_sender();
                    if here {
                        let mut outlet = bridge.and_then(SendingBridge::into_outlet);
                        driver.with_hub_now(|hub, cx| hub.sender_is_here(cx, number, channel, &mut outlet));
                    } else {
                        let home = partner.node;
                        driver.with_hub_now(|hub, cx| {
                            hub.sender_is_away(cx, number, channel, home, &mut bridge, declaration);
                        });
                    }
                });
            }
            Role::Client(agents) => {
                let Some(agents) = agents.take() else { return };
                if here {
                    return self.join_bundle_here(cx, number, channel, agents);
                }
                let guest = if face.face == Face::Acceptor { id::channel() } else { channel };
                let server = partner.node;
                let outlets = self.open_homes(cx, Some(number), guest, options, &declaration, agents, Some(server));
                self.introductions.insert(guest, Introduction { server, number, outlets, options, declaration });
                let said = Names::Guest { acceptor: channel, guest };
                let _ = cx.state.machine.say_names(cx.now, server, said);
            }
            // A home waits for whoever comes.
            Role::Receiver | Role::Server(_) | Role::Acceptor(_) => {}
        }
    }

    /// The receiver of a sender that waited is on this node as well.
    fn sender_is_here(&mut self, cx: &mut Locked<'_>, number: u64, channel: ChannelId, outlet: &mut Option<AnyOutlet>) {
        let Some(end) = self.ends.get(&number) else { return };
        self.channels.remove(&end.channel);
        let joined = Joined::new(cx, self.belonging(channel).into_iter().chain([number]).collect());
        if let Some(outlet) = outlet.take() {
            self.join_here(cx, channel, outlet, &joined);
        }
    }

    /// The receiver of a sender that waited is on that node.
    fn sender_is_away(
        &mut self,
        cx: &mut Locked<'_>,
        number: u64,
        channel: ChannelId,
        home: NodeId,
        bridge: &mut Option<SendingBridge>,
        declaration: Declaration,
    ) {
        let Some(end) = self.ends.get(&number) else { return };
        self.channels.remove(&end.channel);
        if let Some(bridge) = bridge.take() {
            self.attach(cx, Some(number), channel, home, bridge, declaration);
        }
    }

    /// Whose declaration a home here is.
    fn belonging(&self, channel: ChannelId) -> Option<u64> {
        self.ends.iter().find(|(_, end)| end.channel == channel).map(|(number, _)| *number)
    }

    /// Both ends of a channel are on this node: they are joined in memory.
    fn join_here(&mut self, cx: &mut Locked<'_>, channel: ChannelId, outlet: AnyOutlet, joined: &Arc<Joined>) {
        if let Some(number) = self.channels.remove(&channel) {
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
    fn join_bundle_here(&mut self, cx: &mut Locked<'_>, number: u64, channel: ChannelId, client: Vec<Agent>) {
        let me = self.me;
        let Some((&home, server)) = self.ends.iter_mut().find(|(_, end)| end.channel == channel) else { return };
        match &mut server.role {
            Role::Acceptor(accept) => {
                let joined = Joined::new(cx, vec![number]);
                // An acceptor that is gone has no face: the client's ends end with their agents.
                let server = accept(me, &mut cx.state.garbage).unwrap_or_default();
                for pair in client.into_iter().zip(server) {
                    match pair {
                        (Agent::Outlet(outlet), Agent::Inlet(inlet)) | (Agent::Inlet(inlet), Agent::Outlet(outlet)) => {
                            let credits = inlet.credits();
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
                        Agent::Outlet(outlet) => self.join_here(cx, channel, outlet, &joined),
                        Agent::Inlet(inlet) => {
                            if let Some(at) = outlets.iter().position(|(other, _)| *other == channel) {
                                let credits = inlet.credits();
                                join(outlets.swap_remove(at).1, inlet, credits, &joined);
                            }
                        }
                    }
                }
                // It may have no channel that has its home at the server.
                self.directory.attached(home);
                self.own.attached(home);
            }
            Role::Sender | Role::Receiver | Role::Client(_) => {}
        }
    }

    /// What a client was to be joined to is not there any more: its ends end.
    fn turned_away(&mut self, cx: &mut Locked<'_>, number: u64) {
        let homes: Vec<ChannelId> =
            self.channels.iter().filter(|(_, end)| **end == number).map(|(channel, _)| *channel).collect();
        for channel in homes {
            self.channels.remove(&channel);
            // Dropped, the inlet is a sender that is gone.
            cx.state.take_bridge((channel, Which::Receiver), |_, bridge| drop(bridge.into_home()));
            cx.state.machine.end_home(cx.now, channel, End::Gone);
        }
        self.undeclare(number);
    }

    /// A client elsewhere introduces itself to a server or an acceptor here; or the server elsewhere answers a client here.
    fn guest(&mut self, cx: &mut Locked<'_>, from: Life, acceptor: ChannelId, guest: ChannelId) {
        if self.introductions.get(&guest).is_some_and(|client| client.server == from.node) {
            let Some(client) = self.introductions.remove(&guest) else { return };
            if acceptor == NOT_THERE {
                return self.turned_away(cx, client.number);
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
            return;
        }
        let not_there = Names::Guest { acceptor: NOT_THERE, guest };
        let Some((&number, end)) = self.ends.iter_mut().find(|(_, end)| end.channel == acceptor) else {
            let _ = cx.state.machine.say_names(cx.now, from.node, not_there);
            return;
        };
        let (options, declaration) = (end.options, end.declaration.clone());
        let (number, outlets) = match &mut end.role {
            Role::Acceptor(accept) => {
                // The number came from elsewhere: it must not take the place of what is here.
                if numbered(guest, vec![(); BUNDLE_ENDS_MAX]).any(|(channel, ())| cx.state.machine.knows(channel)) {
                    let _ = cx.state.machine.say_names(cx.now, from.node, not_there);
                    return;
                }
                let Some(agents) = accept(from, &mut cx.state.garbage) else {
                    self.undeclare(number);
                    let _ = cx.state.machine.say_names(cx.now, from.node, not_there);
                    return;
                };
                (None, self.open_homes(cx, None, guest, options, &declaration, agents, Some(from.node)))
            }
            Role::Server(outlets) => {
                let Some(outlets) = outlets.take() else { return };
                for (home, _) in self.channels.iter().filter(|(_, end)| **end == number) {
                    cx.state.machine.await_half(*home, from.node);
                }
                self.directory.attached(number);
                self.own.attached(number);
                (Some(number), outlets)
            }
            Role::Sender | Role::Receiver | Role::Client(_) => return,
        };
        self.attach_all(cx, number, from.node, outlets, options, &declaration);
        let _ = cx.state.machine.say_names(cx.now, from.node, Names::Guest { acceptor, guest });
    }
}

/// A bundle's channels are numbered from its first.
fn numbered<A>(first: ChannelId, agents: Vec<A>) -> impl Iterator<Item = (ChannelId, A)> {
    (0u128..).map(move |n| ChannelId(first.0.wrapping_add(n))).zip(agents)
}

/// Its node has left.
fn down(agent: Agent) {
    match agent {
        Agent::Outlet(outlet) => outlet.down(),
        Agent::Inlet(inlet) => inlet.down(),
    }
}

fn poison(agent: &Agent, text: &str) {
    match agent {
        Agent::Outlet(outlet) => outlet.poison(text.into()),
        Agent::Inlet(inlet) => inlet.poison(text.into()),
    }
}

/// Ends of this node that are joined with each other. When the last of their channels is over, so are they, and their names are free.
struct Joined {
    driver: Weak<Driver>,
    numbers: Vec<u64>,
}

impl Joined {
    fn new(cx: &Locked<'_>, numbers: Vec<u64>) -> Arc<Self> {
        Arc::new(Self { driver: Arc::downgrade(cx.driver), numbers })
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
        }
    }
}

impl Driver {
    /// Declares an end, and waits until it is admitted. Gives its number.
    pub(crate) async fn declare(self: &Arc<Self>, name: &str, options: Options, half: Half) -> Result<u64, NameError> {
        let (number, answer) =
            self.with_hub_now(|hub, cx| Some(hub.declare(cx, name, options, half))).ok_or(NameError::Left)?;
        /// Dropped while it waits, the end is taken back.
        struct Guard<'a>(&'a Arc<Driver>, Option<u64>);
        impl Drop for Guard<'_> {
            fn drop(&mut self) {
                if let Some(number) = self.1 {
                    self.0.give_up(number);
                }
            }
        }
        let mut guard = Guard(self, Some(number));
        let answer = match options.patience {
            None => answer.await,
            Some(patience) => crate::world::within(patience, answer)
                .await
                .ok_or_else(|| NameError::TimedOut { name: name.to_owned(), patience })?,
        };
        guard.1 = None;
        answer.unwrap_or(Err(NameError::Left)).map(|()| number)
    }
}
