//! The server's side: which node has declared what, and which ends are joined.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dunlin_sorted::{SortedMap, SortedSet};

use super::service::{EntryState, NameEntry, NameService};
use super::{is_home, is_name, is_of_bundle};
use crate::comparisons::Comparisons;
use crate::connection::Down;
use crate::id::{ChannelId, Incarnation, Life, NodeId};
use crate::source::{Shares, Source, share};
use crate::time::Time;
use crate::wire::{Declaration, Face, Names, Room, Status, limits};

/// The settings of a [`Registry`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegistryConfig {
    /// How long a declaration keeps its place when the connection to its node has died, and how long a server
    /// that takes over waits for all nodes to come back.
    pub lease: Duration,
    /// How many declarations a node may have.
    pub declarations_max: usize,
    /// How many names there may be. Sources share them: see [`has_place`](crate::source::has_place).
    pub names_max: usize,
    /// How many bytes the names and schemas of one node may take.
    pub bytes_max: usize,
    /// Whether a face that all declare shared may have several holders. If not, it has one, which may share
    /// it at its own node.
    pub several_holders: bool,
}

impl Default for RegistryConfig {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(3),
            declarations_max: 1 << 14,
            names_max: 1 << 16,
            bytes_max: 8 << 20,
            several_holders: true,
        }
    }
}

/// A declaration whose other face has not been found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingEnd<'a> {
    /// The name.
    pub name: &'a str,
    /// The face that waits.
    pub face: Face,
    /// The node that has it.
    pub who: Life,
    /// When it was declared here.
    pub since: Time,
}

#[derive(Debug)]
struct Declared {
    life: Life,
    number: u64,
    face: Declaration,
    channel: ChannelId,
    since: Time,
    /// `New`: not admitted yet.
    status: Status,
    /// Set if the connection to its node is dead: until when it keeps its place.
    lease: Option<Time>,
    /// It has been sent an answer since it was last declared.
    answered: bool,
    /// The nodes that were reported to it for a declaration that does not fit.
    unfit: Vec<NodeId>,
    /// The source that the name counts for: the oldest remaining declaration of the name has it.
    counts_for: Option<Source>,
    /// Its node reports that it was joined elsewhere, and it does not fit earlier declarations here. It keeps
    /// what it has, but the server ignores it when it checks and joins others: otherwise a false report could
    /// shut all others out of a name, or reserve them for its own node.
    apart: bool,
}

impl Declared {
    fn is_home(&self) -> bool {
        is_home(self.face.face)
    }

    fn is_admitted(&self) -> bool {
        self.status != Status::New
    }

    /// Whether it can be joined, if it fits.
    fn is_free(&self) -> bool {
        self.status == Status::Known && self.lease.is_none()
    }

    /// The channel of the home that it is joined to.
    fn joined_to(&self) -> Option<ChannelId> {
        match self.status {
            Status::Joined(channel) if !self.is_home() => Some(channel),
            _ => None,
        }
    }

    /// Whether it is joined to that home.
    fn is_joined_to(&self, home: &Self) -> bool {
        self.joined_to() == Some(home.channel)
    }

    /// Whether to report to it that this declaration does not fit. Another node that wants the same face is
    /// no news; and a node that declares again and again is reported once.
    fn is_to_hear_of(&self, refused: &Self) -> bool {
        let other_side = is_home(self.face.face) != is_home(refused.face.face);
        let other_kind = is_of_bundle(self.face.face) != is_of_bundle(refused.face.face);
        (other_side || other_kind)
            && self.lease.is_none()
            && self.unfit.len() < UNFIT_MAX
            && !self.unfit.contains(&refused.life.node)
    }

    fn bytes(&self, name: &str) -> usize {
        name.len() + self.face.schema.len()
    }
}

/// How many ends that stand apart are examined when another one has gone: each examines the whole name.
const REJOINED_MAX: usize = 8;

/// How many nodes at most are reported to one declaration because theirs does not fit it.
const UNFIT_MAX: usize = 16;

/// What a declaration takes besides the bytes of its name and its schema: mostly its record, in a list with
/// room for four. 1,145 bytes were counted for each of 8,000 with a name of 8 bytes.
const DECLARATION: u64 = 1200;

/// A node with declarations.
#[derive(Debug)]
struct Member {
    incarnation: Incarnation,
    addresses: Vec<String>,
    source: Source,
    /// Its declarations, by number: their names.
    ends: SortedMap<u64, Arc<str>>,
    bytes: usize,
    /// The connection to it is dead.
    lost: bool,
}

