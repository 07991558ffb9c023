//! The signals between processes, beside messages: the state machine of one process.
//!
//! [`State::apply`] takes a signal and returns what has to be done about it: no locks, no wakers, no tasks.
//! `core.rs` gives each process one such state under a lock, and carries out the effects.
//!
//! A link from `a` to `b` has two sides. The *target* `b` has accepted it, under a number of its own; the
//! *source* `a` has the number, and sends it with its exit. So the target alone decides whether the exit of a
//! link still counts: after an unlink the number is unknown, wherever the exit was at that moment. A link
//! made anew has a new number.

use super::exit::Exit;
pub(super) use super::links::LinkId;
use super::links::{Entry, Links, Pairs, Side};
use super::pid::Pid;
use super::set::Set;

/// The number that a process has given a monitor.
pub(super) type WatchId = u64;

/// A link as its target knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) source: Pid,
    pub(super) id: LinkId,
}

/// What can happen to a process. `W` gets its exit.
#[derive(Debug)]
pub(super) enum Signal<W> {
    /// A link from `source` to this process is being made.
    Accept { source: Pid },
    /// This process is the source of a link.
    Link { target: Pid, id: LinkId },
    /// The link from `source` to this process ends.
    Unlink { source: Pid },
    /// A link from this process is no longer needed: its target has ended it, or has ended.
    Forget { target: Pid, id: LinkId },
    /// An exit arrives, over a link or without one.
    Exit { exit: Exit, link: Option<Link> },
    /// The process is about to receive the exit of this link as a message: whether the link still counts.
    Look { link: Link },
    /// It has received it, and the link has ended.
    Consume { link: Link },
    /// The process ends, whatever it receives.
    Kill { by: Pid },
    /// The process ends itself.
    Leave { exit: Exit },
    /// From now on exits are messages, or no longer are.
    Receive { exits: bool },
    /// A monitor.
    Watch { watcher: W },
    /// A monitor ends.
    Unwatch { id: WatchId },
    /// The process is about to be polled: whether it must end instead.
    Poll { own: Pid },
    /// It has ended.
    End { exit: Exit },
}

/// What has to be done about a signal.
#[derive(Debug)]
pub(super) enum Effect<W> {
    Nothing,
    /// The number of the new link.
    Accepted(LinkId),
    /// The number of the link that has ended, and exits of it that had arrived.
    Unlinked(LinkId, Vec<Exit>),
    /// The exit has no effect. A value in it is a user's, so it is not dropped here.
    Dropped(Exit),
    /// The process has already ended, with this exit.
    Ended(Exit),
    /// The monitored process has already ended, with this exit.
    WatchedEnd(Exit, W),
    /// The process has to be polled.
    Rouse,
    /// These exits are messages for the mailbox.
    Deliver(Vec<(Exit, Option<Link>)>),
    /// Whether the link counts.
    Counts(bool),
    /// The number of the monitor.
    Watched(WatchId),
    /// No longer used.
    Unwatched(W),
    /// The process ends, for this reason.
    Dies(Exit),
    /// The end has to be reported.
    Report(End<W>),
}

/// What the end of a process concerns.
#[derive(Debug)]
pub(super) struct End<W> {
    /// The targets of its links, each with the number of the link.
    pub(super) targets: Vec<Entry>,
    /// The sources of links to it.
    pub(super) sources: Vec<Entry>,
    pub(super) watchers: Vec<(WatchId, W)>,
    /// What had come to end it, and did not. A payload of an exit may be in it: it is dropped where nothing
    /// is locked.
    pub(super) unused: Option<Box<Fatal>>,
}

/// The links, monitors and pending exits of a process.
pub(super) struct State<W> {
    pairs: Pairs,
    /// The number of the last link accepted, or monitor.
    last: u64,
    rare: Option<Box<Rare<W>>>,
}

/// What a process that is only linked with two others does not need while it lives.
struct Rare<W> {
    links: Links,
    watchers: Set<WatchId, W>,
    /// Exits are messages.
    receives: bool,
    /// `None`: nothing that ends it has come.
    fatal: Option<Box<Fatal>>,
    ended: Option<Box<Exit>>,
}

/// What has come to end a process, and it has not looked at.
#[derive(Debug, Default)]
pub(super) struct Fatal {
    exits: Vec<(Exit, Option<Link>)>,
    killed_by: Option<Pid>,
    leaving: Option<Exit>,
}

impl<W> Default for State<W> {
    fn default() -> Self {
        Self { pairs: Pairs::default(), last: 0, rare: None }
    }
}

