//! What is asked of the node of another process.

use super::super::exit::Exit;
use super::super::pid::Pid;
use super::exit::{here, locate, to_node};
use super::into::HERE;
use crate::node::signals;

/// Asks that the exit of `source` end `target`, a process of another node. `false`: the request was not sent.
pub(in super::super) fn link(source: Pid, target: Pid) -> bool {
    target.id_there().is_some_and(|(id, via)| signals::link(via, locate(source), id, &HERE))
}

/// Asks that this link end. `false`: the request was not sent.
pub(in super::super) fn unlink(source: Pid, target: Pid) -> bool {
    target.id_there().is_some_and(|(id, via)| signals::unlink(via, locate(source), id))
}

/// Sends an exit of a process of this program. `false`: it was not sent.
pub(in super::super) fn exit(to: Pid, exit: Exit) -> bool {
    to.id_there().is_some_and(|(id, via)| signals::exit(via, id, here(exit.pid), to_node(&exit)))
}

/// Ends a process of another node. `false`: the request was not sent.
pub(in super::super) fn kill(to: Pid, by: Pid) -> bool {
    to.id_there().is_some_and(|(id, via)| signals::kill(via, id, here(by)))
}
