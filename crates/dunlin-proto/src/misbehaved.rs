//! Violations of the protocol by a peer.

use crate::id::Ticket;

/// A frame that a peer may not send, or not now. The peer cannot be trusted any more, so the connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerMisbehaved {
    // The connection.
    /// Only the first frame of the dialling side confirms.
    #[error("a confirmation that is not the first frame")]
    LateConfirm,
    /// An acknowledgement of frames that were not sent, or of fewer frames than an earlier one.
    #[error("an acknowledgement of {seen} frames: fewer were sent, or more were acknowledged before")]
    Acknowledged {
        /// How many frames the peer claims to have received.
        seen: u64,
    },
    /// The peer makes this node answer, and does not read the answers.
    #[error("the peer requests answers and does not read them")]
    DoesNotRead,

    // Values, and the memory that they take here.
    /// Only further pieces of a value may follow its first one on its channel.
    #[error("another frame between two pieces of a value")]
    WithinValue,
    /// A piece belongs to no value, or makes its value too long.
    #[error("a piece that belongs to no value")]
    StrayPiece,
    /// No value has begun that could be cut short.
    #[error("a cut of a value that has not begun")]
    StrayCut,
    /// More values are arriving in pieces than the peer may have channels.
    #[error("more than {values_max} unfinished values")]
    TooManyUnfinished {
        /// The limit.
        values_max: usize,
    },
    /// A value exceeds the credit, and was not announced.
    #[error("a value that costs {bytes} bytes, with {bytes_left} bytes of credit left")]
    AboveCredit {
        /// The cost of the value.
        bytes: u64,
        /// The remaining credit.
        bytes_left: u64,
    },
    /// A large value on a channel has to wait for the open ones before it.
    #[error("a value of {bytes} bytes offered ahead of others without an announcement")]
    OfferedAhead {
        /// The length of the value.
        bytes: u64,
    },
    /// More values wait for admission than may.
    #[error("more than {values_max} values announced")]
    TooManyAnnounced {
        /// The limit.
        values_max: usize,
    },
    /// Another announced value has this number.
    #[error("announcement {0} under a number that is in use")]
    AnnouncementInUse(u64),
    /// A channel may announce only one value at a time.
    #[error("announcement {0} is the second on its channel")]
    AnnouncedTwice(u64),
    /// No value is announced under this number that could be recanted.
    #[error("announcement {0} is withdrawn but does not exist")]
    UnknownAnnouncement(u64),
    /// A value arrives that has not been admitted.
    #[error("announced value {0} was not admitted")]
    NotAdmitted(u64),
    /// A value does not have its announced length.
    #[error("a value of {bytes} bytes, announced with {announced}")]
    LengthChanged {
        /// The announced length.
        announced: u64,
        /// The actual length.
        bytes: u64,
    },
    /// When a value was announced its channel was not here; now it is, but there is no room.
    #[error("a value whose channel did not exist when the value was announced")]
    ChannelNotThere,
    /// The peer does not send an admitted value, but sends other frames.
    #[error("an admitted value was not sent")]
    AdmittedDoesNotCome,

    // Messages for mailboxes.
    /// Only further pieces of a message may follow its first one among the messages for mailboxes.
    #[error("another message for a mailbox between two pieces of one")]
    WithinPost,
    /// More was sent to a mailbox than may be unreceived there.
    #[error(
        "a message for mailbox {mailbox} that costs {bytes} bytes, with room for {bytes_left} in {posts_left} messages"
    )]
    AbovePostRoom {
        /// The mailbox.
        mailbox: u64,
        /// The cost of the message.
        bytes: u64,
        /// How many bytes were left...
        bytes_left: u64,
        /// ... and how many messages.
        posts_left: u32,
    },

    // Signals.
    /// A watch under a number that is in use.
    #[error("a watch with number {0}, which is in use")]
    WatchInUse(u64),
    /// A node may have only so many watches at another one.
    #[error("more than {watches_max} watches of processes")]
    TooManyWatches {
        /// The limit.
        watches_max: usize,
    },

    // Frames of a sending half.
    /// A half that is gone may send nothing more.
    #[error("a frame from a sending half that has ended")]
    HalfGone,
    /// Another offer of the half is open under this number.
    #[error("an offer with ticket {0}, which is in use")]
    TicketInUse(Ticket),
    /// More offers are open than the window allows.
    #[error("more open offers than the window of {window}")]
    WindowFull {
        /// The window.
        window: u32,
    },
    /// A half that has retired its channel may send nothing on credits.
    #[error("a value sent after the end of its half")]
    SentAfterEnd,
    /// The half has no credit for the value.
    #[error("a value without a credit")]
    NoCredit,
    /// The half knows the size limit of its values.
    #[error("a value of {bytes} bytes; the terms allow {bytes_max}")]
    ValueTooLarge {
        /// The length of the value.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// The requested or granted offer is not a choice's.
    #[error("offer {0} is not an open offer of a choice")]
    NotAChoice(Ticket),
    /// The home is not moving.
    #[error("an unrequested Quiet frame")]
    QuietUnasked,

    // Frames of a home.
    /// Another node has the channel's home.
    #[error("an answer from a node that is not the channel's home")]
    NotTheHome,
    /// A half gets the terms only once.
    #[error("terms for a half that already has terms")]
    TermsTwice,
    /// The offer is settled, or never existed.
    #[error("an answer to offer {0}, which is not open")]
    NotOffered(Ticket),
    /// The offer cannot be held, or is held already.
    #[error("offer {0} is held but not open, or already held")]
    CannotHold(Ticket),
    /// No extended receive has the value.
    #[error("offer {0} is released but not held")]
    NotHeld(Ticket),
    /// A value that has been received cannot be forwarded.
    #[error("offer {0} is forwarded after an extended receive")]
    OnwardHeld(Ticket),

    // Ends that move.
    /// No receiver here waits for the state of its channel.
    #[error("the state of a channel that was not requested")]
    StateUnasked,
    /// The state is not that of the requested home.
    #[error("the state of home {epoch}; home {expected} was requested")]
    OtherState {
        /// The epoch of the home.
        epoch: u64,
        /// The expected epoch.
        expected: u64,
    },
    /// The old home sends more values than its state announced.
    #[error("a value that the old home has not announced")]
    ValueNotInState,
    /// A frame for the new home arrives before that is one.
    #[error("a frame for a home that is not open yet")]
    NotAHomeYet,
    /// The new home grants fewer credits than there were before.
    #[error("a home reduces the credits of a half from {had} to {credits}")]
    CreditsTakenBack {
        /// The credits granted.
        credits: u64,
        /// The credits granted before and not used.
        had: u64,
    },
    /// An extended receive holds a value, and its receiver may not leave before that ends.
    #[error("a receiver leaves while offer {0} is held")]
    LeavesWhileHeld(Ticket),

    // Relayed sockets.
    /// Each side numbers its streams in ascending order.
    #[error("stream {0} is out of order")]
    StreamOutOfTurn(u64),
    /// A side may not refuse a stream that it has begun.
    #[error("a refusal of stream {0} by the side that opened the stream")]
    OwnStreamRefused(u64),
    /// More credit is given than bytes were sent.
    #[error("credit for more bytes than stream {0} has sent")]
    RelayCredit(u64),
    /// More bytes arrive than there is credit for.
    #[error("more bytes on stream {0} than its credit allows")]
    AboveRelayCredit(u64),
}
