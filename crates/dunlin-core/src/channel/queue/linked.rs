//! The queue of a channel whose other half is at the other end of a link: the counterpart of
//! [`far`](super::far) for bytes instead of agents.
//!
//! A value stays in its offer until the offer is taken. The link has only its bytes, which the owner of the
//! send has encoded in a poll. At the home an offer holds bytes until a receive decodes them in a poll.
//! [`crate::remote`] has the diagram.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;

use bytes::Bytes;

use super::Queue;
use super::encoded::{BUFFERED, Encoding, ForSlot, From, Linked, Reading, Remote, Request, Slot, Stand};
use super::events::{ByLink, FromReceiver, FromSender, Given, Heard};
use super::offer::{Away, Ends, FromFar, Known, Offer, Offered, Owner, Standing, Unread};
use super::value::{Source, Value};
use crate::channel::after::After;
use crate::channel::erased::{AnySlot, Erased};
use crate::channel::policy::{Admit, Window};
use crate::channel::words::{Ended, Link, SentPlaces, Word};
use crate::choice::decision::{Branching, Reserve, Reserver};
use crate::error::{Failed, MessageId, Why};
use crate::handle::Handle;
use crate::portable::scratch::copied;

/// The bytes of a choice's offer are kept up to this size. A larger value is encoded once a receiver has
/// reserved the offer: otherwise a choice that is made repeatedly would encode it each time.
const KEPT_MAX: u64 = 1 << 10;

/// Values of at least this many bytes stay in the memory in which they arrived.
const SHARED_MIN: usize = 16 << 10;

/// Values of at least this many bytes arrived in a buffer that holds little else.
const ALONE_MIN: usize = 256 << 10;

/// The bytes of a value that no receive waits for. Values that arrive together share one buffer, which any
/// part keeps alive.
fn apart(value: Bytes) -> Bytes {
    if value.len() < SHARED_MIN { copied(&value) } else { value }
}

// ---- the slot

impl Queue {
    /// What encodes a send of the end through the slot. `None`: the slot is in use, or the queue holds other
    /// work.
    pub(crate) fn slot_for_send(&self) -> Option<ForSlot> {
        let remote = self.remote.as_deref()?;
        let is_free = self.outlet.is_some()
            && remote.is_open
            && self.credits.is_none()
            && matches!(remote.slot, Slot::Empty)
            && self.offers.is_empty()
            && remote.spent.is_empty()
            && self.kept.is_empty()
            && self.stranded.is_empty()
            && !self.sender_claimed
            && self.senders_bound.is_none();
        is_free.then(|| ForSlot {
            encode: remote.encode,
            terms: remote.terms,
            link: remote.has_places.then(|| remote.link.clone()),
        })
    }

    /// Offers a value of the end through the slot. Returns the ticket, and the waker to wake.
    pub(crate) fn offer_in_slot(&mut self, value: Bytes, places: Option<SentPlaces>) -> Option<(u64, Option<Waker>)> {
        let ticket = self.next_ticket;
        let remote = self.remote.as_deref_mut()?;
        self.next_ticket += 1;
        remote.slot = Slot::Out { ticket, taken: false };
        let Some(places) = places else { return Some((ticket, remote.link.say(Word::Offer { ticket, value }))) };
        remote.has_places = true;
        Some((ticket, remote.link.request(ticket, value, places)))
    }

    /// Whether the queue is a home that needs no more than the slot.
    pub(crate) fn may_take_from_slot(&self) -> bool {
        self.inlet.is_some()
            && self.offers.is_empty()
            && self.watchers.is_empty()
            && self.buffering.is_none()
            && self.held.is_empty()
            && self.held_offers == 0
            && self.lone_inlets.is_empty()
            && self.demands.is_none()
            && !self.receiver_claimed
            && !self.has_turn
            && self.senders_bound.is_none()
            && self.receivers_bound.is_none()
            && self.ask_awaited.is_empty()
    }

    /// Puts an offer of the sending half into the slot. `Err`: the slot is taken, or the queue holds other
    /// work. `is_watched`: a receive waits at the slot, so the queue holds none.
    pub(crate) fn put_in_slot(
        &mut self,
        number: u64,
        value: Bytes,
        has_places: bool,
        is_watched: bool,
    ) -> Result<(), Bytes> {
        let ticket = self.next_ticket;
        let is_free = is_watched || self.may_take_from_slot();
        match self.remote.as_deref_mut() {
            Some(remote) if is_free && matches!(remote.slot, Slot::Empty) => {
                self.next_ticket += 1;
                remote.has_places |= has_places;
                let value = if is_watched { value } else { apart(value) };
                remote.slot = Slot::In { ticket, number, value, is_apart: !is_watched, read: None };
                Ok(())
            }
            _ => Err(value),
        }
    }

