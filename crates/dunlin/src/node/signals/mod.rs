//! Signals between processes of different nodes: links, monitors, exits and kills.
//!
//! - Of this program, for a process of another node: [`watch`], [`unwatch`], [`link`], [`unlink`], [`exit`]
//!   and [`kill`]. Nothing may be locked when they are called. Each calls the machine of the node that the
//!   pid has arrived at, at once, so signals and messages of one process keep their order.
//! - From other nodes: [`Driver::hear_signal`], while the node is locked, in the order in which they arrive,
//!   between the messages for mailboxes. What that wakes is woken later ([`Later`]).
//!
//! The layer of processes is above nodes. It hands in what is told ([`Told`]), and its own half
//! ([`Processes`]) with the first pid that leaves the node.
//!
//! A watch that has been asked for is in [`Signals`](table::Signals) from before the machine can report its
//! end. What removes it from there first, reports it or ends it, and nothing comes later.

pub(crate) mod table;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, Weak};

use dunlin_proto::id::{Contact, NodeId, ProcessId};
use dunlin_proto::time::Time;
use dunlin_proto::wire::{Exit, Reason};
use dunlin_proto::{NotSignalled, SignalHears};
use dunlin_sorted::SortedMap;

use super::mailboxes::current;
use super::state::{Delivery, Driver, Errand, State};
use crate::lock::lock;
use table::Asked;
pub(crate) use table::{Ended, Here, Later, Linking, Processes, Report, Told, Where};

/// The nodes of this program, by their numbers. A pid is `Copy`, so it cannot keep its node.
static NODES: Mutex<SortedMap<u64, Weak<Driver>>> = Mutex::new(SortedMap::new());

fn node(number: u64) -> Option<Arc<Driver>> {
    lock(&NODES).get(&number)?.upgrade()
}

impl Driver {
    /// From now on pids that arrive at this node can be used.
    pub(super) fn takes_signals(self: &Arc<Self>) {
        lock(&NODES).insert(self.number, Arc::downgrade(self));
    }

    /// It is being dropped: the processes that are still `watched` are lost. Nothing may be locked.
    pub(super) fn takes_no_more_signals(&self, watched: Vec<Arc<dyn Told>>) {
        lock(&NODES).remove(&self.number);
        watched.into_iter().for_each(|told| drop(told.down(self.number, Ended::of(Reason::NodeLost))));
    }
}

impl Ended {
    fn of(reason: Reason) -> Self {
        Self { exit: Exit::of(reason), origin: None }
    }
}

impl State {
    fn id(&self, process: Here, bits: u64) -> ProcessId {
        ProcessId { life: self.machine.me(), number: process.number, place: process.place, bits }
    }

    /// How other nodes name a process without being able to send to it.
    fn name_of(&self, process: Where) -> ProcessId {
        match process {
            Where::Here(here) => self.id(here, self.signals.name(here.number)),
            Where::There(id) => id,
        }
    }

    /// How other nodes name a process that they may send to.
    fn right_to(&self, process: Where) -> ProcessId {
        match process {
            Where::Here(here) => self.id(here, self.signals.right(here.number)),
            Where::There(id) => id,
        }
    }

    /// A process that another node has named.
    fn named(&self, id: ProcessId) -> Where {
        let bits = [self.signals.name(id.number), self.signals.right(id.number)];
        if id.life == self.machine.me() && bits.contains(&id.bits) {
            return Where::Here(Here { number: id.number, place: id.place });
        }
        Where::There(id)
    }

    /// A process of this node that another one may send to. `None`: it may not, or the pid is of an earlier
    /// incarnation.
    fn permitted(&mut self, now: Time, by: NodeId, id: ProcessId) -> Option<Here> {
        if id.life != self.machine.me() {
            return None;
        }
        if id.bits != self.signals.right(id.number) {
            self.machine.signal_refused(now, by, id.number);
            return None;
        }
        Some(Here { number: id.number, place: id.place })
    }

    fn ended(&self, exit: Exit) -> Ended {
        let origin = exit.origin.map(|origin| self.named(origin));
        Ended { exit: Exit { origin: None, ..exit }, origin }
    }

    fn written(&self, ended: Ended) -> Exit {
        Exit { origin: ended.origin.map(|origin| self.name_of(origin)), ..ended.exit }
    }

    /// Watches a process of another node.
    fn ask(&mut self, now: Time, of: ProcessId, asked: Asked) -> Result<u64, (Reason, Asked)> {
        if of.life.node == self.machine.me().node {
            return Err((Reason::NoSuchProcess, asked));
        }
        match self.machine.watch(now, of) {
            Ok(watch) => {
                if let Some(link) = asked.link {
                    self.signals.links.insert(link, (of.life.node, watch));
                }
                self.signals.asked.insert(watch, asked);
                Ok(watch)
            }
            Err(NotSignalled::Full) => Err((Reason::Refused, asked)),
            Err(NotSignalled::Left) => Err((Reason::NodeLeft, asked)),
            Err(_) => Err((Reason::NodeLost, asked)),
        }
    }

