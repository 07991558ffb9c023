//! What a node knows of its role, and a main node of its members.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use bytes::Bytes;
use dunlin_core::Sender;
use dunlin_proto::time::Time;
use dunlin_sorted::SortedMap;
use tokio::sync::watch;

use super::words::Notice;
use crate::node::peer::Peer;
use crate::node::role::Role;
use crate::node::words;

/// What a node knows of its own role, and of the roles of other nodes.
pub(crate) struct Roles {
    pub(super) role: Option<Role>,
    pub(super) name: String,
    pub(super) shutdown: Duration,
    /// Set when the application closes: how long the main node waits.
    pub(super) closing: watch::Sender<Option<Duration>>,
    /// A member's progress in leaving.
    pub(super) leave: watch::Sender<Leave>,
    /// The members of a main node.
    pub(super) members: watch::Sender<SortedMap<Peer, Enrolled>>,
    /// How many members have been removed whose event has not been sent. It changes under the lock of
    /// `members`.
    pub(super) departing: AtomicUsize,
}

/// A member's progress in leaving.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Leave {
    No,
    Asked,
    /// The main node has received the notice, or there is no main node.
    Said,
}

/// How long a member may take to notify the main node that it leaves, and how long a main node whose last
/// handle was dropped waits for its members.
pub(in crate::node) const SAY_LEAVING: Duration = Duration::from_secs(1);

impl Roles {
    pub(super) fn new(role: Option<Role>, name: String, shutdown: Duration) -> Arc<Self> {
        Arc::new(Self {
            role,
            name,
            shutdown,
            closing: watch::Sender::new(None),
            leave: watch::Sender::new(Leave::No),
            departing: AtomicUsize::new(0),
            members: watch::Sender::new(SortedMap::new()),
        })
    }

    pub(in crate::node) fn role(&self) -> Option<Role> {
        self.role
    }

    /// The node has left.
    pub(in crate::node) fn over(&self) {
        self.closing.send_if_modified(|closing| {
            let is_news = closing.is_none();
            closing.get_or_insert_default();
            is_news
        });
    }
}

/// A member.
pub(crate) struct Enrolled {
    /// The number of the guest: a member may enrol again.
    pub(super) guest: u64,
    pub(super) name: String,
    pub(super) host: String,
    pub(super) process: u32,
    pub(super) since: Time,
    pub(super) leaves: bool,
    pub(super) notices: Sender<Bytes>,
}

impl Enrolled {
    /// A member that receives no notices any more is leaving.
    pub(super) fn tell(&mut self, notice: &Notice) {
        let _ = self.notices.try_send(words::encode(notice));
    }
}