impl<W> Default for Rare<W> {
    fn default() -> Self {
        Self { links: Links::default(), watchers: Set::default(), receives: false, fatal: None, ended: None }
    }
}

impl<W> State<W> {
    pub(super) fn apply(&mut self, signal: Signal<W>) -> Effect<W> {
        if let Some(exit) = self.rare.as_ref().and_then(|rare| rare.ended.as_ref()) {
            return match signal {
                Signal::Watch { watcher } => Effect::WatchedEnd((**exit).clone(), watcher),
                Signal::Link { .. } | Signal::Accept { .. } => Effect::Ended((**exit).clone()),
                Signal::Look { .. } => Effect::Counts(false),
                Signal::Exit { exit, .. } | Signal::Leave { exit } | Signal::End { exit } => Effect::Dropped(exit),
                _ => Effect::Nothing,
            };
        }
        match signal {
            Signal::Accept { source } => {
                if self.link(Side::Source, source).is_some() {
                    return Effect::Nothing;
                }
                let id = self.number();
                self.add(Side::Source, source, id);
                Effect::Accepted(id)
            }
            Signal::Link { target, id } => {
                // An earlier link with that process is replaced.
                self.remove(Side::Target, target);
                self.add(Side::Target, target, id);
                Effect::Nothing
            }
            Signal::Unlink { source } => match self.remove(Side::Source, source) {
                Some(id) => {
                    let ended = Some(Link { source, id });
                    let fatal = self.fatal().into_iter();
                    let exits = fatal.flat_map(|fatal| fatal.exits.extract_if(.., |(_, link)| *link == ended));
                    Effect::Unlinked(id, exits.map(|(exit, _)| exit).collect())
                }
                None => Effect::Nothing,
            },
            Signal::Forget { target, id } => {
                if self.link(Side::Target, target) == Some(id) {
                    self.remove(Side::Target, target);
                }
                Effect::Nothing
            }
            Signal::Exit { exit, link } => self.exit(exit, link),
            Signal::Look { link } => Effect::Counts(self.counts(link)),
            Signal::Consume { link } => {
                if self.counts(link) {
                    self.remove(Side::Source, link.source);
                }
                Effect::Nothing
            }
            Signal::Kill { by } => {
                self.new_fatal().killed_by.get_or_insert(by);
                Effect::Rouse
            }
            Signal::Leave { exit } => {
                let leaving = &mut self.new_fatal().leaving;
                if leaving.is_some() {
                    return Effect::Dropped(exit);
                }
                *leaving = Some(exit);
                Effect::Rouse
            }
            Signal::Receive { exits } => {
                self.rare().receives = exits;
                match self.fatal() {
                    Some(fatal) if exits => Effect::Deliver(std::mem::take(&mut fatal.exits)),
                    _ => Effect::Nothing,
                }
            }
            Signal::Watch { watcher } => {
                let id = self.number();
                self.rare().watchers.insert(id, watcher);
                Effect::Watched(id)
            }
            Signal::Unwatch { id } => {
                let watcher = self.rare.as_mut().and_then(|rare| rare.watchers.remove(id));
                watcher.map_or(Effect::Nothing, Effect::Unwatched)
            }
            Signal::Poll { own } => self.must_end(own).map_or(Effect::Nothing, Effect::Dies),
            Signal::End { exit } => {
                let end = self.end();
                self.rare().ended = Some(Box::new(exit));
                Effect::Report(end)
            }
        }
    }

    /// What the end of the process concerns, if nothing can apply a signal any more.
    pub(super) fn end(&mut self) -> End<W> {
        let (mut targets, mut sources) = self.pairs.take();
        let Rare { mut links, mut watchers, fatal, .. } = self.rare.take().map_or_else(Rare::default, |rare| *rare);
        let (more_targets, more_sources) = links.take();
        targets.extend(more_targets);
        sources.extend(more_sources);
        End { targets, sources, watchers: watchers.take(), unused: fatal }
    }

    fn rare(&mut self) -> &mut Rare<W> {
        self.rare.get_or_insert_default()
    }

    fn fatal(&mut self) -> Option<&mut Fatal> {
        self.rare.as_mut()?.fatal.as_deref_mut()
    }

    fn new_fatal(&mut self) -> &mut Fatal {
        self.rare().fatal.get_or_insert_default()
    }

    fn link(&self, side: Side, pid: Pid) -> Option<LinkId> {
        self.pairs.get(side, pid).or_else(|| self.rare.as_ref()?.links.get(side, pid))
    }

