//! What a node knows of the others, by what its machine has told it.

/// How a connection is, by what its node was told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Standing {
    #[default]
    Idle,
    Up,
    Lost,
    Resumed,
}

/// What a node knows of another.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    pub(crate) state: Standing,
    /// The latest incarnation that has been met.
    pub(crate) life: u64,
    pub(crate) dialling: bool,
    /// When it was first lost in this life.
    pub(crate) lost_at: Option<u64>,
    /// When it was first lost since something other than a handshake was received.
    pub(crate) first_lost: Option<u64>,
    /// The lives of this connection, counted, and the socket that carried the present one last.
    pub(crate) lives: u32,
    pub(crate) carrier: Option<usize>,
    /// The life at the other side that is this one's: its process, and which of its lives.
    pub(crate) joined: Option<(usize, u32)>,
    /// A channel was notified of a death that the connection has not reported yet.
    pub(crate) lost_told: bool,
    /// Lives that this side ended for a reason of its own, and those it ended because the other side had.
    pub(crate) ended: u32,
    pub(crate) followed: u32,
    /// The messages said and heard in this life.
    pub(crate) epoch: u64,
    pub(crate) said: u64,
    pub(crate) hears: Option<(u64, u64)>,
}
