//! A channel over a link: its halves push words to each other, and values go as bytes.
//!
//! A link joins two nodes and carries the channels between them. A channel whose ends are apart is two
//! halves, one at each node. At either node a half is a [`Half`], to which the link gives the words that
//! arrive for it, and the half has a [`Link`] to which it gives its own. Unlike an [agent](crate::agent),
//! nothing polls a half: a word is pushed in the poll, or the call, of the end that causes it.
//!
//! ```text
//!   sending half                                           receiving half (home)
//!   send().poll: encode, offer     ── Offer(bytes) ──▶     the queue keeps bytes; wakes the receiver
//!                                                          recv().poll: marks the offer, unlocks, decodes, locks, decides
//!   send().poll: value dropped     ◀── Taken ──
//!   a choice's offer               ── OfferChoice ──▶
//!   reserved                       ◀── Reserve ──          recv().poll
//!   encoded by its owner           ── Grant(bytes) ──▶     recv().poll: decodes, decides
//!     (Refuse: what was asked for is not there any more)
//!   confirmed                      ◀── Taken ──
//!   open again                     ◀── Abort ──
//!   the send was dropped, or late  ── Withdraw ──▶
//!   given back                     ◀── Withdrawn ──        (or Taken, Failed: the withdrawal came too late)
//! ```
//!
//! # Rules
//! - A value is encoded in a poll or call of the end that sends it, decoded in a poll or call of the end that receives it, and dropped
//!   by one of the two: never by the task of a socket.
//! - The value stays at the sender until its offer is taken, and nothing has to be given back.
//! - Locks are taken in this order: the channel's, then the link's. Under either runs no code of users', and nothing is woken.
//! - Words of one half arrive in the order in which they were said.
//!
//! # Source
//! `docs/choice.md`, section 3, with the state *reading* of an offer.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};

use bytes::Bytes;

use crate::agent::FromReceiver;
use crate::channel::queue::far::FromSender;
use crate::channel::queue::linked::Remote;
use crate::channel::receiver::Receiver;
use crate::channel::sender::Sender;
use crate::channel::state::Chan;
use crate::choice::decision::Reserver;
use crate::clock::{self, be_patient};
use crate::error::{Reason, Why};
use crate::handle::Handle;
use crate::portable::Portable;
use crate::portable::carrier::{Format, Outbox, Sink, Write, read_value};
use crate::wake::Queued;

/// What one half of a channel says to the other. A ticket names an offer of the sending half, a request one
/// reservation of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// To the home: a send offers this value.
    Offer {
        /// Which offer.
        ticket: u64,
        /// The encoded value.
        value: Bytes,
    },
    /// To the home: a choice offers something. Its value is asked for by `Reserve`.
    OfferChoice {
        /// Which offer.
        ticket: u64,
        /// The choice's number among all of both nodes ([`crate::agent::set_origin`]).
        choice: u128,
    },
    /// To the home: the value that was asked for. Until `Taken`, `Abort`, `Failed` or `Withdrawn` the choice
    /// decides for nothing else.
    Grant {
        /// Which offer.
        ticket: u64,
        /// Which reservation.
        request: u64,
        /// The encoded value.
        value: Bytes,
    },
    /// To the home: what was asked for is not there any more. Nothing answers.
    Refuse {
        /// Which offer.
        ticket: u64,
    },
    /// To the home: the offer is asked back. `Withdrawn` answers, unless `Taken`, `Held` or `Failed` has been
    /// said.
    Withdraw {
        /// Which offer.
        ticket: u64,
    },
    /// To the home: the reserved choice would decide for another branch. `Abort` answers, unless the value
    /// has been taken.
    Revoke {
        /// Which offer.
        ticket: u64,
    },
    /// To the sending half: a receive has returned the value.
    Taken {
        /// Which offer.
        ticket: u64,
    },
    /// To the sending half: an extended receive has returned the value; `Released` follows.
    Held {
        /// Which offer.
        ticket: u64,
    },
    /// To the sending half: the extended receive is over.
    Released {
        /// Which offer.
        ticket: u64,
    },
    /// To the sending half: the offer has failed.
    Failed {
        /// Which offer.
        ticket: u64,
        /// Why.
        why: Why,
    },
    /// To the sending half: the offer that was asked back has not been taken.
    Withdrawn {
        /// Which offer.
        ticket: u64,
    },
    /// To the sending half: a receiver wants the value of this offer of a choice.
    Reserve {
        /// Which offer.
        ticket: u64,
        /// Which reservation.
        request: u64,
    },
    /// To the sending half: the receiver does not want it any more; the offer stands.
    Abort {
        /// Which offer.
        ticket: u64,
    },
    /// The channel has ended at the half that says so.
    Ended(Ended),
}

