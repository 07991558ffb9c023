//! An agent that stands by while values go over a link.
//!
//! A node has an [agent](crate::agent) at each half of a channel, which has all features. While only values
//! travel over the channel they need no agent: a link carries them, as bytes, encoded and decoded in the
//! polls of their ends. The agent handles all that a link does not carry: a value with an end in it, a value
//! that cannot be encoded or decoded, claims and handles elsewhere, an end that leaves, the end of the
//! channel. The queue then gives up its link at once, and the agent [takes over](Queue::take_over) what is
//! open. Values buffered as bytes return to their places as values.
//!
//! While it stands by, the agent gets only the event that ends the channel.

use std::task::Waker;

use bytes::Bytes;

use super::Queue;
#[cfg(feature = "serde")]
use super::Retires;
use super::encoded::{BUFFERED, Reading, Remote, Request};
use super::events::{ByLink, FromSender};
use super::offer::{Known, Standing};
use super::value::Value;
use crate::channel::after::After;
use crate::channel::erased::Erased;
use crate::channel::policy::Window;
use crate::error::Why;
use crate::handle::Handle;
use crate::wake;

/// The open offers and requests of a sending half when its agent takes over.
#[derive(Debug)]
pub struct Open<V> {
    /// Offers whose values have gone out, with their tickets. `true`: a choice's, which was reserved.
    pub offers: Vec<(u64, V, bool)>,
    /// Offers of choices that are requested, with the request:
    /// [`Outlet::reserve`](crate::agent::Outlet::reserve) must be tried again.
    pub requests: Vec<(u64, u64)>,
}

/// A message that had arrived at a receiving half when its agent takes over, and was taken out of the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Returned {
    /// The offer of a value, by its number.
    Offer(u64, Bytes),
    /// The value requested by this request, for a choice's offer, which stands.
    Grant(u64, u64, Bytes),
    /// A buffered value that cannot be decoded, although its send is complete: both ends must be notified.
    Unreadable(Why),
}

/// The remains of a link that was given up.
#[derive(Default)]
pub(super) struct Past {
    /// How many values had been decoded.
    reads: u64,
    /// Arrived messages, for the agent to decode.
    pub(super) returned: Vec<Returned>,
    /// Values buffered as bytes: they must be decoded and [brought back](Queue::bring_back).
    buffered: Vec<Reading>,
}

impl Queue {
    /// Makes the receiver's agent stand by. `false`: not possible now.
    pub(crate) fn link_outlet(&mut self, mut remote: Remote) -> bool {
        let is_quiet = self.outlet.as_ref().is_some_and(|outlet| outlet.events.is_empty());
        if !is_quiet || self.inlet.is_some() || self.carried > 0 || self.sender_leaving || !self.is_plain() {
            return false;
        }
        remote.is_open = true;
        remote.reads = self.past.as_ref().map_or(0, |past| past.reads);
        if let Some(outlet) = &mut self.outlet {
            outlet.link = Some(Box::new(ByLink { link: remote.link.clone(), stands_by: true }));
        }
        self.remote = Some(Box::new(remote));
        true
    }

    /// Makes the sender's agent stand by. `false`: not possible now.
    pub(crate) fn link_inlet(&mut self, mut remote: Remote) -> bool {
        let is_quiet = self.inlet.as_ref().is_some_and(|inlet| inlet.events.is_empty());
        let promises = self.lending.on || self.lending.window == Window::None;
        let has_told = promises && self.lending.owed == 0 && !self.lending.is_below;
        let is_coming = self.lending.comes || self.lending.unused || !has_told;
        #[cfg(feature = "serde")]
        let is_kept_elsewhere = !matches!(self.retires, Retires::Here);
        #[cfg(not(feature = "serde"))]
        let is_kept_elsewhere = false;
        if !is_quiet || self.outlet.is_some() || is_coming || is_kept_elsewhere || !self.is_plain() {
            return false;
        }
        remote.reads = self.past.as_ref().map_or(0, |past| past.reads);
        if let Some(inlet) = &mut self.inlet {
            inlet.link = Some(Box::new(ByLink { link: remote.link.clone(), stands_by: true }));
        }
        self.remote = Some(Box::new(remote));
        true
    }

    /// Whether nothing here needs an agent, and nothing is open.
    fn is_plain(&self) -> bool {
        let is_alone = self.lone_inlets.is_empty() && self.demands.is_none() && self.held.is_empty();
        let has_returned =
            self.lending.returning > 0 || self.past.as_ref().is_some_and(|past| !past.returned.is_empty());
        let is_at_rest = self.offers.is_empty() && self.kept.is_empty() && !has_returned;
        let has_ended = self.has_ended() || self.sender_lost || self.receiver_lost;
        let is_claimed = self.sender_claimed || self.receiver_claimed;
        self.remote.is_none() && !self.keeps_agent && is_alone && is_at_rest && !has_ended && !is_claimed
    }

