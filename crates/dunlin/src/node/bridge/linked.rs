//! A half whose agent stands by, as the words that arrive for it see it.
//!
//! A word reaches the queue of the channel without the bridge. The bridge must not work at the same time: for
//! example, it may be told that the connection has ended only after the words that had come before. So the
//! task that takes words from a socket marks the half where the node is locked, and unmarks it when it has
//! passed them on ([`Busy`]); a bridge whose half is marked works later.

use std::sync::Arc;

use bytes::Bytes;
use dunlin_core::carrier::WordSink;
use dunlin_core::remote::Word;
use dunlin_proto::wire::{Failure, Which};
use dunlin_proto::{HomeHears, ProxyHears};

use super::busy::Busy;
use super::link::MachineLink;
use super::words::why_failed;
use crate::node::message::places;
use crate::node::state::{Linked, Says, Told};

/// A half whose agent stands by, or has resumed and its bridge has not taken over.
pub(in crate::node) struct LinkedHalf {
    queue: Arc<dyn WordSink>,
    pub(super) link: Arc<MachineLink>,
    /// At a home: ends may come in its messages.
    carries_ends: bool,
    busy: Busy,
}

impl LinkedHalf {
    pub(in crate::node) fn new(queue: Arc<dyn WordSink>, link: Arc<MachineLink>, carries_ends: bool) -> Arc<Self> {
        Arc::new(Self { queue, link, carries_ends, busy: Busy::new() })
    }

    /// Passes a word of the sending half on to this home.
    ///
    /// # Errors
    /// The word, if it is for the bridge.
    pub(super) fn hear_sender(&self, heard: HomeHears) -> Result<(), HomeHears> {
        let word = match heard {
            HomeHears::Offered(ticket, value) if self.carries_ends && places::is_request(&value) => {
                Word::Request { ticket, value }
            }
            // Their ends need the agent.
            HomeHears::Offered(_, ref bytes) | HomeHears::Granted(_, _, ref bytes) | HomeHears::Sent(ref bytes)
                if self.carries_ends && has_ends(bytes) =>
            {
                return Err(heard);
            }
            HomeHears::Offered(ticket, value) => Word::Offer { ticket, value },
            HomeHears::Sent(value) => Word::Sent { value },
            HomeHears::OfferedByChoice(ticket, choice) => Word::OfferChoice { ticket, choice },
            HomeHears::Granted(ticket, request, value) => Word::Grant { ticket, request, value },
            HomeHears::Withdraw(ticket) => Word::Withdraw { ticket },
            HomeHears::Revoke(ticket) => Word::Revoke { ticket },
            HomeHears::Announced => {
                self.queue.ask_awaited();
                return Ok(());
            }
            heard => return Err(heard),
        };
        self.queue.hear(word).map_err(unheard)
    }

    /// Passes a word of the home on to this sending half. `false`: it is for the bridge.
    pub(super) fn hear_home(&self, heard: &ProxyHears) -> bool {
        self.hear_refused();
        settle_asked(&self.link, heard);
        let word = match *heard {
            ProxyHears::Taken(ticket, _) => Word::Taken { ticket },
            ProxyHears::Held(ticket, _) => Word::Held { ticket },
            ProxyHears::Released(ticket) => Word::Released { ticket },
            ProxyHears::Failed(_, Failure::Unknown | Failure::Unread) => return false,
            ProxyHears::Failed(ticket, ref why) => Word::Failed { ticket, why: why_failed(why.clone(), 0) },
            ProxyHears::Withdrawn(ticket) => Word::Withdrawn { ticket },
            ProxyHears::Reserve(ticket, request) => Word::Reserve { ticket, request },
            ProxyHears::Abort(ticket) => Word::Abort { ticket },
            ProxyHears::Credit(places) => Word::Credit { places },
            // The agent ignores these anyway.
            ProxyHears::Rests | ProxyHears::Departed => return true,
            _ => return false,
        };
        let is_heard = self.queue.hear(word).is_ok();
        self.hear_refused();
        is_heard
    }

    /// Makes offers available again that were reserved and not taken.
    pub(super) fn hear_refused(&self) {
        if self.link.is_stuck() {
            // The agent resumes, and makes it available.
            return;
        }
        while let Some(ticket) = self.link.next_refused() {
            // (If the agent resumes, it has the value.)
            let _ = self.queue.hear(Word::Abort { ticket });
        }
    }
}

impl Linked for LinkedHalf {
    fn begins(&self, batch: u64) -> bool {
        self.busy.begin(batch)
    }

    fn is_busy(&self) -> bool {
        self.busy.is_busy()
    }

    fn ends(&self, batch: u64) {
        if self.busy.end(batch) {
            self.link.wake_bridge();
        }
    }

    fn hear(&self, told: Told) -> Result<(), Told> {
        match told {
            Told::Home(from, heard) => self.hear_sender(heard).map_err(|heard| Told::Home(from, heard)),
            Told::Proxy(heard) if self.hear_home(&heard) => Ok(()),
            told => Err(told),
        }
    }
}

/// Whether a message on a channel that carries ends has any.
pub(super) fn has_ends(bytes: &Bytes) -> bool {
    bytes.first().is_some_and(|count| *count > 0)
}

/// The machine's event, for a word that the queue does not handle itself.
fn unheard(word: Word) -> HomeHears {
    match word {
        Word::Offer { ticket, value } | Word::Request { ticket, value } => HomeHears::Offered(ticket, value),
        Word::Sent { value } => HomeHears::Sent(value),
        Word::OfferChoice { ticket, choice } => HomeHears::OfferedByChoice(ticket, choice),
        Word::Grant { ticket, request, value } => HomeHears::Granted(ticket, request, value),
        Word::Withdraw { ticket } => HomeHears::Withdraw(ticket),
        Word::Revoke { ticket } => HomeHears::Revoke(ticket),
        word => unreachable!("no sending half says {word:?}"),
    }
}

/// The places for replies in a request whose outcome is known go to its receiver, or stay here.
fn settle_asked(link: &MachineLink, heard: &ProxyHears) {
    let (ticket, taker) = match *heard {
        ProxyHears::Taken(ticket, taker) | ProxyHears::Held(ticket, taker) => (ticket, Some(taker)),
        ProxyHears::Failed(_, Failure::Unknown | Failure::Unread) => return,
        ProxyHears::Failed(ticket, _) | ProxyHears::Withdrawn(ticket) => (ticket, None),
        _ => return,
    };
    let Some(places) = link.take_asked(ticket) else { return };
    let Some(driver) = link.driver() else { return };
    let says = Says { driver: &driver, channel: link.channel(), which: Which::Sender };
    match taker {
        Some(taker) => places.hand_over_places(taker, &says),
        None => places.stay(&says),
    }
}
