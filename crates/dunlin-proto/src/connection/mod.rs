//! The connection between two nodes, above the sockets that carry it.
//!
//! It has lives, numbered by `run`. Within a life it neither loses nor duplicates frames: each side keeps
//! numbered frames until the other has acknowledged them, and on a new socket resumes from what the other has
//! received. A life ends when there is no socket for longer than the grace period, when the other node is
//! restarted, or when either side breaks the protocol. It then ends for both sides, because the next
//! handshake names the run.

pub(crate) mod book;
pub(crate) mod chatter;
pub(crate) mod death;
pub(crate) mod former;
pub(crate) mod inbox;
pub(crate) mod outbox;
pub(crate) mod pace;
pub(crate) mod table;
pub(crate) mod window;

use std::time::Duration;

use crate::config::Config;
use crate::id::{ConnectionId, DialId, Incarnation, Life, NodeId, SocketId};
use crate::planted::planted;
use crate::post::state::Posts;
use crate::signal::state::Watches;
use crate::source::Source;
use crate::time::Time;
use crate::wire::NoRelay;
use crate::wire::handshake::Resume;
use book::Book;
use chatter::Chatter;
use death::Listeners;
use inbox::Inbox;
use outbox::Outbox;
use pace::Pace;

/// The state of a connection, for outside observers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It has a socket.
    Up(Life),
    /// Its socket is gone. It may resume until then.
    Lost(Time),
    /// It has a socket again, and nothing was lost.
    Resumed,
    /// Follows `Up` or `Resumed`: neither of the two could dial the other, and this node relays the
    /// connection. Holds until the connection is lost.
    Relayed(NodeId),
    /// It is over. Everything in progress on its channels has been settled one way or another.
    Down(Down),
}

/// Why a connection is over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Down {
    /// It could not be made, or resumed, within the grace period.
    #[error("the node could not be reached for {0:?}: {1}")]
    Unreachable(Duration, String),
    /// As `Unreachable`: neither could dial the other within the grace period, and the last possible relay
    /// refused.
    #[error("the node could not be reached for {waited:?}: {dialled}; node {by} cannot relay the connection: {why}")]
    Unrelayed {
        /// For how long.
        waited: Duration,
        /// Why the last attempt to dial it failed.
        dialled: String,
        /// The node that refused to relay.
        by: NodeId,
        /// Its reason.
        why: NoRelay,
    },
    /// The other node has ended without a goodbye: all addresses at which it listened itself, and had been
    /// reached, refuse dials, or another node answers there.
    #[error("the node died without leaving: dials are refused at {0}")]
    Died(String),
    /// The other side gave up first.
    #[error("the other node had already given up the connection")]
    GivenUp,
    /// The other node was restarted.
    #[error("the node was restarted")]
    Restarted,
    /// The other node left.
    #[error("the node left")]
    Left,
    /// This node leaves. (The driver reports this; the protocol has [`Left`](Self::Left) for both sides.)
    #[error("this node is leaving")]
    Leaving,
    /// The other node broke the protocol.
    #[error("the node violated the protocol: {0}")]
    Violation(String),
    /// The other node refuses this one.
    #[error("the node refused the connection: {0}")]
    Refused(crate::wire::handshake::Refusal),
    /// This node does not admit the other one.
    #[error("this node does not admit the other one")]
    Unauthorized,
}

impl Down {
    /// Whether it could not be made, or resumed, within the grace period, or never will be.
    pub(crate) fn is_out_of_reach(&self) -> bool {
        matches!(self, Self::Unreachable(..) | Self::Unrelayed { .. } | Self::Died(_))
    }
}

/// Whether and how a connection has a socket now.
#[derive(Clone, Debug)]
pub(crate) enum Carried {
    /// Nothing needs it.
    Idle,
    /// No socket since `since`; at `until` it dies.
    Lost { since: Time, until: Time },
    /// By this socket.
    By(SocketId),
}

/// The traffic between two nodes, in bytes of frames: with heads, acknowledgements, heartbeats and
/// retransmissions, but without handshakes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Written to sockets.
    pub written: u64,
    /// Read from sockets.
    pub read: u64,
}

