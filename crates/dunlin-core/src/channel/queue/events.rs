//! The events that the two halves of a channel exchange, and the values in them.

use std::collections::VecDeque;
#[cfg(feature = "link")]
use std::sync::Arc;
use std::task::Waker;

use crate::channel::erased::Erased;
#[cfg(feature = "link")]
use crate::channel::words::{Ended, Link, Word};
use crate::error::{MessageId, Reason, Why};
use crate::wake::Wakes;

/// The events that an agent has not received yet, and the waker of its task.
pub(crate) struct Heard<E> {
    pub(crate) events: VecDeque<E>,
    pub(crate) waker: Option<Waker>,
    /// Set if no agent polls: events go over this link at once.
    // Boxed: a queue has two of these, and most have no link.
    #[cfg(feature = "link")]
    pub(super) link: Option<Box<ByLink>>,
}

#[cfg(feature = "link")]
pub(super) struct ByLink {
    pub(super) link: Arc<dyn Link>,
    /// An agent stands by, and receives the event that ends the channel.
    pub(super) stands_by: bool,
}

impl<E> Heard<E> {
    pub(crate) fn new() -> Self {
        Self {
            events: VecDeque::new(),
            waker: None,
            #[cfg(feature = "link")]
            link: None,
        }
    }

    #[cfg(not(feature = "link"))]
    pub(crate) fn tell(&mut self, event: E, wakes: &mut Wakes) {
        self.events.push_back(event);
        wakes.add(self.waker.take());
    }
}

#[cfg(feature = "link")]
impl<E: OverLink> Heard<E> {
    pub(crate) fn tell(&mut self, event: E, wakes: &mut Wakes) {
        let Some(ByLink { link, stands_by }) = self.link.as_deref() else {
            self.events.push_back(event);
            return wakes.add(self.waker.take());
        };
        match event.said() {
            Said::Word(word) => wakes.add(link.say(word)),
            Said::End(event, _) if *stands_by => {
                self.events.push_back(event);
                wakes.add(self.waker.take());
            }
            Said::End(_, how) => wakes.add(link.say(Word::Ended(how))),
            Said::Awaited => wakes.add(link.awaited()),
            Said::Nothing => {}
        }
    }
}

/// An event from the sender to the agent at the sending half. Tickets name offers.
pub(crate) enum FromSender {
    /// The value was sent on a credit.
    Sent(Erased),
    Offered(u64),
    AskedBack(u64),
    /// A reservation that had to wait may be tried again.
    Unlocked(u64),
    /// The offer's choice asks for its reservation back.
    Revoke(u64),
    Watched,
    Retired,
    Poisoned(Reason),
    Gone,
    Lost,
}

impl FromSender {
    pub(super) fn into_value(self) -> Option<Erased> {
        if let Self::Sent(value) = self { Some(value) } else { None }
    }
}

/// An event from the receiver to the agent at the receiving half. Numbers name offers, as the agent chose
/// them.
#[derive(Debug)]
pub enum FromReceiver<T> {
    /// A receive has returned the value, or the buffer has admitted it.
    Taken(u64),
    /// An extended receive has returned the value; `Released` follows.
    Held(u64),
    /// The extended receive has ended.
    Released(u64),
    /// The offer failed. No value: it had not arrived yet.
    Failed(u64, Option<T>, Why),
    /// Answers [`Inlet::withdraw`](crate::agent::Inlet::withdraw) of an offer that had been forwarded to
    /// another half: it has not been taken.
    Withdrawn(u64, Option<T>),
    /// The offer had been forwarded to another half, whose node is lost: it is unknown whether it was
    /// received there. No value: it is [unread](crate::agent::RawInlet::offer_unread).
    Lost(u64, Option<T>, MessageId),
    /// A receiver requests this offer of a choice; the second number names the request. For an
    /// [unread](crate::agent::RawInlet::offer_unread) offer: a receiver here needs its value, which the
    /// carrier [supplies](crate::agent::Inlet::bring).
    Reserve(u64, u64),
    /// The receiver that had reserved the offer gives it up; the offer stands. No value: it is unread.
    Abort(u64, Option<T>),
    /// This many more places for the sender: see [`Outlet::credit`](crate::agent::RawOutlet::credit).
    Credit(u32),
    /// The receiver came in a message and is now used for the first time: it looks for a value, or waits for
    /// the channel's end. Until now the carrier did not have to move the channel here. (If the receiver ends
    /// the channel, that event comes without this one.)
    Used,
    /// Answers [`Inlet::ask_awaited`](crate::agent::RawInlet::ask_awaited): a receive waits.
    Awaited,
    /// This half retired the channel.
    Retired,
    /// This half poisoned the channel.
    Poisoned(Reason),
    /// The receiver was dropped.
    Gone,
    /// Like `Gone`, but the receiver was lost with its node before the sender left here: the carrier calls
    /// [`Outlet::down`](crate::agent::Outlet::down) at the sender's half.
    Down,
}

impl<T> FromReceiver<T> {
    /// The same event with another value.
    pub(crate) fn map<U>(self, f: impl FnOnce(T) -> U) -> FromReceiver<U> {
        match self {
            Self::Taken(number) => FromReceiver::Taken(number),
            Self::Held(number) => FromReceiver::Held(number),
            Self::Released(number) => FromReceiver::Released(number),
            Self::Failed(number, value, why) => FromReceiver::Failed(number, value.map(f), why),
            Self::Withdrawn(number, value) => FromReceiver::Withdrawn(number, value.map(f)),
            Self::Lost(number, value, id) => FromReceiver::Lost(number, value.map(f), id),
            Self::Reserve(number, request) => FromReceiver::Reserve(number, request),
            Self::Abort(number, value) => FromReceiver::Abort(number, value.map(f)),
            Self::Credit(places) => FromReceiver::Credit(places),
            Self::Used => FromReceiver::Used,
            Self::Awaited => FromReceiver::Awaited,
            Self::Retired => FromReceiver::Retired,
            Self::Poisoned(reason) => FromReceiver::Poisoned(reason),
            Self::Gone => FromReceiver::Gone,
            Self::Down => FromReceiver::Down,
        }
    }

