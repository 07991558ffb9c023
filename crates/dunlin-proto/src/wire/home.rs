//! The frames from the home of a channel to a node with a sending half.

use super::declaration::Declaration;
use super::end::{End, Failure};
use super::error::WireError;
use super::fields::{Facts, Field, Reader, Wire, Writer, invalid, kinds};
use crate::id::{NodeId, Request, Ticket};

kinds! {
    ATTACHED = 0x10, SHORT, answer;
    REJECTED = 0x11, FRAME, answer;
    TAKEN = 0x12, SHORT, answer;
    HELD = 0x13, SHORT, answer;
    RELEASED = 0x14, SHORT, answer;
    FAILED = 0x15, FRAME, answer;
    WITHDRAWN = 0x16, SHORT, answer;
    RESERVE = 0x17, SHORT, answer;
    ABORT = 0x18, SHORT, answer;
    CREDIT = 0x19, SHORT, answer;
    HOME_ENDED = 0x1a, FRAME, answer;
    HOME_IS = 0x1b, SHORT, answer;
    UNTAKEN = 0x1c, SHORT, answer;
    MOVING = 0x1d, FRAME, answer;
    SUPERSEDED = 0x1e, SHORT, answer;
    DRAINED = 0x1f, SHORT, answer;
    ONWARD = 0x2e, SHORT, answer;
    OFFER_UNREAD = 0x47, SHORT, answer;
}

/// A frame from the home of a channel to a node with a sending half.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromHome {
    /// The answer to [`ToHome::Attach`](super::ToHome::Attach).
    Attached(Terms),
    /// The answer to an [`ToHome::Attach`](super::ToHome::Attach) that does not fit; the home ignores what
    /// follows it.
    Rejected(Rejection),
    /// A receive has returned the value.
    Taken(Ticket),
    /// An extended receive has returned the value; [`Released`](Self::Released) follows.
    Held(Ticket),
    /// The extended receive of this value is over.
    Released(Ticket),
    /// The offer has failed.
    Failed(Ticket, Failure),
    /// The answer to [`ToHome::Withdraw`](super::ToHome::Withdraw): the value has not been taken.
    Withdrawn(Ticket),
    /// Requests the value that a choice offers.
    Reserve(Ticket, Request),
    /// Aborts the reservation; the offer stands.
    Abort(Ticket, Request),
    /// This many more values may be [`Sent`](super::Head::Sent).
    Credit(u32),
    /// The channel has ended; open offers have failed.
    Ended(End),
    /// The answer to [`ToHome::Take`](super::ToHome::Take): this node is the channel's home, and knows the
    /// half.
    HomeIs {
        /// The number in the request.
        transfer: u64,
        /// The number of the channel's home.
        epoch: u64,
        /// Its terms.
        terms: Terms,
    },
    /// The answer to [`ToHome::Take`](super::ToHome::Take) with this number: the home is not here, or not any
    /// more.
    NotHome(u64),
    /// The answer to [`ToHome::Take`](super::ToHome::Take) with this number: another node has the sender.
    Fenced(u64),
    /// The receiver has left for another node. The home sends nothing more about the offers made here;
    /// [`ToHome::Quiet`](super::ToHome::Quiet) answers.
    Moving {
        /// The new home's epoch.
        epoch: u64,
        /// The new home.
        to: NodeId,
        /// Where it can be dialled.
        addresses: Vec<String>,
    },
    /// To a node that the sender has left: the home has admitted the half with this number.
    Superseded(u64),
    /// The answer to [`ToHome::Drain`](super::ToHome::Drain).
    Drained,
    /// The offer is to be forwarded to another node, but the ends in it are encoded for this one only. An
    /// offer of a value is over, and is made again; a choice's stands.
    Onward(Ticket),
    /// Receivers of these offers are at other nodes. From now on values of this many bytes or more are to be
    /// [offered unread](super::Head::Unread). Zero: none any more.
    Unread(u64),
}

impl FromHome {
    /// Whether it is about the places of the channel's ends, rather than about offers.
    pub(crate) fn is_about_place(&self) -> bool {
        matches!(
            self,
            Self::HomeIs { .. }
                | Self::NotHome(_)
                | Self::Fenced(_)
                | Self::Moving { .. }
                | Self::Superseded(_)
                | Self::Drained
        )
    }
}

impl Wire for FromHome {
    const KINDS: &'static [(u8, Facts)] = kind::KINDS;