    /// Begins the read of the offer in the slot, for a receive.
    pub(crate) fn read_slot(&mut self) -> Option<Reading> {
        let remote = self.remote.as_deref_mut()?;
        let Slot::In { ticket, value, is_apart, read: read @ None, .. } = &mut remote.slot else { return None };
        let number = remote.reads;
        remote.reads += 1;
        *read = Some(number);
        let (ticket, bytes, is_apart) = (*ticket, value.clone(), *is_apart);
        let mut reading = remote.reading_of_offer(ticket, number, bytes);
        reading.is_apart = is_apart;
        Some(reading)
    }

    /// Takes the offer in the slot for the receive that has read it. `None`: it is not there any more.
    pub(crate) fn take_from_slot(&mut self, reading: &mut Reading) -> Option<Option<Waker>> {
        let remote = self.remote.as_deref_mut()?;
        let Slot::In { number, read, .. } = remote.slot else { return None };
        if read != Some(reading.number) {
            return None;
        }
        remote.slot = Slot::Empty;
        reading.is_taken(number);
        Some(remote.link.say(Word::Taken { ticket: number }))
    }

    /// Moves the contents of the slot into the queue. `value`, `waker`: those of the channel's slots.
    pub(crate) fn adopt_slot(&mut self, value: &mut dyn AnySlot, waker: &mut Option<Waker>, is_watched: bool) {
        let Some(remote) = self.remote.as_deref_mut() else { return };
        if is_watched {
            waker.take().into_iter().for_each(|waker| self.watchers.adopt(waker));
        }
        let (ticket, value, standing, waker, far, linked) = match std::mem::replace(&mut remote.slot, Slot::Empty) {
            Slot::Empty => return,
            Slot::Out { ticket, taken } => {
                let standing = if taken { Standing::Spent } else { Standing::Away(Away::default()) };
                let value = value.take().map_or(Value::Gone, Value::Here);
                (ticket, value, standing, waker.take(), None, Linked::NOTHING)
            }
            Slot::In { ticket, number, value, read, .. } => {
                let far = FromFar { of: Handle::END, number, choice: None, unread: Unread::No, ask: None };
                let mut linked = Linked::NOTHING;
                linked.make().read = read;
                (ticket, Value::Encoded(value), Standing::Waiting, None, Some(far), linked)
            }
        };
        self.offers.push_back(Offer {
            ticket,
            handle: Handle::END,
            owner: Owner::Operation,
            has_turn: false,
            value,
            standing,
            choice: None,
            waker,
            far,
            known: Known::No,
            linked,
        });
    }
}

// ---- the sending half

impl Queue {
    /// Puts a link into the receiver's place.
    pub(crate) fn link_receiver(&mut self, remote: Remote, after: &mut After) {
        let buffered = self.replace_receiver(after);
        debug_assert!(buffered.is_empty() && self.offers.is_empty(), "the channel is new");
        if let Some(outlet) = &mut self.outlet {
            outlet.link = Some(Box::new(ByLink { link: remote.link.clone(), stands_by: false }));
        }
        self.remote = Some(Box::new(remote));
    }

    /// Records that the receiver is gone. Outstanding offers still get answers.
    pub(crate) fn home_has_gone(&mut self) {
        if let Some(remote) = &mut self.remote {
            remote.receiver_gone = true;
        }
    }

    /// Ends the sending half, once the receiver is gone and no offer is outstanding: it sends its last word,
    /// and receives no more. `true`: it was active until now.
    pub(crate) fn leave_home(&mut self, after: &mut After) -> bool {
        let is_gone = self.remote.as_ref().is_some_and(|remote| remote.receiver_gone);
        if !is_gone || self.outlet.is_none() || self.has_offers_out() {
            return false;
        }
        self.say(Word::Ended(Ended::Gone), after);
        self.unlink_receiver(after)
    }

    /// Removes the link from the receiver's place. `false`: there was none.
    pub(crate) fn unlink_receiver(&mut self, after: &mut After) -> bool {
        let was_linked = self.outlet.is_some();
        self.agent_gone(after);
        was_linked
    }

    /// Asks for a reservation back: the reserved choice could decide for another branch.
    pub(crate) fn revoke_over_link(&mut self, ticket: u64, after: &mut After) {
        if self.find(ticket).is_none() {
            return;
        }
        if let Some(outlet) = &mut self.outlet {
            outlet.tell(FromSender::Revoke(ticket), &mut after.wakes);
        }
    }

    pub(crate) fn link(&self) -> Option<&Arc<dyn Link>> {
        self.remote.as_ref().map(|remote| &remote.link)
    }

    pub(super) fn say(&self, word: Word, after: &mut After) {
        if let Some(link) = self.link() {
            after.wakes.add(link.say(word));
        }
    }

