//! Declares ends, and handles what becomes of them.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use dunlin_core::Reason;
use dunlin_core::agent::Missing;
use dunlin_core::carrier::{Agent, AnyInlet};
use dunlin_proto::Source;
use dunlin_proto::difference;
use dunlin_proto::id::{ChannelId, NodeId};
use dunlin_proto::names::{DirectoryEvent, EntryState, WaitingHere};
use dunlin_proto::wire::{Declaration, Face, Room, Terms, Which};
use tokio::sync::oneshot;

use super::Hub;
use super::end::{DeclaredEnd, Half, Kept, More, Options, Outlets, Role, set_unmatched};
use super::guests::numbered;
use super::idle::Unmet;
use super::joining::Addresses;
use crate::net::{BoxFuture, compiled_here};
use crate::node::bridge::words::full_poison;
use crate::node::bridge::{ReceivingBridge, SendingBridge};
use crate::node::budget::Budget;
use crate::node::error::{Advice, NameError, at};
use crate::node::events::{Limit, NodeEvent};
use crate::node::id;
use crate::node::message::{OVERHEAD, WINDOW};
use crate::node::name::{RESERVED, describe, split, word};
use crate::node::peer::{NameConflict, Peer};
use crate::node::state::{Bridge, Driver, Locked, Told};

impl Hub {
    pub(super) fn declare(
        &mut self,
        cx: &mut Locked<'_>,
        name: &str,
        options: Options,
        schema: Bytes,
        half: Half,
    ) -> (u64, oneshot::Receiver<Result<(), NameError>>) {
        let (told, answer) = oneshot::channel();
        let number = self.next;
        self.next += 1;
        let (at, bare) = split(name);
        let Options { face, shared, expects, .. } = options;
        let options = Kept::from(options);
        let declaration = self.share(Declaration { face, shared, expects, schema });
        let channel = id::channel();
        let (name, at) = (Arc::<str>::from(bare), at.map(Box::from));
        let is_home = !matches!(half, Half::Sender(_) | Half::Client(_));
        let has_stirred = self.waits(cx, number, options, &half).is_ready();
        let role = match half {
            Half::Sender(outlet) => Role::Sender(Some(outlet)),
            Half::Receiver(inlet) => {
                self.belongs(channel, Some(number), face);
                open_home(cx, channel, options, &declaration, &inlet);
                Role::Receiver(Some(inlet))
            }
            Half::Client(agents) => Role::Client(Some(agents.into_iter().map(Some).collect())),
            Half::Server(agents) => {
                let agents = numbered(channel, agents);
                Role::Server(Some(self.open_homes(cx, Some(number), options, &declaration, agents, None)))
            }
            Half::Acceptor(accept) => Role::Acceptor(Box::new(accept)),
        };
        let is_own = is_home && at.is_none();
        let more = at.map(|at| Box::new(More { at: Some(at), ..More::default() }));
        let end = DeclaredEnd {
            name: name.clone(),
            options,
            declaration: declaration.clone(),
            role,
            channel,
            answer: Some(told),
            more,
        };
        self.list(cx, number, Box::new(end));
        if has_stirred {
            self.rouse(cx, number);
        }
        if is_own && (options.own || self.service.knows(bare)) {
            self.own.declare(cx.now, number, name, declaration, channel);
        } else if is_own {
            self.unasked.insert((name, number));
        }
        (number, answer)
    }

    /// Shares the memory of equal declarations made one after the other.
    fn share(&mut self, declaration: Declaration) -> Arc<Declaration> {
        match &self.declared {
            Some(shared) if **shared == declaration => shared.clone(),
            _ => self.declared.insert(Arc::new(declaration)).clone(),
        }
    }

    /// A node that has dialled this one asks for a name: the ends of this node with that name are declared
    /// here, before that node's. Returns the steps that their comparisons have taken.
    pub(super) fn asked_for(&mut self, cx: &mut Locked<'_>, name: &str) -> u64 {
        loop {
            let first = (Bound::Included((Arc::from(name), 0)), Bound::Unbounded);
            let Some(unasked) = self.unasked.range(first).next().filter(|(other, _)| **other == *name).cloned() else {
                break;
            };
            self.unasked.remove(&unasked);
            let (name, number) = unasked;
            let Some(end) = self.ends.get(number) else { continue };
            self.own.declare(cx.now, number, name, end.declaration.clone(), end.channel);
            if self.directory.end(number).is_some_and(|end| end.joined) {
                self.own.attached(number);
            }
        }
        let mut steps = 0;
        while let Some((_, said)) = self.own.poll_said() {
            steps += self.service.heard(cx.now, self.me, said, &mut |_| Ok(()));
        }
        steps
    }