    pub(super) fn into_value(self) -> Option<T> {
        match self {
            Self::Failed(_, value, _) | Self::Withdrawn(_, value) | Self::Lost(_, value, _) | Self::Abort(_, value) => {
                value
            }
            _ => None,
        }
    }
}

/// What the agent of a receiver elsewhere finds under a ticket.
pub(crate) enum Collected {
    /// A firm offer; the agent now owns its value.
    Firm(Erased),
    /// An offer of the choice with this number.
    Choice(u128),
    Gone,
}

/// What a handle elsewhere is given, or gives back.
#[derive(Debug, PartialEq, Eq)]
pub enum Given<T> {
    /// The value.
    Value(T),
    /// The offer of a value that is still where it was sent: see
    /// [`Inlet::offer_unread`](crate::agent::RawInlet::offer_unread).
    Unread,
    /// An unread offer, given back by a half that could not read it.
    Unreadable,
}

impl<T> From<T> for Given<T> {
    fn from(value: T) -> Self {
        Self::Value(value)
    }
}

impl<T> Given<T> {
    /// The same with another value.
    pub(crate) fn map<U>(self, f: impl FnOnce(T) -> U) -> Given<U> {
        match self {
            Self::Value(value) => Given::Value(f(value)),
            Self::Unread => Given::Unread,
            Self::Unreadable => Given::Unreadable,
        }
    }

    /// The value, if it is here.
    pub fn read(self) -> Option<T> {
        match self {
            Self::Value(value) => Some(value),
            Self::Unread | Self::Unreadable => None,
        }
    }
}

/// How a buffered value goes to the receiver elsewhere.
pub(crate) enum Carried {
    /// On a credit.
    Sent(Erased),
    /// As an offer, with a ticket that no other offer has.
    Offered(u64, Erased),
    /// The value waits for a credit, and all others wait behind it.
    Waits,
    /// No value is left.
    Nothing,
}

/// The outcome of reserving an offer of a choice.
#[derive(Debug)]
pub enum Reserved<T> {
    /// The agent owns the value, and will confirm it or give it back.
    Granted(T),
    /// The choice is busy; an event tells the agent when to try again.
    Later,
    /// The choice has been decided otherwise, or dropped.
    Gone,
}

impl<T> Reserved<T> {
    /// The same with another value.
    pub(crate) fn map<U>(self, f: impl FnOnce(T) -> U) -> Reserved<U> {
        match self {
            Self::Granted(value) => Reserved::Granted(f(value)),
            Self::Later => Reserved::Later,
            Self::Gone => Reserved::Gone,
        }
    }
}

impl<T> Reserved<Given<T>> {
    /// For an agent that reserves values only, and so is granted nothing else.
    pub(crate) fn of_values(self) -> Reserved<T> {
        match self {
            Self::Granted(Given::Value(value)) => Reserved::Granted(value),
            Self::Granted(Given::Unread | Given::Unreadable) | Self::Later => Reserved::Later,
            Self::Gone => Reserved::Gone,
        }
    }
}

/// How an event of a half travels over a link.
#[cfg(feature = "link")]
pub(crate) enum Said<E> {
    Word(Word),
    /// The channel has ended in this way.
    End(E, Ended),
    /// The event is for the link itself.
    Awaited,
    /// The other half does not need the event.
    Nothing,
}

#[cfg(feature = "link")]
pub(crate) trait OverLink: Sized {
    fn said(self) -> Said<Self>;
}

#[cfg(feature = "link")]
impl OverLink for FromSender {
    fn said(self) -> Said<Self> {
        match self {
            Self::AskedBack(ticket) => Said::Word(Word::Withdraw { ticket }),
            Self::Revoke(ticket) => Said::Word(Word::Revoke { ticket }),
            Self::Retired => Said::End(self, Ended::Retired),
            Self::Poisoned(ref reason) => {
                let how = Ended::Poisoned(reason.clone());
                Said::End(self, how)
            }
            Self::Gone | Self::Lost => Said::End(self, Ended::Gone),
            // Offers, and values sent on a credit, are sent with their bytes.
            Self::Offered(_) | Self::Sent(_) | Self::Unlocked(_) | Self::Watched => Said::Nothing,
        }
    }
}

#[cfg(feature = "link")]
impl<T> OverLink for FromReceiver<T> {
    fn said(self) -> Said<Self> {
        Said::Word(match self {
            Self::Taken(ticket) => Word::Taken { ticket },
            Self::Held(ticket) => Word::Held { ticket },
            Self::Released(ticket) => Word::Released { ticket },
            Self::Failed(ticket, _, why) => Word::Failed { ticket, why },
            Self::Withdrawn(ticket, _) => Word::Withdrawn { ticket },
            Self::Reserve(ticket, request) => Word::Reserve { ticket, request },
            Self::Abort(ticket, _) => Word::Abort { ticket },
            Self::Retired => return Said::End(self, Ended::Retired),
            Self::Poisoned(ref reason) => {
                let how = Ended::Poisoned(reason.clone());
                return Said::End(self, how);
            }
            Self::Gone | Self::Down => return Said::End(self, Ended::Gone),
            Self::Awaited => return Said::Awaited,
            // Places are promised where they become free.
            Self::Lost(..) | Self::Credit(_) | Self::Used => return Said::Nothing,
        })
    }
}
