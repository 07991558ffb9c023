//! The processes of this program, as its nodes use them for the signals of others. A node is locked
//! meanwhile.

use std::sync::Arc;

use super::super::core::Core;
use super::super::exit::Exit;
use super::super::signal::{Effect, Link, Signal};
use super::super::watch::{Roused, Watch};
use super::exit::{from_node, local, pid, to_node};
use super::out::told_of;
use crate::node::signals::{Ended, Here, Later, Linking, Processes, Report, Where};

pub(super) static HERE: Local = Local;

pub(super) struct Local;

impl Processes for Local {
    fn watch(&self, of: Here, report: Arc<dyn Report>) -> Result<u64, Box<Ended>> {
        let of = local(of);
        let watched = Core::of(of).map(|core| core.apply(Signal::Watch { watcher: Arc::new(Far(report)) }));
        match watched {
            Some(Effect::Watched(watch)) => Ok(watch),
            Some(Effect::WatchedEnd(exit, _)) => Err(Box::new(to_node(&exit))),
            _ => Err(Box::new(to_node(&Exit::no_such_process(of)))),
        }
    }

    fn unwatch(&self, of: Here, watch: u64) {
        if let Some(core) = Core::of(local(of)) {
            drop(core.apply(Signal::Unwatch { id: watch }));
        }
    }

    fn link(&self, via: u64, source: Where, target: Here, held: Arc<dyn Send + Sync>) -> Linking {
        let source = pid(via, source);
        let Some(target) = Core::of(local(target)) else { return Linking::Done(None) };
        if !source.is_far() {
            return Linking::Done(target.link_from(source).later());
        }
        match target.apply(Signal::Accept { source }) {
            Effect::Accepted(id) => Linking::Watch(id, told_of(source, target.watcher_of(Link { source, id }), held)),
            _ => Linking::Done(None),
        }
    }

    fn unlink(&self, via: u64, source: Where, target: Here) -> (Option<u64>, Later) {
        let (source, Some(target)) = (pid(via, source), Core::of(local(target))) else { return (None, None) };
        if !source.is_far() {
            let exits = target.unlink_from(source).into_iter().map(Roused::dropped);
            return (None, exits.fold(Roused::Nothing, Roused::and).later());
        }
        // (An exit from another node has no value of a user's in it.)
        match target.apply(Signal::Unlink { source }) {
            Effect::Unlinked(id, _) => (Some(id), None),
            _ => (None, None),
        }
    }

    fn exit(&self, via: u64, to: Here, from: Where, ended: Ended, held: Arc<dyn Send + Sync>) -> Later {
        let exit = from_node(pid(via, from), via, ended).holding(held);
        Core::of(local(to))?.send_quietly(Signal::Exit { exit, link: None }).later()
    }

    fn kill(&self, via: u64, to: Here, by: Where) -> Later {
        Core::of(local(to))?.send_quietly(Signal::Kill { by: pid(via, by) }).later()
    }
}

/// Another node watches the process.
struct Far(Arc<dyn Report>);

impl Watch for Far {
    fn down(&self, exit: &Exit) -> Roused {
        self.0.report(to_node(exit));
        Roused::Nothing
    }
}