    /// What to encode before a value is offered, unless it is encoded or needs no bytes.
    pub(crate) fn begin_offer(
        &mut self,
        source: &Source<'_>,
        is_choice: bool,
        ends: Ends,
        after: &mut After,
    ) -> Result<Option<Encoding>, Why> {
        let encoded = after.encoding.take();
        if self.remote.is_none() || self.outlet.is_none() || self.no_more_sends(ends).is_some() {
            return Ok(None);
        }
        let Some(remote) = &mut self.remote else { return Ok(None) };
        // Left from an offer that was refused after it had been encoded.
        remote.encoded = None;
        if let Source::Pool(pool) = source {
            remote.encoded = pool.lock().encoded.clone();
            return Ok(None);
        }
        if source.is_empty() {
            return Ok(None);
        }
        let goes_at_once = !is_choice || self.credits.is_some_and(|places| places > 0);
        let bytes_max = if goes_at_once { remote.terms.value_max } else { KEPT_MAX.min(remote.terms.value_max) };
        let (encode, terms) = (remote.encode, remote.terms);
        match encoded.and_then(|encoding| encoding.bytes) {
            None => Ok(Some(Encoding { from: From::Source, encode, terms, bytes_max, bytes: None })),
            Some(Ok(bytes)) => {
                remote.encoded = Some(bytes);
                Ok(None)
            }
            Some(Err(Why::TooLarge { bytes, .. })) if bytes <= terms.value_max => Ok(None),
            Some(Err(_)) if remote.has_agent() => {
                self.unlink(after);
                Ok(None)
            }
            Some(Err(Why::TooLarge { bytes, .. })) => Err(Why::TooLarge { bytes, bytes_max: terms.value_max }),
            Some(Err(why)) => Err(why),
        }
    }

    /// What encodes a value that a choice offers, if it travels over a link.
    pub(crate) fn encoding_for_link(&self) -> Option<Encoding> {
        let remote = self.remote.as_ref().filter(|_| self.outlet.is_some())?;
        let bytes_max = KEPT_MAX.min(remote.terms.value_max);
        Some(Encoding { from: From::Source, encode: remote.encode, terms: remote.terms, bytes_max, bytes: None })
    }

    /// Takes the bytes of the offer that is being made.
    pub(super) fn take_encoded(&mut self) -> Linked {
        let encoded = self.remote.as_mut().and_then(|remote| remote.encoded.take());
        Linked::encoded(encoded)
    }

    /// Sends an offer to the home. `true`: the home may have a receiver.
    pub(super) fn offer_over_link(&mut self, ticket: u64, after: &mut After) -> bool {
        let Some(index) = self.find(ticket) else { return true };
        let stands = self.offers[index].standing == Standing::Waiting && self.acts(self.offers[index].handle);
        let is_open = self.remote.as_ref().is_some_and(|remote| remote.is_open);
        if !stands || !is_open || self.has_ended() {
            return true;
        }
        let offer = &mut self.offers[index];
        if let Some((decision, _)) = &offer.choice {
            let choice = decision.id();
            if std::mem::replace(&mut offer.known, Known::Yes) == Known::No {
                self.say(Word::OfferChoice { ticket, choice }, after);
            }
        } else if let Some(value) = offer.linked.take_encoded() {
            offer.standing = Standing::Away(Away::default());
            self.say(Word::Offer { ticket, value }, after);
        }
        // A firm offer that has come back has no bytes: its owner withdraws it, and offers it anew.
        true
    }

    /// What the owner of this offer must encode for a receiver's request. Its choice is closed meanwhile.
    pub(crate) fn begin_encoding(&mut self, ticket: u64) -> Option<Encoding> {
        let remote = self.remote.as_ref()?;
        let (encode, terms) = (remote.encode, remote.terms);
        let index = self.find(ticket)?;
        let offer = &mut self.offers[index];
        let is_due = offer.standing == Standing::Waiting && offer.linked.has_request();
        if !is_due || offer.linked.bytes().is_some() {
            return None;
        }
        if offer.choice.as_ref().is_some_and(|(decision, _)| !decision.close_now()) {
            // It is reserved for another branch, or decided: its owner is polled again if that is undone.
            return None;
        }
        let value = match &mut offer.value {
            Value::Pooled(pool) => pool.lock().take(),
            value => value.take(),
        };
        let from = From::Offer(ticket, value?);
        Some(Encoding { from, encode, terms, bytes_max: terms.value_max, bytes: None })
    }

