//! The words that a half of a channel receives over its link, except those that end the channel.

use std::sync::{Arc, Weak};

use super::after::After;
use super::queue::Queue;
use super::queue::offer::Ends;
use super::state::{AnyChan, FarChan};
use super::words::Word;
use crate::choice::decision::Reserver;
use crate::clock::{self, be_patient};
use crate::error::Why;
use crate::handle::Handle;
use crate::wake::Queued;

/// The path from a decision to the sending half whose offer it has reserved.
struct Reservation {
    chan: Arc<dyn FarChan>,
    ticket: u64,
}

impl Queued for Reservation {
    fn unlocked(self: Arc<Self>) {
        let (chan, ticket) = (self.chan.clone(), self.ticket);
        chan.any().with_queue(|queue, _, after| queue.answer(ticket, after));
    }
}

impl Reserver for Reservation {
    fn revoke(self: Arc<Self>) {
        self.chan.any().with_queue(|queue, _, after| queue.revoke_over_link(self.ticket, after));
    }
}

impl AnyChan<'_> {
    /// A pass over the queue. `None`: there is no link.
    fn with_linked<R>(&self, f: impl FnOnce(&mut Queue, Ends, &mut After) -> R) -> Option<R> {
        self.with_queue(|queue, ends, after| queue.remote.is_some().then(|| f(queue, ends, after)))
    }
}

/// Handles a word of the home, at the sending half.
///
/// # Errors
/// The word, if there is no link, or the home cannot have sent the word over one.
pub(crate) fn hear_from_home(half: &Arc<dyn FarChan>, word: Word) -> Result<(), Word> {
    let chan = half.any();
    match word {
        Word::Taken { ticket } if chan.hear_taken(ticket) => Ok(()),
        Word::Reserve { ticket, request } => {
            let reserver: Arc<dyn Reserver> = Arc::new(Reservation { chan: half.clone(), ticket });
            let heard = chan.with_linked(|queue, _, after| {
                queue.reserve_over_link(ticket, request, reserver, after);
            });
            heard.ok_or(word)
        }
        Word::Opened { places } => {
            let opened = chan.with_queue(|queue, _, after| queue.open_link(places, after));
            opened.map_err(|()| word)
        }
        Word::Credit { places } => {
            let promised = chan.with_queue(|queue, _, after| queue.credit_over_link(places, after));
            promised.map_err(|()| word)
        }
        word => {
            // The text of a timeout is looked up without a lock.
            let timed_out = match &word {
                Word::Withdrawn { .. } => chan.send_timed_out(),
                _ => Why::TimedOut,
            };
            chan.with_queue(|queue, _, after| {
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
pub(crate) fn hear_from_sender(half: &Arc<dyn FarChan>, word: Word) -> Result<(), Word> {
    let chan = half.any();
    match word {
        Word::Offer { ticket, value } => {
            let Err(value) = chan.hear_offer(ticket, value, false) else { return Ok(()) };
            let given = value.clone();
            let offered = chan
                .with_linked(|queue, ends, after| queue.offer_encoded(ticket, Some(given), None, ends, after).is_ok());
            if offered == Some(true) { Ok(()) } else { Err(Word::Offer { ticket, value }) }
        }
        Word::Request { ticket, value } => {
            let Err(value) = chan.hear_offer(ticket, value, true) else { return Ok(()) };
            let given = value.clone();
            let offered = chan.with_linked(|queue, ends, after| {
                queue.takes_requests() && queue.offer_encoded(ticket, Some(given), None, ends, after).is_ok()
            });
            if offered == Some(true) { Ok(()) } else { Err(Word::Request { ticket, value }) }
        }
        Word::Sent { value } => {
            let pushed = chan.with_queue(|queue, _, after| {
                if queue.remote.is_none() {
                    return Err(value);
                }
                queue.push_from_link(value, after)
            });
            pushed.map_err(|value| Word::Sent { value })
        }
        Word::OfferChoice { ticket, choice } => {
            let offered = chan
                .with_linked(|queue, ends, after| queue.offer_encoded(ticket, None, Some(choice), ends, after).is_ok());
            if offered == Some(true) { Ok(()) } else { Err(word) }
        }
        Word::Grant { ticket, request, value } => {
            let (tick, given) = (clock::tick(), value.clone());
            let begins = chan.with_linked(|queue, _, after| {
                queue.grant_encoded(ticket, request, given, tick, after);
                queue.has_grants() && !std::mem::replace(&mut queue.patient, true)
            });
            if begins.ok_or(Word::Grant { ticket, request, value })? {
                let patient: Weak<dyn FarChan> = Arc::downgrade(half);
                be_patient(patient);
            }
            Ok(())
        }
        Word::Refuse { ticket } => {
            let refused = chan.with_linked(|queue, _, after| {
                drop(queue.withdraw_from_far(Handle::END, ticket, after));
            });
            refused.ok_or(word)
        }
        Word::Withdraw { ticket } => {
            chan.with_linked(|queue, _, after| queue.withdraw_encoded(ticket, after)).map(drop).ok_or(word)
        }
        Word::Revoke { ticket } => {
            chan.with_linked(|queue, _, after| queue.revoke(Handle::END, ticket, after)).ok_or(word)
        }
        word => Err(word),
    }
}