    /// Adds a link that is not there.
    fn add(&mut self, side: Side, pid: Pid, id: LinkId) {
        if !self.pairs.insert(side, pid, id) {
            self.rare().links.insert(side, pid, id);
        }
    }

    fn remove(&mut self, side: Side, pid: Pid) -> Option<LinkId> {
        self.pairs.remove(side, pid).or_else(|| self.rare.as_mut()?.links.remove(side, pid))
    }

    fn exit(&mut self, exit: Exit, link: Option<Link>) -> Effect<W> {
        if link.is_some_and(|link| !self.counts(link)) {
            return Effect::Dropped(exit);
        }
        if self.rare.as_ref().is_some_and(|rare| rare.receives) {
            // The link counts until the exit is received, so an unlink until then still has its effect.
            return Effect::Deliver(vec![(exit, link)]);
        }
        if exit.is_normal() {
            if let Some(link) = link {
                self.remove(Side::Source, link.source);
            }
            return Effect::Dropped(exit);
        }
        self.new_fatal().exits.push((exit, link));
        Effect::Rouse
    }

    fn counts(&self, link: Link) -> bool {
        self.link(Side::Source, link.source) == Some(link.id)
    }

    /// A kill takes precedence over the process's own exit, and that over the exits of links.
    fn must_end(&mut self, own: Pid) -> Option<Exit> {
        let fatal = self.fatal()?;
        if let Some(by) = fatal.killed_by {
            return Some(Exit::killed(own, by));
        }
        let first = fatal.leaving.take();
        first.or_else(|| if fatal.exits.is_empty() { None } else { Some(fatal.exits.remove(0).0) })
    }

    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

#[cfg(test)]
mod tests {
    use dunlin_core::waits;

    use super::*;
    use crate::ExitReason;

    fn pid(number: u64) -> Pid {
        Pid::of(0, waits::Pid::numbered(number))
    }

    fn failed(number: u64) -> Exit {
        Exit::new(pid(number), None, "no krill".into())
    }

    fn state() -> State<&'static str> {
        State::default()
    }

    fn accept(state: &mut State<&'static str>, source: u64) -> Link {
        match state.apply(Signal::Accept { source: pid(source) }) {
            Effect::Accepted(id) => Link { source: pid(source), id },
            other => panic!("{other:?}"),
        }
    }