    fn end_link(&mut self, now: Time, link: (u64, u64)) {
        if let Some((node, watch)) = self.signals.links.remove(&link)
            && let Some(asked) = self.signals.take_asked(watch)
        {
            self.machine.unwatch(now, node, watch);
            self.garbage.push(Box::new(asked));
        }
    }
}

/// Watches a process of another node, by the node `via` of this program. `told` learns of its end once: now,
/// `None`, if there can be no watch. `link`: the numbers of the target and of the link, if it is one.
pub(crate) fn watch(via: u64, of: ProcessId, told: Arc<dyn Told>, link: Option<(u64, u64)>) -> Option<u64> {
    let asked = Asked { told, link };
    let refused = match node(via) {
        Some(driver) => driver.with(|state, now| state.ask(now, of, asked)),
        None => Err((Reason::NodeLost, asked)),
    };
    match refused {
        Ok(watch) => Some(watch),
        Err((reason, asked)) => {
            drop(asked.told.down(via, Ended::of(reason)));
            None
        }
    }
}

/// Ends a watch: nothing is told of it any more.
pub(crate) fn unwatch(via: u64, of: NodeId, watch: u64) {
    let Some(driver) = node(via) else { return };
    let asked = driver.with(|state, now| {
        state.machine.unwatch(now, of, watch);
        state.signals.take_asked(watch)
    });
    drop(asked);
}

/// Ends the watch of this link.
pub(crate) fn forget_link(via: u64, link: (u64, u64)) {
    if let Some(driver) = node(via) {
        driver.with(|state, now| state.end_link(now, link));
    }
}

/// Asks the node of `target` to link it. `false`: the request was not sent.
pub(crate) fn link(via: u64, source: Where, target: ProcessId, processes: &'static dyn Processes) -> bool {
    let Some(driver) = node(via) else { return false };
    driver.with(|state, now| {
        state.signals.processes = Some(processes);
        let source = state.right_to(source);
        state.machine.link(now, source, target).is_ok()
    })
}

/// Asks the node of `target` to end that link. `false`: the request was not sent.
pub(crate) fn unlink(via: u64, source: Where, target: ProcessId) -> bool {
    let Some(driver) = node(via) else { return false };
    driver.with(|state, now| {
        let source = state.right_to(source);
        state.machine.unlink(now, source, target).is_ok()
    })
}

/// Sends an exit. `false`: it was not sent.
pub(crate) fn exit(via: u64, to: ProcessId, from: Here, ended: Ended) -> bool {
    let Some(driver) = node(via) else { return false };
    driver.with(|state, now| {
        let (from, exit) = (state.name_of(Where::Here(from)), state.written(ended));
        state.machine.exit(now, to, from, exit).is_ok()
    })
}

/// Ends a process. `false`: the request was not sent.
pub(crate) fn kill(via: u64, to: ProcessId, by: Here) -> bool {
    let Some(driver) = node(via) else { return false };
    driver.with(|state, now| {
        let by = state.name_of(Where::Here(by));
        state.machine.kill(now, to, by).is_ok()
    })
}

/// How a message names a process of this program. `None`: no message is being encoded for a node.
pub(crate) fn id_of(process: Here, processes: &'static dyn Processes) -> Option<ProcessId> {
    let (driver, _) = current()?;
    Some(driver.with(|state, _| {
        state.signals.processes = Some(processes);
        state.right_to(Where::Here(process))
    }))
}

/// The process that a message names, and the node of this program that the message has arrived at. `None`: no
/// message is being decoded for a node.
pub(crate) fn find(id: ProcessId) -> Option<(Where, u64)> {
    let (driver, _) = current()?;
    let is_own = |state: &mut State, _| id.life == state.machine.me() && id.bits == state.signals.right(id.number);
    let found = match driver.with(is_own) {
        true => Where::Here(Here { number: id.number, place: id.place }),
        false => Where::There(id),
    };
    Some((found, driver.number))
}

/// Reports the end of a process of this program to the node that watches it.
struct Watching {
    node: Weak<Driver>,
    by: Contact,
    watch: u64,
}

impl Report for Watching {
    fn report(&self, ended: Ended) {
        let Some(driver) = self.node.upgrade() else { return };
        driver.with(|state, _| {
            if state.signals.here.remove(&(self.by.node, self.watch)).is_some() {
                let exit = state.written(ended);
                state.machine.down(self.by, self.watch, exit);
            }
        });
    }
}

/// Dropped when an exit from another node has been received.
struct ExitReceipt {
    node: Weak<Driver>,
    by: Contact,
    bytes: u64,
}

