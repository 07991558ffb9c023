//! A channel over a link: its halves push words to each other, and values travel as bytes.
//!
//! A link joins two nodes and carries the channels between them. A channel whose ends are on different nodes
//! is two halves, one at each node. At either node a half is a [`Half`], to which the link delivers the words
//! that arrive for it, and it sends its own words through a [`Link`]. Unlike an [agent](crate::agent), a half
//! is never polled: the poll, or the call, of the end that causes a word pushes it.
//!
//! ```text
//!   sending half                                        receiving half (home)
//!                                  ◀── Opened ──        at once: whether it promises places, and how many
//!   send().poll: encode, offer     ── Offer(bytes) ──▶   the queue keeps bytes; wakes the receiver
//!                                                        recv().poll: unlocks, decodes, locks, decides
//!   send().poll: value dropped     ◀── Taken ──
//!   a choice's offer               ── OfferChoice ──▶
//!   reserved                       ◀── Reserve ──        recv().poll
//!   encoded by its owner           ── Grant(bytes) ──▶   recv().poll: decodes, decides
//!     (Refuse: the offer no longer exists)
//!   confirmed                      ◀── Taken ──
//!   open again                     ◀── Abort ──
//!   the send was dropped, or late  ── Withdraw ──▶
//!   given back                     ◀── Withdrawn ──      (or Taken, Failed: the withdrawal came too late)
//!
//!   send().poll: encode            ── Sent(bytes) ──▶    into a promised place: the buffer keeps bytes
//!                                  ◀── Credit ──         recv().poll: decodes; the place is free again
//! ```
//!
//! # Rules
//! - The sending end encodes a value in its poll or call, and the receiving end decodes it in its own. One of
//!   the two drops it. The task of a socket does none of these.
//! - The value stays at the sender until its offer is taken, so no value has to be returned.
//! - Locks are taken in this order: the channel's, then the link's. Neither is held while users' code runs or
//!   a task is woken.
//! - Words of one half arrive in the order in which it sent them.
//!
//! # Source
//! `docs/choice.md`, section 3, with the state *reading* of an offer.

use std::sync::Arc;
use std::task::{Poll, Waker};

use bytes::Bytes;

use crate::channel::erased::Erased;
use crate::channel::heard::{hear_from_home, hear_from_sender};
use crate::channel::queue::encoded::Remote;
use crate::channel::receiver::Receiver;
use crate::channel::sender::Sender;
use crate::channel::state::FarChan;
pub use crate::channel::words::{Ended, Half, Link, ReadPlaces, Request, SentPlaces, Terms, Word};
use crate::error::Why;
use crate::portable::Portable;
use crate::portable::carrier::{Format, Outbox, Scratch, Sink, Write, catch, read_value};

/// Replaces the receiver, which is at the other node: from now on the channel is a sending half. The channel
/// must be new, without any offer.
pub fn sending_half<T: Portable, P>(receiver: Receiver<T, P>, terms: Terms, link: Arc<dyn Link>) -> Arc<dyn Half> {
    let chan: Arc<dyn FarChan> = receiver.chan().clone();
    let remote = Remote::new(link, terms, encode_at::<T>, decode::<T>);
    chan.any().add_agent(|queue, after| queue.link_receiver(remote, after));
    // The receiver's end lives on in this half.
    receiver.into_outlet();
    Arc::new(Sending { chan })
}

/// Replaces the sender, which is at the other node: from now on the channel is a receiving half, its home.
pub fn receiving_half<T: Portable, P>(sender: Sender<T, P>, terms: Terms, link: Arc<dyn Link>) -> Arc<dyn Half> {
    let chan: Arc<dyn FarChan> = sender.chan().clone();
    let remote = Remote::new(link, terms, encode_at::<T>, decode::<T>);
    chan.any().add_agent(|queue, after| queue.link_sender(remote, after));
    // The sender's end lives on in this half.
    sender.into_inlet();
    Arc::new(Receiving { chan })
}

/// The half of a sender.
struct Sending {
    chan: Arc<dyn FarChan>,
}

impl Half for Sending {
    fn hear(&self, word: Word) -> Result<(), Word> {
        match word {
            Word::Ended(Ended::Poisoned(reason)) => self.chan.any().poison_surely(reason),
            Word::Ended(Ended::Retired) => self.chan.any().retire(),
            Word::Ended(Ended::Gone) => {
                self.chan.any().with_queue(|queue, _, _| queue.home_has_gone());
                self.chan.any().retire();
            }
            word => hear_from_home(&self.chan, word)?,
        }
        let is_over = self.chan.any().with_queue(|queue, _, after| queue.leave_home(after));
        if is_over {
            self.chan.any().receiver_gone();
        }
        Ok(())
    }