    /// Declares the end under this number where its name belongs.
    pub(super) fn list(&mut self, cx: &mut Locked<'_>, number: u64, end: Box<DeclaredEnd>) {
        let (name, declaration, channel) = (end.name.clone(), end.declaration.clone(), end.channel);
        match end.at() {
            None if end.options.own => {}
            None => self.directory.declare(cx.now, number, name, declaration, channel),
            Some(address) => {
                let directory = self.others.get_or_default(address.to_owned());
                directory.declare(cx.now, number, name, declaration, channel);
                if directory.server().is_none() {
                    cx.state.machine.introduce(address.to_owned());
                }
            }
        }
        self.ends.insert(number, end);
        self.look_at_client(cx, number);
    }

    /// Assigns the channel to this end, which ends with the last of its channels. A guest's channels belong
    /// to no end: the acceptor stays.
    fn belongs(&mut self, channel: ChannelId, number: Option<u64>, face: Face) {
        match (number, face) {
            (None, _) => {}
            (Some(number), Face::Sender | Face::Receiver) => self.channels.insert_alone(channel, number),
            (Some(number), _) => self.channels.insert(channel, number),
        }
    }

    /// Opens the homes among a bundle's channels; `from`: the node of the other face, once it is known.
    /// Returns the other channels, which have their homes elsewhere.
    pub(super) fn open_homes(
        &mut self,
        cx: &mut Locked<'_>,
        number: Option<u64>,
        options: Kept,
        declaration: &Arc<Declaration>,
        agents: impl Iterator<Item = (ChannelId, Agent)>,
        from: Option<NodeId>,
    ) -> Outlets {
        let mut outlets = Vec::new();
        for (channel, agent) in agents {
            match agent {
                Agent::Inlet(inlet) => {
                    self.belongs(channel, number, declaration.face);
                    let (budget, credits) = open_home(cx, channel, options, declaration, &inlet);
                    let bridge = ReceivingBridge::new(inlet, credits, budget, options.encoding, None);
                    cx.driver.stretch(cx.state, channel, None, Box::new(bridge));
                    if let Some(from) = from {
                        cx.state.machine.await_half(channel, from);
                    }
                }
                Agent::Outlet(outlet) => outlets.push((channel, outlet)),
                Agent::Several(_) => debug_assert!(false, "`agents_of` refuses it"),
            }
        }
        outlets
    }

    pub(super) fn attach(
        &mut self,
        cx: &mut Locked<'_>,
        number: Option<u64>,
        channel: ChannelId,
        home: NodeId,
        mut bridge: Box<dyn Bridge>,
        declaration: Declaration,
    ) {
        self.belongs(channel, number, declaration.face);
        let attached = cx.state.machine.attach(cx.now, channel, home, declaration.clone());
        debug_assert!(attached.is_ok(), "the schema is short");
        if let Some(bytes) = bridge.value_bytes() {
            cx.state.machine.expect_values(channel, bytes);
        }
        bridge.connected(home, declaration);
        cx.driver.stretch(cx.state, channel, Some(home), bridge);
    }

    pub(super) fn attach_all(
        &mut self,
        cx: &mut Locked<'_>,
        number: Option<u64>,
        home: NodeId,
        outlets: Outlets,
        options: Kept,
        declaration: &Declaration,
    ) {
        // All of them share the schema, which is sent once.
        let mut said = declaration.clone();
        for (channel, outlet) in outlets {
            let bridge = SendingBridge::new(outlet, Some(home), options.encoding, options.fail_fast);
            self.attach(cx, number, channel, home, Box::new(bridge), said.clone());
            said.schema = Bytes::new();
        }
    }