    /// Returns the value, with its bytes, to its offer. The caller then opens the choice, and
    /// [answers](Self::answer) the request.
    pub(crate) fn end_encoding(&mut self, encoding: Encoding, after: &mut After) {
        let Encoding { from: From::Offer(ticket, value), bytes, .. } = encoding else { return };
        let Some(index) = self.find(ticket) else { return after.dropped.push(value) };
        let offer = &mut self.offers[index];
        match &mut offer.value {
            Value::Pooled(pool) => pool.lock().put(value),
            here => *here = Value::Here(value),
        }
        match bytes {
            Some(Ok(bytes)) if self.remote.is_some() => offer.linked.make().encoded = Some(bytes),
            Some(Err(_)) if self.remote.as_ref().is_none_or(|remote| remote.has_agent()) => self.unlink(after),
            Some(Err(why)) if offer.standing == Standing::Waiting => {
                // The home forgets the offer, so no withdrawal is needed.
                offer.known = Known::No;
                drop(offer.linked.take_request());
                self.say(Word::Refuse { ticket }, after);
                self.fail(index, why, after);
            }
            _ => {}
        }
    }

    /// Answers the request that waits for the offer.
    pub(crate) fn answer(&mut self, ticket: u64, after: &mut After) {
        let Some(index) = self.find(ticket) else { return };
        match self.offers[index].linked.take_request() {
            Some(Request::Reserve(request, reserver)) => self.reserve_over_link(ticket, request, reserver, after),
            Some(Request::Place) => self.admit_waiting(after),
            None => {}
        }
    }

    /// Handles the home's announcement of how it takes values.
    ///
    /// # Errors
    /// If the home had announced it before.
    pub(crate) fn open_link(&mut self, places: Option<u32>, after: &mut After) -> Result<(), ()> {
        let remote = self.remote.as_mut().filter(|remote| !remote.is_open).ok_or(())?;
        remote.is_open = true;
        if let Some(places) = places {
            self.credits = Some(0);
            self.credit(places, after);
            return Ok(());
        }
        let tickets: Vec<u64> = self.offers.iter().map(|offer| offer.ticket).collect();
        tickets.into_iter().for_each(|ticket| {
            self.offer_over_link(ticket, after);
        });
        Ok(())
    }

    /// Adds places that the home promises.
    ///
    /// # Errors
    /// If the home has never promised any.
    pub(crate) fn credit_over_link(&mut self, places: u32, after: &mut After) -> Result<(), ()> {
        if self.credits.is_none() && self.outlet.is_some() {
            return Err(());
        }
        if self.outlet.is_some() {
            self.credit(places, after);
        }
        Ok(())
    }

    /// Whether this is a sending half whose home promises places.
    fn has_places(&self) -> bool {
        self.remote.is_some() && self.credits.is_some() && self.outlet.is_some()
    }

    /// Whether a value would go into a promised place at once.
    pub(crate) fn has_free_place(&self) -> bool {
        self.has_places() && self.credits.is_some_and(|places| places > 0)
    }

    /// Whether only missing bytes keep the value being sent from a promised place.
    pub(super) fn lacks_bytes(&self) -> bool {
        self.has_places() && self.remote.as_ref().is_some_and(|remote| remote.encoded.is_none())
    }

    /// Requests the bytes of a waiting offer that was made while there were places: it has none.
    pub(super) fn ask_for_bytes(&mut self, after: &mut After) {
        if self.has_free_place() {
            self.admit_waiting(after);
        }
    }

    /// Whether there is a place for this offer, but its owner must encode the value first.
    pub(super) fn waits_for_bytes(&mut self, index: usize, after: &mut After) -> bool {
        if !self.has_places() || self.offers[index].linked.bytes().is_some() {
            return false;
        }
        let offer = &mut self.offers[index];
        if !offer.linked.has_request() {
            offer.linked.make().request = Some(Request::Place);
        }
        after.wakes.add(offer.waker.take());
        if let Some((decision, _)) = &offer.choice {
            decision.nudge(&mut after.wakes);
        }
        true
    }

    /// Sends the value of this settled offer into a place; its owner drops the value. `false`: the home
    /// promises no places.
    pub(super) fn send_waiting(&mut self, index: usize, after: &mut After) -> bool {
        if !self.has_places() {
            return false;
        }
        let offer = &mut self.offers[index];
        let Some(value) = offer.linked.take_encoded() else { return false };
        if let Value::Pooled(pool) = &offer.value {
            // The send may be dropped before it looks, and must not find the sent value in the pool.
            offer.linked.make().value = pool.lock().take();
        }
        self.credits = self.credits.map(|places| places - 1);
        self.say(Word::Sent { value }, after);
        self.far_took_value_here(index, after);
        true
    }

    /// The value of an offer, as its reservation returns it; for a pool, the pooled value.
    fn given_back(&mut self, index: usize) -> Given<Erased> {
        self.offers[index].linked.take_value().map_or(Given::Unread, Given::Value)
    }