fn cost(name: &str, face: &Declaration) -> u64 {
    DECLARATION + (name.len() + face.schema.len()) as u64
}

/// Whether an end may have its face of a name.
enum Verdict {
    Fits,
    /// Not decidable yet.
    Later,
    /// The place of the declaration in its way.
    Refused(usize),
}

/// One server of names. See [the module](super).
///
/// ```
/// use bytes::Bytes;
/// use dunlin_proto::Source;
/// use dunlin_proto::id::{ChannelId, Incarnation, Life, NodeId};
/// use dunlin_proto::names::{NameService, Registry, RegistryConfig};
/// use dunlin_proto::time::Time;
/// use dunlin_proto::wire::{Declaration, Expected, Face, Names, Status};
///
/// let life = |n| Life { node: NodeId(n), incarnation: Incarnation(1) };
/// let declare = |face, channel| Names::Declare {
///     number: 1,
///     name: "tides".into(),
///     channel: ChannelId(channel),
///     face: Declaration { face, shared: false, expects: Expected::Unknown, schema: Bytes::new() },
///     status: Status::New,
/// };
/// let mut registry = Registry::new(RegistryConfig::default());
/// registry.met(life(2), &["tcp://sea:7400".into()], Source::Unknown);
/// let mut has_room = |_| Ok(());
///
/// registry.heard(Time(0), life(1), declare(Face::Sender, 0), &mut has_room);
/// assert_eq!(registry.poll(), Some((life(1), Names::Waiting { number: 1 })));
///
/// registry.heard(Time(1), life(2), declare(Face::Receiver, 7), &mut has_room);
/// let (to, found) = registry.poll().unwrap();
/// assert_eq!(to, life(1));
/// let Names::Found { channel, addresses, .. } = found else { unreachable!() };
/// assert_eq!((channel, &addresses[..]), (ChannelId(7), &["tcp://sea:7400".to_owned()][..]));
/// assert_eq!(registry.poll().unwrap().0, life(2));
/// ```
#[derive(Debug)]
pub struct Registry {
    config: RegistryConfig,
    /// Until then no new declaration is admitted, and none is joined.
    quiet_until: Option<Time>,
    /// No lease ends before this; perhaps none ends then either.
    due: Option<Time>,
    members: SortedMap<NodeId, Member>,
    /// Declarations in the order of arrival.
    names: SortedMap<Arc<str>, Vec<Declared>>,
    /// How many names each source has.
    shares: Shares,
    answers: VecDeque<(Life, Names)>,
    comparisons: Comparisons,
}

impl Registry {
    /// The first server of its names.
    pub fn new(config: RegistryConfig) -> Self {
        let (members, names) = (SortedMap::new(), SortedMap::new());
        let (shares, answers, comparisons) = (Shares::default(), VecDeque::new(), Comparisons::default());
        Self { config, quiet_until: None, due: None, members, names, shares, answers, comparisons }
    }

    /// A server that succeeds another one: for one lease, declarations that the other had admitted take
    /// precedence.
    pub fn taking_over(config: RegistryConfig, now: Time) -> Self {
        let mut registry = Self::new(config);
        registry.take_over(now);
        registry
    }

    /// How many declarations this server has.
    pub fn len(&self) -> usize {
        self.members.values().map(|member| member.ends.len()).sum()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The declarations that wait for their other face, by name. Those on lease are not listed, nor are
    /// acceptors, which do not wait.
    pub fn waiting(&self) -> impl Iterator<Item = WaitingEnd<'_>> {
        self.names.iter().flat_map(|(name, ends)| {
            let waits = |end: &Declared| {
                end.lease.is_none()
                    && match end.status {
                        Status::New => true,
                        Status::Known if end.face.face == Face::Acceptor => false,
                        Status::Known => !ends.iter().any(|other| end.is_home() && other.is_joined_to(end)),
                        Status::Joined(_) => false,
                    }
            };
            ends.iter().filter(move |end| waits(end)).map(move |end| WaitingEnd {
                name,
                face: end.face.face,
                who: end.life,
                since: end.since,
            })
        })
    }
}

impl NameService for Registry {
    fn take_over(&mut self, now: Time) {
        let until = now + self.config.lease;
        self.quiet_until = Some(until);
        self.due = Some(self.due.map_or(until, |due| due.min(until)));
    }

