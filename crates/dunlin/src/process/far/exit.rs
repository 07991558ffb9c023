//! Exits in the form that nodes exchange.

use std::sync::Arc;

use dunlin_core::waits;
use dunlin_proto::wire::{self, Reason};

use super::super::exit::{Exit, ExitReason};
use super::super::payload::Payload;
use super::super::pid::Pid;
use crate::node::signals::{Ended, Here, Where};

pub(super) fn here(pid: Pid) -> Here {
    Here { number: pid.number(), place: pid.place() }
}

pub(super) fn locate(pid: Pid) -> Where {
    match pid.id_there() {
        Some((id, _)) => Where::There(id),
        None => Where::Here(here(pid)),
    }
}

/// A process of this program.
pub(super) fn local(here: Here) -> Pid {
    Pid::of(here.place, waits::Pid::numbered(here.number))
}

pub(super) fn pid(via: u64, process: Where) -> Pid {
    match process {
        Where::Here(here) => local(here),
        Where::There(id) => Pid::there(id, via),
    }
}

pub(super) fn to_node(exit: &Exit) -> Ended {
    let (reason, text) = match &exit.reason {
        ExitReason::Normal => (Reason::Normal, String::new()),
        ExitReason::Error(text) => (Reason::Error, text.clone()),
        ExitReason::Panicked(text) => (Reason::Panicked, text.clone()),
        ExitReason::Cancelled => (Reason::Cancelled, String::new()),
        ExitReason::Killed => (Reason::Killed, String::new()),
        ExitReason::NoSuchProcess => (Reason::NoSuchProcess, String::new()),
        ExitReason::NodeLost(text) => (Reason::NodeLost, text.clone()),
        ExitReason::NodeLeft => (Reason::NodeLeft, String::new()),
        ExitReason::Refused => (Reason::Refused, String::new()),
        // The scope is not known at other nodes.
        ExitReason::NotStarted(why) => (Reason::Error, why.to_string()),
    };
    let name = exit.name.as_deref().unwrap_or_default().to_owned();
    let payload = exit.carried().map_or(wire::Payload::None, Payload::to_node);
    Ended {
        exit: wire::Exit { reason, text, name, origin: None, payload },
        origin: (exit.origin() != exit.pid).then(|| locate(exit.origin())),
    }
}

/// The exit of this process, as a node reports it.
pub(super) fn from_node(of: Pid, via: u64, ended: Ended) -> Exit {
    let wire::Exit { reason, text, name, payload, .. } = ended.exit;
    let reason = match reason {
        Reason::Normal => ExitReason::Normal,
        Reason::Error => ExitReason::Error(text),
        Reason::Panicked => ExitReason::Panicked(text),
        Reason::Cancelled => ExitReason::Cancelled,
        Reason::Killed => ExitReason::Killed,
        Reason::NoSuchProcess => ExitReason::NoSuchProcess,
        Reason::NodeLost => ExitReason::NodeLost(text),
        Reason::NodeLeft => ExitReason::NodeLeft,
        Reason::Refused => ExitReason::Refused,
    };
    let name = if name.is_empty() { None } else { Some(Arc::from(name)) };
    let mut exit = Exit::new(of, name, reason);
    if let Some(payload) = Payload::from_node(payload) {
        exit = exit.with_payload(payload);
    }
    match ended.origin {
        Some(origin) => exit.with_origin(pid(via, origin)),
        None => exit,
    }
}