    /// Reserves this offer of a choice for a receiver elsewhere, once its bytes are available.
    pub(crate) fn reserve_over_link(
        &mut self,
        ticket: u64,
        request: u64,
        reserver: Arc<dyn Reserver>,
        after: &mut After,
    ) {
        let is_open = |offer: &Offer| matches!(offer.standing, Standing::Waiting | Standing::Away(_));
        let ended = self.has_ended();
        let Some(index) = self.find(ticket).filter(|index| is_open(&self.offers[*index]) && !ended) else {
            return self.refuse(ticket, after);
        };
        let offer = &mut self.offers[index];
        let Some((decision, _)) = &offer.choice else { return self.refuse(ticket, after) };
        let Some(value) = offer.linked.bytes().cloned() else {
            decision.nudge(&mut after.wakes);
            offer.linked.make().request = Some(Request::Reserve(request, reserver));
            return;
        };
        match decision.reserve(&reserver) {
            Reserve::Granted => {}
            Reserve::Later => {
                offer.linked.make().request = Some(Request::Reserve(request, reserver));
                return;
            }
            Reserve::Dead => {
                if self.sender_leaving {
                    // No send will take it back.
                    self.strand(index, after);
                }
                return self.refuse(ticket, after);
            }
        }
        offer.standing = Standing::Away(Away::default());
        if let Value::Pooled(pool) = &offer.value {
            // The send may be dropped meanwhile, and must not find the promised value in the pool.
            offer.linked.make().value = pool.lock().take();
        }
        self.say(Word::Grant { ticket, request, value }, after);
    }

    /// Refuses a request. The home forgets the offer, so no withdrawal is needed.
    fn refuse(&mut self, ticket: u64, after: &mut After) {
        if let Some(index) = self.find(ticket) {
            self.offers[index].known = Known::No;
        }
        self.say(Word::Refuse { ticket }, after);
    }

    /// Handles a word of the home about an offer.
    ///
    /// # Errors
    /// The word, if the home cannot have sent it.
    pub(crate) fn hear_home(&mut self, word: Word, timed_out: Why, after: &mut After) -> Result<(), Word> {
        let ticket = match &word {
            Word::Taken { ticket }
            | Word::Held { ticket }
            | Word::Released { ticket }
            | Word::Failed { ticket, .. }
            | Word::Withdrawn { ticket }
            | Word::Abort { ticket }
            | Word::Decline { ticket, .. } => *ticket,
            _ => return Err(word),
        };
        let index = self.find(ticket);
        // A withdrawn offer of a choice is removed before the home learns of it.
        let is_back = matches!(word, Word::Abort { .. } | Word::Decline { .. });
        let is_late = is_back || matches!(word, Word::Failed { .. } | Word::Withdrawn { .. });
        let Some(index) = index else { return if is_late { Ok(()) } else { Err(word) } };
        let is_out = match (&word, &self.offers[index].standing) {
            (Word::Taken { .. } | Word::Held { .. }, Standing::Away(_)) => true,
            (Word::Released { .. }, Standing::Held(_)) => true,
            _ => is_late,
        };
        if !is_out {
            return Err(word);
        }
        match word {
            Word::Held { .. } => self.far_took(ticket, true, after),
            Word::Failed { why, .. } => {
                let given = self.given_back(index);
                self.far_failed(ticket, Some(given), why, after);
            }
            Word::Withdrawn { .. } => {
                let given = self.given_back(index);
                self.far_withdrew(ticket, Some(given), timed_out, after);
            }
            Word::Abort { .. } | Word::Decline { .. } => {
                if self.offers[index].standing == Standing::Waiting {
                    // It was requested, and has not been granted.
                    drop(self.offers[index].linked.take_request());
                }
                let given = self.given_back(index);
                self.far_gave_back(ticket, given, after);
            }
            _ => self.far_took(ticket, false, after),
        }
        Ok(())
    }

    /// Handles the receive of the value elsewhere: the owner of the send drops the value in a poll.
    pub(super) fn far_took_value_here(&mut self, index: usize, after: &mut After) {
        let offer = &mut self.offers[index];
        let was_abandoned = match &offer.standing {
            Standing::Away(away) => away.abandoned,
            _ => false,
        };
        offer.standing = Standing::Spent;
        after.wakes.add(offer.waker.take());
        if let Some((decision, _)) = &offer.choice {
            decision.nudge(&mut after.wakes);
        }
        if was_abandoned || offer.owner == Owner::Nobody {
            let value = self.remove(index, after).and_then(Self::spent_value);
            let value = self.keep_spent(value);
            debug_assert!(value.is_none(), "there is a link");
        }
        self.wake_settlers(&mut after.wakes);
    }

    /// The value of an offer that was taken.
    fn spent_value(mut offer: Offer) -> Option<Erased> {
        offer.linked.take_value().or_else(|| offer.value.take())
    }