    pub(crate) fn undeclare(&mut self, cx: &mut Locked<'_>, number: u64) {
        // Its home, if it has one, ends with the end itself, by its bridge.
        self.rouse(cx, number);
        self.own.undeclare(number);
        let end = self.ends.remove(number);
        if let Some(end) = &end {
            self.unasked.remove(&(end.name.clone(), number));
        }
        self.unlist(number, end.as_ref().and_then(|end| end.at()));
    }

    /// Withdraws the declaration under this number where it was made: at this address, or at the
    /// application's name service.
    pub(super) fn unlist(&mut self, number: u64, at: Option<&str>) {
        let directory = match at {
            Some(address) => self.others.get_mut(address),
            None => Some(&mut self.directory),
        };
        if let Some(directory) = directory {
            directory.undeclare(number);
        }
    }

    /// A sending half elsewhere has attached to a home here.
    pub(crate) fn attached(&mut self, cx: &mut Locked<'_>, channel: ChannelId) {
        if let Some(number) = self.channels.end_of(channel) {
            self.rouse(cx, number);
            if let Some(end) = self.ends.get_mut(number) {
                end.is_answered();
            }
            self.directory.attached(number);
            self.own.attached(number);
            self.others.values_mut().for_each(|directory| directory.attached(number));
        }
    }

    /// The name of the end that this channel belongs to.
    pub(crate) fn name_of(&self, channel: ChannelId) -> Option<String> {
        self.channels.end_of(channel).and_then(|number| self.ends.get(number)).map(|end| end.name.to_string())
    }

    /// The bridge of a channel has ended.
    pub(crate) fn over(&mut self, cx: &mut Locked<'_>, channel: ChannelId) {
        if let Some(number) = self.channels.remove(channel)
            && self.channels.of(number).next().is_none()
        {
            self.undeclare(cx, number);
        }
    }

    /// Resolves when the end is no longer declared.
    pub(crate) fn when_over(&mut self, number: u64) -> oneshot::Receiver<()> {
        let (tell, over) = oneshot::channel();
        if let Some(end) = self.ends.get_mut(number) {
            end.more().over = Some(tell);
        }
        over
    }

    fn answer(&mut self, cx: &mut Locked<'_>, number: u64) {
        if let Some(answer) = self.ends.get_mut(number).and_then(|end| end.answer.take())
            && answer.send(Ok(())).is_err()
        {
            // The caller has given up.
            self.undeclare(cx, number);
        }
    }

    /// Reports an event of a declaration by `node`. `service`: the name service that reported it, if it is
    /// not this node.
    fn tell_from(&mut self, cx: &Locked<'_>, event: NodeEvent, node: NodeId, service: Option<NodeId>) {
        let machine = &cx.state.machine;
        match [Some(node), service].into_iter().flatten().find(|node| machine.carried_by(*node).is_some()) {
            Some(node) => self.tell_of(event, machine.source_of(node)),
            None if node == self.me.node => self.tell(event),
            None => self.tell_of(event, Source::Unknown),
        }
    }

    /// The declaration has failed.
    pub(super) fn fail(&mut self, cx: &mut Locked<'_>, number: u64, error: NameError) {
        let Some(end) = self.ends.get_mut(number) else { return };
        let text = error.to_string();
        let told = end.answer.take().is_some_and(|answer| answer.send(Err(error)).is_ok());
        if !told {
            // The caller already has the end: its operations fail with this error.
            self.rouse(cx, number);
            let Some(end) = self.ends.get_mut(number) else { return };
            let channel = end.channel;
            match &mut end.role {
                Role::Client(Some(agents)) => agents.iter().flatten().for_each(|agent| poison(agent, &text)),
                Role::Sender(_) | Role::Receiver(_) | Role::Server(_) => {
                    cx.state.machine.end_home(cx.now, channel, full_poison(&text));
                    let which = if matches!(end.role, Role::Sender(_)) { Which::Sender } else { Which::Receiver };
                    cx.state.take_bridge((channel, which), move |_, mut bridge| bridge.poison(&text));
                }
                Role::Client(None) | Role::Acceptor(_) => {}
            }
        }
        self.undeclare(cx, number);
    }

