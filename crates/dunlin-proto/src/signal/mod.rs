//! Signals between processes of different nodes: watches, links, exits and kills.
//!
//! Signals and messages for mailboxes are in one stream of a connection's outbox (`post/queue.rs`), so what
//! one process sends to another arrives in the order in which it was sent, and the end of a process never
//! overtakes its messages.
//!
//! A *watch* is what a link and a monitor need of another node: it reports the end of one process once. The
//! watching node numbers it, and remembers the number (`state.rs`). Whatever ends the watch first removes the
//! number, and all that comes later finds none: the end of the process, an end of the watch, the end of the
//! connection's life. A connection that resumes reports nothing.
//!
//! The random bits of a process are checked by the driver, which knows the processes. A signal without them
//! is [refused](Machine::signal_refused).
//!
//! What a node keeps for others is bounded: a watch is charged to the account of its connection, and refused
//! if there is no room; a node has at most [`limits::WATCHES`] at another one. The bytes of an exit that is
//! sent without a link are charged as those of a message are, until it has been received. Reports that wait
//! to be written count as answers.

pub(crate) mod state;

use crate::account::Charge;
use crate::channel::Peers;
use crate::connection::Down;
use crate::id::{Contact, Life, NodeId, ProcessId};
use crate::machine::{Action, Declined, Endpoint, Machine};
use crate::misbehaved::PeerMisbehaved;
use crate::planted::planted;
use crate::time::Time;
#[cfg(doc)]
use crate::wire::limits;
use crate::wire::{Exit, Frame, Reason, Signal};
use state::{NotSignalled, SignalHears};

/// While this many signals and messages wait to be written to a node, no other signal is accepted for it,
/// except such as end something.
const WAITING_MAX: usize = 1 << 16;

impl Endpoint {
    /// Answers a node that has sent something before: this makes no connection.
    fn report_down(&mut self, node: NodeId, watch: u64, exit: Exit) {
        let Some(connection) = self.connections.get_mut(node) else { return };
        connection.outbox.push(Frame::Signal(Box::new(Signal::Down { watch, exit })));
        if let Some(socket) = connection.socket() {
            self.act_write(socket);
        }
    }

    /// That node watches a process of this one.
    fn begin_watch(&mut self, node: NodeId, watch: u64, of: ProcessId) -> Result<(), PeerMisbehaved> {
        let Some(connection) = self.connections.get_mut(node) else { return Ok(()) };
        connection.watches.may_begin(watch)?;
        let Some(charge) = connection.inbox.account.watch(&mut self.pool) else {
            self.report_down(node, watch, Exit::of(Reason::Refused));
            return Ok(());
        };
        connection.watches.begins(watch, charge);
        let from = self.contact(node);
        self.act(Action::signal(SignalHears::Watch(from, watch, of)));
        Ok(())
    }

    /// An exit that was sent without a link.
    fn exit_comes(&mut self, node: NodeId, to: ProcessId, from: ProcessId, exit: Exit) -> Result<(), PeerMisbehaved> {
        let Some(connection) = self.connections.get_mut(node) else { return Ok(()) };
        // Released with a charge of the same size.
        let _charge = connection.inbox.account.charge(exit.bytes())?;
        if connection.inbox.account.wants_credit() {
            self.tell_credit(node, false);
        }
        let by = self.contact(node);
        self.act(Action::signal(SignalHears::Exit { by, to, from, exit: Box::new(exit) }));
        Ok(())
    }

    /// The life of the connection with that node is over: what it watched, and what watched it.
    pub(crate) fn lose_watches(&mut self, node: NodeId, why: &Down) {
        let Some(connection) = self.connections.get_mut(node) else { return };
        if planted!(LossUntold) {
            connection.watches.take_asked();
        }
        let (asked, is_watched) = (connection.watches.take_asked(), connection.watches.is_watched());
        let reason = if matches!(why, Down::Left) { Reason::NodeLeft } else { Reason::NodeLost };
        for watch in asked {
            let exit = Exit { text: why.to_string(), ..Exit::of(reason) };
            self.act(Action::signal(SignalHears::Down(node, watch, Box::new(exit))));
        }
        if is_watched {
            self.act(Action::signal(SignalHears::AllUnwatched(node)));
        }
    }
}

