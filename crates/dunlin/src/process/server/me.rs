//! What a server asks of its own loop.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::lock::lock;
use crate::{Down, Exit, Pid};

/// What reaches a server beside calls and casts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Info {
    /// The exit of a linked process: if the server [receives exits](Me::receive_exits).
    Exit(Exit),
    /// The end of a process that the server [monitors](Me::monitor).
    Down(Down),
}

impl From<Exit> for Info {
    fn from(exit: Exit) -> Self {
        Self::Exit(exit)
    }
}

impl From<Down> for Info {
    fn from(down: Down) -> Self {
        Self::Down(down)
    }
}

/// The server itself, for its methods: [`init`](super::Server::init) gets it, and can keep it.
///
/// What it is asked takes effect when the method returns.
#[derive(Clone, Debug, Default)]
pub struct Me(Arc<Asked>);

#[derive(Debug, Default)]
struct Asked {
    /// Something was asked since the loop looked: most servers ask nothing, and their loop takes no lock.
    is_new: AtomicBool,
    orders: Mutex<Orders>,
}

#[derive(Debug, Default)]
pub(super) struct Orders {
    /// In order: whether to monitor the process, or no longer.
    pub(super) monitors: Vec<(Pid, bool)>,
    pub(super) exits: bool,
    pub(super) stop: bool,
}

impl Me {
    /// Watches a process: its end comes as [`Info::Down`], behind all that the process has sent to the server
    /// before. A process is watched once.
    pub fn monitor(&self, pid: Pid) {
        self.ask(|orders| orders.monitors.push((pid, true)));
    }

    /// Ends the monitor of a process.
    pub fn demonitor(&self, pid: Pid) {
        self.ask(|orders| orders.monitors.push((pid, false)));
    }

    /// From now on the exits of linked processes come as [`Info::Exit`], and do not end the server.
    pub fn receive_exits(&self) {
        self.ask(|orders| orders.exits = true);
    }

    /// Ends the server in order. Calls and casts that wait are not served.
    pub fn stop(&self) {
        self.ask(|orders| orders.stop = true);
    }

    fn ask(&self, order: impl FnOnce(&mut Orders)) {
        order(&mut lock(&self.0.orders));
        self.0.is_new.store(true, Ordering::Release);
    }

    /// Takes the orders; `None`: nothing was asked.
    pub(super) fn take(&self) -> Option<Orders> {
        // Cleared first: an order given meanwhile is taken now, or seen the next time.
        let is_new = self.0.is_new.load(Ordering::Relaxed) && self.0.is_new.swap(false, Ordering::Acquire);
        is_new.then(|| std::mem::take(&mut *lock(&self.0.orders)))
    }
}