    /// Keeps the value for the next operation of the end to drop. Without a link, returns it.
    pub(super) fn keep_spent(&mut self, value: Option<Erased>) -> Option<Erased> {
        let Some(remote) = &mut self.remote else { return value };
        remote.spent.extend(value);
        None
    }

    /// Drops the value of this offer if it has been taken. `true`: it had.
    #[inline]
    pub(super) fn drop_spent(&mut self, index: usize, after: &mut After) -> bool {
        let is_spent = matches!(self.offers[index].standing, Standing::Spent);
        if is_spent {
            self.drop_that_is_spent(index, after);
        }
        is_spent
    }

    #[inline(never)]
    fn drop_that_is_spent(&mut self, index: usize, after: &mut After) {
        let value = self.remove(index, after).and_then(Self::spent_value);
        after.dropped.extend(value);
    }

    /// The same for all values left by this handle's sends.
    #[inline]
    pub(crate) fn drop_all_spent(&mut self, handle: Handle, after: &mut After) {
        // Without a link, now or before, there are none.
        if self.remote.is_some() || self.past.is_some() {
            self.drop_all_that_is_spent(handle, after);
        }
    }

    #[inline(never)]
    fn drop_all_that_is_spent(&mut self, handle: Handle, after: &mut After) {
        if let Some(remote) = &mut self.remote {
            after.dropped.extend(remote.spent.drain(..));
        }
        let is_left =
            |o: &Offer| o.handle == handle && o.owner == Owner::Operation && matches!(o.standing, Standing::Spent);
        while let Some(index) = self.offers.iter().position(is_left) {
            self.drop_spent(index, after);
        }
    }

    /// Whether an answer of the home about an offer is outstanding.
    pub(crate) fn has_offers_out(&self) -> bool {
        self.offers.iter().any(|offer| matches!(offer.standing, Standing::Away(_)))
    }

    /// Handles the loss of the receiver's node: it is unknown which outstanding offers were taken.
    pub(crate) fn lose_offers_out(&mut self, channel: u64, after: &mut After) {
        let is_out = |offer: &Offer| matches!(offer.standing, Standing::Away(_));
        while let Some(index) = self.offers.iter().position(is_out) {
            let ticket = self.offers[index].ticket;
            let id = MessageId { channel, number: ticket };
            let offer = &mut self.offers[index];
            let Standing::Away(away) = &offer.standing else { return };
            let is_left = away.abandoned || offer.owner == Owner::Nobody;
            if let Some(value) = offer.linked.take_value() {
                match &offer.value {
                    Value::Pooled(pool) if !is_left => pool.lock().put(value),
                    _ => offer.value = Value::Here(value),
                }
            }
            offer.standing = Standing::Failed(Failed::Unknown(id));
            after.wakes.add(offer.waker.take());
            if let Some((decision, branch)) = &offer.choice {
                // No other branch could be certain that the choice has not happened already.
                decision.confirm(*branch, &mut after.wakes);
            }
            if is_left && let Some(offer) = self.remove(index, after) {
                let (handle, owner) = (offer.handle, offer.owner);
                let value = Self::spent_value(offer);
                if owner == Owner::Operation {
                    let kept = value.into_iter().map(|value| super::Kept { handle, value, unknown: Some(id) });
                    kept.for_each(|kept| self.kept.push(kept));
                } else {
                    self.keep_spent(value);
                }
            }
            self.wake_settlers(&mut after.wakes);
        }
    }
}

// ---- the receiving half

impl Queue {
    /// Puts a link into the sender's place.
    pub(crate) fn link_sender(&mut self, remote: Remote, after: &mut After) {
        self.inlet = Some(Heard::new());
        let places = self.lend(&mut after.wakes);
        let places = (self.lending.window != Window::None).then_some(places);
        if let Some(inlet) = &mut self.inlet {
            inlet.link = Some(Box::new(ByLink { link: remote.link.clone(), stands_by: false }));
        }
        self.remote = Some(Box::new(remote));
        self.say(Word::Opened { places }, after);
    }

    /// Removes the link from the sender's place, and returns it if it was there.
    pub(crate) fn unlink_sender(&mut self, after: &mut After) -> Option<Arc<dyn Link>> {
        self.inlet.take()?;
        self.drop_choices_from_far(Handle::END, after);
        self.link().cloned()
    }