    /// `service`: the name service that sent the event, if it is another node.
    pub(super) fn event(&mut self, cx: &mut Locked<'_>, service: Option<NodeId>, event: DirectoryEvent) {
        // The comparison counts against the name service, which caused it.
        let compare = |cx: &mut Locked<'_>, mine: &Declaration, other: &Declaration| match service {
            Some(service) => cx.state.machine.difference(cx.now, service, mine, other),
            None => difference(mine, other),
        };
        match event {
            DirectoryEvent::Waiting { number } => self.answer(cx, number),
            DirectoryEvent::Found { number, partner, addresses, channel, face } => {
                self.is_matched(cx, number);
                let addresses = Addresses { by: service.unwrap_or(self.me.node), addresses };
                self.found(cx, number, partner, addresses, channel, &face);
                self.answer(cx, number);
            }
            DirectoryEvent::Refused { number, there, holder, addresses } => {
                if let Some(end) = self.ends.get(number) {
                    let (name, mine, here) = (end.name.to_string(), &*end.declaration, holder == self.me);
                    let (holder, address) =
                        (holder.node.to_string(), addresses.into_iter().next().map(String::into_boxed_str));
                    let differs = compare(cx, mine, &there);
                    let error = if let Some(difference) = differs {
                        NameError::Mismatch { name, difference: Box::new(difference), holder, address }
                    } else if mine.face == there.face && mine.shared && there.shared {
                        NameError::Shared { name, what: word(mine.face), holder, address, here }
                    } else {
                        let next = advice(mine, &there);
                        let (mine, theirs) = (describe(mine).into_boxed_str(), describe(&there).into_boxed_str());
                        NameError::Refused { name, mine, theirs, holder, address, next }
                    };
                    let (name, why) = (end.name.to_string(), error.clone());
                    // A main node's repeated attempts to regain its name are not reported.
                    if !end.options.reserved || end.answer.is_none() {
                        self.tell(match &why {
                            NameError::Mismatch { difference, .. } => {
                                NodeEvent::Mismatch { name: Some(name), difference: difference.to_string() }
                            }
                            _ => NodeEvent::Refused { name, why },
                        });
                    }
                    self.fail(cx, number, error);
                }
            }
            DirectoryEvent::Unfit { number, refused, by, addresses } => {
                if let Some(end) = self.ends.get_mut(number) {
                    let mine = &*end.declaration;
                    let differs = compare(cx, mine, &refused);
                    let differs = differs.map(|difference| difference.to_string());
                    let differs = differs.unwrap_or_else(|| format!("this node has {}", describe(mine)));
                    let node = at(&by.node.to_string(), addresses.first().map(String::as_str));
                    let text = format!("node {node} declared {}, which was refused: {differs}", describe(&refused));
                    if end.unfit() != Some(&text) {
                        end.more().unfit = Some(text.clone());
                        let name = Some(shown(&end.name).to_owned());
                        self.tell_from(cx, NodeEvent::Mismatch { name, difference: text }, by.node, service);
                    }
                }
            }
            DirectoryEvent::Conflict { number, there, holder } => {
                if let Some(end) = self.ends.get_mut(number) {
                    let (mine, theirs) = (describe(&end.declaration), describe(&there));
                    let conflict = NameConflict { name: end.name.to_string(), mine, theirs, holder: Peer(holder) };
                    end.more().conflicts.push(conflict.clone());
                    self.tell_from(cx, NodeEvent::Conflict(conflict), holder.node, service);
                }
            }
            DirectoryEvent::BadName { number } => {
                if let Some(end) = self.ends.get(number) {
                    let error = NameError::BadName(end.name.to_string());
                    self.fail(cx, number, error);
                }
            }
            DirectoryEvent::Full { number, room, max } => {
                if let Some(end) = self.ends.get(number) {
                    let what = self::room(room);
                    let name = end.name.to_string();
                    self.tell(NodeEvent::Limit(Limit::Names { name: name.clone(), what, max }));
                    let error = NameError::Full { name, what, max };
                    self.fail(cx, number, error);
                }
            }
        }
    }
}

/// The kind of room that a name service lacks.
pub(super) fn room(room: Room) -> &'static str {
    match room {
        Room::Declarations => "declarations of one node",
        Room::Names => "names",
        Room::Bytes => "bytes of names and schemas of one node",
        Room::Share => "names of one address or user (three quarters of all names are taken)",
        Room::Memory => "bytes kept for other nodes (`held_max_bytes` of the node that serves the names)",
    }
}