/// How a half has ended its channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The end was dropped. All that the half had to say has been said before.
    Gone,
    /// The channel was retired.
    Retired,
    /// The channel was poisoned. From the sending half, with less than full strength: the home decides.
    Poisoned(Reason),
}

/// One half's way to the other: a place on the connection between two nodes.
pub trait Link: Send + Sync {
    /// Queues a word behind those said before. Returns the waker of the task that writes, if that has to be
    /// woken.
    ///
    /// It is called under the channel's lock. So it takes no lock but the link's own, runs no code of users',
    /// and wakes nothing.
    fn say(&self, word: Word) -> Option<Waker>;

    /// The half here is done: all that it had to say has been said, and it hears nothing more. The same rules
    /// hold.
    fn close(&self) -> Option<Waker>;
}

/// A half of a channel, as its link knows it. Nothing is locked when it is called.
pub trait Half: Send + Sync {
    /// A word of the other half.
    ///
    /// # Errors
    /// The word, if the other half cannot have said it to this one: it breaks the protocol.
    fn hear(&self, word: Word) -> Result<(), Word>;

    /// The other node is lost for good. Sends whose values may have been taken there end as
    /// [`Unknown`](crate::SendError::Unknown).
    fn lost(&self);
}

/// How a channel's values go over a link.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// How they are encoded.
    pub format: Format,
    /// How large an encoded value may be, in bytes.
    pub value_max: u64,
}

/// Takes the place of the receiver, which is at the other node: the channel is a sending half from now on. It
/// must be new: nothing has been offered on it.
pub fn sending_half<T: Portable, P>(receiver: Receiver<T, P>, terms: Terms, link: Arc<dyn Link>) -> Arc<dyn Half> {
    let chan = receiver.chan().clone();
    let remote = Remote::new(link, terms, encode::<T>, decode::<T>);
    chan.add_agent(|queue, after| queue.link_receiver(remote, after));
    // The receiver's end lives on as this.
    receiver.into_outlet();
    Arc::new(Sending { chan })
}

/// Takes the place of the sender, which is at the other node: the channel is a receiving half, its home, from
/// now on. It must be a rendezvous.
pub fn receiving_half<T: Portable, P>(sender: Sender<T, P>, terms: Terms, link: Arc<dyn Link>) -> Arc<dyn Half> {
    let chan = sender.chan().clone();
    let remote = Remote::new(link, terms, encode::<T>, decode::<T>);
    chan.add_agent(|queue, _| queue.link_sender(remote));
    // The sender's end lives on as this.
    sender.into_inlet();
    Arc::new(Receiving { chan })
}

/// An event of a half, as the word that says it. `None`: the other half need not hear of it.
pub(crate) trait Said {
    fn into_word(self) -> Option<Word>;
}

impl<T> Said for FromSender<T> {
    fn into_word(self) -> Option<Word> {
        Some(match self {
            Self::AskedBack(ticket) => Word::Withdraw { ticket },
            Self::Revoke(ticket) => Word::Revoke { ticket },
            Self::Retired => Word::Ended(Ended::Retired),
            Self::Poisoned(reason) => Word::Ended(Ended::Poisoned(reason)),
            Self::Gone | Self::Lost => Word::Ended(Ended::Gone),
            // An offer is said with its bytes, and a link has no credits.
            Self::Offered(_) | Self::Sent(_) | Self::Unlocked(_) | Self::Watched => return None,
        })
    }
}

