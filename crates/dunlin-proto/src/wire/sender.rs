//! The frames from a sending half to the home of its channel.

use bytes::Bytes;

use super::declaration::Declaration;
use super::end::End;
use super::error::WireError;
use super::fields::{Facts, Field, Reader, Wire, Writer, kinds};
use super::limits;
use super::value::Head;
use crate::id::{ChoiceId, NodeId, Ticket};

kinds! {
    ATTACH = 0x20, FRAME, compares;
    OFFER_CHOICE = 0x24, SHORT;
    WITHDRAW = 0x25, SHORT;
    REVOKE = 0x26, SHORT;
    SENDER_ENDED = 0x27, FRAME;
    TAKE = 0x2a, SHORT;
    QUIET = 0x2b, SHORT;
    DRAIN = 0x2c, SHORT;
    STATE = 0x2d, FRAME;
    REPLY = 0x4a, FRAME;
    REPLY_COMES = 0x4b, SHORT;
}

/// A frame from a sending half to the home of its channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToHome {
    /// This node has a sending half.
    Attach(Declaration),
    /// A value, or its first piece: `total` bytes in all.
    Value {
        /// What the value is for.
        head: Head,
        /// The length of the whole value, in bytes.
        total: u64,
        /// As much of it as travels with the head.
        first: Bytes,
    },
    /// A choice offers to send. [`FromHome::Reserve`](super::FromHome::Reserve) requests the value.
    OfferChoice(Ticket, ChoiceId),
    /// Withdraws the offer.
    Withdraw(Ticket),
    /// The reserved choice asks to decide for another branch.
    Revoke(Ticket),
    /// How the sending half ended the channel, or that it is gone.
    Ended(End),
    /// The sender has arrived at this node in a message, and is used; the number counts its moves.
    Take(u64),
    /// No more frames come from here: answers [`FromHome::Moving`](super::FromHome::Moving).
    Quiet,
    /// Asks whether everything sent before this has arrived. [`FromHome::Drained`](super::FromHome::Drained)
    /// answers.
    Drain,
    /// From the old home to the new one: the state of the channel; the values of its buffer follow.
    State(Box<Moved>),
    /// The reply of a call, to the node that has called; the number of the channel is that of the
    /// [place](crate::Machine::hold_reply) for it. No frame about the place follows.
    Reply(Bytes),
    /// The reply comes as a value on this channel: its home opens, and the sending half is here.
    ReplyComes,
}

impl Wire for ToHome {
    /// Besides those of a value's [`Head`].
    const KINDS: &'static [(u8, Facts)] = kind::KINDS;

    #[inline]
    fn write<'a>(&'a self, w: &mut Writer<'a>) {
        match self {
            Self::Attach(face) => w.kind(kind::ATTACH).put(face),
            Self::Value { head, total, first } => {
                head.write(w);
                w.number(*total).piece(first)
            }
            Self::OfferChoice(ticket, choice) => w.kind(kind::OFFER_CHOICE).number(*ticket).id(*choice),
            Self::Withdraw(ticket) => w.kind(kind::WITHDRAW).number(*ticket),
            Self::Revoke(ticket) => w.kind(kind::REVOKE).number(*ticket),
            Self::Ended(how) => w.kind(kind::SENDER_ENDED).put(how),
            Self::Take(transfer) => w.kind(kind::TAKE).number(*transfer),
            Self::Quiet => w.kind(kind::QUIET),
            Self::Drain => w.kind(kind::DRAIN),
            Self::State(state) => w.kind(kind::STATE).put(&**state),
            Self::Reply(reply) => w.kind(kind::REPLY).string(reply),
            Self::ReplyComes => w.kind(kind::REPLY_COMES),
        };
    }

    #[inline]
    fn read(kind: u8, r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(match kind {
            kind::ATTACH => Self::Attach(r.field()?),
            kind::OFFER_CHOICE => Self::OfferChoice(r.number("a ticket")?, r.id("a choice")?),
            kind::WITHDRAW => Self::Withdraw(r.number("a ticket")?),
            kind::REVOKE => Self::Revoke(r.number("a ticket")?),
            kind::SENDER_ENDED => Self::Ended(r.field()?),
            kind::TAKE => Self::Take(r.number("a transfer")?),
            kind::QUIET => Self::Quiet,
            kind::DRAIN => Self::Drain,
            kind::STATE => Self::State(Box::new(r.field()?)),
            kind::REPLY => Self::Reply(r.bytes("a reply", limits::REPLY)?),
            kind::REPLY_COMES => Self::ReplyComes,
            value => {
                let (head, total) = (Head::read(value, r)?, r.number("a value's length")?);
                // Only the empty value has an empty piece: otherwise a value could stay unfinished at no cost
                // to its sender.
                let first = if total == 0 { Bytes::new() } else { r.piece()? };
                if first.len() as u64 > total {
                    return Err(WireError::Trailing((first.len() as u64 - total) as usize));
                }
                Self::Value { head, total, first }
            }
        })
    }
}

/// A channel, as it moves to its new home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The new home's epoch.
    pub epoch: u64,
    /// The number of the last move of the sender that was admitted.
    pub transfer: u64,
    /// The node with the sender, and where it can be dialled; `None` if no sender is left.
    pub sender: Option<(NodeId, Vec<String>)>,
    /// How the sender has ended the channel.
    pub ended: Option<End>,
    /// How many more values the sender may send on credits: the new home has places for them too.
    pub credits: u64,
    /// How many buffered values follow, as values that are [`Sent`](Head::Sent).
    pub values: u64,
}

impl Field for Moved {
    fn write(&self, w: &mut Writer<'_>) {
        w.number(self.epoch).number(self.transfer);
        match &self.sender {
            None => w.byte(0),
            Some((node, addresses)) => w.byte(1).id(node.0).addresses(addresses),
        };
        match &self.ended {
            None => w.byte(0),
            Some(how) => w.byte(1).put(how),
        };
        w.number(self.credits).number(self.values);
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let (epoch, transfer) = (r.number("an epoch")?, r.number("a transfer")?);
        let sender = if r.flag("a sender")? { Some((r.node()?, r.addresses()?)) } else { None };
        let ended = if r.flag("an end")? { Some(r.field()?) } else { None };
        let (credits, values) = (r.number("a count of places")?, r.number("a count of values")?);
        Ok(Self { epoch, transfer, sender, ended, credits, values })
    }
}
