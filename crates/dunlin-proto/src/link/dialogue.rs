//! The offers that are open on one half of a channel, and what its peer may send about them.
//!
//! Each half keeps its own view of the offers, and learns of a word of its peer later than the peer sent it.
//! So a word about an offer that is settled here may be valid, because the two crossed. Such a word is
//! dropped ([`Heard::Crossed`]). A home aborts a reservation silently before it is granted, and with `Abort`
//! when the value has arrived: each `Grant` has one answer.
//!
//! ```text
//!            Offer               Taken, Failed, Withdrawn
//!   (none) ─────────▶ Firm ────────────────────────────────▶ (none)
//!     │                │ Held         Released
//!     │ OfferChoice    └─────▶ Held ────────────▶ (none)
//!     ▼       Reserve           Grant            Taken, Held, Failed as above
//!   Choice ───────────▶ asked ───────▶ granted ──────────────────▶
//!     ▲ Refuse ends it                   │ Abort
//!     └──────────────────────────────────┘
//! ```

use super::word::Word;
use crate::id::Ticket;
use crate::link::violation::Misstep;
use crate::wire::{End, Which};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stand {
    /// The home has the value, or will.
    Firm,
    /// The home may request the value.
    Choice {
        /// How many reservations have no answer. An aborted one may never have one, so this is a bound.
        asked: u32,
        /// The value was sent, and has not been answered.
        granted: bool,
    },
    /// An extended receive has the value.
    Held,
}

const OFFERED: Stand = Stand::Choice { asked: 0, granted: false };

#[derive(Clone, Copy, Debug)]
struct Offer {
    ticket: Ticket,
    stand: Stand,
    withdrawn: bool,
}

/// How many offers of one half may be open at its home. A sender makes one after the other, so more than two
/// are a fault of the peer.
const OFFERS_MAX: usize = 32;

/// The treatment of a word of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// The half receives it.
    Deliver,
    /// It is about an offer that was settled here while the word was on its way.
    Crossed,
}

/// One half's knowledge of its channel.
#[derive(Clone, Debug)]
pub(super) struct Dialogue {
    /// The end that is here.
    which: Which,
    open: Vec<Offer>,
    /// The greatest ticket that an offer has had.
    last: Option<Ticket>,
    /// The greatest ticket that the sending half has refused: the home may still answer offers up to it.
    refused: Option<Ticket>,
    /// The home has declared how it takes values.
    opened: bool,
    /// How many places are granted and not used, as far as this half knows. `None`: none are ever granted,
    /// and values are offered.
    places: Option<u64>,
    /// The home here has ended the channel: offers are delivered, but are not open.
    ended: bool,
    /// The sending half there was dropped: it sends nothing more. (A home still answers words on their way.)
    gone: bool,
}

impl Dialogue {
    pub(super) fn new(which: Which) -> Self {
        Self {
            which,
            open: Vec::new(),
            last: None,
            refused: None,
            opened: false,
            places: None,
            ended: false,
            gone: false,
        }
    }

    pub(super) fn which(&self) -> Which {
        self.which
    }

    fn position(&self, ticket: Ticket) -> Option<usize> {
        // Usually there is only one.
        self.open.iter().rposition(|offer| offer.ticket == ticket)
    }

    fn begin(&mut self, ticket: Ticket, stand: Stand) {
        self.last = Some(ticket);
        self.open.push(Offer { ticket, stand, withdrawn: false });
    }

