//! What the halves of a channel that is in two places hear of each other, and what they give each other.

use std::collections::VecDeque;
#[cfg(feature = "link")]
use std::sync::Arc;
use std::task::Waker;

#[cfg(feature = "link")]
use crate::channel::words::{Ended, Link, Word};
use crate::error::{MessageId, Reason, Why};
use crate::wake::Wakes;

/// What an agent has not heard yet, and whom to wake for it.
pub(crate) struct Heard<E> {
    pub(crate) events: VecDeque<E>,
    pub(crate) waker: Option<Waker>,
    /// No agent polls: what there is to say goes over this link at once.
    // Boxed: a queue has two of these, and most have no link.
    #[cfg(feature = "link")]
    pub(super) link: Option<Box<ByLink>>,
}

#[cfg(feature = "link")]
pub(super) struct ByLink {
    pub(super) link: Arc<dyn Link>,
    /// Of the end of the channel an agent hears, which stands by.
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

/// What the agent at the sending half hears of the sender. Tickets name offers.
pub(crate) enum FromSender<T> {
    /// It went out on a credit.
    Sent(T),
    Offered(u64),
    AskedBack(u64),
    /// A reservation that had to wait may be tried again.
    Unlocked(u64),
    /// The offer's choice wants its reservation back.
    Revoke(u64),
    Watched,
    Retired,
    Poisoned(Reason),
    Gone,
    Lost,
}

impl<T> FromSender<T> {
    pub(super) fn into_value(self) -> Option<T> {
        if let Self::Sent(value) = self { Some(value) } else { None }
    }
}

/// What the agent at the receiving half hears of the receiver. Numbers name offers, as the agent gave them.
#[derive(Debug)]
pub enum FromReceiver<T> {
    /// A receive has returned the value, or the buffer has admitted it.
    Taken(u64),
    /// An extended receive has returned the value; `Released` follows.
    Held(u64),
    /// The extended receive is over.
    Released(u64),
    /// The offer failed. No value: it had not come yet.
    Failed(u64, Option<T>, Why),
    /// Answers [`Inlet::withdraw`](crate::agent::Inlet::withdraw) of an offer that had gone on to another
    /// half: it has not been taken.
    Withdrawn(u64, Option<T>),
    /// It had gone on to another half, whose node is lost: nobody knows whether it was received there. No
    /// value: it is [unread](crate::agent::Inlet::offer_unread).
    Lost(u64, Option<T>, MessageId),
    /// A receiver wants this offer of a choice; the second number names the request. Of an
    /// [unread](crate::agent::Inlet::offer_unread) one: somebody here wants its value, which is to be
    /// [brought](crate::agent::Inlet::bring).
    Reserve(u64, u64),
    /// The receiver that had it reserved does not want it any more; the offer stands. No value: it is unread.
    Abort(u64, Option<T>),
    /// So many places more are the sender's: see [`Outlet::credit`](crate::agent::Outlet::credit).
    Credit(u32),
    /// The receiver has come in a message, and is used for the first time: somebody looks for a value, or
    /// waits for the channel's end. Until now whoever carries the channel did not have to bring it here.
    /// (That the receiver ends the channel is said without this word before it.)
    Used,
    /// Answers [`Inlet::ask_awaited`](crate::agent::Inlet::ask_awaited): a receive waits.
    Awaited,
    /// The channel was retired from here.
    Retired,
    /// The channel was poisoned from here.
    Poisoned(Reason),
    /// The receiver is gone.
    Gone,
    /// The same, but it was lost with its node, before the sender left here: the sender's half hears
    /// [`Outlet::down`](crate::agent::Outlet::down).
    Down,
}

impl<T> FromReceiver<T> {
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
pub(crate) enum Collected<T> {
    /// A firm offer; the agent has its value now.
    Firm(T),
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
    /// [`Inlet::offer_unread`](crate::agent::Inlet::offer_unread).
    Unread,
    /// The same, given back by who could not read it.
    Unreadable,
}

impl<T> From<T> for Given<T> {
    fn from(value: T) -> Self {
        Self::Value(value)
    }
}

impl<T> Given<T> {
    /// The value, if it is here.
    pub fn read(self) -> Option<T> {
        match self {
            Self::Value(value) => Some(value),
            Self::Unread | Self::Unreadable => None,
        }
    }
}

/// How a value that was in the buffer goes to the receiver elsewhere.
pub(crate) enum Carried<T> {
    /// On a credit.
    Sent(T),
    /// As an offer; the number is its ticket, which no other offer has.
    Offered(u64, T),
    /// It waits for a credit, and all else waits behind it.
    Waits,
    /// None is left.
    Nothing,
}

/// What came of reserving an offer of a choice.
#[derive(Debug)]
pub enum Reserved<T> {
    /// The agent has the value, and will confirm, or give it back.
    Granted(T),
    /// The choice is busy; the agent will hear when to try again.
    Later,
    /// The choice has been decided otherwise, or dropped.
    Gone,
}

impl<T> Reserved<Given<T>> {
    /// Of who reserves values only, and so is granted nothing else.
    pub(crate) fn of_values(self) -> Reserved<T> {
        match self {
            Self::Granted(Given::Value(value)) => Reserved::Granted(value),
            Self::Granted(Given::Unread | Given::Unreadable) | Self::Later => Reserved::Later,
            Self::Gone => Reserved::Gone,
        }
    }
}

/// How an event of a half goes over a link.
#[cfg(feature = "link")]
pub(crate) enum Said<E> {
    Word(Word),
    /// The channel has ended so.
    End(E, Ended),
    /// The link itself hears of it.
    Awaited,
    /// The other half need not hear of it.
    Nothing,
}

#[cfg(feature = "link")]
pub(crate) trait OverLink: Sized {
    fn said(self) -> Said<Self>;
}

#[cfg(feature = "link")]
impl<T> OverLink for FromSender<T> {
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
            // An offer, and what goes out on a credit, is said with its bytes.
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
            // Places are promised where they get free.
            Self::Lost(..) | Self::Credit(_) | Self::Used => return Said::Nothing,
        })
    }
}