    fn met(&mut self, life: Life, addresses: &[String], source: Source) {
        if let Some(member) = self.member(life) {
            let fits = addresses.iter().filter(|address| address.len() <= limits::ADDRESS);
            member.addresses = fits.take(limits::ADDRESSES).cloned().collect();
            member.source = source;
        }
    }

    fn lost(&mut self, now: Time, node: NodeId, why: &Down) {
        let Some(member) = self.members.get_mut(&node) else { return };
        member.lost = true;
        if matches!(why, Down::Left | Down::Restarted) {
            return self.forget(node);
        }
        let until = now + self.config.lease;
        for name in member.ends.values() {
            let ends = self.names.get_mut(name).into_iter().flatten();
            ends.filter(|end| end.life.node == node && end.lease.is_none()).for_each(|end| end.lease = Some(until));
        }
        if member.ends.is_empty() {
            self.members.remove(&node);
        } else {
            self.due = Some(self.due.map_or(until, |due| due.min(until)));
        }
    }

    fn heard(&mut self, now: Time, from: Life, said: Names, has_room: &mut dyn FnMut(u64) -> Result<(), u64>) -> u64 {
        self.tick(now);
        if self.member(from).is_some() && self.has_memory(from, &said, has_room) {
            self.comparisons.begin_frame();
            self.handle(now, from, said);
        }
        self.comparisons.take_steps()
    }

    fn poll(&mut self) -> Option<(Life, Names)> {
        self.answers.pop_front()
    }

    fn tick(&mut self, now: Time) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        let was_quiet = self.quiet_until.is_some_and(|until| until <= now);
        if was_quiet {
            self.quiet_until = None;
        }
        let is_over = |end: &Declared| end.lease.is_some_and(|until| until <= now);
        // If no lease ends, nothing can be settled that could not be before.
        let concerned = self.names.iter().filter(|(_, ends)| was_quiet || ends.iter().any(is_over));
        let names: Vec<Arc<str>> = concerned.map(|(name, _)| name.clone()).collect();
        for name in names {
            self.remove_all(&name, is_over);
            self.comparisons.begin_frame();
            self.settle(&name);
        }
        self.members.retain(|_, member| !member.lost || !member.ends.is_empty());
        self.due = self.names.values().flatten().filter_map(|end| end.lease).chain(self.quiet_until).min();
    }

    fn next_tick(&self) -> Option<Time> {
        self.due
    }

    fn cost_of(&self, node: NodeId) -> u64 {
        let member = self.members.get(&node);
        member.map_or(0, |member| member.ends.len() as u64 * DECLARATION + member.bytes as u64)
    }

    fn entries_from<'a>(&'a self, first: &str) -> Box<dyn Iterator<Item = NameEntry<'a>> + 'a> {
        let names = self.names.range::<str>((Bound::Included(first), Bound::Unbounded));
        Box::new(names.flat_map(move |(name, ends)| {
            ends.iter().map(move |end| {
                let is_joined = || ends.iter().any(|other| end.is_home() && other.is_joined_to(end));
                let state = match end.status {
                    _ if end.lease.is_some() => EntryState::Away,
                    Status::New => EntryState::Unadmitted,
                    Status::Known if end.face.face == Face::Acceptor => EntryState::Accepting,
                    Status::Known if !is_joined() => EntryState::Waiting,
                    Status::Known | Status::Joined(_) => EntryState::Joined,
                };
                let addresses = self.members.get(&end.life.node).map_or(&[][..], |member| &member.addresses[..]);
                NameEntry { name, face: &end.face, who: end.life, addresses, since: end.since, state }
            })
        }))
    }

    fn knows(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }
}

impl Registry {
    /// Whether there is memory for what this message declares. If not, the declaration is refused.
    fn has_memory(&mut self, from: Life, said: &Names, has_room: &mut dyn FnMut(u64) -> Result<(), u64>) -> bool {
        let Names::Declare { number, name, face, .. } = said else { return true };
        let there = self.find(from, *number).map_or(0, |(name, at)| cost(&name, &self.names[&name][at].face));
        let all = self.cost_of(from.node) - there + cost(name, face);
        let Err(max) = has_room(all) else { return true };
        self.undeclare(from, *number);
        self.answers.push_back((from, Names::Full { number: *number, room: Room::Memory, max }));
        false
    }