    fn must_end(state: &mut State<&'static str>) -> Option<Exit> {
        match state.apply(Signal::Poll { own: pid(1) }) {
            Effect::Nothing => None,
            Effect::Dies(exit) => Some(exit),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_exit_over_a_link_ends_the_target_once() {
        let mut state = state();
        let link = accept(&mut state, 2);
        assert_eq!(must_end(&mut state), None);
        let exit = Signal::Exit { exit: failed(2), link: Some(link) };
        assert!(matches!(state.apply(exit), Effect::Rouse));
        assert_eq!(must_end(&mut state), Some(failed(2)));
    }

    #[test]
    fn a_normal_exit_ends_the_link_and_no_process() {
        let mut state = state();
        let link = accept(&mut state, 2);
        let normal = Exit::new(pid(2), None, ExitReason::Normal);
        assert!(matches!(state.apply(Signal::Exit { exit: normal, link: Some(link) }), Effect::Dropped(_)));
        assert_eq!(must_end(&mut state), None);
        assert_ne!(accept(&mut state, 2).id, link.id);
    }

    #[test]
    fn no_exit_of_a_link_counts_after_its_unlink() {
        let mut state = state();
        let link = accept(&mut state, 2);
        // The exit has arrived, and the process has not been polled.
        state.apply(Signal::Exit { exit: failed(2), link: Some(link) });
        let Effect::Unlinked(id, exits) = state.apply(Signal::Unlink { source: pid(2) }) else { unreachable!() };
        assert_eq!((id, exits), (link.id, vec![failed(2)]));
        assert_eq!(must_end(&mut state), None);
        // The exit arrives late; meanwhile there is another link.
        let next = accept(&mut state, 2);
        assert!(matches!(state.apply(Signal::Exit { exit: failed(2), link: Some(link) }), Effect::Dropped(_)));
        assert_eq!(must_end(&mut state), None);
        state.apply(Signal::Exit { exit: failed(2), link: Some(next) });
        assert_eq!(must_end(&mut state), Some(failed(2)));
    }

    #[test]
    fn a_link_is_made_once() {
        let mut state = state();
        let link = accept(&mut state, 2);
        assert!(matches!(state.apply(Signal::Accept { source: pid(2) }), Effect::Nothing));
        state.apply(Signal::Link { target: pid(3), id: 5 });
        // A number of an earlier link ends nothing.
        state.apply(Signal::Forget { target: pid(3), id: 4 });
        let Effect::Report(end) = state.apply(Signal::End { exit: failed(1) }) else { unreachable!() };
        assert_eq!((end.targets, end.sources), (vec![(pid(3), 5)], vec![(pid(2), link.id)]));
    }

    #[test]
    fn the_links_with_many_processes_end_and_are_reported_alike() {
        let mut state = state();
        let links: Vec<_> = (2..7).map(|source| accept(&mut state, source)).collect();
        for target in 2..7 {
            state.apply(Signal::Link { target: pid(target), id: 10 * target });
        }
        // One of the first, and one of the last.
        for (link, number) in [(links[0], 2), (links[4], 6)] {
            let unlinked = state.apply(Signal::Unlink { source: link.source });
            assert!(matches!(unlinked, Effect::Unlinked(id, _) if id == link.id));
            state.apply(Signal::Forget { target: pid(number), id: 10 * number });
            assert!(matches!(state.apply(Signal::Look { link }), Effect::Counts(false)));
        }
        assert!(matches!(state.apply(Signal::Look { link: links[1] }), Effect::Counts(true)));
        assert!(matches!(state.apply(Signal::Look { link: links[3] }), Effect::Counts(true)));
        // A link made anew, by its target.
        state.apply(Signal::Link { target: pid(5), id: 7 });
        let Effect::Report(mut end) = state.apply(Signal::End { exit: failed(1) }) else { unreachable!() };
        end.targets.sort_unstable();
        end.sources.sort_unstable();
        assert_eq!(end.targets, [(pid(3), 30), (pid(4), 40), (pid(5), 7)]);
        assert_eq!(end.sources, [1, 2, 3].map(|index| (links[index].source, links[index].id)));
    }

    #[test]
    fn exits_are_messages_while_the_process_receives_them() {
        let mut state = state();
        let (first, second) = (accept(&mut state, 2), accept(&mut state, 3));
        state.apply(Signal::Exit { exit: failed(2), link: Some(first) });
        // One that arrived before is delivered instead of ending the process.
        let Effect::Deliver(exits) = state.apply(Signal::Receive { exits: true }) else { unreachable!() };
        assert_eq!(exits, [(failed(2), Some(first))]);
        assert_eq!(must_end(&mut state), None);
        // A normal one is delivered, too.
        let normal = Exit::new(pid(3), None, ExitReason::Normal);
        let Effect::Deliver(exits) = state.apply(Signal::Exit { exit: normal.clone(), link: Some(second) }) else {
            unreachable!()
        };
        assert_eq!(exits, [(normal, Some(second))]);
        // Each link counts until its exit is received.
        assert!(matches!(state.apply(Signal::Look { link: first }), Effect::Counts(true)));
        state.apply(Signal::Consume { link: first });
        assert!(matches!(state.apply(Signal::Look { link: first }), Effect::Counts(false)));
        state.apply(Signal::Unlink { source: pid(3) });
        assert!(matches!(state.apply(Signal::Look { link: second }), Effect::Counts(false)));
    }

    #[test]
    fn a_kill_is_not_received_and_takes_precedence() {
        let mut state = state();
        state.apply(Signal::Receive { exits: true });
        state.apply(Signal::Leave { exit: failed(1) });
        assert!(matches!(state.apply(Signal::Kill { by: pid(4) }), Effect::Rouse));
        let exit = must_end(&mut state).unwrap();
        assert_eq!((exit.pid, exit.origin(), exit.reason), (pid(1), pid(4), ExitReason::Killed));
    }

    #[test]
    fn each_monitor_gets_the_exit_once() {
        let mut state = state();
        let Effect::Watched(first) = state.apply(Signal::Watch { watcher: "first" }) else { unreachable!() };
        assert!(matches!(state.apply(Signal::Watch { watcher: "second" }), Effect::Watched(_)));
        assert!(matches!(state.apply(Signal::Unwatch { id: first }), Effect::Unwatched("first")));
        let Effect::Report(end) = state.apply(Signal::End { exit: failed(1) }) else { unreachable!() };
        assert_eq!(end.watchers.into_iter().map(|(_, watcher)| watcher).collect::<Vec<_>>(), ["second"]);
        // A late one gets the exit at once.
        let late = state.apply(Signal::Watch { watcher: "late" });
        assert!(matches!(late, Effect::WatchedEnd(exit, "late") if exit == failed(1)));
        assert!(matches!(state.apply(Signal::End { exit: failed(1) }), Effect::Dropped(_)));
    }
}
