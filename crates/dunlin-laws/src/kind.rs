//! The policies under which the laws run, and what each promises.

use dunlin::{
    Admit, Buffering, Overflow, Policy, drop_newest, fifo, overwrite_newest, overwrite_oldest, rendezvous, unbounded,
};

/// The effect of a send when the channel has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Full {
    /// The send waits.
    Waits,
    /// The channel drops its oldest value to make room.
    DropsOldest,
    /// The new value replaces the newest in the channel.
    ReplacesNewest,
    /// The channel drops the sent value, and the send returns `Ok`.
    DropsThis,
    /// The channel refuses the send.
    Refuses,
}

/// A policy and its promises: a column of the matrix.
#[derive(Clone, Debug)]
pub struct Kind {
    /// Its name in the table.
    pub name: &'static str,
    /// The policy.
    pub policy: Policy,
    /// How many unreceived values it keeps.
    pub room: usize,
    /// What it does with a value beyond `room`.
    pub full: Full,
    /// How many operations may wait on either side, and which one gives way.
    pub pending: Option<(usize, Overflow)>,
}

/// Practically unbounded: no law sends as many values.
pub const NO_BOUND: usize = 1 << 20;

impl Kind {
    /// A column for a user-defined policy.
    pub fn new(name: &'static str, policy: impl Into<Policy>, room: usize, full: Full) -> Self {
        Self { name, policy: policy.into(), room, full, pending: None }
    }

    fn bounded(name: &'static str, overflow: Overflow) -> Self {
        let policy = rendezvous().pending_senders(2, overflow).pending_receivers(2, overflow);
        Self { pending: Some((2, overflow)), ..Self::new(name, policy, 0, Full::Waits) }
    }

    /// Whether a send waits while there is no room.
    pub fn waits(&self) -> bool {
        self.full == Full::Waits && self.room < NO_BOUND
    }

    /// Whether no value is discarded after its send returned `Ok`.
    pub fn keeps(&self) -> bool {
        matches!(self.full, Full::Waits | Full::Refuses)
    }

    /// Whether `Ok` means received.
    pub fn is_rendezvous(&self) -> bool {
        self.room == 0
    }

    /// Whether it is a rendezvous without a bound on waiting operations.
    pub fn is_plain_rendezvous(&self) -> bool {
        self.is_rendezvous() && self.is_open()
    }

    /// Whether any number of senders and receivers may wait.
    pub fn is_open(&self) -> bool {
        self.pending.is_none()
    }
}

/// A user-defined policy: it keeps three values, then refuses.
#[derive(Clone, Debug)]
struct Three;

impl Buffering for Three {
    fn admit(&mut self, queued: usize) -> Admit {
        if queued < 3 { Admit::Keep } else { Admit::Refuse }
    }
}

/// The columns of the matrix.
pub fn kinds() -> Vec<Kind> {
    vec![
        Kind::new("rendezvous", rendezvous(), 0, Full::Waits),
        Kind::new("fifo(1)", fifo(1), 1, Full::Waits),
        Kind::new("fifo(4)", fifo(4), 4, Full::Waits),
        Kind::new("unbounded", unbounded(), NO_BOUND, Full::Waits),
        Kind::new("oldest(2)", overwrite_oldest(2), 2, Full::DropsOldest),
        Kind::new("newest(2)", overwrite_newest(2), 2, Full::ReplacesNewest),
        Kind::new("drop(4)", drop_newest(4), 4, Full::DropsThis),
        Kind::new("own(3)", Three, 3, Full::Refuses),
        Kind::bounded("p.fifo(2)", Overflow::Fifo),
        Kind::bounded("p.lifo(2)", Overflow::Lifo),
        Kind::bounded("p.reject(2)", Overflow::Reject),
    ]
}