    /// Adds an offer of the sending half: with its bytes, or of a choice.
    ///
    /// # Errors
    /// If there is an offer with this number already.
    pub(crate) fn offer_encoded(
        &mut self,
        number: u64,
        value: Option<Bytes>,
        choice: Option<u128>,
        ends: Ends,
        after: &mut After,
    ) -> Result<(), ()> {
        if self.find_far(Handle::END, number).is_some() {
            return Err(());
        }
        let mut value = value;
        let refused = match self.admit_encoded(&mut value, ends, after) {
            Offered::Admitted => {
                self.tell_inlet(Handle::END, FromReceiver::Taken(number), after);
                return Ok(());
            }
            Offered::Failed(why) => Some(why),
            Offered::Queued(..) | Offered::ChoiceGone => self.make_room(Handle::END, after).err(),
        };
        if let Some(why) = refused {
            self.tell_inlet(Handle::END, FromReceiver::Failed(number, None, why), after);
            return Ok(());
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        if self.watchers.counted() == 0 {
            value = value.map(apart);
        }
        self.offers.push_back(Offer {
            ticket,
            handle: Handle::END,
            owner: Owner::Operation,
            has_turn: false,
            value: value.map_or(Value::Gone, Value::Encoded),
            standing: Standing::Waiting,
            choice: None,
            waker: None,
            far: Some(FromFar { of: Handle::END, number, choice, unread: Unread::No, ask: None }),
            known: Known::No,
            linked: Linked::NOTHING,
        });
        if choice.is_some() {
            // A buffer with room requests the value itself.
            self.refill(after);
        }
        self.announce(ticket, Handle::END, after);
        Ok(())
    }

    /// Whether a value with places for replies can wait here: not in a buffer, where it is taken unread.
    pub(crate) fn takes_requests(&mut self) -> bool {
        let takes = self.buffering.is_none();
        self.remote.iter_mut().for_each(|remote| remote.has_places |= takes);
        takes
    }

    /// Puts an offered value into the buffer, if the policy has room for it.
    fn admit_encoded(&mut self, value: &mut Option<Bytes>, ends: Ends, after: &mut After) -> Offered {
        if let Some(why) = self.no_more_sends(ends) {
            return Offered::Failed(why);
        }
        if value.is_none() {
            return Offered::Queued(0, false);
        }
        // A policy that panics refuses this value; the socket's task continues.
        match catch_unwind(AssertUnwindSafe(|| self.admit_at_once(Handle::END))).unwrap_or(Admit::Refuse) {
            Admit::Wait => return Offered::Queued(0, false),
            Admit::Refuse => return Offered::Failed(Why::Refused),
            admit => self.push_encoded(admit, value.take(), after),
        }
        self.wake_watchers(&mut after.wakes);
        Offered::Admitted
    }

    fn push_encoded(&mut self, admit: Admit, bytes: Option<Bytes>, after: &mut After) {
        if let Some(bytes) = bytes
            && self.make_place(admit, after)
        {
            self.buffer_bytes(bytes);
        }
    }

    /// Buffers bytes. A value that may stay for long, and is accounted by its size, keeps no more memory
    /// alive.
    fn buffer_bytes(&mut self, bytes: Bytes) {
        let is_awaited = self.buffer.is_empty() && self.watchers.counted() > 0;
        let is_shared = is_awaited || bytes.len() >= ALONE_MIN;
        self.buffer.push_encoded(if is_shared { bytes } else { Bytes::copy_from_slice(&bytes) });
    }

    /// The same for an offer that waited for room, if its value is encoded.
    pub(super) fn admit_bytes(&mut self, admit: Admit, value: &mut Value, after: &mut After) {
        let bytes = value.take_encoded();
        self.push_encoded(admit, bytes, after);
    }

    /// Puts a value into the place promised for it.
    ///
    /// # Errors
    /// The bytes, if no place was promised.
    pub(crate) fn push_from_link(&mut self, value: Bytes, after: &mut After) -> Result<(), Bytes> {
        let Some(is_wanted) = self.use_promised() else { return Err(value) };
        let bytes = value.len();
        if is_wanted {
            self.buffer_bytes(value);
        }
        let buffered = self.buffer.len();
        if let Some(remote) = &self.remote {
            if let Some(places) = remote.link.has_come(bytes, buffered) {
                self.lending.most = places.max(1);
            }
            if remote.has_agent() {
                self.lending.below = u32::try_from(buffered.div_ceil(2)).unwrap_or(u32::MAX);
            }
        }
        if is_wanted {
            self.has_come(after);
        }
        Ok(())
    }

    /// Handles the bytes of an offer that a receive has reserved. They are declined if that receive has
    /// ended.
    pub(crate) fn grant_encoded(&mut self, number: u64, request: u64, value: Bytes, tick: u32, after: &mut After) {
        let Some(index) = self.find_far(Handle::END, number) else { return };
        let offer = &mut self.offers[index];
        let ask = offer.far.as_mut().and_then(|far| far.ask.as_mut()).filter(|ask| ask.number == request);
        let Some(ask) = ask else { return self.say(Word::Decline { ticket: number, request }, after) };
        let handle = ask.handle;
        if handle == Handle::BUFFER {
            return self.grant_to_buffer(index, value, after);
        }
        ask.granted = Some(tick);
        offer.value = Value::Encoded(value);
        // Only this receiver may take it.
        self.wake_watcher(handle, &mut after.wakes);
    }

    fn grant_to_buffer(&mut self, index: usize, value: Bytes, after: &mut After) {
        match catch_unwind(AssertUnwindSafe(|| self.ask_policy())).unwrap_or(Admit::Refuse) {
            Admit::Wait => {
                // Another value has taken the room meanwhile.
                if let Some(far) = &mut self.offers[index].far {
                    far.ask = None;
                    let ticket = far.number;
                    self.say(Word::Abort { ticket }, after);
                }
            }
            Admit::Refuse => {
                self.fail(index, Why::Refused, after);
            }
            admit => {
                self.push_encoded(admit, Some(value), after);
                if let Some(offer) = self.remove(index, after) {
                    self.tell_taken(offer, after);
                }
                self.wake_watchers(&mut after.wakes);
            }
        }
    }

    /// The state of the value of an offer that a receive would take.
    pub(super) fn read(&mut self, index: usize, own: Branching<'_>) -> Stand {
        let Some(remote) = &mut self.remote else { return Stand::Here };
        let offer = &mut self.offers[index];
        let Value::Encoded(bytes) = &offer.value else { return Stand::Here };
        match remote.stand(offer.linked.read(), own) {
            Ok(read) => read,
            Err(number) => {
                let reading = remote.reading_of_offer(offer.ticket, number, bytes.clone());
                offer.linked.make().read = Some(number);
                Stand::ToDecode(Box::new(reading))
            }
        }
    }

    /// The same for the first value in the buffer.
    pub(super) fn read_buffered(&mut self, own: Branching<'_>) -> Stand {
        let (Some(encoded), Some(remote)) = (self.buffer.first_encoded(), &mut self.remote) else { return Stand::Here };
        match remote.stand(encoded.read, own) {
            Ok(read) => read,
            Err(number) => {
                encoded.read = Some(number);
                Stand::ToDecode(Box::new(remote.reading(BUFFERED, number, encoded.bytes.clone())))
            }
        }
    }

    /// The decoded first value of the buffer, for the receive that takes it.
    pub(super) fn take_decoded_first(&mut self) -> Option<Erased> {
        let mark = self.buffer.first_encoded()?.read;
        self.remote.as_mut()?.take_decoded(mark, None)
    }

    /// Records a value that a receive has decoded, before it looks again.
    pub(crate) fn has_decoded(&mut self, mut reading: Reading, after: &mut After) {
        let Some(remote) = &mut self.remote else {
            after.wakes.add(reading.is_not_taken());
            return after.dropped.extend(reading.into_value().and_then(Result::ok));
        };
        // An agent decodes it once more, and reports the error.
        let is_the_agents = remote.has_agent() && !reading.is_readable();
        remote.decoded = Some(reading);
        if is_the_agents {
            self.end_reading(after);
            self.unlink(after);
        }
    }

    /// Puts the decoded value into its offer, which is being taken.
    pub(super) fn take_decoded(&mut self, index: usize) {
        let (mark, far) = (self.offers[index].linked.read(), self.offers[index].far.as_ref().map(|far| far.number));
        if let Some(value) = self.remote.as_mut().and_then(|remote| remote.take_decoded(mark, far)) {
            self.offers[index].value = Value::Here(value);
        }
    }

    /// Ends the read. An untaken value is dropped; its offer, if that stands, is available to other receives
    /// again, and so are the offers that they skipped behind it.
    pub(crate) fn end_reading(&mut self, after: &mut After) {
        let Some(mut reading) = self.remote.as_mut().and_then(|remote| remote.decoded.take()) else { return };
        after.wakes.add(reading.is_not_taken());
        if reading.ticket == BUFFERED {
            let first = self.buffer.first_encoded().filter(|first| first.read == Some(reading.number));
            first.into_iter().for_each(|first| first.read = None);
        } else if let Some(index) = self.find(reading.ticket) {
            let linked = &mut self.offers[index].linked;
            if linked.read() == Some(reading.number) {
                linked.forget_read();
            }
        }
        after.dropped.extend(reading.value.and_then(Result::ok));
        // Receivers that have looked meanwhile have skipped it, and the offers behind it.
        if self.has_left() {
            self.wake_watchers(&mut after.wakes);
        }
    }

    /// Withdraws an offer, for the sending half.
    pub(crate) fn withdraw_encoded(&mut self, number: u64, after: &mut After) {
        if self.withdraw_from_far(Handle::END, number, after).is_some() {
            self.say(Word::Withdrawn { ticket: number }, after);
        }
    }
}
