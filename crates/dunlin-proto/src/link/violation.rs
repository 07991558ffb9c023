//! Violations of the protocol by the peer of a link.

use crate::id::Ticket;
use crate::wire::codec::WireError;

/// The peer breaks the protocol. The connection ends, since nothing that it sends can be trusted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// The bytes are not a frame.
    #[error("invalid frame: {0}")]
    Wire(#[from] WireError),
    /// No half has this alias, or its channel is not attached.
    #[error("no attached half has alias {0}")]
    UnknownAlias(u32),
    /// Only the other half of a channel receives this kind of word.
    #[error("the half with alias {0} sends frames of this kind and does not receive them")]
    WrongDirection(u32),
    /// Both halves of a channel are attached already.
    #[error("channel {0} is already attached")]
    AttachedTwice(u64),
    /// More channels are attached than this node takes.
    #[error("the peer attaches more than {halves_max} channels that are not open here")]
    TooManyHalves {
        /// The limit.
        halves_max: usize,
    },
    /// A word comes between the pieces of a value.
    #[error("the half with alias {0} receives another frame between two pieces of a value")]
    WithinValue(u32),
    /// A piece belongs to no value, or makes its value too long.
    #[error("the half with alias {0} receives a piece that belongs to no value")]
    StrayPiece(u32),
    /// A value is longer than the home has allowed.
    #[error("a value of {bytes} bytes for the half with alias {alias}; at most {bytes_max} are allowed")]
    ValueTooLarge {
        /// The home.
        alias: u32,
        /// The length that the peer announced.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// The peer acknowledges frames that were not written, or fewer than before.
    #[error("the peer acknowledges {0} frames: fewer were sent, or more were acknowledged before")]
    Acknowledged(u64),
    /// The other half of a channel sends a word that is not possible now.
    #[error("the half with alias {alias}: {misstep}")]
    Half {
        /// The half here.
        alias: u32,
        /// The fault.
        misstep: Misstep,
    },
}

/// A word that one half of a channel may not send to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misstep {
    /// No offer has had this ticket.
    #[error("no offer with ticket {0} was ever made")]
    UnknownTicket(Ticket),
    /// Tickets of a half ascend.
    #[error("ticket {0} of a new offer does not exceed the earlier ones")]
    TicketReused(Ticket),
    /// More offers are open than the window allows.
    #[error("more than {offers_max} offers are open")]
    TooManyOffers {
        /// The limit.
        offers_max: usize,
    },
    /// A value is sent into a place that was not granted.
    #[error("a value was sent without a promised place")]
    NoPlace,
    /// A value is offered, although places for values are granted.
    #[error("value {0} was offered although places for values are promised")]
    HasPlaces(Ticket),
    /// The home declares a second time how it takes values.
    #[error("the home declared twice how it takes values")]
    OpenedTwice,
    /// A home that declared it grants no places grants some.
    #[error("the home promised places after declaring that it promises none")]
    NoPlaces,
    /// The offer is not a choice's.
    #[error("offer {0} does not belong to a choice")]
    NotAChoice(Ticket),
    /// The offer was not reserved, or its withdrawal was not requested.
    #[error("an unrequested answer to offer {0}")]
    NotAsked(Ticket),
    /// The choice has not sent the value that is taken or returned.
    #[error("the value of offer {0} was taken or returned before the choice granted the offer")]
    NotGranted(Ticket),
    /// The offer is not held by an extended receive.
    #[error("offer {0} is released but not held")]
    NotHeld(Ticket),
    /// The offer is held by an extended receive: only its release may follow.
    #[error("offer {0} is held")]
    IsHeld(Ticket),
    /// The offer is settled.
    #[error("offer {0} is already settled")]
    Settled(Ticket),
    /// The same offer is withdrawn a second time.
    #[error("offer {0} is withdrawn twice")]
    WithdrawnTwice(Ticket),
    /// The sending half has been dropped, or the half has closed its place on the link.
    #[error("the half sent a frame after its last one")]
    AfterEnd,
}
