//! Offers: what stands in the queue until it is taken, and what is said of that.

use std::sync::Arc;
use std::task::Waker;

#[cfg(feature = "link")]
use super::encoded::{Linked, Reading};
use super::value::Value;
use crate::choice::decision::Decision;
use crate::error::{Failed, MessageId, RecvError, Why};
use crate::handle::Handle;

/// The ticket of every offer in the slot of a channel: an end makes one at a time.
pub(crate) const FIRST_TICKET: u64 = 1;

/// Who asks what becomes of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// An operation, or an agent.
    Operation,
    /// A handle: it is not there to be settled by its sender.
    Posted,
    /// Nobody: when it fails its value is dropped.
    Nobody,
}

/// Whether the agent of the receiver elsewhere knows an offer of a choice. It may hear of it again only when
/// it has answered that it does not any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    No,
    Yes,
    /// It was asked back, to be held back here; the answer is to come.
    AskedBack,
}

pub(super) struct Offer<T> {
    pub(super) ticket: u64,
    pub(super) handle: Handle,
    pub(super) owner: Owner,
    /// It waits for the receivers that were woken for it, and for nothing else.
    pub(super) has_turn: bool,
    pub(super) value: Value<T>,
    pub(super) standing: Standing,
    /// The choice it belongs to, and as which branch; `None`: firm.
    pub(super) choice: Option<(Arc<Decision>, u32)>,
    /// The sender's, if the offer is firm; a choice's is in its decision.
    pub(super) waker: Option<Waker>,
    pub(super) far: Option<FromFar>,
    /// Of a choice's: what the agent of the receiver elsewhere knows of it.
    pub(super) known: Known,
    /// What a link has of it.
    #[cfg(feature = "link")]
    pub(super) linked: Linked<T>,
}

#[cfg(feature = "link")]
impl<T> Offer<T> {
    /// Bytes that were granted, and are not wanted any more. `true`: there were some. A read of them is in
    /// vain.
    pub(super) fn forget_encoded(&mut self) -> bool {
        self.linked.forget_read();
        let were_there = matches!(self.value, Value::Encoded(_));
        if were_there {
            self.value = Value::Gone;
        }
        were_there
    }
}

/// How an offer stands.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It may be taken.
    Waiting,
    /// An extended receive has its value; the sender waits for the release.
    Held(Handle),
    /// The agent of a receiver elsewhere has its value, and will say what became of it.
    Away(Away),
    /// It failed; the owner will fetch its value.
    Failed(Failed),
    /// The receiver elsewhere has taken it. The value is still here, for its owner to drop.
    #[cfg(feature = "link")]
    Spent,
}

/// An offer whose value is with the agent of a receiver elsewhere.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Away {
    /// The agent has been asked to get it back.
    pub(super) asked_back: bool,
    /// Its operation was lent to another choice: when it is back it is offered on behalf of that.
    pub(super) anew: bool,
    /// Nobody waits for the answer: the operation was dropped.
    pub(super) abandoned: bool,
    /// A claim has gone out: it has been asked back to be held back here, and stands again when the claim is
    /// over.
    pub(super) recalled: bool,
    /// It failed over there while its value was on the way; so it fails when the value is back.
    pub(super) failing: Option<Why>,
    /// It went to a handle of a shared receiver that is elsewhere; else to the agent of the receiver itself.
    pub(super) demanded_by: Option<Handle>,
}

/// An offer that stands here for a sender elsewhere.
#[derive(Debug)]
pub(super) struct FromFar {
    /// Whose it is: [`Handle::END`] of the agent that is the sender here, else of the one that stands here as
    /// this handle of a shared sender.
    pub(super) of: Handle,
    /// Its number, by which its agent knows it.
    pub(super) number: u64,
    /// Set: it is the offer of this choice elsewhere, and its value comes when it is reserved.
    pub(super) choice: Option<u128>,
    pub(super) unread: Unread,
    pub(super) ask: Option<Ask>,
}

/// Whether the value of an offer is still where it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unread {
    No,
    /// A handle elsewhere can have the offer as it is, and reads the value there; who is to have it here asks
    /// for it.
    Yes,
    /// That has been done, or it cannot be read elsewhere: it is to come here.
    Asked,
}

/// That a reservation was asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    /// Never used twice, so a late answer cannot pass for another one's.
    pub(super) number: u64,
    /// For whom; [`Handle::BUFFER`] for a place in the buffer.
    pub(super) handle: Handle,
    /// Since this tick the value is here and waits for the receiver to be polled.
    pub(super) granted: Option<u32>,
}

/// The value of a send that was dropped.
pub(super) struct Kept<T> {
    pub(super) handle: Handle,
    pub(super) value: T,
    /// Whether it was received is not known.
    pub(super) unknown: Option<MessageId>,
}

/// What is left of an offer whose choice was decided for another branch.
pub(super) struct Stranded<T> {
    pub(super) ticket: u64,
    pub(super) handle: Handle,
    /// `None`: it is in the choice's pool.
    pub(super) value: Option<T>,
}

/// What a receive found.
pub(crate) enum Took<T> {
    /// A value. For an extended receive with it the ticket to release, if the sender waits for that.
    Value(T, Option<u64>),
    /// There will be none.
    Ended(RecvError),
    /// None yet.
    Nothing,
    /// The receive's own choice has been decided for another branch.
    ChoiceGone,
    /// This offer would be taken, if its value can be decoded: that is done where the channel is not locked,
    /// and then the receive looks again.
    #[cfg(feature = "link")]
    Reads(Box<Reading<T>>),
    /// The first value in the buffer cannot be decoded. Its send is over, so that the channel is poisoned:
    /// both ends have to know.
    #[cfg(feature = "link")]
    Unreadable(Why),
}

/// What became of an offer.
pub(crate) enum Offered {
    /// The buffer, or the policy, has it: the send is complete.
    Admitted,
    /// It will not be sent; the value is where it was.
    Failed(Why),
    /// It waits, under this ticket. `true`: a parked receiver was woken for it.
    Queued(u64, bool),
    /// The send's own choice has been decided for another branch.
    ChoiceGone,
}

/// How a ticket stands.
pub(crate) enum Stand {
    /// Not there: taken.
    Taken,
    /// There, waiting to be taken or released.
    Pending,
    /// It failed.
    Failed(Failed),
}

/// What has become of an offer that is taken back for another choice.
pub(crate) enum Retracted {
    Back,
    Taken,
    Failed(Failed),
}

/// How far a channel has ended.
#[derive(Clone, Copy)]
pub(crate) struct Ends {
    /// Nothing more will be offered.
    pub(crate) no_senders: bool,
    /// Nothing more will be taken.
    pub(crate) no_receivers: bool,
}
