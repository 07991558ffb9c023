//! Offers: the entries of the queue until a receive takes them, and their outcomes.

use std::sync::Arc;
use std::task::Waker;

#[cfg(feature = "link")]
use super::encoded::{Linked, Reading};
use super::value::Value;
use crate::channel::erased::Erased;
use crate::choice::decision::Decision;
use crate::error::{Failed, MessageId, RecvError, Why};
use crate::handle::Handle;

/// The ticket of every offer in a channel's slot: an end makes one at a time.
pub(crate) const FIRST_TICKET: u64 = 1;

/// Which party asks for the outcome of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// An operation, or an agent.
    Operation,
    /// A handle: the sender cannot settle the offer.
    Posted,
    /// No party: its value is dropped if it fails.
    Nobody,
}

/// Whether the agent of the receiver elsewhere knows an offer of a choice. The offer may be announced again
/// only after the agent has answered that it has forgotten it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    No,
    Yes,
    /// Withdrawn, to be held back here; the answer is to come.
    AskedBack,
}

pub(super) struct Offer {
    pub(super) ticket: u64,
    pub(super) handle: Handle,
    pub(super) owner: Owner,
    /// It waits only for the receivers that were woken for it.
    pub(super) has_turn: bool,
    pub(super) value: Value,
    pub(super) standing: Standing,
    /// Its choice and the branch of that; `None`: firm.
    pub(super) choice: Option<(Arc<Decision>, u32)>,
    /// The sender's, if the offer is firm; that of a choice is in its decision.
    pub(super) waker: Option<Waker>,
    pub(super) far: Option<FromFar>,
    /// For a choice's offer: whether the agent of the receiver elsewhere knows it.
    pub(super) known: Known,
    /// A link's part of it.
    #[cfg(feature = "link")]
    pub(super) linked: Linked,
}

#[cfg(feature = "link")]
impl Offer {
    /// Drops bytes that were granted and are no longer needed. `true`: there were some. A read of them
    /// becomes useless.
    pub(super) fn forget_encoded(&mut self) -> bool {
        self.linked.forget_read();
        let were_there = matches!(self.value, Value::Encoded(_));
        if were_there {
            self.value = Value::Gone;
        }
        were_there
    }
}

/// The state of an offer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// A receive may take it.
    Waiting,
    /// An extended receive has its value; the sender waits for the release.
    Held(Handle),
    /// The agent of a receiver elsewhere has its value, and will report the outcome.
    Away(Away),
    /// It failed; its owner fetches its value.
    Failed(Failed),
    /// The receiver elsewhere has taken it. The value is still here, for its owner to drop.
    #[cfg(feature = "link")]
    Spent,
}

/// An offer whose value is with the agent of a receiver elsewhere.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Away {
    /// The agent has been asked to return it.
    pub(super) asked_back: bool,
    /// Its operation was lent to another choice: once back, it is offered on behalf of that choice.
    pub(super) anew: bool,
    /// The operation was dropped: no task waits for the answer.
    pub(super) abandoned: bool,
    /// A claim has gone out: the offer was withdrawn, to be held back here, and stands again when the claim
    /// ends.
    pub(super) recalled: bool,
    /// It failed there while its value was on the way, so it fails once the value is back.
    pub(super) failing: Option<Why>,
    /// The handle of a shared receiver elsewhere that it went to; `None`: the agent of the receiver itself.
    pub(super) demanded_by: Option<Handle>,
}

/// An offer that stands here for a sender elsewhere.
#[derive(Debug)]
pub(super) struct FromFar {
    /// The agent it belongs to: [`Handle::END`] for the agent in the sender's place, otherwise the one that
    /// stands in for this handle of a shared sender.
    pub(super) of: Handle,
    /// Its number, which the agent chose.
    pub(super) number: u64,
    /// Set for an offer of this choice elsewhere: its value comes when it is reserved.
    pub(super) choice: Option<u128>,
    pub(super) unread: Unread,
    pub(super) ask: Option<Ask>,
}

/// Whether the value of an offer is still where it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unread {
    No,
    /// A handle elsewhere can have the offer as it is, and read the value there; a receive here requests the
    /// value.
    Yes,
    /// The value was requested, or cannot be read elsewhere: it is to come here.
    Asked,
}

/// A pending request for a reservation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    /// Never used twice, so a late answer cannot be taken for another request's.
    pub(super) number: u64,
    /// The requester; [`Handle::BUFFER`] for a place in the buffer.
    pub(super) handle: Handle,
    /// The tick since which the value is here and waits for a poll of the receiver.
    pub(super) granted: Option<u32>,
}

/// The value of a send that was dropped.
pub(super) struct Kept {
    pub(super) handle: Handle,
    pub(super) value: Erased,
    /// Set if it is unknown whether a receive took the value.
    pub(super) unknown: Option<MessageId>,
}

/// The rest of an offer whose choice was decided for another branch.
pub(super) struct Stranded {
    pub(super) ticket: u64,
    pub(super) handle: Handle,
    /// `None`: the value is in the choice's pool.
    pub(super) value: Option<Erased>,
}

/// The result of a receive's look.
pub(crate) enum Took {
    /// A value, which is in the receive's slot. For an extended receive, with the ticket to release if the
    /// sender waits for that.
    Value(Option<u64>),
    /// No value will come.
    Ended(RecvError),
    /// No value yet.
    Nothing,
    /// The receive's own choice has been decided for another branch.
    ChoiceGone,
    /// This offer is taken if its value can be decoded. That is done without the lock, and then the receive
    /// looks again.
    #[cfg(feature = "link")]
    Reads(Box<Reading>),
    /// The first value in the buffer cannot be decoded. Its send is complete, so the channel is poisoned to
    /// notify both ends.
    #[cfg(feature = "link")]
    Unreadable(Why),
}

/// The outcome of an attempt to offer.
pub(crate) enum Offered {
    /// The buffer, or the policy, has taken the value: the send is complete.
    Admitted,
    /// It will not be sent; the value has not moved.
    Failed(Why),
    /// It waits, under this ticket. `true`: a parked receiver was woken for it.
    Queued(u64, bool),
    /// The send's own choice has been decided for another branch.
    ChoiceGone,
}

/// The state of a ticket.
pub(crate) enum Stand {
    /// No such offer: taken.
    Taken,
    /// It waits to be taken or released.
    Pending,
    /// It failed.
    Failed(Failed),
}

/// The outcome of withdrawing an offer for another choice.
pub(crate) enum Retracted {
    Back,
    Taken,
    Failed(Failed),
}

/// How far a channel has ended.
#[derive(Clone, Copy)]
pub(crate) struct Ends {
    /// No more offers will come.
    pub(crate) no_senders: bool,
    /// No more offers will be taken.
    pub(crate) no_receivers: bool,
}
