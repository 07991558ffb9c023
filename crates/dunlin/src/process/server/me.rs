//! What a server asks of its own loop.

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
pub struct Me(Arc<Mutex<Orders>>);

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
        lock(&self.0).monitors.push((pid, true));
    }

    /// Ends the monitor of a process.
    pub fn demonitor(&self, pid: Pid) {
        lock(&self.0).monitors.push((pid, false));
    }

    /// From now on the exits of linked processes come as [`Info::Exit`], and do not end the server.
    pub fn receive_exits(&self) {
        lock(&self.0).exits = true;
    }

    /// Ends the server in order. Calls and casts that wait are not served.
    pub fn stop(&self) {
        lock(&self.0).stop = true;
    }

    /// Takes the orders; those to stop stay.
    pub(super) fn take(&self) -> Orders {
        let mut orders = lock(&self.0);
        let stop = orders.stop;
        Orders { stop, ..std::mem::replace(&mut *orders, Orders { stop, ..Orders::default() }) }
    }
}
