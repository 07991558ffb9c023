//! The connection between two nodes, above the sockets that carry it.
//!
//! It has lives, numbered by `run`. Within a life it loses nothing and doubles nothing: numbered frames are
//! kept until the other side has said that it has seen them, and when a new socket comes each side goes on
//! from what the other has seen. A life ends when the socket stays away for longer than the grace period,
//! when the other node is restarted, or when either side breaks the protocol; and then for both sides,
//! because the next handshake names the run.

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

/// How a connection is, for those who look at it from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It carries.
    Up(Life),
    /// Its socket is gone. It may come back until then.
    Lost(Time),
    /// It carries again, and nothing was lost.
    Resumed,
    /// Follows on `Up` or `Resumed`: neither of the two could dial the other, and this node relays what they
    /// say. Until the connection is lost.
    Relayed(NodeId),
    /// It is over. What was under way on its channels has been settled one way or another.
    Down(Down),
}

/// Why a connection is over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Down {
    /// It could not be made, or made again, within the grace period.
    #[error("it could not be reached for {0:?}: {1}")]
    Unreachable(Duration, String),
    /// As `Unreachable`: neither could dial the other within the grace period, and the last node that could
    /// have relayed would not.
    #[error("it could not be reached for {waited:?}: {dialled}; and node {by} does not help, since {why}")]
    Unrelayed {
        /// For how long.
        waited: Duration,
        /// What the last attempt to dial it failed of.
        dialled: String,
        /// The node that would not relay.
        by: NodeId,
        /// Why it would not.
        why: NoRelay,
    },
    /// The other node has ended, and has not said so: where it listened itself, and had been reached, all
    /// dials are refused, or another node answers.
    #[error("it has ended without a word: dials are refused at {0}")]
    Died(String),
    /// The other side gave up first.
    #[error("the other side had given the connection up")]
    GivenUp,
    /// The other node was restarted.
    #[error("it was restarted")]
    Restarted,
    /// The other node left.
    #[error("it left")]
    Left,
    /// This node leaves. (Whoever drives the machine says so: here it is [`Left`](Self::Left) to both.)
    #[error("this node leaves")]
    Leaving,
    /// The other node broke the protocol.
    #[error("it broke the protocol: {0}")]
    Violation(String),
    /// The other node will not have this one.
    #[error("it refuses: {0}")]
    Refused(crate::wire::handshake::Refusal),
    /// This node will not have the other one.
    #[error("this node does not admit it")]
    Unauthorized,
}

impl Down {
    /// Whether it could not be made, or made again, within the grace period, or will not be.
    pub(crate) fn is_out_of_reach(&self) -> bool {
        matches!(self, Self::Unreachable(..) | Self::Unrelayed { .. } | Self::Died(_))
    }
}

/// Whether and how a connection is carried now.
#[derive(Clone, Debug)]
pub(crate) enum Carried {
    /// Nobody needs it.
    Idle,
    /// No socket since `since`; at `until` it dies.
    Lost { since: Time, until: Time },
    /// By this socket.
    By(SocketId),
}

/// What was carried between two nodes, in bytes of frames: with their heads, with acknowledgements and
/// heartbeats, and again what was said again; without handshakes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Written to sockets.
    pub written: u64,
    /// Read from sockets.
    pub read: u64,
}

/// How this side tries to make a socket.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dialling {
    /// The attempt that runs.
    pub(crate) running: Option<Attempt>,
    /// While this node's `Hello` waits for its answer, the other node has named these connections, and was
    /// told that they are unknown here. So no answer may name one of them.
    pub(crate) disowned: Vec<ConnectionId>,
    /// When the next begins, if none runs.
    pub(crate) next: Option<Time>,
    /// It would begin, but no address is known.
    pub(crate) waits_for_address: bool,
    /// So often it was tried to do without a relay.
    pub(crate) probes: u32,
    /// How often it has failed since the connection was last up.
    pub(crate) failures: u32,
    /// How often it was dialled without a pause: again when a socket was lost, or anew.
    pub(crate) at_once: Pace,
    /// What the last one failed of.
    pub(crate) last: String,
    /// So often nobody has answered since the connection was last up.
    pub(crate) unanswered: u32,
    /// Whoever was dialled last has answered.
    pub(crate) answered: bool,
    /// Since the connection was last up, one dial has given way to a socket of the other node's that was not
    /// confirmed yet.
    pub(crate) has_yielded: bool,
    /// Since then, one answer was not taken because the other node had said hello, and was answered, in a way
    /// that does not go with it.
    pub(crate) was_overtaken: bool,
    /// So many connections that this node has [offered](former), and that were not confirmed, it has named
    /// since then to the other node, which does not know them.
    pub(crate) unknown: usize,
    /// Nobody here needs the connection: another node has asked for a dial-back.
    pub(crate) for_others: bool,
    /// Another node has asked for a dial-back, and is to be told later whether there is none.
    pub(crate) reports: bool,
    pub(crate) help: Help,
    /// Who can be asked to help, the next one last.
    pub(crate) helpers: Vec<NodeId>,
    /// The last who was looked at as a helper. The next search begins behind it.
    pub(crate) asked: Option<NodeId>,
    /// So many addresses that were only told were dialled since the connection was last up, at the expense of
    /// that source.
    pub(crate) told_dials: (Source, u32),
    /// Who would not relay.
    pub(crate) unrelayed: Option<(NodeId, NoRelay)>,
}