    fn handle(&mut self, now: Time, from: Life, said: Names) {
        match said {
            Names::Declare { number, name, channel, face, status } => {
                self.declare(now, from, number, name, channel, face, status);
            }
            Names::Undeclare { number } => self.undeclare(from, number),
            // For a declarer, or for an acceptor's node.
            Names::Found { .. }
            | Names::Refused { .. }
            | Names::Unfit { .. }
            | Names::BadName { .. }
            | Names::Full { .. }
            | Names::Waiting { .. }
            | Names::Gone { .. }
            | Names::Guest { .. }
            | Names::Elsewhere => {}
        }
    }

    // Members.

    /// The member of this life; `None` if it is a former one.
    fn member(&mut self, life: Life) -> Option<&mut Member> {
        if self.members.get(&life.node).is_some_and(|member| member.incarnation < life.incarnation) {
            self.forget(life.node);
        }
        let member = self.members.get_or_insert_with(life.node, || Member {
            incarnation: life.incarnation,
            addresses: Vec::new(),
            source: Source::Unknown,
            ends: SortedMap::new(),
            bytes: 0,
            lost: false,
        });
        (member.incarnation == life.incarnation).then(|| {
            member.lost = false;
            member
        })
    }

    /// Removes a member and all it has declared.
    fn forget(&mut self, node: NodeId) {
        let Some(member) = self.members.get(&node) else { return };
        // What follows does not depend on what the last message has left of its budget.
        self.comparisons.begin_frame();
        let life = Life { node, incarnation: member.incarnation };
        let names: SortedSet<Arc<str>> = member.ends.values().cloned().collect();
        names.iter().for_each(|name| self.remove_all(name, |end| end.life == life));
        self.members.remove(&node);
        names.iter().for_each(|name| self.settle(name));
    }

    fn find(&self, life: Life, number: u64) -> Option<(Arc<str>, usize)> {
        let name = self.members.get(&life.node)?.ends.get(&number)?;
        let at = self.names.get(name)?.iter().position(|end| end.life == life && end.number == number)?;
        Some((name.clone(), at))
    }

    fn undeclare(&mut self, from: Life, number: u64) {
        if let Some((name, at)) = self.find(from, number) {
            self.remove(&name, at);
            self.settle(&name);
        }
    }

    /// Removes a declaration, and asks a home that it was joined to for its remaining status.
    fn remove(&mut self, name: &str, at: usize) {
        let Some((name, mut ends)) = self.names.remove_entry(name) else { return };
        let gone = ends.remove(at);
        if !gone.is_home()
            && let Status::Joined(_) = gone.status
            && let Some(home) = ends.iter().find(|home| home.is_home() && gone.is_joined_to(home))
            && home.lease.is_none()
            && !ends.iter().any(|other| other.life == gone.life && other.is_joined_to(home))
        {
            self.answers.push_back((home.life, Names::Gone { number: home.number, partner: gone.life }));
        }
        self.unaccount(&name, &gone, &mut ends);
        self.rejoin(&mut ends);
        self.put_back(name, ends);
    }

    /// As [`remove`](Self::remove), for all such declarations of a name in one pass.
    fn remove_all(&mut self, name: &str, is_gone: impl Fn(&Declared) -> bool) {
        let Some((name, mut ends)) = self.names.remove_entry(name) else { return };
        let gone: Vec<Declared> = ends.extract_if(.., |end| is_gone(end)).collect();
        let joined = |ends: &[Declared]| -> SortedSet<(ChannelId, Life)> {
            ends.iter().filter_map(|end| Some((end.joined_to()?, end.life))).collect()
        };
        let mut homes = SortedMap::new();
        for home in ends.iter().filter(|end| end.is_home()) {
            homes.get_or_insert_with(home.channel, || home);
        }
        let remain = joined(&ends);
        for (channel, partner) in joined(&gone).iter().filter(|of_gone| !remain.contains(*of_gone)) {
            if let Some(home) = homes.get(channel).filter(|home| home.lease.is_none()) {
                self.answers.push_back((home.life, Names::Gone { number: home.number, partner: *partner }));
            }
        }
        drop(homes);
        for end in &gone {
            self.unaccount(&name, end, &mut ends);
        }
        self.rejoin(&mut ends);
        self.put_back(name, ends);
    }