impl<T> Said for FromReceiver<T> {
    fn into_word(self) -> Option<Word> {
        Some(match self {
            Self::Taken(ticket) => Word::Taken { ticket },
            Self::Held(ticket) => Word::Held { ticket },
            Self::Released(ticket) => Word::Released { ticket },
            Self::Failed(ticket, _, why) => Word::Failed { ticket, why },
            Self::Withdrawn(ticket, _) => Word::Withdrawn { ticket },
            Self::Reserve(ticket, request) => Word::Reserve { ticket, request },
            Self::Abort(ticket, _) => Word::Abort { ticket },
            Self::Retired => Word::Ended(Ended::Retired),
            Self::Poisoned(reason) => Word::Ended(Ended::Poisoned(reason)),
            Self::Gone | Self::Down => Word::Ended(Ended::Gone),
            Self::Lost(..) | Self::Credit(_) | Self::Used | Self::Awaited => return None,
        })
    }
}

/// How a decision speaks to the sending half of which it has an offer reserved.
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

/// The half of a sender.
struct Sending<T: Send + 'static> {
    chan: Arc<Chan<T>>,
}

impl<T: Send + 'static> Half for Sending<T> {
    fn hear(&self, word: Word) -> Result<(), Word> {
        match word {
            Word::Taken { ticket } if self.chan.hear_taken(ticket) => return Ok(()),
            Word::Reserve { ticket, request } => {
                let reserver: Arc<dyn Reserver> = Arc::new(Reservation { chan: self.chan.clone(), ticket });
                self.chan.with_queue(|queue, _, after| queue.reserve_over_link(ticket, request, reserver, after));
            }
            Word::Ended(Ended::Poisoned(reason)) => self.chan.poison_surely(reason),
            Word::Ended(Ended::Retired) => self.chan.retire(),
            Word::Ended(Ended::Gone) => {
                self.chan.with_queue(|queue, _, _| queue.home_has_gone());
                self.chan.retire();
            }
            word => {
                // What a deadline says is asked where nothing is locked.
                let timed_out = match &word {
                    Word::Withdrawn { .. } => self.chan.send_timed_out(),
                    _ => Why::TimedOut,
                };
                self.chan.with_queue(|queue, _, after| queue.hear_home(word, timed_out, after))?;
            }
        }
        let is_over = self.chan.with_queue(|queue, _, after| queue.leave_home(after));
        if is_over {
            self.chan.receiver_gone();
        }
        Ok(())
    }

    fn lost(&self) {
        let channel = self.chan.record.id().as_u64();
        let was_linked = self.chan.with_queue(|queue, ends, after| {
            queue.lose_offers_out(channel, after);
            queue.lose_receiver(ends);
            queue.unlink_receiver(after)
        });
        if was_linked {
            self.chan.receiver_gone();
        }
    }
}

/// The half of a receiver.
struct Receiving<T: Send + 'static> {
    chan: Arc<Chan<T>>,
}

impl<T: Send + 'static> Half for Receiving<T> {
    fn hear(&self, word: Word) -> Result<(), Word> {
        match word {
            Word::Offer { ticket, value } => {
                let Err(value) = self.chan.hear_offer(ticket, value) else { return Ok(()) };
                let offered = self.chan.with_queue(|queue, ends, after| {
                    let again = value.clone();
                    queue.offer_encoded(ticket, Some(value), None, ends, after).map_err(|()| again)
                });
                offered.map_err(|value| Word::Offer { ticket, value })
            }
            Word::OfferChoice { ticket, choice } => {
                let offered = self
                    .chan
                    .with_queue(|queue, ends, after| queue.offer_encoded(ticket, None, Some(choice), ends, after));
                offered.map_err(|()| word)
            }
            Word::Grant { ticket, request, value } => {
                let tick = clock::tick();
                let begins = self.chan.with_queue(|queue, _, after| {
                    queue.grant_encoded(ticket, request, value, tick, after);
                    queue.has_grants() && !std::mem::replace(&mut queue.patient, true)
                });
                if begins {
                    let patient: Weak<Chan<T>> = Arc::downgrade(&self.chan);
                    be_patient(patient);
                }
                Ok(())
            }
            Word::Refuse { ticket } => {
                self.chan.with_queue(|queue, _, after| drop(queue.withdraw_from_far(Handle::END, ticket, after)));
                Ok(())
            }
            Word::Withdraw { ticket } => {
                self.chan.with_queue(|queue, _, after| queue.withdraw_encoded(ticket, after));
                Ok(())
            }
            Word::Revoke { ticket } => {
                self.chan.with_queue(|queue, _, after| queue.revoke(Handle::END, ticket, after));
                Ok(())
            }
            Word::Ended(Ended::Poisoned(reason)) => {
                self.chan.poison(reason);
                Ok(())
            }
            Word::Ended(Ended::Retired) => {
                self.chan.retire();
                Ok(())
            }
            Word::Ended(Ended::Gone) => {
                self.leave();
                Ok(())
            }
            word => Err(word),
        }
    }

    fn lost(&self) {
        self.chan.with_queue(|queue, ends, after| queue.lose_sender(ends, after));
        self.leave();
    }
}