/// Whether others help a connection that has no socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Help {
    /// Nobody has been asked.
    #[default]
    None,
    /// This node has been asked for a dial-back. At `until` it is asked to relay.
    Asked { by: NodeId, until: Time },
    /// This node has been asked to relay.
    Relaying(NodeId),
    /// Everybody has been asked, and is again then.
    Rests { until: Time },
}

impl Dialling {
    /// Whether `Hello` may name one more such connection. Who said hello for these may only have said again
    /// what the other node had said once, so they hold the connection up only so often.
    pub(crate) fn may_name(&self) -> bool {
        self.unknown < former::PROMISES_EACH
    }

    /// The connection has a socket, or is over: what has failed until now says nothing of the next time.
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
    /// The driver is at it.
    Dial(DialId),
    /// The socket is there; the other side has not answered.
    Hello(SocketId),
}

/// The life of a connection that has ended last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Before {
    /// Its number at this side.
    pub(crate) lives: u64,
    /// Whether everything had been acknowledged.
    pub(crate) was_flushed: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Connection {
    /// Which life of the other node has been met.
    pub(crate) met: Option<Incarnation>,
    /// What both call the connection, once they have met for it.
    pub(crate) id: ConnectionId,
    /// It began on a socket that the other node had dialled.
    pub(crate) is_theirs: bool,
    /// The connection's present life.
    pub(crate) run: u64,
    /// The number of its present life at this side.
    pub(crate) lives: u64,
    pub(crate) before: Option<Before>,
    /// It is kept until then though nothing uses it: this node has been told an address, and is about to.
    pub(crate) kept: Option<Time>,
    /// Whether it has been up in this life.
    pub(crate) was_up: bool,
    pub(crate) carried: Carried,
    /// When something has to be done for it at the latest: see [`table`].
    due: Option<Time>,
    pub(crate) book: Book,
    pub(crate) listeners: Listeners,
    /// Who has told of this node, and from where, the latest first.
    pub(crate) introducers: Vec<(NodeId, Source)>,
    pub(crate) dialling: Dialling,
    /// The other side's latest attempt that has arrived.
    pub(crate) their_attempt: u64,
    pub(crate) outbox: Outbox,
    pub(crate) inbox: Inbox,
    /// When something was last written to the socket, and heard from it.
    pub(crate) said: Time,
    pub(crate) heard: Time,
    /// When the present socket took the connection up.
    pub(crate) carried_at: Time,
    /// When a socket was lost. Since then the other side has acknowledged nothing, and nothing else shows
    /// that what is said is heard: the grace period runs from then, however many sockets there are meanwhile.
    pub(crate) unproven: Option<Time>,
    /// The socket has resumed the connection, and its first heartbeat is to come, whatever else is said: it
    /// shows the other side that the socket carries.
    pub(crate) resuming: bool,
    /// The other side has said that it lives, and this one is to say the same.
    pub(crate) beats_back: bool,
    /// When an acknowledgement has to go, if nothing else takes it along.
    pub(crate) ack_at: Option<Time>,
    /// This node leaves, and has said so...
    pub(crate) leaving: bool,
    /// ... or will, once no other connection needs this one as its relay.
    pub(crate) goodbye_waits: bool,
    /// How many relayed streams each side has begun: this one, and the other.
    pub(crate) streams: [u64; 2],
    /// What is relayed may go there, whichever host it comes from.
    pub(crate) admits: bool,
    pub(crate) chatter: Chatter,
    /// The dial-backs that it has asked this node for.
    pub(crate) dial_backs: Pace,
    /// It has a place of that source's in the [table]. `None`: this node has wanted it.
    counts_for: Option<Source>,
    /// It was named by the word of that source alone, and has never been met.
    named_by: Option<Source>,
    /// In all lives.
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

    /// What this side says in a handshake of where it stands.
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

    /// Something was heard. Where nothing is owed no acknowledgement will come: what comes later than the
    /// handshake says that the socket carries.
    pub(crate) fn hears(&mut self, now: Time, config: &Config) {
        if self.inbox.account.awaits_values() {
            self.inbox.stalled += now.since(self.heard).min(config.heartbeat);
        }
        self.heard = now;
        if self.unproven.is_some() && !self.outbox.owes() && now >= self.carried_at + config.first_heartbeat() / 2 {
            self.unproven = None;
        }
    }

    /// When the next heartbeat goes, if nothing is said before.
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

    /// A new life begins, at least this one. What the old one had to say is gone.
    pub(crate) fn begin_life(&mut self, run: u64, lives: u64) {
        self.run = run;
        self.before = Some(Before { lives: self.lives, was_flushed: self.outbox.is_done() });
        self.lives = lives;
        self.kept = None;
        self.was_up = false;
        self.carried = Carried::Idle;
        self.outbox = Outbox::default();
        self.inbox = Inbox::default();
        self.unproven = None;
        self.ack_at = None;
        self.leaving = false;
        self.goodbye_waits = false;
        self.streams = [0, 0];
        self.admits = false;
        // What was refused has told of the life before this one.
        self.listeners.all_well();
        self.dialling.next = None;
        self.dialling.rest();
    }
}