    fn write(&self, w: &mut Writer<'_>) {
        match self {
            Self::Attached(terms) => w.kind(kind::ATTACHED).put(terms),
            Self::Rejected(why) => w.kind(kind::REJECTED).put(why),
            Self::Taken(ticket) => w.kind(kind::TAKEN).number(*ticket),
            Self::Held(ticket) => w.kind(kind::HELD).number(*ticket),
            Self::Released(ticket) => w.kind(kind::RELEASED).number(*ticket),
            Self::Failed(ticket, why) => w.kind(kind::FAILED).number(*ticket).put(why),
            Self::Withdrawn(ticket) => w.kind(kind::WITHDRAWN).number(*ticket),
            Self::Reserve(ticket, request) => w.kind(kind::RESERVE).number(*ticket).number(*request),
            Self::Abort(ticket, request) => w.kind(kind::ABORT).number(*ticket).number(*request),
            Self::Credit(places) => w.kind(kind::CREDIT).number((*places).into()),
            Self::Ended(how) => w.kind(kind::HOME_ENDED).put(how),
            Self::HomeIs { transfer, epoch, terms } => {
                w.kind(kind::HOME_IS).number(*transfer).number(*epoch).put(terms)
            }
            Self::NotHome(transfer) => w.kind(kind::UNTAKEN).number(*transfer).byte(0),
            Self::Fenced(transfer) => w.kind(kind::UNTAKEN).number(*transfer).byte(1),
            Self::Moving { epoch, to, addresses } => w.kind(kind::MOVING).number(*epoch).id(to.0).addresses(addresses),
            Self::Superseded(transfer) => w.kind(kind::SUPERSEDED).number(*transfer),
            Self::Drained => w.kind(kind::DRAINED),
            Self::Onward(ticket) => w.kind(kind::ONWARD).number(*ticket),
            Self::Unread(size) => w.kind(kind::OFFER_UNREAD).number(*size),
        };
    }

    #[inline]
    fn read(kind: u8, r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(match kind {
            kind::ATTACHED => Self::Attached(r.field()?),
            kind::REJECTED => Self::Rejected(r.field()?),
            kind::TAKEN => Self::Taken(r.number("a ticket")?),
            kind::HELD => Self::Held(r.number("a ticket")?),
            kind::RELEASED => Self::Released(r.number("a ticket")?),
            kind::FAILED => Self::Failed(r.number("a ticket")?, r.field()?),
            kind::WITHDRAWN => Self::Withdrawn(r.number("a ticket")?),
            kind::RESERVE => Self::Reserve(r.number("a ticket")?, r.number("a request")?),
            kind::ABORT => Self::Abort(r.number("a ticket")?, r.number("a request")?),
            kind::CREDIT => Self::Credit(r.number32("credits")?),
            kind::HOME_ENDED => Self::Ended(r.field()?),
            kind::HOME_IS => {
                Self::HomeIs { transfer: r.number("a transfer")?, epoch: r.number("an epoch")?, terms: r.field()? }
            }
            kind::UNTAKEN => {
                let transfer = r.number("a transfer")?;
                if r.flag("the reason for a refusal")? { Self::Fenced(transfer) } else { Self::NotHome(transfer) }
            }
            kind::MOVING => Self::Moving { epoch: r.number("an epoch")?, to: r.node()?, addresses: r.addresses()? },
            kind::SUPERSEDED => Self::Superseded(r.number("a transfer")?),
            kind::DRAINED => Self::Drained,
            kind::ONWARD => Self::Onward(r.number("a ticket")?),
            kind::OFFER_UNREAD => Self::Unread(r.number("a size")?),
            unknown => return Err(WireError::UnknownKind(unknown)),
        })
    }
}

/// What a home grants to a sending half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How many offers may be open at once.
    pub window: u32,
    /// How many values may be [`Sent`](super::Head::Sent) at first.
    pub credits: u32,
    /// The largest encoded value, in bytes.
    pub value_max: u64,
}

impl Field for Terms {
    fn write(&self, w: &mut Writer<'_>) {
        w.number(self.window.into()).number(self.credits.into()).number(self.value_max);
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let (window, credits) = (r.number32("a window")?, r.number32("credits")?);
        let terms = Self { window, credits, value_max: r.number("a limit")? };
        if terms.window == 0 { Err(invalid("a window", 0)) } else { Ok(terms) }
    }
}

/// Why an attachment was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// This node does not have the channel, or not any more.
    NoSuchChannel,
    /// Another node has this unshared end.
    Occupied,
    /// The two declarations do not fit; this is the home's.
    Mismatch(Declaration),
    /// The node has no room for another channel.
    Full,
}

impl Field for Rejection {
    fn write(&self, w: &mut Writer<'_>) {
        match self {
            Self::NoSuchChannel => w.byte(0),
            Self::Occupied => w.byte(1),
            Self::Mismatch(theirs) => w.byte(2).put(theirs),
            Self::Full => w.byte(3),
        };
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(match r.byte("a rejection")? {
            0 => Self::NoSuchChannel,
            1 => Self::Occupied,
            2 => Self::Mismatch(r.field()?),
            3 => Self::Full,
            value => return Err(invalid("a rejection", value)),
        })
    }
}
