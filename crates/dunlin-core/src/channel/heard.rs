//! The words that a half of a channel receives over its link, except those that end the channel.

use std::sync::{Arc, Weak};

use super::after::After;
use super::queue::Queue;
use super::queue::offer::Ends;
use super::state::Chan;
use super::words::Word;
use crate::choice::decision::Reserver;
use crate::clock::{self, be_patient};
use crate::error::Why;
use crate::handle::Handle;
use crate::wake::Queued;

/// The path from a decision to the sending half whose offer it has reserved.
struct Reservation<T> {
    chan: Arc<Chan<T>>,
    ticket: u64,
}

impl<T: Send + 'static> Queued for Reservation<T> {
    fn unlocked(self: Arc<Self>) {
        let (chan, ticket) = (self.chan.clone(), self.ticket);
        chan.with_queue(|queue, _, after| queue.answer(ticket, after));
    }
}

impl<T: Send + 'static> Reserver for Reservation<T> {
    fn revoke(self: Arc<Self>) {
        self.chan.with_queue(|queue, _, after| queue.revoke_over_link(self.ticket, after));
    }
}

impl<T: Send + 'static> Chan<T> {
    /// A pass over the queue. `None`: there is no link.
    fn with_linked<R>(&self, f: impl FnOnce(&mut Queue<T>, Ends, &mut After<T>) -> R) -> Option<R> {
        self.with_queue(|queue, ends, after| queue.remote.is_some().then(|| f(queue, ends, after)))
    }

    /// Handles a word of the home, at the sending half.
    ///
    /// # Errors
    /// The word, if there is no link, or the home cannot have sent the word over one.
    pub(crate) fn hear_from_home(self: &Arc<Self>, word: Word) -> Result<(), Word> {
        match word {
            Word::Taken { ticket } if self.hear_taken(ticket) => Ok(()),
            Word::Reserve { ticket, request } => {
                let reserver: Arc<dyn Reserver> = Arc::new(Reservation { chan: self.clone(), ticket });
                let heard = self.with_linked(|queue, _, after| {
                    queue.reserve_over_link(ticket, request, reserver, after);
                });
                heard.ok_or(word)
            }
            Word::Opened { places } => {
                let opened = self.with_queue(|queue, _, after| queue.open_link(places, after));
                opened.map_err(|()| word)
            }
            Word::Credit { places } => {
                let promised = self.with_queue(|queue, _, after| queue.credit_over_link(places, after));
                promised.map_err(|()| word)
            }
            word => {
                // The text of a timeout is looked up without a lock.
                let timed_out = match &word {
                    Word::Withdrawn { .. } => self.send_timed_out(),
                    _ => Why::TimedOut,
                };
                self.with_queue(|queue, _, after| {
                    if queue.remote.is_none() {
                        return Err(word);
                    }
                    queue.hear_home(word, timed_out, after)
                })
            }
        }
    }

    /// Handles a word of the sending half, at the home.
    ///
    /// # Errors
    /// The word, if there is no link, or the sending half cannot have sent the word over one.
    pub(crate) fn hear_from_sender(self: &Arc<Self>, word: Word) -> Result<(), Word> {
        match word {
            Word::Offer { ticket, value } => {
                let Err(value) = self.hear_offer(ticket, value, false) else { return Ok(()) };
                let given = value.clone();
                let offered = self.with_linked(|queue, ends, after| {
                    queue.offer_encoded(ticket, Some(given), None, ends, after).is_ok()
                });
                if offered == Some(true) { Ok(()) } else { Err(Word::Offer { ticket, value }) }
            }
            Word::Request { ticket, value } => {
                let Err(value) = self.hear_offer(ticket, value, true) else { return Ok(()) };
                let given = value.clone();
                let offered = self.with_linked(|queue, ends, after| {
                    queue.takes_requests() && queue.offer_encoded(ticket, Some(given), None, ends, after).is_ok()
                });
                if offered == Some(true) { Ok(()) } else { Err(Word::Request { ticket, value }) }
            }
            Word::Sent { value } => {
                let pushed = self.with_queue(|queue, _, after| {
                    if queue.remote.is_none() {
                        return Err(value);
                    }
                    queue.push_from_link(value, after)
                });
                pushed.map_err(|value| Word::Sent { value })
            }
            Word::OfferChoice { ticket, choice } => {
                let offered = self.with_linked(|queue, ends, after| {
                    queue.offer_encoded(ticket, None, Some(choice), ends, after).is_ok()
                });
                if offered == Some(true) { Ok(()) } else { Err(word) }
            }
            Word::Grant { ticket, request, value } => {
                let (tick, given) = (clock::tick(), value.clone());
                let begins = self.with_linked(|queue, _, after| {
                    queue.grant_encoded(ticket, request, given, tick, after);
                    queue.has_grants() && !std::mem::replace(&mut queue.patient, true)
                });
                if begins.ok_or(Word::Grant { ticket, request, value })? {
                    let patient: Weak<Self> = Arc::downgrade(self);
                    be_patient(patient);
                }
                Ok(())
            }
            Word::Refuse { ticket } => {
                let refused = self.with_linked(|queue, _, after| {
                    drop(queue.withdraw_from_far(Handle::END, ticket, after));
                });
                refused.ok_or(word)
            }
            Word::Withdraw { ticket } => {
                self.with_linked(|queue, _, after| queue.withdraw_encoded(ticket, after)).map(drop).ok_or(word)
            }
            Word::Revoke { ticket } => {
                self.with_linked(|queue, _, after| queue.revoke(Handle::END, ticket, after)).ok_or(word)
            }
            word => Err(word),
        }
    }
}
