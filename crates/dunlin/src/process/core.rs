//! What a process needs to be linked, monitored, or ended by others: made when it first is.
//!
//! # How signals travel
//! 1. The sender of a signal finds the target's core through its record (`dunlin_core::waits::Spawned`),
//!    under the record's lock, and applies the signal under the core's.
//! 2. An exit that ends the target is stored there; then a mark is set in the record, and the target is
//!    woken. Its next poll sees the mark, with the one load that each poll makes, and drops the body
//!    (`spawn.rs`).
//! 3. A process that ends closes its record first, so no other code finds it any more; then it applies its
//!    end. A signal that found the core earlier finds the exit there, and is answered with it.
//! 4. The process that ends reports its end itself, before its handle is ready. A target that ends in turn
//!    reports to the next ones in its own poll: no recursion, however long a chain is.
//!
//! No two cores are locked at once, and no code of users runs under a core's lock.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

use dunlin_core::waits::{Keep, Kept, Spawned};

use super::exit::{Exit, ExitReason};
#[cfg(feature = "net")]
use super::far;
use super::pid::{NearPid, Pid};
use super::signal::{Effect, End, Link, LinkId, Signal, State};
#[cfg(feature = "net")]
use super::watch::Watch;
use super::watch::{Roused, Watcher};
use crate::lock::lock;
use crate::quiet::quietly;

/// The mailbox that receives the exits of a process.
pub(super) trait Exits: Send + Sync {
    /// Takes an exit, and gives it back once the mailbox is closed.
    fn receive(&self, exit: Exit, link: Option<Link>) -> Result<Roused, Exit>;
}

pub(super) struct Core {
    pid: NearPid,
    shared: Mutex<Shared>,
}

#[derive(Default)]
struct Shared {
    state: State<Watcher>,
    rare: Option<Box<Rare>>,
}

#[derive(Default)]
struct Rare {
    name: Option<Arc<str>>,
    exits: Option<Arc<dyn Exits>>,
}

impl Keep for Core {
    fn name(&self) -> Option<Arc<str>> {
        lock(&self.shared).rare.as_ref()?.name.clone()
    }
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("pid", &self.pid()).finish_non_exhaustive()
    }
}

impl Core {
    /// The core of a process; `None`: it has ended.
    pub(super) fn of(pid: Pid) -> Option<Arc<Self>> {
        pid.find().and_then(Self::at)
    }

    /// The core of the process whose code calls this.
    pub(super) fn current() -> Option<Arc<Self>> {
        let process = Spawned::current()?;
        Self::at(process)
    }

    fn at(process: Spawned) -> Option<Arc<Self>> {
        let new = |name: Option<Arc<str>>| -> Kept {
            let rare = name.map(|name| Box::new(Rare { name: Some(name), exits: None }));
            let shared = Mutex::new(Shared { state: State::default(), rare });
            Arc::new(Self { pid: NearPid::of(process.place(), process.pid()), shared })
        };
        process.kept(new).and_then(Self::from_kept)
    }

    pub(super) fn from_kept(kept: Kept) -> Option<Arc<Self>> {
        let any: Arc<dyn Any + Send + Sync> = kept;
        any.downcast().ok()
    }

    pub(super) fn pid(&self) -> Pid {
        self.pid.pid()
    }

    pub(super) fn apply(&self, signal: Signal<Watcher>) -> Effect<Watcher> {
        lock(&self.shared).state.apply(signal)
    }

    /// Applies a signal that may end the process.
    pub(super) fn send(&self, signal: Signal<Watcher>) {
        self.send_quietly(signal).wake();
    }

    /// The same, where a node may be locked: returns what is to be woken.
    pub(super) fn send_quietly(&self, signal: Signal<Watcher>) -> Roused {
        let effect = self.apply(signal);
        self.carry_out(effect)
    }

    fn carry_out(&self, effect: Effect<Watcher>) -> Roused {
        match effect {
            Effect::Rouse => self.pid().find().map_or(Roused::Nothing, Roused::Process),
            Effect::Deliver(exits) => {
                let delivered = exits.into_iter().map(|(exit, link)| self.deliver(exit, link));
                delivered.fold(Roused::Nothing, Roused::and)
            }
            Effect::Dropped(exit) => Roused::dropped(exit),
            _ => Roused::Nothing,
        }
    }

    /// An exit that is a message.
    fn deliver(&self, exit: Exit, link: Option<Link>) -> Roused {
        let exits = lock(&self.shared).rare.as_ref().and_then(|rare| rare.exits.clone());
        let received = match exits {
            Some(exits) => exits.receive(exit, link),
            None => Err(exit),
        };
        let exit = match received {
            Ok(roused) => return roused,
            Err(exit) => exit,
        };
        // The mailbox has been dropped: from now on exits end the process.
        let effect = {
            let mut shared = lock(&self.shared);
            shared.rare.iter_mut().for_each(|rare| rare.exits = None);
            shared.state.apply(Signal::Receive { exits: false });
            shared.state.apply(Signal::Exit { exit, link })
        };
        self.carry_out(effect)
    }