    /// Registers the agent's waker, and returns the one that it replaces, if any. `None`: the agent does not
    /// stand by, or has an event to read.
    pub(crate) fn stands_by(&mut self, is_receivers: bool, waker: &Waker) -> Option<Option<Waker>> {
        self.remote.as_ref()?;
        let slot = if is_receivers {
            self.outlet.as_mut().filter(|outlet| outlet.events.is_empty()).map(|outlet| &mut outlet.waker)
        } else {
            self.inlet.as_mut().filter(|inlet| inlet.events.is_empty()).map(|inlet| &mut inlet.waker)
        }?;
        match slot {
            Some(old) if old.will_wake(waker) => Some(None),
            slot => Some(slot.replace(wake::keep(waker))),
        }
    }

    /// Makes the agent take over, if it stands by.
    pub(crate) fn unlink(&mut self, after: &mut After) {
        let Some(mut remote) = self.remote.take_if(|remote| remote.has_agent()) else { return };
        let past = self.past.get_or_insert_default();
        for bytes in self.buffer.take_encoded() {
            self.lending.returning += 1;
            let number = remote.reads;
            remote.reads += 1;
            past.buffered.push(remote.reading(BUFFERED, number, bytes));
        }
        past.reads = remote.reads;
        let Remote { spent, mut decoded, .. } = *remote;
        decoded.iter_mut().for_each(|reading| after.wakes.add(reading.is_not_taken()));
        after.dropped.extend(spent);
        after.dropped.extend(decoded.and_then(|reading| reading.into_value()).and_then(Result::ok));
        if self.outlet.is_some() {
            self.unlink_outlet(after);
        }
        if self.inlet.is_some() {
            self.unlink_inlet(after);
        }
    }

    /// Makes the agent take over for good.
    pub(crate) fn keep_agent(&mut self, after: &mut After) {
        self.keeps_agent = true;
        self.unlink(after);
    }

    /// Makes an agent take over for a handle of a shared end.
    #[inline]
    pub(super) fn needs_agent_for(&mut self, handle: Handle, after: &mut After) {
        if handle != Handle::END && self.remote.is_some() {
            self.keep_agent(after);
        }
    }

    fn unlink_outlet(&mut self, after: &mut After) {
        let Some(outlet) = &mut self.outlet else { return };
        outlet.link = None;
        after.wakes.add(outlet.waker.take());
        for offer in self.offers.iter().filter(|o| o.standing == Standing::Waiting && o.known == Known::No) {
            outlet.tell(FromSender::Offered(offer.ticket), &mut after.wakes);
        }
        if self.credits.is_some() {
            self.refill(after);
        }
    }

    fn unlink_inlet(&mut self, after: &mut After) {
        if let Some(inlet) = &mut self.inlet {
            inlet.link = None;
            after.wakes.add(inlet.waker.take());
        }
        let (mut index, mut returned) = (0, Vec::new());
        while index < self.offers.len() {
            let offer = &mut self.offers[index];
            offer.linked.forget_read();
            let (Some(far), Some(bytes)) = (&mut offer.far, offer.value.take_encoded()) else {
                index += 1;
                continue;
            };
            match &mut far.ask {
                Some(ask) if far.choice.is_some() => {
                    ask.granted = None;
                    returned.push(Returned::Grant(far.number, ask.number, bytes));
                    index += 1;
                }
                _ => {
                    returned.push(Returned::Offer(far.number, bytes));
                    self.remove(index, after);
                }
            }
        }
        self.past.get_or_insert_default().returned.extend(returned);
    }

    /// Hands the open offers of this sending half to its agent. `None`: the agent still stands by.
    pub(crate) fn take_over(&mut self) -> Option<Open<Erased>> {
        if self.remote.is_some() {
            return None;
        }
        let mut open = Open { offers: Vec::new(), requests: Vec::new() };
        for offer in &mut self.offers {
            if let Some(Request::Reserve(request, _)) = offer.linked.take_request() {
                open.requests.push((offer.ticket, request));
            }
            if !matches!(&offer.standing, Standing::Away(away) if away.demanded_by.is_none()) {
                continue;
            }
            let here = |offer: &mut super::Offer| match offer.value {
                Value::Here(_) => offer.value.take(),
                _ => None,
            };
            let value = offer.linked.take_value().or_else(|| here(offer));
            open.offers.extend(value.map(|value| (offer.ticket, value, offer.choice.is_some())));
        }
        Some(open)
    }

    /// Hands the messages that arrived at this receiving half to its agent, with the values to be decoded and
    /// [brought back](Queue::bring_back). `None`: the agent still stands by.
    pub(crate) fn take_returned(&mut self) -> Option<(Vec<Returned>, Vec<Reading>)> {
        if self.remote.is_some() {
            return None;
        }
        let past =
            self.past.as_mut().map(|past| (std::mem::take(&mut past.returned), std::mem::take(&mut past.buffered)));
        Some(past.unwrap_or_default())
    }
}
