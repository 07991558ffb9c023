//! The policies over which the laws run, and what each promises.

use dunlin::{
    Admit, Buffering, Overflow, Policy, drop_newest, fifo, overwrite_newest, overwrite_oldest, rendezvous, unbounded,
};

/// What happens to a value when there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Full {
    /// Its send waits.
    Waits,
    /// The oldest makes room.
    DropsOldest,
    /// The newest makes room.
    ReplacesNewest,
    /// It is dropped, and its send answers `Ok`.
    DropsThis,
    /// Its send is refused.
    Refuses,
}

/// A policy with what it promises: a column of the matrix.
#[derive(Clone, Debug)]
pub struct Kind {
    /// As the table shows it.
    pub name: &'static str,
    /// The policy.
    pub policy: Policy,
    /// How many values it keeps that have not been received.
    pub room: usize,
    /// What it does with one more.
    pub full: Full,
    /// How many operations may wait on either side, and which gives way.
    pub pending: Option<(usize, Overflow)>,
}

/// As good as no bound: no law sends as many values.
pub const NO_BOUND: usize = 1 << 20;

impl Kind {
    /// A column for a policy of a user's own.
    pub fn new(name: &'static str, policy: impl Into<Policy>, room: usize, full: Full) -> Self {
        Self { name, policy: policy.into(), room, full, pending: None }
    }

    fn bounded(name: &'static str, overflow: Overflow) -> Self {
        let policy = rendezvous().pending_senders(2, overflow).pending_receivers(2, overflow);
        Self { pending: Some((2, overflow)), ..Self::new(name, policy, 0, Full::Waits) }
    }

    /// Whether a send waits for as long as there is no room.
    pub fn waits(&self) -> bool {
        self.full == Full::Waits && self.room < NO_BOUND
    }

    /// Whether every value whose send was `Ok` is received, if anything is.
    pub fn keeps(&self) -> bool {
        matches!(self.full, Full::Waits | Full::Refuses)
    }

    /// Whether `Ok` means received.
    pub fn is_rendezvous(&self) -> bool {
        self.room == 0
    }

    /// Whether it is a rendezvous without bounds on waiting operations.
    pub fn is_plain_rendezvous(&self) -> bool {
        self.is_rendezvous() && self.is_open()
    }

    /// Whether any number of senders and receivers may wait.
    pub fn is_open(&self) -> bool {
        self.pending.is_none()
    }
}

/// A user's own policy: three values, then no.
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
