//! What a peer may not do.

use crate::id::Ticket;

/// A frame that a peer may not send, or not now. Nothing else that it says can be trusted: the connection
/// ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerMisbehaved {
    // The connection.
    /// Only the first frame of the dialling side confirms.
    #[error("a confirmation that is not the first frame")]
    LateConfirm,
    /// A frame is acknowledged that was not sent, or one that was acknowledged is not.
    #[error("an acknowledgement of {seen} frames: so many were not sent, or more were acknowledged before")]
    Acknowledged {
        /// How many frames the peer has seen, as it says.
        seen: u64,
    },
    /// The peer has this node answer, and does not read the answers.
    #[error("it does not read what it asks for")]
    DoesNotRead,

    // Values, and the memory that they take here.
    /// Only pieces of the value follow its first one on its channel.
    #[error("something else within a value")]
    WithinValue,
    /// A piece has no value, or makes it too long.
    #[error("a piece of no value")]
    StrayPiece,
    /// No value is being sent that could be cut short.
    #[error("a cut of what has not begun")]
    StrayCut,
    /// More values are being sent in pieces than the peer may have channels.
    #[error("more than {values_max} values in pieces")]
    TooManyUnfinished {
        /// The limit.
        values_max: usize,
    },
    /// A value is larger than the credit, and was not announced.
    #[error("a value that costs {bytes} bytes, of which {bytes_left} are left of the credit")]
    AboveCredit {
        /// What the value costs.
        bytes: u64,
        /// The credit that is left.
        bytes_left: u64,
    },
    /// Large values that are offered on one channel wait for those before them.
    #[error("a value of {bytes} bytes is offered ahead of others, without having been announced")]
    OfferedAhead {
        /// The length of the value.
        bytes: u64,
    },
    /// More values wait to be admitted than may.
    #[error("more than {values_max} values announced")]
    TooManyAnnounced {
        /// The limit.
        values_max: usize,
    },
    /// Another value that is announced has this number.
    #[error("announcement {0} under a number that is in use")]
    AnnouncementInUse(u64),
    /// One value of a channel is announced at a time.
    #[error("announcement {0} is the second on its channel")]
    AnnouncedTwice(u64),
    /// No value that could be taken back is announced under this number.
    #[error("announcement {0} is taken back, and is not there")]
    UnknownAnnouncement(u64),
    /// A value comes that waits to be admitted.
    #[error("announced value {0} was not admitted")]
    NotAdmitted(u64),
    /// A value is not as long as it was announced.
    #[error("a value of {bytes} bytes, announced with {announced}")]
    LengthChanged {
        /// The length that was announced.
        announced: u64,
        /// The length that the value has.
        bytes: u64,
    },
    /// When a value was announced it had no channel here; now it has one, and there is no room.
    #[error("a value for a channel that was not there when it was announced")]
    ChannelNotThere,
    /// A value was admitted, and the peer sends other things.
    #[error("a value that was admitted does not come")]
    AdmittedDoesNotCome,

    // What a sending half says.
    /// A half that is gone says nothing more.
    #[error("a word from a sending half that is gone")]
    HalfGone,
    /// Another offer of the half is open under this number.
    #[error("an offer under number {0}, which is in use")]
    TicketInUse(Ticket),
    /// More offers are open than the window allows.
    #[error("more offers than the window of {window}")]
    WindowFull {
        /// The window.
        window: u32,
    },
    /// A half that has retired its channel sends nothing on credits.
    #[error("a value that was sent behind the end of its half")]
    SentAfterEnd,
    /// The half has no credit for a value that it sends.
    #[error("a value without a credit")]
    NoCredit,
    /// The half knows how large its values may be.
    #[error("a value of {bytes} bytes; the terms allow {bytes_max}")]
    ValueTooLarge {
        /// The length of the value.
        bytes: u64,
        /// What the terms allow.
        bytes_max: u64,
    },
    /// What is asked for, or granted, is not a choice's.
    #[error("offer {0} is not open as a choice's")]
    NotAChoice(Ticket),
    /// The home does not move.
    #[error("quiet, without having been asked")]
    QuietUnasked,

    // What a home says.
    /// Another node has the channel's home.
    #[error("an answer from a node that is not the channel's home")]
    NotTheHome,
    /// A half is told the terms once.
    #[error("terms for a half that has some")]
    TermsTwice,
    /// The offer is settled, or there was none.
    #[error("an answer to offer {0}, which is not open")]
    NotOffered(Ticket),
    /// The offer cannot be held, or is already.
    #[error("offer {0} is held, and was not offered, or was held before")]
    CannotHold(Ticket),
    /// No extended receive has the value.
    #[error("offer {0} is released, and was not held")]
    NotHeld(Ticket),
    /// A value that has been received is not passed on.
    #[error("offer {0} was received, and is to go on")]
    OnwardHeld(Ticket),

    // Ends that move.
    /// No receiver that came here waits for its channel.
    #[error("the state of a channel that was not fetched")]
    StateUnasked,
    /// The state is that of another home than the one that was asked.
    #[error("the state of home {epoch}; that of home {expected} was asked for")]
    OtherState {
        /// The number of the home.
        epoch: u64,
        /// The number that it has to have.
        expected: u64,
    },
    /// The old home sends more values than its state has.
    #[error("a value that its home has not announced")]
    ValueNotInState,
    /// The new home is spoken to before it is one.
    #[error("a word to a home that is not one yet")]
    NotAHomeYet,
    /// The new home promises fewer places than were promised before.
    #[error("a home grants {credits} credits to a half that has {had}")]
    CreditsTakenBack {
        /// What it grants.
        credits: u64,
        /// What was granted before, and not used.
        had: u64,
    },
    /// An extended receive has a value, and its receiver does not leave before its end.
    #[error("a receiver leaves while offer {0} is held")]
    LeavesWhileHeld(Ticket),

    // Relayed sockets.
    /// Streams are numbered in order, each side its own.
    #[error("stream {0} is not the next")]
    StreamOutOfTurn(u64),
    /// A side does not refuse what it has begun.
    #[error("a refusal of stream {0}, which it has begun itself")]
    OwnStreamRefused(u64),
    /// More credit is given than bytes were sent.
    #[error("credit for more than stream {0} has sent")]
    RelayCredit(u64),
    /// More comes than there is credit for.
    #[error("more of stream {0} than there is credit for")]
    AboveRelayCredit(u64),
}