impl Machine {
    /// Whether this node may send signals to that life of a node.
    fn signals_to(&self, life: Life) -> Result<(), NotSignalled> {
        let node = life.node;
        let is_here = self.endpoint.is_me(node) || self.endpoint.leaving || self.replaced_by().is_some();
        if is_here {
            return Err(NotSignalled::NotHere);
        }
        // Otherwise a signal would wait until all attempts to connect have failed.
        let met = self.endpoint.connections.get(node).and_then(|connection| connection.met);
        let has_left = self.endpoint.left.contains(&node) && met.is_none_or(|met| met >= life.incarnation);
        if has_left && self.is_idle(node) { Err(NotSignalled::Left) } else { Ok(()) }
    }

    fn has_room(&mut self, node: NodeId) -> Result<(), NotSignalled> {
        let waiting = self.endpoint.connection(node).outbox.posts_waiting();
        if waiting < WAITING_MAX { Ok(()) } else { Err(NotSignalled::Full) }
    }

    fn send_signal(&mut self, now: Time, node: NodeId, signal: Signal) {
        self.endpoint.say(now, node, Frame::Signal(Box::new(signal)));
    }

    /// Watches a process of another node, and connects to the node if there is no connection. Returns the
    /// number of the watch, with which [`SignalHears::Down`] reports the end of the process: once, and always
    /// unless this node [ends](Self::unwatch) the watch before.
    ///
    /// # Errors
    /// There is no watch.
    pub fn watch(&mut self, now: Time, of: ProcessId) -> Result<u64, NotSignalled> {
        let node = of.life.node;
        self.signals_to(of.life)?;
        self.has_room(node)?;
        let watch = self.endpoint.watches + 1;
        if !self.endpoint.connection(node).watches.ask(watch) {
            return Err(NotSignalled::Full);
        }
        self.endpoint.watches = watch;
        self.send_signal(now, node, Signal::Watch { watch, of });
        Ok(watch)
    }

    /// Ends a watch at that node: its end is not reported any more.
    pub fn unwatch(&mut self, now: Time, node: NodeId, watch: u64) {
        let connection = self.endpoint.connections.get_mut(node);
        if planted!(UnwatchIgnored) {
            return;
        }
        if connection.is_some_and(|connection| connection.watches.asked_ends(watch)) {
            self.send_signal(now, node, Signal::Unwatch(watch));
        }
    }

    /// The process that this node watches under this number has ended, or there is none.
    pub fn down(&mut self, watching: Contact, watch: u64, exit: Exit) {
        if self.endpoint.is_over(watching) {
            return;
        }
        let connection = self.endpoint.connections.get_mut(watching.node);
        let Some(charge) = connection.and_then(|connection| connection.watches.ends(watch)) else { return };
        self.endpoint.release(watching.node, charge);
        self.endpoint.report_down(watching.node, watch, exit);
    }

    /// Asks the node of `target` to link it: the exit of `source`, a process of any node, ends it.
    ///
    /// # Errors
    /// The signal was not sent.
    pub fn link(&mut self, now: Time, source: ProcessId, target: ProcessId) -> Result<(), NotSignalled> {
        self.signals_to(target.life)?;
        self.has_room(target.life.node)?;
        self.send_signal(now, target.life.node, Signal::Link { source, target });
        Ok(())
    }

    /// Asks the node of `target` to end that link.
    ///
    /// # Errors
    /// The signal was not sent.
    pub fn unlink(&mut self, now: Time, source: ProcessId, target: ProcessId) -> Result<(), NotSignalled> {
        self.signals_to(target.life)?;
        self.send_signal(now, target.life.node, Signal::Unlink { source, target });
        Ok(())
    }