/// How this side tries to get a socket.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dialling {
    /// The running attempt.
    pub(crate) running: Option<Attempt>,
    /// The connections that the other node has named while this node's `Hello` waits for its answer, and that
    /// this node has answered it does not know. No answer may name one of them.
    pub(crate) disowned: Vec<ConnectionId>,
    /// When the next attempt begins, if none runs.
    pub(crate) next: Option<Time>,
    /// The next attempt is due, but no address is known.
    pub(crate) waits_for_address: bool,
    /// How many attempts were made to do without a relay.
    pub(crate) probes: u32,
    /// How many attempts have failed since the connection was last up.
    pub(crate) failures: u32,
    /// The dials without a pause, after a lost socket or for a new connection.
    pub(crate) at_once: Pace,
    /// Why the last attempt failed.
    pub(crate) last: String,
    /// How many attempts no node has answered since the connection was last up.
    pub(crate) unanswered: u32,
    /// The node dialled last has answered.
    pub(crate) answered: bool,
    /// Since the connection was last up, one dial has given way to an unconfirmed socket of the other node.
    pub(crate) has_yielded: bool,
    /// Since then, one answer was ignored because this node had answered a `Hello` of the other node that
    /// contradicts it.
    pub(crate) was_overtaken: bool,
    /// How many unconfirmed connections that this node has [offered](former) it has since named to the other
    /// node without that node knowing them.
    pub(crate) unknown: usize,
    /// This node does not need the connection: another node has requested a dial-back.
    pub(crate) for_others: bool,
    /// Another node has requested a dial-back, and is to be notified later if there is none.
    pub(crate) reports: bool,
    pub(crate) help: Help,
    /// The nodes to ask for help, the next one last.
    pub(crate) helpers: Vec<NodeId>,
    /// The node last considered as a helper. The next search begins after it.
    pub(crate) asked: Option<NodeId>,
    /// How many dials of addresses learned from others were made since the connection was last up, and the
    /// source that is charged for them.
    pub(crate) told_dials: (Source, u32),
    /// The node that refused to relay.
    pub(crate) unrelayed: Option<(NodeId, NoRelay)>,
}

/// Whether other nodes help a connection that has no socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Help {
    /// No node has been asked.
    #[default]
    None,
    /// This node has been asked for a dial-back. At `until` it is asked to relay.
    Asked { by: NodeId, until: Time },
    /// This node has been asked to relay.
    Relaying(NodeId),
    /// All nodes have been asked, and are asked again then.
    Rests { until: Time },
}

impl Dialling {
    /// Whether `Hello` may name one more such connection. The `Hello`s that led to them may have been replays
    /// by another node, so they may only delay the connection a few times.
    pub(crate) fn may_name(&self) -> bool {
        self.unknown < former::PROMISES_EACH
    }

    /// The connection has a socket, or is over: earlier failures no longer count.
    pub(crate) fn rest(&mut self) {
        self.failures = 0;
        self.unanswered = 0;
        self.has_yielded = false;
        self.was_overtaken = false;
        self.unknown = 0;
        self.for_others = false;
        self.reports = false;
        self.help = Help::None;
        self.asked = None;
        self.unrelayed = None;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// The driver dials.
    Dial(DialId),
    /// The socket exists; the other side has not answered.
    Hello(SocketId),
}

/// The life of a connection that ended last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Before {
    /// Its number at this side.
    pub(crate) lives: u64,
    /// Whether all values of complete sends had been acknowledged, and all messages to mailboxes.
    pub(crate) was_flushed: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Connection {
    /// The life of the other node that has been met.
    pub(crate) met: Option<Incarnation>,
    /// The id of the connection for both sides, once they have agreed on one.
    pub(crate) id: ConnectionId,
    /// It began on a socket that the other node dialled.
    pub(crate) is_theirs: bool,
    /// The connection's present life.
    pub(crate) run: u64,
    /// The number of its present life at this side.
    pub(crate) lives: u64,
    pub(crate) before: Option<Before>,
    /// Until when it is kept although nothing uses it: this node has learned an address and is about to use
    /// it.
    pub(crate) kept: Option<Time>,
    /// Whether it has been up in this life.
    pub(crate) was_up: bool,
    pub(crate) carried: Carried,
    /// The latest time at which to examine it: see [`table`].
    due: Option<Time>,
    pub(crate) book: Book,
    pub(crate) listeners: Listeners,
    /// The nodes that introduced this one, and their sources, the latest first.
    pub(crate) introducers: Vec<(NodeId, Source)>,
    pub(crate) dialling: Dialling,
    /// The other side's latest attempt that has arrived.
    pub(crate) their_attempt: u64,
    pub(crate) outbox: Outbox,
    pub(crate) inbox: Inbox,
    pub(crate) posts: Posts,
    pub(crate) watches: Watches,
    /// When the socket was last written, and last read.
    pub(crate) said: Time,
    pub(crate) heard: Time,
    /// When the present socket took over the connection.
    pub(crate) carried_at: Time,
    /// When a socket was lost. Since then the other side has acknowledged nothing, and nothing else shows
    /// that it receives frames. The grace period runs from then, however many sockets follow.
    pub(crate) unproven: Option<Time>,
    /// The socket has resumed the connection, and its first heartbeat is due whatever else is sent: it shows
    /// the other side that the socket works.
    pub(crate) resuming: bool,
    /// The other side has sent a heartbeat, and this one has to answer with its own.
    pub(crate) beats_back: bool,
    /// When an acknowledgement has to be sent, if no other frame takes it along.
    pub(crate) ack_at: Option<Time>,
    /// This node leaves, and has queued its goodbye...
    pub(crate) leaving: bool,
    /// ... or will, once no other connection needs this one as its relay.
    pub(crate) goodbye_waits: bool,
    /// How many relayed streams each side has begun: this one, and the other.
    pub(crate) streams: [u64; 2],
    /// Relayed sockets may go to that node, whichever host they come from.
    pub(crate) admits: bool,
    pub(crate) chatter: Chatter,
    /// The dial-backs that it has requested from this node.
    pub(crate) dial_backs: Pace,
    /// The source whose place in the [table] it has. `None`: this node has wanted it.
    counts_for: Option<Source>,
    /// The only source that has named it, if it has never been met.
    named_by: Option<Source>,
    /// Of all lives.
    pub(crate) traffic: Traffic,
}

impl Connection {
    pub(crate) fn new(lives: u64) -> Self {
        Self {
            met: None,
            id: ConnectionId::NONE,
            is_theirs: false,
            run: 1,
            lives,
            before: None,
            kept: None,
            was_up: false,
            carried: Carried::Idle,
            due: None,
            book: Book::default(),
            listeners: Listeners::default(),
            introducers: Vec::new(),
            dialling: Dialling::default(),
            their_attempt: 0,
            outbox: Outbox::default(),
            inbox: Inbox::default(),
            posts: Posts::default(),
            watches: Watches::default(),
            said: Time::default(),
            heard: Time::default(),
            carried_at: Time::default(),
            unproven: None,
            resuming: false,
            beats_back: false,
            ack_at: None,
            leaving: false,
            goodbye_waits: false,
            streams: [0, 0],
            admits: false,
            chatter: Chatter::default(),
            dial_backs: Pace::default(),
            counts_for: None,
            named_by: None,
            traffic: Traffic::default(),
        }
    }

