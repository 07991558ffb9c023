//! Watching a process of another node. It is at once a link whose source is there and a monitor: what differs
//! is what gets the exit.

use std::sync::Arc;

use super::super::exit::{Exit, ExitReason};
use super::super::pid::Pid;
use super::super::watch::Watcher;
use super::exit::from_node;
use crate::node::signals::{self, Ended, Later, Told};

/// A watch of this process, for the node that reports its end.
struct Asked {
    of: Pid,
    watcher: Watcher,
    /// For a link that another node has asked for: dropped when its exit has been received.
    held: Option<Arc<dyn Send + Sync>>,
}

impl Told for Asked {
    fn down(&self, via: u64, ended: Ended) -> Later {
        let exit = from_node(self.of, via, ended);
        let exit = match &self.held {
            Some(held) => exit.holding(held.clone()),
            None => exit,
        };
        self.watcher.down(&exit).later()
    }
}

/// What learns of the end of the source of a link that another node has asked for.
pub(super) fn told_of(of: Pid, watcher: Watcher, held: Arc<dyn Send + Sync>) -> Arc<dyn Told> {
    Arc::new(Asked { of, watcher, held: Some(held) })
}

/// Watches a process of another node. `None`: the watcher has got an exit. `link`: the numbers of the target
/// and of the link, if it is one.
pub(in super::super) fn watch(of: Pid, watcher: Watcher, link: Option<(u64, u64)>) -> Option<u64> {
    match of.id_there() {
        Some((id, via)) => signals::watch(via, id, Arc::new(Asked { of, watcher, held: None }), link),
        None => {
            watcher.down(&Exit::new(of, None, ExitReason::NoSuchProcess)).wake();
            None
        }
    }
}

/// Ends a watch. Its watcher gets nothing more.
pub(in super::super) fn unwatch(of: Pid, watch: u64) {
    if let Some((id, via)) = of.id_there() {
        signals::unwatch(via, id.life.node, watch);
    }
}

/// Ends the watch of this link, whose source is at another node.
pub(in super::super) fn forget_link(source: Pid, link: (u64, u64)) {
    if let Some((_, via)) = source.id_there() {
        signals::forget_link(via, link);
    }
}