impl Drop for ExitReceipt {
    fn drop(&mut self) {
        if let Some(driver) = self.node.upgrade() {
            driver.do_soon(Errand::ExitReceived { from: self.by, bytes: self.bytes });
        }
    }
}

impl Driver {
    /// What the machine reports of signals. Returns what is to be woken.
    #[must_use = "something waits to be woken"]
    pub(super) fn hear_signal(self: &Arc<Self>, state: &mut State, now: Time, heard: SignalHears) -> Option<Delivery> {
        let later = match heard {
            SignalHears::Watch(by, watch, of) => {
                self.hear_watch(state, now, by, watch, of);
                None
            }
            SignalHears::Unwatch(by, watch) => {
                if let Some((of, number)) = state.signals.here.remove(&(by, watch))
                    && let Some(processes) = state.signals.processes
                {
                    processes.unwatch(of, number);
                }
                None
            }
            SignalHears::AllUnwatched(by) => {
                let range = (by, 0)..=(by, u64::MAX);
                let watches: Vec<_> = state.signals.here.range(range).map(|(key, watch)| (*key, *watch)).collect();
                for (key, (of, number)) in watches {
                    state.signals.here.remove(&key);
                    state.signals.processes.into_iter().for_each(|processes| processes.unwatch(of, number));
                }
                None
            }
            SignalHears::Down(_, watch, exit) => state.signals.take_asked(watch).and_then(|asked| {
                let ended = state.ended(*exit);
                let later = asked.told.down(self.number, ended);
                state.garbage.push(Box::new(asked));
                later
            }),
            SignalHears::Link { by, source, target } => self.hear_link(state, now, by, source, target),
            SignalHears::Unlink { by, source, target } => {
                let (target, processes) = (state.permitted(now, by, target), state.signals.processes);
                target.zip(processes).and_then(|(target, processes)| {
                    let (id, later) = processes.unlink(self.number, state.named(source), target);
                    if let Some(id) = id {
                        state.end_link(now, (target.number, id));
                    }
                    later
                })
            }
            SignalHears::Exit { by, to, from, exit } => {
                let receipt = ExitReceipt { node: Arc::downgrade(self), by, bytes: exit.bytes() };
                let (to, processes) = (state.permitted(now, by.node, to), state.signals.processes);
                to.zip(processes).and_then(|(to, processes)| {
                    let (from, ended) = (state.named(from), state.ended(*exit));
                    processes.exit(self.number, to, from, ended, Arc::new(receipt))
                })
            }
            SignalHears::Kill { by, to, from } => {
                let (to, processes) = (state.permitted(now, by, to), state.signals.processes);
                to.zip(processes).and_then(|(to, processes)| processes.kill(self.number, to, state.named(from)))
            }
        };
        later.map(Delivery::Later)
    }

    fn hear_watch(self: &Arc<Self>, state: &mut State, now: Time, by: Contact, watch: u64, of: ProcessId) {
        let report = Watching { node: Arc::downgrade(self), by, watch };
        let watched = match (state.permitted(now, by.node, of), state.signals.processes) {
            (Some(here), Some(processes)) => processes.watch(here, Arc::new(report)).map(|number| (here, number)),
            _ => Err(Box::new(Ended::of(Reason::NoSuchProcess))),
        };
        match watched {
            // (A process that ends meanwhile waits for the lock, and then finds the record.)
            Ok(watched) => {
                state.signals.here.insert((by.node, watch), watched);
            }
            Err(ended) => {
                let exit = state.written(*ended);
                state.machine.down(by, watch, exit);
            }
        }
    }

    /// A node asks for a link. A source at a node with which there is no connection is lost: otherwise a peer
    /// could make this node dial any number of others.
    fn hear_link(
        self: &Arc<Self>,
        state: &mut State,
        now: Time,
        by: NodeId,
        source: ProcessId,
        target: ProcessId,
    ) -> Later {
        let (target, processes) = (state.permitted(now, by, target)?, state.signals.processes?);
        let from = match source.life == state.machine.me() {
            true => Where::Here(state.permitted(now, by, source)?),
            false => Where::There(source),
        };
        let Some(held) = state.signals.room_for_link(state.machine.source_of(by)) else {
            state.machine.link_refused(now, by, target.number);
            return None;
        };
        let (id, told) = match processes.link(self.number, from, target, held) {
            Linking::Watch(id, told) => (id, told),
            Linking::Done(later) => return later,
        };
        let asked = Asked { told, link: Some((target.number, id)) };
        let refused = match !state.machine.is_idle(source.life.node) {
            true => state.ask(now, source, asked).err()?,
            false => (Reason::NodeLost, asked),
        };
        let (reason, asked) = refused;
        let later = asked.told.down(self.number, Ended::of(reason));
        state.garbage.push(Box::new(asked));
        later
    }
}