    /// The half here sends this word. `false`: the peer has settled the offer, or answered the grant, and
    /// does not need the word.
    pub(super) fn send(&mut self, word: &Word) -> bool {
        match (self.which, word) {
            (_, Word::Ended(_)) => self.ended = true,
            (Which::Sender, Word::Sent(_)) => {}
            (Which::Receiver, Word::Opened(places)) => self.places = places.map(u64::from),
            (Which::Receiver, Word::Credit(places)) => {
                self.places = self.places.map(|promised| promised + u64::from(*places));
            }
            (Which::Sender, Word::Offer(ticket, _)) => self.begin(*ticket, Stand::Firm),
            (Which::Sender, Word::OfferChoice(ticket, _)) => self.begin(*ticket, OFFERED),
            (Which::Receiver, word) => {
                if let Some(at) = word.ticket().and_then(|ticket| self.position(ticket)) {
                    self.send_as_home(word, at);
                }
            }
            (Which::Sender, word) => {
                let Some(at) = word.ticket().and_then(|ticket| self.position(ticket)) else { return false };
                let Offer { ticket, stand, withdrawn } = &mut self.open[at];
                match (word, stand) {
                    (Word::Withdraw(_), _) => *withdrawn = true,
                    // It was not granted, or the grant has been answered.
                    (Word::Revoke(_), Stand::Choice { granted: false, .. }) => return false,
                    (Word::Grant(..), Stand::Choice { asked, granted }) => {
                        (*asked, *granted) = (asked.saturating_sub(1), true);
                    }
                    (Word::Refuse(_), _) => {
                        self.refused = self.refused.max(Some(*ticket));
                        // Otherwise the home may answer the withdrawal.
                        if !*withdrawn {
                            self.open.swap_remove(at);
                        }
                    }
                    _ => {}
                }
            }
        }
        true
    }

    fn send_as_home(&mut self, word: &Word, at: usize) {
        match (word, &mut self.open[at].stand) {
            (Word::Held(_), stand) => *stand = Stand::Held,
            (Word::Reserve(..), Stand::Choice { asked, .. }) => *asked += 1,
            (Word::Abort(_), Stand::Choice { granted, .. }) => *granted = false,
            (Word::Taken(_) | Word::Released(_) | Word::Failed(..) | Word::Withdrawn(_), _) => {
                self.open.swap_remove(at);
            }
            _ => {}
        }
    }

    /// Removes an offer that was recalled before it was written.
    pub(super) fn recalled(&mut self, ticket: Ticket) {
        if let Some(at) = self.position(ticket) {
            self.open.swap_remove(at);
        }
    }

    /// Whether a value may begin: it is checked before its pieces are kept.
    pub(super) fn hear_value(&self, ticket: Ticket, is_offer: bool) -> Result<(), Misstep> {
        if self.gone {
            return Err(Misstep::AfterEnd);
        }
        match self.position(ticket) {
            None if is_offer => self.hear_offer(ticket),
            None => self.is_settled(ticket).map(|_| ()),
            Some(_) if is_offer => Err(Misstep::TicketReused(ticket)),
            Some(at) => match self.open[at].stand {
                Stand::Choice { asked: 0, .. } => Err(Misstep::NotAsked(ticket)),
                Stand::Choice { .. } | Stand::Held => Ok(()),
                Stand::Firm => Err(Misstep::NotAChoice(ticket)),
            },
        }
    }

    /// The same, for a value that is sent into a place.
    pub(super) fn hear_sent(&self) -> Result<(), Misstep> {
        if self.gone {
            return Err(Misstep::AfterEnd);
        }
        if self.places.is_some_and(|places| places > 0) { Ok(()) } else { Err(Misstep::NoPlace) }
    }

    /// The home declares how it takes values.
    fn hear_opened(&mut self, places: Option<u32>) -> Result<Heard, Misstep> {
        if std::mem::replace(&mut self.opened, true) {
            return Err(Misstep::OpenedTwice);
        }
        self.places = places.map(u64::from);
        Ok(Heard::Deliver)
    }

    fn hear_offer(&self, ticket: Ticket) -> Result<(), Misstep> {
        if self.places.is_some() {
            return Err(Misstep::HasPlaces(ticket));
        }
        if self.last.is_some_and(|last| ticket <= last) {
            return Err(Misstep::TicketReused(ticket));
        }
        if self.open.len() >= OFFERS_MAX {
            return Err(Misstep::TooManyOffers { offers_max: OFFERS_MAX });
        }
        Ok(())
    }

    /// The peer sends a word about an offer that is not open here.
    fn is_settled(&self, ticket: Ticket) -> Result<Heard, Misstep> {
        if self.last.is_none_or(|last| ticket > last) {
            return Err(Misstep::UnknownTicket(ticket));
        }
        // Only the home settles an offer of the sending half, except for a refusal.
        if self.which == Which::Sender && self.refused.is_none_or(|refused| ticket > refused) {
            return Err(Misstep::Settled(ticket));
        }
        Ok(Heard::Crossed)
    }