impl Hub {
    /// A client waits for another server: as [`waits`](Self::waits).
    pub(super) fn is_unmatched_again(&self, cx: &Locked<'_>, number: u64) {
        if let Some(Role::Client(Some(agents))) = self.ends.get(number).map(|end| &end.role) {
            let missing = Unmet::new(cx.driver, number) as Arc<dyn Missing>;
            agents.iter().flatten().for_each(|agent| set_unmatched(agent, Some(&missing)));
        }
    }

    /// The reason that a deadline at this end gives. `None`: nothing is missing, or the end's user gives the
    /// reason itself (a handle of a shared end, or the main node).
    pub(super) fn what_is_missing(&self, cx: &Locked<'_>, number: u64) -> Option<Reason> {
        let end = self.ends.get(number).filter(|end| !end.options.reserved)?;
        let directory = match end.at() {
            Some(address) => self.others.get(address)?,
            None => &self.directory,
        };
        // An acceptor is not in the list of waiting ends: it knows by itself whether a client has come.
        if !matches!(end.role, Role::Acceptor(_)) && !directory.end(number).is_some_and(|end| end.waits) {
            return None;
        }
        let missing = match end.declaration.face {
            Face::Sender => "receiver",
            Face::Receiver => "sender",
            Face::Client => "server",
            Face::Server | Face::Acceptor => "client",
        };
        let (name, mine) = (&end.name, word(end.declaration.face));
        let application = cx.driver.log.application();
        let place = match (end.at(), &self.names_at) {
            (Some(address), _) => format!("at {address}"),
            (None, Some(address)) => format!("in application {application:?}, names at {address}"),
            (None, None) => format!("in application {application:?}"),
        };
        let text = match end.unfit() {
            None => format!(
                "the deadline passed, and no {missing} has declared {name:?}: only this {mine} is declared, {place}. Start the program \
                 that declares the {missing}, or check that it uses this name, application and name service"
            ),
            Some(unfit) => format!(
                "the deadline passed, and no {missing} that fits has declared {name:?}, {place}; {unfit}. Use the \
                 same type and the same sharing at both ends, or choose another name"
            ),
        };
        Some(text.as_str().into())
    }

    /// What blocks an end that a reached name service has not admitted.
    fn what_is_before(&self, cx: &Locked<'_>, number: u64) -> Option<Box<str>> {
        let end = self.ends.get(number).filter(|end| end.at().is_none())?;
        let service = self.directory.server()?;
        if service != self.me.node && cx.state.machine.carried_by(service).is_none() {
            return None;
        }
        let reached = "the name service was reached but has not admitted the end";
        if end.declaration.face != Face::Client {
            let why = "the name service has just started, or the node of an earlier end has lost its connection and \
                       may return";
            return Some(format!("{reached}: {why}").into());
        }
        // The name service notifies only the ends that it asks to wait; it may be this node.
        let known = self.service.entries_from(&end.name).take_while(|known| *known.name == *end.name);
        let mut clients =
            known.filter(|known| known.face.face == Face::Client && known.state != EntryState::Unadmitted);
        let of_this_node = |other: WaitingHere<'_>| {
            other.number != number && *other.name == *end.name && other.face == Face::Client && other.admitted
        };
        let before = match clients.next() {
            Some(client) if client.who != self.me => {
                let node = at(&client.who.node.to_string(), client.addresses.first().map(String::as_str));
                format!("a client of this name at node {node} is ahead")
            }
            None if !self.directory.waiting().any(of_this_node) => {
                "another client of this name is ahead (see `dunlin names list`), or has lost its connection and may \
                 return"
                    .to_owned()
            }
            _ => "another client of this name at this node is ahead".to_owned(),
        };
        let next = "Start the program that declares the server, if no server is running. A server has one client; an \
                    acceptor (`Node::acceptor`) has any number";
        Some(format!("{reached}: {before}. {next}").into())
    }

    /// The other face of this end is found: deadlines no longer report it as missing.
    fn is_matched(&mut self, cx: &mut Locked<'_>, number: u64) {
        self.rouse(cx, number);
        let Some(end) = self.ends.get(number) else { return };
        let mut tell = |channel, which| cx.state.tell((channel, which), Told::Matched);
        match &end.role {
            Role::Sender(_) => tell(end.channel, Which::Sender),
            Role::Receiver(_) => tell(end.channel, Which::Receiver),
            Role::Client(agents) => agents.iter().flatten().flatten().for_each(|agent| set_unmatched(agent, None)),
            Role::Server(outlets) => {
                self.channels.of(number).for_each(|channel| tell(channel, Which::Receiver));
                outlets.iter().flatten().for_each(|(_, outlet)| outlet.unmatched(None));
            }
            Role::Acceptor(acceptance) => acceptance.unmatched(None),
        }
    }
}