    /// Sends an exit of `from`, a process of this node, to a process of another one.
    ///
    /// # Errors
    /// The signal was not sent.
    pub fn exit(&mut self, now: Time, to: ProcessId, from: ProcessId, exit: Exit) -> Result<(), NotSignalled> {
        let node = to.life.node;
        self.signals_to(to.life)?;
        self.has_room(node)?;
        if !self.endpoint.connection(node).outbox.spend_credit(exit.bytes()) {
            return Err(NotSignalled::Full);
        }
        self.send_signal(now, node, Signal::Exit { to, from, exit });
        Ok(())
    }

    /// Ends a process of another node, whatever it receives. `by`: a process of this one.
    ///
    /// # Errors
    /// The signal was not sent.
    pub fn kill(&mut self, now: Time, to: ProcessId, by: ProcessId) -> Result<(), NotSignalled> {
        self.signals_to(to.life)?;
        self.has_room(to.life.node)?;
        self.send_signal(now, to.life.node, Signal::Kill { to, by });
        Ok(())
    }

    /// An exit that was [reported](SignalHears::Exit), and [takes](Exit::bytes) that many bytes, has been
    /// received or dropped.
    pub fn exit_received(&mut self, from: Contact, bytes: u64) {
        if !self.endpoint.is_over(from) {
            self.endpoint.release(from.node, Charge::of_credit(bytes));
        }
    }

    /// A signal of that node did not have the random bits of the process with this number, and is dropped.
    pub fn signal_refused(&mut self, now: Time, node: NodeId, number: u64) {
        self.endpoint.hears_nothing(now, node);
        self.endpoint.declines(node, Declined::Signal(number));
    }

    /// The driver keeps no more links that nodes of the source of this one ask for: that to the process with
    /// this number is not made.
    pub fn link_refused(&mut self, now: Time, node: NodeId, number: u64) {
        self.endpoint.hears_nothing(now, node);
        self.endpoint.declines(node, Declined::Link(number));
    }

    pub(crate) fn hear_signal(&mut self, now: Time, node: NodeId, signal: Signal) -> Result<(), PeerMisbehaved> {
        let endpoint = &mut self.endpoint;
        let Some(connection) = endpoint.connections.get_mut(node) else { return Ok(()) };
        if connection.posts.is_within_message() {
            return Err(PeerMisbehaved::WithinPost);
        }
        match signal {
            Signal::Watch { watch, of } => endpoint.begin_watch(node, watch, of)?,
            Signal::Unwatch(watch) => match connection.watches.ends(watch) {
                Some(charge) => {
                    endpoint.release(node, charge);
                    endpoint.act(Action::signal(SignalHears::Unwatch(node, watch)));
                }
                None => endpoint.hears_nothing(now, node),
            },
            Signal::Down { watch, exit } => match connection.watches.asked_ends(watch) {
                true if planted!(LossEarly) => {
                    for watch in connection.watches.take_asked().into_iter().chain([watch]) {
                        let lost = Box::new(Exit::of(Reason::NodeLost));
                        endpoint.act(Action::signal(SignalHears::Down(node, watch, lost)));
                    }
                }
                true => {
                    if planted!(DownTwice) {
                        endpoint.act(Action::signal(SignalHears::Down(node, watch, Box::new(exit.clone()))));
                    }
                    endpoint.act(Action::signal(SignalHears::Down(node, watch, Box::new(exit))));
                }
                // The watch has ended here meanwhile.
                false => endpoint.hears_nothing(now, node),
            },
            Signal::Link { source, target } => {
                endpoint.act(Action::signal(SignalHears::Link { by: node, source, target }));
            }
            Signal::Unlink { source, target } => {
                endpoint.act(Action::signal(SignalHears::Unlink { by: node, source, target }));
            }
            Signal::Exit { to, from, exit } => endpoint.exit_comes(node, to, from, exit)?,
            Signal::Kill { to, by } => {
                endpoint.act(Action::signal(SignalHears::Kill { by: node, to, from: by }));
            }
        }
        Ok(())
    }
}