    /// Updates the accounts for a removed declaration; `others` are the remaining ones of its name.
    fn unaccount(&mut self, name: &str, gone: &Declared, others: &mut [Declared]) {
        if let Some(member) = self.members.get_mut(&gone.life.node) {
            member.ends.remove(&gone.number);
            member.bytes -= gone.bytes(name);
        }
        if let Some(source) = gone.counts_for {
            self.shares.give_back(source);
            // The next declaration takes over the name's count; otherwise one source could hold names at
            // others' expense.
            if let Some(next) = others.first_mut() {
                let source = self.members.get(&next.life.node).map_or(Source::Unknown, |member| member.source);
                next.counts_for = Some(source);
                self.shares.take(source);
            }
        }
    }

    // Declarations.

    #[expect(clippy::too_many_arguments, reason = "the fields of one frame")]
    fn declare(
        &mut self,
        now: Time,
        from: Life,
        number: u64,
        name: String,
        channel: ChannelId,
        mut face: Declaration,
        status: Status,
    ) {
        if let Some((known, at)) = self.find(from, number) {
            let end = &self.names[&known][at];
            if *known == name && end.channel == channel && end.face == face {
                return self.declare_again(&name, at, status);
            }
            self.undeclare(from, number);
        }
        if !is_name(&name) {
            return self.answers.push_back((from, Names::BadName { number }));
        }
        if let Some((room, max)) = self.has_no_room(from, &name, &face) {
            return self.answers.push_back((from, Names::Full { number, room, max: max as u64 }));
        }
        // A copy, so that the buffer it was read from can be released.
        face.schema = Bytes::copy_from_slice(&face.schema);
        // A declaration admitted elsewhere is judged at once, others after the quiet period.
        let known = status == Status::Known;
        let status = if known { Status::New } else { status };
        // Most names have one declaration, or two.
        let there = self.names.remove_entry(name.as_str());
        let (name, mut ends) = there.unwrap_or_else(|| (name.into(), Vec::with_capacity(1)));
        let member = self.members.get_mut(&from.node).expect("it has just been heard");
        let counts_for = ends.is_empty().then_some(member.source);
        counts_for.into_iter().for_each(|source| self.shares.take(source));
        let end = Declared {
            life: from,
            number,
            face,
            channel,
            since: now,
            status,
            lease: None,
            answered: false,
            unfit: Vec::new(),
            counts_for,
            apart: false,
        };
        member.ends.insert(number, name.clone());
        member.bytes += end.bytes(&name);
        ends.push(end);
        let at = ends.len() - 1;
        if known {
            let standing = Standing::of(&ends);
            self.judge(&name, &mut ends, &standing, at);
        } else if matches!(status, Status::Joined(_)) {
            self.tell_what_stands(&mut ends, at);
            self.tell_conflict(&mut ends, at);
        }
        self.comparisons.looks_at(ends.len());
        self.put_back(name.clone(), ends);
        self.settle_of(&name, from, number);
    }

    fn has_no_room(&self, from: Life, name: &str, face: &Declaration) -> Option<(Room, usize)> {
        let (member, config) = (&self.members[&from.node], &self.config);
        if member.ends.len() >= config.declarations_max {
            Some((Room::Declarations, config.declarations_max))
        } else if member.bytes + name.len() + face.schema.len() > config.bytes_max {
            Some((Room::Bytes, config.bytes_max))
        } else if self.names.contains_key(name) || self.shares.admits(member.source, config.names_max) {
            None
        } else if self.shares.taken() < config.names_max {
            Some((Room::Share, share(config.names_max)))
        } else {
            Some((Room::Names, config.names_max))
        }
    }

    /// Handles a repeated declaration: its node knows its status best.
    fn declare_again(&mut self, name: &str, at: usize, said: Status) {
        let (name, mut ends) = self.names.remove_entry(name).expect("it has just been found");
        let was_lost = ends[at].lease.take().is_some();
        ends[at].answered = false;
        let was = ends[at].status;
        let home = ends.iter().position(|home| home.is_home() && home.lease.is_none() && ends[at].is_joined_to(home));
        match (said, home) {
            (Status::Joined(_), _) => ends[at].status = said,
            // It is joined, and has not received the answer.
            (_, Some(home)) => self.tell_found(&ends[at], &ends[home]),
            _ if was == Status::New => {}
            _ => ends[at].status = Status::Known,
        }
        self.tell_what_stands(&mut ends, at);
        if was_lost || (was == Status::New && ends[at].is_admitted()) {
            self.tell_conflict(&mut ends, at);
        }
        let (life, number) = (ends[at].life, ends[at].number);
        let has_changed = was_lost || ends[at].status != was;
        self.comparisons.looks_at(ends.len());
        self.put_back(name.clone(), ends);
        if has_changed { self.settle(&name) } else { self.settle_of(&name, life, number) }
    }