impl<T: Send + 'static> Receiving<T> {
    /// Nothing more comes from the sending half.
    fn leave(&self) {
        let link = self.chan.with_queue(|queue, _, after| queue.unlink_sender(after));
        if let Some(link) = link {
            self.chan.sender_gone();
            if let Some(waker) = link.close() {
                waker.wake();
            }
        }
    }
}

/// Encodes into at most so many bytes.
fn encode<T: Portable>(value: &T, terms: Terms, bytes_max: u64, waker: &Waker) -> Poll<Result<Bytes, Why>> {
    thread_local! { static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) } }
    // Code of the user's runs here, which may encode something itself.
    let mut buffer = SCRATCH.with(|scratch| std::mem::take(&mut *scratch.borrow_mut()));
    buffer.clear();
    let mut ends = Outbox::new();
    let written = ends.encode(|| write(value, terms.format, &mut buffer, bytes_max));
    if written.is_ok() && ends.has_ends() && ends.poll_rest(waker).is_pending() {
        return Poll::Pending;
    }
    let bytes = match written {
        Ok(_) if ends.has_ends() => Err(Why::Unsendable("ends do not move over a link yet".into())),
        Ok(bytes) if bytes > bytes_max => Err(Why::TooLarge { bytes, bytes_max }),
        Ok(_) => Ok(Bytes::copy_from_slice(&buffer)),
        Err(text) => Err(Why::Unsendable(text.into())),
    };
    if buffer.capacity() <= SCRATCH_MAX {
        SCRATCH.with(|scratch| *scratch.borrow_mut() = buffer);
    }
    Poll::Ready(bytes)
}

/// So much memory a thread keeps to encode values in.
const SCRATCH_MAX: usize = 64 << 10;

fn write<T: Portable>(value: &T, format: Format, buffer: &mut Vec<u8>, bytes_max: u64) -> Result<u64, String> {
    let mut sink = Sink::new(buffer, bytes_max);
    let written = catch_unwind(AssertUnwindSafe(|| value.write(format, &mut sink)));
    match written {
        Ok(Ok(())) => Ok(sink.bytes()),
        Ok(Err(failure)) => Err(format!("the message cannot be written: {failure:?}")),
        Err(_) => Err("writing the message panicked".to_string()),
    }
}

fn decode<T: Portable>(bytes: &Bytes, terms: Terms) -> Result<T, Why> {
    // A value that is not wanted is dropped in here, too: a panic must not leave the offer as one that is read.
    let read = catch_unwind(AssertUnwindSafe(|| match read_value::<T>(terms.format, bytes) {
        (Ok(value), 0) => Ok(value),
        (Ok(_), left) => Err(format!("the message ends, and {left} bytes more follow")),
        (Err(failure), _) => Err(format!("the message cannot be read: {failure:?}")),
    }));
    let read = read.unwrap_or_else(|panic| {
        // What a panic carries may panic when it is dropped.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(panic)));
        Err("reading the message panicked".to_string())
    });
    read.map_err(|text| Why::Unsendable(text.into()))
}