    /// Handles a word of the peer that this half can receive.
    pub(super) fn hear(&mut self, word: &Word) -> Result<Heard, Misstep> {
        if self.gone {
            return Err(Misstep::AfterEnd);
        }
        let begins = match word {
            Word::Ended(how) => {
                self.gone = self.which == Which::Receiver && *how == End::Gone;
                return Ok(Heard::Deliver);
            }
            Word::Sent(_) => {
                self.hear_sent()?;
                self.places = self.places.map(|places| places - 1);
                return Ok(Heard::Deliver);
            }
            Word::Opened(places) => return self.hear_opened(*places),
            Word::Credit(_) if self.places.is_none() => return Err(Misstep::NoPlaces),
            Word::Offer(ticket, _) => Some((*ticket, Stand::Firm)),
            Word::OfferChoice(ticket, _) => Some((*ticket, OFFERED)),
            _ => None,
        };
        if let Some((ticket, stand)) = begins {
            self.hear_offer(ticket)?;
            if self.ended {
                self.last = Some(ticket);
            } else {
                self.begin(ticket, stand);
            }
            return Ok(Heard::Deliver);
        }
        let Some(ticket) = word.ticket() else { return Ok(Heard::Deliver) };
        let Some(at) = self.position(ticket) else { return self.is_settled(ticket) };
        if self.which == Which::Receiver {
            self.hear_sender(word, ticket, at)
        } else {
            self.hear_home(word, ticket, at)
        }
    }

    fn hear_sender(&mut self, word: &Word, ticket: Ticket, at: usize) -> Result<Heard, Misstep> {
        let Offer { stand, withdrawn, .. } = &mut self.open[at];
        match (word, stand) {
            (Word::Withdraw(_), _) if *withdrawn => return Err(Misstep::WithdrawnTwice(ticket)),
            (_, Stand::Held) => return Ok(Heard::Crossed),
            (Word::Withdraw(_), _) => *withdrawn = true,
            (_, Stand::Firm) => return Err(Misstep::NotAChoice(ticket)),
            (Word::Grant(..), Stand::Choice { asked, granted }) => {
                if *asked == 0 || *granted {
                    return Err(Misstep::NotAsked(ticket));
                }
                (*asked, *granted) = (*asked - 1, true);
            }
            (Word::Refuse(_), Stand::Choice { asked, .. }) => {
                if *asked == 0 {
                    return Err(Misstep::NotAsked(ticket));
                }
                // The home answers the withdrawal, with the same effect.
                if *withdrawn {
                    return Ok(Heard::Crossed);
                }
                self.open.swap_remove(at);
            }
            _ => {}
        }
        Ok(Heard::Deliver)
    }

    fn hear_home(&mut self, word: &Word, ticket: Ticket, at: usize) -> Result<Heard, Misstep> {
        let Offer { stand, withdrawn, .. } = &mut self.open[at];
        match (word, stand) {
            (Word::Released(_), Stand::Held) => drop(self.open.swap_remove(at)),
            (Word::Released(_), _) => return Err(Misstep::NotHeld(ticket)),
            (_, Stand::Held) => return Err(Misstep::IsHeld(ticket)),
            (Word::Taken(_) | Word::Held(_), Stand::Choice { granted: false, .. }) => {
                return Err(Misstep::NotGranted(ticket));
            }
            (Word::Held(_), stand) => *stand = Stand::Held,
            (Word::Withdrawn(_), _) if !*withdrawn => return Err(Misstep::NotAsked(ticket)),
            (Word::Taken(_) | Word::Failed(..) | Word::Withdrawn(_), _) => drop(self.open.swap_remove(at)),
            (_, Stand::Firm) => return Err(Misstep::NotAChoice(ticket)),
            (Word::Reserve(..), Stand::Choice { asked, .. }) => *asked += 1,
            (Word::Abort(_), Stand::Choice { granted: false, .. }) => return Err(Misstep::NotGranted(ticket)),
            (Word::Abort(_), Stand::Choice { granted, .. }) => *granted = false,
            _ => {}
        }
        Ok(Heard::Deliver)
    }
}