    /// A join made elsewhere, or while this server was away, may not fit the declarations here. Both stand;
    /// the second to arrive is notified.
    fn tell_conflict(&mut self, ends: &mut [Declared], at: usize) {
        let end = &ends[at];
        let has_partner = end.is_home() && ends.iter().any(|other| other.is_joined_to(end));
        if !matches!(end.status, Status::Joined(_)) && !has_partner {
            return;
        }
        let by = self.conflict(ends, at);
        ends[at].apart = by.is_some();
        let end = &ends[at];
        if let Some(by) = by {
            let (there, holder) = (ends[by].face.clone(), ends[by].life);
            let addresses = self.addresses_of(holder);
            self.answers.push_back((end.life, Names::Refused { number: end.number, there, holder, addresses }));
        }
    }

    /// Where that node can be dialled, as far as is known here.
    fn addresses_of(&self, life: Life) -> Vec<String> {
        self.members.get(&life.node).map_or_else(Vec::new, |member| member.addresses.clone())
    }

    /// The first standing declaration that this end does not fit.
    fn conflict(&mut self, ends: &[Declared], at: usize) -> Option<usize> {
        match verdict(ends, &Standing::of(ends), at, self.config.several_holders, &mut self.comparisons) {
            Verdict::Refused(by) => Some(by),
            Verdict::Later | Verdict::Fits => None,
        }
    }

    /// A declaration has gone: ends that stood apart because of it stand as others do.
    fn rejoin(&mut self, ends: &mut [Declared]) {
        let apart: Vec<usize> = (0..ends.len()).filter(|at| ends[*at].apart).take(REJOINED_MAX).collect();
        for at in apart {
            ends[at].apart = self.conflict(ends, at).is_some();
        }
    }

    /// Joins stay: notifies the home of this end, or this home of all its partners.
    fn tell_what_stands(&mut self, ends: &mut [Declared], at: usize) {
        let mut homes = ends.iter().enumerate().filter(|(_, home)| home.is_home() && home.is_admitted());
        let home = homes.find(|(place, home)| *place == at || ends[at].is_joined_to(home)).map(|(place, _)| place);
        let Some(home) = home else { return };
        let mut used_up = false;
        for partner in 0..ends.len() {
            if ends[partner].is_joined_to(&ends[home]) && (home == at || partner == at) {
                used_up |= self.uses_up(&ends[partner]);
                if ends[home].lease.is_none() {
                    self.tell_found(&ends[home], &ends[partner]);
                    ends[home].answered = true;
                }
            }
        }
        if used_up && ends[home].status == Status::Known {
            ends[home].status = Status::Joined(ends[home].channel);
        }
    }

    /// Whether a home that this end is joined to has no room for others.
    fn uses_up(&self, end: &Declared) -> bool {
        !(end.face.shared && self.config.several_holders)
    }

    fn put_back(&mut self, name: Arc<str>, ends: Vec<Declared>) {
        if !ends.is_empty() {
            self.names.insert(name, ends);
        }
    }

    /// As [`settle`](Self::settle), after this end was declared. Other ends can only have waited for a home,
    /// or for an end that reports its join to one.
    fn settle_of(&mut self, name: &str, life: Life, number: u64) {
        let is_it = |end: &Declared| end.life == life && end.number == number;
        let ends = self.names.get(name).map(|ends| &ends[..]).unwrap_or_default();
        let Some(at) = ends.iter().rposition(is_it).filter(|at| !ends[*at].is_home()) else { return self.settle(name) };
        if ends[at].joined_to().is_some() || self.quiet_until.is_some() {
            return self.settle(name);
        }
        let Some((name, mut ends)) = self.names.remove_entry(name) else { return };
        if !ends[at].is_admitted() && ends[at].lease.is_none() {
            let standing = Standing::of(&ends);
            self.judge(&name, &mut ends, &standing, at);
        }
        while self.join_one(&name, &mut ends) {}
        self.answer_waiting(name, ends);
    }

    /// Admits and joins what it can, and answers declarations that wait.
    fn settle(&mut self, name: &str) {
        let Some((name, mut ends)) = self.names.remove_entry(name) else { return };
        if self.quiet_until.is_none() {
            while self.admit_one(&name, &mut ends) || self.join_one(&name, &mut ends) {}
        }
        self.answer_waiting(name, ends);
    }