    /// From now on `exits` receives the exits.
    pub(super) fn receive_exits(&self, exits: Arc<dyn Exits>) {
        let effect = {
            let mut shared = lock(&self.shared);
            shared.rare.get_or_insert_default().exits = Some(exits);
            shared.state.apply(Signal::Receive { exits: true })
        };
        self.carry_out(effect).wake();
    }

    /// Why the process must end at this poll, if it must.
    pub(super) fn must_end(&self) -> Option<Exit> {
        match self.apply(Signal::Poll { own: self.pid() }) {
            Effect::Dies(exit) => Some(exit.passed_on(self.pid(), self.name())),
            _ => None,
        }
    }

    /// The exit of this process, for a reason of its own.
    pub(super) fn exit(&self, reason: ExitReason) -> Exit {
        Exit::new(self.pid(), self.name(), reason)
    }

    /// The process has ended for a reason of its own, as in [`end`](Self::end).
    pub(super) fn end_for(self: Arc<Self>, reason: ExitReason) {
        let exit = self.exit(reason);
        self.end(exit);
    }

    /// The process has ended, and its record is closed: reports it to its links and monitors.
    pub(super) fn end(mut self: Arc<Self>, exit: Exit) {
        let effect = match Arc::get_mut(&mut self) {
            // Nobody else has found it, so nobody can ask for its exit.
            Some(core) => {
                let shared = core.shared.get_mut().unwrap_or_else(PoisonError::into_inner);
                Effect::Report(shared.state.end())
            }
            None => self.apply(Signal::End { exit: exit.clone() }),
        };
        let exits = lock(&self.shared).rare.as_mut().and_then(|rare| rare.exits.take());
        drop(exits);
        let Effect::Report(End { targets, sources, watchers, unused }) = effect else { return };
        for (target, id) in targets {
            if let Some(target) = Self::of(target) {
                let link = Some(Link { source: self.pid(), id });
                target.send(Signal::Exit { exit: exit.clone(), link });
            }
        }
        sources.into_iter().for_each(|(source, id)| self.forgotten_by(source, id));
        watchers.iter().for_each(|(_, watcher)| watcher.down(&exit).wake());
        if unused.is_some() {
            quietly(|| drop(unused));
        }
    }

    /// Makes a link from `source` to this process, and returns what that wakes.
    pub(super) fn link_from(&self, source: Pid) -> Roused {
        let Effect::Accepted(id) = self.apply(Signal::Accept { source }) else { return Roused::Nothing };
        #[cfg(feature = "net")]
        if source.is_far() {
            let link = Link { source, id };
            far::out::watch(source, self.watcher_of(link), Some((self.pid().number(), id)));
            // This process has ended meanwhile, or the link has.
            if !self.counts(link) {
                self.forgotten_by(source, id);
            }
            return Roused::Nothing;
        }
        let link = Signal::Link { target: self.pid(), id };
        let exit = match Self::of(source).map(|source| source.apply(link)) {
            Some(Effect::Ended(exit)) => exit,
            None => Exit::no_such_process(source),
            // This process has ended meanwhile, or the link has: the source would keep its side for ever.
            Some(_) if !self.counts(Link { source, id }) => {
                self.forgotten_by(source, id);
                return Roused::Nothing;
            }
            Some(_) => return Roused::Nothing,
        };
        self.send_quietly(Signal::Exit { exit, link: Some(Link { source, id }) })
    }

    /// Ends the link from `source` to this process. Returns the exits of it that had arrived.
    pub(super) fn unlink_from(&self, source: Pid) -> Vec<Exit> {
        let Effect::Unlinked(id, exits) = self.apply(Signal::Unlink { source }) else { return Vec::new() };
        self.forgotten_by(source, id);
        exits
    }

    /// Gets the exit of the source of this link, if that is at another node.
    #[cfg(feature = "net")]
    pub(super) fn watcher_of(&self, link: Link) -> Watcher {
        Arc::new(OfLink { target: self.pid(), link })
    }

    /// The source of a link to this process no longer needs its side.
    fn forgotten_by(&self, source: Pid, id: LinkId) {
        #[cfg(feature = "net")]
        if source.is_far() {
            return far::out::forget_link(source, (self.pid().number(), id));
        }
        if let Some(source) = Self::of(source) {
            source.apply(Signal::Forget { target: self.pid(), id });
        }
    }

    /// Whether an exit over this link still counts.
    pub(super) fn counts(&self, link: Link) -> bool {
        matches!(self.apply(Signal::Look { link }), Effect::Counts(true))
    }

    /// The exit of this link is received: the link has ended.
    pub(super) fn consume(&self, link: Link) {
        self.apply(Signal::Consume { link });
    }
}

/// The target of a link whose source is at another node.
#[cfg(feature = "net")]
struct OfLink {
    target: Pid,
    link: Link,
}

#[cfg(feature = "net")]
impl Watch for OfLink {
    fn down(&self, exit: &Exit) -> Roused {
        let Some(target) = Core::of(self.target) else { return Roused::Nothing };
        target.send_quietly(Signal::Exit { exit: exit.clone(), link: Some(self.link) })
    }
}
