//! What a node knows of the others, from the reports of its machine.

/// The state of a connection, as its node last learned it.
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
    /// The latest incarnation to which the node has connected.
    pub(crate) life: u64,
    pub(crate) dialling: bool,
    /// When it was first lost in this life.
    pub(crate) lost_at: Option<u64>,
    /// When it was first lost since it received anything but a handshake.
    pub(crate) first_lost: Option<u64>,
    /// The number of lives of this connection, and the socket that last carried the present one.
    pub(crate) lives: u32,
    pub(crate) carrier: Option<usize>,
    /// The life at the other side that matches this one: its process, and which of its lives.
    pub(crate) joined: Option<(usize, u32)>,
    /// A channel was notified of a death that the connection has not reported yet.
    pub(crate) lost_told: bool,
    /// Lives that this side ended for a reason of its own, and those it ended because the other side had.
    pub(crate) ended: u32,
    pub(crate) followed: u32,
    /// The messages sent and received in this life.
    pub(crate) epoch: u64,
    pub(crate) said: u64,
    pub(crate) hears: Option<(u64, u64)>,
}