    /// Whether nothing uses it, and nothing is about to.
    pub(crate) fn is_unused(&self) -> bool {
        matches!(self.carried, Carried::Idle) && self.outbox.is_done() && self.kept.is_none()
    }

    /// What this side declares in a handshake as its state.
    pub(crate) fn resume_point(&self) -> Resume {
        let seen = if planted!(ResumeFromAcked) { self.inbox.acked } else { self.inbox.seen };
        Resume { connection: self.id, run: self.run, seen }
    }

    pub(crate) fn socket(&self) -> Option<SocketId> {
        match self.carried {
            Carried::By(socket) => Some(socket),
            Carried::Idle | Carried::Lost { .. } => None,
        }
    }

    /// Its socket is lost. Returns since when it counts as lost.
    pub(crate) fn lose(&mut self, now: Time) -> Time {
        *self.unproven.get_or_insert(now)
    }

    /// Something has arrived. If nothing is owed, no acknowledgement will come: then any frame later than the
    /// handshake proves that the socket works.
    pub(crate) fn hears(&mut self, now: Time, config: &Config) {
        if self.inbox.account.awaits_values() {
            let passed = now.since(self.heard).min(config.heartbeat);
            self.inbox.stall.passes(passed, self.outbox.acked());
        }
        self.heard = now;
        if self.unproven.is_some() && !self.outbox.owes() && now >= self.carried_at + config.first_heartbeat() / 2 {
            self.unproven = None;
        }
    }

    /// When the next heartbeat is due, if nothing is sent before.
    pub(crate) fn heartbeat_at(&self, config: &Config) -> Time {
        if self.beats_back {
            return self.said;
        }
        let at = self.said + config.heartbeat;
        if self.resuming { at.min(self.carried_at + config.first_heartbeat()) } else { at }
    }

    /// Something has been written.
    pub(crate) fn says(&mut self, now: Time, config: &Config) {
        self.said = now;
        self.beats_back = false;
        self.resuming &= now < self.carried_at + config.first_heartbeat();
    }

    /// Begins a new life, numbered `run` or above. The queue of the old one is dropped.
    pub(crate) fn begin_life(&mut self, run: u64, lives: u64) {
        self.run = run;
        self.before = Some(Before { lives: self.lives, was_flushed: !self.outbox.owes_values() });
        self.lives = lives;
        self.kept = None;
        self.was_up = false;
        self.carried = Carried::Idle;
        self.outbox = Outbox::default();
        self.inbox = Inbox::default();
        self.posts = Posts::default();
        self.watches = Watches::default();
        self.unproven = None;
        self.ack_at = None;
        self.leaving = false;
        self.goodbye_waits = false;
        self.streams = [0, 0];
        self.admits = false;
        // Earlier refusals were about the previous life.
        self.listeners.all_well();
        self.dialling.next = None;
        self.dialling.rest();
    }
}