    fn answer_waiting(&mut self, name: Arc<str>, mut ends: Vec<Declared>) {
        for end in &mut ends {
            if end.is_free() && !end.answered {
                end.answered = true;
                self.answers.push_back((end.life, Names::Waiting { number: end.number }));
            }
        }
        self.put_back(name, ends);
    }

    // Admission.

    fn admit_one(&mut self, name: &str, ends: &mut Vec<Declared>) -> bool {
        // The previous server may have notified the partner and not the home: that home is in use, whatever
        // else was declared meanwhile.
        let is_new = |home: &Declared| home.is_home() && !home.is_admitted() && home.lease.is_none();
        let joined = if ends.iter().any(is_new) { joined_channels(ends) } else { Vec::new() };
        let is_in_use = |home: &Declared| is_new(home) && joined.binary_search(&home.channel).is_ok();
        if let Some(at) = ends.iter().position(is_in_use) {
            ends[at].status = Status::Known;
            self.tell_what_stands(ends, at);
            self.tell_conflict(ends, at);
            return true;
        }
        // Any number may wait to be admitted, so each is checked only against the admitted ones.
        let waits = |end: &Declared| !end.is_admitted() && end.lease.is_none();
        if !ends.iter().any(waits) {
            return false;
        }
        let standing = Standing::of(ends);
        (0..ends.len()).any(|at| waits(&ends[at]) && self.judge(name, ends, &standing, at))
    }

    /// Returns whether it has decided.
    fn judge(&mut self, name: &str, ends: &mut Vec<Declared>, standing: &Standing, at: usize) -> bool {
        match verdict(ends, standing, at, self.config.several_holders, &mut self.comparisons) {
            Verdict::Later => return false,
            Verdict::Fits => {
                ends[at].status = Status::Known;
                self.tell_what_stands(ends, at);
            }
            Verdict::Refused(by) => {
                let (there, holder) = (ends[by].face.clone(), ends[by].life);
                let addresses = self.addresses_of(holder);
                let life = ends[at].life;
                if ends[by].is_to_hear_of(&ends[at]) {
                    let (number, refused, addresses) =
                        (ends[by].number, ends[at].face.clone(), self.addresses_of(life));
                    ends[by].unfit.push(life.node);
                    self.answers.push_back((holder, Names::Unfit { number, refused, by: life, addresses }));
                }
                let refused = ends.remove(at);
                self.unaccount(name, &refused, ends);
                self.answers.push_back((life, Names::Refused { number: refused.number, there, holder, addresses }));
            }
        }
        true
    }

    // Joins.

    fn join_one(&mut self, name: &str, ends: &mut Vec<Declared>) -> bool {
        let joined = joined_channels(ends);
        let is_used = |home: &Declared| joined.binary_search(&home.channel).is_ok();
        // A home that already has partners, else the first.
        let is_open = |home: &Declared| home.is_home() && home.lease.is_none() && !home.apart;
        let homes = || (0..ends.len()).filter(|at| is_open(&ends[*at]));
        let used = homes().find(|at| is_used(&ends[*at]));
        let first = used.or_else(|| homes().find(|at| ends[*at].is_free()));
        if let Some(first) = first
            && ends[first].face.shared
            && let Some(other) = homes().find(|at| {
                // A home that was joined while the first was away keeps its partners.
                *at != first && ends[*at].is_free() && ends[*at].face.shared && !is_used(&ends[*at])
            })
        {
            let channel = ends[first].channel;
            self.tell_found(&ends[other], &ends[first]);
            ends[other].status = Status::Joined(channel);
            ends[other].answered = true;
            return true;
        }
        let open = used.filter(|at| ends[*at].is_free()).or_else(|| homes().find(|at| ends[*at].is_free()));
        let Some(home) = open else { return false };
        let comparisons = &mut self.comparisons;
        let is_next = |end: &Declared| !end.is_home() && end.is_free() && comparisons.fit(&ends[home].face, &end.face);
        let Some(at) = ends.iter().position(is_next) else { return false };
        self.tell_found(&ends[at], &ends[home]);
        if ends[home].face.face == Face::Acceptor {
            let guest = ends.remove(at);
            self.unaccount(name, &guest, ends);
            return true;
        }
        self.tell_found(&ends[home], &ends[at]);
        let channel = ends[home].channel;
        ends[at].status = Status::Joined(channel);
        ends[at].answered = true;
        ends[home].answered = true;
        if self.uses_up(&ends[at]) {
            ends[home].status = Status::Joined(channel);
        }
        true
    }