    fn lost(&self) {
        let channel = self.chan.any().record.id().as_u64();
        let was_linked = self.chan.any().with_queue(|queue, ends, after| {
            queue.lose_offers_out(channel, after);
            queue.lose_receiver(ends);
            queue.unlink_receiver(after)
        });
        if was_linked {
            self.chan.any().receiver_gone();
        }
    }
}

/// The half of a receiver.
struct Receiving {
    chan: Arc<dyn FarChan>,
}

impl Half for Receiving {
    fn hear(&self, word: Word) -> Result<(), Word> {
        match word {
            Word::Ended(Ended::Poisoned(reason)) => {
                self.chan.any().poison(reason);
                Ok(())
            }
            Word::Ended(Ended::Retired) => {
                // No value is on its way any more.
                self.chan.any().with_queue(|queue, _, after| queue.end_lending(after));
                self.chan.any().retire();
                Ok(())
            }
            Word::Ended(Ended::Gone) => {
                self.leave();
                Ok(())
            }
            word => hear_from_sender(&self.chan, word),
        }
    }

    fn lost(&self) {
        self.chan.any().with_queue(|queue, ends, after| queue.lose_sender(ends, after));
        self.leave();
    }
}

impl Receiving {
    /// Ends the half: the sending half sends nothing more.
    fn leave(&self) {
        let link = self.chan.any().with_queue(|queue, _, after| {
            queue.end_lending(after);
            queue.unlink_sender(after)
        });
        if let Some(link) = link {
            self.chan.any().sender_gone();
            if let Some(waker) = link.close() {
                waker.wake();
            }
        }
    }
}

/// Encodes the value there.
///
/// # Safety
/// It is a `T`.
unsafe fn encode_at<T: Portable>(
    value: *const (),
    terms: Terms,
    bytes_max: u64,
    waker: &Waker,
) -> Poll<Result<Bytes, Why>> {
    // SAFETY: the caller's.
    encode(unsafe { &*value.cast::<T>() }, terms, bytes_max, waker)
}

/// Encodes into at most `bytes_max` bytes.
fn encode<T: Portable>(value: &T, terms: Terms, bytes_max: u64, waker: &Waker) -> Poll<Result<Bytes, Why>> {
    // The user's code runs here and may itself encode a value.
    let mut buffer = Scratch::take();
    let mut ends = Outbox::new();
    let written = ends.encode(|| write(value, terms.format, &mut buffer, bytes_max));
    if written.is_ok() && ends.has_ends() && ends.poll_rest(waker).is_pending() {
        return Poll::Pending;
    }
    Poll::Ready(match written {
        Ok(_) if ends.has_ends() => Err(Why::Unsendable("ends do not move over a link yet".into())),
        Ok(bytes) if bytes > bytes_max => Err(Why::TooLarge { bytes, bytes_max }),
        Ok(_) => Ok(buffer.into_bytes()),
        Err(text) => Err(Why::Unsendable(text.into())),
    })
}

fn write<T: Portable>(value: &T, format: Format, buffer: &mut Vec<u8>, bytes_max: u64) -> Result<u64, String> {
    let mut sink = Sink::new(buffer, bytes_max);
    match catch(|| value.write(format, &mut sink)) {
        Ok(Ok(())) => Ok(sink.bytes()),
        Ok(Err(failure)) => Err(format!("the message cannot be written: {failure:?}")),
        Err(text) => Err(format!("writing the message panicked: {text}")),
    }
}

fn decode<T: Portable>(bytes: &Bytes, terms: Terms, _: bool) -> Result<Erased, Why> {
    // An unwanted value is dropped inside `catch` as well: a panic must not leave its offer in the state
    // *reading*.
    let read = catch(|| match read_value::<T>(terms.format, bytes) {
        (Ok(value), 0) => Ok(value),
        (Ok(_), left) => Err(format!("the message ends, and {left} bytes more follow")),
        (Err(failure), _) => Err(format!("the message cannot be read: {failure:?}")),
    });
    let read = read.unwrap_or_else(|text| Err(format!("reading the message panicked: {text}")));
    read.map(Erased::new).map_err(|text| Why::Unsendable(text.into()))
}