/// Opens the home of a channel whose receiver is here. Returns its bridge's initial budget and credits.
fn open_home(
    cx: &mut Locked<'_>,
    channel: ChannelId,
    options: Kept,
    declaration: &Arc<Declaration>,
    inlet: &AnyInlet,
) -> (Budget, u32) {
    let budget = Budget::of(inlet, cx.state.buffered_max);
    let value_max = cx.state.machine.value_max().min(options.message_max.saturating_add(OVERHEAD));
    // Anew: a client that is declared again has promised places to a lost server.
    let terms = Terms { window: WINDOW, credits: inlet.credits_anew(0), value_max };
    let opened = cx.state.machine.open_home(channel, terms, declaration.clone(), false);
    debug_assert!(opened.is_ok(), "the schema is short");
    (budget, terms.credits)
}

/// A name as the program wrote it: handles of a shared end are declared under names beside its own.
fn shown(name: &str) -> &str {
    let handles = name.strip_prefix("dunlin.handles.").and_then(|rest| rest.split_once('.'));
    handles.map_or(name, |(_, name)| name)
}

/// What to do if the name is taken.
fn advice(mine: &Declaration, theirs: &Declaration) -> Advice {
    let is_home = |face| matches!(face, Face::Receiver | Face::Server | Face::Acceptor);
    let is_channel = |face| matches!(face, Face::Sender | Face::Receiver);
    match mine.face {
        face if is_channel(face) != is_channel(theirs.face) => Advice::OneKind,
        face if is_home(face) != is_home(theirs.face) => Advice::SameSharing,
        Face::Sender | Face::Receiver => Advice::Share,
        Face::Client => Advice::Accept,
        Face::Server | Face::Acceptor => Advice::OtherName,
    }
}

fn poison(agent: &Agent, text: &str) {
    match agent {
        Agent::Outlet(outlet) => outlet.poison(text.into()),
        Agent::Inlet(inlet) => inlet.poison(text.into()),
        Agent::Several(agents) => agents.agents.iter().for_each(|agent| poison(agent, text)),
    }
}

impl Driver {
    /// Declares an end, and waits until it is admitted. Returns its number.
    pub(crate) fn declare<'a>(
        self: &'a Arc<Self>,
        name: &'a str,
        options: Options,
        schema: Bytes,
        half: Half,
    ) -> BoxFuture<'a, Result<u64, NameError>> {
        compiled_here(self.admitted(name, options, schema, half))
    }

    async fn admitted(
        self: &Arc<Self>,
        name: &str,
        options: Options,
        schema: Bytes,
        half: Half,
    ) -> Result<u64, NameError> {
        if !options.reserved && split(name).1.starts_with(RESERVED) {
            return Err(NameError::Reserved(name.to_owned()));
        }
        let (number, answer) =
            self.with_hub_now(|hub, cx| Some(hub.declare(cx, name, options, schema, half))).ok_or(NameError::Left)?;
        /// Withdraws the end if it is dropped while it waits.
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
            Some(patience) => crate::world::within(patience, answer).await.ok_or_else(|| {
                let asks_names = split(name).0.is_none();
                let without_names = self.with_hub_now(|hub, _| hub.without_names()).filter(|_| asks_names);
                let before = self.with_hub_now(|hub, cx| hub.what_is_before(cx, number));
                NameError::TimedOut { name: name.to_owned(), patience, without_names, before }
            })?,
        };
        guard.1 = None;
        answer.unwrap_or(Err(NameError::Left)).map(|()| number)
    }
}