    fn tell_found(&mut self, to: &Declared, partner: &Declared) {
        let channel = if partner.is_home() { partner.channel } else { to.channel };
        let addresses = self.addresses_of(partner.life);
        let (partner, face) = (partner.life, partner.face.clone());
        self.answers.push_back((to.life, Names::Found { number: to.number, partner, addresses, channel, face }));
    }
}

/// The channels that ends are joined to, in order.
fn joined_channels(ends: &[Declared]) -> Vec<ChannelId> {
    let mut joined: Vec<ChannelId> = ends.iter().filter_map(Declared::joined_to).collect();
    joined.sort_unstable();
    joined
}

/// What newcomers to a name have to fit: the admitted ends that do not stand apart. Any number of ends may be
/// of few kinds, so a newcomer is checked against the kinds.
struct Standing {
    /// For each kind its first two ends: one of them may be the newcomer itself.
    kinds: Vec<(Kind, [Option<usize>; 2])>,
    /// All ends, by side: only homes and others are compared with each other.
    homes: Vec<usize>,
    partners: Vec<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Kind {
    face: Face,
    shared: bool,
    is_joined: bool,
    has_lease: bool,
}

impl Standing {
    fn of(ends: &[Declared]) -> Self {
        let mut standing = Self { kinds: Vec::new(), homes: Vec::new(), partners: Vec::new() };
        for (at, end) in ends.iter().enumerate().filter(|(_, end)| end.is_admitted() && !end.apart) {
            let kind = Kind {
                face: end.face.face,
                shared: end.face.shared,
                is_joined: matches!(end.status, Status::Joined(_)),
                has_lease: end.lease.is_some(),
            };
            match standing.kinds.iter_mut().find(|(other, _)| *other == kind) {
                Some((_, [_, second])) => *second = second.or(Some(at)),
                None => standing.kinds.push((kind, [Some(at), None])),
            }
            if end.is_home() { &mut standing.homes } else { &mut standing.partners }.push(at);
        }
        standing
    }

    /// The kinds of all but that end, each with its first other end.
    fn beside(&self, at: usize) -> impl Iterator<Item = (Kind, usize)> {
        let first = move |places: &[Option<usize>; 2]| places.iter().flatten().copied().find(|place| *place != at);
        self.kinds.iter().filter_map(move |(kind, places)| Some((*kind, first(places)?)))
    }
}

/// Whether this end may have its face, beside those that stand. `several`: whether shared ends may be
/// several.
fn verdict(ends: &[Declared], standing: &Standing, at: usize, several: bool, comparisons: &mut Comparisons) -> Verdict {
    let newcomer = &ends[at].face;
    let servers = standing.beside(at).filter(|(kind, _)| matches!(kind.face, Face::Server | Face::Acceptor));
    let server = servers.min_by_key(|(_, place)| *place).map(|(kind, _)| kind.face);
    let (mut refused, mut later) = (None::<usize>, false);
    for (kind, place) in standing.beside(at) {
        let is_same_kind = is_of_bundle(newcomer.face) == is_of_bundle(kind.face);
        if is_same_kind && is_home(newcomer.face) != is_home(kind.face) {
            // The loop below compares these one by one.
            continue;
        }
        if is_same_kind && several && newcomer.face == kind.face && newcomer.shared && kind.shared {
            continue;
        }
        let clients = newcomer.face == Face::Client && kind.face == Face::Client;
        if clients && server == Some(Face::Acceptor) && kind.is_joined {
            // It still holds an end of an earlier server, not of the acceptor.
            continue;
        }
        // Several clients wait, and may turn out to be an acceptor's; or the one in the way may be gone.
        if (clients && server != Some(Face::Server)) || kind.has_lease {
            later = true;
        } else {
            refused = Some(refused.map_or(place, |before| before.min(place)));
        }
    }
    let others = if is_home(newcomer.face) { &standing.partners } else { &standing.homes };
    for place in others.iter().copied().filter(|place| *place != at) {
        let end = &ends[place];
        if refused.is_some_and(|before| before < place) {
            break;
        }
        if is_of_bundle(newcomer.face) != is_of_bundle(end.face.face) || comparisons.fit(newcomer, &end.face) {
            continue;
        }
        if end.lease.is_some() {
            later = true;
        } else {
            refused = Some(place);
            break;
        }
    }
    match refused {
        Some(place) => Verdict::Refused(place),
        None if later => Verdict::Later,
        None => Verdict::Fits,
    }
}
