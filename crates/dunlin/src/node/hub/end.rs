//! A declared end: how it is declared, and its state.

use std::sync::Arc;
use std::time::Duration;

use dunlin_core::agent::Missing;
use dunlin_core::carrier::{Agent, AnyInlet, AnyOutlet};
use dunlin_proto::id::{ChannelId, NodeId};
use dunlin_proto::wire::{Declaration, Expected, Face};
use tokio::sync::oneshot;

use super::guests::Acceptance;
use crate::node::codec::Encoding;
use crate::node::error::NameError;
use crate::node::peer::NameConflict;

/// How an end is declared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub(crate) face: Face,
    pub(crate) shared: bool,
    pub(crate) expects: Expected,
    pub(crate) encoding: Encoding,
    pub(crate) fail_fast: bool,
    /// The name is one of the node's own.
    pub(crate) reserved: bool,
    /// Each node has this name: it is declared only to nodes that dial this one.
    pub(crate) own: bool,
    /// How long the end may take to be admitted.
    pub(crate) patience: Option<Duration>,
    /// The largest message of its homes, in bytes, if that is less than the node's.
    pub(crate) message_max: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        let encoding = Encoding::default();
        Self {
            face: Face::Sender,
            shared: false,
            expects: Expected::Unknown,
            encoding,
            fail_fast: false,
            reserved: false,
            own: false,
            patience: None,
            message_max: None,
        }
    }
}

/// The part of its [`Options`] that an end needs once it is declared.
#[derive(Clone, Copy)]
pub(super) struct Kept {
    /// The largest message of its homes, in bytes.
    pub(super) message_max: u64,
    pub(super) encoding: Encoding,
    pub(super) fail_fast: bool,
    pub(super) reserved: bool,
    pub(super) own: bool,
}

impl From<Options> for Kept {
    fn from(options: Options) -> Self {
        let Options { encoding, fail_fast, reserved, own, message_max, .. } = options;
        Self { message_max: message_max.unwrap_or(u64::MAX), encoding, fail_fast, reserved, own }
    }
}

/// A half to be declared: its agents stand in the place of the other end.
pub(crate) enum Half {
    Sender(AnyOutlet),
    Receiver(AnyInlet),
    Client(Vec<Agent>),
    Server(Vec<Agent>),
    Acceptor(Acceptance),
}

/// The part of a declared end that waits for the other end.
pub(super) enum Role {
    /// Its agent, until the end is used or its receiver is found. `None`: its bridge exists and waits,
    /// stretched to nowhere, under the end's own channel number.
    Sender(Option<AnyOutlet>),
    /// Its home is open. Its agent, until the end is used or a sender is found. `None`: its bridge exists.
    Receiver(Option<AnyInlet>),
    /// By place in the bundle; an ended end has no agent. `None`: the server has been found.
    Client(Option<Vec<Option<Agent>>>),
    /// Its homes are open; these are its senders. `None`: a client has come.
    Server(Option<Outlets>),
    Acceptor(Box<Acceptance>),
}

/// The sending halves of a bundle, by their channels.
pub(super) type Outlets = Vec<(ChannelId, AnyOutlet)>;

/// An end that was declared here.
pub(super) struct DeclaredEnd {
    pub(super) name: Arc<str>,
    pub(super) options: Kept,
    pub(super) declaration: Arc<Declaration>,
    pub(super) role: Role,
    /// The channel of a home, or the first of a bundle's; of a sender, a number of its own.
    pub(super) channel: ChannelId,
    /// Resolved once the end is admitted or refused.
    pub(super) answer: Option<oneshot::Sender<Result<(), NameError>>>,
    /// `None`: most ends need none of this.
    pub(super) more: Option<Box<More>>,
}

/// The state that few declared ends have.
#[derive(Default)]
pub(super) struct More {
    /// The address of the node that it is declared to. `None`: the application's name service.
    pub(super) at: Option<Box<str>>,
    /// Declarations of other nodes that stand beside this one, and do not fit it.
    pub(super) conflicts: Vec<NameConflict>,
    /// The last declaration of another node that was refused, since it does not fit this one.
    pub(super) unfit: Option<String>,
    /// Dropped with the end, whose holder waits for that.
    pub(super) over: Option<oneshot::Sender<()>>,
    /// A client: it has introduced itself to its server, and the server has not answered yet.
    pub(super) unanswered: bool,
}

impl DeclaredEnd {
    pub(super) fn more(&mut self) -> &mut More {
        self.more.get_or_insert_default()
    }

    pub(super) fn at(&self) -> Option<&str> {
        self.more.as_ref()?.at.as_deref()
    }

    pub(super) fn unfit(&self) -> Option<&String> {
        self.more.as_ref()?.unfit.as_ref()
    }

    pub(super) fn is_unanswered(&self) -> bool {
        self.more.as_ref().is_some_and(|more| more.unanswered)
    }

    /// Its server has answered, or a sending half has attached to its home.
    pub(super) fn is_answered(&mut self) {
        if let Some(more) = &mut self.more {
            more.unanswered = false;
        }
    }
}

/// A client that has introduced itself and waits for the server's answer.
pub(super) struct Introduction {
    pub(super) server: NodeId,
    pub(super) number: u64,
    /// How many ends its bundle has.
    pub(super) places: usize,
    pub(super) outlets: Outlets,
    pub(super) options: Kept,
    pub(super) declaration: Arc<Declaration>,
}

/// The agents of a client that is to be declared anew, by place in its bundle.
pub(crate) struct Reclaimed {
    pub(super) number: u64,
    pub(super) agents: Vec<Option<Agent>>,
}

/// If they are not declared, their node has left.
impl Drop for Reclaimed {
    fn drop(&mut self) {
        self.agents.drain(..).flatten().for_each(down);
    }
}

/// Its node has left.
pub(super) fn down(agent: Agent) {
    match agent {
        Agent::Outlet(outlet) => {
            outlet.own_node_leaves();
            outlet.down();
        }
        Agent::Inlet(inlet) => {
            inlet.own_node_leaves();
            inlet.down();
        }
        Agent::Several(agents) => agents.agents.into_iter().for_each(down),
    }
}

pub(super) fn set_unmatched(agent: &Agent, missing: Option<&Arc<dyn Missing>>) {
    match agent {
        Agent::Outlet(outlet) => outlet.unmatched(missing.cloned()),
        Agent::Inlet(inlet) => inlet.unmatched(missing.cloned()),
        Agent::Several(agents) => agents.agents.iter().for_each(|agent| set_unmatched(agent, missing)),
    }
}
